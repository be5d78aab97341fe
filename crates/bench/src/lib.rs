//! The benchmarks of this field without MPI: mdtest, IOR, md-workbench and IO500, on any file system.
//!
//! [`Bench`] is the command line of all of them, and [`Bench::run`] runs the one that it names.
//!
//! A benchmark asks a file system only through [`backend::Backend`]: `posix` is any directory, and
//! the program that uses this crate brings the native client. `ranks` stands for MPI: ranks are threads or
//! processes that meet between phases. `mdtest`, `ior` and `workbench` have the options, the order of work, the
//! names and data, the formulas and the lines of the programs of these names, so that results can be set
//! beside each other; what differs is said in docs/bench/README.md.
//!
//! What measuring costs: a virtual call, a store to a counter of the rank's own and a load of a flag that
//! all share and none writes, for each operation; no lock, and no allocation once buffers have grown. The
//! clock is read twice for each phase and rank, and for each operation only where a stonewall or latencies
//! are asked for.

pub mod backend;
mod clock;
mod compare;
#[cfg(test)]
mod interrupts;
mod io500;
mod ior;
pub mod machine;
mod mdtest;
mod meter;
mod pattern;
pub mod plot;
mod posix;
mod progress;
mod ranks;
mod survey;
#[cfg(test)]
mod testing;
mod text;
mod workbench;

use std::sync::atomic::AtomicBool;

use backend::Backend;

pub use ranks::Ended;
pub use ranks::process::Part;
pub use survey::device;

/// Which version of mdtest and IOR the lines are like.
const LIKE: &str = "4.0.0";

/// Benchmark any file system as mdtest, IOR, md-workbench and IO500 do, without MPI
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Bench {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(clap::Subcommand)]
enum Benchmark {
    Mdtest(Box<mdtest::Options>),
    Ior(Box<ior::Options>),
    Io500(Box<io500::Options>),
    #[command(name = "md-workbench")]
    MdWorkbench(Box<workbench::Options>),
    Compare(Box<compare::Options>),
    #[command(name = "mds-survey")]
    MdsSurvey(Box<survey::MdsOptions>),
    #[command(name = "obdfilter-survey")]
    ObdfilterSurvey(Box<survey::ObdfilterOptions>),
}

impl Bench {
    /// Runs the benchmark; surveys load targets among `devices`.
    ///
    /// # Errors
    /// A line, or an interrupt; nothing of a survey is left on the targets.
    pub fn run(
        &self,
        surroundings: &Surroundings,
        devices: &dyn device::Devices,
    ) -> Result<(), Ended> {
        let on_servers = survey::Surroundings {
            stop: surroundings.stop,
            devices,
            out: surroundings.out,
            variable: &|name| std::env::var(name).ok(),
        };
        match &self.benchmark {
            Benchmark::Mdtest(options) => mdtest::run(options, surroundings),
            Benchmark::Ior(options) => ior::run(options, surroundings),
            Benchmark::Io500(options) => io500::run(options, surroundings),
            Benchmark::MdWorkbench(options) => workbench::run(options, surroundings),
            Benchmark::Compare(options) => compare::run(options, surroundings),
            Benchmark::MdsSurvey(options) => survey::mds(options, &on_servers),
            Benchmark::ObdfilterSurvey(options) => survey::obdfilter(options, &on_servers),
        }
    }
}

/// Options of the original that are refused by name.
#[must_use]
pub fn refused(benchmark: &str) -> &'static [&'static str] {
    match benchmark {
        "mdtest" => mdtest::REFUSED,
        "ior" => ior::REFUSED,
        "io500" => io500::REFUSED,
        "md-workbench" => workbench::REFUSED,
        "mds-survey" | "obdfilter-survey" => survey::REFUSED,
        _ => &[],
    }
}

/// How to build the native client, as `--native.*` said.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Native {
    /// File system to use: MGSNID[:MGSNID...]:/FSNAME; paths are relative to its root
    #[arg(long = "native.source", value_name = "SOURCE", help_heading = "Native client")]
    pub source: Option<String>,
    /// Port of the servers
    #[arg(long = "native.port", value_name = "PORT", help_heading = "Native client")]
    pub port: Option<u16>,
    /// Number of independent clients that the ranks share; more than one needs loopback addresses or --processes
    #[arg(
        long = "native.clients",
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..),
        help_heading = "Native client"
    )]
    pub clients: u16,
}

/// What every benchmark is given: how many ranks, and how they reach the file system.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Common {
    /// Number of ranks that work at the same time (also -np N)
    #[arg(
        long,
        visible_alias = "np",
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=65_536)
    )]
    pub ranks: u32,
    /// Run each rank as a process instead of a thread
    #[arg(long)]
    pub processes: bool,
    /// How to reach the file system
    #[arg(short = 'a', value_name = "API", default_value = "POSIX", ignore_case = true)]
    pub api: Api,
    /// The native client
    #[command(flatten)]
    pub native: Native,
}

/// Connects so many native clients.
pub type Connect<'a> = dyn Fn(&Native, u16) -> Result<Box<dyn Backend>, String> + Sync + 'a;

/// What the host of a benchmark gives it.
pub struct Surroundings<'a> {
    /// Set when the user wants it to end.
    stop: &'a AtomicBool,
    /// The native client.
    native: &'a Connect<'a>,
    /// Writes to standard output.
    out: &'a (dyn Fn(&str) + Sync),
    /// The words of the command line, the program's name first.
    words: &'a [String],
    /// What measures more than the result, if that is wanted.
    meter: Option<&'a meter::Meter>,
}

impl<'a> Surroundings<'a> {
    /// Those of the program of which `words` are the command line.
    #[must_use]
    pub fn new(
        stop: &'a AtomicBool,
        native: &'a Connect<'a>,
        out: &'a (dyn Fn(&str) + Sync),
        words: &'a [String],
    ) -> Self {
        Self { stop, native, out, words, meter: None }
    }

    /// What a team of ranks works under.
    fn watch(&self) -> ranks::Watch<'_> {
        ranks::Watch { stop: self.stop, meter: self.meter }
    }

    /// What other ranks are started with, behind the program's name.
    fn child_words(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }
}

/// The backend of `api`, which `-a` or a directive has named.
///
/// # Errors
/// A line: no such backend, or it is not to be had.
fn backend(
    surroundings: &Surroundings,
    common: &Common,
    api: Api,
    direct: bool,
) -> Result<Box<dyn Backend>, String> {
    match api {
        Api::Posix => Ok(Box::new(posix::Posix { direct })),
        // Each process has a client of its own.
        Api::Native if common.processes => (surroundings.native)(&common.native, 1),
        Api::Native => (surroundings.native)(&common.native, common.native.clients),
    }
}

/// What a phase has reached: the more the better.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Rate {
    /// The phase, as results call it.
    pub name: String,
    /// Of what `value` is a number.
    pub unit: &'static str,
    /// The number.
    pub value: f64,
}

/// What `-a` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
pub enum Api {
    /// System calls on any directory
    #[default]
    #[value(name = "POSIX")]
    Posix,
    /// The client library, without FUSE
    #[value(name = "NATIVE")]
    Native,
}
