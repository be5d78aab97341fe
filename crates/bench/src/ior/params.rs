//! What a test of IOR is: its parameters, as the command line, `-O` and scripts set them.

use std::str::FromStr;

use crate::Api;
use crate::pattern::Packet;
use crate::text::size;

/// Directives of IOR that are refused by name, in small letters.
const REFUSED: &[&str] = &[
    "allocatebufferongpu",
    "debug",
    "dualmount",
    "gpudirect",
    "gpuid",
    "memorypernode",
    "memorypertask",
    "numnodes",
    "platform",
    "saveperopdatacsv",
    "warningaserrors",
];

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    #[default]
    Default,
    Json,
    Csv,
}

/// How ranks read what other ranks have written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reorder {
    /// `-C`: each rank that of the rank so many nodes further.
    pub(super) constant: bool,
    /// `-Z`: bytes of any rank; 2 for those of another one.
    pub(super) random: u8,
    /// `-Q`.
    pub(super) node_offset: i64,
    /// `-X`: negative for another order each time.
    pub(super) seed: i64,
}

/// One test. Names of directives are in [`Params::set`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Params {
    pub(super) api: Api,
    pub(super) reference: i64,
    pub(super) file: String,
    pub(super) block: u64,
    pub(super) transfer: u64,
    pub(super) segments: u64,
    /// Ranks that take part; 0 for all.
    pub(super) tasks: usize,
    /// Ranks of one node; 0 for as many as there are.
    pub(super) tasks_per_node: usize,
    pub(super) repetitions: u32,
    pub(super) write: bool,
    pub(super) read: bool,
    pub(super) check_write: bool,
    pub(super) check_read: bool,
    pub(super) file_per_rank: bool,
    pub(super) multi_file: bool,
    pub(super) unique_directory: bool,
    pub(super) existing_file: bool,
    pub(super) keep: bool,
    pub(super) keep_with_error: bool,
    pub(super) collective: bool,
    pub(super) reorder: Reorder,
    /// 1: the transfers of a block in another order; 2: any blocks.
    pub(super) random_offset: u8,
    pub(super) random_seed: Option<u32>,
    pub(super) fsync: bool,
    pub(super) fsync_per_write: bool,
    pub(super) barriers: bool,
    pub(super) single_attempt: bool,
    pub(super) direct: bool,
    /// Seconds; 0 for none.
    pub(super) deadline: u32,
    pub(super) wear_out: bool,
    pub(super) wear_out_iterations: u64,
    pub(super) status_file: Option<String>,
    /// Seconds to run at least.
    pub(super) min_seconds: u32,
    /// Minutes after which no repetition begins; 0 for no limit.
    pub(super) max_minutes: u32,
    /// Seconds before each access.
    pub(super) delay: u32,
    /// Microseconds after each transfer.
    pub(super) transfer_delay: u64,
    /// Seconds from the mean beyond which a rank is reported; 0 for never.
    pub(super) outlier: u32,
    /// Seed of the data; 0 for the time.
    pub(super) signature: u32,
    pub(super) packet: Packet,
    pub(super) summary_always: bool,
    pub(super) verbose: u8,
    pub(super) format: Format,
    pub(super) summary_file: Option<String>,
    /// Where each rank's times go, as CSV.
    pub(super) ranks_file: Option<String>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            api: Api::Posix,
            reference: 0,
            file: "testFile".to_owned(),
            block: 1 << 20,
            transfer: 256 << 10,
            segments: 1,
            tasks: 0,
            tasks_per_node: 0,
            repetitions: 1,
            write: false,
            read: false,
            check_write: false,
            check_read: false,
            file_per_rank: false,
            multi_file: false,
            unique_directory: false,
            existing_file: false,
            keep: false,
            keep_with_error: false,
            collective: false,
            reorder: Reorder { node_offset: 1, ..Reorder::default() },
            random_offset: 0,
            random_seed: None,
            fsync: false,
            fsync_per_write: false,
            barriers: false,
            single_attempt: false,
            direct: false,
            deadline: 0,
            wear_out: false,
            wear_out_iterations: 0,
            status_file: None,
            min_seconds: 0,
            max_minutes: 0,
            delay: 0,
            transfer_delay: 0,
            outlier: 0,
            signature: 0,
            packet: Packet::Timestamp,
            summary_always: false,
            verbose: 0,
            format: Format::Default,
            summary_file: None,
            ranks_file: None,
        }
    }
}

fn number<T: FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a value for {name}"))
}

fn truth(name: &str, text: &str) -> Result<bool, String> {
    number::<i64>(name, text).map(|number| number != 0)
}

impl Params {
    /// Directives that are separated by commas, up to a `#`.
    ///
    /// # Errors
    /// A line: the first that is none.
    pub(super) fn set_all(&mut self, line: &str) -> Result<(), String> {
        let line = line.split('#').next().unwrap_or_default();
        for directive in line.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            let (name, value) = directive
                .split_once('=')
                .ok_or_else(|| format!("'{directive}' is not NAME=VALUE"))?;
            self.set(name.trim(), value.trim())?;
        }
        Ok(())
    }

    /// One directive, `-O NAME=VALUE`.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name.to_ascii_lowercase().as_str() {
            "api" => {
                self.api = <Api as clap::ValueEnum>::from_str(value, true)
                    .map_err(|_| format!("'{value}' is not an API: use POSIX or NATIVE"))?;
            }
            "refnum" => self.reference = number(name, value)?,
            "testfile" => self.file = value.to_owned(),
            "blocksize" => self.block = size(value)?,
            "transfersize" => self.transfer = size(value)?,
            "segmentcount" => self.segments = size(value)?,
            "numtasks" => self.tasks = number(name, value)?,
            "numtasksonnode0" => self.tasks_per_node = number(name, value)?,
            "repetitions" => self.repetitions = number(name, value)?,
            "writefile" => self.write = truth(name, value)?,
            "readfile" => self.read = truth(name, value)?,
            "checkwrite" => self.check_write = truth(name, value)?,
            "checkread" => self.check_read = truth(name, value)?,
            "fileperproc" => self.file_per_rank = truth(name, value)?,
            "multifile" => self.multi_file = truth(name, value)?,
            "uniquedir" => self.unique_directory = truth(name, value)?,
            "useexistingtestfile" => self.existing_file = truth(name, value)?,
            "keepfile" => self.keep = truth(name, value)?,
            "keepfilewitherror" => self.keep_with_error = truth(name, value)?,
            "collective" => self.collective = truth(name, value)?,
            "reordertasks" | "reordertasksconstant" => {
                self.reorder.constant = truth(name, value)?;
            }
            "reordertasksrandom" => self.reorder.random = number(name, value)?,
            "reordertasksrandomseed" => self.reorder.seed = number(name, value)?,
            "taskpernodeoffset" => self.reorder.node_offset = number(name, value)?,
            "randomoffset" => self.random_offset = number(name, value)?,
            "fsync" => self.fsync = truth(name, value)?,
            "fsyncperwrite" => self.fsync_per_write = truth(name, value)?,
            "intratestbarriers" => self.barriers = truth(name, value)?,
            "singlexferattempt" => self.single_attempt = truth(name, value)?,
            "useo_direct" | "posix.odirect" => self.direct = truth(name, value)?,
            _ => return self.set_timing(name, value),
        }
        Ok(())
    }

    /// When a test begins and ends, and which ranks are late.
    fn set_timing(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name.to_ascii_lowercase().as_str() {
            "deadlineforstonewalling" => self.deadline = number(name, value)?,
            "stonewallingwearout" => self.wear_out = truth(name, value)?,
            "stonewallingwearoutiterations" => self.wear_out_iterations = number(name, value)?,
            "stonewallingstatusfile" => self.status_file = Some(value.to_owned()),
            "mintimeduration" => self.min_seconds = number(name, value)?,
            "maxtimeduration" => self.max_minutes = number(name, value)?,
            "intertestdelay" => self.delay = number(name, value)?,
            "interiodelay" => self.transfer_delay = number(name, value)?,
            "outlierthreshold" => self.outlier = number(name, value)?,
            _ => return self.set_output(name, value),
        }
        Ok(())
    }

    /// What is written into the files, and what is reported of the test.
    fn set_output(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name.to_ascii_lowercase().as_str() {
            "settimestampsignature" => self.signature = number(name, value)?,
            "datapackettype" => self.packet = Packet::named(value)?,
            "summaryalways" => self.summary_always = truth(name, value)?,
            "verbose" => self.verbose = number(name, value)?,
            "saverankperformancedetailscsv" => self.ranks_file = Some(value.to_owned()),
            "summaryfile" => self.summary_file = Some(value.to_owned()),
            "summaryformat" => {
                self.format = match value.to_ascii_lowercase().as_str() {
                    "default" => Format::Default,
                    "json" => Format::Json,
                    "csv" => Format::Csv,
                    _ => {
                        return Err(format!(
                            "'{value}' is not a summaryFormat: use default, JSON or CSV"
                        ));
                    }
                };
            }
            other if REFUSED.contains(&other) => {
                return Err(format!("directive '{name}' is not supported by Sheen yet"));
            }
            _ => return Err(format!("Unrecognized parameter \"{name}\"")),
        }
        Ok(())
    }

    /// What follows from the rest: what to do if nothing was asked for, and how many take part.
    ///
    /// # Errors
    /// A line: parameters that do not go together.
    pub(super) fn complete(&mut self, ranks: usize) -> Result<(), String> {
        if !(self.write || self.read || self.check_write || self.check_read) {
            (self.write, self.read) = (true, true);
        }
        if self.tasks == 0 || self.tasks > ranks {
            self.tasks = ranks;
        }
        let all = self.stonewalls_refused().into_iter().chain(self.shapes_refused());
        match all.chain(self.orders_refused()).find(|(applies, _)| *applies) {
            Some((_, line)) => Err(line.to_owned()),
            None => Ok(()),
        }
    }

    fn stonewalls_refused(&self) -> [(bool, &'static str); 6] {
        [
            (self.repetitions == 0, "too few test repetitions"),
            (
                self.status_file.is_some() && !self.keep,
                "a StoneWallingStatusFile is only sensible when splitting write/read into multiple \
                 executions of ior, please use -k",
            ),
            (
                self.status_file.is_some() && !self.wear_out && self.write,
                "the StoneWallingStatusFile is only sensible for a write test when using \
                 stoneWallingWearOut",
            ),
            (
                self.deadline == 0 && self.wear_out,
                "the stoneWallingWearOut is only sensible when setting a stonewall deadline with -D",
            ),
            (
                self.signature == 0 && !self.write && self.check_read,
                "using readCheck only requires to write a timeStampSignature -- use -G",
            ),
            (
                self.signature == 0 && !self.write && self.check_write,
                "checking what an earlier run wrote needs its signature -- use -G",
            ),
        ]
    }

    fn shapes_refused(&self) -> [(bool, &'static str); 10] {
        [
            (!self.block.is_multiple_of(8), "block size must be a multiple of access size"),
            (!self.transfer.is_multiple_of(8), "transfer size must be a multiple of access size"),
            (self.transfer == 0, "test will not complete with zero transfer size"),
            (
                self.transfer > 0 && !self.block.is_multiple_of(self.transfer),
                "block size must be a multiple of transfer size",
            ),
            (self.block < self.transfer, "block size must not be smaller than transfer size"),
            (self.segments == 0, "segment count must be positive value"),
            (
                self.file.contains('@') && self.unique_directory,
                "cannot use multiple file names with unique directories",
            ),
            (
                self.direct && !self.transfer.is_multiple_of(512),
                "O_DIRECT needs a transfer size that is a multiple of 512",
            ),
            (
                self.direct && self.api == Api::Native,
                "the native client has no O_DIRECT: nothing is between it and the servers",
            ),
            (self.expected().is_none(), "the file would be too large"),
        ]
    }

    fn orders_refused(&self) -> [(bool, &'static str); 5] {
        let reordered = self.reorder.constant || self.reorder.random > 0;
        [
            (
                self.random_offset == 1 && self.block == self.transfer,
                "IOR will randomize access within a block and repeats the same pattern for all \
                 segments, therefore choose blocksize > transferSize",
            ),
            (
                self.reorder.constant && self.reorder.random > 0,
                "Both Constant and Random task re-ordering specified. Choose one and resubmit",
            ),
            (
                self.random_offset > 0 && reordered && !self.file_per_rank,
                "random offset and reorder tasks specified with single-shared-file. Choose one and \
                 resubmit",
            ),
            (
                self.random_offset > 0 && self.check_read && self.random_seed.is_none(),
                "random offset with read check option requires to set the random seed",
            ),
            (
                self.random_offset > 1 && (self.check_read || self.check_write),
                "random offsets that overlap cannot be checked",
            ),
        ]
    }

    fn expected(&self) -> Option<u64> {
        let all = self.block.checked_mul(self.segments)?.checked_mul(self.tasks as u64)?;
        i64::try_from(all).ok().map(|_| all)
    }

    /// Bytes that all ranks together write, as [`Params::complete`] has seen that there can be.
    pub(super) fn total(&self) -> u64 {
        self.block * self.segments * self.tasks as u64
    }

    /// The file of a rank in a repetition.
    pub(super) fn file_of(&self, rank: usize, repetition: u32) -> String {
        let names: Vec<&str> = self.file.split('@').filter(|name| !name.is_empty()).collect();
        let root = match self.file_per_rank {
            true => names.get(rank % names.len().max(1)),
            false => names.first(),
        };
        let root = root.copied().unwrap_or_default();
        let mut name = match (self.file_per_rank, self.directory_of(rank)) {
            (false, _) => root.to_owned(),
            (true, None) => format!("{root}.{rank:08}"),
            (true, Some(directory)) => {
                format!("{directory}/{}.{rank:08}", root.rsplit('/').next().unwrap_or(root))
            }
        };
        if self.multi_file {
            name += &format!(".{repetition}");
        }
        name
    }

    /// The directory that is made for a rank's file.
    pub(super) fn directory_of(&self, rank: usize) -> Option<String> {
        let unique = self.unique_directory && self.file_per_rank;
        unique.then(|| match self.file.rsplit_once('/') {
            Some((directory, _)) => format!("{directory}/{rank}"),
            None => rank.to_string(),
        })
    }
}

/// The tests of a script: from `IOR START` to `IOR STOP`, one for each `RUN`, each beginning with what the
/// one before had.
///
/// # Errors
/// A line: what is no directive.
pub(super) fn script(text: &str, first: &Params) -> Result<Vec<Params>, String> {
    let mut lines = text.lines().map(str::trim);
    let is = |line: &str, word: &str| line.eq_ignore_ascii_case(word);
    if !lines.by_ref().any(|line| is(line, "ior start")) {
        return Err("the script has no line IOR START".to_owned());
    }
    let mut tests = Vec::new();
    let mut next = first.clone();
    let mut changed = true;
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if is(line, "ior stop") {
            break;
        }
        if is(line, "run") {
            tests.push(next.clone());
            changed = false;
        } else {
            next.set_all(line)?;
            changed = true;
        }
    }
    if changed {
        tests.push(next);
    }
    Ok(tests)
}
