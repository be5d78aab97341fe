//! Names with wildcards, as `lctl get_param` takes them.

/// A parameter's name with `*`, `?`, `[...]` and `{a,b}` in its parts.
#[derive(Clone, Debug)]
pub struct Pattern {
    alternatives: Vec<Vec<String>>,
}

impl Pattern {
    /// Parts are separated by `.` or `/`; the dots of a NID (`10.0.0.1@tcp`) separate nothing. Backslashes are left
    /// out, as by Lustre: scripts put them before the dots of a NID.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            alternatives: braces(&text.replace('\\', "")).iter().map(|text| split(text)).collect(),
        }
    }

    /// Whether the whole `path` matches.
    #[must_use]
    pub fn matches(&self, path: &[String]) -> bool {
        self.alternatives.iter().any(|parts| {
            parts.len() == path.len()
                && parts
                    .iter()
                    .zip(path)
                    .all(|(part, name)| matches(part.as_bytes(), name.as_bytes()))
        })
    }

    /// Whether the last part of what it matches can be `leaf`.
    #[must_use]
    pub fn may_end_in(&self, leaf: &str) -> bool {
        let last = |parts: &Vec<String>| {
            parts.last().is_some_and(|part| matches(part.as_bytes(), leaf.as_bytes()))
        };
        self.alternatives.iter().any(last)
    }

    /// Whether something at or below `path`, or `path` as far as the pattern goes, can match.
    #[must_use]
    pub(crate) fn may_be_below(&self, path: &[String]) -> bool {
        self.alternatives.iter().any(|parts| {
            let mut pairs = parts.iter().zip(path);
            pairs.all(|(part, name)| matches(part.as_bytes(), name.as_bytes()))
        })
    }
}

/// The parts of a name: see [`Pattern::new`].
#[must_use]
pub(crate) fn split(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for piece in text.trim_matches(['/', '.']).split('/') {
        for word in piece.split('.') {
            // A word that goes on with digits up to an `@` is the tail of a NID.
            match parts.last_mut() {
                Some(last) if is_nid_head(last) && piece.contains('@') && is_nid_tail(word) => {
                    last.push('.');
                    last.push_str(word);
                }
                _ => parts.push(word.to_owned()),
            }
        }
    }
    parts
}

fn is_nid_head(text: &str) -> bool {
    // The device of an MGS is called by its NID.
    let text = text.strip_prefix("MGC").unwrap_or(text);
    !text.contains('@') && text.split('.').all(|word| word.parse::<u8>().is_ok())
}

fn is_nid_tail(word: &str) -> bool {
    word.split('@').next().is_some_and(|digits| digits.parse::<u8>().is_ok())
}

fn braces(text: &str) -> Vec<String> {
    let Some((head, rest)) = text.split_once('{') else { return vec![text.to_owned()] };
    let Some((choices, tail)) = rest.split_once('}') else { return vec![text.to_owned()] };
    let tails = braces(tail);
    let join =
        |choice: &str| tails.iter().map(move |tail| format!("{head}{choice}{tail}")).collect();
    choices.split(',').flat_map(|choice| -> Vec<String> { join(choice) }).collect()
}

/// Whether `name` matches `pattern`; linear but for `*`, which backs up to its last place only.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, read));
            at += 1;
            continue;
        }
        if let Some(next) = one(pattern, at, name[read]) {
            at = next;
            read += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            (at, read) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Matches one byte at `at`; answers where the pattern goes on.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => match class(&pattern[at + 1..], byte) {
            Some((true, length)) => Some(at + 1 + length),
            Some((false, _)) => None,
            None => (byte == b'[').then_some(at + 1),
        },
        literal => (literal == byte).then_some(at + 1),
    }
}

/// Reads a bracket expression behind its `[`: whether `byte` is in it, and its length.
fn class(text: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    let end = start + 1 + text.get(start + 1..)?.iter().position(|byte| *byte == b']')?;
    let members = &text[start..end];
    let mut inside = false;
    let mut at = 0;
    while at < members.len() {
        if members.get(at + 1) == Some(&b'-') && at + 2 < members.len() {
            inside |= (members[at]..=members[at + 2]).contains(&byte);
            at += 3;
        } else {
            inside |= members[at] == byte;
            at += 1;
        }
    }
    Some((inside != negated, end + 1))
}

#[cfg(test)]
mod tests {
    use super::{Pattern, split};

    fn hit(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern).matches(&split(name))
    }

    #[test]
    fn wildcards_match_within_a_part() {
        assert!(hit("osc.*OST0000*.max_*", "osc.lustre-OST0000-osc-ffff.max_dirty_mb"));
        assert!(hit("osc/lustre-OST000[01]*/max_dirty_mb", "osc.lustre-OST0001-osc.max_dirty_mb"));
        assert!(hit("osc.*.{active,state}", "osc.x.state"));
        assert!(!hit("osc.*.{active,state}", "osc.x.stats"));
        assert!(!hit("osc.*", "osc.a.b"));
        assert!(!hit("osc.[!a]", "osc.a"));
        assert!(hit("osc.a[", "osc.a["));
        assert!(hit("*a*b", "xaxxbab"));
        assert!(hit(
            r"mdt.*.exports.10\.77\.0\.12@tcp.stats",
            "mdt.a.exports.10.77.0.12@tcp.stats"
        ));
    }

    #[test]
    fn the_dots_of_a_nid_separate_nothing() {
        let parts = split("mdt.lustre-MDT0000.exports.10.77.0.12@tcp.stats");
        assert_eq!(parts, ["mdt", "lustre-MDT0000", "exports", "10.77.0.12@tcp", "stats"]);
        assert_eq!(split("mgc.MGC10.77.0.11@tcp.state"), ["mgc", "MGC10.77.0.11@tcp", "state"]);
    }
}
