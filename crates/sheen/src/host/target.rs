//! One target of a server process: its store opened, its role started, its portals served.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sheen_mds::{Mdt, MdtConfig};
use sheen_mgs::{Mgs, MgsConfig};
use sheen_node::rpc::RpcNode;
use sheen_oss::Ost;
use sheen_store::{Store, StoreError};
use sheen_store_disk::{Config, FormatOptions, OpenOptions, StoreDisk};
use sheen_target::{ConnectOffer, Operations, ReverseChannels, Target, TargetConfig, Timeouts};
use sheen_types::{Nid, ObdHandle, TargetKind, TargetName, Uuid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::lnet::Portal;

use crate::mkfs;

/// Memory that the stores of one process may use for caches together.
const CACHE_BYTES: usize = 128 << 20;

/// What a target's directory says it is.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) directory: PathBuf,
    pub(super) kind: PlanKind,
    /// Where the MGS is, for targets that are not on its node.
    pub(super) mgs: Vec<Nid>,
    /// `mkfs.lustre --param`.
    pub(super) params: String,
}

/// Which role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanKind {
    Mgs,
    Target(TargetName),
}

impl PlanKind {
    /// Where requests to a target of this kind arrive.
    pub(super) fn portals(&self) -> &'static [Portal] {
        match self {
            Self::Mgs => MGS_PORTALS,
            Self::Target(name) if name.kind == TargetKind::Mdt => MDT_PORTALS,
            Self::Target(_) => OST_PORTALS,
        }
    }
}

/// Reads what lies in `directory`: an MGT, a target, or an MDT with an MGT inside.
pub(super) fn plans(directory: &Path) -> Result<Vec<Plan>, String> {
    let stored = Config::load(directory).map_err(|error| error.to_string())?;
    let config = mkfs::TargetConfig::from_values(&stored.values)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let params = config.params.iter().map(|(key, value)| format!("{key}={value}"));
    let params = params.collect::<Vec<_>>().join(" ");
    let mgs: Vec<Nid> = config.mgs_nodes.concat();
    let plan = |directory: PathBuf, kind| Plan {
        directory,
        kind,
        mgs: mgs.clone(),
        params: params.clone(),
    };
    let mut plans = Vec::new();
    if config.mgs {
        let place = match config.kind {
            Some(_) => inner_mgt(directory)?,
            None => directory.to_owned(),
        };
        plans.push(plan(place, PlanKind::Mgs));
    }
    if let Some(kind) = config.kind {
        let name = TargetName { fsname: config.fsname, kind, index: config.index };
        plans.push(plan(directory.to_owned(), PlanKind::Target(name)));
    }
    Ok(plans)
}

/// An MDT formatted with `--mgs` has the MGT in a folder of its own, made when first started.
fn inner_mgt(directory: &Path) -> Result<PathBuf, String> {
    let place = directory.join("mgt");
    if !place.join("format").exists() {
        let config = mkfs::TargetConfig { mgs: true, ..Default::default() };
        let options = FormatOptions {
            label: config.name(),
            config: config.to_values(),
            ..FormatOptions::default()
        };
        StoreDisk::format(&place, &options).map_err(|error| error.to_string())?;
    }
    Ok(place)
}

/// A target that serves.
pub(super) struct Running {
    pub(super) plan: Plan,
    pub(super) target: Arc<Target>,
    pub(super) role: Role,
}

/// Its role, for what only that role can be asked.
#[derive(Clone)]
pub(super) enum Role {
    Mgs,
    Mdt(Arc<Mdt>),
    Ost(Arc<Ost>),
}

impl Running {
    /// Opens and starts what `plan` says. `count` targets share the process's memory.
    pub(super) async fn start(
        plan: Plan,
        node: &Arc<RpcNode>,
        world: sheen_io::World,
        count: usize,
        timeouts: Timeouts,
    ) -> Result<Self, String> {
        let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", plan.directory.display());
        let options = OpenOptions { cache_bytes: CACHE_BYTES / count.max(1), ..Default::default() };
        let store =
            StoreDisk::open(&plan.directory, &options).map_err(|error| error.to_string())?;
        let store: Arc<dyn Store> = Arc::new(store);
        let reverse: Arc<dyn ReverseChannels> = Arc::new(Reverse(Arc::clone(node)));
        let PlanKind::Target(name) = &plan.kind else {
            let config = MgsConfig { timeouts };
            let (_, target) =
                Mgs::start(world, store, config, reverse).await.map_err(|error| failed(&error))?;
            node.register(Uuid::new("MGS"), Arc::clone(&target) as _, MGS_PORTALS);
            return Ok(Self { plan, target, role: Role::Mgs });
        };
        let (role, operations, offer, portals) =
            make(name, &store).map_err(|error| failed(&error))?;
        let config = TargetConfig {
            name: name.to_string(),
            uuid: name.uuid(),
            index: name.index,
            offer,
            replayable: true,
            timeouts,
        };
        let uuid = name.uuid();
        let target = Target::start(world, store, config, operations, reverse)
            .await
            .map_err(|error| failed(&error))?;
        node.register(uuid, Arc::clone(&target) as _, portals);
        Ok(Self { plan, target, role })
    }

    /// Notes that the target has registered, and answers whether it had before.
    pub(super) fn mark_registered(&self) -> Result<bool, String> {
        let directory = &self.plan.directory;
        let mut config = Config::load(directory).map_err(|error| error.to_string())?;
        if config.values.contains_key(REGISTERED) {
            return Ok(true);
        }
        config.values.insert(REGISTERED.to_owned(), "1".to_owned());
        config.save(directory).map_err(|error| error.to_string())?;
        Ok(false)
    }
}

/// Set in a target's configuration before it registers for the first time.
const REGISTERED: &str = "registered";

type Made = (Role, Arc<dyn Operations>, ConnectOffer, &'static [Portal]);

const MGS_PORTALS: &[Portal] = &[Portal::MGS_REQUEST, Portal::LDLM_CANCEL_REQUEST];
const MDT_PORTALS: &[Portal] = &[
    Portal::MDS_REQUEST,
    Portal::MDS_READPAGE,
    Portal::MDS_IO,
    Portal::SEQ_METADATA,
    Portal::SEQ_DATA,
    Portal::SEQ_CONTROLLER,
    Portal::FLD_REQUEST,
    Portal::LDLM_CANCEL_REQUEST,
];
const OST_PORTALS: &[Portal] =
    &[Portal::OST_REQUEST, Portal::OST_CREATE, Portal::OST_IO, Portal::LDLM_CANCEL_REQUEST];

fn make(name: &TargetName, store: &Arc<dyn Store>) -> Result<Made, StoreError> {
    Ok(match name.kind {
        TargetKind::Mdt => {
            let config = MdtConfig::new(name.fsname.clone(), name.index);
            let mdt = Mdt::new(Arc::clone(store), config)?;
            (Role::Mdt(Arc::clone(&mdt)), mdt as _, Mdt::offer(), MDT_PORTALS)
        }
        TargetKind::Ost => {
            let ost = Arc::new(Ost::new(Arc::clone(store), name.index));
            (Role::Ost(Arc::clone(&ost)), ost as _, Ost::offer(), OST_PORTALS)
        }
    })
}

/// The way back to clients.
struct Reverse(Arc<RpcNode>);

impl ReverseChannels for Reverse {
    fn reverse(
        &self,
        to: Nid,
        import: ObdHandle,
        client: &Uuid,
        agreed: &ObdConnectData,
    ) -> Arc<dyn sheen_rpc::Channel> {
        self.0.reverse(client.clone(), to, import, agreed.clone())
    }
}
