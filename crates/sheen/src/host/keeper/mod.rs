//! The keeper of a mount: a process that outlives the mount's own, and starts the next one.
//!
//! It holds the connection to the kernel and the memory with what the next process needs
//! ([`sheen_fuse::KeeperMemory`]), and starts the process that serves the mount: the first one, and another one when
//! that ends while the kernel has the mount: it was killed, it crashed, or it asked for a program to go on with
//! ([`super::upgrade()`]). It does nothing else, has no threads, and ends with the mount. Should it be killed itself,
//! the process ends with it, and so does the mount.
//!
//! A process that is killed again and again is given up, and the mount left dead, as without a keeper.
//! Lustre has nothing like it: its client ends with the kernel.

mod link;
mod processes;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process, pidfd_open};
use sheen_io_os::Readiness;
use sheen_types::Errno;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

use super::daemon::Daemon;
use super::server::EndSignals;
use link::{Kept, Link, Message};
use processes::{PIDFD_THREAD, hang_up};
pub(super) use processes::{connection_of, keeper_of, served_by};
use sheen_fuse::KeeperMemory;
use sheen_tools::output::{Fault, errno_of};

/// Set in the environment of a mount's process: its keeper's number.
const KEEPER: &str = "SHEEN_KEEPER";
/// The exit code of a process that another program goes on for.
pub(super) const HANDED_OVER: u8 = 75;
/// Processes that may end one after the other, each before it has served for [`LASTS`].
const FAILURES_MAX: u32 = 10;
const LASTS: Duration = Duration::from_secs(2);
/// The longest pause before another one is started.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a process takes to end that was killed, where nothing keeps it.
const DIES_WITHIN: Duration = Duration::from_millis(200);
/// The exit code for a process that was killed, as shells have it.
const KILLED: u8 = 128 + 9;
/// The program of this process, also where its file was replaced or removed.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Whether the kernel can go on with a mount whose process has ended (Linux 6.16).
pub(super) fn is_possible() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 16)
}

/// How a process has ended that was asked to have another one go on.
const IN_ORDER: &str = "handed over";

/// What the keeper has given to the process that serves its mount.
pub(super) struct FromKeeper {
    link: Link,
    /// What an earlier process has left.
    pub(super) former: Option<FormerProcess>,
}

/// An earlier process of the mount.
pub(super) struct FormerProcess {
    pub(super) device: OwnedFd,
    pub(super) memory: KeeperMemory,
    /// How it has ended.
    pub(super) why: String,
}

impl FormerProcess {
    /// Whether it ended because another process was to go on.
    pub(super) fn is_in_order(&self) -> bool {
        self.why.ends_with(IN_ORDER)
    }
}

impl FromKeeper {
    /// What was given; `None` for a process that no keeper has started.
    ///
    /// # Errors
    /// The keeper has ended, or what it has is of another version.
    pub(super) fn take() -> Result<Option<Self>, Fault> {
        let Some(keeper) = std::env::var_os(KEEPER) else { return Ok(None) };
        let failed =
            |error: io::Error| Fault::new(errno_of(&error), format!("the mount's keeper: {error}"));
        // From here on this process ends with it.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| failed(error.into()))?;
        let parent = Pid::as_raw(rustix::process::getppid());
        if keeper.to_str() != Some(&*parent.to_string()) {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        }
        let link = Link::new(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
        live(&link).map_err(failed)?;
        let former = match link.receive().map_err(failed)? {
            Some(Message::Mount) => None,
            Some(Message::GoOn(why, Kept { device, memory })) => {
                let memory = KeeperMemory::of(memory).map_err(failed)?;
                Some(FormerProcess { device, memory, why })
            }
            _ => return Err(failed(io::ErrorKind::BrokenPipe.into())),
        };
        Ok(Some(Self { link, former }))
    }

    /// From now on another process can go on with the mount.
    pub(super) fn keep(&self, device: impl AsFd, memory: &KeeperMemory) -> Result<(), Fault> {
        self.link.keep(device.as_fd(), memory.as_fd()).map_err(|error| {
            Fault::new(errno_of(&error), format!("the mount's keeper takes nothing: {error}"))
        })
    }

    /// When this process ends, `program` goes on.
    pub(super) fn next(&self, program: &Path) -> Result<(), Fault> {
        let program = program.to_string_lossy().into_owned();
        self.link.send(&Message::Next(program)).map_err(|error| {
            Fault::new(errno_of(&error), format!("the mount's keeper does not answer: {error}"))
        })
    }
}

/// Starts a thread that does nothing, and says which. When the process is killed it ends at once, and the keeper sees
/// it: other threads may wait in the kernel for calls that only the next process can answer.
fn live(link: &Link) -> io::Result<()> {
    let (say, said) = std::sync::mpsc::channel();
    let waits = move || {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        if say.send(thread).is_ok() {
            loop {
                std::thread::park();
            }
        }
    };
    std::thread::Builder::new().name("lives".to_owned()).spawn(waits)?;
    let thread = said.recv().map_err(io::Error::other)?;
    link.send(&Message::Lives(thread))
}

/// Keeps a mount that a process with `arguments` of this program makes and serves, until it ends. Leaves with that
/// process's exit code.
///
/// # Errors
/// No process could be started.
pub(super) fn run(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let failed = |error: io::Error| {
        Fault::new(errno_of(&error), format!("cannot start the mount's process: {error}"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let mut keeper = Keeper {
        arguments,
        program: Program::own(),
        proven: Program::own(),
        kept: None,
        failures: 0,
        why: String::new(),
        is_handed_over: false,
        is_served: false,
        is_to_end: false,
        lives: None,
        dying: Vec::new(),
    };
    runtime.block_on(async {
        let mut signals = EndSignals::new()?;
        keeper.keep(&mut signals).await.map_err(failed)
    })
}

/// A program, whatever becomes of its file.
#[derive(Clone)]
struct Program {
    path: PathBuf,
    _file: Option<Arc<OwnedFd>>,
}

impl Program {
    fn own() -> Self {
        Self { path: OWN_PROGRAM.into(), _file: None }
    }

    /// The one that is at `path` now.
    fn at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Ok(Self { path, _file: Some(Arc::new(file)) })
    }
}

struct Keeper {
    arguments: Vec<OsString>,
    /// The program that is started next.
    program: Program,
    /// The last one that has served the mount.
    proven: Program,
    kept: Option<Kept>,
    /// How many processes have ended early in a row.
    failures: u32,
    /// How the last one has ended.
    why: String,
    /// It has asked for the next one.
    is_handed_over: bool,
    /// The process serves the mount.
    is_served: bool,
    /// This process got a signal to end when none did.
    is_to_end: bool,
    /// Readable when the process is being killed.
    lives: Option<Readiness>,
    /// Processes that were killed and have not ended.
    dying: Vec<Child>,
}

impl Keeper {
    async fn keep(&mut self, signals: &mut EndSignals) -> io::Result<u8> {
        loop {
            let (child, link) = match self.start() {
                // Its file is no program.
                Err(_) if self.program.path != self.proven.path => {
                    self.program = self.proven.clone();
                    continue;
                }
                started => started?,
            };
            let (begin, number) = (now(), child.id());
            let ended = self.serve(child, link, signals).await?;
            // It is there still if the process was killed.
            let socket = super::sockets().join(format!("mount-{number}.sock"));
            let _ = std::fs::remove_file(socket);
            if !self.kept.as_ref().is_some_and(is_connected) {
                return Ok(ended.map_or(KILLED, code));
            }
            self.why = match ended {
                _ if self.is_handed_over => format!("pid {number} {IN_ORDER}"),
                Some(ended) => format!("pid {number} ended ({ended})"),
                None => format!("pid {number} was killed"),
            };
            if !self.goes_on(now() - begin) {
                return Ok(ended.map_or(KILLED, code));
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// Whether another process is started after one that has `lasted` so long.
    fn goes_on(&mut self, lasted: Duration) -> bool {
        if std::mem::take(&mut self.is_handed_over) || lasted >= LASTS {
            self.failures = 0;
            return true;
        }
        self.failures += 1;
        // A program that never served is no better the next time.
        self.program = self.proven.clone();
        self.failures < FAILURES_MAX
    }

    fn pause(&self) -> Duration {
        match self.failures {
            0 | 1 => Duration::ZERO,
            some => (Duration::from_millis(50) * (1 << some.min(10))).min(PAUSE_MAX),
        }
    }

    fn start(&self) -> io::Result<(Child, Link)> {
        let (link, end) = Link::pair()?;
        let child = Command::new(&self.program.path)
            .arg0("sheen")
            .args(&self.arguments)
            .env(KEEPER, std::process::id().to_string())
            .stdin(Stdio::from(end))
            .spawn()?;
        let first = match &self.kept {
            None => Message::Mount,
            Some(kept) => Message::GoOn(self.why.clone(), kept.try_clone()?),
        };
        // One that has ended already is waited for.
        let _ = link.send(&first);
        note_served(&child);
        Ok((child, link))
    }

    /// Keeps what the process says is to be kept, and hands signals on to it, until it has ended. `None`: it was
    /// killed, and a thread of it waits in the kernel for a call that the next process answers.
    async fn serve(
        &mut self,
        mut child: Child,
        link: Link,
        signals: &mut EndSignals,
    ) -> io::Result<Option<ExitStatus>> {
        let pid = Pid::from_child(&child);
        let said = UnixStream::from_std(link.to_be_polled()?)?;
        let mut ended = signal(SignalKind::child())?;
        let mut is_silent = false;
        let mut gives_up_at = None;
        (self.lives, self.is_served) = (None, false);
        loop {
            if !is_silent {
                is_silent = !self.hear(pid, &link);
            }
            self.dying.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            if let Some(status) = child.try_wait()? {
                // What it said last.
                self.hear(pid, &link);
                return Ok(Some(status));
            }
            tokio::select! {
                ready = said.readable(), if !is_silent => {
                    ready?;
                    // Read elsewhere: it is not ready until more comes.
                    let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                    _ = said.try_io(Interest::READABLE, nothing);
                }
                () = signals.wait() => {
                    self.is_to_end = !self.is_served;
                    hand_on(pid);
                }
                _ = ended.recv() => {}
                dead = ended_thread(&self.lives), if gives_up_at.is_none() => {
                    dead?;
                    gives_up_at = Some(tokio::time::Instant::now() + DIES_WITHIN);
                }
                () = until(gives_up_at), if gives_up_at.is_some() => {
                    hang_up(pid);
                    self.dying.push(child);
                    return Ok(None);
                }
            }
        }
    }

    /// Takes what was said; whether more can be.
    fn hear(&mut self, pid: Pid, link: &Link) -> bool {
        while is_ready(link) {
            match link.receive() {
                Ok(Some(Message::Keep(kept))) => {
                    self.kept = Some(kept);
                    self.proven = self.program.clone();
                    // It may have begun after the signal.
                    self.is_served = true;
                    if std::mem::take(&mut self.is_to_end) {
                        hand_on(pid);
                    }
                }
                Ok(Some(Message::Lives(thread))) => {
                    let thread =
                        Pid::from_raw(thread).and_then(|it| pidfd_open(it, PIDFD_THREAD).ok());
                    self.lives = thread.and_then(|it| Readiness::of(it).ok());
                }
                Ok(Some(Message::Next(program))) => {
                    // One that is not there is not tried.
                    self.program = Program::at(Path::new(&program)).unwrap_or(self.proven.clone());
                    self.is_handed_over = true;
                }
                Ok(Some(_) | None) | Err(_) => return false,
            }
        }
        true
    }
}

/// Writes the process beside the log of a mount in the background, for operators and scripts. Nothing depends on it.
fn note_served(child: &Child) {
    let log = std::env::var_os(super::log::FILE_VARIABLE).map(PathBuf::from);
    if let Some(folder) = log.as_deref().and_then(Path::parent) {
        let _ = Daemon::new(folder, "mount").note_served(Pid::from_child(child));
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a process lasts")]
fn now() -> Instant {
    Instant::now()
}

async fn ended_thread(lives: &Option<Readiness>) -> io::Result<()> {
    match lives {
        Some(lives) => lives.ready().await,
        None => std::future::pending().await,
    }
}

async fn until(time: Option<tokio::time::Instant>) {
    if let Some(time) = time {
        tokio::time::sleep_until(time).await;
    }
}

/// Asks a process to unmount. It may have ended.
fn hand_on(pid: Pid) {
    let _ = kill_process(pid, Signal::TERM);
}

fn is_ready(link: &Link) -> bool {
    look(link, PollFlags::IN).intersects(PollFlags::IN | PollFlags::HUP)
}

/// Whether the kernel has the mount still.
fn is_connected(kept: &Kept) -> bool {
    is_live(&kept.device)
}

/// Whether the kernel has the mount whose connection this is.
pub(super) fn is_live(device: impl AsFd) -> bool {
    !look(device, PollFlags::empty()).contains(PollFlags::ERR)
}

fn look(descriptor: impl AsFd, flags: PollFlags) -> PollFlags {
    let mut polled = [PollFd::new(&descriptor, flags)];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let (Ok(_) | Err(_)) = poll(&mut polled, Some(&none));
    polled[0].revents()
}

/// As a shell has it.
fn code(ended: ExitStatus) -> u8 {
    let signal = ended.signal().map(|signal| 128 + signal);
    ended.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The error for a mount that no other process can go on with.
pub(super) fn keeps_nothing() -> Fault {
    let text =
        "this mount has no keeper, for which Linux 6.16 is needed: unmount it, and mount again";
    Fault::new(Errno::EOPNOTSUPP, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper() -> Keeper {
        Keeper {
            arguments: Vec::new(),
            program: Program { path: "new".into(), _file: None },
            proven: Program { path: "old".into(), _file: None },
            kept: None,
            failures: 0,
            why: String::new(),
            is_handed_over: false,
            is_served: false,
            is_to_end: false,
            lives: None,
            dying: Vec::new(),
        }
    }

    #[test]
    fn a_process_that_ends_at_once_is_started_again_more_and_more_slowly_and_then_given_up() {
        let mut keeper = keeper();
        let mut pauses = Vec::new();
        while keeper.goes_on(Duration::ZERO) {
            pauses.push(keeper.pause());
        }
        assert_eq!(pauses.len(), FAILURES_MAX as usize - 1);
        assert_eq!((pauses[0], pauses.last()), (Duration::ZERO, Some(&PAUSE_MAX)));
        assert!(pauses.is_sorted());
    }

    #[test]
    fn one_that_has_lasted_or_hands_over_counts_as_none() {
        let mut keeper = keeper();
        keeper.failures = FAILURES_MAX - 1;
        assert!(keeper.goes_on(LASTS));
        assert_eq!((keeper.failures, keeper.program.path.to_str()), (0, Some("new")));
        (keeper.failures, keeper.is_handed_over) = (FAILURES_MAX - 1, true);
        assert!(keeper.goes_on(Duration::ZERO));
        assert_eq!((keeper.failures, keeper.program.path.to_str()), (0, Some("new")));
        keeper.goes_on(Duration::ZERO);
        assert_eq!(keeper.program.path.to_str(), Some("old"), "the new one does not start");
        assert_eq!(code(ExitStatus::from_raw(75 << 8)), 75);
        assert_eq!(code(ExitStatus::from_raw(9)), KILLED);
    }

    #[test]
    fn a_connection_that_has_ended_is_seen() {
        // The write end of a pipe that no one reads looks like the device of what is not mounted.
        let (read, write) = io::pipe().expect("a pipe");
        let (memory, _end) = io::pipe().expect("a pipe");
        let kept = Kept { device: write.into(), memory: memory.into() };
        assert!(is_connected(&kept));
        drop(read);
        assert!(!is_connected(&kept));
    }
}
