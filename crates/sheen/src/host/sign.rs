//! Whether a mount gives a sign of life, and the end of one that gives none.
//!
//! Whoever asks a mount that hangs may wait in the kernel and not be killable, so a process of its own
//! asks, which nobody waits for any longer than [`PATIENCE`].

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Signal, kill_process};
use sheen_control::{Client, Question};
use sheen_fuse::Place;
use sheen_types::Errno;

use super::daemon::{self, Daemon};
use super::mount;
use crate::output::{Fault, errno_of};

/// How long a mount may take for its sign. It asks nobody for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the asker is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How long a mount process may take to end when its connection is gone.
const END: Duration = Duration::from_secs(30);

/// Ask a mount for a sign of life
#[derive(Args)]
pub(crate) struct Sign {
    /// Where it is mounted
    mount: PathBuf,
}

/// The process that asks.
pub(crate) fn ask(options: &Sign) -> Result<(), Fault> {
    sheen_fuse::ask(&options.mount).map_err(|error| super::io_fault(&options.mount, &error))
}

/// What a mount process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It does not run.
    Dead,
    /// It answers.
    Alive,
    /// It answers nothing, or was killed and does not end.
    Hangs,
}

/// How the process `daemon` does that serves `place`. What is not mounted here cannot be asked.
pub(super) fn health(daemon: &Daemon, place: &Place) -> Health {
    let is_dying = match daemon.lasting(PATIENCE) {
        Ok(None) => return Health::Dead,
        Ok(Some(_)) => false,
        Err(_) => true,
    };
    let answers = || place.found().is_none_or(|path| answers(&path));
    match !is_dying && answers() {
        true => Health::Alive,
        false => Health::Hangs,
    }
}

/// How the server process `daemon` does. One without a socket, as it begins or has another run folder, counts as
/// alive.
pub(super) fn server_health(daemon: &Daemon) -> Health {
    let Some(pid) = daemon.pid() else { return Health::Dead };
    let path = super::sockets().join(format!("server-{}.sock", pid.as_raw_nonzero()));
    let question = Question::Get { pattern: "accept".to_owned() };
    let asked = Client::connect_within(&path, PATIENCE).and_then(|mut it| it.ask(&question));
    match asked {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Health::Hangs,
        _ => Health::Alive,
    }
}

/// What is wrong with a server that hangs, and what to do.
pub(super) fn server_hangs(daemon: &Daemon) -> Fault {
    let pid = daemon.pid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let is_stopped = daemon::is_stopped(pid);
    let why =
        if is_stopped { ": it was stopped by a signal (`kill -CONT` lets it go on)" } else { "" };
    let text = format!(
        "the server process, pid {pid}, does not answer{why}; `sheen down --force` ends it, and what programs \
         have not synced may be lost"
    );
    Fault::new(Errno::ETIMEDOUT, text)
}

/// Whether the mount at `path` gives a sign of life in time.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
fn answers(path: &Path) -> bool {
    let asker = std::env::current_exe().and_then(|program| {
        let mut asker = Command::new(program);
        asker.arg("sign").arg(path).stdin(Stdio::null());
        asker.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    });
    let Ok(mut asker) = asker else { return true };
    let begin = Instant::now();
    loop {
        if let Ok(Some(status)) = asker.try_wait() {
            return status.success();
        }
        if begin.elapsed() > PATIENCE {
            // It goes now, or with the connection.
            _ = asker.kill();
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// What is wrong with a mount whose process runs while nothing is mounted at its place, and what to do.
pub(super) fn elsewhere(daemon: &Daemon, path: &Path) -> Fault {
    let pid = daemon.pid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let path = path.display();
    let text = format!(
        "{path} is not mounted here, but its mount process, pid {pid}, runs: for another mount namespace, or for \
         programs that used it when it was unmounted; end those, or run `sheen down`"
    );
    Fault::new(Errno::EBUSY, text)
}

/// What is wrong with a mount that hangs, and what to do.
pub(super) fn hangs(daemon: &Daemon, path: &Path) -> Fault {
    let pid = daemon.pid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let path = path.display();
    let text = format!(
        "{path}: the mount process, pid {pid}, does not answer; `sheen down --force` ends it, and every \
         call that waits for it with an error"
    );
    Fault::new(Errno::ETIMEDOUT, text)
}

/// Ends a mount whatever its process does and whoever waits for it.
pub(super) fn force(daemon: &Daemon, place: &Place) -> Result<(), Fault> {
    let path = place.path();
    if let Err(error) = sheen_fuse::abort(place)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        let text = format!(
            "{}: cannot end its FUSE connection: {error}; as root: mount -t fusectl none \
             /sys/fs/fuse/connections, and try again",
            path.display()
        );
        return Err(Fault::new(errno_of(&error), text));
    }
    let detached = place.detach();
    if let Some(pid) = daemon.pid() {
        // It ends by itself when its connection is gone, and gives its locks back, unless it hangs.
        if !daemon.wait(PATIENCE) {
            _ = kill_process(pid, Signal::KILL);
        }
    }
    match daemon.wait(END) {
        true => detached.map_err(|why| mount::stays(&why)),
        false => Err(hangs(daemon, path)),
    }
}
