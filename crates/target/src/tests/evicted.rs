//! A client that is evicted while the disk fails.

use super::*;

/// The second try finds no record any more: that it is gone is in memory alone.
#[test]
fn a_client_whose_removal_is_not_durable_keeps_its_locks_at_every_try() {
    let world = TestWorld::new(120);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let one = node.connect("one").await;
        one.call(inode_lock(LockMode::Ex, 0x11)).await;
        store.fail_at_commit();
        let target = Arc::clone(&node.target);
        let evict = async move { _ = target.evict_client("one").await };
        world.world().tasks.spawn("evict", Box::pin(evict));
        world.sleep(Duration::from_secs(60)).await;
        assert!(store.has_failed(), "the commit was asked for");
        let (name, policy) = (ResourceName::of_fid(INODE), Policy::bits(InodeBits::LOOKUP));
        assert!(node.target.try_lock(name, policy, LockMode::Pr).is_none());
        assert!(
            node.target.export_of(&Uuid::new("one")).is_some(),
            "nor may it come back by its name"
        );
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        assert!(node.target.export_of(&Uuid::new("one")).is_some(), "and may replay its lock");
    });
}
