//! Parts of this MDT that it has had since before it was started, of changes that their coordinators have not finished: what other
//! MDTs have not applied yet, clients do not see here (docs/design/distributed-changes.md, step 6 of recovery).
//!
//! What was excluded went with the former start. Its coordinator says under which number that was, with the records that this MDT
//! asks it for, and releases it by that number when all parts are applied. It is entered anew when clients have replayed what they
//! have to: a replayed open of an inode that moves must not wait for its coordinator, which waits for the end of recovery.

use parking_lot::Mutex;
use sheen_target::{Incarnation, Target};
use sheen_types::{ChangeId, Errno};
use sheen_wire::out::ObjectUpdate;

use super::apply::keys_of;
use crate::Mdt;
use crate::distributed_exclusions::Entry;

/// What is to be entered at the end of recovery.
#[derive(Default)]
pub(crate) struct UnfinishedParts(Mutex<Vec<(ChangeId, Entry)>>);

impl Mdt {
    /// A coordinator says that a change has not been applied everywhere, and under which exclusion here its part was to be. Its
    /// part here is hidden at the end of recovery.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] for a part that is none.
    pub(crate) fn note_unfinished(
        &self,
        id: ChangeId,
        (coordinator, number): (Incarnation, u64),
        updates: &[ObjectUpdate],
    ) -> Result<(), Errno> {
        let entry = Entry { number, ..Entry::late(coordinator, &keys_of(updates)?) };
        self.unfinished.0.lock().push((id, entry));
        Ok(())
    }

    /// Hides what was noted, as far as it is here. The shards of its names are not acquired: a request that holds them has come
    /// before it, and may wait for a lock that no one gives up before recovery ends. Nothing is applied here under what is entered.
    pub(crate) fn hide_unfinished_parts(&self, target: &Target) {
        let unfinished = std::mem::take(&mut *self.unfinished.0.lock());
        let here = unfinished.into_iter().filter(|(id, _)| target.part_here(*id).is_some());
        for (id, entry) in here {
            let (coordinator, number) = (entry.coordinator, entry.number);
            match self.exclusion.distributed.enter(entry) {
                Ok(()) => self.note_applied(coordinator, number),
                // It was released meanwhile, or its coordinator has started anew: that sends the parts itself. Or another change
                // was excluded before: then it is shown before all have applied it.
                Err(why) => {
                    tracing::debug!(target = target.name(), change = %id, ?why, "is not hidden");
                }
            }
        }
    }
}
