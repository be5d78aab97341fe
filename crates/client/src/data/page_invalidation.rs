//! The kernel drops pages before the lock that covers them is cancelled.
//!
//! The kernel drops the pages of a range one after the other, and blocks at one that it holds for a call.
//! What calls hold that wait for a lock is known ([`super::waiting_calls`]); for all other pages the cancel of
//! the lock waits until they are dropped, however late. Only where the kernel has been blocked for two
//! seconds ([`Invalidated::Blocked`]), as on a page of a read whose server is dead, is the lock cancelled
//! without that page. Those behind it would stay readable under no lock at all until that call is answered:
//! so the range is cut then until such pages are alone, and the kernel notified of all parts. Where there are
//! more such pages than [`BLOCKED_MAX`], they are left with what lies between them.
//!
//! The range that the kernel is notified of has stripes of other objects in it. A part that has no byte of
//! ours is left out: another lock covers it.
//!
//! Cost: one notice for each range between pages that waiting calls hold; where the kernel is blocked for long,
//! [`PARTS`] notices for each of up to some six steps.

use std::pin::pin;
use std::sync::Arc;

use sheen_io::BoxFuture;
use sheen_types::futures::before;
use sheen_types::{Extent, PAGE_BYTES as PAGE};

use super::DataEvents;
use super::object::Object;
use crate::types::{Invalidated, Stale};

/// Into so many parts a range is cut.
const PARTS: u64 = 16;

/// Parts in which the kernel is blocked while a range is cut: each occupies a thread that notifies it.
const BLOCKED_MAX: usize = 48;

/// The future of a notification to the kernel.
type Invalidation = BoxFuture<'static, Invalidated>;

impl Object {
    /// Has the kernel drop its pages of `extent`, and waits until it has, however late. Not for the pages of
    /// calls of ours that wait for a lock: the kernel releases these only when the call ends, and the call
    /// may be waiting for this very lock to be cancelled. See [`super::waiting_calls`].
    pub(super) async fn invalidate_pages(self: &Arc<Self>, extent: Extent) {
        let Some(events) = self.target.shared.events() else { return };
        let mut left = Vec::from_iter(self.mapping.file_extent(extent));
        while let Some(range) = left.pop() {
            let (held, free) = self.target.shared.waiting_calls.split(self.file, range);
            for part in held.iter().copied().filter(|part| self.has_some_of(*part)) {
                let invalidation = events.invalidate(self.file, Stale::Pages(part));
                left.extend(self.wait_until_dropped_or_held(part, invalidation).await);
            }
            if !held.is_empty() {
                left.extend(free);
                continue;
            }
            left.extend(self.invalidate_whole(range, &*events).await);
        }
    }

    fn has_some_of(&self, range: Extent) -> bool {
        self.mapping.object_extent(range).is_some()
    }

    /// Waits until the kernel has dropped `range`, or is blocked there on a page that it holds for a call
    /// that waits. Returns the range if that is no such page: then it is to be invalidated once more.
    async fn wait_until_dropped_or_held(
        self: &Arc<Self>,
        range: Extent,
        invalidation: Invalidation,
    ) -> Option<Extent> {
        let Invalidated::Blocked(rest) = invalidation.await else { return None };
        self.defer_invalidation(Box::pin(async move { _ = rest.await }));
        let is_held = self.target.shared.waiting_calls.hold_some_of(self.file, range);
        (!is_held).then_some(range)
    }

    /// Has the kernel drop `range`, of which it holds nothing for calls that wait, and waits until it has; where it is
    /// blocked for long, all around the pages that block it. Returns the range if there is such a call now:
    /// then it is to be invalidated once more.
    async fn invalidate_whole(
        self: &Arc<Self>,
        range: Extent,
        events: &dyn DataEvents,
    ) -> Option<Extent> {
        let invalidation = events.invalidate(self.file, Stale::Pages(range));
        let mut all: BoxFuture<'static, bool> =
            Box::pin(async move { invalidation.await.done().await });
        match self.wait_before_call(range, &mut all).await {
            Some(true) => None,
            Some(false) => {
                self.invalidate_around_blocked(range, events).await;
                None
            }
            None => {
                // The rest of the range is waited for all the same.
                self.defer_invalidation(Box::pin(async move { _ = all.await }));
                Some(range)
            }
        }
    }

    /// Has the kernel drop all of `range` but pages on which it is blocked.
    async fn invalidate_around_blocked(self: &Arc<Self>, range: Extent, events: &dyn DataEvents) {
        let (mut wholes, mut blocked) = (vec![range], 0);
        while let Some(whole) = wholes.pop() {
            let parts = cut(whole, self.file_end()).into_iter().filter(|it| self.has_some_of(*it));
            // All notifications are sent before the first is waited for.
            let invalidations: Vec<_> = parts
                .map(|part| (part, events.invalidate(self.file, Stale::Pages(part))))
                .collect();
            for (part, invalidation) in invalidations {
                let Invalidated::Blocked(rest) = invalidation.await else { continue };
                self.defer_invalidation(Box::pin(async move { _ = rest.await }));
                blocked += 1;
                if !is_page(part) {
                    wholes.push(part);
                }
            }
            if blocked > BLOCKED_MAX {
                tracing::warn!(
                    file = %self.file, start = range.start, end = range.end,
                    "the kernel is blocked on many pages: some outlive their lock"
                );
                return;
            }
        }
    }

    /// Where the file's pages end, as far as this object knows.
    fn file_end(&self) -> u64 {
        let size = self.state.lock().known.size;
        self.mapping.file_size(size).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
    }

    /// The result of `invalidation`; `None` if before that a call waits for which the kernel
    /// holds some of `range`.
    async fn wait_before_call<T>(
        &self,
        range: Extent,
        invalidation: &mut BoxFuture<'static, T>,
    ) -> Option<T> {
        loop {
            let waiting_calls = &self.target.shared.waiting_calls;
            let mut added = pin!(waiting_calls.added());
            added.as_mut().enable();
            if waiting_calls.hold_some_of(self.file, range) {
                return None;
            }
            if let Some(invalidation) = before(&mut *invalidation, added).await {
                return Some(invalidation);
            }
        }
    }
}

fn is_page(range: Extent) -> bool {
    range.start / PAGE == range.end / PAGE
}

/// Parts of `whole`, of whole pages. What lies behind `file_end` is one: there is hardly a page.
fn cut(whole: Extent, file_end: u64) -> Vec<Extent> {
    let first = whole.start & !(PAGE - 1);
    let end = match whole.start < file_end && file_end <= whole.end {
        true => file_end - 1,
        false => whole.end,
    };
    let step = ((end - first) / PAGE / PARTS + 1) * PAGE;
    let mut parts = Vec::new();
    let mut start = whole.start;
    while start <= end {
        let last = (start & !(PAGE - 1)).saturating_add(step - 1).min(end);
        parts.push(Extent { start, end: last });
        let Some(next) = last.checked_add(1) else { return parts };
        start = next;
    }
    if end < whole.end {
        parts.push(Extent { start: end + 1, end: whole.end });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_into_whole_pages_until_one_is_alone() {
        let whole = Extent { start: 4096, end: Extent::EOF };
        let parts = cut(whole, 10 * PAGE);
        assert_eq!(parts.len(), 10, "nine pages, and what lies behind the file");
        assert!(parts[..9].iter().copied().all(is_page));
        assert_eq!(parts[9], Extent { start: 10 * PAGE, end: Extent::EOF });
        for (whole, file_end) in [(whole, 0), (Extent::ALL, u64::MAX), (whole, 1 << 50)] {
            let (mut part, mut steps) = (whole, 0);
            while !is_page(part) {
                let parts = cut(part, file_end);
                assert!(parts.len() as u64 <= PARTS + 1);
                let ends = (parts[0].start, parts.last().map(|last| last.end));
                assert_eq!(ends, (part.start, Some(part.end)));
                assert!(parts.windows(2).all(|two| two[0].end + 1 == two[1].start));
                (part, steps) = (parts[parts.len() / 2], steps + 1);
            }
            assert!(steps <= 14, "{steps}");
        }
    }
}
