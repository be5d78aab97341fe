//! `lfs find`: finds files by their attributes and layouts.
//!
//! All tests must hold; they are evaluated in the order of their cost: names and types come with
//! the directory, attributes cost a `stat`, layouts an extended attribute. Of two tests of a kind the
//! last one counts, as in Lustre; times and extended attributes may be tested twice.

mod hashes;
mod options;
mod predicates;
mod printf;
mod times;
mod values;
mod walk;

use std::ffi::OsString;
use std::path::PathBuf;

use super::options::{Part, Words, wants_help};
use crate::output::{Fault, text_out};
use predicates::{Test, Tests};
use printf::Format;

pub(super) use options::GRAMMAR;

/// Exit code of Lustre's tool for most bad values.
const BAD_VALUE_CODE: u8 = 1;

/// The command line.
#[derive(Debug)]
struct Find {
    tests: Tests,
    depth_min: usize,
    depth_max: usize,
    format: Option<Format>,
    zero: bool,
    lazy: bool,
    skip_percent: u64,
    threads: Option<usize>,
    paths: Vec<PathBuf>,
}

pub(super) fn run(words: &Words) -> Result<(), Fault> {
    let parts = GRAMMAR.read(&newer_apart(&words.words))?;
    if wants_help(&parts) {
        text_out(&GRAMMAR.help());
        return Ok(());
    }
    walk::run(&Find::read(parts)?)
}

/// `-newerXY FILE` as `--newer "XYFILE"`, for there are twenty such options.
fn newer_apart(words: &[OsString]) -> Vec<OsString> {
    let mut apart = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or("");
        let text = text.strip_prefix("--").or_else(|| text.strip_prefix('-')).unwrap_or("");
        let Some(rest) = text.strip_prefix("newer") else {
            apart.push(word.clone());
            continue;
        };
        let (kinds, file) = match rest.split_once('=') {
            Some((kinds, file)) => (kinds, Some(OsString::from(file))),
            None => (rest, words.next().cloned()),
        };
        let kinds = if kinds.is_empty() { "mm" } else { kinds };
        apart.push("--newer".into());
        apart.extend(file.map(|file| [OsString::from(kinds), file].into_iter().collect()));
    }
    apart
}

fn bad(code: u8, text: String) -> Fault {
    Fault { code, text: format!("lfs find: {text}") }
}

impl Find {
    fn read(parts: Vec<Part>) -> Result<Self, Fault> {
        let mut find = Self {
            tests: Tests::default(),
            depth_min: 0,
            depth_max: usize::MAX,
            format: None,
            zero: false,
            lazy: false,
            skip_percent: 0,
            threads: None,
            paths: Vec::new(),
        };
        let mut negated = false;
        for part in parts {
            match part {
                Part::Operand(word) if word == "!" => negated = true,
                Part::Operand(path) => find.paths.push(path.into()),
                Part::Option { name, value, spelled } => {
                    let value = value.unwrap_or_default();
                    let negated = std::mem::take(&mut negated);
                    if !find.option(name, &value)? {
                        find.tests.add(Test::read(name, &value, &spelled)?, negated);
                    }
                }
            }
        }
        if find.paths.is_empty() {
            return Err(GRAMMAR.fault("no filename|pathname"));
        }
        if find.depth_min > find.depth_max {
            let text = format!("mindepth {} > maxdepth {}", find.depth_min, find.depth_max);
            return Err(GRAMMAR.fault(&text));
        }
        Ok(find)
    }

    /// Takes an option that is no test.
    fn option(&mut self, name: &str, value: &str) -> Result<bool, Fault> {
        let number = |what: &str| {
            let wrong = || bad(BAD_VALUE_CODE, format!("bad {what} '{value}'"));
            value.parse::<usize>().map_err(|_| wrong())
        };
        match name {
            "maxdepth" => self.depth_max = number("maxdepth")?,
            "mindepth" => self.depth_min = number("mindepth")?,
            "threads" => {
                let threads = number("thread count")?;
                let wrong = || bad(BAD_VALUE_CODE, format!("bad thread count '{value}'"));
                self.threads = Some(Some(threads).filter(|count| *count > 0).ok_or_else(wrong)?);
            }
            "skip" => {
                let percent = value.strip_suffix('%').unwrap_or(value).parse::<u64>().ok();
                let wrong = || bad(BAD_VALUE_CODE, format!("invalid skip percentage '{value}'"));
                self.skip_percent = percent.filter(|percent| *percent < 100).ok_or_else(wrong)?;
            }
            "print" => {}
            "print0" => self.zero = true,
            "lazy" => self.lazy = true,
            "printf" => {
                let format = Format::read(value);
                for word in &format.unknown {
                    eprintln!("lfs find: warning: unrecognized format directive '{word}'");
                }
                self.format = Some(format);
            }
            "ls" => self.format = Some(Format::read(printf::LS)),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
