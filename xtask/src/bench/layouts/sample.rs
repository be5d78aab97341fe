//! What was measured, round for round, and its medians.

use serde::Serialize;

use crate::bench::cost::Cost;

/// Requests that no caller waits for when no data is synced: closes are sent when the caller has its
/// answer, dirty bytes later, and locks are cancelled in their time. A test that stops the servers holds
/// this true: testkit's e2e `dom::close_and_write_back_keep_no_caller_waiting`.
const BACKGROUND: &[&str] = &[
    "mds_close",
    "ost_write",
    "ldlm_cancel",
    "obd_ping",
    "ost_destroy",
    "mds_statfs",
    "ost_statfs",
];

/// One thing, measured once.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Sample {
    /// From the word to go to the last end.
    pub(super) seconds: f64,
    /// Files, or blocks.
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) spent: Cost,
}

impl Sample {
    pub(super) fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }

    pub(super) fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.seconds.max(1e-9)
    }

    /// All requests for each operation, pings left out.
    pub(super) fn requests(&self) -> f64 {
        let kinds = self.spent.kinds.iter().filter(|(kind, _)| *kind != "obd_ping");
        self.each(kinds.map(|(_, count)| *count as f64).sum())
    }

    /// Those of them that a caller waited for, where nothing was synced.
    pub(super) fn waited_for(&self) -> f64 {
        let kinds = self.spent.kinds.iter();
        let kinds = kinds.filter(|(kind, _)| !BACKGROUND.contains(&kind.as_str()));
        self.each(kinds.map(|(_, count)| *count as f64).sum())
    }

    pub(super) fn server_micros(&self) -> f64 {
        self.each(self.spent.server_seconds * 1e6)
    }

    pub(super) fn mount_micros(&self) -> f64 {
        self.each(self.spent.mount_seconds * 1e6)
    }

    /// CPU seconds of servers and mounts for each GiB.
    pub(super) fn cpu_per_gib(&self) -> f64 {
        let seconds = self.spent.server_seconds + self.spent.mount_seconds;
        seconds / (self.bytes as f64 / f64::from(1 << 30)).max(1e-9)
    }

    fn each(&self, total: f64) -> f64 {
        total / self.operations.max(1) as f64
    }
}

/// One number of a sample.
pub(super) type Measure = fn(&Sample) -> f64;

/// One case, measured in rounds, each of which measured the other cases, too.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Series<Case> {
    pub(super) case: Case,
    pub(super) rounds: Vec<Sample>,
}

impl<Case> Series<Case> {
    /// Without any round yet.
    pub(super) fn new(case: Case) -> Self {
        Self { case, rounds: Vec::new() }
    }

    /// The middle one of what `measure` says of each round.
    pub(super) fn median(&self, measure: impl Fn(&Sample) -> f64) -> f64 {
        median(self.rounds.iter().map(measure).collect())
    }

    /// The middle one of how this is to `other` in each round.
    pub(super) fn ratio(&self, other: &Self, measure: impl Fn(&Sample) -> f64) -> f64 {
        let pairs = self.rounds.iter().zip(&other.rounds);
        median(pairs.map(|(one, other)| measure(one) / measure(other)).collect())
    }

    /// Requests of each kind for each operation, of the middle round by their number.
    pub(super) fn requests(&self) -> String {
        let mut rounds: Vec<&Sample> = self.rounds.iter().collect();
        rounds.sort_by(|one, other| one.requests().total_cmp(&other.requests()));
        let middle = rounds.get(rounds.len() / 2);
        middle.map_or_else(String::new, |middle| middle.spent.requests_each(middle.operations))
    }
}

/// The middle one; between the two in the middle of an even number.
pub(in crate::bench) fn median(mut values: Vec<f64>) -> f64 {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count => f64::midpoint(values[(count - 1) / 2], values[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64, closes: u64) -> Sample {
        let kinds = [("mds_close", closes), ("ldlm_ibits_enqueue", 20), ("obd_ping", 100)];
        let kinds = kinds.map(|(kind, count)| (kind.to_owned(), count)).into();
        let spent = Cost { server_seconds: 0.5, mount_seconds: 1.5, requests: Some(60), kinds };
        Sample { seconds, operations: 20, bytes: 1 << 29, spent }
    }

    #[test]
    fn medians_are_of_rounds_and_ratios_of_pairs() {
        let fast =
            Series { case: (), rounds: vec![sample(1.0, 20), sample(4.0, 40), sample(2.0, 20)] };
        let slow =
            Series { case: (), rounds: vec![sample(2.0, 20), sample(4.0, 20), sample(8.0, 20)] };
        assert_eq!(fast.median(Sample::per_second), 10.0);
        assert_eq!(fast.median(Sample::mib_per_second), 256.0);
        assert_eq!(fast.ratio(&slow, Sample::per_second), 2.0);
        assert_eq!(fast.median(Sample::requests), 2.0);
        assert_eq!(fast.median(Sample::waited_for), 1.0);
        assert_eq!(fast.median(Sample::server_micros), 25_000.0);
        assert_eq!(fast.median(Sample::cpu_per_gib), 4.0);
        assert_eq!(median(vec![3.0, 1.0]), 2.0);
        assert!(median(vec![f64::NAN]).is_nan());
    }
}
