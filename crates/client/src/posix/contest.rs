//! Names that others replace faster than a caller can use them.
//!
//! The kernel looks a name up and then opens what it found: two calls, between which another client
//! may replace the name. Told `ESTALE`, the kernel looks the name up once more, and no further. So that
//! this second try succeeds, its lookup opens the file as well, by name: what is open stays, with or
//! without a name. It is closed when the kernel has used it, or after [`HOLD`].
//!
//! Costs nothing while nobody was told `ESTALE`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sheen_types::{Errno, HashMap, Instant, Name};

use super::{Credentials, Mounted, NodeId};
use crate::cache::{Inode, Pin};
use crate::meta::{Depth, OpenState};

/// How long after an `ESTALE` lookups in the same directory are protected.
const CONTESTED: Duration = Duration::from_millis(500);
/// How long a file is kept open for a call that does not come.
const HOLD: Duration = Duration::from_millis(500);

/// Directories in which a call came too late, and files kept for the next try.
#[derive(Default)]
pub(crate) struct Contest {
    /// How many directories there are: read before the map is locked.
    count: AtomicUsize,
    directories: Mutex<HashMap<NodeId, Instant>>,
    kept: Mutex<HashMap<NodeId, Vec<Kept>>>,
}

/// A file that was opened when it was looked up.
struct Kept {
    pin: Pin,
    who: Credentials,
    open: OpenState,
}

impl Mounted {
    /// The answer to a call on an inode, which may have been looked up for it. If the servers do not
    /// know the inode that the kernel knows, its name was removed, or names another by now: the
    /// kernel then looks the name up again.
    pub(super) fn used<T>(&self, inode: &Inode, answer: Result<T, Errno>) -> Result<T, Errno> {
        answer.map_err(|errno| {
            if errno != Errno::ENOENT {
                return errno;
            }
            if let Some(parent) = inode.state().seen_in {
                let until = self.meta.world.clock.now() + CONTESTED;
                self.contest.directories.lock().insert(parent, until);
                self.contest.count.fetch_add(1, Ordering::Release);
            }
            Errno::ESTALE
        })
    }

    /// Whether a call came too late in this directory a moment ago.
    pub(super) fn is_contested(&self, directory: NodeId) -> bool {
        let contest = &self.contest;
        if contest.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let now = self.meta.world.clock.now();
        let mut directories = contest.directories.lock();
        directories.retain(|_, until| *until > now);
        contest.count.store(directories.len(), Ordering::Release);
        directories.contains_key(&directory)
    }

    /// Finds a name, and keeps what it names for a while if that can be opened.
    pub(super) async fn find_and_keep(
        self: &Arc<Self>,
        who: &Credentials,
        parent: &Inode,
        name: &Name,
    ) -> Result<Option<Pin>, Errno> {
        let opened = match self.meta.open_name(who, parent, name).await {
            Ok(opened) => opened,
            // What may not be read can only be looked up.
            Err(_) => return self.meta.lookup(who, parent, name, Depth::Attributes).await,
        };
        let pin = self.inodes.pin(opened.pin.fid);
        if let Some(open) = opened.state {
            let node = pin.node;
            let kept = Kept { pin: opened.pin, who: who.clone(), open };
            self.contest.kept.lock().entry(node).or_default().push(kept);
            let mounted = Arc::clone(self);
            let task = async move {
                let clock = &mounted.meta.world.clock;
                clock.sleep_until(clock.now() + HOLD).await;
                mounted.let_go(node);
            };
            self.meta.world.tasks.spawn("contested name", Box::pin(task));
        }
        Ok(Some(pin))
    }

    /// Closes what was kept of a node: it has been opened, which is the last that the kernel does of a
    /// call on a name.
    pub(super) fn let_go(self: &Arc<Self>, node: NodeId) {
        let kept = self.contest.kept.lock().remove(&node);
        for Kept { pin, who, open } in kept.into_iter().flatten() {
            let mounted = Arc::clone(self);
            let task = async move {
                if let Err(errno) = mounted.meta.close(&who, &pin, open, None).await {
                    tracing::debug!(fid = %pin.fid, %errno, "contested name was not closed");
                }
            };
            self.meta.world.tasks.spawn("contested name", Box::pin(task));
        }
    }
}
