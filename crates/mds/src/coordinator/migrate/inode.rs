//! Moving a name of a directory that migrates, with what it stands for, if that is no directory.

use bytes::Bytes;
use sheen_io::logged;
use sheen_target::{Context, ReplyRecording, store_errno};
use sheen_types::{Errno, Fid, InodeBits, MdtIndex, Name};
use sheen_wire::out::ObjectUpdate;

use super::super::exclude::{ExclusionRequest, LINKS};
use super::super::execute::Executed;
use super::super::parts::Parts;
use super::{Migration, Places, Step};
use crate::directory::{Child, parse_name};
use crate::inode::Inode;
use crate::vouched_sizes::SizeRecord;
use crate::xattrs::{LINK, LOV, SOM};
use crate::{Mdt, layouts};

/// What clients keep of an inode that becomes another one.
const ALL: InodeBits = LINKS.union(InodeBits::PERM).union(InodeBits::LAYOUT).union(InodeBits::OPEN);
/// Names of an inode that moves, at most.
const NAMES_MAX: usize = 32;

impl Mdt {
    /// Moves a name of an inode of this MDT to its other stripe, and the inode to the MDT of that. It stays here if it is in use, or
    /// has data here, if it belongs here, or has other names that do, or names that are not all known.
    ///
    /// # Errors
    /// See [`Mdt::migrate_name`].
    pub(super) async fn migrate_inode(
        &self,
        context: &Context,
        asked: &Migration<'_>,
        places: &Places,
        child: Child,
    ) -> Result<Step, Errno> {
        if self.is_remote(child.fid) {
            return Err(Errno::ESTALE);
        }
        let mdt = self.mdt_of(&context.target, places.target).await?;
        let own = (places.source, asked.name);
        let further = match self.other_names(context, child.fid, own, mdt).await {
            // The name is all that there is of it.
            Err(Errno::ENOENT) => None,
            further => further?,
        };
        let Some(further) = further else { return Ok(Step::NameAlone) };
        let wanted = ExclusionRequest::default().removed(places.source, asked.name);
        let wanted = match places.source == places.target {
            true => wanted,
            false => wanted.added(places.target, asked.name),
        };
        let wanted =
            further.iter().fold(wanted.changed(child.fid, ALL), |wanted, (parent, name)| {
                // Absent ones are seen by the answer.
                wanted.replaced(*parent, name)
            });
        // Before something is held: its MDT may have to be asked.
        let new = self.new_fids(&context.target, &[mdt]).await?.first().copied();
        let new = new.ok_or(Errno::EPROTO)?;
        let mut held = match self.hold_distributed(context.into(), wanted).await {
            // The layout has changed meanwhile, or the name is gone.
            Err(Errno::ENOENT | Errno::ESTALE) => return Ok(Step::Again),
            held => held?,
        };
        let is_of_it = |(parent, name): &(Fid, Name)| held.child(*parent, name) == Some(child);
        if !further.iter().all(is_of_it) {
            // What the list of its names says is not so.
            return Ok(Step::NameAlone);
        }
        let seen = self.other_names(context, child.fid, own, mdt).await?;
        if !places.has(&held, asked.name, child)? || seen.as_ref() != Some(&further) {
            return Ok(Step::Again);
        }
        asked.check_rights(&held, places, &self.inode(child.fid)?)?;
        held.closed = Some(child.fid);
        let mut parts = Parts::new(self, context.into());
        parts.move_inode(asked, places, (child, new), &further).await?;
        let (parts, done) = (parts.into_parts(), ReplyRecording::Done);
        Ok(match self.execute_distributed(context.into(), held, parts, done).await? {
            Executed::Done => Step::Done,
            Executed::Again => Step::Again,
            Executed::InUse => Step::NameAlone,
        })
    }

    /// The names of an inode besides this one; `None` if it stays on this MDT.
    async fn other_names(
        &self,
        context: &Context,
        inode: Fid,
        own: (Fid, &Name),
        target: MdtIndex,
    ) -> Result<Option<Vec<(Fid, Name)>>, Errno> {
        let (inode, links) = (self.inode(inode)?, self.links(inode)?);
        let is_whole = links.overflow_time == 0
            && links.entries.len() == inode.attributes.links as usize
            && links.entries.len() <= NAMES_MAX;
        if target.0 == self.index || !is_whole || inode.is_damaged || self.has_data_here(&inode)? {
            return Ok(None);
        }
        let mut further = Vec::with_capacity(links.entries.len());
        let mut has_own = false;
        for entry in links.entries {
            let name = parse_name(&entry.name)
                .map_err(logged!(Errno::EIO, "the list of an inode's names has what is no name"))?;
            if (entry.parent, &name) == own {
                has_own = true;
                continue;
            }
            if self.mdt_of(&context.target, entry.parent).await?.0 == self.index {
                return Ok(None);
            }
            further.push((entry.parent, name));
        }
        Ok(has_own.then_some(further))
    }

    /// Whether bytes of a file lie on this MDT (Data-on-MDT): they do not move, as in Lustre.
    fn has_data_here(&self, inode: &Inode) -> Result<bool, Errno> {
        if !inode.is_regular() {
            return Ok(false);
        }
        let layout = self.layout(inode)?.map(|layout| layouts::stored(&layout)).transpose()?;
        Ok(layout.is_some_and(|layout| layout.end_on_mdt().is_some()))
    }
}

impl Parts<'_> {
    /// An inode becomes another one on another MDT, with all of its names.
    async fn move_inode(
        &mut self,
        asked: &Migration<'_>,
        places: &Places,
        (old, new): (Child, Fid),
        further: &[(Fid, Name)],
    ) -> Result<(), Errno> {
        let inode = self.mdt.inode(old.fid)?;
        let child = Child { fid: new, ..old };
        let mut attributes = inode.attributes;
        attributes.changed = asked.now;
        let moved = Inode { fid: new, attributes, is_damaged: false };
        let (xattrs, has_layout) = kept_xattrs(self.mdt, old.fid, new)?;
        self.delete_name(places.source, asked.name).await?;
        self.create(&moved, &xattrs, (places.target, asked.name)).await?;
        for (parent, name) in further {
            self.delete_name(*parent, name).await?;
            self.insert_name(*parent, name, child).await?;
            self.add(new, ObjectUpdate::link_add(new, *parent, name)).await?;
        }
        if has_layout {
            // Its objects are the new one's.
            self.add(old.fid, ObjectUpdate::xattr_del(old.fid, LOV)).await?;
        }
        self.add(old.fid, ObjectUpdate::destroy(old.fid)).await?;
        self.insert_name(places.target, asked.name, child).await?;
        self.touch(places.source, asked.now, 0).await?;
        match places.source == places.target {
            true => Ok(()),
            false => self.touch(places.target, asked.now, 0).await,
        }
    }
}

/// The extended attributes that an inode keeps when it becomes another one, and whether it has a layout.
fn kept_xattrs(mdt: &Mdt, old: Fid, new: Fid) -> Result<(Vec<(String, Bytes)>, bool), Errno> {
    let all = mdt.store.whole(old).map_err(store_errno)?.xattrs;
    let (mut kept, mut has_layout) = (Vec::new(), false);
    for (name, value) in all.iter() {
        let value = match name {
            LINK => continue,
            LOV => {
                has_layout = true;
                let mut layout = layouts::stored(value)?;
                layout.give_to(new, layout.generation());
                layout.encode()
            }
            // What was vouched for was so on this MDT.
            SOM => match SizeRecord::decode(value) {
                Some(record) => record.as_hint().encode(),
                None => continue,
            },
            _ => value.clone(),
        };
        kept.push((name.to_owned(), value));
    }
    Ok((kept, has_layout))
}
