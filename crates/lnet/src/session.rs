//! An established connection's input: frames out of a byte stream.
//!
//! Hot path. A small message costs no copy and a fraction of an allocation (buffers of
//! [`limits::READ_AHEAD_BYTES`] are cut into messages that share them). A payload that does not fit
//! the buffer gets one of exactly its size: what had been read ahead of it is copied (at most
//! one read-ahead), the rest is read straight into it. A buffer is used again when no message holds
//! a part of it any more.

use std::fmt;

use bytes::{Bytes, BytesMut};
use sheen_types::Nid;
use sheen_wire::lnet::{KsockHeader, KsockType, LnetCommand, LnetHeader};
use sheen_wire::{ByteOrder, DecodeError, Reader, Wire};

use crate::handshake::Partner;
use crate::limits;
use crate::message::{Local, is_keepalive};

/// An LNet message that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// What to do.
    pub command: LnetCommand,
    /// What came with it.
    pub payload: Bytes,
    /// If not 0, goes back to the sender ([`crate::zero_copy_answer`]).
    pub cookie: u64,
}

/// What a peer did wrong; it costs the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// Bytes that are no frame.
    Undecodable(DecodeError),
    /// A message for another node.
    WrongDestination(Nid),
    /// A message in another node's name.
    WrongSource(Nid),
    /// A payload where there is none, or one beyond [`limits::PAYLOAD_BYTES_MAX`].
    PayloadLength(u32),
    /// An acknowledgement of something never sent.
    UnknownCookie(u64),
}

impl fmt::Display for SessionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecodable(error) => write!(out, "undecodable frame: {error}"),
            Self::WrongDestination(nid) => write!(out, "message for {nid}, which is not this node"),
            Self::WrongSource(nid) => write!(out, "message in the name of {nid}"),
            Self::PayloadLength(length) => write!(out, "illegal payload of {length} bytes"),
            Self::UnknownCookie(cookie) => write!(out, "unknown zero-copy cookie {cookie}"),
        }
    }
}

impl std::error::Error for SessionError {}

enum Stage {
    Frame,
    Header { cookie: u64 },
    Payload { command: LnetCommand, length: usize, cookie: u64 },
}

/// An established connection, as its reader sees it.
pub struct Session {
    local: Local,
    partner: Partner,
    /// The peer's, as its HELLO showed.
    order: ByteOrder,
    stage: Stage,
    input: BytesMut,
}

impl Session {
    pub(crate) fn new(local: Local, partner: Partner, order: ByteOrder, input: BytesMut) -> Self {
        Self { local, partner, order, stage: Stage::Frame, input }
    }

    /// Who is at the other end.
    #[must_use]
    pub fn partner(&self) -> &Partner {
        &self.partner
    }

    /// Where the host puts what it reads: always with room, and never with more room than is
    /// wise to fill.
    pub fn space(&mut self) -> &mut BytesMut {
        let room = self.input.capacity() - self.input.len();
        let missing = match self.stage {
            Stage::Payload { length, .. } => length.saturating_sub(self.input.len()),
            _ => 0,
        };
        match self.stage {
            // What a peer announces is no reason to set memory aside: a good part of it must be here.
            Stage::Payload { length, .. }
                if room < missing
                    && length > limits::READ_AHEAD_BYTES
                    && self.input.len() >= limits::READ_AHEAD_BYTES =>
            {
                let mut whole = BytesMut::with_capacity(length);
                whole.extend_from_slice(&self.input);
                self.input = whole;
            }
            Stage::Payload { length, .. }
                if length > limits::READ_AHEAD_BYTES
                    && room > 0
                    && self.input.capacity() >= limits::READ_AHEAD_BYTES => {}
            _ if room < missing => self.renew(),
            _ if missing == 0 && room < limits::READ_BYTES_MIN => self.renew(),
            _ => {}
        }
        &mut self.input
    }

    /// Takes the next message off the input, if one is whole.
    ///
    /// # Errors
    /// The peer broke the protocol: the connection is to be closed.
    pub fn next_message(&mut self) -> Result<Option<ReceivedMessage>, SessionError> {
        loop {
            self.stage = match &self.stage {
                Stage::Frame => {
                    let Some(header) = self.take(KsockHeader::SIZE, self.order)? else {
                        return Ok(None);
                    };
                    Self::frame(&header)?
                }
                Stage::Header { cookie } => {
                    let cookie = *cookie;
                    let Some(header) = self.take(LnetHeader::SIZE, ByteOrder::Little)? else {
                        return Ok(None);
                    };
                    self.header(header, cookie)?
                }
                Stage::Payload { length, .. } if self.input.len() < *length => return Ok(None),
                Stage::Payload { command, length, cookie } => {
                    let (command, length, cookie) = (command.clone(), *length, *cookie);
                    let payload = self.input.split_to(length).freeze();
                    if length > limits::READ_AHEAD_BYTES && self.input.is_empty() {
                        // Not to be reclaimed for reading ahead: small messages would pin it.
                        self.input = BytesMut::new();
                    }
                    self.stage = Stage::Frame;
                    return Ok(Some(ReceivedMessage { command, payload, cookie }));
                }
            }
        }
    }

    /// A fresh or reclaimed read-ahead buffer with what is left of the old one.
    fn renew(&mut self) {
        if !self.input.try_reclaim(limits::READ_AHEAD_BYTES) {
            let mut fresh =
                BytesMut::with_capacity(limits::READ_AHEAD_BYTES + limits::READ_BYTES_MIN);
            fresh.extend_from_slice(&self.input);
            self.input = fresh;
        }
    }

    fn take<T: Wire>(&mut self, size: usize, order: ByteOrder) -> Result<Option<T>, SessionError> {
        if self.input.len() < size {
            return Ok(None);
        }
        let bytes = self.input.split_to(size).freeze();
        T::decode(&mut Reader::new(&bytes, order)).map(Some).map_err(SessionError::Undecodable)
    }

    fn frame(header: &KsockHeader) -> Result<Stage, SessionError> {
        // We never ask for a cookie back, so any that comes is wrong but the sign of life.
        if header.ack_cookie != 0 && !is_keepalive(header) {
            return Err(SessionError::UnknownCookie(header.ack_cookie));
        }
        match header.kind {
            KsockType::NOOP => Ok(Stage::Frame),
            KsockType::LNET => Ok(Stage::Header { cookie: header.request_cookie }),
            KsockType(other) => Err(SessionError::Undecodable(DecodeError::Illegal {
                what: "ksm_type",
                value: other.into(),
            })),
        }
    }

    fn header(&self, header: LnetHeader, cookie: u64) -> Result<Stage, SessionError> {
        let length = header.payload_length as usize;
        let length_max = match header.command {
            LnetCommand::Put(_) | LnetCommand::Reply(_) => limits::PAYLOAD_BYTES_MAX,
            LnetCommand::Ack(_) | LnetCommand::Get(_) => 0,
            LnetCommand::Hello(_) => {
                let value = header.command.number().into();
                let error = DecodeError::Illegal { what: "lnet_msg_type", value };
                return Err(SessionError::Undecodable(error));
            }
        };
        if length > length_max {
            return Err(SessionError::PayloadLength(header.payload_length));
        }
        if header.destination != self.local.nid {
            return Err(SessionError::WrongDestination(header.destination));
        }
        if header.source != self.partner.nid {
            return Err(SessionError::WrongSource(header.source));
        }
        Ok(Stage::Payload { command: header.command, length, cookie })
    }
}
