//! Crashes: what is lost is replayed, what is not replayed is cleaned up, nothing happens twice.

use sheen_store::Store;
use sheen_store_mem::{Commits, MemOptions, StoreMem};
use sheen_target::budget::Limit;
use sheen_target::testing::{TestCall, TestWorld};
use sheen_types::{Errno, Fid, Xid};
use sheen_wire::md::MdsOpenFlags;
use sheen_wire::messages::{ObdPing, Request};
use sheen_wire::ptlrpc::MsgFlags;
use std::sync::Arc;

use super::fake_ost::FakeOst;
use super::harness::{Client, DIRECTORY, Server, opened, run};

pub(super) fn manual() -> Arc<StoreMem> {
    Arc::new(StoreMem::new(MemOptions { commits: Commits::Manual, ..MemOptions::default() }))
}

/// The server dies; a new one starts on what was durable, and the client reconnects.
pub(super) async fn crash(world: &TestWorld, server: Server, client: &Client) -> (Server, Client) {
    let store = Arc::new(server.store.crash());
    let osts: Vec<Arc<FakeOst>> = server.osts.clone();
    drop(server);
    let server = Server::start_on(world, store, osts).await;
    let inner = client.inner.follow(&server.node);
    inner.connect().await.expect("reconnects");
    (server, client.with(inner))
}

pub(super) async fn finish_recovery(client: &Client) {
    for flag in [MsgFlags::REQ_REPLAY_DONE, MsgFlags::LOCK_REPLAY_DONE] {
        let call = TestCall { flags: flag, ..TestCall::new(ObdPing::default()) };
        client.inner.call_with(call).await.expect("an answer");
    }
}

pub(super) async fn replay(
    client: &Client,
    request: Request,
    first: &sheen_target::testing::TestAnswer,
) -> sheen_target::testing::TestAnswer {
    let call = TestCall::new(request).tagged(1).replayed(first.xid, first.head.transno);
    client.inner.call_with(call).await.expect("an answer")
}

#[test]
fn lost_creates_and_opens_are_replayed() {
    let world = TestWorld::new(100);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            client.mkdir(Fid::ROOT, "kept").await.unwrap();
            server.store.commit().unwrap();
            let request = client.create_request(Fid::ROOT, "lost", DIRECTORY | 0o755);
            let made =
                client.inner.call_with(TestCall::new(request.clone()).tagged(1)).await.unwrap();
            let flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE;
            let mut open = client.open_request(Fid::ROOT, "f", flags);
            let first =
                client.inner.call_with(TestCall::new(open.clone()).tagged(2)).await.unwrap();
            let before = opened(first.clone()).unwrap();
            let (server, client) = crash(&inner, server, &client).await;
            let answer = replay(&client, request.into(), &made).await;
            assert_eq!((answer.errno(), answer.head.transno), (None, made.head.transno));
            // As a client does: the layout that it was given comes along.
            open.eadata = before.layout.clone();
            open.rec_reint.open_handle_old = before.body.open_handle;
            let answer = replay(&client, open.into(), &first).await;
            assert_eq!(answer.head.transno, first.head.transno);
            let after = opened(answer).unwrap();
            assert_eq!(after.body.fid1, before.body.fid1);
            assert_eq!(after.layout, before.layout);
            finish_recovery(&client).await;
            client.wait(&inner, 30).await;
            server.check();
            // By the handle from before the crash.
            client.close(&before).await.unwrap();
            let other = client.create(Fid::ROOT, "g").await.unwrap();
            assert_ne!(other.layout, before.layout, "no object twice");
            server.check();
            assert_eq!(client.readdir(Fid::ROOT, 1).await.len(), 6);
        },
        &world,
    );
}

/// The client loses its connection in recovery and replays again; of the answers it keeps the first, which was on
/// its way.
#[test]
fn an_open_that_is_replayed_twice_keeps_the_handle_of_the_first_answer() {
    let world = TestWorld::new(105);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            server.store.commit().unwrap();
            let flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE;
            let mut open = client.open_request(Fid::ROOT, "f", flags);
            let first =
                client.inner.call_with(TestCall::new(open.clone()).tagged(1)).await.unwrap();
            let before = opened(first.clone()).unwrap();
            let (server, client) = crash(&inner, server, &client).await;
            open.rec_reint.fid2 = before.body.fid1;
            open.eadata = before.layout.clone();
            open.rec_reint.open_handle_old = before.body.open_handle;
            let once = opened(replay(&client, open.clone().into(), &first).await).unwrap();
            let answer = replay(&client, open.clone().into(), &first).await;
            assert_eq!(answer.head.transno, first.head.transno);
            let twice = opened(answer).unwrap();
            assert_eq!(twice.body.open_handle, once.body.open_handle);
            // As a client that has had the first answer asks.
            open.rec_reint.open_handle_old = once.body.open_handle;
            let again = opened(replay(&client, open.into(), &first).await).unwrap();
            assert_eq!(again.body.open_handle, once.body.open_handle);
            assert_eq!(again.layout, before.layout);
            finish_recovery(&client).await;
            client.close(&once).await.unwrap();
            assert_eq!(server.mdt.open_count(), 0);
            server.check();
        },
        &world,
    );
}

#[test]
fn a_lost_file_without_a_name_comes_back_without_one() {
    let world = TestWorld::new(104);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            server.store.commit().unwrap();
            let flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE | MdsOpenFlags::VOLATILE;
            let mut open = client.open_request(Fid::ROOT, "\x0cvolatile", flags);
            let first =
                client.inner.call_with(TestCall::new(open.clone()).tagged(2)).await.unwrap();
            let before = opened(first.clone()).unwrap();
            let (server, client) = crash(&inner, server, &client).await;
            open.eadata = before.layout.clone();
            open.rec_reint.open_handle_old = before.body.open_handle;
            let after = opened(replay(&client, open.into(), &first).await).unwrap();
            assert_eq!(after.layout, before.layout);
            finish_recovery(&client).await;
            client.wait(&inner, 30).await;
            assert_eq!(client.readdir(Fid::ROOT, 1).await.len(), 2);
            assert_eq!(server.check().orphans.len(), 1);
            client.close(&before).await.unwrap();
            assert_eq!(server.check().inodes, 1);
        },
        &world,
    );
}

#[test]
fn an_orphan_survives_if_its_open_is_replayed_and_goes_if_not() {
    for replays in [true, false] {
        let world = TestWorld::new(101);
        let inner = world.clone();
        run(
            async move {
                let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
                let client = server.client("c").await;
                let flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE;
                let mut open = client.open_request(Fid::ROOT, "f", flags);
                let first =
                    client.inner.call_with(TestCall::new(open.clone()).tagged(1)).await.unwrap();
                let before = opened(first.clone()).unwrap();
                client.keep(open.dlm_req.handles[0], before.lock.unwrap().0);
                server.store.commit().unwrap();
                client.unlink(Fid::ROOT, "f").await.unwrap();
                server.store.commit().unwrap();
                let (server, client) = crash(&inner, server, &client).await;
                if replays {
                    open.rec_reint.fid2 = before.body.fid1;
                    open.rec_reint.open_handle_old = before.body.open_handle;
                    let answer = replay(&client, open.into(), &first).await;
                    opened(answer).unwrap();
                }
                finish_recovery(&client).await;
                client.wait(&inner, 1).await;
                let report = server.check();
                assert_eq!(report.orphans.len(), usize::from(replays));
                let closed = client.close(&before).await;
                assert_eq!(closed, if replays { Ok(()) } else { Err(Errno::ESTALE) });
                server.store.commit().unwrap();
                client.wait(&inner, 30).await;
                let report = server.check();
                assert_eq!((report.orphans.len(), report.inodes), (0, 1));
            },
            &world,
        );
    }
}

/// The end of an earlier recovery is still cleaning up when the target stops.
#[test]
fn an_orphan_that_a_client_has_open_survives_a_stop() {
    let world = TestWorld::new(102);
    let inner = world.clone();
    let stopped = async move {
        let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
        let client = server.client("c").await;
        let flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE;
        let mut open = client.open_request(Fid::ROOT, "f", flags);
        let first = client.inner.call_with(TestCall::new(open.clone()).tagged(1)).await.unwrap();
        let before = opened(first.clone()).unwrap();
        client.keep(open.dlm_req.handles[0], before.lock.unwrap().0);
        client.unlink(Fid::ROOT, "f").await.unwrap();
        server.node.target.stop().await.unwrap();
        server.mdt.clean_orphans(&server.node.target).await.unwrap();
        server.store.commit().unwrap();
        let (server, client) = crash(&inner, server, &client).await;
        open.rec_reint.fid2 = before.body.fid1;
        open.rec_reint.open_handle_old = before.body.open_handle;
        opened(replay(&client, open.into(), &first).await).unwrap();
        finish_recovery(&client).await;
        client.wait(&inner, 1).await;
        assert_eq!(server.check().orphans.len(), 1);
    };
    run(stopped, &world);
}

#[test]
fn unused_objects_are_removed_and_no_object_is_used_twice() {
    let world = TestWorld::new(102);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            let kept = client.create(Fid::ROOT, "kept").await.unwrap();
            client.close(&kept).await.unwrap();
            server.store.commit().unwrap();
            for number in 0..10 {
                let lost = client.create(Fid::ROOT, &format!("lost{number}")).await.unwrap();
                client.close(&lost).await.unwrap();
            }
            let before = server.osts[0].state.lock().objects.len();
            assert!(before > 11);
            let (server, client) = crash(&inner, server, &client).await;
            finish_recovery(&client).await;
            client.wait(&inner, 10).await;
            let report = server.check();
            assert_eq!(report.objects.len(), 1);
            let fresh = client.create(Fid::ROOT, "fresh").await.unwrap();
            assert_ne!(fresh.layout, kept.layout);
            server.check();
        },
        &world,
    );
}

#[test]
fn destroys_are_not_forgotten_in_a_crash() {
    let world = TestWorld::new(103);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            let opened = client.create(Fid::ROOT, "f").await.unwrap();
            client.close(&opened).await.unwrap();
            server.store.commit().unwrap();
            client.unlink(Fid::ROOT, "f").await.unwrap();
            // Not durable: the objects must stay, however long it takes.
            client.wait(&inner, 60).await;
            assert_eq!(server.osts[0].state.lock().destroys, 0);
            server.store.commit().unwrap();
            let (server, client) = crash(&inner, server, &client).await;
            finish_recovery(&client).await;
            client.wait(&inner, 6).await;
            server.store.commit().unwrap();
            client.wait(&inner, 6).await;
            let state = server.osts[0].state.lock();
            assert!(!state.objects.iter().any(|(_, id)| *id == 2));
            drop(state);
            assert_eq!(server.check().dying, []);
        },
        &world,
    );
}

#[test]
fn sequences_are_not_given_twice() {
    let world = TestWorld::new(104);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), Vec::new()).await;
            let first = server.client("a").await;
            let (server, client) = crash(&inner, server, &first).await;
            finish_recovery(&client).await;
            let second = server.client("b").await;
            assert!(second.sequence > first.sequence);
        },
        &world,
    );
}

#[test]
fn a_range_is_durable_before_it_is_sent_to_an_ost() {
    let world = TestWorld::new(145);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let late = FakeOst::new();
            server.mdt.add_ost(5, late.clone());
            inner.sleep(std::time::Duration::from_secs(5)).await;
            let used = late.state.lock().objects.first().copied();
            let (sequence, _) = used.expect("objects were created ahead");
            let after = Arc::new(server.store.crash());
            let ranges = crate::sequences::Sequences::load(after, 0).unwrap();
            let other = ranges.of(7, sheen_wire::fld::SeqRangeFlags::OST).unwrap();
            assert!(!other.contains(sequence), "{sequence:#x} was given to another OST");
        },
        &world,
    );
}

#[test]
fn a_client_replays_no_more_opens_than_it_can_have_had() {
    let world = TestWorld::new(58);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            server.store.commit().unwrap();
            let mut open =
                client.open_request(Fid::ROOT, "f", MdsOpenFlags::CREAT | MdsOpenFlags::READ);
            let first =
                client.inner.call_with(TestCall::new(open.clone()).tagged(1)).await.unwrap();
            let before = opened(first.clone()).unwrap();
            let (server, client) = crash(&inner, server, &client).await;
            let budget = server.node.target.budget();
            budget.set(Limit::Opens, 10);
            budget.set_of_replays(Limit::Opens, 20);
            open.rec_reint.fid2 = before.body.fid1;
            open.eadata = before.layout.clone();
            let replay = |number: u64| {
                let xid = Xid(first.xid.0 + 0x1_0000 * number);
                let call = TestCall::new(open.clone()).tagged(1);
                client.inner.call_with(call.replayed(xid, first.head.transno))
            };
            for number in 0..20 {
                opened(replay(number).await.unwrap()).unwrap();
            }
            assert_eq!(server.mdt.open_count(), 20);
            let beyond = opened(replay(20).await.unwrap());
            assert_eq!(beyond.map(|_| ()), Err(Errno::ENODEV));
            inner.settle().await;
            let answer = client.inner.call(ObdPing::default()).await;
            assert_eq!(answer.errno(), Some(Errno::ENOTCONN), "it is evicted");
            assert_eq!(server.mdt.open_count(), 0);
        },
        &world,
    );
}

/// Of what a user had open before a restart none is refused, whatever part of its client's it is: neither what is replayed
/// nor what was durable and is asked again, because the answer did not come.
#[test]
fn what_a_user_had_open_is_opened_again_whatever_share_it_is() {
    let world = TestWorld::new(123);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let root = server.client("c").await;
            let (alice, bob) = (root.as_user(10, 10), root.as_user(20, 20));
            let made = root.create(Fid::ROOT, "f").await.unwrap();
            root.close(&made).await.unwrap();
            let open = alice.open_request(Fid::ROOT, "f", MdsOpenFlags::READ);
            let unseen =
                alice.inner.call_with(TestCall::new(open.clone()).tagged(3)).await.unwrap();
            server.store.commit().unwrap();
            let first = alice.inner.call_with(TestCall::new(open.clone()).tagged(1)).await.unwrap();
            opened(first.clone()).unwrap();
            let (server, root) = crash(&inner, server, &root).await;
            let (alice, bob) = (alice.with(root.inner.clone()), bob.with(root.inner.clone()));
            server.node.target.budget().set(Limit::Opens, 16);
            for number in 0..10 {
                let mut open = open.clone();
                open.rec_reint.fid2 = made.body.fid1;
                let xid = Xid(first.xid.0 + 0x1_0000 * number);
                let call = TestCall::new(open).tagged(1).replayed(xid, first.head.transno);
                opened(alice.inner.call_with(call).await.unwrap()).unwrap();
            }
            finish_recovery(&root).await;
            let again = TestCall::new(open).tagged(3).resent(unseen.xid);
            opened(alice.inner.call_with(again).await.unwrap()).unwrap();
            assert_eq!(server.mdt.open_count(), 11);
            let more = alice.open(Fid::ROOT, "f", MdsOpenFlags::READ).await;
            assert_eq!(more.map(drop), Err(Errno::ENFILE), "it has more than its half");
            for _ in 0..3 {
                bob.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap();
            }
            let more = bob.open(Fid::ROOT, "f", MdsOpenFlags::READ).await;
            assert_eq!(more.map(drop), Err(Errno::ENFILE), "all users together");
            root.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap();
        },
        &world,
    );
}

/// The client loses its connection in recovery and replays all once more: a close that was executed then is done, and
/// no error.
#[test]
fn a_close_that_is_replayed_twice_is_done() {
    let world = TestWorld::new(106);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            let made = client.create(Fid::ROOT, "f").await.unwrap();
            client.close(&made).await.unwrap();
            let mut open = client.open_request(Fid::ROOT, "f", MdsOpenFlags::READ);
            let first =
                client.inner.call_with(TestCall::new(open.clone()).tagged(1)).await.unwrap();
            let before = opened(first.clone()).unwrap();
            server.store.commit().unwrap();
            let close = client.close_request(before.body.fid1, before.body.open_handle);
            let closed =
                client.inner.call_with(TestCall::new(close.clone()).tagged(2)).await.unwrap();
            let (server, client) = crash(&inner, server, &client).await;
            open.rec_reint.fid2 = before.body.fid1;
            open.rec_reint.open_handle_old = before.body.open_handle;
            opened(replay(&client, open.into(), &first).await).unwrap();
            for _ in 0..2 {
                let answer = replay(&client, close.clone().into(), &closed).await;
                let transno = answer.head.transno;
                assert_eq!((answer.errno(), transno), (None, closed.head.transno));
                assert_eq!(server.mdt.open_count(), 0);
            }
            finish_recovery(&client).await;
            server.check();
        },
        &world,
    );
}
