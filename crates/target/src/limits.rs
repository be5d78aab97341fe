//! What one client may use up of a target, with reasons.

use std::time::Duration;

/// Exports at one NID. Each mount of a node has one here, and so have the services of a server; a machine
/// that mounts one file system a thousand times is the most that containers make of it.
pub(crate) const EXPORTS_PER_NID: usize = 1024;

/// Locks of one client, of all its exports, granted and waiting: some 190 MiB at 753 bytes each with their
/// resources. Lustre has no limit for a client, one of 30 % of the memory for all (`lock_limit_mb`). Before a
/// client meets this one, those of its locks that it had first are revoked, so that one which only caches much goes
/// on.
pub(crate) const LOCKS_PER_CLIENT: usize = 256 << 10;

/// After a restart a client may bring along so many times the limit: what was under way when the limit was reached came
/// on top, and so did what it held when it moved to the node. A target does not know what its clients had.
pub(crate) const REPLAYED_TIMES: usize = 2;

/// From this share of its locks on, in eighths, some of a client's locks are revoked.
pub(crate) const LOCKS_RECLAIMED_FROM: usize = 7;

/// So many at a time, and not again before [`LOCKS_RECLAIM_PAUSE`].
pub(crate) const LOCKS_RECLAIMED: usize = 2048;

/// Time for a client to cancel what was revoked.
pub(crate) const LOCKS_RECLAIM_PAUSE: Duration = Duration::from_secs(1);

/// The locks of a client that nears its limit are counted once in so many of its requests for one: that takes 64 short
/// locks for each of its exports.
pub(crate) const LOCKS_COUNTED_EVERY: usize = 256;

/// Exports whose locks are counted with each request that is refused; of more, once in as many requests as there are
/// times so many.
pub(crate) const EXPORTS_COUNTED: usize = 16;

/// Files that one client has open on an MDT, by all its exports: some 16 MiB. Linux lets one process have 1,024 by
/// default, and `fs.nr_open` a million.
pub(crate) const OPENS_PER_CLIENT: usize = 128 << 10;

/// The part of a client's open files that one user other than root may have: the programs of a user hold them as long as
/// they like, and those of other users on that node go on.
pub(crate) const OPENS_OF_USER: usize = 2;

/// The part that all of them together leave to root.
pub(crate) const OPENS_OF_ROOT: usize = 8;

/// Users of a client of whose open files there is an estimate: some 100 KiB. Of more all are counted anew.
pub(crate) const OPENERS_KNOWN: usize = 1024;

/// Callbacks that one client has not answered, shared among its exports: as many as Lustre sends at once
/// (`ns_max_parallel_ast`), of all clients there. The rest waits.
pub(crate) const CALLBACKS_PER_CLIENT: usize = 1024;

/// So many each export may have, however many its client has: a mount that answers gets its callbacks beside those
/// that do not.
pub(crate) const CALLBACKS_OF_EXPORT_MIN: usize = 8;

/// The part of a client's locks that may be flocks: programs hold them as long as they like.
pub(crate) const FLOCKS_SHARE: usize = LOCKS_PER_CLIENT / sheen_types::limits::FLOCKS_PER_CLIENT;

/// From this age on a request that is not answered has a line in the log: `requests_in_work` shows what it
/// waits for.
pub(crate) const SLOW_REQUEST_AGE: Duration = Duration::from_secs(10);

/// How often a target looks for what takes long.
pub(crate) const LATE_LOOK_PAUSE: Duration = Duration::from_secs(5);

/// Changes over several MDTs that are not complete, below one that is, that one message names: 32 KiB of numbers.
pub const COMPLETION_EXCEPTIONS_MAX: usize = 4096;

/// What a client may have only so much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Exports of one client.
    Exports,
    /// Locks of all its exports.
    Locks,
    /// Open files of all its exports.
    Opens,
    /// Callbacks that it has not answered.
    Callbacks,
}

impl Limit {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Exports, Self::Locks, Self::Opens, Self::Callbacks];
}
