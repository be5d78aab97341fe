//! `ldlm`: the locks that targets have granted to a mount.

use std::sync::Arc;
use std::time::Duration;

use sheen_client::config::LOCKS_UNUSED_MAX;
use sheen_client::locks::{Gauges, LockSpace};
use sheen_types::Errno;

use super::folder::Folder;
use super::mount::MountState;
use super::values;
use crate::api::Target;

/// Adds what is about all of them.
pub(super) fn add_common(state: &Arc<MountState>) {
    let folder = Folder::new(&state.tree, "ldlm");
    folder.show("lock_granted_count", state, |state| {
        let spaces = state.files.lock_spaces();
        spaces.iter().map(|space| space.namespace().gauges().locks).sum::<usize>().to_string()
    });
}

/// Adds those of one target.
pub(super) fn add(state: &Arc<MountState>, target: &Target) {
    let name = target.uuid.strip_suffix("_UUID").unwrap_or("MGS");
    let spaces = state.files.lock_spaces();
    let Some(space) = spaces.into_iter().find(|space| space.name() == name) else { return };
    // The methods that give locks back need the pointer.
    let space = Arc::new(space);
    let folder = Folder::new(&state.tree, format!("ldlm.namespaces.{}", target.device));
    type Read = fn(&Gauges) -> u64;
    let shown: [(&str, Read); 4] = [
        ("lock_count", |gauges| gauges.locks as u64),
        ("lock_unused_count", |gauges| gauges.unused as u64),
        ("resource_count", |gauges| gauges.resources as u64),
        ("lock_lru_hits", |gauges| gauges.hits),
    ];
    for (leaf, read) in shown {
        folder.show(leaf, &space, move |space| read(&space.namespace().gauges()).to_string());
    }
    folder.tune("lru_size", &space, lru_size, set_lru_size);
    folder.tune(
        "lru_max_age",
        &space,
        |space| space.namespace().gauges().lru_max_age.as_millis().to_string(),
        |space, text| {
            let age = Duration::from_millis(values::milliseconds(text)?);
            space.limit_unused(space.namespace().gauges().lru_size, age);
            Ok(())
        },
    );
    folder.tune(
        "early_lock_cancel",
        &space,
        |space| u8::from(space.cancels_early()).to_string(),
        |space, text| {
            space.cancel_early_or_not(values::switch(text)?);
            Ok(())
        },
    );
    folder.tune(
        "lru_cancel_batch",
        &space,
        |space| space.shrink_batch().to_string(),
        |space, text| {
            space.set_shrink_batch(values::number_within(text, 0, u32::MAX.into())? as usize);
            Ok(())
        },
    );
}

/// Logs all locks that a target has granted us, or is to; as warnings, since somebody asked to see them
/// and a log shows nothing less by default.
pub(super) fn dump_locks(space: &Arc<LockSpace>) {
    for lock in space.namespace().dump_all() {
        tracing::warn!(target = space.name(), users = lock.readers + lock.writers,
            blocked = lock.blocked, handle = %lock.handle, server = %lock.remote_handle,
            "lock {}", lock.desc);
    }
}

/// Without a limit of the operator's, Lustre shows how many there are.
fn lru_size(space: &Arc<LockSpace>) -> String {
    let gauges = space.namespace().gauges();
    let is_set = gauges.lru_size != LOCKS_UNUSED_MAX;
    if is_set { gauges.lru_size.to_string() } else { gauges.unused.to_string() }
}

fn set_lru_size(space: &Arc<LockSpace>, text: &str) -> Result<(), Errno> {
    if text.trim() == "clear" {
        space.clear_unused();
        return Ok(());
    }
    let size = match values::number(text)? {
        0 => LOCKS_UNUSED_MAX,
        size => usize::try_from(size).map_err(|_| Errno::ERANGE)?,
    };
    space.limit_unused(size, space.namespace().gauges().lru_max_age);
    Ok(())
}
