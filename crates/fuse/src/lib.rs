//! FUSE requests to client calls to errnos; no policy.
//!
//! Owns the mount: the kernel's requests come in on a few threads, each becomes one call of `FileSystem`, and
//! its answer goes back. What the kernel may keep (names, attributes, pages) is what the facade says a lock
//! covers; when such a lock is revoked, `kernel` drops it there before the lock is cancelled.
//!
//! Costs of a request, counted: one read and one write of `/dev/fuse`; two allocations, for the
//! future and for what wakes it, a third where the caller's rights count, and the client's for the future of its
//! call. The future is polled
//! once on the thread that read the request: an answer from the cache never changes threads; only a
//! call that waits for a server moves to the runtime, when it is woken. Reads copy once if they come
//! in several pieces, writes copy once out of the request.
//!
//! The modules, by what they are for:
//!
//! - calls: `adapter` unpacks them, `drive` runs them, `answer`, `convert` and `credentials` translate; `signals` ends
//!   those of killed processes, `write_backs` answers the kernel's own early, `gate` leaves them to the next process;
//! - notifications of the kernel: `kernel` says what must go, `notices` delivers, `busy` and `blocked` say where the
//!   kernel waits itself, `raise`, `raise_threads` and `pending_sizes` keep its sizes right;
//! - the mount: `mount`, `mount_options`, `mount_table`, `kernel_mount`, `device`, `threads`, `alive`, `ahead`; `memory` and `resuming` for the next process;
//! - requests that are no calls of POSIX, or odd ones: `control`, `advice`, `new_directory`, `questions`, `jobs`, `environments`,
//!   `special`, `adapter::calls::exported`;
//! - `selinux`: what is done where the kernel asks for security labels.

mod adapter;
mod advice;
mod ahead;
mod alive;
mod answer;
mod blocked;
mod busy;
mod control;
mod convert;
mod credentials;
mod device;
mod drive;
mod environments;
mod gate;
mod jobs;
mod kernel;
mod kernel_mount;
mod memory;
mod mount;
mod mount_options;
mod mount_table;
mod new_directory;
mod notices;
mod pending_sizes;
mod questions;
mod raise;
mod raise_threads;
mod resuming;
mod selinux;
mod signals;
mod special;
mod threads;
mod write_backs;

pub use advice::advise;
pub use alive::{StuckCalls, abort, ask, state};
pub use device::{Serving, serve};
pub use jobs::Jobs;
pub use kernel_mount::{KernelMount, Marks, UnmountError};
pub use memory::{Found, KeeperMemory};
pub use mount::{
    FuseMount, FuseMountError, Handover, Resumed, can_resume, check_device, mount, resume,
};
pub use mount_options::{FileLocks, FuseMountOptions};
pub use mount_table::{is_mount_point, table_of};
pub use new_directory::{MoveName, make_directory, migrate_name, remove_entry};
pub use questions::{Questions, question};
