//! Two kinds of time: how much has passed, and what the calendar says.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A moment of the monotonic clock, in nanoseconds since an origin the host chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The time that has passed since `earlier`; zero if that lies ahead.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanoseconds))
    }
}

/// A calendar time as inodes carry it: seconds since 1970 and nanoseconds below a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC, negative before.
    pub seconds: i64,
    /// 0..1,000,000,000.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// A whole second.
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { seconds, nanoseconds: 0 }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}
