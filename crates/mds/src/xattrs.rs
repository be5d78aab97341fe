//! The names of extended attributes, and which are whose business.

use bytes::Bytes;
pub(crate) use sheen_layout::directory::FORMER;
use sheen_store::Store;
use sheen_target::store_errno;
use sheen_types::{Errno, Fid};

/// Layout of a file; default layout of a directory.
pub(crate) const LOV: &str = "trusted.lov";
/// All names of an inode.
pub(crate) const LINK: &str = "trusted.link";
/// Size as clients last reported it (lazy size on MDT).
pub(crate) const SOM: &str = "trusted.som";
/// Stripes of a directory.
pub(crate) const LMV: &str = "trusted.lmv";
/// What new directories in a directory get as their stripes.
pub(crate) const DEFAULT_LMV: &str = "trusted.dmv";
/// Access control list.
pub(crate) const ACL_ACCESS: &str = "system.posix_acl_access";
/// What new entries of a directory get as theirs.
pub(crate) const ACL_DEFAULT: &str = "system.posix_acl_default";
/// What a program may that is run from the file (Linux: file capabilities).
pub(crate) const CAPABILITY: &str = "security.capability";
/// Target of a symbolic link: ours, never shown.
pub(crate) const SYMLINK: &str = "sheen.symlink";
/// As clients call [`LOV`].
pub(crate) const LUSTRE_LOV: &str = "lustre.lov";

/// Where extended attributes are read: in the store, or in what another MDT has answered.
pub(crate) trait XattrsOf {
    /// The value of one of an inode's, if it has it.
    ///
    /// # Errors
    /// Those of the store.
    fn xattr_of(&self, inode: Fid, name: &str) -> Result<Option<Bytes>, Errno>;
}

impl XattrsOf for dyn Store + '_ {
    fn xattr_of(&self, inode: Fid, name: &str) -> Result<Option<Bytes>, Errno> {
        self.xattr(inode, name).map_err(store_errno)
    }
}

impl XattrsOf for sheen_store::Xattrs {
    fn xattr_of(&self, _: Fid, name: &str) -> Result<Option<Bytes>, Errno> {
        Ok(self.get(name))
    }
}

/// Attributes of ours that no client sets.
pub(crate) fn is_internal(name: &str) -> bool {
    name.starts_with("sheen.") || name.starts_with("trusted.sheen.")
}

/// Attributes that only the server itself sets. That a client sets one changes nothing and is no error: `cp -a`
/// copies all that it finds listed.
pub(crate) fn is_reserved(name: &str) -> bool {
    let lustre = ["lma", "lmv", "link", "fid", "version", "som", "hsm", "lfsck_ns", "dmv"];
    name.strip_prefix("trusted.").is_some_and(|name| lustre.contains(&name))
}

/// Attributes that clients see.
pub(crate) fn is_shown(name: &str) -> bool {
    !is_internal(name) && name != SOM
}

/// Attributes that are in no list, and are answered to clients that ask for them by name.
pub(crate) fn is_hidden(name: &str) -> bool {
    name == SOM || name == FORMER
}
