//! How the client has the kernel drop what a revoked lock covered.

use std::time::Duration;

use sheen_io::BoxFuture;
use sheen_types::Name;

use super::SizeRaise;
use crate::types::{Invalidated, NodeId, Stale, StaleName};

/// How long the kernel may keep names of directories, and absent ones, until it asks for them again. To have it drop
/// one takes the lock of the directory that has the name, which calls of any user may hold without pause: after this
/// time none is used in spite of that.
pub const NAME_TIMEOUT: Duration = Duration::from_millis(100);

/// How long an answer may be on its way to the kernel, which counts [`NAME_TIMEOUT`] from its arrival on and in units of
/// its own.
pub(crate) const NAME_TIMEOUT_SLACK: Duration = Duration::from_millis(50);

/// Notifies the kernel, which keeps what the facade answered with `posix::MayCache`: FUSE does (`fuse::kernel`).
///
/// The client calls this before it cancels a lock, and cancels it when the future is done. A future must not
/// wait for anything that itself waits for a call of this file system to end: the server may be holding that
/// call until the lock is cancelled. (The kernel's `FUSE_NOTIFY_INVAL_ENTRY` takes the directory's own lock,
/// which it also holds during create, unlink, rename and lookup in that directory. Send it off, do not wait
/// for it while such a call is in flight.)
pub trait KernelNotifier: Send + Sync {
    /// Has the kernel drop a name, or ask for it again, as that says.
    fn invalidate_name(&self, stale: &StaleName) -> BoxFuture<'static, ()>;

    /// Who may search the directory `node` is not known any more, or whether names are absent: these of its names, present and
    /// absent ones, must be looked up again at their next use. What they name has not changed: `files` and directories.
    /// Returns whether the kernel has processed all. Otherwise it has called [`KernelNotifier::prune`] for `files`; names of
    /// directories and absent names may be used until their [`NAME_TIMEOUT`] is over.
    fn expire_names(
        &self,
        node: NodeId,
        names: Vec<Name>,
        files: Vec<NodeId>,
    ) -> BoxFuture<'static, bool>;

    /// All names of these files that no program has open must be looked up again at their next use, whatever calls are
    /// under way in their directories: as far as the kernel can do that.
    fn prune(&self, files: Vec<NodeId>) -> BoxFuture<'static, ()>;

    /// The file has no less than these bytes: whatever the kernel does with replies, it uses no smaller size
    /// from now on.
    fn raise_size(&self, raise: SizeRaise) -> BoxFuture<'static, ()>;

    /// Part of what is known about `node` may have changed. However late the kernel processes the notice,
    /// this does not end before it has: only a caller that knows that the page on which it is blocked is held
    /// by a waiting call may go on without it.
    fn invalidate_inode(&self, node: NodeId, stale: Stale) -> BoxFuture<'static, Invalidated>;
}
