//! One OST, or an MDT that keeps data (Lustre: OSC, MDC), as the data path sees it: its channel, its locks, its grant,
//! its objects in use.
//!
//! On an OST locks on data are extent locks. On an MDT it is the `DOM` bit of the inode's lock, PR to
//! read and PW to write, always for the whole object; see [`super::mdt`].
//!
//! Its grant is in [`super::grant`], the limits negotiated with it in [`super::negotiated_limits`].

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::{BoxFuture, World};
use sheen_layout::Mapping;
use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::{Call, Channel};
use sheen_types::{Errno, Extent, Fid, HashMap, InodeBits, LockMode, ResourceName};
use sheen_wire::md::Valid;
use sheen_wire::messages::OstSync;
use sheen_wire::ost::{Obdo, OstBody};
use tokio::sync::Notify;

use super::Locking;
use super::counts::IoCounts;
use super::extents::widened;
use super::flush_queue::FlushQueue;
use super::grant::Grant;
use super::lock_loss::LockLoss;
use super::negotiated_limits::{DataTargetSettings, NegotiatedLimits};
use super::object::{KnownAttributes, Object};
use crate::call;
use crate::locks::{ClientNamespace, CoveredCache, LostLock};
use crate::records::{Record, Recorded, Recorder};

/// What all OSTs share.
pub(super) struct Shared {
    pub(super) world: World,
    pub(super) events: Mutex<Option<Arc<dyn super::DataEvents>>>,
    /// Dumps garbled data, for inspection.
    pub(super) dump_garbled: OnceLock<super::DumpGarbled>,
    pub(super) ahead: super::ahead::Limits,
    /// Calls that wait for locks.
    pub(super) waiting_calls: super::waiting_calls::WaitingCalls,
    /// Dirty bytes of all OSTs together, and how many there may be (`max_dirty_mb`).
    pub(super) dirty: AtomicU64,
    pub(super) dirty_max: AtomicU64,
    /// Dirty bytes were written, or grant has come: anywhere, since there is a limit for all together.
    pub(super) room_freed: Notify,
    /// Where it is recorded which files have bytes that are not at their OSTs.
    pub(super) recorder: OnceLock<Recorder>,
}

impl Shared {
    pub(super) fn events(&self) -> Option<Arc<dyn super::DataEvents>> {
        self.events.lock().clone()
    }

    /// Records that the file has bytes that are not at its OSTs.
    pub(super) fn record_unflushed(&self, file: Fid) -> Option<Recorded> {
        self.recorder.get()?.record(|| Record::Unflushed(file))
    }

    /// Passes garbled data to the hook that dumps it, if it `is_wanted`.
    pub(super) fn dump(&self, is_wanted: bool, garbled: impl FnOnce() -> super::Garbled) {
        if let Some(dump) = self.dump_garbled.get().filter(|_| is_wanted) {
            dump(garbled());
        }
    }
}

/// What keeps the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataTargetKind {
    /// An OST: extent locks.
    Ost,
    /// An MDT: the `DOM` bit of inodes.
    Mdt,
}

/// One OST, or an MDT that keeps data.
pub struct DataTarget {
    pub(super) kind: DataTargetKind,
    pub(super) shared: Arc<Shared>,
    pub(super) channel: Arc<dyn Channel>,
    locks: OnceLock<Arc<ClientNamespace>>,
    pub(super) grant: Mutex<Grant>,
    pub(super) limits: Mutex<NegotiatedLimits>,
    /// Beside the limits: every search for a lock asks for it.
    pub(super) needs_whole_pages: AtomicBool,
    pub(super) flush_queue: FlushQueue,
    objects: Mutex<Objects>,
    /// Objects of files that are gone; see [`super::gone`].
    pub(super) gone: Mutex<Vec<ResourceName>>,
    /// What operators set.
    pub settings: DataTargetSettings,
    io: IoCounts,
}

/// Objects in use, and the attributes of those not in use as their last user knew them.
#[derive(Default)]
struct Objects {
    in_use: HashMap<ResourceName, Weak<Object>>,
    /// Size and times under a lock that is still cached, so that the next user need not ask for
    /// them. An entry goes when any lock on its resource does: there are no more than locks.
    attributes_unused: HashMap<ResourceName, KnownAttributes>,
}

impl DataTarget {
    pub(super) fn new(
        kind: DataTargetKind,
        shared: Arc<Shared>,
        channel: Arc<dyn Channel>,
    ) -> Arc<Self> {
        Arc::new(Self {
            kind,
            shared,
            channel,
            locks: OnceLock::new(),
            // Nothing is promised before [`DataTarget::connected`].
            grant: Mutex::default(),
            limits: Mutex::default(),
            needs_whole_pages: AtomicBool::new(true),
            flush_queue: FlushQueue::default(),
            objects: Mutex::default(),
            gone: Mutex::default(),
            settings: DataTargetSettings::default(),
            io: IoCounts::default(),
        })
    }

    /// Attaches the namespace, which needs the target to be made.
    pub(super) fn attach(&self, locks: Arc<ClientNamespace>) {
        let _ = self.locks.set(locks);
    }

    /// The target's locks.
    ///
    /// # Panics
    /// Never: [`super::DataTargets::add`] attaches them before it hands the target out.
    pub(super) fn locks(&self) -> &Arc<ClientNamespace> {
        self.locks.get().expect("attached when the target was made")
    }

    /// The lock that covers `extent` of an object: at least that, in whole pages where the OST needs them.
    pub(super) fn policy(&self, extent: Extent) -> Policy {
        match self.kind {
            DataTargetKind::Ost if !self.needs_whole_pages() => Policy::extent(extent),
            DataTargetKind::Ost => {
                let (start, end) = widened(extent.start, extent.end.saturating_add(1));
                let end = if extent.end == Extent::EOF { extent.end } else { end - 1 };
                Policy::extent(Extent { start, end })
            }
            DataTargetKind::Mdt => Policy::bits(InodeBits::DOM),
        }
    }

    /// A group lock on all of an object.
    pub(super) fn group_policy(&self, gid: u64) -> Policy {
        match self.kind {
            DataTargetKind::Ost => Policy::Extent { extent: Extent::ALL, gid },
            DataTargetKind::Mdt => {
                Policy::InodeBits { bits: InodeBits::DOM, try_bits: InodeBits(0), gid }
            }
        }
    }

    /// Whether locks are asked for as wide as they are needed. The `DOM` bit covers all bytes anyway.
    ///
    /// # Errors
    /// `EOPNOTSUPP` of an OST that would let them grow nevertheless.
    pub(super) fn growth_flags(&self, locking: Locking) -> Result<LockFlags, Errno> {
        match (locking.is_exact, self.kind) {
            (false, _) | (true, DataTargetKind::Mdt) => Ok(LockFlags::NONE),
            (true, DataTargetKind::Ost) if self.limits().locks_ahead => Ok(LockFlags::NO_EXPANSION),
            (true, DataTargetKind::Ost) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// What it counts of its bulk RPCs.
    #[must_use]
    pub fn io(&self) -> &IoCounts {
        &self.io
    }

    /// Bytes that are kept in memory: dirty, on their way, or read ahead; and objects in use. Walks all
    /// objects in use.
    #[must_use]
    pub fn cached(&self) -> (u64, usize) {
        let objects: Vec<_> =
            self.objects.lock().in_use.values().filter_map(Weak::upgrade).collect();
        let bytes = |object: &Arc<Object>| {
            let state = object.state.lock();
            state.dirty.bytes()
                + state.writing.bytes()
                + state.through.bytes()
                + state.clean.bytes()
        };
        (objects.iter().map(bytes).sum(), objects.len())
    }

    /// Flushes all objects. What fails is reported by the file's next flush.
    pub(super) async fn flush_all(&self) {
        let all: Vec<Arc<Object>> =
            self.objects.lock().in_use.values().filter_map(Weak::upgrade).collect();
        for object in all {
            object.flush(Extent::ALL).await;
        }
    }

    /// Returns when all that the OST has is durable there: one RPC that names no object.
    pub(super) async fn sync_all(&self) -> Result<(), Errno> {
        let everything = Obdo { valid: Valid::ID | Valid::GROUP, ..Obdo::default() };
        let ost_body = OstBody { oa: everything };
        let call = Call::new(OstSync { ost_body, ..OstSync::default() });
        call::call::<OstSync>(&*self.channel, call).await.map(drop)
    }

    /// The object that is in use for this resource, made now if there is none, of what is known of it: never
    /// two at once, whose locks and dirty bytes would be separate.
    pub(super) fn object_or_new(
        &self,
        resource: ResourceName,
        make: impl FnOnce(Option<KnownAttributes>) -> Object,
    ) -> Arc<Object> {
        let mut objects = self.objects.lock();
        if let Some(object) = objects.in_use.get(&resource).and_then(Weak::upgrade) {
            return object;
        }
        let attributes_unused = objects.attributes_unused.remove(&resource);
        let attributes_unused =
            attributes_unused.filter(|known| self.covers_end(resource, known.size));
        let object = Arc::new(make(attributes_unused));
        objects.in_use.insert(resource, Arc::downgrade(&object));
        object
    }

    /// The object is not in use any more; `known` is what the OST has reported of it.
    pub(super) fn release_object(&self, resource: ResourceName, known: Option<KnownAttributes>) {
        let mut objects = self.objects.lock();
        if objects.in_use.get(&resource).is_none_or(|object| object.strong_count() > 0) {
            return;
        }
        objects.in_use.remove(&resource);
        if let Some(known) = known.filter(|known| self.covers_end(resource, known.size)) {
            objects.attributes_unused.insert(resource, known);
        }
    }

    /// An object in use that has other bytes than these, or another file's, is not what a layout says any
    /// more: the next caller gets a new one.
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
        self.objects.lock().in_use.remove(&resource);
        Ok(())
    }

    /// Whether locks of ours keep other clients from changing the size `size` of an object, and its times.
    pub(super) fn covers_end(&self, resource: ResourceName, size: u64) -> bool {
        self.locks().covers(resource, self.policy(end_of(size)), LockMode::Pr)
    }

    /// Notes what a lock that is about to be ours, and keeps the bytes of `extent` as they are, says of an object, in
    /// use or not.
    pub(super) fn learn(&self, resource: ResourceName, extent: Option<Extent>, value: &Bytes) {
        let mut objects = self.objects.lock();
        match objects.in_use.get(&resource).and_then(Weak::upgrade) {
            Some(object) => {
                drop(objects);
                object.learn(value, |size| {
                    extent.is_some_and(|extent| extent.contains(&end_of(size)))
                });
            }
            // Locks on the objects of an OST are asked for by objects in use alone.
            None if self.kind == DataTargetKind::Ost => {}
            None => {
                if let Some(known) = KnownAttributes::from_lvb(value) {
                    objects.attributes_unused.insert(resource, known);
                }
            }
        }
    }

    pub(super) fn object(&self, resource: ResourceName) -> Option<Arc<Object>> {
        self.objects.lock().in_use.get(&resource).and_then(Weak::upgrade)
    }

    /// The object in use, for a lock on it that is lost. What was kept of an object that is not in use is
    /// dropped.
    fn object_of_lost_lock(&self, resource: ResourceName) -> Option<Arc<Object>> {
        let mut objects = self.objects.lock();
        objects.attributes_unused.remove(&resource);
        objects.in_use.get(&resource).and_then(Weak::upgrade)
    }
}

/// What the locks of one OST cover, or the `DOM` bits of an MDT's: pages and attributes of objects. Objects hold the
/// OST, and it holds its locks: so these do not hold it.
pub(super) struct CoveredData(pub(super) Weak<DataTarget>);

/// What a lock has to cover so that no other client changes the size `size`.
fn end_of(size: u64) -> Extent {
    Extent { start: size, end: Extent::EOF }
}

fn extent_of(part: &Policy) -> Extent {
    match part {
        Policy::Extent { extent, .. } => *extent,
        _ => Extent::ALL,
    }
}

/// What a lock keeps other clients from changing: nothing under a group lock, whose other members may.
fn kept_by(policy: &Policy) -> Option<Extent> {
    (policy.gid() == 0).then(|| extent_of(policy))
}

impl CoveredData {
    fn drop_covered(&self, lost: LostLock, loss: LockLoss) -> BoxFuture<'static, ()> {
        let object = self.0.upgrade().and_then(|target| target.object_of_lost_lock(lost.resource));
        match object {
            Some(object) => object.drop_covered(extent_of(&lost.part), lost.mode, loss),
            None => Box::pin(std::future::ready(())),
        }
    }
}

impl CoveredCache for CoveredData {
    fn flush_and_invalidate(
        &self,
        _: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        let loss = if lost.discard { LockLoss::Discarded } else { LockLoss::Cancelled };
        self.drop_covered(lost, loss)
    }

    fn invalidate_evicted(
        &self,
        _: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        self.drop_covered(lost, LockLoss::Evicted)
    }

    fn learn(&self, resource: ResourceName, policy: &Policy, value: &Bytes) {
        if let Some(target) = self.0.upgrade() {
            target.learn(resource, kept_by(policy), value);
        }
    }

    fn is_dirty(&self, resource: ResourceName) -> bool {
        self.0.upgrade().is_some_and(|target| target.is_dirty(resource))
    }

    fn glimpse(&self, resource: ResourceName) -> Option<Bytes> {
        self.0.upgrade()?.object(resource).and_then(|object| object.lock_value())
    }
}
