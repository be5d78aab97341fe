//! Every limit of the inode cache, with its reason.

/// Names known to be absent that a directory keeps at most: each costs one notification when the
/// directory's lock goes.
pub(super) const ABSENT_NAMES_MAX: usize = 1024;

/// Names that a mount knows by their hashes at most, of all directories whose names it knows
/// completely: some 30 MiB. Further directories are asked for each name.
pub(super) const NAMES_KNOWN_MAX: usize = 2 << 20;

/// How often the price of reading a directory doubles at most where that did not pay: then it is
/// tried once in some 2,000 lookups, which nobody notices.
pub(super) const PATIENCE_MAX: u32 = 10;
