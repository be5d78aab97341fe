//! Opens that create: under a name, or without one.

use bytes::Bytes;
use sheen_layout::plan::Plan;
use sheen_store::{FileKind, WholeObject};
use sheen_target::{Context, ReplyRecording, store_errno};
use sheen_types::{Errno, Fid, InodeBits, Name};
use sheen_wire::connect::ConnectFlags;
use sheen_wire::ldlm::Disposition;
use sheen_wire::md::MdsOpenFlags;

use super::getattr::add_absent_xattrs;
use super::open::{OpenProgress, OpenRequest, add_open_lock};
use crate::caller::May;
use crate::hold::HoldGuard;
use crate::inode::{Inode, WholeInode};
use crate::placement::ReservedObjects;
use crate::{Mdt, counters, locks};

/// What an answer says of a new file. It had no name, also where it gets none: the client's kernel panics at a file
/// that is new and was there.
fn new_file_disposition(context: &Context, layout: Option<&Bytes>) -> Disposition {
    let new = Disposition::LOOKUP_NEG | Disposition::OPEN_CREATE | Disposition::OPEN_OPEN;
    new | layout_disposition(context, layout)
}

/// The bit by which a client knows that a regular file had no layout when it was opened: its open is
/// replayed until it is durable, as a create is.
pub(super) fn layout_disposition(context: &Context, layout: Option<&Bytes>) -> Disposition {
    match layout.is_none() && context.has(ConnectFlags::DISP_STRIPE) {
        true => Disposition::OPEN_STRIPE,
        false => Disposition::default(),
    }
}

impl Mdt {
    /// Creates and opens.
    pub(super) async fn open_new(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        opening: &OpenRequest<'_>,
        name: &Name,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let parent = self.directory(opening.record.fid1)?;
        let mut spec = opening.create_spec();
        self.may_add(&spec.caller, &parent, name, FileKind::Regular)?;
        spec.objects =
            self.objects_for_new(context, opening, opening.record.fid2, Some(&parent), 0).await?;
        let new_inode = self.build_inode(context, &parent, spec)?;
        let _lock = locks::change_directory(context, parent.fid).await?;
        let done =
            progress.disposition | new_file_disposition(context, new_inode.layout().as_ref());
        self.open_counts.open(new_inode.inode.fid, opening.flags)?;
        let recording = ReplyRecording::Keep { result: 0, data: done.0 };
        let mut changes = self.change_set();
        new_inode.add(&mut changes, parent.fid, name);
        let made = self.execute(context, held, changes, recording);
        made.inspect_err(|_| _ = self.open_counts.close(new_inode.inode.fid, opening.flags))?;
        progress.disposition = done;
        let (inode, layout) = (new_inode.inode.clone(), new_inode.layout());
        if layout.is_some() {
            self.open_counts.note_known_writers(inode.fid);
        }
        if context.replay().is_none() && layout.is_some() {
            self.open_counts.note_unwritten(inode.fid);
        }
        self.finish_new(context, opening, &inode, layout, progress).await
    }

    /// A file without a name, gone with its last close.
    pub(super) async fn open_volatile(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        opening: &OpenRequest<'_>,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        let parent = self.directory(opening.record.fid1)?;
        let mut spec = opening.create_spec();
        let (fid, flags) = (spec.fid, opening.flags);
        let wanted = May::WRITE.and(May::EXEC);
        spec.caller.may(&*self.store, parent.fid, &parent.attributes, wanted)?;
        spec.objects =
            self.objects_for_new(context, opening, opening.record.fid2, Some(&parent), 0).await?;
        let mut new_inode = self.build_inode(context, &parent, spec)?;
        new_inode.inode.attributes.links = 0;
        self.open_counts.open(fid, flags)?;
        let done =
            progress.disposition | new_file_disposition(context, new_inode.layout().as_ref());
        let recording = ReplyRecording::Keep { result: 0, data: done.0 };
        let mut changes = self.change_set();
        new_inode.add_inode(&mut changes);
        changes.add_orphan(fid);
        let made = self.execute(context, held, changes, recording);
        made.inspect_err(|_| _ = self.open_counts.close(fid, flags))?;
        progress.disposition = done;
        let (inode, layout) = (new_inode.inode.clone(), new_inode.layout());
        if layout.is_some() {
            self.open_counts.note_known_writers(inode.fid);
        }
        self.finish_new(context, opening, &inode, layout, progress).await
    }

    /// After the transaction: no other client knows the inode, so its lock is free.
    async fn finish_new(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        inode: &Inode,
        layout: Option<Bytes>,
        progress: &mut OpenProgress,
    ) -> Result<(), Errno> {
        // Beside the open that it is.
        context.count_time(counters::MKNOD);
        let handle = self.add_to_open_table(context, opening, inode)?;
        self.put_inode_with(context, inode, layout, progress)?;
        self.add_layout_max(&mut progress.body);
        progress.body.open_handle = handle;
        // A new file has no attributes to ask for. Only for a client that says it knows: Lustre's
        // would take its cache for filled.
        let wanted = opening.enqueue.map(|enqueue| enqueue.policy.inode_bits());
        let more = match wanted.is_some_and(|bits| bits.contains(InodeBits::XATTR)) {
            true => InodeBits::XATTR,
            false => InodeBits(0),
        };
        let layout = Some(&progress.layout).filter(|layout| !layout.is_empty());
        let data = self.dom_open_of(context, opening, inode.fid, layout);
        let guard = self.lock_with_data(context, opening, inode, data, more).await?;
        self.add_data(context, opening, data, guard.as_ref(), inode, progress)?;
        let bits = guard.as_ref().map_or(InodeBits(0), |guard| guard.policy().inode_bits());
        if bits.contains(InodeBits::XATTR) {
            let WholeObject { xattrs, .. } = self.store.whole(inode.fid).map_err(store_errno)?;
            let whole = WholeInode { inode: inode.clone(), xattrs };
            add_absent_xattrs(bits, &whole, &mut progress.body);
        }
        add_open_lock(context, opening, guard, progress)
    }

    /// The objects that a new file gets with its creation, or one that has none yet with an open: those up to its
    /// `size`, which they show; none if it is not written now.
    pub(super) async fn objects_for_new(
        &self,
        context: &Context,
        opening: &OpenRequest<'_>,
        file: Fid,
        parent: Option<&Inode>,
        size: u64,
    ) -> Result<Option<ReservedObjects>, Errno> {
        if context.replay().is_some() {
            return Ok(self.placement.restore(opening.layout, None).ok());
        }
        if !opening.needs_objects() {
            return Ok(None);
        }
        let requested = match opening.flags.contains(MdsOpenFlags::HAS_EA) {
            true => Some(Plan::parse(opening.layout)?),
            false => None,
        };
        let appends = opening.creates() && opening.flags.contains(MdsOpenFlags::APPEND);
        let plan = self.plan_new_layout(parent, requested, appends)?;
        let world = context.target.world();
        let reserved = self.placement.allocate(world, file, &plan, size).await?;
        self.placement.show_size(file, &reserved, size).await?;
        Ok(Some(reserved))
    }
}
