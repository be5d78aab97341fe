//! What a client may name, and what it may not.

use bytes::Bytes;
use sheen_store::Store;
use sheen_store_mem::MemOptions;
use sheen_target::testing::{TestCall, TestClient};
use sheen_types::{Errno, Fid, LockHandle, LockMode, ResourceName, fid_seq};
use sheen_wire::ldlm::{
    ExtentPolicy, LdlmLockDesc, LdlmRequest, LdlmResourceDesc, LockFlags as WireFlags, LockType,
    Policy,
};
use sheen_wire::md::Valid;
use sheen_wire::messages::{
    LdlmEnqueue, OstCreate, OstDestroy, OstGetattr, OstPunch, OstSetattr, OstSync, Reply, Request,
};
use sheen_wire::ost::{BrwFlags, Obdo, ObdoFlags, OstBody, OstId};

use super::harness::{Server, inline, named, piece, put, read, with_ost, write};

/// Sequences whose objects no request may name, and one object of each.
const RESERVED: [(u64, u64); 8] = [
    (fid_seq::LLOG, 1),
    (fid_seq::OST_MDT1, 1),
    (fid_seq::LLOG_NAME, 1),
    (fid_seq::LOCAL_FILE, 0x100),
    (fid_seq::LOCAL_FILE, 0x101),
    (fid_seq::DOT_LUSTRE, 1),
    (fid_seq::ROOT, 1),
    (fid_seq::NORMAL - 1, 1),
];

fn body(oa: Obdo) -> OstBody {
    OstBody { oa }
}

/// Each request that names an object.
fn naming(oi: OstId) -> Vec<Request> {
    let oa = Obdo { oi, ..named(1) };
    let ost_body = body(oa.clone());
    let all = vec![piece(0, 4, BrwFlags::NONE)];
    let mut written = inline(write(1, all.clone()), &Bytes::from_static(b"data"));
    let mut wanted = read(1, all);
    written.ost_body = ost_body.clone();
    wanted.ost_body = ost_body.clone();
    for object in written.obd_ioobj.iter_mut().chain(&mut wanted.obd_ioobj) {
        object.oid = oi;
    }
    vec![
        written.into(),
        wanted.into(),
        OstGetattr { ost_body: ost_body.clone(), ..Default::default() }.into(),
        OstSetattr { ost_body: ost_body.clone(), ..Default::default() }.into(),
        OstPunch { ost_body: body(Obdo { blocks: u64::MAX, ..oa }), ..Default::default() }.into(),
        OstSync { ost_body, ..Default::default() }.into(),
        lock(oi.resource()).into(),
    ]
}

fn lock(name: ResourceName) -> LdlmEnqueue {
    let desc = LdlmLockDesc {
        resource: LdlmResourceDesc { kind: LockType::EXTENT, padding: 0, name },
        req_mode: LockMode::Pw.into(),
        ..LdlmLockDesc::default()
    };
    LdlmEnqueue {
        dlm_req: LdlmRequest::enqueue(WireFlags::NONE, desc, LockHandle(77)),
        ..LdlmEnqueue::default()
    }
}

fn create(sequence: u64, id: u64) -> OstCreate {
    let oi = match sequence {
        fid_seq::OST_MDT0 => OstId::of_id(id),
        _ => OstId { word0: sequence, word1: id },
    };
    let oa = Obdo { valid: Valid::ID | Valid::GROUP, oi, ..Obdo::default() };
    OstCreate { ost_body: body(oa), ..OstCreate::default() }
}

async fn refused(client: &TestClient, request: impl Into<Request>) -> Option<Errno> {
    let call = TestCall::new(request).tagged(1);
    client.call_with(call).await.expect("an answer").errno()
}

#[test]
fn objects_of_reserved_sequences_may_not_be_named() {
    with_ost(MemOptions::default(), |server: Server| async move {
        let client = server.node.connect("c").await;
        let mdt = server.node.connect_server("m").await;
        for (sequence, id) in RESERVED {
            let oi = OstId { word0: sequence, word1: id };
            // They must not come to be either, whichever client asks.
            assert_eq!(refused(&mdt, create(sequence, id)).await, Some(Errno::EPROTO), "{oi:?}");
            let destroy =
                OstDestroy { ost_body: body(Obdo { oi, ..named(1) }), ..Default::default() };
            assert_eq!(refused(&mdt, destroy).await, Some(Errno::EPROTO), "{oi:?}");
            assert!(server.store.attributes(Fid::new(sequence, id as u32)).is_err());
            for request in naming(oi) {
                let kind = request.kind();
                assert_eq!(refused(&client, request).await, Some(Errno::EPROTO), "{kind:?} {oi:?}");
            }
        }
    });
}

#[test]
fn a_client_makes_no_object_come_or_go() {
    with_ost(MemOptions::default(), |server: Server| async move {
        let client = server.node.connect("c").await;
        let no = Some(Errno::EPERM);
        assert_eq!(refused(&client, create(fid_seq::OST_MDT0, 1000)).await, no);
        let mut orphans = create(fid_seq::OST_MDT0, 1);
        orphans.ost_body.oa.valid |= Valid::FLAGS;
        orphans.ost_body.oa.flags = ObdoFlags::DELORPHAN;
        assert_eq!(refused(&client, orphans).await, no);
        let destroy = OstDestroy { ost_body: body(named(1)), ..Default::default() };
        assert_eq!(refused(&client, destroy).await, no);
        assert!(server.store.attributes(super::harness::fid(1)).is_ok());
        // Nor by writing to, punching or locking what was not made.
        for request in naming(OstId::of_id(999_999)) {
            let kind = request.kind();
            assert_eq!(refused(&client, request).await, Some(Errno::ENOENT), "{kind:?}");
        }
        assert!(server.store.attributes(super::harness::fid(999_999)).is_err());
    });
}

/// A client has a group lock as long as it likes: nothing that the MDT asks for waits for its end.
#[test]
fn an_object_that_a_group_has_locked_is_destroyed_and_is_not_waited_for() {
    with_ost(MemOptions::default(), |server: Server| async move {
        let client = server.node.connect("c").await;
        let mdt = server.node.connect_server("m").await;
        let mut group = lock(named(1).oi.resource());
        group.dlm_req.desc.req_mode = LockMode::Group.into();
        let all = ExtentPolicy { start: 0, end: u64::MAX, gid: 5 };
        group.dlm_req.desc.policy = Policy::extent(&all);
        assert_eq!(refused(&client, group).await, None);
        let oa = named(1);
        let valid = oa.valid | Valid::FLAGS;
        let oa = Obdo { valid, flags: ObdoFlags::SRVLOCK, ..oa };
        let size = OstGetattr { ost_body: body(oa), ..Default::default() };
        assert_eq!(refused(&mdt, size).await, Some(Errno::EAGAIN));
        // As a Lustre client writes directly: it asks again.
        let direct = write(1, vec![piece(0, 4, BrwFlags::SRVLOCK)]);
        let direct = inline(direct, &Bytes::from_static(b"data"));
        assert_eq!(refused(&client, direct).await, Some(Errno::EINPROGRESS));
        let destroy = OstDestroy { ost_body: body(named(1)), ..Default::default() };
        assert_eq!(refused(&mdt, destroy).await, None);
        assert!(server.store.attributes(super::harness::fid(1)).is_err());
    });
}

#[test]
fn owners_of_objects_are_set_by_servers() {
    with_ost(MemOptions::default(), |server: Server| async move {
        let client = server.node.connect("c").await;
        let mdt = server.node.connect_server("m").await;
        let set = |valid: Valid| {
            let oa = named(1);
            let oa = Obdo { valid: oa.valid | valid, uid: 7, gid: 7, mtime: 9, ..oa };
            OstSetattr { ost_body: body(oa), ..OstSetattr::default() }
        };
        for owner in [Valid::UID, Valid::GID, Valid::PROJID, Valid::MODE] {
            let asked = set(owner | Valid::MTIME);
            assert_eq!(refused(&client, asked).await, Some(Errno::EPERM), "{owner:?}");
        }
        let now = || server.store.attributes(super::harness::fid(1)).unwrap();
        assert_eq!((now().uid, now().modified.seconds), (0, 0));
        assert_eq!(refused(&client, set(Valid::MTIME)).await, None);
        assert_eq!(refused(&mdt, set(Valid::UID | Valid::GID)).await, None);
        assert_eq!((now().uid, now().gid, now().modified.seconds), (7, 7, 9));
    });
}

/// The MDT is answered about an object when it is durable. One that this OST does not have is lost.
#[test]
fn an_object_that_the_mdt_has_used_and_that_is_not_here_stays_missing() {
    with_ost(MemOptions::default(), |server: Server| async move {
        let mdt = server.node.connect_server("m").await;
        let sequence = fid_seq::NORMAL + 9;
        let agree = |id| {
            let mut request = create(sequence, id);
            request.ost_body.oa.valid |= Valid::FLAGS;
            request.ost_body.oa.flags = ObdoFlags::DELORPHAN;
            request
        };
        assert_eq!(refused(&mdt, create(sequence, 10)).await, None);
        // Further than one request creates: a salvaged MDT leaves a gap.
        for used in [15, 1 << 20] {
            let call = TestCall::new(agree(used)).tagged(1);
            let Some(Reply::OstCreate(reply)) = mdt.call_with(call).await.unwrap().reply else {
                panic!("no answer");
            };
            assert_eq!(reply.ost_body.unwrap().oa.oi.id(), used);
        }
        let oi = |id| OstId { word0: sequence, word1: id };
        for id in [11, 15, 1 << 20] {
            for request in naming(oi(id)) {
                let kind = request.kind();
                assert_eq!(refused(&mdt, request).await, Some(Errno::ENOENT), "{kind:?} {id}");
            }
        }
        // What comes after is made.
        assert_eq!(refused(&mdt, create(sequence, (1 << 20) + 1)).await, None);
        let attributes = OstGetattr {
            ost_body: body(Obdo { oi: oi((1 << 20) + 1), ..named(1) }),
            ..Default::default()
        };
        assert_eq!(refused(&mdt, attributes).await, None);
    });
}

/// An MDT that has lost files, or is another one, knows nothing of their objects: what holds data is kept.
#[test]
fn objects_that_hold_data_are_no_orphans() {
    with_ost(MemOptions::default(), |server: Server| async move {
        let client = server.node.connect("c").await;
        let mdt = server.node.connect_server("m").await;
        let data = Bytes::from_static(b"data");
        put(&client, 3, 0, &data).await.expect("written");
        let grown = Obdo { size: 1 << 20, blocks: u64::MAX, ..named(2) };
        let grown = Obdo { valid: grown.valid | Valid::SIZE | Valid::BLOCKS, ..grown };
        let grow = OstPunch { ost_body: body(grown), ..Default::default() };
        assert_eq!(refused(&client, grow).await, None);
        let mut orphans = create(fid_seq::OST_MDT0, 0);
        orphans.ost_body.oa.valid |= Valid::FLAGS;
        orphans.ost_body.oa.flags = ObdoFlags::DELORPHAN;
        for _ in 0..2 {
            let call = TestCall::new(orphans.clone()).tagged(1);
            let Some(Reply::OstCreate(reply)) = mdt.call_with(call).await.unwrap().reply else {
                panic!("no answer");
            };
            assert_eq!(reply.ost_body.unwrap().oa.oi.id(), 4, "no id is used again");
            let is_there = |id| server.store.recorded_attributes(super::harness::fid(id)).is_ok();
            assert_eq!([1, 2, 3, 4].map(is_there), [false, true, true, false]);
        }
        assert_eq!(server.bytes(3), data);
    });
}

/// What a crash of the MDT and its clients took is no file any more; what an older copy of the MDT does not know still is
/// one.
#[test]
fn data_of_files_whose_creation_a_crash_took_goes_and_that_of_files_an_older_copy_lacks_stays() {
    with_ost(MemOptions::default(), |server: Server| async move {
        let client = server.node.connect("c").await;
        let mdt = server.node.connect_server("m").await;
        let says = |mut request: OstCreate, started: u64, committed: u64| {
            let oa = &mut request.ost_body.oa;
            oa.valid |= Valid::SIZE | Valid::BLOCKS;
            (oa.blocks, oa.size) = (started, committed);
            request
        };
        let agree = |used, started| {
            let mut request = create(fid_seq::OST_MDT0, used);
            request.ost_body.oa.valid |= Valid::FLAGS;
            request.ost_body.oa.flags = ObdoFlags::DELORPHAN;
            says(request, started, started)
        };
        let is_there = |id| server.store.recorded_attributes(super::harness::fid(id)).is_ok();
        let write = async |id| put(&client, id, 0, &Bytes::from_static(b"data")).await;
        // It comes for the first time, and has 100 durable as it creates more.
        assert_eq!(refused(&mdt, agree(4, 10)).await, None);
        assert_eq!(refused(&mdt, says(create(fid_seq::OST_MDT0, 20), 10, 100)).await, None);
        for id in [6, 8] {
            write(id).await.expect("written");
        }
        // A crash: it knows the file of the first one alone.
        assert_eq!(refused(&mdt, agree(6, 100)).await, None);
        assert_eq!([6, 7, 8, 20].map(is_there), [true, false, false, false]);
        assert_eq!(refused(&mdt, says(create(fid_seq::OST_MDT0, 40), 100, 200)).await, None);
        write(30).await.expect("written");
        // A copy of what it was before. Later it has a crash like any other.
        assert_eq!(refused(&mdt, agree(6, 199)).await, None);
        assert_eq!([6, 30, 31].map(is_there), [true, true, false]);
        assert_eq!(refused(&mdt, agree(6, 300)).await, None);
        assert!(is_there(30));
    });
}

/// Objects are made in several transactions, the first of which stay though a later one finds no room.
#[test]
fn a_create_that_ends_in_the_middle_for_want_of_room_is_gone_on_with_later() {
    let few = MemOptions { capacity_objects: Some(1000), ..MemOptions::default() };
    with_ost(few, |server: Server| async move {
        let mdt = server.node.connect_server("m").await;
        let sequence = fid_seq::NORMAL + 9;
        assert_eq!(refused(&mdt, create(sequence, 10)).await, None);
        assert_eq!(refused(&mdt, create(sequence, 2000)).await, Some(Errno::ENOSPC));
        assert_eq!(refused(&mdt, create(sequence, 20)).await, None, "they are there");
    });
}
