//! What the store does by itself: groups go down by age and by size.

#![allow(clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use sheen_store::{AttributePatch, Attributes, Store, Transaction};
use sheen_store_disk::{FormatOptions, OpenOptions, StoreDisk};
use sheen_types::Fid;

fn open(options: &OpenOptions) -> StoreDisk {
    let dir = common::kept();
    StoreDisk::format(&dir, &FormatOptions::default()).expect("format works");
    StoreDisk::open(&dir, options).expect("open works")
}

fn put(store: &StoreDisk, key: u32, bytes: usize) {
    let mut transaction = Transaction::new();
    transaction.put(Fid::new(1, 1), key.to_be_bytes().to_vec().into(), vec![7; bytes].into());
    store.apply(transaction).expect("put works");
}

/// Each of several lone transactions is durable soon, without anyone asking.
#[test]
fn groups_go_down_by_age() {
    let store = open(&OpenOptions::default());
    for round in 0..3 {
        put(&store, round, 10);
        let start = Instant::now();
        while store.committed() < store.applied() {
            assert!(start.elapsed() < Duration::from_secs(10), "round {round} was forgotten");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(start.elapsed() > Duration::from_millis(500), "it was left to fill");
        std::thread::sleep(Duration::from_millis(300 * u64::from(round)));
    }
}

/// Many times the memory passes through, and all of it is read back.
#[test]
fn groups_go_down_by_size() {
    const COUNT: u32 = 6000;
    let store = open(&OpenOptions { cache_bytes: 1, ..Default::default() });
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let store = &store;
            scope.spawn(move || (0..COUNT).for_each(|key| put(store, key * 2 + thread, 4000)));
        }
    });
    for key in (0..COUNT * 2).step_by(97) {
        let found = store.lookup(Fid::new(1, 1), &key.to_be_bytes()).expect("lookup works");
        assert_eq!(found, Some(Bytes::from(vec![7; 4000])));
    }
    let all = store.scan(Fid::new(1, 1), b"", usize::MAX).expect("scan works");
    assert_eq!(all.len(), COUNT as usize * 2);
}

/// A change of one attribute writes the whole record, which counts: groups of objects with many extended attributes
/// were as large as what a client could name in a second.
#[test]
fn a_change_counts_with_all_extended_attributes_of_its_object() {
    const OBJECTS: u32 = 96;
    // A group is a quarter of it, 1 MiB.
    let store = open(&OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::default() });
    for number in 0..OBJECTS {
        let mut transaction = Transaction::new();
        transaction.create(Fid::new(2, number), Attributes::default());
        for name in 0..4 {
            transaction.set_xattr(
                Fid::new(2, number),
                &format!("user.{name}"),
                vec![7; 65_536].into(),
            );
        }
        store.apply(transaction).expect("create works");
    }
    store.commit().expect("commit works");
    for number in 0..OBJECTS {
        let mut transaction = Transaction::new();
        let patch = AttributePatch { permissions: Some(0o600), ..AttributePatch::default() };
        transaction.patch(Fid::new(2, number), patch);
        store.apply(transaction).expect("patch works");
    }
    // A group goes down while the next one fills to twice its size, and one of that size may go down before it.
    let waiting = store.applied().0 - store.committed().0;
    assert!(waiting <= 2 * 8 + 2, "{waiting} records of 256 KiB wait in memory");
}
