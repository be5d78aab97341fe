//! What lseek(2) looks for besides offsets.

/// What lseek(2) looks for in a file, with its numbers. OST_SEEK brings the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is data (`SEEK_DATA`).
    Data = 3,
    /// The next byte that is in a hole, or the end (`SEEK_HOLE`).
    Hole = 4,
}

impl Seek {
    /// What `whence` means; `None` for what is neither.
    #[must_use]
    pub fn of_whence(whence: u32) -> Option<Self> {
        [Self::Data, Self::Hole].into_iter().find(|what| *what as u32 == whence)
    }
}
