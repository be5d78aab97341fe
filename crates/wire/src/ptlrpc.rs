//! PtlRPC messages: the header with its list of buffers, and the body that buffer 0 holds.
//!
//! A [`Message`] is what an LNet PUT to a request or reply portal carries. Decoding shares the
//! received bytes and allocates only the list of buffers; encoding writes one contiguous buffer.
//! Every buffer starts on a multiple of 8 bytes; the padding is written as zeros, and a peer's
//! padding is dropped but [`Message::dirty_padding`] says how much of it was not zero.

use bytes::Bytes;
use sheen_types::limits::MESSAGE_BUFFERS_MAX;
use sheen_types::{MatchBits, ObdHandle, Transno, Xid};

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::opcode::Opcode;
use crate::text::Chars;
use crate::{wire_bits, wire_enum, wire_struct};

/// `LUSTRE_MSG_MAGIC_V2`: at byte 8 of every message, in the sender's byte order.
pub const MESSAGE_MAGIC: u32 = 0x0bd0_0bd3;
/// Bytes before the list of buffer lengths.
const FIXED_BYTES: usize = 32;
/// `PTLRPC_MSG_VERSION`: low half of [`PtlrpcBody::version`].
pub const MESSAGE_VERSION: u32 = 3;
/// Bytes of a body without a job id (`ptlrpc_body_v2`).
pub const BODY_V2_BYTES: usize = 152;

/// Rounds up to a multiple of 8, as message buffers are laid out.
#[must_use]
pub const fn round8(bytes: usize) -> usize {
    bytes.div_ceil(8) * 8
}

wire_enum! {
    /// `PTL_RPC_MSG_*`: what a message is.
    pub enum MsgType: u32 {
        /// A request.
        REQUEST = 4711,
        /// A reply that says only that the request could not be handled.
        ERR = 4712,
        /// A reply.
        REPLY = 4713,
    }
}

wire_bits! {
    /// `MSGHDR_*`: flags of the message header.
    pub struct HeaderFlags: u32 {
        /// The checksum of an early reply is valid; the sender adapts its timeouts.
        AT_SUPPORT = 0x1,
        /// The early reply's checksum covers what 1.8 covered.
        CKSUM_INCOMPAT18 = 0x2,
    }
}

wire_bits! {
    /// `MSG_*`: flags of a request or reply body.
    pub struct MsgFlags: u32 {
        /// The last message of a recovery stage; obsolete.
        LAST_REPLAY = 0x1,
        /// Sent again because no reply came.
        RESENT = 0x2,
        /// Sent again because the server lost it: it had been answered before.
        REPLAY = 0x4,
        /// The server must not wait for recovery to end; obsolete.
        DELAY_REPLAY = 0x10,
        /// Sent by an old client after its version recovery; obsolete.
        VERSION_REPLAY = 0x20,
        /// Replay of requests is over, locks follow.
        REQ_REPLAY_DONE = 0x40,
        /// Replay of locks is over: the client has recovered.
        LOCK_REPLAY_DONE = 0x80,
        /// The nodemap bans this client.
        CLIENT_BANNED = 0x100,
        /// `uid` and `gid` of the body are set.
        PACK_UID_GID = 0x200,
        /// `projid` of the body is set.
        PACK_PROJID = 0x400,
    }
}

wire_bits! {
    /// `MSG_CONNECT_*`: flags of connect requests and replies.
    pub struct OpFlags: u32 {
        /// The target is in recovery.
        CONNECT_RECOVERING = 0x1,
        /// The target knows this client already.
        CONNECT_RECONNECT = 0x2,
        /// The target keeps what is needed to replay.
        CONNECT_REPLAYABLE = 0x4,
        /// Connect as another server; obsolete.
        CONNECT_PEER = 0x8,
        /// A liblustre client; obsolete.
        CONNECT_LIBCLIENT = 0x10,
        /// The client's first connect since it started.
        CONNECT_INITIAL = 0x20,
        /// Asynchronous connect; obsolete.
        CONNECT_ASYNC = 0x40,
        /// Use the next message version; obsolete.
        CONNECT_NEXT_VER = 0x80,
        /// The connect carries the first transno that will be replayed.
        CONNECT_TRANSNO = 0x100,
    }
}

wire_struct! {
    /// `struct ptlrpc_body_v3`: who asks what, and how far each side's history has got.
    pub struct PtlrpcBody {
        /// Request: the export's cookie as connect returned it. Reply to connect: that cookie.
        handle: ObdHandle,
        /// Request, reply or error.
        kind: MsgType,
        /// Service version in the high half, [`MESSAGE_VERSION`] in the low half.
        version: u32,
        /// The operation.
        opcode: Opcode,
        /// Reply: 0, or a negative errno, or an operation's positive answer.
        status: i32,
        /// Request: below and at this xid the client has seen all replies.
        last_xid: Xid,
        /// Request: the slot of a modifying request; 0 for none.
        tag: u16,
        /// Unused.
        padding0: u16,
        /// Request: project id, if the flag says so.
        projid: u32,
        /// Reply: everything up to here is durable.
        last_committed: Transno,
        /// Reply: the operation's position in the target's history. Replay: the same again.
        transno: Transno,
        /// `MSG_*`.
        flags: MsgFlags,
        /// `MSG_CONNECT_*`.
        op_flags: OpFlags,
        /// How often this client has connected.
        conn_cnt: u32,
        /// Request: the longest wait, in seconds. Reply: the service estimate, in seconds.
        timeout: u32,
        /// Reply: seconds from arrival to reply.
        service_time: u32,
        /// Reply: how many unused locks the client may keep.
        limit: u32,
        /// Reply: server lock volume.
        slv: u64,
        /// Versions of the objects before this operation (VBR).
        pre_versions: [Transno; 4],
        /// Request: match bits of its bulk.
        match_bits: MatchBits,
        /// Unused.
        padding64: [u64; 2],
        /// Request: process's user id, if the flag says so.
        uid: u32,
        /// Request: process's group id, if the flag says so.
        gid: u32,
        /// Request: the job that caused it.
        jobid: Chars<32>,
    }
}

impl PtlrpcBody {
    /// Reads a body of either length that is in use.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn from_buffer(buffer: &Bytes, order: ByteOrder) -> Result<Self, DecodeError> {
        let padded;
        let whole = if buffer.len() == BODY_V2_BYTES {
            let mut bytes = buffer.to_vec();
            bytes.resize(Self::SIZE, 0);
            padded = Bytes::from(bytes);
            &padded
        } else {
            buffer
        };
        let mut reader = Reader::new(whole, order);
        let body = Self::decode(&mut reader)?;
        reader.finish("ptlrpc_body")?;
        Ok(body)
    }
}

/// The numbers before a message's buffers (`struct lustre_msg_v2`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageHeader {
    /// `lm_secflvr`: security flavour; 0 is none.
    pub secflvr: u32,
    /// `lm_repsize`: bytes the client has set aside for the reply.
    pub repsize: u32,
    /// `lm_cksum`: checksum of the body, in early replies.
    pub cksum: u32,
    /// `lm_flags`.
    pub flags: HeaderFlags,
    /// `lm_opc`: opcode or result of a part of a batch.
    pub sub_opcode: u32,
    /// Unused.
    pub padding: u32,
}

/// One decoded message. Buffer 0 is the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The header's numbers.
    pub header: MessageHeader,
    /// In which order the sender wrote numbers.
    pub order: ByteOrder,
    /// The buffers; an empty one is absent.
    pub buffers: Vec<Bytes>,
    /// How many padding bytes the sender left non-zero.
    pub dirty_padding: usize,
}

impl Message {
    /// Splits `bytes` into buffers.
    ///
    /// # Errors
    /// See [`DecodeError`]; also if `bytes` is longer than its buffers say.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let order = message_order(bytes)?;
        let mut reader = Reader::new(bytes, order);
        let count = u32::decode(&mut reader)?;
        let secflvr = u32::decode(&mut reader)?;
        let _magic = u32::decode(&mut reader)?;
        let header = MessageHeader {
            secflvr,
            repsize: u32::decode(&mut reader)?,
            cksum: u32::decode(&mut reader)?,
            flags: HeaderFlags::decode(&mut reader)?,
            sub_opcode: u32::decode(&mut reader)?,
            padding: u32::decode(&mut reader)?,
        };
        let count = count as usize;
        if count == 0 || count > MESSAGE_BUFFERS_MAX {
            return Err(DecodeError::Illegal { what: "lm_bufcount", value: count as u64 });
        }
        let mut lengths = [0; MESSAGE_BUFFERS_MAX];
        for length in &mut lengths[..count] {
            *length = u32::decode(&mut reader)? as usize;
        }
        let mut dirty_padding = skip_padding(&mut reader, count * 4)?;
        let mut buffers = Vec::with_capacity(count);
        for length in &lengths[..count] {
            buffers.push(reader.bytes(*length, "message buffer")?);
            dirty_padding += skip_padding(&mut reader, *length)?;
        }
        reader.finish("message")?;
        Ok(Self { header, order, buffers, dirty_padding })
    }

    /// The whole message as bytes, with zeros for padding.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = MessageWriter::new(&self.header, self.buffers.len());
        for buffer in &self.buffers {
            writer.buffer(|out| out.put(buffer));
        }
        writer.finish()
    }

    /// The body in buffer 0.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn body(&self) -> Result<PtlrpcBody, DecodeError> {
        let buffer = self.buffers.first().ok_or(DecodeError::Truncated { what: "ptlrpc_body" })?;
        PtlrpcBody::from_buffer(buffer, self.order)
    }

    /// Replaces the body, keeping its length if it was one without a job id.
    pub fn set_body(&mut self, body: &PtlrpcBody) {
        let mut writer = Writer::with_capacity(PtlrpcBody::SIZE);
        body.encode(&mut writer);
        match self.buffers.first_mut() {
            Some(buffer) => {
                if buffer.len() == BODY_V2_BYTES {
                    writer.truncate(BODY_V2_BYTES);
                }
                *buffer = writer.into_bytes();
            }
            None => self.buffers.push(writer.into_bytes()),
        }
    }
}

/// Bytes of the message that `bytes` starts with, as its numbers say: more may follow, or less be there.
///
/// # Errors
/// See [`DecodeError`].
pub fn message_length(bytes: &Bytes) -> Result<usize, DecodeError> {
    let mut reader = Reader::new(bytes, message_order(bytes)?);
    let count = u32::decode(&mut reader)? as usize;
    if count > MESSAGE_BUFFERS_MAX {
        return Err(DecodeError::Illegal { what: "lm_bufcount", value: count as u64 });
    }
    reader.bytes(FIXED_BYTES - u32::SIZE, "message")?;
    let mut length = FIXED_BYTES + round8(count * u32::SIZE);
    for _ in 0..count {
        length += round8(u32::decode(&mut reader)? as usize);
    }
    Ok(length)
}

/// The byte order that a message's magic announces.
fn message_order(bytes: &Bytes) -> Result<ByteOrder, DecodeError> {
    let magic = bytes.get(8..12).ok_or(DecodeError::Truncated { what: "lustre_msg" })?;
    let magic = magic.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
    match magic {
        MESSAGE_MAGIC => Ok(ByteOrder::Little),
        _ if magic.swap_bytes() == MESSAGE_MAGIC => Ok(ByteOrder::Big),
        _ => Err(DecodeError::Illegal { what: "lm_magic", value: u64::from(magic) }),
    }
}

/// Skips what follows `length` bytes up to a multiple of 8; returns how much was not zero.
fn skip_padding(reader: &mut Reader<'_>, length: usize) -> Result<usize, DecodeError> {
    let padding = reader.bytes(round8(length) - length, "message padding")?;
    Ok(padding.iter().filter(|byte| **byte != 0).count())
}

/// Writes a message buffer by buffer into one contiguous piece of memory.
#[derive(Debug)]
pub struct MessageWriter {
    writer: Writer,
    count: usize,
    next: usize,
}

impl MessageWriter {
    /// Starts a message of `count` buffers, the body included.
    #[must_use]
    pub fn new(header: &MessageHeader, count: usize) -> Self {
        let mut writer = Writer::with_capacity(1024);
        (count as u32).encode(&mut writer);
        header.secflvr.encode(&mut writer);
        MESSAGE_MAGIC.encode(&mut writer);
        header.repsize.encode(&mut writer);
        header.cksum.encode(&mut writer);
        header.flags.encode(&mut writer);
        header.sub_opcode.encode(&mut writer);
        header.padding.encode(&mut writer);
        writer.zeros(round8(count * 4));
        Self { writer, count, next: 0 }
    }

    /// Adds the next buffer with what `fill` writes; nothing makes it absent.
    pub fn buffer(&mut self, fill: impl FnOnce(&mut Writer)) {
        assert!(self.next < self.count, "a message is written with the buffers it announced");
        let start = self.writer.len();
        fill(&mut self.writer);
        let length = self.writer.len() - start;
        self.writer.patch_u32(FIXED_BYTES + 4 * self.next, length as u32);
        self.writer.zeros(round8(length) - length);
        self.next += 1;
    }

    /// The message; buffers that were announced and not written are absent.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.writer.into_bytes()
    }
}

/// CRC-32 as Lustre computes it over the body of an early reply: seeded with ones, not inverted
/// at the end.
#[must_use]
pub fn early_reply_checksum(body: &[u8]) -> u32 {
    body.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}
