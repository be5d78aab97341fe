//! The permission checks that the client must make itself: of what it answers from its cache, and
//! of what is asked of it only to know.
//!
//! A request that reaches the MDT is checked there. Names that the kernel keeps are not checked at all: so
//! the kernel may keep a name only if every user of the mount may search its directory ([`super::Audience`]);
//! the kernel asks for all other names at every step, and is answered from the cache.

use std::borrow::Cow;
use std::sync::Arc;

use sheen_types::access::{Capability, May, Subject};
use sheen_types::{Errno, Name};

use super::{Credentials, FileSystem, FileType, Mounted, NodeId};
use crate::boxed;
use crate::cache::Inode;

impl Subject for Credentials {
    fn uid(&self) -> u32 {
        self.uid
    }

    fn is_in_group(&self, group: u32) -> bool {
        Self::is_in_group(self, group)
    }

    /// The superuser has all of them, other users none: that is what the MDT is sent.
    fn can(&self, _: Capability) -> bool {
        self.uid == 0
    }
}

impl FileSystem {
    /// Whether `who` may do all of `wanted`: `access(2)`, `chdir(2)`. No RPC while locks cover mode,
    /// owner, group and access control list, else one.
    ///
    /// # Errors
    /// `EACCES`, or as `stat(2)`.
    #[boxed]
    pub async fn access(&self, who: &Credentials, node: NodeId, wanted: May) -> Result<(), Errno> {
        let inode = self.0.pin(node)?;
        self.0.stale_if_absent(who, self.0.fetch_rights(who, &inode).await)?;
        self.0.judge(who, &inode, wanted)
    }
}

impl FileSystem {
    /// From now on the cache checks root as this user and group; `None` for as root. The MDT squashes by
    /// itself what reaches it.
    pub fn squash_root(&self, to: Option<(u32, u32)>) {
        *self.0.squash.write() = to;
    }
}

impl Mounted {
    /// The identity as which the cache checks `who`.
    pub(super) fn judged<'a>(&self, who: &'a Credentials) -> Cow<'a, Credentials> {
        match *self.squash.read() {
            Some((uid, gid)) if who.uid == 0 => {
                Cow::Owned(Credentials { uid, gid, groups: Arc::from([]), ..who.clone() })
            }
            _ => Cow::Borrowed(who),
        }
    }

    /// Whether `who` may search a directory of which the cache is about to answer. No RPC while
    /// locks cover what decides, else one; then a lock does.
    pub(super) async fn may_search(
        &self,
        who: &Credentials,
        directory: &Inode,
    ) -> Result<(), Errno> {
        self.stale_if_absent(who, self.fetch_rights(who, directory).await)?;
        self.judge(who, directory, May::EXEC)
    }

    /// Whether `who` may read what the cache knows of an inode. No RPC for the superuser.
    pub(super) async fn may_read(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        if self.judged(who).can(Capability::DacOverride) {
            return Ok(());
        }
        self.fetch_rights(who, inode).await?;
        self.judge(who, inode, May::READ)
    }

    /// Refuses who may not search a directory, if locks cover what decides. No RPC.
    pub(super) fn refuse_search(&self, who: &Credentials, directory: &Inode) -> Result<(), Errno> {
        let is_covered = directory.state().rights_covered();
        if is_covered { self.judge(who, directory, May::EXEC) } else { Ok(()) }
    }

    /// As [`CoveredMetadata::may_keep_name`](crate::cache::CoveredMetadata::may_keep_name).
    pub(super) fn may_keep_name(&self, parent: &Inode, name: &Name, is_timed: bool) -> bool {
        self.meta.cache.may_keep_name(parent, name, is_timed)
    }

    /// Does `change`, which may change who may search the directory `inode`. With `shows` the answer to it says who may;
    /// without, the worst is assumed.
    ///
    /// When this returns, no user who may not search the directory any more gets past it by a name that the kernel keeps,
    /// except to files that a program has open: those names go as soon as the kernel can take the directory's lock. It
    /// holds that lock for `change`, too, so no notification of a name in the directory is processed meanwhile.
    pub(super) async fn changing_rights<T>(
        &self,
        inode: &Inode,
        shows: bool,
        change: impl Future<Output = Result<T, Errno>>,
    ) -> Result<T, Errno> {
        let audience = self.kernel_cache.audience();
        let audience = audience.filter(|_| inode.file_type() == Some(FileType::Directory));
        let Some(audience) = audience else { return change.await };
        let children = inode.state().kept_children();
        let changed = change.await?;
        if !shows || !inode.state().may_search_all(audience) {
            self.kernel_cache.prune(self.inodes.files_of(children)).await;
            let until = inode.state().timed_names_until();
            if let Some(until) = until.filter(|until| *until > self.meta.world.clock.now()) {
                self.meta.world.clock.sleep_until(until).await;
            }
        }
        Ok(changed)
    }

    /// Sends a request to the MDT; if it is refused and the groups in it were chosen by rights that may be
    /// stale, reads the rights and sends it once more. A request has room for one or two of many groups.
    pub(super) async fn retry_with_rights<T, F>(
        &self,
        who: &Credentials,
        inodes: &[&Inode],
        ask: impl Fn() -> F,
    ) -> Result<T, Errno>
    where
        F: Future<Output = Result<T, Errno>>,
    {
        let answer = ask().await;
        if !matches!(answer, Err(Errno::EACCES)) || who.groups.is_empty() {
            return answer;
        }
        let mut learnt = false;
        for inode in inodes {
            if !inode.state().rights_covered() {
                self.fetch_rights(who, inode).await?;
                learnt = true;
            }
        }
        if learnt { ask().await } else { answer }
    }

    /// Returns when mode, owner, group and access control list are known as they are now.
    pub(super) async fn fetch_rights(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        if inode.state().rights_covered() {
            return Ok(());
        }
        self.meta.rights(who, inode).await
    }

    fn judge(&self, who: &Credentials, inode: &Inode, wanted: May) -> Result<(), Errno> {
        match inode.state().permits(&self.judged(who), wanted) {
            Some(true) => Ok(()),
            _ => Err(Errno::EACCES),
        }
    }
}

/// Whether `who` may do what only the owner may.
pub(super) fn owns(uid: u32, who: &Credentials) -> bool {
    who.uid == uid || who.can(Capability::FileOwner)
}
