//! Opens, with or without creation: the intent, and the bare REINT. The steps, each the function of that name:
//!
//! 1. `intent_open` or `reint_open` takes the request apart.
//! 2. `open` checks the client's budget of open files. Where what follows fails, it closes what was opened.
//! 3. `try_open` refuses what is not to be executed; a replay goes to `replay_open`. What is opened by its FID, because
//!    the client knows that or another MDT has the name, is held and goes to step 5.
//! 4. `open_by_name` holds the name with its inode ([`crate::hold`]), or else the absent name.
//! 5. `open_found` opens what is there, `open_new` (in `open_new`) makes it, `open_remote_name` leaves it to the client
//!    to ask the inode's MDT. The first two check rights, revoke conflicting locks and opens, and take objects.
//! 6. `execute_open`, or `open_new` itself, executes the change: one transaction, where there is one.
//! 7. `add_to_open_table` makes the open handle, `add_open_lock` the client's lock, `answer` the reply.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use sheen_ldlm::Policy;
use sheen_store::{FileKind, WholeObject};
use sheen_target::budget::Opener;
use sheen_target::{
    Context, EnqueueRequest, Export, ExportState, LockGuard, Outcome, ReplyRecording, Target,
    store_errno,
};
use sheen_types::{Errno, Fid, InodeBits, LockMode, Name, ResourceName};
use sheen_wire::connect::ConnectFlags;
use sheen_wire::ldlm::{Disposition, LdlmReply};
use sheen_wire::md::{Bias, FileFlags, MdsOpenFlags, MdtBody, OpenHandle, RecCreate};
use sheen_wire::messages::{LdlmIntentOpen, LdlmIntentOpenReply, MdsReintOpen, MdsReintOpenReply};
use sheen_wire::text::Text;

use super::lease::OpenLocks;
use super::open_new::layout_disposition;
use crate::answer::{LOCK_ABORTED, add_acl, lockless_reply};
use crate::caller::{Caller, May};
use crate::coordinator::NewNameHold;
use crate::directory::{Step, parse_name};
use crate::hold::{HoldGuard, Wanted, WantedName};
use crate::inode::{Inode, WholeInode};
use crate::new_inode::CreateSpec;
use crate::open_table::{OpenFile, OpenTable};
use crate::placement::ReservedObjects;
use crate::vouched_sizes::BeforeWriter;
use crate::{Mdt, layouts, locks, remote, striped, xattrs};

/// What an open asks for, as an intent or as a bare REINT.
pub(super) struct OpenRequest<'a> {
    pub(super) record: &'a RecCreate,
    pub(super) flags: MdsOpenFlags,
    pub(super) name: &'a [u8],
    pub(super) layout: &'a Bytes,
    pub(super) security: Option<(&'a Text, &'a Bytes)>,
    /// The lock that the client would take; `None` if no lock can be given.
    pub(super) enqueue: Option<&'a EnqueueRequest>,
    /// It was executed before a restart, and the client did not see the answer.
    pub(super) is_repeated: bool,
}

/// The head that says that no bytes of the file come with the answer.
const NO_DATA: [u8; 16] = [0; 16];

/// How far an open has got: reported to the client even if it fails.
#[derive(Default)]
pub(super) struct OpenProgress {
    pub(super) disposition: Disposition,
    pub(super) body: MdtBody,
    pub(super) layout: Bytes,
    pub(super) acl: Bytes,
    /// What new directories in a directory get as their stripes.
    pub(super) default: Bytes,
    pub(super) lock: Option<LdlmReply>,
    /// Bytes of the file, where they lie on the MDT.
    pub(super) data: Bytes,
}

impl OpenProgress {
    pub(super) fn add(&mut self, more: Disposition) {
        self.disposition |= more;
    }

    /// The answer says nothing of an inode whose lock was refused.
    fn forget_inode(&mut self) {
        *self = Self { disposition: self.disposition, ..Self::default() };
    }
}

impl Mdt {
    /// IT_OPEN, with or without IT_CREAT.
    pub(crate) async fn intent_open(
        &self,
        context: &Context,
        request: &LdlmIntentOpen,
        enqueue: &EnqueueRequest,
    ) -> Result<Outcome, Errno> {
        let opening = of_intent(request, enqueue);
        let mut progress = OpenProgress::default();
        let result = self.open(context, &opening, &mut progress).await;
        answer(context, progress, result)
    }

    /// REINT_OPEN: an open without a lock.
    pub(crate) async fn reint_open(
        &self,
        context: &Context,
        request: &MdsReintOpen,
    ) -> Result<Outcome, Errno> {
        let security = request.file_secctx_name.as_ref().map(|name| (name, &request.file_secctx));
        let name = request.name.as_ref();
        let opening = OpenRequest::new(&request.rec_reint, name, &request.eadata, security, None);
        let mut progress = OpenProgress::default();
        self.open(context, &opening, &mut progress).await?;
        Ok(Outcome::ok(MdsReintOpenReply {
            mdt_body: Some(progress.body),
            mdt_md: progress.layout,
            acl: progress.acl,
            ..MdsReintOpenReply::default()
        }))
    }

    pub(super) async fn open(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let open = |export: &Export, whose| export.role::<OpenTable>().count(whose);
        let opener = match opening.is_repeated {
            true => Opener::Before,
            false => Opener::User(opening.record.fsuid),
        };
        context.target.check_open_budget(context, opener, open)?;
        let opened = self.try_open(context, opening, progress).await;
        if opened.is_err() && progress.disposition.contains(Disposition::OPEN_OPEN) {
            // The client gets no handle to close it by.
            let table = context.export.role::<OpenTable>();
            let handle = table.opened_by(context.xid).map(|(handle, _)| handle);
            if let Some(file) = handle.and_then(|handle| table.remove(handle))
                && let Err(errno) = self.close_for_client(&context.target, file).await
            {
                tracing::warn!(target = context.target.name(), %errno,
                    "cannot close a file whose open has failed");
            }
        }
        opened.map_err(|errno| context.fail_after_execution(errno))
    }

    async fn try_open(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        if opening.flags.contains(MdsOpenFlags::HAS_EA) && opening.layout.is_empty() {
            return Err(Errno::EINVAL);
        }
        // Leases to release a file to an archive or of a file that is made, and layouts whose objects a client made
        // itself, are refused rather than ignored.
        let unknown = MdsOpenFlags::RELEASE | MdsOpenFlags::HAS_OBJS;
        let leases = opening.flags.contains(MdsOpenFlags::LEASE);
        if opening.flags.intersects(unknown) || leases && opening.creates() {
            return Err(Errno::EOPNOTSUPP);
        }
        let changes = MdsOpenFlags::WRITE | MdsOpenFlags::TRUNC | MdsOpenFlags::CREAT;
        if self.must_not_change(context) && opening.flags.intersects(changes) {
            return Err(Errno::EROFS);
        }
        if context.replay().is_some() {
            return self.replay_open(context, opening, progress).await;
        }
        progress.add(Disposition::IT_EXECD | Disposition::LOOKUP_EXECD);
        if opening.flags.contains(MdsOpenFlags::VOLATILE) && opening.creates() {
            let held = self.hold_inodes(&[opening.record.fid2]).await;
            return self.open_volatile(context, &held, opening, progress).await;
        }
        let is_remote = opening.record.bias.contains(Bias::CROSS_REF);
        if is_remote || opening.flags.contains(MdsOpenFlags::BY_FID) {
            // The second step of an open by a name that another MDT has.
            let fid = if is_remote { opening.record.fid1 } else { opening.record.fid2 };
            let held = self.hold_inodes_to_open(&[fid]).await;
            let inode = self.inode(fid).inspect_err(|_| progress.add(Disposition::LOOKUP_NEG))?;
            self.open_found(context, &held, opening, &inode, progress).await?;
            progress.add(Disposition::LOOKUP_POS);
            return Ok(());
        }
        self.open_by_name(context, opening, progress).await
    }

    async fn open_by_name(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let parent = self.directory(opening.record.fid1)?;
        let caller = Caller::from(opening.record);
        caller.may(&*self.store, parent.fid, &parent.attributes, May::EXEC)?;
        if let Step::Name(name) = Step::parse(opening.name)? {
            self.check_place(parent.fid, name.as_bytes())?;
        }
        let names = [WantedName::opened(parent.fid, opening.name)];
        if let Some(held) = self.hold_if_there(Wanted::of_names(&names)).await? {
            progress.add(Disposition::LOOKUP_POS);
            let child = held.child(0).ok_or(Errno::ENOENT)?;
            if self.is_remote(child.fid) {
                return self.open_remote_name(context, opening, child.fid, progress).await;
            }
            let inode = self.inode(child.fid)?;
            self.open_found(context, &held, opening, &inode, progress).await?;
            self.add_layout_max(&mut progress.body);
            return Ok(());
        }
        progress.add(Disposition::LOOKUP_NEG);
        if !opening.creates() {
            return Err(Errno::ENOENT);
        }
        let name = parse_name(opening.name)?;
        let both = self.hold_new_name_to_open(context, opening, (parent.fid, &name)).await?;
        let within = both.as_ref().map(NewNameHold::within);
        let names = [WantedName::added(parent.fid, opening.name)];
        let held = self.hold(Wanted { within, ..Wanted::of_names(&names) }).await?;
        if self.find(parent.fid, &name)?.is_none() {
            self.check_new_place(context, (parent.fid, opening.name), both.as_ref())?;
            return self.open_new(context, &held, opening, &name, progress).await;
        }
        // Another client was faster: it is an open of what is there.
        drop((held, both));
        progress.disposition = progress.disposition.without(Disposition::LOOKUP_NEG);
        Box::pin(self.open_by_name(context, opening, progress)).await
    }

    /// As [`Mdt::hold_new_name`]. What is in the stripe of before is opened there, unless it must be new.
    async fn hold_new_name_to_open(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        place: (Fid, &Name),
    ) -> Result<Option<NewNameHold>, Errno> {
        let caller = Caller::from(opening.record);
        match self.hold_new_name(context, &caller, place, &[]).await {
            Err(Errno::EEXIST) if !opening.flags.contains(MdsOpenFlags::EXCL) => Err(Errno::ESTALE),
            held => held,
        }
    }

    /// The name leads to an inode of another MDT, which is to be asked: the lock keeps the name.
    async fn open_remote_name(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        fid: Fid,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        if opening.creates() && opening.flags.contains(MdsOpenFlags::EXCL) {
            return Err(Errno::EEXIST);
        }
        progress.body = remote::named(fid);
        let Some(enqueue) = opening.enqueue else { return Ok(()) };
        progress.lock = Some(match context.resent_lock(enqueue) {
            Some(lock) => lock,
            None => {
                let guard = locks::read(context, fid, InodeBits::LOOKUP, InodeBits(0)).await?;
                locks::hand_over(context, guard, enqueue)?
            }
        });
        Ok(())
    }

    /// Opens what exists.
    async fn open_found(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        opening: &OpenRequest<'_>,
        inode: &Inode,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let flags = opening.flags;
        if flags.contains(MdsOpenFlags::DIRECTORY) && inode.is_regular() {
            return Err(Errno::ENOTDIR);
        }
        self.put_inode(context, inode, progress)?;
        if !has_handle(context, inode) {
            return Ok(());
        }
        self.may_open(opening, inode)?;
        let layout = self.layout(inode)?;
        if flags.contains(MdsOpenFlags::HAS_EA) && layout.is_some() {
            return Err(Errno::EEXIST);
        }
        if inode.is_regular() {
            layouts::refuse_unknown_overstriping(context, layout.as_ref())?;
        }
        if inode.is_regular() && layout.is_none() && opening.needs_objects() {
            return self.open_and_place(context, held, opening, inode, progress).await;
        }
        let before = match flags.contains(MdsOpenFlags::WRITE) {
            true => self.prepare_for_writer(&context.target, held, inode.fid).await?,
            false => BeforeWriter::default(),
        };
        self.revoke_conflicting_opens(&context.target, inode.fid, flags).await?;
        let data = self.dom_open_of(context, opening, inode.fid, layout.as_ref());
        let data = data.filter(|_| !flags.contains(MdsOpenFlags::LEASE));
        let locks = self.take_open_locks(context, opening, inode, data).await;
        let OpenLocks { for_client, until_counted } =
            locks.inspect_err(|_| progress.forget_inode())?;
        if flags.contains(MdsOpenFlags::LEASE) {
            progress.add(Disposition::OPEN_LEASE);
        } else if inode.is_regular() {
            progress.add(layout_disposition(context, layout.as_ref()));
        }
        self.execute_open(context, held, opening, inode, None, progress)?;
        drop(until_counted);
        if before.was_known_empty {
            self.open_counts.note_unwritten(inode.fid);
        }
        if before.was_closed {
            self.open_counts.note_known_writers(inode.fid);
        }
        // What was read before the lock may have changed.
        let inode = self.inode(inode.fid)?;
        self.put_inode(context, &inode, progress)?;
        self.add_data(context, opening, data, for_client.as_ref(), &inode, progress)?;
        add_open_lock(context, opening, for_client, progress)
    }

    /// Has clients close what they only keep open, where that conflicts with an open with these `flags`: a file that
    /// is open for writing is not executed, nor the other way round.
    pub(crate) async fn revoke_conflicting_opens(
        &self,
        target: &Arc<Target>,
        fid: Fid,
        flags: MdsOpenFlags,
    ) -> Result<(), Errno> {
        if self.open_counts.refuses_open(fid, flags) {
            drop(target.lock_inode(fid, InodeBits::OPEN, locks::mode_of_open(flags)).await?);
        }
        Ok(())
    }

    /// Opens a file for writing that has no objects yet: it gets them now. Clients that have cached
    /// that it has none lose that lock first; no lock goes to the client.
    async fn open_and_place(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        opening: &OpenRequest<'_>,
        inode: &Inode,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let parent = match self.parent_of(inode) {
            Some(parent) => Some(parent),
            None => self.directory(opening.record.fid1).ok(),
        };
        let size = self.reported_size(inode).map_err(store_errno)?.map_or(0, |(size, _)| size);
        let reserved =
            self.objects_for_new(context, opening, inode.fid, parent.as_ref(), size).await?;
        let target = &context.target;
        let _lock = target.lock_inode(inode.fid, InodeBits::LAYOUT, LockMode::Ex).await?;
        self.execute_open(context, held, opening, inode, reserved, progress)?;
        progress.add(layout_disposition(context, None));
        self.put_inode(context, inode, progress)?;
        Ok(())
    }

    /// Counts the open and executes its transaction: the record of the answer, and the objects that the file got.
    pub(super) fn execute_open(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        opening: &OpenRequest<'_>,
        inode: &Inode,
        reserved: Option<ReservedObjects>,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let mut changes = self.change_set();
        if opening.flags.contains(MdsOpenFlags::WRITE) {
            changes.add_writer(inode.fid)?;
        }
        if let Some(reserved) = &reserved {
            changes.use_objects(inode.fid, reserved);
        }
        self.open_counts.open(inode.fid, opening.flags)?;
        let done = progress.disposition | Disposition::OPEN_OPEN;
        let recording = ReplyRecording::Keep { result: 0, data: done.0 };
        let made = self.execute(context, held, changes, recording);
        made.inspect_err(|_| _ = self.open_counts.close(inode.fid, opening.flags))?;
        if opening.flags.contains(MdsOpenFlags::WRITE) {
            // From here on no getattr finds it closed, and has it asked for.
            self.sizes.end_confirmation(inode.fid);
        }
        progress.disposition = done;
        progress.body.open_handle = self.add_to_open_table(context, opening, inode)?;
        Ok(())
    }

    fn may_open(&self, opening: &OpenRequest<'_>, inode: &Inode) -> Result<(), Errno> {
        let flags = opening.flags;
        if flags.contains(MdsOpenFlags::CREAT) && flags.contains(MdsOpenFlags::EXCL) {
            return Err(Errno::EEXIST);
        }
        if inode.is_directory() {
            if flags.intersects(MdsOpenFlags::CREAT | MdsOpenFlags::WRITE) {
                return Err(Errno::EISDIR);
            }
        } else if flags.contains(MdsOpenFlags::DIRECTORY) {
            return Err(Errno::ENOTDIR);
        }
        let caller = Caller::from(opening.record);
        let file_flags = FileFlags(inode.attributes.flags);
        let writes = flags.contains(MdsOpenFlags::WRITE) && !flags.contains(MdsOpenFlags::APPEND);
        let cuts = flags.contains(MdsOpenFlags::TRUNC);
        if file_flags.contains(FileFlags::APPEND) && (writes || cuts) {
            return Err(Errno::EPERM);
        }
        // Owners that override modes, too: Lustre leaves it to its clients to look at this flag for them.
        let changes = flags.intersects(MdsOpenFlags::WRITE | MdsOpenFlags::TRUNC);
        if file_flags.contains(FileFlags::IMMUTABLE) && changes {
            return Err(Errno::EPERM);
        }
        if flags.contains(MdsOpenFlags::OWNEROVERRIDE) && caller.uid == inode.attributes.uid {
            return Ok(());
        }
        caller.may(&*self.store, inode.fid, &inode.attributes, flags.rights())
    }

    /// Adds a file that was counted as open to its client's table; its handle.
    ///
    /// # Errors
    /// [`Errno::ENOTCONN`] if the client was evicted meanwhile: the file is closed again.
    pub(super) fn add_to_open_table(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        inode: &Inode,
    ) -> Result<OpenHandle, Errno> {
        let handle = OpenHandle(context.target.world().random.number() | 1);
        let old = match context.replay() {
            Some(_) => opening.record.open_handle_old,
            None => OpenHandle(0),
        };
        let (flags, user) = (opening.flags, opening.record.fsuid);
        let file = OpenFile { fid: inode.fid, flags, xid: context.xid, old, user };
        let Err(file) = context.export.role::<OpenTable>().insert(handle, file) else {
            return Ok(handle);
        };
        // By a task of its own: we hold the inode.
        let (mdt, target) = (Weak::clone(&self.me), Arc::clone(&context.target));
        let close = async move {
            let (Some(mdt), fid) = (mdt.upgrade(), file.fid) else { return };
            if let Err(errno) = mdt.close_for_client(&target, file).await {
                tracing::warn!(target = target.name(), %fid, %errno,
                    "cannot close a file that was opened for a client that had left");
            }
        };
        context.target.world().tasks.spawn("close", Box::pin(close));
        Err(Errno::ENOTCONN)
    }

    /// Puts the inode into the answer, as it is now. The handle that is there already stays.
    pub(super) fn put_inode(
        &self,
        context: &Context,
        inode: &Inode,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let layout = self.layout(inode)?;
        self.put_inode_with(context, inode, layout, progress)
    }

    pub(super) fn put_inode_with(
        &self,
        context: &Context,
        inode: &Inode,
        layout: Option<Bytes>,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let mut body = self.body(inode, layout.is_some());
        let WholeObject { xattrs, .. } = self.store.whole(inode.fid).map_err(store_errno)?;
        let whole = WholeInode { inode: inode.clone(), xattrs };
        if layout.is_some() {
            self.put_size(context, inode, whole.size_record(), &mut body);
        }
        progress.layout = layout.unwrap_or_default();
        self.placement.note_layout(&progress.layout);
        if !progress.layout.is_empty() {
            body.valid |= sheen_wire::md::Valid::EASIZE;
            body.eadatasize = progress.layout.len() as u32;
        }
        if inode.is_directory() {
            progress.layout = striped::add_layout(whole.xattrs.get(xattrs::LMV), &mut body);
            progress.default =
                striped::add_default(whole.xattrs.get(xattrs::DEFAULT_LMV), &mut body);
        }
        let acl = whole.xattrs.get(xattrs::ACL_ACCESS).unwrap_or_default();
        progress.acl = add_acl(context, acl, &mut body);
        progress.body = MdtBody { open_handle: progress.body.open_handle, ..body };
        Ok(())
    }

    /// The directory of one of an inode's names.
    pub(crate) fn parent_of(&self, inode: &Inode) -> Option<Inode> {
        let links = self.links(inode.fid).ok()?;
        self.directory(links.entries.first()?.parent).ok()
    }
}

impl<'a> OpenRequest<'a> {
    fn new(
        record: &'a RecCreate,
        name: Option<&'a Text>,
        layout: &'a Bytes,
        security: Option<(&'a Text, &'a Bytes)>,
        enqueue: Option<&'a EnqueueRequest>,
    ) -> Self {
        let name = name.map_or(&b""[..], |name| name.as_bytes());
        let flags = record.flags();
        Self { record, flags, name, layout, security, enqueue, is_repeated: false }
    }
}

impl OpenRequest<'_> {
    pub(super) fn creates(&self) -> bool {
        self.flags.contains(MdsOpenFlags::CREAT)
    }

    /// Whether data may be written by this open, so that it needs a place.
    pub(super) fn needs_objects(&self) -> bool {
        let writes = self.flags.contains(MdsOpenFlags::WRITE);
        writes && !self.flags.intersects(MdsOpenFlags::DELAY_CREATE | MdsOpenFlags::LEASE)
    }

    pub(super) fn create_spec(&self) -> CreateSpec<'_> {
        let mut spec = CreateSpec::of(self.record);
        spec.mode = spec.mode & 0o7777 | FileKind::Regular.mode_bits();
        spec.device = 0;
        spec.security = self.security;
        spec
    }
}

pub(super) fn of_intent<'a>(
    request: &'a LdlmIntentOpen,
    enqueue: &'a EnqueueRequest,
) -> OpenRequest<'a> {
    let security = request.file_secctx_name.as_ref().map(|name| (name, &request.file_secctx));
    let name = request.name.as_ref();
    OpenRequest::new(&request.rec_reint, name, &request.eadata, security, Some(enqueue))
}

/// Symbolic links are never opened here; devices and pipes only for clients that want it so.
fn has_handle(context: &Context, inode: &Inode) -> bool {
    match inode.attributes.kind {
        FileKind::Regular | FileKind::Directory => true,
        FileKind::Symlink => false,
        _ => !context.has(ConnectFlags::NODEVOH),
    }
}

/// The lock that goes with an open: for a handle that the client will cache, if it asked for that;
/// else on whatever of a file's inode is free.
pub(super) async fn lock_without_data(
    context: &Context,
    opening: &OpenRequest<'_>,
    inode: &Inode,
    more: InodeBits,
) -> Result<Option<LockGuard>, Errno> {
    let flags = opening.flags;
    if opening.enqueue.is_none() || context.replay().is_some() {
        return Ok(None);
    }
    if !flags.contains(MdsOpenFlags::LOCK) {
        let bits = locks::ATTRIBUTES | InodeBits::LAYOUT | more;
        let is_regular = inode.is_regular();
        let guard = is_regular.then(|| locks::read_for_open(&context.target, inode.fid, bits));
        return Ok(guard.flatten());
    }
    let mode = locks::mode_of_open(flags);
    let mut try_bits = InodeBits(0);
    if inode.is_regular() {
        try_bits = InodeBits::LAYOUT;
        if mode != LockMode::Cr {
            try_bits = try_bits | InodeBits::UPDATE | InodeBits::PERM;
        }
    }
    let bits = InodeBits::LOOKUP | InodeBits::OPEN;
    let policy = Policy::InodeBits { bits, try_bits, gid: 0 };
    let resource = ResourceName::of_fid(inode.fid);
    context.target.lock(resource, policy, mode).await.map(Some)
}

/// Makes the lock that goes with an open the client's, and adds it to the answer.
pub(super) fn add_open_lock(
    context: &Context,
    opening: &OpenRequest<'_>,
    guard: Option<LockGuard>,
    progress: &mut OpenProgress,
) -> Result<(), Errno> {
    let (Some(guard), Some(enqueue)) = (guard, opening.enqueue) else { return Ok(()) };
    progress.lock = Some(locks::hand_over(context, guard, enqueue)?);
    if opening.flags.contains(MdsOpenFlags::LOCK) {
        progress.add(Disposition::OPEN_LOCK);
    }
    Ok(())
}

/// The reply: with a lock it is a success; without one the client finds everything in the intent.
///
/// # Errors
/// [`Errno::ENOTCONN`] to a client that was evicted meanwhile: it is not the open that has failed.
pub(super) fn answer(
    context: &Context,
    progress: OpenProgress,
    result: Result<(), Errno>,
) -> Result<Outcome, Errno> {
    if result.is_err() && context.export.state() == ExportState::Gone {
        return Err(context.fail_after_execution(Errno::ENOTCONN));
    }
    let OpenProgress { mut disposition, body, layout, acl, default, lock, data } = progress;
    let mut error = result.err();
    // Also where it was made by an earlier sending of the request and is found now.
    let is_new = disposition.contains(Disposition::OPEN_CREATE);
    disposition |= if is_new { Disposition::LOOKUP_NEG } else { Disposition::default() };
    if error.is_some() {
        disposition = (disposition | Disposition::LOOKUP_EXECD)
            .without(Disposition::OPEN_LOCK | Disposition::OPEN_OPEN | Disposition::OPEN_LEASE);
    }
    let is_absent = disposition.contains(Disposition::LOOKUP_NEG)
        && !disposition.contains(Disposition::OPEN_CREATE);
    error = error.filter(|errno| *errno != Errno::ENOENT || !is_absent);
    let status = if lock.is_some() { 0 } else { LOCK_ABORTED };
    let mut dlm_rep = lock.unwrap_or_else(|| lockless_reply(disposition, error));
    dlm_rep.policy_res1 = disposition;
    let reply = LdlmIntentOpenReply {
        dlm_rep: Some(dlm_rep),
        mdt_body: Some(body),
        mdt_md: layout,
        acl,
        default_mdt_md: default,
        niobuf_inline: if data.is_empty() { Bytes::from_static(&NO_DATA) } else { data },
        ..LdlmIntentOpenReply::default()
    };
    Ok(Outcome { status, reply: Some(reply.into()) })
}
