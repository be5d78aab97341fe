//! The state of a mount that its parameters show, and its commands for `lfs`.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_client::config::{ClusterMap, LovDesc};
use sheen_client::data::DataTargets;
use sheen_client::posix::{FileSystem, FsStat};
use sheen_control::Tree;
use sheen_fuse::{FileLocks, Jobs, Questions};
use sheen_io::World;
use sheen_node::rpc::{ImportReport, RpcNode};
use sheen_rpc::ImportState;
use sheen_types::text::shown;
use sheen_types::{Errno, Fid, Instant, TargetKind, TargetName};

use super::text::{Clock, today};
use super::{Commands, node_commands};
use sheen_control::api::{self, Kind, MountInfo};

/// How long a target's answer about its space is used (`OBD_STATFS_CACHE_SECONDS`).
const SPACE_BELIEVED: Duration = Duration::from_secs(1);

/// What all targets reported of their space.
type Believed = Arc<Vec<api::TargetStatfs>>;

/// Options of a mount that its parameters show and its commands heed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShownOptions {
    /// What `flock(2)` and `fcntl(2)` locks are worth.
    pub locks: FileLocks,
    /// Every user may ask for the paths of FIDs (`user_fid2path`).
    pub users_resolve_fids: bool,
}

/// What a mount's parameters and commands need.
pub struct MountState {
    pub(super) info: MountInfo,
    pub(super) node: Arc<RpcNode>,
    pub(super) files: FileSystem,
    pub(super) osts: Arc<DataTargets>,
    pub(super) tree: Arc<Tree>,
    pub(super) jobs: Arc<Jobs>,
    pub(super) options: ShownOptions,
    pools: Mutex<BTreeMap<String, Vec<String>>>,
    /// Whether unused locks are cancelled before the remaining ones are replayed to a target that restarted: as
    /// in Lustre, 0 is no.
    pub(super) cancel_before_replay: AtomicU64,
    /// How the configuration combines OSTs.
    pub(super) stripes: Arc<Mutex<LovDesc>>,
    /// What targets reported of their space, and when.
    space: Mutex<Option<(Instant, Believed)>>,
    world: World,
    runtime: tokio::runtime::Handle,
}

impl MountState {
    /// Gathers it; call inside the runtime.
    pub fn new(
        (source, fsname, path): (&str, &str, &Path),
        (world, node): (&World, &Arc<RpcNode>),
        (files, osts): (&FileSystem, &Arc<DataTargets>),
        (jobs, options): (&Arc<Jobs>, ShownOptions),
    ) -> Arc<Self> {
        let client = node.imports().first().map(|report| report.client.to_string());
        let uuid = client.unwrap_or_default();
        let instance: String = format!("ff{}", uuid.replace('-', "")).chars().take(16).collect();
        let info = MountInfo {
            path: shown(path.as_os_str().as_bytes()),
            fsname: fsname.to_owned(),
            instance,
            uuid,
            source: source.to_owned(),
        };
        let runtime = tokio::runtime::Handle::current();
        Arc::new(Self {
            info,
            node: Arc::clone(node),
            files: files.clone(),
            osts: Arc::clone(osts),
            tree: Arc::new(Tree::new()),
            jobs: Arc::clone(jobs),
            options,
            pools: Mutex::default(),
            cancel_before_replay: AtomicU64::new(1),
            stripes: Arc::default(),
            space: Mutex::default(),
            world: world.clone(),
            runtime,
        })
    }

    /// The parameters of this mount.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The UUIDs of the OSTs in each pool.
    pub(super) fn pools(&self) -> BTreeMap<String, Vec<String>> {
        self.pools.lock().clone()
    }

    /// Takes the pools of the configuration as it is now.
    pub(super) fn set_pools(&self, map: &ClusterMap) {
        *self.pools.lock() = super::pools_of(&self.info.fsname, &map.pools);
    }

    /// Whether unused locks are cancelled before the remaining ones are replayed.
    pub(super) fn cancels_before_replay(&self) -> bool {
        self.cancel_before_replay.load(Ordering::Relaxed) != 0
    }

    /// Takes what the configuration says of OSTs in general, which it does once.
    pub(super) fn set_stripes(&self, map: &ClusterMap) {
        if let Some(lov) = &map.lov {
            *self.stripes.lock() = lov.clone();
        }
    }

    /// What time it is, by both clocks.
    pub(super) fn clock(&self) -> Clock {
        Clock { now: self.world.clock.now(), wall: today() }
    }

    /// How full the file system is.
    pub(super) fn space(&self) -> Result<FsStat, Errno> {
        self.runtime.block_on(self.files.statfs())
    }

    /// The targets as devices of ours: the MGS, the MDTs, the OSTs.
    pub(super) fn targets(&self) -> Vec<(api::MountTarget, ImportReport)> {
        let target = |report: ImportReport| {
            let uuid = report.target.to_string();
            // One that is not needed now is there when it is.
            let active = matches!(report.state, ImportState::Full | ImportState::Idle);
            let (kind, index, device) = match uuid.parse::<TargetName>() {
                Err(_) => (Kind::Mgs, 0, format!("MGC{}", report.peer)),
                Ok(name) if name.kind == TargetKind::Mdt => {
                    (Kind::Mdt, name.index, format!("{name}-mdc-{}", self.info.instance))
                }
                Ok(name) => (Kind::Ost, name.index, format!("{name}-osc-{}", self.info.instance)),
            };
            let uuid = if kind == Kind::Mgs { String::new() } else { uuid };
            (api::MountTarget { kind, index, uuid, device, active }, report)
        };
        let mut all: Vec<_> = self.node.imports().into_iter().map(target).collect();
        all.sort_by_key(|(target, _)| (target.kind as u8, target.index));
        all
    }

    /// The name of its folder of parameters.
    pub(super) fn llite(&self) -> String {
        format!("llite.{}-{}", self.info.fsname, self.info.instance)
    }

    /// Waits for what takes a request to a server.
    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Whether data goes with checksums, to any OST.
    pub(super) fn checksums(&self) -> bool {
        self.osts.all().iter().any(|(_, osc)| osc.settings.checksums.get())
    }

    /// Sets whether data goes with checksums, to all OSTs.
    pub(super) fn set_checksums(&self, on: bool) {
        self.osts.all().iter().for_each(|(_, osc)| osc.settings.checksums.set(on));
    }

    /// What the targets said of their space within the last second, as Lustre's devices keep it.
    pub(super) fn statfs_believed(&self) -> Believed {
        let now = self.world.clock.now();
        let believed = self.space.lock().clone();
        match believed.filter(|(at, _)| now.since(*at) < SPACE_BELIEVED) {
            Some((_, believed)) => believed,
            None => {
                let fresh = Arc::new(self.statfs());
                *self.space.lock() = Some((now, Arc::clone(&fresh)));
                fresh
            }
        }
    }

    /// What one target said of its space, as [`Self::statfs_believed`]; `None` if it did not answer.
    pub(super) fn statfs_of(&self, target: &api::MountTarget) -> Option<api::TargetStatfs> {
        let all = self.statfs_believed();
        let found = all.iter().find(|stat| (stat.kind, stat.index) == (target.kind, target.index));
        found.filter(|stat| stat.errno == 0).cloned()
    }

    fn statfs(&self) -> Vec<api::TargetStatfs> {
        let answers = self.runtime.block_on(self.files.statfs_targets());
        let one = |(name, answer): (String, Result<sheen_wire::md::ObdStatfs, Errno>)| {
            let name: TargetName = name.parse().ok()?;
            let kind = if name.kind == TargetKind::Mdt { Kind::Mdt } else { Kind::Ost };
            let errno = answer.as_ref().err().map_or(0, |errno| errno.0);
            let stat = answer.unwrap_or_default();
            Some(api::TargetStatfs {
                kind,
                index: name.index,
                uuid: name.uuid().to_string(),
                blocks: stat.blocks,
                bfree: stat.bfree,
                bavail: stat.bavail,
                bsize: u64::from(stat.bsize),
                files: stat.files,
                ffree: stat.ffree,
                state: stat.state.0,
                errno,
            })
        };
        answers.into_iter().filter_map(one).collect()
    }

    fn fid2mdt(&self, arguments: &[String]) -> Result<String, (Errno, String)> {
        let wrong = || (Errno::EINVAL, "fid2mdt FID".to_owned());
        let fid: Fid = arguments.first().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let mdt = self.runtime.block_on(self.files.mdt_of(fid));
        mdt.map(|mdt| mdt.0.to_string()).map_err(|errno| (errno, errno.to_string()))
    }

    fn fid2path(&self, arguments: &[String]) -> Result<String, (Errno, String)> {
        let wrong = || (Errno::EINVAL, "fid2path FID [LINKNO]".to_owned());
        let fid: Fid = arguments.first().and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
        let only: Option<u32> = arguments.get(1).and_then(|text| text.parse().ok());
        let mut text = String::new();
        let mut next = Some(only.unwrap_or(0));
        while let Some(link) = next {
            let (path, more) = match self.runtime.block_on(self.files.fid2path(fid, link)) {
                Ok(found) => found,
                // Not every link of a file lies below the mounted directory.
                Err(_) if !text.is_empty() => break,
                Err(errno) => return Err((errno, errno.to_string())),
            };
            text += &format!("{link} {}\n", shown(&path));
            next = more.filter(|_| only.is_none());
        }
        Ok(text)
    }
}

/// What a command of `lfs` does with its arguments.
type MountCommand = fn(&MountState, &[String]) -> Result<String, (Errno, String)>;

/// Commands of a mount process.
pub fn mount_commands(state: &Arc<MountState>) -> Commands {
    let mut commands = node_commands(&state.node);
    let mut add = |name: &str, run: MountCommand| {
        let state = Arc::clone(state);
        commands.insert(name.to_owned(), Box::new(move |arguments| run(&state, arguments)));
    };
    add(api::MOUNT_INFO, |state, _| json(&state.info));
    add(api::TARGETS, |state, _| {
        json(&state.targets().into_iter().map(|(target, _)| target).collect::<Vec<_>>())
    });
    add(api::POOLS, |state, _| json(&state.pools()));
    add(api::TARGET_STATFS, |state, _| json(&state.statfs()));
    add(api::FID_TO_MDT, MountState::fid2mdt);
    add(api::FID_TO_PATH, MountState::fid2path);
    add("devices", |state, _| Ok(devices(state)));
    commands
}

/// The devices of a mount: its MGC, what combines OSTs and MDTs, and a client for each of those.
fn devices(state: &MountState) -> String {
    let (instance, fsname) = (&state.info.instance, &state.info.fsname);
    let mut text = String::new();
    for (target, report) in state.targets() {
        let up = if target.active { "UP" } else { "IN" };
        let (kind, client) = (device_type(target.kind), &report.client);
        if target.kind == Kind::Mgs {
            text += &format!("{up} mgc {} {client} 5\n", target.device);
            text += &format!("UP lov {fsname}-clilov-{instance} {} 4\n", state.info.uuid);
            text += &format!("UP lmv {fsname}-clilmv-{instance} {} 5\n", state.info.uuid);
        } else {
            text += &format!("{up} {kind} {} {client} 5 {}\n", target.device, report.peer);
        }
    }
    text
}

/// Has the mount answer `questions` of its users, as Lustre's does: what targets there are, how full, and which has a FID, but paths of
/// FIDs, which may lie in directories that are closed to them, only with `-o user_fid2path` (`EPERM`).
pub fn answer_users(state: &Arc<MountState>, questions: &Questions) {
    let state = Arc::clone(state);
    questions.answer_with(move |question| {
        let mut words = question.split(' ').map(str::to_owned);
        let command = words.next().unwrap_or_default();
        let answer = match &*command {
            api::MOUNT_INFO => json(&state.info),
            api::TARGETS => json(&state.targets().into_iter().map(|it| it.0).collect::<Vec<_>>()),
            api::POOLS => json(&state.pools()),
            api::TARGET_STATFS => json(&*state.statfs_believed()),
            api::FID_TO_MDT => state.fid2mdt(&words.collect::<Vec<_>>()),
            api::FID_TO_PATH if !state.options.users_resolve_fids => return Err(Errno::EPERM),
            api::FID_TO_PATH => state.fid2path(&words.collect::<Vec<_>>()),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        answer.map_err(|(errno, _)| errno)
    });
}

/// What Lustre calls the client's end of a connection to such a target.
pub(super) fn device_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Mgs => "mgc",
        Kind::Mdt => "mdc",
        Kind::Ost => "osc",
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, (Errno, String)> {
    serde_json::to_string(value).map_err(|error| (Errno::EIO, error.to_string()))
}
