//! What a rank did in a phase, and what that comes to for all.

use crate::meter::Histogram;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    SetCreate,
    SetDelete,
    Create,
    Read,
    Stat,
    Delete,
}

impl Operation {
    pub(super) const COUNT: usize = 6;
    /// Those on files, whose times are kept, in the order of result lines.
    pub(super) const TIMED: [(Self, &str); 4] = [
        (Self::Read, "read"),
        (Self::Stat, "stat"),
        (Self::Create, "create"),
        (Self::Delete, "delete"),
    ];

    fn timed(self) -> Option<usize> {
        Self::TIMED.iter().position(|(operation, _)| *operation == self)
    }
}

/// One rank's phase, or all ranks' together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// Seconds; together: of the slowest.
    pub(super) seconds: f64,
    done: [u64; Operation::COUNT],
    failed: [u64; Operation::COUNT],
    /// Files of each data set that were worked on; together: by the rank that did least.
    pub(super) repeats: u64,
    /// How many of them every rank does when the stonewall was hit; 0 if there is none.
    pub(super) stonewall: u64,
    times: [Histogram; 4],
}

impl Tally {
    pub(super) fn count(&mut self, operation: Operation, is_done: bool) {
        let counts = if is_done { &mut self.done } else { &mut self.failed };
        counts[operation as usize] += 1;
    }

    pub(super) fn time(&mut self, operation: Operation, nanoseconds: u64) {
        if let Some(number) = operation.timed() {
            self.times[number].record(nanoseconds);
        }
    }

    pub(super) fn done(&self, operation: Operation) -> u64 {
        self.done[operation as usize]
    }

    pub(super) fn failed(&self, operation: Operation) -> u64 {
        self.failed[operation as usize]
    }

    pub(super) fn errors(&self) -> u64 {
        self.failed.iter().sum()
    }

    /// The longest time of one operation on a file, in seconds.
    pub(super) fn longest(&self) -> f64 {
        seconds(self.times.iter().map(Histogram::max).max().unwrap_or(0))
    }

    /// Least, quartiles, 90 and 99 percent, and most of the seconds that an operation took, with its name.
    pub(super) fn latencies(&self) -> impl Iterator<Item = (&'static str, [f64; 7])> {
        let used = Operation::TIMED.iter().zip(&self.times).filter(|(_, times)| times.count() > 0);
        used.map(|((_, name), times)| {
            let shares = [0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0];
            (*name, shares.map(|share| seconds(times.quantile(share))))
        })
    }

    pub(super) fn to_words(&self) -> Vec<u64> {
        let mut words = vec![self.seconds.to_bits(), self.repeats, self.stonewall];
        words.extend(self.done.iter().chain(&self.failed));
        for times in &self.times {
            let own = times.to_words();
            words.push(own.len() as u64);
            words.extend(own);
        }
        words
    }

    /// What [`Self::to_words`] returned; what is missing counts nothing.
    pub(super) fn from_words(words: &[u64]) -> Self {
        let mut words = words;
        let (seconds, repeats, stonewall) =
            (f64::from_bits(take(&mut words)), take(&mut words), take(&mut words));
        let done = std::array::from_fn(|_| take(&mut words));
        let failed = std::array::from_fn(|_| take(&mut words));
        let times = std::array::from_fn(|_| {
            let length = usize::try_from(take(&mut words)).unwrap_or(usize::MAX);
            let (own, rest) = words.split_at(length.min(words.len()));
            words = rest;
            Histogram::from_words(own)
        });
        Self { seconds, done, failed, repeats, stonewall, times }
    }

    /// All ranks together.
    pub(super) fn sum(ranks: &[Self]) -> Self {
        let mut all = Self::default();
        for rank in ranks {
            all.seconds = all.seconds.max(rank.seconds);
            all.stonewall = all.stonewall.max(rank.stonewall);
            for number in 0..Operation::COUNT {
                all.done[number] += rank.done[number];
                all.failed[number] += rank.failed[number];
            }
            all.times.iter_mut().zip(&rank.times).for_each(|(own, other)| own.add(other));
        }
        all.repeats = ranks.iter().map(|rank| rank.repeats).min().unwrap_or(0);
        all
    }
}

/// The next word; 0 behind the last.
fn take(words: &mut &[u64]) -> u64 {
    let (first, rest) = words.split_first().unwrap_or((&0, &[]));
    *words = rest;
    *first
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_report_is_put_together() {
        let mut first = Tally { seconds: 2.5, repeats: 7, stonewall: 9, ..Tally::default() };
        first.count(Operation::Create, true);
        first.count(Operation::Stat, false);
        first.time(Operation::Create, 3_000);
        let mut second = Tally { seconds: 1.5, repeats: 5, ..Tally::default() };
        second.count(Operation::Create, true);
        second.time(Operation::Create, 9_000);
        assert_eq!(Tally::from_words(&first.to_words()), first);
        let all = Tally::sum(&[first, second]);
        assert_eq!((all.seconds, all.repeats, all.stonewall, all.errors()), (2.5, 5, 9, 1));
        assert_eq!((all.done(Operation::Create), all.failed(Operation::Stat)), (2, 1));
        assert_eq!(all.longest(), 9e-6);
        let latencies: Vec<_> = all.latencies().collect();
        assert_eq!((latencies.len(), latencies[0].0, latencies[0].1[6]), (1, "create", 9e-6));
    }
}
