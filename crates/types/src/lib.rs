//! The nouns of the file system.
//!
//! Everything here is a plain value: no bytes, no IO, and no state but that of counters and the key
//! of hash tables; only [`futures`] is here because every other crate uses it. Each noun that crosses a function signature has a type of its own, so that a
//! transaction number cannot be handed over where the handle of a lock belongs.

pub mod access;
mod change;
mod errno;
mod extent;
mod fallocate;
mod fid;
pub mod futures;
pub mod glob;
mod hash;
mod histogram;
mod job;
pub mod limits;
mod lock;
mod name;
mod nid;
mod nid_list;
mod number;
mod seek;
mod setting;
mod statistics;
pub mod text;
mod time;

pub use change::ChangeId;
pub use errno::Errno;
pub use extent::{Extent, PAGE_BITS, PAGE_BYTES};
pub use fallocate::Fallocate;
pub use fid::{Fid, ParseFidError, fid_seq};
pub use hash::{FoldHasher, HashMap, HashSet, Keyed, set_hash_key};
pub use histogram::Histogram;
pub use job::JobId;
pub use lock::{InodeBits, LockMode, ResourceName};
pub use name::{Name, NameError, TargetKind, TargetName, Uuid};
pub use nid::{NetType, Nid, ParseNidError};
pub use nid_list::NidList;
pub use number::{
    Generation, LockHandle, LogicalTime, MatchBits, MdtIndex, ObdHandle, Transno, Xid,
};
pub use seek::Seek;
pub use setting::{Setting, SettingValue};
pub use statistics::{CounterLine, Counters, Samples, Unit};
pub use time::{Instant, Timestamp};
