//! Sequences of hostile operations against live servers, from a seed: no panic, nothing left
//! behind, and no harm to a client beside it.
//!
//! One node sends whatever the random say: garbage, halves of messages, requests of every kind with
//! contents that are legal, nearly legal or noise, flags and transaction numbers of replays, the handles
//! of its own exports and of another client's, old xids again, writes whose bulk never comes, connects
//! and disconnects (`sheen_hostile::Requests` makes them). Now and then a target dies and comes back, so
//! that it replays what it likes into recovery windows. A mounted client works beside it and checks every
//! answer. In the end the hostile node falls silent, and nothing of it may be left.

#[path = "../common/mod.rs"]
mod common;
mod forged;
mod greedy;
mod restarts;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_assembly::{Role, Served, TargetLabel};
use sheen_client::data::DataTargets;
use sheen_client::posix::{Credentials, FileSystem, NewNode, NodeId, OpenFlags, SetAttributes};
use sheen_hostile::{Known, Range, Requests, ServerKind};
use sheen_io::World;
use sheen_rpc::REPLY_PORTALS;
use sheen_store_mem::StoreMem;
use sheen_types::{Errno, Fid, MatchBits, Name, Nid, Uuid, fid_seq};
use sheen_vnet::{SeededRandom, Virtual};
use sheen_wire::messages::Kind;
use sheen_wire::ost::OstId;

use common::{Cluster, REQUEST_PORTALS, Servers, client_nid, mounted, server_nid, start};

/// Operations of a run, and of a long one.
const OPERATIONS: u64 = 20_000;
const OPERATIONS_LONG: u64 = 1_000_000;
/// Hostile operations between two rounds of the client beside them.
const BETWEEN: u64 = 1_000;
/// Hostile operations sent before their answers are looked at. Garbage costs the connection and
/// whatever is on its way.
const BURST: u64 = 5;
/// Hostile operations between two restarts of a target, which loses what it had not committed.
const RESTART: u64 = 4_000;
/// How long a target that was killed is not there.
const OUTAGE: Duration = Duration::from_secs(5);
/// Transactions that one operation can become, at most.
const TRANSACTIONS_EACH: u64 = 4;
/// Numbers that a target may leave out at each start, and those of its own work.
const TRANSACTIONS_OF_A_START: u64 = 1 << 33;
/// Longer than a silent client is kept.
const SILENCE: Duration = Duration::from_secs(3_600);

/// How the hostile node calls itself.
const HOSTILE: &str = "hostile-";

/// Portals of all kinds of targets.
const RANGE: Range = Range {
    services: &[ServerKind::Mgs, ServerKind::Mdt, ServerKind::Ost],
    // A client that is admitted may fill the OSTs: the one beside it would get `ENOSPC`, and rightly.
    without: &[Kind::OstFallocate],
    portals: &REQUEST_PORTALS,
    client: HOSTILE,
    fsname: "lustre",
    objects: None,
};

/// Our client at `nid`, mounted.
async fn mounted_at(io: World, nid: Nid) -> FileSystem {
    let osts = DataTargets::new(io.clone());
    mounted(&io, nid, osts).await
}

/// A directory of the client's own: the hostile ones are root, too, and may do with the root directory what
/// root may, up to making it immutable.
async fn own_directory(files: &FileSystem) -> NodeId {
    let name = Name::new(b"neighbour".as_slice()).expect("a name");
    let who = Credentials::root();
    let made = files.make_node(&who, NodeId::ROOT, &name, 0o755, NewNode::Directory).await;
    made.expect("a directory").node
}

/// Takes from `directory` the flags that forbid changes. Here the hostile clients' root is root of the file
/// system (`forged` has it squashed), and may make a directory immutable that it knows; so may its neighbour's
/// root undo that. A flag that one client set, another may not clear: it is no harm.
async fn thaw(files: &FileSystem, directory: NodeId) {
    let changes = SetAttributes { flags: Some(0), ..SetAttributes::default() };
    files.setattr(&Credentials::root(), directory, None, changes).await.expect("root may");
}

/// One round of work in `directory`: makes a file, writes it, reads it back, removes it.
async fn work(files: &FileSystem, directory: NodeId, round: u64) {
    let who = Credentials::root();
    let name = Name::new(format!("file-{round}").as_bytes()).expect("a name");
    let flags = OpenFlags(OpenFlags::CREATE | OpenFlags::EXCLUSIVE | 2);
    let mut made = files.open_create(&who, directory, &name, 0o644, flags).await;
    if made.as_ref().is_err_and(|errno| *errno == Errno::EPERM) {
        thaw(files, directory).await;
        made = files.open_create(&who, directory, &name, 0o644, flags).await;
    }
    let (entry, opened) = made.unwrap_or_else(|errno| panic!("round {round}: create: {errno}"));
    let data: Bytes = (0..20_000u32).map(|at| (at as u64 ^ round) as u8).collect::<Vec<_>>().into();
    assert_eq!(files.write(opened.handle, 0, data.clone()).await, Ok(20_000), "round {round}");
    assert_eq!(files.fsync(opened.handle, false).await, Ok(()), "round {round}");
    let read = files.read(opened.handle, 0, 30_000).await.expect("it reads");
    let read: Vec<u8> = read.iter().flat_map(|piece| piece.to_vec()).collect();
    assert_eq!(read, data, "round {round}");
    files.release(opened.handle, None).await.expect("it closes");
    let mut gone = files.unlink(&who, directory, &name).await;
    if gone == Err(Errno::EPERM) {
        thaw(files, directory).await;
        gone = files.unlink(&who, directory, &name).await;
    }
    assert_eq!(gone, Ok(()), "round {round}");
    files.forget(entry.node, 1);
}

/// Fails if a target has locks, clients' exports or grants left.
fn check_gauges(served: &Served) {
    let view = served.target.view();
    let locks = (&view.locks.granted, &view.locks.waiting, view.locks.resources);
    assert_eq!(locks, (&[0; 4], &[0; 4], 0), "{}: locks are left", view.name);
    let clients: Vec<_> = view.exports.iter().map(|export| export.uuid.to_string()).collect();
    let hostile: Vec<_> = clients.iter().filter(|uuid| uuid.starts_with(HOSTILE)).collect();
    assert!(hostile.is_empty(), "{}: exports are left: {hostile:?}", view.name);
    if let Role::Ost(ost) = &served.role {
        assert_eq!(ost.grant_view().total, 0, "{}: grants are left", view.name);
    }
}

/// One target after the other dies, and comes back with what was durable: hostile clients replay
/// beside those that have something to replay.
fn restart(world: &Virtual, mut cluster: Cluster, number: usize) -> Cluster {
    let index = number % cluster.places.len();
    let place = cluster.places.swap_remove(index);
    let uuid = match &place.served.kind {
        TargetLabel::Mgs => Uuid::new("MGS"),
        TargetLabel::Target(name) => name.uuid(),
    };
    cluster.node.unregister(&uuid);
    world.end(place.scope);
    world.pass(OUTAGE);
    let store: Arc<StoreMem> = Arc::new(place.store.kill());
    let kind = place.served.kind.clone();
    drop(place);
    world.run(async move {
        let place = cluster.serve(kind, store).await;
        cluster.keep_osts(&place);
        cluster.places.push(place);
        let last = cluster.places.len() - 1;
        cluster.places.swap(index, last);
        cluster
    })
}

/// Each target's newest transaction.
fn transactions(cluster: &Cluster) -> BTreeMap<String, u64> {
    let views = cluster.places.iter().map(|place| place.served.target.view());
    views.map(|view| (view.name, view.last_transno.0.max(view.last_committed.0))).collect()
}

/// Fails if a target has given out more numbers than there were operations and starts.
fn check_transactions(before: &BTreeMap<String, u64>, cluster: &Cluster, operations: u64) {
    let starts = 2 + operations / RESTART;
    let most = starts * TRANSACTIONS_OF_A_START + (operations + BETWEEN) * TRANSACTIONS_EACH;
    for (name, now) in transactions(cluster) {
        let before = before[&name];
        assert!(now - before <= most, "{name}: transactions ran away: {before} -> {now}");
    }
}

/// The exports of the client beside it, as if they had leaked.
fn leak(known: &Known, cluster: &Cluster, neighbour: Nid) {
    for place in &cluster.places {
        let service = match &place.served.role {
            Role::Mgs(_) => ServerKind::Mgs,
            Role::Mdt(_) => ServerKind::Mdt,
            Role::Ost(_) => ServerKind::Ost,
        };
        let view = place.served.target.view();
        let of_neighbour = view.exports.iter().filter(|export| export.nid == neighbour);
        of_neighbour.for_each(|export| known.steal_handle(service, export.handle));
    }
}

#[test]
fn hostile_operations_leave_nothing_and_harm_no_other_client() {
    let seed = std::env::var("SHEEN_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let long = std::env::var_os("SHEEN_TEST_LONG").is_some();
    let count = if long { OPERATIONS_LONG } else { OPERATIONS };
    println!("{count} operations, SHEEN_SEED={seed}");
    let Servers { world, client, mut cluster } = start(seed);
    let neighbour = Nid::tcp(Ipv4Addr::new(10, 77, 0, 14));
    let files = Arc::new(world.run(mounted_at(world.world(), neighbour)));
    let own = Arc::clone(&files);
    let directory = world.run(async move { own_directory(&own).await });
    let known = Arc::new(Known::default());
    for portal in REPLY_PORTALS {
        client.serve(portal, Arc::clone(&known) as _);
    }
    known.add_fid(Fid::ROOT);
    known.add_object(OstId::of_fid(Fid::new(fid_seq::NORMAL, 1)));
    leak(&known, &cluster, neighbour);
    let before = transactions(&cluster);
    let mut requests = Requests::new(SeededRandom::new(seed), Arc::clone(&known), RANGE);
    for operation in 0..count {
        let packet = requests.next_packet();
        client.put(server_nid(), packet.portal, MatchBits(packet.xid), 0, vec![packet.bytes]);
        if operation % BURST == 0 {
            world.pass(Duration::from_millis(5));
        }
        if operation % BETWEEN == 0 {
            let files = Arc::clone(&files);
            world.run(async move { work(&files, directory, operation).await });
            check_transactions(&before, &cluster, operation);
            leak(&known, &cluster, neighbour);
        }
        if operation % RESTART == RESTART / 2 {
            cluster = restart(&world, cluster, (operation / RESTART) as usize);
        }
    }
    world.set_cut_off(client_nid().address(), true);
    world.pass(SILENCE);
    let again = Arc::clone(&files);
    world.run(async move { work(&again, directory, count).await });
    let leaving = Arc::clone(&files);
    world.run(async move { leaving.unmount().await });
    world.pass(Duration::from_secs(10));
    cluster.places.iter().for_each(|place| check_gauges(&place.served));
    check_transactions(&before, &cluster, count);
    let statuses = known.statuses();
    println!("answers by status: {statuses:?}");
    let well = statuses.get(&0).copied().unwrap_or(0);
    assert!(well >= count / 100, "too little came through: {statuses:?}");
}
