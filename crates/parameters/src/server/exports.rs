//! `exports` of a target: its clients by node, as they are at each reading.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sheen_assembly::Role;
use sheen_control::Tree;
use sheen_oss::GrantView;
use sheen_target::Export;
use sheen_types::{Nid, Samples};

use super::recovery;
use crate::HostedTarget;
use crate::imports;
use crate::text::Since;

type Clients = Vec<Arc<Export>>;
type Leaf = (String, Box<dyn Fn() -> String + Send + Sync>);

/// Adds the clients, and the order that starts their counts anew.
pub(super) fn add(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    let since = Arc::new(Since::now());
    let (running, counting) = (Arc::clone(one), Arc::clone(&since));
    tree.add_branch(&format!("{root}.exports"), move || {
        let mut nodes: BTreeMap<Nid, Clients> = BTreeMap::new();
        for export in running.served.target.exports() {
            nodes.entry(export.nid()).or_default().push(export);
        }
        nodes.into_iter().flat_map(|(nid, all)| leaves(&running, &counting, nid, all)).collect()
    });
    let running = Arc::clone(one);
    tree.add_order(&format!("{root}.exports.clear"), move |_| {
        running.served.target.exports().iter().for_each(|export| export.clear_counters());
        since.restart();
        Ok(())
    });
}

fn leaves(
    one: &Arc<HostedTarget>,
    since: &Arc<Since>,
    nid: Nid,
    mut clients: Clients,
) -> Vec<Leaf> {
    clients.sort_by(|a, b| a.uuid().cmp(b.uuid()));
    let clients = Arc::new(clients);
    let leaf = |name: &str, read: fn(&HostedTarget, &Since, &Clients) -> String| -> Leaf {
        let (one, since, clients) = (Arc::clone(one), Arc::clone(since), Arc::clone(&clients));
        (format!("{nid}.{name}"), Box::new(move || read(&one, &since, &clients)))
    };
    let mut leaves = vec![
        leaf("uuid", |_, _, clients| lines(clients, |client| client.uuid().to_string())),
        leaf("export", |one, _, clients| {
            clients.iter().map(|client| described(one, client)).collect()
        }),
        leaf("reply_data", |_, _, clients| {
            lines(clients, |client| format!("reply_cnt: {}", client.reply_records()))
        }),
    ];
    if !matches!(one.served.role, Role::Mgs(_)) {
        leaves.push(leaf("reconnect_delay", |_, _, clients| recovery::delay(clients)));
        leaves.push(leaf("stats", |_, since, clients| since.stats(&samples(clients))));
    }
    if !matches!(one.served.role, Role::Mgs(_)) {
        type Read = fn(&GrantView) -> u64;
        let grants: [(&str, Read); 3] = [
            ("grant_cur", |held| held.total),
            ("grant_dirty", |held| held.dirty),
            ("grant_pending", |held| held.pending),
        ];
        for (name, read) in grants {
            let (one, clients) = (Arc::clone(one), Arc::clone(&clients));
            let read = move || lines(&clients, |client| read(&held_by(&one, client)).to_string());
            leaves.push((format!("{nid}.{name}"), Box::new(read)));
        }
    }
    if matches!(one.served.role, Role::Mdt(_)) {
        leaves.push(leaf("open_files", |one, _, clients| {
            let Role::Mdt(mdt) = &one.served.role else { return String::new() };
            let open = clients.iter().flat_map(|client| mdt.open_files_of(client));
            open.map(|fid| format!("{fid}\n")).collect()
        }));
    }
    leaves
}

/// What a client has of a target's space.
fn held_by(one: &HostedTarget, client: &Export) -> GrantView {
    match &one.served.role {
        Role::Mgs(_) => GrantView::default(),
        Role::Mdt(mdt) => mdt.grant_of(client),
        Role::Ost(ost) => ost.grant_of(client),
    }
}

fn lines(clients: &Clients, line: impl Fn(&Export) -> String) -> String {
    clients.iter().map(|client| line(client) + "\n").collect()
}

/// The samples of all clients of a node together.
fn samples(clients: &Clients) -> Vec<Samples> {
    Samples::joined(clients.iter().flat_map(|client| client.samples()))
}

/// What both sides agreed on, and what an OST has promised.
fn described(one: &HostedTarget, client: &Export) -> String {
    let mut text = format!(
        "{}:\n    name: {}\n    client: {}\n",
        client.uuid(),
        one.served.target.name(),
        client.nid()
    );
    text += &imports::agreed(&client.connect_data());
    text += "    export_flags: [  ]\n";
    if !matches!(one.served.role, Role::Ost(_)) {
        return text;
    }
    let held = held_by(one, client);
    let _ = write!(
        text,
        "    grant:\n       granted: {}\n       dirty: {}\n       pending: {}\n",
        held.total, held.dirty, held.pending
    );
    text
}
