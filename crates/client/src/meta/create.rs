//! Making anything but an open file: one `MDS_REINT` (create). A directory that is to lie otherwise than its parent goes to the
//! MDT of its first stripe, with the wish. The same request of a directory that is there has it split or merged, if it says
//! so: its MDT answers at once, and moves the names then.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::directory::DirectoryWish;
use sheen_rpc::Call;
use sheen_types::access::May;
use sheen_types::{Errno, Fid, Name};
use sheen_wire::md::{Bias, MdsOpenFlags, RecCreate, ReintOp};
use sheen_wire::messages::{MdsReintCreate, MdsReintCreateSym};
use sheen_wire::text::Text;

use super::place::{Tries, striping_in_reply};
use super::remote::{SENT_ON_MAX, sent_on_to};
use super::{ACL_ROOM, LookupDepth, Meta};
use crate::cache::{
    CacheEpoch, ChangeOutcome, DefaultStriping, Inode, NamePlace, Pin, ReplyAttributes,
};
use crate::call::{self, Refused};
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
    /// Whether a directory of that name that is there already is to lie so, too, from then on.
    pub(crate) restripes: bool,
}

impl CreateRequest {
    fn is_directory(&self) -> bool {
        FileType::from_mode(self.mode & TYPE_MASK) == Some(FileType::Directory)
    }

    /// Whether it is a directory for which no MDT is named.
    fn is_plain_directory(&self) -> bool {
        self.wish.is_none() && self.is_directory()
    }
}

/// What an MDT has answered to a create.
enum Created {
    /// It has made this.
    New(Pin),
    /// A directory of that name is there, and will lie as it was wished.
    Restriped(Fid),
    /// One is there that this inode is, whose MDT is to be asked.
    SentOnTo(Fid),
}

/// A directory's MDT that is not simply that of its name.
struct Placed {
    mdt: Arc<Mdc>,
    /// What the request says of it; nothing where the MDT looks up the parent's default by itself.
    wish: Bytes,
    /// Whether its parent's default decides, and no wish of the caller's.
    is_default: bool,
}

impl Mdc {
    /// Whether it takes a parent's default with a create. An MDT of Lustre refuses that (`EPROTO`) unless `DMV_IMP_INHERIT` is agreed on,
    /// which is not offered, as what a directory inherits is kept with it; it looks the default up by itself. One of ours takes it.
    fn takes_defaults(&self) -> bool {
        self.keeps_own_names()
    }
}

impl Placed {
    fn wished(mdt: Arc<Mdc>, wish: &DirectoryWish) -> Self {
        Self { mdt, wish: wish.to_ea().encode(), is_default: false }
    }

    fn by_default((mdt, wish): (Arc<Mdc>, Arc<DirectoryWish>)) -> Self {
        let wish = if mdt.takes_defaults() { wish.to_ea().encode() } else { Bytes::new() };
        Self { mdt, wish, is_default: true }
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
            self.pause_between(tries.taken()).await;
            let moved = self.moved(parent);
            let parent = moved.as_deref().map_or(parent, |moved| moved);
            let place = match self.place_to_add(who, parent, name).await {
                Err(errno) if self.was_moved(&[parent], &mut tries, errno) => continue,
                place => place?,
            };
            match self.create_where_it_is(who, &place, name, new).await {
                Err(errno) if self.may_be_elsewhere(&place, &mut tries, errno) => {}
                Err(Errno::ENOENT) if self.may_have_moved(&place, &mut tries) => {}
                // The parent's default names another MDT by now: Lustre's MDT says so, and its client asks for it again.
                Err(Errno::EREMOTE) if new.is_plain_directory() && tries.take() => {
                    place.directory.state().directory.is_default_covered = false;
                }
                made => return made,
            }
        }
    }

    /// Asks the MDT that is to make it, and if a directory of that name is there that is to lie otherwise, that directory's.
    async fn create_where_it_is(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        name: &Name,
        new: &CreateRequest,
    ) -> Result<Pin, Errno> {
        let mut existing = None;
        for _ in 0..SENT_ON_MAX {
            match self.create_at(who, place, name, (new, existing)).await? {
                Created::New(pin) => return Ok(pin),
                Created::SentOnTo(fid) if existing != Some(fid) => existing = Some(fid),
                Created::SentOnTo(_) => break,
                Created::Restriped(fid) => {
                    self.restriped(place, name, fid);
                    let depth = LookupDepth::Name;
                    let found = self.find_placed(who, place, name, depth).await?;
                    return found.ok_or(Errno::ENOENT);
                }
            }
        }
        Err(Errno::EREMOTE)
    }

    /// The directory that a name stood for lies otherwise now, and is another inode if it lay in one piece.
    fn restriped(&self, place: &NamePlace<'_>, name: &Name, fid: Fid) {
        self.cache.inodes.note_name_absent(place.directory, name);
        if let Some(directory) = self.cache.inodes.by_fid(fid) {
            self.cache.inodes.doubt_striping(&directory);
        }
    }

    async fn create_at(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        name: &Name,
        (new, existing): (&CreateRequest, Option<Fid>),
    ) -> Result<Created, Errno> {
        let names = self.mdt(place.holder().fid).await?;
        let is_directory = new.is_directory();
        let placed = match (&new.wish, existing) {
            (Some(wish), Some(existing)) => Some(Placed::wished(self.mdt(existing).await?, wish)),
            (wish, _) => self.placed(who, place, (wish.as_ref(), is_directory), &names).await?,
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
        let mut sent_on = None;
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
                let answer = call::call_with_refusal::<MdsReintCreate>(&*mdt.channel, call).await;
                match answer {
                    Err(Refused { errno: Errno::EREMOTE, reply: Some(reply) }) => {
                        let other = sent_on_to(reply.mdt_body.as_ref());
                        sent_on = other.filter(|_| new.restripes);
                        Err(Errno::EREMOTE)
                    }
                    Err(Refused { errno, .. }) => Err(errno),
                    Ok(answer) => {
                        Ok((answer.reply.mdt_body, answer.reply.mdt_md, answer.body.transno))
                    }
                }
            }
        };
        let not_added = made.as_ref().is_err_and(|errno| *errno == Errno::EEXIST);
        changing.end(ChangeOutcome { not_added, ..ChangeOutcome::default() });
        if let Some(other) = sent_on {
            return Ok(Created::SentOnTo(other));
        }
        let (body, layout, transno) = made?;
        let body = call::need(body)?;
        // It is made, whatever it is.
        self.note_changed(mdt, transno, &[place.directory]);
        if new.restripes && body.fid1 != fid {
            self.mdts.check_answered(mdt, body.fid1).await?;
            return Ok(Created::Restriped(body.fid1));
        }
        self.check_made(mdt, fid, body.fid1).await?;
        let pin = self.cache.inodes.pin(body.fid1);
        let nothing = Bytes::new();
        let attributes = ReplyAttributes { body: &body, layout: &nothing, acl: &nothing };
        pin.apply_reply(&attributes, None, &CacheEpoch::UNKNOWN);
        pin.state().target = target;
        self.note_striping(&pin, striping_in_reply(&body, &layout)?);
        if is_directory && !new.restripes {
            self.note_inherited_default(place.directory, &pin);
        }
        self.note_changed(mdt, transno, &[&pin]);
        self.cache.inodes.remember_name(place, name, &pin);
        Ok(Created::New(pin))
    }

    /// The MDT of what is made, where that is not simply that of its name.
    async fn placed(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        (wish, is_directory): (Option<&DirectoryWish>, bool),
        names: &Arc<Mdc>,
    ) -> Result<Option<Placed>, Errno> {
        match wish {
            Some(wish) => Ok(Some(Placed::wished(self.mdt_of_wish(wish, names).await?, wish))),
            None if is_directory && self.mdts.has_several() => {
                let by_default = self.placed_by_default(who, place.directory, names).await?;
                Ok(by_default.map(Placed::by_default))
            }
            None => Ok(None),
        }
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
        place: &NamePlace<'_>,
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
        if new.is_directory() {
            // MDS_MKDIR_LMV, which shares its bit with MDS_OPEN_RESYNC.
            record.set_flags(MdsOpenFlags::RESYNC);
        }
        match placed {
            // Without the flags of what only creates.
            Some(Placed { is_default: false, .. }) if new.restripes => {}
            Some(Placed { is_default: false, .. }) => {
                record.set_flags(MdsOpenFlags::RESYNC | MdsOpenFlags::CREAT);
                record.bias = Bias::SETSTRIPE_CREATE;
            }
            Some(Placed { is_default: true, wish, .. }) if !wish.is_empty() => {
                record.set_flags(MdsOpenFlags::RESYNC | MdsOpenFlags::DEFAULT_LMV);
                record.bias = Bias::CREATE_DEFAULT_LMV;
            }
            Some(_) | None => {}
        }
        record
    }
}
