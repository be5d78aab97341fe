//! What one client may use up of a server, which operators set, and how often one wanted more: `budget.*` of
//! the process, and of each target. Lustre has nothing alike for a client.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sheen_assembly::Role;
use sheen_control::Tree;
use sheen_node::rpc::RpcNode;
use sheen_rpc::budget::ServiceLimit;
use sheen_target::budget::Limit;

use super::values;
use crate::HostedTarget;

/// Limits of what is served, by name, and the least that a client works with.
const SERVED: [(&str, ServiceLimit, u64); 3] = [
    ("client_requests_active", ServiceLimit::RequestsActive, 8),
    ("client_queued_bytes", ServiceLimit::QueuedBytes, values::MIB),
    ("client_bulk_bytes", ServiceLimit::BulkBytes, 4 * values::MIB),
];

/// Limits of what a target keeps.
const HELD: [(&str, Limit, u64); 4] = [
    ("callbacks_per_client", Limit::Callbacks, 16),
    ("exports_per_nid", Limit::Exports, 1),
    ("locks_per_client", Limit::Locks, 64),
    ("opens_per_client", Limit::Opens, 16),
];

/// No more than a counter holds.
const MOST: u64 = 1 << 40;

/// Adds those of the process.
pub(super) fn add(tree: &Tree, node: &Arc<RpcNode>) {
    for (leaf, limit, least) in SERVED {
        let (reader, writer) = (Arc::clone(node), Arc::clone(node));
        tree.add_writable(
            &format!("budget.{leaf}"),
            move || reader.budget().of(limit).to_string(),
            move |text| {
                let value = values::within(values::number_of_any_base(text)?, least, MOST)?;
                writer.budget().set(limit, usize::try_from(value).unwrap_or(usize::MAX));
                Ok(())
            },
        );
    }
    let node = Arc::clone(node);
    tree.add("budget.stats", move || refused(&node));
}

/// What was refused, a line each.
fn refused(node: &RpcNode) -> String {
    let counters = node.lnet().counters();
    let queued = node.budget().refused(ServiceLimit::QueuedBytes);
    let lines = [
        ("requests_dropped", queued),
        ("requests_dropped_unread", node.over_budget().saturating_sub(queued)),
        ("answers_dropped", counters.answers_dropped.load(Ordering::Relaxed)),
        ("bulk_waited", node.budget().refused(ServiceLimit::BulkBytes)),
        ("connections_backlogged", counters.backlogged.load(Ordering::Relaxed)),
        ("connections_unused", counters.unused.load(Ordering::Relaxed)),
        ("protocol_errors", counters.protocol_errors.load(Ordering::Relaxed)),
        ("requests_undecodable", node.refused()),
    ];
    let mut text = String::new();
    for (name, count) in lines {
        let _ = writeln!(text, "{name:<26}{count}");
    }
    text
}

/// Those of a target's kind: files are open on MDTs alone.
fn held(one: &HostedTarget) -> impl Iterator<Item = (&'static str, Limit, u64)> + use<> {
    let is_mdt = matches!(one.served.role, Role::Mdt(_));
    HELD.into_iter().filter(move |(_, limit, _)| is_mdt || *limit != Limit::Opens)
}

/// Adds those of a target.
pub(super) fn add_target(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    for (leaf, limit, least) in held(one) {
        let (reader, writer) = (Arc::clone(one), Arc::clone(one));
        tree.add_writable(
            &format!("{root}.{leaf}"),
            move || reader.served.target.budget().of(limit).to_string(),
            move |text| {
                let value = values::within(values::number_of_any_base(text)?, least, MOST)?;
                let value = usize::try_from(value).unwrap_or(usize::MAX);
                writer.served.target.budget().set(limit, value);
                Ok(())
            },
        );
    }
    let one = Arc::clone(one);
    tree.add(&format!("{root}.budget_stats"), move || {
        let budget = one.served.target.budget();
        let line = |(leaf, limit, _)| format!("{leaf:<26}{}\n", budget.refused(limit));
        held(&one).map(line).collect()
    });
}
