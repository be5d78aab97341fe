//! `lfs getstripe`: the layouts of files and the default layouts of directories.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use sheen_types::{Errno, TargetName};
use sheen_wire::lov::{LovEa, LovMagic, LovMd, LovMdHeader, LovPattern};

use super::attributes;
use super::layout_text::{Fields, Style, text};
use super::mount::Mount;
use crate::api::{Kind, TARGETS, Target};
use crate::output::{Fault, errno_of, line, text_out, worst as outcome};

/// Options of Lustre's `getstripe` that are not here yet.
pub(super) const REFUSED: &[&str] = &[
    "-y",
    "--yaml",
    "-D",
    "--default",
    "-I",
    "--component-id",
    "--comp-id",
    "-E",
    "--component-end",
    "--comp-end",
    "--component-flags",
    "--comp-flags",
    "--component-count",
    "--comp-count",
    "--component-start",
    "--comp-start",
    "-z",
    "--extension-size",
    "--ext-size",
    "-N",
    "--mirror-count",
    "--mirror-index",
    "--mirror-id",
    "--hex-idx",
    "--no-follow",
];

/// Options of `getstripe`.
#[derive(Args)]
pub(super) struct GetStripe {
    /// Only files on this OST: its index or UUID
    #[arg(short = 'O', long, value_name = "OST")]
    ost: Option<String>,
    /// Only the objects
    #[arg(short, long)]
    quiet: bool,
    /// Magic and FID, too
    #[arg(short, long)]
    verbose: bool,
    /// Only the number of stripes
    #[arg(short = 'c', long)]
    stripe_count: bool,
    /// Only the first OST
    #[arg(short = 'i', long)]
    stripe_index: bool,
    /// Only the FID
    #[arg(short = 'F', long)]
    fid: bool,
    /// Only the pool
    #[arg(short, long)]
    pool: bool,
    /// Only the size of a stripe
    #[arg(short = 'S', long)]
    stripe_size: bool,
    /// The directory itself, not what it holds
    #[arg(short, long)]
    directory: bool,
    /// Only the index of the MDT
    #[arg(short, long, alias = "mdt")]
    mdt_index: bool,
    /// All directories below, too
    #[arg(short, long)]
    recursive: bool,
    /// Zeros where the defaults of the file system hold
    #[arg(short = 'R', long)]
    raw: bool,
    /// Only the kind of layout
    #[arg(short = 'L', long)]
    layout: bool,
    /// Only the generation of the layout
    #[arg(short, long)]
    generation: bool,
    /// Files or directories
    #[arg(required = true, value_name = "FILENAME|DIRECTORY")]
    paths: Vec<PathBuf>,
}

impl GetStripe {
    fn fields(&self) -> Fields {
        let chosen = Fields {
            identity: false,
            fid: self.fid,
            count: self.stripe_count,
            size: self.stripe_size,
            pattern: self.layout,
            generation: self.generation,
            offset: self.stripe_index,
            pool: self.pool,
            objects: self.quiet,
        };
        match (chosen == Fields::default(), self.verbose) {
            (true, verbose) => Fields { identity: verbose, ..Fields::USUAL },
            (false, _) => chosen,
        }
    }

    fn ost_index(&self) -> Result<Option<u32>, Fault> {
        let Some(text) = &self.ost else { return Ok(None) };
        let index = text.parse::<u16>().ok();
        let named = || text.parse::<TargetName>().ok().map(|name| name.index);
        index.or_else(named).map(|index| Some(index.into())).ok_or_else(|| {
            let errno = Errno::EINVAL;
            Fault::new(
                errno,
                format!("lfs getstripe: '{text}' is neither index nor UUID of an OST"),
            )
        })
    }
}

/// One walk over the given paths.
struct Walk<'a> {
    options: &'a GetStripe,
    fields: Fields,
    ost: Option<u32>,
    worst: Option<Errno>,
}

pub(super) fn run(options: &GetStripe) -> Result<(), Fault> {
    let (fields, ost) = (options.fields(), options.ost_index()?);
    let mut walk = Walk { options, fields, ost, worst: None };
    for path in &options.paths {
        match std::fs::metadata(path) {
            Ok(found) => walk.given(path, &found),
            Err(error) => walk.failed("cannot open", path, errno_of(&error)),
        }
    }
    outcome(walk.worst)
}

impl Walk<'_> {
    fn failed(&mut self, what: &str, path: &Path, errno: Errno) {
        eprintln!("lfs getstripe: {what} '{}': {errno} ({})", path.display(), errno.0);
        self.worst = Some(errno);
    }

    /// Without `-d`, a given directory is shown with what it holds.
    fn given(&mut self, path: &Path, found: &Metadata) {
        let shown = self.show(path, found.is_dir());
        if !shown || !found.is_dir() || self.options.directory {
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
            true => mdt_index(path).map(Some),
            false => self.layout_text(path, is_folder),
        };
        match shown {
            Ok(ref text) => text_out(text.as_deref().unwrap_or_default()),
            Err(errno @ Errno::ENOTTY) => {
                let text = format!("'{}' is not on a Lustre filesystem", path.display());
                eprintln!("lfs getstripe: {text}: {errno} ({})", errno.0);
                self.worst = Some(errno);
            }
            Err(errno) => self.failed("cannot get the layout of", path, errno),
        }
        shown.is_ok()
    }

    fn layout_text(&self, path: &Path, is_folder: bool) -> Result<Option<String>, Errno> {
        let Some(layout) = layout(path, is_folder, self.options.raw)? else {
            line(format_args!("{} has no stripe info", path.display()));
            return Ok(None);
        };
        if self.ost.is_some_and(|ost| is_folder || !lies_on(&layout, ost)) {
            return Ok(None);
        }
        let style = Style { fields: self.fields, is_default: is_folder, raw: self.options.raw };
        let bare = self.fields.is_single() || is_folder && self.options.directory;
        let name = if bare { String::new() } else { format!("{}\n", path.display()) };
        Ok(Some(name + &text(&layout, style)))
    }
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

fn lies_on(layout: &LovEa, ost: u32) -> bool {
    let plain = |plain: &LovMd| plain.stripes.iter().any(|stripe| stripe.ost_idx == ost);
    match layout {
        LovEa::Plain(layout) => plain(layout),
        LovEa::Composite(composite) => {
            composite.components.iter().any(|component| plain(&component.layout))
        }
        LovEa::Foreign(_) => false,
    }
}

/// With one MDT the answer is known without asking where a FID lies.
fn mdt_index(path: &Path) -> Result<String, Errno> {
    attributes::fid(path).map_err(|errno| match errno {
        Errno::ENODATA => Errno::ENOTTY,
        errno => errno,
    })?;
    let targets: Vec<Target> = Mount::of(path)?.ask(TARGETS, &[]).map_err(|(errno, _)| errno)?;
    let mut mdts = targets.iter().filter(|target| target.kind == Kind::Mdt);
    match (mdts.next(), mdts.next()) {
        (Some(mdt), None) => Ok(format!("{}\n", mdt.index)),
        _ => Err(Errno::EOPNOTSUPP),
    }
}
