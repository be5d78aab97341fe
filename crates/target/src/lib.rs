//! What all targets share: the base on which `mds`, `oss` and `mgs` stand (Lustre's `target` and
//! the server half of `ldlm_lib`).
//!
//! A [`Target`] owns its export table, the records that outlive it (which clients were connected,
//! what was answered), the order of its transactions, its recovery window and its lock namespace. A
//! role implements [`Operations`]; everything that is the same for every role never reaches it:
//! connect, disconnect, ping, plain lock requests, resent requests, the recovery window.
//!
//! What always holds:
//!
//! - The order of transaction numbers is the order in which the store applied them.
//! - A request's effect and the record of its answer are one store transaction: after any crash,
//!   both are there or neither is.
//! - A replay is executed only in the recovery window, and only with a number that was given out before it.
//! - No answer has both an error and a transaction number: a client of Lustre's panics at that.
//! - No lock of this crate is held across an await or while a role, the store's hooks or a channel
//!   is called, save [`Target::transact`], which applies under the lock that orders transactions.
//!
//! Where there are several MDTs, a change of more than one is a transaction of each, with its record: `distributed`.
//!
//! The modules, by what they are for:
//!
//! - a request: `dispatch` (its steps), `context`, `operations` (what a role does), `answer`, `in_progress` (what it waits for),
//!   `slow` (what takes long), `local` (a client in the server's process);
//! - changes: `transact`, `history` (their order and how far they are durable), `epoch`, `undurable`, `applying`;
//!   `distributed` over several MDTs;
//! - answers that may be asked for again: `replies` in memory, `last_rcvd` in the store;
//! - recovery: `recovery` (the window), `replays` (which are believed);
//! - locks: `enqueue` of clients, `locks` of the server's own, `callbacks` and `callback_turns` to clients;
//! - clients: `connect`, `export`, `evict`, `servers` (which of them are servers), `budget`, `limits`, `rate_limit`;
//! - the target: `target`, `config`, `housekeeping` (time), `store_errno`, `fault`;
//! - what operators see: `view`, `stats`, `services`, `jobs`.
//!
//! Cost of a modifying request beyond the role's own: two keys in its store transaction (the last
//! transaction number, the reply record of the client's slot), one short critical section, no
//! further RPC. A reading request allocates its [`Context`] and nothing else.

mod answer;
mod applying;
pub mod budget;
mod callback_turns;
mod callbacks;
mod config;
mod connect;
mod context;
mod dispatch;
mod distributed;
mod enqueue;
mod epoch;
mod evict;
mod export;
mod fault;
mod history;
mod housekeeping;
mod in_progress;
mod jobs;
mod last_rcvd;
mod limits;
mod local;
mod locks;
mod operations;
mod rate_limit;
mod recovery;
mod replays;
mod replies;
mod servers;
mod services;
mod slow;
mod stats;
mod store_errno;
mod target;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod transact;
mod undurable;
mod view;

/// The target of `tracing` for lines of which each names another target, when it starts and when it recovers, or
/// another client, which is evicted for it stays silent: a log leaves none of them out.
pub const EACH_LINE: &str = "sheen_target::state";

pub use applying::ApplyGuard;
pub use callbacks::ReverseChannels;
pub use config::{ConnectOffer, TargetConfig, Timeouts, VERSION};
pub use context::Context;
pub use distributed::{
    ChangesAtRest, Completion, Dependencies, Incarnation, PartApplied, Redo, does_not_fit,
    forget_at_rest, redo_at_rest,
};
pub use export::{Export, ExportState};
pub use fault::{FaultAction, FaultSite, Faults};
pub use in_progress::{RequestView, Wait, while_waiting};
pub use jobs::JobView;
pub use last_rcvd::{RecoveryLosses, ReplyRecord, ReplyRecording, transno_at_rest};
pub use limits::COMPLETION_EXCEPTIONS_MAX;
pub use local::LocalClient;
pub use locks::{EnqueueRequest, LockGuard};
pub use operations::{Connecting, ExportEnd, Operations, Outcome};
pub use rate_limit::RateLimitedWarning;
pub use recovery::{RecoveryStatus, RecoveryView};
pub use servers::ServerNodes;
pub use sheen_ldlm::server::{ContentionLimits, Gauges, SparedLocks};
pub use stats::{OperationStats, TargetStats};
pub use store_errno::store_errno;
pub use target::{Target, TargetError};
pub use undurable::StoreKey;
pub use view::{ExportView, TargetView};
