//! Where a file is read in order, and what follows from a read: a decision without any IO.
//!
//! One file may be read at several places at once, by as many programs or ranks. Each read belongs to the
//! stream whose end is nearest to it, or begins one; the stream used longest ago is evicted, those first that
//! never continued. So random reads evict no stream, and two readers of one file do not end each other's.
//!
//! Costs: under one mutex of the file, each read compares at most [`STREAMS_MAX`] places and moves its stream
//! to the end of the list; nothing is allocated but for chunks that begin to load.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sheen_io::Watched;

/// Bytes fetched by one read-ahead: a chunk ends at a multiple of it, and begins at one unless it is
/// the first of its stream.
pub(super) const CHUNK: u64 = 1 << 20;
/// Bytes ahead when a file is first found to be read in order.
const WINDOW_FIRST: u64 = 2 << 20;
/// How far from the expected place a read still belongs to a stream: what the kernel has under way
/// at once.
const SLACK: u64 = 1 << 20;
/// How far behind a stream what was fetched ahead is kept for reads that come late.
const BEHIND: u64 = 4 << 20;
/// Places of one file that are read in order at once, at most.
const STREAMS_MAX: usize = 16;

/// A chunk to load, by its offset, and what signals its arrival.
pub(super) type Load = (u64, Arrival);

/// Whether a chunk on its way has come, or never will.
pub(super) type Arrived = Arc<Watched<bool>>;

/// Signals, when it is dropped, that a chunk is not on its way any more.
pub(super) struct Arrival(Arrived);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.change(|arrived| *arrived = true);
    }
}

/// What follows from a read.
#[derive(Default)]
pub(super) struct ReadPlan {
    /// Chunks to load ahead.
    pub(super) load: Vec<Load>,
    /// Chunks being loaded that the read needs.
    pub(super) wait: Vec<Arrived>,
    /// Chunks that no read asked for: the reader has their bytes already, or reads elsewhere now.
    pub(super) drop: Vec<u64>,
    pub(super) read: ReadSample,
}

/// What there is to count of a read.
#[derive(Default)]
pub(super) struct ReadSample {
    /// Bytes that had been asked for ahead.
    pub(super) hit: u64,
    /// Bytes that had not.
    pub(super) missed: u64,
    /// It did not go on where an earlier one ended.
    pub(super) is_distant: bool,
    /// Nothing is read ahead of it.
    pub(super) has_no_window: bool,
    /// The end of the file is read ahead.
    pub(super) is_to_the_end: bool,
}

/// How far to read ahead.
#[derive(Clone, Copy)]
pub(super) struct WindowLimits {
    pub(super) max: u64,
    pub(super) whole: u64,
}

/// The streams of a file.
#[derive(Default)]
pub(super) struct Streams {
    /// The one used last is the last.
    streams: Vec<Stream>,
    /// Chunks on their way, by offset.
    loading: BTreeMap<u64, Arrived>,
}

#[derive(Default)]
struct Stream {
    /// Its first read.
    began: u64,
    /// Where its next read is expected.
    next: u64,
    window: u64,
    /// Everything before this was asked for, by a read or ahead.
    reached: u64,
    /// Chunks that were asked for ahead and may still lie in memory.
    fetched: BTreeSet<u64>,
}

/// Where the chunk that begins at `start` ends.
pub(super) fn chunk_end(start: u64) -> u64 {
    (start + 1).next_multiple_of(CHUNK)
}

impl Streams {
    /// All streams end; returns the chunks that no read asked for.
    pub(super) fn forget(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.streams).into_iter().flat_map(|stream| stream.fetched).collect()
    }

    /// Whether a chunk may still be of use.
    pub(super) fn want(&self, chunk: u64) -> bool {
        self.streams.iter().any(|stream| stream.fetched.contains(&chunk))
    }

    /// Notes a read.
    pub(super) fn note(
        &mut self,
        offset: u64,
        length: u64,
        size: u64,
        windows: WindowLimits,
    ) -> ReadPlan {
        let end = offset + length;
        let Some(at) = self.stream_of(offset) else {
            let drop = self.begin(offset, end);
            let read = ReadSample { missed: length, is_distant: true, ..ReadSample::default() };
            return ReadPlan { drop, read, ..ReadPlan::default() };
        };
        let mut stream = self.streams.remove(at);
        stream.widen(offset, length, size, windows);
        stream.next = stream.next.max(end);
        let hit = stream.reached.min(end).saturating_sub(offset).min(length);
        let mut from = stream.reached.max(end);
        let until =
            (end + stream.window).min(size.next_multiple_of(CHUNK)).min(self.next_began(end));
        let mut load = Vec::new();
        // What begins at the end is not there.
        while from < until.min(size) {
            stream.fetched.insert(from);
            // Another stream may have it coming.
            if self.loading.get(&from).is_none_or(|arrived| arrived.get()) {
                let arrived = Arrived::new(Watched::new(false));
                self.loading.insert(from, Arc::clone(&arrived));
                load.push((from, Arrival(arrived)));
            }
            from = chunk_end(from);
        }
        stream.reached = stream.reached.max(from).max(end);
        let wait = self.loading.range(offset.saturating_sub(CHUNK - 1)..end);
        let wait = wait.map(|(_, arrived)| Arc::clone(arrived)).collect();
        let ahead = stream.fetched.split_off(&stream.next.saturating_sub(BEHIND + CHUNK));
        let behind = std::mem::replace(&mut stream.fetched, ahead);
        let read = ReadSample {
            hit,
            missed: length - hit,
            is_distant: false,
            has_no_window: stream.window == 0,
            is_to_the_end: !load.is_empty() && from >= size,
        };
        self.streams.push(stream);
        ReadPlan { load, wait, drop: self.unwanted(behind), read }
    }

    /// The stream that goes on at `offset`, or a little beside it.
    fn stream_of(&mut self, offset: u64) -> Option<usize> {
        if self.streams.is_empty() {
            // One that begins a little behind the beginning.
            self.streams.push(Stream::default());
        }
        let distances = self.streams.iter().map(|stream| stream.next.abs_diff(offset)).enumerate();
        let nearest = distances.min_by_key(|(_, distance)| *distance);
        nearest.filter(|(_, distance)| *distance <= SLACK).map(|(at, _)| at)
    }

    /// Where the next stream behind `end` began: the stream before it most likely ends there, since each
    /// reader has a part of the file.
    fn next_began(&self, end: u64) -> u64 {
        let behind = self.streams.iter().filter(|other| other.window > 0 && other.began >= end);
        behind.map(|other| other.began).min().unwrap_or(u64::MAX)
    }

    /// A read that goes on nowhere may be the first of a stream. Returns what no read will ask for any more.
    fn begin(&mut self, began: u64, end: u64) -> Vec<u64> {
        let mut gone = BTreeSet::new();
        if self.streams.len() >= STREAMS_MAX {
            let still = self.streams.iter().position(|stream| stream.window == 0);
            gone = self.streams.remove(still.unwrap_or(0)).fetched;
        }
        self.streams.push(Stream { began, next: end, reached: end, ..Stream::default() });
        self.unwanted(gone)
    }

    /// Those of the chunks that no stream wants.
    fn unwanted(&self, chunks: BTreeSet<u64>) -> Vec<u64> {
        chunks.into_iter().filter(|chunk| !self.want(*chunk)).collect()
    }

    /// Forgets chunks whose load has ended.
    pub(super) fn forget_loaded(&mut self) {
        self.loading.retain(|_, arrived| !arrived.get());
    }
}

impl Stream {
    fn widen(&mut self, offset: u64, length: u64, size: u64, windows: WindowLimits) {
        let WindowLimits { max, whole } = windows;
        let first = self.next == 0 && offset == 0;
        self.window = match self.window {
            0 if first && length < 16 << 10 => 0,
            0 if size <= whole => size.next_multiple_of(CHUNK).min(max),
            0 => WINDOW_FIRST.min(max),
            window => (window * 2).min(max),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const WINDOWS: WindowLimits = WindowLimits { max: 16 * MIB, whole: 2 * MIB };

    /// Reads a MiB; what is fetched then, and dropped. All of it comes at once.
    fn read(streams: &mut Streams, at: u64) -> (Vec<u64>, Vec<u64>, ReadSample) {
        let ReadPlan { load, drop, read, .. } = streams.note(at * MIB, MIB, 1 << 40, WINDOWS);
        let fetched = load.into_iter().map(|(chunk, _)| chunk / MIB).collect();
        streams.forget_loaded();
        (fetched, drop.into_iter().map(|chunk| chunk / MIB).collect(), read)
    }

    #[test]
    fn readers_at_several_places_are_streams_of_their_own() {
        let mut streams = Streams::default();
        let places = [0, 1000, 2000];
        let mut fetched: [BTreeSet<u64>; 3] = Default::default();
        for round in 0..50 {
            for (fetched, place) in fetched.iter_mut().zip(places) {
                let (new, dropped, seen) = read(&mut streams, place + round);
                for chunk in new {
                    assert!(fetched.insert(chunk), "{chunk} is fetched twice");
                }
                assert!(dropped.iter().all(|chunk| chunk + 5 <= place + round), "{dropped:?}");
                assert!(round < 2 || seen.hit == MIB, "{place} in round {round}");
            }
        }
    }

    #[test]
    fn a_stream_ends_where_another_one_began() {
        let mut streams = Streams::default();
        for place in [8, 0] {
            read(&mut streams, place);
            read(&mut streams, place + 1);
        }
        let fetched: Vec<u64> = (2..8).flat_map(|at| read(&mut streams, at).0).collect();
        assert_eq!(fetched, [6, 7]);
        // Unless its reader goes on.
        assert!(!read(&mut streams, 8).0.is_empty());
    }

    #[test]
    fn reads_anywhere_end_no_stream() {
        let mut streams = Streams::default();
        let mut missed = 0;
        for round in 0..50 {
            let (_, _, seen) = read(&mut streams, round);
            missed += u64::from(round > 1 && seen.missed > 0);
            for other in 0..20 {
                let (fetched, dropped, seen) =
                    read(&mut streams, 10_000 + (round * 20 + other) * 7);
                assert!(fetched.is_empty() && dropped.is_empty() && seen.is_distant);
            }
        }
        assert_eq!(missed, 0);
    }

    #[test]
    fn the_stream_used_longest_ago_makes_room() {
        let mut streams = Streams::default();
        for stream in 0..=STREAMS_MAX as u64 {
            read(&mut streams, stream * 1000);
            let (_, dropped, _) = read(&mut streams, stream * 1000 + 1);
            assert!(dropped.is_empty());
            assert_eq!(streams.streams.len() as u64, (stream + 1).min(STREAMS_MAX as u64));
        }
        let (fetched, _, seen) = read(&mut streams, 2);
        assert!(fetched.is_empty() && seen.is_distant, "the first one is gone");
    }
}
