//! A client of a file system without a mount: for benchmarks that leave the kernel out.

use std::sync::Arc;

use sheen_assembly::NodeConnector;
use sheen_client::config::{self, MountOptions};
use sheen_client::data::DataTargets;
use sheen_client::locks::CallbackRouter;
use sheen_client::posix::FileSystem;
use sheen_io::World;

use super::mount::TIMEOUT;
use super::mount_source::{MountSource, OwnNode};
use sheen_tools::output::Fault;

/// A connected client with a node, and so an address, of its own.
pub(crate) struct NativeClient {
    /// The file system.
    pub(crate) files: FileSystem,
    own: OwnNode,
}

impl NativeClient {
    /// Connects to `MGSNID[:MGSNID...]:/FSNAME[/SUBDIR]`, or to what `sheen up` runs in a directory. Parameters that
    /// `set_param -P` set for clients are not applied.
    ///
    /// # Errors
    /// As a mount.
    pub(crate) async fn connect(
        world: &World,
        source: &str,
        port: Option<u16>,
    ) -> Result<Self, Fault> {
        let found = MountSource::resolve(source.as_ref(), port, None)?;
        let own = found.start_node(world, None).await?;
        let (world, node) = (&own.world, &own.rpc);
        let router = Arc::new(CallbackRouter::default());
        node.register_callbacks(Arc::clone(&router) as _);
        let connector = Arc::new(NodeConnector(Arc::clone(node)));
        let data = DataTargets::new(world.clone());
        let (fsname, mgs, fileset) =
            (found.fsname.clone(), found.mgs.clone(), found.fileset.clone());
        let plan = MountOptions { fsname, mgs, fileset, timeout: TIMEOUT };
        let connected = tokio::select! {
            connected = config::mount(world.clone(), connector, router, data, plan, None) => connected,
            refused = found.refused(world, node.lnet()) => return Err(refused),
        };
        match connected {
            Ok(files) => Ok(Self { files, own }),
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
        self.own.rpc.shutdown();
        self.own.rpc.lnet().shutdown();
    }
}
