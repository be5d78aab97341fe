//! Clients that claim to be servers, or to be other clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sheen_ldlm::Policy;
use sheen_types::{Errno, Fid, InodeBits, LockMode, Nid, ObdHandle, ResourceName, TargetName};
use sheen_wire::messages::{
    LdlmConvert, MdsDisconnect, MgsConnect, ObdPing, OstConnect, OstCreate, OstDestroy, OutUpdate,
};
use sheen_wire::text::Text;

use super::*;
use crate::ExportState;
use crate::testing::{TestCall, TestWorld, client_offer, server_offer};
use crate::tests::{finish_recovery, inode_lock, lock_handle, manual_store, modify, start};

const FAR: Nid = Nid(0x2_0000_0a00_0063);
const INODE: Fid = Fid::new(0x2_0000_0401, 2);

/// Knows of one server, or cannot say.
struct Nodes(Result<Nid, Errno>);

impl ServerNodes for Nodes {
    fn is_server(
        &self,
        nid: Nid,
        owner: Option<TargetName>,
    ) -> BoxFuture<'static, Result<bool, Errno>> {
        assert!(owner.is_none_or(|owner| owner.index == 0));
        let known = self.0.map(|known| known == nid);
        Box::pin(std::future::ready(known))
    }
}

#[test]
fn a_uuid_names_the_target_that_connects_by_it() {
    let named = |uuid: &str| owner(&Uuid::new(uuid)).map(|owner| owner.to_string());
    assert_eq!(named("lustre-MDT0001-mdtlov_UUID").as_deref(), Some("lustre-MDT0001"));
    let light = named("lustre-MDT0000-lwp-OST0002_UUID").expect("a target");
    assert!(light.ends_with("-OST0002"), "{light}");
    assert_eq!(named("a-b-OST00ff_UUID").as_deref(), Some("a-b-OST00ff"));
    for none in ["lustre-MDT0001", "x_UUID", "_UUID", "-_UUID", "lustre-MDTzzzz-x_UUID", "ü-ü_UUID"]
    {
        assert_eq!(named(none), None, "{none}");
    }
}

#[test]
fn a_claim_is_believed_of_this_node_and_of_registered_ones() {
    let world = TestWorld::new(60);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let claim = |flag| {
            let offer = client_offer();
            ObdConnectData { flags: offer.flags | flag, ..offer }
        };
        let flags = [ConnectFlags::MDS, ConnectFlags::MDS_MDS, ConnectFlags::LIGHTWEIGHT];
        let far = |name: &str| node.client_at(name, FAR);
        let refused = far("x").connect_with(server_offer()).await.map(|_| ());
        assert_eq!(refused, Err(Errno::EAGAIN), "no node can be asked yet");
        node.target.know_servers(Arc::new(Nodes(Err(Errno::EAGAIN))));
        let refused = far("x").connect_with(server_offer()).await.map(|_| ());
        assert_eq!(refused, Err(Errno::EAGAIN));
        node.target.know_servers(Arc::new(Nodes(Ok(Nid::tcp([10, 0, 0, 1].into())))));
        for flag in flags {
            let refused = far("x").connect_with(claim(flag)).await.map(|_| ());
            assert_eq!(refused, Err(Errno::EPERM), "{flag:?}");
        }
        let refused = far("lustre-MDT0000-mdtlov_UUID").connect().await.map(|_| ());
        assert_eq!(refused, Err(Errno::EPERM), "the name claims it");
        assert!(node.target.exports().is_empty());
        // A node that claims nothing is a client, wherever it is.
        let own = node.client_at("own", Nid::LOOPBACK);
        own.connect().await.unwrap();
        assert!(!node.target.export(own.handle()).unwrap().is_server());
        node.target.know_servers(Arc::new(Nodes(Ok(FAR))));
        let server = far("lustre-MDT0000-mdtlov_UUID");
        server.connect_with(server_offer()).await.unwrap();
        assert!(node.target.export(server.handle()).unwrap().is_server());
        server.connect_with(client_offer()).await.unwrap();
        assert!(node.target.export(server.handle()).unwrap().is_server(), "by its name");
    });
}

/// What only its own word says of a peer gives it no rights of the NID: nor may it go on where another was.
#[test]
fn a_nid_that_is_only_claimed_gives_no_rights() {
    let world = TestWorld::new(66);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.know_servers(Arc::new(Nodes(Ok(FAR))));
        let liar = node.client_at("liar", FAR);
        liar.set_proven(false);
        let refused = liar.connect_with(server_offer()).await.map(|_| ());
        assert_eq!(refused, Err(Errno::EPERM));
        liar.connect().await.expect("as a client it is what any is");
        assert_eq!(node.target.export(liar.handle()).unwrap().proven_nid(), None);
        assert_eq!(liar.call(ObdPing::default()).await.errno(), None);
        let server = node.client_at("lustre-MDT0000-mdtlov_UUID", FAR);
        server.connect_with(server_offer()).await.unwrap();
        assert_eq!(node.target.export(server.handle()).unwrap().proven_nid(), Some(FAR));
        let thief = server.stolen(FAR);
        thief.set_proven(false);
        assert_eq!(thief.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        assert_eq!(server.call(ObdPing::default()).await.errno(), None);
    });
}

/// A connect of another kind would come past the claims that are looked at: in the place of an MDT that is awaited, whose
/// UUID every client can guess.
#[test]
fn a_target_is_connected_to_by_connects_of_its_kind_alone() {
    let world = TestWorld::new(68);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        node.target.know_servers(Arc::new(Nodes(Ok(FAR))));
        let mdt = node.client_at("lustre-MDT0000-mdtlov_UUID", FAR);
        mdt.connect_with(server_offer()).await.unwrap();
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        node.target.know_servers(Arc::new(Nodes(Ok(FAR))));
        let tgtuuid = Text::new(node.target.config().uuid.as_str());
        let cluuid = Text::new("lustre-MDT0000-mdtlov_UUID");
        let (conn, cdata) = (ObdHandle(7), server_offer());
        let (at, name) = (tgtuuid.clone(), cluuid.clone());
        let of_mgs = MgsConnect {
            tgtuuid: at,
            cluuid: name,
            conn,
            cdata: cdata.clone(),
            ..MgsConnect::default()
        };
        let of_ost = OstConnect { tgtuuid, cluuid, conn, cdata, ..OstConnect::default() };
        let thief = node.client("thief");
        assert_eq!(thief.call(of_mgs).await.errno(), Some(Errno::EOPNOTSUPP));
        assert_eq!(thief.call(of_ost).await.errno(), Some(Errno::EOPNOTSUPP));
        let awaited = node.target.exports();
        assert!(awaited.iter().all(|export| export.state() == ExportState::Awaited), "it waits on");
        mdt.follow(&node).connect_with(server_offer()).await.expect("the MDT itself");
    });
}

/// Is asked of the first connect for a while, and of later ones not at all.
struct FirstTakesLong {
    world: TestWorld,
    is_asked: AtomicBool,
}

impl ServerNodes for FirstTakesLong {
    fn is_server(
        &self,
        nid: Nid,
        _: Option<TargetName>,
    ) -> BoxFuture<'static, Result<bool, Errno>> {
        let world = self.world.clone();
        let is_first = !self.is_asked.swap(true, Ordering::AcqRel);
        Box::pin(async move {
            if is_first {
                world.sleep(Duration::from_secs(3)).await;
            }
            Ok(nid == FAR)
        })
    }
}

/// A server dies, and its connect still waits for a disk or the MGS. In the place of its next start's it would stay, and
/// that start, which has been connected already, would be refused from then on.
#[test]
fn a_connect_of_a_servers_former_start_does_not_take_the_place_of_its_next_ones() {
    let world = TestWorld::new(69);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let nodes = FirstTakesLong { world: world.clone(), is_asked: AtomicBool::new(false) };
        node.target.know_servers(Arc::new(nodes));
        let begins = || node.client_at("lustre-MDT0000-mdtlov_UUID", FAR);
        let (former, later) = (begins(), begins());
        let dead = async move {
            let refused = former.connect_with(server_offer()).await.map(drop);
            assert_eq!(refused, Err(Errno::EALREADY), "another one has come since");
        };
        world.world().tasks.spawn("the former start", Box::pin(dead));
        world.sleep(Duration::from_secs(1)).await;
        later.connect_with(server_offer()).await.expect("it is the server now");
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(later.call(ObdPing::default()).await.errno(), None);
        later.connect_with(server_offer()).await.expect("it reconnects");
        let next = begins();
        next.connect_with(server_offer()).await.expect("a start after that comes in");
        assert_eq!(later.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        assert_eq!(next.call(ObdPing::default()).await.errno(), None);
    });
}

#[test]
fn only_servers_ask_what_servers_ask_of_each_other() {
    let world = TestWorld::new(61);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let client = node.connect("client").await;
        let server = node.connect_server("server").await;
        assert_eq!(client.call(OstCreate::default()).await.errno(), Some(Errno::EPERM));
        assert_eq!(client.call(OstDestroy::default()).await.errno(), Some(Errno::EPERM));
        assert_eq!(client.call(OutUpdate::default()).await.errno(), Some(Errno::EPERM));
        // What the role of these tests says of what it does not know.
        assert_eq!(server.call(OstCreate::default()).await.errno(), Some(Errno::EOPNOTSUPP));
        let local = crate::LocalClient::new(&node.target, "survey").unwrap();
        let asked = local.ask(OstDestroy::default()).await.map(|_| ());
        assert_eq!(asked, Err(Errno::EOPNOTSUPP));
    });
}

#[test]
fn a_client_is_not_evicted_by_another_with_its_uuid() {
    let world = TestWorld::new(62);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.know_servers(Arc::new(Nodes(Ok(Nid::tcp([10, 0, 0, 1].into())))));
        let client = node.connect("one").await;
        for offer in [client_offer(), server_offer()] {
            let refused = node.client_at("one", FAR).connect_with(offer).await.map(|_| ());
            assert!(refused.is_err());
            assert_eq!(client.call(ObdPing::default()).await.head.status, 0);
        }
    });
}

/// While the record of a new client becomes durable no other client connects over its export: should that fail,
/// the export goes with every client that had been admitted to it.
#[test]
fn no_client_connects_over_an_export_that_is_being_made() {
    let world = TestWorld::new(65);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let client = node.client("one");
        let twin = client.stolen(FAR);
        world.set_disk_time(Duration::from_secs(2));
        let first = client.clone();
        let task = async move { assert!(first.connect().await.is_ok()) };
        world.world().tasks.spawn("first", Box::pin(task));
        world.sleep(Duration::from_secs(1)).await;
        // It waits for that, and is too late then.
        assert_eq!(twin.connect().await.map(drop), Err(Errno::EALREADY));
        world.set_disk_time(Duration::ZERO);
        let export = node.target.export(client.handle()).unwrap();
        assert_ne!(export.nid(), FAR);
        assert_eq!(client.call(ObdPing::default()).await.errno(), None);
        let moved = client.stolen(FAR);
        moved.connect().await.expect("then it may go elsewhere");
    });
}

/// A client is silent from its first request on, not from the target's start: one whose first connect waits for the
/// disk was evicted by a look that came just then.
#[test]
fn a_client_whose_first_connect_waits_for_the_disk_is_not_silent() {
    let world = TestWorld::new(67);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let former = node.connect("former").await;
        world.sleep(node.target.config().timeouts.ping_evict * 2).await;
        assert_eq!(former.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        let seconds = node.target.config().timeouts.ping_evict / 2;
        world.set_disk_time(seconds);
        let client = node.client("one");
        assert_eq!(client.connect().await.map(drop), Ok(()));
        world.set_disk_time(Duration::ZERO);
        assert_eq!(client.call(ObdPing::default()).await.errno(), None);
        assert_eq!(node.target.stats().evictions, 1, "of the former one");
    });
}

#[test]
fn a_handle_is_good_only_at_the_node_that_connected() {
    let world = TestWorld::new(63);
    world.clone().run(async move {
        let store = manual_store();
        let (node, role) = start(&world, &store).await;
        let client = node.connect("one").await;
        let lock = lock_handle(&client.call(inode_lock(LockMode::Pr, 0x21)).await);
        let thief = client.stolen(FAR);
        let gone = Some(Errno::ENOTCONN);
        assert_eq!(thief.call(ObdPing::default()).await.errno(), gone);
        assert_eq!(thief.cancel(&[lock]).await.errno(), gone);
        assert_eq!(thief.call(MdsDisconnect::default()).await.errno(), gone);
        let change = TestCall::new(sheen_wire::messages::MdsReintSetattr::default()).tagged(1);
        assert_eq!(thief.call_with(change).await.unwrap().errno(), gone);
        assert_eq!(role.executed(), 0);
        let export = node.target.export(client.handle()).unwrap();
        assert_eq!(export.state(), ExportState::Full);
        assert!(node.target.namespace().lock(lock).is_some());
        modify(&client, 1).await;
        // The client itself may go to another node: its connect names the new one, also after a
        // restart.
        let moved = client.stolen(FAR);
        moved.connect().await.unwrap();
        assert_eq!(export.nid(), FAR);
        modify(&moved, 2).await;
        assert_eq!(client.call(ObdPing::default()).await.errno(), gone);
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        let back = moved.follow(&node).stolen(Nid::tcp([10, 0, 0, 9].into()));
        back.connect().await.unwrap();
        finish_recovery(&back).await;
        modify(&back, 3).await;
    });
}

#[test]
fn a_lock_is_cancelled_by_its_owner_alone() {
    let world = TestWorld::new(64);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        let lock = lock_handle(&one.call(inode_lock(LockMode::Pr, 0x21)).await);
        assert_eq!(two.cancel(&[lock]).await.errno(), Some(Errno::ESTALE));
        let mut dlm_req = sheen_wire::ldlm::LdlmRequest::cancel(vec![lock]);
        dlm_req.desc.req_mode = LockMode::Pr.into();
        let convert = LdlmConvert { dlm_req, ..LdlmConvert::default() };
        assert_ne!(two.call(convert).await.head.status, 0);
        let (name, policy) = (ResourceName::of_fid(INODE), Policy::bits(InodeBits::LOOKUP));
        assert!(node.target.try_lock(name, policy, LockMode::Ex).is_none(), "it is still held");
    });
}
