//! Server nodes: a process with targets at one NID, that can die and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_assembly::{Registrar, Role, Served, TargetLabel};
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::RpcNode;
use sheen_target::Timeouts;
use sheen_types::{Nid, TargetKind, TargetName};
use sheen_vnet::{Scope, Virtual};

use super::disk::Disk;
use super::service_cost::{Core, OnCore};
use super::{PORT, Past, TRUSTED};

/// `obd_timeout` of the servers: short, so that ten minutes see many recoveries.
const BASE: Duration = Duration::from_secs(20);
/// As the program has it: three ping intervals of a client.
const PING_EVICT: Duration = Duration::from_secs(75);

/// How long a target may be refused by an MGS in trouble.
const REGISTERS_WITHIN: Duration = Duration::from_secs(150);

/// A target and its disk.
pub(crate) struct HostedTarget {
    /// Which target.
    pub(crate) kind: TargetLabel,
    /// Where everything of it lies.
    pub(crate) disk: Disk,
}

/// What is set on MDTs before they answer anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MdtSettings {
    /// Whether root of strange nodes is squashed.
    pub(crate) squashes: bool,
    /// Whether directories are split and merged by command.
    pub(crate) restripes: bool,
    /// From how many names on directories are split; never if `None`.
    pub(crate) splits_from: Option<u64>,
    /// What each request costs; nothing if `None`.
    pub(crate) request_cost: Option<Duration>,
}

/// A node, up or down.
pub(crate) struct Server {
    /// Its address.
    pub(crate) nid: Nid,
    /// Its targets.
    pub(crate) hosted: Vec<HostedTarget>,
    mgs: Nid,
    settings: MdtSettings,
    /// Of its MDTs, if requests cost something.
    pub(crate) core: Option<Arc<Core>>,
    up: Mutex<Option<Up>>,
    starts: AtomicU64,
    past: Past,
}

struct Up {
    scope: Scope,
    /// Empty until they have started.
    served: Vec<Arc<Served>>,
    node: Option<(Arc<RpcNode>, Arc<Registrar>)>,
    /// All is registered: it stops in order from now on.
    is_ready: bool,
}

/// What every server's timeouts are.
pub(crate) fn timeouts() -> Timeouts {
    let mut timeouts = Timeouts::from_base(BASE);
    timeouts.ping_evict = timeouts.ping_evict.max(PING_EVICT);
    timeouts
}

impl Server {
    /// A node that is down.
    pub(crate) fn new(
        nid: Nid,
        mgs: Nid,
        hosted: Vec<HostedTarget>,
        settings: MdtSettings,
    ) -> Arc<Self> {
        let (up, starts, past) = (Mutex::new(None), AtomicU64::new(0), Past::default());
        let core = settings.request_cost.map(Core::new);
        Arc::new(Self { nid, hosted, mgs, settings, core, up, starts, past })
    }

    /// How often it was started.
    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Its first target, unless that is the MGS.
    pub(crate) fn target(&self) -> Option<TargetName> {
        match &self.hosted.first()?.kind {
            TargetLabel::Mgs => None,
            TargetLabel::Target(name) => Some(name.clone()),
        }
    }

    /// Whether its process runs.
    pub(crate) fn is_up(&self) -> bool {
        self.up.lock().is_some()
    }

    /// Whether all of its targets have started and have been announced.
    pub(crate) fn is_serving(&self) -> bool {
        let up = self.up.lock();
        up.as_ref().is_some_and(|up| up.served.len() == self.hosted.len() && up.node.is_some())
    }

    /// Whether it has come to the end of its start.
    pub(crate) fn is_ready(&self) -> bool {
        self.up.lock().as_ref().is_some_and(|up| up.is_ready)
    }

    /// The scope of its process.
    pub(crate) fn scope(&self) -> Option<Scope> {
        self.up.lock().as_ref().map(|up| up.scope)
    }

    /// Its targets, as far as they have started.
    pub(crate) fn served(&self) -> Vec<Arc<Served>> {
        self.up.lock().as_ref().map(|up| up.served.clone()).unwrap_or_default()
    }

    /// Starts the process; its targets come one after the other.
    pub(crate) fn start(self: &Arc<Self>, world: &Virtual) {
        let scope = world.scope();
        let mut up = self.up.lock();
        assert!(up.is_none(), "started once");
        self.starts.fetch_add(1, Ordering::Relaxed);
        *up = Some(Up { scope, served: Vec::new(), node: None, is_ready: false });
        drop(up);
        let (server, io) = (Arc::clone(self), world.world_of(scope));
        let task = async move {
            let nid = server.nid;
            if let Err(text) = server.serve(&io).await {
                panic!("the server at {nid} does not start: {text}");
            }
        };
        world.world_of(scope).tasks.spawn("server", Box::pin(task));
    }

    async fn serve(&self, world: &sheen_io::World) -> Result<(), String> {
        let config = NetConfig::new(self.nid, PORT);
        let lnet = LNet::start(world.clone(), config).await.map_err(|error| error.to_string())?;
        let node = RpcNode::start(world.clone(), lnet);
        self.past.add(&node);
        for hosted in &self.hosted {
            node.answer_at(hosted.kind.portals());
        }
        let mut running = Vec::new();
        for hosted in &self.hosted {
            let store = hosted.disk.open(world);
            let kind = hosted.kind.clone();
            let served = Served::start(kind, store, &node, world.clone(), timeouts()).await?;
            self.set(&served);
            self.put_on_core(&served, &node, world);
            running.push(Arc::new(served));
            if let Some(up) = &mut *self.up.lock() {
                up.served.clone_from(&running);
            }
        }
        let registrar = Arc::new(Registrar::new(&node, world, vec![self.mgs]));
        if let Some(up) = &mut *self.up.lock() {
            up.node = Some((Arc::clone(&node), Arc::clone(&registrar)));
        }
        registrar.connect().await?;
        for served in &running {
            self.register(world, &registrar, served).await?;
        }
        for served in &running {
            let keep = Arc::clone(&registrar).keep_connections(Arc::clone(served));
            world.tasks.spawn("mdt osts", Box::pin(keep));
        }
        if let Some(up) = &mut *self.up.lock() {
            up.is_ready = true;
        }
        Ok(())
    }

    /// An MDT takes time for each request from now on, if requests cost something.
    fn put_on_core(&self, served: &Served, node: &Arc<RpcNode>, world: &sheen_io::World) {
        let (Some(core), TargetLabel::Target(name)) = (&self.core, &served.kind) else { return };
        if name.kind != TargetKind::Mdt {
            return;
        }
        let (target, clock) = (Arc::clone(&served.target) as _, Arc::clone(&world.clock));
        let on_core = OnCore { target, core: Arc::clone(core), clock };
        node.register(name.uuid(), Arc::new(on_core), served.kind.portals());
    }

    /// Before it has answered anything.
    fn set(&self, served: &Served) {
        let Role::Mdt(mdt) = &served.role else { return };
        if self.settings.restripes {
            mdt.restripe_directories(true);
        }
        if let Some(names) = self.settings.splits_from {
            mdt.change_restripe_settings(|settings| {
                settings.splits_automatically = true;
                settings.set_split_count(names).expect("not 0");
                settings.set_split_delta(1).expect("not 0");
            });
        }
        if self.settings.squashes {
            let change = mdt.change_root_squash(|squash| {
                squash.set_root("99:99")?;
                squash.set_trusted(TRUSTED)
            });
            change.expect("a rule");
        }
    }

    /// As its operator would: again, while the MGS's disk answers with errors.
    async fn register(
        &self,
        world: &sheen_io::World,
        registrar: &Registrar,
        served: &Served,
    ) -> Result<(), String> {
        let known = served.target.instance() > 1;
        let limit = world.clock.now() + REGISTERS_WITHIN;
        while let Err(why) = registrar.register(served, "", known).await {
            if world.clock.now() > limit {
                return Err(why.to_string());
            }
            world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await;
        }
        Ok(())
    }

    /// The process dies; with `power`, so does the machine.
    pub(crate) fn crash(&self, world: &Virtual, power: bool) {
        let Some(up) = self.up.lock().take() else { return };
        if power {
            world.break_connections(self.nid.address());
        }
        world.end(up.scope);
        for hosted in &self.hosted {
            match power {
                true => hosted.disk.lost_power(world.random()),
                false => hosted.disk.killed(world.random()),
            }
        }
    }

    /// Its process ends, after [`Self::stop`].
    pub(crate) fn end_stopped(&self, world: &Virtual) {
        let Some(up) = self.up.lock().take() else { return };
        world.end(up.scope);
        self.hosted.iter().for_each(|hosted| hosted.disk.stopped());
    }

    /// Once no task runs any more.
    pub(crate) fn take_apart(&self) {
        self.up.lock().take();
        self.past.take_apart();
    }

    /// Stops in order, as at SIGTERM; everything is durable then.
    ///
    /// # Errors
    /// A target could not make everything durable.
    pub(crate) async fn stop(&self) -> Result<(), String> {
        let (served, node) = {
            let up = self.up.lock();
            let Some(up) = &*up else { return Ok(()) };
            (up.served.clone(), up.node.clone())
        };
        let Some((node, registrar)) = node else { return Err("it has not started".to_owned()) };
        registrar.leave().await;
        for one in served.iter().rev() {
            let stopped = one.target.stop().await;
            stopped.map_err(|errno| format!("{}: {errno}", one.target.name()))?;
        }
        node.shutdown();
        node.lnet().shutdown();
        Ok(())
    }
}
