//! The log, as an administrator reads it: what runs, who comes and goes, what recovers, who is evicted and why; and
//! no alarm where all is well.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::{self, text, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(60);

/// Lines of both logs, with the process that each is of.
fn lines(cluster: &Cluster) -> Vec<String> {
    let of = |name: &str| {
        let log = text(&cluster.dir().join("run").join(format!("{name}.log")));
        log.lines().map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
    };
    [of("server"), of("mount")].concat()
}

/// How many lines have all `words`.
fn count(lines: &[String], words: &[&str]) -> usize {
    lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
}

fn has(lines: &[String], words: &[&str]) -> Outcome {
    ensure(count(lines, words) > 0, || format!("no line with {words:?} in\n{}", lines.join("\n")))
}

/// Asks the server to end, and waits until it has.
fn stop_server(cluster: &Cluster) -> Outcome {
    let number = cluster.server_pid()?;
    let pid = Pid::from_raw(number).ok_or("no process")?;
    kill_process(pid, Signal::TERM).context("SIGTERM")?;
    wait_until("the server's end", PATIENCE, || !process::is_alive(number))
}

#[test]
fn an_ordinary_restart_is_logged_without_an_alarm() {
    scene("quiet-log", 2, LIMIT, |cluster| {
        let file = cluster.mnt().join("f");
        fs::write(&file, vec![7; 3 << 20]).context("write")?;
        stop_server(cluster)?;
        cluster.up()?;
        fs::write(&file, vec![8; 1 << 20]).context("write")?;
        ensure(fs::read(&file).is_ok_and(|read| read == vec![8; 1 << 20]), || "lost".to_owned())?;
        cluster.down()?;
        let lines = lines(cluster);
        let alarms = lines.iter().filter(|line| line.contains("ERROR ") || line.contains(" WARN "));
        let alarms: Vec<_> = alarms.map(String::as_str).collect();
        ensure(alarms.is_empty(), || format!("alarms:\n{}", alarms.join("\n")))?;
        let targets = "targets=\"MGS sheen-MDT0000 sheen-OST0000 sheen-OST0001\"";
        has(&lines, &["server starts", "version=\"2.17", "nid=127.", targets])?;
        has(&lines, &["client connected", "target=\"MGS\"", "client=", "nid="])?;
        for target in ["sheen-MDT0000", "sheen-OST0000", "sheen-OST0001"] {
            let target = format!("target=\"{target}\"");
            has(&lines, &["will recover", &target, "clients="])?;
            has(&lines, &["recovery begins", &target, "clients=", "seconds="])?;
            has(&lines, &["recovery over", &target, "recovered=", "evicted=0", "seconds="])?;
        }
        has(&lines, &["client disconnected", "client=", "nid="])?;
        has(&lines, &["stops: clients stay recorded"])?;
        has(&lines, &["mount starts", "version=\"2.17", "nid=127.", "source="])?;
        has(&lines, &["mount: ", "connection lost: operations wait"])?;
        has(&lines, &["unmounted", "source="])
    });
}

/// The process of the mount at `path`.
fn mount_process(path: &Path) -> Outcome<i32> {
    let is_it = |pid: i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = words.split(|byte| *byte == 0).collect();
        words.contains(&&b"--foreground"[..])
            && words.contains(&path.as_os_str().as_encoded_bytes())
    };
    let entries = fs::read_dir("/proc").context("/proc")?.flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| is_it(*pid)).ok_or(format!("no process mounts {}", path.display()))
}

#[test]
fn each_client_that_recovery_evicts_is_named() {
    scene("named-evicted", 1, LIMIT, |cluster| {
        let mounts = [cluster.mount_again()?, cluster.mount_again()?];
        for mount in &mounts {
            fs::write(mount.join("f"), "1").context("write")?;
        }
        stop_server(cluster)?;
        for mount in &mounts {
            process::kill(mount_process(mount)?)?;
        }
        cluster.up()?;
        fs::write(cluster.mnt().join("g"), "1").context("write")?;
        let lines = lines(cluster);
        let words = ["target=\"sheen-MDT0000\"", "did not finish recovery in time, evicting"];
        let named = count(&lines, &words);
        ensure(named == 2, || format!("{named} clients named in\n{}", lines.join("\n")))?;
        has(&lines, &["recovery over", "sheen-MDT0000", "clients=3 recovered=1 evicted=2"])
    });
}
