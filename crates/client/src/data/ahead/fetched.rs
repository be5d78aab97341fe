//! What was asked for ahead of the reads of a file, until reads have had it.
//!
//! Ranges of the file that do not overlap: what is here is not asked for again. Each belongs to the stream ahead of
//! whose reads it was asked for. A range goes when reads have had all of it, or when it is dropped because no read
//! wants it any more; one that is dropped while it is on its way is dropped when it comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use sheen_io::Watched;

use super::span::Span;

/// Whether a range on its way has come, or never will.
pub(super) type Arrived = Arc<Watched<bool>>;

/// Signals, when it is dropped, that a range is not on its way any more.
pub(super) struct Arrival(Arrived);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.change(|arrived| *arrived = true);
    }
}

/// The ranges, by where they begin.
#[derive(Default)]
pub(super) struct Fetched {
    ranges: BTreeMap<u64, Range>,
}

struct Range {
    end: u64,
    /// Bytes that no read has had.
    unread: u64,
    stream: u32,
    arrived: Arrived,
}

impl Fetched {
    /// Takes note of a read. Adds to `wait` what it needs that is on its way, and answers ahead of which stream most
    /// of what it finds was asked for, if it finds any.
    pub(super) fn read(&mut self, read: Span, wait: &mut Vec<Arrived>) -> Option<u32> {
        let mut found: Option<(u64, u32)> = None;
        let mut from = read.start;
        while let Some(range) = self.first_over(Span { start: from, ..read }) {
            let here = range.overlap(read);
            let stream = self.take(range, here, wait);
            if found.is_none_or(|(most, _)| most < here) {
                found = Some((here, stream));
            }
            from = range.end;
        }
        found.map(|(_, stream)| stream)
    }

    /// A read has these many bytes of a range. Answers whose it is.
    fn take(&mut self, Span { start, .. }: Span, bytes: u64, wait: &mut Vec<Arrived>) -> u32 {
        let range = self.ranges.get_mut(&start).expect("the caller has found it");
        range.unread = range.unread.saturating_sub(bytes);
        let (stream, has_arrived) = (range.stream, range.arrived.get());
        if !has_arrived {
            wait.push(Arc::clone(&range.arrived));
        } else if range.unread == 0 {
            self.ranges.remove(&start);
        }
        stream
    }

    /// The first part of `within` that is not here.
    pub(super) fn gap(&self, within: Span) -> Option<Span> {
        let mut rest = within;
        while rest.start < rest.end {
            match self.first_over(rest) {
                Some(range) if range.start <= rest.start => rest.start = range.end,
                Some(range) => return Some(Span { end: range.start, ..rest }),
                None => return Some(rest),
            }
        }
        None
    }

    /// `range` is on its way ahead of the reads of a stream.
    pub(super) fn insert(&mut self, range: Span, stream: u32) -> Arrival {
        let Span { start, end } = range;
        let arrived = Arrived::new(Watched::new(false));
        let of = Range { end, unread: range.len(), stream, arrived: Arc::clone(&arrived) };
        self.ranges.insert(start, of);
        Arrival(arrived)
    }

    /// `range` is not on its way any more: whether a read may still want it.
    pub(super) fn arrived(&mut self, range: Span) -> bool {
        let there = self.ranges.get(&range.start).filter(|there| there.end == range.end);
        let unread = there.map(|there| there.unread);
        if unread == Some(0) {
            // The reads that want it wait for it.
            self.ranges.remove(&range.start);
        }
        unread.is_some()
    }

    /// What was asked for ahead of one stream is another's.
    pub(super) fn give(&mut self, from: u32, to: u32) {
        for range in self.ranges.values_mut().filter(|range| range.stream == from) {
            range.stream = to;
        }
    }

    /// Drops what was asked for ahead of a stream and lies in `within` whole. Answers what may be in memory of it.
    pub(super) fn drop_of(&mut self, stream: u32, within: Span) -> Vec<Span> {
        let is_out = |(start, range): &(&u64, &Range)| {
            range.stream == stream && **start >= within.start && range.end <= within.end
        };
        let there = self.ranges.range(..within.end).filter(is_out);
        let out: Vec<Span> = there.map(|(start, range)| Span::new(*start, range.end)).collect();
        for span in &out {
            self.ranges.remove(&span.start);
        }
        out
    }

    /// Drops all.
    pub(super) fn clear(&mut self) -> Vec<Span> {
        let all = std::mem::take(&mut self.ranges).into_iter();
        all.map(|(start, range)| Span::new(start, range.end)).collect()
    }

    fn first_over(&self, within: Span) -> Option<Span> {
        if within.start >= within.end {
            return None;
        }
        let before = self.ranges.range(..within.start).next_back();
        let before = before.filter(|(_, range)| range.end > within.start);
        let found = before.or_else(|| self.ranges.range(within.start..within.end).next());
        found.map(|(start, range)| Span::new(*start, range.end))
    }
}
