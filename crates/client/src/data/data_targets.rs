//! All data targets of a mount, OSTs and MDTs as far as they keep data, and the files that lie on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use sheen_io::{BoxFuture, World};
use sheen_layout::{Mapping, Stripe};
use sheen_ldlm::client::Config;
use sheen_rpc::Channel;
use sheen_types::{Errno, Fid, MdtIndex};
use sheen_wire::connect::ObdConnectData;
use sheen_wire::ost::OstId;

use super::ahead::Limits;
use super::data_target::{CoveredData, DataTarget, DataTargetKind, Shared};
use super::file::File;
use super::mdt::{CoveredInodes, MdtData};
use super::object::{Object, ObjectState};
use super::waiting_calls::{CallPages, WaitingCall};
use super::{AddedMdt, DataEvents, DataFile, DataPath, FileLayout, LayoutVersion, MdtLocations};
use crate::locks::{ClientNamespace, CoveredCache};
use crate::records::Recorder;

/// The data path of one mount.
pub struct DataTargets {
    shared: Arc<Shared>,
    osts: RwLock<BTreeMap<u32, Arc<DataTarget>>>,
    mdts: RwLock<BTreeMap<u32, Arc<DataTarget>>>,
    locations: OnceLock<Arc<MdtLocations>>,
}

impl DataTargets {
    /// None yet.
    #[must_use]
    pub fn new(world: World) -> Arc<Self> {
        let shared = Arc::new(Shared {
            world,
            events: Mutex::new(None),
            dump_garbled: OnceLock::new(),
            ahead: Limits::default(),
            waiting_calls: super::waiting_calls::WaitingCalls::default(),
            dirty: AtomicU64::new(0),
            dirty_max: AtomicU64::new(u64::MAX),
            room_freed: tokio::sync::Notify::new(),
            recorder: OnceLock::new(),
        });
        let (osts, mdts, locations) = (RwLock::default(), RwLock::default(), OnceLock::new());
        Arc::new(Self { shared, osts, mdts, locations })
    }

    /// Who is notified when object locks are revoked.
    pub fn watch(&self, events: Arc<dyn DataEvents>) {
        *self.shared.events.lock() = Some(events);
    }

    /// Who dumps data whose checksum was wrong, of targets where that is wanted. Set once.
    pub fn dump_garbled(&self, dump: super::DumpGarbled) {
        let first = self.shared.dump_garbled.set(dump).is_ok();
        debug_assert!(first, "set once");
    }

    /// Where it is recorded what the mount's next process needs. Set once, before anything is mounted.
    pub fn record_in(&self, recorder: Recorder) {
        let first = self.shared.recorder.set(recorder).is_ok();
        debug_assert!(first, "set once");
    }

    /// Adds OST number `index`, reached through `channel`. The namespace is for callbacks and for replay;
    /// `name` is what operators call it.
    pub fn add(
        &self,
        index: u32,
        name: String,
        channel: Arc<dyn Channel>,
        config: Config,
    ) -> Arc<ClientNamespace> {
        let target =
            DataTarget::new(DataTargetKind::Ost, Arc::clone(&self.shared), Arc::clone(&channel));
        let covered = Arc::new(CoveredData(Arc::downgrade(&target)));
        let world = self.shared.world.clone();
        let locks = ClientNamespace::new(name, world, channel, config, covered);
        target.attach(Arc::clone(&locks));
        self.osts.write().insert(index, target);
        locks
    }

    /// OST number `index`.
    #[must_use]
    pub fn ost(&self, index: u32) -> Option<Arc<DataTarget>> {
        self.osts.read().get(&index).cloned()
    }

    /// MDT number `index`, as the keeper of data.
    #[must_use]
    pub fn mdt(&self, index: u32) -> Option<Arc<DataTarget>> {
        self.mdts.read().get(&index).cloned()
    }

    /// The object of a file whose first bytes lie on its MDT, which is the one of its metadata: that has been asked
    /// for the layout, so it is known.
    fn mdt_object(&self, fid: Fid, mapping: Mapping) -> Result<Arc<Object>, Errno> {
        let index = self.locations.get().map_or(Some(MdtIndex(0)), |it| it.known(fid));
        let target = index.and_then(|index| self.mdt(index.0.into())).ok_or(Errno::ENODEV)?;
        MdtData(target).object(fid, mapping)
    }

    /// The file on its objects; every file of the same objects shares them.
    pub(super) fn file_on(
        &self,
        fid: Fid,
        layout: Arc<FileLayout>,
        layout_version: LayoutVersion,
    ) -> Result<File, Errno> {
        let object = |(mapping, stripe): (Mapping, Option<Stripe>)| match stripe {
            Some(stripe) => self.object(fid, mapping, stripe),
            None => self.mdt_object(fid, mapping),
        };
        let objects = layout.objects().map(object).collect::<Result<Vec<_>, _>>()?;
        Ok(File::new(layout, objects, layout_version))
    }

    /// Every OST, with its number.
    #[must_use]
    pub fn all(&self) -> Vec<(u32, Arc<DataTarget>)> {
        self.osts.read().iter().map(|(index, target)| (*index, Arc::clone(target))).collect()
    }

    /// What is read before it is asked for, at most.
    #[must_use]
    pub fn read_ahead(&self) -> &Limits {
        &self.shared.ahead
    }

    /// Bytes that may be dirty at once towards all OSTs together (`max_dirty_mb`).
    #[must_use]
    pub fn dirty_bytes_max(&self) -> u64 {
        self.shared.dirty_max.load(Ordering::Relaxed)
    }

    /// From now on so many.
    pub fn limit_dirty(&self, bytes: u64) {
        self.shared.dirty_max.store(bytes, Ordering::Relaxed);
        self.shared.room_freed.notify_waiters();
    }

    fn object(&self, fid: Fid, mapping: Mapping, stripe: Stripe) -> Result<Arc<Object>, Errno> {
        let target = self.ost(stripe.ost).ok_or(Errno::ENODEV)?;
        let oi = OstId::of_fid(stripe.object);
        let resource = oi.resource();
        target.retire_unless(resource, fid, mapping)?;
        Ok(target.object_or_new(resource, |known| Object {
            target: Arc::clone(&target),
            oi,
            resource,
            file: fid,
            mapping,
            state: Mutex::new(ObjectState::fresh(known)),
            progress: tokio::sync::Notify::new(),
        }))
    }

    /// All OSTs, and all MDTs as far as they keep data.
    fn all_targets(&self) -> (Vec<Arc<DataTarget>>, Vec<Arc<DataTarget>>) {
        let of = |table: &RwLock<BTreeMap<u32, Arc<DataTarget>>>| {
            table.read().values().cloned().collect()
        };
        (of(&self.osts), of(&self.mdts))
    }
}

impl DataPath for DataTargets {
    fn recorder(&self) -> Recorder {
        self.shared.recorder.get().cloned().unwrap_or_default()
    }

    fn add_ost(
        &self,
        index: u32,
        name: String,
        channel: Arc<dyn Channel>,
        config: Config,
    ) -> Arc<ClientNamespace> {
        self.add(index, name, channel, config)
    }

    fn connected(&self, index: u32, data: &ObdConnectData) {
        if let Some(target) = self.ost(index) {
            target.connected(data);
        }
    }

    fn add_mdt(
        &self,
        index: u32,
        name: String,
        channel: Arc<dyn Channel>,
        config: Config,
        inodes: Arc<dyn CoveredCache>,
    ) -> AddedMdt {
        let target =
            DataTarget::new(DataTargetKind::Mdt, Arc::clone(&self.shared), Arc::clone(&channel));
        let covered =
            Arc::new(CoveredInodes { pages: CoveredData(Arc::downgrade(&target)), inodes });
        let world = self.shared.world.clone();
        let locks = ClientNamespace::new(name, world, channel, config, covered);
        target.attach(Arc::clone(&locks));
        self.mdts.write().insert(index, Arc::clone(&target));
        AddedMdt { locks, data: Arc::new(MdtData(target)) }
    }

    fn locate_by(&self, locations: Arc<MdtLocations>) {
        let first = self.locations.set(locations).is_ok();
        debug_assert!(first, "set once");
    }

    fn mdt_connected(&self, index: u32, data: &ObdConnectData) {
        if let Some(target) = self.mdt(index) {
            target.connected(data);
        }
    }

    fn enter_waiting_call(&self, file: Fid, call_pages: CallPages) -> Option<WaitingCall<'_>> {
        Some(self.shared.waiting_calls.enter(file, call_pages))
    }

    fn note_gone(&self, layout: &FileLayout) {
        for stripe in layout.stripes() {
            if let Some(target) = self.ost(stripe.ost) {
                target.cancel_soon(OstId::of_fid(stripe.object).resource());
            }
        }
    }

    fn return_grant(&self) {
        let (osts, mdts) = self.all_targets();
        osts.iter().chain(&mdts).for_each(DataTarget::return_grant);
    }

    fn watch(&self, events: Arc<dyn DataEvents>) {
        DataTargets::watch(self, events);
    }

    fn file(
        &self,
        fid: Fid,
        layout: Arc<FileLayout>,
        layout_version: LayoutVersion,
    ) -> Result<Arc<dyn DataFile>, Errno> {
        Ok(Arc::new(self.file_on(fid, layout, layout_version)?))
    }

    fn sync_all(&self) -> BoxFuture<'static, Result<(), Errno>> {
        let (osts, mdts) = self.all_targets();
        Box::pin(async move {
            for target in osts.iter().chain(&mdts) {
                target.flush_all().await;
            }
            let mut synced = Ok(());
            for target in osts {
                synced = synced.and(target.sync_all().await);
            }
            synced
        })
    }

    fn shut_down(&self) -> BoxFuture<'static, ()> {
        let (osts, mdts) = self.all_targets();
        Box::pin(async move {
            for target in osts.iter().chain(&mdts) {
                target.flush_all().await;
            }
            for target in osts {
                drop(target.locks().cancel_unused());
            }
        })
    }
}
