//! Read-ahead: a file that is read in order is fetched before it is asked for.
//!
//! The window doubles with each read that goes on where an earlier one ended, up to
//! the file's limit, and closes at the first that does not. The kernel sends several reads of one
//! stream at once and out of order, so "goes on" allows for a little distance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sheen_io::Watched;
use sheen_layout::Place;
use sheen_types::{CounterLine, Counters, Samples, Unit};

use super::file::File;
use super::object::Object;
use super::osc::Shared;

/// Bytes fetched by one read-ahead: a chunk ends at a multiple of it, and begins at one unless it is
/// the first of its stream.
const CHUNK: u64 = 1 << 20;
/// Bytes ahead of a stream at most, unless told otherwise.
const WINDOW_MAX: u64 = 16 << 20;
/// Bytes on their way ahead of all streams of a mount at most, unless told otherwise.
const TOTAL_MAX: u64 = 256 << 20;
/// Bytes of a file that is read whole at its second read in order, unless told otherwise.
const WHOLE_MAX: u64 = 2 << 20;
/// Bytes ahead when a file is first found to be read in order.
const WINDOW_FIRST: u64 = 2 << 20;
/// How far from the expected place a read still belongs to the stream: what the kernel has under
/// way at once.
const SLACK: u64 = 1 << 20;

/// Bytes of a page, in which reads and read-ahead are counted.
const PAGE: u64 = 4096;

const fn pages(name: &'static str) -> CounterLine {
    CounterLine { name, unit: Unit::Pages }
}

/// What is counted, of Lustre's lines those that can be true here.
static LINES: [CounterLine; 7] = [
    pages("hits"),
    pages("misses"),
    pages("readpage_not_consecutive"),
    pages("read_but_discarded"),
    pages("zero_size_window"),
    pages("readahead_to_eof"),
    pages("hit_max_readahead_issue"),
];
const HIT: usize = 0;
const MISS: usize = 1;
const DISTANT: usize = 2;
const DISCARDED: usize = 3;
const ZERO_WINDOW: usize = 4;
const TO_THE_END: usize = 5;
const TOO_MUCH: usize = 6;

/// What a mount reads ahead at most (`max_read_ahead_mb`, `max_read_ahead_per_file_mb`,
/// `max_read_ahead_whole_mb`), and what it counts of it (`read_ahead_stats`).
pub struct Limits {
    total: AtomicU64,
    per_file: AtomicU64,
    whole: AtomicU64,
    /// Bytes on their way now.
    loading: AtomicU64,
    counters: Counters,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total: AtomicU64::new(TOTAL_MAX),
            per_file: AtomicU64::new(WINDOW_MAX),
            whole: AtomicU64::new(WHOLE_MAX),
            loading: AtomicU64::new(0),
            counters: Counters::new(&LINES),
        }
    }
}

impl Limits {
    /// Bytes on their way ahead of all streams together, at most.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// From now on so many bytes together; 0 turns read-ahead off.
    pub fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// Bytes ahead of one stream, at most.
    #[must_use]
    pub fn per_file(&self) -> u64 {
        self.per_file.load(Ordering::Relaxed)
    }

    /// From now on so many bytes ahead of one stream.
    pub fn set_per_file(&self, bytes: u64) {
        self.per_file.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of a file that is read ahead whole as soon as it is read in order, at most.
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.whole.load(Ordering::Relaxed)
    }

    /// From now on files of so many bytes.
    pub fn set_whole(&self, bytes: u64) {
        self.whole.store(bytes, Ordering::Relaxed);
    }

    /// Bytes on their way now.
    #[must_use]
    pub fn loading(&self) -> u64 {
        self.loading.load(Ordering::Relaxed)
    }

    /// What was counted.
    #[must_use]
    pub fn samples(&self) -> Vec<Samples> {
        self.counters.samples()
    }

    /// Counts anew.
    pub fn clear(&self) {
        self.counters.clear();
    }

    /// One more chunk would be too many.
    fn refused(&self) {
        self.counters.add_many(TOO_MUCH, CHUNK / PAGE);
    }

    fn count(&self, read: &Read) {
        let Self { counters, .. } = self;
        counters.add_many(HIT, read.hit.div_ceil(PAGE));
        counters.add_many(MISS, read.missed.div_ceil(PAGE));
        for (line, is_so) in [
            (DISTANT, read.is_distant),
            (ZERO_WINDOW, read.has_no_window),
            (TO_THE_END, read.is_to_the_end),
        ] {
            counters.add_many(line, u64::from(is_so));
        }
    }

    /// Whether one more chunk may be on its way; it is, then, until [`Limits::loaded`].
    fn may_load(&self) -> bool {
        let before = self.loading.fetch_add(CHUNK, Ordering::Relaxed);
        let fits = before + CHUNK <= self.total();
        if !fits {
            self.loaded();
        }
        fits
    }

    fn loaded(&self) {
        self.loading.fetch_sub(CHUNK, Ordering::Relaxed);
    }
}

/// Where a file's stream stands.
#[derive(Clone, Default)]
pub(super) struct Ahead {
    state: Arc<Mutex<State>>,
}

/// How far behind a stream what was fetched ahead is kept for reads that come late.
const BEHIND: u64 = 4 << 20;

/// A chunk to load, by its offset, and whom to tell.
type Load = (u64, Arrival);

/// Whether a chunk on its way has come, or never will.
type Arrived = Arc<Watched<bool>>;

/// Tells, when it is dropped, that a chunk is not on its way any more.
struct Arrival(Arrived);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.change(|arrived| *arrived = true);
    }
}

/// What follows from a read.
#[derive(Default)]
struct Steps {
    /// Chunks to load ahead.
    load: Vec<Load>,
    /// Chunks being loaded that the read needs.
    wait: Vec<Arrived>,
    /// Chunks that nobody came for: whoever reads has their bytes already, or has turned elsewhere.
    drop: Vec<u64>,
    read: Read,
}

/// What there is to count of a read.
#[derive(Default)]
struct Read {
    /// Bytes that had been asked for ahead.
    hit: u64,
    /// Bytes that had not.
    missed: u64,
    /// It did not go on where an earlier one ended.
    is_distant: bool,
    /// Nothing is read ahead of it.
    has_no_window: bool,
    /// The end of the file is read ahead.
    is_to_the_end: bool,
}

/// How far to read ahead.
#[derive(Clone, Copy)]
struct Windows {
    max: u64,
    whole: u64,
}

#[derive(Default)]
struct State {
    /// Where the next read of the stream is expected.
    next: u64,
    window: u64,
    /// Everything before this was asked for, by somebody or ahead.
    reached: u64,
    /// Chunks on their way, by offset.
    loading: BTreeMap<u64, Arrived>,
    /// Chunks that were asked for ahead and may still lie in memory.
    fetched: BTreeSet<u64>,
}

/// Where the chunk that begins at `start` ends.
fn chunk_end(start: u64) -> u64 {
    (start + 1).next_multiple_of(CHUNK)
}

impl Ahead {
    /// The stream ends; answers the chunks that nobody came for.
    fn forget(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.state.lock()).fetched
    }

    /// Notes a read.
    fn note(&self, offset: u64, length: u64, size: u64, windows: Windows) -> Steps {
        let Windows { max: window_max, whole } = windows;
        let end = offset + length;
        let mut state = self.state.lock();
        let is_stream = offset <= state.next + SLACK && offset + SLACK >= state.next;
        if !is_stream {
            (state.window, state.next, state.reached) = (0, end, end);
            let drop = std::mem::take(&mut state.fetched).into_iter().collect();
            let read = Read { missed: length, is_distant: true, ..Read::default() };
            return Steps { drop, read, ..Steps::default() };
        }
        let first = state.next == 0 && offset == 0;
        state.window = match state.window {
            0 if first && length < 16 << 10 => 0,
            0 if size <= whole => size.next_multiple_of(CHUNK).min(window_max),
            0 => WINDOW_FIRST.min(window_max),
            window => (window * 2).min(window_max),
        };
        state.next = state.next.max(end);
        let hit = state.reached.min(end).saturating_sub(offset).min(length);
        let mut from = state.reached.max(end);
        let until = (end + state.window).min(size.next_multiple_of(CHUNK));
        let mut start = Vec::new();
        // What begins at the end is not there.
        while from < until.min(size) {
            let arrived = Arrived::new(Watched::new(false));
            state.loading.insert(from, Arc::clone(&arrived));
            state.fetched.insert(from);
            start.push((from, Arrival(arrived)));
            from = chunk_end(from);
        }
        state.reached = state.reached.max(from).max(end);
        let wait = state.loading.range(offset.saturating_sub(CHUNK - 1)..end);
        let wait = wait.map(|(_, arrived)| Arc::clone(arrived)).collect();
        let kept_from = state.next.saturating_sub(BEHIND + CHUNK);
        let ahead = state.fetched.split_off(&kept_from);
        let behind = std::mem::replace(&mut state.fetched, ahead);
        let read = Read {
            hit,
            missed: length - hit,
            is_distant: false,
            has_no_window: state.window == 0,
            is_to_the_end: !start.is_empty() && from >= size,
        };
        Steps { load: start, wait, drop: behind.into_iter().collect(), read }
    }

    /// Forgets chunks whose load has ended.
    fn forget_loaded(&self) {
        let mut state = self.state.lock();
        state.loading.retain(|_, arrived| !arrived.get());
    }
}

/// A chunk on its way; dropped, it has come, or never will.
struct Loading(Arc<Shared>);

impl Drop for Loading {
    fn drop(&mut self) {
        self.0.ahead.loaded();
    }
}

impl File {
    /// Starts what should be fetched ahead of this read, and waits for what is being fetched of it.
    pub(super) async fn look_ahead(&self, offset: u64, length: u64) {
        // A size that others may have changed does no harm here: what is not fetched ahead is read.
        let size = self.known_size();
        let Some(shared) = self.objects.first().map(|object| Arc::clone(&object.osc.shared)) else {
            return;
        };
        let windows = Windows { max: shared.ahead.per_file(), whole: shared.ahead.whole() };
        let Steps { load, wait, drop, read } = self.ahead.note(offset, length, size, windows);
        shared.ahead.count(&read);
        self.drop_chunks(drop);
        for (chunk, done) in load {
            // A chunk too many is not fetched ahead: whoever waits for it reads it then.
            if shared.ahead.may_load() {
                self.load(chunk, done, &shared);
            } else {
                shared.ahead.refused();
            }
        }
        for arrived in wait {
            // There, or failed: then the read tries itself.
            arrived.until(|arrived| arrived).await;
            self.ahead.forget_loaded();
        }
    }

    /// Nobody reads on: what was fetched ahead goes.
    pub(super) fn forget_ahead(&self) {
        self.drop_chunks(self.ahead.forget());
    }

    fn drop_chunks(&self, chunks: impl IntoIterator<Item = u64>) {
        for chunk in chunks {
            let mut dropped = 0;
            for piece in self.layout.pieces(chunk, chunk_end(chunk) - chunk) {
                let Place::Object(index) = piece.place else { continue };
                let (start, end) = (piece.object_offset, piece.object_offset + piece.length);
                let mut state = self.objects[index].state.lock();
                dropped += state.clean.remove(start, end);
            }
            if let Some(object) = self.objects.first() {
                let counters = &object.osc.shared.ahead.counters;
                counters.add_many(DISCARDED, dropped.div_ceil(PAGE));
            }
        }
    }

    fn load(&self, chunk: u64, done: Arrival, shared: &Arc<Shared>) {
        let pieces = self.layout.pieces(chunk, chunk_end(chunk) - chunk);
        let parts: Vec<(Arc<Object>, u64, u64)> = pieces
            .filter_map(|piece| {
                let Place::Object(index) = piece.place else { return None };
                let object = Arc::clone(&self.objects[index]);
                Some((object, piece.object_offset, piece.object_offset + piece.length))
            })
            .collect();
        let tasks = Arc::clone(&shared.world.tasks);
        let loading = Loading(Arc::clone(shared));
        let state = Arc::clone(&self.ahead.state);
        let seen = self.seen.clone();
        let task = async move {
            let fetches =
                parts.iter().map(|(object, start, end)| object.prefetch(*start, *end, &seen));
            // A failure here shows again when the bytes are asked for.
            let _ = crate::join::all_ok(fetches.collect()).await;
            if !state.lock().fetched.contains(&chunk) {
                // The reader has turned elsewhere meanwhile.
                for (object, start, end) in &parts {
                    object.state.lock().clean.remove(*start, *end);
                }
            }
            drop((done, loading));
        };
        tasks.spawn("read-ahead", Box::pin(task));
    }
}
