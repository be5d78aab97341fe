//! OST_CREATE: objects ahead of use for an MDT, and the removal of those that it never used.

use std::cell::Cell;

use sheen_store::{Store, StoreError, Transaction};
use sheen_target::{Context, Outcome, ReplyRecording, store_errno};
use sheen_types::{Errno, Fid, Transno};
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstCreate, OstCreateReply};
use sheen_wire::ost::{Obdo, ObdoFlags, OstBody, OstId};

use crate::limits::{CREATE_MAX, ORPHANS_MAX};
use crate::mdt_progress::{MdtProgress, Reported};
use crate::{Ost, objects};

/// Objects in one transaction.
const STEP: u64 = 512;
/// An MDT counts from here, and gives no file the object of this id.
const ID_UNUSED: u64 = 1;

/// Orphans that hold data.
#[derive(Default)]
struct Written {
    objects: Cell<u64>,
    bytes: Cell<u64>,
}

/// What an MDT that came back wants, and what this OST has.
struct Orphans {
    sequence: u64,
    /// The MDT's last id.
    used: u64,
    /// Ours.
    last: u64,
    /// What is known of the MDT from now on.
    progress: Option<MdtProgress>,
}

impl Written {
    fn count(&self, bytes: u64) {
        self.objects.set(self.objects.get() + 1);
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }
}

/// The bytes of an object that has been written to; `None` for one that was only created. What is lost or damaged
/// was written.
fn bytes_of(store: &dyn Store, object: Fid) -> Result<Option<u64>, StoreError> {
    match store.attributes(object) {
        Ok(found) => Ok((found.blocks > 0 || found.size > 0).then_some(found.size)),
        Err(StoreError::Damaged(_)) => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

fn put(progress: Option<MdtProgress>, change: &mut Transaction, sequence: u64) {
    progress.iter().for_each(|progress| progress.put(change, sequence));
}

impl Ost {
    /// Creates up to the id that the request names and answers with the last one there is; with
    /// `DELORPHAN` removes those above the id that are no file's.
    pub(crate) async fn create(
        &self,
        context: &Context,
        request: OstCreate,
    ) -> Result<Outcome, Errno> {
        let asked = request.ost_body.oa;
        let (number, wanted) = (objects::sequence_of(asked.oi)?, asked.oi.id());
        self.check_sequence(context, number)?;
        let sequence = self.sequences.of(number);
        let mut last = sequence.last.lock().await;
        // If it fails in the middle, what it has made by then is looked up at the next time.
        let before = match last.take() {
            Some(last) => last,
            None => objects::last_id(&*self.store, number)?,
        };
        let known = MdtProgress::load(&*self.store, number).map_err(store_errno)?;
        let reported = Reported::of(&asked);
        let after = if asked.has_flag(ObdoFlags::DELORPHAN) {
            let progress = MdtProgress::after_restart(known, reported, before);
            let orphans = Orphans { sequence: number, used: wanted, last: before, progress };
            self.remove_orphans(context, &orphans)?
        } else {
            let progress = reported.map(|it| MdtProgress::after_create(known, it));
            self.create_up_to(context, number, (before, wanted), progress)?
        };
        *last = Some(after);
        drop(last);
        // The MDT gives these objects to files as soon as it has the answer, and clients keep no
        // copy of what they wrote and saw answered: an object must not be lost after that. What was
        // written lies in its file, so its record is all that has to be durable.
        if context.transno() == Transno(0) {
            // They are there, but perhaps only in memory, from a request that has failed since or still waits.
            context.target.transact_locally(Transaction::new()).map_err(store_errno)?;
        }
        let durable = context.target.wait_until_all_committed().await;
        durable.map_err(|errno| context.fail_after_execution(errno))?;
        let oi = match number {
            sheen_types::fid_seq::OST_MDT0 => OstId::of_id(after),
            sequence => OstId { word0: sequence, word1: after },
        };
        let oa = Obdo { oi, valid: asked.valid | Valid::ID | Valid::GROUP, ..asked };
        let ost_body = Some(OstBody { oa });
        Ok(Outcome::ok(OstCreateReply { ost_body, ..OstCreateReply::default() }))
    }

    /// An id that exists already is no error: the request is a repetition.
    fn create_up_to(
        &self,
        context: &Context,
        sequence: u64,
        (before, wanted): (u64, u64),
        progress: Option<MdtProgress>,
    ) -> Result<u64, Errno> {
        if wanted <= before {
            return Ok(before);
        }
        if wanted - before > CREATE_MAX {
            tracing::warn!(
                target = context.target.name(),
                sequence,
                wanted,
                last = before,
                "refused to create more objects at once than an MDT may ask for"
            );
            return Err(Errno::EINVAL);
        }
        let now = context.target.world().clock.wall();
        self.in_steps(context, before + 1, wanted, |change, id| {
            objects::create(change, objects::fid_in(sequence, id, self.index)?, now);
            objects::put_last_id(change, sequence, id);
            put(progress, change, sequence);
            Ok(())
        })?;
        Ok(wanted)
    }

    /// After it the MDT and this OST agree on the last id.
    ///
    /// An object above the MDT's last id that holds data was a file's, which the MDT has lost: by a crash, then no client
    /// has it either and it is removed, or because the MDT is an older copy or another one, then it is kept for
    /// `sheen fsck -y` ([`MdtProgress`]). Lustre's OST destroys both.
    ///
    /// An MDT that is ahead has given files objects that this OST does not have. The OST answered for each of them
    /// when it was durable: so they are lost (an older copy of the OST, a salvaged one), or a client has named them
    /// in a replay. They stay missing, and a read of them fails: made again, empty, they would pass for files
    /// without data. Lustre's OST makes the last of them again: there creates are answered before they are durable.
    fn remove_orphans(&self, context: &Context, orphans: &Orphans) -> Result<u64, Errno> {
        let Orphans { sequence, used, last, progress } = *orphans;
        let target = context.target.name();
        if used > last {
            let missing = last.max(ID_UNUSED) + 1..=used;
            if !missing.is_empty() {
                let (first, last) = (missing.start(), missing.end());
                if context.target.is_new() {
                    tracing::warn!(
                        target,
                        sequence,
                        first,
                        last,
                        "the target that had this one's place has taken objects of files with it; sheen fsck names the \
                         files"
                    );
                    return self.skip_ids(context, orphans, used);
                }
                tracing::error!(
                    target,
                    sequence,
                    first,
                    last,
                    "the MDT has used objects that this OST does not have: they are lost, or a client has named them \
                     in a replay; sheen fsck names the files"
                );
            }
            return self.skip_ids(context, orphans, used);
        }
        if last - used > ORPHANS_MAX {
            tracing::warn!(
                target,
                sequence,
                used,
                last,
                "refused to remove as orphans more objects than an MDT may have in advance: they are kept"
            );
            let progress = progress.map(|it| it.keeping(last));
            return self.skip_ids(context, &Orphans { progress, ..*orphans }, last);
        }
        let (kept, removed) = (Written::default(), Written::default());
        let keeps = |id| progress.is_none_or(|it| it.keeps(id));
        self.in_steps(context, used + 1, last, |change, id| {
            let fid = objects::fid_in(sequence, id, self.index)?;
            put(progress, change, sequence);
            match bytes_of(&*self.store, fid) {
                Ok(Some(bytes)) if keeps(id) => kept.count(bytes),
                Ok(bytes) => {
                    bytes.into_iter().for_each(|bytes| removed.count(bytes));
                    objects::destroy(change, fid);
                }
                Err(StoreError::NoObject(_)) => {}
                // The MDT asks again; what is passed over now would not be found later.
                Err(error) => return Err(store_errno(error)),
            }
            Ok(())
        })?;
        let (objects, bytes) = (removed.objects.get(), removed.bytes.get());
        if objects > 0 {
            tracing::info!(
                target,
                sequence,
                objects,
                bytes,
                "removed what was written to files whose creation was lost in a crash of the MDT and its clients"
            );
        }
        let (objects, bytes) = (kept.objects.get(), kept.bytes.get());
        if objects > 0 {
            tracing::error!(
                target,
                sequence,
                used,
                last,
                objects,
                bytes,
                "the MDT knows no file that has these objects, and they hold data: they are kept, and sheen fsck -y gives \
                 them names in /lost+found"
            );
        }
        // The ids are not used again: an MDT that comes back from further in its past may know them.
        Ok(last)
    }

    /// Makes `last` the last id without making objects.
    fn skip_ids(&self, context: &Context, orphans: &Orphans, last: u64) -> Result<u64, Errno> {
        let mut change = Transaction::new();
        objects::put_last_id(&mut change, orphans.sequence, last);
        put(orphans.progress, &mut change, orphans.sequence);
        let done = context.target.transact(context, change, ReplyRecording::Idempotent);
        done.map(|_| last).map_err(store_errno)
    }

    /// Ids `first..=last` in transactions of [`STEP`] each. Only the last one is the request's own:
    /// if we crash before it, the MDT asks again and finds the rest done.
    fn in_steps(
        &self,
        context: &Context,
        first: u64,
        last: u64,
        step: impl Fn(&mut Transaction, u64) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut from = first;
        loop {
            let to = last.min(from + STEP - 1);
            let mut change = Transaction::new();
            for id in from..=to {
                step(&mut change, id)?;
            }
            if to == last {
                let done = context.target.transact(context, change, ReplyRecording::Idempotent);
                return done.map(|_| ()).map_err(store_errno);
            }
            self.store.apply(change).map_err(store_errno)?;
            from = to + 1;
        }
    }
}
