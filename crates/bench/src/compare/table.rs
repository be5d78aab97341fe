//! A comparison on a terminal: a row for each phase.

use super::report::{Report, Spread};
use crate::plot::number;

/// `1,234 (1,200-1,300)`; of one round the number alone.
pub(super) fn spread(spread: &Spread, rounds: u32) -> String {
    let median = number(spread.median);
    match rounds {
        1 => median,
        _ => format!("{median} ({}-{})", number(spread.min), number(spread.max)),
    }
}

/// `0.87x (0.85-0.90)`.
pub(super) fn ratio(ratio: &Spread, rounds: u32) -> String {
    match rounds {
        1 => format!("{:.2}x", ratio.median),
        _ => format!("{:.2}x ({:.2}-{:.2})", ratio.median, ratio.min, ratio.max),
    }
}

/// The table, and under it what its numbers are.
pub(super) fn table(report: &Report) -> String {
    let mut rows = vec![vec!["phase".to_owned(), "unit".to_owned()]];
    let first = report.targets.first().map_or("", |target| target.name.as_str());
    for (number, target) in report.targets.iter().enumerate() {
        rows[0].push(target.name.clone());
        if number > 0 {
            rows[0].push(format!("{}/{first}", target.name));
        }
    }
    for phase in &report.phases {
        let mut row = vec![phase.name.clone(), phase.unit.to_owned()];
        for (number, result) in phase.targets.iter().enumerate() {
            row.push(spread(&result.rate, report.rounds));
            if number > 0 {
                row.push(ratio(&result.ratio, report.rounds));
            }
        }
        rows.push(row);
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let cells =
            row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 | 1 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
        let line: Vec<String> = cells.collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text + &match report.rounds {
        1 => "\none round\n".to_owned(),
        rounds => format!("\nmedians of {rounds} rounds (least-most)\n"),
    }
}
