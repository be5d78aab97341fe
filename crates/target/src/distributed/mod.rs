//! Changes over several MDTs: their records, their logical times, and until when they are kept (Lustre: `update_trans.c`,
//! `update_records.c`). Knows no names: what a part changes is the role's.
//!
//! The MDT that executes a request *coordinates* its change: it applies its own part with the record of the whole
//! ([`Target::transact_coordinated`]). Each other *participant* applies its part with the same record
//! ([`Target::transact_part`]). The design is in `docs/design/distributed-changes.md`.
//!
//! What always holds:
//!
//! - A part and its record are one store transaction; so are the removal of a record and the note that its change is complete.
//! - A part is applied once, whatever is sent again.
//! - Whether a part may still be applied is looked at under the lock of the order of transactions, as is what an MDT that
//!   starts anew is answered: so a part is in that answer, or is not applied ([`Target::answer_recover`]).
//! - The logical time of a part is larger than that of all that was applied before it on any of its participants that
//!   its coordinator has asked.
//!
//! A target that is alone keeps none of it: its logical time is 0.

mod at_rest;
mod kept;
mod log;
mod partners;
mod redo;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use sheen_store::{Sequence, Store, StoreError, Transaction};
use sheen_types::{ChangeId, Errno, Instant, LogicalTime, MdtIndex, Transno};
use sheen_wire::out::TooMuch;
use sheen_wire::update_record::{ClientAnswer, UpdateRecord};

pub use self::at_rest::{ChangesAtRest, forget_at_rest, redo_at_rest};
pub use self::redo::{Redo, does_not_fit};

use self::kept::State;
use self::log::{DistributedLog, delete_record, put_note, put_record};
use crate::config::TargetConfig;
use crate::context::Context;
use crate::in_progress::{Wait, while_waiting};
use crate::last_rcvd::{RecoveryLosses, ReplyRecording, put_transno};
use crate::target::Target;
use crate::undurable::StoreKey;

/// One start of an MDT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// Which MDT.
    pub mdt: MdtIndex,
    /// How often it has been started, this start included.
    pub starts: u32,
}

/// What transactions that are not durable a part would build on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependencies {
    /// None.
    None,
    /// All up to this one: [`Target::wait_until_durable`], before the part is applied.
    WaitFor(Sequence),
}

/// What has become of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartApplied {
    /// It was applied now, as this transaction.
    Now(Transno),
    /// It had been applied before, as this transaction; 0 if it is durable.
    Before(Transno),
    /// It was not: the MDT that sent it has started anew since, and knows what it had lost.
    TooLate,
    /// It was not: first [`Target::note_partner`] for the coordinator. It may have been forgotten meanwhile.
    NotNoted,
}

/// Which changes of a coordinator are durable on all their participants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// All up to this one of its transactions,
    pub upto: Transno,
    /// but for these.
    pub except: Vec<Transno>,
}

/// See the module's documentation.
pub(crate) struct Distributed(Mutex<State>);

impl Distributed {
    /// What the store of the MDT has, which starts now.
    ///
    /// # Errors
    /// IO errors; [`StoreError::Corrupt`] for a note that is none.
    pub(crate) fn load(
        store: &dyn Store,
        config: &TargetConfig,
        now: Instant,
    ) -> Result<Self, StoreError> {
        let log = DistributedLog::load(store, &config.name)?;
        Ok(Self(Mutex::new(State::of(log, MdtIndex(config.index), now))))
    }

    /// The MDTs that are noted as partners.
    pub(crate) fn partners(&self) -> BTreeSet<MdtIndex> {
        self.0.lock().partners.keys().copied().collect()
    }
}

/// Why nothing was applied.
enum Refusal {
    /// The store failed, or the change is too large.
    Store(StoreError),
    /// The part had been applied before; see [`PartApplied::Before`].
    Before(Transno),
    /// Nothing new was said.
    Known,
    /// An MDT is no partner yet, or no more.
    NotNoted,
    /// An MDT has started anew.
    StartedAnew,
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<TooMuch> for Refusal {
    /// No role builds such a change, as it looks before it applies; and yet it must not be cut.
    fn from(error: TooMuch) -> Self {
        Self::Store(StoreError::Io(format!("the record of a change over several MDTs: {error}")))
    }
}

impl Target {
    /// Its index, as one of several MDTs.
    #[must_use]
    pub fn mdt_index(&self) -> MdtIndex {
        MdtIndex(self.config.index)
    }

    /// This start of it.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        Incarnation { mdt: self.mdt_index(), starts: self.instance }
    }

    /// The largest logical time of what was applied here; 0 while nothing was that another MDT took part in.
    #[must_use]
    pub fn logical_time(&self) -> LogicalTime {
        self.distributed.0.lock().time
    }

    /// Keeps in mind from now on what each transaction writes until it is durable. Called when another MDT is known.
    pub fn track_dependencies(&self) {
        self.history.in_order(|newest| self.undurable.begin(newest));
    }

    /// What transactions that are not durable wrote of `keys`. Asked while nothing else may change what the keys are of.
    #[must_use]
    pub fn dependencies(&self, keys: &[StoreKey]) -> Dependencies {
        let newest = self.undurable.newest_of(keys, self.history.durable_sequence());
        newest.map_or(Dependencies::None, Dependencies::WaitFor)
    }

    /// Completes when the dependencies are durable; asks the store to hurry.
    ///
    /// # Errors
    /// Why they never will be: the store failed.
    pub async fn wait_until_durable(&self, dependencies: Dependencies) -> Result<(), Errno> {
        let Dependencies::WaitFor(sequence) = dependencies else { return Ok(()) };
        let durable = self.history.wait_for_sequence(Some(sequence));
        self.store.commit_soon();
        while_waiting(Wait::Disk, durable).await
    }

    /// Applies this MDT's part of a change that it coordinates, with the record of all parts and that of the answer, as
    /// one transaction. Called exactly once for a request, as [`Target::transact`] is; without one (`context`) it is a change of
    /// this MDT's own, which has no answer. `None`, and nothing is applied, if
    /// one of `relied_on` has started anew, so that its exclusions are gone, or if an MDT that takes part is not durably
    /// noted as a partner: the request begins anew.
    ///
    /// The change's number and its logical time, which is larger than this MDT's own and `above`, are chosen under the
    /// lock of the order. `build` must only build; it leaves the record's answer out.
    ///
    /// # Errors
    /// Those of [`Store::apply`]; then nothing was changed.
    pub fn transact_coordinated(
        &self,
        context: Option<&Context>,
        relied_on: &[Incarnation],
        above: LogicalTime,
        recording: ReplyRecording,
        build: impl FnOnce(ChangeId, LogicalTime) -> (Transaction, UpdateRecord),
    ) -> Result<Option<Arc<UpdateRecord>>, StoreError> {
        let id = |transno| ChangeId { coordinator: self.mdt_index(), transno };
        let replayed = context.filter(|context| context.is_applied_already());
        if let Some((context, transno)) = replayed.and_then(|it| Some((it, it.replay()?))) {
            context.transno.store(transno.0, Ordering::Release);
            return Ok(Some(self.record_or_complete(id(transno))));
        }
        let mut made = None;
        let build = |transno| {
            let time = self.time_of_change(relied_on, above).ok_or(Refusal::StartedAnew)?;
            let (mut transaction, mut record) = build(id(transno), time);
            self.must_be_noted(record.parts.iter().map(|part| part.mdt))?;
            let keys = self.undurable.keys_of(&transaction);
            let answer = context.and_then(|context| {
                let record = recording.record(context, transno)?;
                Some(ClientAnswer { client: context.export.uuid().clone(), record })
            });
            record.answer = answer.clone();
            put_record(&mut transaction, record.id, record.encode()?);
            match context {
                Some(context) => {
                    let answer = answer.as_ref().map(|answer| &answer.record);
                    self.put_answer(&mut transaction, context, transno, answer);
                }
                None => put_transno(&mut transaction, transno.max(self.history.last())),
            }
            Ok((transaction, (keys, Arc::new(record))))
        };
        let applied = |sequence, (keys, record): (_, Arc<UpdateRecord>)| {
            self.note_written(sequence, keys);
            let here = record.id.transno;
            self.distributed.0.lock().keep(Arc::clone(&record), self.mdt_index(), here);
            made = Some(record);
        };
        let source = context.map_or_else(|| self.transno_source(), |it| self.source_for(it));
        match self.history.apply(&*self.store, source, build, applied) {
            Ok(transno) => {
                if let Some(context) = context {
                    self.keep_answer(context, transno, recording.record(context, transno));
                }
            }
            Err(Refusal::Store(error)) => return Err(error),
            Err(_) => return Ok(None),
        }
        Ok(made)
    }

    /// The logical time of the next change; `None` if one of `relied_on` has started anew. Under the lock of the order.
    fn time_of_change(&self, relied_on: &[Incarnation], above: LogicalTime) -> Option<LogicalTime> {
        let state = self.distributed.0.lock();
        let is_past = relied_on.iter().any(|incarnation| state.is_past(*incarnation));
        (!is_past).then(|| LogicalTime(state.time.max(above).0.saturating_add(1)))
    }

    /// The record of a change that was durable here before the start; one without parts if it is complete.
    fn record_or_complete(&self, id: ChangeId) -> Arc<UpdateRecord> {
        let complete = || Arc::new(UpdateRecord { id, ..UpdateRecord::default() });
        self.distributed.0.lock().record(id).unwrap_or_else(complete)
    }

    /// Applies this MDT's part of a change that another one coordinates, with the record, as one transaction: once for
    /// each change, whatever is sent again. `changes` are what the part's updates come to in this store. With a
    /// `context`, the record of its answer is of the same transaction.
    ///
    /// `sender` is who sends the part, and since when.
    ///
    /// # Errors
    /// Those of [`Store::apply`]; then nothing was changed.
    pub fn transact_part(
        &self,
        context: Option<&Context>,
        sender: Incarnation,
        record: &Arc<UpdateRecord>,
        changes: Transaction,
    ) -> Result<PartApplied, StoreError> {
        let done = ReplyRecording::Done;
        let encoded = record.encode().map_err(Refusal::from);
        let build = |transno| {
            self.may_apply(record.id, sender)?;
            self.must_be_noted([record.id.coordinator])?;
            let mut transaction = changes;
            let keys = self.undurable.keys_of(&transaction);
            put_record(&mut transaction, record.id, encoded?);
            if self.recovery.is_running() {
                RecoveryLosses { clients: false, changes: true }.put(&mut transaction);
            }
            match context {
                Some(context) => {
                    let answer = done.record(context, transno);
                    self.put_answer(&mut transaction, context, transno, answer.as_ref());
                }
                None => put_transno(&mut transaction, transno.max(self.history.last())),
            }
            Ok((transaction, (transno, keys)))
        };
        let applied = |sequence, (transno, keys)| {
            self.note_written(sequence, keys);
            self.distributed.0.lock().keep(Arc::clone(record), self.mdt_index(), transno);
        };
        let source = context.map_or_else(|| self.transno_source(), |it| self.source_for(it));
        match self.history.apply(&*self.store, source, build, applied) {
            Ok(transno) => {
                if let Some(context) = context {
                    self.keep_answer(context, transno, done.record(context, transno));
                }
                Ok(PartApplied::Now(transno))
            }
            Err(Refusal::Store(error)) => Err(error),
            Err(Refusal::Before(transno)) => Ok(PartApplied::Before(transno)),
            Err(Refusal::NotNoted) => Ok(PartApplied::NotNoted),
            Err(Refusal::StartedAnew | Refusal::Known) => Ok(PartApplied::TooLate),
        }
    }

    /// Under the lock of the order.
    fn may_apply(&self, id: ChangeId, sender: Incarnation) -> Result<(), Refusal> {
        let state = self.distributed.0.lock();
        // Also what was applied: it is in the answer that the sender's new incarnation has.
        if state.is_past(sender) {
            return Err(Refusal::StartedAnew);
        }
        state.applied_as(id).map_or(Ok(()), |transno| Err(Refusal::Before(transno)))
    }

    /// As which transaction this MDT's part of a change is here, whatever has become of the record; 0 if that is durable.
    #[must_use]
    pub fn part_here(&self, id: ChangeId) -> Option<Transno> {
        self.distributed.0.lock().applied_as(id)
    }

    /// Another MDT has applied its part of a change that this one coordinates, as this transaction; 0 if that is durable.
    pub fn part_applied(&self, id: ChangeId, mdt: MdtIndex, transno: Transno) {
        self.distributed.0.lock().part_applied(id, mdt, transno);
    }

    /// Another MDT is durable up to this one of its transactions.
    pub fn durable_on(&self, mdt: MdtIndex, upto: Transno) {
        self.distributed.0.lock().durable_on(mdt, upto);
    }

    /// Which changes that this MDT coordinates are durable on all their participants, of those whose records it has.
    #[must_use]
    pub fn completion(&self) -> Option<Completion> {
        // A change of before the start is durable here, or it is not known.
        let durable = self.last_committed();
        self.distributed.0.lock().completion(durable)
    }

    /// Which changes that this MDT coordinates were said to be complete.
    #[must_use]
    pub fn completed(&self) -> Completion {
        self.distributed.0.lock().note_of(self.mdt_index())
    }

    /// Removes the records of changes that are complete, as their coordinator says: first of all that have a part,
    /// last the coordinator itself.
    ///
    /// # Errors
    /// Those of [`Store::apply`]; then nothing was changed.
    pub fn complete(&self, coordinator: MdtIndex, said: &Completion) -> Result<(), StoreError> {
        let build = |transno| {
            let state = self.distributed.0.lock();
            let (note, gone) = state.completed(coordinator, said).ok_or(Refusal::Known)?;
            let mut transaction = Transaction::new();
            gone.iter().for_each(|id| delete_record(&mut transaction, *id));
            put_note(&mut transaction, coordinator, &note);
            put_transno(&mut transaction, transno);
            Ok((transaction, (note, gone)))
        };
        let applied = |_, (note, gone): (_, Vec<_>)| {
            self.distributed.0.lock().remove(self.mdt_index(), coordinator, note, &gone);
        };
        match self.history.apply(&*self.store, self.transno_source(), build, applied) {
            Err(Refusal::Store(error)) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Another MDT runs in this incarnation, as its connection shows: what it had applied before, and was not known to be
    /// durable, may be lost.
    pub fn note_incarnation(&self, incarnation: Incarnation) {
        let is_known = self.distributed.0.lock().knows_start(incarnation);
        if !is_known {
            drop(self.answer_recover(incarnation));
        }
    }

    /// Whether an MDT has started anew since it was this one, as far as it is known.
    #[must_use]
    pub fn has_started_anew(&self, incarnation: Incarnation) -> bool {
        self.distributed.0.lock().is_past(incarnation)
    }

    /// What an MDT that has started anew may have lost: the records of all changes that it has a part in and that are
    /// not complete. From here on nothing that an earlier incarnation of it has sent is applied, and nothing that relies
    /// on what that had excluded.
    #[must_use]
    pub fn answer_recover(&self, incarnation: Incarnation) -> Vec<Arc<UpdateRecord>> {
        self.history.in_order(|_| self.distributed.0.lock().start_anew(incarnation))
    }
}
