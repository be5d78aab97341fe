//! What md-workbench prints: a line for each phase, one for each rank if asked for, and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::options::Options;
use super::tally::{Operation, Tally};
use crate::text::exponential;

const MIB: f64 = 1_048_576.0;

/// Columns of `--print-detailed-stats`.
pub(super) const DETAILS: &str = "phase\t\td name\tcreate\tdelete\tob nam\tcreate\tread\tstat\tdelete\tt_inc_b\tt_no_bar\tthp\tmax_t\n";

/// The phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Precreate,
    Benchmark,
    Cleanup,
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Precreate => "precreate",
            Self::Benchmark => "benchmark",
            Self::Cleanup => "cleanup",
        }
    }
}

/// Operations of the benchmark on one file.
pub(super) fn in_turn(options: &Options) -> u64 {
    if options.read_only { 2 } else { 4 }
}

/// A phase that has ended.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) phase: Phase,
    pub(super) waiting: f64,
    pub(super) ranks: Vec<Tally>,
    /// All ranks together.
    pub(super) all: Tally,
}

impl Report {
    /// Operations a second: what the phase is about.
    pub(super) fn rate(&self, options: &Options) -> f64 {
        rate(self.phase, &self.all, options)
    }

    /// The lines of the phase.
    pub(super) fn lines(&self, options: &Options) -> String {
        let mut text = match options.detailed {
            true => details(self.phase, &self.all, options),
            false => self.line(&self.all, true, options),
        };
        text.push('\n');
        for (number, rank) in self.ranks.iter().enumerate().filter(|_| options.process_reports) {
            let line = match options.detailed {
                true => details(self.phase, rank, options),
                false => self.line(rank, false, options),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{number}: {line}");
        }
        text
    }

    fn line(&self, tally: &Tally, is_all: bool, options: &Options) -> String {
        let mut line = format!("{} process max:{:.2}s ", self.phase.name(), tally.seconds);
        if is_all {
            line += &self.balance();
        }
        line += &counts(self.phase, tally, options);
        let _ = write!(line, " op-max:{}s", exponential(tally.longest(), 4));
        if self.waiting > 1e-9 {
            let _ = write!(line, " waiting_factor:{:.2}", self.waiting);
        }
        match tally.errors() {
            0 if options.quiet => {}
            0 => line += " (0 errs)",
            errors => {
                let _ = write!(line, " ({errors} errs!!!)");
            }
        }
        if !options.quiet && tally.stonewall > 0 {
            let _ = write!(line, " stonewall-iter:{}", tally.stonewall);
        }
        for (name, times) in tally.latencies() {
            let times = times.map(|time| format!("{}s", exponential(time, 4)));
            let _ = write!(line, " {name}({})", times.join(", "));
        }
        line
    }

    /// How the times of ranks differ.
    fn balance(&self) -> String {
        let times = || self.ranks.iter().map(|rank| rank.seconds);
        let (least, most) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
        let count = self.ranks.len() as f64;
        let mean = times().sum::<f64>() / count;
        let squares: f64 = times().map(|time| (mean - time).powi(2)).sum();
        let deviation = if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        let balance = least / most.max(f64::MIN_POSITIVE) * 100.0;
        format!("min:{least:.2}s mean: {mean:.2}s balance:{balance:.1} stddev:{deviation:.1} ")
    }

    pub(super) fn json(&self, options: &Options) -> Value {
        let one = |tally: &Tally| {
            let counted = |get: fn(&Tally, Operation) -> u64| {
                json!({"dset_create": get(tally, Operation::SetCreate),
                    "dset_delete": get(tally, Operation::SetDelete),
                    "create": get(tally, Operation::Create), "read": get(tally, Operation::Read),
                    "stat": get(tally, Operation::Stat), "delete": get(tally, Operation::Delete)})
            };
            let latencies = tally.latencies().map(|(name, times)| {
                let [min, q1, median, q3, q90, q99, max] = times;
                let spread = json!({"min": min, "q1": q1, "median": median, "q3": q3, "q90": q90,
                    "q99": q99, "max": max});
                (name.to_owned(), spread)
            });
            json!({"seconds": tally.seconds, "done": counted(Tally::done),
                "failed": counted(Tally::failed), "repeats": tally.repeats,
                "op_max": tally.longest(),
                "latencies": Value::Object(latencies.collect())})
        };
        let mut json = one(&self.all);
        json["phase"] = json!(self.phase.name());
        json["rate"] = json!(self.rate(options));
        json["waiting_factor"] = json!(self.waiting);
        json["stonewall_iterations"] = json!(self.all.stonewall);
        json["ranks"] = self.ranks.iter().map(one).collect();
        json
    }
}

fn per_second(count: u64, tally: &Tally) -> f64 {
    count as f64 / tally.seconds.max(1e-9)
}

fn rate(phase: Phase, tally: &Tally, options: &Options) -> f64 {
    let done = |operation| tally.done(operation);
    let count = match phase {
        Phase::Precreate => done(Operation::SetCreate) + done(Operation::Create),
        Phase::Benchmark => done(Operation::Read) * in_turn(options),
        Phase::Cleanup => done(Operation::Delete) + done(Operation::SetDelete),
    };
    per_second(count, tally)
}

/// MiB a second that were written and read.
fn throughput(tally: &Tally, options: &Options) -> f64 {
    let files = tally.done(Operation::Create) + tally.done(Operation::Read);
    per_second(files, tally) * options.bytes as f64 / MIB
}

fn counts(phase: Phase, tally: &Tally, options: &Options) -> String {
    let done = |operation| tally.done(operation);
    let each = |operation| per_second(tally.done(operation), tally);
    let (rate, throughput) = (rate(phase, tally, options), throughput(tally, options));
    match phase {
        Phase::Precreate => format!(
            "rate:{rate:.1} iops/s dsets: {} objects:{} rate:{:.3} dset/s rate:{:.1} obj/s tp:{throughput:.1} MiB/s",
            done(Operation::SetCreate),
            done(Operation::Create),
            each(Operation::SetCreate),
            each(Operation::Create),
        ),
        Phase::Benchmark => format!(
            "rate:{rate:.1} iops/s objects:{} rate:{:.1} obj/s tp:{throughput:.1} MiB/s",
            done(Operation::Read),
            each(Operation::Read),
        ),
        Phase::Cleanup => format!(
            "rate:{rate:.1} iops/s objects:{} dsets: {} rate:{:.1} obj/s rate:{:.3} dset/s",
            done(Operation::Delete),
            done(Operation::SetDelete),
            each(Operation::Delete),
            each(Operation::SetDelete),
        ),
    }
}

/// The columns of [`DETAILS`]; below them what failed, if something did.
fn details(phase: Phase, tally: &Tally, options: &Options) -> String {
    let columns = |get: fn(&Tally, Operation) -> u64| {
        let all = [
            Operation::SetCreate,
            Operation::SetDelete,
            Operation::Create,
            Operation::Read,
            Operation::Stat,
            Operation::Delete,
        ];
        all.map(|operation| get(tally, operation).to_string()).join("\t")
    };
    let (name, seconds) = (phase.name(), tally.seconds);
    let mut line = format!(
        "{name} \t{}\t{seconds:.3}s\t{seconds:.3}s\t{:.2} MiB/s {}",
        columns(Tally::done),
        throughput(tally, options),
        exponential(tally.longest(), 4),
    );
    if tally.errors() > 0 {
        let _ = write!(line, "\n{name} err\t{}", columns(Tally::failed));
    }
    line
}
