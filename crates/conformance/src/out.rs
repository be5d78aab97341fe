//! What MDTs say to each other: updates with their results, and ranges of sequences.

use bytes::Bytes;
use sheen_wire::fld::LuSeqRangeArray;
use sheen_wire::out::{
    ObjectUpdate, OutUpdateHeader, Update, UpdateResults, encode_updates, split_updates,
};
use sheen_wire::{Wire, Writer};

use crate::content::Content;

/// What was read, for people, and what writing it gives.
type Read = (Vec<String>, Writer);

/// Reads `out_update_header`, with the updates if they are not bulk.
pub(crate) fn header(bytes: &Bytes) -> Content {
    typed(bytes, || {
        let (header, inline) = OutUpdateHeader::split(bytes).ok()?;
        let (mut shown, mut encoded) = (vec![format!("{header:?}")], Writer::default());
        header.encode(&mut encoded);
        if !inline.is_empty() {
            buffers(&inline, &mut shown, &mut encoded)?;
        }
        Some((shown, encoded))
    })
}

/// Reads a bulk: one or more buffers of updates, filled up with zeros.
pub(crate) fn updates(bytes: &Bytes) -> Content {
    typed(bytes, || {
        let (mut shown, mut encoded) = Read::default();
        buffers(bytes, &mut shown, &mut encoded)?;
        Some((shown, encoded))
    })
}

/// Reads `object_update_reply`.
pub(crate) fn results(bytes: &Bytes) -> Content {
    typed(bytes, || {
        let results = UpdateResults::decode(bytes).ok()?;
        let mut encoded = Writer::default();
        encoded.put(&results.encode().ok()?);
        Some((vec![format!("{results:?}")], encoded))
    })
}

/// Reads the answer to `FLD_READ`.
pub(crate) fn ranges(bytes: &Bytes) -> Content {
    typed(bytes, || {
        let array = LuSeqRangeArray::decode(bytes).ok()?;
        let mut encoded = Writer::default();
        encoded.put(&array.encode());
        Some((vec![format!("{array:?}")], encoded))
    })
}

/// The updates of a request, as far as they can be read and are not bulk.
pub(crate) fn inline(header: &Bytes) -> Vec<ObjectUpdate> {
    let split = OutUpdateHeader::split(header).ok().and_then(|(_, it)| split_updates(&it).ok());
    split.map(|(updates, _)| updates).unwrap_or_default()
}

fn buffers(bytes: &Bytes, shown: &mut Vec<String>, encoded: &mut Writer) -> Option<()> {
    let mut rest = bytes.clone();
    while !rest.is_empty() {
        let (updates, behind) = split_updates(&rest).ok()?;
        shown.extend(updates.iter().map(text));
        encoded.put(&encode_updates(&updates).ok()?);
        let room = behind.iter().position(|byte| *byte != 0).unwrap_or(behind.len());
        encoded.zeros(room);
        rest = behind.slice(room..);
    }
    Some(())
}

/// An update; of ours what it says, and not its bytes.
fn text(update: &ObjectUpdate) -> String {
    match Update::read(update) {
        Ok(Update::Record(part)) => format!("{part:?}"),
        Ok(Update::Exclude(exclude)) => format!("{exclude:?}"),
        Ok(Update::Complete(complete)) => format!("{complete:?}"),
        Ok(Update::Recover(recover)) => format!("{recover:?}"),
        _ => format!("{update:?}"),
    }
}

fn typed(bytes: &Bytes, read: impl FnOnce() -> Option<Read>) -> Content {
    let Some((shown, mut encoded)) = read() else { return Content::Untyped };
    encoded.zeros(bytes.len().saturating_sub(encoded.len()));
    Content::Typed { shown: shown.join("; "), encoded: encoded.into_bytes(), dirty: 0 }
}

#[cfg(test)]
mod tests {
    use sheen_types::{ChangeId, Fid, MdtIndex, Transno};
    use sheen_wire::fld::LuSeqRange;
    use sheen_wire::messages::{OutUpdate, Request, RequestFormat};
    use sheen_wire::out::{SentPart, UpdateResult, UpdateType};
    use sheen_wire::update_record::{Part, UpdateRecord};

    use super::*;
    use crate::{explain, explain_bulk, facts};

    fn inserted() -> ObjectUpdate {
        let name = Bytes::from_static(b"file\0");
        let (kind, fid) = (UpdateType::INDEX_INSERT, Fid::new(0x2_0000_0401, 7));
        ObjectUpdate { kind, fid, params: vec![name], ..ObjectUpdate::default() }
    }

    fn recorded() -> ObjectUpdate {
        let id = ChangeId { coordinator: MdtIndex(1), transno: Transno(99) };
        let parts = vec![Part { mdt: MdtIndex(0), updates: vec![inserted()] }];
        let record = UpdateRecord { id, parts, ..UpdateRecord::default() };
        let part = SentPart { record, ..SentPart::default() };
        ObjectUpdate::record(&part).expect("it fits")
    }

    /// What is shown of bytes that come out as they went in.
    fn shown(bytes: &Bytes, content: Content) -> String {
        let Content::Typed { shown, encoded, dirty } = content else { panic!("{content:?}") };
        assert_eq!((encoded, dirty), (bytes.clone(), 0));
        shown
    }

    fn request(updates: &[ObjectUpdate]) -> Bytes {
        let updates = encode_updates(updates).expect("they fit");
        let (magic, inline_length) = (OutUpdateHeader::MAGIC, updates.len() as u32);
        let mut writer = Writer::default();
        OutUpdateHeader { magic, count: 1, inline_length, reply_size: 4096 }.encode(&mut writer);
        writer.put(&updates);
        writer.into_bytes()
    }

    #[test]
    fn a_dump_shows_updates_the_record_among_them_and_results() {
        let format = &OutUpdate::FORMAT;
        let header = request(&[recorded(), inserted()]);
        let text = shown(&header, explain(format, false, "out_update_header", &header));
        for part in ["reply_size: 4096", "Transno(99)", "INDEX_INSERT", "b\"file\\0\""] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let results = vec![UpdateResult { status: -17, data: Bytes::from_static(b"data") }];
        let reply = UpdateResults { asked: 2, results }.encode().expect("they fit");
        let room = Bytes::from([&reply[..], &[0; 100]].concat());
        let text = shown(&room, explain(format, true, "object_update_reply", &room));
        assert!(text.contains("status: -17"), "{text}");
    }

    #[test]
    fn a_bulk_is_shown_buffer_by_buffer() {
        let mut buffer = encode_updates(&[inserted()]).expect("they fit").to_vec();
        buffer.resize(4096, 0);
        let bulk = Bytes::from([&buffer[..], &buffer].concat());
        let text = shown(&bulk, explain_bulk(Some(&OutUpdate::FORMAT), &bulk));
        assert_eq!(text.matches("INDEX_INSERT").count(), 2, "{text}");
        assert_eq!(explain_bulk(Some(&OutUpdate::FORMAT), &bulk.slice(1..)), Content::Untyped);
    }

    #[test]
    fn a_line_names_what_is_done_to_which_object() {
        let out_update_header = request(&[recorded(), inserted()]);
        let request = OutUpdate { out_update_header, ..OutUpdate::default() };
        let line = facts::of_request(&Request::from(request));
        assert_eq!(line, "update=RECORD:[0x0:0x0:0x0] update=INDEX_INSERT:[0x200000401:0x7:0x0]");
    }

    #[test]
    fn ranges_of_sequences_are_shown() {
        let range = LuSeqRange { start: 0x2_4000_0400, index: 1, ..LuSeqRange::default() };
        let bytes = LuSeqRangeArray { ranges: vec![range] }.encode();
        let page = Bytes::from([&bytes[..], &[0; 4000]].concat());
        let format = &sheen_wire::messages::FldRead::FORMAT;
        let text = shown(&page, explain(format, true, "generic_data", &page));
        assert!(text.contains("index: 1"), "{text}");
    }
}
