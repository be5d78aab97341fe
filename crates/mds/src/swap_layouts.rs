//! MDS_SWAP_LAYOUTS: two files exchange their data, and keep all else (Lustre's `mdd_swap_layouts`).
//!
//! The objects on OSTs go with the layouts, data on the MDT with [`Change::Exchange`] in the same
//! transaction. Each file's layout counts one more change, so that clients see it. Files of different
//! owners are exchanged only for callers who may give files away; their objects get their new owners.
//!
//! Cost: the layout locks of both files, revoked from their holders; one transaction; for data on the
//! MDT a sync of both files before it, so that a crash leaves no file with data that is not durable.
//!
//! [`Change::Exchange`]: sheen_store::Change::Exchange

use sheen_layout::stored::{Stored, generation_after};
use sheen_target::{Context, LockGuard, Outcome, ReplyRecording, store_errno};
use sheen_types::{Errno, Fid, InodeBits, LockMode};
use sheen_wire::codec::{ByteOrder, Reader, Wire};
use sheen_wire::md::SwapLayouts;
use sheen_wire::messages::{MdsSwapLayouts, MdsSwapLayoutsReply};

use crate::caller::{Caller, Capability, May};
use crate::change_set::ChangeSet;
use crate::inode::Inode;
use crate::placement::Owner;
use crate::vouched_sizes::{SizeRecord, Trust};
use crate::{Mdt, layouts, xattrs};

/// `SWAP_LAYOUTS_MDS_HSM`: the files' states in an archive change hands, too.
const WITH_ARCHIVE: u64 = 1 << 31;

/// A file and what it is about to give away.
pub(crate) struct SwappedFile {
    inode: Inode,
    layout: Option<Stored>,
    size: Option<SizeRecord>,
}

impl SwappedFile {
    pub(crate) fn inode(&self) -> &Inode {
        &self.inode
    }

    /// The generation that its next layout has.
    fn generation(&self) -> u32 {
        generation_after(self.layout.as_ref().map_or(0, Stored::generation))
    }

    pub(crate) fn is_on_mdt(&self) -> bool {
        self.layout.as_ref().is_some_and(|layout| layout.end_on_mdt().is_some())
    }
}

impl Mdt {
    /// Exchanges the layouts of two files.
    pub(crate) async fn swap_layouts(
        &self,
        context: &Context,
        request: &MdsSwapLayouts,
    ) -> Result<Outcome, Errno> {
        if let Some(locks) = &request.dlm_req {
            context.cancel_early(locks, 0);
        }
        if self.must_not_change(context) {
            return Err(Errno::EROFS);
        }
        let done = MdsSwapLayoutsReply::default();
        if context.is_applied_already() {
            return self.replay_done(context, done);
        }
        let mut reader = Reader::new(&request.swap_layouts, ByteOrder::Little);
        let asked = SwapLayouts::decode(&mut reader).map_err(|error| {
            tracing::warn!(%error, "undecodable request to swap layouts");
            Errno::EPROTO
        })?;
        if asked.flags & WITH_ARCHIVE != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let (first, second) = (request.mdt_body.fid1, request.mdt_body.fid2);
        if first == second {
            return Ok(Outcome::ok(done));
        }
        let caller = Caller::from(&request.mdt_body);
        let held = self.hold_inodes(&[first, second]).await;
        let sides = self.sides(&caller, first, second)?;
        let _locks = self.lock_both(context, &sides).await?;
        let changes = self.exchange(context, sides);
        self.execute(context, &held, changes, ReplyRecording::Done)?;
        Ok(Outcome::ok(done))
    }

    /// Two files whose layouts the caller may exchange. Both are held.
    pub(crate) fn sides(
        &self,
        caller: &Caller,
        first: Fid,
        second: Fid,
    ) -> Result<[SwappedFile; 2], Errno> {
        let sides = [self.side(caller, first)?, self.side(caller, second)?];
        may_exchange(caller, &sides[0].inode, &sides[1].inode)?;
        Ok(sides)
    }

    fn side(&self, caller: &Caller, fid: Fid) -> Result<SwappedFile, Errno> {
        let inode = self.inode(fid)?;
        if !inode.is_regular() {
            return Err(Errno::EPERM);
        }
        caller.may(&*self.store, fid, &inode.attributes, May::WRITE)?;
        let layout = self.layout(&inode)?.map(|layout| layouts::stored(&layout)).transpose()?;
        let size = self.size_record(fid).map_err(store_errno)?;
        Ok(SwappedFile { inode, layout, size })
    }

    /// The locks by which clients learn that data lies elsewhere, in the order of FIDs. If one has data
    /// on the MDT then both exchange it: a client that waited for the lock on such data while it was
    /// moved away keeps that lock, and knows that the file has none. That data is durable then. What a group
    /// has locked, or waits for, is left to that group, which knows what it does: its lock excludes all other clients.
    pub(crate) async fn lock_both(
        &self,
        context: &Context,
        sides: &[SwappedFile; 2],
    ) -> Result<[LockGuard; 2], Errno> {
        let [first, second] = sides;
        let exchanges_data = first.is_on_mdt() || second.is_on_mdt();
        let bits = InodeBits::LAYOUT | InodeBits::XATTR | InodeBits::UPDATE;
        let lock = async |side: &SwappedFile| {
            let lock = |bits| context.target.lock_inode(side.inode.fid, bits, LockMode::Ex);
            match exchanges_data {
                false => lock(bits).await,
                true => match lock(bits | InodeBits::DOM).await {
                    // A group has it.
                    Err(Errno::EAGAIN) => lock(bits).await,
                    taken => taken,
                },
            }
        };
        let mut both = [first, second];
        both.sort_by_key(|side| side.inode.fid);
        let [low, high] = both;
        let (low, high) = (lock(low).await?, lock(high).await?);
        for side in sides.iter().filter(|side| side.is_on_mdt()) {
            self.dom.brw.make_durable(context, side.inode.fid).await?;
        }
        Ok([low, high])
    }

    /// What exchanges the layouts of two files whose locks [`Mdt::lock_both`] has.
    pub(crate) fn exchange(&self, context: &Context, sides: [SwappedFile; 2]) -> ChangeSet<'_> {
        let [first, second] = sides;
        let mut changes = self.change_set();
        if first.is_on_mdt() || second.is_on_mdt() {
            changes.exchange_data(first.inode.fid, second.inode.fid);
        }
        let owners = [owner(&first.inode), owner(&second.inode)];
        let differ = owners[0] != owners[1];
        let generations = [first.generation(), second.generation()];
        let files = [first.inode.fid, second.inode.fid];
        let era = self.sizes.era();
        let is_closed =
            [&first, &second].map(|side| side.size.is_some_and(|size| size.is_closed(era)));
        // A writer of either that is lost may write what is the other's from now on.
        let are_known = [0, 1]
            .iter()
            .all(|at: &usize| is_closed[*at] || self.open_counts.has_known_writers(files[*at]));
        for (at, from) in [second, first].into_iter().enumerate() {
            let file = files[at];
            // What was recorded of its size or emptiness was recorded of other data.
            self.known_empty.remove(file);
            self.open_counts.note_written(file);
            if !are_known {
                self.open_counts.forget_known_writers_of(file);
            }
            self.sizes.end_confirmation(file);
            self.dom.brw.note_changed(&context.target, file);
            let closed = era.filter(|_| are_known && is_closed[at]);
            let trust = closed.map_or(Trust::Lazy, Trust::Closed);
            let reported = from.size.and_then(|size| size.reported);
            match closed.is_some() || reported.is_some() {
                true => {
                    let size = SizeRecord { trust, reported };
                    changes.set_xattr(file, xattrs::SOM, size.encode());
                }
                false => changes.remove_xattr(file, xattrs::SOM),
            }
            let Some(mut layout) = from.layout else {
                changes.remove_xattr(file, xattrs::LOV);
                continue;
            };
            layout.give_to(file, generations[at]);
            let layout = layout.encode();
            if differ {
                changes.set_owner_of_objects(&layout, owners[at]);
            }
            changes.set_xattr(file, xattrs::LOV, layout);
        }
        changes
    }
}

fn owner(inode: &Inode) -> Owner {
    let attributes = &inode.attributes;
    Owner { uid: attributes.uid, gid: attributes.gid, project: attributes.project }
}

/// Data of one owner does not become another's unless the caller may give files away.
fn may_exchange(caller: &Caller, first: &Inode, second: &Inode) -> Result<(), Errno> {
    let frozen = sheen_wire::md::FileFlags::IMMUTABLE | sheen_wire::md::FileFlags::APPEND;
    if (first.attributes.flags | second.attributes.flags) & frozen.0 != 0 {
        return Err(Errno::EPERM);
    }
    match owner(first) == owner(second) || caller.can(Capability::Chown) {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}

#[cfg(test)]
mod tests {
    use sheen_store::{Attributes, FileKind};

    use super::*;

    #[test]
    fn data_changes_owners_only_by_callers_that_may_give_files_away() {
        let inode = |uid, flags| {
            let kind = FileKind::Regular;
            let attributes = Attributes { kind, uid, flags, ..Attributes::default() };
            Inode { fid: Fid::new(1, 1), attributes, is_damaged: false }
        };
        let body = |fsuid, capability| sheen_wire::md::MdtBody {
            fsuid,
            capability,
            ..sheen_wire::md::MdtBody::default()
        };
        let may =
            |body, first: &Inode, second: &Inode| may_exchange(&Caller::from(&body), first, second);
        let (mine, theirs) = (inode(5, 0), inode(6, 0));
        assert_eq!(may(body(5, 0), &mine, &mine), Ok(()));
        assert_eq!(may(body(5, 0), &mine, &theirs), Err(Errno::EPERM));
        assert_eq!(may(body(0, u32::MAX), &mine, &theirs), Ok(()));
        let frozen = inode(5, sheen_wire::md::FileFlags::IMMUTABLE.0);
        assert_eq!(may(body(0, u32::MAX), &mine, &frozen), Err(Errno::EPERM));
    }
}
