//! Logs of records: how they are opened and read remotely, and what a record starts and ends with.

use bytes::Bytes;

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::slot::Part;
use crate::text::Chars;
use crate::{wire_bits, wire_enum, wire_struct};

/// `LLOG_MIN_CHUNK_SIZE`: a log's header and its blocks have this many bytes, or more.
pub const LLOG_CHUNK_BYTES: usize = 8192;
/// Where a log header's bitmap starts.
pub const LLOG_BITMAP_AT: usize = 88;

wire_enum! {
    /// `enum llog_ctxt_id`: which of a target's logs.
    pub enum LlogContext: u32 {
        /// Configuration, at the MGS.
        CONFIG_ORIG = 0,
        /// Configuration, as its readers name it.
        CONFIG_REPL = 1,
        /// Unlinks that an MDT owes OSTs.
        MDS_OST_ORIG = 2,
        /// Changelog, at the MDT.
        CHANGELOG_ORIG = 12,
        /// Changelog, as its readers name it.
        CHANGELOG_REPL = 13,
        /// Users of the changelog.
        CHANGELOG_USER_ORIG = 14,
        /// HSM actions.
        AGENT_ORIG = 15,
        /// Updates between MDTs.
        UPDATELOG_ORIG = 16,
    }
}

wire_enum! {
    /// `enum llog_op_type`: what a record is.
    pub enum LlogRecordType: u32 {
        /// Fills a block up.
        PAD = 0x1060_0000,
        /// Objects to remove.
        MDS_UNLINK64 = 0x1069_2404,
        /// Attributes to set on objects.
        MDS_SETATTR64 = 0x1069_2401,
        /// Configuration: a `lustre_cfg`.
        OBD_CFG = 0x1062_0000,
        /// Generation of a log.
        GEN = 0x1064_0000,
        /// Changelog entry.
        CHANGELOG = 0x1066_0000,
        /// Changelog user.
        CHANGELOG_USER = 0x1067_0000,
        /// HSM action.
        HSM_AGENT = 0x1068_0000,
        /// Update between MDTs.
        UPDATE = 0x106a_0000,
        /// The header of a log.
        HEADER = 0x1064_5539,
        /// The name of a log, in a catalog.
        LOGID = 0x1064_553b,
    }
}

wire_bits! {
    /// `LLOG_F_*`: what a log is.
    pub struct LlogFlags: u32 {
        /// Remove it when its last record is cancelled.
        ZAP_WHEN_EMPTY = 0x1,
        /// A catalog.
        IS_CAT = 0x2,
        /// A plain log.
        IS_PLAIN = 0x4,
        /// Changelog records have job ids.
        EXT_JOBID = 0x8,
        /// All records have one size.
        IS_FIXSIZE = 0x10,
        /// Changelog records have more flags.
        EXT_EXTRA_FLAGS = 0x20,
        /// Changelog records have user and group ids.
        EXT_X_UIDGID = 0x40,
        /// Changelog records have NIDs.
        EXT_X_NID = 0x80,
        /// Changelog records have open modes.
        EXT_X_OMODE = 0x100,
        /// Changelog records have xattr names.
        EXT_X_XATTR = 0x200,
        /// Remove it after errors.
        RM_ON_ERR = 0x400,
        /// Has a greatest age.
        MAX_AGE = 0x800,
        /// NIDs are big-endian.
        EXT_X_NID_BE = 0x1000,
        /// Internal to Lustre.
        UNLCK_SEM = 0x2000,
    }
}

wire_struct! {
    /// `struct llog_logid`: names a log; 20 bytes.
    pub struct LlogLogid {
        /// Object id.
        id: u64,
        /// Object sequence.
        seq: u64,
        /// Generation.
        ogen: u32,
    }
}

wire_struct! {
    /// `struct llogd_body`: a question about a log, and the answer.
    pub struct LlogdBody {
        /// The log.
        logid: LlogLogid,
        /// Which log of the target, if it is opened by name.
        context: LlogContext,
        /// What it is.
        flags: LlogFlags,
        /// Index of the record wanted.
        index: u32,
        /// Index of the record reached.
        saved_index: u32,
        /// Bytes to read.
        length: u32,
        /// Where in the log.
        offset: u64,
    }
}

wire_struct! {
    /// `struct llogd_conn_body`: which logs a connection is about.
    pub struct LlogdConnBody {
        /// How often the server has started.
        mount_count: u64,
        /// How often the connection was made.
        connection_count: u64,
        /// The log.
        logid: LlogLogid,
        /// Which log of the target.
        context: LlogContext,
    }
}

wire_struct! {
    /// `struct llog_rec_hdr`: before every record.
    pub struct LlogRecHdr {
        /// Bytes of the whole record, header and tail included; a multiple of 8.
        length: u32,
        /// Index in the log.
        index: u32,
        /// What it is.
        kind: LlogRecordType,
        /// Whatever the writer wants to say.
        id: u32,
    }
}

wire_struct! {
    /// `struct llog_rec_tail`: behind every record.
    pub struct LlogRecTail {
        /// As in the header.
        length: u32,
        /// As in the header.
        index: u32,
    }
}

wire_struct! {
    /// `struct llog_cookie`: names a record of a log; 32 bytes.
    pub struct LlogCookie {
        /// The log.
        logid: LlogLogid,
        /// Subsystem.
        subsystem: u32,
        /// Index of the record.
        index: u32,
        /// Unused.
        padding: u32,
    }
}

wire_struct! {
    /// `struct llog_logid_rec`: a catalog's record; 64 bytes.
    pub struct LlogLogidRec {
        /// Header.
        header: LlogRecHdr,
        /// The log it names.
        logid: LlogLogid,
        /// Unused.
        padding: [u32; 5],
        /// Tail.
        tail: LlogRecTail,
    }
}

wire_struct! {
    /// `struct llog_log_hdr` up to its bitmap: the fixed part of a log's first record.
    pub struct LlogHeaderFixed {
        /// Header of the record.
        header: LlogRecHdr,
        /// When the log was made, in seconds.
        timestamp: i64,
        /// Records in use, this one included.
        count: u32,
        /// Where the bitmap starts, in bytes.
        bitmap_offset: u32,
        /// Size of records, if all have one size.
        record_size: u32,
        /// What the log is.
        flags: LlogFlags,
        /// First index in use, in a catalog that wrapped around.
        cat_index: u32,
        /// Owner's UUID.
        target_uuid: Chars<40>,
        /// Unused.
        reserved: u32,
    }
}

/// `struct llog_log_hdr`: a log's first record, [`LLOG_CHUNK_BYTES`] long in all logs we know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LlogLogHdr {
    /// Everything before the bitmap.
    pub fixed: LlogHeaderFixed,
    /// One bit per index, lowest first in each word; a set bit is a record in use.
    pub bitmap: Vec<u32>,
    /// Tail of the record.
    pub tail: LlogRecTail,
}

impl LlogLogHdr {
    /// Whether the record with this index is in use.
    #[must_use]
    pub fn is_used(&self, index: u32) -> bool {
        let word = self.bitmap.get(index as usize / 32).copied().unwrap_or(0);
        word >> (index % 32) & 1 == 1
    }

    /// Reads a header that fills `bytes`.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn from_bytes(bytes: &Bytes, order: crate::ByteOrder) -> Result<Self, DecodeError> {
        Self::decode_part(&mut Reader::new(bytes, order), "llog_log_hdr")
    }
}

impl Part for LlogLogHdr {
    const SIZE_MIN: usize = LlogHeaderFixed::SIZE + LlogRecTail::SIZE;

    fn decode_part(reader: &mut Reader<'_>, what: &'static str) -> Result<Self, DecodeError> {
        let fixed = LlogHeaderFixed::decode(reader)?;
        let room = reader.remaining().checked_sub(LlogRecTail::SIZE);
        let room = room.ok_or(DecodeError::Truncated { what })?;
        if !room.is_multiple_of(4) {
            return Err(DecodeError::Trailing { what, bytes: room % 4 });
        }
        let bitmap = (0..room / 4).map(|_| u32::decode(reader)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { fixed, bitmap, tail: LlogRecTail::decode(reader)? })
    }

    fn encode_part(&self, writer: &mut Writer) {
        self.fixed.encode(writer);
        for word in &self.bitmap {
            word.encode(writer);
        }
        self.tail.encode(writer);
    }
}
