//! An OST obeys the MDT whose objects it holds, and no other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_store::Store;
use sheen_store_mem::{Commits, MemOptions, StoreMem};
use sheen_target::testing::{TestClient, TestTarget, TestWorld, client_offer, server_offer};
use sheen_target::{TargetConfig, Timeouts};
use sheen_types::{Errno, Fid, Nid, Uuid, fid_seq};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstCreate, OstDestroy};
use sheen_wire::ost::{Obdo, ObdoFlags, OstBody, OstId};
use sheen_wire::text::Chars;

use super::harness::{Server, fid, put, with_ost};
use crate::{KnownMdt, Ost};

const MDT: &str = "lustre-MDT0000-mdtlov_UUID";
const FIRST: &str = "11111111-2222-3333-4444-555555555555";
const OTHER: &str = "99999999-2222-3333-4444-555555555555";

fn of(offer: ObdConnectData, identity: &str) -> ObdConnectData {
    ObdConnectData { identity: Chars::new(identity), ..offer }
}

/// Connects as an MDT of this name and identity.
async fn mdt(node: &TestTarget, name: &str, identity: &str) -> Result<TestClient, Errno> {
    let mdt = node.client_at(name, Nid::LOOPBACK);
    mdt.connect_with(of(server_offer(), identity)).await.map(|_| mdt.clone())
}

async fn client(node: &TestTarget, name: &str, identity: &str) -> Result<(), Errno> {
    node.client(name).connect_with(of(client_offer(), identity)).await.map(drop)
}

fn known(index: u16, identity: &str) -> KnownMdt {
    KnownMdt { index, identity: Some(Uuid::new(identity)) }
}

/// The same store under a server that has restarted.
async fn restarted(world: &TestWorld, store: &Arc<StoreMem>) -> (Arc<Ost>, TestTarget) {
    let store: Arc<dyn Store> = store.clone();
    let ost = Arc::new(Ost::new(Arc::clone(&store), 0));
    let config = TargetConfig {
        name: "lustre-OST0000".to_owned(),
        uuid: Uuid::new("lustre-OST0000_UUID"),
        index: 0,
        offer: Ost::offer(),
        replayable: true,
        timeouts: Timeouts::from_base(Duration::from_secs(10)),
    };
    let node = TestTarget::start(world, store, config, ost.clone()).await;
    (ost, node)
}

#[test]
fn an_mdt_of_another_identity_is_refused_and_removes_nothing() {
    with_ost(MemOptions::default(), |server: Server| async move {
        let node = &server.node;
        let writer = node.connect("c").await;
        put(&writer, 3, 0, &Bytes::from_static(b"data")).await.expect("written");
        mdt(node, MDT, FIRST).await.expect("the first one is let in");
        for stranger in [OTHER, ""] {
            let refused = mdt(node, MDT, stranger).await.map(drop);
            assert_eq!(refused, Err(Errno::EXDEV), "{stranger:?}");
            // Whatever it is called: it asks for what MDTs ask for.
            let refused = mdt(node, "stranger", stranger).await.map(drop);
            assert_eq!(refused, Err(Errno::EXDEV), "{stranger:?}");
        }
        assert_eq!(server.ost.refused_mdt(), Some(KnownMdt { index: 0, identity: None }));
        assert_eq!(server.ost.known_mdts().unwrap(), [known(0, FIRST)]);
        assert!([1, 2, 3, 4].iter().all(|id| server.store.recorded_attributes(fid(*id)).is_ok()));
        // The refusal has not cost the right one its place.
        mdt(node, MDT, FIRST).await.expect("it comes back");
        assert_eq!(server.ost.refused_mdt(), None);
        mdt(node, "lustre-MDT0001-mdtlov_UUID", OTHER).await.expect("another index is another MDT");
        assert_eq!(server.ost.known_mdts().unwrap(), [known(0, FIRST), known(1, OTHER)]);
    });
}

async fn create(mdt: &TestClient, sequence: u64, id: u64, flags: ObdoFlags) -> Result<(), Errno> {
    let oi = match sequence {
        fid_seq::OST_MDT0 => OstId::of_id(id),
        sequence => OstId { word0: sequence, word1: id },
    };
    let valid = Valid::ID | Valid::GROUP | Valid::FLAGS;
    let oa = Obdo { valid, oi, flags, ..Obdo::default() };
    let answer = mdt.call(OstCreate { ost_body: OstBody { oa }, ..OstCreate::default() }).await;
    answer.errno().map_or(Ok(()), Err)
}

#[test]
fn an_mdt_creates_and_cleans_up_in_its_own_sequences_alone() {
    with_ost(MemOptions::default(), |server: Server| async move {
        // That of the second target that has asked the controller.
        let range = fid_seq::NORMAL + (1 << 30);
        let name = |index: u64| format!("lustre-MDT{index:04x}-mdtlov_UUID");
        let first = mdt(&server.node, &name(0), FIRST).await.expect("let in");
        let third = mdt(&server.node, &name(2), OTHER).await.expect("let in");
        for (mdt, index) in [(&first, 0), (&third, 2)] {
            create(mdt, range + 1 + index, 5, ObdoFlags::NONE).await.expect("its own");
            create(mdt, range + 1 + index, 3, ObdoFlags::DELORPHAN).await.expect("its own");
            for other in (0..5).filter(|other| *other != index + 1) {
                for flags in [ObdoFlags::NONE, ObdoFlags::DELORPHAN] {
                    let refused = create(mdt, range + other, 4, flags).await;
                    assert_eq!(refused, Err(Errno::EPERM), "{index} in {other}");
                }
            }
        }
        let there = |sequence, id| server.store.recorded_attributes(Fid::new(sequence, id)).is_ok();
        assert!(there(range + 1, 3) && !there(range + 1, 4) && there(range + 3, 3));
        assert_eq!(create(&third, fid_seq::OST_MDT0, 9, ObdoFlags::NONE).await, Err(Errno::EPERM));
        create(&first, fid_seq::OST_MDT0, 9, ObdoFlags::NONE)
            .await
            .expect("the old ones are MDT0000's");
        // Objects of a file that has moved are another MDT's to destroy.
        let oi = OstId { word0: range + 1, word1: 3 };
        let ost_body =
            OstBody { oa: Obdo { valid: Valid::ID | Valid::GROUP, oi, ..Obdo::default() } };
        let gone = third.call(OstDestroy { ost_body, ..OstDestroy::default() }).await;
        assert_eq!((gone.errno(), there(range + 1, 3)), (None, false));
        // Lustre's say no identity, and have sequences of other kinds.
        let lustres = server.node.connect_server("lustre-MDT0001-mdtlov_UUID").await;
        create(&lustres, range + 900, 3, ObdoFlags::NONE).await.expect("not known by its identity");
    });
}

#[test]
fn clients_of_another_mdt_are_refused() {
    with_ost(MemOptions::default(), |server: Server| async move {
        let node = &server.node;
        client(node, "early", OTHER).await.expect("no MDT is known yet");
        mdt(node, MDT, FIRST).await.expect("the first one is let in");
        assert_eq!(client(node, "right", FIRST).await, Ok(()));
        assert_eq!(client(node, "lustre's own", "").await, Ok(()));
        assert_eq!(client(node, "wrong", OTHER).await, Err(Errno::EXDEV));
        assert_eq!(client(node, "early", OTHER).await, Err(Errno::EXDEV), "it reconnects");
    });
}

#[test]
fn whose_objects_these_are_survives_a_crash() {
    let world = TestWorld::new(5);
    let manual = MemOptions { commits: Commits::Manual, ..MemOptions::default() };
    world.clone().run(async move {
        let store = Arc::new(StoreMem::new(manual));
        let (ost, node) = restarted(&world, &store).await;
        let first = mdt(&node, MDT, "").await.expect("one of Lustre's says nothing to know it by");
        assert_eq!(ost.known_mdts().unwrap(), []);
        // It comes back with an identity: its export is there, and no sync for a new one makes this durable.
        first.connect_with(of(server_offer(), FIRST)).await.expect("the first one is let in");
        let store = Arc::new(store.crash());
        let (ost, node) = restarted(&world, &store).await;
        assert_eq!(mdt(&node, MDT, OTHER).await.map(drop), Err(Errno::EXDEV));
        assert_eq!(ost.known_mdts().unwrap(), [known(0, FIRST)]);
        ost.bind_mdt(&known(0, OTHER)).unwrap();
        let (ost, _) = restarted(&world, &Arc::new(store.crash())).await;
        assert_eq!(ost.known_mdts().unwrap(), [known(0, OTHER)], "what an administrator says, too");
    });
}

#[test]
fn an_mdt_that_an_administrator_rules_out_is_evicted_with_its_clients() {
    let world = TestWorld::new(6);
    world.clone().run(async move {
        let (ost, node) = restarted(&world, &Arc::new(StoreMem::default())).await;
        let clients = || {
            let exports = node.target.exports();
            let names = exports.iter().map(|export| export.uuid().to_string());
            names.collect::<BTreeSet<_>>()
        };
        client(&node, "early", OTHER).await.expect("no MDT is known yet");
        mdt(&node, MDT, FIRST).await.expect("the first one is let in");
        client(&node, "its", FIRST).await.expect("let in");
        client(&node, "Lustre's", "").await.expect("let in");
        ost.bind_mdt(&known(0, FIRST)).unwrap();
        world.settle().await;
        assert_eq!(clients(), [MDT, "Lustre's", "its"].map(str::to_owned).into());
        ost.bind_mdt(&known(0, OTHER)).unwrap();
        world.settle().await;
        assert_eq!(clients(), ["Lustre's".to_owned()].into(), "it says none");
    });
}

#[test]
fn an_administrator_says_whose_objects_these_are() {
    with_ost(MemOptions::default(), |server: Server| async move {
        let node = &server.node;
        let writer = node.connect("c").await;
        put(&writer, 3, 0, &Bytes::from_static(b"data")).await.expect("written");
        mdt(node, MDT, FIRST).await.expect("the first one is let in");
        assert_eq!(mdt(node, MDT, OTHER).await.map(drop), Err(Errno::EXDEV));
        let said = server.ost.refused_mdt().unwrap().to_string();
        assert_eq!(said, format!("MDT0000:{OTHER}"));
        server.ost.bind_mdt(&said.parse().unwrap()).unwrap();
        mdt(node, MDT, OTHER).await.expect("it is let in now");
        assert_eq!(mdt(node, MDT, FIRST).await.map(drop), Err(Errno::EXDEV));
        assert_eq!(server.bytes(3), Bytes::from_static(b"data"));
        // One of Lustre's says no identity: none is known from then on, until one says which it is.
        for _ in 0..2 {
            server.ost.bind_mdt(&"MDT0000:none".parse().unwrap()).unwrap();
        }
        assert_eq!(server.ost.known_mdts().unwrap(), []);
        mdt(node, MDT, "").await.expect("one of Lustre's");
        for wrong in ["", "MDT0000", "MDT0000:", "MDT0000:x", "OST0000:none", "MDTx:none", OTHER] {
            assert_eq!(wrong.parse::<KnownMdt>(), Err(Errno::EINVAL), "{wrong}");
        }
    });
}
