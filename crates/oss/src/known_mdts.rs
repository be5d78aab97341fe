//! Whose objects these are: the MDTs that this OST obeys, and the refusal of any other MDT (decision 0016).
//!
//! An MDT that was formatted anew or put in another one's place has the same name and takes the same sequences: its
//! ids are those of the other one's files. So the first MDT of an index is recorded with the identity of its store, and
//! from then on no MDT of another identity, or of none, is let in under that index, nor a client whose names come from
//! such an MDT: what it writes would go to other files.
//!
//! What always holds: a record is durable before a request of its MDT is taken.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_store::{Entry, Store, StoreError, Transaction, all_entries};
use sheen_target::{Connecting, Context, Export, Target, store_errno};
use sheen_types::{Errno, Fid, TargetKind, Uuid, fid_seq};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};

use crate::Ost;
use crate::mdt_progress::MdtProgress;

/// Index of the MDTs: number, big-endian, to identity.
const MDTS: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x102);
/// Stands for the identity of an MDT that says none.
const NONE: &str = "none";
/// Sequences in a super-range (`LUSTRE_SEQ_SUPER_WIDTH`).
const SUPER_WIDTH: u64 = 1 << 30;
/// What the text of an MDT begins with.
const MDT: &str = "MDT";

/// An MDT by its number and the identity of its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownMdt {
    /// Its number.
    pub index: u16,
    /// What its store alone has; `None` of one that says none, as Lustre's do.
    pub identity: Option<Uuid>,
}

impl fmt::Display for KnownMdt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = self.identity.as_ref().map_or(NONE, Uuid::as_str);
        write!(out, "{MDT}{:04x}:{identity}", self.index)
    }
}

impl FromStr for KnownMdt {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Self, Errno> {
        let parts = text.trim().strip_prefix(MDT).and_then(|rest| rest.split_once(':'));
        let (index, identity) = parts.ok_or(Errno::EINVAL)?;
        let index = u16::from_str_radix(index, 16).map_err(|_| Errno::EINVAL)?;
        let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_hexdigit());
        let identity = match identity {
            NONE => None,
            text if text.split('-').count() == 5 && text.split('-').all(is_hex) => {
                Some(Uuid::new(text))
            }
            _ => return Err(Errno::EINVAL),
        };
        Ok(Self { index, identity })
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct KnownMdts {
    /// One at a time is compared with what is recorded, and recorded.
    recording: Mutex<()>,
    /// Whose exports end when an administrator rules their MDT out.
    target: OnceLock<Weak<Target>>,
    /// The MDT that was refused last, and not let in since.
    refused: Mutex<Option<KnownMdt>>,
    /// The identity that the clients have which were refused last.
    refused_clients: Mutex<Option<Uuid>>,
}

/// The identity under which an export was let in, if it said one.
#[derive(Default)]
struct AdmittedAs(Mutex<Option<Uuid>>);

/// Who connects, as far as this module distinguishes it.
enum Peer {
    Mdt(KnownMdt),
    Client(Uuid),
    /// Other servers, and clients that do not say whose names they have.
    Other,
}

impl Peer {
    fn of(connecting: &Connecting<'_>) -> Self {
        let identity = identity_in(connecting.offered);
        let offers_mds = connecting.offered.flags.contains(ConnectFlags::MDS);
        let owner = connecting.owner.as_ref();
        match (connecting.is_server, owner, identity) {
            (true, Some(owner), identity) if owner.kind == TargetKind::Mdt => {
                Self::Mdt(KnownMdt { index: owner.index, identity })
            }
            // An MDT by what it asks for, whatever it is called.
            (true, None, identity) if offers_mds => Self::Mdt(KnownMdt { index: 0, identity }),
            (false, _, Some(identity)) => Self::Client(identity),
            _ => Self::Other,
        }
    }
}

fn identity_in(offered: &ObdConnectData) -> Option<Uuid> {
    offered.mdt_identity().map(|text| Uuid::new(String::from_utf8_lossy(text)))
}

/// The MDT that creates objects in the sequence of one.
#[must_use]
pub fn mdt_of_object(object: Fid) -> u16 {
    mdt_of(crate::objects::sequence_of_object(object)).unwrap_or(0)
}

/// The MDT that creates objects in a sequence.
fn mdt_of(sequence: u64) -> Option<u16> {
    if sequence == fid_seq::OST_MDT0 {
        return Some(0);
    }
    let place = sequence.checked_sub(fid_seq::NORMAL)? % SUPER_WIDTH;
    u16::try_from(place.checked_sub(1)?).ok()
}

impl Ost {
    pub(crate) fn serve(&self, target: &Arc<Target>) {
        // A target starts once.
        let _ = self.known_mdts.target.set(Arc::downgrade(target));
    }

    /// Whether an MDT may create objects in a sequence, and remove there what it has not used: one that says its identity
    /// in its own alone. In an OST's super-range, of which all begin at multiples of their width, the first sequence is
    /// the OST's, and then each MDT has one. An MDT of Lustre's says none; its sequences are given out otherwise.
    ///
    /// # Errors
    /// [`Errno::EPERM`] if not.
    pub(crate) fn check_sequence(&self, context: &Context, sequence: u64) -> Result<(), Errno> {
        let export = &context.export;
        if export.role::<AdmittedAs>().0.lock().is_none() {
            return Ok(());
        }
        // One that only asks for what MDTs ask for is the first.
        let index = export.owner().map_or(0, |owner| owner.index);
        if mdt_of(sequence) == Some(index) {
            return Ok(());
        }
        tracing::error!(target = context.target.name(), client = %export.uuid(), sequence,
            "refused: MDT{index:04x} would create or remove objects of another MDT's sequence");
        Err(Errno::EPERM)
    }

    /// An export is let in: by what it said an administrator may rule it out.
    pub(crate) fn note_identity(&self, export: &Export, offered: &ObdConnectData) {
        *export.role::<AdmittedAs>().0.lock() = identity_in(offered);
    }

    /// Evicts those that were let in under an identity that none of the recorded MDTs has.
    fn evict_ruled_out(&self) -> Result<(), Errno> {
        let known = self.recorded()?;
        let Some(target) = self.known_mdts.target.get().and_then(Weak::upgrade) else {
            return Ok(());
        };
        for export in target.exports() {
            let identity = export.role::<AdmittedAs>().0.lock().clone();
            let is_ruled_out = identity.is_some_and(|it| known.values().all(|known| *known != it));
            if is_ruled_out && !known.is_empty() {
                tracing::warn!(target = target.name(), client = %export.uuid(), nid = %export.nid(),
                    "evicted: these are no longer the objects of its MDT");
                target.evict_soon(&export);
            }
        }
        Ok(())
    }

    /// Whether these objects are those of the MDT that connects, or of the one that a client's names come from.
    ///
    /// # Errors
    /// [`Errno::EXDEV`] if not, and those of the store.
    pub(crate) async fn check_peer(
        &self,
        target: &Arc<Target>,
        connecting: &Connecting<'_>,
    ) -> Result<(), Errno> {
        match Peer::of(connecting) {
            Peer::Mdt(mdt) => {
                self.check_mdt(target, connecting, &mdt)?;
                match mdt.identity {
                    // It may have been recorded a moment ago.
                    Some(_) => target.sync().await,
                    None => Ok(()),
                }
            }
            Peer::Client(identity) => self.check_client(target, connecting, &identity),
            Peer::Other => Ok(()),
        }
    }

    fn check_mdt(
        &self,
        target: &Target,
        connecting: &Connecting<'_>,
        mdt: &KnownMdt,
    ) -> Result<(), Errno> {
        let recording = self.known_mdts.recording.lock();
        let known = self.recorded()?.remove(&mdt.index);
        match (known, &mdt.identity) {
            (Some(known), identity) if Some(&known) != identity.as_ref() => {
                drop(recording);
                self.refuse_mdt(target, connecting, mdt, &known);
                return Err(Errno::EXDEV);
            }
            (None, Some(identity)) => {
                record(&*self.store, mdt.index, identity).map_err(store_errno)?;
                tracing::info!(target = target.name(), %mdt, "holds the objects of this MDT from now on");
            }
            _ => {}
        }
        *self.known_mdts.refused.lock() = None;
        Ok(())
    }

    /// Says so once for each, not at every try.
    fn refuse_mdt(
        &self,
        target: &Target,
        connecting: &Connecting<'_>,
        mdt: &KnownMdt,
        known: &Uuid,
    ) {
        if self.known_mdts.refused.lock().replace(mdt.clone()).as_ref() == Some(mdt) {
            return;
        }
        let (name, nid) = (target.name(), connecting.nid);
        let fsname = name.rsplit_once('-').map_or(name, |(fsname, _)| fsname);
        tracing::error!(target = name, %nid,
            "refused {mdt}: {name} holds the objects of another MDT{:04x}, {known}, and keeps them. Put that one back; or, \
             if it is lost for good and this one takes its place: lctl set_param obdfilter.{fsname}-OST*.mdt_identity={mdt}",
            mdt.index);
    }

    fn check_client(
        &self,
        target: &Target,
        connecting: &Connecting<'_>,
        identity: &Uuid,
    ) -> Result<(), Errno> {
        let known = self.recorded()?;
        if known.is_empty() || known.values().any(|known| known == identity) {
            return Ok(());
        }
        if self.known_mdts.refused_clients.lock().replace(identity.clone()).as_ref()
            != Some(identity)
        {
            tracing::error!(target = target.name(), client = %connecting.client, nid = %connecting.nid,
                "refused clients of MDT {identity}: {} holds the objects of another one, and they would read and write \
                 those of other files", target.name());
        }
        Err(Errno::EXDEV)
    }

    fn recorded(&self) -> Result<BTreeMap<u16, Uuid>, Errno> {
        let all = self.known_mdts().map_err(store_errno)?;
        Ok(all.into_iter().filter_map(|mdt| Some((mdt.index, mdt.identity?))).collect())
    }

    /// The MDTs whose objects these are.
    ///
    /// # Errors
    /// Those of the store.
    pub fn known_mdts(&self) -> Result<Vec<KnownMdt>, StoreError> {
        let wrong = || StoreError::Corrupt("a record of an MDT".to_owned());
        let parse = |entry: &Entry| {
            let index = u16::from_be_bytes(entry.key.as_ref().try_into().ok()?);
            let identity = std::str::from_utf8(&entry.value).ok()?;
            Some(KnownMdt { index, identity: Some(Uuid::new(identity)) })
        };
        let entries = all_entries(&*self.store, MDTS, &[]);
        entries.map(|entry| entry.and_then(|entry| parse(&entry).ok_or_else(wrong))).collect()
    }

    /// The MDT that was refused last and has not been let in since.
    #[must_use]
    pub fn refused_mdt(&self) -> Option<KnownMdt> {
        self.known_mdts.refused.lock().clone()
    }

    /// From now on these are the objects of another MDT (`mdt_identity`): what is here is kept, and no id that was
    /// given out is given out again. Without an identity the next MDT that comes is recorded. Durable when it returns; the
    /// MDT that is ruled out, and clients that have their names from it, are evicted then.
    ///
    /// # Errors
    /// Those of the store.
    pub fn bind_mdt(&self, mdt: &KnownMdt) -> Result<(), Errno> {
        // Held until it is recorded: no connect waits for the disk.
        let recording = self.known_mdts.recording.lock();
        let changed = self.rebind(mdt);
        drop(recording);
        changed.and_then(|()| self.store.commit()).map_err(store_errno)?;
        tracing::warn!(%mdt, ost = self.index, "an administrator says whose objects these are");
        self.evict_ruled_out()
    }
}

impl Ost {
    fn rebind(&self, mdt: &KnownMdt) -> Result<(), StoreError> {
        let mut change = Transaction::new();
        match &mdt.identity {
            Some(identity) => put(&mut change, mdt.index, identity),
            None if self.store.lookup(MDTS, &key(mdt.index))?.is_some() => {
                change.delete(MDTS, key(mdt.index));
            }
            None => {}
        }
        // How far the other MDT's store had come says nothing about this one's.
        MdtProgress::forget_all(&*self.store, &mut change)?;
        self.store.apply(change).map(drop)
    }
}

fn key(index: u16) -> Bytes {
    Bytes::copy_from_slice(&index.to_be_bytes())
}

fn record(store: &dyn Store, index: u16, identity: &Uuid) -> Result<(), StoreError> {
    let mut change = Transaction::new();
    put(&mut change, index, identity);
    store.apply(change).map(drop)
}

fn put(change: &mut Transaction, index: u16, identity: &Uuid) {
    change.put(MDTS, key(index), Bytes::copy_from_slice(identity.as_str().as_bytes()));
}
