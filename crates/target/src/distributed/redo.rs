//! What an MDT has lost of changes over several MDTs, and gets back from the other MDTs (Lustre: `update_recovery.c`).
//!
//! A restarted MDT asks its partners for the records of all changes that are not complete and name it. It redoes its parts in
//! the order of logical times, before a client replays anything. That is their place: what a part builds on was durable
//! before it was applied ([`Target::wait_until_durable`]), so of what clients have to replay nothing comes before it that it
//! touches. Then all of it is made durable, in one group commit: what is redone has no number of its own, as the numbers up to
//! the new epoch are those of replays, and its coordinator could not see later how far it is durable.
//!
//! Then the parts that other MDTs lack of changes which this one coordinates are sent, and what it had excluded before its
//! start is released.

use std::sync::Arc;

use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_store::{StoreError, Transaction};
use sheen_types::futures::{First, all, race};
use sheen_types::{ChangeId, Errno, MdtIndex, Transno};
use sheen_wire::out::ObjectUpdate;
use sheen_wire::update_record::UpdateRecord;

use super::Refusal;
use super::log::put_record;
use crate::EACH_LINE;
use crate::export::Export;
use crate::history::TransnoSource;
use crate::last_rcvd::{RecoveryLosses, ReplyRecord, Slot, put_reply, put_transno};
use crate::target::Target;

/// What a role adds that makes changes over several MDTs ([`Operations::redo`](crate::Operations::redo)).
pub trait Redo: Send + Sync {
    /// What the updates of a part come to in this store, which has all that was before it.
    ///
    /// # Errors
    /// Why they come to nothing.
    fn changes_of(&self, updates: &[ObjectUpdate]) -> Result<Transaction, Errno>;

    /// Asks another MDT for the records of all changes that are not complete and name this one, as long as it takes.
    fn recover<'a>(
        &'a self,
        target: &'a Arc<Target>,
        mdt: MdtIndex,
    ) -> BoxFuture<'a, Vec<UpdateRecord>>;

    /// Sends another MDT the parts that it lacks of changes which this one coordinates ([`Target::missing_parts`]), as long
    /// as it takes.
    fn send_parts<'a>(&'a self, target: &'a Arc<Target>, mdt: MdtIndex) -> BoxFuture<'a, ()>;

    /// Hides the parts here of changes that other MDTs have not finished, until they release them. Called when all that clients
    /// replay is replayed, and before new requests of theirs are executed. It waits for nothing: recovery does not end before.
    fn hide_unfinished(&self, target: &Target) {
        let _ = target;
    }

    /// Releases what earlier starts of this MDT have excluded on another one.
    fn release_earlier<'a>(&'a self, target: &'a Arc<Target>, mdt: MdtIndex) -> BoxFuture<'a, ()>;
}

/// What has become of a record.
enum Redone {
    Now,
    /// The part is there.
    Before,
    /// It does not fit to what is there.
    Not(Errno),
}

impl Target {
    /// The MDTs that are waited for in recovery.
    #[must_use]
    pub fn awaited_mdts(&self) -> Vec<MdtIndex> {
        self.recovery.awaited_mdts()
    }

    /// Completes when what this MDT has lost of changes over several is redone, as far as it is known. No part that another
    /// MDT sends is applied before: it may build on one.
    pub async fn until_redone(&self) {
        self.recovery.until_redone().await;
    }

    /// Whether this MDT recovers: it coordinates no change then, as the next numbers are those of replays.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.recovery.is_running()
    }

    /// Whether a part that is applied now is applied in recovery: then no client's lock is revoked for it, as those are not
    /// replayed yet; all that clients keep is revoked after recovery.
    #[must_use]
    pub fn applies_in_recovery(&self) -> bool {
        self.recovery.becomes_lossy()
    }

    /// Records of changes that this MDT coordinates of which another one may lack its part.
    #[must_use]
    pub fn missing_parts(&self, mdt: MdtIndex) -> Vec<Arc<UpdateRecord>> {
        self.distributed.0.lock().missing_parts(self.mdt_index(), mdt)
    }

    /// Changes that are not complete, as far as this MDT knows.
    #[must_use]
    pub fn incomplete_changes(&self) -> usize {
        self.distributed.0.lock().incomplete()
    }

    /// Whether a client's change that had this number is there though it was not durable when this MDT started: another MDT
    /// had its record.
    pub(crate) fn was_redone(&self, transno: Transno) -> bool {
        let id = ChangeId { coordinator: self.mdt_index(), transno };
        self.distributed.0.lock().record(id).is_some()
    }

    /// Begins to wait for other MDTs, if any is to be waited for.
    pub(crate) fn begin_recovery_of_changes(&self) {
        if self.recovery.awaited_mdts().is_empty() {
            return;
        }
        let target = self.arc();
        let task = async move {
            let given_up = target.recovery.until_mdts_are_given_up();
            target.recover_changes(given_up).await;
        };
        self.world.tasks.spawn("changes over several MDTs", Box::pin(task));
    }

    async fn recover_changes(self: &Arc<Self>, given_up: impl Future<Output = ()>) {
        let Some(redo) = self.operations.redo() else { return };
        let partners = self.recovery.awaited_mdts();
        let names: Vec<_> = partners.iter().map(|mdt| format!("MDT{:04x}", mdt.0)).collect();
        tracing::info!(target: EACH_LINE, target = self.name(), mdts = names.join(" "),
            "waits for other MDTs to say what was lost of changes with them");
        let found = Mutex::new(Vec::new());
        let ask = |mdt| {
            let found = &found;
            async move {
                let records = redo.recover(self, mdt).await;
                found.lock().extend(records);
            }
        };
        let mut given_up = Box::pin(given_up);
        let asked = all(partners.iter().map(|mdt| ask(*mdt)).collect());
        let mut is_given_up = matches!(race(asked, &mut given_up).await, First::Right(()));
        if self.recovery.is_stopped() {
            return;
        }
        let found = std::mem::take(&mut *found.lock());
        if let Err(error) = self.redo_all(redo, found).await {
            tracing::error!(target = self.name(), %error,
                "cannot redo changes over several MDTs: it takes no clients until it is started anew");
            return;
        }
        if !is_given_up {
            let finished = self.send_missing_parts(redo, &partners);
            is_given_up = matches!(race(finished, &mut given_up).await, First::Right(()));
        }
        if is_given_up && !self.recovery.is_stopped() {
            let missing = self.recovery.awaited_mdts();
            tracing::warn!(target: EACH_LINE, target = self.name(), ?missing,
                "goes on without other MDTs: what only they have of changes is late");
        }
        self.end_recovery_if(self.recovery.end_wait_for_mdts(self.now()));
    }

    async fn send_missing_parts(self: &Arc<Self>, redo: &dyn Redo, partners: &[MdtIndex]) {
        all(partners.iter().map(|mdt| redo.send_parts(self, *mdt)).collect()).await;
        let release = |mdt: MdtIndex| async move {
            redo.release_earlier(self, mdt).await;
            self.recovery.mdt_is_done(mdt);
        };
        all(partners.iter().map(|mdt| release(*mdt)).collect()).await;
    }

    /// Redoes what is not here of these changes, in their order, and makes it durable.
    async fn redo_all(&self, redo: &dyn Redo, mut records: Vec<UpdateRecord>) -> Result<(), Errno> {
        records.sort_by_key(|record| (record.time, record.id));
        let mut redone = 0;
        for record in records.into_iter().map(Arc::new) {
            let id = record.id;
            match self.redo_one(redo, record).map_err(|error| error.errno())? {
                Redone::Now => redone += 1,
                Redone::Before => {}
                Redone::Not(errno) => {
                    tracing::error!(target = self.name(), change = %id, %errno,
                        "a part of a change over several MDTs does not fit any more, and is not redone: check the \
                         file system with sheen fsck");
                }
            }
        }
        if redone > 0 {
            tracing::info!(target: EACH_LINE, target = self.name(), redone, "redid parts of changes over several MDTs");
            self.wait_until_all_committed().await?;
        }
        self.recovery.note_redone(redone > 0);
        Ok(())
    }

    fn redo_one(&self, redo: &dyn Redo, record: Arc<UpdateRecord>) -> Result<Redone, StoreError> {
        let own = self.mdt_index();
        let Some(part) = record.part_of(own).filter(|_| self.part_here(record.id).is_none()) else {
            return Ok(Redone::Before);
        };
        let changes = match redo.changes_of(&part.updates) {
            Ok(changes) => changes,
            Err(errno) => return Ok(Redone::Not(errno)),
        };
        let encoded = record.encode().map_err(Refusal::from);
        let answer = self.answer_of(&record);
        let build = |transno| {
            let mut transaction = changes;
            let keys = self.undurable.keys_of(&transaction);
            put_record(&mut transaction, record.id, encoded?);
            put_transno(&mut transaction, transno);
            // What clients keep may be of before: also if this start does not come to the end of its recovery.
            RecoveryLosses { clients: false, changes: true }.put(&mut transaction);
            if let Some((export, slot, reply)) = &answer {
                put_reply(&mut transaction, export.number(), *slot, reply);
            }
            Ok((transaction, keys))
        };
        let applied = |sequence, keys| {
            self.note_written(sequence, keys);
            // Durable before any MDT is answered so.
            self.distributed.0.lock().keep(Arc::clone(&record), own, Transno(0));
        };
        match self.history.apply(&*self.store, TransnoSource::Same, build, applied) {
            Ok(_) => {}
            Err(Refusal::Store(error)) if does_not_fit(&error) => {
                return Ok(Redone::Not(error.errno()));
            }
            Err(Refusal::Store(error)) => return Err(error),
            Err(_) => return Ok(Redone::Before),
        }
        if let Some((export, slot, reply)) = answer {
            export.lock().replies.insert(slot, reply);
        }
        Ok(Redone::Now)
    }

    /// Where the answer is kept of a change that this MDT coordinates, if its client is awaited.
    fn answer_of(&self, record: &UpdateRecord) -> Option<(Arc<Export>, Slot, ReplyRecord)> {
        let answer =
            record.answer.as_ref().filter(|_| record.id.coordinator == self.mdt_index())?;
        let export = self.export_of(&answer.client)?;
        Some((export, Slot::of_tag(answer.record.tag), answer.record.clone()))
    }
}

/// Whether a change fails because of what is there, not because of the disk.
#[must_use]
pub fn does_not_fit(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NoObject(_)
            | StoreError::Exists(_)
            | StoreError::NoKey(_)
            | StoreError::WrongKind(_)
    )
}
