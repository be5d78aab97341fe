//! Labels of SELinux, which files have here only on machines where it is on.
//!
//! `ls -l` asks for the label of each file, and leaves a file system alone that answers once that it has none
//! (`EOPNOTSUPP`). As Lustre's client does (LU-549), a mount answers so where SELinux is off: one request of a long listing
//! instead of one for each of its files.

use std::path::Path;

/// The attribute.
pub(crate) const LABEL: &str = "security.selinux";

/// Whether SELinux is on.
pub(crate) fn is_on() -> bool {
    Path::new("/sys/fs/selinux/enforce").exists()
}
