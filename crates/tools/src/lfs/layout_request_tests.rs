use sheen_types::limits::STRIPE_COUNT_MAX;
use sheen_wire::lov::LovEa;

use super::super::layout_text::{Fields, Style, text};
use super::super::layout_yaml;
use super::super::options::{Dashes, Grammar, Part};
use super::{LayoutRequest, OPTIONS, fault_of};
use crate::output::Fault;

const GRAMMAR: Grammar =
    Grammar { command: "lfs setstripe", usage: "", tables: &[OPTIONS], dashes: Dashes::Two };

fn request(line: &str) -> Result<LovEa, Fault> {
    let words: Vec<std::ffi::OsString> = line.split_whitespace().map(Into::into).collect();
    let mut request = LayoutRequest::new(GRAMMAR.command);
    for part in GRAMMAR.read(&words)? {
        if let Part::Option { name, value, .. } = part {
            assert!(request.option(name, &value.unwrap_or_default())?);
        }
    }
    request.finish()
}

fn hex(line: &str) -> String {
    request(line).unwrap().encode().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn fault(line: &str) -> (u8, String) {
    let fault = request(line).unwrap_err();
    (fault.code, fault.text.strip_prefix("lfs setstripe: ").unwrap().to_owned())
}

/// The bytes are what a real client sent for these commands.
#[test]
fn plain_requests_are_lustres_bytes() {
    let zero = "00".repeat(16);
    assert_eq!(hex("-c 4 -S 512k -i 0"), format!("d00bd10b01000000{zero}0000080004000000"));
    assert_eq!(hex(""), format!("d00bd10b01000000{zero}000000000000ffff"));
    let pool = "66617374000000000000000000000000";
    assert_eq!(hex("-p fast -c -1"), format!("d00bd30b01000000{zero}00000000ffffffff{pool}"));
    assert_eq!(hex("-p fast"), format!("d00bd30b01000000{zero}000000000000ffff{pool}"));
    assert_eq!(hex("-C -2"), format!("d00bd10b01020000{zero}00000000feffffff"));
    let stripe = |index: u32| format!("{zero}00000000{:08x}", index.swap_bytes());
    let stripes = [0, 1, 0, 1].map(stripe).concat();
    let expected = format!("d00bd50b01020000{zero}0000000004000000{zero}{stripes}");
    assert_eq!(hex("-o 0,1,0,1"), expected);
    assert_eq!(hex("-o 0,1 -o 0-1"), expected);
    let stripes = [1, 2].map(stripe).concat();
    let expected = format!("d00bd50b01000000{zero}0000000002000100{zero}{stripes}");
    assert_eq!(hex("-o 1-0x2"), expected);
}

/// As in d1-pfl-dom, d2-pfl-3comp-dirdefault and v1-overstripe, but for the FIDs: what is there in
/// a request is stale memory.
#[test]
fn composite_requests_are_lustres_bytes() {
    let entry = |start: u64, end: u64, offset: u32| {
        let words = [start.swap_bytes(), end.swap_bytes()];
        let offset = format!("{:08x}{:08x}", offset.swap_bytes(), 32u32.swap_bytes());
        format!("{}{:016x}{:016x}{offset}{}", "00".repeat(8), words[0], words[1], "00".repeat(16))
    };
    let plain = |pattern: &str, size: u32, count: &str| {
        format!("d00bd10b{pattern}{}{:08x}{count}ffff", "00".repeat(16), size.swap_bytes())
    };
    let header = |size: &str, count: &str| {
        format!("d00bd60b{size}00000000{}{count}{}", "0000", "00".repeat(16))
    };
    let parts = entry(0, 1 << 20, 128) + &entry(1 << 20, u64::MAX, 160);
    let on_mdt = plain("00010000", 1 << 20, "0000");
    let expected =
        header("c0000000", "0200") + &parts + &on_mdt + &plain("01000000", 4 << 20, "0000");
    assert_eq!(hex("-E 1M -L mdt -E -1 -S 4M"), expected);
    let (one, six) = (plain("01000000", 0, "0100"), plain("01020000", 0, "0600"));
    assert_eq!(hex("-E 1M -c 1 -E -1 -C 6"), header("c0000000", "0200") + &parts + &one + &six);
    let parts =
        entry(0, 65_536, 176) + &entry(65_536, 1 << 20, 208) + &entry(1 << 20, u64::MAX, 240);
    let plains = ["0100", "0200", "0400"].map(|count| plain("01000000", 0, count)).concat();
    let expected = header("10010000", "0300") + &parts + &plains;
    assert_eq!(hex("-E 64k -c 1 -E 1M -c 2 -E -1 -c 4"), expected);
}

#[test]
fn components_inherit_from_the_one_before() {
    let LovEa::Composite(all) = request("-S 1M -c 2 -p fast -E 4M -E 8M -c 3 -E eof -i 1").unwrap()
    else {
        panic!("plain")
    };
    let part = |number: usize| {
        let (entry, layout) = (&all.components[number].entry, &all.components[number].layout);
        let header = &layout.header;
        (
            entry.end,
            header.stripe_size,
            header.stripe_count,
            header.layout_gen,
            layout.pool.is_empty(),
        )
    };
    assert_eq!(part(0), (4 << 20, 1 << 20, 2, 0xffff, false));
    assert_eq!(part(1), (8 << 20, 1 << 20, 3, 0xffff, false));
    assert_eq!(part(2), (u64::MAX, 1 << 20, 3, 1, false));
    assert!(request("-E 0 -c 1").is_ok_and(|request| matches!(request, LovEa::Plain(_))));
    assert_eq!(request("-E 64 -c 1").unwrap(), request("-E 64k -c 1").unwrap());
}

/// Exit codes as the transcript e11a has them; each line says what Lustre's last line says.
#[test]
fn wrong_requests_are_refused_as_in_lustre() {
    let invalid = |what: &str, bad: &str| (4, format!("invalid {what} '{bad}'"));
    for bad in ["abc", "-3", "2001", "65536"] {
        assert_eq!(fault(&format!("-c {bad}")), invalid("stripe count", bad));
    }
    for bad in ["-33", "2001", "abc"] {
        assert_eq!(fault(&format!("-C {bad}")), invalid("stripe count", bad));
    }
    for bad in ["1", "1000", "65535", "96k", "-1", "64x"] {
        assert_eq!(fault(&format!("-S {bad}")), invalid("stripe size", bad));
    }
    for bad in ["-2", "abc", "65535"] {
        assert_eq!(fault(&format!("-i {bad}")), invalid("stripe offset", bad));
    }
    for bad in ["0,a", "1-0", ",", "65535", "0-70000"] {
        assert_eq!(fault(&format!("-o {bad}")), invalid("OST target(s)", bad));
    }
    for bad in ["1000", "100k", "96k", "-2", "abc"] {
        assert_eq!(fault(&format!("-E {bad} -c 1")), invalid("component end", bad));
    }
    for (line, code, text) in [
        ("-S 4G", 22, "error: stripe size '4294967296' over 4GB limit: Invalid argument (22)"),
        ("-c 3 -o 0,1", 4, "stripe_count(3) != nr_tgts(2)"),
        (
            "-L mdt",
            22,
            "Invalid pattern: '-L mdt', must be specified with -E: Invalid argument (22)",
        ),
        ("-L bogus", 22, "layout 'bogus' is unknown, supported layouts are: 'mdt', 'raid0'"),
        ("-E 1M -L bogus", 22, "layout 'bogus' is unknown, supported layouts are: 'mdt', 'raid0'"),
        ("-E 1M -c 1 -E 2M -L mdt -E -1", 22, "'mdt' layout can be only the first one"),
        ("-E 2G -L mdt -E -1", 27, "'mdt' layout size is too big"),
        ("-E -1 -L mdt", 27, "'mdt' layout size is too big"),
        ("-E 1M -L mdt -o 0 -E -1", 4, "-o|--ost incompatible with DoM layout"),
        ("-E 1M -L mdt -C 2 -E -1", 4, "-C|--overstripe-count incompatible with DoM layout"),
        (
            "-E 1M -L mdt -c 2 -E -1",
            4,
            "invalid layout: Option 'stripe-count' can't be specified with Data-on-MDT component: 2",
        ),
        (
            "-E 1M -L mdt -p pp -E -1",
            4,
            "invalid layout: Option 'pool' can't be specified with Data-on-MDT component: 'pp'",
        ),
        (
            "-E 2M -c 1 -E 1M -c 2",
            22,
            "invalid layout: Set extent [2097152, 1048576) failed: Invalid argument",
        ),
        ("-E eof -c 1 -E 1M", 22, "invalid layout: Add component failed: Invalid argument"),
        (
            "-p averyveryverylongpoolname",
            22,
            "Invalid Poolname 'averyveryverylongpoolname': Invalid argument (22)",
        ),
        ("-E 64M -z 32M -E -1", 95, "option '-z' is not supported by Sheen yet"),
        ("-N2 -c 1", 95, "option '-N' is not supported by Sheen yet"),
    ] {
        assert_eq!(fault(line), (code, text.to_owned()), "{line}");
    }
    for fine in ["-E 1M -L mdt -S 1M -E -1", "-E 1M -L mdt -i 0 -E -1", "-S 0", "-c 2 -C 2", "-C 0"]
    {
        assert!(request(fine).is_ok(), "{fine}");
    }
    assert!(request(&format!("-C {STRIPE_COUNT_MAX}")).is_ok());
}

#[test]
fn the_library_knows_what_cannot_be() {
    let said = |line: &str| match request(line).unwrap() {
        LovEa::Composite(all) => fault_of(&all.components),
        _ => None,
    };
    let zero = "Zero length components must be followed by extension";
    assert_eq!(said("-E 1M -c 1 -E 1M -c 2"), Some(zero));
    let aligned = "The component end must be aligned by the stripe size";
    assert_eq!(said("-E 1536k -S 1M -c 1 -E -1"), Some(aligned));
    assert_eq!(said("-E 1M -E 2M"), None);
    assert_eq!(said("-E 1M -L mdt -E -1 -S 4M"), None);
}

/// What `getstripe --yaml` writes of a request, `setstripe --yaml` reads.
#[test]
fn templates_go_round() {
    for line in [
        "-c 4 -S 512k -i 1",
        "-p fast -c -1",
        "-C 8 -S 64k",
        "-E 1M -L mdt -E -1 -S 4M -c 2",
        "-E 64k -S 64k -c 1 -E 1M -S 64k -c 2 -p flash -E -1 -C 9 -p slow",
    ] {
        let requested = request(line).unwrap();
        let raw = Style { fields: Fields::USUAL, yaml: true, raw: true, ..Style::default() };
        let mut read = LayoutRequest::new("lfs setstripe");
        let default = Style { is_default: true, ..raw };
        let style = if matches!(requested, LovEa::Plain(_)) { default } else { raw };
        let template = text(&requested, style);
        layout_yaml::read(&template, &mut read).unwrap();
        assert_eq!(read.finish().unwrap(), requested, "{line}\n{template}");
    }
}

/// What a template leaves out gets the defaults.
#[test]
fn templates_need_not_say_all() {
    for (template, line) in [
        ("lmm_stripe_size: 2097152\n", "-S 2M"),
        ("lmm_stripe_offset: 1\n", "-i 1"),
        ("lmm_pool: fast\n", "-p fast"),
        ("stripe_count: 2\n", "-c 2"),
    ] {
        let mut read = LayoutRequest::new("lfs setstripe");
        layout_yaml::read(template, &mut read).unwrap();
        assert_eq!(read.finish().unwrap(), request(line).unwrap(), "{template}");
    }
}

#[test]
fn bad_templates_are_refused() {
    let said = |text: &str| layout_yaml::read(text, &mut LayoutRequest::new("")).unwrap_err();
    assert_eq!(said("some text\n"), "line 1: no 'key: value'");
    assert_eq!(said("lmm_stripe_count: x\n"), "line 1: 'x' is not a number");
    assert_eq!(
        said("lcm_mirror_count: 2\n"),
        "line 1: mirrored files are not supported by Sheen yet"
    );
    assert_eq!(said(""), "no layout in it");
    let wrong = "components:\n- lcme_id: 1\n  lcme_extent.e_end: 65536\n  lmm_stripe_count: 1\n\
        - lcme_id: 2\n  lcme_extent.e_end: 0\n  lmm_stripe_count: 1\n";
    assert_eq!(said(wrong), "Set extent [65536, 0) failed: Invalid argument");
}
