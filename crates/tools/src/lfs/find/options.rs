//! The options of `lfs find`.

use crate::lfs::options::{Dashes, Grammar, HELP, Opt, Takes, refused};

pub(crate) const GRAMMAR: Grammar = Grammar {
    command: "lfs find",
    usage: "Find files by their attributes and layouts\n\n\
        Usage: lfs find DIRECTORY|FILENAME... [[!] TEST]... [OPTION]...\n\n\
        N is a number, +N more, -N less; ! before a test turns it round.",
    tables: &[TESTS, OPTIONS],
    dashes: Dashes::OneOrTwo,
};

const fn test(
    short: Option<char>,
    names: &'static [&'static str],
    value: &'static str,
    help: &'static str,
) -> Opt {
    Opt { short, names, takes: Takes::Value(value), help }
}

const TESTS: &[Opt] = &[
    test(Some('A'), &["atime"], "[+-]N[smhdwy]", "Last read so long ago"),
    test(Some('B'), &["btime", "Btime", "crtime"], "[+-]N[smhdwy]", "Made so long ago"),
    test(Some('C'), &["ctime"], "[+-]N[smhdwy]", "Attributes last changed so long ago"),
    test(Some('M'), &["mtime"], "[+-]N[smhdwy]", "Data last changed so long ago"),
    test(None, &["newer"], "FILE", "Changed after FILE; -newerXY compares X (a, b, c or m) with Y"),
    test(None, &["attrs"], "[^]ATTR,...", "With attributes: c, i, a, d, E, M or their names"),
    test(Some('b'), &["blocks"], "[+-]N[bcKMGTPE]", "So much space"),
    test(Some('s'), &["size"], "[+-]N[bcKMGTPE]", "So many bytes; blocks of 512 without a unit"),
    test(None, &["links"], "[+-]N", "So many names"),
    test(None, &["perm"], "[/-]MODE", "With this mode; / any, - all of its bits"),
    test(Some('g'), &["gid"], "GID", "Of this group"),
    test(Some('G'), &["group"], "GROUP", "Of this group"),
    test(Some('u'), &["uid"], "UID", "Of this user"),
    test(Some('U'), &["user"], "USER", "Of this user"),
    test(Some('n'), &["name"], "PATTERN", "With a name like this"),
    test(Some('t'), &["type"], "bcdflps", "Of this type"),
    test(Some('c'), &["stripe-count", "stripe_count"], "[+-]N", "With so many stripes"),
    test(Some('S'), &["stripe-size", "stripe_size"], "[+-]N[KMGT]", "With stripes of this size"),
    test(Some('i'), &["stripe-index", "stripe_index"], "INDEX,...", "With a stripe on an OST"),
    test(Some('O'), &["ost", "obd"], "UUID|INDEX,...", "With an object on one of the OSTs"),
    test(Some('m'), &["mdt-index", "mdt", "mdt_index"], "UUID|INDEX,...", "On one of the MDTs"),
    test(None, &["pool"], "POOL", "In this pool; \"\" for none"),
    test(Some('L'), &["layout"], "mdt|raid0|released", "With this kind of layout"),
    test(None, &["component-count", "comp-count"], "[+-]N", "With so many components"),
    test(None, &["component-start", "comp-start"], "[+-]N[KMGTPE]", "With a component from here"),
    test(Some('E'), &["component-end", "comp-end"], "[+-]N[KMGTPE]", "With a component up to here"),
    test(None, &["component-flags", "comp-flags"], "[^]FLAG,...", "With a component in this state"),
    test(Some('z'), &["extension-size", "ext-size"], "[+-]N[KMGT]", "With components growing so"),
    refused(None, &["foreign"], Takes::Maybe("TYPE")),
    refused(Some('H'), &["mdt-hash"], Takes::Value("HASH")),
    refused(Some('T'), &["mdt-count"], Takes::Value("N")),
    refused(Some('N'), &["mirror-count"], Takes::Value("N")),
    refused(None, &["mirror-state"], Takes::Value("STATE")),
    refused(None, &["projid"], Takes::Value("ID")),
    test(None, &["xattr"], "NAME[=VALUE]", "With an extended attribute like these expressions"),
];

const OPTIONS: &[Opt] = &[
    Opt {
        short: Some('D'),
        names: &["maxdepth"],
        takes: Takes::Value("N"),
        help: "At most so deep; 0 for what is named only",
    },
    Opt {
        short: Some('d'),
        names: &["mindepth"],
        takes: Takes::Value("N"),
        help: "At least so deep",
    },
    Opt {
        short: Some('l'),
        names: &["lazy"],
        takes: Takes::Nothing,
        help: "Sizes as they are known, without asking servers",
    },
    Opt { short: Some('P'), names: &["print"], takes: Takes::Nothing, help: "Names in lines" },
    Opt {
        short: Some('0'),
        names: &["print0"],
        takes: Takes::Nothing,
        help: "Names with a NUL behind each",
    },
    Opt {
        short: None,
        names: &["printf"],
        takes: Takes::Value("FORMAT"),
        help: "Text with escapes and % directives",
    },
    Opt { short: None, names: &["ls"], takes: Takes::Nothing, help: "As ls -l has it" },
    Opt {
        short: Some('k'),
        names: &["skip"],
        takes: Takes::Value("PERCENT"),
        help: "Leave out so many of those found",
    },
    Opt {
        short: None,
        names: &["threads"],
        takes: Takes::Value("N"),
        help: "Read so many directories at a time",
    },
    HELP,
];
