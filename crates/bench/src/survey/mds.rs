//! mds-survey: files made, found, looked at and removed in directories of an MDT.

use super::device::{Kind, MetadataTest, Progress, Work};
use super::rates::{self, Rates};
use super::report::{self, Report};
use super::row::{self, Row};
use super::{Attached, Common, Surroundings, Variable, setting, targets, text, threads};
use crate::ranks::Ended;

/// All tests, for a survey without a list.
const TESTS: &str = "create lookup md_getattr setxattr destroy";
/// OSTs of one file.
const STRIPES_MAX: i32 = 2000;

/// Load an MDT without a client: Lustre's mds-survey
///
/// Every setting may also come from the environment under the script's name, as in
/// `thrhi=8 file_count=50000 sheen bench mds-survey`. Runs on the machine of the servers, on a file
/// system that may be in use; its files are in directories of their own that no client sees, and are
/// removed afterwards. Results are also written to RSLT.summary and RSLT.detail.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Directories that the threads share [default: thrlo]
    #[arg(long = "dir_count", alias = "dir-count", value_name = "N")]
    dir_count: Option<u32>,
    /// Files on each MDT, shared by its threads [default: 100000]
    #[arg(long = "file_count", alias = "file-count", value_name = "N")]
    file_count: Option<u64>,
    /// OSTs that each file lies on; 0 for no objects, -1 for the default layout [default: 0]
    #[arg(
        long = "stripe_count",
        alias = "stripe-count",
        value_name = "N",
        allow_negative_numbers = true
    )]
    stripe_count: Option<i32>,
    /// Number of the first file of each directory [default: 2]
    #[arg(long = "start_number", alias = "start-number", value_name = "N")]
    start_number: Option<u64>,
    /// Layer to load: only mdd [default: mdd]
    #[arg(long, value_name = "LAYER")]
    layer: Option<String>,
}

/// The options of the survey, where none is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    threads: Vec<u32>,
    directories: u32,
    files: u64,
    stripes: i32,
    start: u64,
    tests: Vec<(String, MetadataTest)>,
    targets: Option<String>,
    prefix: String,
}

fn test_named(name: &str) -> Result<MetadataTest, String> {
    Ok(match name {
        "create" => MetadataTest::Create,
        "lookup" => MetadataTest::Lookup,
        "md_getattr" => MetadataTest::Getattr,
        "setxattr" => MetadataTest::Setxattr,
        "destroy" => MetadataTest::Destroy,
        other => return Err(format!("tests_str: unknown test '{other}'")),
    })
}

impl Settings {
    pub(super) fn read(options: &Options, variable: Variable) -> Result<Self, String> {
        let common = &options.common;
        let threads = threads(common, variable, (4, 32))?;
        let directories = setting(options.dir_count.as_ref(), variable, "dir_count", threads[0])?;
        let files = setting(options.file_count.as_ref(), variable, "file_count", 100_000)?;
        let stripes = setting(options.stripe_count.as_ref(), variable, "stripe_count", 0)?;
        let start = setting(options.start_number.as_ref(), variable, "start_number", 2)?;
        let layer = text(options.layer.as_ref(), variable, "layer");
        if let Some(layer) = layer.filter(|layer| layer != "mdd") {
            return Err(format!("layer {layer}: only mdd can be loaded"));
        }
        let tests = text(common.tests.as_ref(), variable, "tests_str");
        let tests = tests.unwrap_or_else(|| TESTS.to_owned());
        let tests: Vec<&str> = tests.split_whitespace().collect();
        if tests.len() < 2 || tests[0] != "create" || tests[tests.len() - 1] != "destroy" {
            return Err("tests_str must begin with create and end with destroy".to_owned());
        }
        let named = |name: &&str| Ok(((*name).to_owned(), test_named(name)?));
        let tests = tests.iter().map(named).collect::<Result<_, String>>()?;
        if !(-1..=STRIPES_MAX).contains(&stripes) {
            return Err(format!("stripe_count must be between -1 and {STRIPES_MAX}"));
        }
        // With fewer threads than directories the script tests nothing.
        let threads: Vec<u32> = threads.into_iter().filter(|count| *count >= directories).collect();
        let Some(most) = threads.last() else {
            return Err(format!("dir_count ({directories}) is greater than any number of threads"));
        };
        if directories == 0 {
            return Err("dir_count must be at least 1".to_owned());
        }
        if files < u64::from(*most) {
            return Err(format!("file_count ({files}) is too small for {most} threads"));
        }
        let prefix = report::prefix(common, variable, "mds_survey");
        let targets = text(common.targets.as_ref(), variable, "targets");
        Ok(Self { threads, directories, files, stripes, start, tests, targets, prefix })
    }
}

pub(super) fn run(settings: &Settings, surroundings: &Surroundings) -> Result<(), Ended> {
    let names = targets(settings.targets.as_deref(), Kind::Mdt, surroundings)?;
    let mut attached = Attached::new(names, surroundings)?;
    let mut report = Report::create(&settings.prefix, surroundings)?;
    report.say(&format!("{} mds-survey from {}\n", report::date(), report::host()))?;
    let mut failed = None;
    for &threads in &settings.threads {
        let (files, directories) = (settings.files, settings.directories);
        let targets = attached.count();
        let row = Row {
            begin: format!("mdt {targets:1} file {files:7} dir {directories:4} thr {threads:4} "),
            arrow: "=======>",
            prepared: directories,
            shown: |ended: &[Progress]| shown(rates::of(ended, true)),
        };
        let tests = settings.tests.iter().map(|(name, test)| {
            let count = files / u64::from(threads);
            let (start, stripes) = (settings.start, settings.stripes);
            (name.as_str(), Work::Metadata { test: *test, threads, count, start, stripes })
        });
        failed = row.run(tests, &mut attached, &mut report)?.or(failed);
    }
    row::finish(attached, failed, surroundings)
}

fn shown(rates: Rates) -> String {
    match rates {
        Rates::Measured { mean, least, most } => format!("{mean:7.2} [ {least:7.2}, {most:7.2}] "),
        Rates::Error | Rates::Short => format!("{:>17} ", "ERROR"),
    }
}
