//! Read-ahead: a file that is read in order is fetched before it is asked for.
//!
//! The window doubles with each read that goes on where an earlier one ended, up to the limit of a
//! file; that is the limit of each place of a file that is read in order, as Lustre's is of each open file.
//! The kernel sends several reads of one stream at once and out of order, so "goes on" allows for a
//! little distance.

mod limits;
mod streams;

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_layout::Place;
use sheen_types::{PAGE_BYTES, futures};

use super::data_target::Shared;
use super::file::File;
use super::object::Object;
use super::waiting_calls::CallPages;
use limits::DISCARDED;
use streams::{Arrival, ReadPlan, Streams, WindowLimits, chunk_end};

pub use limits::Limits;

/// The streams of a file.
#[derive(Clone, Default)]
pub(super) struct Ahead {
    state: Arc<Mutex<Streams>>,
}

/// A chunk on its way; dropped, it has come, or never will.
struct Loading(Arc<Shared>);

impl Drop for Loading {
    fn drop(&mut self) {
        self.0.ahead.loaded();
    }
}

impl File {
    /// Starts what should be fetched ahead of this read, and waits for what is being fetched of it. The
    /// kernel holds `call_pages` in the meantime.
    pub(super) async fn look_ahead(&self, offset: u64, length: u64, call_pages: Option<CallPages>) {
        // A size that another client may have changed does no harm here: what is not fetched ahead is read.
        let size = self.known_size();
        let Some(shared) = self.objects.first().map(|object| Arc::clone(&object.target.shared))
        else {
            return;
        };
        let windows = WindowLimits { max: shared.ahead.per_file(), whole: shared.ahead.whole() };
        let steps = self.ahead.state.lock().note(offset, length, size, windows);
        let ReadPlan { load, wait, drop, read } = steps;
        shared.ahead.count(&read);
        self.drop_chunks(drop);
        for (chunk, done) in load {
            // A chunk too many is not fetched ahead: a read that waits for it reads it then.
            if shared.ahead.may_load() {
                self.load(chunk, done, &shared);
            } else {
                shared.ahead.refused();
            }
        }
        // What is being fetched may wait for a lock.
        let _waiting_call = call_pages
            .filter(|_| !wait.is_empty())
            .map(|call_pages| self.enter_waiting_call(call_pages));
        for arrived in wait {
            // There, or failed: then the read tries itself.
            arrived.until(|arrived| arrived).await;
            self.ahead.state.lock().forget_loaded();
        }
    }

    /// No read continues the stream: what was fetched ahead is dropped.
    pub(super) fn forget_ahead(&self) {
        let chunks = self.ahead.state.lock().forget();
        self.drop_chunks(chunks);
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
                let counters = &object.target.shared.ahead.counters;
                counters.add_many(DISCARDED, dropped.div_ceil(PAGE_BYTES));
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
        let layout_version = self.layout_version.clone();
        let task = async move {
            let fetches = parts
                .iter()
                .map(|(object, start, end)| object.prefetch(*start, *end, &layout_version));
            // A failure here shows again when the bytes are asked for.
            let _ = futures::all_ok(fetches.collect()).await;
            if !state.lock().want(chunk) {
                // The reader reads elsewhere by now.
                for (object, start, end) in &parts {
                    object.state.lock().clean.remove(*start, *end);
                }
            }
            drop((done, loading));
        };
        tasks.spawn("read-ahead", Box::pin(task));
    }
}
