//! What tests of this crate run on: a world in virtual time, a scripted MDT, files without OSTs.

mod data;
mod mdt;
mod records;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::BoxFuture;
use sheen_ldlm::client::Config;
use sheen_rpc::{Channel, Import, ImportConfig};
use sheen_types::{Fid, InodeBits, MdtIndex, Name, Uuid};

pub(crate) use data::{CoveredNothing, FakeData, FakeFile, FakeInodeData};
pub(crate) use mdt::{
    FakeMdt, absent, batch_reply, blocking, body, found, found_elsewhere, lock_reply, opened,
    parts_of, super_range,
};
pub(crate) use records::Records;
pub(crate) use world::TestWorld;

use crate::cache::{
    CoveredByMdt, CoveredMetadata, FileLockRecords, InodeTable, KernelCache, NameHasher,
};
use crate::locks::{CallbackRouter, ClientNamespace};
use crate::mdt::{FidSource, Mdc, Mdts};
use crate::meta::Meta;
use crate::posix::{
    Audience, Credentials, FileSystem, Handles, Invalidated, KernelNotifier, May, Mounted,
    NameInvalidation, NodeId, SizeRaise, Stale, StaleName, StaleRetry,
};
use crate::records::Recorder;
use crate::targets::{Connector, Targets};

/// A mounted file system whose MDT says what the test scripts.
pub(crate) struct Fixture {
    pub(crate) world: TestWorld,
    pub(crate) mdt: Arc<FakeMdt>,
    pub(crate) data: Arc<FakeData>,
    /// Data on the MDT.
    pub(crate) inode_data: Arc<FakeInodeData>,
    pub(crate) locks: Arc<ClientNamespace>,
    pub(crate) files: FileSystem,
    pub(crate) watcher: Arc<Watcher>,
    mdts: Arc<Mdts>,
    cache: Arc<CoveredMetadata>,
}

/// An MDT that was added.
pub(crate) struct AnotherMdt {
    pub(crate) mdt: Arc<FakeMdt>,
    pub(crate) locks: Arc<ClientNamespace>,
}

/// Notes what it is notified of; a test can delay it.
#[derive(Default)]
pub(crate) struct Watcher {
    pub(crate) notices: Mutex<Vec<String>>,
    /// The names that the kernel was to drop, and not to look up again.
    pub(crate) dropped: Mutex<Vec<String>>,
    pub(crate) hold: Mutex<Option<Arc<tokio::sync::Notify>>>,
    /// Names of directories are not dropped in time.
    pub(crate) is_busy: AtomicBool,
}

impl Watcher {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock())
    }

    fn note(&self, text: String) -> BoxFuture<'static, ()> {
        self.notices.lock().push(text);
        let hold = self.hold.lock().clone();
        Box::pin(async move {
            if let Some(hold) = hold {
                hold.notified().await;
            }
        })
    }
}

impl KernelNotifier for Watcher {
    fn invalidate_name(&self, stale: &StaleName) -> BoxFuture<'static, ()> {
        if stale.by == NameInvalidation::Drop {
            self.dropped.lock().push(stale.name.to_string());
        }
        self.note(format!("entry {} {}", stale.parent.0, stale.name))
    }

    fn prune(&self, files: Vec<NodeId>) -> BoxFuture<'static, ()> {
        let files: Vec<_> = files.iter().map(|node| node.0.to_string()).collect();
        self.note(format!("shut {}", files.join(" ")))
    }

    fn expire_names(
        &self,
        node: NodeId,
        names: Vec<Name>,
        _: Vec<NodeId>,
    ) -> BoxFuture<'static, bool> {
        let mut names: Vec<String> = names.iter().map(Name::to_string).collect();
        names.sort();
        let noted = self.note(format!("children {} {}", node.0, names.join(" ")));
        let is_expired = !self.is_busy.load(Ordering::Relaxed);
        Box::pin(async move {
            noted.await;
            is_expired
        })
    }

    fn raise_size(&self, raise: SizeRaise) -> BoxFuture<'static, ()> {
        let noted = self.note(format!("raise {} {}", raise.node().0, raise.size()));
        Box::pin(async move {
            noted.await;
            raise.done();
        })
    }

    fn invalidate_inode(&self, node: NodeId, stale: Stale) -> BoxFuture<'static, Invalidated> {
        let noted = self.note(format!("inode {} {stale:?}", node.0));
        Box::pin(async move {
            noted.await;
            Invalidated::Done
        })
    }
}

struct NoConnector;

impl Connector for NoConnector {
    fn import(&self, _: ImportConfig) -> Arc<dyn Import> {
        unreachable!("the fixture connects to nothing")
    }
}

/// Locks that live as long as the test.
pub(crate) fn lock_config() -> Config {
    Config { seed: 1, lru_size: 1000, lru_max_age: Duration::from_secs(3600) }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::recording(Recorder::default())
    }

    /// The same; what the mount's next process needs is recorded.
    pub(crate) fn recording(recorder: Recorder) -> Self {
        let world = TestWorld::new(7);
        let mdt = FakeMdt::new();
        let locations = Arc::new(crate::data::MdtLocations::default());
        let inodes = InodeTable::recording(Fid::ROOT, recorder.clone(), Arc::clone(&locations));
        let kernel_cache = Arc::new(KernelCache::default());
        let cache = Arc::new(CoveredMetadata {
            inodes: Arc::clone(&inodes),
            kernel_cache: Arc::clone(&kernel_cache),
            hasher: NameHasher::new(11),
            file_locks: FileLockRecords::new(recorder.clone()),
            clock: world.world().clock,
        });
        let channel = Arc::clone(&mdt) as Arc<dyn Channel>;
        let locks = ClientNamespace::new(
            "fs-MDT0000".to_owned(),
            world.world(),
            Arc::clone(&channel),
            lock_config(),
            Arc::new(CoveredByMdt { mdt: MdtIndex(0), metadata: Arc::clone(&cache) }),
        );
        let inode_data = Arc::new(FakeInodeData::default());
        let target = Arc::new(Mdc {
            index: MdtIndex(0),
            fids: FidSource::new(Arc::clone(&channel), recorder.clone()),
            channel,
            locks: Arc::clone(&locks),
            data: Arc::clone(&inode_data) as Arc<dyn crate::data::InodeData>,
            refuses_batches: Default::default(),
        });
        let mdts = Arc::new(Mdts::new(world.world(), locations, target));
        let data = Arc::new(FakeData::default());
        let targets = Targets::new(
            world.world(),
            Arc::new(NoConnector),
            Arc::new(CallbackRouter::default()),
            Uuid::new("client"),
            lock_config(),
        );
        let files = FileSystem::new(Mounted {
            meta: Meta::new(world.world(), Arc::clone(&cache), Arc::clone(&mdts)),
            data: Arc::clone(&data) as Arc<dyn crate::data::DataPath>,
            targets: Arc::new(targets),
            inodes,
            kernel_cache,
            handles: Handles::new(recorder.clone()),
            stale_retry: StaleRetry::default(),
            migrations: crate::posix::Migrations::default(),
            statistics: Default::default(),
            settings: Default::default(),
            ahead: Default::default(),
            squash: parking_lot::RwLock::default(),
            access_times: parking_lot::RwLock::default(),
            page_handoff: crate::posix::PageHandoff::default(),
            file_locks_taken: crate::posix::FileLocksTaken::new(recorder),
            closing: crate::posix::PendingCloses::default(),
            former: crate::posix::FormerProcess::default(),
        });
        let watcher = Arc::new(Watcher::default());
        files.attach_notifier(Arc::clone(&watcher) as Arc<dyn KernelNotifier>, Audience::AnyUser);
        let fixture = Self { world, mdt, data, inode_data, locks, files, watcher, mdts, cache };
        fixture.know_root();
        fixture
    }

    /// Adds an MDT of the next number.
    pub(crate) fn add_mdt(&self) -> AnotherMdt {
        let mdt = FakeMdt::new();
        let index = MdtIndex(self.mdts.all().len() as u16);
        mdt.index.store(index.0.into(), std::sync::atomic::Ordering::Relaxed);
        let channel = Arc::clone(&mdt) as Arc<dyn Channel>;
        let locks = ClientNamespace::new(
            format!("fs-MDT{:04x}", index.0),
            self.world.world(),
            Arc::clone(&channel),
            Config { seed: 1 + u64::from(index.0) * 1000, ..lock_config() },
            Arc::new(CoveredByMdt { mdt: index, metadata: Arc::clone(&self.cache) }),
        );
        self.mdts.add(Arc::new(Mdc {
            index,
            fids: FidSource::new(Arc::clone(&channel), Recorder::default()),
            channel,
            locks: Arc::clone(&locks),
            data: Arc::clone(&self.inode_data) as Arc<dyn crate::data::InodeData>,
            refuses_batches: Default::default(),
        }));
        // Where there was one MDT it was not asked how directories are to lie on several.
        let root = self.cache.inodes.by_node(NodeId::ROOT).expect("it is always there");
        root.state().note_default_striping(None, true);
        AnotherMdt { mdt, locks }
    }

    /// Every user may search the root directory, under a lock of its own: what every lookup in it asks first.
    fn know_root(&self) {
        let bits = InodeBits::LOOKUP | InodeBits::PERM;
        self.mdt.answer(found(Fid::ROOT, 0o040_755, 0x60, bits));
        let files = self.files.clone();
        let access = async move { files.access(&Self::root(), NodeId::ROOT, May::EXEC).await };
        assert_eq!(self.world.run(access), Ok(()));
        self.mdt.take_asked();
    }

    /// The superuser.
    pub(crate) fn root() -> Credentials {
        Credentials::root()
    }
}

/// A legal name.
pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("tests use legal names")
}
