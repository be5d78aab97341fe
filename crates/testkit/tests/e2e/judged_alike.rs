//! What users may do, and what becomes of set-id bits: a mount beside tmpfs, where the kernel judges by itself.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, ensure};

use crate::rights::{User, set_mode};

const LIMIT: Duration = Duration::from_secs(600);
const ALICE: u32 = 12_001;
const BOB: u32 = 12_002;
/// Groups of Alice's beside her first.
const GROUPS: [u32; 3] = [12_101, 12_102, 12_103];

/// A directory on tmpfs. Dropped, it is removed.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new() -> Outcome<Self> {
        // Tests of one process run side by side.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new("/dev/shm").join(format!("sheen-{}-{number}", std::process::id()));
        fs::create_dir(&path).context("mkdir on tmpfs")?;
        Ok(Self(path))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Mode, owner and group of what a table has.
type Kept = (u32, u32, u32);

fn keep(path: &Path, (mode, uid, gid): Kept) -> Outcome {
    chown(path, Some(uid), Some(gid)).context("chown")?;
    set_mode(path, mode)
}

/// Runs the line in the same table on both, as this user, and compares each line of what it prints.
fn compare(
    cluster: &Cluster,
    who: (u32, &[u32]),
    line: &str,
    make: impl Fn(&Path) -> Outcome,
) -> Outcome {
    let (mount, local) = (cluster.mnt().join("table"), Tmpfs::new()?);
    let mut printed = Vec::new();
    for folder in [&mount, &local.0] {
        fs::create_dir_all(folder).context("mkdir")?;
        set_mode(folder, 0o755)?;
        make(folder)?;
        let user = User { cluster, folder, uid: who.0, groups: who.1 };
        printed.push(user.can(line)?);
    }
    fs::remove_dir_all(&mount).context("clean up")?;
    let pairs = printed[0].lines().zip(printed[1].lines());
    let differing: Vec<_> = pairs.filter(|(mount, local)| mount != local).collect();
    let counts = (printed[0].lines().count(), printed[1].lines().count());
    ensure(counts.0 == counts.1 && counts.0 > 1, || format!("{counts:?} lines: {printed:?}"))?;
    ensure(differing.is_empty(), || format!("user {}, mount and tmpfs: {differing:#?}", who.0))
}

const PARENTS: [Kept; 5] =
    [(0o755, 0, 0), (0o2770, 0, GROUPS[0]), (0o1777, 0, 0), (0o1777, ALICE, 0), (0o777, BOB, BOB)];
const OTHER_PARENTS: [Kept; 4] =
    [(0o755, 0, 0), (0o770, 0, GROUPS[1]), (0o1777, 0, 0), (0o777, BOB, BOB)];
/// Whether it is a directory.
const MOVED: [(bool, Kept); 6] = [
    (false, (0o600, 0, 0)),
    (false, (0o600, ALICE, ALICE)),
    (true, (0o755, 0, 0)),
    (true, (0o755, ALICE, ALICE)),
    (true, (0o770, 0, GROUPS[2])),
    (true, (0o555, ALICE, ALICE)),
];
/// `None`: nothing is there. A directory has something in it, or not.
const REPLACED: [Option<(bool, bool, u32)>; 5] = [
    None,
    Some((false, false, 0)),
    Some((true, false, 0)),
    Some((true, false, ALICE)),
    Some((true, true, ALICE)),
];

fn make_renames(folder: &Path) -> Outcome {
    let make = |path: &Path, (is_directory, kept): (bool, Kept)| {
        match is_directory {
            true => fs::create_dir(path).context("mkdir")?,
            false => fs::write(path, "").context("write")?,
        }
        keep(path, kept)
    };
    let mut number = 100;
    for from in PARENTS {
        for to in OTHER_PARENTS {
            for moved in MOVED {
                for replaced in REPLACED {
                    number += 1;
                    let case = folder.join(number.to_string());
                    fs::create_dir_all(case.join("from")).context("mkdir")?;
                    fs::create_dir(case.join("to")).context("mkdir")?;
                    // While nothing is in them: a mount waits for users of what it closes.
                    keep(&case.join("from"), from)?;
                    keep(&case.join("to"), to)?;
                    make(&case.join("from/x"), moved)?;
                    if let Some((is_directory, is_full, owner)) = replaced {
                        make(&case.join("to/y"), (is_directory, (0o755, owner, owner)))?;
                        if is_full {
                            symlink("nowhere", case.join("to/y/z")).context("symlink")?;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn renames_are_judged_as_on_tmpfs() {
    scene("renames-alike", 1, LIMIT, |cluster| {
        let line = "for c in *; do echo $c $(mv -fT $c/from/x $c/to/y 2>&1; echo $?); done";
        for who in [(ALICE, &GROUPS[..]), (BOB, &[])] {
            compare(cluster, who, line, make_renames)?;
        }
        Ok(())
    });
}

const MODES: [u32; 9] = [0o2666, 0o2676, 0o4666, 0o6666, 0o6676, 0o6777, 0o666, 0o7777, 0o1777];
/// The last one: root opens, and a user writes. A set-group-id bit that no group may execute with is left then, as nothing
/// says whether that user is in the group.
const CHANGES: [(&str, &str); 11] = [
    ("write", "echo x 1<>$f"),
    ("append", "echo x >>$f"),
    ("open", ": >$f"),
    ("cut", "truncate -s 3 $f"),
    ("grow", "truncate -s 30 $f"),
    ("allocate", "fallocate -l 5000 $f"),
    ("punch", "fallocate -p -l 5 $f"),
    ("group", "chgrp $(id -g) $f"),
    ("owner", "chown $(stat -c %u $f) $f"),
    ("nothing", "chown '' $f"),
    (
        "handed",
        "case $f in *[26]666) ;; *) setpriv --reuid 12002 --regid 12002 --clear-groups sh -c 'echo x >&3' 3<>$f;; esac",
    ),
];

fn make_files(folder: &Path) -> Outcome {
    for mode in MODES {
        for (change, _) in CHANGES {
            let path = folder.join(format!("{change}-{mode:o}"));
            fs::write(&path, "some bytes").context("write")?;
            keep(&path, (mode, ALICE, GROUPS[0]))?;
        }
    }
    Ok(())
}

#[test]
fn set_id_bits_go_as_on_tmpfs() {
    scene("set-id-alike", 1, LIMIT, |cluster| {
        let change = |(name, line): &(&str, &str)| {
            format!(
                "for f in {name}-*; do {{ {line}; }} 2>/dev/null; echo $f $(stat -c %a $f); done; "
            )
        };
        let line: String = CHANGES.iter().map(change).collect();
        // The owner, in the group or not; a member; another user; root.
        let users: [(u32, &[u32]); 5] =
            [(ALICE, &GROUPS), (ALICE, &[]), (BOB, &GROUPS), (BOB, &[]), (0, &[])];
        for who in users {
            compare(cluster, who, &line, make_files)?;
        }
        Ok(())
    });
}
