//! What a mount is to be like.

use std::sync::Arc;

use rustix::mount::MountFlags;

use crate::jobs::Jobs;
use crate::memory::KeeperMemory;
use crate::questions::Questions;

/// What `flock(2)` and `fcntl(2)` locks are worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileLocks {
    /// They go to the server (`-o flock`).
    #[default]
    Shared,
    /// They exclude programs of this mount alone (`-o localflock`).
    Local,
    /// There are none: `ENOSYS` (`-o noflock`).
    Refused,
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct FuseMountOptions {
    /// What `/proc/mounts` shows as the device: `MGSNID:/fsname`.
    pub source: String,
    /// What the kernel does of mount(8)'s options, and shows; only root may leave `NOSUID` and `NODEV` out.
    pub flags: MountFlags,
    /// What security modules of the kernel take: `context=CONTEXT` and the like. Of root alone.
    pub contexts: Vec<String>,
    /// Mount where something is mounted already.
    pub over: bool,
    /// Other users may use the mount; for users that are not root this needs `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// The kernel checks modes and access lists, too, before it asks: the one way to have it do so of pipes,
    /// sockets and devices.
    pub judge: bool,
    /// What file locks are worth.
    pub locks: FileLocks,
    /// Whose jobs requests are.
    pub jobs: Arc<Jobs>,
    /// Who answers what any user asks about the mount.
    pub questions: Questions,
    /// Where it is kept what the mount's next process needs.
    pub memory: Option<Arc<KeeperMemory>>,
}

impl Default for FuseMountOptions {
    fn default() -> Self {
        Self {
            source: String::new(),
            flags: MountFlags::NOSUID | MountFlags::NODEV,
            contexts: Vec::new(),
            over: false,
            allow_other: false,
            judge: false,
            locks: FileLocks::default(),
            jobs: Arc::default(),
            questions: Questions::default(),
            memory: None,
        }
    }
}
