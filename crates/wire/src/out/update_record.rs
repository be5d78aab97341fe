//! The record of a change over several MDTs: each of them keeps it, in the transaction of its part, until the change is
//! durable on all, and sends it to one that has lost its own (Lustre: `llog_update_record`; the format is ours).
//!
//! Always little-endian. [`FORMAT`] is part of what MDTs agree on when they connect.

use bytes::Bytes;
use sheen_types::{ChangeId, LogicalTime, MdtIndex, Transno, Uuid};

use super::{ObjectUpdate, TooMuch, decode_updates, encode_updates, fitting, padding_behind};
use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::reply_data::ReplyRecord;
use crate::wire_struct;

/// What we write, and agree on with other MDTs: it is raised with each change of a record, or of what MDTs say to each other.
pub const FORMAT: u32 = 2;
/// The first one that we read. Its records are like ours; its MDTs do not say what is under way
/// ([`Recovered::under_way`](super::Recovered::under_way)).
const FORMAT_MIN: u32 = 1;

wire_struct! {
    /// What a client was answered, so that its resend is answered the same by who redoes the change.
    pub struct ClientAnswer {
        /// The client.
        client: Uuid,
        /// The record.
        record: ReplyRecord,
    }
}

/// What one MDT changes: one transaction of its store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Which MDT.
    pub mdt: MdtIndex,
    /// In order.
    pub updates: Vec<ObjectUpdate>,
}

/// A transaction that was not durable when a part was built on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependency {
    /// On which MDT.
    pub mdt: MdtIndex,
    /// Its number there.
    pub transno: Transno,
    /// Its logical time.
    pub time: LogicalTime,
    /// As that MDT's store applied it, in the store's own format.
    pub changes: Bytes,
    /// What its client was answered.
    pub answer: Option<ClientAnswer>,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateRecord {
    /// The change's name.
    pub id: ChangeId,
    /// Its logical time, on all MDTs.
    pub time: LogicalTime,
    /// What its client was answered.
    pub answer: Option<ClientAnswer>,
    /// The parts of all MDTs that it changes, that of the coordinator included.
    pub parts: Vec<Part>,
    /// What the parts build on.
    pub dependencies: Vec<Dependency>,
}

wire_struct! {
    /// The beginning of a record. An answer follows, then parts, then dependencies.
    pub struct UpdateRecordFixed {
        /// [`FORMAT`], or an earlier one.
        format: u32,
        /// 1 if an answer follows.
        answers: u16,
        /// See [`ChangeId`].
        coordinator: MdtIndex,
        /// See [`ChangeId`].
        transno: Transno,
        /// Logical time.
        time: LogicalTime,
        /// How many parts follow.
        parts: u32,
        /// How many dependencies follow.
        dependencies: u32,
    }
}

wire_struct! {
    /// The beginning of a part. Its updates follow, as a request has them.
    pub struct PartFixed {
        /// Which MDT.
        mdt: MdtIndex,
        /// Unused.
        padding: u16,
        /// Bytes of updates.
        length: u32,
    }
}

wire_struct! {
    /// The beginning of a dependency. An answer follows, then changes, filled up to a multiple of 8.
    pub struct DependencyFixed {
        /// On which MDT.
        mdt: MdtIndex,
        /// 1 if an answer follows.
        answers: u16,
        /// Bytes of changes.
        length: u32,
        /// Its number.
        transno: Transno,
        /// Logical time.
        time: LogicalTime,
    }
}

impl UpdateRecord {
    /// The part of an MDT.
    #[must_use]
    pub fn part_of(&self, mdt: MdtIndex) -> Option<&Part> {
        self.parts.iter().find(|part| part.mdt == mdt)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`DecodeError`], also of another format.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let fixed = UpdateRecordFixed::decode(&mut reader)?;
        if !(FORMAT_MIN..=FORMAT).contains(&fixed.format) {
            let value = fixed.format.into();
            return Err(DecodeError::Illegal { what: "format of an update record", value });
        }
        let answer = read_answer(&mut reader, fixed.answers)?;
        let parts = (0..fixed.parts).map(|_| Part::read(&mut reader)).collect::<Result<_, _>>()?;
        let dependencies = (0..fixed.dependencies).map(|_| Dependency::read(&mut reader));
        let dependencies = dependencies.collect::<Result<_, _>>()?;
        reader.finish("update record")?;
        let id = ChangeId { coordinator: fixed.coordinator, transno: fixed.transno };
        Ok(Self { id, time: fixed.time, answer, parts, dependencies })
    }

    /// The bytes.
    ///
    /// # Errors
    /// [`TooMuch`] of anything.
    pub fn encode(&self) -> Result<Bytes, TooMuch> {
        let mut writer = Writer::default();
        let fixed = UpdateRecordFixed {
            format: FORMAT,
            answers: self.answer.is_some().into(),
            coordinator: self.id.coordinator,
            transno: self.id.transno,
            time: self.time,
            parts: fitting(self.parts.len(), "parts of a change")?,
            dependencies: fitting(self.dependencies.len(), "dependencies of a change")?,
        };
        fixed.encode(&mut writer);
        self.answer.iter().for_each(|answer| answer.encode(&mut writer));
        self.parts.iter().try_for_each(|part| part.write(&mut writer))?;
        self.dependencies.iter().try_for_each(|dependency| dependency.write(&mut writer))?;
        Ok(writer.into_bytes())
    }
}

impl Part {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let fixed = PartFixed::decode(reader)?;
        let updates = reader.bytes(fixed.length as usize, "updates of a part")?;
        Ok(Self { mdt: fixed.mdt, updates: decode_updates(&updates)? })
    }

    fn write(&self, writer: &mut Writer) -> Result<(), TooMuch> {
        let updates = encode_updates(&self.updates)?;
        let length = fitting(updates.len(), "updates of a part")?;
        PartFixed { mdt: self.mdt, padding: 0, length }.encode(writer);
        writer.put(&updates);
        Ok(())
    }
}

impl Dependency {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let fixed = DependencyFixed::decode(reader)?;
        let answer = read_answer(reader, fixed.answers)?;
        let length = fixed.length as usize;
        let changes = reader.bytes(length, "changes of a dependency")?;
        reader.bytes(padding_behind(length), "changes of a dependency")?;
        Ok(Self { mdt: fixed.mdt, transno: fixed.transno, time: fixed.time, changes, answer })
    }

    fn write(&self, writer: &mut Writer) -> Result<(), TooMuch> {
        let fixed = DependencyFixed {
            mdt: self.mdt,
            answers: self.answer.is_some().into(),
            length: fitting(self.changes.len(), "changes of a dependency")?,
            transno: self.transno,
            time: self.time,
        };
        fixed.encode(writer);
        self.answer.iter().for_each(|answer| answer.encode(writer));
        writer.put(&self.changes);
        writer.zeros(padding_behind(self.changes.len()));
        Ok(())
    }
}

fn read_answer(reader: &mut Reader<'_>, answers: u16) -> Result<Option<ClientAnswer>, DecodeError> {
    match answers {
        0 => Ok(None),
        1 => ClientAnswer::decode(reader).map(Some),
        _ => Err(DecodeError::Illegal { what: "answers of a change", value: answers.into() }),
    }
}

#[cfg(test)]
mod tests {
    use sheen_types::{Fid, Xid};

    use super::*;
    use crate::out::UpdateType;

    fn answer(xid: u64) -> ClientAnswer {
        let record =
            ReplyRecord { transno: Transno(9), xid: Xid(xid), tag: 3, ..Default::default() };
        ClientAnswer { client: Uuid::new("b5a2"), record }
    }

    fn record() -> UpdateRecord {
        let insert = ObjectUpdate {
            kind: UpdateType::INDEX_INSERT,
            fid: Fid::ROOT,
            params: vec![Bytes::from_static(b"name\0"), Bytes::from_static(&[7; 16])],
            ..ObjectUpdate::default()
        };
        let create = ObjectUpdate { kind: UpdateType::CREATE, ..ObjectUpdate::default() };
        UpdateRecord {
            id: ChangeId { coordinator: MdtIndex(1), transno: Transno(1 << 32 | 5) },
            time: LogicalTime(77),
            answer: Some(answer(1)),
            parts: vec![
                Part { mdt: MdtIndex(0), updates: vec![insert] },
                Part { mdt: MdtIndex(1), updates: vec![create] },
            ],
            dependencies: vec![
                Dependency { mdt: MdtIndex(0), answer: Some(answer(2)), ..Dependency::default() },
                Dependency {
                    changes: Bytes::from_static(b"changes"),
                    time: LogicalTime(3),
                    ..Dependency::default()
                },
            ],
        }
    }

    /// It would be the time of all later changes, whose order it is.
    #[test]
    fn a_time_behind_which_there_is_none_is_refused() {
        let at = |time| UpdateRecord { time: LogicalTime(time), ..record() };
        let decode =
            |record: UpdateRecord| UpdateRecord::decode(&record.encode().expect("it fits"));
        assert_eq!(decode(at(i64::MAX as u64)), Ok(at(i64::MAX as u64)));
        for time in [1 << 63, u64::MAX] {
            assert!(decode(at(time)).is_err(), "{time:#x}");
        }
    }

    #[test]
    fn a_record_comes_back_and_cut_anywhere_it_is_refused() {
        let bytes = record().encode().expect("it fits");
        assert_eq!(UpdateRecord::decode(&bytes), Ok(record()));
        for length in 0..bytes.len() {
            assert!(UpdateRecord::decode(&bytes.slice(..length)).is_err(), "{length}");
        }
        let longer = Bytes::from([&bytes[..], &[0]].concat());
        let trailing = DecodeError::Trailing { what: "update record", bytes: 1 };
        assert_eq!(UpdateRecord::decode(&longer), Err(trailing));
        let nothing = UpdateRecord::default();
        let empty = nothing.encode().expect("it fits");
        assert_eq!((empty.len(), UpdateRecord::decode(&empty)), (32, Ok(nothing)));
    }

    /// A store may have some since an earlier build.
    #[test]
    fn a_record_of_the_first_format_is_read() {
        let mut bytes = record().encode().expect("it fits").to_vec();
        assert_eq!(bytes[0], 2);
        bytes[0] = 1;
        assert_eq!(UpdateRecord::decode(&bytes.into()), Ok(record()));
    }

    #[test]
    fn parts_are_found_by_mdt() {
        let record = record();
        let kind = |mdt| record.part_of(MdtIndex(mdt)).map(|part| part.updates[0].kind);
        assert_eq!(kind(0), Some(UpdateType::INDEX_INSERT));
        assert_eq!(kind(1), Some(UpdateType::CREATE));
        assert_eq!(kind(2), None);
    }

    #[test]
    fn another_format_and_counts_that_cannot_be_are_refused() {
        let bytes = record().encode().expect("it fits");
        let with = |at: usize, value: &[u8]| {
            let mut changed = bytes.to_vec();
            changed[at..at + value.len()].copy_from_slice(value);
            UpdateRecord::decode(&changed.into()).expect_err("refused")
        };
        let format = DecodeError::Illegal { what: "format of an update record", value: 3 };
        assert_eq!(with(0, &[3]), format);
        with(0, &[0]);
        assert_eq!(with(4, &[2]), DecodeError::Illegal { what: "answers of a change", value: 2 });
        for at in [24, 28] {
            for count in [3u32, 0xffff, u32::MAX] {
                with(at, &count.to_le_bytes());
            }
        }
    }
}
