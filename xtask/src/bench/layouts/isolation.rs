//! A stream beside a writer of small files: what each leaves to the other.
//!
//! The stream reads a large file on all OSTs by one mount, past the kernel's pages; the writer makes
//! files of 4 KiB by another, on the OSTs or on the MDT, synced one by one or not.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::Amount;
use super::cluster::{Cluster, job, settle};
use super::plot::{self, Bars};
use super::sample::median;
use super::work::Act;
use crate::shell::Outcome;

/// Bytes of a small file.
const BYTES: usize = 4096;
/// Bytes of the stream's file, and of the blocks it is made of.
const STREAM: u64 = 256 << 20;
const STREAM_BLOCK: usize = 1 << 20;

/// Where small files go, whether each is synced, and the words that say so to `lfs setstripe`.
const WRITERS: [(&str, bool, &[&str]); 4] = [
    ("OST", false, &["-c", "1"]),
    ("DoM", false, &["-E", "64K", "-L", "mdt", "-E", "-1", "-c", "1"]),
    ("OST, synced", true, &["-c", "1"]),
    ("DoM, synced", true, &["-E", "64K", "-L", "mdt", "-E", "-1", "-c", "1"]),
];

/// Files per second, MiB per second of the stream, round for round.
#[derive(Debug, Default, Serialize)]
struct Row {
    writer: &'static str,
    alone: Vec<f64>,
    beside: Vec<f64>,
    stream_beside: Vec<f64>,
}

/// All rows, and the stream alone.
#[derive(Debug, Serialize)]
pub(super) struct Isolation {
    rows: Vec<Row>,
    stream: Vec<f64>,
}

/// Measures all of it.
pub(super) fn measure(cluster: &Cluster, amount: Amount) -> Result<Isolation, String> {
    let seconds = if amount.quick { 1.5 } else { 4.0 };
    let folder = "isolation";
    cluster.folder(folder, &["-c", "-1"])?;
    let file = cluster.top(1).join(folder).join("stream");
    let count = STREAM / STREAM_BLOCK as u64;
    let step = STREAM_BLOCK as u64;
    cluster.race(vec![job(
        file.clone(),
        Act::Blocks { first: 0, step, count, bytes: STREAM_BLOCK },
    )])?;
    let stream = || job(file.clone(), Act::StreamFor { seconds });
    let mib = |rate: f64| rate * (STREAM_BLOCK as f64 / f64::from(1 << 20));
    let rows = WRITERS.map(|(writer, ..)| Row { writer, ..Row::default() });
    let mut all = Isolation { rows: rows.into(), stream: Vec::new() };
    for round in 0..amount.rounds {
        eprintln!("round {}: a stream alone", round + 1);
        all.stream.push(mib(cluster.race(vec![stream()])?[0].rate()));
        for ((name, sync, layout), row) in WRITERS.iter().zip(&mut all.rows) {
            eprintln!("round {}: small files ({name}) beside a stream", round + 1);
            let own = |name: &str| -> Result<_, String> {
                cluster.folder(name, layout)?;
                let act = Act::CreateFor { seconds, bytes: BYTES, sync: *sync };
                settle();
                Ok(job(cluster.top(0).join(name), act))
            };
            row.alone.push(cluster.race(vec![own("alone")?])?[0].rate());
            cluster.remove("alone")?;
            let done = cluster.race(vec![own("beside")?, stream()])?;
            cluster.remove("beside")?;
            row.beside.push(done[0].rate());
            row.stream_beside.push(mib(done[1].rate()));
        }
    }
    cluster.remove(folder)?;
    Ok(all)
}

impl Row {
    /// What the stream leaves of the writer, round for round.
    fn left(&self) -> f64 {
        median(self.beside.iter().zip(&self.alone).map(|(beside, alone)| beside / alone).collect())
    }
}

impl Isolation {
    /// The table.
    pub(super) fn markdown(&self) -> String {
        let stream = median(self.stream.clone());
        let mut text = format!(
            "Files of 4 KiB made beside a stream of reads from the OSTs; the stream alone: \
             {stream:.0} MiB/s.\n\n\
             | small files on | files/s alone | beside the stream | left | stream MiB/s | left |\n\
             |---|---:|---:|---:|---:|---:|\n"
        );
        for row in &self.rows {
            let beside = median(row.stream_beside.clone());
            let _ = writeln!(
                text,
                "| {} | {:.0} | {:.0} | {:.2} | {beside:.0} | {:.2} |",
                row.writer,
                median(row.alone.clone()),
                median(row.beside.clone()),
                row.left(),
                beside / stream,
            );
        }
        text
    }

    /// Files per second alone and beside the stream.
    pub(super) fn plot(&self, folder: &Path) -> Outcome {
        let mut bars = Bars::new("files of 4 KiB per second", &["alone", "beside a stream"]);
        for row in &self.rows {
            let values = [median(row.alone.clone()), median(row.beside.clone())];
            bars.add(row.writer.to_owned(), &values);
        }
        plot::draw(&folder.join("isolation.svg"), &bars)
    }
}
