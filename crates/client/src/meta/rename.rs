//! Moving a name: one `MDS_REINT` (rename), and a lookup of the new name for the kernel, which keeps names.

use std::sync::Arc;

use sheen_rpc::Call;
use sheen_types::access::May;
use sheen_types::{Errno, Fid, InodeBits, Name, Transno};
use sheen_wire::md::{RecRename, ReintOp};
use sheen_wire::messages::MdsReintRename;
use sheen_wire::text::Text;

use super::place::Tries;
use super::remote::{SENT_ON_MAX, sent_on_to};
use super::unlink::ALL_BUT_DATA;
use super::{LookupDepth, Meta};
use crate::cache::{ChangeOutcome, Inode, NamePlace};
use crate::call::{self, Refused, TypedReply};
use crate::mdt::Mdc;
use crate::types::{Credentials, FileType, NameInvalidation, StaleName};

/// What an MDT has answered.
enum Renamed {
    /// It has done it; whether that was the last name of what was replaced.
    Done(bool),
    /// What is to be replaced is this inode, whose MDT is to be asked.
    SentOnTo(Fid),
    Refused(Errno),
}

/// A name in a directory.
type ParentAndName<'a> = (&'a Inode, &'a Name);

/// The same where it lies.
type FoundPlace<'a> = (&'a NamePlace<'a>, &'a Name);

fn stale_name((parent, name): ParentAndName<'_>, by: NameInvalidation) -> StaleName {
    StaleName { parent: parent.node(), name: name.clone(), by }
}

impl Meta {
    /// Moves a name, replacing what is there. One RPC, one more if what is replaced is on another MDT than was known, and
    /// one more if the kernel knows what is moved. The attributes of what was replaced are stale after it. Returns whether
    /// that was its last name. `moved` is the inode of the name, as far as it is known.
    pub(crate) async fn rename(
        &self,
        who: &Credentials,
        from: (&Inode, &Name),
        to: (&Inode, &Name),
        moved: Option<&Inode>,
    ) -> Result<bool, Errno> {
        let replaced = self.known_child(to.0, to.1);
        self.cache.inodes.forget_name(from.0, from.1);
        self.cache.inodes.forget_name(to.0, to.1);
        let inodes = (moved, replaced.as_ref().map(|replaced| replaced.fid));
        let renamed = self.rename_by_layout(who, (from, to), inodes).await;
        match renamed {
            Ok(_) => {
                from.0.state().forget_kept_child(from.1);
                self.note_moved(who, to, moved).await;
            }
            Err(_) => {
                let names = [from, to].map(|place| stale_name(place, NameInvalidation::Expire));
                self.cache.kernel_cache.invalidate_names(names.into()).await;
            }
        }
        renamed
    }

    async fn rename_by_layout(
        &self,
        who: &Credentials,
        (from, to): (ParentAndName<'_>, ParentAndName<'_>),
        inodes: (Option<&Inode>, Option<Fid>),
    ) -> Result<bool, Errno> {
        let mut tries = Tries::default();
        loop {
            self.pause_between(tries.taken()).await;
            let moved = (self.moved(from.0), self.moved(to.0));
            let from = (moved.0.as_deref().map_or(from.0, |moved| moved), from.1);
            let to = (moved.1.as_deref().map_or(to.0, |moved| moved), to.1);
            let leaves = self.place_where_found(who, from.0, from.1).await;
            let arrives = match &leaves {
                Ok(_) => self.place_where_found(who, to.0, to.1).await,
                Err(errno) => Err(*errno),
            };
            let (leaves, arrives) = match (leaves, arrives) {
                (Ok(leaves), Ok(arrives)) => (leaves, arrives),
                (Err(errno), _) | (_, Err(errno)) => {
                    if self.was_moved(&[from.0, to.0], &mut tries, errno) {
                        continue;
                    }
                    return Err(errno);
                }
            };
            let places = ((&leaves, from.1), (&arrives, to.1));
            // What is replaced may have moved.
            let replaced = self.known_child(to.0, to.1).map(|replaced| replaced.fid);
            let target = replaced.or(if tries.taken() == 0 { inodes.1 } else { None });
            match self.rename_where_it_is(who, places, (inodes.0, target)).await {
                // Which of the two is not said.
                Err(errno) if self.may_be_elsewhere(&leaves, &mut tries, errno) => {
                    self.cache.inodes.doubt_striping(to.0);
                    self.cache.inodes.note_name_absent(to.0, to.1);
                }
                Err(errno) if self.may_be_elsewhere(&arrives, &mut tries, errno) => {
                    self.cache.inodes.note_name_absent(to.0, to.1);
                }
                Err(Errno::ENOENT) if self.may_have_moved(&leaves, &mut tries) => {}
                Err(Errno::ENOENT) if self.may_have_moved(&arrives, &mut tries) => {}
                Err(errno) if self.may_be_moving(&[from, to], &mut tries, errno) => {}
                renamed => return renamed,
            }
        }
    }

    /// Asks the MDT of what is replaced as far as is known, else that of the new name, and then the one that the answer
    /// names.
    async fn rename_where_it_is(
        &self,
        who: &Credentials,
        (from, to): (FoundPlace<'_>, FoundPlace<'_>),
        (moved, mut replaced): (Option<&Inode>, Option<Fid>),
    ) -> Result<bool, Errno> {
        let names = self.mdt(to.0.holder().fid).await?;
        // Its own MDT has locks that may conflict.
        self.mdt(from.0.holder().fid).await?;
        for _ in 0..SENT_ON_MAX {
            let mdt = match replaced {
                Some(replaced) => self.mdt(replaced).await?,
                None => Arc::clone(&names),
            };
            match self.rename_on(&mdt, who, (from, to), (moved, replaced)).await {
                Renamed::Done(is_gone) => return Ok(is_gone),
                Renamed::SentOnTo(other) if Some(other) != replaced => replaced = Some(other),
                Renamed::SentOnTo(_) => break,
                Renamed::Refused(errno) => return Err(errno),
            }
        }
        Err(Errno::EXDEV)
    }

    /// Asks `mdt` to move a name, of the inode `moved`, to where `replaced` is, as far as those are known.
    async fn rename_on(
        &self,
        mdt: &Arc<Mdc>,
        who: &Credentials,
        (from, to): (FoundPlace<'_>, FoundPlace<'_>),
        (moved, replaced): (Option<&Inode>, Option<Fid>),
    ) -> Renamed {
        let (left, entered) = (from.0.holder(), to.0.holder());
        let names = |holder: &Inode| {
            let mdt = self.known_mdt(holder.fid);
            mdt.map_or(InodeBits::UPDATE, |mdt| mdt.conflicting_names())
        };
        let mut wanted = vec![(left, names(left)), (entered, names(entered))];
        let links = InodeBits::LOOKUP | InodeBits::UPDATE | InodeBits::XATTR;
        wanted.extend(moved.map(|moved| (moved, links)));
        let replaced = replaced.and_then(|replaced| self.cache.inodes.by_fid(replaced));
        let bits = |replaced| (replaced, mdt.bits_of_unlinked(replaced));
        wanted.extend(replaced.as_deref().map(bits));
        let stripes = replaced.as_deref().map(|replaced| self.cache.inodes.stripes_of(replaced));
        let stripes = stripes.unwrap_or_default();
        wanted.extend(stripes.iter().map(|stripe| (&***stripe, ALL_BUT_DATA)));
        let dlm_req = self.cancel_early(mdt, &wanted).await;
        let within = left.fid == entered.fid;
        let leaves = self.begin_change(from.0, within.then_some(to.1), Some(from.1)).await;
        let arrives = match within {
            true => None,
            false => Some(self.begin_change(to.0, Some(to.1), None).await),
        };
        let request = MdsReintRename {
            rec_reint: self.rename_record(who, (from.0, to.0), moved),
            name: Some(Text::from(from.1)),
            symtgt: Some(Text::from(to.1)),
            dlm_req,
            ..MdsReintRename::default()
        };
        let call = who.sign(Call::modifying(request).with_reply_room(self.layout_room()));
        let answer = call::call_with_refusal::<MdsReintRename>(&*mdt.channel, call).await;
        let done = answer.as_ref().map_or_else(|_| ChangeOutcome::default(), outcome);
        leaves.end(done);
        if let Some(arrives) = arrives {
            arrives.end(done);
        }
        match answer {
            Ok(answer) => {
                self.note_changed(mdt, answer.body.transno, &[from.0.directory, to.0.directory]);
                self.note_changed(mdt, answer.body.transno, moved.as_slice());
                let is_gone = |body| self.note_nameless(body);
                Renamed::Done(answer.reply.mdt_body.as_ref().is_some_and(is_gone))
            }
            Err(Refused { errno: Errno::EXDEV, reply: Some(reply) }) => {
                let other = sent_on_to(reply.mdt_body.as_ref());
                other.map_or(Renamed::Refused(Errno::EXDEV), Renamed::SentOnTo)
            }
            Err(Refused { errno, .. }) => Renamed::Refused(errno),
        }
    }

    /// The name was moved: the kernel has it at its new place, too.
    async fn note_moved(&self, who: &Credentials, to: ParentAndName<'_>, moved: Option<&Inode>) {
        if let Some(moved) = moved {
            if self.cover_moved(who, to, moved).await {
                return;
            }
            moved.state().names.moved_here = true;
        }
        let by = moved.map_or(NameInvalidation::Expire, |it| it.state().name_invalidation());
        self.cache.kernel_cache.invalidate_names(vec![stale_name(to, by)]).await;
    }

    fn rename_record(
        &self,
        who: &Credentials,
        (from, to): (&NamePlace<'_>, &NamePlace<'_>),
        moved: Option<&Inode>,
    ) -> RecRename {
        let (names, kind) = (May::WRITE.and(May::EXEC), moved.and_then(Inode::file_type));
        let mut judged = vec![(from.directory, names), (to.directory, names)];
        // Its `..` changes.
        let is_directory = kind == Some(FileType::Directory);
        judged.extend(
            moved
                .filter(|_| is_directory && from.directory.fid != to.directory.fid)
                .map(|it| (it, May::WRITE)),
        );
        let groups = who.groups_for_all(&judged);
        RecRename {
            opcode: ReintOp::RENAME,
            cap: who.capabilities(),
            fsuid: who.uid,
            fsgid: groups.fsgid,
            suppgid1: groups.supplementary.0,
            suppgid2: groups.supplementary.1,
            fid1: from.holder().fid,
            fid2: to.holder().fid,
            time: self.seconds(),
            mode: kind.map_or(0, |kind| kind.mode_bits()),
            ..RecRename::default()
        }
    }

    /// The kernel moves the name to its new place when the call returns, by itself, and would use it there
    /// until it is notified: this gets the lock that allows that. Returns whether it was granted, the name
    /// is what it was, and every user may search the directory. One RPC.
    async fn cover_moved(
        &self,
        who: &Credentials,
        (parent, name): (&Inode, &Name),
        moved: &Inode,
    ) -> bool {
        if !self.cache.kernel_cache.has_notifier() {
            return false;
        }
        let depth = match moved.file_type() {
            Some(FileType::Directory) => LookupDepth::Name,
            _ => LookupDepth::Attributes,
        };
        let found = self.lookup(who, parent, name, depth).await;
        let is_same = matches!(found, Ok(Some(found)) if found.fid == moved.fid);
        let is_timed = moved.file_type() == Some(FileType::Directory);
        if !is_same || !self.cache.may_keep_name(parent, name, is_timed) {
            return false;
        }
        let mut state = moved.state();
        let is_covered = state.is_named(parent.node(), name);
        if is_covered {
            state.note_name_moved_by_kernel(parent.node(), name);
        }
        is_covered
    }
}

/// What became of the names. Two names of one inode both stay, which is no transaction; and where
/// something was replaced, the new name was there before.
fn outcome(answer: &TypedReply<MdsReintRename>) -> ChangeOutcome {
    let moved = answer.body.transno != Transno(0);
    let replaced = answer.reply.mdt_body.as_ref().is_some_and(|body| body.fid1 != Fid::ZERO);
    ChangeOutcome { not_added: !moved || replaced, removed: moved }
}
