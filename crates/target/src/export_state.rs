//! How far a client has got, in and after recovery.

/// How far a client has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportState {
    /// Known from before the restart, not seen since.
    Awaited,
    /// Connected, in the recovery window: replays requests.
    Replaying,
    /// Connected, in the recovery window: all requests replayed, locks follow.
    ReplayingLocks,
    /// Connected, in the recovery window: requests and locks are replayed, waits for the other clients.
    ReplayedAll,
    /// Connected.
    Full,
    /// Gone: disconnected, evicted or the target stops.
    Gone,
}
