//! Data on the MDT outlives its name while it is open, and the death of all once it was synced.
#![allow(clippy::disallowed_methods, reason = "a writer runs beside the death of its server")]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::bytes::content;
use sheen_workloads::ledger::Ledger;
use sheen_workloads::{Context, Outcome, ensure, process};

const LIMIT: Duration = Duration::from_secs(900);

/// From now on all files begin on the MDT.
fn begin_on_mdt(cluster: &Cluster) -> Outcome {
    let root = cluster.mnt();
    let layout = ["-E", "1M", "-L", "mdt", "-E", "-1", "-c", "1"];
    let mut words = vec!["lfs", "setstripe"];
    words.extend(layout);
    let path = root.to_string_lossy();
    words.push(&path);
    cluster.must(&words).map(drop)
}

#[test]
fn an_open_file_keeps_its_data_on_the_mdt_after_its_name() {
    scene("dom-orphan", 1, LIMIT, |cluster| {
        begin_on_mdt(cluster)?;
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        let bytes = content(7, 5000);
        fs::write(first.join("f"), &bytes).context("write")?;
        let open = File::options().read(true).write(true).open(second.join("f")).context("open")?;
        open.write_all_at(b"dirty", 5000).context("write")?;
        fs::remove_file(first.join("f")).context("unlink")?;
        let mut found = vec![0; 5005];
        open.read_exact_at(&mut found, 0).context("read")?;
        ensure(found[..5000] == bytes[..] && &found[5000..] == b"dirty", || "other bytes".into())?;
        ensure(open.metadata().context("fstat")?.nlink() == 0, || "it still has a name".into())?;
        cluster.kill_server()?;
        cluster.up()?;
        open.read_exact_at(&mut found, 0).context("read after the server's death")?;
        ensure(found[..5000] == bytes[..], || "other bytes after the server's death".into())?;
        drop(open);
        fs::write(first.join("kept"), &bytes).context("write")?;
        same_after_restart(cluster)
    });
}

/// The client's replay cannot help here: it dies with the server.
#[test]
fn what_was_synced_to_the_mdt_survives_the_death_of_all() {
    scene("dom-kill-all", 1, LIMIT, |cluster| {
        begin_on_mdt(cluster)?;
        let top = cluster.mnt().join("round");
        fs::create_dir(&top).context("mkdir")?;
        File::open(cluster.mnt()).and_then(|top| top.sync_all()).context("fsync")?;
        let ledger = Ledger::default();
        std::thread::scope(|scope| {
            // Ends with an error, when its mount dies.
            let writer = scope.spawn(|| ledger.run(&top));
            let busy = || ledger.durable() > 30 || writer.is_finished();
            let waited = process::wait_until("30 records", Duration::from_secs(60), busy);
            let killed = cluster.kill_server().and_then(|()| cluster.kill_mount());
            ledger.stop();
            waited.and(killed)
        })?;
        ensure(ledger.durable() > 30, || format!("only {} records", ledger.durable()))?;
        cluster.up()?;
        ledger.verify(&top)?;
        same_after_restart(cluster)
    });
}
