//! Which mount is that of `sheen up`, where another of the same machine could be taken for it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use sheen_testkit::cluster::{Cluster, is_mounted, kill_keeper, program};
use sheen_testkit::scene::{play, scene};
use sheen_workloads::process::{text, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

use crate::rights::{Home, UNPRIVILEGED, User, set_mode};

const LIMIT: Duration = Duration::from_secs(300);

/// A mount by `sheen mount`, in the background, as a user makes one by the directory of the file system.
fn mount_beside(cluster: &Cluster) -> Outcome<PathBuf> {
    let path = cluster.mnt().with_file_name("beside");
    fs::create_dir_all(&path).context("mkdir")?;
    cluster.must(&["mount", &at(&cluster.dir()), &at(&path)])?;
    Ok(path)
}

/// A process that another test is about to start may use it for a moment.
fn umount(path: &Path) -> Outcome {
    wait_until("an unused mount", Duration::from_secs(10), || {
        unmount(path, UnmountFlags::empty()).is_ok()
    })
}

fn at(path: &Path) -> String {
    path.display().to_string()
}

/// `MAJOR:MINOR` of what is mounted there.
fn device_at(path: &Path) -> Outcome<String> {
    let (table, path) = (text(Path::new("/proc/self/mountinfo")), at(path));
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(&path));
    let device = line.and_then(|line| line.split(' ').nth(2));
    Ok(device.ok_or_else(|| format!("{path} is not mounted"))?.to_owned())
}

/// Has `run/cluster` say that the mount of `up` had this device, as if the kernel had given the number to the next mount.
fn give_device(cluster: &Cluster, device: &str) -> Outcome {
    let path = cluster.dir().join("run/cluster");
    let said = text(&path);
    let lines = said.lines().map(|line| match line.starts_with("mount.device=") {
        true => format!("mount.device={device}\n"),
        false => format!("{line}\n"),
    });
    fs::write(&path, lines.collect::<String>()).context("write")
}

#[test]
fn a_mount_that_got_the_device_of_that_of_up_is_left_alone() {
    scene("device-again", 1, LIMIT, |cluster| {
        let dir = at(&cluster.dir());
        let beside = mount_beside(cluster)?;
        fs::write(beside.join("f"), "kept").context("write")?;
        fs::File::open(beside.join("f")).and_then(|file| file.sync_all()).context("sync")?;
        let process = Pid::from_raw(cluster.mount_pid()?).ok_or("no process of the mount")?;
        cluster.kill_server()?;
        // Its process lives on, as one does that has bytes to write back to servers that are gone.
        kill_process(process, Signal::STOP).context("stop")?;
        umount(&cluster.mnt())?;
        give_device(cluster, &device_at(&beside)?)?;
        let status = cluster.must(&["status", "--dir", &dir])?;
        ensure(status.contains("mounted on:  nothing"), || status.clone())?;
        let waits = "it runs for its servers, which are stopped";
        ensure(status.contains(waits), || format!("no '{waits}' in {status}"))?;
        let down = cluster.run(&["down", "--dir", &dir])?;
        ensure(is_mounted(&beside), || format!("unmounted: {}", down.output))?;
        let waits = "runs: for its servers, which are stopped";
        ensure(!down.status.success() && down.output.contains(waits), || down.output.clone())?;
        kill_process(process, Signal::CONT).context("continue")?;
        // The servers come back: the process ends, and the mount is made again beside the other.
        cluster.up()?;
        for mounted in [cluster.mnt(), beside.clone()] {
            let read = fs::read_to_string(mounted.join("f")).context("read")?;
            ensure(read == "kept", || read.clone())?;
        }
        umount(&beside)
    });
}

#[test]
fn a_mount_of_sheen_mount_is_not_that_of_up_and_keeps_the_servers() {
    scene("beside-up", 1, LIMIT, |cluster| {
        let (dir, mnt) = (at(&cluster.dir()), at(&cluster.mnt()));
        let beside = mount_beside(cluster)?;
        let (keeper, served) = (cluster.keeper_pid()?, cluster.mount_pid()?);
        kill_keeper(keeper, served)?;
        let recorded = text(&cluster.dir().join("run/keeper.pid"));
        let status = cluster.must(&["status", "--dir", &dir])?;
        ensure(status.contains("mount:       stopped"), || status.clone())?;
        let now = text(&cluster.dir().join("run/keeper.pid"));
        ensure(now == recorded, || format!("run/keeper.pid: {now} instead of {recorded}"))?;
        cluster.up()?;
        fs::write(cluster.mnt().join("f"), "both").context("write")?;
        let read = fs::read_to_string(beside.join("f")).context("read")?;
        ensure(read == "both", || read.clone())?;
        // `down` ends its own, and names the other.
        let down = cluster.must(&["down", "--dir", &dir])?;
        ensure(is_mounted(&beside) && !is_mounted(&cluster.mnt()), || down.clone())?;
        let wanted = format!("still mounted on {}", at(&beside));
        ensure(down.contains(&wanted), || format!("no '{wanted}' in {down}"))?;
        // A mount that fails takes no servers from the other.
        let up = cluster.run(&["up", "--dir", &dir, "--mount", &mnt, "-o", "bogus"])?;
        ensure(!up.status.success() && up.output.contains("bogus"), || up.output.clone())?;
        let server = cluster.server_pid()?;
        let read = fs::read_to_string(beside.join("f")).context("read")?;
        ensure(read == "both", || read.clone())?;
        cluster.up()?;
        ensure(cluster.server_pid()? == server, || "another server was started".to_owned())?;
        umount(&beside)
    });
}

/// Of a place that is no UTF-8 another one was made up, and where it is no process found its mount.
#[test]
fn a_mount_at_a_place_of_any_bytes_is_made_found_and_shown_as_text() {
    scene("odd-place", 1, LIMIT, |cluster| {
        let place = |name: &[u8]| cluster.mnt().with_file_name(OsStr::from_bytes(name));
        let (dir, odd) = (place(b"dir-\xff"), place(b"at-\xff\x1b\n"));
        std::os::unix::fs::symlink(cluster.dir(), &dir).context("link")?;
        fs::create_dir(&odd).context("mkdir")?;
        let sheen = |words: &[&OsStr]| -> Outcome<String> {
            let output = cluster.command(&[]).args(words).output().context("sheen")?;
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8(said).map_err(|error| error.to_string())?;
            ensure(output.status.success(), || said.clone()).map(|()| said)
        };
        sheen(&[OsStr::new("mount"), dir.as_os_str(), odd.as_os_str()])?;
        fs::write(odd.join("f"), "both").context("write")?;
        ensure(text(&cluster.mnt().join("f")) == "both", || "another file system".to_owned())?;
        let names = sheen(&["lfs", "getname"].map(OsStr::new))?;
        ensure(names.contains("/at-\\377\\033\\012\n"), || names.clone())?;
        let name = sheen(&[OsStr::new("lfs"), OsStr::new("getname"), odd.as_os_str()])?;
        ensure(name.starts_with("sheen-ff"), || name.clone())?;
        let status = cluster.must(&["status", "--dir", &at(&cluster.dir())])?;
        ensure(!status.contains("mount:       stopped"), || status.clone())?;
        let down = cluster.must(&["down", "--dir", &at(&cluster.dir())])?;
        ensure(!is_mounted(&cluster.mnt()), || down.clone())?;
        ensure(down.contains("/at-\\377\\033\\012 (pid "), || down.clone())?;
        cluster.up()?;
        ensure(text(&odd.join("f")) == "both", || "it does not go on".to_owned())?;
        umount(&odd)
    });
}

/// `sheen up` made other bytes of those that are no UTF-8, and a line of `run/cluster` of the end of a line.
#[test]
fn a_file_system_at_places_of_any_bytes_is_started_shown_and_stopped() {
    let cluster = Cluster::prepare("odd-up", 1, &[]);
    play(&Arc::new(cluster.unwrap()), LIMIT, |cluster| {
        let place = |name: &[u8]| cluster.mnt().with_file_name(OsStr::from_bytes(name));
        let (dir, mnt) = (place(b"fs-\xff\x1b\nfsname=evil"), place(b"at-\xff\x1b\nport=1"));
        fs::create_dir(&mnt).context("mkdir")?;
        let sheen = |words: &[&OsStr]| -> Outcome<String> {
            let output = cluster.command(&[]).args(words).output().context("sheen")?;
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8(said).map_err(|error| error.to_string())?;
            let is_text = said.chars().all(|it| it == '\n' || !it.is_control());
            ensure(output.status.success() && is_text, || said.clone()).map(|()| said)
        };
        let of =
            |command: &'static str| [OsStr::new(command), OsStr::new("--dir"), dir.as_os_str()];
        let mount = [OsStr::new("--mount"), mnt.as_os_str()];
        let one = ["--osts", "1"].map(OsStr::new);
        let up = [&of("up")[..], &mount, &one].concat();
        sheen(&up)?;
        fs::write(mnt.join("f"), "kept").context("write")?;
        sheen(&up)?;
        let status = sheen(&of("status"))?;
        for wanted in [
            "file system: sheen\n",
            "/at-\\377\\033\\012port=1\n",
            "/fs-\\377\\033\\012fsname=evil/ost0000",
        ] {
            ensure(status.contains(wanted), || format!("no '{wanted}' in {status}"))?;
        }
        sheen(&of("down"))?;
        ensure(!mnt.join("f").exists(), || "still mounted".to_owned())?;
        sheen(&up)?;
        let read = fs::read_to_string(mnt.join("f")).context("read")?;
        ensure(read == "kept", || read.clone())?;
        sheen(&of("down")).map(drop)
    });
}

/// A program in the mount that makes a file, for which it needs servers, once `sign` is there, and then lasts.
fn program_in(cluster: &Cluster, sign: &Path, lasts: &str) -> Outcome<Child> {
    let line = format!("until [ -e {} ]; do sleep 0.1; done; touch made; {lasts}", at(sign));
    let mut program = Command::new("sh");
    program.args(["-c", &line]).current_dir(cluster.mnt()).stdin(Stdio::null());
    program.spawn().context("sh")
}

/// Unmounts what programs use, and the servers die.
fn detach(cluster: &Cluster, sign: &Path) -> Outcome {
    cluster.kill_server()?;
    unmount(cluster.mnt(), UnmountFlags::DETACH).context("umount -l")?;
    fs::write(sign, "").context("write")
}

fn ends(mut program: Child) -> Outcome {
    wait_until("the program's end", LIMIT, || program.try_wait().is_ok_and(|it| it.is_some()))
}

#[test]
fn a_mount_that_was_unmounted_under_programs_gets_its_servers_and_its_programs_are_named() {
    scene("detached", 1, LIMIT, |cluster| {
        let (dir, mnt) = (at(&cluster.dir()), at(&cluster.mnt()));
        let again = ["up", "--dir", &dir, "--mount", &mnt];
        fs::write(cluster.mnt().join("g"), "kept").context("write")?;
        fs::File::open(cluster.mnt().join("g")).and_then(|it| it.sync_all()).context("sync")?;
        // One that ends when it has its answer: then it is mounted again.
        let sign = cluster.logs().join("sign");
        let program = program_in(cluster, &sign, "exit 0")?;
        detach(cluster, &sign)?;
        // A namespace of another test's may have a copy for some seconds.
        wait_until("another mount", LIMIT, || cluster.up().is_ok())?;
        ends(program)?;
        fs::remove_file(cluster.mnt().join("made")).context("made")?;
        // One that stays.
        let sign = cluster.logs().join("sign-again");
        let mut program = program_in(cluster, &sign, "exec sleep 300")?;
        detach(cluster, &sign)?;
        let up = cluster.run(&again);
        let served = cluster.server_pid();
        let named = format!("pid {} (sleep)", program.id());
        program.kill().context("kill")?;
        ends(program)?;
        let up = up?;
        ensure(up.status.code() == Some(16) && up.output.contains(&named), || up.output.clone())?;
        served.map_err(|error| format!("no server: {error}"))?;
        cluster.up()?;
        let read = fs::read_to_string(cluster.mnt().join("g")).context("read")?;
        ensure(read == "kept", || read.clone())
    });
}

/// Those of other users he may not look at.
#[test]
fn a_user_whose_mount_is_kept_is_reported_that_there_may_be_programs_that_he_cannot_see() {
    let cluster = Cluster::prepare("unseen", 1, &[]);
    play(&Arc::new(cluster.unwrap()), LIMIT, |cluster| {
        set_mode(Path::new("/dev/fuse"), 0o666)?;
        let home = Home::of(UNPRIVILEGED)?;
        let user = User { cluster, folder: &home.0, uid: UNPRIVILEGED, groups: &[] };
        let tool = format!("SHEEN_RUN_DIR={} {}", at(&home.0.join("run")), at(&program()?));
        user.can(&format!("{tool} up --dir own/fs --mount m --osts 1 && echo mine > m/f"))?;
        // The shell itself uses it, and `status` inherits that.
        let kept = format!("exec 9< m/f; fusermount3 -uz m && {tool} status --dir own/fs");
        let status = user.tries(&kept);
        user.can(&format!("{tool} down --dir own/fs"))?;
        let (done, status) = status?;
        let wanted =
            ["for programs that used it when it was unmounted: pid", "which only root can see"];
        ensure(done && wanted.iter().all(|word| status.contains(word)), || status.clone())
    });
}
