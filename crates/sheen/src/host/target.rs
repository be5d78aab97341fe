//! One target of a server process: its store opened, its role started, its portals served.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sheen_assembly::{NotRegistered, Registrar, Role, Served, TargetLabel};
use sheen_node::rpc::RpcNode;
use sheen_parameters::HostedTarget;
use sheen_store::{AttributePatch, Store, Transaction};
use sheen_store_disk::{Config, FormatOptions, OpenOptions, StoreDisk};
use sheen_target::Timeouts;
use sheen_types::{Fid, Nid, TargetName};

use super::invalid;
use super::salvage::now;
use sheen_tools::mkfs;
use sheen_tools::output::{Fault, shown_path};

/// What a target's directory says it is.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) directory: PathBuf,
    pub(super) kind: TargetLabel,
    /// Where the MGS is, for targets that are not on its node.
    pub(super) mgs: Vec<Nid>,
    /// `mkfs.lustre --param`.
    pub(super) params: String,
    /// `mkfs.lustre --replace`: it takes the place of a target that the MGS knows.
    pub(super) replaces: bool,
}

/// Reads what lies in `directory`: an MGT, a target, or an MDT with an MGT inside.
pub(super) fn plans(directory: &Path) -> Result<Vec<Plan>, Fault> {
    let stored = Config::load(directory).map_err(|error| mkfs::disk_fault(&error))?;
    let config = mkfs::TargetConfig::from_values(&stored.values)
        .map_err(|error| invalid(format!("{}: {error}", shown_path(directory))))?;
    let params = config.params.iter().map(|(key, value)| format!("{key}={value}"));
    let params = params.collect::<Vec<_>>().join(" ");
    let mgs: Vec<Nid> = config.mgs_nodes.concat();
    let plan = |directory: PathBuf, kind| Plan {
        directory,
        kind,
        mgs: mgs.clone(),
        params: params.clone(),
        replaces: config.replace,
    };
    let mut plans = Vec::new();
    if config.mgs {
        let place = match config.kind {
            Some(_) => inner_mgt(directory)?,
            None => directory.to_owned(),
        };
        plans.push(plan(place, TargetLabel::Mgs));
    }
    if let Some(kind) = config.kind {
        let name = TargetName { fsname: config.fsname, kind, index: config.index };
        plans.push(plan(directory.to_owned(), TargetLabel::Target(name)));
    }
    Ok(plans)
}

/// An MDT formatted with `--mgs` has the MGT in a folder of its own, made when first started.
fn inner_mgt(directory: &Path) -> Result<PathBuf, Fault> {
    let place = directory.join("mgt");
    if !place.join("format").exists() {
        let config = mkfs::TargetConfig { mgs: true, ..Default::default() };
        let options = FormatOptions {
            label: config.name(),
            config: config.to_values(),
            ..FormatOptions::default()
        };
        StoreDisk::format(&place, &options).map_err(|error| mkfs::disk_fault(&error))?;
    }
    Ok(place)
}

/// With how many targets each of `plans` shares its disk: those of its kind on the same local file
/// system that have no size of their own.
pub(super) fn shared_by(plans: &[Plan]) -> Vec<u32> {
    let place = |plan: &Plan| {
        let TargetLabel::Target(name) = &plan.kind else { return None };
        let config = Config::load(&plan.directory).ok()?;
        let device = std::fs::metadata(&plan.directory).ok()?.dev();
        config.capacity_bytes(&plan.directory).ok()?.is_none().then_some((name.kind, device))
    };
    let places: Vec<_> = plans.iter().map(place).collect();
    let together = |place| places.iter().filter(|other| **other == place).count() as u32;
    places.iter().map(|place| if place.is_some() { together(*place) } else { 1 }).collect()
}

/// A target that serves, and what its directory says of it.
pub(super) struct Running {
    pub(super) plan: Plan,
    pub(super) hosted: Arc<HostedTarget>,
    store: Arc<StoreDisk>,
}

impl Running {
    /// Opens and starts what `plan` says, with `cache_bytes` of memory. `shared_by` targets share its disk.
    pub(super) async fn start(
        plan: Plan,
        node: &Arc<RpcNode>,
        world: sheen_io::World,
        (cache_bytes, shared_by): (usize, u32),
        timeouts: Timeouts,
    ) -> Result<Self, Fault> {
        let options = OpenOptions { cache_bytes, shared_by, ..Default::default() };
        let store =
            StoreDisk::open(&plan.directory, &options).map_err(|error| mkfs::disk_fault(&error))?;
        let store = Arc::new(store);
        let started = Arc::clone(&store) as Arc<dyn Store>;
        let served = Served::start(plan.kind.clone(), started, node, world, timeouts).await;
        let place = plan.directory.clone();
        let said = |text: String| invalid(format!("{}: {text}", shown_path(&place)));
        let served = served.map_err(said)?;
        let hosted = HostedTarget { served: Arc::new(served), directory: plan.directory.clone() };
        let running = Self { plan, hosted: Arc::new(hosted), store };
        running.own_root(&running.store).map_err(said)?;
        Ok(running)
    }

    pub(super) fn served(&self) -> &Arc<Served> {
        &self.hosted.served
    }

    /// Closes its store: no request comes any more. Tasks that are left may hold it, so it is not dropped.
    pub(super) fn close(&self) {
        self.store.close();
    }

    /// Gives the root directory of a new file system to the user whose servers these are: there may be no root
    /// among those who can reach them, and no other user could make anything in it.
    fn own_root(&self, store: &StoreDisk) -> Result<(), String> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        if uid.is_root() || !matches!(self.served().role, Role::Mdt(_)) || self.was_registered()? {
            return Ok(());
        }
        if store.attributes(Fid::ROOT).is_err() {
            return Ok(());
        }
        let (uid, gid) = (Some(uid.as_raw()), Some(gid.as_raw()));
        // Lustre's own root has no times before something is made in it; this one is given to its user now.
        let now = Some(now());
        let patch = AttributePatch { uid, gid, ..AttributePatch::default() };
        let patch = AttributePatch { accessed: now, modified: now, changed: now, ..patch };
        let mut transaction = Transaction::new();
        transaction.patch(Fid::ROOT, patch);
        store.apply(transaction).map(drop).map_err(|error| error.to_string())
    }

    fn was_registered(&self) -> Result<bool, String> {
        is_registered(&self.plan.directory).map_err(|fault| fault.text)
    }

    /// Registers it with the MGS.
    pub(super) async fn register(&self, registrar: &Registrar) -> Result<(), String> {
        if self.plan.kind == TargetLabel::Mgs {
            return Ok(());
        }
        let directory = &self.plan.directory;
        let had_registered = mark(directory, true)?;
        let known = had_registered || self.plan.replaces;
        let registered = registrar.register(self.served(), &self.plan.params, known).await;
        if let Err(NotRegistered::Taken(_)) = &registered
            && !had_registered
        {
            mark(directory, false)?;
        }
        registered.map_err(|why| why.to_string())
    }
}

/// Notes whether the target in `directory` has registered, and answers what was noted before. It is noted before the MGS
/// is asked: a target that dies before it has the answer must not be a new one at its next start.
fn mark(directory: &Path, is_registered: bool) -> Result<bool, String> {
    let mut config = Config::load(directory).map_err(|error| error.to_string())?;
    let was_registered = match is_registered {
        true => config.values.insert(REGISTERED.to_owned(), "1".to_owned()),
        false => config.values.remove(REGISTERED),
    }
    .is_some();
    if was_registered != is_registered {
        config.save(directory).map_err(|error| error.to_string())?;
    }
    Ok(was_registered)
}

/// Whether the target in `directory` has registered with the MGS.
pub(super) fn is_registered(directory: &Path) -> Result<bool, Fault> {
    let config = Config::load(directory).map_err(|error| mkfs::disk_fault(&error))?;
    Ok(config.values.contains_key(REGISTERED))
}

/// Set in a target's configuration before it registers for the first time, and removed if the MGS answers that another
/// target has its place.
pub(super) const REGISTERED: &str = "registered";
