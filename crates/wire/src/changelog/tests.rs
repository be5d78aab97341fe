//! Sizes and offsets against the numbers that Lustre's `wiretest.c` checks, and round trips.

use super::*;

fn check(offsets: &[(&str, usize)], expected: &[(&str, usize)]) {
    for pair in expected {
        assert!(offsets.contains(pair), "{pair:?} in {offsets:?}");
    }
}

#[test]
fn layouts_are_lustres() {
    assert_eq!(ChangelogRecFixed::SIZE, 64);
    check(
        ChangelogRecFixed::OFFSETS,
        &[
            ("name_length", 0),
            ("flags", 2),
            ("kind", 4),
            ("index", 8),
            ("previous", 16),
            ("time", 24),
            ("target", 32),
            ("parent", 48),
        ],
    );
    assert_eq!(ChangelogRename::SIZE, 32);
    check(ChangelogRename::OFFSETS, &[("source", 0), ("source_parent", 16)]);
    assert_eq!(Chars::<32>::SIZE, 32, "changelog_ext_jobid");
    assert_eq!(ChangelogUidGid::SIZE, 16);
    assert_eq!(ChangelogNid::SIZE, 24);
    assert_eq!(ChangelogSetinfo::SIZE, 12);
    check(ChangelogSetinfo::OFFSETS, &[("record", 0), ("reader", 8)]);
}

fn record(flags: ChangelogFlags, extra: ChangelogExtraFlags) -> ChangelogRec {
    let has = |bit| extra.contains(bit);
    let extra = ChangelogExtra {
        flags: extra,
        owner: has(ChangelogExtraFlags::UIDGID).then_some(ChangelogUidGid { uid: 500, gid: 501 }),
        nid: has(ChangelogExtraFlags::NID)
            .then_some(ChangelogNid { nid: [1; 8], ..ChangelogNid::default() }),
        open_flags: has(ChangelogExtraFlags::OPEN).then_some(2),
        xattr: has(ChangelogExtraFlags::XATTR).then(|| Chars::new("user.a")),
    };
    let fixed = ChangelogRecFixed {
        name_length: 7,
        flags: flags.union(ChangelogFlags::VERSION),
        kind: ChangelogKind::RENAME,
        index: 12,
        previous: 3,
        time: 9 << 30,
        target: Fid::new(0x2_0000_0401, 1),
        parent: Fid::new(0x2_0000_0401, 2),
    };
    ChangelogRec {
        fixed,
        rename: flags.contains(ChangelogFlags::RENAME).then(ChangelogRename::default),
        job: flags.contains(ChangelogFlags::JOBID).then(|| Chars::new("cp.0")),
        extra: flags.contains(ChangelogFlags::EXTRA_FLAGS).then_some(extra),
        names: Bytes::from_static(b"new\0old"),
        padding: Bytes::from_static(&[0]),
    }
}

#[test]
fn every_combination_comes_back_and_none_comes_back_cut() {
    for flags in 0..8u16 {
        for extra in 0..16u64 {
            let value = record(ChangelogFlags(flags << 13), ChangelogExtraFlags(extra));
            let mut writer = Writer::default();
            value.encode(&mut writer);
            let bytes = writer.into_bytes();
            assert_eq!(ChangelogRec::decode(&bytes), Ok(value.clone()));
            assert_eq!(value.split_names(), (&b"new"[..], Some(&b"old"[..])));
            let whole = bytes.len() - value.padding.len();
            for length in 0..whole {
                assert!(ChangelogRec::decode(&bytes.slice(..length)).is_err(), "{length}");
            }
            let mut long = bytes.to_vec();
            long.extend_from_slice(&[0; 8]);
            assert!(ChangelogRec::decode(&long.into()).is_err());
        }
    }
}

#[test]
fn a_creation_as_lustre_writes_it() {
    let bytes: Vec<u8> = [
        &[1, 0][..],                  // cr_namelen
        &[0x00, 0xd0],                // CLF_VERSION | CLF_JOBID | CLF_EXTRA_FLAGS
        &[2, 0, 0, 0],                // CL_CREATE
        &[5, 0, 0, 0, 0, 0, 0, 0],    // cr_index
        &[0; 8],                      // cr_prev
        &[0, 0, 0, 0x40, 1, 0, 0, 0], // cr_time: 5 seconds
        &[1, 4, 0, 0, 2, 0, 0, 0],    // cr_tfid: sequence
        &[7, 0, 0, 0, 0, 0, 0, 0],    // number, version
        &[7, 0, 0, 0, 2, 0, 0, 0],    // cr_pfid: sequence
        &[1, 0, 0, 0, 0, 0, 0, 0],    // number, version
        b"touch.0\0\0\0\0\0\0\0\0\0", // cr_jobid
        &[0; 16],                     // and its rest
        &[1, 0, 0, 0, 0, 0, 0, 0],    // CLFE_UIDGID
        &[0xf4, 1, 0, 0, 0, 0, 0, 0], // cr_uid
        &[0xf5, 1, 0, 0, 0, 0, 0, 0], // cr_gid
        b"f\0\0\0\0\0\0\0",           // the name, filled up
    ]
    .concat();
    let record = ChangelogRec::decode(&bytes.into()).expect("a record");
    assert_eq!(record.fixed.kind, ChangelogKind::CREATE);
    assert_eq!(record.fixed.time >> 30, 5);
    assert_eq!(record.fixed.target, Fid::new(0x2_0000_0401, 7));
    assert_eq!(record.fixed.parent, Fid::new(0x2_0000_0007, 1));
    assert_eq!(record.job.as_ref().map(Chars::to_text).as_deref(), Some("touch.0"));
    let extra = record.extra.as_ref().expect("more flags");
    assert_eq!(extra.owner, Some(ChangelogUidGid { uid: 500, gid: 501 }));
    assert_eq!(record.split_names(), (&b"f"[..], None));
}
