//! `lctl get_param`, `set_param`, `list_param`.

use std::collections::BTreeMap;

use clap::Args;
use sheen_control::{Access, ControlReply, ControlRequest, Listed, Shown};
use sheen_types::Errno;

use super::conf_param::assignment;
use crate::home::Home;
use crate::origins;
use crate::output::{Fault, line, worst as outcome};
use crate::processes::{ask_all, ask_each, command_all};
use sheen_control::api::SET_PARAM;

/// How far `-R` goes down; the deepest parameters of Lustre have seven parts.
const DEPTH_MAX: usize = 12;

/// Options of Lustre's `get_param` and `list_param` that are not here yet.
pub(super) const REFUSED_READING: &[&str] =
    &["-b", "--dshbak", "-c", "--color", "-o", "--module", "-p", "--path", "-y", "--yaml"];

/// Options of Lustre's `set_param` that are not here yet.
pub(super) const REFUSED_SETTING: &[&str] = &["-C", "--client", "-F", "--file", "-o", "--module"];

/// Which of the parameters that match.
#[derive(Args, Default)]
struct Which {
    /// Writable parameters only
    #[arg(short = 'w', long = "writable")]
    writable: bool,
    /// Readable parameters only
    #[arg(short = 'r', long = "readable")]
    readable: bool,
    /// Tunable parameters only, no statistics
    #[arg(short = 't', long = "only-tunable", alias = "tunable")]
    tunable: bool,
    /// Follow links (default)
    #[arg(short = 'l', long = "links")]
    _links: bool,
    /// Skip links, which are second names of parameters
    #[arg(short = 'L', long = "no-links")]
    no_links: bool,
    /// Print each name once (always done here)
    #[arg(short = 'm', long = "merge")]
    _merge: bool,
    /// Print each name once (always done here)
    #[arg(short = 'M', long = "no-merge")]
    _no_merge: bool,
}

impl Which {
    fn takes(&self, name: &str, found: Found) -> bool {
        let Found { access, is_link } = found;
        let writable = matches!(access, Some(Access::ReadWrite | Access::Write));
        let readable = matches!(access, Some(Access::ReadWrite | Access::Read));
        (!self.writable || writable)
            && !(self.no_links && is_link)
            && (!self.readable || readable)
            && (!self.tunable || !is_statistics(name))
    }
}

/// What counts or is for tests, by words of its name, as Lustre distinguishes it from what can be tuned.
fn is_statistics(name: &str) -> bool {
    const WORDS: [&str; 10] = [
        "console",
        "debug_",
        "fail_",
        "force",
        "import",
        "panic_",
        "peers",
        "srpc_sepol",
        "stats",
        "target_obd",
    ];
    name == "nis" || WORDS.iter().any(|word| name.contains(word))
}

/// Options of `get_param`.
#[derive(Args)]
pub(super) struct Get {
    /// Print values only
    #[arg(short = 'n', long = "no-name")]
    no_name: bool,
    /// Print names only
    #[arg(short = 'N', long = "only-name")]
    only_name: bool,
    /// Append '=' to writable parameters
    #[arg(short = 'F', long = "classify")]
    classify: bool,
    /// Also list the parameters below
    #[arg(short = 'R', long = "recursive")]
    recursive: bool,
    /// Print the name before each line of a value
    #[arg(short = 'H', long = "header")]
    header: bool,
    #[command(flatten)]
    which: Which,
    /// Parameter names, separated by '.' or '/'; shell wildcards are allowed
    #[arg(required = true, value_name = "PARAM")]
    names: Vec<String>,
}

/// Options of `set_param`.
#[derive(Args)]
pub(super) struct Set {
    /// Do not print the settings
    #[arg(short = 'n', long = "no-name", alias = "noname")]
    no_name: bool,
    /// Set permanently on all nodes (run it on the MGS)
    #[arg(short = 'P', long = "permanent", alias = "perm")]
    permanent: bool,
    /// Remove a permanent setting; its value stays until the next start
    #[arg(short = 'd', long = "delete")]
    delete: bool,
    /// Accepted for compatibility; one thread is used
    #[arg(
        short = 't', long = "threads", num_args = 0..=1, require_equals = true,
        value_name = "COUNT"
    )]
    _threads: Option<Option<u32>>,
    /// Parameter names and values
    #[arg(required = true, value_name = "PARAM=VALUE")]
    settings: Vec<String>,
}

/// Options of `list_param`.
#[derive(Args)]
pub(super) struct List {
    /// Append '/' to directories and '=' to writable parameters
    #[arg(short = 'F', long = "classify")]
    classify: bool,
    /// Directories only
    #[arg(short = 'D', long = "only-dir")]
    only_folders: bool,
    /// Also list the parameters below
    #[arg(short = 'R', long = "recursive")]
    recursive: bool,
    #[command(flatten)]
    which: Which,
    /// Parameter names, separated by '.' or '/'; shell wildcards are allowed
    #[arg(required = true, value_name = "PARAM")]
    names: Vec<String>,
}

/// What a name is.
#[derive(Clone, Copy, Default)]
struct Found {
    /// `None` for a folder.
    access: Option<Access>,
    is_link: bool,
}

/// `a.b` and, when asked, everything below.
fn patterns(name: &str, recursive: bool) -> Vec<String> {
    let depth = if recursive { DEPTH_MAX } else { 1 };
    (0..depth).map(|below| format!("{name}{}", ".*".repeat(below))).collect()
}

/// Names that match in any process, each once.
fn listed(name: &str, recursive: bool) -> BTreeMap<String, Found> {
    let mut found = BTreeMap::new();
    for pattern in patterns(name, recursive) {
        for answer in ask_all(&ControlRequest::List { pattern }) {
            let ControlReply::Listed(entries) = answer else { continue };
            let one = |Listed { name, access, is_link }| (name, Found { access, is_link });
            found.extend(entries.into_iter().map(one));
        }
    }
    found
}

/// Values of what matches; of processes of one file system with the same parameter the first one's.
///
/// # Errors
/// Several file systems have it, with different values.
fn values(name: &str, recursive: bool) -> Result<BTreeMap<String, String>, Fault> {
    let mut found: BTreeMap<String, (Option<Home>, String)> = BTreeMap::new();
    for pattern in patterns(name, recursive) {
        for (home, answer) in ask_each(&ControlRequest::Get { pattern }) {
            let ControlReply::Shown(shown) = answer else { continue };
            for Shown { name, value, .. } in shown {
                let (first, known) = found.entry(name).or_insert((home.clone(), value.clone()));
                let homes = origins::distinct([first.clone(), home.clone()]);
                if *known != value && homes.len() > 1 {
                    return Err(origins::ask("lctl get_param", &homes));
                }
            }
        }
    }
    Ok(found.into_iter().map(|(name, (_, value))| (name, value)).collect())
}

/// Refuses to set what several file systems have.
fn check_home(pattern: &str) -> Result<(), Fault> {
    let mut owners: BTreeMap<String, Vec<Option<Home>>> = BTreeMap::new();
    for (home, answer) in ask_each(&ControlRequest::List { pattern: pattern.to_owned() }) {
        let ControlReply::Listed(listed) = answer else { continue };
        for Listed { name, .. } in listed {
            owners.entry(name).or_default().push(home.clone());
        }
    }
    let homes = owners.into_values().map(origins::distinct).find(|homes| homes.len() > 1);
    homes.map_or(Ok(()), |homes| Err(origins::ask("lctl set_param", &homes)))
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
        let taken = |name: &str, found| options.which.takes(name, found);
        if options.only_name {
            let entries = entries.iter().filter(|(_, found)| found.access.is_some());
            for (name, found) in entries.filter(|(name, found)| taken(name, **found)) {
                let mark = if options.classify { mark(found.access) } else { "" };
                line(format_args!("{name}{mark}"));
            }
            continue;
        }
        for (name, value) in values(name, options.recursive)? {
            let found = entries.get(&name).copied().unwrap_or_default();
            if !taken(&name, found) {
                continue;
            }
            let mark = if options.classify { mark(found.access) } else { "" };
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
    let pairs = pairs(&options.settings);
    pairs.iter().try_for_each(|(name, _)| check_home(name))?;
    for (name, value) in pairs {
        let Some(value) = value else {
            eprintln!("error: set_param: setting {name}: {}", Errno::EINVAL);
            worst = Some(Errno::EINVAL);
            break;
        };
        if let Err(errno) = set_one(options, name, value) {
            eprintln!("error: set_param: setting '{}'='{value}': {errno}", path(name));
            worst = Some(errno);
        }
    }
    outcome(worst)
}

/// `name=value`, or a name and its value as two words.
fn pairs(words: &[String]) -> Vec<(&str, Option<&str>)> {
    let mut pairs = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        pairs.push(match word.split_once('=') {
            Some((name, value)) => (name, Some(value).filter(|value| !value.is_empty())),
            None => (word.as_str(), words.next().map(String::as_str)),
        });
    }
    pairs
}

fn set_one(options: &Set, name: &str, value: &str) -> Result<(), Errno> {
    let question = ControlRequest::Set { pattern: name.to_owned(), value: value.to_owned() };
    let mut fates = BTreeMap::new();
    for answer in ask_all(&question) {
        let ControlReply::Shown(shown) = answer else { continue };
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
    origins::choose_mgs("lctl set_param", |name| name_devices_of(name, &options.settings))?;
    let mut worst = None;
    for setting in &options.settings {
        let text = assignment(setting, options.delete).ok_or(Errno::EINVAL);
        if let Err(errno) = text.and_then(|text| on_the_mgs(SET_PARAM, &[&text])) {
            eprintln!("error: executing set_param: {errno}");
            worst = Some(errno);
        }
    }
    outcome(worst)
}

/// Whether all settings name devices of a file system: `osc.lustre-OST0000*.active=0` those of `lustre`.
fn name_devices_of(fsname: &str, settings: &[String]) -> bool {
    let device = |setting: &str| setting.split('=').next()?.split('.').nth(1).map(str::to_owned);
    settings.iter().all(|text| {
        let device = device(text).unwrap_or_default();
        device.strip_prefix(fsname).is_some_and(|rest| rest.starts_with('-'))
    })
}

/// Has the MGS of this machine do something; says so if there is none, and why it does not, if it says more than the
/// errno.
pub(super) fn on_the_mgs(command: &str, words: &[&str]) -> Result<(), Errno> {
    command_all(command, words).map(|_| ()).map_err(|(errno, message)| {
        if errno == Errno::ENODEV && !has_mgs() {
            eprintln!("This command must be run on the MGS.");
        } else if errno == Errno::EINVAL && message != errno.to_string() {
            eprintln!("{message}");
        }
        errno
    })
}

/// Whether a process of this machine runs an MGS.
fn has_mgs() -> bool {
    let devices = command_all("devices", &[]).unwrap_or_default();
    devices.iter().flat_map(|text| text.lines()).any(|line| line.contains(" mgs MGS "))
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
        let wanted = |name: &str, found: Found| {
            (!options.only_folders || found.access.is_none()) && options.which.takes(name, found)
        };
        for (name, found) in entries.iter().filter(|(name, found)| wanted(name, **found)) {
            let mark = if options.classify { mark(found.access) } else { "" };
            line(format_args!("{name}{mark}"));
        }
    }
    outcome(worst)
}

#[cfg(test)]
mod tests {
    use super::{Get, Which, is_statistics, mark, name_devices_of, pairs, patterns, shown};
    use sheen_control::Access;

    fn plain() -> Get {
        Get {
            no_name: false,
            only_name: false,
            classify: false,
            recursive: false,
            header: false,
            which: Which::default(),
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
    fn names_and_values_stand_together_or_apart() {
        let words = ["a.b=1", "c", "2", "d="].map(str::to_owned);
        let expected = [("a.b", Some("1")), ("c", Some("2")), ("d", None)];
        assert_eq!(pairs(&words), expected);
        assert_eq!(pairs(&["a".to_owned()]), [("a", None)]);
        assert!(is_statistics("mdt.a.md_stats") && !is_statistics("osc.a.max_dirty_mb"));
    }

    #[test]
    fn the_file_system_of_a_setting_is_that_of_its_device() {
        let names = |fsname: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            name_devices_of(fsname, &words)
        };
        assert!(names("one", &["osc.one-OST0000*.active=0", "llite.one-*.x=1"]));
        assert!(names("my-fs", &["osc.my-fs-OST0000*.active=0"]));
        assert!(!names("one", &["osc.one-*.active=0", "llite.two-*.x=1"]));
        assert!(!names("one", &["osc.*.active=0"]) && !names("one", &["timeout=1.one-3"]));
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
