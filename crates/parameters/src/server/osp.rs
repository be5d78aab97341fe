//! `osp.*`: the OSTs as the MDTs of this process see them: active or not, connected or not, their space, and
//! the precreated objects; and the other MDTs.

use std::collections::BTreeSet;
use std::sync::Arc;

use sheen_assembly::{Role, TargetLabel};
use sheen_control::{Leaf, Leaves, Tree};
use sheen_mds::{Mdt, OstUpdateView, OstView};
use sheen_node::rpc::{ImportReport, RpcNode};
use sheen_types::{Errno, TargetKind, TargetName, Uuid};
use sheen_wire::lnet::Portal;
use sheen_wire::md::ObdStatfs;

use crate::HostedTarget;
use crate::device::state_letters;
use crate::text::{Clock, Since, today};
use crate::{Applied, features, imports, values};

/// What makes the text of a connection: its device's name comes first.
type Text = fn(&str, &ImportReport, &Clock) -> String;

/// What is shown of each connection.
const CONNECTION: [(&str, Text); 3] = [
    ("connect_flags", |_, report, _| features::connect_flags(&report.data)),
    ("import", |name, report, clock| imports::import(name, report, &[], clock)),
    ("state", |_, report, clock| imports::state(report, clock)),
];
/// And of that to an OST, and to an MDT.
const OST_CONNECTION: [(&str, Text); 3] = [
    ("ost_conn_uuid", connected_to),
    ("ost_server_uuid", server),
    ("timeouts", |_, report, clock| imports::timeouts(report, Portal::OST_REQUEST.0, clock)),
];
const MDT_CONNECTION: [(&str, Text); 3] = [
    ("mdt_conn_uuid", connected_to),
    ("mdt_server_uuid", server),
    ("timeouts", |_, report, clock| imports::timeouts(report, Portal::OUT.0, clock)),
];

fn connected_to(_: &str, report: &ImportReport, _: &Clock) -> String {
    report.peer.to_string()
}

fn server(_: &str, report: &ImportReport, _: &Clock) -> String {
    format!("{}\t{}", report.target, report.state)
}

type Count = fn(&OstUpdateView) -> u64;

/// What is to be done on an OST (Lustre: `osp_sync`), by its names. An OST answers when its disk has a change, so nothing
/// is sent and not done.
const UPDATES: [(&str, Count); 4] = [
    ("destroys_in_flight", |view| view.waiting + view.in_flight),
    ("sync_changes", |view| view.waiting),
    ("sync_in_flight", |view| view.in_flight),
    ("sync_in_progress", |view| view.in_flight),
];

type Space = fn(&ObdStatfs) -> String;

/// The space of an OST, as it reported it last.
const SPACE: [(&str, Space); 9] = [
    ("blocksize", |space| space.bsize.to_string()),
    ("kbytestotal", |space| kib(space, space.blocks)),
    ("kbytesfree", |space| kib(space, space.bfree)),
    ("kbytesavail", |space| kib(space, space.bavail)),
    ("filestotal", |space| space.files.to_string()),
    ("filesfree", |space| space.ffree.to_string()),
    ("maxbytes", |space| space.maxbytes.to_string()),
    ("namelen_max", |space| space.namelen.to_string()),
    ("statfs_state", |space| state_letters(space.state.0)),
];

fn kib(space: &ObdStatfs, blocks: u64) -> String {
    (blocks.saturating_mul(space.bsize.into()) >> 10).to_string()
}

/// Adds them; each reading shows those of that moment.
pub(super) fn add(tree: &Tree, node: &Arc<RpcNode>, running: &[Arc<HostedTarget>]) {
    let mdt = |one: &Arc<HostedTarget>| match (&one.served.kind, &one.served.role) {
        (TargetLabel::Target(name), Role::Mdt(mdt)) => {
            Some((name.clone(), Arc::clone(mdt), Arc::clone(one)))
        }
        _ => None,
    };
    let mdts: Vec<(TargetName, Arc<Mdt>, Arc<HostedTarget>)> =
        running.iter().filter_map(mdt).collect();
    let (node, since) = (Arc::clone(node), Arc::new(Since::now()));
    tree.add_branch("osp", move || {
        let mut leaves = Leaves::new();
        for (name, mdt, one) in &mdts {
            for ost in mdt.osts() {
                let device = device(name, ost.index);
                add_view(&mut leaves, (&device, name), &ost);
                add_updates(&mut leaves, &device, mdt, ost.index);
                let connection = connection_of(&node, name, &ost_of(name, ost.index));
                add_requests(&mut leaves, &device, &since, &connection);
                let shown = CONNECTION.iter().chain(&OST_CONNECTION);
                add_connection(&mut leaves, &device, (one, &connection), shown);
            }
            for other in mdt.other_mdts() {
                let device = mdt_device(name, other.index);
                let connection = connection_of(&node, name, &mdt_of(name, other.index));
                add_requests(&mut leaves, &device, &since, &connection);
                let shown = CONNECTION.iter().chain(&MDT_CONNECTION);
                add_connection(&mut leaves, &device, (one, &connection), shown);
            }
        }
        leaves
    });
}

/// A connection as it is when it is asked for.
type Connection = Arc<dyn Fn() -> Option<ImportReport> + Send + Sync>;

fn connection_of(node: &Arc<RpcNode>, mdt: &TargetName, target: &TargetName) -> Connection {
    let (node, client, target) = (Arc::clone(node), client(mdt), target.uuid());
    Arc::new(move || node.import_between(&client, &target))
}

/// As whom an MDT connects to OSTs and to other MDTs.
pub(super) fn client(mdt: &TargetName) -> Uuid {
    Uuid::new(format!("{mdt}-mdtlov_UUID"))
}

/// An OST of an MDT's file system.
pub(super) fn ost_of(mdt: &TargetName, index: u16) -> TargetName {
    TargetName { fsname: mdt.fsname.clone(), kind: TargetKind::Ost, index }
}

/// Another MDT of an MDT's file system.
pub(super) fn mdt_of(mdt: &TargetName, index: u16) -> TargetName {
    TargetName { fsname: mdt.fsname.clone(), kind: TargetKind::Mdt, index }
}

/// The name of an MDT's device for another MDT.
pub(super) fn mdt_device(mdt: &TargetName, other: u16) -> String {
    format!("{}-MDT{other:04x}-osp-MDT{:04x}", mdt.fsname, mdt.index)
}

/// The name of an MDT's device for an OST.
pub(super) fn device(mdt: &TargetName, ost: u16) -> String {
    format!("{}-OST{ost:04x}-osc-MDT{:04x}", mdt.fsname, mdt.index)
}

/// Adds what can be set of each OST of an MDT, also of those that come later, and applies the permanent
/// settings. Runs for ever.
pub async fn follow_osts(name: TargetName, mdt: Arc<Mdt>, tree: Arc<Tree>, applied: Arc<Applied>) {
    let mut known = BTreeSet::new();
    loop {
        for ost in mdt.osts() {
            if known.insert(ost.index) {
                for (leaf, setting) in SETTINGS {
                    let leaf = format!("osp.{}.{leaf}", device(&name, ost.index));
                    add_setting(&tree, &leaf, (&mdt, ost.index), setting);
                    applied.catch_up_at(&tree, &leaf);
                }
            }
        }
        mdt.ost_added().await;
    }
}

/// How a setting of an OST is shown and changed.
type Setting = (fn(&OstView) -> u64, fn(&Mdt, u16, &str) -> Result<(), Errno>);

const SETTINGS: [(&str, Setting); 3] = [
    (
        "active",
        (
            |ost| ost.is_active.into(),
            |mdt, index, text| mdt.set_ost_active(index, values::switch(text)?),
        ),
    ),
    (
        "create_count",
        (
            |ost| ost.create_count,
            |mdt, index, text| mdt.set_ost_create_count(index, values::number_of_any_base(text)?),
        ),
    ),
    (
        "max_create_count",
        (
            |ost| ost.max_create_count,
            |mdt, index, text| {
                mdt.set_ost_max_create_count(index, values::number_of_any_base(text)?)
            },
        ),
    ),
];

fn add_setting(tree: &Tree, leaf: &str, (mdt, index): (&Arc<Mdt>, u16), (show, change): Setting) {
    let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
    tree.add_writable(
        leaf,
        move || {
            let osts = reader.osts();
            let shown = osts.iter().find(|ost| ost.index == index).map(show);
            shown.unwrap_or_default().to_string()
        },
        move |text| change(&writer, index, text),
    );
}

fn add_view(leaves: &mut Leaves, (device, mdt): (&str, &TargetName), ost: &OstView) {
    let status = if ost.is_full { Errno::ENOSPC.status() } else { 0 };
    let mut add = |leaf: &str, value: String| {
        let leaf: Leaf = (format!("{device}.{leaf}"), Box::new(move || value.clone()));
        leaves.push(leaf);
    };
    add("uuid", client(mdt).to_string());
    add("prealloc_next_id", (ost.last_used + 1).to_string());
    add("prealloc_last_id", ost.last_created.to_string());
    add("prealloc_next_seq", format!("{:#x}", ost.sequence));
    add("prealloc_last_seq", format!("{:#x}", ost.sequence));
    add("prealloc_status", status.to_string());
    for (leaf, read) in SPACE {
        add(leaf, ost.space.as_ref().map_or_else(String::new, read));
    }
}

/// Adds what waits to be done on an OST, counted at each reading.
fn add_updates(leaves: &mut Leaves, device: &str, mdt: &Arc<Mdt>, index: u16) {
    for (leaf, count) in UPDATES {
        let mdt = Arc::clone(mdt);
        let read = move || {
            let view = mdt.ost_updates(index);
            view.map_or_else(|errno| errno.to_string(), |view| count(&view).to_string())
        };
        let leaf: Leaf = (format!("{device}.{leaf}"), Box::new(read));
        leaves.push(leaf);
    }
}

/// Adds what the MDT asked for over a connection, since it started.
fn add_requests(leaves: &mut Leaves, device: &str, since: &Arc<Since>, connection: &Connection) {
    let (connection, since) = (Arc::clone(connection), Arc::clone(since));
    let read = move || {
        connection().map_or_else(String::new, |report| imports::stats(&since, &report, &[]))
    };
    let leaf: Leaf = (format!("{device}.stats"), Box::new(read));
    leaves.push(leaf);
}

fn add_connection<'a>(
    leaves: &mut Leaves,
    device: &str,
    (one, connection): (&Arc<HostedTarget>, &Connection),
    shown: impl Iterator<Item = &'a (&'static str, Text)>,
) {
    for (leaf, text) in shown {
        let (connection, one, text) = (Arc::clone(connection), Arc::clone(one), *text);
        let name = device.to_owned();
        let read = move || {
            let clock = Clock { now: one.served.target.world().clock.now(), wall: today() };
            connection().map_or_else(String::new, |report| text(&name, &report, &clock))
        };
        let leaf: Leaf = (format!("{device}.{leaf}"), Box::new(read));
        leaves.push(leaf);
    }
}
