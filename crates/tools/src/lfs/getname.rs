//! `lfs getname`: name and instance of mounted file systems.

use std::path::PathBuf;

use clap::Args;
use sheen_types::Errno;

use super::mount::Mount;
use crate::output::{Fault, line, shown, shown_path, worst as outcome};
use sheen_control::api::MountInfo;

/// Options of `getname`.
#[derive(Args)]
pub(super) struct GetName {
    /// Print the instance only
    #[arg(short, long)]
    instance: bool,
    /// Print the name of the file system only
    #[arg(short = 'n', long)]
    fsname: bool,
    /// Print the client's UUID only
    #[arg(short, long)]
    uuid: bool,
    /// Paths on the file systems [default: all mounted file systems]
    paths: Vec<PathBuf>,
}

pub(super) fn run(options: &GetName) -> Result<(), Fault> {
    if options.paths.is_empty() {
        return Mount::all().each("getname", |mount| {
            line(format_args!("{} {}", name(options, &mount.info), mount.info.path));
            Ok(())
        });
    }
    let mut worst = None;
    for path in &options.paths {
        match Mount::of(path) {
            Ok(mount) => line(name(options, &mount.info)),
            Err(errno) => {
                let errno = if errno == Errno::ENODEV { Errno::ENOTTY } else { errno };
                eprintln!("cannot get instance for '{}': {errno}", shown_path(path));
                worst = Some(errno);
            }
        }
    }
    outcome(worst)
}

fn name(options: &GetName, info: &MountInfo) -> String {
    if options.uuid {
        shown(&info.uuid)
    } else if options.instance {
        shown(&info.instance)
    } else if options.fsname {
        shown(&info.fsname)
    } else {
        shown(&format!("{}-{}", info.fsname, info.instance))
    }
}
