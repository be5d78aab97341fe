//! Our own changes of names, and the directory's lock.
//!
//! Lustre's MDT revokes a directory's lock from the client that changes it, and the client cancels it with
//! the request. A target that agrees to `OWN_NAMES` leaves the lock: the client then updates what it knows
//! itself, here.

use sheen_types::{InodeBits, Name};
use sheen_wire::connect::ConnectFlags2;

use super::Meta;
use crate::cache::{ChangeOutcome, Inode, NameChange, NamePlace};
use crate::mdt::Mdc;

/// A change of a directory's names, from before its request goes out until its answer is here. One that is
/// dropped in between stays under way: when the server executes it is unknown.
#[must_use]
pub(super) struct ChangeGuard<'a> {
    holder: &'a Inode,
    change: NameChange,
}

impl ChangeGuard<'_> {
    /// It was answered.
    pub(super) fn end(self, done: ChangeOutcome) {
        self.holder.state().directory.names_mut().end(&self.change, done);
    }
}

impl Mdc {
    /// Whether changes of names leave our own locks on the directories.
    pub(crate) fn keeps_own_names(&self) -> bool {
        self.channel.connect_data().flags2.contains(ConnectFlags2::OWN_NAMES)
    }

    /// Whether changes of attributes leave our own locks on the inodes.
    pub(super) fn keeps_own_attributes(&self) -> bool {
        self.channel.connect_data().flags2.contains(ConnectFlags2::OWN_ATTRIBUTES)
    }

    /// The locks on a directory that are cancelled with a change of its names.
    pub(super) fn conflicting_names(&self) -> InodeBits {
        if self.keeps_own_names() { InodeBits(0) } else { InodeBits::UPDATE }
    }
}

impl Meta {
    /// Begins a change of a directory's names. The kernel's attributes of it are invalidated now: a reply to
    /// an earlier question may still be on its way to the kernel.
    pub(super) async fn begin_change<'a>(
        &self,
        place: &'a NamePlace<'_>,
        adds: Option<&Name>,
        removes: Option<&Name>,
    ) -> ChangeGuard<'a> {
        let holder = place.holder();
        let hash = |name: &Name| self.cache.hasher.hash(name.as_bytes());
        let (change, had_attributes) = {
            let mut state = holder.state();
            for name in [adds, removes].into_iter().flatten() {
                state.forget_absent(name);
            }
            let had_attributes = state.attributes_covered();
            (state.begin_change(adds.map(hash), removes.map(hash)), had_attributes)
        };
        if had_attributes {
            self.cache.kernel_cache.invalidate_attributes_but_size(place.directory.node()).await;
        }
        ChangeGuard { holder, change }
    }
}
