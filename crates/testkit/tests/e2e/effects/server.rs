//! Parameters of servers.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, ensure, process};

use super::{LIMIT, Step, becomes, count, get, is, number, play, set};

/// The OSTs of some new files.
fn osts(cluster: &Cluster, files: usize) -> Outcome<BTreeSet<String>> {
    let name = |at: usize| cluster.mnt().join(format!("placed{at}"));
    let one = |at: usize| {
        let name = name(at);
        fs::write(&name, "data").context("write")?;
        let ost = cluster.must(&["lfs", "getstripe", "-i", &name.to_string_lossy()])?;
        fs::remove_file(&name).context("unlink")?;
        Ok(ost.trim().to_owned())
    };
    (0..files).map(one).collect()
}

/// New files avoid OSTs that are not to have them.
fn placement(cluster: &Cluster) -> Outcome {
    let everywhere = || Ok(osts(cluster, 10)?.len() == 5);
    becomes("files on all OSTs", everywhere)?;
    let switches = ["no_create", "no_precreate", "degraded", "readonly"];
    for on in [1, 0] {
        for (ost, switch) in switches.iter().enumerate() {
            set(cluster, &format!("obdfilter.*OST000{ost}.{switch}={on}"))?;
        }
        if on == 1 {
            let only = BTreeSet::from(["4".to_owned()]);
            becomes("files on the last OST alone", || Ok(osts(cluster, 10)? == only))?;
        }
    }
    becomes("files on all OSTs again", everywhere)?;
    inactive(cluster)
}

/// What operators took out of use gets no files, whichever way they said it, until they say otherwise.
fn inactive(cluster: &Cluster) -> Outcome {
    let without = |ost: &str| Ok(!osts(cluster, 10)?.contains(ost));
    set(cluster, "osp.*OST0001*.active=0")?;
    becomes("no files on OST 1", || without("1"))?;
    is("what the MDT uses", number(cluster, "lod.*.activeobd")?, 4)?;
    set(cluster, "osp.*OST0001*.active=1")?;
    let listed = cluster.must(&["lctl", "list_param", "osp.*OST0002*"])?;
    let device = listed.trim().strip_prefix("osp.").and_then(|rest| rest.split_once("-osc-"));
    let (ost, _) = device.ok_or_else(|| format!("{listed} names no OST"))?;
    for (active, count) in [(0, 4), (1, 5)] {
        cluster.must(&["lctl", "conf_param", &format!("{ost}.osc.active={active}")])?;
        becomes("what the MDT uses", || Ok(number(cluster, "lod.*.activeobd")? == count))?;
    }
    becomes("files on all OSTs once more", || Ok(osts(cluster, 10)?.len() == 5))
}

/// New files have the layout that operators say.
fn layouts(cluster: &Cluster) -> Outcome {
    for (parameter, value, option) in
        [("stripesize", "1048576", "-S"), ("stripecount", "2", "-c"), ("stripeoffset", "1", "-i")]
    {
        let name = format!("lod.*.{parameter}");
        let before = get(cluster, &name)?;
        set(cluster, &format!("{name}={value}"))?;
        let path = cluster.mnt().join(parameter);
        for _ in 0..4 {
            fs::write(&path, "data").context("write")?;
            let shown = cluster.must(&["lfs", "getstripe", option, &path.to_string_lossy()])?;
            ensure(shown.trim() == value, || format!("{parameter}: {shown}"))?;
            fs::remove_file(&path).context("unlink")?;
        }
        set(cluster, &format!("{name}={}", before.trim()))?;
    }
    Ok(())
}

/// Nothing changes on targets that are read-only, and all can be read.
fn changes(cluster: &Cluster) -> Outcome {
    const EROFS: Option<i32> = Some(30);
    let (folder, file) = (cluster.mnt().join("refused"), cluster.mnt().join("kept"));
    cluster.must(&["lfs", "setstripe", "-c", "1", "-i", "0", &file.to_string_lossy()])?;
    fs::write(&file, "data").context("write")?;
    fs::File::open(&file).and_then(|file| file.sync_all()).context("fsync")?;
    set(cluster, "mdt.*.readonly=1")?;
    let made = fs::create_dir(&folder).map_err(|error| error.raw_os_error());
    ensure(made == Err(EROFS), || format!("mkdir: {made:?}"))?;
    ensure(fs::read(&file).is_ok_and(|data| data == b"data"), || "reading".to_owned())?;
    set(cluster, "mdt.*.readonly=0")?;
    fs::create_dir(&folder).context("mkdir")?;
    set(cluster, "obdfilter.*OST0000.readonly=1")?;
    let write = || {
        let mut file = fs::File::options().write(true).open(&file)?;
        file.write_all(b"more").and_then(|()| file.sync_all())
    };
    let written = write().map_err(|error| error.raw_os_error());
    ensure(written == Err(EROFS), || format!("write: {written:?}"))?;
    ensure(fs::read(&file).is_ok_and(|data| data == b"data"), || "what was refused".to_owned())?;
    set(cluster, "obdfilter.*OST0000.readonly=0")?;
    write().context("write")?;
    set(cluster, "mdt.*.no_create=1")?;
    becomes("N", || Ok(get(cluster, "mdc.*.statfs_state")?.trim() == "N"))?;
    set(cluster, "mdt.*.no_create=0")
}

/// Less of a file lies on an MDT that is fuller than operators like.
fn data_on_mdt(cluster: &Cluster) -> Outcome {
    let path = cluster.mnt().join("dom");
    let path = path.to_string_lossy();
    let end = || -> Outcome<u64> {
        cluster.must(&["lfs", "setstripe", "-E", "1M", "-L", "mdt", "-E", "-1", &path])?;
        let shown = cluster.must(&["lfs", "getstripe", "-I1", "-E", &path])?;
        fs::remove_file(&*path).context("unlink")?;
        shown.trim().parse().map_err(|_| shown)
    };
    is("all of it", end()?, 1 << 20)?;
    // No disk that tests run on is empty.
    set(cluster, "lod.*.dom_threshold_free_mb=100%")?;
    let less = end()?;
    ensure(less < 1 << 20, || format!("{less} bytes"))?;
    let now = number(cluster, "lod.*.dom_stripesize_cur_kb")?;
    ensure(now < 1 << 10, || format!("{now} KiB"))?;
    set(cluster, "lod.*.dom_threshold_free_mb=0")?;
    is("all of it again", end()?, 1 << 20)
}

/// What was done is durable at once when operators ask for that: without, it would take a second each time.
fn syncing(cluster: &Cluster) -> Outcome {
    const ROUNDS: u64 = 20;
    for (sync, committed) in [
        ("mdt.*.force_sync", "mdt.*.last_committed"),
        ("osd-*.*MDT0000.force_sync", "mdt.*.last_committed"),
        ("obdfilter.*OST0000.force_sync", "obdfilter.*OST0000.last_committed"),
        ("osd-*.*OST0000.force_sync", "obdfilter.*OST0000.last_committed"),
    ] {
        let path = cluster.mnt().join("synced");
        let _ = fs::remove_file(&path);
        cluster.must(&["lfs", "setstripe", "-c", "1", "-i", "0", &path.to_string_lossy()])?;
        fs::write(&path, "data").context("write")?;
        let mut waited = 0;
        let mut before = number(cluster, committed)?;
        for round in 0..ROUNDS {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + round);
            let file = fs::File::options().write(true).open(&path).context("open")?;
            file.set_modified(time).context("utimes")?;
            let folder = cluster.mnt().join(format!("{}{round}", sync.replace('*', "")));
            fs::create_dir(&folder).context("mkdir")?;
            set(cluster, &format!("{sync}=1"))?;
            let after = number(cluster, committed)?;
            waited += u64::from(after <= before);
            before = after;
        }
        is(sync, waited, 0)?;
    }
    Ok(())
}

/// Clients are counted anew, and evicted: they reconnect by themselves.
fn clients(cluster: &Cluster) -> Outcome {
    for (root, counter) in [("mdt.*", "mkdir"), ("obdfilter.*", "write_bytes")] {
        fs::create_dir(cluster.mnt().join(root.replace('*', "x"))).context("mkdir")?;
        let file = cluster.mnt().join(format!("{}f", root.replace('*', "x")));
        fs::write(&file, "data").context("write")?;
        fs::File::open(&file).and_then(|file| file.sync_all()).context("fsync")?;
        let stats = format!("{root}.exports.*.stats");
        ensure(count(cluster, &stats, counter)? > 0, || format!("{stats}: no {counter}"))?;
        set(cluster, &format!("{root}.exports.clear=1"))?;
        is(&stats, count(cluster, &stats, counter)?, 0)?;
    }
    let uuid = get(cluster, "llite.*.uuid")?;
    for target in ["mdt.*", "obdfilter.*OST0001", "mgs.MGS"] {
        let before = number(cluster, &format!("{target}.eviction_count"))?;
        set(cluster, &format!("{target}.evict_client={}", uuid.trim()))?;
        let name = format!("{target}.eviction_count");
        is(&name, number(cluster, &name)?, before + 1)?;
        let path = cluster.mnt().join(target.replace('*', "evicted"));
        // A call that was under way hears of it; the next ones do not.
        becomes("a file after an eviction", || Ok(fs::write(&path, "data").is_ok()))?;
        becomes("its bytes", || Ok(fs::read(&path).is_ok_and(|data| data == b"data")))?;
    }
    let unknown = cluster.run(&["lctl", "set_param", "mdt.*.evict_client=no-such-client"])?;
    ensure(!unknown.status.success(), || unknown.output.clone())
}

/// What clients may do at once is agreed on when they connect the next time.
fn agreements(cluster: &Cluster) -> Outcome {
    for (server, value, device, shown, wanted) in [
        ("mdt.*.max_mod_rpcs_in_flight", "2", "mdc.*", "max_mod_rpcs_in_flight", 2),
        ("obdfilter.*OST0000.brw_size", "1", "osc.*OST0000*", "max_pages_per_rpc", 256),
    ] {
        let before = get(cluster, server)?;
        set(cluster, &format!("{server}={value}"))?;
        set(cluster, &format!("{device}.import=recover"))?;
        let name = format!("{device}.{shown}");
        becomes(&name, || Ok(number(cluster, &name)? == wanted))?;
        set(cluster, &format!("{server}={}", before.trim()))?;
        set(cluster, &format!("{device}.import=recover"))?;
    }
    Ok(())
}

/// Counts begin anew. What clients, or MDTs, ask for at that moment may be counted at once: it does not last.
fn counts(cluster: &Cluster) -> Outcome {
    fs::write(cluster.mnt().join("counted"), "data").context("write")?;
    let file = fs::File::open(cluster.mnt().join("counted")).context("open")?;
    file.sync_all().context("fsync")?;
    for name in ["mdt.*.md_stats", "obdfilter.*.stats", "osd-*.*OST*.brw_stats"] {
        let is_count = |line: &str| match name.contains("brw") {
            true => line.trim_start().starts_with("1:"),
            false => line.contains("samples"),
        };
        let counts = || -> Outcome<usize> {
            Ok(get(cluster, name)?.lines().filter(|line| is_count(line)).count())
        };
        ensure(counts()? > 0, || format!("{name}: nothing was counted"))?;
        becomes(&format!("nothing in {name}"), || {
            set(cluster, &format!("{name}=clear"))?;
            Ok(counts()? == 0)
        })?;
    }
    Ok(())
}

/// A client that cancels no lock is evicted when operators say, and not 100 seconds later; then another gets it.
#[allow(clippy::disallowed_methods, reason = "a real mount keeps a lock in real time")]
fn lock_timeout(cluster: &Cluster) -> Outcome {
    let other = cluster.mount_again()?;
    let (stopped, before) = (cluster.mount_pid()?, get(cluster, "ldlm_timeout")?);
    set(cluster, "ldlm_timeout=3")?;
    is("ldlm_timeout", number(cluster, "ldlm_timeout")?, 3)?;
    let name = cluster.mnt().join("kept-lock");
    fs::write(&name, "data").context("write")?;
    fs::File::open(&name).and_then(|file| file.sync_all()).context("fsync")?;
    process::stop(stopped)?;
    let begin = Instant::now();
    let written = fs::write(other.join("kept-lock"), "more");
    let waited = begin.elapsed();
    process::go_on(stopped)?;
    written.context("write of another")?;
    ensure((2..60).contains(&waited.as_secs()), || format!("waited for {waited:?}"))?;
    set(cluster, &format!("ldlm_timeout={}", before.trim()))?;
    becomes("a mount that comes back", || Ok(fs::read(&name).is_ok_and(|data| data == b"more")))
}

/// A target has its clients expect as much time as operators say, and no other does.
fn expected_times(cluster: &Cluster) -> Outcome {
    // Of the portal of ordinary requests: `portal N : cur SECONDS ...`.
    let sent = |device: &str| -> Outcome<u64> {
        let text = get(cluster, &format!("{device}.timeouts"))?;
        let line = text.lines().find(|line| line.starts_with("portal")).ok_or("no portal")?;
        let mut words = line.split_whitespace().skip_while(|word| *word != "cur");
        words.nth(1).and_then(|word| word.parse().ok()).ok_or_else(|| text.clone())
    };
    // A step before has thrown the client out, which may be connecting anew.
    let ask = |device: &str| {
        becomes("an answer", || Ok(set(cluster, &format!("{device}.ping=1")).is_ok()))
    };
    set(cluster, "mdt.*.at_min=77")?;
    is("mdt.*.at_min", number(cluster, "mdt.*.at_min")?, 77)?;
    ask("mdc.*")?;
    ask("osc.*OST0001*")?;
    is("what the MDT sends", sent("mdc.*")?, 77)?;
    let other = sent("osc.*OST0001*")?;
    ensure(other < 77, || format!("an OST sends {other}"))?;
    set(cluster, "mdt.*.at_min=0")?;
    set(cluster, "obdfilter.*OST0001.at_min=88")?;
    ask("osc.*OST0001*")?;
    is("what the OST sends", sent("osc.*OST0001*")?, 88)?;
    set(cluster, "obdfilter.*OST0001.at_min=0")
}

const STEPS: [Step; 10] = [
    ("placement", placement),
    ("layouts", layouts),
    ("changes", changes),
    ("data_on_mdt", data_on_mdt),
    ("syncing", syncing),
    ("clients", clients),
    ("agreements", agreements),
    ("counts", counts),
    ("expected_times", expected_times),
    ("lock_timeout", lock_timeout),
];

#[test]
fn what_is_set_of_servers_takes_effect() {
    scene("effects-server", 5, LIMIT, |cluster| play(cluster, &STEPS));
}
