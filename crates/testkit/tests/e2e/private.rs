//! What is closed to other users: everything that a file system keeps, whatever the umask; and what
//! other users planted first is not believed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use sheen_testkit::cluster::{Cluster, program};
use sheen_testkit::scene::{play, scene};
use sheen_workloads::process::{self, text};
use sheen_workloads::{Context, Outcome, ensure};

use crate::rights::{User, mode, set_mode};

const LIMIT: Duration = Duration::from_secs(300);
const MALLORY: u32 = 12_003;

/// What below `path` other users may do something with; links have no modes of their own.
fn open_to_other_users(path: &Path) -> Outcome<Vec<PathBuf>> {
    let found = fs::symlink_metadata(path).context(path.display())?;
    let mut open = Vec::new();
    if found.is_symlink() {
        return Ok(open);
    }
    if found.permissions().mode() & 0o077 != 0 {
        open.push(path.to_owned());
    }
    if found.is_dir() {
        for entry in fs::read_dir(path).context(path.display())?.flatten() {
            open.extend(open_to_other_users(&entry.path())?);
        }
    }
    Ok(open)
}

fn open_everything(path: &Path) -> Outcome {
    let done = Command::new("chmod").args(["-R", "a+rwX"]).arg(path).status().context("chmod")?;
    ensure(done.success(), || "chmod".to_owned())
}

/// `sheen ARGUMENTS` where the umask takes nothing away.
fn with_no_umask(cluster: &Cluster, arguments: &str) -> Outcome<String> {
    let line = format!("umask 0; exec {} {arguments}", program()?.display());
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("SHEEN_RUN_DIR", cluster.sockets());
    process::must(&mut command, &cluster.logs().join("umask"), LIMIT)
}

#[test]
fn all_that_a_file_system_keeps_is_closed_and_closed_again() {
    // Longer than the path of a socket may be.
    let name = "private-".repeat(14);
    let cluster = Arc::new(Cluster::prepare(&name, 1, &[]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        let (dir, mnt) = (cluster.dir(), cluster.mnt());
        ensure(dir.as_os_str().len() > 120, || dir.display().to_string())?;
        let up = format!("up --dir {} --mount {} --osts 1", dir.display(), mnt.display());
        with_no_umask(cluster, &up)?;
        fs::write(mnt.join("f"), vec![7; 100_000]).context("write")?;
        fs::File::open(mnt.join("f")).and_then(|file| file.sync_all()).context("sync")?;
        for place in ["run", "mgt", "mdt0000", "ost0000"] {
            let open = open_to_other_users(&dir.join(place))?;
            ensure(open.is_empty(), || format!("open to other users: {open:?}"))?;
        }
        let open = open_to_other_users(cluster.sockets())?;
        ensure(open.is_empty(), || format!("open to other users: {open:?}"))?;
        let other = User { cluster, folder: Path::new("/"), uid: MALLORY, groups: &[] };
        for path in
            ["run/cluster", "run/server.log", "ost0000/CONFIG", "mdt0000/lock", "mgt/format"]
        {
            other.cannot(&format!("cat {}", dir.join(path).display()))?;
        }
        closed_again(cluster, &up)
    });
}

#[test]
fn a_directory_that_another_user_may_not_read_is_said_to_be_so() {
    scene("private-read", 1, LIMIT, |cluster| {
        set_mode(&cluster.dir(), 0o700)?;
        let (program, dir) = (program()?.display().to_string(), cluster.dir());
        let other = User { cluster, folder: Path::new("/"), uid: MALLORY, groups: &[] };
        for command in ["status --dir", "down --dir", "mount"] {
            let more = if command == "mount" { "/mnt" } else { "" };
            let dir = dir.display();
            let line = format!("SHEEN_RUN_DIR=$(mktemp -d) {program} {command} {dir} {more}");
            let (done, said) = other.tries(&line)?;
            let expected = format!("{dir}: Permission denied");
            ensure(!done && said.contains(&expected), || format!("{command}: {said}"))?;
        }
        Ok(())
    });
}

/// What was opened while nothing ran is closed at the next start, and said.
fn closed_again(cluster: &Cluster, up: &str) -> Outcome {
    let dir = cluster.dir();
    cluster.down()?;
    open_everything(&dir)?;
    let said = with_no_umask(cluster, up)?;
    for place in ["dir was writable", "run was open to other users"] {
        ensure(said.contains(place), || format!("no line `{place}`: {said}"))?;
    }
    let log = text(&dir.join("run/server.log"));
    for place in ["mgt", "mdt0000", "ost0000"] {
        let line = format!("{} was open to other users (mode 777)", dir.join(place).display());
        ensure(log.contains(&line), || format!("no line of {place}: {log}"))?;
        let found = mode(&dir.join(place))?;
        ensure(found == 0o700, || format!("{place} has mode {found:o}"))?;
    }
    let modes = ["run", "run/lnet", "run/server.log", "ost0000/objects", "mdt0000/engine"];
    for place in modes {
        let found = mode(&dir.join(place))?;
        ensure(found & 0o077 == 0, || format!("{place} has mode {found:o}"))?;
    }
    ensure(fs::read(cluster.mnt().join("f")).context("read")? == vec![7; 100_000], String::new)
}

#[test]
fn targets_of_mkfs_are_closed_and_those_of_another_user_refused() {
    let cluster = Arc::new(Cluster::prepare("mkfs-modes", 1, &[]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        let target = cluster.dir().join("t");
        fs::create_dir(&target).context("mkdir")?;
        set_mode(&target, 0o777)?;
        with_no_umask(cluster, &format!("mkfs.lustre --mgs {}", target.display()))?;
        let open = open_to_other_users(&target)?;
        ensure(open.is_empty(), || format!("open to other users: {open:?}"))?;
        chown(&target, Some(MALLORY), None).context("chown")?;
        let words = ["server", "--nid", "127.0.3.1@tcp", &target.to_string_lossy()];
        let refused = cluster.run(&words)?;
        let wanted = format!("belongs to uid {MALLORY}");
        ensure(refused.status.code() == Some(1) && refused.output.contains(&wanted), || {
            format!("{}: {}", refused.status, refused.output)
        })
    });
}

/// A process that must live. Dropped, it is ended.
struct Bystander(Child);

impl Bystander {
    fn start() -> Outcome<Self> {
        Command::new("sleep").arg("600").spawn().context("sleep").map(Self)
    }

    /// The line that a pid file would have of it.
    fn line(&self) -> Outcome<String> {
        let pid = self.0.id();
        let stat = text(&PathBuf::from(format!("/proc/{pid}/stat")));
        let started = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19));
        Ok(format!("{pid} {}\n", started.ok_or("no start time")?))
    }

    fn must_live(&mut self) -> Outcome {
        let ended = self.0.try_wait().context("wait")?;
        ensure(ended.is_none(), || format!("a process of another program was ended: {ended:?}"))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // It lives, or has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a tmpfs is mounted there.
fn has_tmpfs(path: &Path) -> bool {
    let line = format!(" {} tmpfs ", path.display());
    text(Path::new("/proc/self/mounts")).lines().any(|it| it.contains(&line))
}

#[test]
fn down_unmounts_its_own_mount_wherever_it_is_and_no_other() {
    scene("own-mount", 1, LIMIT, |cluster| {
        cluster.down()?;
        let (above, aside) = (cluster.logs().join("above"), cluster.logs().join("aside"));
        let (place, decoy) = (above.join("mnt"), cluster.logs().join("decoy"));
        let trap = decoy.join("mnt");
        [&place, &trap].into_iter().try_for_each(fs::create_dir_all).context("mkdir")?;
        let at = |path: &Path| path.to_string_lossy().into_owned();
        let (dir, mnt) = (at(&cluster.dir()), at(&place));
        let up = ["up", "--dir", &dir, "--mount", &mnt];
        let down = ["down", "--dir", &dir];
        let tmpfs = |path: &Path| {
            mount("sheen-test", path, "tmpfs", MountFlags::empty(), None).context("mount a tmpfs")
        };
        let undo = |path: &Path| unmount(path, UnmountFlags::empty()).context("umount");

        cluster.must(&up)?;
        tmpfs(&place)?;
        let refused = cluster.run(&down)?;
        let stays = has_tmpfs(&place);
        undo(&place)?;
        ensure(!refused.status.success() && stays, || refused.output.clone())?;
        ensure(refused.output.contains("another file system is mounted over the mount"), || {
            refused.output.clone()
        })?;
        undo(&place)?;
        tmpfs(&place)?;
        let downed = cluster.run(&down)?;
        let stays = has_tmpfs(&place);
        undo(&place)?;
        ensure(downed.status.success() && stays, || downed.output.clone())?;

        // A user who may rename what is above has the path lead to another mount.
        cluster.must(&up)?;
        fs::rename(&above, &aside).context("rename")?;
        tmpfs(&trap)?;
        symlink(&decoy, &above).context("symlink")?;
        let downed = cluster.run(&down)?;
        let (stays, is_left) =
            (has_tmpfs(&trap), sheen_testkit::cluster::is_mounted(&aside.join("mnt")));
        undo(&trap)?;
        ensure(downed.status.success() && stays && !is_left, || {
            format!("{stays} {is_left} {}", downed.output)
        })?;
        cluster.up()
    });
}

#[test]
fn what_another_user_wrote_makes_root_kill_and_unmount_nothing() {
    scene("planted-pids", 1, LIMIT, |cluster| {
        let mut bystander = Bystander::start()?;
        let (trap, mounted) = (cluster.logs().join("trap"), cluster.mnt());
        fs::create_dir_all(trap.join("run")).context("mkdir")?;
        let cluster_text = format!("fsname=sheen\nmount={}\n", mounted.display());
        fs::write(trap.join("run/cluster"), cluster_text).context("write")?;
        fs::write(trap.join("run/server.pid"), bystander.line()?).context("write")?;
        fs::write(trap.join("run/keeper.pid"), bystander.line()?).context("write")?;
        fs::write(trap.join("run/mount.pid"), bystander.line()?).context("write")?;
        for path in ["run/cluster", "run/server.pid", "run/keeper.pid", "run/mount.pid", "run", ""]
        {
            chown(trap.join(path), Some(MALLORY), Some(MALLORY)).context("chown")?;
        }
        let down = cluster.run(&["down", "--dir", &trap.to_string_lossy()])?;
        bystander.must_live()?;
        let wanted = format!("belongs to uid {MALLORY}");
        ensure(!down.status.success() && down.output.contains(&wanted), || {
            format!("{}: {}", down.status, down.output)
        })?;
        ensure(sheen_testkit::cluster::is_mounted(&mounted), || "unmounted".to_owned())?;
        // Nor where the targets are to say what the run directory said.
        let bare = cluster.logs().join("bare/mdt0000");
        fs::create_dir_all(&bare).context("mkdir")?;
        for name in ["format", "CONFIG"] {
            fs::copy(cluster.dir().join("mdt0000").join(name), bare.join(name)).context(name)?;
        }
        chown(&bare, Some(MALLORY), Some(MALLORY)).context("chown")?;
        let place = cluster.logs().join("bare");
        let down = cluster.run(&["down", "--dir", &place.to_string_lossy()])?;
        ensure(!down.status.success() && down.output.contains(&wanted), || {
            format!("{}: {}", down.status, down.output)
        })?;
        ensure(!place.join("run").exists(), || "made a run directory there".to_owned())?;
        // Nor does a file of ours that names a process of another program.
        let pid_file = cluster.dir().join("run/server.pid");
        let right = text(&pid_file);
        fs::write(&pid_file, bystander.line()?).context("write")?;
        let status = cluster.must(&["status", "--dir", &cluster.dir().to_string_lossy()])?;
        // It is found by what it was started with.
        let server = right.split(' ').next().unwrap_or_default();
        ensure(status.contains(&format!("server:      running, pid {server}\n")), || {
            status.clone()
        })?;
        fs::write(&pid_file, right).context("write")?;
        cluster.down()?;
        bystander.must_live()?;
        cluster.up()
    });
}

#[test]
fn a_run_folder_that_another_user_made_first_is_refused() {
    let cluster = Arc::new(Cluster::prepare("planted-run", 1, &[]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        let planted = cluster.logs().join("run");
        fs::create_dir_all(&planted).context("mkdir")?;
        chown(&planted, Some(MALLORY), Some(MALLORY)).context("chown")?;
        let (dir, mnt) = (cluster.dir(), cluster.mnt());
        let (dir, mnt) = (dir.to_string_lossy(), mnt.to_string_lossy());
        let mut up = cluster.command(&["up", "--dir", &dir, "--mount", &mnt, "--osts", "1"]);
        up.env("SHEEN_RUN_DIR", &planted);
        let refused = process::run(&mut up, &cluster.logs().join("up"), LIMIT)?;
        let wanted = format!("{}: it belongs to uid {MALLORY}", planted.display());
        ensure(refused.status.code() == Some(1) && refused.output.contains(&wanted), || {
            format!("{}: {}", refused.status, refused.output)
        })?;
        let made: Vec<_> = fs::read_dir(&planted).context("list")?.collect();
        ensure(made.is_empty(), || format!("made there: {made:?}"))?;
        cluster.up()
    });
}

#[test]
fn down_of_a_live_copy_leaves_the_original_alone() {
    scene("live-copy", 1, LIMIT, |cluster| {
        let (server, mount) = (cluster.server_pid()?, cluster.mount_pid()?);
        let copy = cluster.logs().join("copy");
        let copied = Command::new("cp").arg("-a").arg(cluster.dir()).arg(&copy).status();
        ensure(copied.context("cp")?.success(), || "cp".to_owned())?;
        let down = cluster.run(&["down", "--dir", &copy.to_string_lossy()])?;
        fs::write(cluster.mnt().join("f"), "there").context("write")?;
        let now = (cluster.server_pid()?, cluster.mount_pid()?);
        let lives = |pid: i32| Path::new(&format!("/proc/{pid}")).exists();
        ensure(now == (server, mount) && lives(server) && lives(mount), || down.output.clone())?;
        ensure(sheen_testkit::cluster::is_mounted(&cluster.mnt()), || "unmounted".to_owned())
    });
}
