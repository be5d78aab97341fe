//! Every limit of the inode cache, with its reason.

/// Names known to be absent that a directory keeps at most: each costs one notification when the directory's
/// lock is revoked.
pub(super) const ABSENT_NAMES_MAX: usize = 1024;

/// Names of one inode that the kernel may keep: each costs one notification when the inode's lock is revoked,
/// and the removal of any of its names revokes it. A file with more hard links is looked up here at each use
/// by those names; that is no RPC as long as the lock is held.
pub(super) const KEPT_NAMES_MAX: usize = 8;

/// Names that a mount knows by their hashes at most, of all directories whose names it knows
/// completely: some 30 MiB. Further directories are asked for each name.
pub(super) const NAMES_KNOWN_MAX: usize = 2 << 20;

/// How often the price of reading a directory doubles at most where that did not pay: then it is tried once
/// in some 2,000 lookups, a cost that cannot be measured.
pub(super) const PATIENCE_MAX: u32 = 10;

/// Directories at most that the kernel knows by a number which is not that of their FID, since they have moved: 56 bytes each.
/// One that it has forgotten is found by a file handle of before as long as it is among them.
pub(super) const MOVED_NUMBERS_MAX: usize = 1 << 16;

/// Directories at most whose last name leads elsewhere, and of which it is not known whether they have moved. Beyond, they
/// are looked for when they are used.
pub(super) const UNNAMED_MAX: usize = 1 << 14;
