//! Opening, and creating with it: one `LDLM_ENQUEUE` with an open intent.
//!
//! The handle that an open returns lives in the MDT's memory (see [`crate::mdt`]).

use std::sync::Arc;

use bytes::Bytes;
use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::{Answer, Call, RequestHook};
use sheen_types::access::May;
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode, Name};
use sheen_wire::ldlm::{IntentOp, LdlmIntent, LdlmReply};
use sheen_wire::md::{Bias, Disposition, MdsOpenFlags, RecCreate, ReintOp, Valid};
use sheen_wire::messages::LdlmIntentOpen;
use sheen_wire::text::Text;

use super::inline::data_value;
use super::lookup::InodeSnapshot;
use super::place::{RepliedStriping, Tries, striping_in_reply};
use super::{ACL_ROOM, Meta};
use crate::cache::{ChangeOutcome, Inode, NamePlace, Pin, ReplyAttributes};
use crate::call::{self, TypedReply};
use crate::locks::{LockReference, LockRequest, PendingLock};
use crate::mdt::{HandleCell, Mdc, MdtOpen, intent_status};
use crate::types::{Credentials, FileType, OpenFlags};

/// What the name of a file without a name begins with (`LUSTRE_VOLATILE_HDR`).
const VOLATILE: &str = ".\x0c\x13VOLATILE";

/// Names that are tried for each stripe, until one lies on the MDT that is wanted.
const VOLATILE_NAMES_TRIED: usize = 32;

/// What an open found or made.
pub(crate) struct OpenedInode {
    /// The inode.
    pub(crate) pin: Pin,
    /// Its handle, if its kind has any.
    pub(crate) open: Option<MdtOpen>,
    /// Whether it was made.
    pub(crate) created: bool,
    /// The lock that came with it.
    pub(super) held: Option<LockReference>,
    /// Its name was on another MDT, and was noted under the lock that came with it.
    pub(super) name_noted: bool,
}

/// What an MDT has answered to an open.
enum OpenAnswer {
    Opened(OpenedInode),
    /// Another MDT has what the name stands for, and this lock is on the name.
    Remote(Pin, Option<LockReference>),
}

/// What to open.
#[derive(Clone, Copy)]
pub(super) enum OpenTarget<'a> {
    /// A name, made with this mode if absent.
    Create { place: &'a NamePlace<'a>, name: &'a Name, mode: u32, fid: Fid },
    /// A name.
    Name { place: &'a NamePlace<'a>, name: &'a Name },
    /// A known inode.
    Known(&'a Inode),
    /// What a name at `place` stands for, an inode of another MDT than the name's, which has been asked already; by an
    /// open that `creates` if need be.
    Remote { inode: &'a Inode, place: &'a NamePlace<'a>, creates: bool },
}

/// The MDT's answer to an open, and what waits for it.
struct OpenReply {
    mdt: Arc<Mdc>,
    handle: Arc<HandleCell>,
    pending: PendingLock,
    answer: TypedReply<LdlmIntentOpen>,
    /// What was known when it was asked.
    about: InodeSnapshot,
}

impl OpenedInode {
    /// What it was opened by need not be covered by these locks.
    fn release_locks(&mut self) {
        drop(self.held.take());
    }
}

impl<'a> OpenTarget<'a> {
    /// The inode that the request names for the lock. The lock that comes may be on another: a create names the
    /// parent, and an open by name too, and the MDT grants one on the file.
    fn asked_on(&self) -> &'a Inode {
        match self {
            Self::Create { place, .. } | Self::Name { place, .. } => place.holder(),
            Self::Known(on) | Self::Remote { inode: on, .. } => on,
        }
    }

    /// The directory in which the open makes something, or else what it opens.
    fn changes(&self) -> &'a Inode {
        match self {
            Self::Create { place, .. } | Self::Name { place, .. } => place.directory,
            Self::Known(on) | Self::Remote { inode: on, .. } => on,
        }
    }

    /// The inode that it is known to be.
    fn known(&self) -> Option<Fid> {
        match self {
            Self::Create { place, name, .. } | Self::Name { place, name } => {
                place.directory.state().directory.children.get(*name).copied()
            }
            Self::Known(inode) | Self::Remote { inode, .. } => Some(inode.fid),
        }
    }

    /// The operation, and which lock is asked for with it.
    fn intent(&self) -> (IntentOp, InodeBits, LockMode) {
        match self {
            Self::Create { .. } | Self::Remote { creates: true, .. } => {
                // The MDT gives a lock on what it makes; `XATTR` asks for that bit as well, so that
                // the kernel's question for capabilities before the first write is answered here.
                let bits = InodeBits::UPDATE | InodeBits::XATTR;
                (IntentOp::OPEN | IntentOp::CREAT, bits, LockMode::Cw)
            }
            Self::Name { .. } | Self::Known(_) | Self::Remote { .. } => {
                (IntentOp::OPEN, InodeBits::LOOKUP, LockMode::Cr)
            }
        }
    }

    /// The name that the request carries.
    fn name(&self) -> Text {
        match self {
            Self::Create { name, .. } | Self::Name { name, .. } => Text::from(*name),
            Self::Known(_) | Self::Remote { .. } => Text::default(),
        }
    }
}

/// The client's own locks that conflict with the open: their cancels go with it.
async fn cancel_before_open(
    mdt: &Mdc,
    target: &OpenTarget<'_>,
    flags: MdsOpenFlags,
) -> Vec<LockHandle> {
    let on = target.asked_on().resource();
    let conflicting = match target {
        OpenTarget::Create { .. } => (on, LockMode::Ex, mdt.conflicting_names()),
        // Handles that are only cached do not conflict.
        OpenTarget::Known(_) if flags.contains(MdsOpenFlags::WRITE) => {
            (on, LockMode::Cw, InodeBits::OPEN)
        }
        OpenTarget::Known(_) if flags.contains(MdsOpenFlags::EXEC) => {
            (on, LockMode::Pr, InodeBits::OPEN)
        }
        OpenTarget::Name { .. } | OpenTarget::Known(_) | OpenTarget::Remote { .. } => {
            return Vec::new();
        }
    };
    mdt.locks.cancel_early(&[conflicting]).await
}

/// Why the MDT has not opened anything, as its answer says.
fn refused(lock: &LdlmReply) -> Result<(), Errno> {
    let has = |what| lock.policy_res1.contains(what);
    match intent_status(lock.policy_res2) {
        Some(errno) => Err(errno),
        None if has(Disposition::LOOKUP_NEG) && !has(Disposition::OPEN_CREATE) => {
            Err(Errno::ENOENT)
        }
        None => Ok(()),
    }
}

/// Linux's open flags as the MDT takes them.
pub(super) fn wire_flags(flags: OpenFlags) -> MdsOpenFlags {
    let pairs = [
        (OpenFlags::EXCLUSIVE, MdsOpenFlags::EXCL),
        (OpenFlags::TRUNCATE, MdsOpenFlags::TRUNC),
        (OpenFlags::APPEND, MdsOpenFlags::APPEND),
        (OpenFlags::SYNC, MdsOpenFlags::SYNC),
        (OpenFlags::DIRECTORY, MdsOpenFlags::DIRECTORY),
        (OpenFlags::EXEC, MdsOpenFlags::EXEC),
    ];
    let mut wire = MdsOpenFlags::DEFAULT_LMV;
    for (linux, lustre) in pairs {
        if flags.has(linux) {
            wire |= lustre;
        }
    }
    if flags.reads() {
        wire |= MdsOpenFlags::READ;
    }
    if flags.writes() {
        wire |= MdsOpenFlags::WRITE;
    }
    wire
}

/// What the MDT asks for an open with these flags.
pub(crate) fn wanted_by_open(flags: OpenFlags) -> May {
    wire_flags(flags).rights()
}

impl Meta {
    /// Bytes of variable reply that an open takes: data too, where it will be read.
    fn reply_room(&self, flags: MdsOpenFlags) -> usize {
        let reads = flags.contains(MdsOpenFlags::READ) && !flags.contains(MdsOpenFlags::DIRECTORY);
        let takes_data = reads && !flags.contains(MdsOpenFlags::TRUNC);
        let inline = if takes_data { self.inline_room() } else { 0 };
        self.layout_room() + ACL_ROOM + inline
    }

    /// Opens `inode`. One RPC. No handle for what needs none on the MDT: devices, pipes.
    pub(crate) async fn open(
        &self,
        who: &Credentials,
        inode: &Inode,
        flags: OpenFlags,
    ) -> Result<Option<MdtOpen>, Errno> {
        let flags = wire_flags(flags).without(MdsOpenFlags::EXCL) | MdsOpenFlags::BY_FID;
        let opened = self.open_intent(who, OpenTarget::Known(inode), flags, None).await?;
        Ok(opened.open)
    }

    /// Opens what `name` in `parent` is, to read. One RPC, and another if that is on another MDT than its name.
    pub(crate) async fn open_name(
        &self,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
    ) -> Result<OpenedInode, Errno> {
        let flags = wire_flags(OpenFlags(0));
        let mut tries = Tries::default();
        loop {
            self.pause_between(tries.taken()).await;
            let moved = self.moved(parent);
            let parent = moved.as_deref().map_or(parent, |moved| moved);
            let place = match self.place_where_found(who, parent, name).await {
                Err(errno) if self.was_moved(&[parent], &mut tries, errno) => continue,
                place => place?,
            };
            let target = OpenTarget::Name { place: &place, name };
            let mut opened = match self.open_intent(who, target, flags, None).await {
                Err(errno) if self.may_be_elsewhere(&place, &mut tries, errno) => continue,
                Err(Errno::ENOENT) if self.may_have_moved(&place, &mut tries) => continue,
                Err(errno) if self.may_be_moving(&[(parent, name)], &mut tries, errno) => continue,
                opened => opened?,
            };
            if !opened.name_noted {
                self.cache.inodes.remember_name(&place, name, &opened.pin);
            }
            opened.release_locks();
            return Ok(opened);
        }
    }

    /// Opens `name` in `parent`, creating it if absent. RPCs as [`Meta::open_name`]. With `caches` it asks for the lock that
    /// lets the open stay.
    pub(crate) async fn open_create(
        &self,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
        mode: u32,
        how: (OpenFlags, bool),
    ) -> Result<OpenedInode, Errno> {
        let mut tries = Tries::default();
        loop {
            self.pause_between(tries.taken()).await;
            let moved = self.moved(parent);
            let parent = moved.as_deref().map_or(parent, |moved| moved);
            let place = match self.place_where_found(who, parent, name).await {
                Err(errno) if self.was_moved(&[parent], &mut tries, errno) => continue,
                place => place?,
            };
            let is_exclusive = how.0.has(OpenFlags::EXCLUSIVE);
            match self.open_create_at(who, &place, name, mode, how).await {
                Err(errno) if self.may_be_elsewhere(&place, &mut tries, errno) => {}
                Err(Errno::ENOENT) if self.may_have_moved(&place, &mut tries) => {}
                // It is in the other stripe, by a change of another client, or has moved.
                Err(errno)
                    if !is_exclusive
                        && self.may_be_moving(&[(parent, name)], &mut tries, errno) => {}
                opened => return opened,
            }
        }
    }

    async fn open_create_at(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        name: &Name,
        mode: u32,
        (flags, caches): (OpenFlags, bool),
    ) -> Result<OpenedInode, Errno> {
        let fid = self.mdt(place.holder().fid).await?.fids.next().await?;
        let lock = if caches { MdsOpenFlags::LOCK } else { MdsOpenFlags::NONE };
        let flags = wire_flags(flags) | MdsOpenFlags::CREAT | lock;
        let changing = self.begin_change(place, Some(name), None).await;
        let target = OpenTarget::Create { place, name, mode, fid };
        let opened = self.open_intent(who, target, flags, None).await;
        let not_added = match &opened {
            Ok(opened) => !opened.created,
            Err(errno) => *errno == Errno::EEXIST,
        };
        changing.end(ChangeOutcome { not_added, ..ChangeOutcome::default() });
        let mut opened = opened?;
        // The name is sure as long as that lock is in use.
        if !opened.name_noted {
            self.cache.inodes.remember_name(place, name, &opened.pin);
        }
        if !caches {
            opened.release_locks();
        }
        Ok(opened)
    }

    /// A name in `parent` that lies on the MDT of the inode `beside`, for a file without a name: two layouts are exchanged on
    /// one MDT.
    ///
    /// # Errors
    /// `EXDEV` if no name of the directory lies there.
    async fn volatile_place<'a>(
        &self,
        who: &Credentials,
        parent: &'a Inode,
        beside: &Inode,
    ) -> Result<(NamePlace<'a>, Name), Errno> {
        let wanted = self.mdt(beside.fid).await?.index;
        let tries = VOLATILE_NAMES_TRIED * self.cache.inodes.stripes_of(parent).len().max(1);
        for _ in 0..tries {
            let name = format!("{VOLATILE}:0000:{:04X}", self.world.random.number() as u16);
            // A legal name: ours.
            let name = Name::new(name.as_bytes()).map_err(|_| Errno::EINVAL)?;
            let place = self.place(who, parent, &name).await?;
            if self.mdt(place.holder().fid).await?.index == wanted {
                return Ok((place, name));
            }
        }
        tracing::info!(directory = %parent.fid, mdt = wanted.0, "a directory has no place on the MDT of a file in it");
        Err(Errno::EXDEV)
    }

    /// Makes a file without a name, of this layout if there is one, on the MDT of the inode `beside`, and opens it to write.
    /// Its close removes it. One RPC.
    pub(crate) async fn open_volatile(
        &self,
        who: &Credentials,
        parent: &Inode,
        (beside, layout): (&Inode, Option<Bytes>),
    ) -> Result<OpenedInode, Errno> {
        let (place, name) = self.volatile_place(who, parent, beside).await?;
        let fid = self.mdt(place.holder().fid).await?.fids.next().await?;
        let access = MdsOpenFlags::READ | MdsOpenFlags::WRITE;
        let flags = access | MdsOpenFlags::CREAT | MdsOpenFlags::EXCL | MdsOpenFlags::VOLATILE;
        let target = OpenTarget::Create { place: &place, name: &name, mode: 0o600, fid };
        let mut opened = self.open_intent(who, target, flags, layout).await?;
        opened.release_locks();
        Ok(opened)
    }

    /// The intent. `layout` is one to create the objects with.
    pub(super) async fn open_intent(
        &self,
        who: &Credentials,
        target: OpenTarget<'_>,
        flags: MdsOpenFlags,
        layout: Option<Bytes>,
    ) -> Result<OpenedInode, Errno> {
        self.retry_while_in_progress(|| self.open_intent_once(who, target, flags, layout.clone()))
            .await
    }

    async fn open_intent_once(
        &self,
        who: &Credentials,
        target: OpenTarget<'_>,
        flags: MdsOpenFlags,
        layout: Option<Bytes>,
    ) -> Result<OpenedInode, Errno> {
        let creates = matches!(target, OpenTarget::Create { .. });
        let mut gone = None;
        loop {
            let answer = self.send_open(who, target, flags, layout.clone()).await?;
            let (inode, name_held) = match answer {
                OpenAnswer::Opened(opened) => return Ok(opened),
                OpenAnswer::Remote(inode, name_held) => (inode, name_held),
            };
            let (OpenTarget::Create { place, name, .. } | OpenTarget::Name { place, name }) =
                target
            else {
                return Err(Errno::EPROTO);
            };
            self.cache.inodes.remember_name(place, name, &inode);
            // The inode's MDT answers when a change over both is on both, and the name's MDT may want the lock back for it.
            drop(name_held);
            let remote = OpenTarget::Remote { inode: &inode, place, creates };
            match self.send_open(who, remote, flags, layout.clone()).await {
                Ok(OpenAnswer::Opened(opened)) => {
                    return Ok(OpenedInode { name_noted: true, ..opened });
                }
                Ok(OpenAnswer::Remote(..)) => return Err(Errno::EPROTO),
                // As in `find_name`: it stands for another inode by now, or for none.
                Err(Errno::ENOENT) if gone != Some(inode.fid) => gone = Some(inode.fid),
                Err(errno) => return Err(errno),
            }
            self.cache.inodes.note_name_absent(place.directory, name);
        }
    }

    async fn send_open(
        &self,
        who: &Credentials,
        target: OpenTarget<'_>,
        flags: MdsOpenFlags,
        layout: Option<Bytes>,
    ) -> Result<OpenAnswer, Errno> {
        let on = target.asked_on();
        let mdt = self.mdt(on.fid).await?;
        let about = self.inode_snapshot(target.known());
        let early = cancel_before_open(&mdt, &target, flags).await;
        let (opc, bits, mode) = target.intent();
        let pending = mdt.locks.begin(LockRequest {
            resource: on.resource(),
            policy: Policy::bits(bits),
            mode,
            flags: LockFlags::HAS_INTENT,
        });
        let request = LdlmIntentOpen {
            dlm_req: pending.intent_request(early),
            ldlm_intent: LdlmIntent { opc },
            rec_reint: self.open_record(who, &target, flags, layout.is_some()),
            name: Some(target.name()),
            eadata: layout.unwrap_or_default(),
            ..LdlmIntentOpen::default()
        };
        let handle = HandleCell::new(&mdt);
        let mut call = who.sign(Call::modifying(request).with_reply_room(self.reply_room(flags)));
        call.hook = Some(Arc::clone(&handle) as Arc<dyn RequestHook>);
        let (opener, cell) = (Arc::clone(&mdt), Arc::clone(&handle));
        let dispose = move |answer: &Answer| MdtOpen::close_dropped(opener, cell, answer);
        let (pending, answer) =
            pending.send_or_dispose::<LdlmIntentOpen>(&mdt.channel, call, dispose).await?;
        let reply = OpenReply { mdt, handle, pending, answer, about };
        self.note_opened(target.changes(), reply).await
    }

    /// Takes the MDT's answer over: data and lock first, then what it says of the inode.
    async fn note_opened(&self, on: &Inode, reply: OpenReply) -> Result<OpenAnswer, Errno> {
        let OpenReply { mdt, handle, pending, answer, about } = reply;
        let reply = answer.reply;
        let lock = call::need(reply.dlm_rep)?;
        refused(&lock)?;
        let body = reply.mdt_body.as_ref();
        let inline_data = mdt.take_inline(&lock, body, (&reply.mdt_md, &reply.niobuf_inline));
        let value = data_value(&lock, body);
        let opened = body.filter(|_| lock.policy_res1.contains(Disposition::OPEN_OPEN));
        let open = opened.map(|body| {
            handle.set_first(body);
            MdtOpen::new(Arc::clone(&mdt), handle, answer.xid)
        });
        // What was opened all the same is closed.
        let said = body
            .map_or(Ok(RepliedStriping::Nothing), |body| striping_in_reply(body, &reply.mdt_md))?;
        // The lock may have gone with an eviction, and the open be of the connection after that.
        let held = pending.granted_with(&lock, &value, answer.connection).await?;
        let open = open.map(|open| open.with_data(inline_data.filter(|_| held.is_some())));
        let body = call::need(reply.mdt_body)?;
        let pin = self.cache.inodes.pin(body.fid1);
        if body.valid.contains(Valid::MDS) {
            held.iter().for_each(|held| pin.note_remote_name(mdt.index, held));
            return Ok(OpenAnswer::Remote(pin, held));
        }
        self.mdts.check_answered(&mdt, pin.fid).await?;
        let attributes = ReplyAttributes { body: &body, layout: &reply.mdt_md, acl: &reply.acl };
        pin.apply_reply(&attributes, held.as_ref(), &about.asked(pin.fid));
        // An open does not ask for it: only that there are stripes is said.
        if matches!(said, RepliedStriping::Stripes(_)) {
            self.note_striping(&pin, said);
        }
        let created = lock.policy_res1.contains(Disposition::OPEN_CREATE);
        if created {
            self.note_changed(&mdt, answer.body.transno, &[on, &pin]);
        }
        let name_noted = false;
        Ok(OpenAnswer::Opened(OpenedInode { pin, open, created, held, name_noted }))
    }

    fn open_record(
        &self,
        who: &Credentials,
        target: &OpenTarget<'_>,
        flags: MdsOpenFlags,
        has_layout: bool,
    ) -> RecCreate {
        let mut record = RecCreate {
            opcode: ReintOp::OPEN,
            cap: who.capabilities(),
            fsuid: who.uid,
            fsgid: who.gid,
            time: self.seconds(),
            mode: FileType::Regular.mode_bits(),
            umask: who.umask,
            ..RecCreate::default()
        };
        match target {
            OpenTarget::Create { place, mode, fid, .. } => {
                let wanted = May::WRITE.and(May::EXEC);
                (record.suppgid1, record.suppgid2) = who.groups_for(place.directory, wanted);
                record.fid1 = place.holder().fid;
                record.fid2 = *fid;
                record.mode |= mode & 0o7777;
            }
            OpenTarget::Name { place, .. } => {
                (record.suppgid1, record.suppgid2) = who.groups_for(place.directory, May::EXEC);
                record.fid1 = place.holder().fid;
            }
            OpenTarget::Known(inode) => {
                (record.suppgid1, record.suppgid2) = who.groups_for(inode, flags.rights());
                record.fid1 = inode.fid;
                record.fid2 = inode.fid;
            }
            OpenTarget::Remote { inode, place, .. } => {
                (record.suppgid1, record.suppgid2) = who.groups_for(inode, flags.rights());
                record.fid1 = inode.fid;
                record.fid2 = place.holder().fid;
                record.bias = Bias::CROSS_REF;
            }
        }
        let has_layout = if has_layout { MdsOpenFlags::HAS_EA } else { MdsOpenFlags::NONE };
        record.set_flags(flags | has_layout);
        record
    }
}
