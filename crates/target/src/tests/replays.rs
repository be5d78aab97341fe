//! Replays that are none, numbers that end, and answers that must not name a transaction.

use sheen_store::StoreError;
use sheen_wire::messages::SeqQuery;

use super::*;
use crate::Export;
use crate::epoch::{Epoch, TRANSNO_MAX};
use crate::history::{History, TransnoSource};
use crate::last_rcvd::{ClientRecord, LastRcvd, put_client, put_epoch, put_transno};

const LAST: Transno = Transno(u64::MAX);

/// Sends what claims to be a replay; the answer's errno.
async fn claim(client: &TestClient, call: TestCall) -> Option<Errno> {
    client.call_with(call).await.expect("answered").errno()
}

fn named(call: TestCall, transno: Transno) -> TestCall {
    TestCall { transno, ..call }
}

async fn is_evicted(client: &TestClient) -> bool {
    client.call(ObdPing::default()).await.errno() == Some(Errno::ENOTCONN)
}

/// A target that has started again, with the clients that it knows; they have not connected.
async fn start_again<const N: usize>(
    world: &TestWorld,
    store: &StoreMem,
    clients: [&TestClient; N],
) -> (TestTarget, Arc<Counting>, [TestClient; N]) {
    let (node, role) = start(world, &Arc::new(store.crash())).await;
    let clients = clients.map(|client| client.follow(&node));
    (node, role, clients)
}

#[test]
fn a_replay_is_believed_only_in_recovery() {
    let world = TestWorld::new(200);
    world.clone().run(async move {
        let store = manual_store();
        let (node, role) = start(&world, &store).await;
        let honest = node.connect("honest").await;
        let first = modify(&honest, 1).await;
        store.commit().unwrap();
        let again = first.head.transno;
        let lies = [
            setattr(1).replayed(Xid(0x9_0000), LAST),
            setattr(1).replayed(Xid(0x9_0000), Transno(again.0 + 1)),
            setattr(1).replayed(first.xid, again),
            flags(setattr(1), MsgFlags::REPLAY),
            named(setattr(1), LAST),
            named(TestCall::new(ObdPing::default()), LAST),
        ];
        for (number, lie) in lies.into_iter().enumerate() {
            let liar = node.connect(&format!("liar{number}")).await;
            assert_eq!(claim(&liar, lie).await, Some(Errno::ENODEV), "lie {number}");
            world.settle().await;
            assert!(is_evicted(&liar).await, "lie {number}");
        }
        assert_eq!(role.executed.load(Ordering::Relaxed), 1);
        store.commit().unwrap();
        assert_eq!(node.target.last_committed(), again);
        let next = modify(&honest, 2).await;
        assert_eq!(next.head.transno.0, again.0 + 1);
        let (_, _, [honest]) = start_again(&world, &store, [&honest]).await;
        assert_eq!(honest.connect().await.unwrap().last_committed, again);
    });
}

#[test]
fn a_replay_names_a_transaction_that_was_given_out() {
    let world = TestWorld::new(201);
    world.clone().run(async move {
        for lie in [LAST, TRANSNO_MAX, Epoch(3).start(), Transno(Epoch(3).start().0 + 1)] {
            let store = manual_store();
            let (node, _) = start(&world, &store).await;
            let (honest, liar) = (node.connect("honest").await, node.connect("liar").await);
            let lost = modify(&honest, 1).await;
            let (node, role, [honest, liar]) = start_again(&world, &store, [&honest, &liar]).await;
            // The transaction that it claims to begin with changes nothing either.
            let next = node.target.view().recovery.next;
            let absurd = ObdConnectData { transno: lie, ..TestClient::everything() };
            liar.connect_with(absurd).await.unwrap();
            assert_eq!(node.target.view().recovery.next, next);
            honest.connect().await.unwrap();
            let answer = claim(&liar, setattr(1).replayed(Xid(0x9_0000), lie)).await;
            assert_eq!(answer, Some(Errno::ENODEV), "{lie}");
            let replay = setattr(1).replayed(lost.xid, lost.head.transno);
            let answer = honest.call_with(replay).await.unwrap();
            assert_eq!((answer.errno(), answer.head.transno), (None, lost.head.transno));
            finish_recovery(&honest).await;
            assert!(is_evicted(&liar).await);
            assert_eq!(role.executed.load(Ordering::Relaxed), 1);
            assert_eq!(modify(&honest, 1).await.head.transno.0, Epoch(3).start().0 + 1);
        }
    });
}

/// What gets no number is executed as it comes, with all that is asked of it: a replay is not asked.
#[test]
fn a_request_that_gets_no_transaction_is_no_replay() {
    let world = TestWorld::new(212);
    world.clone().run(async move {
        let lies: [fn() -> TestCall; 3] = [
            || TestCall::new(SeqQuery { seq_opc: 1, ..SeqQuery::default() }),
            || TestCall::new(MdsRmfid::default()),
            || TestCall::new(MdsStatfs::default()),
        ];
        for (number, lie) in lies.into_iter().enumerate() {
            let store = manual_store();
            let (node, _) = start(&world, &store).await;
            let (honest, liar) = (node.connect("honest").await, node.connect("liar").await);
            let lost = modify(&honest, 1).await;
            let (_node, role, [honest, liar]) = start_again(&world, &store, [&honest, &liar]).await;
            honest.connect().await.unwrap();
            liar.connect().await.unwrap();
            let answer = claim(&liar, lie().replayed(Xid(0x9_0000), lost.head.transno)).await;
            assert_eq!(answer, Some(Errno::ENODEV), "lie {number}");
            let replay = setattr(1).replayed(lost.xid, lost.head.transno);
            assert_eq!(honest.call_with(replay).await.unwrap().errno(), None);
            finish_recovery(&honest).await;
            assert!(is_evicted(&liar).await, "lie {number}");
            assert_eq!(role.executed.load(Ordering::Relaxed), 1);
        }
    });
}

/// The first incarnation gives out numbers, the second does, nothing of either is durable but that they were.
#[test]
fn what_two_incarnations_gave_out_and_lost_is_replayed() {
    let world = TestWorld::new(202);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let one = node.connect("one").await;
        let first = modify(&one, 1).await;
        let store = Arc::new(store.crash());
        let (node, _) = start(&world, &store).await;
        let one = one.follow(&node);
        one.connect().await.unwrap();
        one.call_with(setattr(1).replayed(first.xid, first.head.transno)).await.unwrap();
        finish_recovery(&one).await;
        let second = modify(&one, 2).await;
        assert!(second.head.transno.0 >> 32 > first.head.transno.0 >> 32);
        let (node, role, [one]) = start_again(&world, &store, [&one]).await;
        one.connect().await.unwrap();
        for (tag, lost) in [(1, &first), (2, &second)] {
            let replay = setattr(tag).replayed(lost.xid, lost.head.transno);
            let answer = one.call_with(replay).await.unwrap();
            assert_eq!((answer.errno(), answer.head.transno), (None, lost.head.transno));
        }
        finish_recovery(&one).await;
        assert_eq!(role.executed.load(Ordering::Relaxed), 2);
        assert!(modify(&one, 1).await.head.transno.0 >> 32 > second.head.transno.0 >> 32);
        assert_eq!(node.target.view().recovery.evicted, 0);
    });
}

#[test]
fn a_client_that_has_ended_its_replay_replays_nothing_more() {
    let world = TestWorld::new(203);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        let lost = modify(&one, 1).await;
        let replay = || setattr(1).replayed(lost.xid, lost.head.transno);
        let done = MsgFlags::REQ_REPLAY_DONE;
        for early in [false, true] {
            let (node, role, [one, two]) = start_again(&world, &store, [&one, &two]).await;
            one.connect().await.unwrap();
            two.connect().await.unwrap();
            if early {
                // Both in one: a change that waits for no turn.
                let both = flags(replay(), MsgFlags::REPLAY | done);
                assert_eq!(claim(&one, both).await, Some(Errno::ENODEV));
            } else {
                let waits = one.clone();
                let task = async move {
                    waits.call_with(flags(TestCall::new(ObdPing::default()), done)).await;
                };
                world.world().tasks.spawn("done", Box::pin(task));
                world.settle().await;
                assert_eq!(claim(&one, replay()).await, Some(Errno::ENODEV));
            }
            finish_recovery(&two).await;
            assert!(is_evicted(&one).await);
            assert_eq!(role.executed.load(Ordering::Relaxed), 0);
            assert_eq!(node.target.view().recovery.status, RecoveryStatus::Complete);
        }
    });
}

/// Two clients replay. One that queues two requests is still one: the other keeps its turn.
#[test]
fn a_client_with_several_replays_takes_no_turn_of_another() {
    let world = TestWorld::new(204);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (hasty, other) = (node.connect("hasty").await, node.connect("other").await);
        let first = modify(&other, 1).await;
        let (second, third) = (modify(&hasty, 1).await, modify(&hasty, 2).await);
        let (node, role, [hasty, other]) = start_again(&world, &store, [&hasty, &other]).await;
        hasty.connect().await.unwrap();
        other.connect().await.unwrap();
        for (tag, lost) in [(1, &second), (2, &third)] {
            let (hasty, replay) =
                (hasty.clone(), setattr(tag).replayed(lost.xid, lost.head.transno));
            let task = async move { drop(hasty.call_with(replay).await) };
            world.world().tasks.spawn("replay", Box::pin(task));
            world.settle().await;
        }
        assert_eq!(role.executed.load(Ordering::Relaxed), 0, "it is the other's turn");
        assert_eq!(node.target.view().recovery.queued, 1);
        let replay = setattr(1).replayed(first.xid, first.head.transno);
        assert_eq!(other.call_with(replay).await.unwrap().head.transno, first.head.transno);
    });
}

#[test]
fn a_lock_is_replayed_only_in_recovery() {
    let world = TestWorld::new(205);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let liar = node.connect("liar").await;
        let answer = claim(&liar, replayed_lock(LockMode::Pr, 0x11)).await;
        assert_eq!(answer, Some(Errno::ENODEV));
        world.settle().await;
        assert!(is_evicted(&liar).await);
        assert_eq!(node.target.namespace().dump(ResourceName::of_fid(INODE)).len(), 0);
        // One that is known is answered again: the client reconnects while recovery ends.
        let honest = node.connect("honest").await;
        let had = lock_handle(&honest.call(inode_lock(LockMode::Pr, 0x22)).await);
        let again = honest.call_with(replayed_lock(LockMode::Pr, 0x22)).await.unwrap();
        assert_eq!(lock_handle(&again), had);
    });
}

#[test]
fn numbers_of_a_damaged_store_begin_anew() {
    let world = TestWorld::new(206);
    world.clone().run(async move {
        for last in [LAST, TRANSNO_MAX, Transno(TRANSNO_MAX.0 - 1)] {
            let store = manual_store();
            let (node, _) = start(&world, &store).await;
            let one = node.connect("one").await;
            modify(&one, 1).await;
            let mut damage = Transaction::new();
            put_transno(&mut damage, last);
            store.apply(damage).unwrap();
            store.commit().unwrap();
            let (node, _, [one]) = start_again(&world, &store, [&one]).await;
            assert!(node.target.last_committed() < Transno(1 << 40), "{last}");
            assert!(is_evicted(&one).await);
            let head = node.client("one").connect().await.unwrap();
            assert!(!head.op_flags.contains(OpFlags::CONNECT_RECOVERING));
            let new = node.connect("new").await;
            let (first, second) = (modify(&new, 1).await, modify(&new, 2).await);
            assert_eq!(second.head.transno.0, first.head.transno.0 + 1);
        }
    });
}

#[test]
fn a_damaged_epoch_is_no_reason_to_wrap() {
    let store = manual_store();
    let mut transaction = Transaction::new();
    crate::last_rcvd::put_server(&mut transaction, 7);
    put_epoch(&mut transaction, Epoch(u32::MAX));
    store.apply(transaction).unwrap();
    let mut past = LastRcvd::load(&*store).unwrap();
    assert_eq!(past.next_epoch(), None);
    assert_eq!(past.renumber(&*store, 8, &mut Transaction::new()), Ok(Epoch(10)));
    // A store from before epochs were recorded.
    past.epoch = None;
    assert_eq!(past.next_epoch(), Some(Epoch(9)));
    past.server.as_mut().unwrap().instance = u32::MAX;
    assert!(past.next_instance().is_err());
}

#[test]
fn behind_the_last_number_nothing_is_changed() {
    let store = manual_store();
    let history = History::new(Transno(TRANSNO_MAX.0 - 1), Epoch::FIRST);
    let build = |_| Ok::<_, StoreError>((Transaction::new(), ()));
    let next = || history.apply(&*store, TransnoSource::Next, build, |_, ()| {});
    assert_eq!(next(), Ok(TRANSNO_MAX));
    assert!(next().is_err_and(|error| error.errno() == Errno::EIO));
    assert_eq!(history.last(), TRANSNO_MAX);
}

#[test]
fn numbers_of_clients_begin_anew_and_are_never_shared() {
    let world = TestWorld::new(207);
    world.clone().run(async move {
        let store = manual_store();
        let mut transaction = Transaction::new();
        for (uuid, number) in [("old", u32::MAX - 1), ("first", 0)] {
            let record = ClientRecord { uuid: Uuid::new(uuid), number, instance: 1 };
            put_client(&mut transaction, &record);
        }
        store.apply(transaction).unwrap();
        store.commit().unwrap();
        let (node, _) = start(&world, &store).await;
        node.target.abort_recovery().await;
        world.settle().await;
        let record = ClientRecord { uuid: Uuid::new("stays"), number: 0, instance: 1 };
        node.target.restore_export(&record, Vec::new());
        for uuid in ["a", "b"] {
            node.connect(uuid).await;
        }
        let mut numbers: Vec<u32> = node.target.exports().iter().map(|it| it.number()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
        assert!(numbers.iter().all(|number| *number != Export::LOCAL));
    });
}

/// A client that claims to have seen answers to all there will ever be harms itself until it
/// reconnects.
#[test]
fn what_was_seen_answered_is_forgotten_with_the_connection() {
    let world = TestWorld::new(208);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let client = node.connect("one").await;
        let absurd = TestCall { last_xid: Xid(u64::MAX), ..TestCall::new(ObdPing::default()) };
        assert_eq!(claim(&client, absurd).await, Some(Errno::EPROTO));
        assert_eq!(client.call(ObdPing::default()).await.errno(), Some(Errno::EPROTO));
        client.connect().await.unwrap();
        assert_eq!(client.call(ObdPing::default()).await.errno(), None);
    });
}

#[test]
fn an_answer_that_fails_after_its_change_names_no_transaction() {
    let world = TestWorld::new(209);
    world.clone().run(async move {
        let (node, role) = start(&world, &manual_store()).await;
        let client = node.connect("one").await;
        let site = FaultSite::Reply(Kind::MdsReintSetattr);
        node.target.faults().arm(site, FaultAction::Fail(Errno::EIO), 1);
        let answer = client.call_with(setattr(1)).await.unwrap();
        assert_eq!((answer.errno(), answer.head.transno), (Some(Errno::EIO), Transno(0)));
        assert_eq!(role.executed.load(Ordering::Relaxed), 1, "it is done all the same");
    });
}

/// A role that forgets to say so is found by its tests.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "failed with -5 after transaction")]
fn a_role_that_answers_both_is_found() {
    struct Careless;
    impl Operations for Careless {
        fn operate<'a>(
            &'a self,
            context: &'a Context,
            _: Request,
        ) -> BoxFuture<'a, Result<Outcome, Errno>> {
            Box::pin(async move {
                let done =
                    context.target.transact(context, Transaction::new(), ReplyRecording::Done);
                done.map_err(|error| error.errno())?;
                Err(Errno::EIO)
            })
        }
    }
    let world = TestWorld::new(210);
    world.clone().run(async move {
        let store: Arc<dyn Store> = manual_store();
        let node = TestTarget::start(&world, store, config(), Arc::new(Careless)).await;
        node.connect("one").await.call_with(setattr(1)).await;
    });
}

#[test]
fn an_intents_error_is_an_error_and_a_lock_that_is_not_given_is_none() {
    let outcome = |status, result: i32| {
        let dlm_rep = sheen_wire::ldlm::LdlmReply {
            policy_res2: u64::from(result as u32),
            ..Default::default()
        };
        let dlm_rep = Some(dlm_rep);
        let reply = LdlmIntentGetattrReply { dlm_rep, ..Default::default() };
        Outcome { status, reply: Some(reply.into()) }.error()
    };
    assert_eq!(outcome(301, 0), 0);
    assert_eq!(outcome(301, -107), -107);
    assert_eq!(outcome(0, -107), -107);
    assert_eq!(outcome(-5, 0), -5);
    assert_eq!(Outcome { status: 303, reply: None }.error(), 0);
}

#[test]
fn a_client_that_ends_its_replay_while_a_replay_waits_takes_no_turn() {
    let world = TestWorld::new(299);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (liar, first, second) =
            (node.connect("h").await, node.connect("v1").await, node.connect("v2").await);
        _ = modify(&first, 1).await;
        let lost = [modify(&second, 1).await, modify(&liar, 1).await];
        let (node, role, [liar, first, second]) =
            start_again(&world, &store, [&liar, &first, &second]).await;
        for client in [&liar, &first, &second] {
            client.connect().await.unwrap();
        }
        for (client, lost) in [&second, &liar].into_iter().zip(lost) {
            let (client, replay) =
                (client.clone(), setattr(1).replayed(lost.xid, lost.head.transno));
            let task = async move { drop(client.call_with(replay).await) };
            world.world().tasks.spawn("replay", Box::pin(task));
            world.settle().await;
        }
        assert_eq!((role.executed(), node.target.view().recovery.queued), (0, 2));
        let done = flags(TestCall::new(ObdPing::default()), MsgFlags::REQ_REPLAY_DONE);
        let task = async move { drop(liar.call_with(done).await) };
        world.world().tasks.spawn("done", Box::pin(task));
        world.settle().await;
        assert_eq!((role.executed(), node.target.view().recovery.queued), (0, 1));
    });
}

#[test]
fn a_replayed_lock_that_waits_is_not_granted_before_its_holder_has_replayed() {
    let world = TestWorld::new(17);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let names = ["holder", "waiter", "other"];
        let mut clients = Vec::new();
        for name in names {
            clients.push(node.connect(name).await);
        }
        store.commit().unwrap();
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        let clients: Vec<_> = clients.iter().map(|client| client.follow(&node)).collect();
        let [holder, waiter, other] = &clients[..] else { panic!("three") };
        for client in &clients {
            client.connect().await.unwrap();
        }
        // Locks are replayed when all have replayed their changes.
        for client in [holder, waiter] {
            let (client, done) = (client.clone(), MsgFlags::REQ_REPLAY_DONE);
            let ping = flags(TestCall::new(ObdPing::default()), done);
            let ping = async move { _ = client.call_with(ping).await };
            world.world().tasks.spawn("changes", Box::pin(ping));
        }
        let granted = other.call_with(replayed_lock(LockMode::Pr, 0x33)).await.unwrap();
        assert_eq!(granted.head.status, 0);
        let mut waits = inode_lock(LockMode::Ex, 0x22);
        waits.dlm_req.flags = WireFlags::REPLAY | WireFlags::BLOCK_WAIT;
        let waits = flags(TestCall::new(waits), MsgFlags::REQ_REPLAY_DONE);
        assert_eq!(waiter.call_with(waits).await.unwrap().head.status, 0);
        // A lock goes: those that wait are looked at.
        assert_eq!(node.target.evict_client("other").await, 1);
        let replayed = holder.call_with(replayed_lock(LockMode::Pr, 0x11)).await.unwrap();
        assert_eq!(replayed.head.status, 0, "it was granted before the restart");
    });
}

#[test]
fn mdts_alone_are_given_up_where_operators_say_so() {
    let world = TestWorld::new(72);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let one = node.connect("one").await;
        let mdt = "lustre-MDT0000-mdtlov_UUID";
        node.connect_server(mdt).await;
        let mine = modify(&one, 1).await;
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        assert_eq!(node.target.stale_clients(), [Uuid::new(mdt), Uuid::new("one")]);
        node.target.abort_recovery_of_mdts().await;
        assert_eq!(node.target.stale_clients(), [Uuid::new("one")]);
        let recovery = node.target.view().recovery;
        assert_eq!((recovery.known, recovery.evicted), (2, 1));
        assert_ne!(recovery.status, RecoveryStatus::Complete, "the client is waited for");
        let one = one.follow(&node);
        one.connect().await.unwrap();
        assert_eq!(node.target.stale_clients(), []);
        let export = node.target.export(one.handle()).unwrap();
        assert_eq!(export.reconnect_delay(), Some(Duration::ZERO), "it began with this client");
        let start = node.target.now();
        let replay = setattr(1).replayed(mine.xid, mine.head.transno);
        assert_eq!(one.call_with(replay).await.unwrap().head.transno, mine.head.transno);
        assert!(node.target.now().since(start) < Duration::from_secs(1), "no MDT is waited for");
        finish_recovery(&one).await;
        assert_eq!(node.target.view().recovery.evicted, 1);
    });
}

#[test]
fn an_intents_lock_on_other_parts_of_an_inode_than_were_asked_for_is_said_to_have_changed() {
    let world = TestWorld::new(12);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let client = node.connect("one").await;
        for (asked, handle) in [(InodeBits::LOOKUP, 0x11), (InodeBits::UPDATE, 0x12)] {
            let mut dlm_req = inode_lock(LockMode::Pr, handle).dlm_req;
            dlm_req.flags = WireFlags::HAS_INTENT;
            dlm_req.desc.policy = WirePolicy::of_inode_bits(asked, InodeBits(0));
            let intent = LdlmIntentGetattr { dlm_req, ..LdlmIntentGetattr::default() };
            let answer = client.call(intent.clone()).await;
            let again = TestCall::new(intent).resent(answer.xid);
            for answer in [answer, client.call_with(again).await.unwrap()] {
                let Some(Reply::LdlmIntentGetattr(reply)) = &answer.reply else {
                    panic!("{answer:?}")
                };
                let is_changed =
                    reply.dlm_rep.as_ref().unwrap().flags.contains(WireFlags::LOCK_CHANGED);
                assert_eq!(is_changed, asked != InodeBits::LOOKUP);
            }
        }
    });
}
