//! The command line of mdtest.

use clap::Args;

use crate::Common;
use crate::text::size;

/// Options of mdtest that are refused by name.
pub(crate) const REFUSED: &[&str] = &[
    "-c",
    "-g",
    "-k",
    "-S",
    "--allocateBufferOnGPU",
    "--gpuDirect",
    "--GPUid",
    "--savePerOpDataCSV",
    "--warningAsErrors",
];

/// Create, stat, read, rename and remove files and directories, as mdtest does
#[derive(Args, Clone, Debug, PartialEq)]
#[command(disable_version_flag = true, args_override_self = true)]
pub(crate) struct Options {
    /// Ranks, and the way to the file system
    #[command(flatten)]
    pub common: Common,
    /// Branching factor: subdirectories of each directory of the tree
    #[arg(short = 'b', value_name = "N", default_value_t = 1)]
    pub branch_factor: u64,
    /// No barriers between phases (also -B 0 and -B 1)
    #[arg(short = 'B', value_name = "0|1", num_args = 0..=1, default_value_t = 0, default_missing_value = "1", value_parser = clap::value_parser!(u8).range(..=1))]
    pub no_barriers: u8,
    /// Only create
    #[arg(short = 'C')]
    pub create_only: bool,
    /// Directory to work in; several, separated by '@', are given to the ranks in turn
    #[arg(short = 'd', value_name = "DIR[@DIR...]", default_value = "./out")]
    pub directories: String,
    /// Directories only
    #[arg(short = 'D')]
    pub directories_only: bool,
    /// Bytes to read from each file
    #[arg(short = 'e', value_name = "BYTES", default_value = "0", value_parser = size)]
    pub read_bytes: u64,
    /// Only read
    #[arg(short = 'E')]
    pub read_only: bool,
    /// First number of ranks to run with
    #[arg(short = 'f', value_name = "RANKS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub first: u32,
    /// Files only
    #[arg(short = 'F')]
    pub files_only: bool,
    /// Seed of the data [default: the time of the run]
    #[arg(short = 'G', value_name = "N", allow_negative_numbers = true, value_parser = crate::text::seed)]
    pub data_seed: Option<u32>,
    /// Number of iterations
    #[arg(short = 'i', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: u32,
    /// Number of items in each directory of the tree
    #[arg(short = 'I', value_name = "N", default_value = "0", value_parser = size)]
    pub items_per_directory: u64,
    /// Last number of ranks to run with; 0 to run once, with all ranks
    #[arg(short = 'l', value_name = "RANKS", default_value_t = 0)]
    pub last: u32,
    /// Create items only at the leaves of the tree
    #[arg(short = 'L')]
    pub leaf_only: bool,
    /// Number of items of each rank
    #[arg(short = 'n', value_name = "N", default_value = "0", value_parser = size)]
    pub items: u64,
    /// Shift the ranks by this number between phases, so that no rank works on what it has cached
    #[arg(short = 'N', value_name = "STRIDE", default_value_t = 0)]
    pub stride: u64,
    /// Seconds to wait before the directories and before the files of each iteration
    #[arg(short = 'p', value_name = "SECONDS", default_value_t = 0)]
    pub delay: u32,
    /// Print rate and time
    #[arg(short = 'P')]
    pub rate_and_time: bool,
    /// Only remove files and directories of earlier runs
    #[arg(short = 'r')]
    pub remove_only: bool,
    /// Stat and read in a random order
    #[arg(short = 'R', value_name = "SEED", num_args = 0..=1, default_missing_value = "0")]
    pub random: Option<u32>,
    /// Seed of -R
    #[arg(long, value_name = "SEED")]
    pub random_seed: Option<u32>,
    /// Stride between the numbers of ranks of -f and -l
    #[arg(short = 's', value_name = "STRIDE", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rank_stride: u32,
    /// Include the wait for unique working directories in the time of a phase
    #[arg(short = 't')]
    pub time_unique_overhead: bool,
    /// Only stat
    #[arg(short = 'T')]
    pub stat_only: bool,
    /// Unique working directory for each rank
    #[arg(short = 'u')]
    pub unique: bool,
    /// Rename directories too
    #[arg(short = 'U')]
    pub rename: bool,
    /// Increase verbosity; may be repeated
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Verbosity level
    #[arg(short = 'V', value_name = "LEVEL")]
    pub verbosity: Option<u8>,
    /// Bytes to write to each file
    #[arg(short = 'w', value_name = "BYTES", default_value = "0", value_parser = size)]
    pub write_bytes: u64,
    /// Stonewall: create files for this many seconds, then until all ranks have as many as the fastest
    #[arg(short = 'W', value_name = "SECONDS", default_value_t = 0)]
    pub stonewall: u32,
    /// File to store the number of items created in, for later runs of other phases
    #[arg(short = 'x', value_name = "FILE")]
    pub status_file: Option<String>,
    /// Write rate and time of each phase and rank to this file, as CSV
    #[arg(long = "saveRankPerformanceDetails", value_name = "FILE")]
    pub ranks_file: Option<String>,
    /// Verify what is read
    #[arg(short = 'X', long)]
    pub verify_read: bool,
    /// Read back and verify each file immediately after writing it
    #[arg(long)]
    pub verify_write: bool,
    /// fsync each file after writing
    #[arg(short = 'y')]
    pub sync_file: bool,
    /// Call syncfs after each phase, and include its time
    #[arg(short = 'Y')]
    pub call_sync: bool,
    /// Depth of the tree
    #[arg(short = 'z', value_name = "N", default_value_t = 0)]
    pub depth: u32,
    /// Print time instead of rate
    #[arg(short = 'Z')]
    pub print_time: bool,
    /// Type of the data: offset, incompressible, timestamp or random
    #[arg(long = "dataPacketType", value_name = "TYPE", default_value = "t")]
    pub data: String,
    /// Print the results of each rank
    #[arg(long)]
    pub print_all_procs: bool,
    /// Print statistics over ranks as well as over iterations
    #[arg(long = "showRankStatistics")]
    pub rank_statistics: bool,
    /// Command that each rank runs before each phase; its time does not count
    #[arg(long = "run-cmd-before-phase", value_name = "COMMAND")]
    pub before_phase: Option<String>,
    /// Command that each rank runs after each phase; its time counts
    #[arg(long = "run-cmd-after-phase", value_name = "COMMAND")]
    pub after_phase: Option<String>,
    /// Write everything that was measured to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
}

impl Options {
    /// How much to report.
    pub(crate) fn level(&self) -> u8 {
        self.verbosity.unwrap_or(self.verbose)
    }

    /// The directories to work in, at least one.
    pub(crate) fn paths(&self) -> Vec<String> {
        let paths = self.directories.split('@').filter(|path| !path.is_empty());
        paths.map(|path| path.trim_end_matches('/').to_owned()).collect()
    }
}
