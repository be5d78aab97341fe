//! What a server's process answers beside its requests: parameters, commands of tools, metrics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sheen_assembly::{Registrar, Role, TargetLabel};
use sheen_control::{Tree, api};
use sheen_io::World;
use sheen_node::rpc::RpcNode;
use sheen_parameters::{self as parameters, HostedTarget};
use sheen_types::Nid;

use super::echo::{self, Echo};
use super::scrub::{self, Scrubs};
use super::server::{Accept, Server, control};
use super::target::Running;
use super::{origin, server_state};
use sheen_tools::output::{Fault, errno_of};

/// What tools ask this process: parameters, commands, metrics.
pub(super) struct ServerControl {
    ready: Arc<AtomicBool>,
    scrubs: Arc<Scrubs>,
    echo: Arc<Echo>,
    _server: sheen_control::Server,
    _metrics: Option<sheen_control::PageServer>,
}

impl ServerControl {
    pub(super) fn start(
        options: &Server,
        accept: Accept,
        (node, world): (&Arc<RpcNode>, &World),
        (registrar, mgs_nids, running): (&Registrar, &[Nid], &[Arc<Running>]),
    ) -> Result<Self, Fault> {
        let hosted: Vec<Arc<HostedTarget>> =
            running.iter().map(|one| Arc::clone(&one.hosted)).collect();
        let tree = Arc::new(Tree::new());
        parameters::add_server(&tree, node, &hosted);
        tree.add("accept", move || accept.word().to_owned());
        parameters::add_in_work(&tree, &hosted);
        follow(world, registrar, running, &tree);
        let echo = Echo::new(world.clone(), &hosted);
        let scrubs = Scrubs::new(world.clone(), &hosted);
        let ready = Arc::new(AtomicBool::new(false));
        let mut commands = parameters::server_commands(node, &hosted);
        commands.extend([
            (api::ECHO.to_owned(), echo::command(&echo)),
            (api::SCRUB.to_owned(), scrub::command(&scrubs)),
            (api::STATE.to_owned(), server_state::command(&hosted)),
            (api::READY.to_owned(), readiness(&ready)),
            (api::ORIGIN.to_owned(), origin::of_server(mgs_nids, options.port, &hosted)),
        ]);
        let metrics = |address| serve_metrics(address, node, &hosted);
        Ok(Self {
            _server: control("server", tree, commands)?,
            _metrics: options.metrics.map(metrics).transpose()?,
            ready,
            scrubs,
            echo,
        })
    }

    /// From now on it is answered that all targets serve.
    pub(super) fn is_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Ends what it has begun in the targets, before these stop.
    pub(super) async fn end(self) {
        self.scrubs.end();
        self.echo.end().await;
    }
}

fn readiness(ready: &Arc<AtomicBool>) -> sheen_control::Command {
    let ready = Arc::clone(ready);
    Box::new(move |_| {
        let said = if ready.load(Ordering::Acquire) { api::IS_READY } else { api::STARTS };
        Ok(said.to_owned())
    })
}

/// Applies the parameters and pools of the MGS to the targets, now and whenever they change.
fn follow(world: &World, registrar: &Registrar, running: &[Arc<Running>], tree: &Arc<Tree>) {
    let applied = Arc::new(parameters::Applied::default());
    let mut targets = Vec::new();
    for one in running {
        let TargetLabel::Target(name) = &one.plan.kind else { continue };
        let mut pools = None;
        if let Role::Mdt(mdt) = &one.served().role {
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

fn serve_metrics(
    address: SocketAddr,
    node: &Arc<RpcNode>,
    hosted: &[Arc<HostedTarget>],
) -> Result<sheen_control::PageServer, Fault> {
    parameters::metrics::serve(address, node, hosted).map_err(|error| {
        let text = format!("metrics cannot be served at {address}: {error}");
        Fault::new(errno_of(&error), text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ready_when_it_says_so() {
        let ready = Arc::new(AtomicBool::new(false));
        let command = readiness(&ready);
        assert_eq!(command(&[]), Ok(api::STARTS.to_owned()));
        ready.store(true, Ordering::Release);
        assert_eq!(command(&[]), Ok(api::IS_READY.to_owned()));
    }
}
