//! Byte ranges.

use std::fmt;

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
