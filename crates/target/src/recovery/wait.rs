//! How a request waits for recovery, or for what clients keep being revoked after it.

use std::sync::Arc;

use sheen_types::{Errno, ObdHandle, Transno};
use sheen_wire::messages::{FormatFlags, Kind, Request};
use sheen_wire::opcode::Opcode;
use sheen_wire::out::{OutUpdateHeader, UpdateType, decode_updates};
use sheen_wire::ptlrpc::MsgFlags;

use super::{Admission, Admitted};
use crate::context::Context;
use crate::dispatch::Failure;
use crate::in_progress::{Wait, while_waiting};
use crate::replays::Replay;
use crate::target::Target;

/// A replay that is under way. Dropping it reports to the recovery window that it is through, whatever became of it.
pub(crate) struct ReplayGuard<'a> {
    target: &'a Arc<Target>,
    export: ObdHandle,
    /// That of a request; a lock has none.
    transno: Option<Transno>,
    /// Not before it is.
    admitted: Option<Admitted>,
}

impl Drop for ReplayGuard<'_> {
    fn drop(&mut self) {
        let Self { target, export, transno, admitted } = *self;
        let ended = target.recovery.end_replay(target.now(), export, admitted, transno);
        target.end_recovery_if(ended);
    }
}

impl Target {
    /// Waits until the request may be executed: where the target recovers, and where it has recovered and what
    /// clients keep is being revoked. A replay is under way as long as the guard lives; its context says that it is one
    /// ([`Context::replay`]).
    ///
    /// # Errors
    /// How the request ends if it is not executed.
    pub(crate) async fn wait_for_recovery<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        kind: Kind,
        request: &Request,
    ) -> Result<Option<ReplayGuard<'a>>, Failure> {
        if !self.config.replayable {
            return Ok(None);
        }
        if !self.recovery.is_running() {
            self.wait_for_revocation(context, kind, request).await?;
            return Ok(None);
        }
        self.note_progress(&context.export, context.body.flags);
        let (admission, claimed) = self.recovery_admission(context, kind)?;
        let waits = match admission {
            Admission::Dropped => return Err(Failure::Lost),
            Admission::Now => None,
            Admission::Wait(admitted) => Some(admitted),
        };
        let mut guard = claimed.map(|claimed| self.replay_guard(context, claimed));
        let admitted = match waits {
            Some(admitted) => {
                while_waiting(Wait::Recovery, admitted).await.map_err(|_| Failure::Lost)?
            }
            None => Admitted::Unordered,
        };
        if let Some(guard) = &mut guard {
            guard.admitted = Some(admitted);
        }
        match claimed {
            Some(claimed) if self.may_replay(&context.export, claimed) => {
                _ = context.replay.set(claimed);
            }
            // It is too late: the client connects again, and learns what has become of it.
            Some(Replay::Request(_)) => return Err(Failure::Lost),
            Some(Replay::Lock) | None => {}
        }
        Ok(guard)
    }

    /// Waits until what clients keep is revoked, if it is being revoked and the request would show how it is now.
    async fn wait_for_revocation(
        &self,
        context: &Context,
        kind: Kind,
        request: &Request,
    ) -> Result<(), Failure> {
        if !self.recovery.is_revoking() || !(shows_names(kind) || excludes(request)) {
            return Ok(());
        }
        match self.recovery.admit_during_revocation() {
            Admission::Now => Ok(()),
            Admission::Dropped => Err(Failure::Lost),
            Admission::Wait(revoked) => {
                // Among them may be what is waited for here: its client has no such lock any more.
                context.cancel_early_of(request);
                let revoked = while_waiting(Wait::Recovery, revoked).await;
                revoked.map(drop).map_err(|_| Failure::Lost)
            }
        }
    }

    /// When a request is executed while the target recovers, and as which replay.
    fn recovery_admission(
        &self,
        context: &Context,
        kind: Kind,
    ) -> Result<(Admission, Option<Replay>), Failure> {
        let (flags, export) = (context.body.flags, context.export.handle());
        if flags.contains(MsgFlags::LOCK_REPLAY_DONE) {
            Ok((self.recovery.admit_final_ping(), None))
        } else if flags.contains(MsgFlags::REQ_REPLAY_DONE) && kind != Kind::OutUpdate {
            // Another MDT has no locks here; what it says while its import is in that state is no replay of one.
            Ok((self.recovery.admit_lock_replay(export), Some(Replay::Lock)))
        } else if flags.contains(MsgFlags::REPLAY) {
            let transno = context.body.transno;
            let admission = self.recovery.admit_request_replay(export, transno);
            Ok((admission, Some(Replay::Request(transno))))
        } else if may_run_in_recovery(kind) {
            Ok((Admission::Now, None))
        } else {
            Err(Errno::EAGAIN.into())
        }
    }

    fn replay_guard<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        claimed: Replay,
    ) -> ReplayGuard<'a> {
        let transno = match claimed {
            Replay::Request(transno) => Some(transno),
            Replay::Lock => None,
        };
        let export = context.export.handle();
        ReplayGuard { target: self, export, transno, admitted: None }
    }
}

/// Requests that change names or layouts, or show them under a lock. Not those that a client sends in order to
/// cancel a lock: no close but one that exchanges layouts.
fn shows_names(kind: Kind) -> bool {
    let opcode = kind.format().opcode;
    matches!(opcode, Opcode::MDS_REINT | Opcode::LDLM_ENQUEUE)
        || matches!(
            kind,
            Kind::MdsBatch | Kind::MdsRmfid | Kind::MdsSwapLayouts | Kind::MdsCloseIntent
        )
}

/// Whether another MDT asks to exclude names and inodes ([`UpdateType::EXCLUDE`]) for a change that it begins: the answer
/// shows how they are, as a client's request would be shown it. Parts of changes (`RECORD`), which may stand beside it in
/// no request, wait for nothing, nor does what ends exclusions: what they belong to is decided, and MDTs that recover wait
/// for each other's. An exclusion that comes as bulk is not seen here.
fn excludes(request: &Request) -> bool {
    let Request::OutUpdate(request) = request else { return false };
    let updates = OutUpdateHeader::split(&request.out_update_header)
        .and_then(|(_, updates)| decode_updates(&updates));
    // What cannot be read is refused by who executes it.
    updates.is_ok_and(|updates| updates.iter().any(|update| update.kind == UpdateType::EXCLUDE))
}

/// What is executed while the target recovers though it is no replay: requests by which a client leaves, recovers,
/// gives up locks or syncs, and modifying requests, closes and enqueues. The last are meant for what a client sent
/// before the restart and has no answer to; that they are resent ones is not checked. Clients send new ones when
/// they are FULL, after the window.
fn may_run_in_recovery(kind: Kind) -> bool {
    let format = kind.format();
    format.flags.contains(FormatFlags::MODIFYING)
        || matches!(
            kind,
            Kind::ObdPing
                | Kind::MdsDisconnect
                | Kind::OstDisconnect
                | Kind::MgsDisconnect
                | Kind::MdsSync
                | Kind::MdsClose
                | Kind::MdsCloseIntent
                | Kind::LdlmEnqueue
                | Kind::LdlmIntentGetattr
                | Kind::LdlmIntentGetxattr
                | Kind::LdlmCancel
                | Kind::LdlmConvert
                | Kind::SeqQuery
                | Kind::FldQuery
                | Kind::FldRead
                | Kind::OstSync
        )
}
