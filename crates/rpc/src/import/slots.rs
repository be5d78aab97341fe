//! Slots of modifying requests: the target remembers the last answer given in each.
//!
//! As in Lustre one more than agreed is for a close, one at a time: the requests in all other slots may wait for
//! a lock of ours that is cancelled only after a file is closed.

/// Which slots are taken. Slot numbers begin at 1; 0 is what a target without slots sees.
#[derive(Debug)]
pub(super) struct Slots {
    /// As many as are agreed on; more, while some are taken that were agreed on before.
    taken: Vec<bool>,
    /// How many are agreed on.
    count: usize,
    /// The one for a close, while it is taken.
    closing: Option<u16>,
    /// How many operators allow at once.
    pub(super) max: usize,
    /// Without slots the target remembers one answer: one request at a time, in slot 0.
    numbered: bool,
}

impl Slots {
    pub(super) fn new(count: u16) -> Self {
        let count = usize::from(count.max(1));
        let taken = vec![false; count];
        Self { taken, count, closing: None, max: usize::MAX, numbered: false }
    }

    /// Agrees on `count` slots; those taken stay so, and any beyond these are not taken again.
    pub(super) fn resize(&mut self, count: u16, numbered: bool) {
        self.numbered = numbered;
        self.count = usize::from(count.max(1));
        let used = self.taken.iter().rposition(|taken| *taken).map_or(0, |last| last + 1);
        self.taken.resize(self.count.max(used), false);
        // There are more now: its number may be one of them.
        if let Some(index) = self.closing.map(|tag| usize::from(tag - 1))
            && let Some(taken) = self.taken.get_mut(index)
        {
            *taken = true;
            self.closing = None;
        }
    }

    /// The lowest free slot, so that a target holds few records.
    pub(super) fn take(&mut self) -> Option<u16> {
        let index = self.taken.iter().take(self.count).position(|taken| !taken)?;
        self.taken[index] = true;
        Some(if self.numbered { index as u16 + 1 } else { 0 })
    }

    /// The slot for a close that finds all other slots taken.
    pub(super) fn take_closing(&mut self) -> Option<u16> {
        let is_taken = self.closing.is_some() || self.taken.get(self.count) == Some(&true);
        let is_free = self.numbered && !is_taken;
        let next = u16::try_from(self.count + 1).ok().filter(|_| is_free);
        self.closing = self.closing.or(next);
        next
    }

    /// How many may be taken at once, the one for a close left out.
    pub(super) fn usable(&self) -> usize {
        self.count.min(self.max)
    }

    /// Whether one more modifying request may be under way.
    pub(super) fn is_one_free(&self) -> bool {
        self.taken() < self.usable()
    }

    /// How many of them are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.iter().filter(|taken| **taken).count()
    }

    pub(super) fn free(&mut self, tag: u16) {
        if self.closing == Some(tag) {
            self.closing = None;
            return;
        }
        if let Some(taken) = self.taken.get_mut(usize::from(tag.saturating_sub(1))) {
            *taken = false;
        }
    }

    pub(super) fn clear(&mut self) {
        self.taken.fill(false);
        self.closing = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_close_has_a_slot_of_its_own() {
        let mut slots = Slots::new(1);
        assert_eq!(slots.take_closing(), None, "a target without slots remembers one answer");
        slots.resize(2, true);
        assert_eq!((slots.take(), slots.take(), slots.take()), (Some(1), Some(2), None));
        assert_eq!((slots.take_closing(), slots.take_closing()), (Some(3), None));
        slots.free(3);
        assert_eq!(slots.take_closing(), Some(3));
        // The target has more slots after a restart.
        slots.resize(4, true);
        assert_eq!((slots.taken(), slots.take()), (3, Some(4)));
        slots.free(3);
        assert_eq!((slots.take(), slots.take_closing()), (Some(3), Some(5)));
    }

    #[test]
    fn no_slot_beyond_those_agreed_on_is_taken_again() {
        let mut slots = Slots::new(4);
        slots.resize(4, true);
        assert_eq!([slots.take(), slots.take(), slots.take()], [Some(1), Some(2), Some(3)]);
        // The target has fewer after a restart.
        slots.resize(2, true);
        assert_eq!((slots.take(), slots.take_closing(), slots.is_one_free()), (None, None, false));
        slots.free(3);
        assert_eq!((slots.take(), slots.take_closing()), (None, Some(3)));
        slots.free(1);
        assert_eq!((slots.take(), slots.take()), (Some(1), None));
    }
}
