//! Records with their places: header, blocks, padding.

use std::fmt;

use bytes::Bytes;
use sheen_wire::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use sheen_wire::llog::{
    LLOG_BITMAP_AT, LLOG_CHUNK_BYTES, LlogFlags, LlogHeaderFixed, LlogLogHdr, LlogRecHdr,
    LlogRecTail, LlogRecordType,
};
use sheen_wire::mgs::{CfgMarker, ConfigCommand, LustreCfg, MarkerFlags};
use sheen_wire::text::Chars;

use crate::section::Section;

/// Words of the bitmap in the header.
const BITMAP_WORDS: usize = (LLOG_CHUNK_BYTES - LLOG_BITMAP_AT - LlogRecTail::SIZE) / 4;
/// Records that a log can hold, the header included: one bit each.
pub const RECORDS_MAX: u32 = (BITMAP_WORDS * 32) as u32;
/// Bytes of the smallest record: header and tail.
const RECORD_BYTES_MIN: usize = LlogRecHdr::SIZE + LlogRecTail::SIZE;
/// `lrh_len` of the shortest configuration record, as the header's `llh_size` says it.
const CONFIG_RECORD_BYTES: u32 = 80;

/// Why a log cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogError {
    /// It has as many records as a log can have.
    Full,
    /// A record is longer than a block.
    TooLong,
    /// The bytes are no record.
    Decode(DecodeError),
}

impl fmt::Display for LogError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => out.write_str("the log is full"),
            Self::TooLong => out.write_str("the record is longer than a block"),
            Self::Decode(error) => write!(out, "no configuration record: {error}"),
        }
    }
}

impl std::error::Error for LogError {}

impl From<DecodeError> for LogError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// One record and its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// From 1 on; padding takes indexes too.
    pub index: u32,
    /// What it says.
    pub config: LustreCfg,
}

impl LogRecord {
    /// The marker in it, if it is one.
    #[must_use]
    pub fn marker(&self) -> Option<CfgMarker> {
        if self.config.command != ConfigCommand::MARKER {
            return None;
        }
        let bytes = self.config.buffers.get(1)?;
        CfgMarker::decode(&mut Reader::new(bytes, ByteOrder::Little)).ok()
    }

    fn set_marker(&mut self, marker: &CfgMarker) {
        let mut writer = Writer::with_capacity(CfgMarker::SIZE);
        marker.encode(&mut writer);
        self.config.buffers = vec![Bytes::new(), writer.into_bytes()];
    }

    /// The record as a log holds it: header, configuration, tail.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut writer = Writer::with_capacity(256);
        self.config.encode(&mut writer);
        frame(LlogRecordType::OBD_CFG, self.index, &writer.into_bytes())
    }

    /// Reads one record that fills `bytes`.
    ///
    /// # Errors
    /// See [`LogError::Decode`].
    pub fn from_bytes(bytes: &Bytes) -> Result<Self, LogError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let record = Self::read(&mut reader)?;
        reader.finish("llog record")?;
        record.ok_or(LogError::Decode(DecodeError::Illegal { what: "lrh_type", value: 0 }))
    }

    /// Reads the next record; `None` for padding.
    fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, LogError> {
        let header = LlogRecHdr::decode(reader)?;
        let illegal = DecodeError::Illegal { what: "lrh_len", value: u64::from(header.length) };
        let inner = (header.length as usize).checked_sub(RECORD_BYTES_MIN).ok_or(illegal)?;
        let inner = reader.bytes(inner, "llog record")?;
        let tail = LlogRecTail::decode(reader)?;
        if tail.length != header.length || tail.index != header.index {
            let value = u64::from(tail.index);
            return Err(DecodeError::Illegal { what: "llog_rec_tail", value }.into());
        }
        if header.kind != LlogRecordType::OBD_CFG {
            return Ok(None);
        }
        let config = LustreCfg::decode(&mut Reader::new(&inner, reader.order()))?;
        Ok(Some(Self { index: header.index, config }))
    }

    /// Reads the records of one block, up to its end or to zeros; padding is left out. What follows
    /// is what a reader of NEXT_BLOCK does.
    ///
    /// # Errors
    /// See [`LogError::Decode`].
    pub fn from_block(block: &Bytes) -> Result<Vec<Self>, LogError> {
        let mut reader = Reader::new(block, ByteOrder::Little);
        let mut records = Vec::new();
        while reader.remaining() >= RECORD_BYTES_MIN {
            let ahead = LlogRecHdr::decode(&mut reader.clone())?;
            if ahead.length == 0 {
                break;
            }
            records.extend(Self::read(&mut reader)?);
        }
        Ok(records)
    }
}

/// A record's header and tail around `inner`.
fn frame(kind: LlogRecordType, index: u32, inner: &[u8]) -> Bytes {
    let length = (RECORD_BYTES_MIN + inner.len()) as u32;
    let mut writer = Writer::with_capacity(length as usize);
    LlogRecHdr { length, index, kind, id: 0 }.encode(&mut writer);
    writer.put(inner);
    LlogRecTail { length, index }.encode(&mut writer);
    writer.into_bytes()
}

/// What a remote reader gets for one NEXT_BLOCK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The block, filled up with zeros.
    pub bytes: Bytes,
    /// Index of the last record in it.
    pub last_index: u32,
    /// Where in the log its last record ends.
    pub end_offset: u64,
}

/// A configuration log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigLog {
    /// When it was made, in seconds.
    created: i64,
    records: Vec<LogRecord>,
    /// Where each record and each padding starts, in order.
    places: Vec<RecordPlace>,
    end: u64,
    last_index: u32,
    step: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RecordPlace {
    index: u32,
    offset: u64,
    what: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// The record at this position of the list.
    Record(usize),
    /// So many bytes of padding.
    Padding(usize),
}

impl ConfigLog {
    /// An empty log, made at `created` seconds since 1970.
    #[must_use]
    pub fn new(created: i64) -> Self {
        Self { created, end: LLOG_CHUNK_BYTES as u64, ..Self::default() }
    }

    /// A log of records that were appended before, in order.
    ///
    /// # Errors
    /// See [`LogError`]; also if a record's index is not the one it would get.
    pub fn from_records(created: i64, records: Vec<LogRecord>) -> Result<Self, LogError> {
        let mut log = Self::new(created);
        for record in records {
            let wanted = record.index;
            log.append(record.config)?;
            if log.last_index != wanted {
                let value = u64::from(wanted);
                return Err(DecodeError::Illegal { what: "lrh_index", value }.into());
            }
        }
        let steps = log.records.iter().filter_map(LogRecord::marker).map(|marker| marker.step);
        log.step = steps.max().unwrap_or(0);
        Ok(log)
    }

    /// When it was made.
    #[must_use]
    pub fn created(&self) -> i64 {
        self.created
    }

    /// All records, without padding.
    #[must_use]
    pub fn records(&self) -> &[LogRecord] {
        &self.records
    }

    /// Whether nothing was appended yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Index of the last record; 0 if there is none.
    #[must_use]
    pub fn last_index(&self) -> u32 {
        self.last_index
    }

    /// The highest step that a marker names.
    #[must_use]
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Appends a record, behind padding if it does not fit its block.
    ///
    /// # Errors
    /// [`LogError::Full`], [`LogError::TooLong`].
    pub fn append(&mut self, config: LustreCfg) -> Result<u32, LogError> {
        let index = self.last_index + 1;
        let mut record = LogRecord { index, config };
        let length = record.to_bytes().len();
        let left = LLOG_CHUNK_BYTES - self.end as usize % LLOG_CHUNK_BYTES;
        let fits = left == length || left >= length + RECORD_BYTES_MIN;
        if length > LLOG_CHUNK_BYTES {
            return Err(LogError::TooLong);
        }
        if index + 2 >= RECORDS_MAX {
            return Err(LogError::Full);
        }
        if !fits {
            self.places.push(RecordPlace { index, offset: self.end, what: Content::Padding(left) });
            self.end += left as u64;
            record.index += 1;
        }
        let place = RecordPlace {
            index: record.index,
            offset: self.end,
            what: Content::Record(self.records.len()),
        };
        self.places.push(place);
        self.end += length as u64;
        self.last_index = record.index;
        self.records.push(record);
        Ok(self.last_index)
    }

    /// Appends a section between its markers; the index of its first record.
    ///
    /// # Errors
    /// As [`ConfigLog::append`].
    pub fn append_section(
        &mut self,
        section: &Section,
        step: u32,
        version: u32,
        now: i64,
    ) -> Result<u32, LogError> {
        let marker = |flags| CfgMarker {
            step,
            flags,
            version,
            create_time: now,
            target: Chars::new(&section.target),
            comment: Chars::new(&section.comment),
            ..CfgMarker::default()
        };
        let mut record = LogRecord { index: 0, config: LustreCfg::new(ConfigCommand::MARKER, &[]) };
        record.set_marker(&marker(MarkerFlags::START | section.flags));
        let first = self.append(record.config.clone())?;
        for config in &section.records {
            self.append(config.clone())?;
        }
        record.set_marker(&marker(MarkerFlags::END | section.flags));
        self.append(record.config)?;
        self.step = self.step.max(step);
        Ok(first)
    }

    /// Cancels all sections about `target` with this comment, at `now`. The indexes of the markers
    /// that changed.
    pub fn cancel(&mut self, target: &str, comment: &str, now: i64) -> Vec<u32> {
        let mut changed = Vec::new();
        for record in &mut self.records {
            let Some(mut marker) = record.marker() else { continue };
            let is_it = marker.target.as_bytes() == target.as_bytes()
                && marker.comment.as_bytes() == comment.as_bytes();
            if is_it && !marker.flags.contains(MarkerFlags::SKIP) {
                marker.flags |= MarkerFlags::SKIP;
                marker.cancel_time = now;
                record.set_marker(&marker);
                changed.push(record.index);
            }
        }
        changed
    }

    /// The log's first record, as READ_HEADER returns it.
    #[must_use]
    pub fn header(&self) -> LlogLogHdr {
        let mut bitmap = vec![0u32; BITMAP_WORDS];
        let used = std::iter::once(0).chain(self.records.iter().map(|record| record.index));
        for index in used {
            bitmap[index as usize / 32] |= 1 << (index % 32);
        }
        let length = LLOG_CHUNK_BYTES as u32;
        LlogLogHdr {
            fixed: LlogHeaderFixed {
                header: LlogRecHdr { length, index: 0, kind: LlogRecordType::HEADER, id: 0 },
                timestamp: self.created,
                count: self.records.len() as u32 + 1,
                bitmap_offset: LLOG_BITMAP_AT as u32,
                record_size: CONFIG_RECORD_BYTES,
                flags: LlogFlags::IS_PLAIN,
                cat_index: 0,
                target_uuid: Chars::new("config_uuid"),
                reserved: 0,
            },
            bitmap,
            tail: LlogRecTail { length, index: self.last_index },
        }
    }

    /// The block that holds the record with `index`, or the first one behind it.
    #[must_use]
    pub fn block(&self, index: u32) -> Option<Block> {
        let chunk = LLOG_CHUNK_BYTES as u64;
        let place = self.places.iter().find(|place| place.index >= index)?;
        let number = place.offset / chunk;
        let inside = self.places.iter().filter(|place| place.offset / chunk == number);
        let mut writer = Writer::with_capacity(LLOG_CHUNK_BYTES);
        let mut last_index = 0;
        for place in inside {
            last_index = place.index;
            match place.what {
                Content::Record(record) => writer.put(&self.records[record].to_bytes()),
                Content::Padding(left) => {
                    let inner = vec![0; left - RECORD_BYTES_MIN];
                    writer.put(&frame(LlogRecordType::PAD, place.index, &inner));
                }
            }
        }
        let end_offset = number * chunk + writer.len() as u64;
        writer.zeros(LLOG_CHUNK_BYTES - writer.len());
        Some(Block { bytes: writer.into_bytes(), last_index, end_offset })
    }
}
