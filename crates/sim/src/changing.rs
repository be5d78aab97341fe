//! Directories between two layouts, as the attributes of masters and stripes on the disks say; and the judge *spread*: where
//! all is quiet and every migration was ended, none is left, and what MDTs move by themselves has come to its end.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use sheen_layout::directory::{
    DirectoryLayout, DirectoryWish, Holder, LayoutChange, WishedStripes,
};
use sheen_store::Store;
use sheen_types::{Fid, TargetKind};
use sheen_wire::lmv::LmvEa;

use crate::run::Sim;

/// The stripes of a directory, as its MDT keeps them.
pub(crate) const STRIPES: &str = "trusted.lmv";
/// How long MDTs may take for names that they move by themselves, once no client works and all are there: some hundred names.
const SPREAD_WITHIN: Duration = Duration::from_secs(200);

/// A master or a stripe whose layout changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changing {
    /// The directory.
    pub(crate) fid: Fid,
    /// Why.
    pub(crate) change: LayoutChange,
    /// Whether it is what programs see.
    pub(crate) is_master: bool,
}

impl fmt::Display for Changing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.is_master { "master" } else { "stripe" };
        write!(out, "{:?} of {part} {}", self.change, self.fid)
    }
}

/// How a directory lies, by its attribute in a store.
pub(crate) fn layout_of(store: &dyn Store, fid: Fid) -> Option<DirectoryLayout> {
    let ea = store.xattr(fid, STRIPES).ok().flatten()?;
    DirectoryLayout::from_ea(&LmvEa::decode(&ea).ok()?).ok()
}

/// All of them, on all MDTs.
pub(crate) fn changing(sim: &Sim) -> Vec<Changing> {
    let mut found = Vec::new();
    for (_, disk) in sim.cluster.targets(TargetKind::Mdt) {
        let store = disk.store();
        found.extend(store.fids().into_iter().filter_map(|fid| {
            let layout = layout_of(&*store, fid)?;
            let is_master = matches!(layout.holder(), Holder::Master { .. });
            Some(Changing { fid, change: layout.change()?, is_master })
        }));
    }
    found
}

/// The wish by which a directory migrates, as its MDT logs it where a migration by another wish is refused; `None` where it does not.
/// It may have any of `fids`.
pub(crate) fn wish_of(sim: &Sim, fids: &[Fid]) -> Option<DirectoryWish> {
    let found = changing(sim).into_iter();
    let master = found
        .filter(|it| it.is_master && it.change == LayoutChange::Migration)
        .find(|it| fids.contains(&it.fid))?;
    let mut stores = sim.cluster.targets(TargetKind::Mdt).map(|(_, disk)| disk.store());
    let layout = stores.find_map(|store| layout_of(&*store, master.fid))?;
    let Holder::Master { mdt, .. } = layout.holder() else { return None };
    let (hash, count) = layout.wanted();
    let (count, mdts) = (NonZeroU32::new(count)?, u32::from(sim.options.mdts));
    let stripes = match NonZeroU32::new(count.get() / mdts) {
        Some(each) if count.get() > mdts => WishedStripes::OnEachMdt(each),
        _ => WishedStripes::Count(count),
    };
    let (first, hash) = (Some(*mdt), hash.without_flags());
    Some(DirectoryWish { stripes, first, hash, ..DirectoryWish::default() })
}

/// Waits until the MDTs have moved what they move by themselves.
///
/// # Errors
/// They have not.
pub(crate) async fn comes_to_an_end(sim: &Sim) -> Result<(), String> {
    let limit = sim.now() + SPREAD_WITHIN;
    while let Some(left) = changing(sim).into_iter().find(|it| it.change != LayoutChange::Migration)
    {
        if sim.now() > limit {
            return Err(format!("not ended within {} seconds: {left}", SPREAD_WITHIN.as_secs()));
        }
        sim.sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// That nothing is left, of any kind.
///
/// # Errors
/// What is.
pub(crate) fn nothing_is_left(sim: &Sim) -> Result<(), String> {
    let left: Vec<_> = changing(sim).iter().map(ToString::to_string).collect();
    match left.is_empty() {
        false => Err(format!("every command has ended, and there is still: {}", left.join(", "))),
        true => Ok(()),
    }
}
