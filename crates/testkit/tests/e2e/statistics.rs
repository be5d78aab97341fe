//! What is counted is what was done, and the disk is counted once.

use std::fs;
use std::process::Command;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, ensure, process};

const LIMIT: Duration = Duration::from_secs(300);
const MIB: u64 = 1 << 20;

/// Number and sum of the samples of one line of a `stats` file, over all files that match.
pub(crate) fn samples(cluster: &Cluster, parameter: &str, line: &str) -> Outcome<(u64, u64)> {
    let text = cluster.must(&["lctl", "get_param", "-n", parameter])?;
    let mut total = (0, 0);
    for words in text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()) {
        if words.first() != Some(&line) {
            continue;
        }
        let number = |place: usize| words.get(place).and_then(|word| word.parse::<u64>().ok());
        total.0 += number(1).ok_or_else(|| format!("{parameter}: {words:?}"))?;
        total.1 += number(6).ok_or_else(|| format!("{parameter}: {words:?}"))?;
    }
    Ok(total)
}

fn counted(cluster: &Cluster) -> Outcome {
    let mnt = cluster.mnt();
    for parameter in ["llite.*.stats=clear", "obdfilter.*.stats=clear", "mdt.*.md_stats=clear"] {
        cluster.must(&["lctl", "set_param", "-n", parameter])?;
    }
    fs::write(mnt.join("data"), vec![7; 3 * MIB as usize]).context("write")?;
    fs::File::open(mnt.join("data")).and_then(|file| file.sync_all()).context("fsync")?;
    for name in ["a", "b"] {
        fs::create_dir(mnt.join(name)).context(name)?;
    }
    fs::rename(mnt.join("data"), mnt.join("a/data")).context("rename")?;
    fs::rename(mnt.join("a/data"), mnt.join("a/moved")).context("rename")?;
    fs::remove_dir(mnt.join("b")).context("rmdir")?;
    for (parameter, line, wanted) in [
        ("llite.*.stats", "mkdir", 2),
        ("llite.*.stats", "rename", 2),
        ("llite.*.stats", "rmdir", 1),
        ("llite.*.stats", "create", 1),
        ("mdt.*.md_stats", "open", 2),
        ("mdt.*.md_stats", "mknod", 1),
        ("mdt.*.md_stats", "mkdir", 2),
        ("mdt.*.md_stats", "rmdir", 1),
        ("mdt.*.md_stats", "rename", 2),
        ("mdt.*.md_stats", "samedir_rename", 1),
        ("mdt.*.md_stats", "crossdir_rename", 1),
        ("mdt.*.exports.*.stats", "mkdir", 2),
    ] {
        let (count, _) = samples(cluster, parameter, line)?;
        ensure(count == wanted, || format!("{parameter}: {line} {count} times, not {wanted}"))?;
    }
    for parameter in ["llite.*.stats", "obdfilter.*.stats", "obdfilter.*.exports.*.stats"] {
        let (_, bytes) = samples(cluster, parameter, "write_bytes")?;
        ensure(bytes == 3 * MIB, || format!("{parameter}: {bytes} bytes written"))?;
    }
    let uuids = cluster.must(&["lctl", "get_param", "-n", "mdt.*.exports.*.uuid"])?;
    let mount = cluster.must(&["lctl", "get_param", "-n", "llite.*.uuid"])?;
    ensure(uuids.contains(mount.trim()), || format!("{mount} is not among {uuids}"))
}

#[test]
fn what_is_counted_is_what_was_done() {
    scene("statistics", 2, LIMIT, counted);
}

#[test]
fn a_disk_that_osts_share_is_counted_once() {
    scene("shares", 4, LIMIT, |cluster| {
        let disk = rustix::fs::statvfs(cluster.dir()).context("statvfs")?;
        let mount = rustix::fs::statvfs(cluster.mnt()).context("statvfs")?;
        let bytes = |stat: &rustix::fs::StatVfs| stat.f_blocks * stat.f_frsize;
        let (disk, mount) = (bytes(&disk), bytes(&mount));
        ensure(mount <= disk && mount > disk / 10 * 9, || format!("{mount} bytes of {disk}"))
    });
}

/// Number and sum of the samples of one operation of a job.
fn job_samples(stats: &str, job: &str, operation: &str) -> Option<(u64, u64)> {
    let lines = stats.lines().map(str::trim_start);
    let mut lines = lines.skip_while(|line| line.split_whitespace().last() != Some(job)).skip(1);
    let line = lines.by_ref().take_while(|line| !line.starts_with("- job_id:"));
    let line = line.into_iter().find_map(|line| line.strip_prefix(operation)?.strip_prefix(':'))?;
    let number = |name: &str| {
        let (_, rest) = line.split_once(name)?;
        rest.split(&[',', ' ', '}'][..]).find(|word| !word.is_empty())?.parse().ok()
    };
    Some((number("samples:")?, number("sum:")?))
}

/// What processes do is counted under their names and users, what is sent when they are gone too.
fn jobs(cluster: &Cluster) -> Outcome {
    let mnt = cluster.mnt();
    cluster.must(&["lctl", "set_param", "-P", "jobid_var=procname_uid"])?;
    process::wait_until("the way that jobs are named", Duration::from_secs(30), || {
        let names = cluster.must(&["lctl", "get_param", "-n", "jobid_var"]);
        names.is_ok_and(|names| names.lines().any(|name| name == "procname_uid"))
    })?;
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let command = command.args(arguments).current_dir(&mnt);
        process::must(command, &cluster.logs().join(program), LIMIT).map(drop)
    };
    run("dd", &["if=/dev/zero", "of=a", "bs=64k", "count=4"])?;
    run("touch", &["b"])?;
    run("mv", &["b", "c"])?;
    run("rm", &["c"])?;
    let user = rustix::process::getuid().as_raw();
    for (parameter, program, operation, wanted) in [
        ("mdt.*.job_stats", "dd", "open", (1, None)),
        ("mdt.*.job_stats", "dd", "close", (1, None)),
        ("mdt.*.job_stats", "mv", "rename", (1, None)),
        ("mdt.*.job_stats", "rm", "unlink", (1, None)),
        ("obdfilter.*.job_stats", "dd", "write_bytes", (1, Some(256 << 10))),
    ] {
        let job = format!("{program}.{user}");
        let mut stats = String::new();
        let counted = process::wait_until(&job, Duration::from_secs(20), || {
            let Ok(text) = cluster.must(&["lctl", "get_param", "-n", parameter]) else {
                return false;
            };
            stats = text;
            let (least, sum) = wanted;
            job_samples(&stats, &job, operation)
                .is_some_and(|seen| seen.0 >= least && sum.is_none_or(|sum| seen.1 == sum))
        });
        counted.map_err(|fault| format!("{parameter}, {operation}: {fault}\n{stats}"))?;
    }
    let stats = cluster.must(&["lctl", "get_param", "-n", "mdt.*.job_stats"])?;
    ensure(job_samples(&stats, &format!("mv.{user}"), "unlink") == Some((0, 0)), || stats.clone())
}

#[test]
fn what_a_job_does_is_counted_as_its_own() {
    scene("jobs", 1, LIMIT, jobs);
}
