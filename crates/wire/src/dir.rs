//! Directory pages, as READPAGE and a directory's bulk carry them.
//!
//! A page is [`PAGE_SIZE`] bytes on the wire whatever the page size of either machine. Entries
//! are in the order of their hashes, which are the directory's cookies too.

use bytes::Bytes;
use sheen_types::Fid;

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::{wire_bits, wire_struct};

/// Bytes of a page (`LU_PAGE_SIZE`).
pub const PAGE_SIZE: usize = 4096;
/// The hash of the end of every directory (`MDS_DIR_END_OFF`).
pub const HASH_END: u64 = 0xffff_ffff_ffff_fffe;

wire_bits! {
    /// What follows an entry's name (`LUDA_*`).
    pub struct DirAttrs: u32 {
        /// `LUDA_FID`: the FID is there.
        FID = 0x1,
        /// `LUDA_TYPE`: the file type follows the name.
        TYPE = 0x2,
        /// `LUDA_64BITHASH`: hashes have 64 bits.
        HASH64 = 0x4,
    }
}

wire_bits! {
    /// State of a page (`LDF_*`).
    pub struct PageFlags: u32 {
        /// `LDF_EMPTY`: no entry.
        EMPTY = 0x1,
        /// `LDF_COLLIDE`: the next page goes on with the hash this one ends with.
        COLLIDE = 0x2,
    }
}

wire_struct! {
    /// `struct lu_dirpage` without its entries.
    pub struct DirPageHeader {
        /// Hash asked for.
        hash_start: u64,
        /// Hash at which to go on; [`HASH_END`] at the end.
        hash_end: u64,
        /// State.
        flags: PageFlags,
        /// Unused.
        padding: u32,
    }
}

wire_struct! {
    /// `struct lu_dirent` without its name.
    pub struct DirentHeader {
        /// The object.
        fid: Fid,
        /// Hash of the name.
        hash: u64,
        /// Bytes to the next entry; 0 in a page's last.
        reclen: u16,
        /// Bytes of the name.
        namelen: u16,
        /// What follows the name.
        attrs: DirAttrs,
    }
}

/// One name (`struct lu_dirent`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The object.
    pub fid: Fid,
    /// Hash of the name: the cookie of this entry.
    pub hash: u64,
    /// What follows the name; [`DirAttrs::TYPE`] must say whether `kind` is there.
    pub attrs: DirAttrs,
    /// The name, without NUL.
    pub name: Bytes,
    /// Type bits of the mode (`S_IFMT`), if given.
    pub kind: Option<u16>,
}

impl DirEntry {
    /// An entry as we send them: with FID, type and 64-bit hash.
    #[must_use]
    pub fn new(fid: Fid, hash: u64, name: Bytes, kind: u16) -> Self {
        let attrs = DirAttrs::FID | DirAttrs::TYPE | DirAttrs::HASH64;
        Self { fid, hash, attrs, name, kind: Some(kind) }
    }

    /// Bytes in a page (`lu_dirent_calc_size`): a multiple of 8.
    #[must_use]
    pub fn size(&self) -> usize {
        record_size(self.name.len(), self.attrs)
    }

    fn decode(page: &Bytes, at: usize) -> Result<(Self, usize), DecodeError> {
        let tail = page.slice(at..);
        let mut reader = Reader::new(&tail, ByteOrder::Little);
        let header = DirentHeader::decode(&mut reader)?;
        let name = reader.bytes(header.namelen.into(), "lde_name")?;
        let kind = if header.attrs.contains(DirAttrs::TYPE) {
            reader.bytes(name.len() % 2, "lde_name")?;
            Some(u16::decode(&mut reader)?)
        } else {
            None
        };
        let entry = Self { fid: header.fid, hash: header.hash, attrs: header.attrs, name, kind };
        Ok((entry, header.reclen.into()))
    }

    fn encode(&self, last: bool, writer: &mut Writer) {
        let end = writer.len() + self.size();
        DirentHeader {
            fid: self.fid,
            hash: self.hash,
            reclen: if last { 0 } else { self.size() as u16 },
            namelen: self.name.len() as u16,
            attrs: self.attrs,
        }
        .encode(writer);
        writer.put(&self.name);
        if let Some(kind) = self.kind {
            writer.zeros(self.name.len() % 2);
            kind.encode(writer);
        }
        writer.zeros(end.saturating_sub(writer.len()));
    }
}

fn record_size(name: usize, attrs: DirAttrs) -> usize {
    let mut size = DirentHeader::SIZE + name + 1;
    if attrs.contains(DirAttrs::TYPE) {
        size = size.next_multiple_of(2) + 2;
    }
    size.next_multiple_of(8)
}

/// One page of a directory (`struct lu_dirpage`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirPage {
    /// Where it starts and ends.
    pub header: DirPageHeader,
    /// The entries.
    pub entries: Vec<DirEntry>,
}

impl DirPage {
    /// Bytes left for entries.
    pub const ROOM: usize = PAGE_SIZE - DirPageHeader::SIZE;

    /// Reads one page of [`PAGE_SIZE`] bytes.
    ///
    /// # Errors
    /// [`DecodeError`] if the length is another, or entries overlap, leave the page or come in
    /// another order than that of their hashes.
    pub fn decode(page: &Bytes) -> Result<Self, DecodeError> {
        if page.len() != PAGE_SIZE {
            return Err(DecodeError::Illegal { what: "lu_dirpage", value: page.len() as u64 });
        }
        let header = DirPageHeader::decode(&mut Reader::new(page, ByteOrder::Little))?;
        let mut entries: Vec<DirEntry> = Vec::new();
        let mut at = DirPageHeader::SIZE;
        let mut more = !header.flags.contains(PageFlags::EMPTY);
        while more {
            let (entry, length) = DirEntry::decode(page, at)?;
            if length != 0 && length < entry.size() {
                return Err(DecodeError::Illegal { what: "lde_reclen", value: length as u64 });
            }
            if entries.last().is_some_and(|last| last.hash > entry.hash) {
                return Err(DecodeError::Illegal { what: "lde_hash", value: entry.hash });
            }
            at += length;
            more = length != 0;
            if at >= PAGE_SIZE {
                return Err(DecodeError::Illegal { what: "lde_reclen", value: length as u64 });
            }
            entries.push(entry);
        }
        Ok(Self { header, entries })
    }

    /// The page's bytes, filled up with zeros. The entries must fit into [`DirPage::ROOM`]; what
    /// does not fit is left out.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::with_capacity(PAGE_SIZE);
        let mut room = Self::ROOM;
        let fits = |entry: &&DirEntry| match room.checked_sub(entry.size()) {
            Some(rest) => {
                room = rest;
                true
            }
            None => false,
        };
        let count = self.entries.iter().take_while(fits).count();
        debug_assert_eq!(count, self.entries.len(), "the caller has counted");
        let empty = if count == 0 { PageFlags::EMPTY } else { PageFlags::NONE };
        let flags = self.header.flags.without(PageFlags::EMPTY) | empty;
        DirPageHeader { flags, ..self.header.clone() }.encode(&mut writer);
        for (index, entry) in self.entries[..count].iter().enumerate() {
            entry.encode(index + 1 == count, &mut writer);
        }
        writer.zeros(PAGE_SIZE - writer.len());
        writer.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(hash: u64, name: &'static str) -> DirEntry {
        DirEntry::new(Fid::new(1, hash as u32), hash, Bytes::from_static(name.as_bytes()), 0o100000)
    }

    #[test]
    fn layout() {
        assert_eq!((DirPageHeader::SIZE, DirentHeader::SIZE), (24, 32));
        assert_eq!(entry(1, "a").size(), 40);
        assert_eq!(entry(1, "abcd").size(), 40);
        assert_eq!(entry(1, "abcdef").size(), 48);
    }

    #[test]
    fn a_page_comes_back_and_its_last_entry_has_no_length() {
        let entries = vec![entry(1, "odd"), entry(5, "even"), entry(9, "a longer name")];
        let header = DirPageHeader { hash_end: HASH_END, ..DirPageHeader::default() };
        let page = DirPage { header, entries };
        let bytes = page.encode();
        assert_eq!(bytes.len(), PAGE_SIZE);
        assert_eq!(&bytes[24 + 24..24 + 26], [40, 0]);
        assert_eq!(&bytes[24 + 80 + 24..24 + 80 + 26], [0, 0]);
        assert_eq!(DirPage::decode(&bytes), Ok(page));
        let empty = DirPage::default().encode();
        assert_eq!(empty[16], 1, "marked empty");
        assert_eq!(DirPage::decode(&empty).map(|page| page.entries.len()), Ok(0));
    }

    #[test]
    fn pages_that_lie_are_refused() {
        let bytes = DirPage { entries: vec![entry(1, "x"), entry(2, "y")], ..DirPage::default() };
        let bytes = bytes.encode();
        for (at, value) in [(48, 8), (49, 0xff), (24 + 40 + 26, 0xff), (40, 0xff)] {
            let mut broken = bytes.to_vec();
            broken[at] = value;
            if at == 24 + 40 + 26 {
                broken[at + 1] = 0xff;
            }
            assert!(DirPage::decode(&broken.into()).is_err(), "{at}");
        }
    }
}
