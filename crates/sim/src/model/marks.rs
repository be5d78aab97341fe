//! What a file carries besides names and bytes: its permission bits, an extended attribute, and the
//! target of a symbolic link.

use std::collections::BTreeMap;

use sheen_types::{Fid, Instant};

use super::{Register, Stale, Writer};

/// The permission bits that files are made with.
pub(crate) const MODE: u64 = 0o644;

/// One of those that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    /// Permission bits.
    Mode,
    /// The extended attribute that clients set: the operation that did, 0 for none.
    Xattr,
}

/// All marks by FID.
#[derive(Default)]
pub(crate) struct Marks {
    known: BTreeMap<(Fid, Mark), Register<u64>>,
    targets: BTreeMap<Fid, Vec<u8>>,
}

impl Marks {
    fn register(&mut self, file: Fid, mark: Mark) -> &mut Register<u64> {
        let first = if mark == Mark::Mode { MODE } else { 0 };
        self.known.entry((file, mark)).or_insert_with(|| Register::new(first))
    }

    /// `operation` begins to set a mark to `value`.
    pub(crate) fn begin(
        &mut self,
        (file, mark): (Fid, Mark),
        value: u64,
        operation: u64,
        by: Writer,
        now: Instant,
    ) {
        self.register(file, mark).begin(Some(value), operation, by, now);
    }

    /// It has succeeded.
    pub(crate) fn end(&mut self, (file, mark): (Fid, Mark), operation: u64, now: Instant) {
        self.register(file, mark).end(operation, now);
    }

    /// It was refused.
    pub(crate) fn refused(&mut self, (file, mark): (Fid, Mark), operation: u64) {
        self.register(file, mark).refused(operation);
    }

    /// A mark was seen.
    ///
    /// # Errors
    /// It cannot have been so.
    pub(crate) fn saw(
        &mut self,
        (file, mark): (Fid, Mark),
        value: u64,
        begin: Instant,
        end: Instant,
    ) -> Result<(), Stale> {
        let read = self.register(file, mark).read(begin, end, Some(value), |held| held == value);
        let stale = |Stale(text)| Stale(format!("{mark:?} of {file} was {value}: {text}"));
        read.map(|_| ()).map_err(stale)
    }

    /// A symbolic link was made.
    pub(crate) fn made_link(&mut self, link: Fid, target: &[u8]) {
        self.targets.insert(link, target.to_vec());
    }

    /// The target of a symbolic link was read.
    ///
    /// # Errors
    /// It is another one.
    pub(crate) fn saw_target(&self, link: Fid, target: &[u8]) -> Result<(), Stale> {
        match self.targets.get(&link) {
            Some(known) if known != target => {
                let text = String::from_utf8_lossy(target);
                let known = String::from_utf8_lossy(known);
                Err(Stale(format!("{link} leads to {text:?}, but was made for {known:?}")))
            }
            _ => Ok(()),
        }
    }

    /// What `by` set on `file` before `begin` is durable.
    pub(crate) fn durable(&mut self, file: Fid, by: Writer, (begin, now): (Instant, Instant)) {
        for mark in [Mark::Mode, Mark::Xattr] {
            self.register(file, mark).durable(by, begin, now, &[]);
        }
    }

    /// A crash: see [`Register::lose`].
    pub(crate) fn lose(&mut self) {
        self.known.values_mut().for_each(|register| register.lose(None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_what_was_set_last() {
        let (file, at) = (Fid::new(0x200000400, 1), Instant);
        let mut marks = Marks::default();
        let mode = (file, Mark::Mode);
        assert!(marks.saw(mode, MODE, at(1), at(2)).is_ok());
        marks.begin(mode, 0o600, 1, 0, at(3));
        marks.end(mode, 1, at(4));
        assert!(marks.saw(mode, MODE, at(5), at(6)).is_err());
        assert!(marks.saw(mode, 0o600, at(5), at(6)).is_ok());
        assert!(marks.saw((file, Mark::Xattr), 0, at(5), at(6)).is_ok());
        assert!(marks.saw((file, Mark::Xattr), 1, at(5), at(6)).is_err());
    }

    #[test]
    fn a_link_leads_where_it_was_made_for() {
        let link = Fid::new(0x200000400, 1);
        let mut marks = Marks::default();
        assert!(marks.saw_target(link, b"who knows").is_ok());
        marks.made_link(link, b"there");
        assert!(marks.saw_target(link, b"there").is_ok());
        assert!(marks.saw_target(link, b"elsewhere").is_err());
    }
}
