//! Learning all names of a directory, so that those it has not need not be asked for.
//!
//! A lookup that finds nothing costs a request, and so does reading the directory: reading begins
//! when so many lookups have found nothing as it costs, and goes on by a bulk for each further one.
//! So the requests at most double, and a small directory is known after two.

use super::Meta;
use super::readdir::CHUNK_BYTES;
use crate::cache::{Chunk, DirectoryRead, Inode, NamePlace};
use crate::types::Credentials;
use sheen_ldlm::Policy;
use sheen_types::{InodeBits, LockMode, Name};

impl Meta {
    /// Whether `name` is known to be absent by a question of its own. No RPC.
    pub(crate) fn is_absent(&self, parent: &Inode, name: &Name) -> bool {
        let place = self.known_place(parent, name);
        place.is_ok_and(|it| it.is_some_and(|it| self.is_absent_at(&it, name)))
    }

    /// The same where it is; while names are being moved of both stripes that may have it.
    pub(crate) fn is_absent_at(&self, place: &NamePlace<'_>, name: &Name) -> bool {
        let is_absent = |place: &NamePlace<'_>| place.holder().state().is_absent(name);
        is_absent(place) && self.place_before(place).is_none_or(|before| is_absent(&before))
    }

    /// Whether `name` is absent for certain, as the lock on all names of the directory guarantees.
    /// No RPC. The lock counts as used.
    pub(crate) fn knows_absent(&self, place: &NamePlace<'_>, name: &Name) -> bool {
        self.knows_absent_in_stripe(place, name)
            && self
                .place_before(place)
                .is_none_or(|before| self.knows_absent_in_stripe(&before, name))
    }

    fn knows_absent_in_stripe(&self, place: &NamePlace<'_>, name: &Name) -> bool {
        let holder = place.holder();
        let hash = self.cache.hasher.hash(name.as_bytes());
        {
            let mut state = holder.state();
            if !state.knows_absent(hash) {
                return false;
            }
            state.keep_absent(name);
        }
        let Some(mdt) = self.known_mdt(holder.fid) else { return false };
        let policy = Policy::bits(InodeBits::UPDATE);
        mdt.locks.find(holder.resource(), policy, LockMode::Pr).is_some()
    }

    /// A lookup in `parent` was asked and found nothing: reads on if that is worth while. At most two
    /// RPCs, for the lock and for some thousand names.
    pub(super) async fn learn_names(&self, who: &Credentials, parent: &Inode) {
        let keeps = self.keeps_own_names(parent);
        let Some(from) = keeps.then(|| parent.state().note_missed()).flatten() else { return };
        let covered = parent.state().update_covered();
        let held = match covered {
            true => None,
            false => match self.lock_names(parent).await {
                Ok(Some(held)) => Some(held),
                // The lookup has its answer already, and the next one tries again.
                Ok(None) | Err(_) => return,
            },
        };
        let reading = parent.state().begin_reading(&self.cache.hasher, from);
        let Some(reading) = reading else { return };
        // Not in use while the MDT is asked, as for a listing ([`Self::chunk_of`]): that may wait for a change that waits for it.
        drop(held);
        // As above.
        if let Ok(chunk) = self.readpage(who, parent, from, CHUNK_BYTES).await {
            self.note_names(parent, &reading, &chunk);
        }
    }

    /// Counts the names of a chunk.
    pub(super) fn note_names(&self, directory: &Inode, reading: &DirectoryRead, chunk: &Chunk) {
        let (names, end) = (chunk.names(), chunk.next_chunk().hash);
        let hasher = &self.cache.hasher;
        directory.state().directory.names_mut().read(hasher, reading, names, end);
    }
}
