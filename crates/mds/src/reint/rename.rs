//! Rename: within a directory or across, replacing what the new name stands for.

use sheen_target::{Context, LockGuard, Outcome, ReplyRecording};
use sheen_types::limits::LINK_COUNT_MAX;
use sheen_types::{Errno, Fid, Name, Timestamp};
use sheen_wire::md::MdtBody;
use sheen_wire::messages::{MdsReintRename, MdsReintRenameReply};

use crate::caller::{Caller, May};
use crate::change_set::ChangeSet;
use crate::directory::{Child, parse_name};
use crate::hold::{Wanted, WantedName};
use crate::inode::Inode;
use crate::{Mdt, counters, dot_lustre, locks};

/// A walk to the root longer than this goes in a circle.
const DEPTH_MAX: usize = 10_000;

/// All that a rename is about.
struct Rename {
    caller: Caller,
    from: Inode,
    to: Inode,
    old: Name,
    new: Name,
    source: Inode,
    victim: Option<Inode>,
    now: Timestamp,
}

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
        let caller = Caller::from(record);
        for directory in [record.fid1, record.fid2] {
            let directory = self.directory(directory)?;
            caller.may(&*self.store, directory.fid, &directory.attributes, May::EXEC)?;
        }
        let crosses = record.fid1 != record.fid2;
        let moves_directory = self.find(record.fid1, &old)?.is_some_and(is_directory);
        let names =
            [WantedName::removed(record.fid1, &old), WantedName::replaced(record.fid2, &new)];
        let renames = crosses && moves_directory;
        let held = self.hold(Wanted { names: &names, inodes: &[], renames }).await?;
        let (source, victim) = (held.child(0).ok_or(Errno::ENOENT)?, held.child(1));
        if crosses && is_directory(source) != moves_directory {
            // Replaced by a directory before we held it: the check of circles was not in order.
            return Err(Errno::ESTALE);
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
        self.may_move(&moved)?;
        let _locks = lock_all(context, &moved).await?;
        let mut changes = self.change_set();
        add_move(&mut changes, &moved)?;
        self.execute(context, &held, changes, ReplyRecording::Done)?;
        let time = context.target.world().clock.now().since(context.arrived).as_micros();
        context.count(counters::of_rename(!crosses), u64::try_from(time).unwrap_or(u64::MAX));
        Ok(Outcome::ok(renamed(self.replaced(&moved))))
    }

    fn may_move(&self, moved: &Rename) -> Result<(), Errno> {
        let store = &*self.store;
        let from = (moved.from.fid, &moved.from.attributes);
        moved.caller.may_remove(store, from, &moved.source.attributes)?;
        let source_is_directory = moved.source.is_directory();
        if source_is_directory && moved.from.fid != moved.to.fid {
            // Its `..` changes.
            let attributes = &moved.source.attributes;
            moved.caller.may(store, moved.source.fid, attributes, May::WRITE)?;
            self.refuse_circle(moved)?;
        }
        let to = (moved.to.fid, &moved.to.attributes);
        let Some(victim) = &moved.victim else {
            moved.caller.may(store, to.0, to.1, May::WRITE.and(May::EXEC))?;
            let gains = source_is_directory && moved.from.fid != moved.to.fid;
            return match gains && to.1.links >= LINK_COUNT_MAX {
                true => Err(Errno::EMLINK),
                false => Ok(()),
            };
        };
        moved.caller.may_remove(store, to, &victim.attributes)?;
        match (source_is_directory, victim.is_directory()) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ => {}
        }
        if victim.is_directory() && (victim.fid == moved.from.fid || !self.is_empty(victim.fid)?) {
            return Err(Errno::ENOTEMPTY);
        }
        Ok(())
    }

    /// A directory must not become its own descendant. No other rename of a directory across
    /// directories is under way, so the walk up stays true.
    fn refuse_circle(&self, moved: &Rename) -> Result<(), Errno> {
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

    fn replaced(&self, moved: &Rename) -> MdtBody {
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

fn is_directory(child: Child) -> bool {
    child.kind == sheen_store::FileKind::Directory
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

fn renamed(body: MdtBody) -> MdsReintRenameReply {
    MdsReintRenameReply { mdt_body: Some(body), ..MdsReintRenameReply::default() }
}
