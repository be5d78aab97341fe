//! Power loss at any write: what is left is a run of transactions, no shorter than what was
//! reported.
//!
//! A store lives a story on a file system that records every change and sync. Then for many points
//! of the record, and several ways to lose what was not synced, the disk as it might have been is
//! written out and the store opened there. `SHEEN_LONG=1` tries every point.
#![allow(clippy::disallowed_methods, reason = "a test of real time")]

#[allow(dead_code, reason = "shared with other test binaries")]
mod common;
#[path = "common/recorder.rs"]
mod recorder;
#[path = "common/story.rs"]
#[allow(dead_code, reason = "shared with other test binaries")]
mod story;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use sheen_fuse_wire::{Config, Running, Session, mount_by_helper};
use sheen_store::{
    Attributes, FileKind, Sequence, Store, StoreError, Transaction,
    suite::{
        model::Model,
        script::{self, Numbers},
    },
};
use sheen_store_disk::{FormatOptions, OpenOptions, StoreDisk};
use sheen_types::{Fid, HashMap};

use recorder::{Event, Loss, Recorder, survivors};
use story::{Deed, History, Which, deed, look_through, perform, stored};

/// How often a mount that is in use is tried again, and after which time.
const UNMOUNT_TRIES: usize = 200;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// What the store reported, or was asked, at a point of the record.
#[derive(Clone, Debug)]
enum Mark {
    Formatted,
    /// About to apply up to this transaction.
    Applying(Sequence),
    Committed(Sequence),
    /// About to write to an object's data.
    Writing(Which),
    /// The data that is durable, said the store.
    Synced(Which, Vec<u8>),
}

/// A disk that records what is done to it, and can break.
struct RecordedDisk {
    recorder: Recorder<Mark>,
    place: common::Temporary,
    session: Running,
}

impl RecordedDisk {
    fn mount() -> Self {
        let (recorder, place) = (Recorder::new(), common::Temporary::new());
        let device = mount_by_helper(&place.0, "fsname=recorder").expect("FUSE mounts work here");
        let session = Session::new(recorder.clone(), device, Config::default());
        let session = session.and_then(Session::spawn).expect("the kernel speaks FUSE");
        Self { recorder, place, session }
    }

    /// Where a store on it lives.
    fn dir(&self) -> PathBuf {
        self.place.0.join("store")
    }

    fn unmount(self) -> Recorder<Mark> {
        // A helper that another test is about to start holds all files that this process has open, until it runs.
        let unmounted = (0..UNMOUNT_TRIES).find_map(|_| {
            let unmounted = unmount(&self.place.0, UnmountFlags::empty());
            if unmounted == Err(Errno::BUSY) {
                std::thread::sleep(UNMOUNT_PAUSE);
                return None;
            }
            Some(unmounted)
        });
        assert_eq!(unmounted, Some(Ok(())), "unmount works");
        self.session.join().expect("it was served to its end");
        self.recorder
    }
}

/// Where disks are written out: in memory, as thousands of files are made.
fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    base.join(format!("sheen-power-{}", std::process::id()))
}

/// Lives the story on `dir`, reopening now and then.
fn live(dir: &Path, recorder: &Recorder<Mark>, seed: u64, deeds: usize) -> History {
    StoreDisk::format(dir, &small_tables()).expect("format works");
    recorder.mark(Mark::Formatted);
    let mut numbers = Numbers(seed);
    let mut history = History::begin(Sequence(0), Model::default());
    for _ in 0..3 {
        // Little memory, so that the engine writes tables and merges them within the story.
        let options = OpenOptions { cache_bytes: 1, machine: boot(0), ..Default::default() };
        let store = StoreDisk::open(dir, &options).expect("open works");
        let hook = recorder.clone();
        store.on_commit(Box::new(move |committed| {
            hook.mark(Mark::Committed(committed.expect("commits work")));
        }));
        for _ in 0..deeds / 3 {
            let deed = deed(&mut numbers);
            history.note(&deed);
            recorder.mark(Mark::Applying(history.applied()));
            if let Deed::Write(file, ..) | Deed::Cut(file, _) = &deed
                && let Some(which) = history.which(*file)
            {
                recorder.mark(Mark::Writing(which));
            }
            perform(&store, &deed);
            if let Deed::Sync(file) = &deed
                && let Some(which) = history.which(*file)
            {
                recorder.mark(Mark::Synced(which, stored(&store, *file)));
            }
        }
    }
    history
}

/// What must hold at a point of the record.
#[derive(Default)]
struct Promised {
    applying: Sequence,
    committed: Sequence,
    synced: HashMap<Which, Vec<u8>>,
}

impl Promised {
    fn note_mark(&mut self, mark: &Mark) {
        match mark {
            Mark::Formatted => {}
            Mark::Applying(sequence) => self.applying = *sequence,
            Mark::Committed(sequence) => self.committed = *sequence,
            Mark::Writing(which) => drop(self.synced.remove(which)),
            Mark::Synced(which, bytes) => {
                self.synced.insert(*which, bytes.clone());
            }
        }
    }
}

fn check(dir: &Path, history: &History, promised: &Promised) -> Result<(), String> {
    let options = OpenOptions { machine: boot(1), ..Default::default() };
    let store = StoreDisk::open(dir, &options).map_err(|e| e.to_string())?;
    let found = store.committed();
    if found < promised.committed || found > promised.applying {
        return Err(format!(
            "{found:?} is left, {:?} was promised, {:?} was applied",
            promised.committed, promised.applying
        ));
    }
    let (model, alive) = history.state(found).expect("not more than was applied");
    let mut expected = model.clone();
    let files = expected.objects.iter_mut().filter(|(_, o)| o.attributes.kind == FileKind::Regular);
    for (fid, object) in files {
        object.data = match promised.synced.get(&alive[fid]) {
            Some(bytes) => bytes.clone(),
            None => stored(&store, *fid),
        };
    }
    expected.difference(&store, &script::objects(), &script::indexes())?;
    look_through(&store)
}

/// The machine that loses its power, and is started again.
fn boot(number: u32) -> Option<String> {
    Some(format!("boot {number}"))
}

/// A store that writes tables, and merges them, soon.
fn small_tables() -> FormatOptions {
    FormatOptions { memtable_bytes: 1 << 20, ..FormatOptions::default() }
}

#[test]
fn power_is_lost_at_any_write() {
    let long = std::env::var_os("SHEEN_LONG").is_some();
    let seed = std::env::var("SHEEN_SEED").map_or(7, |text| text.parse().expect("a number"));
    let disk = RecordedDisk::mount();
    let history = live(&disk.dir(), &disk.recorder, seed, if long { 6000 } else { 2400 });
    let record = disk.unmount().record();
    let formatted = record.iter().position(|event| matches!(event, Event::Mark(Mark::Formatted)));
    let formatted = formatted.expect("the store was formatted");
    let made = |event: &&Event<Mark>| matches!(event, Event::Make { .. });
    let files = record.iter().skip(formatted).filter(made).count();
    let mut promised = Promised::default();
    let scratch = scratch();
    let points = record.len() - formatted;
    let step = if long { 1 } else { points.div_ceil(250) };
    let mut tried = 0;
    for (cut, event) in record.iter().enumerate().skip(formatted) {
        if let Event::Mark(mark) = event {
            promised.note_mark(mark);
            continue;
        }
        // Right behind a sync is where a promise is newest; elsewhere a sample.
        if cut % step != 0 && !matches!(event, Event::Sync { .. }) {
            continue;
        }
        let chances = [0, 1, 2].map(|more| Loss::Some(seed * 1000 + 3 * cut as u64 + more));
        for loss in [Loss::All, Loss::None].into_iter().chain(chances) {
            survivors(&record[..=cut], loss, &scratch);
            let outcome = check(&scratch.join("store"), &history, &promised);
            std::fs::remove_dir_all(&scratch).expect("the scratch can be removed");
            tried += 1;
            if let Err(error) = outcome {
                panic!("seed {seed}, behind event {cut} {event:?}, {loss:?}: {error}");
            }
        }
    }
    println!("{tried} disks of {points} points held; {files} files were made meanwhile");
    assert!(tried > 300 && files > 10, "the story is too short to prove anything");
}

/// A sync that fails makes the store read-only, fails all calls that wait, and what was durable
/// before is there after a restart.
#[test]
fn failed_sync_makes_the_store_read_only() {
    let disk = RecordedDisk::mount();
    let (recorder, dir) = (&disk.recorder, disk.dir());
    StoreDisk::format(&dir, &small_tables()).expect("format works");
    let put = |store: &StoreDisk, key: &'static str| {
        let mut transaction = Transaction::new();
        transaction.put(Fid::new(1, 1), key.into(), "v".into());
        store.apply(transaction)
    };
    let store = StoreDisk::open(&dir, &OpenOptions::default()).expect("open works");
    let durable = put(&store, "durable").expect("put works");
    assert_eq!(store.commit(), Ok(durable));
    recorder.set_broken(true);
    put(&store, "lost").expect("put works");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(matches!(store.commit(), Err(StoreError::Io(_)))));
        }
    });
    let refused = put(&store, "refused");
    assert!(matches!(&refused, Err(StoreError::Io(text)) if text.contains("read-only")));
    assert_eq!(store.committed(), durable);
    assert_eq!(store.lookup(Fid::new(1, 1), b"lost"), Ok(Some("v".into())), "still served");
    drop(store);
    recorder.set_broken(false);
    let store = StoreDisk::open(&dir, &OpenOptions::default()).expect("open works");
    assert_eq!(store.lookup(Fid::new(1, 1), b"durable"), Ok(Some("v".into())));
    assert!(store.committed() >= durable);
    put(&store, "again").expect("put works");
    store.commit().expect("commit works");
    drop(store);
    disk.unmount();
}

/// Data that the disk did not take is never called durable later, though a second sync would succeed.
#[test]
fn failed_sync_of_data_makes_the_store_read_only() {
    let disk = RecordedDisk::mount();
    let (recorder, dir) = (&disk.recorder, disk.dir());
    StoreDisk::format(&dir, &small_tables()).expect("format works");
    let store = StoreDisk::open(&dir, &OpenOptions::default()).expect("open works");
    let object = Fid::new(1, 1);
    let attributes = Attributes { kind: FileKind::Regular, ..Attributes::default() };
    let mut transaction = Transaction::new();
    transaction.create(object, attributes);
    store.apply(transaction).expect("create works");
    store.commit().expect("commit works");
    store.write(object, 0, &["durable".into()]).expect("write works");
    store.sync_data(object).expect("sync works");
    store.write(object, 0, &["is lost".into()]).expect("write works");
    recorder.set_broken(true);
    assert!(matches!(store.sync_data(object), Err(StoreError::Io(_))));
    recorder.set_broken(false);
    assert!(matches!(store.sync_data(object), Err(StoreError::Io(_))), "it was not retried");
    let refused = store.write(object, 0, &["refused".into()]);
    assert!(matches!(&refused, Err(StoreError::Io(text)) if text.contains("read-only")));
    assert!(store.commit().is_err());
    drop(store);
    disk.unmount();
}
