//! Changes of this client to what its own locks cover, from before the request is sent until its answer is here.
//!
//! The lock is held through them, so a reply counts as covered only if none of them overlapped its question.

/// Those of one kind to one inode.
#[derive(Debug, Default)]
pub(super) struct OwnChanges {
    /// Ever begun.
    begun: u64,
    /// Not answered yet. One whose caller gave it up stays: when the server executes it is unknown.
    under_way: u32,
}

/// What they were when a question was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnChangesSeen {
    begun: u64,
    none_under_way: bool,
}

impl OwnChanges {
    /// One is about to be sent.
    pub(super) fn begin(&mut self) {
        self.begun += 1;
        self.under_way += 1;
    }

    /// One was answered.
    pub(super) fn end(&mut self) {
        self.under_way -= 1;
    }

    /// Now.
    pub(super) fn seen(&self) -> OwnChangesSeen {
        OwnChangesSeen { begun: self.begun, none_under_way: self.under_way == 0 }
    }

    /// Whether none overlapped a question that was sent then.
    pub(super) fn undisturbed_since(&self, then: OwnChangesSeen) -> bool {
        then.none_under_way && then.begun == self.begun
    }
}

impl OwnChangesSeen {
    /// For what was not known when the question was sent.
    pub(super) const NONE: Self = Self { begun: 0, none_under_way: true };

    /// As seen after one more has begun: that one itself does not disturb its own answer.
    pub(super) fn but_one(self) -> Self {
        Self { begun: self.begun + 1, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_if_no_other_change_overlapped_its_question() {
        let mut changes = OwnChanges::default();
        let before = changes.seen();
        changes.begin();
        assert!(!changes.undisturbed_since(before), "asked before it, answered amidst");
        assert!(!changes.undisturbed_since(changes.seen()), "asked amidst");
        assert!(changes.undisturbed_since(before.but_one()), "its own answer");
        changes.begin();
        assert!(!changes.undisturbed_since(before.but_one()), "another began meanwhile");
        changes.end();
        let amidst = changes.seen();
        changes.end();
        assert!(!changes.undisturbed_since(amidst), "one was under way when it was asked");
        assert!(changes.undisturbed_since(changes.seen()));
    }
}
