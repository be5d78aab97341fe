//! What the tests share: our servers in virtual time, at the address that the captured ones had,
//! and our client on a node beside them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use sheen_assembly::{NodeConnector, Registrar, Role, Served, TargetLabel};
use sheen_client::config::{MountOptions, mount};
use sheen_client::data::DataTargets;
use sheen_client::locks::CallbackRouter;
use sheen_client::posix::FileSystem;
use sheen_io::World;
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::RpcNode;
use sheen_store_mem::{MemOptions, StoreMem};
use sheen_target::Timeouts;
use sheen_types::Nid;
use sheen_vnet::{NetworkConditions, Scope, Virtual};
use sheen_wire::lnet::Portal;

/// Where the captured servers were.
pub(crate) fn server_nid() -> Nid {
    Nid::tcp(Ipv4Addr::new(10, 77, 0, 11))
}

/// Where the captured client was.
pub(crate) fn client_nid() -> Nid {
    Nid::tcp(Ipv4Addr::new(10, 77, 0, 12))
}

/// LNet's port.
pub(crate) const PORT: u16 = 988;
/// OSTs of the captured file system.
pub(crate) const OSTS: u16 = 4;
/// Where servers of all kinds take requests.
pub(crate) const REQUEST_PORTALS: [Portal; 11] = [
    Portal::MGS_REQUEST,
    Portal::MDS_REQUEST,
    Portal::MDS_READPAGE,
    Portal::MDS_IO,
    Portal::SEQ_METADATA,
    Portal::FLD_REQUEST,
    Portal::OST_REQUEST,
    Portal::OST_CREATE,
    Portal::OST_IO,
    Portal::LDLM_CANCEL_REQUEST,
    Portal::OUT,
];
/// Space on each OST.
const OST_BYTES: u64 = 4 << 30;

/// The servers and the client's LNet.
pub(crate) struct Servers {
    pub(crate) world: Arc<Virtual>,
    pub(crate) client: Arc<LNet>,
    pub(crate) cluster: Cluster,
}

/// One node with all servers.
pub(crate) struct Cluster {
    world: Arc<Virtual>,
    pub(crate) node: Arc<RpcNode>,
    registrar: Arc<Registrar>,
    /// The MGS, the MDTs, and the OSTs.
    pub(crate) places: Vec<Place>,
}

/// A target, its store, and the tasks that end with it.
pub(crate) struct Place {
    #[allow(dead_code, reason = "hostile restarts nothing")]
    pub(crate) store: Arc<StoreMem>,
    pub(crate) served: Arc<Served>,
    #[allow(dead_code, reason = "hostile restarts nothing")]
    pub(crate) scope: Scope,
}

impl Cluster {
    /// Starts a target on its store.
    pub(crate) async fn serve(&self, kind: TargetLabel, store: Arc<StoreMem>) -> Place {
        let scope = self.world.scope();
        let io = self.world.world_of(scope);
        let timeouts = Timeouts::from_base(Duration::from_secs(100));
        let served =
            Served::start(kind, Arc::clone(&store) as _, &self.node, io.clone(), timeouts).await;
        let served = Arc::new(served.expect("a target that starts"));
        if let Role::Mdt(mdt) = &served.role {
            mdt.make_remote_directories(true);
        }
        Place { store, served, scope }
    }

    /// Connects the MDT to its OSTs; nothing for other targets.
    pub(crate) fn keep_osts(&self, place: &Place) {
        let keep = Arc::clone(&self.registrar).keep_connections(Arc::clone(&place.served));
        self.world.world_of(place.scope).tasks.spawn("mdt osts", Box::pin(keep));
    }
}

/// Starts one node with an MGS, an MDT and OSTs, and a bare LNet for the client.
#[allow(dead_code, reason = "the replay says how many MDTs")]
pub(crate) fn start(seed: u64) -> Servers {
    start_mdts(seed, 1)
}

/// The same with several MDTs.
pub(crate) fn start_mdts(seed: u64, mdts: u16) -> Servers {
    let conditions = NetworkConditions { chunks: false, ..NetworkConditions::default() };
    let world = Arc::new(Virtual::new(seed, conditions));
    let (io, owner) = (world.world(), Arc::clone(&world));
    let (client, cluster) = world.run(async move {
        let client = LNet::start(io.clone(), NetConfig::new(client_nid(), PORT)).await;
        let lnet = LNet::start(io.clone(), NetConfig::new(server_nid(), PORT)).await;
        let node = RpcNode::start(io.clone(), lnet.expect("the address is free"));
        let registrar = Arc::new(Registrar::new(&node, &io, vec![server_nid()]));
        let mut cluster = Cluster { world: owner, node, registrar, places: Vec::new() };
        let mut kinds = vec![TargetLabel::Mgs];
        let mut names: Vec<_> = (0..mdts).map(|index| format!("lustre-MDT{index:04x}")).collect();
        names.extend((0..OSTS).map(|index| format!("lustre-OST{index:04x}")));
        kinds.extend(names.iter().map(|name| TargetLabel::Target(name.parse().expect("a name"))));
        for kind in kinds {
            let options = MemOptions { capacity_bytes: Some(OST_BYTES), ..MemOptions::default() };
            let place = cluster.serve(kind, Arc::new(StoreMem::new(options))).await;
            cluster.places.push(place);
        }
        cluster.registrar.connect().await.expect("an MGS");
        for place in &cluster.places {
            let registered = cluster.registrar.register(&place.served, "", false).await;
            registered.expect("an MGS that takes it");
        }
        cluster.places.iter().for_each(|place| cluster.keep_osts(place));
        (client.expect("the address is free"), cluster)
    });
    // The MDT finds its OSTs and has objects made.
    world.pass(Duration::from_secs(15));
    Servers { world, client, cluster }
}

/// Our client on a node of its own at `nid`, mounted, with `data` for its data path.
pub(crate) async fn mounted(world: &World, nid: Nid, data: Arc<DataTargets>) -> FileSystem {
    let lnet = LNet::start(world.clone(), NetConfig::new(nid, PORT)).await;
    let node = RpcNode::start(world.clone(), lnet.expect("the address is free"));
    let router = Arc::new(CallbackRouter::default());
    node.register_callbacks(Arc::clone(&router) as _);
    let plan = MountOptions {
        fsname: "lustre".to_owned(),
        mgs: vec![server_nid()],
        fileset: None,
        timeout: Duration::from_secs(60),
    };
    let connector = Arc::new(NodeConnector(node));
    mount(world.clone(), connector, router, data, plan, None).await.expect("it mounts")
}
