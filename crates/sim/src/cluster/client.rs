//! Client nodes: a process with a mount, that can die and come back as another client.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_assembly::NodeConnector;
use sheen_client::config::{self, MountOptions};
use sheen_client::data::DataTargets;
use sheen_client::locks::CallbackRouter;
use sheen_client::posix::FileSystem;
use sheen_io::World;
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::RpcNode;
use sheen_types::Nid;
use sheen_vnet::{Scope, Virtual};

use super::kernel::Kernel;
use super::{FSNAME, PORT, Past};

/// How long one attempt to mount waits.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// A node, up or down.
pub(crate) struct Client {
    /// Its address.
    pub(crate) nid: Nid,
    mgs: Nid,
    /// From how many opens on it keeps files open.
    keeps_from: u32,
    up: Mutex<Option<Up>>,
    past: Past,
}

struct Up {
    scope: Scope,
    node: Option<Arc<RpcNode>>,
    kernel: Option<Arc<Kernel>>,
}

impl Client {
    /// A node that is down.
    pub(crate) fn new(nid: Nid, mgs: Nid, keeps_from: u32) -> Arc<Self> {
        Arc::new(Self { nid, mgs, keeps_from, up: Mutex::new(None), past: Past::default() })
    }

    /// The scope of its process.
    pub(crate) fn scope(&self) -> Option<Scope> {
        self.up.lock().as_ref().map(|up| up.scope)
    }

    /// Its mount, once it has one.
    pub(crate) fn kernel(&self) -> Option<Arc<Kernel>> {
        self.up.lock().as_ref().and_then(|up| up.kernel.clone())
    }

    /// Starts the process, which mounts as soon as it can.
    pub(crate) fn start(self: &Arc<Self>, world: &Virtual) {
        let scope = world.scope();
        let mut up = self.up.lock();
        assert!(up.is_none(), "started once");
        *up = Some(Up { scope, node: None, kernel: None });
        drop(up);
        let (client, io) = (Arc::clone(self), world.world_of(scope));
        let task = async move { client.mount(&io).await };
        world.world_of(scope).tasks.spawn("mount", Box::pin(task));
    }

    async fn mount(&self, world: &World) {
        let config = NetConfig::new(self.nid, PORT);
        let lnet = LNet::start(world.clone(), config).await.expect("no other node has the address");
        let node = RpcNode::start(world.clone(), lnet);
        self.past.add(&node);
        if let Some(up) = &mut *self.up.lock() {
            up.node = Some(Arc::clone(&node));
        }
        let files = loop {
            match self.try_mount(world, &node).await {
                Ok(files) => break files,
                Err(_) => world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await,
            }
        };
        files.settings().open_cache.count.set(self.keeps_from);
        if let Some(up) = &mut *self.up.lock() {
            up.kernel = Some(Arc::new(Kernel::new(files, world.clone())));
        }
    }

    async fn try_mount(
        &self,
        world: &World,
        node: &Arc<RpcNode>,
    ) -> Result<FileSystem, config::MountError> {
        let router = Arc::new(CallbackRouter::default());
        node.register_callbacks(Arc::clone(&router) as _);
        let connector = Arc::new(NodeConnector(Arc::clone(node)));
        let options = MountOptions {
            fsname: FSNAME.to_owned(),
            mgs: vec![self.mgs],
            fileset: None,
            timeout: MOUNT_TIMEOUT,
        };
        let data = DataTargets::new(world.clone());
        config::mount(world.clone(), connector, router, data, options, None).await
    }

    /// The process dies; with `power`, what it has sent is lost on the way.
    pub(crate) fn crash(&self, world: &Virtual, power: bool) {
        let Some(up) = self.up.lock().take() else { return };
        if power {
            world.break_connections(self.nid.address());
        }
        world.end(up.scope);
    }

    /// Once no task runs any more.
    pub(crate) fn take_apart(&self) {
        self.up.lock().take();
        self.past.take_apart();
    }

    /// Unmounts and ends.
    pub(crate) async fn stop(&self) {
        let (node, kernel) = {
            let up = self.up.lock();
            let Some(up) = &*up else { return };
            (up.node.clone(), up.kernel.clone())
        };
        if let Some(kernel) = kernel {
            kernel.files.unmount().await;
        }
        if let Some(node) = node {
            node.shutdown();
            node.lnet().shutdown();
        }
    }
}
