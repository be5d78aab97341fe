//! Full disks: refused before the data is taken, nothing lost, and room again after a removal.
#![allow(
    clippy::disallowed_methods,
    reason = "other threads fill the disk side by side with the work"
)]

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::play;
use sheen_workloads::ledger::Ledger;
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, bytes, ensure};

const LIMIT: Duration = Duration::from_secs(300);

/// Longer than a busy machine takes for some records, or a server to find that its disk is full.
const SOON: Duration = Duration::from_secs(90);

/// The whole disk: large enough for the stores of an empty file system.
const DISK: &std::ffi::CStr = c"size=512m";

/// A small disk at a path. Dropped, it is taken away.
struct Disk(PathBuf);

impl Disk {
    fn new(path: &Path) -> Outcome<Self> {
        ensure(rustix::process::geteuid().is_root(), || {
            "a small disk needs root: run the tests as root".to_owned()
        })?;
        mount("sheen-test", path, "tmpfs", MountFlags::empty(), DISK).context("mount a tmpfs")?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.0, UnmountFlags::DETACH) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

/// A file system on a small disk; the disk goes after the file system has ended.
fn on_a_small_disk(name: &str, body: impl FnOnce(&Cluster) -> Outcome + Send + 'static) {
    let cluster = Cluster::prepare(name, 1, &[]).unwrap_or_else(|fault| panic!("{fault}"));
    let cluster = Arc::new(cluster);
    let disk = Disk::new(&cluster.dir()).unwrap_or_else(|fault| panic!("{fault}"));
    play(&cluster, LIMIT, |cluster| {
        cluster.up()?;
        body(cluster)
    });
    cluster.end();
    drop(disk);
}

#[test]
fn a_full_ost_says_so_and_loses_nothing() {
    on_a_small_disk("full-ost", |cluster| {
        let kept = bytes::content(1, 1_000_000);
        fs::write(cluster.mnt().join("kept"), &kept).context("a first file")?;
        let path = cluster.mnt().join("filler");
        let taken = fill(&path)?;
        ensure(taken < 600, || format!("{taken} MiB fit on a disk of 512"))?;
        let read = fs::read(cluster.mnt().join("kept")).context("read on a full disk")?;
        ensure(read == kept, || "the first file changed".to_owned())?;
        room_again(cluster, &path, &kept)
    });
}

/// Fills the disk by other means than the file system, then makes names until it is refused.
#[test]
fn a_full_mdt_says_so_and_loses_nothing() {
    on_a_small_disk("full-mdt", |cluster| {
        let kept = bytes::content(2, 1_000_000);
        fs::write(cluster.mnt().join("kept"), &kept).context("a first file")?;
        File::open(cluster.mnt().join("kept")).and_then(|file| file.sync_all()).context("fsync")?;
        // What its objects were made for may not be durable yet: a commit on the full disk would end all changes.
        thread::sleep(Duration::from_secs(2));
        cluster.must(&["lctl", "set_param", "osd-sheen.*.force_sync=1"])?;
        let path = cluster.dir().join("filler");
        fill(&path)?;
        let names = cluster.mnt().join("names");
        let made = fs::create_dir(&names).and_then(|()| make_names(&names));
        let kind = made.map_err(|error| error.kind());
        ensure(kind == Err(ErrorKind::StorageFull), || format!("names on a full disk: {kind:?}"))?;
        let read = fs::read(cluster.mnt().join("kept")).context("read on a full disk")?;
        ensure(read == kept, || "the first file changed".to_owned())?;
        room_again(cluster, &path, &kept)
    });
}

/// Takes all that the disk has left, in one moment, under a server that is at work: it has no time to
/// refuse anything first. What was synced before is there when there is room again.
#[test]
fn a_disk_that_other_writers_fill_at_once_loses_nothing_that_was_synced() {
    on_a_small_disk("filled", |cluster| {
        let (top, filler) = (cluster.mnt(), cluster.dir().join("filler"));
        let ledger = Ledger::default();
        thread::scope(|scope| {
            let writer = scope.spawn(|| ledger.run(&top));
            let busy = || ledger.durable() > 50 || writer.is_finished();
            let taken = wait_until("50 records", SOON, busy).and_then(|()| take_all(&filler));
            let refused = wait_until("a refusal", SOON, || writer.is_finished());
            ledger.stop();
            if taken.is_err() || refused.is_err() {
                // The writer would wait for the server for ever.
                cluster.end();
            }
            let written = writer.join().map_err(|_panic| "the writer panicked".to_owned())?;
            taken.and(refused)?;
            println!("filled: {} records, then {written:?}", ledger.durable());
            ensure(written.is_err(), || "nothing was refused on a full disk".to_owned())
        })?;
        // A commit may have failed, or all may have been refused before.
        let status = cluster.must(&["status", "--dir", &cluster.dir().to_string_lossy()])?;
        let is_said =
            status.contains(" is read-only for ") && status.contains("restart its server");
        ensure(status.contains("NOT HEALTHY") == is_said, || status.clone())?;
        fs::remove_file(&filler).context("rm")?;
        // A process that another test has just forked may have the file open until it executes its program.
        wait_until("room on the disk", SOON, || free(&cluster.dir()) > 256 << 20)?;
        cluster.kill_server()?;
        cluster.up()?;
        ledger.verify(&top)?;
        fs::write(top.join("after"), b"after").context("room again")?;
        cluster.down()?;
        cluster.fsck()?;
        cluster.up()?;
        ledger.verify(&top)?;
        let after = fs::read(top.join("after")).context("after")?;
        ensure(after == b"after", || "what was written afterwards is something else".to_owned())
    });
}

/// Bytes that the disk at `path` has free.
fn free(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |disk| disk.f_bavail * disk.f_frsize)
}

/// Leaves not a single page of the disk to other writers.
fn take_all(path: &Path) -> Outcome {
    let file = File::create_new(path).context(path.display())?;
    let (mut length, mut piece) = (0, 1 << 29);
    while piece >= 4096 {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), length, piece) {
            Ok(()) => length += piece,
            Err(Errno::NOSPC) => piece /= 2,
            Err(error) => return Err(format!("fallocate: {error}")),
        }
    }
    Ok(())
}

/// Makes names with large attributes, so that the store itself must grow, each one synced.
fn make_names(folder: &Path) -> std::io::Result<()> {
    let value = bytes::content(3, 4000);
    for number in 0..50_000 {
        let path = folder.join(format!("name-{number}"));
        let file = File::create_new(&path)?;
        rustix::fs::setxattr(&path, "user.big", &value, rustix::fs::XattrFlags::CREATE)?;
        if number % 100 == 0 {
            file.sync_all()?;
        }
    }
    Ok(())
}

/// Writes until the disk is full; says how many MiB it took.
fn fill(path: &Path) -> Outcome<u64> {
    let mut file = File::create_new(path).context(path.display())?;
    let piece = bytes::content(9, 1 << 20);
    for taken in 0..4096 {
        match file.write_all(&piece).and_then(|()| file.sync_data()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(taken),
            Err(error) => return Err(format!("a full disk answers: {error}")),
        }
    }
    Err("the disk never filled".to_owned())
}

fn room_again(cluster: &Cluster, filler: &Path, kept: &[u8]) -> Outcome {
    fs::remove_file(filler).context("rm on a full disk")?;
    let path = cluster.mnt().join("after");
    // Freed objects are destroyed in the background.
    wait_until("room after rm", Duration::from_secs(60), || {
        let written = File::create(&path)
            .and_then(|mut file| file.write_all(kept).and_then(|()| file.sync_all()));
        written.is_ok()
    })?;
    cluster.down()?;
    cluster.fsck()?;
    cluster.up()?;
    for name in ["kept", "after"] {
        let read = fs::read(cluster.mnt().join(name)).context(name)?;
        ensure(read == kept, || format!("{name}: changed over a restart"))?;
    }
    Ok(())
}
