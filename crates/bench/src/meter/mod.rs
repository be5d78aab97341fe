//! What is measured beside a benchmark's result: how long each operation took, and how many were done when.
//!
//! Only who asks for it ([`crate::Surroundings::meter`]) pays: two looks at the clock for each operation and a step
//! of a histogram of the rank's own, and a thread that reads the ranks' counters ten times a second. No
//! lock and no allocation for an operation: ranks hand over what they have when they end.

mod histogram;

use parking_lot::Mutex;

pub(crate) use histogram::Histogram;

/// How many operations of a phase were done when.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Series {
    /// The phase.
    pub phase: String,
    /// Bytes that each operation moves; 0 if that is not its purpose.
    pub bytes_each: u64,
    /// Seconds since the phase began, and operations of all ranks that had begun by then.
    pub points: Vec<(f64, u64)>,
}

/// Latencies of phases, in the order in which they ran first.
pub(crate) type Latencies = Vec<(String, Histogram)>;

/// Collects from all ranks of all runs that are given it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    latencies: Mutex<Latencies>,
    series: Mutex<Vec<Series>>,
}

impl Meter {
    /// What a rank recorded.
    pub(crate) fn add(&self, of_rank: &Latencies) {
        let mut all = self.latencies.lock();
        of_rank.iter().for_each(|(phase, histogram)| merge(&mut all, phase, histogram));
    }

    /// A phase that has ended.
    pub(crate) fn push(&self, series: Series) {
        if series.points.len() > 1 {
            self.series.lock().push(series);
        }
    }

    /// Takes what another has of the phase `theirs`, and calls it `ours`.
    pub(crate) fn adopt(&self, other: &Self, theirs: &str, ours: &str) {
        for (_, histogram) in other.latencies.lock().iter().filter(|(phase, _)| phase == theirs) {
            merge(&mut self.latencies.lock(), ours, histogram);
        }
        for series in other.series.lock().iter().filter(|series| series.phase == theirs) {
            self.push(Series { phase: ours.to_owned(), ..series.clone() });
        }
    }

    /// All that was collected.
    pub(crate) fn into_parts(self) -> (Latencies, Vec<Series>) {
        (self.latencies.into_inner(), self.series.into_inner())
    }
}

fn merge(all: &mut Latencies, phase: &str, histogram: &Histogram) {
    match all.iter_mut().find(|(name, _)| name == phase) {
        Some((_, own)) => own.add(histogram),
        None => all.push((phase.to_owned(), histogram.clone())),
    }
}

/// One rank's latencies, by phase.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    latencies: Latencies,
    now: usize,
}

impl Recorder {
    /// From now on operations are of this phase.
    pub(crate) fn begin(&mut self, phase: &str) {
        let known = self.latencies.iter().position(|(name, _)| name == phase);
        self.now = known.unwrap_or_else(|| {
            self.latencies.push((phase.to_owned(), Histogram::default()));
            self.latencies.len() - 1
        });
    }

    #[inline]
    pub(crate) fn record(&mut self, nanoseconds: u64) {
        if let Some((_, histogram)) = self.latencies.get_mut(self.now) {
            histogram.record(nanoseconds);
        }
    }

    pub(crate) fn latencies(&self) -> &Latencies {
        &self.latencies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_recorded_is_put_together_by_phase() {
        let meter = Meter::default();
        for rank in 0..3 {
            let mut recorder = Recorder::default();
            recorder.record(1);
            recorder.begin("write");
            recorder.record(rank);
            recorder.begin("read");
            recorder.begin("write");
            recorder.record(10 + rank);
            meter.add(recorder.latencies());
        }
        meter.push(Series {
            phase: "write".into(),
            points: vec![(0.0, 0), (0.1, 5)],
            bytes_each: 4,
        });
        meter.push(Series { phase: "read".into(), points: vec![(0.0, 0)], bytes_each: 4 });
        let outer = Meter::default();
        outer.adopt(&meter, "write", "ior-easy-write");
        let (latencies, series) = outer.into_parts();
        assert_eq!((latencies.len(), series.len()), (1, 1));
        let (name, histogram) = &latencies[0];
        assert_eq!((name.as_str(), histogram.count(), histogram.max()), ("ior-easy-write", 6, 12));
        assert_eq!(series[0].phase, "ior-easy-write");
    }
}
