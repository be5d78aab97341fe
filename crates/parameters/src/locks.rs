//! `ldlm`: the locks that targets have granted to a mount.

use crate::EACH_LINE;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sheen_client::config::LOCKS_UNUSED_MAX;
use sheen_client::locks::{CachePolicy, ClientNamespace, Gauges, Namespace};
use sheen_types::Errno;

use super::folder::{Folder, Number};
use super::mount::MountState;
use super::values::{self, U32_MAX};
use sheen_control::api::{Kind, MountTarget};

/// How many unused locks are cancelled at once.
const BATCH: Number<Arc<ClientNamespace>> = Number {
    leaf: "lru_cancel_batch",
    parse: values::number,
    range: 0..=U32_MAX,
    read: |space| space.shrink_batch() as u64,
    write: |space, count| space.set_shrink_batch(count as usize),
};

/// How many flocks an MDT grants, of which each user has a share.
const FLOCKS: Number<Arc<ClientNamespace>> = Number {
    leaf: "flocks_per_client",
    parse: values::number_of_any_base,
    range: 16..=1 << 40,
    read: |space| space.flocks_granted() as u64,
    write: |space, count| space.set_flocks_granted(usize::try_from(count).unwrap_or(usize::MAX)),
};

/// Adds what is about all of them.
pub(super) fn add_common(state: &Arc<MountState>) {
    let folder = Folder::new(&state.tree, "ldlm");
    folder.tune(
        "cancel_unused_locks_before_replay",
        state,
        |state| state.cancel_before_replay.load(Ordering::Relaxed).to_string(),
        |state, text| {
            state.cancel_before_replay.store(values::number(text)?, Ordering::Relaxed);
            for space in state.files.lock_namespaces() {
                space.set_forgoes_unused(state.cancels_before_replay());
            }
            Ok(())
        },
    );
    folder.show("lock_granted_count", state, |state| {
        let spaces = state.files.lock_namespaces();
        spaces.iter().map(|space| space.engine().gauges().locks).sum::<usize>().to_string()
    });
}

/// Adds those of one target.
pub(super) fn add(state: &Arc<MountState>, target: &MountTarget) {
    let name = target.uuid.strip_suffix("_UUID").unwrap_or("MGS");
    let spaces = state.files.lock_namespaces();
    let Some(space) = spaces.into_iter().find(|space| space.name() == name) else { return };
    space.set_forgoes_unused(state.cancels_before_replay());
    // The methods that cancel locks need the pointer.
    let space = Arc::new(space);
    if target.kind == Kind::Mdt {
        Folder::new(&state.tree, format!("mdc.{}", target.device)).numbers(&space, &[FLOCKS]);
    }
    let folder = Folder::new(&state.tree, format!("ldlm.namespaces.{}", target.device));
    type Read = fn(&Gauges) -> u64;
    let shown: [(&str, Read); 6] = [
        ("lock_count", |gauges| gauges.locks as u64),
        ("lock_unused_count", |gauges| gauges.unused as u64),
        ("resource_count", |gauges| gauges.resources as u64),
        ("lock_lru_hits", |gauges| gauges.hits),
        ("lock_lru_priv_hits", |gauges| gauges.privileged_hits),
        ("lock_unused_priv_count", |gauges| gauges.privileged as u64),
    ];
    for (leaf, read) in shown {
        folder.show(leaf, &space, move |space| read(&space.engine().gauges()).to_string());
    }
    folder.tune("lru_size", &space, lru_size, set_lru_size);
    add_policy(&folder, &space);
    folder.tune(
        "lru_max_age",
        &space,
        |space| space.engine().gauges().lru_max_age.as_millis().to_string(),
        |space, text| {
            let age = Duration::from_millis(values::milliseconds(text)?);
            space.limit_unused(space.engine().gauges().lru_size, age);
            Ok(())
        },
    );
    folder.tune(
        "early_lock_cancel",
        &space,
        |space| u8::from(space.cancels_early()).to_string(),
        |space, text| {
            space.set_cancels_early(values::number(text)? != 0);
            Ok(())
        },
    );
    folder.numbers(&space, &[BATCH]);
}

/// Which unused locks go first, and how long they are worth the keeping.
fn add_policy(folder: &Folder<'_>, space: &Arc<ClientNamespace>) {
    type Read = fn(&Gauges) -> String;
    type Write = fn(&Namespace, &str) -> Result<(), Errno>;
    let settings: [(&str, Read, Write); 4] = [
        ("lock_cache_policy", |gauges| policy_name(gauges.policy).to_owned(), set_policy),
        (
            "lru_priv_score_threshold",
            |gauges| gauges.privilege_threshold.to_string(),
            |locks, text| {
                let score = text.trim().parse().map_err(|_| Errno::EINVAL)?;
                locks.set_privilege_threshold(score);
                Ok(())
            },
        ),
        (
            "lru_priv_ratio_limit",
            |gauges| gauges.privilege_ratio.to_string(),
            |locks, text| {
                // A number with a sign that is out of range, and not what is no number.
                let percent: i32 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
                let percent = u64::try_from(percent).map_err(|_| Errno::ERANGE)?;
                locks.set_privilege_ratio(values::within(percent, 10, 70)? as u32);
                Ok(())
            },
        ),
        (
            "dirty_age_limit",
            |gauges| gauges.dirty_age_max.as_secs().to_string(),
            |locks, text| {
                locks.set_dirty_age(Duration::from_secs(values::number(text)?));
                Ok(())
            },
        ),
    ];
    for (leaf, read, write) in settings {
        folder.tune(
            leaf,
            space,
            move |space| read(&space.engine().gauges()),
            move |space, text| write(space.engine(), text),
        );
    }
}

fn policy_name(policy: CachePolicy) -> &'static str {
    match policy {
        CachePolicy::Lru => "LRU",
        CachePolicy::Lfru => "LFRU",
    }
}

/// The name in any case; as Lustre, whatever stands behind it does not matter.
fn set_policy(locks: &Namespace, text: &str) -> Result<(), Errno> {
    let text = text.trim().to_ascii_uppercase();
    let policies = [CachePolicy::Lru, CachePolicy::Lfru];
    let named = policies.into_iter().find(|policy| text.starts_with(policy_name(*policy)));
    locks.set_policy(named.ok_or(Errno::EINVAL)?);
    Ok(())
}

/// Logs all locks that a target has granted us, or is to; as warnings, since an operator requested them
/// and a log shows nothing less by default.
pub(super) fn dump_locks(space: &Arc<ClientNamespace>) {
    for lock in space.engine().dump_all() {
        tracing::warn!(target: EACH_LINE, target = space.name(), users = lock.readers + lock.writers,
            blocked = lock.is_revoked, handle = %lock.handle, server = %lock.remote_handle,
            "lock {}", lock.desc);
    }
}

/// Without a limit of the operator's, Lustre shows how many there are.
fn lru_size(space: &Arc<ClientNamespace>) -> String {
    let gauges = space.engine().gauges();
    let is_set = gauges.lru_size != LOCKS_UNUSED_MAX;
    if is_set { gauges.lru_size.to_string() } else { gauges.unused.to_string() }
}

fn set_lru_size(space: &Arc<ClientNamespace>, text: &str) -> Result<(), Errno> {
    if text.trim() == "clear" {
        let dropped = space.cancel_unused();
        // As with Lustre, the caches of an operator who has set it are empty then. What the MGS wants for good is
        // set by a task, which waits for nothing.
        if sheen_control::asker().is_some() {
            // This is the thread of a tool, which serves that tool alone. Nothing is sent: it is closed.
            let _ = dropped.blocking_recv();
        }
        return Ok(());
    }
    let size = match values::number(text)? {
        0 => LOCKS_UNUSED_MAX,
        size => usize::try_from(size).map_err(|_| Errno::ERANGE)?,
    };
    space.limit_unused(size, space.engine().gauges().lru_max_age);
    Ok(())
}
