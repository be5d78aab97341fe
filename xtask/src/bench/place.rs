//! Where work is done: the local file system, the same through FUSE, and Sheen.
#![allow(clippy::disallowed_methods, reason = "it waits beside other programs")]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use super::cost::{self, Cost, Processes};
use crate::shell::{self, Outcome, Profile, command, program};

/// Nothing of earlier work is left when so long no more was sent than pings.
const REST: Duration = Duration::from_millis(1500);
/// Requests in that time that mean nothing: one to each target at most.
const PINGS: u64 = 6;
/// How often to look at most.
const REST_LOOKS_MAX: u32 = 40;
/// How often to look whether a mount is there, and how often at most.
const MOUNT_LOOK: Duration = Duration::from_millis(50);
const MOUNT_LOOKS_MAX: u32 = 600;

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The local file system.
    Local,
    /// The local file system through a FUSE file system that passes everything through.
    Passthrough,
    /// One MGS, one MDT, OSTs and a mount.
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
    folder: PathBuf,
    top: PathBuf,
    /// Further mounts, by processes of their own.
    more_mounts: Vec<(PathBuf, Child)>,
    open: bool,
}

impl Place {
    /// Makes the place below `folder`; one of Sheen has four OSTs.
    pub(super) fn open(kind: Kind, folder: &Path) -> Result<Self, String> {
        Self::open_with(kind, folder, &["--osts", "4"])
    }

    /// As [`Place::open`], of Sheen with these options of `sheen up`.
    pub(super) fn open_with(kind: Kind, folder: &Path, options: &[&str]) -> Result<Self, String> {
        let (data, mount) = (folder.join("data"), folder.join("mnt"));
        let top = if kind == Kind::Local { data.clone() } else { mount };
        for path in [&data, &top] {
            std::fs::create_dir_all(path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        // Whatever fails from here on, what runs is ended.
        let open = kind == Kind::Sheen;
        let mut place =
            Self { kind, folder: folder.to_owned(), top, more_mounts: Vec::new(), open };
        match kind {
            Kind::Local => {}
            Kind::Passthrough => {
                let mut bindfs = command("bindfs");
                bindfs.args(["--no-allow-other", "--multithreaded"]).arg(&data).arg(&place.top);
                shell::run(bindfs)?;
            }
            Kind::Sheen => {
                std::fs::create_dir_all(place.sockets()).map_err(|error| error.to_string())?;
                let mut up = place.sheen(&["up"]);
                up.args(options).arg("--dir").arg(&data).arg("--mount").arg(&place.top);
                shell::run(up)?;
            }
        }
        place.open = true;
        Ok(place)
    }

    /// What clients mount, and the port of the servers.
    pub(super) fn source(&self) -> Result<(String, String), String> {
        let read = |name: &str| {
            let path = self.data().join("run").join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let (settings, nid) = (read("cluster")?, read("mgs.nid")?);
        let setting = |name: &str| -> Result<String, String> {
            let pairs = settings.lines().filter_map(|line| line.split_once('='));
            let value = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next();
            value.map(str::to_owned).ok_or(format!("{}: no {name}", self.data().display()))
        };
        Ok((format!("{}:/{}", nid.trim(), setting("fsname")?), setting("port")?))
    }

    /// A further mount of the same file system.
    pub(super) fn mount_again(&mut self) -> Result<PathBuf, String> {
        let path = self.folder.join(format!("mnt{}", self.more_mounts.len() + 2));
        let failure = |error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(&path).map_err(failure)?;
        let (source, port) = self.source()?;
        let mut mount = self.sheen(&["mount", "-o", &format!("port={port}")]);
        let log = std::fs::File::create(path.with_extension("log")).map_err(failure)?;
        mount.arg(source).arg(&path).stdin(std::process::Stdio::null());
        mount.stderr(log.try_clone().map_err(failure)?).stdout(log);
        let child = mount.spawn().map_err(failure)?;
        self.more_mounts.push((path.clone(), child));
        let device = |path: &Path| std::fs::metadata(path).map(|it| it.dev()).map_err(failure);
        let before = device(&self.folder)?;
        for _ in 0..MOUNT_LOOKS_MAX {
            if device(&path)? != before {
                return Ok(path);
            }
            std::thread::sleep(MOUNT_LOOK);
        }
        Err(format!("{}: not mounted", path.display()))
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
        let read = |name: &str| -> Result<u32, String> {
            let path = self.data().join("run").join(name);
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            // The process's number and when it started.
            let number = text.split_whitespace().next().unwrap_or_default();
            number.parse().map_err(|_| format!("{}: no process", path.display()))
        };
        let mut mounts = vec![read("mount.pid")?];
        mounts.extend(self.more_mounts.iter().map(|(_, child)| child.id()));
        Ok(Some(Processes { server: read("server.pid")?, mounts }))
    }

    /// What its processes have spent so far.
    pub(super) fn cost(&self) -> Result<Cost, String> {
        let Some(processes) = self.processes()? else { return Ok(Cost::default()) };
        let requests = cost::requests(&program(Profile::Release), &self.sockets());
        let (requests, kinds) = requests.unwrap_or_default();
        let mounts = processes.mounts.iter().map(|pid| cost::cpu_seconds(*pid));
        Ok(Cost {
            server_seconds: cost::cpu_seconds(processes.server)?,
            mount_seconds: mounts.sum::<Result<f64, _>>()?,
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

    fn shut(&mut self) -> Outcome {
        let mut ended = Ok(());
        for (path, child) in &mut self.more_mounts {
            // A mount that does not go by asking goes with its process.
            let gone = unmount(path).map_err(|error| match child.kill() {
                Ok(()) => error,
                Err(other) => format!("{error}; {other}"),
            });
            let failure = |error| format!("{}: {error}", path.display());
            ended = ended.and(gone).and(child.wait().map(drop).map_err(failure));
        }
        self.more_mounts.clear();
        ended.and(self.shut_first())
    }

    fn shut_first(&self) -> Outcome {
        match self.kind {
            Kind::Local => Ok(()),
            Kind::Passthrough => unmount(&self.top),
            Kind::Sheen => {
                let mut down = self.sheen(&["down", "--dir"]);
                down.arg(self.data());
                shell::run(down)?;
                std::fs::remove_dir_all(self.sockets()).map_err(|error| error.to_string())
            }
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// `sheen WORDS` in this file system's surroundings.
    pub(super) fn sheen(&self, words: &[&str]) -> std::process::Command {
        let mut sheen = command(program(Profile::Release));
        sheen.args(words).env("SHEEN_RUN_DIR", self.sockets());
        sheen
    }

    /// Short, because a socket's path has at most 107 bytes.
    fn sockets(&self) -> PathBuf {
        std::env::temp_dir().join(format!("sheen-bench-{}", std::process::id()))
    }
}

fn unmount(path: &Path) -> Outcome {
    let mut unmount = command("fusermount3");
    unmount.arg("-u").arg(path);
    shell::run(unmount)
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

/// Drops the kernel's clean caches; without root they stay, for every place alike.
pub(super) fn drop_caches() {
    rustix::fs::sync();
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
}
