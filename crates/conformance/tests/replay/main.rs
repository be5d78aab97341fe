//! Captured conversations, played again: a real client's side to our servers, and a real server's
//! to our client.

mod answering;
mod asking;
mod bulk;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod fields;
mod known;
mod learn;
mod mapping;
mod mounts;
mod outages;
mod player;
mod script;
mod stage;
mod survey;

use std::collections::BTreeMap;
use std::path::Path;

use cluster::Machines;
use compare::Difference;
use known::Known;
use player::{Outcome, Player};
use survey::How;

/// The captures of one session with one client, in the order of the session.
const SESSION: &[&str] = &[
    "b1-mkdir-create-stat-unlink",
    "b2-rename-link-symlink",
    "b3-setattr-xattr",
    "b4-readdir-many",
    "b5-open-excl-errors",
    "c1-io-4k-1stripe",
    "c2-io-1M-odirect-1stripe",
    "c3-io-8M-4stripe",
];
/// Captures that are played each for itself: of a node with two mounts or two nodes, and with what
/// was there before.
const ALONE: &[&str] = &[
    "f1-two-mounts-contention",
    "f2-glimpse-while-writing",
    "more/i1-cold-seq-read-3M",
    "more/i2-ior-hard-strided",
    "more/i3-random-4k-read",
    "more/i4-short-io-4k",
    "more/i5-sparse-seek-hole",
    "more/i6-fallocate-punch",
    "more/i7-mmap-two-mounts",
    "more/i8-append-two-mounts",
    "more/l1-fcntl-ranges",
    "more/l2-fcntl-blocking",
    "more/l3-fcntl-deadlock",
    "more/l4-flock-two-mounts",
    "more/m1-second-client-mount-hello",
    "more/m2-mount-ro",
    "more/m3-fileset",
    "more/g1-jobstats",
    "more/m4-localflock",
    "more/r1-mdt-restart-open-files",
    "more/r2-mdt-replay-uncommitted",
    "more/r6-admin-evict",
    "more/r7-frozen-client-evicted",
    "more/s1-statahead-ls-l-500",
    "more/s2-statahead-mixed-types",
    "more/v5-grouplock-lockahead",
    "more/v7-shared-file-two-mounts",
    "more/v9-two-clients-metadata",
];
/// Captures of files in components, overstriped or on the MDT, with two mounts; the ones after the first of a list
/// use what it makes.
const LAYOUTS: &[&[&str]] = &[
    &["d1-pfl-dom"],
    &["d2-pfl-3comp-dirdefault"],
    &["d3-overstripe-C8"],
    &["more/v1-overstripe"],
    &["more/v3-stripes-2000"],
    &["more/o4-lfs-find-mdt-layout"],
    &["more/o1-dom-small-file", "more/o2-dom-stat-while-dirty"],
    &["more/o12-dom-two-mounts-append-truncate"],
];
/// Captures of directories and files over two MDTs.
const OVER_MDTS: &[&str] = &[
    "e1-dne-remote-dir",
    "e2-dne-striped-dir",
    "e3-dne-default-dirstripe",
    "more/d1-rename-link-across-mdts",
    "more/d2-striped-dir-hashes",
    "more/d3-dirstripe-get-set-options",
    "more/d4-migrate-m",
    "more/d5-mkdir-overstripe-unlink",
    "more/d6-readdir-striped-1000",
];
/// Captures of a Lustre under faults, two mounts on a node, that are played each for itself.
const OF_FAULTS: &[&str] = &[
    "n10-migrate-shared-layout",
    "n3b-crash-rename-replay",
    "n4-dir-restripe",
    "n6-statahead-fname-striped",
    "n7-lockahead-group-two-mounts",
    "n9-net-cut-60s",
];
/// Answers in them that are compared; the document says so, too.
const ANSWERS_OF_FAULTS: usize = 2_584;
/// Captures whose MDTs split and merged directories on demand (`enable_dir_restripe`).
const RESTRIPED: &[&str] = &["n4-dir-restripe"];
/// Captures that are played up to their first rename.
const UNTIL_RENAME: &[&str] = &["more/o12-dom-two-mounts-append-truncate"];
/// Answers in them that are compared; the document says so, too.
const ANSWERS: usize = 9_951;
/// Requests of our client that are answered from captures; the document says so, too.
const REQUESTS: usize = 2_707;
/// Names in batches of our client that are answered each for itself; the document says so, too.
const NAMES_IN_BATCHES: usize = 1_165;
/// The same of the captures of a Lustre under faults.
const REQUESTS_OF_FAULTS: (usize, usize) = (937, 758);
/// The capture of a mount, which connects.
const MOUNT: &str = "a-mount-umount";

/// MDTs of the captured file systems, and of ours.
const MDTS: u16 = 2;

/// Plays the mount and then captures in `directory` of a node with `mounts` mounts.
fn play(directory: &Path, names: &[&str], mounts: usize) -> Vec<(String, Outcome)> {
    play_of(directory, directory, names, mounts)
}

/// As [`play`], with captures of another folder than that of the mount.
fn play_of(
    directory: &Path,
    folder: &Path,
    names: &[&str],
    mounts: usize,
) -> Vec<(String, Outcome)> {
    let common::Servers { world, client, cluster } = common::start_mdts(1, MDTS);
    assert_eq!(cluster.places.len(), 1 + usize::from(MDTS + common::OSTS));
    let machines = Machines::new(&world, cluster);
    let is_restriped = names.iter().any(|name| RESTRIPED.contains(name));
    if is_restriped {
        machines.restripe_directories();
    }
    let mut player = Player::new(&client, world.world(), machines);
    if is_restriped {
        player.keep_pauses();
    }
    let read = |name: &str| script::read(&folder.join(format!("{name}.pcap")));
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let scripts: Vec<_> = names.iter().map(|name| read(name)).collect();
    let mount = script::read(&directory.join(format!("{MOUNT}.pcap")));
    world.run(async move {
        player.begin(1);
        // The captured mount ends; that of the session that follows was not captured.
        let ends = |exchange: &script::Exchange| player::is_leaving(&exchange.request.typed);
        let mut outcomes = vec![(MOUNT.to_owned(), player.play(&mount, ends).await)];
        player.cancel_all().await;
        player.begin(mounts);
        for (name, script) in names.into_iter().zip(scripts) {
            if let Some(default) = stage::default_of_root(&script) {
                player.set_default_of_root(default).await;
            }
            let contents = stage::contents(&script);
            for entry in stage::entries(&script) {
                player.make(&entry, &contents).await;
            }
            let ends = |exchange: &script::Exchange| {
                UNTIL_RENAME.contains(&&*name) && player::is_rename(&exchange.request.typed)
            };
            let outcome = player.play(&script, ends).await;
            outcomes.push((name, outcome));
        }
        outcomes
    })
}

#[test]
fn our_servers_answer_as_the_real_ones_did() {
    let Some(directory) = sheen_skip::needs_captures() else { return };
    let mut outcomes = play(&directory, SESSION, 1);
    for name in ALONE {
        let mounts = if name.starts_with("more/r7") { 4 } else { 2 };
        outcomes.extend(play(&directory, &[*name], mounts).into_iter().skip(1));
    }
    for names in LAYOUTS {
        outcomes.extend(play(&directory, names, 2).into_iter().skip(1));
    }
    for name in OVER_MDTS {
        outcomes.extend(play(&directory, &[*name], 1).into_iter().skip(1));
    }
    let mut all = Vec::new();
    let mut played = 0;
    for (name, outcome) in outcomes {
        played += outcome.played;
        println!("{name}: {} answers compared, left out: {:?}", outcome.played, outcome.skipped);
        all.extend(outcome.differences);
    }
    println!("{played} answers compared");
    check(known::ANSWERED, &all);
    assert_eq!(
        played, ANSWERS,
        "answers were compared; the number belongs here and in the document"
    );
}

#[test]
fn our_servers_answer_as_the_real_ones_did_under_faults() {
    let Some(directory) = sheen_skip::needs_captures() else { return };
    let Some(folder) = sheen_skip::needs_captures_of_faults() else { return };
    let (mut all, mut played) = (Vec::new(), 0);
    for name in OF_FAULTS {
        let outcomes = play_of(&directory, &folder, &[name], 2);
        let (name, outcome) = outcomes.last().expect("what was played last");
        println!("{name}: {} answers compared, left out: {:?}", outcome.played, outcome.skipped);
        played += outcome.played;
        all.extend_from_slice(&outcome.differences);
    }
    // What other captures do not show; what they show need not be in these.
    let (unknown, _) = known::sort(known::ANSWERED, &all);
    let unknown: Vec<_> = unknown.into_iter().cloned().collect();
    check(known::ANSWERED_UNDER_FAULTS, &unknown);
    assert_eq!(played, ANSWERS_OF_FAULTS, "the number belongs here and in the document");
}

/// Fails for a difference that the list does not have, and for an entry without one.
fn check(list: &[Known], differences: &[Difference]) {
    let (unknown, unseen) = known::sort(list, differences);
    println!("{} differences, {} of them not known", differences.len(), unknown.len());
    for difference in &unknown {
        println!("{difference}");
    }
    assert!(unknown.is_empty(), "differences that are not in the list; see above");
    assert_eq!(unseen, [""; 0], "entries of the list that nothing shows any more");
}

#[test]
fn our_client_asks_as_the_real_one_did() {
    let Some(directory) = sheen_skip::needs_captures() else { return };
    let (mut answered, mut in_batches, mut differences) = (0, 0, Vec::new());
    for asking::Played { captures, heard } in asking::run(&directory, MOUNT, SESSION) {
        let (requests, names) = (heard.answered, heard.parts);
        println!("{}: {requests} requests were answered, {names} names", captures.join(", "));
        assert_eq!(heard.strange, BTreeMap::new(), "requests that the real client never sent");
        answered += heard.answered;
        in_batches += heard.parts;
        differences.extend(heard.differences);
    }
    println!("{answered} requests were answered");
    check(known::ASKED, &differences);
    assert_eq!(in_batches, NAMES_IN_BATCHES, "the number belongs here and in the document");
    assert_eq!(answered, REQUESTS, "the number belongs here and in the document");
}

#[test]
fn our_client_asks_as_the_real_one_did_under_faults() {
    let Some(directory) = sheen_skip::needs_captures() else { return };
    let Some(folder) = sheen_skip::needs_captures_of_faults() else { return };
    let (mut answered, mut in_batches, mut all) = (0, 0, Vec::new());
    for asking::Played { captures, heard } in asking::run_of_faults(&directory, &folder, MOUNT) {
        let (requests, names) = (heard.answered, heard.parts);
        println!("{}: {requests} requests were answered, {names} names", captures.join(", "));
        assert_eq!(heard.strange, BTreeMap::new(), "requests that the real client never sent");
        answered += heard.answered;
        in_batches += heard.parts;
        all.extend(heard.differences);
    }
    let (unknown, _) = known::sort(known::ASKED, &all);
    let unknown: Vec<_> = unknown.into_iter().cloned().collect();
    check(known::ASKED_UNDER_FAULTS, &unknown);
    assert_eq!(
        (answered, in_batches),
        REQUESTS_OF_FAULTS,
        "the numbers belong here and in the document"
    );
}

/// Those of directories on the second MDT excused the same of every file, link and directory.
#[test]
fn an_entry_of_some_requests_excuses_no_other() {
    let difference = |packet: u32| compare::Difference {
        message: "MDS_REINT_CREATE_ACL".to_owned(),
        field: "rec_reint.bias.SETSTRIPE_CREATE".to_owned(),
        real: "not set".to_owned(),
        ours: "set".to_owned(),
        place: format!("b4-readdir-many, packet {packet}"),
    };
    let all = [difference(2), difference(3)];
    let (unknown, _) = known::sort(known::ASKED, &all);
    assert_eq!(unknown, [&all[1]]);
}

/// Set by `cargo xtask docs`: write the document instead of comparing it.
const WRITE: &str = "SHEEN_WRITE_DOCS";

#[test]
fn every_capture_is_accounted_for() {
    println!("{}", survey::table(survey::CAPTURES));
    let names = |wanted: fn(&How) -> bool| {
        let all = survey::CAPTURES.iter().filter(move |(_, how)| wanted(how));
        let mut names: Vec<_> = all.map(|(name, _)| (*name).to_owned()).collect();
        names.sort();
        names
    };
    let sorted = |names: &[&[&str]]| {
        let mut all: Vec<_> = names.concat().iter().map(|name| (*name).to_owned()).collect();
        all.sort();
        all
    };
    let layouts = LAYOUTS.concat();
    let to_servers = sorted(&[&[MOUNT], SESSION, ALONE, &layouts, OVER_MDTS]);
    assert_eq!(names(How::is_to_servers), to_servers, "played to our servers");
    let to_client = sorted(&[&[MOUNT], SESSION, &asking::ALONE]);
    assert_eq!(names(How::is_to_client), to_client, "played to our client");
    if let Some(directory) = sheen_skip::needs_captures() {
        assert_eq!(names(|_| true), survey::found(&directory), "captures that are there");
    }
}

#[test]
fn every_capture_of_faults_is_accounted_for() {
    let names = |wanted: fn(&How) -> bool| {
        let all = survey::OF_FAULTS.iter().filter(move |(_, how)| wanted(how));
        let mut names: Vec<_> = all.map(|(name, _)| (*name).to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(How::is_to_servers), OF_FAULTS, "played to our servers");
    assert_eq!(names(How::is_to_client), asking::OF_FAULTS, "played to our client");
    if let Some(folder) = sheen_skip::needs_captures_of_faults() {
        assert_eq!(names(|_| true), survey::found(&folder), "captures that are there");
    }
}

/// A document with parts that are made: their names and texts.
type Document = (&'static str, Vec<(&'static str, String)>);

fn documents() -> [Document; 2] {
    let compat = vec![
        ("answers", known::table(known::ANSWERED)),
        ("answers under faults", known::table(known::ANSWERED_UNDER_FAULTS)),
        ("requests", known::table(known::ASKED)),
        ("requests under faults", known::table(known::ASKED_UNDER_FAULTS)),
    ];
    let captures = vec![
        ("captures", survey::table(survey::CAPTURES)),
        ("captures of faults", survey::table(survey::OF_FAULTS)),
    ];
    [("COMPAT", compat), ("CONFORMANCE", captures)]
}

#[test]
fn the_documents_show_the_lists() {
    for (name, parts) in documents() {
        let path = format!("{}/../../docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
        let found = std::fs::read_to_string(&path).expect("the document is there");
        let mut wanted = found.clone();
        for (part, text) in parts {
            let (begin, end) =
                (format!("<!-- {part}: begin -->\n"), format!("<!-- {part}: end -->\n"));
            let (head, rest) = wanted.split_once(&begin).expect("where it begins");
            let (_, tail) = rest.split_once(&end).expect("where it ends");
            wanted = format!("{head}{begin}{text}{end}{tail}");
        }
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &wanted).expect("the document can be written");
        } else {
            assert!(found == wanted, "docs/{name}.md is out of date; run `cargo xtask docs`");
        }
    }
}

#[test]
fn the_document_says_how_much_is_played() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/COMPAT.md");
    let found = std::fs::read_to_string(path).expect("the document is there");
    let (to_servers, to_client) = survey::counts();
    let thousands = |number: usize| format!("{},{:03}", number / 1000, number % 1000);
    let words = found.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [
        format!("{} answers of {to_servers} captures", thousands(ANSWERS)),
        format!("{} requests of {to_client} captures", thousands(REQUESTS)),
        format!("{} requests of {}", REQUESTS_OF_FAULTS.0, asking::OF_FAULTS.len()),
        format!("the {} names in our batches", thousands(NAMES_IN_BATCHES)),
        format!("{} answers of {} of them", thousands(ANSWERS_OF_FAULTS), OF_FAULTS.len()),
    ] {
        assert!(words.contains(&text), "docs/COMPAT.md does not say: {text}");
    }
}
