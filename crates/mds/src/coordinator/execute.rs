//! Applying a change over several MDTs: here, with the record of all parts, and when that is durable on each other MDT.

use std::sync::Arc;
use std::time::Duration;

use sheen_io::logged;
use sheen_rpc::RpcError;
use sheen_target::{ReplyRecording, Target, Wait, store_errno, while_waiting};
use sheen_types::futures::all;
use sheen_types::{ChangeId, Errno, MdtIndex};
use sheen_wire::out::{
    BUFFER_BYTES_MAX, ObjectUpdate, PartAnswer, Release, ReleaseFlags, SentPart, TooMuch,
};
use sheen_wire::update_record::{Part, UpdateRecord};
use tokio::sync::oneshot;

use super::ask::{NotDone, RESULT_BYTES, call_until_let_in, read, request_of, results_of};
use super::exclude::DistributedHold;
use super::initiator::Initiator;
use super::recover::pause;
use crate::Mdt;
use crate::other_mdts::Order;

/// Between a part that was refused and the next try: the MDT's store has failed.
const PAUSE: Duration = Duration::from_secs(5);

/// What has become of a change.
#[must_use]
pub(super) enum Executed {
    /// It is made, on all MDTs.
    Done,
    /// Nothing was changed: an MDT has started anew meanwhile. The operation begins anew, too.
    Again,
    /// Nothing was changed: an inode that was to be closed is open.
    InUse,
}

impl Mdt {
    /// Makes a change, that of a request with the record of its answer: once for each request, after all that may refuse it. What was excluded
    /// for it is released.
    ///
    /// # Errors
    /// [`Errno::E2BIG`] if it is too long to be sent, those of the store of this MDT; then nothing was changed.
    pub(super) async fn execute_distributed(
        &self,
        by: Initiator<'_>,
        held: DistributedHold,
        parts: Vec<Part>,
        recording: ReplyRecording,
    ) -> Result<Executed, Errno> {
        let target = by.target();
        let own = target.incarnation();
        for part in parts.iter().filter(|part| part.mdt != own.mdt) {
            target.note_partner(part.mdt).await?;
        }
        let here = parts.iter().find(|part| part.mdt == own.mdt);
        let updates = here.map(|part| &part.updates[..]).unwrap_or_default();
        let exclusion = held.exclusion_on(own.mdt).map_or(0, |exclusion| exclusion.number);
        may_be_sent(&parts)?;
        let prepared = self.prepare_part(target, own, exclusion, updates).await?;
        // No client opens it as long as that is held, nor as long as it is hidden.
        if held.closed.is_some_and(|inode| self.open_counts.is_open(inode)) {
            return Ok(Executed::InUse);
        }
        // Clients see nothing of what changes here before it is there on all.
        self.note_applied(own, exclusion);
        let transaction = self.changes_of(updates)?;
        let mut named = None;
        let exclusions = held.exclusions().to_vec();
        let build = |id, time| {
            // Before it is known to who looks for parts that other MDTs lack.
            named = Some(id);
            self.coordinator.under_way.lock().insert(id, exclusions);
            (transaction, UpdateRecord { id, time, parts, ..UpdateRecord::default() })
        };
        let (relied_on, above) = (&held.relied_on, held.time);
        let made = target.transact_coordinated(by.request(), relied_on, above, recording, build);
        drop(prepared);
        self.restriper.look_if_noted();
        let under_way = UnderWay { mdt: held.mdt(), id: named };
        let Some(record) = made.map_err(store_errno)? else {
            drop((held, under_way));
            // Not at once: an MDT may be older than it was, from a backup, and then it is so each time.
            tracing::info!(
                target = target.name(),
                "an MDT that a change over several MDTs relied on is not what it was: the change begins anew"
            );
            pause(target).await;
            return Ok(Executed::Again);
        };
        let (done, all_done) = oneshot::channel();
        let (mdt, target) = (held.mdt(), Arc::clone(target));
        let send = async move {
            let _under_way = under_way;
            // From then on it is made, whatever is lost: no one has seen it before.
            if let Err(errno) = target.wait_until_committed(record.id.transno).await {
                tracing::error!(target = target.name(), change = %record.id, %errno,
                    "whether a change over several MDTs is durable is not known before this MDT is started anew");
                return held.keep();
            }
            mdt.send_parts(&target, held, &record).await;
            // The client may be gone.
            _ = done.send(());
        };
        by.target().world().tasks.spawn("parts of a change", Box::pin(send));
        let done = while_waiting(Wait::Mdt, all_done).await;
        // It may have been made, or not: the client asks again when this MDT is back.
        done.map_err(|_| by.leave_unanswered(Errno::ESHUTDOWN))?;
        Ok(Executed::Done)
    }

    /// Sends all their parts: first those that have excluded nothing, whose names no client knows yet.
    async fn send_parts(
        &self,
        target: &Arc<Target>,
        mut held: DistributedHold,
        record: &Arc<UpdateRecord>,
    ) {
        // Where one MDT alone excludes, it shows the change as it applies it. Of several none may before all have.
        let with_release = held.other_mdts() == 1;
        for waits_for_exclusions in [false, true] {
            let mdts = record.parts.iter().map(|part| part.mdt).filter(|mdt| {
                mdt.0 != self.index && held.exclusion_on(*mdt).is_some() == waits_for_exclusions
            });
            let mdts: Vec<_> = mdts.collect();
            let mut sent = Vec::with_capacity(mdts.len());
            for mdt in &mdts {
                let exclusion = held.exclusion_on(*mdt).map_or(0, |exclusion| exclusion.number);
                let release = with_release && exclusion != 0;
                sent.push(self.send_part(target, record, (*mdt, exclusion), release));
            }
            all(sent).await;
            if with_release {
                mdts.into_iter().for_each(|mdt| held.released_with_part(mdt, target));
            }
        }
    }

    /// Sends one MDT its part until that has applied it.
    async fn send_part(
        &self,
        target: &Arc<Target>,
        record: &Arc<UpdateRecord>,
        (mdt, exclusion): (MdtIndex, u64),
        release: bool,
    ) {
        let starts = target.incarnation().starts;
        let message = |exclusion| {
            let part = SentPart { starts, exclusion, record: UpdateRecord::clone(record) };
            let mut updates = vec![ObjectUpdate::record(&part)?];
            if release {
                let release = Release { starts, flags: ReleaseFlags::NONE, number: exclusion };
                updates.push(ObjectUpdate::release(&release));
            }
            Ok::<_, TooMuch>(updates)
        };
        let mut updates = match message(exclusion) {
            Ok(updates) => updates,
            // It was encoded before it was applied here.
            Err(error) => return not_sent(target, mdt, &error),
        };
        let mut has_said = false;
        loop {
            let refused = match self.try_part(&updates, mdt).await {
                Ok(applied) => {
                    self.note_incarnation_of(target, mdt);
                    target.part_applied(record.id, mdt, applied.transno);
                    self.note_durable(target, mdt);
                    return;
                }
                Err(None) => return,
                // It has recovered without this MDT, and has lost what was excluded.
                Err(Some(Errno::ESTALE)) => {
                    match message(0) {
                        Ok(late) => updates = late,
                        Err(error) => return not_sent(target, mdt, &error),
                    }
                    Errno::ESTALE
                }
                Err(Some(refused)) if is_final(refused) => {
                    return self.log_misfit(target, mdt, record.id, refused);
                }
                Err(Some(refused)) => refused,
            };
            if !std::mem::replace(&mut has_said, true) {
                let (mdt, id) = (mdt.0, record.id);
                tracing::error!(target = target.name(), mdt, ?id, errno = %refused,
                    "an MDT does not apply its part of a change: names and inodes of it stay locked there");
            }
            let clock = &target.world().clock;
            clock.sleep_until(clock.now() + PAUSE).await;
        }
    }

    /// `Err(None)`: this MDT stops.
    async fn try_part(
        &self,
        updates: &[ObjectUpdate],
        mdt: MdtIndex,
    ) -> Result<PartAnswer, Option<Errno>> {
        let channel = self.known_partner(mdt).map_err(Some)?;
        let request = || request_of(updates, RESULT_BYTES, Order::Part);
        let call = request()
            .map_err(logged!(Errno::E2BIG, "a part is larger than a message"))
            .map_err(Some)?;
        let answer = call_until_let_in(&*channel, call, request).await;
        if matches!(answer, Err(RpcError::Shutdown)) {
            return Err(None);
        }
        let results = results_of(answer, updates.len()).map_err(|why| match why {
            NotDone::Refused(errno) => Some(errno),
            NotDone::Unknown => Some(Errno::EIO),
        })?;
        read(results.first()).map_err(Some)
    }
}

/// Whether all MDTs can be sent the record of these parts: once it is applied here it cannot be refused any more.
///
/// # Errors
/// [`Errno::E2BIG`].
fn may_be_sent(parts: &[Part]) -> Result<(), Errno> {
    // With its answer, names of its change, and the message around it.
    const AROUND: usize = 64 << 10;
    // What an update has besides its parameters, and each of these before it and behind it.
    const UPDATE: usize = 64;
    let params =
        |update: &ObjectUpdate| update.params.iter().map(|it| it.len() + 16).sum::<usize>();
    let updates = parts.iter().flat_map(|part| &part.updates);
    let length: usize = updates.map(|update| UPDATE + params(update)).sum();
    match length + AROUND <= BUFFER_BYTES_MAX {
        true => Ok(()),
        false => Err(Errno::E2BIG),
    }
}

/// Whether a refusal of a part is not worth another try: it does not fit to what is there.
pub(super) fn is_final(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::EEXIST | Errno::ENOTDIR | Errno::EINVAL | Errno::EPROTO)
}

/// A change of which parts are being sent; or were to be.
struct UnderWay {
    mdt: Arc<Mdt>,
    id: Option<ChangeId>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.mdt.coordinator.under_way.lock().remove(&id);
        }
    }
}

/// A part cannot be encoded, so its MDT does not get it.
fn not_sent(target: &Target, mdt: MdtIndex, error: &TooMuch) {
    tracing::error!(target = target.name(), mdt = mdt.0, %error,
        "a part of a change over several MDTs is too large to be sent: check the file system with sheen fsck");
}
