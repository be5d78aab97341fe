//! One OST as the MDT sees it: its precreated objects, how full it is, and what is still
//! to be done there (Lustre's OSP).
//!
//! One task per OST precreates objects, carries out the OST updates and asks for the space; it alone talks
//! to the OST. Ids are used in order, so "the last used" says everything: what lies above it when
//! we or the OST come back was never given to a file and is removed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sheen_layout::choose::Candidate;
use sheen_rpc::{Call, CallKind, Channel, ImportState, RpcError};
use sheen_store::{Store, StoreError, Transaction, all_entries};
use sheen_target::Target;
use sheen_types::futures::race;
use sheen_types::{Errno, Fid, Instant, fid_seq};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::md::{ObdStatfs, StatfsState, Valid};
use sheen_wire::messages::{OstCreate, OstStatfs, Reply};
use sheen_wire::ost::{Obdo, ObdoFlags, OstBody, OstId};
use tokio::sync::Notify;

use super::ost_updates::OstUpdates;

/// Index of the last id used on each OST: OST number, big-endian, to id.
pub(crate) const LAST_USED: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x202);
/// Before the first object: id 1 stays unused, as with Lustre.
pub(super) const FIRST_USED: u64 = 1;
/// Ids end here: what an older version believed of a replay is no reason to wrap.
const USED_MAX: u64 = u64::MAX >> 1;
/// Objects created at a time: from this...
const BATCH_MIN: u64 = 32;
/// ...doubled each time that precreated objects ran low, to half of what operators allow (`osp.*.max_create_count`).
const CREATE_MAX: u64 = 4096;
/// `OST_MAX_PRECREATE`: more than that they cannot allow.
const CREATE_MAX_MAX: u64 = 20_000;
/// Its maintenance looks around this often while something waits to become durable.
const BUSY: Duration = Duration::from_secs(1);
/// How long after an OST has removed objects creates wait for it to say that it has space again: it frees that behind
/// its answer.
const FREES_MAX: Duration = Duration::from_secs(2);
/// How long creates wait for an OST that says it recovers: `recovery_time_hard` by default, and time to connect. A
/// recovery that takes longer, or an OST that refuses us for another reason with the same error, delays no create.
pub(super) const RECOVERY_MAX: Duration = Duration::from_secs(960);
/// Blocks below which an OST takes no new files, in bytes.
const RESERVE_BYTES: u64 = 1 << 20;

/// See the module's documentation.
pub(crate) struct PlacementOst {
    pub(crate) index: u16,
    /// Sequence of its objects.
    sequence: u64,
    channel: RwLock<Arc<dyn Channel>>,
    precreated: Mutex<Precreated>,
    /// The newest id that is, or is about to be, in a file.
    used: AtomicU64,
    /// Recovery of the MDT has ended: an object whose use was not replayed is an orphan.
    recovered: AtomicBool,
    /// Operators let us use it. While they do not, nothing is asked of it: no new objects, and what
    /// is to be done there waits.
    is_active: AtomicBool,
    is_maintained: AtomicBool,
    /// Seconds after which the OST is asked for its space again; so often its maintenance looks around by itself.
    space_age_max: AtomicU32,
    /// Objects are about to be removed: its maintenance looks for that within [`BUSY`].
    expects_updates: AtomicBool,
    /// Wakes its maintenance.
    kick: Notify,
    /// Wakes tasks that wait for objects.
    filled: Arc<Notify>,
    pub(super) ost_updates: OstUpdates,
}

/// Objects that the OST has made ahead of the files that get them (Lustre: precreation).
struct Precreated {
    /// The next id to be used.
    next: u64,
    /// The last id that exists.
    last: u64,
    /// Ids below `next` that were taken and returned.
    returned: Vec<u64>,
    batch: u64,
    /// A create found no object since the last ones were added.
    ran_dry: bool,
    /// Twice the largest batch; 0 for no new files.
    create_max: u64,
    /// The connection over which we have agreed on what exists.
    agreed: Option<u32>,
    is_full: bool,
    /// When objects were removed there last while it was full.
    freed: Option<Instant>,
    space: Option<(Instant, ObdStatfs)>,
    /// Since when it recovers, as far as we have looked.
    recovers_since: Option<Instant>,
}

/// Objects that are to be created, and what was precreated when that was found.
struct Shortage {
    next: u64,
    last: u64,
    batch: u64,
}

impl Precreated {
    /// The OST's space, as the MDT sees it: `NOCREATE` where it puts no new files there.
    fn shown(&self, space: &ObdStatfs) -> ObdStatfs {
        let mut space = space.clone();
        if self.create_max == 0 {
            space.state |= StatfsState::NOCREATE;
        }
        space
    }
}

/// An OST and its precreated objects, for the parameter tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OstView {
    /// Number of the OST.
    pub index: u16,
    /// Where the import stands.
    pub state: ImportState,
    /// Whether operators let us use it.
    pub is_active: bool,
    /// Sequence of its objects.
    pub sequence: u64,
    /// The last id given to a file.
    pub last_used: u64,
    /// The last id that exists.
    pub last_created: u64,
    /// Objects that are created at a time.
    pub create_count: u64,
    /// Twice as many as those may become; 0 while operators let it have no new files.
    pub max_create_count: u64,
    /// Whether it takes no new files for want of space.
    pub is_full: bool,
    /// What it said of its space last.
    pub space: Option<ObdStatfs>,
}

impl PlacementOst {
    pub(super) fn new(
        store: &dyn Store,
        index: u16,
        sequence: u64,
        channel: Arc<dyn Channel>,
        filled: Arc<Notify>,
    ) -> Result<Self, StoreError> {
        let value = store.lookup(LAST_USED, &index.to_be_bytes())?;
        let parse = |value: Bytes| Some(u64::from_le_bytes(value[..].try_into().ok()?));
        // Were it taken for none, objects of files would be given to other files.
        let used = value.map(|value| parse(value).ok_or_else(wrong_used)).transpose()?;
        let used = used.unwrap_or(FIRST_USED).min(USED_MAX);
        let precreated = Precreated {
            next: used + 1,
            last: used,
            returned: Vec::new(),
            batch: BATCH_MIN,
            ran_dry: false,
            create_max: CREATE_MAX,
            agreed: None,
            is_full: false,
            freed: None,
            space: None,
            recovers_since: None,
        };
        Ok(Self {
            index,
            sequence,
            channel: RwLock::new(channel),
            precreated: Mutex::new(precreated),
            used: AtomicU64::new(used),
            recovered: AtomicBool::new(false),
            is_active: AtomicBool::new(true),
            is_maintained: AtomicBool::new(false),
            space_age_max: AtomicU32::new(1),
            expects_updates: AtomicBool::new(false),
            kick: Notify::new(),
            filled,
            ost_updates: OstUpdates::new(index),
        })
    }

    pub(super) fn replace_channel(&self, channel: Arc<dyn Channel>) {
        *self.channel.write() = channel;
        self.precreated.lock().agreed = None;
        self.kick.notify_one();
    }

    /// Sets how old what is known of its space may be; its maintenance takes note at once.
    pub(super) fn set_space_age_max(&self, seconds: u32) {
        if self.space_age_max.swap(seconds, Ordering::AcqRel) != seconds {
            self.kick.notify_one();
        }
    }

    fn space_age_max(&self) -> Duration {
        Duration::from_secs(self.space_age_max.load(Ordering::Acquire).into())
    }

    pub(super) fn channel(&self) -> Arc<dyn Channel> {
        Arc::clone(&self.channel.read())
    }

    pub(super) fn view(&self) -> OstView {
        let precreated = self.precreated.lock();
        OstView {
            index: self.index,
            state: self.channel().state(),
            is_active: self.is_active(),
            sequence: self.sequence,
            last_used: self.used.load(Ordering::Acquire),
            last_created: precreated.last,
            create_count: precreated.batch,
            max_create_count: precreated.create_max,
            is_full: precreated.is_full,
            space: precreated.space.as_ref().map(|(_, space)| precreated.shown(space)),
        }
    }

    pub(super) fn space(&self) -> Option<ObdStatfs> {
        self.precreated.lock().space.as_ref().map(|(_, space)| space.clone())
    }

    /// An object of a given number.
    pub(super) fn object(&self, id: u64) -> Fid {
        Fid::new(self.sequence, id as u32)
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Sets whether it may be used (`osp.*.active`).
    pub(super) fn set_active(&self, is_active: bool) {
        if is_active && !self.is_active() {
            // It may have restarted meanwhile without our having asked what is there.
            self.precreated.lock().agreed = None;
        }
        self.is_active.store(is_active, Ordering::Release);
        self.kick.notify_one();
        // A create that waits for an object of this one tries another OST.
        self.filled.notify_waiters();
    }

    /// Sets how many objects are created at a time: a power of two up to 256, a multiple of it above.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for fewer than the smallest batch has.
    pub(super) fn set_create_count(&self, count: u64) -> Result<(), Errno> {
        if count < BATCH_MIN {
            return Err(Errno::ERANGE);
        }
        let mut precreated = self.precreated.lock();
        precreated.batch = match count.min(precreated.create_max / 2) {
            0 => 0,
            count if count > 256 => count & !255,
            count => 1 << count.ilog2(),
        };
        drop(precreated);
        self.kick.notify_one();
        Ok(())
    }

    /// Sets twice how many that may become. With 0 new files lie elsewhere; unlike one that is not active, the OST
    /// is asked for its space and destroys what is to be destroyed there.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for fewer than the smallest batch has, and for more than Lustre allows.
    pub(super) fn set_max_create_count(&self, count: u64) -> Result<(), Errno> {
        if count != 0 && !(BATCH_MIN..=CREATE_MAX_MAX).contains(&count) {
            return Err(Errno::ERANGE);
        }
        let mut precreated = self.precreated.lock();
        precreated.create_max = count;
        precreated.batch = precreated.batch.min(count);
        if precreated.batch == 0 && count != 0 {
            precreated.batch = BATCH_MIN;
        }
        drop(precreated);
        self.kick.notify_one();
        // A create that waits for an object of this one tries another OST.
        self.filled.notify_waiters();
        Ok(())
    }

    /// Whether new files may lie here: allowed, connected, in agreement, with space.
    pub(super) fn is_usable(&self) -> bool {
        let precreated = self.precreated.lock();
        self.is_active()
            && precreated.create_max > 0
            && self.is_precreated_current(&precreated)
            && !precreated.is_full
            && self.channel().state() == ImportState::Full
    }

    /// Whether what was precreated exists: the OST may have come back without it.
    fn is_precreated_current(&self, precreated: &Precreated) -> bool {
        precreated.agreed == Some(self.channel().connection())
    }

    /// Whether it is only a question of time until it can be used: it starts, or was restarted. One that has another
    /// MDT's objects needs an administrator.
    pub(super) fn may_become_usable(&self) -> bool {
        let precreated = self.precreated.lock();
        let channel = self.channel();
        let state = channel.state();
        let is_away = !self.is_precreated_current(&precreated) || state != ImportState::Full;
        let comes_back = state != ImportState::Closed && !channel.has_wrong_identity();
        self.is_active()
            && precreated.create_max > 0
            && is_away
            && !precreated.is_full
            && comes_back
    }

    /// Whether the OST is full, and may have space in a moment: objects that files have lost are still to be removed
    /// there, or were just now. Its maintenance is woken to do that at once. Reads the store.
    pub(super) fn is_freeing_space(&self, store: &dyn Store, now: Instant) -> bool {
        let (is_full, freed) = {
            let precreated = self.precreated.lock();
            (precreated.is_full && precreated.create_max > 0, precreated.freed)
        };
        if !is_full || !self.is_active() || self.channel().state() != ImportState::Full {
            return false;
        }
        let was_freed = freed.is_some_and(|freed| now < freed + FREES_MAX);
        // What cannot be read frees nothing.
        let frees = was_freed || self.ost_updates.any(store).unwrap_or(false);
        if frees {
            self.kick.notify_one();
        }
        frees
    }

    /// Whether the OST was restarted and its clients replay, which ends with its recovery window; if we were, too, it
    /// takes us after that. Then we ask what it has. Not for longer than [`RECOVERY_MAX`] in one go.
    pub(super) fn waits_for_recovery(&self, now: Instant) -> bool {
        use ImportState::{Full, Recover, Replay, ReplayLocks, ReplayWait};
        let channel = self.channel();
        let state = channel.state();
        let replays = matches!(state, Replay | ReplayLocks | ReplayWait | Recover);
        let may_become_usable = self.may_become_usable();
        let mut precreated = self.precreated.lock();
        let is_asked = state == Full
            && precreated.agreed.is_some()
            && !self.is_precreated_current(&precreated);
        if !(may_become_usable && (replays || is_asked || channel.is_refused_in_recovery())) {
            precreated.recovers_since = None;
            return false;
        }
        now < *precreated.recovers_since.get_or_insert(now) + RECOVERY_MAX
    }

    /// An unused object; `None` if there is none ahead.
    pub(super) fn take(&self) -> Option<u64> {
        let mut precreated = self.precreated.lock();
        if precreated.create_max == 0 {
            return None;
        }
        let agrees = self.is_precreated_current(&precreated);
        if agrees && let Some(id) = precreated.returned.pop() {
            return Some(id);
        }
        if !agrees || precreated.next > precreated.last {
            precreated.ran_dry |= agrees;
            drop(precreated);
            self.kick.notify_one();
            return None;
        }
        let id = precreated.next;
        precreated.next += 1;
        let runs_low = precreated.last - id < precreated.batch / 2;
        drop(precreated);
        if runs_low {
            self.kick.notify_one();
        }
        Some(id)
    }

    /// Returns an object that no file got to the precreated ones. One that is not the last taken waits to be
    /// taken again; if the MDT stops before, it stays on the OST without a file.
    pub(super) fn return_object(&self, id: u64) {
        let mut precreated = self.precreated.lock();
        if precreated.next == id + 1 {
            precreated.next = id;
        } else {
            precreated.returned.push(id);
        }
    }

    /// What a choice among OSTs must know.
    pub(super) fn candidate(&self) -> Candidate {
        let is_usable = self.is_usable();
        let precreated = self.precreated.lock();
        let space = precreated.space.as_ref().map(|(_, space)| space);
        Candidate {
            ost: self.index,
            free_bytes: space.map_or(0, free_bytes),
            is_usable,
            is_degraded: space.is_some_and(|space| space.state.contains(StatfsState::DEGRADED)),
        }
    }

    /// Adds to the transaction of a file that `id` is used. Called in the order of transactions.
    pub(super) fn record_used(&self, transaction: &mut Transaction, id: u64) {
        let used = self.used.fetch_max(id, Ordering::AcqRel).max(id);
        put_used(transaction, self.index, used);
    }

    /// Whether its objects are in this sequence.
    pub(super) fn has_sequence(&self, sequence: u64) -> bool {
        self.sequence == sequence
    }

    /// A replayed request says that `id` is used: not to be given out again, not an orphan.
    pub(super) fn note_used(&self, id: u64) {
        self.used.fetch_max(id, Ordering::AcqRel);
        let mut precreated = self.precreated.lock();
        precreated.next = precreated.next.max(id.saturating_add(1));
        precreated.last = precreated.last.max(id);
    }

    pub(super) fn recovered(&self) {
        self.recovered.store(true, Ordering::Release);
        self.kick.notify_one();
    }

    /// A transaction that is being made removes objects of it: their space is to be free soon. Wakes its maintenance once
    /// in [`BUSY`] at most.
    pub(super) fn expect_updates(&self) {
        if !self.expects_updates.swap(true, Ordering::AcqRel) {
            self.kick.notify_one();
        }
    }

    /// Starts its maintenance, once.
    pub(crate) fn start_maintenance(self: &Arc<Self>, target: &Arc<Target>) {
        if self.is_maintained.swap(true, Ordering::AcqRel) {
            return;
        }
        let (ost, weak) = (Arc::downgrade(self), Arc::downgrade(target));
        let world = target.world().clone();
        let maintenance = async move {
            while let Some((ost, target)) = upgrade(&ost, &weak) {
                let busy = ost.maintain_once(&target).await;
                drop(target);
                let expects_updates = ost.expects_updates.load(Ordering::Acquire);
                // Of a full OST it is to be known soon that it no longer is.
                let is_near = busy || expects_updates || ost.precreated.lock().is_full;
                let pause = world.clock.now() + if is_near { BUSY } else { ost.space_age_max() };
                race(ost.kick.notified(), world.clock.sleep_until(pause)).await;
                if expects_updates {
                    ost.expects_updates.store(false, Ordering::Release);
                }
            }
        };
        target.world().tasks.spawn("precreation", Box::pin(maintenance));
    }

    /// Does what is to be done now; answers whether something waits for the MDT's disk.
    async fn maintain_once(&self, target: &Arc<Target>) -> bool {
        if !self.recovered.load(Ordering::Acquire) || !self.is_active() {
            return false;
        }
        // Notes when a recovery has ended.
        self.waits_for_recovery(target.world().clock.now());
        if let Err(error) = self.maintain_precreated(target).await {
            tracing::debug!(ost = self.index, %error, "the pool is not filled");
        }
        self.send_updates(target).await
    }

    /// Sends the OST updates whose cause is durable; whether some are left. Those of a full OST bring space, and what
    /// causes them is made durable for that.
    async fn send_updates(&self, target: &Arc<Target>) -> bool {
        let is_full = self.precreated.lock().is_full;
        let frees = is_full && self.ost_updates.any(&**target.store()).unwrap_or(false);
        let mut is_left = self.ost_updates.send_durable(&self.channel(), target).await;
        if !frees {
            return is_left;
        }
        if is_left && target.sync().await.is_ok() {
            is_left = self.ost_updates.send_durable(&self.channel(), target).await;
        }
        if !is_left {
            self.precreated.lock().freed = Some(target.world().clock.now());
            if let Err(error) = self.maintain_precreated(target).await {
                tracing::debug!(ost = self.index, %error, "the pool is not filled");
            }
        }
        is_left
    }

    async fn maintain_precreated(&self, target: &Arc<Target>) -> Result<(), RpcError> {
        self.clean_up_orphans(target).await?;
        self.ask_space(target).await?;
        while let Some(shortage) = self.shortage() {
            let wanted = shortage.last + shortage.batch;
            match self.create(target, wanted, ObdoFlags::NONE).await {
                Ok(last) => self.add(last, &shortage),
                Err(RpcError::Errno(Errno::ENOSPC)) => {
                    self.precreated.lock().is_full = true;
                    self.filled.notify_waiters();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes on the OST what was created and never used, after we or the OST came back (Lustre: orphan cleanup).
    async fn clean_up_orphans(&self, target: &Arc<Target>) -> Result<(), RpcError> {
        // From when this connection is replaced, no object is taken; those that were count as used.
        let connection = self.channel().connection();
        let used = {
            let precreated = self.precreated.lock();
            if precreated.agreed == Some(connection) {
                return Ok(());
            }
            self.used.load(Ordering::Acquire).max(precreated.next - 1)
        };
        // The sequence may have been given to this OST a moment ago: it must not be another's after a
        // crash of ours.
        target.sync().await.map_err(RpcError::Errno)?;
        let last = self.create(target, used, ObdoFlags::DELORPHAN).await;
        let mut precreated = self.precreated.lock();
        let last = last.inspect_err(|_| precreated.agreed = None)?.max(used);
        (precreated.next, precreated.last) = (last + 1, last);
        // An OST that was put back from an older copy may have lost them.
        precreated.returned.clear();
        precreated.agreed = Some(connection);
        precreated.recovers_since = None;
        Ok(())
    }

    /// What is to be created; `None` while there are enough objects.
    fn shortage(&self) -> Option<Shortage> {
        let mut precreated = self.precreated.lock();
        precreated.batch = precreated.batch.min(precreated.create_max / 2);
        let left = (precreated.last + 1).saturating_sub(precreated.next);
        let Precreated { next, last, batch, .. } = *precreated;
        (!precreated.is_full && left < batch / 2).then_some(Shortage { next, last, batch })
    }

    /// Adds objects up to `last` to the precreated ones, which were as `asked` says when they were asked for.
    fn add(&self, last: u64, asked: &Shortage) {
        let mut precreated = self.precreated.lock();
        let left = (precreated.last + 1).saturating_sub(precreated.next);
        // The batch was too small if a create found no object, or if creates nearly used all up while we asked. Not if
        // none is there because the OST is new, or if they seem few because an operator asked for larger batches; and a
        // batch that an operator set while we asked is none that has proved too small.
        let is_nearly_empty = precreated.next > asked.next && left <= precreated.batch / 4;
        let is_too_small = precreated.ran_dry || is_nearly_empty;
        if is_too_small && precreated.batch == asked.batch {
            precreated.batch = (precreated.batch * 2).min(precreated.create_max / 2);
        }
        precreated.ran_dry = false;
        precreated.last = precreated.last.max(last);
        drop(precreated);
        self.filled.notify_waiters();
    }

    /// OSTs that know MDTs learn how far this one's store had come when it started, and has come now.
    async fn create(&self, target: &Target, id: u64, flags: ObdoFlags) -> Result<u64, RpcError> {
        let mut valid = Valid::ID | Valid::GROUP;
        if flags != ObdoFlags::NONE {
            valid |= Valid::FLAGS;
        }
        let oi = OstId { word0: self.sequence, word1: id };
        let mut oa = Obdo { valid, oi, flags, ..Obdo::default() };
        if self.channel().connect_data().flags2.contains(ConnectFlags2::MDT_IDENTITY) {
            oa.valid |= Valid::SIZE | Valid::BLOCKS;
            (oa.size, oa.blocks) = (target.last_committed().0, target.durable_at_start().0);
        }
        let request = OstCreate { ost_body: OstBody { oa }, ..OstCreate::default() };
        // Kept for replay: an OST that crashes makes the same objects again.
        let call = Call { kind: CallKind::Idempotent, ..Call::new(request) };
        let answer = self.channel().call(call).await?;
        match answer.reply {
            Reply::OstCreate(reply) => reply.ost_body.map(|body| body.oa.oi.id()),
            _ => None,
        }
        .ok_or_else(|| RpcError::Protocol("an answer to OST_CREATE without body".to_owned()))
    }

    async fn ask_space(&self, target: &Arc<Target>) -> Result<(), RpcError> {
        let now = target.world().clock.now();
        if self.knows_space(now) {
            return Ok(());
        }
        let answer = self.channel().call(Call::new(OstStatfs::default())).await?;
        if let Reply::OstStatfs(reply) = answer.reply
            && let Some(space) = reply.obd_statfs
        {
            let mut precreated = self.precreated.lock();
            precreated.is_full = free_bytes(&space) < RESERVE_BYTES
                || space.ffree == 0
                || space.state.intersects(StatfsState::NOCREATE | StatfsState::READONLY);
            precreated.space = Some((now, space));
        }
        Ok(())
    }

    /// Whether what the OST said of its space is not too old. That it is full may change at any time.
    fn knows_space(&self, now: Instant) -> bool {
        let precreated = self.precreated.lock();
        let frees = precreated.freed.is_some_and(|freed| now < freed + FREES_MAX);
        let age_max = match precreated.is_full {
            true if frees => Duration::ZERO,
            true => BUSY,
            false => self.space_age_max(),
        };
        precreated.space.as_ref().is_some_and(|(at, _)| now.since(*at) < age_max)
    }
}

fn free_bytes(space: &ObdStatfs) -> u64 {
    space.bavail.saturating_mul(u64::from(space.bsize))
}

fn upgrade(
    ost: &Weak<PlacementOst>,
    target: &Weak<Target>,
) -> Option<(Arc<PlacementOst>, Arc<Target>)> {
    Some((ost.upgrade()?, target.upgrade()?))
}

/// The last id used on every OST that ever had a file, for checks of a whole file system.
pub(crate) fn last_used(store: &dyn Store) -> Result<Vec<(u16, u64)>, StoreError> {
    let parse = |entry: &sheen_store::Entry| {
        let ost = u16::from_be_bytes(entry.key.as_ref().try_into().ok()?);
        Some((ost, u64::from_le_bytes(entry.value.as_ref().try_into().ok()?)))
    };
    all_entries(store, LAST_USED, &[])
        .map(|entry| entry.and_then(|entry| parse(&entry).ok_or_else(wrong_used)))
        .collect()
}

fn wrong_used() -> StoreError {
    StoreError::Corrupt("a record of the last object used".to_owned())
}

/// Adds the last id used on an OST.
pub(crate) fn put_used(transaction: &mut Transaction, index: u16, used: u64) {
    let key = Bytes::copy_from_slice(&index.to_be_bytes());
    transaction.put(LAST_USED, key, Bytes::copy_from_slice(&used.to_le_bytes()));
}
