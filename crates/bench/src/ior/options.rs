//! The command line of IOR.

use clap::{ArgAction, Args};

use super::params::{Params, Reorder, script};
use crate::pattern::Packet;
use crate::text::size;
use crate::{Api, Common};

/// Options of IOR, of this version and earlier ones, that are refused by name.
pub(crate) const REFUSED: &[&str] = &[
    "-H",
    "-I",
    "-J",
    "-M",
    "-n",
    "-p",
    "-S",
    "-U",
    "-V",
    "-y",
    "--allocateBufferOnGPU",
    "--dryRun",
    "--gpuDirect",
    "--GPUid",
    "--randomPrefill",
    "--posix.rangelocks",
    "--warningAsErrors",
];

/// Write and read large files, shared or one for each rank, as IOR does
#[derive(Args, Clone, Debug)]
#[command(disable_version_flag = true, args_override_self = true)]
pub(crate) struct Options {
    /// Ranks, and the way to the file system
    #[command(flatten)]
    pub common: Common,
    /// Reference number, shown in the summary
    #[arg(short = 'A', value_name = "N", default_value_t = 0)]
    reference: i64,
    /// Block size: contiguous bytes that a rank writes (8, 4k, 2m, 1g)
    #[arg(short = 'b', value_name = "SIZE", default_value = "1m", value_parser = size)]
    block: u64,
    /// Use O_DIRECT
    #[arg(short = 'B', visible_alias = "posix.odirect", long = "odirect")]
    direct: bool,
    /// At a stonewall stop all ranks or none
    #[arg(short = 'c', long = "collective")]
    collective: bool,
    /// Read what the rank -Q nodes away has written
    #[arg(short = 'C', action = ArgAction::Count)]
    reorder: u8,
    /// Seconds to wait before each access
    #[arg(short = 'd', value_name = "SECONDS", default_value_t = 0)]
    delay: u32,
    /// Stonewall: stop writing or reading after this many seconds
    #[arg(short = 'D', value_name = "SECONDS", default_value_t = 0)]
    deadline: u32,
    /// fsync after writing
    #[arg(short = 'e')]
    fsync: bool,
    /// Keep an existing file and write into it
    #[arg(short = 'E')]
    existing_file: bool,
    /// Script file with tests to run
    #[arg(short = 'f', value_name = "FILE")]
    script: Option<String>,
    /// One file per rank
    #[arg(short = 'F')]
    file_per_rank: bool,
    /// Use barriers between open, transfers and close
    #[arg(short = 'g')]
    barriers: bool,
    /// Seed of the data; 0 for the time of the run
    #[arg(short = 'G', value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = crate::text::seed)]
    signature: u32,
    /// Number of repetitions
    #[arg(short = 'i', value_name = "N", default_value_t = 1)]
    repetitions: u32,
    /// Report ranks that are more than this many seconds off the mean
    #[arg(short = 'j', value_name = "SECONDS", default_value_t = 0)]
    outlier: u32,
    /// Keep the files
    #[arg(short = 'k')]
    keep: bool,
    /// Keep files in which wrong data was found
    #[arg(short = 'K')]
    keep_with_error: bool,
    /// Type of the data: offset, incompressible, timestamp or random
    #[arg(short = 'l', long = "dataPacketType", value_name = "TYPE", default_value = "t", value_parser = Packet::named)]
    packet: Packet,
    /// Use a different file for each repetition
    #[arg(short = 'm')]
    multi_file: bool,
    /// Number of ranks that take part; 0 for all
    #[arg(short = 'N', value_name = "N", default_value_t = 0)]
    tasks: usize,
    /// File name; with -F several, separated by '@', are given to the ranks in turn
    #[arg(short = 'o', value_name = "FILE", default_value = "testFile")]
    file: String,
    /// Directives NAME=VALUE[,NAME=VALUE...]: summaryFormat=[default,JSON,CSV], summaryFile=FILE,
    /// stoneWallingWearOut=1, stoneWallingWearOutIterations=N, stoneWallingStatusFile=FILE,
    /// minTimeDuration=SECONDS, numTasksOnNode0=N, interIODelay=MICROSECONDS, and those that are also options
    #[arg(short = 'O', value_name = "DIRECTIVES")]
    directives: Vec<String>,
    /// With -C, number of nodes to shift by; with -Z, the least number
    #[arg(short = 'Q', value_name = "N", default_value_t = 1)]
    node_offset: i64,
    /// Read
    #[arg(short = 'r')]
    read: bool,
    /// Verify what is read; needs -G for what an earlier run wrote
    #[arg(short = 'R')]
    check_read: bool,
    /// Number of segments: how many times each rank's block is repeated
    #[arg(short = 's', value_name = "N", default_value = "1", value_parser = size)]
    segments: u64,
    /// Transfer size in bytes
    #[arg(short = 't', value_name = "SIZE", default_value = "256k", value_parser = size)]
    transfer: u64,
    /// Start no further repetition after this many minutes; 0 for no limit
    #[arg(short = 'T', value_name = "MINUTES", default_value_t = 0)]
    max_minutes: u32,
    /// Put each rank's file into a directory of its own
    #[arg(short = 'u')]
    unique_directory: bool,
    /// Increase verbosity; may be repeated
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Write
    #[arg(short = 'w')]
    write: bool,
    /// Verify what was written by reading it back
    #[arg(short = 'W')]
    check_write: bool,
    /// Do not continue a transfer that was cut short
    #[arg(short = 'x')]
    single_attempt: bool,
    /// Seed of -Z; negative for a different order each time
    #[arg(short = 'X', value_name = "SEED", default_value_t = 0, allow_negative_numbers = true)]
    reorder_seed: i64,
    /// fsync after each write
    #[arg(short = 'Y')]
    fsync_per_write: bool,
    /// Transfers in random order within each block; given twice, over all blocks
    #[arg(short = 'z', action = ArgAction::Count)]
    random_offset: u8,
    /// Seed of -z
    #[arg(long = "random-offset-seed", value_name = "SEED")]
    random_seed: Option<u32>,
    /// Read what a random rank has written; given twice, a different one for each rank
    #[arg(short = 'Z', action = ArgAction::Count)]
    reorder_random: u8,
}

impl Options {
    /// The tests that are asked for, complete.
    ///
    /// # Errors
    /// A line: what is wrong.
    pub(super) fn tests(&self) -> Result<Vec<Params>, String> {
        let mut first = self.params();
        self.directives.iter().try_for_each(|line| first.set_all(line))?;
        let mut tests = match &self.script {
            None => vec![first],
            Some(path) => {
                let text = std::fs::read_to_string(path);
                script(&text.map_err(|error| format!("cannot read {path}: {error}"))?, &first)?
            }
        };
        tests.iter_mut().try_for_each(|test| test.complete(self.common.ranks as usize))?;
        Ok(tests)
    }

    /// Whether the options go together, and all tests work on `file` in this way.
    ///
    /// # Errors
    /// A line, if not.
    pub(crate) fn check(&self, api: Api, file: &str) -> Result<(), String> {
        let tests = self.tests()?;
        match tests.iter().find(|test| test.api != api || test.file != file) {
            Some(test) => Err(format!("'{}' is another place than --target says", test.file)),
            None => Ok(()),
        }
    }

    fn params(&self) -> Params {
        Params {
            api: self.common.api,
            reference: self.reference,
            file: self.file.clone(),
            block: self.block,
            transfer: self.transfer,
            segments: self.segments,
            tasks: self.tasks,
            repetitions: self.repetitions,
            write: self.write,
            read: self.read,
            check_write: self.check_write,
            check_read: self.check_read,
            file_per_rank: self.file_per_rank,
            multi_file: self.multi_file,
            unique_directory: self.unique_directory,
            existing_file: self.existing_file,
            keep: self.keep,
            keep_with_error: self.keep_with_error,
            collective: self.collective,
            reorder: Reorder {
                constant: self.reorder > 0,
                random: self.reorder_random,
                node_offset: self.node_offset,
                seed: self.reorder_seed,
            },
            random_offset: self.random_offset,
            random_seed: self.random_seed,
            fsync: self.fsync,
            fsync_per_write: self.fsync_per_write,
            barriers: self.barriers,
            single_attempt: self.single_attempt,
            direct: self.direct,
            deadline: self.deadline,
            max_minutes: self.max_minutes,
            delay: self.delay,
            outlier: self.outlier,
            signature: self.signature,
            packet: self.packet,
            verbose: self.verbose,
            ..Params::default()
        }
    }
}
