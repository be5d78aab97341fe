//! The only entrance to the project's work: `cargo xtask {demo,test,tidy,bench,golden,sim,docs,dist}`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod again;
mod bench;
mod beneath;
mod demo;
mod dist;
mod docs;
mod executables;
mod faults;
mod golden;
mod halved;
mod modules;
mod setup;
mod shell;
mod sim;
mod test;
mod tidy;

/// Everything that is done to this tree, by one name each.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build, start and mount a whole file system, and say what to try next
    Demo(demo::Options),
    /// Everything that must hold: tidy, build, all tests
    Test(test::Options),
    /// The rules of the house: layers, unsafe, file sizes, formatting, lints, licenses
    Tidy(tidy::Options),
    /// Measure the mount beside the local file system
    Bench(bench::Options),
    /// Decode every recorded message of a real Lustre and encode it again to the same bytes
    Golden(golden::Options),
    /// Run whole clusters in one process, in virtual time, from seeds
    Sim(sim::Options),
    /// Write the documents that are made from the code
    Docs,
    /// Packages for Debian and for distributions with RPM, into target/dist
    Dist(dist::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Demo(options) => demo::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Tidy(options) => tidy::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Golden(options) => golden::run(&options),
        Task::Sim(options) => sim::run(&options),
        Task::Docs => docs::run(),
        Task::Dist(options) => dist::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
        let parse = |line: &str| Arguments::try_parse_from(line.split(' ')).map(drop);
        for line in ["xtask bench", "xtask bench --files 5", "xtask bench mount --files 5"] {
            assert!(parse(line).is_ok(), "{line}");
        }
        assert!(parse("xtask bench layouts --quick --parts small,isolation").is_ok());
        assert!(parse("xtask bench io500 --rounds 1 --out x").is_ok());
        assert!(parse("xtask bench layouts --files 5").is_err());
    }
}
