//! Whether mounts and servers make progress, and the forced end of a mount that does not.
//!
//! A process that asks a mount that hangs may wait in the kernel and not be killable, so a child of its own
//! asks, which is waited for no longer than [`PATIENCE`]. It asks twice: the threads that read calls, and
//! then, as a call like any other, the workers, the locks and the notifications to the kernel. It
//! prints each answer when it has it, so that the one that is missing says what hangs.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use sheen_control::{Client, ControlReply, ControlRequest};
use sheen_fuse::KernelMount;
use sheen_types::Errno;

use super::cluster::Cluster;
use super::daemon::{self, Daemon};
use super::progress::Progress;
use super::{keeper, mount};
use sheen_tools::output::{self, Fault, errno_of, shown_path};

/// How long a mount may take to answer. It needs no server for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the child's answers are read.
const LOOK: Duration = Duration::from_millis(10);
/// How long a mount process may take to end when its connection is gone.
const END: Duration = Duration::from_secs(30);

/// Ask a mount whether it makes progress
#[derive(Args)]
pub(crate) struct Sign {
    /// Mount point
    mount: PathBuf,
}

/// The child that asks. It prints nothing if no calls are read.
pub(crate) fn ask(options: &Sign) -> Result<(), Fault> {
    let fault = |error| super::io_fault(&options.mount, &error);
    sheen_fuse::ask(&options.mount).map_err(fault)?;
    output::line(format_args!("{READS}"));
    let said = sheen_fuse::state(&options.mount).map_err(fault)?;
    output::line(format_args!("{HANGS}{}", said.hangs));
    output::line(format_args!("{LATE}{}", said.late));
    Ok(())
}

/// What the child prints: calls are read, what hangs, what is late.
const READS: &str = "reads";
const HANGS: &str = "hangs ";
const LATE: &str = "late ";

/// The state of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It does not run.
    Dead,
    /// It answers; what is late in it, if anything is.
    Alive(String),
    /// It makes no progress, or was killed and does not end; with what hangs, if that is known.
    Hangs(String),
    /// It is the next process of a mount, and has not found its servers yet.
    Waits,
}

impl Health {
    /// Whether nothing is to be had of it now.
    pub(super) fn hangs(&self) -> bool {
        matches!(self, Self::Hangs(_) | Self::Waits)
    }

    /// What `status` shows after the process's number.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Dead => String::new(),
            Self::Alive(late) if late.is_empty() => String::new(),
            Self::Alive(late) => format!(", {late}"),
            Self::Waits => ", waits for its servers".to_owned(),
            Self::Hangs(what) => {
                format!(", does not answer{}: `sheen down --force` ends it", in_brackets(what))
            }
        }
    }
}

fn in_brackets(what: &str) -> String {
    if what.is_empty() { String::new() } else { format!(" ({what})") }
}

/// The state of the process `daemon` that serves `mount`. A mount that is not mounted here cannot be asked.
pub(super) fn health(daemon: &Daemon, mount: &KernelMount) -> Health {
    match daemon.lasting(PATIENCE) {
        Ok(None) => Health::Dead,
        Ok(Some(pid)) => match mount.found().map(|path| answers(&path)) {
            None => Health::Alive(String::new()),
            Some(Health::Hangs(_)) if is_to_serve(keeper::served_by(pid)) => Health::Waits,
            Some(health) => health,
        },
        Err(_) => Health::Hangs("it was killed and has not ended".to_owned()),
    }
}

/// Whether a process of a mount does not serve it yet: it has a socket when it does.
pub(super) fn is_to_serve(pid: Pid) -> bool {
    let number = pid.as_raw_nonzero().get();
    let socket = super::sockets().join(format!("mount-{number}.sock"));
    !socket.exists() && !daemon::is_stopped(number)
}

/// Whether the server process `pid` has begun and does not serve yet: another `up` has started it, which was killed.
pub(super) fn is_server_to_serve(pid: Pid) -> bool {
    let number = pid.as_raw_nonzero().get();
    let socket = super::sockets().join(format!("server-{number}.sock"));
    !socket.exists() && !daemon::is_stopped(number) && meets_here(pid)
}

/// Whether the server process `pid` answers that not all of its targets serve yet.
pub(super) fn is_server_to_be_ready(pid: Pid) -> bool {
    asked_server(pid, sheen_control::api::READY)
        .is_ok_and(|said| said == ControlReply::Text(sheen_control::api::STARTS.to_owned()))
}

/// What a server process answers to a command without arguments.
fn asked_server(pid: Pid, command: &str) -> std::io::Result<ControlReply> {
    let path = super::sockets().join(format!("server-{}.sock", pid.as_raw_nonzero()));
    let question = ControlRequest::Command { name: command.to_owned(), arguments: Vec::new() };
    Client::connect_within(&path, PATIENCE).and_then(|mut it| it.ask(&question))
}

/// Whether the mount process has begun and has no mount yet: so is one that another `up` has started, which was killed.
pub(super) fn is_to_mount(cluster: &Cluster) -> bool {
    cluster
        .mount()
        .pid()
        .is_some_and(|pid| keeper::connection_of(pid).is_none() && begins_unseen(cluster, pid))
}

/// Whether the mount process has begun and the kernel has connected it, a moment before its mount is seen.
pub(super) fn is_to_be_seen(cluster: &Cluster) -> bool {
    cluster
        .mount()
        .pid()
        .is_some_and(|pid| keeper::connection_of(pid).is_some() && begins_unseen(cluster, pid))
}

fn begins_unseen(cluster: &Cluster, keeper: Pid) -> bool {
    let served = keeper::served_by(keeper);
    cluster.kernel_mount().found().is_none() && is_to_serve(served) && meets_here(served)
}

/// Whether a process has its control socket where this one looks for it.
fn meets_here(pid: Pid) -> bool {
    let is_same = |name: &str| daemon::variable(pid, name) == std::env::var_os(name);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR");
    let is_below = runtime.is_some_and(|folder| super::sockets().starts_with(folder));
    let is_of_root = rustix::process::geteuid().is_root() && !is_below;
    is_same("SHEEN_RUN_DIR") && (is_of_root || is_same("XDG_RUNTIME_DIR"))
}

/// The error for a server that does not come to serve.
pub(super) fn does_not_serve(daemon: &Daemon, pid: Pid, patience: Duration) -> Fault {
    let (pid, log) = (pid.as_raw_nonzero(), daemon.log_file());
    let text = format!(
        "the server process, pid {pid}, which another `sheen up` has started, does not serve after {} s: see {}; try \
         again, or run `sheen down` first",
        patience.as_secs(),
        shown_path(&log)
    );
    Fault::new(Errno::ETIMEDOUT, text)
}

/// The number by which a fault names the process that serves a mount: not its keeper's.
pub(super) fn number(daemon: &Daemon) -> i32 {
    daemon.pid().map_or(0, |pid| keeper::served_by(pid).as_raw_nonzero().get())
}

/// The state that the child's output means; `ended` is whether it succeeded, `None` if it has not ended.
fn health_of(said: &str, ended: Option<bool>) -> Health {
    let line = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
    let reads = said.lines().any(|line| line == READS);
    match (line(HANGS), line(LATE)) {
        (Some(hangs), Some(_)) if !hangs.is_empty() => Health::Hangs(hangs.to_owned()),
        (Some(_), Some(late)) => Health::Alive(late.to_owned()),
        _ if ended.is_some() => Health::Hangs("its connection to the kernel has ended".to_owned()),
        _ if reads => Health::Hangs("calls are read, but its workers make no progress".to_owned()),
        _ => Health::Hangs("no calls are read".to_owned()),
    }
}

/// The state of the server process `daemon`. One without a socket, as it begins or has another run folder, counts as
/// alive.
pub(super) fn server_health(daemon: &Daemon) -> Health {
    let Some(pid) = daemon.pid() else { return Health::Dead };
    match asked_server(pid, sheen_control::api::STATE) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            Health::Hangs(String::new())
        }
        Ok(ControlReply::Text(said)) => match said.split_once('\n') {
            Some(("", fails)) => Health::Alive(fails.to_owned()),
            Some((what, _)) => Health::Hangs(what.to_owned()),
            None => Health::Alive(String::new()),
        },
        _ => Health::Alive(String::new()),
    }
}

/// The error for a server that hangs.
pub(super) fn server_hangs(daemon: &Daemon, health: &Health) -> Fault {
    let what = if let Health::Hangs(what) = health { in_brackets(what) } else { String::new() };
    let pid = daemon.pid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let is_stopped = daemon::is_stopped(pid);
    let why =
        if is_stopped { ": it was stopped by a signal (`kill -CONT` resumes it)" } else { "" };
    let text = format!(
        "the server process, pid {pid}, does not answer{what}{why}; `sheen down --force` ends it, and what programs \
         have not synced may be lost"
    );
    Fault::new(Errno::ETIMEDOUT, text)
}

/// What the mount at `path` answers in time.
fn answers(path: &Path) -> Health {
    match asked(path) {
        Some((said, ended)) => health_of(&said, ended.map(|status| status.success())),
        None => Health::Alive(String::new()),
    }
}

/// Whether the process of the mount at `path` has ended: then the kernel answers each call with `ENOTCONN`.
fn has_ended(path: &Path) -> bool {
    let code = asked(path).and_then(|(_, ended)| ended?.code());
    code == Some(i32::from(Fault::reported(Errno::ENOTCONN).code))
}

/// What the child said that asks, and how it ended if it has; `None` if there is none.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
fn asked(path: &Path) -> Option<(String, Option<ExitStatus>)> {
    let mut asker = Command::new(std::env::current_exe().ok()?);
    asker.arg("sign").arg(path).stdin(Stdio::null());
    let mut asker = asker.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let begin = Instant::now();
    let mut progress = Progress::new(format!("asking the mount at {}", shown_path(path)));
    let ended = loop {
        if let Ok(Some(status)) = asker.try_wait() {
            break Some(status);
        }
        if begin.elapsed() > PATIENCE {
            // The child ends now, or with the connection.
            _ = asker.kill();
            break None;
        }
        progress.look();
        std::thread::sleep(LOOK);
    };
    Some((asker.stdout.map(words).unwrap_or_default(), ended))
}

/// Reads what is there without waiting: the child may live, and never close its end.
fn words(mut output: ChildStdout) -> String {
    let mut said = Vec::new();
    if rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK).is_ok() {
        // Ends at the end, or where it would wait: what came before that is kept.
        _ = output.read_to_end(&mut said);
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// Detaches the mount of a dead process. A mount that answers is another one: of the directory that this one is a
/// copy of.
pub(super) fn detach_dead(mount: &KernelMount) -> Result<(), Fault> {
    match mount.found().map(|path| answers(&path)) {
        None | Some(Health::Alive(_)) => Ok(()),
        Some(_) => mount.detach_dead().map_err(|why| mount::stays(&why)),
    }
}

/// Whether some process serves it.
pub(super) fn is_answering(mount: &KernelMount) -> bool {
    mount.found().is_some_and(|path| matches!(answers(&path), Health::Alive(_)))
}

/// Detaches a mount at `path` whose process has ended, so that there can be another one. Says so in the log.
pub(super) fn detach_ended(path: &Path) -> Result<(), Fault> {
    let mount = KernelMount::newest_at(path);
    if mount.found().is_none() || !has_ended(path) {
        return Ok(());
    }
    tracing::warn!(at = %shown_path(path), "detached a mount whose process has ended");
    mount.detach().map_err(|why| mount::stays(&why))
}

/// The error for a mount that hangs.
pub(super) fn hangs(daemon: &Daemon, path: &Path, what: &str) -> Fault {
    let (what, pid, path) = (in_brackets(what), number(daemon), shown_path(path));
    let text = format!(
        "{path}: the mount process, pid {pid}, does not answer{what}; `sheen down --force` ends it, and every \
         call that waits for it with an error"
    );
    Fault::new(Errno::ETIMEDOUT, text)
}

/// The error for a mount whose process has not found its servers.
pub(super) fn waits(daemon: &Daemon, path: &Path) -> Fault {
    let (pid, path) = (number(daemon), shown_path(path));
    let text = format!(
        "{path}: the mount process, pid {pid}, waits for the servers: `sheen up` starts them where they are stopped; \
         `sheen down --force` ends it, and every call that waits for it with an error"
    );
    Fault::new(Errno::ETIMEDOUT, text)
}

/// Ends a mount whatever its process does and whichever programs wait for it.
pub(super) fn force(daemon: &Daemon, mount: &KernelMount) -> Result<(), Fault> {
    let path = mount.path();
    if let Err(error) = sheen_fuse::abort(mount)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        let text = format!(
            "{}: cannot end its FUSE connection: {error}; as root: mount -t fusectl none \
             /sys/fs/fuse/connections, and try again",
            shown_path(path)
        );
        return Err(Fault::new(errno_of(&error), text));
    }
    let detached = mount.detach();
    if let Some(pid) = daemon.pid() {
        // It ends by itself when its connection is gone, and cancels its locks, unless it hangs.
        if !daemon.wait(PATIENCE) {
            _ = kill_process(pid, Signal::KILL);
        }
    }
    match daemon.wait(END) {
        true => detached.map_err(|why| mount::stays(&why)),
        false => Err(hangs(daemon, path, "it was killed and has not ended")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_that_is_missing_says_what_hangs() {
        let hangs = |what: &str| Health::Hangs(what.to_owned());
        assert_eq!(health_of("", None), hangs("no calls are read"));
        let workers = hangs("calls are read, but its workers make no progress");
        assert_eq!(health_of("reads\n", None), workers);
        assert_eq!(health_of("reads\nhangs \nlate \n", Some(true)), Health::Alive(String::new()));
        assert_eq!(health_of("reads\nhangs a lock\nlate x\n", Some(true)), hangs("a lock"));
        let late = Health::Alive("pages are stuck".to_owned());
        assert_eq!(health_of("reads\nhangs \nlate pages are stuck\n", Some(true)), late);
        assert_eq!(health_of("", Some(false)), hangs("its connection to the kernel has ended"));
        assert!(late.hint() == ", pages are stuck" && Health::Dead.hint().is_empty());
        assert!(workers.hint().contains("does not answer (calls are read"));
    }

    #[test]
    fn words_are_read_of_a_process_that_never_closes_its_end() {
        let program = "echo reads; exec sleep 60";
        let mut child = Command::new("sh").args(["-c", program]).stdout(Stdio::piped()).spawn();
        let child = child.as_mut().expect("sh runs");
        let said = child.stdout.take().expect("an output");
        let poll = &mut [rustix::event::PollFd::new(&said, rustix::event::PollFlags::IN)];
        rustix::event::poll(poll, None).expect("it says something");
        assert_eq!(words(said), "reads\n");
        child.kill().and_then(|()| child.wait()).expect("ended");
    }
}
