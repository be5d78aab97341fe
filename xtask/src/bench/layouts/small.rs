//! Small files, whole in their inode's object on the MDT (DoM) or in one object on an OST.

mod turns;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::cluster::{Cluster, Until, job, settle};
use super::plot::{self, Bars};
use super::sample::{Measure, Sample, Series};
use super::work::{Act, Files};
use super::{Amount, Job};
use crate::bench::{bytes, plural};
use crate::shell::Outcome;

/// Where a file's bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Layout {
    Dom,
    Ost,
}

impl Layout {
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Dom => &["-E", "64K", "-L", "mdt", "-E", "-1", "-c", "1"],
            Self::Ost => &["-c", "1"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Dom => "DoM",
            Self::Ost => "OST",
        }
    }
}

/// What is done with each file, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Step {
    /// Create, write, close.
    Create,
    /// Attributes, when the client knows nothing.
    StatCold,
    /// Open, read, close, names being known.
    ReadNamed,
    /// Open, read, close, when the client knows nothing.
    ReadCold,
    /// The same once more: the data lies in the machine's kernel.
    ReadAgain,
    /// Attributes once more.
    StatAgain,
}

const STEPS: [Step; 6] = [
    Step::Create,
    Step::StatCold,
    Step::ReadNamed,
    Step::ReadCold,
    Step::ReadAgain,
    Step::StatAgain,
];

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create+write+close",
            Self::StatCold => "stat, cold",
            Self::ReadNamed => "open+read+close, names known",
            Self::ReadCold => "open+read+close, cold",
            Self::ReadAgain => "open+read+close, again",
            Self::StatAgain => "stat, again",
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Case {
    layout: Layout,
    step: Step,
    bytes: usize,
    processes: u64,
    /// Whether all processes work in one directory.
    shared: bool,
}

impl Case {
    fn name(self) -> String {
        let place = if self.shared { "shared directory" } else { "own directories" };
        format!(
            "{}, {}, {}, {place}",
            self.step.name(),
            bytes(self.bytes as u64),
            plural(self.processes, "process", "processes")
        )
    }

    fn with(self, layout: Layout, step: Step) -> Self {
        Self { layout, step, ..self }
    }
}

/// All cases.
#[derive(Debug, Serialize)]
pub(super) struct Small {
    series: Vec<Series<Case>>,
    turns: turns::Turns,
}

/// Measures all of it.
pub(super) fn measure(cluster: &Cluster, amount: Amount) -> Result<Small, String> {
    let mut all: Vec<Series<Case>> = Vec::new();
    let count = if amount.quick { 300 } else { 1000 };
    for round in 0..amount.rounds {
        for (number, case) in groups(amount.quick).into_iter().enumerate() {
            // Who comes first changes, for what the first finds in caches.
            let turns = match round % 2 {
                0 => [Layout::Dom, Layout::Ost],
                _ => [Layout::Ost, Layout::Dom],
            };
            for layout in turns {
                let name = format!("small-{round}-{number}-{}", layout.name());
                eprintln!("round {}: {}, {}", round + 1, layout.name(), case.name());
                for (step, sample) in steps(cluster, &name, case.with(layout, case.step), count)? {
                    let case = case.with(layout, step);
                    let known = all.iter().position(|series| series.case == case);
                    let place = known.unwrap_or_else(|| {
                        all.push(Series::new(case));
                        all.len() - 1
                    });
                    all[place].rounds.push(sample);
                }
            }
        }
    }
    Ok(Small { series: all, turns: turns::measure(cluster, amount)? })
}

/// Each group is measured by all layouts, step after step.
fn groups(quick: bool) -> Vec<Case> {
    let mut groups = Vec::new();
    for bytes in [4 << 10, 16 << 10, 64 << 10] {
        for (processes, shared) in [(1, false), (2, false), (2, true)] {
            if !quick || (bytes == 4 << 10 && !shared) {
                let (layout, step) = (Layout::Dom, Step::Create);
                groups.push(Case { layout, step, bytes, processes, shared });
            }
        }
    }
    groups
}

fn steps(
    cluster: &Cluster,
    name: &str,
    case: Case,
    count: u64,
) -> Result<Vec<(Step, Sample)>, String> {
    let folder = |writer: u64| match case.shared {
        true => name.to_owned(),
        false => format!("{name}/{writer}"),
    };
    cluster.folder(name, case.layout.words())?;
    for writer in 0..case.processes {
        cluster.folder(&folder(writer), case.layout.words())?;
    }
    let jobs = |act: fn(Files) -> Act| -> Vec<Job> {
        let files = |writer| Files { writer, count, bytes: case.bytes };
        let path = |writer| -> PathBuf { cluster.top(0).join(folder(writer)) };
        (0..case.processes).map(|writer| job(path(writer), act(files(writer)))).collect()
    };
    let bytes = case.bytes as u64 * count * case.processes;
    let mut samples = Vec::new();
    for step in STEPS {
        let (act, until): (fn(Files) -> Act, _) = match step {
            Step::Create => (Act::Create, Until::Written),
            Step::StatCold | Step::StatAgain => (Act::Stat, Until::Closed),
            Step::ReadNamed | Step::ReadCold | Step::ReadAgain => (Act::Read, Until::Closed),
        };
        settle();
        if matches!(step, Step::StatCold | Step::ReadCold) {
            cluster.forget()?;
        }
        samples.push((step, cluster.spend(jobs(act), until, bytes)?));
    }
    cluster.remove(name)?;
    Ok(samples)
}

impl Small {
    fn find(&self, case: Case) -> Option<&Series<Case>> {
        self.series.iter().find(|series| series.case == case)
    }

    /// The table.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::from(
            "Small files. RPCs of each file: those that a caller waited for, and all. CPU in \
             microseconds of each file: servers, mount.\n\n\
             | each file | files/s DoM | OST | DoM / OST | waited DoM | OST | RPCs DoM | OST \
             | server CPU DoM | OST | mount CPU DoM | OST |\n\
             |---|---:|---:|---:|---:|---:|---|---|---:|---:|---:|---:|\n",
        );
        for dom in self.series.iter().filter(|series| series.case.layout == Layout::Dom) {
            let Some(ost) = self.find(dom.case.with(Layout::Ost, dom.case.step)) else { continue };
            let both = |measure: Measure| (dom.median(measure), ost.median(measure));
            let (rate, waited) = (both(Sample::per_second), both(Sample::waited_for));
            let (server, mount) = (both(Sample::server_micros), both(Sample::mount_micros));
            let _ = writeln!(
                text,
                "| {} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0} |",
                dom.case.name(),
                rate.0,
                rate.1,
                dom.ratio(ost, Sample::per_second),
                waited.0,
                waited.1,
                dom.requests(),
                ost.requests(),
                server.0,
                server.1,
                mount.0,
                mount.1,
            );
        }
        text + "\n" + &self.turns.markdown()
    }

    /// Files per second and CPU time, of one process in a directory of its own.
    pub(super) fn plot(&self, folder: &Path) -> Outcome {
        let measures: [(_, _, Measure); 2] = [
            ("small-rate.svg", "files per second, one process", Sample::per_second),
            ("small-cpu.svg", "CPU of servers and mount, microseconds of each file", |sample| {
                sample.server_micros() + sample.mount_micros()
            }),
        ];
        for (name, title, measure) in measures {
            let mut bars = Bars::new(title, &["DoM", "OST"]);
            for dom in &self.series {
                let Case { layout, processes, shared, step, .. } = dom.case;
                // What the machine's kernel answers by itself would hide all the rest.
                let asks = step != Step::StatAgain;
                if layout != Layout::Dom || processes != 1 || shared || !asks {
                    continue;
                }
                let Some(ost) = self.find(dom.case.with(Layout::Ost, dom.case.step)) else {
                    continue;
                };
                let label = format!("{}, {}", dom.case.step.name(), bytes(dom.case.bytes as u64));
                bars.add(label, &[dom.median(measure), ost.median(measure)]);
            }
            plot::draw(&folder.join(name), &bars)?;
        }
        Ok(())
    }
}
