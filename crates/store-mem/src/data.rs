//! Sparse bytes in pages, with the state at the last sync.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use sheen_types::{Extent, PAGE_BYTES};

use crate::damage::{Injury, ObjectDamage};

/// What a disk writes whole.
const SECTOR_BYTES: u64 = 512;

type Page = Arc<[u8; PAGE_BYTES as usize]>;

/// Bytes and what of them is on the (imaginary) disk. Pages are shared with the synced state and
/// copied when they change.
#[derive(Clone, Debug, Default)]
struct PageMap {
    pages: BTreeMap<u64, Page>,
    size: u64,
}

/// An object's bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    now: PageMap,
    synced: PageMap,
    harm: ObjectDamage,
}

/// A part of a page.
struct PageSpan {
    page: u64,
    /// In the page.
    start: usize,
    stop: usize,
}

/// The parts of pages that `offset..end` covers.
fn spans(offset: u64, end: u64) -> impl Iterator<Item = PageSpan> {
    (offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(move |page| {
        let base = page * PAGE_BYTES;
        let start = offset.max(base) - base;
        let stop = end.min(base + PAGE_BYTES) - base;
        PageSpan { page, start: start as usize, stop: stop as usize }
    })
}

impl PageMap {
    /// Drops what lies beyond the end.
    fn truncate_to_size(&mut self) {
        let _beyond = self.pages.split_off(&self.size.div_ceil(PAGE_BYTES));
        let within = (self.size % PAGE_BYTES) as usize;
        if within > 0
            && let Some(page) = self.pages.get_mut(&(self.size / PAGE_BYTES))
        {
            Arc::make_mut(page)[within..].fill(0);
        }
    }
}

impl Data {
    /// The end of the object.
    pub(crate) fn size(&self) -> u64 {
        self.now.size
    }

    /// Bytes of all pages.
    pub(crate) fn bytes(&self) -> u64 {
        self.now.pages.len() as u64 * PAGE_BYTES
    }

    /// As it was at the last sync.
    pub(crate) fn synced(&self) -> Self {
        Self { now: self.synced.clone(), synced: self.synced.clone(), harm: self.harm.clone() }
    }

    /// As after a loss of power: what was changed since the last sync is there or not, page by page,
    /// and of one page perhaps only the first sectors, as the numbers of `choose` say.
    pub(crate) fn torn(&self, choose: &mut dyn FnMut() -> u64) -> Self {
        let mut left = self.synced.clone();
        if choose().is_multiple_of(2) {
            left.size = self.now.size;
        }
        let pages: BTreeSet<u64> =
            self.now.pages.keys().chain(self.synced.pages.keys()).copied().collect();
        for page in pages {
            let (now, synced) = (self.now.pages.get(&page), self.synced.pages.get(&page));
            let same = match (now, synced) {
                (Some(now), Some(synced)) => Arc::ptr_eq(now, synced) || now == synced,
                _ => false,
            };
            if same {
                continue;
            }
            let sectors = choose() % (2 * PAGE_BYTES / SECTOR_BYTES);
            let kept = ((sectors * SECTOR_BYTES) as usize).min(PAGE_BYTES as usize);
            let mut bytes = synced.map_or([0; PAGE_BYTES as usize], |page| **page);
            match now {
                Some(now) => bytes[..kept].copy_from_slice(&now[..kept]),
                None => bytes[..kept].fill(0),
            }
            left.pages.insert(page, Arc::new(bytes));
        }
        // Bytes beyond the end are none.
        left.truncate_to_size();
        Self { now: left.clone(), synced: left, harm: self.harm.clone() }
    }

    /// What is damaged of it.
    pub(crate) fn harm(&self) -> &ObjectDamage {
        &self.harm
    }

    /// Damages it; says whether there was anything to be damaged.
    pub(crate) fn injure(&mut self, injury: Injury) -> bool {
        let size = self.now.size;
        match injury {
            Injury::Lost if size > 0 => {
                (self.now, self.synced) = (PageMap::default(), PageMap::default());
                self.harm.lose();
            }
            Injury::Cut(to) if to < size && !self.harm.is_whole() => {
                self.harm.cut(size);
                for bare in [&mut self.now, &mut self.synced] {
                    bare.size = bare.size.min(to);
                    bare.truncate_to_size();
                }
            }
            Injury::Flipped(at) if at < size && self.now.pages.contains_key(&(at / PAGE_BYTES)) => {
                self.harm.flip(at);
                for bare in [&mut self.now, &mut self.synced] {
                    if let Some(page) = bare.pages.get_mut(&(at / PAGE_BYTES)) {
                        Arc::make_mut(page)[(at % PAGE_BYTES) as usize] ^= 1;
                    }
                }
            }
            _ => return false,
        }
        true
    }

    /// Whether a read of these bytes fails.
    pub(crate) fn is_damaged_in(&self, extent: Extent) -> bool {
        self.harm.is_in(extent)
    }

    /// Makes the bytes durable.
    pub(crate) fn sync(&mut self) {
        self.synced = self.now.clone();
    }

    fn page(&mut self, page: u64) -> &mut [u8; PAGE_BYTES as usize] {
        let fresh = || Arc::new([0; PAGE_BYTES as usize]);
        Arc::make_mut(self.now.pages.entry(page).or_insert_with(fresh))
    }

    /// Pages that filling the range would add.
    pub(crate) fn missing_pages(&self, offset: u64, length: u64) -> u64 {
        if length == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE_BYTES, (offset + length).div_ceil(PAGE_BYTES));
        last - first - self.now.pages.range(first..last).count() as u64
    }

    /// Short at the end.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Bytes {
        let end = self.now.size.min(offset.saturating_add(length as u64));
        if offset >= end {
            return Bytes::new();
        }
        let mut out = vec![0; (end - offset) as usize];
        for PageSpan { page, start, stop } in spans(offset, end) {
            if let Some(held) = self.now.pages.get(&page) {
                let at = (page * PAGE_BYTES + start as u64 - offset) as usize;
                out[at..at + stop - start].copy_from_slice(&held[start..stop]);
            }
        }
        out.into()
    }

    /// Grows as needed.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        self.harm.heal(offset, end, self.now.size);
        for PageSpan { page, start, stop } in spans(offset, end) {
            let at = (page * PAGE_BYTES + start as u64 - offset) as usize;
            self.page(page)[start..stop].copy_from_slice(&bytes[at..at + stop - start]);
        }
        self.now.size = self.now.size.max(end);
    }

    /// Drops what lies beyond.
    pub(crate) fn truncate(&mut self, size: u64) {
        if size < self.now.size {
            self.harm.heal(size, u64::MAX, self.now.size);
            let _beyond = self.now.pages.split_off(&size.div_ceil(PAGE_BYTES));
            let within = (size % PAGE_BYTES) as usize;
            if within > 0 && self.now.pages.contains_key(&(size / PAGE_BYTES)) {
                self.page(size / PAGE_BYTES)[within..].fill(0);
            }
        }
        self.now.size = size;
    }

    /// Zeros, and frees whole pages.
    pub(crate) fn punch(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.now.size.next_multiple_of(PAGE_BYTES));
        self.harm.heal(offset, end, self.now.size);
        for PageSpan { page, start, stop } in spans(offset, end.max(offset)) {
            if start == 0 && stop == PAGE_BYTES as usize {
                self.now.pages.remove(&page);
            } else if self.now.pages.contains_key(&page) {
                self.page(page)[start..stop].fill(0);
            }
        }
    }

    /// Fills the range with pages.
    pub(crate) fn allocate(&mut self, offset: u64, length: u64, keep_size: bool) {
        if length == 0 {
            return;
        }
        for PageSpan { page, .. } in spans(offset, offset + length) {
            self.page(page);
        }
        if !keep_size {
            self.now.size = self.now.size.max(offset + length);
        }
    }

    /// The next data or hole.
    pub(crate) fn seek(&self, offset: u64, hole: bool) -> Option<u64> {
        if offset >= self.now.size {
            return None;
        }
        let first = offset / PAGE_BYTES;
        let page = if hole {
            (first..).find(|page| !self.now.pages.contains_key(page))?
        } else {
            *self.now.pages.range(first..).next()?.0
        };
        let found = offset.max(page * PAGE_BYTES);
        if hole {
            return Some(found.min(self.now.size));
        }
        (found < self.now.size).then_some(found)
    }
}
