//! A client of a file system without a mount: for benchmarks that leave the kernel out.

use std::sync::Arc;

use sheen_assembly::NodeConnector;
use sheen_client::config::{self, MountOptions};
use sheen_client::data::Osts;
use sheen_client::locks::CallbackRouter;
use sheen_client::posix::FileSystem;
use sheen_io::World;
use sheen_node::rpc::RpcNode;
use sheen_types::Errno;

use super::mount::{TIMEOUT, parse_source, start_node};
use super::{PORT, addresses};
use crate::output::Fault;

/// How often another address is tried when somebody takes the one that was free.
const TRIES: usize = 16;

/// A connected client with a node, and so an address, of its own.
pub(crate) struct NativeClient {
    /// The file system.
    pub(crate) files: FileSystem,
    node: Arc<RpcNode>,
}

impl NativeClient {
    /// Connects to `MGSNID[:MGSNID...]:/FSNAME[/SUBDIR]`. What `set_param -P` told clients is not taken up.
    ///
    /// # Errors
    /// As a mount.
    pub(crate) async fn connect(
        world: &World,
        source: &str,
        port: Option<u16>,
    ) -> Result<Self, Fault> {
        let (mgs, fsname, fileset) = parse_source(source)?;
        let port = port.unwrap_or(PORT);
        let mut tries = 0;
        let node = loop {
            let nid = addresses::towards(mgs[0], port)
                .map_err(|text| Fault::new(Errno::EADDRNOTAVAIL, text))?;
            tries += 1;
            match start_node(world, nid, port).await {
                Err(fault) if taken(&fault) && tries < TRIES && nid.address().is_loopback() => {}
                started => break started?,
            }
        };
        let router = Arc::new(CallbackRouter::default());
        node.register_callbacks(Arc::clone(&router) as _);
        let connector = Arc::new(NodeConnector(Arc::clone(&node)));
        let data = Osts::new(world.clone());
        let plan = MountOptions { fsname, mgs, fileset, timeout: TIMEOUT };
        match config::mount(world.clone(), connector, router, data, plan, None).await {
            Ok(files) => Ok(Self { files, node }),
            Err(error) => {
                node.shutdown();
                node.lnet().shutdown();
                let hints = error.hints().join(" ");
                let text = format!("cannot connect to {source}: {error}. {hints}");
                Err(Fault::new(error.errno(), text.trim_end()))
            }
        }
    }

    /// Writes everything back and leaves all targets.
    pub(crate) async fn leave(&self) {
        self.files.unmount().await;
        self.node.shutdown();
        self.node.lnet().shutdown();
    }
}

fn taken(fault: &Fault) -> bool {
    *fault == Fault::new(Errno::EADDRINUSE, fault.text.clone())
}
