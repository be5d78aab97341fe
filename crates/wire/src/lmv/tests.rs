//! Sizes and offsets against the numbers that Lustre's `wiretest.c` checks.

use super::*;

fn offset(offsets: &[(&str, usize)], field: &str) -> usize {
    offsets.iter().find(|(name, _)| *name == field).map(|(_, at)| *at).expect("a field")
}

#[test]
fn lmv_mds_md_v1_layout() {
    assert_eq!(LmvMdsMd::SIZE, 56);
    for (field, at) in [
        ("magic", 0),
        ("stripe_count", 4),
        ("master_mdt_index", 8),
        ("hash_type", 12),
        ("layout_version", 16),
        ("migrate_offset", 20),
        ("migrate_hash", 24),
        ("padding2", 28),
        ("padding3", 32),
    ] {
        assert_eq!(offset(LmvMdsMd::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn lmv_user_mds_data_layout() {
    assert_eq!(LmvUserMdsData::SIZE, 24);
    for (field, at) in [("fid", 0), ("padding", 16), ("mds", 20)] {
        assert_eq!(offset(LmvUserMdsData::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn a_wish_has_48_bytes_and_its_mdts() {
    assert_eq!(LmvUserMd::SIZE, 48);
    assert_eq!(offset(LmvUserMd::OFFSETS, "pool"), 32);
}

#[test]
fn each_kind_comes_back() {
    let header = LmvMdsMd { magic: LmvMagic::V1, stripe_count: 2, ..LmvMdsMd::default() };
    let fids = vec![Fid::new(0x2_0000_0401, 1), Fid::new(0x2_4000_0401, 1)];
    let wish = LmvUserMd { magic: LmvMagic::USER, stripe_count: -1, ..LmvUserMd::default() };
    let listed = LmvUserMd { magic: LmvMagic::STRIPE, stripe_count: 1, ..wish.clone() };
    let objects = vec![LmvUserMdsData { mds: 1, ..LmvUserMdsData::default() }];
    let stripe = LmvMdsMd { magic: LmvMagic::STRIPE, ..header.clone() };
    for value in [
        LmvEa::Stripes { header, fids },
        LmvEa::Stripes { header: stripe, fids: vec![] },
        LmvEa::User { header: wish, objects: vec![] },
        LmvEa::User { header: listed, objects },
        LmvEa::Foreign { kind: 1, flags: 0, value: Bytes::from_static(b"daos") },
    ] {
        let mut bytes = value.encode().to_vec();
        assert_eq!(LmvEa::decode(&bytes.clone().into()), Ok(value));
        bytes.push(1);
        assert!(LmvEa::decode(&bytes.into()).is_err());
    }
}

#[test]
fn a_default_may_have_room_behind_it() {
    let header = LmvUserMd { magic: LmvMagic::USER, ..LmvUserMd::default() };
    let wish = LmvEa::User { header, objects: vec![] };
    let mut bytes = wish.encode().to_vec();
    bytes.resize(56, 0);
    assert_eq!(LmvEa::decode(&bytes.into()), Ok(wish));
}
