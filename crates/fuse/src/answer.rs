//! Sending answers back in the forms the kernel wants.

use std::time::Duration;

use bytes::Bytes;
use sheen_client::posix::{
    DirEntry, DirEntryPlus, Entry, FileSystem, FileType, Lookup, NAME_TIMEOUT, NodeId, Opened, Stat,
};
use sheen_fuse_wire::{
    FileAttr, FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatx, ReplyXattr,
};
use sheen_types::Errno;

use crate::convert::{self, time_to_live};
use crate::special::{self, Special};

pub(crate) fn empty(reply: ReplyEmpty, answer: Result<(), Errno>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

fn with_attributes(entry: Entry) -> Result<(Entry, FileAttr), Errno> {
    let attributes = convert::attributes(entry.node, &entry.attributes)?;
    Ok((entry, attributes))
}

pub(crate) fn entry(reply: ReplyEntry, answer: Result<Entry, Errno>) {
    match answer.and_then(with_attributes) {
        Ok((entry, attributes)) => reply.entry(
            (convert::name_time_to_live(&entry), time_to_live(entry.keep.attributes)),
            INodeNo(entry.node.0),
            &attributes,
            Generation(entry.generation),
        ),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

pub(crate) fn lookup(reply: ReplyEntry, answer: Result<Lookup, Errno>) {
    match answer {
        Ok(Lookup::Found(found)) => entry(reply, Ok(found)),
        Ok(Lookup::Absent { keep: true }) => {
            reply.entry(
                (NAME_TIMEOUT, NAME_TIMEOUT),
                INodeNo(0),
                &FileAttr::default(),
                Generation(0),
            );
        }
        Ok(Lookup::Absent { keep: false }) => reply.error(Errno::ENOENT),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

pub(crate) fn stat(reply: ReplyAttr, node: NodeId, answer: Result<Stat, Errno>) {
    match answer.and_then(|stat| seen(node, &stat)) {
        Ok((keep, attributes)) => reply.attr(keep, &attributes),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

pub(crate) fn statx(reply: ReplyStatx, node: NodeId, answer: Result<Stat, Errno>) {
    match answer.and_then(|stat| seen(node, &stat)) {
        Ok((keep, attributes)) => reply.attr(keep, &attributes),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

/// Attributes as programs see them, and how long the kernel may keep them.
fn seen(node: NodeId, stat: &Stat) -> Result<(Duration, FileAttr), Errno> {
    let attributes = convert::attributes(node, &stat.attributes)?;
    let keep = stat.keep && !special::is_strangers(node);
    Ok((time_to_live(keep), FileAttr { ino: stat.attributes.ino, ..attributes }))
}

fn open_flags(opened: Opened) -> FopenFlags {
    let mut flags = FopenFlags::PARALLEL_DIRECT_WRITES;
    if opened.keep_pages {
        flags |= FopenFlags::KEEP_CACHE;
    }
    if opened.sends_no_flush {
        flags |= FopenFlags::NOFLUSH;
    }
    if opened.bypasses_page_cache {
        flags |= FopenFlags::DIRECT_IO;
    }
    flags
}

pub(crate) fn opened(reply: ReplyOpen, answer: Result<Opened, Errno>) {
    match answer {
        Ok(opened) => reply.opened(FileHandle(opened.handle.0), open_flags(opened)),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

pub(crate) fn created(reply: ReplyCreate, answer: Result<(Entry, Opened), Errno>) {
    let converted = |(entry, opened)| Ok((with_attributes(entry)?, opened));
    match answer.and_then(converted) {
        Ok(((entry, attributes), opened)) => reply.created(
            convert::joint_time_to_live(&entry),
            (INodeNo(entry.node.0), Generation(entry.generation)),
            &attributes,
            FileHandle(opened.handle.0),
            open_flags(opened),
        ),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

pub(crate) fn data(reply: ReplyData, answer: Result<Vec<Bytes>, Errno>) {
    match answer {
        Ok(pieces) => reply.pieces(&pieces),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

/// `size` is the room the caller has; 0 asks how much is needed.
pub(crate) fn xattr(reply: ReplyXattr, size: u32, answer: Result<Bytes, Errno>) {
    match answer {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

pub(crate) fn directory(mut reply: ReplyDirectory, answer: Result<Vec<DirEntry>, Errno>) {
    match answer {
        Ok(entries) => {
            for entry in entries {
                if reply.add(entry.ino, entry.next.0, type_bits(&entry), &entry.name) {
                    break;
                }
            }
            reply.ok();
        }
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

/// Entries that found no room are forgotten again: the kernel never got them.
pub(crate) fn directory_plus(
    (file_system, special): (&FileSystem, Special),
    mut reply: ReplyDirectoryPlus,
    answer: Result<Vec<DirEntryPlus>, Errno>,
) {
    let entries = match answer {
        Ok(entries) => entries,
        Err(errno) => return reply.error(convert::errno(errno)),
    };
    let mut full = false;
    for DirEntryPlus { entry, found } in entries {
        let found = found.map(|found| special.stranger(found));
        if !full {
            full = add_plus(&mut reply, &entry, found.as_ref());
        }
        if let (true, Some(found)) = (full, found) {
            file_system.forget(special::own(found.node), 1);
        }
    }
    reply.ok();
}

/// Only `.` and `..` come without attributes: the kernel lists them and looks at nothing else of them.
/// Of any other name it would take the inode number here for a node that it knows from now on, of
/// generation 0, and spoil the inode that it has by that number.
fn add_plus(reply: &mut ReplyDirectoryPlus, entry: &DirEntry, found: Option<&Entry>) -> bool {
    let name = &entry.name;
    let found = found.map(|found| (found, convert::attributes(found.node, &found.attributes)));
    match found {
        Some((found, Ok(attributes))) => reply.add(
            (INodeNo(found.node.0), Generation(found.generation)),
            entry.next.0,
            name,
            convert::joint_time_to_live(found),
            &attributes,
        ),
        // The name is left out: a lookup of it reports the error.
        Some((_, Err(_))) => false,
        None => {
            let mode = type_bits(entry);
            let attributes = FileAttr { ino: entry.ino, mode, ..FileAttr::default() };
            let never = Duration::ZERO;
            reply.add((INodeNo(0), Generation(0)), entry.next.0, name, never, &attributes)
        }
    }
}

/// An entry's type, as a mode has it.
fn type_bits(entry: &DirEntry) -> u32 {
    entry.file_type.unwrap_or(FileType::Regular).mode_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_says_what_the_kernel_may_keep_and_what_it_need_not_send() {
        let handle = sheen_client::posix::FileHandle(1);
        let plain = Opened {
            handle,
            keep_pages: false,
            bypasses_page_cache: false,
            sends_no_flush: false,
            tally: sheen_client::posix::OpenCounts::default(),
        };
        let (keep, sends_no_flush) = (true, true);
        let always = FopenFlags::PARALLEL_DIRECT_WRITES;
        assert_eq!(open_flags(plain), always);
        let kept = open_flags(Opened { keep_pages: keep, ..plain });
        assert_eq!(kept, always | FopenFlags::KEEP_CACHE);
        assert_eq!(open_flags(Opened { sends_no_flush, ..plain }), always | FopenFlags::NOFLUSH);
    }
}
