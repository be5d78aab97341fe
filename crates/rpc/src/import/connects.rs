//! What a target and this import know of each other: which connects were tried, what the last one brought.

use sheen_types::{HashMap, Instant, Nid, ObdHandle};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};

use super::stats::NidTries;

/// The connects that were tried.
pub(super) struct Connects {
    /// Nodes that serve the target, the best first; at least one.
    pub(super) nids: Vec<Nid>,
    /// Which of them is talked to.
    current: usize,
    /// The connection that the last one was to make: they are numbered (Lustre's `imp_conn_cnt`).
    pub(super) connection: u32,
    /// Tries since the import was FULL last.
    pub(super) tries: u32,
    /// Whether they began because a caller needs an idle import, and none has failed yet.
    pub(super) waking: bool,
    /// The node at which the target answered the last one with `EBUSY`: it recovers.
    pub(super) refused_in_recovery: Option<Nid>,
    /// The target is another MDT than ours, or has refused us for its objects are another MDT's.
    pub(super) has_wrong_identity: bool,
    by_nid: HashMap<Nid, NidTries>,
}

impl Connects {
    pub(super) fn new(nids: Vec<Nid>) -> Self {
        assert!(!nids.is_empty(), "an import knows at least one node");
        Self {
            nids,
            current: 0,
            connection: 0,
            tries: 0,
            waking: false,
            refused_in_recovery: None,
            has_wrong_identity: false,
            by_nid: HashMap::default(),
        }
    }

    /// The node that is talked to.
    pub(super) fn peer(&self) -> Nid {
        self.nids[self.current]
    }

    pub(super) fn add_nid(&mut self, nid: Nid) {
        if !self.nids.contains(&nid) {
            self.nids.push(nid);
        }
    }

    /// Counts that a connect is sent.
    pub(super) fn begin(&mut self, now: Instant) {
        self.connection += 1;
        self.tries += 1;
        let tries = self.by_nid.entry(self.peer()).or_default();
        (tries.connects, tries.last) = (tries.connects + 1, Some(now));
    }

    pub(super) fn replied(&mut self) {
        self.by_nid.entry(self.peer()).or_default().replied += 1;
    }

    /// Counts that a connect came to nothing: the next one goes to the next node.
    pub(super) fn failed(&mut self) {
        let peer = self.peer();
        self.refused_in_recovery.take_if(|nid| *nid == peer);
        self.current = (self.current + 1) % self.nids.len();
        self.waking = false;
    }

    /// The import is FULL.
    pub(super) fn settled(&mut self) {
        (self.tries, self.waking) = (0, false);
    }

    /// For operators: nodes, and the connects to each.
    pub(super) fn by_nid(&self) -> Vec<(Nid, NidTries)> {
        let tries = |nid: &Nid| self.by_nid.get(nid).copied().unwrap_or_default();
        self.nids.iter().map(|nid| (*nid, tries(nid))).collect()
    }
}

/// What the last connect brought.
pub(super) struct Negotiated {
    /// The target's handle of our export; 0 while it does not know us.
    pub(super) export: ObdHandle,
    /// What both sides agreed on; before the first connect, what we would offer.
    pub(super) data: ObdConnectData,
    /// Whether the target has anything of ours, a change or a lock, that an eviction would take.
    pub(super) has_state_there: bool,
}

impl Negotiated {
    /// From here on the target is as one that never knew us.
    pub(super) fn forget_target(&mut self) {
        (self.export, self.has_state_there) = (ObdHandle(0), false);
    }

    /// Whether timeouts may adapt, and early replies come.
    pub(super) fn adapts(&self) -> bool {
        self.data.flags.contains(ConnectFlags::AT)
    }

    /// Whether both sides put match bits into bodies.
    pub(super) fn has_bulk_bits(&self) -> bool {
        self.data.flags.contains(ConnectFlags::BULK_MBITS)
    }

    /// Whether replies come under those bits, too.
    pub(super) fn has_reply_bits(&self) -> bool {
        self.data.flags.contains(ConnectFlags::FLAGS2)
            && self.data.flags2.contains(ConnectFlags2::REP_MBITS)
    }
}
