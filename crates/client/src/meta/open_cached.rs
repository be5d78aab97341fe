//! Opens that are to be cached: under a lock of their own (see [`crate::cache::CachedOpen`]).

use std::sync::Arc;

use sheen_types::{Errno, InodeBits};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::md::MdsOpenFlags;

use super::Meta;
use super::open::{OpenTarget, OpenedInode, wire_flags};
use crate::cache::{Access, CachedOpen, Inode};
use crate::mdt::MdtOpen;
use crate::types::{Credentials, OpenFlags};

/// How a file is open on its MDT.
pub(crate) enum OwnOrCachedOpen {
    /// By a handle of its own.
    Own(MdtOpen),
    /// By one that other opens share, now and later.
    Cached(Arc<CachedOpen>),
}

impl OwnOrCachedOpen {
    /// Either of them.
    pub(crate) fn mdt_open(&self) -> &MdtOpen {
        match self {
            Self::Own(open) => open,
            Self::Cached(cached) => &cached.open,
        }
    }
}

impl Meta {
    /// As [`Meta::open`], and asks for the lock that lets the open stay. One RPC.
    pub(crate) async fn open_to_cache(
        &self,
        who: &Credentials,
        inode: &Inode,
        flags: OpenFlags,
    ) -> Result<Option<OwnOrCachedOpen>, Errno> {
        let wire = wire_flags(flags).without(MdsOpenFlags::EXCL);
        let wire = wire | MdsOpenFlags::BY_FID | MdsOpenFlags::LOCK;
        let mut opened = self.open_intent(who, OpenTarget::Known(inode), wire, None).await?;
        Ok(opened.take_open(who, Access::of(flags)))
    }

    /// Whether the MDT gives that lock with an open that creates, too.
    pub(crate) fn caches_new_opens(&self, parent: &Inode) -> bool {
        let has = |flags2: ConnectFlags2| flags2.contains(ConnectFlags2::ATOMIC_OPEN_LOCK);
        self.known_mdt(parent.fid).is_some_and(|mdt| has(mdt.channel.connect_data().flags2))
    }
}

impl OpenedInode {
    /// How it is open, if it is: cached, if its lock came along and no other is cached.
    pub(crate) fn take_open(
        &mut self,
        who: &Credentials,
        access: Access,
    ) -> Option<OwnOrCachedOpen> {
        let open = self.open.take()?;
        let held = self.held.take().filter(|held| {
            let is_ours = held.resource() == self.pin.resource() && held.mode() == access.mode();
            is_ours && held.bits().contains(InodeBits::OPEN)
        });
        let Some(held) = held else { return Some(OwnOrCachedOpen::Own(open)) };
        let mut state = self.pin.state();
        let is_useless = access == Access::Write && state.is_executable();
        // A lock that is revoked from here on closes what is cached.
        if is_useless || !held.is_alive() || state.file.open_cache.get(access).is_some() {
            drop(state);
            held.cancel();
            return Some(OwnOrCachedOpen::Own(open));
        }
        let cached = Arc::new(CachedOpen::new(open, access, who));
        state.file.open_cache.insert(&cached);
        drop(state);
        drop(held);
        Some(OwnOrCachedOpen::Cached(cached))
    }
}
