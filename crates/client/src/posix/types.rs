//! The types that only the facade uses: what its calls answer.

use sheen_layout::directory::DirectoryWish;
use sheen_types::{Fid, MdtIndex};

use crate::types::{Attributes, FileType, NodeId, OpenCounts};

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHandle(pub u64);

/// Where a directory stream stands. 0 is its beginning; all further ones come from [`DirEntry::next`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirCookie(pub u64);

/// What the kernel may keep until [`KernelNotifier`](super::KernelNotifier) says otherwise. What is false
/// must be asked for again at the next use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MayCache {
    /// The name: a lock covers it (or its absence).
    pub entry: bool,
    /// The attributes, size included: locks cover them.
    pub attributes: bool,
}

/// A name that is there. Counts as one lookup of `node`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode.
    pub node: NodeId,
    /// Distinguishes inodes that had the same [`NodeId`] one after the other.
    pub generation: u64,
    /// Its attributes.
    pub attributes: Attributes,
    /// What may be kept.
    pub keep: MayCache,
}

/// What a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The name is there.
    Found(Entry),
    /// The name is not there (`ENOENT`).
    Absent {
        /// Whether its absence may be kept.
        keep: bool,
    },
}

/// Attributes and whether they may be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The attributes.
    pub attributes: Attributes,
    /// Whether locks cover them.
    pub keep: bool,
}

/// How reading changes the time of last access: as mount(8)'s options of these names say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// `noatime`.
    Never,
    /// `relatime`: if the file has changed since it was last read, or a day has passed.
    #[default]
    Relative,
    /// `strictatime`.
    Always,
}

/// An opened file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The handle.
    pub handle: FileHandle,
    /// Whether the kernel may keep pages it has of this file: [`super::KernelNotifier`] is notified when they go
    /// stale, so this is true whenever there is an observer.
    pub keep_pages: bool,
    /// Whether reads and writes bypass the kernel's page cache: they come here one by one (`O_DIRECT`, hybrid IO).
    pub bypasses_page_cache: bool,
    /// Whether [`super::FileSystem::flush`] need not be called when a descriptor is closed: it could
    /// only read, and has no file locks.
    pub sends_no_flush: bool,
    /// How the inode was opened so far.
    pub tally: OpenCounts,
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: 1 to 255 bytes; `.` and `..` are among them.
    pub name: Box<[u8]>,
    /// The inode number.
    pub ino: u64,
    /// The object.
    pub fid: Fid,
    /// Its type, if the server said.
    pub file_type: Option<FileType>,
    /// Where to go on behind this name.
    pub next: DirCookie,
}

/// One name with what a lookup of it would have answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntryPlus {
    /// The name.
    pub entry: DirEntry,
    /// Counts as a lookup. `None` for `.` and `..`, and for names whose inode could not be got.
    pub found: Option<Entry>,
}

/// How much of a listing its caller has room for.
#[derive(Clone, Copy, Debug)]
pub struct ListingRoom {
    /// Bytes in all.
    pub bytes: usize,
    /// What a name takes of them, with what comes along.
    pub entry_bytes: fn(&[u8]) -> usize,
}

impl ListingRoom {
    /// Room for so many names, however long.
    #[must_use]
    pub fn for_names(count: usize) -> Self {
        Self { bytes: count, entry_bytes: |_| 1 }
    }

    /// How many names there is room for at most.
    pub(super) fn names_max(self) -> usize {
        (self.bytes / (self.entry_bytes)(b"a").max(1)).max(1)
    }

    /// Removes the names that there is no room for. One stays in any case: none would mean the end.
    pub(super) fn cut(self, names: &mut Vec<DirEntry>) {
        let mut used = 0;
        let fits = |entry: &&DirEntry| {
            used += (self.entry_bytes)(&entry.name);
            used <= self.bytes
        };
        let fitting = names.iter().take_while(fits).count();
        names.truncate(fitting.max(1));
    }
}

/// How a rename treats a name that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    #[default]
    Replace,
    /// `RENAME_NOREPLACE`: refuses with `EEXIST`.
    NoReplace,
    /// `RENAME_EXCHANGE`: refused with `EINVAL`, as Lustre does.
    Exchange,
}

/// What kind of object to make at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewNode {
    /// A directory, on the MDT of its name.
    Directory,
    /// A directory on this MDT (`lfs mkdir -i`), for which the caller must be privileged.
    DirectoryOn(MdtIndex),
    /// A directory on these MDTs (`lfs mkdir -c`).
    WishedDirectory(DirectoryWish),
    /// A directory on these MDTs; one of that name that is there is split or merged (`lfs setdirstripe -c`).
    RestripedDirectory(DirectoryWish),
    /// A symbolic link with this target.
    Symlink(Box<[u8]>),
    /// Anything else but an open file; `rdev` counts for devices.
    Node {
        /// The type.
        file_type: FileType,
        /// Device number, 32 bits as Linux encodes it.
        rdev: u32,
    },
}

/// What `statfs` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStat {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that any user may have.
    pub blocks_available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Bytes of the longest name.
    pub name_bytes_max: u32,
    /// Identifies the file system.
    pub fsid: u64,
}
