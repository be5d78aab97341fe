//! The benchmarks of this field without MPI: mdtest and IOR, on any file system.
//!
//! A benchmark asks a file system only through [`backend::Backend`]: [`posix::Posix`] is any directory, and
//! whoever hosts this crate brings the native client. [`ranks`] stands for MPI: ranks are threads or
//! processes that meet between phases. [`mdtest`] and [`ior`] have the options, the order of work, the
//! names and data, the formulas and the lines of the programs of these names, so that results can be set
//! beside each other; what differs is said in docs/bench/README.md.
//!
//! What measuring costs: a virtual call, a store to a counter of the rank's own and a load of a flag that
//! all share and nobody writes, for each operation; no lock, and no allocation once buffers have grown. The
//! clock is read twice for each phase and rank, and for each operation only where a stonewall or latencies
//! are asked for.

pub mod backend;
mod clock;
pub mod io500;
pub mod ior;
pub mod mdtest;
mod pattern;
pub mod posix;
mod progress;
pub mod ranks;
#[cfg(test)]
mod testing;
mod text;

use std::sync::atomic::AtomicBool;

use backend::Backend;

/// Which version of mdtest and IOR the lines are like.
pub const LIKE: &str = "4.0.0";

/// How to build the native client, as `--native.*` said.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct Native {
    /// The file system: MGSNID[:MGSNID...]:/FSNAME; paths are then those below its root
    #[arg(long = "native.source", value_name = "SOURCE", help_heading = "Native client")]
    pub source: Option<String>,
    /// Port of the servers
    #[arg(long = "native.port", value_name = "PORT", help_heading = "Native client")]
    pub port: Option<u16>,
    /// Independent clients that the ranks share; more than one needs loopback addresses or --processes
    #[arg(
        long = "native.clients",
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..),
        help_heading = "Native client"
    )]
    pub clients: u16,
}

/// See [`Surroundings::native`].
pub type Connect<'a> = dyn Fn(&Native, u16) -> Result<Box<dyn Backend>, String> + Sync + 'a;

/// What the host of a benchmark gives it.
pub struct Surroundings<'a> {
    /// Set when the user wants it to end.
    pub stop: &'a AtomicBool,
    /// Connects so many native clients.
    pub native: &'a Connect<'a>,
    /// Writes to standard output.
    pub out: &'a (dyn Fn(&str) + Sync),
    /// The words of the command line.
    pub words: &'a [String],
}

/// The backend that `-a` named.
///
/// # Errors
/// A line: no such backend, or it is not to be had.
fn backend(
    surroundings: &Surroundings,
    api: Api,
    native: &Native,
    processes: bool,
    direct: bool,
) -> Result<Box<dyn Backend>, String> {
    match api {
        Api::Posix => Ok(Box::new(posix::Posix { direct })),
        // Each process has a client of its own.
        Api::Native if processes => (surroundings.native)(native, 1),
        Api::Native => (surroundings.native)(native, native.clients),
    }
}

/// What `-a` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Api {
    /// System calls on any directory
    #[default]
    #[value(name = "POSIX")]
    Posix,
    /// The client library, without FUSE
    #[value(name = "NATIVE")]
    Native,
}
