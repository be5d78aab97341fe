//! What a server says to and hears from the MGS: its targets register, an MDT learns its OSTs and the other MDTs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sheen_client::config::{ClusterMap, LogReader, read_log};
use sheen_client::locks::CallbackRouter;
use sheen_io::{World, within};
use sheen_mds::Mdt;
use sheen_node::rpc::{ImportConfig, ImportKind, RpcNode};
use sheen_rpc::{Call, Import, NoOwner, RpcError};
use sheen_types::{Errno, Nid, TargetKind, TargetName, Uuid};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData, version_code};
use sheen_wire::messages::MgsTargetReg;
use sheen_wire::mgs::{MgsTargetInfo, TargetFlags};
use sheen_wire::text::Chars;
use sheen_wire::update_record::FORMAT;

use crate::directory::Directory;
use crate::served::{Role, Served, TargetLabel};

/// How often an MDT looks for targets that joined, and how often while it has no OST.
const LOOK: Duration = Duration::from_secs(5);
const LOOK_FIRST: Duration = Duration::from_millis(200);
/// How long a node that stops waits for the MGS's answer.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);
/// The release we announce.
const VERSION: u32 = version_code(2, 17, 0, 0);

/// A target and what reaches it.
type AddressedTarget = (TargetName, Vec<Nid>);

/// The connection to the MGS that a node's targets share.
pub struct Registrar {
    node: Arc<RpcNode>,
    world: World,
    mgs: Arc<dyn Import>,
    reader: Arc<LogReader>,
}

/// Why a target is not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRegistered {
    /// The file system has another target of this index (`EALREADY`, `EADDRINUSE`).
    Taken(TargetName),
    /// The MGS has refused it, or has not answered.
    Refused(TargetName, RpcError),
}

impl fmt::Display for NotRegistered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(name) => {
                write!(f, "{name}: the file system has another target of this index")
            }
            Self::Refused(name, error) => write!(f, "{name}: the MGS refused it: {error}"),
        }
    }
}

/// An import that closes when it is dropped, whatever else holds it: of an MDT that has ended, calls may still
/// wait, and its imports would take the exports of its successor back.
struct Closing(Arc<dyn Import>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Registrar {
    /// Will connect to the MGS at `nids`.
    #[must_use]
    pub fn new(node: &Arc<RpcNode>, world: &World, nids: Vec<Nid>) -> Self {
        let mut uuid = [0; 16];
        world.random.fill(&mut uuid);
        let flags = ConnectFlags::VERSION | ConnectFlags::AT | ConnectFlags::FULL20;
        let router = Arc::new(CallbackRouter::default());
        node.register_callbacks(Arc::clone(&router) as _);
        let (mgs, reader) = LogReader::new(world, &router, |owner| {
            node.import(ImportConfig {
                target: Uuid::new("MGS"),
                client: Uuid::from_random(uuid),
                nids,
                kind: ImportKind::Mgs,
                data: ObdConnectData { flags, version: VERSION, ..ObdConnectData::default() },
                requests_in_flight: 0,
                owner,
            })
        });
        Self { node: Arc::clone(node), world: world.clone(), mgs, reader }
    }

    /// What reads configuration logs, under locks that this node takes callbacks for.
    #[must_use]
    pub fn reader(&self) -> &Arc<LogReader> {
        &self.reader
    }

    /// Connects, waiting for the MGS as long as it takes.
    ///
    /// # Errors
    /// A text that says why the MGS refused.
    pub async fn connect(&self) -> Result<(), String> {
        self.mgs.connect().await.map_err(|error| format!("the MGS at {}: {error}", self.mgs.peer()))
    }

    /// Registers a target at the MGS with the parameters of `mkfs.lustre --param`. Unless it is `known`
    /// from an earlier start, that makes it part of its file system. From then on the target believes
    /// the servers that the MGS knows of.
    ///
    /// # Errors
    /// See [`NotRegistered`].
    pub async fn register(
        &self,
        served: &Served,
        params: &str,
        known: bool,
    ) -> Result<(), NotRegistered> {
        let TargetLabel::Target(name) = &served.kind else { return Ok(()) };
        let directory = Directory::new(&self.world, &name.fsname, &self.mgs);
        served.target.know_servers(Arc::new(directory));
        let kind = match name.kind {
            TargetKind::Mdt => TargetFlags::SV_TYPE_MDT,
            TargetKind::Ost => TargetFlags::SV_TYPE_OST,
        };
        let mut info = MgsTargetInfo {
            version: VERSION,
            index: u32::from(name.index),
            flags: kind | TargetFlags::UPDATE,
            nid_count: 1,
            instance: served.target.instance(),
            fsname: Chars::new(&name.fsname),
            service_name: Chars::new(name.to_string()),
            uuid: Chars::new(name.uuid().as_str()),
            params: Chars::new(params),
            ..MgsTargetInfo::default()
        };
        info.nids[0] = self.node.lnet().nid().0;
        if !known {
            info.flags |= TargetFlags::VIRGIN;
        }
        let mut answer = self.send(info.clone()).await;
        if known && answer == Err(RpcError::Errno(Errno::ENOENT)) {
            // It was stopped on its way to the MGS the first time.
            info.flags |= TargetFlags::VIRGIN;
            answer = self.send(info.clone()).await;
        }
        if answer.is_ok() {
            // Clients that follow the MGS's table reconnect at once instead of by a timeout.
            info.flags = kind | TargetFlags::OPC_READY;
            answer = self.send(info).await;
        }
        answer.map_err(|error| match error {
            RpcError::Errno(Errno::EALREADY | Errno::EADDRINUSE) => {
                NotRegistered::Taken(name.clone())
            }
            error => NotRegistered::Refused(name.clone(), error),
        })
    }

    async fn send(&self, info: MgsTargetInfo) -> Result<(), RpcError> {
        let request = MgsTargetReg { mgs_target_info: info, ..MgsTargetReg::default() };
        self.mgs.call(Call::new(request)).await.map(|_| ())
    }

    /// Connects an MDT to all OSTs of its file system and to all other MDTs, those that come later too. Runs for ever;
    /// when it is dropped, the connections are closed without a word, as if the MDT had died.
    pub async fn keep_connections(self: Arc<Self>, served: Arc<Served>) {
        let (TargetLabel::Target(name), Role::Mdt(mdt)) = (&served.kind, &served.role) else {
            return;
        };
        let mut known: BTreeMap<TargetName, Closing> = BTreeMap::new();
        loop {
            match self.targets(&name.fsname).await {
                Ok((targets, left_out)) => {
                    for (target, nids) in targets.into_iter().filter(|(target, _)| target != name) {
                        let connect = || Closing(self.connect_target(mdt, name, &target, nids));
                        known.entry(target.clone()).or_insert_with(connect);
                    }
                    mdt.leave_out_mdts(left_out);
                }
                Err(error) => tracing::debug!(%error, "no configuration yet"),
            }
            let clock = &self.world.clock;
            let has_ost = known.keys().any(|target| target.kind == TargetKind::Ost);
            let pause = if has_ost { LOOK } else { LOOK_FIRST };
            clock.sleep_until(clock.now() + pause).await;
        }
    }

    /// All targets of a file system, MDTs first: an MDT may have to ask MDT0000 about OSTs. And the MDTs that are left out.
    async fn targets(&self, fsname: &str) -> Result<(Vec<AddressedTarget>, BTreeSet<u16>), String> {
        let mut map = ClusterMap::new(fsname);
        let records = read_log(&*self.mgs, &format!("{fsname}-client")).await;
        let records = records.map_err(|errno| errno.to_string())?;
        map.read(&records).map_err(|error| error.to_string())?;
        let left_out = map.mdts.iter().filter(|target| target.is_excluded);
        let left_out = left_out.filter_map(|it| u16::try_from(it.index).ok()).collect();
        let targets = map.mdts.into_iter().chain(map.osts);
        let usable = targets.filter(|target| !target.is_excluded);
        let named = usable.filter_map(|it| Some((it.uuid.as_str().parse().ok()?, it.nids)));
        Ok((named.collect(), left_out))
    }

    fn connect_target(
        &self,
        mdt: &Mdt,
        name: &TargetName,
        target: &TargetName,
        nids: Vec<Nid>,
    ) -> Arc<dyn Import> {
        let kind = match target.kind {
            TargetKind::Mdt => ImportKind::Mds,
            TargetKind::Ost => ImportKind::Ost,
        };
        let import = self.node.import(ImportConfig {
            target: target.uuid(),
            client: Uuid::new(format!("{name}-mdtlov_UUID")),
            nids,
            kind,
            data: offer(mdt, target),
            requests_in_flight: 0,
            owner: Arc::new(NoOwner),
        });
        match target.kind {
            TargetKind::Mdt => mdt.add_mdt(target.index, Arc::clone(&import) as _),
            TargetKind::Ost => mdt.add_ost(target.index, Arc::clone(&import) as _),
        }
        let connecting = Arc::clone(&import);
        let target = target.clone();
        let task = async move {
            match connecting.connect().await {
                // The import has said why.
                Ok(()) | Err(RpcError::Errno(Errno::EXDEV)) => {}
                Err(error) => tracing::warn!(%target, %error, "cannot connect to a target"),
            }
        };
        self.world.tasks.spawn("connect target", Box::pin(task));
        import
    }

    /// Disconnects from the MGS, which would wait for the pings of a node that has stopped. An MGS that does not
    /// answer evicts it later.
    pub async fn leave(&self) {
        within(&*self.world.clock, LEAVES_WITHIN, self.mgs.disconnect()).await;
    }
}

/// What an MDT offers an OST, or another MDT: with that it also makes changes together.
fn offer(mdt: &Mdt, target: &TargetName) -> ObdConnectData {
    let flags = ConnectFlags::VERSION
        | ConnectFlags::AT
        | ConnectFlags::FULL20
        | ConnectFlags::FID
        | ConnectFlags::MDS
        | ConnectFlags::INDEX
        | ConnectFlags::FLAGS2;
    let data = ObdConnectData {
        flags,
        flags2: ConnectFlags2::MDT_IDENTITY,
        version: VERSION,
        index: u32::from(target.index),
        identity: Chars::new(mdt.identity().as_str()),
        ..ObdConnectData::default()
    };
    match target.kind {
        TargetKind::Ost => data,
        TargetKind::Mdt => ObdConnectData {
            flags: data.flags | ConnectFlags::MDS_MDS | ConnectFlags::MULTIMODRPCS,
            flags2: data.flags2 | ConnectFlags2::MDT_CHANGES,
            update_format: FORMAT,
            ..data
        },
    }
}
