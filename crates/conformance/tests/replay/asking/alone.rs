//! Captures that our client plays each for itself, with the captured mount before it unless it has its
//! own: reading a file that was there before, small direct IO, a second node.

use bytes::Bytes;
use sheen_client::posix::{Fallocate, NewNode, NodeId, OpenFlags, RenameMode};
use sheen_types::{Errno, HashMap, MdtIndex};
use sheen_wire::lov::LovEa;
use sheen_wire::messages::{Reply, Request};

use super::sessions::{ON_SECOND, set_stripe};
use super::{Caller, READ_WRITE, WRITE, name};
use crate::script::{Exchange, Script};

/// e1: a directory on the second MDT, names of its inodes on the first, and the other way round.
/// Answers the directory of it all.
pub(super) async fn remote(it: &Caller) -> Result<NodeId, Errno> {
    // Whose group decides about what is made in it.
    it.files.getattr(&it.who, NodeId::ROOT).await?;
    let e = it.make(NodeId::ROOT, "e", NewNode::Directory).await?;
    let m1 = it.make(e, "m1", NewNode::DirectoryOn(MdtIndex(1))).await?;
    let f = it.touch(m1, "f").await?;
    it.touch(m1, "g").await?;
    let rename = async |from, text: &str, new: &str| {
        let (text, new) = (name(text), name(new));
        it.files.rename(&it.who, (from, &text), (m1, &new), RenameMode::Replace).await
    };
    rename(m1, "g", "h").await?;
    it.touch(e, "x").await?;
    rename(e, "x", "x").await?;
    let linked = it.files.link(&it.who, f, e, &name("hl")).await?;
    assert_eq!(linked.node, f);
    it.clear_locks("MDT").await;
    let sorted = async |directory| {
        let mut names = it.list(directory).await?;
        names.sort();
        Ok::<_, Errno>(names)
    };
    assert_eq!(sorted(e).await?, ["hl", "m1"].map(name));
    assert_eq!(sorted(m1).await?, ["f", "h", "x"].map(name));
    // Of the second MDT by a name of the first, and of the first by one of the second.
    assert_eq!(it.look_up(e, "hl").await?, f);
    let x = it.look_up(m1, "x").await?;
    assert_eq!(it.files.getattr(&it.who, f).await?.attributes.nlink, 2);
    assert_eq!(it.files.fid(x)?.seq, 0x2_0000_0402);
    assert_eq!(it.files.fid(f)?.seq, 0x2_4000_0402);
    for (directory, text) in [(e, "hl"), (m1, "f"), (m1, "h"), (m1, "x")] {
        it.files.unlink(&it.who, directory, &name(text)).await?;
    }
    it.files.rmdir(&it.who, e, &name("m1")).await?;
    Ok(e)
}

/// d1: files and directories that move from one MDT to the other, a link across, and the paths of what it links.
pub(super) async fn across(it: &Caller, _: &Script) -> Result<(), Errno> {
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let on = |mdt| NewNode::DirectoryOn(MdtIndex(mdt));
    let dn = it.make(w, "dn", ON_SECOND).await?;
    let (m0, m1) = (it.make(dn, "m0", on(0)).await?, it.make(dn, "m1", on(1)).await?);
    let rename = async |text: &str| {
        let text = name(text);
        it.files.rename(&it.who, (m0, &text), (m1, &text), RenameMode::Replace).await
    };
    // Not touched: our client asks for the size of what it has set times of, which no program did here.
    let create = async |directory, text: &str| {
        let (node, handle) = it.create(directory, text, 0o666, WRITE).await?;
        it.close(handle).await?;
        Ok::<_, Errno>(node)
    };
    let f = create(m0, "f").await?;
    rename("f").await?;
    assert_eq!(it.look_up(m1, "f").await?, f);
    let d = it.make(m0, "d", NewNode::Directory).await?;
    create(d, "x").await?;
    rename("d").await?;
    assert_eq!(it.files.link(&it.who, f, m0, &name("hl")).await?.node, f);
    let fid = it.files.fid(f)?;
    let (first, next) = it.files.fid2path(fid, 0).await?;
    let (second, last) = it.files.fid2path(fid, next.expect("another link")).await?;
    assert_eq!((&first[..], &second[..], last), (&b"w/dn/m1/f"[..], &b"w/dn/m0/hl"[..], None));
    it.files.unlink(&it.who, m1, &name("f")).await?;
    create(m0, "o").await?;
    create(m1, "o").await?;
    rename("o").await?;
    it.make(m0, "r", on(1)).await?;
    it.files.rmdir(&it.who, m0, &name("r")).await?;
    let refused = it.files.rmdir(&it.who, dn, &name("m0")).await;
    assert_eq!(refused, Err(Errno::ENOTEMPTY));
    it.files.unlink(&it.who, d, &name("x")).await?;
    it.files.rmdir(&it.who, m1, &name("d")).await?;
    it.files.unlink(&it.who, m1, &name("o")).await?;
    it.files.rmdir(&it.who, dn, &name("m1")).await?;
    it.files.unlink(&it.who, m0, &name("hl")).await?;
    it.files.rmdir(&it.who, dn, &name("m0")).await?;
    it.files.rmdir(&it.who, w, &name("dn")).await
}

/// i1: a whole file, by pieces of 128 KiB; read-ahead asked for all of it at once behind the first.
pub(super) async fn ahead(it: &Caller, _: &Script) -> Result<(), Errno> {
    it.data.read_ahead().set_total(0);
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let (_, handle) = it.create(w, "r3", 0o666, 0).await?;
    assert_eq!(it.read(handle, 0, 128 << 10).await?.len(), 128 << 10);
    assert_eq!(it.read(handle, 128 << 10, 3_014_656).await?.len(), 3_014_656);
    it.close(handle).await
}

/// i3: pages of a file in no order.
pub(super) async fn scattered(it: &Caller, script: &Script) -> Result<(), Errno> {
    it.data.read_ahead().set_total(0);
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let file = it.look_up(w, "rr").await?;
    let size = it.files.getattr(&it.who, file).await?.attributes.size;
    assert_eq!(size, 8 << 20);
    let handle = it.open(file, 0).await?;
    let reads = reads(script);
    assert_eq!(reads.len(), 40);
    for (offset, data) in reads {
        assert!(it.read(handle, offset, 4096).await? == data, "at {offset}");
    }
    it.close(handle).await
}

/// What was read of files, by place in the file.
fn reads(script: &Script) -> Vec<(u64, Bytes)> {
    let mut stripes: HashMap<_, _> = HashMap::default();
    for exchange in &script.exchanges {
        let Some(LovEa::Plain(layout)) = layout(exchange) else { continue };
        let (size, count) = (layout.header.stripe_size, layout.stripes.len() as u64);
        for (number, stripe) in layout.stripes.iter().enumerate() {
            let object = (stripe.oi.word0, stripe.oi.word1);
            stripes.insert(object, (u64::from(size), count, number as u64));
        }
    }
    let read = |exchange: &Exchange| {
        let Request::OstRead(asked) = &exchange.request.typed else { return None };
        let Reply::OstRead(answer) = &exchange.reply.as_ref()?.0.typed else { return None };
        let oi = asked.ost_body.oa.oi;
        let (size, count, number) = *stripes.get(&(oi.word0, oi.word1))?;
        let at = asked.niobuf_remote.first()?.offset;
        Some(((at / size * count + number) * size + at % size, answer.short_io.clone()))
    };
    script.exchanges.iter().filter_map(read).collect()
}

fn layout(exchange: &Exchange) -> Option<LovEa> {
    match &exchange.reply.as_ref()?.0.typed {
        Reply::LdlmIntentGetattr(answer) => LovEa::decode(&answer.mdt_md).ok(),
        _ => None,
    }
}

/// i4: a few bytes written and read, through the cache and past it.
pub(super) async fn short(it: &Caller, script: &Script) -> Result<(), Errno> {
    it.data.read_ahead().set_total(0);
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let file = set_stripe(it, w, "si", (1, 0, super::sessions::ANY)).await?;
    let (_, handle) = it.create(w, "si", 0o666, WRITE | OpenFlags::TRUNCATE).await?;
    it.files.write(handle, 0, Bytes::from_static(b"hello\n")).await?;
    it.close(handle).await?;
    it.clear_locks("OST").await;
    let handle = it.open(file, 0).await?;
    // The size that it was given last may be that of a later moment of the capture.
    assert!(it.read(handle, 0, 4096).await?.starts_with(b"hello\n"));
    it.close(handle).await?;
    let written = written(script);
    let handle = it.open(file, WRITE | OpenFlags::DIRECT).await?;
    for (number, page) in written[1..4].iter().enumerate() {
        it.files.write(handle, number as u64 * 4096, page.clone()).await?;
    }
    it.close(handle).await?;
    let handle = it.open(file, OpenFlags::DIRECT).await?;
    for (number, page) in written[1..4].iter().enumerate() {
        assert!(it.read(handle, number as u64 * 4096, 4096).await? == page, "page {number}");
    }
    it.close(handle).await?;
    let handle = it.open(file, WRITE).await?;
    it.files.write(handle, 0, written[4].clone()).await?;
    it.files.fsync(handle, true).await?;
    it.close(handle).await
}

/// What was written, in order.
pub(super) fn written(script: &Script) -> Vec<Bytes> {
    let data = |exchange: &Exchange| match &exchange.request.typed {
        Request::OstWrite(write) if !write.short_io.is_empty() => Some(write.short_io.clone()),
        Request::OstWrite(_) => Some(exchange.bulk.first()?.1.clone()),
        _ => None,
    };
    script.exchanges.iter().filter_map(data).collect()
}

/// i6: room made and taken away, in a file of two stripes.
pub(super) async fn room(it: &Caller, script: &Script) -> Result<(), Errno> {
    const STRIPE: usize = 64 << 10;
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let file = set_stripe(it, w, "fa", (2, STRIPE as u32, super::sessions::ANY)).await?;
    let handle = it.open(file, READ_WRITE).await?;
    let change =
        async |what, offset, length| it.files.fallocate(handle, what, offset, length).await;
    change(Fallocate::Allocate, 0, 1 << 20).await?;
    change(Fallocate::AllocateKeepSize, 1 << 20, 1 << 20).await?;
    // The second object's was sent first.
    let written = written(script);
    let pieces =
        |data: &Bytes| (0..4).map(|at| data.slice(at * STRIPE..(at + 1) * STRIPE)).collect();
    let (second, first): (Vec<Bytes>, Vec<Bytes>) = (pieces(&written[0]), pieces(&written[1]));
    let data: Vec<_> =
        first.into_iter().zip(second).flat_map(|(one, other)| [one, other]).collect();
    it.files.write(handle, 0, data.concat().into()).await?;
    it.files.fsync(handle, true).await?;
    change(Fallocate::PunchHole, 65_536, 131_072).await?;
    change(Fallocate::PunchHole, 1000, 5000).await?;
    change(Fallocate::ZeroRange, 0, 4096).await?;
    it.close(handle).await
}

/// m1: a second node mounts, looks around, reads a file and writes another.
pub(super) async fn second(it: &Caller, _: &Script) -> Result<(), Errno> {
    it.files.statfs().await?;
    let names = it.list(NodeId::ROOT).await?;
    assert_eq!(names, ["err3", "err2", "err", "w"].map(name));
    let w = it.look_up(NodeId::ROOT, "w").await?;
    let fs = it.look_up(w, "fs").await?;
    let (_, handle) = it.create(fs, "top", 0o666, 0).await?;
    assert_eq!(&it.read(handle, 0, 4096).await?[..], b"top\n");
    it.close(handle).await?;
    let (_, handle) = it.create(fs, "from-gc2", 0o666, WRITE | OpenFlags::TRUNCATE).await?;
    it.files.write(handle, 0, Bytes::from_static(b"hi\n")).await?;
    it.close(handle).await?;
    it.files.unmount().await;
    Ok(())
}
