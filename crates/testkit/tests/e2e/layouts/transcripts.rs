//! Every recorded command about layouts, run here: exit codes and the facts of the output are those
//! of the recording, but for the differences that docs/COMPAT.md lists, each with its reason. A listed
//! difference that is none any more is a fault, too.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;
use std::time::Duration;

use sheen_testkit::cluster::{Cluster, program};
use sheen_testkit::scene::play;
use sheen_workloads::{Context, Outcome, ensure, root};

use super::recorded::{commands, is_of_second_mdt, pieces, same, steps};
use sheen_skip::needs_captures;

const LIMIT: Duration = Duration::from_secs(600);
/// The heading of the table of differences.
const HEADING: &str = "## Layout commands that differ";
/// The recorded servers had four OSTs.
const OSTS: u32 = 4;

/// Differences that are known: the recording and the command.
type Known = BTreeMap<(String, String), bool>;

/// The table of differences in docs/COMPAT.md: recording, command, what is otherwise and why.
fn known(recording: &str) -> Outcome<Known> {
    let text = fs::read_to_string(root().join("docs/COMPAT.md")).context("docs/COMPAT.md")?;
    let table = text.split_once(HEADING).map_or("", |(_, table)| table);
    let table = table.split("\n## ").next().unwrap_or_default();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (name, command) =
            (cells.next()?.to_owned(), cells.next()?.trim_matches('`').to_owned());
        (name == recording).then_some(((name, command.replace("\\|", "|")), false))
    };
    Ok(table.lines().filter_map(row).collect())
}

/// Faults that are not known, and knowledge of faults that are none.
pub(super) struct Judge {
    recording: String,
    known: Known,
    faults: Vec<String>,
}

impl Judge {
    pub(super) fn new(recording: &str) -> Outcome<Self> {
        let known = known(recording)?;
        Ok(Self { recording: recording.to_owned(), known, faults: Vec::new() })
    }

    pub(super) fn differs(&mut self, command: &str, what: String) {
        match self.known.get_mut(&(self.recording.clone(), command.to_owned())) {
            Some(seen) => *seen = true,
            None => self.faults.push(format!("{command}\n    {what}")),
        }
    }

    pub(super) fn verdict(self) -> Outcome {
        let unseen = self.known.iter().filter(|(_, seen)| !**seen);
        let unseen = unseen.map(|((_, command), _)| format!("{command}\n    no longer differs"));
        let faults: Vec<String> = self.faults.iter().cloned().chain(unseen).collect();
        ensure(faults.is_empty(), || {
            format!("{}: {} differences:\n{}", self.recording, faults.len(), faults.join("\n"))
        })
    }
}

/// `lfs` and `lctl` by their names.
pub(super) fn tools(cluster: &Cluster) -> Outcome<PathBuf> {
    let folder = cluster.logs().join("tools");
    fs::create_dir_all(&folder).context(folder.display())?;
    for name in ["lfs", "lctl"] {
        let link = folder.join(name);
        if !link.exists() {
            symlink(program()?, &link).context(link.display())?;
        }
    }
    Ok(folder)
}

/// A shell in this file system's surroundings.
pub(super) fn shell(cluster: &Cluster, script: &str) -> Outcome<Process> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut process = Process::new("timeout");
    process.args(["120", "bash", "-c", script]).env_clear();
    process.env("PATH", format!("{}:{path}", tools(cluster)?.display()));
    process.env("HOME", cluster.logs());
    for (name, value) in cluster.command(&[]).get_envs() {
        process.env(name, value.unwrap_or_default());
    }
    process.current_dir(cluster.mnt());
    Ok(process)
}

/// A recording; what programs print need not be text.
pub(super) fn read(file: &Path) -> Outcome<String> {
    let bytes = fs::read(file).context(file.display())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a transcript: codes, and the standard output of what succeeds.
fn run_transcript(cluster: &Cluster, file: &Path, wanted: fn(&str) -> bool) -> Outcome {
    let name =
        file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let text = read(file)?;
    let mount = cluster.mnt().display().to_string();
    let mut judge = Judge::new(&name)?;
    let mut folder = cluster.mnt();
    for command in commands(&text) {
        let here = command.text.replace("/mnt/l", &mount);
        if let Some(path) = here.strip_prefix("cd ") {
            folder = PathBuf::from(path);
            fs::create_dir_all(&folder).context(path)?;
            continue;
        }
        let Some(code) = command.code.filter(|_| wanted(&command.text)) else {
            if command.code.is_none() {
                shell(cluster, &here)?.current_dir(&folder).output().context(&here)?;
            }
            continue;
        };
        let output = shell(cluster, &here)?.current_dir(&folder).output().context(&here)?;
        let ours = output.status.code().unwrap_or(-1);
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if ours != code {
            judge.differs(&command.text, format!("exit {ours} instead of {code}: {said}"));
            continue;
        }
        // Wrong command lines bring Lustre's tools to print their usage: ours is in other words.
        let out = String::from_utf8_lossy(&output.stdout).replace(&mount, "/mnt/l");
        let facts = |line: &str| Some(same(line)).filter(|line| !line.is_empty());
        let ours: Vec<String> = out.lines().filter_map(facts).collect();
        let theirs = command.out.iter().filter(|line| !is_of_second_mdt(line));
        let theirs: Vec<String> = theirs.filter_map(|line| facts(line)).collect();
        if code == 0 && ours != theirs {
            judge.differs(&command.text, format!("{ours:?} instead of {theirs:?}"));
        } else if code != 0 && command.says && said.is_empty() && out.is_empty() {
            judge.differs(&command.text, "says nothing".to_owned());
        }
    }
    judge.verdict()
}

/// Runs the steps of a log up to `until`, and compares the traces piece by piece; answers our own.
pub(super) fn run_log(cluster: &Cluster, file: &Path, until: Option<&str>) -> Outcome<String> {
    let name =
        file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let text = read(file)?;
    let mount = cluster.mnt().display().to_string();
    let again = second_mount(cluster)?;
    let (mut judge, mut all) = (Judge::new(&name)?, String::new());
    for step in steps(&text) {
        // What needs privilege, and what another part of the protocol is about.
        let drop = " echo 3 > /proc/sys/vm/drop_caches;";
        let script = step.script.replace(drop, "");
        let script = script.replace("lfs mkdir -i 0 ", "mkdir ");
        // The bytes before these five are random.
        let script = script.replace("tail -c 10 ", "tail -c 5 ");
        let trace = match step.script.contains(drop) {
            true => step.trace.replace("+ echo 3\n", ""),
            false => step.trace,
        };
        let trace = trace.replace("+ lfs mkdir -i 0 ", "+ mkdir ");
        let trace = trace.replace("+ tail -c 10 ", "+ tail -c 5 ");
        let script = match until {
            Some(until) => script.split(until).next().unwrap_or_default().to_owned(),
            None => script,
        };
        let here = script.replace("/mnt/l2", &again).replace("/mnt/l", &mount);
        let output =
            shell(cluster, &format!("exec 2>&1; set -x; {here}"))?.output().context(&name)?;
        let ours = String::from_utf8_lossy(&output.stdout).into_owned();
        all += &ours;
        let ours = pieces(ours.strip_prefix("+ set -x\n").unwrap_or(&ours), &mount, &again);
        let mut theirs = pieces(&trace, "/mnt/l", "/mnt/l2");
        if until.is_some() {
            theirs.truncate(ours.len());
        }
        // The recorded folder had files of other recordings.
        let has = |name: &str| cluster.mnt().join("w").join(name).exists();
        for piece in theirs.iter_mut().filter(|piece| is_find_here(&piece.commands)) {
            piece.output.retain(|name| has(name));
        }
        compare(&mut judge, &ours, &theirs);
    }
    judge.verdict().map(|()| all)
}

/// Whether it looks for files in the folder that all recordings share.
fn is_find_here(commands: &[String]) -> bool {
    commands.iter().any(|command| command.starts_with("lfs find . "))
}

/// Each recorded piece against the one here with the same commands.
fn compare(judge: &mut Judge, ours: &[super::recorded::Piece], theirs: &[super::recorded::Piece]) {
    let mut rest = ours;
    for piece in theirs {
        let last = piece.commands.iter().find(|command| command.starts_with("lfs")).cloned();
        let label = last.or_else(|| piece.commands.last().cloned()).unwrap_or_default();
        let Some(place) = rest.iter().position(|own| own.commands == piece.commands) else {
            let next = rest.first().map(|piece| piece.commands.join("; "));
            judge.differs(&label, format!("not run so; next here is {next:?}"));
            continue;
        };
        let own = &rest[place];
        rest = &rest[place + 1..];
        if own.output != piece.output {
            let show = |lines: &[String]| lines.join("\n      ");
            let (ours, theirs) = (show(&own.output), show(&piece.output));
            judge.differs(&label, format!("here:\n      {ours}\n    there:\n      {theirs}"));
        }
    }
}

/// Where the file system is mounted a second time.
fn second_mount(cluster: &Cluster) -> Outcome<String> {
    let marker = cluster.logs().join("second-mount");
    if let Ok(path) = fs::read_to_string(&marker) {
        return Ok(path);
    }
    let path = cluster.mount_again()?.display().to_string();
    fs::write(&marker, &path).context(marker.display())?;
    Ok(path)
}

/// Runs `body` with the recordings on a file system like the recorded one.
pub(super) fn with_recordings(name: &str, body: fn(&Cluster, &Path) -> Outcome) {
    let Some(captures) = needs_captures() else { return };
    let cluster = Cluster::start_with(name, OSTS, &["--fsname", "lustre"]);
    play(&Arc::new(cluster.unwrap_or_else(|error| panic!("{error}"))), LIMIT, move |cluster| {
        body(cluster, &captures)
    });
}

#[test]
fn wrong_invocations_of_setstripe_end_as_in_lustre() {
    with_recordings("transcript-setstripe", |cluster, captures| {
        run_transcript(cluster, &captures.join("more/e11a-lfs-setstripe-errors.txt"), |_| true)
    });
}

#[test]
fn wrong_invocations_around_layouts_end_as_in_lustre() {
    with_recordings("transcript-misc", |cluster, captures| {
        let about_layouts = |command: &str| {
            ["lfs pool_list", "lfs swap_layouts", "lfs df", "lctl pool_list"]
                .iter()
                .any(|start| command.starts_with(start))
        };
        let file = captures.join("more/e11c-lfs-misc-lctl-mount-errors.txt");
        run_transcript(cluster, &file, about_layouts)
    });
}

/// Runs logs one after the other; all their faults at once.
fn run_logs(cluster: &Cluster, captures: &Path, logs: &[(&str, Option<&str>)]) -> Outcome {
    fs::create_dir_all(cluster.mnt().join("w")).context("w")?;
    let run = |(log, until): &(&str, Option<&str>)| {
        run_log(cluster, &captures.join(format!("{log}.log")), *until).err()
    };
    let faults: Vec<String> = logs.iter().filter_map(run).collect();
    ensure(faults.is_empty(), || faults.join("\n\n"))
}

#[test]
fn composite_and_overstriped_files_look_as_in_lustre() {
    with_recordings("log-composite", |cluster, captures| {
        let logs = [
            ("d1-pfl-dom", None),
            ("d2-pfl-3comp-dirdefault", None),
            ("d3-overstripe-C8", None),
            ("d4-self-extending-pool-none", None),
            ("more/v1-overstripe", None),
            ("more/v3-stripes-2000", None),
            ("g1-migrate-mirror", Some("; lfs mirror create")),
        ];
        run_logs(cluster, captures, &logs)
    });
}

#[test]
fn files_on_the_mdt_look_as_in_lustre() {
    with_recordings("log-dom", |cluster, captures| {
        let logs = [
            ("more/o1-dom-small-file", None),
            ("more/o2-dom-stat-while-dirty", None),
            ("more/o3-dom-migrate", None),
            ("more/o4-lfs-find-mdt-layout", None),
            ("more/o8-dom-stripesize-limits", None),
            ("more/o10-dom-migrate-1M-to-4M", None),
        ];
        run_logs(cluster, captures, &logs)
    });
}

#[test]
fn a_pool_lives_as_in_lustre() {
    with_recordings("log-pool", |cluster, captures| {
        run_logs(cluster, captures, &[("more/p1-pool-life", None)])
    });
}
