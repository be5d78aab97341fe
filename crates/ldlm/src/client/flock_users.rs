//! How many flocks each user of this client has, and may have: no user's programs have all that the target grants it.

use sheen_types::HashMap;

use crate::limits::{FLOCKS_OF_ROOT, FLOCKS_OF_USER};

/// For whom a flock is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlockUser {
    /// The user, by uid.
    pub uid: u32,
    /// How many flocks the target grants this client, of all its users, which they share: one other than root may have a
    /// half of them, all but root seven eighths. `None` if it has no such limit, or if the user had this one before.
    pub most: Option<usize>,
}

/// What is counted: a flock that is held once; one that is asked for as what it may come to, for it may cut another one
/// in two when it is granted.
#[derive(Debug, Default)]
pub(super) struct FlockCounts {
    of_user: HashMap<u32, usize>,
    /// Of all users but root.
    of_users: usize,
}

impl FlockCounts {
    /// Whether this user may have one more.
    pub(super) fn may_have_more(&self, user: FlockUser) -> bool {
        let Some(most) = user.most.filter(|_| user.uid != 0) else { return true };
        self.of(user.uid) < most / FLOCKS_OF_USER && self.of_users < most - most / FLOCKS_OF_ROOT
    }

    /// How many a user has.
    pub(super) fn of(&self, uid: u32) -> usize {
        self.of_user.get(&uid).copied().unwrap_or(0)
    }

    /// What was counted of a user as `before` is `after` now.
    pub(super) fn change(&mut self, uid: u32, before: usize, after: usize) {
        let count = self.of_user.entry(uid).or_default();
        *count = *count + after - before;
        if *count == 0 {
            self.of_user.remove(&uid);
        }
        if uid != 0 {
            self.of_users = self.of_users + after - before;
        }
    }
}
