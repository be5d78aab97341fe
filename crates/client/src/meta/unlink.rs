//! Removing a name: one `MDS_REINT` (unlink), for directories too.

use std::sync::Arc;

use sheen_rpc::Call;
use sheen_types::access::May;
use sheen_types::{Errno, Fid, InodeBits, Name, Transno};
use sheen_wire::md::{MdtBody, RecUnlink, ReintOp, Valid};
use sheen_wire::messages::MdsReintUnlink;
use sheen_wire::text::Text;

use super::Meta;
use super::place::Tries;
use super::remote::{SENT_ON_MAX, sent_on_to};
use crate::cache::{ChangeOutcome, Inode, NamePlace};
use crate::call::{self, Refused};
use crate::mdt::Mdc;
use crate::types::{Credentials, FileType, NameInvalidation, StaleName};

/// `MDS_INODELOCK_ELC`: everything but data on the MDT, which may still be dirty.
pub(super) const ALL_BUT_DATA: InodeBits = InodeBits(0x3f);

/// What a name that is removed must stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removes {
    /// Anything but a directory.
    File,
    /// An empty directory.
    Directory,
}

impl Removes {
    /// As the request says it.
    fn mode(self) -> u32 {
        match self {
            Self::File => 0,
            Self::Directory => FileType::Directory.mode_bits(),
        }
    }
}

/// What an MDT has answered.
enum Unlinked {
    /// It has done it; whether that was the last name of the inode.
    Done(bool),
    /// The name stands for this inode, whose MDT is to be asked.
    SentOnTo(Fid),
    Refused(Errno),
}

/// Whether the inode has lost its last name.
fn is_nameless(body: &MdtBody) -> bool {
    body.fid1 != Fid::ZERO && body.valid.contains(Valid::NLINK) && body.nlink == 0
}

impl Mdc {
    /// The bits of an inode whose locks are cancelled when it loses a name: dirty data stays, because only
    /// the MDT knows whether another client has the file open.
    pub(super) fn bits_of_unlinked(&self, inode: &Inode) -> InodeBits {
        match self.data.is_dirty(inode.fid) {
            true => ALL_BUT_DATA,
            false => ALL_BUT_DATA | InodeBits::DOM,
        }
    }
}

impl Meta {
    /// Removes `name`, which must stand for what `removes` says. One RPC, and one more if the inode is on another MDT than was
    /// known. The child's attributes are stale after it. Returns whether that was its last name.
    pub(crate) async fn unlink(
        &self,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
        removes: Removes,
    ) -> Result<bool, Errno> {
        let child = self.known_child(parent, name);
        // The kernel removes the name itself: it need not be notified.
        self.cache.inodes.forget_name(parent, name);
        let child = child.as_ref().map(|child| child.fid);
        let unlinked = self.unlink_by_layout(who, (parent, name), (child, removes)).await;
        match unlinked {
            Ok(_) => parent.state().forget_kept_child(name),
            Err(_) => {
                // It is still there, and nothing covers it any more.
                let (parent, name) = (parent.node(), name.clone());
                let stale = StaleName { parent, name, by: NameInvalidation::Expire };
                self.cache.kernel_cache.invalidate_names(vec![stale]).await;
            }
        }
        unlinked
    }

    async fn unlink_by_layout(
        &self,
        who: &Credentials,
        (parent, name): (&Inode, &Name),
        (mut child, removes): (Option<Fid>, Removes),
    ) -> Result<bool, Errno> {
        let mut tries = Tries::default();
        loop {
            self.pause_between(tries.taken()).await;
            let moved = self.moved(parent);
            let parent = moved.as_deref().map_or(parent, |moved| moved);
            let place = match self.place_where_found(who, parent, name).await {
                Err(Errno::EBADF) => break,
                Err(errno) if self.was_moved(&[parent], &mut tries, errno) => continue,
                place => place?,
            };
            // Its inode may have moved.
            let known = self.known_child(parent, name).map(|child| child.fid);
            child = known.or(child);
            match self.unlink_where_it_is(who, (&place, name), (child, removes)).await {
                Err(errno) if self.may_be_elsewhere(&place, &mut tries, errno) => {
                    // Or what it was known to be is a stripe of another directory now, that this one has become.
                    self.cache.inodes.note_name_absent(parent, name);
                    child = None;
                }
                Err(Errno::ENOENT) if self.may_have_moved(&place, &mut tries) => {}
                Err(errno) if self.may_be_moving(&[(parent, name)], &mut tries, errno) => {}
                unlinked => return unlinked,
            }
        }
        // Its hash is unknown: any stripe may have the name.
        for place in self.all_places(parent) {
            match self.unlink_where_it_is(who, (&place, name), (child, removes)).await {
                Err(Errno::ENOENT) => {}
                unlinked => return unlinked,
            }
        }
        Err(Errno::ENOENT)
    }

    /// Asks the MDT of the inode that a name stands for as far as is known, else that of the name, and then the one that
    /// the answer names.
    async fn unlink_where_it_is(
        &self,
        who: &Credentials,
        (place, name): (&NamePlace<'_>, &Name),
        (mut child, removes): (Option<Fid>, Removes),
    ) -> Result<bool, Errno> {
        let names = self.mdt(place.holder().fid).await?;
        for _ in 0..SENT_ON_MAX {
            let mdt = match child {
                Some(child) => self.mdt(child).await?,
                None => Arc::clone(&names),
            };
            match self.unlink_on(&mdt, who, (place, name), (child, removes)).await {
                Unlinked::Done(is_gone) => return Ok(is_gone),
                Unlinked::SentOnTo(other) if Some(other) != child => child = Some(other),
                Unlinked::SentOnTo(_) => break,
                Unlinked::Refused(errno) => return Err(errno),
            }
        }
        Err(Errno::EREMOTE)
    }

    /// Asks `mdt` to remove a name, which stands for the inode `child` as far as is known.
    async fn unlink_on(
        &self,
        mdt: &Arc<Mdc>,
        who: &Credentials,
        (place, name): (&NamePlace<'_>, &Name),
        (child, removes): (Option<Fid>, Removes),
    ) -> Unlinked {
        let names = self.known_mdt(place.holder().fid);
        let conflicting = names.map_or(InodeBits::UPDATE, |names| names.conflicting_names());
        let known = child.and_then(|child| self.cache.inodes.by_fid(child));
        let mut wanted = vec![(place.holder(), conflicting)];
        wanted.extend(known.as_deref().map(|child| (child, mdt.bits_of_unlinked(child))));
        let stripes = known.as_deref().map(|child| self.cache.inodes.stripes_of(child));
        let stripes = stripes.unwrap_or_default();
        wanted.extend(stripes.iter().map(|stripe| (&***stripe, ALL_BUT_DATA)));
        // A directory's lock goes with the request, whether that is refused or not. So what the kernel keeps of it is waited
        // for as at any other loss: another mount's chmod may be what comes next. Of one that this mount has emptied it
        // keeps nothing.
        let dlm_req = self.cancel_early(mdt, &wanted).await;
        let changing = self.begin_change(place, None, Some(name)).await;
        let (suppgid1, suppgid2) = who.groups_for(place.directory, May::WRITE.and(May::EXEC));
        let request = MdsReintUnlink {
            rec_reint: RecUnlink {
                opcode: ReintOp::UNLINK,
                cap: who.capabilities(),
                fsuid: who.uid,
                fsgid: who.gid,
                suppgid1,
                suppgid2,
                fid1: place.holder().fid,
                fid2: child.unwrap_or(Fid::ZERO),
                time: self.seconds(),
                mode: removes.mode(),
                ..RecUnlink::default()
            },
            name: Some(Text::from(name)),
            dlm_req,
            ..MdsReintUnlink::default()
        };
        let call = who.sign(Call::modifying(request).with_reply_room(self.layout_room()));
        let result = call::call_with_refusal::<MdsReintUnlink>(&*mdt.channel, call).await;
        let removed = result.as_ref().is_ok_and(|answer| answer.body.transno != Transno(0));
        changing.end(ChangeOutcome { removed, ..ChangeOutcome::default() });
        match result {
            Ok(answer) => {
                self.note_changed(mdt, answer.body.transno, &[place.directory]);
                let is_gone = |body| self.note_nameless(body);
                Unlinked::Done(answer.reply.mdt_body.as_ref().is_some_and(is_gone))
            }
            Err(Refused { errno: Errno::EREMOTE, reply: Some(reply) }) => {
                let other = sent_on_to(reply.mdt_body.as_ref());
                other.map_or(Unlinked::Refused(Errno::EREMOTE), Unlinked::SentOnTo)
            }
            Err(Refused { errno, .. }) => Unlinked::Refused(errno),
        }
    }

    /// Whether the inode has lost its last name; a directory has nothing else to be found by.
    pub(super) fn note_nameless(&self, body: &MdtBody) -> bool {
        let is_gone = is_nameless(body);
        if is_gone && let Some(inode) = self.cache.inodes.by_fid(body.fid1) {
            inode.state().directory.removed = true;
        }
        is_gone
    }

    /// The inode that `name` was last seen to be, valid or not.
    pub(crate) fn known_child(&self, parent: &Inode, name: &Name) -> Option<Arc<Inode>> {
        let fid = parent.state().directory.children.get(name).copied()?;
        self.cache.inodes.by_fid(fid)
    }
}
