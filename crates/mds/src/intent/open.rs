//! Opens, with or without creation: the intent, and the bare REINT.

use bytes::Bytes;
use sheen_ldlm::Policy;
use sheen_store::{FileKind, Transaction};
use sheen_target::{Context, LockGuard, LockWish, Memo, Outcome, ReplyRecord};
use sheen_types::{Errno, InodeBits, LockMode, Name, ResourceName};
use sheen_wire::connect::ConnectFlags;
use sheen_wire::ldlm::{Disposition, LdlmReply};
use sheen_wire::md::{FileFlags, MdtBody, OpenFlags, OpenHandle, RecCreate};
use sheen_wire::messages::{LdlmIntentOpen, LdlmIntentOpenReply, MdsReintOpen, MdsReintOpenReply};
use sheen_wire::text::Text;

use crate::answer::{LOCK_ABORTED, no_lock};
use crate::caller::{Caller, May};
use crate::directory::{Step, parse_name};
use crate::exclusion::Needs;
use crate::export::{OpenFile, OpenTable};
use crate::inode::Inode;
use crate::orphans::{ORPHANS, fid_key};
use crate::placement::{Pattern, Taken};
use crate::reint::Making;
use crate::{Mdt, locks};

/// What an open asks for.
struct Opening<'a> {
    record: &'a RecCreate,
    flags: OpenFlags,
    name: &'a [u8],
    layout: &'a Bytes,
    security: Option<(&'a Text, &'a Bytes)>,
    /// The lock that the client would take; `None` if no lock can be given.
    wish: Option<&'a LockWish>,
}

/// How far an open has got: told to the client even if it fails.
#[derive(Default)]
struct Progress {
    disposition: Disposition,
    body: MdtBody,
    layout: Bytes,
    acl: Bytes,
    lock: Option<LdlmReply>,
}

impl Progress {
    fn add(&mut self, more: Disposition) {
        self.disposition = self.disposition | more;
    }
}

impl Mdt {
    /// IT_OPEN, with or without IT_CREAT.
    pub(crate) async fn intent_open(
        &self,
        context: &Context,
        request: &LdlmIntentOpen,
        wish: &LockWish,
    ) -> Result<Outcome, Errno> {
        let opening = of_intent(request, wish);
        let mut progress = Progress::default();
        let result = self.open(context, &opening, &mut progress).await;
        Ok(answer(progress, result))
    }

    /// REINT_OPEN: an open without a lock.
    pub(crate) async fn reint_open(
        &self,
        context: &Context,
        request: &MdsReintOpen,
    ) -> Result<Outcome, Errno> {
        let opening = Opening {
            record: &request.rec_reint,
            flags: request.rec_reint.flags(),
            name: request.name.as_ref().map_or(&b""[..], |name| name.as_bytes()),
            layout: &request.eadata,
            security: request.file_secctx_name.as_ref().map(|name| (name, &request.file_secctx)),
            wish: None,
        };
        let mut progress = Progress::default();
        self.open(context, &opening, &mut progress).await?;
        Ok(Outcome::ok(MdsReintOpenReply {
            mdt_body: Some(progress.body),
            mdt_md: progress.layout,
            acl: progress.acl,
            ..MdsReintOpenReply::default()
        }))
    }

    /// Answers an open that was executed before. Its handle is there, unless we have restarted
    /// since: then the file is opened again.
    pub(crate) async fn reconstruct_open(
        &self,
        context: &Context,
        request: &LdlmIntentOpen,
        wish: &LockWish,
        record: &ReplyRecord,
    ) -> Result<Outcome, Errno> {
        let mut opening = of_intent(request, wish);
        let mut progress = Progress::default();
        let before = Disposition(record.data);
        let table = context.export.role::<OpenTable>();
        if let Some((handle, file)) = table.opened_by(context.xid) {
            progress.disposition = before.without(Disposition::OPEN_LOCK);
            let inode = self.inode(file.fid)?;
            self.put_inode(context, &inode, &mut progress)?;
            progress.body.open_handle = handle;
            progress.lock = context.held_lock(wish);
            return Ok(answer(progress, Ok(())));
        }
        if before.contains(Disposition::OPEN_CREATE) {
            // It is ours although it exists.
            opening.flags = opening.flags.without(OpenFlags::EXCL);
            progress.add(Disposition::OPEN_CREATE);
        }
        let result = self.open(context, &opening, &mut progress).await;
        Ok(answer(progress, result))
    }

    async fn open(
        &self,
        context: &Context,
        opening: &Opening<'_>,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        if opening.flags.contains(OpenFlags::HAS_EA) && opening.layout.is_empty() {
            return Err(Errno::EINVAL);
        }
        if context.replay().is_some() {
            return self.replay_open(context, opening, progress).await;
        }
        progress.add(Disposition::IT_EXECD | Disposition::LOOKUP_EXECD);
        if opening.flags.contains(OpenFlags::VOLATILE) && opening.creates() {
            return self.open_volatile(context, opening, progress).await;
        }
        if opening.flags.contains(OpenFlags::BY_FID) {
            let fid = opening.record.fid2;
            let _held = self.exclusion.hold(Needs::new().change_inode(fid)).await;
            let inode = self.inode(fid).inspect_err(|_| progress.add(Disposition::LOOKUP_NEG))?;
            self.open_found(context, opening, &inode, progress).await?;
            progress.add(Disposition::LOOKUP_POS);
            return Ok(());
        }
        self.open_by_name(context, opening, progress).await
    }

    async fn open_by_name(
        &self,
        context: &Context,
        opening: &Opening<'_>,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        let parent = self.directory(opening.record.fid1)?;
        let caller = Caller::from(opening.record);
        caller.may(&*self.store, parent.fid, &parent.attributes, May::EXEC)?;
        let step = Step::parse(opening.name)?;
        let absent = loop {
            let Some(found) = self.child(&parent, &step)? else { break true };
            let needs = Needs::new().keep_name(parent.fid, opening.name).change_inode(found.fid);
            let _held = self.exclusion.hold(needs).await;
            if self.child(&parent, &step)? != Some(found) {
                continue;
            }
            progress.add(Disposition::LOOKUP_POS);
            let inode = self.inode(found.fid)?;
            self.open_found(context, opening, &inode, progress).await?;
            break false;
        };
        if !absent {
            return Ok(());
        }
        progress.add(Disposition::LOOKUP_NEG);
        if !opening.creates() {
            return Err(Errno::ENOENT);
        }
        let name = parse_name(opening.name)?;
        let needs = Needs::new().change_name(parent.fid, opening.name).keep_inode(parent.fid);
        let held = self.exclusion.hold(needs).await;
        if self.find(parent.fid, &name)?.is_none() {
            return self.open_new(context, opening, &name, progress).await;
        }
        // Somebody was faster: it is an open of what is there.
        drop(held);
        progress.disposition = progress.disposition.without(Disposition::LOOKUP_NEG);
        Box::pin(self.open_by_name(context, opening, progress)).await
    }

    /// Creates and opens. The name is held.
    async fn open_new(
        &self,
        context: &Context,
        opening: &Opening<'_>,
        name: &Name,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        let parent = self.directory(opening.record.fid1)?;
        let mut making = opening.making();
        self.may_add(&making.caller, &parent, name, FileKind::Regular)?;
        making.objects = self.objects_for_new(context, opening, Some(&parent)).await?;
        let birth = self.conceive(&parent, making)?;
        let _lock = locks::change_directory(context, parent.fid).await?;
        let mut done = progress.disposition;
        done = done | Disposition::OPEN_CREATE | Disposition::OPEN_OPEN;
        self.open_files.open(birth.inode.fid, opening.flags)?;
        let memo = Memo::Keep { result: 0, data: done.0 };
        let made = context.target.transact_with(context, memo, |_| {
            let mut transaction = Transaction::new();
            birth.add(&mut transaction, parent.fid, name);
            transaction
        });
        if let Err(error) = made {
            self.open_files.close(birth.inode.fid, opening.flags);
            return Err(error.errno());
        }
        progress.disposition = done;
        let (inode, layout) = (birth.inode.clone(), birth.layout());
        self.finish_new(context, opening, &inode, layout, progress)
    }

    /// A file without a name, gone with its last close.
    async fn open_volatile(
        &self,
        context: &Context,
        opening: &Opening<'_>,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        let parent = self.directory(opening.record.fid1)?;
        let mut making = opening.making();
        let (fid, flags) = (making.fid, opening.flags);
        let wanted = May::WRITE.and(May::EXEC);
        making.caller.may(&*self.store, parent.fid, &parent.attributes, wanted)?;
        let _held = self.exclusion.hold(Needs::new().change_inode(fid)).await;
        making.objects = self.objects_for_new(context, opening, Some(&parent)).await?;
        let mut birth = self.conceive(&parent, making)?;
        birth.inode.attributes.links = 0;
        self.open_files.open(fid, flags)?;
        let done = progress.disposition | Disposition::OPEN_CREATE | Disposition::OPEN_OPEN;
        let memo = Memo::Keep { result: 0, data: done.0 };
        let made = context.target.transact_with(context, memo, |_| {
            let mut transaction = Transaction::new();
            birth.add_inode(&mut transaction);
            transaction.insert(ORPHANS, fid_key(fid), Bytes::new());
            transaction
        });
        if let Err(error) = made {
            self.open_files.close(fid, flags);
            return Err(error.errno());
        }
        progress.disposition = done;
        let (inode, layout) = (birth.inode.clone(), birth.layout());
        self.finish_new(context, opening, &inode, layout, progress)
    }

    /// After the transaction: nobody else knows the inode, so its lock is free.
    fn finish_new(
        &self,
        context: &Context,
        opening: &Opening<'_>,
        inode: &Inode,
        layout: Option<Bytes>,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        self.put_inode_with(context, inode, layout, progress)?;
        progress.body.open_handle = self.remember(context, opening, inode);
        if context.replay().is_none()
            && let Some(wish) = opening.wish
        {
            // Only for a client that says it can use it: Lustre's would take its cache for filled.
            let more = match wish.policy.inode_bits().contains(InodeBits::XATTR) {
                true => InodeBits::XATTR,
                false => InodeBits(0),
            };
            let bits = locks::ATTRIBUTES | InodeBits::LAYOUT | more;
            if let Some(guard) = locks::read_if_free(&context.target, inode.fid, bits) {
                progress.lock = Some(locks::hand_over(context, guard, wish)?);
            }
        }
        Ok(())
    }

    /// Opens what exists. The inode is held.
    async fn open_found(
        &self,
        context: &Context,
        opening: &Opening<'_>,
        inode: &Inode,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        let flags = opening.flags;
        if flags.contains(OpenFlags::DIRECTORY) && inode.is_regular() {
            return Err(Errno::ENOTDIR);
        }
        self.put_inode(context, inode, progress)?;
        if !has_handle(context, inode) {
            return Ok(());
        }
        self.may_open(opening, inode)?;
        let layout = self.layout(inode)?;
        if flags.contains(OpenFlags::HAS_EA) && layout.is_some() {
            return Err(Errno::EEXIST);
        }
        if inode.is_regular() && layout.is_none() && opening.needs_objects() {
            return self.open_and_place(context, opening, inode, progress).await;
        }
        let guard = open_lock(context, opening, inode).await?;
        self.count_open(context, opening, inode, None, progress)?;
        // What was read before the lock may have changed.
        let inode = self.inode(inode.fid)?;
        let handle = progress.body.open_handle;
        self.put_inode(context, &inode, progress)?;
        progress.body.open_handle = handle;
        if let (Some(guard), Some(wish)) = (guard, opening.wish) {
            progress.lock = Some(locks::hand_over(context, guard, wish)?);
            if flags.contains(OpenFlags::LOCK) {
                progress.add(Disposition::OPEN_LOCK);
            }
        }
        Ok(())
    }

    /// Opens a file for writing that has no objects yet: it gets them now. Who has cached that it
    /// has none gives that back first; no lock goes to the client.
    async fn open_and_place(
        &self,
        context: &Context,
        opening: &Opening<'_>,
        inode: &Inode,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        let parent = match self.parent_of(inode) {
            Some(parent) => Some(parent),
            None => self.directory(opening.record.fid1).ok(),
        };
        let taken = self.objects_for_new(context, opening, parent.as_ref()).await?;
        let target = &context.target;
        let _lock = target.lock_inode(inode.fid, InodeBits::LAYOUT, LockMode::Ex).await?;
        self.count_open(context, opening, inode, taken, progress)?;
        if context.has(ConnectFlags::DISP_STRIPE) {
            progress.add(Disposition::OPEN_STRIPE);
        }
        let handle = progress.body.open_handle;
        self.put_inode(context, inode, progress)?;
        progress.body.open_handle = handle;
        Ok(())
    }

    /// Counts the open and records it, with the objects that the file got.
    fn count_open(
        &self,
        context: &Context,
        opening: &Opening<'_>,
        inode: &Inode,
        taken: Option<Taken>,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        self.open_files.open(inode.fid, opening.flags)?;
        let done = progress.disposition | Disposition::OPEN_OPEN;
        let memo = Memo::Keep { result: 0, data: done.0 };
        let made = context.target.transact_with(context, memo, |_| {
            let mut transaction = Transaction::new();
            if let Some(taken) = &taken {
                let layout = taken.layout().clone();
                transaction.set_xattr(inode.fid, crate::xattrs::LOV, layout);
                taken.record(&mut transaction);
            }
            transaction
        });
        if let Err(error) = made {
            self.open_files.close(inode.fid, opening.flags);
            return Err(error.errno());
        }
        progress.disposition = done;
        progress.body.open_handle = self.remember(context, opening, inode);
        Ok(())
    }

    /// An open from before a restart, or of a client's that lost its connection: the file is known
    /// by its FID, nobody asks for permission again. If it is not there, its creation was lost too.
    async fn replay_open(
        &self,
        context: &Context,
        opening: &Opening<'_>,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        let fid = opening.record.fid2;
        progress.add(Disposition::IT_EXECD | Disposition::LOOKUP_EXECD);
        // A handle left from before the client lost its connection.
        let table = context.export.role::<OpenTable>();
        let old = opening.record.open_handle_old;
        if table.contains(old)
            && let Some(file) = table.remove(old)
        {
            self.close_for(&context.target, file).await?;
        }
        let name = opening.name;
        let needs = Needs::new().change_inode(fid).keep_inode(opening.record.fid1);
        let _held = self.exclusion.hold(needs.change_name(opening.record.fid1, name)).await;
        match self.inode(fid) {
            Ok(inode) => {
                progress.add(Disposition::LOOKUP_POS);
                let taken = match self.layout(&inode)? {
                    None if inode.is_regular() => self.placement.restore(opening.layout).ok(),
                    _ => None,
                };
                self.count_open(context, opening, &inode, taken, progress)?;
                let handle = progress.body.open_handle;
                self.put_inode(context, &inode, progress)?;
                progress.body.open_handle = handle;
                Ok(())
            }
            Err(Errno::ENOENT) if opening.creates() => {
                progress.add(Disposition::LOOKUP_NEG);
                self.open_new(context, opening, &parse_name(name)?, progress).await
            }
            Err(Errno::ENOENT) => Err(Errno::EFAULT),
            Err(errno) => Err(errno),
        }
    }

    /// The objects that a new file gets with its creation; none if it is not written now.
    async fn objects_for_new(
        &self,
        context: &Context,
        opening: &Opening<'_>,
        parent: Option<&Inode>,
    ) -> Result<Option<Taken>, Errno> {
        if context.replay().is_some() {
            return Ok(self.placement.restore(opening.layout).ok());
        }
        if !opening.needs_objects() {
            return Ok(None);
        }
        let wish = match opening.flags.contains(OpenFlags::HAS_EA) {
            true => Pattern::parse(opening.layout)?,
            false => Pattern::default(),
        };
        let pattern = self.pattern_in(parent, wish)?;
        let clock = &context.target.world().clock;
        let taken = self.placement.allocate(clock, opening.record.fid2, &pattern).await?;
        Ok(Some(taken))
    }

    fn may_open(&self, opening: &Opening<'_>, inode: &Inode) -> Result<(), Errno> {
        let flags = opening.flags;
        if flags.contains(OpenFlags::CREAT) && flags.contains(OpenFlags::EXCL) {
            return Err(Errno::EEXIST);
        }
        if inode.is_directory() {
            if flags.intersects(OpenFlags::CREAT | OpenFlags::WRITE) {
                return Err(Errno::EISDIR);
            }
        } else if flags.contains(OpenFlags::DIRECTORY) {
            return Err(Errno::ENOTDIR);
        }
        let caller = Caller::from(opening.record);
        let file_flags = FileFlags(inode.attributes.flags);
        if file_flags.contains(FileFlags::APPEND)
            && flags.intersects(OpenFlags::WRITE)
            && (!flags.contains(OpenFlags::APPEND) || flags.contains(OpenFlags::TRUNC))
        {
            return Err(Errno::EPERM);
        }
        if flags.contains(OpenFlags::OWNEROVERRIDE) && caller.uid == inode.attributes.uid {
            return Ok(());
        }
        let pairs = [
            (OpenFlags::READ, May::READ),
            (OpenFlags::WRITE, May::WRITE),
            (OpenFlags::TRUNC, May::WRITE),
            (OpenFlags::EXEC, May::EXEC),
        ];
        let wanted = pairs.iter().filter(|(flag, _)| flags.contains(*flag));
        let wanted = wanted.fold(May(0), |may, (_, more)| may.and(*more));
        caller.may(&*self.store, inode.fid, &inode.attributes, wanted)
    }

    fn remember(&self, context: &Context, opening: &Opening<'_>, inode: &Inode) -> OpenHandle {
        let handle = OpenHandle(context.target.world().random.number() | 1);
        let old = match context.replay() {
            Some(_) => opening.record.open_handle_old,
            None => OpenHandle(0),
        };
        let file = OpenFile { fid: inode.fid, flags: opening.flags, xid: context.xid, old };
        context.export.role::<OpenTable>().insert(handle, file);
        handle
    }

    fn put_inode(
        &self,
        context: &Context,
        inode: &Inode,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        let layout = self.layout(inode)?;
        self.put_inode_with(context, inode, layout, progress)
    }

    fn put_inode_with(
        &self,
        context: &Context,
        inode: &Inode,
        layout: Option<Bytes>,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        let mut body = self.body(inode, layout.is_some());
        progress.layout = layout.unwrap_or_default();
        if !progress.layout.is_empty() {
            body.valid = body.valid | sheen_wire::md::Valid::EASIZE;
            body.eadatasize = progress.layout.len() as u32;
        }
        progress.acl = self.add_acl(context, inode, &mut body)?;
        self.add_sizes(&mut body);
        progress.body = body;
        Ok(())
    }

    /// The directory of one of an inode's names.
    pub(crate) fn parent_of(&self, inode: &Inode) -> Option<Inode> {
        let links = self.links(inode.fid).ok()?;
        self.directory(links.entries.first()?.parent).ok()
    }
}

impl Opening<'_> {
    fn creates(&self) -> bool {
        self.flags.contains(OpenFlags::CREAT)
    }

    /// Whether data may be written by this open, so that it needs a place.
    fn needs_objects(&self) -> bool {
        let writes = self.flags.intersects(OpenFlags::WRITE);
        writes && !self.flags.contains(OpenFlags::DELAY_CREATE)
    }

    fn making(&self) -> Making<'_> {
        let mut making = Making::of(self.record);
        making.mode = making.mode & 0o7777 | FileKind::Regular.mode_bits();
        making.device = 0;
        making.security = self.security;
        making
    }
}

fn of_intent<'a>(request: &'a LdlmIntentOpen, wish: &'a LockWish) -> Opening<'a> {
    Opening {
        record: &request.rec_reint,
        flags: request.rec_reint.flags(),
        name: request.name.as_ref().map_or(&b""[..], |name| name.as_bytes()),
        layout: &request.eadata,
        security: request.file_secctx_name.as_ref().map(|name| (name, &request.file_secctx)),
        wish: Some(wish),
    }
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
async fn open_lock(
    context: &Context,
    opening: &Opening<'_>,
    inode: &Inode,
) -> Result<Option<LockGuard>, Errno> {
    let flags = opening.flags;
    if opening.wish.is_none() || context.replay().is_some() {
        return Ok(None);
    }
    if !flags.contains(OpenFlags::LOCK) {
        let bits = locks::ATTRIBUTES | InodeBits::LAYOUT;
        let is_regular = inode.is_regular();
        let guard = is_regular.then(|| locks::read_if_free(&context.target, inode.fid, bits));
        return Ok(guard.flatten());
    }
    let mode = match (flags.contains(OpenFlags::WRITE), flags.contains(OpenFlags::EXEC)) {
        (true, _) => LockMode::Cw,
        (false, true) => LockMode::Pr,
        (false, false) => LockMode::Cr,
    };
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

/// The reply: with a lock it is a success; without one the client finds everything in the intent.
fn answer(progress: Progress, result: Result<(), Errno>) -> Outcome {
    let Progress { mut disposition, body, layout, acl, lock } = progress;
    let mut error = result.err();
    if error.is_some() {
        disposition = (disposition | Disposition::LOOKUP_EXECD)
            .without(Disposition::OPEN_LOCK | Disposition::OPEN_OPEN);
    }
    let is_absent = disposition.contains(Disposition::LOOKUP_NEG)
        && !disposition.contains(Disposition::OPEN_CREATE);
    error = error.filter(|errno| *errno != Errno::ENOENT || !is_absent);
    let status = if lock.is_some() { 0 } else { LOCK_ABORTED };
    let mut dlm_rep = lock.unwrap_or_else(|| no_lock(disposition, error));
    dlm_rep.policy_res1 = disposition;
    let reply = LdlmIntentOpenReply {
        dlm_rep: Some(dlm_rep),
        mdt_body: Some(body),
        mdt_md: layout,
        acl,
        ..LdlmIntentOpenReply::default()
    };
    Outcome { status, reply: Some(reply.into()) }
}
