//! Byte streams of TCP connections, put together from packets.
//!
//! Retransmissions and packets out of order are sorted out; what was lost or cut stays a hole of
//! known length. A capture may start anywhere in a connection.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sheen_types::HashMap;

use crate::pcap::Packet;

/// Offsets start here, so that packets from before the first one seen have an offset too.
const ORIGIN: u64 = 1 << 32;

/// A piece of a stream that came in one packet.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Where it lies in the stream.
    pub offset: u64,
    /// The packet's number in the file, which orders what happened.
    pub packet: usize,
    /// When it came.
    pub time: Duration,
    /// The bytes.
    pub data: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// What one side of a connection sent.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Who sent.
    pub source: SocketAddrV4,
    /// To whom.
    pub destination: SocketAddrV4,
    /// Whether the capture holds the connection's first byte.
    pub from_start: bool,
    /// By offset, without overlap; what lies between two is a hole.
    pieces: Vec<Piece>,
}

impl Stream {
    /// Offset of the first byte.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.pieces.first().map_or(0, |piece| piece.offset)
    }

    /// Offset behind the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.pieces.last().map_or(0, Piece::end)
    }

    /// All pieces, by offset.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The piece that holds byte `at`, or the first one behind it.
    #[must_use]
    pub fn piece_at(&self, at: u64) -> Option<&Piece> {
        self.pieces.get(self.pieces.partition_point(|piece| piece.end() <= at))
    }

    /// The bytes from `at` on, `length` of them or up to the next hole; those of one piece are
    /// shared, not copied.
    #[must_use]
    pub fn read(&self, at: u64, length: usize) -> Bytes {
        let first = self.pieces.partition_point(|piece| piece.end() <= at);
        let mut whole = BytesMut::new();
        let mut next = at;
        for piece in &self.pieces[first..] {
            if piece.offset > next || whole.len() == length {
                break;
            }
            let skip = (next - piece.offset) as usize;
            let end = piece.data.len().min(skip + length - whole.len());
            if skip == 0 || whole.is_empty() {
                let part = piece.data.slice(skip..end);
                if part.len() == length {
                    return part;
                }
            }
            whole.extend_from_slice(&piece.data[skip..end]);
            next += (end - skip) as u64;
        }
        whole.freeze()
    }
}

/// One segment's place in its connection.
struct Segment {
    source: SocketAddrV4,
    destination: SocketAddrV4,
    sequence: u32,
    syn: bool,
    acknowledges: bool,
    data: Bytes,
    /// Bytes that the packet had beyond the captured ones.
    cut: usize,
}

/// A stream while its segments come in.
struct Growing {
    stream: Stream,
    /// Sequence number and offset of some byte of it, kept near the newest.
    anchor: (u32, u64),
    initial: Option<u32>,
}

/// Puts all streams together, in the order of their first packets.
#[must_use]
pub fn streams(packets: &[Packet]) -> Vec<Stream> {
    let mut growing: Vec<Growing> = Vec::new();
    let mut current: HashMap<(SocketAddrV4, SocketAddrV4), usize> = HashMap::default();
    for (number, packet) in packets.iter().enumerate() {
        let Some(segment) = segment(&packet.data) else { continue };
        let key = (segment.source, segment.destination);
        if segment.syn && !segment.acknowledges {
            let known = current.get(&key).and_then(|index| growing[*index].initial);
            if known != Some(segment.sequence) {
                current.remove(&key);
                current.remove(&(key.1, key.0));
            }
        }
        let index = *current.entry(key).or_insert_with(|| {
            growing.push(Growing::new(&segment));
            growing.len() - 1
        });
        growing[index].add(number, packet.time, segment);
    }
    growing.into_iter().map(Growing::finish).filter(|stream| !stream.pieces.is_empty()).collect()
}

impl Growing {
    fn new(segment: &Segment) -> Self {
        let stream = Stream {
            source: segment.source,
            destination: segment.destination,
            from_start: segment.syn,
            pieces: Vec::new(),
        };
        let first = segment.sequence.wrapping_add(u32::from(segment.syn));
        let initial = segment.syn.then_some(segment.sequence);
        Self { stream, anchor: (first, ORIGIN), initial }
    }

    fn add(&mut self, packet: usize, time: Duration, segment: Segment) {
        if segment.data.is_empty() || segment.syn {
            return;
        }
        let distance = segment.sequence.wrapping_sub(self.anchor.0) as i32;
        let offset = self.anchor.1.saturating_add_signed(distance.into());
        let length = (segment.data.len() + segment.cut) as u64;
        if distance >= 0 {
            let end = segment.sequence.wrapping_add(length as u32);
            self.anchor = (end, offset + length);
        }
        self.stream.pieces.push(Piece { offset, packet, time, data: segment.data });
    }

    /// Sorts the pieces; of bytes that came twice, the first to come stay.
    fn finish(mut self) -> Stream {
        self.stream.pieces.sort_by_key(|piece| (piece.offset, piece.packet));
        let mut end = 0;
        let mut pieces: Vec<Piece> = Vec::with_capacity(self.stream.pieces.len());
        for mut piece in std::mem::take(&mut self.stream.pieces) {
            if piece.end() <= end {
                continue;
            }
            if piece.offset < end {
                piece.data = piece.data.slice((end - piece.offset) as usize..);
                piece.offset = end;
            }
            end = piece.end();
            pieces.push(piece);
        }
        self.stream.pieces = pieces;
        self.stream
    }
}

/// Takes an IPv4 packet apart; `None` if it is no whole TCP header.
fn segment(packet: &Bytes) -> Option<Segment> {
    const TCP: u8 = 6;
    let word = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
    let start = usize::from(packet.first()? & 0xf) * 4;
    if packet.first()? >> 4 != 4 || *packet.get(9)? != TCP || word(6)? & 0x1fff != 0 {
        return None;
    }
    let source = SocketAddrV4::new(address(12)?, word(start)?);
    let destination = SocketAddrV4::new(address(16)?, word(start + 2)?);
    let sequence = u32::from_be_bytes(*packet.get(start + 4..)?.first_chunk()?);
    let flags = *packet.get(start + 13)?;
    let header = start + usize::from(packet.get(start + 12)? >> 4) * 4;
    // Segmentation offload leaves a zero here: then the packet is as long as it is.
    let total = match usize::from(word(2)?) {
        0 => packet.len(),
        total => total,
    };
    let length = total.checked_sub(header)?;
    let data = packet.slice(header.min(packet.len())..total.min(packet.len()));
    let cut = length - data.len();
    let (syn, acknowledges) = (flags & 0x02 != 0, flags & 0x10 != 0);
    Some(Segment { source, destination, sequence, syn, acknowledges, data, cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u32, flags: u8, data: &[u8]) -> Packet {
        let mut bytes = vec![0x45, 0];
        bytes.extend((40 + data.len() as u16).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0x10, 0, 0x03, 0xdc]);
        bytes.extend(sequence.to_be_bytes());
        bytes.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        bytes.extend(data);
        Packet { time: Duration::ZERO, data: bytes.into() }
    }

    #[test]
    fn retransmissions_and_disorder_are_sorted_out() {
        let near_wrap = u32::MAX - 3;
        let packets = [
            packet(near_wrap.wrapping_sub(1), 0x02, b""),
            packet(near_wrap, 0x10, b"abcd"),
            packet(2, 0x10, b"gh"),
            packet(near_wrap, 0x10, b"abcdef"),
            packet(4, 0x10, b"ij"),
        ];
        let streams = streams(&packets);
        assert_eq!(streams.len(), 1);
        assert!(streams[0].from_start);
        assert_eq!(&streams[0].read(streams[0].start(), 100)[..], b"abcdefghij");
        assert_eq!(&streams[0].read(streams[0].start() + 3, 4)[..], b"defg");
    }

    #[test]
    fn what_is_missing_stays_missing() {
        let mut cut = packet(100, 0x10, b"0123456789");
        cut.data.truncate(44);
        let streams = streams(&[cut, packet(110, 0x10, b"ab")]);
        let start = streams[0].start();
        assert!(!streams[0].from_start);
        assert_eq!(&streams[0].read(start, 12)[..], b"0123");
        assert_eq!(streams[0].piece_at(start + 4).map(|piece| piece.offset), Some(start + 10));
        assert_eq!(streams[0].end(), start + 12);
    }

    #[test]
    fn no_packet_is_too_strange() {
        let whole = packet(1, 0x10, b"data").data;
        for length in 0..whole.len() {
            let _ = segment(&whole.slice(..length));
        }
        for at in 0..whole.len() {
            let mut bytes = whole.to_vec();
            bytes[at] = 0xff;
            let _ = segment(&bytes.into());
        }
    }
}
