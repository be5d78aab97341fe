//! Edges of POSIX through a mount, decided as Lustre decides them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, OFlags, RenameFlags, SeekFrom, StatxFlags, XattrFlags,
    renameat_with, statx,
};
use rustix::io::Errno;
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{play, same_after_restart, scene};
use sheen_workloads::process::{text, wait_until};
use sheen_workloads::{Context, Outcome, Size, ensure, pair, plant};

const LIMIT: Duration = Duration::from_secs(300);
/// The longest path that a call takes, with its NUL.
const PATH_BYTES: usize = 4096;

fn errno<T>(tried: std::io::Result<T>) -> Option<Errno> {
    tried.err().and_then(|error| Errno::from_io_error(&error))
}

fn is<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Outcome {
    ensure(found == wanted, || format!("{what}: {found:?} instead of {wanted:?}"))
}

fn names_and_paths(mnt: &Path) -> Outcome {
    let name = "n".repeat(255);
    File::create(mnt.join(&name)).context("a name of 255 bytes")?;
    let longer = errno(File::create(mnt.join(format!("{name}n"))));
    is("a name of 256 bytes", longer, Some(Errno::NAMETOOLONG))?;
    let root = File::open(mnt).context("open the root")?;
    let mut deep = String::new();
    while deep.len() + 201 < PATH_BYTES - 200 {
        deep.push_str(&"d".repeat(200));
        rustix::fs::mkdirat(&root, &deep, 0o755.into()).context("a deep directory")?;
        deep.push('/');
    }
    let create = OFlags::CREATE | OFlags::WRONLY;
    let open = |path: &str| rustix::fs::openat(&root, path, create, 0o644.into());
    let rest = PATH_BYTES - 1 - deep.len();
    // Slashes count for the path and not for the name.
    let path = format!("{deep}{}{}", "/".repeat(rest - 100), "x".repeat(100));
    is("the longest path", path.len(), PATH_BYTES - 1)?;
    open(&path).context("the longest path")?;
    is("one byte more", open(&format!("{path}x")).err(), Some(Errno::NAMETOOLONG))
}

/// What FUSE or Lustre has not.
fn what_is_not_there(mnt: &Path) -> Outcome {
    is("O_TMPFILE", tmpfile(mnt).err(), Some(Errno::OPNOTSUPP))?;
    let root = File::open(mnt).context("open the root")?;
    for name in ["one", "other"] {
        fs::write(mnt.join(name), name).context(name)?;
    }
    for flag in [RenameFlags::EXCHANGE, RenameFlags::WHITEOUT] {
        let renamed = renameat_with(&root, "one", &root, "other", flag);
        is("RENAME_EXCHANGE and RENAME_WHITEOUT", renamed.err(), Some(Errno::INVAL))?;
    }
    is("what was not exchanged", text(&mnt.join("one")), "one".to_owned())
}

/// As `statx(2)` and `lfs find` have them.
fn times_of_birth(cluster: &Cluster) -> Outcome {
    let path = cluster.mnt().join("one");
    let found = statx(CWD, &path, AtFlags::empty(), StatxFlags::BTIME).context("statx")?;
    is("a time of birth", found.stx_mask & StatxFlags::BTIME.bits(), StatxFlags::BTIME.bits())?;
    let made = found.stx_btime.tv_sec;
    std::os::unix::fs::symlink("x", cluster.mnt().join("link")).context("symlink")?;
    let find = |words: &[&str]| {
        let mnt = cluster.mnt().to_string_lossy().into_owned();
        let words = [&["lfs", "find", &mnt, "-maxdepth", "1", "-name"], words].concat();
        cluster.must(&words).map(|text| text.trim().to_owned())
    };
    for name in ["one", "link"] {
        let born = find(&[name, "-printf", "%W@"])?;
        let born: f64 = born.parse().context(born)?;
        ensure((born - made as f64).abs() < 600.0, || format!("{name}: {born}, made {made}"))?;
    }
    is("younger", find(&["one", "-B", "-1h"])?, path.to_string_lossy().into_owned())?;
    is("older", find(&["one", "-B", "+1h"])?, String::new())
}

fn tmpfile(mnt: &Path) -> rustix::io::Result<rustix::fd::OwnedFd> {
    rustix::fs::open(mnt, OFlags::TMPFILE | OFlags::RDWR, 0o600.into())
}

fn allocation(mnt: &Path) -> Outcome {
    let path = mnt.join("space");
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.context("create")?;
    let size = || file.metadata().map(|data| data.len()).context("fstat");
    let ask = |flags, offset, length| rustix::fs::fallocate(&file, flags, offset, length);
    ask(FallocateFlags::KEEP_SIZE, 0, 8192).context("keep the size")?;
    is("size", size()?, 0)?;
    ask(FallocateFlags::empty(), 4096, 8192).context("allocate")?;
    is("size", size()?, 12288)?;
    file.write_all_at(&[7; 12288], 0).context("write")?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    ask(punch, 4096, 4096).context("punch")?;
    ask(FallocateFlags::ZERO_RANGE, 0, 1000).context("zero")?;
    let read = fs::read(&path).context("read")?;
    let zeros: Vec<usize> = (0..read.len()).filter(|at| read[*at] == 0).collect();
    let wanted: Vec<usize> = (0..1000).chain(4096..8192).collect();
    ensure(zeros == wanted, || "other bytes than asked for became zeros".to_owned())?;
    for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        is("another mode", ask(flags, 0, 4096).err(), Some(Errno::OPNOTSUPP))?;
    }
    file.set_len(0).context("truncate")?;
    file.write_all_at(&[1; 4096], 0).context("write")?;
    file.write_all_at(&[1; 4096], 1 << 20).context("write")?;
    let seek = |to| rustix::fs::seek(&file, to);
    is("the first hole", seek(SeekFrom::Hole(0)), Ok(4096))?;
    is("the next data", seek(SeekFrom::Data(4096)), Ok(1 << 20))?;
    is("data behind the end", seek(SeekFrom::Data(2 << 20)), Err(Errno::NXIO))?;
    is("a size beyond all", errno(file.set_len(i64::MAX as u64)), Some(Errno::FBIG))?;
    is("size", size()?, (1 << 20) + 4096)
}

fn groups_and_copies(mnt: &Path) -> Outcome {
    let shared = mnt.join("shared");
    fs::create_dir(&shared).context("mkdir")?;
    chown(&shared, None, Some(1234)).context("chgrp")?;
    fs::set_permissions(&shared, PermissionsExt::from_mode(0o2775)).context("chmod")?;
    fs::create_dir(shared.join("below")).context("mkdir")?;
    fs::write(shared.join("file"), vec![5; 100_000]).context("write")?;
    let below = fs::metadata(shared.join("below")).context("stat")?;
    is("a directory below", (below.gid(), below.mode() & 0o2000), (1234, 0o2000))?;
    let file = fs::metadata(shared.join("file")).context("stat")?;
    is("a file below", (file.gid(), file.mode() & 0o2000), (1234, 0))?;
    let from = File::open(shared.join("file")).context("open")?;
    let copy = shared.join("copy");
    let to = File::create(&copy).context("create")?;
    let mut left = 100_000;
    while left > 0 {
        let copied = rustix::fs::copy_file_range(&from, None, &to, None, left);
        let copied = copied.context("copy_file_range")?;
        ensure(copied > 0, || format!("nothing was copied of {left}"))?;
        left -= copied;
    }
    ensure(fs::read(&copy).context("read")? == vec![5; 100_000], || "another copy".to_owned())
}

fn attributes(mnt: &Path) -> Outcome {
    let path = mnt.join("attributed");
    fs::write(&path, b"x").context("create")?;
    let set = |name: &str| rustix::fs::setxattr(&path, name, b"value", XattrFlags::CREATE);
    for name in ["user.a", "trusted.a", "security.a"] {
        set(name).context(name)?;
        let mut room = [0; 64];
        let length = rustix::fs::getxattr(&path, name, &mut room).context(name)?;
        is(name, &room[..length], b"value")?;
    }
    for name in ["system.a", "nothing.a"] {
        is(name, set(name).err(), Some(Errno::OPNOTSUPP))?;
    }
    let acl = set("system.posix_acl_access").err();
    // Linux says so of a list of another version.
    is("what is no access list", acl, Some(Errno::OPNOTSUPP))?;
    let label = rustix::fs::getxattr(&path, "security.selinux", &mut [0; 64]).err();
    // `ls -l` asks one file then, and not each.
    let unknown = match Path::new("/sys/fs/selinux/enforce").exists() {
        true => Errno::NODATA,
        false => Errno::OPNOTSUPP,
    };
    is("a label", label, Some(unknown))
}

/// Who may write a file and does not own it sets its times to now, and to nothing else.
#[allow(clippy::disallowed_methods, reason = "now is what is tested")]
fn touched(cluster: &Cluster) -> Outcome {
    let path = cluster.mnt().join("touched");
    let mut file = File::create(&path).context("create")?;
    file.write_all(b"x").context("write")?;
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    file.set_times(fs::FileTimes::new().set_accessed(old).set_modified(old)).context("utimes")?;
    let before = SystemTime::now();
    rustix::fs::futimens(&file, &now()).context("touch")?;
    let seen = fs::metadata(cluster.mount_again()?.join("touched")).context("stat")?;
    for time in [seen.modified().context("mtime")?, seen.accessed().context("atime")?] {
        let apart = match time.duration_since(before) {
            Ok(after) => after,
            Err(error) => error.duration(),
        };
        ensure(apart < Duration::from_secs(60), || format!("{apart:?} from now"))?;
    }
    Ok(())
}

/// Reading changes the time of last access once after each change; the other mount sees it when the
/// file is closed. Not where a mount or a descriptor was opened with `noatime`.
#[allow(clippy::disallowed_methods, reason = "a real mount reads a real clock")]
fn access_times(cluster: &Cluster) -> Outcome {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let other = cluster.mount_with(&["noatime"])?;
    let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
    let made = |name: &str| {
        let path = cluster.mnt().join(name);
        let mut file = File::create(&path).context(name)?;
        file.write_all(b"to be read").and_then(|()| file.set_times(times)).context(name)?;
        Ok::<_, String>(path)
    };
    let seen = |path: &Path| fs::metadata(path).and_then(|data| data.accessed()).context("stat");
    let open = |path: &Path, flags: i32| File::options().read(true).custom_flags(flags).open(path);
    let read = |mut file: File| file.read_to_end(&mut Vec::new()).context("read");

    let path = made("left")?;
    read(open(&path, OFlags::NOATIME.bits().cast_signed()).context("open")?)?;
    is("read with O_NOATIME", seen(&path)?, old)?;
    read(File::open(other.join("left")).context("open")?)?;
    is("read on a mount with noatime", seen(&other.join("left"))?, old)?;

    let path = made("read")?;
    // Times have whole seconds on the wire: an access within that of the change counts as one before it.
    std::thread::sleep(Duration::from_millis(1100));
    let file = File::open(&path).context("open")?;
    is("only opened", seen(&path)?, old)?;
    read(file.try_clone().context("dup")?)?;
    let first = seen(&path)?;
    ensure(first > old + Duration::from_secs(1_000_000), || format!("read: {first:?}"))?;
    drop(file);
    // The kernel reports the last close when it likes. A mount that looks before keeps what it saw, as on
    // Lustre: an access takes no lock away.
    std::thread::sleep(Duration::from_secs(3));
    wait_until("the other mount sees it", Duration::from_secs(60), || {
        seen(&other.join("read")) == Ok(first)
    })?;
    let modified = fs::metadata(&path).and_then(|data| data.modified()).context("stat")?;
    is("the time of the last change", modified, old)?;
    std::thread::sleep(Duration::from_secs(2));
    read(File::open(&path).context("open")?)?;
    is("read again", seen(&path)?, first)
}

fn now() -> rustix::fs::Timestamps {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    rustix::fs::Timestamps { last_access: now, last_modification: now }
}

#[test]
fn edges_are_as_lustre_has_them() {
    scene("posix", 2, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        names_and_paths(&mnt)?;
        what_is_not_there(&mnt)?;
        times_of_birth(cluster)?;
        allocation(&mnt)?;
        groups_and_copies(&mnt)?;
        attributes(&mnt)?;
        touched(cluster)?;
        access_times(cluster)
    });
}

/// The same in a directory whose name lies on one MDT and all else of it on another.
#[test]
fn edges_are_the_same_on_a_further_mdt() {
    let cluster = Cluster::start_with("posix-far", 2, &["--mdts", "2"]);
    play(&Arc::new(cluster.unwrap()), LIMIT, |cluster| {
        let far = cluster.mnt().join("far");
        cluster.must(&["lfs", "mkdir", "-i", "1", &far.to_string_lossy()])?;
        // The longest path is that from the directory that is opened.
        names_and_paths(&far)?;
        what_is_not_there(&far)?;
        allocation(&far)?;
        groups_and_copies(&far)?;
        attributes(&far)?;
        let pair = [far.join("pair"), cluster.mount_again()?.join("far/pair")];
        fs::create_dir(&pair[0]).context("mkdir")?;
        let probe = Path::new(env!("CARGO_BIN_EXE_sheen-probe"));
        pair::run(&pair[0], &pair[1], probe, Size::Tiny)?;
        plant::run(&far)?;
        same_after_restart(cluster)
    });
}
