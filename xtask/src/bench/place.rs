//! Where the same work is done: the local file system, the same through FUSE, and Sheen.
#![allow(clippy::disallowed_methods, reason = "it waits beside other programs")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cost::{self, Cost, Processes};
use crate::shell::{self, Outcome, command, program};

/// Nothing of earlier work is left when so long no more was sent than pings.
const REST: Duration = Duration::from_millis(1500);
/// Requests in that time that mean nothing: one to each target at most.
const PINGS: u64 = 6;
/// How often to look at most.
const REST_LOOKS_MAX: u32 = 40;

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The local file system.
    Local,
    /// The local file system through a FUSE file system that passes everything through.
    Passthrough,
    /// One MGS, one MDT, four OSTs, one mount.
    Sheen,
}

/// In the order of the report.
pub(super) const KINDS: &[Kind] = &[Kind::Local, Kind::Passthrough, Kind::Sheen];

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Passthrough => "passthrough",
            Self::Sheen => "sheen",
        }
    }
}

/// A place that is open. Dropped, it is unmounted.
pub(super) struct Place {
    kind: Kind,
    data: PathBuf,
    top: PathBuf,
    open: bool,
}

impl Place {
    /// Makes the place below `folder`.
    pub(super) fn open(kind: Kind, folder: &Path) -> Result<Self, String> {
        let data = folder.join("data");
        let top = if kind == Kind::Local { data.clone() } else { folder.join("mnt") };
        for path in [&data, &top] {
            std::fs::create_dir_all(path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut place = Self { kind, data, top, open: false };
        match kind {
            Kind::Local => {}
            Kind::Passthrough => {
                let mut bindfs = command("bindfs");
                bindfs
                    .args(["--no-allow-other", "--multithreaded"])
                    .arg(&place.data)
                    .arg(&place.top);
                shell::run(bindfs)?;
            }
            Kind::Sheen => {
                std::fs::create_dir_all(place.sockets()).map_err(|error| error.to_string())?;
                let mut up = place.sheen(&["up", "--osts", "4", "--dir"]);
                up.arg(&place.data).arg("--mount").arg(&place.top);
                shell::run(up)?;
            }
        }
        place.open = true;
        Ok(place)
    }

    /// Where to work.
    pub(super) fn top(&self) -> &Path {
        &self.top
    }

    /// The processes of the file system, where it has any of ours.
    pub(super) fn processes(&self) -> Result<Option<Processes>, String> {
        if self.kind != Kind::Sheen {
            return Ok(None);
        }
        let mut found = [0; 2];
        for (name, pid) in ["server.pid", "mount.pid"].iter().zip(&mut found) {
            let path = self.data.join("run").join(name);
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            // The process's number and when it started.
            let number = text.split_whitespace().next().unwrap_or_default();
            *pid = number.parse().map_err(|_| format!("{}: no process", path.display()))?;
        }
        Ok(Some(found))
    }

    /// What its processes have spent so far.
    pub(super) fn cost(&self) -> Result<Cost, String> {
        let Some([server, mount]) = self.processes()? else { return Ok(Cost::default()) };
        let requests = cost::requests(&program(), &self.sockets());
        let (requests, kinds) = requests.unwrap_or_default();
        Ok(Cost {
            server_seconds: cost::cpu_seconds(server)?,
            mount_seconds: cost::cpu_seconds(mount)?,
            requests,
            kinds,
        })
    }

    /// As [`Place::cost`], once nothing is sent on account of earlier work any more: dirty bytes
    /// are written back about a second after the write, and locks on removed files go back late.
    pub(super) fn cost_at_rest(&self) -> Result<Cost, String> {
        let mut cost = self.cost()?;
        for _ in 0..REST_LOOKS_MAX {
            let Some(before) = cost.requests else { break };
            std::thread::sleep(REST);
            cost = self.cost()?;
            if cost.requests.is_none_or(|now| now - before <= PINGS) {
                break;
            }
        }
        Ok(cost)
    }

    /// Unmounts and stops it.
    pub(super) fn close(mut self) -> Outcome {
        self.open = false;
        self.shut()
    }

    fn shut(&self) -> Outcome {
        match self.kind {
            Kind::Local => Ok(()),
            Kind::Passthrough => {
                let mut unmount = command("fusermount3");
                unmount.arg("-u").arg(&self.top);
                shell::run(unmount)
            }
            Kind::Sheen => {
                let mut down = self.sheen(&["down", "--dir"]);
                down.arg(&self.data);
                shell::run(down)?;
                std::fs::remove_dir_all(self.sockets()).map_err(|error| error.to_string())
            }
        }
    }

    fn sheen(&self, words: &[&str]) -> std::process::Command {
        let mut sheen = command(program());
        sheen.args(words).env("SHEEN_RUN_DIR", self.sockets());
        sheen
    }

    /// Short, because a socket's path has at most 107 bytes.
    fn sockets(&self) -> PathBuf {
        std::env::temp_dir().join(format!("sheen-bench-{}", std::process::id()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.open
            && let Err(error) = self.shut()
        {
            eprintln!("xtask: {error}");
        }
    }
}
