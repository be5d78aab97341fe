//! MDS_CLOSE: releases an open handle, with the size and times that the client has seen.
//!
//! A client that keeps files open closes them before it releases the lock that it keeps them by. An operation
//! may hold the inode and wait for that lock; or for the lock on another inode that the client releases with
//! the same request, or behind a third operation that does. So a close waits for no operation that waits
//! for a lock on the inode, and for any other no longer than [`PATIENCE`]. It is counted and answered then,
//! and the rest of it is done when the inode is free.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sheen_ldlm::Owner;
use sheen_store::AttributePatch;
use sheen_target::{Context, Outcome, ReplyRecord, ReplyRecording, Target};
use sheen_types::futures::before;
use sheen_types::{Errno, Fid, ResourceName, Timestamp};
use sheen_wire::md::{AttrValid, Bias, MdsOpenFlags, MdtBody, OpenHandle, RecSetattr, Valid};
use sheen_wire::messages::MdsCloseReply;

use crate::change_set::ChangeSet;
use crate::hold::HoldGuard;
use crate::inode::Inode;
use crate::open_table::{OpenFile, OpenTable};
use crate::vouched_sizes::Era;
use crate::{Mdt, xattrs};

/// When it is tried again to destroy an orphan, first and after many failures.
const DESTROY_AGAIN: Duration = Duration::from_secs(5);
const DESTROY_AGAIN_MAX: Duration = Duration::from_secs(300);

/// How often a close that waits for an inode looks whether its holder waits for a lock on it.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How long a close waits for an inode whose holder may wait for anything. An operation that waits for no
/// lock is done long before.
const PATIENCE: Duration = Duration::from_millis(50);

impl Mdt {
    /// Closes. The last close of an orphan destroys it.
    pub(crate) async fn close(
        &self,
        context: &Context,
        handle: OpenHandle,
        record: &RecSetattr,
    ) -> Result<Outcome, Errno> {
        let table = context.export.role::<OpenTable>();
        let Some(file) = table.remove(handle) else {
            if context.is_applied_already() {
                return Ok(closed(Valid::NONE));
            }
            return Ok(Outcome { status: Errno::ESTALE.status(), ..closed(Valid::NONE) });
        };
        let Some(held) = self.hold_unless_awaited(&context.target, &[file.fid]).await else {
            return self.close_without_hold(context, &file, &of_file(&file, record));
        };
        self.close_under_hold(context, &held, &file, record, None)
    }

    /// Closes a file that is not in the client's table any more and whose inode is held, in one transaction with
    /// `swap` if there is one.
    pub(crate) fn close_under_hold(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        file: &OpenFile,
        record: &RecSetattr,
        swap: Option<ChangeSet<'_>>,
    ) -> Result<Outcome, Errno> {
        let record = &of_file(file, record);
        if is_writer(file) && reports_writes(record) {
            self.open_counts.note_written(file.fid);
        }
        // Before it is counted: what is true in a later era was not known in this one.
        let era = self.sizes.era();
        let left = self.open_counts.close(file.fid, file.flags);
        if left.is_known_empty {
            self.known_empty.insert(file.fid);
        }
        let closed_in = era.filter(|_| left.is_closed && !left.is_known_empty);
        // Where nothing may be changed, by this client or by any client, a close only closes.
        let record = Some(record).filter(|_| !self.must_not_change(context));
        let executed = if swap.is_some() { Valid::CLOSE_INTENT_EXECED } else { Valid::NONE };
        let mut changes = swap.unwrap_or_else(|| self.change_set());
        let record = record.map(|record| (record, closed_in));
        let done = after_close(&mut changes, file.fid, left.opens == 0, record);
        let done = done.and_then(|()| {
            let data = u64::from(executed != Valid::NONE);
            let recording = ReplyRecording::Keep { result: 0, data };
            self.execute(context, held, changes, recording)
        });
        if let Err(errno) = done {
            if left.opens == 0 {
                self.destroy_later(&context.target, file.fid);
            }
            return Err(errno);
        }
        Ok(closed(executed))
    }

    /// Answers a close that was executed before. A replay's handle may have been made anew since: it goes.
    pub(crate) async fn repeat_close(
        &self,
        context: &Context,
        handle: OpenHandle,
        record: &RecSetattr,
        before: &ReplyRecord,
    ) -> Result<Outcome, Errno> {
        let table = context.export.role::<OpenTable>();
        if context.replay().is_some() && table.contains(handle) {
            return self.close(context, handle, record).await;
        }
        if context.replay().is_some() {
            let done = self.record_answer(context, ReplyRecording::Done);
            return done.map(|_| closed(Valid::NONE));
        }
        let executed = before.data == 1 && before.result == 0;
        let executed = if executed { Valid::CLOSE_INTENT_EXECED } else { Valid::NONE };
        Ok(Outcome { status: before.result, ..closed(executed) })
    }

    /// Holds inodes; `None` while a holder waits for a lock on one, or for longer than a close may wait.
    pub(crate) async fn hold_unless_awaited(
        &self,
        target: &Arc<Target>,
        files: &[Fid],
    ) -> Option<HoldGuard<'_>> {
        let mut held = pin!(self.hold_inodes(files));
        let clock = &target.world().clock;
        let until = clock.now() + PATIENCE;
        loop {
            if let Some(held) = before(held.as_mut(), std::future::ready(())).await {
                return Some(held);
            }
            if files.iter().any(|fid| is_awaited(target, *fid)) || clock.now() >= until {
                return None;
            }
            let later = clock.sleep_until(clock.now() + LOOK_AGAIN);
            if let Some(held) = before(held.as_mut(), later).await {
                return Some(held);
            }
        }
    }

    /// Closes while another operation holds the inode. What it finds is a file that is not open any more; if it had
    /// found it open, and left an orphan, the rest of the close destroys that.
    fn close_without_hold(
        &self,
        context: &Context,
        file: &OpenFile,
        record: &RecSetattr,
    ) -> Result<Outcome, Errno> {
        self.open_counts.close_without_hold(file.fid, file.flags);
        let done = self.record_answer(context, ReplyRecording::Done);
        let (mdt, target) = (Weak::clone(&self.me), Arc::clone(&context.target));
        let may_change = !self.must_not_change(context);
        let (fid, record) = (file.fid, may_change.then(|| record.clone()));
        let finish = async move {
            let Some(mdt) = mdt.upgrade() else { return };
            if let Err(errno) = mdt.finish_close(&target, fid, record.as_ref()).await {
                tracing::warn!(target = target.name(), %fid, %errno,
                    "a file is closed, but the times and size that came with it are lost");
                mdt.destroy_later(&target, fid);
            }
        };
        context.target.world().tasks.spawn("close", Box::pin(finish));
        done.map(|_| closed(Valid::NONE))
    }

    /// Does [`after_close`] without a request.
    async fn finish_close(
        &self,
        target: &Arc<Target>,
        fid: Fid,
        record: Option<&RecSetattr>,
    ) -> Result<(), Errno> {
        let held = self.hold_inodes(&[fid]).await;
        let is_last = !self.open_counts.is_open(fid);
        let record = record.map(|record| (record, None));
        let mut changes = self.change_set();
        after_close(&mut changes, fid, is_last, record)?;
        if !changes.is_empty() {
            self.execute_locally(target, &held, changes)?;
        }
        Ok(())
    }

    /// Destroying an orphan failed on the disk, and no file may need it any more: it is tried again,
    /// until the MDT ends. Its next start looks for orphans anyway.
    fn destroy_later(&self, target: &Arc<Target>, fid: Fid) {
        let (mdt, weak) = (Weak::clone(&self.me), Arc::downgrade(target));
        let clock = Arc::clone(&target.world().clock);
        let again = async move {
            let mut pause = DESTROY_AGAIN;
            loop {
                clock.sleep_until(clock.now() + pause).await;
                let (Some(mdt), Some(target)) = (mdt.upgrade(), weak.upgrade()) else { return };
                if mdt.finish_close(&target, fid, None).await.is_ok() {
                    return;
                }
                pause = (pause * 2).min(DESTROY_AGAIN_MAX);
            }
        };
        target.world().tasks.spawn("destroy orphan", Box::pin(again));
    }

    /// Closes a file that its client cannot close: the client is gone, or never got the handle.
    pub(crate) async fn close_for_client(
        &self,
        target: &Arc<Target>,
        file: OpenFile,
    ) -> Result<(), Errno> {
        // It may have written, and may be writing still.
        if is_writer(&file) {
            self.sizes.end_confirmation(file.fid);
            self.open_counts.forget_known_writers_of(file.fid);
        }
        self.open_counts.close_without_hold(file.fid, file.flags);
        let done = self.finish_close(target, file.fid, None).await;
        done.inspect_err(|_| self.destroy_later(target, file.fid))
    }
}

/// Whether an operation of the server's own waits for a lock on the inode.
fn is_awaited(target: &Target, fid: Fid) -> bool {
    let locks = target.namespace().dump(ResourceName::of_fid(fid));
    locks.iter().any(|lock| lock.owner == Owner::Local && lock.desc.granted.is_none())
}

fn is_writer(file: &OpenFile) -> bool {
    file.flags.contains(MdsOpenFlags::WRITE)
}

/// What a close may report of its file: by the access that the open was given, and judged for. Lustre
/// takes sizes of any handle, and all times of any that reads, executes or writes.
fn may_report(file: &OpenFile, reported: AttrValid) -> AttrValid {
    let reads = file.flags.intersects(MdsOpenFlags::READ | MdsOpenFlags::EXEC);
    let reported = if reads { reported } else { reported.without(AttrValid::ATIME) };
    match (is_writer(file), reported.contains(AttrValid::ATIME)) {
        (true, _) => reported,
        (false, true) => AttrValid::ATIME,
        (false, false) => AttrValid::NONE,
    }
}

/// Whether a close reports that data was written, or might have been: Lustre's clients send a size
/// with every close of a writer.
fn reports_writes(record: &RecSetattr) -> bool {
    let sizes = AttrValid::SIZE | AttrValid::BLOCKS | AttrValid::LSIZE | AttrValid::LBLOCKS;
    record.bias.contains(Bias::DATA_MODIFIED) || record.valid.intersects(sizes | AttrValid::MTIME)
}

/// What a close of this file reports, as far as it may.
fn of_file(file: &OpenFile, record: &RecSetattr) -> RecSetattr {
    RecSetattr { valid: may_report(file, record.valid), ..record.clone() }
}

/// The answer of a close; `valid` says whether it did what else it was asked to.
fn closed(valid: Valid) -> Outcome {
    let mdt_body = Some(MdtBody { valid, ..MdtBody::default() });
    Outcome::ok(MdsCloseReply { mdt_body, ..MdsCloseReply::default() })
}

/// What a close does besides counting: the last one destroys an orphan, earlier ones record what the client has
/// reported.
fn after_close(
    changes: &mut ChangeSet<'_>,
    fid: Fid,
    is_last: bool,
    record: Option<(&RecSetattr, Option<Era>)>,
) -> Result<(), Errno> {
    let mdt = changes.mdt;
    match (mdt.inode(fid), record) {
        (Ok(inode), _) if is_last && mdt.is_orphan(&inode)? => changes.destroy_orphan(&inode)?,
        (Ok(inode), Some((record, closed))) => {
            update(changes, &inode, record);
            if let Some(size) = mdt.size_at_close(&inode, record, closed) {
                changes.set_xattr(fid, xattrs::SOM, size.encode());
            }
        }
        (Ok(_), None) | (Err(Errno::ENOENT), _) => {}
        (Err(errno), _) => return Err(errno),
    }
    Ok(())
}

/// Times only move forward, and access times only when they matter.
fn update(changes: &mut ChangeSet<'_>, inode: &Inode, record: &RecSetattr) {
    let attributes = &inode.attributes;
    let newer = |flag, reported: i64, known: Timestamp| {
        (record.valid.contains(flag) && reported > known.seconds)
            .then(|| Timestamp::from_seconds(reported))
    };
    let changed = newer(AttrValid::CTIME, record.ctime, attributes.changed);
    let accessed = attributes.accessed.seconds;
    let patch = AttributePatch {
        modified: newer(AttrValid::MTIME, record.mtime, attributes.modified)
            .filter(|_| changed.is_some()),
        changed,
        accessed: newer(AttrValid::ATIME, record.atime, attributes.accessed).filter(|reported| {
            reported.seconds > accessed.saturating_add(changes.mdt.atime_diff())
        }),
        ..AttributePatch::default()
    };
    if patch != AttributePatch::default() {
        changes.patch(inode.fid, patch);
    }
}
