//! Sizes and offsets against the numbers that Lustre's `wiretest.c` checks.

use super::*;
use crate::codec::Wire;

fn offset(offsets: &[(&str, usize)], field: &str) -> usize {
    offsets.iter().find(|(name, _)| *name == field).map(|(_, at)| *at).expect("a field")
}

#[test]
fn obdo_layout() {
    assert_eq!(Obdo::SIZE, 208);
    for (field, at) in [
        ("valid", 0),
        ("oi", 8),
        ("parent_seq", 24),
        ("size", 32),
        ("mtime", 40),
        ("atime", 48),
        ("ctime", 56),
        ("blocks", 64),
        ("grant", 72),
        ("blksize", 80),
        ("mode", 84),
        ("uid", 88),
        ("gid", 92),
        ("flags", 96),
        ("nlink", 100),
        ("parent_oid", 104),
        ("misc", 108),
        ("ioepoch", 112),
        ("stripe_idx", 120),
        ("parent_ver", 124),
        ("handle", 128),
        ("layout", 136),
        ("layout_version", 164),
        ("uid_h", 168),
        ("gid_h", 172),
        ("data_version", 176),
        ("projid", 184),
        ("padding_4", 188),
        ("padding_5", 192),
        ("padding_6", 200),
    ] {
        assert_eq!(offset(Obdo::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn ost_body_layout() {
    assert_eq!(OstBody::SIZE, 208);
    assert_eq!(offset(OstBody::OFFSETS, "oa"), 0);
}

#[test]
fn obd_ioobj_layout() {
    assert_eq!(ObdIoobj::SIZE, 24);
    for (field, at) in [("oid", 0), ("max_brw", 16), ("bufcnt", 20)] {
        assert_eq!(offset(ObdIoobj::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn niobuf_remote_layout() {
    assert_eq!(NiobufRemote::SIZE, 16);
    for (field, at) in [("offset", 0), ("len", 8), ("flags", 12)] {
        assert_eq!(offset(NiobufRemote::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn ost_lvb_layout() {
    assert_eq!(OstLvb::SIZE, 56);
    for (field, at) in [
        ("size", 0),
        ("mtime", 8),
        ("atime", 16),
        ("ctime", 24),
        ("blocks", 32),
        ("mtime_ns", 40),
        ("atime_ns", 44),
        ("ctime_ns", 48),
        ("padding", 52),
    ] {
        assert_eq!(offset(OstLvb::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn ost_lvb_v1_layout() {
    assert_eq!(OstLvbV1::SIZE, 40);
    for (field, at) in [("size", 0), ("mtime", 8), ("atime", 16), ("ctime", 24), ("blocks", 32)] {
        assert_eq!(offset(OstLvbV1::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn lu_ladvise_layout() {
    assert_eq!(LuLadvise::SIZE, 32);
    for (field, at) in [
        ("advice", 0),
        ("value1", 2),
        ("value2", 4),
        ("start", 8),
        ("end", 16),
        ("value3", 24),
        ("value4", 28),
    ] {
        assert_eq!(offset(LuLadvise::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn ladvise_hdr_layout() {
    assert_eq!(LadviseHdr::SIZE, 32);
    for (field, at) in
        [("magic", 0), ("count", 4), ("flags", 8), ("value1", 16), ("value2", 20), ("value3", 24)]
    {
        assert_eq!(offset(LadviseHdr::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn fiemap_layout() {
    assert_eq!(Fiemap::SIZE, 32);
    for (field, at) in [
        ("start", 0),
        ("length", 8),
        ("flags", 16),
        ("mapped_extents", 20),
        ("extent_count", 24),
        ("reserved", 28),
    ] {
        assert_eq!(offset(Fiemap::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn fiemap_extent_layout() {
    assert_eq!(FiemapExtent::SIZE, 56);
    for (field, at) in [("logical", 0), ("physical", 8), ("length", 16), ("flags", 40)] {
        assert_eq!(offset(FiemapExtent::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn ll_fiemap_info_key_layout() {
    assert_eq!(FiemapInfoKey::SIZE, 248);
    for (field, at) in [("oa", 8), ("fiemap", 216)] {
        assert_eq!(offset(FiemapInfoKey::OFFSETS, field), at, "{field}");
    }
}

#[test]
fn an_object_has_one_fid_and_back() {
    let old = OstId::of_id(0x1_0000_0007);
    let fid = old.fid(3).expect("48 bits");
    assert_eq!(fid, Fid::new(0x1_0003_0001, 7));
    assert_eq!(OstId::of_fid(fid), old);
    assert_eq!((old.seq(), old.id()), (0, 0x1_0000_0007));
    let new = OstId::of_fid(Fid::new(0x2_4000_0400, 9));
    assert_eq!(new.fid(3), Some(Fid::new(0x2_4000_0400, 9)));
    assert_eq!((new.seq(), new.id()), (0x2_4000_0400, 9));
    assert_eq!(OstId::of_resource(&new.resource()), new);
    assert_eq!(OstId::of_id(1 << 48).fid(0), None);
    let versioned = OstId { word0: 0x2_4000_0400, word1: 1 << 32 | 9 };
    assert_eq!(versioned.fid(0), None);
}

#[test]
fn a_layout_names_its_file_number_first() {
    let file = Fid::new(0x2_0000_0401, 5);
    assert_eq!(OstId::of_file(file), OstId { word0: 5, word1: 0x2_0000_0401 });
    assert_eq!(OstId::of_file(file).file(), file);
}
