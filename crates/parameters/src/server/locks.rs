//! `ldlm.namespaces` of a target: the locks that clients hold on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sheen_assembly::TargetLabel;
use sheen_control::Tree;
use sheen_target::{ContentionLimits, Gauges};
use sheen_types::TargetKind;

use super::values;
use crate::HostedTarget;

type Read = fn(&Gauges) -> u64;
type Setting = fn(&ContentionLimits) -> &AtomicU64;

/// What is shown of a namespace.
const SHOWN: [(&str, Read); 6] = [
    ("lock_count", count),
    ("resource_count", |gauges| gauges.resources),
    ("lock_timeouts", |gauges| gauges.timeouts),
    ("pool.granted", |gauges| gauges.granted.iter().sum()),
    ("pool.grants", |gauges| gauges.grants),
    ("pool.cancels", |gauges| gauges.cancels),
];

/// What is set of one: when an object is contended, and what is refused then.
const SET: [(&str, Setting); 3] = [
    ("contended_locks", |limits| &limits.locks),
    ("contention_seconds", |limits| &limits.seconds),
    ("max_nolock_bytes", |limits| &limits.nolock_bytes),
];

/// Locks held and waited for.
pub(crate) fn count(gauges: &Gauges) -> u64 {
    gauges.granted.iter().sum::<u64>() + gauges.waiting.iter().sum::<u64>()
}

/// Adds the locks of a target.
pub(super) fn add(tree: &Tree, one: &Arc<HostedTarget>) {
    let name = one.served.target.name();
    let place = match &one.served.kind {
        TargetLabel::Mgs => "MGS".to_owned(),
        TargetLabel::Target(target) if target.kind == TargetKind::Mdt => format!("mdt-{name}_UUID"),
        TargetLabel::Target(_) => format!("filter-{name}_UUID"),
    };
    for (leaf, read) in SHOWN {
        let one = Arc::clone(one);
        tree.add(&format!("ldlm.namespaces.{place}.{leaf}"), move || {
            read(&one.served.target.namespace().gauges()).to_string()
        });
    }
    for (leaf, limit) in SET {
        let (reader, writer) = (Arc::clone(one), Arc::clone(one));
        tree.add_writable(
            &format!("ldlm.namespaces.{place}.{leaf}"),
            move || {
                let limits = reader.served.target.namespace().contention();
                limit(limits).load(Ordering::Relaxed).to_string()
            },
            move |text| {
                let value = values::number_within(text, 0, u32::MAX.into())?;
                let limits = writer.served.target.namespace().contention();
                limit(limits).store(value, Ordering::Relaxed);
                Ok(())
            },
        );
    }
}
