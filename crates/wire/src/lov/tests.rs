//! Sizes and offsets against the numbers that Lustre's `wiretest.c` checks.

use super::*;

fn offset(offsets: &[(&str, usize)], field: &str) -> usize {
    offsets.iter().find(|(name, _)| *name == field).map(|(_, at)| *at).expect("a field")
}

#[test]
fn lov_mds_md_v1_layout() {
    assert_eq!(LovMdHeader::SIZE, 32);
    for (field, at) in [
        ("magic", 0),
        ("pattern", 4),
        ("oi", 8),
        ("stripe_size", 24),
        ("stripe_count", 28),
        ("layout_gen", 30),
    ] {
        assert_eq!(offset(LovMdHeader::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn lov_ost_data_v1_layout() {
    assert_eq!(LovOstData::SIZE, 24);
    for (field, at) in [("oi", 0), ("ost_gen", 16), ("ost_idx", 20)] {
        assert_eq!(offset(LovOstData::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn lov_comp_md_v1_layout() {
    assert_eq!(LovCompHeader::SIZE, 32);
    for (field, at) in [
        ("magic", 0),
        ("size", 4),
        ("layout_gen", 8),
        ("flags", 12),
        ("entry_count", 14),
        ("mirror_count", 16),
        ("ec_count", 18),
        ("padding3", 19),
        ("padding1", 20),
        ("padding2", 24),
    ] {
        assert_eq!(offset(LovCompHeader::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn lov_comp_md_entry_v1_layout() {
    assert_eq!(LovCompEntry::SIZE, 48);
    for (field, at) in [
        ("id", 0),
        ("flags", 4),
        ("start", 8),
        ("offset", 24),
        ("size", 28),
        ("layout_gen", 32),
        ("time_and_id", 36),
        ("dstripe_count", 44),
        ("cstripe_count", 45),
        ("compr_type", 46),
    ] {
        assert_eq!(offset(LovCompEntry::OFFSETS, field), at, "{field}");
    }
}

fn plain(magic: LovMagic, stripes: u32) -> LovMd {
    let stripe =
        |index| LovOstData { oi: OstId::of_id(10 + u64::from(index)), ost_gen: 0, ost_idx: index };
    LovMd {
        header: LovMdHeader {
            magic,
            pattern: LovPattern::RAID0,
            oi: OstId::of_file(sheen_types::Fid::new(0x2_0000_0401, 3)),
            stripe_size: 1 << 20,
            stripe_count: stripes as u16,
            layout_gen: 1,
        },
        pool: PoolName::default(),
        stripes: (0..stripes).map(stripe).collect(),
    }
}

#[test]
fn a_plain_layout_is_header_and_stripes() {
    let layout = LovEa::Plain(plain(LovMagic::V1, 2));
    let bytes = layout.encode();
    assert_eq!(bytes.len(), 32 + 48);
    assert_eq!(&bytes[..8], [0xd0, 0x0b, 0xd1, 0x0b, 1, 0, 0, 0]);
    assert_eq!(&bytes[24..32], [0, 0, 0x10, 0, 2, 0, 1, 0]);
    assert_eq!(LovEa::decode(&bytes), Ok(layout));
    let mut pooled = plain(LovMagic::V3, 1);
    pooled.pool = PoolName::new("flash").expect("short");
    let bytes = LovEa::Plain(pooled.clone()).encode();
    assert_eq!(&bytes[32..38], b"flash\0");
    assert_eq!(LovEa::decode(&bytes), Ok(LovEa::Plain(pooled)));
    assert_eq!(PoolName::new("sixteen bytes...."), None);
}

#[test]
fn a_composite_layout_computes_where_its_parts_lie() {
    let entry = |id, start, end| LovCompEntry { id, start, end, ..LovCompEntry::default() };
    let layout = LovComp {
        header: LovCompHeader { magic: LovMagic::COMP_V1, ..LovCompHeader::default() },
        components: vec![
            LovComponent { entry: entry(1, 0, 1 << 20), layout: plain(LovMagic::V1, 1) },
            LovComponent { entry: entry(2, 1 << 20, !0), layout: plain(LovMagic::V3, 4) },
        ],
    };
    let bytes = LovEa::Composite(layout.clone()).encode();
    let Ok(LovEa::Composite(read)) = LovEa::decode(&bytes) else { panic!("composite") };
    assert_eq!(read.header.size as usize, bytes.len());
    assert_eq!(read.components[0].entry.offset, 32 + 2 * 48);
    assert_eq!(read.components[1].entry.offset, 32 + 2 * 48 + 56);
    assert_eq!(read.components[1].layout, layout.components[1].layout);
    assert_eq!(LovEa::Composite(read).encode(), bytes);
}

#[test]
fn no_cut_layout_is_taken_for_a_whole_one() {
    let layout = LovComp {
        header: LovCompHeader { magic: LovMagic::COMP_V1, ..LovCompHeader::default() },
        components: vec![LovComponent {
            entry: LovCompEntry::default(),
            layout: plain(LovMagic::V1, 1),
        }],
    };
    let foreign = LovForeign { kind: 1, flags: 2, value: Bytes::from_static(b"elsewhere") };
    for layout in [LovEa::Composite(layout), LovEa::Foreign(foreign)] {
        let bytes = layout.encode();
        assert!(LovEa::decode(&bytes).is_ok());
        assert!(LovEa::decode(&[&bytes[..], &[0; 100]].concat().into()).is_ok());
        assert!(LovEa::decode(&[&bytes[..], &[1]].concat().into()).is_err());
        for length in 0..bytes.len() {
            assert!(LovEa::decode(&bytes.slice(..length)).is_err(), "{length}");
        }
    }
}

#[test]
fn a_wish_may_have_room_behind_it() {
    let mut wish = plain(LovMagic::V1, 0);
    wish.header.stripe_count = 2;
    let bytes = LovEa::Plain(wish.clone()).encode();
    for room in [0, 7, 48, 416] {
        let bytes = [&bytes[..], &vec![0; room]].concat();
        let Ok(LovEa::Plain(read)) = LovEa::decode(&bytes.into()) else { panic!("{room}") };
        let listed = if room == 48 { 2 } else { 0 };
        assert_eq!((&read.header, read.stripes.len()), (&wish.header, listed), "{room}");
    }
    let mut all_on_ost_0 = plain(LovMagic::SPECIFIC, 1);
    all_on_ost_0.stripes = vec![LovOstData::default()];
    let bytes = [&LovEa::Plain(all_on_ost_0.clone()).encode()[..], &[0; 30]].concat();
    assert_eq!(LovEa::decode(&bytes.into()), Ok(LovEa::Plain(all_on_ost_0)));
}

#[test]
fn a_part_of_a_stripe_is_no_layout() {
    let bytes = LovEa::Plain(plain(LovMagic::V3, 3)).encode();
    for length in 0..bytes.len() {
        let cut = LovEa::decode(&bytes.slice(..length));
        assert!(cut.is_err() || (length - 48) % 24 == 0, "{length}: {cut:?}");
    }
}
