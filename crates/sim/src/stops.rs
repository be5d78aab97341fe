//! Servers that are stopped in order while their targets recover, as by an operator who restarts one that was killed: the
//! next start awaits the same clients with the same replays, and nothing is lost by the stop.

use std::sync::Arc;
use std::time::Duration;

use sheen_io::within;
use sheen_target::RecoveryStatus;
use sheen_types::Instant;

use crate::faults::{self, Ending};
use crate::run::Sim;

/// Longest pause before the next one.
const PAUSE_MAX: Duration = Duration::from_secs(90);
/// Longest time without the server, when it was killed and when it was stopped.
const DOWN_MAX: Duration = Duration::from_secs(20);
/// How long after a start it is stopped, at most: clients need some seconds to come back, and some to replay.
const WINDOW_MAX: Duration = Duration::from_secs(12);
/// How long a server may take to stop before it is killed, as `sheen down` has it.
const STOPS_WITHIN: Duration = Duration::from_secs(30);
/// So often in a row it is started and stopped, at most.
const STOPS_MAX: u64 = 3;
/// Where a client comes late: longest time without the server, each time, and longest wait for replays that wait for that
/// client's. Together less than any server takes to evict it.
const SHORT_DOWN_MAX: Duration = Duration::from_secs(2);
const SHORT_WINDOW_MAX: Duration = Duration::from_secs(6);
/// How often it is looked at whether replays wait.
const LOOK: Duration = Duration::from_millis(20);

/// Kills servers, and stops them when they recover.
pub(crate) async fn inject(sim: &Arc<Sim>, end: Instant) {
    let random = sim.more_random();
    sim.sleep(faults::PEACE).await;
    loop {
        sim.sleep(part(sim, PAUSE_MAX)).await;
        if faults::are_over(sim, end) {
            return;
        }
        sim.breaks();
        match random.below(2) {
            0 => stop_while_a_client_is_late(sim).await,
            _ => stop_some(sim).await,
        }
        sim.mends();
    }
}

fn part(sim: &Sim, most: Duration) -> Duration {
    Duration::from_millis(sim.more_random().below(most.as_millis() as u64))
}

/// Any server, at any time after its start.
async fn stop_some(sim: &Arc<Sim>) {
    let number = sim.more_random().below(sim.cluster.servers.len() as u64) as usize;
    faults::outage(sim, number, Ending::Killed, part(sim, DOWN_MAX), || ()).await;
    for _ in 0..=sim.more_random().below(STOPS_MAX) {
        sim.sleep(part(sim, WINDOW_MAX)).await;
        stop(sim, number, part(sim, DOWN_MAX)).await;
    }
}

/// An MDT, while replays wait for those of a client that was cut off just before it died: they must not be executed
/// without these, which the next start would take for durable then. No eviction is allowed for it.
async fn stop_while_a_client_is_late(sim: &Arc<Sim>) {
    let late = sim.more_random().below(sim.cluster.clients.len() as u64 - 1) as usize;
    let late = sim.cluster.clients[late].nid;
    let mdts = sim.cluster.mdts();
    let mdt = match mdts[..] {
        [only] => only,
        _ => mdts[sim.more_random().below(mdts.len() as u64) as usize],
    };
    sim.say(format_args!("FAULT: {late} comes late to an MDT that is stopped meanwhile"));
    sim.world.set_cut_off(late.address(), true);
    faults::outage(sim, mdt, Ending::Killed, part(sim, SHORT_DOWN_MAX), || ()).await;
    let begin = sim.now();
    let replays_wait = || {
        let served = sim.cluster.servers[mdt].served();
        served.iter().any(|it| it.target.view().recovery.queued > 0)
    };
    while sim.now().since(begin) < SHORT_WINDOW_MAX && !replays_wait() {
        sim.sleep(LOOK).await;
    }
    stop(sim, mdt, part(sim, SHORT_DOWN_MAX)).await;
    sim.world.set_cut_off(late.address(), false);
    sim.evicted.lock().delays(sim.now());
}

/// Stops a server in order, and starts it again after `time`. One that has not started yet dies of the signal.
async fn stop(sim: &Arc<Sim>, number: usize, time: Duration) {
    let server = &sim.cluster.servers[number];
    let Some(process) = server.scope() else { return };
    let is_ready = server.is_ready();
    let recovers = server.served().iter().any(|served| {
        let status = served.target.recovery_status();
        matches!(status, RecoveryStatus::WaitingForClients | RecoveryStatus::Recovering)
    });
    sim.say(format_args!("the server at {} is to stop; recovers: {recovers}", server.nid));
    let clock = sim.world.world().clock;
    let stopped = match is_ready {
        true => within(&*clock, STOPS_WITHIN, server.stop()).await,
        false => None,
    };
    // Another fault may have ended it meanwhile.
    if server.scope() != Some(process) {
        return;
    }
    let ending = if matches!(stopped, Some(Ok(()))) { Ending::Stopped } else { Ending::Killed };
    faults::outage(sim, number, ending, time, || ()).await;
}
