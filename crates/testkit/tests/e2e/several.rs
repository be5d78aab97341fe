//! Several file systems of one name on one machine: a command is for one of them, and asks which where that is not
//! clear.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(300);
/// A change settles for a second before servers and clients read it.
const SEEN: Duration = Duration::from_secs(60);
/// A wrong use of Lustre's tools.
const USAGE: i32 = 4;

/// A second file system of the same name and user, beside that of a cluster.
struct Second<'a> {
    cluster: &'a Cluster,
    dir: PathBuf,
    mnt: PathBuf,
}

impl<'a> Second<'a> {
    fn start(cluster: &'a Cluster) -> Outcome<Self> {
        let beside = |name: &str| cluster.dir().with_file_name(name);
        let second = Self { cluster, dir: beside("second"), mnt: beside("second-mnt") };
        fs::create_dir_all(&second.mnt).context("mkdir")?;
        let (dir, mnt) = (second.dir.to_string_lossy(), second.mnt.to_string_lossy());
        cluster.must(&["up", "--dir", &dir, "--mount", &mnt, "--osts", "1"])?;
        Ok(second)
    }

    fn down(&self) -> Outcome {
        self.cluster.must(&["down", "--dir", &self.dir.to_string_lossy()]).map(drop)
    }
}

/// The command asks which file system is meant, naming both, and changes nothing.
fn asks(cluster: &Cluster, second: &Second<'_>, words: &[&str]) -> Outcome {
    let asked = cluster.run(words)?;
    let names = |dir: &Path| asked.output.contains(&format!("sheen in {}", dir.display()));
    let is_asked = asked.status.code() == Some(USAGE)
        && asked.output.contains("which file system?")
        && asked.output.contains("--dir DIR")
        && names(&cluster.dir())
        && names(&second.dir);
    ensure(is_asked, || format!("{words:?}: {} {}", asked.status, asked.output))
}

/// `lctl --dir DIR WORDS`.
fn at(cluster: &Cluster, dir: &Path, words: &[&str]) -> Outcome<String> {
    let dir = dir.to_string_lossy();
    cluster.must(&[&["lctl", "--dir", &dir], words].concat())
}

#[test]
fn a_command_is_for_one_file_system_of_several() {
    scene("several", 2, LIMIT, |cluster| {
        let second = Second::start(cluster)?;
        let tried = speak(cluster, &second);
        second.down().and(tried)?;
        // Alone it needs no choice any more.
        cluster.must(&["lctl", "pool_new", "sheen.alone"]).map(drop)
    });
}

fn speak(cluster: &Cluster, second: &Second<'_>) -> Outcome {
    for words in [
        &["lctl", "conf_param", "sheen.llite.max_read_ahead_per_file_mb=5"][..],
        &["lctl", "set_param", "-P", "llite.*.max_read_ahead_per_file_mb=5"],
        &["lctl", "set_param", "obdfilter.sheen-OST0000.degraded=1"],
        &["lctl", "pool_new", "sheen.fast"],
        &["lctl", "pool_add", "sheen.fast", "OST0000"],
        &["lctl", "llog_catlist"],
        &["lctl", "llog_print", "sheen-client"],
        &["lctl", "--device", "sheen-OST0000-osc-MDT0000", "deactivate"],
        &["lctl", "get_param", "obdfilter.sheen-OST0000.uuid", "osd-*.sheen-OST0000.mntdev"],
        &["lfs", "pool_list", "sheen"],
        &["lfs", "fid2path", "sheen", "[0x200000007:0x1:0x0]"],
        &["lfs", "rmfid", "sheen", "[0x200000007:0x1:0x0]"],
        &["scrub"],
        &["scrub", "sheen-OST0000"],
    ] {
        asks(cluster, second, words)?;
    }
    let (one, two) = (cluster.dir(), &second.dir);
    // The second OST is of the first file system alone: its name says which.
    cluster.must(&["lctl", "set_param", "obdfilter.sheen-OST0001.degraded=1"])?;
    at(cluster, two, &["set_param", "obdfilter.sheen-OST0000.degraded=1"])?;
    for (dir, wanted) in [(&one, "0"), (two, "1")] {
        let degraded = at(cluster, dir, &["get_param", "-n", "obdfilter.sheen-OST0000.degraded"])?;
        ensure(degraded.trim() == wanted, || format!("{}: {degraded}", dir.display()))?;
    }
    at(cluster, two, &["pool_new", "sheen.fast"])?;
    at(cluster, two, &["pool_add", "sheen.fast", "OST0000"])?;
    let pools = |mnt: &Path| cluster.must(&["lfs", "pool_list", &mnt.to_string_lossy()]);
    ensure(pools(&second.mnt)?.contains("sheen.fast"), || "the pool is not there".to_owned())?;
    ensure(!pools(&cluster.mnt())?.contains("fast"), || "the pool is in both".to_owned())?;
    let window = "llite.*.max_read_ahead_per_file_mb";
    let values = |dir: &Path| at(cluster, dir, &["get_param", "-n", window]);
    let before = values(&one)?;
    at(cluster, two, &["conf_param", "sheen.llite.max_read_ahead_per_file_mb=5"])?;
    wait_until("the parameter", SEEN, || values(two).is_ok_and(|value| value.trim() == "5"))?;
    ensure(values(&one)? == before, || format!("both: {:?}", values(&one)))?;
    let osts = at(cluster, two, &["dl"])?;
    ensure(osts.contains("sheen-OST0000") && !osts.contains("sheen-OST0001"), || osts)?;
    let dir = two.to_string_lossy();
    let scrubbed = cluster.must(&["scrub", "--dir", &dir])?;
    ensure(!scrubbed.contains("sheen-OST0001"), || scrubbed)
}

/// A directory without a file system is named, and no command goes to another one instead.
#[test]
fn a_directory_without_a_file_system_is_refused() {
    scene("several-none", 1, LIMIT, |cluster| {
        for (dir, code, why) in [
            (cluster.logs(), 19, "no file system in it is running"),
            (cluster.logs().join("missing"), 2, "No such file or directory"),
        ] {
            let dir = dir.to_string_lossy();
            for words in [&["lctl", "--dir", &dir, "dl"][..], &["lfs", "--dir", &dir, "df"]] {
                let refused = cluster.run(words)?;
                let is_refused =
                    refused.status.code() == Some(code) && refused.output.contains(why);
                ensure(is_refused, || format!("{words:?}: {}", refused.output))?;
            }
        }
        let own = cluster.dir();
        let own = own.to_string_lossy();
        let wrong = cluster.run(&["lctl", "--dir", &own, "pool_new", "--bogus"])?;
        ensure(wrong.status.code() == Some(USAGE), || wrong.output.clone())?;
        let unknown = cluster.run(&["lctl", "--dir", &own, "bogus"])?;
        ensure(unknown.status.code() == Some(1), || unknown.output.clone())?;
        cluster.must(&["lctl", "get_param", "--dir", &own, "version"]).map(drop)
    });
}
