//! Walking directories and printing the files that match.
//!
//! One thread goes down into each directory where it finds it, in the directory's order, as Lustre's
//! tool does. Several threads take directories from a common list; each file's text is written in
//! one piece.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{FileType, Statx};
use sheen_types::{Errno, Fid};
use sheen_wire::lmv::{LmvHash, LmvMdsMd};
use sheen_wire::lov::LovEa;

use super::predicates::File;
use super::{Find, times};
use crate::lfs::attributes::{self, Xattr};
use crate::lfs::mdt_of::MdtsOf;
use crate::output::{Fault, errno_of, shown_path, worst as outcome, write_out};

/// A directory entry, asked for what it is as tests need it.
struct Entry<'a> {
    path: &'a Path,
    depth: usize,
    kind: Option<FileType>,
    lazy: bool,
    mdts: &'a Mutex<Option<MdtsOf>>,
    found: OnceCell<Result<Statx, Errno>>,
    layout: OnceCell<Result<Option<LovEa>, Errno>>,
}

impl File for Entry<'_> {
    fn name(&self) -> &OsStr {
        match self.path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/').next() {
            Some(name) if !name.is_empty() => OsStr::from_bytes(name),
            _ => self.path.as_os_str(),
        }
    }

    fn kind(&self) -> Result<FileType, Errno> {
        match self.kind {
            Some(kind) => Ok(kind),
            None => Ok(FileType::from_raw_mode(self.attributes()?.stx_mode.into())),
        }
    }

    fn attributes(&self) -> Result<&Statx, Errno> {
        let found = self.found.get_or_init(|| times::status(self.path, self.lazy));
        found.as_ref().map_err(|errno| *errno)
    }

    fn layout(&self) -> Result<Option<&LovEa>, Errno> {
        if !matches!(self.kind()?, FileType::RegularFile | FileType::Directory) {
            return Ok(None);
        }
        let layout = self.layout.get_or_init(|| attributes::layout(self.path));
        layout.as_ref().map(Option::as_ref).map_err(|errno| *errno)
    }

    fn xattrs(&self) -> Result<Vec<Xattr>, Errno> {
        attributes::all(self.path)
    }

    fn stripes(&self) -> Result<(u64, LmvHash), Errno> {
        let found = attributes::stripes(self.path)?;
        let shown =
            |(header, stripes): (LmvMdsMd, Vec<Fid>)| (stripes.len() as u64, header.hash_type);
        Ok(found.map_or((0, LmvHash::UNKNOWN), shown))
    }

    fn mdt(&self) -> Result<u32, Errno> {
        let mut mdts = self.mdts.lock();
        // On no mount of ours.
        let mdts = mdts.as_mut().ok_or(Errno::EOPNOTSUPP)?;
        let fid = match mdts.all() {
            [_] => Fid::ZERO,
            _ => attributes::fid(self.path)?,
        };
        mdts.find(fid).map(u32::from)
    }
}

/// A directory to be read, and how deep it lies.
type Folder = (PathBuf, usize);

/// What all threads share.
struct Walk<'a> {
    find: &'a Find,
    mdts: Mutex<Option<MdtsOf>>,
    list: Mutex<List>,
    changed: Condvar,
    end: Mutex<End>,
}

#[derive(Default)]
struct List {
    folders: VecDeque<Folder>,
    busy: usize,
}

#[derive(Default)]
struct End {
    worst: Option<Errno>,
    matched: u64,
    skipped: u64,
}

pub(super) fn run(find: &Find) -> Result<(), Fault> {
    let mut worst = None;
    for path in &find.paths {
        let mdts = MdtsOf::at(path).ok();
        let count = mdts.as_ref().map_or(0, |mdts| mdts.all().len());
        let (threads, mdts) =
            (find.threads.unwrap_or_else(|| usual_threads(count)), Mutex::new(mdts));
        let (list, changed, end) = (Mutex::default(), Condvar::new(), Mutex::default());
        let walk = Walk { find, mdts, list, changed, end };
        walk.start(path, threads);
        worst = worst.or(walk.end.into_inner().worst);
    }
    outcome(worst)
}

/// As many as Lustre's tool takes: four for each MDT, half of the processors at most.
fn usual_threads(mdts: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (mdts.max(1) * 4).min(processors / 2).max(1)
}

impl Walk<'_> {
    fn start(&self, path: &Path, threads: usize) {
        let kind = match times::status(path, self.find.lazy) {
            Ok(found) => FileType::from_raw_mode(found.stx_mode.into()),
            Err(errno) => return self.failed(path, errno),
        };
        self.look(path, 0, Some(kind));
        if kind != FileType::Directory || self.find.depth_max == 0 {
            return;
        }
        if threads == 1 {
            return self.descend(path, 1);
        }
        self.list.lock().folders.push_back((path.to_owned(), 1));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| self.work());
            }
        });
    }

    fn failed(&self, path: &Path, errno: Errno) {
        let text = match errno {
            Errno::ENOTTY => format!("'{}' is not on a Lustre filesystem", shown_path(path)),
            _ => format!("failed for '{}'", shown_path(path)),
        };
        eprintln!("lfs find: {text}: {errno}");
        self.end.lock().worst.get_or_insert(errno);
    }

    /// Everything below a directory, at once.
    fn descend(&self, folder: &Path, depth: usize) {
        self.entries(folder, |path, kind| {
            self.look(&path, depth, kind);
            if self.goes_on(&path, depth, kind) {
                self.descend(&path, depth + 1);
            }
        });
    }

    /// Takes directories from the list until it is empty and no other thread works on one.
    fn work(&self) {
        loop {
            let mut list = self.list.lock();
            let (folder, depth) = loop {
                if let Some(next) = list.folders.pop_front() {
                    break next;
                }
                if list.busy == 0 {
                    self.changed.notify_all();
                    return;
                }
                self.changed.wait(&mut list);
            };
            list.busy += 1;
            drop(list);
            let mut below = VecDeque::new();
            self.entries(&folder, |path, kind| {
                self.look(&path, depth, kind);
                if self.goes_on(&path, depth, kind) {
                    below.push_back((path, depth + 1));
                }
            });
            let mut list = self.list.lock();
            list.busy -= 1;
            list.folders.append(&mut below);
            self.changed.notify_all();
        }
    }

    /// Whether it is a directory to go into.
    fn goes_on(&self, path: &Path, depth: usize, kind: Option<FileType>) -> bool {
        let kind = kind.or_else(|| {
            let found = times::status(path, true).ok()?;
            Some(FileType::from_raw_mode(found.stx_mode.into()))
        });
        kind == Some(FileType::Directory) && depth < self.find.depth_max
    }

    /// Each entry of a directory with its type, if the directory has it.
    fn entries(&self, folder: &Path, mut each: impl FnMut(PathBuf, Option<FileType>)) {
        let read = match std::fs::read_dir(folder) {
            Ok(read) => read,
            Err(error) => return self.failed(folder, errno_of(&error)),
        };
        for entry in read {
            match entry {
                Ok(entry) => each(entry.path(), entry.file_type().ok().map(kind_of)),
                Err(error) => return self.failed(folder, errno_of(&error)),
            }
        }
    }

    /// Prints an entry if it fits.
    fn look(&self, path: &Path, depth: usize, kind: Option<FileType>) {
        if depth < self.find.depth_min {
            return;
        }
        let entry = Entry {
            path,
            depth,
            kind,
            lazy: self.find.lazy,
            mdts: &self.mdts,
            found: OnceCell::new(),
            layout: OnceCell::new(),
        };
        let text = match self.find.tests.fit(&entry) {
            Ok(true) => self.text(&entry),
            Ok(false) => return,
            Err(errno) => Err(errno),
        };
        match text {
            // It went away while we were on our way to it.
            Err(Errno::ENOENT) if entry.depth > 0 => {}
            Err(errno) => self.failed(path, errno),
            Ok(text) if !self.is_skipped() => write_out(&text),
            Ok(_) => {}
        }
    }

    fn text(&self, entry: &Entry) -> Result<Vec<u8>, Errno> {
        match &self.find.format {
            Some(format) => format.text(entry.path, entry),
            None => {
                let end = if self.find.zero { 0 } else { b'\n' };
                Ok([entry.path.as_os_str().as_bytes(), &[end]].concat())
            }
        }
    }

    /// Leaves out one of those found, as often as was asked for.
    fn is_skipped(&self) -> bool {
        let mut end = self.end.lock();
        let skip = end.skipped * 100 < end.matched * self.find.skip_percent;
        end.matched += 1;
        end.skipped += u64::from(skip);
        skip
    }
}

fn kind_of(kind: std::fs::FileType) -> FileType {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        kind if kind.is_dir() => FileType::Directory,
        kind if kind.is_file() => FileType::RegularFile,
        kind if kind.is_symlink() => FileType::Symlink,
        kind if kind.is_block_device() => FileType::BlockDevice,
        kind if kind.is_char_device() => FileType::CharacterDevice,
        kind if kind.is_fifo() => FileType::Fifo,
        kind if kind.is_socket() => FileType::Socket,
        _ => FileType::Unknown,
    }
}
