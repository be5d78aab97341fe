//! Parameters of servers.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, SystemTime};

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_testkit::{Outcome, Told, ensure};

use super::{LIMIT, becomes, count, get, is, number, set};

/// The OSTs of some new files.
fn osts(cluster: &Cluster, files: usize) -> Outcome<BTreeSet<String>> {
    let name = |at: usize| cluster.mnt().join(format!("placed{at}"));
    let one = |at: usize| {
        let name = name(at);
        fs::write(&name, "data").told("write")?;
        let ost = cluster.must(&["lfs", "getstripe", "-i", &name.to_string_lossy()])?;
        fs::remove_file(&name).told("unlink")?;
        Ok(ost.trim().to_owned())
    };
    (0..files).map(one).collect()
}

/// New files avoid OSTs that are not to have them.
fn placement(cluster: &Cluster) -> Outcome {
    let everywhere = || Ok(osts(cluster, 8)?.len() == 2);
    becomes("files on both OSTs", everywhere)?;
    for switch in ["no_create", "no_precreate", "degraded"] {
        set(cluster, &format!("obdfilter.*OST0000.{switch}=1"))?;
        let only = BTreeSet::from(["1".to_owned()]);
        becomes(switch, || Ok(osts(cluster, 8)? == only))?;
        set(cluster, &format!("obdfilter.*OST0000.{switch}=0"))?;
        becomes("files on both OSTs again", everywhere)?;
    }
    set(cluster, "obdfilter.*.degraded=1")?;
    becomes("files on degraded OSTs, if there are no others", everywhere)?;
    set(cluster, "obdfilter.*.degraded=0")
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
            fs::write(&path, "data").told("write")?;
            let told = cluster.must(&["lfs", "getstripe", option, &path.to_string_lossy()])?;
            ensure(told.trim() == value, || format!("{parameter}: {told}"))?;
            fs::remove_file(&path).told("unlink")?;
        }
        set(cluster, &format!("{name}={}", before.trim()))?;
    }
    Ok(())
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
        fs::write(&path, "data").told("write")?;
        let mut waited = 0;
        let mut before = number(cluster, committed)?;
        for round in 0..ROUNDS {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + round);
            let file = fs::File::options().write(true).open(&path).told("open")?;
            file.set_modified(time).told("utimes")?;
            let folder = cluster.mnt().join(format!("{}{round}", sync.replace('*', "")));
            fs::create_dir(&folder).told("mkdir")?;
            set(cluster, &format!("{sync}=1"))?;
            let after = number(cluster, committed)?;
            waited += u64::from(after <= before);
            before = after;
        }
        is(sync, waited, 0)?;
    }
    Ok(())
}

/// Clients are counted anew, and thrown out: they come back by themselves.
fn clients(cluster: &Cluster) -> Outcome {
    for (root, counter) in [("mdt.*", "mkdir"), ("obdfilter.*", "write_bytes")] {
        fs::create_dir(cluster.mnt().join(root.replace('*', "x"))).told("mkdir")?;
        let file = cluster.mnt().join(format!("{}f", root.replace('*', "x")));
        fs::write(&file, "data").told("write")?;
        fs::File::open(&file).and_then(|file| file.sync_all()).told("fsync")?;
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
    let nobody = cluster.run(&["lctl", "set_param", "mdt.*.evict_client=nobody"])?;
    ensure(!nobody.status.success(), || nobody.output.clone())
}

/// Counts begin anew.
fn counts(cluster: &Cluster) -> Outcome {
    fs::write(cluster.mnt().join("counted"), "data").told("write")?;
    let file = fs::File::open(cluster.mnt().join("counted")).told("open")?;
    file.sync_all().told("fsync")?;
    for name in ["mdt.*.md_stats", "obdfilter.*.stats", "osd-*.*OST*.brw_stats"] {
        let rows = |text: String| text.lines().filter(|line| line.contains("samples")).count();
        let is_counted = |text: &str| text.lines().any(|line| line.trim_start().starts_with("1:"));
        let before = get(cluster, name)?;
        set(cluster, &format!("{name}=clear"))?;
        let after = get(cluster, name)?;
        let is_less = match name.contains("brw") {
            true => is_counted(&before) && !is_counted(&after),
            false => rows(before.clone()) > 0 && rows(after.clone()) == 0,
        };
        ensure(is_less, || format!("{name}:\n{before}\nthen\n{after}"))?;
    }
    Ok(())
}

#[test]
fn what_is_set_of_servers_takes_effect() {
    scene("effects-server", 2, LIMIT, |cluster| {
        placement(cluster)?;
        layouts(cluster)?;
        syncing(cluster)?;
        clients(cluster)?;
        counts(cluster)
    });
}
