//! What the kernel makes of answers that something overtook, against a scripted MDT.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_types::{Extent, Fid, InodeBits};
use sheen_wire::messages::MdsCloseReply;
use tokio::sync::Notify;

use super::tests::layout_of;
use super::{DirCookie, DirEntry, Lookup, NodeId, OpenFlags, Opened, SetAttributes, Stale};
use crate::cache::DataEventHandler;
use crate::data::{CallPages, DataEvents};
use crate::testing::{FakeFile, Fixture, found, name, opened};

const READ: u32 = 0;
const BOTH: u32 = 2;
const FILE: Fid = Fid::new(0x2_0000_0400, 100);

/// A file that the kernel knows, open, with nothing in it yet.
struct Bench {
    fixture: Fixture,
    node: NodeId,
    writer: Opened,
    reader: Opened,
}

impl Bench {
    fn new() -> Self {
        let fixture = Fixture::new();
        fixture.mdt.answer(found(FILE, 0o100_644, 0x1000, InodeBits(0x13)));
        let node = look_up(&fixture);
        let open = |flags| {
            fixture.mdt.answer(opened(FILE, 0xabc, false, layout_of(1)));
            let files = fixture.files.clone();
            let open = async move { files.open(&Fixture::root(), node, OpenFlags(flags)).await };
            fixture.world.run(open).expect("opened")
        };
        let (writer, reader) = (open(BOTH), open(READ));
        assert!(!writer.bypasses_page_cache && !reader.bypasses_page_cache);
        let bench = Self { fixture, node, writer, reader };
        bench.write(0, b"0");
        bench.fixture.watcher.take();
        bench
    }

    fn file(&self) -> Arc<FakeFile> {
        Arc::clone(&self.fixture.data.files.lock()[&FILE])
    }

    fn write(&self, offset: u64, data: &'static [u8]) {
        let (files, handle) = (self.fixture.files.clone(), self.writer.handle);
        let write = async move { files.write(handle, offset, Bytes::from_static(data)).await };
        self.fixture.world.run(write).expect("written");
    }

    fn close_all(&self) {
        for opened in [&self.writer, &self.reader] {
            self.fixture.mdt.answer(MdsCloseReply::default());
            let (files, handle) = (self.fixture.files.clone(), opened.handle);
            let closed = async move { files.release(handle, None).await };
            self.fixture.world.run(closed).expect("closed");
        }
        self.fixture.world.settle();
    }

    /// Another client has written so much.
    fn grow(&self, size: usize) {
        self.file().bytes.lock().resize(size, b'x');
    }

    /// Starts something, and says where its result will be.
    fn start<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Arc<Mutex<Option<T>>> {
        let result = Arc::new(Mutex::new(None));
        let there = Arc::clone(&result);
        let task = async move { *there.lock() = Some(work.await) };
        self.fixture.world.world().tasks.spawn("call", Box::pin(task));
        self.fixture.world.settle();
        result
    }

    fn stat(&self) -> u64 {
        let (files, node) = (self.fixture.files.clone(), self.node);
        let stat = async move { files.getattr(&Fixture::root(), node).await };
        self.fixture.world.run(stat).expect("attributes").attributes.size
    }

    /// A lock on its bytes goes.
    fn invalidate(&self) {
        let (kernel_cache, inode) =
            (Arc::clone(&self.fixture.files.0.kernel_cache), self.fixture.files.0.pin(self.node));
        let inode = inode.expect("known");
        let notices =
            async move { kernel_cache.invalidate_inode(&inode, Stale::Pages(Extent::ALL)).await };
        self.fixture.world.run(notices);
    }

    fn notices(&self) -> Vec<String> {
        self.fixture.watcher.take()
    }

    fn raised(&self, size: u64) -> String {
        format!("raise {} {size}", self.node.0)
    }
}

fn look_up(fixture: &Fixture) -> NodeId {
    let files = fixture.files.clone();
    let looked = async move { files.lookup(&Fixture::root(), NodeId::ROOT, &name("f")).await };
    let Ok(Lookup::Found(entry)) = fixture.world.run(looked) else { panic!("no file") };
    entry.node
}

#[test]
fn a_size_that_the_kernel_may_not_have_heard_is_raised_there() {
    let bench = Bench::new();
    bench.grow(5000);
    assert_eq!((bench.stat(), bench.notices()), (5000, Vec::new()), "it hears the answer");
    bench.invalidate();
    let notices = bench.notices();
    assert_eq!(notices[0], bench.raised(5000), "it may not have heard it before it drops it");
    assert!(notices[1].contains("Pages"), "{notices:?}");
    bench.invalidate();
    assert_eq!(bench.notices().len(), 1, "it is sure of that size");
    // From now on it may have processed a notification between its question and the answer.
    assert_eq!((bench.stat(), bench.notices()), (5000, Vec::new()));
    bench.grow(6000);
    assert_eq!((bench.stat(), bench.notices()), (6000, vec![bench.raised(6000)]));
    assert_eq!((bench.stat(), bench.notices()), (6000, Vec::new()));
}

/// The MDT's hint is older. The kernel would cut the pages that it has behind what a lookup says.
#[test]
fn a_lookup_guesses_no_smaller_size_than_was_known_last() {
    let bench = Bench::new();
    bench.grow(1 << 20);
    let files = &bench.fixture.files.0;
    let inode = files.pin(bench.node).expect("known");
    let stat = files.stat_without_rpc(&inode).expect("attributes");
    assert_eq!(
        (stat.attributes.size, stat.keep),
        (1 << 20, false),
        "it is asked for before it is used"
    );
}

/// As it may not look the name up, which says nothing of what the kernel has.
#[test]
fn a_listing_guesses_no_smaller_size_than_was_known_last() {
    let bench = Bench::new();
    bench.grow(1 << 20);
    let files = &bench.fixture.files.0;
    let parent = files.pin(NodeId::ROOT).expect("the root");
    let listed = DirEntry {
        name: (*b"f").into(),
        ino: bench.node.0,
        fid: FILE,
        file_type: None,
        next: DirCookie(1),
    };
    let entry = files.entry_unseen(&parent, &name("f"), &listed).unwrap();
    assert_eq!((entry.node, entry.attributes.size), (bench.node, 1 << 20));
    assert!(!entry.keep.attributes && !entry.keep.entry);
}

#[test]
fn a_lookup_asks_for_the_size_while_the_kernel_has_pages_that_lack_bytes() {
    let bench = Bench::new();
    bench.close_all();
    let glimpses = || {
        look_up(&bench.fixture);
        std::mem::take(&mut *bench.file().done.lock()).iter().filter(|it| *it == "glimpse").count()
    };
    assert_eq!(glimpses(), 0, "it is not open anywhere");
    *bench.file().has_pending_invalidations.lock() = true;
    assert_eq!(glimpses(), 1, "with a guess programs might see zeros there");
}

#[test]
fn a_question_is_answered_when_the_size_is_raised() {
    let bench = Bench::new();
    bench.invalidate();
    bench.grow(7000);
    let hold = Arc::new(Notify::new());
    *bench.fixture.watcher.hold.lock() = Some(Arc::clone(&hold));
    let (files, node) = (bench.fixture.files.clone(), bench.node);
    let stat = bench.start(async move { files.getattr(&Fixture::root(), node).await });
    assert!(stat.lock().is_none(), "the read that asks would go by the old size");
    // And no cut of ours overtakes it, which would be undone.
    bench.fixture.mdt.answer(sheen_wire::messages::MdsReintReply::default());
    let files = bench.fixture.files.clone();
    let changes = SetAttributes { size: Some(10), ..SetAttributes::default() };
    let cut =
        bench.start(async move { files.setattr(&Fixture::root(), node, None, changes).await });
    assert!(cut.lock().is_none(), "the kernel would have 7000 for the size afterwards");
    *bench.fixture.watcher.hold.lock() = None;
    hold.notify_waiters();
    bench.fixture.world.settle();
    assert!(stat.lock().is_some() && cut.lock().is_some());
}

/// The notice finds the inode that the kernel has made anew under the same number.
#[test]
fn an_inode_that_is_forgotten_while_something_of_it_is_taken_back_is_remembered_until_then() {
    let bench = Bench::new();
    bench.close_all();
    let hold = Arc::new(Notify::new());
    *bench.fixture.watcher.hold.lock() = Some(Arc::clone(&hold));
    let inodes = Arc::clone(&bench.fixture.files.0.inodes);
    let watch = DataEventHandler {
        inodes: Arc::clone(&inodes),
        kernel_cache: Arc::clone(&bench.fixture.files.0.kernel_cache),
    };
    let notices = watch.invalidate(FILE, Stale::Pages(Extent::ALL));
    bench.start(async move { notices.await.done().await });
    bench.fixture.files.forget(bench.node, 1);
    assert!(inodes.by_fid(FILE).is_some(), "the kernel does not have the notice yet");
    let again = look_up(&bench.fixture);
    *bench.fixture.watcher.hold.lock() = None;
    bench.notices();
    bench.grow(6000);
    assert_eq!((again, bench.stat()), (bench.node, 6000));
    assert_eq!(bench.notices(), [bench.raised(6000)], "the notice may have overtaken the answer");
    bench.fixture.files.forget(bench.node, 1);
    hold.notify_waiters();
    bench.fixture.world.settle();
    assert!(inodes.by_fid(FILE).is_none());
}

#[test]
fn the_kernel_holds_pages_for_reads_that_fill_them_and_for_no_other_calls() {
    let bench = Bench::new();
    let held = |fills: bool| {
        let (files, reader) = (bench.fixture.files.clone(), bench.reader.handle);
        bench.start(async move {
            match fills {
                true => files.read(reader, 5000, 100).await,
                false => files.read_bypassing_page_cache(reader, 5000, 100).await,
            }
        });
        bench.file().call_pages.lock().take().map(CallPages::range)
    };
    assert_eq!(held(true), Some(Extent { start: 4096, end: 8191 }));
    assert_eq!(held(false), None, "a lock that goes waits for whatever else holds that page");
}

#[test]
fn a_read_brings_what_a_write_before_it_has_put_into_the_pages() {
    let bench = Bench::new();
    bench.grow(3 * 4096);
    let hold = Arc::new(Notify::new());
    *bench.file().hold.lock() = Some(Arc::clone(&hold));
    let (files, writer) = (bench.fixture.files.clone(), bench.writer.handle);
    let new = Bytes::from_static(b"new");
    let write = bench.start(async move { files.write(writer, 4090, new).await });
    // Its lock went, and the kernel's pages with it: both are read again.
    let read = |offset| {
        let (files, reader) = (bench.fixture.files.clone(), bench.reader.handle);
        bench.start(async move { files.read(reader, offset, 4096).await })
    };
    let (before, same, behind) = (read(0), read(4096), read(8192));
    assert!(write.lock().is_none() && before.lock().is_none(), "it would never be removed again");
    assert!(same.lock().is_some() && behind.lock().is_some(), "the write ends before these");
    assert!(bench.fixture.data.asked.lock().contains(&(FILE, Extent { start: 0, end: 4095 })));
    *bench.file().hold.lock() = None;
    hold.notify_waiters();
    bench.fixture.world.settle();
    assert!(write.lock().is_some());
    let bytes = before.lock().take().expect("answered").expect("read").concat();
    assert_eq!(bytes[4090..4093], *b"new");
}
