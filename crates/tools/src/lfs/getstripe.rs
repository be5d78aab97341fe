//! `lfs getstripe`: the layouts of files and the default layouts of directories.
//!
//! Costs one reading of `lustre.lov` for each file; a directory without a default of its own costs
//! one more, for that of the root.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sheen_types::{Errno, TargetName};
use sheen_wire::lov::{LovEa, LovMagic, LovMd, LovMdHeader, LovPattern};

use super::attributes;
use super::compare::Bound;
use super::components::{Flags, parse_id};
use super::layout_text::{Fields, Filter, Style, text_of_file};
use super::mdt_of::MdtsOf;
use super::mount::Mount;
use super::options::{Dashes, Grammar, HELP, Opt, Part, Takes, Words, refused, wants_help};
use crate::output::{Fault, errno_of, shown_path, text_out, worst as outcome, write_out};
use sheen_control::api::{Kind, MountTarget, TARGETS};

pub(super) const GRAMMAR: Grammar = Grammar {
    command: "lfs getstripe",
    usage: "Show the layout of files\n\n\
        Usage: lfs getstripe [OPTIONS] FILENAME|DIRECTORY...",
    tables: &[OPTIONS],
    dashes: Dashes::Two,
};

const fn only(short: char, names: &'static [&'static str], help: &'static str) -> Opt {
    Opt { short: Some(short), names, takes: Takes::Nothing, help }
}

const OPTIONS: &[Opt] = &[
    only('c', &["stripe-count", "stripe_count"], "Print the stripe count"),
    only('S', &["stripe-size", "stripe_size"], "Print the stripe size"),
    only('i', &["stripe-index", "stripe_index"], "Print the index of the first OST"),
    only('p', &["pool"], "Print the pool"),
    only('L', &["layout"], "Print the layout pattern"),
    only('g', &["generation"], "Print the layout generation"),
    only('F', &["fid"], "Print the FID"),
    only('m', &["mdt-index", "mdt", "mdt_index"], "Print the index of the MDT"),
    only('N', &["mirror-count"], "Print the mirror count"),
    only('z', &["extension-size", "ext-size"], "Print the extension size"),
    Opt {
        short: None,
        names: &["component-count", "comp-count"],
        takes: Takes::Nothing,
        help: "Print the component count",
    },
    Opt {
        short: Some('I'),
        names: &["component-id", "comp-id"],
        takes: Takes::Maybe("ID"),
        help: "Print the component IDs, or only the component with this ID",
    },
    Opt {
        short: None,
        names: &["component-flags", "comp-flags"],
        takes: Takes::Maybe("[^]FLAG,..."),
        help: "Print the component flags, or only components with these flags",
    },
    Opt {
        short: None,
        names: &["component-start", "comp-start"],
        takes: Takes::Maybe("[+-]START"),
        help: "Print the component starts, or only components with this start",
    },
    Opt {
        short: Some('E'),
        names: &["component-end", "comp-end"],
        takes: Takes::Maybe("[+-]END"),
        help: "Print the component ends, or only components with this end",
    },
    only('d', &["directory"], "Print the directory itself, not its entries"),
    only('D', &["default"], "Print the default layout of the directory"),
    only('r', &["recursive"], "Descend into subdirectories"),
    only('R', &["raw"], "Print stored values, not the defaults of the file system that apply"),
    only('q', &["quiet"], "Print the objects only"),
    only('v', &["verbose"], "Also print magic, sizes and FID"),
    only('y', &["yaml"], "Print a YAML template for 'lfs setstripe --yaml'"),
    Opt {
        short: None,
        names: &["hex-idx"],
        takes: Takes::Nothing,
        help: "Print indexes in hexadecimal",
    },
    Opt {
        short: None,
        names: &["no-follow"],
        takes: Takes::Nothing,
        help: "Do not follow symbolic links",
    },
    Opt {
        short: Some('O'),
        names: &["ost", "obd"],
        takes: Takes::Value("OST"),
        help: "Only files with objects on this OST (index or UUID)",
    },
    refused(None, &["mirror-index"], Takes::Value("INDEX")),
    refused(None, &["mirror-id"], Takes::Value("ID")),
    HELP,
];

/// The command line.
#[derive(Debug, Default)]
struct GetStripe {
    fields: Fields,
    filter: Filter,
    ost: Option<Ost>,
    mdt_index: bool,
    verbose: bool,
    quiet: bool,
    /// Whether only the given file or directory itself is shown, without its name.
    itself: bool,
    recursive: bool,
    raw: bool,
    yaml: bool,
    hex: bool,
    no_follow: bool,
    paths: Vec<PathBuf>,
}

impl GetStripe {
    fn read(parts: Vec<Part>) -> Result<Self, Fault> {
        let mut command = Self::default();
        for part in parts {
            match part {
                Part::Operand(path) => command.paths.push(path.into()),
                Part::Option { name, value, .. } => command.option(name, value.as_deref())?,
            }
        }
        if command.paths.is_empty() {
            return Err(GRAMMAR.fault("no filename|pathname"));
        }
        command.settle();
        Ok(command)
    }

    fn option(&mut self, name: &str, value: Option<&str>) -> Result<(), Fault> {
        match name {
            "component-id" | "component-flags" | "component-start" | "component-end"
                if value.is_some() =>
            {
                return self.filter(name, value.unwrap_or_default());
            }
            "ost" => self.ost = Some(Ost::read(value.unwrap_or_default())),
            "mdt-index" => (self.mdt_index, self.itself) = (true, true),
            "directory" | "default" => self.itself = true,
            "recursive" => self.recursive = true,
            "raw" => self.raw = true,
            "quiet" => self.quiet = true,
            "verbose" => self.verbose = true,
            "yaml" => self.yaml = true,
            "hex-idx" => self.hex = true,
            "no-follow" => self.no_follow = true,
            name => {
                let Some(field) = field(name) else { return Ok(()) };
                self.fields = self.fields.with(field);
                self.itself = true;
            }
        }
        Ok(())
    }

    fn filter(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        let filter = &mut self.filter;
        let known = match name {
            "component-id" => {
                filter.id = parse_id(value);
                filter.id.is_some()
            }
            "component-flags" => {
                filter.flags = Flags::parse(value).ok();
                filter.flags.is_some()
            }
            "component-start" => {
                filter.start = Bound::size(value, 1);
                filter.start.is_some()
            }
            _ => {
                filter.end = Bound::end(value);
                filter.end.is_some()
            }
        };
        let what = name.replace('-', " ");
        match known {
            true => Ok(()),
            false => Err(Fault::usage(format!("lfs getstripe: bad {what} '{value}'"))),
        }
    }

    /// What the options mean together.
    fn settle(&mut self) {
        if self.verbose {
            self.fields = Fields::USUAL.with(Fields::IDENTITY);
            self.itself = false;
        } else if self.quiet {
            self.fields = Fields::OBJECTS;
        } else if self.fields == Fields::default() {
            self.fields = Fields::USUAL;
        }
    }
}

fn field(name: &str) -> Option<Fields> {
    Some(match name {
        "stripe-count" => Fields::COUNT,
        "stripe-size" => Fields::SIZE,
        "stripe-index" => Fields::OFFSET,
        "pool" => Fields::POOL,
        "layout" => Fields::PATTERN,
        "generation" => Fields::GENERATION,
        "fid" => Fields::FID,
        "mirror-count" => Fields::MIRRORS,
        "extension-size" => Fields::EXTENSION,
        "component-count" => Fields::COMPONENTS,
        "component-id" => Fields::ID,
        "component-flags" => Fields::FLAGS,
        "component-start" => Fields::START,
        "component-end" => Fields::END,
        _ => return None,
    })
}

/// An OST by its index or UUID.
#[derive(Debug)]
struct Ost {
    text: String,
    index: Option<u16>,
}

impl Ost {
    fn read(text: &str) -> Self {
        let named = || Some(text.parse::<TargetName>().ok()?.index);
        Self { text: text.to_owned(), index: text.parse().ok().or_else(named) }
    }

    /// Whether it is one of `targets`.
    fn is_among(&self, targets: &[MountTarget]) -> bool {
        let uuid = self.text.parse::<TargetName>().ok().map(|name| name.uuid().to_string());
        targets.iter().filter(|target| target.kind == Kind::Ost).any(|target| match &uuid {
            Some(uuid) => *uuid == target.uuid,
            None => Some(target.index) == self.index,
        })
    }
}

/// One walk over the given paths.
struct Walk<'a> {
    options: &'a GetStripe,
    worst: Option<Errno>,
}

pub(super) fn run(words: &Words) -> Result<(), Fault> {
    let parts = GRAMMAR.read(&words.words)?;
    if wants_help(&parts) {
        text_out(&GRAMMAR.help());
        return Ok(());
    }
    let options = GetStripe::read(parts)?;
    let mut walk = Walk { options: &options, worst: None };
    for path in &options.paths {
        let found = match options.no_follow {
            true => std::fs::symlink_metadata(path),
            false => std::fs::metadata(path),
        };
        match found {
            Ok(found) => walk.given(path, &found),
            Err(error) => walk.failed("cannot open", path, errno_of(&error)),
        }
    }
    outcome(walk.worst)
}

impl Walk<'_> {
    fn failed(&mut self, what: &str, path: &Path, errno: Errno) {
        eprintln!("lfs getstripe: {what} '{}': {errno} ({})", shown_path(path), errno.0);
        self.worst.get_or_insert(errno);
    }

    /// A given directory is shown with what it holds, unless options ask for it alone.
    fn given(&mut self, path: &Path, found: &Metadata) {
        if let Some(ost) = self.options.ost.as_ref().filter(|ost| !is_known(ost, path)) {
            eprintln!("lfs getstripe: unknown obduuid: {}", ost.text);
            // As Lustre's tool leaves, which looks for the OSTs in the path as in a directory.
            let errno = if found.is_dir() { Errno::EINVAL } else { Errno::ENOTDIR };
            self.worst.get_or_insert(errno);
            return;
        }
        let shown = self.show(path, found.is_dir());
        let alone = self.options.itself && !self.options.recursive;
        if !shown || !found.is_dir() || alone {
            return;
        }
        let mut below = vec![path.to_owned()];
        while let Some(folder) = below.pop() {
            for (entry, is_folder) in self.entries(&folder) {
                self.show(&entry, is_folder);
                if is_folder && self.options.recursive {
                    below.push(entry);
                }
            }
        }
    }

    /// Files and directories in `folder`, by name; nothing else has a layout.
    fn entries(&mut self, folder: &Path) -> Vec<(PathBuf, bool)> {
        let read = match std::fs::read_dir(folder) {
            Ok(read) => read,
            Err(error) => {
                self.failed("cannot open", folder, errno_of(&error));
                return Vec::new();
            }
        };
        let kind = |entry: std::fs::DirEntry| {
            let kind = entry.file_type().ok()?;
            (kind.is_dir() || kind.is_file()).then(|| (entry.path(), kind.is_dir()))
        };
        let mut found: Vec<(PathBuf, bool)> = read.flatten().filter_map(kind).collect();
        found.sort();
        found
    }

    /// Whether it could be shown, or need not be.
    fn show(&mut self, path: &Path, is_folder: bool) -> bool {
        let shown = match self.options.mdt_index {
            true => mdt_index(path).map(String::into_bytes),
            false => self.layout_text(path, is_folder),
        };
        match shown {
            Ok(ref text) => write_out(text),
            Err(errno @ Errno::ENOTTY) => {
                let text = format!("'{}' is not on a Lustre filesystem", shown_path(path));
                eprintln!("lfs getstripe: {text}: {errno} ({})", errno.0);
                self.worst.get_or_insert(errno);
            }
            Err(errno) => self.failed("cannot get the layout of", path, errno),
        }
        shown.is_ok()
    }

    fn layout_text(&self, path: &Path, is_folder: bool) -> Result<Vec<u8>, Errno> {
        let options = self.options;
        let Some(layout) = layout(path, is_folder, options.raw)? else {
            return Ok([path.as_os_str().as_bytes(), b" has no stripe info\n"].concat());
        };
        let bare = options.itself && !options.recursive;
        let style = Style {
            fields: options.fields,
            filter: options.filter,
            ost: options.ost.as_ref().map(|ost| ost.index.map_or(u32::MAX, u32::from)),
            is_default: is_folder,
            raw: options.raw,
            yaml: options.yaml,
            hex: options.hex,
        };
        Ok(text_of_file(&layout, (!bare).then_some(path), style))
    }
}

/// Whether the file system at `path` has the OST; a mount that does not answer is believed to.
fn is_known(ost: &Ost, path: &Path) -> bool {
    let targets = Mount::of(path).ok().and_then(|mut mount| mount.ask(TARGETS, &[]).ok());
    targets.is_none_or(|targets: Vec<MountTarget>| ost.is_among(&targets))
}

/// The file's layout. A directory without default has that of the file system's root, and if that
/// has none, Lustre's.
fn layout(path: &Path, is_folder: bool, raw: bool) -> Result<Option<LovEa>, Errno> {
    let own = attributes::layout(path)?;
    if own.is_some() || !is_folder {
        return Ok(own);
    }
    let default = if raw { None } else { attributes::layout(&root_of(path)?)? };
    Ok(Some(default.unwrap_or_else(built_in)))
}

fn built_in() -> LovEa {
    let header = LovMdHeader {
        magic: LovMagic::V1,
        pattern: LovPattern::RAID0,
        layout_gen: u16::MAX,
        ..LovMdHeader::default()
    };
    LovEa::Plain(LovMd { header, ..LovMd::default() })
}

/// The topmost directory on the same file system.
fn root_of(path: &Path) -> Result<PathBuf, Errno> {
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev());
    let mut root = std::fs::canonicalize(path).map_err(|error| errno_of(&error))?;
    let own = device(&root).map_err(|error| errno_of(&error))?;
    while let Some(parent) =
        root.parent().filter(|parent| device(parent).is_ok_and(|dev| dev == own))
    {
        root = parent.to_owned();
    }
    Ok(root)
}

fn mdt_index(path: &Path) -> Result<String, Errno> {
    let fid = attributes::fid(path).map_err(|errno| match errno {
        Errno::ENODATA => Errno::ENOTTY,
        errno => errno,
    })?;
    MdtsOf::at(path)?.find(fid).map(|index| format!("{index}\n"))
}

#[cfg(test)]
mod tests {
    use super::Ost;
    use sheen_control::api::{Kind, MountTarget};

    #[test]
    fn osts_are_known_by_index_and_by_uuid() {
        let target = |kind, index, name: &str| MountTarget {
            kind,
            index,
            uuid: format!("{name}_UUID"),
            device: String::new(),
            active: true,
        };
        let all = [target(Kind::Mdt, 1, "l-MDT0001"), target(Kind::Ost, 0, "l-OST0000")];
        for (text, known) in [
            ("0", true),
            ("l-OST0000", true),
            ("l-OST0000_UUID", true),
            ("1", false),
            ("9", false),
            ("l-OST0009_UUID", false),
            ("other-OST0000_UUID", false),
            ("l-MDT0001_UUID", false),
            ("bogus", false),
        ] {
            assert_eq!(Ost::read(text).is_among(&all), known, "{text}");
        }
    }
}
