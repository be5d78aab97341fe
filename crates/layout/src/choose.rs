//! Which OSTs hold a file (Lustre's `lod_qos`): in turn while they are about equally full, else at
//! random, weighted with their free space.
//!
//! [`Balance`] holds what choices remember: whose turn it is, and how much was given to each OST
//! since its free space was last reported. A choice is an order in which to try OSTs; whether one
//! has objects ready is the caller's to find out. The random numbers are an argument. Costs a pass
//! over all OSTs, and with weights one more for each stripe.

use sheen_types::{Errno, HashMap};
use sheen_wire::lov::PoolName;

use crate::plan::{STRIPES_ALL, Striping};

/// One OST as a choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub ost: u16,
    /// Bytes that are free there; 0 if not known.
    pub free_bytes: u64,
    /// It takes new files now.
    pub is_usable: bool,
    /// Its operator says that its disks are slow for now.
    pub is_degraded: bool,
}

/// What there is to choose from.
#[derive(Clone, Copy, Debug)]
pub struct ChoiceInput<'a> {
    /// All OSTs in the order of their numbers.
    pub candidates: &'a [Candidate],
    /// Those of the requested pool, if there is such a pool.
    pub pool: Option<&'a [u16]>,
    /// Those that hold other parts of the file.
    pub used: &'a [u16],
    /// Stripes that the layout has room for.
    pub stripes_max: usize,
}

/// An order in which to try OSTs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Each OST once; in a list that a user gave, as often as there.
    pub order: Vec<u16>,
    /// The first so many are better than the rest: they hold nothing else of the file, and are not
    /// slow. They are used as often as they may be before another is.
    pub preferred: usize,
    /// Stripes that each may hold.
    pub per_ost: usize,
    /// Stripes to get.
    pub wanted: usize,
    /// With fewer than these there is no file.
    pub least: usize,
}

/// Parameters of the choice, as fractions of 256, as Lustre keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighting {
    /// How much less than the emptiest the fullest may have for turns (`qos_threshold_rr`); 256
    /// for turns always.
    pub threshold: u32,
    /// How much free space counts against what was given lately (`qos_prio_free`).
    pub free_space: u32,
}

impl Default for Weighting {
    /// 17 and 91 per cent, as Lustre has them.
    fn default() -> Self {
        Self { threshold: 17 * 256 / 100, free_space: 91 * 256 / 100 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct PoolCursor {
    next: usize,
    /// Moves with each round, where else the same OST would begin each file.
    shift: usize,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Balance {
    turns: HashMap<PoolName, PoolCursor>,
    /// What was given to an OST lately, in the units of weights.
    penalties: HashMap<u16, u64>,
}

impl Balance {
    /// Chooses for `striping`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a list that names an OST that does not exist, or a first OST that it
    /// does not name; [`Errno::ENOSPC`] if there are no OSTs; [`Errno::ERANGE`] if there is room for
    /// no stripe.
    pub fn choose(
        &mut self,
        striping: &Striping,
        input: &ChoiceInput<'_>,
        weighting: Weighting,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Choice, Errno> {
        if input.stripes_max == 0 {
            return Err(Errno::ERANGE);
        }
        if !striping.osts.is_empty() {
            return listed(input.candidates, striping);
        }
        let in_pool = |one: &&Candidate| input.pool.is_none_or(|pool| pool.contains(&one.ost));
        let mut osts: Vec<_> = input.candidates.iter().filter(in_pool).copied().collect();
        if osts.is_empty() {
            return Err(Errno::ENOSPC);
        }
        let wanted = count(striping, osts.len()).min(input.stripes_max);
        let per_ost = if striping.overstriped { wanted.div_ceil(osts.len()) } else { 1 };
        // An OST that was there when the layout was requested, and has gone, is not waited for.
        let first = striping.first;
        if let Some(at) = osts.iter().position(|one| Some(one.ost) == first) {
            osts.rotate_left(at);
            osts[1..].sort_by_key(|one| input.used.contains(&one.ost));
            let fresh = osts[1..].iter().filter(|one| !input.used.contains(&one.ost)).count();
            let order = numbers(&osts);
            return Ok(Choice { order, preferred: 1 + fresh, per_ost, wanted, least: wanted });
        }
        let (order, preferred) = match self.weights(&osts, weighting) {
            Some(weights) => self.by_weight(&osts, weights, wanted, weighting, random),
            None => self.in_turn(&osts, striping.pool, wanted, input.used),
        };
        Ok(Choice { order, preferred, per_ost, wanted, least: 1 })
    }

    /// Round robin: slow OSTs last, before them those that hold something of the file already; the
    /// rest keeps its turns.
    fn in_turn(
        &mut self,
        osts: &[Candidate],
        pool: PoolName,
        wanted: usize,
        used: &[u16],
    ) -> (Vec<u16>, usize) {
        let turn = self.turns.entry(pool).or_default();
        let start = (turn.next + turn.shift) % osts.len();
        turn.next += wanted;
        if turn.next >= osts.len() {
            turn.next %= osts.len();
            turn.shift += usize::from(wanted > 1 && osts.len() % wanted != 1);
        }
        let mut osts = osts.to_vec();
        osts.rotate_left(start);
        let rank = |one: &Candidate| (one.is_degraded, used.contains(&one.ost));
        osts.sort_by_key(rank);
        let preferred = osts.iter().take_while(|one| rank(one) == rank(&osts[0])).count();
        (numbers(&osts), preferred)
    }

    /// The weight of each OST; `None` if turns are as good.
    fn weights(&self, osts: &[Candidate], weighting: Weighting) -> Option<Vec<u64>> {
        let good = |one: &&Candidate| one.is_usable && !one.is_degraded && one.free_bytes > 0;
        let free = || osts.iter().filter(good).map(|one| one.free_bytes >> 8);
        let (most, least) = (free().max()?, free().min()?);
        let bound = most.saturating_mul(256u64.saturating_sub(weighting.threshold.into())) >> 8;
        if free().count() < 2 || weighting.threshold >= 256 || bound < least {
            return None;
        }
        let weight = |one: &Candidate| match good(&one) {
            true => (one.free_bytes >> 8).saturating_sub(self.penalty(one.ost)),
            false => 0,
        };
        Some(osts.iter().map(weight).collect())
    }

    fn penalty(&self, ost: u16) -> u64 {
        self.penalties.get(&ost).copied().unwrap_or_default()
    }

    /// Draws OSTs without putting them back, each with a probability in proportion to its weight;
    /// those without weight come last. With them how many were drawn.
    fn by_weight(
        &mut self,
        osts: &[Candidate],
        mut weights: Vec<u64>,
        wanted: usize,
        weighting: Weighting,
        random: &mut dyn FnMut() -> u64,
    ) -> (Vec<u16>, usize) {
        let mut order = Vec::with_capacity(osts.len());
        for _ in 0..osts.len() {
            let total: u64 = weights.iter().sum();
            if total == 0 {
                break;
            }
            let mut drawn = random() % total;
            let at = weights.iter().position(|weight| {
                let is_here = drawn < *weight;
                drawn = drawn.saturating_sub(*weight);
                is_here
            });
            let Some(at) = at else { break };
            weights[at] = 0;
            order.push(osts[at].ost);
        }
        let drawn = order.len();
        self.note_use(osts, &order[..wanted.min(drawn)], weighting);
        let rest: Vec<_> = osts.iter().filter(|one| !order.contains(&one.ost)).collect();
        order.extend(rest.iter().filter(|one| !one.is_degraded).map(|one| one.ost));
        order.extend(rest.iter().filter(|one| one.is_degraded).map(|one| one.ost));
        let preferred = if drawn > 0 { drawn } else { order.len() };
        (order, preferred)
    }

    /// What is given to an OST makes it less likely for a while: as long as other OSTs get their
    /// share.
    fn note_use(&mut self, osts: &[Candidate], used: &[u16], weighting: Weighting) {
        let share = u64::from(256u32.saturating_sub(weighting.free_space));
        let rivals = osts.len().saturating_sub(1).max(1) as u64;
        let per_object = |one: &Candidate| (((one.free_bytes >> 8) * share) >> 9) / rivals;
        for ost in used {
            for one in osts {
                let penalty = self.penalties.entry(one.ost).or_default();
                if one.ost == *ost {
                    *penalty = *penalty / 2 + per_object(one) * osts.len() as u64;
                }
                *penalty = penalty.saturating_sub(per_object(one));
            }
        }
    }
}

/// Exactly the OSTs listed, from the one that is to be first.
fn listed(candidates: &[Candidate], striping: &Striping) -> Result<Choice, Errno> {
    let mut order = striping.osts.clone();
    let is_known = |ost: &u16| candidates.iter().any(|one| one.ost == *ost);
    if !order.iter().all(is_known) {
        return Err(Errno::EINVAL);
    }
    if let Some(first) = striping.first {
        let at = order.iter().position(|ost| *ost == first).ok_or(Errno::EINVAL)?;
        order.rotate_left(at);
    }
    let wanted = order.len();
    Ok(Choice { order, preferred: wanted, per_ost: 1, wanted, least: wanted })
}

/// Stripes that are wanted with so many OSTs.
fn count(striping: &Striping, osts: usize) -> usize {
    let count = usize::from(striping.stripe_count).max(1);
    match (striping.overstriped, striping.stripes_per_ost()) {
        (true, Some(per_ost)) => osts * usize::from(per_ost),
        (true, None) => count,
        (false, _) if striping.stripe_count == STRIPES_ALL => osts,
        (false, _) => count.min(osts),
    }
}

fn numbers(osts: &[Candidate]) -> Vec<u16> {
    osts.iter().map(|one| one.ost).collect()
}

#[cfg(test)]
mod tests;
