//! Attributes of one inode, and of the whole file system.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_io::BoxFuture;
use sheen_rpc::Channel;
use sheen_types::access::{Capability, Subject};
use sheen_types::futures;
use sheen_types::limits::NAME_BYTES_MAX;
use sheen_types::{Errno, Extent, Fid, MdtIndex};
use sheen_wire::md::{FileFlags, LayoutIntentOp, ObdStatfs};

use super::permission::owns;
use super::{
    Attributes, Credentials, FileHandle, FileSystem, FileType, FsStat, Mounted, NodeId,
    SetAttributes, SetTime, Stat,
};
use crate::boxed;
use crate::cache::{Inode, SizeEpoch, SizeReply};
use crate::data::{DataFile, Locking};
use crate::meta::{SetattrRight, TargetStat, mdt_statfs, ost_statfs, resolve};

/// How long a reply waits for the raise of another reply. The kernel raises the size first and waits for a
/// page under IO then, which may take as long as a server does.
const RAISE_WAIT: Duration = Duration::from_secs(2);

/// The unit of the file system's sizes: that of Lustre's client.
const STATFS_BLOCK: u32 = 4096;

/// Of regular files it says nothing.
const STICKY: u32 = 0o1000;

/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// Flags of inodes that refuse changes.
const FROZEN: FileFlags = FileFlags(FileFlags::IMMUTABLE.0 | FileFlags::APPEND.0);

impl FileSystem {
    /// Attributes. Size, blocks and times are current: from the MDT, merged with those of the file's objects
    /// where a client may be writing. No RPC if locks cover them, else one to the MDT and one to each
    /// object's OST.
    ///
    /// # Errors
    /// As `fstat(2)`.
    #[boxed]
    pub async fn getattr(&self, who: &Credentials, node: NodeId) -> Result<Stat, Errno> {
        let inode = self.0.pin(node)?;
        let asked_at = inode.state().file.kernel_size.asked();
        let asked = async {
            self.0.refresh(who, &inode).await?;
            if std::mem::take(&mut inode.state().just_created) {
                let Stat { attributes, .. } = self.0.stat_without_rpc(&inode)?;
                return Ok(Stat { attributes, keep: false });
            }
            self.0.stat(who, &inode).await
        };
        let answer = asked.await;
        // Before it counts as removed: its inode is destroyed in either case.
        if self.0.was_moved(who, (node, &inode), &answer).await {
            return self.getattr(who, node).await;
        }
        let answer = match answer {
            // It was so when this call looked it up, which is late enough.
            Err(Errno::ENOENT) if self.0.stale_retry.found_as(who, node).is_some() => {
                self.0.stat_without_rpc(&inode).map(|stat| Stat { keep: false, ..stat })
            }
            Err(Errno::ENOENT) if inode.state().is_removed_directory() => {
                self.0.stat_of_removed(&inode)
            }
            answer => answer,
        };
        let is_current = inode.node() == node;
        let answer = answer.map(|stat| Stat { keep: stat.keep && is_current, ..stat });
        if let Ok(stat) = &answer {
            self.0.show_size(&inode, asked_at, &stat.attributes).await;
        }
        self.0.answer_and_end_retry(who, answer)
    }

    /// Changes attributes; a size change needs write permission or a handle open for writing. One
    /// RPC to the MDT; sizes and times of files with objects also go to the OSTs.
    ///
    /// # Errors
    /// As `chmod(2)`, `chown(2)`, `truncate(2)`, `utimensat(2)`.
    #[boxed]
    pub async fn setattr(
        &self,
        who: &Credentials,
        node: NodeId,
        handle: Option<FileHandle>,
        mut changes: SetAttributes,
    ) -> Result<Stat, Errno> {
        let inode = self.0.pin(node)?;
        let asked = changes.clone();
        let mut right = (SetattrRight::Mode, Locking::default());
        if let Some(handle) = handle
            && changes.size.is_some()
        {
            let file = self.0.handles.get(handle)?;
            if !file.flags.writes() {
                return Err(Errno::EINVAL);
            }
            right = (SetattrRight::Handle, file.locking());
        }
        let chosen = |time: Option<SetTime>| matches!(time, Some(SetTime::To(_)));
        if chosen(changes.atime) || chosen(changes.mtime) {
            self.0.stale_if_absent(who, self.0.refresh(who, &inode).await)?;
            let owner = inode.state().last_attributes().ok_or(Errno::EIO)?.uid;
            if !owns(owner, who) {
                return Err(Errno::EPERM);
            }
        }
        if self.0.kills_set_id(who, &inode, &changes) {
            (changes.mode, changes.kill_set_id) = (None, true);
        } else {
            changes.kill_set_id = self.0.takes_set_id(who, &inode, &changes);
        }
        let changed = async {
            if !self.0.is_so_already(who, &inode, &changes)
                && !self.0.changes_nothing(who, &inode, &changes).await?
            {
                let change = self.0.change(who, &inode, &changes, right);
                match changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some() {
                    true => self.0.changing_rights(&inode, true, change).await?,
                    false => change.await?,
                }
            }
            // Before Linux 6.16 the kernel applies this answer even after it was notified that the lock has gone.
            let stat = self.0.stat(who, &inode).await?;
            Ok(Stat { keep: false, ..stat })
        };
        let changed = changed.await;
        if self.0.was_moved(who, (node, &inode), &changed).await {
            return self.setattr(who, node, handle, asked).await;
        }
        self.0.answer_and_end_retry(who, changed)
    }

    /// Space and inodes of the whole file system. One RPC to each target, all at once; none while an earlier
    /// answer is valid.
    ///
    /// # Errors
    /// As `statfs(2)`: if MDT0000 does not answer. Other targets that do not are left out, or waited for, as
    /// [`Settings::lazy_statfs`](super::Settings::lazy_statfs) says.
    #[boxed]
    pub async fn statfs(&self) -> Result<FsStat, Errno> {
        let (now, settings) = (self.0.meta.world.clock.now(), &self.0.settings);
        if let Some(known) = settings.statfs_known(now) {
            return Ok(known);
        }
        let (mdts, osts) = self.0.statfs_all(settings.lazy_statfs.get()).await;
        let answered = |target: &TargetStat| {
            let left_out =
                |errno: &Errno| tracing::debug!(target = target.name, %errno, "left out of statfs");
            target.stat.clone().inspect_err(left_out).ok()
        };
        let (first, further) = mdts.split_first().ok_or(Errno::ENODEV)?;
        let mut mdts = vec![first.stat.clone()?];
        mdts.extend(further.iter().filter_map(answered));
        let osts: Vec<_> = osts.iter().filter_map(answered).collect();
        let stat = sum(&mdts, &osts);
        settings.learn_statfs(now, stat);
        Ok(stat)
    }

    /// Each target's own answer: its name, and space and objects. MDTs first. For `lfs df`.
    #[boxed]
    pub async fn statfs_targets(&self) -> Vec<(String, Result<ObdStatfs, Errno>)> {
        let (mdts, osts) = self.0.statfs_all(true).await;
        mdts.into_iter().chain(osts).map(|target| (target.name, target.stat)).collect()
    }

    /// The FID of a node. For `lfs path2fid`.
    ///
    /// # Errors
    /// `ESTALE` if there is no such node.
    pub fn fid(&self, node: NodeId) -> Result<Fid, Errno> {
        Ok(self.0.pin(node)?.fid)
    }

    /// The MDT that has a FID. No RPC where there is one, or the FID's sequence is known; one else.
    ///
    /// # Errors
    /// `ENOENT` if no MDT has its sequence.
    #[boxed]
    pub async fn mdt_of(&self, fid: Fid) -> Result<MdtIndex, Errno> {
        Ok(self.0.meta.mdt(fid).await?.index)
    }

    /// The path of a FID's link number `link`, below the mounted directory, of its first one if there
    /// are fewer; and the number of the next link if there is one. One RPC. For `lfs fid2path`.
    ///
    /// # Errors
    /// `ENOENT` if there is no such object.
    #[boxed]
    pub async fn fid2path(&self, fid: Fid, link: u32) -> Result<(Bytes, Option<u32>), Errno> {
        let root = self.0.pin(NodeId::ROOT)?.fid;
        self.0.meta.fid2path(root, fid, link).await
    }
}

impl Mounted {
    /// Asks the MDT for attributes unless locks cover what is known.
    pub(super) async fn refresh(&self, who: &Credentials, inode: &Inode) -> Result<(), Errno> {
        match self.meta.attributes_covered(inode) {
            true => Ok(()),
            false => self.meta.refresh(who, inode).await,
        }
    }

    /// Makes sure that the kernel uses the size in the reply that is about to be sent. Calls the kernel only
    /// if the inode was ever invalidated: see [`SizeRaise`](super::Raise).
    async fn show_size(&self, inode: &Arc<Inode>, asked: SizeEpoch, shown: &Attributes) {
        if shown.file_type() != FileType::Regular || !self.kernel_cache.has_notifier() {
            return;
        }
        let clock = &self.meta.world.clock;
        let mut limit = None;
        loop {
            match inode.answer_size(asked, shown.size) {
                SizeReply::Nothing => return,
                SizeReply::SizeRaise(raise) => return self.kernel_cache.raise_size(raise).await,
                SizeReply::Wait if limit.is_some_and(|limit| limit <= clock.now()) => return,
                SizeReply::Wait => {
                    let limit = *limit.get_or_insert(clock.now() + RAISE_WAIT);
                    futures::race(inode.raises_done(), clock.sleep_until(limit)).await;
                }
            }
        }
    }

    /// Whether a new mode is not a program's `chmod` but the kernel taking set-id bits off a file that is
    /// chowned, truncated or written. That does not require ownership.
    fn kills_set_id(&self, who: &Credentials, inode: &Inode, changes: &SetAttributes) -> bool {
        if changes.uid.is_some() || changes.gid.is_some() || changes.size.is_some() {
            // No call of a program's changes the mode with any of these. The kernel leaves it to us to take a
            // set-group-id bit without group execution.
            return changes.mode.is_some() || loses_set_id(who, inode);
        }
        let Some(mode) = changes.mode else { return false };
        let (old, owner) = match inode.state().last_attributes() {
            Some(attributes) => (attributes.mode & 0o7777, attributes.uid),
            None => return false,
        };
        let times = changes.atime.is_some() || changes.mtime.is_some();
        // A kernel that leaves judging to us has no sticky bit in its mode (it would heed it), and so takes it, too.
        let left = without_set_id(old);
        let takes_sticky = left != old && left & STICKY != 0 && mode == left & !STICKY;
        let only_takes = mode != old && mode == left && !owns(owner, who);
        // Of an owner only this is known from a `chmod`, which takes the sticky bit once more.
        (only_takes || takes_sticky) && !times && self.handles.writes(inode.fid, who.uid)
    }

    /// Whether a change takes set-id bits, of a kernel that leaves that to us: a new owner does, a cut by a caller of whom the kernel
    /// says so, and what changes nothing by a caller who may do so: `chown` to no owner, and the kernel before a write. The
    /// MDT judges; it is asked also where the mode is not known under a lock.
    fn takes_set_id(&self, who: &Credentials, inode: &Inode, changes: &SetAttributes) -> bool {
        let SetAttributes { uid, gid, kill_set_id, .. } = *changes;
        let of_nothing = SetAttributes { ctime: changes.ctime, ..SetAttributes::default() };
        let (mode, owner, is_sure) = {
            let state = inode.state();
            if state.file_type() == Some(FileType::Directory) {
                return false;
            }
            let known = state.last_attributes();
            let (mode, owner) = known.map_or((0, None), |known| (known.mode, Some(known.uid)));
            (mode, owner, state.rights_covered())
        };
        let has_some = mode & SET_ID != 0;
        if uid.is_some() || gid.is_some() {
            return has_some || !is_sure;
        }
        let may = || {
            owner.is_some_and(|owner| owns(owner, who)) || self.handles.writes(inode.fid, who.uid)
        };
        has_some && (kill_set_id || *changes == of_nothing && may())
    }

    /// Whether this is a `chown` that names neither owner nor group, by a user who does not own the file. Every
    /// user may do that; the MDT would refuse them the change time, which POSIX leaves as it is.
    async fn changes_nothing(
        &self,
        who: &Credentials,
        inode: &Inode,
        changes: &SetAttributes,
    ) -> Result<bool, Errno> {
        if *changes != (SetAttributes { ctime: changes.ctime, ..SetAttributes::default() }) {
            return Ok(false);
        }
        self.refresh(who, inode).await?;
        Ok(inode.state().last_attributes().is_some_and(|known| !owns(known.uid, who)))
    }

    /// Whether this is a `chmod` or `chown` to what the inode has already, and was changed last in this second: the protocol
    /// carries whole seconds, so that the change time would stay as well. (`tar` as root, `cp -a` and `install` do so for
    /// each file that they make.) No RPC: what is known is under a lock.
    fn is_so_already(&self, who: &Credentials, inode: &Inode, changes: &SetAttributes) -> bool {
        let SetAttributes { mode, uid, gid, .. } = *changes;
        let of_rights = SetAttributes { mode, uid, gid, ..SetAttributes::default() };
        if of_rights == SetAttributes::default() || of_rights != *changes {
            return false;
        }
        let who = self.judged(who);
        let state = inode.state();
        let Some(known) = state.last_attributes().filter(|_| state.attributes_covered()) else {
            return false;
        };
        let is_owner = who.uid == known.uid
            || who.uid == 0 && who.can(Capability::FileOwner) && who.can(Capability::Chown);
        let is_same = mode.is_none_or(|mode| mode & 0o7777 == known.mode & 0o7777)
            && uid.is_none_or(|uid| uid == known.uid)
            && gid.is_none_or(|gid| gid == known.gid);
        // Such a change may take set-id bits off, and frozen files refuse it.
        let is_plain = known.mode & SET_ID == 0 && known.flags & FROZEN.0 == 0;
        is_owner
            && is_same
            && is_plain
            && known.ctime.seconds >= self.meta.world.clock.wall().seconds
    }

    /// Changes attributes on the MDT, then on the OSTs, under these locks.
    pub(super) async fn change(
        &self,
        who: &Credentials,
        inode: &Inode,
        changes: &SetAttributes,
        (right, locking): (SetattrRight, Locking),
    ) -> Result<(), Errno> {
        let is_regular = inode.file_type() == Some(FileType::Regular);
        if let Some(size) = changes.size.filter(|size| is_regular && *size > 0) {
            self.prepare_truncate(who, inode, size).await?;
        }
        // Before anything is cut, as the kernel does: where the MDT refuses that, the file stays as it is.
        if is_regular && changes.size.is_some() {
            self.take_capabilities(who, inode).await?;
        }
        let now = self.meta.world.clock.wall();
        let change = || self.meta.setattr(who, inode, changes, now, right);
        self.retry_with_rights(who, &[inode], change).await?;
        if changes.atime.is_some() {
            inode.state().file.accessed = None;
        }
        let times = changes.atime.is_some() || changes.mtime.is_some();
        if !is_regular || changes.size.is_none() && !times {
            return Ok(());
        }
        if let Some(size) = changes.size {
            inode.state().ask_osts_for_size();
            self.kernel_cache.truncate_pages(inode.node(), size);
            let truncating = inode.begin_truncate(size);
            let cut =
                |data: Arc<dyn DataFile>| async move { data.truncate(size, now, locking).await };
            self.with_data(who, inode, cut).await?;
            inode.raises_done().await;
            drop(truncating);
        }
        if times {
            let at = |time: Option<SetTime>| time.map(|time| resolve(time, now));
            let (atime, mtime) = (at(changes.atime), at(changes.mtime));
            let ctime = changes.ctime.unwrap_or(now);
            let set =
                |data: Arc<dyn DataFile>| async move { data.set_times(atime, mtime, ctime).await };
            self.with_data(who, inode, set).await?;
        }
        Ok(())
    }

    /// Makes sure that the file can have `size` bytes, before the MDT is sent that size: no size that objects
    /// cannot have, and the objects that show it.
    pub(super) async fn prepare_truncate(
        &self,
        who: &Credentials,
        inode: &Inode,
        size: u64,
    ) -> Result<(), Errno> {
        let Some(data) = self.data_if_any(who, inode).await? else { return Ok(()) };
        if size > data.bytes_max() {
            return Err(Errno::EFBIG);
        }
        let last = size - 1;
        if last > data.layout().last_byte() {
            return Err(Errno::ENODATA);
        }
        if data.layout().lacks_objects(Extent { start: last, end: last }) {
            // As Lustre does: all up to there, and that byte.
            let before = Extent { start: 0, end: size };
            self.meta.make_objects(who, inode, LayoutIntentOp::TRUNC, before).await?;
        }
        Ok(())
    }

    /// What all MDTs say, that with the root first, and all OSTs.
    async fn statfs_all(&self, lazy: bool) -> (Vec<TargetStat>, Vec<TargetStat>) {
        let mut asked: Vec<BoxFuture<'_, TargetStat>> = Vec::new();
        for mdt in self.meta.mdts() {
            let name = mdt.locks.name().to_owned();
            let channel = Arc::clone(&mdt.channel);
            // Without the first there is no file system.
            let lazy = lazy && !asked.is_empty();
            asked.push(Box::pin(async move {
                TargetStat { name, stat: mdt_statfs(channel, lazy).await }
            }));
        }
        let mdts = asked.len();
        for ost in self.targets.osts() {
            let name = ost.name.clone();
            let channel: Arc<dyn Channel> = Arc::clone(&ost.import) as Arc<dyn Channel>;
            asked.push(Box::pin(async move {
                TargetStat { name, stat: ost_statfs(channel, lazy).await }
            }));
        }
        let mut mdts_first = futures::all(asked).await;
        let osts = mdts_first.split_off(mdts);
        (mdts_first, osts)
    }
}

/// Whether a write or cut of a file by `who`, or a change of its owner, clears bits of its mode.
pub(super) fn loses_set_id(who: &Credentials, inode: &Inode) -> bool {
    let state = inode.state();
    let Some(known) = state.last_attributes() else { return false };
    let is_kept = who.uid == 0 || known.file_type() == FileType::Directory;
    let takes_group_id = || !who.keeps_group_id(known.mode, known.gid);
    !is_kept && (without_set_id(known.mode) != known.mode || takes_group_id())
}

/// Whether a file has set-id bits that a write takes.
pub(super) fn has_set_id(inode: &Inode) -> bool {
    let state = inode.state();
    let mode = state.last_attributes().map_or(0, |known| known.mode);
    without_set_id(mode) != mode
}

/// What the kernel leaves of the mode of a file that is written: the set-group-id bit of one that its group may not
/// execute it leaves to us.
fn without_set_id(mode: u32) -> u32 {
    const SET_UID: u32 = 0o4000;
    const RUNS_AS_GROUP: u32 = 0o2010;
    match mode & RUNS_AS_GROUP == RUNS_AS_GROUP {
        true => mode & !(SET_UID | 0o2000),
        false => mode & !SET_UID,
    }
}

/// Space of the OSTs, inodes of the MDTs, but no more free inodes than there are objects for. The numbers
/// come from servers: no sum of them may wrap.
fn sum(mdts: &[ObdStatfs], osts: &[ObdStatfs]) -> FsStat {
    let mut whole = FsStat {
        block_size: STATFS_BLOCK,
        name_bytes_max: NAME_BYTES_MAX as u32,
        ..FsStat::default()
    };
    let blocks = |stat: &ObdStatfs, count: u64| {
        let bytes = count.saturating_mul(stat.bsize.into());
        bytes / u64::from(STATFS_BLOCK)
    };
    let mut objects_free = 0u64;
    for ost in osts {
        whole.blocks = whole.blocks.saturating_add(blocks(ost, ost.blocks));
        whole.blocks_free = whole.blocks_free.saturating_add(blocks(ost, ost.bfree));
        whole.blocks_available = whole.blocks_available.saturating_add(blocks(ost, ost.bavail));
        objects_free = objects_free.saturating_add(ost.ffree);
    }
    for mdt in mdts {
        whole.files = whole.files.saturating_add(mdt.files);
        whole.files_free = whole.files_free.saturating_add(mdt.ffree);
    }
    if !osts.is_empty() && objects_free < whole.files_free {
        whole.files = whole.files.saturating_sub(whole.files_free).saturating_add(objects_free);
        whole.files_free = objects_free;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_the_osts_and_inodes_are_the_mdts() {
        let mdt = ObdStatfs { files: 1000, ffree: 900, bsize: 4096, ..ObdStatfs::default() };
        let ost = ObdStatfs {
            blocks: 80,
            bfree: 60,
            bavail: 50,
            ffree: 200,
            bsize: 8192,
            ..ObdStatfs::default()
        };
        let whole = sum(&[mdt], &[ost.clone(), ost]);
        assert_eq!((whole.blocks, whole.blocks_free, whole.blocks_available), (320, 240, 200));
        assert_eq!((whole.files, whole.files_free), (500, 400));
    }

    #[test]
    fn numbers_that_cannot_be_do_not_wrap() {
        let mdt = ObdStatfs { files: 10, ffree: u64::MAX, ..ObdStatfs::default() };
        let (blocks, bsize) = (u64::MAX, 1);
        let ost = ObdStatfs { blocks, bsize, ffree: 7, ..ObdStatfs::default() };
        let osts = vec![ost; 5_000];
        let whole = sum(&[mdt.clone(), mdt], &osts);
        assert_eq!((whole.blocks, whole.files), (u64::MAX, 35_000));
    }
}
