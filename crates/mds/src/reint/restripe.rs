//! Splitting and merging a directory, as clients ask for it: `mkdir` of a name that is there, with a wish (`lfs setdirstripe`).

use sheen_store::FileKind;
use sheen_target::{Context, Outcome};
use sheen_types::{Errno, Timestamp};
use sheen_wire::md::{MdsOpenFlags, RecCreate};
use sheen_wire::messages::{MdsReintCreate, MdsReintCreateReply};
use sheen_wire::text::Text;

use crate::caller::Caller;
use crate::coordinator::Restripe;
use crate::directory::parse_name;
use crate::inode::Inode;
use crate::striped::{parse_wish, says_several};
use crate::{Mdt, remote};

impl Mdt {
    /// What a mkdir comes to whose name is that of a directory and whose wish says how that is to lie from now on; `None` if it makes a new
    /// one. While `enable_dir_restripe` is off it always does, and finds the name taken.
    ///
    /// # Errors
    /// [`Errno::ENOTDIR`], [`Errno::EPERM`] as for a new directory with such a wish, [`Errno::EREMOTE`] with a body that names the
    /// directory if another MDT has it, and those of [`Mdt::restripe`].
    pub(super) async fn restripe_by_wish(
        &self,
        context: &Context,
        request: &MdsReintCreate,
    ) -> Result<Option<Outcome>, Errno> {
        let record = &request.rec_reint;
        let is_directory = FileKind::from_mode(record.mode) == Some(FileKind::Directory);
        let not_meant = MdsOpenFlags::DEFAULT_LMV | MdsOpenFlags::CREAT;
        let may_be = self.restripes_directories()
            && is_directory
            && !request.eadata.is_empty()
            && !record.flags().intersects(not_meant);
        if !may_be || context.replay().is_some() {
            return Ok(None);
        }
        let wish = parse_wish(&request.eadata)?;
        if wish.first.is_some() || !wish.mdts.is_empty() {
            return Ok(None);
        }
        let name = request.name.as_ref().ok_or(Errno::EPROTO)?;
        let (parent, name) = (record.fid1, parse_name(name.as_bytes())?);
        let found = self.find_on_any_mdt(&context.target, parent, &name).await?;
        let Some(child) = found else { return Ok(None) };
        let caller = Caller::from(record);
        let setting = self.setting_for(says_several(&wish));
        self.check_choice(context, &caller, "a split or merge of a directory", &[setting])?;
        if self.mdt_of(&context.target, child.fid).await?.0 != self.index {
            let mdt_body = Some(remote::named(child.fid));
            let reply = MdsReintCreateReply { mdt_body, ..Default::default() };
            return Ok(Some(Outcome::failed(Errno::EREMOTE, reply)));
        }
        if child.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let new_master = record.fid2;
        let is_ours =
            !self.is_remote(new_master) && self.sequences.may_make(new_master, &context.export);
        if !is_ours {
            return Err(Errno::EINVAL);
        }
        let (directory, wish, name) = (child.fid, &wish, &name);
        let now = Timestamp::from_seconds(record.time);
        let caller = Some(&caller);
        let wanted = Restripe { parent, name, directory, new_master, wish, now, caller };
        let inode = self.restripe(context.into(), &wanted).await?;
        Ok(Some(Outcome::ok(self.created(&inode, record))))
    }

    /// What a mkdir or mknod that was executed before has come to: the new inode, or the directory that was split or merged, if it is
    /// still there.
    pub(crate) async fn made_before(
        &self,
        context: &Context,
        record: &RecCreate,
        name: Option<&Text>,
    ) -> Option<Inode> {
        if let Ok(inode) = self.inode(record.fid2) {
            return Some(inode);
        }
        let name = parse_name(name?.as_bytes()).ok()?;
        let found = self.find_on_any_mdt(&context.target, record.fid1, &name).await;
        let child = found.ok().flatten().filter(|child| child.kind == FileKind::Directory)?;
        self.inode(child.fid).ok()
    }
}
