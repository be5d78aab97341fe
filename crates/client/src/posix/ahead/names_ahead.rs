//! Which names a run asks for: those of a listing in its order, or those that count on.

use std::sync::Arc;

use sheen_types::{Errno, Name};

use super::numbers::NumberedName;
use super::run::Run;
use crate::cache::{Chunk, Inode, Position};
use crate::meta::{BatchedName, Meta};
use crate::types::Credentials;

/// Where the names of a run come from.
pub(super) enum NamesAhead {
    Listing(ListingAhead),
    Numbers(NumberedName),
}

/// A listing that goes ahead of the program's.
pub(super) struct ListingAhead {
    pub(super) position: Position,
    /// The chunk that was read last.
    pub(super) last: Option<Arc<Chunk>>,
    /// A name that is being looked up already.
    pub(super) skips: Option<Name>,
    /// Whether names are asked for that begin with a dot: a program does not look at them that lists without them.
    pub(super) with_hidden: bool,
}

impl NamesAhead {
    /// Up to `count` further names; none at the end.
    pub(super) async fn next(
        &mut self,
        meta: &Meta,
        who: &Credentials,
        directory: &Inode,
        run: &Run,
        count: usize,
    ) -> Result<Vec<BatchedName>, Errno> {
        match self {
            Self::Listing(listing) => listing.next(meta, who, directory, run, count).await,
            Self::Numbers(last) => Ok(last.take(count)),
        }
    }
}

impl NumberedName {
    fn take(&mut self, count: usize) -> Vec<BatchedName> {
        let mut names = Vec::with_capacity(count);
        while names.len() < count
            && let Some(next) = self.next()
            && let Some(name) = next.name()
        {
            *self = next;
            names.push(BatchedName { name, fid: None });
        }
        names
    }
}

impl ListingAhead {
    /// One RPC for some thousand names, none while a lock covers them.
    async fn next(
        &mut self,
        meta: &Meta,
        who: &Credentials,
        directory: &Inode,
        run: &Run,
        count: usize,
    ) -> Result<Vec<BatchedName>, Errno> {
        let mut names = Vec::new();
        while names.is_empty() {
            self.catch_up(run.listed());
            let last = self.last.as_ref();
            let chunk = meta.dir_chunk(who, directory, self.position, last).await?;
            let Some(chunk) = chunk else { break };
            let mut is_at_end = true;
            for (entry, behind) in chunk.from(self.position) {
                if names.len() == count {
                    is_at_end = false;
                    break;
                }
                self.position = behind;
                names.extend(self.wanted(&entry.name).map(|name| {
                    let fid = Some(entry.fid);
                    BatchedName { name, fid }
                }));
            }
            if is_at_end {
                self.position = chunk.next_chunk();
            }
            self.last = Some(chunk);
        }
        Ok(names)
    }

    /// Leaves out what the program has been given already.
    fn catch_up(&mut self, listed: Position) {
        let order = |position: Position| (position.hash, position.done);
        if order(self.position) < order(listed) {
            self.position = listed;
        }
    }

    /// A listed name if it is to be asked for: `.` and `..` are not.
    fn wanted(&mut self, listed: &[u8]) -> Option<Name> {
        if listed.first() == Some(&b'.') && !self.with_hidden {
            return None;
        }
        let name = Name::new(listed).ok()?;
        if self.skips.as_ref() == Some(&name) {
            self.skips = None;
            return None;
        }
        Some(name)
    }
}
