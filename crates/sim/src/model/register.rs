//! One place that holds one value at a time, as its users see it.
//!
//! A register knows every value that was written to it, when the write began, when it had taken
//! effect at the latest, and from when on it cannot be there any more. A read is right if some order
//! of the writes and reads explains it, each taking effect at one moment between its begin and its
//! end. The rules are necessary, and each violation is one; not every violation is found by one read.
//!
//! A crash may bring back what was there before, unless something later was made durable.

use std::fmt;

use sheen_types::Instant;

/// The number of a writer: a client of the simulation.
pub(crate) type Writer = u16;

/// A moment that never comes.
const NEVER: Instant = Instant(u64::MAX);

/// One value.
#[derive(Clone, Debug)]
struct Value<T> {
    /// `None` if only the servers know, as after a rename of what changed meanwhile.
    tag: Option<T>,
    operation: u64,
    by: Writer,
    begin: Instant,
    /// It has taken effect by then.
    end: Instant,
    /// Reads that begin later cannot see it.
    dead: Instant,
    /// A crash left open whether it was lost.
    doubtful: bool,
    /// An error of a disk did; who wrote it knows.
    shaken: bool,
    /// Something later is durable: no crash brings it back.
    buried: bool,
}

/// See the module. `T` identifies values; values may come twice.
#[derive(Clone, Debug)]
pub(crate) struct Register<T> {
    values: Vec<Value<T>>,
}

/// A read that no order explains.
#[derive(Clone, Debug)]
pub(crate) struct Stale(pub(crate) String);

impl<T: Copy + Eq + fmt::Debug> Register<T> {
    /// Holds `tag` since ever.
    pub(crate) fn new(tag: T) -> Self {
        let value = Value {
            tag: Some(tag),
            operation: 0,
            by: Writer::MAX,
            begin: Instant(0),
            end: Instant(0),
            dead: NEVER,
            doubtful: false,
            shaken: false,
            buried: false,
        };
        Self { values: vec![value] }
    }

    /// A write begins.
    pub(crate) fn begin(&mut self, tag: Option<T>, operation: u64, by: Writer, begin: Instant) {
        let (end, dead) = (NEVER, NEVER);
        let (doubtful, shaken, buried) = (false, false, false);
        self.values.push(Value { tag, operation, by, begin, end, dead, doubtful, shaken, buried });
    }

    /// A write has succeeded. What it replaced is gone, unless a fault since it began may have lost a
    /// part that was taken before the whole was.
    pub(crate) fn end(&mut self, operation: u64, now: Instant) {
        let Some(at) = self.values.iter().position(|value| value.operation == operation) else {
            return;
        };
        let Value { begin, doubtful, shaken, .. } = self.values[at];
        self.values[at].end = self.values[at].end.min(now);
        if doubtful || shaken {
            return;
        }
        for value in &mut self.values {
            if value.end < begin && value.operation != operation {
                value.dead = value.dead.min(now);
            }
        }
    }

    /// A write has succeeded, or there was nothing to do for it: what it replaces may still be there.
    pub(crate) fn end_or_nothing(&mut self, operation: u64, now: Instant) {
        for value in &mut self.values {
            if value.operation == operation {
                value.end = value.end.min(now);
            }
        }
    }

    /// A write turns out to be of `tag`.
    pub(crate) fn learn(&mut self, operation: u64, tag: T) {
        for value in &mut self.values {
            if value.operation == operation {
                value.tag = Some(tag);
            }
        }
    }

    /// Whether an operation is known to have written `tag`.
    pub(crate) fn is_of(&self, operation: u64, tag: T) -> bool {
        self.values.iter().any(|value| value.operation == operation && value.tag == Some(tag))
    }

    /// A write was refused and changed nothing.
    pub(crate) fn refused(&mut self, operation: u64) {
        self.values.retain(|value| value.operation != operation);
    }

    /// A read from `begin` to `end` saw a value that `is` accepts. The operation that has written it, where only one can have.
    ///
    /// # Errors
    /// No order of what was written explains it.
    pub(crate) fn read(
        &mut self,
        begin: Instant,
        end: Instant,
        tag: Option<T>,
        is: impl Fn(T) -> bool,
    ) -> Result<Option<u64>, Stale> {
        let possible = |value: &Value<T>| value.begin <= end && value.dead >= begin;
        // An observation whose value is not known exactly may have been of an unknown value.
        let named = |value: &Value<T>| value.tag.map_or(tag.is_none(), &is);
        let mut seen: Vec<usize> =
            (0..self.values.len()).filter(|at| named(&self.values[*at])).collect();
        seen.retain(|at| possible(&self.values[*at]));
        if seen.is_empty() {
            let unknown = |at: &usize| {
                let value = &self.values[*at];
                value.tag.is_none() && possible(value)
            };
            seen = (0..self.values.len()).filter(unknown).collect();
            if let ([only], Some(tag)) = (&seen[..], tag) {
                self.values[*only].tag = Some(tag);
            }
        }
        if seen.is_empty() {
            return Err(Stale(self.describe()));
        }
        // One of which only the servers know what it is may be what was seen.
        let may_be_it: Vec<usize> = (0..self.values.len())
            .filter(|at| {
                let value = &self.values[*at];
                !seen.contains(at) && value.tag.is_none() && possible(value)
            })
            .collect();
        for at in 0..self.values.len() {
            let value = &mut self.values[at];
            let is_other = !seen.contains(&at) && !may_be_it.contains(&at);
            if is_other && value.end < begin && !value.doubtful {
                value.dead = value.dead.min(end);
            }
        }
        let [only] = seen[..] else { return Ok(None) };
        if tag.is_some() && !may_be_it.is_empty() {
            return Ok(None);
        }
        let value = &mut self.values[only];
        value.end = value.end.min(end);
        Ok(Some(value.operation))
    }

    /// Whether a read that begins at `begin` and ends at `end` may see a value that `is` accepts.
    pub(crate) fn may_be(&self, begin: Instant, end: Instant, is: impl Fn(T) -> bool) -> bool {
        let possible = |value: &&Value<T>| value.begin <= end && value.dead >= begin;
        self.values.iter().filter(possible).any(|value| value.tag.is_none_or(&is))
    }

    /// What `by` had written before `begin` is durable: nothing before it comes back. Of what an error of a
    /// disk may have lost, that is so only for those of `own` operations: the other writers got an error. A
    /// read that is under way `now` may still see what was there before.
    pub(crate) fn durable(&mut self, by: Writer, begin: Instant, now: Instant, own: &[u64]) {
        let kept = |value: &&Value<T>| {
            let known = !value.shaken || own.contains(&value.operation);
            value.by == by && value.end < begin && !value.doubtful && known
        };
        let newest = self.values.iter().filter(kept).map(|value| value.begin).max();
        let Some(newest) = newest else { return };
        for value in &mut self.values {
            if value.end >= newest {
                value.shaken = false;
            } else if value.dead != NEVER || value.shaken {
                value.buried = true;
                value.dead = value.dead.min(now);
            }
        }
    }

    /// An error of a disk: as with [`Self::lose`], but the writers of what is lost get an error.
    pub(crate) fn shake(&mut self) {
        if self.values.len() > 1 {
            for value in self.values.iter_mut().filter(|value| !value.buried) {
                value.dead = NEVER;
                value.shaken = true;
            }
        }
    }

    /// An older copy is back: what was there at `since` or later may be there now, durable or not.
    pub(crate) fn restore(&mut self, since: Instant) {
        if self.values.len() > 1 {
            for value in self.values.iter_mut().filter(|value| value.dead >= since) {
                (value.dead, value.buried, value.doubtful) = (NEVER, false, true);
            }
        }
    }

    /// What was written since `since` may be lost, if anything was, and what it replaced be back; its writers
    /// get an error.
    pub(crate) fn doubt_since(&mut self, since: Instant) {
        if self.values.iter().any(|value| value.begin >= since && !value.buried) {
            let back = |value: &&mut Value<T>| value.dead >= since && !value.buried;
            for value in self.values.iter_mut().filter(back) {
                value.dead = NEVER;
                value.shaken = true;
            }
        }
    }

    /// A crash: what was not made durable may be lost, and what it replaced be back. Of `by` alone, or
    /// of all.
    pub(crate) fn lose(&mut self, by: Option<Writer>) {
        let concerns = |value: &Value<T>| by.is_none_or(|by| value.by == by);
        if self.values.len() > 1 && self.values.iter().any(concerns) {
            for value in self.values.iter_mut().filter(|value| !value.buried) {
                value.dead = NEVER;
                value.doubtful = true;
            }
        }
    }

    fn describe(&self) -> String {
        let time = |at: Instant| match at {
            NEVER => "never".to_owned(),
            at => format!("{:.6}", at.0 as f64 / 1e9),
        };
        let line = |value: &Value<T>| {
            format!(
                "{:?} by {} in operation {}: begun {}, there by {}, gone by {}",
                value.tag,
                value.by,
                value.operation,
                time(value.begin),
                time(value.end),
                time(value.dead)
            )
        };
        let recent = self.values.len().saturating_sub(12);
        self.values[recent..].iter().map(line).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Instant {
        Instant(second)
    }

    fn read(register: &mut Register<u8>, begin: u64, end: u64, tag: u8) -> bool {
        register.read(at(begin), at(end), Some(tag), |held| held == tag).is_ok()
    }

    #[test]
    fn a_read_sees_the_latest_write_or_one_under_way() {
        let mut register = Register::new(0);
        register.begin(Some(1), 1, 0, at(10));
        assert!(read(&mut register.clone(), 11, 12, 0) && read(&mut register.clone(), 11, 12, 1));
        register.end(1, at(20));
        assert!(!read(&mut register.clone(), 21, 22, 0));
        assert!(read(&mut register, 21, 22, 1));
        assert!(!read(&mut register, 23, 24, 9));
    }

    #[test]
    fn who_saw_the_new_value_sees_the_old_no_more() {
        let mut register = Register::new(0);
        register.begin(Some(1), 1, 0, at(10));
        assert!(read(&mut register, 11, 12, 1));
        assert!(!read(&mut register, 13, 14, 0));
    }

    #[test]
    fn what_is_durable_is_not_lost() {
        let mut register = Register::new(0);
        register.begin(Some(1), 1, 0, at(10));
        register.end(1, at(20));
        let mut lost = register.clone();
        lost.lose(None);
        assert!(read(&mut lost, 30, 31, 0));
        register.durable(0, at(25), at(26), &[]);
        register.begin(Some(2), 2, 0, at(26));
        register.end(2, at(27));
        register.lose(None);
        assert!(read(&mut register.clone(), 30, 31, 1) && read(&mut register.clone(), 30, 31, 2));
        assert!(!read(&mut register, 30, 31, 0));
    }

    #[test]
    fn who_began_to_read_before_a_write_was_durable_may_see_what_was_there() {
        let mut register = Register::new(0);
        register.begin(Some(1), 1, 0, at(10));
        register.end(1, at(20));
        register.durable(0, at(21), at(22), &[]);
        assert!(read(&mut register.clone(), 15, 30, 0));
        assert!(!read(&mut register, 23, 30, 0));
    }

    #[test]
    fn what_a_disk_lost_is_durable_for_a_writer_that_got_no_error() {
        let mut register = Register::new(0);
        register.begin(Some(1), 1, 0, at(10));
        register.end(1, at(20));
        register.shake();
        register.durable(0, at(25), at(26), &[]);
        assert!(read(&mut register.clone(), 30, 31, 0) && read(&mut register.clone(), 30, 31, 1));
        register.durable(0, at(25), at(26), &[1]);
        register.shake();
        assert!(!read(&mut register.clone(), 30, 31, 0));
        assert!(read(&mut register, 30, 31, 1));
    }

    #[test]
    fn a_part_of_a_write_may_be_lost_before_it_ends() {
        let mut register = Register::new(0);
        register.begin(Some(1), 1, 0, at(10));
        register.shake();
        register.end(1, at(20));
        assert!(read(&mut register.clone(), 30, 31, 0) && read(&mut register, 30, 31, 1));
    }

    #[test]
    fn an_older_copy_brings_back_what_was_there_since_it_was_taken() {
        let mut register = Register::new(0);
        for (tag, second) in [(1, 10), (2, 20), (3, 30)] {
            register.begin(Some(tag), u64::from(tag), 0, at(second));
            register.end(u64::from(tag), at(second + 1));
            register.durable(0, at(second + 2), at(second + 3), &[]);
        }
        register.restore(at(25));
        assert!(
            !read(&mut register.clone(), 40, 41, 1),
            "it was replaced before the copy was taken"
        );
        assert!(read(&mut register.clone(), 40, 41, 2) && read(&mut register, 40, 41, 3));
    }

    #[test]
    fn what_is_doubted_since_a_moment_leaves_alone_what_was_there_before() {
        let mut register = Register::new(0);
        for (tag, second) in [(1, 10), (2, 20), (3, 30)] {
            register.begin(Some(tag), u64::from(tag), 0, at(second));
            register.end(u64::from(tag), at(second + 1));
        }
        let mut settled = register.clone();
        settled.doubt_since(at(31));
        assert!(!read(&mut settled, 40, 41, 2), "nothing was written since");
        register.doubt_since(at(25));
        assert!(!read(&mut register.clone(), 40, 41, 1), "it was replaced long before");
        assert!(read(&mut register.clone(), 40, 41, 2) && read(&mut register, 40, 41, 3));
    }

    #[test]
    fn what_only_the_servers_know_may_be_what_was_there_before() {
        let mut register = Register::new(0);
        register.begin(Some(7), 1, 0, at(10));
        register.end(1, at(11));
        // Taken away, maybe, and put back.
        register.begin(Some(0), 2, 0, at(20));
        register.end_or_nothing(2, at(21));
        register.begin(None, 3, 0, at(30));
        register.end_or_nothing(3, at(31));
        let seen = register.read(at(40), at(41), Some(7), |held| held == 7);
        assert_eq!(seen.expect("it may be"), None, "by the first or the third");
        // Now it is known that the second did something.
        register.end(2, at(50));
        assert!(read(&mut register, 60, 61, 7));
    }

    #[test]
    fn what_only_the_servers_know_is_known_when_seen() {
        let mut register = Register::new(0);
        register.begin(None, 1, 0, at(10));
        register.end(1, at(20));
        assert!(read(&mut register, 21, 22, 7));
        assert!(!read(&mut register, 23, 24, 8));
    }
}
