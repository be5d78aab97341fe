//! mdtest's result: its table, line by line, and the same as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::plan::Plan;
use super::{Measured, Options, Phase};
use crate::Rate;
use crate::text::exponential;

/// What a row is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Operations a second.
    Rate,
    /// Seconds.
    Time,
}

/// One row: over iterations, each iteration being as fast as its slowest rank; and over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) max: f64,
    pub(super) min: f64,
    pub(super) mean: f64,
    pub(super) deviation: f64,
    rank_max: f64,
    rank_min: f64,
    rank_mean: f64,
}

fn value(measured: &Measured, phase: Phase, unit: Unit, before_barrier: bool) -> f64 {
    let number = phase as usize;
    let time = if before_barrier { measured.before[number] } else { measured.time[number] };
    match unit {
        Unit::Time => time,
        Unit::Rate if measured.items[number] == 0 => 0.0,
        Unit::Rate => measured.items[number] as f64 / time,
    }
}

fn spread(values: &[f64]) -> (f64, f64, f64) {
    let (max, min) = (f64::max as fn(f64, f64) -> f64, f64::min as fn(f64, f64) -> f64);
    let folded = |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick).unwrap_or(0.0);
    let sum: f64 = values.iter().sum();
    (folded(max), folded(min), sum / values.len().max(1) as f64)
}

fn row(measured: &[Vec<Measured>], phase: Phase, unit: Unit) -> Row {
    let iteration = |ranks: &Vec<Measured>| {
        if phase.is_tree() {
            // Of rank 0 alone, in mdtest.
            return ranks.first().map_or(0.0, |rank| value(rank, phase, unit, false));
        }
        let all = ranks.iter().map(|rank| value(rank, phase, unit, false));
        match unit {
            Unit::Time => all.fold(0.0, f64::max),
            Unit::Rate => all.fold(f64::INFINITY, f64::min) * ranks.len() as f64,
        }
    };
    let values: Vec<f64> = measured.iter().map(iteration).collect();
    let (max, min, mean) = spread(&values);
    let squares: f64 = values.iter().map(|value| (mean - value).powi(2)).sum();
    let deviation =
        if values.len() > 1 { (squares / (values.len() - 1) as f64).sqrt() } else { 0.0 };
    let singly: Vec<f64> = match phase.is_tree() {
        true => values,
        false => measured.iter().flatten().map(|rank| value(rank, phase, unit, true)).collect(),
    };
    let (rank_max, rank_min, rank_mean) = spread(&singly);
    Row { max, min, mean, deviation, rank_max, rank_min, rank_mean }
}

/// The phases that the table shows.
fn shown(plan: &Plan) -> impl Iterator<Item = Phase> {
    let (files, directories) = (plan.files, plan.directories);
    Phase::ALL.into_iter().filter(move |phase| {
        phase.is_tree() || if phase.is_of_files() { files } else { directories }
    })
}

/// The rates that stand in the table as means, of phases that ran; of trees only where they are more than one
/// directory. `ranks` is named if the run has several tests.
pub(super) fn rates(plan: &Plan, measured: &[Vec<Measured>], ranks: Option<usize>) -> Vec<Rate> {
    let trees = plan.tree_directories * plan.trees > 1;
    let of = |phase: Phase| {
        let suffix = ranks.map_or(String::new(), |ranks| format!(", {ranks} ranks"));
        let value = row(measured, phase, Unit::Rate).mean;
        Rate { name: format!("{}{suffix}", phase.name()), unit: "ops/s", value }
    };
    let all = shown(plan).filter(|phase| trees || !phase.is_tree()).map(of);
    all.filter(|rate| rate.value > 0.0).collect()
}

/// The table or tables, as asked for.
pub(super) fn tables(options: &Options, plan: &Plan, measured: &[Vec<Measured>]) -> String {
    let units = match (options.rate_and_time, options.print_time) {
        (true, _) => &[Unit::Rate, Unit::Time][..],
        (false, true) => &[Unit::Time],
        (false, false) => &[Unit::Rate],
    };
    let mut text = String::new();
    for unit in units {
        if options.print_all_procs {
            text += &each_rank(plan, measured, *unit);
        }
        text += &table(plan, measured, *unit, options.rank_statistics);
    }
    text
}

fn table(plan: &Plan, measured: &[Vec<Measured>], unit: Unit, with_ranks: bool) -> String {
    let iterations = measured.len();
    let what = match unit {
        Unit::Rate => "rate (in ops/sec)",
        Unit::Time => "time (in sec)",
    };
    let mut text = format!("\nSUMMARY {what}: (of {iterations} iterations)\n");
    let (head, line) = match with_ranks {
        true => (
            "per Rank: Max            Min           Mean      per Iteration:",
            "         ---            ---           ----       ",
        ),
        false => ("               ", ""),
    };
    text += &format!("   Operation     {head} Max            Min           Mean        Std Dev\n");
    text += &format!(
        "   ---------      {line}               ---            ---           ----        -------\n"
    );
    for phase in shown(plan) {
        let row = row(measured, phase, unit);
        // Writing to a string cannot fail.
        let _ = match phase.is_tree() {
            true => write!(text, "   {:<22} ", phase.name()),
            false => write!(text, "   {:<18} ", phase.name()),
        };
        if with_ranks {
            let (max, min, mean) = (row.rank_max, row.rank_min, row.rank_mean);
            let _ = write!(text, "{max:14.3} {min:14.3} {mean:14.3}     ");
        }
        if !phase.is_tree() {
            text += "    ";
        }
        let Row { max, min, mean, deviation, .. } = row;
        let _ = writeln!(text, "{max:14.3} {min:14.3} {mean:14.3} {deviation:14.3}");
    }
    text
}

fn each_rank(plan: &Plan, measured: &[Vec<Measured>], unit: Unit) -> String {
    let what = if unit == Unit::Rate { "rate" } else { "time" };
    let mut text = format!("\nPer process result ({what}):\n");
    for (number, ranks) in measured.iter().enumerate() {
        text += &format!("iteration: {number}\n");
        for phase in shown(plan) {
            let values = ranks.iter().map(|rank| exponential(value(rank, phase, unit, true), 6));
            let values: Vec<String> = values.collect();
            text += &format!("Test {} {}\n", phase.name(), values.join(","));
        }
    }
    text
}

/// Lines that `-v` adds for each iteration.
pub(super) fn verbose(plan: &Plan, measured: &[Vec<Measured>]) -> String {
    let mut text =
        "V-1: Rank   0    Operation               Duration              Rate\n".to_owned();
    for (number, ranks) in measured.iter().enumerate() {
        text += &format!("V-1: Rank   0 main: * iteration {} *\n", number + 1);
        for phase in shown(plan) {
            let one = std::slice::from_ref(ranks);
            let time = row(one, phase, Unit::Time).max;
            let rate = row(one, phase, Unit::Rate).max;
            let name = phase.name();
            text += &format!("V-1: Rank   0    {name:<18}: {time:14.3} sec, {rate:14.3} ops/sec\n");
        }
    }
    text
}

/// All that was measured: for each iteration and phase, and the rows of the table.
pub(super) fn json(plan: &Plan, measured: &[Vec<Measured>]) -> Value {
    let phases: Vec<Phase> = shown(plan).collect();
    let iteration = |ranks: &Vec<Measured>| {
        let phase = |phase: &Phase| {
            let one = std::slice::from_ref(ranks);
            let number = *phase as usize;
            let items = ranks.iter().map(|rank| rank.items[number]);
            let items: u64 = if phase.is_tree() { items.take(1).sum() } else { items.sum() };
            let times: Vec<f64> = ranks.iter().map(|rank| rank.before[number]).collect();
            let value = json!({
                "items": items,
                "time": row(one, *phase, Unit::Time).max,
                "rate": row(one, *phase, Unit::Rate).max,
                "rank_times": times,
            });
            (phase.name().to_owned(), value)
        };
        let mut all: serde_json::Map<String, Value> = phases.iter().map(phase).collect();
        if let Some([time, items, least]) = ranks.first().map(|rank| rank.stonewall)
            && time > 0.0
        {
            let stonewall = json!({"time": time, "items": items as u64, "items_min": least as u64});
            all.insert("stonewall".to_owned(), stonewall);
        }
        Value::Object(all)
    };
    let summary = |phase: &Phase| {
        let Row { max, min, mean, deviation, .. } = row(measured, *phase, Unit::Rate);
        json!({"operation": phase.name(), "max": max, "min": min, "mean": mean,
               "std_dev": deviation})
    };
    json!({
        "iterations": measured.iter().map(iteration).collect::<Vec<_>>(),
        "summary": phases.iter().map(summary).collect::<Vec<_>>(),
    })
}

/// What the columns of [`ranks`] are about. mdtest has one for reading directories, which neither it nor we do.
const COLUMNS: [Option<Phase>; 11] = [
    Some(Phase::DirCreate),
    Some(Phase::DirStat),
    None,
    Some(Phase::DirRename),
    Some(Phase::DirRemove),
    Some(Phase::FileCreate),
    Some(Phase::FileStat),
    Some(Phase::FileRead),
    Some(Phase::FileRemove),
    Some(Phase::TreeCreate),
    Some(Phase::TreeRemove),
];

/// The first line of what [`ranks`] adds to.
pub(super) fn ranks_header() -> String {
    let name = |phase: Option<Phase>| phase.map_or("Directory read", Phase::name);
    let names = COLUMNS.map(|phase| format!(",rate-{0},time-{0}", name(phase)));
    format!("rank,items{}\n", names.concat())
}

/// As mdtest: a line for all ranks in the first iteration, where each phase ends with its last rank; then one
/// for each iteration and rank, to the end of its own work and without the trees.
pub(super) fn ranks(items: u64, measured: &[Vec<Measured>]) -> String {
    let pair = |items: u64, time: f64| match items {
        0 => ",,".to_owned(),
        _ => format!(",{},{}", exponential(items as f64 / time, 10), exponential(time, 10)),
    };
    let all = measured.first().map_or(&[][..], Vec::as_slice);
    let mut text = format!("all,{items}");
    for phase in COLUMNS {
        let Some(phase) = phase else {
            text += ",,";
            continue;
        };
        let number = phase as usize;
        // A tree is made by rank 0, and known to all.
        let ranks = if phase.is_tree() { 1 } else { all.len() };
        let items = all.iter().take(ranks).map(|rank| rank.items[number]).sum();
        text += &pair(items, all.iter().map(|rank| rank.time[number]).fold(0.0, f64::max));
    }
    text.push('\n');
    for (rank, measured) in measured.iter().flat_map(|ranks| ranks.iter().enumerate()) {
        text += &format!("{rank},");
        for phase in COLUMNS.into_iter().filter(|phase| !phase.is_some_and(Phase::is_tree)) {
            text += &phase.map_or(",,".to_owned(), |phase| {
                pair(measured.items[phase as usize], measured.before[phase as usize])
            });
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(items: u64, time: f64) -> Measured {
        let mut measured = Measured::default();
        for phase in Phase::ALL {
            measured.set(phase, items, time, time / 2.0);
        }
        measured
    }

    #[test]
    fn ranks_are_reported_one_by_one() {
        let mut one = measured(100, 2.0);
        one.set(Phase::DirRename, 0, 0.0, 0.0);
        let text = ranks(7, &[vec![one, measured(300, 4.0)], vec![measured(1, 1.0)]]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let columns = ranks_header().split(',').count();
        // The trees are not in the lines of ranks.
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [columns, 20, 20, 20]);
        assert_eq!(lines[0][..4], ["all", "7", "1.0000000000e+02", "4.0000000000e+00"]);
        assert_eq!(
            lines[0][20..22],
            ["2.5000000000e+01", "4.0000000000e+00"],
            "a tree is made once"
        );
        assert_eq!(lines[1][..4], ["0", "", "1.0000000000e+02", "1.0000000000e+00"]);
        assert_eq!((&lines[1][6..8], &lines[1][8..10]), (&["", ""][..], &["", ""][..]));
        assert_eq!((lines[2][0], lines[2][2], lines[3][0]), ("1", "1.5000000000e+02", "0"));
        assert!(
            ranks_header()
                .starts_with("rank,items,rate-Directory creation,time-Directory creation,")
        );
    }

    #[test]
    fn an_iteration_is_as_fast_as_its_slowest_rank() {
        let runs = [vec![measured(100, 1.0), measured(100, 2.0)], vec![measured(100, 4.0); 2]];
        let rate = row(&runs, Phase::FileStat, Unit::Rate);
        assert_eq!((rate.max, rate.min, rate.mean), (100.0, 50.0, 75.0));
        assert!((rate.deviation - 1250f64.sqrt()).abs() < 1e-9);
        assert_eq!((rate.rank_max, rate.rank_min), (200.0, 50.0));
        let time = row(&runs, Phase::FileStat, Unit::Time);
        assert_eq!((time.max, time.min, time.mean), (4.0, 2.0, 3.0));
        let tree = row(&runs, Phase::TreeCreate, Unit::Rate);
        assert_eq!((tree.max, tree.min), (100.0, 25.0));
    }
}
