//! OSTs obey the MDT whose objects they hold: an MDT that takes its name, formatted anew or put in its place, removes
//! nothing and writes over nothing (decision 0016).
#![allow(clippy::disallowed_methods, reason = "mounts are looked at after a time")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

use crate::damage::{content, holding};

const LIMIT: Duration = Duration::from_secs(300);
/// How long a refusal, or its end, may take to be seen.
const SEEN: Duration = Duration::from_secs(60);
const FILES: u64 = 6;

/// Files over both OSTs.
fn fill(cluster: &Cluster, first: u64) -> Outcome {
    for seed in first..first + FILES {
        fs::write(cluster.mnt().join(format!("f{seed}")), content(seed)).context("write")?;
    }
    Ok(())
}

fn all_are_kept(cluster: &Cluster, first: u64) -> Outcome {
    (first..first + FILES).try_for_each(|seed| holding(cluster, &content(seed)).map(drop))
}

/// The lines of the servers' log that say who was refused; one for each OST, or fewer with a count.
fn refusals(cluster: &Cluster, text: &str) -> Outcome<usize> {
    let log = fs::read_to_string(cluster.dir().join("run/server.log")).context("the log")?;
    Ok(log.lines().filter(|line| line.contains("ERROR") && line.contains(text)).count())
}

fn identity(cluster: &Cluster) -> Outcome<String> {
    let text = cluster.must(&["lctl", "get_param", "-n", "mdt.sheen-MDT0000.identity"])?;
    Ok(text.trim().to_owned())
}

/// OSTs refuse the MDT that runs, and say so wherever one looks.
fn must_be_refused(cluster: &Cluster) -> Outcome {
    let identity = identity(cluster)?;
    let dir = cluster.dir().to_string_lossy().into_owned();
    let refuses = format!("REFUSES MDT0000:{identity}");
    wait_until("a refusal", SEEN, || {
        let status = cluster.must(&["status", "--dir", &dir]).unwrap_or_default();
        status.lines().filter(|line| line.contains("-OST") && line.contains(&refuses)).count() == 2
    })?;
    ensure(refusals(cluster, &format!("refused MDT0000:{identity}"))? >= 1, || {
        "the OSTs do not say whom they refused".to_owned()
    })?;
    let said = refusals(cluster, "refuses this node: it holds the objects of another MDT")?;
    ensure(said >= 1, || "the MDT does not say who refused it".to_owned())?;
    // No try is a line of its own: they come every second.
    std::thread::sleep(Duration::from_secs(4));
    let lines = refusals(cluster, "refused MDT0000:")?;
    ensure(lines <= 2, || format!("{lines} lines"))?;
    let refused = fs::write(cluster.mnt().join("refused"), "x").err();
    ensure(refused.is_some(), || "a file was made".to_owned())
}

fn replace_mdt(cluster: &Cluster) -> Outcome {
    let nid = fs::read_to_string(cluster.dir().join("run/mgs.nid")).context("mgs.nid")?;
    let lost = cluster.dir().join("mdt0000");
    fs::remove_dir_all(&lost).context("remove")?;
    let place = lost.to_string_lossy();
    let made = ["mkfs.lustre", "--mdt", "--fsname", "sheen", "--index", "0", "--replace"];
    cluster.must(&[&made[..], &["--mgsnode", nid.trim(), &place]].concat()).map(drop)
}

/// Puts another file system's MDT in the place of this one's, and says where that lies now.
fn put_in_place(cluster: &Cluster, strange: &Path) -> Outcome<PathBuf> {
    let own = cluster.dir().join("mdt0000");
    let aside = cluster.dir().join("run/aside");
    fs::rename(&own, &aside).context("aside")?;
    fs::rename(strange, &own).context("in its place")?;
    // Which target it is and where its MGS is: an administrator who mistakes a disk changes nothing of its names.
    for file in ["CONFIG", "CONFIG.copy"] {
        fs::copy(aside.join(file), own.join(file)).context("configuration")?;
    }
    Ok(aside)
}

/// An administrator who has lost the MDT formats another one, and finds all bytes again.
#[test]
fn an_mdt_formatted_anew_over_a_lost_one_removes_no_data() {
    scene("stranger-anew", 2, LIMIT, |cluster| {
        fill(cluster, 1)?;
        cluster.down()?;
        replace_mdt(cluster)?;
        cluster.up()?;
        must_be_refused(cluster)?;
        all_are_kept(cluster, 1)?;

        let bound = format!("obdfilter.*.mdt_identity=MDT0000:{}", identity(cluster)?);
        cluster.must(&["lctl", "set_param", &bound])?;
        wait_until("a file", SEEN, || fs::write(cluster.mnt().join("probe"), "probe").is_ok())?;
        fill(cluster, 20)?;
        all_are_kept(cluster, 1)?;
        cluster.down()?;
        let dir = cluster.dir().to_string_lossy().into_owned();
        let repaired = cluster.run(&["fsck", "-y", "--dir", &dir])?.output;
        cluster.up()?;
        let mut found = Vec::new();
        for entry in fs::read_dir(cluster.mnt().join("lost+found")).context("list")? {
            found.push(fs::read(entry.context("list")?.path()).context("read")?);
        }
        let is_found = |seed: &u64| found.contains(&content(*seed));
        let back = (1..=FILES).filter(is_found).count() as u64;
        ensure(back == FILES, || format!("{back} of {FILES} files are found:\n{repaired}"))?;
        for seed in 20..20 + FILES {
            let held = fs::read(cluster.mnt().join(format!("f{seed}"))).context("read")?;
            ensure(held == content(seed), || format!("f{seed} has other bytes"))?;
        }
        Ok(())
    });
}

/// The store of another file system's MDT, with files of its own, in the place of the right one and back.
#[test]
fn an_mdt_of_another_file_system_removes_and_overwrites_nothing() {
    scene("stranger-swapped", 2, LIMIT, |cluster| {
        fill(cluster, 1)?;
        cluster.down()?;
        let other = Cluster::start_with("stranger-other", 2, &[])?;
        fill(&other, 40)?;
        other.down()?;
        let own = cluster.dir().join("mdt0000");
        let aside = put_in_place(cluster, &other.dir().join("mdt0000"))?;
        cluster.up()?;
        must_be_refused(cluster)?;
        // Its names are there, and lead to objects that are another file's.
        let path = cluster.mnt().join("f40");
        let names: Vec<_> = fs::read_dir(cluster.mnt()).context("list")?.flatten().collect();
        ensure(names.iter().any(|entry| entry.file_name() == "f40"), || format!("{names:?}"))?;
        drop(names);
        ensure(fs::read(&path).is_err(), || "bytes of another file".to_owned())?;
        ensure(overwrite(&path).is_err(), || "another file was overwritten".to_owned())?;
        // Nor is anything of it destroyed.
        fs::remove_file(cluster.mnt().join("f41")).context("remove")?;
        cluster.down()?;
        all_are_kept(cluster, 1)?;

        fs::remove_dir_all(&own).context("remove")?;
        fs::rename(&aside, &own).context("back")?;
        cluster.up()?;
        for seed in 1..=FILES {
            let held = fs::read(cluster.mnt().join(format!("f{seed}"))).context("read")?;
            ensure(held == content(seed), || format!("f{seed} has other bytes"))?;
        }
        fill(cluster, 20)?;
        other.end();
        Ok(())
    });
}

/// The mount stays while another file system's MDT comes up in the place of its own, which had changes that were not
/// durable: it waits for that one, and has all of it then.
#[test]
fn a_mount_that_stays_waits_for_its_own_mdt() {
    scene("stranger-mounted", 2, LIMIT, |cluster| {
        let other = Cluster::start_with("stranger-mounting", 2, &[])?;
        fill(&other, 40)?;
        other.down()?;
        fill(cluster, 1)?;
        cluster.kill_server()?;
        let strange = other.dir().join("mdt0000");
        let aside = put_in_place(cluster, &strange)?;
        cluster.up()?;
        let log = |name: &str| fs::read_to_string(cluster.dir().join("run").join(name));
        let said = "another MDT is in the place of sheen-MDT0000_UUID";
        wait_until("a mount that waits", SEEN, || {
            log("mount.log").is_ok_and(|log| log.contains(said))
        })?;
        ensure(refusals(cluster, "refused clients of MDT ")? >= 1, || {
            "the MDT does not say whom it refuses".to_owned()
        })?;
        let path = cluster.mnt().join("meanwhile");
        let create = std::thread::spawn(move || fs::write(path, "meanwhile"));
        std::thread::sleep(Duration::from_secs(5));
        ensure(!create.is_finished(), || "the other MDT has made a file".to_owned())?;
        let lines = log("mount.log").context("the log")?.matches(said).count();
        ensure(lines == 1, || format!("{lines} lines"))?;

        cluster.kill_server()?;
        let own = cluster.dir().join("mdt0000");
        fs::remove_dir_all(&own).context("remove")?;
        fs::rename(&aside, &own).context("back")?;
        cluster.up()?;
        create.join().map_err(|_| "the create has panicked".to_owned())?.context("create")?;
        let made = fs::read(cluster.mnt().join("meanwhile")).context("read")?;
        ensure(made == *b"meanwhile", || "the file made meanwhile has other bytes".to_owned())?;
        for seed in 1..=FILES {
            let held = fs::read(cluster.mnt().join(format!("f{seed}"))).context("read")?;
            ensure(held == content(seed), || format!("f{seed} has other bytes"))?;
        }
        fill(cluster, 20)?;
        other.end();
        Ok(())
    });
}

fn overwrite(path: &Path) -> Outcome {
    use std::io::Write;
    let mut file = fs::File::options().write(true).open(path).context("open")?;
    file.write_all(&[7; 4096]).context("write")?;
    file.sync_all().context("sync")
}
