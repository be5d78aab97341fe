//! The nouns of this crate that more than one module uses: inodes, credentials, attributes, what a call asks for.
//!
//! Plain values without a lock or a request. [`crate::posix`] publishes those that its callers need.

use std::sync::Arc;
use std::time::Duration;

use sheen_io::BoxFuture;
use sheen_types::{Extent, Fid, Name, Timestamp};
use sheen_wire::ost::LuLadvise;

pub use sheen_types::{Fallocate, Seek};

/// An inode as long as the kernel has looked it up and not forgotten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The mounted directory; known without a lookup and never forgotten.
    pub const ROOT: NodeId = NodeId(1);
    /// No node's number has all of these bits: callers may use them as marks.
    pub const UNUSED_BITS: u64 = 3 << 62;
}

/// Who holds a file lock: the kernel's cookie for a process's or open file's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner(pub u64);

/// On whose behalf a call is made. The server checks permissions with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// File system user.
    pub uid: u32,
    /// File system group.
    pub gid: u32,
    /// Supplementary groups, in no order.
    pub groups: Arc<[u32]>,
    /// Process, for file locks and job statistics.
    pub pid: u32,
    /// What the process masks from the modes of what it creates. 0 if the kernel has applied it.
    pub umask: u32,
}

impl Credentials {
    /// The superuser without supplementary groups.
    #[must_use]
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Arc::from([]), pid: 0, umask: 0 }
    }

    /// Whether the process is in `group`.
    #[must_use]
    pub(crate) fn is_in_group(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    /// Whether this user's change of a file, of this mode and group, leaves it the set-group-id bit, if it has that. As
    /// Linux has it: one that its group may not execute keeps it if a member of the group changes it.
    pub(crate) fn keeps_group_id(&self, mode: u32, group: u32) -> bool {
        const SET_GID: u32 = 0o2000;
        const GROUP_EXEC: u32 = 0o010;
        let is_member = self.uid == 0 || self.is_in_group(group);
        mode & SET_GID == 0 || mode & GROUP_EXEC == 0 && is_member
    }
}

/// What kind of inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

/// `S_IFMT`.
pub const TYPE_MASK: u32 = 0o170_000;

impl FileType {
    /// From a mode's type bits; `None` for bits that name no type.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & TYPE_MASK {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            _ => return None,
        })
    }

    /// The type bits of a mode.
    #[must_use]
    pub fn mode_bits(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
        }
    }
}

/// What `stat` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Which object.
    pub fid: Fid,
    /// Inode number: the FID flattened as Lustre does.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device inode, as Linux encodes it in 32 bits.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Preferred IO size in bytes.
    pub block_size: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of data.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Creation; seconds 0 if unknown.
    pub btime: Timestamp,
    /// `lsattr` flags.
    pub flags: u32,
    /// Project.
    pub projid: u32,
}

impl Attributes {
    /// The type, regular if the server sent bits that name none.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or(FileType::Regular)
    }
}

/// A new value of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call; any writer of the file may ask for it.
    Now,
    /// This time; only the owner may.
    To(Timestamp),
}

/// What a setattr changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Truncate or extend.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of data.
    pub mtime: Option<SetTime>,
    /// Last change of anything; only with the kernel's write-back cache.
    pub ctime: Option<Timestamp>,
    /// Take the set-id bits off, as a write does: that needs no right.
    pub kill_set_id: bool,
    /// The flags of `chattr(1)`, all of them.
    pub flags: Option<u32>,
}

/// How a file is opened: the flags of `open(2)`, in Linux's numbers on x86-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    const ACCESS: u32 = 0o3;
    /// `O_CREAT`.
    pub const CREATE: u32 = 0o100;
    /// `O_EXCL`.
    pub const EXCLUSIVE: u32 = 0o200;
    /// `O_TRUNC`.
    pub const TRUNCATE: u32 = 0o1000;
    /// `O_APPEND`.
    pub const APPEND: u32 = 0o2000;
    /// `O_DSYNC`.
    pub const DSYNC: u32 = 0o1_0000;
    /// `O_DIRECT`.
    pub const DIRECT: u32 = 0o4_0000;
    /// `O_NONBLOCK`.
    pub const NONBLOCK: u32 = 0o4000;
    /// `O_DIRECTORY`.
    pub const DIRECTORY: u32 = 0o20_0000;
    /// `O_SYNC` without `O_DSYNC`.
    pub const SYNC: u32 = 0o400_0000;
    /// `O_NOATIME`.
    pub const NOATIME: u32 = 0o100_0000;
    /// `__FMODE_EXEC`, which the kernel sets when it opens a file to execute it.
    pub const EXEC: u32 = 0x20;

    /// The flags of an open of what is there already.
    #[must_use]
    pub(crate) fn without_creation(self) -> Self {
        Self(self.0 & !(Self::CREATE | Self::EXCLUSIVE | Self::TRUNCATE))
    }

    /// Whether all bits of `bits` are set.
    #[must_use]
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// Whether the file may be read.
    #[must_use]
    pub fn reads(self) -> bool {
        self.0 & Self::ACCESS != 1
    }

    /// Whether reading changes the time of last access, where the mount has it so.
    #[must_use]
    pub fn notes_access(self) -> bool {
        self.reads() && !self.has(Self::NOATIME)
    }

    /// Whether reads and writes bypass the kernel's pages. The kernel puts what is appended into its pages
    /// where it believes the end to be; only the locks taken for the write itself say where that is.
    #[must_use]
    pub fn bypasses_page_cache(self) -> bool {
        self.has(Self::DIRECT) || self.has(Self::APPEND)
    }

    /// Whether the file may be written.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self.0 & Self::ACCESS, 1 | 2)
    }
}

/// How a setxattr treats a value that is there or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Sets it either way.
    #[default]
    Any,
    /// `XATTR_CREATE`: fails with `EEXIST`.
    Create,
    /// `XATTR_REPLACE`: fails with `ENODATA`.
    Replace,
}

/// What kind of lock on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLockMode {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None: releases.
    Unlock,
}

/// A `flock(2)` or `fcntl(2)` lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// First byte.
    pub start: u64,
    /// Last byte; [`sheen_types::Extent::EOF`] for "to the end". A `flock` covers everything.
    pub end: u64,
    /// Shared, exclusive, none.
    pub mode: FileLockMode,
    /// The process that asked.
    pub pid: u32,
    /// Its user, among whose flocks it counts.
    pub uid: u32,
    /// Whether it is a `flock(2)` lock rather than a `fcntl(2)` one.
    pub is_flock: bool,
}

impl FileLock {
    /// The last byte that one can cover: the largest file offset.
    pub const END_MAX: u64 = i64::MAX as u64;
}

/// What clients do before a version of a file's data is taken (`LL_DV_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionFlush {
    /// Nothing: what they have in their caches does not count.
    None,
    /// They flush what is dirty.
    Dirty,
    /// They flush, and drop what is cached.
    All,
}

/// What an OST is advised about bytes (`LU_LADVISE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdviceKind {
    /// They will be read.
    WillRead = LuLadvise::WILLREAD as isize,
    /// They will not be needed.
    DontNeed = LuLadvise::DONTNEED as isize,
}

impl AdviceKind {
    /// As the wire has it.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// From the wire's number.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        [Self::WillRead, Self::DontNeed].into_iter().find(|kind| kind.number() == number)
    }
}

/// Advice, and how it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What.
    pub kind: AdviceKind,
    /// The servers' answers are not waited for.
    pub in_background: bool,
}

/// What has become of locks that were asked for ahead (`LLA_RESULT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockedAhead {
    /// They are there, or have been asked for.
    Sent = 0,
    /// A lock that covers more was there.
    Different = 1,
    /// The very same lock was there.
    Same = 2,
}

/// How an inode was opened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenCounts {
    /// Opens, this one included, since it was last unused for so long.
    pub count: u32,
    /// How long it was closed before, if it ever was.
    pub closed_for: Option<Duration>,
}

/// What of an inode is no longer covered by a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Attributes (and symbolic link target, ACL).
    Attributes,
    /// Attributes and the pages of these bytes; pages that the kernel has changed itself and not
    /// written yet come to `write` first.
    Pages(Extent),
}

/// A name in a directory, as the kernel's dentry of it has both: of what is kept and looked up by. A call has the two as one
/// argument, `(parent, name)`, which takes them apart where it begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dentry {
    /// The directory's node.
    pub(crate) parent: NodeId,
    /// The name.
    pub(crate) name: Name,
}

impl Dentry {
    /// Of `name` in `parent`.
    pub(crate) fn new(parent: NodeId, name: &Name) -> Self {
        Self { parent, name: name.clone() }
    }

    /// Whether it is that of `name` in `parent`.
    pub(crate) fn is(&self, parent: NodeId, name: &Name) -> bool {
        self.parent == parent && self.name == *name
    }
}

/// A name that the kernel must not go on using: it may now name something else, or nothing, or something instead of
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleName {
    /// The directory that has it.
    pub parent: NodeId,
    /// The name.
    pub name: Name,
    /// How the kernel is to invalidate it.
    pub by: NameInvalidation,
}

/// How the kernel invalidates a name. The larger one is enough for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameInvalidation {
    /// It drops the name, and an inode that no other name has.
    #[default]
    Drop,
    /// It looks the name up again at its next use and keeps it until then: what it named is in use, a directory or an
    /// open file, of which the kernel must still be able to say the path.
    Expire,
}

/// How far the kernel has processed a notification about an inode.
pub enum Invalidated {
    /// It has dropped all of it.
    Done,
    /// It has the notice, and has not come further than a page that a call holds. It has dropped
    /// attributes, and the pages before that one. Ends when it has dropped the rest, or is blocked there for two
    /// seconds; whether it has dropped it.
    Blocked(BoxFuture<'static, bool>),
}

impl Invalidated {
    /// Returns when all is dropped, or not for two seconds; whether it is dropped.
    pub async fn done(self) -> bool {
        match self {
            Self::Done => true,
            Self::Blocked(rest) => rest.await,
        }
    }
}
