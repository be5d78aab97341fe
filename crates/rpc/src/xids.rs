//! Where xids come from.

use std::sync::atomic::{AtomicU64, Ordering};

use sheen_types::Xid;

use crate::limits::{XID_STEP, base_of};

/// Gives out the xids of a node; all its imports share it.
#[derive(Debug)]
pub struct Xids(AtomicU64);

impl Xids {
    /// Starts behind `last`.
    #[must_use]
    pub fn new(last: Xid) -> Self {
        Self(AtomicU64::new(base_of(last.0)))
    }

    /// The next one.
    #[must_use]
    pub fn next(&self) -> Xid {
        Xid(self.0.fetch_add(XID_STEP, Ordering::Relaxed) + XID_STEP)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limits::first_xid;

    /// A server of 2.17 asks for the parts of a batch up to the xid modulo `PTLRPC_BULK_OPS_COUNT`.
    #[test]
    fn an_xid_is_that_of_the_first_part_of_a_bulk_for_any_server() {
        let bulk_ops_count = 1 << (6 + 1);
        for seconds in [1_700_000_000, 1_795_842_173] {
            let xids = Xids::new(first_xid(Duration::new(seconds, 61_000)));
            let all = [xids.next(), xids.next(), xids.next()];
            assert!(all.iter().all(|xid| xid.0 % bulk_ops_count == 0), "{all:?}");
            assert!(all.is_sorted());
        }
        let last = Xid(0x0006_b0a6_9cbd_0740);
        assert!(Xids::new(last).next() > last, "those of the process of before were 64 apart");
    }
}
