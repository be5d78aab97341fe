//! What fails, as the seed says, until a while before the end: one thing after the other, or, where
//! several fail at once, several such rows beside each other.

use std::sync::Arc;
use std::time::Duration;

use sheen_types::Instant;
use sheen_vnet::{NetworkConditions, Virtual};

use crate::cluster::{Errors, Server};
use crate::lost_objects;
use crate::model::Writer;
use crate::run::Sim;
use crate::several_mdts;
use crate::work;

/// The last faults begin so long before the work ends: recovery, and evictions that clients have yet to learn of, are over by
/// then, and what is wrong since then is seen by operations.
const QUIET: Duration = Duration::from_secs(150);
/// Runs that are shorter have faults in their first two thirds: their operations and the checks wait for recovery in the end.
const LONG: Duration = Duration::from_secs(240);
/// The first files are made without faults.
pub(crate) const PEACE: Duration = Duration::from_secs(15);
/// Longest pause between two faults.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Longest time without a node.
pub(crate) const DOWN_MAX: Duration = Duration::from_secs(30);
/// Longest that a node is disconnected: longer than until a silent client is evicted.
pub(crate) const CUT_MAX: Duration = Duration::from_secs(100);
/// Longest that a disk is slow, or the network bad.
const BAD_MAX: Duration = Duration::from_secs(40);
/// Of a disk that answers with errors, one in so many jobs fails at the least.
const RARE_ERROR: u64 = 30;
/// What a disk that is slow takes for one job.
const SLOW_DISK: Duration = Duration::from_millis(1500);

/// Whether no more faults begin in a run that ends then.
pub(crate) fn are_over(sim: &Sim, end: Instant) -> bool {
    are_over_in(sim, Duration::ZERO, end)
}

/// The same after `time` from now.
pub(crate) fn are_over_in(sim: &Sim, time: Duration, end: Instant) -> bool {
    let length = sim.length();
    let quiet = if length < LONG { length / 3 } else { QUIET };
    sim.now() + time + quiet > end
}

/// Lets things fail.
pub(crate) async fn inject(sim: &Arc<Sim>, end: Instant) {
    sim.sleep(PEACE).await;
    loop {
        sim.sleep(part(sim, PAUSE_MAX)).await;
        if are_over(sim, end) {
            return;
        }
        sim.breaks();
        if sim.options.mdts > 1 && sim.random().below(3) == 0 {
            several_mdts::fail(sim).await;
            sim.mends();
            continue;
        }
        match sim.random().below(12) {
            0 | 1 => break_connections(sim),
            2 | 3 => kill_server(sim, false).await,
            4 => kill_server(sim, true).await,
            5 => cut_off(sim).await,
            6 => kill_client(sim).await,
            7 => slow_disk(sim).await,
            8 => disk_errors(sim).await,
            9 => fail_commit(sim).await,
            _ => bad_network(sim).await,
        }
        sim.mends();
    }
}

/// A random part of `most`; more often a short one.
pub(crate) fn part(sim: &Sim, most: Duration) -> Duration {
    let most = match sim.random().below(2) {
        0 => most / 10,
        _ => most,
    };
    Duration::from_micros(sim.random().below(most.as_micros() as u64 + 1))
}

fn break_connections(sim: &Sim) {
    let nids: Vec<_> = sim.cluster.nids().collect();
    let nid = nids[sim.random().below(nids.len() as u64) as usize];
    sim.say(format_args!("FAULT: the connections of {nid} break"));
    sim.world.break_connections(nid.address());
}

async fn cut_off(sim: &Sim) {
    let nids: Vec<_> = sim.cluster.nids().collect();
    let nid = nids[sim.random().below(nids.len() as u64) as usize];
    let time = part(sim, CUT_MAX);
    sim.say(format_args!("FAULT: {nid} is cut off for {time:?}"));
    sim.allow_evictions(time);
    sim.allow_no_objects(time);
    sim.world.set_cut_off(nid.address(), true);
    sim.sleep(time).await;
    sim.world.set_cut_off(nid.address(), false);
    sim.evicted.lock().delays(sim.now());
    sim.say(format_args!("{nid} is back"));
}

async fn kill_server(sim: &Arc<Sim>, power: bool) {
    let number = sim.random().below(sim.cluster.servers.len() as u64) as usize;
    restart_server(sim, number, power).await;
}

async fn restart_server(sim: &Arc<Sim>, number: usize, power: bool) {
    let time = part(sim, DOWN_MAX);
    let ending = if power { Ending::LosesPower } else { Ending::Killed };
    outage(sim, number, ending, time, || ()).await;
}

/// How a server's process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Killed,
    /// Its machine, too.
    LosesPower,
    /// It was stopped in order: all is durable.
    Stopped,
}

impl Ending {
    fn end(self, server: &Server, world: &Virtual) {
        match self {
            Self::Killed => server.crash(world, false),
            Self::LosesPower => server.crash(world, true),
            Self::Stopped => server.end_stopped(world),
        }
    }
}

/// A server ends, and starts again after `time`; `meanwhile` once it is down.
pub(crate) async fn outage(
    sim: &Arc<Sim>,
    number: usize,
    ending: Ending,
    time: Duration,
    meanwhile: impl FnOnce(),
) {
    let server = &sim.cluster.servers[number];
    if !server.is_up() {
        return;
    }
    let how = match ending {
        Ending::Killed => "is killed",
        Ending::LosesPower => "loses power",
        Ending::Stopped => "has stopped",
    };
    sim.say(format_args!("FAULT: the server at {} {how} for {time:?}", server.nid));
    let is_mdt = sim.cluster.has_mdt(number);
    match is_mdt {
        true => lost_objects::crash(sim, || ending.end(server, &sim.world)),
        false => ending.end(server, &sim.world),
    }
    if is_mdt {
        several_mdts::look_at_cut(sim);
    }
    sim.allow_no_objects(time);
    if is_mdt && sim.is_someone_missing() {
        sim.model.lock().lose_changes();
    }
    if ending == Ending::LosesPower && !is_mdt {
        let mut model = sim.model.lock();
        model.files.lose(None);
        model.logs.lose(None);
    }
    meanwhile();
    sim.sleep(time).await;
    if is_mdt {
        sim.evicted.lock().mdt_starts(sim.now());
    }
    sim.evicted.lock().delays(sim.now());
    sim.say(format_args!("the server at {} starts", server.nid));
    server.start(&sim.world);
}

async fn kill_client(sim: &Arc<Sim>) {
    let number = sim.random().below(sim.cluster.clients.len() as u64 - 1) as Writer;
    let client = &sim.cluster.clients[usize::from(number)];
    let (power, time) = (sim.random().below(2) == 0, part(sim, DOWN_MAX));
    if client.scope().is_none() {
        return;
    }
    sim.say(format_args!("FAULT: client {number} dies, with power {power}, for {time:?}"));
    sim.allow_evictions(time);
    client.crash(&sim.world, power);
    sim.client_died(number);
    sim.sleep(time).await;
    sim.say(format_args!("client {number} starts"));
    work::start_client(sim, number);
}

async fn slow_disk(sim: &Sim) {
    let servers = &sim.cluster.servers;
    let server = &servers[sim.random().below(servers.len() as u64) as usize];
    let (Some(scope), time) = (server.scope(), part(sim, BAD_MAX)) else { return };
    sim.say(format_args!("FAULT: the disks at {} are slow for {time:?}", server.nid));
    sim.world.set_disk_wait(scope, part(sim, SLOW_DISK));
    sim.sleep(time).await;
    sim.world.set_disk_wait(scope, Duration::from_micros(50));
    sim.say(format_args!("the disks at {} are well", server.nid));
}

/// One in some jobs of a server's disks fails, for a while; the caller gets the error, and all goes on.
async fn disk_errors(sim: &Sim) {
    let number = sim.random().below(sim.cluster.servers.len() as u64) as usize;
    let (server, time) = (&sim.cluster.servers[number], part(sim, BAD_MAX));
    // What is replayed and fails is lost.
    let is_fresh = sim.cluster.has_mdt(number) && sim.evicted.lock().is_mdt_fresh(sim.now());
    if !server.is_serving() || is_fresh {
        return;
    }
    let one_in = 2 + sim.random().below(RARE_ERROR);
    let errors = match sim.random().below(3) {
        0 => Errors { reads: one_in, changes: 0 },
        1 => Errors { reads: 0, changes: one_in },
        _ => Errors { reads: one_in, changes: one_in },
    };
    sim.say(format_args!("FAULT: {errors:?} of the disks at {} for {time:?}", server.nid));
    sim.allow_no_objects(time);
    sim.disk_breaks();
    server.hosted.iter().for_each(|hosted| hosted.disk.set_errors(errors));
    sim.sleep(time).await;
    server.hosted.iter().for_each(|hosted| hosted.disk.set_errors(Errors::default()));
    sim.disk_mends();
    sim.say(format_args!("the disks at {} are well", server.nid));
}

/// A commit of one of a server's targets fails: it changes nothing more, and is started again in the
/// end, with power or without.
async fn fail_commit(sim: &Arc<Sim>) {
    let number = sim.random().below(sim.cluster.servers.len() as u64) as usize;
    let (server, time) = (&sim.cluster.servers[number], part(sim, BAD_MAX));
    let hosted = &server.hosted[sim.random().below(server.hosted.len() as u64) as usize];
    let power = sim.random().below(2) == 0;
    if !server.is_serving() {
        return;
    }
    sim.say(format_args!("FAULT: a commit of {:?} fails, restart after {time:?}", hosted.kind));
    sim.allow_no_objects(time);
    let process = server.scope();
    sim.disk_breaks();
    hosted.disk.fail_commit();
    sim.sleep(time).await;
    sim.disk_mends();
    if server.scope() == process {
        restart_server(sim, number, power).await;
    }
}

async fn bad_network(sim: &Sim) {
    let (time, delay_max) = (part(sim, BAD_MAX), part(sim, Duration::from_millis(100)));
    let break_one_in = match sim.random().below(2) {
        0 => 0,
        _ => 100 + sim.random().below(1000),
    };
    sim.say(format_args!(
        "FAULT: bytes travel up to {delay_max:?}, one in {break_one_in} writes breaks, for {time:?}"
    ));
    let calm = NetworkConditions::default();
    let delay_max = delay_max.max(calm.delay_max);
    sim.world.set_network_conditions(NetworkConditions { delay_max, break_one_in, ..calm.clone() });
    sim.sleep(time).await;
    sim.world.set_network_conditions(calm);
    sim.say("the network is well");
}
