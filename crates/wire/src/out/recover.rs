//! What an MDT that has started anew asks of the other MDTs, and their records of changes. All of it is ours, and little-endian.

use bytes::Bytes;
use sheen_types::{ChangeId, MdtIndex, Transno};

use super::{Complete, TooMuch, fitting, padding_behind};
use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::wire_struct;

/// Bytes of records in one answer, at most.
pub const RECOVERED_BYTES_MAX: usize = 24 << 10;

wire_struct! {
    /// The parameter of `RECOVER`. The records are asked for in the order of their names.
    pub struct Recover {
        /// How often the MDT that asks has been started: from its first answer on nothing is applied that came from an
        /// earlier start.
        starts: u32,
        /// The name of the last record that it has; all zero for none.
        coordinator: MdtIndex,
        /// Unused.
        padding: u16,
        /// See `coordinator`.
        transno: Transno,
        /// Bytes of the next one that it has.
        offset: u32,
        /// Unused.
        padding2: u32,
    }
}

impl Recover {
    /// Behind which record it asks.
    #[must_use]
    pub fn after(&self) -> ChangeId {
        ChangeId { coordinator: self.coordinator, transno: self.transno }
    }
}

wire_struct! {
    /// The beginning of the answer to `RECOVER`. Pieces of records follow, then exceptions of what is complete, then what is
    /// under way.
    pub struct RecoveredFixed {
        /// How often the MDT that answers has been started.
        starts: u32,
        /// How many pieces follow.
        pieces: u32,
        /// 1 if there are more than these.
        more: u32,
        /// How many exceptions follow.
        exceptions: u32,
        /// See [`Recovered::complete`].
        upto: Transno,
        /// How many changes under way follow.
        under_way: u32,
        /// Unused.
        padding: u32,
    }
}

wire_struct! {
    /// A change of the MDT that answers which has not been applied everywhere, and is excluded where it has.
    pub struct ChangeUnderWay {
        /// Its number.
        transno: Transno,
        /// The number of its exclusion on the MDT that asks.
        exclusion: u64,
    }
}

wire_struct! {
    /// The beginning of a piece. Its bytes follow, filled up to a multiple of 8.
    pub struct RecordPieceFixed {
        /// The record's name.
        coordinator: MdtIndex,
        /// Unused.
        padding: u16,
        /// Bytes of the whole record.
        total: u32,
        /// The record's name.
        transno: Transno,
        /// Where in the record the piece lies.
        offset: u32,
        /// Bytes that follow.
        length: u32,
    }
}

/// A record, or a part of one that is too long for one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordPiece {
    /// Of which change.
    pub id: ChangeId,
    /// Bytes of the whole record.
    pub total: u32,
    /// Where in the record this lies.
    pub offset: u32,
    /// The bytes.
    pub bytes: Bytes,
}

/// The answer to `RECOVER`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// How often the MDT that answers has been started.
    pub starts: u32,
    /// There are more than these.
    pub has_more: bool,
    /// In the order of the records.
    pub pieces: Vec<RecordPiece>,
    /// Which changes of the MDT that answers are complete: their records are gone, and may come back where that was not durable.
    pub complete: Complete,
    /// Of the changes whose records are in this answer those that the MDT that answers coordinates and has not seen applied
    /// everywhere yet: the MDT that asks hides its parts of them until they are released there.
    pub under_way: Vec<ChangeUnderWay>,
}

impl Recovered {
    /// Reads an answer.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let fixed = RecoveredFixed::decode(&mut reader)?;
        let pieces = (0..fixed.pieces).map(|_| RecordPiece::read(&mut reader));
        let pieces = pieces.collect::<Result<_, _>>()?;
        let except = (0..fixed.exceptions).map(|_| Transno::decode(&mut reader));
        let complete = Complete { upto: fixed.upto, except: except.collect::<Result<_, _>>()? };
        let under_way = (0..fixed.under_way).map(|_| ChangeUnderWay::decode(&mut reader));
        let under_way = under_way.collect::<Result<_, _>>()?;
        reader.finish("records of changes")?;
        Ok(Self { starts: fixed.starts, has_more: fixed.more != 0, pieces, complete, under_way })
    }

    /// The bytes.
    ///
    /// # Errors
    /// [`TooMuch`] of anything.
    pub fn encode(&self) -> Result<Bytes, TooMuch> {
        let mut writer = Writer::default();
        let fixed = RecoveredFixed {
            starts: self.starts,
            pieces: fitting(self.pieces.len(), "records of changes")?,
            more: self.has_more.into(),
            exceptions: fitting(self.complete.except.len(), "exceptions of complete changes")?,
            upto: self.complete.upto,
            under_way: fitting(self.under_way.len(), "changes under way")?,
            padding: 0,
        };
        fixed.encode(&mut writer);
        self.pieces.iter().try_for_each(|piece| piece.write(&mut writer))?;
        self.complete.except.iter().for_each(|transno| transno.encode(&mut writer));
        self.under_way.iter().for_each(|change| change.encode(&mut writer));
        Ok(writer.into_bytes())
    }
}

impl RecordPiece {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let RecordPieceFixed { coordinator, total, transno, offset, length, .. } =
            RecordPieceFixed::decode(reader)?;
        if u64::from(offset) + u64::from(length) > u64::from(total) {
            return Err(DecodeError::Illegal { what: "length of a record", value: length.into() });
        }
        let bytes = reader.bytes(length as usize, "record of a change")?;
        reader.bytes(padding_behind(bytes.len()), "record of a change")?;
        Ok(Self { id: ChangeId { coordinator, transno }, total, offset, bytes })
    }

    fn write(&self, writer: &mut Writer) -> Result<(), TooMuch> {
        let fixed = RecordPieceFixed {
            coordinator: self.id.coordinator,
            padding: 0,
            total: self.total,
            transno: self.id.transno,
            offset: self.offset,
            length: fitting(self.bytes.len(), "record of a change")?,
        };
        fixed.encode(writer);
        writer.put(&self.bytes);
        writer.zeros(padding_behind(self.bytes.len()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovered() -> Recovered {
        let piece = |transno, offset, bytes: &'static [u8]| RecordPiece {
            id: ChangeId { coordinator: MdtIndex(1), transno: Transno(transno) },
            total: 9,
            offset,
            bytes: Bytes::from_static(bytes),
        };
        let pieces = vec![piece(4, 0, b"123456789"), piece(7, 5, b"678")];
        let complete = Complete { upto: Transno(9), except: vec![Transno(4), Transno(7)] };
        let under_way = vec![ChangeUnderWay { transno: Transno(7), exclusion: 12 }];
        Recovered { starts: 3, has_more: true, pieces, complete, under_way }
    }

    #[test]
    fn records_come_back_and_cut_anywhere_they_are_refused() {
        let bytes = recovered().encode().expect("it fits");
        assert_eq!(Recovered::decode(&bytes), Ok(recovered()));
        for length in 0..bytes.len() {
            assert!(Recovered::decode(&bytes.slice(..length)).is_err(), "{length}");
        }
        let longer = Bytes::from([&bytes[..], &[0]].concat());
        assert!(Recovered::decode(&longer).is_err());
        let nothing = Recovered::default();
        assert_eq!(Recovered::decode(&nothing.encode().expect("it fits")), Ok(nothing));
        assert_eq!((Recover::SIZE, RecoveredFixed::SIZE, RecordPieceFixed::SIZE), (24, 32, 24));
    }

    #[test]
    fn a_piece_that_is_longer_than_its_record_and_counts_that_cannot_be_are_refused() {
        let bytes = recovered().encode().expect("it fits");
        let with = |at: usize, value: u32| {
            let mut changed = bytes.to_vec();
            changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
            Recovered::decode(&changed.into()).expect_err("refused")
        };
        // Counts of pieces, exceptions and changes under way, the first piece's total, offset and length.
        for (at, value) in [
            (4, 3),
            (4, u32::MAX),
            (12, 3),
            (12, u32::MAX),
            (24, 2),
            (24, u32::MAX),
            (36, 8),
            (48, 1),
            (52, u32::MAX),
            (52, 10),
        ] {
            with(at, value);
        }
    }
}
