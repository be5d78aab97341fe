use bytes::Bytes;
use sheen_types::LockHandle;

use super::*;
use crate::codec::ByteOrder;
use crate::ldlm::{IntentOp, LdlmIntent, LdlmLockDesc, LdlmRequest, LockFlags};
use crate::md::RecCreate;
use crate::opcode::ReintOp;
use crate::ptlrpc::{Message, MessageHeader, PtlrpcBody};
use crate::text::Text;

fn body(opcode: Opcode) -> PtlrpcBody {
    PtlrpcBody { opcode, ..PtlrpcBody::default() }
}

/// Bytes that a field accepts: `count` elements.
fn sample(field: &FieldInfo, count: usize) -> Bytes {
    match field.kind {
        _ if field.type_name.contains("Text") => Bytes::from_static(b"name\0"),
        FieldKind::Required | FieldKind::Optional => vec![0; field.size].into(),
        FieldKind::Array => vec![7; field.size * count].into(),
        FieldKind::Opaque => vec![9; count * 3].into(),
    }
}

/// A message with one buffer per field.
fn full(fields: &[FieldInfo], opcode: Opcode) -> Message {
    let mut message = Message::default();
    message.set_body(&body(opcode));
    message.buffers.extend(fields.iter().map(|field| sample(field, 2)));
    message
}

/// Decodes as request or reply and encodes again.
fn again(kind: Kind, reply: bool, message: &Message) -> Result<Bytes, DecodeError> {
    let body = message.body()?;
    if reply {
        Reply::decode(kind, message).map(|reply| reply.to_bytes(&message.header, &body))
    } else {
        Request::decode_as(kind, message).map(|request| request.to_bytes(&message.header, &body))
    }
}

fn every_side() -> impl Iterator<Item = (&'static Format, bool, &'static [FieldInfo])> {
    TABLE.iter().flat_map(|format| {
        [(format, false, format.request), (format, true, format.reply)].into_iter()
    })
}

#[test]
fn the_table_is_in_the_order_of_its_kinds_and_no_name_comes_twice() {
    for (index, format) in TABLE.iter().enumerate() {
        assert_eq!(format.kind as usize, index);
        assert_eq!(format.kind.format().name, format.name);
        assert!(TABLE[..index].iter().all(|other| other.name != format.name), "{}", format.name);
        let hidden = TABLE[..index]
            .iter()
            .any(|other| other.opcode == format.opcode && other.select == Select::Any);
        assert!(!hidden, "{} can never be found", format.name);
    }
}

#[test]
fn every_message_comes_back_byte_for_byte() {
    for (format, reply, fields) in every_side() {
        let message = full(fields, format.opcode);
        assert_eq!(again(format.kind, reply, &message), Ok(message.encode()), "{}", format.name);
    }
}

#[test]
fn what_is_odd_about_a_message_survives() {
    for (format, reply, fields) in every_side() {
        let mut long = full(fields, format.opcode);
        long.buffers.push(Bytes::from_static(b"more"));
        assert_eq!(again(format.kind, reply, &long), Ok(long.encode()), "{}", format.name);

        for count in 0..=fields.len() {
            let mut short = full(fields, format.opcode);
            short.buffers.truncate(count + 1);
            let needed = fields[count..].iter().any(|field| field.kind == FieldKind::Required);
            let result = again(format.kind, reply, &short);
            assert_eq!(result.is_err(), needed, "{} with {count}", format.name);
            assert!(needed || result == Ok(short.encode()), "{} with {count}", format.name);
        }
        for (index, field) in fields.iter().enumerate().filter(|(_, field)| field.growable) {
            for length in [1, field.size - 1, field.size + 5] {
                let mut grown = full(fields, format.opcode);
                grown.buffers[index + 1] = vec![0; length].into();
                let result = again(format.kind, reply, &grown);
                assert_eq!(result, Ok(grown.encode()), "{} {}", format.name, field.name);
            }
        }
    }
}

#[test]
fn a_buffer_cut_short_is_an_error_or_legal_but_never_a_panic() {
    for (format, reply, fields) in every_side() {
        let message = full(fields, format.opcode);
        for (index, field) in fields.iter().enumerate() {
            for length in 0..message.buffers[index + 1].len() {
                let mut cut = message.clone();
                cut.buffers[index + 1] = cut.buffers[index + 1].slice(..length);
                let result = again(format.kind, reply, &cut);
                let fixed = matches!(field.kind, FieldKind::Required | FieldKind::Optional);
                // A log's header has its bitmap's size from its buffer.
                let varies = field.growable || field.type_name.contains("Text");
                if fixed && !varies && length > 0 {
                    assert!(result.is_err(), "{} {} {length}", format.name, field.name);
                }
                assert!(result.is_err() || result == Ok(cut.encode()), "{}", format.name);
            }
        }
    }
}

#[test]
fn a_message_cut_at_any_byte_is_an_error() {
    let mut lengths: sheen_types::HashSet<_> = sheen_types::HashSet::default();
    for (format, _, fields) in every_side() {
        let bytes = full(fields, format.opcode).encode();
        if bytes.len() > 2048 || !lengths.insert(bytes.len()) {
            continue;
        }
        for length in 0..bytes.len() {
            assert!(Message::decode(&bytes.slice(..length)).is_err(), "{} {length}", format.name);
        }
    }
}

#[test]
fn noise_never_panics() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    for (format, reply, fields) in every_side() {
        let mut message = full(fields, format.opcode);
        for order in [ByteOrder::Little, ByteOrder::Big] {
            message.order = order;
            for buffer in &mut message.buffers[1..] {
                *buffer = (0..buffer.len()).map(|_| byte()).collect::<Vec<_>>().into();
            }
            let _ = again(format.kind, reply, &message);
        }
    }
}

#[test]
fn intents_and_reint_records_choose_the_format() {
    let request = LdlmIntentOpen {
        dlm_req: LdlmRequest::enqueue(
            LockFlags::HAS_INTENT,
            LdlmLockDesc::default(),
            LockHandle(1),
        ),
        ldlm_intent: LdlmIntent { opc: IntentOp::OPEN | IntentOp::CREAT },
        name: Some(Text::from("file")),
        ..LdlmIntentOpen::default()
    };
    let bytes = request.to_bytes(&MessageHeader::default(), &body(Opcode::LDLM_ENQUEUE));
    let message = Message::decode(&bytes).unwrap();
    assert_eq!(message.buffers.len(), 12, "as many as Lustre lists");
    assert_eq!(Request::decode(Opcode::LDLM_ENQUEUE, &message), Ok(request.into()));

    let mut rec_reint = RecCreate { opcode: ReintOp::CREATE, ..RecCreate::default() };
    for (mode, kind) in [(0o040_755, Kind::MdsReintCreate), (0o120_777, Kind::MdsReintCreateSym)] {
        rec_reint.mode = mode;
        let request = MdsReintCreate { rec_reint: rec_reint.clone(), ..MdsReintCreate::default() };
        let message = request.to_message(&MessageHeader::default(), &body(Opcode::MDS_REINT));
        assert_eq!(find_format(Opcode::MDS_REINT, &message).map(|format| format.kind), Some(kind));
    }
}

#[test]
fn keys_choose_the_format_and_unknown_opcodes_are_refused() {
    for (key, kind) in [
        (&b"last_id"[..], Kind::OstGetInfoLastId),
        (b"last_fid\0", Kind::OstGetInfoLastFid),
        (b"last_idx", Kind::OstGetInfo),
    ] {
        let request = OstGetInfo { getinfo_key: key.into(), ..OstGetInfo::default() };
        let message = request.to_message(&MessageHeader::default(), &body(Opcode::OST_GET_INFO));
        let found = find_format(Opcode::OST_GET_INFO, &message);
        assert_eq!(found.map(|format| format.kind), Some(kind));
    }
    let message = full(&[], Opcode(9999));
    let refused = DecodeError::Illegal { what: "pb_opc", value: 9999 };
    assert_eq!(Request::decode(Opcode(9999), &message), Err(refused));
}

#[test]
fn the_document_has_a_row_per_message() {
    assert_eq!(markdown_table().lines().count(), TABLE.len() + 2);
    assert!(markdown_table().contains("| LDLM_INTENT_OPEN | 101 LDLM_ENQUEUE | intent OPEN |"));
}
