//! `lfs data_version`: whether the data of a file changed. What is asked is checked as in Lustre; then it is refused:
//! servers answer with versions, and the mount does not ask for them yet.

use std::fs::File;
use std::path::PathBuf;

use clap::Args;
use sheen_types::Errno;

use super::attributes;
use crate::output::{Fault, errno_of};

/// Options of `data_version`.
#[derive(Args)]
pub(super) struct DataVersion {
    /// Do not flush the data of clients first
    #[arg(short, long)]
    nosync: bool,
    /// Flush the dirty data of all clients first (the default)
    #[arg(short, long = "read-lock", alias = "read")]
    read_lock: bool,
    /// Flush and drop the data of all clients first
    #[arg(short, long = "write-lock", alias = "write")]
    write_lock: bool,
    /// Set the version in the file's HSM state
    #[arg(short, long = "set-hsm")]
    set_hsm: bool,
    /// File
    #[arg(value_name = "FILENAME")]
    path: PathBuf,
}

pub(super) fn run(options: &DataVersion) -> Result<(), Fault> {
    let shown = options.path.display();
    let failed = |errno: Errno, what: String| {
        Err(Fault::new(errno, format!("lfs data_version: {what}: {errno}")))
    };
    if let Err(error) = File::open(&options.path) {
        return failed(errno_of(&error), format!("cannot open file '{shown}'"));
    }
    let what = format!("cannot get version for '{shown}'");
    if !options.path.is_file() || attributes::fid(&options.path).is_err() {
        return failed(Errno::ENOTTY, what);
    }
    failed(Errno::EOPNOTSUPP, format!("{what}: mounts of Sheen do not ask servers for it yet"))
}
