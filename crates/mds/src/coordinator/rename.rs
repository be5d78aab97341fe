//! Rename where directories, or what the names stand for, lie on other MDTs; and every rename of a directory to another one, as
//! MDT0000 has the lock of those.

use sheen_target::{Context, Outcome, ReplyRecording};
use sheen_types::{Errno, Fid, Name, Timestamp};
use sheen_wire::md::{MdtBody, RecRename};

use super::exclude::{DistributedHold, ExclusionRequest};
use super::execute::Executed;
use super::parts::Parts;
use crate::caller::{Caller, May};
use crate::directory::Child;
use crate::name_changes::{DEPTH_MAX, Rename, is_directory, may_move, renamed};
use crate::striped::stripes_in;
use crate::{Mdt, counters, remote};

/// What the two names of a rename stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Children {
    source: Child,
    victim: Option<Child>,
}

impl Mdt {
    /// Moves a name. What it replaces lies here, or its MDT is named. To each other MDT two requests, one more for a look at
    /// a name that lies there, and those that the way to the root needs.
    ///
    /// # Errors
    /// Those of `rename(2)`; [`Errno::EXDEV`] with a body, see above.
    pub(crate) async fn rename_distributed(
        &self,
        context: &Context,
        record: &RecRename,
        (old, new): (Name, Name),
    ) -> Result<Outcome, Errno> {
        let mut before = None;
        loop {
            let source = self.find_on_any_mdt(&context.target, record.fid1, &old).await?;
            let victim = self.find_on_any_mdt(&context.target, record.fid2, &new).await?;
            let seen = Children { source: source.ok_or(Errno::ENOENT)?, victim };
            // With two names of one inode nothing is replaced, wherever that lies.
            let replaced = victim.filter(|victim| victim.fid != seen.source.fid);
            if let Some(victim) = replaced.filter(|victim| self.is_remote(victim.fid)) {
                return Ok(Outcome::failed(Errno::EXDEV, renamed(remote::named(victim.fid))));
            }
            let crosses = record.fid1 != record.fid2;
            let renames = crosses && is_directory(seen.source);
            let wanted = ExclusionRequest { renames, ..ExclusionRequest::default() }
                .removed(record.fid1, &old);
            let wanted = wanted.replaced(record.fid2, &new).inode(seen.source.fid);
            let wanted = wanted.added_in(before, &new);
            let stripes = match replaced {
                Some(victim) => self.stripes_of(victim.fid)?,
                None => Vec::new(),
            };
            let wanted = match victim {
                Some(victim) => wanted.inode(victim.fid).stripes(&stripes),
                None => wanted,
            };
            let held = self.hold_distributed(context.into(), wanted).await?;
            let source = held.child(record.fid1, &old).ok_or(Errno::ENOENT)?;
            let found = Children { source, victim: held.child(record.fid2, &new) };
            if found != seen {
                continue;
            }
            if let Some(victim) = replaced
                && stripes_in(&held, victim.fid)? != stripes
            {
                // It was split or merged before it was excluded.
                continue;
            }
            let place = (record.fid2, &new);
            let held = match found.victim {
                None => self.with_old_place(context, held, place, &mut before).await?,
                Some(_) => Some(held),
            };
            let Some(held) = held else { continue };
            let is_in_before = before.is_some_and(|stripe| held.child(stripe.fid, &new).is_some());
            if found.victim.is_none() && is_in_before {
                // It is replaced where it is.
                return Err(Errno::ESTALE);
            }
            let moved = moved(record, &held, (&old, &new), found)?;
            if moved.victim.as_ref().is_some_and(|victim| victim.fid == moved.source.fid) {
                // Two names of one inode: nothing is to be done.
                return Ok(Outcome::ok(renamed(MdtBody::default())));
            }
            let circle = match renames {
                true => self.refuse_distributed_cycle(context, &moved).await,
                false => Ok(()),
            };
            may_move(&moved, &held, || circle, |fid| Ok(held.is_empty_with(fid, &stripes)))?;
            let parts = self.parts_of_move(context, &held, &moved, &stripes).await?;
            let done = ReplyRecording::Done;
            if let Executed::Again =
                self.execute_distributed(context.into(), held, parts, done).await?
            {
                continue;
            }
            let time = context.target.world().clock.now().since(context.arrived).as_micros();
            let time = u64::try_from(time).unwrap_or(u64::MAX);
            context.count(counters::of_rename(!crosses), time);
            return Ok(Outcome::ok(renamed(self.replaced(&moved))));
        }
    }

    /// A directory must not become its own descendant. The rename lock is held, so the way up stays as it is.
    async fn refuse_distributed_cycle(
        &self,
        context: &Context,
        moved: &Rename,
    ) -> Result<(), Errno> {
        let mut at = moved.to.fid;
        for _ in 0..DEPTH_MAX {
            if at == moved.source.fid {
                return Err(Errno::EINVAL);
            }
            if at == Fid::ROOT {
                return Ok(());
            }
            let above = self.parents_of(&context.target, at).await?;
            if above.contains(&moved.source.fid) {
                return Err(Errno::EINVAL);
            }
            at = above.last().copied().ok_or(Errno::ENOENT)?;
        }
        Err(Errno::ELOOP)
    }

    async fn parts_of_move(
        &self,
        context: &Context,
        held: &DistributedHold,
        moved: &Rename,
        stripes: &[Fid],
    ) -> Result<Vec<sheen_wire::update_record::Part>, Errno> {
        let Rename { from, to, old, new, source, victim, now, .. } = moved;
        let mut parts = Parts::new(self, context.into());
        parts.delete_name(from.fid, old).await?;
        if victim.is_some() {
            parts.delete_name(to.fid, new).await?;
        }
        let child = Child { fid: source.fid, kind: source.attributes.kind };
        parts.insert_name(to.fid, new, child).await?;
        let gained = i32::from(source.is_directory());
        let lost = victim.as_ref().map_or(0, |victim| i32::from(victim.is_directory()));
        if from.fid == to.fid {
            parts.touch(from.fid, *now, -lost).await?;
        } else {
            parts.touch(from.fid, *now, -gained).await?;
            parts.touch(to.fid, *now, gained - lost).await?;
        }
        parts.relink(source.fid, *now, Some((from.fid, old)), Some((to.fid, new))).await?;
        if let Some(victim) = victim {
            parts.remove_stripes(held, victim.fid, stripes).await?;
            parts.lose_name(victim, (to.fid, new), *now).await?;
        }
        Ok(parts.into_parts())
    }
}

/// All that a rename is about, as its MDTs have answered.
fn moved(
    record: &RecRename,
    held: &DistributedHold,
    (old, new): (&Name, &Name),
    found: Children,
) -> Result<Rename, Errno> {
    let caller = Caller::from(record);
    let (from, to) = (held.directory(record.fid1)?, held.directory(record.fid2)?);
    for directory in [&from, &to] {
        caller.may(held, directory.fid, &directory.attributes, May::EXEC)?;
    }
    let victim = found.victim.map(|victim| held.inode(victim.fid)).transpose()?;
    Ok(Rename {
        caller,
        from,
        to,
        old: old.clone(),
        new: new.clone(),
        source: held.inode(found.source.fid)?,
        victim,
        now: Timestamp::from_seconds(record.time),
    })
}
