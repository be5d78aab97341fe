//! Tests of the arithmetic over components.

use proptest::prelude::*;
use sheen_types::Fid;

use super::*;

const MIB: u64 = 1 << 20;

fn striped(stripes: u32) -> Body {
    let stripe = |ost| Stripe { ost, object: Fid::new(0x1_0000_0000, ost + 1) };
    let raid0 = Raid0::new(65536, stripes).unwrap();
    Body::Striped { raid0, stripes: (0..stripes).map(stripe).collect() }
}

/// Data on the MDT, then two stripes, then three, then nothing yet.
fn layout() -> Layout {
    let extent = |start, end| Extent { start: start * MIB, end: end * MIB - 1 };
    let rest = Extent { start: 8 * MIB, end: Extent::EOF };
    Layout::new(
        5,
        [
            (1, extent(0, 1), Body::Mdt),
            (2, extent(1, 4), striped(2)),
            (3, extent(4, 8), striped(3)),
            (4, rest, Body::Absent),
        ],
    )
    .unwrap()
}

#[test]
fn what_is_absent_and_what_is_kept_is_known() {
    let layout = layout();
    assert!(!layout.lacks_objects(Extent { start: 0, end: 8 * MIB - 1 }));
    assert!(layout.lacks_objects(Extent { start: 0, end: 8 * MIB }));
    assert!(layout.lacks_objects(Extent { start: 9 * MIB, end: 9 * MIB }));
    assert_eq!(layout.room(8 * MIB), Extent::EOF - 8 * MIB + 1);
    let grown = layout.components.iter().map(|part| match part.is_absent() {
        true => (part.id, part.extent, striped(1)),
        false => (part.id, part.extent, part.body.clone()),
    });
    let grown = Layout::new(6, grown).unwrap();
    assert!(grown.keeps(&layout) && !layout.keeps(&grown));
    let raid0 = Raid0::new(65536, 1).unwrap();
    let stripes = [Stripe { ost: 0, object: Fid::new(0x1_0000_0000, 1) }];
    let short = Layout::new(7, [(1, Extent { start: 0, end: MIB - 1 }, Body::Mdt)]).unwrap();
    assert_eq!([0, MIB - 1, MIB, 9 * MIB].map(|at| short.room(at)), [MIB, 1, 0, 0]);
    let other = Layout::plain(1, raid0, stripes.into());
    assert!(!other.keeps(&layout) && other.keeps(&other));
}

#[test]
fn a_cut_goes_to_the_components_from_its_own_on() {
    let layout = layout();
    let cut = |size| layout.objects().map(|(it, _)| it.object_size(size)).collect::<Vec<_>>();
    assert_eq!(cut(0), [Some(0); 6]);
    let on_mdt = MIB - 1;
    assert_eq!(cut(on_mdt), [Some(on_mdt), Some(0), Some(0), Some(0), Some(0), Some(0)]);
    assert_eq!(cut(MIB), [Some(MIB), Some(0), Some(0), Some(0), Some(0), Some(0)]);
    let half = MIB / 2;
    assert_eq!(cut(MIB + 1), [None, Some(half + 1), Some(half), Some(0), Some(0), Some(0)]);
    assert_eq!(cut(9 * MIB), [None; 6]);
}

#[test]
fn a_lock_to_the_end_of_a_component_goes_to_the_end_of_the_object() {
    let layout = layout();
    let (first, _) = layout.objects().nth(1).unwrap();
    assert_eq!(first.lock_extent(Extent::ALL), Some(Extent::ALL));
    let inside = Extent { start: MIB, end: MIB + 9 };
    let exact = Extent { start: MIB / 2, end: MIB / 2 + 9 };
    assert_eq!(first.object_extent(inside), Some(exact));
    assert_eq!(first.lock_extent(inside), Some(Extent { start: 0, ..exact }));
    assert_eq!(first.object_extent(Extent { start: 0, end: MIB - 1 }), None);
    assert_eq!(first.file_extent(Extent::ALL), Some(Extent { start: MIB, end: 4 * MIB - 1 }));
    assert_eq!((first.file_size(MIB / 2), first.file_size(MIB / 2 + 1)), (0, MIB + 1));
}

#[test]
fn bad_components_are_no_layout() {
    let all = Extent::ALL;
    assert!(Layout::new(1, []).is_none());
    assert!(Layout::new(1, [(1, Extent { start: 1, end: 2 }, Body::Absent)]).is_none());
    assert!(Layout::new(1, [(1, all, Body::Absent), (2, all, Body::Absent)]).is_none());
    let first = Extent { start: 0, end: 9 };
    let rest = Extent { start: 10, end: Extent::EOF };
    assert!(Layout::new(1, [(1, first, Body::Absent), (2, rest, Body::Mdt)]).is_none());
}

proptest! {
    #[test]
    fn pieces_cover_the_range_in_order(offset in 0u64..10 * MIB, length in 1u64..10 * MIB) {
        let layout = layout();
        let mut next = offset;
        for piece in layout.pieces(offset, length) {
            prop_assert_eq!(piece.file_offset, next);
            prop_assert!(piece.length > 0);
            next += piece.length;
            let Place::Object(index) = piece.place else {
                prop_assert!(piece.file_offset >= 8 * MIB);
                continue;
            };
            let (mapping, _) = layout.objects().nth(index).unwrap();
            prop_assert_eq!(mapping.file_offset(piece.object_offset), piece.file_offset);
            let last = piece.object_offset + piece.length - 1;
            prop_assert_eq!(mapping.file_size(last + 1), piece.file_offset + piece.length);
            let extent = Extent::of_length(piece.file_offset, piece.length).unwrap();
            let object = Extent { start: piece.object_offset, end: last };
            prop_assert_eq!(mapping.object_extent(extent), Some(object));
        }
        prop_assert_eq!(next, offset + length);
    }

    /// A file cut at any size shows that size again, by the largest of its objects.
    #[test]
    fn a_cut_is_found_again(size in 0u64..8 * MIB) {
        let sizes = layout().objects().map(|(mapping, _)| {
            mapping.file_size(mapping.object_size(size).unwrap_or(0))
        }).max().unwrap();
        prop_assert_eq!(sizes, size);
    }
}
