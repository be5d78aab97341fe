//! Moving a name between two stripes of one directory. The inode that it stands for stays where it is.
//!
//! Programs see nothing of it: neither times nor numbers of links change but those by which each stripe counts its
//! subdirectories.

use sheen_io::logged;
use sheen_layout::directory::{DirectoryLayout, Holder, NamePlaces};
use sheen_target::ReplyRecording;
use sheen_types::{Errno, Fid, Name};
use sheen_wire::out::ObjectUpdate;

use super::exclude::{DistributedHold, ExclusionRequest};
use super::execute::Executed;
use super::initiator::Initiator;
use super::parts::Parts;
use crate::Mdt;
use crate::directory::Child;
use crate::striped::layout_in;

/// How often a name is looked up that is another one whenever it is excluded.
const TRIES_MAX: usize = 16;

/// What has become of a name that was to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum NameMoved {
    /// It is where it belongs from now on.
    Done,
    /// It was there before.
    AlreadyThere,
    /// It is in neither stripe.
    Absent,
}

/// The two stripes of a name.
#[derive(Clone, Copy)]
struct Move {
    from: (u32, Fid),
    to: (u32, Fid),
}

impl Mdt {
    /// Moves a name from the stripe that had it before the layout of its directory began to change to the one that has it from now
    /// on. One distributed change. `layout` is that of the master.
    ///
    /// # Errors
    /// [`Errno::ESTALE`] if the layout has changed meanwhile, or is not that of a master; [`Errno::EEXIST`] if both stripes have the
    /// name; [`Errno::EBADF`] for an unknown hash; [`Errno::EAGAIN`] if it was another one each time; those of the MDTs and of `may_coordinate`.
    pub(crate) async fn move_name(
        &self,
        by: Initiator<'_>,
        master: Fid,
        layout: &DirectoryLayout,
        name: &Name,
    ) -> Result<NameMoved, Errno> {
        let Some(moved) = move_of(layout, name)? else { return Ok(NameMoved::AlreadyThere) };
        let (from, to) = (moved.from.1, moved.to.1);
        for _ in 0..TRIES_MAX {
            let Some(child) = self.find_on_any_mdt(by.target(), from, name).await? else {
                let there = self.find_on_any_mdt(by.target(), to, name).await?;
                return Ok(there.map_or(NameMoved::Absent, |_| NameMoved::AlreadyThere));
            };
            let mut wanted = ExclusionRequest::default().removed(from, name).added(to, name);
            // A name of what no MDT has moves without it.
            let may_have_inode = child.fid.is_of_mdt()
                && match self.mdt_of(by.target(), child.fid).await {
                    Err(Errno::ENOENT) => false,
                    mdt => mdt.map(|_| true)?,
                };
            if may_have_inode {
                wanted = wanted.inode(child.fid);
            }
            let held = match self.hold_distributed(by, wanted).await {
                // It was removed, or moved, before it was excluded.
                Err(Errno::ENOENT) => continue,
                held => held?,
            };
            for (number, stripe) in [moved.from, moved.to] {
                held.must_be_stripe(stripe, number, layout)?;
            }
            if held.child(from, name) != Some(child) {
                continue;
            }
            if held.child(to, name).is_some() {
                // The restriper comes here again and again, and says it once.
                if by.request().is_some() {
                    let name = name.as_bytes().escape_ascii();
                    tracing::error!(%master, %name,
                        "a name is in two stripes of a directory: check the file system with sheen fsck");
                }
                return Err(Errno::EEXIST);
            }
            let mut parts = Parts::new(self, by);
            let has_inode = may_have_inode && held.has(child.fid);
            parts.move_name((from, to), name, (child, has_inode)).await?;
            let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
            if let Executed::Done = self.execute_distributed(by, held, parts, done).await? {
                return Ok(NameMoved::Done);
            }
        }
        Err(Errno::EAGAIN)
    }
}

/// Where a name moves from and to; `None` if it stays.
fn move_of(layout: &DirectoryLayout, name: &Name) -> Result<Option<Move>, Errno> {
    let Holder::Master { stripes, .. } = layout.holder() else { return Err(Errno::ESTALE) };
    let stripe = |number: u32| {
        let fid = stripes.get(number as usize).copied().filter(|fid| fid.is_of_mdt());
        fid.map(|fid| (number, fid)).ok_or(Errno::ENOENT)
    };
    match layout
        .places(name.as_bytes())
        .map_err(logged!(Errno::EBADF, "the layout of a directory has no place for a name"))?
    {
        NamePlaces { before: None, .. } => Ok(None),
        NamePlaces { now, before: Some(before) } => {
            Ok(Some(Move { from: stripe(before)?, to: stripe(now)? }))
        }
    }
}

impl DistributedHold {
    /// # Errors
    /// [`Errno::ESTALE`] if a directory is no more the stripe of this layout.
    fn must_be_stripe(
        &self,
        stripe: Fid,
        number: u32,
        layout: &DirectoryLayout,
    ) -> Result<(), Errno> {
        let found = layout_in(self, stripe)?.ok_or(Errno::ESTALE)?;
        let is_it = *found.holder() == Holder::Stripe { number }
            && found.version() == layout.version()
            && found.stripe_count() == layout.stripe_count();
        if is_it { Ok(()) } else { Err(Errno::ESTALE) }
    }
}

impl Parts<'_> {
    /// A name moves between two directories that are one to programs. A name whose inode is lost moves, too.
    async fn move_name(
        &mut self,
        (from, to): (Fid, Fid),
        name: &Name,
        (child, has_inode): (Child, bool),
    ) -> Result<(), Errno> {
        self.delete_name(from, name).await?;
        self.insert_name(to, name, child).await?;
        if child.kind == sheen_store::FileKind::Directory {
            self.add_links(from, -1).await?;
            self.add_links(to, 1).await?;
        }
        if has_inode {
            self.add(child.fid, ObjectUpdate::link_del(child.fid, from, name)).await?;
            self.add(child.fid, ObjectUpdate::link_add(child.fid, to, name)).await?;
        }
        Ok(())
    }
}
