//! Which file system a command is for, where a machine has several, maybe of one name.
//!
//! Each process belongs to one MGS ([`Origin`]). `--dir`, or a name that only one MGS has, chooses it, and from then on
//! [`crate::processes::all`] finds its processes alone. Where neither does, the command asks: nothing is ever
//! changed in two file systems at once.

use std::fs;
use std::path::{Path, PathBuf};

use sheen_types::Errno;

use crate::home::{Home, choose, origin};
use crate::output::{Fault, errno_of};
use crate::processes;
use sheen_control::api::Origin;

fn origins() -> Vec<Origin> {
    processes::all().iter_mut().filter_map(origin).collect()
}

/// Has the processes of the file system in `dir` asked alone: a directory of `sheen up`, or one with targets.
///
/// # Errors
/// None of its processes runs here.
pub(crate) fn choose_directory(tool: &str, dir: &Path) -> Result<(), Fault> {
    let fault = |errno: Errno, why: &str| {
        Fault::new(errno, format!("{tool}: --dir {}: {why}", dir.display()))
    };
    let full = dir.canonicalize().map_err(|error| {
        let errno = errno_of(&error);
        fault(errno, &errno.to_string())
    })?;
    let lies_there = |origin: &&Origin| {
        origin.directories.iter().any(|target| Path::new(target).starts_with(&full))
    };
    let origins = origins();
    let served = origins.iter().find(lies_there).map(Home::of);
    let home = served
        .or_else(|| recorded(&full))
        .filter(|home| origins.iter().any(|origin| home.is(&Home::of(origin))));
    choose(home.ok_or_else(|| fault(Errno::ENODEV, "no file system in it is running"))?);
    Ok(())
}

/// What `sheen up` wrote down: of use where the server is stopped and mounts wait for it.
fn recorded(dir: &Path) -> Option<Home> {
    let text = fs::read_to_string(dir.join("run/cluster")).ok()?;
    let value = |key: &str| {
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
    };
    Some(Home { mgs: vec![value("nid")?], port: value("port")?.parse().ok() })
}

/// Has the one MGS of this machine asked that has a file system whose name `is_meant`; if none has, the only MGS.
/// That there is none the command finds out by itself.
///
/// # Errors
/// Several could be meant.
pub(crate) fn choose_mgs(command: &str, is_meant: impl Fn(&str) -> bool) -> Result<(), Fault> {
    let all = origins();
    let mgs: Vec<&Origin> = all.iter().filter(|origin| origin.has_mgs).collect();
    let named = |origin: &&&Origin| origin.names.iter().any(|name| is_meant(name));
    let named: Vec<&Origin> = mgs.iter().filter(named).copied().collect();
    let candidates = if named.is_empty() { mgs } else { named };
    match candidates[..] {
        [] => Ok(()),
        [one] => {
            choose(Home::of(one));
            Ok(())
        }
        _ => Err(ask(command, &candidates.into_iter().map(Home::of).collect::<Vec<_>>())),
    }
}

/// The line that asks which file system is meant.
pub(crate) fn ask(command: &str, homes: &[Home]) -> Fault {
    let all = origins();
    let labels: Vec<String> = homes.iter().map(|home| label(home, &all)).collect();
    let text = format!("{command}: which file system? {}", labels.join(", or "));
    Fault::usage(format!("{text}: choose it with --dir DIR"))
}

/// `sheen in /srv/one`; of a file system whose servers run elsewhere `sheen of 10.0.0.1@tcp`.
fn label(home: &Home, all: &[Origin]) -> String {
    let mut own: Vec<&Origin> = all.iter().filter(|origin| home.is(&Home::of(origin))).collect();
    own.sort_by_key(|origin| !origin.has_mgs);
    let names = own.first().map(|origin| origin.names.join("+")).unwrap_or_default();
    match own.iter().find_map(|origin| origin.directories.first()) {
        Some(target) => format!("{names} in {}", up_directory(target.into()).display()),
        None => format!("{names} of {}", home.mgs.join(":")),
    }
}

/// The directory of `sheen up` that a target lies in, or its own.
fn up_directory(target: PathBuf) -> PathBuf {
    let above = target.parent().filter(|above| above.join("run/cluster").exists());
    above.map(Path::to_owned).unwrap_or(target)
}

/// The homes in `found`, each once.
pub(crate) fn distinct(found: impl IntoIterator<Item = Option<Home>>) -> Vec<Home> {
    let mut homes: Vec<Home> = Vec::new();
    for home in found.into_iter().flatten() {
        if !homes.iter().any(|known| known.is(&home)) {
            homes.push(home);
        }
    }
    homes
}

#[cfg(test)]
mod tests {
    use super::{Home, distinct};

    fn home(nids: &[&str], port: u16) -> Home {
        Home { mgs: nids.iter().map(|&nid| nid.to_owned()).collect(), port: Some(port) }
    }

    #[test]
    fn a_file_system_is_its_mgs() {
        let (one, both) =
            (home(&["127.0.0.1@tcp"], 988), home(&["10.0.0.1@tcp", "127.0.0.1@tcp"], 988));
        assert!(one.is(&both) && both.is(&one));
        assert!(!one.is(&home(&["127.0.0.1@tcp"], 9988)));
        assert!(!one.is(&home(&["127.0.0.2@tcp"], 988)));
        assert!(distinct([Some(one.clone()), None, Some(both.clone())]) == vec![one.clone()]);
        assert!(both.is(&Home::of_source("10.0.0.1@tcp:/lustre")));
        assert!(one.is(&Home::of_source("10.0.0.2@tcp:127.0.0.1@tcp:/l/sub")));
        assert!(!one.is(&Home::of_source("10.0.0.1@tcp:/lustre")));
    }
}
