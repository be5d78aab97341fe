//! What a wish for a directory that is there comes to: a split or a merge.

use std::collections::BTreeMap;

use sheen_layout::directory::{DirectoryLayout, DirectoryWish, Holder, WishedStripes};
use sheen_rpc::ImportState;
use sheen_target::Target;
use sheen_types::{Errno, Fid, MdtIndex};
use sheen_wire::lmv::LmvHash;

use crate::Mdt;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RestripePlan {
    /// Stripes more, one on each of these MDTs.
    Split {
        /// How names choose one from then on, with flags.
        hash: LmvHash,
        /// In order.
        added: Vec<MdtIndex>,
    },
    /// These first ones of its stripes alone.
    Merge {
        /// How names choose one from then on, with flags.
        hash: LmvHash,
        /// How many.
        count: u32,
    },
}

/// What there is to choose from.
pub(crate) struct Choices<'a> {
    /// `None` of a directory without stripes.
    pub(crate) layout: Option<&'a DirectoryLayout>,
    /// The MDTs of its stripes; that of a directory without any.
    pub(crate) stripes: &'a [MdtIndex],
    /// How many MDTs there are.
    pub(crate) mdts: u32,
    /// Those that take stripes now, in order.
    pub(crate) ready: &'a [MdtIndex],
    /// The hash where none is wished.
    pub(crate) hash: LmvHash,
    /// The most stripes on one MDT.
    pub(crate) max_per_mdt: u32,
}

impl RestripePlan {
    /// What a wish comes to.
    ///
    /// # Errors
    /// [`Errno::EALREADY`] if the directory is as it is wished, [`Errno::EBUSY`] if it is being changed, [`Errno::E2BIG`] for more
    /// stripes than MDTs without overstriping, [`Errno::EINVAL`] if there may be no more, [`Errno::ENOSPC`] if no MDT takes one now.
    pub(crate) fn choose(wish: &DirectoryWish, choices: &Choices<'_>) -> Result<Self, Errno> {
        let count = match choices.layout {
            Some(layout) if layout.change().is_some() => return Err(Errno::EBUSY),
            Some(layout) => layout.stripe_count().get(),
            None => 0,
        };
        let is_over = wish.hash.0 & LmvHash::OVERSTRIPED != 0;
        let per_mdt = if is_over { choices.max_per_mdt } else { 1 };
        let most = choices.mdts.saturating_mul(per_mdt);
        let wanted = match wish.stripes {
            WishedStripes::Unsaid => 1,
            WishedStripes::Count(wanted) if !is_over && wanted.get() > most.max(count) => {
                return Err(Errno::E2BIG);
            }
            WishedStripes::Count(wanted) => wanted.get(),
            WishedStripes::OnEachMdt(each) => {
                choices.mdts.saturating_mul(each.get().min(per_mdt)).max(count)
            }
        };
        let named = wish.hash.is_known();
        let is_same = |layout: &DirectoryLayout| {
            !named || layout.hash().without_flags() == wish.hash.without_flags()
        };
        match choices.layout {
            None if wanted < 2 => Err(Errno::EALREADY),
            Some(layout) if wanted == count && is_same(layout) => Err(Errno::EALREADY),
            Some(layout) if wanted <= count => {
                let of = if named { wish.hash } else { layout.hash() };
                let hash = LmvHash(of.without_flags().0 | LmvHash::FIXED);
                Ok(Self::Merge { hash, count: wanted })
            }
            _ => Self::split(wish, choices, (wanted.min(most), per_mdt)),
        }
    }

    fn split(
        wish: &DirectoryWish,
        choices: &Choices<'_>,
        (wanted, per_mdt): (u32, u32),
    ) -> Result<Self, Errno> {
        let there = u32::try_from(choices.stripes.len()).unwrap_or(u32::MAX);
        if wanted <= there {
            return Err(Errno::EINVAL);
        }
        let mut used: BTreeMap<MdtIndex, u32> = choices.ready.iter().map(|mdt| (*mdt, 0)).collect();
        for mdt in choices.stripes {
            *used.entry(*mdt).or_default() += 1;
        }
        let mut added = Vec::new();
        for _ in there..wanted {
            // The one with the fewest, the next in order behind the last one.
            let last = added.last().or(choices.stripes.last()).copied().unwrap_or_default();
            let least = choices.ready.iter().min_by_key(|mdt| (used[*mdt], **mdt <= last, **mdt));
            let Some(mdt) = least.filter(|mdt| used[*mdt] < per_mdt) else { break };
            *used.entry(*mdt).or_default() += 1;
            added.push(*mdt);
        }
        if added.is_empty() {
            return Err(Errno::ENOSPC);
        }
        let mut hash = match wish.hash.is_known() {
            true => LmvHash(wish.hash.without_flags().0 | LmvHash::FIXED),
            false => choices.hash,
        };
        if used.values().any(|stripes| *stripes > 1) {
            hash.0 |= LmvHash::OVERSTRIPED;
        }
        Ok(Self::Split { hash, added })
    }
}

impl Mdt {
    /// What a wish for a directory here comes to now.
    ///
    /// # Errors
    /// Those of [`RestripePlan::choose`], of [`Mdt::until_configured`], and of MDT0000, which may have to be asked.
    pub(crate) async fn plan_restripe(
        &self,
        target: &Target,
        layout: Option<&DirectoryLayout>,
        wish: &DirectoryWish,
    ) -> Result<RestripePlan, Errno> {
        let mut remote = self.sequences.other_mdts();
        for mdt in &remote {
            self.until_configured(*mdt).await?;
        }
        remote.extend(self.other_mdts.indexes().into_iter().map(MdtIndex));
        let is_ready = |mdt: &MdtIndex| {
            let states = [ImportState::Full, ImportState::Idle];
            self.partner(*mdt).is_ok_and(|channel| states.contains(&channel.state()))
        };
        let there = remote.iter().copied().filter(is_ready).collect();
        let mut ready = self.with_space(target, there).await;
        let own = MdtIndex(self.index);
        ready.push(own);
        ready.sort_unstable();
        let mut stripes = Vec::new();
        for fid in fids_of(layout) {
            stripes.push(if fid.is_of_mdt() { self.mdt_of(target, fid).await? } else { own });
        }
        if layout.is_none() {
            stripes.push(own);
        }
        let settings = self.directory_settings();
        let choices = Choices {
            layout,
            stripes: &stripes,
            mdts: u32::try_from(remote.len()).unwrap_or(u32::MAX).saturating_add(1),
            ready: &ready,
            hash: settings.hash(),
            max_per_mdt: settings.max_stripes_per_mdt(),
        };
        RestripePlan::choose(wish, &choices)
    }
}

fn fids_of(layout: Option<&DirectoryLayout>) -> Vec<Fid> {
    match layout.map(DirectoryLayout::holder) {
        Some(Holder::Master { stripes, .. }) => stripes.to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const FNV: LmvHash = LmvHash::FNV_1A_64;

    fn wish(count: i32) -> DirectoryWish {
        let number = NonZeroU32::new(count.unsigned_abs()).unwrap();
        let stripes = match count > 0 {
            true => WishedStripes::Count(number),
            false => WishedStripes::OnEachMdt(number),
        };
        DirectoryWish { stripes, ..DirectoryWish::default() }
    }

    fn layout(stripes: u32) -> Option<DirectoryLayout> {
        let fids = (1..=stripes).map(|oid| Fid::new(0x2_0000_0400, oid)).collect::<Vec<_>>();
        (stripes > 0).then(|| DirectoryLayout::new(MdtIndex(0), FNV, fids).unwrap())
    }

    /// Of four MDTs, a directory with stripes on the first ones, or one without stripes on MDT0001.
    fn choose(stripes: u32, wish: &DirectoryWish) -> Result<RestripePlan, Errno> {
        let of: Vec<_> = match stripes {
            0 => vec![MdtIndex(1)],
            _ => (0..stripes as u16).map(MdtIndex).collect(),
        };
        let ready = [0, 1, 2, 3].map(MdtIndex);
        let layout = layout(stripes);
        RestripePlan::choose(
            wish,
            &Choices {
                layout: layout.as_ref(),
                stripes: &of,
                mdts: 4,
                ready: &ready,
                hash: FNV,
                max_per_mdt: 2,
            },
        )
    }

    fn split(hash: u32, added: &[u16]) -> Result<RestripePlan, Errno> {
        let added = added.iter().copied().map(MdtIndex).collect();
        Ok(RestripePlan::Split { hash: LmvHash(hash), added })
    }

    fn merge(hash: u32, count: u32) -> Result<RestripePlan, Errno> {
        Ok(RestripePlan::Merge { hash: LmvHash(hash), count })
    }

    #[test]
    fn more_stripes_are_a_split_and_fewer_a_merge() {
        assert_eq!(choose(0, &wish(2)), split(FNV.0, &[2]));
        assert_eq!(choose(0, &wish(4)), split(FNV.0, &[2, 3, 0]));
        assert_eq!(choose(2, &wish(3)), split(FNV.0, &[2]));
        assert_eq!(choose(2, &wish(-1)), split(FNV.0, &[2, 3]));
        assert_eq!(choose(3, &wish(1)), merge(FNV.0 | LmvHash::FIXED, 1));
        let crush = |count| DirectoryWish { hash: LmvHash::CRUSH, ..wish(count) };
        assert_eq!(choose(2, &crush(3)), split(LmvHash::CRUSH.0 | LmvHash::FIXED, &[2]));
        assert_eq!(choose(2, &crush(2)), merge(LmvHash::CRUSH.0 | LmvHash::FIXED, 2));
    }

    #[test]
    fn what_is_as_wished_or_cannot_be_is_refused() {
        assert_eq!(choose(0, &wish(1)), Err(Errno::EALREADY));
        assert_eq!(choose(2, &wish(2)), Err(Errno::EALREADY));
        assert_eq!(choose(4, &wish(-1)), Err(Errno::EALREADY));
        assert_eq!(choose(2, &wish(5)), Err(Errno::E2BIG));
        let over = DirectoryWish { hash: LmvHash(LmvHash::OVERSTRIPED), ..wish(99) };
        let hash = FNV.0 | LmvHash::OVERSTRIPED;
        assert_eq!(choose(2, &over), split(hash, &[2, 3, 0, 1, 2, 3]));
        let changing = layout(2).unwrap().merge_to(FNV, 1).unwrap();
        let (of, ready) = ([0, 1].map(MdtIndex), [0, 1, 2].map(MdtIndex));
        let choices = Choices {
            layout: Some(&changing),
            stripes: &of,
            mdts: 3,
            ready: &ready,
            hash: FNV,
            max_per_mdt: 5,
        };
        assert_eq!(RestripePlan::choose(&wish(3), &choices), Err(Errno::EBUSY));
        let full = Choices { layout: None, stripes: &of[..1], ready: &ready[..1], ..choices };
        assert_eq!(RestripePlan::choose(&wish(2), &full), Err(Errno::ENOSPC));
    }
}
