//! Calls that wait while the kernel holds pages for them.
//!
//! The kernel releases such pages only when the call ends, and what the call waits for may be the very lock
//! whose revocation invalidates the pages; or one that another client holds for the same reason, the other
//! way round. So a revocation does not wait for them. It waits for all other pages, however late the kernel
//! drops them: a page that is left behind shows old bytes under no lock at all.
//!
//! The kernel holds all pages that a read is to fill, and shows them to no program before the read is
//! answered: with bytes that are read under a lock that the call does not have yet. Of a write's pages it
//! holds the last one, if the write has only a part of it and it was not cached; if it was cached, programs
//! see it, and it must be dropped. A call that a signal has ended was answered, but its future goes on waiting
//! here. So the kernel is notified of these pages, too, and not waited for where it is blocked on one
//! ([`Invalidated::Blocked`](crate::types::Invalidated)).
//!
//! Pages are those of the file, whichever of its objects they belong to: what the kernel is to drop for one
//! object is one range, from its first byte to its last, with stripes of all other objects in between.
//!
//! Costs one map access for each call that waits for a lock, or that reads or writes several objects.

use parking_lot::Mutex;
use sheen_types::{Extent, Fid, HashMap, PAGE_BYTES as PAGE};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Pages of a file that the kernel may hold for a call until it is answered: whole ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPages(Extent);

impl CallPages {
    /// All those of a call on these bytes.
    #[must_use]
    pub fn of(range: Extent) -> Self {
        Self(range.whole_pages())
    }

    /// That of a write of these bytes out of the kernel's pages: the kernel releases those that are whole,
    /// and sends no more with one that is not.
    #[must_use]
    pub fn written(range: Extent) -> Option<Self> {
        let last = range.end & !(PAGE - 1);
        let is_whole = range.start <= last && range.end == last | (PAGE - 1);
        (!is_whole).then(|| Self::of(Extent { start: last, end: last }))
    }

    /// The bytes of the pages.
    #[must_use]
    pub fn range(self) -> Extent {
        self.0
    }
}

/// All such calls of a mount.
#[derive(Default)]
pub(super) struct WaitingCalls {
    calls: Mutex<HashMap<Fid, Vec<CallPages>>>,
    news: Notify,
}

/// One such call, until it is dropped.
pub struct WaitingCall<'a> {
    waiting_calls: &'a WaitingCalls,
    file: Fid,
    call_pages: CallPages,
}

impl WaitingCalls {
    /// A call waits while the kernel holds these pages of the file for it.
    pub(super) fn enter(&self, file: Fid, call_pages: CallPages) -> WaitingCall<'_> {
        self.calls.lock().entry(file).or_default().push(call_pages);
        self.news.notify_waiters();
        WaitingCall { waiting_calls: self, file, call_pages }
    }

    /// The parts of `whole` that the kernel may hold for a call that waits, and the rest. None overlap.
    pub(super) fn split(&self, file: Fid, whole: Extent) -> (Vec<Extent>, Vec<Extent>) {
        let calls = self.calls.lock();
        split(whole, calls.get(&file).map_or(&[], Vec::as_slice))
    }

    /// Whether the kernel may hold some of the range.
    pub(super) fn hold_some_of(&self, file: Fid, range: Extent) -> bool {
        !self.split(file, range).0.is_empty()
    }

    /// Completes when there is one more.
    pub(super) fn added(&self) -> Notified<'_> {
        self.news.notified()
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let mut calls = self.waiting_calls.calls.lock();
        let Some(of_file) = calls.get_mut(&self.file) else { return };
        if let Some(index) = of_file.iter().position(|pages| *pages == self.call_pages) {
            of_file.swap_remove(index);
        }
        if of_file.is_empty() {
            calls.remove(&self.file);
        }
    }
}

fn split(whole: Extent, calls: &[CallPages]) -> (Vec<Extent>, Vec<Extent>) {
    let (mut held, mut free) = (Vec::new(), vec![whole]);
    for CallPages(range) in calls {
        for part in std::mem::take(&mut free) {
            let (start, end) = (part.start.max(range.start), part.end.min(range.end));
            if start > end {
                free.push(part);
                continue;
            }
            held.push(Extent { start, end });
            if part.start < start {
                free.push(Extent { start: part.start, end: start - 1 });
            }
            if end < part.end {
                free.push(Extent { start: end + 1, end: part.end });
            }
        }
    }
    (held, free)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64) -> Extent {
        Extent { start, end }
    }

    #[test]
    fn pages_that_calls_hold_are_split_off() {
        let whole = Extent::ALL;
        assert_eq!(split(whole, &[]), (vec![], vec![whole]));
        assert_eq!(split(whole, &[CallPages::of(whole)]), (vec![whole], vec![]));
        let calls = [(9000, 9010), (0, 10), (5, 4097)];
        let calls = calls.map(|(start, end)| CallPages::of(extent(start, end)));
        let held = vec![extent(8192, 12287), extent(0, 4095), extent(4096, 8191)];
        assert_eq!(split(whole, &calls), (held, vec![extent(12288, Extent::EOF)]));
        let part = extent(4096, 8191);
        assert_eq!(split(part, &[CallPages::of(extent(8192, 8200))]), (vec![], vec![part]));
    }

    #[test]
    fn of_a_write_the_kernel_may_hold_a_last_page_that_is_not_whole() {
        let held = |start, end| CallPages::written(extent(start, end)).map(CallPages::range);
        assert_eq!(held(0, 4095), None);
        assert_eq!(held(100, 8191), None);
        assert_eq!(held(100, 4095), Some(extent(0, 4095)), "it begins too late");
        assert_eq!(held(4096, 8190), Some(extent(4096, 8191)));
        assert_eq!(held(0, 4096), Some(extent(4096, 8191)));
    }

    #[test]
    fn calls_are_forgotten_when_they_end() {
        let (waiting_calls, file) = (WaitingCalls::default(), Fid::new(1, 2));
        let page = extent(0, 4095);
        let pages = CallPages::of(extent(3, 9));
        let calls = [waiting_calls.enter(file, pages), waiting_calls.enter(file, pages)];
        assert!(!waiting_calls.hold_some_of(Fid::new(1, 3), page));
        for call in calls {
            assert_eq!(waiting_calls.split(file, page), (vec![page], vec![]));
            drop(call);
        }
        assert!(!waiting_calls.hold_some_of(file, page));
        assert!(waiting_calls.calls.lock().is_empty());
    }
}
