//! Which reads of a file belong together, and what is fetched ahead of them: decisions without any IO.
//!
//! One file may be read at several places at once, by as many programs or ranks. A read belongs to the stream ahead of
//! which it was asked for, or to one that expects it; else it may begin one with earlier reads
//! ([`scattered`](super::scattered)). A stream is believed when its reads have gone on twice, from the beginning of the
//! file on once; strides, which random reads show more often, when there are four reads. Only then anything is fetched
//! ahead: twice as much as was read of it so far, up to the limit of a file.
//!
//! The stream used longest ago makes room for a new one, of those that are not believed if there are any. So random
//! reads evict no stream, and two readers of one file do not end each other's.
//!
//! What holds: no byte is asked for ahead that was asked for already or that the kernel has by what was read lately
//! ([`recent`](super::recent)).
//!
//! Costs, under one mutex of the file: each read is compared with at most [`STREAMS_MAX`] streams and as many ranges that
//! were read lately, and with the latest scattered reads if it is of no stream. Nothing is allocated once the lists are
//! full, but for what begins to load; and nothing at all for a file that is read whole by one read.

use super::fetched::{Arrival, Arrived, Fetched};
use super::limits::Limits;
use super::recent::Recent;
use super::scattered::Scattered;
use super::span::Span;
use super::stream::{AccessPattern, BEHIND, CHUNK, SequentialReads, Stream, StridedReads};

use sheen_types::PAGE_BYTES as PAGE;

/// Streams of one file at most.
const STREAMS_MAX: usize = 32;
/// Other reads of the file after which a stream that was not used takes only what was asked for ahead of it: reads at
/// random places come by each stream in the end.
const STALE: u64 = 64;
/// Reads of one stream that are asked for ahead at most: each may be a request.
const STRIDES_MAX: u64 = 256;
/// Bytes between two reads for which it is not worth to ask twice.
const BRIDGE: u64 = 4 * PAGE;
/// Streams among which one is looked for whose records are several reads each.
const RUNS_MAX: usize = 8;

/// What follows from a read.
#[derive(Default)]
pub(super) struct ReadPlan {
    /// What to load ahead, and what signals its arrival.
    pub(super) load: Vec<(Span, Arrival)>,
    /// What is being loaded that the read needs.
    pub(super) wait: Vec<Arrived>,
    /// What no read asked for: the reader has its bytes already, or reads elsewhere now.
    pub(super) drop: Vec<Span>,
    pub(super) sample: ReadSample,
}

/// What there is to count of a read.
#[derive(Clone, Copy, Default)]
pub(super) struct ReadSample {
    /// It did not go on where an earlier one ended.
    pub(super) is_distant: bool,
    /// Nothing is read ahead of it.
    pub(super) has_no_window: bool,
    /// The end of the file is read ahead.
    pub(super) is_to_the_end: bool,
}

/// The streams of a file.
#[derive(Default)]
pub(super) struct Streams {
    /// The one used last is the last.
    streams: Vec<Stream>,
    scattered: Scattered,
    fetched: Fetched,
    recent: Recent,
    /// How many streams there were.
    numbered: u32,
    /// How many reads there were.
    reads: u64,
}

impl Streams {
    /// All streams end; returns what no read asked for.
    pub(super) fn forget(&mut self) -> Vec<Span> {
        self.streams.clear();
        self.scattered.clear();
        self.recent.clear();
        self.fetched.clear()
    }

    /// The load of `range` has ended; whether a read may still want it.
    pub(super) fn arrived(&mut self, range: Span) -> bool {
        self.fetched.arrived(range)
    }

    /// Takes note of a read of a file of `size` bytes.
    pub(super) fn note(&mut self, read: Span, size: u64, limits: &Limits) -> ReadPlan {
        let mut plan = ReadPlan::default();
        if self.is_all_of_it(read, size) {
            return plan;
        }
        let until = self.recent.note(read);
        self.reads += 1;
        let mostly_read = self.scattered.mostly_read(read);
        let hit = self.fetched.read(read, &mut plan.wait);
        let found = self.stream_of(read, hit);
        let is_in_order = found.is_some_and(|at| self.streams[at].is_in_order());
        if let Some(piece) = mostly_read {
            self.scattered.follow_piece(piece.start);
        }
        let found = match (mostly_read.filter(|_| !is_in_order), found) {
            (Some(piece), _) => Some(self.follow_together(piece, &mut plan)),
            (None, Some(at)) => {
                self.streams[at].advance(read, until);
                Some(at)
            }
            // What was asked for ahead says nothing new.
            (None, None) if hit.is_some() => return plan,
            (None, None) => self.begin(read, until, size <= limits.whole(), &mut plan),
        };
        let Some(stream) = found.and_then(|at| self.use_last(at)) else {
            let is_distant = found.is_none();
            plan.sample = ReadSample { is_distant, has_no_window: true, is_to_the_end: false };
            return plan;
        };
        self.extend(stream, size, limits, &mut plan);
        plan
    }

    /// Whether there is nothing ahead of the first read of a file.
    fn is_all_of_it(&self, read: Span, size: u64) -> bool {
        let is_first = self.streams.is_empty() && self.scattered.is_empty();
        is_first && read.start == 0 && read.end >= size && size > 0
    }

    fn stream_of(&self, read: Span, hit: Option<u32>) -> Option<usize> {
        let is_hit = |stream: &Stream| Some(stream.id) == hit;
        let owner = self.streams.iter().rposition(is_hit);
        let owner = owner.filter(|at| self.streams[*at].takes(read, true));
        let takes = |stream: &Stream| stream.takes(read, false) && !self.is_stale(stream);
        owner.or_else(|| self.streams.iter().rposition(takes))
    }

    /// Most of `piece` was read, in whatever order, and little behind it: one stream goes on there. It has what other
    /// streams asked for about there.
    fn follow_together(&mut self, piece: Span, plan: &mut ReadPlan) -> usize {
        let id = self.next_id();
        let about = Span::new(piece.start.saturating_sub(BEHIND), piece.end.saturating_add(BEHIND));
        let fetched = &mut self.fetched;
        self.streams.retain(|stream| {
            let is_of_them = about.overlap(stream.last()) > 0;
            if is_of_them {
                fetched.give(stream.id, id);
            }
            !is_of_them
        });
        self.add(Stream::of_piece(id, piece), plan)
    }

    /// A read that no stream takes may be the first of one, or show with earlier ones that there is one.
    fn begin(
        &mut self,
        read: Span,
        until: u64,
        is_small: bool,
        plan: &mut ReadPlan,
    ) -> Option<usize> {
        let Some(mut stream) = self.begun(read, is_small) else {
            self.scattered.note(read);
            return None;
        };
        stream.go_on(until);
        Some(self.add(stream, plan))
    }

    fn add(&mut self, stream: Stream, plan: &mut ReadPlan) -> usize {
        if self.streams.len() >= STREAMS_MAX {
            let unsure = self.streams.iter().position(|stream| !stream.is_believed);
            let gone = self.streams.remove(unsure.unwrap_or(0));
            plan.drop = self.fetched.drop_of(gone.id, Span::ALL);
        }
        self.streams.push(stream);
        self.streams.len() - 1
    }

    fn begun(&mut self, read: Span, is_small: bool) -> Option<Stream> {
        let id = self.next_id();
        if let Some(before) = self.scattered.take_continued(read) {
            return Some(Stream::continuing(id, before, read));
        }
        if read.start == 0 {
            return Some(Stream::at_beginning(id, read, is_small));
        }
        if let Some((first, is_exact)) = self.scattered.take_progression(read) {
            return Some(Stream::striding(id, first, read, is_exact));
        }
        self.next_run(id, read)
    }

    /// Records that are several reads each are streams that go forward, and end at one distance from each other.
    fn next_run(&self, id: u32, read: Span) -> Option<Stream> {
        let recent = || self.streams.iter().rev().filter(|stream| !self.is_stale(stream));
        let runs = || recent().filter_map(Stream::run).take(RUNS_MAX);
        let before = |second: Span| {
            let firsts = runs().filter(move |first| first.start != second.start);
            firsts.map(move |first| (first, second))
        };
        let mut pairs = runs().flat_map(before);
        pairs.find_map(|(first, second)| Stream::striding_runs(id, first, second, read))
    }

    fn is_stale(&self, stream: &Stream) -> bool {
        self.reads - stream.used > STALE
    }

    fn next_id(&mut self) -> u32 {
        self.numbered = self.numbered.wrapping_add(1);
        self.numbered
    }

    /// Moves a stream to the end of the list. Answers where it is if it is believed.
    fn use_last(&mut self, at: usize) -> Option<usize> {
        self.streams[at..].rotate_left(1);
        let last = self.streams.len() - 1;
        self.streams[last].used = self.reads;
        self.streams[last].is_believed.then_some(last)
    }

    /// Asks for what is to be fetched ahead of a stream now, and drops what lies behind it.
    fn extend(&mut self, at: usize, size: u64, limits: &Limits, plan: &mut ReadPlan) {
        let (id, bytes) = (self.streams[at].id, self.streams[at].bytes);
        let mut window = bytes.saturating_mul(2).min(limits.per_file());
        if size <= limits.whole() {
            window = limits.per_file().min(size);
        }
        let mut fetch = Fetch { id, limits, size, plan };
        match &self.streams[at].pattern {
            AccessPattern::SequentialReads(sequential) => {
                let ends = self.next_began(sequential.next);
                let reached =
                    fetch.sequential(sequential, window, ends, &mut self.fetched, &self.recent);
                if let AccessPattern::SequentialReads(sequential) = &mut self.streams[at].pattern {
                    sequential.reached = reached;
                }
            }
            AccessPattern::StridedReads(strides) => {
                let asked = fetch.strides(strides, window, &mut self.fetched, &self.recent);
                if let AccessPattern::StridedReads(strides) = &mut self.streams[at].pattern {
                    strides.asked = asked;
                }
            }
        }
        plan.sample.has_no_window = window == 0;
        if !plan.load.is_empty() {
            plan.drop.extend(self.fetched.drop_of(id, self.streams[at].behind()));
        }
    }

    /// Where the next stream behind `next` began: the stream before it most likely ends there, since each reader
    /// has a part of the file.
    fn next_began(&self, next: u64) -> u64 {
        let began = self.streams.iter().filter(|other| other.is_believed).filter_map(|other| {
            let AccessPattern::SequentialReads(sequential) = &other.pattern else { return None };
            (sequential.began >= next).then_some(sequential.began)
        });
        began.min().unwrap_or(u64::MAX)
    }
}

/// Asks for ranges ahead of one stream.
struct Fetch<'a> {
    id: u32,
    limits: &'a Limits,
    size: u64,
    plan: &'a mut ReadPlan,
}

impl Fetch<'_> {
    /// Answers up to where everything is asked for.
    fn sequential(
        &mut self,
        sequential: &SequentialReads,
        window: u64,
        ends: u64,
        fetched: &mut Fetched,
        recent: &Recent,
    ) -> u64 {
        let end_of_file = self.size.next_multiple_of(PAGE);
        let mut until = sequential.next.saturating_add(window).min(ends).min(end_of_file);
        let mut from = sequential.reached.max(sequential.next);
        let chunk_end = |from: u64| (from + 1).next_multiple_of(CHUNK).min(end_of_file);
        if window < CHUNK {
            if from > sequential.next + window / 2 {
                return from;
            }
            until = until.min(chunk_end(from));
        }
        // What begins at the end is not there.
        while from < until.min(self.size) {
            let to = if window < CHUNK { until } else { chunk_end(from) };
            if !self.ask(Span::new(from, to), fetched, recent) {
                return from;
            }
            self.plan.sample.is_to_the_end |= to >= self.size;
            from = to;
        }
        from
    }

    /// Answers up to which stride everything is asked for. Half a window is asked for at once, so that what touches
    /// is asked for by few requests.
    fn strides(
        &mut self,
        strides: &StridedReads,
        window: u64,
        fetched: &mut Fetched,
        recent: &Recent,
    ) -> u64 {
        let most = (window / strides.length.max(1)).min(STRIDES_MAX);
        let ahead = strides.asked.saturating_sub(strides.count);
        if ahead * 2 > most {
            return strides.asked;
        }
        let mut together: Option<Span> = None;
        let mut asked = strides.asked;
        for number in strides.asked + 1..=strides.count + most {
            let Some(place) = strides.place(number, self.size) else { break };
            match together.and_then(|before| joined(before, place)) {
                Some(joined) => together = Some(joined),
                None => {
                    if together.is_some_and(|before| !self.ask(before, fetched, recent)) {
                        return asked;
                    }
                    together = Some(place);
                }
            }
            asked = number;
        }
        if let Some(rest) = together {
            self.ask(rest, fetched, recent);
        }
        asked
    }

    /// Asks for what of `range` was neither read just now nor asked for; whether there was room for all.
    fn ask(&mut self, range: Span, fetched: &mut Fetched, recent: &Recent) -> bool {
        let mut rest = range;
        while let Some(gap) = fetched.gap(rest) {
            match recent.before(gap) {
                Err(read_until) => rest.start = read_until.min(rest.end),
                Ok(gap) => {
                    if !self.limits.may_load(gap.len()) {
                        self.limits.refused(gap.len());
                        return false;
                    }
                    self.plan.load.push((gap, fetched.insert(gap, self.id)));
                    rest.start = gap.end;
                }
            }
        }
        true
    }
}

/// Both as one, if little lies between them and they are not too much for one request.
fn joined(one: Span, other: Span) -> Option<Span> {
    let both = one.with(other);
    let touch = one.start <= other.end + BRIDGE && other.start <= one.end + BRIDGE;
    (touch && both.len() <= CHUNK).then_some(both)
}
