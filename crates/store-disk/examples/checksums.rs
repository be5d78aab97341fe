//! What checksums of blocks cost: a stream written and read, with and without them, turn about, and small
//! files made and written. `cargo run --release --example checksums -p sheen-store-disk [DIR]`.

#![allow(clippy::disallowed_methods, reason = "a measurement of real time")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sheen_store::{Attributes, FileKind, Store, Transaction};
use sheen_store_disk::{FormatOptions, OpenOptions, StoreDisk};
use sheen_types::Fid;

const ROUNDS: usize = 9;
const STREAM_MIB: u64 = 128;
const SMALL_FILES: u32 = 4000;
const SMALL_BYTES: usize = 3901;

/// Seconds of one round.
#[derive(Clone, Copy, Default)]
struct Round {
    write: f64,
    again: f64,
    read: f64,
    /// Microseconds of CPU for each small file.
    small: f64,
}

/// CPU of the whole process.
fn cpu() -> Duration {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(clock.tv_sec.unsigned_abs(), clock.tv_nsec.unsigned_abs() as u32)
}

fn create(store: &StoreDisk, object: Fid) {
    let attributes = Attributes { kind: FileKind::Regular, ..Attributes::default() };
    let mut transaction = Transaction::new();
    transaction.create(object, attributes);
    store.apply(transaction).expect("create works");
}

fn stream(store: &StoreDisk, piece: &Bytes) -> f64 {
    let begun = Instant::now();
    for mib in 0..STREAM_MIB {
        store.write(Fid::new(1, 1), mib << 20, std::slice::from_ref(piece)).expect("write works");
    }
    begun.elapsed().as_secs_f64()
}

fn round(dir: &Path, without_checksums: bool) -> Round {
    let options = FormatOptions { reformat: true, ..FormatOptions::default() };
    StoreDisk::format(dir, &options).expect("format works");
    let options = OpenOptions { without_checksums, ..OpenOptions::default() };
    let store = StoreDisk::open(dir, &options).expect("open works");
    let piece = Bytes::from((0..1_u32 << 20).map(|at| (at * 7) as u8).collect::<Vec<_>>());
    create(&store, Fid::new(1, 1));
    let write = stream(&store, &piece);
    let again = stream(&store, &piece);
    let begun = Instant::now();
    for mib in 0..STREAM_MIB {
        store.read_summed(Fid::new(1, 1), mib << 20, 1 << 20).expect("read works");
    }
    let read = begun.elapsed().as_secs_f64();
    let begun = cpu();
    for number in 0..SMALL_FILES {
        let object = Fid::new(2, number);
        create(&store, object);
        store.write(object, 0, &[piece.slice(..SMALL_BYTES)]).expect("write works");
    }
    drop(store);
    let small = (cpu() - begun).as_secs_f64() * 1e6 / f64::from(SMALL_FILES);
    Round { write, again, read, small }
}

fn median(rounds: &[Round], of: fn(&Round) -> f64) -> f64 {
    let mut numbers: Vec<f64> = rounds.iter().map(of).collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let base = given.unwrap_or_else(std::env::temp_dir);
    let dir = base.join(format!("sheen-checksums-{}", std::process::id()));
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(round(&dir, true));
        with.push(round(&dir, false));
    }
    std::fs::remove_dir_all(&dir).expect("the directory can be removed");
    let mib = |seconds: f64| STREAM_MIB as f64 / seconds;
    type Of = fn(&Round) -> f64;
    let rates: [(&str, Of); 3] =
        [("write", |r| r.write), ("write again", |r| r.again), ("read", |r| r.read)];
    for (name, of) in rates {
        let (plain, summed) = (mib(median(&without, of)), mib(median(&with, of)));
        println!("{name}: {plain:.0} MiB/s without, {summed:.0} with: {:.2}", summed / plain);
    }
    let (plain, summed) = (median(&without, |r| r.small), median(&with, |r| r.small));
    println!("small file: {plain:.1} us of CPU without, {summed:.1} with: {:.2}", summed / plain);
    let sum = Instant::now();
    let bytes = vec![1_u8; 64 << 20];
    std::hint::black_box(crc32c::crc32c(&bytes));
    println!("one sum of 64 MiB: {:.0} MiB/s", 64.0 / sum.elapsed().as_secs_f64());
}
