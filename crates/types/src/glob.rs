//! Matching of names against shell patterns.

/// Whether a name is like a pattern (`fnmatch`): `*`, `?`, `[a-z]`, `[!a]`, and `\` before those. In the worst case the time is
/// the product of both lengths, however many stars there are.
#[must_use]
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // What follows the last star, and where that star ends so far: an earlier one has no need to take more.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some(rest) = pattern.strip_prefix(b"*") {
            star = Some((rest, name));
            pattern = rest;
        } else if pattern.is_empty() && name.is_empty() {
            return true;
        } else if let Some(rest) = one_letter(pattern, name) {
            (pattern, name) = rest;
        } else {
            let Some((after, [_, skipped @ ..])) = star else { return false };
            star = Some((after, skipped));
            (pattern, name) = (after, skipped);
        }
    }
}

/// What is left of pattern and name behind a letter that matches; no star.
fn one_letter<'a>(pattern: &'a [u8], name: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let ((&first, rest), (&letter, left)) = (pattern.split_first()?, name.split_first()?);
    let (is_like, rest) = match first {
        b'?' => (true, rest),
        b'[' => match class(rest) {
            Some((is_in, rest)) => (is_in(letter), rest),
            None => (letter == b'[', rest),
        },
        b'\\' if !rest.is_empty() => (rest[0] == letter, &rest[1..]),
        _ => (first == letter, rest),
    };
    is_like.then_some((rest, left))
}

type IsIn<'a> = Box<dyn Fn(u8) -> bool + 'a>;

/// A class of letters behind its `[`, and what follows its `]`.
fn class(pattern: &[u8]) -> Option<(IsIn<'_>, &[u8])> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    // A bracket at the beginning stands for itself.
    let end = pattern.iter().skip(start + 1).position(|letter| *letter == b']')? + start + 1;
    let letters = &pattern[start..end];
    let is_in = move |letter: u8| {
        let (mut place, mut found) = (0, false);
        while place < letters.len() {
            if letters.get(place + 1) == Some(&b'-') && place + 2 < letters.len() {
                found |= (letters[place]..=letters[place + 2]).contains(&letter);
                place += 3;
            } else {
                found |= letters[place] == letter;
                place += 1;
            }
        }
        found != negated
    };
    Some((Box::new(is_in), &pattern[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn names_are_like_patterns_as_in_a_shell() {
        for (pattern, name, is_like) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
            ("?[a-c][!x]", "zby", true),
            ("?[a-c][!x]", "zbx", false),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[]]", "]", true),
            ("_temporary.*", "_temporary.1", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), is_like, "{pattern} {name}");
        }
    }

    /// Each further star would take as many times longer as the name has letters.
    #[test]
    fn many_stars_do_not_take_long() {
        let (pattern, name) = ("*a".repeat(120) + "b", "a".repeat(255));
        assert!(!matches(pattern.as_bytes(), name.as_bytes()));
    }
}
