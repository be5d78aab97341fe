//! File systems of several MDTs: which one is asked, and what becomes of what is known when one takes its locks back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use sheen_types::{Errno, Fid, InodeBits, LockMode, MdtIndex, Transno};
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::ldlm::LdlmReply;
use sheen_wire::lmv::{LmvEa, LmvMagic};
use sheen_wire::md::{Bias, MdtBody, OpenHandle, Valid};
use sheen_wire::messages::{
    LdlmIntentGetattr, LdlmIntentGetattrReply, LdlmIntentOpenReply, MdsCloseReply,
    MdsReintCreateReply, MdsReintRenameReply, MdsReintUnlinkReply, MdsStatfsReply, MdsSyncReply,
    Request,
};

use super::tests::{entry, getattr_request, look_up};
use super::{Credentials, Lookup, NewNode, NodeId, OpenFlags, RenameMode};
use crate::testing::{
    AnotherMdt, Fixture, absent, blocking, body, found, found_elsewhere, lock_reply, name, opened,
    super_range,
};

/// A directory of MDT0001 that the root has a name of, and a file in it.
const REMOTE: Fid = Fid::new(0x2_4000_0401, 8);
const REMOTE_FILE: Fid = Fid::new(0x2_4000_0401, 9);
/// A directory and a file of MDT0000.
const LOCAL: Fid = Fid::new(0x2_0000_0401, 8);
const LOCAL_FILE: Fid = Fid::new(0x2_0000_0401, 9);
const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
/// What an MDT gives with attributes: of its own names, and of those of another MDT.
const WHOLE: InodeBits = InodeBits(0x13);
const WITHOUT_NAME: InodeBits = InodeBits::UPDATE.union(InodeBits::PERM);

/// Two MDTs.
struct Two {
    fixture: Fixture,
    second: AnotherMdt,
}

impl Two {
    fn new() -> Self {
        let fixture = Fixture::new();
        let second = fixture.add_mdt();
        Self { fixture, second }
    }

    /// What both were asked since the last time.
    fn asked(&self) -> (Vec<Request>, Vec<Request>) {
        (self.fixture.mdt.take_asked(), self.second.mdt.take_asked())
    }

    fn kinds(&self) -> (Vec<String>, Vec<String>) {
        let kinds = |asked: Vec<Request>| {
            asked.iter().map(|request| format!("{:?}", request.kind())).collect()
        };
        let (first, second) = self.asked();
        (kinds(first), kinds(second))
    }

    /// Looks the remote directory up, whose name has the lock 0x10 of the first, and which has 0x20 of the second.
    fn find_remote(&self) -> NodeId {
        self.fixture.mdt.answer(found_elsewhere(REMOTE, 0x10));
        self.second.mdt.answer(found(REMOTE, DIRECTORY, 0x20, WITHOUT_NAME));
        entry(look_up(&self.fixture, NodeId::ROOT, "d")).node
    }

    fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        call: impl FnOnce(super::FileSystem, Credentials) -> F,
    ) -> T {
        self.fixture.world.run(call(self.fixture.files.clone(), Fixture::root()))
    }

    fn look_up(&self, parent: NodeId, text: &'static str) -> Result<Lookup, Errno> {
        look_up(&self.fixture, parent, text)
    }
}

fn getattr_of(asked: &[Request], fid: Fid) -> &LdlmIntentGetattr {
    let request = getattr_request(asked);
    assert_eq!(request.mdt_body.fid1, fid);
    request
}

/// A refusal that names an inode of another MDT.
fn elsewhere(fid: Fid) -> Option<MdtBody> {
    Some(MdtBody { fid1: fid, valid: Valid::ID | Valid::MDS, ..MdtBody::default() })
}

#[test]
fn the_mdt_of_a_name_says_where_the_inode_is_and_that_one_has_the_rest() {
    let two = Two::new();
    let node = two.find_remote();
    let (first, second) = two.asked();
    let query = first.iter().find_map(|request| match request {
        Request::FldQuery(query) => Some(query.fld_mdfld.start),
        _ => None,
    });
    assert_eq!(query, Some(REMOTE.seq));
    assert_eq!(getattr_of(&first[..1], Fid::ROOT).name, Some((&name("d")).into()));
    let asked = getattr_of(&second, REMOTE);
    assert!(asked.mdt_body.valid.contains(Valid::CROSSREF));
    assert_eq!(asked.dlm_req.desc.resource.name.fid(), REMOTE);
    assert_eq!(asked.mdt_body.fid2, Fid::ZERO);

    let again = entry(two.look_up(NodeId::ROOT, "d"));
    assert_eq!((again.node, again.attributes.mode), (node, DIRECTORY));
    let stat = two.run(|files, who| async move { files.getattr(&who, node).await }).unwrap();
    assert_eq!(stat.attributes.fid, REMOTE);
    assert_eq!(two.kinds(), (vec![], vec![]), "locks cover it");
}

#[test]
fn where_a_sequence_is_is_asked_once_by_all_who_wait() {
    let two = Two::new();
    let file = |oid| Fid { oid, ..REMOTE };
    for oid in [21, 22] {
        two.fixture.mdt.answer(found_elsewhere(file(oid), u64::from(oid)));
    }
    for oid in [21, 22] {
        two.second.mdt.answer(found(file(oid), FILE, 0x100 + u64::from(oid), WITHOUT_NAME));
    }
    let hold = Arc::new(tokio::sync::Notify::new());
    *two.fixture.mdt.hold_fld.lock() = Some(Arc::clone(&hold));
    let files = two.fixture.files.clone();
    let (one, other) = (files.clone(), files);
    let tasks = two.fixture.world.world().tasks;
    for (files, text) in [(one, "a"), (other, "b")] {
        let look = async move {
            entry(files.lookup(&Fixture::root(), NodeId::ROOT, &name(text)).await);
        };
        tasks.spawn("lookup", Box::pin(look));
    }
    two.fixture.world.settle();
    let (first, second) = two.kinds();
    assert_eq!(first, ["LdlmIntentGetattr", "FldQuery", "LdlmIntentGetattr"]);
    assert_eq!(second, [""; 0]);
    *two.fixture.mdt.hold_fld.lock() = None;
    hold.notify_waiters();
    two.fixture.world.settle();
    let (first, second) = two.kinds();
    assert_eq!(first, [""; 0], "no other question");
    assert_eq!(second, ["LdlmIntentGetattr", "LdlmIntentGetattr"]);
}

#[test]
fn what_was_found_while_there_was_one_mdt_is_asked_of_no_other() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found(LOCAL, DIRECTORY, 0x30, InodeBits::LOOKUP));
    let node = entry(look_up(&fixture, NodeId::ROOT, "d")).node;
    let two = Two { second: fixture.add_mdt(), fixture };
    // It is listed, and answers nothing.
    *two.second.mdt.hold.lock() = Some(Arc::default());
    two.asked();
    two.fixture.mdt.answer(found(LOCAL, 0o040_700, 0x31, WHOLE));
    let stat = two.run(|files, who| async move { files.getattr(&who, node).await }).unwrap();
    assert_eq!(stat.attributes.mode, 0o040_700);
    assert_eq!(two.kinds(), (vec!["LdlmIntentGetattr".to_owned()], vec![]));
}

/// Lets the first MDT be asked, and looks before and after the configuration lists the second one.
fn waits_for_the_second<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    fixture: Fixture,
    call: impl FnOnce(super::FileSystem, Credentials) -> F,
) -> (Two, T) {
    let (answered, answer) = std::sync::mpsc::channel();
    let call = call(fixture.files.clone(), Fixture::root());
    let call = async move { _ = answered.send(call.await) };
    fixture.world.world().tasks.spawn("call", Box::pin(call));
    fixture.world.settle();
    assert!(answer.try_recv().is_err(), "it waits until the configuration lists that MDT");
    assert!(fixture.mdt.is_done());
    let second = fixture.add_mdt();
    second.mdt.answer(found(REMOTE, DIRECTORY, 0x20, WITHOUT_NAME));
    fixture.world.settle();
    let two = Two { fixture, second };
    (two, answer.try_recv().unwrap())
}

#[test]
fn a_name_that_leads_to_an_mdt_that_is_not_heard_of_yet_waits_until_it_is() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found_elsewhere(REMOTE, 0x10));
    let (two, looked) = waits_for_the_second(fixture, |files, who| async move {
        entry(files.lookup(&who, NodeId::ROOT, &name("d")).await).attributes.fid
    });
    assert_eq!(looked, REMOTE);
    assert_eq!(two.kinds().1, ["LdlmIntentGetattr"]);
}

#[test]
fn a_file_that_is_opened_on_an_mdt_that_is_not_heard_of_yet_waits_until_it_is() {
    let fixture = Fixture::new();
    let elsewhere = LdlmIntentOpenReply {
        dlm_rep: found_elsewhere(REMOTE, 0x10).dlm_rep,
        mdt_body: elsewhere(REMOTE),
        ..LdlmIntentOpenReply::default()
    };
    fixture.mdt.answer(elsewhere);
    let (two, opened) = waits_for_the_second(fixture, |files, who| async move {
        files.open_create(&who, NodeId::ROOT, &name("d"), 0o644, OpenFlags(0)).await.map(drop)
    });
    // It was asked, by an open, and this one only knows another answer.
    assert_eq!((opened, two.kinds().1[0].as_str()), (Err(Errno::EPROTO), "LdlmIntentOpen"));
}

#[test]
fn an_inode_that_is_asked_for_by_its_fid_waits_for_its_mdt_as_well() {
    let fixture = Fixture::new();
    let status = u64::from(Errno::EREMOTE.status().cast_unsigned());
    let dlm_rep = Some(LdlmReply { policy_res2: status, ..LdlmReply::default() });
    fixture.mdt.answer(LdlmIntentGetattrReply { dlm_rep, ..Default::default() });
    let node = NodeId(crate::cache::inode_number(REMOTE));
    let (_, found) = waits_for_the_second(fixture, |files, who| async move {
        files.by_number(&who, node).await.map(|found| found.attributes.fid)
    });
    assert_eq!(found, Ok(REMOTE));
}

#[test]
fn an_mdt_that_says_all_inodes_are_its_own_is_not_asked() {
    let two = Two::new();
    let remote = two.find_remote();
    two.second.mdt.gives_all_to_second.store(true, Ordering::Relaxed);
    two.asked();
    two.second.mdt.answer(found_elsewhere(LOCAL_FILE, 0x21));
    two.fixture.mdt.answer(found(LOCAL_FILE, FILE, 0x31, WITHOUT_NAME));
    assert_eq!(entry(two.look_up(remote, "f")).attributes.fid, LOCAL_FILE);
    let (first, second) = two.kinds();
    assert_eq!(first, ["FldQuery", "LdlmIntentGetattr"]);
    assert_eq!(second, ["LdlmIntentGetattr"]);
}

#[test]
fn an_answer_for_an_inode_of_another_mdt_is_refused() {
    let two = Two::new();
    two.fixture.mdt.answer(found(LOCAL, DIRECTORY, 0x30, WHOLE));
    let local = entry(two.look_up(NodeId::ROOT, "local")).node;
    let remote = two.find_remote();
    two.asked();
    let refused = |asked: &Two| {
        let mode = asked.run(move |files, who| async move { files.getattr(&who, local).await });
        assert_eq!(mode.unwrap().attributes.mode, DIRECTORY, "what is known of it stays");
        assert_eq!(asked.kinds().0, [""; 0]);
    };

    two.second.mdt.answer(found(LOCAL, 0o040_777, 0x21, WHOLE));
    assert_eq!(two.look_up(remote, "d").err(), Some(Errno::EPROTO));
    refused(&two);

    two.second.mdt.answer(opened(LOCAL, 5, false, Bytes::new()));
    two.second.mdt.answer(MdsCloseReply::default());
    let open = two.run(move |files, who| async move {
        files.open_create(&who, remote, &name("f"), 0o644, OpenFlags(0)).await.map(drop)
    });
    assert_eq!(open, Err(Errno::EPROTO));
    two.fixture.world.settle();
    assert!(two.second.mdt.is_done(), "what it has opened all the same is closed");
    refused(&two);
}

/// Its attributes would be taken over, and its name remembered.
#[test]
fn an_mdt_that_answers_that_it_made_another_inode_is_not_believed() {
    let two = Two::new();
    two.fixture.mdt.answer(found(LOCAL, DIRECTORY, 0x30, WHOLE));
    let local = entry(two.look_up(NodeId::ROOT, "local")).node;
    let remote = two.find_remote();
    two.asked();
    // Of another MDT, and of another client.
    for fid in [LOCAL, Fid::new(super_range(1).start + 99, 1)] {
        let mdt_body = Some(body(fid, 0o040_777));
        let made = MdsReintCreateReply { mdt_body, ..Default::default() };
        two.second.mdt.answer(made);
        let made = two.run(move |files, who| async move {
            files.make_node(&who, remote, &name("d"), 0o755, NewNode::Directory).await.map(drop)
        });
        assert_eq!(made, Err(Errno::EPROTO), "{fid}");
    }
    let mode = two.run(move |files, who| async move { files.getattr(&who, local).await });
    assert_eq!(mode.unwrap().attributes.mode, DIRECTORY, "what is known of it stays");
}

#[test]
fn of_an_mdt_that_answers_for_an_inode_not_known_the_first_is_asked() {
    let two = Two::new();
    let remote = two.find_remote();
    two.asked();
    two.second.mdt.answer(found(LOCAL_FILE, FILE, 0x21, WHOLE));
    assert_eq!(two.look_up(remote, "f").err(), Some(Errno::EPROTO));
    assert_eq!(two.kinds().0, ["FldQuery"]);
}

#[test]
fn a_name_goes_with_the_lock_of_its_mdt_and_attributes_with_that_of_the_inodes() {
    let two = Two::new();
    let node = two.find_remote();
    let (first, second) = two.asked();
    two.fixture.watcher.take();

    // Another client renames it: the name's MDT revokes what it has granted.
    let lock = lock_reply(REMOTE, 0x10, LockMode::Pr, InodeBits::LOOKUP);
    let request = getattr_request(&first[..1]);
    two.fixture.locks.on_blocking(&blocking(&request.dlm_req, &lock)).unwrap();
    two.fixture.world.settle();
    assert_eq!(two.fixture.watcher.take(), ["entry 1 d"], "attributes stay");
    assert_eq!(two.kinds(), (vec!["LdlmCancel".to_owned()], vec![]));
    two.fixture.mdt.answer(found_elsewhere(REMOTE, 0x11));
    assert_eq!(entry(two.look_up(NodeId::ROOT, "d")).node, node);
    assert_eq!(two.kinds(), (vec!["LdlmIntentGetattr".to_owned()], vec![]), "the name alone");

    // Another client changes its mode: the inode's MDT does.
    let lock = lock_reply(REMOTE, 0x20, LockMode::Pr, WITHOUT_NAME);
    let request = getattr_of(&second, REMOTE);
    two.second.locks.on_blocking(&blocking(&request.dlm_req, &lock)).unwrap();
    two.fixture.world.settle();
    let attributes = format!("inode {} Attributes", node.0);
    assert_eq!(two.fixture.watcher.take(), [attributes], "the name stays");
    two.asked();
    two.second.mdt.answer(found(REMOTE, 0o040_700, 0x21, WHOLE));
    assert_eq!(entry(two.look_up(NodeId::ROOT, "d")).attributes.mode, 0o040_700);
    assert_eq!(two.kinds(), (vec![], vec!["LdlmIntentGetattr".to_owned()]), "attributes alone");
}

/// A name that leads to nothing is asked for twice, and not for ever.
#[test]
fn an_inode_that_is_gone_from_its_mdt_has_no_name() {
    let two = Two::new();
    for _ in 0..2 {
        two.fixture.mdt.answer(found_elsewhere(REMOTE, 0x10));
        two.second.mdt.answer(absent());
    }
    assert!(matches!(two.look_up(NodeId::ROOT, "d"), Ok(Lookup::Absent { keep: false })));
    assert!(two.fixture.mdt.is_done() && two.second.mdt.is_done());
}

/// Another client renames a file over it between the two questions: there is no moment at which the name is absent.
#[test]
fn a_name_that_is_given_to_another_inode_while_the_first_is_asked_for_is_there() {
    let two = Two::new();
    two.fixture.mdt.answer(found_elsewhere(REMOTE, 0x10));
    two.second.mdt.answer(absent());
    two.fixture.mdt.answer(found(LOCAL_FILE, FILE, 0x31, WHOLE));
    assert_eq!(entry(two.look_up(NodeId::ROOT, "f")).attributes.fid, LOCAL_FILE);

    let two = Two::new();
    two.fixture.mdt.expect(|_| {
        let LdlmIntentGetattrReply { dlm_rep, mdt_body, .. } = found_elsewhere(REMOTE_FILE, 0x10);
        let reply = opened(REMOTE_FILE, 0, false, Bytes::new());
        Ok(sheen_wire::messages::LdlmIntentOpenReply { dlm_rep, mdt_body, ..reply }.into())
    });
    two.second.mdt.refuse(Errno::ENOENT);
    two.fixture.mdt.answer(opened(LOCAL_FILE, 5, true, Bytes::new()));
    let made = two.run(|files, who| async move {
        files.open_create(&who, NodeId::ROOT, &name("f"), 0o644, OpenFlags(1)).await
    });
    assert_eq!(made.unwrap().0.attributes.fid, LOCAL_FILE);
}

#[test]
fn what_is_made_in_a_directory_is_made_by_its_mdt_in_its_own_sequence() {
    let two = Two::new();
    let node = two.find_remote();
    two.asked();
    // How directories in it are to lie, which no lock covers that came with a name of another MDT.
    two.second.mdt.answer(found(REMOTE, DIRECTORY, 0x21, InodeBits::LOOKUP));
    two.second.mdt.expect(|request| {
        let Request::MdsReintCreate(create) = request else { panic!("{request:?}") };
        let record = &create.rec_reint;
        assert_eq!(record.fid1, REMOTE);
        assert!(super_range(1).contains(record.fid2.seq), "{}", record.fid2);
        let mdt_body = Some(body(record.fid2, DIRECTORY));
        Ok(MdsReintCreateReply { mdt_body, ..Default::default() }.into())
    });
    let made = two.run(|files, who| async move {
        files.make_node(&who, node, &name("sub"), 0o755, NewNode::Directory).await
    });
    assert_eq!(made.unwrap().attributes.mode, DIRECTORY);

    two.second.mdt.answer(opened(REMOTE_FILE, 5, true, Bytes::new()));
    let (_, file) = two
        .run(|files, who| async move {
            files.open_create(&who, node, &name("f"), 0o644, OpenFlags(1)).await
        })
        .unwrap();
    two.second.mdt.answer(MdsCloseReply::default());
    two.run(|files, _| async move { files.release(file.handle, None).await }).unwrap();
    let (first, second) = two.kinds();
    assert_eq!(first, [""; 0]);
    let made = ["LdlmIntentGetattr", "SeqQuery", "MdsReintCreate", "LdlmIntentOpen", "MdsClose"];
    assert_eq!(second, made);
}

#[test]
fn a_directory_is_made_on_the_mdt_that_is_chosen() {
    let two = Two::new();
    two.second.mdt.expect(|request| {
        let Request::MdsReintCreate(create) = request else { panic!("{request:?}") };
        let record = &create.rec_reint;
        assert_eq!((record.fid1, record.bias), (Fid::ROOT, Bias::SETSTRIPE_CREATE));
        assert!(super_range(1).contains(record.fid2.seq), "{}", record.fid2);
        let Ok(LmvEa::User { header, .. }) = LmvEa::decode(&create.eadata) else {
            panic!("a wish")
        };
        assert_eq!((header.stripe_count, header.stripe_offset), (0, 1));
        let mdt_body = Some(body(record.fid2, DIRECTORY));
        Ok(MdsReintCreateReply { mdt_body, ..Default::default() }.into())
    });
    let make = |two: &Two, text: &'static str, mdt| {
        let new = NewNode::DirectoryOn(MdtIndex(mdt));
        two.run(|files, who| async move {
            files.make_node(&who, NodeId::ROOT, &name(text), 0o755, new).await.map(drop)
        })
    };
    assert_eq!(make(&two, "d", 1), Ok(()));
    assert_eq!(make(&two, "e", 2), Err(Errno::ENODEV));
    assert_eq!(
        two.kinds().0,
        ["FldQuery"],
        "the first MDT says whose the sequence is, and makes nothing"
    );
}

#[test]
fn a_file_that_is_opened_by_name_is_opened_by_its_own_mdt() {
    let two = Two::new();
    two.fixture.mdt.expect(|request| {
        let Request::LdlmIntentOpen(open) = request else { panic!("{request:?}") };
        assert_eq!((open.rec_reint.fid1, open.rec_reint.bias), (Fid::ROOT, Bias::NONE));
        let LdlmIntentGetattrReply { dlm_rep, mdt_body, .. } = found_elsewhere(REMOTE_FILE, 0x10);
        let reply = opened(REMOTE_FILE, 0, false, Bytes::new());
        Ok(sheen_wire::messages::LdlmIntentOpenReply { dlm_rep, mdt_body, ..reply }.into())
    });
    two.second.mdt.expect(|request| {
        let Request::LdlmIntentOpen(open) = request else { panic!("{request:?}") };
        let record = &open.rec_reint;
        assert_eq!((record.fid1, record.fid2), (REMOTE_FILE, Fid::ROOT));
        assert_eq!(record.bias, Bias::CROSS_REF);
        assert_eq!(open.dlm_req.desc.resource.name.fid(), REMOTE_FILE);
        Ok(opened(REMOTE_FILE, 5, false, Bytes::new()).into())
    });
    let (found, file) = two
        .run(|files, who| async move {
            files.open_create(&who, NodeId::ROOT, &name("f"), 0o644, OpenFlags(0)).await
        })
        .unwrap();
    assert_eq!(found.attributes.fid, REMOTE_FILE);
    let hooks = (two.fixture.mdt.take_hooks().len(), two.second.mdt.take_hooks().len());
    assert_eq!(hooks, (0, 1), "it is replayed to the MDT that has it open");
    two.asked();

    two.second.mdt.expect(|request| {
        let Request::MdsClose(close) = request else { panic!("{request:?}") };
        assert_eq!(close.mdt_ioepoch.open_handle, OpenHandle(5));
        Ok(MdsCloseReply::default().into())
    });
    two.run(|files, _| async move { files.release(file.handle, None).await }).unwrap();
    assert_eq!(two.kinds(), (vec![], vec!["MdsClose".to_owned()]));
}

#[test]
fn a_name_is_removed_by_the_mdt_of_its_inode() {
    let two = Two::new();
    two.find_remote();
    two.asked();
    two.second.mdt.expect(|request| {
        let Request::MdsReintUnlink(unlink) = request else { panic!("{request:?}") };
        assert_eq!((unlink.rec_reint.fid1, unlink.rec_reint.fid2), (Fid::ROOT, REMOTE));
        let mdt_body = Some(MdtBody { nlink: 0, ..body(REMOTE, DIRECTORY) });
        Ok(MdsReintUnlinkReply { mdt_body, ..Default::default() }.into())
    });
    let root = NodeId::ROOT;
    two.run(|files, who| async move { files.rmdir(&who, root, &name("d")).await }).unwrap();
    // The lock on its name goes with a request of its own.
    let (first, second) = two.kinds();
    assert_eq!((first, second), (vec!["LdlmCancel".to_owned()], vec!["MdsReintUnlink".to_owned()]));
}

#[test]
fn an_mdt_that_has_only_the_name_sends_its_removal_on() {
    let two = Two::new();
    let refusal = MdsReintUnlinkReply { mdt_body: elsewhere(REMOTE_FILE), ..Default::default() };
    two.fixture.mdt.refuse_with(Errno::EREMOTE, refusal);
    two.second.mdt.expect(|request| {
        let Request::MdsReintUnlink(unlink) = request else { panic!("{request:?}") };
        assert_eq!((unlink.rec_reint.fid1, unlink.rec_reint.fid2), (Fid::ROOT, REMOTE_FILE));
        Ok(MdsReintUnlinkReply::default().into())
    });
    let unlink = |two: &Two| {
        let root = NodeId::ROOT;
        two.run(|files, who| async move { files.unlink(&who, root, &name("f")).await })
    };
    assert_eq!(unlink(&two), Ok(()));
    assert!(two.second.mdt.is_done());

    // Two that send it to each other.
    for fid in [REMOTE_FILE, LOCAL_FILE, REMOTE_FILE, LOCAL_FILE, REMOTE_FILE, LOCAL_FILE] {
        let asked =
            if super_range(1).contains(fid.seq) { &two.fixture.mdt } else { &two.second.mdt };
        for _ in 0..20 {
            let refusal = MdsReintUnlinkReply { mdt_body: elsewhere(fid), ..Default::default() };
            asked.refuse_with(Errno::EREMOTE, refusal);
        }
    }
    assert_eq!(unlink(&two), Err(Errno::EREMOTE));
}

#[test]
fn a_name_is_replaced_by_the_mdt_of_what_loses_it() {
    let two = Two::new();
    two.fixture.mdt.answer(found(LOCAL, DIRECTORY, 0x30, WHOLE));
    let local = entry(two.look_up(NodeId::ROOT, "local")).node;
    two.fixture.mdt.answer(found(LOCAL_FILE, FILE, 0x31, WHOLE));
    entry(two.look_up(local, "f"));
    let remote = two.find_remote();
    two.asked();
    let rename = |two: &Two| {
        let (from, to, mode) = (name("f"), name("g"), RenameMode::Replace);
        two.run(|files, who| async move {
            files.rename(&who, (local, &from), (remote, &to), mode).await
        })
    };
    // What is there is not known: the MDT of the new name does it, but that is an inode of the first.
    let refusal = MdsReintRenameReply { mdt_body: elsewhere(LOCAL_FILE), ..Default::default() };
    two.second.mdt.refuse_with(Errno::EXDEV, refusal);
    two.fixture.mdt.transno.store(7, Ordering::Relaxed);
    two.fixture.mdt.answer(MdsReintRenameReply::default());
    // The kernel has moved the name. The lock went with the change: whether the directory lies in one piece still is asked.
    two.second.mdt.answer(found(REMOTE, DIRECTORY, 0x51, WITHOUT_NAME));
    two.second.mdt.answer(absent());
    assert_eq!(rename(&two), Ok(()));
    let (first, second) = two.kinds();
    let renames = |kinds: &[String]| kinds.iter().filter(|kind| *kind == "MdsReintRename").count();
    assert_eq!((renames(&first), renames(&second)), (1, 1));

    two.fixture.mdt.answer(found(LOCAL, DIRECTORY, 0x52, WHOLE));
    two.second.mdt.refuse(Errno::EXDEV);
    assert_eq!(rename(&two), Err(Errno::EXDEV), "a refusal that names nothing is the answer");
}

#[test]
fn a_directory_is_durable_when_all_are_that_have_changed_it() {
    let two = Two::new();
    let node = two.find_remote();
    two.second.mdt.transno.store(5, Ordering::Relaxed);
    two.second.mdt.answer(opened(REMOTE_FILE, 5, true, Bytes::new()));
    let (_, file) = two
        .run(|files, who| async move {
            files.open_create(&who, node, &name("f"), 0o644, OpenFlags(1)).await
        })
        .unwrap();
    // The first MDT has larger numbers, which say nothing of the second.
    two.fixture.mdt.committed.store(1000, Ordering::Relaxed);
    two.asked();
    let sync = |two: &Two| {
        let handle = file.handle;
        two.run(|files, _| async move { files.fsync(handle, false).await }).unwrap();
    };
    two.second.mdt.answer(MdsSyncReply::default());
    sync(&two);
    let asked = two.kinds();
    assert!(asked.1.contains(&"MdsSync".to_owned()), "{asked:?}");
    two.second.mdt.committed.store(Transno(5).0, Ordering::Relaxed);
    sync(&two);
    assert_eq!(two.kinds(), (vec![], vec![]), "it is durable");
}

#[test]
fn an_mdt_that_is_away_keeps_nothing_of_the_first_waiting() {
    let two = Two::new();
    let node = two.find_remote();
    *two.second.mdt.hold.lock() = Some(Arc::default());
    two.second.mdt.answer(found(REMOTE_FILE, FILE, 0x22, WHOLE));
    let files = two.fixture.files.clone();
    let waits = async move { drop(files.lookup(&Fixture::root(), node, &name("f")).await) };
    two.fixture.world.world().tasks.spawn("waits", Box::pin(waits));
    two.fixture.world.settle();
    two.fixture.mdt.answer(found(LOCAL_FILE, FILE, 0x31, WHOLE));
    assert_eq!(entry(two.look_up(NodeId::ROOT, "f")).attributes.fid, LOCAL_FILE);
    assert_eq!(entry(two.look_up(NodeId::ROOT, "d")).node, node, "its name is the first one's");
}

#[test]
fn what_one_mdt_has_taken_back_with_an_eviction_the_other_still_covers() {
    let two = Two::new();
    two.find_remote();
    two.fixture.mdt.answer(found(LOCAL_FILE, FILE, 0x31, WHOLE));
    entry(two.look_up(NodeId::ROOT, "f"));
    two.asked();
    two.second.locks.on_evicted();
    two.fixture.world.settle();
    entry(two.look_up(NodeId::ROOT, "f"));
    assert_eq!(two.kinds(), (vec![], vec![]));
    two.second.mdt.answer(found(REMOTE, DIRECTORY, 0x23, WHOLE));
    entry(two.look_up(NodeId::ROOT, "d"));
    assert_eq!(two.kinds(), (vec![], vec!["LdlmIntentGetattr".to_owned()]));
}

#[test]
fn a_foreign_directory_is_refused_and_never_looks_empty() {
    let fixture = Fixture::new();
    let mut layout = Writer::default();
    LmvMagic::FOREIGN.encode(&mut layout);
    let striped = MdtBody {
        valid: body(LOCAL, DIRECTORY).valid | Valid::DIREA | Valid::MEA,
        ..body(LOCAL, DIRECTORY)
    };
    let layout = layout.into_bytes();
    let answer = LdlmIntentGetattrReply {
        mdt_body: Some(striped.clone()),
        mdt_md: layout.clone(),
        ..found(LOCAL, DIRECTORY, 0x40, WHOLE)
    };
    fixture.mdt.answer(answer);
    assert_eq!(look_up(&fixture, NodeId::ROOT, "s").err(), Some(Errno::EOPNOTSUPP));
    fixture.world.settle();
    fixture.mdt.take_asked();

    // Another client has put one in the place of a directory.
    fixture.mdt.answer(found(LOCAL, DIRECTORY, 0x41, InodeBits::LOOKUP));
    let node = entry(look_up(&fixture, NodeId::ROOT, "s")).node;
    let mut reply = opened(LOCAL, 5, false, layout);
    let open = reply.mdt_body.as_mut().expect("a body");
    (open.mode, open.valid) = (DIRECTORY, striped.valid | Valid::ID);
    fixture.mdt.answer(reply);
    fixture.mdt.answer(MdsCloseReply::default());
    let files = fixture.files.clone();
    let open = async move {
        files.open(&Fixture::root(), node, OpenFlags(OpenFlags::DIRECTORY)).await.map(drop)
    };
    assert_eq!(fixture.world.run(open), Err(Errno::EOPNOTSUPP));
    fixture.world.settle();
    assert!(fixture.mdt.is_done(), "what was opened all the same is closed");
}

#[test]
fn the_space_of_a_file_system_is_that_of_all_mdts() {
    let two = Two::new();
    let stat = |files, ffree| {
        let stat = sheen_wire::md::ObdStatfs { files, ffree, bsize: 4096, ..Default::default() };
        MdsStatfsReply { obd_statfs: Some(stat), ..Default::default() }
    };
    two.fixture.mdt.answer(stat(1000, 900));
    two.second.mdt.answer(stat(500, 400));
    let whole = two.run(|files, _| async move { files.statfs().await }).unwrap();
    assert_eq!((whole.files, whole.files_free), (1500, 1300));
    two.fixture.mdt.answer(stat(1000, 900));
    two.second.mdt.refuse(Errno::ENOTCONN);
    let each = two.run(|files, _| async move { files.statfs_targets().await });
    let each: Vec<_> = each.into_iter().map(|(name, stat)| (name, stat.is_ok())).collect();
    assert_eq!(each, [("fs-MDT0000".to_owned(), true), ("fs-MDT0001".to_owned(), false)]);
}

#[test]
fn with_one_mdt_nothing_is_asked_about_sequences() {
    let fixture = Fixture::new();
    fixture.mdt.answer(found(REMOTE_FILE, FILE, 0x77, WHOLE));
    entry(look_up(&fixture, NodeId::ROOT, "f"));
    getattr_request(&fixture.mdt.take_asked());
}
