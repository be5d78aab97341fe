//! Two views of one file system: what holds between two programs on one machine holds between two
//! mounts. Each function takes the same folder seen through the one and through the other; over a
//! plain directory both are the same.
#![allow(clippy::disallowed_methods, reason = "the other view lives in a thread of its own")]

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::bytes::content;
use crate::process::wait_until;
use crate::{Context, Outcome, Size, ensure};

/// How long the kernel may take to report that a file is closed for good: no call waits for that, and
/// while the server is dead no server hears of it.
const CLOSED_SOON: Duration = Duration::from_secs(60);

/// All of them. `probe` is the program `sheen-probe` of this crate.
pub fn run(a: &Path, b: &Path, probe: &Path, size: Size) -> Outcome {
    let rounds = size.of(10, 100, 1000);
    close_to_open(a, b, rounds)?;
    growing(a, b, rounds)?;
    attributes_agree(a, b)?;
    moves(a, b, rounds)?;
    absences(a, b, rounds)?;
    removals(a, b)?;
    names_of_open_files(a, b)?;
    crate::mapped::run(a, b, rounds)?;
    exclusive(a, b, rounds)?;
    rename_race(a, b, rounds)?;
    append(a, b, rounds)?;
    crate::slots::run(a, b, rounds)?;
    locks(a, b, probe)
}

/// What one closes, the other reads, and the other way round.
pub fn close_to_open(a: &Path, b: &Path, rounds: u64) -> Outcome {
    let (mut writer, mut reader) = (a, b);
    for round in 0..rounds {
        let written = content(round, 1 + usize::try_from(round * 7919).context(round)? % 200_000);
        let path = writer.join("closed");
        fs::write(&path, &written).context(path.display())?;
        let found = fs::read(reader.join("closed")).context("what the other closed")?;
        ensure(found == written, || {
            format!("round {round}: {} bytes closed, {} bytes read", written.len(), found.len())
        })?;
        (writer, reader) = (reader, writer);
    }
    Ok(())
}

/// While one writes, the other sees sizes that only grow, times that never go back, and no byte
/// that was not written.
pub fn growing(a: &Path, b: &Path, rounds: u64) -> Outcome {
    const PIECE: usize = 10_000;
    let whole = content(11, PIECE * usize::try_from(rounds).context(rounds)?);
    let path = a.join("growing");
    let mut file = File::create_new(&path).context(path.display())?;
    let other = b.join("growing");
    let mut time = (0, 0);
    for (round, piece) in whole.chunks(PIECE).enumerate() {
        file.write_all(piece).context(path.display())?;
        let written = ((round + 1) * PIECE) as u64;
        let (mine, seen) =
            (file.metadata().context(path.display())?, other.metadata().context("stat")?);
        ensure(mine.len() == written && seen.len() == written, || {
            format!(
                "{written} bytes written: the writer sees {}, the other {}",
                mine.len(),
                seen.len()
            )
        })?;
        let now = (seen.mtime(), seen.mtime_nsec());
        ensure(now >= time, || format!("the time went back from {time:?} to {now:?}"))?;
        time = now;
        if round % 10 == 0 {
            let read = fs::read(&other).context(other.display())?;
            ensure(read == whole[..read.len()], || format!("round {round}: foreign bytes"))?;
            ensure(read.len() as u64 == written, || {
                format!("{} of {written} bytes read", read.len())
            })?;
        }
    }
    drop(file);
    let (mine, seen) = (path.metadata().context("stat")?, other.metadata().context("stat")?);
    ensure(mine.mtime() == seen.mtime() && mine.mtime_nsec() == seen.mtime_nsec(), || {
        "both see another time of a closed file".to_owned()
    })
}

/// A change of mode, size or time through the one is seen through the other at once.
pub fn attributes_agree(a: &Path, b: &Path) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let (mine, theirs) = (a.join("attributes"), b.join("attributes"));
    fs::write(&mine, content(1, 10_000)).context(mine.display())?;
    for mode in [0o600, 0o644, 0o711] {
        let _warm = theirs.metadata().context("stat")?;
        fs::set_permissions(&mine, fs::Permissions::from_mode(mode)).context("chmod")?;
        let seen = theirs.metadata().context("stat")?.mode() & 0o7777;
        ensure(seen == mode, || format!("chmod {mode:o} is seen as {seen:o}"))?;
    }
    for length in [9_999, 100, 0, 20_000] {
        let _warm = fs::read(&theirs).context("read")?;
        let file = OpenOptions::new().write(true).open(&mine).context("open")?;
        file.set_len(length).context("truncate")?;
        let seen = fs::read(&theirs).context("read")?.len() as u64;
        ensure(seen == length, || format!("truncated to {length}, the other reads {seen}"))?;
    }
    Ok(())
}

/// A name moved through the one is at once found by the other under the new name alone.
pub fn moves(a: &Path, b: &Path, rounds: u64) -> Outcome {
    fs::write(a.join("moved-0"), b"moved").context("create")?;
    let (mut mover, mut other) = (a, b);
    for round in 0..rounds {
        let (from, to) = (format!("moved-{round}"), format!("moved-{}", round + 1));
        let _warm = other.join(&from).metadata().context("stat before mv")?;
        fs::rename(mover.join(&from), mover.join(&to)).context("mv")?;
        ensure(!other.join(&from).exists(), || format!("{from} is still there after mv"))?;
        let text = fs::read(other.join(&to)).context("read after mv")?;
        ensure(text == b"moved", || format!("{to} holds something else"))?;
        (mover, other) = (other, mover);
    }
    Ok(())
}

/// A name removed through the one is gone for the other; a file the other holds open lives on.
pub fn removals(a: &Path, b: &Path) -> Outcome {
    let (mine, theirs) = (a.join("removed"), b.join("removed"));
    fs::write(&mine, content(2, 50_000)).context("create")?;
    let mut open = File::open(&theirs).context("open")?;
    fs::remove_file(&mine).context("rm")?;
    ensure(!theirs.exists(), || "a removed name is still there".to_owned())?;
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).context("read of a removed file that is open")?;
    ensure(bytes == content(2, 50_000), || "a removed file lost its bytes while open".to_owned())?;
    fs::create_dir_all(a.join("tree/below")).context("mkdir")?;
    let _warm = b.join("tree/below").metadata().context("stat")?;
    let refused = fs::remove_dir(b.join("tree")).map_err(|error| error.kind());
    ensure(refused == Err(ErrorKind::DirectoryNotEmpty), || format!("rmdir: {refused:?}"))?;
    fs::remove_dir_all(a.join("tree")).context("rm -r")?;
    ensure(!b.join("tree").exists(), || "a removed tree is still there".to_owned())
}

/// The kernel knows the name of a file that is open, whatever is done to the file: programs look for
/// themselves in `/proc/self/exe`.
pub fn names_of_open_files(a: &Path, b: &Path) -> Outcome {
    let (path, theirs) = (a.join("open"), b.join("open"));
    let open = File::create_new(&path).context("create")?;
    let shown = format!("/proc/self/fd/{}", open.as_raw_fd());
    let is_named = |path: &Path, when: &str| {
        let found = fs::read_link(&shown).context(when)?;
        ensure(found == path, || format!("{when}: {} is {}", path.display(), found.display()))
    };
    is_named(&path, "made")?;
    open.set_len(1 << 20).context("truncate")?;
    is_named(&path, "cut")?;
    fs::set_permissions(&path, Permissions::from_mode(0o700)).context("chmod")?;
    is_named(&path, "after chmod")?;
    fs::set_permissions(&theirs, Permissions::from_mode(0o750)).context("chmod of the other")?;
    fs::hard_link(&theirs, b.join("another")).context("link")?;
    is_named(&path, "changed by the other")?;
    let moved = a.join("moved-open");
    fs::rename(&path, &moved).context("mv")?;
    is_named(&moved, "moved")?;
    fs::remove_file(b.join("moved-open")).context("rm")?;
    ensure(!moved.exists(), || "a removed name is still there".to_owned())?;
    let found = fs::read_link(&shown).context("removed")?;
    ensure(found.to_string_lossy().ends_with(" (deleted)"), || format!("removed: {found:?}"))
}

/// One looks in vain for many names, so that it may come to know that they are absent; the other
/// makes one of them by whatever call makes names, and removes it again: the first is never wrong.
pub fn absences(a: &Path, b: &Path, rounds: u64) -> Outcome {
    type Make = fn(&Path) -> std::io::Result<()>;
    let makes: [(&str, Make); 5] = [
        ("create", |path| File::create_new(path).map(drop)),
        ("mkdir", |path| fs::create_dir(path)),
        ("symlink", |path| std::os::unix::fs::symlink("nowhere", path)),
        ("link", |path| fs::hard_link(path.with_file_name("source"), path)),
        ("rename", |path| fs::rename(path.with_file_name("other"), path)),
    ];
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    fs::write(b.join("source"), b"").context("create")?;
    for round in 0..rounds {
        let (call, make) = makes[usize::try_from(round).context(round)? % makes.len()];
        let name = format!("absent-{round}");
        for number in 0..8 {
            ensure(!is_there(&a.join(format!("never-{number}"))), || {
                "a name that no mount made".to_owned()
            })?;
        }
        ensure(!is_there(&a.join(&name)), || format!("{name} before it is made"))?;
        fs::write(b.join("other"), b"").context("create")?;
        make(&b.join(&name)).context(call)?;
        ensure(is_there(&a.join(&name)), || format!("{name}: {call} is missed"))?;
        let removed = match call {
            "mkdir" => fs::remove_dir(b.join(&name)),
            _ => fs::remove_file(b.join(&name)),
        };
        removed.context("remove")?;
        ensure(!is_there(&a.join(&name)), || format!("{name}: its removal is missed"))?;
        // And names of its own, which it must not think absent.
        let own = a.join(format!("own-{round}"));
        File::create_new(&own).context("create")?;
        ensure(is_there(&own), || format!("own-{round} is missed"))?;
    }
    Ok(())
}

/// Of two that create a name with O_EXCL at once, exactly one succeeds.
pub fn exclusive(a: &Path, b: &Path, rounds: u64) -> Outcome {
    for round in 0..rounds {
        let name = format!("exclusive-{round}");
        let made = race(
            || File::create_new(a.join(&name)).map(drop),
            || File::create_new(b.join(&name)).map(drop),
        );
        let won = made.iter().filter(|made| made.is_ok()).count();
        let kind = made.iter().find_map(|made| made.as_ref().err().map(std::io::Error::kind));
        ensure(won == 1 && kind == Some(ErrorKind::AlreadyExists), || {
            format!("round {round}: O_EXCL twice: {made:?}")
        })?;
        fs::remove_file(b.join(&name)).context(name)?;
    }
    Ok(())
}

/// Both rename a file of their own onto one name, while it must never be missing: at the end one
/// of the two is there, the names they came from are not.
pub fn rename_race(a: &Path, b: &Path, rounds: u64) -> Outcome {
    fs::write(a.join("target"), b"start").context("create")?;
    let gone = AtomicBool::new(false);
    for round in 0..rounds {
        fs::write(a.join("from-a"), b"a").context("create")?;
        fs::write(b.join("from-b"), b"b").context("create")?;
        let moved = race(
            || fs::rename(a.join("from-a"), a.join("target")),
            || {
                let moved = fs::rename(b.join("from-b"), b.join("target"));
                gone.fetch_or(!b.join("target").exists(), Ordering::SeqCst);
                moved
            },
        );
        ensure(moved.iter().all(Result::is_ok), || format!("round {round}: mv: {moved:?}"))?;
        let (one, other) = (fs::read(a.join("target")), fs::read(b.join("target")));
        let (one, other) = (one.context("read")?, other.context("read")?);
        ensure(one == other && (one == b"a" || one == b"b"), || {
            format!("round {round}: one reads {one:?}, the other {other:?}")
        })?;
        let left = a.join("from-b").exists() || b.join("from-a").exists();
        ensure(!left, || format!("round {round}: a moved name is still there"))?;
    }
    ensure(!gone.into_inner(), || "a name was missing while it was replaced".to_owned())
}

/// Both append records to one file: none is lost, none is torn.
pub fn append(a: &Path, b: &Path, rounds: u64) -> Outcome {
    const RECORD: usize = 100;
    let path = a.join("appended");
    File::create_new(&path).context(path.display())?;
    let write = |top: &Path, letter: u8| {
        let mut file = OpenOptions::new().append(true).open(top.join("appended"))?;
        (0..rounds).try_for_each(|_| file.write_all(&[letter; RECORD]))
    };
    for written in race(|| write(a, b'a'), || write(b, b'b')) {
        written.context("append")?;
    }
    for top in [a, b] {
        let bytes = fs::read(top.join("appended")).context("read")?;
        let written = 2 * usize::try_from(rounds).context(rounds)? * RECORD;
        ensure(bytes.len() == written, || format!("{} bytes of {written} appended", bytes.len()))?;
        let torn = bytes.chunks(RECORD).position(|record| record.iter().any(|b| *b != record[0]));
        ensure(torn.is_none(), || format!("record {torn:?} is torn"))?;
    }
    Ok(())
}

/// A lock held through the one keeps the other out until it is released, by call or by death: at once
/// for `fcntl(2)`, for which the kernel has each close wait, and soon for `flock(2)`.
pub fn locks(a: &Path, b: &Path, probe: &Path) -> Outcome {
    let file = File::create_new(a.join("locked")).context("create")?;
    file.write_all_at(b"locked", 0).context("write")?;
    drop(file);
    for kind in ["flock", "fcntl"] {
        for (first, second) in [(a, b), (b, a)] {
            let path = second.join("locked");
            let holder = Holder::start(probe, kind, &first.join("locked"))?;
            ensure(!try_lock(probe, kind, &path)?, || format!("{kind}: held twice"))?;
            holder.release()?;
            gets_free(probe, kind, &path, "released")?;
            let holder = Holder::start(probe, kind, &first.join("locked"))?;
            drop(holder);
            gets_free(probe, kind, &path, "gone with its holder")?;
        }
    }
    Ok(())
}

/// A process that holds a lock. Dropped, it is killed.
struct Holder {
    child: Child,
}

impl Holder {
    /// Takes the lock, which other processes have given up at most a moment ago.
    fn start(probe: &Path, kind: &str, path: &Path) -> Outcome<Self> {
        let mut holder = Err(String::new());
        wait_until(&format!("{kind}: a lock that no process holds"), CLOSED_SOON, || {
            holder = Self::try_start(probe, kind, path);
            kind != "flock" || holder.is_ok()
        })?;
        holder
    }

    fn try_start(probe: &Path, kind: &str, path: &Path) -> Outcome<Self> {
        let mut command = Command::new(probe);
        command.args([kind, "hold"]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context(probe.display())?;
        let output = child.stdout.take().expect("asked for a pipe");
        let holder = Self { child };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).context(kind)?;
        ensure(line == "held\n", || format!("{kind} on {}: {line:?}", path.display()))?;
        Ok(holder)
    }

    fn release(mut self) -> Outcome {
        drop(self.child.stdin.take());
        let status = self.child.wait().context("the lock's holder")?;
        ensure(status.success(), || format!("the lock's holder: {status}"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gets_free(probe: &Path, kind: &str, path: &Path, how: &str) -> Outcome {
    let mut tried = Ok(false);
    wait_until(&format!("{kind}: {how}"), CLOSED_SOON, || {
        tried = try_lock(probe, kind, path);
        kind != "flock" || tried != Ok(false)
    })?;
    ensure(tried?, || format!("{kind}: not {how}"))
}

fn try_lock(probe: &Path, kind: &str, path: &Path) -> Outcome<bool> {
    let status = Command::new(probe).args([kind, "try"]).arg(path).status();
    match status.context(probe.display())?.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        code => Err(format!("{kind} on {}: the probe ended with {code:?}", path.display())),
    }
}

/// Runs both at the same time.
fn race<T: Send>(one: impl FnOnce() -> T + Send, other: impl FnOnce() -> T + Send) -> [T; 2] {
    let start = std::sync::Barrier::new(2);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            start.wait();
            other()
        });
        start.wait();
        let one = one();
        [one, other.join().expect("a racer does not panic")]
    })
}
