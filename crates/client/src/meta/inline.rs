//! The part of a reply that concerns data on the MDT: size and times under a lock, and small files whole.

use bytes::Bytes;
use sheen_types::{InodeBits, PAGE_BYTES};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::ldlm::LdlmReply;
use sheen_wire::md::{MdtBody, Valid};
use sheen_wire::ost::{NiobufRemote, OstLvb};

use crate::data::InlineData;
use crate::mdt::Mdc;

/// Bytes of reply that an open to read reserves for data of the file, by default: Lustre's largest
/// (`MDC_DOM_MAX_INLINE_REPSIZE`).
pub(super) const INLINE_ROOM: usize = 64 << 10;

/// Whether a lock that is granted by a reply covers data.
fn covers_data(lock: &LdlmReply) -> bool {
    let bits = InodeBits(lock.desc.policy.as_inode_bits().bits);
    lock.desc.granted_mode.mode().is_some() && bits.contains(InodeBits::DOM)
}

/// The lock value block of a lock that came with attributes: empty if it covers no data.
pub(super) fn data_value(lock: &LdlmReply, body: Option<&MdtBody>) -> Bytes {
    let Some(body) = body.filter(|body| body.valid.contains(Valid::DOM_SIZE)) else {
        return Bytes::new();
    };
    if !covers_data(lock) {
        return Bytes::new();
    }
    let value = OstLvb {
        size: body.dom_size,
        blocks: body.dom_blocks,
        mtime: body.mtime,
        atime: body.atime,
        ctime: body.ctime,
        ..OstLvb::default()
    };
    let mut writer = Writer::with_capacity(OstLvb::SIZE);
    value.encode(&mut writer);
    writer.into_bytes()
}

/// The bytes that came with an open, and where they belong: the whole file, or its last page. `None`
/// for what is neither, which is no reason to refuse the open.
fn inline_data(body: &MdtBody, inline: &Bytes) -> Option<(u64, Bytes)> {
    let piece = NiobufRemote::decode(&mut Reader::new(inline, ByteOrder::Little));
    let piece = piece.ok().filter(|piece| piece.len > 0)?;
    let end = piece.offset.checked_add(piece.len.into())?;
    // What an answer brings begins with a page.
    if piece.offset % PAGE_BYTES != 0 || end != body.dom_size {
        return None;
    }
    let data = inline.slice(NiobufRemote::SIZE..);
    let length = piece.len as usize;
    (data.len() >= length).then(|| (piece.offset, data.slice(..length)))
}

impl Mdc {
    /// Passes the data that came with an open to the data path, before any call can find the lock that covers
    /// it.
    pub(super) fn take_inline(
        &self,
        lock: &LdlmReply,
        body: Option<&MdtBody>,
        (layout, inline): (&Bytes, &Bytes),
    ) -> Option<InlineData> {
        let body = body.filter(|body| body.valid.contains(Valid::DOM_SIZE))?;
        if !covers_data(lock) || lock.desc.resource.name.fid() != body.fid1 {
            return None;
        }
        let (offset, data) = inline_data(body, inline)?;
        // One that cannot be read is in the log as the file's own.
        let layout = sheen_layout::parse(layout).ok()??;
        let on_mdt = |(mapping, stripe): (_, Option<_>)| stripe.is_none().then_some(mapping);
        let mapping = layout.objects().find_map(on_mdt)?;
        self.data.insert_inline(body.fid1, mapping, offset, data)
    }
}

#[cfg(test)]
mod tests {
    use sheen_types::{Fid, LockMode};

    use super::*;
    use crate::testing::{body, lock_reply};

    const FILE: Fid = Fid::new(0x2_0000_0401, 7);
    const ALL: InodeBits = InodeBits(0x5b);

    fn sized(size: u64) -> MdtBody {
        let sized = body(FILE, 0o100_644);
        MdtBody { valid: sized.valid | Valid::DOM_SIZE, dom_size: size, dom_blocks: 8, ..sized }
    }

    fn inline(offset: u64, data: &[u8]) -> Bytes {
        let mut writer = Writer::with_capacity(64);
        NiobufRemote { offset, len: data.len() as u32, ..NiobufRemote::default() }
            .encode(&mut writer);
        [&writer.into_bytes()[..], data].concat().into()
    }

    #[test]
    fn a_lock_on_data_comes_with_its_size() {
        let value = data_value(&lock_reply(FILE, 1, LockMode::Pr, ALL), Some(&sized(3000)));
        let value = OstLvb::decode(&mut Reader::new(&value, ByteOrder::Little)).unwrap();
        assert_eq!((value.size, value.blocks, value.mtime), (3000, 8, 100));
        let without = lock_reply(FILE, 1, LockMode::Pr, InodeBits(0x1b));
        assert!(data_value(&without, Some(&sized(3000))).is_empty());
        let silent = body(FILE, 0o100_644);
        assert!(data_value(&lock_reply(FILE, 1, LockMode::Pr, ALL), Some(&silent)).is_empty());
    }

    #[test]
    fn data_is_the_whole_file_or_its_last_page() {
        let whole = inline_data(&sized(5), &inline(0, b"hello"));
        assert_eq!(whole, Some((0, Bytes::from_static(b"hello"))));
        let tail = inline_data(&sized(4099), &inline(4096, b"end"));
        assert_eq!(tail, Some((4096, Bytes::from_static(b"end"))));
        for (size, inline) in [
            (6, inline(0, b"hello")),
            (4101, inline(4096, b"end")),
            (103, inline(100, b"end")),
            (0, inline(0, b"")),
            (5, inline(0, b"hello").slice(..18)),
            (5, Bytes::from_static(b"short")),
            (5, Bytes::new()),
        ] {
            assert_eq!(inline_data(&sized(size), &inline), None, "{inline:?}");
        }
        let lying = NiobufRemote { offset: u64::MAX, len: 9, ..NiobufRemote::default() };
        let mut writer = Writer::with_capacity(64);
        lying.encode(&mut writer);
        assert_eq!(inline_data(&sized(8), &writer.into_bytes()), None);
    }
}
