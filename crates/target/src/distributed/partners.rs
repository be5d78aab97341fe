//! Partners: MDTs with which this one has had changes lately, or some that are not complete.
//!
//! One that starts waits for its partners of before, as only they may have what it has lost. So a partner is noted durably
//! before the first change with it, which costs one group commit after a quiet minute, and the note goes when nothing
//! depends on it any more.

use std::time::Duration;

use sheen_store::{StoreError, Transaction};
use sheen_types::{Errno, Instant, MdtIndex, Transno};

use super::Refusal;
use super::log::{delete_partner, put_partner};
use crate::last_rcvd::put_transno;
use crate::store_errno::store_errno;
use crate::target::Target;

/// A partner with which there has been no change for so long is none.
const QUIET: Duration = Duration::from_secs(60);

/// An MDT that is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partner {
    /// The transaction that notes it; 0 if that was durable before the start.
    noted: Transno,
    /// When it was needed last.
    used: Instant,
}

impl Partner {
    /// A partner of before the start, which is now.
    pub(super) fn of_before(now: Instant) -> Self {
        Self { noted: Transno(0), used: now }
    }

    pub(super) fn is_idle(self, now: Instant) -> bool {
        self.used + QUIET <= now
    }
}

impl Target {
    /// The MDTs that are noted: after a start those that were before it.
    #[must_use]
    pub fn partners(&self) -> Vec<MdtIndex> {
        self.distributed.0.lock().partners.keys().copied().collect()
    }

    /// Completes when it is durable that the MDT is a partner. To be waited for before anything of a change with it is
    /// applied; nearly always it is so already.
    ///
    /// # Errors
    /// If the store failed.
    pub async fn note_partner(&self, mdt: MdtIndex) -> Result<(), Errno> {
        let noted = match self.use_partner(mdt) {
            Some(noted) => noted,
            None => self.add_partner(mdt).map_err(store_errno)?,
        };
        if noted == Transno(0) {
            return Ok(());
        }
        match self.recovery.is_running() {
            // What is applied then has the number of what was applied before it.
            true => self.wait_until_all_committed().await,
            false => self.wait_until_committed(noted).await,
        }
    }

    /// Whether all of them, but for this one, are partners, and that is durable. Under the lock of the order, as
    /// [`Self::forget_idle_partners`] is.
    pub(super) fn must_be_noted(
        &self,
        mdts: impl IntoIterator<Item = MdtIndex>,
    ) -> Result<(), Refusal> {
        let (own, committed) = (self.mdt_index(), self.last_committed());
        let state = self.distributed.0.lock();
        let is_noted = |mdt| state.partners.get(&mdt).is_some_and(|it| it.noted <= committed);
        let are_noted = mdts.into_iter().all(|mdt| mdt == own || is_noted(mdt));
        are_noted.then_some(()).ok_or(Refusal::NotNoted)
    }

    /// An MDT that is noted stays so for another minute: something of its changes is kept here that is no record.
    pub fn keep_partner(&self, mdt: MdtIndex) {
        self.use_partner(mdt);
    }

    fn use_partner(&self, mdt: MdtIndex) -> Option<Transno> {
        let now = self.now();
        let mut state = self.distributed.0.lock();
        let partner = state.partners.get_mut(&mdt)?;
        partner.used = now;
        Some(partner.noted)
    }

    /// The transaction that notes it: this one, or that of another task.
    fn add_partner(&self, mdt: MdtIndex) -> Result<Transno, StoreError> {
        let build = |transno| {
            if let Some(noted) = self.use_partner(mdt) {
                return Err(Refusal::Before(noted));
            }
            let mut transaction = Transaction::new();
            put_partner(&mut transaction, mdt);
            put_transno(&mut transaction, transno);
            Ok((transaction, Partner { noted: transno, used: self.now() }))
        };
        let applied = |_, partner| _ = self.distributed.0.lock().partners.insert(mdt, partner);
        match self.history.apply(&*self.store, self.transno_source(), build, applied) {
            Ok(transno) | Err(Refusal::Before(transno)) => Ok(transno),
            Err(Refusal::Store(error)) => Err(error),
            // Not of this.
            Err(Refusal::Known | Refusal::StartedAnew | Refusal::NotNoted) => Ok(Transno(0)),
        }
    }

    /// Forgets partners with which there was no change for a minute and is none that is not complete. Not while this MDT
    /// recovers, when they may be waited for.
    ///
    /// # Errors
    /// Those of [`sheen_store::Store::apply`]; then nothing was changed.
    pub fn forget_idle_partners(&self) -> Result<(), StoreError> {
        if self.recovery.is_running() || self.partners().is_empty() {
            return Ok(());
        }
        let build = |transno| {
            let quiet = self.distributed.0.lock().idle_partners(self.now());
            if quiet.is_empty() {
                return Err(Refusal::Known);
            }
            let mut transaction = Transaction::new();
            quiet.iter().for_each(|mdt| delete_partner(&mut transaction, *mdt));
            put_transno(&mut transaction, transno);
            Ok((transaction, quiet))
        };
        let applied = |_, quiet: Vec<_>| {
            let mut state = self.distributed.0.lock();
            quiet.iter().for_each(|mdt| _ = state.partners.remove(mdt));
        };
        match self.history.apply(&*self.store, self.transno_source(), build, applied) {
            Err(Refusal::Store(error)) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
