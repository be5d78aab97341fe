//! Names that count: `file.0001`, `file.0002` (`statahead_fname`). A program that looks at some in their order will look
//! at the next.
//!
//! As in Lustre it takes `statahead_fname_predict_hit` such names to look for an order at all, and more than
//! `statahead_fname_match_hit` in order. Here names with different text before the number count apart, so that several
//! processes may count in one directory; only names that are there count, and none that a lock covers: what a program
//! makes in order it need not look up.

use sheen_types::Name;

use crate::posix::NodeId;

/// Orders of names that are followed at once, of a mount.
const PATTERNS_MAX: usize = 64;

/// A name that ends with a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NumberedName {
    prefix: Box<[u8]>,
    number: u64,
    /// Digits of it with zeros at the front; 0 if it has none there.
    width: usize,
}

/// Names that may be in order.
struct Pattern {
    directory: NodeId,
    prefix: Box<[u8]>,
    /// How many were seen, until they are looked at more closely.
    seen: u32,
    /// How many came in order, and the last of them.
    in_order: u32,
    last: u64,
}

/// How many names make an order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    pub(super) seen: u32,
    pub(super) in_order: u32,
}

/// The orders of a mount, the one used last at the end.
#[derive(Default)]
pub(super) struct Patterns(Vec<Pattern>);

impl NumberedName {
    pub(super) fn parse(name: &Name) -> Option<Self> {
        let name = name.as_bytes();
        let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let (prefix, digits) = name.split_at(name.len() - digits);
        let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let width = if digits[0] == b'0' { digits.len() } else { 0 };
        Some(Self { prefix: prefix.into(), number, width })
    }

    /// The name behind it, if there is one.
    pub(super) fn next(&self) -> Option<Self> {
        Some(Self { number: self.number.checked_add(1)?, ..self.clone() })
    }

    /// The name, unless it is too long for one.
    pub(super) fn name(&self) -> Option<Name> {
        let digits = format!("{:0width$}", self.number, width = self.width);
        Name::new(&[&self.prefix, digits.as_bytes()].concat()).ok()
    }
}

impl Patterns {
    /// A name was looked up and is there. Returns whether those behind it are worth a guess.
    pub(super) fn note(
        &mut self,
        directory: NodeId,
        name: &NumberedName,
        thresholds: Thresholds,
    ) -> bool {
        let is_same = |it: &Pattern| it.directory == directory && it.prefix == name.prefix;
        let mut pattern = match self.0.iter().position(is_same) {
            Some(at) => self.0.remove(at),
            None => Pattern::new(directory, name),
        };
        let is_worth_it = match pattern.note(name.number, thresholds) {
            // They are in no order.
            None => return false,
            Some(is_worth_it) => is_worth_it,
        };
        if !is_worth_it {
            if self.0.len() >= PATTERNS_MAX {
                self.0.remove(0);
            }
            self.0.push(pattern);
        }
        is_worth_it
    }
}

impl Pattern {
    fn new(directory: NodeId, name: &NumberedName) -> Self {
        Self { directory, prefix: name.prefix.clone(), seen: 0, in_order: 0, last: 0 }
    }

    fn note(&mut self, number: u64, thresholds: Thresholds) -> Option<bool> {
        if self.seen <= thresholds.seen {
            self.seen += 1;
        }
        if self.seen <= thresholds.seen {
            return Some(false);
        }
        if self.in_order == 0 || self.last.checked_add(1) == Some(number) {
            self.in_order += 1;
            self.last = number;
            return Some(self.in_order > thresholds.in_order);
        }
        // Looked at twice is no disorder.
        (self.last == number).then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLDS: Thresholds = Thresholds { seen: 2, in_order: 4 };

    fn numbered(text: &str) -> Option<NumberedName> {
        NumberedName::parse(&Name::new(text.as_bytes()).expect("a name"))
    }

    fn note(patterns: &mut Patterns, text: &str) -> bool {
        patterns.note(NodeId(7), &numbered(text).expect("a number"), THRESHOLDS)
    }

    #[test]
    fn the_next_name_has_the_form_of_the_last() {
        for (name, next) in [
            ("file.9", "file.10"),
            ("0099", "0100"),
            ("a0", "a1"),
            ("f009", "f010"),
            ("f999", "f1000"),
        ] {
            let next_name = numbered(name).and_then(|name| name.next()?.name());
            assert_eq!(next_name.map(|name| name.to_string()).as_deref(), Some(next));
        }
        for none in ["file", "1a", "18446744073709551616"] {
            assert_eq!(numbered(none), None, "{none}");
        }
        assert_eq!(numbered("18446744073709551615").and_then(|last| last.next()), None);
        let long = format!("{}9", "x".repeat(254));
        assert_eq!(numbered(&long).and_then(|last| last.next()?.name()), None, "too long");
    }

    #[test]
    fn names_in_order_are_worth_a_guess_after_the_seventh() {
        let mut patterns = Patterns::default();
        let worth = (0..7).map(|number| note(&mut patterns, &format!("file.{number}")));
        assert_eq!(worth.collect::<Vec<_>>(), [false, false, false, false, false, false, true]);
        assert!(!note(&mut patterns, "file.7"), "it is counted anew");
    }

    #[test]
    fn names_without_order_are_not_and_no_other_order_disturbs() {
        let mut patterns = Patterns::default();
        for number in [0, 5, 1, 9, 2, 7, 3, 8, 4, 6, 20, 10] {
            assert!(!note(&mut patterns, &format!("file.{number}")));
        }
        let mut patterns = Patterns::default();
        let mut worth = Vec::new();
        for number in 0..7 {
            worth.push(note(&mut patterns, &format!("one.{number}")));
            worth.push(note(&mut patterns, &format!("other.{number}")));
            worth.push(note(&mut patterns, &format!("other.{number}")));
        }
        assert_eq!(worth.iter().filter(|it| **it).count(), 2);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut patterns = Patterns::default();
        for number in 0..1000 {
            note(&mut patterns, &format!("{number}.0"));
        }
        assert_eq!(patterns.0.len(), PATTERNS_MAX);
    }
}
