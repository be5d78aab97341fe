//! Data that its writers may have lost, and to whom that was reported: an error that was not reported waits
//! for the next `fsync`, however long. Every other error of an `fsync` must have a reason of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use sheen_types::{Fid, Instant};

use super::Writer;

/// How long a client may have bytes that it has accepted and not written: then it is evicted.
const UNWRITTEN_MAX: Duration = Duration::from_secs(240);

/// One file, as one client has written to it.
#[derive(Default)]
struct Written {
    /// The last time, if that is not known to be durable.
    last: Option<Instant>,
    /// Until when data of it may have been found lost.
    lost: Option<Instant>,
    /// When the first `fsync` ended that began after that.
    reported: Option<Instant>,
}

impl Written {
    fn lose(&mut self, until: Instant) {
        self.lost = self.lost.max(Some(until));
        self.reported = None;
    }
}

/// All files of all clients.
#[derive(Default)]
pub(crate) struct Losses {
    files: BTreeMap<(Writer, Fid), Written>,
    /// Until when a client loses whatever it accepts.
    doubtful: BTreeMap<Writer, Instant>,
}

impl Losses {
    /// A client has something to write.
    pub(crate) fn wrote(&mut self, by: Writer, file: Fid, now: Instant) {
        let written = self.files.entry((by, file)).or_default();
        written.last = Some(now);
        if let Some(until) = self.doubtful.get(&by).filter(|until| now <= **until) {
            written.lose(*until);
        }
    }

    /// What lies unwritten may be lost, and found so `within` a time: of `by` alone, which then loses what it
    /// accepts in the meantime, too; or of all clients.
    pub(crate) fn lose(&mut self, by: Option<Writer>, now: Instant, within: Duration) {
        let until = now + within;
        if let Some(by) = by {
            self.doubtful.insert(by, until);
        }
        for ((writer, _), written) in &mut self.files {
            let unwritten = written.last.is_some_and(|last| now.since(last) <= UNWRITTEN_MAX);
            if unwritten && by.is_none_or(|by| by == *writer) {
                written.lose(until);
            }
        }
    }

    /// An `fsync` that went from `begin` to `end` has reported every loss so far; whether all is durable.
    pub(crate) fn synced(
        &mut self,
        (by, file): (Writer, Fid),
        (begin, end): (Instant, Instant),
        durable: bool,
    ) {
        let Some(written) = self.files.get_mut(&(by, file)) else { return };
        if durable && written.last.is_some_and(|last| last < begin) {
            written.last = None;
        }
        if written.lost.is_some_and(|lost| lost < begin) {
            written.reported.get_or_insert(end);
        }
    }

    /// Whether an `fsync` by a handle that was opened at `opened` may report a loss: it was not reported
    /// before.
    pub(crate) fn may_report(&self, by: Writer, file: Fid, opened: Instant) -> bool {
        self.files.get(&(by, file)).is_some_and(|written| {
            written.lost.is_some() && written.reported.is_none_or(|reported| opened <= reported)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid::new(1, 1);
    const SECOND: Duration = Duration::from_secs(1);

    fn at(second: u64) -> Instant {
        Instant(0) + Duration::from_secs(second)
    }

    #[test]
    fn a_loss_is_reported_until_one_was_reported_before_the_handle_was_opened() {
        let mut losses = Losses::default();
        assert!(!losses.may_report(1, FILE, at(0)), "nothing was written");
        losses.wrote(1, FILE, at(1));
        assert!(!losses.may_report(1, FILE, at(2)), "nothing was lost");
        losses.lose(None, at(5), SECOND);
        assert!(losses.may_report(1, FILE, at(900)));
        assert!(!losses.may_report(2, FILE, at(900)), "another's loss");
        losses.synced((1, FILE), (at(6), at(10)), false);
        assert!(losses.may_report(1, FILE, at(900)), "it could still be found");
        losses.synced((1, FILE), (at(8), at(10)), false);
        assert!(losses.may_report(1, FILE, at(9)), "opened before");
        assert!(!losses.may_report(1, FILE, at(11)), "reported before");
        losses.lose(None, at(20), SECOND);
        assert!(losses.may_report(1, FILE, at(21)), "lost again");
    }

    #[test]
    fn what_is_durable_is_not_lost() {
        let mut losses = Losses::default();
        losses.wrote(1, FILE, at(1));
        losses.synced((1, FILE), (at(2), at(3)), true);
        losses.lose(None, at(4), SECOND);
        assert!(!losses.may_report(1, FILE, at(4)));
        losses.wrote(1, FILE, at(5));
        losses.synced((1, FILE), (at(5), at(6)), true);
        losses.lose(None, at(500), SECOND);
        assert!(!losses.may_report(1, FILE, at(500)), "written long ago");
        losses.wrote(1, FILE, at(600));
        losses.lose(Some(2), at(601), SECOND);
        assert!(!losses.may_report(1, FILE, at(601)), "another client");
        losses.wrote(2, FILE, at(601));
        assert!(losses.may_report(2, FILE, at(700)), "accepted while it was lost already");
    }
}
