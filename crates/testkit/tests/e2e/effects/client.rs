//! Parameters of a mount.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;

use rustix::fs::XattrFlags;
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, ensure};

use super::{LIMIT, Step, becomes, count, get, is, largest, lines, number, play, run, set};

const KIB: usize = 1 << 10;

fn write_synced(path: &Path, bytes: usize) -> Outcome {
    fs::write(path, vec![5; bytes]).context("write")?;
    fs::File::open(path).and_then(|file| file.sync_all()).context("fsync")
}

/// Data goes in RPCs of so many pages, so many at once.
fn rpcs(cluster: &Cluster) -> Outcome {
    let file = cluster.mnt().join("rpcs");
    set(cluster, "osc.*.max_pages_per_rpc=16")?;
    for (at_once, least, most) in [(8, 2, 8), (1, 1, 1)] {
        set(cluster, &format!("osc.*.max_rpcs_in_flight={at_once}"))?;
        set(cluster, "osc.*.stats=clear")?;
        set(cluster, "osc.*.rpc_stats=clear")?;
        write_synced(&file, 4096 * KIB)?;
        let active = largest(cluster, "osc.*.stats", "req_active")?;
        ensure((least..=most).contains(&active), || {
            format!("{active} requests at once, {at_once} allowed")
        })?;
        let written = rows(cluster, "osc.*.rpc_stats", "pages per rpc", 5)?;
        is("RPCs", written.iter().map(|row| row.1).sum(), 64)?;
        is(
            "RPCs of 16 pages",
            written.iter().filter(|row| row.0 == 16).map(|row| row.1).sum(),
            64,
        )?;
        let at_once = rows(cluster, "osc.*.rpc_stats", "rpcs in flight", 5)?;
        let seen = at_once.iter().filter(|row| row.1 > 0).map(|row| row.0).max();
        ensure(seen.is_some_and(|seen| (least..=most).contains(&seen)), || format!("{at_once:?}"))?;
    }
    set(cluster, "osc.*.max_rpcs_in_flight=8")?;
    set(cluster, "osc.*.max_pages_per_rpc=1024")
}

/// The rows of a table of a parameter, whose heading begins so: the number before the colon, and the word
/// of the column.
fn rows(cluster: &Cluster, name: &str, heading: &str, column: usize) -> Outcome<Vec<(u64, u64)>> {
    let text = get(cluster, name)?;
    let mut rows = Vec::new();
    let mut is_there = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first().and_then(|word| word.strip_suffix(':')?.parse().ok()) {
            Some(number) if is_there => {
                let word = words.get(column).and_then(|word| word.parse().ok());
                rows.push((number, word.ok_or_else(|| line.to_owned())?));
            }
            Some(_) => {}
            None => is_there = line.starts_with(heading),
        }
    }
    Ok(rows)
}

/// How many changes were under way at most while four threads made directories.
fn changes_at_once(cluster: &Cluster, round: usize) -> Outcome<u64> {
    set(cluster, "mdc.*.rpc_stats=clear")?;
    thread::scope(|scope| {
        let make = |worker: usize| {
            let folder = cluster.mnt().join(format!("changes{round}-{worker}"));
            fs::create_dir(&folder).context("mkdir")?;
            (0..20).try_for_each(|at| fs::create_dir(folder.join(at.to_string())).context("mkdir"))
        };
        let workers: Vec<_> = (0..4).map(|worker| scope.spawn(move || make(worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "panicked")?)
    })?;
    let rows = rows(cluster, "mdc.*.rpc_stats", "rpcs in flight", 1)?;
    Ok(rows.iter().filter(|row| row.1 > 0).map(|row| row.0).max().unwrap_or(0))
}

fn changes(cluster: &Cluster) -> Outcome {
    let mut round = 0;
    becomes("several changes at once", || {
        round += 1;
        changes_at_once(cluster, round).map(|most| most > 1)
    })?;
    set(cluster, "mdc.*.max_mod_rpcs_in_flight=1")?;
    is("changes at once", changes_at_once(cluster, round + 1)?, 1)?;
    set(cluster, "mdc.*.max_mod_rpcs_in_flight=7")
}

/// The last close makes a written file durable, or does not.
fn closing(cluster: &Cluster) -> Outcome {
    for on in [0, 1] {
        set(cluster, &format!("llite.*.sync_on_close={on}"))?;
        set(cluster, "osc.*.stats=clear")?;
        fs::write(cluster.mnt().join("closed"), vec![1; 64 * KIB]).context("write")?;
        is("sync_on_close", count(cluster, "osc.*.stats", "ost_sync")?, on)?;
    }
    set(cluster, "llite.*.sync_on_close=0")
}

/// Extended attributes are asked for once, or each time.
fn xattrs(cluster: &Cluster) -> Outcome {
    let file = cluster.mnt().join("xattrs");
    fs::write(&file, "").context("write")?;
    rustix::fs::setxattr(&file, "user.key", b"value", XattrFlags::empty()).context("setxattr")?;
    let asked = |times: usize| -> Outcome<u64> {
        set(cluster, "mdc.*.stats=clear")?;
        for _ in 0..times {
            let mut value = [0; 16];
            rustix::fs::getxattr(&file, "user.key", &mut value[..]).context("getxattr")?;
        }
        count(cluster, "mdc.*.stats", "ldlm_ibits_enqueue")
    };
    asked(1)?;
    is("with xattr_cache", asked(5)?, 0)?;
    set(cluster, "llite.*.xattr_cache=0")?;
    is("without xattr_cache", asked(5)?, 5)?;
    set(cluster, "llite.*.xattr_cache=1")
}

/// Answers to statfs are believed for as long as operators say.
fn space(cluster: &Cluster) -> Outcome {
    let asked = || -> Outcome<u64> {
        set(cluster, "mdc.*.stats=clear")?;
        for _ in 0..3 {
            rustix::fs::statvfs(cluster.mnt()).context("statvfs")?;
        }
        count(cluster, "mdc.*.stats", "mds_statfs")
    };
    is("statfs at first", asked()?, 3)?;
    set(cluster, "llite.*.statfs_max_age=60")?;
    is("statfs when it is believed", asked()?, 1)?;
    set(cluster, "llite.*.statfs_max_age=0")?;
    is("statfs when it is not", asked()?, 3)
}

/// Names of a directory come with their attributes, or without.
fn listings(cluster: &Cluster) -> Outcome {
    let folder = cluster.mnt().join("listed");
    fs::create_dir(&folder).context("mkdir")?;
    (0..20).try_for_each(|at| fs::write(folder.join(at.to_string()), "").context("write"))?;
    for (ahead, some) in [("16", true), ("0", false)] {
        set(cluster, &format!("llite.*.statahead_max={ahead}"))?;
        set(cluster, "llite.*.statahead_stats=0")?;
        cluster.drop_locks()?;
        run(cluster, &folder, "ls", &["-l"])?;
        let text = get(cluster, "llite.*.statahead_stats")?;
        ensure(text.contains("list_total: 0") != some, || format!("{ahead}: {text}"))?;
    }
    set(cluster, "llite.*.statahead_max=16")
}

/// Only whose calls operators follow are counted.
fn followed(cluster: &Cluster) -> Outcome {
    let mnt = cluster.mnt();
    let (own, thread) = (std::process::id(), rustix::thread::gettid().as_raw_pid());
    let group = mnt.metadata().context("stat")?.gid();
    for (at, (whose, by_us, by_child)) in [
        (format!("stats_track_pid={thread}"), 1, 0),
        (format!("stats_track_ppid={own}"), 0, 1),
        (format!("stats_track_gid={}", group + 1), 0, 0),
        (format!("stats_track_gid={}", rustix::process::getgid().as_raw()), 1, 1),
        ("stats_track_pid=0".to_owned(), 1, 1),
    ]
    .into_iter()
    .enumerate()
    {
        set(cluster, &format!("llite.*.{whose}"))?;
        fs::create_dir(mnt.join(format!("own{at}"))).context("mkdir")?;
        is(&whose, count(cluster, "llite.*.stats", "mkdir")?, by_us)?;
        set(cluster, "llite.*.stats=clear")?;
        run(cluster, &mnt, "mkdir", &[&format!("child{at}")])?;
        is(&whose, count(cluster, "llite.*.stats", "mkdir")?, by_child)?;
    }
    set(cluster, "llite.*.extents_stats=1")?;
    fs::write(mnt.join("sized"), vec![1; 8 * KIB]).context("write")?;
    let is_size = |line: &str| line.split_whitespace().take(3).eq(["8K", "-", "16K"]);
    let sized = |text: &str| text.lines().any(is_size);
    let text = get(cluster, "llite.*.extents_stats")?;
    ensure(sized(&text), || text.clone())?;
    set(cluster, "llite.*.extents_stats=0")?;
    fs::write(mnt.join("sized"), vec![1; 8 * KIB]).context("write")?;
    let text = get(cluster, "llite.*.extents_stats")?;
    ensure(!sized(&text), || text.clone())
}

/// What is written past the kernel's pages is not read from them; what goes through them is.
fn hybrid(cluster: &Cluster) -> Outcome {
    for on in [1, 0] {
        set(cluster, &format!("llite.*.hybrid_io={on}"))?;
        let file = cluster.mnt().join(format!("hybrid{on}"));
        cluster.must(&["lfs", "setstripe", "-c", "2", &file.to_string_lossy()])?;
        let mut writer = fs::OpenOptions::new().write(true).open(&file).context("open")?;
        writer.write_all(&vec![5; 3000 * KIB]).and_then(|()| writer.sync_all()).context("write")?;
        set(cluster, "osc.*.stats=clear")?;
        let read = fs::read(&file).context("read")?;
        is("bytes", read.len() as u64, 3000 << 10)?;
        let asked = count(cluster, "osc.*.stats", "ost_read")?;
        ensure((asked > 0) == (on == 1), || format!("hybrid_io={on}: {asked} reads"))?;
    }
    set(cluster, "llite.*.hybrid_io=1")
}

/// Unused locks go when there are too many of them, or with the requests that they conflict with.
fn locks(cluster: &Cluster) -> Outcome {
    let folder = cluster.mnt().join("locks");
    fs::create_dir(&folder).context("mkdir")?;
    let names: Vec<_> = (0..20).map(|at| folder.join(at.to_string())).collect();
    let (space, unused) =
        ("ldlm.namespaces.*MDT0000-mdc*", "ldlm.namespaces.*MDT0000-mdc*.lock_unused_count");
    let used = || -> Outcome<u64> {
        cluster.drop_locks()?;
        names.iter().try_for_each(|name| fs::write(name, "").context("write"))?;
        cluster.drop_locks()?;
        names.iter().try_for_each(|name| name.metadata().map(drop).context("stat"))?;
        number(cluster, unused)
    };
    let many = used()?;
    ensure(many >= 20, || format!("{many} locks"))?;
    for on in [1, 0] {
        set(cluster, &format!("{space}.early_lock_cancel={on}"))?;
        used()?;
        set(cluster, "mdc.*.stats=clear")?;
        names.iter().try_for_each(|name| fs::remove_file(name).context("unlink"))?;
        // Without, the MDT calls them back, or the bits of them that are in its way.
        let called =
            ["ldlm_cancel", "ldlm_convert"].map(|line| count(cluster, "mdc.*.stats", line));
        let called: u64 = called.into_iter().sum::<Outcome<_>>()?;
        ensure((called > 0) == (on == 0), || format!("early: {on}, revoked: {called}"))?;
    }
    set(cluster, &format!("{space}.early_lock_cancel=1"))?;
    set(cluster, &format!("{space}.lru_size=4"))?;
    used()?;
    becomes("four locks", || number(cluster, unused).map(|left| left <= 4))?;
    set(cluster, &format!("{space}.lru_size=0"))?;
    used()?;
    // No program asks for anything: age alone sends them away.
    set(cluster, &format!("{space}.lru_max_age=2s"))?;
    becomes("no lock", || number(cluster, unused).map(|left| left == 0))?;
    set(cluster, &format!("{space}.lru_max_age=3900s"))
}

/// A file that is opened often, or again at once, stays open on the MDT until its lock goes.
fn reopening(cluster: &Cluster) -> Outcome {
    let file = cluster.mnt().join("reopened");
    fs::write(&file, "text").context("write")?;
    let drop_locks = || cluster.drop_locks();
    let counted = |line: &str| count(cluster, "mdt.*.md_stats", line);
    // Ten opens: the MDT hears of all, or of one or two. The inode may have been forgotten with its lock, and
    // its opens with it. Closes come a moment later.
    let opens = |what: &str, stay: bool| -> Outcome {
        drop_locks()?;
        becomes("nothing open", || {
            Ok(get(cluster, "mdt.*.exports.*.open_files")?.trim().is_empty())
        })?;
        set(cluster, "mdt.*.md_stats=clear")?;
        (0..10).try_for_each(|_| fs::File::open(&file).map(drop).context("open"))?;
        let opens = counted("open")?;
        let as_set = if stay { (1..=2).contains(&opens) } else { opens == 10 };
        ensure(as_set, || format!("{what}: {opens} opens"))?;
        let closes = opens - u64::from(stay);
        becomes(what, || counted("close").map(|count| count == closes))
    };
    let name = "llite.*.opencache_threshold_count";
    is("kept from", number(cluster, name)?, 5)?;
    set(cluster, &format!("{name}=off"))?;
    is("off", u64::from(get(cluster, name)?.trim() == "off"), 1)?;
    opens("never kept", false)?;
    set(cluster, &format!("{name}=on"))?;
    set(cluster, "llite.*.stats=clear")?;
    opens("always kept", true)?;
    is("opens counted", count(cluster, "llite.*.stats", "opencount")?, 10)?;
    let before = counted("close")?;
    drop_locks()?;
    becomes("the close of what was kept", || counted("close").map(|closes| closes == before + 1))?;
    set(cluster, &format!("{name}=1000"))?;
    for (millis, stay) in [(0, false), (60_000, true)] {
        set(cluster, &format!("llite.*.opencache_threshold_ms={millis}"))?;
        opens("kept after a close", stay)?;
    }
    set(cluster, "llite.*.opencache_threshold_ms=0")?;
    set(cluster, &format!("{name}=2"))?;
    for (millis, stay) in [(0, false), (60_000, true)] {
        set(cluster, &format!("llite.*.opencache_max_ms={millis}"))?;
        opens("kept while opens are remembered", stay)?;
    }
    set(cluster, &format!("{name}=5"))?;
    set(cluster, "llite.*.opencache_threshold_ms=100")
}

/// A connection is made anew when operators say so.
fn connections(cluster: &Cluster) -> Outcome {
    let name = "osc.*OST0000*.import";
    let attempts = || -> Outcome<u64> {
        let words = lines(cluster, name, "connection_attempts:")?;
        words.first().and_then(|words| words.get(1)?.parse().ok()).ok_or_else(|| "none".to_owned())
    };
    let before = attempts()?;
    set(cluster, &format!("{name}=recover"))?;
    becomes("the connection", || Ok(get(cluster, name)?.contains("state: FULL")))?;
    is("connections", attempts()?, before + 1)
}

const STEPS: [Step; 11] = [
    ("rpcs", rpcs),
    ("changes", changes),
    ("closing", closing),
    ("xattrs", xattrs),
    ("space", space),
    ("listings", listings),
    ("followed", followed),
    ("hybrid", hybrid),
    ("locks", locks),
    ("reopening", reopening),
    ("connections", connections),
];

#[test]
fn what_is_set_of_a_mount_takes_effect() {
    scene("effects-client", 2, LIMIT, |cluster| play(cluster, &STEPS));
}
