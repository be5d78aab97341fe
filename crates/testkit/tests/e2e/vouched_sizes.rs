//! Sizes of files with data on OSTs, which the MDT vouches for: counted requests of cold mounts, with deaths in between.
#![allow(clippy::disallowed_methods, reason = "files are confirmed in real time")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sheen_testkit::cluster::{Cluster, kill_keeper};
use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::bytes::content;
use sheen_workloads::{Context, Outcome, ensure, process};

const LIMIT: Duration = Duration::from_secs(600);
/// By when files that were looked at are confirmed, on a busy machine.
const CONFIRMED: Duration = Duration::from_secs(60);
const FILES: usize = 40;
/// How often a listing asks for one file that another client may be writing: each of its stats does.
const OF_ONE: std::ops::RangeInclusive<u64> = 1..=12;

/// Bytes of file number `number`.
fn length(number: usize) -> usize {
    1000 * number + 7
}

fn path(top: &Path, number: usize) -> PathBuf {
    top.join("files").join(number.to_string())
}

/// How many locks, glimpses among them, mounts have asked OSTs for.
fn asked_osts(cluster: &Cluster) -> Outcome<u64> {
    let text = cluster.must(&["lctl", "get_param", "-n", "osc.*.stats"])?;
    let mut sum = 0;
    for line in text.lines().filter(|line| line.contains("enqueue")) {
        let count = line.split_whitespace().nth(1).unwrap_or("0");
        sum += count.parse::<u64>().context(line)?;
    }
    Ok(sum)
}

/// What a new mount asks OSTs for a long listing and the sum of blocks, whose sizes must be these.
fn cold_listing(cluster: &Cluster, sizes: impl Fn(usize) -> usize) -> Outcome<u64> {
    let top = cluster.mount_again()?;
    let before = asked_osts(cluster)?;
    for number in 0..FILES {
        let path = path(&top, number);
        let known = fs::metadata(&path).context(path.display())?;
        let wanted = sizes(number) as u64;
        ensure(known.len() == wanted, || format!("{number}: {} for {wanted}", known.len()))?;
        let bytes = known.blocks() * 512;
        ensure(bytes >= wanted, || format!("{number}: {bytes} bytes of blocks for {wanted}"))?;
    }
    for words in [&["ls", "-l"][..], &["du", "-s"]] {
        let mut command = std::process::Command::new(words[0]);
        let shown = command.arg(words[1]).arg(top.join("files")).output().context(words[0])?;
        ensure(shown.status.success(), || format!("{words:?}: {}", shown.status))?;
    }
    Ok(asked_osts(cluster)? - before)
}

/// Whether the MDT vouches for the size (`SOM_FL_STRICT`).
fn is_strict(cluster: &Cluster, path: &Path) -> bool {
    let flags = cluster.must(&["lfs", "getsom", "-f", &path.to_string_lossy()]);
    flags.is_ok_and(|flags| flags.trim() == "1")
}

/// A new mount looks at the files, and the MDT has them confirmed: a mount that knows a file under locks does not ask.
fn confirm(cluster: &Cluster) -> Outcome {
    // A close is sent a moment after its call.
    std::thread::sleep(Duration::from_secs(1));
    let top = cluster.mount_again()?;
    let mut unknown: Vec<PathBuf> = (0..FILES).map(|number| path(&top, number)).collect();
    for path in &unknown {
        fs::metadata(path).context(path.display())?;
    }
    process::wait_until("sizes that the MDT vouches for", CONFIRMED, || {
        unknown.retain(|path| !is_strict(cluster, path));
        unknown.is_empty()
    })
}

#[test]
fn a_cold_listing_asks_no_ost_and_is_right() {
    scene("strict-sizes", 2, LIMIT, |cluster| {
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        fs::create_dir(first.join("files")).context("mkdir")?;
        for number in 0..FILES {
            fs::write(path(&first, number), content(number as u64, length(number)))
                .context("write")?;
        }
        let asked = cold_listing(cluster, length)?;
        ensure(asked >= FILES as u64, || format!("{asked} requests: who said so?"))?;
        confirm(cluster)?;
        let asked = cold_listing(cluster, length)?;
        ensure(asked == 0, || format!("{asked} requests to OSTs for sizes that were confirmed"))?;

        // The server dies: all mounts come back, so nothing is in doubt.
        cluster.kill_server()?;
        cluster.up()?;
        let asked = cold_listing(cluster, length)?;
        ensure(asked == 0, || format!("{asked} requests to OSTs after a restart"))?;

        // One is written, and its size is right at once wherever it is asked for.
        let longer = |number| length(number) + if number == 3 { 5000 } else { 0 };
        let appended = OpenOptions::new().append(true).open(path(&second, 3));
        let mut appended = appended.context("open")?;
        appended.write_all(&content(77, 5000)).context("append")?;
        for top in [&first, &second] {
            let seen = fs::metadata(path(top, 3)).context("stat")?.len();
            ensure(seen == longer(3) as u64, || format!("{seen} bytes while it is open"))?;
        }
        let asked = cold_listing(cluster, longer)?;
        ensure(OF_ONE.contains(&asked), || format!("{asked} requests with one open file"))?;
        drop(appended);
        confirm(cluster)?;
        let asked = cold_listing(cluster, longer)?;
        ensure(asked == 0, || format!("{asked} requests after it was closed"))?;

        // A mount dies with a file open for writing.
        let dead = OpenOptions::new().write(true).open(path(&first, 5)).context("open")?;
        kill_keeper(cluster.keeper_pid()?, cluster.mount_pid()?)?;
        cluster.kill_mount()?;
        let asked = cold_listing(cluster, longer)?;
        ensure(OF_ONE.contains(&asked), || format!("{asked} requests with a dead writer"))?;
        drop(dead);
        // And the server, which does not know then what else it had open.
        cluster.kill_server()?;
        cluster.up()?;
        let asked = cold_listing(cluster, longer)?;
        ensure(asked >= FILES as u64, || format!("{asked} requests: a client was lost"))?;
        let read = fs::read(path(&second, 3)).context("read")?;
        ensure(read.len() == longer(3), || format!("{} bytes read", read.len()))?;
        File::open(&second).and_then(|top| top.sync_all()).context("fsync")?;
        same_after_restart(cluster)
    });
}
