//! `sheen server`: hosts any set of targets in one process, at one NID.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use sheen_assembly::{PlanKind, Registrar, Role};
use sheen_control::Tree;
use sheen_io::World;
use sheen_io_os::Host;
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::RpcNode;
use sheen_target::Timeouts;
use sheen_types::{Errno, Nid};
use tokio::signal::unix::{SignalKind, signal};

use super::echo::Echo;
use super::target::{Plan, Running, plans, shared_by};
use super::{PORT, addresses, daemon, metrics, parameters};
use crate::output::Fault;

/// Lustre's `obd_timeout`, in seconds.
const TIMEOUT: u64 = 100;

/// Three ping intervals of a client with Lustre's timeout: clients are not told ours.
const PING_EVICT_MIN: Duration = Duration::from_secs(75);

/// Serve targets (MGT, MDT, OST) in the foreground until stopped
#[derive(Args)]
pub(crate) struct Server {
    /// Directories made by `mkfs.lustre`
    #[arg(required = true, value_name = "TARGETDIR")]
    directories: Vec<PathBuf>,
    /// Address that clients and other servers reach this process at
    #[arg(long, value_name = "NID")]
    nid: Nid,
    /// TCP port of LNet, the same on all nodes
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// Seconds that all timeouts derive from (`obd_timeout`)
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT)]
    timeout: u64,
    /// Seconds that a restarted target waits for clients it knows [default: 3 times the timeout]
    #[arg(long, value_name = "SECONDS")]
    recovery_time_soft: Option<u64>,
    /// Serve OpenMetrics over HTTP at this address, or at this port of this machine alone
    #[arg(long, value_name = "ADDR", value_parser = sheen_control::page_address)]
    metrics: Option<SocketAddr>,
}

impl Server {
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
    super::start_log();
    let served = serve(options);
    if let Err(fault) = &served {
        daemon::say_failed(&fault.text);
    }
    served
}

fn serve(options: &Server) -> Result<(), Fault> {
    let invalid = |text: String| super::invalid(text);
    let mut all: Vec<Plan> = Vec::new();
    for directory in &options.directories {
        all.extend(plans(directory)?);
    }
    all.sort_by_key(|plan| plan.kind != PlanKind::Mgs);
    let host = Host::start(None)
        .map_err(|error| Fault::new(Errno::EAGAIN, format!("no threads: {error}")))?;
    host.block_on(async {
        let world = host.world();
        let config = NetConfig::new(options.nid, options.port);
        let lnet = LNet::start(world.clone(), config).await.map_err(|error| {
            let (errno, text) = addresses::refused(options.nid.address(), options.port, &error);
            Fault::new(errno, text)
        })?;
        let node = RpcNode::start(world.clone(), lnet);
        for plan in &all {
            node.answer_at(plan.kind.portals());
        }
        let timeouts = options.timeouts();
        let count = all.len();
        let mgs_nids = mgs_nids(&all, options.nid).map_err(invalid)?;
        let mut running = Vec::new();
        let shares = shared_by(&all);
        for (plan, share) in all.into_iter().zip(shares) {
            let together = (count, share);
            let started = Running::start(plan, &node, world.clone(), together, timeouts).await;
            running.push(Arc::new(started?));
        }
        let registrar = Arc::new(Registrar::new(&node, &world, mgs_nids));
        registrar.connect().await.map_err(invalid)?;
        for one in &running {
            one.register(&registrar).await.map_err(invalid)?;
        }
        // Behind all registrations, so that an MDT finds the OSTs of its own process at once.
        for one in &running {
            let keep = Arc::clone(&registrar).keep_osts(Arc::clone(&one.served));
            world.tasks.spawn("mdt osts", Box::pin(keep));
        }
        let tree = Arc::new(Tree::new());
        parameters::add_server(&tree, &node, &running);
        parameters::add_in_work(&tree, &running);
        follow(&world, &registrar, &running, &tree);
        let echo = Echo::new(world.clone(), &running);
        let mut commands = parameters::server_commands(&node, &running);
        commands.insert(crate::api::ECHO.to_owned(), super::echo::command(&echo));
        let _control = control("server", tree, commands)?;
        let serve = |address| metrics::serve(address, &node, &running);
        let _metrics = options.metrics.map(serve).transpose()?;
        daemon::say_ready();
        wait_for_signal().await?;
        echo.end().await;
        stop(&node, &registrar, &running).await;
        Ok(())
    })
}

/// Has the targets do as the MGS says, now and whenever that changes.
fn follow(world: &World, registrar: &Registrar, running: &[Arc<Running>], tree: &Arc<Tree>) {
    let applied = Arc::new(parameters::Applied::default());
    let mut targets = Vec::new();
    for one in running {
        let PlanKind::Target(name) = &one.plan.kind else { continue };
        let mut pools = None;
        if let Role::Mdt(mdt) = &one.served.role {
            pools = Some(parameters::add_lod(tree, name, mdt));
            let (mdt, tree, applied) = (Arc::clone(mdt), Arc::clone(tree), Arc::clone(&applied));
            let osts = parameters::follow_osts(name.clone(), mdt, tree, applied);
            world.tasks.spawn("parameters of osts", Box::pin(osts));
        }
        targets.push(parameters::Followed { name: name.clone(), pools });
    }
    let reader = Arc::clone(registrar.reader());
    let follow = parameters::follow_servers(reader, targets, Arc::clone(tree), applied);
    world.tasks.spawn("parameters", Box::pin(follow));
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

/// Where the MGS is: here, or where the targets were told.
fn mgs_nids(plans: &[Plan], own: Nid) -> Result<Vec<Nid>, String> {
    if plans.iter().any(|plan| plan.kind == PlanKind::Mgs) {
        return Ok(vec![own]);
    }
    let told = plans.iter().find(|plan| !plan.mgs.is_empty()).map(|plan| plan.mgs.clone());
    told.ok_or_else(|| "no MGT among the targets, and none names an --mgsnode".to_owned())
}

/// Waits for SIGTERM or SIGINT.
pub(super) async fn wait_for_signal() -> Result<(), Fault> {
    let listen =
        |kind| signal(kind).map_err(|error| Fault::new(Errno::EIO, format!("no signals: {error}")));
    let (mut terminate, mut interrupt) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// MDTs first: they give objects back to OSTs that still answer.
async fn stop(node: &Arc<RpcNode>, registrar: &Registrar, running: &[Arc<Running>]) {
    registrar.close();
    for one in running.iter().rev() {
        if let Err(errno) = one.served.target.stop().await {
            tracing::error!(target = one.served.target.name(), %errno, "not everything is durable");
        }
    }
    node.shutdown();
    node.lnet().shutdown();
}
