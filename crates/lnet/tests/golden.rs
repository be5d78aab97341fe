//! What a real Lustre 2.17 sent and expects (capture `a`: client 10.77.0.12 mounts from 10.77.0.11).

use std::net::SocketAddrV4;

use bytes::Bytes;
use sheen_lnet::{
    Handshake, HandshakeError, HandshakeProgress, Local, NONE, Partner, ReceivedMessage, Session,
};
use sheen_types::Nid;
use sheen_wire::lnet::{ConnectionType, GetReply, LnetCommand, Portal, WireHandle};

/// The client's acceptor request and HELLO of its control connection.
const CLIENT_OPENING: &str = "0071ceac 01000000 0b004d0a00000200 \
     63697245 03000000 0c004d0a00000200 0b004d0a00000200 39300000 00000000 \
     06880a6900f3e918 0000000000000000 01000000 00000000";
/// The server's answer.
const SERVER_HELLO: &str = "63697245 03000000 0b004d0a00000200 0c004d0a00000200 39300000 00000000 \
     d6b6da12f9f2e918 0000000000000000 01000000 00000000";
/// The client's ping.
const PING: &str = "c1000000 00000000 0000000000000000 0000000000000000 \
     0b004d0a00000200 0c004d0a00000200 39300000 39300000 02000000 00000000 \
     37bcf56200f3e918 0900000000000000 0000000000000080 00000000 00000000 10010000 00000000";
/// What the server answered.
const PING_REPLY: &str = "c1000000 00000000 0000000000000000 0000000000000000 \
     0c004d0a00000200 0b004d0a00000200 39300000 39300000 03000000 30000000 \
     37bcf56200f3e918 0900000000000000 0000000000000000 0000000000000000 0000000000000000 \
     676e6970 1e000000 39300000 02000000 \
     0000000000000900 dec0aa15 00000000 0b004d0a00000200 dec0aa15 00000000";

const CLIENT_INCARNATION: u64 = 0x18e9_f300_690a_8806;
const SERVER_INCARNATION: u64 = 0x18e9_f2f9_12da_b6d6;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn client() -> Local {
    Local { nid: "10.77.0.12@tcp".parse().unwrap(), incarnation: CLIENT_INCARNATION }
}

fn server() -> Local {
    Local { nid: "10.77.0.11@tcp".parse().unwrap(), incarnation: SERVER_INCARNATION }
}

fn privileged() -> SocketAddrV4 {
    "10.77.0.12:1023".parse().unwrap()
}

fn feed_opening(handshake: &mut Handshake, input: &[u8]) {
    handshake.space().extend_from_slice(input);
}

/// A server's session with the client of the capture.
fn session() -> Session {
    let mut handshake = Handshake::passive(server(), privileged());
    feed_opening(&mut handshake, &bytes(CLIENT_OPENING));
    let Ok(HandshakeProgress::Known(partner)) = handshake.advance() else {
        panic!("the client is known")
    };
    handshake.established(partner)
}

#[test]
fn as_server_we_answer_the_captured_opening_byte_for_byte() {
    let opening_bytes = bytes(CLIENT_OPENING);
    for first in 0..=opening_bytes.len() {
        let mut handshake = Handshake::passive(server(), privileged());
        feed_opening(&mut handshake, &opening_bytes[..first]);
        let mut progress = handshake.advance().unwrap();
        if first < opening_bytes.len() {
            assert_eq!(progress, HandshakeProgress::More, "after {first} bytes");
            feed_opening(&mut handshake, &opening_bytes[first..]);
            progress = handshake.advance().unwrap();
        }
        let HandshakeProgress::Known(partner) = progress else {
            panic!("not known after {first} bytes")
        };
        let expected = Partner {
            nid: client().nid,
            pid: 12345,
            incarnation: CLIENT_INCARNATION,
            kind: ConnectionType::CONTROL,
        };
        assert_eq!(partner, expected);
        assert_eq!(handshake.answer(&partner, true), bytes(SERVER_HELLO));
    }
}

#[test]
fn as_client_we_send_the_captured_opening_byte_for_byte() {
    let (mut handshake, first) = Handshake::active(client(), server().nid, ConnectionType::CONTROL);
    assert_eq!(first.concat(), bytes(CLIENT_OPENING));
    let answer = bytes(SERVER_HELLO);
    for byte in &answer[..answer.len() - 1] {
        feed_opening(&mut handshake, &[*byte]);
        assert_eq!(handshake.advance(), Ok(HandshakeProgress::More));
    }
    feed_opening(&mut handshake, &answer[answer.len() - 1..]);
    let Ok(HandshakeProgress::Known(partner)) = handshake.advance() else {
        panic!("the server is known")
    };
    assert_eq!((partner.nid, partner.incarnation), (server().nid, SERVER_INCARNATION));
}

#[test]
fn bulk_connections_are_mirrored() {
    let (_, first) = Handshake::active(client(), server().nid, ConnectionType::BULK_IN);
    let mut handshake = Handshake::passive(server(), privileged());
    feed_opening(&mut handshake, &first.concat());
    let Ok(HandshakeProgress::Known(partner)) = handshake.advance() else {
        panic!("the client is known")
    };
    assert_eq!(partner.kind, ConnectionType::BULK_OUT);
    // Refused, it hears "none", which is the mark of a lost race.
    let refusal = handshake.answer(&partner, false);
    assert_eq!(refusal[48..52], NONE.0.to_le_bytes());
    let (mut active, _) = Handshake::active(client(), server().nid, ConnectionType::BULK_IN);
    feed_opening(&mut active, &refusal);
    assert_eq!(active.advance(), Ok(HandshakeProgress::Refused));
}

#[test]
fn the_captured_ping_is_understood_and_answered_byte_for_byte() {
    let mut session = session();
    let ping = bytes(PING);
    for byte in &ping[..ping.len() - 1] {
        session.space().extend_from_slice(&[*byte]);
        assert_eq!(session.next_message(), Ok(None));
    }
    session.space().extend_from_slice(&ping[ping.len() - 1..]);
    let Ok(Some(ReceivedMessage { command: LnetCommand::Get(get), cookie: 0, .. })) =
        session.next_message()
    else {
        panic!("not a GET");
    };
    assert_eq!((get.portal, get.length), (Portal::RESERVED, 272));
    assert_eq!(get.reply_handle, WireHandle { interface: 0x18e9_f300_62f5_bc37, object: 9 });
    let reply = LnetCommand::Reply(GetReply { handle: get.reply_handle, padding: [0; 3] });
    let answer = sheen_lnet::ping_answer(server().nid);
    let frame = sheen_lnet::message(server(), client().nid, reply, vec![answer.clone()]);
    let sent: Vec<Bytes> = std::iter::once(frame.head).chain(frame.payload).collect();
    assert_eq!(sent.concat(), bytes(PING_REPLY));
    assert_eq!(sheen_lnet::ping_nids(&answer), Ok(vec![Nid::LOOPBACK, server().nid]));
}

#[test]
fn strangers_are_refused_with_what_socklnd_says() {
    let refuse = |input: &[u8], from: SocketAddrV4| {
        let mut handshake = Handshake::passive(server(), from);
        feed_opening(&mut handshake, input);
        handshake.advance().unwrap_err()
    };
    // No magic at all: no answer.
    assert_eq!(refuse(b"GET / HTTP/1.1\r\n", privileged()).answer, None);
    // A version query, and a version from the future: the version we speak.
    let ours = bytes("0071ceac 01000000 0000000000000000");
    let query = bytes("63697245 00000000");
    assert_eq!(refuse(&query, privileged()).answer.unwrap(), ours);
    let future = bytes("0071ceac 07000000");
    assert_eq!(refuse(&future, privileged()).answer.unwrap(), ours);
    // A HELLO of another version: our own HELLO.
    let mut hello = bytes(CLIENT_OPENING);
    hello[20] = 9;
    let answer = refuse(&hello, privileged()).answer.unwrap();
    assert_eq!((answer.len(), &answer[..8]), (56, &bytes("63697245 03000000")[..]));
    // Another node's target.
    let mut elsewhere = bytes(CLIENT_OPENING);
    elsewhere[8] = 99;
    let error = refuse(&elsewhere, privileged()).error;
    assert_eq!(error, HandshakeError::WrongTarget("10.77.0.99@tcp".parse().unwrap()));
    // From an unprivileged port, in another's name.
    let error = refuse(&bytes(CLIENT_OPENING), "10.77.0.66:40000".parse().unwrap()).error;
    assert!(
        matches!(error, HandshakeError::WrongSource { claimed, .. } if claimed == client().nid)
    );
}

#[test]
fn a_long_acceptor_request_is_understood() {
    let mut input = bytes("0071ceac 02000000 0002 0000 0a4d000b 000000000000000000000000");
    input.extend_from_slice(&bytes(CLIENT_OPENING)[16..]);
    let mut handshake = Handshake::passive(server(), privileged());
    feed_opening(&mut handshake, &input);
    assert!(matches!(handshake.advance(), Ok(HandshakeProgress::Known(_))));
}
