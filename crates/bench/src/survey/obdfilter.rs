//! obdfilter-survey: sequential transfers to and from objects of OSTs.

use super::device::{Kind, Progress, Work};
use super::rates::{self, Rates};
use super::report::{self, Report};
use super::row::{self, Row};
use super::{Attached, Common, Surroundings, Variable, doubling, setting, targets, text, threads};
use crate::ranks::Ended;

/// All tests, for a survey without a list.
const TESTS: &str = "write rewrite read";
/// KiB of a page.
const PAGE_KIB: u32 = 4;
/// Largest record: what one RPC carries.
const RECORD_KIB_MAX: u32 = 4096;

/// Load OSTs without a client: Lustre's obdfilter-survey
///
/// Every setting may also come from the environment under the script's name, as in
/// `nobjhi=2 thrhi=2 size=1024 case=disk sheen bench obdfilter-survey`. Runs on the machine of the
/// servers, on a file system that may be in use; its objects belong to no file, and are removed
/// afterwards. Results are also written to RSLT.summary and RSLT.detail.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// MiB written to and read from each OST in each test [default: 16384]
    #[arg(long, value_name = "MIB")]
    size: Option<u64>,
    /// KiB of a transfer to begin with [default: 1024]
    #[arg(long, value_name = "KIB")]
    rszlo: Option<u32>,
    /// KiB of a transfer to end with; they double [default: 1024]
    #[arg(long, value_name = "KIB")]
    rszhi: Option<u32>,
    /// Objects on each OST to begin with [default: 1]
    #[arg(long, value_name = "N")]
    nobjlo: Option<u32>,
    /// Objects on each OST to end with; they double [default: 16]
    #[arg(long, value_name = "N")]
    nobjhi: Option<u32>,
    /// What to load: disk [default: disk]
    #[arg(long, value_name = "CASE")]
    case: Option<String>,
    /// 1 to verify the data: stamp what is written and check the stamps in what is read [default: 0]
    #[arg(long, value_name = "0|1")]
    verify: Option<u8>,
    /// 1 to time a write test until its data is on disk, not until the OSTs have answered
    /// [default: 0]
    #[arg(long, value_name = "0|1")]
    sync: Option<u8>,
}

/// The options of the survey, where none is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    rows: Vec<Shape>,
    tests: Vec<(String, bool)>,
    verify: bool,
    sync: bool,
    targets: Option<String>,
    prefix: String,
}

/// What one line of the report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Whole pages, in KiB.
    record: u32,
    objects: u32,
    threads: u32,
    /// Transfers of each thread.
    count: u64,
}

impl Shape {
    /// KiB of each OST.
    fn size(&self) -> u64 {
        u64::from(self.record) * self.count * u64::from(self.threads)
    }
}

impl Settings {
    pub(super) fn read(options: &Options, variable: Variable) -> Result<Self, String> {
        let common = &options.common;
        let case = text(options.case.as_ref(), variable, "case");
        if let Some(case) = case.filter(|case| case != "disk") {
            return Err(match case.as_str() {
                "network" | "netdisk" => format!("case={case} is not supported by Sheen yet"),
                other => format!("case={other}: must be disk, network or netdisk"),
            });
        }
        let number = |option: Option<&u32>, name, usual| setting(option, variable, name, usual);
        let size = setting(options.size.as_ref(), variable, "size", 16_384)?;
        let record_low = number(options.rszlo.as_ref(), "rszlo", 1024)?;
        let record_high = number(options.rszhi.as_ref(), "rszhi", record_low.max(1024))?;
        let records = doubling("rsz", record_low, record_high, RECORD_KIB_MAX)?;
        let objects_low = number(options.nobjlo.as_ref(), "nobjlo", 1)?;
        let objects_high = number(options.nobjhi.as_ref(), "nobjhi", objects_low.max(16))?;
        let objects = doubling("nobj", objects_low, objects_high, super::THREADS_MAX)?;
        let threads = threads(common, variable, (1, 16))?;
        let rows = rows(size, &records, &objects, &threads)?;
        let tests = text(common.tests.as_ref(), variable, "tests_str");
        let tests = tests.unwrap_or_else(|| TESTS.to_owned());
        let tests: Vec<(String, bool)> =
            tests.split_whitespace().map(test_named).collect::<Result<_, _>>()?;
        if tests.first().is_none_or(|(name, _)| name != "write") {
            return Err("tests_str must begin with write".to_owned());
        }
        let switch = |option: Option<&u8>, name| Ok(setting(option, variable, name, 0u8)? != 0);
        let verify: Result<bool, String> = switch(options.verify.as_ref(), "verify");
        let sync: Result<bool, String> = switch(options.sync.as_ref(), "sync");
        let prefix = report::prefix(common, variable, "obdfilter_survey");
        let targets = text(common.targets.as_ref(), variable, "targets");
        Ok(Self { rows, tests, verify: verify?, sync: sync?, targets, prefix })
    }
}

/// A test's name, and whether it writes: as the script, those that say so.
fn test_named(name: &str) -> Result<(String, bool), String> {
    match name {
        "write" | "rewrite" | "rewrite_again" | "read" | "reread" => {
            Ok((name.to_owned(), name.contains("write")))
        }
        other => Err(format!("tests_str: unknown test '{other}'")),
    }
}

/// Every size with every number of objects and of threads that is a multiple of it.
fn rows(
    size: u64,
    records: &[u32],
    objects: &[u32],
    threads: &[u32],
) -> Result<Vec<Shape>, String> {
    let mut rows = Vec::new();
    for record in records.iter().map(|record| record.next_multiple_of(PAGE_KIB)) {
        for &objects in objects {
            for &threads in threads.iter().filter(|&&threads| threads.is_multiple_of(objects)) {
                let size = size.checked_mul(1024).ok_or("size is too large")?;
                let count = size / (u64::from(record) * u64::from(threads));
                if count == 0 {
                    return Err(format!(
                        "size ({} MiB) is too small for {threads} threads with {record} KiB each",
                        size >> 10
                    ));
                }
                rows.push(Shape { record, objects, threads, count });
            }
        }
    }
    match rows.is_empty() {
        true => {
            Err("none of the numbers of threads is a multiple of a number of objects".to_owned())
        }
        false => Ok(rows),
    }
}

pub(super) fn run(settings: &Settings, surroundings: &Surroundings) -> Result<(), Ended> {
    let names = targets(settings.targets.as_deref(), Kind::Ost, surroundings)?;
    let mut attached = Attached::new(names, surroundings)?;
    let mut report = Report::create(&settings.prefix, surroundings)?;
    let (date, host) = (report::date(), report::host());
    report.say(&format!("{date} Obdfilter-survey for case=disk from {host}\n"))?;
    let mut failed = None;
    for &shape in &settings.rows {
        let row = Row {
            begin: begin(shape, attached.count()),
            arrow: "=======================>",
            prepared: shape.objects,
            shown: |ended: &[Progress]| shown(ended, shape),
        };
        let tests = settings.tests.iter().map(|(name, write)| {
            let Shape { threads, record, count, .. } = shape;
            let (verify, sync, record) = (settings.verify, settings.sync, record << 10);
            (name.as_str(), Work::Data { write: *write, threads, record, count, verify, sync })
        });
        failed = row.run(tests, &mut attached, &mut report)?.or(failed);
        attached.clean()?;
    }
    row::finish(attached, failed, surroundings)
}

fn begin(shape: Shape, targets: u64) -> String {
    format!(
        "ost {targets:2} sz {:8}K rsz {:4}K obj {:4} thr {:4} ",
        shape.size() * targets,
        shape.record,
        u64::from(shape.objects) * targets,
        u64::from(shape.threads) * targets
    )
}

/// MiB a second of all targets until the last one ended, and the extremes of any.
fn shown(ended: &[Progress], row: Shape) -> String {
    let seconds = ended.iter().map(|one| one.seconds).fold(1e-9, f64::max);
    let rate = (row.size() * ended.len() as u64) as f64 / (seconds * 1024.0);
    let of_record = |rate: f64| rate * f64::from(row.record) / 1024.0;
    let extremes = match rates::of(ended, false) {
        Rates::Error => format!("{:>17} ", "ERROR"),
        Rates::Short => format!("{:>17} ", "SHORT"),
        Rates::Measured { least, most, .. } => {
            format!("[{:7.2}, {:7.2}] ", of_record(least), of_record(most))
        }
    };
    format!("{rate:7.2} {extremes}")
}
