//! Servers that are stopped in order while their targets recover, as by an operator who restarts one that was killed: the
//! next start awaits the same clients with the same replays, and nothing is lost by the stop.

use std::sync::Arc;
use std::time::Duration;

use sheen_io::within;
use sheen_target::RecoveryStatus;

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

/// Kills servers, and stops them when they recover.
pub(crate) async fn inject(sim: &Arc<Sim>, end: sheen_types::Instant) {
    let random = sim.more_random();
    let part = |most: Duration| Duration::from_millis(random.below(most.as_millis() as u64));
    sim.sleep(faults::PEACE).await;
    loop {
        sim.sleep(part(PAUSE_MAX)).await;
        if sim.now() + faults::QUIET > end {
            return;
        }
        let number = random.below(sim.cluster.servers.len() as u64) as usize;
        sim.breaks();
        faults::outage(sim, number, Ending::Killed, part(DOWN_MAX), || ()).await;
        for _ in 0..=random.below(STOPS_MAX) {
            sim.sleep(part(WINDOW_MAX)).await;
            stop(sim, number, part(DOWN_MAX)).await;
        }
        sim.mends();
    }
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
