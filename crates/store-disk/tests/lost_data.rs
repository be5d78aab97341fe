//! What other hands do to the data of a store is found: lost files, short ones, flipped bytes. What the
//! store does itself is never taken for it.

#![allow(clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use sheen_store::{
    Attributes, BlockSums, Damage, DataAdvice, FileKind, Store, StoreError, Transaction,
    suite::script::Numbers,
};
use sheen_store_disk::{FormatOptions, OpenOptions, StoreDisk};
use sheen_types::Fid;

const OBJECT: Fid = Fid::new(1, 1);
const MIB: usize = 1 << 20;

fn open_with(dir: &Path, options: &OpenOptions) -> StoreDisk {
    StoreDisk::open(dir, options).expect("open works")
}

fn open(dir: &Path) -> StoreDisk {
    open_with(dir, &OpenOptions::default())
}

fn create(store: &StoreDisk, object: Fid) {
    let attributes = Attributes { kind: FileKind::Regular, ..Attributes::default() };
    let mut transaction = Transaction::new();
    transaction.create(object, attributes);
    store.apply(transaction).expect("create works");
}

fn bytes(length: usize, seed: u64) -> Bytes {
    Numbers(seed).flat_map(u64::to_le_bytes).take(length).collect::<Vec<_>>().into()
}

/// A store with one object of so many bytes.
fn stored(length: usize) -> (PathBuf, StoreDisk, Bytes) {
    let dir = common::kept();
    StoreDisk::format(&dir, &FormatOptions::default()).expect("format works");
    let store = open(&dir);
    create(&store, OBJECT);
    let data = bytes(length, 5);
    store.write(OBJECT, 0, std::slice::from_ref(&data)).expect("write works");
    store.commit().expect("commit works");
    (dir, store, data)
}

fn file_of(store: &StoreDisk, object: Fid) -> PathBuf {
    let files = store.data_files().expect("files are listed");
    let found = files.into_iter().find(|file| file.object == Some(object));
    found.expect("the object has a file").path
}

fn flip(path: &Path, offset: u64) {
    let file = fs::File::options().read(true).write(true).open(path).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], offset).expect("written");
}

fn damage<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> Damage {
    match outcome {
        Err(error @ StoreError::Damaged(_)) => {
            assert_eq!(error.errno(), sheen_types::Errno::EIO);
            let StoreError::Damaged(finding) = error else { unreachable!() };
            assert_eq!(finding.object, OBJECT);
            finding.damage
        }
        other => panic!("no damage: {other:?}"),
    }
}

/// All that a whole look finds.
fn scrub(store: &StoreDisk, object: Fid) -> Vec<Damage> {
    let (mut found, mut next) = (Vec::new(), Some(0));
    while let Some(offset) = next {
        let verified = store.verify(object, offset).expect("a look");
        found.extend(verified.findings.into_iter().map(|finding| finding.damage));
        next = verified.next;
    }
    found
}

#[test]
fn a_lost_file_is_no_empty_object() {
    let (dir, store, data) = stored(10_000);
    let path = file_of(&store, OBJECT);
    drop(store);
    fs::remove_file(&path).expect("removed");
    let store = open(&dir);
    assert_eq!(damage(store.read(OBJECT, 0, 10)), Damage::Lost);
    assert_eq!(damage(store.attributes(OBJECT)), Damage::Lost);
    assert_eq!(damage(store.write(OBJECT, 0, std::slice::from_ref(&data))), Damage::Lost);
    assert_eq!(damage(store.truncate(OBJECT, 5)), Damage::Lost);
    assert_eq!(damage(store.seek(OBJECT, 0, false)), Damage::Lost);
    assert_eq!(damage(store.sync_data(OBJECT)), Damage::Lost);
    assert_eq!(scrub(&store, OBJECT), [Damage::Lost]);
    assert!(!path.exists(), "it was not made anew");
    assert!(store.integrity().files_failed > 0);
    let other = Fid::new(1, 2);
    create(&store, other);
    assert_eq!(store.attributes(other).expect("it is there").size, 0, "never written: no loss");
    assert_eq!(store.read(other, 0, 10), Ok(Bytes::new()));
    store.write(other, 0, &[data]).expect("another object goes on");
    store.commit().expect("the store goes on");
}

#[test]
fn a_file_that_is_removed_under_an_open_store_is_found() {
    let (_dir, store, data) = stored(10_000);
    fs::remove_file(file_of(&store, OBJECT)).expect("removed");
    assert_eq!(store.read(OBJECT, 0, 10_000), Ok(data), "as long as it is open");
    assert_eq!(scrub(&store, OBJECT), [Damage::Lost]);
    assert_eq!(damage(store.sync_data(OBJECT)), Damage::Lost, "it is not durable");
}

#[test]
fn a_file_that_was_cut_is_short() {
    for reopen in [true, false] {
        let (dir, mut store, _) = stored(3 * MIB);
        let path = file_of(&store, OBJECT);
        let cut = || {
            let file = fs::File::options().write(true).open(&path).expect("a file");
            file.set_len(1000).expect("cut");
        };
        let expected = Damage::Short { expected: 3 * MIB as u64, found: 1000 };
        if reopen {
            drop(store);
            cut();
            store = open(&dir);
            assert_eq!(damage(store.attributes(OBJECT)), expected);
            assert_eq!(damage(store.write(OBJECT, 0, &[bytes(10, 1)])), expected);
        } else {
            cut();
        }
        assert_eq!(damage(store.read(OBJECT, 0, 3 * MIB)), expected);
        assert_eq!(damage(store.read(OBJECT, 0, 10)), expected, "nor its beginning");
        assert_eq!(scrub(&store, OBJECT)[0], expected);
    }
}

#[test]
fn a_cut_tail_is_no_hole_and_no_change_makes_it_one() {
    type Call = fn(&StoreDisk) -> Result<(), StoreError>;
    let tail = 2 * MIB as u64;
    let calls: [(&str, Call); 7] = [
        ("hole", |store| store.seek(OBJECT, 0, true).map(drop)),
        ("data", |store| store.seek(OBJECT, 2 * MIB as u64, false).map(drop)),
        ("punch", |store| store.punch(OBJECT, 2 * MIB as u64, 4096)),
        ("punch of what is there", |store| store.punch(OBJECT, 0, 10)),
        ("allocate", |store| store.allocate(OBJECT, 2 * MIB as u64, 4096, true)),
        ("truncate", |store| store.truncate(OBJECT, 2 * MIB as u64)),
        ("extend", |store| store.truncate(OBJECT, 4 * MIB as u64)),
    ];
    for ((name, call), reopen) in calls.into_iter().flat_map(|call| [(call, true), (call, false)]) {
        for checksums in [true, false] {
            let (dir, mut store, _) = stored(3 * MIB);
            let path = file_of(&store, OBJECT);
            let options = OpenOptions { without_checksums: !checksums, ..OpenOptions::default() };
            if reopen || !checksums {
                drop(store);
                store = open_with(&dir, &options);
                assert_eq!(store.read(OBJECT, tail, 1).map(|read| read.len()), Ok(1));
            }
            let cut = fs::File::options().write(true).open(&path).expect("a file");
            cut.set_len(1000).expect("cut");
            if reopen {
                drop(store);
                store = open_with(&dir, &options);
            }
            let expected = Damage::Short { expected: 3 * MIB as u64, found: 1000 };
            assert_eq!(damage(call(&store)), expected, "{name}, {reopen}, {checksums}");
            if !checksums {
                let written = store.write(OBJECT, tail, &[bytes(10, 1)]);
                assert_eq!(damage(written), expected, "zeros before it would be taken for data");
            }
            assert_eq!(fs::metadata(&path).expect("a file").len(), 1000, "{name}");
        }
    }
}

#[test]
fn flipped_bytes_are_found_and_a_whole_write_heals_them() {
    for reopen in [true, false] {
        let (dir, mut store, data) = stored(2 * MIB + 100);
        let path = file_of(&store, OBJECT);
        let places = [5000, MIB as u64 + 4096, 2 * MIB as u64 + 50];
        if reopen {
            drop(store);
            places.iter().for_each(|place| flip(&path, *place));
            store = open(&dir);
        } else {
            places.iter().for_each(|place| flip(&path, *place));
        }
        let blocks = [4096, MIB as u64 + 4096, 2 * MIB as u64];
        for (place, block) in places.iter().zip(blocks) {
            let found = Damage::Checksum { offset: block };
            assert_eq!(damage(store.read(OBJECT, *place, 1)), found);
            assert_eq!(damage(store.write(OBJECT, block + 7, &[bytes(9, 1)])), found, "a part");
        }
        assert_eq!(
            store.read(OBJECT, 8192, 8192),
            Ok(data.slice(8192..16384)),
            "the rest is whole"
        );
        assert_eq!(damage(store.read(OBJECT, 0, 3 * MIB)), Damage::Checksum { offset: 4096 });
        let all = blocks.map(|offset| Damage::Checksum { offset });
        assert_eq!(scrub(&store, OBJECT), all);
        assert!(store.integrity().blocks_failed >= 6);
        let whole = bytes(4096, 9);
        store.write(OBJECT, 4096, std::slice::from_ref(&whole)).expect("written whole");
        assert_eq!(store.read(OBJECT, 4096, 4096), Ok(whole));
        assert_eq!(scrub(&store, OBJECT), all[1..]);
    }
}

/// Appends need no mark, and what was kept of a shorter file stays right.
/// What the caller has summed is compared as what the store sums itself.
#[test]
fn checksums_of_the_caller_are_kept() {
    let dir = common::kept();
    StoreDisk::format(&dir, &FormatOptions::default()).expect("format works");
    let store = open(&dir);
    create(&store, OBJECT);
    let data = bytes(20_000, 3);
    for (offset, pieces) in [(100, [data.slice(..9000)]), (9100, [data.slice(9000..)])] {
        let sums = BlockSums::of(offset, &pieces);
        store.write_summed(OBJECT, offset, &pieces, sums).expect("write works");
    }
    store.commit().expect("commit works");
    let path = file_of(&store, OBJECT);
    assert_eq!(store.read(OBJECT, 100, 20_000), Ok(data));
    assert!(store.integrity().blocks_checked >= 4, "{:?}", store.integrity());
    drop(store);
    let store = open(&dir);
    assert_eq!(scrub(&store, OBJECT), []);
    flip(&path, 9050);
    assert_eq!(scrub(&store, OBJECT), [Damage::Checksum { offset: 8192 }]);
}

#[test]
fn changes_of_all_kinds_are_no_damage() {
    let dir = common::kept();
    StoreDisk::format(&dir, &FormatOptions::default()).expect("format works");
    let mut numbers = Numbers(11);
    let mut expected = vec![0_u8; 0];
    let mut store = open(&dir);
    create(&store, OBJECT);
    for step in 0..1500 {
        let choice = numbers.next().expect("endless");
        let (place, length) = ((choice >> 8) as usize % 40_000, 1 + (choice >> 32) as usize % 9000);
        match choice % 16 {
            0 => {
                store.truncate(OBJECT, place as u64).expect("truncate works");
                expected.resize(place, 0);
            }
            1 => {
                store.punch(OBJECT, place as u64, length as u64).expect("punch works");
                let end = (place + length).min(expected.len());
                expected[place.min(end)..end].fill(0);
            }
            2 => {
                store.allocate(OBJECT, place as u64, length as u64, false).expect("allocated");
                expected.resize(expected.len().max(place + length), 0);
            }
            3 => drop(store.commit().expect("commit works")),
            4 if choice >> 60 == 0 => {
                drop(store);
                store = open(&dir);
            }
            5 if choice >> 60 == 0 => {
                store.keep_block_checksums(!store.has_block_checksums()).expect("settable");
            }
            6 => drop(scrub(&store, OBJECT)),
            kind => {
                let place = if kind > 12 { expected.len().min(39_000) } else { place / 512 * 512 };
                let data = bytes(length, choice);
                store.write(OBJECT, place as u64, std::slice::from_ref(&data)).expect("written");
                expected.resize(expected.len().max(place + length), 0);
                expected[place..place + length].copy_from_slice(&data);
            }
        }
        let read = store.read(OBJECT, place as u64, length).expect("no damage");
        let end = (place + length).min(expected.len());
        assert_eq!(read, expected[place.min(end)..end], "step {step}");
    }
    assert_eq!(scrub(&store, OBJECT), []);
    let sum = store.read_summed(OBJECT, 0, 20_480).expect("read");
    assert!(sum.1.is_none_or(|recorded| recorded == crc32c::crc32c(&sum.0)));
    assert_eq!(store.integrity().blocks_failed, 0);
}

#[test]
fn what_is_written_without_checksums_is_unknown_until_it_is_scrubbed() {
    let dir = common::kept();
    StoreDisk::format(&dir, &FormatOptions::default()).expect("format works");
    let without = OpenOptions { without_checksums: true, ..Default::default() };
    let store = open_with(&dir, &without);
    create(&store, OBJECT);
    store.write(OBJECT, 0, &[bytes(8192, 1)]).expect("written");
    let path = file_of_uncommitted(&store);
    drop(store);
    flip(&path, 5000);
    let store = open(&dir);
    assert_eq!(store.read(OBJECT, 0, 8192).expect("nothing is known").len(), 8192);
    assert_eq!(scrub(&store, OBJECT), [], "adopted");
    drop(store);
    flip(&path, 5000);
    let store = open_with(&dir, &without);
    assert_eq!(store.read(OBJECT, 0, 8192).expect("no checksum is compared").len(), 8192);
    drop(store);
    let store = open(&dir);
    assert_eq!(damage(store.read(OBJECT, 0, 8192)), Damage::Checksum { offset: 4096 });
}

fn file_of_uncommitted(store: &StoreDisk) -> PathBuf {
    store.commit().expect("commit works");
    file_of(store, OBJECT)
}

/// Writers and readers of the same bytes, which no lock orders: whatever they see, it is no damage.
#[test]
fn concurrent_readers_and_writers_damage_nothing() {
    let (_dir, store, _) = stored(64 << 10);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for (step, number) in Numbers(thread).take(400).enumerate() {
                    let (place, length) = (number % 60_000, 1 + (number >> 32) as usize % 9000);
                    if thread % 2 == 0 {
                        store.write(OBJECT, place, &[bytes(length, number)]).expect("written");
                    } else {
                        store.read(OBJECT, place, length).expect("no damage");
                    }
                    if step % 100 == 99 {
                        store.commit().expect("commit works");
                    }
                }
            });
        }
    });
    assert_eq!(scrub(&store, OBJECT), []);
    assert_eq!(store.integrity().blocks_failed, 0);
}

/// Another boot of the machine: what was not synced proves nothing, what was synced does.
#[test]
fn power_loss_makes_uncertain_what_was_not_synced() {
    let dir = common::kept();
    StoreDisk::format(&dir, &FormatOptions::default()).expect("format works");
    let boot = |name: &str| OpenOptions { machine: Some(name.to_owned()), ..Default::default() };
    let store = open_with(&dir, &boot("first"));
    let (synced, unsynced) = (OBJECT, Fid::new(1, 2));
    create(&store, synced);
    store.write(synced, 0, &[bytes(8192, 1)]).expect("written");
    store.commit().expect("commit works");
    let path = file_of(&store, synced);
    create(&store, unsynced);
    store.write(unsynced, 0, &[bytes(8192, 2)]).expect("written");
    drop(store);
    let store = open_with(&dir, &boot("first"));
    let unsynced_path = file_of(&store, unsynced);
    drop(store);
    flip(&path, 5000);
    flip(&unsynced_path, 5000);
    let store = open_with(&dir, &boot("second"));
    assert_eq!(damage(store.read(synced, 0, 8192)), Damage::Checksum { offset: 4096 });
    assert_eq!(store.read(unsynced, 0, 8192).expect("nothing is certain").len(), 8192);
}

/// A copy of a stopped store is as good as the store.
#[test]
fn a_copy_holds() {
    let (dir, store, data) = stored(2 * MIB);
    drop(store);
    let copy = common::kept().join("copy");
    let status = std::process::Command::new("cp").arg("-a").args([&dir, &copy]).status();
    assert!(status.expect("cp runs").success());
    for machine in [None, Some("elsewhere".to_owned())] {
        let store = open_with(&copy, &OpenOptions { machine, ..Default::default() });
        assert_eq!(store.read(OBJECT, 0, 2 * MIB), Ok(data.clone()));
        assert_eq!(scrub(&store, OBJECT), []);
    }
}

/// Files that no object has are reported.
#[test]
fn files_are_listed_with_their_objects() {
    let (_dir, store, _) = stored(10);
    let stray = file_of(&store, OBJECT).with_file_name("1:77:0.1");
    fs::write(&stray, b"stray").expect("written");
    let files = store.data_files().expect("listed");
    let of = |object| files.iter().filter(|file| file.object == object).count();
    assert_eq!((files.len(), of(Some(OBJECT)), of(None)), (2, 1, 1));
}

#[test]
fn all_objects_with_data_are_reported_and_nothing_else() {
    let (dir, store, _) = stored(100);
    let second = Fid::new(7, 7);
    create(&store, second);
    let mut change = Transaction::new();
    change
        .create(Fid::new(2, 2), Attributes { kind: FileKind::Directory, ..Attributes::default() });
    store.apply(change).expect("create works");
    store.commit().expect("commit works");
    drop(store);
    let store = open(&dir);
    assert_eq!(store.data_objects(None, 10), Ok(vec![OBJECT, second]));
    assert_eq!(store.data_objects(Some(OBJECT), 10), Ok(vec![second]));
    assert_eq!(store.data_objects(Some(second), 10), Ok(Vec::new()));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("copied")),
        }
    }
}

/// A store as a crash leaves it, with a file that no object has; and that file.
fn crashed() -> (PathBuf, PathBuf, Bytes) {
    let (dir, store, data) = stored(100_000);
    let stray = file_of(&store, OBJECT).with_file_name("1:9:0.10000000001");
    let after = common::kept();
    copy(&dir, &after);
    drop(store);
    let stray = after.join(stray.strip_prefix(&dir).expect("within"));
    fs::write(&stray, &data).expect("written");
    (after, stray, data)
}

#[test]
fn data_whose_record_may_be_lost_is_set_aside_and_not_removed() {
    let (dir, stray, _) = crashed();
    drop(open(&dir));
    assert!(!stray.exists() && !dir.join("lost+found").exists(), "a crash left it");

    let (dir, stray, data) = crashed();
    fs::remove_file(dir.join("committed")).expect("the mark is removed");
    let store = open(&dir);
    assert!(!stray.exists());
    let found = dir.join("lost+found").join(stray.file_name().expect("a name"));
    assert_eq!(fs::read(&found).expect("it is kept"), data);

    fs::rename(&found, &stray).expect("put back");
    assert_eq!(store.set_strays_aside(), Ok(1));
    assert_eq!(store.set_strays_aside(), Ok(0));
    assert_eq!(fs::read(&found).expect("it is kept"), data);
    assert_eq!(store.read(OBJECT, 0, data.len()), Ok(data));
}

/// Contents and times of change of all that lies below `dir`.
fn all(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64)> {
    let mut found = BTreeMap::new();
    for path in fs::read_dir(dir).expect("a directory").flatten().map(|entry| entry.path()) {
        let stat = fs::symlink_metadata(&path).expect("it is there");
        if stat.is_dir() {
            found.extend(all(&path));
        } else {
            let bytes = fs::read(&path).expect("it can be read");
            found.insert(path, (bytes, stat.ctime(), stat.ctime_nsec()));
        }
    }
    found
}

#[test]
fn looking_sees_what_opening_would_and_changes_nothing() {
    let (dir, stray, data) = crashed();
    let (before, scratch) = (all(&dir), common::kept().join("scratch"));
    for _ in 0..2 {
        let store = StoreDisk::open_to_look(&dir, &scratch, &OpenOptions::default());
        let store = store.expect("it opens");
        assert_eq!(store.read(OBJECT, 0, data.len()), Ok(data.clone()));
        let files = store.data_files().expect("files are listed");
        assert_eq!(files.len(), 1, "without the one that a crash left: {files:?}");
        assert!(files[0].path.starts_with(&dir), "{files:?}");
        let other = StoreDisk::open(&dir, &OpenOptions::default());
        assert!(other.is_err(), "no other process opens it meanwhile");
        drop(store);
        assert!(!scratch.exists());
    }
    assert!(before == all(&dir), "it was changed");
    drop(open(&dir));
    assert!(before != all(&dir) && !stray.exists(), "opening does what looking leaves");
}

fn append(path: &Path, more: &[u8]) {
    let file = fs::File::options().append(true).open(path);
    std::io::Write::write_all(&mut file.expect("a file"), more).expect("appended");
}

#[test]
fn a_file_that_has_grown_is_found() {
    let (dir, store, data) = stored(10_000);
    let path = file_of(&store, OBJECT);
    drop(store);
    append(&path, b"more");
    let store = open(&dir);
    let long = Damage::Long { expected: 10_000, found: 10_004 };
    assert_eq!(damage(store.read(OBJECT, 0, 10)), long);
    assert_eq!(damage(store.attributes(OBJECT)), long);
    assert_eq!(damage(store.write(OBJECT, 20_000, std::slice::from_ref(&data))), long);
    for _ in 0..2 {
        assert_eq!(
            scrub(&store, OBJECT),
            std::slice::from_ref(&long),
            "and looking makes no data of it"
        );
    }
    assert!(store.integrity().files_failed > 0);
    drop(store);
    assert_eq!(damage(open(&dir).attributes(OBJECT)), long, "it is not forgotten");
}

/// A server closes its stores while tasks of its may hold them still.
#[test]
fn a_store_that_is_closed_changes_no_more_and_has_not_crashed() {
    let (dir, store, data) = stored(10_000);
    store.write(OBJECT, 10_000, std::slice::from_ref(&data)).expect("write works");
    store.close();
    let closed = common::kept();
    copy(&dir, &closed);
    let refused = store.write(OBJECT, 20_000, std::slice::from_ref(&data));
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    let mut change = Transaction::new();
    change.destroy(OBJECT);
    assert!(store.apply(change).is_err());
    assert_eq!(store.read(OBJECT, 10_000, 10_000), Ok(data));
    drop(store);
    let path = file_of(&open(&closed), OBJECT);
    append(&path, b"more");
    // A crash would have let it pass.
    assert_eq!(scrub(&open(&closed), OBJECT), [Damage::Long { expected: 20_000, found: 20_004 }]);
}

/// What grew while the store was open, and what a crash has left, is known as well.
#[test]
fn growth_is_distinguished_from_what_was_written_before_a_crash() {
    let (dir, store, data) = stored(10_000);
    store.write(OBJECT, 10_000, std::slice::from_ref(&data)).expect("write works");
    let killed = common::kept();
    // Of the second write no group has informed the engine.
    copy(&dir, &killed);
    drop(store);
    let store = open(&killed);
    assert_eq!(store.attributes(OBJECT).expect("whole").size, 20_000);
    assert_eq!(scrub(&store, OBJECT), []);
    append(&file_of(&store, OBJECT), b"more");
    let long = Damage::Long { expected: 20_000, found: 20_004 };
    assert_eq!(scrub(&store, OBJECT), std::slice::from_ref(&long), "while it is open");
    drop(store);
    assert_eq!(damage(open(&killed).read(OBJECT, 0, 10)), long);
}

/// Whether the kernel has all these bytes in memory; `None` where it does not say.
fn is_in_memory(path: &Path, length: usize) -> Option<bool> {
    let file = fs::File::open(path).expect("a file");
    let mut buffer = vec![0; length];
    let mut buffers = [std::io::IoSliceMut::new(&mut buffer)];
    let now = rustix::io::ReadWriteFlags::NOWAIT;
    match rustix::io::preadv2(&file, &mut buffers, 0, now) {
        Ok(read) => Some(read == length),
        Err(rustix::io::Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

#[test]
fn advice_brings_bytes_into_memory_and_out_of_it() {
    let (_dir, store, data) = stored(2 * MIB);
    let path = file_of(&store, OBJECT);
    store.sync_data(OBJECT).expect("sync works");
    let advise = |advice| store.advise(OBJECT, 0, u64::MAX >> 1, advice).expect("taken");
    advise(DataAdvice::DontNeed);
    if is_in_memory(&path, data.len()) != Some(false) {
        sheen_skip::skip("the file system keeps bytes in memory, or does not say");
        return;
    }
    store.advise(OBJECT, 0, data.len() as u64, DataAdvice::WillRead).expect("taken");
    let is_there = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        is_in_memory(&path, data.len()) == Some(true)
    });
    assert!(is_there, "not read ahead");
    let absent = Fid::new(1, 99);
    let refused = store.advise(absent, 0, 10, DataAdvice::WillRead);
    assert!(matches!(refused, Err(StoreError::NoObject(_))), "{refused:?}");
}

/// A FIFO, a socket, a directory, a link in place of a file: damage of that object, and nothing waits for it.
#[test]
fn what_is_no_file_in_the_place_of_one_is_damage() {
    let make: [fn(&Path); 4] = [
        |path| {
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.expect("mkfifo").success());
        },
        |path| drop(std::os::unix::net::UnixListener::bind(path).expect("bound")),
        |path| fs::create_dir(path).expect("made"),
        |path| std::os::unix::fs::symlink("/dev/null", path).expect("linked"),
    ];
    let (dir, store, _) = stored(10_000);
    let path = file_of(&store, OBJECT);
    drop(store);
    for make in make {
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).expect("removed");
        make(&path);
        let scratch = common::kept().join("scratch");
        let store = StoreDisk::open_to_look(&dir, &scratch, &OpenOptions::default());
        assert_eq!(scrub(&store.expect("it opens"), OBJECT), [Damage::NoFile]);
        let store = open(&dir);
        assert_eq!(scrub(&store, OBJECT), [Damage::NoFile]);
        assert_eq!(damage(store.attributes(OBJECT)), Damage::NoFile);
        assert_eq!(damage(store.read(OBJECT, 0, 10)), Damage::NoFile);
        assert_eq!(damage(store.write(OBJECT, 0, &[bytes(10, 7)])), Damage::NoFile);
    }
}

#[test]
fn what_looking_finds_names_the_store_and_not_its_copy() {
    let (dir, store, _) = stored(10_000);
    drop(store);
    let scratch = common::kept().join("scratch");
    let said = || {
        let store = StoreDisk::open_to_look(&dir, &scratch, &OpenOptions::default());
        store.err().expect("refused").to_string()
    };
    for (gone, kept) in [("engine/version", "version"), ("engine/0.jnl", "journal")] {
        let (path, aside) = (dir.join(gone), common::kept().join(kept));
        fs::create_dir_all(aside.parent().expect("a parent")).expect("made");
        fs::rename(&path, &aside).expect("renamed");
        let said = said();
        let names_store = said.contains(&*dir.join("engine").to_string_lossy());
        assert!(names_store && !said.contains("scratch"), "{said}");
        fs::rename(&aside, &path).expect("renamed");
    }
}
