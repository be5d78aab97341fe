//! A target that stops before its recovery is over: the next start awaits what this one did.

use sheen_types::{Instant, ObdHandle, Timestamp};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::*;
use crate::recovery::{Admission, Admitted, EndDecided, Recovery};
use crate::{RecoveryLosses, Target};

/// Cleans up after recovery, with a transaction of its own, as an MDT does.
#[derive(Default)]
struct Cleaning {
    counting: Counting,
    cleaned: AtomicU32,
}

impl Operations for Cleaning {
    fn operate<'a>(
        &'a self,
        context: &'a Context,
        request: Request,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        self.counting.operate(context, request)
    }

    fn recovered<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.cleaned.fetch_add(1, Ordering::Relaxed);
            let mut transaction = Transaction::new();
            transaction.put(COUNTS, Bytes::from_static(b"cleaned"), Bytes::new());
            target.transact_locally(transaction).expect("the store works");
        })
    }
}

async fn start_cleaning(world: &TestWorld, store: &Arc<StoreMem>) -> (TestTarget, Arc<Cleaning>) {
    let role = Arc::new(Cleaning::default());
    let store: Arc<dyn Store> = store.clone();
    (TestTarget::start(world, store, config(), role.clone()).await, role)
}

/// As [`finish_recovery`], of which the target does not see the end.
async fn finish_unanswered(client: &TestClient) -> Option<TestAnswer> {
    let done = MsgFlags::REQ_REPLAY_DONE | MsgFlags::LOCK_REPLAY_DONE;
    client.call_with(flags(TestCall::new(ObdPing::default()), done)).await
}

/// Stops the target; what its tasks make of that becomes durable, too.
async fn stop(world: &TestWorld, node: &TestTarget, store: &StoreMem) -> Arc<StoreMem> {
    node.target.stop().await.expect("the store works");
    world.sleep(Duration::from_secs(1)).await;
    store.commit().expect("the store works");
    Arc::new(store.crash())
}

#[test]
fn a_stop_before_the_clients_are_back_leaves_them_all_their_replays() {
    let world = TestWorld::new(91);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start_cleaning(&world, &store).await;
        let one = node.connect("one").await;
        let kept = modify(&one, 1).await;
        store.commit().unwrap();
        let lost = modify(&one, 2).await;

        let mut store = Arc::new(store.crash());
        for _ in 0..2 {
            let (node, role) = start_cleaning(&world, &store).await;
            store = stop(&world, &node, &store).await;
            assert_eq!(role.cleaned.load(Ordering::Relaxed), 0, "recovery is not over");
            let view = node.target.view();
            assert_eq!(view.recovery.status, RecoveryStatus::WaitingForClients);
            assert_eq!((view.recovery.evicted, view.recovery.known), (0, 1));
        }

        let (node, role) = start_cleaning(&world, &store).await;
        let one = one.follow(&node);
        let head = one.connect().await.unwrap();
        assert_eq!(head.last_committed, kept.head.transno);
        let replay = setattr(2).replayed(lost.xid, lost.head.transno);
        assert_eq!(one.call_with(replay).await.unwrap().head.transno, lost.head.transno);
        assert_eq!(role.counting.executed(), 1);
        finish_recovery(&one).await;
        world.settle().await;
        assert_eq!(role.cleaned.load(Ordering::Relaxed), 1);
    });
}

/// Of three clients the first is absent, the second has replayed all, the last waits with its replay. The stop drops
/// the first one's export, and then waits for bytes of the second.
#[test]
fn a_replay_that_waits_for_its_turn_when_the_target_stops_is_not_executed() {
    let world = TestWorld::new(92);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let names = ["one", "two", "three"];
        let mut clients = Vec::new();
        for name in names {
            clients.push(node.connect(name).await);
        }
        modify(&clients[0], 1).await;
        store.commit().unwrap();
        let mut changes = Vec::new();
        for client in clients {
            let change = modify(&client, 2).await;
            changes.push((client, setattr(2).replayed(change.xid, change.head.transno)));
        }

        let store = Arc::new(store.crash());
        let (node, role) = start(&world, &store).await;
        let exports = node.target.exports();
        let of = |export: usize| {
            let is_its = |name: &&str| exports[export].uuid().as_str() == *name;
            let at = names.iter().position(is_its).expect("a client");
            let (client, replay) = &changes[at];
            (client.follow(&node), replay.clone())
        };
        let ((second, _), (last, replay)) = (of(1), of(2));
        second.connect().await.unwrap();
        last.connect().await.unwrap();
        let finish = async move { drop(finish_unanswered(&second).await) };
        world.world().tasks.spawn("finish", Box::pin(finish));
        let is_dropped = Arc::new(AtomicU32::new(0));
        let mark = Arc::clone(&is_dropped);
        let task = async move {
            assert!(last.call_with(replay).await.is_none(), "it is not its turn");
            mark.store(1, Ordering::Relaxed);
        };
        world.world().tasks.spawn("replay", Box::pin(task));
        world.sleep(Duration::from_secs(1)).await;
        let applying = exports[1].begin_apply(u32::MAX).expect("it is there");
        let target = Arc::clone(&node.target);
        let stop = async move { target.stop().await.expect("the store works") };
        world.world().tasks.spawn("stop", Box::pin(stop));
        world.sleep(Duration::from_secs(1)).await;
        drop(applying);
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!((is_dropped.load(Ordering::Relaxed), role.executed()), (1, 0));

        let (node, role) = start(&world, &Arc::new(store.crash())).await;
        let changes: Vec<_> =
            changes.iter().map(|(client, replay)| (client.follow(&node), replay)).collect();
        for (client, _) in &changes {
            client.connect().await.unwrap();
        }
        for (client, replay) in changes {
            let replay = replay.clone();
            let again = async move {
                let transno = replay.transno;
                assert_eq!(client.call_with(replay).await.unwrap().head.transno, transno);
                finish_recovery(&client).await;
            };
            world.world().tasks.spawn("again", Box::pin(again));
        }
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(role.executed(), 3);
    });
}

/// All have replayed but for one, and wait for the end.
#[test]
fn a_stop_does_not_answer_a_client_that_waits_for_the_end_of_recovery() {
    let world = TestWorld::new(93);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start_cleaning(&world, &store).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        store.commit().unwrap();
        let lost = modify(&two, 1).await;

        let store = Arc::new(store.crash());
        let (node, _) = start_cleaning(&world, &store).await;
        let early = one.follow(&node);
        early.connect().await.unwrap();
        let final_ping = async move {
            assert!(finish_unanswered(&early).await.is_none(), "recovery is not over");
        };
        world.world().tasks.spawn("ping", Box::pin(final_ping));
        world.sleep(Duration::from_secs(1)).await;
        let store = stop(&world, &node, &store).await;

        let (node, role) = start_cleaning(&world, &store).await;
        let two = two.follow(&node);
        one.follow(&node).connect().await.unwrap();
        two.connect().await.unwrap();
        let replay = setattr(1).replayed(lost.xid, lost.head.transno);
        assert_eq!(two.call_with(replay).await.unwrap().head.transno, lost.head.transno);
        assert_eq!(role.counting.executed(), 1);
    });
}

/// The evictions at the end of the recovery window are under way, the first one waits for the disk. The stop waits for
/// bytes of the second client meanwhile, and has not come to the third.
#[test]
fn a_target_that_stops_evicts_no_further_client() {
    let world = TestWorld::new(94);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        for name in ["one", "two", "three"] {
            node.connect(name).await;
        }
        store.commit().unwrap();

        let store = Arc::new(store.crash());
        let (node, _) = start(&world, &store).await;
        let exports = node.target.exports();
        let applying: Vec<_> = exports[1..].iter().filter_map(|it| it.begin_apply(1)).collect();
        assert_eq!(applying.len(), 2);
        world.set_disk_time(Duration::from_secs(5));
        let target = Arc::clone(&node.target);
        let abort = async move { target.abort_recovery().await };
        world.world().tasks.spawn("abort", Box::pin(abort));
        world.sleep(Duration::from_secs(1)).await;
        let target = Arc::clone(&node.target);
        let stop = async move { target.stop().await.expect("the store works") };
        world.world().tasks.spawn("stop", Box::pin(stop));
        world.sleep(Duration::from_secs(20)).await;
        drop(applying);
        world.sleep(Duration::from_secs(20)).await;
        world.set_disk_time(Duration::ZERO);
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        assert_eq!(node.target.view().recovery.known, 2, "one was being evicted before the stop");
    });
}

/// Its answers say that all went well enough to have buffers, as those of an intent whose operation has failed.
struct Slow;

impl Operations for Slow {
    fn operate<'a>(
        &'a self,
        context: &'a Context,
        _: Request,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        let clock = &context.target.world().clock;
        Box::pin(async move {
            clock.sleep_until(clock.now() + Duration::from_secs(2)).await;
            Ok(Outcome { status: 301, reply: None })
        })
    }
}

/// What was in progress fails as its locks go; the client asks the next start, and its program sees nothing of it.
#[test]
fn a_request_that_a_stop_finds_in_progress_is_not_answered() {
    let world = TestWorld::new(93);
    world.clone().run(async move {
        let store: Arc<dyn Store> = manual_store();
        let node = TestTarget::start(&world, store, config(), Arc::new(Slow)).await;
        let one = node.connect("one").await;
        let answered = one.call_with(setattr(1)).await.expect("it runs");
        assert_eq!(answered.head.status, 301);
        let (target, clock) = (Arc::clone(&node.target), world.world().clock);
        let stop = async move {
            clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
            target.stop().await.expect("the store works");
        };
        world.world().tasks.spawn("stop", Box::pin(stop));
        assert!(one.call_with(setattr(2)).await.is_none());
    });
}

/// A window of three clients: one is absent, one waits with its replay, one has replayed all. Answers what waits in it.
fn window() -> (Recovery, [oneshot::Receiver<Admitted>; 3]) {
    let times = Timeouts::from_base(Duration::from_secs(20));
    let recovery = Recovery::new(3, Transno(1), RecoveryLosses::default(), times);
    _ = recovery.start_clock(Instant(1), Timestamp::default());
    for _ in 0..2 {
        let ended = recovery.client_connected(None);
        assert_eq!(ended, Some(EndDecided(false)));
    }
    let done = recovery.client_moved(THIRD, ExportState::Replaying, ExportState::ReplayedAll);
    assert_eq!(done, EndDecided(false));
    let waiting = [
        recovery.admit_request_replay(SECOND, Transno(3)),
        recovery.admit_lock_replay(THIRD),
        recovery.admit_final_ping(),
    ];
    let waiting = waiting.map(|admission| match admission {
        Admission::Wait(receiver) => receiver,
        Admission::Now | Admission::Dropped => panic!("recovery is not over"),
    });
    (recovery, waiting)
}

const FIRST: ObdHandle = ObdHandle(1);
const SECOND: ObdHandle = ObdHandle(2);
const THIRD: ObdHandle = ObdHandle(3);

fn is_dropped(admission: Admission) -> bool {
    matches!(admission, Admission::Dropped)
}

#[test]
fn what_waits_in_a_window_is_dropped_by_a_stop() {
    let (recovery, mut waiting) = window();
    let dropped = |it: &mut oneshot::Receiver<Admitted>| it.try_recv() == Err(TryRecvError::Closed);
    assert_eq!(waiting.each_mut().map(dropped), [false; 3]);
    recovery.stop();
    assert_eq!(waiting.each_mut().map(dropped), [true; 3]);
}

#[test]
fn a_window_admits_nothing_after_a_stop() {
    let (recovery, _waiting) = window();
    recovery.stop();
    let dropped = [
        is_dropped(recovery.admit_request_replay(SECOND, Transno(2))),
        is_dropped(recovery.admit_request_replay(SECOND, Transno(3))),
        is_dropped(recovery.admit_lock_replay(THIRD)),
        is_dropped(recovery.admit_final_ping()),
    ];
    assert_eq!(dropped, [true; 4]);
}

/// The clients go with the target, and none of them has done what it was waited for.
#[test]
fn a_window_decides_nothing_after_a_stop() {
    let (recovery, _waiting) = window();
    recovery.stop();
    assert!(recovery.client_connected(None).is_none(), "the absent one is too late");
    let (now, late) = (Instant(1), Instant(1) + Duration::from_secs(100_000));
    assert!(recovery.expire(late).is_none());
    let ended = [
        recovery.end_replay(now, SECOND, None, Some(Transno(3))),
        recovery.client_moved(SECOND, ExportState::Replaying, ExportState::ReplayedAll),
        recovery.client_lost(FIRST, ExportState::Awaited),
        recovery.client_lost(SECOND, ExportState::ReplayedAll),
        recovery.client_lost(THIRD, ExportState::ReplayedAll),
        recovery.resume(),
    ];
    assert_eq!(ended, [EndDecided(false); 6]);
    let view = recovery.view(now);
    assert_eq!((view.status, view.evicted), (RecoveryStatus::Recovering, 0));
}
