//! Servers at nodes of their own: each process learns from the MGS who else is one, whichever starts
//! first; and who is none gets nowhere.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sheen_testkit::addresses::Block;
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::{text, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(240);
/// Longer than any start or recovery takes here.
const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const PORT: &str = "19989";

/// A process of one node; killed when dropped.
pub(crate) struct Node(pub(crate) Child);

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address of this machine that no other process has; those of `sheen up` are other ones.
pub(crate) fn nid(node: u32) -> String {
    static OWN: LazyLock<Block> = LazyLock::new(|| Block::free().expect("addresses"));
    OWN.nid(node)
}

pub(crate) fn spawn(cluster: &Cluster, arguments: &[&str], log: &Path) -> Outcome<Node> {
    let out = File::options().create(true).append(true).open(log).context(log.display())?;
    let mut command = cluster.command(arguments);
    command.stdin(Stdio::null());
    command.stderr(out.try_clone().context(log.display())?).stdout(out);
    command.spawn().context("sheen").map(Node)
}

fn serve(cluster: &Cluster, node: u32, target: &Path) -> Outcome<Node> {
    let (nid, target_text) = (nid(node), target.to_string_lossy());
    let log = cluster.logs().join(format!("server{node}.log"));
    spawn(cluster, &["server", "--nid", &nid, "--port", PORT, &target_text], &log)
}

pub(crate) fn format(cluster: &Cluster, name: &str, more: &[&str]) -> Outcome<PathBuf> {
    let directory = cluster.dir().join(name);
    let text = directory.to_string_lossy().into_owned();
    let mut arguments = vec!["mkfs.lustre", "-q", "--fsname", "nodes", "--device-size", "2000000"];
    arguments.extend(more);
    arguments.push(&text);
    cluster.must(&arguments)?;
    Ok(directory)
}

/// Mounts what `source` names, at this NID, again and again until the servers admit it.
pub(crate) fn mount(cluster: &Cluster, (source, own): (&str, &str), log: &Path) -> Outcome<Node> {
    let mnt = cluster.mnt();
    let (options, path) = (format!("port={PORT},nid={own}"), mnt.to_string_lossy());
    let arguments = ["mount", "--foreground", "-o", &options, source, &path];
    let mut tried = spawn(cluster, &arguments, log)?;
    wait_until("the mount", PATIENCE, || {
        if tried.0.try_wait().is_ok_and(|ended| ended.is_some())
            && let Ok(again) = spawn(cluster, &arguments, log)
        {
            tried = again;
        }
        text(Path::new("/proc/mounts")).contains(&*path)
    })?;
    Ok(tried)
}

/// Its process leaves its servers before it ends: killed, it would be awaited at their next start.
pub(crate) fn unmount(cluster: &Cluster, mut mounted: Node) -> Outcome {
    let mnt = cluster.mnt();
    wait_until("an unused mount", PATIENCE, || {
        let unmount =
            Command::new("fusermount3").arg("-u").arg(&mnt).stderr(Stdio::null()).status();
        unmount.is_ok_and(|status| status.success())
    })?;
    let has_ended = || mounted.0.try_wait().is_ok_and(|ended| ended.is_some());
    wait_until("the end of the mount", PATIENCE, has_ended)
}

/// Stops a server in order.
pub(crate) fn stop_now(server: &mut Node) -> Outcome {
    kill_process(Pid::from_child(&server.0), Signal::TERM).context("kill")?;
    let ended = server.0.wait().context("wait")?;
    ensure(ended.success(), || format!("the server: {ended}"))
}

fn reads(path: &Path, wanted: &str) -> Outcome {
    wait_until(&format!("{} in {}", wanted, path.display()), PATIENCE, || {
        fs::read_to_string(path).is_ok_and(|found| found == wanted)
    })
}

#[expect(clippy::disallowed_methods, reason = "a server is waited for that must not start")]
fn work(cluster: &Cluster) -> Outcome {
    let mdt = format(cluster, "mdt", &["--mgs", "--mdt", "--index", "0"])?;
    let ost = format(cluster, "ost", &["--ost", "--index", "0", "--mgsnode", &nid(1)])?;
    let (first, second) = (serve(cluster, 1, &mdt)?, serve(cluster, 2, &ost)?);
    let (source, mnt) = (format!("{}:/nodes", nid(1)), cluster.mnt());
    let (options, path) = (format!("port={PORT},nid={}", nid(3)), mnt.to_string_lossy());
    let log = cluster.logs().join("mount.log");
    let mount = ["mount", "--foreground", "-o", &options, &source, &path];
    let mut mounted = None;
    wait_until("the mount", PATIENCE, || {
        let tried = mounted.get_or_insert_with(|| spawn(cluster, &mount, &log));
        let ended = tried.as_mut().is_ok_and(|node| node.0.try_wait().is_ok_and(|it| it.is_some()));
        if ended {
            mounted = None;
        }
        fs::read_to_string("/proc/mounts").is_ok_and(|all| all.contains(&*path))
    })?;
    fs::write(mnt.join("one"), "1").context("write")?;
    // The OST comes back before the MGS can send it the MDT's NIDs.
    drop((first, second));
    let mut second = serve(cluster, 2, &ost)?;
    std::thread::sleep(Duration::from_secs(2));
    let _first = serve(cluster, 1, &mdt)?;
    reads(&mnt.join("one"), "1")?;
    fs::write(mnt.join("two"), "2").context("write")?;
    reads(&mnt.join("two"), "2")?;
    let refused = text(&cluster.logs().join("server2.log"));
    ensure(!refused.contains("claims to be a server"), || refused.clone())?;
    let unmounted =
        Command::new("fusermount3").args(["-u", &*path]).status().context("fusermount3")?;
    ensure(unmounted.success(), || "the mount is in use".to_owned())?;
    stop(&mut second)?;
    // One that stays would be evicted after minutes, with a warning.
    let said = "client disconnected target=\"MGS\"";
    let log = text(&cluster.logs().join("server1.log"));
    let has_left = |line: &str| line.contains(said) && line.contains(&format!("nid={}", nid(2)));
    ensure(log.lines().any(has_left), || log.clone())
}

/// Stops a server as service managers do.
#[expect(
    clippy::disallowed_methods,
    reason = "the log leaves out lines that follow each other closely"
)]
fn stop(server: &mut Node) -> Outcome {
    std::thread::sleep(Duration::from_secs(4));
    stop_now(server)
}

#[test]
fn servers_at_nodes_of_their_own_know_each_other() {
    let cluster = Cluster::prepare("nodes", 1, &[]).expect("a folder");
    work(&cluster).expect("three nodes work");
}

/// A file system of `sheen up` has all its targets in one process.
#[test]
fn a_target_from_elsewhere_does_not_join_what_is_up() {
    scene("joins", 1, LIMIT, |cluster| {
        let source = text(&cluster.dir().join("run/mgs.nid"));
        let (mgs, port) = (source.trim(), cluster.port().ok_or("no port")?);
        let directory = cluster.dir().join("stranger");
        let target = directory.to_string_lossy();
        let fsname = ["--fsname", "sheen", "--index", "7", "--mgsnode", mgs];
        let mut arguments = vec!["mkfs.lustre", "-q", "--ost", "--device-size", "2000000"];
        arguments.extend(fsname);
        arguments.push(&target);
        cluster.must(&arguments)?;
        let nid = nid(9);
        let joined = cluster.run(&["server", "--nid", &nid, "--port", &port, &target])?;
        ensure(!joined.status.success(), || "it joined".to_owned())?;
        ensure(joined.output.contains("Permission denied"), || joined.output.clone())?;
        Ok(())
    });
}
