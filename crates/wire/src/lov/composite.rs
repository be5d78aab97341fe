//! Composite layouts: components, each with a byte range and a plain layout of its own.

use bytes::Bytes;

use super::{LovMagic, LovMd};
use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::{wire_bits, wire_struct};

wire_bits! {
    /// State of a component (`LCME_FL_*`).
    pub struct CompFlags: u32 {
        /// `LCME_FL_STALE`: this mirror's data is out of date.
        STALE = 0x1,
        /// `LCME_FL_PREF_RD`: preferred for reading.
        PREF_RD = 0x2,
        /// `LCME_FL_PREF_WR`: preferred for writing.
        PREF_WR = 0x4,
        /// `LCME_FL_OFFLINE`: not used.
        OFFLINE = 0x8,
        /// `LCME_FL_INIT`: has objects.
        INIT = 0x10,
        /// `LCME_FL_NOSYNC`: not resynced.
        NOSYNC = 0x20,
        /// `LCME_FL_EXTENSION`: never has objects, its range goes to its neighbour.
        EXTENSION = 0x40,
        /// `LCME_FL_PARITY`: parity of another component.
        PARITY = 0x80,
        /// `LCME_FL_COMPRESS`: to be compressed.
        COMPRESS = 0x100,
        /// `LCME_FL_PARTIAL`: partly compressed.
        PARTIAL = 0x200,
        /// `LCME_FL_NOCOMPR`: not to be compressed.
        NOCOMPR = 0x400,
        /// `LCME_FL_IS_LINK_ID`: a protected reference is a link.
        IS_LINK_ID = 0x4000_0000,
        /// `LCME_FL_NEG`: a wish for the flag's absence.
        NEG = 0x8000_0000,
    }
}

wire_struct! {
    /// `struct lov_comp_md_entry_v1`: what a component is, and where its layout lies.
    pub struct LovCompEntry {
        /// Mirror number in bits 16 to 30, component number below.
        id: u32,
        /// State.
        flags: CompFlags,
        /// First byte.
        start: u64,
        /// First byte behind; all ones for the end of the file.
        end: u64,
        /// Where its layout starts, from the composite's start; computed when encoding.
        offset: u32,
        /// Bytes of its layout; computed when encoding.
        size: u32,
        /// Generation.
        layout_gen: u32,
        /// Low 48 bits: when the mirror became stale; the rest: link of data and parity.
        time_and_id: u64,
        /// Data stripes of an erasure code.
        dstripe_count: u8,
        /// Code stripes of an erasure code.
        cstripe_count: u8,
        /// Kind of compression.
        compr_type: u8,
        /// Compression level and chunk size.
        compr_level_chunk: u8,
    }
}

wire_struct! {
    /// `struct lov_comp_md_v1` without its entries.
    pub struct LovCompHeader {
        /// [`LovMagic::COMP_V1`] or, in a wish, [`LovMagic::SEL`].
        magic: LovMagic,
        /// Bytes in all; computed when encoding.
        size: u32,
        /// Generation.
        layout_gen: u32,
        /// State of the mirrors (`LCM_FL_*`): 0 none, 1 in sync, 2 being written, 3 being synced.
        flags: u16,
        /// Components; computed when encoding.
        entry_count: u16,
        /// Mirrors, less one.
        mirror_count: u16,
        /// Parity mirrors.
        ec_count: u8,
        /// Unused.
        padding3: u8,
        /// Unused.
        padding1: u32,
        /// Unused.
        padding2: u64,
    }
}

/// One component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LovComponent {
    /// What it is.
    pub entry: LovCompEntry,
    /// Its layout.
    pub layout: LovMd,
}

/// `struct lov_comp_md_v1`: a layout made of components.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LovComp {
    /// What the components have in common.
    pub header: LovCompHeader,
    /// The components, mirror by mirror, by rising offset.
    pub components: Vec<LovComponent>,
}

impl LovComp {
    /// Reads one. Zeros may follow it.
    ///
    /// # Errors
    /// [`DecodeError`] if a part lies outside of it or is no plain layout.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let header = LovCompHeader::decode(&mut reader)?;
        let size = header.size as usize;
        if size < LovCompHeader::SIZE || size > bytes.len() {
            return Err(DecodeError::Illegal { what: "lcm_size", value: header.size.into() });
        }
        if bytes[size..].iter().any(|byte| *byte != 0) {
            let bytes = bytes.len() - size;
            return Err(DecodeError::Trailing { what: "lov_comp_md", bytes });
        }
        let bytes = &bytes.slice(..size);
        let count = usize::from(header.entry_count);
        if count > reader.remaining() / LovCompEntry::SIZE {
            return Err(DecodeError::Truncated { what: "lcm_entries" });
        }
        let mut components = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = LovCompEntry::decode(&mut reader)?;
            let start = entry.offset as usize;
            let end = start.checked_add(entry.size as usize).filter(|end| *end <= bytes.len());
            let end = end.ok_or(DecodeError::Truncated { what: "lcme_offset" })?;
            let layout = LovMd::decode(&bytes.slice(start..end))?;
            components.push(LovComponent { entry, layout });
        }
        Ok(Self { header, components })
    }

    /// Appends the layout; sizes, offsets and counts are computed.
    pub fn encode_into(&self, writer: &mut Writer) {
        let mut offset = LovCompHeader::SIZE + self.components.len() * LovCompEntry::SIZE;
        let size = offset + self.components.iter().map(|part| part.layout.size()).sum::<usize>();
        let header = LovCompHeader {
            size: size as u32,
            entry_count: self.components.len() as u16,
            ..self.header.clone()
        };
        header.encode(writer);
        for part in &self.components {
            let size = part.layout.size();
            let entry =
                LovCompEntry { offset: offset as u32, size: size as u32, ..part.entry.clone() };
            entry.encode(writer);
            offset += size;
        }
        for part in &self.components {
            part.layout.encode_into(writer);
        }
    }
}
