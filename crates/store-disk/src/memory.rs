//! What a store's memory is used for.

use crate::limits;

/// Bytes of each use. Together they are what the store was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// What the database holds, as records.
    pub(crate) clean: usize,
    /// The active group.
    pub(crate) group: usize,
    /// fjall's cache of blocks.
    pub(crate) blocks: usize,
}

impl Memory {
    /// Of `bytes` in all, or of the least that a store needs: a quarter for the group, at most, and the rest for reading.
    pub(crate) fn of(bytes: usize) -> Self {
        let bytes = bytes.max(limits::CACHE_BYTES_MIN);
        let group = (bytes / 4).min(limits::GROUP_BYTES_MAX);
        let reading = bytes - group;
        Self { clean: reading / 2, group, blocks: reading / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_has_a_most_and_the_rest_is_for_reading() {
        let mib = |count: usize| count << 20;
        let small = Memory { clean: mib(12), group: mib(8), blocks: mib(12) };
        assert_eq!(Memory::of(mib(32)), small);
        let large = Memory { clean: mib(496), group: mib(32), blocks: mib(496) };
        assert_eq!(Memory::of(mib(1024)), large);
        assert_eq!(Memory::of(0), Memory::of(limits::CACHE_BYTES_MIN));
    }
}
