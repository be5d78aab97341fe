//! What one client may make the lock manager look at, and one user of a client may have of it, with reasons.

/// Flocks on one resource that one client waits for; then `ENOLCK`, as POSIX has it. A release looks again at
/// those that wait for its owner: so many take a millisecond. Programs wait with a thread each.
pub(crate) const FLOCKS_WAITING_PER_CLIENT: usize = 4096;

/// Other locks on one resource that one client waits for; then `EAGAIN`.
pub(crate) const LOCKS_WAITING_PER_CLIENT: usize = 4096;

/// Flocks on one resource that one owner (a process, or an open file) waits for: its threads. Each is looked at
/// among all locks that the owner has itself.
pub(crate) const FLOCKS_WAITING_PER_OWNER: usize = 32;

/// Owners whose blockers are followed before a circle is given up: a circle of more is not found. Linux
/// gives up after 10.
pub(crate) const CIRCLE_OWNERS_MAX: usize = 1024;

/// The part of the flocks which a target grants a client that one user other than root may hold and wait for, and of those
/// that it lets a client wait for on one resource: programs hold them as long as they like, and those of other users on
/// that node go on.
pub(crate) const FLOCKS_OF_USER: usize = 2;

/// The part that all of them together leave to root.
pub(crate) const FLOCKS_OF_ROOT: usize = 8;
