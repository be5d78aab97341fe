//! Programs of other projects that judge a file system.
//!
//! `cargo xtask test` installs them at the versions it names and says where (`SHEEN_SUITES`). What they say is in
//! docs/CONFORMANCE.md.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use sheen_workloads::{Context, Outcome, ensure, process};

use crate::cluster::Cluster;

/// The folder with the programs; `None` where `cargo xtask test` has named none.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("SHEEN_SUITES").map(PathBuf::from)
}

/// A program that `cargo xtask test` installed.
///
/// # Errors
/// A line if it is not there.
pub fn installed(name: &str) -> Outcome<PathBuf> {
    let folder = folder().ok_or("SHEEN_SUITES is not set: run `cargo xtask test --only suites`")?;
    let program = folder.join(name);
    ensure(program.is_file(), || format!("{}: not installed", program.display()))?;
    Ok(program)
}

/// Writes a file beside the logs of `cluster` and answers its path.
///
/// # Errors
/// A line with its path.
pub fn written(cluster: &Cluster, name: &str, text: &str) -> Outcome<PathBuf> {
    let path = cluster.logs().join(name);
    std::fs::write(&path, text).context(path.display())?;
    Ok(path)
}

/// Runs a suite to its end and answers what it printed, which is kept beside the logs of `cluster` as `name`.
///
/// # Errors
/// The last lines of it if the suite fails or takes longer than `limit`.
pub fn judged(
    cluster: &Cluster,
    name: &str,
    command: &mut Command,
    limit: Duration,
) -> Outcome<String> {
    process::must(command, &cluster.logs().join(name), limit)
}
