//! Asking the OSTs for the size of a file that all writers have closed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sheen_layout::stored::errno_of;
use sheen_store::{AttributePatch, Attributes};
use sheen_target::{Target, store_errno};
use sheen_types::{Errno, Fid, Timestamp};

use super::awaited::{AwaitedFile, Step};
use super::{Era, SizeRecord, Trust};
use crate::placement::FileOnOsts;
use crate::{Mdt, xattrs};

/// How long a file that was looked at is left alone first: to ask takes clients' locks on it away, and many a file is
/// opened again at once. An open for writing in this time costs nothing.
const REST: Duration = Duration::from_secs(5);

/// Seconds in which a client that sets times has set them on the OSTs, too.
const TIMES_SET: i64 = 60;

impl Mdt {
    /// Has the OSTs asked, unless they are about to be.
    pub(super) fn confirm_soon(&self, target: &Arc<Target>, fid: Fid) {
        let due = target.world().clock.now() + REST;
        if self.sizes.awaited.add(fid, due) {
            self.begin_asking(target);
        }
    }

    /// Begins a task that works at the queue.
    fn begin_asking(&self, target: &Arc<Target>) {
        let ask = ask_in_turn(Weak::clone(&self.me), Arc::downgrade(target));
        target.world().tasks.spawn("confirm size", Box::pin(ask));
    }

    /// Asks the OSTs, and vouches for what they say if no client was able to write meanwhile.
    async fn confirm(&self, target: &Target, fid: Fid, number: u64) -> Result<(), Errno> {
        if self.to_confirm(fid, number)?.is_none() {
            return Ok(());
        }
        let layout = self.layout(&self.inode(fid)?)?.ok_or(Errno::ENODATA)?;
        let parsed = sheen_layout::parse(&layout).map_err(|error| errno_of(&error))?;
        let parsed = parsed.ok_or(Errno::ENODATA)?;
        let found = match parsed.is_on_mdt() {
            true => None,
            false => Some(self.placement.ask_file(&parsed).await?),
        };
        let held = self.hold_inodes(&[fid]).await;
        let inode = self.inode(fid)?;
        let Some((record, era)) = self.to_confirm(fid, number)? else { return Ok(()) };
        if self.layout(&inode)?.as_ref() != Some(&layout) {
            return Ok(());
        }
        let mut changes = self.change_set();
        match &found {
            // It is not asked again and again.
            None => changes.set_xattr(fid, xattrs::SOM, record.as_hint().encode()),
            Some(found) => {
                let now = target.world().clock.wall();
                let times = later_times(&inode.attributes, found, now)?;
                if times != AttributePatch::default() {
                    changes.patch(fid, times);
                }
                let reported = Some((found.size, found.blocks));
                let strict = SizeRecord { trust: Trust::Strict(era), reported };
                changes.set_xattr(fid, xattrs::SOM, strict.encode());
            }
        }
        self.execute_locally(target, &held, changes).map(|_| ())
    }

    /// What is known of a file that is still to be confirmed: all writers have closed it, and none has come since it
    /// got its number.
    fn to_confirm(&self, fid: Fid, number: u64) -> Result<Option<(SizeRecord, Era)>, Errno> {
        let Some(era) = self.sizes.era() else { return Ok(None) };
        let record = self.size_record(fid).map_err(store_errno)?;
        let record = record.filter(|record| record.is_closed(Some(era)) && !record.is_strict());
        let is_written = self.open_counts.is_written_besides(fid, 0);
        let is_awaited = self.sizes.awaited.is_awaited(fid, number) && !is_written;
        Ok(record.filter(|_| is_awaited).map(|record| (record, era)))
    }
}

/// Confirms one file after the other until there is nothing left to do, or the target is no more.
async fn ask_in_turn(mdt: Weak<Mdt>, target: Weak<Target>) {
    let mut has_slept = false;
    loop {
        let (Some(mdt), Some(target)) = (mdt.upgrade(), target.upgrade()) else { return };
        let clock = Arc::clone(&target.world().clock);
        let step = mdt.sizes.awaited.step(clock.now(), has_slept);
        has_slept = false;
        match step {
            Step::End => return,
            Step::Sleep(until) => {
                drop((mdt, target));
                clock.sleep_until(until).await;
                has_slept = true;
            }
            Step::Ask { file: AwaitedFile { fid, number, .. }, begins_another } => {
                if begins_another {
                    mdt.begin_asking(&target);
                }
                if let Err(errno) = mdt.confirm(&target, fid, number).await {
                    tracing::debug!(%fid, %errno, "the size is not vouched for");
                }
                mdt.sizes.awaited.end_own(fid, number);
            }
        }
    }
}

/// The times that the objects have and the MDT has not: a client that asks no OST must see them, too.
///
/// # Errors
/// [`Errno::EAGAIN`] if the MDT's inode was changed since the objects, a moment ago, and yet they were modified
/// later: a client may be setting times, and has not come to the OSTs yet.
fn later_times(
    known: &Attributes,
    found: &FileOnOsts,
    now: Timestamp,
) -> Result<AttributePatch, Errno> {
    let later = |object: i64, known: Timestamp| {
        (object > known.seconds).then(|| Timestamp::from_seconds(object))
    };
    let modified = later(found.mtime, known.modified);
    let accessed = later(found.atime, known.accessed);
    let changed = later(found.ctime, known.changed);
    let is_recent = now.seconds < known.changed.seconds.saturating_add(TIMES_SET);
    match changed.is_none() && is_recent && (modified.is_some() || accessed.is_some()) {
        true => Err(Errno::EAGAIN),
        false => Ok(AttributePatch { modified, accessed, changed, ..AttributePatch::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_from_the_objects_only_if_those_were_changed_later() {
        let at = Timestamp::from_seconds;
        let known = Attributes {
            modified: at(100),
            accessed: at(90),
            changed: at(100),
            ..Attributes::default()
        };
        let objects = |atime, mtime, ctime| FileOnOsts { size: 5, blocks: 8, atime, mtime, ctime };
        let none = AttributePatch::default();
        let later_times = |found| later_times(&known, &found, at(130));
        assert_eq!(later_times(objects(0, 100, 100)), Ok(none.clone()));
        assert_eq!(later_times(objects(0, 50, 50)), Ok(none.clone()));
        let later = AttributePatch {
            modified: Some(at(120)),
            changed: Some(at(120)),
            ..AttributePatch::default()
        };
        assert_eq!(later_times(objects(90, 120, 120)), Ok(later));
        assert_eq!(later_times(objects(0, 101, 100)), Err(Errno::EAGAIN), "a utimes");
        assert_eq!(later_times(objects(91, 100, 100)), Err(Errno::EAGAIN));
        let modified = AttributePatch { modified: Some(at(101)), ..none };
        let by_then = super::later_times(&known, &objects(0, 101, 100), at(160));
        assert_eq!(by_then, Ok(modified), "no client takes so long");
    }
}
