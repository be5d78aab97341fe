//! Takes a lock as a process of its own: `sheen-probe flock|fcntl hold|try FILE`.
//!
//! `hold` says `held` and keeps the lock until its input ends; `try` ends with 0 if it got the
//! lock and 1 if another has it; 2 says that something else is wrong.
//!
//! `sheen-probe threads read FILE` reads the file from beginning to end in four threads at once.
//!
//! `sheen-probe stats until DIRECTORY` looks names up in the directory that are not there, without pause, until it has
//! been refused them for [`REFUSED`], and says when it began with the last one that it was not refused: nanoseconds of
//! the calendar.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

/// How long a directory is closed before that counts.
const REFUSED: Duration = Duration::from_secs(1);
/// Names that are looked up by turns.
const NAMES: u32 = 4000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, action, path] = arguments.as_slice() else {
        eprintln!(
            "usage: sheen-probe flock|fcntl hold|try FILE, sheen-probe threads read FILE, or \
             sheen-probe stats until DIRECTORY"
        );
        return ExitCode::from(2);
    };
    if (kind.as_str(), action.as_str()) == ("threads", "read") {
        return read_in_threads(path);
    }
    if (kind.as_str(), action.as_str()) == ("stats", "until") {
        return stat_until_refused(path);
    }
    let locked = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| error.to_string())
        .and_then(|file| Ok((lock(kind, &file)?, file)));
    match (locked, action.as_str()) {
        (Ok((false, _)), _) => ExitCode::FAILURE,
        (Ok((true, _)), "try") => ExitCode::SUCCESS,
        (Ok((true, file)), "hold") => hold(file),
        (Ok(_), other) => fail(&format!("{other}: neither hold nor try")),
        (Err(error), _) => fail(&format!("{kind} {path}: {error}")),
    }
}

fn read_in_threads(path: &str) -> ExitCode {
    let read = || std::fs::read(path).map(|bytes| bytes.len());
    let lengths = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        threads.into_iter().map(|it| it.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    });
    lengths.map_or_else(|error| fail(&format!("{path}: {error}")), |_| ExitCode::SUCCESS)
}

#[expect(clippy::disallowed_methods, reason = "another process compares it with its own time")]
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn stat_until_refused(directory: &str) -> ExitCode {
    let mut last = now();
    for number in (0..NAMES).cycle() {
        let begun = now();
        match std::fs::symlink_metadata(format!("{directory}/no{number}")) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            _ => last = begun,
        }
        if begun.saturating_sub(last) > REFUSED {
            break;
        }
    }
    println!("{}", last.as_nanos());
    ExitCode::SUCCESS
}

fn lock(kind: &str, file: &File) -> Result<bool, String> {
    let wish = FlockOperation::NonBlockingLockExclusive;
    let taken = match kind {
        "flock" => flock(file, wish),
        "fcntl" => fcntl_lock(file, wish),
        other => return Err(format!("{other}: neither flock nor fcntl")),
    };
    match taken {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

fn hold(file: File) -> ExitCode {
    let mut out = std::io::stdout();
    if out.write_all(b"held\n").and_then(|()| out.flush()).is_err() {
        return fail("no process listens");
    }
    let mut rest = Vec::new();
    let ended = std::io::stdin().read_to_end(&mut rest);
    drop(file);
    if ended.is_ok() { ExitCode::SUCCESS } else { fail("the input broke") }
}

fn fail(fault: &str) -> ExitCode {
    eprintln!("sheen-probe: {fault}");
    ExitCode::from(2)
}
