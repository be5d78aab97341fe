//! `lfs check`: whether the servers of the mounted file systems answer.

use std::path::PathBuf;

use clap::Args;
use sheen_types::Errno;

use super::mount::Mount;
use crate::output::{Fault, line};
use sheen_control::api::{Kind, MountTarget, TARGETS};

/// Options of `check`.
#[derive(Args)]
pub(super) struct Check {
    /// Servers to check: mgts, osts, mdts or all
    #[arg(value_name = "mgts|osts|mdts|all")]
    servers: Option<String>,
    /// A path on a file system [default: all mounted file systems]
    path: Option<PathBuf>,
}

/// What the word asks for, in the order in which Lustre checks.
fn kinds(word: &str) -> Option<&'static [Kind]> {
    match word {
        "all" | "servers" => Some(&[Kind::Ost, Kind::Mdt, Kind::Mgs]),
        "osts" => Some(&[Kind::Ost]),
        "mdts" | "mds" => Some(&[Kind::Mdt]),
        "mgts" => Some(&[Kind::Mgs]),
        _ => None,
    }
}

pub(super) fn run(options: &Check) -> Result<(), Fault> {
    let Some(word) = &options.servers else {
        let text = "lfs check: server type must be specified: mgts, osts, mdts or all";
        return Err(Fault::usage(text));
    };
    let Some(kinds) = kinds(word) else {
        let text = format!("lfs check: unrecognized option '{word}': use mgts, osts, mdts or all");
        return Err(Fault::usage(text));
    };
    let none = |errno: Errno| {
        Fault::new(errno, format!("lfs check: cannot find mounted Lustre filesystem: {errno}"))
    };
    let mounts = Mount::chosen(options.path.as_deref()).map_err(none)?;
    if mounts.is_empty() {
        return Err(none(Errno::ENODEV));
    }
    mounts.each("check", |mount| {
        let targets: Vec<MountTarget> = mount.ask(TARGETS, &[])?;
        for kind in kinds {
            for target in targets.iter().filter(|target| target.kind == *kind) {
                let state = if target.active { "active" } else { "inactive" };
                line(format_args!("{} {state}.", target.device));
            }
        }
        Ok(())
    })
}
