//! Programs of other projects that judge a file system, run on whole mounted ones.
//!
//! `cargo xtask test` installs them at the versions it names, says where (`SHEEN_SUITES`), and asks
//! for full sizes with `SHEEN_TEST_LONG`. What they say is in docs/CONFORMANCE.md.

mod fsx;
mod load;
mod pjdfstest;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_workloads::{Context, Outcome, ensure, process};

/// A program that `cargo xtask test` installed.
fn installed(name: &str) -> Outcome<PathBuf> {
    let folder = std::env::var_os("SHEEN_SUITES")
        .ok_or("SHEEN_SUITES is not set: run `cargo xtask test --only suites`")?;
    let program = Path::new(&folder).join(name);
    ensure(program.is_file(), || format!("{}: not installed", program.display()))?;
    Ok(program)
}

/// A file beside the logs of `cluster`.
fn written(cluster: &Cluster, name: &str, text: &str) -> Outcome<PathBuf> {
    let path = cluster.logs().join(name);
    std::fs::write(&path, text).context(path.display())?;
    Ok(path)
}

/// Runs a suite to its end and answers what it said; its failure is one.
fn judged(
    cluster: &Cluster,
    name: &str,
    command: &mut Command,
    limit: Duration,
) -> Outcome<String> {
    process::must(command, &cluster.logs().join(name), limit)
}
