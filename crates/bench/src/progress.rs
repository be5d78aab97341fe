//! How far a benchmark is, on a terminal: what is done, how much of all, how fast, how long still.
//!
//! Ranks count in counters of their own, each in a cache line of its own; a thread reads them a few times a
//! second and only if standard error is a terminal. Ranks in other processes are not seen: what is shown is
//! then rank 0's part times the number of ranks.
//!
//! Where a program measures ([`Meter`]), another thread reads the counters every [`SAMPLE`].

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock;
use crate::meter::{Meter, Series};

/// How often the line is written anew.
const REDRAW: Duration = Duration::from_millis(250);

/// How often a rate over time is sampled.
const SAMPLE: Duration = Duration::from_millis(100);

/// A counter alone in its cache line, and in that of its neighbour, which processors fetch along.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// One more. Only its rank writes it, so this needs no atomic addition.
    #[inline]
    pub(crate) fn count(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is being done.
#[derive(Clone, Debug, Default)]
struct Phase {
    name: String,
    /// Operations of all ranks; 0 if unknown.
    total: u64,
    /// The sum of the counters when it began.
    counted: u64,
    begin: f64,
    /// What was sampled of it.
    series: Series,
}

/// The counters of all ranks and the phase they are in.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    counters: Vec<Counter>,
    /// Ranks that one counter stands for.
    weight: u64,
    phase: Mutex<Phase>,
    meter: Option<&'a Meter>,
}

impl<'a> Progress<'a> {
    /// For `seen` ranks in this process out of `size`.
    pub(crate) fn new(seen: usize, size: usize, meter: Option<&'a Meter>) -> Self {
        let counters = (0..seen).map(|_| Counter::default()).collect();
        Self { counters, weight: (size / seen.max(1)) as u64, phase: Mutex::default(), meter }
    }

    /// Who measures.
    pub(crate) fn meter(&self) -> Option<&'a Meter> {
        self.meter
    }

    pub(crate) fn counter(&self, rank: usize) -> &Counter {
        &self.counters[rank]
    }

    /// A phase of `total` operations begins.
    pub(crate) fn begin(&self, name: &str, total: u64, bytes_each: u64) {
        let (counted, begin) = (self.sum(), clock::now());
        let series = Series { phase: name.to_owned(), bytes_each, points: vec![(0.0, 0)] };
        *self.phase.lock() = Phase { name: name.to_owned(), total, counted, begin, series };
    }

    /// The phase is over.
    pub(crate) fn end(&self) {
        let mut phase = std::mem::take(&mut *self.phase.lock());
        if let Some(meter) = self.meter {
            self.take_sample(&mut phase);
            meter.push(phase.series);
        }
    }

    fn take_sample(&self, phase: &mut Phase) {
        let point = (clock::now() - phase.begin, self.sum().saturating_sub(phase.counted));
        phase.series.points.push(point);
    }

    /// Samples until `done` is set; nothing unless a program measures.
    pub(crate) fn sample(&self, done: &AtomicBool) {
        while self.meter.is_some() && !done.load(Ordering::Relaxed) {
            std::thread::park_timeout(SAMPLE);
            let mut phase = self.phase.lock();
            if !phase.name.is_empty() {
                self.take_sample(&mut phase);
            }
        }
    }

    fn sum(&self) -> u64 {
        self.counters.iter().map(Counter::value).sum::<u64>() * self.weight
    }

    fn line(&self) -> String {
        let phase = self.phase.lock().clone();
        let done = self.sum().saturating_sub(phase.counted);
        let seconds = (clock::now() - phase.begin).max(1e-3);
        let rate = done as f64 / seconds;
        let mut line = format!("{}: {done}", phase.name);
        if phase.total > 0 {
            let _ = write!(line, " of {} ({}%)", phase.total, 100 * done / phase.total);
        }
        let _ = write!(line, ", {rate:.0}/s");
        if phase.total > done && done > 0 {
            let _ = write!(line, ", {:.0} s left", (phase.total - done) as f64 / rate);
        }
        line
    }

    /// Takes the line off the terminal until it is written anew.
    pub(crate) fn hide(&self) {
        let mut terminal = std::io::stderr();
        if terminal.is_terminal() {
            draw(&mut terminal, "");
        }
    }

    /// Shows the line until `done` is set; nothing unless standard error is a terminal.
    pub(crate) fn show(&self, done: &AtomicBool) {
        let mut terminal = std::io::stderr();
        if !terminal.is_terminal() {
            return;
        }
        while !done.load(Ordering::Relaxed) {
            std::thread::park_timeout(REDRAW);
            let runs = !self.phase.lock().name.is_empty();
            draw(&mut terminal, &if runs { self.line() } else { String::new() });
        }
        draw(&mut terminal, "");
    }
}

fn draw(terminal: &mut std::io::Stderr, line: &str) {
    // A terminal that has gone is no reason to end.
    let _ = write!(terminal, "\r\x1b[K{line}").and_then(|()| terminal.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_what_is_done_and_left() {
        let meter = Meter::default();
        let progress = Progress::new(2, 4, Some(&meter));
        progress.counter(0).count();
        progress.begin("File creation", 40, 0);
        for _ in 0..5 {
            progress.counter(0).count();
            progress.counter(1).count();
        }
        let line = progress.line();
        assert!(line.starts_with("File creation: 20 of 40 (50%), "), "{line}");
        assert!(line.ends_with(" s left"), "{line}");
        progress.end();
        progress.begin("Tree", 0, 0);
        assert!(progress.line().starts_with("Tree: 0, 0/s"), "{}", progress.line());
        let (_, series) = meter.into_parts();
        assert_eq!((series.len(), series[0].phase.as_str()), (1, "File creation"));
        assert_eq!(series[0].points.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [0, 20]);
    }
}
