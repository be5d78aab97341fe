//! The cluster: an MGS with an MDT, OSTs, further MDTs and clients, each a node that can die by itself.

mod client;
mod disk;
mod kernel;
mod server;
mod service_cost;
mod spreading;

use std::net::Ipv4Addr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_assembly::{Served, TargetLabel};
use sheen_node::rpc::RpcNode;
use sheen_types::{Nid, TargetKind, TargetName};
use sheen_vnet::Virtual;

pub(crate) use client::Client;
pub(crate) use disk::Disk;
pub(crate) use kernel::{Found, Kernel};
pub(crate) use server::{HostedTarget, MdtSettings, Server};
pub(crate) use sheen_store_mem::Errors;

/// The file system's name.
pub(crate) const FSNAME: &str = "sim";
/// LNet's port on all nodes.
pub(crate) const PORT: u16 = 988;
/// A node that belongs to no server or client.
pub(crate) fn hostile_nid() -> Nid {
    nid(250)
}

/// The nodes whose root is root, where one is hostile.
const TRUSTED: &str = "10.0.0.[1-199]@tcp";

/// What there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// MDTs: the first one with the MGS, each further one on a node of its own.
    pub(crate) mdts: u16,
    /// But all of them on that of the MGS.
    pub(crate) on_one_node: bool,
    /// OSTs, each on a node of its own.
    pub(crate) osts: u16,
    /// Client nodes.
    pub(crate) clients: u16,
    /// Bytes of an OST's disk.
    pub(crate) ost_bytes: Option<u64>,
    /// From how many opens on clients keep files open; 0 for never.
    pub(crate) keeps_from: u32,
    /// Whether root of other nodes than these is squashed.
    pub(crate) squashes: bool,
    /// Whether directories are split and merged by command.
    pub(crate) restripes: bool,
    /// From how many names on directories are split by the MDTs themselves; never if `None`.
    pub(crate) splits_from: Option<u64>,
    /// What each request costs an MDT in time, one after the other; nothing if `None`.
    pub(crate) request_cost: Option<Duration>,
}

/// The RPC of all processes that a node ever had. One that died has closed nothing, and what it serves
/// references it: freed in the end, so that a thousand clusters do not fill the memory.
#[derive(Default)]
struct Past(Mutex<Vec<Weak<RpcNode>>>);

impl Past {
    fn add(&self, node: &Arc<RpcNode>) {
        self.0.lock().push(Arc::downgrade(node));
    }

    fn take_apart(&self) {
        let nodes = std::mem::take(&mut *self.0.lock());
        for node in nodes.iter().filter_map(Weak::upgrade) {
            node.shutdown();
            node.lnet().shutdown();
        }
    }
}

/// All nodes. The first server has the MGS and MDT0000; then come OSTs, then further MDTs, if they are not on the first.
pub(crate) struct Cluster {
    /// Server nodes.
    pub(crate) servers: Vec<Arc<Server>>,
    /// Client nodes.
    pub(crate) clients: Vec<Arc<Client>>,
}

fn nid(last: u16) -> Nid {
    let [high, low] = last.to_be_bytes();
    Nid::tcp(Ipv4Addr::new(10, 0, high, low))
}

impl Cluster {
    /// Nodes that are down, with empty disks.
    pub(crate) fn new(shape: Shape) -> Self {
        let target = |kind, index| {
            TargetLabel::Target(TargetName { fsname: FSNAME.to_owned(), kind, index })
        };
        let mgs = nid(1);
        let place = |kind, bytes| HostedTarget { kind, disk: Disk::new(bytes) };
        let mdt = |index| place(target(TargetKind::Mdt, index), None);
        let mut first = vec![place(TargetLabel::Mgs, None), mdt(0)];
        let further = 1..shape.mdts;
        if shape.on_one_node {
            first.extend(further.clone().map(mdt));
        }
        let Shape { squashes, restripes, splits_from, request_cost, .. } = shape;
        let settings = MdtSettings { squashes, restripes, splits_from, request_cost };
        let mut servers = vec![Server::new(mgs, mgs, first, settings)];
        for index in 0..shape.osts {
            let ost = place(target(TargetKind::Ost, index), shape.ost_bytes);
            servers.push(Server::new(nid(10 + index), mgs, vec![ost], settings));
        }
        for index in further.filter(|_| !shape.on_one_node) {
            servers.push(Server::new(nid(50 + index), mgs, vec![mdt(index)], settings));
        }
        // One more than work: it comes in the end and looks.
        let clients =
            (0..=shape.clients).map(|number| Client::new(nid(100 + number), mgs, shape.keeps_from));
        Self { servers, clients: clients.collect() }
    }

    /// Frees what everything holds, once no task runs any more.
    pub(crate) fn take_apart(&self) {
        self.servers.iter().for_each(|server| server.take_apart());
        self.clients.iter().for_each(|client| client.take_apart());
    }

    /// Starts all servers.
    pub(crate) fn start(&self, world: &Virtual) {
        self.servers.iter().for_each(|server| server.start(world));
    }

    /// The nodes that work.
    pub(crate) fn nids(&self) -> impl Iterator<Item = Nid> {
        let clients = self.clients[..self.clients.len() - 1].iter().map(|client| client.nid);
        self.servers.iter().map(|server| server.nid).chain(clients)
    }

    /// All targets that have started.
    pub(crate) fn served(&self) -> Vec<Arc<Served>> {
        self.servers.iter().flat_map(|server| server.served()).collect()
    }

    /// Whether a server has an MDT.
    pub(crate) fn has_mdt(&self, number: usize) -> bool {
        self.has(number, TargetKind::Mdt)
    }

    fn has(&self, number: usize, kind: TargetKind) -> bool {
        let is_one = |place: &HostedTarget| matches!(&place.kind, TargetLabel::Target(name) if name.kind == kind);
        self.servers[number].hosted.iter().any(is_one)
    }

    /// The servers that have MDTs, by their numbers.
    pub(crate) fn mdts(&self) -> Vec<usize> {
        (0..self.servers.len()).filter(|number| self.has_mdt(*number)).collect()
    }

    /// The servers that have OSTs, by their numbers.
    pub(crate) fn osts(&self) -> Vec<usize> {
        (0..self.servers.len()).filter(|number| self.has(*number, TargetKind::Ost)).collect()
    }

    /// How often servers with MDTs were started, and whether all of them serve.
    pub(crate) fn mdts_state(&self) -> (u64, bool) {
        let mdts: Vec<_> = self.mdts().into_iter().map(|number| &self.servers[number]).collect();
        let starts = mdts.iter().map(|server| server.starts()).sum();
        (starts, mdts.iter().all(|server| server.is_serving()))
    }

    /// The targets of a kind, with their disks.
    pub(crate) fn targets(&self, kind: TargetKind) -> impl Iterator<Item = (&TargetName, &Disk)> {
        self.servers.iter().flat_map(|server| &server.hosted).filter_map(move |place| match &place
            .kind
        {
            TargetLabel::Target(name) if name.kind == kind => Some((name, &place.disk)),
            _ => None,
        })
    }
}
