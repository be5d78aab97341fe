//! One stream of reads, and where its next ones are expected.

use sheen_types::PAGE_BYTES as PAGE;

use super::scattered::{loose, off_place, tolerance};
use super::span::Span;

/// Bytes that are fetched at once of a stream whose reads touch: from one multiple of it to the next.
pub(super) const CHUNK: u64 = 1 << 20;
/// How far behind the expected place a read may be of a stream of several readers.
const SLACK: u64 = 1 << 20;
/// How far behind a stream what was fetched ahead is kept for reads that come late.
pub(super) const BEHIND: u64 = 8 << 20;
/// A first read of so many bytes at the beginning of a file is the kernel's, which reads ahead itself.
const LARGE: u64 = 128 << 10;
/// The same where all of the file may be read ahead: more than the kernel asks for if a program looks at the first page.
const LARGE_OF_WHOLE: u64 = 32 << 10;
/// Reads that may be missing in a stride: the kernel had their pages.
const SKIPPED_MAX: i128 = 8;

/// Reads of one file that follow one access pattern.
pub(super) struct Stream {
    /// Whose ranges are whose in [`super::fetched::Fetched`].
    pub(super) id: u32,
    pub(super) pattern: AccessPattern,
    /// Bytes that were read of it.
    pub(super) bytes: u64,
    /// Whether anything is read ahead of it.
    pub(super) is_believed: bool,
    /// The number of its last read.
    pub(super) used: u64,
}

/// The pattern that a stream's reads follow.
pub(super) enum AccessPattern {
    SequentialReads(SequentialReads),
    StridedReads(StridedReads),
}

/// Sequential reads: each begins where an earlier one ended, or a little behind that.
pub(super) struct SequentialReads {
    pub(super) began: u64,
    /// Where the next is expected.
    pub(super) next: u64,
    /// Everything before this was asked for, by a read or ahead.
    pub(super) reached: u64,
    /// How often a read went on so.
    followed: u32,
    /// Several readers read a part of the file together: reads come late, too.
    is_together: bool,
}

/// Strided reads: they are at a fixed distance from each other, which is negative for reads that go backwards.
pub(super) struct StridedReads {
    /// Where the first began.
    first: u64,
    pub(super) last: Span,
    /// How many strides lie between these.
    pub(super) count: u64,
    /// Up to which stride they were asked for ahead.
    pub(super) asked: u64,
    /// Bytes of the longest.
    pub(super) length: u64,
    /// How many there were that were asked for at once, and how many bytes they had.
    whole: (u64, u64),
    /// Whether each was at its place to the byte.
    is_exact: bool,
}

impl Stream {
    fn new(id: u32, pattern: AccessPattern, bytes: u64, is_believed: bool) -> Self {
        Self { id, pattern, bytes, is_believed, used: 0 }
    }

    /// The reads at the beginning of a file: it need not be shown that they go on there.
    pub(super) fn at_beginning(id: u32, read: Span, is_small_file: bool) -> Self {
        let is_believed = read.len() >= if is_small_file { LARGE_OF_WHOLE } else { LARGE };
        let pattern = SequentialReads::over(Span::new(0, read.end), false);
        Self::new(id, pattern, read.len(), is_believed)
    }

    /// `read` goes on where `before` ended.
    pub(super) fn continuing(id: u32, before: Span, read: Span) -> Self {
        let pattern = SequentialReads::over(Span::new(before.start, read.end), false);
        Self::new(id, pattern, before.len() + read.len(), false)
    }

    /// Most of `piece` was read, in some order.
    pub(super) fn of_piece(id: u32, piece: Span) -> Self {
        Self::new(id, SequentialReads::over(piece, true), piece.len(), true)
    }

    /// `read` is the third at one distance, and begins at another than `first`.
    pub(super) fn striding(id: u32, first: Span, read: Span, is_exact: bool) -> Self {
        let (length, whole) = (first.len().max(read.len()), (2, first.len() + read.len()));
        let (first, count, asked) = (first.start, 2, 2);
        let strides = StridedReads { first, last: read, count, asked, length, whole, is_exact };
        Self::new(id, AccessPattern::StridedReads(strides), 3 * read.len(), false)
    }

    /// `read` begins what `first` and `second` are: as much again, at the same distance. They are several reads each.
    pub(super) fn striding_runs(id: u32, first: Span, second: Span, read: Span) -> Option<Self> {
        let length = second.len();
        let most = tolerance(length);
        let off = off_place(first, second, read);
        let are_apart = first.start.abs_diff(second.start) > length;
        if first.len().abs_diff(length) > most || off > most || !are_apart {
            return None;
        }
        // At first the rest of this one is asked for.
        let (count, asked, is_exact) = (2, 1, off == 0);
        let (first, whole) = (first.start, (2, first.len() + length));
        let strides = StridedReads { first, last: read, count, asked, length, whole, is_exact };
        Some(Self::new(id, AccessPattern::StridedReads(strides), read.len(), true))
    }

    /// Reads have had what lies before `until`, too.
    pub(super) fn go_on(&mut self, until: u64) {
        if let AccessPattern::SequentialReads(sequential) = &mut self.pattern {
            self.is_believed |= sequential.go_on(until);
        }
    }

    /// Whether it is believed and its reads touch.
    pub(super) fn is_in_order(&self) -> bool {
        let touch = match &self.pattern {
            AccessPattern::SequentialReads(_) => true,
            AccessPattern::StridedReads(strides) => {
                strides.stride().unsigned_abs() <= strides.length.into()
            }
        };
        self.is_believed && touch
    }

    /// About its last read.
    pub(super) fn last(&self) -> Span {
        match &self.pattern {
            AccessPattern::SequentialReads(SequentialReads { next, .. }) => {
                Span::new(next.saturating_sub(1), *next)
            }
            AccessPattern::StridedReads(StridedReads { last, .. }) => *last,
        }
    }

    /// All of a stream whose reads touch, if there were several.
    pub(super) fn run(&self) -> Option<Span> {
        match &self.pattern {
            AccessPattern::SequentialReads(sequential) if sequential.followed > 1 => {
                Some(Span::new(sequential.began, sequential.next))
            }
            _ => None,
        }
    }

    /// Whether a read is one of this stream; `is_hit` if it was asked for ahead of it.
    pub(super) fn takes(&self, read: Span, is_hit: bool) -> bool {
        match &self.pattern {
            AccessPattern::SequentialReads(SequentialReads { next, is_together, .. }) => {
                let (slack, late) = if *is_together { (SLACK, BEHIND) } else { (loose(read), 0) };
                let is_expected = *is_together && is_hit || read.start + late >= *next;
                is_expected && read.start <= next + slack
            }
            AccessPattern::StridedReads(strides) => {
                strides.strides_to(read, self.is_believed).is_some()
            }
        }
    }

    /// Takes note of a read that it [`takes`](Self::takes). Up to `until` reads have had what lies behind it: the kernel
    /// sends several at once, which overtake each other.
    pub(super) fn advance(&mut self, read: Span, until: u64) {
        self.bytes += read.len();
        match &mut self.pattern {
            AccessPattern::SequentialReads(sequential) => {
                sequential.followed += u32::from(read.end > sequential.next);
                sequential.next = sequential.next.max(read.end);
                self.is_believed |= sequential.go_on(until);
            }
            AccessPattern::StridedReads(strides) => {
                strides.advance(read, self.is_believed);
                self.is_believed |= strides.count > 2;
            }
        }
    }

    /// What lies so far behind its reads that none is expected there any more.
    pub(super) fn behind(&self) -> Span {
        match &self.pattern {
            AccessPattern::SequentialReads(SequentialReads { next, .. }) => {
                Span::new(0, next.saturating_sub(BEHIND))
            }
            AccessPattern::StridedReads(strides) => strides.behind(),
        }
    }
}

impl SequentialReads {
    /// The pattern of reads that have had `span`; `is_together` if several readers read it together.
    fn over(span: Span, is_together: bool) -> AccessPattern {
        let (began, next) = (span.start, span.end);
        let reads = Self { began, next, reached: next, followed: 1, is_together };
        AccessPattern::SequentialReads(reads)
    }

    /// Reads have had what lies before `until`, too. Whether that shows that they go on.
    fn go_on(&mut self, until: u64) -> bool {
        self.followed += u32::from(until > self.next);
        self.next = self.next.max(until);
        self.followed > 1
    }
}

impl StridedReads {
    /// How many strides `read` lies behind the last; `Some(0)` is a part of that one.
    fn strides_to(&self, read: Span, is_believed: bool) -> Option<u64> {
        let (distance, stride) =
            (i128::from(read.start) - i128::from(self.last.start), self.stride());
        if stride == 0 {
            return None;
        }
        let off = i128::from(tolerance(self.length));
        if (0..i128::from(self.length) + off).contains(&distance) && read.end <= self.ends_by() {
            return Some(0);
        }
        // To the nearest.
        let count = (2 * distance + stride) / (2 * stride);
        let most = if is_believed { SKIPPED_MAX } else { 1 };
        let fits = (1..=most).contains(&count) && (distance - count * stride).abs() <= off;
        fits.then_some(count as u64)
    }

    fn ends_by(&self) -> u64 {
        self.last.start.saturating_add(self.length + tolerance(self.length))
    }

    fn advance(&mut self, read: Span, is_believed: bool) {
        let Some(count) = self.strides_to(read, is_believed) else { return };
        self.length = self.length.max(read.len());
        if count == 0 {
            return;
        }
        self.is_exact &= self.start_of(self.count + count) == i128::from(read.start);
        self.count += count;
        self.asked = self.asked.max(self.count);
        self.last = read;
        self.whole = (self.whole.0 + 1, self.whole.1 + read.len());
    }

    /// From the start of one to that of the next, on average.
    fn stride(&self) -> i128 {
        (i128::from(self.last.start) - i128::from(self.first)) / i128::from(self.count)
    }

    fn start_of(&self, number: u64) -> i128 {
        let all = i128::from(self.last.start) - i128::from(self.first);
        let more = i128::from(number) - i128::from(self.count);
        i128::from(self.last.start) + all * more / i128::from(self.count)
    }

    /// The bytes of read number `number`; `None` if they are not in the file.
    pub(super) fn place(&self, number: u64, size: u64) -> Option<Span> {
        let start = self.start_of(number);
        if start < 0 || start >= i128::from(size) {
            return None;
        }
        let span = match self.is_exact {
            true => Span::new(start as u64, start as u64 + self.length),
            false => self.pages_about(start, number),
        };
        let span = Span { end: span.end.min(size), ..span };
        (span.start < span.end).then_some(span)
    }

    /// The pages that a record about `start` may have, where records begin somewhere in a page: as many as one has on
    /// average, from one that may be anywhere in the first, and more the farther it is.
    fn pages_about(&self, start: i128, number: u64) -> Span {
        let (count, strides) =
            (i128::from(self.count), i128::from(number.saturating_sub(self.count)));
        let margin = i128::from(PAGE / 4) * strides.min(2 * count) / count;
        let page = |at: i128| (at.max(0) as u64) / PAGE * PAGE;
        let end = start + i128::from(self.whole.1 / self.whole.0.max(1));
        Span::new(page(start - margin), page(end + margin + i128::from(PAGE) - 1))
    }

    fn behind(&self) -> Span {
        let past = self.start_of(self.count.saturating_sub(4)).clamp(0, u64::MAX.into()) as u64;
        match self.stride() > 0 {
            true => Span::new(0, past),
            false => Span::new(past.saturating_add(self.length + PAGE), u64::MAX),
        }
    }
}
