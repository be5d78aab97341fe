//! The command line of md-workbench.

use clap::{ArgAction, Args, value_parser};

use crate::Common;
use crate::text::size;

/// Options of md-workbench that are refused by name.
pub(crate) const REFUSED: &[&str] =
    &["-L", "--latency", "--latency-all", "--allocateBufferOnGPU", "--GPUid", "--gpuDirect"];

/// Work on many small files of other ranks first in, first out: stat, read, remove one, create another, as
/// md-workbench does
#[derive(Args, Clone, Debug, PartialEq)]
#[command(disable_version_flag = true, args_override_self = true)]
pub(crate) struct Options {
    /// Ranks, and the way to the file system
    #[command(flatten)]
    pub common: Common,
    /// Run only the given phases: precreate the files
    #[arg(short = '1', long = "run-precreate")]
    pub precreate: bool,
    /// Run only the given phases: the benchmark
    #[arg(short = '2', long = "run-benchmark")]
    pub benchmark: bool,
    /// Run only the given phases: cleanup, which removes all files
    #[arg(short = '3', long = "run-cleanup")]
    pub cleanup: bool,
    /// Number of data sets (directories) of each rank
    #[arg(short = 'D', long = "data-sets", value_name = "N", default_value_t = 10, value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub sets: u64,
    /// Seed of the data [default: the time of the run]
    #[arg(short = 'G', value_name = "N", allow_negative_numbers = true, value_parser = crate::text::seed)]
    pub data_seed: Option<u32>,
    /// Number of files of each data set that a rank works on in an iteration
    #[arg(short = 'I', long = "obj-per-proc", value_name = "N", default_value_t = 1000, value_parser = value_parser!(u64).range(1..=1 << 40))]
    pub objects: u64,
    /// Directory to work in
    #[arg(short = 'o', value_name = "DIR", default_value = "./out")]
    pub directory: String,
    /// Offset in ranks between the writer and the reader of a file
    #[arg(short = 'O', long = "offset", value_name = "N", default_value_t = 1)]
    pub offset: u64,
    /// Number of files to precreate in each data set
    #[arg(short = 'P', long = "precreate-per-set", value_name = "N", default_value_t = 3000, value_parser = value_parser!(u64).range(1..=1 << 40))]
    pub precreated: u64,
    /// Print results and errors only
    #[arg(short = 'q', long)]
    pub quiet: bool,
    /// Number of times to run the benchmark
    #[arg(short = 'R', long, value_name = "N", default_value_t = 3)]
    pub iterations: u32,
    /// Size of a file in bytes
    #[arg(short = 'S', long = "object-size", value_name = "BYTES", default_value = "3901", value_parser = size)]
    pub bytes: u64,
    /// Wait after each operation of the benchmark, for this multiple of the time it took
    #[arg(short = 't', long = "waiting-time", value_name = "FACTOR", default_value_t = 0.0, value_parser = factor)]
    pub waiting: f64,
    /// Run each iteration without waiting and with seven increasing waiting times
    #[arg(short = 'T', long = "adaptive-waiting")]
    pub adaptive: bool,
    /// Report when a rank hits the stonewall, and stop at a missing file
    #[arg(short = 'v', long, action = ArgAction::Count, value_parser = value_parser!(u8).range(..=1))]
    pub verbose: u8,
    /// Stonewall: seconds per iteration; needs -W
    #[arg(
        short = 'w',
        long = "stonewall-timer",
        value_name = "SECONDS",
        default_value_t = 0,
        requires = "wear_out"
    )]
    pub stonewall: u32,
    /// After the stonewall, continue until all ranks have done as much as the fastest
    #[arg(short = 'W', long = "stonewall-wear-out")]
    pub wear_out: bool,
    /// Verify what is read
    #[arg(short = 'X', long)]
    pub verify_read: bool,
    /// Type of the data: offset, incompressible, timestamp or random
    #[arg(long = "dataPacketType", value_name = "TYPE", default_value = "t")]
    pub data: String,
    /// Number of the first file
    #[arg(long = "start-item", value_name = "N", default_value_t = 0, value_parser = value_parser!(u64).range(..=1 << 40))]
    pub start: u64,
    /// Print detailed statistics, in columns
    #[arg(long = "print-detailed-stats")]
    pub detailed: bool,
    /// Only stat and read in the benchmark
    #[arg(long)]
    pub read_only: bool,
    /// Count directories and files that cannot be created, and continue
    #[arg(long)]
    pub ignore_precreate_errors: bool,
    /// Print the results of each rank
    #[arg(long = "process-reports")]
    pub process_reports: bool,
    /// File to store, between a run without cleanup and the next, which files exist
    #[arg(long, value_name = "FILE", default_value = "md-workbench.status")]
    pub run_info_file: String,
    /// Write everything that was measured to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor: &f64| (0.0..=1e6).contains(factor));
    factor.ok_or_else(|| format!("'{text}' is not a factor"))
}

impl Options {
    /// The directory to work in, without a slash at its end.
    pub(super) fn path(&self) -> &str {
        self.directory.trim_end_matches('/')
    }

    /// Whether to run precreate, benchmark and cleanup: all, unless some are asked for.
    pub(super) fn phases(&self) -> [bool; 3] {
        match [self.precreate, self.benchmark, self.cleanup] {
            [false, false, false] => [true; 3],
            asked => asked,
        }
    }

    /// The waits of one iteration of the benchmark, one run for each.
    pub(super) fn waits(&self) -> Vec<f64> {
        match self.adaptive {
            false => vec![self.waiting],
            true => std::iter::once(0.0)
                .chain((0..7).map(|power| 0.0625 * f64::from(1 << power)))
                .collect(),
        }
    }
}
