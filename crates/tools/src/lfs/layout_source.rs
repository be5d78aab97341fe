//! The layout that `lfs setstripe` and `lfs migrate` request: by options, or as another file or a template
//! has it; and how both read their command lines and go through files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sheen_types::Errno;
use sheen_wire::lov::{LovEa, LovMd, LovPattern};

use super::attributes::{fid, layout};
use super::layout_request::{self, LayoutRequest};
use super::layout_yaml;
use super::options::{Opt, Part, Takes};
use crate::output::{Fault, errno_of, shown_path};

/// Where a layout may come from, besides options.
pub(super) const OPTIONS: &[Opt] = &[
    Opt {
        short: None,
        names: &["copy"],
        takes: Takes::Value("FILE"),
        help: "Copy the layout of another file",
    },
    Opt {
        short: Some('y'),
        names: &["yaml"],
        takes: Takes::Value("TEMPLATE"),
        help: "Use the layout in a template written by 'lfs getstripe --yaml'",
    },
];

/// Why a layout cannot come from both.
pub(super) const NOT_WITH_OPTIONS: &str =
    "can't specify --yaml or --copy with -c, -S, -i, -o, -p or -E options";

/// Where the layout comes from, if not from options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Copy(PathBuf),
    Yaml(PathBuf),
}

/// A requested layout.
#[derive(Clone, Debug)]
pub(super) struct RequestedLayout {
    command: &'static str,
    pub(super) request: LayoutRequest,
    pub(super) source: Option<Source>,
}

impl RequestedLayout {
    /// Requests nothing yet. `command` is the name in error messages.
    pub(super) fn new(command: &'static str) -> Self {
        Self { command, request: LayoutRequest::new(command), source: None }
    }

    /// Takes what concerns the layout out of the words and gives `other` the rest of the options;
    /// answers the paths, too.
    ///
    /// # Errors
    /// A fault for a value or an order that Lustre's tool refuses, and what `other` answers.
    pub(super) fn read(
        command: &'static str,
        parts: Vec<Part>,
        mut other: impl FnMut(&str, String) -> Result<(), Fault>,
    ) -> Result<(Self, Vec<PathBuf>), Fault> {
        let (mut requested, mut paths) = (Self::new(command), Vec::new());
        for part in parts {
            match part {
                Part::Operand(path) => paths.push(path.into()),
                Part::Option { name, value, .. } => {
                    let value = value.unwrap_or_default();
                    if !requested.request.option(name, &value)? {
                        match name {
                            "copy" => requested.take(Source::Copy(OsString::from(value).into()))?,
                            "yaml" => requested.take(Source::Yaml(OsString::from(value).into()))?,
                            name => other(name, value)?,
                        }
                    }
                }
            }
        }
        Ok((requested, paths))
    }

    fn take(&mut self, source: Source) -> Result<(), Fault> {
        match self.source.replace(source) {
            None => Ok(()),
            Some(_) => {
                let command = self.command;
                Err(Fault::usage(format!("{command}: can't specify --yaml and --copy together")))
            }
        }
    }

    /// Whether anything is requested.
    pub(super) fn is_given(&self) -> bool {
        self.source.is_some() || self.request.is_given()
    }

    /// The layout; a plain one that leaves all to the defaults if nothing is requested.
    pub(super) fn layout(&self) -> Result<LovEa, Fault> {
        match &self.source {
            None => self.request.clone().finish(),
            Some(Source::Copy(path)) => copied(path, self.command),
            Some(Source::Yaml(path)) => template(path, self.command),
        }
    }
}

/// Does `work` for each file, and says what went wrong; the exit code is that of the first fault.
pub(super) fn for_each(
    paths: &[PathBuf],
    work: impl Fn(&Path) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut worst = None;
    for path in paths {
        if let Err(fault) = work(path) {
            eprintln!("{}", fault.text);
            worst.get_or_insert(fault.code);
        }
    }
    worst.map_or(Ok(()), |code| Err(Fault { code, text: String::new() }))
}

/// The layout of another file, as a request: its OSTs do not matter, its components do.
pub(super) fn copied(path: &Path, command: &str) -> Result<LovEa, Fault> {
    let failed = |errno: Errno| {
        let text = format!("can't create composite layout from file {}: {errno}", shown_path(path));
        Fault::new(errno, format!("{command}: {text}"))
    };
    let found = std::fs::metadata(path).map_err(|error| failed(errno_of(&error)))?;
    let on_ours = fid(path).map(|_| ());
    on_ours.map_err(|errno| failed(if errno == Errno::ENODATA { Errno::ENOTTY } else { errno }))?;
    let found = match layout(path).map_err(failed)? {
        None if found.is_dir() => return LayoutRequest::new("").finish(),
        None => return Err(failed(Errno::ENODATA)),
        Some(found) => found,
    };
    as_request(found).ok_or_else(|| failed(Errno::EOPNOTSUPP))
}

/// A layout without what makes it one file's; `None` for mirrors and foreign ones.
fn as_request(found: LovEa) -> Option<LovEa> {
    let bare = |plain: &mut LovMd| {
        plain.header.pattern = plain.header.pattern.without(LovPattern::RELEASED);
        plain.header.oi = Default::default();
        plain.header.layout_gen = layout_request::ANY_OST;
        plain.stripes.clear();
        let magic = if plain.pool.is_empty() {
            layout_request::PLAIN
        } else {
            layout_request::PLAIN_WITH_POOL
        };
        plain.header.magic = magic;
    };
    match found {
        LovEa::Plain(mut plain) => {
            bare(&mut plain);
            Some(LovEa::Plain(plain))
        }
        LovEa::Composite(found) if found.header.mirror_count == 0 => {
            let mut parts = found.components;
            for part in &mut parts {
                bare(&mut part.layout);
                (part.entry.id, part.entry.flags) = (0, Default::default());
                part.entry.layout_gen = 0;
            }
            Some(layout_request::composite(parts))
        }
        _ => None,
    }
}

/// The layout that a template describes.
fn template(path: &Path, command: &'static str) -> Result<LovEa, Fault> {
    let failed = |what: String| {
        let text = format!("cannot parse YAML file {}: {what}", shown_path(path));
        Fault::new(Errno::EINVAL, format!("{command}: {text}"))
    };
    let text =
        std::fs::read_to_string(path).map_err(|error| failed(errno_of(&error).to_string()))?;
    let mut request = LayoutRequest::new(command);
    layout_yaml::read(&text, &mut request).map_err(failed)?;
    request.finish()
}

/// The directory that holds `path`.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
