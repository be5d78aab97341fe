//! Sequences: which ranges of FIDs exist and which target holds them (Lustre: fid, fld).

use crate::{wire_enum, wire_struct};

wire_enum! {
    /// What holds a sequence (`LU_SEQ_RANGE_*`, low bits of `lsr_flags`).
    pub enum SeqRangeFlags: u32 {
        /// `LU_SEQ_RANGE_MDT`.
        MDT = 0,
        /// `LU_SEQ_RANGE_OST`.
        OST = 1,
        /// `LU_SEQ_RANGE_ANY`.
        ANY = 3,
    }
}

wire_struct! {
    /// `struct lu_seq_range`: sequences from `start` up to but without `end`.
    pub struct LuSeqRange {
        /// First sequence.
        start: u64,
        /// First sequence behind.
        end: u64,
        /// Index of the target that holds them.
        index: u32,
        /// What kind of target.
        flags: SeqRangeFlags,
    }
}

impl LuSeqRange {
    /// Whether `seq` is one of them.
    #[must_use]
    pub fn contains(&self, seq: u64) -> bool {
        (self.start..self.end).contains(&seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Wire;

    #[test]
    fn size_and_bounds() {
        assert_eq!(LuSeqRange::SIZE, 24);
        let range = LuSeqRange { start: 4, end: 6, ..LuSeqRange::default() };
        assert!(range.contains(4) && range.contains(5) && !range.contains(6));
    }
}
