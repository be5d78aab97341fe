//! The parameters of a mount: `llite`, and the devices `mgc`, `mdc` and `osc` with their locks.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use sheen_client::config::{ClusterMap, ParameterHook};
use sheen_types::Errno;

use super::device::{self, Device};
use super::folder::Folder;
use super::mount::MountState;
use super::values::{self, MIB};
use super::{Applied, add_common, dump, garbled, llite, locks, lov, memory_bytes, timing};

/// The least that `max_dirty_mb` may be.
const DIRTY_BYTES_MIN: u64 = 4 << 20;

/// All devices of a mount.
pub(super) type DeviceList = Arc<Mutex<Vec<Arc<Device>>>>;

/// Takes the parameters of the MGS from the first reading of the configuration on, which comes
/// before there is a mount.
#[derive(Default)]
pub struct Follower {
    waiting: Mutex<ClusterMap>,
    mount: OnceLock<(Weak<MountState>, Devices)>,
}

impl Follower {
    /// Called by the client with every change of the configuration.
    pub fn hook(self: &Arc<Self>) -> ParameterHook {
        let follower = Arc::clone(self);
        Box::new(move |map| follower.update(map))
    }

    /// The mount stands: it gets its parameters, and is set as the MGS wants it.
    pub fn start(&self, state: &Arc<MountState>) {
        let devices = Devices::default();
        add_mount(state, &devices.list);
        devices.add_new(state);
        let first = self.mount.set((Arc::downgrade(state), devices)).is_ok();
        debug_assert!(first, "a mount starts once");
        let map = std::mem::take(&mut *self.waiting.lock());
        state.set_stripes(&map);
        self.update(&map);
    }

    /// The mount; without one, the configuration waits for it.
    fn mount_or_wait(&self, map: &ClusterMap) -> Option<&(Weak<MountState>, Devices)> {
        // Held while looking, so that a mount that starts meanwhile finds what is put here.
        let mut waiting = self.waiting.lock();
        let mount = self.mount.get();
        if mount.is_none() {
            *waiting = map.clone();
        }
        mount
    }

    fn update(&self, map: &ClusterMap) {
        let Some((state, devices)) = self.mount_or_wait(map) else { return };
        let Some(state) = state.upgrade() else { return };
        // Targets that came with this change have what was set before, too.
        if devices.add_new(&state) {
            devices.applied.catch_up(&state.tree);
        }
        state.set_pools(map);
        devices.applied.update(&state.tree, &map.params);
    }
}

/// The devices that have parameters.
#[derive(Default)]
struct Devices {
    known: Mutex<BTreeSet<String>>,
    list: DeviceList,
    applied: Applied,
}

impl Devices {
    /// Adds the parameters of targets that have none yet; whether there were any.
    fn add_new(&self, state: &Arc<MountState>) -> bool {
        let mut known = self.known.lock();
        let mut added = false;
        for (target, report) in state.targets() {
            if known.insert(target.device.clone()) {
                added = true;
                let device = device::add(state, &target, &report);
                lov::link(state, &target);
                self.list.lock().push(device);
            }
        }
        added
    }
}

/// What the mount as a whole shows.
fn add_mount(state: &Arc<MountState>, devices: &DeviceList) {
    let tree = &state.tree;
    let dumped = Arc::clone(state);
    dump::add(tree, move || {
        dumped.files.lock_namespaces().iter().for_each(locks::dump_locks);
    });
    add_common(tree, &state.jobs);
    timing::add(tree, &state.node, || ());
    tree.add("pinger", || "on".to_owned());
    let memory = memory_bytes();
    state.osts.limit_dirty(memory / 2);
    Folder::root(tree).tune(
        "max_dirty_mb",
        &state.osts,
        |osts| (osts.dirty_bytes_max() / MIB).to_string(),
        move |osts, text| {
            // Not ERANGE, as in Lustre.
            let bytes = values::number(text)?.checked_mul(MIB).ok_or(Errno::EINVAL)?;
            let most = memory / 10 * 9;
            osts.limit_dirty(
                values::within(bytes, DIRTY_BYTES_MIN, most).map_err(|_| Errno::EINVAL)?,
            );
            Ok(())
        },
    );
    garbled::keep(&state.osts);
    locks::add_common(state);
    llite::add(state);
    lov::add(state, devices);
}
