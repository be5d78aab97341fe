//! Data on an MDT: under the same locks as other parts of an inode.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_layout::{Body, Mapping};
use sheen_ldlm::{LockFlags, Policy};
use sheen_rpc::Channel;
use sheen_types::{Errno, Extent, InodeBits, LockHandle, LockMode, ResourceName, Timestamp};
use sheen_wire::ldlm::{LdlmReply, LdlmRequest, Policy as WirePolicy};

use super::ost::FakeOst;
use super::{CACHED, FILE, Fixture, GROWING, Layout, errno, pattern};
use crate::data::{AddedMdt, DataFile, DataPath, InodeData, NewTimes, WriteAt};
use crate::locks::{ClientNamespace, CoveredCache, LockReference, LockRequest, LostLock};
use crate::testing::{TestWorld, lock_config, lock_reply};

/// What an open to read gives.
const OPEN: InodeBits = InodeBits(0x5b);
const COMPONENT: u64 = 64 << 10;

/// Notes which bits go.
#[derive(Default)]
struct FakeCovered(Mutex<Vec<InodeBits>>, AtomicBool);

impl CoveredCache for FakeCovered {
    fn flush_and_invalidate(
        &self,
        _: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        self.0.lock().push(lost.part.inode_bits());
        Box::pin(std::future::ready(()))
    }

    fn invalidate_evicted(
        &self,
        locks: &Arc<ClientNamespace>,
        lost: LostLock,
    ) -> BoxFuture<'static, ()> {
        self.flush_and_invalidate(locks, lost)
    }

    /// The file is closed.
    fn cancels_whole_lock(&self, _: ResourceName) -> bool {
        self.1.load(Ordering::Relaxed)
    }

    fn glimpse(&self, _: ResourceName) -> Option<Bytes> {
        None
    }
}

/// A data path with an MDT, which takes `LDLM_CONVERT`.
struct OnMdt {
    fixture: Fixture,
    mdt: Arc<FakeOst>,
    locks: Arc<ClientNamespace>,
    data: Arc<dyn InodeData>,
    inodes: Arc<FakeCovered>,
}

fn resource() -> ResourceName {
    ResourceName::of_fid(FILE)
}

fn mapping() -> Mapping {
    let extent = Extent { start: 0, end: COMPONENT - 1 };
    Mapping { extent, ..Mapping::whole() }
}

impl OnMdt {
    fn new() -> Self {
        let fixture = Fixture::new(1 << 20);
        let mdt = FakeOst::new();
        mdt.script.lock().narrow = true;
        let inodes = Arc::new(FakeCovered::default());
        let channel = Arc::clone(&mdt) as Arc<dyn Channel>;
        let protected = Arc::clone(&inodes) as Arc<dyn CoveredCache>;
        let name = "fs-MDT0000".to_owned();
        let AddedMdt { locks, data } =
            fixture.osts.add_mdt(0, name, channel, lock_config(), protected);
        fixture.osts.mdt_connected(0, &FakeOst::agreed(1 << 20));
        locks.engine().set_convert(true);
        Self { fixture, mdt, locks, data, inodes }
    }

    /// A file whose first bytes lie on the MDT, and the rest nowhere yet.
    fn file(&self) -> Arc<dyn DataFile> {
        let rest = Extent { start: COMPONENT, end: Extent::EOF };
        let parts = [(1, mapping().extent, Body::Mdt), (2, rest, Body::Absent)];
        self.fixture.file_by(Arc::new(Layout::new(1, parts).expect("a legal layout")))
    }

    fn world(&self) -> &TestWorld {
        &self.fixture.world
    }

    /// A lock with these bits that came with an answer to an intent, and `value` with it.
    fn given(&self, mode: LockMode, bits: InodeBits, value: Bytes) -> LockReference {
        let locks = Arc::clone(&self.locks);
        let remote = 0x7000 + self.locks.engine().gauges().misses;
        self.world().run(async move {
            let policy = Policy::bits(bits);
            let flags = LockFlags::HAS_INTENT;
            let pending = locks.begin(LockRequest { resource: resource(), policy, mode, flags });
            let reply: LdlmReply = lock_reply(FILE, remote, mode, bits);
            pending.granted_with(&reply, &value, 1).await.expect("granted").expect("a lock")
        })
    }

    /// Another client wants these bits of a lock.
    fn callback(&self, handle: LockHandle, bits: InodeBits) {
        let mut desc = lock_reply(FILE, 0, LockMode::Ex, bits).desc;
        desc.policy = WirePolicy::of_inode_bits(bits, bits);
        desc.granted_mode = Default::default();
        let handles = vec![handle];
        let callback = LdlmRequest { desc, count: 1, handles, ..LdlmRequest::default() };
        self.locks.on_blocking(&callback).expect("known");
        self.world().settle();
    }

    fn invalidated(&self) -> Vec<Extent> {
        std::mem::take(&mut *self.fixture.events.invalidated.lock())
    }

    fn write(&self, file: &Arc<dyn DataFile>, length: usize) {
        let written = self.fixture.write(file, WriteAt::Offset(0), pattern(length), CACHED);
        written.expect("accepted");
    }
}

#[test]
fn one_lock_on_the_inode_covers_all_bytes_and_the_size() {
    let it = OnMdt::new();
    it.mdt.set_bytes(resource(), pattern(5000).to_vec());
    let file = it.file();
    let read = it.fixture.read(&file, 4000, 4096, CACHED);
    assert_eq!(read, Ok(pattern(5000).slice(4000..)));
    assert_eq!(it.mdt.take_asked(), ["lock Pr 0x40", "read 4000+4096"]);
    assert_eq!(it.fixture.size(&file), 5000);
    it.fixture.read(&file, 0, 100, CACHED).expect("read");
    assert_eq!(it.mdt.take_asked(), ["read 0+100"]);
    it.write(&file, 6000);
    assert_eq!(it.mdt.take_asked(), ["lock Pw 0x40 instead of 1"], "the reader's lock goes along");
    assert_eq!(it.fixture.size(&file), 6000);
    it.fixture.sync(&file).expect("durable");
    assert_eq!(it.mdt.take_asked(), ["write 0+6000 used 8192", "sync"]);
    assert_eq!(it.mdt.bytes(resource()), pattern(6000));
}

#[test]
fn a_lock_that_an_open_gave_saves_those_for_data() {
    let it = OnMdt::new();
    // Before a call uses the data.
    drop(it.given(LockMode::Pw, OPEN, it.mdt.value(resource())));
    let file = it.file();
    assert!(file.attributes_covered().is_some_and(|known| known.size == 0));
    it.write(&file, 3000);
    assert_eq!(it.fixture.size(&file), 3000);
    assert_eq!(it.mdt.take_asked(), Vec::<String>::new());
    it.fixture.wait(Duration::from_secs(2));
    assert_eq!(it.mdt.take_asked(), ["write 0+3000 used 4096"]);
}

#[test]
fn pages_stay_while_other_bits_go_and_dirty_ones_are_written_before_theirs_does() {
    let it = OnMdt::new();
    let held = it.given(LockMode::Pw, OPEN, it.mdt.value(resource()));
    let handle = held.handle();
    drop(held);
    let file = it.file();
    it.write(&file, 3000);
    it.callback(handle, InodeBits::LOOKUP | InodeBits::UPDATE | InodeBits::PERM);
    assert_eq!(it.mdt.take_asked(), ["convert 0x48"]);
    assert_eq!(*it.inodes.0.lock(), [InodeBits(0x13)]);
    assert_eq!(it.invalidated(), []);
    assert!(file.attributes_covered().is_some(), "size and times are still ours");
    it.callback(handle, InodeBits::DOM);
    assert_eq!(it.mdt.take_asked(), ["write 0+3000 used 4096", "convert 0x8"]);
    assert_eq!(it.invalidated(), [mapping().extent]);
    assert_eq!(file.attributes_covered(), None);
    assert_eq!(*it.inodes.0.lock(), [InodeBits(0x13), InodeBits::DOM]);
}

#[test]
fn a_lock_on_a_closed_file_goes_whole_when_it_is_wanted_in_part_and_nothing_is_dirty() {
    let it = OnMdt::new();
    let held = it.given(LockMode::Pw, OPEN, it.mdt.value(resource()));
    let handle = held.handle();
    drop(held);
    let file = it.file();
    it.write(&file, 3000);
    it.inodes.1.store(true, Ordering::Relaxed);
    it.callback(handle, InodeBits::LOOKUP);
    assert_eq!(it.mdt.take_asked(), ["convert 0x5a"], "it is dirty");
    it.fixture.sync(&file).expect("durable");
    it.mdt.take_asked();
    it.callback(handle, InodeBits::UPDATE);
    assert_eq!(it.mdt.take_asked(), ["cancel 1"]);
    assert_eq!(it.invalidated(), [mapping().extent]);
}

#[test]
fn pages_stay_while_another_lock_covers_them() {
    let it = OnMdt::new();
    it.mdt.set_bytes(resource(), pattern(5000).to_vec());
    let value = it.mdt.value(resource());
    let (one, other) =
        (it.given(LockMode::Pr, OPEN, value.clone()), it.given(LockMode::Pr, OPEN, value));
    let (first, second) = (one.handle(), other.handle());
    drop((one, other));
    let file = it.file();
    it.callback(first, OPEN);
    assert_eq!(it.invalidated(), []);
    assert!(file.attributes_covered().is_some());
    it.callback(second, OPEN);
    assert_eq!(it.invalidated(), [mapping().extent]);
    assert_eq!(file.attributes_covered(), None);
}

#[test]
fn what_an_open_brought_is_read_without_asking() {
    let it = OnMdt::new();
    let content = pattern(3000);
    it.mdt.set_bytes(resource(), content.to_vec());
    let inline_data = it.data.insert_inline(FILE, mapping(), 0, content.clone());
    drop(it.given(LockMode::Pr, OPEN, it.mdt.value(resource())));
    let file = it.file();
    assert_eq!(it.fixture.read(&file, 0, 4096, CACHED), Ok(content));
    assert_eq!(it.fixture.size(&file), 3000);
    assert_eq!(it.mdt.take_asked(), Vec::<String>::new());
    drop(inline_data);
}

#[test]
fn what_an_open_brought_goes_with_its_lock_or_the_open() {
    let it = OnMdt::new();
    it.mdt.set_bytes(resource(), vec![1; 100]);
    let old = || Bytes::from(vec![1; 100]);
    let file = it.file();
    let _kept = it.data.insert_inline(FILE, mapping(), 0, old());
    let held = it.given(LockMode::Pr, OPEN, it.mdt.value(resource()));
    let handle = held.handle();
    drop(held);
    it.callback(handle, InodeBits::DOM);
    it.mdt.set_bytes(resource(), vec![2; 100]);
    let read = || it.fixture.read(&file, 0, 100, CACHED).expect("read");
    assert_eq!(read(), vec![2; 100]);
    it.mdt.take_asked();
    // Two opens bring the same bytes; the second still wants them when the first is done.
    let two = [0, 1].map(|_| it.data.insert_inline(FILE, mapping(), 0, vec![2; 100].into()));
    let [one, other] = two;
    drop(one);
    assert_eq!(read(), vec![2; 100]);
    assert_eq!(it.mdt.take_asked(), Vec::<String>::new());
    drop((_kept, other));
    assert_eq!(read(), vec![2; 100]);
    assert_eq!(it.mdt.take_asked(), ["read 0+100"]);
}

#[test]
fn what_an_open_brought_is_shown_whole_under_its_lock_or_not_at_all() {
    let it = OnMdt::new();
    let content = pattern(3000);
    it.mdt.set_bytes(resource(), content.to_vec());
    let inline_data = it.data.insert_inline(FILE, mapping(), 0, content.clone()).expect("taken");
    assert!(inline_data.view().is_none(), "no lock covers it");
    let held = it.given(LockMode::Pr, OPEN, it.mdt.value(resource()));
    let handle = held.handle();
    drop(held);
    let view = inline_data.view().expect("whole");
    assert_eq!(view.bytes, content);
    // Who has it laid into pages now must hear that they are stale after that, not before.
    it.callback(handle, InodeBits::DOM);
    assert_eq!(it.invalidated(), []);
    drop(view);
    it.world().settle();
    assert_eq!(it.invalidated(), [mapping().extent]);
    assert!(inline_data.view().is_none(), "its lock has gone");
}

#[test]
fn what_was_read_in_part_or_does_not_begin_the_file_is_not_shown() {
    let it = OnMdt::new();
    it.mdt.set_bytes(resource(), pattern(8192).to_vec());
    let whole = it.data.insert_inline(FILE, mapping(), 0, pattern(8192)).expect("taken");
    drop(it.given(LockMode::Pr, OPEN, it.mdt.value(resource())));
    let file = it.file();
    assert!(whole.view().is_some());
    it.fixture.read(&file, 0, 4096, CACHED).expect("read");
    assert!(whole.view().is_none(), "the kernel has its beginning");
    drop(whole);
    let page = it.data.insert_inline(FILE, mapping(), 4096, pattern(8192).slice(4096..));
    assert!(page.expect("taken").view().is_none(), "only its last page");
}

#[test]
fn what_comes_while_we_have_written_is_older_than_ours() {
    let it = OnMdt::new();
    let file = it.file();
    it.write(&file, 100);
    assert!(it.data.is_dirty(FILE));
    assert!(it.data.insert_inline(FILE, mapping(), 0, vec![0; 100].into()).is_none());
    assert_eq!(it.fixture.read(&file, 0, 100, CACHED), Ok(pattern(100)));
    it.fixture.wait(Duration::from_secs(2));
    assert!(!it.data.is_dirty(FILE));
    assert_eq!(it.mdt.take("write"), ["write 0+100 used 4096"]);
}

#[test]
fn a_glimpse_counts_what_is_dirty_and_asks_for_the_whole_inode() {
    let it = OnMdt::new();
    it.mdt.script.lock().busy = true;
    it.mdt.set_bytes(resource(), vec![1; 700]);
    let file = it.file();
    assert_eq!(it.fixture.size(&file), 700);
    assert_eq!(it.mdt.take_asked(), ["glimpse Pr 0x40"]);
    assert_eq!(file.attributes_covered(), None, "another client may be writing");
    it.write(&file, 900);
    assert_eq!(it.fixture.size(&file), 900);
    let handle = it.locks.engine().dump(resource())[0].handle;
    let asked = LdlmRequest { handles: vec![handle], count: 1, ..LdlmRequest::default() };
    let value = it.locks.on_glimpse(&asked).expect("known");
    let value = crate::data::object::KnownAttributes::from_lvb(&value).expect("a value");
    assert_eq!((value.size, value.blocks), (900, 2 + 2));
}

#[test]
fn a_cut_goes_to_the_mdt_and_times_do_not() {
    let it = OnMdt::new();
    it.mdt.set_bytes(resource(), vec![1; 700]);
    let file = it.file();
    let cut = it.fixture.run(&file, |file| async move {
        file.truncate(300, Timestamp::from_seconds(9), GROWING).await.map_err(errno)
    });
    assert_eq!(cut, Ok(()));
    assert_eq!(it.mdt.take_asked(), ["lock Pw 0x40", "punch 300"]);
    assert_eq!(it.fixture.size(&file), 300);
    let noon = Timestamp::from_seconds(77);
    let set = it.fixture.run(&file, |file| async move {
        file.set_times(Some(noon), Some(noon), Timestamp::from_seconds(80)).await.map_err(errno)
    });
    assert_eq!(set, Ok(()));
    assert_eq!(it.mdt.take_asked(), Vec::<String>::new(), "the MDT has heard of them");
    let known = file.attributes_covered().expect("covered");
    assert_eq!((known.mtime, known.ctime), (noon, Timestamp::from_seconds(80)));
}

#[test]
fn what_is_dirty_is_written_with_times_that_were_set_later() {
    let it = OnMdt::new();
    let file = it.file();
    let times = |seconds| NewTimes {
        atime: None,
        mtime: Some(Timestamp::from_seconds(seconds)),
        ctime: Timestamp::from_seconds(80),
    };
    assert!(it.data.update_times(FILE, times(7)).is_none(), "there is nothing to write");
    it.write(&file, 100);
    let written = it.mdt.mtime();
    it.data.update_times(FILE, times(8)).expect("it is dirty").undo();
    it.fixture.sync(&file).expect("durable");
    assert!(it.mdt.mtime() > written + 1000, "that of the write");
    it.write(&file, 100);
    it.data.update_times(FILE, times(9)).expect("it is dirty");
    it.fixture.sync(&file).expect("durable");
    assert_eq!(it.mdt.mtime(), 9);
}

#[test]
fn an_mdt_that_has_forgotten_us_costs_what_was_dirty() {
    let it = OnMdt::new();
    let file = it.file();
    it.write(&file, 100);
    it.locks.on_evicted();
    it.world().settle();
    assert_eq!(it.fixture.failures(), [Errno::EIO]);
    assert_eq!(it.mdt.take("write"), Vec::<String>::new());
    assert_eq!(*it.inodes.0.lock(), [InodeBits::DOM]);
    assert_eq!(it.fixture.sync(&file), Ok(()));
}

#[test]
fn an_object_follows_its_component_when_the_layout_changes() {
    let it = OnMdt::new();
    let file = it.file();
    it.write(&file, 100);
    let larger = Mapping { extent: Extent { start: 0, end: (1 << 20) - 1 }, ..mapping() };
    assert!(
        it.data.insert_inline(FILE, larger, 0, vec![0; 9].into()).is_none(),
        "not while it is dirty"
    );
    it.fixture.sync(&file).expect("durable");
    let inline_data = it.data.insert_inline(FILE, larger, 0, vec![7; 9].into());
    assert!(inline_data.is_some());
    assert!(
        it.fixture
            .osts
            .file_on(FILE, file.layout().clone().into(), it.fixture.layout_guard.version())
            .is_ok()
    );
}
