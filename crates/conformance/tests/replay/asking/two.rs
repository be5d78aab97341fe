//! Captures of a node with two mounts: two of our clients, each with the answers that one of the mounts had.

use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use sheen_client::posix::{FileHandle, NodeId, OpenFlags};
use sheen_io::within;
use sheen_layout::directory::DirectoryWish;
use sheen_types::{Errno, futures};
use sheen_wire::lmv::LmvHash;
use sheen_wire::ost::{LadviseHdr, LuLadvise};

use super::alone::written;
use super::sessions::{ANY, set_stripe};
use super::striped::stripes;
use super::{Caller, READ_WRITE, WRITE, name};
use crate::script::Script;

/// Behind all packets.
const LAST: usize = usize::MAX;

/// n4: a directory of 101 names is split over two MDTs, used by both mounts, and merged again.
pub(super) async fn restriped(them: &[Caller], _: &Script) -> Result<(), Errno> {
    let (one, other) = (&them[0], &them[1]);
    let n4 = one.look_up(NodeId::ROOT, "n4").await?;
    let restripe = async |count, max_inherit| {
        let wish = DirectoryWish { max_inherit, ..stripes(count, LmvHash::UNKNOWN) };
        let d = name("d");
        one.files.restripe_directory(&one.who, n4, &d, 0o777, wish).await
    };
    let d = one.look_up(n4, "d").await?;
    one.look_up(d, "sub").await?;
    restripe(2, 3).await?;
    let d = one.look_up(n4, "d").await?;
    assert_eq!(one.list(d).await?.len(), 101);
    // It is done.
    one.pass_to(156).await;
    let d = one.look_up(n4, "d").await?;
    for text in ["1", "50", "100"] {
        let found = one.cat(d, &format!("f{text}")).await?;
        assert_eq!(found, format!("{text}\n"));
    }
    one.look_up(d, "sub").await?;
    assert_eq!(one.list_long(d).await?.len(), 101);
    let there = other.look_up(NodeId::ROOT, "n4").await?;
    let there = other.look_up(there, "d").await?;
    assert_eq!(other.list(there).await?.len(), 101);
    let (_, handle) = one.create(d, "afterwards", 0o666, WRITE | OpenFlags::TRUNCATE).await?;
    one.files.write(handle, 0, Bytes::from_static(b"new\n")).await?;
    one.close(handle).await?;
    one.files.unlink(&one.who, d, &name("f100")).await?;
    restripe(1, 0).await?;
    one.pass_to(LAST).await;
    let d = one.look_up(n4, "d").await?;
    assert_eq!(one.list(d).await?.len(), 101);
    for (text, data) in [("f1", "1\n"), ("f99", "99\n"), ("afterwards", "new\n")] {
        assert_eq!(one.cat(d, text).await?, data);
    }
    one.look_up(d, "sub").await?;
    Ok(())
}

/// n6: a directory of two stripes, listed by one mount with what its names stand for and looked up by the other by number; then by the
/// first one by number, too.
pub(super) async fn by_number(them: &[Caller], _: &Script) -> Result<(), Errno> {
    let (one, other) = (&them[0], &them[1]);
    let directory = one.look_up(NodeId::ROOT, "n6").await?;
    assert_eq!(one.list_long(directory).await?.len(), 300);
    one.clear_locks("MDT").await;
    let there = other.look_up(NodeId::ROOT, "n6").await?;
    for number in 0..120 {
        other.look_up(there, &format!("file.{number}")).await?;
    }
    other.clear_locks("MDT").await;
    let directory = one.look_up(NodeId::ROOT, "n6").await?;
    for number in 0..100 {
        one.look_up(directory, &format!("file.{number}")).await?;
    }
    Ok(())
}

/// Locks ahead for reading and for writing, as `lfs ladvise -m` names them.
const READ_AHEAD: u16 = 1;
/// See [`READ_AHEAD`].
const WRITE_AHEAD: u16 = 2;

/// As `lfs ladvise` does, which opens the file for reading.
async fn advise(
    it: &Caller,
    file: NodeId,
    advice: (u16, u16),
    range: Range<u64>,
) -> Result<(), Errno> {
    let handle = it.open(file, 0).await?;
    advise_by(it, handle, advice, range).await
}

async fn advise_by(
    it: &Caller,
    handle: FileHandle,
    advice: (u16, u16),
    range: Range<u64>,
) -> Result<(), Errno> {
    let header = LadviseHdr { magic: LadviseHdr::MAGIC, count: 1, ..LadviseHdr::default() };
    let (advice, value1) = advice;
    let advice =
        LuLadvise { advice, value1, start: range.start, end: range.end, ..LuLadvise::default() };
    it.files.advise(handle, &header, &mut [advice]).await?;
    it.close(handle).await
}

/// As `dd bs=64k count=1 conv=notrunc` does.
async fn write_block(it: &Caller, file: NodeId, number: u64) -> Result<(), Errno> {
    let handle = it.open(file, WRITE).await?;
    it.files.write(handle, number << 16, Bytes::from(vec![0; 1 << 16])).await?;
    it.close(handle).await
}

/// n7: locks ahead of both mounts on one file, and in each other's front; blocks that both write and read; locks of groups.
pub(super) async fn locked(them: &[Caller], _: &Script) -> Result<(), Errno> {
    let (one, other) = (&them[0], &them[1]);
    let n7 = one.look_up(NodeId::ROOT, "n7").await?;
    let there = other.look_up(NodeId::ROOT, "n7").await?;
    let (read, write) = ((LuLadvise::LOCKAHEAD, READ_AHEAD), (LuLadvise::LOCKAHEAD, WRITE_AHEAD));
    // Each opens it by name once.
    let (la, handle) = one.create(n7, "la", 0o666, 0).await?;
    advise_by(one, handle, write, 0..65_536).await?;
    let (its_la, handle) = other.create(there, "la", 0o666, 0).await?;
    advise_by(other, handle, write, 131_072..262_144).await?;
    advise(one, la, write, 262_144..524_288).await?;
    advise(other, its_la, read, 1 << 20..2 << 20).await?;
    advise(other, its_la, write, 0..65_536).await?;
    advise(one, la, write, 0..65_536).await?;
    for (mine, its) in [(0, 2), (1, 3)] {
        write_block(one, la, mine).await?;
        write_block(other, its_la, its).await?;
    }
    write_block(one, la, 5).await?;
    let handle = other.open(its_la, 0).await?;
    for block in 0..4 {
        let data = other.read(handle, block << 16, 1 << 16).await?;
        assert!(data.len() == 1 << 16 && data.iter().all(|byte| *byte == 0));
    }
    other.close(handle).await?;
    assert_eq!(one.files.getattr(&one.who, la).await?.attributes.size, 393_216);
    groups(one, (other, (n7, there))).await
}

/// Of one open file, and of one of the other mount that does not wait, and one that does.
async fn groups(
    one: &Caller,
    (other, (n7, there)): (&Caller, (NodeId, NodeId)),
) -> Result<(), Errno> {
    let (_, handle) = one.create(n7, "g", 0o666, READ_WRITE).await?;
    let flags = READ_WRITE | OpenFlags::NONBLOCK;
    let (its_g, hasty) = other.create(there, "g", 0o666, flags).await?;
    one.files.group_lock(&one.who, handle, 7).await?;
    assert_eq!(one.files.group_lock(&one.who, handle, 7).await, Err(Errno::EINVAL));
    assert_eq!(other.files.group_lock(&other.who, hasty, 8).await, Err(Errno::EAGAIN));
    other.files.group_lock(&other.who, hasty, 7).await?;
    other.files.group_unlock(hasty, 7).await?;
    let patient = other.open(its_g, READ_WRITE).await?;
    let waits = async {
        other.files.group_lock(&other.who, patient, 9).await?;
        Ok::<_, Errno>(one.world.clock.now())
    };
    let ends = async {
        one.wait(Duration::from_secs(3)).await;
        let now = one.world.clock.now();
        one.files.group_unlock(handle, 7).await?;
        Ok(now)
    };
    let both: Vec<Pin<Box<dyn Future<Output = _>>>> = vec![Box::pin(waits), Box::pin(ends)];
    let both = futures::all_pinned(both).await;
    let [granted, released] = both[..] else { return Err(Errno::EIO) };
    assert!(granted? >= released?, "it waits for the other group");
    assert_eq!(one.files.group_unlock(handle, 7).await, Err(Errno::EINVAL));
    assert_eq!(one.files.group_lock(&one.who, handle, 0).await, Err(Errno::EINVAL));
    other.files.group_unlock(patient, 9).await?;
    for (it, handle) in [(one, handle), (other, hasty), (other, patient)] {
        it.close(handle).await?;
    }
    Ok(())
}

/// What was written first, in blocks of 64 KiB of two objects.
fn striped_data(script: &Script) -> Bytes {
    let written = written(script);
    let blocks = |data: &Bytes| data.chunks(64 << 10).map(Bytes::copy_from_slice).collect();
    let (first, second): (Vec<Bytes>, Vec<Bytes>) = (blocks(&written[0]), blocks(&written[1]));
    let both = first.into_iter().zip(second);
    both.flat_map(|(one, other)| [one, other]).collect::<Vec<_>>().concat().into()
}

/// v5: a file that one mount writes under a group's lock, while the other waits to write it; locks ahead, and advice to OSTs.
pub(super) async fn grouped(them: &[Caller], script: &Script) -> Result<(), Errno> {
    let (one, other) = (&them[0], &them[1]);
    let w = one.look_up(NodeId::ROOT, "w").await?;
    let there = other.look_up(NodeId::ROOT, "w").await?;
    let gl = set_stripe(one, w, "gl", (2, 64 << 10, ANY)).await?;
    let handle = one.open(gl, READ_WRITE).await?;
    one.files.group_lock(&one.who, handle, 1234).await?;
    one.files.write(handle, 0, striped_data(script)).await?;
    one.files.group_unlock(handle, 1234).await?;
    one.close(handle).await?;
    let handle = one.open(gl, READ_WRITE).await?;
    one.files.group_lock(&one.who, handle, 1234).await?;
    let page = Bytes::from_static(&[0; 4096]);
    let (its_gl, its) = other.create(there, "gl", 0o666, WRITE).await?;
    let writes = other.files.write(its, 0, page.clone());
    let waited = within(&*one.world.clock, Duration::from_secs(3), writes).await;
    assert_eq!(waited, None, "it was killed before its write could begin");
    other.close(its).await?;
    one.files.group_unlock(handle, 1234).await?;
    one.close(handle).await?;
    let its = other.open(its_gl, WRITE).await?;
    other.files.write(its, 0, page).await?;
    other.files.fsync(its, false).await?;
    other.close(its).await?;
    advise(one, gl, (LuLadvise::LOCKAHEAD, WRITE_AHEAD), 0..65_536).await?;
    advise(other, its_gl, (LuLadvise::LOCKAHEAD, READ_AHEAD), 65_536..131_072).await?;
    advise(one, gl, (LuLadvise::WILLREAD, 0), 0..128 << 10).await?;
    advise(one, gl, (LuLadvise::DONTNEED, 0), 0..u64::MAX).await
}
