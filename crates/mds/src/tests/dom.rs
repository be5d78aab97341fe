//! Data on the MDT: what clients write is read back, and all of them know its size.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_brw::encode_value;
use sheen_store::{Store, Transaction};
use sheen_store_mem::{Commits, MemOptions, StoreMem};
use sheen_target::testing::{TestAnswer, TestCall, TestWorld};
use sheen_types::limits::LNET_PAYLOAD_BYTES_MAX;
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode, Timestamp};
use sheen_wire::codec::{ByteOrder, Reader, Wire};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::ldlm::{LdlmReply, LockFlags as WireFlags};
use sheen_wire::lov::{
    CompFlags, LovComp, LovCompEntry, LovCompHeader, LovComponent, LovMagic, LovMd, LovMdHeader,
    LovPattern,
};
use sheen_wire::md::{AttrValid, MdsOpenFlags, Valid};
use sheen_wire::messages::*;
use sheen_wire::ost::{BrwFlags, NiobufRemote, ObdIoobj, Obdo, ObdoFlags, OstBody, OstId, OstLvb};
use sheen_wire::ptlrpc::{MessageHeader, PtlrpcBody};

use super::fake_ost::FakeOst;
use super::harness::{Client, REGULAR, Server, run};
use super::layouts::swap;
use crate::DomLock;

const EOF: u64 = u64::MAX;
const DATA: InodeBits = InodeBits::DOM;

fn test<F>(seed: u64, body: impl FnOnce(Server, TestWorld) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let world = TestWorld::new(seed);
    let inner = world.clone();
    run(async move { body(Server::start(&inner, 1).await, inner.clone()).await }, &world);
}

/// A layout whose first mebibyte, or all, lies on the MDT.
pub(super) fn layout(fid: Fid) -> Bytes {
    let header = LovMdHeader {
        magic: LovMagic::V1,
        pattern: LovPattern::MDT,
        oi: OstId::of_file(fid),
        stripe_size: 1 << 20,
        ..LovMdHeader::default()
    };
    let on_mdt = LovComponent {
        entry: LovCompEntry { id: 1, flags: CompFlags::INIT, end: 1 << 20, ..Default::default() },
        layout: LovMd { header, ..LovMd::default() },
    };
    let header = LovCompHeader { magic: LovMagic::COMP_V1, ..LovCompHeader::default() };
    let comp = LovComp { header, components: vec![on_mdt] };
    let mut writer = sheen_wire::codec::Writer::with_capacity(128);
    comp.encode_into(&mut writer);
    writer.into_bytes()
}

/// A file on the MDT, as if made so.
async fn make(server: &Server, client: &Client, name: &str) -> Fid {
    let fid = client.make(Fid::ROOT, name, REGULAR | 0o666).await.expect("made");
    let mut change = Transaction::new();
    change.set_xattr(fid, "trusted.lov", layout(fid));
    server.store.apply(change).expect("set");
    fid
}

fn named(fid: Fid) -> Obdo {
    Obdo { valid: Valid::ID | Valid::GROUP, oi: OstId::of_fid(fid), ..Obdo::default() }
}

fn write(fid: Fid, offset: u64, data: &Bytes, flags: BrwFlags) -> OstWrite {
    let oa = Obdo {
        valid: Valid::ID | Valid::GROUP | Valid::FLAGS | Valid::MTIME | Valid::CTIME,
        flags: ObdoFlags::SHORT_IO,
        mtime: 2000,
        ctime: 2000,
        ..named(fid)
    };
    OstWrite {
        ost_body: OstBody { oa },
        obd_ioobj: vec![ObdIoobj { oid: OstId::of_fid(fid), max_brw: 0, bufcnt: 1 }],
        niobuf_remote: vec![NiobufRemote { offset, len: data.len() as u32, flags }],
        short_io: data.clone(),
        ..OstWrite::default()
    }
}

async fn put(client: &Client, fid: Fid, offset: u64, data: &[u8]) -> Result<Obdo, Errno> {
    let data = Bytes::copy_from_slice(data);
    obdo_of(client.inner.call(write(fid, offset, &data, BrwFlags::NONE)).await)
}

async fn read(client: &Client, fid: Fid, offset: u64, len: u32) -> Result<Bytes, Errno> {
    let oid = OstId::of_fid(fid);
    let request = OstRead {
        ost_body: OstBody { oa: named(fid) },
        obd_ioobj: vec![ObdIoobj { oid, max_brw: 0, bufcnt: 1 }],
        niobuf_remote: vec![NiobufRemote { offset, len, flags: BrwFlags::NONE }],
        ..OstRead::default()
    };
    let answer = client.inner.call(request).await;
    answer.errno().map_or(Ok(answer.bulk.clone()), Err)
}

async fn punch(client: &Client, fid: Fid, size: u64) -> Result<Obdo, Errno> {
    let valid = Valid::SIZE | Valid::BLOCKS | Valid::MTIME | Valid::CTIME;
    let oa = Obdo { valid, size, blocks: EOF, mtime: 3000, ctime: 3000, ..named(fid) };
    obdo_of(client.inner.call(OstPunch { ost_body: OstBody { oa }, ..Default::default() }).await)
}

fn obdo_of(answer: TestAnswer) -> Result<Obdo, Errno> {
    if let Some(errno) = answer.errno() {
        return Err(errno);
    }
    let body = match answer.reply.expect("buffers") {
        Reply::OstWrite(reply) => reply.ost_body,
        Reply::OstPunch(reply) => reply.ost_body,
        Reply::OstSync(reply) => reply.ost_body,
        Reply::OstSeek(reply) => reply.ost_body,
        other => panic!("{other:?}"),
    };
    Ok(body.expect("a body").oa)
}

/// A lock's answer with its value.
struct Locked {
    status: i32,
    reply: LdlmReply,
    value: OstLvb,
    mine: LockHandle,
}

fn value(bytes: &Bytes) -> OstLvb {
    OstLvb::decode(&mut Reader::new(bytes, ByteOrder::Little)).expect("a value")
}

async fn enqueue(client: &Client, fid: Fid, mode: LockMode, flags: WireFlags) -> Locked {
    let mut dlm_req = client.dlm(fid, mode, DATA);
    dlm_req.flags = flags;
    let mine = dlm_req.handles[0];
    let answer = client.inner.call(LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() }).await;
    assert_eq!(answer.errno(), None);
    let Some(Reply::LdlmEnqueue(reply)) = answer.reply else { panic!("{:?}", answer.reply) };
    let lock = reply.dlm_rep.expect("a lock's answer");
    client.keep(mine, lock.handle);
    Locked { status: answer.head.status, reply: lock, value: value(&reply.dlm_lvb), mine }
}

async fn lock(client: &Client, fid: Fid, mode: LockMode) -> Locked {
    enqueue(client, fid, mode, WireFlags::NONE).await
}

async fn glimpse(client: &Client, fid: Fid) -> Locked {
    enqueue(client, fid, LockMode::Pr, WireFlags::HAS_INTENT).await
}

/// An open's answer as a whole, with the bytes that came with it.
async fn open(client: &Client, name: &str, flags: MdsOpenFlags) -> Box<LdlmIntentOpenReply> {
    let request = client.open_request(Fid::ROOT, name, flags);
    let mine = request.dlm_req.handles[0];
    let call = TestCall::new(request).tagged(client.next_tag());
    let answer = client.inner.call_with(call).await.expect("an answer");
    assert_eq!(answer.errno(), None);
    let Some(Reply::LdlmIntentOpen(reply)) = answer.reply else { panic!("{:?}", answer.reply) };
    client.keep(mine, reply.dlm_rep.as_ref().expect("an intent's answer").handle);
    reply
}

fn bits(reply: &LdlmIntentOpenReply) -> (InodeBits, Option<LockMode>) {
    let lock = reply.dlm_rep.as_ref().expect("an intent's answer");
    (InodeBits(lock.desc.policy.as_inode_bits().bits), lock.desc.granted_mode.mode())
}

fn inline(reply: &LdlmIntentOpenReply) -> Option<(u64, Bytes)> {
    let bytes = &reply.niobuf_inline;
    let head = NiobufRemote::decode(&mut Reader::new(bytes, ByteOrder::Little)).expect("a head");
    let data = bytes.slice(<NiobufRemote as Wire>::SIZE..);
    assert_eq!(head.len as usize, data.len());
    (head.len > 0).then_some((head.offset, data))
}

#[test]
fn what_is_written_is_read_and_the_inode_says_so() {
    test(400, |server, _| async move {
        let client = server.client("c").await;
        let fid = make(&server, &client, "f").await;
        let oa = put(&client, fid, 10, b"hello").await.expect("written");
        assert_eq!(oa.size, 15);
        let (offset, data) = (1 << 19, vec![7; 300_000]);
        let mut request = write(fid, offset, &Bytes::from(data.clone()), BrwFlags::NONE);
        request.short_io = Bytes::new();
        request.ost_body.oa.flags = ObdoFlags::NONE;
        let call = TestCall { source: data.clone().into(), ..TestCall::new(request) };
        obdo_of(client.inner.call_with(call).await.expect("an answer")).expect("written in bulk");
        assert_eq!(read(&client, fid, 8, 7).await.unwrap(), &b"\0\0hello"[..]);
        assert_eq!(read(&client, fid, offset, 400_000).await.unwrap(), data);
        let inode = server.store.attributes(fid).unwrap();
        assert_eq!(inode.size, offset + 300_000);
        assert_eq!(inode.modified, Timestamp::from_seconds(2000), "times come with data");
        assert_eq!((inode.uid, inode.permissions), (0, 0o644), "and nothing else does");
        let oa = punch(&client, fid, 12).await.expect("cut");
        assert_eq!((oa.size, oa.mtime), (12, 3000));
        punch(&client, fid, 100).await.expect("grown");
        assert_eq!(
            read(&client, fid, 0, 200).await.unwrap()[10..],
            [&b"he"[..], &[0; 88]].concat()
        );
        let ost_body = OstBody { oa: named(fid) };
        let synced = client.inner.call(OstSync { ost_body, ..OstSync::default() }).await;
        assert_eq!(obdo_of(synced).expect("synced").size, 100);
        let stats = client.getattr(fid).await.unwrap();
        assert!(!stats.valid.contains(Valid::DOM_SIZE), "not without the lock");
        server.check();
    });
}

#[test]
fn a_sync_of_an_inode_syncs_no_bytes_of_other_inodes() {
    test(420, |server, _| async move {
        let client = server.client("c").await;
        let sync = async |fid| {
            let mdt_body = sheen_wire::md::MdtBody { fid1: fid, ..Default::default() };
            let request = MdsSync { mdt_body, ..MdsSync::default() };
            assert_eq!(client.inner.call(request).await.errno(), None);
        };
        let fids = [make(&server, &client, "f").await, make(&server, &client, "g").await];
        for fid in fids {
            put(&client, fid, 0, b"hello").await.expect("written");
        }
        let survive = || {
            let after = server.store.crash();
            fids.map(|fid| after.read(fid, 0, 5).unwrap() == b"hello"[..])
        };
        sync(Fid::ROOT).await;
        assert_eq!(survive(), [false, false], "a directory has no bytes");
        sync(fids[1]).await;
        assert_eq!(survive(), [false, true]);
        sync(Fid::default()).await;
        assert_eq!(survive(), [true, true], "all that there is");
        server.check();
    });
}

#[test]
fn a_sync_is_done_at_once_when_nothing_has_changed_since_a_restart() {
    test(421, |server, world| async move {
        let client = server.client("c").await;
        let fid = make(&server, &client, "f").await;
        put(&client, fid, 0, b"hello").await.expect("written");
        server.store.commit().expect("durable");
        let (server, client) = super::recovery::crash(&world, server, &client).await;
        super::recovery::finish_recovery(&client).await;
        for fid in [Fid::ROOT, fid] {
            let mdt_body = sheen_wire::md::MdtBody { fid1: fid, ..Default::default() };
            let request = MdsSync { mdt_body, ..MdsSync::default() };
            assert_eq!(client.inner.call(request).await.errno(), None);
        }
        server.check();
    });
}

#[test]
fn what_has_no_data_here_is_refused() {
    test(401, |server, _| async move {
        let client = server.client("c").await;
        let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
        assert_eq!(put(&client, directory, 0, b"x").await.err(), Some(Errno::EPROTO));
        client.symlink(Fid::ROOT, "l").await.unwrap();
        let (_, link) = client.lookup(Fid::ROOT, "l").await;
        let link = link.mdt_body.expect("attributes").fid1;
        let plain = client.make(Fid::ROOT, "plain", REGULAR | 0o666).await.expect("made");
        for (fid, errno) in [(link, Errno::EPROTO), (plain, Errno::ESTALE)] {
            let before = client.getattr(fid).await.unwrap();
            assert_eq!(put(&client, fid, 0, b"x").await.err(), Some(errno));
            assert_eq!(punch(&client, fid, 0).await.err(), Some(errno));
            assert_eq!(read(&client, fid, 0, 1).await.err(), Some(errno));
            assert_eq!(client.getattr(fid).await.unwrap(), before);
        }
        let absent = client.next_fid();
        assert_eq!(put(&client, absent, 0, b"x").await.err(), Some(Errno::ENOENT));
        assert_eq!(read(&client, absent, 0, 1).await.err(), Some(Errno::ENOENT));
        let object = OstId::of_id(7).fid(0).unwrap();
        assert_eq!(put(&client, object, 0, b"x").await.err(), Some(Errno::EPROTO));
        let fid = make(&server, &client, "f").await;
        let call = client
            .inner
            .call(OstDestroy { ost_body: OstBody { oa: named(fid) }, ..OstDestroy::default() });
        assert_eq!(call.await.errno(), Some(Errno::EPERM), "an MDT destroys with the name");
    });
}

#[test]
fn an_open_brings_lock_size_and_bytes() {
    test(402, |server, _| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let fid = make(&server, &one, "f").await;
        put(&one, fid, 0, &[5; 3000]).await.expect("written");
        let reply = open(&one, "f", MdsOpenFlags::READ).await;
        let all = InodeBits(0x5b);
        assert_eq!(bits(&reply), (all, Some(LockMode::Pr)));
        let body = reply.mdt_body.as_ref().unwrap();
        assert!(body.valid.contains(Valid::DOM_SIZE));
        assert_eq!((body.dom_size, body.dom_blocks), (3000, 8));
        assert_eq!(inline(&reply), Some((0, vec![5; 3000].into())));
        let again = open(&one, "f", MdsOpenFlags::READ).await;
        assert_eq!(inline(&again), None, "it has the lock already, and may have the bytes");
        assert!(!bits(&again).0.intersects(DATA));
        let other = open(&two, "f", MdsOpenFlags::READ).await;
        assert_eq!(inline(&other), Some((0, vec![5; 3000].into())), "readers share");
        let writer = open(&two, "f", MdsOpenFlags::WRITE).await;
        assert!(!bits(&writer).0.intersects(DATA), "a lock conflicts, and is not revoked");
        assert_eq!(one.inner.callbacks().len(), 0);
        let fresh = make(&server, &one, "g").await;
        put(&one, fresh, 0, &[6; 100]).await.expect("written");
        let writer = open(&two, "g", MdsOpenFlags::WRITE).await;
        assert_eq!(bits(&writer), (all, Some(LockMode::Pw)));
        assert_eq!(inline(&writer), Some((0, vec![6; 100].into())), "who appends needs them");
    });
}

#[test]
fn of_a_file_without_room_the_last_page_comes() {
    test(403, |server, _| async move {
        let client = server.client("c").await;
        let fid = make(&server, &client, "f").await;
        put(&client, fid, 100_000 - 1, b"e").await.expect("written");
        let reply = open(&client, "f", MdsOpenFlags::READ).await;
        // The test client has not said how large its pages are: they may have 64 KiB.
        let (offset, data) = inline(&reply).expect("a tail");
        assert_eq!((offset, data.len()), (65536, 100_000 - 65536));
        assert_eq!(data.last(), Some(&b'e'));
        assert_eq!(reply.mdt_body.as_ref().unwrap().dom_size, 100_000);
    });
}

#[test]
fn operators_say_what_an_open_brings() {
    test(404, |server, _| async move {
        let client = server.client("c").await;
        let fid = make(&server, &client, "f").await;
        put(&client, fid, 0, b"data").await.expect("written");
        assert_eq!((server.mdt.dom_lock(), server.mdt.reads_on_open()), (DomLock::Try, true));
        server.mdt.set_dom_lock(DomLock::Never);
        let reply = open(&client, "f", MdsOpenFlags::READ).await;
        assert!(!bits(&reply).0.intersects(DATA));
        assert_eq!(inline(&reply), None);
        server.mdt.set_dom_lock(DomLock::Try);
        server.mdt.set_reads_on_open(false);
        let reply = open(&client, "f", MdsOpenFlags::READ).await;
        assert_eq!((bits(&reply).0, inline(&reply)), (InodeBits(0x5b), None));
        assert_eq!(reply.mdt_body.unwrap().dom_size, 4);
    });
}

#[test]
fn a_client_that_does_not_know_the_bit_never_gets_it() {
    test(405, |server, _| async move {
        let client = server.client("c").await;
        let fid = make(&server, &client, "f").await;
        put(&client, fid, 0, b"data").await.expect("written");
        let agreed = client.inner.agreed();
        assert!(agreed.flags2.contains(ConnectFlags2::DOM_LVB));
        assert!(InodeBits(agreed.ibits_known).contains(DATA));
        assert!(agreed.grant > 0 && agreed.flags.contains(ConnectFlags::GRANT));
        let old = ObdConnectData {
            flags: agreed.flags,
            flags2: agreed.flags2.without(ConnectFlags2::DOM_LVB),
            ibits_known: 0x7f,
            brw_size: 1 << 20,
            ..ObdConnectData::default()
        };
        client.inner.connect_with(old).await.expect("reconnects");
        assert!(!InodeBits(client.inner.agreed().ibits_known).intersects(DATA));
        let reply = open(&client, "f", MdsOpenFlags::READ).await;
        assert!(!bits(&reply).0.intersects(DATA));
        let (_, reply) = client.lookup(Fid::ROOT, "f").await;
        assert!(!reply.mdt_body.unwrap().valid.contains(Valid::DOM_SIZE));
        // Nor by asking for it: alone, and with other bits.
        let ask = async |bits| {
            let dlm_req = client.dlm(fid, LockMode::Pr, bits);
            client.inner.call(LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() }).await
        };
        assert_eq!(ask(DATA).await.errno(), Some(Errno::EPROTO));
        let answer = ask(DATA | InodeBits::LOOKUP).await;
        let Some(Reply::LdlmEnqueue(reply)) = answer.reply else { panic!("{:?}", answer.reply) };
        let desc = reply.dlm_rep.expect("a lock").desc;
        assert_eq!(desc.policy.as_inode_bits().bits, InodeBits::LOOKUP.0);
    });
}

#[test]
fn a_lock_comes_with_what_earlier_holders_wrote() {
    test(406, |server, world| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let fid = make(&server, &one, "f").await;
        let first = lock(&one, fid, LockMode::Pw).await;
        assert_eq!((first.status, first.value.size), (0, 0));
        put(&one, fid, 0, &[1; 50]).await.expect("written under the lock");
        let second = lock(&two, fid, LockMode::Pw).await;
        assert_eq!(second.reply.desc.granted_mode.mode(), None, "it has to wait");
        assert_eq!(second.value.size, 50, "and gets what is known so far");
        world.sleep(std::time::Duration::from_secs(1)).await;
        let granted = two.inner.callbacks().into_iter().find_map(|callback| match callback {
            Request::LdlmCpCallback(callback) => Some(callback),
            _ => None,
        });
        let granted = granted.expect("a completion");
        assert_eq!(granted.dlm_req.handles[0], second.mine);
        assert_eq!(value(&granted.dlm_lvb).size, 50);
    });
}

#[test]
fn a_writer_is_asked_for_the_size() {
    test(407, |server, _| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let fid = make(&server, &one, "f").await;
        put(&one, fid, 0, &[1; 50]).await.expect("written");
        let free = glimpse(&two, fid).await;
        assert_eq!((free.status, free.value.size), (0, 50));
        assert_eq!(free.reply.desc.granted_mode.mode(), Some(LockMode::Pr), "no lock conflicts");
        two.inner.cancel(&[free.reply.handle]).await;
        lock(&one, fid, LockMode::Pw).await;
        let asked = Arc::new(Mutex::new(0));
        let count = Arc::clone(&asked);
        one.inner.on_callback(Box::new(move |request| {
            let Request::LdlmGlCallback(_) = request else { return None };
            *count.lock() += 1;
            let known = OstLvb { size: 10_000, blocks: 24, mtime: 5000, ..OstLvb::default() };
            let dlm_lvb = encode_value(&known);
            Some(Ok(LdlmGlCallbackReply { dlm_lvb, ..Default::default() }.into()))
        }));
        let glimpsed = glimpse(&two, fid).await;
        assert_eq!((glimpsed.status, glimpsed.value.size), (301, 10_000));
        assert_eq!(glimpsed.value.mtime, 5000);
        assert_eq!(glimpsed.reply.handle, LockHandle(0));
        let ahead = WireFlags::HAS_INTENT | WireFlags::BLOCK_NOWAIT;
        let glimpsed = enqueue(&two, fid, LockMode::Pr, ahead).await;
        assert_eq!(
            (glimpsed.status, glimpsed.value.size),
            (301, 50),
            "ahead of use no holder is asked"
        );
        assert_eq!(*asked.lock(), 1);
        let (_, reply) = two.lookup(Fid::ROOT, "f").await;
        let body = reply.mdt_body.unwrap();
        assert!(!body.valid.contains(Valid::DOM_SIZE), "the size is the writer's to say");
    });
}

#[test]
fn a_getattr_brings_the_size_where_no_client_writes() {
    test(408, |server, _| async move {
        let client = server.client("c").await;
        let fid = make(&server, &client, "f").await;
        put(&client, fid, 0, &[1; 70]).await.expect("written");
        let (_, reply) = client.lookup(Fid::ROOT, "f").await;
        let lock = reply.dlm_rep.unwrap();
        assert_eq!(lock.desc.policy.as_inode_bits().bits, 0x5b);
        let body = reply.mdt_body.unwrap();
        assert!(body.valid.contains(Valid::DOM_SIZE));
        assert_eq!((body.dom_size, body.mtime), (70, 2000));
        let made = client.create(Fid::ROOT, "on OSTs").await.unwrap();
        let (_, reply) = client.lookup(Fid::ROOT, "on OSTs").await;
        let bits = reply.dlm_rep.unwrap().desc.policy.as_inode_bits().bits;
        assert!(!InodeBits(bits).intersects(DATA), "other files have no data here");
        client.close(&made).await.unwrap();
    });
}

#[test]
fn the_server_locks_for_a_client_without_a_lock() {
    test(409, |server, _| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let fid = make(&server, &one, "f").await;
        lock(&one, fid, LockMode::Pw).await;
        let data = Bytes::from_static(b"direct");
        let answer = two.inner.call(write(fid, 0, &data, BrwFlags::SRVLOCK)).await;
        obdo_of(answer).expect("written");
        let callbacks = one.inner.callbacks();
        assert!(matches!(&callbacks[..], [Request::LdlmBlCallback(_)]), "{callbacks:?}");
        assert_eq!(read(&two, fid, 0, 6).await.unwrap(), data);
    });
}

#[test]
fn what_is_cached_of_a_destroyed_file_is_discarded() {
    test(410, |server, world| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let fid = make(&server, &one, "f").await;
        lock(&one, fid, LockMode::Pw).await;
        two.unlink(Fid::ROOT, "f").await.expect("gone");
        world.sleep(std::time::Duration::from_secs(1)).await;
        let callbacks = one.inner.callbacks();
        let [Request::LdlmBlCallback(callback)] = &callbacks[..] else { panic!("{callbacks:?}") };
        assert!(callback.dlm_req.flags.contains(WireFlags::DISCARD_DATA));
        assert_eq!(read(&one, fid, 0, 1).await.err(), Some(Errno::ENOENT));
        // With the last close, if it is open.
        let fid = make(&server, &one, "g").await;
        lock(&one, fid, LockMode::Pw).await;
        let opened = two.open(Fid::ROOT, "g", MdsOpenFlags::READ).await.unwrap();
        one.unlink(Fid::ROOT, "g").await.expect("unlinked");
        world.sleep(std::time::Duration::from_secs(1)).await;
        put(&one, fid, 0, b"kept").await.expect("an open file keeps its data");
        assert!(one.inner.callbacks().is_empty());
        two.close(&opened).await.expect("closed");
        world.sleep(std::time::Duration::from_secs(1)).await;
        let callbacks = one.inner.callbacks();
        let [Request::LdlmBlCallback(callback)] = &callbacks[..] else { panic!("{callbacks:?}") };
        assert!(callback.dlm_req.flags.contains(WireFlags::DISCARD_DATA));
        server.check();
    });
}

#[test]
fn a_client_that_has_cached_that_a_file_has_no_data_here_is_notified_when_it_gets_some() {
    test(415, |server, _| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let here = make(&server, &one, "here").await;
        put(&one, here, 0, b"data").await.expect("written");
        let plain = one.create(Fid::ROOT, "elsewhere").await.expect("made");
        let elsewhere = plain.body.fid1;
        // As a client that waited while it was moved away.
        assert_eq!(lock(&two, elsewhere, LockMode::Pr).await.value.size, 0);
        assert!(two.inner.callbacks().is_empty());
        one.modify(swap(&one, elsewhere, here)).await.expect("exchanged");
        let revoked = two.inner.callbacks().into_iter().any(|callback| match callback {
            Request::LdlmBlCallback(call) => call.dlm_req.desc.resource.name.fid() == elsewhere,
            _ => false,
        });
        assert!(revoked);
        assert_eq!(lock(&two, elsewhere, LockMode::Pr).await.value.size, 4);
        one.close(&plain).await.expect("closed");
    });
}

#[test]
fn no_bytes_of_an_evicted_client_reach_a_file() {
    use std::time::Duration;
    test(423, |server, world| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let fid = make(&server, &one, "f").await;
        let mut request = write(fid, 0, &Bytes::from_static(b"old"), BrwFlags::NONE);
        (request.short_io, request.ost_body.oa.flags) = (Bytes::new(), ObdoFlags::NONE);
        let late = TestCall {
            source: Bytes::from_static(b"old"),
            source_time: Duration::from_secs(5),
            ..TestCall::new(request)
        };
        let writes = async move { assert!(one.inner.call_with(late).await.is_none()) };
        world.world().tasks.spawn("a write", Box::pin(writes));
        world.sleep(Duration::from_secs(2)).await;
        assert_eq!(server.node.target.evict_client("one").await, 1);
        put(&two, fid, 0, b"new").await.expect("written");
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(read(&two, fid, 0, 9).await.expect("read"), &b"new"[..]);
    });
}

#[test]
fn times_that_were_set_are_not_undone_by_a_late_write() {
    test(411, |server, _| async move {
        let client = server.client("c").await;
        let fid = make(&server, &client, "f").await;
        put(&client, fid, 0, b"x").await.expect("written");
        let late = TestCall {
            xid: Some(sheen_types::Xid(1 << 12)),
            ..TestCall::new(write(fid, 0, &Bytes::from_static(b"y"), BrwFlags::NONE))
        };
        let valid = AttrValid::MTIME | AttrValid::MTIME_SET | AttrValid::CTIME;
        let set = client.setattr(fid, valid, |record| {
            (record.mtime, record.ctime) = (500, 1500);
        });
        assert_eq!(set.await.expect("set").mtime, 500);
        let answer = client.inner.call_with(late).await.expect("an answer");
        assert_eq!(answer.errno(), None);
        let inode = server.store.attributes(fid).unwrap();
        assert_eq!(inode.modified.seconds, 500, "the bytes came, the time did not");
        assert_eq!(read(&client, fid, 0, 1).await.unwrap(), &b"y"[..]);
        put(&client, fid, 0, b"z").await.expect("written");
        assert_eq!(server.store.attributes(fid).unwrap().modified.seconds, 2000);
    });
}

#[test]
fn a_read_only_client_changes_no_data() {
    test(412, |server, _| async move {
        let client = server.client("c").await;
        let fid = make(&server, &client, "f").await;
        put(&client, fid, 0, b"data").await.expect("written");
        let offer = ObdConnectData {
            flags: client.inner.agreed().flags | ConnectFlags::RDONLY,
            brw_size: 1 << 20,
            ibits_known: 0x7f,
            ..client.inner.agreed()
        };
        client.inner.connect_with(offer).await.expect("reconnects");
        assert_eq!(put(&client, fid, 0, b"x").await.err(), Some(Errno::EROFS));
        assert_eq!(punch(&client, fid, 0).await.err(), Some(Errno::EROFS));
        assert_eq!(read(&client, fid, 0, 9).await.unwrap(), &b"data"[..]);
    });
}

#[test]
fn a_full_store_takes_what_was_promised_and_refuses_the_rest() {
    let world = TestWorld::new(413);
    let inner = world.clone();
    let options = MemOptions {
        commits: Commits::Immediate,
        capacity_bytes: Some(1 << 20),
        ..MemOptions::default()
    };
    run(
        async move {
            let store = Arc::new(StoreMem::new(options));
            let server = Server::start_on(&inner, store, vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            let fid = make(&server, &client, "f").await;
            let granted = u64::from(client.inner.agreed().grant);
            assert!(granted > 0 && granted <= 1 << 18, "{granted}");
            assert_eq!(server.mdt.grant_view().total, granted);
            let too_much = vec![1; (1 << 20) - granted as usize + 4096];
            assert_eq!(put(&client, fid, 0, &too_much).await.err(), Some(Errno::ENOSPC));
            let data = Bytes::from(vec![1; 4096]);
            let mut request = write(fid, 0, &data, BrwFlags::FROM_GRANT);
            request.ost_body.oa.valid |= Valid::GRANT;
            obdo_of(client.inner.call(request).await).expect("it was promised");
            assert_eq!(server.mdt.grant_view().total, granted - 4096);
            client.inner.call(MdsDisconnect::default()).await;
            assert_eq!(server.mdt.grant_view().total, 0, "promises go with the client");
        },
        &world,
    );
}

#[test]
fn a_write_is_acknowledged_only_when_a_crash_cannot_take_its_file_away() {
    let world = TestWorld::new(414);
    let inner = world.clone();
    run(
        async move {
            let options = MemOptions { commits: Commits::Manual, ..MemOptions::default() };
            let store = Arc::new(StoreMem::new(options));
            let server = Server::start_on(&inner, store, vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            let fid = make(&server, &client, "f").await;
            assert_eq!(server.store.is_created_durably(fid), Ok(false));
            let answered = Arc::new(Mutex::new(None));
            let (sent, done) = (client.clone(), Arc::clone(&answered));
            let writes = async move {
                let answer = put(&sent, fid, 0, b"kept").await;
                *done.lock() = Some(answer.map(|oa| oa.size));
            };
            inner.world().tasks.spawn("write", Box::pin(writes));
            inner.sleep(std::time::Duration::from_secs(1)).await;
            assert_eq!(*answered.lock(), None, "its file is not durable yet");
            assert!(server.store.commit_wanted(), "but soon will be");
            server.store.commit().expect("committed");
            inner.sleep(std::time::Duration::from_secs(1)).await;
            assert_eq!(*answered.lock(), Some(Ok(4)));
            assert_eq!(server.store.is_created_durably(fid), Ok(true));
            put(&client, fid, 4, b"!").await.expect("the next waits for nothing");
            let after = server.store.crash();
            assert_eq!(after.read(fid, 0, 9).expect("there").len(), 4, "as synced");
        },
        &world,
    );
}

#[test]
fn an_answer_that_is_asked_for_again_has_the_size_with_the_lock() {
    test(415, |server, _| async move {
        let client = server.client("c").await;
        let fid = make(&server, &client, "f").await;
        put(&client, fid, 0, &[1; 70]).await.expect("written");
        let request = client.open_request(Fid::ROOT, "f", MdsOpenFlags::READ);
        let first = TestCall::new(request.clone()).tagged(7);
        let first = client.inner.call_with(first).await.expect("an answer");
        let again = TestCall {
            xid: Some(first.xid),
            flags: sheen_wire::ptlrpc::MsgFlags::RESENT,
            ..TestCall::new(request).tagged(7)
        };
        let again = client.inner.call_with(again).await.expect("an answer");
        let Some(Reply::LdlmIntentOpen(reply)) = again.reply else { panic!("{:?}", again.reply) };
        assert_eq!(bits(&reply).0, InodeBits(0x5b), "the lock that it has");
        let body = reply.mdt_body.as_ref().unwrap();
        assert_eq!((body.dom_size, body.valid.contains(Valid::DOM_SIZE)), (70, true));
        assert_eq!(inline(&reply), None, "the bytes it may read");
    });
}

#[test]
fn a_client_that_looks_up_before_it_opens_gets_the_bytes_all_the_same_and_once() {
    test(416, |server, _| async move {
        let client = server.client("c").await;
        assert!(client.inner.agreed().flags2.contains(ConnectFlags2::OWN_NAMES), "as ours does");
        let fid = make(&server, &client, "f").await;
        put(&client, fid, 0, &[1; 70]).await.expect("written");
        let (_, reply) = client.lookup(Fid::ROOT, "f").await;
        let bits_looked_up = reply.dlm_rep.unwrap().desc.policy.as_inode_bits().bits;
        assert!(InodeBits(bits_looked_up).contains(DATA));
        let first = open(&client, "f", MdsOpenFlags::READ).await;
        assert_eq!(inline(&first), Some((0, vec![1; 70].into())));
        let again = open(&client, "f", MdsOpenFlags::READ).await;
        assert_eq!(inline(&again), None, "it has them");
        // Lustre's clients do both in one request, and are not given the bit twice.
        let other = server.client("other").await;
        let flags2 = other.inner.agreed().flags2.without(ConnectFlags2::OWN_NAMES);
        let offer = ObdConnectData { flags2, ..other.inner.agreed() };
        other.inner.connect_with(offer).await.expect("reconnects");
        other.lookup(Fid::ROOT, "f").await;
        let reply = open(&other, "f", MdsOpenFlags::READ).await;
        assert_eq!((bits(&reply).0.intersects(DATA), inline(&reply)), (false, None));
    });
}

#[test]
fn an_open_brings_no_more_than_a_mebibyte_whatever_room_there_is() {
    test(417, |server, _| async move {
        let client = server.client("c").await;
        for (name, size, whole) in
            [("f", 900_000, true), ("g", 3 << 20, false), ("h", 1 << 20, false)]
        {
            let fid = make(&server, &client, name).await;
            put(&client, fid, size - 1, b"e").await.expect("written");
            let request = client.open_request(Fid::ROOT, name, MdsOpenFlags::READ);
            let reply_room = Some(u32::MAX as usize);
            let call = TestCall { reply_room, ..TestCall::new(request).tagged(client.next_tag()) };
            let answer = client.inner.call_with(call).await.expect("an answer");
            let reply = answer.reply.expect("an answer");
            let bytes = reply.to_bytes(&MessageHeader::default(), &PtlrpcBody::default()).len();
            assert!(bytes <= LNET_PAYLOAD_BYTES_MAX, "{name}: {bytes}");
            let Reply::LdlmIntentOpen(reply) = reply else { panic!("no answer") };
            let inline = inline(&reply).map(|(offset, data)| (offset, data.len() as u64));
            assert_eq!(inline, whole.then_some((0, size)), "{name}");
        }
    });
}

#[test]
fn an_open_brings_bytes_only_to_callers_that_may_read_them() {
    test(418, |server, _| async move {
        let root = server.client("c").await;
        let fid = make(&server, &root, "f").await;
        put(&root, fid, 0, &[7; 100]).await.expect("written");
        let set = |record: &mut sheen_wire::md::RecSetattr| record.mode = 0o602;
        root.setattr(fid, AttrValid::MODE, set).await.expect("set");
        let other = server.client("other").await;
        let stranger = other.as_user(5, 5);
        for flags in [MdsOpenFlags::NONE, MdsOpenFlags::WRITE] {
            let reply = open(&stranger, "f", flags).await;
            assert_eq!(inline(&reply), None, "{flags:?}");
        }
        let nothing_asked = open(&root, "f", MdsOpenFlags::NONE).await;
        assert_eq!(inline(&nothing_asked), None);
    });
}

#[test]
fn an_intent_that_nothing_names_asks_for_the_lock_where_it_is_no_glimpse() {
    test(441, |server, _| async move {
        let client = server.client("c").await;
        // As a real client has it before it lists a directory whose lock it has lost.
        let mut dlm_req = client.dlm(Fid::ROOT, LockMode::Pr, InodeBits::UPDATE);
        dlm_req.flags = WireFlags::HAS_INTENT;
        let mine = dlm_req.handles[0];
        let answer = client.inner.call(LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() }).await;
        assert_eq!(answer.errno(), None);
        let Some(Reply::LdlmEnqueue(reply)) = answer.reply else { panic!("{:?}", answer.reply) };
        let lock = reply.dlm_rep.expect("a lock's answer");
        client.keep(mine, lock.handle);
        assert_eq!(lock.desc.granted_mode.mode(), Some(LockMode::Pr));
        assert_ne!(lock.handle, LockHandle(0));
    });
}
