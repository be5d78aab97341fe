//! The names of extended attributes, and which are whose business.

/// Layout of a file; default layout of a directory.
pub(crate) const LOV: &str = "trusted.lov";
/// All names of an inode.
pub(crate) const LINK: &str = "trusted.link";
/// Size as clients last reported it (lazy size on MDT).
pub(crate) const SOM: &str = "trusted.som";
/// Access control list.
pub(crate) const ACL_ACCESS: &str = "system.posix_acl_access";
/// What new entries of a directory get as theirs.
pub(crate) const ACL_DEFAULT: &str = "system.posix_acl_default";
/// Target of a symbolic link: ours, never shown.
pub(crate) const SYMLINK: &str = "sheen.symlink";
/// As clients call [`LOV`].
pub(crate) const LUSTRE_LOV: &str = "lustre.lov";

/// Attributes that only the server itself sets.
pub(crate) fn is_internal(name: &str) -> bool {
    matches!(name, LINK | SOM | "trusted.lma" | "trusted.hsm" | "trusted.version" | "trusted.fid")
        || name.starts_with("sheen.")
}

/// Attributes that clients see.
pub(crate) fn is_shown(name: &str) -> bool {
    !name.starts_with("sheen.") && name != SOM
}
