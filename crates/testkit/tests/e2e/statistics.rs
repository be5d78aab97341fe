//! What is counted is what was done, and the disk is counted once.

use std::fs;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_testkit::{Outcome, Told, ensure};

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
    fs::write(mnt.join("data"), vec![7; 3 * MIB as usize]).told("write")?;
    fs::File::open(mnt.join("data")).and_then(|file| file.sync_all()).told("fsync")?;
    for name in ["a", "b"] {
        fs::create_dir(mnt.join(name)).told(name)?;
    }
    fs::rename(mnt.join("data"), mnt.join("a/data")).told("rename")?;
    fs::rename(mnt.join("a/data"), mnt.join("a/moved")).told("rename")?;
    fs::remove_dir(mnt.join("b")).told("rmdir")?;
    for (parameter, line, wanted) in [
        ("llite.*.stats", "mkdir", 2),
        ("llite.*.stats", "rename", 2),
        ("llite.*.stats", "rmdir", 1),
        ("llite.*.stats", "create", 1),
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
        let disk = rustix::fs::statvfs(cluster.dir()).told("statvfs")?;
        let mount = rustix::fs::statvfs(cluster.mnt()).told("statvfs")?;
        let bytes = |stat: &rustix::fs::StatVfs| stat.f_blocks * stat.f_frsize;
        let (disk, mount) = (bytes(&disk), bytes(&mount));
        ensure(mount <= disk && mount > disk / 10 * 9, || format!("{mount} bytes of {disk}"))
    });
}
