//! Mounts that wait for servers: what is said of them, what they need to go on, and what ends them.
#![allow(clippy::disallowed_methods, reason = "mounts wait in real time")]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::{Context, Outcome, ensure, process};

const LIMIT: Duration = Duration::from_secs(300);
/// Longer than the keeper takes to start the next process of a mount.
const STARTED: Duration = Duration::from_secs(10);
/// Longer than a process takes to see that the command has ended which waits for it.
const LEFT: Duration = Duration::from_secs(10);

/// Ends the servers and the process that serves the mount. The number of the next one, which waits.
fn end_all(cluster: &Cluster) -> Outcome<i32> {
    let former = cluster.mount_pid()?;
    cluster.kill_server()?;
    process::kill(former)?;
    let keeper = cluster.keeper_pid()?;
    let other = || cluster.mount_pid().is_ok_and(|now| now != former && now != keeper);
    process::wait_until("the next process of the mount", STARTED, other)?;
    cluster.mount_pid()
}

#[test]
fn a_mount_whose_process_ended_with_the_servers_goes_on_with_the_next_start() {
    scene("ended-together", 1, LIMIT, |cluster| {
        let path = cluster.mnt().join("file");
        // A program that this process starts would wait with a file that this process has open.
        let program = "exec 3>>\"$0\"; echo before >&3; read word; echo $word >&3";
        let mut command = Command::new("sh");
        command.args(["-c", program]).arg(&path).stdin(Stdio::piped());
        let mut shell = command.spawn().context("sh")?;
        let is_written = || fs::read(&path).is_ok_and(|read| read == b"before\n");
        process::wait_until("the shell's line", STARTED, is_written)?;
        File::open(&path).and_then(|file| file.sync_all()).context("sync")?;
        let next = end_all(cluster)?;
        cluster.up()?;
        ensure(cluster.mount_pid()? == next, || "that process does not serve it".to_owned())?;
        shell.stdin.take().ok_or("no input")?.write_all(b"after\n").context("write")?;
        ensure(shell.wait().context("wait")?.success(), || "the shell failed".to_owned())?;
        let read = fs::read_to_string(&path).context("read")?;
        ensure(read == "before\nafter\n", || read.clone())?;
        same_after_restart(cluster)
    });
}

#[test]
fn of_a_mount_that_waits_for_stopped_servers_it_is_said_what_it_needs() {
    scene("waits-stopped", 1, LIMIT, |cluster| {
        let file = File::create_new(cluster.mnt().join("file")).context("create")?;
        file.sync_all().context("sync")?;
        drop(file);
        let next = end_all(cluster)?;
        let dir = cluster.dir().to_string_lossy().into_owned();
        let status = cluster.must(&["status", "--dir", &dir])?;
        let wanted =
            format!("mount:       running, pid {next}, kept by pid {}", cluster.keeper_pid()?);
        let waits = "waits for the servers, which are stopped: `sheen up` starts them";
        let is_said = status.contains(&wanted) && status.contains(waits);
        ensure(is_said && !status.contains("--force"), || status.clone())?;
        let down = cluster.run(&["down", "--dir", &dir])?;
        let wanted = format!("the mount process, pid {next}, waits for the servers: `sheen up`");
        ensure(down.status.code() == Some(110) && down.output.contains(&wanted), || {
            format!("{}: {}", down.status, down.output)
        })?;
        cluster.up()?;
        same_after_restart(cluster)
    });
}

/// Processes of a mount at `point`.
fn mounts_at(cluster: &Cluster, point: &Path) -> usize {
    let variable = format!("SHEEN_RUN_DIR={}", cluster.sockets().display());
    let point = point.to_string_lossy().into_owned();
    let is_of = |pid: &i32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split('\0').any(|word| word == point)
    };
    process::with_environment(&variable).into_iter().filter(is_of).count()
}

#[test]
fn a_mount_that_is_given_up_while_it_waits_leaves_nothing() {
    scene("given-up", 1, LIMIT, |cluster| {
        let point = cluster.mnt().with_file_name("given-up");
        fs::create_dir(&point).context("mkdir")?;
        // No server is there.
        let source = "127.201.7.9@tcp:/sheen";
        let mut command = cluster.command(&["mount", source, &point.to_string_lossy()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut starter = command.spawn().context("sheen mount")?;
        let two = || mounts_at(cluster, &point) > 1;
        process::wait_until("the process of the mount", STARTED, two)?;
        kill_process(Pid::from_child(&starter), Signal::INT).context("kill")?;
        starter.wait().context("wait")?;
        let none = || mounts_at(cluster, &point) == 0;
        process::wait_until("the end of the mount's process", LEFT, none)?;
        let names = fs::read_dir(cluster.sockets()).context("sockets")?.flatten();
        let names: Vec<_> = names.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
        let folder = format!("mount-{}", starter.id());
        ensure(!names.contains(&folder), || format!("left: {names:?}"))?;
        cluster.down()
    });
}
