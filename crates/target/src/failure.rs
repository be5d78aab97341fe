//! How a request ends that has no outcome, and what is wrong with one that claims to be a replay.

use std::fmt;

use sheen_types::{Errno, Transno};
use sheen_wire::messages::Kind;

use crate::export_state::ExportState;
use crate::limits::Limit;

/// How a request ends that has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It is not answered: it was lost on the way, or its client is to send it again.
    Lost,
    /// Its client gets this error.
    With(Errno),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::With(errno)
    }
}

/// Why a request is not the replay that it claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FalseReplay {
    /// The target does not recover.
    NoRecovery,
    /// It is no replay, or one of everything at once.
    Contradicts,
    /// Such a request never gets a number.
    NeverReplayed(Kind),
    /// The client has nothing to replay, or has reported that it is done.
    NotReplaying(ExportState),
    /// No client was ever given this number.
    NeverGiven(Transno),
    /// No client can have had so many.
    TooMany(Limit),
    /// The lock is not there, and locks are not replayed now.
    Lock,
}

impl fmt::Display for FalseReplay {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRecovery => {
                out.write_str("a replay, or a transaction number, without recovery")
            }
            Self::Contradicts => {
                out.write_str("a replay that says that all is replayed, or names no transaction")
            }
            Self::NeverReplayed(kind) => {
                write!(out, "a replay of {}, which gets no transaction number", kind.format().name)
            }
            Self::NotReplaying(state) => write!(out, "a replay from a client that is {state:?}"),
            Self::NeverGiven(transno) => write!(
                out,
                "a replay of transaction {transno}, which was never given out: the client lies, or the \
                 target's store is older than what the client has seen"
            ),
            Self::TooMany(limit) => {
                write!(out, "a replay of more {limit:?} than the client can have had")
            }
            Self::Lock => out.write_str("a lock replayed outside of recovery"),
        }
    }
}
