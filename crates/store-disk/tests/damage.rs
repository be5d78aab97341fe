//! Damage to a store's own files: it opens with everything, or it refuses by name; what is found
//! damaged later is an error that names the target. It never opens with less and no word.
//!
//! Each file of a store that was closed, and of one whose process was killed, is cut, deleted and
//! changed in many places. `SHEEN_LONG=1` changes ten times as many.

#![allow(clippy::disallowed_methods, reason = "a test of real files")]

#[allow(dead_code, reason = "shared with other test binaries")]
mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use sheen_store::{Attributes, Entry, Sequence, Store, StoreError, Transaction};
use sheen_store_disk::{DiskError, FormatOptions, OpenOptions, StoreDisk};
use sheen_types::Fid;

const LABEL: &str = "lustre-MDT0007";
const OBJECTS: u32 = 3700;
const INDEX: Fid = Fid::new(2, 1);
/// Tables that share the damages of one.
const TURNS: usize = 4;
const THREADS: usize = 4;

fn fid(number: u32) -> Fid {
    Fid::new(1, number)
}

fn value(number: u32) -> Bytes {
    Bytes::from(number.to_le_bytes().repeat(200))
}

fn key(number: u32) -> Vec<u8> {
    format!("name-{number:05}").into_bytes()
}

fn options() -> OpenOptions {
    // Little memory, so that there are tables.
    OpenOptions { cache_bytes: 1, ..Default::default() }
}

fn format(dir: &Path) {
    let options =
        FormatOptions { label: LABEL.to_owned(), memtable_bytes: 1 << 20, ..Default::default() };
    StoreDisk::format(dir, &options).expect("format works");
}

fn open(dir: &Path) -> Result<StoreDisk, DiskError> {
    StoreDisk::open(dir, &options())
}

/// One transaction for each number.
fn put(store: &StoreDisk, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut transaction = Transaction::new();
        transaction.create(fid(number), Attributes::default());
        transaction.set_xattr(fid(number), "user.a", value(number));
        transaction.put(INDEX, key(number).into(), value(number));
        store.apply(transaction).expect("apply works");
        if number % 100 == 99 {
            store.commit().expect("commit works");
        }
    }
    store.commit().expect("commit works");
}

/// All files below `dir`, as paths relative to it.
fn files(dir: &Path, below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir.join(below)).expect("a directory") {
        let path = below.join(entry.expect("an entry").file_name());
        match dir.join(&path).is_dir() {
            true => found.extend(files(dir, &path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// The store as a kill would leave it, without the zeros that fjall puts behind its journals.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("objects")).expect("mkdir works");
    for file in files(from, Path::new("")) {
        let mut bytes = fs::read(from.join(&file)).expect("read works");
        if file.extension().is_some_and(|extension| extension == "jnl") {
            bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        }
        let to = to.join(&file);
        fs::create_dir_all(to.parent().expect("a parent")).expect("mkdir works");
        fs::write(to, bytes).expect("write works");
    }
}

/// A copy of a template that is to be damaged: tables, which nothing writes to, are the template's own.
fn scratch(template: &Path, all: &[PathBuf], to: &Path) {
    fs::create_dir_all(to.join("objects")).expect("mkdir works");
    for file in all {
        let (from, to) = (template.join(file), to.join(file));
        fs::create_dir_all(to.parent().expect("a parent")).expect("mkdir works");
        match is_table(file) {
            true => fs::hard_link(from, to).expect("link works"),
            false => drop(fs::copy(from, to).expect("copy works")),
        }
    }
}

fn is_table(file: &Path) -> bool {
    file.parent().is_some_and(|parent| parent.ends_with("tables"))
}

/// Whether an open store has everything, or says what it has not.
fn is_whole_or_says(store: &StoreDisk) -> Result<(), String> {
    let says = |error: &StoreError| match error {
        StoreError::Corrupt(text) | StoreError::Io(text) => text.contains(LABEL),
        _ => false,
    };
    if store.committed() != Sequence(OBJECTS.into()) {
        return Err(format!("it is at {:?}", store.committed()));
    }
    // Blocks hold more than three, so that none is missed.
    for number in (0..OBJECTS).step_by(3) {
        match store.xattr(fid(number), "user.a") {
            Ok(Some(found)) if found == value(number) => {}
            Err(error) if says(&error) => {}
            other => return Err(format!("object {number}: {other:?}")),
        }
    }
    let is_whole = |(number, entry): (u32, &Entry)| entry.value == value(number);
    match store.scan(INDEX, b"", usize::MAX) {
        Ok(entries) if entries.len() == OBJECTS as usize => {
            return match (0..).zip(&entries).all(is_whole) {
                true => Ok(()),
                false => Err("a scan: other values".to_owned()),
            };
        }
        Err(error) if says(&error) => {}
        other => return Err(format!("a scan: {:?}", other.map(|entries| entries.len()))),
    }
    for number in (0..OBJECTS).step_by(3) {
        match store.lookup(INDEX, &key(number)) {
            Ok(Some(found)) if found == value(number) => {}
            Err(error) if says(&error) => {}
            other => return Err(format!("key {number}: {other:?}")),
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Deleted,
    CutTo(usize),
    Flipped(usize),
    Zeroed(usize),
}

impl Damage {
    fn to(self, path: &Path) {
        let mut bytes = fs::read(path).expect("read works");
        // It may have another name, in the template.
        fs::remove_file(path).expect("remove works");
        match self {
            Self::Deleted => return,
            Self::CutTo(length) => bytes.truncate(length),
            Self::Flipped(at) => bytes[at] ^= 0x41,
            Self::Zeroed(at) => {
                let end = bytes.len().min(at + 4096);
                bytes[at..end].fill(0);
            }
        }
        fs::write(path, bytes).expect("write works");
    }

    fn all(length: usize, places: usize) -> Vec<Self> {
        let mut all = vec![Self::Deleted];
        all.extend((0..4).map(|part| Self::CutTo(length * part / 4)));
        all.extend(length.checked_sub(1).map(Self::CutTo));
        let mut at: Vec<usize> = (0..places).map(|place| length * place / places).collect();
        at.extend((1..40).filter(|back| back % 9 == 0).filter_map(|back| length.checked_sub(back)));
        at.dedup();
        all.extend(at.iter().filter(|at| **at < length).map(|at| Self::Flipped(*at)));
        all.extend(at.iter().step_by(4).filter(|at| **at < length).map(|at| Self::Zeroed(*at)));
        all
    }
}

/// What came of it, for the count.
#[derive(Debug, Default)]
struct Outcomes {
    refused: usize,
    opened: usize,
}

/// Damages of each file; of tables, which are alike, each takes its turn of them.
fn cases(template: &Path, all: &[PathBuf]) -> Vec<(PathBuf, Damage)> {
    let is_long = std::env::var_os("SHEEN_LONG").is_some();
    let places = if is_long { 200 } else { 5 };
    let (mut cases, mut tables) = (Vec::new(), 0);
    for file in all {
        let length = fs::metadata(template.join(file)).expect("it is there").len() as usize;
        let mut damages = Damage::all(length, places);
        if is_table(file) && !is_long {
            tables += 1;
            let turn = |place: usize| place % TURNS == tables % TURNS;
            damages =
                damages.into_iter().enumerate().filter(|(n, _)| turn(*n)).map(|(_, d)| d).collect();
        }
        cases.extend(damages.into_iter().map(|damage| (file.clone(), damage)));
    }
    cases
}

/// What becomes of a store with this damage; an error if it has less and says nothing.
fn try_one(
    template: &Path,
    all: &[PathBuf],
    (file, damage): &(PathBuf, Damage),
) -> Result<bool, String> {
    let place = common::Temporary::new();
    scratch(template, all, &place.0);
    damage.to(&place.0.join(file));
    match open(&place.0) {
        Err(error) => {
            let line = error.to_string();
            let named = line.contains(LABEL) || line.contains(&*place.0.to_string_lossy());
            assert!(named && !line.contains('\n'), "{file:?} {damage:?}: {line}");
            if file.starts_with("engine") {
                let names_both = line.contains("/engine") && line.contains("sheen salvage");
                assert!(names_both, "no path or no way out: {file:?} {damage:?}: {line}");
            }
            Ok(false)
        }
        Ok(store) => is_whole_or_says(&store)
            .map(|()| true)
            .map_err(|lost| format!("{} {damage:?}: {lost}", file.display())),
    }
}

/// Which files are damaged.
type Wanted<'a> = &'a dyn Fn(&Path) -> bool;

fn try_all(template: &Path, wanted: Wanted) -> Outcomes {
    let all = files(template, Path::new(""));
    let mut cases = cases(template, &all);
    cases.retain(|(file, _)| wanted(file));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push(try_one(template, &all, case));
        }
        done
    };
    let done: Vec<Result<bool, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
    });
    let silent: Vec<&String> = done.iter().filter_map(|one| one.as_ref().err()).collect();
    assert!(silent.is_empty(), "opened with less and no word:\n{silent:#?}");
    let opened = done.iter().filter(|one| matches!(one, Ok(true))).count();
    Outcomes { refused: done.len() - opened, opened }
}

/// With fewer tables the test says little.
const TABLES_MIN: usize = 4;

/// Waits until the engine has flushed to tables, and has nothing more to flush or merge. On a busy machine its threads may
/// not have run yet; more than half a minute they do not need.
fn settle(dir: &Path) {
    let (mut before, begin) = (Vec::new(), std::time::Instant::now());
    loop {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let now = files(dir, Path::new(""));
        let has_flushed = count(dir, "tables") > TABLES_MIN || begin.elapsed().as_secs() > 30;
        if has_flushed && now == before {
            return;
        }
        before = now;
    }
}

fn count(dir: &Path, what: &str) -> usize {
    files(dir, Path::new("")).iter().filter(|file| file.to_string_lossy().contains(what)).count()
}

#[test]
fn a_damaged_store_opens_with_everything_or_refuses() {
    let (place, killed) = (common::Temporary::new(), common::Temporary::new());
    format(&place.0);
    let store = open(&place.0).expect("open works");
    put(&store, 0..OBJECTS);
    settle(&place.0);
    copy(&place.0, &killed.0);
    drop(store);
    let closed = common::Temporary::new();
    copy(&place.0, &closed.0);
    let tables = count(&killed.0, "tables");
    assert!(tables > TABLES_MIN, "{tables} tables are too few");
    let undamaged = common::Temporary::new();
    copy(&killed.0, &undamaged.0);
    let store = open(&undamaged.0).expect("an undamaged copy opens");
    is_whole_or_says(&store).expect("an undamaged copy is whole");
    // Both have the same tables, which are damaged in one.
    let is_other = |file: &Path| !is_table(file);
    let all: (&str, &Path, Wanted) = ("killed", &killed.0, &|_| true);
    for (what, template, wanted) in [all, ("closed", &closed.0, &is_other)] {
        let outcomes = try_all(template, wanted);
        println!("{what}: {outcomes:?}");
        assert!(outcomes.refused > 50 && outcomes.opened > 10, "{what}: {outcomes:?}");
    }
}

/// The store of the issue: nothing in tables yet, and the journal cut in half.
#[test]
fn a_journal_cut_in_half_is_refused_in_one_line_with_the_numbers() {
    let place = common::Temporary::new();
    format(&place.0);
    let store = open(&place.0).expect("open works");
    put(&store, 0..300);
    put(&store, 300..303);
    drop(store);
    let journals = files(&place.0.join("engine"), Path::new(""));
    let journal = journals.iter().rfind(|file| file.to_string_lossy().ends_with(".jnl"));
    let journal = place.0.join("engine").join(journal.expect("a journal"));
    let whole = fs::read(&journal).expect("read works");
    let used = whole.iter().rposition(|byte| *byte != 0).expect("not empty") + 1;
    fs::write(&journal, &whole[..used / 2]).expect("write works");
    for _ in 0..2 {
        let error = open(&place.0).err().expect("refused, and again");
        let line = error.to_string();
        assert!(matches!(error.cause(), DiskError::Missing { had: 303, .. }), "{line}");
        assert!(line.starts_with(&format!("{LABEL}: {}", place.0.display())), "{line}");
        assert!(line.contains("transactions that were acknowledged as durable are missing"));
        assert!(line.contains("it had 303") && line.contains("sheen salvage"), "{line}");
    }
    fs::write(&journal, whole).expect("write works");
    drop(open(&place.0).expect("with the journal back it opens"));
}

/// A crash takes the end of a commit that no caller knew of: it goes, and is kept beside.
#[test]
fn a_torn_end_is_cut_and_kept() {
    let place = common::Temporary::new();
    format(&place.0);
    let store = open(&place.0).expect("open works");
    put(&store, 0..10);
    let (before, torn) = (common::Temporary::new(), common::Temporary::new());
    copy(&place.0, &before.0);
    put(&store, 10..20);
    copy(&place.0, &torn.0);
    drop(store);
    let journal = Path::new("engine/0.jnl");
    let [old, new] =
        [&before.0, &torn.0].map(|dir| fs::read(dir.join(journal)).expect("read works"));
    let end = old.len() + (new.len() - old.len()) * 2 / 3;
    fs::write(before.0.join(journal), &new[..end]).expect("write works");
    let store = open(&before.0).expect("a torn commit is no damage");
    assert_eq!(store.committed(), Sequence(10));
    drop(store);
    let kept = fs::read(before.0.join("lost+journal-0")).expect("kept");
    assert!(new[old.len()..end].starts_with(&kept) && kept.len() > (end - old.len()) / 2);
}

/// An open of a pipe waits until a program writes to it.
#[test]
fn a_pipe_in_place_of_a_file_is_refused_by_name() {
    let place = common::Temporary::new();
    let dir = place.0.join("store");
    format(&dir);
    drop(open(&dir).expect("opened"));
    for name in ["CONFIG", "format", "committed", "marks", "lock", "engine/0.jnl"] {
        let (path, aside) = (dir.join(name), dir.join("aside"));
        fs::rename(&path, &aside).expect(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe");
        let refused = open(&dir).err().map(|it| it.to_string());
        let refused = refused.unwrap_or_default();
        assert!(refused.contains(name) && refused.contains("no file"), "{name}: {refused}");
        assert!(StoreDisk::lacks_mark(&dir).is_err());
        fs::rename(&aside, &path).expect(name);
    }
    drop(open(&dir).expect("opened again"));
}
