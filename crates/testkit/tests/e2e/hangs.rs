//! Calls that wait: for each other in the kernel, for servers that are dead, for a mount that stands
//! still. None of them waits for ever, and a process that is killed goes.
#![allow(clippy::disallowed_methods, reason = "calls wait for each other in real time")]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::{Context, Outcome, Size, ensure, process};

use crate::kills::LIMIT;

/// Longer than any look at signals takes to end a call, on a busy machine.
const SOON: Duration = Duration::from_secs(2);

/// The same for a call that changes something, of a process that the mount does not see.
const UNSEEN: Duration = Duration::from_secs(8);

/// Long enough for a program to reach the call in which it waits.
const BEGUN: Duration = Duration::from_millis(700);

/// Longer than a server takes to come back and to be found again.
const RECOVERED: Duration = Duration::from_secs(60);

/// What a mount process has at rest, and its notices at most beside it.
const THREADS_MAX: usize = 64;

/// Requests to the MDT for a name that goes, with its share of the listing, and time for it on a machine that has
/// other things to do. What once grew with each link made it seconds.
const REQUESTS_PER_NAME: u64 = 3;
const TIME_PER_NAME: Duration = Duration::from_millis(30);

/// Requests that the mounts had answered by MDTs.
fn requests(cluster: &Cluster) -> Outcome<u64> {
    let stats = cluster.must(&["lctl", "get_param", "-n", "mdc.*.stats"])?;
    let waits = stats.lines().filter_map(|line| line.strip_prefix("req_waittime"));
    let count = waits.filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok()).sum();
    ensure(count > 0, || stats.clone())?;
    Ok(count)
}

fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// A program that a test ends itself; `@` in front of an argument stands for `folder`. It does not begin
/// there: it would wait before it is the program.
fn begin(program: &str, arguments: &[&str], folder: &Path) -> Outcome<Child> {
    let place = |argument: &&str| match argument.split_once('@') {
        Some((before, name)) => format!("{before}{}/{name}", folder.display()),
        None => (*argument).to_owned(),
    };
    let mut command = Command::new(program);
    command.args(arguments.iter().map(place)).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context(program)
}

fn signal(child: &Child, signal: Signal) -> Outcome {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).context("kill")
}

/// Whether it ends within `limit`.
fn ends_within(child: &mut Child, limit: Duration) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Runs `work` while it looks how many threads the mount has; the most it saw.
fn most_threads(mount: i32, work: &mut Child, limit: Duration) -> Outcome<usize> {
    let (begin, mut most) = (Instant::now(), 0);
    loop {
        most = most.max(threads(mount));
        if let Some(status) = work.try_wait().context("rm")? {
            ensure(status.success(), || format!("rm: {status}"))?;
            return Ok(most);
        }
        ensure(begin.elapsed() < limit, || format!("rm hangs; the mount has {most} threads"))?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_file_of_many_links_is_removed_by_a_mount_of_few_threads() {
    scene("links", 1, LIMIT, |cluster| {
        let count = Size::asked().of(500u32, 2_000, 20_000);
        for folder in ["d", "e"] {
            fs::create_dir(cluster.mnt().join(folder)).context("mkdir")?;
        }
        let first = cluster.mnt().join("d/first");
        fs::write(&first, b"linked").context("write")?;
        for number in 0..count {
            let folder = if number % 8 == 0 { "e" } else { "d" };
            let link = cluster.mnt().join(folder).join(format!("l{number:05}"));
            fs::hard_link(&first, &link).context("link")?;
            fs::metadata(&link).context("stat")?;
        }
        let before = requests(cluster)?;
        let mut work = begin("rm", &["-rf", "@d", "@e"], &cluster.mnt())?;
        let started = Instant::now();
        let most = most_threads(cluster.mount_pid()?, &mut work, LIMIT / 2)?;
        let (took, asked) = (started.elapsed(), requests(cluster)? - before);
        println!("hangs: {count} links gone in {took:?}, {asked} requests, {most} threads");
        ensure(most <= THREADS_MAX, || format!("{most} threads"))?;
        let most = REQUESTS_PER_NAME * u64::from(count);
        ensure(asked <= most, || format!("{asked} requests for {count} names"))?;
        ensure(took <= TIME_PER_NAME * count, || format!("{count} names took {took:?}"))?;
        fs::write(cluster.mnt().join("after"), b"after").context("create")?;
        same_after_restart(cluster)
    });
}

#[test]
fn two_mounts_that_remove_the_same_large_directory_get_through() {
    scene("both-remove", 1, LIMIT, |cluster| {
        let count = Size::asked().of(500, 2_000, 100_000);
        let other = cluster.mount_again()?;
        let folder = cluster.mnt().join("d");
        fs::create_dir(&folder).context("mkdir")?;
        for number in 0..count {
            File::create(folder.join(format!("f{number}"))).context("create")?;
        }
        // Both know all names.
        for top in [cluster.mnt(), other.clone()] {
            for entry in fs::read_dir(top.join("d")).context("list")? {
                entry.and_then(|entry| entry.metadata()).context("stat")?;
            }
        }
        let mut one = begin("rm", &["-rf", "@d"], &cluster.mnt())?;
        let mut two = begin("rm", &["-rf", "@d"], &other)?;
        let most = most_threads(cluster.mount_pid()?, &mut one, LIMIT / 2)?;
        ensure(ends_within(&mut two, LIMIT / 4), || "the other rm hangs".to_owned())?;
        println!("hangs: {most} threads");
        ensure(most <= THREADS_MAX, || format!("{most} threads"))?;
        fs::write(cluster.mnt().join("after"), b"after").context("create")?;
        same_after_restart(cluster)
    });
}

/// Ends each of `programs` while it waits for the server, which is dead, with `with`.
fn all_end(cluster: &Cluster, programs: &[(&str, &[&str])], with: Signal) -> Outcome {
    let mut waiting = Vec::new();
    for (program, arguments) in programs {
        waiting.push((*program, begin(program, arguments, &cluster.mnt())?));
    }
    std::thread::sleep(BEGUN);
    end_all(&mut waiting, with, SOON)
}

/// Ends them, each of which must wait.
fn end_all(waiting: &mut [(&str, Child)], with: Signal, within: Duration) -> Outcome {
    for (program, child) in waiting.iter_mut() {
        let ended = child.try_wait().context(*program)?;
        ensure(ended.is_none(), || format!("{program} did not wait: {ended:?}"))?;
        signal(child, with)?;
    }
    let late: Vec<&str> = waiting
        .iter_mut()
        .filter_map(|(program, child)| (!ends_within(child, within)).then_some(*program))
        .collect();
    ensure(late.is_empty(), || format!("still there after {with:?}: {}", late.join(", ")))
}

/// Each of them waits for one server or another.
const PROGRAMS: [(&str, &[&str]); 10] = [
    ("ls", &["-l", "@folder"]),
    ("cat", &["@cold"]),
    ("touch", &["@new"]),
    ("dd", &["if=/dev/zero", "of=@old", "bs=64k", "count=4", "conv=notrunc"]),
    ("rm", &["-f", "@gone"]),
    ("df", &["@"]),
    ("sync", &["@old"]),
    ("mv", &["@moved", "@there"]),
    ("mkdir", &["@made"]),
    ("chmod", &["600", "@cold"]),
];

fn prepare(cluster: &Cluster) -> Outcome {
    let other = cluster.mount_again()?;
    fs::create_dir(other.join("folder")).context("mkdir")?;
    for name in ["cold", "old", "gone", "moved", "folder/a", "folder/b"] {
        fs::write(other.join(name), vec![7; 300_000]).context(name)?;
    }
    let all = Command::new("sync").arg("-f").arg(&other).status().context("sync")?;
    ensure(all.success(), || format!("sync: {all}"))
}

#[test]
fn whatever_waits_for_a_dead_server_can_be_killed_and_all_goes_on_afterwards() {
    scene("killed-waits", 2, LIMIT, |cluster| {
        prepare(cluster)?;
        cluster.kill_server()?;
        all_end(cluster, &PROGRAMS, Signal::KILL)?;
        // As Ctrl-C does it, of programs that do not handle it.
        all_end(cluster, &[("cat", &["@cold"]), ("ls", &["-l", "@folder"])], Signal::INT)?;
        cluster.up()?;
        let read = || fs::read(cluster.mnt().join("cold")).is_ok_and(|it| it == [7; 300_000]);
        process::wait_until("a read after the recovery", RECOVERED, read)?;
        fs::write(cluster.mnt().join("after"), b"after").context("create")?;
        // What was killed may have happened, as a whole or not at all; nothing of it stays open.
        same_after_restart(cluster)
    });
}

#[test]
fn whatever_waits_for_a_server_that_stands_still_can_be_killed() {
    scene("stopped-waits", 2, LIMIT, |cluster| {
        prepare(cluster)?;
        process::stop(cluster.server_pid()?)?;
        let ended = all_end(cluster, &PROGRAMS, Signal::KILL);
        process::go_on(cluster.server_pid()?)?;
        ended?;
        let read = || fs::read(cluster.mnt().join("cold")).is_ok_and(|it| it == [7; 300_000]);
        process::wait_until("a read afterwards", RECOVERED, read)?;
        same_after_restart(cluster)
    });
}

/// The mount sees none of its callers, and knows of a signal by the kernel's word alone.
#[test]
fn whatever_waits_of_another_pid_namespace_can_be_killed() {
    scene("namespace-waits", 2, LIMIT, |cluster| {
        prepare(cluster)?;
        let mnt = cluster.mount_in_pid_namespace()?;
        process::stop(cluster.server_pid()?)?;
        let all_end = |programs: &[(&'static str, &[&str])], within| {
            let begun =
                programs.iter().map(|(it, arguments)| Ok((*it, begin(it, arguments, &mnt)?)));
            let mut waiting = begun.collect::<Outcome<Vec<_>>>()?;
            std::thread::sleep(BEGUN);
            end_all(&mut waiting, Signal::KILL, within)
        };
        let (reads, changes) = (&PROGRAMS[..2], &[PROGRAMS[2], PROGRAMS[4], PROGRAMS[8]]);
        // What changes something may go on for some seconds: the signal may be one that ends no process. A program that
        // looks up a name meanwhile waits for the directory in the kernel.
        let ended = all_end(reads, SOON).and_then(|()| all_end(changes, UNSEEN));
        process::go_on(cluster.server_pid()?)?;
        ended?;
        let read = || fs::read(mnt.join("cold")).is_ok_and(|it| it == [7; 300_000]);
        process::wait_until("a read afterwards", RECOVERED, read)?;
        same_after_restart(cluster)
    });
}

/// They open their file, and use it a second later.
const OPENED: [(&str, &[&str]); 4] = [
    ("sh", &["-c", "exec 3<\"$0\"; sleep 1; exec cat <&3", "@cold"]),
    ("sh", &["-c", "exec 3<>\"$0\"; sleep 1; exec cat /etc/passwd >&3", "@old"]),
    ("sh", &["-c", "exec 3<>\"$0\"; sleep 1; exec flock -x 3", "@folder/a"]),
    ("sh", &["-c", "exec 3<>\"$0\"; sleep 1; exec fallocate -l 1m /dev/fd/3", "@folder/b"]),
];

#[test]
fn whatever_has_a_file_open_can_be_killed_while_it_waits_for_an_ost() {
    scene("opened-waits", 2, LIMIT, |cluster| {
        prepare(cluster)?;
        let mut waiting = Vec::new();
        for (program, arguments) in OPENED {
            waiting.push((arguments[1], begin(program, arguments, &cluster.mnt())?));
        }
        std::thread::sleep(BEGUN);
        process::stop(cluster.server_pid()?)?;
        std::thread::sleep(BEGUN * 2);
        let ended = end_all(&mut waiting, Signal::KILL, SOON);
        process::go_on(cluster.server_pid()?)?;
        ended?;
        let read = || fs::read(cluster.mnt().join("cold")).is_ok_and(|it| it == [7; 300_000]);
        process::wait_until("a read afterwards", RECOVERED, read)?;
        same_after_restart(cluster)
    });
}

#[test]
fn a_mount_that_hangs_is_named_and_can_be_ended() {
    scene("hanging-mount", 1, LIMIT, |cluster| {
        fs::write(cluster.mnt().join("file"), b"there").context("write")?;
        let dir = cluster.dir().to_string_lossy().into_owned();
        let mnt = cluster.mnt().to_string_lossy().into_owned();
        process::stop(cluster.mount_pid()?)?;
        let mut waits = begin("ls", &["-l", "@"], &cluster.mnt())?;
        let status = cluster.must(&["status", "--dir", &dir])?;
        ensure(status.contains("does not answer (no calls are read)"), || status.clone())?;
        for arguments in [&["up", "--dir", &dir, "--mount", &mnt][..], &["down", "--dir", &dir]] {
            let refused = cluster.run(arguments)?;
            ensure(!refused.status.success() && refused.output.contains("down --force"), || {
                format!("sheen {}: {}\n{}", arguments[0], refused.status, refused.output)
            })?;
        }
        cluster.must(&["down", "--dir", &dir, "--force"])?;
        ensure(ends_within(&mut waits, SOON), || "what waited there still waits".to_owned())?;
        cluster.fsck()?;
        cluster.up()?;
        let status = cluster.must(&["status", "--dir", &dir])?;
        ensure(!status.contains("does not answer"), || status.clone())?;
        same_after_restart(cluster)
    });
}

#[test]
fn a_server_that_stands_still_is_named_and_can_be_ended() {
    scene("still-server", 1, LIMIT, |cluster| {
        fs::write(cluster.mnt().join("file"), b"there").context("write")?;
        let dir = cluster.dir().to_string_lossy().into_owned();
        let mnt = cluster.mnt().to_string_lossy().into_owned();
        let server = cluster.server_pid()?;
        process::stop(server)?;
        let status = cluster.must(&["status", "--dir", &dir])?;
        let wanted = format!("pid {server}, does not answer");
        ensure(status.contains(&wanted), || status.clone())?;
        for arguments in [&["up", "--dir", &dir, "--mount", &mnt][..], &["down", "--dir", &dir]] {
            let refused = cluster.run(arguments)?;
            let wanted = ["stopped by a signal", "down --force"];
            let is_shown = wanted.iter().all(|word| refused.output.contains(word));
            ensure(!refused.status.success() && is_shown, || {
                format!("sheen {}: {}\n{}", arguments[0], refused.status, refused.output)
            })?;
        }
        // Nothing was ended, so nothing is lost if it goes on.
        process::go_on(server)?;
        let status = cluster.must(&["status", "--dir", &dir])?;
        ensure(!status.contains("does not answer"), || status.clone())?;
        ensure(fs::read(cluster.mnt().join("file")).context("read")? == b"there", || {
            "lost".into()
        })?;
        process::stop(server)?;
        cluster.must(&["down", "--dir", &dir, "--force"])?;
        ensure(!process::is_alive(server), || "the server lives".to_owned())?;
        cluster.fsck()?;
        cluster.up()?;
        same_after_restart(cluster)
    });
}
