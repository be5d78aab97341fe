//! `mgc.*` of a server: its connection to the MGS, as a mount shows its own.

use std::sync::Arc;

use sheen_control::Tree;
use sheen_node::rpc::{ImportReport, RpcNode};
use sheen_rpc::OwnTimes;
use sheen_types::{Errno, Uuid};

use crate::HostedTarget;
use crate::folder::Folder;
use crate::text::{Clock, today};
use crate::timing::{self, HasTimes};
use crate::{features, imports};

/// The connection, and the targets whose clock counts.
struct Mgc {
    node: Arc<RpcNode>,
    one: Arc<HostedTarget>,
    name: String,
}

/// What every MGS is called.
fn mgs() -> Uuid {
    Uuid::new("MGS")
}

/// The import of the MGS, and the device's name. There is none where nothing registered.
pub(super) fn find(node: &RpcNode) -> Option<(String, ImportReport)> {
    let report = node.import_of(&mgs())?;
    Some((format!("MGC{}", report.peer), report))
}

impl Mgc {
    fn with_report(&self, read: impl Fn(&ImportReport) -> String) -> String {
        self.node.import_of(&mgs()).map_or_else(String::new, |report| read(&report))
    }

    fn clock(&self) -> Clock {
        Clock { now: self.one.served.target.world().clock.now(), wall: today() }
    }
}

impl HasTimes for Mgc {
    fn own_times(&self) -> Option<OwnTimes> {
        self.node.import_of(&mgs()).map(|report| report.own_times)
    }

    fn set_own_times(&self, times: OwnTimes) {
        self.node.set_own_times(&mgs(), times);
    }
}

type Text = fn(&Mgc, &ImportReport) -> String;

const SHOWN: [(&str, Text); 7] = [
    ("conn_uuid", |_, report| report.peer.to_string()),
    ("connect_flags", |_, report| features::connect_flags(&report.data)),
    ("ir_state", |_, report| imports::recovery_state(report)),
    ("mgs_conn_uuid", |_, report| report.peer.to_string()),
    ("mgs_server_uuid", |_, report| format!("{}\t{}", report.target, report.state)),
    ("state", |it, report| imports::state(report, &it.clock())),
    ("uuid", |_, report| report.client.to_string()),
];

/// Adds it.
pub(super) fn add(tree: &Tree, node: &Arc<RpcNode>, running: &[Arc<HostedTarget>]) {
    let (Some((name, _)), Some(one)) = (find(node), running.first()) else { return };
    let folder = Folder::new(tree, format!("mgc.{name}"));
    let mgc = Arc::new(Mgc { node: Arc::clone(node), one: Arc::clone(one), name });
    for (leaf, text) in SHOWN {
        folder.show(leaf, &mgc, move |it| it.with_report(|report| text(it, report)));
    }
    timing::add_own(&folder, &mgc);
    let handle = tokio::runtime::Handle::current();
    let ping = move |it: &Mgc| handle.block_on(it.node.ping_target(&mgs()));
    let look = ping.clone();
    folder.tune(
        "ping",
        &mgc,
        // A look at it is a ping, too, and shows nothing but that it was made.
        move |it| look(it).err().map_or_else(String::new, |error| error.errno().to_string()),
        move |it, _| ping(it).map_err(|error| error.errno()),
    );
    folder.tune(
        "import",
        &mgc,
        |it| it.with_report(|report| imports::import(&it.name, report, &[], &it.clock())),
        |it, text| {
            if text.trim() != "recover" {
                return Err(Errno::EINVAL);
            }
            it.node.reconnect(&mgs());
            Ok(())
        },
    );
}
