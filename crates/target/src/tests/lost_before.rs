//! A target that dies in a recovery that has lost something: the next start knows of it.

use super::*;
use crate::RecoveryLosses;

const ALL: RecoveryLosses = RecoveryLosses { clients: true, changes: true };

/// What `one` has seen of a change that `two` made, and keeps under its lock; then the target dies.
async fn seen_and_lost(world: &TestWorld) -> (Arc<StoreMem>, TestClient) {
    let store = manual_store();
    let (node, _) = start(world, &store).await;
    let (one, two) = (node.connect("one").await, node.connect("two").await);
    store.commit().unwrap();
    modify(&two, 1).await;
    one.call(inode_lock(LockMode::Pr, 0x11)).await;
    (Arc::new(store.crash()), one)
}

/// `two` is evicted in the window, for which `one` is there already; then the target dies.
async fn evicted_in_the_window(world: &TestWorld) -> (Arc<StoreMem>, TestClient) {
    let (store, one) = seen_and_lost(world).await;
    let (node, _) = start(world, &store).await;
    let early = one.follow(&node);
    early.connect().await.unwrap();
    assert_eq!(node.target.evict_client("two").await, 1);
    assert_eq!(node.target.view().recovery.status, RecoveryStatus::Recovering);
    (Arc::new(store.crash()), one)
}

#[test]
fn what_was_lost_in_a_recovery_that_a_crash_ended_is_revoked_after_the_next() {
    let world = TestWorld::new(110);
    world.clone().run(async move {
        let (store, one) = evicted_in_the_window(&world).await;
        let (node, _) = start(&world, &store).await;
        let recovery = node.target.view().recovery;
        assert_eq!((recovery.known, recovery.evicted, recovery.lost_before), (1, 0, ALL));
        let one = one.follow(&node);
        one.connect().await.unwrap();
        let lock = one.call_with(replayed_lock(LockMode::Pr, 0x11)).await.unwrap();
        finish_recovery(&one).await;
        world.sleep(Duration::from_secs(1)).await;
        let callbacks = one.callbacks();
        assert!(matches!(callbacks[..], [Request::LdlmBlCallback(_)]), "{callbacks:?}");

        // It dies again before the lock is cancelled.
        store.commit().unwrap();
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        assert_eq!(node.target.view().recovery.lost_before, ALL);
        assert_eq!(one.cancel(&[lock_handle(&lock)]).await.head.status, 0);
        world.sleep(Duration::from_secs(1)).await;
        store.commit().unwrap();
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        assert_eq!(node.target.view().recovery.lost_before, RecoveryLosses::default());
    });
}

#[test]
fn a_stop_in_a_recovery_that_has_lost_something_leaves_that_to_the_next_start() {
    let world = TestWorld::new(111);
    world.clone().run(async move {
        let (store, _) = evicted_in_the_window(&world).await;
        let (node, _) = start(&world, &store).await;
        node.target.stop().await.expect("the store works");
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        assert_eq!(node.target.view().recovery.lost_before, ALL);
    });
}

/// Nothing is to be revoked then: no client is left that could keep anything.
#[test]
fn a_recovery_that_has_lost_all_clients_is_over_at_the_next_start() {
    let world = TestWorld::new(112);
    world.clone().run(async move {
        let (store, _) = seen_and_lost(&world).await;
        let (node, _) = start(&world, &store).await;
        for client in ["one", "two"] {
            assert_eq!(node.target.evict_client(client).await, 1);
        }
        world.settle().await;
        // That it is over is not durable.
        let store = Arc::new(store.crash());
        let (node, _) = start(&world, &store).await;
        let recovery = node.target.view().recovery;
        assert_eq!((recovery.status, recovery.lost_before), (RecoveryStatus::Inactive, ALL));
        store.commit().unwrap();
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        assert_eq!(node.target.view().recovery.lost_before, RecoveryLosses::default());
    });
}

#[test]
fn an_eviction_when_recovery_is_over_is_no_loss_of_it() {
    let world = TestWorld::new(113);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        node.connect("one").await;
        node.connect("two").await;
        store.commit().unwrap();
        assert_eq!(node.target.evict_client("two").await, 1);
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        assert_eq!(node.target.view().recovery.lost_before, RecoveryLosses::default());
    });
}
