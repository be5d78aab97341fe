//! How many of something a client has, without counting them at each request.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits;

/// How many of something a client has at most: as many as there were when they were counted, and one for each
/// request since.
#[derive(Debug, Default)]
pub(super) struct Estimate {
    counted: AtomicUsize,
    asked: AtomicUsize,
}

/// What a client has that asks for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// Not so much that it had to be counted.
    Few,
    /// So many.
    Counted(usize),
    /// As many as it may have, or more.
    All(usize),
}

impl Estimate {
    /// One more is asked for. They are counted only where there may be more than `near`, and then once in
    /// [`limits::LOCKS_COUNTED_EVERY`] requests until there may be more than `most`. Of a client that has all they are
    /// counted once in `patience` requests: what a refusal costs is to be bounded, too.
    pub(super) fn ask(
        &self,
        near: usize,
        most: usize,
        patience: usize,
        count: impl FnOnce() -> usize,
    ) -> Usage {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let counted = self.counted.load(Ordering::Relaxed);
        let may_have = counted.saturating_add(asked);
        let is_counted = asked >= limits::LOCKS_COUNTED_EVERY || may_have > most;
        if may_have <= near || !is_counted {
            return Usage::Few;
        }
        if counted >= most && asked < patience {
            return Usage::All(counted);
        }
        let has = count();
        self.counted.store(has, Ordering::Relaxed);
        self.asked.store(usize::from(has < most), Ordering::Relaxed);
        if has < most { Usage::Counted(has) } else { Usage::All(has) }
    }

    /// So many there are at most, as far as is known.
    pub(super) fn at_most(&self) -> usize {
        let asked = self.asked.load(Ordering::Relaxed);
        self.counted.load(Ordering::Relaxed).saturating_add(asked)
    }

    /// What was asked for is one more than it seemed.
    pub(super) fn note_more(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// So many are gone.
    pub(super) fn note_cancelled(&self, count: usize) {
        let left = |counted: usize| Some(counted.saturating_sub(count));
        let _ = self.counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }

    /// An unknown number has come: the next request counts them.
    pub(super) fn forget(&self) {
        self.asked.store(usize::MAX / 2, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_has_is_counted_where_it_may_be_too_much() {
        let (estimate, mut counts) = (Estimate::default(), 0);
        let mut ask = |exports, has| {
            let mut counted = false;
            let answer = estimate.ask(1_750, 2_000, exports, || {
                counted = true;
                has
            });
            counts += usize::from(counted);
            (answer, counts)
        };
        for number in 0..1_750 {
            assert_eq!(ask(1, number), (Usage::Few, 0));
        }
        assert_eq!(ask(1, 1_000), (Usage::Counted(1_000), 1), "it has cancelled some");
        for _ in 0..749 {
            assert_eq!(ask(1, 0).0, Usage::Few);
        }
        assert_eq!(ask(1, 1_990), (Usage::Counted(1_990), 2));
        (0..9).for_each(|_| assert_eq!(ask(1, 0), (Usage::Few, 2)));
        assert_eq!(ask(1, 2_000), (Usage::All(2_000), 3));
        assert_eq!(ask(1, 2_000), (Usage::All(2_000), 4), "few exports are counted each time");
        (0..49).for_each(|_| assert_eq!(ask(50, 0), (Usage::All(2_000), 4)));
        assert_eq!(ask(50, 1_999), (Usage::Counted(1_999), 5), "many, once in as many times");
        assert_eq!(ask(50, 2_000), (Usage::All(2_000), 6));
    }

    #[test]
    fn cancelled_locks_make_room_at_once_and_new_ones_are_counted() {
        let estimate = Estimate::default();
        let ask = |has| estimate.ask(1_750, 2_000, 50, || has);
        estimate.forget();
        assert_eq!(ask(2_000), Usage::All(2_000));
        assert_eq!(ask(2_000), Usage::All(2_000), "not counted so soon");
        estimate.note_cancelled(1);
        assert_eq!(ask(1_999), Usage::Counted(1_999));
        estimate.note_cancelled(10_000);
        assert_eq!(ask(0), Usage::Few);
    }
}
