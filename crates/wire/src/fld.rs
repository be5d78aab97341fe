//! Sequences: which ranges of FIDs exist and which target holds them (Lustre: fid, fld).

use bytes::Bytes;

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
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

/// Bytes of a reply to `FLD_READ` with what ranges fit in it: a page. If there are more it is answered with `EAGAIN`, and
/// the last range of it is asked for next.
pub const FLD_READ_BYTES: usize = 4096;

/// `struct lu_seq_range_array`: the answer to `FLD_READ`. Little-endian, whatever the message is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LuSeqRangeArray {
    /// The ranges.
    pub ranges: Vec<LuSeqRange>,
}

impl LuSeqRangeArray {
    /// How many ranges fit into one answer.
    pub const RANGES_MAX: usize = (FLD_READ_BYTES - 8) / LuSeqRange::SIZE;

    /// Reads one. Zeros may follow: Lustre answers with a page.
    ///
    /// # Errors
    /// [`DecodeError`] for ranges that are not there, and anything but zeros behind them.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let count = u32::decode(&mut reader)?;
        u32::decode(&mut reader)?;
        if count as usize > reader.remaining() / LuSeqRange::SIZE {
            return Err(DecodeError::Truncated { what: "lu_seq_range_array" });
        }
        let ranges =
            (0..count).map(|_| LuSeqRange::decode(&mut reader)).collect::<Result<_, _>>()?;
        reader.finish_zeros("lu_seq_range_array")?;
        Ok(Self { ranges })
    }

    /// The bytes, without room behind them.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::with_capacity(8 + self.ranges.len() * LuSeqRange::SIZE);
        (self.ranges.len() as u32).encode(&mut writer);
        0u32.encode(&mut writer);
        self.ranges.iter().for_each(|range| range.encode(&mut writer));
        writer.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_and_bounds() {
        assert_eq!(LuSeqRange::SIZE, 24);
        let range = LuSeqRange { start: 4, end: 6, ..LuSeqRange::default() };
        assert!(range.contains(4) && range.contains(5) && !range.contains(6));
    }

    #[test]
    fn an_answer_has_ranges_and_perhaps_room_behind_them() {
        let range =
            |start, index| LuSeqRange { start, end: start + 1, index, ..Default::default() };
        let array = LuSeqRangeArray { ranges: vec![range(0x2_0000_0400, 0), range(7, 1)] };
        let bytes = array.encode();
        assert_eq!((bytes.len(), &bytes[..8]), (56, &[2, 0, 0, 0, 0, 0, 0, 0][..]));
        for length in 0..bytes.len() {
            assert!(LuSeqRangeArray::decode(&bytes.slice(..length)).is_err(), "{length}");
        }
        let mut page = bytes.to_vec();
        page.resize(FLD_READ_BYTES, 0);
        assert_eq!(LuSeqRangeArray::decode(&page.clone().into()), Ok(array));
        page[56] = 1;
        let trailing = DecodeError::Trailing { what: "lu_seq_range_array", bytes: 4040 };
        assert_eq!(LuSeqRangeArray::decode(&page.into()), Err(trailing));
        assert_eq!(LuSeqRangeArray::RANGES_MAX, 170);
    }
}
