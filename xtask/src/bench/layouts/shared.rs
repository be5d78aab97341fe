//! One file of several writers on two clients, with more and more stripes, beside a file for each.
//!
//! An object's lock belongs to one client at a time where their blocks lie between each other. With at
//! least as many objects as writers, each object is one writer's, and nobody takes a lock from
//! another (overstriping).

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::cluster::{Cluster, Until, job, settle};
use super::plot::{self, Bars};
use super::sample::{Sample, Series};
use super::work::Act;
use super::{Amount, Job};
use crate::bench::bytes;
use crate::shell::Outcome;

/// Bytes of a stripe.
const STRIPE: usize = 1 << 20;
/// Bytes of a block of IOR's hard case in IO500.
const HARD: usize = 47_008;
/// OSTs there are.
const OSTS: u64 = 2;

/// Where a writer's blocks lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Pattern {
    /// Each writer's part of the file is one piece.
    Apart,
    /// Block after block, the writers take turns.
    Interleaved,
    /// The same, of blocks that end anywhere.
    Unaligned,
}

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Self::Apart => "1 MiB blocks, one part for each",
            Self::Interleaved => "1 MiB blocks in turns",
            Self::Unaligned => "47,008-byte blocks in turns",
        }
    }

    fn block(self) -> usize {
        match self {
            Self::Apart | Self::Interleaved => STRIPE,
            Self::Unaligned => HARD,
        }
    }
}

/// What they write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Target {
    /// A file for each, of one stripe.
    Own,
    /// One file, with so many stripes on each OST.
    One(u64),
}

const TARGETS: [Target; 5] =
    [Target::Own, Target::One(1), Target::One(2), Target::One(4), Target::One(8)];

impl Target {
    fn name(self) -> String {
        match self {
            Self::Own => "own files".to_owned(),
            Self::One(stripes) => format!("{stripes}/OST"),
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Case {
    writers: u64,
    pattern: Pattern,
    target: Target,
}

/// All cases.
#[derive(Debug, Serialize)]
pub(super) struct Shared(Vec<Series<Case>>);

/// Measures all of it.
pub(super) fn measure(cluster: &Cluster, amount: Amount) -> Result<Shared, String> {
    let mut all: Vec<Series<Case>> = Vec::new();
    for round in 0..amount.rounds {
        for writers in if amount.quick { vec![4] } else { vec![2, 4, 8] } {
            for pattern in [Pattern::Apart, Pattern::Interleaved, Pattern::Unaligned] {
                // Who comes first changes, for what the first finds in caches.
                let mut targets = TARGETS;
                targets.rotate_left(round as usize % TARGETS.len());
                for target in targets {
                    let case = Case { writers, pattern, target };
                    eprintln!("round {}: {}", round + 1, case.name());
                    let sample = write(cluster, case, amount)?;
                    match all.iter_mut().find(|series| series.case == case) {
                        Some(series) => series.rounds.push(sample),
                        None => all.push(Series { case, rounds: vec![sample] }),
                    }
                }
            }
        }
    }
    let order = |case: Case| TARGETS.iter().position(|target| *target == case.target);
    all.sort_by_key(|series| (series.case.writers, series.case.pattern as u8, order(series.case)));
    Ok(Shared(all))
}

fn write(cluster: &Cluster, case: Case, amount: Amount) -> Result<Sample, String> {
    let folder = "shared";
    let total: u64 = match case.pattern {
        Pattern::Apart | Pattern::Interleaved if amount.quick => 64 << 20,
        Pattern::Apart | Pattern::Interleaved => 256 << 20,
        Pattern::Unaligned if amount.quick => 8 << 20,
        Pattern::Unaligned => 32 << 20,
    };
    let block = case.pattern.block() as u64;
    let count = total / block / case.writers;
    cluster.folder(folder, &["-c", "1"])?;
    if let Target::One(stripes) = case.target {
        let path = cluster.top(0).join(folder).join("file");
        let stripes = (stripes * OSTS).to_string();
        cluster.must(&["lfs", "setstripe", "-S", "1M", "-C", &stripes, &path.to_string_lossy()])?;
    }
    let place = |writer: u64| match case.pattern {
        _ if case.target == Target::Own => (0, block),
        Pattern::Apart => (writer * count * block, block),
        Pattern::Interleaved | Pattern::Unaligned => (writer * block, case.writers * block),
    };
    let jobs = (0..case.writers).map(|writer| -> Job {
        let name = match case.target {
            Target::Own => format!("file-{writer}"),
            Target::One(_) => "file".to_owned(),
        };
        let (first, step) = place(writer);
        let act = Act::Blocks { first, step, count, bytes: case.pattern.block() };
        job(cluster.top(writer).join(folder).join(name), act)
    });
    settle();
    let sample = cluster.spend(jobs.collect(), Until::Closed, count * case.writers * block)?;
    cluster.remove(folder)?;
    Ok(sample)
}

impl Case {
    fn name(self) -> String {
        format!("{} writers, {}, {}", self.writers, self.pattern.name(), self.target.name())
    }
}

/// Locks that were asked for, and given back one by one, for each block: what writers take from
/// each other.
fn locks(sample: &Sample) -> [f64; 2] {
    ["ldlm_extent_enqueue", "ldlm_cancel"].map(|kind| {
        let count = sample.spent.kinds.get(kind).copied().unwrap_or_default();
        count as f64 / sample.operations.max(1) as f64
    })
}

impl Shared {
    fn find(&self, case: Case) -> Option<&Series<Case>> {
        self.0.iter().find(|series| series.case == case)
    }

    /// The table.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!(
            "Writers on two mounts, half of them on each, {OSTS} OSTs, stripes of {}, synced at the \
             end. For each block: RPCs, locks asked for, locks given back.\n\n\
             | writers | blocks | file | MiB/s | / own files | CPU s/GiB | RPCs | locks asked \
             | given back |\n|---:|---|---|---:|---:|---:|---:|---:|---:|\n",
            bytes(STRIPE as u64)
        );
        for series in &self.0 {
            let Case { writers, pattern, target } = series.case;
            let Some(own) = self.find(Case { target: Target::Own, ..series.case }) else {
                continue;
            };
            let _ = writeln!(
                text,
                "| {writers} | {} | {} | {:.0} | {:.2} | {:.2} | {:.2} | {:.3} | {:.3} |",
                pattern.name(),
                target.name(),
                series.median(Sample::mib_per_second),
                series.ratio(own, Sample::mib_per_second),
                series.median(Sample::cpu_per_gib),
                series.median(Sample::requests),
                series.median(|sample| locks(sample)[0]),
                series.median(|sample| locks(sample)[1]),
            );
        }
        text
    }

    /// MiB per second of each pattern.
    pub(super) fn plot(&self, folder: &Path) -> Outcome {
        let names = TARGETS.map(Target::name);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for (file, pattern) in [
            ("shared-apart.svg", Pattern::Apart),
            ("shared-turns.svg", Pattern::Interleaved),
            ("shared-unaligned.svg", Pattern::Unaligned),
        ] {
            let mut bars = Bars::new(&format!("MiB/s, {}", pattern.name()), &names);
            for writers in [2, 4, 8] {
                let of = |target| self.find(Case { writers, pattern, target });
                let rates = TARGETS.map(|target| {
                    of(target).map_or(f64::NAN, |series| series.median(Sample::mib_per_second))
                });
                if rates.iter().all(|rate| rate.is_finite()) {
                    bars.add(format!("{writers} writers"), &rates);
                }
            }
            plot::draw(&folder.join(file), &bars)?;
        }
        Ok(())
    }
}
