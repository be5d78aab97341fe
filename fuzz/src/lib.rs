//! Feeds bytes to every decoder that a peer's bytes reach, one function per direction.
//!
//! What must hold: no panic, no allocation that the input's length does not warrant, and whatever
//! was read and written once is read and written the same again. The wire crate's own tests run
//! the same functions on mutated messages.

use bytes::Bytes;
use sheen_wire::dir::{DirPage, PAGE_SIZE};
use sheen_wire::fld::LuSeqRangeArray;
use sheen_wire::llog::{LlogLogHdr, LlogRecHdr};
use sheen_wire::lmv::LmvEa;
use sheen_wire::lnet::{AcceptorRequest, Hello, KsockHeader, LnetHeader, PingInfo};
use sheen_wire::lov::LovEa;
use sheen_wire::md::{LinkEa, PosixAcl};
use sheen_wire::messages::{Reply, Request, TABLE, find_format};
use sheen_wire::mgs::{LustreCfg, MgsNidtblEntry};
use sheen_wire::out::{OutUpdateHeader, UpdateResults, decode_updates, encode_updates};
use sheen_wire::ptlrpc::{Message, PtlrpcBody};
use sheen_wire::update_record::UpdateRecord;
use sheen_wire::{ByteOrder, Reader, Wire};

/// Bytes as clients send them.
pub fn client_to_server(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    if let Ok(length) = AcceptorRequest::length(&bytes) {
        let head = bytes.slice(..length.min(bytes.len()));
        if let Ok(request) = AcceptorRequest::decode(&head) {
            assert_eq!(AcceptorRequest::decode(&request.encode()), Ok(request));
        }
    }
    frame(&bytes, request);
    request(&bytes);
    values(&bytes);
}

/// Bytes as servers send them. The first byte says to which request a reply answers.
pub fn server_to_client(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let kind = usize::from(*kind) % TABLE.len();
    let bytes = Bytes::copy_from_slice(rest);
    frame(&bytes, |payload| reply(kind, payload));
    frame(&bytes, request);
    reply(kind, &bytes);
    values(&bytes);
    bulk(&bytes);
}

/// HELLO, or headers and what follows them.
fn frame(bytes: &Bytes, payload: impl Fn(&Bytes)) {
    if let Ok((hello, _)) = Hello::decode(bytes) {
        assert_eq!(Hello::decode(&hello.encode()), Ok((hello, ByteOrder::Little)));
    }
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut reader = Reader::new(bytes, order);
        if KsockHeader::decode(&mut reader).is_ok() && LnetHeader::decode(&mut reader).is_ok() {
            payload(&reader.rest());
        }
    }
}

fn request(bytes: &Bytes) {
    let Some((message, body)) = message(bytes) else { return };
    let Ok(typed) = Request::decode(body.opcode, &message) else { return };
    let once = typed.to_bytes(&message.header, &body);
    let again = Message::decode(&once).expect("we read what we wrote");
    if find_format(body.opcode, &again).map(|format| format.kind) == Some(typed.kind()) {
        let typed = Request::decode(body.opcode, &again).expect("we read what we wrote");
        assert_eq!(typed.to_bytes(&again.header, &body), once);
    }
    let _ = typed.dump();
}

fn reply(kind: usize, bytes: &Bytes) {
    let Some((message, body)) = message(bytes) else { return };
    let kind = TABLE[kind].kind;
    let Ok(typed) = Reply::decode(kind, &message) else { return };
    let once = typed.to_bytes(&message.header, &body);
    let again = Message::decode(&once).expect("we read what we wrote");
    let typed = Reply::decode(kind, &again).expect("we read what we wrote");
    assert_eq!(typed.to_bytes(&again.header, &body), once);
    let _ = typed.dump();
}

fn message(bytes: &Bytes) -> Option<(Message, PtlrpcBody)> {
    let message = Message::decode(bytes).ok()?;
    assert_eq!(message.encode().len(), bytes.len());
    let body = message.body().ok()?;
    message.buffers.iter().for_each(values);
    Some((message, body))
}

/// Values with a form of their own inside of messages.
fn values(bytes: &Bytes) {
    if let Ok(layout) = LovEa::decode(bytes) {
        assert_eq!(
            LovEa::decode(&layout.encode()).map(|again| again.encode()),
            Ok(layout.encode())
        );
    }
    if let Ok(striping) = LmvEa::decode(bytes) {
        assert_eq!(LmvEa::decode(&striping.encode()), Ok(striping));
    }
    if let Ok(array) = LuSeqRangeArray::decode(bytes) {
        assert_eq!(LuSeqRangeArray::decode(&array.encode()), Ok(array));
    }
    updates(bytes);
    if let Ok(acl) = PosixAcl::decode(bytes) {
        assert_eq!(PosixAcl::decode(&acl.encode()), Ok(acl));
    }
    if let Ok(links) = LinkEa::decode(bytes) {
        assert_eq!(LinkEa::decode(&links.encode()), Ok(links));
    }
}

/// What MDTs say to each other.
fn updates(bytes: &Bytes) {
    let inline = OutUpdateHeader::split(bytes).map(|(_, inline)| inline);
    if let Ok(updates) = decode_updates(inline.as_ref().unwrap_or(bytes)) {
        let once = encode_updates(&updates).expect("it was read");
        assert_eq!(decode_updates(&once), Ok(updates));
    }
    if let Ok(results) = UpdateResults::decode(bytes) {
        let once = results.encode().expect("it was read");
        assert_eq!(UpdateResults::decode(&once), Ok(results));
    }
    if let Ok(record) = UpdateRecord::decode(bytes) {
        let once = record.encode().expect("it was read");
        assert_eq!(UpdateRecord::decode(&once), Ok(record));
    }
}

/// Bulk data, log blocks and answers to pings.
fn bulk(bytes: &Bytes) {
    if bytes.len() >= PAGE_SIZE
        && let Ok(page) = DirPage::decode(&bytes.slice(..PAGE_SIZE))
    {
        assert_eq!(DirPage::decode(&page.encode()).map(|again| again.entries), Ok(page.entries));
    }
    if let Ok(info) = PingInfo::decode(bytes) {
        assert_eq!(PingInfo::decode(&info.encode()), Ok(info));
    }
    let _ = LlogLogHdr::from_bytes(bytes, ByteOrder::Little);
    let mut reader = Reader::new(bytes, ByteOrder::Little);
    while MgsNidtblEntry::decode(&mut reader).is_ok() {}
    let mut reader = Reader::new(bytes, ByteOrder::Little);
    if LlogRecHdr::decode(&mut reader).is_ok() {
        let _ = LustreCfg::decode(&mut reader);
    }
}
