//! Adaptive timeouts: how long requests take, remembered for a while.

use std::time::Duration;

use sheen_types::Instant;

use crate::timing::Bounds;

/// Parts of the history that are forgotten one by one (`AT_BINS`).
const BINS: usize = 4;
/// The shortest of them, as times are whole seconds.
const WIDTH_MIN: Duration = Duration::from_secs(1);

/// The longest time of the recent past, in whole seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimate {
    bins: [u32; BINS],
    /// Start of the newest bin.
    since: Instant,
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
    /// Nothing measured.
    #[must_use]
    pub(crate) fn new(now: Instant) -> Self {
        Self { bins: [0; BINS], since: now, worst: 0, worst_at: now }
    }

    /// Counts one measurement.
    pub(crate) fn measure(&mut self, now: Instant, seconds: u32, bounds: &Bounds) {
        let width = (bounds.history / BINS as u32).max(WIDTH_MIN);
        if now.since(self.since) >= width * BINS as u32 {
            // A long silence forgets everything at once.
            (self.bins, self.since) = ([0; BINS], now);
        }
        while now.since(self.since) >= width {
            self.bins.rotate_right(1);
            self.bins[0] = 0;
            self.since = self.since + width;
        }
        self.bins[0] = self.bins[0].max(bounds.capped(seconds));
        if self.worst < self.bins[0] {
            (self.worst, self.worst_at) = (self.bins[0], now);
        }
    }

    /// What is expected, for operators.
    #[must_use]
    pub(crate) fn expected(&self, bounds: &Bounds) -> Expected {
        let (seconds, worst_at) = (self.seconds(bounds), self.worst_at);
        Expected { seconds, worst: self.worst.max(seconds), worst_at, recent: self.bins }
    }

    /// Seconds to expect.
    #[must_use]
    pub(crate) fn seconds(&self, bounds: &Bounds) -> u32 {
        bounds.keep(self.bins.iter().copied().max().unwrap_or(0))
    }
}

/// How long to wait for what is expected to take `estimate` seconds: a quarter and five seconds
/// more.
#[must_use]
pub(crate) fn timeout_of(estimate: u32) -> u32 {
    estimate.saturating_add(estimate / 4).saturating_add(5)
}

/// Whole seconds, a begun one counted as one.
#[must_use]
pub(crate) fn seconds_of(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::{Time, Timing};

    #[test]
    fn the_worst_is_remembered_for_a_while_and_then_forgotten() {
        let start = Instant(1);
        let timing = Timing::default();
        let bounds = timing.bounds();
        let mut estimate = Estimate::new(start);
        assert_eq!(estimate.seconds(&bounds), 5);
        estimate.measure(start, 40, &bounds);
        estimate.measure(start + Duration::from_secs(200), 7, &bounds);
        assert_eq!(estimate.seconds(&bounds), 40);
        estimate.measure(start + Duration::from_secs(700), 7, &bounds);
        assert_eq!(estimate.seconds(&bounds), 7);
        assert_eq!(timeout_of(40), 55);
    }

    #[test]
    fn operators_say_how_long_it_is_remembered() {
        let start = Instant(1);
        let timing = Timing::default();
        for (history, expected) in [(600, 40), (40, 7), (0, 7)] {
            timing.set(Time::AtHistory, history);
            let mut estimate = Estimate::new(start);
            estimate.measure(start, 40, &timing.bounds());
            estimate.measure(start + Duration::from_secs(60), 7, &timing.bounds());
            assert_eq!(estimate.seconds(&timing.bounds()), expected, "history {history}");
        }
    }
}
