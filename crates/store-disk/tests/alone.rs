//! What the store does by itself: groups go down by age and by size.

#![allow(clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use sheen_store::{Store, Transaction};
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
