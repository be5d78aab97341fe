//! What the captured sessions did, as far as the answers to it are in the captures: our client asks
//! by itself for what the real one had in a batch, or knew.

use bytes::Bytes;
use sheen_client::posix::{
    Fallocate, FileLock, FileLockMode, LockOwner, NewNode, NodeId, OpenFlags, RenameMode,
    SetAttributes, SetTime, XattrMode,
};
use sheen_types::{Errno, MdtIndex, Timestamp};
use sheen_wire::lov::{LovEa, LovMagic, LovMd, LovMdHeader, LovPattern};
use sheen_wire::messages::Request;

use super::{Caller, READ_WRITE, WRITE, name};
use crate::script::Script;

/// The data that the captured client wrote first.
pub(super) fn first_written(script: &Script) -> Bytes {
    let mut writes = script.exchanges.iter().filter_map(|exchange| match &exchange.request.typed {
        Request::OstWrite(write) if !write.short_io.is_empty() => Some(write.short_io.clone()),
        Request::OstWrite(_) => Some(exchange.bulk.first()?.1.clone()),
        _ => None,
    });
    writes.next().unwrap_or_default()
}

/// A directory that the captured client placed on the second MDT by round robin, and ours places there because it is asked
/// for that: only the MDT that is asked for a directory can answer that it has made it.
pub(super) const ON_SECOND: NewNode = NewNode::DirectoryOn(MdtIndex(1));

/// One after the other, from mount to unmount.
pub(super) async fn all(it: &Caller, _: &Script) -> Result<(), Errno> {
    look_around(it).await?;
    let b = it.make(NodeId::ROOT, "b", NewNode::Directory).await?;
    names(it, b).await?;
    moves(it, b).await?;
    attributes(it, b).await?;
    many(it).await?;
    errors(it).await?;
    let c = it.make(NodeId::ROOT, "c", ON_SECOND).await?;
    small(it, c).await?;
    direct(it, c).await?;
    striped(it, c).await?;
    it.files.unmount().await;
    Ok(())
}

/// a: `lfs df`, `stat` and `ls` of the root.
async fn look_around(it: &Caller) -> Result<(), Errno> {
    let root = it.files.getattr(&it.who, NodeId::ROOT).await?;
    assert_eq!(root.attributes.mode & 0o7777, 0o755);
    it.files.statfs().await?;
    it.list(NodeId::ROOT).await.map(|_| ())
}

/// b1: files and a directory, made and removed.
async fn names(it: &Caller, b: NodeId) -> Result<(), Errno> {
    let file = it.touch(b, "f1").await?;
    assert_eq!(it.files.getattr(&it.who, file).await?.attributes.size, 0);
    it.make(b, "d2", NewNode::Directory).await?;
    it.files.rmdir(&it.who, b, &name("d2")).await
}

/// b2: moved and linked.
async fn moves(it: &Caller, b: NodeId) -> Result<(), Errno> {
    let file = it.touch(b, "r1").await?;
    let rename = async |from: &str, to: &str| {
        let (from, to) = (name(from), name(to));
        it.files.rename(&it.who, (b, &from), (b, &to), RenameMode::Replace).await
    };
    rename("r1", "r2").await?;
    let linked = it.files.link(&it.who, file, b, &name("hard")).await?;
    assert_eq!(linked.node, file);
    let link = it.make(b, "sym", NewNode::Symlink(b"rd/r3"[..].into())).await?;
    assert_eq!(&it.files.readlink(&it.who, link).await?[..], b"rd/r3");
    it.make(b, "rd2", NewNode::Directory).await?;
    it.touch(b, "o1").await?;
    it.touch(b, "o2").await?;
    rename("o1", "o2").await?;
    it.files.unlink(&it.who, b, &name("hard")).await
}

/// b3: modes, owners, times and extended attributes.
async fn attributes(it: &Caller, b: NodeId) -> Result<(), Errno> {
    let file = it.touch(b, "s1").await?;
    it.set(file, SetAttributes { mode: Some(0o600), ..SetAttributes::default() }).await?;
    let owner = SetAttributes { uid: Some(1000), gid: Some(1000), ..SetAttributes::default() };
    it.set(file, owner).await?;
    let handle = it.open(file, WRITE).await?;
    let chosen = Timestamp { seconds: 1_577_934_245, nanoseconds: 0 };
    let time = Some(SetTime::To(chosen));
    it.set(file, SetAttributes { atime: time, mtime: time, ..SetAttributes::default() }).await?;
    it.close(handle).await?;
    let got = it.files.getattr(&it.who, file).await?.attributes;
    assert_eq!((got.mode & 0o7777, got.uid, got.mtime), (0o600, 1000, chosen));
    let set = async |name: &[u8], value: Bytes| {
        it.files.setxattr(&it.who, file, name, value, XattrMode::Any).await
    };
    let get = async |name: &[u8]| it.files.getxattr(&it.who, file, name).await;
    set(b"user.a", Bytes::from_static(b"hello")).await?;
    let names = it.files.listxattr(&it.who, file).await?;
    assert!(names.split(|byte| *byte == 0).any(|name| name == b"user.a"), "{names:?}");
    assert_eq!(&get(b"user.a").await?[..], b"hello");
    set(b"trusted.t", Bytes::from_static(b"tv")).await?;
    assert_eq!(&get(b"trusted.t").await?[..], b"tv");
    it.files.removexattr(&it.who, file, b"user.a").await?;
    assert_eq!(get(b"user.a").await, Err(Errno::ENODATA));
    let big = Bytes::from(vec![b'x'; 1000]);
    set(b"user.big", big.clone()).await?;
    assert_eq!(get(b"user.big").await?, big);
    Ok(())
}

/// b4: many files, listed after all locks were cancelled, and removed.
async fn many(it: &Caller) -> Result<(), Errno> {
    let many = it.make(NodeId::ROOT, "many", ON_SECOND).await?;
    for number in 1..=300 {
        let text = format!("file-with-a-longer-name-{number}");
        let (_, handle) = it.create(many, &text, 0o666, WRITE | OpenFlags::TRUNCATE).await?;
        it.close(handle).await?;
    }
    it.clear_locks("MDT").await;
    let names = it.list(many).await?;
    assert_eq!(names.len(), 300);
    for name in names {
        it.files.unlink(&it.who, many, &name).await?;
    }
    it.files.rmdir(&it.who, NodeId::ROOT, &name("many")).await
}

/// b5: what is refused; a file that is used after it was removed; a lock.
async fn errors(it: &Caller) -> Result<(), Errno> {
    let b5 = it.make(NodeId::ROOT, "b5", NewNode::Directory).await?;
    let x = it.make(b5, "x", ON_SECOND).await?;
    assert_eq!(it.make(b5, "x", NewNode::Directory).await, Err(Errno::EEXIST));
    let how = READ_WRITE | OpenFlags::EXCLUSIVE;
    let (file, handle) = it.create(b5, "ex", 0o640, how).await?;
    it.files.write(handle, 0, Bytes::from_static(b"hello")).await?;
    it.close(handle).await?;
    let handle = it.open(file, READ_WRITE | OpenFlags::TRUNCATE).await?;
    it.files.unlink(&it.who, b5, &name("ex")).await?;
    it.files.write(handle, 0, Bytes::from_static(b"orphan")).await?;
    assert_eq!(&it.read(handle, 0, 6).await?[..], b"orphan");
    it.close(handle).await?;
    let handle = it.open(b5, OpenFlags::DIRECTORY).await?;
    it.close(handle).await?;
    // Not touched: our client asks for the size of what it has set times of, which no program did here.
    let (_, handle) = it.create(x, "f", 0o666, WRITE).await?;
    it.close(handle).await?;
    let refused = it.files.rmdir(&it.who, b5, &name("x")).await;
    assert_eq!(refused, Err(Errno::ENOTEMPTY));
    assert_eq!(it.list(x).await?, [name("f")]);
    it.files.unlink(&it.who, x, &name("f")).await?;
    it.files.rmdir(&it.who, b5, &name("x")).await?;
    let (_, handle) = it.create(b5, "lf", 0o666, 0).await?;
    let lock =
        |mode| FileLock { start: 0, end: i64::MAX as u64, mode, pid: 1, uid: 0, is_flock: true };
    it.files.set_lock(handle, LockOwner(7), lock(FileLockMode::Write), true).await?;
    it.files.set_lock(handle, LockOwner(7), lock(FileLockMode::Unlock), true).await?;
    it.close(handle).await
}

/// As `lfs setstripe` does, but for how the file is made: see the list of differences.
pub(super) async fn set_stripe(
    it: &Caller,
    parent: NodeId,
    text: &str,
    (count, size, first): (u16, u32, u16),
) -> Result<NodeId, Errno> {
    let (node, handle) = it.create(parent, text, 0o666, WRITE).await?;
    let header = LovMdHeader {
        magic: LovMagic::V1,
        pattern: LovPattern::RAID0,
        stripe_size: size,
        stripe_count: count,
        layout_gen: first,
        ..LovMdHeader::default()
    };
    let wish = LovEa::Plain(LovMd { header, ..LovMd::default() }).encode();
    it.files.setxattr(&it.who, node, b"lustre.lov", wish, XattrMode::Any).await?;
    it.close(handle).await?;
    Ok(node)
}

/// Any OST.
pub(super) const ANY: u16 = u16::MAX;

/// c1: a few pages written, read, cut and grown.
async fn small(it: &Caller, c: NodeId) -> Result<(), Errno> {
    let file = set_stripe(it, c, "s1", (1, 1 << 20, ANY)).await?;
    let handle = it.open(file, WRITE).await?;
    for page in 0..4 {
        let at = page * 4096;
        it.files.write(handle, at as u64, it.random.slice(at..at + 4096)).await?;
    }
    it.files.fsync(handle, false).await?;
    it.close(handle).await?;
    it.clear_locks("OST").await;
    let handle = it.open(file, 0).await?;
    // As the real client's read-ahead did.
    let read = [it.read(handle, 0, 4096).await?, it.read(handle, 4096, 12288).await?];
    assert_eq!(read.concat(), it.random);
    it.close(handle).await?;
    let handle = it.open(file, WRITE).await?;
    it.files.write(handle, 8 * 4096, Bytes::from_static(&[0; 4096])).await?;
    it.files.fsync(handle, true).await?;
    it.close(handle).await?;
    it.truncate(file, 6000).await?;
    assert_eq!(it.files.getattr(&it.who, file).await?.attributes.size, 6000);
    it.truncate(file, 1 << 20).await?;
    let handle = it.open(file, 0).await?;
    let read = [it.read(handle, 0, 32768).await?, it.read(handle, 32768, 1_015_808).await?];
    let read = read.concat();
    assert_eq!((read.len(), &read[..6000]), (1 << 20, &it.random[..6000]));
    it.close(handle).await?;
    assert_eq!(it.files.getattr(&it.who, file).await?.attributes.size, 1 << 20);
    Ok(())
}

/// c2: past the pages.
async fn direct(it: &Caller, c: NodeId) -> Result<(), Errno> {
    let file = set_stripe(it, c, "s1d", (1, 1 << 20, ANY)).await?;
    let mebibyte = Bytes::from(vec![0; 1 << 20]);
    let handle = it.open(file, WRITE | OpenFlags::DIRECT | OpenFlags::TRUNCATE).await?;
    it.files.write(handle, 0, mebibyte.clone()).await?;
    it.close(handle).await?;
    let handle = it.open(file, OpenFlags::DIRECT).await?;
    assert_eq!(it.read(handle, 0, 1 << 20).await?, mebibyte);
    it.close(handle).await?;
    let handle = it.open(file, WRITE | OpenFlags::DIRECT).await?;
    it.files.write(handle, 0, mebibyte.slice(..4096)).await?;
    it.close(handle).await
}

/// c3: four stripes.
async fn striped(it: &Caller, c: NodeId) -> Result<(), Errno> {
    let file = set_stripe(it, c, "s4", (4, 512 << 10, 0)).await?;
    let handle = it.open(file, WRITE | OpenFlags::TRUNCATE).await?;
    let mebibyte = Bytes::from(vec![0; 1 << 20]);
    for part in 0..2 {
        it.files.write(handle, part << 20, mebibyte.clone()).await?;
    }
    it.files.fsync(handle, false).await?;
    it.close(handle).await?;
    it.clear_locks("OST").await;
    // The real client did not look as far ahead as ours.
    it.data.read_ahead().set_total(0);
    let handle = it.open(file, 0).await?;
    assert_eq!(it.read(handle, 0, 1 << 20).await?, mebibyte);
    it.close(handle).await?;
    it.truncate(file, 700 << 10).await?;
    assert_eq!(it.files.getattr(&it.who, file).await?.attributes.size, 700 << 10);
    let handle = it.open(file, READ_WRITE).await?;
    it.files.fallocate(handle, Fallocate::PunchHole, 4096, 8192).await?;
    it.close(handle).await?;
    it.files.unlink(&it.who, c, &name("s4")).await
}
