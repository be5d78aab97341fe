//! What is written to an object while reads of it are on their way to the OST.
//!
//! Such bytes become dirty after the read has looked for dirty bytes, and may be on the OST, all or some of
//! them, when it arrives there: the later of two writes first, since both are sent at once. What the OST
//! answers then has a hole where there never was one; and one that fills up the last page, as Lustre's do,
//! sends zeros in place of what was appended since. So each read collects what is written while it is in
//! flight, and lays it over what arrives.
//!
//! What always holds: a read brings of each byte what it was at some time while the read was under way.
//!
//! Costs: a look at an empty list for each write, and for each read an entry in it.

use std::sync::Arc;

use bytes::Bytes;

use super::extents::Extents;
use super::object::{Object, ObjectState};
use super::read::trim;

/// The reads of one object that are on their way.
#[derive(Default)]
pub(super) struct ReadsInFlight {
    reads: Vec<ReadRange>,
    count: u64,
}

struct ReadRange {
    number: u64,
    start: u64,
    end: u64,
    written: Extents,
}

impl ReadsInFlight {
    /// Accepted now.
    pub(super) fn note(&mut self, offset: u64, data: &Bytes) {
        let data_end = offset + data.len() as u64;
        for read in &mut self.reads {
            let (start, end) = (offset.max(read.start), data_end.min(read.end));
            if start < end {
                let part = data.slice((start - offset) as usize..(end - offset) as usize);
                read.written.insert(start, part);
            }
        }
    }
}

/// A read that is on its way, until this is dropped.
pub(super) struct ReadInFlight {
    object: Arc<Object>,
    number: u64,
    start: u64,
}

impl ReadInFlight {
    /// Of `start..end`, with the state in which the read has looked for what is held here.
    pub(super) fn begin(
        object: &Arc<Object>,
        state: &mut ObjectState,
        start: u64,
        end: u64,
    ) -> Self {
        let reads = &mut state.reads;
        reads.count += 1;
        let number = reads.count;
        reads.reads.push(ReadRange { number, start, end, written: Extents::default() });
        Self { object: Arc::clone(object), number, start }
    }

    /// Merges `pieces`, which the OST sent, with what was written since: without anything behind the end of
    /// the object, which may have moved after the OST read them. Where no lock keeps it in place, it is at `end`,
    /// or the OST has sent no more than there is.
    pub(super) fn merge(&self, mut pieces: Vec<Bytes>, end: Option<u64>) -> Vec<Bytes> {
        let mut state = self.object.state.lock();
        let known = state.is_vouched.then_some(state.known.size);
        let read = state.reads.reads.iter_mut().find(|read| read.number == self.number);
        let written = read.map(|read| std::mem::take(&mut read.written)).unwrap_or_default();
        drop(state);
        let end = known.or(end.map(|end| end.max(written.end()))).unwrap_or(u64::MAX);
        if written.is_empty() {
            trim(&mut pieces, end.saturating_sub(self.start));
            return pieces;
        }
        let mut at = self.start;
        let mut all = Extents::default();
        for piece in pieces {
            let length = piece.len() as u64;
            _ = all.insert(at, piece);
            at += length;
        }
        written.over(self.start, u64::MAX, |at, run| _ = all.insert(at, run));
        let mut out = Vec::new();
        let mut at = self.start;
        all.over(self.start, end, |offset, run| {
            // Behind a gap it is asked for again: there is more than the OST has sent.
            if offset == at {
                at += run.len() as u64;
                out.push(run);
            }
        });
        out
    }
}

impl Drop for ReadInFlight {
    fn drop(&mut self) {
        self.object.state.lock().reads.reads.retain(|read| read.number != self.number);
    }
}
