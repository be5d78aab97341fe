//! A whole tree as values, to compare before and after.
//!
//! Access times are left out: looking changes them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::{Context, Outcome, bytes};

/// All that must survive about one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// File type and permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Inode number and number of names.
    pub inode: (u64, u64),
    /// Device number of a device node.
    pub device: u64,
    /// Bytes; zero for directories, whose size is the file system's own affair.
    pub size: u64,
    /// Modification and change time, seconds and nanoseconds.
    pub times: [(i64, i64); 2],
    /// Names and values of the `user.` attributes.
    pub attributes: BTreeMap<String, Vec<u8>>,
    /// Checksum of a regular file, target of a symbolic link.
    pub content: Content,
}

/// What lies in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A regular file's checksum.
    Data(u64),
    /// A symbolic link's target.
    Link(PathBuf),
    /// Nothing to compare here.
    Other,
}

/// Everything below `top`, by path relative to it.
pub type Tree = BTreeMap<PathBuf, Entry>;

/// Reads everything below `top`, `top` itself left out.
pub fn read(top: &Path) -> Outcome<Tree> {
    let mut tree = Tree::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).context(folder.display())? {
            let path = entry.context(folder.display())?.path();
            let read = read_entry(&path)?;
            if matches!(read.mode & 0o170_000, 0o040_000) {
                folders.push(path.clone());
            }
            let name = path.strip_prefix(top).expect("it was found below").to_owned();
            if tree.insert(name, read).is_some() {
                return Err(format!("{}: listed twice", path.display()));
            }
        }
    }
    Ok(tree)
}

fn read_entry(path: &Path) -> Outcome<Entry> {
    let meta = path.symlink_metadata().context(path.display())?;
    let content = if meta.is_file() {
        Content::Data(bytes::checksum(path)?)
    } else if meta.is_symlink() {
        Content::Link(fs::read_link(path).context(path.display())?)
    } else {
        Content::Other
    };
    let attributes =
        if meta.is_file() || meta.is_dir() { read_attributes(path)? } else { BTreeMap::new() };
    Ok(Entry {
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        inode: (meta.ino(), meta.nlink()),
        device: meta.rdev(),
        size: if meta.is_dir() { 0 } else { meta.size() },
        times: [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())],
        attributes,
        content,
    })
}

fn read_attributes(path: &Path) -> Outcome<BTreeMap<String, Vec<u8>>> {
    let mut list = vec![0; 65536];
    let length = match rustix::fs::listxattr(path, &mut list[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP) => 0,
        Err(error) => return Err(format!("{}: listxattr: {error}", path.display())),
    };
    let names = list[..length].split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let mut found = BTreeMap::new();
    for name in names.filter(|name| name.starts_with("user.")) {
        let mut value = vec![0; 65536];
        let length = rustix::fs::getxattr(path, name.as_ref(), &mut value[..])
            .context(format_args!("{}: getxattr {name}", path.display()))?;
        found.insert(name.into_owned(), value[..length].to_vec());
    }
    Ok(found)
}

/// One line per name that is missing, new or different; nothing when the trees are the same.
pub fn differences(before: &Tree, after: &Tree) -> Vec<String> {
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    let mut lines: Vec<String> = gone.map(|name| format!("{}: gone", name.display())).collect();
    for (name, entry) in after {
        match before.get(name) {
            None => lines.push(format!("{}: new", name.display())),
            Some(old) if old != entry => {
                lines.push(format!("{}: was {old:?}, is {entry:?}", name.display()));
            }
            Some(_) => {}
        }
    }
    lines
}

/// Fails, with the first differences, unless the trees are the same and not empty.
pub fn must_equal(before: &Tree, after: &Tree) -> Outcome {
    let lines = differences(before, after);
    if before.is_empty() {
        return Err("nothing to compare".to_owned());
    }
    if lines.is_empty() {
        return Ok(());
    }
    let first = lines.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    Err(format!("{} of {} names differ:\n{first}", lines.len(), before.len()))
}

/// What must hold of any tree by itself: as many names as links, directories with their links.
pub fn must_be_consistent(tree: &Tree) -> Outcome {
    let mut names: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for entry in tree.values().filter(|entry| entry.mode & 0o170_000 != 0o040_000) {
        let (inode, links) = entry.inode;
        let seen = names.entry(inode).or_insert((0, links));
        seen.0 += 1;
        if seen.1 != links {
            return Err(format!("inode {inode}: {links} links under one name, {} else", seen.1));
        }
    }
    let wrong = names.iter().find(|(_, (found, links))| found != links);
    match wrong {
        None => Ok(()),
        Some((inode, (found, links))) => {
            Err(format!("inode {inode}: {found} names found, {links} links shown"))
        }
    }
}
