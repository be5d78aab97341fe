//! A migration begins as it was asked for, or not at all.
//!
//! Who has asked may be gone when the last MDT is there that takes part, and another client may have moved the directory since. So the begin
//! is bound to the directory that the name stood for when it was first looked up, and is given up while nothing is changed yet:
//!
//! - where the client was evicted, or has left;
//! - where an MDT is away for some seconds: the client asks again, if its caller still waits.

use std::future::Future;
use std::time::Duration;

use sheen_target::{Context, ExportState};
use sheen_types::futures::{First, race};
use sheen_types::{Errno, Fid};

use super::super::exclude::comes_back;
use super::Places;
use crate::Mdt;

/// How often it is looked whether it is still to be done.
const LOOK: Duration = Duration::from_secs(1);
/// At so many looks in turn an MDT is away.
const AWAY_LOOKS_MAX: u32 = 5;

/// The directory that a client has asked to migrate: what the name stood for at first.
#[derive(Default)]
pub(super) struct Bound(Option<Fid>);

impl Bound {
    /// Whether what the name stands for now is to migrate. What is in a directory that migrates goes with it, whatever it is by now.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] if it is another one than before.
    pub(super) fn check(&mut self, places: &Places, found: Fid) -> Result<(), Errno> {
        let first = *self.0.get_or_insert(found);
        match first == found || places.layout.is_some() {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }
}

impl Mdt {
    /// Does what a migration does before it changes anything, as long as that is worth the wait.
    ///
    /// # Errors
    /// [`Errno::EINPROGRESS`] where an MDT is away: the client asks again. Without an answer where the client is gone.
    pub(super) async fn while_wanted<T>(
        &self,
        context: &Context,
        work: impl Future<Output = Result<T, Errno>>,
    ) -> Result<T, Errno> {
        match race(work, self.until_not_wanted(context)).await {
            First::Left(done) => still_wanted(context).and(done),
            First::Right(errno) => Err(errno),
        }
    }

    async fn until_not_wanted(&self, context: &Context) -> Errno {
        let clock = &*context.target.world().clock;
        let mut away_looks = 0;
        while away_looks < AWAY_LOOKS_MAX {
            clock.sleep_until(clock.now() + LOOK).await;
            if let Err(errno) = still_wanted(context) {
                return errno;
            }
            let is_away = self.other_mdts().iter().any(|mdt| comes_back(mdt.state));
            away_looks = if is_away { away_looks + 1 } else { 0 };
        }
        Errno::EINPROGRESS
    }
}

/// # Errors
/// [`Errno::ENOTCONN`], which is not answered, if the client was evicted or has left.
fn still_wanted(context: &Context) -> Result<(), Errno> {
    match context.export.state() {
        ExportState::Gone => Err(context.leave_unanswered(Errno::ENOTCONN)),
        _ => Ok(()),
    }
}
