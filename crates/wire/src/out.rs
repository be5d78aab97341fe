//! What one MDT asks of another for a change of both (`OUT_UPDATE`): a list of updates, each of one object, and their results.
//!
//! The kinds below [`UpdateType::EXCLUDE`] and their parameters are Lustre's; those from there on are ours, and only
//! MDTs that have agreed on them ask for them.

mod exclude;
mod recover;
mod update;
pub mod update_record;

pub use self::exclude::*;
pub use self::recover::*;
pub use self::update::{CreateRest, Update};

use std::fmt;

use bytes::{Bytes, BytesMut};
use sheen_types::Fid;

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer, order_of};
use crate::{wire_bits, wire_enum, wire_struct};

wire_struct! {
    /// `struct out_update_header`: what a request is made of.
    pub struct OutUpdateHeader {
        /// [`OutUpdateHeader::MAGIC`].
        magic: u32,
        /// Bulk buffers, or 1 if the updates follow in the request itself.
        count: u32,
        /// Bytes of updates that follow this header; 0 if they come as bulk.
        inline_length: u32,
        /// Bytes set aside for the results.
        reply_size: u32,
    }
}

impl OutUpdateHeader {
    /// `OUT_UPDATE_HEADER_MAGIC`.
    pub const MAGIC: u32 = 0xbddf_0001;

    /// Reads a request's first buffer: the header, and the updates if they are not bulk.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn split(buffer: &Bytes) -> Result<(Self, Bytes), DecodeError> {
        let order = order_of(buffer, Self::MAGIC, "ouh_magic")?;
        let mut reader = Reader::new(buffer, order);
        let header = Self::decode(&mut reader)?;
        let updates = reader.rest();
        if updates.len() != header.inline_length as usize {
            let value = header.inline_length.into();
            return Err(DecodeError::Illegal { what: "ouh_inline_length", value });
        }
        Ok((header, updates))
    }
}

wire_struct! {
    /// `struct out_update_buffer`: one bulk buffer of updates.
    pub struct OutUpdateBuffer {
        /// Bytes.
        size: u32,
        /// Unused.
        padding: u32,
    }
}

/// `OUT_UPDATE_MAX_INLINE_SIZE`: a request whose first buffer is not shorter has its updates as bulk.
pub const INLINE_BYTES: usize = 4096;
/// `OUT_MAXREQSIZE`: one bulk buffer is shorter.
pub const BUFFER_BYTES_MAX: usize = 1000 * 1024;
/// `OUT_UPDATE_REPLY_SIZE`: Lustre puts aside no less for results.
pub const REPLY_BYTES_MIN: usize = 4096;

wire_enum! {
    /// What is done to an object (`enum update_type`).
    pub enum UpdateType: u16 {
        /// `OUT_CREATE`: attributes, FID of the parent.
        CREATE = 1,
        /// `OUT_DESTROY`.
        DESTROY = 2,
        /// `OUT_REF_ADD`: a link more.
        REF_ADD = 3,
        /// `OUT_REF_DEL`: a link less.
        REF_DEL = 4,
        /// `OUT_ATTR_SET`: attributes.
        ATTR_SET = 5,
        /// `OUT_ATTR_GET`.
        ATTR_GET = 6,
        /// `OUT_XATTR_SET`: name, value, flags.
        XATTR_SET = 7,
        /// `OUT_XATTR_GET`: name.
        XATTR_GET = 8,
        /// `OUT_INDEX_LOOKUP`: name.
        INDEX_LOOKUP = 9,
        /// `OUT_INDEX_INSERT`: name, FID, type.
        INDEX_INSERT = 10,
        /// `OUT_INDEX_DELETE`: name.
        INDEX_DELETE = 11,
        /// `OUT_WRITE`: bytes, offset.
        WRITE = 12,
        /// `OUT_XATTR_DEL`: name.
        XATTR_DEL = 13,
        /// `OUT_PUNCH`: start, end.
        PUNCH = 14,
        /// `OUT_READ`: size, offset.
        READ = 15,
        /// `OUT_NOOP`.
        NOOP = 16,
        /// `OUT_XATTR_LIST`.
        XATTR_LIST = 17,
        /// Ours: nothing else may change some names and inodes meanwhile.
        EXCLUDE = 0x100,
        /// Ours: such an exclusion ends.
        RELEASE = 0x101,
        /// Ours: the updates behind it are a part of a change of which this is the
        /// [`UpdateRecord`](update_record::UpdateRecord).
        RECORD = 0x102,
        /// Ours: an inode has a name more in its `trusted.link`: the FID of the parent, name.
        LINK_ADD = 0x103,
        /// Ours: one less: the FID of the parent, name.
        LINK_DEL = 0x104,
        /// Ours: some changes are durable everywhere, and their records may go.
        COMPLETE = 0x105,
        /// Ours: an MDT that starts asks what it has lost.
        RECOVER = 0x106,
        /// Ours, and sent by none: how far an MDT that recovers has come. It is for replays of changes that no MDT has any more,
        /// which there are none of while a coordinator answers when its part is durable.
        BOUND = 0x107,
        /// Ours: the way from a directory to the root, as far as it is known there.
        PARENTS = 0x108,
    }
}

wire_bits! {
    /// How it is done (`enum update_flag`).
    pub struct UpdateFlags: u32 {
        /// `UPDATE_FL_OST`: by an OST.
        OST = 0x1,
        /// `UPDATE_FL_SYNC`: durable before it is answered.
        SYNC = 0x2,
        /// `UPDATE_FL_COMMITTED`: the change is durable everywhere.
        COMMITTED = 0x4,
        /// `UPDATE_FL_NOLOG`: doing it twice does no harm.
        NOLOG = 0x8,
        /// `UPDATE_FL_IGNORE_QUOTA`.
        IGNORE_QUOTA = 0x10,
    }
}

wire_struct! {
    /// `struct object_update` without its parameters.
    pub struct ObjectUpdateFixed {
        /// What is done.
        kind: UpdateType,
        /// Parameters that follow.
        param_count: u16,
        /// Bytes that the result may have.
        result_bytes: u32,
        /// How it is done.
        flags: UpdateFlags,
        /// Unused.
        padding: u32,
        /// Updates with the same number are one transaction.
        batch: u64,
        /// The object.
        fid: Fid,
    }
}

wire_struct! {
    /// `struct object_update_param` without its bytes. Those fill up a multiple of 8.
    pub struct ObjectUpdateParam {
        /// Bytes that follow.
        length: u16,
        /// Unused.
        padding: u16,
        /// Unused.
        padding2: u32,
    }
}

wire_struct! {
    /// `struct object_update_request` without its updates.
    pub struct ObjectUpdateRequest {
        /// [`ObjectUpdateRequest::MAGIC`].
        magic: u32,
        /// Updates that follow.
        count: u16,
        /// Unused.
        padding: u16,
    }
}

impl ObjectUpdateRequest {
    /// `UPDATE_REQUEST_MAGIC_V2`.
    pub const MAGIC: u32 = 0xbdde_0002;
}

wire_struct! {
    /// `struct object_update_reply` without its lengths and results.
    pub struct ObjectUpdateReply {
        /// [`ObjectUpdateReply::MAGIC`].
        magic: u32,
        /// Updates that were asked for, and lengths that follow: 16 bits each.
        count: u16,
        /// Unused.
        padding: u16,
    }
}

impl ObjectUpdateReply {
    /// `UPDATE_REPLY_MAGIC_V2`.
    pub const MAGIC: u32 = 0x00bd_0002;
}

wire_struct! {
    /// `struct object_update_result` without its data.
    pub struct ObjectUpdateResult {
        /// 0, a negative errno, or what the update answers.
        status: i32,
        /// Bytes that follow.
        length: u16,
        /// Unused.
        padding: u16,
    }
}

/// Something is longer, or there is more of it, than its field can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch {
    /// What.
    pub what: &'static str,
    /// How much of it.
    pub value: usize,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {} does not fit", self.what, self.value)
    }
}

impl std::error::Error for TooMuch {}

pub(crate) fn fitting<T: TryFrom<usize>>(value: usize, what: &'static str) -> Result<T, TooMuch> {
    T::try_from(value).map_err(|_| TooMuch { what, value })
}

/// What one parameter holds at most: a multiple of 8 that its length can say.
pub const PARAM_BYTES_MAX: usize = 0xfff8;

/// Bytes of any length as parameters.
#[must_use]
pub fn in_params(bytes: &Bytes) -> Vec<Bytes> {
    let starts = (0..bytes.len()).step_by(PARAM_BYTES_MAX);
    starts.map(|at| bytes.slice(at..bytes.len().min(at + PARAM_BYTES_MAX))).collect()
}

/// What [`in_params`] took apart.
#[must_use]
pub fn from_params(params: &[Bytes]) -> Bytes {
    match params {
        [whole] => whole.clone(),
        params => {
            let mut joined = BytesMut::with_capacity(params.iter().map(Bytes::len).sum());
            params.iter().for_each(|param| joined.extend_from_slice(param));
            joined.freeze()
        }
    }
}

/// One update of one object (`struct object_update`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectUpdate {
    /// What is done.
    pub kind: UpdateType,
    /// How it is done.
    pub flags: UpdateFlags,
    /// Updates with the same number are one transaction.
    pub batch: u64,
    /// The object.
    pub fid: Fid,
    /// As `kind` says, of at most [`PARAM_BYTES_MAX`] bytes each.
    pub params: Vec<Bytes>,
    /// Bytes that the result may have.
    pub result_bytes: u32,
}

impl ObjectUpdate {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let fixed = ObjectUpdateFixed::decode(reader)?;
        Ok(Self {
            kind: fixed.kind,
            flags: fixed.flags,
            batch: fixed.batch,
            fid: fixed.fid,
            params: (0..fixed.param_count).map(|_| read_param(reader)).collect::<Result<_, _>>()?,
            result_bytes: fixed.result_bytes,
        })
    }

    fn write(&self, writer: &mut Writer) -> Result<(), TooMuch> {
        let fixed = ObjectUpdateFixed {
            kind: self.kind,
            param_count: fitting(self.params.len(), "ou_params_count")?,
            result_bytes: self.result_bytes,
            flags: self.flags,
            padding: 0,
            batch: self.batch,
            fid: self.fid,
        };
        fixed.encode(writer);
        self.params.iter().try_for_each(|param| write_param(param, writer))
    }

    /// Bytes that it takes in a request.
    #[must_use]
    pub fn size(&self) -> usize {
        let padded = |param: &Bytes| ObjectUpdateParam::SIZE + param.len().next_multiple_of(8);
        ObjectUpdateFixed::SIZE + self.params.iter().map(padded).sum::<usize>()
    }
}

fn read_param(reader: &mut Reader<'_>) -> Result<Bytes, DecodeError> {
    let length = usize::from(ObjectUpdateParam::decode(reader)?.length);
    let bytes = reader.bytes(length, "object_update_param")?;
    reader.bytes(padding_behind(length), "object_update_param")?;
    Ok(bytes)
}

fn write_param(param: &Bytes, writer: &mut Writer) -> Result<(), TooMuch> {
    let length = fitting(param.len(), "oup_len")?;
    ObjectUpdateParam { length, ..ObjectUpdateParam::default() }.encode(writer);
    writer.put(param);
    writer.zeros(padding_behind(param.len()));
    Ok(())
}

/// To the next multiple of 8.
pub(crate) fn padding_behind(length: usize) -> usize {
    length.next_multiple_of(8) - length
}

/// Reads the updates of a request's inline data, or of one buffer of its bulk. Zeros may follow: Lustre sends whole buffers.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode_updates(bytes: &Bytes) -> Result<Vec<ObjectUpdate>, DecodeError> {
    let (updates, room) = split_updates(bytes)?;
    Reader::new(&room, ByteOrder::Little).finish_zeros("object_update_request")?;
    Ok(updates)
}

/// Reads updates, and returns what follows them.
///
/// # Errors
/// See [`DecodeError`].
pub fn split_updates(bytes: &Bytes) -> Result<(Vec<ObjectUpdate>, Bytes), DecodeError> {
    let order = order_of(bytes, ObjectUpdateRequest::MAGIC, "ourq_magic")?;
    let mut reader = Reader::new(bytes, order);
    let header = ObjectUpdateRequest::decode(&mut reader)?;
    let updates = (0..header.count).map(|_| ObjectUpdate::read(&mut reader));
    Ok((updates.collect::<Result<_, _>>()?, reader.rest()))
}

/// Updates as a request has them, inline or in one bulk buffer.
///
/// # Errors
/// [`TooMuch`] for more updates or parameters, or a longer parameter, than can be said.
pub fn encode_updates(updates: &[ObjectUpdate]) -> Result<Bytes, TooMuch> {
    let size = updates.iter().map(ObjectUpdate::size).sum::<usize>();
    let mut writer = Writer::with_capacity(ObjectUpdateRequest::SIZE + size);
    let count = fitting(updates.len(), "ourq_count")?;
    ObjectUpdateRequest { magic: ObjectUpdateRequest::MAGIC, count, padding: 0 }
        .encode(&mut writer);
    updates.iter().try_for_each(|update| update.write(&mut writer))?;
    Ok(writer.into_bytes())
}

/// What an update was answered with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateResult {
    /// 0, a negative errno, or what the update answers.
    pub status: i32,
    /// By the update's kind.
    pub data: Bytes,
}

/// The results of a request (`struct object_update_reply`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateResults {
    /// Updates that were asked for.
    pub asked: u16,
    /// Of those that were executed, in order: the first that fails is the last.
    pub results: Vec<UpdateResult>,
}

impl UpdateResults {
    /// Reads the buffer of a reply. Zeros may follow: a reply has all the room that was put aside.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let order = order_of(bytes, ObjectUpdateReply::MAGIC, "ourp_magic")?;
        let mut reader = Reader::new(bytes, order);
        let asked = ObjectUpdateReply::decode(&mut reader)?.count;
        let lengths = (0..asked).map(|_| u16::decode(&mut reader));
        let lengths = lengths.collect::<Result<Vec<_>, _>>()?;
        reader.bytes(padding_behind(lengths.len() * u16::SIZE), "ourp_lens")?;
        let executed = lengths.iter().position(|length| *length == 0).unwrap_or(lengths.len());
        let is_odd = |length: &u16| usize::from(*length) > PARAM_BYTES_MAX;
        let odd = lengths.iter().find(|length| is_odd(length));
        if let Some(length) = odd.or(lengths[executed..].iter().find(|length| **length != 0)) {
            return Err(DecodeError::Illegal { what: "ourp_lens", value: (*length).into() });
        }
        let results = lengths[..executed].iter().map(|length| {
            let length = usize::from(*length).next_multiple_of(8);
            read_result(&reader.bytes(length, "object_update_result")?, order)
        });
        let results = results.collect::<Result<_, _>>()?;
        reader.finish_zeros("object_update_reply")?;
        Ok(Self { asked, results })
    }

    /// The buffer, without room behind it.
    ///
    /// # Errors
    /// [`TooMuch`] for more data than can be said, and for more results than were asked for.
    pub fn encode(&self) -> Result<Bytes, TooMuch> {
        let mut writer = Writer::default();
        let (magic, count) = (ObjectUpdateReply::MAGIC, self.asked);
        ObjectUpdateReply { magic, count, padding: 0 }.encode(&mut writer);
        for result in &self.results {
            let size = ObjectUpdateResult::SIZE + result.data.len().next_multiple_of(8);
            fitting::<u16>(size, "ourp_lens")?.encode(&mut writer);
        }
        let missing = usize::from(count).checked_sub(self.results.len());
        let missing = missing.ok_or(TooMuch { what: "ourp_count", value: self.results.len() })?;
        writer.zeros(missing * u16::SIZE + padding_behind(usize::from(count) * u16::SIZE));
        for result in &self.results {
            let length = fitting(result.data.len(), "our_datalen")?;
            ObjectUpdateResult { status: result.status, length, padding: 0 }.encode(&mut writer);
            writer.put(&result.data);
            writer.zeros(padding_behind(result.data.len()));
        }
        Ok(writer.into_bytes())
    }
}

fn read_result(bytes: &Bytes, order: ByteOrder) -> Result<UpdateResult, DecodeError> {
    let mut reader = Reader::new(bytes, order);
    let fixed = ObjectUpdateResult::decode(&mut reader)?;
    let data = reader.bytes(fixed.length.into(), "our_data")?;
    reader.finish_zeros("our_data")?;
    Ok(UpdateResult { status: fixed.status, data })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod update_tests;
