//! Real work on one mount; everything is the same after `down` and `up`.
#![allow(clippy::disallowed_methods, reason = "the real kernel and write-back run in real time")]

use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::{Outcome, Size, big, clone, ensure, folder, many, plant, process, project};

use crate::sqlite;

const MINUTE: Duration = Duration::from_secs(60);

/// What all processes of a small file system may hold in memory after the workload of many files.
const MEMORY_KIB_MAX: u64 = 500 * 1024;

#[test]
fn one_of_everything_survives_a_restart() {
    scene("plant", 4, 5 * MINUTE, |cluster| {
        plant::run(&cluster.mnt())?;
        same_after_restart(cluster)?;
        same_after_restart(cluster)
    });
}

/// A truncate by path gives the lock on the inode back, and with it all that was known of the file;
/// the locks on its objects stay. What they cover must then be asked for again.
#[test]
fn a_file_left_alone_keeps_its_size() {
    scene("size", 2, 5 * MINUTE, |cluster| {
        for size in [5000_u64, 1 << 20, 1 << 40] {
            let path = cluster.mnt().join(size.to_string());
            fs::write(&path, [7; 8192]).map_err(|error| error.to_string())?;
            // Written back by then, so that nothing holds the object.
            thread::sleep(Duration::from_millis(1500));
            let script = format!("truncate($ARGV[0], {size}) or die $!");
            let mut perl = Command::new("perl");
            perl.args(["-e", &script]).arg(&path);
            process::must(&mut perl, &cluster.logs().join("perl.log"), MINUTE)?;
            let found = fs::metadata(&path).map_err(|error| error.to_string())?.len();
            ensure(found == size, || format!("{found} instead of {size} bytes"))?;
        }
        Ok(())
    });
}

/// `kills::a_build_goes_on` builds the same in every run, while the server is killed.
#[test]
fn a_real_project_builds_and_passes_its_tests() {
    if Size::asked() != Size::Long {
        return eprintln!("only with SHEEN_TEST_LONG");
    }
    scene("project", 4, 20 * MINUTE, |cluster| {
        project::run(&cluster.mnt())?;
        same_after_restart(cluster)
    });
}

#[test]
fn git_clones_and_finds_every_object() {
    scene("clone", 2, 10 * MINUTE, |cluster| {
        clone::run(&cluster.mnt())?;
        same_after_restart(cluster)?;
        clone::check(&cluster.mnt())
    });
}

#[test]
fn databases_keep_every_transaction() {
    scene("sqlite", 2, 60 * MINUTE, |cluster| {
        let count = sqlite::transactions(Size::asked());
        sqlite::run(&cluster.mnt(), count)?;
        same_after_restart(cluster)?;
        sqlite::check_all(&cluster.mnt(), count)
    });
}

#[test]
fn many_files_in_one_directory() {
    scene("many", 4, 30 * MINUTE, |cluster| {
        let count = many::count(Size::asked());
        let many = folder(&cluster.mnt(), "many")?;
        many::create(&many, count)?;
        many::list(&many, count)?;
        many::look(&many, count)?;
        memory(cluster)?;
        same_after_restart(cluster)?;
        many::list(&many, count)?;
        many::remove(&many, count)?;
        memory(cluster)
    });
}

#[test]
fn a_big_file_whole_sparse_and_cut() {
    scene("big", 4, 30 * MINUTE, |cluster| {
        big::run(&cluster.mnt(), big::length(Size::asked()))?;
        same_after_restart(cluster)
    });
}

/// Both processes together stay within the promised memory.
fn memory(cluster: &Cluster) -> Outcome {
    let (server, mount) = (cluster.server_pid()?, cluster.mount_pid()?);
    let (server, mount) = (process::resident_kib(server)?, process::resident_kib(mount)?);
    println!("resident: server {server} KiB, mount {mount} KiB");
    ensure(server + mount < MEMORY_KIB_MAX, || {
        format!("server {server} KiB and mount {mount} KiB resident, at most {MEMORY_KIB_MAX}")
    })
}
