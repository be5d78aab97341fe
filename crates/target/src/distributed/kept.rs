//! What is known of changes over several MDTs that are not complete: their records, and how far their parts are.

use std::collections::BTreeMap;
use std::sync::Arc;

use sheen_types::{ChangeId, LogicalTime, MdtIndex, Transno};
use sheen_wire::update_record::UpdateRecord;

use super::log::{Log, Note};
use super::{Completion, Incarnation};
use crate::limits::COMPLETION_EXCEPTIONS_MAX;

/// How far another MDT's part is, as its coordinator knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartState {
    /// Not known to be applied.
    Unknown,
    /// Applied, as this transaction there.
    Applied(Transno),
    /// Durable.
    Durable,
}

/// A change whose record is kept.
struct Kept {
    record: Arc<UpdateRecord>,
    /// The parts of other MDTs, if this MDT coordinates it.
    elsewhere: BTreeMap<MdtIndex, PartState>,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct State {
    /// No smaller than that of any change that has a part here.
    pub(super) time: LogicalTime,
    kept: BTreeMap<ChangeId, Kept>,
    notes: BTreeMap<MdtIndex, Note>,
    /// The newest incarnation of each MDT that has asked what it lost.
    started: BTreeMap<MdtIndex, u32>,
}

/// All changes of a coordinator.
fn changes_of(coordinator: MdtIndex) -> std::ops::RangeInclusive<ChangeId> {
    let at = |transno| ChangeId { coordinator, transno };
    at(Transno(0))..=at(Transno(u64::MAX))
}

impl State {
    /// What a store has, for the MDT with the index `own`.
    pub(super) fn of(log: Log, own: MdtIndex) -> Self {
        let times = log.notes.values().map(|note| note.time);
        let mut state = Self { time: times.max().unwrap_or_default(), ..Self::default() };
        state.notes = log.notes;
        log.records.into_iter().for_each(|record| state.keep(Arc::new(record), own));
        state
    }

    pub(super) fn keep(&mut self, record: Arc<UpdateRecord>, own: MdtIndex) {
        self.time = self.time.max(record.time);
        let is_own = record.id.coordinator == own;
        let elsewhere = record.parts.iter().filter(|part| is_own && part.mdt != own);
        let elsewhere = elsewhere.map(|part| (part.mdt, PartState::Unknown)).collect();
        self.kept.insert(record.id, Kept { record, elsewhere });
    }

    /// Whether the part of a change was applied here, whatever has become of its record.
    pub(super) fn knows(&self, id: ChangeId) -> bool {
        let is_complete = |note: &Note| note.has(id.transno);
        self.kept.contains_key(&id) || self.notes.get(&id.coordinator).is_some_and(is_complete)
    }

    pub(super) fn record(&self, id: ChangeId) -> Option<Arc<UpdateRecord>> {
        self.kept.get(&id).map(|kept| Arc::clone(&kept.record))
    }

    /// Whether the MDT has started anew since it was this one.
    pub(super) fn is_past(&self, incarnation: Incarnation) -> bool {
        let newest = self.started.get(&incarnation.mdt);
        newest.is_some_and(|newest| *newest > incarnation.starts)
    }

    /// An MDT has started anew: what it had applied and was not known to be durable there may be lost. All records of changes
    /// that it has a part in.
    pub(super) fn start_anew(&mut self, incarnation: Incarnation) -> Vec<Arc<UpdateRecord>> {
        let Incarnation { mdt, starts } = incarnation;
        let newest = self.started.entry(mdt).or_default();
        let is_new = starts > *newest;
        *newest = starts.max(*newest);
        for kept in self.kept.values_mut().filter(|_| is_new) {
            if let Some(part @ PartState::Applied(_)) = kept.elsewhere.get_mut(&mdt) {
                *part = PartState::Unknown;
            }
        }
        let named = self.kept.values().filter(|kept| kept.record.part_of(mdt).is_some());
        named.map(|kept| Arc::clone(&kept.record)).collect()
    }

    pub(super) fn part_applied(&mut self, id: ChangeId, mdt: MdtIndex, transno: Transno) {
        let part = self.kept.get_mut(&id).and_then(|kept| kept.elsewhere.get_mut(&mdt));
        if let Some(part) = part.filter(|part| **part == PartState::Unknown) {
            *part = PartState::Applied(transno);
        }
    }

    pub(super) fn durable_on(&mut self, mdt: MdtIndex, upto: Transno) {
        for kept in self.kept.values_mut() {
            if let Some(part) = kept.elsewhere.get_mut(&mdt)
                && matches!(part, PartState::Applied(transno) if *transno <= upto)
            {
                *part = PartState::Durable;
            }
        }
    }

    /// What can be said of the changes that this MDT, whose transactions are durable up to `durable`, coordinates.
    pub(super) fn completion(&self, own: MdtIndex, durable: Transno) -> Option<Completion> {
        let is_complete = |kept: &Kept| {
            kept.record.id.transno <= durable
                && kept.elsewhere.values().all(|part| *part == PartState::Durable)
        };
        let (mut except, mut upto, mut excepted) = (Vec::new(), None, 0);
        for (id, kept) in self.kept.range(changes_of(own)) {
            match is_complete(kept) {
                true => (upto, excepted) = (Some(id.transno), except.len()),
                false if except.len() == COMPLETION_EXCEPTIONS_MAX => break,
                false => except.push(id.transno),
            }
        }
        except.truncate(excepted);
        upto.map(|upto| Completion { upto, except })
    }

    /// The coordinator's note with this said, and the changes whose records go; `None` if it says nothing new.
    pub(super) fn completed(
        &self,
        coordinator: MdtIndex,
        said: &Completion,
    ) -> Option<(Note, Vec<ChangeId>)> {
        let before = self.notes.get(&coordinator).cloned().unwrap_or_default();
        let mut note = Note { time: self.time.max(before.time), ..before.clone() };
        let still = |transno: &Transno| *transno > said.upto || said.except.contains(transno);
        note.except.retain(still);
        // What was complete stays so, whatever an older message says.
        note.except.extend(said.except.iter().filter(|transno| **transno > before.upto));
        note.upto = before.upto.max(said.upto);
        let gone = self.kept.range(changes_of(coordinator)).map(|(id, _)| *id);
        let gone: Vec<_> = gone.filter(|id| note.has(id.transno)).collect();
        let is_new = (note.upto, &note.except) != (before.upto, &before.except);
        (is_new || !gone.is_empty()).then_some((note, gone))
    }

    pub(super) fn remove(&mut self, coordinator: MdtIndex, note: Note, gone: &[ChangeId]) {
        self.notes.insert(coordinator, note);
        gone.iter().for_each(|id| _ = self.kept.remove(id));
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }
}
