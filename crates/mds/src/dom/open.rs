//! What an open of a file on the MDT brings besides: the DOM bit, the size, and the bytes of a small
//! file (`mdt_object_open_lock`, `mdt_dom_read_on_open`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_ldlm::server::LockInfo;
use sheen_ldlm::{Owner, Policy};
use sheen_target::{Context, LockGuard, store_errno};
use sheen_types::limits::LNET_PAYLOAD_BYTES_MAX;
use sheen_types::{Errno, Fid, HashSet, InodeBits, LockHandle, LockMode, PAGE_BITS, ResourceName};
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::md::{MdsOpenFlags, MdtBody};
use sheen_wire::ost::NiobufRemote;

use super::{DomLock, add_size, knows_dom};
use crate::dom_layout::{DomPart, part_of};
use crate::inode::Inode;
use crate::{Mdt, locks};

/// Logarithm of the largest page of any client, for a client that has not said how large its own are.
const PAGE_BITS_MAX: u8 = 16;

/// Logarithm of a client's pages, which it sends when it connects; 0 if it has not.
#[derive(Default)]
pub(crate) struct PageBits(pub(crate) AtomicU8);

impl PageBits {
    fn page_bytes(&self) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            0 => 1 << PAGE_BITS_MAX,
            bits => 1 << bits.clamp(PAGE_BITS, PAGE_BITS_MAX),
        }
    }
}

/// How many locks are remembered of those that came with bytes.
const INLINE_DATA_LOCKS_MAX: usize = 1 << 14;

/// The locks that came with bytes, the newest. A lock that is forgotten costs bytes that are sent again.
#[derive(Default)]
pub(crate) struct InlineDataLocks {
    locks: Mutex<(HashSet<LockHandle>, VecDeque<LockHandle>)>,
}

impl InlineDataLocks {
    fn contains(&self, lock: LockHandle) -> bool {
        self.locks.lock().0.contains(&lock)
    }

    fn note(&self, lock: LockHandle) {
        let (set, order) = &mut *self.locks.lock();
        if !set.insert(lock) {
            return;
        }
        order.push_back(lock);
        if order.len() > INLINE_DATA_LOCKS_MAX
            && let Some(oldest) = order.pop_front()
        {
            set.remove(&oldest);
        }
    }
}

/// What an open may bring of a file's data.
#[derive(Clone, Copy)]
pub(crate) struct DomOpen {
    part: DomPart,
    mode: LockMode,
    /// No bytes are to come: they are about to be cut, or are not for this user.
    without_bytes: bool,
}

impl DomOpen {
    pub(crate) fn without_bytes(self) -> Self {
        Self { without_bytes: true, ..self }
    }
}

impl Mdt {
    /// Whether an open brings the DOM bit: of a file on the MDT, for a client that knows the bit, has
    /// not got it already and does not ask for an open lock, which it keeps in another mode.
    pub(crate) fn dom_open(
        &self,
        context: &Context,
        flags: MdsOpenFlags,
        fid: Fid,
        layout: Option<&Bytes>,
    ) -> Option<DomOpen> {
        if flags.contains(MdsOpenFlags::LOCK) || context.replay().is_some() || !knows_dom(context) {
            return None;
        }
        let part = layout.and_then(part_of)?;
        let mode = match flags.contains(MdsOpenFlags::WRITE) {
            true => LockMode::Pw,
            false => LockMode::Pr,
        };
        let wanted = self.dom_lock() != DomLock::Never && self.lacks_data(context, fid, mode);
        let without_bytes = flags.contains(MdsOpenFlags::TRUNC);
        wanted.then_some(DomOpen { part, mode, without_bytes })
    }

    /// Whether a client has use for the DOM bit. A client of ours looks a file up before it opens it,
    /// and has the bit from that; but no bytes came with it, and so it gets it again with them, once.
    fn lacks_data(&self, context: &Context, fid: Fid, mode: LockMode) -> bool {
        let held = data_locks(context, fid, mode);
        let has_none_of_bytes = |lock: &LockInfo| {
            lock.desc.granted == Some(LockMode::Pr)
                && !self.dom.inline_data_locks.contains(lock.handle)
        };
        held.is_empty()
            || context.has2(ConnectFlags2::OWN_NAMES) && held.iter().all(has_none_of_bytes)
    }

    /// Takes those of the useful bits that are free: revokes nothing. Nothing is worth a lock that
    /// has neither data nor layout.
    pub(crate) fn dom_open_lock(
        &self,
        context: &Context,
        open: DomOpen,
        fid: Fid,
        more: InodeBits,
    ) -> Option<LockGuard> {
        let try_bits = locks::ATTRIBUTES | InodeBits::LAYOUT | InodeBits::DOM | more;
        let policy = Policy::InodeBits { bits: InodeBits(0), try_bits, gid: 0 };
        let guard = context.target.try_lock(ResourceName::of_fid(fid), policy, open.mode)?;
        let useful = InodeBits::LAYOUT | InodeBits::DOM;
        guard.policy().inode_bits().intersects(useful).then_some(guard)
    }

    /// Adds the size, if the lock that goes with the answer has the DOM bit, and gives the bytes that
    /// have room beside an answer of `reply_bytes` without them; no bytes if they have none. A file
    /// that has no room is not read, but for its last page if that is not full: a writer that appends
    /// needs it.
    pub(crate) fn data_on_open(
        &self,
        context: &Context,
        open: DomOpen,
        guard: &LockGuard,
        inode: &Inode,
        body: &mut MdtBody,
        reply_bytes: impl FnOnce(&MdtBody) -> usize,
    ) -> Result<Bytes, Errno> {
        let bits = guard.policy().inode_bits();
        if !bits.contains(InodeBits::DOM) {
            return Ok(Bytes::new());
        }
        add_size(inode, body)?;
        let size = inode.attributes.size;
        let wanted = size > 0 && !open.without_bytes && self.reads_on_open();
        if !wanted || !bits.contains(InodeBits::LAYOUT) {
            return Ok(Bytes::new());
        }
        let used = reply_bytes(body) + NiobufRemote::SIZE + ROUNDING;
        let room = context.reply_bytes_max.min(REPLY_BYTES_MAX).saturating_sub(used) as u64;
        let page = context.export.role::<PageBits>().page_bytes();
        let Some(offset) = offset_for(size, room, open.part, page) else {
            return Ok(Bytes::new());
        };
        let length = usize::try_from(size - offset).map_err(|_| Errno::EFBIG)?;
        let data = self.store.read(inode.fid, offset, length).map_err(store_errno)?;
        self.dom.inline_data_locks.note(guard.handle());
        Ok(inline(offset, &data))
    }
}

/// Most bytes of an answer that brings a file's, whatever room a client claims to have: LNet carries no more.
const REPLY_BYTES_MAX: usize = LNET_PAYLOAD_BYTES_MAX;
/// Bytes by which buffers grow to whole words, and the table of their lengths with them.
const ROUNDING: usize = 16;

/// From where to the end the bytes that come with an open go.
fn offset_for(size: u64, room: u64, part: DomPart, page: u64) -> Option<u64> {
    if size <= room {
        return Some(0);
    }
    let tail = size % page;
    (size < part.end && tail > 0 && tail <= room).then(|| size - tail)
}

/// The client's locks under which it may do what an open in `mode` is for.
fn data_locks(context: &Context, fid: Fid, mode: LockMode) -> Vec<LockInfo> {
    let owner = Owner::Export(context.export.handle().0);
    let mut locks = context.target.namespace().dump(ResourceName::of_fid(fid));
    locks.retain(|lock| {
        let serves = match lock.desc.granted {
            Some(LockMode::Pw | LockMode::Group) => true,
            Some(LockMode::Pr) => mode == LockMode::Pr,
            _ => false,
        };
        serves && lock.owner == owner && lock.desc.policy.inode_bits().contains(InodeBits::DOM)
    });
    locks
}

/// Bytes as an open's answer carries them.
fn inline(offset: u64, data: &Bytes) -> Bytes {
    let mut writer = Writer::with_capacity(NiobufRemote::SIZE + data.len());
    let head = NiobufRemote { offset, len: data.len() as u32, ..NiobufRemote::default() };
    head.encode(&mut writer);
    writer.put(data);
    writer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_comes_whole_and_of_a_larger_one_its_last_part_page() {
        const PAGE: u64 = sheen_types::PAGE_BYTES;
        let offset = |size, room, end| offset_for(size, room, DomPart { end, is_all: true }, PAGE);
        assert_eq!(offset(3000, 3000, 1 << 20), Some(0));
        assert_eq!(offset(3000, 2999, 1 << 20), None, "less than a page and no room");
        assert_eq!(offset(PAGE + 100, PAGE, 1 << 20), Some(PAGE));
        assert_eq!(offset(PAGE + 100, 99, 1 << 20), None);
        assert_eq!(offset(2 * PAGE, PAGE, 1 << 20), None, "no part of a page");
        assert_eq!(offset(PAGE + 100, PAGE, PAGE + 100), None, "append goes elsewhere");
    }

    #[test]
    fn a_tail_starts_at_a_page_of_the_client_and_of_ours() {
        for (sent, bytes) in [(0, 65536), (12, 4096), (16, 65536), (9, 4096), (255, 65536)] {
            assert_eq!(PageBits(AtomicU8::new(sent)).page_bytes(), bytes, "{sent}");
        }
    }

    #[test]
    fn of_the_locks_that_brought_bytes_the_newest_are_known() {
        let inline_data_locks = InlineDataLocks::default();
        for lock in 0..INLINE_DATA_LOCKS_MAX as u64 + 10 {
            inline_data_locks.note(LockHandle(lock));
            inline_data_locks.note(LockHandle(lock));
        }
        assert!(!inline_data_locks.contains(LockHandle(9)));
        assert!(inline_data_locks.contains(LockHandle(10)));
        assert_eq!(inline_data_locks.locks.lock().0.len(), INLINE_DATA_LOCKS_MAX);
    }

    #[test]
    fn inline_data_says_where_it_belongs() {
        let bytes = inline(4096, &Bytes::from_static(b"tail"));
        assert_eq!(bytes.len(), NiobufRemote::SIZE + 4);
        assert_eq!(bytes[..8], 4096_u64.to_le_bytes());
        assert_eq!(bytes[8..12], 4_u32.to_le_bytes());
        assert_eq!(&bytes[16..], b"tail");
    }
}
