//! PtlRPC as state machines: imports, exports, resend, replay, adaptive timeouts.
//!
//! Two halves: the faces that roles see ([`Channel`] to talk to a target, [`Handler`] to be one),
//! and the engines behind them ([`import`], the client's end; [`service`], the server's), which the
//! node feeds with events.
//!
//! Allocations of a request, counted, without its encoding: two at the client's end, a third if it is kept
//! for replay; one at the server's. Locks and system calls: none, these are the node's.

mod adaptive;
pub mod budget;
mod channel;
pub mod import;
mod import_state;
mod incoming;
pub mod limits;
mod owner;
mod portals;
pub mod service;
mod subject;
mod timing;
mod xids;

pub use channel::{
    Answer, BodyExtras, BoxFuture, Bulk, Call, CallKind, Channel, FormerExport, Import, OnAnswer,
    RequestHook, RpcError, split_parts,
};
pub use import_state::{Counters, ImportState, StateChange};
pub use incoming::{
    BulkMover, BulkPort, BulkRoom, Handler, IncomingRequest, Replier, ReplyHead, connect_target,
};
pub use owner::{ImportConfig, ImportOwner, LockReplay, NoOwner};
pub use portals::{BULK_PORTALS, REPLY_PORTALS, bulk_portal, reply_portal, request_portal};
pub use subject::subject_of;
pub use timing::{OwnTimes, Time, Timing};
pub use xids::Xids;
