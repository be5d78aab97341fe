//! Inodes as the store has them.

use sheen_store::{AttributePatch, Attributes, FileKind, StoreError};
use sheen_target::store_errno;
use sheen_types::{Errno, Fid, Timestamp};

use crate::Mdt;

/// Bytes that a directory says it has, as ldiskfs's smallest has.
pub(crate) const DIRECTORY_BYTES: u64 = 4096;

/// An inode, read at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) fid: Fid,
    pub(crate) attributes: Attributes,
    /// Its data is lost, cut or grown: size and blocks mean nothing.
    pub(crate) is_damaged: bool,
}

impl Inode {
    pub(crate) fn is_directory(&self) -> bool {
        self.attributes.kind == FileKind::Directory
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.attributes.kind == FileKind::Regular
    }

    /// With the next name that it loses it is gone, or kept by who has it open alone.
    pub(crate) fn has_one_name(&self) -> bool {
        self.is_directory() || self.attributes.links <= 1
    }

    /// The mode with its type bits.
    pub(crate) fn mode(&self) -> u32 {
        self.attributes.kind.mode_bits() | self.attributes.permissions
    }
}

impl Mdt {
    /// Reads an inode. One whose data on this MDT is damaged has its names and attributes still: it can be
    /// looked up and removed, and only requests for its data or size fail.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] if there is none, [`Errno::EINVAL`] for a FID that names no inode, or
    /// those of the store.
    pub(crate) fn inode(&self, fid: Fid) -> Result<Inode, Errno> {
        if !fid.is_namespace() {
            return Err(Errno::EINVAL);
        }
        let (attributes, is_damaged) = match self.store.attributes(fid) {
            Err(StoreError::Damaged(_)) => (self.store.recorded_attributes(fid), true),
            attributes => (attributes, false),
        };
        let attributes = attributes.map_err(store_errno)?;
        Ok(Inode { fid, attributes, is_damaged })
    }

    /// Reads a directory.
    ///
    /// # Errors
    /// [`Errno::ENOTDIR`], or those of [`Mdt::inode`].
    pub(crate) fn directory(&self, fid: Fid) -> Result<Inode, Errno> {
        let inode = self.inode(fid)?;
        match inode.is_directory() {
            true => Ok(inode),
            false => Err(Errno::ENOTDIR),
        }
    }
}

/// A directory in which a name changed, and how many subdirectories it gained or lost.
pub(crate) fn touched(now: Timestamp, links_added: i32) -> AttributePatch {
    AttributePatch {
        modified: Some(now),
        changed: Some(now),
        links_added,
        ..AttributePatch::default()
    }
}

/// An inode whose links changed.
pub(crate) fn relinked(now: Timestamp, links_added: i32) -> AttributePatch {
    AttributePatch { changed: Some(now), links_added, ..AttributePatch::default() }
}
