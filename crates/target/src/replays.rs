//! Which replays are believed (Lustre's `ptlrpc_check_req` and `target_queue_recovery_request`).
//!
//! A replay is executed with the number that it brings, and much is not asked of it that is asked of other
//! requests: whether the user may, whether the target may be changed. So it must be one. It comes
//!
//! - as a request that gets a number from this target ([`FormatFlags::REPLAYABLE`]),
//! - while the recovery window runs,
//! - from a client of before the restart that has not said yet that it has replayed all,
//! - with a number that this target may have given out before it started.
//!
//! A client that sends anything else as a replay, or names a transaction where none is to be named, has not
//! understood what it has lost, or lies: its export fails, as in Lustre (`class_fail_export`), and it finds
//! out with `ENODEV`. The same goes for a lock that is replayed outside of its stage of recovery, and for a
//! client that replays more locks or opens than it can have had.
//!
//! Costs a look at two fields for a request that is none.

use std::sync::Arc;

use sheen_types::Transno;
use sheen_wire::messages::{FormatFlags, Kind};
use sheen_wire::ptlrpc::{MsgFlags, PtlrpcBody};

use crate::context::Replay;
use crate::export::Export;
use crate::export_state::ExportState;
use crate::failure::FalseReplay;
use crate::target::Target;

impl Target {
    /// Whether what a request says of itself can be true of a client in this state.
    ///
    /// # Errors
    /// Why not: the client's export is to fail.
    pub(crate) fn check_replay(
        &self,
        state: ExportState,
        kind: Kind,
        body: &PtlrpcBody,
    ) -> Result<(), FalseReplay> {
        let is_replay = body.flags.contains(MsgFlags::REPLAY);
        let transno = body.transno;
        if !is_replay && transno == Transno(0) {
            return Ok(());
        }
        if !self.config.replayable || !self.recovery.is_running() {
            return Err(FalseReplay::NoRecovery);
        }
        let done = MsgFlags::REQ_REPLAY_DONE | MsgFlags::LOCK_REPLAY_DONE;
        if !is_replay || transno == Transno(0) || body.flags.intersects(done) {
            return Err(FalseReplay::Contradicts);
        }
        if !kind.format().flags.contains(FormatFlags::REPLAYABLE) {
            return Err(FalseReplay::NeverReplayed(kind));
        }
        if state != ExportState::Replaying {
            return Err(FalseReplay::NotReplaying(state));
        }
        match self.history.may_have_assigned(transno) {
            true => Ok(()),
            false => Err(FalseReplay::NeverGiven(transno)),
        }
    }

    /// Whether a replay whose turn has come may still be executed: its client may have been evicted while
    /// it waited.
    pub(crate) fn may_replay(&self, export: &Export, replay: Replay) -> bool {
        let state = export.state();
        let is_its_stage = match replay {
            Replay::Request(_) => state == ExportState::Replaying,
            Replay::Lock => {
                matches!(state, ExportState::ReplayingLocks | ExportState::ReplayedAll)
            }
        };
        is_its_stage && self.recovery.is_running()
    }

    /// Evicts a client that claims to replay what it cannot have.
    pub(crate) fn fail_export(self: &Arc<Self>, export: &Arc<Export>, why: FalseReplay) {
        tracing::error!(target = self.name(), client = %export.uuid(), nid = %export.nid(), %why,
            "evicting a client that sends a false replay");
        self.evict_soon(export);
    }
}
