//! The target with a role that counts, on a store that crashes when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_ldlm::Policy;
use sheen_rpc::RpcError;
use sheen_store::{Store, Transaction};
use sheen_store_mem::{Commits, MemOptions, StoreMem};
use sheen_types::{
    Errno, Fid, InodeBits, LockHandle, LockMode, Nid, ResourceName, Transno, Uuid, Xid,
};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::ldlm::{
    LdlmRequest, LdlmResourceDesc, LockFlags as WireFlags, LockType, Policy as WirePolicy,
};
use sheen_wire::messages::{
    Kind, LdlmEnqueue, LdlmGlCallbackReply, LdlmIntentGetattr, LdlmIntentGetattrReply, MdsBatch,
    MdsClose, MdsCloseIntent, MdsDisconnect, MdsReintSetattr, MdsReintSetattrReply, MdsRmfid,
    MdsStatfs, MdsSwapLayouts, ObdPing, Reply, Request,
};
use sheen_wire::ptlrpc::{MsgFlags, OpFlags};

use crate::limits::Limit;
use crate::testing::{TestAnswer, TestCall, TestClient, TestTarget, TestWorld};
use crate::{
    ConnectOffer, Context, EnqueueRequest, ExportState, FaultAction, FaultSite, Operations,
    Outcome, RecoveryStatus, ReplyRecording, TargetConfig, Timeouts,
};

mod budgets;
mod evicted;
mod logged;
mod lost_before;
mod recovery_window;
mod refused;
mod replays;
mod stopped;
mod went_back;

const COUNTS: Fid = Fid::new(0x2_0000_0401, 1);
const INODE: Fid = Fid::new(0x2_0000_0401, 2);

/// Counts setattrs: each adds a key named by its number.
#[derive(Default)]
pub(crate) struct Counting {
    executed: AtomicU32,
    reconstructed: AtomicU32,
}

impl Counting {
    /// Changes that were executed.
    pub(crate) fn executed(&self) -> u32 {
        self.executed.load(Ordering::Relaxed)
    }
}

impl Operations for Counting {
    fn operate<'a>(
        &'a self,
        context: &'a Context,
        request: Request,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        Box::pin(async move {
            match request {
                Request::MdsReintSetattr(_) => {
                    self.executed.fetch_add(1, Ordering::Relaxed);
                    let key = format!("{}/{}", context.export.uuid(), context.xid);
                    let recording = ReplyRecording::Keep { result: 0, data: 7 };
                    context
                        .target
                        .transact_with(context, recording, |transno| {
                            let mut transaction = Transaction::new();
                            let value = Bytes::copy_from_slice(&transno.0.to_be_bytes());
                            transaction.insert(COUNTS, key.into(), value);
                            transaction
                        })
                        .map_err(|error| error.errno())?;
                    Ok(Outcome::ok(MdsReintSetattrReply::default()))
                }
                _ => Err(Errno::EOPNOTSUPP),
            }
        })
    }

    fn reconstruct<'a>(
        &'a self,
        _context: &'a Context,
        _request: Request,
        record: crate::ReplyRecord,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        Box::pin(async move {
            assert_eq!(record.data, 7);
            self.reconstructed.fetch_add(1, Ordering::Relaxed);
            Ok(Outcome::ok(MdsReintSetattrReply::default()))
        })
    }

    fn intent<'a>(
        &'a self,
        context: &'a Context,
        _request: Request,
        enqueue: EnqueueRequest,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        Box::pin(async move {
            let lock = context.target.lock_inode(INODE, InodeBits::LOOKUP, LockMode::Pr).await?;
            let dlm_rep = lock.hand_over(context, &enqueue)?;
            Ok(Outcome::ok(LdlmIntentGetattrReply {
                dlm_rep: Some(dlm_rep),
                ..LdlmIntentGetattrReply::default()
            }))
        })
    }
}

pub(crate) fn config() -> TargetConfig {
    TargetConfig {
        name: "lustre-MDT0000".to_owned(),
        uuid: Uuid::new("lustre-MDT0000_UUID"),
        index: 0,
        offer: ConnectOffer {
            flags: ConnectFlags::FULL20
                | ConnectFlags::IBITS
                | ConnectFlags::MULTIMODRPCS
                | ConnectFlags::FLAGS2,
            ibits_known: 0x3f,
            maxmodrpcs: 8,
            ..ConnectOffer::default()
        },
        replayable: true,
        timeouts: Timeouts::from_base(Duration::from_secs(20)),
    }
}

pub(crate) fn manual_store() -> Arc<StoreMem> {
    let options = MemOptions { commits: Commits::Manual, ..MemOptions::default() };
    Arc::new(StoreMem::new(options))
}

pub(crate) async fn start(world: &TestWorld, store: &Arc<StoreMem>) -> (TestTarget, Arc<Counting>) {
    let role = Arc::new(Counting::default());
    let store: Arc<dyn Store> = store.clone();
    let node = TestTarget::start(world, store, config(), role.clone()).await;
    (node, role)
}

fn setattr(tag: u16) -> TestCall {
    TestCall::new(MdsReintSetattr::default()).tagged(tag)
}

fn flags(call: TestCall, flags: MsgFlags) -> TestCall {
    TestCall { flags, ..call }
}

pub(crate) async fn modify(client: &TestClient, tag: u16) -> TestAnswer {
    let answer = client.call_with(setattr(tag)).await.expect("answered");
    assert_eq!(answer.head.status, 0);
    answer
}

/// What a client says when it has replayed everything.
pub(crate) async fn finish_recovery(client: &TestClient) -> TestAnswer {
    let done = MsgFlags::REQ_REPLAY_DONE | MsgFlags::LOCK_REPLAY_DONE;
    client.call_with(flags(TestCall::new(ObdPing::default()), done)).await.expect("answered")
}

pub(crate) fn inode_lock(mode: LockMode, client_handle: u64) -> LdlmEnqueue {
    let desc = sheen_wire::ldlm::LdlmLockDesc {
        resource: LdlmResourceDesc {
            kind: LockType::IBITS,
            padding: 0,
            name: ResourceName::of_fid(INODE),
        },
        req_mode: mode.into(),
        policy: WirePolicy::of_inode_bits(InodeBits::LOOKUP, InodeBits(0)),
        ..Default::default()
    };
    LdlmEnqueue {
        dlm_req: LdlmRequest::enqueue(WireFlags::NONE, desc, LockHandle(client_handle)),
        ..LdlmEnqueue::default()
    }
}

/// A lock held before the restart, replayed.
fn replayed_lock(mode: LockMode, client_handle: u64) -> TestCall {
    let mut replay = inode_lock(mode, client_handle);
    replay.dlm_req.flags = WireFlags::REPLAY | WireFlags::BLOCK_GRANTED;
    replay.dlm_req.desc.granted_mode = mode.into();
    flags(TestCall::new(replay), MsgFlags::REQ_REPLAY_DONE)
}

pub(crate) fn lock_handle(answer: &TestAnswer) -> LockHandle {
    match &answer.reply {
        Some(Reply::LdlmEnqueue(reply)) => reply.dlm_rep.as_ref().expect("a lock").handle,
        other => panic!("not an enqueue's reply: {other:?} {:?}", answer.head),
    }
}

#[test]
fn connect_agrees_on_what_both_can_and_reconnect_is_reported() {
    let world = TestWorld::new(1);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let client = node.connect("one").await;
        let agreed = client.agreed();
        assert_eq!(agreed.version, crate::VERSION);
        assert_eq!(agreed.ibits_known, 0x3f);
        assert_eq!(agreed.flags2, ConnectFlags2::REP_MBITS);
        assert!(!agreed.flags.contains(ConnectFlags::GRANT));
        assert_eq!(client.connect_flags(), OpFlags::CONNECT_REPLAYABLE);
        let handle = client.handle();
        client.connect().await.unwrap();
        assert_eq!(client.handle(), handle);
        assert!(client.connect_flags().contains(OpFlags::CONNECT_RECONNECT));

        // A second client of the same name is refused; requests of the old connection are dropped.
        assert_eq!(node.client("one").connect().await.unwrap_err(), Errno::EALREADY);
        let old = TestCall { conn_cnt: Some(1), ..TestCall::new(ObdPing::default()) };
        assert!(client.call_with(old).await.is_none());
        assert_eq!(client.call(ObdPing::default()).await.head.status, 0);
        assert_eq!(client.call(MdsStatfs::default()).await.errno(), Some(Errno::EOPNOTSUPP));

        client.call(MdsDisconnect::default()).await;
        assert_eq!(client.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
    });
}

#[test]
fn an_evicted_client_is_answered_so_and_may_reconnect() {
    let world = TestWorld::new(2);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let client = node.connect("one").await;
        assert_eq!(node.target.evict_client("one").await, 1);
        assert_eq!(client.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        client.connect().await.unwrap();
        assert!(!client.connect_flags().contains(OpFlags::CONNECT_RECONNECT));
        assert_eq!(client.call(ObdPing::default()).await.head.status, 0);

        // No request from it for too long.
        world.sleep(node.target.config().timeouts.ping_evict * 2).await;
        assert_eq!(client.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        assert_eq!(node.target.stats().evictions, 2);
    });
}

/// A listing asks for thousands of locks: the keeper of time looks at all locks each time it is woken.
#[test]
fn a_lock_that_an_intent_gives_wakes_the_keeper_of_time_only_if_another_lock_waits_for_it() {
    let world = TestWorld::new(32);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        let looks = || node.target.looks.load(Ordering::Relaxed);
        let before = looks();
        for number in 1..=50 {
            let mut dlm_req = inode_lock(LockMode::Pr, number).dlm_req;
            dlm_req.flags = WireFlags::HAS_INTENT;
            let intent = LdlmIntentGetattr { dlm_req, ..LdlmIntentGetattr::default() };
            assert_eq!(one.call(intent).await.head.status, 0);
            world.settle().await;
        }
        assert_eq!(looks(), before);
        // One that is revoked has a deadline.
        let wanted = async move { _ = two.call(inode_lock(LockMode::Ex, 0x22)).await };
        world.world().tasks.spawn("wanted", Box::pin(wanted));
        world.settle().await;
        assert!(looks() > before);
    });
}

#[test]
fn operators_say_how_often_clients_are_to_ping() {
    let world = TestWorld::new(31);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let client = node.connect("one").await;
        node.target.expect_pings(Duration::from_secs(40));
        world.sleep(config().timeouts.ping_evict * 2).await;
        assert_eq!(client.call(ObdPing::default()).await.head.status, 0);
        node.target.expect_pings(Duration::from_secs(1));
        world.sleep(Duration::from_secs(9)).await;
        assert_eq!(client.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
    });
}

#[test]
fn a_client_of_which_there_is_no_record_can_be_evicted() {
    let world = TestWorld::new(16);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let client = node.client_at("one", sheen_types::Nid::LOOPBACK);
        let offer = ObdConnectData {
            flags: ConnectFlags::FULL20 | ConnectFlags::LIGHTWEIGHT,
            version: crate::VERSION,
            ..ObdConnectData::default()
        };
        client.connect_with(offer).await.unwrap();
        // It stays after all: connects again without saying that it is here for a moment only.
        client.connect().await.unwrap();
        let before = world.world().clock.now();
        assert_eq!(node.target.evict_client("one").await, 1);
        assert!(node.target.export_of(&Uuid::new("one")).is_none());
        assert_eq!(world.world().clock.now(), before, "at once, without another try");
    });
}

#[test]
fn an_evicted_client_keeps_its_locks_until_no_restart_can_bring_it_back() {
    let world = TestWorld::new(15);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        node.connect("one").await;
        let two = node.connect("two").await;
        let is_known = |node: &TestTarget, name| node.target.export_of(&Uuid::new(name)).is_some();
        assert_eq!(node.target.evict_client("one").await, 1);
        let survivor = Arc::new(store.crash());
        let (node, _) = start(&world, &survivor).await;
        assert!(!is_known(&node, "one") && is_known(&node, "two"));

        let two = two.follow(&node);
        two.connect().await.unwrap();
        finish_recovery(&two).await;
        two.call(inode_lock(LockMode::Ex, 0x22)).await;
        survivor.fail();
        let target = Arc::clone(&node.target);
        let evict = async move { _ = target.evict_client("two").await };
        world.world().tasks.spawn("evict", Box::pin(evict));
        world.sleep(Duration::from_secs(60)).await;
        assert_eq!(two.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        let (name, policy) = (ResourceName::of_fid(INODE), Policy::bits(InodeBits::LOOKUP));
        assert!(node.target.try_lock(name, policy, LockMode::Pr).is_none());
        let (node, _) = start(&world, &Arc::new(survivor.crash())).await;
        assert!(is_known(&node, "two"), "and may replay its lock");
    });
}

#[test]
fn a_resend_is_answered_from_the_record_once_and_over_a_crash() {
    let world = TestWorld::new(3);
    world.clone().run(async move {
        let store = manual_store();
        let (node, role) = start(&world, &store).await;
        let client = node.connect("one").await;
        let first = modify(&client, 1).await;
        let again = client.call_with(setattr(1).resent(first.xid)).await.unwrap();
        assert_eq!(again.head.transno, first.head.transno);
        assert_eq!(role.executed.load(Ordering::Relaxed), 1);
        assert_eq!(role.reconstructed.load(Ordering::Relaxed), 1);

        // The reply is lost, the transaction durable, the target crashes.
        node.target.faults().arm(FaultSite::Reply(Kind::MdsReintSetattr), FaultAction::Drop, 1);
        let lost = Xid(0x9_0000);
        let call = TestCall { xid: Some(lost), ..setattr(2) };
        assert!(client.call_with(call).await.is_none());
        store.commit().unwrap();
        let survivor = Arc::new(store.crash());
        let (node, role) = start(&world, &survivor).await;
        let client = client.follow(&node);
        client.connect().await.unwrap();
        assert!(client.connect_flags().contains(OpFlags::CONNECT_RECOVERING));
        finish_recovery(&client).await;
        let answer = client.call_with(setattr(2).resent(lost)).await.unwrap();
        assert_eq!(answer.head.status, 0);
        assert_eq!(answer.head.transno.0, first.head.transno.0 + 1);
        assert_eq!(role.executed.load(Ordering::Relaxed), 0);
        assert_eq!(role.reconstructed.load(Ordering::Relaxed), 1);
        assert_eq!(survivor.scan(COUNTS, &[], 10).unwrap().len(), 2);
    });
}

#[test]
fn a_duplicate_in_progress_is_executed_once_and_answered_on_the_newer_way() {
    let world = TestWorld::new(4);
    world.clone().run(async move {
        let (node, role) = start(&world, &manual_store()).await;
        let client = node.connect("one").await;
        let slow = FaultAction::Delay(Duration::from_secs(5));
        node.target.faults().arm(FaultSite::Request(Kind::MdsReintSetattr), slow, 1);
        let xid = Xid(0x9_0000);
        let first = TestCall { xid: Some(xid), ..setattr(1) };
        let slow_client = client.clone();
        let task = async move { assert!(slow_client.call_with(first).await.is_none()) };
        world.world().tasks.spawn("first", Box::pin(task));
        world.sleep(Duration::from_secs(1)).await;
        let answer = client.call_with(setattr(1).resent(xid)).await.unwrap();
        assert_eq!(answer.head.status, 0);
        assert_eq!(role.executed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn commits_are_reported_and_waited_for() {
    let world = TestWorld::new(5);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let client = node.connect("one").await;
        let first = modify(&client, 1).await;
        assert_eq!(first.head.transno, Transno((1 << 32) + 1));
        assert!(first.head.last_committed < first.head.transno);
        let target = Arc::clone(&node.target);
        let transno = first.head.transno;
        let committing = store.clone();
        let waiter = async move {
            assert!(committing.commit_wanted());
            committing.commit().unwrap();
        };
        let waiting = async move { target.wait_until_committed(transno).await.unwrap() };
        let both = Box::pin(waiting);
        world.world().tasks.spawn("commit", Box::pin(waiter));
        both.await;
        let ping = client.call(ObdPing::default()).await;
        assert_eq!(ping.head.last_committed, first.head.transno);
    });
}

#[test]
fn a_wait_for_a_store_that_fails_ends_with_an_error() {
    let world = TestWorld::new(5);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let client = node.connect("one").await;
        let first = modify(&client, 1).await;
        store.commit().unwrap();
        let second = modify(&client, 2).await;
        let failing = store.clone();
        world.world().tasks.spawn("fail", Box::pin(async move { failing.fail() }));
        let target = &node.target;
        assert_eq!(target.wait_until_committed(first.head.transno).await, Ok(()));
        assert_eq!(target.wait_until_committed(second.head.transno).await, Err(Errno::EIO));
        assert_eq!(target.wait_until_committed(second.head.transno).await, Err(Errno::EIO));
        assert_eq!(target.sync().await, Err(Errno::EIO));
    });
}

/// Two clients, four transactions, only the first durable: the rest is replayed in order though
/// they come out of order.
#[test]
fn what_was_not_durable_is_replayed_in_order() {
    let world = TestWorld::new(6);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        let first = modify(&one, 1).await;
        store.commit().unwrap();
        let second = modify(&two, 1).await;
        let third = modify(&one, 2).await;
        let fourth = modify(&two, 2).await;

        let survivor = Arc::new(store.crash());
        let (node, role) = start(&world, &survivor).await;
        assert_eq!(node.target.view().recovery.status, RecoveryStatus::WaitingForClients);
        let (one, two) = (one.follow(&node), two.follow(&node));
        let head = one.connect().await.unwrap();
        assert_eq!(head.last_committed, first.head.transno);
        assert_eq!(node.client("new").connect().await.unwrap_err(), Errno::EBUSY);

        // `one` replays at once; nothing happens until `two` is there and has replayed its own.
        let replay = setattr(2).replayed(third.xid, third.head.transno);
        let early = one.clone();
        let done = Arc::new(AtomicU32::new(0));
        let mark = Arc::clone(&done);
        let task = async move {
            let answer = early.call_with(replay).await.unwrap();
            assert_eq!(answer.head.transno, third.head.transno);
            mark.store(1, Ordering::Relaxed);
        };
        world.world().tasks.spawn("replay", Box::pin(task));
        world.sleep(Duration::from_secs(1)).await;
        two.connect().await.unwrap();
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(done.load(Ordering::Relaxed), 0);
        for answer in [second, fourth] {
            let replay = setattr(1).replayed(answer.xid, answer.head.transno);
            let again = two.call_with(replay).await.unwrap();
            assert_eq!(again.head.transno, answer.head.transno);
        }
        assert_eq!(done.load(Ordering::Relaxed), 1);

        let other = two.clone();
        let finish = async move { drop(finish_recovery(&other).await) };
        world.world().tasks.spawn("finish", Box::pin(finish));
        assert_eq!(finish_recovery(&one).await.head.status, 0);
        let view = node.target.view();
        assert_eq!(view.recovery.status, RecoveryStatus::Complete);
        assert_eq!((view.recovery.replayed, view.recovery.evicted), (3, 0));
        assert!(view.exports.iter().all(|export| export.state == ExportState::Full));
        assert_eq!(role.executed.load(Ordering::Relaxed), 3);
        assert_eq!(survivor.scan(COUNTS, &[], 10).unwrap().len(), 4);
        let next = modify(&one, 3).await;
        assert_eq!(next.head.transno.0 >> 32, 3);
    });
}

#[test]
fn locks_are_replayed_after_all_changes() {
    let world = TestWorld::new(14);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        one.call(inode_lock(LockMode::Pr, 0x11)).await;
        let change = modify(&two, 1).await;

        let survivor = Arc::new(store.crash());
        let (node, _) = start(&world, &survivor).await;
        let (one, two) = (one.follow(&node), two.follow(&node));
        one.connect().await.unwrap();
        two.connect().await.unwrap();
        let replay = replayed_lock(LockMode::Pr, 0x11);
        let first = one.clone();
        let task = async move {
            assert_ne!(lock_handle(&first.call_with(replay).await.unwrap()), LockHandle(0));
        };
        world.world().tasks.spawn("replay", Box::pin(task));
        world.sleep(Duration::from_secs(1)).await;
        // The change of `two` may need a lock that `one`, in recovery, could not cancel.
        let name = ResourceName::of_fid(INODE);
        assert_eq!(node.target.namespace().dump(name).len(), 0);
        let replay = setattr(1).replayed(change.xid, change.head.transno);
        two.call_with(replay).await.unwrap();
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(node.target.namespace().dump(name).len(), 0);

        let other = two.clone();
        let finish = async move { drop(finish_recovery(&other).await) };
        world.world().tasks.spawn("finish", Box::pin(finish));
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(node.target.namespace().dump(name).len(), 1);
        assert_eq!(finish_recovery(&one).await.head.status, 0);
        let view = node.target.view().recovery;
        assert_eq!((view.status, view.evicted), (RecoveryStatus::Complete, 0));
    });
}

#[test]
fn a_client_that_stays_away_is_given_up_and_a_gap_is_passed() {
    let world = TestWorld::new(7);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        modify(&two, 1).await;
        let mine = modify(&one, 1).await;
        let survivor = Arc::new(store.crash());
        let (node, _) = start(&world, &survivor).await;
        let one = one.follow(&node);
        one.connect().await.unwrap();
        let start = node.target.now();
        let replay = setattr(1).replayed(mine.xid, mine.head.transno);
        assert_eq!(one.call_with(replay).await.unwrap().head.transno, mine.head.transno);
        assert!(node.target.now().since(start) >= Duration::from_secs(60));
        finish_recovery(&one).await;
        assert_eq!(node.target.view().recovery.evicted, 1);
        let two = two.follow(&node);
        assert_eq!(two.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        node.connect("new").await;
    });
}

#[test]
fn a_client_that_connects_is_offered_what_operators_set() {
    let world = TestWorld::new(72);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let client = node.connect("one").await;
        assert_eq!(client.agreed().maxmodrpcs, 8);
        node.target.change_offer(|offer| offer.maxmodrpcs = 3);
        client.connect().await.unwrap();
        assert_eq!(client.agreed().maxmodrpcs, 3);
    });
}

/// `one` could not replay its lock and `three` could not go on, because `two` had not come.
#[test]
fn a_client_that_waits_for_one_that_stays_away_is_not_given_up_with_it() {
    let world = TestWorld::new(15);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (one, three) = (node.connect("one").await, node.connect("three").await);
        node.connect("two").await;
        one.call(inode_lock(LockMode::Pr, 0x11)).await;
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        let (one, three) = (one.follow(&node), three.follow(&node));
        one.connect().await.unwrap();
        three.connect().await.unwrap();
        let waits = async move { assert_eq!(finish_recovery(&three).await.head.status, 0) };
        world.world().tasks.spawn("finish", Box::pin(waits));
        let start = node.target.now();
        let answer = one.call_with(replayed_lock(LockMode::Pr, 0x11)).await.unwrap();
        assert_ne!(lock_handle(&answer), LockHandle(0));
        assert!(node.target.now().since(start) >= Duration::from_secs(60));
        assert_eq!(finish_recovery(&one).await.head.status, 0);
        let view = node.target.view().recovery;
        assert_eq!((view.status, view.evicted), (RecoveryStatus::Complete, 1));
    });
}

/// Of two that have not replayed their locks when the time is over, one has a replay under way.
#[test]
fn a_client_that_stops_amid_its_locks_is_given_up_and_one_that_is_slow_is_not() {
    let world = TestWorld::new(16);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        one.call(inode_lock(LockMode::Pr, 0x11)).await;
        two.call(inode_lock(LockMode::Pr, 0x22)).await;
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        let (one, two) = (one.follow(&node), two.follow(&node));
        one.connect().await.unwrap();
        two.connect().await.unwrap();
        let stops = async move {
            two.call_with(replayed_lock(LockMode::Pr, 0x22)).await.unwrap();
        };
        world.world().tasks.spawn("stops", Box::pin(stops));
        world.sleep(Duration::from_secs(1)).await;
        let slow = FaultAction::Delay(Duration::from_secs(70));
        node.target.faults().arm(FaultSite::Reply(Kind::LdlmEnqueue), slow, 1);
        one.call_with(replayed_lock(LockMode::Pr, 0x11)).await.unwrap();
        assert_eq!(node.target.view().recovery.evicted, 1, "the other");
        assert_eq!(finish_recovery(&one).await.head.status, 0);
        let view = node.target.view().recovery;
        assert_eq!((view.status, view.evicted), (RecoveryStatus::Complete, 1));
    });
}

#[test]
fn a_replay_that_a_broken_store_refuses_is_kept_for_the_next_start() {
    let world = TestWorld::new(19);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let one = node.connect("one").await;
        let change = modify(&one, 1).await;
        let replay = || setattr(1).replayed(change.xid, change.head.transno);
        let broken = Arc::new(store.crash());
        let (node, _) = start(&world, &broken).await;
        let one = one.follow(&node);
        one.connect().await.unwrap();
        broken.fail();
        assert!(one.call_with(replay()).await.is_none(), "no answer that it would believe");
        let (node, role) = start(&world, &Arc::new(broken.crash())).await;
        let one = one.follow(&node);
        one.connect().await.unwrap();
        assert_eq!(one.call_with(replay()).await.unwrap().head.transno, change.head.transno);
        assert_eq!(role.executed.load(Ordering::Relaxed), 1);
    });
}

/// A target whose recovery has lost the changes of a client, the client that did not lose any, and the answer to its
/// replayed lock, which is being revoked.
async fn revoking_after_loss(world: &TestWorld) -> (TestTarget, TestClient, TestAnswer) {
    let store = manual_store();
    let (node, _) = start(world, &store).await;
    let (one, two) = (node.connect("one").await, node.connect("two").await);
    modify(&two, 1).await;
    one.call(inode_lock(LockMode::Pr, 0x11)).await;
    let (node, _) = start(world, &Arc::new(store.crash())).await;
    let one = one.follow(&node);
    one.connect().await.unwrap();
    let lock = one.call_with(replayed_lock(LockMode::Pr, 0x11)).await.unwrap();
    finish_recovery(&one).await;
    world.sleep(Duration::from_secs(1)).await;
    (node, one, lock)
}

/// `one` has seen what `two` changed, and keeps it under its lock; `two` does not come back.
#[test]
fn when_changes_are_lost_what_clients_keep_is_revoked_before_anything_changes() {
    let world = TestWorld::new(17);
    world.clone().run(async move {
        let (node, one, replayed) = revoking_after_loss(&world).await;
        let callbacks = one.callbacks();
        assert!(matches!(callbacks[..], [Request::LdlmBlCallback(_)]), "{callbacks:?}");

        let three = node.connect("three").await;
        let changed = Arc::new(AtomicU32::new(0));
        let (mark, other) = (Arc::clone(&changed), three.clone());
        let change = async move {
            modify(&other, 1).await;
            mark.store(1, Ordering::Relaxed);
        };
        world.world().tasks.spawn("change", Box::pin(change));
        assert_eq!(three.call(ObdPing::default()).await.head.status, 0);
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(changed.load(Ordering::Relaxed), 0, "the lock may hide what is lost");
        assert_eq!(one.cancel(&[lock_handle(&replayed)]).await.head.status, 0);
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(changed.load(Ordering::Relaxed), 1);
        assert_eq!(node.target.view().recovery.evicted, 1);
    });
}

/// The request waits until locks are back, and brings back the last of them itself.
#[test]
fn what_a_request_cancels_that_waits_for_a_revocation_after_recovery_is_cancelled_at_once() {
    let world = TestWorld::new(17);
    world.clone().run(async move {
        let (node, one, replayed) = revoking_after_loss(&world).await;
        assert!(matches!(one.callbacks()[..], [Request::LdlmBlCallback(_)]));
        let handles = vec![lock_handle(&replayed)];
        let dlm_req = Some(LdlmRequest { count: 1, handles, ..LdlmRequest::default() });
        let requests: [(Request, _); 2] = [
            (
                MdsSwapLayouts { dlm_req: dlm_req.clone(), ..MdsSwapLayouts::default() }.into(),
                Some(Errno::EOPNOTSUPP),
            ),
            (MdsReintSetattr { dlm_req, ..MdsReintSetattr::default() }.into(), None),
        ];
        let before = node.target.now();
        for (request, errno) in requests {
            let answer = one.call_with(TestCall::new(request).tagged(1)).await.unwrap();
            assert_eq!(answer.errno(), errno);
        }
        assert!(node.target.now().since(before) < Duration::from_secs(1));
        assert_eq!(node.target.view().recovery.evicted, 1, "two alone");
    });
}

/// The window was longer than silence is borne.
#[test]
fn a_client_that_waited_for_the_end_of_recovery_was_not_silent() {
    let world = TestWorld::new(18);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let one = node.connect("one").await;
        node.connect("two").await;
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        let one = one.follow(&node);
        one.connect().await.unwrap();
        let start = node.target.now();
        finish_recovery(&one).await;
        assert!(node.target.now().since(start) > config().timeouts.ping_evict);
        world.sleep(config().timeouts.ping_evict / 2).await;
        assert_eq!(one.call(ObdPing::default()).await.head.status, 0);
    });
}

#[test]
fn a_conflicting_lock_is_revoked() {
    let world = TestWorld::new(8);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        let held = lock_handle(&one.call(inode_lock(LockMode::Pr, 0x11)).await);
        // Another reader revokes nothing.
        let other = lock_handle(&two.call(inode_lock(LockMode::Pr, 0x22)).await);
        assert!(one.callbacks().is_empty());
        two.cancel(&[other]).await;

        let target = Arc::clone(&node.target);
        let waiting = async move {
            // What it would take besides if it were free, conflicts with nothing.
            let try_bits = InodeBits::LAYOUT | InodeBits::DOM;
            let policy = Policy::InodeBits { bits: InodeBits::LOOKUP, try_bits, gid: 0 };
            let name = ResourceName::of_fid(INODE);
            let mut guard = target.lock(name, policy, LockMode::Ex).await.unwrap();
            assert!(guard.downgrade(LockMode::Pr).is_ok(), "it is EX");
            drop(guard);
        };
        let canceller = one.clone();
        let cancel = async move {
            let callbacks = canceller.callbacks();
            let [Request::LdlmBlCallback(callback)] = &callbacks[..] else {
                panic!("not one blocking callback: {callbacks:?}");
            };
            assert_eq!(callback.dlm_req.handles, [LockHandle(0x11), held]);
            let desc = &callback.dlm_req.desc;
            assert_eq!(desc.req_mode.mode(), Some(LockMode::Ex));
            let wanted = desc.policy.as_inode_bits();
            let cancel_bits = InodeBits(wanted.try_bits);
            assert_eq!(
                (InodeBits(wanted.bits), cancel_bits),
                (InodeBits::LOOKUP, InodeBits::LOOKUP)
            );
            assert_eq!(canceller.cancel(&[held]).await.head.status, 0);
        };
        let later = world.clone();
        world.world().tasks.spawn(
            "cancel",
            Box::pin(async move {
                later.sleep(Duration::from_secs(1)).await;
                cancel.await;
            }),
        );
        waiting.await;
        // The lock is free again.
        let policy = Policy::bits(InodeBits::LOOKUP);
        let name = ResourceName::of_fid(INODE);
        assert!(node.target.try_lock(name, policy, LockMode::Ex).is_some());
        assert_eq!(one.cancel(&[held]).await.errno(), Some(Errno::ESTALE));
    });
}

#[test]
fn a_waiting_client_is_notified_when_its_lock_is_granted() {
    let world = TestWorld::new(9);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        let held = lock_handle(&one.call(inode_lock(LockMode::Ex, 0x11)).await);
        let waits = two.call(inode_lock(LockMode::Pr, 0x22)).await;
        let Some(Reply::LdlmEnqueue(reply)) = &waits.reply else { panic!("{waits:?}") };
        assert_eq!(reply.dlm_rep.as_ref().unwrap().desc.granted_mode.0, 0);
        world.settle().await;
        assert_eq!(one.callbacks().len(), 1);
        one.cancel(&[held]).await;
        world.settle().await;
        let callbacks = two.callbacks();
        let [Request::LdlmCpCallback(callback)] = &callbacks[..] else { panic!("{callbacks:?}") };
        assert_eq!(callback.dlm_req.handles[0], LockHandle(0x22));
        assert_eq!(callback.dlm_req.desc.granted_mode.mode(), Some(LockMode::Pr));
    });
}

#[test]
fn a_client_that_keeps_its_lock_is_evicted() {
    let world = TestWorld::new(10);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        one.call(inode_lock(LockMode::Ex, 0x11)).await;
        let begin = node.target.now();
        let guard = node.target.lock_inode(INODE, InodeBits::LOOKUP, LockMode::Pr).await.unwrap();
        let waited = node.target.now().since(begin);
        assert!(waited >= Duration::from_secs(20), "{waited:?}");
        assert_eq!(one.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        drop(guard);

        // A client that does not know the lock any more is not evicted for it.
        two.call(inode_lock(LockMode::Ex, 0x22)).await;
        two.on_callback(Box::new(|_| Some(Err(RpcError::Errno(Errno::EINVAL)))));
        let begin = node.target.now();
        node.target.lock_inode(INODE, InodeBits::LOOKUP, LockMode::Pr).await.unwrap();
        assert!(node.target.now().since(begin) < Duration::from_secs(1));
        assert_eq!(two.call(ObdPing::default()).await.head.status, 0);

        // Operators say how long it may be kept.
        node.target.change_timeouts(|it| it.lock_callback = Duration::from_secs(3));
        assert_eq!(node.target.timeouts().lock_callback, Duration::from_secs(3));
        let three = node.connect("three").await;
        three.call(inode_lock(LockMode::Ex, 0x33)).await;
        let begin = node.target.now();
        node.target.lock_inode(INODE, InodeBits::LOOKUP, LockMode::Pr).await.unwrap();
        let waited = node.target.now().since(begin).as_secs();
        assert!((3..20).contains(&waited), "{waited} s");
    });
}

#[test]
fn an_intent_hands_its_lock_over_and_it_is_replayed_after_a_restart() {
    let world = TestWorld::new(11);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let client = node.connect("one").await;
        let mut dlm_req = inode_lock(LockMode::Pr, 0x11).dlm_req;
        dlm_req.flags = WireFlags::HAS_INTENT;
        let answer =
            client.call(LdlmIntentGetattr { dlm_req, ..LdlmIntentGetattr::default() }).await;
        let Some(Reply::LdlmIntentGetattr(reply)) = &answer.reply else { panic!("{answer:?}") };
        let lock = reply.dlm_rep.as_ref().unwrap();
        assert_eq!(lock.desc.granted_mode.mode(), Some(LockMode::Pr));
        // Sent again, it gets the same lock and no second one.
        let mut dlm_req = inode_lock(LockMode::Pr, 0x11).dlm_req;
        dlm_req.flags = WireFlags::HAS_INTENT;
        let again = LdlmIntentGetattr { dlm_req, ..LdlmIntentGetattr::default() };
        let again = client.call_with(TestCall::new(again).resent(answer.xid)).await.unwrap();
        let Some(Reply::LdlmIntentGetattr(second)) = &again.reply else { panic!("{again:?}") };
        assert_eq!(second.dlm_rep.as_ref().unwrap().handle, lock.handle);
        assert_eq!(node.target.namespace().dump(ResourceName::of_fid(INODE)).len(), 1);
        assert_eq!(client.cancel(&[lock.handle]).await.head.status, 0);

        client.call(inode_lock(LockMode::Pr, 0x12)).await;
        let survivor = Arc::new(store.crash());
        let (node, _) = start(&world, &survivor).await;
        let client = client.follow(&node);
        client.connect().await.unwrap();
        let call = replayed_lock(LockMode::Pr, 0x12);
        let handle = lock_handle(&client.call_with(call).await.unwrap());
        finish_recovery(&client).await;
        let policy = Policy::bits(InodeBits::LOOKUP);
        let name = ResourceName::of_fid(INODE);
        assert!(node.target.try_lock(name, policy, LockMode::Ex).is_none());
        assert_eq!(client.cancel(&[handle]).await.head.status, 0);
        assert!(node.target.try_lock(name, policy, LockMode::Ex).is_some());
    });
}

#[test]
fn a_client_that_replays_a_lock_which_another_has_is_evicted() {
    let world = TestWorld::new(12);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        let (one, two) = (one.follow(&node), two.follow(&node));
        one.connect().await.unwrap();
        two.connect().await.unwrap();
        // Replayed locks are taken in once no client has requests to replay: with the message of the
        // second client, whose own is then the first.
        let waiting = two.clone();
        let task = async move {
            // Its eviction was not durable when the server died.
            let answer = waiting.call_with(replayed_lock(LockMode::Ex, 0x22)).await.unwrap();
            assert_eq!(answer.errno(), Some(Errno::ENOTCONN));
        };
        world.world().tasks.spawn("replay", Box::pin(task));
        world.sleep(Duration::from_secs(1)).await;
        let answer = one.call_with(replayed_lock(LockMode::Ex, 0x11)).await.unwrap();
        assert_ne!(lock_handle(&answer), LockHandle(0));
        assert_eq!(finish_recovery(&one).await.head.status, 0, "no client waits for the other");
        assert_eq!(two.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        assert_eq!(node.target.namespace().dump(ResourceName::of_fid(INODE)).len(), 1);
    });
}

#[test]
fn a_glimpse_asks_the_writer() {
    let world = TestWorld::new(13);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        let name = ResourceName([7, 0, 0, 0]);
        let extent = |mode: LockMode, start, end, handle| {
            let desc = sheen_wire::ldlm::LdlmLockDesc {
                resource: LdlmResourceDesc { kind: LockType::EXTENT, padding: 0, name },
                req_mode: mode.into(),
                policy: WirePolicy::of_extent(start, end),
                ..Default::default()
            };
            let flags = WireFlags::NO_EXPANSION;
            let dlm_req = LdlmRequest::enqueue(flags, desc, LockHandle(handle));
            LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() }
        };
        one.call(extent(LockMode::Pw, 0, 4095, 0x11)).await;
        two.call(extent(LockMode::Pw, 1 << 40, 1 << 41, 0x22)).await;
        one.on_callback(Box::new(|_| Some(Err(RpcError::Errno(Errno::EINVAL)))));
        // The second try finds the way again: what the writer knows must not be left out meanwhile.
        let tries = AtomicU64::new(0);
        two.on_callback(Box::new(move |request| match request {
            Request::LdlmGlCallback(_) if tries.fetch_add(1, Ordering::Relaxed) == 0 => {
                Some(Err(RpcError::Disconnected))
            }
            Request::LdlmGlCallback(_) => Some(Ok(LdlmGlCallbackReply {
                dlm_lvb: Bytes::from_static(b"value"),
                ..LdlmGlCallbackReply::default()
            }
            .into())),
            _ => None,
        }));
        let mut answers: Vec<_> =
            node.target.glimpse(name).await.into_iter().map(|(_, answer)| answer).collect();
        answers.sort_by_key(Result::is_err);
        assert_eq!(answers.len(), 2);
        assert_eq!(answers[0], Ok(Bytes::from_static(b"value")));
        assert!(answers[1..].iter().all(|answer| *answer == Err(Errno::EINVAL)));
    });
}

#[test]
fn a_clean_stop_keeps_the_clients_and_loses_nothing() {
    let world = TestWorld::new(12);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let client = node.connect("one").await;
        let done = modify(&client, 1).await;
        node.target.stop().await.unwrap();
        assert_eq!(client.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        assert_eq!(client.connect().await.unwrap_err(), Errno::ENODEV);
        let survivor = Arc::new(store.crash());
        let (node, role) = start(&world, &survivor).await;
        let client = client.follow(&node);
        let head = client.connect().await.unwrap();
        assert_eq!(head.last_committed, done.head.transno);
        // Replayed all the same, because it was never reported to the client as durable.
        let replay = setattr(1).replayed(done.xid, done.head.transno);
        let again = client.call_with(replay).await.unwrap();
        assert_eq!(again.head.transno, done.head.transno);
        assert_eq!(role.executed.load(Ordering::Relaxed), 0);
        finish_recovery(&client).await;
        assert_eq!(node.target.instance(), 2);
    });
}
