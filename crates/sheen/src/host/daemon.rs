//! Background processes: starting one and waiting until it is ready, finding and ending it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::progress::{Lines, Progress};
use super::{keeper, log, notify, private};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sheen_io::World;
use sheen_tools::output::{Fault, errno_of, shown_path};
use sheen_types::Errno;

/// The line of a process that is ready.
const READY: &str = "ready";
/// What comes before the reason of one that is not.
const FAILED: &str = "failed ";
/// What comes before what it does until it is.
const DOING: &str = "doing ";
/// Set in the environment of a process that was started in the background.
const SUPERVISED: &str = "SHEEN_SUPERVISED";
/// How often we look whether a process has ended.
const LOOK: Duration = Duration::from_millis(20);

/// How often a process looks whether the command that started it waits for it.
const LOOK_FOR_STARTER: Duration = Duration::from_millis(100);

/// A process that `up` keeps: its name, and the folder with its pid and log.
pub(crate) struct Daemon {
    name: &'static str,
    folder: PathBuf,
}

impl Daemon {
    pub(crate) fn new(folder: &Path, name: &'static str) -> Self {
        Self { name, folder: folder.to_owned() }
    }

    /// Where its files lie.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// `server.pid`, `keeper.pid`; `mount.pid` of a mount without a keeper.
    pub(super) fn pid_file(&self) -> PathBuf {
        let name = if self.has_keeper() { "keeper" } else { self.name };
        self.folder.join(format!("{name}.pid"))
    }

    /// Of a mount with a keeper, whose files name both: that of the process which serves it.
    fn served_file(&self) -> Option<PathBuf> {
        self.has_keeper().then(|| self.folder.join(format!("{}.pid", self.name)))
    }

    fn has_keeper(&self) -> bool {
        self.name == "mount" && keeper::is_possible()
    }

    /// Where it logs.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }

    /// The process if it runs: of a mount with a keeper that. A number that another program got meanwhile does not
    /// count, nor one that was killed and that its parent has not waited for, nor what a file says that another
    /// user wrote, nor a process of another user or program.
    pub(crate) fn pid(&self) -> Option<Pid> {
        let known = self.process_in(&self.pid_file());
        // Of a mount of an earlier version, or where the keeper's file is lost.
        known.or_else(|| self.process_in(&self.served_file()?).map(keeper::keeper_of))
    }

    fn process_in(&self, file: &Path) -> Option<Pid> {
        let text = private::text(file)?;
        let mut words = text.split_whitespace();
        let (number, started) = (words.next()?, words.next()?);
        let pid = Pid::from_raw(number.parse().ok()?)?;
        // In a copy of the folder the process is the original's.
        if words.next().is_some_and(|folder| Some(folder) != self.identity().as_deref()) {
            return None;
        }
        (started_at(pid)? == started && is_ours(pid, self.name) && is_alive(pid)).then_some(pid)
    }

    /// The process if it runs and goes on running: one that was killed a moment ago may look alive,
    /// and is waited for, as it still holds its files and its port.
    ///
    /// # Errors
    /// Its number, if it was killed and has not ended after `patience`.
    pub(crate) fn lasting(&self, patience: Duration) -> Result<Option<Pid>, Pid> {
        lasting(self.name, || self.pid().map(|pid| (pid, is_dying(pid))), patience)
    }

    /// As [`Daemon::lasting`], as an error for callers that cannot go on without an answer.
    ///
    /// # Errors
    /// It was killed and has not ended after `patience`.
    pub(crate) fn settled(&self, patience: Duration) -> Result<Option<Pid>, Fault> {
        self.lasting(patience).map_err(|pid| does_not_end(self.name, pid, patience))
    }

    /// Writes the pid file of a process that runs without one; with it that of the process that a keeper keeps.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn adopt(&self, pid: Pid) -> io::Result<()> {
        self.write_pid(&self.pid_file(), pid)?;
        match keeper::served_by(pid) {
            served if served != pid => self.note_served(served),
            _ => Ok(()),
        }
    }

    /// Writes which process serves the mount that this one keeps.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn note_served(&self, pid: Pid) -> io::Result<()> {
        self.served_file().map_or(Ok(()), |file| self.write_pid(&file, pid))
    }

    fn write_pid(&self, file: &Path, pid: Pid) -> io::Result<()> {
        let Some(started) = started_at(pid) else { return Ok(()) };
        private::directory(&self.folder).map_err(|fault| io::Error::other(fault.text))?;
        let folder = self.identity().unwrap_or_default();
        fs::write(file, format!("{} {started} {folder}\n", pid.as_raw_nonzero()))
    }

    /// Takes the files away.
    fn forget_pids(&self) {
        for file in [Some(self.pid_file()), self.served_file()].into_iter().flatten() {
            let _ = fs::remove_file(file);
        }
    }

    /// Device and inode of the folder: they stay where it is moved, and differ in a copy.
    fn identity(&self) -> Option<String> {
        let found = fs::metadata(&self.folder).ok()?;
        Some(format!("{}:{}", found.dev(), found.ino()))
    }

    /// Starts `arguments` of this binary in the background and waits until it is ready.
    ///
    /// # Errors
    /// The error that the process reports, with its exit code.
    pub(crate) fn start(&self, arguments: &[impl AsRef<OsStr>]) -> Result<(), Fault> {
        private::directory(&self.folder)?;
        let cannot = |error: io::Error| {
            let text = format!("cannot start the {} process: {error}", self.name);
            Fault::new(errno_of(&error), text)
        };
        let log = private::log(&self.log_file()).map_err(cannot)?;
        let program = std::env::current_exe().map_err(cannot)?;
        // Another mount namespace, which this process has entered, may not have its file.
        let path = if program.exists() { &program } else { Path::new("/proc/self/exe") };
        let mut command = Command::new(path);
        command.arg0(&program);
        notify::keep_from(&mut command);
        let mut child = command
            .args(arguments)
            .current_dir("/")
            .env(SUPERVISED, "1")
            .env(log::FILE_VARIABLE, self.log_file())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let pid = Pid::from_child(&child);
        self.adopt(pid).map_err(cannot)?;
        let said = child.stdout.take().map_or(Ok(String::new()), |output| self.outcome(output));
        let said = said.map_err(cannot)?;
        if said == READY {
            return Ok(());
        }
        let ended = child.wait().map_err(cannot)?;
        self.forget_pids();
        let code = ended.code().and_then(|code| u8::try_from(code).ok());
        let text = match said.strip_prefix(FAILED) {
            Some(why) => why.to_owned(),
            None => format!("the {} process died; see {}", self.name, shown_path(self.log_file())),
        };
        Err(Fault { code: code.filter(|code| *code != 0).unwrap_or(1), text })
    }

    /// What the process says at last; what it does meanwhile is shown.
    fn outcome(&self, output: ChildStdout) -> io::Result<String> {
        let mut lines = Lines::new(output);
        let mut progress = Progress::new(format!("waiting for the {} process to start", self.name));
        loop {
            let line = lines.next(&mut progress)?;
            match line.strip_prefix(DOING) {
                Some(what) => progress.doing(&format!("the {} process is {what}", self.name)),
                None => return Ok(line),
            }
        }
    }

    /// Asks it to end and waits; `false` if it has not after `patience`.
    pub(crate) fn ends(&self, patience: Duration) -> bool {
        let Some(pid) = self.pid() else { return true };
        let _ = kill_process(pid, Signal::TERM);
        self.wait(patience)
    }

    /// Asks it to end and waits. Kills it if it has not ended after `patience`.
    pub(crate) fn stop(&self, patience: Duration) {
        if !self.ends(patience)
            && let Some(pid) = self.pid()
        {
            let _ = kill_process(pid, Signal::KILL);
            self.wait(patience);
        }
        self.forget_pids();
    }

    /// Waits until it has ended; `false` if it has not after `patience`.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        self.wait_saying(patience, "to end")
    }

    /// As [`Self::wait`], and what is waited for is shown with `why`.
    #[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
    pub(super) fn wait_saying(&self, patience: Duration, why: &str) -> bool {
        let begin = Instant::now();
        let mut progress = Progress::new("");
        while let Some(pid) = self.pid().filter(|pid| is_alive(*pid)) {
            if begin.elapsed() > patience {
                return false;
            }
            // Of a mount it is the keeper that is waited for, which ends with the process that is meant.
            let pid = keeper::served_by(pid);
            progress.doing(&format!("waiting for the {} process, pid {pid}, {why}", self.name));
            std::thread::sleep(LOOK);
        }
        true
    }
}

/// The process that `look` finds, once it is not being killed; `look` says of one whether it is.
#[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
fn lasting(
    name: &str,
    look: impl Fn() -> Option<(Pid, bool)>,
    patience: Duration,
) -> Result<Option<Pid>, Pid> {
    let begin = Instant::now();
    let mut progress = Progress::new("");
    while let Some((pid, is_dying)) = look() {
        if !is_dying {
            return Ok(Some(pid));
        }
        if begin.elapsed() > patience {
            return Err(pid);
        }
        progress.doing(&format!("waiting for the {name} process, pid {pid}, to end"));
        std::thread::sleep(LOOK);
    }
    Ok(None)
}

/// The error for a process that was killed and is still there.
fn does_not_end(name: &str, pid: Pid, patience: Duration) -> Fault {
    let text = format!(
        "the {name} process, pid {}, was killed and has not ended within {} s: it waits in the kernel, for a disk or \
         a dump of its memory perhaps, and has its files until that ends; try again then",
        pid.as_raw_nonzero(),
        patience.as_secs()
    );
    Fault::new(Errno::ETIMEDOUT, text)
}

/// All processes that can be seen here.
pub(super) fn all() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// A process that was found: its number may be another one's later, with its start it is this one for ever.
#[derive(Clone, Debug)]
pub(super) struct FoundProcess {
    pid: Pid,
    started: String,
}

impl FoundProcess {
    /// The one of this number that runs with these words.
    pub(super) fn of(pid: Pid, with: &[OsString]) -> Option<Self> {
        let started = started_at(pid)?;
        // They are looked at after the start: of one that has another start they may not be.
        (words(pid)? == with).then_some(Self { pid, started })
    }

    /// Its number.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    fn is_there(&self) -> bool {
        started_at(self.pid).as_ref() == Some(&self.started) && is_alive(self.pid)
    }

    /// Asks it to end and waits, if it runs as `sheen NAME`; kills it if it has not ended after `patience`.
    pub(super) fn end(&self, name: &str, patience: Duration) {
        for signal in [Signal::TERM, Signal::KILL] {
            if self.is_there() && runs_as(self.pid, name) {
                let _ = kill_process(self.pid, signal);
            }
            let look = || self.is_there().then_some((self.pid, true));
            if lasting(name, look, patience).is_ok() {
                return;
            }
        }
    }
}

/// The command line of a process.
pub(super) fn words(pid: Pid) -> Option<Vec<OsString>> {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
    let words = line.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned());
    Some(words.collect())
}

/// The value of a variable in the environment that a process was started with.
pub(super) fn variable(pid: Pid, name: &str) -> Option<OsString> {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(OsStr::from_bytes(value).to_owned())
}

/// Whether a process of this user runs as `sheen NAME`, of the program that we are.
///
/// Of any other nothing is read but its command line: what else there is waits for the end of an `execve(2)`, which may
/// wait for a mount, as it closes files, and that for what is begun here.
pub(super) fn runs_as(pid: Pid, name: &str) -> bool {
    let program = |pid: &str| {
        let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        // Of one that was replaced meanwhile.
        Some(name.trim_end_matches(" (deleted)").to_owned())
    };
    if !is_ours(pid, name) {
        return false;
    }
    let of = program(&pid.as_raw_nonzero().to_string());
    of.is_some() && of == program("self") && is_alive(pid)
}

/// Whether it is a process of this user that was started as `sheen NAME`. Of one that is ending the words are
/// gone.
fn is_ours(pid: Pid, name: &str) -> bool {
    let place = format!("/proc/{}", pid.as_raw_nonzero());
    let owner = fs::metadata(&place).map(|found| found.uid());
    let words = fs::read(format!("{place}/cmdline")).unwrap_or_default();
    let tool = words.split(|byte| *byte == 0).nth(1);
    let own = rustix::process::geteuid().as_raw();
    owner.is_ok_and(|uid| uid == own) && (words.is_empty() || tool == Some(name.as_bytes()))
}

fn is_alive(pid: Pid) -> bool {
    // One that has ended and that its parent has not waited for is dead too, but not before its last thread
    // has ended: until then it keeps its files and locks.
    let place = format!("/proc/{}", pid.as_raw_nonzero());
    let threads = fs::read_dir(format!("{place}/task")).map_or(0, Iterator::count);
    let state = fs::read_to_string(format!("{place}/stat"));
    let zombie =
        state.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|s| s.starts_with(" Z")));
    (!zombie || threads > 1) && test_kill_process(pid).is_ok()
}

/// Whether a process was stopped by a signal or a debugger.
pub(super) fn is_stopped(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T") || rest.starts_with(" t"))
}

/// Whether a process is being killed: the signal waits for it, or it has begun to end.
fn is_dying(pid: Pid) -> bool {
    /// `PF_EXITING` and `PF_SIGNALED`.
    const ENDS: u64 = 0x4 | 0x400;
    const SIGKILL: u64 = 1 << 8;
    let place = format!("/proc/{}", pid.as_raw_nonzero());
    let stat = fs::read_to_string(format!("{place}/stat")).unwrap_or_default();
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6));
    let ends = flags.and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|it| it & ENDS != 0);
    let status = fs::read_to_string(format!("{place}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| {
        let set = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(set.trim(), 16).ok()
    });
    ends || pending.into_iter().any(|set| set & SIGKILL != 0)
}

/// When a process started, in the kernel's ticks: with its number that names it for ever.
fn started_at(pid: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

/// Whether another process started this one in the background.
pub(crate) fn is_supervised() -> bool {
    std::env::var_os(SUPERVISED).is_some()
}

/// Reports to the process that started this one, and to the service manager, that it is ready.
pub(crate) fn say_ready() {
    say(READY);
    notify::ready();
}

/// Reports what it does until it is ready.
pub(crate) fn say_doing(what: &str) {
    notify::status(what);
    if is_supervised() {
        say(&format!("{DOING}{what}"));
    }
}

/// Why a process ends that no command waits for.
const ABANDONED: &str = "the command that waited for it has ended";

/// Whether a process ends for that.
pub(super) fn is_abandonment(fault: &Fault) -> bool {
    fault.text == ABANDONED
}

/// Completes when the command has ended that waits for this process to be ready, with the reason to end, too.
pub(super) async fn abandoned(world: &World) -> Fault {
    while !is_abandoned() {
        world.clock.sleep_until(world.clock.now() + LOOK_FOR_STARTER).await;
    }
    Fault::new(Errno::EINTR, ABANDONED)
}

/// Whether the command has ended that started this process in the background.
pub(super) fn is_abandoned() -> bool {
    is_supervised() && !has_listener(io::stdout())
}

/// Whether the other end of a pipe is open.
fn has_listener(pipe: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&pipe, PollFlags::empty())];
    let looked = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    looked.is_err() || !fds[0].revents().contains(PollFlags::ERR)
}

/// Reports why it is not ready.
pub(crate) fn say_failed(why: &str) {
    notify::status(why);
    if is_supervised() {
        say(&format!("{FAILED}{why}"));
    }
}

fn say(line: &str) {
    // Without a listener there is nothing to report to.
    let _ = writeln!(io::stdout().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::BufRead;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(100);
    /// Set in the environment of a process that a test starts to be ended.
    const WAITS: &str = "SHEEN_TEST_WAITS";

    #[test]
    fn a_number_that_another_process_got_meanwhile_is_sent_no_signal() {
        const NAME: &str =
            "host::daemon::tests::a_number_that_another_process_got_meanwhile_is_sent_no_signal";
        if std::env::var_os(WAITS).is_some() {
            let _ = io::read_to_string(io::stdin());
            return;
        }
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let command = command.args([NAME, "--exact"]).env(WAITS, "1");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        // Its words are there when it runs.
        let mut output = io::BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        while !line.starts_with("running 1 test") {
            line.clear();
            assert_ne!(output.read_line(&mut line).expect("a line"), 0, "it has ended");
        }
        let pid = Pid::from_child(&child);
        let with = words(pid).expect("its words");
        assert!(FoundProcess::of(pid, &["sheen".into()]).is_none(), "it has other words");
        let found = FoundProcess::of(pid, &with).expect("it runs");

        let former = FoundProcess { started: "0".to_owned(), ..found.clone() };
        former.end(NAME, PATIENCE);
        found.end("server", PATIENCE);
        assert_eq!(child.try_wait().expect("a child"), None, "it is neither of these");
        found.end(NAME, Duration::from_secs(5));
        assert!(!child.wait().expect("a child").success());
    }

    #[test]
    fn a_pipe_that_no_process_reads_is_seen() {
        let (read, write) = io::pipe().expect("a pipe");
        assert!(has_listener(&write));
        drop(read);
        assert!(!has_listener(&write));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a tool that waits for a process")]
    fn a_process_that_was_killed_and_does_not_end_is_waited_for_no_longer_than_it_may_take() {
        let pid = Pid::from_raw(77).expect("a number");
        let begin = Instant::now();
        assert_eq!(lasting("server", || Some((pid, true)), PATIENCE), Err(pid));
        assert!(begin.elapsed() < PATIENCE * 20);
        let fault = does_not_end("server", pid, Duration::from_secs(30));
        let is_named =
            fault.text.contains("the server process, pid 77") && fault.text.contains("30 s");
        assert!(is_named && !fault.text.contains("  "), "{}", fault.text);
    }

    #[test]
    fn a_process_that_is_not_being_killed_lasts_and_one_that_ends_is_gone() {
        let pid = Pid::from_raw(77).expect("a number");
        assert_eq!(lasting("server", || Some((pid, false)), PATIENCE), Ok(Some(pid)));
        let looks = Cell::new(0);
        let ends = || {
            looks.set(looks.get() + 1);
            (looks.get() < 3).then_some((pid, true))
        };
        assert_eq!((lasting("server", ends, PATIENCE), looks.get()), (Ok(None), 3));
    }
}
