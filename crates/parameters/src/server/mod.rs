//! The parameters and commands of a server process.

mod budgets;
mod exports;
mod jobs;
mod locks;
mod osp;
mod recovery;
mod services;
mod settings;
mod store;
mod timeouts;

pub(crate) use jobs::escaped as escaped_job;
pub(crate) use locks::count as lock_count;
pub use osp::follow_osts;
pub(crate) use services::{samples as service_samples, services};
pub(crate) use settings::is_active;
pub(crate) use store::transfers;

use std::sync::Arc;
use std::time::Duration;

use sheen_assembly::{PlanKind, Role};
use sheen_control::Tree;
use sheen_mgs::{Mgs, PoolChange};
use sheen_node::rpc::RpcNode;
use sheen_target::Timeouts;
use sheen_types::{Errno, TargetKind};

use super::text::Since;
use super::{Commands, add_common, dump, node_commands, values};
use crate::EACH_LINE;
use crate::HostedTarget;
use sheen_control::api;

/// Adds what the targets of a server process show.
pub fn add_server(tree: &Tree, node: &Arc<RpcNode>, running: &[Arc<HostedTarget>]) {
    add_common(tree, &Arc::default());
    services::add(tree, node, running);
    budgets::add(tree, node);
    timeouts::add(tree, node, running);
    osp::add(tree, node, running);
    let all = running.to_vec();
    dump::add(tree, move || all.iter().for_each(|one| dump_locks(one)));
    let all = running.to_vec();
    tree.add("health_check", move || health(&all));
    let all = running.to_vec();
    tree.add("devices", move || devices(&all));
    for one in running {
        add_target(tree, one);
    }
}

/// Where a target's parameters stand.
fn root_of(one: &HostedTarget) -> String {
    match &one.served.kind {
        PlanKind::Mgs => "mgs.MGS".to_owned(),
        PlanKind::Target(name) if name.kind == TargetKind::Mdt => format!("mdt.{name}"),
        PlanKind::Target(name) => format!("obdfilter.{name}"),
    }
}

fn add_target(tree: &Tree, one: &Arc<HostedTarget>) {
    let root = root_of(one);
    let show = |leaf: &str, read: fn(&HostedTarget) -> String| {
        let one = Arc::clone(one);
        tree.add(&format!("{root}.{leaf}"), move || read(&one));
    };
    show("uuid", |one| one.served.target.config().uuid.to_string());
    show("num_exports", |one| one.served.target.exports().len().to_string());
    show("eviction_count", |one| one.served.target.evictions().to_string());
    store::add(tree, &root, one);
    locks::add(tree, one);
    budgets::add_target(tree, &root, one);
    exports::add(tree, &root, one);
    add_evict(tree, &root, one);
    if let Role::Mgs(mgs) = &one.served.role {
        add_mgs_only(tree, &root, one, mgs);
        return;
    }
    show("instance", |one| one.served.target.instance().to_string());
    show("recovery_status", |one| recovery::status(&one.served.target.view()));
    add_recovery_times(tree, &root, one);
    show("last_committed", |one| one.served.target.last_committed().to_string());
    add_sync(tree, &format!("{root}.force_sync"), one);
    jobs::add(tree, &root, one);
    add_statistics(tree, &root, one);
    settings::add(tree, &root, one);
}

/// How long recovery waits.
fn add_recovery_times(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    type Time = (&'static str, fn(&mut Timeouts) -> &mut Duration);
    let times: [Time; 2] = [
        ("recovery_time_soft", |timeouts| &mut timeouts.recovery_soft),
        ("recovery_time_hard", |timeouts| &mut timeouts.recovery_hard),
    ];
    for (leaf, of) in times {
        let (reader, writer) = (Arc::clone(one), Arc::clone(one));
        tree.add_writable(
            &format!("{root}.{leaf}"),
            move || seconds(*of(&mut reader.served.target.timeouts())),
            move |text| {
                let time = values::number_of_any_base(text)?;
                let time = values::within(time, 0, u32::MAX.into())?;
                writer.served.target.change_timeouts(|it| *of(it) = Duration::from_secs(time));
                Ok(())
            },
        );
    }
}

/// What only the MGS shows.
fn add_mgs_only(tree: &Tree, root: &str, one: &Arc<HostedTarget>, mgs: &Arc<Mgs>) {
    let directory = one.directory.display().to_string();
    tree.add(&format!("{root}.mntdev"), move || directory.clone());
    let (reader, writer) = (Arc::clone(mgs), Arc::clone(mgs));
    let mgs = Arc::clone(mgs);
    tree.add(&format!("{root}.filesystems"), move || {
        let logs = mgs.log_names();
        let names = logs.iter().filter_map(|log| log.strip_suffix("-client"));
        names.map(|name| format!("{name}\n")).collect()
    });
    // Of the module, in Lustre: it has no prefix.
    tree.add_writable(
        "allow_register",
        move || u8::from(reader.allows_register()).to_string(),
        move |text| {
            writer.allow_register(values::switch(text)?);
            Ok(())
        },
    );
}

fn seconds(time: Duration) -> String {
    time.as_secs().to_string()
}

fn add_evict(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    let (evict, handle) = (Arc::clone(one), tokio::runtime::Handle::current());
    tree.add_order(&format!("{root}.evict_client"), move |client| {
        match handle.block_on(evict.served.target.evict_client(client.trim())) {
            0 => Err(Errno::ENOENT),
            _ => Ok(()),
        }
    });
}

/// A write of any text waits until all changes so far are durable.
fn add_sync(tree: &Tree, name: &str, one: &Arc<HostedTarget>) {
    let (one, handle) = (Arc::clone(one), tokio::runtime::Handle::current());
    tree.add_order(name, move |_| handle.block_on(one.served.target.sync()));
}

/// What the role counted for all its clients. A write of any text clears it.
fn add_statistics(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    let leaf = match &one.served.role {
        Role::Mgs(_) => return,
        Role::Mdt(_) => "md_stats",
        Role::Ost(_) => "stats",
    };
    let since = Arc::new(Since::now());
    let (reader, writer, restart) = (Arc::clone(one), Arc::clone(one), Arc::clone(&since));
    tree.add_writable(
        &format!("{root}.{leaf}"),
        move || since.stats(&reader.served.target.samples()),
        move |_| {
            writer.served.target.clear_stats();
            restart.restart();
            Ok(())
        },
    );
}

/// As Lustre says it: a line for each target whose store takes no more changes.
fn health(all: &[Arc<HostedTarget>]) -> String {
    let sick = all.iter().filter(|one| !one.served.target.is_healthy());
    let sick: Vec<_> = sick
        .map(|one| format!("device {} reported unhealthy\n", one.served.target.name()))
        .collect();
    if sick.is_empty() { "healthy".to_owned() } else { sick.concat() + "NOT HEALTHY" }
}

/// The targets of this process, as `lctl dl` lists them behind their numbers.
fn device_lines(all: &[Arc<HostedTarget>]) -> impl Iterator<Item = String> {
    all.iter().map(|one| {
        let kind = match &one.served.kind {
            PlanKind::Mgs => "mgs",
            PlanKind::Target(name) if name.kind == TargetKind::Mdt => "mdt",
            PlanKind::Target(_) => "obdfilter",
        };
        let target = &one.served.target;
        let references = target.exports().len() + 4;
        format!("UP {kind} {} {} {references}\n", target.name(), target.config().uuid)
    })
}

fn devices(all: &[Arc<HostedTarget>]) -> String {
    device_lines(all).enumerate().map(|(number, line)| format!("{number:>3} {line}")).collect()
}

/// Logs all locks of a target; as warnings, since an operator requested them and a log shows nothing less by
/// default.
fn dump_locks(one: &HostedTarget) {
    let target = &one.served.target;
    for (resource, _) in target.namespace().resources() {
        for lock in target.namespace().dump(resource) {
            tracing::warn!(target: EACH_LINE, target = target.name(), owner = ?lock.owner, blocked = lock.is_waited_for,
                handle = %lock.handle, client = %lock.remote_handle, "lock {}", lock.desc);
        }
    }
}

/// Commands of a server process.
pub fn server_commands(node: &Arc<RpcNode>, running: &[Arc<HostedTarget>]) -> Commands {
    let mut commands = node_commands(node);
    let all = running.to_vec();
    let devices = move |_: &[String]| Ok(device_lines(&all).collect());
    commands.insert("devices".to_owned(), Box::new(devices));
    for one in running {
        if let Role::Mgs(mgs) = &one.served.role {
            add_mgs(&mut commands, mgs);
        }
    }
    commands
}

/// What only the MGS can do: parameters that reach everyone.
fn add_mgs(commands: &mut Commands, mgs: &Arc<Mgs>) {
    let handle = tokio::runtime::Handle::current();
    let said = |done: Result<(), Errno>| {
        done.map(|()| String::new()).map_err(|errno| (errno, errno.to_string()))
    };
    let (one, runtime) = (Arc::clone(mgs), handle.clone());
    let set_param = move |words: &[String]| {
        said(words.iter().try_for_each(|text| runtime.block_on(one.set_param(text))))
    };
    commands.insert(api::SET_PARAM.to_owned(), Box::new(set_param));
    let (one, runtime) = (Arc::clone(mgs), handle.clone());
    let pool = move |words: &[String]| {
        let wrong = || (Errno::EINVAL, "pool new|add|remove|destroy FSNAME POOL [OST]".to_owned());
        let [what, fsname, name, rest @ ..] = words else { return Err(wrong()) };
        let ost = || rest.first().and_then(|ost| ost.parse().ok()).ok_or_else(wrong);
        let change = match what.as_str() {
            "new" => PoolChange::New,
            "add" => PoolChange::Add(ost()?),
            "remove" => PoolChange::Remove(ost()?),
            "destroy" => PoolChange::Destroy,
            _ => return Err(wrong()),
        };
        said(runtime.block_on(one.pool(fsname, name, &change)))
    };
    commands.insert(api::POOL.to_owned(), Box::new(pool));
    let one = Arc::clone(mgs);
    let pools = move |words: &[String]| {
        let fsname = words.first().map_or("", String::as_str);
        let map = one.cluster_map(fsname).ok_or_else(|| (Errno::ENOENT, fsname.to_owned()))?;
        serde_json::to_string(&super::pools_of(fsname, &map.pools))
            .map_err(|error| (Errno::EIO, error.to_string()))
    };
    commands.insert(api::MGS_POOLS.to_owned(), Box::new(pools));
    let one = Arc::clone(mgs);
    let conf_param = move |words: &[String]| {
        said(words.iter().try_for_each(|text| handle.block_on(one.conf_param(text))))
    };
    commands.insert(api::CONF_PARAM.to_owned(), Box::new(conf_param));
}
