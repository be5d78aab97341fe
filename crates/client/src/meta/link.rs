//! Hard links: one `MDS_REINT` (link).

use sheen_rpc::Call;
use sheen_types::access::May;
use sheen_types::{Errno, InodeBits, Name};
use sheen_wire::md::{RecLink, ReintOp};
use sheen_wire::messages::MdsReintLink;
use sheen_wire::text::Text;

use super::Meta;
use super::place::Tries;
use crate::cache::{ChangeOutcome, Inode, NamePlace};
use crate::call;
use crate::types::Credentials;

impl Meta {
    /// Gives `inode` the name `name` in `parent`. One RPC; the inode's attributes are stale after it.
    pub(crate) async fn link(
        &self,
        who: &Credentials,
        inode: &Inode,
        parent: &Inode,
        name: &Name,
    ) -> Result<(), Errno> {
        let mut tries = Tries::default();
        loop {
            self.pause_between(tries.taken()).await;
            let moved = self.moved(parent);
            let parent = moved.as_deref().map_or(parent, |moved| moved);
            let place = match self.place_to_add(who, parent, name).await {
                Err(errno) if self.was_moved(&[parent], &mut tries, errno) => continue,
                place => place?,
            };
            match self.link_at(who, inode, &place, name).await {
                Err(errno) if self.may_be_elsewhere(&place, &mut tries, errno) => {}
                Err(Errno::ENOENT) if self.may_have_moved(&place, &mut tries) => {}
                linked => return linked,
            }
        }
    }

    async fn link_at(
        &self,
        who: &Credentials,
        inode: &Inode,
        place: &NamePlace<'_>,
        name: &Name,
    ) -> Result<(), Errno> {
        let (parent, holder) = (place.directory, place.holder());
        let mdt = self.mdt(holder.fid).await?;
        let links = InodeBits::LOOKUP | InodeBits::UPDATE | InodeBits::XATTR;
        let wanted = [(holder, mdt.conflicting_names()), (inode, links)];
        let dlm_req = self.cancel_early(&mdt, &wanted).await;
        let changing = self.begin_change(place, Some(name), None).await;
        let request = MdsReintLink {
            rec_reint: RecLink {
                opcode: ReintOp::LINK,
                cap: who.capabilities(),
                fsuid: who.uid,
                fsgid: who.gid,
                suppgid1: who.group_for(inode, May::NOTHING),
                suppgid2: who.group_for(parent, May::WRITE.and(May::EXEC)),
                fid1: inode.fid,
                fid2: holder.fid,
                time: self.seconds(),
                ..RecLink::default()
            },
            name: Some(Text::from(name)),
            dlm_req,
            ..MdsReintLink::default()
        };
        let call = who.sign(Call::modifying(request));
        let answer = call::call::<MdsReintLink>(&*mdt.channel, call).await;
        let not_added = answer.as_ref().is_err_and(|errno| *errno == Errno::EEXIST);
        changing.end(ChangeOutcome { not_added, ..ChangeOutcome::default() });
        let answer = answer?;
        self.note_changed(&mdt, answer.body.transno, &[inode, parent]);
        Ok(())
    }
}
