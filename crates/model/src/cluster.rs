//! A cluster in one process and in virtual time: one server node with all targets, two clients.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use sheen_assembly::{NodeConnector, Registrar, Served, TargetLabel};
use sheen_client::config::{self, MountOptions};
use sheen_client::data::DataTargets;
use sheen_client::locks::CallbackRouter;
use sheen_client::posix::{Credentials, FileSystem, NodeId, XattrMode};
use sheen_layout::plan::{END_OF_FILE, Part, Plan, Striping};
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::RpcNode;
use sheen_store_mem::{MemOptions, StoreMem};
use sheen_target::Timeouts;
use sheen_types::{Nid, TargetKind, TargetName};
use sheen_vnet::Virtual;

const FSNAME: &str = "model";
const PORT: u16 = 988;
const OSTS: u16 = 2;
/// `obd_timeout`; nothing fails here, so nothing waits for it.
const BASE: Duration = Duration::from_secs(100);

/// Where the data of new files lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On OSTs, as without any wish.
    Osts,
    /// The first 64 KiB on the MDT, the rest in stripes over all OSTs.
    Mdt,
}

/// What lives as long as a run.
pub(crate) struct Cluster {
    /// The two mounts.
    pub(crate) clients: [FileSystem; 2],
    _served: Vec<Arc<Served>>,
    _nodes: Vec<Arc<RpcNode>>,
}

fn nid(last: u8) -> Nid {
    Nid::tcp(Ipv4Addr::new(10, 0, 0, last))
}

/// A node of its own in `world`.
async fn node(world: &sheen_io::World, last: u8) -> Arc<RpcNode> {
    let lnet = LNet::start(world.clone(), NetConfig::new(nid(last), PORT)).await;
    RpcNode::start(world.clone(), lnet.expect("no other node has the address"))
}

impl Cluster {
    /// Starts servers on empty stores and mounts twice.
    pub(crate) fn start(world: &Virtual, home: Home) -> Self {
        let io = world.world();
        world.run(async move {
            let server = node(&io, 1).await;
            let served = serve(&io, &server).await;
            let mut nodes = vec![server];
            let mut clients = Vec::new();
            for last in [2, 3] {
                let client = node(&io, last).await;
                clients.push(mount(&io, &client).await);
                nodes.push(client);
            }
            if home == Home::Mdt {
                begin_on_mdt(&clients[0]).await;
            }
            let clients = clients.try_into().map_err(drop).expect("two were mounted");
            Self { clients, _served: served, _nodes: nodes }
        })
    }
}

async fn serve(world: &sheen_io::World, node: &Arc<RpcNode>) -> Vec<Arc<Served>> {
    let name =
        |kind, index| TargetLabel::Target(TargetName { fsname: FSNAME.to_owned(), kind, index });
    let osts = (0..OSTS).map(|index| name(TargetKind::Ost, index));
    let plan = [TargetLabel::Mgs, name(TargetKind::Mdt, 0)].into_iter().chain(osts);
    let mut served = Vec::new();
    for kind in plan {
        node.answer_at(kind.portals());
        let store = Arc::new(StoreMem::new(MemOptions::default()));
        let timeouts = Timeouts::from_base(BASE);
        let started = Served::start(kind, store, node, world.clone(), timeouts).await;
        served.push(Arc::new(started.expect("an empty store starts")));
    }
    let registrar = Arc::new(Registrar::new(node, world, vec![nid(1)]));
    registrar.connect().await.expect("the MGS is here");
    for one in &served {
        registrar.register(one, "", false).await.expect("it is new");
        let keep = Arc::clone(&registrar).keep_connections(Arc::clone(one));
        world.tasks.spawn("mdt osts", Box::pin(keep));
    }
    served
}

async fn mount(world: &sheen_io::World, node: &Arc<RpcNode>) -> FileSystem {
    let router = Arc::new(CallbackRouter::default());
    node.register_callbacks(Arc::clone(&router) as _);
    let connector = Arc::new(NodeConnector(Arc::clone(node)));
    let options =
        MountOptions { fsname: FSNAME.to_owned(), mgs: vec![nid(1)], fileset: None, timeout: BASE };
    let data = DataTargets::new(world.clone());
    let mounted = config::mount(world.clone(), connector, router, data, options, None).await;
    mounted.unwrap_or_else(|error| panic!("mount: {error:?}"))
}

/// New files begin on the MDT.
async fn begin_on_mdt(client: &FileSystem) {
    const COMPONENT: u64 = 64 << 10;
    let striping = Striping { stripe_size: COMPONENT as u32, ..Striping::default() };
    let first = Striping { on_mdt: true, ..striping.clone() };
    let rest = Striping { stripe_count: OSTS, ..striping };
    let layout = Plan::Composite(vec![
        Part { start: 0, end: COMPONENT, striping: first },
        Part { start: COMPONENT, end: END_OF_FILE, striping: rest },
    ]);
    let layout = layout.encode();
    let (root, name) = (Credentials::root(), b"lustre.lov");
    client.getattr(&root, NodeId::ROOT).await.expect("a root");
    let set = client.setxattr(&root, NodeId::ROOT, name, layout, XattrMode::Any).await;
    set.expect("a legal layout");
}
