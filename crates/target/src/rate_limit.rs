//! Log lines that peers cause: at most one in a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sheen_types::Instant;

const PAUSE: Duration = Duration::from_secs(1);

/// When the last line was written, and how many were not since.
#[derive(Debug, Default)]
pub struct RateLimitedWarning {
    /// The first moment of the next line.
    next: AtomicU64,
    left_out: AtomicU64,
}

impl RateLimitedWarning {
    /// Writes the line, which gets the count of lines left out before it; or leaves it out.
    pub fn warn(&self, now: Instant, line: impl FnOnce(u64)) {
        let next = self.next.load(Ordering::Relaxed);
        let after = (now + PAUSE).0;
        let order = Ordering::Relaxed;
        if now.0 < next || self.next.compare_exchange(next, after, order, order).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        line(self.left_out.swap(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_says_how_many_were_left_out() {
        let limiter = RateLimitedWarning::default();
        let at = |millis| Instant(0) + Duration::from_millis(millis);
        let mut lines = Vec::new();
        for now in [0, 1, 500, 999, 1000, 1001, 5000] {
            limiter.warn(at(now), |more| lines.push((now, more)));
        }
        assert_eq!(lines, [(0, 0), (1000, 3), (5000, 1)]);
    }
}
