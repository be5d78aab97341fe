//! Against captures of Lustre, and against what Lustre's own functions compute for a thousand names.

use sheen_types::HashSet;

use super::captured::*;
use super::*;
use crate::captured::bytes;

const HASHES: [LmvHash; 4] =
    [LmvHash::ALL_CHARS, LmvHash::FNV_1A_64, LmvHash::CRUSH, LmvHash::CRUSH2];

fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not 0")
}

fn layout(hex: &str) -> DirectoryLayout {
    let ea = LmvEa::decode(&bytes(hex)).expect("an attribute");
    DirectoryLayout::from_ea(&ea).expect("a layout")
}

/// What Lustre's clients have computed for [`names`]: a hash of the stripes, by hash, for each number of stripes.
const STRIPES_OF_NAMES: [(u32, [u64; 4]); 5] = [
    (
        2,
        [
            0x8332_19c0_f618_b2c6,
            0x3fd1_1dc5_d8b6_58de,
            0xa561_e189_540c_9774,
            0x4ab3_e90d_9c0a_5297,
        ],
    ),
    (
        3,
        [
            0x0515_54a5_5133_90de,
            0x1b8c_c156_2be2_9ccd,
            0x4a3c_8d28_7a47_e798,
            0x06c6_8ff0_ef66_9889,
        ],
    ),
    (
        7,
        [
            0x01ce_6303_aa40_b1bc,
            0x7748_c24e_3727_05a3,
            0xd7bd_5ffe_0adf_8bec,
            0x4533_8177_fa1c_2690,
        ],
    ),
    (
        16,
        [
            0xc7d9_d3c1_4100_8e2c,
            0x5f6f_e9ee_aa10_5d04,
            0xa3db_f0b1_f138_a0b9,
            0xfe99_3048_79fa_fab7,
        ],
    ),
    (
        2000,
        [
            0xf4bf_1601_0ad5_328c,
            0x8def_8919_7bb3_6044,
            0x59ab_205e_c706_42f6,
            0xbab4_81e1_eab7_cf3e,
        ],
    ),
];

/// A linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// So many of the first `kinds` of digits, small letters and capitals.
    fn word(&mut self, length: usize, kinds: usize) -> String {
        let all = ('0'..='9').chain('a'..='z').chain('A'..='Z').collect::<Vec<_>>();
        (0..length).map(|_| all[self.below(kinds)]).collect()
    }
}

/// A thousand names: plain ones, temporary ones and backups, such as only look temporary, and bytes beyond ASCII.
fn names() -> Vec<Vec<u8>> {
    let mut numbers = Numbers(1);
    let mut name = |i: usize| match i % 8 {
        0 => format!("f{i}").into(),
        1 => format!("file.{i}").into(),
        2 => format!(".file{i}.{}", numbers.word(6, 62)).into(),
        3 => format!("file{i}.{}", numbers.word(8, 62)).into(),
        4 => format!("data{i}.{}", numbers.word(8, 12)).into(),
        5 => format!("mdtest.{}.{i:05}", i % 17 + 10).into(),
        6 => format!("x{i}{}", ["~", ".bak", ".SAV", ".orig"][i / 8 % 4]).into(),
        _ => {
            let mut name = format!("n{i}.").into_bytes();
            name.extend((0..8).map(|_| 0xd0 + numbers.below(48) as u8));
            name
        }
    };
    (0..1000).map(&mut name).collect()
}

#[test]
fn names_are_where_lustre_puts_them() {
    let names = names();
    for (stripes, expected) in STRIPES_OF_NAMES {
        for (hash, expected) in HASHES.into_iter().zip(expected) {
            let stripe = |name: &Vec<u8>| stripe_of(hash, count(stripes), name).expect("known");
            let folded =
                names.iter().map(stripe).fold(0xcbf2_9ce4_8422_2325, |sum: u64, stripe| {
                    (sum ^ u64::from(stripe)).wrapping_mul(0x0000_0100_0000_01b3)
                });
            assert_eq!(folded, expected, "{hash:?} over {stripes}");
        }
    }
}

#[test]
fn names_are_where_the_captures_have_them() {
    for (hash, mdts, found) in NAMES {
        let hash = match hash {
            "crush" => LmvHash::CRUSH,
            "fnv_1a_64" => LmvHash::FNV_1A_64,
            _ => LmvHash::ALL_CHARS,
        };
        for (number, mdt) in (1..).zip(found) {
            let stripe = stripe_of(hash, count(2), format!("f{number}").as_bytes());
            assert_eq!(stripe.map(|stripe| mdts[stripe as usize]), Ok(mdt), "{hash:?} f{number}");
        }
    }
}

/// A sum of bytes is even for names as benchmarks make them, not for any: it is Lustre's "for testing".
#[test]
fn each_hash_spreads_names_within_three_sigma() {
    const NAMES: u32 = 1000;
    for stripes in [2, 4, 5, 16] {
        for hash in HASHES {
            let mut found = vec![0u32; stripes as usize];
            for number in 0..NAMES {
                // As a random number would be written: of what follows each other sums are too even.
                let scrambled = number.wrapping_mul(2_654_435_761);
                let name = format!("{scrambled:010x}{:08x}", scrambled.rotate_left(13) ^ number);
                let stripe = stripe_of(hash, count(stripes), name.as_bytes()).expect("known");
                found[stripe as usize] += 1;
            }
            let share = 1.0 / f64::from(stripes);
            let mean = f64::from(NAMES) * share;
            let sigma = (mean * (1.0 - share)).sqrt();
            let far = found.iter().map(|found| (f64::from(*found) - mean).abs() / sigma);
            let farthest = far.fold(0.0, f64::max);
            assert!(farthest <= 3.0, "{hash:?} over {stripes}: {farthest} sigma, {found:?}");
        }
    }
}

#[test]
fn a_stripe_more_takes_names_from_all_and_moves_no_other() {
    for hash in [LmvHash::CRUSH, LmvHash::CRUSH2] {
        for name in names() {
            let before = stripe_of(hash, count(4), &name).expect("known");
            let after = stripe_of(hash, count(5), &name).expect("known");
            assert!(after == before || after == 4, "{:?}", name.escape_ascii().to_string());
        }
    }
}

#[test]
fn an_unknown_hash_finds_nothing_but_in_a_single_stripe() {
    for hash in [LmvHash::UNKNOWN, LmvHash(5), LmvHash(LmvHash::BAD_TYPE), LmvHash(0x8000_0007)] {
        assert_eq!(stripe_of(hash, count(2), b"name"), Err(UnknownHash(hash)));
        assert_eq!(stripe_of(hash, count(1), b"name"), Ok(0));
    }
    let flags = LmvHash(LmvHash::CRUSH.0 | LmvHash::FIXED | LmvHash::OVERSTRIPED);
    assert_eq!(stripe_of(flags, count(9), b"name"), stripe_of(LmvHash::CRUSH, count(9), b"name"));
}

#[test]
fn captured_attributes_come_back_byte_for_byte() {
    for hex in MASTERS.iter().chain(&STRIPES) {
        assert_eq!(layout(hex).to_ea().encode(), bytes(hex), "{hex}");
    }
    for hex in WISHES {
        let ea = LmvEa::decode(&bytes(hex)).expect("an attribute");
        let wish = DirectoryWish::from_ea(&ea).expect("a wish");
        assert_eq!(wish.to_ea().encode(), bytes(hex), "{hex}");
    }
}

#[test]
fn a_stripe_has_what_its_master_has() {
    let stripe = |master: usize, number: u32| layout(MASTERS[master]).of_stripe(number);
    assert_eq!(stripe(1, 1), Some(layout(STRIPES[0])));
    assert_eq!(stripe(4, 3), Some(layout(STRIPES[1])));
    assert_eq!(stripe(MIGRATION_TO_ONE, 0), Some(layout(STRIPES[2])));
    assert_eq!(stripe(MIGRATION_TO_TWO, 2), Some(layout(STRIPES[3])));
    assert_eq!(stripe(SPLIT, 1), Some(layout(STRIPES[4])));
    assert_eq!(stripe(MERGE, 1), Some(layout(STRIPES[6])));
    assert_eq!(stripe(12, 0), Some(layout(STRIPES[7])));
    assert_eq!(stripe(12, 1), None);
}

#[test]
fn while_a_layout_changes_a_name_has_two_places() {
    let all = |layout: &DirectoryLayout| {
        let places =
            names().iter().map(|name| layout.places(name).expect("known")).collect::<Vec<_>>();
        let now = places.iter().map(|places| places.now).collect::<HashSet<_>>();
        let before = places.iter().filter_map(|places| places.before).collect::<HashSet<_>>();
        let sorted = |set: HashSet<u32>| {
            let mut list = set.into_iter().collect::<Vec<_>>();
            list.sort_unstable();
            list
        };
        (layout.change(), sorted(now), sorted(before))
    };
    for (index, expected) in [
        (0, (None, vec![0, 1], vec![])),
        (MIGRATION_TO_ONE, (Some(LayoutChange::Migration), vec![0], vec![1])),
        (MIGRATION_TO_TWO, (Some(LayoutChange::Migration), vec![0, 1], vec![2])),
        (SPLIT, (Some(LayoutChange::Split), vec![0, 1], vec![0])),
        (MERGE, (Some(LayoutChange::Merge), vec![0], vec![1])),
    ] {
        assert_eq!(all(&layout(MASTERS[index])), expected, "{index}");
    }
    // The stripe's own part is through.
    assert_eq!(layout(STRIPES[5]).change(), None);
    let two = layout(MASTERS[MIGRATION_TO_TWO]).places(b"f1").expect("known");
    assert_eq!(Ok(two.now), stripe_of(LmvHash::FNV_1A_64, count(2), b"f1"));
    assert_eq!(two.before, Some(2));
}

fn changed(
    index: usize,
    change: impl FnOnce(&mut LmvMdsMd, &mut Vec<Fid>),
) -> Result<(), LayoutError> {
    let mut ea = layout(MASTERS[index]).to_ea();
    let LmvEa::Stripes { header, fids } = &mut ea else { panic!("a layout") };
    change(header, fids);
    DirectoryLayout::from_ea(&ea).map(|_| ())
}

#[test]
fn layouts_that_contradict_themselves_are_refused_by_name() {
    let illegal = |what| Err(LayoutError::Illegal(what));
    let none = changed(0, |header, fids| (header.stripe_count, *fids) = (0, vec![]));
    assert_eq!(none, illegal("directory without stripes"));
    let many = changed(0, |header, fids| {
        header.stripe_count = 2001;
        fids.resize(2001, Fid::ZERO);
    });
    assert_eq!(many, illegal("too many stripes of a directory"));
    let fids = changed(0, |_, fids| fids.truncate(1));
    assert_eq!(fids, illegal("a FID for each stripe of a directory"));
    let mdt = changed(0, |header, _| header.master_mdt_index = 0x1_0000);
    assert_eq!(mdt, illegal("MDT of a master"));
    let magic = changed(0, |header, _| header.magic = LmvMagic::USER);
    assert_eq!(magic, illegal("magic of a striped directory"));
    let number = changed(0, |header, _| {
        (header.magic, header.master_mdt_index) = (LmvMagic::STRIPE, 2);
    });
    assert_eq!(number, illegal("number of a stripe"));
    let both = changed(SPLIT, |header, _| header.hash_type.0 |= LmvHash::MERGE);
    assert_eq!(both, illegal("directory split and merged at once"));
    for index in [MIGRATION_TO_TWO, SPLIT, MERGE] {
        for offset in [0, 4, u32::MAX] {
            let cut = changed(index, |header, _| header.migrate_offset = offset);
            assert_eq!(cut, illegal("stripes of a directory that changes"), "{index} {offset}");
        }
    }
    let nothing = changed(MIGRATION_TO_TWO, |header, _| header.migrate_offset = 3);
    assert_eq!(nothing, illegal("no stripe that a directory migrates from"));
}

#[test]
fn a_layout_of_an_unknown_hash_is_read_and_finds_no_name() {
    let hash = LmvHash(7 | LmvHash::BAD_TYPE);
    let stripes = vec![Fid::new(0x2_0000_0400, 1), Fid::new(0x2_4000_0400, 1)];
    let layout = DirectoryLayout::new(MdtIndex(0), hash, stripes).expect("it can be listed");
    assert_eq!(layout.places(b"name"), Err(UnknownHash(hash)));
    assert_eq!(
        UnknownHash(hash).to_string(),
        "unknown hash type 0x20000007 of a striped directory"
    );
}

#[test]
fn a_new_layout_is_as_lustre_writes_it() {
    let captured = layout(MASTERS[0]);
    let Holder::Master { mdt, stripes } = captured.holder().clone() else { panic!("a master") };
    assert_eq!(DirectoryLayout::new(mdt, LmvHash::FNV_1A_64, stripes.to_vec()), Ok(captured));
}

#[test]
fn wishes_that_cannot_be_are_refused_by_name() {
    let wish = |change: &dyn Fn(&mut sheen_wire::lmv::LmvUserMd)| {
        let ea = LmvEa::decode(&bytes(WISHES[13])).expect("an attribute");
        let LmvEa::User { mut header, objects } = ea else { panic!("a wish") };
        change(&mut header);
        DirectoryWish::from_ea(&LmvEa::User { header, objects }).map(|_| ())
    };
    let plain = |change: &dyn Fn(&mut sheen_wire::lmv::LmvUserMd)| {
        let ea = LmvEa::decode(&bytes(WISHES[2])).expect("an attribute");
        let LmvEa::User { mut header, objects } = ea else { panic!("a wish") };
        change(&mut header);
        DirectoryWish::from_ea(&LmvEa::User { header, objects }).map(|wish| wish.stripes)
    };
    let illegal = LayoutError::Illegal;
    assert_eq!(wish(&|_| {}), Ok(()));
    let listed = "an MDT for each stripe wished for a directory";
    assert_eq!(wish(&|header| header.stripe_count = 3), Err(illegal(listed)));
    assert_eq!(wish(&|header| header.stripe_count = -1), Err(illegal(listed)));
    for bad in [2001, -6, i32::MIN, i32::MAX] {
        let what = "count of stripes wished for a directory";
        assert_eq!(plain(&|header| header.stripe_count = bad), Err(illegal(what)), "{bad}");
    }
    assert_eq!(plain(&|header| header.stripe_count = -5), Ok(WishedStripes::OnEachMdt(count(5))));
    let hash = "hash type wished for a directory";
    assert_eq!(plain(&|header| header.hash_type = LmvHash(5)), Err(illegal(hash)));
    let index = "MDT wished for a directory";
    assert_eq!(plain(&|header| header.stripe_offset = 0x1_0000), Err(illegal(index)));
    let layout = layout(MASTERS[0]).to_ea();
    let no_wish = LayoutError::Unsupported("no wish for a directory");
    assert_eq!(DirectoryWish::from_ea(&layout), Err(no_wish));
    let ea = LmvEa::decode(&bytes(WISHES[0])).expect("an attribute");
    let no_layout = LayoutError::Unsupported("a wish for a directory");
    assert_eq!(DirectoryLayout::from_ea(&ea), Err(no_layout));
}

/// The FIDs of a master's stripes.
fn stripes_of(layout: &DirectoryLayout) -> Vec<Fid> {
    let Holder::Master { stripes, .. } = layout.holder() else { panic!("a master") };
    stripes.to_vec()
}

#[test]
fn a_migration_begins_as_lustre_writes_it() {
    let fixed = LmvHash(LmvHash::FNV_1A_64.0 | LmvHash::FIXED);
    let target = |mdt: u16, stripes: &[Fid]| MigrationTarget {
        mdt: MdtIndex(mdt),
        hash: fixed,
        stripes: stripes.to_vec(),
    };
    let to_one = layout(MASTERS[MIGRATION_TO_ONE]);
    let stripes = stripes_of(&to_one);
    let plain = DirectoryLayout::migration_of_plain(stripes[1], target(1, &stripes[..1]));
    assert_eq!(plain, Ok(to_one));
    let (to_two, source) = (layout(MASTERS[MIGRATION_TO_TWO]), layout(MASTERS[6]));
    let stripes = stripes_of(&to_two);
    assert_eq!(source.migration_to(target(0, &stripes[..2])), Ok(to_two));
}

#[test]
fn a_change_ends_as_lustre_writes_it() {
    for (before, after) in [(MIGRATION_TO_ONE, 6), (MIGRATION_TO_TWO, 8), (SPLIT, 10), (MERGE, 12)]
    {
        assert_eq!(layout(MASTERS[before]).finished(), Ok(layout(MASTERS[after])), "{before}");
    }
    let leaving = |index: usize| layout(MASTERS[index]).leaving();
    assert_eq!((leaving(MIGRATION_TO_TWO), leaving(MERGE)), (2..3, 1..2));
    assert!(leaving(SPLIT).is_empty() && leaving(0).is_empty());
}

#[test]
fn a_merge_to_another_hash_ends_with_that_hash() {
    let mut ea = layout(MASTERS[MERGE]).to_ea();
    let LmvEa::Stripes { header, .. } = &mut ea else { panic!("a layout") };
    header.migrate_hash = LmvHash::CRUSH;
    let merge = DirectoryLayout::from_ea(&ea).expect("a layout");
    assert_eq!(merge.wanted(), (LmvHash::CRUSH, 1));
    let hash = merge.finished().expect("an end").hash();
    assert_eq!(hash, LmvHash(LmvHash::CRUSH.0 | LmvHash::FIXED));
}

/// As Lustre's `lod_dir_layout_shrink`.
#[test]
fn a_directory_whose_stripes_go_is_overstriped_no_more() {
    for index in [MERGE, MIGRATION_TO_ONE] {
        let mut ea = layout(MASTERS[index]).to_ea();
        let LmvEa::Stripes { header, .. } = &mut ea else { panic!("a layout") };
        header.hash_type.0 |= LmvHash::OVERSTRIPED;
        let changing = DirectoryLayout::from_ea(&ea).expect("a layout");
        let hash = changing.finished().expect("an end").hash();
        assert_eq!(hash, layout(MASTERS[index]).finished().expect("an end").hash(), "{index}");
    }
}

#[test]
fn only_a_master_that_does_not_change_migrates_and_only_one_that_changes_ends() {
    let target = || MigrationTarget {
        mdt: MdtIndex(0),
        hash: LmvHash::CRUSH,
        stripes: vec![Fid::new(0x2_0000_0400, 1)],
    };
    for index in [MIGRATION_TO_ONE, SPLIT, MERGE] {
        let refused = layout(MASTERS[index]).migration_to(target());
        assert_eq!(refused, Err(LayoutError::Illegal("directory that cannot migrate")));
    }
    let stripe = layout(STRIPES[0]);
    assert!(stripe.migration_to(target()).is_err());
    let nothing = Err(LayoutError::Illegal("directory that is not being changed"));
    assert_eq!(layout(MASTERS[0]).finished(), nothing);
    assert_eq!(layout(STRIPES[2]).finished(), nothing);
    let empty = MigrationTarget { stripes: Vec::new(), ..target() };
    assert!(layout(MASTERS[0]).migration_to(empty).is_err());
}

#[test]
fn a_stripe_that_is_through_still_gets_names_from_other_ones() {
    let through = layout(STRIPES[5]);
    assert_eq!(through.change(), None);
    let under_way = through.for_new_names().expect("a layout");
    assert_eq!(under_way.change(), Some(LayoutChange::Split));
    let name = names().into_iter().find(|name| through.places(name).expect("known").now == 1);
    let places = under_way.places(&name.expect("one")).expect("known");
    assert_eq!(places, NamePlaces { now: 1, before: Some(0) });
    for index in [0, MIGRATION_TO_TWO, SPLIT] {
        assert_eq!(layout(MASTERS[index]).for_new_names(), Ok(layout(MASTERS[index])));
    }
}
