//! Calls that wait for a lock, or for a layout, while the kernel holds pages for them.
//!
//! The kernel lets go of such pages only when the call ends, and what the call waits for may be the very
//! lock whose going asks for the pages; or one that another client keeps for the same reason, the other
//! way round. So a lock that goes does not wait for them. Pages are those of the file, whichever of its
//! objects they belong to: what the kernel is told to give up for one object is one range, from its
//! first byte to its last, with stripes of all others in between.
//!
//! Costs a look into one map for each call that waits for a lock, or that reads or writes several objects.

use parking_lot::Mutex;
use sheen_types::{Extent, Fid, HashMap};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// All such calls of a mount.
#[derive(Default)]
pub(super) struct Asked {
    calls: Mutex<HashMap<Fid, Vec<Extent>>>,
    news: Notify,
}

/// One such call, until it is dropped.
pub struct Asking<'a> {
    asked: &'a Asked,
    file: Fid,
    range: Extent,
}

impl Asked {
    /// A call waits that needs this range of the file.
    pub(super) fn ask(&self, file: Fid, range: Extent) -> Asking<'_> {
        self.calls.lock().entry(file).or_default().push(range);
        self.news.notify_waiters();
        Asking { asked: self, file, range }
    }

    /// The parts of `whole` that no call asks for, and those that one does, in whole kernel pages.
    pub(super) fn split(&self, file: Fid, whole: Extent) -> (Vec<Extent>, Vec<Extent>) {
        let calls = self.calls.lock();
        split(whole, calls.get(&file).map_or(&[], Vec::as_slice))
    }

    /// Completes when there is one more.
    pub(super) fn more(&self) -> Notified<'_> {
        self.news.notified()
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut calls = self.asked.calls.lock();
        let Some(ranges) = calls.get_mut(&self.file) else { return };
        if let Some(index) = ranges.iter().position(|range| *range == self.range) {
            ranges.swap_remove(index);
        }
        if ranges.is_empty() {
            calls.remove(&self.file);
        }
    }
}

/// The parts of `whole` that no call asks for, and those that one does, in whole kernel pages.
fn split(whole: Extent, asking: &[Extent]) -> (Vec<Extent>, Vec<Extent>) {
    const PAGE: u64 = 4096;
    let mut held: Vec<Extent> = asking
        .iter()
        .map(|extent| Extent { start: extent.start & !(PAGE - 1), end: extent.end | (PAGE - 1) })
        .filter(|extent| extent.start <= whole.end && whole.start <= extent.end)
        .map(|extent| Extent {
            start: extent.start.max(whole.start),
            end: extent.end.min(whole.end),
        })
        .collect();
    held.sort_unstable_by_key(|extent| extent.start);
    let mut free = Vec::new();
    let mut next = Some(whole.start);
    for part in &held {
        let Some(from) = next else { break };
        if from < part.start {
            free.push(Extent { start: from, end: part.start - 1 });
        }
        next = part.end.checked_add(1).map(|after| after.max(from));
    }
    if let Some(from) = next.filter(|from| *from <= whole.end) {
        free.push(Extent { start: from, end: whole.end });
    }
    (free, held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64) -> Extent {
        Extent { start, end }
    }

    #[test]
    fn pages_that_calls_hold_are_told_apart() {
        let whole = Extent::ALL;
        assert_eq!(split(whole, &[]), (vec![whole], vec![]));
        assert_eq!(split(whole, &[whole]), (vec![], vec![whole]));
        let asking = [extent(9000, 9010), extent(0, 10), extent(5, 4097)];
        let free = vec![extent(12288, Extent::EOF)];
        let held = vec![extent(0, 4095), extent(0, 8191), extent(8192, 12287)];
        assert_eq!(split(whole, &asking), (free, held));
        let part = extent(4096, 8191);
        assert_eq!(split(part, &[extent(8192, 8200)]), (vec![part], vec![]));
    }

    #[test]
    fn calls_are_forgotten_when_they_end() {
        let (asked, file) = (Asked::default(), Fid::new(1, 2));
        let page = extent(0, 4095);
        let calls = [asked.ask(file, extent(3, 9)), asked.ask(file, extent(3, 9))];
        assert_eq!(asked.split(Fid::new(1, 3), page), (vec![page], vec![]));
        for call in calls {
            assert_eq!(asked.split(file, page).0, vec![]);
            drop(call);
        }
        assert_eq!(asked.split(file, page), (vec![page], vec![]));
        assert!(asked.calls.lock().is_empty());
    }
}
