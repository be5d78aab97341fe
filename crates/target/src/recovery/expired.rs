//! Which clients are evicted when the recovery window runs out.

use sheen_types::ObdHandle;

use crate::export_state::ExportState;

/// Which clients are given up, besides those that have not come back. A client that waits for other
/// clients is not: it has done its part of the stage, or a replay of its own waits for its turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// All that have not finished.
    Unfinished,
    /// No other client: those that are connected were only waiting for the absent ones.
    Absent,
    /// Those that have not replayed their requests, save these clients.
    Requests(Vec<ObdHandle>),
    /// Those that have not replayed their locks, save these clients.
    Locks(Vec<ObdHandle>),
}

impl Expired {
    /// Whether the client of an export in this state is given up.
    pub(crate) fn gives_up(&self, export: ObdHandle, state: ExportState) -> bool {
        match (state, self) {
            (ExportState::ReplayedAll | ExportState::Full | ExportState::Gone, _) => false,
            (ExportState::Awaited, _) | (_, Self::Unfinished) => true,
            (_, Self::Absent) | (ExportState::ReplayingLocks, Self::Requests(_)) => false,
            (_, Self::Requests(with_replays) | Self::Locks(with_replays)) => {
                !with_replays.contains(&export)
            }
        }
    }
}
