//! Which MDTs a new directory's stripes go to, as its creator wishes (Lustre: `lod_ah_init`, `lod_prep_md_striped_create`).
//!
//! The first stripe lies beside the master, whose FID says where that is: clients choose it. The other MDTs follow in the order of
//! MDTs, from the master's on if the wish names it, else from one that is another one each time.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;

use sheen_layout::directory::{DirectoryWish, WishedStripes};
use sheen_rpc::ImportState;
use sheen_target::Target;
use sheen_types::limits::DIRECTORY_STRIPES_MAX;
use sheen_types::{Errno, MdtIndex};
use sheen_wire::lmv::LmvHash;

use super::{DirectorySettings, says_several};
use crate::Mdt;

/// The stripes of a new directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StripePlan {
    /// How names choose one, with flags.
    pub(crate) hash: LmvHash,
    /// The MDT of each: two or more.
    pub(crate) mdts: Vec<MdtIndex>,
}

/// The MDTs that there are.
pub(crate) struct Candidates<'a> {
    /// That of the master.
    pub(crate) own: MdtIndex,
    /// The other MDTs, in order.
    pub(crate) remote: &'a [MdtIndex],
    /// Of these, those that are there now.
    pub(crate) ready: &'a [MdtIndex],
    /// Goes up with each choice.
    pub(crate) turn: usize,
}

impl Mdt {
    /// What a wish for a new directory here comes to now. One of several stripes waits after a start until all MDTs are named that
    /// there are.
    ///
    /// # Errors
    /// Those of [`StripePlan::choose`]; [`Errno::EINPROGRESS`] if that takes long.
    pub(crate) async fn choose_stripes(
        &self,
        target: &Target,
        wish: &DirectoryWish,
    ) -> Result<Option<StripePlan>, Errno> {
        let mut remote = self.sequences.other_mdts();
        for mdt in remote.iter().filter(|_| says_several(wish)) {
            self.until_configured(*mdt).await?;
        }
        remote.extend(self.other_mdts.indexes().into_iter().map(MdtIndex));
        let remote: Vec<_> = remote.into_iter().collect();
        let is_ready = |mdt: &MdtIndex| {
            let states = [ImportState::Full, ImportState::Idle];
            self.partner(*mdt).is_ok_and(|channel| states.contains(&channel.state()))
        };
        let ready: Vec<_> = remote.iter().copied().filter(is_ready).collect();
        // One stripe is the directory itself, here.
        let ready = match says_several(wish) {
            true => self.with_space(target, ready).await,
            false => ready,
        };
        let turn = self.stripe_turn.fetch_add(1, Ordering::Relaxed);
        let own = MdtIndex(self.index);
        let candidates = Candidates { own, remote: &remote, ready: &ready, turn };
        StripePlan::choose(wish, &self.directory_settings(), &candidates)
    }
}

impl Mdt {
    /// How many stripes a wish comes to where all MDTs are there; one at least. Waits after a start until all are named that there are.
    ///
    /// # Errors
    /// [`Errno::EINPROGRESS`] if that takes long.
    pub(crate) async fn wished_count(&self, wish: &DirectoryWish) -> Result<u32, Errno> {
        let mut all = self.sequences.other_mdts();
        for mdt in all.iter().filter(|_| says_several(wish)) {
            self.until_configured(*mdt).await?;
        }
        all.extend(self.other_mdts.indexes().into_iter().map(MdtIndex));
        Ok(match wish.mdts.len() {
            0 => count_of(wish, &self.directory_settings(), all.len()),
            listed => u32::try_from(listed).unwrap_or(u32::MAX),
        })
    }
}

impl StripePlan {
    /// What a wish comes to; `None` for a directory without stripes. More stripes than there may be are cut, but not MDTs that
    /// are listed.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] for an MDT that is none, [`Errno::ENOSPC`] for a listed one that takes no stripes now, [`Errno::EINVAL`] and [`Errno::E2BIG`] for a list that says several stripes on
    /// one MDT and not that it means it, or more than there may be.
    pub(crate) fn choose(
        wish: &DirectoryWish,
        settings: &DirectorySettings,
        candidates: &Candidates<'_>,
    ) -> Result<Option<Self>, Errno> {
        let is_known = |mdt: &MdtIndex| *mdt == candidates.own || candidates.remote.contains(mdt);
        if !wish.first.iter().chain(&wish.mdts).all(is_known) {
            return Err(Errno::ENODEV);
        }
        let kind = match wish.hash.without_flags() {
            LmvHash::UNKNOWN => settings.hash(),
            kind => kind,
        };
        let flags = wish.hash.0 & (LmvHash::OVERSTRIPED | LmvHash::FIXED);
        let mdts = match wish.mdts.is_empty() {
            true => counted(wish, settings, candidates),
            false => listed(wish, settings, candidates)?,
        };
        let is_overstriped = (1..mdts.len()).any(|at| mdts[..at].contains(&mdts[at]));
        let flags = match is_overstriped {
            true => flags | LmvHash::OVERSTRIPED,
            false => flags & !LmvHash::OVERSTRIPED,
        };
        Ok((mdts.len() > 1).then_some(Self { hash: LmvHash(kind.0 | flags), mdts }))
    }
}

fn says_overstriped(wish: &DirectoryWish) -> bool {
    wish.hash.0 & LmvHash::OVERSTRIPED != 0
}

/// A wish of so many, or so many on each.
fn counted(
    wish: &DirectoryWish,
    settings: &DirectorySettings,
    candidates: &Candidates<'_>,
) -> Vec<MdtIndex> {
    let count = count_of(wish, settings, candidates.remote.len());
    let mut remote = candidates.ready.to_vec();
    match wish.first {
        // As Lustre goes on from it.
        Some(_) => {
            let behind = remote.partition_point(|mdt| *mdt < candidates.own);
            remote.rotate_left(behind);
        }
        None if remote.is_empty() => {}
        None => {
            let begin = candidates.turn % remote.len();
            remote.rotate_left(begin);
        }
    }
    let order: Vec<_> = std::iter::once(candidates.own).chain(remote).collect();
    // On one MDT alone stripes have no use.
    let count = if order.len() == 1 { 1 } else { count };
    let is_on_each_once = !says_overstriped(wish)
        && !matches!(wish.stripes, WishedStripes::OnEachMdt(on_each) if on_each.get() > 1);
    let count = if is_on_each_once { count.min(order.len() as u32) } else { count };
    order.iter().copied().cycle().take(count as usize).collect()
}

/// How many stripes a wish asks for, whichever MDTs are connected.
fn count_of(wish: &DirectoryWish, settings: &DirectorySettings, remote: usize) -> u32 {
    let all = u32::try_from(remote + 1).unwrap_or(u32::MAX);
    let on_each_max = settings.max_stripes_per_mdt();
    let (wanted, most) = match wish.stripes {
        WishedStripes::Unsaid => (1, 1),
        WishedStripes::Count(count) if says_overstriped(wish) => {
            (count.get(), all.saturating_mul(on_each_max))
        }
        WishedStripes::Count(count) => (count.get(), all),
        WishedStripes::OnEachMdt(on_each) => {
            let limit = NonZeroU32::new(settings.max_mdt_stripecount());
            let all_at_most = all.saturating_mul(on_each_max);
            (all.saturating_mul(on_each.get()), limit.map_or(all_at_most, NonZeroU32::get))
        }
    };
    wanted.min(most).min(DIRECTORY_STRIPES_MAX)
}

/// A wish that lists MDTs. The first one is the master's, wherever that was put.
fn listed(
    wish: &DirectoryWish,
    settings: &DirectorySettings,
    candidates: &Candidates<'_>,
) -> Result<Vec<MdtIndex>, Errno> {
    let mut mdts = wish.mdts.to_vec();
    let all = candidates.remote.len() + 1;
    let on_each_max = settings.max_stripes_per_mdt() as usize;
    let on_each = if says_overstriped(wish) { on_each_max } else { 1 };
    if mdts.len() > (all * on_each).min(DIRECTORY_STRIPES_MAX as usize) {
        return Err(Errno::E2BIG);
    }
    if let Some(first) = mdts.first_mut() {
        *first = candidates.own;
    }
    let of = |mdt: &MdtIndex| mdts.iter().filter(|it| *it == mdt).count();
    if mdts.iter().any(|mdt| of(mdt) > on_each) {
        return Err(Errno::EINVAL);
    }
    // Where one is away, or full, there is none in its place.
    let is_there = |mdt: &MdtIndex| *mdt == candidates.own || candidates.ready.contains(mdt);
    if !mdts.iter().all(is_there) {
        return Err(Errno::ENOSPC);
    }
    Ok(mdts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(count: i32, first: Option<u16>) -> DirectoryWish {
        let number = NonZeroU32::new(count.unsigned_abs()).unwrap();
        let stripes = match count > 0 {
            true => WishedStripes::Count(number),
            false => WishedStripes::OnEachMdt(number),
        };
        DirectoryWish { stripes, first: first.map(MdtIndex), ..DirectoryWish::default() }
    }

    fn over(wish: DirectoryWish) -> DirectoryWish {
        DirectoryWish { hash: LmvHash(wish.hash.0 | LmvHash::OVERSTRIPED), ..wish }
    }

    fn specific(mdts: &[u16]) -> DirectoryWish {
        let mdts: Box<[_]> = mdts.iter().copied().map(MdtIndex).collect();
        DirectoryWish { mdts, ..wish(2, Some(0)) }
    }

    /// Of four MDTs, the master on MDT0001.
    fn choose(wish: &DirectoryWish, turn: usize) -> Result<Vec<u16>, Errno> {
        choose_with(wish, turn, &DirectorySettings::default()).map(|(mdts, _)| mdts)
    }

    fn choose_with(
        wish: &DirectoryWish,
        turn: usize,
        settings: &DirectorySettings,
    ) -> Result<(Vec<u16>, LmvHash), Errno> {
        let remote = [0, 2, 3].map(MdtIndex);
        let candidates = Candidates { own: MdtIndex(1), remote: &remote, ready: &remote, turn };
        let plan = StripePlan::choose(wish, settings, &candidates)?;
        let none = || (Vec::new(), LmvHash::UNKNOWN);
        let of = |plan: StripePlan| (plan.mdts.iter().map(|mdt| mdt.0).collect(), plan.hash);
        Ok(plan.map_or_else(none, of))
    }

    #[test]
    fn stripes_begin_with_the_masters_mdt_and_go_round() {
        assert_eq!(choose(&wish(2, Some(1)), 7), Ok(vec![1, 2]));
        assert_eq!(choose(&wish(4, Some(1)), 7), Ok(vec![1, 2, 3, 0]));
        // More than there are are cut, as captured; -1 is all.
        assert_eq!(choose(&wish(9, Some(1)), 0), Ok(vec![1, 2, 3, 0]));
        assert_eq!(choose(&wish(-1, Some(1)), 0), Ok(vec![1, 2, 3, 0]));
        let rounds = [0, 1, 2, 3].map(|turn| choose(&wish(2, None), turn).unwrap());
        assert_eq!(rounds, [[1, 0], [1, 2], [1, 3], [1, 0]]);
        assert_eq!(choose(&wish(1, None), 0), Ok(vec![]), "a plain directory");
        assert_eq!(choose(&wish(2, Some(7)), 0), Err(Errno::ENODEV));
    }

    #[test]
    fn overstriped_ones_go_round_again_up_to_the_limits() {
        let settings = DirectorySettings::default();
        let (mdts, hash) = choose_with(&over(wish(6, Some(1))), 0, &settings).unwrap();
        assert_eq!(mdts, [1, 2, 3, 0, 1, 2]);
        assert_eq!(hash.0, LmvHash::FNV_1A_64.0 | LmvHash::OVERSTRIPED);
        assert_eq!(choose(&over(wish(-2, None)), 0).unwrap().len(), 8);
        assert_eq!(choose(&over(wish(99, None)), 0).unwrap().len(), 20);
        // It is not said of one that is not.
        let (mdts, hash) = choose_with(&over(wish(3, Some(1))), 0, &settings).unwrap();
        assert_eq!((mdts.len(), hash), (3, LmvHash::FNV_1A_64));
        let mut settings = DirectorySettings::default();
        settings.set_max_mdt_stripecount(3).unwrap();
        settings.set_max_stripes_per_mdt(2).unwrap();
        settings.set_hash(LmvHash::CRUSH).unwrap();
        let count = |wish: DirectoryWish| choose_with(&wish, 0, &settings).unwrap();
        assert_eq!(count(wish(-1, None)).0.len(), 3);
        assert_eq!(count(over(wish(-5, None))).0.len(), 3);
        assert_eq!(count(over(wish(99, None))).0.len(), 8);
        assert_eq!(count(wish(2, None)).1, LmvHash::CRUSH);
    }

    #[test]
    fn listed_mdts_are_those_and_no_more_than_may_be() {
        assert_eq!(choose(&specific(&[1, 3]), 0), Ok(vec![1, 3]));
        assert_eq!(choose(&specific(&[1, 9]), 0), Err(Errno::ENODEV));
        assert_eq!(choose(&specific(&[1, 1]), 0), Err(Errno::EINVAL));
        assert_eq!(choose(&specific(&[1, 3, 0, 2, 3]), 0), Err(Errno::E2BIG));
        assert_eq!(choose(&over(specific(&[1, 3, 1])), 0), Ok(vec![1, 3, 1]));
        assert_eq!(choose(&over(specific(&[3; 7])), 0), Err(Errno::EINVAL));
    }

    #[test]
    fn with_one_mdt_there_are_no_stripes() {
        let settings = DirectorySettings::default();
        let alone = Candidates { own: MdtIndex(0), remote: &[], ready: &[], turn: 0 };
        for wish in [wish(4, None), over(wish(4, None)), over(wish(-2, None))] {
            assert_eq!(StripePlan::choose(&wish, &settings, &alone), Ok(None));
        }
        // What is away gets none now.
        let remote = [2, 3].map(MdtIndex);
        let candidates =
            Candidates { own: MdtIndex(0), remote: &remote, ready: &remote[1..], turn: 0 };
        let plan = StripePlan::choose(&wish(3, None), &settings, &candidates).unwrap().unwrap();
        assert_eq!(plan.mdts, [0, 3].map(MdtIndex));
    }
}
