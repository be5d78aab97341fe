//! Files that stay open on their MDT after the last close, for later opens (Lustre's open cache; see
//! [`crate::cache::CachedOpen`]).
//!
//! An open that finds the file in the open cache in the mode it wants needs no RPC: so the checks that the MDT would
//! make are made here, by what locks cover, and an open that these do not allow is left to the MDT. An open
//! that truncates the file, or would be refused if the file had certain flags, always goes there.
//!
//! Cost: no RPC for an open that is cached, and none for its close; the close is sent when the lock is
//! cancelled.

use std::sync::Arc;
use std::time::Duration;

use sheen_types::Errno;
use sheen_types::access::{Capability, Subject};
use sheen_wire::md::FileFlags;

use super::handles::FileDescription;
use super::{Credentials, FileType, Mounted, OpenFlags};
use crate::cache::{Access, CachedOpen, Inode};
use crate::mdt::CloseAttributes;
use crate::meta::{OwnOrCachedOpen, wanted_by_open};
use crate::types::OpenCounts;

impl Mounted {
    /// Counts an open.
    pub(super) fn count_open(&self, inode: &Inode) -> OpenCounts {
        let forget_after =
            Duration::from_millis(self.settings.open_cache.forget_after.get().into());
        inode.state().file.open_cache.count(self.meta.world.clock.now(), forget_after)
    }

    /// Whether an open that was just counted should stay.
    pub(super) fn is_worth_caching(&self, inode: &Inode, flags: OpenFlags) -> bool {
        let state = inode.state();
        let access = Access::of(flags);
        let is_regular = state.file_type() == Some(FileType::Regular);
        // The truncate revokes what would be cached.
        let is_useful = is_regular
            && !flags.has(OpenFlags::TRUNCATE)
            && state.file.open_cache.get(access).is_none()
            && !(access == Access::Write && state.is_executable());
        let now = self.meta.world.clock.now();
        is_useful && state.file.open_cache.is_worth_caching(now, self.settings.open_cache.rules())
    }

    /// Shares an open that is cached, if `who` may have it.
    pub(super) fn join_cached(
        &self,
        who: &Credentials,
        inode: &Inode,
        flags: OpenFlags,
    ) -> Option<OwnOrCachedOpen> {
        let (state, access) = (inode.state(), Access::of(flags));
        let cached = state.file.open_cache.get(access)?;
        let frozen = FileFlags::IMMUTABLE | FileFlags::APPEND;
        let is_frozen = state.last_attributes()?.flags & frozen.0 != 0;
        let writes = access == Access::Write;
        if flags.has(OpenFlags::TRUNCATE) || writes && (is_frozen || state.is_executable()) {
            return None;
        }
        let judged = self.judged(who);
        let overrides = judged.can(Capability::DacOverride) && access != Access::Exec;
        let is_known = overrides || state.rights_covered();
        let may = is_known && state.permits(&judged, wanted_by_open(flags)) == Some(true);
        (may && cached.join()).then(|| OwnOrCachedOpen::Cached(cached.clone()))
    }

    /// Closes what a call has opened. At most one RPC.
    pub(super) async fn end_open(
        &self,
        who: &Credentials,
        inode: &Inode,
        open: OwnOrCachedOpen,
        close_attributes: Option<CloseAttributes>,
    ) -> Result<(), Errno> {
        match open {
            OwnOrCachedOpen::Own(open) => open.close(who, inode.fid, close_attributes).await,
            OwnOrCachedOpen::Cached(cached) => {
                if cached.end_use(close_attributes) {
                    cached.close(inode.fid).await;
                }
                Ok(())
            }
        }
    }

    /// A user closes a file. Its handles to write are not cached any more if it can be executed by now; returns
    /// what must be closed for that.
    pub(super) fn note_close(&self, file: &FileDescription) -> Option<Arc<CachedOpen>> {
        let mut state = file.pin.state();
        state.file.open_cache.note_close(self.meta.world.clock.now());
        if state.is_executable() { state.file.open_cache.take(Access::Write) } else { None }
    }

    /// Closes all handles that are cached and not in use.
    pub(super) async fn close_all_cached(&self) {
        for inode in self.inodes.all() {
            let closes = inode.state().file.open_cache.take_all();
            for cached in closes {
                cached.close(inode.fid).await;
            }
            self.inodes.release(&inode);
        }
    }
}
