//! Which numbers transactions have in which incarnation of a target (Lustre's boot epoch).
//!
//! The high half of a number is its epoch. Each incarnation has an epoch of its own, chosen when the target
//! starts and durable before anybody is served, so two things always hold:
//!
//! - numbers that were given out before a crash and lost in it are not given out again;
//! - what a client may replay lies before the epoch that begins ([`Epoch::last_before`]): a larger number was
//!   never given to anybody.
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
    fn numbers_end_without_wrapping() {
        let next = |before, last| Epoch::after(Epoch(before), Transno(last));
        assert_eq!(next(1, u64::MAX), None);
        assert_eq!(next(1, TRANSNO_MAX.0), None);
        assert_eq!(next(u32::MAX, 0), None);
        assert_eq!(next(0x7fff_fffd, 0), Some(Epoch(0x7fff_ffff)));
        assert_eq!(next(0x7fff_fffe, 0), None);
    }
}
