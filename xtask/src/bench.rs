//! `cargo xtask bench`: what the file system costs, measured on this machine.
//!
//! `mount` (the default) is the mount beside the local file system; `layouts` is layouts beside each
//! other; `io500` is IO500 on the mount, natively and locally. All bring up file systems of their own and measure with processes of their own.
//! `dne` is what more MDTs are good for, in the simulator.

mod cost;
mod crew;
mod dne;
mod io500;
mod layouts;
mod machine;
mod mount;
mod place;

use clap::{Args, Subcommand};

use crate::shell::Outcome;

/// What to measure.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
#[group(skip)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    mount: mount::Options,
}

#[derive(Subcommand)]
enum What {
    /// The mount beside the local file system, and beside it through FUSE
    Mount(mount::Options),
    /// Layouts beside each other: Data-on-MDT, overstriping, isolation
    Layouts(layouts::Options),
    /// IO500 on the mount, natively and on the local file system
    Io500(io500::Options),
    /// Rates of metadata operations with 1 to 16 MDTs, in virtual time
    Dne(dne::Options),
    /// A process of the measurement itself
    #[command(hide = true)]
    Worker {
        /// What it does, as JSON
        job: String,
    },
}

pub(crate) fn run(options: &Options) -> Outcome {
    match &options.what {
        None => mount::run(&options.mount),
        Some(What::Mount(options)) => mount::run(options),
        Some(What::Layouts(options)) => layouts::run(options),
        Some(What::Io500(options)) => io500::run(options),
        Some(What::Dne(options)) => dne::run(options),
        Some(What::Worker { job }) => crew::work(job),
    }
}

/// How many of something, as words of a row.
fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Bytes as people say them.
fn bytes(count: u64) -> String {
    match count {
        0 => "0".to_owned(),
        count if count >= 1 << 20 && count.is_multiple_of(1 << 20) => {
            format!("{} MiB", count >> 20)
        }
        count if count.is_multiple_of(1 << 10) => format!("{} KiB", count >> 10),
        count => format!("{count} B"),
    }
}
