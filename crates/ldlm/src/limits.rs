//! What one client may make the lock manager look at, with reasons.

/// Flocks on one resource that one client waits for; then `ENOLCK`, as POSIX has it. A release looks again at
/// those that wait for its owner: so many take a millisecond. Programs wait with a thread each.
pub(crate) const FLOCKS_WAITING_PER_CLIENT: usize = 4096;

/// Flocks on one resource that one owner (a process, or an open file) waits for: its threads. Each is looked at
/// among all locks that the owner has itself.
pub(crate) const FLOCKS_WAITING_PER_OWNER: usize = 32;

/// Owners whose blockers are followed before a circle is given up: a circle of more is not found. Linux
/// gives up after 10.
pub(crate) const CIRCLE_OWNERS_MAX: usize = 1024;
