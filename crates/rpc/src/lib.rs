//! PtlRPC as state machines: imports, exports, resend, replay, adaptive timeouts.

mod channel;
mod incoming;
pub mod limits;
mod state;

pub use channel::{
    Answer, BodyExtras, BoxFuture, Bulk, Call, CallKind, Channel, Import, ReplayHook, RpcError,
};
pub use incoming::{
    BulkMover, BulkPort, Handler, Incoming, Replier, ReplyHead, bulk_portal, split_parts,
};
pub use state::{Counters, ImportEvents, ImportState, LockReplay, NoEvents, StateChange};
