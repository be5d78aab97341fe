//! Names of a directory whose names are being moved between stripes, and directories that are moved themselves.
//!
//! A name moves once, from the stripe of before to the one of now. It is looked up in that of now, and if it is absent there
//! in that of before; if it is absent there, too, it may have moved in between: it is absent only if a lock covers that it
//! is absent from the one of now still, or if that says so once more. What removes or opens a name goes where it was found, what
//! adds one to the stripe of now, whose MDT excludes it in the other one.
//!
//! A directory that is moved gets another inode. A program that has the former one open, or works in it, is led to the
//! new one where that has stripes of the former one, or says that it was that one ([`FORMER`]): looked up by its last name, it is
//! known to be no other directory of that name. The kernel knows it by the number of the former one from then on
//! ([`crate::cache::InodeTable::note_moved`]).
//!
//! Cost, while a layout changes only: a lookup more for each name that has not moved, two more for one that is absent, and a lookup
//! before what removes a name.

use std::time::Duration;

use sheen_layout::directory::{FORMER, read_former};
use sheen_types::{Errno, Name};

use super::place::Tries;
use super::{LookupDepth, Meta};
use crate::cache::{Inode, NamePlace, Pin};
use crate::types::{Credentials, Dentry, FileType};

/// How long is waited before the third question that MDTs have not agreed about, and twice as long before each further one.
const PAUSE: Duration = Duration::from_millis(5);

/// How often a directory may refuse names before a call, which has not moved as far as is known.
const REFUSED_MAX: u32 = 4;

/// How often it is asked what has taken the place of a directory, with pauses, while that changes.
const FOLLOWED_MAX: u32 = 6;

/// Directories above one that are looked for when it is not there any more.
const ABOVE_MAX: usize = 64;

impl Meta {
    /// While names of its directory are being moved: the stripe in which a name may still be.
    pub(super) fn place_before<'a>(&self, place: &NamePlace<'a>) -> Option<NamePlace<'a>> {
        let before = place.before()?;
        Some(NamePlace::in_stripe(place.directory, self.cache.inodes.pin(before)))
    }

    /// As [`Self::find_name`], in both stripes that may have the name.
    pub(super) async fn find_placed(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        name: &Name,
        depth: LookupDepth,
    ) -> Result<Option<Pin>, Errno> {
        let found = self.find_name(who, place, name, depth).await?;
        let Some(before) = self.place_before(place).filter(|_| found.is_none()) else {
            return Ok(found);
        };
        match self.find_before(who, &before, name, depth).await? {
            None if place.holder().state().is_absent(name) => Ok(None),
            None => self.find_name(who, place, name, depth).await,
            found => Ok(found),
        }
    }

    /// As [`Self::find_name`], in the stripe of before: one that all such names have left refuses them, while the master does
    /// not know that yet.
    async fn find_before(
        &self,
        who: &Credentials,
        before: &NamePlace<'_>,
        name: &Name,
        depth: LookupDepth,
    ) -> Result<Option<Pin>, Errno> {
        match self.find_name(who, before, name, depth).await {
            Err(Errno::ESTALE) => Ok(None),
            found => found,
        }
    }

    /// The inode that has taken the place of a directory, if one has.
    pub(super) fn moved(&self, directory: &Inode) -> Option<Pin> {
        let moved_to = directory.state().moved_to()?;
        Some(self.current(self.cache.inodes.pin(moved_to)))
    }

    /// Whether a call about a name is made again, as what was asked before it was answered `errno`: by what has taken the place
    /// of one of these directories since, or by their layouts as they are now, a few times.
    pub(super) fn was_moved(
        &self,
        directories: &[&Inode],
        tries: &mut Tries,
        errno: Errno,
    ) -> bool {
        if errno != Errno::ESTALE || !self.mdts.has_several() {
            return false;
        }
        let has_moved = |it: &&Inode| it.state().moved_to().is_some();
        if directories.iter().any(has_moved) {
            return tries.take();
        }
        directories.iter().for_each(|directory| self.cache.inodes.doubt_striping(directory));
        tries.taken() < REFUSED_MAX && tries.take()
    }

    /// Whether a name that an MDT does not know at `place` may be elsewhere by now, and is to be looked for again: the
    /// layout has changed since it was asked for.
    pub(super) fn may_have_moved(&self, place: &NamePlace<'_>, tries: &mut Tries) -> bool {
        let may_have = self.mdts.has_several()
            && !place.still_counts()
            && !tries.is_absent_again(place)
            && tries.take();
        if may_have {
            self.cache.inodes.doubt_striping(place.directory);
        }
        may_have
    }

    /// Where `name` is, for what removes or opens it: as [`Self::place`], but while names are being moved where it is
    /// found. No RPC more but then.
    ///
    /// # Errors
    /// As [`Self::place`], and then those of a lookup.
    pub(super) async fn place_where_found<'a>(
        &self,
        who: &Credentials,
        directory: &'a Inode,
        name: &Name,
    ) -> Result<NamePlace<'a>, Errno> {
        let place = self.place_to_add(who, directory, name).await?;
        let Some(before) = self.place_before(&place) else { return Ok(place) };
        let depth = LookupDepth::Name;
        if self.find_name(who, &place, name, depth).await?.is_some() {
            return Ok(place);
        }
        match self.find_before(who, &before, name, depth).await? {
            Some(_) => Ok(before),
            None => Ok(place),
        }
    }

    /// Whether a call about a name is made again by where that is now: it was answered `errno`, and names of one of these
    /// directories are being moved.
    pub(super) fn may_be_moving(
        &self,
        places: &[(&Inode, &Name)],
        tries: &mut Tries,
        errno: Errno,
    ) -> bool {
        let is_moving = |(directory, name): &(&Inode, &Name)| {
            let place = self.known_place(directory, name);
            place.map_or_else(
                |errno| errno == Errno::ESTALE,
                |it| it.is_none_or(|it| it.before().is_some()),
            )
        };
        let may_be = matches!(errno, Errno::ENOENT | Errno::EEXIST)
            && self.mdts.has_several()
            && places.iter().any(is_moving)
            && tries.take();
        if may_be {
            // What was taken for in one piece without a question is asked for.
            let taken = places.iter().filter(|(it, _)| it.state().directory.was_whole);
            taken.for_each(|(it, _)| self.cache.inodes.doubt_striping(it));
        }
        may_be
    }

    /// Looks for the inode that has taken the place of a directory, by its last name; notes it if there is one. The directories
    /// above are looked for first, from the top, as far as they were seen: they may have moved, too. Answers whether the
    /// directory may be elsewhere: not if what is above is known not to have its name, or this client has removed it.
    pub(crate) async fn follow_moved(&self, who: &Credentials, directory: &Inode) -> bool {
        if !self.mdts.has_several() || directory.state().directory.removed {
            return false;
        }
        let mut followed = 0;
        loop {
            self.pause_between(followed).await;
            followed += 1;
            for above in self.above(directory).into_iter().rev() {
                if !self.is_in_place(who, &above).await {
                    _ = self.follow_by_name(who, &above).await;
                }
            }
            match self.follow_by_name(who, directory).await {
                Ok(may_be_elsewhere) => return may_be_elsewhere,
                // What is above moves at this moment, or the directory does once more.
                Err(Errno::ESTALE | Errno::ENOENT) if followed < FOLLOWED_MAX => {}
                Err(errno) => {
                    let fid = directory.fid;
                    tracing::debug!(%fid, %errno, "what has taken the place of a directory is not known");
                    return true;
                }
            }
        }
    }

    /// The directories above, as they were seen last, the nearest first; those that other ones have taken the place of by
    /// those. Names that were seen may lead round in a circle.
    fn above(&self, directory: &Inode) -> Vec<Pin> {
        let mut above: Vec<Pin> = Vec::new();
        let mut parent = directory.state().directory.last_name.as_deref().map(|it| it.parent);
        while let Some(next) = parent.and_then(|node| self.cache.inodes.pin_node(node)) {
            let next = self.current(next);
            let is_seen = next.fid == directory.fid || above.iter().any(|it| it.fid == next.fid);
            if is_seen || above.len() == ABOVE_MAX {
                break;
            }
            parent = next.state().directory.last_name.as_deref().map(|it| it.parent);
            above.push(next);
        }
        above
    }

    /// Whether it is known that no other inode has taken the place of a directory. No RPC where locks cover that, else one.
    async fn is_in_place(&self, who: &Credentials, directory: &Inode) -> bool {
        let is_covered = {
            let state = directory.state();
            let is_master = state.master_layout().is_some_and(|(_, is_covered)| is_covered);
            is_master || state.directory.is_whole_covered
        };
        is_covered
            || self.rights(who, directory).await.is_ok()
                && !directory.state().is_stripe_of_unknown()
    }

    /// As [`Self::follow_moved`], where what is above was followed.
    ///
    /// # Errors
    /// It is not known: `ESTALE` or `ENOENT` while it changes what its name leads to.
    async fn follow_by_name(&self, who: &Credentials, directory: &Inode) -> Result<bool, Errno> {
        if directory.state().moved_to().is_some() {
            return Ok(true);
        }
        let named = directory.state().directory.last_name.as_deref().cloned();
        let Some(Dentry { parent, name }) = named else { return Ok(true) };
        let Some(parent) = self.cache.inodes.pin_node(parent) else { return Ok(true) };
        let parent = self.current(parent);
        let Some(found) = self.find_as_known(who, &parent, &name).await? else { return Ok(false) };
        // Which stripes it has says its own MDT.
        self.fetch_striping(who, &found).await?;
        if found.fid == directory.fid {
            return Ok(false);
        }
        self.has_taken_place(directory, &found).await
    }

    /// Whether `found`, of which it is known how it lies, has taken the place of `former`; it is noted if so. No RPC while it has
    /// stripes of that, nor if it was never moved; else one.
    ///
    /// # Errors
    /// Its MDT does not say: a Lustre server does not know, nor does what has moved too often since.
    async fn has_taken_place(&self, former: &Inode, found: &Inode) -> Result<bool, Errno> {
        if self.cache.inodes.note_moved(former, found) {
            return Ok(true);
        }
        // What is made anew has the first version of a layout.
        let was_moved =
            found.state().master_layout().is_some_and(|(layout, _)| layout.version() > 1);
        if !was_moved {
            return Ok(false);
        }
        // Not as the program, which has the directory already: the attribute is one of those that root alone reads.
        let said = self.getxattr(&Credentials::root(), found, FORMER.as_bytes()).await?;
        match self.cache.inodes.note_moved_as_said(former, found, &read_former(&said)) {
            true => Ok(true),
            false => Err(Errno::ENODATA),
        }
    }

    /// What `name` led to when it was looked up last was a directory, and `found` is another one now: whether that has taken its
    /// place is found out before the kernel knows it. No RPC where nothing was known by that name, or the same.
    pub(crate) async fn follow_found(
        &self,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
        found: &Inode,
    ) {
        let is_directory = found.file_type().is_none_or(|it| it == FileType::Directory);
        if !self.mdts.has_several() || !is_directory {
            return;
        }
        let Some(former) = self.cache.inodes.unnamed(parent, name, found.fid) else { return };
        if self.fetch_striping(who, found).await.is_err() {
            return;
        }
        let has_moved = self.has_taken_place(&former, found).await;
        if !matches!(has_moved, Err(errno) if errno != Errno::ENODATA) {
            self.cache.inodes.forget_unnamed(parent, name);
        }
    }

    /// As a lookup, of a directory of which one question at most says how it lies.
    ///
    /// # Errors
    /// `ESTALE` where another inode has taken its place, or its layout changes meanwhile.
    async fn find_as_known(
        &self,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
    ) -> Result<Option<Pin>, Errno> {
        let place = match self.known_place(parent, name)? {
            Some(place) => place,
            None => {
                self.rights(who, parent).await?;
                self.known_place(parent, name)?.ok_or(Errno::ESTALE)?
            }
        };
        match self.find_placed(who, &place, name, LookupDepth::Name).await? {
            None if !place.still_counts() => Err(Errno::ESTALE),
            found => Ok(found),
        }
    }

    /// Waits before a question is asked again for the second time and more: a change of a layout is done on one MDT a little
    /// before another one.
    pub(super) async fn pause_between(&self, tried: u32) {
        if tried > 1 {
            let clock = &self.world.clock;
            clock.sleep_until(clock.now() + PAUSE * (1 << (tried - 2).min(7))).await;
        }
    }

    /// The directory itself, or the one that has taken its place as far as is known.
    pub(crate) fn current(&self, directory: Pin) -> Pin {
        self.cache.inodes.current(directory)
    }
}
