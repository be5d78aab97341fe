//! One OST, or an MDT that keeps data, as the data path sees it: its channel, its locks, its grant, its
//! objects in use.
//!
//! On an OST locks on data are extent locks. On an MDT it is the `DOM` bit of the inode's lock, PR to
//! read and PW to write, always for the whole object; see [`super::mdt`].
//!
//! Grant: `available` is what the OST has promised and we have not used for dirty bytes. It goes
//! down when bytes become dirty, and up by what write replies bring. Dirty bytes that are thrown
//! away (truncate) are put back. It is counted in whole blocks, because a single byte takes a block
//! of the OST's disk. What was used by a write that failed is lost: neither side has it until the OST
//! hears of it with the next write.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::{BoxFuture, World};
use sheen_layout::Mapping;
use sheen_ldlm::Policy;
use sheen_rpc::{Call, CallKind, Channel};
use sheen_types::limits::{BULK_BYTES_MAX, LNET_PAYLOAD_BYTES_MAX};
use sheen_types::{Errno, Extent, Fid, HashMap, InodeBits, Instant, LockMode, ResourceName};
use sheen_wire::checksum::Checksum;
use sheen_wire::connect::{ChecksumTypes, ConnectFlags, ObdConnectData};
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstSetGrantInfo, OstSync};
use sheen_wire::ost::{Obdo, ObdoFlags, OstBody};
use tokio::sync::Notify;

use super::counts::IoCounts;
use super::later::Later;
use super::object::{Known, Object};
use crate::call;
use crate::locks::{LockSpace, Lost, Protected};

/// Dirty bytes towards one OST unless told otherwise; Lustre's `max_dirty_mb` lies between 32 and
/// 2,000 MiB.
const DIRTY_BYTES_MAX: u64 = 64 << 20;

/// Reads and writes of at most so many bytes go inside the messages unless told otherwise
/// (`short_io_bytes`).
const SHORT_IO_BYTES: u64 = 16 << 10;
/// How often data is sent again whose checksum did not arrive as it was, unless told otherwise
/// (`resend_count`).
const RESENDS: u32 = 10;
/// Grant that nobody used for so long goes back, unless told otherwise (`grant_shrink_interval`).
const SHRINK_SECONDS: u32 = 1200;

/// So few dirty bytes may wait, however little grant there is.
const PRESSED_BYTES_MIN: u64 = 1 << 20;

/// Largest object of an OST that does not tell: what ext4 holds (`LUSTRE_EXT4_STRIPE_MAXBYTES`).
const OBJECT_BYTES_MAX_UNTOLD: u64 = 0x1000_0000_0000 - 4096;

/// What all OSTs share.
pub(super) struct Shared {
    pub(super) world: World,
    pub(super) events: Mutex<Option<Arc<dyn super::DataEvents>>>,
    pub(super) ahead: super::ahead::Limits,
    /// Calls that wait for locks.
    pub(super) asked: super::asked::Asked,
    /// Dirty bytes of all OSTs together, and how many there may be (`max_dirty_mb`).
    pub(super) dirty: AtomicU64,
    pub(super) dirty_max: AtomicU64,
    /// Dirty bytes were written, or grant has come: anywhere, since there is a limit for all together.
    pub(super) relieved: Notify,
}

impl Shared {
    pub(super) fn events(&self) -> Option<Arc<dyn super::DataEvents>> {
        self.events.lock().clone()
    }
}

/// What keeps the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    /// An OST: extent locks.
    Ost,
    /// An MDT: the `DOM` bit of inodes.
    Mdt,
}

/// One OST, or an MDT that keeps data.
pub struct Osc {
    pub(super) keeper: Keeper,
    pub(super) shared: Arc<Shared>,
    pub(super) channel: Arc<dyn Channel>,
    locks: std::sync::OnceLock<Arc<LockSpace>>,
    space: Mutex<Space>,
    terms: Mutex<Terms>,
    pub(super) later: Later,
    objects: Mutex<Objects>,
    /// Objects of files that are gone; see [`super::gone`].
    pub(super) gone: Mutex<Vec<ResourceName>>,
    tuning: Tuning,
    io: IoCounts,
}

/// Objects in use, and what the last user of others knew of them.
#[derive(Default)]
struct Objects {
    used: HashMap<ResourceName, Weak<Object>>,
    /// Size and times under a lock that is still cached, so that the next user need not ask for
    /// them. An entry goes when any lock on its resource does: there are no more than locks.
    left: HashMap<ResourceName, Known>,
}

/// What operators may set (`lctl set_param osc.*`).
struct Tuning {
    dirty_bytes_max: AtomicU64,
    /// Bytes of one bulk that is read, and of one that is written; never more than agreed.
    read_bytes_max: AtomicU64,
    write_bytes_max: AtomicU64,
    checksums: AtomicBool,
    /// The flag of the wanted checksum; 0 for the one that we like best.
    checksum: AtomicU32,
    short_io_bytes: AtomicU64,
    resends: AtomicU32,
    shrinks: AtomicBool,
    /// In seconds.
    shrink_interval: AtomicU32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            dirty_bytes_max: AtomicU64::new(DIRTY_BYTES_MAX),
            read_bytes_max: AtomicU64::new(BULK_BYTES_MAX as u64),
            write_bytes_max: AtomicU64::new(BULK_BYTES_MAX as u64),
            checksums: AtomicBool::new(true),
            checksum: AtomicU32::new(0),
            short_io_bytes: AtomicU64::new(SHORT_IO_BYTES),
            resends: AtomicU32::new(RESENDS),
            shrinks: AtomicBool::new(true),
            shrink_interval: AtomicU32::new(SHRINK_SECONDS),
        }
    }
}

/// What was agreed on with the OST; asked for several times in each RPC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Bytes of one bulk.
    pub(super) bulk_bytes: u64,
    /// Bytes of one bulk that is read: within the other one's limit.
    pub(super) read_bytes: u64,
    /// Up to how many bytes data goes inside the messages.
    pub(super) short_io: u64,
    /// The checksum that data goes with.
    pub(super) checksum: Option<Checksum>,
    /// Those that both sides compute.
    pub(super) checksums: ChecksumTypes,
    /// Largest size of an object.
    pub(super) object_bytes_max: u64,
    /// Whether grant may be given back at any time.
    pub(super) shrinks: bool,
}

impl Default for Terms {
    /// Before anything is agreed on: the least, and no limit that the OST may not have.
    fn default() -> Self {
        Self {
            bulk_bytes: 1 << 20,
            read_bytes: 1 << 20,
            short_io: 0,
            checksum: None,
            checksums: ChecksumTypes::NONE,
            object_bytes_max: u64::MAX,
            shrinks: false,
        }
    }
}

/// How many parts a bulk of so many bytes may have, as `ioo_max_brw` tells it: one less, in the upper
/// half. Lustre's servers find by it how many parts there are, from match bits that end in the last
/// one's number, so it is a power of two.
pub(super) fn max_brw(bulk_bytes: u64) -> u32 {
    let parts = bulk_bytes.div_ceil(LNET_PAYLOAD_BYTES_MAX as u64).max(1);
    (parts.next_power_of_two() as u32 - 1) << 16
}

impl Terms {
    fn of(data: &ObdConnectData) -> Self {
        let has = |flag| data.flags.contains(flag);
        let brw_size = u64::from(data.brw_size);
        let says_max = has(ConnectFlags::MAXBYTES) && data.maxbytes > 0;
        let bulk = if brw_size == 0 { 1 << 20 } else { brw_size.min(BULK_BYTES_MAX as u64) };
        let checksums = data.cksum_types & Checksum::OFFERED;
        let checksums = if has(ConnectFlags::CKSUM) { checksums } else { ChecksumTypes::NONE };
        Self {
            bulk_bytes: bulk,
            read_bytes: bulk,
            short_io: if has(ConnectFlags::SHORTIO) { u64::MAX } else { 0 },
            checksum: Checksum::choose(checksums),
            checksums,
            shrinks: has(ConnectFlags::GRANT_SHRINK),
            object_bytes_max: if says_max { data.maxbytes } else { OBJECT_BYTES_MAX_UNTOLD },
        }
    }
}

/// Grant and dirty bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Space {
    pub(super) available: u64,
    /// Dirty bytes, those included that are being sent.
    pub(super) dirty: u64,
    /// Those that are being sent.
    pub(super) sending: u64,
    /// What the OST still counts as ours and we do not.
    pub(super) lost: u64,
    /// When grant was used last, or came with a connection.
    used_at: Instant,
}

impl Osc {
    pub(super) fn new(keeper: Keeper, shared: Arc<Shared>, channel: Arc<dyn Channel>) -> Arc<Self> {
        Arc::new(Self {
            keeper,
            shared,
            channel,
            locks: std::sync::OnceLock::new(),
            // Nothing is promised before [`Osc::connected`].
            space: Mutex::default(),
            terms: Mutex::default(),
            later: Later::default(),
            objects: Mutex::default(),
            gone: Mutex::default(),
            tuning: Tuning::default(),
            io: IoCounts::default(),
        })
    }

    /// Joins the lock space, which needs the OSC to be made.
    pub(super) fn attach(&self, locks: Arc<LockSpace>) {
        let _ = self.locks.set(locks);
    }

    /// This OST's locks.
    ///
    /// # Panics
    /// Never: [`super::Osts::add`] attaches them before it hands the OSC out.
    pub(super) fn locks(&self) -> &Arc<LockSpace> {
        self.locks.get().expect("attached when the OSC was made")
    }

    /// The lock that covers `extent` of an object: at least that.
    pub(super) fn policy(&self, extent: Extent) -> Policy {
        match self.keeper {
            Keeper::Ost => Policy::extent(extent),
            Keeper::Mdt => Policy::bits(InodeBits::DOM),
        }
    }

    /// The OST is connected, perhaps anew: it told how much grant we hold, dirty bytes included.
    pub fn connected(&self, data: &ObdConnectData) {
        *self.terms.lock() = Terms::of(data);
        let mut space = self.space.lock();
        space.available = u64::from(data.grant).saturating_sub(space.dirty);
        space.lost = 0;
        space.used_at = self.shared.world.clock.now();
        drop(space);
        self.shared.relieved.notify_waiters();
    }

    /// What was agreed on when the OST was last connected, within what operators have set.
    pub(super) fn terms(&self) -> Terms {
        let agreed = *self.terms.lock();
        let tuning = &self.tuning;
        let wanted = ChecksumTypes(tuning.checksum.load(Ordering::Relaxed));
        let wanted = Checksum::choose(agreed.checksums & wanted).or(agreed.checksum);
        Terms {
            bulk_bytes: agreed.bulk_bytes.min(tuning.write_bytes_max.load(Ordering::Relaxed)),
            read_bytes: agreed.bulk_bytes.min(tuning.read_bytes_max.load(Ordering::Relaxed)),
            short_io: agreed.short_io.min(tuning.short_io_bytes.load(Ordering::Relaxed)),
            checksum: wanted.filter(|_| self.checksums()),
            ..agreed
        }
    }

    /// What it counts of its bulk RPCs.
    #[must_use]
    pub fn io(&self) -> &IoCounts {
        &self.io
    }

    /// Largest size of an object there.
    #[must_use]
    pub fn object_bytes_max(&self) -> u64 {
        self.terms.lock().object_bytes_max
    }

    /// Bytes of one bulk that is read, and of one that is written.
    #[must_use]
    pub fn bulk_bytes(&self) -> (u64, u64) {
        let terms = self.terms();
        (terms.read_bytes, terms.bulk_bytes)
    }

    /// Bytes of one bulk as the OST allows them: what [`Osc::limit_reads`] and the like may go up to.
    #[must_use]
    pub fn bulk_bytes_agreed(&self) -> u64 {
        self.terms.lock().bulk_bytes
    }

    /// From now on a bulk that is read has at most so many bytes (`max_mb_per_rpc_read`): whole pages.
    pub fn limit_reads(&self, bytes: u64) {
        self.tuning.read_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// The same of one that is written (`max_mb_per_rpc_write`).
    pub fn limit_writes(&self, bytes: u64) {
        self.tuning.write_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Up to how many bytes data goes inside the messages (`short_io_bytes`), as far as the OST takes
    /// it so.
    #[must_use]
    pub fn short_io_bytes(&self) -> u64 {
        self.tuning.short_io_bytes.load(Ordering::Relaxed)
    }

    /// From now on so many bytes may; 0 for none.
    pub fn set_short_io_bytes(&self, bytes: u64) {
        self.tuning.short_io_bytes.store(bytes, Ordering::Relaxed);
    }

    /// How often data is sent again whose checksum was wrong (`resend_count`).
    #[must_use]
    pub fn resends(&self) -> u32 {
        self.tuning.resends.load(Ordering::Relaxed)
    }

    /// From now on so often; 0 for never.
    pub fn set_resends(&self, count: u32) {
        self.tuning.resends.store(count, Ordering::Relaxed);
    }

    /// The checksums that both sides compute, and the one that is used (`checksum_type`).
    #[must_use]
    pub fn checksum_types(&self) -> (ChecksumTypes, Option<Checksum>) {
        let agreed = *self.terms.lock();
        let wanted = ChecksumTypes(self.tuning.checksum.load(Ordering::Relaxed));
        (agreed.checksums, Checksum::choose(agreed.checksums & wanted).or(agreed.checksum))
    }

    /// From now on uses one of these, as far as the OST computes it.
    pub fn choose_checksum(&self, wanted: ChecksumTypes) {
        self.tuning.checksum.store(wanted.0, Ordering::Relaxed);
    }

    /// Bytes that may be dirty at once (`max_dirty_mb`).
    #[must_use]
    pub fn dirty_bytes_max(&self) -> u64 {
        self.tuning.dirty_bytes_max.load(Ordering::Relaxed)
    }

    /// From now on so many bytes may be dirty at once. More that are dirty already are written as
    /// they would be.
    pub fn limit_dirty(&self, bytes: u64) {
        self.tuning.dirty_bytes_max.store(bytes, Ordering::Relaxed);
        self.shared.relieved.notify_waiters();
    }

    /// Whether bulk data is checksummed, as far as the OST does it (`checksums`).
    #[must_use]
    pub fn checksums(&self) -> bool {
        self.tuning.checksums.load(Ordering::Relaxed)
    }

    /// Turns checksums of bulk data on or off.
    pub fn set_checksums(&self, on: bool) {
        self.tuning.checksums.store(on, Ordering::Relaxed);
    }

    /// Bytes that the OST has promised and that are not used (`cur_grant_bytes`), dirty ones
    /// (`cur_dirty_bytes`), and promised ones that were lost (`cur_lost_grant_bytes`).
    #[must_use]
    pub fn grant_dirty_lost(&self) -> [u64; 3] {
        let space = self.space();
        [space.available, space.dirty, space.lost]
    }

    /// Bytes that are kept in memory: dirty, on their way, or read ahead; and objects in use. Walks all
    /// objects in use.
    #[must_use]
    pub fn cached(&self) -> (u64, usize) {
        let objects: Vec<_> = self.objects.lock().used.values().filter_map(Weak::upgrade).collect();
        let bytes = |object: &Arc<Object>| {
            let state = object.state.lock();
            state.dirty.bytes() + state.writing.bytes() + state.clean.bytes()
        };
        (objects.iter().map(bytes).sum(), objects.len())
    }

    pub(super) fn space(&self) -> Space {
        *self.space.lock()
    }

    /// Takes grant for blocks of `bytes` that become dirty; whether so much is dirty now that some of it
    /// should be sent.
    pub(super) fn reserve(&self, bytes: u64) -> Result<bool, Shortage> {
        let mut space = self.space.lock();
        // The first write always fits: nothing else could ever make room for it.
        if space.dirty > 0 && space.dirty + bytes > self.dirty_bytes_max() {
            return Err(Shortage::TooDirty);
        }
        // Two that come at once may exceed it by what one of them brings.
        let all = self.shared.dirty.load(Ordering::Relaxed);
        if all > 0 && all + bytes > self.shared.dirty_max.load(Ordering::Relaxed) {
            return Err(Shortage::TooDirty);
        }
        let left = space.available.checked_sub(bytes).ok_or(Shortage::NoGrant)?;
        space.available = left;
        space.dirty += bytes;
        space.used_at = self.shared.world.clock.now();
        self.shared.dirty.fetch_add(bytes, Ordering::Relaxed);
        Ok(self.is_pressed(&space))
    }

    /// Whether half of what may be dirty, here or towards all OSTs, waits to be sent, and it is worth the
    /// haste.
    pub(super) fn is_pressed(&self, space: &Space) -> bool {
        let waiting = space.dirty.saturating_sub(space.sending);
        let may_be = self.dirty_bytes_max().min(space.dirty + space.available);
        let all = self.shared.dirty.load(Ordering::Relaxed);
        waiting > PRESSED_BYTES_MIN
            && (waiting > may_be / 2 || all > self.shared.dirty_max.load(Ordering::Relaxed) / 2)
    }

    /// Dirty bytes are being sent.
    pub(super) fn begin_sending(&self, bytes: u64) {
        self.space.lock().sending += bytes;
    }

    /// They were, or that failed: then their grant is lost.
    pub(super) fn end_sending(&self, bytes: u64, is_written: bool) {
        let mut space = self.space.lock();
        space.sending = space.sending.saturating_sub(bytes);
        self.less_dirty(&mut space, bytes);
        if !is_written {
            space.lost += bytes;
        }
        drop(space);
        self.shared.relieved.notify_waiters();
    }

    fn less_dirty(&self, space: &mut Space, bytes: u64) {
        let gone = bytes.min(space.dirty);
        space.dirty -= gone;
        self.shared.dirty.fetch_sub(gone, Ordering::Relaxed);
    }

    /// The OST gave so much; or dirty bytes were thrown away, and their grant comes back.
    pub(super) fn settle(&self, bytes: u64, gained: u64) {
        let mut space = self.space.lock();
        self.less_dirty(&mut space, bytes);
        space.available += gained;
        drop(space);
        self.shared.relieved.notify_waiters();
    }

    /// What the OST is to hear that we lost. If it does not hear it, it counts it as ours until the
    /// next connect.
    pub(super) fn take_lost(&self) -> u32 {
        let mut space = self.space.lock();
        let told = u32::try_from(space.lost).unwrap_or(u32::MAX);
        space.lost -= u64::from(told);
        told
    }

    /// What we would like to hold: room for all we may keep dirty.
    pub(super) fn wish(&self) -> u32 {
        u32::try_from(self.dirty_bytes_max()).unwrap_or(u32::MAX)
    }

    /// Whether grant that nobody uses goes back (`grant_shrink`), as far as the OST takes it.
    #[must_use]
    pub fn shrinks_grant(&self) -> bool {
        self.terms.lock().shrinks && self.tuning.shrinks.load(Ordering::Relaxed)
    }

    /// From now on it does, or not.
    pub fn shrink_grant_or_not(&self, on: bool) {
        self.tuning.shrinks.store(on, Ordering::Relaxed);
    }

    /// After how many seconds without use (`grant_shrink_interval`).
    #[must_use]
    pub fn shrink_interval(&self) -> u32 {
        self.tuning.shrink_interval.load(Ordering::Relaxed)
    }

    /// From now on after so many.
    pub fn set_shrink_interval(&self, seconds: u32) {
        self.tuning.shrink_interval.store(seconds, Ordering::Relaxed);
    }

    /// Gives back what was promised and not used for too long, but for one bulk; later writes get it
    /// again. If the OST does not hear of it, it counts too much as ours until the next connect.
    pub(super) fn give_grant_back(self: &Arc<Self>) {
        let interval = Duration::from_secs(self.shrink_interval().into());
        let (keep, now) = (self.terms().bulk_bytes, self.shared.world.clock.now());
        let mut oa = Obdo { valid: Valid::GRANT | Valid::BLOCKS | Valid::FLAGS, ..Obdo::default() };
        {
            let mut space = self.space.lock();
            let is_used = now.since(space.used_at) < interval || space.available <= keep;
            if is_used || !self.shrinks_grant() {
                return;
            }
            oa.flags |= ObdoFlags::SHRINK_GRANT;
            (oa.grant, oa.blocks) = (space.available - keep, space.dirty);
            (space.available, space.used_at) = (keep, now);
        }
        let setinfo_key = Bytes::from_static(b"grant_shrink");
        let request =
            OstSetGrantInfo { setinfo_key, ost_body: OstBody { oa }, ..OstSetGrantInfo::default() };
        // A second one would give back what a new connection has brought.
        let call = Call { kind: CallKind::NoResend, ..Call::new(request) };
        let osc = Arc::clone(self);
        let task = async move {
            if let Err(errno) = call::call::<OstSetGrantInfo>(&*osc.channel, call).await {
                tracing::debug!(%errno, "grant did not go back");
            }
        };
        self.shared.world.tasks.spawn("grant", Box::pin(task));
    }

    /// Writes back what is dirty in any object. What fails is reported by the file's next flush.
    pub(super) async fn flush_all(&self) {
        let all: Vec<Arc<Object>> =
            self.objects.lock().used.values().filter_map(Weak::upgrade).collect();
        for object in all {
            object.drain(Extent::ALL).await;
        }
    }

    /// Returns when all that the OST has is durable there: one RPC that names no object.
    pub(super) async fn sync_all(&self) -> Result<(), Errno> {
        let everything = Obdo { valid: Valid::ID | Valid::GROUP, ..Obdo::default() };
        let ost_body = OstBody { oa: everything };
        let call = Call::new(OstSync { ost_body, ..OstSync::default() });
        call::call::<OstSync>(&*self.channel, call).await.map(drop)
    }

    /// The object that is in use for this resource, made now if there is none, of what is known of it:
    /// never two at once, whose locks and dirty bytes would not know of each other.
    pub(super) fn object_or_new(
        &self,
        resource: ResourceName,
        make: impl FnOnce(Option<Known>) -> Object,
    ) -> Arc<Object> {
        let mut objects = self.objects.lock();
        if let Some(object) = objects.used.get(&resource).and_then(Weak::upgrade) {
            return object;
        }
        let left = objects.left.remove(&resource);
        let left = left.filter(|known| self.covers_end(resource, known.size));
        let object = Arc::new(make(left));
        objects.used.insert(resource, Arc::downgrade(&object));
        object
    }

    /// The object is not in use any more; `known` is what the OST has told of it.
    pub(super) fn leave(&self, resource: ResourceName, known: Option<Known>) {
        let mut objects = self.objects.lock();
        if objects.used.get(&resource).is_none_or(|object| object.strong_count() > 0) {
            return;
        }
        objects.used.remove(&resource);
        if let Some(known) = known.filter(|known| self.covers_end(resource, known.size)) {
            objects.left.insert(resource, known);
        }
    }

    /// An object in use that has other bytes than these, or another file's, is not what a layout says
    /// any more: whoever asks next gets a new one.
    ///
    /// # Errors
    /// `EAGAIN` while it has bytes to write.
    pub(super) fn retire_unless(
        &self,
        resource: ResourceName,
        fid: Fid,
        mapping: Mapping,
    ) -> Result<(), Errno> {
        let fits = |object: &Object| object.file == fid && object.mapping == mapping;
        if self.object(resource).is_none_or(|object| fits(&object)) {
            return Ok(());
        }
        if self.is_dirty(resource) {
            return Err(Errno::EAGAIN);
        }
        self.objects.lock().used.remove(&resource);
        Ok(())
    }

    /// Whether locks of ours keep others from changing the size `size` of an object, and its times.
    pub(super) fn covers_end(&self, resource: ResourceName, size: u64) -> bool {
        let extent = Extent { start: size, end: Extent::EOF };
        self.locks().covers(resource, self.policy(extent), LockMode::Pr)
    }

    /// Notes what a lock that is about to be ours says of an object, in use or not.
    pub(super) fn learn(&self, resource: ResourceName, value: &Bytes) {
        let mut objects = self.objects.lock();
        match objects.used.get(&resource).and_then(Weak::upgrade) {
            Some(object) => {
                drop(objects);
                object.learn(value);
            }
            // Locks on the objects of an OST are asked for by objects in use alone.
            None if self.keeper == Keeper::Ost => {}
            None => {
                if let Some(known) = Known::told(value) {
                    objects.left.insert(resource, known);
                }
            }
        }
    }

    pub(super) fn object(&self, resource: ResourceName) -> Option<Arc<Object>> {
        self.objects.lock().used.get(&resource).and_then(Weak::upgrade)
    }

    /// The object in use, for a lock on it that goes: what was left of one that is not, goes too.
    fn object_losing(&self, resource: ResourceName) -> Option<Arc<Object>> {
        let mut objects = self.objects.lock();
        objects.left.remove(&resource);
        objects.used.get(&resource).and_then(Weak::upgrade)
    }
}

/// Why bytes cannot become dirty now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Too many are: wait until some are written.
    TooDirty,
    /// The OST has not promised the space: write through.
    NoGrant,
}

/// What the locks of one OST protect.
pub(super) struct Pages(pub(super) Arc<Osc>);

fn extent_of(part: &Policy) -> Extent {
    match part {
        Policy::Extent { extent, .. } => *extent,
        _ => Extent::ALL,
    }
}

impl Protected for Pages {
    fn lose(&self, _: &Arc<LockSpace>, lost: Lost) -> BoxFuture<'static, ()> {
        let object = self.0.object_losing(lost.resource);
        Box::pin(async move {
            if let Some(object) = object {
                let is_writer = matches!(lost.mode, LockMode::Pw | LockMode::Ex | LockMode::Group);
                object.lose(extent_of(&lost.part), is_writer, lost.discard).await;
            }
        })
    }

    fn void(&self, _: &Arc<LockSpace>, lost: Lost) -> BoxFuture<'static, ()> {
        let object = self.0.object_losing(lost.resource);
        Box::pin(async move {
            if let Some(object) = object {
                object.note_loss(extent_of(&lost.part));
                object.lose(extent_of(&lost.part), true, true).await;
            }
        })
    }

    fn learn(&self, resource: ResourceName, value: &Bytes) {
        self.0.learn(resource, value);
    }

    fn glimpse(&self, resource: ResourceName) -> Option<Bytes> {
        self.0.object(resource).and_then(|object| object.lock_value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_how_many_parts_a_bulk_may_have() {
        assert_eq!(max_brw(1 << 20), 0);
        assert_eq!(max_brw(4 << 20), 3 << 16);
        assert_eq!(max_brw(64 << 10), 0);
        assert_eq!(max_brw(3 << 20), 3 << 16);
    }
}
