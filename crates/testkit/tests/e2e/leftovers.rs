//! What an `up` that fails, a `kill -9` and a lost directory leave behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use sheen_testkit::cluster::{Cluster, is_mounted, kill_keeper, program, served_by};
use sheen_testkit::scene::{play, scene, without_other_mounts};
use sheen_workloads::process::{self, text};
use sheen_workloads::{Context, Outcome, ensure, root};

use crate::rights::{Home, UNPRIVILEGED, User, set_mode};

const LIMIT: Duration = Duration::from_secs(300);

/// Everything below `path`, sorted.
fn all_below(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut all = Vec::new();
    for entry in entries {
        all.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(all_below(&entry.path()));
        }
    }
    all.sort();
    all
}

/// `sheen up` that is to fail: what it says.
fn fails(cluster: &Cluster, arguments: &[&str]) -> Outcome<String> {
    let up = cluster.run(arguments)?;
    ensure(!up.status.success(), || format!("{arguments:?} succeeds:\n{}", up.output))?;
    Ok(up.output)
}

fn words<'a>(dir: &'a str, mnt: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["up", "--dir", dir, "--mount", mnt, "--osts", "1"][..], more].concat()
}

#[test]
fn an_up_that_fails_leaves_nothing_that_was_not_there() {
    let cluster = Cluster::prepare("failed-up", 1, &[]).unwrap();
    play(&Arc::new(cluster), LIMIT, |cluster| {
        let (dir, mnt) = (cluster.dir().join("deep/fs"), cluster.mnt());
        let missing = mnt.join("missing").display().to_string();
        let file = mnt.join("file");
        fs::write(&file, "").context("write")?;
        let (dir, mnt, file) =
            (dir.display().to_string(), mnt.display().to_string(), file.display().to_string());
        let before = all_below(&cluster.dir());
        for (words, wanted) in [
            (words(&dir, &missing, &[]), "No such file or directory; make the directory first"),
            (words(&dir, &file, &[]), "Not a directory"),
            (words(&dir, &mnt, &["-o", "bogus"]), "'bogus' is not supported"),
            (
                words(&dir, &mnt, &["--listen", "203.0.113.1@tcp"]),
                "is not an address of this machine",
            ),
        ] {
            let output = fails(cluster, &words)?;
            ensure(output.contains(wanted), || format!("{words:?} says {output}"))?;
            let after = all_below(&cluster.dir());
            ensure(after == before, || format!("{words:?} leaves {after:?}"))?;
            let running = process::with_environment(&format!(
                "SHEEN_RUN_DIR={}",
                cluster.sockets().display()
            ));
            ensure(running.is_empty(), || format!("{words:?} leaves processes {running:?}"))?;
            let nids = all_below(&cluster.sockets().join("nids"));
            ensure(nids.is_empty(), || format!("{words:?} leaves {nids:?}"))?;
        }
        // Of a file system that was there what was there stays, as it was.
        cluster.up()?;
        fs::write(cluster.mnt().join("f"), "kept").context("write")?;
        cluster.down()?;
        let recorded = || text(&cluster.dir().join("run/cluster"));
        let (before, dir) = (recorded(), cluster.dir().display().to_string());
        let bad = ["up", "--dir", &dir, "--mount", &mnt, "--osts", "2", "--listen", "-o", "bogus"];
        let output = fails(cluster, &bad)?;
        ensure(output.contains("'bogus' is not supported"), || output.clone())?;
        ensure(recorded() == before, || format!("{} instead of {before}", recorded()))?;
        ensure(cluster.server_pid().is_err(), || "its server runs".to_owned())?;
        // What the server may have registered stays with the registration.
        ensure(cluster.dir().join("ost0001/format").exists(), || "ost0001 is gone".to_owned())?;
        cluster.must(&["up", "--dir", &dir, "--mount", &mnt])?;
        let read = fs::read_to_string(cluster.mnt().join("f")).context("read")?;
        ensure(read == "kept", || read.clone())
    });
}

#[test]
fn a_lost_run_directory_is_found_out_from_the_targets() {
    let options = ["--fsname", "other", "--port", "9988"];
    let cluster = Arc::new(Cluster::start_with("lost-run", 1, &options).unwrap());
    play(&cluster, LIMIT, |cluster| {
        fs::write(cluster.mnt().join("f"), "kept").context("write")?;
        let (dir, mnt) = (cluster.dir().display().to_string(), cluster.mnt().display().to_string());
        let source = cluster.source();
        // While it runs: the processes are found, and said to be out of reach.
        fs::remove_dir_all(cluster.dir().join("run")).context("remove")?;
        let status = cluster.must(&["status", "--dir", &dir])?;
        for wanted in ["file system: other", "server:      running", &format!("mounted on:  {mnt}")]
        {
            ensure(status.contains(wanted), || format!("no '{wanted}' in {status}"))?;
        }
        let up = fails(cluster, &["up", "--dir", &dir, "--mount", &mnt])?;
        ensure(up.contains("run `sheen down` first"), || up.clone())?;
        cluster.down()?;
        // And when nothing runs.
        fs::remove_dir_all(cluster.dir().join("run")).context("remove")?;
        let down = cluster.must(&["down", "--dir", &dir])?;
        ensure(down.contains("run/cluster is gone: file system other"), || down.clone())?;
        fs::remove_dir_all(cluster.dir().join("run")).context("remove")?;
        let up = cluster.must(&["up", "--dir", &dir, "--mount", &mnt])?;
        ensure(up.contains("run/cluster is gone: file system other"), || up.clone())?;
        ensure(cluster.source() == source, || format!("{} for {source}", cluster.source()))?;
        ensure(cluster.port().as_deref() == Some("9988"), || format!("{:?}", cluster.port()))?;
        let read = fs::read_to_string(cluster.mnt().join("f")).context("read")?;
        ensure(read == "kept", || read.clone())
    });
}

#[test]
fn processes_of_an_up_that_was_killed_are_found() {
    scene("killed-up", 1, LIMIT, |cluster| {
        let (server, mount) = (cluster.server_pid()?, cluster.mount_pid()?);
        let run = cluster.dir().join("run");
        // As if `up` had died between their start and the files.
        for name in ["server.pid", "keeper.pid", "mount.pid"] {
            fs::remove_file(run.join(name)).context(name)?;
        }
        let dir = cluster.dir().display().to_string();
        let status = cluster.must(&["status", "--dir", &dir])?;
        for wanted in [format!("running, pid {server}"), format!("running, pid {mount}")] {
            ensure(status.contains(&wanted), || format!("no '{wanted}' in {status}"))?;
        }
        for name in ["server.pid", "keeper.pid", "mount.pid"] {
            fs::remove_file(run.join(name)).context(name)?;
        }
        // Or before it said where the mount is.
        let settings = text(&run.join("cluster"));
        let without: Vec<&str> =
            settings.lines().filter(|line| !line.starts_with("mount=")).collect();
        fs::write(run.join("cluster"), without.join("\n")).context("write")?;
        let pid = text(Path::new(&format!("/proc/{mount}/stat")));
        let started = pid.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19));
        let started = started.ok_or("no start of the mount")?;
        fs::write(run.join("mount.pid"), format!("{mount} {started}\n")).context("write")?;
        cluster.up()?;
        ensure((cluster.server_pid()?, cluster.mount_pid()?) == (server, mount), || {
            "other processes were started".to_owned()
        })?;
        for name in ["server.pid", "keeper.pid", "mount.pid"] {
            fs::remove_file(run.join(name)).context(name)?;
        }
        cluster.down()?;
        ensure(!process::is_alive(server) && !process::is_alive(mount), || "they run".to_owned())?;
        cluster.up()
    });
}

#[test]
fn what_was_killed_leaves_nothing_in_the_run_folder() {
    scene("killed-leave", 1, LIMIT, |cluster| {
        let left = |what: &str| -> Vec<String> {
            let entries = fs::read_dir(cluster.sockets()).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.filter(|name| name.starts_with(what)).collect()
        };
        let background = cluster.mnt().with_file_name("background");
        fs::create_dir_all(&background).context("mkdir")?;
        let (source, place) = (cluster.source(), background.display().to_string());
        let words = ["mount", &source, &place];
        cluster.must(&words)?;
        let before =
            process::with_environment(&format!("SHEEN_RUN_DIR={}", cluster.sockets().display()));
        let known = [cluster.server_pid()?, cluster.keeper_pid()?, cluster.mount_pid()?];
        // Its keeper came before its process.
        let other =
            before.into_iter().filter(|pid| !known.contains(pid)).min().ok_or("no mount")?;
        kill_keeper(other, served_by(other))?;
        rustix::mount::unmount(&background, rustix::mount::UnmountFlags::DETACH)
            .context("umount")?;
        cluster.kill_mount()?;
        cluster.kill_server()?;
        cluster.up()?;
        ensure(
            left("server-").len() == 1
                && left("mount-").iter().filter(|it| it.ends_with(".sock")).count() == 1,
            || format!("{:?}", [left("server-"), left("mount-")]),
        )?;
        // The log of a mount in the background stays until the next one.
        cluster.must(&words)?;
        let folders = || left("mount-").into_iter().filter(|it| !it.ends_with(".sock")).count();
        ensure(folders() == 1, || format!("{:?}", left("mount-")))?;
        ensure(!cluster.run(&words)?.status.success(), || "mounted twice".to_owned())?;
        ensure(folders() == 1, || format!("{:?}", left("mount-")))?;
        ensure(is_mounted(&background), || "not mounted".to_owned())?;
        rustix::mount::unmount(&background, rustix::mount::UnmountFlags::DETACH)
            .context("umount")?;
        cluster.down()?;
        let links = all_below(&cluster.sockets().join("nids"));
        ensure(links.is_empty(), || format!("down leaves {links:?}"))?;
        cluster.up()
    });
}

/// A mount namespace of its own, as `unshare -m`, containers and services with private mounts have it.
#[test]
fn a_mount_of_another_namespace_is_named_and_can_be_ended() {
    let cluster = Arc::new(Cluster::prepare("namespace", 1, &[]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        let (dir, mnt) = (cluster.dir().display().to_string(), cluster.mnt().display().to_string());
        let line = format!(
            "{}; {} up --dir {dir} --mount {mnt} --osts 1 && echo inside > {mnt}/f",
            without_other_mounts(&mnt),
            program()?.display()
        );
        let mut inside = std::process::Command::new("unshare");
        inside.args(["--mount", "--propagation", "private", "sh", "-c", &line]);
        inside.env("SHEEN_RUN_DIR", cluster.sockets());
        process::must(&mut inside, &cluster.logs().join("unshare"), LIMIT)?;
        let status = cluster.must(&["status", "--dir", &dir])?;
        ensure(status.contains("not mounted here"), || status.clone())?;
        let up = fails(cluster, &["up", "--dir", &dir, "--mount", &mnt])?;
        ensure(up.contains("is not mounted here"), || up.clone())?;
        cluster.down()?;
        cluster.up()?;
        let read = fs::read_to_string(cluster.mnt().join("f")).context("read")?;
        ensure(read == "inside\n", || read.clone())?;
        // What is unmounted while a program uses it goes on for that, and `down` ends it by force only.
        let open = fs::File::open(cluster.mnt().join("f")).context("open")?;
        rustix::mount::unmount(cluster.mnt(), rustix::mount::UnmountFlags::DETACH)
            .context("umount")?;
        let up = fails(cluster, &["up", "--dir", &dir, "--mount", &mnt])?;
        ensure(up.contains("is not mounted here"), || up.clone())?;
        let down = fails(cluster, &["down", "--dir", &dir])?;
        ensure(down.contains("end those"), || down.clone())?;
        drop(open);
        cluster.down()
    });
}

/// One of the same name and number, as processes have them in PID namespaces of their own.
#[test]
fn what_a_test_left_that_was_killed_is_ended_and_gone_for_the_next_one() {
    let name = "left-by-a-test";
    let folder = root().join("target/e2e").join(format!("{name}-{}", std::process::id()));
    let (dir, mnt, sockets) = (folder.join("dir"), folder.join("mnt"), folder.join("sockets"));
    [&dir, &mnt].into_iter().for_each(|path| fs::create_dir_all(path).unwrap());
    let mut up = std::process::Command::new(program().unwrap());
    up.args(["up", "--osts", "1", "--dir"]).arg(&dir).arg("--mount").arg(&mnt);
    up.env("SHEEN_RUN_DIR", &sockets);
    process::must(&mut up, &folder.join("up"), LIMIT).unwrap();
    let pids = ["server.pid", "keeper.pid"].map(|name| text(&dir.join("run").join(name)));
    let pids = pids.map(|said| said.split(' ').next().and_then(|pid| pid.parse().ok()).unwrap());
    let cluster = Arc::new(Cluster::prepare(name, 1, &[]).unwrap());
    play(&cluster, LIMIT, move |cluster| {
        ensure(cluster.dir() == dir, || format!("{}", cluster.dir().display()))?;
        ensure(!pids.into_iter().any(process::is_alive), || "processes run".to_owned())?;
        ensure(!is_mounted(&mnt) && all_below(&dir).is_empty(), || "it is there".to_owned())?;
        cluster.up()?;
        // Its addresses are those that the claim is of.
        let network = cluster.addresses().nid(0);
        let network = network.trim_end_matches("0@tcp");
        ensure(cluster.source().starts_with(network), || {
            format!("{} is not at {network}", cluster.source())
        })
    });
}

/// Kills `sheen up`, alone or with its server, once `sign` is there in the directory; what another one makes of that.
fn up_after_one_killed_at(cluster: &Cluster, sign: &str, with_server: bool) -> Outcome {
    let dir = cluster.dir();
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).context("mkdir")?;
    let (at, mnt) = (dir.display().to_string(), cluster.mnt().display().to_string());
    let mut first = cluster.command(&["up", "--dir", &at, "--mount", &mnt]);
    first.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut first = first.spawn().context("up")?;
    let there = process::wait_until(sign, LIMIT, || dir.join(sign).exists());
    first.kill().and_then(|()| first.wait()).context("kill")?;
    if let Ok(server) = cluster.server_pid()
        && with_server
    {
        process::kill(server)?;
    }
    there?;
    cluster.must(&["up", "--dir", &at, "--mount", &mnt])?;
    fs::write(cluster.mnt().join("f"), "kept").context("write")?;
    let osts = all_below(&dir).iter().filter(|path| path.ends_with("format")).count() - 2;
    ensure(osts == 4, || format!("{osts} OSTs"))?;
    cluster.down()
}

/// While it formats, and while its server or its mount begins.
#[test]
fn an_up_after_one_that_was_killed_waits_for_what_that_began_or_begins_anew() {
    let cluster = Arc::new(Cluster::prepare("killed-early", 4, &[]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        for (sign, with_server) in [
            ("mgt/engine", true),
            ("ost0000/engine", true),
            ("run/server.pid", false),
            ("run/server.pid", true),
            ("run/keeper.pid", false),
            ("run/keeper.pid", true),
        ] {
            up_after_one_killed_at(cluster, sign, with_server)
                .map_err(|error| format!("{sign} {with_server}: {error}"))?;
        }
        cluster.up()
    });
}

/// In a user namespace a user is root to the processes in it, without the rights of root in `/run`.
#[test]
fn a_user_is_up_as_root_of_a_namespace() {
    let cluster = Arc::new(Cluster::prepare("namespace-root", 1, &[]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        set_mode(Path::new("/dev/fuse"), 0o666)?;
        let home = Home::of(UNPRIVILEGED)?;
        let user = User { cluster, folder: &home.0, uid: UNPRIVILEGED, groups: &[] };
        let tool = program()?.display().to_string();
        let inside = format!(
            "{tool} up --dir own/fs --mount m --osts 1 && echo mine > m/f && cat m/f && {tool} lfs df m; \
             {tool} down --dir own/fs"
        );
        let own = home.0.join("own/xdg").display().to_string();
        let output = user.can(&format!(
            "mkdir -p -m 700 {own}; env -u SHEEN_RUN_DIR XDG_RUNTIME_DIR={own} \
             unshare --user --map-root-user --mount sh -c '{inside}'"
        ));
        let output = output?;
        let wanted = ["mine", "OST0000_UUID"];
        ensure(wanted.iter().all(|word| output.contains(word)), || output.clone())
    });
}
