//! One request on its way through a role.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use sheen_rpc::BulkPort;
use sheen_types::{Errno, Instant, Nid, Transno, Xid};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2};
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::{MsgFlags, PtlrpcBody};

use crate::export::Export;
use crate::last_rcvd::Slot;
use crate::target::Target;

/// What the recovery window admits besides ordinary requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replay {
    /// A request that became this transaction.
    Request(Transno),
    /// A lock.
    Lock,
}

/// What a role may know of the request it executes, besides its buffers.
pub struct Context {
    /// The target.
    pub target: Arc<Target>,
    /// The caller.
    pub export: Arc<Export>,
    /// Where the request came from.
    pub from: Nid,
    /// The request's name at its client.
    pub xid: Xid,
    /// The request's body: opcode, flags, tag, job, versions.
    pub body: PtlrpcBody,
    /// To move the request's bulk.
    pub bulk: BulkPort,
    /// When it arrived.
    pub arrived: Instant,
    /// Bytes the client has set aside for the reply.
    pub reply_bytes_max: usize,
    /// The transaction it became; 0 while there is none.
    pub(crate) transno: AtomicU64,
    /// That it is a replay, which the recovery window has admitted as one.
    pub(crate) replay: OnceLock<Replay>,
    /// No answer of it goes out.
    pub(crate) unanswered: AtomicBool,
}

impl Context {
    /// Counts a sample of one of the role's counters, which is named by its index in
    /// [`Operations::counters`](crate::Operations::counters): for the target, for the client and for the job that
    /// the request names.
    pub fn count(&self, counter: usize, value: u64) {
        let clock = &self.target.world.clock;
        self.target.jobs.count(&self.body.jobid, || (clock.now(), clock.wall()), counter, value);
        self.target.counters.add(counter, value);
        self.export.count(self.target.operations.counters(), counter, value);
    }

    /// Counts, under one of the role's counters, how long the request has taken so far.
    pub fn count_time(&self, counter: usize) {
        let time = self.target.now().since(self.arrived).as_micros();
        self.count(counter, u64::try_from(time).unwrap_or(u64::MAX));
    }

    /// For a replayed request, the transaction number it had; it gets the same again from
    /// [`Target::transact`]. `None` for any other request, whatever its client claims that it is: only
    /// the recovery window admits replays, and replays are exempt from checks that other requests are not.
    #[must_use]
    pub fn replay(&self) -> Option<Transno> {
        match self.replay.get() {
            Some(Replay::Request(transno)) => Some(*transno),
            Some(Replay::Lock) | None => None,
        }
    }

    /// Whether the client replays a lock that it had before the restart, at its time.
    pub(crate) fn replays_lock(&self) -> bool {
        matches!(self.replay.get(), Some(Replay::Lock))
    }

    /// Whether this is a replay of what was durable before the target restarted, or was redone since as another MDT had
    /// its record: nothing must be changed again, only what lived in memory (an open handle) is made anew.
    #[must_use]
    pub fn is_applied_already(&self) -> bool {
        let target = &self.target;
        let is_there = |it: Transno| target.was_durable_at_start(it) || target.was_redone(it);
        self.replay().is_some_and(is_there)
    }

    /// A replay is answered with its number: what it asks for is there. Where another MDT replays its part of a change, as that
    /// is found by the change's name.
    pub fn answer_replay(&self) {
        if let Some(transno) = self.replay() {
            self.transno.store(transno.0, Ordering::Release);
        }
    }

    /// Whether the client may have sent this before.
    #[must_use]
    pub(crate) fn is_resent(&self) -> bool {
        self.body.flags.contains(MsgFlags::RESENT)
    }

    /// Whether both sides agreed on a feature.
    #[must_use]
    pub fn has(&self, flag: ConnectFlags) -> bool {
        self.export.has(flag)
    }

    /// Whether both sides agreed on a feature of the second word.
    #[must_use]
    pub fn has2(&self, flag: ConnectFlags2) -> bool {
        self.export.has2(flag)
    }

    /// Where the record of the answer goes: the client's tag, or for a client without tags one
    /// place for closes and one for all else.
    pub(crate) fn slot(&self) -> Slot {
        match self.body.tag {
            0 => Slot { tag: 0, is_close: self.body.opcode == Opcode::MDS_CLOSE },
            tag => Slot::of_tag(tag),
        }
    }

    /// The request fails although what it asked for is done and stays: its answer must name no transaction
    /// then, for a client of Lustre's panics at an error with one. For errors that only a broken disk or an
    /// eviction brings; what else may fail belongs before [`Target::transact`].
    #[must_use]
    pub fn fail_after_execution(&self, errno: Errno) -> Errno {
        self.transno.store(0, Ordering::Release);
        errno
    }

    /// The request ends without an answer, whatever its outcome is: an error would end it at its client, who is to
    /// send it again. Only for what has changed nothing. Returns `errno`, to leave the operation with.
    #[must_use]
    pub fn leave_unanswered(&self, errno: Errno) -> Errno {
        self.unanswered.store(true, Ordering::Release);
        errno
    }

    /// The transaction that the request became; 0 if it changed nothing (so far).
    #[must_use]
    pub fn transno(&self) -> Transno {
        Transno(self.transno.load(Ordering::Acquire))
    }
}
