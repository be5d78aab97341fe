//! What is fetched ahead of which reads.

use sheen_types::PAGE_BYTES as PAGE;

use super::limits::Limits;
use super::span::Span;
use super::streams::{ReadPlan, ReadSample, Streams};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Reads of one file, what is loaded ahead of which comes at once.
struct Bench {
    streams: Streams,
    limits: Limits,
    size: u64,
    /// Bytes that were read or fetched, each once unless something is wrong.
    had: Vec<Span>,
    fetched: u64,
    loads: u64,
    /// Bytes that were found, and that had to be asked for.
    hit: u64,
    missed: u64,
    dropped: Vec<Span>,
}

impl Bench {
    fn new(size: u64) -> Self {
        let (streams, limits) = (Streams::default(), Limits::default());
        let (had, dropped) = (Vec::new(), Vec::new());
        Self { streams, limits, size, had, fetched: 0, loads: 0, hit: 0, missed: 0, dropped }
    }

    fn read(&mut self, start: u64, length: u64) -> (Vec<Span>, ReadSample) {
        let read = Span::new(start, start + length);
        let plan = self.streams.note(read, self.size, &self.limits);
        let found: u64 = self.had.iter().map(|had| had.overlap(read)).sum();
        self.hit += found;
        self.missed += length - found;
        let ReadPlan { load, drop, sample, wait } = plan;
        assert!(wait.is_empty(), "all has come");
        self.dropped.extend(drop);
        let mut loads = Vec::new();
        for (range, arrival) in load {
            let twice = self.had.iter().find(|had| had.overlap(range) > 0);
            assert!(twice.is_none(), "{range:?} is fetched twice: {twice:?}");
            assert_eq!(range.overlap(read), 0, "{range:?} is being read");
            assert!(self.streams.arrived(range));
            self.limits.loaded(range.len());
            std::mem::drop(arrival);
            self.had.push(range);
            self.fetched += range.len();
            self.loads += 1;
            loads.push(range);
        }
        (loads, sample)
    }

    /// The pages of a record that is read.
    fn record(&mut self, number: u64) {
        let (start, end) = (number * RECORD, (number + 1) * RECORD);
        let start = start / PAGE * PAGE;
        self.read(start, end.next_multiple_of(PAGE) - start);
    }
}

/// IOR-hard's.
const RECORD: u64 = 47_008;

/// Numbers that look random.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    let mut state = 88_172_645_463_325_252_u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

#[test]
fn reads_at_random_places_fetch_what_they_read() {
    for (size, length) in [(256 * MIB, 4 * KIB), (64 * MIB, 4 * KIB), (1024 * MIB, 64 * KIB)] {
        let mut bench = Bench::new(size);
        let mut seen = std::collections::BTreeSet::new();
        for number in scattered(4000) {
            let place = number % (size / length);
            if seen.insert(place) {
                bench.read(place * length, length);
            }
        }
        let read = seen.len() as u64;
        assert!(bench.fetched * 10 <= read * length, "{} ahead of {size}", bench.fetched);
        assert!(bench.loads * 10 <= read, "{} requests more than {read}", bench.loads);
    }
}

#[test]
fn a_file_is_believed_to_be_read_in_order_when_three_reads_are_or_two_at_its_beginning() {
    let mut bench = Bench::new(64 * MIB);
    assert_eq!(bench.read(0, 64 * KIB).0, []);
    assert_eq!(bench.read(64 * KIB, 64 * KIB).0, [Span::new(128 * KIB, 384 * KIB)]);
    let place = 32 * MIB;
    let (loads, sample) = bench.read(place, 64 * KIB);
    assert!(loads.is_empty() && sample.is_distant && sample.has_no_window);
    assert_eq!(bench.read(place + 64 * KIB, 64 * KIB).0, []);
    let (loads, sample) = bench.read(place + 128 * KIB, 64 * KIB);
    assert_eq!(loads, [Span::new(place + 192 * KIB, place + 576 * KIB)]);
    assert!(!sample.is_distant && !sample.has_no_window);
    // A large first read is that of a kernel that reads ahead already.
    let mut bench = Bench::new(64 * MIB);
    assert_eq!(bench.read(0, MIB).0, [Span::new(MIB, 2 * MIB), Span::new(2 * MIB, 3 * MIB)]);
}

#[test]
fn the_window_grows_with_what_was_read_up_to_the_limit() {
    let mut bench = Bench::new(256 * MIB);
    let mut far = 0;
    for at in 0..100 {
        bench.read(at * MIB, MIB);
        far = bench.had.iter().map(|had| had.end).max().unwrap_or(0);
        let window = (2 * (at + 1)).min(16);
        assert_eq!(far, (at + 1 + window) * MIB, "at {at}");
    }
    assert_eq!((bench.missed, bench.hit), (MIB, 99 * MIB));
    assert_eq!(far, 116 * MIB);
}

#[test]
fn readers_at_several_places_are_streams_of_their_own() {
    let mut bench = Bench::new(4096 * MIB);
    for round in 0..50 {
        for place in [0, 1000, 2000] {
            bench.read((place + round) * MIB, MIB);
        }
    }
    assert_eq!(bench.missed, (1 + 3 + 3) * MIB);
    assert_eq!(bench.dropped, []);
}

#[test]
fn a_stream_ends_where_another_one_began() {
    let mut bench = Bench::new(4096 * MIB);
    for place in [8, 0] {
        (place..place + 3).for_each(|at| drop(bench.read(at * MIB, MIB)));
    }
    for at in 3..8 {
        bench.read(at * MIB, MIB);
    }
    assert_eq!(bench.had.iter().filter(|had| had.start < 8 * MIB).count(), 7);
    assert!(bench.had.iter().all(|had| had.start < 8 * MIB || had.start >= 11 * MIB));
}

#[test]
fn reads_anywhere_end_no_stream() {
    let mut bench = Bench::new(1 << 40);
    let mut other = scattered(1000);
    for round in 0..50 {
        bench.read(round * MIB, MIB);
        for place in other.by_ref().take(20) {
            let (loads, sample) = bench.read((1 << 30) + place % (1 << 27) * 4 * KIB, 4 * KIB);
            assert!(loads.is_empty() && sample.is_distant);
        }
    }
    assert_eq!(bench.missed, MIB + 1000 * 4 * KIB);
}

#[test]
fn the_stream_used_longest_ago_makes_room() {
    let mut bench = Bench::new(1 << 60);
    for stream in 0..=32 {
        (0..3).for_each(|at| drop(bench.read(((64 << stream) + at) * MIB, MIB)));
    }
    assert_eq!(bench.dropped.iter().map(|dropped| dropped.start).min(), Some(67 * MIB));
    let (loads, sample) = bench.read(67 * MIB, MIB);
    assert!(loads.is_empty() && sample.is_distant, "the first one is gone");
}

#[test]
fn strides_are_fetched_and_not_what_lies_between_them() {
    for (record, stride) in [(4 * KIB, 64 * KIB), (64 * KIB, 512 * KIB), (MIB, 16 * MIB)] {
        let mut bench = Bench::new(400 * stride);
        for number in 0..200 {
            bench.read(100 * KIB / PAGE * PAGE + number * stride, record);
        }
        assert_eq!(bench.missed, 4 * record, "of {record} in {stride}");
        assert!(bench.fetched <= (196 + 256) * record);
    }
}

#[test]
fn records_of_any_length_in_strides_are_fetched() {
    for ranks in [2, 3, 8, 100] {
        let mut bench = Bench::new(264 * ranks * RECORD);
        for number in 0..200 {
            bench.record(number * ranks + 1);
        }
        let read = bench.hit + bench.missed;
        assert!(bench.hit * 10 >= read * 9, "{} of {read} by 1 of {ranks}", bench.hit);
        let most = (196 + 64) * (RECORD + 4 * PAGE);
        assert!(bench.fetched < most, "{} of {read} by 1 of {ranks}", bench.fetched);
    }
}

#[test]
fn records_that_are_several_reads_are_strides() {
    let mut bench = Bench::new(4096 * MIB);
    for number in 0..100 {
        for part in 0..8 {
            bench.read((number * 32 + 1) * MIB + part * 512 * KIB, 512 * KIB);
        }
    }
    let (record, read) = (4 * MIB, 400 * MIB);
    assert_eq!(bench.missed, 2 * 3 * 512 * KIB + 512 * KIB);
    // Behind each of the first two records as much again as was read of it twice.
    assert!(bench.fetched < read + 4 * 2 * record, "{} for {read}", bench.fetched);
}

#[test]
fn strides_of_several_readers_are_streams_of_their_own() {
    let mut bench = Bench::new(1 << 40);
    for number in 0..100 {
        for reader in 0..8 {
            bench.read((1 << (30 + reader)) + number * (3 * MIB + reader * 64 * KIB), 64 * KIB);
        }
    }
    assert_eq!(bench.missed, 8 * 4 * 64 * KIB);
}

#[test]
fn backwards_is_a_stride_too_and_fetched_by_large_requests() {
    let mut bench = Bench::new(64 * MIB);
    for number in (0..1024).rev() {
        bench.read(number * 64 * KIB, 64 * KIB);
    }
    assert_eq!(bench.missed, 4 * 64 * KIB);
    assert_eq!(bench.hit, 1020 * 64 * KIB);
    assert!(bench.loads < 100, "{}", bench.loads);
}

#[test]
fn readers_of_a_part_together_are_followed_in_whatever_order() {
    let mut bench = Bench::new(64 * MIB);
    let mut order = scattered(10_000);
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..100 {
        let mut ranks: Vec<u64> = (0..8).collect();
        ranks.sort_by_key(|_| order.next());
        for rank in ranks {
            // The kernel asks for each page once.
            let (start, end) = ((round * 8 + rank) * RECORD, (round * 8 + rank + 1) * RECORD);
            let pages = start / PAGE..end.div_ceil(PAGE);
            let new: Vec<u64> = pages.filter(|page| seen.insert(*page)).collect();
            let (Some(first), Some(last)) = (new.first(), new.last()) else { continue };
            bench.read(first * PAGE, (last + 1 - first) * PAGE);
        }
    }
    let read = bench.hit + bench.missed;
    assert!(bench.hit * 20 >= read * 19, "{} of {read}", bench.hit);
    let most = read * 21 / 20 + 16 * MIB;
    assert!(bench.fetched + bench.missed < most, "{} + {}", bench.fetched, bench.missed);
    assert!(bench.loads < 150, "{} requests", bench.loads);
}

#[test]
fn what_is_asked_for_twice_at_once_is_fetched_once() {
    let mut streams = Streams::default();
    let limits = Limits::default();
    let mut note =
        |start: u64| streams.note(Span::new(start * MIB, (start + 1) * MIB), 1 << 30, &limits);
    // The kernel's second request overtakes the first.
    assert!(note(100).load.is_empty());
    assert!(note(102).load.is_empty());
    let plan = note(101);
    let fetched: Vec<Span> = plan.load.iter().map(|(range, _)| *range).collect();
    assert_eq!(fetched.first().map(|range| range.start), Some(103 * MIB), "{fetched:?}");
    // What is on its way is waited for.
    assert_eq!(note(103).wait.len(), 1);
}

#[test]
fn what_the_kernel_has_dropped_is_fetched_ahead_once_more() {
    let mut bench = Bench::new(16 * MIB);
    for _ in 0..3 {
        (0..256).for_each(|at| drop(bench.read(at * 64 * KIB, 64 * KIB)));
        assert!(bench.missed <= 4 * 64 * KIB, "{}", bench.missed);
        // Nothing is left of it, neither here nor there.
        bench.had.clear();
        bench.missed = 0;
    }
}

#[test]
fn streams_that_were_not_used_for_long_are_no_trap_for_reads_at_random_places() {
    let mut bench = Bench::new(256 * MIB);
    for stream in 0..16 {
        (0..4 * 16).for_each(|at| drop(bench.read(stream * 16 * MIB + at * 64 * KIB, 64 * KIB)));
    }
    let (fetched, mut seen) = (bench.fetched, std::collections::BTreeSet::new());
    for number in scattered(4000) {
        if seen.insert(number % (256 * MIB / PAGE)) {
            bench.read(number % (256 * MIB / PAGE) * PAGE, PAGE);
        }
    }
    let more = bench.fetched - fetched;
    // One of the streams may have taken a read before it was stale.
    assert!(more <= seen.len() as u64 * PAGE / 10 + 4 * MIB, "{more} ahead");
}

#[test]
fn a_small_file_is_fetched_whole_when_its_second_read_goes_on() {
    let mut bench = Bench::new(MIB);
    assert_eq!(bench.read(0, 16 * KIB).0, [], "as the kernel does for a program that reads a page");
    assert_eq!(bench.read(16 * KIB, 32 * KIB).0, [Span::new(48 * KIB, MIB)]);
    let mut bench = Bench::new(MIB);
    assert_eq!(bench.read(0, 256 * KIB).0, [Span::new(256 * KIB, MIB)]);
}

#[test]
fn a_file_that_is_read_at_once_costs_nothing() {
    let mut streams = Streams::default();
    let plan = streams.note(Span::new(0, 5000), 5000, &Limits::default());
    assert!(plan.load.is_empty() && !plan.sample.is_distant);
    let first = streams.note(Span::new(0, 4096), 5000, &Limits::default());
    assert!(first.load.is_empty(), "and has left nothing behind");
}
