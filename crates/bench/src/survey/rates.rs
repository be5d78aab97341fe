//! From what targets report to what a table shows, as the scripts compute it.

use std::fmt::Write as _;

use super::device::Progress;

/// A rate with its extremes; what is missing could not be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rates {
    /// Something failed.
    Error,
    /// No interval was long enough to be measured.
    Short,
    /// Mean over targets, and the smallest and largest interval of any.
    Measured { mean: f64, least: f64, most: f64 },
}

/// Smallest and largest rate among a target's intervals.
fn extremes(one: &Progress) -> Option<(f64, f64)> {
    let rates = one.intervals.iter().map(|interval| interval.rate);
    rates.fold(None, |known, rate| {
        let (least, most) = known.unwrap_or((rate, rate));
        Some((rate.min(least), rate.max(most)))
    })
}

fn mean(one: &Progress) -> f64 {
    one.operations as f64 / one.seconds.max(1e-9)
}

/// Of all targets together. A test that has no interval counts with its mean if `mean_if_short`, as
/// `mds-survey` does; otherwise it is too short.
pub(super) fn of(all: &[Progress], mean_if_short: bool) -> Rates {
    let failed = |one: &Progress| one.failed.is_some() || !one.ended;
    if all.is_empty() || all.iter().any(failed) {
        return Rates::Error;
    }
    let mut rates: Option<(f64, f64, f64)> = None;
    for one in all {
        let Some((least, most)) =
            extremes(one).or_else(|| mean_if_short.then(|| (mean(one), mean(one))))
        else {
            return Rates::Short;
        };
        let (sum, low, high) = rates.unwrap_or((0.0, least, most));
        rates = Some((sum + mean(one), low.min(least), high.max(most)));
    }
    let (sum, least, most) = rates.unwrap_or_default();
    Rates::Measured { mean: sum / all.len() as f64, least, most }
}

/// What the file of details says of one target in a test.
pub(super) fn detail(one: &Progress, threads: u32) -> String {
    let mut text = String::new();
    for interval in &one.intervals {
        let _ = writeln!(text, "{}/{threads} Total: {:.6}/second", interval.active, interval.rate);
    }
    if let Some(failed) = &one.failed {
        let _ = writeln!(text, "error: {failed}");
    }
    let (total, seconds) = (one.operations, one.seconds);
    let rate = mean(one);
    let _ =
        writeln!(text, "Total: total {total} threads {threads} sec {seconds:.6} {rate:.6}/second");
    text
}

#[cfg(test)]
mod tests {
    use super::super::device::Interval;
    use super::*;

    fn progress(operations: u64, seconds: f64, rates: &[f64]) -> Progress {
        let intervals = rates.iter().map(|&rate| Interval { active: 4, rate }).collect();
        Progress { operations, seconds, intervals, ended: true, failed: None }
    }

    #[test]
    fn extremes_are_of_any_target_and_the_mean_is_of_all() {
        let all = [progress(100, 4.0, &[20.0, 30.0]), progress(300, 4.0, &[70.0, 80.0, 60.0])];
        let wanted = Rates::Measured { mean: 50.0, least: 20.0, most: 80.0 };
        assert_eq!(of(&all, false), wanted);
        assert_eq!(of(&all, true), wanted);
    }

    #[test]
    fn a_short_test_has_its_mean_only_where_the_script_says_so() {
        let all = [progress(100, 0.5, &[])];
        assert_eq!(of(&all, false), Rates::Short);
        assert_eq!(of(&all, true), Rates::Measured { mean: 200.0, least: 200.0, most: 200.0 });
    }

    #[test]
    fn one_failure_is_that_of_all() {
        let failed = Progress { failed: Some("x".to_owned()), ..progress(1, 1.0, &[1.0]) };
        assert_eq!(of(&[progress(1, 1.0, &[1.0]), failed], true), Rates::Error);
        assert_eq!(of(&[], true), Rates::Error);
    }

    #[test]
    fn details_are_what_the_tool_of_the_scripts_prints() {
        let text = detail(&progress(100, 2.5, &[40.0]), 4);
        let wanted = "4/4 Total: 40.000000/second\n\
                      Total: total 100 threads 4 sec 2.500000 40.000000/second\n";
        assert_eq!(text, wanted);
    }
}
