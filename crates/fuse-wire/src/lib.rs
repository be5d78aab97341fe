//! The messages between the kernel's FUSE and a file system in user space (`linux/fuse.h`, protocol 7.45).
//!
//! A [`Session`] reads requests from the kernel's device on threads of its own and calls one method of a
//! [`Filesystem`] for each; the method answers at once or later, from any thread, by a reply that knows how the
//! kernel wants this answer. [`Notifier`] says what the kernel shall forget or keep.
//!
//! - `types`: numbers and flags as both sides mean them
//! - `input`: the fields of a request
//! - `output`: the fields of a reply
//! - `device`: the descriptor: one message a system call
//! - `reply`: replies by kind of request
//! - `filesystem`: what a file system answers
//! - `dispatch`: from the number of an operation to its method
//! - `notify`: messages that the kernel did not ask for
//! - `agreement`: what both use of what both have
//! - `session`: the first message, and the threads that read
//! - `fusermount`: a descriptor for an ordinary user
//!
//! Cost of a request: one `read`, one `writev`; one allocation for a reply with fields, none for one without. The buffer of a thread
//! is used for one request after the other.

mod agreement;
mod device;
mod dispatch;
mod filesystem;
mod fusermount;
mod input;
mod notify;
mod opcode;
mod output;
mod reply;
mod session;
mod types;

pub use self::agreement::{Agreement, KernelConfig};
pub use self::filesystem::{
    AttributeCalls, DirectoryCalls, FileCalls, Filesystem, LockCalls, NameCalls, XattrCalls,
};
pub use self::fusermount::{HELPER, mount_by_helper};
pub use self::input::{Request, SetAttributes, SetTime};
pub use self::notify::Notifier;
pub use self::output::{FileAttr, StatFs};
pub use self::reply::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr,
};
pub use self::session::{Config, Running, Session};
pub use self::types::{
    FileHandle, FopenFlags, Generation, INodeNo, InitFlags, LockOwner, OpenFlags, RenameFlags,
    WriteFlags,
};
