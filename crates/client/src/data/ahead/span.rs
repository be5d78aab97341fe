//! Bytes of a file, from the first to the one behind the last.

/// A range of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    pub(super) const ALL: Self = Self::new(0, u64::MAX);

    pub(super) const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    pub(super) fn len(self) -> u64 {
        self.end - self.start
    }

    /// The range of both, with what lies between them.
    pub(super) fn with(self, other: Self) -> Self {
        Self::new(self.start.min(other.start), self.end.max(other.end))
    }

    /// How many bytes are in both.
    pub(super) fn overlap(self, other: Self) -> u64 {
        self.end.min(other.end).saturating_sub(self.start.max(other.start))
    }
}
