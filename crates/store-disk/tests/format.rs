//! The directory of a store: formatting, refusals, configuration, capacity, full disks.

#![allow(clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use bytes::Bytes;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use sheen_store::{Attributes, Sequence, Store, StoreError, Transaction};
use sheen_store_disk::{
    CAPACITY_KEY, Config, DiskError, FORMAT_VERSION, FormatOptions, LABEL_KEY, OpenOptions,
    StoreDisk,
};
use sheen_types::Fid;

fn open(dir: &Path) -> Result<StoreDisk, DiskError> {
    StoreDisk::open(dir, &OpenOptions::default())
}

fn formatted(options: &FormatOptions) -> std::path::PathBuf {
    let dir = common::kept();
    StoreDisk::format(&dir, options).expect("format works");
    dir
}

fn create(store: &StoreDisk, number: u32) -> Result<Sequence, StoreError> {
    let mut transaction = Transaction::new();
    transaction.create(Fid::new(1, number), Attributes::default());
    store.apply(transaction)
}

fn destroy(store: &StoreDisk, number: u32) {
    let mut transaction = Transaction::new();
    transaction.destroy(Fid::new(1, number));
    store.apply(transaction).expect("destroy works, however full the store");
    store.commit().expect("commit works");
}

#[test]
fn only_a_formatted_directory_opens() {
    let dir = common::kept();
    assert!(matches!(open(&dir), Err(DiskError::NotFormatted(path)) if path == dir));
    assert!(matches!(Config::load(&dir), Err(DiskError::NotFormatted(_))));
    assert!(matches!(open(&dir.join("absent")), Err(DiskError::NotFormatted(_))));
    StoreDisk::format(&dir.join("a/b"), &FormatOptions::default()).expect("format works");
    drop(open(&dir.join("a/b")).expect("open works"));
}

#[test]
fn formatting_twice_is_refused_unless_forced() {
    let dir = formatted(&FormatOptions::default());
    create(&open(&dir).expect("open works"), 1).expect("create works");
    let again = StoreDisk::format(&dir, &FormatOptions::default());
    assert!(matches!(again, Err(DiskError::AlreadyFormatted(path)) if path == dir));
    let store = open(&dir).expect("open works");
    assert!(store.attributes(Fid::new(1, 1)).is_ok(), "nothing was lost");
    let reformat = FormatOptions { reformat: true, ..Default::default() };
    let in_use = StoreDisk::format(&dir, &reformat);
    assert!(matches!(in_use, Err(DiskError::Locked(_))));
    drop(store);
    StoreDisk::format(&dir, &reformat).expect("reformat works");
    let store = open(&dir).expect("open works");
    assert_eq!(store.committed(), Sequence(0));
    assert!(store.attributes(Fid::new(1, 1)).is_err());
}

#[test]
fn one_opener_at_a_time() {
    let dir = formatted(&FormatOptions::default());
    let store = open(&dir).expect("open works");
    let error = open(&dir).err().expect("refused");
    assert!(matches!(&error, DiskError::Locked(path) if *path == dir));
    assert_eq!(error.to_string(), format!("{} is in use by another process", dir.display()));
    drop(store);
    drop(open(&dir).expect("open works again"));
}

#[test]
fn unknown_formats_are_refused() {
    let dir = formatted(&FormatOptions::default());
    let format = dir.join("format");
    let good = fs::read_to_string(&format).expect("the format file is text");
    let newer = good.replace(&FORMAT_VERSION.to_string(), "77");
    fs::write(&format, newer).expect("write works");
    let error = open(&dir).err().expect("refused");
    assert!(matches!(error, DiskError::NewerVersion { found: 77, known: FORMAT_VERSION, .. }));
    for bad in ["", "ext4\n", "sheen-store-disk\nversion \n", "sheen-store-disk\nversion 1\n"] {
        fs::write(&format, bad).expect("write works");
        assert!(matches!(open(&dir), Err(DiskError::Damaged { .. })), "{bad:?}");
    }
    fs::write(&format, good).expect("write works");
    drop(open(&dir).expect("open works"));
}

/// Objects of a store from before there were checksums are as they are; it becomes one of ours.
#[test]
fn an_older_store_is_opened_and_becomes_newer() {
    let dir = formatted(&FormatOptions::default());
    drop(open(&dir).expect("open works"));
    let format = dir.join("format");
    fs::write(&format, "sheen-store-disk\nversion 2\n").expect("write works");
    assert!(Config::load(&dir).is_ok(), "looking changes nothing");
    assert!(fs::read_to_string(&format).expect("text").contains("version 2"));
    drop(open(&dir).expect("open works"));
    let now = fs::read_to_string(&format).expect("text");
    assert!(
        now.ends_with(&format!("version {FORMAT_VERSION}\n")),
        "an older program must not take it"
    );
}

#[test]
fn configuration_is_text_beside_the_engine() {
    let config = BTreeMap::from([("mgsnode".to_owned(), "127.0.0.1@tcp=x".to_owned())]);
    let options = FormatOptions {
        label: "lustre-OST0001".to_owned(),
        capacity_bytes: Some(1 << 30),
        config,
        ..Default::default()
    };
    let dir = formatted(&options);
    let _open = open(&dir).expect("open works");
    let mut config = Config::load(&dir).expect("readable while open");
    assert_eq!(config.values[LABEL_KEY], "lustre-OST0001");
    assert_eq!(config.values[CAPACITY_KEY], "1073741824");
    assert_eq!(config.values["mgsnode"], "127.0.0.1@tcp=x");
    config.values.insert("index".to_owned(), "1".to_owned());
    config.values.insert("empty".to_owned(), String::new());
    config.save(&dir).expect("save works");
    assert_eq!(Config::load(&dir).expect("load works"), config);
    for (key, value) in [("a=b", ""), ("", "x"), ("#a", "x"), ("a", "x\ny")] {
        let mut bad = config.clone();
        bad.values.insert(key.to_owned(), value.to_owned());
        assert!(matches!(bad.save(&dir), Err(DiskError::Damaged { .. })), "{key:?}={value:?}");
    }
    assert_eq!(Config::load(&dir).expect("unchanged"), config);
    fs::write(dir.join("CONFIG"), "no separator\n").expect("write works");
    assert!(matches!(Config::load(&dir), Err(DiskError::Damaged { .. })));
}

/// Any byte of the configuration that changes or goes is refused by the file's name, with the way out; and that
/// leads out.
#[test]
fn a_damaged_configuration_is_refused_by_name() {
    let dir =
        formatted(&FormatOptions { label: "lustre-OST0001".to_owned(), ..Default::default() });
    let (path, copy) = (dir.join("CONFIG"), dir.join("CONFIG.copy"));
    let whole = fs::read(&path).expect("read works");
    let config = Config::load(&dir).expect("whole");
    let refused = |way_out: &str| {
        let error = open(&dir).err().expect("refused").to_string();
        assert!(error.contains(&*path.to_string_lossy()), "{error}");
        assert!(error.contains(way_out), "{error}");
        assert!(Config::load(&dir).is_err() && config.save(&dir).is_ok());
    };
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        fs::write(&path, &flipped).expect("write works");
        refused("cp ");
        fs::write(&path, &whole[..at]).expect("write works");
        refused("cp ");
    }
    fs::remove_file(&path).expect("remove works");
    refused("it is gone");
    for file in [&path, &copy] {
        fs::write(file, &whole[1..]).expect("write works");
    }
    refused("sheen salvage");
    fs::write(&path, &whole[1..]).expect("write works");
    fs::copy(&copy, &path).expect("copied");
    drop(open(&dir).expect("it opens with its copy"));
}

/// Its copy is of use only where the configuration is damaged: then it is too late to find that it is, too.
#[test]
fn a_damaged_copy_of_the_configuration_is_found_and_written_again() {
    let dir =
        formatted(&FormatOptions { label: "lustre-OST0001".to_owned(), ..Default::default() });
    let copy = dir.join("CONFIG.copy");
    let whole = fs::read(&copy).expect("read works");
    let fault = || Config::copy_fault(&dir).expect("the configuration is whole");
    let found = |why: &str| {
        let fault = fault().expect("found");
        assert!(fault.contains(&*copy.to_string_lossy()) && fault.ends_with(why), "{fault}");
        Config::load(&dir).and_then(|config| config.save(&dir)).expect("written");
        assert_eq!(fs::read(&copy).expect("read works"), whole);
    };
    assert_eq!(fault(), None);
    fs::write(&copy, &whole[1..]).expect("write works");
    found("its checksum differs");
    fs::write(&copy, b"").expect("write works");
    found("its checksum is gone");
    fs::remove_file(&copy).expect("remove works");
    found("it is gone");
    // As a crash between the two leaves them.
    let mut older = Config::load(&dir).expect("load works");
    older.values.insert("index".to_owned(), "1".to_owned());
    older.save(&dir).expect("save works");
    let newer = fs::read(&copy).expect("read works");
    fs::write(dir.join("CONFIG"), &whole).expect("write works");
    found("it differs from CONFIG");
    assert_ne!(newer, whole);
    assert_eq!(fault(), None);
}

/// Data is refused beyond the capacity, rewriting and freeing is not, and the count survives.
#[test]
fn capacity_holds_for_data() {
    let options = FormatOptions { capacity_bytes: Some(64 << 20), ..Default::default() };
    let dir = formatted(&options);
    let fid = Fid::new(1, 1);
    let piece = Bytes::from(vec![9; 1 << 20]);
    let mut store = open(&dir).expect("open works");
    create(&store, 1).expect("create works");
    let mut written = 0;
    while store.write(fid, written << 20, std::slice::from_ref(&piece)).is_ok() {
        written += 1;
        assert!(written <= 64, "the capacity was not kept");
    }
    assert!(written >= 58, "only {written} of 64 MiB");
    let refused = store.write(fid, written << 20, std::slice::from_ref(&piece));
    assert_eq!(refused, Err(StoreError::NoSpace));
    for again in 0..2 {
        store.write(fid, 0, std::slice::from_ref(&piece)).expect("rewriting needs no space");
        let space = store.space().expect("space is reported");
        assert_eq!(space.total, 64 << 20);
        assert!(space.available < 2 << 20, "{space:?}");
        if again == 0 {
            drop(store);
            store = open(&dir).expect("open works");
        }
    }
    destroy(&store, 1);
    for _ in 0..1000 {
        if store.space().expect("space is reported").available > 50 << 20 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("destroying freed nothing: {:?}", store.space());
}

/// Metadata is refused beyond the capacity, except what frees.
#[test]
fn capacity_holds_for_metadata() {
    let options = FormatOptions { capacity_bytes: Some(8 << 20), ..Default::default() };
    let store = open(&formatted(&options)).expect("open works");
    let mut number = 0;
    let error = loop {
        let mut transaction = Transaction::new();
        transaction.create(Fid::new(1, number), Attributes::default());
        transaction.set_xattr(Fid::new(1, number), "user.a", vec![1; 4000].into());
        if let Err(error) = store.apply(transaction) {
            break error;
        }
        number += 1;
        assert!(number < 4000, "the capacity was not kept");
    };
    assert_eq!(error, StoreError::NoSpace);
    assert!(number > 500, "only {number} objects of 4 KiB in 8 MiB");
    destroy(&store, 0);
    assert!(store.attributes(Fid::new(1, 1)).is_ok());
    (1..number).for_each(|number| destroy(&store, number));
    let begun = std::time::Instant::now();
    while let Err(error) = create(&store, number) {
        assert_eq!(error, StoreError::NoSpace);
        assert!(begun.elapsed().as_secs() < 20, "removing all made no room: {:?}", store.space());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// A disk that is really full refuses data and new objects, and serves everything else.
#[test]
fn full_disk_leaves_the_store_usable() {
    let point = common::Temporary::new();
    let size = Some(c"size=200m");
    if let Err(error) = mount("tmpfs", &point.0, "tmpfs", MountFlags::empty(), size) {
        sheen_skip::skip(&format!("mounting needs privilege: {error}"));
        return;
    }
    let outcome = std::panic::catch_unwind(|| fill(&point.0.join("store")));
    unmount(&point.0, UnmountFlags::DETACH).expect("unmount works");
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

fn fill(dir: &Path) {
    StoreDisk::format(dir, &FormatOptions::default()).expect("format works");
    let store = Arc::new(open(dir).expect("open works"));
    create(&store, 1).expect("create works");
    let piece = Bytes::from(vec![9; 1 << 20]);
    let mut written = 0;
    let error = loop {
        match store.write(Fid::new(1, 1), written << 20, std::slice::from_ref(&piece)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        let [recent, now] =
            [store.recent_space(), store.space()].map(|space| space.expect("space is reported"));
        assert!(recent.available < now.available + (2 << 20), "{recent:?} {now:?}");
        assert!(written < 250, "more than the disk holds");
    };
    assert_eq!(error, StoreError::NoSpace);
    assert!(written > 80, "only {written} MiB of 200");
    store.commit().expect("commit works");
    assert_eq!(create(&store, 2), Err(StoreError::NoSpace));
    assert_eq!(store.read(Fid::new(1, 1), 0, 3), Ok(Bytes::from(vec![9; 3])));
    destroy(&store, 1);
    for _ in 0..1000 {
        if create(&store, 3).is_ok() {
            store.commit().expect("commit works");
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("still full after everything was destroyed");
}
