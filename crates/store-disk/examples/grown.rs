//! What operations of metadata cost once a directory has grown: CPU of each, commits, flushes and merges included.
//!
//!     cargo run --release -p sheen-store-disk --example grown [FILES] [CACHE_MIB] [DIR]
//!
//! Names come in an order that is random to the index, as those of many programs do. Each create looks first for the
//! name, which is absent, as an MDT does. A line for each tenfold, of the last tenth before it.

#![allow(clippy::disallowed_methods, reason = "a measurement of real time")]

use std::{path::PathBuf, time::Instant};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use sheen_store::{AttributePatch, Attributes, FileKind, Store, Transaction};
use sheen_store_disk::{FormatOptions, MEMTABLE_BYTES_OF_MDT, OpenOptions, StoreDisk};
use sheen_types::{Fid, Timestamp};

const DIRECTORY: Fid = Fid::new(0x2_0000_0400, 1);
/// Reads and removals of one line, at most: it is less than was made since the last.
const SAMPLE: u32 = 20_000;

fn cpu_us() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

fn object(number: u32) -> Fid {
    Fid::new(0x2_0000_0500, number + 1)
}

fn name(number: u32) -> Bytes {
    Bytes::from(format!("file.mdtest.{number:08}"))
}

fn create(store: &StoreDisk, number: u32) {
    let name = name(number);
    assert!(store.lookup(DIRECTORY, &name).expect("lookup works").is_none());
    let attributes = Attributes { permissions: 0o644, links: 1, ..Default::default() };
    let patch = AttributePatch {
        modified: Some(Timestamp::from_seconds(i64::from(number))),
        version: Some(u64::from(number)),
        ..Default::default()
    };
    let mut transaction = Transaction::new();
    transaction
        .create(object(number), attributes)
        .insert(DIRECTORY, name, Bytes::from_static(&[7; 20]))
        .patch(DIRECTORY, patch)
        .set_xattr(object(number), "trusted.lov", Bytes::from_static(&[1; 56]))
        .set_xattr(object(number), "trusted.link", Bytes::from_static(&[2; 60]))
        .put(Fid::new(1, 1), Bytes::from_static(b"reply"), Bytes::from_static(&[3; 88]));
    store.apply(transaction).expect("create works");
}

fn unlink(store: &StoreDisk, number: u32) {
    let name = name(number);
    assert!(store.lookup(DIRECTORY, &name).expect("lookup works").is_some());
    let mut transaction = Transaction::new();
    transaction.destroy(object(number)).delete(DIRECTORY, name);
    store.apply(transaction).expect("unlink works");
}

/// Microseconds of CPU of each of `count` calls, with a commit at the end.
fn each(store: &StoreDisk, count: u32, call: impl Fn(u32)) -> f64 {
    let before = cpu_us();
    (0..count).for_each(call);
    store.commit().expect("commit works");
    (cpu_us() - before) / f64::from(count)
}

/// A number below `below`, all over.
fn scattered(at: u32, below: u32) -> u32 {
    (u64::from(at).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32 % below
}

fn line(store: &StoreDisk, made: u32, create_us: f64) {
    let sample = SAMPLE.min(made / 10);
    let absent = each(store, sample, |at| {
        let found = store.lookup(DIRECTORY, &name(made + 1_000_000 + at)).expect("lookup works");
        assert!(found.is_none());
    });
    let there = each(store, sample, |at| {
        let number = scattered(at, made * 9 / 10);
        assert!(store.lookup(DIRECTORY, &name(number)).expect("lookup works").is_some());
    });
    let stat = each(store, sample, |at| {
        store.attributes(object(scattered(at, made * 9 / 10))).expect("attributes work");
    });
    let last = made - sample;
    let removed = each(store, sample, |at| unlink(store, last + at));
    let again = each(store, sample, |at| create(store, last + at));
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs is there");
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    println!(
        "{made:9} {create_us:8.2} {absent:8.2} {there:8.2} {stat:8.2} {removed:8.2} {again:8.2} {:>12}",
        memory.trim()
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |default| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (files, cache_mib) = (number(1_000_000), number(0) as usize);
    let dir = arguments.next().map_or_else(
        || std::env::temp_dir().join(format!("sheen-grown-{}", std::process::id())),
        PathBuf::from,
    );
    let format =
        FormatOptions { memtable_bytes: MEMTABLE_BYTES_OF_MDT, ..FormatOptions::default() };
    StoreDisk::format(&dir, &format).expect("format works");
    let options = OpenOptions { cache_bytes: cache_mib << 20, ..OpenOptions::default() };
    let store = StoreDisk::open(&dir, &options).expect("open works");
    let mut transaction = Transaction::new();
    let kind = FileKind::Directory;
    transaction.create(DIRECTORY, Attributes { kind, ..Default::default() });
    store.apply(transaction).expect("create works");
    println!("    files   create   absent   lookup     stat   unlink    again          RSS");
    let (mut made, mut mark, begun) = (0, 10_000, Instant::now());
    while made < files {
        let until = mark.min(files);
        let first = until - until / 10;
        (made..first).for_each(|number| create(&store, number));
        let create_us = each(&store, until - first, |at| create(&store, first + at));
        line(&store, until, create_us);
        (made, mark) = (until, mark.saturating_mul(10));
    }
    println!("{:.0} s", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    drop(store);
    let store = StoreDisk::open(&dir, &options).expect("open works");
    println!("closed and opened: {:.1} s", begun.elapsed().as_secs_f64());
    drop(store);
    std::fs::remove_dir_all(&dir).expect("the directory can be removed");
}
