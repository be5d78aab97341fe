//! What an inode says of itself.

use sheen_types::Timestamp;

/// The kind of an object; the numbers are those of `st_mode >> 12`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    CharDevice = 2,
    /// Directory: an index.
    Directory = 4,
    /// Block device.
    BlockDevice = 6,
    /// Regular file: data.
    #[default]
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileKind {
    /// From the type bits of a mode (`S_IFMT`); `None` if they name no type.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match (mode >> 12) & 0xf {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::Regular,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => return None,
        })
    }

    /// The type bits of a mode.
    #[must_use]
    pub fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// The attributes of an object (`struct lu_attr`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// What it is. Directories and other indexes are [`FileKind::Directory`].
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: `mode & 0o7777`.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project (quota) number.
    pub project: u32,
    /// Hard links.
    pub links: u32,
    /// Bytes; stored for what has no data of its own, taken from the data otherwise.
    pub size: u64,
    /// 512-byte blocks in use; as `size`.
    pub blocks: u64,
    /// Device number of device nodes (Linux's encoding).
    pub device: u64,
    /// Inode flags: immutable, append-only ... (`LUSTRE_*_FL`).
    pub flags: u32,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the data.
    pub modified: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// Creation.
    pub born: Timestamp,
    /// Version for version-based recovery: the transaction that changed it last.
    pub version: u64,
}

/// Changes to some attributes, applied where the object lies; counts are added, so that two
/// patches to one directory need no order between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributePatch {
    /// New permission bits.
    pub permissions: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New project.
    pub project: Option<u32>,
    /// Added to the link count, which stays at 0 or above.
    pub links_added: i32,
    /// New size, for what has no data of its own.
    pub size: Option<u64>,
    /// New block count, for what has no data of its own.
    pub blocks: Option<u64>,
    /// New inode flags.
    pub flags: Option<u32>,
    /// New access time.
    pub accessed: Option<Timestamp>,
    /// New data change time.
    pub modified: Option<Timestamp>,
    /// New inode change time.
    pub changed: Option<Timestamp>,
    /// New version.
    pub version: Option<u64>,
}

impl AttributePatch {
    /// Applies the patch to `attributes`.
    pub fn apply(&self, attributes: &mut Attributes) {
        fn set<T: Copy>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        set(&mut attributes.permissions, self.permissions);
        set(&mut attributes.uid, self.uid);
        set(&mut attributes.gid, self.gid);
        set(&mut attributes.project, self.project);
        attributes.links = attributes.links.saturating_add_signed(self.links_added);
        set(&mut attributes.size, self.size);
        set(&mut attributes.blocks, self.blocks);
        set(&mut attributes.flags, self.flags);
        set(&mut attributes.accessed, self.accessed);
        set(&mut attributes.modified, self.modified);
        set(&mut attributes.changed, self.changed);
        set(&mut attributes.version, self.version);
    }
}
