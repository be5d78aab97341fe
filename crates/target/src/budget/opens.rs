//! The open files of a client, and of each of its users: no user's programs have all that their mount may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sheen_types::{Errno, HashMap};

use super::Account;
use super::estimate::{Estimate, Usage};
use crate::context::Context;
use crate::export::Export;
use crate::limits;
use crate::limits::Limit;
use crate::target::Target;

/// Whose open files are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedBy {
    /// All of a client.
    Client,
    /// Those of all its users but root.
    Users,
    /// Those of one user, by uid.
    User(u32),
}

/// For whom a client opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opener {
    /// A user, by the uid as which the target takes it: root that is squashed is no root.
    User(u32),
    /// A user who had it open before: it is opened again, whatever the user's share is.
    Before,
}

/// What is counted of a client's open files. Of its users only while the client may have more than one of them may.
#[derive(Debug, Default)]
pub(super) struct OpensAccount {
    client: Estimate,
    users: Estimate,
    of_user: Mutex<HashMap<u32, Arc<Estimate>>>,
    /// There is something in those two.
    knows_users: AtomicBool,
}

/// Who may have no more open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Client(usize),
    /// What its users but root have, or one of them.
    Users(OpenedBy, usize),
}

impl OpensAccount {
    /// The next open counts them.
    pub(super) fn forget(&self) {
        self.client.forget();
        self.forget_users();
    }

    /// The next open of each user counts that user's.
    fn forget_users(&self) {
        if self.knows_users.swap(false, Ordering::Relaxed) {
            self.users.forget();
            self.of_user.lock().clear();
        }
    }

    /// One more is opened by a client that may have `most`.
    fn ask(
        &self,
        opener: Opener,
        most: usize,
        count: &impl Fn(OpenedBy) -> usize,
    ) -> Result<(), Refused> {
        let share = most / limits::OPENS_OF_USER;
        if let Usage::All(has) = self.client.ask(share, most, 1, || count(OpenedBy::Client)) {
            return Err(Refused::Client(has));
        }
        // An estimate is worth something only while it is asked for each open.
        if opener == Opener::Before || self.client.at_most() <= share {
            if self.knows_users.load(Ordering::Relaxed) {
                self.forget_users();
            }
            return Ok(());
        }
        match opener {
            Opener::User(0) | Opener::Before => Ok(()),
            Opener::User(user) => self.ask_share(user, share, most, count),
        }
    }

    fn ask_share(
        &self,
        user: u32,
        share: usize,
        most: usize,
        count: &impl Fn(OpenedBy) -> usize,
    ) -> Result<(), Refused> {
        let of_all = most - most / limits::OPENS_OF_ROOT;
        let own = self.of_user(user);
        let asked = [(OpenedBy::User(user), &*own, share), (OpenedBy::Users, &self.users, of_all)];
        for (whose, estimate, most) in asked {
            if let Usage::All(has) = estimate.ask(most, most, 1, || count(whose)) {
                return Err(Refused::Users(whose, has));
            }
        }
        Ok(())
    }

    fn of_user(&self, user: u32) -> Arc<Estimate> {
        let mut of_user = self.of_user.lock();
        if !self.knows_users.swap(true, Ordering::Relaxed) {
            self.users.forget();
        }
        if of_user.len() >= limits::OPENERS_KNOWN && !of_user.contains_key(&user) {
            of_user.clear();
        }
        let own = of_user.entry(user).or_insert_with(|| {
            let own = Estimate::default();
            own.forget();
            Arc::new(own)
        });
        Arc::clone(own)
    }
}

impl Target {
    /// Whether a client may have one more file open; `open` counts what one of its exports has.
    ///
    /// # Errors
    /// [`Errno::ENFILE`] if it has too many, or the user that opens it has too much of what its client may have;
    /// [`Errno::ENODEV`] if it replays more than it can have had.
    pub fn check_open_budget(
        self: &Arc<Self>,
        context: &Context,
        opener: Opener,
        open: impl Fn(&Export, OpenedBy) -> usize,
    ) -> Result<(), Errno> {
        let export = &context.export;
        let Some(account) = self.limited(export) else { return Ok(()) };
        let count = |whose| account.exports().iter().map(|export| open(export, whose)).sum();
        if context.replay().is_some() {
            return self.check_replayed_open(export, &account, &count);
        }
        let asked = account.opens.ask(opener, self.budget.of(Limit::Opens), &count);
        asked.map_err(|refused| match refused {
            Refused::Client(has) => self.refuse_more(export, Limit::Opens, has, Errno::ENFILE),
            Refused::Users(whose, has) => {
                self.budget.refuse(Limit::Opens);
                let (client, nid) = (export.uuid(), export.nid());
                tracing::warn!(target = self.name(), %client, %nid, ?whose, has,
                    "a user has too many open files of those that the client may have");
                Errno::ENFILE
            }
        })
    }

    /// Whatever share of them a user has: it had them before.
    fn check_replayed_open(
        self: &Arc<Self>,
        export: &Arc<Export>,
        account: &Account,
        count: &impl Fn(OpenedBy) -> usize,
    ) -> Result<(), Errno> {
        let most = self.budget.of_replays(Limit::Opens);
        let has = account.opens.client.ask(most, most, 1, || count(OpenedBy::Client));
        account.opens.forget_users();
        self.evict_over_budget(export, Limit::Opens, has)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use super::*;

    const MOST: usize = 64;

    /// What is open, by user.
    #[derive(Default)]
    struct Open {
        of: BTreeMap<u32, usize>,
        counts: Cell<usize>,
    }

    impl Open {
        fn count(&self, whose: OpenedBy) -> usize {
            self.counts.set(self.counts.get() + 1);
            self.has(whose)
        }

        fn has(&self, whose: OpenedBy) -> usize {
            let is_wanted = |user: u32| match whose {
                OpenedBy::Client => true,
                OpenedBy::Users => user != 0,
                OpenedBy::User(one) => user == one,
            };
            self.of.iter().filter(|(user, _)| is_wanted(**user)).map(|(_, count)| count).sum()
        }

        /// Whether a user may have one more.
        fn has_room(&self, user: u32, most: usize) -> bool {
            let has_share = self.has(OpenedBy::User(user)) < most / 2
                && self.has(OpenedBy::Users) < most - most / 8;
            self.has(OpenedBy::Client) < most && (user == 0 || has_share)
        }

        fn open(&mut self, user: u32) {
            *self.of.entry(user).or_default() += 1;
        }

        fn close(&mut self, user: u32) {
            if let Some(count) = self.of.get_mut(&user) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// However the files of users come and go, each is refused what it may not have and nothing else.
    #[test]
    fn shares_are_kept_whatever_is_opened_and_closed() {
        for seed in 1..=40u64 {
            let (account, mut open) = (OpensAccount::default(), Open::default());
            let (mut state, mut most, mut refused) = (seed, MOST, 0);
            let mut next = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            for step in 0..6_000 {
                // Now more is opened, now more is closed.
                let opens = if step / 300 % 2 == 0 { 7 } else { 4 };
                let user = [0, 10, 10, 20, 30][next(5) as usize];
                match next(12) {
                    11 if step % 100 == 0 => most = MOST >> next(2),
                    number if number < opens => {
                        let asked = account.ask(Opener::User(user), most, &|it| open.count(it));
                        assert_eq!(asked.is_ok(), open.has_room(user, most), "{seed}: {user}");
                        refused += usize::from(asked.is_err());
                        // Some fail all the same.
                        if asked.is_ok() && next(8) != 0 {
                            open.open(user);
                        }
                    }
                    10 if open.has(OpenedBy::Client) < most => {
                        let asked = account.ask(Opener::Before, most, &|it| open.count(it));
                        assert_eq!(asked, Ok(()), "{seed}");
                        open.open(user);
                    }
                    _ => open.close(user),
                }
            }
            assert!(refused > 20, "{seed}: {refused} are refused");
        }
    }

    #[test]
    fn what_is_opened_and_closed_is_hardly_ever_counted() {
        let (account, mut open, most) = (OpensAccount::default(), Open::default(), 1 << 17);
        let pass = |open: &mut Open, user| {
            let asked = account.ask(Opener::User(user), most, &|it| open.count(it));
            assert_eq!(asked, Ok(()));
            open.counts.take()
        };
        let below: usize = (0..200_000).map(|_| pass(&mut open, 10)).sum();
        assert!((1..=4).contains(&below), "{below} times");
        assert!(account.of_user.lock().is_empty(), "no user is known");
        open.of.insert(0, most / 2 + 5);
        account.forget();
        let beyond: usize = (0..20_000).map(|_| pass(&mut open, 10)).sum();
        assert!((70..=90).contains(&beyond), "{beyond} times");
        for user in 0..5_000 {
            pass(&mut open, 100 + user);
        }
        assert!(account.of_user.lock().len() <= limits::OPENERS_KNOWN);
    }
}
