//! Command lines as Lustre's tools read them (`getopt_long`).
//!
//! `lfs setstripe`, `getstripe`, `find` and `migrate` mean other things by the same options in
//! another order (`-E 1M -c 1 -E -1 -c 4`), know options whose value is optional (`-E`, `-E1M`),
//! and long ones that may be cut short. A table of [`Opt`] is the truth about a command's options:
//! the words are read by it and its help is made of it.

use std::ffi::OsString;

use clap::Args;
use sheen_types::Errno;

use crate::output::Fault;

/// The words of a command that reads them by itself.
#[derive(Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(super) struct Words {
    /// Options and files; see the command's --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION|FILE")]
    pub(super) words: Vec<OsString>,
}

/// What follows an option; the text names it in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// Nothing.
    Nothing,
    /// A value.
    Value(&'static str),
    /// A value, in the same word: `-E1M`, `--component-end=1M`.
    Maybe(&'static str),
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opt {
    /// Its one letter, if it has one.
    pub(super) short: Option<char>,
    /// Its long names; the first identifies the option. Single letters are no long name.
    pub(super) names: &'static [&'static str],
    /// What follows it.
    pub(super) takes: Takes,
    /// A few words for the help; empty for one that Sheen refuses.
    pub(super) help: &'static str,
}

/// How long options begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dashes {
    /// With two dashes.
    Two,
    /// With one or two (`lfs find`).
    OneOrTwo,
}

/// One part of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// An option.
    Option {
        /// The first of its names.
        name: &'static str,
        /// What follows it.
        value: Option<String>,
        /// How it was written.
        spelled: String,
    },
    /// Anything else.
    Operand(OsString),
}

/// A command: its name and options.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grammar {
    /// As the user wrote it: `lfs setstripe`.
    pub(super) command: &'static str,
    /// What it does and how it is called, for the help.
    pub(super) usage: &'static str,
    /// What it takes, in tables that commands share.
    pub(super) tables: &'static [&'static [Opt]],
    /// How long options begin.
    pub(super) dashes: Dashes,
}

impl Grammar {
    /// Reads a command line; options and operands stay in order.
    ///
    /// # Errors
    /// A usage fault for an unknown option, one without its value, and one with too much.
    pub(super) fn read(&self, words: &[OsString]) -> Result<Vec<Part>, Fault> {
        let mut parts = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = word.to_str().unwrap_or("");
            if text == "--" {
                parts.extend(words.map(|word| Part::Operand(word.clone())));
                break;
            }
            match text.strip_prefix('-') {
                None | Some("") => parts.push(Part::Operand(word.clone())),
                Some(rest) => self.option(text, rest, &mut words, &mut parts)?,
            }
        }
        match parts.iter().find_map(|part| self.refusal(part)) {
            Some(refused) if !wants_help(&parts) => Err(refused),
            _ => Ok(parts),
        }
    }

    /// What is said of an option that Lustre has and Sheen has not.
    fn refusal(&self, part: &Part) -> Option<Fault> {
        let Part::Option { name, spelled, .. } = part else { return None };
        let option = self.options().find(|option| option.names[0] == *name)?;
        option.help.is_empty().then(|| {
            let text = format!("option '{spelled}' is not supported by Sheen yet");
            Fault::new(Errno::EOPNOTSUPP, format!("{}: {text}", self.command))
        })
    }

    fn option<'a>(
        &self,
        word: &str,
        rest: &str,
        words: &mut impl Iterator<Item = &'a OsString>,
        parts: &mut Vec<Part>,
    ) -> Result<(), Fault> {
        if let Some(long) = rest.strip_prefix('-') {
            let option = self.long(long).ok_or_else(|| self.unknown(word))?;
            return self.long_option(option, word, long, words, parts);
        }
        let is_short = rest.chars().count() == 1 && self.short(rest.chars().next()).is_some();
        if self.dashes == Dashes::OneOrTwo
            && !is_short
            && let Some(option) = self.long(rest)
        {
            return self.long_option(option, word, rest, words, parts);
        }
        self.short_options(rest, words, parts)
    }

    fn long_option<'a>(
        &self,
        option: &Opt,
        word: &str,
        long: &str,
        words: &mut impl Iterator<Item = &'a OsString>,
        parts: &mut Vec<Part>,
    ) -> Result<(), Fault> {
        let spelled = word.split('=').next().unwrap_or(word).to_owned();
        let given = long.split_once('=').map(|(_, value)| value.to_owned());
        let value = match (option.takes, given) {
            (Takes::Nothing, Some(_)) => {
                let text = format!("option '{spelled}' takes no value");
                return Err(self.fault(&text));
            }
            (Takes::Value(_), None) => Some(self.next_word(&spelled, words)?),
            (_, given) => given,
        };
        parts.push(Part::Option { name: option.names[0], value, spelled });
        Ok(())
    }

    /// Letters behind each other, the last with the rest of the word or the next as its value.
    fn short_options<'a>(
        &self,
        letters: &str,
        words: &mut impl Iterator<Item = &'a OsString>,
        parts: &mut Vec<Part>,
    ) -> Result<(), Fault> {
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            let spelled = format!("-{letter}");
            let option = self.short(Some(letter)).ok_or_else(|| self.unknown(&spelled))?;
            let rest = letters.as_str();
            let value = match option.takes {
                Takes::Nothing => None,
                Takes::Maybe(_) => (!rest.is_empty()).then(|| rest.to_owned()),
                Takes::Value(_) if rest.is_empty() => Some(self.next_word(&spelled, words)?),
                Takes::Value(_) => Some(rest.to_owned()),
            };
            parts.push(Part::Option { name: option.names[0], value, spelled });
            if option.takes != Takes::Nothing {
                return Ok(());
            }
        }
        Ok(())
    }

    fn next_word<'a>(
        &self,
        spelled: &str,
        words: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<String, Fault> {
        let missing = || self.fault(&format!("option '{spelled}' needs a value"));
        words.next().map(|word| word.to_string_lossy().into_owned()).ok_or_else(missing)
    }

    fn options(&self) -> impl Iterator<Item = &'static Opt> + use<> {
        self.tables.iter().flat_map(|table| table.iter())
    }

    fn short(&self, letter: Option<char>) -> Option<&'static Opt> {
        let letter = letter?;
        self.options().find(|option| option.short == Some(letter))
    }

    /// The option of that name, or the only one whose names begin so.
    fn long(&self, text: &str) -> Option<&'static Opt> {
        let name = text.split('=').next().filter(|name| !name.is_empty())?;
        let named = |exact: bool| {
            move |option: &&'static Opt| {
                let fits =
                    |known: &&str| if exact { *known == name } else { known.starts_with(name) };
                option.names.iter().any(fits)
            }
        };
        if let Some(option) = self.options().find(named(true)) {
            return Some(option);
        }
        let mut fitting = self.options().filter(named(false));
        fitting.next().filter(|_| fitting.next().is_none())
    }

    fn unknown(&self, word: &str) -> Fault {
        self.fault(&format!("unrecognized option '{word}'"))
    }

    /// A wrong command line, with the way to the help.
    pub(super) fn fault(&self, what: &str) -> Fault {
        let command = self.command;
        Fault::usage(format!("{command}: {what} (try '{command} --help')"))
    }

    /// How the command is called and what its options are.
    pub(super) fn help(&self) -> String {
        let mut text = format!("{}\n\nOptions:\n", self.usage);
        for option in self.options().filter(|option| !option.help.is_empty()) {
            let short = option.short.map(|letter| format!("-{letter}"));
            let long = option.names.iter().map(|name| format!("--{name}"));
            let names: Vec<String> = short.into_iter().chain(long).collect();
            let value = match option.takes {
                Takes::Nothing => String::new(),
                Takes::Value(value) => format!(" {value}"),
                Takes::Maybe(value) => format!("[={value}]"),
            };
            text += &format!("  {}{value}\n          {}\n", names.join(", "), option.help);
        }
        text
    }
}

/// Whether the word asks for help.
pub(super) fn wants_help(parts: &[Part]) -> bool {
    parts.iter().any(|part| matches!(part, Part::Option { name: "help", .. }))
}

/// The option `--help`, in every table.
pub(super) const HELP: Opt =
    Opt { short: Some('h'), names: &["help"], takes: Takes::Nothing, help: "Print help" };

/// An option of Lustre's that is refused by name.
pub(super) const fn refused(
    short: Option<char>,
    names: &'static [&'static str],
    takes: Takes,
) -> Opt {
    Opt { short, names, takes, help: "" }
}

/// A number as `strtoul` with base 0 reads it: decimal, `0x` hexadecimal or `0` octal.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8).ok(),
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Dashes, Grammar, HELP, Opt, Part, Takes, parse_number};

    const OPTIONS: &[Opt] = &[
        Opt {
            short: Some('c'),
            names: &["stripe-count", "stripe_count"],
            takes: Takes::Value("N"),
            help: "n",
        },
        Opt {
            short: Some('E'),
            names: &["component-end", "comp-end"],
            takes: Takes::Maybe("END"),
            help: "e",
        },
        Opt { short: Some('d'), names: &["delete"], takes: Takes::Nothing, help: "d" },
        Opt { short: None, names: &["stripe-all"], takes: Takes::Nothing, help: "a" },
        HELP,
    ];

    fn grammar(dashes: Dashes) -> Grammar {
        Grammar { command: "lfs x", usage: "x", tables: &[OPTIONS], dashes }
    }

    fn read(dashes: Dashes, line: &str) -> Result<Vec<String>, String> {
        let words: Vec<std::ffi::OsString> = line.split_whitespace().map(Into::into).collect();
        let shown = |part: Part| match part {
            Part::Option { name, value, .. } => format!("{name}={}", value.unwrap_or_default()),
            Part::Operand(word) => word.into_string().unwrap(),
        };
        match grammar(dashes).read(&words) {
            Ok(parts) => Ok(parts.into_iter().map(shown).collect()),
            Err(fault) => Err(fault.text),
        }
    }

    #[test]
    fn words_are_read_as_getopt_reads_them() {
        let line = "-c 4 f -dc5 -E1M -E --comp-end=2M --stripe-c=7 --stripe_count 8 - -- -d";
        let expected = [
            "stripe-count=4",
            "f",
            "delete=",
            "stripe-count=5",
            "component-end=1M",
            "component-end=",
            "component-end=2M",
            "stripe-count=7",
            "stripe-count=8",
            "-",
            "-d",
        ];
        assert_eq!(read(Dashes::Two, line).unwrap(), expected);
        let line = "-stripe-count 4 -c5 -delete -E64k";
        let expected = ["stripe-count=4", "stripe-count=5", "delete=", "component-end=64k"];
        assert_eq!(read(Dashes::OneOrTwo, line).unwrap(), expected);
    }

    #[test]
    fn wrong_words_are_named() {
        for (line, text) in [
            ("-q", "unrecognized option '-q'"),
            ("--bogus=1", "unrecognized option '--bogus=1'"),
            ("--stripe", "unrecognized option '--stripe'"),
            ("-c", "option '-c' needs a value"),
            ("--delete=3", "option '--delete' takes no value"),
        ] {
            let said = read(Dashes::Two, line).unwrap_err();
            assert_eq!(said, format!("lfs x: {text} (try 'lfs x --help')"));
        }
    }

    #[test]
    fn numbers_are_read_as_strtoul_reads_them() {
        assert_eq!(parse_number("0x10"), Some(16));
        assert_eq!(parse_number("010"), Some(8));
        assert_eq!(parse_number("10"), Some(10));
        assert_eq!(parse_number("0"), Some(0));
        for bad in ["", "x", "-1", "+1", "1k", "08"] {
            assert_eq!(parse_number(bad), None, "{bad}");
        }
    }
}
