//! Where the data of files lies (Lustre's LOD and OSP): which OSTs, which objects, and what is
//! still to be done there.
//!
//! Owns one [`PlacementOst`] per OST with its precreated objects, the operators' settings and the
//! named pools of OSTs. What a file shall look like and which OSTs are next is decided in
//! `sheen_layout`; taking an object is a counter under a short lock, and only where none is precreated makes it an
//! operation wait.

mod allocate;
mod on_mdt;
mod ost;
mod ost_updates;
mod reserved;
mod settings;
mod sizes;

pub use ost::OstView;
pub(crate) use ost::PlacementOst;
pub(crate) use ost::{last_used, put_used};
pub use ost_updates::OstUpdateView;
pub(crate) use ost_updates::{Owner, destroys};
pub(crate) use reserved::ReservedObjects;
pub use settings::LayoutSettings;
pub(crate) use sizes::FileOnOsts;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sheen_layout::choose::Balance;
use sheen_layout::plan::{Defaults, KnownOsts, Plan};
use sheen_layout::stored::{Stored, errno_of};
use sheen_rpc::Channel;
use sheen_store::{Store, StoreError, Transaction};
use sheen_types::limits::STRIPE_COUNT_MAX;
use sheen_types::{Errno, HashMap, Instant};
use sheen_wire::codec::Wire;
use sheen_wire::lov::{LovMdHeader, LovOstData, PoolName};
use sheen_wire::ost::OstId;
use tokio::sync::Notify;

/// How many objects of one OST files may have got in transactions that a crash took: minutes of creates at a
/// rate that no MDT has.
const LOST_MAX: u64 = 1 << 20;

/// Named sets of OSTs.
pub(crate) type Pools = BTreeMap<PoolName, Vec<u16>>;

/// Blocks of all OSTs together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockCounts {
    pub(crate) all: u64,
    pub(crate) free: u64,
    /// Those of them that users may have.
    pub(crate) available: u64,
}

/// See the module's documentation.
pub(crate) struct Placement {
    store: Arc<dyn Store>,
    /// In the order of their numbers.
    osts: RwLock<Arc<[Arc<PlacementOst>]>>,
    pools: RwLock<Arc<Pools>>,
    settings: RwLock<LayoutSettings>,
    on_mdt: on_mdt::OnMdt,
    /// Whose turn it is.
    balance: Mutex<Balance>,
    filled: Arc<Notify>,
    /// Wakes tasks that wait for new OSTs.
    added: Notify,
    /// When objects were first wanted.
    first_asked: OnceLock<Instant>,
    recovered: AtomicBool,
    /// Last ids used on OSTs that replayed requests named before the OST was added.
    early: Mutex<HashMap<u16, u64>>,
    /// Last ids used on OSTs as they were durable when we started.
    used_at_start: HashMap<u16, u64>,
    /// Bytes of the largest layout that was seen.
    largest: AtomicU32,
}

impl Placement {
    /// # Errors
    /// Those of the store: with no ids, replays of files that were made would be refused.
    pub(crate) fn new(store: Arc<dyn Store>, settings: LayoutSettings) -> Result<Self, StoreError> {
        let used_at_start = ost::last_used(&*store)?.into_iter().collect();
        Ok(Self {
            store,
            osts: RwLock::new(Arc::new([])),
            pools: RwLock::default(),
            settings: RwLock::new(settings),
            on_mdt: on_mdt::OnMdt::default(),
            balance: Mutex::default(),
            filled: Arc::new(Notify::new()),
            added: Notify::new(),
            first_asked: OnceLock::new(),
            recovered: AtomicBool::new(false),
            early: Mutex::default(),
            used_at_start,
            largest: AtomicU32::new(0),
        })
    }

    /// Adds an OST on which this MDT's objects lie in `sequence`, or gives a known one another channel.
    pub(crate) fn add(
        &self,
        index: u16,
        channel: Arc<dyn Channel>,
        sequence: u64,
    ) -> Result<Arc<PlacementOst>, StoreError> {
        if let Some(known) = self.ost(index) {
            known.replace_channel(channel);
            return Ok(known);
        }
        let filled = Arc::clone(&self.filled);
        let ost = Arc::new(PlacementOst::new(&*self.store, index, sequence, channel, filled)?);
        ost.set_space_age_max(self.settings().qos_maxage());
        if self.recovered.load(Ordering::Acquire) {
            ost.recovered();
        }
        let mut osts = self.osts.write();
        let mut list = osts.to_vec();
        list.push(Arc::clone(&ost));
        list.sort_by_key(|ost| ost.index);
        *osts = list.into();
        drop(osts);
        self.added.notify_one();
        Ok(ost)
    }

    /// Waits for a new OST; one that came since the last call counts.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }

    /// Sets whether an OST may be used.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] if there is none of that number.
    pub(crate) fn set_active(&self, index: u16, is_active: bool) -> Result<(), Errno> {
        self.ost(index).ok_or(Errno::ENODEV)?.set_active(is_active);
        Ok(())
    }

    /// Sets how many objects of an OST are created at a time.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] if there is none of that number, [`Errno::ERANGE`] for too few.
    pub(crate) fn set_create_count(&self, index: u16, count: u64) -> Result<(), Errno> {
        self.ost(index).ok_or(Errno::ENODEV)?.set_create_count(count)
    }

    /// Sets twice as many as those may become, or that there are none.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] if there is none of that number, [`Errno::ERANGE`] for too few or too many.
    pub(crate) fn set_max_create_count(&self, index: u16, count: u64) -> Result<(), Errno> {
        self.ost(index).ok_or(Errno::ENODEV)?.set_max_create_count(count)
    }

    pub(crate) fn all(&self) -> Arc<[Arc<PlacementOst>]> {
        Arc::clone(&self.osts.read())
    }

    fn ost(&self, index: u16) -> Option<Arc<PlacementOst>> {
        self.osts.read().iter().find(|ost| ost.index == index).cloned()
    }

    pub(crate) fn view(&self) -> Vec<OstView> {
        self.all().iter().map(|ost| ost.view()).collect()
    }

    /// The updates of an OST that are not done there.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] if there is none of that number, and those of the store.
    pub(crate) fn updates_of(&self, index: u16) -> Result<OstUpdateView, Errno> {
        let ost = self.ost(index).ok_or(Errno::ENODEV)?;
        ost.ost_updates.view(&*self.store).map_err(|error| error.errno())
    }

    /// Recovery has ended: objects whose use was not replayed may be removed.
    pub(crate) fn recovered(&self) {
        self.recovered.store(true, Ordering::Release);
        for ost in self.all().iter() {
            ost.recovered();
        }
    }

    /// What all OSTs have, in blocks of `block` bytes; `None` if no OST has answered.
    pub(crate) fn space(&self, block: u64) -> Option<BlockCounts> {
        let mut total: Option<BlockCounts> = None;
        let osts = self.all();
        for space in osts.iter().filter(|ost| ost.is_active()).filter_map(|ost| ost.space()) {
            let of = |blocks: u64| blocks.saturating_mul(u64::from(space.bsize)) / block;
            let total = total.get_or_insert_default();
            total.all += of(space.blocks);
            total.free += of(space.bfree);
            total.available += of(space.bavail);
        }
        total
    }

    /// Bytes of a layout over all OSTs, or of the largest seen if that is more: what clients should
    /// have room for.
    pub(crate) fn layout_bytes_max(&self) -> u32 {
        let count = self.osts.read().len().clamp(1, STRIPE_COUNT_MAX);
        let all = LovMdHeader::SIZE + PoolName::SIZE + count * LovOstData::SIZE;
        (all as u32).max(self.largest.load(Ordering::Relaxed))
    }

    /// Remembers that there is a layout of so many bytes.
    pub(crate) fn note_layout(&self, layout: &Bytes) {
        let bytes = layout.len() as u32;
        if self.largest.load(Ordering::Relaxed) < bytes {
            self.largest.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn settings(&self) -> LayoutSettings {
        *self.settings.read()
    }

    pub(crate) fn change_settings<T>(&self, change: impl FnOnce(&mut LayoutSettings) -> T) -> T {
        let mut settings = self.settings.write();
        let changed = change(&mut settings);
        self.on_mdt.set_most(settings.on_mdt);
        for ost in self.all().iter() {
            ost.set_space_age_max(settings.qos_maxage());
        }
        changed
    }

    /// Bytes of a file that may lie on the MDT, as far as its space was looked at.
    pub(crate) fn on_mdt_now(&self) -> u32 {
        self.on_mdt.limit_known(self.settings().on_mdt)
    }

    /// Free MiB of the MDT below which that is less than operators allow; 0 for never.
    pub(crate) fn on_mdt_threshold(&self) -> u64 {
        self.on_mdt.threshold()
    }

    /// Sets that; `wanted` is given the MiB of the MDT in all.
    ///
    /// # Errors
    /// Those of the store and of `wanted`.
    pub(crate) fn set_on_mdt_threshold(
        &self,
        wanted: impl FnOnce(u64) -> Result<u64, Errno>,
    ) -> Result<(), Errno> {
        self.on_mdt.set_threshold(&*self.store, self.settings().on_mdt, wanted)
    }

    pub(crate) fn set_pools(&self, pools: Pools) {
        *self.pools.write() = Arc::new(pools);
    }

    /// What a new file will look like: as its creator requests, or as it inherits. `defaults` are
    /// those of its directory and of the root, as stored. `now` is asked if the MDT's space counts.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a requested layout that names what does not exist, or that may not lie on the MDT
    /// and has no other place.
    pub(crate) fn plan(
        &self,
        now: impl FnOnce() -> Option<Instant>,
        requested: Option<Plan>,
        defaults: [Option<Plan>; 2],
        appends: bool,
    ) -> Result<Plan, Errno> {
        let settings = self.settings();
        let on_mdt = self.on_mdt.limit(&*self.store, settings.on_mdt, now);
        let (numbers, pools) = (self.numbers(), Arc::clone(&self.pools.read()));
        let known = KnownOsts { osts: &numbers, pools: &pools };
        let legal = |mut plan: Plan| {
            plan.check(&known).ok()?;
            plan.limit_on_mdt(on_mdt).ok().map(|()| plan)
        };
        let [parent, root] = defaults.map(|default| default.and_then(legal));
        let inherited = Plan::inherited(parent, root, &settings.defaults);
        // A file that asks for nothing in particular gets what it would have got without asking.
        let Some(mut requested) = requested.filter(|requested| !requested.is_empty()) else {
            return Ok(match appends {
                true => inherited.for_appending(&settings.appending, &settings.defaults),
                false => inherited,
            });
        };
        requested.check(&known)?;
        requested.limit_on_mdt(on_mdt).map_err(|_| Errno::EINVAL)?;
        Ok(requested.filled(&inherited, &settings.defaults, &known))
    }

    /// A default for a directory, made legal.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if it names what does not exist; [`Errno::EFBIG`] if it may not lie on the
    /// MDT and has no other place.
    pub(crate) fn default_plan(&self, requested: Plan, old: Option<&Plan>) -> Result<Plan, Errno> {
        let mut plan = requested.over(old);
        self.check(&plan)?;
        plan.limit_on_mdt(self.settings().on_mdt)?;
        Ok(plan)
    }

    /// Whether all that a plan names exists.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), Errno> {
        let (numbers, pools) = (self.numbers(), Arc::clone(&self.pools.read()));
        plan.check(&KnownOsts { osts: &numbers, pools: &pools })
    }

    pub(crate) fn defaults(&self) -> Defaults {
        self.settings().defaults
    }

    fn numbers(&self) -> Vec<u16> {
        self.all().iter().map(|ost| ost.index).collect()
    }

    /// The layout that a replayed request brings along: its objects are used. `before` is what is
    /// stored.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] or [`Errno::EOPNOTSUPP`] if it is none, has no place for data, or names objects that
    /// no file was ever given.
    pub(crate) fn restore(
        &self,
        layout: &Bytes,
        before: Option<&Stored>,
    ) -> Result<ReservedObjects, Errno> {
        let stored = Stored::decode(layout).map_err(|error| errno_of(&error))?;
        if !stored.has_objects() && stored.end_on_mdt().is_none() {
            return Err(Errno::EINVAL);
        }
        let added = before.map_or_else(|| stored.objects(), |before| before.added_by(&stored));
        if let Some((ost, object)) =
            added.iter().find(|(ost, object)| !self.may_have_used(*ost, *object))
        {
            tracing::error!(
                ost,
                ?object,
                "a replayed layout names an object that no file was ever given"
            );
            return Err(Errno::EINVAL);
        }
        let (mut objects, mut early) = (Vec::new(), Vec::new());
        for (index, object) in added {
            if let Some(ost) = self.ost(index) {
                ost.note_used(object.id());
                objects.push((ost, object.id()));
                continue;
            }
            let mut known = self.early.lock();
            let last = known.entry(index).or_default();
            *last = object.id().max(*last);
            early.push((index, *last));
        }
        Ok(ReservedObjects::replayed(objects, early, stored.encode()))
    }

    /// Whether a file may have got this object before we started. Believed without a bound, its id would be
    /// the last one for ever: all later objects have larger ones.
    fn may_have_used(&self, index: u16, object: OstId) -> bool {
        let used = self.used_at_start.get(&index).copied().unwrap_or(ost::FIRST_USED);
        let is_there = self.ost(index).is_none_or(|ost| ost.has_sequence(object.seq()));
        is_there && object.id() <= used.saturating_add(LOST_MAX)
    }

    /// Adds the destruction of a layout's objects.
    pub(crate) fn destroy_later(&self, transaction: &mut Transaction, layout: &Bytes) {
        self.destroy_objects_later(transaction, &objects_of(layout));
    }

    /// Adds the destruction of objects.
    pub(crate) fn destroy_objects_later(
        &self,
        transaction: &mut Transaction,
        objects: &[(u16, OstId)],
    ) {
        for (ost, object) in objects {
            ost_updates::destroy(transaction, *ost, *object);
            if let Some(ost) = self.ost(*ost) {
                ost.expect_updates();
            }
        }
    }

    /// Adds that a layout's objects get a new owner.
    pub(crate) fn set_owner_later(
        &self,
        transaction: &mut Transaction,
        layout: &Bytes,
        owner: Owner,
    ) {
        for (ost, object) in objects_of(layout) {
            ost_updates::set_owner(transaction, ost, object, owner);
        }
    }
}

/// The objects of a layout: OST and object. Nothing for a layout that has none.
pub(crate) fn objects_of(layout: &Bytes) -> Vec<(u16, OstId)> {
    Stored::decode(layout).map(|stored| stored.objects()).unwrap_or_default()
}

/// Reads a default that is stored on a directory; `None` if it is none.
pub(crate) fn default_of(bytes: &Bytes) -> Option<Plan> {
    Plan::parse(bytes).ok()
}

#[cfg(test)]
mod tests {
    use sheen_store_mem::{Errors, Flaky, StoreMem};
    use sheen_target::testing::TestWorld;

    use super::*;

    fn load(store: Arc<dyn Store>) -> Result<Placement, StoreError> {
        Placement::new(store, LayoutSettings::new(1 << 20, 1))
    }

    #[test]
    fn what_was_used_is_known_at_the_start_or_there_is_none() {
        let store = Arc::new(StoreMem::default());
        let mut transaction = Transaction::new();
        put_used(&mut transaction, 3, 900_000);
        store.apply(transaction).expect("applied");
        let errors = Arc::new(Mutex::new(Errors { reads: 3, changes: 0 }));
        let random = TestWorld::new(63).world().random;
        let flaky = Arc::new(Flaky { store, random, errors });
        let starts = (0..100).map(|_| load(Arc::clone(&flaky) as Arc<dyn Store>));
        let (started, failed): (Vec<_>, Vec<_>) = starts.partition(Result::is_ok);
        assert!(started.len() > 10 && failed.len() > 10, "{} started", started.len());
        for placement in started.into_iter().flatten() {
            assert_eq!(placement.used_at_start.get(&3), Some(&900_000));
        }
    }

    #[test]
    fn a_record_that_is_none_stops_the_start_and_gives_no_object_twice() {
        let store = Arc::new(StoreMem::default());
        let mut transaction = Transaction::new();
        transaction.put(ost::LAST_USED, Bytes::from_static(&[0, 3]), Bytes::from_static(b"bad"));
        store.apply(transaction).expect("applied");
        let started = load(Arc::clone(&store) as Arc<dyn Store>);
        assert!(matches!(started, Err(StoreError::Corrupt(_))));
    }
}
