//! What replies show of the time that the target and the network take.

use std::time::Duration;

use sheen_types::Instant;
use sheen_wire::ptlrpc::PtlrpcBody;

use crate::adaptive::{Estimate, Expected, seconds_of};
use crate::timing::Bounds;

/// How long requests take, as far as replies have shown it.
pub(super) struct Estimates {
    /// Seconds that the target needs, as it last said.
    service: u32,
    /// And said before.
    reported: Estimate,
    latency: Estimate,
}

impl Estimates {
    pub(super) fn new(now: Instant) -> Self {
        Self { service: 0, reported: Estimate::new(now), latency: Estimate::new(now) }
    }

    /// Seconds that the target is expected to take.
    pub(super) fn service_estimate(&self, bounds: &Bounds) -> u32 {
        bounds.keep(self.service)
    }

    /// How long to wait for a target that was given so many seconds.
    pub(super) fn patience(&self, seconds: u32, bounds: &Bounds) -> Duration {
        let latency = self.latency.seconds(&bounds.of_network());
        Duration::from_secs(u64::from(seconds) + u64::from(latency))
    }

    /// Learns from a reply that came `waited` after its request was sent.
    pub(super) fn measure(
        &mut self,
        now: Instant,
        waited: Duration,
        body: &PtlrpcBody,
        bounds: &Bounds,
    ) {
        if body.timeout != 0 {
            self.service = body.timeout;
            self.reported.measure(now, self.service_estimate(bounds), bounds);
        }
        let total = seconds_of(waited);
        // Otherwise the reply is to an earlier try.
        if body.service_time <= total + 3 {
            let latency = total.saturating_sub(body.service_time) + 1;
            self.latency.measure(now, latency, bounds);
        }
    }

    /// The estimates of the network and of the target, for operators.
    pub(super) fn expected(&self, bounds: &Bounds) -> (Expected, Expected) {
        (self.latency.expected(&bounds.of_network()), self.reported.expected(bounds))
    }
}
