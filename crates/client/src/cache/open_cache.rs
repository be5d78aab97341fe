//! Opens that are cached for later ones (Lustre's open cache), and what is counted to decide that.
//!
//! A file that is opened again and again, or soon after it was closed, is opened under a lock that lets its
//! handle on the MDT stay open after the last close: the next open in the same mode needs no RPC. A file is
//! written, executed or only read by handles of their own, each under a lock in a mode of its own, because
//! writing and executing exclude each other.
//!
//! What always holds: a handle is cached only while that lock is. Before the lock is cancelled a handle without
//! users is closed; one in use is closed by its last user. Either way once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::{Fid, Instant, LockMode};

use super::InodeState;
use crate::mdt::{CloseAttributes, MdtOpen};
use crate::types::{Credentials, OpenCounts, OpenFlags};

/// For what a file is open: `lli_mds_write_och` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Exec,
}

/// A handle on the MDT that users share.
pub(crate) struct CachedOpen {
    pub(crate) open: MdtOpen,
    pub(crate) access: Access,
    /// Who opened it first.
    pub(crate) who: Credentials,
    users: Mutex<Users>,
}

struct Users {
    count: usize,
    is_cached: bool,
    /// The attributes of former users, which its close carries to the MDT.
    close_attributes: Option<CloseAttributes>,
}

/// The cached handles of an inode, and how often it was opened.
#[derive(Default)]
pub(crate) struct OpenCache {
    /// Since it was last unused for so long.
    count: u32,
    closed: Option<Instant>,
    cached: [Option<Arc<CachedOpen>>; 3],
}

/// When opens are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenCacheRules {
    /// From so many opens on; never, if it is 0.
    pub(crate) count: u32,
    /// Or if it was closed for less than this.
    pub(crate) reopened_within: Duration,
}

impl Access {
    /// What an open with these flags is for.
    pub(crate) fn of(flags: OpenFlags) -> Self {
        match (flags.writes(), flags.has(OpenFlags::EXEC)) {
            (true, _) => Self::Write,
            (false, true) => Self::Exec,
            (false, false) => Self::Read,
        }
    }

    /// The mode of the lock under which such an open stays.
    pub(crate) fn mode(self) -> LockMode {
        match self {
            Self::Read => LockMode::Cr,
            Self::Write => LockMode::Cw,
            Self::Exec => LockMode::Pr,
        }
    }
}

impl CachedOpen {
    /// A handle with one user.
    pub(crate) fn new(open: MdtOpen, access: Access, who: &Credentials) -> Self {
        open.note_owner();
        let users = Users { count: 1, is_cached: true, close_attributes: None };
        Self { open, access, who: who.clone(), users: Mutex::new(users) }
    }

    /// Adds a user, if the handle is still cached.
    pub(crate) fn join(&self) -> bool {
        let mut users = self.users.lock();
        users.count += usize::from(users.is_cached);
        users.is_cached
    }

    /// A user closes the handle with these attributes. Returns whether the handle must be closed now.
    pub(crate) fn end_use(&self, close_attributes: Option<CloseAttributes>) -> bool {
        let mut users = self.users.lock();
        users.count -= 1;
        users.close_attributes = match (users.close_attributes.take(), close_attributes) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => before.or(now),
        };
        users.count == 0 && !users.is_cached
    }

    /// It is cached no longer. Returns whether it must be closed now.
    pub(crate) fn release(&self) -> bool {
        let mut users = self.users.lock();
        std::mem::take(&mut users.is_cached) && users.count == 0
    }

    /// The attributes that its close carries.
    pub(crate) fn close_attributes(&self) -> Option<CloseAttributes> {
        self.users.lock().close_attributes
    }

    /// Closes the handle on the MDT, which has no users any more. One RPC.
    pub(crate) async fn close(&self, fid: Fid) {
        if let Err(errno) = self.open.close(&self.who, fid, self.close_attributes()).await {
            tracing::debug!(file = %fid, %errno, "close of what was cached open");
        }
    }
}

impl OpenCache {
    /// The inode is opened; `forget_after` is how long it must be unused to be counted anew.
    pub(crate) fn count(&mut self, now: Instant, forget_after: Duration) -> OpenCounts {
        let closed_for = self.closed.map(|closed| now.since(closed));
        if closed_for.is_none_or(|time| time > forget_after) {
            (self.count, self.closed) = (0, None);
        }
        self.count = self.count.saturating_add(1);
        OpenCounts { count: self.count, closed_for }
    }

    /// A user of the inode has closed it.
    pub(crate) fn note_close(&mut self, now: Instant) {
        self.closed = Some(now);
    }

    /// Whether the open that was just counted should stay.
    pub(crate) fn is_worth_caching(&self, now: Instant, rules: OpenCacheRules) -> bool {
        let is_soon = |closed: Instant| now.since(closed) < rules.reopened_within;
        rules.count > 0 && (self.count >= rules.count || self.closed.is_some_and(is_soon))
    }

    /// What is cached for this.
    pub(crate) fn get(&self, access: Access) -> Option<&Arc<CachedOpen>> {
        self.cached[access as usize].as_ref()
    }

    /// Keeps a handle, if none is.
    pub(crate) fn insert(&mut self, open: &Arc<CachedOpen>) -> bool {
        let slot = &mut self.cached[open.access as usize];
        let is_free = slot.is_none();
        if is_free {
            *slot = Some(Arc::clone(open));
        }
        is_free
    }

    /// Whether nothing is cached.
    pub(crate) fn is_empty(&self) -> bool {
        self.cached.iter().all(Option::is_none)
    }

    /// A lock in this mode, under which opens stay, is being cancelled. Returns what must be closed before.
    pub(crate) fn take_under(&mut self, mode: LockMode) -> Vec<Arc<CachedOpen>> {
        let by_mode = |access: &Access| access.mode() == mode;
        match [Access::Read, Access::Write, Access::Exec].into_iter().find(by_mode) {
            Some(access) => self.take(access).into_iter().collect(),
            None => self.take_all(),
        }
    }

    /// Keeps the handle for this no longer. Returns it if it must be closed now.
    pub(crate) fn take(&mut self, access: Access) -> Option<Arc<CachedOpen>> {
        self.cached[access as usize].take().filter(|cached| cached.release())
    }

    /// Keeps nothing any more. Returns what must be closed now.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<CachedOpen>> {
        let all = [Access::Read, Access::Write, Access::Exec];
        all.into_iter().filter_map(|access| self.take(access)).collect()
    }
}

impl InodeState {
    /// Whether some user may execute the file. Handles to write it are not cached then: their locks would
    /// conflict.
    pub(crate) fn is_executable(&self) -> bool {
        self.last_attributes.as_ref().is_some_and(|it| it.mode & 0o111 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: OpenCacheRules =
        OpenCacheRules { count: 3, reopened_within: Duration::from_millis(100) };

    fn at(millis: u64) -> Instant {
        Instant(1_000_000_000 + millis * 1_000_000)
    }

    /// Opens at `millis`; how many that are, and whether it is worth caching.
    fn opened(opens: &mut OpenCache, millis: u64, rules: OpenCacheRules) -> (u32, bool) {
        let tally = opens.count(at(millis), Duration::from_secs(60));
        (tally.count, opens.is_worth_caching(at(millis), rules))
    }

    #[test]
    fn opens_are_cached_that_are_many_or_follow_a_close_at_once() {
        let mut opens = OpenCache::default();
        assert_eq!(opened(&mut opens, 0, RULES), (1, false));
        assert_eq!(opened(&mut opens, 1, RULES), (1, false), "counted from the first close on");
        opens.note_close(at(2));
        assert_eq!(opened(&mut opens, 102, RULES), (2, false));
        assert_eq!(opened(&mut opens, 1000, RULES), (3, true), "many");
        let mut opens = OpenCache::default();
        opened(&mut opens, 0, RULES);
        opens.note_close(at(2));
        assert_eq!(opened(&mut opens, 101, RULES), (2, true), "at once");
        let never = OpenCacheRules { count: 0, ..RULES };
        assert_eq!(opened(&mut opens, 101, never), (3, false));
        let always = OpenCacheRules { count: 1, ..RULES };
        assert_eq!(opened(&mut OpenCache::default(), 0, always), (1, true));
    }

    #[test]
    fn a_file_left_alone_is_counted_anew() {
        let mut opens = OpenCache::default();
        opened(&mut opens, 0, RULES);
        opens.note_close(at(2));
        assert_eq!(opened(&mut opens, 60_002, RULES).0, 2);
        let tally = opens.count(at(60_003), Duration::from_secs(60));
        assert_eq!(tally, OpenCounts { count: 1, closed_for: Some(Duration::from_millis(60_001)) });
        assert_eq!(opens.count(at(60_004), Duration::from_secs(60)).closed_for, None);
    }
}
