//! Frames to send: an LNet message or a driver's own word, ready as bytes.

use bytes::Bytes;
use sheen_types::Nid;
use sheen_wire::lnet::{KsockHeader, KsockType, LUSTRE_PID, LnetCommand, LnetHeader};
use sheen_wire::{Wire, Writer};

/// `SOCKNAL_KEEPALIVE_PING`: the cookie that acknowledges nothing but shows life.
const KEEPALIVE_COOKIE: u64 = 1;

/// Who we are on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Our address.
    pub nid: Nid,
    /// Differs from every earlier start's, and is larger: nanoseconds since 1970, as socklnd has it.
    pub incarnation: u64,
}

/// One frame: its headers, and the payload's pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// ksock header, and LNet header if there is one.
    pub head: Bytes,
    /// The payload, piece by piece.
    pub payload: Vec<Bytes>,
    /// Bytes of all together.
    pub length: usize,
}

/// An LNet message of `local` to `to`. Costs one allocation: the headers.
#[must_use]
pub fn message(local: Local, to: Nid, command: LnetCommand, payload: Vec<Bytes>) -> Frame {
    let payload_length = payload.iter().map(Bytes::len).sum::<usize>();
    let mut writer = Writer::with_capacity(KsockHeader::SIZE + LnetHeader::SIZE);
    KsockHeader { kind: KsockType::LNET, ..KsockHeader::default() }.encode(&mut writer);
    LnetHeader {
        destination: to,
        source: local.nid,
        destination_pid: LUSTRE_PID,
        source_pid: LUSTRE_PID,
        payload_length: payload_length as u32,
        command,
    }
    .encode(&mut writer);
    let head = writer.into_bytes();
    Frame { length: head.len() + payload_length, head, payload }
}

/// Gives the cookie of a received zero-copy send back to its sender, who keeps the pages until then.
#[must_use]
pub fn zero_copy_answer(cookie: u64) -> Frame {
    let mut writer = Writer::with_capacity(KsockHeader::SIZE);
    KsockHeader { kind: KsockType::NOOP, ack_cookie: cookie, ..KsockHeader::default() }
        .encode(&mut writer);
    let head = writer.into_bytes();
    Frame { length: head.len(), head, payload: Vec::new() }
}

/// A sign of life.
#[must_use]
pub fn keepalive() -> Frame {
    zero_copy_answer(KEEPALIVE_COOKIE)
}

/// Whether an acknowledged cookie only is a sign of life.
pub(crate) fn is_keepalive(header: &KsockHeader) -> bool {
    header.ack_cookie == KEEPALIVE_COOKIE && header.request_cookie == 0
}
