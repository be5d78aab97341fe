//! Which numbers transactions have in which incarnation of a target (Lustre's boot epoch).
//!
//! The high half of a number is its epoch. Each incarnation has an epoch of its own, chosen when the target
//! starts and durable before a client is served, so two things always hold:
//!
//! - numbers that were given out before a crash and lost in it are not given out again;
//! - what a client may replay lies before the epoch that begins ([`Epoch::last_before`]): a larger number was
//!   never given to a client.
//!
//! An incarnation that uses up its 2^32 numbers goes on with those of the next epoch. Therefore epochs are
//! two apart.
//!
//! Costs one key in a transaction that each start makes durable anyway.

use sheen_types::Transno;

/// The low half of a number counts the transactions of its epoch.
const SHIFT: u32 = 32;
/// How far the epochs of two incarnations are apart.
const STEP: u32 = 2;

/// By how many starts of the target a store may be older than another that has replaced it for a while. More is no
/// older copy, but a client that makes up numbers.
const STARTS_MISSED: u32 = 1 << 16;

/// The last number that there is: Lustre's tools print them with a sign.
pub(crate) const TRANSNO_MAX: Transno = Transno(u64::MAX >> 1);

/// The epoch of one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(pub(crate) u32);

impl Epoch {
    /// Of a target that has never been started.
    pub(crate) const FIRST: Self = Self(1);

    /// The epoch after an incarnation that had `before` and whose last durable transaction is `last`; `None`
    /// if the numbers end before it.
    pub(crate) fn after(before: Self, last: Transno) -> Option<Self> {
        let reached = u32::try_from(last.0 >> SHIFT).ok()?.max(before.0);
        let next = Self(reached.checked_add(STEP)?);
        (next.start() < TRANSNO_MAX).then_some(next)
    }

    /// Whether a store of this epoch may be an older copy of one that has given out `transno`.
    pub(crate) fn may_be_earlier_than(self, transno: Transno) -> bool {
        let latest = Self(self.0.saturating_add(STARTS_MISSED * STEP));
        transno <= latest.start().min(TRANSNO_MAX)
    }

    /// The number before its first transaction's.
    pub(crate) fn start(self) -> Transno {
        Transno(u64::from(self.0) << SHIFT)
    }

    /// The largest number that may have been given out before it began.
    pub(crate) fn last_before(self) -> Transno {
        Transno(self.start().0.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_lies_behind_all_that_was_given_out_before() {
        let next = |before, last| Epoch::after(Epoch(before), Transno(last));
        assert_eq!(next(1, 1 << 32 | 7), Some(Epoch(3)));
        assert_eq!(next(1, 0), Some(Epoch(3)), "nothing of the one before was durable");
        // It has gone on into the next, and may have given out more than is durable.
        assert_eq!(next(1, 2 << 32 | 7), Some(Epoch(4)));
        let last = Epoch(3).last_before();
        assert!(last > Transno(2 << 32 | 7) && last < Epoch(3).start());
    }

    #[test]
    fn a_copy_is_older_by_some_starts_and_not_by_all() {
        let may_be = |transno| Epoch(3).may_be_earlier_than(Transno(transno));
        assert!(may_be(3 << 32 | 7) && may_be(70 << 32 | 7));
        assert!(!may_be(u64::MAX) && !may_be(TRANSNO_MAX.0 + 1) && !may_be(TRANSNO_MAX.0));
        assert!(!Epoch(u32::MAX).may_be_earlier_than(Transno(u64::MAX)));
    }

    #[test]
    fn numbers_end_without_wrapping() {
        let next = |before, last| Epoch::after(Epoch(before), Transno(last));
        assert_eq!(next(1, u64::MAX), None);
        assert_eq!(next(1, TRANSNO_MAX.0), None);
        assert_eq!(next(u32::MAX, 0), None);
        assert_eq!(next(0x7fff_fffd, 0), Some(Epoch(0x7fff_ffff)));
        assert_eq!(next(0x7fff_fffe, 0), None);
    }
}
