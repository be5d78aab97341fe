//! LNet messages of socklnd connections, found in byte streams.
//!
//! A stream that starts with its connection starts with an acceptor request or a HELLO. One that
//! starts later, or behind a hole, is searched for the next message header: the combination of
//! socklnd's type, two TCP NIDs, Lustre's process ids, a command and a sane length does not occur
//! in file data by chance.

use std::fmt;
use std::net::SocketAddrV4;
use std::time::Duration;

use bytes::Bytes;
use sheen_types::limits::LNET_PAYLOAD_BYTES_MAX;
use sheen_wire::lnet::{
    AcceptorRequest, HELLO_BYTES, Hello, KsockHeader, KsockType, LUSTRE_PID, LnetHeader,
    PID_USER_FLAG,
};
use sheen_wire::{ByteOrder, Reader, Wire};

use crate::pcap::Packet;
use crate::tcp::{Stream, streams};

/// `SOCKLND`: the network type of TCP NIDs.
const TCP_NET: u64 = 2;
/// Bytes before a payload.
const HEADERS: usize = KsockHeader::SIZE + LnetHeader::SIZE;

/// Something that one side said.
#[derive(Clone, Debug)]
pub struct Event {
    /// The packet that held its first byte.
    pub packet: usize,
    /// When that came.
    pub time: Duration,
    /// Who spoke.
    pub source: SocketAddrV4,
    /// To whom.
    pub destination: SocketAddrV4,
    /// All its bytes as far as captured.
    pub raw: Bytes,
    /// What it was.
    pub what: Said,
}

/// What one side said.
#[derive(Clone, Debug)]
pub enum Said {
    /// The first words of who opened the connection.
    Acceptor(AcceptorRequest),
    /// A HELLO.
    Hello(Hello),
    /// Nothing but an acknowledgement of a zero-copy send.
    Noop(KsockHeader),
    /// An LNet message.
    Message(LnetMessage),
    /// Bytes that could not be read.
    Lost {
        /// How many.
        bytes: u64,
        /// Whether that is the capture's fault: they lie before the first message of a stream
        /// that it does not hold from the start, or behind something it does not hold.
        excused: bool,
    },
}

/// An LNet message.
#[derive(Clone, Debug)]
pub struct LnetMessage {
    /// socklnd's header.
    pub ksock: KsockHeader,
    /// LNet's header.
    pub header: LnetHeader,
    /// The payload as far as captured.
    pub payload: Bytes,
    /// Bytes of the payload that were not captured.
    pub missing: usize,
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "packet {} ({} > {})", self.packet + 1, self.source, self.destination)
    }
}

/// Everything said in a capture, in the order of its packets.
#[must_use]
pub fn events(packets: &[Packet]) -> Vec<Event> {
    let mut events = Vec::new();
    for stream in streams(packets) {
        Listener { stream: &stream, at: stream.start(), in_step: stream.from_start }
            .listen(&mut events);
    }
    events.sort_by_key(|event| event.packet);
    events
}

/// Walks along one stream.
struct Listener<'a> {
    stream: &'a Stream,
    at: u64,
    /// Whether a message starts at `at`.
    in_step: bool,
}

impl Listener<'_> {
    fn listen(mut self, events: &mut Vec<Event>) {
        if self.in_step {
            self.greeting(events);
        }
        while self.at < self.stream.end() {
            if !self.in_step || !self.message(events) {
                self.resynchronise(events);
            }
        }
    }

    fn event(&self, raw: Bytes, what: Said) -> Option<Event> {
        let piece = self.stream.piece_at(self.at)?;
        Some(Event {
            packet: piece.packet,
            time: piece.time,
            source: self.stream.source,
            destination: self.stream.destination,
            raw,
            what,
        })
    }

    /// Reads acceptor request and HELLO, whichever are there.
    fn greeting(&mut self, events: &mut Vec<Event>) {
        let head = self.stream.read(self.at, 8);
        if let Ok(length) = AcceptorRequest::length(&head) {
            let raw = self.stream.read(self.at, length);
            if let Ok(request) = AcceptorRequest::decode(&raw) {
                events.extend(self.event(raw, Said::Acceptor(request)));
                self.at += length as u64;
            }
        }
        let raw = self.stream.read(self.at, HELLO_BYTES);
        if let Ok((hello, _)) = Hello::decode(&raw) {
            events.extend(self.event(raw, Said::Hello(hello)));
            self.at += HELLO_BYTES as u64;
        }
    }

    /// Reads one message; `false` if there is none here.
    fn message(&mut self, events: &mut Vec<Event>) -> bool {
        let head = self.stream.read(self.at, HEADERS);
        let mut reader = Reader::new(&head, ByteOrder::Little);
        let Ok(ksock) = KsockHeader::decode(&mut reader) else { return false };
        if ksock.kind == KsockType::NOOP {
            let raw = head.slice(..KsockHeader::SIZE);
            events.extend(self.event(raw, Said::Noop(ksock)));
            self.at += KsockHeader::SIZE as u64;
            return true;
        }
        let Some(header) = plausible(&head) else { return false };
        let length = header.payload_length as usize;
        let raw = self.stream.read(self.at, HEADERS + length);
        let payload = raw.slice(HEADERS..);
        let missing = length - payload.len();
        let message = LnetMessage { ksock, header, payload, missing };
        events.extend(self.event(raw, Said::Message(message)));
        self.at += (HEADERS + length) as u64;
        true
    }

    /// Goes to the next place where a message starts, or to the end.
    fn resynchronise(&mut self, events: &mut Vec<Event>) {
        let start = self.at;
        let excused = !self.in_step || self.stream.read(start, HEADERS).len() < HEADERS;
        let from = start + u64::from(self.in_step);
        let found = self.find(from);
        self.in_step = found.is_some();
        let next = found.unwrap_or(self.stream.end());
        if next > start {
            let lost = Said::Lost { bytes: next - start, excused };
            let raw = self.stream.read(start, (next - start) as usize);
            events.extend(self.event(raw, lost));
        }
        self.at = next;
    }

    fn find(&self, from: u64) -> Option<u64> {
        let first = self.stream.pieces().partition_point(|piece| piece.offset < from);
        let first = first.saturating_sub(1);
        for piece in &self.stream.pieces()[first..] {
            let begin = from.saturating_sub(piece.offset) as usize;
            for at in begin..piece.data.len() {
                let offset = piece.offset + at as u64;
                if piece.data[at] == KsockType::LNET.0 as u8 && self.starts_message(offset) {
                    return Some(offset);
                }
                if at == 0 && is_noop(&self.stream.read(offset, KsockHeader::SIZE)) {
                    return Some(offset);
                }
            }
        }
        None
    }

    fn starts_message(&self, at: u64) -> bool {
        plausible(&self.stream.read(at, HEADERS)).is_some()
    }
}

/// Whether these bytes are an acknowledgement alone, as a packet may start with.
fn is_noop(bytes: &Bytes) -> bool {
    let header = KsockHeader::decode(&mut Reader::new(bytes, ByteOrder::Little));
    header.is_ok_and(|header| {
        header.kind == KsockType::NOOP && header.request_cookie == 0 && header.ack_cookie != 0
    })
}

/// The LNet header, if these bytes look like both headers of a message.
fn plausible(head: &Bytes) -> Option<LnetHeader> {
    let mut reader = Reader::new(head, ByteOrder::Little);
    let ksock = KsockHeader::decode(&mut reader).ok()?;
    let header = LnetHeader::decode(&mut reader).ok()?;
    let on_tcp = |nid: u64| nid >> 48 == TCP_NET && nid as u32 != 0;
    let of_lustre = |pid: u32| pid & !PID_USER_FLAG == LUSTRE_PID;
    (ksock.kind == KsockType::LNET
        && on_tcp(header.source.0)
        && on_tcp(header.destination.0)
        && of_lustre(header.source_pid)
        && of_lustre(header.destination_pid)
        && header.payload_length as usize <= LNET_PAYLOAD_BYTES_MAX)
        .then_some(header)
}
