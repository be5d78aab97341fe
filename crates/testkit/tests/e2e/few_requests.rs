//! How many requests small files cost: what archives unpack, what is read again, what is removed.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::Path;
use std::time::{Duration, SystemTime};

use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, ensure};

use crate::dom::{asked_by, begin_on_mdt};

const LIMIT: Duration = Duration::from_secs(300);
const FILES: u64 = 40;
/// By then closes and written bytes were answered.
const SETTLED: Duration = Duration::from_millis(2500);

/// As `tar x` makes files as root: bytes, times, owner, mode.
fn unpack(top: &Path) -> Outcome {
    for number in 0..FILES {
        let mut file = File::create(top.join(number.to_string())).context("create")?;
        file.write_all(&[7; 3000]).context("write")?;
        let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(77));
        file.set_times(times).context("times")?;
        fchown(&file, Some(0), Some(0)).context("chown")?;
        file.set_permissions(Permissions::from_mode(0o640)).context("chmod")?;
    }
    settle();
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "closes are sent in the background")]
fn settle() {
    std::thread::sleep(SETTLED);
}

/// As `tar c` reads a tree.
fn read_all(top: &Path) -> Outcome {
    for entry in fs::read_dir(top).context("list")? {
        let path = entry.context("entry")?.path();
        let size = fs::symlink_metadata(&path).context("stat")?.len();
        let bytes = fs::read(&path).context("read")?.len() as u64;
        ensure(size == 3000 && bytes == size, || format!("{size} bytes, {bytes} read"))?;
    }
    settle();
    Ok(())
}

fn remove_all(top: &Path) -> Outcome {
    fs::remove_dir_all(top).context("remove")
}

/// Requests for each file that `work` sends, at most `most` in all but for some of the directory's.
fn costs(what: &str, asked: &[(String, u64)], most: u64) -> Outcome {
    let sum: u64 = asked.iter().map(|(_, count)| count).sum();
    let of_directory = 12;
    ensure(sum <= FILES * most + of_directory, || {
        format!("{what}: {sum} requests for {FILES} files: {asked:?}")
    })
}

/// With files of this layout: requests to unpack a file, to read it cold, and to remove it.
fn small_files(name: &str, on_mdt: bool, [unpacked, read, removed]: [u64; 3]) {
    scene(name, 2, LIMIT, move |cluster| {
        if on_mdt {
            begin_on_mdt(cluster)?;
        }
        let top = cluster.mnt().join("tree");
        fs::create_dir(&top).context("mkdir")?;
        costs("unpack", &asked_by(cluster, || unpack(&top))?, unpacked)?;
        cluster.drop_locks()?;
        costs("read", &asked_by(cluster, || read_all(&top))?, read)?;
        let again = cluster.mnt().join("again");
        fs::create_dir(&again).context("mkdir")?;
        unpack(&again)?;
        costs("remove", &asked_by(cluster, || remove_all(&again))?, removed)
    });
}

/// Create, lock, times, mode, times of the object, bytes, close; a cold read opens, asks for the size, reads and closes.
#[test]
fn of_files_on_osts() {
    small_files("few-requests", false, [7, 4, 1]);
}

/// Create, times, mode, bytes, close; a cold read opens and closes.
#[test]
fn of_files_that_begin_on_the_mdt() {
    small_files("few-requests-dom", true, [5, 2, 1]);
}

/// The kernel asks for the capabilities of a file that is written once, and not at each write.
#[test]
fn of_the_kernel_for_writes() {
    scene("few-questions", 2, LIMIT, |cluster| {
        let file = File::create(cluster.mnt().join("f")).context("create")?;
        let asked = || -> Outcome<u64> {
            let text = cluster.must(&["lctl", "get_param", "-n", "llite.*.stats"])?;
            let line = text.lines().find(|line| line.starts_with("getxattr "));
            let count = line.and_then(|line| line.split_whitespace().nth(1));
            count.map_or(Ok(0), |count| count.parse().context("a count"))
        };
        for _ in 0..500 {
            (&file).write_all(&[1; 512]).context("write")?;
        }
        let count = asked()?;
        ensure(count <= 5, || format!("{count} questions for 500 writes"))
    });
}

/// A mount whose kernel knows that a file has no capabilities takes off what another mount has given it since.
#[test]
fn a_write_takes_capabilities_that_another_mount_has_given() {
    scene("capabilities", 2, LIMIT, |cluster| {
        let other = cluster.mount_again()?;
        let (here, there) = (cluster.mnt().join("f"), other.join("f"));
        let file = File::create(&here).context("create")?;
        // `cap_net_raw+ep`, as the kernel keeps it.
        let mut value = [0; 20];
        (value[3], value[0], value[5]) = (2, 1, 0x20);
        for round in 0..3 {
            (&file).write_all(b"some").context("write")?;
            (&file).write_all(b"more").context("write")?;
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&there, "security.capability", &value, flags).context("set")?;
            (&file).write_all(b"bytes").context("write")?;
            let left = rustix::fs::getxattr(&there, "security.capability", &mut [0u8; 32][..]);
            ensure(left.is_err(), || format!("round {round}: a write has left them"))?;
        }
        Ok(())
    });
}
