//! Times that operators set: those of a whole process, which all its imports and services read, and
//! those that one import has of its own.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::limits;

/// What can be set, in seconds; with Lustre's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// `at_min`: no request is expected to take less.
    AtMin,
    /// `at_max`: nor more; 0 for no adaptive timeouts at all.
    AtMax,
    /// `at_history`: how long a slow answer is remembered.
    AtHistory,
    /// `at_early_margin`: an early reply leaves so long before the deadline.
    AtEarlyMargin,
    /// `at_extra`: and asks for so much more.
    AtExtra,
    /// `timeout` (`obd_timeout`): the base of fixed times, and what a request gets without adaptive
    /// timeouts.
    Timeout,
    /// `ping_interval`: an import that said nothing for so long pings.
    PingInterval,
}

/// How many they are.
const TIMES: usize = Time::PingInterval as usize + 1;

/// The times of a process.
#[derive(Debug)]
pub struct Timing([AtomicU32; TIMES]);

impl Default for Timing {
    fn default() -> Self {
        let seconds = |time: Duration| AtomicU32::new(time.as_secs() as u32);
        Self([
            AtomicU32::new(limits::AT_MIN),
            AtomicU32::new(limits::AT_MAX),
            seconds(limits::AT_HISTORY),
            seconds(limits::AT_EARLY_MARGIN),
            AtomicU32::new(limits::AT_EXTRA),
            seconds(limits::OBD_TIMEOUT),
            seconds(limits::PING_INTERVAL),
        ])
    }
}

impl Timing {
    /// Seconds.
    #[must_use]
    pub fn of(&self, time: Time) -> u32 {
        self.0[time as usize].load(Ordering::Relaxed)
    }

    /// Sets one; as in Lustre, `timeout` is at least a second and sets the interval of pings to its
    /// quarter.
    pub fn set(&self, time: Time, seconds: u32) {
        let store = |time: Time, value: u32| self.0[time as usize].store(value, Ordering::Relaxed);
        if time == Time::Timeout {
            store(Time::PingInterval, (seconds / 4).max(1));
            store(time, seconds.max(1));
        } else {
            store(time, seconds);
        }
    }

    /// Between two pings, and the same while requests wait to become durable.
    pub(crate) fn ping_intervals(&self) -> (Duration, Duration) {
        // None at all would be pings without end.
        let interval = Duration::from_secs(self.of(Time::PingInterval).max(1).into());
        (interval, interval.min(limits::PING_INTERVAL_SHORT))
    }

    /// When a connect is given up (`INITIAL_CONNECT_TIMEOUT`), in seconds.
    pub(crate) fn connect_timeout(&self) -> u32 {
        (self.of(Time::Timeout) / 20).max(limits::CONNECT_TIMEOUT.as_secs() as u32)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        OwnTimes::default().over(self)
    }
}

/// What one import has of its own; 0 for what the process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnTimes {
    /// `at_min` of the device.
    pub at_min: u32,
    /// Its `at_max`.
    pub at_max: u32,
    /// Its `at_history`.
    pub at_history: u32,
}

impl OwnTimes {
    pub(crate) fn over(self, timing: &Timing) -> Bounds {
        let or = |own: u32, time: Time| if own == 0 { timing.of(time) } else { own };
        Bounds {
            min: or(self.at_min, Time::AtMin),
            max: or(self.at_max, Time::AtMax),
            history: Duration::from_secs(or(self.at_history, Time::AtHistory).into()),
        }
    }
}

/// What estimates keep within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) min: u32,
    pub(crate) max: u32,
    pub(crate) history: Duration,
}

impl Bounds {
    /// Whether timeouts adapt at all.
    pub(crate) fn adapts(&self) -> bool {
        self.max > 0
    }

    /// `seconds`, neither too few nor too many; the least wins if it is above the most.
    pub(crate) fn keep(&self, seconds: u32) -> u32 {
        self.capped(seconds).max(self.min)
    }

    /// `seconds`, not too many.
    pub(crate) fn capped(&self, seconds: u32) -> u32 {
        if self.adapts() { seconds.min(self.max) } else { seconds }
    }

    /// As the bounds of services, for the network, which may be as fast as it is.
    pub(crate) fn of_network(self) -> Self {
        Self { min: 1, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_has_its_own_times_or_those_of_the_process() {
        let timing = Timing::default();
        let own = OwnTimes { at_min: 30, ..OwnTimes::default() };
        assert_eq!((timing.bounds().keep(1), own.over(&timing).keep(1)), (5, 30));
        timing.set(Time::AtMax, 20);
        assert_eq!((timing.bounds().keep(700), own.over(&timing).keep(700)), (20, 30));
        timing.set(Time::AtMax, 0);
        assert!(!timing.bounds().adapts());
        assert_eq!(timing.bounds().keep(700), 700);
    }

    #[test]
    fn timeout_sets_what_lustre_derives_of_it() {
        let timing = Timing::default();
        assert_eq!((timing.of(Time::PingInterval), timing.connect_timeout()), (25, 5));
        timing.set(Time::Timeout, 400);
        assert_eq!((timing.of(Time::PingInterval), timing.connect_timeout()), (100, 20));
        timing.set(Time::Timeout, 0);
        assert_eq!((timing.of(Time::Timeout), timing.of(Time::PingInterval)), (1, 1));
        assert_eq!(timing.ping_intervals().1, Duration::from_secs(1));
    }
}
