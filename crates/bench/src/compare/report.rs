//! What a comparison has found: medians, ratios, latencies and rates over time. Its JSON is this, field by field.

use serde::Serialize;

use super::run::Reached;
use super::target::{ComparedFs, ComparedFsReport};
use crate::machine::Machine;
use crate::meter::{Histogram, Series};

const MIB: f64 = crate::text::MIB;

/// A whole comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// What it is called.
    pub title: String,
    /// Of the program.
    pub version: String,
    /// Where it ran.
    pub machine: Machine,
    /// When, in UTC.
    pub began: String,
    /// And when it was done.
    pub finished: String,
    /// The words of the user.
    pub command_line: Vec<String>,
    /// Those of the benchmark.
    pub benchmark: Vec<String>,
    /// How often each target was measured.
    pub rounds: u32,
    /// The targets, the one that the rest is compared with first.
    pub targets: Vec<ComparedFsReport>,
    /// The benchmark's phases.
    pub phases: Vec<Phase>,
}

/// One phase on all targets.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Phase {
    /// As the benchmark calls it.
    pub name: String,
    /// Of the rates: the more the better.
    pub unit: &'static str,
    /// In the order of [`Report::targets`].
    pub targets: Vec<TargetResult>,
}

/// One phase on one target.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TargetResult {
    /// What each round reached.
    pub rounds: Vec<f64>,
    /// Of the rounds.
    pub rate: Spread,
    /// Of the rates by those of the first target in the same round.
    pub ratio: Spread,
    /// How long operations took, in all rounds together; none where the benchmark counts otherwise.
    pub latency: Option<Latency>,
    /// How fast it went when.
    pub throughput: Vec<Track>,
}

/// Median, least and most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of no value: zeros.
    #[must_use]
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let half = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            1 => sorted[half],
            _ => f64::midpoint(sorted[half - 1], sorted[half]),
        };
        Self { median, min: *min, max: *max }
    }
}

/// Nanoseconds that operations took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Latency {
    /// How many there were.
    pub operations: u64,
    /// Half of them took at most this.
    pub p50: u64,
    /// Nine of ten.
    pub p90: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1000.
    pub p99_9: u64,
    /// The longest.
    pub max: u64,
}

impl Latency {
    fn of(histogram: &Histogram) -> Self {
        Self {
            operations: histogram.count(),
            p50: histogram.quantile(0.5),
            p90: histogram.quantile(0.9),
            p99: histogram.quantile(0.99),
            p99_9: histogram.quantile(0.999),
            max: histogram.max(),
        }
    }

    /// Its times in the order of a plot's row.
    pub(super) fn row(&self) -> crate::plot::Row {
        [self.p50, self.p90, self.p99, self.p99_9, self.max]
    }
}

/// How fast a phase went in one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Track {
    /// The round, from 1.
    pub round: usize,
    /// `ops/s` or `MiB/s`.
    pub unit: &'static str,
    /// Seconds since the phase began, and the rate since the point before.
    pub points: Vec<(f64, f64)>,
}

impl Track {
    fn of(round: usize, series: &Series) -> Self {
        let factor = if series.bytes_each > 0 { series.bytes_each as f64 / MIB } else { 1.0 };
        let unit = if series.bytes_each > 0 { "MiB/s" } else { "ops/s" };
        let rate = |pair: &[(f64, u64)]| {
            let [(from, before), (to, now)] = *pair else { return None };
            // Samples that come at once say nothing of a rate.
            let apart = to - from > 1e-3;
            apart.then(|| (to, now.saturating_sub(before) as f64 * factor / (to - from)))
        };
        Self { round, unit, points: series.points.windows(2).filter_map(rate).collect() }
    }
}

/// Sets the runs beside each other. Phases that not every run has are left out.
pub(super) fn phases(targets: &[ComparedFs], rounds: &[Vec<Reached>]) -> Vec<Phase> {
    let first = rounds.first().and_then(|round| round.first());
    let rates = first.map_or(&[][..], |reached| &reached.rates);
    let phase = |rate: &crate::Rate| {
        let of = |target: usize| -> Option<Vec<f64>> {
            rounds.iter().map(|round| value(round.get(target)?, &rate.name)).collect()
        };
        let values: Option<Vec<Vec<f64>>> = (0..targets.len()).map(of).collect();
        let values = values?;
        let results = values
            .iter()
            .enumerate()
            .map(|(number, own)| result(own, &values[0], &rate.name, rounds, number));
        Some(Phase { name: rate.name.clone(), unit: rate.unit, targets: results.collect() })
    };
    rates.iter().filter_map(phase).collect()
}

fn value(reached: &Reached, phase: &str) -> Option<f64> {
    reached.rates.iter().find(|rate| rate.name == phase).map(|rate| rate.value)
}

fn result(
    own: &[f64],
    first: &[f64],
    phase: &str,
    rounds: &[Vec<Reached>],
    target: usize,
) -> TargetResult {
    let ratios = own.iter().zip(first).filter(|(_, first)| **first > 0.0);
    let ratios: Vec<f64> = ratios.map(|(own, first)| own / first).collect();
    let mut histogram = Histogram::default();
    let mut throughput = Vec::new();
    for (round, reached) in rounds.iter().enumerate() {
        let reached = &reached[target];
        for (_, other) in reached.latencies.iter().filter(|(name, _)| name == phase) {
            histogram.add(other);
        }
        let series = reached.series.iter().filter(|series| series.phase == phase);
        throughput.extend(series.map(|series| Track::of(round + 1, series)));
    }
    TargetResult {
        rounds: own.to_vec(),
        rate: Spread::of(own),
        ratio: Spread::of(&ratios),
        latency: (histogram.count() > 0).then(|| Latency::of(&histogram)),
        throughput,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_median() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]);
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert!((Spread::of(&[1.0, 2.0, 3.0, 10.0]).median - 2.5).abs() < 1e-12);
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn a_track_is_made_of_differences() {
        let points = vec![(0.0, 0), (0.1, 100), (0.1, 100), (0.3, 500)];
        let series = Series { phase: "write".into(), bytes_each: 0, points };
        let track = Track::of(2, &series);
        assert_eq!((track.round, track.unit, track.points.len()), (2, "ops/s", 2));
        assert!(
            (track.points[0].1 - 1000.0).abs() < 1e-6 && (track.points[1].1 - 2000.0).abs() < 1e-6
        );
        let track = Track::of(1, &Series { bytes_each: 1 << 20, ..series });
        assert!(track.unit == "MiB/s" && (track.points[0].1 - 1000.0).abs() < 1e-6);
    }
}
