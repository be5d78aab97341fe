//! Surveys do what they count, on a file system in use, and leave nothing: neither when they end, nor when
//! they are interrupted, nor when the server dies in the middle.
#![allow(clippy::disallowed_methods, reason = "a death in the middle of work")]

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::{kill, run_and, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

use crate::statistics::samples;

const LIMIT: Duration = Duration::from_secs(300);
/// How long a server may take to notice that a tool has died, and to remove what it had made.
const LEASE: Duration = Duration::from_secs(90);

/// Runs a survey with settings from the environment; answers what it printed.
fn survey(cluster: &Cluster, words: &[&str], settings: &[(&str, &str)]) -> Outcome<String> {
    let mut command = command(cluster, words, settings);
    let finished = run_and(&mut command, &cluster.logs().join("survey"), LIMIT, |_| Ok(()))?;
    match finished.status.success() {
        true => Ok(finished.output),
        false => Err(finished.output),
    }
}

fn command(cluster: &Cluster, words: &[&str], settings: &[(&str, &str)]) -> Command {
    let mut command = cluster.command(&[&["bench"], words].concat());
    command.env("rslt", cluster.logs().join("result"));
    command.envs(settings.iter().copied());
    command
}

/// How often lines of the targets' statistics were counted.
fn counted(cluster: &Cluster, parameter: &str, wanted: &[(&str, u64)]) -> Outcome {
    for (line, wanted) in wanted {
        let (count, _) = samples(cluster, parameter, line)?;
        ensure(count == *wanted, || format!("{parameter}: {line} {count} times, not {wanted}"))?;
    }
    Ok(())
}

/// Columns of one line of mds-survey: the numbers of the row, then name, mean and extremes of tests.
fn columns(line: &str, tests: &[&str]) -> Outcome {
    let words: Vec<&str> = line
        .split(|c: char| c.is_whitespace() || "[],".contains(c))
        .filter(|w| !w.is_empty())
        .collect();
    let wrong = || format!("not the columns of a survey: {line}");
    ensure(words.len() == 8 + 4 * tests.len(), wrong)?;
    for (test, words) in tests.iter().zip(words[8..].chunks(4)) {
        ensure(words[0] == *test, wrong)?;
        let rates: Vec<f64> = words[1..].iter().filter_map(|word| word.parse().ok()).collect();
        ensure(rates.len() == 3 && rates[0] > 0.0 && rates[1] <= rates[2], wrong)?;
    }
    Ok(())
}

fn clear(cluster: &Cluster) -> Outcome {
    for parameter in ["obdfilter.*.stats=clear", "mdt.*.md_stats=clear"] {
        cluster.must(&["lctl", "set_param", "-n", parameter])?;
    }
    Ok(())
}

fn on_mdts(cluster: &Cluster) -> Outcome {
    fs::write(cluster.mnt().join("kept"), "kept").context("a file")?;
    let before = names(cluster)?;
    clear(cluster)?;
    let settings = [("thrlo", "1"), ("thrhi", "4"), ("dir_count", "2"), ("file_count", "1001")];
    let text = survey(cluster, &["mds-survey"], &settings)?;
    let lines: Vec<&str> = text.lines().collect();
    // One thread is too few for two directories.
    ensure(lines.len() == 4 && lines[3] == "done!", || text.clone())?;
    ensure(lines[1].starts_with("mdt 1 file    1001 dir    2 thr    2 create "), || text.clone())?;
    for line in &lines[1..3] {
        columns(line, &["create", "lookup", "md_getattr", "setxattr", "destroy"])?;
    }
    // 500 files of each of 2 threads, then 250 of each of 4.
    let all = 1000 + 1000;
    let wanted = [("mknod", all), ("getattr", 2 * all), ("setxattr", all), ("unlink", all)];
    counted(cluster, "mdt.*.md_stats", &wanted)?;
    let summary =
        fs::read_to_string(cluster.logs().join("result.summary")).context("the summary")?;
    ensure(text == format!("{summary}done!\n"), || summary.clone())?;
    let detail = fs::read_to_string(cluster.logs().join("result.detail")).context("the details")?;
    ensure(detail.matches("\nTotal: total 1000 threads ").count() == 10, || detail.clone())?;
    clear(cluster)?;
    let words = ["mds-survey", "--thrlo", "2", "--thrhi", "2", "--file_count", "200"];
    let more = ["--stripe_count", "2", "--tests_str", "create md_getattr destroy"];
    let text = survey(cluster, &[&words[..], &more].concat(), &[])?;
    columns(text.lines().nth(1).unwrap_or(""), &["create", "md_getattr", "destroy"])?;
    counted(cluster, "mdt.*.md_stats", &[("mknod", 200), ("unlink", 200)])?;
    wait_until("the end of 400 objects", LEASE, || {
        samples(cluster, "obdfilter.*.stats", "destroy").is_ok_and(|(count, _)| count > 0)
    })?;
    ensure(names(cluster)? == before, || "names are left".to_owned())?;
    cluster.down()?;
    cluster.fsck()
}

fn names(cluster: &Cluster) -> Outcome<Vec<String>> {
    let entries = fs::read_dir(cluster.mnt()).context("the mount")?.flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

#[test]
fn an_mds_survey_does_what_it_counts() {
    scene("mds-survey", 2, LIMIT, on_mdts);
}

fn on_osts(cluster: &Cluster) -> Outcome {
    const MIB: u64 = 1 << 20;
    clear(cluster)?;
    let settings =
        [("nobjhi", "2"), ("thrhi", "2"), ("size", "8"), ("rszlo", "512"), ("case", "disk")];
    let words = ["obdfilter-survey", "--verify", "1", "--sync", "1"];
    let text = survey(cluster, &words, &settings)?;
    let lines: Vec<&str> = text.lines().collect();
    // 512 and 1024 KiB; an object with one or two threads, two with two.
    ensure(lines.len() == 1 + 6 + 1, || text.clone())?;
    let begins = ["ost  2 sz    16384K rsz  512K obj    2 thr    2 write ", " read "];
    ensure(begins.iter().all(|part| lines[1].contains(part)), || text.clone())?;
    let two = "ost  2 sz    16384K rsz 1024K obj    4 thr    4 write ";
    ensure(lines[6].starts_with(two) && lines[6].contains(" rewrite "), || text.clone())?;
    let transfers = 2 * 3 * (16 + 8);
    let wanted = [("read", transfers), ("write", 2 * transfers)];
    counted(cluster, "obdfilter.*.stats", &wanted)?;
    for (line, wanted) in [("read_bytes", 2 * 6 * 8 * MIB), ("write_bytes", 2 * 2 * 6 * 8 * MIB)] {
        let (_, bytes) = samples(cluster, "obdfilter.*.stats", line)?;
        ensure(bytes == wanted, || format!("{line}: {bytes} bytes, not {wanted}"))?;
    }
    let one = ["obdfilter-survey", "--targets", "sheen-OST0001", "--size", "4", "--nobjhi", "1"];
    let text = survey(cluster, &[&one[..], &["--thrhi", "1"]].concat(), &[])?;
    ensure(text.contains("\nost  1 sz     4096K rsz 1024K obj    1 thr    1 "), || text.clone())?;
    cluster.down()?;
    cluster.fsck()
}

#[test]
fn an_obdfilter_survey_does_what_it_counts() {
    scene("ost-survey", 2, LIMIT, on_osts);
}

fn refusals(cluster: &Cluster) -> Outcome {
    for (words, wanted) in [
        (
            "mds-survey --targets sheen-MDT0009",
            "target sheen-MDT0009 is not running on this machine",
        ),
        ("mds-survey --targets sheen-OST0000", "sheen-OST0000 is not an MDT"),
        ("mds-survey --thrlo 8 --thrhi 2", "thrlo (8) is greater than thrhi (2)"),
        ("mds-survey --file_count 3", "file_count (3) is too small for 32 threads"),
        ("mds-survey --rslt /nowhere/x", "cannot write /nowhere/x.summary"),
        ("obdfilter-survey --case netdisk", "case=netdisk is not supported by Sheen yet"),
        ("obdfilter-survey --size 0", "size (0 MiB) is too small for 1 threads"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let output =
            survey(cluster, &words, &[]).err().ok_or_else(|| format!("{words:?} works"))?;
        let is_a_line = output.starts_with("sheen bench: ") && output.lines().count() == 1;
        ensure(is_a_line && output.contains(wanted), || format!("{words:?}: {output}"))?;
    }
    Ok(())
}

#[test]
fn wrong_surveys_are_refused_in_a_line() {
    scene("survey-refused", 1, LIMIT, refusals);
}

/// A survey that would take hours.
const LONG: [&str; 5] = ["mds-survey", "--thrlo", "2", "--file_count", "100000000"];
const LONG_DATA: [&str; 5] = ["obdfilter-survey", "--size", "1000000", "--thrlo", "1"];

/// Waits until the survey is at work.
fn is_at_work(cluster: &Cluster, parameter: &str, line: &str) -> Outcome {
    wait_until("a survey at work", LIMIT, || {
        samples(cluster, parameter, line).is_ok_and(|(count, _)| count > 100)
    })
}

fn cut_short(cluster: &Cluster) -> Outcome {
    for (words, parameter, line) in
        [(&LONG, "mdt.*.md_stats", "mknod"), (&LONG_DATA, "obdfilter.*.stats", "write")]
    {
        clear(cluster)?;
        let log = cluster.logs().join("cut");
        let finished = run_and(&mut command(cluster, words, &[]), &log, LIMIT, |pid| {
            is_at_work(cluster, parameter, line)?;
            // One survey of a target at a time.
            let output = survey(cluster, words, &[("rslt", "/dev/null")]).err();
            let output = output.ok_or("a second survey of the same target")?;
            ensure(output.contains(" is already being surveyed"), || output.clone())?;
            kill_process(pid, Signal::INT).context("an interrupt")
        })?;
        ensure(finished.status.code() == Some(130), || finished.output.clone())?;
        // The tool is killed: the server notices, and a new survey can begin.
        clear(cluster)?;
        run_and(&mut command(cluster, words, &[]), &log, LIMIT, |pid| {
            is_at_work(cluster, parameter, line)?;
            kill_process(pid, Signal::KILL).context("a kill")
        })?;
        let short = ["--size", "4", "--nobjhi", "1", "--thrhi", "1"];
        let short = match words[0] {
            "mds-survey" => vec!["mds-survey", "--file_count", "100"],
            _ => [&["obdfilter-survey"], &short[..]].concat(),
        };
        wait_until("a new survey", LEASE, || survey(cluster, &short, &[]).is_ok())?;
    }
    cluster.down()?;
    cluster.fsck()
}

#[test]
fn a_survey_cut_short_leaves_nothing() {
    scene("survey-cut", 1, LIMIT, cut_short);
}

fn died(cluster: &Cluster) -> Outcome {
    let files = [&LONG[..], &["--stripe_count", "1"]].concat();
    for (words, parameter, line) in
        [(&files[..], "mdt.*.md_stats", "mknod"), (&LONG_DATA[..], "obdfilter.*.stats", "write")]
    {
        clear(cluster)?;
        let log = cluster.logs().join("died");
        let finished = run_and(&mut command(cluster, words, &[]), &log, LIMIT, |_| {
            is_at_work(cluster, parameter, line)?;
            // Long enough that a part of it is durable.
            std::thread::sleep(Duration::from_millis(2500));
            kill(cluster.server_pid()?)
        })?;
        ensure(finished.status.code() == Some(1), || finished.output.clone())?;
        cluster.fsck()?;
        is_clean_again(cluster)?;
    }
    Ok(())
}

/// Starts what died until nothing of the survey is left: it is removed while the server serves.
fn is_clean_again(cluster: &Cluster) -> Outcome {
    wait_until("the end of what a survey left", LIMIT, || {
        let tried = || {
            cluster.up()?;
            // Answered when recovery has ended.
            fs::write(cluster.mnt().join("after"), "after").context("a file")?;
            std::thread::sleep(Duration::from_secs(2));
            cluster.down()?;
            cluster.must(&["fsck", "--dir", &cluster.dir().to_string_lossy()])
        };
        tried().is_ok_and(|output| !output.contains("survey"))
    })?;
    cluster.up()
}

#[test]
fn a_server_that_dies_in_a_survey_cleans_up_when_it_is_back() {
    scene("survey-died", 1, LIMIT, died);
}
