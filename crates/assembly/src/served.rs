//! One target on a node: its role started on a store, its portals served.

use std::fmt;
use std::sync::Arc;

use sheen_io::World;
use sheen_mds::{Mdt, MdtConfig};
use sheen_mgs::{Mgs, MgsConfig};
use sheen_node::rpc::RpcNode;
use sheen_oss::Ost;
use sheen_store::{Store, StoreError};
use sheen_target::{ConnectOffer, Operations, ReverseChannels, Target, TargetConfig, Timeouts};
use sheen_types::{Nid, ObdHandle, TargetKind, TargetName, Uuid};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::lnet::Portal;

/// Which target: the MGS, or an MDT or OST by its name. Shown as Lustre labels its disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetLabel {
    /// The MGS.
    Mgs,
    /// An MDT or OST.
    Target(TargetName),
}

impl TargetLabel {
    /// Where requests to a target of this kind arrive.
    #[must_use]
    pub fn portals(&self) -> &'static [Portal] {
        match self {
            Self::Mgs => MGS_PORTALS,
            Self::Target(name) if name.kind == TargetKind::Mdt => MDT_PORTALS,
            Self::Target(_) => OST_PORTALS,
        }
    }
}

impl fmt::Display for TargetLabel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mgs => out.write_str("MGS"),
            Self::Target(name) => write!(out, "{name}"),
        }
    }
}

/// A target that serves.
pub struct Served {
    /// Which one.
    pub kind: TargetLabel,
    /// The target.
    pub target: Arc<Target>,
    /// Its role.
    pub role: Role,
}

/// A target's role, for what only that role can be asked.
#[derive(Clone)]
pub enum Role {
    /// Configuration.
    Mgs(Arc<Mgs>),
    /// Metadata.
    Mdt(Arc<Mdt>),
    /// Objects.
    Ost(Arc<Ost>),
}

impl Served {
    /// Starts what `kind` says on `store`.
    ///
    /// # Errors
    /// A text that says what the store or the target refused.
    pub async fn start(
        kind: TargetLabel,
        store: Arc<dyn Store>,
        node: &Arc<RpcNode>,
        world: World,
        timeouts: Timeouts,
    ) -> Result<Self, String> {
        let reverse: Arc<dyn ReverseChannels> = Arc::new(Reverse(Arc::clone(node)));
        let TargetLabel::Target(name) = &kind else {
            let config = MgsConfig { timeouts };
            let started = Mgs::start(world, store, config, reverse).await;
            let (mgs, target) = started.map_err(|error| error.to_string())?;
            node.register(Uuid::new("MGS"), Arc::clone(&target) as _, MGS_PORTALS);
            return Ok(Self { kind, target, role: Role::Mgs(mgs) });
        };
        let (role, operations, offer) =
            make(name, &store, &world).map_err(|error| format!("{name}: {error}"))?;
        let config = TargetConfig {
            name: name.to_string(),
            uuid: name.uuid(),
            index: name.index,
            offer,
            replayable: true,
            timeouts,
        };
        if let Role::Mdt(mdt) = &role {
            // Before its first request: [`crate::Registrar::keep_connections`] reads it later.
            mdt.await_configuration();
        }
        let started = Target::start(world, store, config, operations, reverse).await;
        let target = started.map_err(|error| format!("{name}: {error}"))?;
        node.register(name.uuid(), Arc::clone(&target) as _, kind.portals());
        Ok(Self { kind, target, role })
    }
}

type Made = (Role, Arc<dyn Operations>, ConnectOffer);

const MGS_PORTALS: &[Portal] = &[Portal::MGS_REQUEST, Portal::LDLM_CANCEL_REQUEST];
const MDT_PORTALS: &[Portal] = &[
    Portal::MDS_REQUEST,
    Portal::MDS_READPAGE,
    Portal::MDS_IO,
    Portal::SEQ_METADATA,
    Portal::SEQ_DATA,
    Portal::SEQ_CONTROLLER,
    Portal::FLD_REQUEST,
    Portal::OUT,
    Portal::LDLM_CANCEL_REQUEST,
];
const OST_PORTALS: &[Portal] =
    &[Portal::OST_REQUEST, Portal::OST_CREATE, Portal::OST_IO, Portal::LDLM_CANCEL_REQUEST];

fn make(name: &TargetName, store: &Arc<dyn Store>, world: &World) -> Result<Made, StoreError> {
    Ok(match name.kind {
        TargetKind::Mdt => {
            let mut random = [0; 16];
            world.random.fill(&mut random);
            let now = world.clock.wall();
            let config = MdtConfig::new(name.fsname.clone(), name.index, now, random);
            let mdt = Mdt::new(Arc::clone(store), config)?;
            (Role::Mdt(Arc::clone(&mdt)), mdt as _, Mdt::offer())
        }
        TargetKind::Ost => {
            let ost = Arc::new(Ost::new(Arc::clone(store), name.index));
            (Role::Ost(Arc::clone(&ost)), ost as _, Ost::offer())
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

    fn is_own_node(&self, nid: Nid) -> bool {
        self.0.lnet().is_own(nid)
    }
}
