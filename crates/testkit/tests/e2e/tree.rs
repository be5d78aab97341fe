//! The parameter tree of a mount is that of a real client: every name that a recorded one has is here or
//! stands in docs/COMPAT.md with the reason why not, with the same mark, and its value has the same shape.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use sheen_testkit::cluster::{Cluster, program};
use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, ensure, root};

use sheen_skip::needs_captures;

const LIMIT: Duration = Duration::from_secs(300);
/// The recording of a client's parameters.
const RECORDING: &str = "more/g10-client-params-and-tools.txt";
/// The heading of the table of names that are not here.
const HEADING: &str = "## Parameters that do not apply";
/// The recorded client's file system, instance and MGS.
const THEIRS: [&str; 3] = ["lustre", "ff11000015cf2000", "MGC10.77.0.11@tcp"];
/// Targets that there are none of here.
const ABSENT: [&str; 3] = ["MDT0001", "OST0002", "OST0003"];

/// What is recorded of one command: its lines.
fn recorded(text: &str, command: &str) -> Vec<String> {
    let begin = format!("\n$ {command}\n");
    let Some((_, behind)) = text.split_once(&begin) else { return Vec::new() };
    let lines = behind.lines().take_while(|line| !line.starts_with("exit: "));
    lines
        .filter_map(|line| line.strip_prefix("stdout:"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned())
        .collect()
}

/// What `lctl` says of the mount alone: servers on the same machine have some of the names, too.
fn of_mount(cluster: &Cluster, words: &[&str]) -> Outcome<String> {
    let alone = cluster.logs().join("mount-alone");
    fs::create_dir_all(&alone).context(alone.display())?;
    let socket = format!("mount-{}.sock", cluster.mount_pid()?);
    let (socket, link) = (cluster.sockets().join(&socket), alone.join(socket));
    if !link.exists() {
        symlink(&socket, &link).context(socket.display())?;
    }
    let mut lctl = Command::new(program()?);
    let output =
        lctl.arg("lctl").args(words).env("SHEEN_RUN_DIR", &alone).output().context("lctl")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure(output.status.success(), || {
        format!("lctl {words:?}: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    Ok(text)
}

/// This mount's words for theirs.
struct Ours([String; 3]);

impl Ours {
    fn of(cluster: &Cluster) -> Outcome<Self> {
        let llite = cluster.must(&["lctl", "list_param", "llite.*"])?;
        let (fsname, instance) = llite
            .trim()
            .strip_prefix("llite.")
            .and_then(|it| it.split_once('-'))
            .ok_or(llite.clone())?;
        let mgc = cluster.must(&["lctl", "list_param", "mgc.*"])?;
        let mgc = mgc.trim().strip_prefix("mgc.").ok_or(mgc.clone())?;
        Ok(Self([fsname.to_owned(), instance.to_owned(), mgc.to_owned()]))
    }

    fn name(&self, theirs: &str) -> String {
        let Self(ours) = self;
        THEIRS
            .iter()
            .zip(ours)
            .fold(theirs.to_owned(), |name, (theirs, ours)| name.replace(theirs, ours))
    }
}

/// Rows of the table: a pattern of names with `*`, and whether it was of use.
fn excused() -> Outcome<Vec<(String, bool)>> {
    let text = fs::read_to_string(root().join("docs/COMPAT.md")).context("docs/COMPAT.md")?;
    let table = text.split_once(HEADING).map_or("", |(_, table)| table);
    let table = table.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    let names = rows.flat_map(|(names, _)| names.split('`').map(str::trim).collect::<Vec<_>>());
    Ok(names.filter(|name| !name.is_empty()).map(|name| (name.to_owned(), false)).collect())
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(tail, &rest[at..]))
        }),
    }
}

/// All names that the recording lists, with the mark where it shows one.
fn names(text: &str) -> BTreeMap<String, Option<&'static str>> {
    let mut names = BTreeMap::new();
    for command in [
        "lctl list_param -R osc.*OST0000*",
        "lctl list_param -R mdc.*MDT0000*",
        "lctl list_param -R llite",
        "lctl list_param -R lov lmv mgc",
        "lctl list_param -L ldlm.*",
    ] {
        names.extend(recorded(text, command).into_iter().map(|name| (name, None)));
    }
    for (name, _) in values(&recorded(text, "lctl get_param ldlm.namespaces.*OST0000*.*")) {
        names.insert(name, None);
    }
    for line in recorded(text, "lctl list_param -F '*' | head -60") {
        let mark = ["/", "="].into_iter().find(|mark| line.ends_with(mark)).unwrap_or("");
        names.insert(line.trim_end_matches(['/', '=']).to_owned(), Some(mark));
    }
    names.retain(|name, _| !ABSENT.iter().any(|absent| name.contains(absent)));
    names
}

fn everything_is_there(cluster: &Cluster) -> Outcome {
    let Some(folder) = needs_captures() else { return Ok(()) };
    let text = fs::read_to_string(folder.join(RECORDING)).context(RECORDING)?;
    let (ours, names) = (Ours::of(cluster)?, names(&text));
    ensure(names.len() > 400, || format!("only {} names are recorded", names.len()))?;
    let all = of_mount(cluster, &["list_param", "-F", "-R", "*"])?;
    let marked = |line: &str| {
        let mark = if line.ends_with('/') {
            "/"
        } else if line.ends_with('=') {
            "="
        } else {
            ""
        };
        (line.trim_end_matches(['/', '=']).to_owned(), mark)
    };
    let here: BTreeMap<String, &str> = all.lines().map(marked).collect();
    let mut excused = excused()?;
    let mut faults = Vec::new();
    for (name, mark) in &names {
        let row = excused.iter_mut().find(|(pattern, _)| matches(pattern, name));
        match (here.get(&ours.name(name)), row) {
            (None, None) => faults.push(format!("{name} is missing")),
            (None, Some((_, used))) => *used = true,
            (Some(_), Some((pattern, _))) => {
                faults.push(format!("{name} is here, in spite of {pattern}"))
            }
            (Some(here), None) if mark.is_some_and(|mark| mark != *here) => {
                faults.push(format!("{name} is marked {here:?}, not {mark:?}"));
            }
            (Some(_), None) => {}
        }
    }
    let unused = excused.iter().filter(|(_, used)| !used);
    faults.extend(
        unused.map(|(pattern, _)| format!("nothing that is recorded is excused by {pattern}")),
    );
    ensure(faults.is_empty(), || format!("{} faults:\n{}", faults.len(), faults.join("\n")))
}

#[test]
fn every_name_of_a_real_client_is_there_or_excused() {
    scene("tree", 2, LIMIT, everything_is_there);
}

/// Names and the lines of their values, as `get_param` prints them.
fn values(lines: &[String]) -> Vec<(String, Vec<String>)> {
    let mut values: Vec<(String, Vec<String>)> = Vec::new();
    for line in lines {
        let head = line.split_once('=').filter(|(name, _)| {
            ["llite.", "osc.", "mdc.", "mgc.", "lov.", "lmv.", "ldlm."]
                .iter()
                .any(|group| name.starts_with(group) && !name.contains(' '))
        });
        match (head, values.last_mut()) {
            (Some((name, "")), _) => values.push((name.to_owned(), Vec::new())),
            (Some((name, value)), _) => values.push((name.to_owned(), vec![value.to_owned()])),
            (None, Some((_, lines))) => lines.push(line.clone()),
            (None, None) => {}
        }
    }
    values
}

/// A line with a sign for every number, whatever its width, and for every name and UUID.
fn shape(line: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_matches(|letter| "(){}[],:;\"+%".contains(letter));
        let number = bare.strip_suffix('s').unwrap_or(bare);
        let is_number = !number.is_empty()
            && number
                .trim_start_matches("0x")
                .bytes()
                .all(|it| it.is_ascii_hexdigit() || it == b'.')
            && number.bytes().any(|it| it.is_ascii_digit());
        let is_name = ["@tcp", "_UUID", "lustre", "sheen-"].iter().any(|part| bare.contains(part))
            || bare.len() == 36 && bare.matches('-').count() == 4;
        if is_number || is_name { word.replace(bare, "#") } else { word.to_owned() }
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// How the values of a parameter are compared.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// The same lines.
    Same,
    /// Lines of the same kinds: what is counted differs.
    Kinds,
    /// The same keys in the same order, but for what the features of a connection decide.
    Keys,
    /// Words out of a list.
    Words,
}

fn rule(leaf: &str) -> Rule {
    match leaf {
        "import" | "ir_state" => Rule::Keys,
        "stats" | "md_stats" | "rpc_stats" | "io_latency_stats" | "state" | "timeouts"
        | "target_obd" | "read_ahead_stats" => Rule::Kinds,
        "connect_flags" | "sbi_flags" | "checksum_type" | "statfs_state" => Rule::Words,
        _ => Rule::Same,
    }
}

/// Keys of `import` that depend on what was agreed on, or on whether data was moved.
const DEPENDS: [&str; 18] = [
    "- { client",
    "initial_grant",
    "target_index",
    "max_brw_size",
    "ibits_known",
    "grant_block_size",
    "grant_inode_size",
    "grant_max_extent_size",
    "grant_extent_tax",
    "cksum_types",
    "max_easize",
    "max_object_bytes",
    "max_mod_rpcs",
    "read_data_averages",
    "write_data_averages",
    "bytes_per_rpc",
    "usecs_per_rpc",
    "MB_per_sec",
];

/// Counted lines by their kind: the first word is what is counted, or the class of a histogram.
fn kind(line: &str) -> String {
    let shape = shape(line);
    let behind = shape.split_once(' ').map_or("", |(_, behind)| behind);
    match line {
        _ if line.contains(" samples [") => format!("counter {behind}"),
        _ if line.contains("K: {") => "latencies".to_owned(),
        _ if line.starts_with("portal") => "portal".to_owned(),
        _ if line.starts_with(" - [") => "state".to_owned(),
        _ if line.starts_with("last reply") => "last reply".to_owned(),
        _ => shape,
    }
}

fn compare(leaf: &str, theirs: &[String], ours: &[String]) -> Result<(), String> {
    let shapes = |lines: &[String]| lines.iter().map(|line| shape(line)).collect::<Vec<_>>();
    let is_same = match rule(leaf) {
        Rule::Same => shapes(theirs) == shapes(ours),
        Rule::Kinds => {
            let theirs: BTreeSet<String> = theirs.iter().map(|line| kind(line)).collect();
            let known = |line: &String| {
                let kind = kind(line);
                // The units of a counter without an example are those of one that has one.
                theirs.contains(&kind) || kind.starts_with("counter # samples [")
            };
            ours.iter().all(known) && (ours.len() > 1 || theirs.len() < 2)
        }
        Rule::Keys => {
            let key = |line: &String| line.split(':').next().unwrap_or_default().to_owned();
            let known = |line: &String| !DEPENDS.contains(&key(line).trim()) && !line.contains('@');
            let keys =
                |lines: &[String]| lines.iter().filter(|line| known(line)).map(key).collect();
            let (theirs, ours): (Vec<_>, Vec<_>) = (keys(theirs), keys(ours));
            theirs == ours
        }
        Rule::Words => !ours.is_empty() || theirs == ["f"],
    };
    if is_same { Ok(()) } else { Err(format!("{theirs:#?}\nhere:\n{ours:#?}")) }
}

fn shapes_are_the_same(cluster: &Cluster) -> Outcome {
    let Some(folder) = needs_captures() else { return Ok(()) };
    let text = fs::read_to_string(folder.join(RECORDING)).context(RECORDING)?;
    let ours = Ours::of(cluster)?;
    // Something of everything is counted.
    let mnt = cluster.mnt();
    fs::create_dir(mnt.join("folder")).context("mkdir")?;
    fs::write(mnt.join("folder/file"), vec![1; 3 << 20]).context("write")?;
    fs::File::open(mnt.join("folder/file")).and_then(|file| file.sync_all()).context("fsync")?;
    fs::read(mnt.join("folder/file")).context("read")?;
    let (mut faults, mut compared) = (Vec::new(), 0);
    for pattern in [
        "llite.*.*",
        "lov.*.*",
        "lmv.*.*",
        "mgc.*.*",
        "osc.*OST0000*.*",
        "mdc.*MDT0000*.*",
        "ldlm.namespaces.*OST0000*.*",
        "ldlm.namespaces.*MDT0000*.*",
    ] {
        let theirs = values(&recorded(&text, &format!("lctl get_param {pattern}")));
        ensure(!theirs.is_empty(), || format!("{pattern}: nothing recorded"))?;
        let shown = of_mount(cluster, &["get_param", pattern])?;
        let lines: Vec<String> = shown.lines().map(str::to_owned).collect();
        let here: BTreeMap<String, Vec<String>> = values(&lines).into_iter().collect();
        for (name, theirs) in theirs {
            let Some(value) = here.get(&ours.name(&name)) else { continue };
            let leaf = name.rsplit('.').next().unwrap_or_default();
            compared += 1;
            if let Err(fault) = compare(leaf, &theirs, value) {
                faults.push(format!("{name}: {fault}"));
            }
        }
    }
    ensure(compared > 150, || format!("only {compared} values were compared"))?;
    ensure(faults.is_empty(), || format!("{} faults:\n{}", faults.len(), faults.join("\n")))
}

#[test]
fn values_have_the_shape_of_a_real_clients() {
    scene("shapes", 2, LIMIT, shapes_are_the_same);
}
