//! Tables, plots and the page of what was measured.

use std::fmt::Write as _;
use std::path::Path;

use sheen_bench::plot::{Bars, number};

use super::{Options, REMOTE_ITEMS, REMOTE_RANKS, Row};
use crate::bench::plural;
use crate::shell::Outcome;

/// All that was measured.
pub(super) struct Report<'a> {
    pub(super) options: &'a Options,
    pub(super) rows: Vec<Row>,
}

/// A phase in one kind of directories, with more and more MDTs.
struct Series<'a> {
    label: String,
    rows: Vec<&'a Row>,
    /// The rate that MDTs are compared with: of the fewest of which operations need as much as with more, by MDT.
    one: f64,
}

impl Series<'_> {
    /// Of linear.
    fn share(&self, row: &Row) -> f64 {
        row.rate / self.one / f64::from(row.mdts)
    }
}

fn label(row: &Row) -> String {
    match row.place.as_str() {
        "unique" => format!("{}, own directories", row.phase),
        "shared" => format!("{}, one striped directory", row.phase),
        _ => format!("{}, on another MDT", row.phase),
    }
}

impl Report<'_> {
    fn series(&self) -> Vec<Series<'_>> {
        let mut all: Vec<Series<'_>> = Vec::new();
        for row in &self.rows {
            let label = label(row);
            match all.iter_mut().find(|series| series.label == label) {
                Some(series) => series.rows.push(row),
                None => {
                    let one = row.rate / f64::from(row.mdts);
                    all.push(Series { label, rows: vec![row], one });
                }
            }
        }
        all
    }

    /// Rates, what they are of linear, and what operations need.
    pub(super) fn tables(&self) -> String {
        let heads: Vec<_> = self.options.mdts.iter().map(|mdts| mdts_of(*mdts)).collect();
        let (columns, line) = (heads.join(" | "), "---:|".repeat(heads.len()));
        let mut text = format!("Operations a second.\n\n| | {columns} |\n|---|{line}\n");
        let all = self.series();
        let table = |cell: &dyn Fn(&Series<'_>, &Row) -> String| {
            let mut lines = String::new();
            for series in &all {
                let cells = self.options.mdts.iter().map(|mdts| {
                    let row = series.rows.iter().find(|row| row.mdts == *mdts);
                    row.map_or_else(|| "-".to_owned(), |row| cell(series, row))
                });
                let cells: Vec<_> = cells.collect();
                let _ = writeln!(lines, "| {} | {} |", series.label, cells.join(" | "));
            }
            lines
        };
        let rates = table(&|_, row| number(row.rate.round()));
        let shares = table(&|series, row| format!("{:.3}", series.share(row)));
        let requests = table(&|_, row| format!("{:.2}", row.requests));
        let uneven = table(&|_, row| format!("{:.3}", row.unevenness));
        text += &rates;
        let head = format!("| | {columns} |\n|---|{line}\n");
        let _ = write!(
            text,
            "\nOf linear: the rate of each MDT, divided by that of the first column.\n\n{head}{shares}\n\
             Requests that MDTs executed for each operation.\n\n{head}{requests}\n\
             Requests of the MDT that had most, divided by the mean of all.\n\n{head}{uneven}\n{}",
            self.kinds()
        );
        text
    }

    /// Of which kinds the requests are, with the most MDTs.
    fn kinds(&self) -> String {
        let mut text =
            "The requests of an operation, with the most MDTs.\n\n| | |\n|---|---|\n".to_owned();
        for series in self.series() {
            let Some(row) = series.rows.last() else { continue };
            let kinds: Vec<_> =
                row.kinds.iter().map(|(name, each)| format!("{each:.2} {name}")).collect();
            let _ = writeln!(text, "| {} | {} |", series.label, kinds.join(", "));
        }
        text
    }

    /// Writes the page with its plots and all numbers.
    pub(super) fn write(&self, folder: &Path, commit: &str) -> Outcome {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(failed)?;
        let rows = serde_json::to_string_pretty(&self.rows).map_err(|error| error.to_string())?;
        let [rates, shares] = self.plots();
        let files = [
            ("README.md", self.readme(commit)),
            ("numbers.json", rows + "\n"),
            ("rates.svg", rates.alone()),
            ("of-linear.svg", shares.alone()),
        ];
        files
            .iter()
            .try_for_each(|(name, text)| std::fs::write(folder.join(name), text).map_err(failed))
    }

    fn plots(&self) -> [Bars; 2] {
        let kinds: Vec<String> = self.options.mdts.iter().map(|mdts| mdts_of(*mdts)).collect();
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        let mut rates = Bars::new("operations a second", &kinds).by_group();
        let mut shares = Bars::new("of linear", &kinds);
        for series in self.series() {
            let of = |value: &dyn Fn(&Row) -> f64| -> Vec<f64> {
                let row = |mdts: &u16| series.rows.iter().find(|row| row.mdts == *mdts);
                self.options
                    .mdts
                    .iter()
                    .map(|mdts| row(mdts).map_or(0.0, |row| value(row)))
                    .collect()
            };
            rates.add(series.label.clone(), &of(&|row| row.rate));
            shares.add(series.label.clone(), &of(&|row| series.share(row)));
        }
        [rates, shares]
    }

    fn readme(&self, commit: &str) -> String {
        let Options { clients, ranks, items, request_cost, network_delay, .. } = self.options;
        let most = 1_000_000 / request_cost.max(&1);
        format!(
            "# Many MDTs: rates in virtual time\n\n\
             Commit {commit}. Made by `cargo xtask bench dne`; the same numbers on any machine, as one seed decides all.\n\n\
             The simulator runs whole clusters, servers and clients as they are, on a network that takes {network_delay} us for each \
             message. Each request takes its MDT {request_cost} us, one after the other: an MDT executes {} requests a second at most. \
             Clients, OSTs and disks cost nothing. {}, {} each, as mdtest: all create and close files, look at those of another client \
             (`-N`; nothing is asked ahead), and remove their own; {} each, after some that are not counted. Directories of their own are \
             spread over the MDTs; the striped one has a stripe on each MDT. A rate is that of the time in which all ranks work, until the \
             first one is through. Names as these hash more evenly than names at random (`layout`: \
             `each_hash_spreads_names_within_three_sigma`), of which one of 16 MDTs would have some 6 % more than the mean.\n\n\
             *On another MDT* is `mkdir -i` and `rmdir` of a directory whose name is on another MDT, by {} of each client, {} directories \
             each: changes over two MDTs, which cost both of them requests, so they are compared with two MDTs. Such a change waits for \
             the group commit of its coordinator ([first stage](../../design/distributed-changes.md)), up to 5 ms here.\n\n\
             {}\n![operations a second](rates.svg)\n![of linear](of-linear.svg)\n\n[numbers.json](numbers.json) has all of it. \
             What a create costs the servers' processors in real time is in [cpu](cpu.md).\n",
            number(most as f64),
            plural(u64::from(*clients), "client", "clients"),
            plural(u64::from(*ranks), "rank", "ranks"),
            plural(*items, "file", "files"),
            plural(u64::from(REMOTE_RANKS), "rank", "ranks"),
            REMOTE_ITEMS,
            self.tables(),
        )
    }
}

fn mdts_of(count: u16) -> String {
    plural(u64::from(count), "MDT", "MDTs")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn row(mdts: u16, place: &str, phase: &str, rate: f64) -> Row {
        let kinds = [("LDLM_INTENT_OPEN".to_owned(), 1.0)].into();
        let (place, phase) = (place.to_owned(), phase.to_owned());
        Row { mdts, place, phase, rate, rate_of_all: rate, requests: 2.0, kinds, unevenness: 1.0 }
    }

    #[test]
    fn rates_are_compared_with_the_fewest_mdts_that_do_the_same() {
        let options = Line::parse_from(["dne", "--mdts", "1,2,4"]).options;
        let rows = vec![
            row(1, "shared", "create", 10_000.0),
            row(2, "shared", "create", 19_000.0),
            row(4, "shared", "create", 36_000.0),
            row(2, "remote", "mkdir", 12_000.0),
            row(4, "remote", "mkdir", 24_000.0),
        ];
        let text = Report { options: &options, rows }.readme("abc");
        for line in [
            "| create, one striped directory | 10,000 | 19,000 | 36,000 |",
            "| create, one striped directory | 1.000 | 0.950 | 0.900 |",
            "| mkdir, on another MDT | - | 12,000 | 24,000 |",
            "| mkdir, on another MDT | - | 1.000 | 1.000 |",
            "an MDT executes 20,000 requests a second",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
