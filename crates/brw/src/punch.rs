//! OST_PUNCH and OST_FALLOCATE: cutting objects, freeing and reserving their space.

use sheen_store::{AttributePatch, Transaction};
use sheen_target::{Context, Outcome, store_errno};
use sheen_types::{Errno, Extent, Fallocate, Fid, LockMode};
use sheen_wire::md::Valid;
use sheen_wire::messages::{OstFallocate, OstFallocateReply, OstPunch, OstPunchReply};
use sheen_wire::ost::{Obdo, OstBody};

use crate::{Brw, Objects, attributes};

impl<O: Objects> Brw<O> {
    /// Cuts the object at the start of the range, or frees the range.
    ///
    /// # Errors
    /// [`Errno::EFBIG`], [`Errno::EINVAL`] for a range that is none, those of locks and the store.
    pub async fn punch(&self, context: &Context, request: OstPunch) -> Result<Outcome, Errno> {
        let asked = request.ost_body.oa;
        let object = self.objects.find(asked.oi)?;
        let (start, end) = asked.range();
        if start > self.store.object_bytes_max() {
            return Err(Errno::EFBIG);
        }
        let extent = Extent { start, end: Extent::EOF };
        let discarding = start == 0 && end == Extent::EOF;
        let lock = self.lock_if_asked(context, &asked, extent, LockMode::Pw, discarding).await?;
        let applying = context.begin_apply()?;
        let done = match end {
            Extent::EOF => self.store.truncate(object, start),
            end if end > start => self.store.punch(object, start, end - start),
            _ => return Err(Errno::EINVAL),
        };
        self.note_changed(&context.target, object);
        done.map_err(store_errno)?;
        self.stamp(context, object, &asked)?;
        drop(applying);
        self.objects.before_answer(context, object).await?;
        drop(lock);
        let oa = self.describe(&asked, object, O::PUNCH_REPLY_VALID)?;
        let ost_body = Some(OstBody { oa });
        Ok(Outcome::ok(OstPunchReply { ost_body, ..OstPunchReply::default() }))
    }

    /// Reserves or frees the range.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] for other modes, else as [`Brw::punch`].
    pub async fn fallocate(
        &self,
        context: &Context,
        request: OstFallocate,
    ) -> Result<Outcome, Errno> {
        let mut asked = request.ost_body.oa;
        let object = self.objects.find(asked.oi)?;
        let (start, end) = asked.range();
        if asked.fallocate_mode() == 0 && !asked.valid.contains(Valid::MTIME) {
            // Lustre's clients bring no times with this; where the file may grow they are those of
            // the OST, as ext4's.
            let now = context.target.world().clock.wall().seconds;
            (asked.mtime, asked.ctime) = (now, now);
            asked.valid |= Valid::MTIME | Valid::CTIME;
        }
        let length = end.checked_sub(start).filter(|length| *length > 0).ok_or(Errno::EINVAL)?;
        if end > self.store.object_bytes_max() {
            return Err(Errno::EFBIG);
        }
        let extent = Extent { start, end: end - 1 };
        let lock = self.lock_if_asked(context, &asked, extent, LockMode::Pw, false).await?;
        let what = Fallocate::of_mode(asked.fallocate_mode()).ok_or(Errno::EOPNOTSUPP)?;
        let applying = context.begin_apply()?;
        let allocate = || self.store.allocate(object, start, length, what.keeps_size());
        let punch = || self.store.punch(object, start, length);
        let done = match what {
            Fallocate::Allocate | Fallocate::AllocateKeepSize => allocate(),
            Fallocate::PunchHole => punch(),
            Fallocate::ZeroRange | Fallocate::ZeroRangeKeepSize => {
                punch().and_then(|()| allocate())
            }
        };
        self.note_changed(&context.target, object);
        done.map_err(store_errno)?;
        self.stamp(context, object, &asked)?;
        drop(applying);
        self.objects.before_answer(context, object).await?;
        drop(lock);
        let oa = self.describe(&asked, object, attributes::ALWAYS)?;
        let ost_body = Some(OstBody { oa });
        Ok(Outcome::ok(OstFallocateReply { ost_body, ..OstFallocateReply::default() }))
    }

    /// The times that the request brings.
    fn stamp(&self, context: &Context, object: Fid, asked: &Obdo) -> Result<(), Errno> {
        let before = self.store.attributes(object).map_err(store_errno)?;
        let patch = self.objects.stamp(context, object, asked, &before);
        if patch != AttributePatch::default() {
            let mut change = Transaction::new();
            change.patch(object, patch);
            self.store.apply(change).map_err(store_errno)?;
        }
        Ok(())
    }
}
