//! Writes past the dirty bytes: direct ones, synchronous ones, and those for which there is no grant.
//!
//! The bytes of such a write are marked from before it is sent until it is answered. It begins when nothing
//! older of the same bytes is dirty or under way, and what is newer, cached or not, waits for its end; so do a
//! truncate, a flush, and the cancel of its lock. The mark does not end with the caller: a write whose caller is
//! killed is on its way all the same, and may arrive late.
//!
//! A flush waits for the writes that were under way when it began, and for no later ones: those of a program
//! that always has some under way would never let it end.
//!
//! Cost: one entry in a short list, and a box for what may outlive its caller.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_types::{Errno, Extent};
use sheen_wire::ost::BrwFlags;

use super::extents::widened;
use super::object::Object;

/// The writes of one object that go past its dirty bytes and are not answered. None overlaps another.
#[derive(Default)]
pub(super) struct WritesThrough {
    writes: Vec<WriteThrough>,
    /// How many were begun.
    count: u64,
}

struct WriteThrough {
    number: u64,
    offset: u64,
    data: Bytes,
}

impl WriteThrough {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

impl WritesThrough {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.writes.iter().map(|write| write.data.len() as u64).sum()
    }

    /// Where the last byte of them ends; 0 if there is none.
    pub(super) fn end(&self) -> u64 {
        self.writes.iter().map(WriteThrough::end).max().unwrap_or(0)
    }

    /// The number of the last one that was begun.
    pub(super) fn last(&self) -> u64 {
        self.count
    }

    /// Whether one writes any byte of `start..end`, of those up to the number `last`.
    pub(super) fn overlaps(&self, start: u64, end: u64, last: u64) -> bool {
        let is_over = |write: &WriteThrough| {
            write.number <= last && write.offset < end && start < write.end()
        };
        self.writes.iter().any(is_over)
    }

    /// Calls `take` with what they have of `start..end`.
    pub(super) fn over(&self, start: u64, end: u64, mut take: impl FnMut(u64, Bytes)) {
        for write in &self.writes {
            let (from, to) = (start.max(write.offset), end.min(write.end()));
            if from < to {
                let part = (from - write.offset) as usize..(to - write.offset) as usize;
                take(from, write.data.slice(part));
            }
        }
    }

    fn begin(&mut self, offset: u64, data: Bytes) -> u64 {
        self.count += 1;
        self.writes.push(WriteThrough { number: self.count, offset, data });
        self.count
    }

    fn remove(&mut self, number: u64) {
        self.writes.retain(|write| write.number != number);
    }
}

impl Object {
    /// Sends `data` now, behind whatever of the same range is under way.
    pub(super) async fn write_through(
        self: &Arc<Self>,
        offset: u64,
        data: Bytes,
        sync: bool,
    ) -> Result<(), Errno> {
        let number = self.begin_write_through(offset, &data).await;
        let object = Arc::clone(self);
        let sent = async move { object.send_through(number, offset, data, sync).await };
        UntilAnswered { object: Arc::clone(self), write: Some(Box::pin(sent)) }.await
    }

    /// Waits until nothing of the range is dirty or under way, of its blocks where the OST needs that, and marks it as
    /// being written.
    async fn begin_write_through(self: &Arc<Self>, offset: u64, data: &Bytes) -> u64 {
        let end = offset + data.len() as u64;
        let needs_whole_pages = self.target.needs_whole_pages();
        let (first, last) = if needs_whole_pages { widened(offset, end) } else { (offset, end) };
        loop {
            self.flush(Extent { start: first, end: last - 1 }).await;
            let mut state = self.state.lock();
            if state.has_unwritten(first, last) {
                continue;
            }
            state.clean.remove(offset, end);
            self.touch(&mut state, offset, data);
            return state.through.begin(offset, data.clone());
        }
    }

    async fn send_through(
        self: &Arc<Self>,
        number: u64,
        offset: u64,
        data: Bytes,
        sync: bool,
    ) -> Result<(), Errno> {
        let sent = self.send_in_bulks(offset, &data, sync).await;
        {
            let mut state = self.state.lock();
            state.through.remove(number);
            // An answer about size that was on its way may not know of these bytes.
            state.known_version += 1;
            if !sync {
                // Of one that fails some bytes may have been written.
                state.note_unsynced();
            }
            if sent.is_err() {
                state.distrust_size();
            }
        }
        if sent.is_err()
            && let Some(part) = Extent::of_length(offset, data.len() as u64)
        {
            // A read meanwhile may have shown the kernel bytes that are not on the OST.
            self.invalidate_lost_pages(part);
        }
        self.progress.notify_waiters();
        sent
    }

    /// One RPC after the other.
    async fn send_in_bulks(&self, offset: u64, data: &Bytes, sync: bool) -> Result<(), Errno> {
        let flags = if sync { BrwFlags::SYNC } else { BrwFlags::NONE };
        let bulk = self.target.limits().bulk_bytes as usize;
        let mut at = 0;
        while at < data.len() {
            let part = data.slice(at..data.len().min(at + bulk));
            let end = at + part.len();
            self.send(&[(offset + at as u64, part)], flags, 0).await?;
            at = end;
        }
        Ok(())
    }
}

/// The end of a write whose bytes are marked. Dropped before that, it goes on in a task.
struct UntilAnswered {
    object: Arc<Object>,
    /// `None` when it has ended.
    write: Option<BoxFuture<'static, Result<(), Errno>>>,
}

impl Future for UntilAnswered {
    type Output = Result<(), Errno>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(write) = &mut self.write else { return Poll::Pending };
        let polled = write.as_mut().poll(context);
        if polled.is_ready() {
            self.write = None;
        }
        polled
    }
}

impl Drop for UntilAnswered {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            let task = Box::pin(async move { _ = write.await });
            self.object.target.shared.world.tasks.spawn("write", task);
        }
    }
}
