//! Taking objects for files: from the OSTs that a choice names, in its order, until there are enough.
//!
//! Objects reserved in vain return to the precreated ones that they were taken from.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_io::World;
use sheen_layout::choose::{Choice, ChoiceInput};
use sheen_layout::plan::{KnownOsts, Plan, Striping};
use sheen_layout::stored::Stored;
use sheen_target::{Wait, while_waiting};
use sheen_types::futures::{before, race};
use sheen_types::{Errno, Fid, Instant};

use super::{Placement, PlacementOst, ReservedObjects};

/// How long a create waits for objects before it answers that there is no space, or, if an OST that may have some
/// is away, that its client is to ask again. While an OST recovers it waits on: that ends with the OST's recovery
/// window. It is bounded, for other operations wait for the directory meanwhile.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it looks whether an OST is back: one that was only disconnected announces nothing.
const LOOK: Duration = Duration::from_secs(1);
/// How long it waits for full OSTs from which objects are being removed. An OST that is full and cannot remove any, as
/// one that is read-only, delays it so long.
const FREES_PATIENCE: Duration = Duration::from_secs(5);
/// How soon it tries again where some OST can be used.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How often a file goes round the OSTs that work, where other OSTs were to hold several stripes
/// each and cannot.
const PASSES: usize = 3;

/// Objects by their OST and number.
type Objects = Vec<(Arc<PlacementOst>, u64)>;

/// What objects are taken for.
struct AllocationRequest {
    striping: Striping,
    /// Stripes that the layout has room for.
    room: usize,
    /// OSTs that hold other parts of the file.
    used: Vec<u16>,
    /// Until when it waits for full OSTs from which objects are being removed.
    frees_until: Instant,
}

impl Placement {
    /// Takes the objects that a file needs to be written up to byte `end` (the first behind); with
    /// `end` 0, those it begins with.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a list of OSTs that do not exist; [`Errno::ENOSPC`] if no OST can take
    /// a file, or a listed one cannot; [`Errno::EINPROGRESS`] if one could that is away; [`Errno::EFBIG`] if there are fewer stripes than a request for a
    /// first OST must get; [`Errno::ERANGE`] if the layout would be too long.
    pub(crate) async fn allocate(
        &self,
        world: &World,
        file: Fid,
        plan: &Plan,
        end: u64,
    ) -> Result<ReservedObjects, Errno> {
        let mut stored = Stored::new(file, plan);
        let filled = while_waiting(Wait::Objects, self.fill(world, &mut stored, end));
        let mut reserved = filled.await?;
        reserved.set_layout(stored.encode());
        Ok(reserved)
    }

    /// As [`Placement::allocate`], for a file that has a layout already.
    pub(crate) async fn extend(
        &self,
        world: &World,
        mut stored: Stored,
        end: u64,
    ) -> Result<ReservedObjects, Errno> {
        let filled = while_waiting(Wait::Objects, self.fill(world, &mut stored, end));
        let mut reserved = filled.await?;
        stored.changed();
        reserved.set_layout(stored.encode());
        Ok(reserved)
    }

    async fn fill(
        &self,
        world: &World,
        stored: &mut Stored,
        end: u64,
    ) -> Result<ReservedObjects, Errno> {
        let now = world.clock.now();
        let (deadline, frees_until) = (now + PATIENCE, now + FREES_PATIENCE);
        // Objects reserved for one part are returned if there are none for the next.
        let mut reserved = ReservedObjects::new(Vec::new(), Bytes::new());
        for part in stored.lacking(end) {
            let Some(striping) = stored.striping(part) else { continue };
            let (room, used) = (stored.stripes_max(part), stored.osts());
            let request = AllocationRequest { striping, room, used, frees_until };
            let objects = self.allocate_part(world, deadline, &request).await?;
            let named = |(ost, id): &(Arc<PlacementOst>, u64)| (ost.index, ost.object(*id));
            stored.place(part, &objects.iter().map(named).collect::<Vec<_>>());
            reserved.add(objects);
        }
        Ok(reserved)
    }

    async fn allocate_part(
        &self,
        world: &World,
        mut deadline: Instant,
        request: &AllocationRequest,
    ) -> Result<Objects, Errno> {
        let clock = &world.clock;
        loop {
            let filled = self.filled.notified();
            let objects = self.try_allocate(world, deadline, request).await?;
            if !objects.is_empty() {
                return Ok(objects);
            }
            let (now, osts) = (clock.now(), self.wanted(request));
            if osts.iter().any(|ost| ost.waits_for_recovery(now)) {
                deadline = now + PATIENCE;
            }
            let frees = self.free_space(now, request, &osts);
            if now >= deadline || !(frees || self.may_find_objects(now, &osts)) {
                // An OST that is away is no lack of space: clients ask again, as long as it takes.
                let is_away = osts.iter().any(|ost| ost.may_become_usable());
                return Err(if is_away { Errno::EINPROGRESS } else { Errno::ENOSPC });
            }
            // One that came back since it was tried is tried again soon. Not at once: one that could be used all
            // the time, and was not taken because the file wants other OSTs, too, has no news.
            let has_usable = osts.iter().any(|ost| ost.is_usable());
            let look = if has_usable { LOOK_AGAIN } else { LOOK };
            race(filled, clock.sleep_until(deadline.min(now + look))).await;
        }
    }

    /// The OSTs that may hold the file.
    fn wanted(&self, request: &AllocationRequest) -> Vec<Arc<PlacementOst>> {
        let listed = &request.striping.osts;
        let pools = Arc::clone(&self.pools.read());
        let pool = KnownOsts { osts: &[], pools: &pools }.pool(&request.striping.pool);
        let is_wanted = |ost: &&Arc<PlacementOst>| match listed.is_empty() {
            true => pool.is_none_or(|pool| pool.contains(&ost.index)),
            false => listed.contains(&ost.index),
        };
        self.all().iter().filter(is_wanted).cloned().collect()
    }

    /// Whether waiting may help. An MDT that has just started learns of its OSTs from the MGS after
    /// its first clients have come back: until then it knows none, which is no lack of space.
    fn may_find_objects(&self, now: Instant, osts: &[Arc<PlacementOst>]) -> bool {
        let first_asked = *self.first_asked.get_or_init(|| now);
        match osts.is_empty() {
            true => now < first_asked + PATIENCE,
            false => osts.iter().any(|ost| ost.is_usable() || ost.may_become_usable()),
        }
    }

    /// Whether some of these OSTs are full and may have space in a moment, for which the file waits (Lustre:
    /// `osp_precreate_reserve`).
    fn free_space(
        &self,
        now: Instant,
        request: &AllocationRequest,
        osts: &[Arc<PlacementOst>],
    ) -> bool {
        now < request.frees_until && osts.iter().any(|ost| ost.is_freeing_space(&*self.store, now))
    }

    /// Objects of one part; none if no OST has any now.
    async fn try_allocate(
        &self,
        world: &World,
        deadline: Instant,
        request: &AllocationRequest,
    ) -> Result<Objects, Errno> {
        if self.osts.read().is_empty() {
            return Ok(Vec::new());
        }
        let choice = self.choose(world, request)?;
        let is_listed = !request.striping.osts.is_empty();
        let reserved =
            ReservedObjects::new(self.take_all(world, deadline, &choice).await, Bytes::new());
        let now = world.clock.now();
        let comes_back = || {
            let osts = self.wanted(request);
            osts.iter().any(|ost| ost.waits_for_recovery(now))
                || self.free_space(now, request, &osts)
        };
        match reserved.count() {
            0 if !is_listed => Ok(Vec::new()),
            some if some >= choice.least => Ok(reserved.into_objects()),
            _ if comes_back() => Ok(Vec::new()),
            0 => Err(Errno::ENOSPC),
            _ if is_listed => Err(Errno::ENOSPC),
            _ => Err(Errno::EFBIG),
        }
    }

    fn choose(&self, world: &World, request: &AllocationRequest) -> Result<Choice, Errno> {
        // Those that may not be used do not count, unless the user says which: then there is no file.
        let is_listed = !request.striping.osts.is_empty();
        let osts = self.all();
        let osts = osts.iter().filter(|ost| is_listed || ost.is_active());
        let candidates: Vec<_> = osts.map(|ost| ost.candidate()).collect();
        let pools = Arc::clone(&self.pools.read());
        let pool = KnownOsts { osts: &[], pools: &pools }.pool(&request.striping.pool);
        let input = ChoiceInput {
            candidates: &candidates,
            pool,
            used: &request.used,
            stripes_max: request.room,
        };
        let settings = self.settings();
        let striping = settings.limited(request.striping.clone());
        let mut chance = || world.random.number();
        let mut balance = self.balance.lock();
        balance.choose(&striping, &input, settings.weighting, &mut chance)
    }

    /// Takes objects in the order of a choice; fewer than are wanted if OSTs have none.
    async fn take_all(&self, world: &World, deadline: Instant, choice: &Choice) -> Objects {
        let mut reserved = ReservedObjects::new(Vec::with_capacity(choice.wanted), Bytes::new());
        let (best, rest) = choice.order.split_at(choice.preferred.min(choice.order.len()));
        for _ in 0..choice.per_ost {
            self.take_round(world, deadline, best, choice.wanted, &mut reserved).await;
        }
        self.take_round(world, deadline, rest, choice.wanted, &mut reserved).await;
        let more = if choice.per_ost > 1 { choice.per_ost * PASSES } else { 0 };
        for _ in 0..more {
            let before = reserved.count();
            self.take_round(world, deadline, &choice.order, choice.wanted, &mut reserved).await;
            if reserved.count() == before {
                break;
            }
        }
        reserved.into_objects()
    }

    /// An object of each of these OSTs that has one, as long as more are wanted.
    async fn take_round(
        &self,
        world: &World,
        deadline: Instant,
        osts: &[u16],
        wanted: usize,
        reserved: &mut ReservedObjects,
    ) {
        for index in osts {
            if reserved.count() == wanted {
                return;
            }
            let Some(ost) = self.ost(*index) else { continue };
            if let Some(id) = self.take(world, deadline, &ost).await {
                reserved.add(vec![(ost, id)]);
            }
        }
    }

    /// An object of one OST; waits for one to be precreated while the OST can be used.
    async fn take(&self, world: &World, deadline: Instant, ost: &Arc<PlacementOst>) -> Option<u64> {
        while ost.is_usable() {
            let filled = self.filled.notified();
            if let Some(id) = ost.take() {
                return Some(id);
            }
            before(filled, world.clock.sleep_until(deadline)).await?;
        }
        None
    }
}
