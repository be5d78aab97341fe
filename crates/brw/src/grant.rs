//! Space promised to clients, so that what they take into their caches can be written.
//!
//! A client reports with each write how many of its bytes came out of its grant, how many it would like to
//! keep dirty, and what it lost. The server reclaims the used part and gives new grant out of what has been
//! promised to no other client. Promises never exceed the free space: their sum is at most what the store has
//! available whenever something is added to it. What a client claims out of its grant is taken when the
//! write begins, as far as it has it: the rest of the write must fit into what is not promised, and counts
//! as promised while the write goes on.
//!
//! How much one client may hold is said of a client as budgets are: of a node, with all of its exports. Said of
//! each export, it would let one node that connects often enough hold nearly all that is free.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sheen_store::StoreSpace;
use sheen_target::{Export, ExportState};
use sheen_types::{Errno, HashMap, Nid};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::ost::{Obdo, ObdoFlags};

/// Grant of a client that has just connected: two full-size RPCs.
pub const INITIAL_GRANT: u64 = 2 * sheen_types::limits::BULK_BYTES_MAX as u64;
/// New grant that comes with one write at most, as in Lustre: two full-size RPCs. Each of the client's next writes
/// brings as much, so that it has what it wants before it can use that up.
const GROWTH_MAX: u64 = INITIAL_GRANT;
/// Largest grant of one client, of all its exports; Lustre's clients ask for at most 2 GiB.
const CLIENT_GRANT_MAX: u64 = 2 << 30;
/// Free space is given out in eighths, so that one client cannot take all that is left at once.
const SHARE: u64 = 8;
/// One client holds at most this part of the free space, with all its exports: the rest is for other clients, and for
/// writes that come without a grant.
const CLIENT_SHARE: u64 = 4;
/// Logarithm of the smallest unit of space: data takes whole blocks of 4 KiB.
pub const BLOCK_BITS: u8 = 12;

/// The grant of one export of a client.
#[derive(Default)]
pub(crate) struct ClientGrant {
    granted: Mutex<ExportGrant>,
    /// Bytes that it has not sent yet, as it said last.
    dirty: AtomicU64,
    /// It has left: nothing is returned to it.
    has_left: AtomicBool,
}

struct ExportGrant {
    bytes: u64,
    /// Of what it held, what its writes use that are being carried out. It counts as held until they have ended: those
    /// that fail return it.
    in_use: u64,
    /// Under whom they are counted in [`Promised::by_client`].
    client: Nid,
}

impl Default for ExportGrant {
    fn default() -> Self {
        Self { bytes: 0, in_use: 0, client: Nid::ANY }
    }
}

/// What is promised.
#[derive(Default)]
struct Promised {
    /// In all, with what writes use that are being carried out.
    bytes: u64,
    /// What the exports of each client hold, with what their writes use; none of a client without any.
    by_client: HashMap<Nid, u64>,
}

impl Promised {
    fn held_by(&self, client: Nid) -> u64 {
        self.by_client.get(&client).copied().unwrap_or(0)
    }

    fn add(&mut self, held: &mut ExportGrant, bytes: u64) {
        held.bytes += bytes;
        *self.by_client.entry(held.client).or_default() += bytes;
        self.forget_if_none(held.client);
    }

    /// At most what it holds.
    fn remove(&mut self, held: &mut ExportGrant, bytes: u64) {
        held.bytes -= bytes;
        *self.by_client.entry(held.client).or_default() -= bytes;
        self.forget_if_none(held.client);
    }

    /// A write takes some of what its export holds, which holds so much.
    fn begin_use(held: &mut ExportGrant, bytes: u64) {
        held.bytes -= bytes;
        held.in_use += bytes;
    }

    /// The write has ended: what it took is used, or is returned by what follows.
    fn end_use(&mut self, held: &mut ExportGrant, bytes: u64) {
        held.in_use -= bytes;
        *self.by_client.entry(held.client).or_default() -= bytes;
        self.forget_if_none(held.client);
    }

    /// Counts what an export holds with that of `client`: it may have moved.
    fn move_to(&mut self, held: &mut ExportGrant, client: Nid) {
        let bytes = held.bytes + held.in_use;
        *self.by_client.entry(held.client).or_default() -= bytes;
        self.forget_if_none(held.client);
        held.client = client;
        *self.by_client.entry(client).or_default() += bytes;
        self.forget_if_none(client);
    }

    fn forget_if_none(&mut self, client: Nid) {
        if self.held_by(client) == 0 {
            self.by_client.remove(&client);
        }
    }
}

/// Space that a write uses while it is carried out. Dropped, it returns what came out of the grant: the client
/// will ask again, or takes it for unused.
pub(crate) struct ReservedSpace<'a> {
    grants: &'a Grants,
    held: Arc<ClientGrant>,
    /// Bytes out of the client's grant.
    granted: u64,
    /// Bytes that were promised to no client.
    other: u64,
}

impl ReservedSpace<'_> {
    /// The write is done: what it took of the grant is used.
    pub(crate) fn use_up(mut self) {
        let used = std::mem::take(&mut self.granted);
        let mut held = self.held.granted.lock();
        let mut promised = self.grants.promised.lock();
        promised.end_use(&mut held, used);
        promised.bytes -= used;
    }
}

impl Drop for ReservedSpace<'_> {
    fn drop(&mut self) {
        let mut held = self.held.granted.lock();
        let mut promised = self.grants.promised.lock();
        promised.bytes -= self.other;
        promised.end_use(&mut held, self.granted);
        match self.held.has_left.load(Ordering::Relaxed) {
            true => promised.bytes -= self.granted,
            false => promised.add(&mut held, self.granted),
        }
    }
}

/// What all clients hold, for the parameter tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantView {
    /// `tot_granted`: bytes promised.
    pub total: u64,
    /// `tot_dirty`: bytes that clients have accepted and not sent yet, as they said last.
    pub dirty: u64,
    /// `tot_pending`: bytes of the writes that are being carried out.
    pub pending: u64,
}

/// All promises of one server. Lock order: a client's `granted`, then `promised`.
#[derive(Default)]
pub struct Grants {
    promised: Mutex<Promised>,
    dirty: AtomicU64,
    pending: AtomicU64,
}

/// Counts the bytes of a write while it is carried out.
pub(crate) struct PendingBytes<'a> {
    grants: &'a Grants,
    bytes: u64,
}

impl Drop for PendingBytes<'_> {
    fn drop(&mut self) {
        self.grants.pending.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The space that a write needs, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedSpace {
    /// What the client says that it took out of its grant.
    pub(crate) claimed: u64,
    /// How much of the write a grant can cover at most.
    pub(crate) coverable: u64,
    /// Of the whole write.
    pub(crate) length: u64,
}

/// How to ask the store for the space that it has free.
pub(crate) struct FreeSpace<'a> {
    /// As it was a moment ago: asked first.
    pub(crate) recent: &'a dyn Fn() -> Result<StoreSpace, Errno>,
    /// As it is: asked where that was too little, for something may have been freed since.
    pub(crate) now: &'a dyn Fn() -> Result<StoreSpace, Errno>,
}

impl Grants {
    /// What is promised to all.
    #[must_use]
    pub fn view(&self) -> GrantView {
        GrantView {
            total: self.promised.lock().bytes,
            dirty: self.dirty.load(Ordering::Relaxed),
            pending: self.pending.load(Ordering::Relaxed),
        }
    }

    /// What one export of a client holds.
    #[must_use]
    pub fn held_by(&self, export: &Export) -> GrantView {
        let held: Arc<ClientGrant> = export.role();
        let total = held.granted.lock().bytes;
        GrantView { total, dirty: held.dirty.load(Ordering::Relaxed), pending: 0 }
    }

    /// A write of so many bytes begins.
    pub(crate) fn begin(&self, bytes: u64) -> PendingBytes<'_> {
        self.pending.fetch_add(bytes, Ordering::Relaxed);
        PendingBytes { grants: self, bytes }
    }

    /// A client says how many bytes it has not sent yet. No more than
    /// it may have: what it says is its own affair, and shown to operators.
    fn note_dirty(&self, held: &ClientGrant, bytes: u64) {
        let bytes = bytes.min(CLIENT_GRANT_MAX);
        let before = held.dirty.swap(bytes, Ordering::Relaxed);
        self.dirty.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Takes the space of a write: what the client claims out of its grant, as far as it has that, and the rest out
    /// of what is not promised.
    ///
    /// # Errors
    /// [`Errno::ENOSPC`] where there is not so much, or those of `free`.
    pub(crate) fn take(
        &self,
        export: &Arc<Export>,
        wanted: WantedSpace,
        free: &FreeSpace<'_>,
    ) -> Result<ReservedSpace<'_>, Errno> {
        let held: Arc<ClientGrant> = export.role();
        let granted = {
            let mut granted = held.granted.lock();
            let reserved = wanted.claimed.min(granted.bytes);
            Promised::begin_use(&mut granted, reserved);
            reserved
        };
        let mut reserved = ReservedSpace { grants: self, held, granted, other: 0 };
        let other = wanted.length.saturating_sub(granted.min(wanted.coverable));
        if other == 0 {
            return Ok(reserved);
        }
        for space in [free.recent, free.now] {
            let available = space()?.available;
            let mut promised = self.promised.lock();
            if other <= available.saturating_sub(promised.bytes) {
                promised.bytes += other;
                reserved.other = other;
                return Ok(reserved);
            }
        }
        Err(Errno::ENOSPC)
    }

    /// A client connects: it keeps what it holds, or gets its first grant.
    pub(crate) fn connect(
        &self,
        export: &Arc<Export>,
        offered: &ObdConnectData,
        agreed: &mut ObdConnectData,
        space: StoreSpace,
    ) {
        if !agreed.flags.contains(ConnectFlags::GRANT) {
            return;
        }
        let role: Arc<ClientGrant> = export.role();
        let mut held = role.granted.lock();
        role.has_left.store(false, Ordering::Relaxed);
        let wanted = INITIAL_GRANT.max(u64::from(offered.grant)).min(CLIENT_GRANT_MAX);
        self.grow(export, &mut held, wanted, space);
        if export.state() == ExportState::Gone {
            // It was evicted while it connected: what it gets here would never be reclaimed.
            role.has_left.store(true, Ordering::Relaxed);
            self.lower(&mut held, u64::MAX);
        }
        agreed.grant = u32::try_from(held.bytes).unwrap_or(u32::MAX);
    }

    /// Returns the grant of an export that ends.
    pub fn end_export(&self, export: &Arc<Export>) {
        let role: Arc<ClientGrant> = export.role();
        self.note_dirty(&role, 0);
        let mut held = role.granted.lock();
        role.has_left.store(true, Ordering::Relaxed);
        self.lower(&mut held, u64::MAX);
    }

    /// Reclaims what the client lost, and returns how much new grant it gets, after a write. Asks for the
    /// space only if the client wants more.
    pub(crate) fn settle(
        &self,
        export: &Arc<Export>,
        asked: &Obdo,
        space: impl FnOnce() -> Result<StoreSpace, Errno>,
    ) -> Result<u64, Errno> {
        let Some(report) = asked.grant_report() else { return Ok(0) };
        let role: Arc<ClientGrant> = export.role();
        self.note_dirty(&role, report.dirty);
        let mut held = role.granted.lock();
        self.lower(&mut held, u64::from(report.lost));
        if role.has_left.load(Ordering::Relaxed) {
            // A write that ends after its client: what it got would never be reclaimed.
            return Ok(0);
        }
        if asked.flags.contains(ObdoFlags::SHRINK_GRANT) {
            self.lower(&mut held, report.available);
            return Ok(0);
        }
        let wanted = u64::from(report.wanted).min(CLIENT_GRANT_MAX).min(held.bytes + GROWTH_MAX);
        match wanted > held.bytes {
            true => Ok(self.grow(export, &mut held, wanted, space()?)),
            false => Ok(0),
        }
    }

    /// Reclaims what a client lost, and what it returns on its own. A read carries that as well as
    /// a write, and gets nothing for it.
    pub(crate) fn reclaim(&self, export: &Arc<Export>, asked: &Obdo) {
        let Some(report) = asked.grant_report() else { return };
        let role: Arc<ClientGrant> = export.role();
        self.note_dirty(&role, report.dirty);
        let mut held = role.granted.lock();
        self.lower(&mut held, u64::from(report.lost));
        if asked.flags.contains(ObdoFlags::SHRINK_GRANT) {
            self.lower(&mut held, report.available);
        }
    }

    /// Raises to `wanted` as far as free space goes, and what the client holds by its other exports, and by writes that
    /// are being carried out; returns by how much.
    fn grow(&self, export: &Export, held: &mut ExportGrant, wanted: u64, space: StoreSpace) -> u64 {
        let client = export.account_nid();
        let mut promised = self.promised.lock();
        if held.client != client {
            promised.move_to(held, client);
        }
        let left = space.available.saturating_sub(promised.bytes);
        let most = (space.available / CLIENT_SHARE).min(CLIENT_GRANT_MAX);
        let beside = promised.held_by(client) - held.bytes;
        let wanted = wanted.min(most.saturating_sub(beside));
        let more = wanted.saturating_sub(held.bytes).min(left / SHARE) >> BLOCK_BITS << BLOCK_BITS;
        promised.add(held, more);
        promised.bytes += more;
        more
    }

    fn lower(&self, held: &mut ExportGrant, by: u64) {
        let less = by.min(held.bytes);
        let mut promised = self.promised.lock();
        promised.remove(held, less);
        promised.bytes -= less;
    }
}
