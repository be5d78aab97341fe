use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;
use sheen_wire::lov::{
    CompFlags, LovComp, LovCompEntry, LovCompHeader, LovComponent, LovEa, LovMagic, LovMd,
    LovMdHeader, LovPattern, PoolName,
};

use super::super::compare::Bound;
use super::super::components::Flags;
use super::{Fields, Filter, Style, text, text_of_file};

fn bytes(hex: &str) -> Bytes {
    let digit = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(digit).collect::<Vec<u8>>().into()
}

fn style(fields: Fields, is_default: bool) -> Style {
    Style { fields, is_default, ..Style::default() }
}

/// The layout of `c/s4` in the capture c3-io-8M-4stripe.
const FOUR_STRIPES: &str = "d00bd10b010000003d0100000000000002040040020000000000080004000000\
    00040080020000004f000000000000000000000000000000\
    000400c0020000004f000000000000000000000001000000\
    00040000030000004f000000000000000000000002000000\
    00040040030000004f000000000000000000000003000000";

#[test]
fn a_file_is_shown_as_lustre_shows_it() {
    let layout = LovEa::decode(&bytes(FOUR_STRIPES)).unwrap();
    let expected = "\
lmm_stripe_count:  4
lmm_stripe_size:   524288
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 0
\tobdidx\t\t objid\t\t objid\t\t group
\t     0\t            79\t         0x4f\t   0x280000400
\t     1\t            79\t         0x4f\t   0x2c0000400
\t     2\t            79\t         0x4f\t   0x300000400
\t     3\t            79\t         0x4f\t   0x340000400

";
    assert_eq!(text(&layout, style(Fields::USUAL, false)), expected);
    let verbose = Fields::USUAL.with(Fields::IDENTITY);
    let expected = "lmm_magic:         0x0BD10BD0\nlmm_seq:           0x240000402\n\
        lmm_object_id:     0x13d\nlmm_fid:           [0x240000402:0x13d:0x0]\nlmm_stripe_count:  4\n";
    assert!(text(&layout, style(verbose, false)).starts_with(expected));
}

#[test]
fn a_single_field_is_bare() {
    let layout = LovEa::decode(&bytes(FOUR_STRIPES)).unwrap();
    let count = Fields::COUNT;
    assert_eq!(text(&layout, style(count, false)), "4\n\n");
    let both = count.with(Fields::SIZE);
    let expected = "lmm_stripe_count:  4\nlmm_stripe_size:   524288\n\n";
    assert_eq!(text(&layout, style(both, false)), expected);
    let objects = Fields::OBJECTS;
    assert!(text(&layout, style(objects, false)).starts_with("\tobdidx"));
}

fn request(count: u16, size: u32, pool: &str) -> LovMd {
    let header = LovMdHeader {
        magic: LovMagic::V3,
        pattern: LovPattern::RAID0,
        stripe_count: count,
        stripe_size: size,
        layout_gen: u16::MAX,
        ..LovMdHeader::default()
    };
    LovMd { header, pool: PoolName::new(pool).unwrap(), ..LovMd::default() }
}

#[test]
fn a_default_is_one_line() {
    let shown = |layout: LovMd, raw| {
        text(&LovEa::Plain(layout), Style { raw, ..style(Fields::USUAL, true) })
    };
    let line = "stripe_count:  1 stripe_size:   4194304 pattern:       raid0 stripe_offset: -1";
    assert_eq!(shown(request(0, 0, "fast"), false), format!("{line} pool:          fast\n\n"));
    assert_eq!(shown(request(0, 0, ""), false), format!("{line}\n\n"));
    let line = "stripe_count:  0 stripe_size:   0 pattern:       raid0 stripe_offset: -1\n\n";
    assert_eq!(shown(request(0, 0, ""), true), line);
    assert!(shown(request(u16::MAX, 65536, ""), false).starts_with("stripe_count:  -1 "));
}

/// As the captures d2-pfl-3comp-dirdefault and e11a have them.
#[test]
fn components_are_shown_as_lustre_shows_them() {
    let component = |id, flags, start, end, layout| LovComponent {
        entry: LovCompEntry { id, flags, start, end, ..LovCompEntry::default() },
        layout,
    };
    let plain = LovEa::decode(&bytes(FOUR_STRIPES)).unwrap();
    let LovEa::Plain(mut made) = plain else { panic!("plain") };
    (made.header.stripe_count, made.header.stripe_size) = (1, 65536);
    made.stripes.truncate(1);
    let mut later = request(4, 4 << 20, "");
    later.header.layout_gen = u16::MAX;
    let composite = |components| {
        LovEa::Composite(LovComp {
            header: LovCompHeader { layout_gen: 3, ..LovCompHeader::default() },
            components,
        })
    };
    let layout = composite(vec![
        component(1, CompFlags::INIT, 0, 65536, made),
        component(2, CompFlags::default(), 65536, u64::MAX, later),
    ]);
    let expected = "  lcm_layout_gen:    3
  lcm_mirror_count:  1
  lcm_entry_count:   2
    lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   65536
      lmm_stripe_count:  1
      lmm_stripe_size:   65536
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: 0
      lmm_objects:
      -   0: { l_ost_idx:   0, l_fid: [0x280000400:0x4f:0x0] }

    lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          0
    lcme_extent.e_start: 65536
    lcme_extent.e_end:   EOF
      lmm_stripe_count:  4
      lmm_stripe_size:   4194304
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: -1

";
    assert_eq!(text(&layout, style(Fields::USUAL, false)), expected);
    let count = Fields::COUNT;
    assert_eq!(text(&layout, style(count, false)), "1\n\n");
    let default = component(0, CompFlags::default(), 0, 65536, request(1, 4 << 20, ""));
    let shown = text(&composite(vec![default]), style(Fields::USUAL, true));
    let line = "      stripe_count:  1       stripe_size:   4194304       pattern:       raid0       \
        stripe_offset: -1\n\n";
    assert!(shown.ends_with(line), "{shown}");
    assert!(shown.contains("    lcme_id:             N/A\n    lcme_mirror_id:      N/A\n"));
}

/// The layout of `a` in the capture o10-dom-migrate-1M-to-4M.
const ON_MDT: &str = "d00bd60bd800000002000000000002000000000000000000000000000000000001000000100000000000000000000000000010000000000080000000200000000000000000000000000000000000000002000000000000000000100000000000ffffffffffffffffa00000003800000000000000000000000000000000000000d00bd10b00010000100000000000000002040000020000000000100000000000d00bd10b0100000010000000000000000204000002000000000040000100ffff0000000000000000000000000000000000000000ffffffff";

#[test]
fn yaml_is_as_lustre_writes_it() {
    let layout = LovEa::decode(&bytes(ON_MDT)).unwrap();
    let yaml = Style { yaml: true, ..style(Fields::USUAL, false) };
    let expected = "lcm_layout_gen:    2
lcm_mirror_count:  1
lcm_entry_count:   2
components:
  - lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   1048576
    sub_layout:
      lmm_stripe_count:  0
      lmm_stripe_size:   1048576
      lmm_pattern:       mdt
      lmm_layout_gen:    0
      lmm_mdt_index:     0
  - lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          0
    lcme_extent.e_start: 1048576
    lcme_extent.e_end:   EOF
    sub_layout:
      lmm_stripe_count:  1
      lmm_stripe_size:   4194304
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: -1
";
    assert_eq!(text(&layout, yaml), expected);
    let name = Path::new(OsStr::from_bytes(b"a\n\xe9"));
    assert_eq!(text_of_file(&layout, Some(name), yaml), expected.as_bytes());
    let plain = style(Fields::USUAL, false);
    let named = [b"a\n\xe9\n", text(&layout, plain).as_bytes()].concat();
    assert_eq!(text_of_file(&layout, Some(name), plain), named);
    assert_eq!(text_of_file(&layout, Some(name), Style { ost: Some(77), ..plain }), b"");
    let plain = LovEa::decode(&bytes(FOUR_STRIPES)).unwrap();
    let shown = text(&plain, yaml);
    let objects = "lmm_objects:\n      - l_ost_idx: 0\n        l_fid:     0x280000400:0x4f:0x0\n";
    assert!(shown.starts_with("lmm_stripe_count:  4\n") && shown.contains(objects), "{shown}");
}

#[test]
fn components_are_selected() {
    let layout = LovEa::decode(&bytes(ON_MDT)).unwrap();
    let shown = |fields, filter| text(&layout, Style { filter, ..style(fields, false) });
    assert_eq!(shown(Fields::END, Filter::default()), "1048576\n\n");
    assert_eq!(shown(Fields::COMPONENTS, Filter::default()), "2\n\n");
    let second = Filter { id: Some(2), ..Filter::default() };
    assert_eq!(shown(Fields::END, second), "EOF\n\n");
    assert_eq!(shown(Fields::FLAGS, second), "0\n\n");
    let made = Filter { flags: Flags::parse("init").ok(), ..Filter::default() };
    assert_eq!(shown(Fields::ID, made), "1\n\n");
    let unmade = Filter { flags: Flags::parse("^init").ok(), ..Filter::default() };
    assert_eq!(shown(Fields::ID, unmade), "2\n\n");
    let early = Filter { start: Bound::size("-1M", 1), ..Filter::default() };
    assert_eq!(shown(Fields::ID, early), "1\n\n");
    let late = Filter { end: Bound::end("+1M"), ..Filter::default() };
    assert_eq!(shown(Fields::ID, late), "2\n\n");
    assert!(shown(Fields::USUAL, second).contains("lcme_id:             2\n"));
    assert!(!shown(Fields::USUAL, second).contains("lcme_id:             1\n"));
}

#[test]
fn a_plain_layout_answers_for_its_one_component() {
    let layout = LovEa::decode(&bytes(FOUR_STRIPES)).unwrap();
    let shown = |fields| text(&layout, style(fields, false));
    assert_eq!(shown(Fields::END), "EOF\n\n");
    assert_eq!(shown(Fields::FLAGS), "init\n\n");
    assert_eq!(shown(Fields::COMPONENTS), "0\nN/A\n\n".replace("N/A\n", ""));
    let on = |ost| text(&layout, Style { ost: Some(ost), ..style(Fields::USUAL, false) });
    assert!(on(2).ends_with("\t     2\t            79\t         0x4f\t   0x300000400 *\n\n"));
    assert_eq!(on(9), "");
}
