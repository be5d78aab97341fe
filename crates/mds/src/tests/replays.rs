//! Replays that are none open no door, and no answer names a transaction beside an error.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_store::Store;
use sheen_store_mem::Errors;
use sheen_target::testing::{TestAnswer, TestCall, TestClient, TestWorld};
use sheen_target::{FaultAction, FaultSite};
use sheen_types::{Errno, Fid, InodeBits, LockMode, Transno, Xid};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use sheen_wire::ldlm::{IntentOp, LdlmIntent};
use sheen_wire::md::{AttrValid, LayoutIntent, LayoutIntentOp, MdsOpenFlags, RecSetattr, ReintOp};
use sheen_wire::messages::*;

use super::fake_ost::FakeOst;
use super::harness::{Client, DIRECTORY, REGULAR, Server, opened, run};
use super::recovery::{crash, finish_recovery, manual, replay};

const ROOT: Fid = Fid::ROOT;
/// One that is no transaction's yet.
const ABSURD: Transno = Transno(u64::MAX);

/// The error of an answer, by its status or by its intent: never with a transaction.
fn judged(answer: &TestAnswer) -> Option<Errno> {
    let lock = match &answer.reply {
        Some(Reply::LdlmIntentOpen(reply)) => reply.dlm_rep.as_ref(),
        Some(Reply::LdlmIntentLayout(reply)) => reply.dlm_rep.as_ref(),
        _ => None,
    };
    let intent = lock.map_or(0, |lock| lock.policy_res2 as i32);
    let error = if answer.head.status < 0 { answer.head.status } else { intent };
    let transno = answer.head.transno;
    assert!(error == 0 || transno == Transno(0), "error {error} with transaction {transno}");
    Errno::from_status(error)
}

async fn ask(client: &Client, request: impl Into<Request>) -> Option<Errno> {
    let call = TestCall::new(request).tagged(client.next_tag());
    judged(&client.inner.call_with(call).await.expect("an answer"))
}

fn layout_request(client: &Client, file: Fid) -> LdlmIntentLayout {
    let op = LayoutIntentOp::WRITE;
    LdlmIntentLayout {
        dlm_req: client.dlm(file, LockMode::Ex, InodeBits::LAYOUT),
        ldlm_intent: LdlmIntent { opc: IntentOp::LAYOUT },
        layout_intent: LayoutIntent { op, end: 4096, ..LayoutIntent::default() },
        ..LdlmIntentLayout::default()
    }
}

fn setattr_request(fid: Fid, valid: AttrValid) -> MdsReintSetattr {
    let opcode = ReintOp::SETATTR;
    let rec_reint = RecSetattr {
        opcode,
        suppgid: u32::MAX,
        fid,
        valid,
        mtime: 77_777,
        ctime: 77_777,
        ..RecSetattr::default()
    };
    MdsReintSetattr { rec_reint, ..MdsReintSetattr::default() }
}

#[test]
fn what_claims_to_be_a_replay_opens_nothing_and_changes_nothing() {
    let world = TestWorld::new(300);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("root").await;
            let file = root.make(ROOT, "secret", REGULAR | 0o600).await.unwrap();
            for transno in [ABSURD, Transno(1), Transno(1 << 32)] {
                let liar = server.client("liar").await.as_user(5, 5);
                let mut open = liar.open_request(ROOT, "secret", MdsOpenFlags::READ);
                assert_eq!(ask(&liar, open.clone()).await, Some(Errno::EACCES));
                open.rec_reint.fid2 = file;
                let call = TestCall::new(open).tagged(1).replayed(Xid(0x77_0000), transno);
                let answer = liar.inner.call_with(call).await.unwrap();
                assert_eq!(answer.errno(), Some(Errno::ENODEV));
                inner.settle().await;
            }
            assert_eq!(server.mdt.open_count(), 0);
            server.mdt.set_read_only(true);
            let liar = server.client("liar").await;
            let request = liar.create_request(ROOT, "d", DIRECTORY | 0o755);
            assert_eq!(ask(&liar, request.clone()).await, Some(Errno::EROFS));
            let call = TestCall::new(request).tagged(1).replayed(Xid(0x77_0000), ABSURD);
            assert_eq!(liar.inner.call_with(call).await.unwrap().errno(), Some(Errno::ENODEV));
            assert_eq!(root.readdir(ROOT, 1).await.len(), 3);
        },
        &world,
    );
}

/// The request arrives, its client is evicted, then it is executed.
async fn evicted_under_way(
    world: &TestWorld,
    server: &Server,
    client: &Client,
    request: impl Into<Request>,
) -> TestAnswer {
    let request = request.into();
    let slow = FaultAction::Delay(Duration::from_secs(2));
    server.node.target.faults().arm(FaultSite::Request(request.kind()), slow, 1);
    let (target, alarm) = (Arc::clone(&server.node.target), world.clone());
    let uuid = "evicted".to_owned();
    let evict = async move {
        alarm.sleep(Duration::from_secs(1)).await;
        assert_eq!(target.evict_client(&uuid).await, 1);
    };
    world.world().tasks.spawn("evict", Box::pin(evict));
    client.inner.call_with(TestCall::new(request).tagged(1)).await.expect("an answer")
}

#[test]
fn an_evicted_client_is_answered_so_without_a_transaction() {
    let world = TestWorld::new(301);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("root").await;
            let file = root.make(ROOT, "old", REGULAR | 0o644).await.unwrap();
            let write = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE;
            let volatile = write | MdsOpenFlags::VOLATILE;
            let opens = [("new", write), ("\x0cvolatile", volatile), ("old", MdsOpenFlags::READ)];
            for (name, flags) in opens {
                let client = server.client("evicted").await;
                let open = client.open_request(ROOT, name, flags);
                let answer = evicted_under_way(&inner, &server, &client, open).await;
                assert_eq!(judged(&answer), Some(Errno::ENOTCONN), "{name}");
                assert_eq!(answer.errno(), Some(Errno::ENOTCONN), "not the open has failed");
            }
            let client = server.client("evicted").await;
            let layout = layout_request(&client, file);
            let answer = evicted_under_way(&inner, &server, &client, layout).await;
            assert!(judged(&answer).is_some());
            root.wait(&inner, 6).await;
            assert_eq!(server.mdt.open_count(), 0);
            assert_eq!(server.check().orphans, []);
        },
        &world,
    );
}

/// The first answer is lost; what has become of the file since makes the second an error.
#[test]
fn an_open_that_cannot_be_repeated_names_no_transaction() {
    let world = TestWorld::new(302);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("root").await;
            let file = root.make(ROOT, "f", REGULAR | 0o644).await.unwrap();
            let user = root.as_user(5, 5);
            let open = user.open_request(ROOT, "f", MdsOpenFlags::READ);
            let first = TestCall::new(open.clone()).tagged(9);
            let first = user.inner.call_with(first).await.unwrap();
            let before = opened(first.clone()).unwrap();
            user.keep(open.dlm_req.handles[0], before.lock.unwrap().0);
            user.close(&before).await.unwrap();
            let shut = |record: &mut RecSetattr| record.mode = 0o600;
            root.setattr(file, AttrValid::MODE, shut).await.unwrap();
            let again = TestCall::new(open).tagged(9).resent(first.xid);
            let again = user.inner.call_with(again).await.unwrap();
            assert_eq!(judged(&again), Some(Errno::EACCES));
        },
        &world,
    );
}

#[test]
fn a_replayed_mkdir_whose_directory_is_gone_is_answered() {
    let world = TestWorld::new(303);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), Vec::new()).await;
            let (client, other) = (server.client("c").await, server.client("o").await);
            let request = client.create_request(ROOT, "d", DIRECTORY | 0o755);
            let call = TestCall::new(request.clone()).tagged(1);
            let made = client.inner.call_with(call).await.unwrap();
            // The slot is used again, so that no record is left of the first request's answer.
            let more = client.create_request(ROOT, "e", DIRECTORY | 0o755);
            client.inner.call_with(TestCall::new(more).tagged(1)).await.unwrap();
            other.rmdir(ROOT, "d").await.unwrap();
            server.store.commit().unwrap();
            let (server, client) = crash(&inner, server, &client).await;
            let other = other.with(other.inner.follow(&server.node));
            other.inner.connect().await.unwrap();
            let answer = replay(&client, request.into(), &made).await;
            assert_eq!((judged(&answer), answer.head.transno), (None, made.head.transno));
            let done = async move { finish_recovery(&other).await };
            inner.world().tasks.spawn("other", Box::pin(done));
            finish_recovery(&client).await;
        },
        &world,
    );
}

/// The id of a layout's only object.
fn with_object(layout: &Bytes, oi: [u64; 2]) -> Bytes {
    let mut layout = layout.to_vec();
    let at = layout.len() - 24;
    let words = oi.map(u64::to_le_bytes).concat();
    layout[at..at + 16].copy_from_slice(&words);
    layout.into()
}

#[test]
fn a_replay_names_objects_that_a_file_may_have_got() {
    for (number, is_believed) in [(1_u64 << 31, false), (u64::MAX, false), (50_000, true)] {
        let world = TestWorld::new(306);
        let inner = world.clone();
        run(
            async move {
                let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
                let client = server.client("c").await;
                server.store.commit().unwrap();
                let write = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE;
                let mut open = client.open_request(ROOT, "f", write);
                let call = TestCall::new(open.clone()).tagged(2);
                let first = client.inner.call_with(call).await.unwrap();
                let before = opened(first.clone()).unwrap();
                let (server, client) = crash(&inner, server, &client).await;
                let sequence = server.mdt.osts()[0].sequence;
                // Of the form without a sequence, too, whose ids are larger.
                let oi = if number == u64::MAX { [number, 0] } else { [sequence, number] };
                open.eadata = with_object(&before.layout, oi);
                open.rec_reint.open_handle_old = before.body.open_handle;
                let after = opened(replay(&client, open.into(), &first).await).unwrap();
                assert_eq!(!after.layout.is_empty(), is_believed, "{number}");
                // The OST had made it before the MDT had its answer.
                if is_believed {
                    let mut ost = server.osts[0].state.lock();
                    ost.objects.insert((sequence, 50_000));
                    ost.last = 50_000;
                }
                finish_recovery(&client).await;
                client.wait(&inner, 30).await;
                let fresh = client.create(ROOT, "g").await.unwrap();
                assert!(!fresh.layout.is_empty());
                let used = server.mdt.osts()[0].last_used;
                assert_eq!(used > 50_000, is_believed, "{used}");
                server.check();
            },
            &world,
        );
    }
}

/// All kinds of changes on a disk that fails some of its reads, before and after the change.
#[test]
fn no_answer_has_an_error_and_a_transaction() {
    let world = TestWorld::new(304);
    let inner = world.clone();
    run(
        async move {
            let well = Errors { reads: 0, changes: 0 };
            let errors = Arc::new(Mutex::new(well));
            let server = Server::start_flaky(&inner, Arc::clone(&errors)).await;
            let client = server.client("client").await;
            let write = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE;
            let (mut failed, mut done) = (0, 0);
            for number in 0..400 {
                let name = format!("f{number}");
                let file = client.make(ROOT, &name, REGULAR | 0o644).await.unwrap();
                let dir = client.create_request(ROOT, &format!("d{number}"), DIRECTORY | 0o755);
                *errors.lock() = Errors { reads: 5, changes: 0 };
                let answer = match number % 7 {
                    0 => {
                        ask(&client, client.open_request(ROOT, &format!("n{number}"), write)).await
                    }
                    1 => ask(&client, client.open_request(ROOT, &name, MdsOpenFlags::WRITE)).await,
                    2 => ask(&client, setattr_request(file, AttrValid::MTIME)).await,
                    3 => ask(&client, dir).await,
                    4 => ask(&client, client.unlink_request(ROOT, &name, REGULAR)).await,
                    5 => client.link(file, ROOT, &format!("l{number}")).await.err(),
                    _ => ask(&client, layout_request(&client, file)).await,
                };
                *errors.lock() = well;
                client.hold_on();
                match answer {
                    Some(_) => failed += 1,
                    None => done += 1,
                }
            }
            assert!(failed > 50 && done > 50, "{failed} failed, {done} did not");
        },
        &world,
    );
}

#[test]
fn a_client_that_mounts_read_only_changes_nothing_by_a_close() {
    let world = TestWorld::new(305);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("root").await;
            let file = root.make(ROOT, "f", REGULAR | 0o644).await.unwrap();
            let before = root.getattr(file).await.unwrap();
            for reads_only in [true, false] {
                let reader = server.node.client(&format!("reader{reads_only}"));
                let offer = TestClient::everything();
                let flags = match reads_only {
                    true => offer.flags | ConnectFlags::RDONLY,
                    false => offer.flags,
                };
                reader.connect_with(ObdConnectData { flags, ..offer }).await.unwrap();
                let reader = root.with(reader);
                // Without the right to write it opens nothing for writing, and reports times of access at
                // most.
                let access = match reads_only {
                    true => MdsOpenFlags::READ,
                    false => MdsOpenFlags::READ | MdsOpenFlags::WRITE,
                };
                let opened = reader.open(ROOT, "f", access).await.unwrap();
                let mut close = reader.close_request(file, opened.body.open_handle);
                let times = AttrValid::MTIME | AttrValid::CTIME | AttrValid::ATIME;
                close.rec_reint.valid = times | AttrValid::LSIZE | AttrValid::LBLOCKS;
                close.rec_reint.size = 5 << 30;
                (close.rec_reint.mtime, close.rec_reint.ctime) = (77_777, 77_777);
                close.rec_reint.atime = 77_777;
                assert_eq!(ask(&reader, close).await, None);
                let after = root.getattr(file).await.unwrap();
                assert_eq!(after.mtime == before.mtime, reads_only);
                assert_eq!(after.atime == before.atime, reads_only);
                assert_eq!(
                    (after.size == before.size, after.ctime == before.ctime),
                    (reads_only, reads_only)
                );
            }
            assert_eq!(server.mdt.open_count(), 0);
        },
        &world,
    );
}
