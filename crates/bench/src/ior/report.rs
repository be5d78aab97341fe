//! IOR's result: its blocks and tables, line by line, as JSON and as CSV.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;

use super::job::{Answer, Point};
use super::params::{Format, Params};
use crate::backend::Space;
use crate::text::{MIB, exponential, human};
use crate::{Api, Rate};

/// JSON whose members keep their order: IOR's.
pub(super) enum Json {
    Object(Vec<(&'static str, Json)>),
    Array(Vec<Json>),
    Value(Value),
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::Array(all) => {
                let mut array = serializer.serialize_seq(Some(all.len()))?;
                all.iter().try_for_each(|one| array.serialize_element(one))?;
                array.end()
            }
            Self::Object(all) => {
                let mut object = serializer.serialize_map(Some(all.len()))?;
                all.iter().try_for_each(|(name, value)| object.serialize_entry(name, value))?;
                object.end()
            }
        }
    }
}

impl<T: Into<Value>> From<T> for Json {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

/// A number with four places, as IOR writes them.
fn real(number: f64) -> Json {
    ((number * 1e4).round() / 1e4).into()
}

/// What one access reached, times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reached {
    pub(super) writes: bool,
    /// Bytes a second.
    pub(super) bandwidth: f64,
    pub(super) operations: f64,
    pub(super) latency: f64,
    pub(super) open: f64,
    pub(super) transfers: f64,
    pub(super) close: f64,
    pub(super) total: f64,
    pub(super) repetition: u32,
}

impl Reached {
    /// The numbers of its row, with their names in JSON.
    fn numbers(&self, params: &Params) -> [(&'static str, f64); 9] {
        [
            ("bwMiB", self.bandwidth / MIB),
            ("iops", self.operations),
            ("latency", self.latency),
            ("blockKiB", params.block as f64 / 1024.0),
            ("xferKiB", params.transfer as f64 / 1024.0),
            ("openTime", self.open),
            ("wrRdTime", self.transfers),
            ("closeTime", self.close),
            ("totalTime", self.total),
        ]
    }
}

/// Where `iops` and `latency` stand in IOR's JSON: behind the sizes.
const JSON_ORDER: [usize; 9] = [0, 3, 4, 1, 2, 5, 6, 7, 8];

/// A row of the table of accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Row {
    Access(Reached),
    Remove { time: f64, repetition: u32 },
}

fn access(writes: bool) -> &'static str {
    if writes { "write" } else { "read" }
}

/// The head of the table of accesses.
pub(super) fn table_header(format: Format) -> &'static str {
    match format {
        Format::Default => {
            "\naccess    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   \
             close(s)   total(s)   iter\n------    ---------  ----       ----------  ---------- \
             ---------  --------   --------   --------   --------   ----\n"
        }
        Format::Csv => {
            "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),\
             numTasks,iter\n"
        }
        Format::Json => "",
    }
}

/// The first line of what [`ranks`] adds to.
pub(super) const RANKS_HEADER: &str =
    "access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput\n";

/// A line for each rank: seconds of the whole access and of its transfers, and bytes a second of both, of
/// `bytes` that are shared out evenly.
pub(super) fn ranks(writes: bool, times: &[Vec<f64>], bytes: f64) -> String {
    let (access, share) = (access(writes), bytes / times.len() as f64);
    let line = |(rank, times): (usize, &Vec<f64>)| {
        let (whole, transfers) = (times[5] - times[0], times[3] - times[2]);
        let numbers = [whole, transfers, share / whole, share / transfers];
        let numbers = numbers.map(|number| exponential(number, 10)).join(",");
        format!("{access},{rank},{numbers}\n")
    };
    times.iter().enumerate().map(line).collect()
}

/// A number in ten columns: the smaller, the more places.
fn column(number: f64) -> String {
    match number {
        number if number < 0.0 => "   -      ".to_owned(),
        number if number < 1.0 => format!("{number:<10.6}"),
        number if number < 3600.0 => format!("{number:<10.2}"),
        number => format!("{number:<10.0}"),
    }
}

/// The line of a row; nothing in JSON, which comes as a whole.
pub(super) fn row(params: &Params, row: &Row) -> String {
    match (params.format, row) {
        (Format::Json, _) | (Format::Csv, Row::Remove { .. }) => String::new(),
        (Format::Default, Row::Remove { time, repetition }) => {
            let none =
                "-          -          -           -          -          -          -          -";
            format!("remove    {none}          {} {repetition:<4}\n", column(*time))
        }
        (Format::Csv, Row::Access(reached)) => {
            let numbers = reached.numbers(params).map(|(_, number)| format!("{number:.4},"));
            let (tasks, repetition) = (params.tasks, reached.repetition);
            format!("{},{}{tasks},{repetition}\n", access(reached.writes), numbers.concat())
        }
        (Format::Default, Row::Access(reached)) => {
            let mut text = format!("{:<10}", access(reached.writes));
            for (name, number) in reached.numbers(params) {
                text += &column(number);
                text += if name == "latency" { "  " } else { " " };
            }
            text + &format!("{:<4}\n", reached.repetition)
        }
    }
}

/// What is printed where no status file keeps it.
pub(super) fn pairs(format: Format, pairs: u64) -> String {
    match format {
        Format::Default => format!("Pairs deadlineForStonewallingaccessed: {pairs}\n"),
        _ => String::new(),
    }
}

/// The nodes of a run.
#[derive(Clone, Copy)]
pub(super) struct Nodes {
    pub(super) count: usize,
    pub(super) in_each: usize,
}

fn api(params: &Params) -> &'static str {
    match params.api {
        Api::Posix => "POSIX",
        Api::Native => "NATIVE",
    }
}

/// The block of options.
pub(super) fn options(params: &Params, nodes: Nodes) -> Vec<(&'static str, Json)> {
    let text = |text: &str| Json::from(text);
    let mut all = vec![
        ("api", text(api(params))),
        ("apiVersion", text("")),
        ("test filename", text(&params.file)),
        (
            "access",
            text(if params.file_per_rank { "file-per-process" } else { "single-shared-file" }),
        ),
        ("type", text(if params.collective { "collective" } else { "independent" })),
        ("segments", params.segments.into()),
        (
            "ordering in a file",
            text(if params.random_offset > 0 { "random" } else { "sequential" }),
        ),
    ];
    let reorder = params.reorder;
    let ordering = match (reorder.constant, reorder.random) {
        (true, _) => "constant task offset",
        (_, 0) => "no tasks offsets",
        _ => "random task offset",
    };
    all.push(("ordering inter file", text(ordering)));
    if reorder.constant || reorder.random > 0 {
        all.push(("task offset", reorder.node_offset.into()));
    }
    if reorder.random > 0 {
        all.push(("reorder random seed", reorder.seed.into()));
    }
    all.extend([
        ("nodes", nodes.count.into()),
        ("tasks", params.tasks.into()),
        ("clients per node", nodes.in_each.into()),
        ("repetitions", params.repetitions.into()),
        ("xfersize", text(&human(params.transfer))),
        ("blocksize", text(&human(params.block))),
        ("aggregate filesize", text(&human(params.total()))),
    ]);
    if params.verbose > 0 {
        all.push(("verbose", params.verbose.into()));
    }
    if params.deadline > 0 {
        all.push(("stonewallingTime", params.deadline.into()));
        all.push(("stoneWallingWearOut", u8::from(params.wear_out).into()));
    }
    all
}

/// Where the files are and how full it is there.
pub(super) fn capacity(path: &str, space: Space) -> [(&'static str, Json); 5] {
    let used = |free: u64, all: u64| (1.0 - free as f64 / all.max(1) as f64) * 100.0;
    let gib = space.bytes as f64 / (1u64 << 30) as f64;
    let size = match gib > 1024.0 {
        true => format!("{:.1} TiB", gib / 1024.0),
        false => format!("{gib:.1} GiB"),
    };
    [
        ("Path", path.into()),
        ("Capacity", size.into()),
        ("Used Capacity", format!("{:.1}%", used(space.bytes_free, space.bytes)).into()),
        ("Inodes", format!("{:.1} Mi", space.files as f64 / MIB).into()),
        ("Used Inodes", format!("{:.1}%", used(space.files_free, space.files)).into()),
    ]
}

/// `KEY                 : VALUE`.
pub(super) fn line(key: &str, value: &Json) -> String {
    let value = match value {
        Json::Value(Value::String(text)) => text.clone(),
        Json::Value(value) => value.to_string(),
        Json::Object(_) | Json::Array(_) => String::new(),
    };
    format!("{key:<20}: {value}\n")
}

/// Largest, smallest, mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    max: f64,
    min: f64,
    mean: f64,
    deviation: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count().max(1) as f64;
        let mean = values.clone().sum::<f64>() / count;
        let squares: f64 = values.clone().map(|value| (mean - value).powi(2)).sum();
        Self {
            max: values.clone().fold(0.0, f64::max),
            min: values.reduce(f64::min).unwrap_or(0.0),
            mean,
            deviation: (squares / count).sqrt(),
        }
    }
}

/// The accesses that a summary shows.
fn accesses<'a>(params: &Params, answer: &'a Answer) -> Vec<(bool, &'a [Point])> {
    let mut all = Vec::new();
    if params.write {
        all.push((true, &answer.writes[..]));
    }
    if params.read || params.check_read {
        all.push((false, &answer.reads[..]));
    }
    all
}

struct Summary {
    bytes: Spread,
    operations: Spread,
    mean_time: f64,
    stonewall: Option<(f64, f64)>,
    moved: f64,
}

fn summary(params: &Params, points: &[Point]) -> Summary {
    let rates = points.iter().map(|point| point.moved as f64 / point.time);
    let transfer = params.transfer as f64;
    let walls: f64 = points.iter().map(|point| point.stonewall_time).sum();
    let bytes: u64 = points.iter().map(|point| point.stonewall_mean).sum();
    let count = points.len().max(1) as f64;
    Summary {
        bytes: Spread::of(rates.clone()),
        operations: Spread::of(rates.map(|rate| rate / transfer)),
        mean_time: points.iter().map(|point| point.time).sum::<f64>() / count,
        stonewall: params.wear_out.then(|| (walls / count, bytes as f64 / walls.max(1e-9))),
        moved: points.first().map_or(0.0, |point| point.moved as f64),
    }
}

/// Head of the table of summaries.
pub(super) const SUMMARY_HEADER: &str = "\nOperation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   \
    Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) Stonewall(s) Stonewall(MiB) Test# #Tasks \
    tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize aggs(MiB)   API RefNum\n";

/// The rows of a test in the table of summaries.
pub(super) fn summary_rows(params: &Params, answer: &Answer, test: usize, nodes: Nodes) -> String {
    let row = |(writes, points): (bool, &[Point])| {
        let summary = summary(params, points);
        let mut text = format!("{:<9} ", access(writes));
        for (spread, unit) in [(summary.bytes, MIB), (summary.operations, 1.0)] {
            for number in [spread.max, spread.min, spread.mean, spread.deviation] {
                text += &format!("{:10.2} ", number / unit);
            }
        }
        text += &format!("{:10.5} ", summary.mean_time);
        text += &match summary.stonewall {
            Some((time, rate)) => format!("{time:10.2} {:13.2} ", rate / MIB),
            None => format!("{:>10} {:>13} ", "NA", "NA"),
        };
        let reorder = params.reorder;
        text + &format!(
            "{test:5} {:6} {:3} {:4} {:3} {:5} {:8} {:9} {:4} {:6} {:8} {:8} {:9.1} {:>3} {:6}\n",
            params.tasks,
            nodes.in_each,
            params.repetitions,
            u8::from(params.file_per_rank),
            u8::from(reorder.constant),
            reorder.node_offset,
            reorder.random,
            reorder.seed,
            params.segments,
            params.block,
            params.transfer,
            summary.moved / MIB,
            api(params),
            params.reference,
        )
    };
    accesses(params, answer).into_iter().map(row).collect()
}

/// Means over repetitions, of accesses that were made. `test` is named if the run has several.
pub(super) fn rates(answer: &Answer, test: Option<usize>) -> Vec<Rate> {
    let suffix = test.map_or(String::new(), |test| format!(", test {test}"));
    let of = |(name, points): (&str, &Vec<Point>)| {
        let rates = points.iter().map(|point| point.moved as f64 / point.time / MIB);
        let value = rates.sum::<f64>() / points.len().max(1) as f64;
        Rate { name: format!("{name}{suffix}"), unit: "MiB/s", value }
    };
    let all = [("write", &answer.writes), ("read", &answer.reads)];
    all.into_iter().filter(|(_, points)| !points.is_empty()).map(of).collect()
}

/// `Max Write:` and `Max Read:`, in bytes a second.
fn best(points: &[Point]) -> f64 {
    points.iter().map(|point| point.moved as f64 / point.time).fold(0.0, f64::max)
}

/// The lines about the best of each access.
pub(super) fn best_lines(params: &Params, answer: &Answer) -> String {
    let line = |(writes, points): (bool, &[Point])| {
        let (best, what) = (best(points), if writes { "Max Write:" } else { "Max Read: " });
        format!("{what} {:.2} MiB/sec ({:.2} MB/sec)\n", best / MIB, best / 1e6)
    };
    accesses(params, answer).into_iter().map(line).collect()
}

/// Results of a test, and the best of each access.
pub(super) fn results(params: &Params, answer: &Answer) -> [(&'static str, Json); 2] {
    let row = |row: &Row| match *row {
        Row::Remove { time, .. } => {
            Json::Object(vec![("access", "remove".into()), ("totalTime", real(time))])
        }
        Row::Access(ref reached) => {
            let numbers = reached.numbers(params);
            let mut all = vec![("access", access(reached.writes).into())];
            all.extend(JSON_ORDER.map(|place| (numbers[place].0, real(numbers[place].1))));
            Json::Object(all)
        }
    };
    let mut most = Vec::new();
    for (writes, points) in accesses(params, answer) {
        let best = best(points);
        let (mib, mb) = if writes { ("writeMiB", "writeMB") } else { ("readMiB", "readMB") };
        most.extend([(mib, real(best / MIB)), (mb, real(best / 1e6))]);
    }
    let rows = answer.rows.iter().map(row).collect();
    [("Results", Json::Array(rows)), ("max", Json::Object(most))]
}

/// The summaries of a test.
pub(super) fn summaries(params: &Params, answer: &Answer, test: usize, nodes: Nodes) -> Vec<Json> {
    let one = |(writes, points): (bool, &[Point])| {
        let summary = summary(params, points);
        let reorder = params.reorder;
        let mut all: Vec<(&'static str, Json)> = vec![
            ("operation", access(writes).into()),
            ("API", api(params).into()),
            ("TestID", test.into()),
            ("ReferenceNumber", params.reference.into()),
            ("segmentCount", params.segments.into()),
            ("blockSize", params.block.into()),
            ("transferSize", params.transfer.into()),
            ("numTasks", params.tasks.into()),
            ("tasksPerNode", nodes.in_each.into()),
            ("repetitions", params.repetitions.into()),
            ("filePerProc", u8::from(params.file_per_rank).into()),
            ("reorderTasks", u8::from(reorder.constant).into()),
            ("taskPerNodeOffset", reorder.node_offset.into()),
            ("reorderTasksRandom", reorder.random.into()),
            ("reorderTasksRandomSeed", reorder.seed.into()),
            ("bwMaxMIB", real(summary.bytes.max / MIB)),
            ("bwMinMIB", real(summary.bytes.min / MIB)),
            ("bwMeanMIB", real(summary.bytes.mean / MIB)),
            ("bwStdMIB", real(summary.bytes.deviation / MIB)),
            ("OPsMax", real(summary.operations.max)),
            ("OPsMin", real(summary.operations.min)),
            ("OPsMean", real(summary.operations.mean)),
            ("OPsSD", real(summary.operations.deviation)),
            ("MeanTime", real(summary.mean_time)),
        ];
        if let Some((time, rate)) = summary.stonewall {
            all.push(("StoneWallTime", real(time)));
            all.push(("StoneWallbwMeanMIB", real(rate / MIB)));
        }
        all.push(("xsizeMiB", real(summary.moved / MIB)));
        Json::Object(all)
    };
    accesses(params, answer).into_iter().map(one).collect()
}

/// All parameters of a test, as IOR names them.
pub(super) fn parameters(params: &Params, test: usize, nodes: Nodes) -> Json {
    let flag = |on: bool| Json::from(u8::from(on));
    let reorder = params.reorder;
    Json::Object(vec![
        ("testID", test.into()),
        ("refnum", params.reference.into()),
        ("api", api(params).into()),
        ("testFileName", params.file.as_str().into()),
        ("deadlineForStonewall", params.deadline.into()),
        ("stoneWallingWearOut", flag(params.wear_out)),
        ("maxTimeDuration", params.max_minutes.into()),
        ("outlierThreshold", params.outlier.into()),
        ("nodes", nodes.count.into()),
        ("tasksPerNode", nodes.in_each.into()),
        ("repetitions", params.repetitions.into()),
        ("multiFile", flag(params.multi_file)),
        ("interTestDelay", params.delay.into()),
        ("fsync", flag(params.fsync)),
        ("fsyncperwrite", flag(params.fsync_per_write)),
        ("useExistingTestFile", flag(params.existing_file)),
        ("uniqueDir", flag(params.unique_directory)),
        ("singleXferAttempt", flag(params.single_attempt)),
        ("readFile", flag(params.read)),
        ("writeFile", flag(params.write)),
        ("filePerProc", flag(params.file_per_rank)),
        ("reorderTasks", flag(reorder.constant)),
        ("reorderTasksRandom", reorder.random.into()),
        ("reorderTasksRandomSeed", reorder.seed.into()),
        ("randomOffset", params.random_offset.into()),
        ("checkWrite", flag(params.check_write)),
        ("checkRead", flag(params.check_read)),
        ("keepFile", flag(params.keep)),
        ("keepFileWithError", flag(params.keep_with_error)),
        ("verbose", params.verbose.into()),
        ("data packet type", params.packet.letter().into()),
        ("setTimeStampSignature/incompressibleSeed", params.signature.into()),
        ("collective", flag(params.collective)),
        ("segmentCount", params.segments.into()),
        ("transferSize", params.transfer.into()),
        ("blockSize", params.block.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_ior() {
        let params = Params { verbose: 0, ..Params::default() };
        let reached = Reached {
            writes: true,
            bandwidth: 912.4 * MIB,
            operations: 4282.0,
            latency: 0.001_868,
            open: 0.001_203,
            transfers: 0.007_473,
            close: 0.000_973,
            total: 0.008_768,
            repetition: 0,
        };
        assert_eq!(
            row(&params, &Row::Access(reached)),
            "write     912.40     4282       0.001868    1024.00    256.00     0.001203   0.007473   \
             0.000973   0.008768   0   \n"
        );
        assert_eq!(
            row(&params, &Row::Remove { time: 0.006_066, repetition: 0 }),
            "remove    -          -          -           -          -          -          -          \
             -          0.006066   0   \n"
        );
    }

    #[test]
    fn summaries_are_those_of_ior() {
        let (block, transfer) = (2 << 30, 1 << 20);
        let params = Params { write: true, tasks: 10, block, transfer, ..Params::default() };
        let point = Point { time: 202.696_53, moved: 20 << 30, ..Point::default() };
        let answer = Answer { writes: vec![point], ..Answer::default() };
        let nodes = Nodes { count: 2, in_each: 5 };
        assert_eq!(
            summary_rows(&params, &answer, 0, nodes),
            "write         101.04     101.04     101.04       0.00     101.04     101.04     101.04       \
             0.00  202.69653         NA            NA     0     10   5    1   0     0        1         0    \
             0      1 2147483648  1048576   20480.0 POSIX      0\n"
        );
        assert_eq!(best_lines(&params, &answer), "Max Write: 101.04 MiB/sec (105.95 MB/sec)\n");
    }

    #[test]
    fn the_deviation_is_that_of_all_values() {
        let spread = Spread::of([2.0, 4.0, 6.0].into_iter());
        assert_eq!((spread.max, spread.min, spread.mean), (6.0, 2.0, 4.0));
        assert!((spread.deviation - (8.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
