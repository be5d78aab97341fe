//! What operators set of the locks of a mount, against a scripted MDT.

use std::time::Duration;

use bytes::Bytes;
use sheen_io::Clock;
use sheen_types::{Errno, Fid, InodeBits};
use sheen_wire::md::AttrValid;
use sheen_wire::messages::{MdsCloseReply, Request};

use super::tests::layout;
use super::{Lookup, NodeId, OpenFlags, Opened};
use crate::testing::{Fixture, found, name, opened};

fn look_up(fixture: &Fixture, number: u32) -> Result<Lookup, Errno> {
    let fid = Fid::new(0x2_0000_0400, 100 + number);
    let remote = 0x1000 + u64::from(number);
    fixture.mdt.answer(found(fid, 0o040_755, remote, InodeBits(0x13)));
    let (files, text) = (fixture.files.clone(), format!("d{number}"));
    fixture
        .world
        .run(async move { files.lookup(&Fixture::root(), NodeId::ROOT, &name(&text)).await })
}

/// How many locks were cancelled since the last time.
fn cancelled(fixture: &Fixture) -> usize {
    let asked = fixture.mdt.take_asked();
    let count = |request: &Request| match request {
        Request::LdlmCancel(cancel) => cancel.dlm_req.counted().len(),
        _ => 0,
    };
    asked.iter().map(count).sum()
}

#[test]
fn locks_that_are_too_many_go_in_batches_as_large_as_operators_say() {
    let fixture = Fixture::new();
    fixture.files.settings().ahead.guesses_names.set(false);
    for number in 0..10 {
        look_up(&fixture, number).expect("found");
    }
    assert_eq!(cancelled(&fixture), 0);
    // Only what comes later looks at the limit.
    fixture.locks.engine().set_limits(1, Duration::from_secs(3600));
    for batch in [1, 3] {
        fixture.locks.set_shrink_batch(batch);
        look_up(&fixture, 20 + batch as u32).expect("found");
        assert_eq!(cancelled(&fixture), batch);
    }
    // Without a limit all that are too many.
    fixture.locks.set_shrink_batch(0);
    look_up(&fixture, 20).expect("found");
    assert!(cancelled(&fixture) > 3);
    assert!(fixture.locks.engine().gauges().unused <= 2);
}

#[test]
fn blocks_are_as_large_as_operators_say() {
    let fixture = Fixture::new();
    let size = |number| {
        look_up(&fixture, number).map(|lookup| match lookup {
            Lookup::Found(entry) => entry.attributes.block_size,
            other => panic!("{other:?}"),
        })
    };
    let usual = size(1);
    assert_ne!(usual, Ok(64 << 10));
    fixture.files.settings().stat_block.set(64 << 10);
    assert_eq!(size(2), Ok(64 << 10));
    fixture.files.settings().stat_block.set(0);
    assert_eq!(size(3), usual);
}

/// Opens the file of this number for reading and writing.
fn open(fixture: &Fixture, number: u32) -> (NodeId, Opened) {
    let fid = Fid::new(0x2_0000_0400, 100 + number);
    let mut reply = found(fid, 0o100_644, 0x1000 + u64::from(number), InodeBits(0x13));
    reply.mdt_body.as_mut().expect("a file").mode = 0o100_644;
    fixture.mdt.answer(reply);
    let files = fixture.files.clone();
    let text = format!("f{number}");
    let looked = async move { files.lookup(&Fixture::root(), NodeId::ROOT, &name(&text)).await };
    let Ok(Lookup::Found(entry)) = fixture.world.run(looked) else { panic!("no file") };
    fixture.mdt.answer(opened(fid, 0xabc + u64::from(number), false, layout()));
    let (files, node) = (fixture.files.clone(), entry.node);
    let open = async move { files.open(&Fixture::root(), node, OpenFlags(2)).await };
    (node, fixture.world.run(open).expect("opened"))
}

#[test]
fn the_kernel_keeps_no_more_of_files_than_operators_say() {
    let fixture = Fixture::new();
    let write = |opened: Opened, offset: u64, bytes: usize| {
        let (files, data) = (fixture.files.clone(), Bytes::from(vec![1; bytes]));
        let written = async move { files.write(opened.handle, offset, data).await };
        assert_eq!(fixture.world.run(written), Ok(bytes as u32));
        fixture.world.settle();
    };
    let opened: Vec<_> = (0..3).map(|number| open(&fixture, number)).collect();
    fixture.watcher.take();
    fixture.files.limit_pages(64 << 10);
    for (_, opened) in &opened {
        write(*opened, 0, 20 << 10);
    }
    assert_eq!(fixture.watcher.take(), Vec::<String>::new(), "they fit");
    assert_eq!(fixture.files.pages_kept().bytes, 60 << 10);
    let read = {
        let (files, handle) = (fixture.files.clone(), opened[0].1.handle);
        async move { files.read(handle, 0, 20 << 10).await.map(drop) }
    };
    assert_eq!(fixture.world.run(read), Ok(()));
    write(opened[2].1, 20 << 10, 8 << 10);
    let gone = |at: usize| {
        format!("inode {} Pages(Extent {{ start: 0, end: {} }})", opened[at].0.0, u64::MAX)
    };
    assert_eq!(fixture.watcher.take(), [gone(1)], "it was used before the rest");
    fixture.files.limit_pages(32 << 10);
    fixture.world.settle();
    assert_eq!(fixture.watcher.take(), [gone(0)]);
    assert_eq!(fixture.files.pages_kept().reclaims, 2);
    // What the kernel has forgotten is not counted any more.
    fixture.files.forget(opened[2].0, 1);
    assert_eq!(fixture.files.pages_kept().bytes, 0);
}

#[test]
fn a_close_sends_the_size_as_far_as_operators_want_it() {
    let fixture = Fixture::new();
    for (number, is_sent) in [(1, true), (2, false)] {
        fixture.files.settings().reports_size.set(is_sent);
        let (node, opened) = open(&fixture, number);
        let fid = fixture.files.0.pin(node).expect("known").fid;
        *fixture.data.files.lock().entry(fid).or_default().covered.lock() = true;
        fixture.mdt.expect(move |request| match request {
            Request::MdsClose(close) => {
                let size = AttrValid::LSIZE | AttrValid::LBLOCKS;
                assert_eq!(close.rec_reint.valid.contains(size), is_sent);
                assert_eq!(close.rec_reint.size, if is_sent { 5 } else { 0 });
                Ok(MdsCloseReply::default().into())
            }
            other => panic!("expected a close, got {other:?}"),
        });
        let files = fixture.files.clone();
        fixture.world.run(async move {
            let data = Bytes::from_static(b"hello");
            files.write(opened.handle, 0, data).await.expect("written");
            files.release(opened.handle, None).await.expect("closed");
        });
        assert!(fixture.mdt.is_done());
    }
}

#[test]
fn answers_have_the_room_that_operators_give_them() {
    let fixture = Fixture::new();
    let room = || fixture.mdt.room.load(std::sync::atomic::Ordering::Relaxed);
    open(&fixture, 1);
    let usual = room();
    let (layout, inline) = fixture.files.reply_rooms();
    assert_eq!((layout, inline), (4096, 64 << 10));
    fixture.files.set_inline_room(8192);
    open(&fixture, 2);
    assert_eq!(room(), usual - (56 << 10));
    fixture.files.set_layout_room(1024);
    open(&fixture, 3);
    assert_eq!(room(), usual - (56 << 10) - 3072);
    fixture.mdt.take_asked();
    look_up(&fixture, 4).expect("found");
    match &fixture.mdt.take_asked()[..] {
        [Request::LdlmIntentGetattr(asked)] => assert_eq!(asked.mdt_body.eadatasize, 1024),
        other => panic!("expected one getattr, got {other:?}"),
    }
}

#[test]
fn files_are_laid_out_by_those_whom_operators_let() {
    let fixture = Fixture::new();
    let (node, _) = open(&fixture, 1);
    let lay_out = |uid: u32, gid: u32| {
        let groups = [gid].into();
        let who = super::Credentials { uid, gid: 100, groups, ..super::Credentials::root() };
        let fid = fixture.files.0.pin(node).expect("known").fid;
        fixture.mdt.answer(opened(fid, 0xeee, false, layout()));
        fixture.mdt.answer(MdsCloseReply::default());
        let files = fixture.files.clone();
        let done = fixture.world.run(async move {
            files.setxattr(&who, node, b"lustre.lov", layout(), super::XattrMode::Any).await
        });
        fixture.mdt.forget_scripts();
        done
    };
    let refused = Err(Errno::EACCES);
    for (group, in_group, in_other, root) in [
        (u32::MAX, Ok(()), Ok(()), Ok(())),
        (50, Ok(()), refused, Ok(())),
        (0, refused, refused, Ok(())),
    ] {
        fixture.files.settings().layout_group.set(group);
        let done = [lay_out(1000, 50), lay_out(1000, 60), lay_out(0, 60)];
        assert_eq!(done, [in_group, in_other, root], "group {group}");
    }
}

#[test]
fn heat_is_counted_where_operators_and_users_want_it() {
    let fixture = Fixture::new();
    let (node, opened) = open(&fixture, 1);
    let heat = || {
        let files = fixture.files.clone();
        let read = async move { files.getxattr(&Fixture::root(), node, b"sheen.heat").await };
        String::from_utf8(fixture.world.run(read).expect("heat").to_vec()).expect("text")
    };
    let work = || {
        let files = fixture.files.clone();
        fixture.world.run(async move {
            let data = Bytes::from(vec![1; 1000]);
            files.write(opened.handle, 0, data).await.expect("written");
            files.read(opened.handle, 0, 600).await.expect("read");
        });
    };
    let set = |flags: &'static [u8]| {
        let files = fixture.files.clone();
        let (name, value, any) = (b"sheen.heat", Bytes::from_static(flags), super::XattrMode::Any);
        let done = async move { files.setxattr(&Fixture::root(), node, name, value, any).await };
        fixture.world.run(done)
    };
    work();
    assert_eq!(heat(), "0 0 0 0 0", "it is turned off");
    let settings = &fixture.files.settings().heat;
    settings.is_on.set(true);
    settings.percent.set(100);
    work();
    work();
    assert_eq!(heat(), "0 2 2 1200 2000");
    settings.percent.set(50);
    assert_eq!((settings.percent.get(), heat().as_str()), (50, "0 1 1 600 1000"));
    assert_eq!(set(b"6"), Ok(()));
    work();
    assert_eq!(heat(), "2 0 0 0 0", "off and cleared");
    assert_eq!(set(b"0"), Ok(()));
    settings.percent.set(100);
    settings.period.set(10);
    work();
    let world = fixture.world.clone();
    fixture
        .world
        .run(async move { world.sleep_until(world.now() + Duration::from_secs(30)).await });
    assert_eq!(heat(), "0 0 0 0 0", "its period is over");
    assert_eq!(set(b"x"), Err(Errno::EINVAL));
}
