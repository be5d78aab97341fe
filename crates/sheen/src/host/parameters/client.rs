//! The parameters of a mount: `llite`, and the devices `mgc`, `mdc` and `osc` with their locks.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_client::config::{ClusterMap, LOCKS_UNUSED_MAX, ParameterHook};
use sheen_client::data::Osc;
use sheen_client::locks::LockSpace;
use sheen_client::posix::FsStat;
use sheen_control::Tree;
use sheen_node::rpc::ImportReport;
use sheen_types::Errno;
use sheen_types::access::RootSquash;

use super::mount::{MountState, device_type};
use super::requests;
use super::text::{self, Since};
use super::values::{self, MIB};
use super::{Applied, PAGE_BYTES, add_common, dump};
use crate::api::{Kind, Target};

/// `OBD_MAX_RIF_MAX`: most requests of a device on the wire.
const REQUESTS_MAX: u64 = 512;
/// `OSC_MAX_DIRTY_MB_MAX`, which is too many already.
const DIRTY_MIB_MAX: u64 = 2047;
/// Most that is read ahead; more would not fit into memory that programs need.
const READ_AHEAD_MIB_MAX: u64 = 4096;

/// Takes the parameters of the MGS from the first reading of the configuration on, which comes
/// before there is a mount.
#[derive(Default)]
pub(crate) struct Follower {
    waiting: Mutex<ClusterMap>,
    mount: OnceLock<(Weak<MountState>, Devices)>,
}

impl Follower {
    /// What the client tells of parameters.
    pub(crate) fn hook(self: &Arc<Self>) -> ParameterHook {
        let follower = Arc::clone(self);
        Box::new(move |map| follower.update(map))
    }

    /// The mount stands: it gets its parameters, and is set as the MGS wants it.
    pub(crate) fn start(&self, state: &Arc<MountState>) {
        add_mount(&state.tree, state);
        let devices = Devices::default();
        devices.add_new(state);
        let first = self.mount.set((Arc::downgrade(state), devices)).is_ok();
        debug_assert!(first, "a mount starts once");
        let map = std::mem::take(&mut *self.waiting.lock());
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
                add_device(state, &target, &report);
            }
        }
        added
    }
}

/// The pools, each as a list of its OSTs.
fn add_pools(tree: &Tree, state: &Arc<MountState>) {
    let lov = format!("lov.{}-clilov-{}", state.info.fsname, state.info.instance);
    let pools = Arc::clone(state);
    tree.add_branch(&format!("{lov}.pools"), move || super::pool_leaves(pools.pools()));
}

/// What the mount as a whole shows.
fn add_mount(tree: &Tree, state: &Arc<MountState>) {
    let dumped = Arc::clone(state);
    dump::add(tree, move || dumped.files.lock_spaces().iter().for_each(|space| dump_locks(space)));
    add_common(tree);
    let llite = format!("llite.{}-{}", state.info.fsname, state.info.instance);
    let uuid = state.info.uuid.clone();
    tree.add(&format!("{llite}.uuid"), move || uuid.clone());
    tree.add(&format!("{llite}.fstype"), || "lustre".to_owned());
    add_pools(tree, state);
    add_statistics(tree, &llite, state);
    add_space(tree, &llite, state);
    let inodes = Arc::clone(state);
    tree.add(&format!("{llite}.inodes"), move || inodes.files.inodes_known().to_string());
    add_squash(tree, &llite, state);
    let (read, write) = (Arc::clone(&state.osts), Arc::clone(&state.osts));
    tree.add_writable(
        &format!("{llite}.max_read_ahead_mb"),
        move || (read.read_ahead().total() / MIB).to_string(),
        move |text| {
            let bytes = values::bytes(text, MIB)?;
            write.read_ahead().set_total(values::within(bytes, 0, READ_AHEAD_MIB_MAX * MIB)?);
            Ok(())
        },
    );
    let (read, write) = (Arc::clone(&state.osts), Arc::clone(&state.osts));
    tree.add_writable(
        &format!("{llite}.max_read_ahead_per_file_mb"),
        move || (read.read_ahead().per_file() / MIB).to_string(),
        move |text| {
            let limits = write.read_ahead();
            let bytes = values::bytes(text, MIB)?;
            limits.set_per_file(values::within(bytes, 0, limits.total())?);
            Ok(())
        },
    );
}

/// The calls to the mount. Whatever is written to them starts them anew, as in Lustre.
fn add_statistics(tree: &Tree, llite: &str, state: &Arc<MountState>) {
    let since = Arc::new(Since::now());
    let (reader, writer) = (Arc::clone(state), Arc::clone(state));
    let restart = Arc::clone(&since);
    tree.add_writable(
        &format!("{llite}.stats"),
        move || since.stats(&reader.files.statistics().samples()),
        move |_| {
            writer.files.statistics().clear();
            restart.restart();
            Ok(())
        },
    );
}

/// How full the file system is, as `df` shows it.
fn add_space(tree: &Tree, llite: &str, state: &Arc<MountState>) {
    type Read = fn(&FsStat) -> u64;
    let shown: [(&str, Read); 6] = [
        ("kbytestotal", |stat| (stat.blocks * u64::from(stat.block_size)) >> 10),
        ("kbytesfree", |stat| (stat.blocks_free * u64::from(stat.block_size)) >> 10),
        ("kbytesavail", |stat| (stat.blocks_available * u64::from(stat.block_size)) >> 10),
        ("filestotal", |stat| stat.files),
        ("filesfree", |stat| stat.files_free),
        ("blocksize", |stat| stat.block_size.into()),
    ];
    for (leaf, read) in shown {
        let state = Arc::clone(state);
        tree.add(&format!("{llite}.{leaf}"), move || {
            state.space().map_or_else(|errno| errno.to_string(), |stat| read(&stat).to_string())
        });
    }
}

/// As whom the cache lets root in: what the MDTs are told as `mdt.*.root_squash`.
fn add_squash(tree: &Tree, llite: &str, state: &Arc<MountState>) {
    type Value = (&'static str, fn(&RootSquash) -> String, values::SetSquash);
    let settings: [Value; 2] = [
        ("root_squash", RootSquash::root, RootSquash::set_root),
        ("nosquash_nids", RootSquash::trusted, RootSquash::set_trusted),
    ];
    let squash = Arc::new(Mutex::new(RootSquash::default()));
    for (leaf, read, write) in settings {
        let (reader, writer, state) = (Arc::clone(&squash), Arc::clone(&squash), Arc::clone(state));
        tree.add_writable(
            &format!("{llite}.{leaf}"),
            move || read(&reader.lock()),
            move |text| {
                let mut squash = writer.lock();
                write(&mut squash, text)?;
                state.files.squash_root(squash.identity(state.node.lnet().nid()));
                Ok(())
            },
        );
    }
}

/// What one device shows.
fn add_device(state: &Arc<MountState>, target: &Target, report: &ImportReport) {
    let tree = &state.tree;
    let place = format!("{}.{}", device_type(target.kind), target.device);
    let show = |leaf: &str, read: fn(&Target, &ImportReport) -> String| {
        let (state, device) = (Arc::clone(state), target.device.clone());
        tree.add(&format!("{place}.{leaf}"), move || {
            let found = state.targets().into_iter().find(|(target, _)| target.device == device);
            found.map_or_else(String::new, |(target, report)| read(&target, &report))
        });
    };
    show("import", |target, report| text::import(&target.device, report));
    let (history, device) = (Arc::clone(state), target.device.clone());
    tree.add(&format!("{place}.state"), move || {
        let found = history.targets().into_iter().find(|(target, _)| target.device == device);
        found.map_or_else(String::new, |(_, report)| text::state(&report, &history.clock()))
    });
    show("active", |target, _| u8::from(target.active).to_string());
    show("uuid", |_, report| report.client.to_string());
    let (connection, server) = match target.kind {
        Kind::Mgs => ("mgs_conn_uuid", "mgs_server_uuid"),
        Kind::Mdt => ("mds_conn_uuid", "mds_server_uuid"),
        Kind::Ost => ("ost_conn_uuid", "ost_server_uuid"),
    };
    show(connection, |_, report| report.peer.to_string());
    show(server, |_, report| format!("{}\t{}", report.target, report.state));
    show("stats", |_, report| requests::text(report));
    if target.kind != Kind::Mgs {
        add_request_limit(state, &place, report);
    }
    if let Some(osc) = state.osts.osc(target.index.into()).filter(|_| target.kind == Kind::Ost) {
        add_osc(tree, &place, &osc);
    }
    let name = target.uuid.strip_suffix("_UUID").unwrap_or("MGS");
    let spaces = state.files.lock_spaces();
    if let Some(space) = spaces.into_iter().find(|space| space.name() == name) {
        add_locks(tree, &format!("ldlm.namespaces.{}", target.device), &space);
    }
}

fn add_request_limit(state: &Arc<MountState>, place: &str, report: &ImportReport) {
    let (reader, writer) = (Arc::clone(state), Arc::clone(state));
    let (read_of, write_of) = (report.target.clone(), report.target.clone());
    state.tree.add_writable(
        &format!("{place}.max_rpcs_in_flight"),
        move || {
            let report = reader.node.imports().into_iter().find(|report| report.target == read_of);
            report.map_or_else(String::new, |report| report.requests_in_flight_max.to_string())
        },
        move |text| {
            let count = values::number_within(text, 1, REQUESTS_MAX)?;
            writer.node.limit_requests(&write_of, count as usize);
            Ok(())
        },
    );
}

fn add_osc(tree: &Tree, place: &str, osc: &Arc<Osc>) {
    type Read = fn(&Osc) -> String;
    type Write = fn(&Osc, &str) -> Result<(), Errno>;
    let writable: [(&str, Read, Write); 3] = [
        ("max_dirty_mb", |osc| (osc.dirty_bytes_max() / MIB).to_string(), set_dirty),
        ("max_pages_per_rpc", |osc| (osc.bulk_bytes() / PAGE_BYTES).to_string(), set_pages),
        (
            "checksums",
            |osc| u8::from(osc.checksums()).to_string(),
            |osc, text| {
                osc.set_checksums(values::switch(text)?);
                Ok(())
            },
        ),
    ];
    for (leaf, read, write) in writable {
        let (reader, writer) = (Arc::clone(osc), Arc::clone(osc));
        tree.add_writable(
            &format!("{place}.{leaf}"),
            move || read(&reader),
            move |text| write(&writer, text),
        );
    }
    let shown: [(&str, Read); 2] = [
        ("cur_grant_bytes", |osc| osc.grant_and_dirty().0.to_string()),
        ("cur_dirty_bytes", |osc| osc.grant_and_dirty().1.to_string()),
    ];
    for (leaf, read) in shown {
        let osc = Arc::clone(osc);
        tree.add(&format!("{place}.{leaf}"), move || read(&osc));
    }
}

fn set_dirty(osc: &Osc, text: &str) -> Result<(), Errno> {
    let bytes = values::bytes(text, MIB)?;
    osc.limit_dirty(values::within(bytes, MIB, DIRTY_MIB_MAX * MIB)?);
    Ok(())
}

/// In pages; with a unit, or beyond what pages could be, in bytes.
fn set_pages(osc: &Osc, text: &str) -> Result<(), Errno> {
    let is_count = text.trim().bytes().all(|byte| byte.is_ascii_digit());
    let value = values::bytes(text, 1)?;
    let pages = if is_count && value < MIB { value } else { value / PAGE_BYTES };
    let pages = values::within(pages, 1, osc.bulk_bytes_agreed() / PAGE_BYTES)?;
    osc.limit_bulk(pages * PAGE_BYTES);
    Ok(())
}

/// Logs all locks that a target has granted us, or is to; as warnings, since somebody asked to see them
/// and a log shows nothing less by default.
fn dump_locks(space: &LockSpace) {
    for lock in space.namespace().dump_all() {
        tracing::warn!(target = space.name(), users = lock.readers + lock.writers,
            blocked = lock.blocked, handle = %lock.handle, server = %lock.remote_handle,
            "lock {}", lock.desc);
    }
}

fn add_locks(tree: &Tree, place: &str, space: &Arc<LockSpace>) {
    let show = |leaf: &str, read: fn(&sheen_client::locks::Gauges) -> String| {
        let space = Arc::clone(space);
        tree.add(&format!("{place}.{leaf}"), move || read(&space.namespace().gauges()));
    };
    show("lock_count", |gauges| gauges.locks.to_string());
    show("lock_unused_count", |gauges| gauges.unused.to_string());
    show("resource_count", |gauges| gauges.resources.to_string());
    let (reader, writer) = (Arc::clone(space), Arc::clone(space));
    tree.add_writable(
        &format!("{place}.lru_size"),
        move || {
            let gauges = reader.namespace().gauges();
            // Without a limit of the operator's, Lustre shows how many there are.
            let is_set = gauges.lru_size != LOCKS_UNUSED_MAX;
            if is_set { gauges.lru_size.to_string() } else { gauges.unused.to_string() }
        },
        move |text| set_lru_size(&writer, text),
    );
    let (reader, writer) = (Arc::clone(space), Arc::clone(space));
    tree.add_writable(
        &format!("{place}.lru_max_age"),
        move || reader.namespace().gauges().lru_max_age.as_millis().to_string(),
        move |text| {
            let age = Duration::from_millis(values::milliseconds(text)?);
            writer.limit_unused(writer.namespace().gauges().lru_size, age);
            Ok(())
        },
    );
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
