//! Rename: within a directory or across, replacing what the new name stands for.

use sheen_target::{Context, LockGuard, Outcome, ReplyRecording};
use sheen_types::{Errno, Fid, Name, Timestamp};
use sheen_wire::md::{MdtBody, RecRename};
use sheen_wire::messages::MdsReintRename;

use crate::caller::{Caller, May};
use crate::change_set::ChangeSet;
use crate::directory::{Child, parse_name};
use crate::hold::{Wanted, WantedName};
use crate::name_changes::{DEPTH_MAX, Rename, is_directory, may_move, renamed};
use crate::{Mdt, counters, dot_lustre, locks};

impl Mdt {
    /// Moves a name.
    pub(crate) async fn rename(
        &self,
        context: &Context,
        request: &MdsReintRename,
    ) -> Result<Outcome, Errno> {
        let record = &request.rec_reint;
        if context.is_applied_already() {
            return self.replay_done(context, renamed(MdtBody::default()));
        }
        let old = parse_end(request.name.as_ref().ok_or(Errno::EPROTO)?.as_bytes())?;
        let new = parse_end(request.symtgt.as_ref().ok_or(Errno::EPROTO)?.as_bytes())?;
        dot_lustre::refuse_change(record.fid1, &old)?;
        dot_lustre::refuse_change(record.fid2, &new)?;
        if self.moves_remote(record, &old, &new)? {
            return self.rename_distributed(context, record, (old, new)).await;
        }
        let caller = Caller::from(record);
        for (directory, name) in [(record.fid1, &old), (record.fid2, &new)] {
            let directory = self.directory(directory)?;
            self.check_place(directory.fid, name.as_bytes())?;
            caller.may(&*self.store, directory.fid, &directory.attributes, May::EXEC)?;
        }
        let crosses = record.fid1 != record.fid2;
        let moves_directory = self.find(record.fid1, &old)?.is_some_and(is_directory);
        let names =
            [WantedName::removed(record.fid1, &old), WantedName::replaced(record.fid2, &new)];
        let renames = crosses && moves_directory;
        let replays = context.replay().is_some();
        let held = self.hold(Wanted { names: &names, renames, ..Wanted::default() }).await?;
        let (source, victim) = (held.child(0).ok_or(Errno::ENOENT)?, held.child(1));
        if victim.is_none() && !replays && self.old_place(record.fid2, new.as_bytes())?.is_some() {
            drop(held);
            return self.rename_distributed(context, record, (old, new)).await;
        }
        if crosses && is_directory(source) != moves_directory {
            // Replaced by a directory before we held it: the check of circles was not in order.
            return Err(Errno::ESTALE);
        }
        let stripes = match victim.filter(|victim| is_directory(*victim)) {
            Some(victim) => self.stripes_of(victim.fid)?,
            None => Vec::new(),
        };
        let is_elsewhere = |child: Child| self.is_remote(child.fid);
        if is_elsewhere(source) || victim.is_some_and(is_elsewhere) || !stripes.is_empty() {
            drop(held);
            return self.rename_distributed(context, record, (old, new)).await;
        }
        let now = Timestamp::from_seconds(record.time);
        let (from, to) = (self.directory(record.fid1)?, self.directory(record.fid2)?);
        let source = self.inode(source.fid)?;
        let victim = victim.map(|victim| self.inode(victim.fid)).transpose()?;
        let moved = Rename { caller, from, to, old, new, source, victim, now };
        if moved.victim.as_ref().is_some_and(|victim| victim.fid == moved.source.fid) {
            // Two names of one inode: nothing is to be done.
            return Ok(Outcome::ok(renamed(MdtBody::default())));
        }
        let circle = || self.refuse_cycle(&moved);
        may_move(&moved, &*self.store, circle, |fid| self.is_empty(fid))?;
        let _locks = lock_all(context, &moved).await?;
        let mut changes = self.change_set();
        add_move(&mut changes, &moved)?;
        self.execute(context, &held, changes, ReplyRecording::Done)?;
        let time = context.target.world().clock.now().since(context.arrived).as_micros();
        context.count(counters::of_rename(!crosses), u64::try_from(time).unwrap_or(u64::MAX));
        Ok(Outcome::ok(renamed(self.replaced(&moved))))
    }

    /// Whether other MDTs are asked: for what lies there, and for the rename lock.
    fn moves_remote(&self, record: &RecRename, old: &Name, new: &Name) -> Result<bool, Errno> {
        if !self.has_other_mdts() {
            return Ok(false);
        }
        let directories = [record.fid1, record.fid2];
        if directories.iter().any(|fid| self.is_remote(*fid)) {
            return Ok(true);
        }
        let (source, victim) = (self.find(record.fid1, old)?, self.find(record.fid2, new)?);
        let lies_elsewhere = |child: Child| self.is_remote(child.fid);
        let crosses = record.fid1 != record.fid2;
        Ok(source.is_some_and(|it| lies_elsewhere(it) || crosses && is_directory(it))
            || victim.is_some_and(lies_elsewhere))
    }

    /// A directory must not become its own descendant. No other rename of a directory across
    /// directories is under way, so the walk up stays true.
    fn refuse_cycle(&self, moved: &Rename) -> Result<(), Errno> {
        let mut at = moved.to.fid;
        for _ in 0..DEPTH_MAX {
            if at == moved.source.fid {
                return Err(Errno::EINVAL);
            }
            if at == Fid::ROOT {
                return Ok(());
            }
            at = self.parent(at)?;
        }
        Err(Errno::ELOOP)
    }

    /// What is said of what was replaced.
    pub(crate) fn replaced(&self, moved: &Rename) -> MdtBody {
        let Some(victim) = &moved.victim else { return MdtBody::default() };
        let mut gone = victim.clone();
        gone.attributes.links = match victim.is_directory() {
            true => 0,
            false => gone.attributes.links.saturating_sub(1),
        };
        self.body(&gone, true)
    }
}

/// A name that is moved: neither `.` nor `..`.
fn parse_end(bytes: &[u8]) -> Result<Name, Errno> {
    match bytes {
        b"." | b".." => Err(Errno::EBUSY),
        name => parse_name(name),
    }
}

fn add_move(changes: &mut ChangeSet<'_>, moved: &Rename) -> Result<(), Errno> {
    let Rename { from, to, old, new, source, victim, now, .. } = moved;
    let child = Child { fid: source.fid, kind: source.attributes.kind };
    changes.delete_name(from.fid, old);
    changes.put_name(to.fid, new, child);
    let moved_directory = i32::from(source.is_directory());
    let lost_directory = victim.as_ref().map_or(0, |victim| i32::from(victim.is_directory()));
    if from.fid == to.fid {
        changes.touch(from.fid, *now, -lost_directory);
    } else {
        changes.touch(from.fid, *now, -moved_directory);
        changes.touch(to.fid, *now, moved_directory - lost_directory);
    }
    changes.relink(source.fid, *now, Some((from.fid, old)), Some((to.fid, new)))?;
    match victim {
        Some(victim) => changes.lose_name(victim, (to.fid, new), *now),
        None => Ok(()),
    }
}

/// Both directories, then both inodes. No other operation on this server locks these inodes for
/// change meanwhile, and changes of directories share, so the order is free.
async fn lock_all(context: &Context, moved: &Rename) -> Result<Vec<LockGuard>, Errno> {
    let mut guards = vec![locks::change_directory(context, moved.from.fid).await?];
    if moved.from.fid != moved.to.fid {
        guards.push(locks::change_directory(context, moved.to.fid).await?);
    }
    guards.push(locks::change_links(context, moved.source.fid).await?);
    if let Some(victim) = &moved.victim {
        guards.push(locks::lose_name(context, victim).await?);
    }
    Ok(guards)
}
