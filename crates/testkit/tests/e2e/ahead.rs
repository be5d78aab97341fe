//! What reads by several patterns ask of the OSTs, through the kernel's pages.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(240);
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
/// IOR-hard's.
const RECORD: u64 = 47_008;
const RANKS: u64 = 8;
const ROUNDS: u64 = 120;

/// The byte at this place of a file.
fn byte_at(place: u64) -> u8 {
    (place / 7 + place / 4099) as u8 | 1
}

fn bytes_at(places: std::ops::Range<u64>) -> Vec<u8> {
    places.map(byte_at).collect()
}

/// A file of so many bytes on all OSTs, of which the kernel has no page.
fn cold_file(cluster: &Cluster, name: &str, bytes: u64) -> Outcome<PathBuf> {
    let path = cluster.mnt().join(name);
    cluster.must(&["lfs", "setstripe", "-c", "-1", &path.to_string_lossy()])?;
    fs::write(&path, bytes_at(0..bytes)).context("write")?;
    chill(&path)?;
    Ok(path)
}

fn chill(path: &Path) -> Outcome {
    let file = File::open(path).context("open")?;
    file.sync_all().context("fsync")?;
    fadvise(&file, 0, None, Advice::DontNeed).context("fadvise")
}

fn read(file: &File, start: u64, length: u64) -> Outcome {
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, start).context("read")?;
    ensure(bytes == bytes_at(start..start + length), || format!("wrong bytes at {start}"))
}

/// What was asked of something since it was counted anew.
#[derive(Debug)]
struct Counts {
    requests: u64,
    bytes: u64,
    hits: u64,
    misses: u64,
}

impl Counts {
    /// Of what `reads` does.
    fn of(cluster: &Cluster, reads: impl FnOnce() -> Outcome) -> Outcome<Self> {
        let names = ["obdfilter.*.stats", "llite.*.read_ahead_stats"];
        for name in names {
            cluster.must(&["lctl", "set_param", &format!("{name}=clear")])?;
        }
        reads()?;
        let [osts, mount] = names.map(|name| cluster.must(&["lctl", "get_param", "-n", name]));
        let (osts, mount) = (osts?, mount?);
        Ok(Self {
            requests: sum(&osts, "read_bytes", 1),
            bytes: sum(&osts, "read_bytes", 6),
            hits: sum(&mount, "hits", 1),
            misses: sum(&mount, "misses", 1),
        })
    }

    fn are_mostly_hits(&self) -> bool {
        self.hits * 10 >= (self.hits + self.misses) * 9
    }

    /// Whether each of `bytes` was asked for once, but for what the kernel asks for again: pages that it has read ahead and
    /// dropped before the program came to them, as it does with those that seem cold (DAMON) or when memory is short.
    /// What it asks for are hits and misses.
    fn are_fetched_once(&self, bytes: u64) -> bool {
        let again = ((self.hits + self.misses) * PAGE).saturating_sub(bytes);
        // What is missing of a chunk that was fetched ahead is fetched with what lies about it.
        let most = if again == 0 { bytes } else { bytes * 21 / 20 + again };
        (bytes..=most).contains(&self.bytes)
    }
}

/// Field number `field` of all lines of that name.
fn sum(text: &str, name: &str, field: usize) -> u64 {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let named = lines.filter(|words| words.first() == Some(&name));
    named.filter_map(|words| words.get(field)?.parse::<u64>().ok()).sum()
}

/// Each rank reads its records in order, with a handle of its own, at the pace that the machine gives it or, `in_step`,
/// none a record before another one.
fn read_hard(path: &Path, ranks: std::ops::Range<u64>, in_step: bool) -> Outcome {
    let ranks_meet = Barrier::new((ranks.end - ranks.start) as usize);
    let one = |rank: u64| {
        let file = File::open(path).context("open")?;
        ranks_meet.wait();
        // A rank that cannot read goes on meeting the ranks that can, or they would wait for ever.
        let mut outcome = Ok(());
        for round in 0..ROUNDS {
            if in_step {
                ranks_meet.wait();
            }
            if outcome.is_ok() {
                outcome = read(&file, (round * RANKS + rank) * RECORD, RECORD);
            }
        }
        outcome
    };
    let one = &one;
    thread::scope(|scope| {
        let threads: Vec<_> = ranks.map(|rank| scope.spawn(move || one(rank))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a rank panicked")?)
    })
}

#[test]
fn records_of_ranks_that_share_a_file_are_read_ahead() {
    scene("ahead-hard", 2, LIMIT, |cluster| {
        let path = cold_file(cluster, "hard", ROUNDS * RANKS * RECORD)?;
        // A rank that a busy machine lets run far before the other ones fetches its own records alone, a request for
        // each: how many requests there are is a matter of pace, what comes from read-ahead is not.
        for (in_step, requests) in [(false, ROUNDS * RANKS), (true, ROUNDS * RANKS / 4)] {
            let all = Counts::of(cluster, || read_hard(&path, 0..RANKS, in_step))?;
            ensure(all.are_mostly_hits(), || format!("of 8 ranks, in step {in_step}: {all:?}"))?;
            let most = ROUNDS * RANKS * RECORD;
            ensure(all.bytes <= most * 11 / 10, || format!("{most} of 8 ranks: {all:?}"))?;
            ensure(all.requests <= requests, || format!("of 8 ranks, in step {in_step}: {all:?}"))?;
            chill(&path)?;
        }
        let one = Counts::of(cluster, || read_hard(&path, 3..4, false))?;
        ensure(one.are_mostly_hits(), || format!("of one rank: {one:?}"))?;
        let most = ROUNDS * (RECORD + 5 * PAGE);
        ensure(one.bytes <= most, || format!("{most} of one rank: {one:?}"))
    });
}

#[test]
fn reads_at_random_places_ask_for_what_they_read() {
    scene("ahead-random", 2, LIMIT, |cluster| {
        let pages = 16 << 10;
        let path = cold_file(cluster, "random", pages * PAGE)?;
        let (mut state, mut seen) = (88_172_645_463_325_252_u64, std::collections::BTreeSet::new());
        let counts = Counts::of(cluster, || {
            let file = File::open(&path).context("open")?;
            (0..1000).try_for_each(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                seen.insert(state % pages);
                read(&file, state % pages * PAGE, PAGE)
            })
        })?;
        let read = seen.len() as u64;
        ensure(counts.requests * 10 <= read * 11, || format!("{read} pages: {counts:?}"))?;
        ensure(counts.bytes * 10 <= read * PAGE * 11, || format!("{read} pages: {counts:?}"))
    });
}

#[test]
fn reads_forwards_and_backwards_are_fetched_by_large_requests() {
    scene("ahead-in-order", 2, LIMIT, |cluster| {
        let bytes = 24 * MIB;
        let path = cold_file(cluster, "order", bytes)?;
        let blocks = || (0..bytes / (64 << 10)).map(|block| block * (64 << 10));
        let file = File::open(&path).context("open")?;
        let forwards =
            Counts::of(cluster, || blocks().try_for_each(|at| read(&file, at, 64 << 10)))?;
        ensure(forwards.are_mostly_hits() && forwards.are_fetched_once(bytes), || {
            format!("{forwards:?}")
        })?;
        ensure(forwards.requests <= bytes / MIB + 16, || format!("{forwards:?}"))?;
        chill(&path)?;
        let backwards =
            Counts::of(cluster, || blocks().rev().try_for_each(|at| read(&file, at, 64 << 10)))?;
        ensure(backwards.are_mostly_hits() && backwards.are_fetched_once(bytes), || {
            format!("{backwards:?}")
        })?;
        ensure(backwards.requests <= bytes / MIB + 32, || format!("{backwards:?}"))
    });
}
