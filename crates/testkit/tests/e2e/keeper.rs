//! The process that serves a mount is killed, or exchanged for another, while programs have files open there.
#![allow(clippy::disallowed_methods, reason = "programs work in real time while it happens")]

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{same_after_restart, scene, seed};
use sheen_workloads::{Context, Outcome, Size, bytes, ensure, process};

const LIMIT: Duration = Duration::from_secs(400);
/// How long another process may take to serve the mount, on a busy machine.
const GOES_ON: Duration = Duration::from_secs(60);
/// Bytes of the file that is written and read meanwhile.
const BYTES: usize = 4 << 20;

/// Kills the process that serves the mount; another one has its place when this returns.
fn kill(cluster: &Cluster) -> Outcome {
    let former = cluster.mount_pid()?;
    process::kill(former)?;
    other_serves(cluster, former)
}

fn other_serves(cluster: &Cluster, former: i32) -> Outcome {
    let socket = || -> Outcome<_> {
        let now = cluster.mount_pid()?;
        let is_there = cluster.sockets().join(format!("mount-{now}.sock")).exists();
        Ok(now != former && now != cluster.keeper_pid()? && is_there)
    };
    process::wait_until("another process of the mount", GOES_ON, || socket() == Ok(true))
}

fn upgrade(cluster: &Cluster) -> Outcome {
    cluster.must(&["upgrade", &cluster.mnt().to_string_lossy()]).map(drop)
}

fn is_free(path: &Path) -> Outcome<bool> {
    let file = File::open(path).context("open")?;
    Ok(flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// What a program has that is not to notice anything.
struct Held {
    linked: File,
    unlinked: File,
    appended: File,
    directory: File,
    read_only: File,
    locked: File,
}

impl Held {
    fn new(top: &Path) -> Outcome<Self> {
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).open(top.join(name)).context(name)
        };
        let write = |file: &File, text: &[u8]| -> Outcome {
            file.write_all_at(text, 0).and_then(|()| file.sync_all()).context("write")
        };
        let (linked, unlinked) = (open("linked")?, open("unlinked")?);
        write(&linked, b"linked")?;
        write(&unlinked, b"unlinked")?;
        fs::remove_file(top.join("unlinked")).context("unlink")?;
        let mut options = OpenOptions::new();
        let appended = options
            .append(true)
            .create_new(true)
            .mode(0o444)
            .open(top.join("log"))
            .context("log")?;
        let locked = open("locked")?;
        flock(&locked, FlockOperation::NonBlockingLockExclusive).context("flock")?;
        let directory = File::open(top).context("the directory")?;
        let read_only = File::open(top.join("linked")).context("linked")?;
        Ok(Self { linked, unlinked, appended, directory, read_only, locked })
    }

    /// Everything is as before, and can be used on.
    fn is_whole(&mut self, round: u8, lock: &Path) -> Outcome {
        let read = |file: &File| {
            let mut buffer = [0; 32];
            file.read_at(&mut buffer, 0).map(|length| buffer[..length].to_vec())
        };
        let is = |what: &str, found: Vec<u8>, wanted: &[u8]| {
            ensure(found == wanted, || format!("{what}: {:?}", String::from_utf8_lossy(&found)))
        };
        let linked: &[u8] = if round == 0 { b"linked" } else { b"LINKED" };
        is("read only", read(&self.read_only).context("read only")?, linked)?;
        is("linked", read(&self.linked).context("linked")?, linked)?;
        is("unlinked", read(&self.unlinked).context("unlinked")?, b"unlinked")?;
        self.linked.write_all_at(b"LINKED", 0).context("write")?;
        self.unlinked.write_all_at(b"unlinked", 0).context("write of what is unlinked")?;
        self.appended.write_all(&[b'a' + round]).context("append")?;
        for file in [&self.linked, &self.unlinked, &self.appended, &self.directory] {
            file.sync_all().context("fsync of what was not lost")?;
        }
        ensure(!is_free(lock)?, || "another client got the lock".to_owned())
    }
}

/// A program that forgot to sync hears of it once, through each handle, and can go on.
fn lost_bytes_are_reported(cluster: &Cluster) -> Outcome {
    let path = cluster.mnt().join("unsynced");
    let mut file = File::create_new(&path).context("create")?;
    file.write_all(b"synced").and_then(|()| file.sync_all()).context("fsync")?;
    let second = File::open(&path).context("open")?;
    file.write_all(b", and lost").context("write")?;
    kill(cluster)?;
    for handle in [&file, &second] {
        let said = handle.sync_all().map_err(|error| error.raw_os_error());
        ensure(said == Err(Some(Errno::IO.raw_os_error())), || format!("fsync: {said:?}"))?;
        handle.sync_all().context("the next fsync")?;
    }
    file.write_all_at(b", and kept", 6).and_then(|()| file.sync_all()).context("write again")?;
    let read = fs::read(&path).context("read")?;
    ensure(read == b"synced, and kept", || String::from_utf8_lossy(&read).into_owned())
}

#[test]
fn open_files_survive_the_end_of_the_process_that_serves_them() {
    scene("keeper-kill", 2, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let mut held = Held::new(&cluster.mnt())?;
        for round in 0..2 {
            kill(cluster)?;
            held.is_whole(round, &other.join("locked"))?;
        }
        upgrade(cluster)?;
        held.is_whole(2, &other.join("locked"))?;
        let log = fs::read(cluster.mnt().join("log")).context("log")?;
        ensure(log == b"abc", || String::from_utf8_lossy(&log).into_owned())?;
        // What the other client makes is seen: nothing of before is kept.
        fs::write(other.join("linked"), b"by the other").context("write")?;
        let seen = fs::read(cluster.mnt().join("linked")).context("read")?;
        ensure(seen == b"by the other", || String::from_utf8_lossy(&seen).into_owned())?;
        flock(&held.locked, FlockOperation::Unlock).context("unlock")?;
        ensure(is_free(&other.join("locked"))?, || "the lock was not released".to_owned())?;
        lost_bytes_are_reported(cluster)?;
        drop(held);
        let status = cluster.must(&["status", "--dir", &cluster.dir().to_string_lossy()])?;
        let (keeper, mount) = (cluster.keeper_pid()?, cluster.mount_pid()?);
        let wanted = format!("running, pid {mount}, kept by pid {keeper}");
        ensure(status.contains(&wanted), || status.clone())?;
        same_after_restart(cluster)?;
        ensure(!process::is_alive(keeper) && !process::is_alive(mount), || "they run".to_owned())?;
        let own = cluster.mount_pid()?;
        let sockets = fs::read_dir(cluster.sockets()).context("sockets")?.flatten();
        let names = sockets.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let names: Vec<String> = names.filter(|name| name.starts_with("mount-")).collect();
        let left = |name: &&String| **name != format!("mount-{own}.sock");
        // The other mount has one, too.
        ensure(names.iter().filter(left).count() <= 1, || format!("left: {names:?}"))
    });
}

/// Names are made, moved and removed; each call must succeed. Answers what is left.
fn make_names(top: &Path, stops: &AtomicBool) -> Outcome<BTreeSet<String>> {
    fs::create_dir(top).context("mkdir")?;
    let mut left = BTreeSet::new();
    for number in 0u64.. {
        if stops.load(Ordering::Relaxed) {
            break;
        }
        let at = |name: &str| top.join(format!("{name}{number}"));
        let done = |what: &str, result: std::io::Result<()>| {
            result.map_err(|error| format!("{what} number {number}: {error}"))
        };
        // As git makes its objects: no one may open it so again.
        let mut options = OpenOptions::new();
        options.write(true).read(true).create_new(true).mode(0o444);
        let file = options.open(at("made")).map_err(|error| format!("create {number}: {error}"))?;
        drop(file);
        done("rename", fs::rename(at("made"), at("moved")))?;
        done("link", fs::hard_link(at("moved"), at("made")))?;
        done("mkdir", fs::create_dir(at("directory")))?;
        done("symlink", std::os::unix::fs::symlink("there", at("link")))?;
        done("unlink", fs::remove_file(at("made")))?;
        if number % 7 == 0 {
            left.extend(["moved", "directory", "link"].map(|name| format!("{name}{number}")));
            continue;
        }
        done("unlink", fs::remove_file(at("moved")))?;
        done("rmdir", fs::remove_dir(at("directory")))?;
        done("unlink", fs::remove_file(at("link")))?;
    }
    Ok(left)
}

fn names_in(top: &Path) -> Outcome<BTreeSet<String>> {
    let entries = fs::read_dir(top).context("list")?;
    let name = |entry: std::io::Result<fs::DirEntry>| {
        Ok(entry?.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect::<std::io::Result<_>>().context("list")
}

#[test]
fn calls_under_way_are_executed_once_when_their_process_is_killed() {
    scene("keeper-names", 1, LIMIT, |cluster| {
        let tops = [0, 1, 2].map(|number| cluster.mnt().join(format!("names{number}")));
        let stops = AtomicBool::new(false);
        let kills = Size::asked().of(4, 8, 60);
        let left = thread::scope(|scope| -> Outcome<Vec<_>> {
            let works: Vec<_> =
                tops.iter().map(|top| scope.spawn(|| make_names(top, &stops))).collect();
            let killed = (0..kills).try_for_each(|_| {
                thread::sleep(Duration::from_millis(700));
                kill(cluster)
            });
            stops.store(true, Ordering::Relaxed);
            let left =
                works.into_iter().map(|work| work.join().map_err(|_| "panicked".to_owned())?);
            let left = left.collect();
            killed.and(left)
        })?;
        for (top, left) in tops.iter().zip(left) {
            ensure(names_in(top)? == left, || format!("{}: other names", top.display()))?;
        }
        same_after_restart(cluster)
    });
}

/// Writes, syncs and reads a file, and compares every byte read with what was written. Answers the file's bytes.
fn write_and_read(path: &Path, stops: &AtomicBool, random: u64) -> Outcome<Vec<u8>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path).context("create")?;
    let mut model = vec![0; BYTES];
    file.set_len(BYTES as u64).context("truncate")?;
    for step in 0u64.. {
        if stops.load(Ordering::Relaxed) {
            break;
        }
        let number = bytes::content(random.wrapping_add(step), 16);
        let place = |at: usize| {
            let word: [u8; 8] = number[at..at + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(word) as usize % (BYTES - 70_000)
        };
        let (to, from, length) = (place(0), place(8), 1 + step as usize * 977 % 70_000);
        let data = bytes::content(step, length);
        file.write_all_at(&data, to as u64).map_err(|error| format!("write {step}: {error}"))?;
        model[to..to + length].copy_from_slice(&data);
        if step % 40 == 0 {
            file.sync_all().map_err(|error| format!("fsync {step}: {error}"))?;
        }
        let mut read = vec![0; 70_000];
        file.read_exact_at(&mut read, from as u64)
            .map_err(|error| format!("read {step}: {error}"))?;
        ensure(read == model[from..from + 70_000], || {
            format!("step {step}: other bytes at {from}")
        })?;
    }
    file.sync_all().context("the last fsync")?;
    Ok(model)
}

/// Appends numbered lines. Answers how many.
fn append(path: &Path, stops: &AtomicBool) -> Outcome<u64> {
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create_new(true).open(path).context("create")?;
    let mut count = 0;
    while !stops.load(Ordering::Relaxed) {
        file.write_all(format!("{count:07}\n").as_bytes()).context("append")?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_mount_that_is_handed_over_under_load_loses_nothing() {
    scene("keeper-upgrade", 2, LIMIT, |cluster| {
        let top = cluster.mnt();
        let stops = AtomicBool::new(false);
        let times = Size::asked().of(3, 6, 60);
        let (model, count, left) = thread::scope(|scope| -> Outcome<_> {
            let data = scope.spawn(|| write_and_read(&top.join("data"), &stops, seed()));
            let lines = scope.spawn(|| append(&top.join("lines"), &stops));
            let names = scope.spawn(|| make_names(&top.join("names"), &stops));
            let handed_over = (0..times).try_for_each(|_| {
                thread::sleep(Duration::from_millis(1500));
                let (former, begin) = (cluster.mount_pid()?, Instant::now());
                upgrade(cluster)?;
                println!("keeper: handed over within {} ms", begin.elapsed().as_millis());
                let now = cluster.mount_pid()?;
                ensure(now != former, || "it is the same process".to_owned())
            });
            stops.store(true, Ordering::Relaxed);
            let panicked = |_| "panicked".to_owned();
            let (data, lines) = (data.join().map_err(panicked)?, lines.join().map_err(panicked)?);
            let names = names.join().map_err(panicked)?;
            handed_over?;
            Ok((data?, lines?, names?))
        })?;
        ensure(fs::read(top.join("data")).context("read")? == model, || "other bytes".to_owned())?;
        let wanted: String = (0..count).map(|number| format!("{number:07}\n")).collect();
        let lines = fs::read_to_string(top.join("lines")).context("read")?;
        ensure(lines == wanted, || format!("{} of {count} lines", lines.lines().count()))?;
        ensure(names_in(&top.join("names"))? == left, || "other names".to_owned())?;
        same_after_restart(cluster)
    });
}

#[test]
fn a_program_that_cannot_serve_a_mount_does_not_end_it() {
    scene("keeper-refuses", 1, LIMIT, |cluster| {
        let file = File::create_new(cluster.mnt().join("file")).context("create")?;
        // No program of ours: it ends at once, and the one before goes on.
        let wrong = cluster.logs().join("wrong");
        fs::write(&wrong, "#!/bin/sh\nexit 3\n").context("write")?;
        fs::set_permissions(&wrong, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .context("chmod")?;
        let former = cluster.mount_pid()?;
        hand_over(cluster, former, &wrong)?;
        other_serves(cluster, former)?;
        file.write_all_at(b"goes on", 0).and_then(|()| file.sync_all()).context("write")?;
        let nothing = cluster.run(&["upgrade", &cluster.logs().to_string_lossy()])?;
        ensure(nothing.status.code() == Some(19), || nothing.output.clone())?;
        drop(file);
        same_after_restart(cluster)
    });
}

/// What `sheen upgrade` asks the mount's process for, with any program.
fn hand_over(cluster: &Cluster, process: i32, program: &Path) -> Outcome {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;
    let path = cluster.sockets().join(format!("mount-{process}.sock"));
    let mut stream = UnixStream::connect(&path).context(path.display())?;
    let (name, program) = ("hand_over", program.display());
    let question =
        format!("{{\"Command\":{{\"name\":\"{name}\",\"arguments\":[\"{program}\"]}}}}\n");
    stream.write_all(question.as_bytes()).context("ask")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).context("answer")?;
    ensure(answer.contains("Text"), || answer.clone())
}
