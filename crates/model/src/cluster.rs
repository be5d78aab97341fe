//! A cluster in one process and in virtual time: one server node with all targets, two clients.

use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use sheen_assembly::{NodeConnector, Registrar, Role, Served, TargetLabel};
use sheen_client::config::{self, MountOptions};
use sheen_client::data::DataTargets;
use sheen_client::locks::CallbackRouter;
use sheen_client::posix::{Credentials, FileSystem, NewNode, NodeId, XattrMode};
use sheen_layout::directory::{DirectoryWish, WishedStripes};
use sheen_layout::plan::{END_OF_FILE, Part, Plan, Striping};
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::RpcNode;
use sheen_store_mem::{MemOptions, StoreMem};
use sheen_target::Timeouts;
use sheen_types::{Name, Nid, TargetKind, TargetName};
use sheen_vnet::Virtual;

const FSNAME: &str = "model";
const PORT: u16 = 988;
const OSTS: u16 = 2;
/// MDTs where directories are in stripes.
const MDTS: u16 = 4;
/// The layout of such a directory (`lmv_mds_md_v1`).
const STRIPED_BYTES: usize = 56 + 16 * MDTS as usize;
/// `obd_timeout`; nothing fails here, so nothing waits for it.
const BASE: Duration = Duration::from_secs(100);

/// Where the data of new files lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On OSTs, as without any wish.
    Osts,
    /// The first 64 KiB on the MDT, the rest in stripes over all OSTs.
    Mdt,
    /// On OSTs, of files whose directories are in a stripe on each of four MDTs, but the root.
    Stripes,
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
            let mdts = if home == Home::Stripes { MDTS } else { 1 };
            let served = serve(&io, &server, mdts).await;
            let mut nodes = vec![server];
            let mut clients = Vec::new();
            for last in [2, 3] {
                let client = node(&io, last).await;
                clients.push(mount(&io, &client).await);
                nodes.push(client);
            }
            match home {
                Home::Osts => {}
                Home::Mdt => begin_on_mdt(&clients[0]).await,
                Home::Stripes => stripe_directories(&clients[0]).await,
            }
            let clients = clients.try_into().map_err(drop).expect("two were mounted");
            Self { clients, _served: served, _nodes: nodes }
        })
    }
}

async fn serve(world: &sheen_io::World, node: &Arc<RpcNode>, mdts: u16) -> Vec<Arc<Served>> {
    let name =
        |kind, index| TargetLabel::Target(TargetName { fsname: FSNAME.to_owned(), kind, index });
    let osts = (0..OSTS).map(|index| name(TargetKind::Ost, index));
    let mdts = (0..mdts).map(|index| name(TargetKind::Mdt, index));
    let plan = std::iter::once(TargetLabel::Mgs).chain(mdts).chain(osts);
    let mut served = Vec::new();
    for kind in plan {
        node.answer_at(kind.portals());
        let store = Arc::new(StoreMem::new(MemOptions::default()));
        let timeouts = Timeouts::from_base(BASE);
        let started = Served::start(kind, store, node, world.clone(), timeouts).await;
        let started = started.expect("an empty store starts");
        if let Role::Mdt(mdt) = &started.role {
            mdt.make_remote_directories(true);
        }
        served.push(Arc::new(started));
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

/// New directories are in stripes on all MDTs.
async fn stripe_directories(client: &FileSystem) {
    let count =
        NonZeroU32::new(u32::from(MDTS)).map_or(WishedStripes::Unsaid, WishedStripes::Count);
    let default = DirectoryWish { stripes: count, ..DirectoryWish::default() };
    let (root, value) = (Credentials::root(), default.to_ea().encode());
    client.getattr(&root, NodeId::ROOT).await.expect("a root");
    let set = client
        .setxattr(&root, NodeId::ROOT, b"sheen.directory_default", value, XattrMode::Any)
        .await;
    set.expect("a legal default");
    let name = Name::new(b"probe").expect("a legal name");
    let made = client.make_node(&root, NodeId::ROOT, &name, 0o755, NewNode::Directory).await;
    let node = made.expect("a new directory").node;
    let stripes = client.getxattr(&root, node, b"sheen.directory_stripes").await;
    assert_eq!(stripes.map(|it| it.len()), Ok(STRIPED_BYTES), "in stripes");
    client.forget(node, 1);
    client.rmdir(&root, NodeId::ROOT, &name).await.expect("an empty directory");
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
