//! Pipes, sockets and devices: the kernel opens them by itself without a request, because it does not check
//! modes on this mount.
//!
//! So a user who may not use one finds another inode under its name, the stranger's: its attributes are the
//! same, but no pipe, socket or device is behind it. Its other end is never open. Who may is decided by the
//! caller of each lookup: such a name is never kept by the kernel, and one that was found by another caller
//! is looked up again. The two inodes have two numbers towards the kernel and are one to us.
//!
//! Cost: nothing for other files; a lookup at each use of the name of a special file, and no RPC while a lock
//! covers its rights.

use rustix::mount::MountFlags;
use sheen_client::posix::{
    Credentials, Entry, FileSystem, FileType, Lookup, May, MayCache, NodeId,
};
use sheen_fuse_wire::INodeNo;
use sheen_types::Errno;

use crate::mount_options::FuseMountOptions;

/// What a stranger's number has more than the file's own, which never has all of it.
const STRANGERS: u64 = NodeId::UNUSED_BITS;

/// Whether this mount checks special files itself.
#[derive(Clone, Copy)]
pub(crate) struct Special {
    /// The kernel checks modes itself.
    judged: bool,
    /// It opens devices.
    devices: bool,
}

impl Special {
    pub(crate) fn new(options: &FuseMountOptions) -> Self {
        Self { judged: options.judge, devices: !options.flags.contains(MountFlags::NODEV) }
    }

    /// Whether the kernel checks modes and access lists itself.
    pub(crate) fn is_judged(self) -> bool {
        self.judged
    }

    /// What a caller must be allowed to use a file of this type; `None` if the kernel asks us, or every user
    /// that the kernel admits may.
    fn wanted(self, kind: FileType) -> Option<May> {
        match kind {
            _ if self.judged => None,
            FileType::Regular | FileType::Directory | FileType::Symlink => None,
            FileType::CharDevice | FileType::BlockDevice if !self.devices => None,
            FileType::Socket => Some(May::WRITE),
            FileType::Fifo | FileType::CharDevice | FileType::BlockDevice => {
                Some(May::READ.and(May::WRITE))
            }
        }
    }

    /// What the caller finds. The lookup is counted for the file.
    pub(crate) async fn entry(self, files: &FileSystem, who: &Credentials, entry: Entry) -> Entry {
        let Some(wanted) = self.wanted(entry.attributes.file_type()) else { return entry };
        match files.access(who, entry.node, wanted).await {
            Ok(()) => self.made(entry),
            Err(errno) => {
                if errno != Errno::EACCES {
                    tracing::debug!(node = entry.node.0, %errno, "whether a special file may be used is unknown");
                }
                self.stranger(entry)
            }
        }
    }

    /// As [`Special::entry`], of what a lookup has found.
    pub(crate) async fn found(
        self,
        files: &FileSystem,
        who: &Credentials,
        found: Lookup,
    ) -> Lookup {
        match found {
            Lookup::Found(entry) => Lookup::Found(self.entry(files, who, entry).await),
            absent @ Lookup::Absent { .. } => absent,
        }
    }

    /// What the maker of a file finds: a socket that is bound is bound to this very inode.
    pub(crate) fn made(self, mut entry: Entry) -> Entry {
        if self.wanted(entry.attributes.file_type()).is_some() {
            entry.keep = MayCache { entry: false, attributes: false };
        }
        entry
    }

    /// What every user may find: those who may use it look it up again before they do.
    pub(crate) fn stranger(self, entry: Entry) -> Entry {
        let mut entry = self.made(entry);
        if self.wanted(entry.attributes.file_type()).is_some() {
            entry.node = NodeId(entry.node.0 | STRANGERS);
            entry.attributes.rdev = 0;
        }
        entry
    }
}

/// The node that the kernel means.
pub(crate) fn node(number: INodeNo) -> NodeId {
    own(NodeId(number.0))
}

/// The file's own node.
pub(crate) fn own(node: NodeId) -> NodeId {
    if is_strangers(node) { NodeId(node.0 & !STRANGERS) } else { node }
}

/// Whether the kernel knows the node so for those who may not use it. It is not notified of it when locks are
/// revoked.
pub(crate) fn is_strangers(node: NodeId) -> bool {
    node.0 & STRANGERS == STRANGERS
}
