//! kill -9 of the server process under a mixed workload, again and again: programs only wait, what
//! was acknowledged is there, and `sheen fsck` finds nothing.
//!
//! `SHEEN_SEED=N` repeats a run's moments, `SHEEN_ROUNDS=N` kills more often. Needs /dev/fuse; fails
//! without.
#![allow(clippy::disallowed_methods, reason = "real processes run in real time")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

const SHEEN: &str = env!("CARGO_BIN_EXE_sheen");
/// Kills in a run by default.
const ROUNDS: u64 = 4;
/// A run that takes longer hangs: its mount is killed, and the test fails.
const PATIENCE: Duration = Duration::from_secs(240);
/// The exit code of `sheen down` where the mount is in use.
const EBUSY: i32 = 16;
/// Longer than another test's mount namespace lives.
const UNUSED_WITHIN: Duration = Duration::from_secs(60);
/// Names in the directory that is listed all the time.
const LISTED: usize = 1500;

/// Moments from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn pause(&mut self, least: u64, more: u64) {
        thread::sleep(Duration::from_millis(least + self.below(more)));
    }
}

/// A file system in a folder of its own, taken down at the end whatever happened.
struct Scene {
    folder: PathBuf,
    options: Vec<String>,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sheen-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("mnt")).unwrap();
        let port = 20_000 + std::process::id() % 20_000;
        Self { folder, options: vec!["--port".to_owned(), port.to_string()] }
    }

    fn dir(&self) -> PathBuf {
        self.folder.join("fs")
    }

    fn mount(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    fn sheen(&self, words: &[&str]) -> Command {
        let mut command = Command::new(SHEEN);
        command.args(words).env("SHEEN_RUN_DIR", self.folder.join("run"));
        command
    }

    fn up(&self) {
        let output = self.try_up();
        assert!(output.status.success(), "up: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn try_up(&self) -> Output {
        let mut command = self.sheen(&["up", "--dir"]);
        command.arg(self.dir()).arg("--mount").arg(self.mount()).args(&self.options);
        command.output().unwrap()
    }

    /// A test that makes a mount namespace of its own has a copy of this mount for a while: so one that is in use
    /// is tried again, with its servers, for which its process may wait.
    fn down(&self) {
        let start = Instant::now();
        loop {
            let output = self.sheen(&["down", "--dir"]).arg(self.dir()).output().unwrap();
            if output.status.success() {
                return;
            }
            let is_used = output.status.code() == Some(EBUSY) && start.elapsed() < UNUSED_WITHIN;
            assert!(is_used, "down: {}", String::from_utf8_lossy(&output.stderr));
            if self.pid("server").is_none() {
                // It starts the servers; a mount that is still in use elsewhere is its failure.
                self.try_up();
            }
        }
    }

    fn fsck(&self) {
        let output = self.sheen(&["fsck", "--dir"]).arg(self.dir()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        println!("fsck: {}", said.lines().last().unwrap_or_default());
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }

    fn pid(&self, name: &str) -> Option<Pid> {
        let text = fs::read_to_string(self.dir().join(format!("run/{name}.pid"))).ok()?;
        Pid::from_raw(text.split_whitespace().next()?.parse().ok()?)
    }

    fn kill(&self, name: &str, signal: Signal) {
        let pid = self.pid(name).expect("it runs");
        kill_process(pid, signal).unwrap();
        // A leader that is dead already while other threads die still holds its files.
        let place = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
        let is_dead = || {
            let stat = fs::read_to_string(place.join("stat"));
            let threads = fs::read_dir(place.join("task")).map_or(0, Iterator::count);
            stat.map_or(true, |text| text.contains(") Z ")) && threads < 2
        };
        while !is_dead() {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for name in ["mount", "server"] {
            if let Some(pid) = self.pid(name) {
                let name = fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
                if name.is_ok_and(|text| text.contains("sheen")) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
        let _ = Command::new("umount").arg("-l").arg(self.mount()).output();
        if !thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        } else {
            println!("kept for inspection: {}", self.folder.display());
        }
    }
}

/// Kills the mount of a run that hangs: every call on it fails then, and so does the test.
fn watch(scene: &Arc<Scene>, done: &Arc<AtomicBool>) {
    let (scene, done) = (Arc::downgrade(scene), Arc::clone(done));
    thread::spawn(move || {
        let begin = Instant::now();
        while !done.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(200));
            if begin.elapsed() > PATIENCE {
                eprintln!("the run hangs: killing its mount");
                if let Some(scene) = scene.upgrade() {
                    scene.kill("mount", Signal::KILL);
                }
                return;
            }
        }
    });
}

fn block(number: u64, length: usize) -> Vec<u8> {
    let mut random = Random(number);
    (0..length / 8).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// Small files made, renamed, rewritten and removed; what each must hold is remembered.
fn names(place: &Path, seed: u64, stop: &AtomicBool) -> BTreeMap<String, Vec<u8>> {
    let mut random = Random(seed);
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut count = 0_u64;
    fs::create_dir(place).unwrap();
    while !stop.load(Ordering::Acquire) {
        count += 1;
        let some = files.keys().nth(random.below(files.len().max(1) as u64) as usize).cloned();
        match (random.below(6), some) {
            (0, Some(name)) => {
                fs::remove_file(place.join(&name)).unwrap();
                files.remove(&name);
            }
            (1, Some(name)) => {
                let new = format!("moved{count}");
                fs::rename(place.join(&name), place.join(&new)).unwrap();
                let content = files.remove(&name).unwrap();
                files.insert(new, content);
            }
            (2, Some(name)) => {
                let folder = place.join(format!("folder{count}"));
                fs::create_dir(&folder).unwrap();
                fs::hard_link(place.join(&name), folder.join("link")).unwrap();
                fs::remove_file(folder.join("link")).unwrap();
                fs::remove_dir(&folder).unwrap();
            }
            _ => {
                let name = format!("file{count}");
                let content = block(count, 8 * (1 + random.below(600) as usize));
                let mut file = File::create_new(place.join(&name)).unwrap();
                file.write_all(&content).unwrap();
                files.insert(name, content);
            }
        }
    }
    files
}

fn verify_names(place: &Path, files: &BTreeMap<String, Vec<u8>>) {
    let mut found: Vec<String> = fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, files.keys().cloned().collect::<Vec<_>>());
    for (name, content) in files {
        let read = fs::read(place.join(name)).unwrap();
        assert!(read == *content, "{name}: {} bytes, not {}", read.len(), content.len());
    }
}

/// Blocks of 4 KiB, each followed by fsync; how many.
fn synced(place: &Path, stop: &AtomicBool) -> u64 {
    let mut file = File::create(place).unwrap();
    let mut count = 0;
    while !stop.load(Ordering::Acquire) {
        file.write_all(&block(count, 4096)).unwrap();
        file.sync_all().unwrap();
        count += 1;
    }
    count
}

fn verify_blocks(place: &Path, count: u64, length: usize) {
    let mut file = File::open(place).unwrap();
    assert_eq!(file.metadata().unwrap().len(), count * length as u64, "{}", place.display());
    let mut read = vec![0; length];
    for number in 0..count {
        file.read_exact(&mut read).unwrap();
        assert!(read == block(number, length), "block {number} of {}", place.display());
    }
}

/// Blocks of 1 MiB, over and over in 24 places; the number of the last in each place.
fn large(place: &Path, stop: &AtomicBool) -> Vec<u64> {
    let file = OpenOptions::new().create(true).write(true).truncate(true).open(place).unwrap();
    let mut last = vec![0; 24];
    for number in 0.. {
        if stop.load(Ordering::Acquire) && number >= last.len() as u64 {
            break;
        }
        let at = number as usize % last.len();
        file.write_all_at(&block(number, 1 << 20), (at as u64) << 20).unwrap();
        last[at] = number;
    }
    last
}

fn verify_large(place: &Path, last: &[u64]) {
    let file = File::open(place).unwrap();
    let mut read = vec![0; 1 << 20];
    for (at, number) in last.iter().enumerate() {
        file.read_exact_at(&mut read, (at as u64) << 20).unwrap();
        assert!(read == block(*number, 1 << 20), "block {at} of the large file");
    }
}

/// Files that have no name any more while they are written and read.
fn unlinked(place: &Path, stop: &AtomicBool) {
    let mut held: Vec<(u64, File)> = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let path = place.join(format!("gone{number}"));
        let mut options = OpenOptions::new();
        let mut file = options.create_new(true).read(true).write(true).open(&path).unwrap();
        file.write_all(&block(number, 8192)).unwrap();
        fs::remove_file(&path).unwrap();
        held.push((number, file));
        if held.len() > 5 {
            let (number, mut file) = held.remove(0);
            let mut read = Vec::new();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_end(&mut read).unwrap();
            assert!(read == block(number, 8192), "unlinked file {number}: {} bytes", read.len());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn listed(place: &Path, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let names = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name());
        let names: sheen_types::HashSet<_> = names.collect();
        assert_eq!(names.len(), LISTED);
    }
}

/// A lock held over every crash; no other client ever gets it.
fn locked(place: &Path, stop: &AtomicBool) {
    let holder = File::create(place).unwrap();
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    while !stop.load(Ordering::Acquire) {
        let other = File::open(place).unwrap();
        let tried = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(tried, Err(rustix::io::Errno::WOULDBLOCK));
        thread::sleep(Duration::from_millis(30));
    }
    flock(&holder, FlockOperation::Unlock).unwrap();
    let other = File::open(place).unwrap();
    flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
}

/// What the workloads leave.
struct Work {
    names: JoinHandle<BTreeMap<String, Vec<u8>>>,
    synced: JoinHandle<u64>,
    large: JoinHandle<Vec<u64>>,
    threads: Vec<JoinHandle<()>>,
}

struct Left {
    names: BTreeMap<String, Vec<u8>>,
    synced: u64,
    large: Vec<u64>,
}

impl Work {
    fn start(root: &Path, seed: u64, stop: &Arc<AtomicBool>) -> Self {
        let place = |name: &str| root.join(name);
        for name in ["listed", "unlinked"] {
            fs::create_dir(place(name)).unwrap();
        }
        for number in 0..LISTED {
            File::create_new(place("listed").join(format!("name{number}"))).unwrap();
        }
        let spawn = |run: fn(&Path, &AtomicBool), name: &str| {
            let (path, stop) = (place(name), Arc::clone(stop));
            thread::spawn(move || run(&path, &stop))
        };
        let threads =
            vec![spawn(unlinked, "unlinked"), spawn(listed, "listed"), spawn(locked, "locked")];
        let (path, flag) = (place("names"), Arc::clone(stop));
        let names = thread::spawn(move || names(&path, seed, &flag));
        let (path, flag) = (place("synced"), Arc::clone(stop));
        let synced = thread::spawn(move || synced(&path, &flag));
        let (path, flag) = (place("large"), Arc::clone(stop));
        let large = thread::spawn(move || large(&path, &flag));
        Self { names, synced, large, threads }
    }

    fn end(self) -> Left {
        for other in self.threads {
            other.join().unwrap();
        }
        Left {
            names: self.names.join().unwrap(),
            synced: self.synced.join().unwrap(),
            large: self.large.join().unwrap(),
        }
    }
}

impl Left {
    fn verify(&self, root: &Path) {
        verify_names(&root.join("names"), &self.names);
        verify_blocks(&root.join("synced"), self.synced, 4096);
        verify_large(&root.join("large"), &self.large);
        assert_eq!(fs::read_dir(root.join("unlinked")).unwrap().count(), 0);
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn need_fuse() {
    assert!(Path::new("/dev/fuse").exists(), "no /dev/fuse: nothing can be mounted, nothing shown");
}

/// Kills the server `rounds` times; how long each restart took until a call was answered.
fn kill_often(scene: &Scene, random: &mut Random, rounds: u64) -> Vec<Duration> {
    let mut waits = Vec::new();
    for round in 0..rounds {
        random.pause(300, 1500);
        scene.kill("server", Signal::KILL);
        random.pause(0, 300);
        let begin = Instant::now();
        scene.up();
        // A name that was never looked up before: only the server can know that it is not there.
        let probe = scene.mount().join(format!("probe{round}"));
        assert_eq!(fs::metadata(probe).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        waits.push(begin.elapsed());
    }
    waits
}

#[test]
fn programs_go_on_when_the_server_is_killed_again_and_again() {
    need_fuse();
    let seed = setting("SHEEN_SEED").unwrap_or_else(|| {
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64)
    });
    println!("SHEEN_SEED={seed}");
    let mut random = Random(seed);
    let scene = Arc::new(Scene::new("recovery"));
    fs::create_dir_all(scene.dir()).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    watch(&scene, &done);
    scene.up();
    let stop = Arc::new(AtomicBool::new(false));
    let work = Work::start(&scene.mount(), random.next(), &stop);
    let waits = kill_often(&scene, &mut random, setting("SHEEN_ROUNDS").unwrap_or(ROUNDS));
    println!("from restart to the first answer: {waits:?}");
    stop.store(true, Ordering::Release);
    let left = work.end();
    println!("{} names, {} synced blocks", left.names.len(), left.synced);
    left.verify(&scene.mount());
    scene.down();
    scene.fsck();
    scene.up();
    left.verify(&scene.mount());
    scene.down();
    scene.fsck();
    done.store(true, Ordering::Release);
}

#[test]
fn programs_wait_for_a_server_that_was_stopped() {
    need_fuse();
    let scene = Arc::new(Scene::new("stopped"));
    fs::create_dir_all(scene.dir()).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    watch(&scene, &done);
    scene.up();
    let root = scene.mount();
    let mut before = File::create(root.join("before")).unwrap();
    before.write_all(b"before").unwrap();
    scene.kill("server", Signal::TERM);
    let written = Arc::new(AtomicU64::new(0));
    let (counter, path) = (Arc::clone(&written), root.join("during"));
    let writer = thread::spawn(move || {
        fs::write(path, b"during").unwrap();
        counter.store(1, Ordering::Release);
    });
    thread::sleep(Duration::from_secs(8));
    assert_eq!(written.load(Ordering::Acquire), 0, "a call was never answered");
    scene.up();
    writer.join().unwrap();
    before.write_all(b" and after").unwrap();
    before.sync_all().unwrap();
    assert_eq!(fs::read(root.join("during")).unwrap(), b"during");
    assert_eq!(fs::read(root.join("before")).unwrap(), b"before and after");
    drop(before);
    scene.down();
    scene.fsck();
    done.store(true, Ordering::Release);
}
