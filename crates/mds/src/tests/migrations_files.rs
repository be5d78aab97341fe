//! Files of directories that move to other MDTs: their objects, leases and data.

use std::time::Duration;

use sheen_store::{Store, Transaction};
use sheen_target::testing::{TestCall, TestWorld};
use sheen_types::{Errno, Fid, InodeBits, LockMode};
use sheen_wire::ldlm::LdlmRequest;
use sheen_wire::md::{Bias, CloseData, MdsOpenFlags, MdtIoepoch, OpenHandle, Valid};
use sheen_wire::messages::{LdlmCancel, LdlmEnqueue, MdsReintMigrate, Reply};
use sheen_wire::ost::OstId;

use super::fake_ost::FakeOst;
use super::harness::{Client, Opened, REGULAR, run};
use super::layouts::stored;
use super::leases::{lease, lock_of};
use super::migrations::{migrate_request, stripes, to};
use super::over_mdts::Scene;

const ROOT: Fid = Fid::ROOT;

/// Two MDTs with an OST each knows for itself.
async fn with_osts(world: &TestWorld) -> (Scene, [std::sync::Arc<FakeOst>; 2]) {
    let scene = Scene::new(world, 2).await;
    let osts = [FakeOst::new(), FakeOst::new()];
    for (server, ost) in scene.servers.iter().zip(&osts) {
        server.mdt.add_ost(7, ost.clone());
    }
    world.sleep(Duration::from_secs(10)).await;
    (scene, osts)
}

/// A migration under a lease.
fn under_lease(client: &Client, place: (Fid, &str), leased: &Opened) -> MdsReintMigrate {
    let mut request = migrate_request(client, place, client.next_fid(), &to(1, 1));
    request.rec_reint.bias = Bias::CLOSE_MIGRATE;
    let open_handle = leased.body.open_handle;
    request.mdt_ioepoch = Some(MdtIoepoch { open_handle, ..MdtIoepoch::default() });
    request.close_data = Some(CloseData { handle: lock_of(leased), ..CloseData::default() });
    request
}

/// What is answered, and whether the file is closed.
async fn ask(client: &Client, request: MdsReintMigrate) -> (Option<Errno>, bool) {
    let call = TestCall::new(request).tagged(client.next_tag());
    let answer = client.inner.call_with(call).await.expect("an answer");
    let Some(Reply::MdsReintMigrate(reply)) = &answer.reply else { panic!("{answer:?}") };
    let body = reply.mdt_body.as_ref().expect("a body");
    (answer.errno(), body.valid.contains(Valid::CLOSE_INTENT_EXECED))
}

#[test]
fn a_file_keeps_its_objects_when_its_inode_moves() {
    let world = TestWorld::new(910);
    let inner = world.clone();
    let test = async move {
        let (scene, osts) = with_osts(&inner).await;
        let (here, there) = (&scene.clients[0], &scene.clients[1]);
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let opened = here.create(d, "f").await.expect("made");
        here.close(&opened).await.expect("closed");
        let file = opened.body.fid1;
        let before = stored(&here.getxattr(file, "lustre.lov").await.expect("a layout"));
        assert_eq!(before.objects().len(), 1);
        let master = scene.migrate(1, (ROOT, "d"), &to(1, 1)).await.expect("it begins");
        let target = stripes(&scene.layout(master).await)[0];
        scene.migrate(0, (master, "f"), &to(1, 1)).await.expect("moved");
        let new = scene.child(target, "f").await.expect("it is there");
        let value = there.getxattr(new, "lustre.lov").await.expect("a layout");
        assert_eq!(stored(&value).objects(), before.objects());
        // The layout says whose it is.
        let mut expected = before.clone();
        expected.give_to(new, before.generation());
        assert_eq!(stored(&value), expected);
        inner.sleep(Duration::from_secs(10)).await;
        assert_eq!(osts[0].state.lock().destroys, 0, "they are the new inode's");
        assert!(before.objects().iter().all(|(_, object)| osts[0].has(object)));
        there.unlink(target, "f").await.expect("removed");
        inner.sleep(Duration::from_secs(10)).await;
        assert!(osts[1].state.lock().destroys > 0, "they go with it");
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_file_moves_under_the_lease_that_its_client_gives_up() {
    let world = TestWorld::new(911);
    let inner = world.clone();
    let test = async move {
        let (scene, _osts) = with_osts(&inner).await;
        let here = &scene.clients[0];
        let d = here.mkdir(ROOT, "d").await.expect("made");
        for name in ["f", "broken", "kept"] {
            let opened = here.create(d, name).await.expect("made");
            here.close(&opened).await.expect("closed");
        }
        let (file, broken) = (scene.child(d, "f").await, scene.child(d, "broken").await);
        let (file, broken) = (file.expect("it is there"), broken.expect("it is there"));
        let master = scene.migrate(1, (ROOT, "d"), &to(1, 1)).await.expect("it begins");
        let all = stripes(&scene.layout(master).await);
        let leased = lease(here, file, OpenHandle(0)).await.expect("a lease");
        let request = under_lease(here, (master, "f"), &leased);
        assert_eq!(ask(here, request).await, (None, true));
        let new = scene.child(all[0], "f").await.expect("it is there");
        assert_eq!((scene.mdt_of(new), scene.servers[0].mdt.open_counts.is_open(file)), (1, false));
        // Another client has opened it: the lease is lost, the file is closed, and stays where it is.
        let leased = lease(here, broken, OpenHandle(0)).await.expect("a lease");
        let other = scene.servers[0].client("other").await;
        let write = MdsOpenFlags::WRITE;
        let opened = other.open_fid(broken, write).await.expect("opened");
        let request = under_lease(here, (master, "broken"), &leased);
        assert_eq!(ask(here, request.clone()).await, (Some(Errno::EAGAIN), true));
        assert_eq!(scene.child(all[1], "broken").await, Some(broken));
        // The handle is closed already: its name moves alone, as the other client has it open.
        assert_eq!(ask(here, request).await, (None, false));
        assert_eq!(scene.child(all[0], "broken").await, Some(broken));
        other.close(&opened).await.expect("closed");
        // An MDT is away before it is known that the name is to move: the client asks again by itself, and has its file open.
        let kept = scene.child(all[1], "kept").await.expect("it is there");
        let leased = lease(here, kept, OpenHandle(0)).await.expect("a lease");
        let way = scene.way(0, 1);
        way.breaks();
        let request = under_lease(here, (master, "kept"), &leased);
        assert_eq!(ask(here, request.clone()).await, (Some(Errno::EINPROGRESS), false));
        assert!(scene.servers[0].mdt.open_counts.is_open(kept));
        way.is_there(&inner, way.client());
        inner.sleep(std::time::Duration::from_secs(2)).await;
        assert_eq!(ask(here, request).await, (None, true));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_file_stays_open_that_has_nowhere_to_move() {
    let world = TestWorld::new(918);
    let inner = world.clone();
    let test = async move {
        let (scene, _osts) = with_osts(&inner).await;
        let (here, there) = (&scene.clients[0], &scene.clients[1]);
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let opened = here.create(d, "f").await.expect("made");
        here.close(&opened).await.expect("closed");
        let master = scene.migrate(1, (ROOT, "d"), &to(1, 1)).await.expect("it begins");
        let target = stripes(&scene.layout(master).await)[0];
        scene.migrate(0, (master, "f"), &to(1, 1)).await.expect("moved");
        let file = scene.child(target, "f").await.expect("it is there");
        for (name, errno) in [("f", Errno::EALREADY), ("absent", Errno::ENOENT)] {
            let leased = lease(there, file, OpenHandle(0)).await.expect("a lease");
            let request = under_lease(there, (master, name), &leased);
            assert_eq!(ask(there, request).await, (Some(errno), false));
            assert!(scene.servers[1].mdt.open_counts.is_open(file), "{name}");
            there.close(&leased).await.expect("its client closes it");
        }
        assert!(!scene.servers[1].mdt.open_counts.is_open(file));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_file_with_data_on_its_mdt_stays_there_and_its_name_moves() {
    let world = TestWorld::new(912);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let here = &scene.clients[0];
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let file = here.make(d, "f", REGULAR | 0o644).await.expect("made");
        let mut change = Transaction::new();
        change.set_xattr(file, "trusted.lov", super::dom::layout(file));
        scene.servers[0].store.apply(change).expect("set");
        let master = scene.migrate(1, (ROOT, "d"), &to(1, 1)).await.expect("it begins");
        let target = stripes(&scene.layout(master).await)[0];
        scene.migrate(0, (master, "f"), &to(1, 1)).await.expect("moved");
        assert_eq!(scene.child(target, "f").await, Some(file));
        let value = here.getxattr(file, "lustre.lov").await.expect("a layout");
        assert_eq!(value, super::dom::layout(file));
        assert_eq!(
            OstId::of_file(file),
            OstId::of_file(scene.child(target, "f").await.expect("it"))
        );
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// An open comes between the look at a file that moves and its move.
#[test]
fn no_client_opens_a_file_that_is_about_to_move() {
    let world = TestWorld::new(913);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let here = scene.clients[0].clone();
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let file = here.make(d, "f", REGULAR | 0o644).await.expect("made");
        let master = scene.migrate(1, (ROOT, "d"), &to(1, 1)).await.expect("it begins");
        scene.settle(&inner).await;
        // The other MDT does not answer the part.
        scene.way(0, 1).hold(Some(sheen_wire::out::UpdateType::RECORD));
        let request = migrate_request(&here, (master, "f"), here.next_fid(), &to(1, 1));
        let moving = here.clone();
        let answered = std::sync::Arc::new(parking_lot::Mutex::new(None));
        let (said, opened) = (answered.clone(), std::sync::Arc::new(parking_lot::Mutex::new(None)));
        let migrate = async move { *said.lock() = Some(moving.modify(request).await.map(drop)) };
        inner.world().tasks.spawn("migrate", Box::pin(migrate));
        inner.sleep(Duration::from_secs(1)).await;
        let (opener, found) = (here.clone(), opened.clone());
        let open = async move {
            *found.lock() =
                Some(opener.open_fid(file, MdsOpenFlags::READ).await.map(|it| it.body.fid1));
        };
        inner.world().tasks.spawn("open", Box::pin(open));
        inner.sleep(Duration::from_secs(1)).await;
        assert!(opened.lock().is_none() && answered.lock().is_none());
        scene.way(0, 1).hold(None);
        inner.sleep(Duration::from_secs(2)).await;
        assert_eq!(*answered.lock(), Some(Ok(())));
        assert_eq!(*opened.lock(), Some(Ok(Fid::ZERO)), "it is another inode");
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_file_that_is_opened_at_any_moment_of_its_move_is_open_or_gone() {
    let world = TestWorld::new(914);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let here = scene.clients[0].clone();
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let mut files = Vec::new();
        for number in 0..120 {
            let name = format!("f{number}");
            files.push((here.make(d, &name, REGULAR | 0o644).await.expect("made"), name));
        }
        let master = scene.migrate(1, (ROOT, "d"), &to(1, 1)).await.expect("it begins");
        let target = stripes(&scene.layout(master).await)[0];
        let mut outcomes = std::collections::BTreeSet::new();
        for (times, (file, name)) in (0..).zip(files) {
            let request = migrate_request(&here, (master, &name), here.next_fid(), &to(1, 1));
            let moving = here.clone();
            let answered = std::sync::Arc::new(parking_lot::Mutex::new(None));
            let said = answered.clone();
            let migrate =
                async move { *said.lock() = Some(moving.modify(request).await.map(drop)) };
            inner.world().tasks.spawn("migrate", Box::pin(migrate));
            super::lost_mdts::yield_times(times).await;
            let opener = scene.servers[0].client(&format!("c{times}")).await;
            let opened = opener.open_fid(file, MdsOpenFlags::READ).await.expect("an answer");
            inner.sleep(Duration::from_secs(1)).await;
            assert_eq!(*answered.lock(), Some(Ok(())));
            let is_open = opened.body.fid1 == file;
            let stays = scene.child(target, &name).await == Some(file);
            assert!(stays || !is_open, "{times}: an open file has lost its name");
            outcomes.insert((is_open, stays));
            if is_open {
                opener.close(&opened).await.expect("closed");
            }
        }
        assert!(outcomes.len() > 1, "{outcomes:?}");
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// A client has got a lock on the directory after it was excluded, and reads its names by it: it gives the lock up when it has them.
#[test]
fn a_listing_goes_on_until_its_client_has_given_up_the_lock_that_the_move_waits_for() {
    let world = TestWorld::new(916);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 2).await;
        let here = scene.clients[0].clone();
        let d = here.mkdir(ROOT, "d").await.expect("made");
        here.make(d, "f", REGULAR | 0o644).await.expect("made");
        let master = scene.migrate(1, (ROOT, "d"), &to(1, 1)).await.expect("it begins");
        scene.settle(&inner).await;
        let reader = scene.servers[0].client("reader").await;
        scene.way(0, 1).hold(Some(sheen_wire::out::UpdateType::EXCLUDE));
        let request = migrate_request(&here, (master, "f"), here.next_fid(), &to(1, 1));
        let moving = here.clone();
        let answered = std::sync::Arc::new(parking_lot::Mutex::new(None));
        let said = answered.clone();
        let migrate = async move { *said.lock() = Some(moving.modify(request).await.map(drop)) };
        inner.world().tasks.spawn("migrate", Box::pin(migrate));
        inner.sleep(Duration::from_secs(1)).await;
        let dlm_req = reader.dlm(d, LockMode::Pr, InodeBits::UPDATE);
        let mine = dlm_req.handles[0];
        let answer = reader.inner.call(LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() }).await;
        let Some(Reply::LdlmEnqueue(reply)) = answer.reply else { panic!("{answer:?}") };
        let lock = reply.dlm_rep.expect("a lock").handle;
        reader.keep(mine, lock);
        reader.hold_on();
        scene.way(0, 1).hold(None);
        inner.sleep(Duration::from_secs(1)).await;
        assert!(answered.lock().is_none(), "it waits for the lock");
        let read = std::sync::Arc::new(parking_lot::Mutex::new(None));
        let (client, names) = (reader.clone(), read.clone());
        let list = async move { *names.lock() = Some(client.readdir(d, 1).await.len()) };
        inner.world().tasks.spawn("list", Box::pin(list));
        inner.sleep(Duration::from_secs(1)).await;
        assert_eq!(*read.lock(), Some(3));
        let dlm_req = LdlmRequest::cancel(vec![lock]);
        reader.inner.call(LdlmCancel { dlm_req, ..LdlmCancel::default() }).await;
        inner.sleep(Duration::from_secs(2)).await;
        assert_eq!(*answered.lock(), Some(Ok(())));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_request_that_is_sent_again_says_that_the_file_is_closed_and_squashed_root_is_refused() {
    let world = TestWorld::new(917);
    let inner = world.clone();
    let test = async move {
        let (scene, _osts) = with_osts(&inner).await;
        let here = &scene.clients[0];
        let d = here.mkdir(ROOT, "d").await.expect("made");
        let opened = here.create(d, "f").await.expect("made");
        here.close(&opened).await.expect("closed");
        here.make(d, "g", REGULAR | 0o644).await.expect("made");
        let master = scene.migrate(1, (ROOT, "d"), &to(1, 1)).await.expect("it begins");
        let leased = lease(here, opened.body.fid1, OpenHandle(0)).await.expect("a lease");
        let request = under_lease(here, (master, "f"), &leased);
        let call = TestCall::new(request).tagged(here.next_tag());
        let xid = sheen_types::Xid(0x5000_0000);
        let first = TestCall { xid: Some(xid), ..call.clone() };
        for call in [first, call.resent(xid)] {
            let answer = here.inner.call_with(call).await.expect("an answer");
            assert_eq!(answer.errno(), None);
            let Some(Reply::MdsReintMigrate(reply)) = &answer.reply else { panic!("{answer:?}") };
            let body = reply.mdt_body.as_ref().expect("a body");
            assert!(body.valid.contains(Valid::CLOSE_INTENT_EXECED));
        }
        scene.servers[0].mdt.change_root_squash(|squash| squash.set_root("99:98")).expect("set");
        let squashed = scene.migrate(0, (master, "g"), &to(1, 1)).await;
        assert_eq!(squashed, Err(Errno::EPERM));
        scene.settle(&inner).await;
    };
    run(test, &world);
}
