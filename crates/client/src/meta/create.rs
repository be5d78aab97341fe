//! Making anything but an open file: one `MDS_REINT` (create). A directory that is to lie otherwise than its parent goes to the
//! MDT of its first stripe, with the wish.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::directory::DirectoryWish;
use sheen_rpc::Call;
use sheen_types::access::May;
use sheen_types::{Errno, Fid, Name};
use sheen_wire::md::{Bias, MdsOpenFlags, RecCreate, ReintOp};
use sheen_wire::messages::{MdsReintCreate, MdsReintCreateSym};
use sheen_wire::text::Text;

use super::place::{Tries, said_striping};
use super::{ACL_ROOM, Meta};
use crate::cache::{
    CacheEpoch, ChangeOutcome, DefaultStriping, Inode, Pin, Place, ReplyAttributes,
};
use crate::call;
use crate::mdt::Mdc;
use crate::types::{Credentials, FileType, TYPE_MASK};

/// What to make.
#[derive(Clone)]
pub(crate) struct CreateRequest {
    /// Type and permission bits.
    pub(crate) mode: u32,
    /// Device number.
    pub(crate) rdev: u32,
    /// Target of a symbolic link.
    pub(crate) target: Option<Bytes>,
    /// How a directory is to lie on MDTs, if that is chosen.
    pub(crate) wish: Option<DirectoryWish>,
}

/// A directory's MDT that is not simply that of its name.
struct Placed {
    mdt: Arc<Mdc>,
    /// What the request says of it.
    wish: Bytes,
    /// Whether that is its parent's default, and no wish of the caller's.
    is_default: bool,
}

impl Placed {
    fn wished(mdt: Arc<Mdc>, wish: &DirectoryWish) -> Self {
        Self { mdt, wish: wish.to_ea().encode(), is_default: false }
    }

    fn by_default((mdt, wish): (Arc<Mdc>, Arc<DirectoryWish>)) -> Self {
        Self { is_default: true, ..Self::wished(mdt, &wish) }
    }
}

impl Meta {
    /// Makes `name` in `parent`: on the MDT of the name, or of the new inode if that is chosen. One RPC.
    pub(crate) async fn create(
        &self,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
        new: &CreateRequest,
    ) -> Result<Pin, Errno> {
        let mut tries = Tries::default();
        loop {
            let place = self.place(who, parent, name).await?;
            match self.create_at(who, &place, name, new).await {
                Err(errno) if self.may_be_elsewhere(&place, &mut tries, errno) => {}
                made => return made,
            }
        }
    }

    async fn create_at(
        &self,
        who: &Credentials,
        place: &Place<'_>,
        name: &Name,
        new: &CreateRequest,
    ) -> Result<Pin, Errno> {
        let names = self.mdt(place.holder().fid).await?;
        let is_directory = FileType::from_mode(new.mode & TYPE_MASK) == Some(FileType::Directory);
        let placed = match &new.wish {
            Some(wish) => Some(Placed::wished(self.mdt_of_wish(wish, &names).await?, wish)),
            None if is_directory && self.mdts.has_several() => {
                self.placed_by_default(who, place.directory, &names).await?.map(Placed::by_default)
            }
            None => None,
        };
        let mdt = placed.as_ref().map_or(&names, |placed| &placed.mdt);
        let fid = mdt.fids.next().await?;
        let dlm_req = self.cancel_early(mdt, &[(place.holder(), names.conflicting_names())]).await;
        let changing = self.begin_change(place, Some(name), None).await;
        let rec_reint = self.create_record(who, place, fid, (new, placed.as_ref()));
        let target = new.target.clone();
        // The answer says how a directory lies, by its parent's default if not by a wish.
        let is_striped = placed.is_some() || self.mdts.has_several();
        let room = ACL_ROOM + if is_striped { self.layout_room() } else { 0 };
        let made = match &new.target {
            Some(target) => {
                let request = MdsReintCreateSym {
                    rec_reint,
                    name: Some(Text::from(name)),
                    symtgt: Text::new(target).buffer().clone(),
                    dlm_req,
                    ..MdsReintCreateSym::default()
                };
                let call = who.sign(Call::modifying(request).with_reply_room(ACL_ROOM));
                let answer = call::call::<MdsReintCreateSym>(&*mdt.channel, call).await;
                answer.map(|answer| (answer.reply.mdt_body, Bytes::new(), answer.body.transno))
            }
            None => {
                let request = MdsReintCreate {
                    rec_reint,
                    name: Some(Text::from(name)),
                    eadata: placed.as_ref().map(|placed| placed.wish.clone()).unwrap_or_default(),
                    dlm_req,
                    ..MdsReintCreate::default()
                };
                let call = who.sign(Call::modifying(request).with_reply_room(room));
                let answer = call::call::<MdsReintCreate>(&*mdt.channel, call).await;
                answer
                    .map(|answer| (answer.reply.mdt_body, answer.reply.mdt_md, answer.body.transno))
            }
        };
        let not_added = made.as_ref().is_err_and(|errno| *errno == Errno::EEXIST);
        changing.end(ChangeOutcome { not_added, ..ChangeOutcome::default() });
        let (body, layout, transno) = made?;
        let body = call::need(body)?;
        // It is made, whatever it is.
        self.changed(mdt, transno, &[place.directory]);
        self.check_made(mdt, fid, body.fid1).await?;
        let pin = self.cache.inodes.pin(body.fid1);
        let nothing = Bytes::new();
        let attributes = ReplyAttributes { body: &body, layout: &nothing, acl: &nothing };
        pin.apply_reply(&attributes, None, &CacheEpoch::UNKNOWN);
        pin.state().target = target;
        self.note_striping(&pin, said_striping(&body, &layout)?);
        if is_directory {
            self.note_inherited_default(place.directory, &pin);
        }
        self.changed(mdt, transno, &[&pin]);
        self.cache.inodes.remember_name(place, name, &pin);
        Ok(pin)
    }

    /// Whether an MDT has made the inode that it was asked for, as far as its place goes: in the sequence of `asked`, which
    /// is one of its own. One RPC to MDT0000 for each sequence of another MDT.
    ///
    /// # Errors
    /// `EPROTO` if not; as [`Mdts::check_answered`](crate::mdt::Mdts::check_answered).
    async fn check_made(&self, mdt: &Mdc, asked: Fid, made: Fid) -> Result<(), Errno> {
        if made.seq != asked.seq {
            let mdt = mdt.index.0;
            tracing::warn!(mdt, %asked, %made, "an MDT has answered that it made another inode");
            return Err(Errno::EPROTO);
        }
        self.mdts.check_answered(mdt, made).await
    }

    /// Notes that a new directory has inherited no default, if its parent has none. No lock covers that: one that is set meanwhile
    /// counts for what is made in it once its attributes are asked for; its stripes its MDT sees to at once.
    fn note_inherited_default(&self, parent: &Inode, new: &Inode) {
        let has_none = {
            let directory = &parent.state().directory;
            directory.is_default_covered && matches!(directory.default, DefaultStriping::None)
        };
        if has_none {
            let directory = &mut new.state().directory;
            (directory.default, directory.is_default_covered) = (DefaultStriping::None, true);
        }
    }

    /// The MDT that makes a directory: that of its first stripe.
    ///
    /// # Errors
    /// `ENODEV` if there is none of that number.
    async fn mdt_of_wish(&self, wish: &DirectoryWish, names: &Arc<Mdc>) -> Result<Arc<Mdc>, Errno> {
        match wish.mdts.first().copied().or(wish.first) {
            Some(index) => self.mdts.by_index(index).ok_or(Errno::ENODEV),
            None => Ok(self.any_mdt(names).await),
        }
    }

    fn create_record(
        &self,
        who: &Credentials,
        place: &Place<'_>,
        fid: Fid,
        (new, placed): (&CreateRequest, Option<&Placed>),
    ) -> RecCreate {
        let (suppgid1, suppgid2) = who.groups_for(place.directory, May::WRITE.and(May::EXEC));
        let mut record = RecCreate {
            opcode: ReintOp::CREATE,
            cap: who.capabilities(),
            fsuid: who.uid,
            fsgid: who.gid,
            suppgid1,
            suppgid2,
            fid1: place.holder().fid,
            fid2: fid,
            time: self.seconds(),
            rdev: new.rdev.into(),
            mode: new.mode,
            bias: Bias::NONE,
            umask: who.umask,
            ..RecCreate::default()
        };
        if FileType::from_mode(new.mode & TYPE_MASK) == Some(FileType::Directory) {
            // MDS_MKDIR_LMV, which shares its bit with MDS_OPEN_RESYNC.
            record.set_flags(MdsOpenFlags::RESYNC);
        }
        match placed {
            Some(Placed { is_default: false, .. }) => {
                record.set_flags(MdsOpenFlags::RESYNC | MdsOpenFlags::CREAT);
                record.bias = Bias::SETSTRIPE_CREATE;
            }
            Some(Placed { is_default: true, .. }) => {
                record.set_flags(MdsOpenFlags::RESYNC | MdsOpenFlags::DEFAULT_LMV);
                record.bias = Bias::CREATE_DEFAULT_LMV;
            }
            None => {}
        }
        record
    }
}
