//! Moving a directory to other MDTs (Lustre: `lmv_migrate`): one `MDS_REINT` (migrate) begins it, one more for each name in it
//! moves that name, with its inode where that may move; and one setxattr of `trusted.lmv` ends it. A bare name is removed by one
//! `MDS_REINT` (remove entry).
//!
//! The request names the directory that programs see, whichever stripe has the name: its MDT reads both from the layout. A
//! directory goes to the MDT that it moves to, which makes its new inode, anything else to the MDT of its inode.
//!
//! Cost: a lookup and one request for each name; what this client has under locks on them is asked for again.

use std::sync::Arc;

use sheen_layout::directory::DirectoryWish;
use sheen_rpc::Call;
use sheen_types::access::May;
use sheen_types::{Errno, Fid, InodeBits, MdtIndex, Name};
use sheen_wire::md::{Bias, CloseData, MdtIoepoch, RecRename, RecUnlink, ReintOp};
use sheen_wire::messages::{MdsReintMigrate, MdsReintUnlink};
use sheen_wire::text::Text;

use super::place::Tries;
use super::unlink::ALL_BUT_DATA;
use super::{LookupDepth, Meta};
use crate::cache::{ChangeOutcome, Inode, NamePlace};
use crate::call;
use crate::mdt::Mdc;
use crate::types::{Credentials, FileType, NameInvalidation, StaleName, XattrMode};

/// How a directory lies on MDTs, as its own MDT keeps it; set with a wish, the end of a migration.
pub(crate) const TRUSTED_LMV: &[u8] = b"trusted.lmv";

/// Where a name moves.
struct NewPlace {
    /// The stripe that has the name, and that which is to have it.
    places: (Fid, Fid),
    mdt: Arc<Mdc>,
    wish: DirectoryWish,
}

impl Meta {
    /// Moves `name` in `parent` to where `wish` says, or, in a directory that is being moved, to where that goes. Of a directory
    /// that begins it; with `names_only` one in a directory that is being moved keeps its inode.
    ///
    /// # Errors
    /// `EALREADY` if it is there; `EPERM` for other users than root, or another wish than that by which the directory is being
    /// moved; `EINVAL` for the root; `ENODEV` for an MDT that there is not.
    pub(crate) async fn migrate(
        &self,
        who: &Credentials,
        (parent, name): (&Inode, &Name),
        wish: &DirectoryWish,
        names_only: bool,
    ) -> Result<(), Errno> {
        let mut tries = Tries::default();
        loop {
            self.pause_between(tries.taken()).await;
            match self.migrate_as_found(who, (parent, name), wish, names_only).await {
                // Its inode has moved, with another one of its names, or the layout has changed.
                Err(Errno::ESTALE) if tries.take() => self.cache.inodes.doubt_striping(parent),
                moved => return moved,
            }
        }
    }

    async fn migrate_as_found(
        &self,
        who: &Credentials,
        (parent, name): (&Inode, &Name),
        wish: &DirectoryWish,
        names_only: bool,
    ) -> Result<(), Errno> {
        let child = self.lookup(who, parent, name, LookupDepth::Attributes).await?;
        let child = child.ok_or(Errno::ENOENT)?;
        if child.fid == Fid::ROOT {
            return Err(Errno::EINVAL);
        }
        if who.uid != 0 {
            return Err(Errno::EPERM);
        }
        let place = self.place(who, parent, name).await?;
        let is_directory = child.file_type() == Some(FileType::Directory);
        let target = self.target_of(&place, &child, wish).await?;
        let names_only = names_only && is_directory;
        let moves = target.places.0 != target.places.1;
        if names_only && !moves {
            return Err(Errno::EALREADY);
        }
        // Lustre's MDT looks at the directory alone: on its MDT already, it stays in a stripe that is to go. One of ours moves its name.
        let may_be_left = is_directory && moves && !names_only && !target.mdt.keeps_own_names();
        let named = (&place, name);
        let sent = match self.send_migrate(who, named, &child, (&target, names_only)).await {
            Err(Errno::EALREADY) if may_be_left => {
                self.send_migrate(who, named, &child, (&target, true)).await
            }
            sent => sent,
        };
        match sent {
            Ok(()) => self.note_migrated(&place, name, &child).await,
            Err(Errno::ESTALE) => self.cache.inodes.note_name_absent(parent, name),
            Err(_) => {}
        }
        sent
    }

    /// Whether names of a directory are being moved.
    fn is_changing(&self, directory: &Inode) -> bool {
        let state = directory.state();
        state.master_layout().is_some_and(|(layout, _)| layout.change().is_some())
    }

    /// Where a name goes (Lustre: `lmv_migrate`).
    async fn target_of(
        &self,
        place: &NamePlace<'_>,
        child: &Inode,
        wish: &DirectoryWish,
    ) -> Result<NewPlace, Errno> {
        let is_directory = child.file_type() == Some(FileType::Directory);
        let now = place.holder().fid;
        let places = (place.before().unwrap_or(now), now);
        let of_names = self.mdt(now).await?;
        let mut wish = wish.clone();
        let named = wish.first.or(wish.mdts.first().copied());
        let is_nested = self.is_changing(place.directory);
        let begun = match self.is_changing(child) {
            true => Some(self.mdt(child.fid).await?),
            false => None,
        };
        let mdt = match named {
            // It was broken off, and goes on to where it began to go: in one that moves that is the MDT of its name, unless it
            // began to move by itself.
            _ if begun.as_ref().is_some_and(|mdt| {
                if is_nested { mdt.index != of_names.index } else { named.is_none() }
            }) =>
            {
                begun.ok_or(Errno::EPROTO)?
            }
            _ if is_nested => {
                if is_directory && named.is_some() {
                    wish = wish_on(wish, of_names.index)?;
                }
                of_names
            }
            Some(index) => self.mdts.by_index(index).ok_or(Errno::ENODEV)?,
            None => self.any_mdt(&of_names).await,
        };
        Ok(NewPlace { places, mdt, wish })
    }

    async fn send_migrate(
        &self,
        who: &Credentials,
        (place, name): (&NamePlace<'_>, &Name),
        child: &Inode,
        (target, names_only): (&NewPlace, bool),
    ) -> Result<(), Errno> {
        let is_directory = child.file_type() == Some(FileType::Directory);
        let fid = target.mdt.fids.next().await?;
        let mdt = match is_directory {
            true => Arc::clone(&target.mdt),
            false => self.mdt(child.fid).await?,
        };
        let (from, to) = (self.cache.inodes.pin(target.places.0), place.holder());
        let parent = place.directory;
        let stripes = self.cache.inodes.stripes_of(child);
        let mut wanted = vec![(parent, InodeBits::UPDATE), (&*from, InodeBits::UPDATE)];
        wanted.extend([(to, InodeBits::UPDATE), (child, ALL_BUT_DATA)]);
        wanted.extend(stripes.iter().map(|stripe| (&***stripe, ALL_BUT_DATA)));
        let dlm_req = self.cancel_early(&mdt, &wanted).await;
        let before = NamePlace::in_stripe(parent, self.cache.inodes.pin(from.fid));
        let leaves = self.begin_change(&before, None, Some(name)).await;
        let arrives = self.begin_change(place, Some(name), None).await;
        let (suppgid1, suppgid2) = who.groups_for(parent, May::WRITE.and(May::EXEC));
        let request = MdsReintMigrate {
            rec_reint: RecRename {
                opcode: ReintOp::MIGRATE,
                cap: who.capabilities(),
                fsuid: who.uid,
                fsgid: who.gid,
                suppgid1,
                suppgid2,
                fid1: parent.fid,
                fid2: fid,
                time: self.seconds(),
                bias: if names_only { Bias::MIGRATE_NSONLY } else { Bias::NONE },
                mode: child.state().last_attributes().map_or(0, |known| known.mode),
                ..RecRename::default()
            },
            name: Some(Text::from(name)),
            symtgt: Some(Text::default()),
            dlm_req,
            // Without a lease: what is open stays where it is.
            mdt_ioepoch: Some(MdtIoepoch::default()),
            close_data: Some(CloseData::default()),
            eadata: target.wish.to_ea().encode(),
            ..MdsReintMigrate::default()
        };
        let call = who.sign(Call::modifying(request).with_reply_room(self.layout_room()));
        // Over later ones, which have succeeded, it would undo them.
        let call = Call { ends_with_caller: true, ..call };
        let answer = call::call::<MdsReintMigrate>(&*mdt.channel, call).await;
        let moved = ChangeOutcome { removed: answer.is_ok(), not_added: answer.is_err() };
        leaves.end(moved);
        arrives.end(moved);
        self.note_changed(&mdt, answer?.body.transno, &[parent, child]);
        Ok(())
    }

    /// The name leads to another inode now, as far as that could move.
    async fn note_migrated(&self, place: &NamePlace<'_>, name: &Name, child: &Inode) {
        let parent = place.directory;
        self.cache.inodes.note_name_absent(parent, name);
        self.cache.inodes.doubt_striping(child);
        let by = NameInvalidation::Expire;
        let stale = StaleName { parent: parent.node(), name: name.clone(), by };
        self.cache.kernel_cache.invalidate_names(vec![stale]).await;
        self.cache.kernel_cache.invalidate_attributes_but_size(parent.node()).await;
    }

    /// Ends the migration of a directory that has no name left in a stripe of before. `wish` is that by which it began.
    ///
    /// # Errors
    /// `EALREADY` if it has ended; `ENOTEMPTY` or `EBUSY` while names are left; `EPERM` for another wish.
    pub(crate) async fn finish_migration(
        &self,
        who: &Credentials,
        directory: &Inode,
        wish: &DirectoryWish,
    ) -> Result<(), Errno> {
        let value = wish.to_ea().encode();
        let set = self.setxattr(who, directory, TRUSTED_LMV, Some(value), XattrMode::Any).await;
        self.cache.inodes.doubt_striping(directory);
        self.cache.kernel_cache.invalidate_attributes_but_size(directory.node()).await;
        set
    }

    /// Removes a name whose inode is lost, without a look at that. One RPC.
    ///
    /// # Errors
    /// As `unlink(2)`; `EPERM` for other users than root.
    pub(crate) async fn remove_entry(
        &self,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
    ) -> Result<(), Errno> {
        let place = self.place(who, parent, name).await?;
        match self.remove_entry_at(who, &place, name).await {
            Err(Errno::ENOENT) => match self.place_before(&place) {
                Some(before) => self.remove_entry_at(who, &before, name).await,
                None => Err(Errno::ENOENT),
            },
            removed => removed,
        }
    }

    async fn remove_entry_at(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        name: &Name,
    ) -> Result<(), Errno> {
        let parent = place.directory;
        let mdt = self.mdt(place.holder().fid).await?;
        self.cache.inodes.forget_name(parent, name);
        let dlm_req = self.cancel_early(&mdt, &[(place.holder(), mdt.conflicting_names())]).await;
        let changing = self.begin_change(place, None, Some(name)).await;
        let (suppgid1, suppgid2) = who.groups_for(parent, May::WRITE.and(May::EXEC));
        let request = MdsReintUnlink {
            rec_reint: RecUnlink {
                opcode: ReintOp::RMENTRY,
                cap: who.capabilities(),
                fsuid: who.uid,
                fsgid: who.gid,
                suppgid1,
                suppgid2,
                fid1: place.holder().fid,
                time: self.seconds(),
                mode: FileType::Directory.mode_bits(),
                ..RecUnlink::default()
            },
            name: Some(Text::from(name)),
            dlm_req,
            ..MdsReintUnlink::default()
        };
        let call = who.sign(Call::modifying(request).with_reply_room(self.layout_room()));
        let answer = call::call::<MdsReintUnlink>(&*mdt.channel, call).await;
        changing.end(ChangeOutcome { removed: answer.is_ok(), ..ChangeOutcome::default() });
        let removed = answer.map(|answer| self.note_changed(&mdt, answer.body.transno, &[parent]));
        let stale =
            StaleName { parent: parent.node(), name: name.clone(), by: NameInvalidation::Expire };
        self.cache.kernel_cache.invalidate_names(vec![stale]).await;
        self.cache.kernel_cache.invalidate_attributes_but_size(parent.node()).await;
        removed
    }
}

/// The wish for a directory in one that is being moved: its first stripe is with its name, whichever MDT is first in the wish.
///
/// # Errors
/// `ENODEV` if that is none of the MDTs that the wish lists.
fn wish_on(mut wish: DirectoryWish, mdt: MdtIndex) -> Result<DirectoryWish, Errno> {
    if !wish.mdts.is_empty() {
        let at = wish.mdts.iter().position(|index| *index == mdt).ok_or(Errno::ENODEV)?;
        wish.mdts.swap(0, at);
    }
    wish.first = Some(mdt);
    Ok(wish)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_one_that_moves_begins_on_the_mdt_of_its_name() {
        let wish = |mdts: &[u16]| DirectoryWish {
            first: mdts.first().copied().map(MdtIndex),
            mdts: mdts.iter().copied().map(MdtIndex).collect(),
            ..DirectoryWish::default()
        };
        assert_eq!(wish_on(wish(&[0, 1, 2]), MdtIndex(2)), Ok(wish(&[2, 1, 0])));
        assert_eq!(wish_on(wish(&[0, 1]), MdtIndex(2)), Err(Errno::ENODEV));
        let one = DirectoryWish { first: Some(MdtIndex(0)), ..DirectoryWish::default() };
        assert_eq!(wish_on(one, MdtIndex(1)).map(|it| it.first), Ok(Some(MdtIndex(1))));
    }
}
