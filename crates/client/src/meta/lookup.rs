//! Finding a name: one `LDLM_ENQUEUE` with a getattr or lookup intent.

use sheen_rpc::Call;
use sheen_types::access::May;
use sheen_types::{Errno, Fid, InodeBits, LockMode, Name};
use sheen_wire::ldlm::{IntentOp, LdlmIntent};
use sheen_wire::md::{Disposition, MdtBody, Valid};
use sheen_wire::messages::{LdlmIntentGetattr, LdlmIntentGetattrReply};
use sheen_wire::text::Text;

use super::inline::data_value;
use super::place::{Tries, default_in_reply, striping_in_reply};
use super::{ACL_ROOM, Meta};
use crate::cache::{CacheEpoch, Inode, NamePlace, Pin, ReplyAttributes};
use crate::call;
use crate::locks::{LockReference, LockRequest, PendingLock};
use crate::mdt::{Mdc, intent_status};
use crate::types::{Credentials, FileType};
use sheen_ldlm::{LockFlags, Policy};

/// How much is wanted of a name's inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupDepth {
    /// Attributes under a lock on all of them.
    Attributes,
    /// A lock on the name; attributes as of now. For directories that this client is changing itself: a lock
    /// on their attributes would be revoked by the next change, and the name's lock with it.
    Name,
}

impl LookupDepth {
    fn intent(self) -> (IntentOp, InodeBits) {
        match self {
            // With XATTR the MDT may say that there are no extended attributes.
            Self::Attributes => (IntentOp::GETATTR, InodeBits::UPDATE | InodeBits::XATTR),
            Self::Name => (IntentOp::LOOKUP, InodeBits::LOOKUP),
        }
    }
}

/// What was known of a name when it was asked for, to compare with when the answer is here.
pub(super) struct NameSnapshot {
    fid: Option<Fid>,
    asked: CacheEpoch,
}

impl NameSnapshot {
    pub(super) fn of(place: &NamePlace<'_>, name: &Name) -> Self {
        let (fid, asked) = {
            let state = place.directory.state();
            (state.directory.children.get(name).copied(), state.epoch())
        };
        let asked = if place.is_in_stripe() { place.holder().state().epoch() } else { asked };
        Self { fid, asked }
    }

    /// The inode that it stood for.
    pub(super) fn fid(&self) -> Option<Fid> {
        self.fid
    }
}

/// What a name stands for, by its directory's MDT.
pub(super) struct FoundInode {
    pub(super) pin: Pin,
    /// The lock that came with it.
    pub(super) _held: Option<LockReference>,
    /// Another MDT has the inode: no attributes came, and the lock is on the name alone.
    pub(super) is_remote: bool,
}

/// What a name stands for, once that is noted and the lock released.
pub(super) struct NotedName {
    pin: Pin,
    is_remote: bool,
}

impl FoundInode {
    /// # Errors
    /// `EPROTO` unless it is this inode, on the MDT that was asked.
    pub(super) fn is(&self, inode: &Inode) -> Result<(), Errno> {
        let is_it = self.pin.fid == inode.fid && !self.is_remote;
        if is_it { Ok(()) } else { Err(Errno::EPROTO) }
    }
}

/// What was known of an inode when it was asked about, if it was known at all, to compare with when the answer is
/// here.
pub(super) struct InodeSnapshot(Option<(Fid, CacheEpoch)>);

impl InodeSnapshot {
    /// With what an answer about this inode must be compared.
    pub(super) fn asked(&self, fid: Fid) -> CacheEpoch {
        let known = self.0.filter(|(known, _)| *known == fid);
        known.map_or(CacheEpoch::UNKNOWN, |(_, epoch)| epoch)
    }
}

/// What every getattr asks for, without the default of new directories.
pub(super) fn getattr_valid() -> Valid {
    // OBD_MD_FLGETATTR, and what comes with it. With `MEA` the MDT says how a directory lies.
    Valid::ID
        | Valid::ATIME
        | Valid::MTIME
        | Valid::CTIME
        | Valid::SIZE
        | Valid::BLOCKS
        | Valid::BLKSIZE
        | Valid::MODE
        | Valid::TYPE
        | Valid::UID
        | Valid::GID
        | Valid::FLAGS
        | Valid::NLINK
        | Valid::PARENT
        | Valid::RDEV
        | Valid::EASIZE
        | Valid::MODEASIZE
        | Valid::DIREA
        | Valid::MEA
        | Valid::ACL
        | Valid::PROJID
        | Valid::BTIME
}

impl Meta {
    /// What a getattr intent asks for: where there are several MDTs, also how new directories are to lie on them.
    pub(super) fn intent_valid(&self) -> Valid {
        let default = if self.mdts.has_several() { Valid::DEFAULT_MEA } else { Valid::NONE };
        getattr_valid() | default
    }

    /// Looks `name` up in `parent`; `None` if it is not there. One RPC, and another if the inode is on another MDT than
    /// the name; up to two more while names are being moved between stripes.
    pub(crate) async fn lookup(
        &self,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
        depth: LookupDepth,
    ) -> Result<Option<Pin>, Errno> {
        let mut tries = Tries::default();
        loop {
            self.pause_between(tries.taken()).await;
            let moved = self.moved(parent);
            let parent = moved.as_deref().map_or(parent, |moved| moved);
            let place = match self.place(who, parent, name).await {
                Err(errno) if self.was_moved(&[parent], &mut tries, errno) => continue,
                Err(Errno::EBADF) => return self.search_stripes(who, parent, name, depth).await,
                place => place?,
            };
            match self.find_placed(who, &place, name, depth).await {
                Ok(None) if self.may_have_moved(&place, &mut tries) => {}
                Ok(None) => {
                    self.learn_names(who, place.holder()).await;
                    return Ok(None);
                }
                Err(errno) if self.may_be_elsewhere(&place, &mut tries, errno) => {}
                found => return found,
            }
        }
    }

    /// Looks a name up in a directory whose hash is unknown: one RPC for each stripe, until one has the name.
    async fn search_stripes(
        &self,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
        depth: LookupDepth,
    ) -> Result<Option<Pin>, Errno> {
        for place in self.all_places(parent) {
            if let Some(found) = self.find_name(who, &place, name, depth).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Looks this name up, and no other. The lock on a name is released before the MDT of its inode is asked: another client may
    /// give the name to another inode meanwhile, and destroy this one. The name is asked for again then, as often as it
    /// stands for another inode than before.
    pub(super) async fn find_name(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        name: &Name,
        depth: LookupDepth,
    ) -> Result<Option<Pin>, Errno> {
        let mut gone = None;
        loop {
            let known = NameSnapshot::of(place, name);
            let noted = match self.getattr_name(who, place, name, depth).await {
                Ok(found) => self.note_name(place, name, found),
                Err(Errno::ENOENT) => {
                    self.name_absent(place, name, &known);
                    return Ok(None);
                }
                Err(errno) => return Err(errno),
            };
            let fid = noted.pin.fid;
            let found = self.ask_if_remote(who, place, name, (noted, depth)).await?;
            if found.is_some() || gone.replace(fid) == Some(fid) {
                return Ok(found);
            }
        }
    }

    /// Notes what a name stands for, while the lock that came with it is in use, and releases that: the inode's MDT
    /// answers when a change over both is on both, and the name's MDT may want the lock back for it.
    pub(super) fn note_name(
        &self,
        place: &NamePlace<'_>,
        name: &Name,
        found: FoundInode,
    ) -> NotedName {
        self.cache.inodes.remember_name(place, name, &found.pin);
        NotedName { pin: found.pin, is_remote: found.is_remote }
    }

    /// Asks the inode's MDT if that is another than the name's, and answers the inode; `None` if that MDT does not have it
    /// any more.
    pub(super) async fn ask_if_remote(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        name: &Name,
        (NotedName { pin, is_remote }, depth): (NotedName, LookupDepth),
    ) -> Result<Option<Pin>, Errno> {
        if !is_remote {
            return Ok(Some(pin));
        }
        match self.attributes_of_remote(who, &pin, depth).await {
            Ok(()) => Ok(Some(pin)),
            Err(Errno::ENOENT) => {
                self.cache.inodes.note_name_absent(place.directory, name);
                Ok(None)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Notes that a directory has no such name.
    pub(super) fn name_absent(&self, place: &NamePlace<'_>, name: &Name, known: &NameSnapshot) {
        self.cache.inodes.note_name_absent(place.directory, name);
        let mut state = place.holder().state();
        if state.unbroken_since(&known.asked) {
            state.keep_absent(name);
        }
    }

    /// The intent itself, of an inode.
    pub(super) async fn getattr_intent(
        &self,
        who: &Credentials,
        inode: &Inode,
        depth: LookupDepth,
    ) -> Result<FoundInode, Errno> {
        let group = who.group_for(inode, May::EXEC);
        let body = MdtBody { fid2: inode.fid, ..who.body(inode.fid, self.intent_valid(), group) };
        let place = NamePlace::whole(inode);
        match self.getattr_intent_with(who, &place, None, (depth, body.clone())).await {
            // By a FID that this client was given elsewhere, before its configuration lists the MDT.
            Err(Errno::EREMOTE) if !self.mdts.has_several() => {
                self.mdts.note_several();
                self.getattr_intent_with(who, &place, None, (depth, body)).await
            }
            answered => answered,
        }
    }

    /// The intent itself, of a name.
    async fn getattr_name(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        name: &Name,
        depth: LookupDepth,
    ) -> Result<FoundInode, Errno> {
        let group = who.group_for(place.directory, May::EXEC);
        let body = who.body(place.holder().fid, self.intent_valid(), group);
        self.getattr_intent_with(who, place, Some(name), (depth, body)).await
    }

    /// The intent of a name, or without one of what is asked at `place`, with this `body`.
    pub(super) async fn getattr_intent_with(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        name: Option<&Name>,
        (depth, body): (LookupDepth, MdtBody),
    ) -> Result<FoundInode, Errno> {
        let inode = place.holder();
        let mdt = self.mdt(inode.fid).await?;
        let (opc, bits) = depth.intent();
        let about = match name {
            None => Some(inode.fid),
            Some(name) => place.directory.state().directory.children.get(name).copied(),
        };
        let about = self.inode_snapshot(about);
        let pending = mdt.locks.begin(LockRequest {
            resource: inode.resource(),
            policy: Policy::bits(bits),
            mode: LockMode::Cr,
            flags: LockFlags::HAS_INTENT,
        });
        let mdt_body = MdtBody { eadatasize: self.layout_room() as u32, ..body };
        let request = LdlmIntentGetattr {
            dlm_req: pending.request(),
            ldlm_intent: LdlmIntent { opc },
            mdt_body,
            name: Some(name.map(Text::from).unwrap_or_default()),
            ..LdlmIntentGetattr::default()
        };
        let call = who.sign(Call::new(request).with_reply_room(self.layout_room() + ACL_ROOM));
        let (pending, answer) = pending.send::<LdlmIntentGetattr>(&mdt.channel, call).await?;
        self.take_attributes(&mdt, &about, pending, (answer.reply, answer.connection)).await
    }

    /// What is known of the inode that a question is about, if its FID is known.
    pub(super) fn inode_snapshot(&self, fid: Option<Fid>) -> InodeSnapshot {
        let inode = fid.and_then(|fid| self.cache.inodes.by_fid(fid));
        InodeSnapshot(inode.map(|inode| (inode.fid, inode.state().epoch())))
    }

    /// Takes over what `mdt` has answered to a getattr intent, over this connection: attributes, and the lock that covers
    /// them; or that another MDT has the inode, and the lock that covers its name.
    pub(super) async fn take_attributes(
        &self,
        mdt: &Mdc,
        about: &InodeSnapshot,
        pending: PendingLock,
        (reply, connection): (LdlmIntentGetattrReply, u32),
    ) -> Result<FoundInode, Errno> {
        let lock = call::need(reply.dlm_rep)?;
        if lock.policy_res1.contains(Disposition::LOOKUP_NEG) {
            return Err(Errno::ENOENT);
        }
        if let Some(errno) = intent_status(lock.policy_res2) {
            return Err(errno);
        }
        let said = reply.mdt_body.as_ref().map(|body| striping_in_reply(body, &reply.mdt_md));
        let said = said.transpose()?;
        let value = data_value(&lock, reply.mdt_body.as_ref());
        let held = pending.granted_with(&lock, &value, connection).await?;
        let body = call::need(reply.mdt_body)?;
        let pin = self.cache.inodes.pin(body.fid1);
        if body.valid.contains(Valid::MDS) {
            self.mdts.note_several();
            held.iter().for_each(|held| pin.note_remote_name(mdt.index, held));
            return Ok(FoundInode { pin, _held: held, is_remote: true });
        }
        self.mdts.check_answered(mdt, pin.fid).await?;
        let attributes = ReplyAttributes { body: &body, layout: &reply.mdt_md, acl: &reply.acl };
        pin.apply_reply(&attributes, held.as_ref(), &about.asked(pin.fid));
        if let Some(said) = said {
            self.note_striping(&pin, said);
        }
        if self.mdts.has_several() && pin.file_type() == Some(FileType::Directory) {
            let default = default_in_reply(&body, &reply.default_mdt_md);
            let is_locked = held.as_ref().is_some_and(|held| {
                held.resource() == pin.resource() && held.bits().contains(InodeBits::LOOKUP)
            });
            pin.state().note_default_striping(default, is_locked);
        }
        Ok(FoundInode { pin, _held: held, is_remote: false })
    }
}
