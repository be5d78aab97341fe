//! `lfs setstripe`: files with a layout of their own, defaults of directories.
//!
//! A new file is created without objects, then its layout is set; the MDT allocates the objects. If the MDT
//! refuses the layout, the file is removed again. Where it silently made something else than what was requested
//! (fewer stripes, a shorter component on the MDT), a line on stderr says so; that costs reading the layout back.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sheen_types::Errno;
use sheen_wire::lov::{CompFlags, LovEa, LovMd, LovPattern};

use super::attributes::{fid, layout, remove_layout, set_layout};
use super::components::{self, Flags, LIBRARY_CODE};
use super::layout_request::{self, fault_of};
use super::layout_source::{self, RequestedLayout, folder_of, for_each};
use super::options::{Dashes, Grammar, HELP, Opt, Part, Takes, Words, refused, wants_help};
use super::pools;
use crate::output::{Fault, errno, shown_path, text_out};

pub(super) const GRAMMAR: Grammar = Grammar {
    command: "lfs setstripe",
    usage: "Create files with a layout, or set the default layout of directories\n\n\
        Usage: lfs setstripe [LAYOUT OPTIONS] FILENAME|DIRECTORY...\n       \
        lfs setstripe -E END [LAYOUT OPTIONS] [-E END [LAYOUT OPTIONS]]... FILENAME|DIRECTORY...\n       \
        lfs setstripe --component-add -E END [LAYOUT OPTIONS]... FILENAME...\n       \
        lfs setstripe --component-del -I ID|--component-flags FLAGS FILENAME...\n       \
        lfs setstripe --component-set -I ID --component-flags FLAGS FILENAME...\n       \
        lfs setstripe --yaml TEMPLATE|--copy FILE FILENAME|DIRECTORY...\n       \
        lfs setstripe -d DIRECTORY...",
    tables: &[layout_request::OPTIONS, layout_source::OPTIONS, OPTIONS],
    dashes: Dashes::Two,
};

const OPTIONS: &[Opt] = &[
    Opt {
        short: Some('d'),
        names: &["delete", "destroy"],
        takes: Takes::Nothing,
        help: "Remove a directory's default layout",
    },
    Opt {
        short: None,
        names: &["component-add", "comp-add"],
        takes: Takes::Nothing,
        help: "Add components after the last one",
    },
    Opt {
        short: None,
        names: &["component-del", "comp-del"],
        takes: Takes::Nothing,
        help: "Delete components",
    },
    Opt {
        short: None,
        names: &["component-set", "comp-set"],
        takes: Takes::Nothing,
        help: "Set or clear flags of a component",
    },
    Opt {
        short: Some('I'),
        names: &["component-id", "comp-id"],
        takes: Takes::Value("ID"),
        help: "The ID of the component",
    },
    Opt {
        short: None,
        names: &["component-flags", "comp-flags"],
        takes: Takes::Value("[^]FLAG,..."),
        help: "Flags: init, prefer, prefrd, prefwr, nosync, stale; ^ to negate",
    },
    Opt {
        short: None,
        names: &["mode"],
        takes: Takes::Value("MODE"),
        help: "Permissions of a new file, octal, regardless of the umask",
    },
    refused(None, &["foreign"], Takes::Maybe("TYPE")),
    refused(None, &["flags"], Takes::Value("HEX")),
    refused(Some('x'), &["xattr"], Takes::Value("LAYOUT")),
    refused(None, &["mirror-id"], Takes::Value("ID")),
    HELP,
];

/// What is to be done with each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Create,
    Remove,
    Add,
    Delete,
    Set,
}

/// The command line.
#[derive(Debug)]
struct Setstripe {
    layout: RequestedLayout,
    actions: Vec<Action>,
    id: Option<u32>,
    flags: Flags,
    mode: Option<u32>,
    paths: Vec<PathBuf>,
}

pub(super) fn run(words: &Words) -> Result<(), Fault> {
    let parts = GRAMMAR.read(&words.words)?;
    if wants_help(&parts) {
        text_out(&GRAMMAR.help());
        return Ok(());
    }
    let command = Setstripe::read(parts)?;
    let action = command.action()?;
    let request = command.layout(action)?;
    for_each(&command.paths, |path| match action {
        Action::Create => create(path, &request, command.mode),
        Action::Remove => remove(path),
        Action::Add => components::add(path, &request)
            .and_then(|anew| if anew { create(path, &request, None) } else { Ok(()) }),
        Action::Delete => components::delete(path, command.id, command.flags),
        Action::Set => components::set(path, command.id.unwrap_or(0), command.flags),
    })
}

impl Setstripe {
    fn read(parts: Vec<Part>) -> Result<Self, Fault> {
        let mut command = Self {
            layout: RequestedLayout::new(GRAMMAR.command),
            actions: Vec::new(),
            id: None,
            flags: Flags::default(),
            mode: None,
            paths: Vec::new(),
        };
        let (layout, paths) = RequestedLayout::read(GRAMMAR.command, parts, |name, value| {
            command.option(name, &value)
        })?;
        let command = Self { layout, paths, ..command };
        match command.paths.is_empty() {
            true => Err(GRAMMAR.fault("FILE must be specified")),
            false => Ok(command),
        }
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        match name {
            "delete" => self.actions.push(Action::Remove),
            "component-add" => self.actions.push(Action::Add),
            "component-del" => self.actions.push(Action::Delete),
            "component-set" => self.actions.push(Action::Set),
            "component-id" => {
                let id = components::parse_id(value);
                let wrong = || usage(&format!("invalid component ID '{value}'"));
                self.id = Some(id.ok_or_else(wrong)?);
            }
            "component-flags" => {
                let wrong = |word| usage(&format!("component flag '{word}' not supported"));
                self.flags = Flags::parse(value).map_err(wrong)?;
            }
            "mode" => {
                let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
                self.mode = Some(mode.ok_or_else(|| usage(&format!("bad mode '{value}'")))?);
            }
            _ => {}
        }
        Ok(())
    }

    /// What is to be done, if the options agree on it.
    fn action(&self) -> Result<Action, Fault> {
        let mut actions = self.actions.clone();
        actions.dedup();
        let action = match actions[..] {
            [] => Action::Create,
            [action] => action,
            _ => {
                return Err(usage(
                    "options --component-set, --component-del, --component-add and -d are \
                     mutually exclusive",
                ));
            }
        };
        let asked = self.layout.request.is_given();
        let wrong = match action {
            Action::Set if self.id.is_none() => {
                "--component-set doesn't have component-id or mirror-id set"
            }
            Action::Remove if asked || self.id.is_some() || self.flags.set.0 != 0 => {
                "option -d is mutually exclusive with -S, -c, -o, -p, -I, -F and -E options"
            }
            Action::Set | Action::Delete if asked => {
                "options --component-del and --component-set are mutually exclusive when used \
                 with -c, -E, -o, -p, or -S"
            }
            Action::Delete if self.id.is_some() && self.flags.set.0 != 0 => {
                "options -I and -F are mutually exclusive when used with --component-del"
            }
            Action::Add | Action::Delete if self.paths.iter().any(|path| path.is_dir()) => {
                "cannot use --component-add or --component-del for directory"
            }
            Action::Add if !self.layout.request.is_composite() => {
                "option -E must be specified with --component-add"
            }
            Action::Create | Action::Add | Action::Remove if self.id.is_some() => {
                "option -I can only be used with --component-del or --component-set"
            }
            _ if self.layout.source.is_some() && (asked || action != Action::Create) => {
                layout_source::NOT_WITH_OPTIONS
            }
            _ => return Ok(action),
        };
        Err(usage(wrong))
    }

    /// The requested layout.
    fn layout(&self, action: Action) -> Result<LovEa, Fault> {
        let request = self.layout.layout()?;
        if matches!(action, Action::Create | Action::Add) {
            for path in &self.paths {
                pools::check(path, &request, GRAMMAR.command)?;
            }
        }
        Ok(request)
    }
}

fn usage(text: &str) -> Fault {
    Fault::usage(format!("lfs setstripe: {text}"))
}

fn cannot_set(path: &Path, request: Option<&LovEa>, errno: Errno) -> Fault {
    let name = shown_path(path);
    if matches!(request, Some(LovEa::Composite(_))) {
        let what = match path.is_dir() {
            true => "cannot set default composite layout for",
            false => "cannot create composite file",
        };
        let text = format!("lfs setstripe: {what} '{name}': {errno} ({})", errno.0);
        return Fault { code: LIBRARY_CODE, text };
    }
    let why = match errno {
        Errno::EEXIST => "stripe already set".to_owned(),
        errno => errno.to_string(),
    };
    Fault::new(errno, format!("lfs setstripe: setstripe error for '{name}': {why}"))
}

fn cannot_open(path: &Path, request: Option<&LovEa>, errno: Errno) -> Fault {
    if matches!(request, Some(LovEa::Composite(_))) {
        return cannot_set(path, request, errno);
    }
    let text = format!("unable to open '{}': {errno} ({})", shown_path(path), errno.0);
    Fault::new(errno, format!("lfs setstripe: {text}"))
}

fn create(path: &Path, request: &LovEa, mode: Option<u32>) -> Result<(), Fault> {
    if let LovEa::Composite(composite) = request
        && let Some(what) = fault_of(&composite.components)
    {
        let errno = Errno::EINVAL;
        let text = format!("'{}': Invalid layout: {what}: {errno}", shown_path(path));
        let text = format!("lfs setstripe: cannot create composite file {text} ({})", errno.0);
        return Err(Fault { code: LIBRARY_CODE, text });
    }
    let failed = |errno| cannot_set(path, Some(request), errno);
    match rustix::fs::stat(path).map_err(errno) {
        Ok(found) => {
            set_layout(path, request).map_err(failed)?;
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                return Ok(());
            }
        }
        Err(Errno::ENOENT) => make(path, request, mode)?,
        Err(errno) => return Err(cannot_open(path, Some(request), errno)),
    }
    say_differences(path, request);
    Ok(())
}

/// Creates the file; removes it again if the layout cannot be set.
fn make(path: &Path, request: &LovEa, mode: Option<u32>) -> Result<(), Fault> {
    on_our_file_system(path, request)?;
    if mode.is_some() {
        rustix::process::umask(Mode::empty());
    }
    let mode = Mode::from_bits_truncate(mode.unwrap_or(0o666));
    mknodat(CWD, path, FileType::RegularFile, mode, 0)
        .map_err(|error| cannot_open(path, Some(request), errno(error)))?;
    set_layout(path, request).map_err(|failed| {
        if let Err(error) = rustix::fs::unlink(path) {
            eprintln!("lfs setstripe: cannot remove '{}': {}", shown_path(path), errno(error));
        }
        cannot_set(path, Some(request), failed)
    })
}

/// Leaves nothing behind on file systems that know no layouts.
fn on_our_file_system(path: &Path, request: &LovEa) -> Result<(), Fault> {
    match fid(folder_of(path)) {
        Ok(_) => Ok(()),
        Err(Errno::ENODATA) => Err(cannot_set(path, Some(request), Errno::ENOTTY)),
        Err(errno) => Err(cannot_open(path, Some(request), errno)),
    }
}

/// Reports where the MDT's layout differs from the request.
fn say_differences(path: &Path, request: &LovEa) {
    let Ok(Some(made)) = layout(path) else { return };
    for text in differences(request, &made) {
        eprintln!("lfs setstripe: warning: '{}': {text}", shown_path(path));
    }
}

/// How a layout differs from the requested one, as far as that matters to a user.
fn differences(request: &LovEa, made: &LovEa) -> Vec<String> {
    match (request, made) {
        (LovEa::Plain(request), LovEa::Plain(made)) => {
            fewer_stripes(request, made, u64::MAX).into_iter().collect()
        }
        (LovEa::Composite(request), LovEa::Composite(made)) => {
            let first = |parts: &[sheen_wire::lov::LovComponent]| {
                let first = parts.first()?;
                first.layout.header.pattern.contains(LovPattern::MDT).then_some(first.entry.end)
            };
            let limit = "the MDT's lod.*.dom_stripesize";
            let mut texts = Vec::new();
            match (first(&request.components), first(&made.components)) {
                (Some(_), None) => {
                    texts.push(format!("no data is stored on the MDT: {limit} is 0"))
                }
                (Some(asked), Some(end)) if end < asked => {
                    texts.push(format!("the MDT holds {end} bytes instead of {asked}: {limit}"));
                }
                _ => {}
            }
            if request.components.len() == made.components.len() {
                let pairs = request.components.iter().zip(&made.components);
                // One that was never written to has no objects yet.
                let pairs = pairs.filter(|(_, made)| made.entry.flags.contains(CompFlags::INIT));
                texts.extend(pairs.filter_map(|(request, made)| {
                    let bytes = made.entry.end.saturating_sub(made.entry.start);
                    fewer_stripes(&request.layout, &made.layout, bytes)
                }));
            }
            texts
        }
        _ => Vec::new(),
    }
}

/// Why what was made, of so many `bytes`, has fewer stripes than were asked for; `None` if it has not.
fn fewer_stripes(request: &LovMd, made: &LovMd, bytes: u64) -> Option<String> {
    let (asked, count) = (request.header.stripe_count as i16, made.stripes.len());
    let room = bytes.div_ceil(u64::from(made.header.stripe_size.max(1)));
    let why = match count as u64 == room {
        true => "the component ends behind them",
        false => "no more OSTs to choose from",
    };
    (asked > 0 && count > 0 && count < asked as usize)
        .then(|| format!("{count} stripes instead of {asked}: {why}"))
}

fn remove(path: &Path) -> Result<(), Fault> {
    let status = rustix::fs::stat(path).map_err(|error| cannot_open(path, None, errno(error)))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Directory {
        return Err(cannot_set(path, None, Errno::EEXIST));
    }
    remove_layout(path).map_err(|errno| cannot_set(path, None, errno))
}

#[cfg(test)]
#[path = "setstripe_tests.rs"]
mod tests;
