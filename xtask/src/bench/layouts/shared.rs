//! One file of several writers on two clients, with more and more stripes, beside a file for each.
//!
//! An object's lock belongs to one client at a time where their blocks lie between each other. With at
//! least as many objects as writers, each object is one writer's, and no writer takes a lock from
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
enum Sharing {
    /// A file for each, of one stripe.
    Own,
    /// One file.
    One,
}

/// Stripes on each OST of the one file.
const STRIPES: [u64; 4] = [1, 2, 4, 8];

/// What was measured. Files for each are measured beside each number of stripes of the one file, for
/// their ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Case {
    writers: u64,
    pattern: Pattern,
    stripes: u64,
    target: Sharing,
}

/// All cases.
#[derive(Debug, Serialize)]
pub(super) struct Shared(Vec<Series<Case>>);

/// Measures all of it.
pub(super) fn measure(cluster: &Cluster, amount: Amount) -> Result<Shared, String> {
    let mut all: Vec<Series<Case>> = cases(amount).into_iter().map(Series::new).collect();
    for round in 0..amount.rounds {
        for pair in all.chunks_mut(2) {
            // Who comes first changes, for what the first finds in caches.
            let turns = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for series in turns {
                let series = &mut pair[series];
                eprintln!("round {}: {}", round + 1, series.case.name());
                series.rounds.push(write(cluster, series.case, amount)?);
            }
        }
    }
    Ok(Shared(all))
}

/// In pairs: own files, and one.
fn cases(amount: Amount) -> Vec<Case> {
    let mut cases = Vec::new();
    for writers in if amount.quick { vec![4] } else { vec![2, 4, 8] } {
        for pattern in [Pattern::Apart, Pattern::Interleaved, Pattern::Unaligned] {
            for stripes in STRIPES {
                for target in [Sharing::Own, Sharing::One] {
                    cases.push(Case { writers, pattern, stripes, target });
                }
            }
        }
    }
    cases
}

fn write(cluster: &Cluster, case: Case, amount: Amount) -> Result<Sample, String> {
    let folder = "shared";
    // Of each writer, however many there are: what it takes to get the locks counts alike then.
    let each: u64 = match case.pattern {
        Pattern::Apart | Pattern::Interleaved if amount.quick => 16 << 20,
        Pattern::Apart | Pattern::Interleaved => 256 << 20,
        Pattern::Unaligned if amount.quick => 2 << 20,
        Pattern::Unaligned => 8 << 20,
    };
    let block = case.pattern.block() as u64;
    let count = each / block;
    cluster.folder(folder, &["-c", "1"])?;
    if case.target == Sharing::One {
        let path = cluster.top(0).join(folder).join("file");
        let stripes = (case.stripes * OSTS).to_string();
        cluster.must(&["lfs", "setstripe", "-S", "1M", "-C", &stripes, &path.to_string_lossy()])?;
    }
    let place = |writer: u64| match case.pattern {
        _ if case.target == Sharing::Own => (0, block),
        Pattern::Apart => (writer * count * block, block),
        Pattern::Interleaved | Pattern::Unaligned => (writer * block, case.writers * block),
    };
    let jobs = (0..case.writers).map(|writer| -> Job {
        let name = match case.target {
            Sharing::Own => format!("file-{writer}"),
            Sharing::One => "file".to_owned(),
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
        let Self { writers, pattern, stripes, target } = self;
        let target = match target {
            Sharing::Own => "own files",
            Sharing::One => "one file",
        };
        format!("{writers} writers, {}, {target}, {stripes} stripes on each OST", pattern.name())
    }
}

/// Locks that were asked for, and cancelled one by one, for each block: what writers take from
/// each other.
fn locks(sample: &Sample) -> [f64; 2] {
    ["ldlm_extent_enqueue", "ldlm_cancel"].map(|kind| {
        let count = sample.spent.kinds.get(kind).copied().unwrap_or_default();
        count as f64 / sample.operations.max(1) as f64
    })
}

impl Shared {
    /// What was measured beside each other: own files, and one.
    fn pairs(&self) -> impl Iterator<Item = (&Series<Case>, &Series<Case>)> {
        self.0.chunks_exact(2).map(|pair| (&pair[0], &pair[1]))
    }

    /// The table.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!(
            "Writers on two mounts, half of them on each, {OSTS} OSTs, stripes of {}, synced at the \
             end; each beside a file for each of one stripe. For each block: RPCs, locks asked for, \
             locks cancelled.\n\n\
             | writers | blocks | stripes on each OST | MiB/s | own files | ratio | CPU s/GiB \
             | own files | RPCs | locks asked | cancelled |\n\
             |---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            bytes(STRIPE as u64)
        );
        for (own, one) in self.pairs() {
            let Case { writers, pattern, stripes, .. } = one.case;
            let _ = writeln!(
                text,
                "| {writers} | {} | {stripes} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} \
                 | {:.3} | {:.3} |",
                pattern.name(),
                one.median(Sample::mib_per_second),
                own.median(Sample::mib_per_second),
                one.ratio(own, Sample::mib_per_second),
                one.median(Sample::cpu_per_gib),
                own.median(Sample::cpu_per_gib),
                one.median(Sample::requests),
                one.median(|sample| locks(sample)[0]),
                one.median(|sample| locks(sample)[1]),
            );
        }
        text
    }

    /// The one file's MiB per second as parts of those of own files, of each pattern.
    pub(super) fn plot(&self, folder: &Path) -> Outcome {
        let names = STRIPES.map(|stripes| format!("{stripes}/OST"));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for (file, pattern) in [
            ("shared-apart.svg", Pattern::Apart),
            ("shared-turns.svg", Pattern::Interleaved),
            ("shared-unaligned.svg", Pattern::Unaligned),
        ] {
            let title = format!("MiB/s, one file / own files, {}", pattern.name());
            let mut bars = Bars::new(&title, &names);
            for writers in [2, 4, 8] {
                let is_it = |case: Case| (case.writers, case.pattern) == (writers, pattern);
                let pairs = self.pairs().filter(|(_, one)| is_it(one.case));
                let ratio = |(own, one): (&Series<Case>, &Series<Case>)| {
                    one.ratio(own, Sample::mib_per_second)
                };
                let ratios: Vec<f64> = pairs.map(ratio).collect();
                if ratios.len() == STRIPES.len() {
                    bars.add(format!("{writers} writers"), &ratios);
                }
            }
            plot::draw(&folder.join(file), &bars)?;
        }
        Ok(())
    }
}
