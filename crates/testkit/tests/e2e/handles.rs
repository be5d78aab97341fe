//! What is used without its name: directories and files that are gone and open, and file handles. And times
//! that lie far away. The same sequences as in xfstests (generic/035, 258, 426, 467, 477).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, ensure};

use crate::rights::{User, set_mode};
use crate::special::Special;

const LIMIT: Duration = Duration::from_secs(300);
const ALICE: u32 = 12_001;

fn is<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Outcome {
    ensure(found == wanted, || format!("{what}: {found:?} instead of {wanted:?}"))
}

/// What a directory that is gone still does for those who have it open.
fn is_gone_and_open(what: &str, gone: &File) -> Outcome {
    for _ in 0..2 {
        let known = gone.metadata().context(what)?;
        is(what, (known.is_dir(), known.nlink()), (true, 0))?;
    }
    let make = rustix::fs::mkdirat(gone, "new", Mode::from(0o755));
    is(what, make, Err(Errno::NOENT))?;
    let create = OFlags::CREATE | OFlags::WRONLY;
    let made = rustix::fs::openat(gone, "new", create, Mode::from(0o644));
    is(what, made.err(), Some(Errno::NOENT))?;
    let found = rustix::fs::statat(gone, "new", AtFlags::empty());
    is(what, found.err(), Some(Errno::NOENT))?;
    let left = names(gone).context(what)?;
    ensure(left.iter().all(|name| name.starts_with('.')), || format!("{what}: {left:?}"))?;
    rustix::fs::fsync(gone).context(what)
}

/// The names in an open directory.
fn names(open: &File) -> rustix::io::Result<Vec<String>> {
    let all = rustix::fs::Dir::read_from(open)?;
    let names = all.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

#[test]
fn a_directory_that_is_gone_serves_those_who_have_it_open() {
    scene("gone-directory", 1, LIMIT, |cluster| {
        let (mnt, other) = (cluster.mnt(), cluster.mount_again()?);
        let open = |name: &str| -> Outcome<File> {
            fs::create_dir(mnt.join(name)).context(name)?;
            File::open(mnt.join(name)).context(name)
        };
        let replaced = open("replaced")?;
        fs::create_dir(mnt.join("new")).context("mkdir")?;
        fs::rename(mnt.join("new"), mnt.join("replaced")).context("rename")?;
        is_gone_and_open("replaced", &replaced)?;
        is("the new one", fs::metadata(mnt.join("replaced")).context("stat")?.nlink(), 2)?;
        let removed = open("removed")?;
        fs::remove_dir(mnt.join("removed")).context("rmdir")?;
        is_gone_and_open("removed", &removed)?;
        // By another mount.
        let theirs = open("theirs")?;
        fs::remove_dir(other.join("theirs")).context("rmdir")?;
        is_gone_and_open("removed by another", &theirs)?;
        let theirs = open("theirs")?;
        fs::create_dir(other.join("new")).context("mkdir")?;
        fs::rename(other.join("new"), other.join("theirs")).context("rename")?;
        is_gone_and_open("replaced by another", &theirs)?;
        // Who stands in it.
        set_mode(&mnt, 0o777)?;
        let alice = User { cluster, folder: &mnt, uid: ALICE, groups: &[] };
        let links =
            alice.can("mkdir d && cd d && rmdir ../d && stat -c %h . && ls && ! mkdir e")?;
        ensure(links.starts_with('0'), || links.clone())
    });
}

#[test]
fn a_file_that_is_gone_serves_those_who_have_it_open() {
    scene("gone-file", 1, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        for other in [mnt.clone(), cluster.mount_again()?] {
            for replaced in [false, true] {
                let path = mnt.join("f");
                fs::write(&path, b"content").context("write")?;
                let open = File::options().read(true).write(true).open(&path).context("open")?;
                match replaced {
                    true => {
                        fs::write(other.join("g"), b"").context("write")?;
                        fs::rename(other.join("g"), other.join("f")).context("rename")?;
                    }
                    false => fs::remove_file(other.join("f")).context("unlink")?,
                }
                let known = open.metadata().context("fstat")?;
                is("links and size", (known.nlink(), known.len()), (0, 7))?;
                let mut text = String::new();
                std::io::Read::read_to_string(&mut &open, &mut text).context("read")?;
                is("content", text.as_str(), "content")?;
                open.set_len(3).context("ftruncate")?;
                is("size", open.metadata().context("fstat")?.len(), 3)?;
                rustix::fs::fchmod(&open, Mode::from(0o640)).context("fchmod")?;
                rustix::fs::fsync(&open).context("fsync")?;
            }
        }
        Ok(())
    });
}

/// Times in whole seconds, that are stored as they were given.
const SECONDS: [i64; 9] =
    [-1, -315_593_940, -1 << 31, -(1 << 31) - 1, -1 << 34, 1 << 33, -1 << 55, i64::MAX, i64::MIN];

/// `statx(2)` alone asks for it.
#[test]
#[expect(clippy::disallowed_methods, reason = "the time is the machine's")]
fn a_file_says_on_every_mount_when_it_was_made() {
    scene("birth", 2, LIMIT, |cluster| {
        let (mnt, other) = (cluster.mnt(), cluster.mount_again()?);
        // Servers count whole seconds.
        let (begin, second) = (SystemTime::now(), Duration::from_secs(1));
        fs::write(mnt.join("f"), b"content").context("create")?;
        fs::create_dir(mnt.join("d")).context("mkdir")?;
        let made = |path: &Path| fs::metadata(path).and_then(|it| it.created()).context("birth");
        let births = [made(&mnt.join("f"))?, made(&mnt.join("d"))?];
        for born in births {
            let is_then = begin - second <= born && born <= SystemTime::now() + second;
            ensure(is_then, || format!("{born:?}, begun at {begin:?}"))?;
        }
        std::thread::sleep(second * 2);
        fs::write(other.join("f"), b"other content").context("write")?;
        fs::rename(other.join("f"), other.join("d/g")).context("rename")?;
        for mnt in [&mnt, &other] {
            let now = [made(&mnt.join("d/g"))?, made(&mnt.join("d"))?];
            ensure(now == births, || format!("{now:?} instead of {births:?}"))?;
        }
        let path = mnt.display().to_string();
        let found =
            cluster.must(&["lfs", "find", &path, "-type", "f", "-newerBt", "2001-01-01"])?;
        ensure(found.contains("/d/g"), || found.clone())
    });
}

#[test]
fn times_before_1970_and_far_away_are_kept() {
    scene("times", 2, LIMIT, |cluster| {
        let path = |mnt: &Path, number: usize| mnt.join(format!("t{number}"));
        let set = |path: &Path, seconds: i64, nanoseconds: i64| {
            let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).context(path.display())
        };
        let known = |path: &Path| -> Outcome<(i64, i64)> {
            let known = fs::metadata(path).context(path.display())?;
            is("nanoseconds", (known.atime_nsec(), known.mtime_nsec()), (0, 0))?;
            Ok((known.atime(), known.mtime()))
        };
        let mnt = cluster.mnt();
        for (number, seconds) in SECONDS.into_iter().enumerate() {
            let path = path(&mnt, number);
            // With objects and without, and a directory.
            match number % 3 {
                0 => fs::write(&path, b"content").context("write")?,
                1 => fs::write(&path, b"").context("create")?,
                _ => fs::create_dir(&path).context("mkdir")?,
            }
            set(&path, seconds, 0)?;
            is("just set", known(&path)?, (seconds, seconds))?;
        }
        let part = mnt.join("part");
        fs::write(&part, b"content").context("write")?;
        set(&part, -5, 300_000_000)?;
        is("the second in which it is", known(&part)?, (-5, -5))?;
        let other = cluster.mount_again()?;
        for (number, seconds) in SECONDS.into_iter().enumerate() {
            is("on another mount", known(&path(&other, number))?, (seconds, seconds))?;
        }
        cluster.down()?;
        cluster.up()?;
        for (number, seconds) in SECONDS.into_iter().enumerate() {
            is("after a restart", known(&path(&mnt, number))?, (seconds, seconds))?;
        }
        is("after a restart", known(&part)?, (-5, -5))
    });
}

/// What the kernel does not use now it forgets.
fn forget() -> Outcome {
    fs::write("/proc/sys/vm/drop_caches", "2").context("drop_caches")
}

#[test]
fn handles_of_files_and_directories_outlive_what_the_kernel_knows() {
    scene("file-handles", 1, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        let special = Special::compile(cluster, cluster.logs().join("special-program"))?;
        let saved = |name: &str| cluster.logs().join(format!("{name}.handle"));
        let deep = mnt.join("a/b/c");
        fs::create_dir_all(&deep).context("mkdir")?;
        for name in ["kept", "moved", "linked", "gone", "opened"] {
            fs::write(deep.join(name), name).context("write")?;
            special.says(&["save"], &[&deep.join(name), &saved(name)])?;
        }
        fs::create_dir(deep.join("empty")).context("mkdir")?;
        special.says(&["save"], &[&deep.join("empty"), &saved("empty")])?;
        special.says(&["save"], &[&deep, &saved("deep")])?;
        let opens = |name: &str, wanted: &str| -> Outcome {
            let said = special.says(&["open"], &[&mnt, &saved(name)])?;
            is(name, said.as_str(), wanted)
        };
        let all = |links: u32| -> Outcome {
            ["kept", "moved"]
                .iter()
                .try_for_each(|name| opens(name, &format!("links 1 {name}")))?;
            opens("deep", &format!("links {links}"))
        };
        all(3)?;
        forget()?;
        all(3)?;
        opens("gone", "links 1 gone")?;
        // Moved, also with the directory that it is in.
        fs::rename(deep.join("moved"), mnt.join("elsewhere")).context("rename")?;
        fs::rename(mnt.join("a"), mnt.join("z")).context("rename")?;
        let deep = mnt.join("z/b/c");
        fs::hard_link(deep.join("linked"), mnt.join("second")).context("link")?;
        fs::remove_file(deep.join("linked")).context("unlink")?;
        forget()?;
        all(3)?;
        opens("linked", "links 1 linked")?;
        // Gone, and gone but open.
        let held = File::open(deep.join("opened")).context("open")?;
        for name in ["gone", "opened"] {
            fs::remove_file(deep.join(name)).context("unlink")?;
        }
        fs::remove_dir(deep.join("empty")).context("rmdir")?;
        for _ in 0..2 {
            opens("gone", "Stale file handle")?;
            opens("empty", "Stale file handle")?;
            opens("opened", "links 0 opened")?;
            forget()?;
        }
        drop(held);
        // Another file never comes in the place of one that is gone.
        for number in 0..50 {
            fs::write(mnt.join(format!("new{number}")), "new").context("write")?;
        }
        // Good also at another mount, and after the file system was started again.
        cluster.down()?;
        cluster.up()?;
        all(2)?;
        opens("linked", "links 1 linked")?;
        opens("gone", "Stale file handle")?;
        opens("empty", "Stale file handle")
    });
}
