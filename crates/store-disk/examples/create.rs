//! CPU of a create-like transaction, and of the reads that surround it.
//!
//!     cargo run --release -p sheen-store-disk --example create [THREADS] [CREATES] [DIR]
//!
//! CPU is that of the whole process (committer and fjall's worker included), after a final commit.

#![allow(clippy::disallowed_methods, reason = "a measurement of real time")]

use std::{path::PathBuf, time::Instant};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use sheen_store::{AttributePatch, Attributes, FileKind, Store, Transaction};
use sheen_store_disk::{FormatOptions, OpenOptions, StoreDisk};
use sheen_types::{Fid, Timestamp};

fn cpu_us() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

fn create(store: &StoreDisk, thread: u32, number: u32) {
    let directory = Fid::new(0x2_0000_0400, thread + 1);
    let object = Fid::new(0x2_0000_0500 + u64::from(thread), number + 1);
    let patch = AttributePatch {
        modified: Some(Timestamp::from_seconds(i64::from(number))),
        version: Some(u64::from(number)),
        ..Default::default()
    };
    let attributes = Attributes { permissions: 0o644, links: 1, ..Default::default() };
    let mut transaction = Transaction::new();
    transaction
        .create(object, attributes)
        .insert(directory, name(number), Bytes::from_static(&[7; 20]))
        .patch(directory, patch)
        .set_xattr(object, "trusted.lov", Bytes::from_static(&[1; 56]))
        .put(
            Fid::new(1, 1),
            Bytes::copy_from_slice(&thread.to_le_bytes()),
            Bytes::from_static(&[3; 88]),
        );
    store.apply(transaction).expect("create works");
}

fn name(number: u32) -> Bytes {
    Bytes::from(format!("file.mdtest.{number:08}"))
}

fn measure(what: &str, threads: u32, count: u32, run: impl Fn(u32, u32) + Sync) {
    let (cpu, start) = (cpu_us(), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let run = &run;
            scope.spawn(move || (0..count / threads).for_each(|number| run(thread, number)));
        }
    });
    let (cpu, wall) = (cpu_us() - cpu, start.elapsed().as_secs_f64());
    let count = f64::from(count);
    println!("{what:24} {:8.2} us CPU each, {:9.0} a second", cpu / count, count / wall);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |default| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (threads, count) = (number(2), number(400_000));
    let dir = arguments.next().map_or_else(
        || std::env::temp_dir().join(format!("sheen-create-{}", std::process::id())),
        PathBuf::from,
    );
    StoreDisk::format(&dir, &FormatOptions::default()).expect("format works");
    let store = StoreDisk::open(&dir, &OpenOptions::default()).expect("open works");
    for thread in 0..threads {
        let mut transaction = Transaction::new();
        let kind = FileKind::Directory;
        transaction
            .create(Fid::new(0x2_0000_0400, thread + 1), Attributes { kind, ..Default::default() });
        store.apply(transaction).expect("create works");
    }
    store.commit().expect("commit works");
    let cpu = cpu_us();
    measure("create", threads, count, |thread, number| create(&store, thread, number));
    let before = Instant::now();
    store.commit().expect("commit works");
    let whole = (cpu_us() - cpu) / f64::from(count);
    println!(
        "create with commits      {whole:8.2} us CPU each; last commit {:?}",
        before.elapsed()
    );
    let of = |thread| Fid::new(0x2_0000_0400, thread + 1);
    measure("lookup, hot", threads, count, |thread, at| {
        assert!(store.lookup(of(thread), &name(at % 1000)).expect("lookup works").is_some());
    });
    measure("lookup, all", threads, count, |thread, at| {
        assert!(store.lookup(of(thread), &name(at)).expect("lookup works").is_some());
    });
    measure("attributes, parent", threads, count, |thread, _| {
        store.attributes(of(thread)).expect("attributes work");
    });
    measure("attributes, file, hot", threads, count, |thread, at| {
        let object = Fid::new(0x2_0000_0500 + u64::from(thread), at % 1000 + 1);
        store.attributes(object).expect("attributes work");
    });
    let page = 1000;
    measure("scan of 1000", threads, count / page, |thread, at| {
        store.scan(of(thread), &name(at * page), page as usize).expect("scan works");
    });
    let cpu = cpu_us();
    measure("create and unlink", threads, count, |thread, at| {
        let at = at + count;
        create(&store, thread, at);
        let object = Fid::new(0x2_0000_0500 + u64::from(thread), at + 1);
        let mut transaction = Transaction::new();
        transaction.destroy(object).delete(of(thread), name(at));
        store.apply(transaction).expect("unlink works");
    });
    store.commit().expect("commit works");
    println!("with commits             {:8.2} us CPU each", (cpu_us() - cpu) / f64::from(count));
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs is there");
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("no VmHWM"));
    drop(store);
    std::fs::remove_dir_all(&dir).expect("the directory can be removed");
}
