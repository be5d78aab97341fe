//! Every capture: whether it is played to our servers and to our client, and if not, why not.

use std::fmt::Write as _;
use std::path::Path;

/// How a capture is played.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// To our servers and to our client.
    Both,
    /// To our servers; why not to our client.
    Servers(&'static str),
    /// To neither, and why.
    Not(&'static str),
}

impl How {
    /// Whether it is played to our servers.
    pub(crate) fn is_to_servers(&self) -> bool {
        matches!(self, Self::Both | Self::Servers(_))
    }

    /// Whether it is played to our client.
    pub(crate) fn is_to_client(&self) -> bool {
        matches!(self, Self::Both)
    }
}

const CUT: &str = "cut at 512 or 300 bytes per packet: its requests are not whole";
const SEL: &str = "self-extending layouts are not built";
const LIMITS: &str =
    "the server's `dom_stripesize` changes in it, of which the capture has nothing";
const MIRRORS: &str = "moves by way of mirrors, which are not built";
const CHANGELOG: &str = "changelogs are not built";
const PARAMETERS: &str = "what happens in it is done at the MGS (parameters, pools); the player does \
    nothing there";
const SECOND_MDT: &str = "its files are on a second MDT with other defaults, which answers for half a \
    minute that it waits for the first";
const TWO: &str = "two mounts or two nodes: it is not written down yet what their programs ask of two of our clients";
const OUTAGE: &str = "a server goes away or throws the client out; the captured servers stay";
const MOVED: &str = "between two moves ours looks each name up under a lock (`LDLM_INTENT_GETATTR`); the real client asked `MDS_GETATTR_NAME`, which \
    brings none, and opened it: the answers would be put together from several, by what each move so far has left where";
const PAGES: &str = "the real client moves whole pages, and those between two records; ours the bytes \
    that are used, in other requests";
const UNWRITTEN: &str = "it is not written down yet what its programs ask of our client";

/// All captures, by name.
pub(crate) const CAPTURES: &[(&str, How)] = &[
    ("a-mount-umount", How::Both),
    ("b1-mkdir-create-stat-unlink", How::Both),
    ("b2-rename-link-symlink", How::Both),
    ("b3-setattr-xattr", How::Both),
    ("b4-readdir-many", How::Both),
    ("b5-open-excl-errors", How::Both),
    ("c1-io-4k-1stripe", How::Both),
    ("c2-io-1M-odirect-1stripe", How::Both),
    ("c3-io-8M-4stripe", How::Both),
    ("c4-io-8M-1stripe-snap512", How::Not(CUT)),
    ("d1-pfl-dom", How::Servers(UNWRITTEN)),
    ("d2-pfl-3comp-dirdefault", How::Servers(UNWRITTEN)),
    ("d3-overstripe-C8", How::Servers(UNWRITTEN)),
    ("d4-self-extending-pool-none", How::Not(SEL)),
    ("e1-dne-remote-dir", How::Both),
    ("e2-dne-striped-dir", How::Both),
    ("e3-dne-default-dirstripe", How::Both),
    ("f1-two-mounts-contention", How::Servers(TWO)),
    ("f2-glimpse-while-writing", How::Servers(TWO)),
    ("g1-migrate-mirror", How::Not(MIRRORS)),
    ("more/d1-rename-link-across-mdts", How::Both),
    ("more/d2-striped-dir-hashes", How::Both),
    ("more/d3-dirstripe-get-set-options", How::Both),
    ("more/d4-migrate-m", How::Servers(MOVED)),
    ("more/d5-mkdir-overstripe-unlink", How::Both),
    ("more/d6-readdir-striped-1000", How::Both),
    ("more/g1-jobstats", How::Servers(UNWRITTEN)),
    ("more/g3-conf-param-set-param-P-seen-by-client", How::Not(PARAMETERS)),
    ("more/g5-changelog", How::Not(CHANGELOG)),
    ("more/i1-cold-seq-read-16M-snap300", How::Not(CUT)),
    ("more/i1-cold-seq-read-3M", How::Both),
    ("more/i2-ior-hard-strided", How::Servers(PAGES)),
    ("more/i3-random-4k-read", How::Both),
    ("more/i4-short-io-4k", How::Both),
    ("more/i5-sparse-seek-hole", How::Servers(UNWRITTEN)),
    ("more/i6-fallocate-punch", How::Both),
    ("more/i7-mmap-two-mounts", How::Servers(TWO)),
    ("more/i8-append-two-mounts", How::Servers(TWO)),
    ("more/l1-fcntl-ranges", How::Servers(TWO)),
    ("more/l2-fcntl-blocking", How::Servers(TWO)),
    ("more/l3-fcntl-deadlock", How::Servers(TWO)),
    ("more/l4-flock-two-mounts", How::Servers(TWO)),
    ("more/m1-second-client-mount-hello", How::Both),
    ("more/m2-mount-ro", How::Servers(TWO)),
    ("more/m3-fileset", How::Servers(TWO)),
    ("more/m4-localflock", How::Servers(TWO)),
    ("more/o1-dom-small-file", How::Servers(UNWRITTEN)),
    ("more/o10-dom-migrate-1M-to-4M", How::Not(MIRRORS)),
    ("more/o12-dom-two-mounts-append-truncate", How::Servers(TWO)),
    ("more/o2-dom-stat-while-dirty", How::Servers(TWO)),
    ("more/o3-dom-migrate", How::Not(MIRRORS)),
    ("more/o4-lfs-find-mdt-layout", How::Servers(UNWRITTEN)),
    ("more/o8-dom-stripesize-limits", How::Not(LIMITS)),
    ("more/p1-pool-life", How::Not(PARAMETERS)),
    ("more/r1-mdt-restart-open-files", How::Servers(OUTAGE)),
    ("more/r12-mdt-umount-force-evicts", How::Not(SECOND_MDT)),
    ("more/r2-mdt-replay-uncommitted", How::Servers(OUTAGE)),
    ("more/r6-admin-evict", How::Servers(OUTAGE)),
    ("more/r7-frozen-client-evicted", How::Servers(OUTAGE)),
    ("more/s1-statahead-ls-l-500", How::Both),
    ("more/s2-statahead-mixed-types", How::Both),
    ("more/v1-overstripe", How::Servers(UNWRITTEN)),
    ("more/v3-stripes-2000", How::Servers(UNWRITTEN)),
    ("more/v5-grouplock-lockahead", How::Both),
    ("more/v7-shared-file-two-mounts", How::Servers(TWO)),
    ("more/v9-two-clients-metadata", How::Servers(TWO)),
];

const OUTAGES: &str = "targets go away one by one or all at once, and requests in it wait for them; our \
    targets are stopped and started for one at a time";
const MDT_TWO: &str =
    "most of it goes to a second MDT, and its targets go away; ours are stopped one at a time";
const SIZES: &str = "striped files from before the capture, of which the capture has no layout; \
    `trusted.som` is not shown as an attribute here";
const LISTED: &str =
    "what other clients of before had made and removed in the directory is not in it";

/// Those of a Lustre under faults, in a folder of their own.
pub(crate) const OF_FAULTS: &[(&str, How)] = &[
    ("n1s-ost-restart-dirty-small", How::Not(OUTAGES)),
    ("n2-ost-crash-create", How::Not(OUTAGES)),
    ("n2b-server-kill-create", How::Not(MDT_TWO)),
    ("n2d-mdt-up-osts-down-create", How::Not(MDT_TWO)),
    ("n3b-crash-rename-replay", How::Servers(OUTAGE)),
    ("n4-dir-restripe", How::Both),
    ("n5-lsom", How::Not(SIZES)),
    ("n6-statahead-fname-striped", How::Both),
    ("n7-lockahead-group-two-mounts", How::Both),
    ("n8-readdir-lost-lock", How::Not(LISTED)),
    ("n9-net-cut-60s", How::Servers(TWO)),
    ("n10-migrate-shared-layout", How::Servers(TWO)),
];

/// How many are played to our servers, and to our client.
pub(crate) fn counts() -> (usize, usize) {
    let to_servers = CAPTURES.iter().filter(|(_, how)| how.is_to_servers()).count();
    (to_servers, CAPTURES.iter().filter(|(_, how)| how.is_to_client()).count())
}

/// The list for people.
pub(crate) fn table(captures: &[(&str, How)]) -> String {
    let mut text =
        String::from("| capture | to our servers | to our client | why not |\n|---|---|---|---|\n");
    for (name, how) in captures {
        let (servers, client, why) = match how {
            How::Both => ("yes", "yes", ""),
            How::Servers(why) => ("yes", "no", *why),
            How::Not(why) => ("no", "no", *why),
        };
        let _ = writeln!(text, "| {name} | {servers} | {client} | {why} |");
    }
    text
}

/// The captures that are there, by name.
pub(crate) fn found(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for (folder, prefix) in [(directory.to_owned(), ""), (directory.join("more"), "more/")] {
        if !folder.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(folder).expect("a folder of captures") {
            let path = entry.expect("a file").path();
            if path.extension().is_some_and(|it| it == "pcap") {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                names.push(format!("{prefix}{stem}"));
            }
        }
    }
    names.sort();
    names
}
