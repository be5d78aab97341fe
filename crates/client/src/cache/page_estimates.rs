//! How much of files the kernel keeps in its pages, and which of them are dropped when that is too much
//! (`max_cached_mb`).
//!
//! The kernel does not say what it keeps. So this is estimated: of each file as much as was read or written
//! through the kernel's pages, and never more than up to the last byte of that. It errs on the high side,
//! where the kernel has dropped pages by itself or got the same bytes twice. When it is too much, the files
//! that were unused for longest are dropped first; of a file that is alone, what lies far from the place in
//! use. What programs changed through mappings the kernel writes before it drops it.
//!
//! Cost: one mutex of the mount and one map access for each read and write; memory for each file with
//! pages, none for their ranges.

use parking_lot::Mutex;
use sheen_types::{Extent, HashMap, PAGE_BYTES};

use crate::types::NodeId;

/// No file.
const NONE: u32 = u32::MAX;

/// What the kernel is thought to keep.
#[derive(Default)]
pub(crate) struct PageEstimates(Mutex<Estimates>);

/// What is known of all pages, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesKept {
    /// Bytes that the kernel is thought to keep.
    pub bytes: u64,
    /// How many it may keep.
    pub bytes_max: u64,
    /// How often a file was dropped because there was too much.
    pub reclaims: u64,
}

/// What is to be dropped of a file: one or two ranges.
pub(super) type Victim = (NodeId, [Option<Extent>; 2]);

struct Estimates {
    bytes: u64,
    bytes_max: u64,
    reclaims: u64,
    /// Whether a task is dropping pages until the rest fits.
    is_trimming: bool,
    slots: HashMap<NodeId, u32>,
    files: Vec<FilePages>,
    free: Vec<u32>,
    /// The ends of the list by last use.
    oldest: u32,
    newest: u32,
}

struct FilePages {
    node: NodeId,
    bytes: u64,
    /// Behind the last page that was used.
    end: u64,
    /// The pages used last.
    last: Extent,
    older: u32,
    newer: u32,
}

impl Default for Estimates {
    fn default() -> Self {
        Self {
            bytes: 0,
            bytes_max: u64::MAX,
            reclaims: 0,
            is_trimming: false,
            slots: HashMap::default(),
            files: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
    }
}

impl PageEstimates {
    /// Bytes of a file came from the kernel's pages or go there. Returns whether the caller must call
    /// [`PageEstimates::victim`] until it has none.
    pub(super) fn note_used(&self, node: NodeId, offset: u64, length: u64) -> bool {
        let Some(range) = Extent::of_length(offset, length) else { return false };
        let start = range.start / PAGE_BYTES * PAGE_BYTES;
        let end = (range.end / PAGE_BYTES + 1).saturating_mul(PAGE_BYTES);
        let mut estimates = self.0.lock();
        let slot = estimates.newest_slot(node);
        let file = &mut estimates.files[slot as usize];
        file.last = Extent { start, end: end - 1 };
        file.end = file.end.max(end);
        let more = file.end.min(file.bytes.saturating_add(end - start)) - file.bytes;
        file.bytes += more;
        estimates.bytes = estimates.bytes.saturating_add(more);
        estimates.is_too_much()
    }

    /// Whether the kernel is thought to have pages of the file.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.0.lock().slots.contains_key(&node)
    }

    /// The kernel has released this part of a file's pages.
    pub(super) fn dropped(&self, node: NodeId, part: Extent) {
        let mut estimates = self.0.lock();
        let Some(&slot) = estimates.slots.get(&node) else { return };
        let file = &estimates.files[slot as usize];
        if part.start == 0 && part.end.saturating_add(1) >= file.end {
            return estimates.remove(slot);
        }
        let last = part.end.min(file.end.saturating_sub(1));
        let gone = (last.saturating_add(1)).saturating_sub(part.start);
        estimates.shrink(slot, gone);
    }

    /// The kernel has no page of the file any more.
    pub(crate) fn forget(&self, node: NodeId) {
        self.dropped(node, Extent::ALL);
    }

    /// The file ends there now, and its pages with it.
    pub(crate) fn cut(&self, node: NodeId, size: u64) {
        let mut estimates = self.0.lock();
        let Some(&slot) = estimates.slots.get(&node) else { return };
        let end = size.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES);
        let file = &mut estimates.files[slot as usize];
        file.end = file.end.min(end);
        let gone = file.bytes.saturating_sub(file.end);
        if file.end == 0 {
            return estimates.remove(slot);
        }
        estimates.shrink(slot, gone);
    }

    /// Limits the bytes that may be kept. As [`PageEstimates::note_used`].
    pub(super) fn limit(&self, bytes_max: u64) -> bool {
        let mut estimates = self.0.lock();
        estimates.bytes_max = bytes_max;
        estimates.is_too_much()
    }

    /// What is to be dropped next; it counts as dropped. `None` when the rest fits, with some room to spare,
    /// so that not each new page evicts another.
    pub(super) fn victim(&self) -> Option<Victim> {
        let mut estimates = self.0.lock();
        let victim = estimates.victim();
        estimates.is_trimming = victim.is_some();
        estimates.reclaims += u64::from(victim.is_some());
        victim
    }

    /// The counts.
    pub(crate) fn kept(&self) -> PagesKept {
        let estimates = self.0.lock();
        PagesKept {
            bytes: estimates.bytes,
            bytes_max: estimates.bytes_max,
            reclaims: estimates.reclaims,
        }
    }
}

impl Estimates {
    fn is_too_much(&mut self) -> bool {
        self.bytes > self.bytes_max && !std::mem::replace(&mut self.is_trimming, true)
    }

    fn victim(&mut self) -> Option<Victim> {
        if self.oldest == NONE || self.bytes <= self.bytes_max - self.bytes_max / 8 {
            return None;
        }
        let slot = self.oldest;
        let file = &self.files[slot as usize];
        let node = file.node;
        if slot != self.newest {
            self.remove(slot);
            return Some((node, [Some(Extent::ALL), None]));
        }
        // Nothing else is left: of the file in use its surroundings stay.
        let near = self.bytes_max / 4 / PAGE_BYTES * PAGE_BYTES;
        let before = file.last.start.checked_sub(near + 1).map(|end| Extent { start: 0, end });
        let start = file.last.end.saturating_add(near).saturating_add(1);
        let behind = (start < file.end).then_some(Extent { start, end: Extent::EOF });
        let left = (file.last.end - file.last.start + 1).saturating_add(2 * near);
        let gone = file.bytes.checked_sub(left).filter(|gone| *gone > 0)?;
        self.shrink(slot, gone);
        Some((node, [before, behind]))
    }

    /// The file's slot, made if need be, as that of the file used last.
    fn newest_slot(&mut self, node: NodeId) -> u32 {
        let slot = match self.slots.get(&node) {
            Some(&slot) if slot == self.newest => return slot,
            Some(&slot) => {
                self.unlink(slot);
                slot
            }
            None => self.add(node),
        };
        let newest = std::mem::replace(&mut self.newest, slot);
        let file = &mut self.files[slot as usize];
        (file.older, file.newer) = (newest, NONE);
        match newest {
            NONE => self.oldest = slot,
            newest => self.files[newest as usize].newer = slot,
        }
        slot
    }

    fn add(&mut self, node: NodeId) -> u32 {
        let last = Extent { start: 0, end: 0 };
        let file = FilePages { node, bytes: 0, end: 0, last, older: NONE, newer: NONE };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.files[slot as usize] = file;
                slot
            }
            None => {
                self.files.push(file);
                self.files.len() as u32 - 1
            }
        };
        self.slots.insert(node, slot);
        slot
    }

    fn unlink(&mut self, slot: u32) {
        let FilePages { older, newer, .. } = self.files[slot as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.files[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.files[newer as usize].older = older,
        }
    }

    fn remove(&mut self, slot: u32) {
        self.unlink(slot);
        let FilePages { node, bytes, .. } = self.files[slot as usize];
        self.bytes -= bytes;
        self.slots.remove(&node);
        self.free.push(slot);
    }

    fn shrink(&mut self, slot: u32, gone: u64) {
        let file = &mut self.files[slot as usize];
        let gone = gone.min(file.bytes);
        file.bytes -= gone;
        self.bytes -= gone;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn all_victims(pages: &PageEstimates) -> Vec<Victim> {
        std::iter::from_fn(|| pages.victim()).collect()
    }

    #[test]
    fn the_files_unused_for_longest_go_when_there_is_too_much() {
        let pages = PageEstimates::default();
        assert!(!pages.limit(8 * MIB));
        for number in 1..=8 {
            assert!(!pages.note_used(NodeId(number), 0, MIB));
        }
        // Used again, and so not the oldest any more.
        assert!(!pages.note_used(NodeId(1), 0, 10));
        assert!(pages.note_used(NodeId(9), 0, MIB));
        assert!(!pages.note_used(NodeId(10), 0, 1), "a task is at work already");
        let whole = |number| (NodeId(number), [Some(Extent::ALL), None]);
        assert_eq!(all_victims(&pages), [whole(2), whole(3), whole(4)]);
        let PagesKept { bytes, reclaims, .. } = pages.kept();
        assert_eq!((bytes, reclaims), (6 * MIB + PAGE_BYTES, 3));
    }

    #[test]
    fn a_file_that_is_alone_keeps_what_lies_near_the_place_in_use() {
        let pages = PageEstimates::default();
        pages.limit(8 * MIB);
        let is_too_much = (0..9).any(|at| pages.note_used(NodeId(1), at * MIB, MIB));
        assert!(is_too_much);
        let before = Extent { start: 0, end: 6 * MIB - 1 };
        assert_eq!(all_victims(&pages), [(NodeId(1), [Some(before), None])]);
        assert_eq!(pages.kept().bytes, 5 * MIB);
        // Backwards, as well.
        pages.note_used(NodeId(1), 20 * MIB, MIB);
        assert!((0..9).any(|at| pages.note_used(NodeId(1), (19 - at) * MIB, MIB)));
        let behind = all_victims(&pages);
        assert!(matches!(behind[..], [(_, [_, Some(Extent { end: Extent::EOF, .. })])]));
    }

    #[test]
    fn no_file_has_more_pages_than_bytes() {
        let pages = PageEstimates::default();
        for _ in 0..100 {
            pages.note_used(NodeId(1), 1, 5000);
        }
        assert_eq!(pages.kept().bytes, 2 * PAGE_BYTES);
        pages.cut(NodeId(1), 10);
        assert_eq!(pages.kept().bytes, PAGE_BYTES);
        pages.note_used(NodeId(1), 0, 10 * PAGE_BYTES);
        pages.dropped(NodeId(1), Extent { start: PAGE_BYTES, end: 3 * PAGE_BYTES - 1 });
        assert_eq!(pages.kept().bytes, 8 * PAGE_BYTES);
        pages.forget(NodeId(1));
        pages.forget(NodeId(2));
        assert_eq!(pages.kept().bytes, 0);
        assert_eq!(all_victims(&pages), []);
    }
}
