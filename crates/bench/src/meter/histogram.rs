//! How long operations took: a histogram of fixed size with buckets that grow with what they count.
//!
//! Each power of two of nanoseconds has [`PARTS`] buckets, so what is read out is at most a 32nd above what
//! was measured; the largest is kept exactly. Recording is an index and an addition. One takes 10 KiB.

/// Buckets of a power of two.
const PARTS: usize = 1 << PART_BITS;
const PART_BITS: u32 = 5;
/// Times from here on, 18 minutes, are counted together.
const BITS_MAX: u32 = 40;
const BUCKETS: usize = (BITS_MAX - PART_BITS + 1) as usize * PARTS;

/// Times of operations, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS].into_boxed_slice(), count: 0, max: 0 }
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let bits = u64::BITS - nanoseconds.leading_zeros();
    match bits.checked_sub(PART_BITS + 1) {
        None => nanoseconds as usize,
        Some(shift) => {
            let part = (nanoseconds >> shift) as usize - PARTS;
            ((shift as usize + 1) * PARTS + part).min(BUCKETS - 1)
        }
    }
}

/// The largest time that a bucket counts.
fn last_of(bucket: usize) -> u64 {
    match (bucket / PARTS).checked_sub(1) {
        None => bucket as u64,
        Some(shift) => ((((bucket % PARTS) + PARTS + 1) as u64) << shift) - 1,
    }
}

impl Histogram {
    /// One operation more.
    #[inline]
    pub(crate) fn record(&mut self, nanoseconds: u64) {
        self.buckets[bucket(nanoseconds)] += 1;
        self.count += 1;
        self.max = self.max.max(nanoseconds);
    }

    /// How many operations.
    #[must_use]
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The longest, in nanoseconds.
    #[must_use]
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// What `share` of all operations took at most, in nanoseconds: 0.5 is the median.
    #[must_use]
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (number, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return last_of(number).min(self.max);
            }
        }
        self.max
    }

    /// Adds what another has counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, other)| *own += other);
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// The largest, and pairs of buckets that are not empty and their counts: to be sent.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        let used = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let pairs = used.flat_map(|(number, count)| [number as u64, *count]);
        std::iter::once(self.max).chain(pairs).collect()
    }

    /// What [`Self::to_words`] returned; other words count nothing.
    pub(crate) fn from_words(words: &[u64]) -> Self {
        let mut histogram = Self::default();
        let Some((max, pairs)) = words.split_first() else { return histogram };
        histogram.max = *max;
        for pair in pairs.as_chunks::<2>().0 {
            let place = usize::try_from(pair[0]).ok().and_then(|at| histogram.buckets.get_mut(at));
            if let Some(place) = place {
                *place += pair[1];
                histogram.count += pair[1];
            }
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_bucket_that_ends_at_most_a_32nd_above_it() {
        let mut last = 0;
        for bits in 0..BITS_MAX {
            for time in [1u64 << bits, (1 << bits) + (1 << bits) / 3, (2 << bits) - 1] {
                let number = bucket(time);
                assert!(number >= last && number < BUCKETS, "{time}");
                let end = last_of(number);
                assert!(end >= time && end - time <= time / 32, "{time} ends at {end}");
                last = number;
            }
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.max()), (0, 0));
        (1..=1000u64).for_each(|time| histogram.record(time * 1000));
        for (share, time) in [(0.5, 500_000), (0.9, 900_000), (0.99, 990_000), (0.999, 999_000)] {
            let estimate = histogram.quantile(share);
            assert!((time..=time + time / 32).contains(&estimate), "{share}: {estimate}");
        }
        assert_eq!((histogram.quantile(1.0), histogram.count()), (1_000_000, 1000));
        let mut sent = Histogram::from_words(&histogram.to_words());
        assert_eq!(sent, histogram);
        sent.add(&histogram);
        assert_eq!((sent.count(), sent.quantile(0.5)), (2000, histogram.quantile(0.5)));
        // What a peer made up counts nothing.
        assert_eq!(Histogram::from_words(&[7, u64::MAX, 3, 9]).count(), 0);
    }
}
