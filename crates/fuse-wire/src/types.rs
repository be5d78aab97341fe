//! Numbers and flags as the kernel and a file system mean them.

use bitflags::bitflags;

/// The number by which the kernel knows an inode (`nodeid`); the root is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct INodeNo(pub u64);

impl INodeNo {
    /// The root directory's.
    pub const ROOT: Self = Self(1);
}

/// What a file system calls an open file (`fh`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileHandle(pub u64);

/// Whom a lock belongs to (`lock_owner`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwner(pub u64);

/// Which of the inodes that had a number one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// The flags of `open(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelFlags(pub u32);

bitflags! {
    /// What kernel and file system agree on when they meet (`FUSE_INIT`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// Reads of one file come at once.
        const ASYNC_READ = 1 << 0;
        /// Locks of `fcntl(2)` come here.
        const POSIX_LOCKS = 1 << 1;
        /// `O_TRUNC` comes with the open.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// `.` and `..` are looked up.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        const BIG_WRITES = 1 << 5;
        /// The file system applies the umask.
        const DONT_MASK = 1 << 6;
        /// Locks of `flock(2)` come here.
        const FLOCK_LOCKS = 1 << 10;
        /// Listings with attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel chooses which listings have attributes.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct IO of one file comes at once.
        const ASYNC_DIO = 1 << 15;
        /// Lookups and listings of one directory come at once.
        const PARALLEL_DIROPS = 1 << 18;
        /// The kernel judges by access control lists.
        const POSIX_ACL = 1 << 20;
        /// Requests of more than 32 pages.
        const MAX_PAGES = 1 << 22;
        /// The kernel keeps the targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// The kernel drops pages only where it is notified.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The file system takes set-id bits off what is written, cut or given away; the kernel remembers which files have
        /// no capability, and asks no more at each write.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// There are more flags than 32.
        const INIT_EXT = 1 << 30;
        /// Names can expire without being dropped.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Files that are open for direct IO can be mapped.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Requests can be sent again.
        const HAS_RESEND = 1 << 39;
        const _ = !0;
    }

    /// What the kernel may do with an open file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FopenFlags: u32 {
        /// Reads and writes bypass the kernel's pages.
        const DIRECT_IO = 1 << 0;
        /// The pages that are there stay.
        const KEEP_CACHE = 1 << 1;
        /// `close(2)` sends no `FUSE_FLUSH`, unless pages are dirty.
        const NOFLUSH = 1 << 5;
        /// Direct writes come at once.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    /// How a write came about.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct WriteFlags: u32 {
        /// From the kernel's pages: what a mapping has stored.
        const CACHE = 1 << 0;
        /// By a caller whose write takes set-id bits.
        const KILL_SUIDGID = 1 << 2;
        const _ = !0;
    }

    /// The flags of `renameat2(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct RenameFlags: u32 {
        /// Nothing is replaced.
        const NOREPLACE = 1 << 0;
        /// The two names are exchanged.
        const EXCHANGE = 1 << 1;
        /// A whiteout stays behind.
        const WHITEOUT = 1 << 2;
        const _ = !0;
    }
}
