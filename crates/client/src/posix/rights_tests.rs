//! Whom the cache admits, what the kernel may keep of it, and which groups the MDT is sent.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sheen_types::{Errno, Fid, InodeBits, LockMode};
use sheen_wire::ldlm::LdlmReply;
use sheen_wire::md::{AclEntry, AttrValid, PosixAcl, Valid};
use sheen_wire::messages::{
    LdlmConvertReply, LdlmIntentGetattr, LdlmIntentGetattrReply, LdlmIntentGetxattrReply,
    LdlmIntentLayoutReply, MdsReintSetattrReply, MdsReintUnlinkReply, Request,
};

use super::*;
use crate::cache::NAME_TIMEOUT_SLACK;
use crate::testing::{Fixture, absent, blocking, body, found, lock_reply, name, opened};

const DIRECTORY: Fid = Fid::new(0x2_0000_0400, 8);
const FILE: Fid = Fid::new(0x2_0000_0400, 9);
const SUBDIRECTORY: Fid = Fid::new(0x2_0000_0400, 10);
/// LOOKUP, UPDATE, PERM.
const WHOLE: InodeBits = InodeBits(0x13);
const UNDEFINED: u32 = u32::MAX;

fn user(uid: u32, groups: &[u32]) -> Credentials {
    Credentials { uid, gid: uid, groups: groups.into(), ..Credentials::root() }
}

/// An inode of user 5 and group 50; with an access control list unless `lines` is empty.
fn owned(
    fid: Fid,
    mode: u32,
    lines: &[(u16, u16, u32)],
    lock: LdlmReply,
) -> LdlmIntentGetattrReply {
    let entry = |(tag, perm, id): &(u16, u16, u32)| AclEntry { tag: *tag, perm: *perm, id: *id };
    let acl = PosixAcl { entries: lines.iter().map(entry).collect() }.encode();
    let mut mdt_body = body(fid, mode);
    (mdt_body.uid, mdt_body.gid) = (5, 50);
    mdt_body.valid |= Valid::ACL;
    mdt_body.aclsize = acl.len() as u32;
    LdlmIntentGetattrReply {
        dlm_rep: Some(lock),
        mdt_body: Some(mdt_body),
        acl,
        ..LdlmIntentGetattrReply::default()
    }
}

fn whole(fid: Fid, remote: u64) -> LdlmReply {
    lock_reply(fid, remote, LockMode::Pr, WHOLE)
}

fn look_up(
    fixture: &Fixture,
    who: &Credentials,
    parent: NodeId,
    text: &'static str,
) -> Result<Lookup, Errno> {
    let (files, who) = (fixture.files.clone(), who.clone());
    fixture.world.run(async move { files.lookup(&who, parent, &name(text)).await })
}

fn found_at(
    fixture: &Fixture,
    who: &Credentials,
    parent: NodeId,
    text: &'static str,
) -> (NodeId, MayCache) {
    match look_up(fixture, who, parent, text) {
        Ok(Lookup::Found(entry)) => (entry.node, entry.keep),
        other => panic!("expected an entry, got {other:?}"),
    }
}

fn access(fixture: &Fixture, who: &Credentials, node: NodeId, wanted: May) -> Result<(), Errno> {
    let (files, who) = (fixture.files.clone(), who.clone());
    fixture.world.run(async move { files.access(&who, node, wanted).await })
}

fn getattr_request(asked: &[Request]) -> &LdlmIntentGetattr {
    match asked {
        [Request::LdlmIntentGetattr(request)] => request,
        other => panic!("expected one getattr, got {other:?}"),
    }
}

/// A directory `d` and in it a file `f`, both looked up by root and covered by locks: the request
/// and reply of the directory's, its node, and what was said of the file's name.
struct Scene {
    fixture: Fixture,
    request: LdlmIntentGetattr,
    lock: LdlmReply,
    directory: NodeId,
    keep: MayCache,
}

fn scene(mode: u32, lines: &[(u16, u16, u32)]) -> Scene {
    let fixture = Fixture::new();
    let (root, lock) = (Fixture::root(), whole(DIRECTORY, 0x77));
    fixture.mdt.answer(owned(DIRECTORY, 0o040_000 | mode, lines, lock.clone()));
    let (directory, keep) = found_at(&fixture, &root, NodeId::ROOT, "d");
    assert!(keep.entry, "all may search the root");
    let request = getattr_request(&fixture.mdt.take_asked()).clone();
    fixture.mdt.answer(owned(FILE, 0o100_644, &[], whole(FILE, 0x78)));
    let (_, keep) = found_at(&fixture, &root, directory, "f");
    fixture.mdt.take_asked();
    Scene { fixture, request, lock, directory, keep }
}

impl Scene {
    fn searches(&self, uid: u32, groups: &[u32]) -> bool {
        let found = look_up(&self.fixture, &user(uid, groups), self.directory, "f");
        assert!(self.fixture.mdt.take_asked().is_empty(), "locks cover it all");
        match found {
            Ok(Lookup::Found(_)) => true,
            Err(Errno::EACCES) => false,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_cache_lets_in_whom_the_mode_lets_in() {
    let open = scene(0o755, &[]);
    assert!(open.keep.entry && open.searches(7, &[]));
    let private = scene(0o700, &[]);
    assert!(!private.keep.entry, "the kernel asks for each user");
    assert!(private.searches(5, &[]) && private.searches(0, &[]));
    assert!(!private.searches(7, &[50]));
    let odd = scene(0o701, &[]);
    assert!(!odd.keep.entry && odd.searches(7, &[]) && !odd.searches(7, &[1, 50]));
}

#[test]
fn the_cache_lets_in_whom_the_list_lets_in() {
    let lines = [
        (1, 7, UNDEFINED),
        (2, 1, 7),
        (4, 0, UNDEFINED),
        (8, 0, 60),
        (16, 7, UNDEFINED),
        (32, 1, UNDEFINED),
    ];
    let scene = scene(0o771, &lines);
    assert!(!scene.keep.entry, "groups 50 and 60 may not");
    assert!(scene.searches(7, &[]) && scene.searches(8, &[]));
    assert!(!scene.searches(8, &[50]) && !scene.searches(8, &[3, 60]));
}

#[test]
fn an_absent_name_is_no_secret_only_to_those_who_may_search() {
    for (mode, kept) in [(0o755, true), (0o750, false)] {
        let Scene { fixture, directory, .. } = scene(mode, &[]);
        fixture.mdt.answer(absent());
        let answer = look_up(&fixture, &Fixture::root(), directory, "no");
        assert_eq!(answer, Ok(Lookup::Absent { keep: kept }));
        let other = look_up(&fixture, &user(7, &[]), directory, "no");
        match kept {
            true => assert_eq!(other, Ok(Lookup::Absent { keep: true })),
            false => assert_eq!(other, Err(Errno::EACCES)),
        }
        assert_eq!(fixture.mdt.take_asked().len(), 1);
    }
}

#[test]
fn what_was_kept_because_all_may_search_goes_before_the_lock() {
    let Scene { fixture, request, lock, directory, .. } = scene(0o755, &[]);
    fixture.watcher.take();
    let hold = Arc::new(tokio::sync::Notify::new());
    *fixture.watcher.hold.lock() = Some(Arc::clone(&hold));
    fixture.locks.on_blocking(&blocking(&request.dlm_req, &lock)).unwrap();
    fixture.world.settle();
    hold.notify_waiters();
    fixture.world.settle();
    let notices = fixture.watcher.take();
    assert_eq!(notices[1..], [format!("children {} f", directory.0)]);
    assert!(fixture.mdt.take_asked().is_empty(), "the lock is not back yet");
    *fixture.watcher.hold.lock() = None;
    hold.notify_waiters();
    fixture.world.settle();
    assert!(matches!(fixture.mdt.take_asked()[..], [Request::LdlmCancel(_)]));
    // What covers the file still stands, but not who may come to it: that is asked, and once.
    fixture.mdt.answer(owned(DIRECTORY, 0o040_700, &[], whole(DIRECTORY, 0x80)));
    let other = user(7, &[]);
    assert_eq!(look_up(&fixture, &other, directory, "f"), Err(Errno::EACCES));
    assert_eq!(look_up(&fixture, &other, directory, "f"), Err(Errno::EACCES));
    assert!(!found_at(&fixture, &user(5, &[]), directory, "f").1.entry);
    assert_eq!(fixture.mdt.take_asked().len(), 1);
}

/// Until the cancel of the directory's lock, which is revoked `after` the kernel was answered what `leases` says, is sent:
/// nanoseconds from that answer on.
fn cancelled_after(leases: impl Fn(&Scene), after: Duration, is_busy: bool) -> Duration {
    let scene = scene(0o755, &[]);
    let Scene { fixture, request, lock, .. } = &scene;
    leases(&scene);
    fixture.mdt.take_asked();
    fixture.watcher.is_busy.store(is_busy, std::sync::atomic::Ordering::Relaxed);
    let clock = fixture.world.world().clock;
    let given = clock.now();
    let later = Arc::clone(&clock);
    fixture.world.run(async move { later.sleep_until(given + after).await });
    fixture.locks.on_blocking(&blocking(&request.dlm_req, lock)).unwrap();
    fixture.world.settle();
    let mut at = given + after;
    while fixture.mdt.take_asked().is_empty() {
        at = at + Duration::from_millis(1);
        assert!(at < given + Duration::from_secs(1), "the lock is not cancelled");
        let (clock, at) = (Arc::clone(&clock), at);
        fixture.world.run(async move { clock.sleep_until(at).await });
    }
    Duration::from_nanos(at.0 - given.0)
}

#[test]
fn a_lock_on_a_directory_outlasts_what_the_kernel_keeps_for_a_time() {
    let ms = Duration::from_millis;
    let lease = NAME_TIMEOUT + NAME_TIMEOUT_SLACK;
    let directory = |scene: &Scene| {
        let found = owned(SUBDIRECTORY, 0o040_755, &[], whole(SUBDIRECTORY, 0x79));
        scene.fixture.mdt.answer(found);
        assert!(found_at(&scene.fixture, &Fixture::root(), scene.directory, "sub").1.entry);
    };
    let absent_name = |scene: &Scene| {
        scene.fixture.mdt.answer(absent());
        let answer = look_up(&scene.fixture, &Fixture::root(), scene.directory, "no");
        assert_eq!(answer, Ok(Lookup::Absent { keep: true }));
    };
    assert_eq!(cancelled_after(directory, ms(0), true), lease);
    assert_eq!(cancelled_after(absent_name, ms(70), true), lease, "the rest of the time");
    assert_eq!(cancelled_after(directory, ms(200), true), ms(200), "none is used any more");
    assert_eq!(cancelled_after(|_| {}, ms(0), true), ms(0), "none was given");
    assert_eq!(cancelled_after(directory, ms(0), false), ms(0), "the kernel has dropped them");
    // Absent names are lost with `UPDATE`: the kernel may use one that it got under a lock of before.
    let lost_before = |scene: &Scene| {
        absent_name(scene);
        scene.fixture.locks.engine().set_convert(true);
        scene.fixture.mdt.answer(LdlmConvertReply::default());
        let update = lock_reply(DIRECTORY, 0x77, LockMode::Pr, InodeBits::UPDATE);
        scene.fixture.locks.on_blocking(&blocking(&scene.request.dlm_req, &update)).unwrap();
        scene.fixture.world.settle();
    };
    assert_eq!(cancelled_after(lost_before, ms(0), false), lease);
}

/// Another client may make the name as soon as the lock is gone.
#[test]
fn a_lock_on_names_outlasts_that_the_kernel_uses_that_one_is_absent() {
    let ms = Duration::from_millis;
    for (busy_for, wanted) in [(1000, NAME_TIMEOUT + NAME_TIMEOUT_SLACK), (13, ms(15)), (0, ms(0))]
    {
        let scene = scene(0o755, &[]);
        let Scene { fixture, request, .. } = &scene;
        fixture.mdt.answer(absent());
        let answer = look_up(fixture, &Fixture::root(), scene.directory, "no");
        assert_eq!(answer, Ok(Lookup::Absent { keep: true }));
        fixture.mdt.take_asked();
        fixture.locks.engine().set_convert(true);
        fixture.mdt.answer(LdlmConvertReply::default());
        let is_busy = |at| fixture.watcher.is_busy.store(at < busy_for, Ordering::Relaxed);
        is_busy(0);
        let update = lock_reply(DIRECTORY, 0x77, LockMode::Pr, InodeBits::UPDATE);
        fixture.locks.on_blocking(&blocking(&request.dlm_req, &update)).unwrap();
        fixture.world.settle();
        let clock = fixture.world.world().clock;
        let (begun, mut waited) = (clock.now(), 0);
        while fixture.mdt.take_asked().is_empty() {
            waited += 1;
            assert!(waited < 1000, "the lock is not cancelled");
            is_busy(waited);
            let (clock, until) = (Arc::clone(&clock), begun + ms(waited));
            fixture.world.run(async move { clock.sleep_until(until).await });
        }
        assert_eq!(ms(waited), wanted);
    }
}

/// How long a removal of a directory takes of which the kernel cannot drop what it keeps. The MDT refuses it: another
/// client has made names there.
fn refused_within(fixture: &Fixture, who: Credentials) -> Duration {
    fixture.watcher.is_busy.store(true, std::sync::atomic::Ordering::Relaxed);
    let clock = fixture.world.world().clock;
    let (files, begun) = (fixture.files.clone(), clock.now());
    fixture.mdt.refuse(Errno::ENOTEMPTY);
    let rmdir = async move { files.rmdir(&who, NodeId::ROOT, &name("d")).await };
    assert_eq!(fixture.world.run(rmdir), Err(Errno::ENOTEMPTY));
    clock.now().since(begun)
}

/// Who had no right to search the directory any more got answers of absent names, or passed by one that the kernel had not
/// dropped yet.
#[test]
fn a_removal_waits_for_what_the_kernel_keeps_of_the_directory_be_it_of_absent_names() {
    let lease = NAME_TIMEOUT + NAME_TIMEOUT_SLACK;
    for who in [Fixture::root(), user(7, &[])] {
        let Scene { fixture, directory, .. } = scene(0o755, &[]);
        fixture.mdt.answer(absent());
        let answer = look_up(&fixture, &Fixture::root(), directory, "no");
        assert_eq!(answer, Ok(Lookup::Absent { keep: true }));
        assert_eq!(refused_within(&fixture, who), lease);
    }
}

#[test]
fn a_removal_of_a_directory_that_this_mount_has_emptied_waits_for_nothing() {
    let Scene { fixture, directory, .. } = scene(0o755, &[]);
    fixture.mdt.answer(owned(SUBDIRECTORY, 0o100_644, &[], whole(SUBDIRECTORY, 0x79)));
    assert!(found_at(&fixture, &Fixture::root(), directory, "sub").1.entry);
    fixture.mdt.answer(MdsReintUnlinkReply::default());
    let files = fixture.files.clone();
    let unlink = async move { files.unlink(&Fixture::root(), directory, &name("sub")).await };
    assert_eq!(fixture.world.run(unlink), Ok(()));
    assert_eq!(refused_within(&fixture, Fixture::root()), Duration::ZERO);
}

/// The kernel keeps a name of a directory that cannot be removed for as long as it always does, and so must the lock.
#[test]
fn a_removal_of_a_directory_that_has_names_waits_for_what_the_kernel_keeps_of_it() {
    let scene = scene(0o755, &[]);
    scene.fixture.mdt.answer(owned(SUBDIRECTORY, 0o040_755, &[], whole(SUBDIRECTORY, 0x79)));
    assert!(found_at(&scene.fixture, &Fixture::root(), scene.directory, "sub").1.entry);
    let lease = NAME_TIMEOUT + NAME_TIMEOUT_SLACK;
    assert_eq!(refused_within(&scene.fixture, Fixture::root()), lease);
}

#[test]
fn a_chmod_of_our_own_revokes_what_was_kept() {
    let Scene { fixture, directory, .. } = scene(0o755, &[]);
    fixture.watcher.take();
    fixture.mdt.answer(MdsReintSetattrReply {
        mdt_body: Some(body(DIRECTORY, 0o040_700)),
        ..MdsReintSetattrReply::default()
    });
    let files = fixture.files.clone();
    let changes = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    let change = async move { files.setattr(&user(5, &[]), directory, None, changes).await };
    fixture.world.run(change).unwrap();
    let notices = fixture.watcher.take();
    assert!(notices.contains(&format!("children {} f", directory.0)), "{notices:?}");
}

#[test]
fn a_chmod_that_shuts_users_out_has_files_dropped_before_it_is_answered() {
    for (mode, is_shut) in [(0o711, false), (0o700, true)] {
        let Scene { fixture, directory, .. } = scene(0o755, &[]);
        let file = fixture.files.known_child(directory, &name("f")).expect("the file");
        let shut = format!("shut {}", file.0);
        fixture.watcher.take();
        fixture.mdt.answer(MdsReintSetattrReply {
            mdt_body: Some(body(DIRECTORY, 0o040_000 | mode)),
            ..MdsReintSetattrReply::default()
        });
        let files = fixture.files.clone();
        let changes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let change = async move { files.setattr(&user(5, &[]), directory, None, changes).await };
        fixture.world.run(change).unwrap();
        let notices = fixture.watcher.take();
        assert_eq!(notices.contains(&shut), is_shut, "{mode:o}: {notices:?}");
    }
}

#[test]
fn a_chmod_has_no_file_dropped_whose_name_the_kernel_does_not_keep() {
    let Scene { fixture, directory, .. } = scene(0o700, &[]);
    fixture.watcher.take();
    fixture.mdt.answer(MdsReintSetattrReply {
        mdt_body: Some(body(DIRECTORY, 0o040_500)),
        ..MdsReintSetattrReply::default()
    });
    let files = fixture.files.clone();
    let changes = SetAttributes { mode: Some(0o500), ..SetAttributes::default() };
    let change = async move { files.setattr(&user(5, &[]), directory, None, changes).await };
    fixture.world.run(change).unwrap();
    let notices = fixture.watcher.take();
    assert!(!notices.iter().any(|notice| notice.starts_with("shut")), "{notices:?}");
}

#[test]
fn access_is_judged_under_the_lock_and_asks_without_it() {
    let Scene { fixture, directory, .. } = scene(0o750, &[]);
    let wanted = May::READ.and(May::EXEC);
    assert_eq!(access(&fixture, &user(7, &[50]), directory, wanted), Ok(()));
    assert_eq!(access(&fixture, &user(7, &[]), directory, wanted), Err(Errno::EACCES));
    assert_eq!(access(&fixture, &user(7, &[50]), directory, May::WRITE), Err(Errno::EACCES));
    assert_eq!(access(&fixture, &user(7, &[]), directory, May::NOTHING), Ok(()));
    assert!(fixture.mdt.take_asked().is_empty());
    let pin = fixture.files.0.pin(directory).unwrap();
    pin.state().lose_bits(WHOLE);
    let rights = lock_reply(DIRECTORY, 0x80, LockMode::Pr, InodeBits::LOOKUP | InodeBits::PERM);
    fixture.mdt.answer(owned(DIRECTORY, 0o040_755, &[], rights));
    assert_eq!(access(&fixture, &user(7, &[]), directory, wanted), Ok(()));
    let asked = fixture.mdt.take_asked();
    assert_eq!(getattr_request(&asked).ldlm_intent.opc, sheen_wire::ldlm::IntentOp::LOOKUP);
}

#[test]
fn a_list_that_makes_no_sense_opens_nothing() {
    let fixture = Fixture::new();
    let mut reply = owned(DIRECTORY, 0o040_777, &[(1, 7, UNDEFINED)], whole(DIRECTORY, 0x77));
    let (directory, _) = {
        reply.acl = Bytes::from_static(b"\x02\0\0\0\x01");
        reply.mdt_body.as_mut().unwrap().aclsize = 5;
        fixture.mdt.answer(reply);
        found_at(&fixture, &Fixture::root(), NodeId::ROOT, "d")
    };
    assert_eq!(access(&fixture, &user(7, &[]), directory, May::EXEC), Err(Errno::EACCES));
    assert_eq!(access(&fixture, &user(5, &[]), directory, May::EXEC), Ok(()), "the owner's bits");
    assert_eq!(access(&fixture, &user(0, &[]), directory, May::EXEC), Ok(()));
}

#[test]
fn the_group_that_matters_is_sent() {
    let lines =
        [(1, 7, UNDEFINED), (4, 4, UNDEFINED), (8, 1, 60), (16, 7, UNDEFINED), (32, 0, UNDEFINED)];
    let Scene { fixture, directory, .. } = scene(0o770, &lines);
    // While a lock covers who may search it the MDT is not asked.
    assert_eq!(look_up(&fixture, &user(7, &[70]), directory, "new"), Err(Errno::EACCES));
    assert!(fixture.mdt.take_asked().is_empty());
    fixture.files.0.pin(directory).unwrap().state().lose_bits(WHOLE);
    let notices = |groups: &[u32]| {
        fixture.mdt.answer(absent());
        let answer = look_up(&fixture, &user(7, groups), directory, "new");
        assert!(matches!(answer, Ok(Lookup::Absent { .. })));
        fixture.files.0.pin(directory).unwrap().state().forget_absent(&name("new"));
        getattr_request(&fixture.mdt.take_asked()).mdt_body.suppgid
    };
    assert_eq!(notices(&[50, 60, 70]), 60, "it may search");
    assert_eq!(notices(&[50, 70]), 50, "so that it does not count as another user");
    assert_eq!(notices(&[70]), UNDEFINED);
}

/// As [`owned`], of this group.
fn owned_by_group(fid: Fid, mode: u32, gid: u32, remote: u64) -> LdlmIntentGetattrReply {
    let mut reply = owned(fid, mode, &[], whole(fid, remote));
    reply.mdt_body.as_mut().unwrap().gid = gid;
    reply
}

#[test]
fn the_groups_of_a_rename_are_those_of_both_directories_and_of_a_directory_that_changes_its_own() {
    let groups_of = |mode: u32, gids: [u32; 3]| {
        let fixture = Fixture::new();
        let answer = |number: usize| {
            let (fid, mode, remote) =
                [(DIRECTORY, 0o040_770, 0x77), (SUBDIRECTORY, 0o040_770, 0x78), (FILE, mode, 0x79)]
                    [number];
            fixture.mdt.answer(owned_by_group(fid, mode, gids[number], remote));
        };
        let mut nodes = [NodeId::ROOT; 2];
        for (number, text) in ["from", "to"].into_iter().enumerate() {
            answer(number);
            nodes[number] = found_at(&fixture, &Fixture::root(), NodeId::ROOT, text).0;
        }
        answer(2);
        found_at(&fixture, &Fixture::root(), nodes[0], "moved");
        fixture.mdt.take_asked();
        // The locks went with the first try: the rights are read, and it is tried again.
        fixture.mdt.refuse(Errno::EACCES);
        (0..if mode & 0o040_000 == 0 { 2 } else { 3 }).for_each(answer);
        fixture.mdt.refuse(Errno::EACCES);
        let (files, who) = (fixture.files.clone(), user(7, &[60, 61, 62]));
        let (old, new) = (name("moved"), name("new"));
        let rename = async move {
            let [from, to] = nodes;
            files.rename(&who, (from, &old), (to, &new), RenameMode::Replace).await
        };
        assert_eq!(fixture.world.run(rename), Err(Errno::EACCES));
        assert!(fixture.mdt.is_done());
        let of_rename = |request: &Request| match request {
            Request::MdsReintRename(rename) => {
                let record = &rename.rec_reint;
                let mut groups = vec![record.fsgid, record.suppgid1, record.suppgid2];
                groups.retain(|group| *group != UNDEFINED);
                groups.sort_unstable();
                Some(groups)
            }
            _ => None,
        };
        let asked: Vec<_> = fixture.mdt.take_asked().iter().filter_map(of_rename).collect();
        assert!(asked.len() == 2 && asked[0] == asked[1], "{asked:?}");
        asked[0].clone()
    };
    assert_eq!(groups_of(0o100_660, [60, 61, 62]), [7, 60, 61], "a file keeps no parent");
    assert_eq!(groups_of(0o040_770, [60, 60, 62]), [7, 60, 62]);
    assert_eq!(groups_of(0o040_770, [60, 61, 7]), [7, 60, 61]);
    assert_eq!(groups_of(0o040_770, [60, 61, 62]), [60, 61, 62], "all that there is room for");
    assert_eq!(groups_of(0o040_777, [60, 61, 62]), [7, 60, 61], "every user may write it");
}

#[test]
fn a_refusal_by_groups_that_are_out_of_date_is_asked_again() {
    let Scene { fixture, directory, .. } = scene(0o770, &[]);
    let pin = fixture.files.0.pin(directory).unwrap();
    {
        // Another client has given the directory to group 60; we were not notified.
        let mut state = pin.state();
        state.lose_bits(WHOLE);
        state.directory.children.clear();
        state.attributes_mut().unwrap().gid = 40;
    }
    fixture.mdt.refuse(Errno::EACCES);
    let rights = lock_reply(DIRECTORY, 0x80, LockMode::Pr, InodeBits::LOOKUP | InodeBits::PERM);
    fixture.mdt.answer(owned(DIRECTORY, 0o040_770, &[], rights));
    fixture.mdt.expect(|request| match request {
        Request::LdlmIntentGetattr(request) => {
            assert_eq!(request.mdt_body.suppgid, 50);
            Ok(absent().into())
        }
        other => panic!("expected a lookup, got {other:?}"),
    });
    let answer = look_up(&fixture, &user(7, &[50]), directory, "x");
    assert_eq!(answer, Ok(Lookup::Absent { keep: false }));
    assert!(fixture.mdt.is_done());
    fixture.mdt.refuse(Errno::EACCES);
    assert_eq!(look_up(&fixture, &user(7, &[50]), directory, "y"), Err(Errno::EACCES));
    assert!(fixture.mdt.is_done(), "now it is covered: once is enough");
}

#[test]
fn attributes_of_a_users_own_are_read_by_readers_only() {
    let fixture = Fixture::new();
    fixture.mdt.answer(owned(FILE, 0o100_640, &[], whole(FILE, 0x77)));
    let (node, _) = found_at(&fixture, &Fixture::root(), NodeId::ROOT, "f");
    fixture.mdt.answer(LdlmIntentGetxattrReply {
        dlm_rep: Some(lock_reply(FILE, 0x79, LockMode::Pr, InodeBits::XATTR)),
        eadata: Bytes::from_static(b"user.a\0"),
        eavals: Bytes::from_static(b"1"),
        eavals_lens: vec![1],
        ..Default::default()
    });
    fixture.mdt.take_asked();
    let files = fixture.files.clone();
    fixture.world.run(async move {
        let read = async |who: Credentials| files.getxattr(&who, node, b"user.a").await;
        assert_eq!(read(user(5, &[])).await, Ok(Bytes::from_static(b"1")));
        assert_eq!(read(user(7, &[50])).await, Ok(Bytes::from_static(b"1")));
        assert_eq!(read(user(7, &[])).await, Err(Errno::EACCES));
    });
    assert_eq!(fixture.mdt.take_asked().len(), 1);
}

/// One keeps root's reads out as well, for as long as its taker likes.
#[test]
fn a_group_lock_is_for_writers_the_owner_and_root() {
    let fixture = Fixture::new();
    fixture.mdt.answer(owned(FILE, 0o100_644, &[], whole(FILE, 0x77)));
    let (node, _) = found_at(&fixture, &Fixture::root(), NodeId::ROOT, "f");
    let lock = |who: Credentials, flags: u32, gid: u64| {
        let mut reply = opened(FILE, 1, false, Bytes::new());
        reply.mdt_body.as_mut().unwrap().uid = 5;
        fixture.mdt.answer(reply);
        let files = fixture.files.clone();
        fixture.world.run(async move {
            let handle = files.open(&who, node, OpenFlags(flags)).await.expect("opened").handle;
            files.group_lock(&who, handle, gid).await
        })
    };
    for flags in [0, OpenFlags::NONBLOCK] {
        assert_eq!(lock(user(7, &[50]), flags, 7), Err(Errno::EPERM));
    }
    assert_eq!(lock(user(7, &[]), 0, 0), Err(Errno::EINVAL), "as for every other caller");
    for (who, flags) in [(user(7, &[]), 1), (user(7, &[]), 2), (user(5, &[]), 0)] {
        assert_eq!(lock(who, flags, 7), Ok(()));
    }
    assert_eq!(lock(Fixture::root(), 0, 7), Ok(()));
}

#[test]
fn set_id_bits_are_taken_by_writers_and_changed_by_owners() {
    let fixture = Fixture::new();
    let mut reply = opened(FILE, 1, false, Bytes::new());
    let notices = reply.mdt_body.as_mut().unwrap();
    (notices.uid, notices.mode) = (5, 0o106_777);
    // The first change takes the lock along that covers the layout.
    let mut no_layout = Some(LdlmIntentLayoutReply {
        dlm_rep: Some(lock_reply(FILE, 0x90, LockMode::Cr, InodeBits::LAYOUT)),
        ..LdlmIntentLayoutReply::default()
    });
    fixture.mdt.answer(reply);
    let (files, other) = (fixture.files.clone(), user(7, &[]));
    let open = async move {
        let flags = OpenFlags(OpenFlags::CREATE | 2);
        files.open_create(&other, NodeId::ROOT, &name("f"), 0o777, flags).await
    };
    let node = fixture.world.run(open).unwrap().0.node;
    fixture.mdt.take_asked();
    let mut set = |uid: u32, mode: u32| {
        fixture.mdt.answer(MdsReintSetattrReply::default());
        if let Some(reply) = no_layout.take() {
            fixture.mdt.answer(reply);
        }
        let (files, who) = (fixture.files.clone(), user(uid, &[]));
        let changes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let set = async move { files.setattr(&who, node, None, changes).await };
        fixture.world.run(set).unwrap();
        match &fixture.mdt.take_asked()[..] {
            [Request::MdsReintSetattr(request), ..] => request.rec_reint.valid,
            other => panic!("expected a setattr, got {other:?}"),
        }
    };
    let kills = AttrValid::KILL_SUID | AttrValid::KILL_SGID;
    let valid = set(7, 0o777);
    assert!(valid.contains(kills) && !valid.contains(AttrValid::MODE), "it writes the file");
    assert!(set(8, 0o777).contains(AttrValid::MODE), "it does not: a chmod, for the MDT to refuse");
    assert!(set(7, 0o2777).contains(AttrValid::MODE), "no write does that");
    assert!(set(5, 0o777).contains(AttrValid::MODE), "the owner may");
}

/// A kernel that leaves judging to us has a mode without the sticky bit, which went with the set-id bits.
#[test]
fn a_write_takes_no_sticky_bit_with_the_set_id_bits() {
    for (writer, owner) in [(7, 5), (5, 5)] {
        let fixture = Fixture::new();
        let mut reply = opened(FILE, 1, false, Bytes::new());
        let notices = reply.mdt_body.as_mut().unwrap();
        (notices.uid, notices.mode) = (owner, 0o107_777);
        let mut no_layout = Some(LdlmIntentLayoutReply {
            dlm_rep: Some(lock_reply(FILE, 0x90, LockMode::Cr, InodeBits::LAYOUT)),
            ..LdlmIntentLayoutReply::default()
        });
        fixture.mdt.answer(reply);
        let (files, who) = (fixture.files.clone(), user(writer, &[]));
        let open = async move {
            let flags = OpenFlags(OpenFlags::CREATE | 2);
            files.open_create(&who, NodeId::ROOT, &name("f"), 0o777, flags).await
        };
        let node = fixture.world.run(open).unwrap().0.node;
        fixture.mdt.take_asked();
        let mut set = |mode: u32| {
            fixture.mdt.answer(MdsReintSetattrReply::default());
            if let Some(reply) = no_layout.take() {
                fixture.mdt.answer(reply);
            }
            let (files, who) = (fixture.files.clone(), user(writer, &[]));
            let changes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            let set = async move { files.setattr(&who, node, None, changes).await };
            fixture.world.run(set).unwrap();
            match &fixture.mdt.take_asked()[..] {
                [Request::MdsReintSetattr(request), ..] => request.rec_reint.valid,
                other => panic!("expected a setattr, got {other:?}"),
            }
        };
        let kills = AttrValid::KILL_SUID | AttrValid::KILL_SGID;
        let valid = set(0o777);
        assert!(valid.contains(kills) && !valid.contains(AttrValid::MODE), "{writer} writes");
        assert!(set(0o755).contains(AttrValid::MODE), "no write does that");
    }
}

#[test]
fn every_user_may_chown_a_file_to_no_owner_and_no_group() {
    let directory = scene(0o755, &[]);
    let fixture = &directory.fixture;
    let set = |uid: u32| {
        let (files, who, node) = (fixture.files.clone(), user(uid, &[]), directory.directory);
        let set = async move { files.setattr(&who, node, None, SetAttributes::default()).await };
        fixture.world.run(set).map(|stat| stat.attributes.uid)
    };
    assert_eq!(set(7), Ok(5));
    assert!(fixture.mdt.take_asked().is_empty(), "the MDT refuses it times of another's file");
    fixture.mdt.answer(MdsReintSetattrReply::default());
    assert_eq!(set(5), Ok(5));
    assert!(matches!(&fixture.mdt.take_asked()[..], [Request::MdsReintSetattr(_)]));
}

#[test]
fn a_write_takes_the_set_id_bits_off_once() {
    let fixture = Fixture::new();
    let mut reply = opened(FILE, 1, true, Bytes::new());
    reply.mdt_body.as_mut().unwrap().mode = 0o104_777;
    fixture.mdt.answer(reply);
    fixture.mdt.answer(MdsReintSetattrReply {
        mdt_body: Some(body(FILE, 0o100_777)),
        ..MdsReintSetattrReply::default()
    });
    fixture.mdt.answer(LdlmIntentLayoutReply {
        dlm_rep: Some(lock_reply(FILE, 0x90, LockMode::Cr, InodeBits::LAYOUT)),
        ..LdlmIntentLayoutReply::default()
    });
    let files = fixture.files.clone();
    let work = async move {
        let flags = OpenFlags(OpenFlags::CREATE | OpenFlags::APPEND | 1);
        let who = user(7, &[]);
        let (_, opened) = files.open_create(&who, NodeId::ROOT, &name("f"), 0o777, flags).await?;
        for _ in 0..2 {
            // There are no objects to write to: this is about what comes before.
            let written = files.write(opened.handle, 0, Bytes::from_static(b"x")).await;
            assert_eq!(written, Err(Errno::EIO));
        }
        Ok::<_, Errno>(())
    };
    fixture.world.run(work).unwrap();
    let asked = fixture.mdt.take_asked();
    let changes = asked.iter().filter(|asked| matches!(asked, Request::MdsReintSetattr(_)));
    assert_eq!(changes.count(), 1);
}

#[test]
fn a_set_group_id_bit_without_group_execution_is_kept_by_members_of_the_group() {
    // What a write and an allocation of such a file ask to be taken.
    let taken = |groups: &[u32], mode: u32| {
        let fixture = Fixture::new();
        let mut reply = opened(FILE, 1, true, Bytes::new());
        let made = reply.mdt_body.as_mut().unwrap();
        (made.mode, made.gid) = (0o100_000 | mode, 50);
        fixture.mdt.answer(reply);
        fixture.mdt.serve(|request| {
            let reply = match request {
                // The bits stay: each call asks anew.
                Request::MdsReintSetattr(_) => Ok(MdsReintSetattrReply::default().into()),
                _ => Err(Errno::EIO),
            };
            (reply, Vec::new())
        });
        let (files, who) = (fixture.files.clone(), user(7, groups));
        let work = async move {
            let flags = OpenFlags(OpenFlags::CREATE | OpenFlags::APPEND | 1);
            let (_, opened) =
                files.open_create(&who, NodeId::ROOT, &name("f"), 0o777, flags).await.unwrap();
            _ = files.write(opened.handle, 0, Bytes::from_static(b"x")).await;
            _ = files.fallocate(opened.handle, Fallocate::Allocate, 0, 5).await;
        };
        fixture.world.run(work);
        let valid = |request: &Request| match request {
            Request::MdsReintSetattr(setattr) => Some(setattr.rec_reint.valid),
            _ => None,
        };
        let asked: Vec<AttrValid> = fixture.mdt.take_asked().iter().filter_map(valid).collect();
        asked.into_iter().map(|valid| valid.contains(AttrValid::KILL_SGID)).collect::<Vec<_>>()
    };
    assert_eq!(taken(&[], 0o2666), [true, true], "the write, and the allocation");
    assert_eq!(taken(&[50], 0o2666), [false; 0]);
    assert_eq!(taken(&[50], 0o2676), [true, true], "its group may execute it");
    assert_eq!(taken(&[50], 0o6666), [false, false], "the other bit goes alone");
    assert_eq!(taken(&[], 0o666), [false; 0]);
}

#[test]
fn a_mount_of_one_user_keeps_what_that_user_may_search() {
    for (uid, kept) in [(5, true), (7, false)] {
        let fixture = Fixture::new();
        fixture.files.attach_notifier(
            Arc::clone(&fixture.watcher) as Arc<dyn KernelNotifier>,
            Audience::User(uid),
        );
        fixture.mdt.answer(owned(DIRECTORY, 0o040_700, &[], whole(DIRECTORY, 0x77)));
        let (directory, _) = found_at(&fixture, &Fixture::root(), NodeId::ROOT, "d");
        fixture.mdt.answer(found(FILE, 0o100_644, 0x78, WHOLE));
        let (_, keep) = found_at(&fixture, &Fixture::root(), directory, "f");
        assert_eq!(keep.entry, kept, "{uid}");
    }
}

#[test]
fn a_squashed_root_is_let_in_as_who_it_is() {
    let private = scene(0o750, &[]);
    assert!(private.searches(0, &[]));
    private.fixture.files.squash_root(Some((99, 98)));
    assert!(!private.searches(0, &[50]), "its groups do not count either");
    assert!(private.searches(5, &[]) && private.searches(7, &[50]));
    private.fixture.files.squash_root(Some((99, 50)));
    assert!(private.searches(0, &[]));
    private.fixture.files.squash_root(None);
    assert!(private.searches(0, &[]));
}
