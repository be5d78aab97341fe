//! Stored layouts against captured ones, and their changes.

use super::*;
use crate::captured::{
    C8_NEW, C8_REQUEST, DOM_GROWN, DOM_NEW, DOM_REQUEST, LIMIT_NEW, LIMIT_REQUEST, OVER_FULL,
    OVER_NEW, OVER_REQUEST, PFL_DEFAULT, PFL_FULL, PFL_NEW, PFL_SECOND, POOL_NEW, POOL_REQUEST,
    as_answered, bytes,
};
use crate::plan::{Defaults, KnownOsts};
use std::collections::BTreeMap;

const OURS: Defaults = Defaults { stripe_size: 4 << 20, stripe_count: 1, first: None };
const MIB: u64 = 1 << 20;

fn filled(request: &str) -> Plan {
    let known = KnownOsts { osts: &[0, 1, 2, 3], pools: &BTreeMap::new() };
    let inherited = Plan::inherited(None, None, &OURS);
    Plan::parse(&bytes(request)).unwrap().filled(&inherited, &OURS, &known)
}

fn same(stored: &Stored, captured: &str) {
    let is = LovEa::decode(&stored.encode()).unwrap();
    assert_eq!(is, LovEa::decode(&as_answered(captured)).unwrap());
    assert_eq!(stored.encode(), as_answered(captured));
}

fn object(ost: u16, seq: u64, oid: u32) -> (u16, Fid) {
    (ost, Fid::new(seq, oid))
}

#[test]
fn data_on_the_mdt_and_one_ost_as_captured() {
    let file = Fid::new(0x2_0000_0402, 0x10);
    let mut stored = Stored::new(file, &filled(DOM_REQUEST));
    same(&stored, DOM_NEW);
    assert_eq!((stored.end_on_mdt(), stored.is_on_mdt_alone()), (Some(MIB), false));
    assert!(stored.lacking(0).is_empty() && stored.lacking(MIB).is_empty());
    assert_eq!(stored.lacking(MIB + 1), [1]);
    stored.place(1, &[object(2, 0x3_0000_0401, 3)]);
    stored.changed();
    same(&stored, DOM_GROWN);
    assert_eq!(stored.objects().len(), 1);
}

#[test]
fn three_components_grow_as_captured() {
    let file = Fid::new(0x2_4000_0402, 0x142);
    let default = Plan::parse(&bytes(PFL_DEFAULT)).unwrap();
    let mut stored = Stored::new(file, &Plan::inherited(Some(default), None, &OURS));
    assert_eq!(stored.lacking(0), [0]);
    stored.place(0, &[object(1, 0x2_c000_0400, 0x50)]);
    same(&stored, PFL_NEW);
    assert_eq!(stored.lacking(20 * 4096 + 4096), [1]);
    assert_eq!(stored.striping(1).unwrap().stripe_count, 2);
    stored.place(1, &[object(2, 0x3_0000_0400, 0x50), object(3, 0x3_4000_0400, 0x50)]);
    stored.changed();
    same(&stored, PFL_SECOND);
    let all = [0x2_8000_0400, 0x2_c000_0400, 0x3_0000_0400, 0x3_4000_0400];
    let all: Vec<_> = (0..).zip(all).map(|(ost, seq)| object(ost, seq, 0x51)).collect();
    stored.place(2, &all);
    stored.changed();
    same(&stored, PFL_FULL);
    assert!(stored.lacking(u64::MAX).is_empty());
}

#[test]
fn overstriped_components_as_captured() {
    let file = Fid::new(0x2_4000_0403, 0x33b);
    let mut stored = Stored::new(file, &filled(OVER_REQUEST));
    stored.place(0, &[object(3, 0x3_4000_0400, 0xaa)]);
    same(&stored, OVER_NEW);
    let on = [1, 2, 0, 1, 2, 0].into_iter();
    let at = [(0x2_c000_0400, 0xaa), (0x3_0000_0400, 0xab), (0x2_8000_0400, 0xac)];
    let then = [(0x2_c000_0400, 0xab), (0x3_0000_0400, 0xac), (0x2_8000_0400, 0xad)];
    let objects = on.zip(at.into_iter().chain(then));
    let objects: Vec<_> = objects.map(|(ost, (seq, oid))| object(ost, seq, oid)).collect();
    stored.place(1, &objects);
    stored.changed();
    same(&stored, OVER_FULL);
}

#[test]
fn an_overstriped_file_as_captured() {
    let mut stored = Stored::new(Fid::new(0x2_0000_0402, 0x12), &filled(C8_REQUEST));
    let sequences = [0x2_8000_0401, 0x2_c000_0401, 0x3_0000_0401, 0x3_4000_0401];
    let osts = [3, 0, 1, 2, 3, 0, 1, 2].into_iter().zip([3, 4, 4, 4, 4, 5, 5, 5]);
    let objects = osts.map(|(ost, oid)| object(ost, sequences[usize::from(ost)], oid));
    stored.place(0, &objects.collect::<Vec<_>>());
    assert_eq!(stored.encode(), bytes(C8_NEW));
}

#[test]
fn a_file_of_a_pool_as_captured() {
    let fast = PoolName::new("fast").unwrap();
    let pools = BTreeMap::from([(fast, vec![0, 2])]);
    let known = KnownOsts { osts: &[0, 1, 2, 3], pools: &pools };
    let inherited = Plan::inherited(None, None, &OURS);
    let plan = Plan::parse(&bytes(POOL_REQUEST)).unwrap().filled(&inherited, &OURS, &known);
    let mut stored = Stored::new(Fid::new(0x2_4000_0403, 0x332), &plan);
    assert_eq!(stored.striping(0).unwrap().stripe_count, 2);
    stored.place(0, &[object(2, 0x3_0000_0400, 0xa5), object(0, 0x2_8000_0400, 0xa6)]);
    assert_eq!(stored.encode(), bytes(POOL_NEW));
}

#[test]
fn a_component_cut_to_the_limit_as_captured() {
    let mut plan = Plan::parse(&bytes(LIMIT_REQUEST)).unwrap();
    plan.limit_on_mdt(65536).unwrap();
    let known = KnownOsts { osts: &[0, 1, 2, 3], pools: &BTreeMap::new() };
    let plan = plan.filled(&Plan::inherited(None, None, &OURS), &OURS, &known);
    let LovEa::Composite(decoded) = LovEa::decode(&as_answered(LIMIT_NEW)).unwrap() else {
        panic!()
    };
    let file = decoded.components[0].layout.header.oi.file();
    same(&Stored::new(file, &plan), LIMIT_NEW);
}

#[test]
fn captured_layouts_are_read_and_written_unchanged() {
    for captured in [DOM_NEW, DOM_GROWN, PFL_NEW, PFL_SECOND, PFL_FULL, OVER_NEW, OVER_FULL] {
        let stored = Stored::decode(&bytes(captured)).unwrap();
        assert_eq!(stored.encode(), bytes(captured));
    }
}

#[test]
fn a_file_that_is_not_really_overstriped_does_not_say_so() {
    let request = Striping { overstriped: true, stripe_count: 2, ..Striping::default() };
    let mut stored = Stored::new(Fid::new(1, 1), &Plan::Plain(request));
    stored.place(0, &[object(0, 9, 1), object(1, 8, 1)]);
    assert!(!stored.striping(0).unwrap().overstriped);
    stored.place(0, &[object(0, 9, 1), object(0, 9, 2)]);
    assert_eq!(stored.striping(0).unwrap().pattern(), LovPattern::RAID0);
}

#[test]
fn listed_osts_are_kept_until_they_are_used() {
    let osts = vec![3, 1];
    let striping = Striping { osts: osts.clone(), stripe_count: 2, ..Striping::default() };
    let plain = Stored::new(Fid::new(1, 1), &Plan::Plain(striping.clone()));
    assert_eq!(plain.striping(0).unwrap().osts, osts);
    let one = Striping { stripe_count: 1, ..Striping::default() };
    let first = Part { start: 0, end: MIB, striping: one };
    let last = Part { start: MIB, end: END_OF_FILE, striping };
    let stored = Stored::new(Fid::new(1, 1), &Plan::Composite(vec![first, last]));
    let again = Stored::decode(&stored.encode()).unwrap();
    assert_eq!(again.striping(1).unwrap().osts, osts);
    assert!(again.objects().is_empty());
}

#[test]
fn components_come_and_go_at_the_end_only() {
    let mut stored = Stored::decode(&bytes(DOM_GROWN)).unwrap();
    let all = stored.remove(Selection::With(CompFlags::INIT)).unwrap();
    assert_eq!((all.left, all.objects.len()), (None, 1));
    for wrong in [Selection::Id(1), Selection::Id(99), Selection::Without(CompFlags::INIT)] {
        assert_eq!(stored.remove(wrong), Err(Errno::EINVAL));
    }
    let last = stored.remove(Selection::Id(2)).unwrap();
    stored = last.left.unwrap();
    assert_eq!((stored.generation(), stored.end(), last.objects.len()), (4, MIB, 1));
    let more = Plan::Composite(vec![Part {
        start: MIB,
        end: 2 * MIB,
        striping: Striping { stripe_count: 4, ..Striping::default() },
    }]);
    let file = Fid::new(0x2_0000_0402, 0x10);
    let parts = Plan::parse_more(&more.encode(), stored.end()).unwrap();
    stored.add(file, parts, &OURS).unwrap();
    assert_eq!((stored.generation(), stored.end()), (5, 2 * MIB));
    let added = stored.striping(1).unwrap();
    assert_eq!((added.stripe_size, added.stripe_count), (2 << 20, 1));
    assert_eq!(Plan::parse_more(&more.encode(), stored.end()), Err(Errno::EINVAL));
    assert!(Stored::decode(&stored.encode()).is_ok());
}

#[test]
fn selections_and_marks_are_read_as_lustre_reads_them() {
    let value = |id, flags| {
        let mut composite = LovComp::default();
        composite.header.magic = LovMagic::COMP_V1;
        let entry = LovCompEntry { id, flags, end: MIB, ..LovCompEntry::default() };
        let layout = without_objects(Fid::new(1, 1), &Striping::default());
        composite.components.push(LovComponent { entry, layout });
        LovEa::Composite(composite).encode()
    };
    let none = CompFlags::NONE;
    assert_eq!(Selection::parse(&value(7, none)), Ok(Selection::Id(7)));
    let init = CompFlags::INIT;
    assert_eq!(Selection::parse(&value(0, init)), Ok(Selection::With(init)));
    let not = Selection::parse(&value(0, CompFlags::NEG | init));
    assert_eq!(not, Ok(Selection::Without(init)));
    for (id, flags) in [(0, none), (1, init), (1 << 31, none), (0, CompFlags(1 << 20))] {
        assert_eq!(Selection::parse(&value(id, flags)), Err(Errno::EINVAL));
    }
    assert_eq!(SetFlags::parse(&value(1, init)), Err(Errno::EINVAL));
    let stored = Stored::decode(&bytes(DOM_GROWN)).unwrap();
    let set = |id, flags| {
        let mut stored = stored.clone();
        let set = SetFlags::parse(&value(id, flags))?;
        stored.set_flags(&set).map(|()| stored.generation())
    };
    assert_eq!(set(9, CompFlags::PREF_RD), Err(Errno::EINVAL));
    assert_eq!(set(1, CompFlags::PREF_RD), Err(Errno::EOPNOTSUPP));
    assert_eq!(set(1, CompFlags::STALE), Err(Errno::EUCLEAN));
    assert_eq!(set(1, CompFlags::NEG | CompFlags::PREF_RD), Ok(4));
}

#[test]
fn room_for_stripes_is_what_other_components_leave() {
    let striping = Striping { stripe_count: 2000, ..Striping::default() };
    let parts = [0, MIB].map(|start| Part {
        start,
        end: if start == 0 { MIB } else { END_OF_FILE },
        striping: striping.clone(),
    });
    let mut stored = Stored::new(Fid::new(1, 1), &Plan::Composite(parts.to_vec()));
    assert_eq!(stored.stripes_max(0), 2000);
    let many: Vec<_> = (0..2000).map(|oid| object(0, 9, oid)).collect();
    stored.place(0, &many);
    let room = stored.stripes_max(1);
    assert!((600..740).contains(&room), "{room}");
    stored.place(1, &many[..room]);
    assert!(stored.encode().len() <= XATTR_VALUE_BYTES_MAX);
}

#[test]
fn illegal_and_foreign_layouts_are_not_read() {
    let mut layout = LovComp::decode(&bytes(PFL_FULL)).unwrap();
    layout.components.remove(1);
    let hole = LovEa::Composite(layout).encode();
    assert!(matches!(Stored::decode(&hole), Err(LayoutError::Illegal(_))));
    let mut layout = LovComp::decode(&bytes(PFL_FULL)).unwrap();
    layout.header.mirror_count = 1;
    let mirrored = Stored::decode(&LovEa::Composite(layout).encode());
    assert_eq!(errno_of(&mirrored.unwrap_err()), Errno::EOPNOTSUPP);
    for end in 0..bytes(PFL_FULL).len() {
        assert!(Stored::decode(&bytes(PFL_FULL).slice(..end)).is_err());
    }
}

#[test]
fn an_exchanged_layout_belongs_to_the_other_file() {
    let mut stored = Stored::decode(&bytes(PFL_FULL)).unwrap();
    let other = Fid::new(0x2_0000_0402, 5);
    stored.give_to(other, 12);
    assert_eq!(stored.generation(), 12);
    let Kind::Composite(composite) = &stored.layout else { panic!() };
    assert!(composite.components.iter().all(|part| part.layout.header.oi.file() == other));
}

#[test]
fn a_replayed_layout_names_what_it_adds() {
    let before = Stored::decode(&bytes(PFL_SECOND)).unwrap();
    let mut marked = bytes(PFL_FULL).to_vec();
    marked[3] |= 0x10;
    let after = Stored::decode(&marked.into()).unwrap();
    assert_eq!(before.added_by(&after).len(), 4);
    assert_eq!(after.encode(), bytes(PFL_FULL));
}

/// A client says of a layout that it replays which generation it has.
#[test]
fn behind_the_last_generation_comes_the_first() {
    let last = |bytes: Bytes| {
        let mut layout = LovComp::decode(&bytes).unwrap();
        layout.header.layout_gen = u32::MAX;
        Stored::decode(&LovEa::Composite(layout).encode()).unwrap()
    };
    let mut changed = last(bytes(PFL_FULL));
    changed.changed();
    assert_eq!(changed.generation(), 1, "0 is that of no layout");
    let mut again = Stored::decode(&changed.encode()).unwrap();
    again.changed();
    assert_eq!(again.generation(), 2);
    let full = last(bytes(PFL_FULL));
    let Kind::Composite(composite) = &full.layout else { panic!() };
    let id = composite.components.last().unwrap().entry.id;
    let removed = full.remove(Selection::Id(id)).unwrap();
    assert_eq!(removed.left.map(|left| left.generation()), Some(1));
    assert_eq!(generation_after(u32::MAX), 1);
}
