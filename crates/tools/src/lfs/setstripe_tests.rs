use sheen_wire::lov::{CompFlags, LovEa, LovMd, LovOstData};

use super::{Action, GRAMMAR, Setstripe, differences};
use crate::output::Fault;

fn read(line: &str) -> Result<Setstripe, Fault> {
    let words: Vec<std::ffi::OsString> = line.split_whitespace().map(Into::into).collect();
    Setstripe::read(GRAMMAR.read(&words)?)
}

fn fault(line: &str) -> (u8, String) {
    let fault = read(line).and_then(|command| command.action()).unwrap_err();
    (fault.code, fault.text.strip_prefix("lfs setstripe: ").unwrap().to_owned())
}

#[test]
fn the_action_is_what_the_options_agree_on() {
    for (line, action) in [
        ("-c 1 f", Action::Create),
        ("-d d", Action::Remove),
        ("--component-add -E 2M f", Action::Add),
        ("--comp-del -I 1 f", Action::Delete),
        ("--comp-del --comp-flags ^init f", Action::Delete),
        ("--component-set -I 1 --comp-flags=prefer f", Action::Set),
        ("--yaml t f", Action::Create),
    ] {
        assert_eq!(read(line).unwrap().action().unwrap(), action, "{line}");
    }
}

#[test]
fn options_that_disagree_are_refused_as_in_lustre() {
    for (line, text) in [
        ("", "FILE must be specified (try 'lfs setstripe --help')"),
        ("-d -c 1 d", "option -d is mutually exclusive with -S, -c, -o, -p, -I, -F and -E options"),
        ("--component-add f", "option -E must be specified with --component-add"),
        ("--comp-set f", "--component-set doesn't have component-id or mirror-id set"),
        ("--comp-set -I 1 --comp-flags=bogus f", "component flag 'bogus' not supported"),
        ("--mode=lazy f", "bad mode 'lazy'"),
        ("-I 0 --comp-del f", "invalid component ID '0'"),
        ("-I 1 f", "option -I can only be used with --component-del or --component-set"),
        ("--copy a --yaml b f", "can't specify --yaml and --copy together"),
        ("--copy a -c 1 f", "can't specify --yaml or --copy with -c, -S, -i, -o, -p or -E options"),
    ] {
        assert_eq!(fault(line), (4, text.to_owned()), "{line}");
    }
    let foreign = read("--foreign=none --xattr=hello f").unwrap_err();
    assert_eq!(foreign.code, 95);
}

#[test]
fn a_layout_that_differs_from_the_request_is_reported() {
    let request = |line: &str| read(line).unwrap().layout.request.finish().unwrap();
    let plain = |stripes: usize| {
        let stripes = vec![LovOstData::default(); stripes];
        LovEa::Plain(LovMd { stripes, ..LovMd::default() })
    };
    assert_eq!(differences(&request("-c 4 f"), &plain(4)), Vec::<String>::new());
    assert_eq!(differences(&request("-c -1 f"), &plain(4)), Vec::<String>::new());
    let fewer = differences(&request("-c 5 f"), &plain(4));
    assert_eq!(fewer, ["4 stripes instead of 5: no more OSTs to choose from"]);
    let requested = request("-E 8M -L mdt -E -1 f");
    let cut = differences(&requested, &request("-E 1M -L mdt -E -1 f"));
    assert_eq!(
        cut,
        ["the MDT holds 1048576 bytes instead of 8388608: the MDT's lod.*.dom_stripesize"]
    );
    let dropped = differences(&requested, &request("-E -1 f"));
    assert_eq!(dropped, ["no data is stored on the MDT: the MDT's lod.*.dom_stripesize is 0"]);
    assert_eq!(differences(&requested, &requested), Vec::<String>::new());
    let requested = request("-E 1M -c 1 -E -1 -C 6 f");
    let LovEa::Composite(mut made) = requested.clone() else { panic!() };
    made.components[1].layout.stripes = vec![LovOstData::default()];
    assert_eq!(differences(&requested, &LovEa::Composite(made.clone())), Vec::<String>::new());
    made.components[1].entry.flags = CompFlags::INIT;
    let fewer = differences(&requested, &LovEa::Composite(made));
    assert_eq!(fewer, ["1 stripes instead of 6: no more OSTs to choose from"]);
    let requested = request("-E 8M -C 6 -S 4M f");
    let LovEa::Composite(mut made) = requested.clone() else { panic!() };
    made.components[0].layout.stripes = vec![LovOstData::default(); 2];
    made.components[0].entry.flags = CompFlags::INIT;
    let fewer = differences(&requested, &LovEa::Composite(made));
    assert_eq!(fewer, ["2 stripes instead of 6: the component ends behind them"]);
}
