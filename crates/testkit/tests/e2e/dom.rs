//! Files whose first bytes lie on the MDT: what holds for those on OSTs holds for them.
#![allow(clippy::disallowed_methods, reason = "waits for what servers do in their time")]

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{disturbed, same_after_restart, scene};
use sheen_workloads::bytes::content;
use sheen_workloads::{Context, Outcome, Size, ensure, mapped, pair, process};

const LIMIT: Duration = Duration::from_secs(600);
/// By then closes were sent and answered, and nothing was written back yet.
const CLOSED: Duration = Duration::from_millis(100);
/// By then what is dirty was written, and closes were answered.
const SETTLED: Duration = Duration::from_millis(2500);
/// Longer than anything takes that waits for no server, shorter than a server may stand still.
const AT_ONCE: Duration = Duration::from_secs(5);
/// Bytes of a file that lie on the MDT.
const COMPONENT: usize = 64 << 10;

/// New files begin on the MDT.
pub(crate) fn begin_on_mdt(cluster: &Cluster) -> Outcome {
    let mnt = cluster.mnt();
    let mnt = mnt.to_string_lossy();
    cluster.must(&["lfs", "setstripe", "-E", "64K", "-L", "mdt", "-E", "-1", "-c", "1", &mnt])?;
    Ok(())
}

type Act = fn(&PathBuf, &PathBuf, u64) -> Outcome;

/// Plays `act` with the first mount in the first role, then in the second.
fn both_ways(name: &str, act: Act) {
    scene(name, 2, LIMIT, move |cluster| {
        begin_on_mdt(cluster)?;
        let rounds = Size::asked().of(10, 50, 1000);
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        for (folder, one, other) in [("there", &first, &second), ("back", &second, &first)] {
            fs::create_dir(one.join(folder)).context("mkdir")?;
            act(&one.join(folder), &other.join(folder), rounds)?;
        }
        same_after_restart(cluster)
    });
}

#[test]
fn two_mounts_agree_on_bytes_size_and_times() {
    both_ways("dom-pairs", |a, b, rounds| {
        pair::close_to_open(a, b, rounds)?;
        pair::growing(a, b, rounds)?;
        pair::attributes_agree(a, b)?;
        pair::append(a, b, rounds)
    });
}

#[test]
fn what_one_writes_into_a_mapping_the_other_finds_in_its_own() {
    both_ways("dom-mappings", |a, b, rounds| mapped::run(a, b, rounds));
}

/// How often each kind of request was sent to the MDT and to OSTs, pings left out.
fn requests(cluster: &Cluster) -> Outcome<BTreeMap<String, u64>> {
    let text = cluster.must(&["lctl", "get_param", "-n", "mdc.*.stats", "osc.*.stats"])?;
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(kind), Some(count)) = (words.next(), words.next()) else { continue };
        let is_request = words.next() == Some("samples") && !kind.ends_with("_bytes");
        if is_request && !kind.starts_with("req_") && kind != "obd_ping" {
            *counts.entry(kind.to_owned()).or_default() += count.parse::<u64>().context(line)?;
        }
    }
    Ok(counts)
}

/// What `work` asked for, by kind.
pub(crate) fn asked_by(
    cluster: &Cluster,
    work: impl FnOnce() -> Outcome,
) -> Outcome<Vec<(String, u64)>> {
    let before = requests(cluster)?;
    work()?;
    let mut after = requests(cluster)?;
    for (kind, count) in &mut after {
        *count -= before.get(kind).copied().unwrap_or(0);
    }
    Ok(after.into_iter().filter(|(_, count)| *count > 0).collect())
}

/// Sizes around the component's end, and what is in it.
fn sizes(mnt: &Path, other: &Path) -> Outcome {
    for size in [0, 1, 4095, 4096, 4097, 9000, COMPONENT - 1, COMPONENT, COMPONENT + 1, 200_000] {
        let (here, there) = (mnt.join(size.to_string()), other.join(size.to_string()));
        let bytes = content(size as u64, size);
        fs::write(&here, &bytes).context("write")?;
        let seen = fs::metadata(&there).context("stat")?.len();
        ensure(seen == size as u64, || format!("{seen} bytes instead of {size}"))?;
        ensure(fs::read(&there).context("read")? == bytes, || format!("other bytes at {size}"))?;
        for cut in [size / 2, size + 5000, 0, 70_000] {
            let file = OpenOptions::new().write(true).open(&there).context("open")?;
            file.set_len(cut as u64).context("truncate")?;
            let mut expected = bytes.clone();
            expected.truncate(cut.min(size / 2));
            if cut == 0 || cut == 70_000 {
                expected.clear();
            }
            expected.resize(cut, 0);
            let read = fs::read(&here).context("read")?;
            ensure(read == expected, || format!("{size} cut to {cut}: {} bytes", read.len()))?;
        }
        let file = OpenOptions::new().append(true).open(&here).context("open")?;
        (&file).write_all(b"end").context("append")?;
        file.sync_all().context("fsync")?;
        let seen = fs::metadata(&there).context("stat")?.len();
        ensure(seen == 70_003, || format!("{seen} bytes after an append"))?;
    }
    Ok(())
}

#[test]
fn files_of_all_sizes_are_cut_and_extended_by_both() {
    scene("dom-sizes", 2, LIMIT, |cluster| {
        begin_on_mdt(cluster)?;
        let other = cluster.mount_again()?;
        sizes(&cluster.mnt(), &other)?;
        same_after_restart(cluster)
    });
}

#[test]
fn holes_space_and_times() {
    scene("dom-holes", 2, LIMIT, |cluster| {
        begin_on_mdt(cluster)?;
        let (mnt, other) = (cluster.mnt(), cluster.mount_again()?);
        let file = File::create_new(mnt.join("f")).context("create")?;
        file.write_all_at(&[1; 100], 50_000).context("write")?;
        let times =
            fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(9));
        file.set_times(times).context("utimes")?;
        let seen = fs::metadata(other.join("f")).context("stat")?;
        ensure((seen.len(), seen.mtime()) == (50_100, 9), || format!("{seen:?}"))?;
        drop(file);
        let seen = fs::metadata(other.join("f")).context("stat")?;
        ensure(seen.mtime() == 9, || format!("{} after the close", seen.mtime()))?;
        let read = fs::read(other.join("f")).context("read")?;
        ensure(read[..50_000].iter().all(|byte| *byte == 0), || "no hole".to_owned())?;
        let usage = seen.blocks() * 512;
        ensure(usage < 50_000, || format!("{usage} bytes on disk"))?;
        same_after_restart(cluster)
    });
}

/// What a file costs whose name no client has looked up yet.
fn requests_of_a_small_file(cluster: &Cluster, number: u64) -> Outcome {
    let (mnt, file) = (cluster.mnt(), cluster.mnt().join(format!("f{number}")));
    let must_ask = |what: &str, asked: Vec<(String, u64)>, wanted: &[(&str, u64)]| {
        let asked: Vec<_> = asked.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
        ensure(asked == wanted, || format!("{what}: {asked:?} instead of {wanted:?}"))
    };
    let (enqueue, close) = (("ldlm_ibits_enqueue", 1), ("mds_close", 1));
    // So much that the client knows all names in the directory, and has a sequence for new ones.
    for name in ["1", "2", "3"] {
        fs::write(mnt.join(name), content(1, 3000)).context("write")?;
    }
    fs::read_dir(&mnt).context("list")?.for_each(drop);
    std::thread::sleep(SETTLED);
    let create = asked_by(cluster, || {
        fs::write(&file, content(2, 3000)).context("write")?;
        std::thread::sleep(CLOSED);
        Ok(())
    })?;
    must_ask("create, write, close", create, &[enqueue, close])?;
    let later = asked_by(cluster, || {
        std::thread::sleep(SETTLED);
        Ok(())
    })?;
    must_ask("write-back", later, &[("ost_write", 1)])?;
    let again = asked_by(cluster, || {
        let seen = fs::metadata(&file).context("stat")?;
        ensure(seen.len() == 3000, || format!("{} bytes", seen.len()))
    })?;
    must_ask("stat of what was written", again, &[])?;
    cluster.drop_locks()?;
    // The directory is asked about again, and who may walk through it.
    for _ in 0..2 {
        fs::metadata(mnt.join("1")).context("stat")?;
    }
    std::thread::sleep(SETTLED);
    let stat = asked_by(cluster, || {
        let seen = fs::metadata(&file).context("stat")?;
        ensure(seen.len() == 3000, || format!("{} bytes", seen.len()))
    })?;
    must_ask("stat", stat, &[enqueue])?;
    let read = asked_by(cluster, || {
        let read = fs::read(&file).context("read")?;
        std::thread::sleep(SETTLED);
        ensure(read == content(2, 3000), || "other bytes".to_owned())
    })?;
    must_ask("open, read, close", read, &[enqueue, close])
}

/// The best of three: on a busy machine the kernel may ask once more, when what it knew has gone stale meanwhile.
fn few_requests(count: impl Fn(u64) -> Outcome) -> Outcome {
    let mut tries = (0..3).map(count);
    let first = tries.next().unwrap_or(Ok(()));
    if first.is_ok() || tries.any(|again| again.is_ok()) { Ok(()) } else { first }
}

#[test]
fn a_small_file_costs_as_few_requests_as_can_be() {
    scene("dom-requests", 1, LIMIT, |cluster| {
        begin_on_mdt(cluster)?;
        few_requests(|number| requests_of_a_small_file(cluster, number))
    });
}

/// Does `work`, a file system call or several, while the servers stand still: that it ends shows that
/// it waits for none of them.
fn without_servers(cluster: &Cluster, work: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let server = cluster.server_pid()?;
    process::stop(server)?;
    let (sender, end) = mpsc::channel();
    let working = thread::spawn(move || sender.send(work()));
    let ended = end.recv_timeout(AT_ONCE);
    process::go_on(server)?;
    // Whatever it waited for is there now.
    let _ = working.join();
    ended.map_err(|_| "it waited for a server".to_owned())?
}

/// In a directory of its own.
fn requests_that_a_caller_waits_for(cluster: &Cluster, number: u64) -> Outcome {
    let (mnt, files) = (cluster.mnt().join(format!("d{number}")), 40);
    fs::create_dir(&mnt).context("mkdir")?;
    let name = |number: u64| mnt.join(format!("f{number}"));
    for name in ["1", "2", "3"] {
        fs::write(mnt.join(name), content(1, 3000)).context("write")?;
    }
    fs::read_dir(&mnt).context("list")?.for_each(drop);
    std::thread::sleep(SETTLED);
    // One to create each, and now and then one for new numbers; write and close wait for no answer.
    let created = asked_by(cluster, || {
        for number in 0..files {
            fs::write(name(number), content(number, 4096)).context("write")?;
        }
        std::thread::sleep(SETTLED);
        Ok(())
    })?;
    let allowed = ["ldlm_ibits_enqueue", "mds_close", "ost_write"];
    let more: Vec<_> =
        created.iter().filter(|(kind, _)| !allowed.contains(&kind.as_str())).collect();
    ensure(more.iter().map(|(_, count)| count).sum::<u64>() <= 2, || format!("{more:?}"))?;
    ensure(created.iter().all(|(_, count)| *count <= files), || format!("{created:?}"))?;
    let file = File::create_new(mnt.join("last")).context("create")?;
    without_servers(cluster, move || {
        (&file).write_all(&content(7, 4096)).context("write")?;
        drop(file);
        Ok(())
    })?;
    // One to open each; read and close wait for no answer.
    cluster.drop_locks()?;
    for number in 0..files {
        fs::metadata(name(number)).context("stat")?;
    }
    std::thread::sleep(SETTLED);
    let read = asked_by(cluster, || {
        for number in 0..files {
            let read = fs::read(name(number)).context("read")?;
            ensure(read == content(number, 4096), || format!("other bytes in {number}"))?;
        }
        std::thread::sleep(SETTLED);
        Ok(())
    })?;
    let only_those =
        read.iter().map(|(kind, _)| kind.as_str()).eq(["ldlm_ibits_enqueue", "mds_close"]);
    // Attributes of directories may be asked for now and then.
    let few = read.iter().all(|(_, count)| (files..=files + 4).contains(count));
    ensure(only_those && few, || format!("open, read, close: {read:?}"))?;
    cluster.drop_locks()?;
    let file = File::open(name(5)).context("open")?;
    without_servers(cluster, move || {
        let mut read = vec![0; 4096];
        file.read_exact_at(&mut read, 0).context("read")?;
        drop(file);
        ensure(read == content(5, 4096), || "other bytes".to_owned())
    })
}

#[test]
fn close_and_write_back_keep_no_caller_waiting() {
    scene("dom-waiting", 1, LIMIT, |cluster| {
        begin_on_mdt(cluster)?;
        few_requests(|number| requests_that_a_caller_waits_for(cluster, number))?;
        same_after_restart(cluster)
    });
}

/// How many reads the kernel asked the first mount for since the last `clear`.
fn reads(cluster: &Cluster) -> Outcome<u64> {
    let text = cluster.must(&["lctl", "get_param", "-n", "llite.*.stats"])?;
    let line = |line: &&str| line.starts_with("read ");
    let count = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    Ok(text.lines().filter(line).filter_map(count).sum())
}

/// The kernel has a small file's bytes when it is open, by the lock that came with them: no longer.
fn bytes_that_come_with_the_open(cluster: &Cluster) -> Outcome {
    let (mnt, other) = (cluster.mnt(), cluster.mount_again()?);
    let sizes = [1, 100, 3901, 4096, 4097, 20_000, 60_000];
    let name = |size: usize| format!("f{size}");
    // The MDT hears of no access that is less than a minute later than the one before.
    let long_ago = SystemTime::now() - Duration::from_secs(1000);
    for size in sizes {
        fs::write(mnt.join(name(size)), content(size as u64, size)).context("write")?;
        let times = FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
        let file = File::options().write(true).open(mnt.join(name(size))).context("open")?;
        file.set_times(times).context("set times")?;
    }
    thread::sleep(SETTLED);
    cluster.drop_locks()?;
    let before = reads(cluster)?;
    for size in sizes {
        let read = fs::read(mnt.join(name(size))).context("read")?;
        ensure(read == content(size as u64, size), || format!("other bytes at {size}"))?;
    }
    let asked = reads(cluster)? - before;
    ensure(asked == 0, || format!("{asked} reads of what came with the open"))?;
    // The close reports its access all the same.
    let accessed = |top: &Path| fs::metadata(top.join("f100")).and_then(|it| it.accessed());
    thread::sleep(SETTLED);
    let noted = accessed(&other).context("stat")? > long_ago + Duration::from_secs(900);
    ensure(noted, || "no access was noted".to_owned())?;
    for (round, size) in sizes.into_iter().enumerate() {
        // One opener reads on while the other mount changes the file, once in place and once behind.
        let file = File::open(mnt.join(name(size))).context("open")?;
        let mut bytes = content(size as u64, size);
        let change = content(7 + round as u64, 50);
        let at = if round % 2 == 0 { bytes.len() } else { bytes.len() / 2 };
        bytes.resize(bytes.len().max(at + change.len()), 0);
        bytes[at..at + change.len()].copy_from_slice(&change);
        let writer = OpenOptions::new().write(true).open(other.join(name(size))).context("open")?;
        writer.write_all_at(&change, at as u64).context("write")?;
        drop(writer);
        let mut read = vec![0; bytes.len() + 1];
        let got = file.read_at(&mut read, 0).context("read")?;
        ensure(read[..got] == bytes, || format!("{got} bytes, stale ones, at {size}"))?;
        let again = fs::read(mnt.join(name(size))).context("read")?;
        ensure(again == bytes, || format!("stale bytes for who opens it now, at {size}"))?;
    }
    Ok(())
}

#[test]
fn the_kernel_has_a_small_file_when_it_is_open() {
    scene("dom-pages", 1, LIMIT, |cluster| {
        begin_on_mdt(cluster)?;
        bytes_that_come_with_the_open(cluster)?;
        same_after_restart(cluster)
    });
}

#[test]
fn a_killed_server_loses_nothing_that_was_written_to_it() {
    scene("dom-kills", 2, LIMIT, |cluster| {
        begin_on_mdt(cluster)?;
        let files = Size::asked().of(200, 500, 5000);
        disturbed(cluster, 3, Duration::from_secs(2), |mnt| {
            for number in 0..files {
                let path = mnt.join(format!("f{number}"));
                fs::write(&path, content(number, 3000)).context("write")?;
                if number % 50 == 0 {
                    File::open(&path).and_then(|file| file.sync_all()).context("fsync")?;
                    std::thread::sleep(Duration::from_millis(500));
                }
            }
            Ok(())
        })?;
        for number in 0..files {
            let read = fs::read(cluster.mnt().join(format!("f{number}"))).context("read")?;
            ensure(read == content(number, 3000), || format!("f{number} is another"))?;
        }
        same_after_restart(cluster)
    });
}
