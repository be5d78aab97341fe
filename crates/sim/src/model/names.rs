//! Names: each name of each directory is a register of the file that it names. A move changes two of them at one moment,
//! wherever they lie: a client that has seen one of them changed sees the other one so.

use std::collections::BTreeMap;

use sheen_types::{Fid, Instant};

use super::{Register, Stale, Writer};

/// What a name was seen to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing.
    Absent,
    /// This file.
    Is(Fid),
    /// Something.
    There,
}

/// All names. A directory that is new has none.
#[derive(Clone, Default)]
pub(crate) struct Names {
    known: BTreeMap<(Fid, String), Register<Option<Fid>>>,
    /// The two names of each operation that moves one to the other.
    moves: BTreeMap<u64, [(Fid, String); 2]>,
    /// Files that anyone has seen, and by when.
    files: BTreeMap<Fid, Instant>,
}

impl Names {
    fn register(&mut self, parent: Fid, name: &str) -> &mut Register<Option<Fid>> {
        let key = (parent, name.to_owned());
        self.known.entry(key).or_insert_with(|| Register::new(None))
    }

    /// An operation begins that will make `name` be `file`; `None` for a file only servers know.
    pub(crate) fn begin_set(
        &mut self,
        (parent, name): (Fid, &str),
        file: Option<Fid>,
        operation: u64,
        by: Writer,
        now: Instant,
    ) {
        self.register(parent, name).begin(file.map(Some), operation, by, now);
    }

    /// An operation begins that will remove `name`.
    pub(crate) fn begin_remove(
        &mut self,
        (parent, name): (Fid, &str),
        operation: u64,
        by: Writer,
        now: Instant,
    ) {
        self.register(parent, name).begin(Some(None), operation, by, now);
    }

    /// An operation begins that will move a name to another.
    pub(crate) fn begin_move(
        &mut self,
        (from, to): ((Fid, &str), (Fid, &str)),
        operation: u64,
        by: Writer,
        now: Instant,
    ) {
        self.begin_remove(from, operation, by, now);
        self.begin_set(to, None, operation, by, now);
        let names = [from, to].map(|(parent, name)| (parent, name.to_owned()));
        self.moves.insert(operation, names);
    }

    /// It has succeeded.
    pub(crate) fn end(&mut self, (parent, name): (Fid, &str), operation: u64, now: Instant) {
        self.register(parent, name).end(operation, now);
    }

    /// It has succeeded, or there was nothing to do: see [`Register::end_or_nothing`].
    pub(crate) fn end_or_nothing(
        &mut self,
        (parent, name): (Fid, &str),
        operation: u64,
        now: Instant,
    ) {
        self.register(parent, name).end_or_nothing(operation, now);
    }

    /// Something that must be new was made, though other clients may have seen it before its maker's call
    /// returned.
    pub(crate) fn made(&mut self, key: (Fid, &str), file: Fid, operation: u64, now: Instant) {
        self.note(file, now);
        let register = self.register(key.0, key.1);
        register.learn(operation, Some(file));
        register.end(operation, now);
    }

    /// A file is seen; by when it had been before, if so.
    fn note(&mut self, file: Fid, now: Instant) -> Option<Instant> {
        let known = self.files.get(&file).copied();
        self.files.entry(file).or_insert(now);
        known
    }

    /// An open with `O_CREAT` and without `O_EXCL` has ended with `file`: made by it, or there before.
    ///
    /// # Errors
    /// The name cannot have been so.
    pub(crate) fn opened(
        &mut self,
        key: (Fid, &str),
        file: Fid,
        operation: u64,
        begin: Instant,
        end: Instant,
    ) -> Result<(), Stale> {
        let known = self.note(file, end);
        let register = self.register(key.0, key.1);
        match known {
            Some(_) if register.is_of(operation, Some(file)) => {}
            Some(seen) if seen < begin => {
                register.refused(operation);
                return self.saw(key, begin, end, Seen::Is(file));
            }
            // Seen before its maker's call returned; the maker may be this one.
            Some(_) => {
                register.learn(operation, Some(file));
                register.end_or_nothing(operation, end);
                return Ok(());
            }
            None => {}
        }
        self.made(key, file, operation, end);
        Ok(())
    }

    /// It was refused.
    pub(crate) fn refused(&mut self, (parent, name): (Fid, &str), operation: u64) {
        self.register(parent, name).refused(operation);
    }

    /// A name was looked at.
    ///
    /// # Errors
    /// It cannot have been so.
    pub(crate) fn saw(
        &mut self,
        (parent, name): (Fid, &str),
        begin: Instant,
        end: Instant,
        seen: Seen,
    ) -> Result<(), Stale> {
        if let Seen::Is(fid) = seen {
            self.note(fid, end);
        }
        let register = self.register(parent, name);
        let checked = match seen {
            Seen::Absent => register.read(begin, end, Some(None), |held| held.is_none()),
            Seen::Is(fid) => register.read(begin, end, Some(Some(fid)), |held| held == Some(fid)),
            Seen::There => register.read(begin, end, None, |held| held.is_some()),
        };
        match checked {
            Ok(operation) => {
                self.note_seen(operation, (parent, name), end);
                Ok(())
            }
            Err(Stale(text)) => Err(Stale(format!("{parent}/{name} was {seen:?}: {text}"))),
        }
    }

    /// What an operation did to a name was seen: so it had done all, if it is a move.
    fn note_seen(&mut self, operation: Option<u64>, (parent, name): (Fid, &str), by: Instant) {
        let Some(operation) = operation else { return };
        let names = self.moves.get(&operation).into_iter().flatten();
        for key in names.filter(|(at, other)| (*at, other.as_str()) != (parent, name)) {
            if let Some(register) = self.known.get_mut(key) {
                register.end(operation, by);
            }
        }
    }

    /// Whether a name may have named something that `is` accepts, from `begin` to `end`.
    pub(crate) fn may_name(
        &mut self,
        (parent, name): (Fid, &str),
        (begin, end): (Instant, Instant),
        is: impl Fn(Fid) -> bool,
    ) -> bool {
        self.register(parent, name).may_be(begin, end, |held| held.is_some_and(&is))
    }

    /// The names of a directory, as far as any was ever used.
    pub(crate) fn of(&self, parent: Fid) -> Vec<String> {
        let from = (parent, String::new());
        let of_parent = self.known.range(from..).take_while(|((at, _), _)| *at == parent);
        of_parent.map(|((_, name), _)| name.clone()).collect()
    }

    /// What `by` made of a name before `begin` is durable.
    pub(crate) fn durable(
        &mut self,
        (parent, name): (Fid, &str),
        by: Writer,
        (begin, now): (Instant, Instant),
    ) {
        self.register(parent, name).durable(by, begin, now, &[]);
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
    fn a_maker_that_other_clients_have_overtaken_is_the_maker() {
        let (fid, at) = (Fid::new(0x200000400, 1), Instant);
        let key = (Fid::ROOT, "d");
        let mut names = Names::default();
        names.begin_set(key, None, 1, 0, at(1));
        names.begin_set(key, None, 2, 1, at(2));
        assert!(names.saw(key, at(3), at(4), Seen::Is(fid)).is_ok());
        names.made(key, fid, 1, at(5));
        names.refused(key, 2);
        assert!(names.saw(key, at(6), at(7), Seen::Is(fid)).is_ok());
        assert!(names.saw(key, at(6), at(7), Seen::Absent).is_err());
    }

    #[test]
    fn a_move_that_was_seen_at_one_name_is_seen_at_the_other_one() {
        let (fid, at) = (Fid::new(0x200000400, 1), Instant);
        let (from, to) = ((Fid::ROOT, "a"), (fid, "b"));
        let mut names = Names::default();
        names.begin_set(from, Some(fid), 1, 0, at(1));
        names.end(from, 1, at(2));
        names.begin_move((from, to), 2, 0, at(3));
        let mut gone = names.clone();
        assert!(gone.saw(from, at(4), at(5), Seen::Absent).is_ok());
        assert!(gone.clone().saw(to, at(5), at(7), Seen::Absent).is_ok(), "at the same moment");
        assert!(gone.saw(to, at(6), at(7), Seen::Is(fid)).is_ok());
        let mut come = names.clone();
        assert!(come.saw(to, at(4), at(5), Seen::Is(fid)).is_ok());
        assert!(come.saw(from, at(6), at(7), Seen::Is(fid)).is_err());
        assert!(names.saw(from, at(6), at(7), Seen::Is(fid)).is_ok(), "it was not seen yet");
    }

    #[test]
    fn what_was_made_and_seen_before_its_maker_came_back_is_not_what_a_rename_brought() {
        let (made, renamed, at) = (Fid::new(0x200000400, 1), Fid::new(0x200000401, 1), Instant);
        let key = (Fid::ROOT, "f");
        let mut names = Names::default();
        names.begin_set(key, None, 1, 0, at(1));
        names.begin_set(key, None, 2, 1, at(2));
        assert!(names.saw(key, at(3), at(4), Seen::Is(made)).is_ok());
        assert!(names.opened(key, made, 1, at(1), at(5)).is_ok());
        names.end(key, 2, at(6));
        assert!(names.saw(key, at(7), at(8), Seen::Is(renamed)).is_ok());
        assert!(names.saw(key, at(9), at(10), Seen::Is(made)).is_err());
    }
}
