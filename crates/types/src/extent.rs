//! Byte ranges.

use std::fmt;

/// Logarithm of [`PAGE_BYTES`].
pub const PAGE_BITS: u8 = 12;
/// Bytes of a page: what Lustre counts bulk, grants and caches in, and of the kernels that this runs on.
pub const PAGE_BYTES: u64 = 1 << PAGE_BITS;

/// A range of bytes, both ends included, as extent locks have it (`struct ldlm_extent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First byte.
    pub start: u64,
    /// Last byte; [`Extent::EOF`] for "to the end, wherever that will be".
    pub end: u64,
}

impl Extent {
    /// `OBD_OBJECT_EOF`.
    pub const EOF: u64 = u64::MAX;
    /// Every byte of an object.
    pub const ALL: Extent = Extent { start: 0, end: Self::EOF };

    /// The `length` bytes from `start`; `None` if there are none or they pass the end of the
    /// number line.
    #[must_use]
    pub fn of_length(start: u64, length: u64) -> Option<Self> {
        let end = start.checked_add(length.checked_sub(1)?)?;
        Some(Self { start, end })
    }

    /// The pages of which it has a byte, whole.
    #[must_use]
    pub fn whole_pages(self) -> Self {
        Self { start: self.start & !(PAGE_BYTES - 1), end: self.end | (PAGE_BYTES - 1) }
    }

    /// Whether the two share a byte.
    #[must_use]
    pub fn overlaps(&self, other: &Extent) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Whether every byte of `other` is in this range.
    #[must_use]
    pub fn contains(&self, other: &Extent) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The bytes in both ranges.
    #[must_use]
    pub fn intersection(&self, other: &Extent) -> Option<Extent> {
        self.overlaps(other)
            .then(|| Extent { start: self.start.max(other.start), end: self.end.min(other.end) })
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "[{}->{}]", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole_up_to_the_end_of_the_number_line() {
        let pages = |start, end| Extent { start, end }.whole_pages();
        assert_eq!(pages(0, 0), Extent { start: 0, end: 4095 });
        assert_eq!(pages(4095, 4096), Extent { start: 0, end: 8191 });
        assert_eq!(pages(4096, 8191), Extent { start: 4096, end: 8191 });
        assert_eq!(pages(4097, Extent::EOF), Extent { start: 4096, end: Extent::EOF });
    }
}
