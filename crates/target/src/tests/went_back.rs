//! Targets that know less than was reported to their clients.

use super::*;

/// The store is older than what was reported to a client: that is counted, and recovery goes on.
/// Where all that was reported is there, nothing is counted.
#[test]
fn a_store_that_went_back_in_time_is_counted_when_a_client_knows_more() {
    let world = TestWorld::new(6);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let one = node.connect("one").await;
        modify(&one, 1).await;
        store.commit().unwrap();
        let older = Arc::new(store.crash());
        modify(&one, 2).await;
        store.commit().unwrap();
        modify(&one, 3).await;

        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        let honest = one.follow(&node);
        honest.connect().await.unwrap();
        assert_eq!(node.target.view().recovery.went_back, 0);

        let (node, _) = start(&world, &older).await;
        let one = one.follow(&node);
        one.connect().await.unwrap();
        assert_eq!(node.target.view().recovery.went_back, 1);
        assert_eq!(finish_recovery(&one).await.head.status, 0);
        assert_eq!(node.target.view().recovery.status, RecoveryStatus::Complete);
    });
}

/// It was emptied, or another took its place: a claim of 0 would mean nothing to clients.
#[test]
fn an_empty_target_claims_a_number_by_which_clients_know_that_all_is_gone() {
    let world = TestWorld::new(6);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let one = node.connect("one").await;
        assert_eq!(one.known_committed(), Transno(1));
        modify(&one, 1).await;
        node.target.sync().await.unwrap();
        modify(&one, 2).await;
        assert!(one.known_committed() > Transno(1));
        let before = one.known_committed();

        let (node, _) = start(&world, &manual_store()).await;
        let one = one.follow(&node);
        one.connect().await.unwrap();
        assert!(one.claimed() != Transno(0) && one.claimed() < before);
        assert_eq!(node.target.view().recovery.went_back, 1);
        // A client to which nothing but the emptiness was reported is content.
        node.connect("two").await.connect().await.unwrap();
        assert_eq!(node.target.view().recovery.went_back, 1);
    });
}

#[test]
fn numbers_that_no_target_has_reported_are_not_counted_and_reported_ones_once() {
    let world = TestWorld::new(6);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let one = node.connect("one").await;
        for (claimed, counted) in [(u64::MAX, 0), (u64::MAX >> 1, 0), (5 << 32, 1), (6 << 32, 1)] {
            one.claim_committed(Transno(claimed));
            one.connect().await.unwrap();
            assert_eq!(node.target.view().recovery.went_back, counted, "{claimed}");
        }
    });
}
