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

/// What disks of MDTs that are very slow take for one job, at most; and how long MDTs are down then, and recover before they
/// die again.
const SLOW_DISK_MIN: Duration = Duration::from_secs(2);
const SLOW_DISK_MAX: Duration = Duration::from_secs(8);
const SHORT_DOWN: Duration = Duration::from_secs(3);
const RECOVERS_WITHIN: Duration = Duration::from_secs(12);
/// The same of disks that are well.
const DISK: Duration = Duration::from_micros(50);

/// How much longer messages travel between two MDTs, and how long they do.
const DISTANCE_MAX: Duration = Duration::from_millis(300);
const DISTANT_MAX: Duration = Duration::from_secs(40);
/// The same of what is sent by an MDT that dies meanwhile.
const LATE_MAX: Duration = Duration::from_secs(4);

/// One thing that concerns several MDTs.
pub(crate) async fn fail(sim: &Arc<Sim>) {
    let are_several = sim.cluster.mdts().len() > 1;
    match sim.random().below(6) {
        0 | 1 if are_several => part_two(sim).await,
        2 if are_several && sim.random().below(2) == 0 => send_late(sim).await,
        2 if are_several => distance_two(sim).await,
        3 => kill_twice(sim).await,
        _ => kill_some(sim).await,
    }
}

/// MDTs whose disks are slow lose power while changes are under way, and again while they recover: much of what they have
/// said is not durable, and what they have redone may not be, either.
async fn kill_twice(sim: &Arc<Sim>) {
    let mdts = sim.cluster.mdts();
    let chosen = 1 + sim.random().below((1 << mdts.len()) - 1);
    let is_chosen = |(at, number): (usize, &usize)| (chosen >> at & 1 == 1).then_some(*number);
    let chosen: Vec<_> = mdts.iter().enumerate().filter_map(is_chosen).collect();
    let wait = SLOW_DISK_MIN + faults::part(sim, SLOW_DISK_MAX - SLOW_DISK_MIN);
    sim.say(format_args!("FAULT: the disks of MDTs are slow, up to {wait:?}"));
    slow_disks(sim, &mdts, wait);
    // So long that transactions which build on each other wait for their commit.
    sim.sleep(faults::part(sim, SLOW_DISK_MAX)).await;
    wait_for_a_change(sim).await;
    let twice = chosen.iter().map(|number| async move {
        let (first, second) = (faults::part(sim, SHORT_DOWN), faults::part(sim, SHORT_DOWN));
        faults::outage(sim, *number, Ending::LosesPower, first, || ()).await;
        slow_disks(sim, &[*number], wait);
        sim.sleep(faults::part(sim, RECOVERS_WITHIN)).await;
        faults::outage(sim, *number, Ending::LosesPower, second, || ()).await;
    });
    all(twice.collect()).await;
    slow_disks(sim, &mdts, DISK);
    sim.say("the disks of MDTs are well");
}

fn slow_disks(sim: &Sim, servers: &[usize], longest: Duration) {
    for scope in servers.iter().filter_map(|number| sim.cluster.servers[*number].scope()) {
        sim.world.set_disk_wait(scope, longest);
    }
}

/// What an MDT has sent arrives when its next start has already asked what it had lost, and has sent that again.
async fn send_late(sim: &Arc<Sim>) {
    let [number, other] = any_two(sim);
    let [from, to] = [number, other].map(|number| sim.cluster.servers[number].nid);
    let more = faults::part(sim, LATE_MAX);
    sim.say(format_args!("FAULT: what {from} sends to {to} arrives {more:?} later"));
    sim.world.set_distance(from.address(), to.address(), more);
    // Excluded is what the change is about after one way there and back; then its parts are sent.
    wait_for_a_change(sim).await;
    sim.sleep(faults::part(sim, more * 4)).await;
    let down = faults::part(sim, more / 2);
    let is_near = || sim.world.set_distance(from.address(), to.address(), Duration::ZERO);
    faults::outage(sim, number, Ending::Killed, down, is_near).await;
    is_near();
}

/// Between two MDTs messages take longer than between the other nodes.
async fn distance_two(sim: &Arc<Sim>) {
    let [one, two] = any_two(sim).map(|number| sim.cluster.servers[number].nid);
    let (time, more) = (faults::part(sim, DISTANT_MAX), faults::part(sim, DISTANCE_MAX));
    sim.say(format_args!(
        "FAULT: {one} and {two} are {more:?} more away from each other for {time:?}"
    ));
    sim.world.set_distance(one.address(), two.address(), more);
    sim.sleep(time).await;
    sim.world.set_distance(one.address(), two.address(), Duration::ZERO);
    sim.say(format_args!("{one} and {two} are as far from each other as before"));
}

/// Two of several MDTs.
fn any_two(sim: &Sim) -> [usize; 2] {
    let mut mdts = sim.cluster.mdts();
    let mut take = || mdts.swap_remove(sim.random().below(mdts.len() as u64) as usize);
    [take(), take()]
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
    let pair = any_two(sim);
    if sim.random().below(2) == 0 {
        // Of a change that is under way one may get its part, and the other one not.
        wait_for_a_change(sim).await;
    }
    let [one, two] = pair.map(|number| sim.cluster.servers[number].nid);
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
