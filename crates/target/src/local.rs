//! A client inside the server's own process: load without a network (what Lustre's `echo_client` is).
//!
//! Its requests reach the role as those of a client do after they were decoded, and count in the role's
//! counters as well. What only a client that may come back needs is left out: it is not in the table of
//! exports, no record of its answers is kept, and it is not awaited after a restart.
//!
//! Cost of a request beyond the role's own: its [`Context`] and two looks at the clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use sheen_rpc::BulkPort;
use sheen_types::{Errno, Nid, Uuid, Xid};
use sheen_wire::messages::Request;
use sheen_wire::ptlrpc::PtlrpcBody;

use crate::context::Context;
use crate::export::Export;
use crate::export_state::ExportState;
use crate::operations::{ExportEnd, Outcome};
use crate::target::Target;

/// See the module's documentation. Many of one target may work side by side, each with requests of one
/// task.
pub struct LocalClient {
    target: Arc<Target>,
    export: Arc<Export>,
    xid: AtomicU64,
}

impl LocalClient {
    /// Joins the target.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] while its clients recover, [`Errno::ESHUTDOWN`] if it stops.
    pub fn new(target: &Arc<Target>, name: &str) -> Result<Self, Errno> {
        if target.stopping.load(Ordering::Acquire) {
            return Err(Errno::ESHUTDOWN);
        }
        if target.recovery.is_running() {
            return Err(Errno::EAGAIN);
        }
        let export = Export::local(Uuid::new(name), target.new_handle(), ExportState::Full);
        let target = Arc::clone(target);
        Ok(Self { target, export: Arc::new(export), xid: AtomicU64::new(1) })
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// What a request of this client is known by, for what a role offers beside requests.
    #[must_use]
    pub fn context(&self) -> Context {
        Context {
            target: Arc::clone(&self.target),
            export: Arc::clone(&self.export),
            from: Nid::LOOPBACK,
            xid: Xid(self.xid.fetch_add(1, Ordering::Relaxed)),
            body: PtlrpcBody::default(),
            bulk: BulkPort::none(),
            arrived: self.target.now(),
            reply_bytes_max: 0,
            transno: AtomicU64::new(0),
            replay: OnceLock::new(),
            unanswered: AtomicBool::new(false),
        }
    }

    /// Has the role execute a request; its data, if any, lies in the request and in the answer.
    ///
    /// # Errors
    /// The request's, also where an answer with buffers carries it.
    pub async fn ask(&self, request: impl Into<Request>) -> Result<Outcome, Errno> {
        let request = request.into();
        let context = self.context();
        let counter = self.target.operations.counter_of(&request);
        let outcome = self.target.operations.operate(&context, request).await;
        if let Some(counter) = counter {
            context.count_time(counter);
        }
        let outcome = outcome?;
        match u16::try_from(-i64::from(outcome.status)) {
            Ok(errno) if errno > 0 => Err(Errno(errno)),
            _ => Ok(outcome),
        }
    }

    /// Leaves: what the role keeps for this client goes.
    pub async fn disconnect(self) {
        let Self { target, export, .. } = self;
        target.operations.end_export(&target, &export, ExportEnd::Disconnected).await;
    }
}
