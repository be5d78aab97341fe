//! All parameters that can be written, on a running file system: they take what Lustre's take and show it as
//! Lustre's do, and none is without a test of its effect.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use sheen_control::api::SET_PARAM;
use sheen_control::{Access, Client, ControlReply, ControlRequest, Shown};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure, root};

use self::table::{ANY, Row, TABLE};

const LIMIT: Duration = Duration::from_secs(300);
/// Servers count what other servers ask for, too: it is seldom.
const QUIET: Duration = Duration::from_secs(30);

/// `a.{b,c}` is `a.b` and `a.c`.
fn expanded(name: &str) -> Vec<String> {
    let Some((head, (inside, tail))) =
        name.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)))
    else {
        return vec![name.to_owned()];
    };
    inside.split(',').flat_map(|one| expanded(&format!("{head}{one}{tail}"))).collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name
            .strip_prefix(head)
            .is_some_and(|rest| rest.strip_suffix(tail).is_some_and(|middle| !middle.is_empty())),
    }
}

/// The names that can be written, without second names of the same.
fn writable(cluster: &Cluster) -> Outcome<Vec<String>> {
    let listed = cluster.must(&["lctl", "list_param", "-F", "-R", "-L", "*"])?;
    Ok(listed.lines().filter_map(|line| line.strip_suffix('=')).map(str::to_owned).collect())
}

/// None is forgotten, and none is in the table that is not there.
fn table_is_whole(cluster: &Cluster) -> Outcome {
    // The MDT hears of its OSTs after the mount, maybe.
    let has_osts = || shown(cluster, "osp.*.active").is_ok_and(|text| text.lines().count() == 2);
    wait_until("the OSTs of the MDT", QUIET, has_osts)?;
    let names = writable(cluster)?;
    ensure(names.len() > 150, || format!("only {} names", names.len()))?;
    let patterns: Vec<String> = TABLE.iter().flat_map(|row| expanded(row.name)).collect();
    let rows = |name: &str| patterns.iter().filter(|pattern| matches(pattern, name)).count();
    let of_rows = names.iter().map(|name| (rows(name), name)).filter(|(rows, _)| *rows != 1);
    let mut faults: Vec<String> =
        of_rows.map(|(rows, name)| format!("{name} is in {rows} rows")).collect();
    let unused = patterns.iter().filter(|it| !names.iter().any(|name| matches(it, name)));
    faults.extend(unused.map(|pattern| format!("nothing is called {pattern}")));
    ensure(faults.is_empty(), || faults.join("\n"))
}

/// Names of all functions below a folder.
fn functions(folder: &Path, names: &mut BTreeSet<String>) -> Outcome {
    for entry in fs::read_dir(folder).context("crates")? {
        let path = entry.context("crates")?.path();
        if path.is_dir() {
            functions(&path, names)?;
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).context("a source")?;
            let named = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
            names.extend(named.filter_map(|rest| Some(rest.split_once('(')?.0.to_owned())));
        }
    }
    Ok(())
}

#[test]
fn whatever_can_be_set_has_a_test_of_its_effect() {
    let missing = || -> Outcome<Vec<String>> {
        let mut names = BTreeSet::new();
        functions(&root().join("crates"), &mut names)?;
        let docs = fs::read_to_string(root().join("docs/COMPAT.md")).context("docs/COMPAT.md")?;
        let is_there = |row: &&Row| match row.effect.strip_prefix("docs: ") {
            Some(sentence) => docs.contains(sentence),
            None => names.contains(row.effect),
        };
        let missing = TABLE.iter().filter(|row| !is_there(row));
        Ok(missing.map(|row| format!("{}: {}", row.name, row.effect)).collect())
    };
    assert_eq!(missing(), Ok(Vec::new()));
}

/// What all processes answer, of those that have the same parameter the first one: as `lctl`, of which there
/// would be a thousand.
fn ask(cluster: &Cluster, question: &ControlRequest) -> Outcome<BTreeMap<String, Shown>> {
    let mut all = BTreeMap::new();
    for mut process in Client::all(cluster.sockets()) {
        let ControlReply::Shown(shown) = process.ask(question).context("a process")? else {
            return Err(format!("{question:?}: another answer"));
        };
        for one in shown {
            all.entry(one.name.clone()).or_insert(one);
        }
    }
    Ok(all)
}

/// What can be written and not read is an order: none is taken for good.
fn orders_are_not_for_good(cluster: &Cluster) -> Outcome {
    let mut orders = BTreeSet::new();
    for (mut process, depth) in (1..=5)
        .flat_map(|depth| Client::all(cluster.sockets()).into_iter().map(move |it| (it, depth)))
    {
        let pattern = vec!["*"; depth].join(".");
        let ControlReply::Listed(all) =
            process.ask(&ControlRequest::List { pattern }).context("a process")?
        else {
            return Err("another answer to a list".into());
        };
        orders.extend(
            all.into_iter().filter(|one| one.access == Some(Access::Write)).map(|one| one.name),
        );
    }
    ensure(orders.len() > 8, || format!("{orders:?}"))?;
    for name in &orders {
        let arguments = vec![format!("{name}=1")];
        let question = ControlRequest::Command { name: SET_PARAM.to_owned(), arguments };
        let mut answers = Vec::new();
        for mut process in Client::all(cluster.sockets()) {
            answers.push(process.ask(&question).context("a process")?);
        }
        let is_refused =
            |answer: &ControlReply| matches!(answer, ControlReply::Failed { errno: 22, .. });
        ensure(answers.iter().any(is_refused), || format!("set_param -P {name}: {answers:?}"))?;
    }
    Ok(())
}

/// What is shown of all that match, a line each or more.
fn shown(cluster: &Cluster, name: &str) -> Outcome<String> {
    let all = ask(cluster, &ControlRequest::Get { pattern: name.to_owned() })?;
    ensure(!all.is_empty(), || format!("{name}: nothing"))?;
    let texts = all.values().map(|one| format!("{}\n", one.value.trim_end_matches('\n')));
    Ok(texts.collect())
}

fn set(cluster: &Cluster, name: &str, value: &str) -> Outcome {
    let all =
        ask(cluster, &ControlRequest::Set { pattern: name.to_owned(), value: value.to_owned() })?;
    let wrong = all.values().find(|one| one.errno != 0).map(|one| (&one.name, one.errno));
    ensure(!all.is_empty() && wrong.is_none(), || format!("{name}={value}: {wrong:?}"))
}

/// Writes all of a row and looks at what is shown; then it is as it was.
fn set_all(cluster: &Cluster, name: &str, values: &[(&str, &str)]) -> Outcome {
    let Some((_, last)) = values.last() else { return Ok(()) };
    let before = shown(cluster, name)?;
    for (written, wanted) in values {
        set(cluster, name, written)?;
        let now = shown(cluster, name)?;
        let mut lines = now.lines().map(str::trim_end);
        let is_so = match *wanted {
            ANY => continue,
            wanted if wanted.contains(": ") => lines.any(|line| line == wanted),
            wanted => lines.all(|line| line == wanted),
        };
        ensure(is_so, || format!("{name}={written}: {now} instead of {wanted}"))?;
    }
    match before.contains(": ") {
        _ if *last == ANY || shown(cluster, name)? == before => Ok(()),
        true => set(cluster, name, &before),
        false => set(cluster, name, before.lines().next().unwrap_or_default()),
    }
}

#[test]
fn values_are_taken_and_shown_as_lustres() {
    scene("settings", 2, LIMIT, |cluster| {
        table_is_whole(cluster)?;
        let all =
            TABLE.iter().flat_map(|row| expanded(row.name).into_iter().map(move |it| (it, row)));
        let faults = all.filter_map(|(name, row)| set_all(cluster, &name, row.values).err());
        let faults: Vec<_> = faults.collect();
        ensure(faults.is_empty(), || faults.join("\n"))?;
        orders_are_not_for_good(cluster)?;
        headers(cluster)?;
        sessions(cluster)?;
        counted_anew(cluster)
    });
}

/// Statistics say since when they count, or only when they were read.
fn headers(cluster: &Cluster) -> Outcome {
    for (on, has_start) in [("0", false), ("1", true)] {
        set(cluster, "enable_stats_header", on)?;
        for name in ["llite.*.stats", "mdt.*.md_stats", "osc.*.rpc_stats", "osd-*.*.brw_stats"] {
            let text = shown(cluster, name)?;
            ensure(text.contains("snapshot_time"), || format!("{name}: {text}"))?;
            ensure(text.contains("start_time") == has_start, || format!("{on}: {name}: {text}"))?;
        }
    }
    Ok(())
}

/// What a session's processes do is done for the job that the session is said to be.
fn sessions(cluster: &Cluster) -> Outcome {
    for (name, value) in
        [("jobid_var", "session"), ("jobid_name", "%j"), ("jobid_this_session", "our-job")]
    {
        set(cluster, name, value)?;
    }
    fs::create_dir(cluster.mnt().join("of-a-session")).context("mkdir")?;
    let jobs = shown(cluster, "mdt.*.job_stats")?;
    ensure(jobs.contains("our-job"), || jobs.clone())
}

/// How many lines count something.
fn counts(text: &str) -> usize {
    let has_number = |text: &str| {
        let mut words = text.split(|letter: char| !letter.is_ascii_digit());
        words.any(|word| word.parse::<u64>().is_ok_and(|number| number > 0))
    };
    let is_count = |line: &&str| {
        let is_now = ["in flight:", "pending", "_time"].iter().any(|word| line.contains(word));
        let first = line.split_whitespace().next().unwrap_or_default();
        let is_one = line.contains(" samples [") || ["R", "W"].contains(&first);
        is_one || !is_now && line.split_once(':').is_some_and(|(_, behind)| has_number(behind))
    };
    text.lines().filter(is_count).count()
}

/// Something of everything.
fn work(cluster: &Cluster) -> Outcome {
    const BYTES: usize = 2 << 20;
    set(cluster, "llite.*.extents_stats", "1")?;
    let folder = cluster.mnt().join("counted");
    fs::create_dir(&folder).context("mkdir")?;
    for at in 0..20 {
        fs::write(folder.join(at.to_string()), vec![7; BYTES / 20]).context("write")?;
    }
    let path = folder.join("whole");
    fs::write(&path, vec![7; BYTES]).context("write")?;
    fs::File::open(&path).and_then(|file| file.sync_all()).context("fsync")?;
    cluster.drop_locks()?;
    let file = fs::File::open(&path).context("open")?;
    let mut piece = vec![0; BYTES / 16];
    for at in 0..16 {
        file.read_exact_at(&mut piece, at * (BYTES as u64 / 16)).context("read")?;
    }
    for entry in fs::read_dir(&folder).context("readdir")? {
        entry.and_then(|entry| entry.metadata()).context("stat")?;
    }
    Ok(())
}

/// Whatever is written to statistics, they begin anew.
fn counted_anew(cluster: &Cluster) -> Outcome {
    // The MDT may have heard of the OSTs while they were set to take no new objects, and believes that for a moment.
    let probe = cluster.mnt().join("probe");
    wait_until("OSTs that take objects", QUIET, || fs::write(&probe, "x").is_ok())?;
    work(cluster)?;
    let rows = TABLE.iter().filter(|row| row.effect == "counted_anew");
    let names: Vec<String> = rows.flat_map(|row| expanded(row.name)).collect();
    for name in &names {
        let text = shown(cluster, name)?;
        ensure(counts(&text) > 0, || format!("{name}: nothing was counted: {text}"))?;
    }
    for name in &names {
        let cleared = || {
            let is_set = set(cluster, name, "clear").is_ok();
            is_set && shown(cluster, name).is_ok_and(|text| counts(&text) == 0)
        };
        wait_until(&format!("nothing in {name}"), QUIET, cleared)?;
    }
    Ok(())
}
