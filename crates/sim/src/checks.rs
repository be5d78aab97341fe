//! What is checked from outside: locks, grants, and in the end everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sheen_assembly::{CheckError, Consistency, Depth, Role, Served, StoreContents};
use sheen_ldlm::server::{Gauges, LockInfo, Namespace};
use sheen_ldlm::{LockFlags, LockKind, Owner};
use sheen_store::Store;
use sheen_target::{RecoveryStatus, Target};
use sheen_types::{Instant, TargetKind};

use crate::changing;
use crate::cluster::Client;
use crate::damage;
use crate::hostile;
use crate::model::Writer;
use crate::restored;
use crate::run::Sim;
use crate::several_mdts;
use crate::work;

/// How long the end may take: an unmount, a mount, a stop.
const STEP_MAX: Duration = Duration::from_secs(300);
/// How often locks that only clients know are looked for: they are wrong only after minutes.
const PHANTOMS_EVERY: Duration = Duration::from_secs(2);

/// What was looked at, so that what has not changed is not looked at again.
#[derive(Default)]
pub(crate) struct Looked {
    /// Of each target: its start, and its locks then.
    locks: BTreeMap<String, (u32, Gauges)>,
    phantoms: Instant,
}

/// Checks locks and grants.
pub(crate) fn look(sim: &Sim) {
    sim.look_for_evictions();
    if sim.now().since(sim.looked.lock().phantoms) >= PHANTOMS_EVERY {
        sim.looked.lock().phantoms = sim.now();
        check_phantoms(sim);
    }
    for served in sim.cluster.served() {
        let target = &served.target;
        // Two locks come to conflict when one is granted, and then the counts rise.
        let locks = (target.instance(), target.namespace().gauges());
        if sim.looked.lock().locks.get(target.name()) != Some(&locks) {
            sim.looked.lock().locks.insert(target.name().to_owned(), locks);
            if let Err(text) = check_locks(target) {
                sim.fail(text);
            }
        }
        if let Role::Ost(ost) = &served.role
            && let Ok(space) = target.store().space()
        {
            let promised = ost.grant_view().total;
            if promised > space.available {
                let name = target.name();
                let free = space.available;
                sim.fail(format_args!("{name}: {promised} bytes promised, {free} are free"));
            }
        }
    }
}

/// Locks that clients hold and servers do not know: for a moment that is right, but not for long.
fn check_phantoms(sim: &Sim) {
    let served = sim.cluster.served();
    let mut unknown = BTreeSet::new();
    for (number, client) in sim.cluster.clients.iter().enumerate() {
        let Some(kernel) = client.kernel().filter(|_| sim.trusts(number as Writer)) else {
            continue;
        };
        for space in kernel.files.lock_namespaces() {
            let Some(one) = served.iter().find(|one| one.target.name() == space.name()) else {
                continue;
            };
            if one.target.recovery_status() == RecoveryStatus::Recovering {
                continue;
            }
            for lock in space.engine().replay_list() {
                let granted = lock.flags.contains(LockFlags::BLOCK_GRANTED);
                if granted && one.target.namespace().lock(lock.remote_handle).is_none() {
                    let what =
                        format!("client {number} holds {} on {}", lock.handle, lock.desc.resource);
                    unknown.insert(format!("{what}, and {} does not know", space.name()));
                }
            }
        }
    }
    if let Some(fault) = sim.note_phantoms(unknown) {
        sim.fail(fault);
    }
}

/// No two granted locks of different owners conflict.
fn check_locks(target: &Target) -> Result<(), String> {
    let namespace: &Namespace = target.namespace();
    for (resource, kind) in namespace.resources() {
        let locks = namespace.dump(resource);
        let granted: Vec<&LockInfo> =
            locks.iter().filter(|lock| lock.desc.granted.is_some()).collect();
        for (at, one) in granted.iter().enumerate() {
            for other in &granted[at + 1..] {
                if one.owner != other.owner && exclude(kind, one, other) {
                    let name = target.name();
                    return Err(format!("{name}: both granted on {resource}: {one:?}, {other:?}"));
                }
            }
        }
    }
    Ok(())
}

fn exclude(kind: LockKind, one: &LockInfo, other: &LockInfo) -> bool {
    let (Some(mode), Some(second)) = (one.desc.granted, other.desc.granted) else { return false };
    // The server's own lock may spare the client on whose behalf it was taken.
    if mode.compatible(second) || one.owner == Owner::Local || other.owner == Owner::Local {
        return false;
    }
    let (a, b) = (&one.desc.policy, &other.desc.policy);
    match kind {
        LockKind::Plain => true,
        LockKind::Extent | LockKind::Flock => {
            let (a, b) = (a.range(), b.range());
            a.start <= b.end && b.start <= a.end
        }
        LockKind::InodeBits => a.inode_bits().intersects(b.inode_bits()),
    }
}

/// Everything in order is stopped, looked at by a fresh client, stopped again and checked on disk.
pub(crate) async fn finish(sim: &Arc<Sim>) -> Result<(), String> {
    if sim.extras().hostile {
        hostile::is_gone(sim).await?;
    }
    nothing_is_open(sim).await?;
    several_mdts::nothing_is_left(sim).await?;
    let last = sim.cluster.clients.len() - 1;
    sim.look_for_evictions();
    for (number, client) in sim.cluster.clients[..last].iter().enumerate() {
        // It goes in order, which the next look must not take for what other clients' exports were evicted for.
        sim.evicted.lock().ends(client.nid);
        let stopping = Arc::clone(client);
        within(sim, format!("client {number} unmounts"), async move { stopping.stop().await })
            .await?;
    }
    work::start_last(sim, last as u16);
    let limit = sim.now() + STEP_MAX;
    while !sim.is_done() {
        sim.sleep(Duration::from_millis(100)).await;
        if sim.now() > limit {
            return Err("the last client does not come to its end".to_owned());
        }
    }
    let client = Arc::clone(&sim.cluster.clients[last]);
    within(sim, "the last client unmounts".to_owned(), async move { client.stop().await }).await?;
    // What the last one has ended was made by several MDTs, too.
    several_mdts::nothing_is_left(sim).await?;
    if sim.extras().hostile {
        hostile::leaves_nothing(sim).await?;
    }
    for server in &sim.cluster.servers {
        let stopping = Arc::clone(server);
        let what = format!("the server at {} stops", server.nid);
        within(sim, what, async move { stopping.stop().await }).await??;
    }
    check_disks(sim)
}

/// No client works any more, and clients cancel the locks under which files stay open: then none is open,
/// once clients that have died are evicted.
async fn nothing_is_open(sim: &Arc<Sim>) -> Result<(), String> {
    let spaces = |client: &Arc<Client>| {
        client.kernel().map(|kernel| kernel.files.lock_namespaces()).unwrap_or_default()
    };
    for space in sim.cluster.clients.iter().flat_map(spaces) {
        drop(space.cancel_unused());
    }
    let limit = sim.now() + STEP_MAX;
    loop {
        let open: Vec<String> =
            sim.cluster.served().iter().flat_map(|served| open_files(served)).collect();
        if open.is_empty() {
            return Ok(());
        }
        if sim.now() > limit {
            return Err(format!("stay open: {}", open.join(", ")));
        }
        sim.sleep(Duration::from_secs(1)).await;
    }
}

/// Of an MDT, and who has them open.
fn open_files(served: &Served) -> Vec<String> {
    let Role::Mdt(mdt) = &served.role else { return Vec::new() };
    let mut open = Vec::new();
    for export in served.target.exports() {
        let who = export.nid();
        open.extend(mdt.open_files_of(&export).iter().map(|fid| format!("{fid} by {who}")));
    }
    let known = open.len() as u64;
    if mdt.open_count() != known {
        open.push(format!("{} of no client", mdt.open_count().abs_diff(known)));
    }
    open
}

/// Waits for `work`, but not for ever.
async fn within<T: Send + 'static>(
    sim: &Arc<Sim>,
    what: String,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, String> {
    sim.say(&what);
    let slot = Arc::new(parking_lot::Mutex::new(None));
    let place = Arc::clone(&slot);
    let task = async move {
        let value = work.await;
        *place.lock() = Some(value);
    };
    sim.world.world().tasks.spawn("step", Box::pin(task));
    let limit = sim.now() + STEP_MAX;
    loop {
        if let Some(value) = slot.lock().take() {
            return Ok(value);
        }
        if sim.now() > limit {
            return Err(format!("{what}, but not within {} seconds", STEP_MAX.as_secs()));
        }
        sim.sleep(Duration::from_millis(10)).await;
    }
}

fn check_disks(sim: &Sim) -> Result<(), String> {
    if let Some(text) = restored::made_again(sim) {
        return Err(text);
    }
    changing::nothing_is_left(sim)?;
    let mut check = Consistency::default();
    let broken = |error: CheckError| format!("{error:?}");
    // This kind of store does not list all that it holds.
    let held = StoreContents::default();
    let mdts: Vec<_> =
        sim.cluster.targets(TargetKind::Mdt).map(|(name, disk)| (name, disk.store())).collect();
    let at_rest: Vec<_> =
        mdts.iter().map(|(name, store)| (*name, &**store as &dyn Store, &held)).collect();
    check.mdts(&at_rest).map_err(broken)?;
    for (name, store) in &mdts {
        let checked = check.mdt_data(name, &**store, Depth::Checksums, &mut |_, _| true);
        checked.map_err(broken)?;
    }
    for (name, disk) in sim.cluster.targets(TargetKind::Ost) {
        let store = disk.store();
        let checked = check.ost(name, &*store, &held, Depth::Checksums, &mut |_, _| true);
        checked.map_err(broken)?;
    }
    let problems = check.finish().problems;
    if let Some(text) = damage::unnamed(sim, &problems).map_err(|error| error.to_string())? {
        return Err(text);
    }
    let mut unexplained = problems.iter().filter(|problem| {
        let is_lost = sim.model.lock().lost_objects.explain(problem);
        !damage::explains(sim, problem) && !restored::explains(sim, problem) && !is_lost
    });
    match unexplained.next() {
        None => Ok(()),
        Some(first) => Err(format!("{} problems on disk, {first}", 1 + unexplained.count())),
    }
}
