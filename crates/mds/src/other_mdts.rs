//! The other MDTs of the file system, as far as this one has to do with them: the connections to them, what is agreed on
//! over those, and which MDT each of them is.
//!
//! Each MDT is a client of each other one (Lustre: OSP). An MDT says its identity with its connects, as it does to
//! OSTs; the first of an index that says one is recorded, and an MDT of that index with another identity, or none, is
//! refused from then on (decision 0016).
//!
//! What always holds: a record is durable before a request of its MDT is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sheen_io::within;
use sheen_rpc::{Channel, ImportState};
use sheen_store::{Store, StoreError, Transaction};
use sheen_target::{Connecting, Target, store_errno};
use sheen_types::{Errno, Fid, MdtIndex, TargetKind, Uuid, fid_seq};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::update_record::FORMAT;
use tokio::sync::Notify;

use crate::Mdt;

/// Index of the other MDTs: number, big-endian, to identity.
const MDTS: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x207);
/// Parts that an MDT may have sent another one and that are not answered: clients' changes do not wait for each other there.
const PARTS_IN_FLIGHT: u16 = 256;
/// How long an MDT that the configuration is to name is waited for: as long as it is read again at the latest.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one is waited for while this MDT recovers: a replay that is refused evicts its client, and one that waits keeps
/// all clients waiting.
const PATIENCE_OF_RECOVERY: Duration = Duration::from_secs(60);
/// Readings of the configuration that do not name an MDT, after which it is not awaited any more: it is gone for good. One that has
/// just joined is in the next.
const READINGS: u64 = 3;
/// The number of the MDT that gives out sequences.
const CONTROLLER: u16 = 0;

/// See the module's documentation.
pub(crate) struct OtherMdts {
    store: Arc<dyn Store>,
    /// This MDT's identity.
    own: Uuid,
    /// By number, the connection over which the MDT that is recorded has answered.
    answered: Mutex<BTreeMap<u16, u32>>,
    channels: RwLock<BTreeMap<u16, Arc<dyn Channel>>>,
    /// Where a configuration names the other MDTs: those that it leaves out.
    left_out: RwLock<Option<BTreeSet<u16>>>,
    /// How often the configuration was read, and how often it had been when an MDT was first asked for that it did not name.
    readings: AtomicU64,
    missed: Mutex<BTreeMap<u16, u64>>,
    /// Any of these has changed.
    configured: Notify,
    /// One at a time is compared with what is recorded, and recorded.
    recording: Mutex<()>,
    /// The MDT that was refused last, and not let in since.
    refused: Mutex<Option<(u16, Option<Uuid>)>>,
}

impl OtherMdts {
    /// Of the MDT of this identity, in this store.
    pub(crate) fn new(store: Arc<dyn Store>, own: Uuid) -> Self {
        Self {
            store,
            own,
            answered: Mutex::default(),
            channels: RwLock::default(),
            left_out: RwLock::default(),
            readings: AtomicU64::new(0),
            missed: Mutex::default(),
            configured: Notify::new(),
            recording: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// The way to an MDT with which changes are made together. One that is away is waited for, also before its first answer;
    /// an MDT that has answered in the place of another one is none.
    pub(crate) fn partner(&self, index: u16) -> Option<Arc<dyn Channel>> {
        let channel = self.channels.read().get(&index).map(Arc::clone)?;
        let (connection, terms) = (channel.connection(), channel.connect_data());
        let is_it = shares_record_format(&terms)
            && (self.is_own_offer(&terms) || self.is_it(index, connection, &terms));
        is_it.then_some(channel)
    }

    /// The channel to an MDT that has answered: what it says is believed.
    pub(crate) fn known_partner(&self, index: u16) -> Option<Arc<dyn Channel>> {
        self.partner(index).filter(|channel| !self.is_own_offer(&channel.connect_data()))
    }

    /// Before the first answer the terms are what this MDT offers.
    fn is_own_offer(&self, terms: &ObdConnectData) -> bool {
        terms.mdt_identity() == Some(self.own.as_str().as_bytes())
    }

    /// Whether the MDT that has answered over a connection is the one of its number. With a record it is looked up once.
    fn is_it(&self, index: u16, connection: u32, answered: &ObdConnectData) -> bool {
        if self.answered.lock().get(&index) == Some(&connection) {
            return true;
        }
        match self.recorded(index) {
            Ok(Some(it)) => {
                let is_it = answered.mdt_identity() == Some(it.as_str().as_bytes());
                if is_it {
                    self.answered.lock().insert(index, connection);
                }
                is_it
            }
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// The MDT that is known by a number.
    fn recorded(&self, index: u16) -> Result<Option<Uuid>, StoreError> {
        let wrong = || StoreError::Corrupt("a record of an MDT".to_owned());
        let parse = |value: Bytes| std::str::from_utf8(&value).map(Uuid::new).map_err(|_| wrong());
        self.store.lookup(MDTS, &key(index))?.map(parse).transpose()
    }

    /// Whether the last connection to an MDT was to one whose records of changes have another format: it is of another build.
    pub(crate) fn has_other_format(&self, index: u16) -> bool {
        let channels = self.channels.read();
        let agreed = channels.get(&index).map(|it| it.connect_data());
        agreed.is_some_and(|it| it.flags != ConnectFlags::default() && !shares_record_format(&it))
    }

    /// The numbers of all.
    pub(crate) fn indexes(&self) -> Vec<u16> {
        self.channels.read().keys().copied().collect()
    }

    /// Whether there is any.
    pub(crate) fn are_known(&self) -> bool {
        !self.channels.read().is_empty()
    }

    /// Whether an MDT that has sequences is still to be named by the configuration.
    fn is_awaited(&self, index: u16) -> bool {
        let is_to_come = {
            let left_out = self.left_out.read();
            left_out.as_ref().is_some_and(|it| !it.contains(&index))
        };
        is_to_come && !self.channels.read().contains_key(&index) && !self.is_gone(index)
    }

    /// Whether the configuration has not named an MDT in as many readings as show that it does not any more.
    fn is_gone(&self, index: u16) -> bool {
        let readings = self.readings.load(Ordering::Acquire);
        let first = *self.missed.lock().entry(index).or_insert(readings);
        readings >= first.saturating_add(READINGS)
    }

    async fn until_configured(&self, index: u16) {
        loop {
            let mut configured = pin!(self.configured.notified());
            // What comes between the look and the wait counts.
            configured.as_mut().enable();
            if !self.is_awaited(index) {
                return;
            }
            configured.await;
        }
    }
}

/// Another MDT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdtView {
    /// Its number.
    pub index: u16,
    /// Where the import stands.
    pub state: ImportState,
    /// Whether both sides make changes together: they agree on the format of their records, and it is the MDT that is
    /// known by this number.
    pub is_partner: bool,
}

impl Mdt {
    /// From now on MDT number `index` is behind `channel`. Adding one again replaces its channel.
    pub fn add_mdt(&self, index: u16, channel: Arc<dyn Channel>) {
        if index == CONTROLLER {
            self.sequences.set_controller(Arc::clone(&channel));
        }
        self.other_mdts.channels.write().insert(index, channel);
        self.other_mdts.configured.notify_waiters();
        self.note_other_mdts();
    }

    /// A configuration will name the other MDTs. From now on one that is not added yet is waited for, as the configuration has not
    /// been read: so is each after a start.
    pub fn await_configuration(&self) {
        self.other_mdts.left_out.write().get_or_insert_default();
    }

    /// The configuration was read, and named the other MDTs that were added, but left out these.
    pub fn leave_out_mdts(&self, indexes: BTreeSet<u16>) {
        *self.other_mdts.left_out.write() = Some(indexes);
        self.other_mdts.readings.fetch_add(1, Ordering::AcqRel);
        self.other_mdts.configured.notify_waiters();
    }

    /// Whether changes may concern other MDTs: there are some, or are to come as they have sequences.
    pub(crate) fn has_other_mdts(&self) -> bool {
        let are_to_come = || self.other_mdts.left_out.read().is_some();
        self.other_mdts.are_known() || self.sequences.knows_other_mdts() && are_to_come()
    }

    /// Waits for an MDT that a configuration is still to name: what is asked of this one before it has read that.
    ///
    /// # Errors
    /// [`Errno::EINPROGRESS`] if it takes long: the client asks again, and all that it has sent meanwhile goes on. While this
    /// MDT recovers there is none: what is not named in a minute is refused by who asks.
    pub(crate) async fn until_configured(&self, mdt: MdtIndex) -> Result<(), Errno> {
        if !self.other_mdts.is_awaited(mdt.0) {
            return Ok(());
        }
        let target = self.target.get().and_then(Weak::upgrade).ok_or(Errno::EINPROGRESS)?;
        let configured = self.other_mdts.until_configured(mdt.0);
        let clock = &*target.world().clock;
        if target.is_recovering() {
            let _named = within(clock, PATIENCE_OF_RECOVERY, configured).await;
            return Ok(());
        }
        within(clock, PATIENCE, configured).await.ok_or(Errno::EINPROGRESS)
    }

    /// The other MDTs to which there are connections, or shall be.
    #[must_use]
    pub fn other_mdts(&self) -> Vec<MdtView> {
        let view = |(index, channel): (&u16, &Arc<dyn Channel>)| {
            let (index, state) = (*index, channel.state());
            let is_partner = state == ImportState::Full && self.agrees_with(index);
            MdtView { index, state, is_partner }
        };
        let channels = self.other_mdts.channels.read().clone();
        channels.iter().map(view).collect()
    }

    /// Whether this MDT has agreed with number `index` on the changes that they make together. That one may be away now.
    #[must_use]
    pub fn agrees_with(&self, index: u16) -> bool {
        self.other_mdts.known_partner(index).is_some()
    }

    /// Whether `other` was the last MDT that this one has refused, as it is not the one of its number, and none was let in
    /// since.
    #[must_use]
    pub fn has_refused(&self, other: &Self) -> bool {
        *self.other_mdts.refused.lock() == Some((other.index, Some(other.identity().clone())))
    }

    /// Whether a change over several MDTs excludes other changes here.
    #[must_use]
    pub fn has_exclusions(&self) -> bool {
        !self.exclusion.distributed.is_empty()
    }

    /// Whether this MDT recovers, or will when it starts.
    pub(crate) fn is_recovering(&self) -> bool {
        let Some(target) = self.target.get() else { return true };
        target.upgrade().is_some_and(|target| target.is_recovering())
    }

    /// From the first other MDT on, it is kept in mind what changes build on, and looked for what is complete.
    pub(crate) fn note_other_mdts(&self) {
        let target = self.target.get().and_then(Weak::upgrade);
        if let Some(target) = target.filter(|_| self.other_mdts.are_known()) {
            target.track_dependencies();
            self.start_completing(&target);
            self.start_restriper(&target);
        }
    }

    /// Whether a peer is let in: an MDT that is the one of its number, or a client whose names are those of this MDT, once
    /// there are FIDs to give it.
    ///
    /// # Errors
    /// [`Errno::EXDEV`] if it is another one, [`Errno::EAGAIN`] for a client that is too early, those of the store.
    pub(crate) async fn check_peer(
        &self,
        target: &Target,
        connecting: &Connecting<'_>,
    ) -> Result<(), Errno> {
        let mdt = connecting.owner.as_ref().filter(|owner| owner.kind == TargetKind::Mdt);
        if let Some(owner) = mdt.filter(|_| connecting.is_server) {
            self.check_mdt(target, connecting, owner.index)?;
            return match connecting.offered.mdt_identity() {
                // It may have been recorded a moment ago.
                Some(_) => target.sync().await,
                None => Ok(()),
            };
        }
        self.check_client(target, connecting)?;
        match self.is_open() || connecting.is_server {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }

    fn check_mdt(
        &self,
        target: &Target,
        connecting: &Connecting<'_>,
        index: u16,
    ) -> Result<(), Errno> {
        let said = connecting.offered.mdt_identity();
        let said = said.map(|text| Uuid::new(String::from_utf8_lossy(text)));
        let recording = self.other_mdts.recording.lock();
        let known = match index == self.index {
            true => Some(self.identity().clone()).filter(|_| said.is_some()),
            false => self.other_mdts.recorded(index).map_err(store_errno)?,
        };
        if known.is_some() && known != said {
            drop(recording);
            self.refuse_mdt(target, connecting, (index, said));
            return Err(Errno::EXDEV);
        }
        if let (None, Some(identity)) = (&known, &said) {
            let mut change = Transaction::new();
            let text = Bytes::copy_from_slice(identity.as_str().as_bytes());
            change.put(MDTS, key(index), text);
            self.store.apply(change).map_err(store_errno)?;
            tracing::info!(target = target.name(), index, %identity, "knows this MDT from now on");
        }
        *self.other_mdts.refused.lock() = None;
        Ok(())
    }

    /// Says so once for each, not at every try.
    fn refuse_mdt(&self, target: &Target, connecting: &Connecting<'_>, mdt: (u16, Option<Uuid>)) {
        let index = mdt.0;
        if self.other_mdts.refused.lock().replace(mdt.clone()) == Some(mdt) {
            return;
        }
        tracing::error!(target = target.name(), client = %connecting.client, nid = %connecting.nid,
            "refused an MDT{index:04x}: it is not the one that this file system has had so far. Put that one back");
    }
}

/// The identity by which the MDT of a store at rest knows number `index`.
///
/// # Errors
/// Those of the store.
pub(crate) fn recorded_at_rest(store: &dyn Store, index: u16) -> Result<Option<Uuid>, StoreError> {
    let value = store.lookup(MDTS, &key(index))?;
    // What is no text is no MDT's, and differs from all.
    Ok(value.map(|value| Uuid::new(String::from_utf8_lossy(&value))))
}

fn key(index: u16) -> Bytes {
    Bytes::copy_from_slice(&index.to_be_bytes())
}

/// Whether a side of a connection between MDTs takes part in changes whose records have our format.
fn shares_record_format(data: &ObdConnectData) -> bool {
    data.flags.contains(ConnectFlags::FLAGS2)
        && data.flags2.contains(ConnectFlags2::MDT_CHANGES)
        && data.update_format == FORMAT
}

/// Agrees with another MDT. Where it offers no format of records of changes that is ours, nothing but questions about
/// sequences is to go over the connection.
///
/// # Errors
/// [`Errno::EPROTO`] for one that does not know FIDs.
pub(crate) fn negotiate(
    offered: &ObdConnectData,
    agreed: &mut ObdConnectData,
) -> Result<(), Errno> {
    if !agreed.flags.contains(ConnectFlags::FID) {
        return Err(Errno::EPROTO);
    }
    // By these it stays one that is not evicted for its silence.
    agreed.flags |= offered.flags & (ConnectFlags::MDS | ConnectFlags::MDS_MDS);
    if shares_record_format(offered) {
        agreed.flags |= ConnectFlags::FLAGS2;
        agreed.flags2 |= ConnectFlags2::MDT_CHANGES;
        agreed.update_format = FORMAT;
        if agreed.flags.contains(ConnectFlags::MULTIMODRPCS) {
            agreed.maxmodrpcs = PARTS_IN_FLIGHT;
        }
    }
    Ok(())
}
