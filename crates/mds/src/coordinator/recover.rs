//! What this MDT does about changes over several MDTs when it has started anew, and when other MDTs have: it asks what it has lost,
//! sends the parts that other MDTs lack of its changes, and releases what its earlier starts have excluded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sheen_io::{BoxFuture, logged, within};
use sheen_rpc::{Call, CallKind, ImportState};
use sheen_store::Transaction;
use sheen_target::{Completion, EACH_LINE, Incarnation, Redo, Target, store_errno};
use sheen_types::{ChangeId, Errno, MdtIndex};
use sheen_wire::out::{
    BUFFER_BYTES_MAX, Complete, ObjectUpdate, PARAM_BYTES_MAX, PartAnswer, Recover, Recovered,
    Release, ReleaseFlags, SentPart, UpdateResult,
};
use sheen_wire::update_record::UpdateRecord;

use super::ask::{RESULT_BYTES, read, request_of, results_of};
use super::execute::is_final;
use crate::Mdt;
use crate::other_mdts::Order;

/// Between two tries to reach an MDT that is away.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one try waits for its answer. The connection may break, and the MDT then be one that recovers itself.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Records of changes that come in pieces.
#[derive(Debug, Default)]
pub(crate) struct RecordsBeingRead {
    records: Vec<UpdateRecord>,
    /// The last one that is whole.
    after: ChangeId,
    /// What there is of the next one, and which that is.
    begun: BytesMut,
    id: ChangeId,
}

impl RecordsBeingRead {
    /// What is to be asked next.
    pub(crate) fn next(&self, starts: u32) -> Recover {
        let ChangeId { coordinator, transno } = self.after;
        let offset = u32::try_from(self.begun.len()).unwrap_or(u32::MAX);
        Recover { starts, coordinator, transno, offset, ..Recover::default() }
    }

    /// Takes an answer in; whether there is more.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] for records that are none.
    pub(crate) fn add(&mut self, said: Recovered) -> Result<bool, Errno> {
        if said.has_more && said.pieces.is_empty() {
            return Err(Errno::EPROTO);
        }
        for piece in said.pieces {
            let is_next = piece.offset as usize == self.begun.len()
                && (self.begun.is_empty() || piece.id == self.id);
            if piece.total as usize > BUFFER_BYTES_MAX {
                return Err(Errno::EPROTO);
            }
            if !is_next || piece.bytes.is_empty() || piece.id <= self.after {
                // That which had begun is complete meanwhile, and gone. Unless something had, nothing new is said.
                let had_begun = !std::mem::take(&mut self.begun).is_empty();
                return if had_begun { Ok(true) } else { Err(Errno::EPROTO) };
            }
            self.id = piece.id;
            self.begun.extend_from_slice(&piece.bytes);
            if self.begun.len() > piece.total as usize {
                return Err(Errno::EPROTO);
            }
            if self.begun.len() == piece.total as usize {
                let whole: Bytes = std::mem::take(&mut self.begun).freeze();
                self.records.push(UpdateRecord::decode(&whole).map_err(logged!(
                    Errno::EPROTO,
                    "another MDT's update record cannot be read"
                ))?);
                self.after = piece.id;
            }
        }
        Ok(said.has_more)
    }

    pub(crate) fn into_records(self) -> Vec<UpdateRecord> {
        self.records
    }
}

impl Redo for Mdt {
    fn changes_of(&self, updates: &[ObjectUpdate]) -> Result<Transaction, Errno> {
        Self::changes_of(self, updates)
    }

    fn recover<'a>(
        &'a self,
        target: &'a Arc<Target>,
        mdt: MdtIndex,
    ) -> BoxFuture<'a, Vec<UpdateRecord>> {
        Box::pin(async move {
            let mut is_said = false;
            loop {
                match self.ask_records(target, mdt).await {
                    Ok(records) => return records,
                    Err(_) if self.other_mdts.has_other_format(mdt.0) => {
                        if !std::mem::replace(&mut is_said, true) {
                            tracing::error!(target: EACH_LINE, target = target.name(),
                                "MDT{:04x} is of another build: its records of changes over several MDTs have another format than \
                                 ours. Recovery waits until both are of the same one, or for lctl abort_recovery_mdt", mdt.0);
                        }
                        pause(target).await;
                    }
                    Err(errno) => {
                        tracing::debug!(target = target.name(), mdt = mdt.0, %errno, "asks again what was lost");
                        pause(target).await;
                    }
                }
            }
        })
    }

    fn send_parts<'a>(&'a self, target: &'a Arc<Target>, mdt: MdtIndex) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            for record in target.missing_parts(mdt) {
                while self.send_missing_part(target, mdt, &record).await.is_err() {
                    pause(target).await;
                }
            }
        })
    }

    fn hide_unfinished(&self, target: &Target) {
        self.hide_unfinished_parts(target);
    }

    fn release_earlier<'a>(&'a self, target: &'a Arc<Target>, mdt: MdtIndex) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            while self.try_release_earlier(target, mdt).await.is_err() {
                pause(target).await;
            }
        })
    }
}

/// Before something is tried again that depends on other MDTs.
pub(super) async fn pause(target: &Target) {
    let clock = &target.world().clock;
    clock.sleep_until(clock.now() + PAUSE).await;
}

impl Mdt {
    /// Asks another MDT, also while it recovers.
    async fn ask_in_recovery(
        &self,
        target: &Target,
        mdt: MdtIndex,
        update: ObjectUpdate,
        result_bytes: u32,
    ) -> Result<Vec<UpdateResult>, Errno> {
        let channel = self.known_partner(mdt)?;
        let kind = match channel.state() {
            ImportState::Full => CallKind::NoResend,
            _ => CallKind::Recovery,
        };
        let call = request_of(&[update], result_bytes, Order::Awaited).map_err(logged!(
            Errno::E2BIG,
            "a question for another MDT is larger than a message"
        ))?;
        let answer = channel.call(Call { kind, ..call });
        let answer = within(&*target.world().clock, ANSWERS_WITHIN, answer).await;
        // What was agreed on before is not known to hold on.
        Ok(results_of(answer.ok_or(Errno::ETIMEDOUT)?, 1)?)
    }

    async fn ask_records(
        &self,
        target: &Target,
        mdt: MdtIndex,
    ) -> Result<Vec<UpdateRecord>, Errno> {
        let mut reading = RecordsBeingRead::default();
        let mut under_way = BTreeMap::new();
        loop {
            let asked = ObjectUpdate::recover(&reading.next(target.incarnation().starts));
            let room = PARAM_BYTES_MAX as u32 + RESULT_BYTES;
            let results = self.ask_in_recovery(target, mdt, asked, room).await?;
            let said = Recovered::decode(&results.first().ok_or(Errno::EPROTO)?.data);
            let said = said.map_err(logged!(
                Errno::EPROTO,
                "another MDT's answer in recovery cannot be read"
            ))?;
            target.note_incarnation(Incarnation { mdt, starts: said.starts });
            // It may have said so before, and the removal of the records was lost here.
            let Complete { upto, except } = said.complete.clone();
            target.complete(mdt, &Completion { upto, except }).map_err(store_errno)?;
            let coordinator = Incarnation { mdt, starts: said.starts };
            let exclusions = said.under_way.iter().map(|it| (it.transno, it.exclusion));
            let exclusions = exclusions.map(|(transno, number)| (transno, (coordinator, number)));
            under_way.extend(exclusions);
            if !reading.add(said)? {
                let records = reading.into_records();
                for record in records.iter().filter(|record| record.id.coordinator == mdt) {
                    let part = record.part_of(target.mdt_index());
                    if let (Some(under), Some(part)) = (under_way.get(&record.id.transno), part) {
                        self.note_unfinished(record.id, *under, &part.updates)?;
                    }
                }
                return Ok(records);
            }
        }
    }

    /// Sends a part that an MDT may lack: under whatever it still has excluded for it, or, if it has applied it, in vain.
    ///
    /// # Errors
    /// Why it is to be tried again.
    async fn send_missing_part(
        &self,
        target: &Target,
        mdt: MdtIndex,
        record: &UpdateRecord,
    ) -> Result<(), Errno> {
        let starts = target.incarnation().starts;
        let part = SentPart { starts, exclusion: 0, record: record.clone() };
        let update = ObjectUpdate::record(&part)
            .map_err(logged!(Errno::E2BIG, "a part is larger than a message"))?;
        self.note_incarnation_of(target, mdt);
        match self.ask_in_recovery(target, mdt, update, RESULT_BYTES).await {
            Ok(results) => {
                let answer: PartAnswer = read(results.first())?;
                target.part_applied(record.id, mdt, answer.transno);
                self.note_durable(target, mdt);
                Ok(())
            }
            Err(errno) if is_final(errno) => {
                self.log_misfit(target, mdt, record.id, errno);
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    /// A part does not fit any more to what its MDT has: said once.
    pub(super) fn log_misfit(&self, target: &Target, mdt: MdtIndex, id: ChangeId, errno: Errno) {
        if self.coordinator.late.lock().insert((id, mdt)) {
            tracing::error!(target = target.name(), mdt = mdt.0, change = %id, %errno,
                "an MDT recovered without this one, and a part of a change does not fit there any more: it stays \
                 incomplete; check the file system with sheen fsck");
        }
    }

    async fn try_release_earlier(&self, target: &Target, mdt: MdtIndex) -> Result<(), Errno> {
        let starts = target.incarnation().starts;
        let release = Release { starts, flags: ReleaseFlags::EARLIER, number: 0 };
        let update = ObjectUpdate::release(&release);
        self.ask_in_recovery(target, mdt, update, RESULT_BYTES).await?;
        self.coordinator.released.lock().insert(mdt);
        Ok(())
    }

    /// Does, now and then, what a start or a death of another MDT has left to be done.
    pub(super) async fn finish_pending_changes(&self, target: &Arc<Target>, mdts: &[MdtIndex]) {
        for mdt in self.exclusion.distributed.coordinators() {
            target.keep_partner(mdt);
        }
        if target.is_recovering() {
            return;
        }
        let is_there = |mdt: &MdtIndex| {
            self.known_partner(*mdt).is_ok_and(|it| it.state() == ImportState::Full)
        };
        let mut is_all_sent = true;
        for mdt in mdts {
            for record in target.missing_parts(*mdt) {
                let is_under_way = self.coordinator.under_way.lock().contains_key(&record.id);
                let is_late = self.coordinator.late.lock().contains(&(record.id, *mdt));
                let is_of_before = record.id.transno <= target.durable_at_start();
                let is_sent = !is_under_way
                    && is_there(mdt)
                    && self.send_missing_part(target, *mdt, &record).await.is_ok();
                is_all_sent &= is_sent || is_late || !is_of_before;
            }
        }
        for mdt in mdts.iter().filter(|mdt| is_all_sent && is_there(mdt)) {
            let is_released = self.coordinator.released.lock().contains(mdt);
            if !is_released && let Err(errno) = self.try_release_earlier(target, *mdt).await {
                tracing::debug!(target = target.name(), mdt = mdt.0, %errno, "releases later");
            }
        }
    }

    /// Notes with which incarnation of an MDT there is a connection.
    pub(super) fn note_incarnation_of(&self, target: &Target, mdt: MdtIndex) {
        if let Ok(channel) = self.known_partner(mdt) {
            let starts = channel.connect_data().instance;
            target.note_incarnation(Incarnation { mdt, starts });
        }
    }
}
