//! What is known of changes over several MDTs that are not complete: their records, and how far their parts are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sheen_types::{ChangeId, Instant, LogicalTime, MdtIndex, Transno};
use sheen_wire::update_record::UpdateRecord;

use super::log::{CompletionNote, DistributedLog};
use super::partners::Partner;
use super::{Completion, Incarnation};
use crate::limits::COMPLETION_EXCEPTIONS_MAX;

/// A change whose record is kept.
struct KeptChange {
    record: Arc<UpdateRecord>,
    /// What its part became here; 0 if that was before the start, and so is durable.
    here: Transno,
    /// The parts of other MDTs that are not known to be durable, if this MDT coordinates it: as which transaction each
    /// was applied, if that is known.
    elsewhere: BTreeMap<MdtIndex, Option<Transno>>,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct KeptChanges {
    /// No smaller than that of any change that has a part here.
    pub(super) time: LogicalTime,
    kept: BTreeMap<ChangeId, KeptChange>,
    /// Of those that this MDT coordinates: with parts elsewhere that may not be durable, and without.
    open: BTreeSet<Transno>,
    closed: BTreeSet<Transno>,
    /// Parts that were applied on each other MDT and may not be durable there, in its order.
    applied: BTreeMap<MdtIndex, BTreeSet<(Transno, ChangeId)>>,
    /// Whose parts are here, and durable, but whose records cannot be read.
    unreadable: BTreeSet<ChangeId>,
    notes: BTreeMap<MdtIndex, CompletionNote>,
    /// Those that are noted, or going to be.
    pub(super) partners: BTreeMap<MdtIndex, Partner>,
    /// The newest incarnation of each MDT that has asked what it lost.
    started: BTreeMap<MdtIndex, u32>,
}

/// All changes of a coordinator.
fn changes_of(coordinator: MdtIndex) -> std::ops::RangeInclusive<ChangeId> {
    let at = |transno| ChangeId { coordinator, transno };
    at(Transno(0))..=at(Transno(u64::MAX))
}

impl KeptChanges {
    /// What a store has, for the MDT with the index `own`, which starts now.
    pub(super) fn of(log: DistributedLog, own: MdtIndex, now: Instant) -> Self {
        let times = log.notes.values().map(|note| note.time);
        let mut state = Self { time: times.max().unwrap_or_default(), ..Self::default() };
        state.notes = log.notes;
        let partners = log.partners.into_iter();
        state.partners = partners.map(|mdt| (mdt, Partner::of_before(now))).collect();
        // How far the parts of one are that this MDT coordinates is not known: it stays open.
        let own_ones = log.unreadable.iter().filter(|id| id.coordinator == own);
        state.open = own_ones.map(|id| id.transno).collect();
        state.unreadable = log.unreadable.into_iter().collect();
        for record in log.records {
            state.keep(Arc::new(record), own, Transno(0));
        }
        state
    }

    /// The part of a change was applied here, as this transaction.
    pub(super) fn keep(&mut self, record: Arc<UpdateRecord>, own: MdtIndex, here: Transno) {
        let id = record.id;
        self.time = self.time.max(record.time);
        let is_own = id.coordinator == own;
        let elsewhere = record.parts.iter().filter(|part| is_own && part.mdt != own);
        let elsewhere: BTreeMap<_, _> = elsewhere.map(|part| (part.mdt, None)).collect();
        match (is_own, elsewhere.is_empty()) {
            (false, _) => false,
            (true, false) => self.open.insert(id.transno),
            (true, true) => self.closed.insert(id.transno),
        };
        self.kept.insert(id, KeptChange { record, here, elsewhere });
    }

    /// As what the part of a change was applied here, whatever has become of its record; 0 if that is durable.
    pub(super) fn applied_as(&self, id: ChangeId) -> Option<Transno> {
        let is_complete = self.notes.get(&id.coordinator).is_some_and(|note| note.has(id.transno));
        match is_complete || self.unreadable.contains(&id) {
            true => Some(Transno(0)),
            false => self.kept.get(&id).map(|kept| kept.here),
        }
    }

    pub(super) fn record(&self, id: ChangeId) -> Option<Arc<UpdateRecord>> {
        self.kept.get(&id).map(|kept| Arc::clone(&kept.record))
    }

    /// Whether the MDT has started anew since it was this one.
    pub(super) fn is_past(&self, incarnation: Incarnation) -> bool {
        let newest = self.started.get(&incarnation.mdt);
        newest.is_some_and(|newest| *newest > incarnation.starts)
    }

    /// Whether it is not newer than what was heard of.
    pub(super) fn knows_start(&self, incarnation: Incarnation) -> bool {
        self.started.get(&incarnation.mdt).is_some_and(|newest| *newest >= incarnation.starts)
    }

    /// An MDT has started anew: what it had applied and was not known to be durable there may be lost. All records of changes
    /// that it has a part in.
    pub(super) fn start_anew(&mut self, incarnation: Incarnation) -> Vec<Arc<UpdateRecord>> {
        let Incarnation { mdt, starts } = incarnation;
        let newest = self.started.entry(mdt).or_default();
        if starts > *newest {
            *newest = starts;
            for (_, id) in self.applied.remove(&mdt).into_iter().flatten() {
                let part = self.kept.get_mut(&id).and_then(|kept| kept.elsewhere.get_mut(&mdt));
                part.into_iter().for_each(|part| *part = None);
            }
        }
        let named = self.kept.values().filter(|kept| kept.record.part_of(mdt).is_some());
        named.map(|kept| Arc::clone(&kept.record)).collect()
    }

    /// Another MDT has applied its part, as this transaction; 0 if that is durable.
    pub(super) fn part_applied(&mut self, id: ChangeId, mdt: MdtIndex, transno: Transno) {
        let part = self.kept.get_mut(&id).and_then(|kept| kept.elsewhere.get_mut(&mdt));
        if let Some(part @ None) = part {
            *part = Some(transno);
            self.applied.entry(mdt).or_default().insert((transno, id));
        }
    }

    /// Another MDT is durable up to here.
    pub(super) fn durable_on(&mut self, mdt: MdtIndex, upto: Transno) {
        let Some(applied) = self.applied.get_mut(&mdt) else { return };
        while let Some((_, id)) = applied.first().copied().filter(|(at, _)| *at <= upto) {
            applied.pop_first();
            let Some(kept) = self.kept.get_mut(&id) else { continue };
            kept.elsewhere.remove(&mdt);
            if kept.elsewhere.is_empty() && self.open.remove(&id.transno) {
                self.closed.insert(id.transno);
            }
        }
    }

    /// Records of changes of this MDT's whose part on another one is not known to be applied.
    pub(super) fn missing_parts(&self, own: MdtIndex, mdt: MdtIndex) -> Vec<Arc<UpdateRecord>> {
        let lacks = |kept: &&KeptChange| matches!(kept.elsewhere.get(&mdt), Some(None));
        let own_ones = self.kept.range(changes_of(own)).map(|(_, kept)| kept);
        own_ones.filter(lacks).map(|kept| Arc::clone(&kept.record)).collect()
    }

    /// How many records there are.
    pub(super) fn incomplete(&self) -> usize {
        self.kept.len()
    }

    /// What can be said of the changes that this MDT, whose transactions are durable up to `durable`, coordinates.
    pub(super) fn completion(&self, durable: Transno) -> Option<Completion> {
        let too_many = self.open.iter().nth(COMPLETION_EXCEPTIONS_MAX);
        let end = too_many.map_or(Transno(u64::MAX), |transno| *transno);
        let end = end.min(Transno(durable.0.saturating_add(1)));
        let upto = *self.closed.range(..end).next_back()?;
        Some(Completion { upto, except: self.open.range(..upto).copied().collect() })
    }

    /// What was said of a coordinator's changes.
    pub(super) fn note_of(&self, coordinator: MdtIndex) -> Completion {
        let note = self.notes.get(&coordinator).cloned().unwrap_or_default();
        Completion { upto: note.upto, except: note.except.into_iter().collect() }
    }

    /// The coordinator's note with this said, and the changes whose records go; `None` if it says nothing new.
    pub(super) fn completed(
        &self,
        coordinator: MdtIndex,
        said: &Completion,
    ) -> Option<(CompletionNote, Vec<ChangeId>)> {
        let before = self.notes.get(&coordinator).cloned().unwrap_or_default();
        let mut note = CompletionNote { time: self.time.max(before.time), ..before.clone() };
        let still = |transno: &Transno| *transno > said.upto || said.except.contains(transno);
        note.except.retain(still);
        // What was complete stays so, whatever an older message says.
        let is_new = |transno: &Transno| before.upto < *transno && *transno <= said.upto;
        note.except.extend(said.except.iter().filter(|transno| is_new(transno)));
        note.upto = before.upto.max(said.upto);
        let unreadable = self.unreadable.range(changes_of(coordinator));
        let gone = self.kept.range(changes_of(coordinator)).map(|(id, _)| id).chain(unreadable);
        let gone: Vec<_> = gone.copied().filter(|id| note.has(id.transno)).collect();
        let is_new = (note.upto, &note.except) != (before.upto, &before.except);
        (is_new || !gone.is_empty()).then_some((note, gone))
    }

    pub(super) fn remove(
        &mut self,
        own: MdtIndex,
        coordinator: MdtIndex,
        note: CompletionNote,
        gone: &[ChangeId],
    ) {
        self.notes.insert(coordinator, note);
        for id in gone {
            self.kept.remove(id);
            self.unreadable.remove(id);
            if coordinator == own {
                self.open.remove(&id.transno);
                self.closed.remove(&id.transno);
            }
        }
    }

    /// Partners that have been quiet for so long that they are none any more.
    pub(super) fn idle_partners(&self, now: Instant) -> Vec<MdtIndex> {
        if !self.unreadable.is_empty() {
            return Vec::new();
        }
        let takes_part = |mdt| self.kept.values().any(|kept| kept.record.part_of(mdt).is_some());
        let quiet = self.partners.iter().filter(|(_, partner)| partner.is_idle(now));
        quiet.map(|(mdt, _)| *mdt).filter(|mdt| !takes_part(*mdt)).collect()
    }
}
