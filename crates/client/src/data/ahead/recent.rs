//! What of a file was read lately: the kernel has it, and it is not fetched again.
//!
//! The kernel asks for no page that it has. If it asks for bytes that are here it has dropped them, and most likely what was
//! read with them.

use super::span::Span;

/// Ranges that are remembered at most.
const SPANS_MAX: usize = 32;

/// Ranges that were read, those read last at the end. Reads that touch are one.
#[derive(Default)]
pub(super) struct Recent(Vec<Span>);

impl Recent {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes note of a read. Answers where what was read with it and behind it ends.
    pub(super) fn note(&mut self, read: Span) -> u64 {
        self.0.retain(|span| span.overlap(read) == 0);
        let touches = |span: &Span| span.start == read.end || read.start == span.end;
        let mut whole = read;
        // One before it, and one behind it.
        while let Some(at) = self.0.iter().rposition(touches) {
            whole = whole.with(self.0.remove(at));
        }
        if self.0.len() >= SPANS_MAX {
            self.0.remove(0);
        }
        self.0.push(whole);
        whole.end
    }

    /// The part of `within` before the first of these that overlaps it; `Err` with where that ends if it begins before.
    pub(super) fn before(&self, within: Span) -> Result<Span, u64> {
        let over = self.0.iter().filter(|span| span.overlap(within) > 0);
        match over.min_by_key(|span| span.start) {
            None => Ok(within),
            Some(span) if span.start <= within.start => Err(span.end),
            Some(span) => Ok(Span { end: span.start, ..within }),
        }
    }
}
