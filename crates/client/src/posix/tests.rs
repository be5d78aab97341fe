//! The facade against a scripted MDT: what is asked, what is kept, what is invalidated.

use std::time::Duration;

use bytes::Bytes;
use sheen_io::Clock;
use sheen_ldlm::Policy;
use sheen_types::{Errno, Extent, Fid, InodeBits, LockHandle, LockMode, ResourceName};
use sheen_wire::dir::{DirEntry as WireEntry, DirPage, DirPageHeader, HASH_END};
use sheen_wire::ldlm::IntentOp;
use sheen_wire::lov::{LovEa, LovMagic, LovMd, LovMdHeader, LovOstData, LovPattern};
use sheen_wire::md::{AttrValid, Bias, MdtBody, OpenHandle, Valid};
use sheen_wire::messages::{
    LdlmEnqueueReply, LdlmIntentGetattrReply, LdlmIntentGetxattrReply, MdsCloseReply,
    MdsGetattrReply, MdsReadpageReply, MdsReintSetattrReply, MdsReintUnlinkReply, Request,
};
use sheen_wire::ost::OstId;

use super::*;
use crate::locks::LockRequest;
use crate::testing::{Fixture, absent, blocking, body, found, lock_reply, name, opened};

const FILE: Fid = Fid::new(0x2_0000_0400, 9);
const DIRECTORY: Fid = Fid::new(0x2_0000_0400, 8);
/// The only object of a file with [`layout`].
const OBJECT: Fid = Fid::new(0x2_8000_0401, 2);
/// What an MDT gives with attributes: LOOKUP, UPDATE, PERM.
const WHOLE: InodeBits = InodeBits(0x13);

pub(super) fn layout() -> Bytes {
    layout_of(1)
}

/// A plain layout of so many stripes.
pub(super) fn layout_of(count: u16) -> Bytes {
    let header = LovMdHeader {
        magic: LovMagic::V1,
        pattern: LovPattern::RAID0,
        stripe_size: 1 << 20,
        stripe_count: count,
        ..LovMdHeader::default()
    };
    let stripe = |number: u16| {
        let object = Fid { oid: OBJECT.oid + u32::from(number), ..OBJECT };
        LovOstData { oi: OstId::of_fid(object), ..Default::default() }
    };
    let stripes = (0..count).map(stripe).collect();
    LovEa::Plain(LovMd { header, stripes, ..LovMd::default() }).encode()
}

/// The answer to the removal of one of the names of [`FILE`].
fn gone(links: u32) -> MdsReintUnlinkReply {
    let mdt_body = Some(MdtBody { nlink: links, ..body(FILE, 0o100_644) });
    MdsReintUnlinkReply { mdt_body, ..Default::default() }
}

impl Fixture {
    fn unlink(&self, text: &'static str) -> Result<(), Errno> {
        let files = self.files.clone();
        let unlink = async move { files.unlink(&Fixture::root(), NodeId::ROOT, &name(text)).await };
        self.world.run(unlink)
    }
}

pub(super) fn look_up(
    fixture: &Fixture,
    parent: NodeId,
    text: &'static str,
) -> Result<Lookup, Errno> {
    let files = fixture.files.clone();
    fixture.world.run(async move { files.lookup(&Fixture::root(), parent, &name(text)).await })
}

pub(super) fn entry(lookup: Result<Lookup, Errno>) -> Entry {
    match lookup {
        Ok(Lookup::Found(entry)) => entry,
        other => panic!("expected an entry, got {other:?}"),
    }
}

/// The lock part of the only getattr intent asked.
pub(super) fn getattr_request(asked: &[Request]) -> &sheen_wire::messages::LdlmIntentGetattr {
    match asked {
        [Request::LdlmIntentGetattr(request)] => request,
        other => panic!("expected one getattr, got {other:?}"),
    }
}

#[test]
fn a_name_is_asked_once_while_its_lock_is_held_and_forgotten_before_it_goes() {
    let fixture = Fixture::new();
    let reply = found(DIRECTORY, 0o040_755, 0x77, WHOLE);
    let lock = reply.dlm_rep.clone().unwrap();
    fixture.mdt.answer(reply);
    let first = entry(look_up(&fixture, NodeId::ROOT, "d"));
    assert_eq!(first.keep, MayCache { entry: true, attributes: true });
    assert_eq!(first.attributes.mode, 0o040_755);
    let asked = fixture.mdt.take_asked();
    let request = getattr_request(&asked);
    assert_eq!(request.ldlm_intent.opc, IntentOp::GETATTR);
    assert_eq!(entry(look_up(&fixture, NodeId::ROOT, "d")).node, first.node);
    assert!(fixture.mdt.take_asked().is_empty(), "a lock covers it");

    // The kernel takes its time: until then the lock stays.
    let hold = Arc::new(tokio::sync::Notify::new());
    *fixture.watcher.hold.lock() = Some(Arc::clone(&hold));
    fixture.locks.on_blocking(&blocking(&request.dlm_req, &lock)).unwrap();
    fixture.world.settle();
    let notices = fixture.watcher.take();
    assert_eq!(notices, [format!("inode {} Attributes", first.node.0)]);
    assert!(fixture.mdt.take_asked().is_empty());
    *fixture.watcher.hold.lock() = None;
    hold.notify_waiters();
    fixture.world.settle();
    assert_eq!(fixture.watcher.take(), ["entry 1 d"]);
    match &fixture.mdt.take_asked()[..] {
        [Request::LdlmCancel(cancel)] => {
            assert_eq!(cancel.dlm_req.counted(), [LockHandle(0x77)]);
        }
        other => panic!("expected a cancel, got {other:?}"),
    }
    fixture.mdt.answer(found(DIRECTORY, 0o040_700, 0x78, WHOLE));
    assert_eq!(entry(look_up(&fixture, NodeId::ROOT, "d")).attributes.mode, 0o040_700);
}

#[test]
fn a_lock_under_a_new_name_says_nothing_of_the_old_one() {
    let fixture = Fixture::new();
    let reply = found(DIRECTORY, 0o040_755, 0x77, WHOLE);
    let lock = reply.dlm_rep.clone().unwrap();
    fixture.mdt.answer(reply);
    let node = entry(look_up(&fixture, NodeId::ROOT, "old")).node;
    let asked = fixture.mdt.take_asked();
    fixture.locks.on_blocking(&blocking(&getattr_request(&asked).dlm_req, &lock)).unwrap();
    fixture.world.settle();
    fixture.mdt.answer(found(DIRECTORY, 0o040_755, 0x78, WHOLE));
    assert_eq!(entry(look_up(&fixture, NodeId::ROOT, "new")).node, node);
    fixture.mdt.take_asked();
    // Another client has renamed it.
    fixture.mdt.answer(absent());
    let old = look_up(&fixture, NodeId::ROOT, "old").unwrap();
    assert!(matches!(old, Lookup::Absent { .. }));
    assert_eq!(fixture.mdt.take_asked().len(), 1);
    assert_eq!(entry(look_up(&fixture, NodeId::ROOT, "new")).node, node);
    assert!(fixture.mdt.take_asked().is_empty());
}

#[test]
fn a_part_that_another_lock_covers_is_not_lost() {
    let fixture = Fixture::new();
    let reply = found(DIRECTORY, 0o040_755, 0x77, WHOLE);
    let lock = reply.dlm_rep.clone().unwrap();
    fixture.mdt.answer(reply);
    let node = entry(look_up(&fixture, NodeId::ROOT, "d")).node;
    let first = fixture.mdt.take_asked();
    // A second lock on the name alone, as a lookup in a directory being changed gets it.
    let pin = fixture.files.0.pin(node).unwrap();
    pin.state().lose_bits(WHOLE);
    pin.state().directory.changed_here = true;
    fixture.mdt.answer(found(DIRECTORY, 0o040_755, 0x79, InodeBits::LOOKUP | InodeBits::PERM));
    look_up(&fixture, NodeId::ROOT, "d").unwrap();
    let asked = fixture.mdt.take_asked();
    assert_eq!(getattr_request(&asked).ldlm_intent.opc, IntentOp::LOOKUP);
    pin.state().cover_bits(WHOLE);
    fixture.locks.on_blocking(&blocking(&getattr_request(&first).dlm_req, &lock)).unwrap();
    fixture.world.settle();
    let notices = fixture.watcher.take();
    assert!(notices.iter().all(|notice| !notice.starts_with("entry")), "{notices:?}");
    assert!(pin.state().is_named(NodeId::ROOT, &name("d")) && !pin.state().attributes_covered());
}

#[test]
fn an_absent_name_is_kept_under_the_directorys_lock() {
    let fixture = Fixture::new();
    fixture.mdt.answer(absent());
    assert_eq!(look_up(&fixture, NodeId::ROOT, "no"), Ok(Lookup::Absent { keep: false }));
    // Now with a lock on the directory.
    let reply = found(Fid::ROOT, 0o040_755, 0x70, WHOLE);
    let lock = reply.dlm_rep.clone().unwrap();
    fixture.mdt.answer(reply);
    let files = fixture.files.clone();
    let stat =
        fixture.world.run(async move { files.getattr(&Fixture::root(), NodeId::ROOT).await });
    assert!(stat.unwrap().keep);
    let asked = fixture.mdt.take_asked();
    fixture.mdt.answer(absent());
    assert_eq!(look_up(&fixture, NodeId::ROOT, "no"), Ok(Lookup::Absent { keep: true }));
    assert_eq!(look_up(&fixture, NodeId::ROOT, "no"), Ok(Lookup::Absent { keep: true }));
    assert_eq!(fixture.mdt.take_asked().len(), 1);
    fixture.locks.on_blocking(&blocking(&getattr_request(&asked[1..]).dlm_req, &lock)).unwrap();
    fixture.world.settle();
    assert_eq!(fixture.watcher.take(), ["inode 1 Attributes", "children 1 no"]);
}

#[test]
fn a_create_is_one_request_that_carries_the_cancels() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found(Fid::ROOT, 0o040_755, 0x70, WHOLE));
    let files = fixture.files.clone();
    fixture.world.run(async move { files.getattr(&Fixture::root(), NodeId::ROOT).await }).unwrap();
    fixture.mdt.take_asked();
    fixture.mdt.expect(|request| match request {
        Request::LdlmIntentOpen(open) => {
            assert_eq!(open.dlm_req.counted()[1..], [LockHandle(0x70)]);
            assert_eq!(open.rec_reint.fid1, Fid::ROOT);
            assert_eq!(open.rec_reint.mode, 0o100_640);
            Ok(opened(open.rec_reint.fid2, 0xabc, true, layout()).into())
        }
        other => panic!("expected an open, got {other:?}"),
    });
    let files = fixture.files.clone();
    let (entry, opened_file) = fixture
        .world
        .run(async move {
            let flags = OpenFlags(OpenFlags::CREATE | 1);
            files.open_create(&Fixture::root(), NodeId::ROOT, &name("f"), 0o640, flags).await
        })
        .unwrap();
    // The sequence is asked for once.
    assert_eq!(fixture.mdt.take_asked().len(), 2);
    assert!(entry.keep.entry && !entry.keep.attributes, "nothing covers the object");

    // The MDT restarts and gives another handle; the close must use it.
    let hooks = fixture.mdt.take_hooks();
    let [hook] = &hooks[..] else { panic!("one open is kept") };
    let fid = entry.attributes.fid;
    let mut replay = Request::LdlmIntentOpen(Box::default());
    hook.before_replay(&mut replay, &Default::default());
    let Request::LdlmIntentOpen(replay) = replay else { panic!("still an open") };
    assert_eq!((replay.rec_reint.fid2, replay.rec_reint.open_handle_old.0), (fid, 0xabc));
    assert_eq!(replay.eadata.len(), layout().len());
    hook.replayed(&sheen_rpc::Answer {
        xid: sheen_types::Xid(1),
        body: Default::default(),
        reply: opened(fid, 0xdef, true, layout()).into(),
        bulk: Vec::new(),
        connection: 1,
    });
    fixture.mdt.expect(|request| match request {
        Request::MdsClose(close) => {
            assert_eq!(close.mdt_ioepoch.open_handle, OpenHandle(0xdef));
            assert_eq!(close.rec_reint.size, 5);
            Ok(MdsCloseReply::default().into())
        }
        other => panic!("expected a close, got {other:?}"),
    });
    let files = fixture.files.clone();
    let data = Arc::clone(&fixture.data);
    fixture
        .world
        .run(async move {
            let handle = opened_file.handle;
            files.write(handle, 0, Bytes::from_static(b"hello")).await?;
            *data.files.lock()[&fid].covered.lock() = true;
            files.release(handle, None).await
        })
        .unwrap();
    assert_eq!(fixture.mdt.released.lock().len(), 1);
    assert!(fixture.mdt.is_done());
}

#[test]
fn what_an_mdt_would_not_close_is_closed_when_its_open_was_replayed() {
    let fixture = Fixture::new();
    fixture.mdt.expect(|request| match request {
        Request::LdlmIntentOpen(open) => {
            Ok(opened(open.rec_reint.fid2, 0xabc, true, layout()).into())
        }
        other => panic!("expected an open, got {other:?}"),
    });
    let files = fixture.files.clone();
    let (entry, file) = fixture
        .world
        .run(async move {
            let flags = OpenFlags(OpenFlags::CREATE | 1);
            files.open_create(&Fixture::root(), NodeId::ROOT, &name("f"), 0o640, flags).await
        })
        .unwrap();
    let replayed = |handle| sheen_rpc::Answer {
        xid: sheen_types::Xid(1),
        body: Default::default(),
        reply: opened(entry.attributes.fid, handle, true, layout()).into(),
        bulk: Vec::new(),
        connection: 1,
    };
    let hooks = fixture.mdt.take_hooks();
    // A restart while it is in use.
    hooks[0].replayed(&replayed(0xdef));
    fixture.world.settle();
    assert!(fixture.mdt.is_done());
    fixture.mdt.refuse(Errno::EIO);
    let files = fixture.files.clone();
    fixture.world.run(async move { files.release(file.handle, None).await }).unwrap();
    fixture.world.settle();
    fixture.mdt.take_asked();
    fixture.mdt.answer(MdsCloseReply::default());
    hooks[0].replayed(&replayed(0xfed));
    fixture.world.settle();
    let asked = fixture.mdt.take_asked();
    let [Request::MdsClose(close)] = &asked[..] else { panic!("expected a close, got {asked:?}") };
    assert_eq!(close.mdt_ioepoch.open_handle, OpenHandle(0xfed));
}

#[test]
fn the_size_is_the_objects_and_is_kept_only_under_their_locks() {
    let fixture = Fixture::new();
    let mut reply = opened(FILE, 1, false, layout());
    reply.dlm_rep = Some(lock_reply(FILE, 0x71, LockMode::Pr, InodeBits(0x1b)));
    let whole = sheen_wire::messages::LdlmIntentGetattrReply {
        dlm_rep: reply.dlm_rep,
        mdt_body: reply.mdt_body,
        mdt_md: layout(),
        ..Default::default()
    };
    fixture.mdt.answer(whole);
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    let stat = |fixture: &Fixture| {
        let files = fixture.files.clone();
        fixture.world.run(async move { files.getattr(&Fixture::root(), node).await }).unwrap()
    };
    let file = Arc::new(crate::testing::FakeFile::default());
    *file.bytes.lock() = vec![0; 77];
    fixture.data.files.lock().insert(FILE, Arc::clone(&file));
    let seen = stat(&fixture);
    assert_eq!((seen.attributes.size, seen.attributes.mtime.seconds, seen.keep), (77, 500, false));
    *file.covered.lock() = true;
    assert!(stat(&fixture).keep);
    assert_eq!(fixture.mdt.take_asked().len(), 1, "the MDT's part is covered all along");
}

#[test]
fn unlink_cancels_locks_on_what_it_removes_and_invalidates_only_if_it_fails() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found(FILE, 0o100_644, 0x77, WHOLE));
    look_up(&fixture, NodeId::ROOT, "f").unwrap();
    fixture.mdt.take_asked();
    fixture.mdt.refuse(Errno::EPERM);
    assert_eq!(fixture.unlink("f"), Err(Errno::EPERM));
    match &fixture.mdt.take_asked()[..] {
        [Request::MdsReintUnlink(request)] => {
            let cancels = request.dlm_req.as_ref().unwrap();
            assert_eq!(cancels.counted(), [LockHandle(0x77)]);
            assert_eq!(request.rec_reint.fid2, FILE);
        }
        other => panic!("expected an unlink, got {other:?}"),
    }
    assert!(fixture.watcher.take().contains(&"entry 1 f".to_owned()));
    fixture.mdt.answer(MdsReintUnlinkReply::default());
    assert_eq!(fixture.unlink("f"), Ok(()));
    assert!(!fixture.watcher.take().contains(&"entry 1 f".to_owned()));
}

#[test]
fn the_data_path_hears_of_a_file_that_lost_its_last_name() {
    let fixture = Fixture::new();
    let remove = |links: u32, is_closed: bool| {
        fixture.mdt.answer(opened(FILE, 0xabc, true, layout()));
        let files = fixture.files.clone();
        let create = async move {
            let flags = OpenFlags(OpenFlags::CREATE | 2);
            files.open_create(&Fixture::root(), NodeId::ROOT, &name("f"), 0o644, flags).await
        };
        let (entry, opened) = fixture.world.run(create).unwrap();
        let files = fixture.files.clone();
        let close = async move { files.release(opened.handle, None).await };
        if is_closed {
            fixture.mdt.answer(MdsCloseReply::default());
            fixture.world.run(close).unwrap();
            fixture.mdt.answer(gone(links));
            fixture.unlink("f").unwrap();
        } else {
            fixture.mdt.answer(gone(links));
            fixture.unlink("f").unwrap();
            fixture.mdt.answer(MdsCloseReply::default());
            fixture.world.run(close).unwrap();
        }
        fixture.files.forget(entry.node, 1);
        std::mem::take(&mut *fixture.data.gone.lock())
    };
    assert_eq!(remove(1, true), []);
    assert_eq!(remove(0, false), [], "it is open");
    assert_eq!(remove(0, true), [OBJECT]);
}

#[test]
fn a_directory_is_read_once_while_its_lock_is_held() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found(DIRECTORY, 0o040_755, 0x77, WHOLE));
    let node = entry(look_up(&fixture, NodeId::ROOT, "d")).node;
    let names = [(5, "."), (7, "a"), (7, "b"), (9, "..")];
    let file = |(hash, name): (u64, &'static str)| {
        WireEntry::new(FILE, hash, Bytes::from_static(name.as_bytes()), 0o100_000)
    };
    let page = DirPage {
        header: DirPageHeader { hash_end: HASH_END, ..Default::default() },
        entries: names.map(file).to_vec(),
    };
    fixture.mdt.bulk(vec![page.encode()]);
    fixture.mdt.answer(MdsReadpageReply::default());
    fixture.mdt.take_asked();
    let files = fixture.files.clone();
    let listed = fixture.world.run(async move {
        let who = Fixture::root();
        let mut listed = Vec::new();
        for _ in 0..2 {
            let flags = OpenFlags(OpenFlags::DIRECTORY);
            let handle = files.open(&who, node, flags).await?.handle;
            let mut at = DirCookie(0);
            loop {
                let some = files.readdir(handle, at, 2).await?;
                let Some(last) = some.last() else { break };
                at = last.next;
                listed.extend(some.into_iter().map(|entry| entry.name));
            }
            files.release(handle, None).await?;
        }
        Ok::<_, Errno>(listed)
    });
    let listed = listed.unwrap();
    let once: Vec<&[u8]> = names.iter().map(|(_, name)| name.as_bytes()).collect();
    assert_eq!(
        listed.iter().map(|name| &name[..]).collect::<Vec<_>>(),
        [&once[..], &once].concat()
    );
    assert_eq!(fixture.mdt.take_asked().len(), 1, "one READPAGE, and no open");
}

#[test]
fn extended_attributes_are_asked_once() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found(FILE, 0o100_644, 0x77, WHOLE));
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    fixture.mdt.take_asked();
    fixture.mdt.answer(LdlmIntentGetxattrReply {
        dlm_rep: Some(lock_reply(FILE, 0x79, LockMode::Pr, InodeBits::XATTR)),
        eadata: Bytes::from_static(b"user.a\0trusted.x\0"),
        eavals: Bytes::from_static(b"12"),
        eavals_lens: vec![1, 1],
        ..Default::default()
    });
    let files = fixture.files.clone();
    fixture.world.run(async move {
        let (root, user) = (Fixture::root(), Credentials { uid: 7, ..Fixture::root() });
        assert_eq!(files.getxattr(&root, node, b"user.a").await, Ok(Bytes::from_static(b"1")));
        assert_eq!(files.getxattr(&root, node, b"user.b").await, Err(Errno::ENODATA));
        assert_eq!(files.getxattr(&user, node, b"trusted.x").await, Err(Errno::ENODATA));
        assert_eq!(files.listxattr(&user, node).await, Ok(Bytes::from_static(b"user.a\0")));
    });
    assert_eq!(fixture.mdt.take_asked().len(), 1);
}

#[test]
fn times_of_ones_own_choice_need_the_owner() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found(DIRECTORY, 0o040_777, 0x77, WHOLE));
    let node = entry(look_up(&fixture, NodeId::ROOT, "d")).node;
    let set = |fixture: &Fixture, uid: u32, time: SetTime| {
        let files = fixture.files.clone();
        let who = Credentials { uid, ..Fixture::root() };
        let changes = SetAttributes { mtime: Some(time), ..SetAttributes::default() };
        fixture.world.run(async move { files.setattr(&who, node, None, changes).await })
    };
    let chosen = SetTime::To(sheen_types::Timestamp::from_seconds(9));
    assert_eq!(set(&fixture, 7, chosen), Err(Errno::EPERM));
    let reply = MdsReintSetattrReply {
        mdt_body: Some(body(DIRECTORY, 0o040_777)),
        ..MdsReintSetattrReply::default()
    };
    fixture.mdt.answer(reply);
    let stat = set(&fixture, 7, SetTime::Now).unwrap();
    assert!(!stat.keep, "the lock went with the request");
    assert!(fixture.mdt.is_done());
}

#[test]
fn closes_are_reported_of_what_can_write_and_of_all_once_a_lock_was_taken() {
    let fixture = Fixture::new();
    let open = |fixture: &Fixture, flags| {
        fixture.mdt.answer(opened(FILE, 1, false, layout()));
        let files = fixture.files.clone();
        let flags = OpenFlags(OpenFlags::CREATE | flags);
        let create = async move {
            files.open_create(&Fixture::root(), NodeId::ROOT, &name("f"), 0o644, flags).await
        };
        fixture.world.run(create).expect("opened").1
    };
    let (reader, writer) = (open(&fixture, 0), open(&fixture, 2));
    assert_eq!((reader.sends_no_flush, writer.sends_no_flush), (true, false));
    let lock = |fixture: &Fixture, handle, owner, pid| {
        fixture.mdt.expect(|request| match request {
            Request::LdlmEnqueue(enqueue) => {
                let mut lock = lock_reply(FILE, 0x99, LockMode::Pr, InodeBits(0));
                lock.desc = enqueue.dlm_req.desc.clone();
                lock.desc.granted_mode = enqueue.dlm_req.desc.req_mode;
                Ok(LdlmEnqueueReply { dlm_rep: Some(lock), ..Default::default() }.into())
            }
            other => panic!("expected an enqueue, got {other:?}"),
        });
        let files = fixture.files.clone();
        let mode = FileLockMode::Read;
        let wanted = FileLock { start: 0, end: 9, mode, pid, uid: 0, is_flock: false };
        let set = async move { files.set_lock(handle, LockOwner(owner), wanted, false).await };
        assert_eq!(fixture.world.run(set), Ok(()));
    };
    let opener = Fixture::root().pid;
    lock(&fixture, reader.handle, 3, opener + 1);
    lock(&fixture, writer.handle, 4, opener + 1);
    lock(&fixture, writer.handle, 5, opener);
    assert!(!open(&fixture, 0).sends_no_flush, "there are locks now");
    // The kernel did not report the reader's close, so its RELEASE releases what was locked through it, and
    // what the process that opened it has locked.
    fixture.mdt.take_asked();
    let unlocked = |request: &Request| match request {
        Request::LdlmEnqueue(it) => Some(it.dlm_req.desc.policy.as_flock().owner),
        _ => None,
    };
    let expect_unlock = |owner| {
        fixture.mdt.expect(move |request| {
            assert_eq!(unlocked(request), Some(owner));
            let mut lock = lock_reply(FILE, 0x98, LockMode::Nl, InodeBits(0));
            let Request::LdlmEnqueue(enqueue) = request else { unreachable!("asserted above") };
            lock.desc = enqueue.dlm_req.desc.clone();
            lock.desc.granted_mode = LockMode::Nl.into();
            Ok(LdlmEnqueueReply { dlm_rep: Some(lock), ..Default::default() }.into())
        });
    };
    let release = |handle| {
        fixture.mdt.answer(MdsCloseReply::default());
        let files = fixture.files.clone();
        let release = async move { files.release(handle, None).await };
        assert_eq!(fixture.world.run(release), Ok(()));
        fixture.world.settle();
        let asked = fixture.mdt.take_asked();
        asked.iter().filter_map(unlocked).collect::<Vec<_>>()
    };
    for owner in [3, 5] {
        expect_unlock(owner);
    }
    assert_eq!(release(reader.handle), [3, 5]);
    // Closes of the writer are reported, but not what an open file description had locked itself.
    expect_unlock(4);
    assert_eq!(release(writer.handle), [4]);
}

#[test]
fn closes_under_way_are_waited_for_a_second_at_most() {
    let world = crate::testing::TestWorld::new(3);
    let waited = |closing: super::PendingCloses| {
        let (inner, begin) = (world.clone(), world.now());
        world.run(async move { closing.wait(&*inner.world().clock).await });
        world.now().since(begin)
    };
    assert_eq!(waited(super::PendingCloses::default()), Duration::ZERO);
    let stuck = super::PendingCloses::default();
    let close = stuck.begin();
    assert_eq!(waited(stuck), Duration::from_secs(1));
    drop(close);
    let short = super::PendingCloses::default();
    let (close, inner) = (short.begin(), world.clone());
    let soon = world.now() + Duration::from_millis(5);
    let end = async move {
        inner.sleep_until(soon).await;
        drop(close);
    };
    world.world().tasks.spawn("close", Box::pin(end));
    assert_eq!(waited(short), Duration::from_millis(5));
}

#[test]
fn file_locks_are_replayed_to_a_restarted_mdt() {
    let fixture = Fixture::new();
    fixture.mdt.answer(opened(FILE, 1, false, layout()));
    let files = fixture.files.clone();
    let handle = fixture
        .world
        .run(async move {
            let flags = OpenFlags(OpenFlags::CREATE | 2);
            files.open_create(&Fixture::root(), NodeId::ROOT, &name("f"), 0o644, flags).await
        })
        .unwrap()
        .1
        .handle;
    let wanted =
        FileLock { start: 0, end: 9, mode: FileLockMode::Write, pid: 5, uid: 0, is_flock: false };
    let set = |fixture: &Fixture, wait: bool| {
        let files = fixture.files.clone();
        fixture.world.run(async move { files.set_lock(handle, LockOwner(3), wanted, wait).await })
    };
    fixture.mdt.refuse(Errno::EAGAIN);
    assert_eq!(set(&fixture, false), Err(Errno::EAGAIN));
    fixture.mdt.expect(|request| match request {
        Request::LdlmEnqueue(enqueue) => {
            let mut lock = lock_reply(FILE, 0x99, LockMode::Pw, InodeBits(0));
            lock.desc = enqueue.dlm_req.desc.clone();
            lock.desc.granted_mode = LockMode::Pw.into();
            assert_eq!(lock.desc.resource.name.0[3], 12);
            Ok(LdlmEnqueueReply { dlm_rep: Some(lock), ..Default::default() }.into())
        }
        other => panic!("expected an enqueue, got {other:?}"),
    });
    assert_eq!(set(&fixture, true), Ok(()));
    let replays = fixture.locks.locks_to_replay(1);
    let enqueues = replays.iter().filter_map(|replay| match &replay.call.request {
        Request::LdlmEnqueue(enqueue) => Some(enqueue),
        _ => None,
    });
    let flock = |kind| kind == sheen_wire::ldlm::LockType::FLOCK;
    let mut flocks = enqueues.filter(|it| flock(it.dlm_req.desc.resource.kind));
    let replay = flocks.next().expect("the lock is replayed");
    let policy = replay.dlm_req.desc.policy.as_flock();
    assert_eq!((policy.start, policy.end, policy.owner, policy.pid), (0, 9, 3, 5));
}

#[test]
fn a_lock_that_was_not_replayed_to_a_restarted_mdt_is_none() {
    let fixture = Fixture::new();
    let known = fixture.locks.engine().gauges().locks;
    let hold = Arc::new(tokio::sync::Notify::new());
    *fixture.mdt.hold.lock() = Some(Arc::clone(&hold));
    fixture.mdt.answer(found(DIRECTORY, 0o040_755, 0x77, WHOLE));
    for cookie in [0x88, 0x99] {
        fixture.mdt.expect(move |request| match request {
            Request::LdlmEnqueue(_) => {
                let lock = lock_reply(FILE, cookie, LockMode::Pr, InodeBits::UPDATE);
                Ok(LdlmEnqueueReply { dlm_rep: Some(lock), ..Default::default() }.into())
            }
            other => panic!("expected an enqueue, got {other:?}"),
        });
    }
    let looked_up = Arc::new(parking_lot::Mutex::new(None));
    let cookie = Arc::new(parking_lot::Mutex::new(None));
    let tasks = fixture.world.world().tasks;
    let (files, slot) = (fixture.files.clone(), Arc::clone(&looked_up));
    let lookup = async move {
        *slot.lock() = Some(files.lookup(&Fixture::root(), NodeId::ROOT, &name("d")).await);
    };
    tasks.spawn("lookup", Box::pin(lookup));
    fixture.world.settle();
    let (locks, slot) = (Arc::clone(&fixture.locks), Arc::clone(&cookie));
    let enqueue = async move {
        let ask = LockRequest {
            resource: ResourceName::of_fid(FILE),
            policy: Policy::bits(InodeBits::UPDATE),
            mode: LockMode::Pr,
            flags: sheen_ldlm::LockFlags::NONE,
        };
        let held = locks.enqueue(ask).await.expect("a lock");
        *slot.lock() = locks.engine().lock(held.handle()).map(|lock| lock.remote_handle);
    };
    tasks.spawn("enqueue", Box::pin(enqueue));
    fixture.world.settle();

    // Both answers have come over the former connection, and were not processed yet.
    fixture.mdt.connection.store(1, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(fixture.locks.locks_to_replay(1).len(), known);
    *fixture.mdt.hold.lock() = None;
    hold.notify_waiters();
    fixture.world.settle();
    let entry = entry(looked_up.lock().take().expect("answered"));
    assert_eq!(entry.keep, MayCache { entry: false, attributes: false }, "nothing protects it");
    assert_eq!(*cookie.lock(), Some(LockHandle(0x99)), "asked again");
    assert!(fixture.mdt.is_done());
}

#[test]
fn modes_of_rename_that_lustre_refuses() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found(FILE, 0o100_644, 0x77, WHOLE));
    let rename = |fixture: &Fixture, mode: RenameMode| {
        let files = fixture.files.clone();
        fixture.world.run(async move {
            let (from, to) = (name("a"), name("b"));
            let root = NodeId::ROOT;
            files.rename(&Fixture::root(), (root, &from), (root, &to), mode).await
        })
    };
    assert_eq!(rename(&fixture, RenameMode::NoReplace), Err(Errno::EEXIST));
    assert_eq!(rename(&fixture, RenameMode::Exchange), Err(Errno::EINVAL));
}

/// The reply to a lookup of a file with an object, whose size the MDT vouches for or not.
fn found_file(lock: u64, bits: InodeBits, vouched: bool) -> LdlmIntentGetattrReply {
    let mut reply = found(FILE, 0o100_644, lock, bits);
    reply.mdt_md = layout();
    let body = reply.mdt_body.as_mut().expect("attributes");
    body.valid |= Valid::EASIZE;
    body.eadatasize = reply.mdt_md.len() as u32;
    if vouched {
        body.valid |= Valid::SIZE | Valid::BLOCKS;
    }
    reply
}

fn stat(fixture: &Fixture, node: NodeId) -> Stat {
    let files = fixture.files.clone();
    let stat = fixture.world.run(async move { files.getattr(&Fixture::root(), node).await });
    stat.expect("attributes")
}

/// What the file's objects were asked for.
fn take_done(fixture: &Fixture) -> Vec<String> {
    let files = fixture.data.files.lock();
    files.get(&FILE).map(|file| std::mem::take(&mut *file.done.lock())).unwrap_or_default()
}

#[test]
fn a_size_that_the_mdt_vouches_for_costs_no_glimpse_until_the_file_may_be_written() {
    let with_layout = WHOLE | InodeBits::LAYOUT;
    let fixture = Fixture::new();
    let reply = found_file(0x77, with_layout, true);
    let lock = reply.dlm_rep.clone().unwrap();
    fixture.mdt.answer(reply);
    let entry = entry(look_up(&fixture, NodeId::ROOT, "f"));
    assert_eq!((entry.attributes.size, entry.keep.attributes), (0, true));
    let known = stat(&fixture, entry.node);
    assert_eq!((known.attributes.size, known.keep), (0, true));
    assert_eq!(take_done(&fixture), Vec::<String>::new());
    // Another client opens it for writing, and the server revokes our lock.
    let asked = fixture.mdt.take_asked();
    fixture.locks.on_blocking(&blocking(&getattr_request(&asked).dlm_req, &lock)).unwrap();
    fixture.world.settle();
    assert!(fixture.watcher.take().contains(&format!("inode {} Attributes", entry.node.0)));
    fixture.mdt.answer(found_file(0x78, with_layout, false));
    let known = stat(&fixture, entry.node);
    assert!(!known.keep, "nothing covers the object");
    assert_eq!(take_done(&fixture), ["glimpse"]);
}

#[test]
fn a_size_is_asked_for_after_an_open_of_ours() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found_file(0x78, WHOLE | InodeBits::LAYOUT, true));
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    stat(&fixture, node);
    assert_eq!(take_done(&fixture), Vec::<String>::new());
    fixture.mdt.answer(opened(FILE, 0xabc, false, layout()));
    let files = fixture.files.clone();
    let open = async move { files.open(&Fixture::root(), node, OpenFlags(1)).await };
    fixture.world.run(open).expect("opened");
    stat(&fixture, node);
    assert_eq!(take_done(&fixture), ["glimpse"], "we may write it ourselves");
}

#[test]
fn a_close_reports_writes_and_none_of_a_handle_that_wrote_nothing() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found_file(0x77, WHOLE | InodeBits::LAYOUT, false));
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    for writes in [false, true] {
        fixture.mdt.answer(opened(FILE, 0xabc, false, layout()));
        fixture.mdt.expect(move |request| match request {
            Request::MdsClose(close) => {
                let modified = close.rec_reint.bias.contains(Bias::DATA_MODIFIED);
                assert_eq!(modified, writes);
                assert!(writes || close.rec_reint.valid == AttrValid::NONE);
                Ok(MdsCloseReply::default().into())
            }
            other => panic!("expected a close, got {other:?}"),
        });
        let files = fixture.files.clone();
        fixture.world.run(async move {
            let opened = files.open(&Fixture::root(), node, OpenFlags(1)).await.expect("opened");
            if writes {
                files.write(opened.handle, 0, Bytes::from_static(b"x")).await.expect("written");
            }
            files.release(opened.handle, None).await.expect("closed");
        });
    }
    assert!(fixture.mdt.is_done());
}

#[test]
fn a_read_is_sent_with_the_close_and_shown_before() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found_file(0x77, WHOLE | InodeBits::LAYOUT, false));
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    fixture.world.run({
        let world = fixture.world.clone();
        async move { world.sleep_until(world.now() + Duration::from_secs(1000)).await }
    });
    let now = fixture.world.wall().seconds;
    for is_sent in [true, false] {
        fixture.mdt.answer(opened(FILE, 0xabc, false, layout()));
        fixture.mdt.expect(move |request| match request {
            Request::MdsClose(close) => {
                let record = &close.rec_reint;
                let access = AttrValid::ATIME | AttrValid::ATIME_SET;
                assert_eq!(record.valid, if is_sent { access } else { AttrValid::NONE });
                assert_eq!(record.atime, if is_sent { now } else { 0 });
                Ok(MdsCloseReply::default().into())
            }
            other => panic!("expected a close, got {other:?}"),
        });
        let files = fixture.files.clone();
        fixture.world.run(async move {
            let opened = files.open(&Fixture::root(), node, OpenFlags(0)).await.expect("opened");
            assert_eq!(opened.keep_pages, !is_sent, "reads served there would not be noted");
            files.read(opened.handle, 0, 10).await.expect("read");
            let stat = files.getattr(&Fixture::root(), node).await.expect("a file");
            assert_eq!(stat.attributes.atime.seconds, now);
            files.release(opened.handle, None).await.expect("closed");
        });
    }
    assert!(fixture.mdt.is_done());
}

#[test]
fn a_read_that_must_ask_for_the_layout_says_which_pages_wait_for_it() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found_file(0x77, WHOLE | InodeBits::LAYOUT, false));
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    fixture.mdt.answer(opened(FILE, 0xabc, false, layout()));
    let files = fixture.files.clone();
    let open = async move { files.open(&Fixture::root(), node, OpenFlags(0)).await };
    let handle = fixture.world.run(open).expect("opened").handle;
    let read = |offset| {
        let files = fixture.files.clone();
        fixture.world.run(async move { files.read(handle, offset, 10).await.map(drop) })
    };
    assert_eq!(read(0), Ok(()));
    fixture.data.asked.lock().clear();
    assert_eq!(read(100), Ok(()));
    assert_eq!(*fixture.data.asked.lock(), [], "it is known");
    // Another client moves the file.
    fixture.files.0.pin(node).expect("there").state().file.layout_guard.layout_revoked();
    assert_eq!(read(200), Ok(()));
    assert_eq!(*fixture.data.asked.lock(), [(FILE, Extent { start: 0, end: 4095 })]);
}

/// The MDT makes objects on a new OST before the client's configuration has it.
#[test]
fn an_ost_that_is_not_known_yet_is_waited_for() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found_file(0x77, WHOLE | InodeBits::LAYOUT, false));
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    for (looks, found) in [(u32::MAX, Err(Errno::ENODEV)), (20, Ok(Vec::new()))] {
        *fixture.data.unknown.lock() = looks;
        fixture.mdt.answer(opened(FILE, 0xabc, false, layout()));
        let files = fixture.files.clone();
        let read = fixture.world.run(async move {
            let opened = files.open(&Fixture::root(), node, OpenFlags(0)).await.expect("opened");
            files.read(opened.handle, 0, 10).await.map(|pieces| pieces.concat())
        });
        assert_eq!(read, found);
    }
}

/// The MDT names an object that its OST has not: there is a name, and no way to say how long the file is.
#[test]
fn an_object_that_is_lost_is_an_error_and_no_missing_name() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found_file(0x77, WHOLE | InodeBits::LAYOUT, false));
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    fixture.mdt.answer(opened(FILE, 0xabc, false, layout()));
    let files = fixture.files.clone();
    let handle = fixture.world.run(async move {
        files.open(&Fixture::root(), node, OpenFlags(0)).await.expect("opened").handle
    });
    let read = |files: FileSystem| async move { files.read(handle, 0, 10).await.map(drop) };
    assert_eq!(fixture.world.run(read(fixture.files.clone())), Ok(()));
    let file = fixture.data.files.lock().values().next().cloned().expect("one");
    *file.refused.lock() = Some(Errno::ENOENT);
    // The MDT has the file.
    let there = || {
        let mdt_body = Some(body(FILE, 0o100_644));
        MdsGetattrReply { mdt_body, ..Default::default() }
    };
    fixture.mdt.answer(there());
    assert_eq!(fixture.world.run(read(fixture.files.clone())), Err(Errno::EIO));
    fixture.mdt.answer(there());
    let files = fixture.files.clone();
    let answer = fixture.world.run(async move { files.getattr(&Fixture::root(), node).await });
    assert_eq!(answer.map(drop), Err(Errno::EIO));
    // It is open; its name can be looked up all the same, as a removal has the kernel do.
    fixture.mdt.answer(there());
    let found = entry(look_up(&fixture, NodeId::ROOT, "f"));
    assert_eq!((found.node, found.keep.attributes), (node, false));
}

#[test]
fn a_file_that_is_removed_while_a_call_waits_for_its_object_is_gone_and_not_lost() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found_file(0x77, WHOLE | InodeBits::LAYOUT, false));
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    let stat = |files: FileSystem| async move { files.getattr(&Fixture::root(), node).await };
    assert!(fixture.world.run(stat(fixture.files.clone())).is_ok());
    let file = fixture.data.files.lock().values().next().cloned().expect("one");
    *file.refused.lock() = Some(Errno::ENOENT);
    fixture.mdt.refuse(Errno::ENOENT);
    let answer = fixture.world.run(stat(fixture.files.clone()));
    assert_eq!(answer.map(drop), Err(Errno::ESTALE));
}

/// Between its lookup and its open another client replaces the file, twice.
#[test]
fn a_second_try_keeps_what_it_finds() {
    let fixture = Fixture::new();
    let newer = Fid::new(0x2_0000_0400, 11);
    let open = |node| {
        let files = fixture.files.clone();
        let open = async move { files.open(&Fixture::root(), node, OpenFlags(0)).await };
        fixture.world.run(open).map(drop)
    };
    fixture.mdt.answer(found_file(0x77, WHOLE, false));
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    fixture.mdt.refuse(Errno::ENOENT);
    assert_eq!(open(node), Err(Errno::ESTALE));
    fixture.mdt.take_asked();

    // Whatever becomes of the name now, the file stays: it is open.
    fixture.mdt.answer(opened(newer, 0xbbb, false, layout()));
    let again = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    assert!(matches!(&fixture.mdt.take_asked()[..], [Request::LdlmIntentOpen(_)]));
    fixture.mdt.answer(opened(newer, 0xaaa, false, layout()));
    fixture.mdt.answer(MdsCloseReply::default());
    assert_eq!(open(again), Ok(()));
    fixture.world.settle();
    let closed = fixture.mdt.take_asked().into_iter().find_map(|asked| match asked {
        Request::MdsClose(close) => Some(close.mdt_ioepoch.open_handle),
        _ => None,
    });
    assert_eq!(closed, Some(OpenHandle(0xbbb)));

    // It is through: its next lookup is one again, and one that never comes costs nothing for ever.
    fixture.mdt.answer(found_file(0x78, WHOLE, false));
    let node = entry(look_up(&fixture, NodeId::ROOT, "g")).node;
    assert!(matches!(&fixture.mdt.take_asked()[..], [Request::LdlmIntentGetattr(_)]));
    fixture.mdt.refuse(Errno::ENOENT);
    assert_eq!(open(node), Err(Errno::ESTALE));
    fixture.mdt.answer(opened(newer, 0xccc, false, layout()));
    look_up(&fixture, NodeId::ROOT, "g").expect("found");
    fixture.mdt.answer(MdsCloseReply::default());
    let (world, later) = (fixture.world.clone(), std::time::Duration::from_secs(11));
    fixture.world.run(async move { world.sleep_until(world.now() + later).await });
    assert!(fixture.mdt.is_done(), "what was kept is closed");
}

/// A link's second try finds its source, which is removed then: there is no third.
#[test]
fn a_link_to_what_is_removed_twice_says_so() {
    let fixture = Fixture::new();
    let link = |node| {
        let files = fixture.files.clone();
        let link = async move {
            files.link(&Fixture::root(), node, NodeId::ROOT, &name("other")).await.map(drop)
        };
        fixture.world.run(link)
    };
    fixture.mdt.answer(found_file(0x77, WHOLE, false));
    let node = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    fixture.mdt.refuse(Errno::ENOENT);
    assert_eq!(link(node), Err(Errno::ESTALE));
    fixture.mdt.answer(opened(Fid::new(0x2_0000_0400, 11), 0xbbb, false, layout()));
    let again = entry(look_up(&fixture, NodeId::ROOT, "f")).node;
    fixture.mdt.refuse(Errno::ENOENT);
    fixture.mdt.refuse(Errno::ENOENT);
    fixture.mdt.answer(MdsCloseReply::default());
    assert_eq!(link(again), Err(Errno::ENOENT));
    fixture.world.settle();
    assert!(fixture.mdt.is_done(), "what was kept is closed");
}
