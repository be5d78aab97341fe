//! Mounting, and what can be wrong with it.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::process::{getgid, getuid};
use sheen_client::posix::{Audience, FileSystem, NodeId};
use sheen_fuse_wire::{Config, HELPER, Running, Session, mount_by_helper};
use sheen_types::Errno;

use crate::adapter::Adapter;
use crate::ahead;
use crate::busy::BusyDirectories;
use crate::gate::Gate;
use crate::kernel::Kernel;
use crate::kernel_mount::KernelMount;
use crate::memory::KeeperMemory;
use crate::mount_options::FuseMountOptions;
use crate::mount_table::{KIND, is_mount_point, shown_path};
use crate::resuming;
use crate::threads::Threads;
use crate::write_backs::WriteBacks;

/// Threads that read requests. Two keep a slow copy from delaying the next request; more only
/// compete for the device.
const READER_THREADS: usize = 2;

/// Bytes of one write request and of read-ahead: one bulk RPC's worth keeps the pipe full.
const REQUEST_BYTES: u32 = 1 << 20;
/// Requests that the kernel sends on its own account (read-ahead, asynchronous direct IO) at once.
const BACKGROUND_REQUESTS: u16 = 64;

/// How far the kernel reads ahead: one request of the largest size. Page faults of mapped files read so
/// much around them, too, so more than that would cost them.
const READ_AHEAD_BYTES: u32 = 1 << 20;

/// What follows `fuse.` in it.
const SUBTYPE: &str = "lustre";

/// What an earlier process of the mount has left.
pub struct Resumed {
    /// Its connection to the kernel.
    pub device: OwnedFd,
    /// The inodes that the kernel knows from it.
    pub nodes: Vec<NodeId>,
}

/// Why a mount could not be made.
#[derive(Debug)]
pub enum FuseMountError {
    /// There is no `/dev/fuse`, or it may not be opened.
    NoDevice(io::Error),
    /// Not root, and no `fusermount3`.
    NoHelper,
    /// The mount point does not exist or is no directory.
    NoDirectory(PathBuf, io::Error),
    /// Something is mounted there already.
    Busy(PathBuf),
    /// The kernel or `fusermount3` refused.
    Refused(PathBuf, io::Error),
}

impl FuseMountError {
    /// The errno of the failure.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::NoDevice(error) if is_denied(error) => Errno::EACCES,
            Self::NoDevice(_) => Errno::ENODEV,
            Self::NoHelper => Errno::EPERM,
            Self::NoDirectory(_, error) | Self::Refused(_, error) => error
                .raw_os_error()
                .and_then(|number| u16::try_from(number).ok())
                .map_or(Errno::EINVAL, Errno),
            Self::Busy(_) => Errno::EBUSY,
        }
    }
}

impl fmt::Display for FuseMountError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice(error) if is_denied(error) => write!(
                out,
                "cannot open /dev/fuse: {error}; it is there, but this user may not use it: as root run 'chmod 666 \
                 /dev/fuse', in a container pass '--device /dev/fuse'"
            ),
            Self::NoDevice(error) => write!(
                out,
                "cannot open /dev/fuse: {error}; load it with 'modprobe fuse', in a container pass \
                 '--device /dev/fuse'"
            ),
            Self::NoHelper => out.write_str(
                "mounting as an ordinary user needs fusermount3; install it with 'apt-get install \
                 fuse3'",
            ),
            Self::NoDirectory(path, error) => {
                write!(out, "mount point {}: {error}; make the directory first", shown_path(path))
            }
            Self::Busy(path) => write!(
                out,
                "{} is already a mount point; unmount it or choose another directory",
                shown_path(path)
            ),
            Self::Refused(path, error) => write!(out, "cannot mount {}: {error}", shown_path(path)),
        }
    }
}

impl std::error::Error for FuseMountError {}

/// By its mode, or by the rules of a container.
fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// A mounted file system. Dropping it unmounts.
pub struct FuseMount {
    session: Running,
    kernel_mount: KernelMount,
    backs: Arc<WriteBacks>,
    runtime: tokio::runtime::Handle,
    device: OwnedFd,
    handover: Handover,
}

/// The end of a mount's process that another one follows.
#[derive(Clone)]
pub struct Handover {
    gate: Arc<Gate>,
    backs: Arc<WriteBacks>,
}

impl Handover {
    /// Leaves calls that come from now on to the next process, and returns when those under way have ended; `false`
    /// if that takes longer than `patience`. The process must end then: such a call is answered by none.
    pub async fn quiesce(&self, patience: Duration) -> bool {
        self.gate.close();
        let ended = async {
            self.gate.until_empty().await;
            self.backs.wait_for_all().await;
        };
        tokio::time::timeout(patience, ended).await.is_ok()
    }
}

impl FuseMount {
    /// The connection to the kernel: as long as it is open anywhere, another process can go on with it
    /// ([`resume`]).
    #[must_use]
    pub fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// How its process ends if another one is to follow.
    #[must_use]
    pub fn handover(&self) -> Handover {
        self.handover.clone()
    }

    /// Which mount it is.
    #[must_use]
    pub fn kernel_mount(&self) -> &KernelMount {
        &self.kernel_mount
    }

    /// Waits until it is unmounted (`umount`, `fusermount3 -u`), and until servers have what mappings stored.
    /// Not to be called by a task of the runtime.
    ///
    /// # Errors
    /// If a thread that served it failed.
    pub fn wait(self) -> io::Result<()> {
        let ended = self.session.join();
        // What programs stored in mappings and the kernel takes for written.
        self.runtime.block_on(self.backs.wait_for_all());
        ended
    }
}

/// Mounts `file_system` at `path`; calls run on `runtime`.
///
/// # Errors
/// See [`FuseMountError`].
pub fn mount(
    file_system: FileSystem,
    path: &Path,
    options: &FuseMountOptions,
    runtime: tokio::runtime::Handle,
) -> Result<FuseMount, FuseMountError> {
    let point = check(path, options.over)?;
    let parts = Parts::new(file_system, options, runtime);
    let refused = |error| FuseMountError::Refused(path.to_owned(), error);
    let (adapter, config) = (parts.adapter(options), config());
    let device = match attach(&point, options).map_err(refused)? {
        Some(device) => device,
        None => mount_by_helper(&point, &helper_options(options)).map_err(refused)?,
    };
    let session = Session::new(adapter, device, config)
        .inspect_err(|_| _ = KernelMount::newest_at(&point).detach())
        .map_err(refused)?;
    if let Some(memory) = &options.memory {
        memory.set_agreement(session.agreement());
    }
    // The kernel has its answer to FUSE_INIT by now.
    ahead::raise(&point, READ_AHEAD_BYTES);
    let kernel_mount = KernelMount::newest_at(&point);
    if let (Some(memory), Some(minor)) = (&options.memory, kernel_mount.minor()) {
        memory.set_device(minor.parse().unwrap_or_default());
    }
    parts.serve(session, kernel_mount).map_err(refused)
}

/// Goes on with a mount at `path` that an earlier process has left, as its memory, a copy of which `options` has,
/// says.
///
/// # Errors
/// [`FuseMountError::Refused`]: the kernel, or this version of the program, cannot.
pub fn resume(
    file_system: FileSystem,
    path: &Path,
    options: &FuseMountOptions,
    former: Resumed,
    runtime: tokio::runtime::Handle,
) -> Result<FuseMount, FuseMountError> {
    let refused = |error| FuseMountError::Refused(path.to_owned(), error);
    let memory = options.memory.as_ref().ok_or_else(|| refused(io::ErrorKind::NotFound.into()))?;
    let kernel_mount = KernelMount::new(path, Some(format!("0:{}", memory.device())));
    let threads = Threads::new(runtime.clone());
    let parts = Parts::new(file_system, options, runtime);
    let adapter = parts.adapter(options);
    let Resumed { device, nodes } = former;
    let session = resuming::session(adapter, device, config(), memory.agreement());
    let mounted = parts.serve(session.map_err(refused)?, kernel_mount).map_err(refused)?;
    resuming::go_on(mounted.session.notifier(), nodes, &threads).map_err(refused)?;
    Ok(mounted)
}

/// Whether another process can go on with a mount whose memory this is.
#[must_use]
pub fn can_resume(memory: &KeeperMemory) -> bool {
    memory.agreement().protocol >= resuming::PROTOCOL_MIN
}

/// What a mount is made of, beside its session.
struct Parts {
    file_system: FileSystem,
    busy: Arc<BusyDirectories>,
    kernel: Arc<Kernel>,
    backs: Arc<WriteBacks>,
    gate: Arc<Gate>,
    runtime: tokio::runtime::Handle,
}

impl Parts {
    fn new(
        file_system: FileSystem,
        options: &FuseMountOptions,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let busy = Arc::new(BusyDirectories::default());
        let kernel = Arc::new(Kernel::new(runtime.clone(), Arc::clone(&busy)));
        // Without `allow_other` the kernel admits only the user who mounts.
        let audience = match options.allow_other {
            true => Audience::AnyUser,
            false => Audience::User(rustix::process::getuid().as_raw()),
        };
        file_system.attach_notifier(Arc::clone(&kernel) as _, audience);
        let (backs, gate) = (Arc::default(), Arc::default());
        Self { file_system, busy, kernel, backs, gate, runtime }
    }

    fn adapter(&self, options: &FuseMountOptions) -> Adapter {
        let (files, runtime) = (self.file_system.clone(), self.runtime.clone());
        let (busy, kernel) = (Arc::clone(&self.busy), Arc::clone(&self.kernel));
        let adapter = Adapter::new(files, runtime, kernel, busy, Arc::clone(&self.backs), options);
        adapter.with_gate(&self.gate)
    }

    fn serve(self, session: Session<Adapter>, kernel_mount: KernelMount) -> io::Result<FuseMount> {
        let session = session.spawn()?;
        let device = session.as_fd().try_clone_to_owned()?;
        self.kernel.attach(session.notifier(), device.try_clone()?.into());
        let Self { backs, gate, runtime, .. } = self;
        let handover = Handover { gate, backs: Arc::clone(&backs) };
        Ok(FuseMount { session, kernel_mount, backs, runtime, device, handover })
    }
}

/// Mounts at `point` as root; `None` where that takes `fusermount3`.
fn attach(point: &Path, options: &FuseMountOptions) -> io::Result<Option<OwnedFd>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let (number, user, group) = (device.as_raw_fd(), getuid().as_raw(), getgid().as_raw());
    let mut data = format!("fd={number},rootmode=40000,user_id={user},group_id={group}");
    for (is_set, name) in
        [(options.judge, ",default_permissions"), (options.allow_other, ",allow_other")]
    {
        data.push_str(if is_set { name } else { "" });
    }
    for context in &options.contexts {
        data.push(',');
        data.push_str(context);
    }
    let data = CString::new(data)?;
    let flags = options.flags;
    match rustix::mount::mount(&*options.source, point, KIND, flags, Some(data.as_c_str())) {
        // In a container.
        Err(rustix::io::Errno::PERM) => Ok(None),
        mounted => Ok(Some(mounted.map(|()| device)?)),
    }
}

/// The usual mistakes, found before the kernel finds them less clearly. Answers the mount point's
/// canonical path.
fn check(path: &Path, over: bool) -> Result<PathBuf, FuseMountError> {
    check_device()?;
    let refused = |error| FuseMountError::NoDirectory(path.to_owned(), error);
    let own = std::fs::metadata(path).map_err(refused)?;
    if !own.is_dir() {
        return Err(refused(io::ErrorKind::NotADirectory.into()));
    }
    let full = path.canonicalize().map_err(refused)?;
    match is_mount_point(&full) && !over {
        true => Err(FuseMountError::Busy(full)),
        false => Ok(full),
    }
}

/// Whether this process can mount at all.
///
/// # Errors
/// [`FuseMountError::NoDevice`], [`FuseMountError::NoHelper`].
pub fn check_device() -> Result<(), FuseMountError> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.map_err(FuseMountError::NoDevice)?;
    match rustix::process::geteuid().is_root() || helper_exists() {
        true => Ok(()),
        false => Err(FuseMountError::NoHelper),
    }
}

fn helper_exists() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(HELPER).is_file())
}

fn config() -> Config {
    Config {
        threads: READER_THREADS,
        max_write: REQUEST_BYTES,
        max_readahead: REQUEST_BYTES,
        max_background: BACKGROUND_REQUESTS,
    }
}

/// What `fusermount3` mounts with.
fn helper_options(options: &FuseMountOptions) -> String {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![format!("fsname={source}"), format!("subtype={SUBTYPE}")];
    let is_set = |flag| options.flags.contains(flag);
    let flags = [
        (is_set(MountFlags::RDONLY), "ro", "rw"),
        // What servers and other clients say of a file's owner and kind gives no user rights here, unless
        // root wants it so.
        (is_set(MountFlags::NOSUID), "nosuid", "suid"),
        (is_set(MountFlags::NODEV), "nodev", "dev"),
        (is_set(MountFlags::NOATIME), "noatime", ""),
        (is_set(MountFlags::NOEXEC), "noexec", ""),
        (is_set(MountFlags::SYNCHRONOUS), "sync", ""),
        (options.judge, "default_permissions", ""),
        (options.allow_other, "allow_other", ""),
    ];
    let flags = flags.into_iter().map(|(is_set, set, clear)| if is_set { set } else { clear });
    words.extend(flags.filter(|word| !word.is_empty()).map(str::to_owned));
    words.join(",")
}
