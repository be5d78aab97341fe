//! Whether a client sees the model's whole tree, and the same in what it holds open.

use std::collections::{BTreeMap, VecDeque};

use sheen_client::posix::{
    Attributes, DirCookie, FileHandle, FileType, NodeId, OpenFlags, TYPE_MASK,
};
use sheen_types::{Errno, Name};

use crate::driver::{ATTRIBUTE, Driver};
use crate::model::{Inode, Kind, Model, ROOT};
use crate::operation::SLOTS;

/// Names asked for at once: fewer than there may be.
const NAMES_AT_ONCE: usize = 3;
/// Bytes of one read.
const READ_BYTES: u32 = 1 << 17;

/// Walks the tree, and looks at what client number `client` holds open.
pub(crate) async fn tree(driver: &mut Driver, client: usize, model: &Model) -> Result<(), String> {
    let mut inodes = BTreeMap::new();
    let mut left = VecDeque::from([(String::from("/"), NodeId::ROOT, ROOT)]);
    while let Some((path, node, number)) = left.pop_front() {
        let described = |errno: Errno| format!("{path}: {errno}");
        let inode = model.inode(number);
        let stat = driver.files.getattr(&driver.who, node).await.map_err(described)?;
        attributes(&stat.attributes, inode).map_err(|fault| format!("{path}: {fault}"))?;
        if inodes.insert(number, stat.attributes.ino).is_some_and(|it| it != stat.attributes.ino) {
            return Err(format!("{path}: its names have several inodes"));
        }
        extended(driver, node, inode).await.map_err(|fault| format!("{path}: {fault}"))?;
        match &inode.kind {
            Kind::Directory(names) => {
                list(driver, node, names).await.map_err(|fault| format!("{path}: {fault}"))?;
                for (text, child) in names {
                    let name = Name::new(text.as_bytes()).expect("a legal name");
                    let found = driver.lookup(node, &name).await.map_err(described)?;
                    let found = found.ok_or_else(|| format!("{path}{text}: not found"))?;
                    left.push_back((format!("{path}{text}/"), found.node, *child));
                }
            }
            Kind::Regular(bytes) => {
                let opened = driver.files.open(&driver.who, node, OpenFlags(0)).await;
                let handle = opened.map_err(described)?.handle;
                let same = content(driver, handle, bytes).await;
                driver.release(handle).await.map_err(described)?;
                same.map_err(|fault| format!("{path}: {fault}"))?;
            }
            Kind::Symlink(target) => {
                let read = driver.files.readlink(&driver.who, node).await.map_err(described)?;
                if read != target.as_bytes() {
                    return Err(format!("{path}: {read:?} instead of {target}"));
                }
            }
            Kind::Pipe => {}
        }
    }
    for slot in 0..SLOTS {
        open_file(driver, client, slot, model).await.map_err(|it| format!("slot {slot}: {it}"))?;
    }
    Ok(())
}

async fn open_file(
    driver: &Driver,
    client: usize,
    slot: usize,
    model: &Model,
) -> Result<(), String> {
    let (Some(number), Some((node, handle))) = (model.opened(client, slot), driver.open[slot])
    else {
        return Ok(());
    };
    let stat = driver.files.getattr(&driver.who, node).await.map_err(|errno| errno.to_string())?;
    let inode = model.inode(number);
    attributes(&stat.attributes, inode)?;
    match &inode.kind {
        Kind::Regular(bytes) => content(driver, handle, bytes).await,
        other => Err(format!("{other:?} is open")),
    }
}

fn attributes(seen: &Attributes, inode: &Inode) -> Result<(), String> {
    let (file_type, size) = match &inode.kind {
        Kind::Directory(_) => (FileType::Directory, None),
        Kind::Regular(bytes) => (FileType::Regular, Some(bytes.len() as u64)),
        Kind::Symlink(target) => (FileType::Symlink, Some(target.len() as u64)),
        Kind::Pipe => (FileType::Fifo, Some(0)),
    };
    let expected = (file_type.mode_bits() | inode.mode, inode.links, 0, 0);
    let got = (seen.mode & (TYPE_MASK | 0o7777), seen.nlink, seen.uid, seen.gid);
    if got != expected {
        return Err(format!("mode, links, uid, gid {got:?} instead of {expected:?}"));
    }
    match size {
        Some(size) if size != seen.size => Err(format!("{} bytes instead of {size}", seen.size)),
        _ => Ok(()),
    }
}

async fn extended(driver: &Driver, node: NodeId, inode: &Inode) -> Result<(), String> {
    if !matches!(inode.kind, Kind::Regular(_) | Kind::Directory(_)) {
        return Ok(());
    }
    let expected = inode.attribute.map(|byte| vec![byte]).ok_or(Errno::ENODATA);
    let got = driver.files.getxattr(&driver.who, node, ATTRIBUTE).await.map(|it| it.to_vec());
    match got == expected {
        true => Ok(()),
        false => Err(format!("attribute {got:?} instead of {expected:?}")),
    }
}

/// Lists the directory in small pieces.
async fn list(
    driver: &Driver,
    node: NodeId,
    names: &BTreeMap<&'static str, usize>,
) -> Result<(), String> {
    let described = |errno: Errno| errno.to_string();
    let opened = driver.files.open(&driver.who, node, OpenFlags(OpenFlags::DIRECTORY)).await;
    let handle = opened.map_err(described)?.handle;
    let (mut seen, mut at) = (Vec::new(), DirCookie(0));
    loop {
        let part = driver.files.readdir(handle, at, NAMES_AT_ONCE).await.map_err(described)?;
        let Some(last) = part.last() else { break };
        at = last.next;
        seen.extend(
            part.into_iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()),
        );
    }
    driver.files.release(handle, None).await.map_err(described)?;
    seen.sort_unstable();
    let expected: Vec<&str> = [".", ".."].into_iter().chain(names.keys().copied()).collect();
    match seen == expected {
        true => Ok(()),
        false => Err(format!("lists {seen:?} instead of {expected:?}")),
    }
}

/// Reads to the end.
async fn content(driver: &Driver, handle: FileHandle, expected: &[u8]) -> Result<(), String> {
    let mut at = 0;
    loop {
        let read = driver.files.read(handle, at as u64, READ_BYTES).await;
        let read = read.map_err(|errno| format!("read at {at}: {errno}"))?;
        let length: usize = read.iter().map(|piece| piece.len()).sum();
        if length == 0 {
            break;
        }
        for piece in read {
            let place = expected.get(at..at + piece.len());
            if place != Some(&piece[..]) {
                return Err(format!("other bytes in {at}..{}", at + piece.len()));
            }
            at += piece.len();
        }
    }
    match at == expected.len() {
        true => Ok(()),
        false => Err(format!("ends at {at} instead of {}", expected.len())),
    }
}
