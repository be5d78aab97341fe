//! Matching of names against shell patterns.

/// Whether a name is like a pattern (`fnmatch`): `*`, `?`, `[a-z]`, `[!a]`, and `\` before those.
#[must_use]
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return name.is_empty() };
    match first {
        b'*' => (0..=name.len()).any(|skipped| matches(rest, &name[skipped..])),
        b'?' => !name.is_empty() && matches(rest, &name[1..]),
        b'[' => match (name.split_first(), class(rest)) {
            (Some((letter, name)), Some((is_in, rest))) => is_in(*letter) && matches(rest, name),
            (Some((b'[', name)), None) => matches(rest, name),
            _ => false,
        },
        b'\\' if !rest.is_empty() => {
            name.first() == rest.first() && matches(&rest[1..], &name[1..])
        }
        letter => name.first() == Some(&letter) && matches(rest, &name[1..]),
    }
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
