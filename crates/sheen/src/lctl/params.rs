//! `lctl get_param`, `set_param`, `list_param`.

use std::collections::BTreeMap;

use clap::Args;
use sheen_control::{Access, Answer, Listed, Question};
use sheen_types::Errno;

use crate::output::{Fault, line, worst as outcome};
use crate::processes::{ask_all, command_all};

/// How far `-R` goes down; the deepest parameters of Lustre have seven parts.
const DEPTH_MAX: usize = 12;

/// Options of Lustre's `get_param` and `list_param` that are not here yet.
pub(super) const REFUSED_READING: &[&str] = &[
    "-L",
    "--no-links",
    "-b",
    "--dshbak",
    "-c",
    "--color",
    "-l",
    "--links",
    "-m",
    "--merge",
    "-M",
    "--no-merge",
    "-o",
    "--module",
    "-p",
    "--path",
    "-t",
    "--only-tunable",
    "-y",
    "--yaml",
    "-r",
    "--readable",
    "-w",
    "--writable",
];

/// Options of Lustre's `set_param` that are not here yet.
pub(super) const REFUSED_SETTING: &[&str] =
    &["-C", "--client", "-F", "--file", "-o", "--module", "-t", "--thread"];

/// Options of `get_param`.
#[derive(Args)]
pub(super) struct Get {
    /// Print values only
    #[arg(short = 'n', long = "no-name")]
    no_name: bool,
    /// Print names only
    #[arg(short = 'N', long = "only-name")]
    only_name: bool,
    /// Mark what can be written with '='
    #[arg(short = 'F', long = "classify")]
    classify: bool,
    /// Everything below, too
    #[arg(short = 'R', long = "recursive")]
    recursive: bool,
    /// Print the name before each line of a value
    #[arg(short = 'H', long = "header")]
    header: bool,
    /// Names, parts separated by '.' or '/', with shell wildcards
    #[arg(required = true, value_name = "PARAM")]
    names: Vec<String>,
}

/// Options of `set_param`.
#[derive(Args)]
pub(super) struct Set {
    /// Do not print what was set
    #[arg(short = 'n', long = "no-name")]
    no_name: bool,
    /// Set it for good, on all nodes (needs the MGS)
    #[arg(short = 'P', long = "permanent")]
    permanent: bool,
    /// Remove a permanent setting
    #[arg(short = 'd', long = "delete")]
    delete: bool,
    /// Names with values
    #[arg(required = true, value_name = "PARAM=VALUE")]
    settings: Vec<String>,
}

/// Options of `list_param`.
#[derive(Args)]
pub(super) struct List {
    /// Mark folders with '/', what can be written with '='
    #[arg(short = 'F', long = "classify")]
    classify: bool,
    /// Folders only
    #[arg(short = 'D', long = "only-dir")]
    only_folders: bool,
    /// What can be written only
    #[arg(short = 'w', long = "writable")]
    writable: bool,
    /// What can be read only
    #[arg(short = 'r', long = "readable")]
    readable: bool,
    /// Everything below, too
    #[arg(short = 'R', long = "recursive")]
    recursive: bool,
    /// Leave out links; there are none
    #[arg(short = 'L', long = "no-links")]
    _no_links: bool,
    /// Names, parts separated by '.' or '/', with shell wildcards
    #[arg(required = true, value_name = "PARAM")]
    names: Vec<String>,
}

/// `a.b` and, when asked, everything below.
fn patterns(name: &str, recursive: bool) -> Vec<String> {
    let depth = if recursive { DEPTH_MAX } else { 1 };
    (0..depth).map(|below| format!("{name}{}", ".*".repeat(below))).collect()
}

/// Names that match in any process, each once.
fn listed(name: &str, recursive: bool) -> BTreeMap<String, Option<Access>> {
    let mut found = BTreeMap::new();
    for pattern in patterns(name, recursive) {
        for answer in ask_all(&Question::List { pattern }) {
            let Answer::Listed(entries) = answer else { continue };
            found.extend(entries.into_iter().map(|Listed { name, access }| (name, access)));
        }
    }
    found
}

/// Values of what matches; of processes with the same parameter the first one's.
fn values(name: &str, recursive: bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for pattern in patterns(name, recursive) {
        for answer in ask_all(&Question::Get { pattern }) {
            let Answer::Shown(shown) = answer else { continue };
            for parameter in shown {
                found.entry(parameter.name).or_insert(parameter.value);
            }
        }
    }
    found
}

/// What may be set is marked with '=', a folder with '/'.
fn mark(access: Option<Access>) -> &'static str {
    match access {
        None => "/",
        Some(Access::ReadWrite | Access::Write) => "=",
        Some(Access::Read) => "",
    }
}

pub(super) fn get(options: &Get) -> Result<(), Fault> {
    let mut worst = None;
    for name in &options.names {
        let entries = listed(name, options.recursive);
        if entries.is_empty() {
            worst = Some(Errno::ENOENT);
            if !options.recursive {
                missing("get_param", name);
            }
            continue;
        }
        if options.only_name {
            for (name, access) in entries.iter().filter(|(_, access)| access.is_some()) {
                line(format_args!("{name}{}", if options.classify { mark(*access) } else { "" }));
            }
            continue;
        }
        for (name, value) in values(name, options.recursive) {
            let access = entries.get(&name).copied().flatten();
            let mark = if options.classify { mark(access) } else { "" };
            line(shown(options, &format!("{name}{mark}"), &value));
        }
    }
    outcome(worst)
}

/// A value of one line stands behind its name, one of several lines below it.
fn shown(options: &Get, name: &str, value: &str) -> String {
    let value = value.strip_suffix('\n').unwrap_or(value);
    if options.no_name {
        value.to_owned()
    } else if options.header {
        let lines: Vec<String> = value.lines().map(|text| format!("{name}={text}")).collect();
        lines.join("\n")
    } else if value.contains('\n') {
        format!("{name}=\n{value}")
    } else {
        format!("{name}={value}")
    }
}

pub(super) fn set(options: &Set) -> Result<(), Fault> {
    if options.permanent || options.delete {
        return set_permanently(options);
    }
    let mut worst = None;
    for setting in &options.settings {
        let Some((name, value)) = setting.split_once('=').filter(|(_, value)| !value.is_empty())
        else {
            let name = setting.trim_end_matches('=');
            eprintln!("error: set_param: setting {name}: {}", Errno::EINVAL);
            worst = Some(Errno::EINVAL);
            continue;
        };
        if let Err(errno) = set_one(options, name, value) {
            eprintln!("error: set_param: setting '{}'='{value}': {errno}", path(name));
            worst = Some(errno);
        }
    }
    outcome(worst)
}

fn set_one(options: &Set, name: &str, value: &str) -> Result<(), Errno> {
    let question = Question::Set { pattern: name.to_owned(), value: value.to_owned() };
    let mut fates = BTreeMap::new();
    for answer in ask_all(&question) {
        let Answer::Shown(shown) = answer else { continue };
        for parameter in shown {
            let fate = fates.entry(parameter.name).or_insert(None);
            if parameter.errno != 0 {
                *fate = Some(Errno(parameter.errno));
            }
        }
    }
    if fates.is_empty() {
        missing("set_param", name);
        return Err(Errno::ENOENT);
    }
    let mut failure = Ok(());
    for (name, fate) in fates {
        match fate {
            None if options.no_name => {}
            None => line(format_args!("{name}={value}")),
            Some(errno @ Errno::EACCES) => {
                eprintln!("error: set_param: opening '{}': {errno}", path(&name));
                failure = Err(errno);
            }
            Some(errno) => {
                eprintln!("error: set_param: setting {}={value}: {errno}", path(&name));
                failure = Err(errno);
            }
        }
    }
    failure
}

/// Says that no parameter matches.
fn missing(command: &str, name: &str) {
    eprintln!("error: {command}: param_path '{}': {}", path(name), Errno::ENOENT);
}

fn path(name: &str) -> String {
    name.replace('.', "/")
}

fn set_permanently(options: &Set) -> Result<(), Fault> {
    if !options.permanent {
        eprintln!("warning: setting '-P' option with '-d'");
    }
    let command = if options.delete { "delete_param" } else { "set_param" };
    for setting in &options.settings {
        if let Err((errno, text)) = command_all(command, &[setting]) {
            if errno == Errno::ENODEV {
                eprintln!("This command must be run on the MGS.");
                return Err(Fault::new(errno, format!("error: executing set_param: {errno}")));
            }
            let text = format!("error: executing set_param: {errno}: {text}");
            return Err(Fault::new(errno, text));
        }
    }
    Ok(())
}

pub(super) fn list(options: &List) -> Result<(), Fault> {
    let mut worst = None;
    for name in &options.names {
        let entries = listed(name, options.recursive);
        if entries.is_empty() {
            let errno = Errno::ENOENT;
            worst = Some(errno);
            if !options.recursive {
                missing("list_param", name);
            }
            eprintln!("error: list_param: listing '{}': {errno}", path(name));
        }
        for (name, access) in entries.iter().filter(|(_, access)| wanted(options, **access)) {
            line(format_args!("{name}{}", if options.classify { mark(*access) } else { "" }));
        }
    }
    outcome(worst)
}

fn wanted(options: &List, access: Option<Access>) -> bool {
    let writable = matches!(access, Some(Access::ReadWrite | Access::Write));
    let readable = matches!(access, Some(Access::ReadWrite | Access::Read));
    (!options.only_folders || access.is_none())
        && (!options.writable || writable)
        && (!options.readable || readable)
}

#[cfg(test)]
mod tests {
    use super::{Get, mark, patterns, shown};
    use sheen_control::Access;

    fn plain() -> Get {
        Get {
            no_name: false,
            only_name: false,
            classify: false,
            recursive: false,
            header: false,
            names: Vec::new(),
        }
    }

    #[test]
    fn values_are_shown_as_lustre_shows_them() {
        assert_eq!(shown(&plain(), "osc.a.max_dirty_mb", "309\n"), "osc.a.max_dirty_mb=309");
        assert_eq!(
            shown(&plain(), "llite.a.x", "users: 8\nused: 3\n"),
            "llite.a.x=\nusers: 8\nused: 3"
        );
        let header = Get { header: true, ..plain() };
        assert_eq!(shown(&header, "a.b", "1\n2"), "a.b=1\na.b=2");
        let bare = Get { no_name: true, ..plain() };
        assert_eq!(shown(&bare, "version", "2.17.0\n"), "2.17.0");
    }

    #[test]
    fn marks_and_patterns() {
        assert_eq!(
            [mark(None), mark(Some(Access::Write)), mark(Some(Access::Read))],
            ["/", "=", ""]
        );
        assert_eq!(patterns("osc.*", false), ["osc.*"]);
        assert_eq!(patterns("osc.*", true)[..2], ["osc.*", "osc.*.*"]);
    }
}
