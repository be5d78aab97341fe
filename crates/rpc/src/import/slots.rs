//! Slots of modifying requests: the target remembers the last answer given in each.

/// Which slots are taken. Slot numbers begin at 1; 0 is what a target without slots sees.
#[derive(Debug)]
pub(super) struct Slots {
    taken: Vec<bool>,
    /// Without slots the target remembers one answer: one request at a time, in slot 0.
    numbered: bool,
}

impl Slots {
    pub(super) fn new(count: u16) -> Self {
        Self { taken: vec![false; usize::from(count.max(1))], numbered: false }
    }

    /// Agrees on `count` slots; those taken stay so.
    pub(super) fn resize(&mut self, count: u16, numbered: bool) {
        self.numbered = numbered;
        let used = self.taken.iter().rposition(|taken| *taken).map_or(0, |last| last + 1);
        self.taken.resize(usize::from(count.max(1)).max(used), false);
    }

    /// The lowest free slot, so that a target holds few records.
    pub(super) fn take(&mut self) -> Option<u16> {
        let index = self.taken.iter().position(|taken| !taken)?;
        self.taken[index] = true;
        Some(if self.numbered { index as u16 + 1 } else { 0 })
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.taken.len()
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.iter().filter(|taken| **taken).count()
    }

    pub(super) fn free(&mut self, tag: u16) {
        if let Some(taken) = self.taken.get_mut(usize::from(tag.saturating_sub(1))) {
            *taken = false;
        }
    }

    pub(super) fn clear(&mut self) {
        self.taken.fill(false);
    }
}
