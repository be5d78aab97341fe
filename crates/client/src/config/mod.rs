//! Mounting: from the MGS's address to a [`FileSystem`].
//!
//! Connect to the MGS, read the file system's configuration under a lock, connect to its targets, ask
//! for the root. Afterwards a task reads the configuration again whenever the MGS says that it has
//! changed. Costs: some ten RPCs, once.

mod follow;
mod log;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sheen_io::{BoxFuture, World, within};
use sheen_rpc::import::ImportKind;
use sheen_rpc::{Channel, Import, ImportConfig, RpcError};
use sheen_types::futures;
use sheen_types::{Errno, Fid, MdtIndex, Nid, TargetKind, Uuid};
use sheen_wire::messages::MdsGetRoot;
use sheen_wire::text::Text;

pub use crate::targets::Connector;
pub use follow::{LogReader, ParameterHook};
pub use log::read_log;
pub use sheen_llog::{ClusterMap, LogRecord, LovDesc, MapTarget, Param};

use crate::boxed;
use crate::cache::{
    CoveredByMdt, CoveredMetadata, DataEventHandler, FileLockRecords, InodeTable, KernelCache,
    NameHasher,
};
use crate::call;
use crate::data::{AddedMdt, DataPath, MdtLocations};
use crate::locks::CallbackRouter;
use crate::mdt::{FidSource, Mdc, Mdts};
use crate::meta::Meta;
use crate::posix::{FileSystem, Handles, Mounted, StaleRetry};
use crate::records::Recorder;
use crate::targets::{DataPlace, ImportEvents, Targets, connect, name_of};
use crate::types::Credentials;
use follow::{Config, FSNAME_BYTES_MAX};

/// The UUID under which every MGS answers.
const MGS_UUID: &str = "MGS";
/// Unused locks kept for each target by default.
pub const LOCKS_UNUSED_MAX: usize = 100_000;
/// How long an unused lock is kept: Lustre's default.
const LOCK_AGE_MAX: Duration = Duration::from_secs(3900);
/// How long a mount waits for OSTs and further MDTs; those that come later are used when they come.
const REST_WAIT: Duration = Duration::from_secs(5);

/// What to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The file system: 1 to 8 letters, digits, `-` or `_`.
    pub fsname: String,
    /// Nodes that run the MGS, the best first.
    pub mgs: Vec<Nid>,
    /// A directory to mount instead of the root, its path from there.
    pub fileset: Option<String>,
    /// How long to wait for the MGS and the MDT.
    pub timeout: Duration,
}

/// Why a mount failed, as `mount.lustre` would put it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountError {
    /// The name is not valid.
    IllegalName,
    /// The name is too long.
    NameTooLong,
    /// No node that runs an MGS answered.
    MgsUnreachable,
    /// The MGS does not know the file system.
    NoSuchFileSystem,
    /// The file system has no MDT, or no OST, yet.
    NoTargets(TargetKind),
    /// The MDT did not answer.
    MdtUnreachable(String),
    /// Anything else.
    Refused(Errno),
}

impl MountError {
    /// What the mount call answers.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::IllegalName => Errno::EINVAL,
            Self::NameTooLong => Errno::ENAMETOOLONG,
            Self::MgsUnreachable => Errno::EIO,
            Self::NoSuchFileSystem => Errno::ENOENT,
            Self::NoTargets(_) => Errno::ENODEV,
            Self::MdtUnreachable(_) => Errno::ETIMEDOUT,
            Self::Refused(errno) => *errno,
        }
    }

    /// What to look at, a line each.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::IllegalName => {
                vec!["A file system's name has letters, digits, '-' and '_' only.".to_owned()]
            }
            Self::NameTooLong => vec!["A file system's name has at most 8 characters.".to_owned()],
            Self::MgsUnreachable => vec!["Is the MGS running?".to_owned()],
            Self::NoSuchFileSystem => vec![
                "Is the MGS specification correct?".to_owned(),
                "Is the filesystem name correct?".to_owned(),
            ],
            Self::NoTargets(TargetKind::Mdt) => vec!["No MDT has registered yet.".to_owned()],
            Self::NoTargets(TargetKind::Ost) => vec!["No OST has registered yet.".to_owned()],
            Self::MdtUnreachable(name) => vec![format!("Is {name} running?")],
            Self::Refused(_) => Vec::new(),
        }
    }
}

impl fmt::Display for MountError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.errno(), out)
    }
}

impl std::error::Error for MountError {}

/// Mounts a file system. `router` must get the node's lock callbacks; `data` is where its data path goes;
/// `parameters` is called with those set on the MGS, now and later.
///
/// # Errors
/// See [`MountError`]. Nothing stays connected after an error.
#[boxed]
pub async fn mount(
    world: World,
    connector: Arc<dyn Connector>,
    router: Arc<CallbackRouter>,
    data: Arc<dyn DataPath>,
    options: MountOptions,
    parameters: Option<ParameterHook>,
) -> Result<FileSystem, MountError> {
    check_name(&options.fsname)?;
    let mut uuid = [0; 16];
    world.random.fill(&mut uuid);
    let locks = sheen_ldlm::client::Config {
        seed: 0,
        lru_size: LOCKS_UNUSED_MAX,
        lru_max_age: LOCK_AGE_MAX,
    };
    let client = Uuid::from_random(uuid);
    let targets = Arc::new(Targets::new(world, connector, router, client, locks));
    match assemble(&targets, data, &options, parameters).await {
        Ok(mounted) => Ok(FileSystem::new(mounted)),
        Err(error) => {
            targets.disconnect_all().await;
            Err(error)
        }
    }
}

fn check_name(name: &str) -> Result<(), MountError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || !name.bytes().all(legal) {
        return Err(MountError::IllegalName);
    }
    if name.len() > FSNAME_BYTES_MAX { Err(MountError::NameTooLong) } else { Ok(()) }
}

async fn assemble(
    targets: &Arc<Targets>,
    data: Arc<dyn DataPath>,
    options: &MountOptions,
    parameters: Option<ParameterHook>,
) -> Result<Mounted, MountError> {
    let recorder = data.recorder();
    let config = connect_mgs(targets, options, &recorder).await?;
    let map = match within(&*targets.world.clock, options.timeout, config.read()).await {
        None => return Err(MountError::MgsUnreachable),
        Some(Err(Errno::ENOENT)) => return Err(MountError::NoSuchFileSystem),
        Some(Err(errno)) => return Err(MountError::Refused(errno)),
        Some(Ok(map)) => map,
    };
    let first = map.mdts.first().ok_or(MountError::NoTargets(TargetKind::Mdt))?;
    if map.osts.is_empty() {
        return Err(MountError::NoTargets(TargetKind::Ost));
    }
    let events = Arc::new(ImportEvents::recording(recorder.clone()));
    let (import, root) = connect_mdt(targets, first, &events, options).await?;
    let locations = Arc::new(MdtLocations::new(index_of(first)));
    data.locate_by(Arc::clone(&locations));
    let inodes = InodeTable::recording(root, recorder.clone(), Arc::clone(&locations));
    let kernel_cache = Arc::new(KernelCache::default());
    let hasher = NameHasher::new(targets.world.random.number());
    let cache = CoveredMetadata {
        inodes: Arc::clone(&inodes),
        kernel_cache: Arc::clone(&kernel_cache),
        hasher,
        file_locks: FileLockRecords::new(recorder.clone()),
        clock: Arc::clone(&targets.world.clock),
    };
    let cache = Arc::new(cache);
    let mdt = make_mdt(targets, first, &import, &events, (&cache, &data));
    let mdts = Arc::new(Mdts::new(targets.world.clone(), locations, mdt));
    let more = MoreMdts::new(targets, &mdts, &cache);
    data.watch(Arc::new(DataEventHandler {
        inodes: Arc::clone(&inodes),
        kernel_cache: Arc::clone(&kernel_cache),
    }));
    connect_rest(targets, &more, &map, &data).await;
    if let Some(hook) = &parameters {
        hook(&map);
    }
    let follow = follow::follow(config, more, Arc::clone(&data), parameters);
    targets.world.tasks.spawn("config", Box::pin(follow));
    targets.forget_old_locks(&data);
    Ok(Mounted {
        meta: Meta::new(targets.world.clone(), cache, mdts),
        data,
        targets: Arc::clone(targets),
        inodes,
        kernel_cache,
        handles: Handles::new(recorder.clone()),
        stale_retry: StaleRetry::default(),
        migrations: crate::posix::Migrations::default(),
        statistics: Default::default(),
        settings: Default::default(),
        ahead: Default::default(),
        squash: parking_lot::RwLock::default(),
        access_times: parking_lot::RwLock::default(),
        page_handoff: crate::posix::PageHandoff::default(),
        file_locks_taken: crate::posix::FileLocksTaken::new(recorder),
        closing: crate::posix::PendingCloses::default(),
        former: crate::posix::FormerProcess::default(),
    })
}

async fn connect_mgs(
    targets: &Arc<Targets>,
    options: &MountOptions,
    recorder: &Recorder,
) -> Result<Config, MountError> {
    let config = |owner| ImportConfig {
        target: Uuid::new(MGS_UUID),
        client: targets.client.clone(),
        nids: options.mgs.clone(),
        kind: ImportKind::Mgs,
        data: connect::offer_to_mgs(),
        requests_in_flight: 0,
        owner,
    };
    let (world, router) = (&targets.world, &targets.router);
    let (import, reader) = LogReader::recording(world, router, recorder, |owner| {
        targets.connector.import(config(owner))
    });
    match within(&*targets.world.clock, options.timeout, import.connect()).await {
        Some(Ok(())) => {}
        Some(Err(RpcError::Errno(errno))) => return Err(MountError::Refused(errno)),
        failed => {
            tracing::info!(nids = ?options.mgs, error = cause(failed), "connecting to the MGS");
            import.close();
            return Err(MountError::MgsUnreachable);
        }
    }
    targets.keep_mgs(import, Arc::clone(reader.locks()));
    Ok(Config { fsname: options.fsname.clone(), reader })
}

/// Why a connect has failed; `None` if the time was over.
fn cause(failed: Option<Result<(), RpcError>>) -> String {
    match failed {
        Some(Err(error)) => error.to_string(),
        Some(Ok(())) | None => "no answer in time".to_owned(),
    }
}

/// Connects to the MDT and asks for the root. The namespace is made later: what it covers begins with the
/// root.
async fn connect_mdt(
    targets: &Targets,
    target: &MapTarget,
    events: &Arc<ImportEvents>,
    options: &MountOptions,
) -> Result<(Arc<dyn Import>, Fid), MountError> {
    let import = targets.import(target, ImportKind::Mds, events);
    match within(&*targets.world.clock, options.timeout, import.connect()).await {
        Some(Ok(())) => {}
        Some(Err(RpcError::Errno(errno))) => return Err(MountError::Refused(errno)),
        failed => {
            let mdt = name_of(target);
            tracing::info!(mdt, error = cause(failed), "connecting to the MDT");
            import.close();
            return Err(MountError::MdtUnreachable(mdt));
        }
    }
    match root(&*import, options.fileset.as_deref()).await {
        Ok(root) => Ok((import, root)),
        Err(errno) => {
            import.disconnect().await;
            Err(MountError::Refused(errno))
        }
    }
}

/// The number of an MDT. No configuration has larger ones: names of targets have four digits.
fn index_of(target: &MapTarget) -> MdtIndex {
    MdtIndex(u16::try_from(target.index).unwrap_or(u16::MAX))
}

fn make_mdt(
    targets: &Targets,
    target: &MapTarget,
    import: &Arc<dyn Import>,
    events: &ImportEvents,
    (cache, path): (&Arc<CoveredMetadata>, &Arc<dyn DataPath>),
) -> Arc<Mdc> {
    let channel = Arc::clone(import) as Arc<dyn Channel>;
    let index = index_of(target);
    let covered = CoveredByMdt { mdt: index, metadata: Arc::clone(cache) };
    let AddedMdt { locks, data } = path.add_mdt(
        target.index,
        name_of(target),
        Arc::clone(&channel),
        targets.lock_config(),
        Arc::new(covered),
    );
    targets.router.add(&locks);
    targets.keep_mdt(target, Arc::clone(import), Arc::clone(&locks));
    let place =
        DataPlace { kind: ImportKind::Mds, index: target.index, path: Arc::downgrade(path) };
    events.attach(&locks, Some(place));
    // It may have been connected before its reports went anywhere.
    events.connected(&import.connect_data());
    let fids = FidSource::new(Arc::clone(&channel), path.recorder());
    let refuses_batches = AtomicBool::new(false);
    Arc::new(Mdc { index, fids, channel, locks, data, refuses_batches })
}

/// The MDTs after the first of a mount, which lists them in its configuration now or later.
struct MoreMdts {
    targets: Weak<Targets>,
    mdts: Weak<Mdts>,
    cache: Weak<CoveredMetadata>,
}

impl MoreMdts {
    fn new(targets: &Arc<Targets>, mdts: &Arc<Mdts>, cache: &Arc<CoveredMetadata>) -> Self {
        let (targets, mdts) = (Arc::downgrade(targets), Arc::downgrade(mdts));
        Self { targets, mdts, cache: Arc::downgrade(cache) }
    }

    /// Adds those that are new, and answers what connects them.
    fn add(&self, listed: &[MapTarget], path: &Arc<dyn DataPath>) -> Vec<Arc<dyn Import>> {
        let parts = (self.targets.upgrade(), self.mdts.upgrade(), self.cache.upgrade());
        let (Some(targets), Some(mdts), Some(cache)) = parts else { return Vec::new() };
        let is_new =
            |target: &&MapTarget| !target.is_excluded && mdts.by_index(index_of(target)).is_none();
        let add = |target: &MapTarget| {
            let events = Arc::new(ImportEvents::recording(path.recorder()));
            let import = targets.import(target, ImportKind::Mds, &events);
            mdts.add(make_mdt(&targets, target, &import, &events, (&cache, path)));
            import
        };
        listed.iter().filter(is_new).map(add).collect()
    }
}

/// Begins to connect all MDTs but the first, and all OSTs, and waits a little for them.
async fn connect_rest(
    targets: &Arc<Targets>,
    more: &MoreMdts,
    map: &ClusterMap,
    data: &Arc<dyn DataPath>,
) {
    let mut imports = more.add(&map.mdts, data);
    // A deactivated OST is not connected; its objects cannot be reached.
    let active = map.osts.iter().filter(|ost| !ost.is_excluded);
    imports.extend(active.map(|ost| targets.add_ost(ost, data)));
    let connects: Vec<BoxFuture<'_, _>> = imports.iter().map(|import| import.connect()).collect();
    if within(&*targets.world.clock, REST_WAIT, futures::all(connects)).await.is_none() {
        for import in imports {
            targets.connect_later(import);
        }
    }
}

/// The FID of the root, or of the directory to mount. One RPC.
async fn root(mdt: &dyn Channel, fileset: Option<&str>) -> Result<Fid, Errno> {
    let request = MdsGetRoot {
        mdt_body: Credentials::root().plain_body(),
        name: fileset.map(Text::from),
        ..MdsGetRoot::default()
    };
    let answer = call::call::<MdsGetRoot>(mdt, sheen_rpc::Call::new(request)).await?;
    let fid = call::need(answer.reply.mdt_body)?.fid1;
    if fid.is_of_mdt() { Ok(fid) } else { Err(Errno::EPROTO) }
}
