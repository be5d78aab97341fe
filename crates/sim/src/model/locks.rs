//! `flock(2)` locks: who holds what.

use std::collections::BTreeMap;

use sheen_types::Fid;

use super::{Stale, Writer};

/// All held locks.
#[derive(Default)]
pub(crate) struct FileLocks {
    held: BTreeMap<Fid, Vec<(Writer, u64, bool)>>,
}

impl FileLocks {
    /// A lock is granted to `owner`, a process of `by`.
    ///
    /// # Errors
    /// Another owner holds one that conflicts.
    pub(crate) fn granted(
        &mut self,
        file: Fid,
        by: Writer,
        owner: u64,
        exclusive: bool,
    ) -> Result<(), Stale> {
        let held = self.held.entry(file).or_default();
        held.retain(|(writer, holder, _)| (*writer, *holder) != (by, owner));
        let other = held.iter().find(|(_, _, other)| exclusive || *other);
        if let Some(other) = other {
            let wish = if exclusive { "exclusive" } else { "shared" };
            return Err(Stale(format!(
                "{file}: {wish} lock for process {owner} of client {by}, but {other:?} holds one"
            )));
        }
        held.push((by, owner, exclusive));
        Ok(())
    }

    /// It is about to be released.
    pub(crate) fn released(&mut self, file: Fid, by: Writer, owner: u64) {
        let held = self.held.entry(file).or_default();
        held.retain(|(writer, holder, _)| (*writer, *holder) != (by, owner));
    }

    /// A client has lost all it held.
    pub(crate) fn lost(&mut self, by: Writer) {
        for held in self.held.values_mut() {
            held.retain(|(writer, _, _)| *writer != by);
        }
    }
}
