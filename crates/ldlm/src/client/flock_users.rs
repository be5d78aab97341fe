//! How many flocks each user of this client has, and may have: no user's programs have all that the target grants it.

use sheen_types::HashMap;

use crate::limits::{FLOCKS_OF_ROOT, FLOCKS_OF_USER, FLOCKS_WAITING_PER_CLIENT};

/// For whom a flock is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlockUser {
    /// The user, by uid.
    pub uid: u32,
    /// How many flocks the target grants this client, of all its users, which they share: one other than root may have a
    /// half of them, all but root seven eighths. `None` if it has no such limit, or if the user had this one before. With
    /// one it also lets this client wait for so many flocks on a resource and no more, which are shared alike.
    pub most: Option<usize>,
}

/// What is counted of each user's flocks: for all resources of a target those that are held or asked for, and for each
/// resource those that may have to wait.
#[derive(Debug, Default)]
pub(super) struct FlockCounts {
    of_user: HashMap<u32, usize>,
    /// Of all users but root.
    of_users: usize,
}

impl FlockCounts {
    /// Whether this user may have one more.
    pub(super) fn may_have_more(&self, user: FlockUser) -> bool {
        user.most.is_none_or(|most| self.is_below(user.uid, most))
    }

    /// Whether this user may have one more wait, of those that are counted here.
    pub(super) fn may_wait(&self, user: FlockUser) -> bool {
        user.most.is_none() || self.is_below(user.uid, FLOCKS_WAITING_PER_CLIENT)
    }

    /// Whether a user has less than one may have of `most`.
    fn is_below(&self, uid: u32, most: usize) -> bool {
        let is_below =
            || self.of(uid) < most / FLOCKS_OF_USER && self.of_users < most - most / FLOCKS_OF_ROOT;
        uid == 0 || is_below()
    }

    /// Whether nothing is counted.
    pub(super) fn is_empty(&self) -> bool {
        self.of_user.is_empty()
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
