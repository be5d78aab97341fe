//! The options of `lfs find`.

use crate::lfs::options::{Dashes, Grammar, HELP, Opt, Takes, refused};

pub(crate) const GRAMMAR: Grammar = Grammar {
    command: "lfs find",
    usage: "Find files by their attributes and layouts\n\n\
        Usage: lfs find DIRECTORY|FILENAME... [[!] TEST]... [OPTION]...\n\n\
        N is a number, +N more than N, -N less than N; units are s, m, h, d, w and y (days by default). ! negates a test.",
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
    test(Some('A'), &["atime"], "[+-]N[smhdwy]", "Accessed N units ago"),
    test(Some('B'), &["btime", "Btime", "crtime"], "[+-]N[smhdwy]", "Created N units ago"),
    test(Some('C'), &["ctime"], "[+-]N[smhdwy]", "Status changed N units ago"),
    test(Some('M'), &["mtime"], "[+-]N[smhdwy]", "Data modified N units ago"),
    test(
        None,
        &["newer"],
        "FILE",
        "Modified more recently than FILE; -newerXY compares X (a, b, c or m) with Y",
    ),
    test(None, &["attrs"], "[^]ATTR,...", "With attributes: c, i, a, d, E, M or their names"),
    test(Some('b'), &["blocks"], "[+-]N[bcKMGTPE]", "Space used"),
    test(
        Some('s'),
        &["size"],
        "[+-]N[bcKMGTPE]",
        "Size in bytes; in blocks of 512 bytes without a unit",
    ),
    test(None, &["links"], "[+-]N", "Number of hard links"),
    test(None, &["perm"], "[/-]MODE", "Permissions MODE; with / any, with - all of its bits"),
    test(Some('g'), &["gid"], "GID", "Group name or ID"),
    test(Some('G'), &["group"], "GROUP", "Group name or ID"),
    test(Some('u'), &["uid"], "UID", "User name or ID"),
    test(Some('U'), &["user"], "USER", "User name or ID"),
    test(Some('n'), &["name"], "PATTERN", "Name matches the shell pattern"),
    test(Some('t'), &["type"], "bcdflps", "File type, as find(1) has it"),
    test(Some('c'), &["stripe-count", "stripe_count"], "[+-]N", "Stripe count"),
    test(Some('S'), &["stripe-size", "stripe_size"], "[+-]N[KMGT]", "Stripe size"),
    test(
        Some('i'),
        &["stripe-index", "stripe_index"],
        "INDEX,...",
        "Has a stripe on one of the OSTs",
    ),
    test(Some('O'), &["ost", "obd"], "UUID|INDEX,...", "Has an object on one of the OSTs"),
    test(Some('m'), &["mdt-index", "mdt", "mdt_index"], "UUID|INDEX,...", "Is on one of the MDTs"),
    test(None, &["pool"], "POOL", "Pool name; \"\" for no pool"),
    test(Some('L'), &["layout"], "mdt|raid0|released", "Layout type"),
    test(None, &["component-count", "comp-count"], "[+-]N", "Number of components"),
    test(
        None,
        &["component-start", "comp-start"],
        "[+-]N[KMGTPE]",
        "Has a component with this start",
    ),
    test(
        Some('E'),
        &["component-end", "comp-end"],
        "[+-]N[KMGTPE]",
        "Has a component with this end",
    ),
    test(
        None,
        &["component-flags", "comp-flags"],
        "[^]FLAG,...",
        "Has a component with these flags; ^ for without",
    ),
    test(
        Some('z'),
        &["extension-size", "ext-size"],
        "[+-]N[KMGT]",
        "Extension size of a component",
    ),
    refused(None, &["foreign"], Takes::Maybe("TYPE")),
    test(
        Some('H'),
        &["mdt-hash", "mdt_hash"],
        "[^]HASH|FLAG,...",
        "Striped directory with one of these hash types, and these flags",
    ),
    test(Some('T'), &["mdt-count", "mdt_count"], "[+-]N", "Directory with N stripes"),
    refused(Some('N'), &["mirror-count"], Takes::Value("N")),
    refused(None, &["mirror-state"], Takes::Value("STATE")),
    refused(None, &["projid"], Takes::Value("ID")),
    test(
        None,
        &["xattr"],
        "NAME[=VALUE]",
        "Has an extended attribute that matches the regular expressions",
    ),
];

const OPTIONS: &[Opt] = &[
    Opt {
        short: Some('D'),
        names: &["maxdepth"],
        takes: Takes::Value("N"),
        help: "Descend at most N levels; 0 for the given names only",
    },
    Opt {
        short: Some('d'),
        names: &["mindepth"],
        takes: Takes::Value("N"),
        help: "Apply no tests at levels less than N",
    },
    Opt {
        short: Some('l'),
        names: &["lazy"],
        takes: Takes::Nothing,
        help: "Use the sizes that the MDT has (LSOM), without asking OSTs",
    },
    Opt {
        short: Some('P'),
        names: &["print"],
        takes: Takes::Nothing,
        help: "Print the names, one per line (the default)",
    },
    Opt {
        short: Some('0'),
        names: &["print0"],
        takes: Takes::Nothing,
        help: "Print the names, each followed by a NUL",
    },
    Opt {
        short: None,
        names: &["printf"],
        takes: Takes::Value("FORMAT"),
        help: "Print FORMAT, with escapes and % directives",
    },
    Opt { short: None, names: &["ls"], takes: Takes::Nothing, help: "Print as ls -l does" },
    Opt {
        short: Some('k'),
        names: &["skip"],
        takes: Takes::Value("PERCENT"),
        help: "Skip this percentage of the files found",
    },
    Opt {
        short: None,
        names: &["threads"],
        takes: Takes::Value("N"),
        help: "Number of threads that read directories",
    },
    HELP,
];
