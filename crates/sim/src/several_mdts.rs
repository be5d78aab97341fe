//! What fails where there are several MDTs, and what must hold then (docs/design/distributed-changes.md, judges D, R and X).
//!
//! - *Cut*: whatever is durable of all MDTs at a moment is sound, once what records say is redone.
//! - *Records*: where all is quiet no record of a change is left.
//! - *Exclusions*: nor is anything excluded.

use std::sync::Arc;
use std::time::Duration;

use sheen_assembly::Role;
use sheen_layout::directory::LayoutChange;
use sheen_mds::{MdtAtRest, check_all, redo_offline};
use sheen_store::{Store, StoreError};
use sheen_store_mem::StoreMem;
use sheen_types::futures::all;
use sheen_types::{Fid, MdtIndex, TargetKind};

use crate::changing;
use crate::faults::{self, CUT_MAX, DOWN_MAX, Ending};
use crate::run::Sim;

/// How long after all work records may be kept: a round of completion is every 5 s, and each MDT says with its answers how
/// far it is durable.
const COMPLETE_WITHIN: Duration = Duration::from_secs(120);

/// How long an operation that changes names is waited for, how often it is looked for, and how long it takes at most where
/// nothing fails: some messages and a commit.
const CHANGE_WITHIN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_micros(200);
const CHANGE_MAX: Duration = Duration::from_millis(15);

/// The same of splits and merges, which are made in several steps.
const SPLIT_WITHIN: Duration = Duration::from_secs(20);
const LOOK_FOR_SPLITS: Duration = Duration::from_millis(5);
const SPLIT_MAX: Duration = Duration::from_millis(60);

/// One thing that concerns several MDTs.
pub(crate) async fn fail(sim: &Arc<Sim>) {
    match sim.random().below(3) {
        0 if sim.cluster.mdts().len() > 1 => part_two(sim).await,
        _ => kill_some(sim).await,
    }
}

/// Any MDTs die at the same moment, and come back one after the other.
async fn kill_some(sim: &Arc<Sim>) {
    let mdts = sim.cluster.mdts();
    let chosen = 1 + sim.random().below((1 << mdts.len()) - 1);
    let power = sim.random().below(2) == 0;
    match sim.changes_fids() && sim.random().below(2) == 0 {
        true => wait_for_a_split(sim).await,
        false => wait_for_a_change(sim).await,
    }
    let ending = if power { Ending::LosesPower } else { Ending::Killed };
    if sim.changes_fids() {
        let between: Vec<_> = changing::changing(sim).iter().map(ToString::to_string).collect();
        sim.say(format_args!("between two layouts: {}", between.join(", ")));
    }
    let dying = mdts.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1);
    let outages = dying.map(|(_, number)| {
        let time = faults::part(sim, DOWN_MAX);
        faults::outage(sim, *number, ending, time, || ())
    });
    all(outages.collect()).await;
}

/// Some of the time until an operation that changes names has ended, if one begins soon.
async fn wait_for_a_change(sim: &Sim) {
    let limit = sim.now() + CHANGE_WITHIN;
    while !sim.changes_names() && sim.now() < limit {
        sim.sleep(LOOK).await;
    }
    let most = CHANGE_MAX.as_micros() as u64;
    sim.sleep(Duration::from_micros(sim.random().below(most))).await;
}

/// Until MDTs move names by themselves, if they begin soon, and some of the time that they need.
async fn wait_for_a_split(sim: &Sim) {
    let limit = sim.now() + SPLIT_WITHIN;
    let is_own = |it: &changing::Changing| it.change != LayoutChange::Migration;
    while !changing::changing(sim).iter().any(is_own) && sim.now() < limit {
        sim.sleep(LOOK_FOR_SPLITS).await;
    }
    let most = SPLIT_MAX.as_micros() as u64;
    sim.sleep(Duration::from_micros(sim.random().below(most))).await;
}

/// Two MDTs do not reach each other; all clients reach both.
async fn part_two(sim: &Arc<Sim>) {
    let mut mdts = sim.cluster.mdts();
    let mut take = || mdts.swap_remove(sim.random().below(mdts.len() as u64) as usize);
    let (one, two) = (take(), take());
    if sim.random().below(2) == 0 {
        // Of a change that is under way one may get its part, and the other one not.
        wait_for_a_change(sim).await;
    }
    let [one, two] = [one, two].map(|number| sim.cluster.servers[number].nid);
    let time = faults::part(sim, CUT_MAX);
    sim.say(format_args!("FAULT: {one} and {two} do not reach each other for {time:?}"));
    sim.world.set_apart(one.address(), two.address(), true);
    sim.sleep(time).await;
    sim.world.set_apart(one.address(), two.address(), false);
    sim.say(format_args!("{one} and {two} reach each other"));
}

/// The judge *cut*.
pub(crate) fn look_at_cut(sim: &Sim) {
    if sim.options.mdts > 1
        && let Some(text) = check_cut(sim).unwrap_or_else(|error| Some(error.to_string()))
    {
        sim.fail(format_args!("what is durable of all MDTs: {text}"));
    }
}

fn check_cut(sim: &Sim) -> Result<Option<String>, StoreError> {
    let of_each = sim.cluster.targets(TargetKind::Mdt);
    let stores: Vec<(MdtIndex, Arc<StoreMem>)> = of_each
        .map(|(name, disk)| (MdtIndex(name.index), Arc::new(disk.store().crash())))
        .collect();
    let shared = stores.iter().map(|(mdt, store)| (*mdt, Arc::clone(store) as Arc<dyn Store>));
    let redone = redo_offline(&shared.collect::<Vec<_>>())?;
    if let Some(refused) = redone.refused.first() {
        return Ok(Some(format!("{refused:?}")));
    }
    let objects: Vec<Vec<Fid>> = stores.iter().map(|(_, store)| store.fids()).collect();
    let at_rest: Vec<_> = stores
        .iter()
        .zip(&objects)
        .map(|((mdt, store), objects)| MdtAtRest {
            mdt: *mdt,
            store: &**store,
            objects,
            indexes: &[],
        })
        .collect();
    let faults = check_all(&at_rest)?.faults;
    let first = faults.first();
    Ok(first.map(|it| format!("{} faults, MDT{:04x}: {it}; {redone:?}", faults.len(), it.mdt)))
}

/// The judges *records* and *exclusions*, where no client works any more.
///
/// # Errors
/// What is left.
pub(crate) async fn nothing_is_left(sim: &Sim) -> Result<(), String> {
    let limit = sim.now() + COMPLETE_WITHIN;
    while let Some(left) = left(sim) {
        if sim.now() > limit {
            return Err(left);
        }
        sim.sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

fn left(sim: &Sim) -> Option<String> {
    sim.cluster.served().iter().find_map(|served| {
        let Role::Mdt(mdt) = &served.role else { return None };
        let (name, records) = (served.target.name(), served.target.incomplete_changes());
        if records > 0 {
            return Some(format!("{name}: records of {records} changes are left"));
        }
        mdt.has_exclusions().then(|| format!("{name}: something is excluded still"))
    })
}
