//! `lov` and `lmv`: all OSTs and all MDTs of a mount together, and the links that lead to each.

use std::sync::Arc;

use sheen_types::limits::NAME_BYTES_MAX;

use super::device::{Device, state_letters};
use super::folder::Folder;
use super::imports;
use super::mount::{MountState, device_type};
use super::text::Since;
use sheen_control::api::{Kind, MountTarget, TargetStatfs};

/// The targets of one kind.
struct Group {
    state: Arc<MountState>,
    kind: Kind,
    /// What statistics of operations are summed up of.
    devices: super::client::DeviceList,
    since: Since,
}

impl Group {
    fn targets(&self) -> Vec<MountTarget> {
        let all = self.state.targets().into_iter().map(|(target, _)| target);
        all.filter(|target| target.kind == self.kind).collect()
    }

    /// The sum of a number over all targets, as they said within the last second.
    fn sum(&self, read: impl Fn(&TargetStatfs) -> u64) -> u64 {
        let all = self.state.statfs_believed();
        all.iter().filter(|stat| stat.kind == self.kind).map(read).sum()
    }
}

/// The name of the folder of all targets of a kind.
fn place(state: &MountState, kind: Kind) -> String {
    let folder = if kind == Kind::Mdt { "lmv" } else { "lov" };
    format!("{folder}.{}-cli{folder}-{}", state.info.fsname, state.info.instance)
}

/// Adds both, with the pools.
pub(super) fn add(state: &Arc<MountState>, devices: &super::client::DeviceList) {
    let llite = Folder::new(&state.tree, state.llite());
    for (kind, leaf) in [(Kind::Mdt, "lmv"), (Kind::Ost, "lov")] {
        let place = place(state, kind);
        add_group(state, kind, devices);
        llite.link(leaf, &place);
    }
    super::balance::add(
        &Folder::new(&state.tree, place(state, Kind::Mdt)),
        state.files.directory_balance(),
    );
    super::stripes::add(&Folder::new(&state.tree, place(state, Kind::Ost)), &state.stripes);
    let pools = Arc::clone(state);
    let name = format!("{}.pools", place(state, Kind::Ost));
    state.tree.add_branch(&name, move || super::pool_leaves(pools.pools()));
}

/// Links a device among those of its kind.
pub(super) fn link(state: &MountState, target: &MountTarget) {
    if target.kind != Kind::Mgs {
        let folder = Folder::new(&state.tree, format!("{}.target_obds", place(state, target.kind)));
        folder.link(&target.device, &format!("{}.{}", device_type(target.kind), target.device));
    }
}

fn add_group(state: &Arc<MountState>, kind: Kind, devices: &super::client::DeviceList) {
    let (devices, since) = (Arc::clone(devices), Since::now());
    let group = Arc::new(Group { state: Arc::clone(state), kind, devices, since });
    let folder = Folder::new(&state.tree, place(state, kind));
    folder.show("uuid", &group, |it| it.state.info.uuid.clone());
    folder.show("desc_uuid", &group, |it| {
        let kind = if it.kind == Kind::Mdt { "clilmv" } else { "clilov" };
        format!("{}-{kind}_UUID", it.state.info.fsname)
    });
    folder.show("numobd", &group, |it| it.targets().len().to_string());
    folder.show("activeobd", &group, |it| {
        it.targets().iter().filter(|target| target.active).count().to_string()
    });
    folder.show("target_obd", &group, |it| {
        let line = |target: &MountTarget| {
            let state = if target.active { "ACTIVE" } else { "INACTIVE" };
            format!("{}: {} {state}\n", target.index, target.uuid)
        };
        it.targets().iter().map(line).collect()
    });
    add_space(&folder, &group);
    if kind == Kind::Mdt {
        folder.tune(
            "md_stats",
            &group,
            |it| {
                let devices = it.devices.lock();
                let counts = devices.iter().map(|device| device.metadata_counts());
                let sums =
                    counts.fold([0; 12], |sum, one| std::array::from_fn(|at| sum[at] + one[at]));
                imports::metadata(&it.since, &sums)
            },
            |it, _| {
                it.devices.lock().iter().for_each(|device| Device::clear_metadata(device));
                it.since.restart();
                Ok(())
            },
        );
    }
}

fn add_space(folder: &Folder<'_>, group: &Arc<Group>) {
    type Read = fn(&TargetStatfs) -> u64;
    let shown: [(&str, Read); 5] = [
        ("kbytestotal", |stat| stat.blocks.saturating_mul(stat.bsize) >> 10),
        ("kbytesfree", |stat| stat.bfree.saturating_mul(stat.bsize) >> 10),
        ("kbytesavail", |stat| stat.bavail.saturating_mul(stat.bsize) >> 10),
        ("filestotal", |stat| stat.files),
        ("filesfree", |stat| stat.ffree),
    ];
    for (leaf, read) in shown {
        folder.show(leaf, group, move |it| it.sum(read).to_string());
    }
    folder.show("blocksize", group, |it| {
        let all = it.state.statfs_believed();
        let mine = all.iter().filter(|stat| stat.kind == it.kind).map(|stat| stat.bsize);
        mine.max().unwrap_or(0).to_string()
    });
    folder.show("namelen_max", group, |_| NAME_BYTES_MAX.to_string());
    folder.show("maxbytes", group, |it| {
        let each = it.targets().into_iter().filter_map(|target| {
            let index = target.index.into();
            let osts = &it.state.osts;
            if it.kind == Kind::Mdt { osts.mdt(index) } else { osts.ost(index) }
        });
        each.map(|osc| osc.object_bytes_max()).min().unwrap_or(0).to_string()
    });
    folder.show("statfs_state", group, |it| {
        let all = it.state.statfs_believed();
        let mine = all.iter().filter(|stat| stat.kind == it.kind);
        state_letters(mine.fold(0, |state, stat| state | stat.state))
    });
}
