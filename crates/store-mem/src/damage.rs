//! Damage as another hand would do it to a disk, and how it is found: as a store with checksums of
//! blocks and durable sizes does (decision 0012), but certain at once, whatever is open.

use std::collections::BTreeSet;

use sheen_store::{Damage, Finding, StoreError};
use sheen_types::{Extent, Fid, PAGE_BYTES};

/// What is done to the data of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injury {
    /// It is deleted.
    Lost,
    /// All from this byte on is gone.
    Cut(u64),
    /// A bit of this byte is another.
    Flipped(u64),
}

/// What is damaged of an object's data, and lies with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectDamage {
    lost: bool,
    /// How long it was before it was cut.
    expected: Option<u64>,
    /// Blocks whose bytes are not those that were written.
    blocks: BTreeSet<u64>,
}

/// The blocks that `offset..end` touches.
fn blocks_of(offset: u64, end: u64) -> std::ops::Range<u64> {
    offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)
}

impl ObjectDamage {
    pub(crate) fn lose(&mut self) {
        *self = Self { lost: true, ..Self::default() };
    }

    pub(crate) fn cut(&mut self, expected: u64) {
        self.expected.get_or_insert(expected);
    }

    pub(crate) fn flip(&mut self, offset: u64) {
        self.blocks.insert(offset / PAGE_BYTES);
    }

    pub(crate) fn is_none(&self) -> bool {
        !self.lost && self.expected.is_none() && self.blocks.is_empty()
    }

    /// Whether all of it counts as damaged: what was behind its end is unknown.
    pub(crate) fn is_whole(&self) -> bool {
        self.lost || self.expected.is_some()
    }

    /// Whether a read of these bytes fails.
    pub(crate) fn is_in(&self, extent: Extent) -> bool {
        let (first, last) = (extent.start / PAGE_BYTES, extent.end / PAGE_BYTES);
        self.is_whole() || self.blocks.range(first..=last).next().is_some()
    }

    /// Whether it is there and long enough.
    pub(crate) fn check(&self, size: u64) -> Result<(), Damage> {
        match (self.lost, self.expected) {
            (true, _) => Err(Damage::Lost),
            (false, Some(expected)) => Err(Damage::Short { expected, found: size }),
            (false, None) => Ok(()),
        }
    }

    /// Whether these bytes can be read.
    pub(crate) fn check_read(&self, offset: u64, end: u64, size: u64) -> Result<(), Damage> {
        self.check(size)?;
        let wrong = self.blocks.range(blocks_of(offset, end.min(size).max(offset))).next();
        wrong.map_or(Ok(()), |block| Err(Damage::Checksum { offset: block * PAGE_BYTES }))
    }

    /// Whether the rest of the blocks can be kept when these bytes are overwritten: a write that covers
    /// all that was known of a block heals it, one at its end leaves it as it is.
    pub(crate) fn check_write(&self, offset: u64, end: u64, size: u64) -> Result<(), Damage> {
        self.check(size)?;
        for block in self.blocks.range(blocks_of(offset, end)) {
            let base = block * PAGE_BYTES;
            let known = size.saturating_sub(base).min(PAGE_BYTES);
            let start = offset.saturating_sub(base);
            let covers = start == 0 && end - base >= known;
            if !covers && start != known {
                return Err(Damage::Checksum { offset: base });
            }
        }
        Ok(())
    }

    /// Whether the block in which the data is to end can be kept.
    pub(crate) fn check_truncate(&self, to: u64, size: u64) -> Result<(), Damage> {
        self.check(size)?;
        let (block, left) = (to / PAGE_BYTES, to % PAGE_BYTES);
        match left > 0 && to < size && self.blocks.contains(&block) {
            true => Err(Damage::Checksum { offset: block * PAGE_BYTES }),
            false => Ok(()),
        }
    }

    /// Blocks of which `offset..end` has all that there was of it, with `size` bytes before, are other ones
    /// now.
    pub(crate) fn heal(&mut self, offset: u64, end: u64, size: u64) {
        self.blocks.retain(|block| {
            let base = block * PAGE_BYTES;
            base < offset || base + size.saturating_sub(base).min(PAGE_BYTES) > end
        });
    }

    /// What a look through all of it finds.
    pub(crate) fn findings(&self, size: u64) -> Vec<Damage> {
        let whole = self.check(size).err();
        let blocks =
            self.blocks.iter().map(|block| Damage::Checksum { offset: block * PAGE_BYTES });
        whole.into_iter().chain(blocks).collect()
    }
}

/// What the caller of the store gets.
pub(crate) fn error(object: Fid, damage: Damage) -> StoreError {
    StoreError::Damaged(Box::new(finding(object, damage)))
}

pub(crate) fn finding(object: Fid, damage: Damage) -> Finding {
    Finding { object, path: format!("memory/{object}"), damage }
}
