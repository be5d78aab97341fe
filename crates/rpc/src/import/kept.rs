//! Requests kept for replay, and how far the target's history is durable and replayed.
//!
//! A request is kept until its transaction is durable (Lustre's replay list) or, where its owner wants that, until
//! it is released (Lustre's committed list): an open, whose handle lives in the target's memory only.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use sheen_types::{HashMap, Transno, Xid};
use sheen_wire::ptlrpc::PtlrpcBody;

use crate::channel::Call;

/// A request whose transaction the target may yet lose, or whose open handle it would.
pub(super) struct KeptRequest {
    pub(super) xid: Xid,
    /// Its slot.
    pub(super) tag: u16,
    pub(super) call: Call,
    pub(super) answer: PtlrpcBody,
    /// Kept even when durable, until released.
    pub(super) until_release: bool,
}

/// The kept requests, in the order of their transactions.
#[derive(Default)]
pub(super) struct KeptRequests {
    /// Boxed: these come and go in order, and a node of the tree moves all that it has each time.
    by_transno: BTreeMap<Transno, Box<KeptRequest>>,
    /// Transactions of those that are kept until they are released.
    until_release: HashMap<Xid, Transno>,
    /// How far the target's history is durable, as it last said.
    pub(super) committed: Transno,
    /// The last transaction that was replayed to the target since it started.
    pub(super) replayed: Transno,
}

impl KeptRequests {
    pub(super) fn len(&self) -> usize {
        self.by_transno.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_transno.is_empty()
    }

    /// The first transaction that a restarted target would hear from us; 0 for none.
    pub(super) fn first(&self) -> Transno {
        self.by_transno.first_key_value().map_or(Transno(0), |(transno, _)| *transno)
    }

    /// The first that is not replayed yet.
    pub(super) fn next_to_replay(&self) -> Option<(Transno, &KeptRequest)> {
        let mut after = self.by_transno.range((Excluded(self.replayed), Unbounded));
        after.next().map(|(transno, kept)| (*transno, &**kept))
    }

    pub(super) fn get(&self, transno: Transno) -> Option<&KeptRequest> {
        self.by_transno.get(&transno).map(|kept| &**kept)
    }

    pub(super) fn get_mut(&mut self, transno: Transno) -> Option<&mut KeptRequest> {
        self.by_transno.get_mut(&transno).map(|kept| &mut **kept)
    }

    /// Whether any waits for its transaction to become durable.
    pub(super) fn awaits_commit(&self) -> bool {
        self.by_transno.last_key_value().is_some_and(|(transno, _)| *transno > self.committed)
    }

    /// Bytes of bulk that are not durable. Walks all that is not.
    pub(super) fn unstable_bytes(&self) -> u64 {
        let kept = self.by_transno.range((Excluded(self.committed), Unbounded));
        kept.map(|(_, kept)| kept.call.bulk.length() as u64).sum()
    }

    pub(super) fn insert(&mut self, transno: Transno, kept: KeptRequest) {
        if kept.until_release {
            self.until_release.insert(kept.xid, transno);
        }
        self.by_transno.insert(transno, Box::new(kept));
    }

    /// The transaction up to which the target's history is durable has grown.
    pub(super) fn commit(&mut self, committed: Transno) {
        if committed <= self.committed {
            return;
        }
        let from = std::mem::replace(&mut self.committed, committed);
        let done: Vec<Transno> = self
            .by_transno
            .range((Excluded(from), Included(committed)))
            .filter(|(_, kept)| !kept.until_release)
            .map(|(transno, _)| *transno)
            .collect();
        for transno in done {
            self.by_transno.remove(&transno);
        }
    }

    /// Its owner does not want it to be kept any longer than its transaction needs.
    pub(super) fn release(&mut self, xid: Xid) {
        let Some(transno) = self.until_release.remove(&xid) else { return };
        if transno <= self.committed {
            self.by_transno.remove(&transno);
        } else if let Some(kept) = self.by_transno.get_mut(&transno) {
            kept.until_release = false;
        }
    }

    /// Nothing is replayed any more.
    pub(super) fn clear(&mut self) {
        self.by_transno.clear();
        self.until_release.clear();
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::messages::ObdPing;

    use super::*;

    fn kept(xid: u64, until_release: bool) -> KeptRequest {
        let (call, answer) = (Call::modifying(ObdPing::default()), PtlrpcBody::default());
        KeptRequest { xid: Xid(xid), tag: 1, call, answer, until_release }
    }

    #[test]
    fn what_is_durable_is_dropped_unless_its_owner_has_not_released_it() {
        let mut all = KeptRequests::default();
        for number in 1..=4 {
            all.insert(Transno(number), kept(number * 64, number % 2 == 0));
        }
        all.commit(Transno(3));
        assert_eq!((all.len(), all.first(), all.awaits_commit()), (2, Transno(2), true));
        all.release(Xid(2 * 64));
        assert_eq!((all.len(), all.first()), (1, Transno(4)));
        // Released before it is durable, it stays as long as its transaction needs it.
        all.release(Xid(4 * 64));
        assert_eq!(all.len(), 1);
        all.commit(Transno(4));
        assert!(all.is_empty() && !all.awaits_commit());
    }

    #[test]
    fn replays_follow_the_order_of_transactions() {
        let mut all = KeptRequests::default();
        for number in [3, 1, 2] {
            all.insert(Transno(number), kept(number * 64, false));
        }
        let mut order = Vec::new();
        while let Some((transno, _)) = all.next_to_replay() {
            order.push(transno.0);
            all.replayed = transno;
        }
        assert_eq!(order, [1, 2, 3]);
    }
}
