//! Time: monotonic for measuring, wall clock for headers.

use rustix::time::{ClockId, clock_gettime};

/// Seconds of the machine's monotonic clock: the same for all processes.
pub(crate) fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    let now = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    #[cfg(test)]
    let now = now + AHEAD.get();
    now
}

#[cfg(test)]
thread_local! {
    /// Seconds that this thread is ahead of all other threads: for what takes minutes.
    pub(crate) static AHEAD: std::cell::Cell<f64> = const { std::cell::Cell::new(0.0) };
}

/// Nanoseconds of the same clock.
pub(crate) fn nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Seconds since 1970.
pub(crate) fn wall() -> i64 {
    clock_gettime(ClockId::Realtime).tv_sec
}
