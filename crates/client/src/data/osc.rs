//! One OST as the data path sees it: its channel, its locks, its grant, its objects in use.
//!
//! Grant: `available` is what the OST has promised and we have not used for dirty bytes. It goes
//! down when bytes become dirty, and up by what write replies bring. Dirty bytes that are thrown
//! away (truncate) are put back.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::{BoxFuture, World};
use sheen_ldlm::Policy;
use sheen_rpc::Channel;
use sheen_types::limits::BULK_BYTES_MAX;
use sheen_types::{Extent, LockMode, ResourceName};
use sheen_wire::checksum::Checksum;
use sheen_wire::connect::{ConnectFlags, ObdConnectData};
use tokio::sync::Notify;

use super::object::Object;
use crate::locks::{LockSpace, Lost, Protected};

/// Dirty bytes towards one OST; Lustre's `max_dirty_mb` lies between 32 and 2,000 MiB.
const DIRTY_BYTES_MAX: u64 = 64 << 20;

/// What all OSTs share.
pub(super) struct Shared {
    pub(super) world: World,
    pub(super) events: Mutex<Option<Arc<dyn super::DataEvents>>>,
}

impl Shared {
    pub(super) fn events(&self) -> Option<Arc<dyn super::DataEvents>> {
        self.events.lock().clone()
    }
}

/// One OST.
pub struct Osc {
    pub(super) shared: Arc<Shared>,
    pub(super) channel: Arc<dyn Channel>,
    locks: std::sync::OnceLock<Arc<LockSpace>>,
    space: Mutex<Space>,
    /// Dirty bytes were written, or grant has come.
    pub(super) relieved: Notify,
    objects: Mutex<HashMap<ResourceName, Weak<Object>>>,
}

/// Grant and dirty bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Space {
    pub(super) available: u64,
    pub(super) dirty: u64,
}

impl Osc {
    pub(super) fn new(shared: Arc<Shared>, channel: Arc<dyn Channel>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            channel,
            locks: std::sync::OnceLock::new(),
            // Nothing is promised before [`Osc::connected`].
            space: Mutex::default(),
            relieved: Notify::new(),
            objects: Mutex::default(),
        })
    }

    /// Joins the lock space, which needs the OSC to be made.
    pub(super) fn attach(&self, locks: Arc<LockSpace>) {
        let _ = self.locks.set(locks);
    }

    /// This OST's locks.
    ///
    /// # Panics
    /// Never: [`super::Osts::add`] attaches them before it hands the OSC out.
    pub(super) fn locks(&self) -> &Arc<LockSpace> {
        self.locks.get().expect("attached when the OSC was made")
    }

    /// The OST is connected, perhaps anew: it told how much grant we hold, dirty bytes included.
    pub fn connected(&self, data: &ObdConnectData) {
        let mut space = self.space.lock();
        space.available = u64::from(data.grant).saturating_sub(space.dirty);
        drop(space);
        self.relieved.notify_waiters();
    }

    /// Bytes of one bulk.
    pub(super) fn bulk_bytes(&self) -> u64 {
        match self.channel.connect_data().brw_size {
            0 => 1 << 20,
            size => u64::from(size).min(BULK_BYTES_MAX as u64),
        }
    }

    /// Whether small data may go inside the messages.
    pub(super) fn short_io(&self) -> bool {
        self.channel.connect_data().flags.contains(ConnectFlags::SHORTIO)
    }

    /// The checksum agreed on.
    pub(super) fn checksum(&self) -> Option<Checksum> {
        let data = self.channel.connect_data();
        let on = data.flags.contains(ConnectFlags::CKSUM);
        Checksum::choose(data.cksum_types).filter(|_| on)
    }

    pub(super) fn space(&self) -> Space {
        *self.space.lock()
    }

    /// Takes grant for `bytes` that become dirty; `false` if there is too little, or too much is
    /// dirty already.
    pub(super) fn reserve(&self, bytes: u64) -> Result<(), Shortage> {
        let mut space = self.space.lock();
        if space.dirty + bytes > DIRTY_BYTES_MAX {
            return Err(Shortage::TooDirty);
        }
        let left = space.available.checked_sub(bytes).ok_or(Shortage::NoGrant)?;
        space.available = left;
        space.dirty += bytes;
        Ok(())
    }

    /// Dirty bytes were written, with what the OST gave for it; or replaced in the cache, and then
    /// their grant comes back.
    pub(super) fn settle(&self, bytes: u64, gained: u64) {
        let mut space = self.space.lock();
        space.dirty = space.dirty.saturating_sub(bytes);
        space.available += gained;
        drop(space);
        self.relieved.notify_waiters();
    }

    /// What we would like to hold: room for all we may keep dirty.
    pub(super) fn wish() -> u32 {
        DIRTY_BYTES_MAX as u32
    }

    /// Writes back what is dirty in any object. What fails is reported by the file's next flush.
    pub(super) async fn flush_all(&self) {
        let all: Vec<Arc<Object>> =
            self.objects.lock().values().filter_map(Weak::upgrade).collect();
        for object in all {
            if let Err(errno) = object.flush(Extent::ALL).await {
                tracing::warn!(file = %object.file, %errno, "written data was lost");
            }
        }
    }

    pub(super) fn remember(&self, resource: ResourceName, object: &Arc<Object>) {
        self.objects.lock().insert(resource, Arc::downgrade(object));
    }

    pub(super) fn forget(&self, resource: ResourceName) {
        let mut objects = self.objects.lock();
        if objects.get(&resource).is_some_and(|object| object.strong_count() == 0) {
            objects.remove(&resource);
        }
    }

    pub(super) fn object(&self, resource: ResourceName) -> Option<Arc<Object>> {
        self.objects.lock().get(&resource).and_then(Weak::upgrade)
    }
}

/// Why bytes cannot become dirty now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Too many are: wait until some are written.
    TooDirty,
    /// The OST has not promised the space: write through.
    NoGrant,
}

/// What the locks of one OST protect.
pub(super) struct Pages(pub(super) Arc<Osc>);

fn extent_of(part: &Policy) -> Extent {
    match part {
        Policy::Extent { extent, .. } => *extent,
        _ => Extent::ALL,
    }
}

impl Protected for Pages {
    fn lose(&self, _: &Arc<LockSpace>, lost: Lost) -> BoxFuture<'static, ()> {
        let object = self.0.object(lost.resource);
        Box::pin(async move {
            if let Some(object) = object {
                let is_writer = matches!(lost.mode, LockMode::Pw | LockMode::Ex | LockMode::Group);
                object.lose(extent_of(&lost.part), is_writer, lost.discard).await;
            }
        })
    }

    fn void(&self, _: &Arc<LockSpace>, lost: Lost) -> BoxFuture<'static, ()> {
        let object = self.0.object(lost.resource);
        Box::pin(async move {
            if let Some(object) = object {
                object.lose(extent_of(&lost.part), true, true).await;
            }
        })
    }

    fn glimpse(&self, resource: ResourceName) -> Option<Bytes> {
        self.0.object(resource).and_then(|object| object.lock_value())
    }
}
