//! `sheen server`: hosts any set of targets in one process, at one NID.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sheen_assembly::{Registrar, Role, TargetLabel};
use sheen_control::{Tree, VERSION};
use sheen_io::World;
use sheen_io_os::{Host, SocketFolder, with_sockets};
use sheen_mds::Mdt;
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::RpcNode;
use sheen_target::Timeouts;
use sheen_types::{Errno, Nid};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::folders::refuse_doubles;
use super::server_control::ServerControl;
use super::target::{Plan, Running, plans, shared_by};
use super::{PORT, addresses, daemon, folder_fault, mount_source, notify, store_memory};
use sheen_tools::output::{Fault, shown_path};

/// Lustre's `obd_timeout`, in seconds.
const TIMEOUT: u64 = 100;

/// Three ping intervals of a client with Lustre's timeout: clients do not know ours.
const PING_EVICT_MIN: Duration = Duration::from_secs(75);

/// How long MDTs of one process may take until all take clients, and have agreed with each other.
pub(super) const OPENED_WITHIN: Duration = Duration::from_secs(100);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(20);

/// Whom a server lets connect by TCP: the values of Lustre's `accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accept {
    /// Peers that connect from ports below 1024, which only root can use
    Secure,
    /// All peers
    All,
    /// No peers: what `sheen up` started on this machine connects through the sockets in its directory
    None,
}

impl Accept {
    /// As Lustre where only root is trusted to say who its users are. Another user's servers have clients
    /// without privilege, and connect to each other without.
    pub(super) fn by_default() -> Self {
        if rustix::process::geteuid().is_root() { Self::Secure } else { Self::All }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Secure => "secure",
            Self::All => "all",
            Self::None => "none",
        }
    }
}

/// Serve targets (MGT, MDT, OST) in the foreground until stopped
#[derive(Args)]
pub(crate) struct Server {
    /// Directories made by `mkfs.lustre`
    #[arg(required = true, value_name = "TARGETDIR")]
    directories: Vec<PathBuf>,
    /// NID at which clients and other servers reach this process
    #[arg(long, value_name = "NID")]
    nid: Nid,
    /// TCP port of LNet, the same on all nodes
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    pub(super) port: u16,
    /// Peers that may connect by TCP [default: secure for root; all for other users, whose clients have no
    /// privileged ports]
    #[arg(long, value_enum, value_name = "WHOM")]
    accept: Option<Accept>,
    /// Trust the NID that a privileged peer announces even if it connects from another address (servers with several
    /// addresses, NAT), as Lustre does; otherwise the peer gets none of the rights of that NID
    #[arg(long)]
    believe_nids: bool,
    /// Where the processes of the file system meet on this machine
    #[arg(long, value_name = "FOLDER", hide = true)]
    sockets: Option<PathBuf>,
    /// The base of all timeouts, in seconds (`obd_timeout`)
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT)]
    timeout: u64,
    /// Seconds that a restarted target waits for its clients to reconnect [default: 3 times the timeout]
    #[arg(long, value_name = "SECONDS")]
    recovery_time_soft: Option<u64>,
    /// Do not register new targets of other nodes (`lctl set_param allow_register=0`)
    #[arg(long)]
    no_new_targets: bool,
    /// Memory for the caches of all its stores together, in MiB [default: a sixteenth of the machine's, or of what its
    /// control group allows; 128 at least, 1024 at most]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    store_memory: Option<u64>,
    /// Serve metrics over HTTP, in the OpenMetrics format, at this address, or at this port of the loopback address
    #[arg(long, value_name = "ADDR", value_parser = sheen_control::page_address)]
    pub(super) metrics: Option<SocketAddr>,
}

impl Server {
    /// Which peers to accept; warns where Lustre's servers would not accept the same.
    fn accept(&self) -> Accept {
        let accept = self.accept.unwrap_or_else(Accept::by_default);
        let port = self.port;
        if accept == Accept::All && self.accept.is_none() {
            tracing::warn!(
                "accept=all: these servers are not root's, so their clients need no privilege either; any \
                 user who reaches port {port} may connect and say who it is (--accept secure: only root)"
            );
        }
        let unprivileged = sheen_io_os::port_unprivileged_min();
        if accept == Accept::Secure && unprivileged < 1024 {
            tracing::warn!(
                "accept=secure: every user of this machine may use ports from {unprivileged} on \
                 (net.ipv4.ip_unprivileged_port_start); from here only those below are taken"
            );
        }
        accept
    }

    fn timeouts(&self) -> Timeouts {
        let mut timeouts = Timeouts::from_base(Duration::from_secs(self.timeout));
        timeouts.ping_evict = timeouts.ping_evict.max(PING_EVICT_MIN);
        if let Some(seconds) = self.recovery_time_soft {
            timeouts.recovery_soft = Duration::from_secs(seconds);
        }
        timeouts
    }
}

/// Runs until SIGTERM or SIGINT; what was accepted is durable then.
pub(crate) fn run(options: &Server) -> Result<(), Fault> {
    super::log::start();
    super::raise_file_limit();
    let served = serve(options);
    if let Err(fault) = &served {
        daemon::say_failed(&fault.text);
    }
    served
}

fn serve(options: &Server) -> Result<(), Fault> {
    let plans = all_plans(&options.directories)?;
    let host = Host::start(None)
        .map_err(|error| Fault::new(Errno::EAGAIN, format!("no threads: {error}")))?;
    host.block_on(async {
        let mgs_nids = mgs_nids(&plans, options.nid).map_err(super::invalid)?;
        let accept = options.accept();
        log_start(options, accept, &plans);
        let (world, node) =
            start_node(&host.world(), options, accept, (&mgs_nids, plans.len())).await?;
        let served = names(&plans);
        let running = open_targets(plans, options, &node, &world).await?;
        let registrar = Arc::new(Registrar::new(&node, &world, mgs_nids.clone()));
        register(&running, &registrar, &world).await?;
        let parts = (&*registrar, &mgs_nids[..], &running[..]);
        let control = ServerControl::start(options, accept, (&node, &world), parts)?;
        let mut signals = EndSignals::new()?;
        let is_ready = tokio::select! {
            opened = opened(&running, &world) => opened.map(|()| true),
            () = signals.wait() => Ok(false),
        };
        if is_ready == Ok(true) {
            control.is_ready();
            daemon::say_ready();
            notify::status(&format!("serves {served} at {}", options.nid));
            notify::show_life(&world);
            tracing::info!(nid = %options.nid, "ready");
            signals.wait().await;
        }
        notify::stopping();
        tracing::info!(nid = %options.nid, "stops: clients stay recorded and are awaited at the next start");
        control.end().await;
        stop(&node, &registrar, &running).await;
        is_ready.map(drop)
    })
}

/// What the directories hold, the MGS first: the other targets register with it.
fn all_plans(directories: &[PathBuf]) -> Result<Vec<Plan>, Fault> {
    let mut all: Vec<Plan> = Vec::new();
    for directory in directories {
        all.extend(plans(directory)?);
    }
    refuse_doubles(&all)?;
    all.sort_by_key(|plan| plan.kind != TargetLabel::Mgs);
    Ok(all)
}

/// Opens the stores, one after the other, and serves them.
async fn open_targets(
    plans: Vec<Plan>,
    options: &Server,
    node: &Arc<RpcNode>,
    world: &World,
) -> Result<Vec<Arc<Running>>, Fault> {
    // Before the first one is open: a request for a portal without a service is refused.
    for plan in &plans {
        node.answer_at(plan.kind.portals());
    }
    let shares = shared_by(&plans);
    let memory = store_memory::of_each(plans.iter().map(|plan| &plan.kind), options.store_memory);
    let mib = memory.iter().fold(0, |all: usize, one| all.saturating_add(*one)) >> 20;
    tracing::info!(mib, "memory for the caches of its stores");
    let mut running = Vec::new();
    for (plan, share) in plans.into_iter().zip(memory.into_iter().zip(shares)) {
        daemon::say_doing(&format!("opening {}", plan.kind));
        let started = Running::start(plan, node, world.clone(), share, options.timeouts()).await?;
        if let Role::Mgs(mgs) = &started.served().role {
            mgs.allow_register(!options.no_new_targets);
        }
        running.push(Arc::new(started));
    }
    Ok(running)
}

/// Registers the targets with the MGS, and has MDTs connect to their OSTs and to each other.
async fn register(
    running: &[Arc<Running>],
    registrar: &Arc<Registrar>,
    world: &World,
) -> Result<(), Fault> {
    daemon::say_doing("waiting for the MGS");
    registrar.connect().await.map_err(super::invalid)?;
    for one in running {
        daemon::say_doing(&format!("registering {}", one.plan.kind));
        one.register(registrar).await.map_err(super::invalid)?;
    }
    // Behind all registrations, so that an MDT finds the OSTs of its own process at once.
    for one in running {
        let keep = Arc::clone(registrar).keep_connections(Arc::clone(one.served()));
        world.tasks.spawn("mdt connections", Box::pin(keep));
    }
    Ok(())
}

/// Waits until all MDTs take clients and have agreed with each other: before, a change of two of them is refused. Servers
/// that `up` starts are not ready without; a server that `up` has not started serves what it can, and the log says what does not go on.
///
/// # Errors
/// `EXDEV` or `ETIMEDOUT`, under `up`, if an MDT was refused by another one, or for no reason that is known.
async fn opened(running: &[Arc<Running>], world: &World) -> Result<(), Fault> {
    let (mdts, until) = (Mdts::of(running), world.clock.now() + OPENED_WITHIN);
    let mut said = String::new();
    while let Some(waits) = mdts.waiting() {
        let refused = mdts.refused();
        if refused.is_some() || world.clock.now() > until {
            let fault = refused.unwrap_or_else(|| Mdts::too_late(&waits));
            if daemon::is_supervised() {
                return Err(fault);
            }
            tracing::error!("{}", fault.text);
            break;
        }
        if said != waits {
            daemon::say_doing(&waits);
            said = waits;
        }
        world.clock.sleep_until(world.clock.now() + LOOK).await;
    }
    // MDT0000 may be on a machine that starts later.
    for mdt in mdts.0.iter().filter(|mdt| !mdt.1.is_open()) {
        daemon::say_doing(&mdts.waiting().unwrap_or_default());
        mdt.1.until_open().await;
    }
    Ok(())
}

/// What an MDT waits for of another one, as it follows "the server process is".
fn waiting_for(one: &TargetLabel, other: &TargetLabel) -> String {
    format!("waiting for the connection from {one} to {other}")
}

/// The MDTs of this process.
struct Mdts<'a>(Vec<(&'a Running, &'a Arc<Mdt>)>);

impl<'a> Mdts<'a> {
    fn of(running: &'a [Arc<Running>]) -> Self {
        let mdts = running.iter().filter_map(|one| match &one.served().role {
            Role::Mdt(mdt) => Some((&**one, mdt)),
            _ => None,
        });
        Self(mdts.collect())
    }

    /// Each with each other one.
    fn pairs(&self) -> impl Iterator<Item = [&(&'a Running, &'a Arc<Mdt>); 2]> {
        let all = self.0.iter();
        all.flat_map(|one| self.0.iter().map(move |other| [one, other]))
            .filter(|[one, other]| one.1.index() != other.1.index())
    }

    /// What is waited for.
    fn waiting(&self) -> Option<String> {
        if let Some((one, _)) = self.0.iter().find(|(_, mdt)| !mdt.is_open()) {
            return Some(format!("waiting for MDT0000, which assigns FIDs to {}", one.plan.kind));
        }
        let [(one, _), (other, _)] =
            self.pairs().find(|[one, other]| !one.1.agrees_with(other.1.index()))?;
        Some(waiting_for(&one.plan.kind, &other.plan.kind))
    }

    /// That one of them has refused another one.
    fn refused(&self) -> Option<Fault> {
        let [by, other] = self.pairs().find(|[by, other]| by.1.has_refused(other.1))?;
        let (place, by, other) = (shown_path(&other.0.plan.directory), &by.0.plan, &other.0.plan);
        let text = format!(
            "{place}: {} has refused it: it is not the {} that this file system has had so far; put that one back",
            by.kind, other.kind
        );
        Some(Fault::new(Errno::EXDEV, text))
    }

    fn too_late(waits: &str) -> Fault {
        let text = format!("{waits} took more than {} s", OPENED_WITHIN.as_secs());
        Fault::new(Errno::ETIMEDOUT, text)
    }
}

/// What the log begins with: what runs here, where, and what it serves.
fn log_start(options: &Server, accept: Accept, plans: &[Plan]) {
    tracing::info!(version = VERSION, nid = %options.nid, port = options.port, accept = accept.word(),
        timeout = options.timeout, targets = names(plans), "server starts");
}

fn names(plans: &[Plan]) -> String {
    plans.iter().map(|plan| plan.kind.to_string()).collect::<Vec<_>>().join(" ")
}

/// The node: at its address, and with the other processes of a file system that `up` runs here.
async fn start_node(
    world: &World,
    options: &Server,
    accept: Accept,
    (mgs, targets): (&[Nid], usize),
) -> Result<(World, Arc<RpcNode>), Fault> {
    let folder = match &options.sockets {
        Some(path) => Some(SocketFolder::open(path).map_err(|error| folder_fault(path, &error))?),
        None => mgs.iter().find_map(|nid| mount_source::find(*nid, options.port)),
    };
    let has_tcp = accept != Accept::None;
    let config = NetConfig {
        listen: has_tcp || folder.is_some(),
        secure: accept == Accept::Secure,
        believes_nids: options.believe_nids,
        connections_max: super::connections_max(targets),
        shares_processors: true,
        ..NetConfig::new(options.nid, options.port)
    };
    let world = match folder {
        Some(folder) => with_sockets(world, folder, has_tcp),
        None => world.clone(),
    };
    let lnet = LNet::start(world.clone(), config).await.map_err(|error| {
        let (errno, text) = addresses::refused(options.nid.address(), options.port, &error);
        Fault::new(errno, text)
    })?;
    let node = RpcNode::start(world.clone(), lnet);
    Ok((world, node))
}

/// The control socket of this process.
pub(super) fn control(
    name: &str,
    tree: Arc<Tree>,
    commands: BTreeMap<String, sheen_control::Command>,
) -> Result<sheen_control::Server, Fault> {
    let path = super::sockets().join(format!("{name}-{}.sock", std::process::id()));
    sheen_control::Server::start(&path, tree, commands)
        .map_err(|error| super::io_fault(&path, &error))
}

/// Where the MGS is: here, or at the `--mgsnode` of the targets.
fn mgs_nids(plans: &[Plan], own: Nid) -> Result<Vec<Nid>, String> {
    if plans.iter().any(|plan| plan.kind == TargetLabel::Mgs) {
        return Ok(vec![own]);
    }
    let named = plans.iter().find(|plan| !plan.mgs.is_empty()).map(|plan| plan.mgs.clone());
    named.ok_or_else(|| "none of the targets is an MGT or has an --mgsnode".to_owned())
}

/// SIGTERM and SIGINT, from when this is made on: none is missed, and none ends the process by itself.
pub(super) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl EndSignals {
    pub(super) fn new() -> Result<Self, Fault> {
        let listen = |kind| {
            signal(kind).map_err(|error| Fault::new(Errno::EIO, format!("no signals: {error}")))
        };
        let terminate = listen(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: listen(SignalKind::interrupt())? })
    }

    /// The next one.
    pub(super) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// MDTs first: they return unused objects to OSTs that still answer.
async fn stop(node: &Arc<RpcNode>, registrar: &Registrar, running: &[Arc<Running>]) {
    registrar.leave().await;
    for one in running.iter().rev() {
        if let Err(errno) = one.served().target.stop().await {
            tracing::error!(target = one.served().target.name(), %errno, "not everything is durable");
        }
    }
    node.shutdown();
    node.lnet().shutdown();
    running.iter().for_each(|one| one.close());
}
