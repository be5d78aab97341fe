//! Programs whose memory the kernel has locked for a call that waits for a server.
#![allow(clippy::disallowed_methods, reason = "threads wait for each other in real time")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::{Context, Outcome, ensure, process};

use crate::kills::LIMIT;

/// The variable that jobs are named by.
const VARIABLE: &str = "SHEEN_TEST_JOB";
/// More than a mount has threads that read calls.
const CALLS: &str = "6";
/// Longer than the program takes to have all its threads wait.
const WAITING: Duration = Duration::from_secs(2);
/// Longer than a mount takes to say that it is there, on a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// Longer than a server takes to be found again.
const RECOVERED: Duration = Duration::from_secs(60);

/// `programs/locked.c`, compiled.
fn compile(cluster: &Cluster) -> Outcome<PathBuf> {
    let (source, built) = (cluster.logs().join("locked.c"), cluster.logs().join("locked"));
    fs::write(&source, include_str!("programs/locked.c")).context("the source")?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-o"]).arg(&built).arg(&source);
    process::must(&mut compiler, &cluster.logs().join("cc"), RECOVERED)?;
    Ok(built)
}

/// Has jobs named by a variable of the environment, or by what Lustre has beside those.
fn name_jobs(cluster: &Cluster, variable: &str) -> Outcome {
    let setting = format!("jobid_var={variable}");
    cluster.must(&["lctl", "set_param", "-P", &setting])?;
    process::wait_until("the way that jobs are named", Duration::from_secs(30), || {
        let names = cluster.must(&["lctl", "get_param", "-n", "jobid_var"]);
        names.is_ok_and(|names| names.lines().any(|name| name == variable))
    })
}

/// A file whose bytes only the server has.
fn cold_file(cluster: &Cluster) -> Outcome<PathBuf> {
    let path = cluster.mnt().join("file");
    cluster.must(&["lfs", "setstripe", "-c", "2", &path.to_string_lossy()])?;
    fs::write(&path, vec![7; 1 << 20]).context("write")?;
    let file = fs::File::open(&path).context("open")?;
    file.sync_all().context("fsync")?;
    fadvise(&file, 0, None, Advice::DontNeed).context("fadvise")?;
    Ok(path)
}

fn begin(program: &PathBuf, file: &PathBuf) -> Outcome<Child> {
    let mut command = Command::new(program);
    command.arg(file).arg(CALLS).env(VARIABLE, "job-7");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("the program")?;
    let mut said = String::new();
    let out = child.stdout.as_mut().ok_or("no output")?;
    BufReader::new(out).read_line(&mut said).context("what it says")?;
    ensure(said == "ready\n", || format!("it says {said:?}"))?;
    Ok(child)
}

/// To read the environment of a process takes the lock of its memory, which it holds while it waits for us.
#[test]
fn a_program_that_waits_with_its_memory_locked_stops_no_call_where_jobs_are_named_by_environment() {
    scene("locked-memory", 2, LIMIT, |cluster| {
        let program = compile(cluster)?;
        name_jobs(cluster, VARIABLE)?;
        let file = cold_file(cluster)?;
        let mut child = begin(&program, &file)?;
        // On a busy machine the kernel had pages of it still, or again.
        cluster.must(&["lctl", "set_param", "ldlm.namespaces.*osc*.lru_size=clear"])?;
        process::stop(cluster.server_pid()?)?;
        let written = child.stdin.take().ok_or("no input")?.write_all(b"go\n").context("go on");
        std::thread::sleep(WAITING);
        let begin = Instant::now();
        let status = cluster.must(&["status", "--dir", &cluster.dir().to_string_lossy()]);
        let took = begin.elapsed();
        let ended_early = child.try_wait().context("wait")?;
        process::go_on(cluster.server_pid()?)?;
        written?;
        ensure(ended_early.is_none(), || format!("nothing of it waited: {ended_early:?}"))?;
        let status = status?;
        let mount = status.lines().find(|line| line.starts_with("mount:")).unwrap_or_default();
        ensure(!mount.contains("does not answer"), || status.clone())?;
        ensure(took < SOON, || format!("{took:?}"))?;
        let ends = || child.try_wait().is_ok_and(|status| status.is_some());
        process::wait_until("the program's end", RECOVERED, ends)?;
        let status = child.wait().context("wait")?;
        ensure(status.success(), || format!("the program: {status}"))?;
        same_after_restart(cluster)
    });
}

/// In `execve` a process closes what it has open, and waits for what was written to it, with a lock that who reads its
/// `/proc/PID/stat` wants, too.
#[test]
fn programs_that_run_execve_stop_no_call_where_jobs_are_named_by_session() {
    scene("exec-closes", 1, LIMIT, |cluster| {
        name_jobs(cluster, "session")?;
        let path = |number: u32| cluster.mnt().join(format!("file{number}"));
        for round in 0..50 {
            // Closed in the program before it begins, while the calls of other threads go on.
            let files: Vec<_> = (0..8).map(|it| fs::File::create(path(it))).collect();
            for file in &files {
                let mut file = file.as_ref().map_err(|error| format!("create: {error}"))?;
                file.write_all(&[7; 9_000]).context("write")?;
            }
            let mut children = Vec::new();
            for _ in 0..4 {
                children.push(Command::new("true").spawn().context("true")?);
            }
            for mut child in children {
                process::wait_until("a program", SOON * 3, || {
                    matches!(child.try_wait(), Ok(Some(_)))
                })
                .map_err(|error| format!("round {round}: {error}"))?;
            }
        }
        Ok(())
    });
}
