//! What is left of a damaged store: all that is whole, and of a broken commit what looks like a change.

#![allow(clippy::disallowed_methods, reason = "a test of real files")]

#[allow(dead_code, reason = "shared with other test binaries")]
mod common;

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use sheen_store::{Attributes, FileKind, Sequence, Store, StoreError, Transaction};
use sheen_store_disk::{
    Config, DiskError, FormatOptions, OpenOptions, Salvaged, StoreDisk, salvage,
};
use sheen_types::Fid;

const OBJECTS: u32 = 3700;
const INDEX: Fid = Fid::new(2, 1);
const DATA: Fid = Fid::new(1, 1_000_000);

fn fid(number: u32) -> Fid {
    Fid::new(1, number)
}

fn value(number: u32) -> Bytes {
    Bytes::from(number.to_le_bytes().repeat(200))
}

fn key(number: u32) -> Vec<u8> {
    format!("name-{number:05}").into_bytes()
}

/// What a target is whose configuration is lost.
fn otherwise() -> Config {
    let values = [("label".to_owned(), "lustre-MDT0007".to_owned())];
    Config { values: values.into() }
}

fn open(dir: &Path) -> Result<StoreDisk, DiskError> {
    StoreDisk::open(dir, &OpenOptions { cache_bytes: 1, ..Default::default() })
}

/// Tables and a journal, with values over older ones, a removed object and an object with data.
fn story(dir: &Path) {
    let options = FormatOptions {
        label: "lustre-MDT0007".to_owned(),
        memtable_bytes: 1 << 20,
        ..Default::default()
    };
    StoreDisk::format(dir, &options).expect("format works");
    let store = open(dir).expect("open works");
    for number in 0..OBJECTS {
        let mut transaction = Transaction::new();
        transaction.create(fid(number), Attributes::default());
        transaction.set_xattr(fid(number), "user.a", value(number));
        transaction.put(INDEX, key(number).into(), "older".into());
        store.apply(transaction).expect("apply works");
        let mut transaction = Transaction::new();
        transaction.put(INDEX, key(number).into(), value(number));
        if number % 10 == 9 {
            transaction.destroy(fid(number));
        }
        store.apply(transaction).expect("apply works");
        if number % 100 == 99 {
            store.commit().expect("commit works");
        }
    }
    let attributes = Attributes { kind: FileKind::Regular, ..Default::default() };
    let mut transaction = Transaction::new();
    transaction.create(DATA, attributes);
    store.apply(transaction).expect("apply works");
    store.write(DATA, 1 << 20, &["the data".into()]).expect("write works");
    store.commit().expect("commit works");
}

fn tables(dir: &Path, keyspace: u32) -> Vec<PathBuf> {
    let tables = dir.join(format!("engine/keyspaces/{keyspace}/tables"));
    fs::read_dir(tables)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

fn journal(dir: &Path) -> PathBuf {
    dir.join("engine/0.jnl")
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("read works");
    change(&mut bytes);
    fs::write(path, bytes).expect("write works");
}

/// Salvages; returns the report, and how many objects and keys are as they were last.
fn salvaged(dir: &Path) -> (Salvaged, usize, usize) {
    let place = common::Temporary::new();
    let to = place.0.join("new");
    let report = salvage(dir, &to, &otherwise()).expect("salvage works");
    let store = open(&to).expect("what was salvaged opens");
    let (mut objects, mut keys) = (0, 0);
    for number in 0..OBJECTS {
        match store.xattr(fid(number), "user.a") {
            Ok(Some(found)) if found == value(number) => objects += 1,
            Err(StoreError::NoObject(_)) => {}
            other => panic!("object {number}: {other:?}"),
        }
        match store.lookup(INDEX, &key(number)).expect("lookup works") {
            Some(found) if found == value(number) => keys += 1,
            Some(found) if found == "older" => {}
            None => {}
            other => panic!("key {number}: {other:?}"),
        }
    }
    assert!(!to.join("salvage").exists(), "what it was sorted in is gone");
    assert_eq!(store.read(DATA, 1 << 20, 100), Ok("the data".into()));
    drop(store);
    // Its generations lie above all that were given, so a new object has a file of its own.
    let store = open(&to).expect("open works again");
    let mut transaction = Transaction::new();
    let attributes = Attributes { kind: FileKind::Regular, ..Default::default() };
    transaction.destroy(DATA);
    store.apply(transaction).expect("apply works");
    let mut transaction = Transaction::new();
    transaction.create(DATA, attributes);
    store.apply(transaction).expect("apply works");
    assert_eq!(store.read(DATA, 0, 100), Ok(Bytes::new()));
    (report, objects, keys)
}

#[test]
fn an_undamaged_store_is_salvaged_whole() {
    let place = common::Temporary::new();
    story(&place.0);
    let (report, objects, keys) = salvaged(&place.0);
    assert_eq!((objects, keys), (3330, 3700), "and what was removed is");
    // What is known of the data of one object lies among the keys: its lengths, checksums and epoch.
    assert_eq!((report.objects, report.keys), (3331, 3700 + 3));
    assert_eq!((report.damaged, report.from_data), (vec![], vec![]));
    assert_eq!(report.sequence, Sequence(2 * u64::from(OBJECTS) + 1));
    drop(open(&place.0).expect("the damaged store, which is not, is untouched"));
}

#[test]
fn what_lies_in_whole_blocks_survives_damage_of_other_blocks() {
    let place = common::Temporary::new();
    story(&place.0);
    let table = tables(&place.0, 1).remove(0);
    change(&table, |bytes| (0..bytes.len()).step_by(100_000).for_each(|at| bytes[at] ^= 1));
    change(&journal(&place.0), |bytes| {
        let used = bytes.iter().rposition(|byte| *byte != 0).expect("not empty");
        // In a commit's number, so that no value is wrong and yet no checksum holds.
        let at = bytes[..used / 2].windows(6).rposition(|bytes| bytes == b"commit").expect("one");
        bytes[at + 6] ^= 1;
    });
    assert!(open(&place.0).is_err(), "it does not open any more");
    let before = fs::read(&table).expect("read works");
    let (report, objects, keys) = salvaged(&place.0);
    println!("{objects} objects, {keys} keys, {:#?}", report.damaged);
    assert!(report.damaged.iter().any(|line| line.contains("no checksum proves")));
    assert!(objects > 2700 && keys > 3600, "{objects} objects, {keys} keys");
    assert_eq!(report.damaged.len(), 2, "{:?}", report.damaged);
    assert_eq!(fs::read(&table).expect("read works"), before, "it was only read");
}

#[test]
fn tables_are_found_without_their_manifest_and_data_without_its_record() {
    let place = common::Temporary::new();
    story(&place.0);
    for keyspace in 1..=3 {
        let directory = place.0.join(format!("engine/keyspaces/{keyspace}"));
        fs::remove_file(directory.join("current")).expect("remove works");
    }
    // The object with data was made last: its record lies in the journal alone, unless the engine wrote a table as late as that.
    change(&journal(&place.0), |bytes| bytes.truncate(1000));
    assert!(open(&place.0).is_err(), "it does not open any more");
    let (report, objects, _) = salvaged(&place.0);
    assert!(objects > 1000, "{objects} objects");
    assert!(matches!(report.from_data[..], [DATA] | []), "{:?}", report.from_data);
}

#[test]
fn nothing_is_written_over() {
    let place = common::Temporary::new();
    story(&place.0.join("store"));
    let refused = salvage(&place.0.join("store"), &place.0, &otherwise());
    assert!(matches!(refused, Err(DiskError::AlreadyFormatted(_))), "{refused:?}");
    let store = open(&place.0.join("store")).expect("open works");
    let refused = salvage(&place.0.join("store"), &place.0.join("new"), &otherwise());
    assert!(matches!(refused, Err(DiskError::Locked(_))), "{refused:?}");
    drop(store);
}

/// Without its configuration, its format and its engine a store is made again of what is beside them.
#[test]
fn what_lies_beside_the_engine_is_enough() {
    let place = common::Temporary::new();
    let dir = place.0.join("store");
    story(&dir);
    let config = Config::load(&dir).expect("whole");
    fs::write(dir.join("CONFIG"), "flipped").expect("write works");
    fs::remove_file(dir.join("format")).expect("remove works");
    let copied = place.0.join("copied");
    let report = salvage(&dir, &copied, &otherwise()).expect("salvage works");
    assert!(
        report.damaged[0].contains("CONFIG") && report.damaged[0].contains("copy"),
        "{report:?}"
    );
    assert_eq!(report.damaged.len(), 1, "{report:?}");
    assert_eq!(Config::load(&copied).expect("whole"), config);

    fs::remove_file(dir.join("CONFIG.copy")).expect("remove works");
    fs::remove_dir_all(dir.join("engine")).expect("remove works");
    let made = place.0.join("made");
    let report = salvage(&dir, &made, &otherwise()).expect("salvage works");
    assert_eq!((report.objects, &report.from_data[..]), (1, &[DATA][..]));
    let store = open(&made).expect("what was salvaged opens");
    assert_eq!(store.read(DATA, 1 << 20, 8).expect("read works"), "the data");
    assert_eq!(Config::load(&made).expect("whole"), otherwise());
    let nothing = salvage(&place.0, &place.0.join("new"), &otherwise());
    assert!(matches!(nothing, Err(DiskError::NotFormatted(_))), "{nothing:?}");
}
