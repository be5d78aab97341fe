//! Processes of a file system whose directory was removed while they ran: what they were started with says whose they
//! are.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;
use sheen_fuse::KernelMount;
use sheen_types::Errno;

use super::daemon::FoundProcess;
use super::{keeper, mount, mount_source, rediscovery};
use sheen_tools::output::{self, Fault, shown_path};

/// How long one may take to end: it has nothing to keep.
const PATIENCE: Duration = Duration::from_secs(5);

/// They: the processes and command lines.
pub(super) struct Orphans {
    directory: PathBuf,
    server: Option<(FoundProcess, Vec<OsString>)>,
    mount: Option<(FoundProcess, Vec<OsString>)>,
}

impl Orphans {
    /// Those of the file system that was in `directory`; `None` if it is there, or nothing runs.
    pub(super) fn of(directory: &Path) -> Option<Self> {
        if ["mgt", "run"].iter().any(|name| directory.join(name).exists()) {
            return None;
        }
        let directory = resolved(directory)?;
        let server = rediscovery::process("server", &directory.join("mgt"));
        let mount = rediscovery::mount(&directory);
        // A keeper has the words of the process that it keeps.
        let mount = mount.map(|(pid, words)| (keeper::keeper_of(pid), words));
        let (server, mount) = (server.and_then(found), mount.and_then(found));
        let runs = server.is_some() || mount.is_some();
        runs.then_some(Self { directory, server, mount })
    }

    /// The error for a command that can do nothing for it.
    pub(super) fn fault(&self) -> Fault {
        let place = shown_path(&self.directory);
        let text = format!(
            "{place}: the file system is gone, but {} still: `sheen down --dir {place}` ends it",
            self.names()
        );
        Fault::new(Errno::ENOENT, text)
    }

    fn names(&self) -> String {
        let name = |what: &str, process: &Option<(FoundProcess, Vec<OsString>)>| {
            process.as_ref().map(|(process, _)| format!("its {what} (pid {})", process.pid()))
        };
        let names = [name("server", &self.server), name("mount", &self.mount)];
        let names: Vec<String> = names.into_iter().flatten().collect();
        format!("{} {}", names.join(" and "), if names.len() == 1 { "runs" } else { "run" })
    }

    /// Unmounts and ends them.
    ///
    /// # Errors
    /// Programs use the mount, and it is not by force.
    pub(super) fn end(&self, force: bool) -> Result<(), Fault> {
        if let Some((process, words)) = &self.mount {
            let point = words.iter().rev().find(|word| !word.is_empty());
            let place =
                KernelMount::newest_at(Path::new(point.map_or(OsStr::new(""), |point| point)));
            let unmounted = if force { place.detach() } else { place.unmount() };
            unmounted.map_err(|why| mount::stays(&why))?;
            process.end("mount", PATIENCE);
        }
        if let Some((process, words)) = &self.server {
            process.end("server", PATIENCE);
            let value = |option| rediscovery::value_of(words, option);
            let nid = value("--nid").and_then(|nid| nid.parse().ok());
            let port = value("--port").and_then(|port| port.parse().ok());
            if let Some((nid, port)) = nid.zip(port) {
                mount_source::forget_of(nid, port, &self.directory.join("run/lnet"));
            }
        }
        let place = shown_path(&self.directory);
        output::line(format_args!("{place} is gone, with all its data; its processes were ended"));
        Ok(())
    }
}

/// The process of this number, if it still has these words.
fn found((pid, words): (Pid, Vec<OsString>)) -> Option<(FoundProcess, Vec<OsString>)> {
    FoundProcess::of(pid, &words).map(|process| (process, words))
}

/// The canonical path of what may not be there.
fn resolved(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| {
        let full = std::path::absolute(path).ok()?;
        Some(full.parent()?.canonicalize().ok()?.join(full.file_name()?))
    })
}
