//! A further MDT joins a file system in use: it waits for the first one, is known to it from then on, and both come back
//! after they have died or stopped. What its clients may not do yet is refused; what is MDT0000's goes on.
#![allow(clippy::disallowed_methods, reason = "calls wait for a server in real time")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sheen_store_disk::Config;
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::{text, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

use crate::nodes::{Node, PORT, format, nid, spawn};

/// Longer than any start or recovery takes here.
const PATIENCE: Duration = Duration::from_secs(120);
const LIMIT: Duration = Duration::from_secs(240);
/// The nodes of the MGS, MDT0000, the OST, MDT0001 and the mount, behind the first one of a test.
const MGS: u32 = 0;
const FIRST: u32 = 1;
const OST: u32 = 2;
const SECOND: u32 = 3;
const MOUNT: u32 = 4;

struct Targets<'a> {
    cluster: &'a Cluster,
    /// Which file system of this process it is: addresses are by it.
    base: u32,
    mgt: PathBuf,
    first: PathBuf,
    ost: PathBuf,
    second: PathBuf,
}

impl<'a> Targets<'a> {
    fn format(cluster: &'a Cluster, base: u32) -> Outcome<Self> {
        let mgs = nid(base + MGS);
        let mgt = cluster.dir().join("mgt");
        cluster.must(&["mkfs.lustre", "-q", "--mgs", &mgt.to_string_lossy()])?;
        let target =
            |name, kind, index| format(cluster, name, &[kind, "--index", index, "--mgsnode", &mgs]);
        let (first, ost) = (target("first", "--mdt", "0")?, target("ost", "--ost", "0")?);
        let second = target("second", "--mdt", "1")?;
        Ok(Self { cluster, base, mgt, first, ost, second })
    }

    fn serve(&self, node: u32) -> Outcome<Node> {
        let target = match node {
            MGS => &self.mgt,
            FIRST => &self.first,
            OST => &self.ost,
            _ => &self.second,
        };
        let (nid, target) = (nid(self.base + node), target.to_string_lossy());
        let timeouts = ["--timeout", "20"];
        let server = ["server", "--nid", &nid, "--port", PORT];
        let arguments = [&server[..], &timeouts[..], &[&*target]].concat();
        spawn(self.cluster, &arguments, &self.log(node))
    }

    fn log(&self, node: u32) -> PathBuf {
        self.cluster.logs().join(format!("server{node}.log"))
    }

    fn is_ready(&self, node: u32) -> bool {
        text(&self.log(node)).lines().any(|line| line.ends_with("ready"))
    }

    /// Each of the MDTs has the other one as a client.
    fn know_each_other(&self) -> bool {
        [("nodes-MDT0000", "nodes-MDT0001-mdtlov"), ("nodes-MDT0001", "nodes-MDT0000-mdtlov")]
            .iter()
            .all(|(mdt, other)| {
                let name = format!("mdt.{mdt}.exports.*.uuid");
                let shown = self.cluster.run(&["lctl", "get_param", "-n", &name]);
                shown.is_ok_and(|shown| shown.output.contains(other))
            })
    }

    fn mount(&self, log: &Path) -> Outcome<Node> {
        let (source, mnt) = (format!("{}:/nodes", nid(self.base + MGS)), self.cluster.mnt());
        let own = nid(self.base + MOUNT);
        let (options, path) = (format!("port={PORT},nid={own}"), mnt.to_string_lossy());
        let arguments = ["mount", "--foreground", "-o", &options, &source, &path];
        let mut tried = spawn(self.cluster, &arguments, log)?;
        wait_until("the mount", PATIENCE, || {
            if tried.0.try_wait().is_ok_and(|ended| ended.is_some())
                && let Ok(again) = spawn(self.cluster, &arguments, log)
            {
                tried = again;
            }
            text(Path::new("/proc/mounts")).contains(&*path)
        })?;
        Ok(tried)
    }

    /// Its process leaves its servers before it ends: killed, it would be awaited at their next start.
    fn unmount(&self, mut mounted: Node) -> Outcome {
        let mnt = self.cluster.mnt();
        wait_until("an unused mount", PATIENCE, || {
            let unmount =
                Command::new("fusermount3").arg("-u").arg(&mnt).stderr(Stdio::null()).status();
            unmount.is_ok_and(|status| status.success())
        })?;
        let has_ended = || mounted.0.try_wait().is_ok_and(|ended| ended.is_some());
        wait_until("the end of the mount", PATIENCE, has_ended)
    }
}

/// Files of MDT0000 are there, and new ones are made.
fn goes_on(mnt: &Path, file: &str) -> Outcome {
    fs::write(mnt.join(file), file).context("write")?;
    fs::create_dir(mnt.join(format!("{file}.d"))).context("mkdir")?;
    for file in ["before", file] {
        let held = fs::read_to_string(mnt.join(file)).context("read")?;
        ensure(held == file, || format!("{file} has {held:?}"))?;
    }
    Ok(())
}

fn stop(server: &mut Node) -> Outcome {
    kill_process(Pid::from_child(&server.0), Signal::TERM).context("kill")?;
    let ended = server.0.wait().context("wait")?;
    ensure(ended.success(), || format!("the server: {ended}"))
}

fn join(cluster: &Cluster) -> Outcome {
    let targets = Targets::format(cluster, 70)?;
    let (_mgs, first) = (targets.serve(MGS)?, targets.serve(FIRST)?);
    let _ost = targets.serve(OST)?;
    let (mnt, log) = (cluster.mnt(), cluster.logs().join("mount.log"));
    let mounted = targets.mount(&log)?;
    fs::write(mnt.join("before"), "before").context("write")?;

    // It joins while the first one is away: it waits, and says what for.
    drop(first);
    let second = targets.serve(SECOND)?;
    let waits = || text(&targets.log(SECOND)).contains("waits for MDT0000");
    wait_until("a word of what it waits for", PATIENCE, waits)?;
    ensure(!targets.is_ready(SECOND), || "it is ready without FIDs".to_owned())?;
    let first = targets.serve(FIRST)?;
    wait_until("the second MDT", PATIENCE, || targets.is_ready(SECOND))?;
    wait_until("the MDTs to know each other", PATIENCE, || targets.know_each_other())?;
    goes_on(&mnt, "joined")?;
    let known = ["lctl", "get_param", "-n", "obdfilter.nodes-OST0000.mdt_identity"];
    wait_until("the OST to know both", PATIENCE, || {
        cluster.run(&known).is_ok_and(|shown| {
            shown.output.contains("MDT0000:") && shown.output.contains("MDT0001:")
        })
    })?;

    // Either dies.
    drop(second);
    goes_on(&mnt, "without")?;
    let second = targets.serve(SECOND)?;
    wait_until("the second MDT again", PATIENCE, || targets.know_each_other())?;
    drop(first);
    let mut first = targets.serve(FIRST)?;
    goes_on(&mnt, "again")?;
    wait_until("the first MDT again", PATIENCE, || targets.know_each_other())?;

    // Both stop, and the mount is another one that finds two MDTs.
    targets.unmount(mounted)?;
    let mut second = second;
    stop(&mut second)?;
    stop(&mut first)?;
    let (_first, _second) = (targets.serve(FIRST)?, targets.serve(SECOND)?);
    let mounted = targets.mount(&log)?;
    wait_until("both MDTs", PATIENCE, || targets.know_each_other())?;
    goes_on(&mnt, "after")?;
    for node in [FIRST, SECOND, OST] {
        let log = text(&targets.log(node));
        let bad = log.lines().find(|line| line.contains("panicked") || line.contains(" ERROR "));
        ensure(bad.is_none(), || format!("server {node}: {bad:?}"))?;
    }
    targets.unmount(mounted)
}

#[test]
fn a_further_mdt_joins_and_survives_deaths_and_restarts() {
    let cluster = Cluster::prepare("further-mdt", 1, &[]).expect("a folder");
    join(&cluster).expect("two MDTs");
}

/// Its FIDs and objects are those of the MDT that it was made for.
#[test]
fn a_store_of_the_first_mdt_is_not_served_as_a_second() {
    let cluster = Cluster::prepare("further-store", 1, &[]).expect("a folder");
    let served = || -> Outcome {
        let targets = Targets::format(&cluster, 80)?;
        let (_mgs, first) = (targets.serve(MGS)?, targets.serve(FIRST)?);
        wait_until("the first MDT", PATIENCE, || targets.is_ready(FIRST))?;
        drop(first);
        let mut config = Config::load(&targets.first).context("the configuration")?;
        config.values.insert("index".to_owned(), "1".to_owned());
        config.save(&targets.first).context("save")?;
        let place = targets.first.to_string_lossy();
        let refused =
            cluster.run(&["server", "--nid", &nid(80 + FIRST), "--port", PORT, &place])?;
        let is_so = !refused.status.success()
            && refused.output.contains("it is the store of MDT0000, and cannot be MDT0001's");
        ensure(is_so, || format!("{}: {}", refused.status, refused.output))
    };
    served().expect("it is refused");
}

/// What they do not know of they would take for lost.
#[test]
fn commands_that_know_one_mdt_refuse_a_file_system_of_several_by_name() {
    scene("further-refused", 1, LIMIT, |cluster| {
        cluster.down()?;
        let nid = fs::read_to_string(cluster.dir().join("run/mgs.nid")).context("mgs.nid")?;
        let (dir, further) = (cluster.dir(), cluster.dir().join("mdt0001"));
        let (dir, place) = (dir.to_string_lossy(), further.to_string_lossy());
        let kind = ["--mdt", "--index", "1", "--fsname", "sheen"];
        let made = [&["mkfs.lustre", "-q", "--mgsnode", nid.trim()][..], &kind, &[&place]];
        cluster.must(&made.concat())?;
        let mnt = cluster.mnt();
        for (words, code, text) in [
            (&["fsck", "--dir", &dir, "-y"][..], 8, "sheen-MDT0001: file systems of several"),
            (&["salvage", "--dir", &dir, "mdt0001"], 95, "mdt0001: file systems of several"),
            (&["up", "--dir", &dir, "--mount", &mnt.to_string_lossy()], 22, "only one metadata"),
        ] {
            let refused = cluster.run(words)?;
            let is_so = refused.status.code() == Some(code) && refused.output.contains(text);
            ensure(is_so, || format!("{words:?}: {}: {}", refused.status, refused.output))?;
        }
        ensure(!cluster.dir().join("salvaged-mdt0001").exists(), || "a store is left".to_owned())?;
        fs::remove_dir_all(&further).context("remove")?;
        cluster.up()
    });
}
