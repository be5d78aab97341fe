//! Processes that a test looks at or ends, each by its own number.
#![allow(clippy::disallowed_methods, reason = "tests wait in real time")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Context, Outcome};

/// How often a waiting test looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Asks `holds` again and again until it says yes, at most for `limit`.
pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Outcome {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > limit {
            return Err(format!("{what}: not so within {} s", limit.as_secs()));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// What a program that ended left.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// Both outputs, the standard one first.
    pub output: String,
}

/// Runs `command` to its end with its outputs in files beside `log`, and ends it after `limit`.
///
/// Files and not pipes, because a daemon that it leaves behind keeps them open.
pub fn run(command: &mut Command, log: &Path, limit: Duration) -> Outcome<Finished> {
    run_and(command, log, limit, |_| Ok(()))
}

/// Like [`run`]; `meanwhile` gets the number of the process once it runs.
pub fn run_and(
    command: &mut Command,
    log: &Path,
    limit: Duration,
    meanwhile: impl FnOnce(Pid) -> Outcome,
) -> Outcome<Finished> {
    let (out, err) = (log.with_extension("out"), log.with_extension("err"));
    let shown = format!("{command:?}");
    command.stdin(Stdio::null());
    command.stdout(File::create(&out).context(out.display())?);
    command.stderr(File::create(&err).context(err.display())?);
    let mut child = command.spawn().context(&shown)?;
    let ended = meanwhile(Pid::from_child(&child)).and_then(|()| {
        wait_until(&shown, limit, || child.try_wait().is_ok_and(|status| status.is_some()))
    });
    if ended.is_err() {
        child.kill().context(&shown)?;
    }
    let status = child.wait().context(&shown)?;
    let output = format!("{}{}", text(&out), text(&err));
    ended.map_err(|error| format!("{error}\n{output}"))?;
    Ok(Finished { status, output })
}

/// Like [`run`], and a failure of the program is one.
pub fn must(command: &mut Command, log: &Path, limit: Duration) -> Outcome<String> {
    let finished = run(command, log, limit)?;
    if finished.status.success() {
        return Ok(finished.output);
    }
    Err(format!("{command:?}: {}\n{}", finished.status, tail(&finished.output, 40)))
}

/// The last `lines` lines.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Sends SIGKILL and waits until the process is gone.
pub fn kill(pid: i32) -> Outcome {
    let number = Pid::from_raw(pid).ok_or("0 is no process")?;
    match kill_process(number, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(format!("kill {pid}: {error}")),
    }
    wait_until(&format!("the end of process {pid}"), Duration::from_secs(30), || !is_alive(pid))
}

/// Makes the process stand still (`SIGSTOP`).
pub fn stop(pid: i32) -> Outcome {
    signal(pid, Signal::STOP)
}

/// Lets a process go on that stood still (`SIGCONT`).
pub fn go_on(pid: i32) -> Outcome {
    signal(pid, Signal::CONT)
}

fn signal(pid: i32, signal: Signal) -> Outcome {
    let number = Pid::from_raw(pid).ok_or("0 is no process")?;
    kill_process(number, signal).context(format_args!("signal to {pid}"))
}

/// Whether the process runs; a dead one that is not reaped yet does not. Its first thread may be dead while
/// other threads still end, and keep its files open.
pub fn is_alive(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| text(&thread.path().join("stat"))).any(|stat| {
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
        state.is_some_and(|state| state != 'Z' && state != 'X')
    })
}

/// Resident memory in KiB.
pub fn resident_kib(pid: i32) -> Outcome<u64> {
    let status = text(&PathBuf::from(format!("/proc/{pid}/status")));
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    number.ok_or(format!("process {pid} shows no resident memory"))
}

/// How long a process's environment may take to be read.
const READ: Duration = Duration::from_secs(1);

/// The processes whose environment holds the line `NAME=value`: those that a test started. To read one takes the
/// lock of its memory, which a program may hold that waits for a mount that hangs: it is left out.
pub fn with_environment(line: &str) -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pids: Vec<i32> = pids.filter(|pid| *pid != own).collect();
    let environ = |pid: i32| fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let marked = |environ: &[u8]| environ.split(|it| *it == 0).any(|it| it == line.as_bytes());
    let all = read_all(pids, environ, READ).into_iter();
    all.filter(|(_, environ)| marked(environ)).map(|(pid, _)| pid).collect()
}

/// What `read` says of each of `all`, but of those for which it takes longer than `limit`.
fn read_all<T: Send + 'static>(
    all: Vec<i32>,
    read: impl Fn(i32) -> T + Copy + Send + 'static,
    limit: Duration,
) -> Vec<(i32, T)> {
    let (count, rest) = (all.len(), Arc::new(Mutex::new(all.into_iter())));
    let (sender, heard) = mpsc::channel();
    let begin = || {
        let (rest, sender) = (Arc::clone(&rest), sender.clone());
        std::thread::spawn(move || {
            let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some(pid) = next() {
                if sender.send((pid, read(pid))).is_err() {
                    return;
                }
            }
        });
    };
    begin();
    let (mut found, mut late) = (Vec::new(), 0);
    while found.len() + late < count {
        match heard.recv_timeout(limit) {
            Ok(one) => found.push(one),
            // One stands still; another goes on with the rest.
            Err(_) => {
                late += 1;
                begin();
            }
        }
    }
    found
}

/// The TCP ports on which the process listens.
pub fn listening_ports(pid: i32) -> Vec<u16> {
    let sockets: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = text(Path::new("/proc/net/tcp"));
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Columns of proc(5): local address, remote address, state (0A is LISTEN), ..., inode.
    let listening = rows.filter(|row| row.len() > 9 && row[3] == "0A");
    let own = listening.filter(|row| sockets.iter().any(|inode| inode == row[9]));
    let ports = own.filter_map(|row| u16::from_str_radix(row[1].rsplit(':').next()?, 16).ok());
    let mut ports: Vec<u16> = ports.collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// A file's text, or nothing: for reports, where a missing file is no second failure.
pub fn text(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_ended_and_reported() {
        let log = std::env::temp_dir().join(format!("sheen-process-{}", std::process::id()));
        let finished =
            run(Command::new("sh").args(["-c", "echo one; exit 3"]), &log, Duration::from_secs(9));
        let finished = finished.expect("sh runs");
        assert_eq!((finished.status.code(), finished.output.as_str()), (Some(3), "one\n"));
        let slow = run(Command::new("sleep").arg("60"), &log, Duration::from_millis(100));
        assert!(slow.expect_err("too slow").contains("not so within"));
        for extension in ["out", "err"] {
            std::fs::remove_file(log.with_extension(extension)).expect("its log");
        }
    }

    #[test]
    fn ports_of_this_process_are_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        assert!(listening_ports(std::process::id().cast_signed()).contains(&port));
    }

    #[test]
    fn what_cannot_be_read_in_time_is_left_out_and_holds_up_nothing_else() {
        let read = |pid: i32| {
            if pid % 4 == 3 {
                std::thread::sleep(Duration::from_secs(3600));
            }
            pid * 2
        };
        let mut found = read_all((0..8).collect(), read, Duration::from_millis(50));
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 4, 5, 6].map(|pid| (pid, pid * 2)));
        assert_eq!(read_all(Vec::new(), read, READ), []);
    }
}
