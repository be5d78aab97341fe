//! The latest reads of a file that belong to no stream, among which streams begin.
//!
//! Three things are looked for: a read that begins where an earlier one ended; three reads at one distance from each
//! other, forwards or backwards; and a piece of the file of which half has been read, in whatever order. Reads at
//! random places are likely to look like the first or the second now and then: a stream is believed only when more of
//! its kind follow.
//!
//! Costs for each read that continues no stream: it is compared with [`READS_MAX`] reads, and half of all pairs of these
//! with it (some 500 comparisons of numbers). Nothing is allocated once a file has so many reads.

use sheen_types::PAGE_BYTES as PAGE;

use super::span::Span;

/// Reads that are remembered at most: of each reader of strides two before the third shows its stride.
const READS_MAX: usize = 32;
/// What may be left out by reads that go on where another ended: 8 pages, as in Lustre, if they are so long.
const LOOSE: u64 = 8 * PAGE;

/// Reads that belong to no stream, and what of the file was read lately.
#[derive(Default)]
pub(super) struct Scattered {
    /// The newest is the last.
    reads: Vec<Span>,
    pieces: Pieces,
}

/// How far from its place a read may be that is one of several at a fixed distance. The kernel asks for whole pages, and
/// leaves out a first page that it has: records of any length begin up to two pages beside their place.
pub(super) fn tolerance(length: u64) -> u64 {
    (2 * PAGE).min(length / 4)
}

/// What may lie between the end of a read and `read`, which goes on there.
pub(super) fn loose(read: Span) -> u64 {
    LOOSE.min(read.len())
}

impl Scattered {
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Remembers a read.
    pub(super) fn note(&mut self, read: Span) {
        if self.reads.len() >= READS_MAX {
            self.reads.remove(0);
        }
        self.reads.push(read);
    }

    /// Forgets the read that ended where this one begins, and answers it.
    pub(super) fn take_continued(&mut self, read: Span) -> Option<Span> {
        let loose = loose(read);
        let is_before = |before: &Span| (before.end..=before.end + loose).contains(&read.start);
        let at = self.reads.iter().rposition(is_before)?;
        Some(self.reads.remove(at))
    }

    /// Forgets two reads of about this one's length at the same distance from each other as the later of them from
    /// this one, and answers the earlier and whether the distances are the same to the byte.
    pub(super) fn take_progression(&mut self, read: Span) -> Option<(Span, bool)> {
        let (first, second) = self.progression(read)?;
        let (early, late) = (self.reads[first], self.reads[second]);
        self.reads.remove(second);
        self.reads.remove(first);
        Some((early, off_place(early, late, read) == 0))
    }

    /// Where these are in the list, the earlier first.
    fn progression(&self, read: Span) -> Option<(usize, usize)> {
        let is_alike =
            |other: &Span| other.len() <= 2 * read.len() && read.len() <= 2 * other.len();
        let most = tolerance(read.len());
        (1..self.reads.len()).rev().find_map(|second| {
            let late = self.reads[second];
            if !is_alike(&late) || late.start == read.start {
                return None;
            }
            let fits = |early: &Span| off_place(*early, late, read) <= most && is_alike(early);
            let first = self.reads[..second].iter().rposition(fits)?;
            Some((first, second))
        })
    }

    /// Counts a read. Answers the piece in which it begins if most of that has been read by now, and little of the
    /// next: up to the last byte that was.
    pub(super) fn mostly_read(&mut self, read: Span) -> Option<Span> {
        self.pieces.note(read)
    }

    /// The piece of that beginning is no news any more.
    pub(super) fn follow_piece(&mut self, start: u64) {
        let of = |piece: &&mut Piece| piece.number == start / PIECE;
        if let Some(piece) = self.pieces.0.iter_mut().find(of) {
            piece.is_followed = true;
        }
    }
}

/// How far `last` is from its place behind the other two.
pub(super) fn off_place(first: Span, second: Span, last: Span) -> u64 {
    let sum = u128::from(first.start) + u128::from(last.start);
    u64::try_from(sum.abs_diff(2 * u128::from(second.start))).unwrap_or(u64::MAX)
}

/// Bytes of a piece.
const PIECE: u64 = 1 << 20;
/// Pieces that are remembered at most.
const PIECES_MAX: usize = 16;
/// Bytes of which so many were read is read by all of its readers together: more than one that reads every other
/// record and asks for whole pages.
const PIECE_BYTES_MIN: u64 = PIECE / 4 * 3;
/// One large read is no pattern.
const PIECE_READS_MIN: u32 = 4;

/// Pieces of a file that are being read, those read last at the end.
#[derive(Default)]
struct Pieces(Vec<Piece>);

struct Piece {
    number: u64,
    bytes: u64,
    reads: u32,
    /// Where the last byte ends that was read.
    end: u64,
    is_followed: bool,
}

impl Pieces {
    fn note(&mut self, read: Span) -> Option<Span> {
        let number = read.start / PIECE;
        let mut piece = self.take(number);
        piece.bytes += read.len().min(PIECE);
        piece.reads += 1;
        piece.end = piece.end.max(read.end);
        let is_mostly_read =
            piece.bytes >= PIECE_BYTES_MIN && piece.reads >= PIECE_READS_MIN && !piece.is_followed;
        let span = Span::new(number * PIECE, piece.end);
        self.0.push(piece);
        (is_mostly_read && !self.is_begun(number + 1)).then_some(span)
    }

    fn take(&mut self, number: u64) -> Piece {
        match self.0.iter().rposition(|piece| piece.number == number) {
            Some(at) => self.0.remove(at),
            None => {
                if self.0.len() >= PIECES_MAX {
                    self.0.remove(0);
                }
                Piece { number, bytes: 0, reads: 0, end: 0, is_followed: false }
            }
        }
    }

    /// Whether a quarter has been read.
    fn is_begun(&self, number: u64) -> bool {
        self.0.iter().any(|piece| piece.number == number && piece.bytes >= PIECE / 4)
    }
}
