//! Migration of a directory to other MDTs, one name at a time (Lustre: `mdt_reint_migrate`, `mdd_migrate`).
//!
//! - [`migrate_directory`] begins it: there is a new master, whose stripes are those of the target and, behind them, those of before. The
//!   name leads to it.
//! - [`migrate_inode`] moves a name from its stripe of before to that of the target, and what it stands for to the MDT of that, unless
//!   that is in use.
//! - [`migrate_end`] takes the stripes of before away when they have no names any more.
//!
//! Each is one distributed change. So a directory that migrates is whole at any moment, and the same requests end a migration that
//! was broken off.
//!
//! Requests to each other MDT: as for any change two, and a release where several exclude. Before that one for the layout of a directory
//! that lies elsewhere, and one for a look at a name that does; one for the rename lock where that is MDT0000's, when a directory
//! moves; and of a directory of another MDT one for the list of its extended attributes, one for each that decides nothing.

mod directory;
mod end;
mod inode;
mod wanted;

use sheen_io::logged;
use sheen_layout::directory::{DirectoryLayout, DirectoryWish, LayoutChange};
use sheen_store::FileKind;
use sheen_target::Context;
use sheen_types::{Errno, Fid, Name, Timestamp};

use self::wanted::Bound;
use super::exclude::{DistributedHold, ExclusionRequest};
use super::move_name::NameMoved;
use crate::Mdt;
use crate::caller::{Caller, Capability, May};
use crate::close_intent::Lease;
use crate::directory::Child;
use crate::inode::Inode;
use crate::other_mdts::Order;
use crate::striped::{parse_layout, stripes};
use crate::xattrs::LMV;

/// How often it is tried to move a name of which something changes at the same time each time.
const TRIES_MAX: usize = 16;

/// What a client asks for.
pub(crate) struct Migration<'a> {
    /// The directory of the name: the master, if it has stripes.
    pub(crate) parent: Fid,
    pub(crate) name: &'a Name,
    /// What the client has chosen for the new master of a directory.
    pub(crate) new: Fid,
    /// What the client takes the inode for, if it has said so: a directory is asked of another MDT than anything else.
    pub(crate) kind: Option<FileKind>,
    pub(crate) caller: Caller,
    pub(crate) now: Timestamp,
    /// What the name stands for stays where it is.
    pub(crate) names_only: bool,
    /// How a directory is to lie.
    pub(crate) wish: Option<DirectoryWish>,
}

/// The directories of a name.
struct Places {
    /// Of the master, while that changes.
    layout: Option<DirectoryLayout>,
    source: Fid,
    target: Fid,
}

/// What has become of one try.
enum Step {
    Done,
    /// Something was not as it was seen before it was excluded.
    Again,
    /// What the name stands for stays where it is, and the name is to move alone.
    NameAlone,
}

impl Mdt {
    /// Migrates a name: one of a directory that migrates, or a directory, whose migration begins. A lease on the inode is given up once it
    /// is known that the name is to move.
    ///
    /// # Errors
    /// [`Errno::EALREADY`] if it is where it belongs, [`Errno::ENOENT`] if it is absent, [`Errno::EBUSY`] while its directory, or it
    /// itself, is split or merged, [`Errno::EAGAIN`] if it never stays as it is, or is another directory than it was, [`Errno::EPERM`] for a directory that migrates by another wish,
    /// [`Errno::ESTALE`] if this is not the MDT to ask, as the name stands for something else by now, [`Errno::EINPROGRESS`] while an MDT is away, and those of the MDTs.
    pub(crate) async fn migrate_name(
        &self,
        context: &Context,
        asked: &Migration<'_>,
        lease: &mut Lease,
    ) -> Result<(), Errno> {
        let mut bound = Bound::default();
        for _ in 0..TRIES_MAX {
            let places = self.while_wanted(context, self.places_of(context, asked)).await?;
            let looked = self.while_wanted(context, self.find_in(context, &places, asked.name));
            let child = match looked.await {
                // The layout has changed meanwhile.
                Err(Errno::ESTALE) => continue,
                found => found?,
            };
            if asked.kind.is_some_and(|kind| is_directory(kind) != is_directory(child.kind)) {
                return Err(Errno::ESTALE);
            }
            self.close_lease(context, lease).await?;
            let step = match child.kind {
                _ if asked.names_only => Step::NameAlone,
                FileKind::Directory => {
                    bound.check(&places, child.fid)?;
                    self.migrate_directory(context, asked, &places, child).await?
                }
                _ => self.migrate_inode(context, asked, &places, child).await?,
            };
            let done = match step {
                Step::Done => return Ok(()),
                Step::Again => continue,
                Step::NameAlone => self.migrate_name_alone(context, asked, &places).await,
            };
            // The layout has changed meanwhile.
            if done != Err(Errno::ESTALE) {
                return done;
            }
        }
        Err(Errno::EAGAIN)
    }

    /// What a name stands for that is still where it was.
    ///
    /// # Errors
    /// [`Errno::EALREADY`] if it is where it belongs, [`Errno::ENOENT`] if it is in neither place, those of the MDTs.
    async fn find_in(
        &self,
        context: &Context,
        places: &Places,
        name: &Name,
    ) -> Result<Child, Errno> {
        let (source, target) = (places.source, places.target);
        if let Some(child) = self.find_or_none(context, source, name).await? {
            return Ok(child);
        }
        let is_there =
            source != target && self.find_or_none(context, target, name).await?.is_some();
        Err(if is_there { Errno::EALREADY } else { Errno::ENOENT })
    }

    /// What a name stands for; nothing in a directory that is gone.
    async fn find_or_none(
        &self,
        context: &Context,
        directory: Fid,
        name: &Name,
    ) -> Result<Option<Child>, Errno> {
        match self.find_on_any_mdt(&context.target, directory, name).await {
            Err(Errno::ENOENT) => Ok(None),
            found => found,
        }
    }

    /// Moves a name, and nothing else.
    async fn migrate_name_alone(
        &self,
        context: &Context,
        asked: &Migration<'_>,
        places: &Places,
    ) -> Result<(), Errno> {
        let Some(layout) = &places.layout else { return Err(Errno::EALREADY) };
        if !asked.caller.can(Capability::SysAdmin) {
            self.check_rights_to_move(context, asked, places).await?;
        }
        match self.move_name(context.into(), asked.parent, layout, asked.name).await? {
            NameMoved::Done => Ok(()),
            NameMoved::AlreadyThere => Err(Errno::EALREADY),
            NameMoved::Absent => Err(Errno::ENOENT),
        }
    }

    /// Whether a caller that is not root may move a name alone. Costs what a change costs.
    async fn check_rights_to_move(
        &self,
        context: &Context,
        asked: &Migration<'_>,
        places: &Places,
    ) -> Result<(), Errno> {
        let name = asked.name;
        let found = self.find_or_none(context, places.source, name).await?.ok_or(Errno::ESTALE)?;
        let wanted = ExclusionRequest::default().removed(places.source, name).inode(found.fid);
        let wanted = match places.source == places.target {
            true => wanted,
            false => wanted.added(places.target, name),
        };
        let held = match self.hold_distributed(context.into(), wanted).await {
            Err(Errno::ENOENT) => return Err(Errno::ESTALE),
            held => held?,
        };
        asked.check_rights(&held, places, &held.inode(found.fid)?)
    }

    /// Where a name is, and where it belongs.
    async fn places_of(&self, context: &Context, asked: &Migration<'_>) -> Result<Places, Errno> {
        let parent = asked.parent;
        let Some(layout) = self.layout_on_any_mdt(context, parent, Order::InTurn).await? else {
            return Ok(Places { layout: None, source: parent, target: parent });
        };
        let stripes = stripes(&layout);
        let stripe = |number: u32| stripes.get(number as usize).copied().ok_or(Errno::ESTALE);
        let places = layout
            .places(asked.name.as_bytes())
            .map_err(logged!(Errno::EBADF, "the layout of a directory has no place for a name"))?;
        let target = stripe(places.now)?;
        let source = places.before.map_or(Ok(target), stripe)?;
        match layout.change() {
            None => Ok(Places { layout: None, source, target }),
            Some(LayoutChange::Migration) => Ok(Places { layout: Some(layout), source, target }),
            // Its MDTs do that.
            Some(LayoutChange::Split | LayoutChange::Merge) => Err(Errno::EBUSY),
        }
    }

    /// The layout of a directory on whatever MDT it lies; `None` if it has no stripes.
    ///
    /// # Errors
    /// Those of the store, and of the MDT.
    pub(super) async fn layout_on_any_mdt(
        &self,
        context: &Context,
        directory: Fid,
        order: Order,
    ) -> Result<Option<DirectoryLayout>, Errno> {
        let mdt = self.mdt_of(&context.target, directory).await?;
        let value = match mdt.0 == self.index {
            true => self.shown_xattr(directory, LMV).await?,
            false => self.remote_xattr(mdt, directory, LMV, order).await?,
        };
        value.map(|value| parse_layout(directory, &value)).transpose()
    }
}

fn is_directory(kind: FileKind) -> bool {
    kind == FileKind::Directory
}

impl Migration<'_> {
    /// Whether the caller may move the name of an inode.
    ///
    /// # Errors
    /// [`Errno::EACCES`], [`Errno::EPERM`]; [`Errno::ENOENT`] for a directory that is gone.
    fn check_rights(
        &self,
        held: &DistributedHold,
        places: &Places,
        inode: &Inode,
    ) -> Result<(), Errno> {
        let source = held.directory(places.source)?;
        self.caller.may_remove(held, (source.fid, &source.attributes), &inode.attributes)?;
        let target = held.directory(places.target)?;
        if source.attributes.links == 0 || target.attributes.links == 0 {
            return Err(Errno::ENOENT);
        }
        let may = May::WRITE.and(May::EXEC);
        self.caller.may(held, target.fid, &target.attributes, may)
    }
}

impl Places {
    /// Whether the name stands for this still.
    ///
    /// # Errors
    /// [`Errno::EEXIST`] if it is in the other place, too.
    fn has(&self, held: &DistributedHold, name: &Name, child: Child) -> Result<bool, Errno> {
        let is_it = held.child(self.source, name) == Some(child);
        if is_it && self.source != self.target && held.child(self.target, name).is_some() {
            tracing::error!(source = %self.source, name = %name.as_bytes().escape_ascii(),
                "a name is in two stripes of a directory: check the file system with sheen fsck");
            return Err(Errno::EEXIST);
        }
        Ok(is_it)
    }
}
