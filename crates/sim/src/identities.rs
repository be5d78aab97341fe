//! Which FIDs are one inode: it gets another FID when it moves to another MDT, and so does a plain directory that is split.
//!
//! The model knows an inode by the FID that it was seen with first, its *identity*. Before anything may move an inode, the
//! work writes this into an extended attribute of it ([`TAG`]), which moves with all that it has. A FID that is new to the model is looked
//! up on the disks: it is that of the attribute, or of the directory that is a stripe of it since, or a new inode's.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_layout::directory::Holder;
use sheen_store::Store;
use sheen_types::{Fid, TargetKind};

use crate::changing::layout_of;
use crate::damage::LAYOUT;
use crate::run::{Sim, changes_fids};

/// The extended attribute that says which inode this is.
pub(crate) const TAG: &str = "trusted.identity";

/// What is known.
#[derive(Default)]
pub(crate) struct Identities(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Of each FID that anyone has seen.
    inodes: BTreeMap<Fid, Fid>,
    /// Of the first object of each file.
    objects: BTreeMap<Fid, Fid>,
}

/// The value of [`TAG`].
pub(crate) fn tag_of(identity: Fid) -> Bytes {
    let mut bytes = identity.seq.to_le_bytes().to_vec();
    bytes.extend(identity.oid.to_le_bytes());
    bytes.into()
}

fn read_tag(bytes: &[u8]) -> Option<Fid> {
    let (seq, oid) = bytes.split_first_chunk::<8>()?;
    let oid = oid.first_chunk::<4>()?;
    Some(Fid::new(u64::from_le_bytes(*seq), u32::from_le_bytes(*oid)))
}

/// What a file's data lies in, however often the file moves.
fn first_object(store: &dyn Store, fid: Fid) -> Option<Fid> {
    let layout = store.xattr(fid, LAYOUT).ok().flatten()?;
    let layout = sheen_layout::parse(&layout).ok().flatten()?;
    layout.objects().find_map(|(_, stripe)| stripe.map(|stripe| stripe.object))
}

impl Sim {
    /// Whether inodes may get other FIDs in this run.
    pub(crate) fn changes_fids(&self) -> bool {
        changes_fids(self.options)
    }

    /// The inode that a FID is of.
    pub(crate) fn identity(&self, fid: Fid) -> Fid {
        if !self.changes_fids() {
            return fid;
        }
        if let Some(known) = self.identities.0.lock().inodes.get(&fid) {
            return *known;
        }
        let mut stores = self.cluster.targets(TargetKind::Mdt).map(|(_, disk)| disk.store());
        let Some(store) = stores.find(|store| store.has(fid)) else { return fid };
        let before = self.identity_before(&*store, fid);
        let identity = before.unwrap_or(fid);
        let mut known = self.identities.0.lock();
        known.inodes.insert(fid, identity);
        if let Some(object) = first_object(&*store, fid) {
            known.objects.insert(object, identity);
        }
        drop(known);
        if identity != fid {
            self.say(format_args!("{fid} is {identity} now"));
        }
        identity
    }

    fn identity_before(&self, store: &dyn Store, fid: Fid) -> Option<Fid> {
        if let Some(tag) = store.xattr(fid, TAG).ok().flatten() {
            return read_tag(&tag);
        }
        // It has moved between two looks of the work, or is split by the MDTs themselves.
        if let Some(object) = first_object(store, fid) {
            return self.identities.0.lock().objects.get(&object).copied();
        }
        let layout = layout_of(store, fid)?;
        let Holder::Master { stripes, .. } = layout.holder() else { return None };
        let known = self.identities.0.lock();
        stripes.iter().find_map(|stripe| known.inodes.get(stripe).copied())
    }

    /// All FIDs that an inode has had, as far as they are known.
    pub(crate) fn fids_of(&self, identity: Fid) -> Vec<Fid> {
        let known = self.identities.0.lock();
        let its = known.inodes.iter().filter(|(_, of)| **of == identity).map(|(fid, _)| *fid);
        let mut fids: Vec<Fid> = its.collect();
        if !fids.contains(&identity) {
            fids.push(identity);
        }
        fids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_which_inode_it_is_of() {
        let fid = Fid::new(0x2_4000_0401, 7);
        assert_eq!(read_tag(&tag_of(fid)), Some(fid));
        assert_eq!(read_tag(&tag_of(fid)[..11]), None);
    }
}
