//! `lfs heat_get` and `heat_set`: how much files were accessed recently.

use std::path::PathBuf;

use clap::Args;
use sheen_types::Errno;

use super::attributes;
use crate::output::{Fault, line, shown_path, worst as outcome};

/// `LU_HEAT_NAMES`.
const NAMES: [&str; 4] = ["readsample", "writesample", "readbyte", "writebyte"];
/// `LU_HEAT_FLAG_OFF`, `LU_HEAT_FLAG_CLEAR`.
const OFF: u64 = 2;
const CLEAR: u64 = 4;

/// Options of `heat_get`.
#[derive(Args)]
pub(super) struct Get {
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Options of `heat_set`.
#[derive(Args)]
pub(super) struct Set {
    /// Clear the counters
    #[arg(short, long)]
    clear: bool,
    /// Clear the counters and turn counting off
    #[arg(short, long, overrides_with = "on")]
    off: bool,
    /// Turn counting on
    #[arg(short = 'O', long, overrides_with = "off")]
    on: bool,
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

pub(super) fn get(options: &Get) -> Result<(), Fault> {
    let mut worst = None;
    for path in &options.paths {
        match attributes::heat(path) {
            Ok((flags, values)) => {
                line(format_args!("flags: {flags:x}"));
                for (name, value) in NAMES.iter().zip(values) {
                    line(format_args!("{name}: {value}"));
                }
            }
            Err(errno) => {
                eprintln!("heat_get: {}", refusal("cannot get heat of", path, errno));
                worst = Some(worst.unwrap_or(errno));
            }
        }
    }
    outcome(worst)
}

pub(super) fn set(options: &Set) -> Result<(), Fault> {
    let mut worst = None;
    for path in &options.paths {
        if let Err(errno) = attributes::set_heat(path, options.flags()) {
            eprintln!("heat_set: {}", refusal("cannot setflags heat of", path, errno));
            worst = Some(worst.unwrap_or(errno));
        }
    }
    outcome(worst)
}

/// As Lustre says it: of a file that is not there, that it cannot be opened.
fn refusal(what: &str, path: &std::path::Path, errno: Errno) -> String {
    let what = match errno {
        Errno::ENOENT | Errno::EACCES => "cannot open",
        _ => what,
    };
    format!("{what} file '{}': {errno}", shown_path(path))
}

impl Set {
    fn flags(&self) -> u64 {
        let (clear, off) = (self.clear || self.off, self.off && !self.on);
        (if clear { CLEAR } else { 0 }) | (if off { OFF } else { 0 })
    }
}
