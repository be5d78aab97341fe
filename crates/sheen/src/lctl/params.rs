//! `lctl get_param`, `set_param`, `list_param`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use sheen_control::{Access, Answer, Listed, Question};
use sheen_types::Errno;

use super::{ask_all, exit_code, line};

/// How far `-R` goes down; the deepest parameters of Lustre have seven parts.
const DEPTH_MAX: usize = 12;

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
    /// Print names only of folders, parameters with values
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
    /// Names, parts separated by '.' or '/', with shell wildcards
    #[arg(required = true, value_name = "PARAM")]
    names: Vec<String>,
}

/// `a.b` and, when asked, everything below.
fn patterns(name: &str, recursive: bool) -> Vec<String> {
    let depth = if recursive { DEPTH_MAX } else { 1 };
    (0..depth).map(|below| format!("{name}{}", ".*".repeat(below))).collect()
}

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

pub(super) fn get(options: &Get) -> ExitCode {
    let mut worst = None;
    for name in &options.names {
        let entries = listed(name, options.recursive);
        if entries.is_empty() {
            worst = Some(missing("get_param", name));
            continue;
        }
        for pattern in patterns(name, options.recursive) {
            for answer in ask_all(&Question::Get { pattern }) {
                let Answer::Shown(shown) = answer else { continue };
                for parameter in shown {
                    let access = entries.get(&parameter.name).copied().flatten();
                    show(options, &parameter.name, access, &parameter.value);
                }
            }
        }
    }
    worst.map_or(ExitCode::SUCCESS, exit_code)
}

/// A value of one line stands behind its name, one of several lines below it.
fn show(options: &Get, name: &str, access: Option<Access>, value: &str) {
    let value = value.strip_suffix('\n').unwrap_or(value);
    let mark = match access {
        Some(Access::ReadWrite | Access::Write) if options.classify => "=",
        _ => "",
    };
    if options.only_name {
        line(format_args!("{name}{mark}"));
    } else if options.no_name {
        line(value);
    } else if options.header {
        value.lines().for_each(|text| line(format_args!("{name}{mark}={text}")));
    } else if value.contains('\n') {
        line(format_args!("{name}{mark}=\n{value}"));
    } else {
        line(format_args!("{name}{mark}={value}"));
    }
}

pub(super) fn set(options: &Set) -> ExitCode {
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
    worst.map_or(ExitCode::SUCCESS, exit_code)
}

fn set_one(options: &Set, name: &str, value: &str) -> Result<(), Errno> {
    let question = Question::Set { pattern: name.to_owned(), value: value.to_owned() };
    let mut found = false;
    let mut failure = None;
    for answer in ask_all(&question) {
        let Answer::Shown(shown) = answer else { continue };
        for parameter in shown {
            found = true;
            match Errno(parameter.errno) {
                Errno(0) if options.no_name => {}
                Errno(0) => line(format_args!("{}={value}", parameter.name)),
                errno => {
                    let full = path(&parameter.name);
                    eprintln!("error: set_param: setting {full}={value}: {errno}");
                    failure = Some(errno);
                }
            }
        }
    }
    match failure {
        Some(errno) => Err(errno),
        None if found => Ok(()),
        None => Err(missing("set_param", name)),
    }
}

/// Says that no parameter matches.
fn missing(command: &str, name: &str) -> Errno {
    let errno = Errno::ENOENT;
    eprintln!("error: {command}: param_path '{}': {errno}", path(name));
    errno
}

fn path(name: &str) -> String {
    name.replace('.', "/")
}

fn set_permanently(options: &Set) -> ExitCode {
    for setting in &options.settings {
        let name = if options.delete { "delete_param" } else { "set_param" };
        if let Err((errno, message)) = super::command_all(name, &[setting]) {
            let errno = if errno == Errno::EOPNOTSUPP { Errno::ENODEV } else { errno };
            eprintln!("error: executing set_param: {message}");
            if errno == Errno::ENODEV {
                eprintln!("This command must be run on the MGS.");
            }
            return exit_code(errno);
        }
    }
    ExitCode::SUCCESS
}

pub(super) fn list(options: &List) -> ExitCode {
    let mut worst = None;
    for name in &options.names {
        let entries = listed(name, options.recursive);
        if entries.is_empty() {
            worst = Some(missing("list_param", name));
        }
        for (name, access) in entries {
            let writable = matches!(access, Some(Access::ReadWrite | Access::Write));
            let readable = matches!(access, Some(Access::ReadWrite | Access::Read));
            let wanted = (!options.only_folders || access.is_none())
                && (!options.writable || writable)
                && (!options.readable || readable);
            let mark = match (options.classify, access) {
                (true, None) => "/",
                (true, Some(_)) if writable => "=",
                _ => "",
            };
            if wanted {
                line(format_args!("{name}{mark}"));
            }
        }
    }
    worst.map_or(ExitCode::SUCCESS, exit_code)
}
