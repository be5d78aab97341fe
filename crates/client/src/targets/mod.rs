//! The targets of a mount: connected from the cluster map, kept up with it.

pub(crate) mod connect;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sheen_io::World;
use sheen_llog::{ClusterMap, MapTarget};
use sheen_rpc::import::ImportKind;
use sheen_rpc::{
    BodyExtras, BoxFuture, Call, CallKind, Channel, FormerExport, Import, ImportConfig,
    ImportOwner, ImportState, LockReplay, RpcError,
};
use sheen_types::futures;
use sheen_types::{Errno, Nid, Uuid};
use sheen_wire::connect::{ConnectFlags2, ObdConnectData};
use sheen_wire::messages::{MdsDisconnect, MgsDisconnect, OstDisconnect, Request};

use crate::data::DataPath;
use crate::locks::{CallbackRouter, ClientNamespace};
use crate::records::{Record, Recorded, Recorder};

/// How often unused locks are looked at for their age.
const AGE_LOOKED_AT: Duration = Duration::from_secs(5);

/// Makes imports; implemented over the node that the client runs on.
pub trait Connector: Send + Sync {
    /// An import that connects on request.
    fn import(&self, config: ImportConfig) -> Arc<dyn Import>;
}

/// One connected target.
pub(crate) struct Connected {
    /// `FSNAME-OST0000`.
    pub(crate) name: String,
    /// The channel to it.
    pub(crate) import: Arc<dyn Import>,
    locks: Arc<ClientNamespace>,
    nids: RwLock<Vec<Nid>>,
}

/// All targets, and the MGS.
pub(crate) struct Targets {
    pub(crate) world: World,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) router: Arc<CallbackRouter>,
    pub(crate) client: Uuid,
    pub(crate) locks: sheen_ldlm::client::Config,
    mgs: OnceLock<Arc<Connected>>,
    mdts: RwLock<BTreeMap<u32, Arc<Connected>>>,
    osts: RwLock<BTreeMap<u32, Arc<Connected>>>,
}

/// Where what the import of one target reports goes: that it is connected, restarts, evicts us. The namespace needs the
/// import and the other way round, so it is attached later.
#[derive(Default)]
pub(crate) struct ImportEvents {
    locks: OnceLock<Weak<ClientNamespace>>,
    /// `None` for an MGS.
    place: OnceLock<DataPlace>,
    recorder: Recorder,
    /// The export, for the mount's next process.
    recorded: Mutex<Option<Recorded>>,
}

/// What a target is to the data path, which must know its grant.
pub(crate) struct DataPlace {
    /// An MDT or an OST.
    pub(crate) kind: ImportKind,
    /// Its number among those.
    pub(crate) index: u32,
    /// The data path.
    pub(crate) path: Weak<dyn DataPath>,
}

impl ImportEvents {
    /// One that records by which exports the targets know the client.
    pub(crate) fn recording(recorder: Recorder) -> Self {
        Self { recorder, ..Self::default() }
    }

    /// From now on its reports go to `locks`, and to the data path at `place`. Once for each import.
    pub(crate) fn attach(&self, locks: &Arc<ClientNamespace>, place: Option<DataPlace>) {
        let is_first = self.locks.set(Arc::downgrade(locks)).is_ok();
        let is_first = is_first && place.is_none_or(|place| self.place.set(place).is_ok());
        debug_assert!(is_first, "attached once");
    }

    /// The target is connected, perhaps anew, on these terms.
    pub(crate) fn connected(&self, terms: &ObdConnectData) {
        if let Some(locks) = self.locks.get().and_then(Weak::upgrade) {
            let flags2 = terms.flags2;
            locks.engine().set_convert(flags2.contains(ConnectFlags2::LOCK_CONVERT));
        }
        let Some(DataPlace { kind, index, path }) = self.place.get() else { return };
        let Some(path) = path.upgrade() else { return };
        match kind {
            ImportKind::Mds => path.mdt_connected(*index, terms),
            _ => path.connected(*index, terms),
        }
    }
}

impl ImportOwner for ImportEvents {
    fn state_changed(&self, state: ImportState, data: &ObdConnectData) {
        match state {
            ImportState::Full => self.connected(data),
            // The grant ended with the connection.
            ImportState::Idle => {
                *self.recorded.lock() = None;
                self.connected(&ObdConnectData { grant: 0, ..data.clone() });
            }
            _ => {}
        }
    }

    fn exported(&self, target: &Uuid, export: FormerExport) {
        let mut recorded = self.recorded.lock();
        // The one before it first: it may be the same.
        *recorded = None;
        *recorded = self.recorder.record(|| Record::Export { target: target.clone(), export });
    }

    fn is_unused(&self) -> bool {
        let locks = self.locks.get().and_then(Weak::upgrade);
        locks.is_some_and(|locks| locks.is_empty())
    }

    fn void_all(&self, _channel: &Arc<dyn Channel>) {
        if let Some(locks) = self.locks.get().and_then(Weak::upgrade) {
            // Locks of the MGS cover nothing that is cached: what they are on is read again.
            if self.place.get().is_some() {
                tracing::warn!(target = locks.name(), "cached locks and data are lost");
            }
            locks.on_evicted();
        }
    }

    fn before_lock_replay(&self) -> BoxFuture<'static, ()> {
        let locks = self.locks.get().and_then(Weak::upgrade);
        // No lock of the MGS covers a cache that outlives its use.
        let locks = locks.filter(|_| self.place.get().is_some());
        Box::pin(async move {
            if let Some(locks) = locks {
                locks.forgo_unused().await;
            }
        })
    }

    fn replay_locks(&self, connection: u32) -> Vec<LockReplay> {
        let locks = self.locks.get().and_then(Weak::upgrade);
        locks.map_or_else(Vec::new, |locks| locks.locks_to_replay(connection))
    }
}

impl Targets {
    pub(crate) fn new(
        world: World,
        connector: Arc<dyn Connector>,
        router: Arc<CallbackRouter>,
        client: Uuid,
        locks: sheen_ldlm::client::Config,
    ) -> Self {
        Self {
            world,
            connector,
            router,
            client,
            locks,
            mgs: OnceLock::new(),
            mdts: RwLock::default(),
            osts: RwLock::default(),
        }
    }

    /// The OSTs, by number.
    pub(crate) fn osts(&self) -> Vec<Arc<Connected>> {
        self.osts.read().values().cloned().collect()
    }

    /// The locks of every target, for operators.
    pub(crate) fn lock_namespaces(&self) -> Vec<Arc<ClientNamespace>> {
        let (mdts, osts) = (self.mdts.read(), self.osts.read());
        let all = self.mgs.get().into_iter().chain(mdts.values()).chain(osts.values());
        all.map(|target| Arc::clone(&target.locks)).collect()
    }

    /// The import of a target, not connected yet.
    pub(crate) fn import(
        &self,
        target: &MapTarget,
        kind: ImportKind,
        events: &Arc<ImportEvents>,
    ) -> Arc<dyn Import> {
        let data = match kind {
            ImportKind::Mgs => connect::offer_to_mgs(),
            ImportKind::Mds => connect::offer_to_mdt(),
            // A mount has no reverse imports.
            ImportKind::Ost | ImportKind::Reverse => {
                connect::offer_to_ost(self.first_mdt_terms().as_ref())
            }
        };
        self.connector.import(ImportConfig {
            target: target.uuid.clone(),
            client: self.client.clone(),
            nids: target.nids.clone(),
            kind,
            data,
            requests_in_flight: 0,
            owner: Arc::clone(events) as Arc<dyn ImportOwner>,
        })
    }

    /// What the MDT has agreed to; it is connected before OSTs are.
    fn first_mdt_terms(&self) -> Option<ObdConnectData> {
        let mdt = self.mdts.read().values().next().cloned()?;
        Some(mdt.import.connect_data())
    }

    /// Cancels locks and returns grant that were unused for too long, for as long as the mount lives: an idle
    /// client would keep them for ever otherwise.
    pub(crate) fn forget_old_locks(self: &Arc<Self>, data: &Arc<dyn DataPath>) {
        let (targets, clock) = (Arc::downgrade(self), Arc::clone(&self.world.clock));
        let data = Arc::downgrade(data);
        let task = async move {
            loop {
                clock.sleep_until(clock.now() + AGE_LOOKED_AT).await;
                let Some(targets) = targets.upgrade() else { return };
                targets.lock_namespaces().iter().for_each(ClientNamespace::cancel_aged);
                if let Some(data) = data.upgrade() {
                    data.return_grant();
                }
            }
        };
        self.world.tasks.spawn("old locks", Box::pin(task));
    }

    pub(crate) fn keep_mgs(&self, import: Arc<dyn Import>, locks: Arc<ClientNamespace>) {
        let mgs = Connected { name: "MGS".to_owned(), import, locks, nids: RwLock::default() };
        // A mount has one MGS; a second would be a bug of the mount's own making.
        let first = self.mgs.set(Arc::new(mgs)).is_ok();
        debug_assert!(first, "one MGS per mount");
    }

    pub(crate) fn keep_mdt(
        &self,
        target: &MapTarget,
        import: Arc<dyn Import>,
        locks: Arc<ClientNamespace>,
    ) {
        let nids = RwLock::new(target.nids.clone());
        let mdt = Connected { name: name_of(target), import, locks, nids };
        self.mdts.write().insert(target.index, Arc::new(mdt));
    }

    /// Connects an OST in the background: calls to it wait until it is there.
    pub(crate) fn add_ost(&self, target: &MapTarget, data: &Arc<dyn DataPath>) -> Arc<dyn Import> {
        let events = Arc::new(ImportEvents::recording(data.recorder()));
        let import = self.import(target, ImportKind::Ost, &events);
        let name = name_of(target);
        let channel = Arc::clone(&import) as Arc<dyn Channel>;
        let config = self.lock_config();
        let locks = data.add_ost(target.index, name.clone(), channel, config);
        self.router.add(&locks);
        let (kind, path) = (ImportKind::Ost, Arc::downgrade(data));
        events.attach(&locks, Some(DataPlace { kind, index: target.index, path }));
        let nids = RwLock::new(target.nids.clone());
        let ost = Connected { name, import: Arc::clone(&import), locks, nids };
        self.osts.write().insert(target.index, Arc::new(ost));
        import
    }

    /// How a namespace is made: each with cookies of its own.
    pub(crate) fn lock_config(&self) -> sheen_ldlm::client::Config {
        sheen_ldlm::client::Config { seed: self.world.random.number(), ..self.locks }
    }

    /// Takes a changed cluster map: new OSTs, and new nodes of known targets. New MDTs are `config`'s.
    pub(crate) fn update(&self, map: &ClusterMap, data: &Arc<dyn DataPath>) {
        for target in &map.mdts {
            let known = self.mdts.read().get(&target.index).cloned();
            if let Some(known) = known {
                known.learn_nids(&target.nids);
            }
        }
        for target in map.osts.iter().filter(|target| !target.is_excluded) {
            let known = self.osts.read().get(&target.index).cloned();
            match known {
                Some(known) => known.learn_nids(&target.nids),
                None => self.connect_later(self.add_ost(target, data)),
            }
        }
    }

    /// Has a target forget what an earlier process of this mount was to it, with all that it held there. One RPC;
    /// waits until the target is connected.
    pub(crate) async fn disconnect_former(&self, target: &Uuid, export: FormerExport) {
        let Some((import, request)) = self.disconnect_request(target) else { return };
        let body = BodyExtras { former: Some(export), ..BodyExtras::default() };
        let call = Call { kind: CallKind::NoResend, body, ..Call::new(request) };
        match import.call(call).await {
            // Not known: it was evicted.
            Ok(_) | Err(RpcError::Errno(Errno::ENOTCONN)) => {}
            Err(error) => tracing::warn!(%target, %error,
                "the earlier process of this mount could not be disconnected: what it has locked is free when the \
                 target evicts it"),
        }
    }

    /// The import of a target, and the disconnect that its kind takes.
    fn disconnect_request(&self, target: &Uuid) -> Option<(Arc<dyn Import>, Request)> {
        let is_it = |it: &&Arc<Connected>| it.import.target_uuid() == *target;
        if let Some(mgs) = self.mgs.get().filter(is_it) {
            return Some((Arc::clone(&mgs.import), MgsDisconnect::default().into()));
        }
        if let Some(mdt) = self.mdts.read().values().find(is_it) {
            return Some((Arc::clone(&mdt.import), MdsDisconnect::default().into()));
        }
        let osts = self.osts.read();
        let ost = osts.values().find(is_it)?;
        Some((Arc::clone(&ost.import), OstDisconnect::default().into()))
    }

    pub(crate) fn connect_later(&self, import: Arc<dyn Import>) {
        let connect = import.connect();
        let task = async move {
            if let Err(error) = connect.await {
                tracing::warn!(target = %import.target_uuid(), %error, "cannot connect");
            }
        };
        self.world.tasks.spawn("connect", Box::pin(task));
    }

    /// Cancels all locks and disconnects from everything, OSTs first.
    pub(crate) async fn disconnect_all(&self) {
        let osts = self.osts();
        let mdts: Vec<_> = self.mdts.read().values().cloned().collect();
        let mgs: Vec<_> = self.mgs.get().cloned().into_iter().collect();
        for group in [osts, mdts, mgs] {
            for target in &group {
                drop(target.locks.cancel_unused());
            }
            futures::all(group.iter().map(|target| target.import.disconnect()).collect()).await;
        }
    }
}

impl Connected {
    fn learn_nids(&self, nids: &[Nid]) {
        let mut known = self.nids.write();
        for nid in nids {
            if !known.contains(nid) {
                known.push(*nid);
                self.import.add_nid(*nid);
            }
        }
    }
}

/// `FSNAME-MDT0000`: the UUID without its ending.
pub(crate) fn name_of(target: &MapTarget) -> String {
    let uuid = target.uuid.as_str();
    uuid.strip_suffix("_UUID").unwrap_or(uuid).to_owned()
}
