//! What is known of a file system of `sheen up` when its `run` directory is lost: its targets name the file system,
//! the MGT's configuration the address of its servers, and the command lines of processes that still run their
//! options.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use sheen_store_disk::Config;
use sheen_types::{Errno, Nid};

use super::daemon::{self, Daemon};
use super::log::FILE_VARIABLE;
use sheen_tools::mkfs::TargetConfig;
use sheen_tools::output::{Fault, shown_path};

/// Keys in the MGT's configuration, beside those of `mkfs.lustre`.
const NID: &str = "up.nid";
const PORT: &str = "up.port";
const TARGETS: &str = "up.targets";

/// The file system that `targets` are of; `None` if there are none but an MGT.
///
/// # Errors
/// `EINVAL` if they are of several, with their names; what is wrong with one that cannot be read.
pub(super) fn fsname(targets: &[PathBuf]) -> Result<Option<String>, Fault> {
    let mut known: Option<(String, &Path)> = None;
    for path in targets {
        let config = TargetConfig::load(path).map_err(|text| Fault::new(Errno::EIO, text))?;
        if config.kind.is_none() {
            continue;
        }
        match &known {
            Some((name, first)) if *name != config.fsname => {
                let (first, path, other) = (shown_path(first), shown_path(path), &config.fsname);
                let text = format!(
                    "{first} belongs to file system {name}, {path} to {other}: a directory holds only one"
                );
                return Err(Fault::new(Errno::EINVAL, text));
            }
            Some(_) => {}
            None => known = Some((config.fsname, path)),
        }
    }
    Ok(known.map(|(name, _)| name))
}

/// NID and port of the servers, as [`note`] left them.
pub(super) fn address(mgt: &Path) -> Option<(Nid, u16)> {
    let values = Config::load(mgt).ok()?.values;
    Some((values.get(NID)?.parse().ok()?, values.get(PORT)?.parse().ok()?))
}

/// The folders of the targets that were started last, as [`note`] left them.
pub(super) fn targets(mgt: &Path) -> Option<Vec<String>> {
    let values = Config::load(mgt).ok()?.values;
    Some(values.get(TARGETS)?.split(' ').map(str::to_owned).collect())
}

/// Stores the servers' address in the MGT's configuration, and the folders of the targets that are started.
///
/// # Errors
/// Its configuration cannot be read or written.
pub(super) fn note(mgt: &Path, (nid, port): (Nid, u16), paths: &[PathBuf]) -> Result<(), Fault> {
    let names = paths.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy()));
    let names: Vec<_> = names.collect();
    if address(mgt) == Some((nid, port)) && targets(mgt).is_some_and(|known| known == names) {
        return Ok(());
    }
    let failed = |error: sheen_store_disk::DiskError| sheen_tools::mkfs::disk_fault(&error);
    let mut config = Config::load(mgt).map_err(failed)?;
    config.values.insert(NID.to_owned(), nid.to_string());
    config.values.insert(PORT.to_owned(), port.to_string());
    config.values.insert(TARGETS.to_owned(), names.join(" "));
    config.save(mgt).map_err(failed)
}

/// Removes targets from those that [`note`] left: they are gone, and no client has seen them.
///
/// # Errors
/// As [`note`].
pub(super) fn forget(mgt: &Path, gone: &[PathBuf]) -> Result<(), Fault> {
    let (Some(address), Some(known)) = (address(mgt), targets(mgt)) else { return Ok(()) };
    let is_gone = |name: &String| gone.iter().any(|path| path.ends_with(name));
    let rest = known.into_iter().filter(|name| !is_gone(name)).map(PathBuf::from);
    note(mgt, address, &rest.collect::<Vec<_>>())
}

/// A process of ours that runs as `sheen NAME` with `word` among its arguments, and all of these.
pub(super) fn process(name: &str, word: &Path) -> Option<(Pid, Vec<OsString>)> {
    processes(name, word.as_os_str()).next()
}

/// The process of the mount that `sheen up` made of the file system in `directory`: the log that it was started with is
/// in there. That of another mount of it (`sheen mount`) is elsewhere.
pub(super) fn mount(directory: &Path) -> Option<(Pid, Vec<OsString>)> {
    processes("mount", directory.as_os_str()).find(|(pid, _)| is_mount_of_up(*pid, directory))
}

/// Whether `sheen up` started this process of a mount for the file system in `directory`.
pub(super) fn is_mount_of_up(pid: Pid, directory: &Path) -> bool {
    let log = Daemon::new(&directory.join("run"), "mount").log_file();
    daemon::variable(pid, FILE_VARIABLE).is_some_and(|path| Path::new(&path) == log)
}

/// All of them.
fn processes<'a>(
    name: &'a str,
    word: &'a OsStr,
) -> impl Iterator<Item = (Pid, Vec<OsString>)> + 'a {
    daemon::all().filter_map(move |pid| {
        let words = daemon::words(pid)?;
        let is_it = words.iter().skip(2).any(|found| found == word);
        (is_it && daemon::runs_as(pid, name)).then_some((pid, words))
    })
}

/// The value of `option` in the command line of a process.
pub(super) fn value_of<'a>(words: &'a [OsString], option: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| word == option)?;
    words.get(at + 1).and_then(|word| word.to_str())
}
