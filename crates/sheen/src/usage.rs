//! Command lines: parsing, and one line for those that are wrong.

use std::error::Error as _;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};
use sheen_types::Errno;

use sheen_tools::output::{Fault, USAGE_CODE, text_out};
use sheen_tools::{lctl, lfs, lnetctl, mkfs};

use crate::commands;

/// Exit code for a wrong command line of a tool that Lustre does not have.
const OWN_USAGE_CODE: u8 = 2;
/// As mount(8) has it.
pub(crate) const MOUNT_USAGE_CODE: u8 = 1;
/// As fsck(8) has it.
const FSCK_USAGE_CODE: u8 = 16;

/// The parsed command line; or the exit code, after help or one line has been written.
pub(crate) fn parse<T: Parser>(words: Vec<OsString>) -> Result<T, ExitCode> {
    T::try_parse_from(&words).map_err(|error| {
        use ErrorKind as Kind;
        match error.kind() {
            Kind::DisplayHelp
            | Kind::DisplayVersion
            | Kind::MissingSubcommand
            | Kind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let text = error.render().to_string();
                let version = error.kind() == Kind::DisplayVersion;
                let tool = text.strip_prefix("sheen-").filter(|_| version);
                text_out(&by_name(tool.unwrap_or(&text), std::env::args_os().next()));
                ExitCode::SUCCESS
            }
            _ => fault(&T::command(), &words, &error).report(),
        }
    })
}

/// A help text, by the name that the program was called by: a link's name is the tool's, as in Lustre's manual pages.
fn by_name(help: &str, called: Option<OsString>) -> String {
    let called = called.and_then(|path| Path::new(&path).file_name()?.to_str().map(str::to_owned));
    match called {
        Some(name) => {
            help.replacen(&format!("Usage: sheen {name} "), &format!("Usage: {name} "), 1)
        }
        None => help.to_owned(),
    }
}

/// The names of the tool and its subcommand in `words`, as far as they exist.
fn path(root: &Command, words: &[OsString]) -> Vec<String> {
    let mut command = root;
    let mut names = Vec::new();
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        // The options of a tool stand before its commands.
        if let Some(option) = word.to_str().and_then(|word| word.strip_prefix("--"))
            && let Some(known) = valued(command, option)
        {
            if known == option {
                words.next();
            }
            continue;
        }
        let Some(next) = word.to_str().and_then(|word| command.find_subcommand(word)) else {
            break;
        };
        names.push(next.get_name().to_owned());
        command = next;
    }
    names
}

/// The name of the option of `command` with a value that `NAME` or `NAME=VALUE` is.
fn valued<'a>(command: &Command, option: &'a str) -> Option<&'a str> {
    let name = option.split('=').next()?;
    let is_it = |arg: &&clap::Arg| arg.get_long() == Some(name) && arg.get_action().takes_values();
    command.get_arguments().any(|arg| is_it(&arg)).then_some(name)
}

fn fault(root: &Command, words: &[OsString], error: &clap::Error) -> Fault {
    let names = path(root, words);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let said = match names.first() {
        None => "sheen".to_owned(),
        Some(&("lfs" | "lctl" | "lnetctl" | "mkfs.lustre" | "mount.lustre" | "umount.lustre")) => {
            names.join(" ")
        }
        Some(_) => format!("sheen {}", names.join(" ")),
    };
    let wrong = text_of(error, ContextKind::InvalidArg);
    let unknown_command = text_of(error, ContextKind::InvalidSubcommand);
    let a_tool = matches!(names[..], ["lfs" | "lctl" | "lnetctl"]);
    if let Some(word) = unknown_command.or(wrong.clone().filter(|_| a_tool)) {
        return not_a_command(&said, &names, &word);
    }
    let option = wrong.as_deref().and_then(|word| word.split(['=', ' ']).next()).unwrap_or("");
    if error.kind() == ErrorKind::UnknownArgument && refused(&names, option) {
        let text = format!("{said}: option '{option}' is not supported by Sheen yet");
        return match names.first() {
            Some(&"bench") => Fault { code: OWN_USAGE_CODE, text },
            _ => Fault::new(Errno::EOPNOTSUPP, text),
        };
    }
    let mut what = complaint(error, wrong.as_deref().unwrap_or_default());
    if error.kind() == ErrorKind::UnknownArgument && takes_directory(&names, option) {
        what = format!("{what}; the directory is named with --dir: --dir {option}");
    }
    Fault { code: exit_code(&names), text: format!("{said}: {what} (try '{said} --help')") }
}

/// A command that Lustre has and Sheen does not gets another message than one that neither has.
fn not_a_command(said: &str, names: &[&str], word: &str) -> Fault {
    if let Some(fault) = names.first().and_then(|tool| commands::refused(tool, word)) {
        return fault;
    }
    if names.first() == Some(&"lnetctl") {
        let text = format!("{said}: '{word}' is not a valid command. See '{said} --help'.");
        return Fault { code: lnetctl::USAGE_CODE, text };
    }
    let see = if !matches!(names, ["lfs" | "lctl"]) { "--help" } else { "--list-commands" };
    Fault {
        code: if matches!(names, ["lfs" | "lctl"]) { 1 } else { OWN_USAGE_CODE },
        text: format!("{said}: '{word}' is not a valid command. See '{said} {see}'."),
    }
}

fn refused(names: &[&str], option: &str) -> bool {
    match names {
        ["lfs", command] => lfs::refused(command).contains(&option),
        ["lctl", command] => lctl::refused(command).contains(&option),
        ["bench", benchmark] => sheen_bench::refused(benchmark).contains(&option),
        ["mkfs.lustre"] => mkfs::REFUSED.contains(&option),
        _ => false,
    }
}

/// Whether a word that is no option may be the directory of a file system.
fn takes_directory(names: &[&str], word: &str) -> bool {
    let tools = ["up", "down", "status", "fsck", "salvage", "scrub", "top"];
    names.first().is_some_and(|tool| tools.contains(tool)) && !word.starts_with('-')
}

fn exit_code(names: &[&str]) -> u8 {
    match names.first() {
        Some(&("lfs" | "lctl")) => USAGE_CODE,
        Some(&"lnetctl") => lnetctl::USAGE_CODE,
        Some(&"fsck") => FSCK_USAGE_CODE,
        Some(&("mount.lustre" | "umount.lustre")) => MOUNT_USAGE_CODE,
        Some(&("mkfs.lustre" | "mount")) => Fault::reported(Errno::EINVAL).code,
        _ => OWN_USAGE_CODE,
    }
}

fn complaint(error: &clap::Error, wrong: &str) -> String {
    let value = text_of(error, ContextKind::InvalidValue).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument if wrong.starts_with('-') => {
            format!("unrecognized option '{wrong}'")
        }
        ErrorKind::UnknownArgument => format!("unexpected argument '{wrong}'"),
        ErrorKind::MissingRequiredArgument => format!("{wrong} must be specified"),
        ErrorKind::InvalidValue if value.is_empty() => format!("option '{wrong}' needs a value"),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let why = error.source().map(|why| format!(": {why}")).unwrap_or_default();
            format!("invalid value '{value}' for '{wrong}'{why}")
        }
        _ => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    }
}

fn text_of(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(" ")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_a_tool_as_it_was_called() {
        let help = "Check whether servers answer\n\nUsage: sheen lfs check [OPTIONS]\n";
        let called = |path: &str| by_name(help, Some(path.into()));
        assert_eq!(called("/usr/bin/sheen"), help);
        assert!(called("/usr/bin/lfs").contains("Usage: lfs check [OPTIONS]"));
    }
}
