//! What all requests share: whose they are, what they wait for, how long they took.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Instant;

use rustix::mount::MountFlags;
use sheen_client::posix::{
    Credentials, FileHandle, FileSystem, LockOwner, OpenFlags, Operation, Tracked,
};
use sheen_fuse_wire::{
    FileHandle as Handle, INodeNo, InitFlags, KernelFlags, LockOwner as Owner, Request,
};
use sheen_types::{Errno, Extent, JobId, Name};
use tracing::Span;

mod calls;
mod resent;

use crate::busy::{BusyDirectories, BusyGuard};
use crate::credentials::Groups;
use crate::gate::Gate;
use crate::jobs::Jobs;
use crate::kernel::Kernel;
use crate::mount_options::{FileLocks, FuseMountOptions};
use crate::pending_sizes::PendingSizes;
use crate::questions::Questions;
use crate::signals::Waits;
use crate::special::{Special, node};
use crate::threads::Threads;
use crate::write_backs::{CallOrder, WriteBacks};
use crate::{drive, selinux};

/// Names asked for at once; as many as fit the kernel's 4 KiB to 128 KiB buffers.
const NAMES_AT_ONCE: usize = 512;

/// What the kernel may do and expect.
const CAPABILITIES: [InitFlags; 15] = [
    InitFlags::ASYNC_READ,
    InitFlags::ATOMIC_O_TRUNC,
    InitFlags::BIG_WRITES,
    InitFlags::DONT_MASK,
    InitFlags::DO_READDIRPLUS,
    InitFlags::READDIRPLUS_AUTO,
    InitFlags::ASYNC_DIO,
    InitFlags::PARALLEL_DIROPS,
    InitFlags::MAX_PAGES,
    InitFlags::CACHE_SYMLINKS,
    InitFlags::EXPLICIT_INVAL_DATA,
    InitFlags::EXPORT_SUPPORT,
    InitFlags::DIRECT_IO_ALLOW_MMAP,
    InitFlags::HANDLE_KILLPRIV_V2,
    InitFlags::INIT_EXT,
];

/// The facade as the kernel's protocol wants it.
pub(crate) struct Adapter {
    pub(crate) files: FileSystem,
    runtime: tokio::runtime::Handle,
    groups: Groups,
    kernel: Arc<Kernel>,
    busy: Arc<BusyDirectories>,
    pending_sizes: Arc<PendingSizes>,
    pub(crate) waits: Arc<Waits>,
    backs: Arc<WriteBacks>,
    locks: FileLocks,
    /// What is written is durable when the call returns (`-o sync`).
    synchronous: bool,
    pub(crate) special: Special,
    /// Files have labels of SELinux.
    labels: bool,
    jobs: Arc<Jobs>,
    questions: Questions,
    gate: Arc<Gate>,
}

impl Adapter {
    pub(crate) fn new(
        files: FileSystem,
        runtime: tokio::runtime::Handle,
        kernel: Arc<Kernel>,
        busy: Arc<BusyDirectories>,
        backs: Arc<WriteBacks>,
        options: &FuseMountOptions,
    ) -> Self {
        let (locks, special) = (options.locks, Special::new(options));
        let synchronous = options.flags.contains(MountFlags::SYNCHRONOUS);
        let (jobs, questions) = (Arc::clone(&options.jobs), options.questions.clone());
        let waits = Waits::new(Threads::new(runtime.clone()));
        let (pending_sizes, groups) = (Arc::default(), Groups::default());
        Self {
            files,
            runtime,
            groups,
            kernel,
            busy,
            pending_sizes,
            waits,
            backs,
            locks,
            synchronous,
            special,
            labels: selinux::is_on(),
            jobs,
            questions,
            gate: Arc::default(),
        }
    }

    /// The adapter with this as the place where calls enter.
    pub(crate) fn with_gate(self, gate: &Arc<Gate>) -> Self {
        Self { gate: Arc::clone(gate), ..self }
    }

    /// What of the kernel's capabilities is used.
    pub(crate) fn wanted(&self, offered: InitFlags) -> InitFlags {
        let locks = [InitFlags::POSIX_LOCKS, InitFlags::FLOCK_LOCKS];
        let locks = if self.locks == FileLocks::Local { &[][..] } else { &locks };
        let lists = if self.special.is_judged() { &[InitFlags::POSIX_ACL][..] } else { &[] };
        let all = CAPABILITIES.iter().chain(locks).chain(lists);
        all.filter(|it| offered.contains(**it)).fold(InitFlags::empty(), |all, it| all | *it)
    }

    /// Of whom the call is. On the way notes that the calling thread is done with its earlier calls.
    pub(crate) fn credentials_of(&self, request: &Request, umask: u32) -> Credentials {
        self.pending_sizes.note_call(request.pid());
        self.groups.credentials(request, umask)
    }

    /// Whether files have no attribute of this name here, not even where their MDT knows one.
    fn is_unsupported(&self, name: &OsStr) -> bool {
        !self.labels && name == selinux::LABEL
    }

    /// The flags of an open as this mount has them.
    fn opened_as(&self, flags: u32) -> OpenFlags {
        let flags = OpenFlags(flags);
        match self.synchronous && flags.writes() {
            true => OpenFlags(flags.0 | OpenFlags::DSYNC),
            false => flags,
        }
    }

    /// Whose work it is.
    fn job(&self, request: &Request) -> Option<JobId> {
        self.jobs.of(request.pid(), request.uid(), request.gid())
    }

    /// See [`crate::drive`]. Inlined, so that the future is made where its box takes it from.
    #[inline(always)]
    fn drive(&self, call: Call<'_>, work: impl Future<Output = ()> + Send + 'static) {
        let request = (self.job(call.1), call.span(&self.files));
        self.begin(request, Box::pin(work), None);
    }

    /// As [`Adapter::drive`], and counts how long it takes from now on.
    #[expect(clippy::disallowed_methods, reason = "shown to operators: nothing depends on it")]
    #[inline(always)]
    pub(crate) fn counted(
        &self,
        call: Call<'_>,
        operation: Operation,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let work = Box::pin(work);
        let timer = || CallTimer { files: self.files.clone(), operation, begin: Instant::now() };
        // Made only if the call is counted, which happens when this is dropped.
        let timer = self.is_tracked(call.1).then(timer);
        let request = (self.job(call.1), call.span(&self.files));
        self.begin(request, work, timer);
    }

    fn begin(
        &self,
        request: (Option<JobId>, Span),
        work: drive::Answering,
        timer: Option<CallTimer>,
    ) {
        match Gate::enter(&self.gate) {
            Some(call) => drive::drive(&self.runtime, request, work, (timer, call)),
            // Dropped it would answer with an error.
            None => std::mem::forget(work),
        }
    }

    /// Whether the call counts.
    fn is_tracked(&self, request: &Request) -> bool {
        match self.files.statistics().tracked() {
            Tracked::All => true,
            Tracked::Process(pid) => request.pid() == pid,
            Tracked::Parent(pid) => parent_of(request.pid()) == Some(pid),
            Tracked::Group(gid) => request.gid() == gid,
        }
    }

    /// Where a call that uses these bytes of a file stands among the kernel's write-backs.
    fn order(&self, number: INodeNo, offset: u64, length: u64) -> (Arc<WriteBacks>, CallOrder) {
        let extent = Extent::of_length(offset, length).unwrap_or(Extent::ALL);
        (Arc::clone(&self.backs), self.backs.order(number.0, extent))
    }

    /// As `order`, for all bytes of the file.
    fn order_of_all(&self, number: INodeNo) -> (Arc<WriteBacks>, CallOrder) {
        self.order(number, 0, u64::MAX)
    }

    /// The kernel holds the locks of these directories until the guard is dropped.
    fn mark_busy(&self, nodes: &[INodeNo]) -> BusyGuard {
        BusyDirectories::enter(&self.busy, nodes.iter().map(|node| node.0))
    }

    /// As [`Adapter::mark_busy`], for a call that also concerns the directory `name`.
    fn mark_busy_child(&self, parent: INodeNo, name: &Result<Name, Errno>) -> BusyGuard {
        // A name that is none is refused by the call itself.
        let child = name.as_ref().ok().and_then(|it| self.files.known_child(node(parent), it));
        match child {
            Some(child) => self.mark_busy(&[parent, INodeNo(child.0)]),
            None => self.mark_busy(&[parent]),
        }
    }
}

/// A call of the kernel's: which one, its request, and the inode that it is about.
pub(crate) struct Call<'a>(pub(crate) &'static str, pub(crate) &'a Request, pub(crate) INodeNo);

impl Call<'_> {
    /// What lines of the log belong to while it is answered. No field is looked up unless the log is at this level:
    /// without, it costs one load of that level.
    fn span(&self, files: &FileSystem) -> Span {
        let Self(operation, request, number) = self;
        tracing::debug_span!(
            "fuse",
            operation,
            unique = request.unique(),
            pid = request.pid(),
            fid = files.fid(node(*number)).ok().map(tracing::field::display)
        )
    }
}

/// Counts a request when it ends.
struct CallTimer {
    files: FileSystem,
    operation: Operation,
    begin: Instant,
}

impl Drop for CallTimer {
    fn drop(&mut self) {
        self.files.statistics().took(self.operation, self.begin.elapsed());
    }
}

/// The process that made this one.
fn parent_of(pid: u32) -> Option<u32> {
    // It cannot be read of a process that is gone.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn handle(number: Handle) -> FileHandle {
    FileHandle(number.0)
}

/// Whether a call bypasses the kernel's pages: by the handle's current flags, or because it was opened so.
fn bypasses_page_cache(files: &FileSystem, opened: Handle, flags: KernelFlags) -> bool {
    OpenFlags(flags.0).bypasses_page_cache() || files.bypasses_page_cache(handle(opened))
}

fn owner(number: Owner) -> LockOwner {
    LockOwner(number.0)
}
