//! Where an import stands, with what matters only there.
//!
//! [`ImportState`] is what operators see of it, with Lustre's names. What outlives a state is in the engine's
//! structs by subject: the connects, what was negotiated, the requests.

use sheen_types::{Instant, Transno};

use crate::channel::RpcError;
use crate::import_state::ImportState;

/// One state at a time.
#[derive(Debug)]
pub(super) enum EngineState {
    /// Never connected.
    New,
    /// Not connected.
    Disconn(Disconn),
    /// Something is on its way after which we are connected, or not.
    Connecting(Connecting),
    /// The target recovers: what it had not made durable is replayed, one request at a time.
    Replay(RequestReplay),
    /// Then our locks are, by their owner.
    ReplayLocks,
    /// Then we have said that this was all, and wait for the other clients.
    ReplayWait,
    /// What was under way is sent again.
    Recover,
    /// In use.
    Full(Full),
    /// The target evicted us; the owner drops what it held.
    Evicted,
    /// Disconnected because unused.
    Idle,
    /// Closed for good.
    Closed,
}

/// Why there is no connection, and what becomes of that.
#[derive(Debug)]
pub(super) enum Disconn {
    /// It broke, or a connect failed.
    LostConnection(LostConnection),
    /// The target refused us for good, or operators turned the import off: calls end with this.
    Denied(RpcError),
    /// Our disconnect is on its way, for the caller with this key. CLOSED comes next, whatever happens.
    Leaving(u64),
}

/// A connection that is made again.
#[derive(Debug)]
pub(super) struct LostConnection {
    /// When; if not by itself, then when a caller asks for anything.
    pub(super) retry: Option<Instant>,
    /// How far the recovery had come.
    pub(super) resume: Stage,
}

/// What is on its way.
#[derive(Debug)]
pub(super) enum Connecting {
    /// A connect. If the target is still in the same recovery, it goes on from here.
    Connect(Stage),
    /// The disconnect from a target that we do without for a while.
    Suspending,
}

/// How far the recovery of a target has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not beyond the replay of requests.
    #[default]
    Replay,
    /// To the replay of locks.
    ReplayLocks,
    /// To the wait for other clients.
    ReplayWait,
}

/// The replay of requests. Which ones are replayed, and how far that got, the kept requests know.
#[derive(Debug, Default)]
pub(super) struct RequestReplay {
    /// The next one repeats one that the target may have seen.
    pub(super) again: bool,
    /// The one that its owner is shown before it is sent.
    pub(super) preparing: Option<Transno>,
}

/// A connection in use.
#[derive(Debug)]
pub(super) struct Full {
    /// When to ping, if nothing else is sent before.
    pub(super) next_ping: Instant,
    /// When a caller asked for anything last, or the owner said that it needs the connection.
    pub(super) used_at: Instant,
}

impl EngineState {
    /// Not connected, and to be connected again at a time that is still to be set.
    pub(super) fn lost(resume: Stage) -> Self {
        Self::Disconn(Disconn::LostConnection(LostConnection { retry: None, resume }))
    }

    /// What operators see.
    pub(super) fn shown(&self) -> ImportState {
        match self {
            Self::New => ImportState::New,
            Self::Disconn(_) => ImportState::Disconn,
            Self::Connecting(_) => ImportState::Connecting,
            Self::Replay(_) => ImportState::Replay,
            Self::ReplayLocks => ImportState::ReplayLocks,
            Self::ReplayWait => ImportState::ReplayWait,
            Self::Recover => ImportState::Recover,
            Self::Full(_) => ImportState::Full,
            Self::Evicted => ImportState::Evicted,
            Self::Idle => ImportState::Idle,
            Self::Closed => ImportState::Closed,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    /// Whether it has come to its end, or is about to.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Closed | Self::Disconn(Disconn::Leaving(_)))
    }

    /// Whether a disconnect from a target that we do without is on its way.
    pub(super) fn is_suspending(&self) -> bool {
        matches!(self, Self::Connecting(Connecting::Suspending))
    }

    /// When a connect is due.
    pub(super) fn next_connect(&self) -> Option<Instant> {
        match self {
            Self::Disconn(Disconn::LostConnection(lost)) => lost.retry,
            _ => None,
        }
    }

    /// Whether a connection was lost that is made again when a caller asks for anything.
    pub(super) fn awaits_caller(&self) -> bool {
        matches!(self, Self::Disconn(Disconn::LostConnection(LostConnection { retry: None, .. })))
    }

    /// Where the recovery goes on if this connection breaks, or is made.
    pub(super) fn stage(&self) -> Stage {
        match self {
            Self::Disconn(Disconn::LostConnection(lost)) => lost.resume,
            Self::Connecting(Connecting::Connect(resume)) => *resume,
            Self::ReplayLocks => Stage::ReplayLocks,
            Self::ReplayWait => Stage::ReplayWait,
            _ => Stage::Replay,
        }
    }
}

impl Stage {
    /// The state in which an interrupted recovery goes on.
    pub(super) fn resumed(self) -> EngineState {
        match self {
            Self::Replay => EngineState::Replay(RequestReplay { again: true, preparing: None }),
            Self::ReplayLocks => EngineState::ReplayLocks,
            Self::ReplayWait => EngineState::ReplayWait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_recovery_goes_on_where_it_was() {
        for stage in [Stage::Replay, Stage::ReplayLocks, Stage::ReplayWait] {
            let state = stage.resumed();
            assert_eq!(state.stage(), stage);
            let lost = EngineState::lost(state.stage());
            assert!(lost.awaits_caller() && lost.next_connect().is_none());
            assert_eq!(EngineState::Connecting(Connecting::Connect(lost.stage())).stage(), stage);
        }
        let full = EngineState::Full(Full { next_ping: Instant(1), used_at: Instant(0) });
        assert_eq!(full.stage(), Stage::Replay, "nothing is left of a recovery that has ended");
    }
}
