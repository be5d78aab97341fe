//! Sizes and offsets against the numbers that Lustre's `wirecheck.c` records, and what comes back.

use super::*;

fn check(offsets: &[(&str, usize)], expected: &[(&str, usize)]) {
    for pair in expected {
        assert!(offsets.contains(pair), "{pair:?} in {offsets:?}");
    }
}

#[test]
fn sizes_and_offsets_are_lustres() {
    let sizes = [
        ("out_update_header", OutUpdateHeader::SIZE, 16),
        ("out_update_buffer", OutUpdateBuffer::SIZE, 8),
        ("object_update_param", ObjectUpdateParam::SIZE, 8),
        ("object_update", ObjectUpdateFixed::SIZE, 40),
        ("object_update_request", ObjectUpdateRequest::SIZE, 8),
        ("object_update_result", ObjectUpdateResult::SIZE, 8),
        ("object_update_reply", ObjectUpdateReply::SIZE, 8),
    ];
    for (name, size, expected) in sizes {
        assert_eq!(size, expected, "{name}");
    }
    check(OutUpdateHeader::OFFSETS, &[("count", 4), ("inline_length", 8), ("reply_size", 12)]);
    check(OutUpdateBuffer::OFFSETS, &[("size", 0), ("padding", 4)]);
    check(ObjectUpdateParam::OFFSETS, &[("length", 0), ("padding", 2), ("padding2", 4)]);
    check(
        ObjectUpdateFixed::OFFSETS,
        &[
            ("kind", 0),
            ("param_count", 2),
            ("result_bytes", 4),
            ("flags", 8),
            ("padding", 12),
            ("batch", 16),
            ("fid", 24),
        ],
    );
    check(ObjectUpdateRequest::OFFSETS, &[("magic", 0), ("count", 4), ("padding", 6)]);
    check(ObjectUpdateResult::OFFSETS, &[("status", 0), ("length", 4), ("padding", 6)]);
    check(ObjectUpdateReply::OFFSETS, &[("magic", 0), ("count", 4), ("padding", 6)]);
}

fn updates() -> Vec<ObjectUpdate> {
    let insert = ObjectUpdate {
        kind: UpdateType::INDEX_INSERT,
        flags: UpdateFlags::SYNC,
        batch: 7,
        fid: Fid::new(0x2_0000_0401, 2),
        params: vec![
            Bytes::from_static(b"name\0"),
            Bytes::from_static(&[1; 16]),
            Bytes::from_static(&[0, 0x40, 0, 0]),
        ],
        result_bytes: 0,
    };
    let lookup = ObjectUpdate {
        kind: UpdateType::INDEX_LOOKUP,
        params: vec![Bytes::from_static(b"eight ab")],
        result_bytes: 256,
        ..ObjectUpdate::default()
    };
    let unknown = ObjectUpdate { kind: UpdateType(0x7777), ..ObjectUpdate::default() };
    vec![insert, lookup, unknown]
}

/// By hand, from `lustre_idl.h`.
const INSERT: &[u8] = &[
    2, 0, 0xde, 0xbd, 1, 0, 0, 0, // magic, one update
    10, 0, 3, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, // type, parameters, result, flags
    7, 0, 0, 0, 0, 0, 0, 0, // batch
    1, 4, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, // FID
    5, 0, 0, 0, 0, 0, 0, 0, b'n', b'a', b'm', b'e', 0, 0, 0, 0, // name
    16, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, // FID
    4, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, // type
];

#[test]
fn updates_come_back_and_cut_anywhere_they_are_refused() {
    let bytes = encode_updates(&updates()).expect("they fit");
    assert_eq!(encode_updates(&updates()[..1]).as_deref(), Ok(INSERT));
    let sizes = updates().iter().map(ObjectUpdate::size).sum::<usize>();
    assert_eq!(bytes.len(), ObjectUpdateRequest::SIZE + sizes);
    assert_eq!(decode_updates(&bytes), Ok(updates()));
    for length in 0..bytes.len() {
        assert!(decode_updates(&bytes.slice(..length)).is_err(), "{length}");
    }
    let mut buffer = bytes.to_vec();
    buffer.resize(4096, 0);
    assert_eq!(decode_updates(&buffer.clone().into()), Ok(updates()), "a whole buffer");
    *buffer.last_mut().expect("some") = 1;
    assert!(decode_updates(&buffer.into()).is_err(), "more than updates");
}

#[test]
fn a_big_endian_peers_updates_are_read() {
    let header = [0xbd, 0xde, 0, 2, 0, 1, 0, 0];
    let fixed = [[0, 5, 0, 1, 0, 0, 0, 9], [0; 8], [0, 0, 0, 0, 0, 0, 0, 3]].concat();
    let param = [[0, 2, 0, 0, 0, 0, 0, 0], [8, 9, 0, 0, 0, 0, 0, 0]].concat();
    let bytes = [&header[..], &fixed, &[0; 16], &param].concat();
    let update = ObjectUpdate {
        kind: UpdateType::ATTR_SET,
        batch: 3,
        params: vec![Bytes::from_static(&[8, 9])],
        result_bytes: 9,
        ..ObjectUpdate::default()
    };
    assert_eq!(decode_updates(&bytes.into()), Ok(vec![update]));
}

fn results() -> UpdateResults {
    let result = |status, data| UpdateResult { status, data: Bytes::from_static(data) };
    UpdateResults {
        asked: 5,
        results: vec![result(0, b""), result(1, b"sixteen bytes ab"), result(-2, b"x")],
    }
}

#[test]
fn results_come_back_and_cut_anywhere_they_are_refused() {
    let bytes = results().encode().expect("they fit");
    let lengths = [8, 0, 24, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes[..8], [2, 0, 0xbd, 0, 5, 0, 0, 0]);
    assert_eq!(bytes[8..24], lengths);
    assert_eq!(bytes.len(), 24 + 8 + 24 + 16);
    assert_eq!(UpdateResults::decode(&bytes), Ok(results()));
    for length in 0..bytes.len() {
        assert!(UpdateResults::decode(&bytes.slice(..length)).is_err(), "{length}");
    }
    let mut room = bytes.to_vec();
    room.resize(REPLY_BYTES_MIN, 0);
    assert_eq!(UpdateResults::decode(&room.into()), Ok(results()));
    let none = UpdateResults { asked: 1, results: vec![] };
    assert_eq!(UpdateResults::decode(&none.encode().expect("it fits")), Ok(none));
}

#[test]
fn numbers_of_a_peer_that_cannot_be_are_refused() {
    let bytes = encode_updates(&updates()).expect("they fit");
    for (at, what) in [(0, "magic"), (4, "count"), (10, "parameters"), (48, "a length")] {
        for value in [0xffff_u16, 0x7fff, 0x1234] {
            let mut changed = bytes.to_vec();
            changed[at..at + 2].copy_from_slice(&value.to_le_bytes());
            assert!(decode_updates(&changed.into()).is_err(), "{what}: {value:#x}");
        }
    }
    let answer = results().encode().expect("they fit");
    for (at, what) in
        [(0, "magic"), (4, "count"), (8, "a length"), (14, "a later length"), (28, "data")]
    {
        let mut changed = answer.to_vec();
        changed[at..at + 2].copy_from_slice(&0xffff_u16.to_le_bytes());
        assert!(UpdateResults::decode(&changed.into()).is_err(), "{what}");
    }
}

#[test]
fn a_header_says_how_much_follows_it() {
    let mut writer = Writer::default();
    let magic = OutUpdateHeader::MAGIC;
    OutUpdateHeader { magic, count: 1, inline_length: 4, reply_size: 4096 }.encode(&mut writer);
    writer.put(b"rest");
    let bytes = writer.into_bytes();
    let (header, rest) = OutUpdateHeader::split(&bytes).expect("a header");
    assert_eq!((header.count, header.reply_size, &rest[..]), (1, 4096, &b"rest"[..]));
    for length in 0..bytes.len() {
        assert!(OutUpdateHeader::split(&bytes.slice(..length)).is_err(), "{length}");
    }
}

#[test]
fn what_does_not_fit_is_refused_and_what_is_long_is_taken_apart() {
    let long: Bytes = (0..200_001).map(|at| at as u8).collect::<Vec<_>>().into();
    let whole = ObjectUpdate { params: vec![long.clone()], ..ObjectUpdate::default() };
    let refused = TooMuch { what: "oup_len", value: 200_001 };
    assert_eq!(encode_updates(&[whole]), Err(refused));
    assert_eq!(refused.to_string(), "oup_len: 200001 does not fit");
    let params = in_params(&long);
    assert_eq!(params.len(), 4);
    let update = ObjectUpdate { params, ..ObjectUpdate::default() };
    let bytes = encode_updates(&[update]).expect("it fits");
    let read = decode_updates(&bytes).expect("it was written");
    assert_eq!(from_params(&read[0].params), long);
    assert_eq!((in_params(&Bytes::new()), from_params(&[])), (vec![], Bytes::new()));

    let result = UpdateResult { status: 0, data: long };
    let long = UpdateResults { asked: 1, results: vec![result] };
    assert_eq!(long.encode(), Err(TooMuch { what: "ourp_lens", value: 200_016 }));
    let more = UpdateResults { asked: 2, ..results() };
    assert_eq!(more.encode(), Err(TooMuch { what: "ourp_count", value: 3 }));
}
