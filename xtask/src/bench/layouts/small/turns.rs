//! DoM and OST in turns of some files each: what else goes on here slows both down alike, so that
//! their ratio is the surest of all numbers of time.

use std::fmt::Write as _;

use serde::Serialize;

use super::Layout;
use crate::bench::layouts::Amount;
use crate::bench::layouts::cluster::{Cluster, job, settle};
use crate::bench::layouts::sample::median;
use crate::bench::layouts::work::{Act, Files, TURNS, Turn};
use crate::bench::plural;
use crate::shell::Outcome;

/// Bytes of each file.
const BYTES: usize = 4096;

/// What is measured; whether the clients forget everything before.
const STEPS: [(&str, Turn, bool); 5] = [
    ("create+write+close", Turn::Create, false),
    ("stat, cold", Turn::Stat, true),
    ("open+read+close, names known", Turn::Read, false),
    ("open+read+close, cold", Turn::Read, true),
    ("open+read+close, again", Turn::Read, false),
];

/// Processes that do it at once. Two of them take no turns with each other: while the one reads from
/// the MDT the other one may read from OSTs.
const PROCESSES: [u64; 2] = [1, 2];

/// Files per second of each layout, round for round.
#[derive(Debug, Default, Serialize)]
struct Row {
    what: &'static str,
    processes: u64,
    dom: Vec<f64>,
    ost: Vec<f64>,
}

/// All rows.
#[derive(Debug, Serialize)]
pub(super) struct Turns(Vec<Row>);

/// Measures all of it.
pub(super) fn measure(cluster: &Cluster, amount: Amount) -> Result<Turns, String> {
    let count = if amount.quick { 500 } else { 2000 };
    let mut rows = Vec::new();
    for processes in PROCESSES {
        rows.extend(STEPS.map(|(what, ..)| Row { what, processes, ..Row::default() }));
    }
    for round in 0..amount.rounds {
        for rows in rows.chunks_mut(STEPS.len()) {
            one_round(cluster, round, count, rows)?;
        }
    }
    Ok(Turns(rows))
}

fn one_round(cluster: &Cluster, round: u32, count: u64, rows: &mut [Row]) -> Outcome {
    let processes = rows[0].processes;
    eprintln!(
        "round {}: DoM and OST in turns, {}",
        round + 1,
        plural(processes, "process", "processes")
    );
    let name = format!("turns-{round}-{processes}");
    cluster.folder(&name, Layout::Ost.words())?;
    for (folder, layout) in TURNS.iter().zip([Layout::Dom, Layout::Ost]) {
        cluster.folder(&format!("{name}/{folder}"), layout.words())?;
    }
    for ((_, what, cold), row) in STEPS.iter().zip(rows) {
        settle();
        if *cold {
            cluster.forget()?;
        }
        let act = |writer| Act::Turns { what: *what, files: Files { writer, count, bytes: BYTES } };
        let path = cluster.top(0).join(&name);
        let done =
            cluster.race((0..processes).map(|writer| job(path.clone(), act(writer))).collect())?;
        let rate = |layout: usize| done.iter().map(|done| count as f64 / done.turns[layout]).sum();
        row.dom.push(rate(0));
        row.ost.push(rate(1));
    }
    cluster.remove(&name)
}

impl Turns {
    /// The table.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!(
            "The same, DoM and OST in turns of a few files of {} KiB each.\n\n\
             | each file | files/s DoM | OST | DoM / OST |\n|---|---:|---:|---:|\n",
            BYTES >> 10
        );
        for Row { what, processes, dom, ost } in &self.0 {
            let by = plural(*processes, "process", "processes");
            let ratios = dom.iter().zip(ost).map(|(dom, ost)| dom / ost).collect();
            let (dom, ost) = (median(dom.clone()), median(ost.clone()));
            let _ =
                writeln!(text, "| {what}, {by} | {dom:.0} | {ost:.0} | {:.2} |", median(ratios));
        }
        text
    }
}
