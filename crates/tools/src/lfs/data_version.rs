//! `lfs data_version`: a number that differs after the data of a file has changed. The mount asks the servers for it.

use std::fs::File;
use std::path::PathBuf;

use clap::Args;
use sheen_types::Errno;

use super::attributes;
use crate::output::{Fault, errno_of, line, shown_path};

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
    let shown = shown_path(&options.path);
    let failed = |errno: Errno, what: String| {
        Err(Fault::new(errno, format!("lfs data_version: {what}: {errno}")))
    };
    if let Err(error) = File::open(&options.path) {
        return failed(errno_of(&error), format!("cannot open file '{shown}'"));
    }
    let version = match options.path.is_file() {
        true => attributes::data_version(&options.path, options.flush()),
        false => Err(Errno::ENOTTY),
    };
    let version = match version {
        Ok(version) => version,
        Err(errno) => return failed(errno, format!("cannot get version for '{shown}'")),
    };
    line(format_args!("{version}"));
    match options.set_hsm {
        // Servers have no HSM state to set it in.
        true => failed(Errno::EOPNOTSUPP, format!("cannot set version {version} for '{shown}'")),
        false => Ok(()),
    }
}

impl DataVersion {
    /// What clients do before the version is taken, by the letter of the option.
    fn flush(&self) -> char {
        match (self.write_lock, self.read_lock, self.nosync) {
            (true, ..) => 'w',
            (false, false, true) => 'n',
            _ => 'r',
        }
    }
}
