//! Clients of before a restart that come when it is too late.

use super::*;

/// The end of recovery is decided without a client, whose eviction is still under way when it comes: let in, it would
/// believe that its locks are still there.
#[test]
fn a_client_that_comes_between_the_end_of_recovery_and_its_eviction_begins_anew() {
    let world = TestWorld::new(61);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        store.commit().unwrap();

        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        let (one, two) = (one.follow(&node), two.follow(&node));
        one.connect().await.unwrap();
        assert!(node.target.recovery.abort(node.target.now()));
        assert_eq!(finish_recovery(&one).await.head.status, 0);
        assert_eq!(two.connect().await.unwrap_err(), Errno::ENODEV);

        let exports = node.target.exports();
        let awaited = exports.iter().find(|it| it.state() == ExportState::Awaited);
        node.target.evict(awaited.expect("it was not let in")).await;
        two.connect().await.unwrap();
        assert_eq!(two.connect_flags() & OpFlags::CONNECT_RECONNECT, OpFlags::NONE);
        assert_eq!(modify(&two, 2).await.head.status, 0);
    });
}
