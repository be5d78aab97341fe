//! Messages counted by their kind.

use std::sync::atomic::{AtomicU64, Ordering};

use sheen_wire::lnet::LnetCommand;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put,
    Get,
    Reply,
    Ack,
    Hello,
}

impl Kind {
    pub(super) fn of(command: &LnetCommand) -> Self {
        match command {
            LnetCommand::Put(_) => Self::Put,
            LnetCommand::Get(_) => Self::Get,
            LnetCommand::Reply(_) => Self::Reply,
            LnetCommand::Ack(_) => Self::Ack,
            LnetCommand::Hello(_) => Self::Hello,
        }
    }
}

/// A count for each kind.
#[derive(Debug, Default)]
pub struct KindCounts([AtomicU64; 5]);

impl KindCounts {
    pub(super) fn count(&self, kind: Kind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of PUT, GET, REPLY, ACK and HELLO.
    #[must_use]
    pub fn counts(&self) -> [u64; 5] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}
