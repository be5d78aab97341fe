//! Who may reach a server: the attacks of a user of the machine who has a shell and the program, and
//! whom they stop at.
//!
//! In a user namespace every user is root to the processes in it, and mounts with FUSE. A client there says
//! of each request that root makes it, and servers believe a client that they have let in.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use sheen_testkit::cluster::{Cluster, program};
use sheen_testkit::scene::{play, scene};
use sheen_workloads::process::{self, text, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

use crate::rights::{Home, UNPRIVILEGED, User, set_mode};

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(60);
const MALLORY: u32 = 12_003;
const SECRET: &str = "for root alone";

/// Mounts what lies at `source` as root of a user namespace, and reads what only root may.
fn attack(cluster: &Cluster, source: &str) -> Outcome<(bool, String)> {
    // What udev does wherever it runs.
    set_mode(Path::new("/dev/fuse"), 0o666)?;
    let home = Home::of(MALLORY)?;
    let user = User { cluster, folder: &home.0, uid: MALLORY, groups: &[] };
    let port = cluster.port().map_or(String::new(), |port| format!("-o port={port}"));
    let (sheen, run) = (program()?, home.0.join("run"));
    // In the foreground, so that a client that no server answers can be ended before it gives up by itself.
    let steal = format!(
        "SHEEN_RUN_DIR={} {} mount --foreground {port} {source} m & pid=$!; \
         for second in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do \
         cat m/private/secret 2>/dev/null && break; kill -0 $pid || break; sleep 1; done; \
         umount -l m; kill $pid; wait $pid",
        run.display(),
        sheen.display()
    );
    let stolen = user.tries(&format!("unshare --user --map-root-user --mount sh -c '{steal}'"))?;
    wait_until("the end of the thief", PATIENCE, || {
        process::with_environment(&format!("SHEEN_RUN_DIR={}", run.display())).is_empty()
    })?;
    Ok((stolen.1.contains(SECRET), stolen.1))
}

fn plant_secret(mnt: &Path) -> Outcome {
    let private = mnt.join("private");
    fs::create_dir_all(&private).context("mkdir")?;
    set_mode(&private, 0o700)?;
    fs::write(private.join("secret"), SECRET).context("write")
}

#[test]
fn a_user_reaches_no_server_of_a_file_system_of_roots() {
    // Not Lustre's port, at which only root may listen, as our client does.
    let cluster = Arc::new(Cluster::start_with("attack-up", 1, &["--port", "9988"]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        plant_secret(&cluster.mnt())?;
        let (stolen, output) = attack(cluster, &cluster.source())?;
        ensure(!stolen, || format!("stolen:\n{output}"))?;
        let ports = process::listening_ports(cluster.server_pid()?);
        ensure(ports.is_empty(), || format!("the server listens on {ports:?}"))?;
        let ports = process::listening_ports(cluster.mount_pid()?);
        ensure(ports.is_empty(), || format!("the mount listens on {ports:?}"))?;
        // Nor by the directory.
        let (stolen, output) = attack(cluster, &cluster.dir().display().to_string())?;
        ensure(!stolen, || format!("stolen through the directory:\n{output}"))
    });
}

#[test]
fn a_server_that_listens_takes_no_user_unless_allowed() {
    let cluster = Cluster::start_with("attack-tcp", 1, &["--port", "9988", "--listen"]);
    let cluster = Arc::new(cluster.unwrap());
    play(&cluster, LIMIT, |cluster| {
        plant_secret(&cluster.mnt())?;
        let (stolen, output) = attack(cluster, &cluster.source())?;
        ensure(!stolen, || format!("stolen:\n{output}"))?;
        let words = ["accept=secure", "--accept all", "mount as root"];
        ensure(words.iter().all(|word| output.contains(word)), || {
            format!("no reason given: {output}")
        })?;
        let log = text(&cluster.dir().join("run/server.log"));
        let nid = cluster.source();
        let block = nid.rsplit_once(".1@").map(|(block, _)| block.to_owned()).unwrap_or_default();
        let refused = format!("refused a connection from {block}.");
        ensure(log.lines().any(|line| line.contains(&refused) && line.contains(" port ")), || {
            format!("no line with NID and port:\n{log}")
        })?;
        // Root is let in.
        let other = cluster.mount_by_tcp()?;
        let read = fs::read_to_string(other.join("private/secret")).context("read")?;
        ensure(read == SECRET, || read.clone())?;
        let shown = cluster.must(&["lctl", "get_param", "accept"])?;
        ensure(shown.trim() == "accept=secure", || shown.clone())
    });
}

/// Only root may listen at Lustre's port, so a user's client does not: servers reach it over the connections
/// that it has opened itself.
#[test]
fn a_user_mounts_what_takes_all_without_listening() {
    let cluster = Cluster::start_with("user-mounts", 1, &["--listen", "--accept", "all"]);
    play(&Arc::new(cluster.unwrap()), LIMIT, |cluster| {
        set_mode(Path::new("/dev/fuse"), 0o666)?;
        set_mode(&cluster.mnt(), 0o777)?;
        let home = Home::of(UNPRIVILEGED)?;
        fs::create_dir(home.0.join("n")).context("mkdir")?;
        chown(home.0.join("n"), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).context("chown")?;
        let user = User { cluster, folder: &home.0, uid: UNPRIVILEGED, groups: &[] };
        let run = home.0.join("run");
        let tool = format!("SHEEN_RUN_DIR={} {}", run.display(), program()?.display());
        let tried = || {
            // Two, each with an address.
            user.can(&format!("{tool} mount {} m", cluster.source()))?;
            user.can(&format!("{tool} mount {} n", cluster.source()))?;
            user.can("echo mine > m/f && cat n/f")?;
            // The servers call locks back, from one and from the other.
            for round in 0..5 {
                fs::write(cluster.mnt().join("f"), format!("{round} of root's"))
                    .context("write")?;
                let read = user.can("cat m/f")?;
                ensure(read == format!("{round} of root's"), || read.clone())?;
                user.can(&format!("echo {round} of the user > m/f"))?;
                let read = fs::read_to_string(cluster.mnt().join("f")).context("read")?;
                ensure(read.trim() == format!("{round} of the user"), || read.clone())?;
            }
            cluster.kill_server()?;
            cluster.up()?;
            let read = user.can("cat m/f && echo again > n/f && cat m/f")?;
            ensure(read == "4 of the user\nagain", || read.clone())?;
            for pid in process::with_environment(&format!("SHEEN_RUN_DIR={}", run.display())) {
                let ports = process::listening_ports(pid);
                ensure(ports.is_empty(), || format!("a mount listens on {ports:?}"))?;
            }
            Ok(())
        };
        let outcome = tried();
        // Both, whatever has become of them.
        user.tries("fusermount3 -u m; fusermount3 -u n")?;
        wait_until("the end of the user's mounts", PATIENCE, || {
            process::with_environment(&format!("SHEEN_RUN_DIR={}", run.display())).is_empty()
        })?;
        outcome
    });
}

/// A server process of a test's own.
struct Serving(Child);

impl Serving {
    /// `sheen server` on the targets of a file system that is down, by TCP alone.
    fn start(cluster: &Cluster, options: &[&str]) -> Outcome<Self> {
        let nid = cluster.source();
        let nid = nid.split(":/").next().unwrap_or_default();
        let port = cluster.port().ok_or("it was never up")?;
        let mut words = vec!["server", "--nid", nid, "--port", &port];
        words.extend(options);
        let targets = ["mgt", "mdt0000", "ost0000"].map(|name| cluster.dir().join(name));
        let mut command = cluster.command(&words);
        command.args(&targets).env("SHEEN_RUN_DIR", cluster.elsewhere());
        let log = cluster.logs().join("serving.log");
        let file = fs::File::create(&log).context(log.display())?;
        command.stdin(Stdio::null()).stdout(file.try_clone().context("log")?).stderr(file);
        let serving = Self(command.spawn().context("sheen server")?);
        wait_until("the server", PATIENCE, || text(&log).contains("ready"))
            .map_err(|error| format!("{error}\n{}", text(&log)))?;
        Ok(serving)
    }

    fn end(mut self) -> Outcome {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).context("kill")?;
        self.0.wait().context("wait").map(drop)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn servers_of_root_take_privileged_peers_only_by_default() {
    let cluster = Arc::new(Cluster::start_with("attack-server", 1, &["--port", "9988"]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        plant_secret(&cluster.mnt())?;
        cluster.down()?;
        let secure = Serving::start(cluster, &[])?;
        let (stolen, output) = attack(cluster, &cluster.source())?;
        ensure(!stolen && output.contains("accept=secure"), || format!("stolen:\n{output}"))?;
        secure.end()?;
        // What docs/SECURITY.md says of it under "What is not defended".
        let open = Serving::start(cluster, &["--accept", "all"])?;
        let (stolen, output) = attack(cluster, &cluster.source())?;
        ensure(stolen, || format!("accept=all lets every user in:\n{output}"))?;
        open.end()
    });
}

#[test]
fn planted_set_id_files_and_devices_give_no_user_rights() {
    scene("planted", 1, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        fs::copy("/usr/bin/id", mnt.join("id")).context("copy")?;
        set_mode(&mnt.join("id"), 0o6755)?;
        let mut node = Command::new("mknod");
        node.arg(mnt.join("null")).args(["-m", "666", "c", "1", "3"]);
        let made = node.status().context("mknod")?;
        ensure(made.success(), || "mknod".to_owned())?;
        let user = User { cluster, folder: &mnt, uid: MALLORY, groups: &[] };
        let uid = user.can("./id -u")?;
        ensure(uid == MALLORY.to_string(), || format!("the planted file runs as uid {uid}"))?;
        user.cannot("cat null")?;
        // Where root trusts the file system they work.
        let trusting = cluster.mount_with(&["suid,dev"])?;
        let user = User { folder: &trusting, ..user };
        let uid = user.can("./id -u")?;
        ensure(uid == "0", || format!("with -o suid it runs as uid {uid}"))?;
        user.can("cat null").map(drop)
    });
}

#[test]
fn a_users_file_system_is_his_and_roots_alone() {
    let cluster = Cluster::prepare("users-own", 1, &[]);
    play(&Arc::new(cluster.unwrap()), LIMIT, |cluster| {
        set_mode(Path::new("/dev/fuse"), 0o666)?;
        let home = Home::of(UNPRIVILEGED)?;
        let user = User { cluster, folder: &home.0, uid: UNPRIVILEGED, groups: &[] };
        let sheen = program()?;
        let run = format!("SHEEN_RUN_DIR={}", home.0.join("run").display());
        let tool = format!("{run} {}", sheen.display());
        user.can(&format!("{tool} up --dir own/fs --mount m --osts 1 && echo mine > m/f"))?;
        let fs_dir: PathBuf = home.0.join("own/fs");
        let ended = || {
            set_mode(&home.0, 0o755)?;
            // Another user cannot enter, whatever he knows of it.
            for folder in [home.0.join("own"), fs_dir.clone()] {
                set_mode(&folder, 0o755)?;
            }
            let mallory = User { uid: MALLORY, ..user };
            let nid = text(&fs_dir.join("run/mgs.nid"));
            ensure(nid.contains("@tcp"), || "no NID".to_owned())?;
            let stranger = mallory.tries(&format!("{tool} mount own/fs /mnt"))?;
            ensure(!stranger.0, || format!("another user mounts it: {}", stranger.1))?;
            mallory.cannot("ls own/fs/run")?;
            // Root can, by the directory.
            let mnt = cluster.mnt();
            cluster.must(&["mount", &fs_dir.to_string_lossy(), &mnt.to_string_lossy()])?;
            let read = fs::read_to_string(mnt.join("f")).context("read");
            rustix::mount::unmount(&mnt, rustix::mount::UnmountFlags::empty()).context("umount")?;
            ensure(read.as_deref() == Ok("mine\n"), || format!("root reads {read:?}"))?;
            // But does not do what the user's files say.
            let down = cluster.run(&["down", "--dir", &fs_dir.to_string_lossy()])?;
            let words = format!("belongs to uid {UNPRIVILEGED}");
            ensure(!down.status.success() && down.output.contains(&words), || down.output.clone())
        };
        let outcome = ended();
        user.can(&format!("{tool} down --dir own/fs"))?;
        chown(&home.0, None, None).context("home")?;
        outcome
    });
}
