//! Layouts of inodes: what is stored, what a new file gets, and the changes that users ask for by
//! `lustre.lov` and its kin (Lustre's `lod_xattr_set`).
//!
//! A change takes the layout lock as EX and is one transaction with the destruction of the objects
//! that go. Costs a decode of the layout; the defaults of the directory and of the root are read for
//! each new file.

use std::sync::Weak;

use bytes::Bytes;
use sheen_layout::plan::Plan;
use sheen_layout::stored::{Removed, Selection, SetFlags, Stored, errno_of};
use sheen_store::StoreError;
use sheen_target::{Context, ReplyRecording, store_errno};
use sheen_types::{Errno, Fid, InodeBits, LockMode};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::ost::OstId;

use crate::change_set::ChangeSet;
use crate::hold::HoldGuard;
use crate::inode::Inode;
use crate::placement::default_of;
use crate::{Mdt, xattrs};

/// What of a layout a change by name changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayoutChange {
    /// `lustre.lov.add`.
    Add,
    /// `lustre.lov.del`.
    Remove,
    /// `lustre.lov.set.flags`.
    SetFlags,
}

impl LayoutChange {
    /// The change that an attribute's name stands for; `None` if it is no layout's.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for names below `lustre.lov` that mean nothing.
    pub(crate) fn of(name: &str) -> Result<Option<Self>, Errno> {
        let Some(change) = name.strip_prefix(xattrs::LUSTRE_LOV).and_then(|n| n.strip_prefix('.'))
        else {
            return Ok(None);
        };
        match change {
            "add" => Ok(Some(Self::Add)),
            "del" => Ok(Some(Self::Remove)),
            "set.flags" => Ok(Some(Self::SetFlags)),
            // Known to Lustre, and of no use there either.
            "set" => Err(Errno::ENOTSUPP),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Reads a layout that is stored.
pub(crate) fn stored(layout: &Bytes) -> Result<Stored, Errno> {
    Stored::decode(layout).map_err(|error| errno_of(&error))
}

/// Refuses a layout with several stripes on an OST to a client of Lustre that does not know such: as old ones are,
/// it would crash. Ours always knew them, though at first they did not say so.
///
/// # Errors
/// [`Errno::EOPNOTSUPP`].
pub(crate) fn refuse_unknown_overstriping(
    context: &Context,
    layout: Option<&Bytes>,
) -> Result<(), Errno> {
    if context.has2(ConnectFlags2::OVERSTRIPING) || context.has2(ConnectFlags2::OWN_NAMES) {
        return Ok(());
    }
    match layout.map(stored).transpose()?.is_some_and(|layout| layout.is_overstriped()) {
        true => Err(Errno::EOPNOTSUPP),
        false => Ok(()),
    }
}

/// What becomes of a layout.
struct ChangedLayout {
    layout: Option<Stored>,
    gone: Vec<(u16, OstId)>,
    /// Data on the MDT goes as well.
    loses_data: bool,
}

impl Mdt {
    /// How a new file in `parent` is to be laid out: as is requested, or inherited. `appends` says that it is made to
    /// be appended to.
    ///
    /// # Errors
    /// Those of the requested layout, or of the store.
    pub(crate) fn plan_new_layout(
        &self,
        parent: Option<&Inode>,
        requested: Option<Plan>,
        appends: bool,
    ) -> Result<Plan, Errno> {
        let parent = parent.filter(|parent| parent.fid != Fid::ROOT);
        let own = parent.map(|parent| self.default_layout(parent.fid)).transpose()?.flatten();
        let defaults = [own, self.default_layout(Fid::ROOT)?];
        let target = || self.target.get().and_then(Weak::upgrade);
        let now = || target().map(|target| target.world().clock.now());
        self.placement.plan(now, requested, defaults, appends)
    }

    /// The default layout of a directory.
    pub(crate) fn default_layout(&self, directory: Fid) -> Result<Option<Plan>, Errno> {
        match self.store.xattr(directory, xattrs::LOV) {
            Ok(value) => Ok(value.as_ref().and_then(default_of)),
            Err(StoreError::NoObject(_)) => Ok(None),
            Err(error) => Err(store_errno(error)),
        }
    }

    /// Sets the layout of a file that has none.
    ///
    /// # Errors
    /// [`Errno::EEXIST`] if it has one: objects with data are not destroyed in this way.
    pub(crate) async fn set_file_layout(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        inode: &Inode,
        requested: Plan,
    ) -> Result<(), Errno> {
        if self.layout(inode)?.is_some() {
            return Err(Errno::EEXIST);
        }
        let plan = self.plan_new_layout(self.parent_of(inode).as_ref(), Some(requested), false)?;
        let world = context.target.world();
        let reserved = self.placement.allocate(world, inode.fid, &plan, 0).await?;
        let bits = InodeBits::XATTR | InodeBits::LAYOUT;
        let _lock = context.target.lock_inode(inode.fid, bits, LockMode::Ex).await?;
        let mut changes = self.change_set();
        changes.use_objects(inode.fid, &reserved);
        self.execute(context, held, changes, ReplyRecording::Done).map(|_| ())
    }

    /// Adds, removes or marks components.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a file without components, [`Errno::EBUSY`] if a group has locked the data that would go;
    /// those of the change.
    pub(crate) async fn change_layout(
        &self,
        context: &Context,
        held: &HoldGuard<'_>,
        inode: &Inode,
        change: LayoutChange,
        value: &Bytes,
    ) -> Result<(), Errno> {
        if !inode.is_regular() {
            return Err(Errno::EINVAL);
        }
        let layout = self.layout(inode)?.ok_or(Errno::EINVAL)?;
        let before = stored(&layout)?;
        let changed = self.changed(inode.fid, before, change, value)?;
        let bits = InodeBits::XATTR | InodeBits::LAYOUT | InodeBits::UPDATE;
        let bits = if changed.loses_data { bits | InodeBits::DOM } else { bits };
        // A group has the data as long as it likes; the inode is not held for so long.
        let busy = |errno| if errno == Errno::EAGAIN { Errno::EBUSY } else { errno };
        let lock = context.target.lock_inode(inode.fid, bits, LockMode::Ex).await;
        let _lock = lock.map_err(busy)?;
        let mut changes = self.change_set();
        match &changed.layout {
            Some(layout) => changes.set_xattr(inode.fid, xattrs::LOV, layout.encode()),
            None => changes.remove_xattr(inode.fid, xattrs::LOV),
        }
        if change == LayoutChange::Remove {
            // The size that was reported is that of data which is no more.
            changes.remove_xattr(inode.fid, xattrs::SOM);
            changes.destroy_objects(&changed.gone);
        }
        self.execute(context, held, changes, ReplyRecording::Done)?;
        match changed.loses_data {
            true => {
                let cut = self.store.truncate(inode.fid, 0);
                self.dom.brw.note_changed(&context.target, inode.fid);
                cut.map_err(|error| context.fail_after_execution(error.errno()))
            }
            false => Ok(()),
        }
    }

    fn changed(
        &self,
        file: Fid,
        mut before: Stored,
        change: LayoutChange,
        value: &Bytes,
    ) -> Result<ChangedLayout, Errno> {
        if !before.is_composite() {
            return Err(Errno::EINVAL);
        }
        let mut gone = Vec::new();
        match change {
            LayoutChange::Add => {
                let parts = Plan::parse_more(value, before.end())?;
                let more = Plan::Composite(parts.clone());
                self.placement.check(&more)?;
                before.add(file, parts, &self.placement.defaults())?;
            }
            LayoutChange::SetFlags => before.set_flags(&SetFlags::parse(value)?)?,
            LayoutChange::Remove => {
                let Removed { left, objects } = before.remove(Selection::parse(value)?)?;
                gone = objects;
                let had_data = before.end_on_mdt().is_some();
                let loses_data = had_data && left.is_none();
                return Ok(ChangedLayout { layout: left, gone, loses_data });
            }
        }
        Ok(ChangedLayout { layout: Some(before), gone, loses_data: false })
    }
}

impl Mdt {
    /// The default layout that a directory gets; `None` for one that says nothing, which is removed.
    pub(crate) fn new_default_layout(
        &self,
        directory: Fid,
        requested: Plan,
    ) -> Result<Option<Bytes>, Errno> {
        let old = self.default_layout(directory)?;
        let plan = self.placement.default_plan(requested, old.as_ref())?;
        Ok((!plan.is_empty()).then(|| plan.encode()))
    }
}

impl ChangeSet<'_> {
    /// A directory gets a default layout; one that says nothing is removed.
    pub(crate) fn set_default_layout(
        &mut self,
        directory: Fid,
        requested: Plan,
    ) -> Result<(), Errno> {
        match self.mdt.new_default_layout(directory, requested)? {
            Some(layout) => self.set_xattr(directory, xattrs::LOV, layout),
            None => self.remove_xattr(directory, xattrs::LOV),
        }
        Ok(())
    }
}
