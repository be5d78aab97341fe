//! The numbers as a table for people and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::load::Phase;
use crate::bench::cost::Cost;
use crate::bench::machine::machine;
use crate::bench::place::{KINDS, Kind};

/// One phase at one place.
pub(super) struct Row {
    pub(super) phase: Phase,
    pub(super) place: &'static str,
    pub(super) seconds: f64,
    pub(super) operations: u64,
    pub(super) spent: Cost,
}

impl Row {
    /// Operations, or MiB of a stream, per second.
    fn rate(&self) -> f64 {
        let units = if self.phase.is_stream() {
            self.operations as f64 * self.phase.bytes as f64 / f64::from(1 << 20)
        } else {
            self.operations as f64
        };
        units / self.seconds.max(1e-9)
    }

    /// Requests per operation, and which; the many kinds of which there are next to none left out.
    fn requests(&self) -> String {
        self.spent.requests_each(self.operations)
    }

    fn per_operation(&self, total: f64) -> f64 {
        total / self.operations.max(1) as f64
    }
}

/// All rows, and the memory after many files.
pub(super) struct Report {
    rows: Vec<Row>,
    memory: Option<([u64; 2], u64)>,
}

impl Report {
    pub(super) fn new() -> Self {
        Self { rows: Vec::new(), memory: None }
    }

    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Resident KiB of server and mount after so many files in one directory.
    pub(super) fn memory(&mut self, kib: [u64; 2], files: u64) {
        self.memory = Some((kib, files));
    }

    /// The table, with date and machine above.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("{}\n\n", machine());
        text += "| per second | local | through FUSE | Sheen | Sheen / local | Sheen / FUSE \
                 | server CPU us/op | mount CPU us/op | RPCs/op |\n";
        text += "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        for sheen in self.rows.iter().filter(|row| row.place == Kind::Sheen.name()) {
            let name = sheen.phase.name();
            let rate = |kind: Kind| {
                let same = |row: &&Row| row.place == kind.name() && row.phase.name() == name;
                self.rows.iter().find(same).map_or(f64::NAN, Row::rate)
            };
            let [local, fuse, own] = [KINDS[0], KINDS[1], KINDS[2]].map(rate);
            let unit = if sheen.phase.is_stream() { " (MiB)" } else { "" };
            let micros = |seconds: f64| sheen.per_operation(seconds * 1e6);
            let requests = sheen.requests();
            let _ = writeln!(
                text,
                "| {name}{unit} | {local:.0} | {fuse:.0} | {own:.0} | {:.2} | {:.2} | {:.1} | {:.1} | {requests} |",
                own / local,
                own / fuse,
                micros(sheen.spent.server_seconds),
                micros(sheen.spent.mount_seconds),
            );
        }
        if let Some(([server, mount], files)) = self.memory {
            let _ = write!(
                text,
                "\nResident after {files} files in one directory: server {} MiB, mount {} MiB.",
                server >> 10,
                mount >> 10
            );
        }
        text
    }

    /// Everything measured.
    pub(super) fn json(&self) -> Result<String, String> {
        let row = |row: &Row| {
            json!({
                "name": row.phase.name(), "place": row.place, "phase": row.phase,
                "seconds": row.seconds, "per_second": row.rate(), "spent": row.spent,
            })
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        let memory = self.memory.map(|([server, mount], files)| {
            json!({ "files": files, "server_kib": server, "mount_kib": mount })
        });
        let all = json!({ "machine": machine(), "rows": rows, "memory": memory });
        serde_json::to_string_pretty(&all).map_err(|error| error.to_string())
    }
}
