//! Grant of one OST, and the dirty bytes that use it.
//!
//! `available` is what the OST has promised and we have not used for dirty bytes. It goes down when bytes
//! become dirty, and up by what write replies grant. The grant of dirty bytes that are discarded (truncate)
//! is added again. It is counted in whole blocks, because a single byte takes a block of the OST's disk. What
//! was used by a write that failed is lost: neither side has it until the next write reports it to the OST.
//!
//! Cost of a write into the cache: the lock of [`Grant`] once, and one counter that all OSTs share.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sheen_rpc::{Call, CallKind};
use sheen_types::Instant;
use sheen_wire::connect::ObdConnectData;
use sheen_wire::md::Valid;
use sheen_wire::messages::OstSetGrantInfo;
use sheen_wire::ost::{GrantReport, Obdo, ObdoFlags, OstBody};

use super::data_target::DataTarget;
use crate::call;

/// So few dirty bytes may wait, however little grant there is.
const FLUSHED_EARLY_BYTES_MIN: u64 = 1 << 20;

/// Grant and dirty bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grant {
    pub(super) available: u64,
    /// Dirty bytes, those included that are being sent.
    pub(super) dirty: u64,
    /// Those that are being sent.
    pub(super) sending: u64,
    /// What the OST still counts as ours and we do not.
    pub(super) lost: u64,
    /// When grant was used last, or granted by a connect.
    used_at: Instant,
}

/// Why bytes cannot become dirty now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Too many are: wait until some are written.
    TooDirty,
    /// The OST has not promised the space: write through.
    NoGrant,
}

impl DataTarget {
    /// The OST is connected, perhaps anew: its reply says how much grant we hold, dirty bytes included.
    pub fn connected(&self, data: &ObdConnectData) {
        self.negotiate(data);
        let mut grant = self.grant.lock();
        grant.available = u64::from(data.grant).saturating_sub(grant.dirty);
        grant.lost = 0;
        grant.used_at = self.shared.world.clock.now();
        drop(grant);
        self.shared.room_freed.notify_waiters();
    }

    /// Bytes that the OST has promised and that are not used (`cur_grant_bytes`), dirty ones
    /// (`cur_dirty_bytes`), and promised ones that were lost (`cur_lost_grant_bytes`).
    #[must_use]
    pub fn grant_dirty_lost(&self) -> [u64; 3] {
        let grant = self.grant();
        [grant.available, grant.dirty, grant.lost]
    }

    pub(super) fn grant(&self) -> Grant {
        *self.grant.lock()
    }

    /// Takes grant for blocks of `bytes` that become dirty; whether so much is dirty now that some of it
    /// should be sent.
    pub(super) fn reserve(&self, bytes: u64) -> Result<bool, Shortage> {
        let mut grant = self.grant.lock();
        // The first write always fits: nothing else could ever make room for it.
        if grant.dirty > 0 && grant.dirty + bytes > self.dirty_bytes_max() {
            return Err(Shortage::TooDirty);
        }
        // Two that come at once may exceed it by what one of them brings.
        let all = self.shared.dirty.load(Ordering::Relaxed);
        if all > 0 && all + bytes > self.shared.dirty_max.load(Ordering::Relaxed) {
            return Err(Shortage::TooDirty);
        }
        let left = grant.available.checked_sub(bytes).ok_or(Shortage::NoGrant)?;
        grant.available = left;
        grant.dirty += bytes;
        grant.used_at = self.shared.world.clock.now();
        self.shared.dirty.fetch_add(bytes, Ordering::Relaxed);
        Ok(self.needs_room(&grant))
    }

    /// Whether half of what may be dirty, here or towards all OSTs, waits to be sent, and is enough to be
    /// worth sending early.
    pub(super) fn needs_room(&self, grant: &Grant) -> bool {
        let waiting = grant.dirty.saturating_sub(grant.sending);
        let may_be = self.dirty_bytes_max().min(grant.dirty.saturating_add(grant.available));
        let all = self.shared.dirty.load(Ordering::Relaxed);
        waiting > FLUSHED_EARLY_BYTES_MIN
            && (waiting > may_be / 2 || all > self.shared.dirty_max.load(Ordering::Relaxed) / 2)
    }

    /// Dirty bytes are being sent.
    pub(super) fn begin_sending(&self, bytes: u64) {
        self.grant.lock().sending += bytes;
    }

    /// The bytes were sent, or that failed: then their grant is lost.
    pub(super) fn end_sending(&self, bytes: u64, is_written: bool) {
        let mut grant = self.grant.lock();
        grant.sending = grant.sending.saturating_sub(bytes);
        self.less_dirty(&mut grant, bytes);
        if !is_written {
            grant.lost += bytes;
        }
        drop(grant);
        self.shared.room_freed.notify_waiters();
    }

    fn less_dirty(&self, grant: &mut Grant, bytes: u64) {
        let gone = bytes.min(grant.dirty);
        grant.dirty -= gone;
        self.shared.dirty.fetch_sub(gone, Ordering::Relaxed);
    }

    /// The OST gave so much.
    pub(super) fn add_grant(&self, gained: u64) {
        let mut grant = self.grant.lock();
        grant.available = grant.available.saturating_add(gained);
        drop(grant);
        self.shared.room_freed.notify_waiters();
    }

    /// Dirty bytes were discarded: their grant was not used, and is available again.
    pub(super) fn return_discarded(&self, bytes: u64) {
        let mut grant = self.grant.lock();
        self.less_dirty(&mut grant, bytes);
        grant.available = grant.available.saturating_add(bytes);
        drop(grant);
        self.shared.room_freed.notify_waiters();
    }

    /// The lost grant to report to the OST. If the report is lost, the OST counts the grant as ours until the
    /// next connect.
    pub(super) fn take_lost(&self) -> u32 {
        let mut grant = self.grant.lock();
        let reported = u32::try_from(grant.lost).unwrap_or(u32::MAX);
        grant.lost -= u64::from(reported);
        reported
    }

    /// How much grant to ask for: room for all that may be dirty.
    pub(super) fn grant_wanted(&self) -> u32 {
        u32::try_from(self.dirty_bytes_max()).unwrap_or(u32::MAX)
    }

    /// Whether unused grant is returned (`grant_shrink`), as far as the OST supports that.
    #[must_use]
    pub fn shrinks_grant(&self) -> bool {
        self.limits.lock().shrinks && self.settings.shrinks.get()
    }

    /// Returns grant that was unused for too long, but for one bulk; later writes get it again. If the
    /// request is lost, the OST counts too much as ours until the next connect.
    pub(super) fn return_grant(self: &Arc<Self>) {
        let interval = Duration::from_secs(self.settings.shrink_interval.get().into());
        let (keep, now) = (self.limits().bulk_bytes, self.shared.world.clock.now());
        let mut oa = Obdo { valid: Valid::FLAGS, ..Obdo::default() };
        {
            let mut grant = self.grant.lock();
            let is_used = now.since(grant.used_at) < interval || grant.available <= keep;
            if is_used || !self.shrinks_grant() {
                return;
            }
            oa.flags |= ObdoFlags::SHRINK_GRANT;
            let (available, dirty) = (grant.available - keep, grant.dirty);
            oa.report_grant(GrantReport { available, dirty, ..GrantReport::default() });
            (grant.available, grant.used_at) = (keep, now);
        }
        let setinfo_key = Bytes::from_static(b"grant_shrink");
        let request =
            OstSetGrantInfo { setinfo_key, ost_body: OstBody { oa }, ..OstSetGrantInfo::default() };
        // A second one would return the grant of a new connection.
        let call = Call { kind: CallKind::NoResend, ..Call::new(request) };
        let target = Arc::clone(self);
        let task = async move {
            if let Err(errno) = call::call::<OstSetGrantInfo>(&*target.channel, call).await {
                tracing::debug!(%errno, "grant was not returned");
            }
        };
        self.shared.world.tasks.spawn("grant", Box::pin(task));
    }
}
