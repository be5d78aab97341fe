//! What happens to cached metadata when a lock goes.

use std::sync::Arc;

use sheen_io::BoxFuture;
use sheen_types::{Errno, Fid, InodeBits, Name, ResourceName};

use super::{Inodes, KeptOpen, LayoutState, NameBook, Observers, Pin, State};
use crate::data::DataEvents;
use crate::locks::{LockSpace, Lost, Protected};
use crate::meta::close_kept;
use crate::posix::{Attributes, FileType, Invalidated, NodeId, Stale};

/// Stands between the locks of MDTs and the inode cache.
pub(crate) struct MetaCache {
    /// The inodes.
    pub(crate) inodes: Arc<Inodes>,
    /// Who must be told.
    pub(crate) observers: Arc<Observers>,
    /// What directories know of their names.
    pub(crate) book: Arc<NameBook>,
}

/// What others must be told.
#[derive(Default)]
struct Tell {
    entries: Vec<(NodeId, Name, bool)>,
    /// The loss after which names of the inode itself are among them.
    loss: Option<u32>,
    /// Names of the inode, a directory, that were kept because all may search it.
    given: Vec<Name>,
    attributes: bool,
}

impl State {
    /// Whether somebody may ask what its name is: who works in a directory, or has a file open.
    pub(crate) fn is_in_use(&self) -> bool {
        let is_directory = |it: &Attributes| it.file_type() == FileType::Directory;
        self.opens > 0 || self.attributes.as_ref().is_some_and(is_directory)
    }

    /// Drops what `gone` covered.
    fn uncover(&mut self, gone: InodeBits, node: NodeId) -> Tell {
        let had_attributes = self.attributes_covered();
        self.covered = self.covered.without(gone);
        if !gone.is_empty() {
            self.lose_names(gone);
        }
        let mut tell = Tell::default();
        if gone.contains(InodeBits::LOOKUP) {
            let is_in_use = self.is_in_use();
            let (names, loss) = self.kept_names();
            tell.entries.extend(names.map(|(node, name)| (node, name, is_in_use)));
            tell.loss = Some(loss);
            self.sure_names.clear();
        }
        if gone.contains(InodeBits::PERM) {
            tell.given.extend(self.lose_rights());
        }
        if gone.contains(InodeBits::UPDATE) {
            self.attributes_from_lock = false;
            self.pages = None;
            for name in self.take_absent() {
                self.take_back(&name);
                tell.entries.push((node, name, false));
            }
        }
        if gone.contains(InodeBits::LAYOUT) {
            self.layout = LayoutState::Unknown;
            self.course.layout_lost();
        }
        if gone.contains(InodeBits::XATTR) {
            self.xattrs = None;
            self.made_here = false;
        }
        tell.attributes = had_attributes && !self.attributes_covered();
        tell
    }
}

/// What a lock leaves to do that has gone.
struct Uncovered {
    inode: Pin,
    tell: Tell,
    /// Files to be closed.
    closes: Vec<Arc<KeptOpen>>,
}

impl MetaCache {
    fn uncover(&self, locks: &Arc<LockSpace>, lost: Lost) -> Option<Uncovered> {
        let inode = self.inodes.pin_known(lost.resource.fid())?;
        let bits = lost.part.inode_bits();
        let gone = bits.without(locks.covered_bits(lost.resource, bits));
        let mut state = inode.state();
        let tell = state.uncover(gone, inode.node);
        // Whatever other locks there are: one in the same mode is for the same file, and seldom there.
        let closes = match bits.contains(InodeBits::OPEN) {
            true => state.kept.lose(lost.mode),
            false => Vec::new(),
        };
        drop(state);
        Some(Uncovered { inode, tell, closes })
    }
}

impl Protected for MetaCache {
    fn lose(&self, locks: &Arc<LockSpace>, lost: Lost) -> BoxFuture<'static, ()> {
        let uncovered = self.uncover(locks, lost);
        let observers = Arc::clone(&self.observers);
        Box::pin(async move {
            let Some(Uncovered { inode, tell, closes }) = uncovered else { return };
            if tell.attributes {
                observers.inode(&inode, Stale::Attributes).await.done().await;
            }
            observers.children(inode.node, tell.given).await;
            observers.entries(tell.entries).await;
            if let Some(loss) = tell.loss {
                inode.state().kept_names_told(loss);
            }
            // Before the lock goes back: whoever wants it may be in the way of who has the file open.
            for kept in closes {
                close_kept(&inode, &kept).await;
            }
        })
    }

    fn void(&self, locks: &Arc<LockSpace>, lost: Lost) -> BoxFuture<'static, ()> {
        self.lose(locks, lost)
    }

    /// A file that is not open here will not be written soon.
    fn gives_all(&self, resource: ResourceName) -> bool {
        self.inodes.by_fid(resource.fid()).is_none_or(|inode| inode.state().opens == 0)
    }

    fn glimpse(&self, _resource: ResourceName) -> Option<bytes::Bytes> {
        None
    }
}

/// Stands between the data path and those who keep pages.
pub(crate) struct DataWatch {
    /// The inodes.
    pub(crate) inodes: Arc<Inodes>,
    /// Who must be told.
    pub(crate) observers: Arc<Observers>,
}

impl DataEvents for DataWatch {
    fn uncovered(&self, fid: Fid, stale: Stale) -> BoxFuture<'static, Invalidated> {
        let inode = self.inodes.pin_known(fid);
        let observers = Arc::clone(&self.observers);
        Box::pin(async move {
            match inode {
                Some(inode) => observers.inode(&inode, stale).await,
                None => Invalidated::Done,
            }
        })
    }

    fn failed(&self, fid: Fid, errno: Errno) {
        if let Some(inode) = self.inodes.by_fid(fid) {
            inode.state().failures.note(errno);
        }
    }
}
