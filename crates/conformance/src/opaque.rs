//! What the buffers hold that the message table leaves as bytes, and what bulk data are.
//!
//! Such a buffer's type depends on something else than its place: on its own magic, or on what
//! the request asked for. Each kind is read into its type and written again.

use std::ops::Range;

use bytes::Bytes;
use sheen_types::Fid;
use sheen_wire::changelog::{ChangelogRec, ChangelogSetinfo};
use sheen_wire::dir::{DirPage, DirPageHeader, DirentHeader, PAGE_SIZE};
use sheen_wire::llog::{LlogCookie, LlogLogidRec, LlogRecHdr, LlogRecTail, LlogRecordType};
use sheen_wire::lmv::LmvEa;
use sheen_wire::lov::LovEa;
use sheen_wire::md::{HsmStateSet, HsmUserState, PosixAcl, SwapLayouts};
use sheen_wire::messages::Format;
use sheen_wire::mgs::{CfgMarker, ConfigCommand, LustreCfg, MgsNidtblEntry};
use sheen_wire::opcode::Opcode;
use sheen_wire::ost::{Fiemap, FiemapExtent, NiobufRemote, OstLvb, OstLvbV1};
use sheen_wire::{ByteOrder, DecodeError, Reader, Wire, Writer};

use crate::content::Content;
use crate::{batch, out};

/// Reads the buffer `field` of a request or reply.
#[must_use]
pub fn explain(format: &Format, is_reply: bool, field: &str, bytes: &Bytes) -> Content {
    const ROOM: &[&str] = &["acl", "eadata", "mdt_md", "default_mdt_md"];
    if ROOM.contains(&field) && bytes.iter().all(|byte| *byte == 0) {
        return Content::Plain("room not used");
    }
    match (field, format.opcode) {
        ("niobuf_inline", _) => niobuf_inline(bytes),
        ("short_io", _) => Content::Plain("file data"),
        ("acl", _) => acl(bytes),
        ("symtgt" | "getinfo_key" | "setinfo_key", _) => Content::Plain("string"),
        ("file_secctx" | "file_encctx" | "eavals", _) => Content::Plain("xattr value"),
        ("eadata", Opcode::LLOG_ORIGIN_HANDLE_NEXT_BLOCK)
        | ("eadata", Opcode::LLOG_ORIGIN_HANDLE_PREV_BLOCK) => log_records(bytes),
        ("eadata", Opcode::MDS_GETXATTR) => Content::Plain("xattr value"),
        ("eadata", _) if format.name == "MDS_REINT_SETXATTR" => Content::Plain("xattr value"),
        ("eadata", Opcode::LDLM_ENQUEUE) if is_reply => Content::Plain("xattr names"),
        ("eadata" | "mdt_md" | "default_mdt_md", _) => layout(bytes),
        ("dlm_lvb", _) => value_block(bytes),
        ("but_update_header", _) => batch::header(bytes, explain),
        ("batch_update_reply", _) => batch::replies(bytes, explain),
        ("out_update_header", _) => out::header(bytes),
        ("object_update_reply", _) => out::results(bytes),
        ("generic_data", Opcode::FLD_READ) => out::ranges(bytes),
        ("hsm_state_set", _) => array::<HsmStateSet>(bytes),
        ("hsm_user_state", _) => array::<HsmUserState>(bytes),
        ("swap_layouts", _) => array::<SwapLayouts>(bytes),
        ("logcookies", _) => array::<LlogCookie>(bytes),
        ("fiemap_val", _) => fiemap(bytes),
        ("getinfo_val" | "setinfo_val" | "generic_data", _) => info_value(format, bytes),
        _ => Content::Untyped,
    }
}

/// Reads the bulk data of a request.
#[must_use]
pub fn explain_bulk(format: Option<&Format>, bytes: &Bytes) -> Content {
    match format.map(|format| format.opcode) {
        Some(Opcode::MDS_READPAGE) => dir_pages(bytes),
        Some(Opcode::MGS_CONFIG_READ) => nid_table(bytes),
        Some(Opcode::MDS_BATCH) => batch::requests(bytes, explain),
        Some(Opcode::OUT_UPDATE) => out::updates(bytes),
        Some(Opcode::OST_READ | Opcode::OST_WRITE) => Content::Plain("file data"),
        _ => Content::Untyped,
    }
}

fn whole<T: std::fmt::Debug>(read: Result<(T, Bytes), DecodeError>) -> Content {
    read.map_or(Content::Untyped, |(value, encoded)| Content::typed(&value, encoded))
}

fn little(bytes: &Bytes) -> Reader<'_> {
    Reader::new(bytes, ByteOrder::Little)
}

/// A layout of a file or directory, or the target of a symbolic link.
fn layout(bytes: &Bytes) -> Content {
    if let Ok(value) = LovEa::decode(bytes) {
        return Content::typed(&value, with_room(value.encode(), bytes.len()));
    }
    if let Ok(value) = LmvEa::decode(bytes) {
        return Content::typed(&value, with_room(value.encode(), bytes.len()));
    }
    match bytes.split_last() {
        Some((0, text)) if !text.contains(&0) => Content::Plain("string"),
        _ => Content::Untyped,
    }
}

/// Adds the zeros that fill a buffer up.
fn with_room(encoded: Bytes, length: usize) -> Bytes {
    let mut whole = encoded.to_vec();
    whole.resize(length.max(encoded.len()), 0);
    whole.into()
}

fn acl(bytes: &Bytes) -> Content {
    whole(PosixAcl::decode(bytes).map(|value| {
        let encoded = value.encode();
        (value, encoded)
    }))
}

/// What comes with a lock: sizes and times, or a layout.
fn value_block(bytes: &Bytes) -> Content {
    match bytes.len() {
        OstLvb::SIZE if LovEa::decode(bytes).is_err() => array::<OstLvb>(bytes),
        OstLvbV1::SIZE => array::<OstLvbV1>(bytes),
        _ => layout(bytes),
    }
}

/// Data of a small file that come with its open.
fn niobuf_inline(bytes: &Bytes) -> Content {
    let mut reader = little(bytes);
    let Ok(head) = NiobufRemote::decode(&mut reader) else { return Content::Untyped };
    let mut writer = Writer::with_capacity(bytes.len());
    head.encode(&mut writer);
    writer.put(&reader.rest());
    Content::typed(&head, writer.into_bytes())
}

fn array<T: Wire + std::fmt::Debug>(bytes: &Bytes) -> Content {
    let mut reader = little(bytes);
    let mut writer = Writer::with_capacity(bytes.len());
    let mut values = Vec::new();
    while reader.remaining() > 0 {
        let Ok(value) = T::decode(&mut reader) else { return Content::Untyped };
        value.encode(&mut writer);
        values.push(value);
    }
    Content::typed(&values, writer.into_bytes())
}

fn fiemap(bytes: &Bytes) -> Content {
    whole((|| {
        let mut reader = little(bytes);
        let mut writer = Writer::with_capacity(bytes.len());
        let head = Fiemap::decode(&mut reader)?;
        head.encode(&mut writer);
        let mut extents = Vec::new();
        while reader.remaining() > 0 {
            let extent = FiemapExtent::decode(&mut reader)?;
            extent.encode(&mut writer);
            extents.push(extent);
        }
        Ok(((head, extents), writer.into_bytes()))
    })())
}

/// A value that is set or asked for by key.
fn info_value(format: &Format, bytes: &Bytes) -> Content {
    if format.name == "MDS_FID2PATH" {
        return Content::Plain("path");
    }
    match bytes.len() {
        4 => array::<u32>(bytes),
        8 => array::<u64>(bytes),
        Fid::SIZE => array::<Fid>(bytes),
        ChangelogSetinfo::SIZE => array::<ChangelogSetinfo>(bytes),
        _ => Content::Untyped,
    }
}

/// Records of a log, with what changelogs do not clear between them.
fn log_records(bytes: &Bytes) -> Content {
    let Ok((records, encoded)) = llog_block(bytes) else { return Content::Untyped };
    let dirty = records.iter().map(LlogRecord::dirty_padding).sum();
    Content::Typed { shown: format!("{records:?}"), encoded, dirty }
}

/// A block of a log: records, then zeros.
fn llog_block(bytes: &Bytes) -> Result<(Vec<LlogRecord>, Bytes), DecodeError> {
    let mut writer = Writer::with_capacity(bytes.len());
    let mut records = Vec::new();
    let mut at = 0;
    while bytes.len() - at >= LlogRecHdr::SIZE {
        let tail = bytes.slice(at..);
        let header = LlogRecHdr::decode(&mut little(&tail))?;
        if header.length == 0 {
            break;
        }
        let length = header.length as usize;
        if length < LlogRecHdr::SIZE + LlogRecTail::SIZE || length > tail.len() {
            return Err(DecodeError::Illegal { what: "lrh_len", value: length as u64 });
        }
        let record = LlogRecord::decode(&tail.slice(..length), header)?;
        record.encode(&mut writer);
        records.push(record);
        at += length;
    }
    writer.zeros(bytes.len() - writer.len().min(bytes.len()));
    Ok((records, writer.into_bytes()))
}

/// One record of a log: of those that clients read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LlogRecord {
    Config(LlogRecHdr, LustreCfg, LlogRecTail),
    Marker(LlogRecHdr, LustreCfg, Box<CfgMarker>, LlogRecTail),
    Logid(LlogLogidRec),
    Changelog(LlogRecHdr, Box<ChangelogRec>, LlogRecTail),
    Pad(LlogRecHdr, usize, LlogRecTail),
}

impl LlogRecord {
    fn decode(bytes: &Bytes, header: LlogRecHdr) -> Result<Self, DecodeError> {
        let end = bytes.len() - LlogRecTail::SIZE;
        let tail = LlogRecTail::decode(&mut little(&bytes.slice(end..)))?;
        let inner = bytes.slice(LlogRecHdr::SIZE..end);
        let mut reader = little(&inner);
        match header.kind {
            LlogRecordType::OBD_CFG => {
                let config = LustreCfg::decode(&mut reader)?;
                reader.finish("lustre_cfg")?;
                match config.buffers.get(1) {
                    Some(marker) if config.command == ConfigCommand::MARKER => {
                        let mut reader = little(marker);
                        let marker = CfgMarker::decode(&mut reader)?;
                        reader.finish("cfg_marker")?;
                        Ok(Self::Marker(header, config, Box::new(marker), tail))
                    }
                    _ => Ok(Self::Config(header, config, tail)),
                }
            }
            LlogRecordType::LOGID => Ok(Self::Logid(LlogLogidRec::decode(&mut little(bytes))?)),
            LlogRecordType::CHANGELOG => {
                let record = ChangelogRec::decode(&inner)?;
                Ok(Self::Changelog(header, Box::new(record), tail))
            }
            LlogRecordType::PAD => Ok(Self::Pad(header, inner.len(), tail)),
            LlogRecordType(value) => {
                Err(DecodeError::Illegal { what: "lrh_type", value: value.into() })
            }
        }
    }

    fn dirty_padding(&self) -> usize {
        match self {
            Self::Changelog(_, record, _) => record.padding.iter().filter(|it| **it != 0).count(),
            _ => 0,
        }
    }

    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Config(header, config, tail) => {
                header.encode(writer);
                config.encode(writer);
                tail.encode(writer);
            }
            Self::Marker(header, config, marker, tail) => {
                let mut bytes = Writer::default();
                marker.encode(&mut bytes);
                let mut config = config.clone();
                config.buffers[1] = bytes.into_bytes();
                header.encode(writer);
                config.encode(writer);
                tail.encode(writer);
            }
            Self::Logid(record) => record.encode(writer),
            Self::Changelog(header, record, tail) => {
                header.encode(writer);
                record.encode(writer);
                tail.encode(writer);
            }
            Self::Pad(header, length, tail) => {
                header.encode(writer);
                writer.zeros(*length);
                tail.encode(writer);
            }
        }
    }
}

fn dir_pages(bytes: &Bytes) -> Content {
    if !bytes.len().is_multiple_of(PAGE_SIZE) {
        return Content::Untyped;
    }
    let mut whole = Vec::with_capacity(bytes.len());
    let mut pages = Vec::new();
    let mut dirty = 0;
    for at in (0..bytes.len()).step_by(PAGE_SIZE) {
        let wire = bytes.slice(at..at + PAGE_SIZE);
        let Ok(page) = DirPage::decode(&wire) else { return Content::Untyped };
        let mut encoded = page.encode().to_vec();
        for padding in dir_padding(&page) {
            dirty += wire[padding.clone()].iter().filter(|byte| **byte != 0).count();
            encoded[padding.clone()].copy_from_slice(&wire[padding]);
        }
        whole.extend_from_slice(&encoded);
        pages.push(page);
    }
    Content::Typed { shown: format!("{pages:?}"), encoded: whole.into(), dirty }
}

/// Where a page has bytes that mean nothing: around the types behind names, and behind the last
/// entry. Lustre builds pages in memory that it does not clear.
fn dir_padding(page: &DirPage) -> Vec<Range<usize>> {
    let mut at = DirPageHeader::SIZE;
    let mut padding = Vec::new();
    for entry in &page.entries {
        let name_end = at + DirentHeader::SIZE + entry.name.len();
        let (kind_at, kind) = match entry.kind {
            Some(_) => (name_end.next_multiple_of(2), u16::SIZE),
            None => (name_end, 0),
        };
        at += entry.size();
        padding.extend([name_end..kind_at, kind_at + kind..at]);
    }
    padding.push(at..PAGE_SIZE);
    padding
}

/// A page of the table of targets and their NIDs: entries, then zeros.
fn nid_table(bytes: &Bytes) -> Content {
    let mut reader = little(bytes);
    let mut writer = Writer::with_capacity(bytes.len());
    let mut entries = Vec::new();
    while let Ok(entry) = MgsNidtblEntry::decode(&mut reader) {
        entry.encode(&mut writer);
        entries.push(entry);
    }
    writer.zeros(bytes.len().saturating_sub(writer.len()));
    Content::typed(&entries, writer.into_bytes())
}
