//! `mds.MDS.*`, `ost.OSS.*`, `mgs.MGS.mgs` and `ldlm.services.*`: requests by the service of Lustre
//! that they would have come to, which is the portal here. There are no threads of its own behind
//! any.

use std::sync::Arc;

use sheen_assembly::TargetLabel;
use sheen_control::Tree;
use sheen_node::rpc::RpcNode;
use sheen_rpc::service::{Stats, Tally};
use sheen_types::{CounterLine, Samples, TargetKind, Unit};
use sheen_wire::lnet::Portal;

use crate::HostedTarget;
use crate::text::Since;

/// Name of a service in the tree, and the portal of its requests.
type ServicePortal = (&'static str, Portal);

/// The services of an MDS.
const MDS: [ServicePortal; 7] = [
    ("mds.MDS.mdt", Portal::MDS_REQUEST),
    ("mds.MDS.mdt_readpage", Portal::MDS_READPAGE),
    ("mds.MDS.mdt_io", Portal::MDS_IO),
    ("mds.MDS.mdt_seqm", Portal::SEQ_METADATA),
    ("mds.MDS.mdt_seqs", Portal::SEQ_CONTROLLER),
    ("mds.MDS.mdt_fld", Portal::FLD_REQUEST),
    ("mds.MDS.mdt_out", Portal::OUT),
];
/// Those of an OSS.
const OSS: [ServicePortal; 3] = [
    ("ost.OSS.ost", Portal::OST_REQUEST),
    ("ost.OSS.ost_create", Portal::OST_CREATE),
    ("ost.OSS.ost_io", Portal::OST_IO),
];
/// That of the MGS.
const MGS: [ServicePortal; 1] = [("mgs.MGS.mgs", Portal::MGS_REQUEST)];
/// That of every server.
const ALL: [ServicePortal; 1] = [("ldlm.services.ldlm_canceld", Portal::LDLM_CANCEL_REQUEST)];

/// The services that a process with these targets has.
pub(crate) fn services(running: &[Arc<HostedTarget>]) -> Vec<ServicePortal> {
    let has = |kind: Option<TargetKind>| {
        running.iter().any(|one| match &one.served.kind {
            TargetLabel::Target(name) => Some(name.kind) == kind,
            TargetLabel::Mgs => kind.is_none(),
        })
    };
    let mut services = ALL.to_vec();
    for (kind, of_kind) in
        [(Some(TargetKind::Mdt), &MDS[..]), (Some(TargetKind::Ost), &OSS[..]), (None, &MGS[..])]
    {
        if has(kind) {
            services.extend(of_kind);
        }
    }
    services
}

/// Adds the services of a process with these targets.
pub(super) fn add(tree: &Tree, node: &Arc<RpcNode>, running: &[Arc<HostedTarget>]) {
    let since = Arc::new(Since::now());
    for (name, portal) in services(running) {
        let (node, all, since) = (Arc::clone(node), running.to_vec(), Arc::clone(&since));
        tree.add(&format!("{name}.stats"), move || since.stats(&samples(&node, &all, portal)));
    }
    for (device, uuid) in [("mds.MDS", "MDS_uuid"), ("ost.OSS", "OSS_uuid")] {
        if services(running).iter().any(|(name, _)| name.starts_with(device)) {
            tree.add(&format!("{device}.uuid"), || uuid.to_owned());
        }
    }
    let load = Arc::clone(node);
    tree.add("ldlm.services.ldlm_canceld.req_active", move || load.service_load().0.to_string());
}

/// The service's own lines, then how long its requests took by what they asked for.
pub(crate) fn samples(node: &RpcNode, all: &[Arc<HostedTarget>], portal: Portal) -> Vec<Samples> {
    let known = node.service_stats_by_portal().into_iter().find(|at| at.0 == portal);
    let mut lines = known.map(|at| own(&at.1)).unwrap_or_default();
    let requests = all.iter().flat_map(|one| one.served.target.service_samples(portal));
    lines.extend(Samples::joined(requests));
    lines
}

fn own(stats: &Stats) -> Vec<Samples> {
    let lines = [
        ("req_waittime", stats.req_waittime, Unit::Microseconds),
        ("req_qdepth", stats.req_qdepth, Unit::Depth),
        ("req_active", stats.req_active, Unit::Depth),
        ("req_timeout", stats.req_timeout, Unit::Seconds),
    ];
    let used = lines.into_iter().filter(|(_, tally, _)| tally.count > 0);
    used.map(|(name, tally, unit)| sample(CounterLine { name, unit }, &tally)).collect()
}

fn sample(line: CounterLine, tally: &Tally) -> Samples {
    let squared = u64::try_from(tally.sum_squared).unwrap_or(u64::MAX);
    Samples { line, count: tally.count, min: tally.min, max: tally.max, sum: tally.sum, squared }
}
