//! How often a quantity had which size, as Lustre's `brw_stats` and `job_stats` show it.
//!
//! Adding is one relaxed addition and no lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Classes of a histogram (`OBD_HIST_MAX`); what is larger counts in the last.
const CLASSES: usize = 32;

/// Counts by class: of a number itself, or of its magnitude.
pub struct Histogram([AtomicU64; CLASSES]);

impl Default for Histogram {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; CLASSES])
    }
}

impl Histogram {
    /// How many classes there are.
    pub const CLASSES: usize = CLASSES;

    /// Counts one more of exactly `value`.
    pub fn add(&self, value: u64) {
        let class = usize::try_from(value).unwrap_or(CLASSES).min(CLASSES - 1);
        self.0[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one more of at most 2^n, for the least n.
    pub fn add_magnitude(&self, value: u64) {
        self.add(u64::from(u64::BITS - value.saturating_sub(1).leading_zeros()));
    }

    /// All counts, by class.
    #[must_use]
    pub fn counts(&self) -> [u64; CLASSES] {
        std::array::from_fn(|class| self.0[class].load(Ordering::Relaxed))
    }

    /// Starts all counts anew.
    pub fn clear(&self) {
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    #[test]
    fn values_count_by_themselves_or_by_the_next_power_of_two() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 5, 131_072, 131_073, u64::MAX] {
            histogram.add_magnitude(value);
        }
        let counts = histogram.counts();
        assert_eq!(counts[..4], [2, 1, 2, 1]);
        assert_eq!((counts[17], counts[18], counts[31]), (1, 1, 1));
        histogram.clear();
        histogram.add(3);
        histogram.add(400);
        assert_eq!((histogram.counts()[3], histogram.counts()[31]), (1, 1));
    }
}
