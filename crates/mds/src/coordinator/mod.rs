//! Changes of names and inodes that lie on several MDTs: what the MDT does that a client has asked (Lustre: the master MDT, with
//! OSP and LOD). What the other ones do is in `participant`; records, logical times and completion are the target's.
//!
//! An operation says which names and inodes it is about ([`hold`]); those are excluded, MDT by MDT in the order of their
//! indexes, on this one as on each other. What they are comes with the answers, so that the checks need no further
//! request. Then its parts are built ([`parts`]), this MDT's is applied with the record of all, and when that is durable the
//! other MDTs are sent theirs ([`execute`]). Later it says to all that the change is complete ([`complete`]). What a restart
//! leaves to be done is in [`recover`].
//!
//! What always holds:
//!
//! - Nothing is excluded while something is held that is later in the order: the rename lock of MDT0000, then MDT by MDT. Nor
//!   are shards of [`crate::exclusion`] held while another MDT is asked.
//! - All that may refuse a change comes before this MDT's part is applied. From then on the change is made, by a task
//!   of its own, whatever becomes of the client.
//! - No other MDT, and no client, sees a change that this MDT could lose.
//! - An exclusion is released once, when it is dropped or with a part.

mod ask;
mod complete;
mod exclude;
mod execute;
mod initiator;
mod link;
mod make;
mod migrate;
mod move_name;
mod old_place;
mod parts;
mod recover;
mod remove;
mod rename;
mod restripe;
mod striped;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sheen_types::{ChangeId, MdtIndex};

use self::exclude::MdtExclusion;

pub(crate) use self::initiator::Initiator;
pub(crate) use self::migrate::Migration;
pub(crate) use self::move_name::NameMoved;
pub(crate) use self::old_place::NewNameHold;
#[cfg(test)]
pub(crate) use self::recover::RecordsBeingRead;
pub(crate) use self::restripe::{Restripe, RestripeEnd};
pub(crate) use self::striped::StripedChange;

/// What the coordinator keeps.
#[derive(Default)]
pub(crate) struct Coordinator {
    /// The number of the last exclusion.
    exclusions: AtomicU64,
    /// Held by the change that has the rename lock of MDT0000, or asks for it.
    renames: Arc<tokio::sync::Mutex<()>>,
    /// There is a task that ends changes.
    completes: AtomicBool,
    /// Changes whose parts are being sent, with what is excluded for each.
    under_way: Mutex<BTreeMap<ChangeId, Vec<MdtExclusion>>>,
    /// Parts that do not fit any more where they belong.
    late: Mutex<BTreeSet<(ChangeId, MdtIndex)>>,
    /// Where nothing of earlier starts is excluded any more.
    released: Mutex<BTreeSet<MdtIndex>>,
}

impl Coordinator {
    fn next_exclusion(&self) -> u64 {
        self.exclusions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of the exclusion on another MDT for a change whose parts are being sent.
    pub(crate) fn exclusion_under_way(&self, id: ChangeId, mdt: MdtIndex) -> Option<u64> {
        let under_way = self.under_way.lock();
        let exclusions = under_way.get(&id)?.iter();
        exclusions.filter(|it| it.mdt == mdt).map(|it| it.number).next()
    }

    /// Whether it is the first call.
    fn begins_completing(&self) -> bool {
        !self.completes.swap(true, Ordering::AcqRel)
    }
}
