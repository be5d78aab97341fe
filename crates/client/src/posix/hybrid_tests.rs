//! Who bypasses the kernel's pages, and what becomes of the pages, against a scripted MDT.

use bytes::Bytes;
use sheen_types::{Fid, InodeBits};
use sheen_wire::messages::MdsCloseReply;

use super::tests::layout_of;
use super::{Lookup, NodeId, OpenFlags, Opened};
use crate::testing::{Fixture, found, name, opened};

const READ: u32 = 0;
const WRITE: u32 = 1;
const BOTH: u32 = 2;

/// A file of so many stripes that is opened again and again.
struct Shared {
    fixture: Fixture,
    fid: Fid,
    node: NodeId,
    stripes: u16,
}

impl Shared {
    fn new(stripes: u16) -> Self {
        let fixture = Fixture::new();
        let fid = Fid::new(0x2_0000_0400, 100);
        let mut reply = found(fid, 0o100_644, 0x1000, InodeBits(0x13));
        reply.mdt_body.as_mut().expect("a file").mode = 0o100_644;
        fixture.mdt.answer(reply);
        let files = fixture.files.clone();
        let looked = async move { files.lookup(&Fixture::root(), NodeId::ROOT, &name("f")).await };
        let Ok(Lookup::Found(entry)) = fixture.world.run(looked) else { panic!("no file") };
        fixture.watcher.take();
        Self { fixture, fid, node: entry.node, stripes }
    }

    fn open(&self, flags: u32) -> Opened {
        self.fixture.mdt.answer(opened(self.fid, 0xabc, false, layout_of(self.stripes)));
        let (files, node) = (self.fixture.files.clone(), self.node);
        let open = async move { files.open(&Fixture::root(), node, OpenFlags(flags)).await };
        self.fixture.world.run(open).expect("opened")
    }

    /// Makes it, to write.
    fn create(&self) -> Opened {
        self.fixture.mdt.answer(opened(self.fid, 0xabc, true, layout_of(self.stripes)));
        let (files, flags) = (self.fixture.files.clone(), OpenFlags(WRITE | OpenFlags::CREATE));
        let create = async move {
            files.open_create(&Fixture::root(), NodeId::ROOT, &name("new"), 0o644, flags).await
        };
        self.fixture.world.run(create).expect("made").1
    }

    /// Opens it as by each of `flags`: which of them bypass the pages.
    fn bypassing(&self, flags: &[u32]) -> Vec<bool> {
        flags.iter().map(|flags| self.open(*flags).bypasses_page_cache).collect()
    }

    fn write(&self, opened: Opened, offset: u64) {
        let files = self.fixture.files.clone();
        let data = Bytes::from_static(b"0123456789");
        let written = async move { files.write(opened.handle, offset, data).await };
        assert_eq!(self.fixture.world.run(written), Ok(10));
    }
}

#[test]
fn writers_go_past_the_pages_where_two_signs_say_so() {
    let plain = [READ, WRITE, WRITE, BOTH];
    assert_eq!(Shared::new(1).bypassing(&plain), [false, false, true, false]);
    let striped = [READ, BOTH, BOTH, WRITE, READ];
    assert_eq!(Shared::new(2).bypassing(&striped), [false, false, true, true, false]);
    assert_eq!(Shared::new(2).bypassing(&[WRITE, READ, BOTH]), [true, false, true]);
    // One that is made by this open is read back, as like as not; cut to nothing, as well.
    let new = Shared::new(2);
    assert!(!new.create().bypasses_page_cache && new.open(WRITE).bypasses_page_cache);
    // Those that ask for it, always.
    let asked = [BOTH | OpenFlags::DIRECT, WRITE | OpenFlags::APPEND, READ | OpenFlags::DIRECT];
    assert_eq!(Shared::new(1).bypassing(&asked), [true; 3]);
}

#[test]
fn a_writer_who_has_closed_is_no_second_one() {
    let shared = Shared::new(1);
    let first = shared.open(WRITE);
    shared.fixture.mdt.answer(MdsCloseReply::default());
    let files = shared.fixture.files.clone();
    shared
        .fixture
        .world
        .run(async move { files.release(first.handle, None).await })
        .expect("closed");
    shared.fixture.world.settle();
    assert!(!shared.open(WRITE).bypasses_page_cache);
}

#[test]
fn operators_leave_all_writers_to_the_pages() {
    let shared = Shared::new(2);
    shared.fixture.files.settings().hybrid_io.set(false);
    assert_eq!(shared.bypassing(&[WRITE, WRITE, BOTH]), [false; 3]);
    assert!(shared.open(WRITE | OpenFlags::APPEND).bypasses_page_cache, "it asks for it");
}

#[test]
fn who_reads_through_the_pages_does_not_find_what_was_there_before() {
    let shared = Shared::new(2);
    let (one, other) = (shared.open(WRITE), shared.open(WRITE));
    let notices = || shared.fixture.watcher.take();
    notices();
    shared.write(one, 5000);
    assert_eq!(notices(), Vec::<String>::new(), "the kernel has no pages");
    assert_eq!(shared.fixture.files.pages_kept().bytes, 0, "nor makes any");
    let reader = shared.open(READ);
    notices();
    shared.write(other, 5000);
    let gone = |start| {
        format!("inode {} Pages(Extent {{ start: {start}, end: {} }})", shared.node.0, start + 9)
    };
    assert_eq!(notices(), [gone(5000)], "a read may be under way");
    let files = shared.fixture.files.clone();
    shared
        .fixture
        .world
        .run(async move { files.read(reader.handle, 5000, 10).await })
        .expect("read");
    assert!(shared.fixture.files.pages_kept().bytes > 0);
    // Its pages outlive the reader.
    shared.fixture.mdt.answer(MdsCloseReply::default());
    let files = shared.fixture.files.clone();
    shared
        .fixture
        .world
        .run(async move { files.release(reader.handle, None).await })
        .expect("closed");
    shared.fixture.world.settle();
    shared.write(one, 20);
    assert_eq!(notices(), [gone(20)]);
}

#[test]
fn what_the_kernel_writes_of_its_pages_has_its_place_and_stays_there() {
    let shared = Shared::new(2);
    let appended = shared.open(BOTH | OpenFlags::APPEND);
    let reader = shared.open(READ);
    shared.fixture.watcher.take();
    let files = shared.fixture.files.clone();
    let write = async move {
        files.write(appended.handle, 0, Bytes::from_static(b"0123456789")).await.expect("appended");
        files
            .write_back(appended.handle, 2, Bytes::from_static(b"xx"))
            .await
            .expect("written back");
        files.read(reader.handle, 0, 100).await
    };
    let read = shared.fixture.world.run(write).expect("read");
    assert_eq!(read.concat(), b"01xx456789");
    let notices = shared.fixture.watcher.take();
    assert_eq!(notices.len(), 1, "of what was appended alone: {notices:?}");
}
