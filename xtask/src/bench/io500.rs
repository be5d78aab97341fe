//! `cargo xtask bench io500`: IO500 on a mount, through the native client and on the local file system, set beside
//! each other by `sheen bench compare`, as docs/bench/io500 shows it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::machine::{commit, load, machine};
use super::place::{Kind, Place};
use crate::setup;
use crate::shell::{self, Outcome, Profile, root};

/// Seconds of each stonewall of a run that says something.
const STONEWALL: u32 = 10;

/// How much to measure, and where to.
#[derive(Args)]
pub(super) struct Options {
    /// Folder on the local file system to measure in [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// TCP port of the servers
    #[arg(long, default_value = "9932")]
    port: String,
    /// OSTs of the file system
    #[arg(long, default_value = "4")]
    osts: String,
    /// Ranks
    #[arg(long, default_value_t = 2)]
    ranks: u32,
    /// How often to run it on each
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds of each stonewall
    #[arg(long, default_value_t = STONEWALL)]
    stonewall: u32,
    /// Where page, numbers and README go
    #[arg(long, value_name = "DIR", default_value = "docs/bench/io500")]
    out: PathBuf,
}

pub(super) fn run(options: &Options) -> Outcome {
    setup::for_mount()?;
    shell::build_program(Profile::Release)?;
    let folder = options.dir.clone().unwrap_or_else(|| root().join("target/bench"));
    let folder = std::path::absolute(&folder).map_err(|error| error.to_string())?;
    let folder = folder.join(format!("io500-{}", std::process::id()));
    let outcome = measure(options, &folder);
    // Only below the folder of this run; what remains does no harm.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn measure(options: &Options, folder: &Path) -> Outcome {
    let failure = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let out = root().join(&options.out);
    for path in [&out, &folder.join("local")] {
        std::fs::create_dir_all(path).map_err(|error| failure(path, error))?;
    }
    let machine = machine();
    let load_before = load();
    let place =
        Place::open_with(Kind::Sheen, folder, &["--osts", &options.osts, "--port", &options.port])?;
    let (source, port) = place.source()?;
    let title = format!("IO500 at commit {}: mount, native client, local", commit());
    let mut compare = place.sheen(&["bench", "compare", "--title", &title]);
    // Names without the machine's paths: the page is published.
    compare.current_dir(folder);
    let native = format!("native=native:{source}");
    for target in ["mount=mnt", &native, "local=local"] {
        compare.args(["--target", target]);
    }
    compare.args(["--native.port", &port, "--rounds", &options.rounds.to_string()]);
    let results = ["numbers.json", "index.html"];
    compare.args(["--json", results[0], "--html", results[1]]);
    let benchmark =
        format!("io500 --ranks {} --quick --stonewall {}", options.ranks, options.stonewall);
    compare.arg("--").args(benchmark.split(' ')).stderr(std::process::Stdio::inherit());
    let shown = shell::show(&compare);
    eprintln!("$ {shown}");
    let output = compare.output().map_err(|error| format!("cannot run {shown}: {error}"))?;
    place.close()?;
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!("{shown}: {}", output.status));
    }
    println!("{table}");
    for name in results {
        std::fs::copy(folder.join(name), out.join(name)).map_err(|error| failure(&out, error))?;
    }
    let path = out.join("README.md");
    let load = format!("Load of the machine {load_before} before and {} at the end.", load());
    std::fs::write(&path, readme(options, &benchmark, &format!("{machine}. {load}"), &table))
        .map_err(|error| failure(&path, error))
}

fn readme(options: &Options, benchmark: &str, machine: &str, table: &str) -> String {
    let mut text = format!(
        "# IO500: mount, native client, local file system\n\n{machine}\n\nOne file system with one MDT and {} OSTs \
         on the machine that measures it, beside the local file system that keeps its targets. `sheen bench \
         compare ... -- {benchmark}`, {} rounds, in turn. No valid run of IO500: stonewalls are {} seconds, and \
         phases read what was just written.\n\n",
        options.osts, options.rounds, options.stonewall,
    );
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "[index.html](index.html) is the report with plots, for a browser; [numbers.json](numbers.json) has every \
         round. Made by `cargo xtask bench io500`.\n\n```text\n{table}```\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_readme_states_what_was_measured() {
        let options = Line::parse_from(["io500", "--osts", "3"]).options;
        let text =
            readme(&options, "io500 --quick", "2026-01-01, commit abc: 2 processors", "phase\n");
        for word in
            ["2026-01-01, commit abc", "3 OSTs", "-- io500 --quick", "3 rounds", "phase\n```"]
        {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
