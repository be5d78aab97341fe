//! Every thread does everything to the same few names, through all views at once.
//!
//! Each actor draws its calls from the seed and compares every error with what POSIX allows that
//! call at any moment of such a crowd. What always holds is checked besides: a name that is only ever
//! replaced is there for every call and in every listing, a file consists of whole records, and an
//! open file stays readable and writable whatever becomes of its names.
#![allow(clippy::disallowed_methods, reason = "a crowd acts in threads and in real time")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::bytes::Random;
use crate::{Context, Outcome, ensure, tree};

/// Folders and names that all fight for.
const FOLDERS: u64 = 2;
const NAMES: u64 = 4;

/// The name in each folder that is replaced again and again and never missing.
const ALWAYS: &str = "always";

/// Bytes of a record: its writer and number, filled up with dots.
const RECORD: usize = 64;

/// Faults that a report shows.
const FAULTS_MAX: usize = 12;

/// Of so many calls one may read zeros where other threads are appending: seen where the machine had ten times
/// more to do than it could.
const CALLS_FOR_ONE_UNWRITTEN: u64 = 1000;

/// What such a read says.
const UNWRITTEN: &str = "is zeros";

/// How a storm is made.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Everything that is drawn comes from it.
    pub seed: u64,
    /// Threads on each view.
    pub actors: u64,
    /// How long they act.
    pub length: Duration,
}

/// Acts on the folder `storm`, which it makes, seen through each of `views`; they must agree on
/// everything in it afterwards.
pub fn run(views: &[&Path], plan: Plan) -> Outcome {
    println!("storm: SHEEN_SEED={}", plan.seed);
    let first = views.first().ok_or("no view")?;
    let top = crate::folder(first, "storm")?;
    for folder in 0..FOLDERS {
        let folder = crate::folder(&top, &format!("d{folder}"))?;
        fs::write(folder.join(ALWAYS), record(0, 0)).context("create")?;
    }
    let storm = Storm { end: Instant::now() + plan.length, ..Storm::default() };
    std::thread::scope(|scope| {
        for number in 0..plan.actors * views.len() as u64 {
            let view = views[usize::try_from(number).unwrap_or_default() % views.len()];
            let mut actor = Actor {
                storm: &storm,
                top: view.join("storm"),
                number,
                count: 0,
                random: Random::new(plan.seed.wrapping_mul(1009).wrapping_add(number)),
                held: None,
            };
            scope.spawn(move || actor.act());
        }
    });
    let (calls, unwritten) = (storm.calls.into_inner(), storm.unwritten.into_inner());
    println!("storm: {calls} calls, {unwritten} read zeros");
    ensure(unwritten * CALLS_FOR_ONE_UNWRITTEN <= calls, || {
        format!("SHEEN_SEED={}: {unwritten} of {calls} calls read zeros", plan.seed)
    })?;
    let faults = storm.faults.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    ensure(faults.is_empty(), || {
        format!("SHEEN_SEED={}: {} faults\n{}", plan.seed, faults.len(), faults.join("\n"))
    })?;
    agree(views).map_err(|fault| format!("SHEEN_SEED={}: {fault}", plan.seed))
}

/// All views show one consistent tree.
fn agree(views: &[&Path]) -> Outcome {
    let trees: Outcome<Vec<_>> = views.iter().map(|view| tree::read(&view.join("storm"))).collect();
    let trees = trees?;
    trees.iter().try_for_each(tree::must_be_consistent)?;
    trees.iter().try_for_each(|tree| tree::must_equal(&trees[0], tree))?;
    let is_file = |entry: &tree::Entry| matches!(entry.content, tree::Content::Data(_));
    let is_cut = |path: &Path| path.file_name().is_some_and(|name| name == "f0" || name == "f1");
    for (path, _) in trees[0].iter().filter(|(path, entry)| is_file(entry) && !is_cut(path)) {
        let path = views[0].join("storm").join(path);
        check(&path, &fs::read(&path).context(path.display())?)?;
    }
    Ok(())
}

/// What all actors share.
struct Storm {
    end: Instant,
    stopped: AtomicBool,
    faults: Mutex<Vec<String>>,
    calls: AtomicU64,
    unwritten: AtomicU64,
}

impl Default for Storm {
    fn default() -> Self {
        Self {
            end: Instant::now(),
            stopped: AtomicBool::new(false),
            faults: Mutex::default(),
            calls: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
        }
    }
}

/// One thread on one view.
struct Actor<'a> {
    storm: &'a Storm,
    top: PathBuf,
    number: u64,
    count: u64,
    random: Random,
    held: Option<File>,
}

impl Actor<'_> {
    fn act(&mut self) {
        while Instant::now() < self.storm.end && !self.storm.stopped.load(Ordering::Relaxed) {
            self.count += 1;
            self.storm.calls.fetch_add(1, Ordering::Relaxed);
            if let Err(fault) = self.step() {
                if fault.ends_with(UNWRITTEN) {
                    println!("storm: {fault}");
                    self.storm.unwritten.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let mut faults = self.storm.faults.lock().unwrap_or_else(|it| it.into_inner());
                // As the logs write the time, to find what they say of it.
                let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let (second, part) = (time.as_secs() % 60, time.subsec_micros());
                let (actor, call) = (self.number, self.count);
                faults.push(format!(
                    "second {second}.{part:06}, actor {actor}, call {call}: {fault}"
                ));
                if faults.len() >= FAULTS_MAX {
                    self.storm.stopped.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    fn step(&mut self) -> Outcome {
        let (one, other) = self.names();
        let (folder, away) = (self.folder_name(), self.far_name());
        match self.random.below(22) {
            0 => self.replace_always(),
            1 => self.see_always(),
            2 => self.list(),
            3 => may("create", &one, File::create_new(&one), &[Errno::EXIST]),
            4 | 5 => self.append(&one),
            6 | 7 => self.read(&one),
            8 => may("link", &one, fs::hard_link(&one, &other), &LINK),
            9 | 10 => may("rename", &one, fs::rename(&one, &other), &RENAME),
            11 => may("unlink", &one, fs::remove_file(&one), &[Errno::NOENT, Errno::ISDIR]),
            12 => may("mkdir", &folder, fs::create_dir(&folder), &[Errno::EXIST]),
            13 => may("rmdir", &one, fs::remove_dir(&one), &[Errno::NOENT, Errno::NOTDIR]),
            20 => may("rename away", &away.0, fs::rename(&away.0, &away.1), &[Errno::NOENT]),
            21 => self.append(&away.0),
            14 => may("symlink", &one, symlink(ALWAYS, &one), &[Errno::EXIST]),
            15 => may("readlink", &one, fs::read_link(&one), &[Errno::NOENT, Errno::INVAL]),
            16 => {
                let mode = [0o600, 0o644, 0o755][self.drawn(3)];
                let set = fs::set_permissions(&one, fs::Permissions::from_mode(mode));
                may("chmod", &one, set, &[Errno::NOENT])
            }
            17 => self.cut(&away.0),
            18 => may("stat", &one, fs::symlink_metadata(&one), &[Errno::NOENT]),
            _ => self.use_held(&one),
        }
    }

    /// Two names in one folder, for whatever there is.
    fn names(&mut self) -> (PathBuf, PathBuf) {
        let folder = self.top.join(format!("d{}", self.random.below(FOLDERS)));
        let mut name = || folder.join(format!("n{}", self.random.below(NAMES)));
        (name(), name())
    }

    fn folder_name(&mut self) -> PathBuf {
        self.names().0
    }

    /// Names of files only, in two folders. Directories stay in theirs: the kernel may answer
    /// `ESTALE` for one that it finds at another place than before while names move between
    /// directories, as it does for NFS.
    fn far_name(&mut self) -> (PathBuf, PathBuf) {
        let folder = self.random.below(FOLDERS);
        let mut name = |folder| {
            let number = self.random.below(2);
            self.top.join(format!("d{folder}/f{number}"))
        };
        (name(folder), name((folder + 1) % FOLDERS))
    }

    fn always(&mut self) -> PathBuf {
        self.top.join(format!("d{}", self.random.below(FOLDERS))).join(ALWAYS)
    }

    fn drawn(&mut self, limit: usize) -> usize {
        usize::try_from(self.random.below(limit as u64)).unwrap_or_default()
    }

    /// The way programs replace a file; no other thread touches the name that it is made under.
    fn replace_always(&mut self) -> Outcome {
        let always = self.always();
        let own = always.with_file_name(format!("own-{}", self.number));
        fs::write(&own, record(self.number, self.count)).context("write of a new version")?;
        fs::rename(&own, &always).context("rename over what is always there")
    }

    fn see_always(&mut self) -> Outcome {
        let always = self.always();
        let what = always.display();
        match self.random.below(3) {
            0 => always.metadata().map(drop).context(format_args!("stat {what}")),
            1 => check(&always, &fs::read(&always).context(format_args!("open and read {what}"))?),
            _ => {
                let file = OpenOptions::new().create(true).append(true).open(&always);
                file.map(drop).context(format_args!("open with O_CREAT {what}"))
            }
        }
    }

    fn list(&mut self) -> Outcome {
        let folder = self.always().parent().expect("a folder").to_owned();
        let entries = fs::read_dir(&folder).context(folder.display())?;
        let names: io::Result<Vec<_>> =
            entries.map(|entry| entry.map(|entry| entry.file_name())).collect();
        let mut names = names.context(folder.display())?;
        let seen = names.iter().filter(|name| *name == ALWAYS).count();
        ensure(seen == 1, || format!("{}: {ALWAYS} is listed {seen} times", folder.display()))?;
        names.sort();
        let count = names.len();
        names.dedup();
        ensure(names.len() == count, || format!("{}: a name twice", folder.display()))
    }

    /// A record at the end of whatever the name is.
    fn append(&mut self, path: &Path) -> Outcome {
        let file = OpenOptions::new().create(true).append(true).open(path);
        // A directory; a symbolic link always has its target. And twice something else than a file
        // where a file was to be made: Linux asks no third time.
        let errors = [Errno::ISDIR, Errno::STALE];
        let Some(mut file) = allowed("append: open", path, file, &errors)? else {
            return Ok(());
        };
        file.write_all(&record(self.number, self.count)).context("append: write")?;
        if self.random.below(8) == 0 {
            file.sync_all().context("append: fsync")?;
        }
        if self.random.below(4) == 0 && !path.ends_with("f0") && !path.ends_with("f1") {
            self.held = None;
            self.held = OpenOptions::new().read(true).append(true).open(path).ok();
        }
        Ok(())
    }

    fn read(&mut self, path: &Path) -> Outcome {
        let Some(mut file) = allowed("read: open", path, File::open(path), &[Errno::NOENT])? else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        match allowed("read", path, file.read_to_end(&mut bytes), &[Errno::ISDIR])? {
            Some(_) => check(path, &bytes),
            None => Ok(()),
        }
    }

    /// To nothing. A reader may meanwhile find zeros up to the size that the file had, so only
    /// names that no thread reads are cut.
    fn cut(&mut self, path: &Path) -> Outcome {
        let file = OpenOptions::new().write(true).open(path);
        match allowed("cut: open", path, file, &[Errno::NOENT])? {
            Some(file) => file.set_len(0).context("cut: truncate"),
            None => Ok(()),
        }
    }

    /// A file that is open stays what it is, with or without a name.
    fn use_held(&mut self, other: &Path) -> Outcome {
        let Some(file) = &mut self.held else {
            self.held =
                File::open(other).ok().filter(|it| it.metadata().is_ok_and(|m| m.is_file()));
            return Ok(());
        };
        file.metadata().context("held: fstat")?;
        file.seek(SeekFrom::Start(0)).context("held: seek")?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).context("held: read")?;
        check(Path::new("held"), &bytes)?;
        match flock(&*file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => flock(&*file, FlockOperation::Unlock).context("held: unlock")?,
            Err(error) => return Err(format!("held: flock: {error}")),
        }
        let mut past = [0];
        let got = file.read_at(&mut past, 1 << 40).context("held: read behind the end")?;
        ensure(got == 0, || "held: bytes far behind the end".to_owned())?;
        if self.random.below(3) == 0 {
            self.held = None;
        }
        Ok(())
    }
}

/// `ESTALE` where the name was something else both times that Linux looked it up: it asks no third time.
const LINK: [Errno; 4] = [Errno::NOENT, Errno::EXIST, Errno::PERM, Errno::STALE];

const RENAME: [Errno; 3] = [Errno::NOENT, Errno::ISDIR, Errno::NOTDIR];

/// The value, nothing for an error that may be, or the fault.
fn allowed<T>(
    call: &str,
    path: &Path,
    answer: io::Result<T>,
    errors: &[Errno],
) -> Outcome<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if errors.iter().any(|it| error.raw_os_error() == Some(it.raw_os_error())) => {
            Ok(None)
        }
        Err(error) => Err(format!("{call} {}: {error}", path.display())),
    }
}

fn may<T>(call: &str, path: &Path, answer: io::Result<T>, errors: &[Errno]) -> Outcome {
    allowed(call, path, answer, errors).map(drop)
}

fn record(actor: u64, count: u64) -> Vec<u8> {
    let mut bytes = format!("{actor} {count} ").into_bytes();
    bytes.resize(RECORD - 1, b'.');
    bytes.push(b'\n');
    bytes
}

/// Whole records, one behind the other.
fn check(path: &Path, bytes: &[u8]) -> Outcome {
    let whole = |record: &[u8]| {
        let mut words = record.split(|byte| *byte == b' ');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
        let (actor, count) = (number(), number());
        actor.zip(count).is_some_and(|(actor, count)| record == self::record(actor, count))
    };
    match bytes.chunks(RECORD).position(|record| !whole(record)) {
        None => Ok(()),
        Some(torn) => {
            let record = bytes.chunks(RECORD).nth(torn).unwrap_or_default();
            let blank = record.iter().take_while(|byte| **byte == 0).count();
            if blank > 0 && record[blank..].iter().all(|byte| [b'.', b'\n'].contains(byte)) {
                return Err(format!("{}: record {torn} {UNWRITTEN}", path.display()));
            }
            let (length, shown) = (bytes.len(), String::from_utf8_lossy(record).into_owned());
            Err(format!("{}: record {torn} of {length} bytes is {shown:?}", path.display()))
        }
    }
}
