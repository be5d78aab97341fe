//! Where the data of files lies (Lustre's LOD and OSP): which OSTs, which objects, and what is
//! still to be done there.
//!
//! Owns one [`Ost`] per OST with its pool of objects created ahead. Taking an object is a counter
//! under a short lock; only an empty pool makes an operation wait. Files go round robin over the
//! OSTs that are connected and have space.

mod chores;
mod ost;
mod pattern;
mod race;

pub(crate) use chores::{Owner, destroys};
pub(crate) use ost::Ost;
pub use ost::OstView;
pub(crate) use ost::last_used;
pub(crate) use pattern::{Pattern, objects_of};

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sheen_io::Clock;
use sheen_rpc::Channel;
use sheen_store::{Store, StoreError, Transaction};
use sheen_types::limits::STRIPE_COUNT_MAX;
use sheen_types::{Errno, Fid, HashMap, Instant};
use sheen_wire::codec::Wire;
use sheen_wire::fld::SeqRangeFlags;
use sheen_wire::lov::{LovEa, LovMagic, LovMdHeader, LovOstData, PoolName};
use tokio::sync::Notify;

use crate::sequences::Sequences;

/// How long a create waits for objects before it answers that there is no space.
const PATIENCE: Duration = Duration::from_secs(20);

/// See the module's documentation.
pub(crate) struct Placement {
    store: Arc<dyn Store>,
    /// In the order of their numbers.
    osts: RwLock<Arc<[Arc<Ost>]>>,
    /// Where the next file starts.
    turn: AtomicUsize,
    filled: Arc<Notify>,
    /// When objects were first wanted.
    first_asked: OnceLock<Instant>,
    recovered: AtomicBool,
    /// Last ids used on OSTs that replayed requests named before the OST was added.
    early: Mutex<HashMap<u16, u64>>,
}

/// The objects of a new file, not yet recorded.
pub(crate) struct Taken {
    objects: Vec<(Arc<Ost>, u64)>,
    /// On OSTs that are not known yet.
    early: Vec<(u16, u64)>,
    layout: Bytes,
}

impl Taken {
    /// The layout's bytes.
    pub(crate) fn layout(&self) -> &Bytes {
        &self.layout
    }

    /// Adds that the objects are used. Called in the order of transactions.
    pub(crate) fn record(&self, transaction: &mut Transaction) {
        for (ost, id) in &self.objects {
            ost.record_used(transaction, *id);
        }
        for (index, id) in &self.early {
            ost::put_used(transaction, *index, *id);
        }
    }
}

impl Placement {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            osts: RwLock::new(Arc::new([])),
            turn: AtomicUsize::new(0),
            filled: Arc::new(Notify::new()),
            first_asked: OnceLock::new(),
            recovered: AtomicBool::new(false),
            early: Mutex::default(),
        }
    }

    /// Adds an OST, or gives a known one another channel.
    pub(crate) fn add(
        &self,
        index: u16,
        channel: Arc<dyn Channel>,
        sequences: &Sequences,
    ) -> Result<Arc<Ost>, StoreError> {
        if let Some(known) = self.ost(index) {
            known.replace_channel(channel);
            return Ok(known);
        }
        let range = sequences.of(u32::from(index), SeqRangeFlags::OST)?;
        let filled = Arc::clone(&self.filled);
        let ost = Arc::new(Ost::new(&*self.store, index, range.start + 1, channel, filled)?);
        if self.recovered.load(Ordering::Acquire) {
            ost.recovered();
        }
        let mut osts = self.osts.write();
        let mut list = osts.to_vec();
        list.push(Arc::clone(&ost));
        list.sort_by_key(|ost| ost.index);
        *osts = list.into();
        Ok(ost)
    }

    pub(crate) fn all(&self) -> Arc<[Arc<Ost>]> {
        Arc::clone(&self.osts.read())
    }

    fn ost(&self, index: u16) -> Option<Arc<Ost>> {
        self.osts.read().iter().find(|ost| ost.index == index).cloned()
    }

    pub(crate) fn view(&self) -> Vec<OstView> {
        self.all().iter().map(|ost| ost.view()).collect()
    }

    /// Recovery has ended: objects that nobody replayed a use of may be removed.
    pub(crate) fn recovered(&self) {
        self.recovered.store(true, Ordering::Release);
        for ost in self.all().iter() {
            ost.recovered();
        }
    }

    /// Blocks, free blocks and available blocks of all OSTs, of `block` bytes each; `None` if no
    /// OST has told.
    pub(crate) fn space(&self, block: u64) -> Option<(u64, u64, u64)> {
        let mut total = None;
        for space in self.all().iter().filter_map(|ost| ost.space()) {
            let of = |blocks: u64| blocks.saturating_mul(u64::from(space.bsize)) / block;
            let (blocks, free, available) = total.unwrap_or((0, 0, 0));
            total = Some((
                blocks + of(space.blocks),
                free + of(space.bfree),
                available + of(space.bavail),
            ));
        }
        total
    }

    /// Bytes of a layout over all OSTs.
    pub(crate) fn layout_bytes_max(&self) -> u32 {
        let count = self.osts.read().len().clamp(1, STRIPE_COUNT_MAX);
        (LovMdHeader::SIZE + PoolName::SIZE + count * LovOstData::SIZE) as u32
    }

    /// Takes objects for a file. A pattern's count of 0 is 1; more than there are OSTs is all.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an OST that does not exist, [`Errno::ENOSPC`] if no OST can take a
    /// file, or a listed one cannot.
    pub(crate) async fn allocate(
        &self,
        clock: &Arc<dyn Clock>,
        file: Fid,
        pattern: &Pattern,
    ) -> Result<Taken, Errno> {
        let deadline = clock.now() + PATIENCE;
        loop {
            let filled = self.filled.notified();
            let objects = self.try_allocate(clock, deadline, pattern).await?;
            if !objects.is_empty() {
                let named = |(ost, id): &(Arc<Ost>, u64)| (ost.index, ost.object(*id));
                let named: Vec<_> = objects.iter().map(named).collect();
                let layout = pattern.with_objects(file, &named);
                return Ok(Taken { objects, early: Vec::new(), layout });
            }
            // One that came back since it was tried is tried again.
            if self.all().iter().any(|ost| ost.is_usable()) && clock.now() < deadline {
                continue;
            }
            if !self.has_hope(clock) || !race::race(filled, clock.sleep_until(deadline)).await {
                return Err(Errno::ENOSPC);
            }
        }
    }

    /// Whether waiting may help. An MDT that has just started learns of its OSTs from the MGS after
    /// its first clients have come back: until then it knows none, which is no lack of space.
    fn has_hope(&self, clock: &Arc<dyn Clock>) -> bool {
        let now = clock.now();
        let first_asked = *self.first_asked.get_or_init(|| now);
        let osts = self.all();
        match osts.is_empty() {
            true => now < first_asked + PATIENCE,
            false => osts.iter().any(|ost| ost.may_become_usable()),
        }
    }

    async fn try_allocate(
        &self,
        clock: &Arc<dyn Clock>,
        deadline: Instant,
        pattern: &Pattern,
    ) -> Result<Vec<(Arc<Ost>, u64)>, Errno> {
        let osts = self.all();
        let (order, wanted) = self.order(&osts, pattern)?;
        let mut objects = Vec::with_capacity(wanted);
        for ost in order {
            if objects.len() == wanted {
                break;
            }
            if let Some(id) = self.take(clock, deadline, &ost).await {
                objects.push((ost, id));
            } else if !pattern.osts.is_empty() {
                return Err(Errno::ENOSPC);
            }
        }
        Ok(objects)
    }

    /// Which OSTs to try in which order, and how many of them are wanted.
    fn order(&self, osts: &[Arc<Ost>], pattern: &Pattern) -> Result<(Vec<Arc<Ost>>, usize), Errno> {
        if !pattern.osts.is_empty() {
            let listed = pattern.osts.iter().map(|index| self.ost(*index).ok_or(Errno::EINVAL));
            let listed = listed.collect::<Result<Vec<_>, _>>()?;
            let wanted = listed.len();
            return Ok((listed, wanted));
        }
        let wanted = match pattern.stripe_count {
            pattern::ALL => osts.len(),
            count => usize::from(count).max(1).min(osts.len()),
        };
        let start = match pattern.first {
            Some(first) => osts.iter().position(|ost| ost.index == first).ok_or(Errno::EINVAL)?,
            None => self.turn.fetch_add(wanted, Ordering::Relaxed) % osts.len().max(1),
        };
        let order = (0..osts.len()).map(|step| Arc::clone(&osts[(start + step) % osts.len()]));
        let mut order: Vec<_> = order.collect();
        if pattern.first.is_none() {
            // Slow ones last; the others keep their turns.
            order.sort_by_key(|ost| ost.is_degraded());
        }
        Ok((order, wanted))
    }

    /// An object of one OST; waits for its pool while the OST can be used.
    async fn take(&self, clock: &Arc<dyn Clock>, deadline: Instant, ost: &Arc<Ost>) -> Option<u64> {
        while ost.is_usable() {
            let filled = self.filled.notified();
            if let Some(id) = ost.take() {
                return Some(id);
            }
            if !race::race(filled, clock.sleep_until(deadline)).await {
                return None;
            }
        }
        None
    }

    /// The layout that a replayed create brings along: its objects are used.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if it is none, or has no objects.
    pub(crate) fn restore(&self, layout: &Bytes) -> Result<Taken, Errno> {
        let Ok(LovEa::Plain(mut plain)) = LovEa::decode(layout) else { return Err(Errno::EINVAL) };
        // The client marks a layout that has its objects already; the mark is not stored.
        plain.header.magic.0 &= !LovMagic::DEFINED;
        let layout = &LovEa::Plain(plain).encode();
        let (mut objects, mut early) = (Vec::new(), Vec::new());
        for (index, object) in objects_of(layout) {
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
        match objects.is_empty() && early.is_empty() {
            true => Err(Errno::EINVAL),
            false => Ok(Taken { objects, early, layout: layout.clone() }),
        }
    }

    /// Adds the destruction of a layout's objects.
    pub(crate) fn destroy_later(&self, transaction: &mut Transaction, layout: &Bytes) {
        for (ost, object) in objects_of(layout) {
            chores::destroy(transaction, ost, object);
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
            chores::set_owner(transaction, ost, object, owner);
        }
    }
}
