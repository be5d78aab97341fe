//! The MDT is answered about objects when they are durable, also if it asks for them again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sheen_store::Store;
use sheen_store_mem::{Commits, MemOptions, StoreMem};
use sheen_target::testing::{TestClient, TestTarget, TestWorld};
use sheen_target::{TargetConfig, Timeouts};
use sheen_types::{Errno, Uuid};
use sheen_wire::md::Valid;
use sheen_wire::messages::OstCreate;
use sheen_wire::ost::{Obdo, OstBody, OstId};

use crate::Ost;

async fn create(mdt: TestClient, id: u64) -> Option<Errno> {
    let oa = Obdo { valid: Valid::ID | Valid::GROUP, oi: OstId::of_id(id), ..Obdo::default() };
    mdt.call(OstCreate { ost_body: OstBody { oa }, ..OstCreate::default() }).await.errno()
}

/// An OST whose store commits what the test says.
async fn start(world: &TestWorld, store: &Arc<StoreMem>) -> TestTarget {
    let shared: Arc<dyn Store> = store.clone();
    let config = TargetConfig {
        name: "lustre-OST0000".to_owned(),
        uuid: Uuid::new("lustre-OST0000_UUID"),
        index: 0,
        offer: Ost::offer(),
        replayable: true,
        timeouts: Timeouts::from_base(Duration::from_secs(10)),
    };
    TestTarget::start(world, Arc::clone(&shared), config, Arc::new(Ost::new(shared, 0))).await
}

#[test]
fn objects_that_are_not_durable_are_not_reported_when_they_are_asked_for_again() {
    let world = TestWorld::new(31);
    world.clone().run(async move {
        let options = MemOptions { commits: Commits::Manual, ..MemOptions::default() };
        let store = Arc::new(StoreMem::new(options));
        let node = start(&world, &store).await;
        let mdt = node.connect_server("m").await;
        let answered = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            let (mdt, answered) = (mdt.clone(), Arc::clone(&answered));
            let task = async move {
                assert_eq!(create(mdt, 10).await, None);
                answered.fetch_add(1, Ordering::Relaxed);
            };
            world.world().tasks.spawn("create", Box::pin(task));
        }
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(answered.load(Ordering::Relaxed), 0);
        store.commit().expect("the store works");
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(answered.load(Ordering::Relaxed), 2);

        let (clock, disk) = (world.world().clock, Arc::clone(&store));
        let fail = async move {
            clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
            disk.fail();
        };
        world.world().tasks.spawn("disk", Box::pin(fail));
        for time in ["as it fails", "again"] {
            assert!(create(mdt.clone(), 20).await.is_some(), "{time}");
        }
    });
}
