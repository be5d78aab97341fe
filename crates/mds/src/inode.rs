//! Inodes as the store has them.

use bytes::Bytes;
use sheen_store::{AttributePatch, Attributes, FileKind, StoreError, WholeObject, Xattrs};
use sheen_types::{Errno, Fid, Timestamp};

use crate::{Mdt, dom_layout, xattrs};

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

/// An inode with its extended attributes, read at one moment.
#[derive(Clone, Debug)]
pub(crate) struct WholeInode {
    pub(crate) inode: Inode,
    pub(crate) xattrs: Xattrs,
}

impl WholeInode {
    /// A file's layout.
    pub(crate) fn layout(&self) -> Option<Bytes> {
        self.xattrs.get(xattrs::LOV).filter(|_| self.inode.is_regular())
    }

    /// Whether it has no extended attributes but those that this server sets for each inode of its type.
    pub(crate) fn has_no_xattrs(&self) -> bool {
        let is_own = |name: &str| match name {
            xattrs::LINK => false,
            xattrs::LOV => !self.inode.is_regular(),
            name => xattrs::is_shown(name),
        };
        // The client names the link attribute by itself.
        self.xattrs.get(xattrs::LINK).is_some() && !self.xattrs.names().any(is_own)
    }
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
    /// [`Errno::ENOENT`] if there is none, [`Errno::EREMOTE`] if it is another MDT's, [`Errno::EINVAL`] for a FID that
    /// names no inode, or those of the store.
    pub(crate) fn inode(&self, fid: Fid) -> Result<Inode, Errno> {
        if !fid.is_of_mdt() {
            return Err(Errno::EINVAL);
        }
        let (attributes, is_damaged) = match self.store.attributes(fid) {
            Err(StoreError::Damaged(_)) => (self.store.recorded_attributes(fid), true),
            attributes => (attributes, false),
        };
        let attributes = attributes.map_err(|error| self.inode_errno(fid, error))?;
        Ok(Inode { fid, attributes, is_damaged })
    }

    /// As [`Mdt::inode`], with all that a getattr says of it: one look into the store. Only of a file that may have bytes
    /// here are size and blocks looked up; of other ones they are 0.
    ///
    /// # Errors
    /// As [`Mdt::inode`].
    pub(crate) fn whole_inode(&self, fid: Fid) -> Result<WholeInode, Errno> {
        if !fid.is_of_mdt() {
            return Err(Errno::EINVAL);
        }
        let whole = self.store.whole(fid).map_err(|error| self.inode_errno(fid, error))?;
        let WholeObject { mut attributes, xattrs } = whole;
        let is_regular = attributes.kind == FileKind::Regular;
        if is_regular && xattrs.get(xattrs::LOV).is_none_or(|layout| dom_layout::names_mdt(&layout))
        {
            return Ok(WholeInode { inode: self.inode(fid)?, xattrs });
        }
        if is_regular {
            (attributes.size, attributes.blocks) = (0, 0);
        }
        Ok(WholeInode { inode: Inode { fid, attributes, is_damaged: false }, xattrs })
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
