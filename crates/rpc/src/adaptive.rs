//! Adaptive timeouts: how long requests take, remembered for a while.

use std::time::Duration;

use sheen_types::Instant;

use crate::limits::{AT_HISTORY, AT_MAX, AT_MIN};

/// Parts of the history that are forgotten one by one (`AT_BINS`).
const BINS: usize = 4;

/// The longest time of the recent past, in whole seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimate {
    bins: [u32; BINS],
    /// Start of the newest bin.
    since: Instant,
    at_least: u32,
    worst: u32,
    worst_at: Instant,
}

/// What is expected, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Seconds.
    pub seconds: u32,
    /// The most that there ever was.
    pub worst: u32,
    /// And when.
    pub worst_at: Instant,
    /// The most in each part of the recent past, the newest first.
    pub recent: [u32; BINS],
}

impl Estimate {
    /// Nothing measured; never estimates less than `at_least` seconds.
    #[must_use]
    pub(crate) fn new(now: Instant, at_least: u32) -> Self {
        Self { bins: [0; BINS], since: now, at_least, worst: 0, worst_at: now }
    }

    /// Counts one measurement.
    pub(crate) fn measure(&mut self, now: Instant, seconds: u32) {
        let width = AT_HISTORY / BINS as u32;
        while now.since(self.since) >= width {
            self.bins.rotate_right(1);
            self.bins[0] = 0;
            // A long silence forgets everything at once.
            self.since = if now.since(self.since) >= AT_HISTORY { now } else { self.since + width };
        }
        self.bins[0] = self.bins[0].max(seconds.min(AT_MAX));
        if self.worst < self.bins[0] {
            (self.worst, self.worst_at) = (self.bins[0], now);
        }
    }

    /// What is expected, for operators.
    #[must_use]
    pub(crate) fn expected(&self) -> Expected {
        let (seconds, worst_at) = (self.seconds(), self.worst_at);
        Expected { seconds, worst: self.worst.max(seconds), worst_at, recent: self.bins }
    }

    /// Seconds to expect.
    #[must_use]
    pub(crate) fn seconds(&self) -> u32 {
        self.bins.iter().copied().max().unwrap_or(0).clamp(self.at_least, AT_MAX)
    }
}

/// How long to wait for what is expected to take `estimate` seconds: a quarter and five seconds
/// more.
#[must_use]
pub(crate) fn timeout_of(estimate: u32) -> u32 {
    let estimate = estimate.clamp(AT_MIN, AT_MAX);
    estimate + estimate / 4 + 5
}

/// Whole seconds, a begun one counted as one.
#[must_use]
pub(crate) fn seconds_of(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_remembered_for_a_while_and_then_forgotten() {
        let start = Instant(1);
        let mut estimate = Estimate::new(start, 5);
        assert_eq!(estimate.seconds(), 5);
        estimate.measure(start, 40);
        estimate.measure(start + Duration::from_secs(200), 7);
        assert_eq!(estimate.seconds(), 40);
        estimate.measure(start + Duration::from_secs(700), 7);
        assert_eq!(estimate.seconds(), 7);
        assert_eq!(timeout_of(40), 55);
    }
}
