//! What the log says: of clients and requests that take long, of a store that fails.

use sheen_store::StoreError;
use sheen_types::{Instant, ObdHandle, Timestamp, Transno};

use super::*;
use crate::recovery::{EndDecided, Recovery};
use crate::testing::logged;

#[test]
fn a_request_that_takes_long_has_one_line() {
    logged(|lines| {
        let world = TestWorld::new(60);
        world.clone().run(async move {
            let (node, _) = start(&world, &manual_store()).await;
            let client = node.connect("one").await;
            let slow = FaultAction::Delay(Duration::from_secs(40));
            node.target.faults().arm(FaultSite::Request(Kind::MdsReintSetattr), slow, 1);
            assert_eq!(client.call_with(setattr(1)).await.unwrap().head.status, 0);
            assert_eq!(client.call_with(setattr(1)).await.unwrap().head.status, 0);
            let found = lines.with("a request takes long");
            assert_eq!(found.len(), 1, "{found:?}");
            let parts = ["client=one", "request=\"MDS_REINT_SETATTR\"", "waits_for=\"working\""];
            assert!(parts.iter().all(|part| found[0].contains(part)), "{found:?}");
        });
    });
}

#[test]
fn a_client_that_keeps_a_revoked_lock_has_a_line_before_it_is_evicted() {
    logged(|lines| {
        let world = TestWorld::new(61);
        world.clone().run(async move {
            let (node, _) = start(&world, &manual_store()).await;
            let (keeper, other) = (node.connect("keeper").await, node.connect("other").await);
            assert_eq!(keeper.call(inode_lock(LockMode::Pw, 1)).await.errno(), None);
            assert_eq!(other.call(inode_lock(LockMode::Pr, 1)).await.errno(), None);
            let half = node.target.timeouts().lock_callback / 2;
            world.sleep(half - Duration::from_secs(1)).await;
            let named = "has not cancelled a revoked lock";
            assert_eq!(lines.with(named), [""; 0]);
            world.sleep(Duration::from_secs(10)).await;
            let found = lines.with(named);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains("client=keeper"), "{found:?}");
            world.sleep(half).await;
            assert_eq!(lines.with(named).len(), 1);
            assert_eq!(lines.with("lock callback timer expired").len(), 1);
        });
    });
}

#[test]
fn a_client_that_is_evicted_for_many_locks_at_once_has_one_line() {
    logged(|lines| {
        let world = TestWorld::new(64);
        world.clone().run(async move {
            let (node, _) = start(&world, &manual_store()).await;
            let (gone, other) = (node.connect("gone").await, node.connect("other").await);
            gone.on_callback(Box::new(|_| Some(Err(RpcError::TimedOut))));
            let lock = |number| {
                let mut request = inode_lock(LockMode::Ex, u64::from(number));
                let fid = Fid { oid: number, ..INODE };
                request.dlm_req.desc.resource.name = ResourceName::of_fid(fid);
                request
            };
            for number in 0..20 {
                assert_eq!(gone.call(lock(number)).await.errno(), None);
                assert_eq!(other.call(lock(number)).await.errno(), None);
            }
            world.sleep(node.target.timeouts().lock_callback * 2).await;
            let found = lines.with("evicting");
            let of_it = found.iter().filter(|line| line.contains("client=gone")).count();
            assert_eq!(of_it, 1, "{found:?}");
        });
    });
}

#[test]
fn why_a_store_failed_is_logged_and_an_ordinary_answer_is_not() {
    logged(|lines| {
        let fails = crate::store_errno;
        assert_eq!(fails(StoreError::Io("journal 7: input/output error".to_owned())), Errno::EIO);
        assert_eq!(fails(StoreError::Corrupt("an object's record".to_owned())), Errno::EIO);
        assert_eq!(fails(StoreError::NoSpace), Errno::ENOSPC);
        assert_eq!(fails(StoreError::Closed), Errno::EIO);
        assert_eq!(fails(StoreError::NoObject(INODE)), Errno::ENOENT);
        let found = lines.with("the store fails a request");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("journal 7: input/output error"), "{found:?}");
    });
}

#[test]
fn since_when_a_store_takes_no_changes_is_known_and_why() {
    let world = TestWorld::new(63);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        assert_eq!(node.target.failure(), None);
        store.fail();
        world.sleep(Duration::from_secs(70)).await;
        store.fail();
        let (time, why) = node.target.failure().expect("it has failed");
        assert_eq!((time, node.target.is_healthy()), (Duration::from_secs(70), false));
        assert!(!why.is_empty(), "it says why");
    });
}

#[test]
fn each_client_that_recovery_gives_up_is_named_and_counted() {
    logged(|lines| {
        let world = TestWorld::new(62);
        world.clone().run(async move {
            let store = manual_store();
            let (node, _) = start(&world, &store).await;
            let one = node.connect("one").await;
            for (away, tag) in [("two", 1), ("three", 2), ("four", 3)] {
                modify(&node.connect(away).await, tag).await;
            }
            let (node, _) = start(&world, &Arc::new(store.crash())).await;
            let one = one.follow(&node);
            one.connect().await.unwrap();
            finish_recovery(&one).await;
            for away in ["client=two", "client=three", "client=four"] {
                let found = lines.with("did not finish recovery in time");
                assert!(found.iter().any(|line| line.contains(away)), "{away} {found:?}");
            }
            let over = lines.with("recovery over");
            assert!(over.iter().any(|line| line.contains("evicted=3 ")), "{over:?}");
            assert_eq!(node.target.view().recovery.evicted, 3);
        });
    });
}

#[test]
fn who_is_waited_for_is_in_one_line_and_an_operator_who_ends_that_in_another() {
    logged(|lines| {
        let world = TestWorld::new(63);
        world.clone().run(async move {
            let store = manual_store();
            let (node, _) = start(&world, &store).await;
            let one = node.connect("a1").await;
            for away in ["a2", "a3", "a4", "a5", "a6"] {
                node.connect(away).await;
            }
            let (node, _) = start(&world, &Arc::new(store.crash())).await;
            let started = lines.with("will recover");
            assert!(started[0].contains("awaited=\"a1 a2 a3 a4 and 2 more\""), "{started:?}");
            let one = one.follow(&node);
            one.connect().await.unwrap();
            let begun = lines.with("recovery begins");
            assert!(begun[0].contains("a4 and "), "{begun:?}");
            assert_eq!(lines.with("an operator ends recovery"), [""; 0]);
            node.target.abort_recovery().await;
            assert_eq!(lines.with("an operator ends recovery").len(), 1);
            world.sleep(Duration::from_secs(1)).await;
            node.target.abort_recovery().await;
            assert_eq!(lines.with("an operator ends recovery").len(), 1, "it is over");
        });
    });
}

#[test]
fn recovery_does_not_end_between_two_clients_that_it_gives_up() {
    let timeouts = Timeouts::from_base(Duration::from_secs(20));
    let recovery = Recovery::new(3, Transno(0), Default::default(), timeouts);
    let start = Instant::default();
    recovery.start_clock(start, Timestamp::default());
    assert_eq!(recovery.client_connected(None), Some(EndDecided(false)));
    assert!(
        !recovery.client_moved(ObdHandle(1), ExportState::Replaying, ExportState::ReplayedAll).0
    );
    assert!(recovery.expire(start + timeouts.recovery_hard).is_some());
    for absent in [2, 3] {
        assert!(!recovery.client_lost(ObdHandle(absent), ExportState::Awaited).0, "{absent}");
    }
    assert!(recovery.resume().0);
    assert_eq!(recovery.view(start).evicted, 2);
}
