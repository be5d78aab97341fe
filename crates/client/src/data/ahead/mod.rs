//! Read-ahead: what a program is about to read is fetched before it asks.
//!
//! Fetched ahead are reads in order, in strides of any length and direction, and those of several readers that read a
//! part of the file together, in whatever order. The limit of a file counts for each place of it that is read so, as
//! Lustre's does for each open file. Reads at random places fetch nothing ahead.
//!
//! What is fetched ahead is fetched under extent locks that are held, or that no other client's lock conflicts
//! with: read-ahead revokes nothing.

mod fetched;
mod limits;
mod lock;
mod recent;
mod scattered;
mod span;
mod stream;
mod streams;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_layout::Place;
use sheen_types::futures;

use super::data_target::Shared;
use super::file::File;
use super::object::Object;
use super::waiting_calls::CallPages;
use fetched::Arrival;
use span::Span;
use streams::{ReadPlan, Streams};

pub use limits::Limits;
pub(super) use lock::LockAhead;

/// The streams of a file.
#[derive(Clone, Default)]
pub(super) struct Ahead {
    state: Arc<Mutex<Streams>>,
}

/// Bytes on their way; dropped, they have come, or never will.
struct Loading(Arc<Shared>, u64);

impl Drop for Loading {
    fn drop(&mut self) {
        self.0.ahead.loaded(self.1);
    }
}

impl File {
    /// Starts what should be fetched ahead of this read, and waits for what is being fetched of it. The
    /// kernel holds `call_pages` in the meantime.
    pub(super) async fn look_ahead(&self, offset: u64, length: u64, call_pages: Option<CallPages>) {
        // A size that another client may have changed does no harm here: what is not fetched ahead is read.
        let size = self.known_size();
        let Some(object) = self.objects.first() else { return };
        let shared = Arc::clone(&object.target.shared);
        let read = Span::new(offset, offset.saturating_add(length));
        let plan = self.ahead.state.lock().note(read, size, &shared.ahead);
        let ReadPlan { load, wait, drop, sample } = plan;
        shared.ahead.count(sample);
        self.drop_ranges(drop);
        for (range, arrival) in load {
            self.load(range, arrival, &shared);
        }
        // What is being fetched may wait for a lock.
        let _waiting_call = call_pages
            .filter(|_| !wait.is_empty())
            .map(|call_pages| self.enter_waiting_call(call_pages));
        for arrived in wait {
            // There, or failed: then the read tries itself.
            arrived.until(|arrived| arrived).await;
        }
    }

    /// No read continues a stream: what was fetched ahead is dropped.
    pub(super) fn forget_ahead(&self) {
        let ranges = self.ahead.state.lock().forget();
        self.drop_ranges(ranges);
        for object in self.objects.iter() {
            object.state.lock().lock_ahead.forget_refusal();
        }
    }

    fn drop_ranges(&self, ranges: Vec<Span>) {
        for range in ranges {
            let dropped = self.parts_of(range).map(Part::drop_clean).sum();
            if let Some(object) = self.objects.first() {
                object.target.shared.ahead.discarded(dropped);
            }
        }
    }

    fn parts_of(&self, range: Span) -> impl Iterator<Item = Part> {
        self.layout.pieces(range.start, range.len()).filter_map(|piece| {
            let Place::Object(index) = piece.place else { return None };
            let object = Arc::clone(&self.objects[index]);
            Some(Part {
                object,
                start: piece.object_offset,
                end: piece.object_offset + piece.length,
            })
        })
    }

    fn load(&self, range: Span, arrival: Arrival, shared: &Arc<Shared>) {
        let parts: Vec<Part> = self.parts_of(range).collect();
        let loading = Loading(Arc::clone(shared), range.len());
        let state = Arc::clone(&self.ahead.state);
        let layout_version = self.layout_version.clone();
        let task = async move {
            let fetches = parts
                .iter()
                .map(|Part { object, start, end }| object.prefetch(*start, *end, &layout_version));
            // A failure here shows again when the bytes are asked for.
            let _ = futures::all_ok(fetches.collect()).await;
            if !state.lock().arrived(range) {
                // The reader reads elsewhere by now.
                let dropped = parts.into_iter().map(Part::drop_clean).sum();
                loading.0.ahead.discarded(dropped);
            }
            drop((arrival, loading));
        };
        shared.world.tasks.spawn("read-ahead", Box::pin(task));
    }
}

/// A range of one object.
struct Part {
    object: Arc<Object>,
    start: u64,
    end: u64,
}

impl Part {
    /// Drops what was read ahead of it. Answers how many bytes that were.
    fn drop_clean(self) -> u64 {
        self.object.state.lock().clean.remove(self.start, self.end)
    }
}
