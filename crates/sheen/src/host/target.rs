//! One target of a server process: its store opened, its role started, its portals served.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sheen_mds::Mdt;
use sheen_mgs::Mgs;
use sheen_node::rpc::RpcNode;
use sheen_oss::Ost;
use sheen_store::Store;
use sheen_store_disk::{Config, FormatOptions, OpenOptions, StoreDisk};
use sheen_target::{ConnectOffer, Operations, ReverseChannels, Target, TargetConfig, Timeouts};
use sheen_types::{Nid, ObdHandle, TargetKind, TargetName, Uuid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::lnet::Portal;

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

/// Reads what lies in `directory`: an MGT, a target, or an MDT with an MGT inside.
pub(super) fn plans(directory: &Path) -> Result<Vec<Plan>, String> {
    let config = Config::load(directory).map_err(|error| error.to_string())?;
    let value = |key: &str| config.values.get(key).map(String::as_str);
    let damaged = |what: &str| format!("{}: CONFIG has no {what}", directory.display());
    let kinds: Vec<&str> = value("kind").ok_or_else(|| damaged("kind"))?.split(',').collect();
    let mgs = value("mgsnode").unwrap_or_default();
    let mgs = mgs.split([',', ':']).filter(|nid| !nid.is_empty());
    let mgs = mgs.map(|nid| nid.parse().map_err(|error| format!("{}: {nid}: {error}", directory.display())));
    let mgs = mgs.collect::<Result<Vec<Nid>, String>>()?;
    let params = config.values.iter().filter(|(key, _)| key.starts_with("param."));
    let params = params.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ");
    let mut plans = Vec::new();
    for kind in &kinds {
        let (place, kind) = match *kind {
            "mgs" if kinds.len() > 1 => (inner_mgt(directory)?, PlanKind::Mgs),
            "mgs" => (directory.to_owned(), PlanKind::Mgs),
            kind => {
                let kind = if kind == "mdt" { TargetKind::Mdt } else { TargetKind::Ost };
                let fsname = value("fsname").ok_or_else(|| damaged("fsname"))?.to_owned();
                let index = value("index").and_then(|index| index.parse().ok());
                let index = index.ok_or_else(|| damaged("index"))?;
                (directory.to_owned(), PlanKind::Target(TargetName { fsname, kind, index }))
            }
        };
        let (mgs, params) = (mgs.clone(), params.clone());
        plans.push(Plan { directory: place, kind, mgs, params });
    }
    plans.sort_by_key(|plan| plan.kind != PlanKind::Mgs);
    Ok(plans)
}

/// An MDT formatted with `--mgs` has the MGT in a folder of its own, made when first started.
fn inner_mgt(directory: &Path) -> Result<PathBuf, String> {
    let place = directory.join("mgt");
    if !place.join("format").exists() {
        let options = FormatOptions { label: "MGS".to_owned(), ..FormatOptions::default() };
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
    Mgs(Arc<Mgs>),
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
        let store = StoreDisk::open(&plan.directory, &options).map_err(|error| error.to_string())?;
        let store: Arc<dyn Store> = Arc::new(store);
        let (role, operations, offer, portals) = make(&plan.kind, &store, &world).await
            .map_err(|error| failed(&error))?;
        let (name, uuid, index) = match &plan.kind {
            PlanKind::Mgs => ("MGS".to_owned(), Uuid::new("MGS"), 0),
            PlanKind::Target(name) => (name.to_string(), name.uuid(), name.index),
        };
        let replayable = plan.kind != PlanKind::Mgs;
        let config = TargetConfig { name, uuid: uuid.clone(), index, offer, replayable, timeouts };
        let reverse = Arc::new(Reverse(Arc::clone(node)));
        let target = Target::start(world, store, config, operations, reverse).await
            .map_err(|error| failed(&error))?;
        node.register(uuid, Arc::clone(&target) as _, portals);
        Ok(Self { plan, target, role })
    }
}

type Made = (Role, Arc<dyn Operations>, ConnectOffer, &'static [Portal]);

/// Portals of all targets: lock requests of clients.
const MGS_PORTALS: &[Portal] = &[Portal::MGS_REQUEST, Portal::LDLM_CANCEL_REQUEST];
const MDT_PORTALS: &[Portal] = &[
    Portal::MDS_REQUEST,
    Portal::MDS_READPAGE,
    Portal::MDS_SETATTR,
    Portal::MDS_IO,
    Portal::SEQ_METADATA,
    Portal::SEQ_DATA,
    Portal::SEQ_CONTROLLER,
    Portal::FLD_REQUEST,
    Portal::LDLM_CANCEL_REQUEST,
];
const OST_PORTALS: &[Portal] = &[
    Portal::OST_REQUEST,
    Portal::OST_CREATE,
    Portal::OST_IO,
    Portal::LDLM_CANCEL_REQUEST,
];

async fn make(
    kind: &PlanKind,
    store: &Arc<dyn Store>,
    world: &sheen_io::World,
) -> Result<Made, String> {
    Ok(match kind {
        PlanKind::Mgs => {
            let mgs = Mgs::new(store, world).map_err(|error| error.to_string())?;
            (Role::Mgs(Arc::clone(&mgs)), mgs as _, Mgs::offer(), MGS_PORTALS)
        }
        PlanKind::Target(name) if name.kind == TargetKind::Mdt => {
            let mdt = Mdt::new(Arc::clone(store), name).map_err(|error| error.to_string())?;
            (Role::Mdt(Arc::clone(&mdt)), mdt as _, Mdt::offer(), MDT_PORTALS)
        }
        PlanKind::Target(name) => {
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
