//! The arithmetic of RAID-0.

use sheen_types::Extent;

/// How bytes go round over objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raid0 {
    stripe_size: u64,
    stripe_count: u32,
}

/// A run of bytes that lies in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which object, as an index into the stripes.
    pub stripe: u32,
    /// Where the run begins in the file.
    pub file_offset: u64,
    /// Where it begins in the object.
    pub object_offset: u64,
    /// Its bytes, at least 1.
    pub length: u64,
}

impl Raid0 {
    /// Everything in one object.
    pub const WHOLE: Self = Self { stripe_size: 1 << 63, stripe_count: 1 };

    /// `stripe_size` bytes on each of `stripe_count` objects in turn; `None` if either is zero.
    #[must_use]
    pub fn new(stripe_size: u32, stripe_count: u32) -> Option<Self> {
        (stripe_size > 0 && stripe_count > 0)
            .then_some(Self { stripe_size: stripe_size.into(), stripe_count })
    }

    /// Bytes of one stripe.
    #[must_use]
    pub fn stripe_size(&self) -> u64 {
        self.stripe_size
    }

    /// Objects.
    #[must_use]
    pub fn stripe_count(&self) -> u32 {
        self.stripe_count
    }

    /// Bytes of one round over all objects.
    fn width(&self) -> u64 {
        self.stripe_size * u64::from(self.stripe_count)
    }

    /// Where a stripe begins within a round.
    fn start_in_round(&self, stripe: u32) -> u64 {
        u64::from(stripe) * self.stripe_size
    }

    /// The object that holds byte `offset` of the file, and where in the object.
    #[must_use]
    pub fn locate(&self, offset: u64) -> (u32, u64) {
        let (round, within) = (offset / self.width(), offset % self.width());
        let stripe = (within / self.stripe_size) as u32;
        (stripe, round * self.stripe_size + within % self.stripe_size)
    }

    /// Where byte `object_offset` of the object of `stripe` is in the file; saturates.
    #[must_use]
    pub fn file_offset(&self, stripe: u32, object_offset: u64) -> u64 {
        let (round, within) = (object_offset / self.stripe_size, object_offset % self.stripe_size);
        round.saturating_mul(self.width()).saturating_add(self.start_in_round(stripe) + within)
    }

    /// The runs of `length` bytes from `offset`, in file order. With one object all is one run.
    #[must_use]
    pub fn pieces(&self, offset: u64, length: u64) -> Pieces {
        let end = offset.saturating_add(length);
        Pieces { raid0: *self, next: offset, end }
    }

    /// The bytes of the object of `stripe` that are in `extent` of the file, as one extent from the
    /// first to the last; `None` if it has none.
    #[must_use]
    pub fn object_extent(&self, stripe: u32, extent: Extent) -> Option<Extent> {
        let start = self.first_at_or_behind(stripe, extent.start)?;
        let end = match extent.end {
            Extent::EOF => Extent::EOF,
            end => self.bytes_before(stripe, end.saturating_add(1)).checked_sub(1)?,
        };
        (start <= end).then_some(Extent { start, end })
    }

    /// The smallest extent of the file that holds all bytes of `extent` of an object. (Between them
    /// lie bytes of other objects.)
    #[must_use]
    pub fn file_extent(&self, stripe: u32, extent: Extent) -> Extent {
        let end = match extent.end {
            Extent::EOF => Extent::EOF,
            end => self.file_offset(stripe, end),
        };
        Extent { start: self.file_offset(stripe, extent.start), end }
    }

    /// Size of the file that an object of `object_size` bytes proves: the end of its last byte in
    /// the file. The file's size is the largest of all its objects'. Saturates.
    #[must_use]
    pub fn file_size(&self, stripe: u32, object_size: u64) -> u64 {
        match object_size.checked_sub(1) {
            None => 0,
            Some(last) => self.file_offset(stripe, last).saturating_add(1),
        }
    }

    /// Size of the object of `stripe` when the file is cut at `file_size`.
    #[must_use]
    pub fn object_size(&self, stripe: u32, file_size: u64) -> u64 {
        self.bytes_before(stripe, file_size)
    }

    /// Object bytes of `stripe` that lie before `offset` of the file.
    fn bytes_before(&self, stripe: u32, offset: u64) -> u64 {
        let (round, within) = (offset / self.width(), offset % self.width());
        let partial = within.saturating_sub(self.start_in_round(stripe)).min(self.stripe_size);
        round * self.stripe_size + partial
    }

    /// The object's first byte that lies at or behind `offset` of the file; `None` if that is past
    /// the end of the number line.
    fn first_at_or_behind(&self, stripe: u32, offset: u64) -> Option<u64> {
        let object_offset = self.bytes_before(stripe, offset);
        let round = object_offset / self.stripe_size;
        round.checked_mul(self.width())?.checked_add(self.start_in_round(stripe))?;
        Some(object_offset)
    }
}

/// Runs of bytes, in file order.
#[derive(Clone, Debug)]
pub struct Pieces {
    raid0: Raid0,
    next: u64,
    end: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let file_offset = self.next;
        let left = self.end.checked_sub(file_offset).filter(|left| *left > 0)?;
        let (stripe, object_offset) = self.raid0.locate(file_offset);
        let room = match self.raid0.stripe_count {
            1 => u64::MAX,
            _ => self.raid0.stripe_size - object_offset % self.raid0.stripe_size,
        };
        let length = left.min(room);
        self.next += length;
        Some(Piece { stripe, file_offset, object_offset, length })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raid0() -> impl Strategy<Value = Raid0> {
        (1u32..=64, 1u32..=9).prop_map(|(units, count)| Raid0::new(units * 65536, count).unwrap())
    }

    /// Offsets that often hit a boundary of the layout exactly, or one beside it.
    fn offset() -> impl Strategy<Value = u64> {
        prop_oneof![
            0u64..1 << 40,
            (0u64..1 << 20, -1i64..=1)
                .prop_map(|(unit, by)| (unit << 16).saturating_add_signed(by)),
        ]
    }

    proptest! {
        #[test]
        fn a_byte_is_where_it_says(raid0 in raid0(), offset in offset()) {
            let (stripe, object_offset) = raid0.locate(offset);
            prop_assert!(stripe < raid0.stripe_count());
            prop_assert_eq!(raid0.file_offset(stripe, object_offset), offset);
        }

        #[test]
        fn pieces_cover_every_byte_once(raid0 in raid0(), start in offset(), length in 0u64..1 << 24) {
            let mut at = start;
            for piece in raid0.pieces(start, length) {
                prop_assert_eq!(piece.file_offset, at);
                prop_assert_eq!(raid0.locate(at), (piece.stripe, piece.object_offset));
                let last = piece.file_offset + piece.length - 1;
                prop_assert_eq!(
                    raid0.locate(last),
                    (piece.stripe, piece.object_offset + piece.length - 1)
                );
                at += piece.length;
            }
            prop_assert_eq!(at, start + length);
        }

        #[test]
        fn an_object_extent_is_what_its_pieces_span(
            raid0 in raid0(), start in offset(), length in 1u64..1 << 24
        ) {
            let extent = Extent::of_length(start, length).unwrap();
            for stripe in 0..raid0.stripe_count() {
                let mine = raid0.pieces(start, length).filter(|piece| piece.stripe == stripe);
                let span = mine.fold(None, |span: Option<Extent>, piece| {
                    let end = piece.object_offset + piece.length - 1;
                    Some(Extent { start: span.map_or(piece.object_offset, |span| span.start), end })
                });
                prop_assert_eq!(raid0.object_extent(stripe, extent), span);
            }
        }

        #[test]
        fn sizes_agree(raid0 in raid0(), size in offset()) {
            let stripes = 0..raid0.stripe_count();
            let largest = stripes.clone().map(|stripe| {
                raid0.file_size(stripe, raid0.object_size(stripe, size))
            }).max();
            prop_assert_eq!(largest, Some(size));
            let total: u64 = stripes.map(|stripe| raid0.object_size(stripe, size)).sum();
            prop_assert_eq!(total, size);
        }

        #[test]
        fn a_file_extent_holds_its_object_extent(
            raid0 in raid0(), start in offset(), length in 1u64..1 << 24, stripe in 0u32..9
        ) {
            let stripe = stripe % raid0.stripe_count();
            let extent = Extent::of_length(start, length).unwrap();
            let in_file = raid0.file_extent(stripe, extent);
            prop_assert_eq!(raid0.object_extent(stripe, in_file), Some(extent));
        }
    }

    #[test]
    fn nothing_overflows_at_the_end_of_the_number_line() {
        let raid0 = Raid0::new(1 << 20, 4).unwrap();
        assert_eq!(raid0.object_extent(2, Extent::ALL), Some(Extent::ALL));
        assert_eq!(raid0.file_extent(2, Extent { start: 0, end: u64::MAX - 1 }).end, u64::MAX);
        assert_eq!(raid0.file_size(3, u64::MAX), u64::MAX);
        assert!(raid0.object_size(3, u64::MAX) > 0);
        let whole = raid0.pieces(u64::MAX - 10, 100).map(|piece| piece.length).sum::<u64>();
        assert_eq!(whole, 10);
        let tail = Extent { start: u64::MAX - 5, end: u64::MAX - 1 };
        assert_eq!(raid0.object_extent(0, tail), None);
    }

    #[test]
    fn the_sizes_of_a_known_file() {
        let raid0 = Raid0::new(1 << 20, 4).unwrap();
        assert_eq!(raid0.file_size(2, 1), (2 << 20) + 1);
        assert_eq!(raid0.file_size(0, 1 << 20), 1 << 20);
        assert_eq!(raid0.object_size(1, 5 << 20), 1 << 20);
        assert_eq!(raid0.object_size(0, (4 << 20) + 7), (1 << 20) + 7);
        assert_eq!(Raid0::new(0, 1), None);
    }
}
