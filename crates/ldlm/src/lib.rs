//! The distributed lock manager (Lustre's LDLM): namespaces, policies, callbacks as actions.
//!
//! [`server::Namespace`] decides which client holds what on one target; [`client::Namespace`]
//! caches what one target has granted to us. Both are synchronous: a call takes the time and an
//! event, changes the state, and appends what has to be done to a list of actions. They know no
//! RPC, start no task and read no clock. What a lock covers (attributes, pages, lock value
//! blocks) is not here. How messages describe a lock is: `wire_desc`, for both sides.
//!
//! A lock has two handles (Lustre: cookies), one on either side. In each namespace `handle` is the one by which that
//! namespace itself knows the lock and which it gave out; `remote_handle` is the one by which the other side knows it:
//! in a server's namespace the client's, in a client's the server's.
//!
//! What always holds on the server: no two granted locks of one resource conflict, and a lock that
//! waits has been announced to the holders of all locks that it waits for.

pub mod client;
mod flags;
mod flock;
mod handles;
mod hash;
mod interval;
mod limits;
mod policy;
pub mod server;
mod wire_desc;

pub use flags::LockFlags;
pub use policy::{LockDesc, LockKind, Policy};

/// The holder of a lock on a server, or the one that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A client, by the number of its export (any number the target uses once).
    Export(u64),
    /// The server itself, for the length of one operation. Never gets a blocking callback.
    Local,
}
