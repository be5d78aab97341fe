//! An hour of an administrator: starting, looking, stopping, and what hinders that. What is wrong is said in a
//! line, with the right exit code, and nothing is waited for in silence.
#![allow(clippy::disallowed_methods, reason = "processes are looked at while they wait")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use sheen_testkit::cluster::{Cluster, is_mounted, kill_keeper, program, served_by};
use sheen_testkit::scene::{play, scene, without_other_mounts};
use sheen_workloads::process::{self, Finished, text, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

use crate::rights::{Home, UNPRIVILEGED, User, set_mode};

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(60);

const EINVAL: i32 = 22;
const EBUSY: i32 = 16;
const ENOENT: i32 = 2;
const ENOSPC: i32 = 28;
const EACCES: i32 = 13;

/// That a command failed with `code` and all `words` in one line.
fn refused(finished: &Finished, code: i32, words: &[&str]) -> Outcome {
    let is_said = finished.output.lines().any(|line| words.iter().all(|word| line.contains(word)));
    ensure(finished.status.code() == Some(code) && is_said, || {
        format!("{}, wanted {code} and {words:?}:\n{}", finished.status, finished.output)
    })
}

fn has(output: &str, words: &[&str]) -> Outcome {
    let missing: Vec<_> = words.iter().filter(|word| !output.contains(**word)).collect();
    ensure(missing.is_empty(), || format!("no {missing:?} in\n{output}"))
}

/// Directory and mount point, as words of a command line.
fn places(cluster: &Cluster) -> (String, String) {
    (cluster.dir().display().to_string(), cluster.mnt().display().to_string())
}

/// A process that a test ends. Dropped, it is killed.
struct Ended(Child);

impl Ended {
    fn start(command: &mut Command) -> Outcome<Self> {
        command.stdin(Stdio::null()).spawn().context("spawn").map(Self)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_file_system_of_a_user_is_his() {
    let cluster = Arc::new(Cluster::prepare("of-a-user", 1, &[]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        set_mode(Path::new("/dev/fuse"), 0o666)?;
        let home = Home::of(UNPRIVILEGED)?;
        let user = User { cluster, folder: &home.0, uid: UNPRIVILEGED, groups: &[] };
        let tool = format!("SHEEN_RUN_DIR={}/run {}", home.0.display(), program()?.display());
        user.can(&format!("{tool} up --dir own/fs --mount m --osts 1"))?;
        let shown = user.can("stat -c '%u %Y %Z' m && echo mine > m/f && cat m/f");
        let ended = user.can(&format!("{tool} down --dir own/fs"));
        let shown = shown?;
        let numbers: Vec<u64> =
            shown.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        ensure(numbers.len() == 3 && numbers[0] == u64::from(UNPRIVILEGED), || shown.clone())?;
        ensure(numbers[1] > 1_700_000_000 && numbers[2] > 1_700_000_000, || shown.clone())?;
        ended.map(drop)
    });
}

/// As root made it: the device is there, and no other user may open it.
#[test]
fn a_device_that_a_user_may_not_open_has_its_own_hint() {
    let cluster = Arc::new(Cluster::prepare("closed-fuse", 1, &[]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        let home = Home::of(UNPRIVILEGED)?;
        let (own, tool) = (home.0.display(), program()?.display().to_string());
        let line = format!(
            "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 && \
             mknod -m 600 /dev/fuse c 10 229 && cd {own} && exec setpriv --reuid {UNPRIVILEGED} --clear-groups \
             env SHEEN_RUN_DIR={own}/own/run {tool} up --dir own/fs --mount m --osts 1"
        );
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "--propagation", "private", "--", "sh", "-c", &line]);
        let up = process::run(&mut inside, &cluster.logs().join("unshare"), LIMIT)?;
        refused(&up, EACCES, &["/dev/fuse", "this user may not use it", "chmod 666 /dev/fuse"])?;
        let left: Vec<_> = fs::read_dir(home.0.join("own")).context("list")?.flatten().collect();
        ensure(left.is_empty(), || format!("it leaves {left:?}"))
    });
}

#[test]
fn sizes_that_are_too_small_are_refused_before_anything_is_made() {
    let cluster = Arc::new(Cluster::prepare("small-sizes", 1, &[]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        let (dir, mnt) = places(cluster);
        let fs_dir = format!("{dir}/fs");
        let up = ["up", "--dir", &fs_dir, "--mount", &mnt, "--osts", "4"];
        let small = cluster.run(&[&up[..], &["--device-size", "1024"]].concat())?;
        refused(&small, EINVAL, &["--device-size 1024", "at least 8192 KiB"])?;
        ensure(!Path::new(&fs_dir).exists(), || "it made the directory".to_owned())?;
        mount("sheen-test", &*dir, "tmpfs", MountFlags::empty(), Some(c"size=128m"))
            .context("mount a tmpfs")?;
        let small = cluster.run(&up);
        let left = Path::new(&fs_dir).exists();
        unmount(&*dir, UnmountFlags::DETACH).context("umount")?;
        refused(&small?, ENOSPC, &["4 OSTs need", "need at least"])?;
        ensure(!left, || "it made the directory".to_owned())
    });
}

#[test]
fn options_that_a_running_file_system_does_not_take_are_refused() {
    scene("other-options", 1, LIMIT, |cluster| {
        let (dir, mnt) = places(cluster);
        let up = |more: &[&str]| {
            cluster.run(&[&["up", "--dir", &dir, "--mount", &mnt][..], more].concat())
        };
        refused(&up(&["-o", "ro"])?, EBUSY, &["-o ro", "no options", "sheen down"])?;
        refused(
            &up(&["--device-size", "99999"])?,
            EINVAL,
            &["--device-size 99999", "new targets"],
        )?;
        ensure(up(&[])?.status.success(), || "the same is refused".to_owned())?;
        cluster.down()?;
        cluster.must(&["up", "--dir", &dir, "--mount", &mnt, "-o", "noatime,flock"])?;
        cluster.must(&["up", "--dir", &dir, "--mount", &mnt, "-o", "flock,noatime"])?;
        refused(&up(&["-o", "flock"])?, EBUSY, &["-o flock", "-o noatime,flock"])?;
        let word = cluster.run(&["up", &dir])?;
        refused(&word, ENOENT, &[&format!("--dir {dir}")])
    });
}

#[test]
fn a_lost_ost_is_an_error_of_up_and_shown_by_status() {
    scene("lost-ost", 2, LIMIT, |cluster| {
        let (dir, mnt) = places(cluster);
        let (ost, away) = (cluster.dir().join("ost0001"), cluster.logs().join("away"));
        cluster.down()?;
        fs::rename(&ost, &away).context("rename")?;
        let up = cluster.run(&["up", "--dir", &dir, "--mount", &mnt])?;
        refused(&up, ENOENT, &["ost0001", "gone", "--replace"])?;
        let up = cluster.run(&["up", "--dir", &dir, "--mount", &mnt, "--osts", "2"])?;
        refused(&up, ENOENT, &["ost0001", "gone"])?;
        ensure(!ost.exists() && cluster.server_pid().is_err(), || "it went on".to_owned())?;
        let status = cluster.must(&["status", "--dir", &dir])?;
        has(&status, &[&format!("{}, LOST", ost.display())])?;
        // Nor does one that knows nothing of its last start.
        let config = cluster.dir().join("mgt/CONFIG");
        has(&text(&config), &["up.targets=mgt mdt0000 ost0000 ost0001"])?;
        fs::rename(&away, &ost).context("rename")?;
        cluster.up()?;
        let status = cluster.must(&["status", "--dir", &dir])?;
        has(&status, &["clients:     1", "ost0001, ", " available"])?;
        ensure(!status.contains("LOST"), || status.clone())
    });
}

/// A process in a mount namespace of its own, which has a copy of the mount, as a service with mounts of its own has it
/// that was started meanwhile.
fn copy_in_a_namespace(cluster: &Cluster) -> Outcome<Ended> {
    let (_, mnt) = places(cluster);
    let line = format!("{}; exec sleep 300", without_other_mounts(&mnt));
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--propagation", "private", "sh", "-c", &line]);
    let keeper = Ended::start(&mut inside)?;
    let of = PathBuf::from(format!("/proc/{}", keeper.0.id()));
    let is_apart = || text(&of.join("comm")).trim() == "sleep";
    let has_copy = || text(&of.join("mountinfo")).contains(&mnt);
    wait_until("the other namespace", PATIENCE, || is_apart() && has_copy())?;
    Ok(keeper)
}

#[test]
fn down_names_who_has_a_copy_of_the_mount_and_ends() {
    scene("copied-mount", 1, LIMIT, |cluster| {
        let (dir, mnt) = places(cluster);
        let keeper = copy_in_a_namespace(cluster)?;
        let pid = keeper.0.id();
        let table = PathBuf::from(format!("/proc/{pid}/mountinfo"));
        let begun = Instant::now();
        let down = cluster.run(&["down", "--dir", &dir])?;
        let named = format!("pid {pid} (sleep)");
        refused(&down, EBUSY, &["is not mounted here", &named, "--force"])?;
        has(&down.output, &["waiting for the mount process"])?;
        let waits_twice = down.output.contains("that is being unmounted");
        ensure(!waits_twice, || format!("for the same mount:\n{}", down.output))?;
        ensure(begun.elapsed() < Duration::from_secs(40), || format!("{:?}", begun.elapsed()))?;
        refused(&down, EBUSY, &["its servers are stopped"])?;
        ensure(cluster.server_pid().is_err(), || "its server runs".to_owned())?;
        let status = cluster.must(&["status", "--dir", &dir])?;
        has(&status, &["not mounted here", &named, "mounted on:  nothing"])?;
        let up = cluster.run(&["up", "--dir", &dir, "--mount", &mnt])?;
        refused(&up, EBUSY, &["is not mounted here", &named])?;
        ensure(!is_mounted(&cluster.mnt()), || "mounted".to_owned())?;
        // For what uses the copy.
        cluster.server_pid()?;
        let down = cluster.run(&["down", "--dir", &dir, "--force"])?;
        ensure(down.status.success() && cluster.keeper_pid().is_err(), || down.output.clone())?;
        ensure(text(&table).contains(&mnt), || "the copy is gone".to_owned())?;
        drop(keeper);
        cluster.up()
    });
}

#[test]
fn down_names_copies_and_programs_that_both_keep_the_mount() {
    scene("kept-twice", 1, LIMIT, |cluster| {
        let (dir, mnt) = places(cluster);
        let program =
            Ended::start(Command::new("tail").args(["-f", "/dev/null"]).current_dir(&mnt))?;
        let copy = copy_in_a_namespace(cluster)?;
        let runs = PathBuf::from(format!("/proc/{}/comm", program.0.id()));
        wait_until("the program", PATIENCE, || text(&runs).trim() == "tail")?;
        unmount(&*mnt, UnmountFlags::DETACH).context("umount -l")?;
        let (copied, used) =
            (format!("pid {} (sleep)", copy.0.id()), format!("pid {} (tail)", program.0.id()));
        let down = cluster.run(&["down", "--dir", &dir])?;
        refused(&down, EBUSY, &["is not mounted here", &copied, &used, "--force"])?;
        drop((program, copy));
        cluster.up()
    });
}

#[test]
fn up_does_not_succeed_where_its_mount_point_shows_something_else() {
    scene("moved-mount", 1, LIMIT, |cluster| {
        let (dir, mnt) = places(cluster);
        let copy = cluster.logs().join("copy");
        fs::create_dir_all(&copy).context("mkdir")?;
        mount_bind(&*mnt, &copy).context("bind")?;
        unmount(&*mnt, UnmountFlags::empty()).context("umount")?;
        let up = cluster.run(&["up", "--dir", &dir, "--mount", &mnt])?;
        let at = copy.display().to_string();
        refused(&up, EBUSY, &[&mnt, "does not show the file system", &at])?;
        let status = cluster.must(&["status", "--dir", &dir])?;
        has(&status, &[&format!("not seen on {mnt}"), &format!("mounted on:  {at}")])?;
        cluster.down()?;
        cluster.up()?;
        // Nor where another file system is mounted over it.
        mount("sheen-test", &*mnt, "tmpfs", MountFlags::empty(), None).context("mount a tmpfs")?;
        let up = cluster.run(&["up", "--dir", &dir, "--mount", &mnt]);
        unmount(&*mnt, UnmountFlags::empty()).context("umount")?;
        refused(&up?, EBUSY, &[&mnt, "does not show the file system"])?;
        cluster.up()
    });
}

/// Mounts the file system at `name` beside its mount point. Answers where that is, and the mount's keeper.
fn another_mount(cluster: &Cluster, name: &str) -> Outcome<(PathBuf, i32)> {
    let point = cluster.mnt().with_file_name(name);
    fs::create_dir_all(&point).context("mkdir")?;
    let run = format!("SHEEN_RUN_DIR={}", cluster.sockets().display());
    let known = process::with_environment(&run);
    cluster.must(&["mount", &cluster.source(), &point.to_string_lossy()])?;
    let new = process::with_environment(&run).into_iter().filter(|pid| !known.contains(pid));
    // The keeper comes before the process that serves the mount.
    Ok((point, new.min().ok_or("no mount process")?))
}

#[test]
fn a_mount_whose_process_died_is_mounted_again_in_its_place() {
    scene("stale-mount", 1, LIMIT, |cluster| {
        let (point, pid) = another_mount(cluster, "again")?;
        let (source, place) = (cluster.source(), point.display().to_string());
        kill_keeper(pid, served_by(pid))?;
        let stale = fs::read_dir(&point).err().and_then(|error| error.raw_os_error());
        ensure(stale == Some(107), || format!("not stale: {stale:?}"))?;
        cluster.must(&["mount", &source, &place])?;
        fs::write(point.join("f"), "healed").context("write")?;
        let seen = fs::read_to_string(cluster.mnt().join("f")).context("read")?;
        ensure(seen == "healed", || seen.clone())?;
        let table = text(Path::new("/proc/self/mountinfo"));
        let count = table.lines().filter(|line| line.contains(&place)).count();
        ensure(count == 1, || format!("mounted {count} times"))?;
        // One that lives is not touched.
        let twice = cluster.run(&["mount", &source, &place])?;
        ensure(!twice.status.success(), || "mounted twice".to_owned())?;
        unmount(&point, UnmountFlags::empty()).context("umount")?;
        // What ended well leaves nothing.
        let left = || {
            let entries = fs::read_dir(cluster.sockets()).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            let own = cluster.mount_pid().unwrap_or_default();
            let own = format!("mount-{own}.sock");
            names.filter(|name| name.starts_with("mount-") && *name != own).collect::<Vec<_>>()
        };
        wait_until("an empty run folder", PATIENCE, || left().is_empty())
            .map_err(|error| format!("{error}: {:?}", left()))
    });
}

#[test]
fn links_to_file_systems_that_are_gone_go_at_the_next_start() {
    scene("dead-links", 1, LIMIT, |cluster| {
        let dead = cluster.sockets().join("nids/127.99.9.9@tcp-988");
        std::os::unix::fs::symlink("/nowhere/run/lnet", &dead).context("symlink")?;
        cluster.down()?;
        cluster.up()?;
        ensure(fs::symlink_metadata(&dead).is_err(), || "it is still there".to_owned())
    });
}

#[test]
fn what_is_waited_for_is_said() {
    scene("waits", 1, LIMIT, |cluster| {
        let (dir, mnt) = places(cluster);
        let point = cluster.mnt().with_file_name("waits");
        fs::create_dir_all(&point).context("mkdir")?;
        let log = cluster.logs().join("waits.err");
        let mut lonely = cluster.command(&["mount", "127.0.99.1@tcp:/lonely"]);
        lonely.arg(&point).stderr(fs::File::create(&log).context("create")?);
        let lonely = Ended::start(&mut lonely)?;
        let said = || text(&log).contains("waiting up to 60 s for the MGS at 127.0.99.1@tcp");
        wait_until("a line", Duration::from_secs(10), said)?;
        drop(lonely);
        // After a crash of all.
        fs::write(cluster.mnt().join("f"), "kept").context("write")?;
        cluster.kill_mount()?;
        cluster.kill_server()?;
        let up = cluster.must(&["up", "--dir", &dir, "--mount", &mnt])?;
        has(&up, &["for sheen-MDT0000", "former clients"])?;
        // What is quick is silent.
        let up = cluster.must(&["up", "--dir", &dir, "--mount", &mnt])?;
        ensure(!up.contains("waits"), || up.clone())
    });
}

#[test]
fn a_file_system_of_another_pid_namespace_runs() {
    scene("pid-namespace", 1, LIMIT, |cluster| {
        let (dir, mnt) = places(cluster);
        let inside = |words: &[&str]| -> Outcome<Finished> {
            let mut inside = Command::new("unshare");
            inside.args(["--pid", "--fork", "--mount-proc"]).arg(program()?).args(words);
            inside.env("SHEEN_RUN_DIR", cluster.sockets());
            process::run(&mut inside, &cluster.logs().join("unshare"), LIMIT)
        };
        let status = inside(&["status", "--dir", &dir])?;
        has(&status.output, &["server:      running in another PID namespace"])?;
        has(&status.output, &["mount:       running in another PID namespace"])?;
        let words = ["another PID namespace", "run this command there"];
        refused(&inside(&["down", "--dir", &dir])?, EBUSY, &words)?;
        refused(&inside(&["up", "--dir", &dir, "--mount", &mnt])?, EBUSY, &words)?;
        refused(&inside(&["fsck", "--dir", &dir])?, 8, &words)?;
        cluster.down()?;
        let status = inside(&["status", "--dir", &dir])?;
        has(&status.output, &["server:      stopped", "mount:       stopped"])?;
        cluster.up()
    });
}

/// Every file below `path` with what must stay.
fn contents(path: &Path, found: &mut BTreeMap<PathBuf, (Vec<u8>, i64, i64)>) -> Outcome {
    for entry in fs::read_dir(path).context(path.display())?.flatten() {
        let (path, kind) = (entry.path(), entry.file_type().context("type")?);
        let stat = fs::symlink_metadata(&path).context(path.display())?;
        let changed = stat.ctime() * 1_000_000_000 + stat.ctime_nsec();
        let bytes = match kind.is_file() {
            true => fs::read(&path).context(path.display())?,
            false => Vec::new(),
        };
        found.insert(path.clone(), (bytes, stat.mtime(), changed));
        if kind.is_dir() {
            contents(&path, found)?;
        }
    }
    Ok(())
}

#[test]
fn fsck_that_only_looks_changes_nothing() {
    scene("look-only", 1, LIMIT, |cluster| {
        for number in 0..50 {
            let file = cluster.mnt().join(format!("f{number}"));
            fs::write(file, vec![7; 10_000]).context("write")?;
        }
        // As a loss of power leaves it: with what opening a store finishes.
        cluster.kill_mount()?;
        cluster.kill_server()?;
        let all = || -> Outcome<_> {
            let mut found = BTreeMap::new();
            for target in ["mgt", "mdt0000", "ost0000"] {
                contents(&cluster.dir().join(target), &mut found)?;
            }
            Ok(found)
        };
        let before = all()?;
        let fsck = cluster.run(&["fsck", "-n", "--dir", &cluster.dir().to_string_lossy()])?;
        let after = all()?;
        let differs = |path: &&PathBuf| before.get(*path) != after.get(*path);
        let changed: Vec<_> = before.keys().chain(after.keys()).filter(differs).collect();
        ensure(changed.is_empty(), || format!("it changed {changed:?}"))?;
        has(&fsck.output, &["inodes", "problems"])?;
        let run: Vec<_> =
            fs::read_dir(cluster.dir().join("run")).context("list")?.flatten().collect();
        let is_copy = |name: &str| name.starts_with("fsck-");
        let left = run.iter().any(|entry| is_copy(&entry.file_name().to_string_lossy()));
        ensure(!left, || format!("{run:?}"))?;
        cluster.up()?;
        cluster.down()?;
        cluster.fsck()
    });
}

#[test]
fn a_file_system_whose_directory_was_removed_can_be_stopped() {
    scene("removed", 1, LIMIT, |cluster| {
        let (dir, mnt) = places(cluster);
        let (server, mount) = (cluster.server_pid()?, cluster.keeper_pid()?);
        fs::remove_dir_all(cluster.dir()).context("rm -rf")?;
        let status = cluster.run(&["status", "--dir", &dir])?;
        let named = [format!("pid {server}"), format!("pid {mount}")];
        refused(&status, ENOENT, &["is gone", &named[0], &named[1], "sheen down --dir"])?;
        let down = cluster.must(&["down", "--dir", &dir])?;
        has(&down, &["is gone"])?;
        ensure(!process::is_alive(server) && !process::is_alive(mount), || "they run".to_owned())?;
        ensure(!is_mounted(&cluster.mnt()), || "mounted".to_owned())?;
        let down = cluster.run(&["down", "--dir", &dir])?;
        refused(&down, ENOENT, &["No such file"])?;
        cluster.must(&["up", "--dir", &dir, "--mount", &mnt, "--osts", "1"]).map(drop)
    });
}

#[test]
fn down_waits_for_a_mount_that_is_being_unmounted() {
    scene("leaving", 1, LIMIT, |cluster| {
        let (point, keeper) = another_mount(cluster, "leaving")?;
        let leaving = served_by(keeper);
        fs::write(point.join("f"), "kept").context("write")?;
        // It is unmounted, and has not got to leave the servers.
        process::stop(leaving)?;
        unmount(&point, UnmountFlags::DETACH).context("umount")?;
        let (dir, mnt) = places(cluster);
        let down = Ended::start(&mut cluster.command(&["down", "--dir", &dir]))?;
        std::thread::sleep(Duration::from_millis(1500));
        process::go_on(leaving)?;
        let mut down = down;
        ensure(down.0.wait().context("wait")?.success(), || "down fails".to_owned())?;
        let lives = [keeper, leaving].into_iter().any(process::is_alive);
        ensure(!lives, || "it was not waited for".to_owned())?;
        cluster.must(&["up", "--dir", &dir, "--mount", &mnt])?;
        let status = cluster.must(&["lctl", "get_param", "-n", "mdt.*.recovery_status"])?;
        ensure(status.contains("INACTIVE"), || format!("it recovers:\n{status}"))
    });
}
