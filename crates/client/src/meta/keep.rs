//! Opens that are to be kept: under a lock of their own (see [`crate::cache::KeptOpen`]).

use std::sync::Arc;

use sheen_types::{Errno, InodeBits};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::md::MdsOpenFlags;

use super::Meta;
use super::open::{OpenTarget, OpenedInode, wire_flags};
use crate::cache::{Access, Inode, KeptOpen};
use crate::mdt::OpenState;
use crate::types::{Credentials, OpenFlags};

/// An open file's handle on the MDT.
pub(crate) enum OpenHandle {
    /// Its own.
    Own(OpenState),
    /// One that other opens share, now and later.
    Kept(Arc<KeptOpen>),
}

impl OpenHandle {
    /// What is known of the handle.
    pub(crate) fn state(&self) -> &OpenState {
        match self {
            Self::Own(open) => open,
            Self::Kept(kept) => &kept.open,
        }
    }
}

impl Meta {
    /// As [`Meta::open`], and asks for the lock that lets the open stay. One RPC.
    pub(crate) async fn open_to_keep(
        &self,
        who: &Credentials,
        inode: &Inode,
        flags: OpenFlags,
    ) -> Result<Option<OpenHandle>, Errno> {
        let wire = wire_flags(flags).without(MdsOpenFlags::EXCL);
        let wire = wire | MdsOpenFlags::BY_FID | MdsOpenFlags::LOCK;
        let mut opened = self.open_intent(who, OpenTarget::Known(inode), wire, None).await?;
        Ok(opened.take_handle(who, Access::of(flags)))
    }

    /// Whether the MDT gives that lock with an open that creates, too.
    pub(crate) fn keeps_new(&self, parent: &Inode) -> bool {
        let has = |flags2: ConnectFlags2| flags2.contains(ConnectFlags2::ATOMIC_OPEN_LOCK);
        self.mdt_for_new(parent).is_ok_and(|mdt| has(mdt.channel.connect_data().flags2))
    }
}

impl OpenedInode {
    /// The handle, if there is one: kept, if its lock came along and no other is kept.
    pub(crate) fn take_handle(&mut self, who: &Credentials, access: Access) -> Option<OpenHandle> {
        let open = self.state.take()?;
        let held = self.held.take().filter(|held| {
            let is_ours = held.resource() == self.pin.resource() && held.mode() == access.mode();
            is_ours && held.bits().contains(InodeBits::OPEN)
        });
        let Some(held) = held else { return Some(OpenHandle::Own(open)) };
        let mut state = self.pin.state();
        let is_useless = access == Access::Write && state.is_executable();
        // A lock that is revoked from here on closes what is kept.
        if is_useless || !held.is_alive() || state.file.kept.get(access).is_some() {
            drop(state);
            held.cancel();
            return Some(OpenHandle::Own(open));
        }
        let kept = Arc::new(KeptOpen::new(open, access, who));
        state.file.kept.keep(&kept);
        drop(state);
        drop(held);
        Some(OpenHandle::Kept(kept))
    }
}
