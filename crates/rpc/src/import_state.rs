//! What an import leads to, its states as operators see them, and what it counts.

use std::fmt;

use sheen_types::Instant;
use sheen_wire::lnet::Portal;

/// What an import leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportKind {
    /// Management: configuration.
    Mgs,
    /// Metadata.
    Mds,
    /// Objects.
    Ost,
    /// The other way: from a server to a client, for lock callbacks (Lustre's reverse import). Needs no
    /// connect and recovers nothing.
    Reverse,
}

impl ImportKind {
    /// Where the target takes most requests.
    #[must_use]
    pub fn portal(self) -> Portal {
        match self {
            Self::Mgs => Portal::MGS_REQUEST,
            Self::Mds => Portal::MDS_REQUEST,
            Self::Ost => Portal::OST_REQUEST,
            Self::Reverse => Portal::LDLM_CB_REQUEST,
        }
    }
}

/// `LUSTRE_IMP_*`: where an import stands, with Lustre's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImportState {
    /// Closed for good.
    Closed,
    /// Never connected.
    #[default]
    New,
    /// Not connected; will try.
    Disconn,
    /// A connect is under way.
    Connecting,
    /// The target restarted: what it had not made durable is being replayed.
    Replay,
    /// Then, which locks we hold.
    ReplayLocks,
    /// Then we wait until all clients have.
    ReplayWait,
    /// Requests that were under way are sent again.
    Recover,
    /// In use.
    Full,
    /// The target evicted this client; what it held is being dropped.
    Evicted,
    /// Disconnected because unused.
    Idle,
}

impl ImportState {
    /// Lustre's name, as `lctl get_param *.import` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::New => "NEW",
            Self::Disconn => "DISCONN",
            Self::Connecting => "CONNECTING",
            Self::Replay => "REPLAY",
            Self::ReplayLocks => "REPLAY_LOCKS",
            Self::ReplayWait => "REPLAY_WAIT",
            Self::Recover => "RECOVER",
            Self::Full => "FULL",
            Self::Evicted => "EVICTED",
            Self::Idle => "IDLE",
        }
    }

    /// Whether the target knows us by a handle that is in use.
    #[must_use]
    pub fn is_connected(self) -> bool {
        matches!(
            self,
            Self::Replay | Self::ReplayLocks | Self::ReplayWait | Self::Recover | Self::Full
        )
    }
}

impl fmt::Display for ImportState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// One step of an import's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// When.
    pub at: Instant,
    /// Into which state.
    pub state: ImportState,
}

/// What an import has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests sent, resends included.
    pub sent: u64,
    /// Replies taken.
    pub replies: u64,
    /// Early replies taken.
    pub early_replies: u64,
    /// Requests sent again because their connection broke.
    pub resent: u64,
    /// Requests replayed.
    pub replayed: u64,
    /// Requests that got no reply in time.
    pub timeouts: u64,
    /// Connects tried.
    pub connects: u64,
    /// Evictions.
    pub evictions: u64,
    /// Requests under way now.
    pub in_flight: u64,
    /// Requests waiting to be sent now.
    pub waiting: u64,
    /// Requests kept for replay now.
    pub kept: u64,
    /// What we expect the target to take for a request, in seconds.
    pub service_estimate: u32,
}
