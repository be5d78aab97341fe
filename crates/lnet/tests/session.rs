//! Sessions against every way of cutting a stream, and against garbage.

use bytes::{Bytes, BytesMut};
use sheen_lnet::{Frame, Handshake, HandshakeProgress, Local, Session, SessionError, limits};
use sheen_types::{MatchBits, Nid};
use sheen_wire::lnet::{ConnectionType, Get, HANDLE_NONE, LnetCommand, Portal, Put};

const HERE: Local = Local { nid: Nid(0x0002_0000_0a00_0001), incarnation: 1 };
const THERE: Local = Local { nid: Nid(0x0002_0000_0a00_0002), incarnation: 2 };

/// A session at HERE with THERE.
fn session() -> Session {
    let (_, first) = Handshake::active(THERE, HERE.nid, ConnectionType::CONTROL);
    let mut handshake = Handshake::passive(HERE, "10.0.0.2:1000".parse().unwrap());
    handshake.space().extend_from_slice(&first.concat());
    let Ok(HandshakeProgress::Known(partner)) = handshake.advance() else { panic!("known") };
    handshake.established(partner)
}

fn put(payload: Vec<Bytes>) -> LnetCommand {
    let bits = MatchBits(payload.iter().map(Bytes::len).sum::<usize>() as u64);
    LnetCommand::Put(Put {
        ack_handle: HANDLE_NONE,
        match_bits: bits,
        header_data: 5,
        portal: Portal::MDS_REQUEST,
        offset: 0,
    })
}

fn stream(frame: Frame) -> Vec<u8> {
    std::iter::once(frame.head).chain(frame.payload).collect::<Vec<_>>().concat()
}

fn message(from: Local, to: Nid, length: usize) -> Vec<u8> {
    let payload = vec![Bytes::from((0..length).map(|at| (at * 7) as u8).collect::<Vec<_>>())];
    stream(sheen_lnet::message(from, to, put(payload.clone()), payload))
}

/// Numbers for cutting and garbage (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Reads as a socket does: at most the room there is, at most `most`.
fn read(session: &mut Session, input: &mut &[u8], most: usize) -> usize {
    let space: &mut BytesMut = session.space();
    let room = space.capacity() - space.len();
    assert!(room > 0);
    let count = room.min(most).min(input.len());
    space.extend_from_slice(&input[..count]);
    *input = &input[count..];
    count
}

#[test]
fn messages_come_out_whole_however_the_stream_is_cut() {
    let lengths = [0usize, 400, 5000, 16_000, 17_000, 1, 300_000, 2, 1 << 20, 3, 900];
    let whole: Vec<u8> =
        lengths.iter().flat_map(|length| message(THERE, HERE.nid, *length)).collect();
    for seed in 1..40 {
        let mut numbers = Numbers(seed);
        let mut session = session();
        let mut input = whole.as_slice();
        let mut kept = Vec::new();
        while !input.is_empty() {
            let most = 1 + (numbers.next() % (1 << (numbers.next() % 21))) as usize;
            read(&mut session, &mut input, most);
            while let Some(incoming) = session.next_message().unwrap() {
                kept.push(incoming);
            }
        }
        // All are kept to the end: buffers that are used again must not be shared with them.
        assert_eq!(kept.len(), lengths.len());
        for (incoming, length) in kept.iter().zip(lengths) {
            let right =
                incoming.payload.iter().enumerate().all(|(at, byte)| *byte == (at * 7) as u8);
            assert!(incoming.payload.len() == length && right, "seed {seed}, {length} bytes");
        }
    }
}

#[test]
fn a_large_payload_is_read_into_a_buffer_of_its_own() {
    let whole = message(THERE, HERE.nid, 1 << 20);
    let mut session = session();
    let mut input = whole.as_slice();
    let mut reads = 0;
    let incoming = loop {
        read(&mut session, &mut input, usize::MAX);
        reads += 1;
        if let Some(incoming) = session.next_message().unwrap() {
            break incoming;
        }
    };
    assert!(reads <= 3, "{reads} reads");
    assert_eq!(incoming.payload.len(), 1 << 20);
}

#[test]
fn what_breaks_the_protocol_is_distinguished() {
    let result = |bytes: &[u8]| {
        let mut session = session();
        let mut input = bytes;
        while !input.is_empty() {
            read(&mut session, &mut input, usize::MAX);
            match session.next_message() {
                Ok(_) => {}
                Err(error) => return Some(error),
            }
        }
        None
    };
    let stranger = Nid(0x0002_0000_0a00_0009);
    assert_eq!(
        result(&message(THERE, stranger, 4)),
        Some(SessionError::WrongDestination(stranger))
    );
    let other = Local { nid: stranger, incarnation: 3 };
    assert_eq!(result(&message(other, HERE.nid, 4)), Some(SessionError::WrongSource(stranger)));
    let mut long = message(THERE, HERE.nid, 0);
    long[52..56].copy_from_slice(&(limits::PAYLOAD_BYTES_MAX as u32 + 1).to_le_bytes());
    assert_eq!(result(&long), Some(SessionError::PayloadLength(1 << 20 | 1)));
    let get = LnetCommand::Get(Get::default());
    let payload = vec![Bytes::from_static(b"no")];
    let get = stream(sheen_lnet::message(THERE, HERE.nid, get, payload));
    assert_eq!(result(&get), Some(SessionError::PayloadLength(2)));
    let unasked = stream(sheen_lnet::zero_copy_answer(77));
    assert_eq!(result(&unasked), Some(SessionError::UnknownCookie(77)));
    assert_eq!(result(&stream(sheen_lnet::keepalive())), None);
}

#[test]
fn a_zero_copy_request_is_handed_over() {
    let mut bytes = message(THERE, HERE.nid, 100);
    bytes[8..16].copy_from_slice(&4711u64.to_le_bytes());
    let mut session = session();
    session.space().extend_from_slice(&bytes);
    assert_eq!(session.next_message().unwrap().unwrap().cookie, 4711);
}

#[test]
fn garbage_costs_the_connection_and_nothing_else() {
    let good = message(THERE, HERE.nid, 3000);
    let handshake = { Handshake::active(THERE, HERE.nid, ConnectionType::CONTROL).1.concat() };
    for seed in 1..3000 {
        let mut numbers = Numbers(seed);
        // Some bytes of a good stream, changed; or nothing but noise.
        let mut bytes = good.clone();
        for _ in 0..1 + numbers.next() % 8 {
            let at = numbers.next() as usize % 96;
            bytes[at] = numbers.next() as u8;
        }
        if seed % 3 == 0 {
            bytes.iter_mut().for_each(|byte| *byte = numbers.next() as u8);
        }
        let mut session = session();
        let mut input = bytes.as_slice();
        while !input.is_empty() {
            let most = 1 + numbers.next() as usize % 500;
            read(&mut session, &mut input, most);
            let capacity = session.space().capacity();
            assert!(capacity <= limits::PAYLOAD_BYTES_MAX + limits::READ_AHEAD_BYTES);
            if session.next_message().is_err() {
                break;
            }
        }
        let mut bytes = handshake.clone();
        for _ in 0..1 + numbers.next() % 4 {
            let at = numbers.next() as usize % bytes.len();
            bytes[at] ^= 1 << (numbers.next() % 8);
        }
        let mut handshake = Handshake::passive(HERE, "10.0.0.2:1000".parse().unwrap());
        for byte in bytes {
            handshake.space().extend_from_slice(&[byte]);
            if handshake.advance() != Ok(HandshakeProgress::More) {
                break;
            }
        }
    }
}

/// What comes under our own NID was sent in this process: it is believed more than a peer.
#[test]
fn no_peer_connects_under_our_own_name() {
    for (name, port) in [(HERE.nid, 1000), (HERE.nid, 40_000), (Nid::LOOPBACK, 1000)] {
        let thief = Local { nid: name, incarnation: 7 };
        let (_, first) = Handshake::active(thief, HERE.nid, ConnectionType::CONTROL);
        // From port 40,000 the address is what counts, and any user may have bound this one.
        let mut handshake = Handshake::passive(HERE, format!("10.0.0.1:{port}").parse().unwrap());
        handshake.space().extend_from_slice(&first.concat());
        assert!(handshake.advance().is_err(), "{name} from port {port}");
    }
}

#[test]
fn memory_for_a_message_is_set_aside_when_it_comes_and_not_when_it_is_announced() {
    let whole = message(THERE, HERE.nid, limits::PAYLOAD_BYTES_MAX);
    let head = whole.len() - limits::PAYLOAD_BYTES_MAX;
    for sent in [head, head + 1, head + 4_000, head + limits::READ_AHEAD_BYTES - 1] {
        let mut session = session();
        let mut input = &whole[..sent];
        while !input.is_empty() {
            read(&mut session, &mut input, usize::MAX);
            assert_eq!(session.next_message().unwrap(), None);
        }
        let room = session.space().capacity();
        assert!(room <= 3 * limits::READ_AHEAD_BYTES, "{room} bytes for {sent} that came");
    }
}
