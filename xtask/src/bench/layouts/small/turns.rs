//! DoM and OST in turns of some files each: what else goes on here slows both down alike, so that
//! their ratio is the surest of all numbers of time.

use std::fmt::Write as _;

use serde::Serialize;

use super::Layout;
use crate::bench::layouts::Amount;
use crate::bench::layouts::cluster::{Cluster, job, settle};
use crate::bench::layouts::sample::median;
use crate::bench::layouts::work::{Act, Files, TURNS, Turn};

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

/// Files per second of each layout, round for round.
#[derive(Debug, Default, Serialize)]
struct Row {
    what: &'static str,
    dom: Vec<f64>,
    ost: Vec<f64>,
}

/// All rows.
#[derive(Debug, Serialize)]
pub(super) struct Turns(Vec<Row>);

/// Measures all of it.
pub(super) fn measure(cluster: &Cluster, amount: Amount) -> Result<Turns, String> {
    let count = if amount.quick { 500 } else { 2000 };
    let mut rows: Vec<Row> =
        STEPS.iter().map(|(what, ..)| Row { what, ..Row::default() }).collect();
    for round in 0..amount.rounds {
        eprintln!("round {}: DoM and OST in turns", round + 1);
        let name = format!("turns-{round}");
        cluster.folder(&name, Layout::Ost.words())?;
        for (folder, layout) in TURNS.iter().zip([Layout::Dom, Layout::Ost]) {
            cluster.folder(&format!("{name}/{folder}"), layout.words())?;
        }
        for ((_, what, cold), row) in STEPS.iter().zip(&mut rows) {
            settle();
            if *cold {
                cluster.forget()?;
            }
            let files = Files { writer: 0, count, bytes: BYTES };
            let act = Act::Turns { what: *what, files };
            let done = cluster.race(vec![job(cluster.top(0).join(&name), act)])?[0];
            row.dom.push(count as f64 / done.turns[0]);
            row.ost.push(count as f64 / done.turns[1]);
        }
        cluster.remove(&name)?;
    }
    Ok(Turns(rows))
}

impl Turns {
    /// The table.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!(
            "The same, DoM and OST in turns of a few files of {} KiB each, by one process.\n\n\
             | each file | files/s DoM | OST | DoM / OST |\n|---|---:|---:|---:|\n",
            BYTES >> 10
        );
        for Row { what, dom, ost } in &self.0 {
            let ratios = dom.iter().zip(ost).map(|(dom, ost)| dom / ost).collect();
            let (dom, ost) = (median(dom.clone()), median(ost.clone()));
            let _ = writeln!(text, "| {what} | {dom:.0} | {ost:.0} | {:.2} |", median(ratios));
        }
        text
    }
}
