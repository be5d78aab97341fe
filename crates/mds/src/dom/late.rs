//! Writes that come late: a client that set a file's times does not want them back from a write that
//! it had sent before (Lustre's FMD, `tgt_fmd_*`).

use std::collections::VecDeque;

use parking_lot::Mutex;
use sheen_types::{Fid, Xid};

/// How many files are remembered; a write is late only as long as it takes to arrive.
const REMEMBERED_MAX: usize = 128;

/// The newest settings of times, oldest first.
#[derive(Default)]
pub(crate) struct LateTimes {
    set: Mutex<VecDeque<TimesSet>>,
}

struct TimesSet {
    number: u32,
    file: Fid,
    xid: Xid,
}

impl LateTimes {
    /// A client's request sets the file's times.
    pub(crate) fn note(&self, number: u32, file: Fid, xid: Xid) {
        let mut set = self.set.lock();
        set.retain(|known| (known.number, known.file) != (number, file));
        if set.len() == REMEMBERED_MAX {
            set.pop_front();
        }
        set.push_back(TimesSet { number, file, xid });
    }

    /// Whether the client sent a request before it set the file's times.
    pub(crate) fn is_late(&self, number: u32, file: Fid, xid: Xid) -> bool {
        let set = self.set.lock();
        set.iter().any(|known| (known.number, known.file) == (number, file) && xid < known.xid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_same_client_sent_before_is_late() {
        let times = LateTimes::default();
        let (file, other) = (Fid::new(5, 5), Fid::new(5, 6));
        times.note(1, file, Xid(100));
        assert!(times.is_late(1, file, Xid(99)));
        assert!(!times.is_late(1, file, Xid(101)));
        assert!(!times.is_late(2, file, Xid(99)), "numbers of two clients have no order");
        assert!(!times.is_late(1, other, Xid(99)));
        times.note(1, file, Xid(200));
        assert!(times.is_late(1, file, Xid(150)), "the newest counts");
        for oid in 0..REMEMBERED_MAX as u32 {
            times.note(3, Fid::new(6, oid), Xid(1));
        }
        assert!(!times.is_late(1, file, Xid(150)), "forgotten");
    }
}
