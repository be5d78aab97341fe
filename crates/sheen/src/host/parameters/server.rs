//! What a server process shows and does.

use std::collections::BTreeMap;
use std::sync::Arc;

use sheen_assembly::{PlanKind, Role};
use sheen_control::Tree;
use sheen_mds::Mdt;
use sheen_mgs::{Mgs, PoolChange};
use sheen_node::rpc::RpcNode;
use sheen_oss::Ost;
use sheen_target::{Export, OperationStats, RecoveryStatus, TargetView};
use sheen_types::access::RootSquash;
use sheen_types::{Errno, Nid, Samples, TargetKind};

use super::super::target::Running;
use super::text::Since;
use super::{Commands, add_common, dump, node_commands, values};
use crate::api;

/// Adds what the targets of a server process show.
pub(crate) fn add_server(tree: &Tree, node: &Arc<RpcNode>, running: &[Arc<Running>]) {
    add_common(tree);
    let counts = |kind: TargetKind| {
        let of_kind = |one: &&Arc<Running>| match &one.plan.kind {
            PlanKind::Target(name) => name.kind == kind,
            PlanKind::Mgs => false,
        };
        running.iter().filter(of_kind).cloned().collect::<Vec<_>>()
    };
    for (name, all) in [
        ("mds.MDS.mdt.stats", counts(TargetKind::Mdt)),
        ("ost.OSS.ost.stats", counts(TargetKind::Ost)),
    ] {
        tree.add(name, move || stats(&summed(&all)));
    }
    let load = Arc::clone(node);
    let all = running.to_vec();
    dump::add(tree, move || all.iter().for_each(|one| dump_locks(one)));
    tree.add("ldlm.services.ldlm_canceld.req_active", move || load.service_load().0.to_string());
    for one in running {
        let root = match &one.plan.kind {
            PlanKind::Mgs => "mgs.MGS".to_owned(),
            PlanKind::Target(name) if name.kind == TargetKind::Mdt => format!("mdt.{name}"),
            PlanKind::Target(name) => format!("obdfilter.{name}"),
        };
        let show = |leaf: &str, read: fn(&Running) -> String| {
            let one = Arc::clone(one);
            tree.add(&format!("{root}.{leaf}"), move || read(&one));
        };
        show("uuid", |one| one.served.target.config().uuid.to_string());
        show("instance", |one| one.served.target.instance().to_string());
        show("num_exports", |one| one.served.target.exports().len().to_string());
        show("recovery_status", |one| recovery(&one.served.target.view()));
        show("last_committed", |one| one.served.target.last_committed().to_string());
        add_space(tree, &root, one);
        add_space(tree, &format!("osd-sheen.{}", one.served.target.name()), one);
        if let Role::Mdt(mdt) = &one.served.role {
            add_mdt(tree, &root, mdt);
            add_data(tree, &root, mdt);
        }
        if let Role::Ost(ost) = &one.served.role {
            add_ost(tree, &root, ost);
            show("tot_granted", |one| match &one.served.role {
                Role::Ost(ost) => ost.grant_view().total.to_string(),
                _ => String::new(),
            });
        }
        let evict = Arc::clone(one);
        let handle = tokio::runtime::Handle::current();
        tree.add_order(&format!("{root}.evict_client"), move |client| {
            match handle.block_on(evict.served.target.evict_client(client)) {
                0 => Err(Errno::ENOENT),
                _ => Ok(()),
            }
        });
        add_locks(tree, one);
        add_statistics(tree, &root, one);
        add_exports(tree, &root, one);
    }
}

/// What operators may say about who is root on an MDT.
fn add_mdt(tree: &Tree, root: &str, mdt: &Arc<Mdt>) {
    type Value = (&'static str, fn(&RootSquash) -> String, values::SetSquash);
    let settings: [Value; 2] = [
        ("root_squash", RootSquash::root, RootSquash::set_root),
        ("nosquash_nids", RootSquash::trusted, RootSquash::set_trusted),
    ];
    for (leaf, read, write) in settings {
        let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
        tree.add_writable(
            &format!("{root}.{leaf}"),
            move || read(&reader.root_squash()),
            move |text| writer.change_root_squash(|squash| write(squash, text)),
        );
    }
}

/// What operators may say about data on an MDT.
fn add_data(tree: &Tree, root: &str, mdt: &Arc<Mdt>) {
    let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
    tree.add_writable(
        &format!("{root}.dom_lock"),
        move || values::dom_lock_text(reader.dom_lock()).to_owned(),
        move |text| {
            writer.set_dom_lock(values::dom_lock(text)?);
            Ok(())
        },
    );
    let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
    tree.add_writable(
        &format!("{root}.dom_read_open"),
        move || u8::from(reader.reads_on_open()).to_string(),
        move |text| {
            writer.set_reads_on_open(values::switch(text)?);
            Ok(())
        },
    );
    let reader = Arc::clone(mdt);
    tree.add(&format!("{root}.tot_granted"), move || reader.grant_view().total.to_string());
}

/// What operators may say about an OST's disks.
fn add_ost(tree: &Tree, root: &str, ost: &Arc<Ost>) {
    type Switch = (&'static str, fn(&Ost) -> bool, fn(&Ost, bool));
    let switches: [Switch; 2] = [
        ("degraded", Ost::is_degraded, Ost::set_degraded),
        ("no_precreate", Ost::refuses_files, Ost::refuse_files),
    ];
    for (leaf, read, write) in switches {
        let (reader, writer) = (Arc::clone(ost), Arc::clone(ost));
        tree.add_writable(
            &format!("{root}.{leaf}"),
            move || u8::from(read(&reader)).to_string(),
            move |text| {
                write(&writer, values::switch(text)?);
                Ok(())
            },
        );
    }
}

fn add_space(tree: &Tree, root: &str, one: &Arc<Running>) {
    type Read = fn(&sheen_store::StoreSpace) -> u64;
    let shown: [(&str, Read); 5] = [
        ("kbytestotal", |space| space.total >> 10),
        ("kbytesfree", |space| space.free >> 10),
        ("kbytesavail", |space| space.available >> 10),
        ("filestotal", |space| space.objects),
        ("filesfree", |space| space.objects_free),
    ];
    for (leaf, read) in shown {
        let one = Arc::clone(one);
        tree.add(&format!("{root}.{leaf}"), move || space(&one, read));
    }
}

/// Logs all locks of a target; as warnings, since somebody asked to see them and a log shows nothing
/// less by default.
fn dump_locks(one: &Running) {
    let target = &one.served.target;
    for (resource, _) in target.namespace().resources() {
        for lock in target.namespace().dump(resource) {
            tracing::warn!(target = target.name(), owner = ?lock.owner, blocked = lock.blocked,
                handle = %lock.handle, client = %lock.remote_handle, "lock {}", lock.desc);
        }
    }
}

/// The locks that clients hold on the target.
fn add_locks(tree: &Tree, one: &Arc<Running>) {
    let name = one.served.target.name();
    let place = match &one.plan.kind {
        PlanKind::Mgs => "MGS".to_owned(),
        PlanKind::Target(target) if target.kind == TargetKind::Mdt => format!("mdt-{name}_UUID"),
        PlanKind::Target(_) => format!("filter-{name}_UUID"),
    };
    type Read = fn(&sheen_target::Gauges) -> u64;
    let shown: [(&str, Read); 2] = [
        ("lock_count", |gauges| {
            gauges.granted.iter().sum::<u64>() + gauges.waiting.iter().sum::<u64>()
        }),
        ("resource_count", |gauges| gauges.resources),
    ];
    for (leaf, read) in shown {
        let one = Arc::clone(one);
        tree.add(&format!("ldlm.namespaces.{place}.{leaf}"), move || {
            read(&one.served.target.view().locks).to_string()
        });
    }
}

/// What the role counted for all its clients. Whatever is written to it starts it anew.
fn add_statistics(tree: &Tree, root: &str, one: &Arc<Running>) {
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

/// The target's clients by node, as they are when somebody looks.
fn add_exports(tree: &Tree, root: &str, one: &Arc<Running>) {
    let one = Arc::clone(one);
    let since = Arc::new(Since::now());
    tree.add_branch(&format!("{root}.exports"), move || {
        let mut nodes: BTreeMap<Nid, Vec<Arc<Export>>> = BTreeMap::new();
        for export in one.served.target.exports() {
            nodes.entry(export.nid()).or_default().push(export);
        }
        let leaves = nodes.into_iter().flat_map(|(nid, exports)| {
            let (uuids, since) = (exports.clone(), Arc::clone(&since));
            let uuid = move || uuids.iter().map(|export| format!("{}\n", export.uuid())).collect();
            let stats = move || {
                let samples = exports.iter().map(|export| export.samples());
                since.stats(&joined(samples.collect()))
            };
            let leaf = |name: &str, read: Box<dyn Fn() -> String + Send + Sync>| {
                (format!("{nid}.{name}"), read)
            };
            [leaf("uuid", Box::new(uuid)), leaf("stats", Box::new(stats))]
        });
        leaves.collect()
    });
}

/// The samples of several clients of one node together.
fn joined(all: Vec<Vec<Samples>>) -> Vec<Samples> {
    let mut sums: Vec<Samples> = Vec::new();
    for samples in all.into_iter().flatten() {
        match sums.iter_mut().find(|sum| sum.line == samples.line) {
            None => sums.push(samples),
            Some(sum) => {
                sum.count += samples.count;
                sum.min = sum.min.min(samples.min);
                sum.max = sum.max.max(samples.max);
                sum.sum += samples.sum;
                sum.squared += samples.squared;
            }
        }
    }
    sums
}

fn space(one: &Running, read: fn(&sheen_store::StoreSpace) -> u64) -> String {
    one.served
        .target
        .store()
        .space()
        .map_or_else(|error| error.to_string(), |it| read(&it).to_string())
}

/// The requests of several targets together.
fn summed(all: &[Arc<Running>]) -> Vec<OperationStats> {
    let mut sums: Vec<OperationStats> = Vec::new();
    for operation in all.iter().flat_map(|one| one.served.target.view().stats.operations) {
        match sums.iter_mut().find(|sum| sum.kind == operation.kind) {
            None => sums.push(operation),
            Some(sum) => {
                sum.count += operation.count;
                sum.errors += operation.errors;
                sum.time_us += operation.time_us;
                sum.time_us_squared += operation.time_us_squared;
                sum.time_us_min = sum.time_us_min.min(operation.time_us_min);
                sum.time_us_max = sum.time_us_max.max(operation.time_us_max);
            }
        }
    }
    sums
}

/// Commands of a server process.
pub(crate) fn server_commands(node: &Arc<RpcNode>, running: &[Arc<Running>]) -> Commands {
    let mut commands = node_commands(node);
    let all = running.to_vec();
    let devices = move |_: &[String]| {
        let line = |one: &Arc<Running>| {
            let kind = match &one.plan.kind {
                PlanKind::Mgs => "mgs",
                PlanKind::Target(name) if name.kind == TargetKind::Mdt => "mdt",
                PlanKind::Target(_) => "obdfilter",
            };
            let target = &one.served.target;
            let references = target.exports().len() + 4;
            format!("UP {kind} {} {} {references}\n", target.name(), target.config().uuid)
        };
        Ok(all.iter().map(line).collect())
    };
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

/// Every request of a service, in the shape of a `stats` file.
fn stats(operations: &[OperationStats]) -> String {
    let mut text = String::new();
    for one in operations {
        let name = one.kind.format().name.to_lowercase();
        text += &format!(
            "{name:<35} {} samples [usecs] {} {} {} {}\n",
            one.count, one.time_us_min, one.time_us_max, one.time_us, one.time_us_squared
        );
    }
    text
}

fn recovery(view: &TargetView) -> String {
    let recovery = &view.recovery;
    let status = match recovery.status {
        RecoveryStatus::Inactive => "INACTIVE",
        RecoveryStatus::WaitingForClients => "WAITING_FOR_CLIENTS",
        RecoveryStatus::Recovering => "RECOVERING",
        RecoveryStatus::Complete => "COMPLETE",
    };
    if recovery.status == RecoveryStatus::Inactive {
        return format!("status: {status}\n");
    }
    let started = recovery.started.map_or(0, |started| started.seconds);
    let completed =
        recovery.connected.saturating_sub(recovery.replaying + recovery.replaying_locks);
    format!(
        "status: {status}\nrecovery_start: {started}\nrecovery_duration: {}\n\
         completed_clients: {completed}/{}\nreplayed_requests: {}\nlast_transno: {}\nVBR: DISABLED\n\
         IR: DISABLED\n",
        recovery.duration.as_secs(),
        recovery.known,
        recovery.replayed,
        view.last_transno,
    )
}
