//! Words that docs/GLOSSARY.md has replaced, refused in code and documents.
//!
//! Rust files are read whole: comments, strings and identifiers, these split at `_` and at capitals. Words that
//! stand on both sides of a line's end are neighbours, so that no line break hides two of them.

use std::path::{Path, PathBuf};

use crate::shell::{Outcome, root};

/// Words that are refused, and what to write: the last table of docs/GLOSSARY.md.
const REFUSED: &[(&[&str], &str)] = &[
    (
        &["told", "tell", "tells", "telling"],
        "answered, replied, reported, notified, sent; distinguish for \"tell apart\"",
    ),
    (&["told again", "tell again"], "replayed, sent again"),
    (
        &["nobody", "somebody", "whoever", "everybody", "anybody"],
        "the client, the MDT, another writer, a program, no client",
    ),
    (&["others"], "other clients, the other threads"),
    (&["thrown out", "threw out"], "evicted"),
    (
        &["gives back", "give back", "gave back", "given back", "gives it back"],
        "cancels, releases, returns",
    ),
    (&["takes back", "take back", "calls back", "called back"], "revokes"),
    (&["lets go", "let go"], "releases"),
    (&["in the way"], "conflicting"),
    (&["of the day"], "current"),
];

/// Files that must have such words, and why.
const EXCEPT: &[(&str, &str)] = &[
    ("xtask/src/tidy/words.rs", "the list itself"),
    ("crates/testkit/tests/e2e/pjdfstest.rs", "the name of a user of the system"),
];

/// A word of a text, and where it begins.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    start: usize,
}

/// Adds a fault for each refused word in Rust files and documents.
pub(super) fn check(faults: &mut Vec<String>) -> Outcome {
    for file in files()? {
        let shown = shown(&file);
        if EXCEPT.iter().any(|(path, _)| *path == shown) {
            continue;
        }
        let text = super::read(&file)?;
        for (line, word, instead) in found(checked_part(&shown, &text)) {
            faults.push(format!("{shown}:{line}: `{word}`; write {instead}"));
        }
    }
    Ok(())
}

fn files() -> Result<Vec<PathBuf>, String> {
    let root = root();
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "fuzz"] {
        files.extend(super::files(&root.join(folder), "rs")?);
    }
    files.extend(super::files(&root.join("docs"), "md")?);
    files.extend(["README.md", "ARCHITECTURE.md"].map(|name| root.join(name)));
    files.sort();
    Ok(files)
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

/// The table of the glossary must name the words.
fn checked_part<'a>(shown: &str, text: &'a str) -> &'a str {
    if shown == "docs/GLOSSARY.md" { text.split(TABLE).next().unwrap_or(text) } else { text }
}

const TABLE: &str = "\n| not | but |\n";

/// Line, word and what to write instead, for each refused word of `text`.
fn found(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let words = words(text);
    let mut found = Vec::new();
    for at in 0..words.len() {
        // The longest phrase says best what to write.
        let here = REFUSED.iter().flat_map(|(refused, instead)| {
            refused
                .iter()
                .filter(|phrase| begins(text, &words[at..], phrase))
                .map(|it| (*it, *instead))
        });
        if let Some((phrase, instead)) = here.max_by_key(|(phrase, _)| phrase.len()) {
            let line = 1 + text[..words[at].start].matches('\n').count();
            found.push((line, phrase, instead));
        }
    }
    found
}

/// Whether `words` begin with the words of `phrase`, with nothing but space or marks of comments between them.
fn begins(text: &str, words: &[Word<'_>], phrase: &str) -> bool {
    let mut end = None;
    let mut rest = words.iter();
    phrase.split(' ').all(|wanted| {
        let Some(word) = rest.next() else { return false };
        let gap = end.map_or("", |end| &text[end..word.start]);
        end = Some(word.start + word.text.len());
        word.text.eq_ignore_ascii_case(wanted)
            && gap.chars().all(|c| c.is_whitespace() || "_/!*".contains(c))
    })
}

/// The words of `text`; of identifiers, their parts.
fn words(text: &str) -> Vec<Word<'_>> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut start = None;
    for at in 0..=bytes.len() {
        let letter = bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
        if let Some(begun) = start
            && (!letter || is_hump(bytes, at))
        {
            words.push(Word { text: &text[begun..at], start: begun });
            start = None;
        }
        if letter && start.is_none() {
            start = Some(at);
        }
    }
    words
}

/// Whether a capital at `at` begins a new word of an identifier: `IsTold`, `FIDTold`.
fn is_hump(bytes: &[u8], at: usize) -> bool {
    let next_is_small = bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
    at > 0
        && bytes[at].is_ascii_uppercase()
        && (!bytes[at - 1].is_ascii_uppercase() || next_is_small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_the_table_of_the_glossary() {
        let text = super::super::read(&root().join("docs/GLOSSARY.md")).expect("the glossary");
        let (_, table) = text.split_once(TABLE).expect("a table `not | but`");
        let rows: Vec<String> = table.lines().skip(1).map(str::to_owned).collect();
        let row =
            |(words, instead): &(&[&str], &str)| format!("| {} | {instead} |", words.join(", "));
        assert_eq!(rows, REFUSED.iter().map(row).collect::<Vec<_>>());
    }

    #[test]
    fn words_are_found_in_comments_strings_and_identifiers() {
        let of = |text: &str| found(text).iter().map(|it| (it.0, it.1)).collect::<Vec<_>>();
        assert_eq!(of("a\n// It is Told.\n"), [(2, "told")]);
        assert_eq!(of("let is_told = \"whoever\";"), [(1, "told"), (1, "whoever")]);
        assert_eq!(of("struct SizeTold; FIDTold"), [(1, "told"), (1, "told")]);
        assert_eq!(of("fn lets_go() {} LetGo"), [(1, "lets go"), (1, "let go")]);
        assert_eq!(of("/// what was thrown\n    /// out"), [(1, "thrown out")]);
        assert_eq!(of("told again"), [(1, "told again")]);
        assert_eq!(of("toldest retell another's thrown, out let x = go"), []);
    }

    #[test]
    fn exceptions_are_files_that_need_them() {
        for (path, _) in EXCEPT {
            let text = super::super::read(&root().join(path)).expect(path);
            assert!(!found(&text).is_empty(), "{path} needs no exception");
        }
    }
}
