//! Sizes and offsets against the numbers that Lustre's wirecheck records, and golden bytes.

use bytes::Bytes;
use sheen_types::{LockHandle, LockMode, ResourceName};

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::connect::ObdConnectData;
use crate::ldlm::*;
use crate::llog::*;
use crate::lnet::*;
use crate::messages::Part;
use crate::mgs::*;
use crate::ptlrpc::*;
use crate::quota::*;

/// Bytes from digits; a line's `#` starts a note.
fn hex(text: &str) -> Bytes {
    let lines = text.lines().flat_map(|line| line.split('#').next());
    let digits = lines.flat_map(str::bytes).filter(|byte| !byte.is_ascii_whitespace());
    let digits: Vec<u8> = digits.collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect::<Vec<_>>().into()
}

#[test]
fn sizes_are_lustres() {
    let sizes = [
        ("ptlrpc_body", PtlrpcBody::SIZE, 184),
        ("obd_connect_data", ObdConnectData::SIZE, 192),
        ("ldlm_resource_desc", LdlmResourceDesc::SIZE, 40),
        ("ldlm_lock_desc", LdlmLockDesc::SIZE, 80),
        ("ldlm_request", LdlmRequest::SIZE_MIN, 104),
        ("ldlm_reply", LdlmReply::SIZE, 112),
        ("ldlm_extent", ExtentPolicy::SIZE, 24),
        ("ldlm_inodebits", InodeBitsPolicy::SIZE, 32),
        ("ldlm_flock_wire", FlockPolicy::SIZE, 32),
        ("ldlm_intent", LdlmIntent::SIZE, 8),
        ("ldlm_gl_desc", LdlmGlDesc::SIZE, 64),
        ("llog_logid", LlogLogid::SIZE, 20),
        ("llogd_body", LlogdBody::SIZE, 48),
        ("llogd_conn_body", LlogdConnBody::SIZE, 40),
        ("llog_rec_hdr", LlogRecHdr::SIZE, 16),
        ("llog_rec_tail", LlogRecTail::SIZE, 8),
        ("llog_cookie", LlogCookie::SIZE, 32),
        ("llog_logid_rec", LlogLogidRec::SIZE, 64),
        ("llog_log_hdr to bitmap", LlogHeaderFixed::SIZE, LLOG_BITMAP_AT),
        ("mgs_target_info", MgsTargetInfo::SIZE, 4544),
        ("mgs_config_body", MgsConfigBody::SIZE, 80),
        ("mgs_config_res", MgsConfigRes::SIZE, 16),
        ("mgs_send_param", MgsSendParam::SIZE, 1024),
        ("cfg_marker", CfgMarker::SIZE, 160),
        ("obd_quotactl", ObdQuotactl::SIZE, 112),
        ("quota_body", QuotaBody::SIZE, 112),
        ("ksock_msg_hdr", KsockHeader::SIZE, 24),
        ("lnet_hdr", LnetHeader::SIZE, 72),
        ("lnet_ack", Ack::SIZE, LnetCommand::SIZE),
        ("lnet_put", Put::SIZE, LnetCommand::SIZE),
        ("lnet_get", Get::SIZE, LnetCommand::SIZE),
        ("lnet_reply", GetReply::SIZE, LnetCommand::SIZE),
        ("lnet_hello", OldHello::SIZE, LnetCommand::SIZE),
    ];
    for (name, size, expected) in sizes {
        assert_eq!(size, expected, "{name}");
    }
}

#[test]
fn offsets_are_lustres() {
    let check = |offsets: &[(&str, usize)], expected: &[(&str, usize)]| {
        for pair in expected {
            assert!(offsets.contains(pair), "{pair:?} in {offsets:?}");
        }
    };
    check(
        PtlrpcBody::OFFSETS,
        &[
            ("opcode", 16),
            ("status", 20),
            ("last_xid", 24),
            ("tag", 32),
            ("last_committed", 40),
            ("transno", 48),
            ("flags", 56),
            ("conn_cnt", 64),
            ("timeout", 68),
            ("slv", 80),
            ("pre_versions", 88),
            ("match_bits", 120),
            ("uid", 144),
            ("jobid", 152),
        ],
    );
    check(
        ObdConnectData::OFFSETS,
        &[
            ("version", 8),
            ("ibits_known", 24),
            ("grant_blkbits", 32),
            ("transno", 40),
            ("cksum_types", 52),
            ("maxbytes", 64),
            ("maxmodrpcs", 72),
            ("flags2", 80),
            // In what Lustre leaves unused.
            ("identity", 96),
            ("update_format", 136),
        ],
    );
    check(LdlmReply::OFFSETS, &[("desc", 8), ("handle", 88), ("policy_res1", 96)]);
    check(LdlmLockDesc::OFFSETS, &[("req_mode", 40), ("granted_mode", 44), ("policy", 48)]);
    check(LlogHeaderFixed::OFFSETS, &[("count", 24), ("flags", 36), ("target_uuid", 44)]);
    check(LlogdBody::OFFSETS, &[("context", 20), ("length", 36), ("offset", 40)]);
    check(
        MgsTargetInfo::OFFSETS,
        &[("fsname", 24), ("service_name", 88), ("uuid", 152), ("nids", 192), ("params", 448)],
    );
    check(MgsConfigBody::OFFSETS, &[("offset", 64), ("kind", 72), ("bits", 75), ("units", 76)]);
    check(Put::OFFSETS, &[("match_bits", 16), ("portal", 32), ("offset", 36)]);
    check(Get::OFFSETS, &[("match_bits", 16), ("portal", 24), ("offset", 28), ("length", 32)]);
}

#[test]
fn an_acceptor_request_of_a_real_client() {
    //               magic    version  nid: address, network 0, tcp
    let bytes = hex("0071ceac 01000000 0b004d0a 0000 0200");
    let request = AcceptorRequest::decode(&bytes).unwrap();
    assert_eq!((request.version, request.target.to_string().as_str()), (1, "10.77.0.11@tcp"));
    assert_eq!(request.encode(), bytes);
    let long = AcceptorRequest { version: 2, ..request };
    assert_eq!(long.encode().len(), ACCEPTOR_V2_BYTES);
    assert_eq!(AcceptorRequest::decode(&long.encode()), Ok(long));
    let mut newer = bytes.to_vec();
    newer[4] = 3;
    let refused = DecodeError::Illegal { what: "acr_version", value: 3 };
    assert_eq!(AcceptorRequest::decode(&newer.into()), Err(refused));
    for length in 0..bytes.len() {
        assert!(AcceptorRequest::decode(&bytes.slice(..length)).is_err());
    }
}

#[test]
fn a_hello_of_a_real_client() {
    let bytes = hex("63697245 03000000 # magic, version
         0c004d0a00000200 0b004d0a00000200 # source, destination
         39300000 00000000 # process ids: 12345, not known
         06880a6900f3e918 0000000000000000 # incarnations
         02000000 00000000 # bulk in, no addresses");
    let (hello, order) = Hello::decode(&bytes).unwrap();
    assert_eq!(order, ByteOrder::Little);
    assert_eq!(hello.source.to_string(), "10.77.0.12@tcp");
    assert_eq!((hello.source_pid, hello.destination_pid), (LUSTRE_PID, 0));
    assert_eq!(hello.connection_type, ConnectionType::BULK_IN);
    assert_eq!(hello.connection_type.flipped(), ConnectionType::BULK_OUT);
    assert_eq!(hello.encode(), bytes);
    let mut newer = bytes.to_vec();
    newer[4] = 4;
    let refused = DecodeError::Illegal { what: "kshm_version", value: 4 };
    assert_eq!(Hello::decode(&newer.into()), Err(refused));
    for length in 0..bytes.len() {
        assert!(Hello::decode(&bytes.slice(..length)).is_err());
    }
}

#[test]
fn a_ping_of_a_real_client_and_the_answer() {
    let get = hex("0b004d0a00000200 0c004d0a00000200 # destination, source
         39300000 39300000 02000000 00000000 # process ids, GET, no payload
         37bcf56200f3e918 0900000000000000 # handle of the reply
         0000000000000080 # match bits
         00000000 00000000 10010000 00000000 # portal, offset, 272 bytes, unused");
    let header = LnetHeader::decode(&mut Reader::new(&get, ByteOrder::Little)).unwrap();
    let LnetCommand::Get(command) = &header.command else { panic!("{header:?}") };
    assert_eq!((command.portal, command.match_bits), (Portal::RESERVED, PING_MATCH_BITS));
    assert_eq!(command.length, 272);
    let mut writer = Writer::default();
    header.encode(&mut writer);
    assert_eq!(writer.into_bytes(), get);

    let info = hex("676e6970 1e000000 39300000 02000000 # magic, features, process id, interfaces
         0000000000000900 dec0aa15 00000000 # 0@lo
         0b004d0a00000200 dec0aa15 00000000 # 10.77.0.11@tcp");
    let decoded = PingInfo::decode(&info).unwrap();
    assert_eq!(decoded.interfaces[1].status, NiStatus::UP);
    assert!(decoded.features.contains(PingFeatures::DISCOVERY | PingFeatures::MULTI_RAIL));
    assert_eq!(decoded.encode(), info);
    for length in 0..info.len() {
        assert!(PingInfo::decode(&info.slice(..length)).is_err());
    }
}

#[test]
fn a_big_endian_message_is_read_and_padding_is_counted() {
    let mut bytes = Vec::new();
    for number in [2u32, 0, MESSAGE_MAGIC, 512, 0, 1, 0, 0, 184, 3] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.resize(40 + 184, 0);
    bytes[40 + 16..40 + 20].copy_from_slice(&400u32.to_be_bytes());
    bytes.extend_from_slice(&[1, 2, 3, 0, 0xff, 0, 0xff, 0]);
    let message = Message::decode(&Bytes::from(bytes)).unwrap();
    assert_eq!(message.order, ByteOrder::Big);
    assert_eq!((message.header.repsize, message.dirty_padding), (512, 2));
    assert_eq!(message.body().unwrap().opcode, crate::opcode::Opcode::OBD_PING);
    assert_eq!(message.buffers[1], Bytes::from_static(&[1, 2, 3]));
}

#[test]
fn a_body_without_a_job_id_is_read_and_kept_short() {
    let mut message =
        Message { buffers: vec![vec![0; BODY_V2_BYTES].into()], ..Message::default() };
    let mut body = message.body().unwrap();
    body.status = -2;
    message.set_body(&body);
    assert_eq!(message.buffers[0].len(), BODY_V2_BYTES);
    assert_eq!(message.body(), Ok(body));
}

#[test]
fn buffer_counts_beyond_the_limit_are_refused() {
    let mut bytes = Message { buffers: vec![Bytes::new()], ..Message::default() }.encode().to_vec();
    bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(Message::decode(&Bytes::from(bytes)).is_err());
}

#[test]
fn lock_requests_keep_their_room_for_handles() {
    let desc = LdlmLockDesc {
        resource: LdlmResourceDesc {
            kind: LockType::IBITS,
            name: ResourceName([1, 2, 0, 0]),
            ..LdlmResourceDesc::default()
        },
        req_mode: LockMode::Pr.into(),
        ..LdlmLockDesc::default()
    };
    let mut request = LdlmRequest::enqueue(LockFlags::HAS_INTENT, desc, LockHandle(7));
    request.handles.extend([LockHandle(8); 3]);
    let mut writer = Writer::default();
    request.encode_part(&mut writer);
    let bytes = writer.into_bytes();
    assert_eq!(bytes.len(), 104 + 24);
    let decode = |bytes: &Bytes| {
        LdlmRequest::decode_part(&mut Reader::new(bytes, ByteOrder::Little), "dlm_req")
    };
    assert_eq!(decode(&bytes), Ok(request.clone()));
    assert_eq!(request.counted(), [LockHandle(7)]);
    let mut lying = bytes.to_vec();
    lying[4] = 6;
    assert!(decode(&lying.into()).is_err());
}

#[test]
fn policies_read_back_as_written() {
    let flock = FlockPolicy { start: 1, end: 2, owner: 3, padding: 0, pid: 5 };
    assert_eq!(Policy::flock(&flock).as_flock(), flock);
    let bits = InodeBitsPolicy { bits: 3, try_bits: 8, gid: 9, padding: 0, initiator: 1 };
    assert_eq!(Policy::inode_bits(&bits).as_inode_bits(), bits);
    let extent = ExtentPolicy { start: 4096, end: u64::MAX, gid: 0 };
    assert_eq!(Policy::extent(&extent).as_extent(), extent);
}

#[test]
fn configuration_records_round_trip() {
    let record = LustreCfg::new(ConfigCommand::ATTACH, &["lustre-OST0000-osc", "osc", "", "id"]);
    let mut writer = Writer::default();
    record.encode(&mut writer);
    let bytes = writer.into_bytes();
    assert_eq!(bytes.len() % 8, 0);
    assert_eq!(LustreCfg::decode(&mut Reader::new(&bytes, ByteOrder::Little)), Ok(record.clone()));
    assert_eq!(
        (record.text(0), record.text(2), record.text(9)),
        (&b"lustre-OST0000-osc"[..], &b""[..], &b""[..])
    );
    for length in 0..bytes.len() {
        let short = bytes.slice(..length);
        assert!(LustreCfg::decode(&mut Reader::new(&short, ByteOrder::Little)).is_err());
    }
}

#[test]
fn recovery_log_entries_round_trip() {
    let nids = ["10.77.0.11@tcp".parse().unwrap()];
    let entry = MgsNidtblEntry::new(5, TargetFlags::SV_TYPE_OST, 3, 9, &nids);
    let mut writer = Writer::default();
    entry.encode(&mut writer);
    let bytes = writer.into_bytes();
    assert_eq!(bytes.len(), 32);
    let decoded = MgsNidtblEntry::decode(&mut Reader::new(&bytes, ByteOrder::Little)).unwrap();
    assert_eq!(decoded.nids(ByteOrder::Little), Ok(nids.to_vec()));
    assert_eq!(decoded, entry);
}

#[test]
fn checksums_of_early_replies_are_plain_crc32_without_the_last_inversion() {
    assert_eq!(!early_reply_checksum(b"123456789"), 0xcbf4_3926);
}
