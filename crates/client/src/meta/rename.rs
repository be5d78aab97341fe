//! Moving a name: one `MDS_REINT` (rename), and a lookup of the new name for the kernel, which keeps names.

use sheen_rpc::Call;
use sheen_types::access::May;
use sheen_types::{Errno, Fid, InodeBits, Name, Transno};
use sheen_wire::md::{RecRename, ReintOp};
use sheen_wire::messages::MdsReintRename;
use sheen_wire::text::Text;

use super::{LookupDepth, Meta};
use crate::cache::{ChangeOutcome, Inode};
use crate::call::{self, TypedReply};
use crate::types::{Credentials, FileType};

impl Meta {
    /// Moves a name, replacing what is there. One RPC, and one more if the kernel knows what is moved. The
    /// attributes of what was replaced are stale after it. Returns whether that was its last name.
    pub(crate) async fn rename(
        &self,
        who: &Credentials,
        from: (&Inode, &Name),
        to: (&Inode, &Name),
    ) -> Result<bool, Errno> {
        let mdt = self.mdt(from.0.fid)?;
        let moved = self.known_child(from.0, from.1);
        let replaced = self.known_child(to.0, to.1);
        self.cache.inodes.forget_name(from.0, from.1);
        self.cache.inodes.forget_name(to.0, to.1);
        let names = mdt.conflicting_names();
        let mut wanted = vec![(from.0, names), (to.0, names)];
        let links = InodeBits::LOOKUP | InodeBits::UPDATE | InodeBits::XATTR;
        wanted.extend(moved.as_deref().map(|moved| (moved, links)));
        let bits = |replaced| (replaced, mdt.bits_of_unlinked(replaced));
        wanted.extend(replaced.as_deref().map(bits));
        let dlm_req = self.cancel_early(mdt, &wanted).await;
        let within = from.0.fid == to.0.fid;
        let leaves = self.begin_change(from.0, within.then_some(to.1), Some(from.1)).await;
        let arrives = match within {
            true => None,
            false => Some(self.begin_change(to.0, Some(to.1), None).await),
        };
        let request = MdsReintRename {
            rec_reint: self.rename_record(who, (from.0, to.0), moved.as_deref()),
            name: Some(Text::from(from.1)),
            symtgt: Some(Text::from(to.1)),
            dlm_req,
            ..MdsReintRename::default()
        };
        let call = who.sign(Call::modifying(request).with_reply_room(self.layout_room()));
        let answer = call::call::<MdsReintRename>(&*mdt.channel, call).await;
        let done = answer.as_ref().map_or_else(|_| ChangeOutcome::default(), outcome);
        leaves.end(done);
        if let Some(arrives) = arrives {
            arrives.end(done);
        }
        match answer {
            Ok(answer) => {
                self.changed(answer.body.transno, &[from.0, to.0]);
                let is_gone =
                    answer.reply.mdt_body.as_ref().is_some_and(|body| self.note_nameless(body));
                if let Some(moved) = &moved {
                    self.changed(answer.body.transno, &[moved]);
                    if self.cover_moved(who, to, moved).await {
                        return Ok(is_gone);
                    }
                    moved.state().names.moved_here = true;
                }
                let is_in_use = moved.as_ref().is_none_or(|it| it.state().is_in_use());
                let name = vec![(to.0.node, to.1.clone(), is_in_use)];
                self.cache.kernel_cache.entries(name).await;
                Ok(is_gone)
            }
            Err(errno) => {
                let names = [from, to].map(|(parent, name)| (parent.node, name.clone(), true));
                self.cache.kernel_cache.entries(names.into()).await;
                Err(errno)
            }
        }
    }

    fn rename_record(
        &self,
        who: &Credentials,
        (from, to): (&Inode, &Inode),
        moved: Option<&Inode>,
    ) -> RecRename {
        let wanted = May::WRITE.and(May::EXEC);
        let kind = moved.and_then(Inode::file_type);
        RecRename {
            opcode: ReintOp::RENAME,
            cap: who.capabilities(),
            fsuid: who.uid,
            fsgid: who.gid,
            suppgid1: who.group_for(from, wanted),
            suppgid2: who.group_for(to, wanted),
            fid1: from.fid,
            fid2: to.fid,
            time: self.seconds(),
            mode: kind.map_or(0, |kind| kind.mode_bits()),
            ..RecRename::default()
        }
    }

    /// The kernel moves the name to its new place when the call returns, by itself, and would use it there
    /// until it is notified: this gets the lock that allows that. Returns whether it was granted and the name
    /// is what it was. One RPC.
    async fn cover_moved(
        &self,
        who: &Credentials,
        (parent, name): (&Inode, &Name),
        moved: &Inode,
    ) -> bool {
        if !self.cache.kernel_cache.watched() {
            return false;
        }
        let depth = match moved.file_type() {
            Some(FileType::Directory) => LookupDepth::Name,
            _ => LookupDepth::Attributes,
        };
        let found = self.lookup(who, parent, name, depth).await;
        let is_same = matches!(found, Ok(Some(found)) if found.fid == moved.fid);
        let mut state = moved.state();
        let is_covered = is_same && state.is_named(parent.node, name);
        if is_covered {
            state.name_was_kept(parent.node, name);
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
