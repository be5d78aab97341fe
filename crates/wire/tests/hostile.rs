//! Whatever a peer sends: no panic, and no memory set aside that the message's length does not
//! warrant. Messages of every format are cut, overwritten and mixed; the fuzz targets do the same
//! with bytes of their own making.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "they are public where they come from")]
mod decoders;

use bytes::Bytes;
use proptest::prelude::*;
use sheen_wire::lnet::{KsockHeader, LnetCommand, LnetHeader, Put};
use sheen_wire::messages::{
    FieldInfo, FieldKind, Fields, Format, LdlmIntentOpen, Reply, Request, Select, TABLE,
    find_format,
};
use sheen_wire::ptlrpc::{Message, PtlrpcBody};
use sheen_wire::{Wire, Writer};

/// What a counter too large for its message would be.
const NUMBERS: [u32; 6] = [0, 1, 0x7f, 0xffff, 0x7fff_ffff, u32::MAX];

/// One buffer's bytes: zeros of the right length, so that structures can be read.
fn buffer(field: &FieldInfo) -> Vec<u8> {
    match field.kind {
        FieldKind::Array => vec![0; field.size * 2],
        FieldKind::Opaque => vec![0; 40],
        // A text has no size, and needs at least its NUL.
        FieldKind::Required | FieldKind::Optional if field.size == 0 => vec![0; 8],
        FieldKind::Required | FieldKind::Optional => vec![0; field.size],
    }
}

fn message(format: &Format, fields: &[FieldInfo]) -> Message {
    let mut writer = Writer::default();
    PtlrpcBody { opcode: format.opcode, ..PtlrpcBody::default() }.encode(&mut writer);
    let mut buffers = vec![writer.into_bytes()];
    buffers.extend(fields.iter().map(|field| Bytes::from(buffer(field))));
    Message { buffers, ..Message::default() }
}

fn overwrite(message: &mut Message, index: usize, at: usize, bytes: &[u8]) {
    let mut whole = message.buffers[index].to_vec();
    whole[at..at + bytes.len()].copy_from_slice(bytes);
    message.buffers[index] = whole.into();
}

/// A request that its format's entry is found for.
fn sample(format: &Format) -> Message {
    let mut message = message(format, format.request);
    match format.select {
        Select::Any | Select::Buffers(_) => {}
        Select::Reint(op) => overwrite(&mut message, 1, 0, &op.0.to_le_bytes()),
        Select::ReintSymlink => {
            overwrite(&mut message, 1, 0, &2u32.to_le_bytes());
            overwrite(&mut message, 1, 112, &0o120_777u32.to_le_bytes());
        }
        Select::Intent(bits) => {
            let lowest = bits.0 & bits.0.wrapping_neg();
            overwrite(&mut message, 2, 0, &lowest.to_le_bytes());
        }
        Select::Key(key) if message.buffers[1].len() > key.len() => {
            overwrite(&mut message, 1, 0, key.as_bytes());
        }
        Select::Key(key) => message.buffers[1] = Bytes::from([key.as_bytes(), b"\0"].concat()),
    }
    message
}

/// The message as it lies in a stream.
fn framed(payload: &Bytes) -> Vec<u8> {
    let mut writer = Writer::default();
    KsockHeader::default().encode(&mut writer);
    LnetHeader {
        destination: sheen_types::Nid(0),
        source: sheen_types::Nid(0),
        destination_pid: 0,
        source_pid: 0,
        payload_length: payload.len() as u32,
        command: LnetCommand::Put(Put::default()),
    }
    .encode(&mut writer);
    writer.put(payload);
    writer.into_bytes().to_vec()
}

/// Feeds a reply to the decoder of the format with this number.
fn answered(number: usize, payload: &[u8]) {
    let number = u8::try_from(number).expect("a table of fewer than 256 formats");
    decoders::server_to_client(&[&[number], payload].concat());
}

#[test]
fn every_format_is_found_and_read() {
    for format in TABLE {
        let request = sample(format);
        let found = find_format(format.opcode, &request).map(|found| found.kind);
        let shared = matches!(format.select, Select::Any);
        assert!(found == Some(format.kind) || shared, "{}: {found:?}", format.name);
        let read = Request::decode(format.opcode, &request);
        assert!(read.is_ok() || shared, "{}: {read:?}", format.name);
        let reply = message(format, format.reply);
        assert!(Reply::decode(format.kind, &reply).is_ok(), "{}", format.name);
    }
}

#[test]
fn cut_messages_do_no_harm() {
    for (number, format) in TABLE.iter().enumerate() {
        let request = sample(format).encode();
        for length in 0..request.len() {
            decoders::client_to_server(&request[..length]);
        }
        let reply = message(format, format.reply).encode();
        for length in 0..reply.len() {
            answered(number, &reply[..length]);
        }
    }
}

#[test]
fn lying_numbers_do_no_harm() {
    for (number, format) in TABLE.iter().enumerate() {
        let request = sample(format).encode();
        for at in (0..request.len() - 4).step_by(4) {
            for lie in NUMBERS {
                let mut bytes = request.to_vec();
                bytes[at..at + 4].copy_from_slice(&lie.to_le_bytes());
                decoders::client_to_server(&bytes);
            }
        }
        let reply = message(format, format.reply).encode();
        for at in (0..reply.len() - 4).step_by(4) {
            for lie in NUMBERS {
                let mut bytes = reply.to_vec();
                bytes[at..at + 4].copy_from_slice(&lie.to_le_bytes());
                answered(number, &bytes);
            }
        }
    }
}

#[test]
fn the_stream_s_headers_are_read_too() {
    let open = LdlmIntentOpen::default().to_bytes(&Default::default(), &PtlrpcBody::default());
    let stream = framed(&open);
    for length in 0..stream.len() {
        decoders::client_to_server(&stream[..length]);
        answered(0, &stream[..length]);
    }
}

proptest! {
    #[test]
    fn anything_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        decoders::client_to_server(&bytes);
        decoders::server_to_client(&bytes);
    }

    #[test]
    fn mixtures_of_messages_do_no_harm(
        which in any::<proptest::sample::Index>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let number = which.index(TABLE.len());
        let mut request = framed(&sample(&TABLE[number]).encode());
        let mut reply = framed(&message(&TABLE[number], TABLE[number].reply).encode());
        for (at, byte) in &changes {
            let at_request = at.index(request.len());
            request[at_request] = *byte;
            let at_reply = at.index(reply.len());
            reply[at_reply] = *byte;
        }
        decoders::client_to_server(&request);
        answered(number, &reply);
    }
}
