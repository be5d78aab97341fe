//! The parameters and commands of a server process.

mod budgets;
mod devices;
mod exports;
mod jobs;
mod locks;
mod mgc;
mod mgs;
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

use sheen_assembly::{Role, TargetLabel};
use sheen_control::Tree;
use sheen_mgs::Mgs;
use sheen_node::rpc::RpcNode;
use sheen_target::{Target, Timeouts};
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
    mgc::add(tree, node, running);
    let all = running.to_vec();
    dump::add(tree, move || all.iter().for_each(|one| dump_locks(one)));
    let all = running.to_vec();
    tree.add("health_check", move || health(&all));
    let (all, own) = (running.to_vec(), Arc::clone(node));
    tree.add("devices", move || devices::numbered(&all, &own));
    for one in running {
        add_target(tree, one);
    }
}

/// Where a target's parameters stand.
fn root_of(one: &HostedTarget) -> String {
    match &one.served.kind {
        TargetLabel::Mgs => "mgs.MGS".to_owned(),
        TargetLabel::Target(name) if name.kind == TargetKind::Mdt => format!("mdt.{name}"),
        TargetLabel::Target(name) => format!("obdfilter.{name}"),
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
    add_recovery(tree, &root, one);
    add_recovery_times(tree, &root, one);
    show("last_committed", |one| one.served.target.last_committed().to_string());
    add_sync(tree, &format!("{root}.force_sync"), one);
    jobs::add(tree, &root, one);
    add_statistics(tree, &root, one);
    settings::add(tree, &root, one);
}

/// Where recovery is, and which clients are back.
fn add_recovery(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    type Read = fn(&Arc<Target>) -> String;
    let shown: [(&str, Read); 4] = [
        ("recovery_status", |target| recovery::status(&target.view())),
        ("recovery_stale_clients", |target| recovery::stale(target)),
        ("recovery_reconnect_top", |target| recovery::slowest(recovery::delays(target))),
        ("recovery_reconnect_histogram", |target| {
            recovery::histogram(&target.view().recovery, &recovery::delays(target))
        }),
    ];
    for (leaf, read) in shown {
        let one = Arc::clone(one);
        tree.add(&format!("{root}.{leaf}"), move || read(&one.served.target));
    }
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
    let (live, target) = (Arc::clone(&reader), Arc::clone(one));
    tree.add_branch(&format!("{root}.live"), move || mgs::live(&live, &target));
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
    let (all, own) = (running.to_vec(), Arc::clone(node));
    let devices = move |_: &[String]| Ok(devices::lines(&all, &own).concat());
    commands.insert("devices".to_owned(), Box::new(devices));
    commands.insert(api::ABORT_RECOVERY.to_owned(), abort_recovery(running));
    for one in running {
        if let Role::Mgs(mgs) = &one.served.role {
            mgs::add(&mut commands, mgs);
        }
    }
    commands
}

/// Ends the recovery of the target that the first word names, or that of MDTs with it; one that recovers no more is
/// left alone.
fn abort_recovery(running: &[Arc<HostedTarget>]) -> sheen_control::Command {
    let (all, handle) = (running.to_vec(), tokio::runtime::Handle::current());
    Box::new(move |words| {
        let name = words.first().map_or("", String::as_str);
        let one = all.iter().find(|one| one.served.target.name() == name);
        let one = one.ok_or_else(|| (Errno::ENODEV, format!("no target {name} here")))?;
        let target = &one.served.target;
        match words.get(1).map(String::as_str) {
            None => handle.block_on(target.abort_recovery()),
            Some("mdt") => handle.block_on(target.abort_recovery_of_mdts()),
            Some(other) => return Err((Errno::EINVAL, format!("no recovery of '{other}'"))),
        }
        Ok(String::new())
    })
}
