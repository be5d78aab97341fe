//! What users ask of directories over several MDTs that cannot be: each row one command, its exit code and the one line that it says.
#![allow(clippy::disallowed_methods, reason = "calls wait for a server in real time")]

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::play;
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

use crate::further_mdts::{FIRST, MGS, OST, SECOND, Targets, is, names};
use crate::nodes::{stop_now, unmount};

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(120);
/// What timeout(1) leaves with.
const TIMED_OUT: i32 = 124;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
/// What `lfs` leaves with for a command line that cannot be.
const USAGE: i32 = 4;

/// A row: what is asked of `lfs` in the mount, how that leaves, and what it says.
type Row = (&'static str, i32, &'static str);

const ROWS: &[Row] = &[
    // More stripes than MDTs: as many as there are, unless each is named.
    ("mkdir -c 9 cut", 0, ""),
    ("getdirstripe -c cut", 0, "2"),
    ("mkdir -i 0,1 -c 3 x", USAGE, "lfs mkdir: stripe count 3 doesn't match the number of MDTs: 2"),
    (
        "migrate -m 0,1 -c 3 d",
        USAGE,
        "lfs migrate: stripe count 3 doesn't match the number of MDTs: 2",
    ),
    ("mkdir -C -6 x", USAGE, "lfs mkdir: invalid stripe count '-6'"),
    // An unknown hash.
    ("mkdir -c 2 -H bogus x", USAGE, "lfs mkdir: invalid directory hash type 'bogus'"),
    (
        "setdirstripe -D -c 2 -H bogus d",
        USAGE,
        "lfs setdirstripe: invalid directory hash type 'bogus'",
    ),
    ("migrate -m 1 -H bogus d", USAGE, "lfs migrate: bad MDT hash type 'bogus'"),
    // An index out of range.
    ("mkdir -i 9 x", ENODEV, "lfs mkdir: cannot create dir 'x': No such device"),
    ("mkdir -i 0,9 x", ENODEV, "lfs mkdir: cannot create dir 'x': No such device"),
    ("mkdir -i 70000 x", USAGE, "lfs mkdir: invalid MDT target(s) '70000'"),
    ("migrate -m 9 d", ENODEV, "lfs migrate: d migrate failed: No such device (19)"),
    // A directory into itself, or to where it is: that is done already.
    ("migrate -m 0 d", 0, ""),
    (
        "migrate -m 1 .",
        EINVAL,
        "lfs migrate: . migrate failed: Invalid argument (22): the root of the file system stays where it is",
    ),
];

fn rows(cluster: &Cluster) -> Outcome {
    let mnt = cluster.mnt();
    fs::create_dir(mnt.join("d")).context("mkdir")?;
    let mut wrong = Vec::new();
    for (command, code, said) in ROWS {
        let mut words: Vec<_> = command.split(' ').map(str::to_owned).collect();
        if let Some(path) = words.last_mut() {
            *path = mnt.join(&path).display().to_string();
        }
        let words: Vec<_> =
            std::iter::once("lfs").chain(words.iter().map(String::as_str)).collect();
        let done = cluster.run(&words)?;
        let output = done.output.replace(&format!("{}/", mnt.display()), "");
        let seen = (done.status.code(), output.trim_end());
        if seen != (Some(*code), *said) {
            wrong.push(format!("{command}: {seen:?}"));
        }
    }
    let error = fs::rename(mnt.join("d"), mnt.join("d/below")).map_err(|it| it.raw_os_error());
    ensure(error == Err(Some(EINVAL)), || format!("{error:?}"))?;
    ensure(wrong.is_empty(), || wrong.join("\n"))?;
    ensure(!mnt.join("x").exists(), || "a directory was made".to_owned())
}

#[test]
fn each_command_for_a_directory_that_cannot_be_says_why_in_one_line() {
    let cluster = Cluster::start_with("refused-dirs", 1, &["--mdts", "2"]);
    let cluster = cluster.unwrap_or_else(|fault| panic!("{fault}"));
    play(&Arc::new(cluster), LIMIT, rows);
}

/// The second MDT is not there when a client mounts: the mount and what lies on the first MDT are there, and who looks at what lies
/// on the second waits for it.
fn without_second(cluster: &Cluster) -> Outcome {
    let targets = Targets::format(cluster, 140)?;
    let servers = [MGS, FIRST, OST].map(|node| targets.serve(node));
    let _servers = servers.into_iter().collect::<Outcome<Vec<_>>>()?;
    let mut second = targets.serve(SECOND)?;
    wait_until("both MDTs", PATIENCE, || targets.know_each_other())?;
    wait_until("the OST to know both", PATIENCE, || targets.are_known_to_the_ost())?;
    let (mnt, log) = (cluster.mnt(), cluster.logs().join("mount.log"));
    let mounted = targets.mount(&log)?;
    let far = mnt.join("far");
    cluster.must(&["lfs", "mkdir", "-i", "1", &far.to_string_lossy()])?;
    fs::write(far.join("f"), "far").context("write")?;
    fs::write(mnt.join("near"), "near").context("write")?;
    unmount(cluster, mounted)?;
    stop_now(&mut second)?;

    let mounted = targets.mount(&log)?;
    is(&fs::read_to_string(mnt.join("near")).context("read")?, &"near".to_owned())?;
    fs::write(mnt.join("new"), "new").context("write")?;
    is(&names(&mnt)?, &["far", "near", "new"].map(str::to_owned).to_vec())?;
    let limited = |words: &[&str]| {
        let path = far.display().to_string();
        Command::new("timeout").args(["5"]).args(words).arg(path).output().context("run")
    };
    let waited = limited(&["ls"])?;
    is(&waited.status.code(), &Some(TIMED_OUT))?;
    for (words, line) in [
        (["lfs", "df"], "nodes-MDT0001_UUID  : Transport endpoint is not connected"),
        (["lfs", "mdts"], "1: nodes-MDT0001_UUID INACTIVE"),
    ] {
        let said = cluster.must(&words)?;
        let about = said.lines().filter(|line| line.contains("MDT0001"));
        is(&about.collect::<Vec<_>>(), &vec![line])?;
    }
    let _second = targets.serve(SECOND)?;
    let is_read = || fs::read_to_string(far.join("f")).is_ok_and(|held| held == "far");
    wait_until("what lies on the second MDT", PATIENCE, is_read)?;
    unmount(cluster, mounted)
}

#[test]
fn a_mount_without_an_mdt_has_all_that_lies_on_the_first() {
    let cluster = Cluster::prepare("missing-mdt", 1, &[]).expect("a folder");
    without_second(&cluster).expect("a mount without an MDT");
}
