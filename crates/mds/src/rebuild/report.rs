//! What a rebuild says of inodes and names: by path and FID.

use std::fmt;

use sheen_types::{Fid, HashMap};

use super::{Rebuild, Rebuilt};
use crate::check::Paths;

/// A name that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostName {
    /// The directory it was in, as programs see it.
    pub parent: Fid,
    /// The name, as text.
    pub name: String,
    /// The inode it led to, if that could be read.
    pub fid: Option<Fid>,
    /// Why it was removed.
    pub why: WhyLost,
}

/// Why a name was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyLost {
    /// Its entry could not be read.
    Unreadable,
    /// Nothing is left of its inode.
    NoInode,
    /// Where it belongs it is the name of another inode.
    Taken,
}

impl fmt::Display for WhyLost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Unreadable => "an entry of it could not be read, and is removed",
            Self::NoInode => "nothing is left of its inode, the name is removed",
            Self::Taken => "another inode has its name, which is removed",
        })
    }
}

impl Rebuilt {
    /// Path and FID of an inode that this names.
    #[must_use]
    pub fn place(&self, fid: Fid) -> String {
        format!("{} ({fid})", self.paths.of(fid))
    }

    /// Path and FID of a name that was removed.
    #[must_use]
    pub fn place_of_name(&self, lost: &LostName) -> String {
        match (lost.why, lost.fid) {
            (WhyLost::Unreadable, _) | (_, None) => self.place(lost.parent),
            (_, Some(fid)) => {
                format!("{} ({fid})", self.paths.within(lost.parent, lost.name.as_bytes()))
            }
        }
    }
}

impl Rebuild<'_> {
    /// Has what was done on each MDT know the paths of all that it names.
    pub(super) fn note_paths(&mut self) {
        for at in 0..self.done.len() {
            let done = &self.done[at];
            let named = done.directories.iter().chain(&done.stripes).chain(&done.put_back);
            let mut known = HashMap::default();
            named.for_each(|fid| self.way_up(*fid, &mut known));
            let parents = done.lost.iter().map(|lost| self.striped.seen(lost.parent));
            let parents: Vec<Fid> = parents.inspect(|fid| self.way_up(*fid, &mut known)).collect();
            let done = &mut self.done[at];
            done.lost.iter_mut().zip(parents).for_each(|(lost, seen)| lost.parent = seen);
            done.paths = Paths::new(known);
        }
    }

    /// Notes an inode's name, and those of the directories above it.
    fn way_up(&self, fid: Fid, known: &mut HashMap<Fid, (Fid, Vec<u8>)>) {
        let mut at = fid;
        while !known.contains_key(&at)
            && let Some((parent, name)) = self.inodes.get(&at).and_then(|inode| inode.names.first())
        {
            let seen = self.striped.seen(*parent);
            known.insert(at, (seen, name.to_vec()));
            at = seen;
        }
    }
}
