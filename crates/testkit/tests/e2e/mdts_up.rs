//! `sheen up --mdts N`: file systems of several MDTs in one server process are as ordinary as those of several OSTs.
#![allow(clippy::disallowed_methods, reason = "calls wait for a server in real time")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sheen_store_disk::Config;
use sheen_testkit::cluster::{Cluster, program};
use sheen_testkit::scene::{play, same_after_restart};
use sheen_workloads::process::{Finished, text, wait_until};
use sheen_workloads::{Context, Outcome, ensure, plant, tree};

use crate::further_mdts::{is, is_as_answered, move_to_and_fro, names};
use crate::rights::{Home, UNPRIVILEGED, User, set_mode};

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(120);
const USAGE: i32 = 2;
const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const EXDEV: i32 = 18;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

fn scene_of(name: &str, options: &[&str], body: impl FnOnce(&Cluster) -> Outcome + Send + 'static) {
    let cluster = Cluster::start_with(name, 1, options).unwrap_or_else(|fault| panic!("{fault}"));
    play(&Arc::new(cluster), LIMIT, body);
}

/// `sheen up` of the cluster's directory with these options alone.
fn up(cluster: &Cluster, more: &[&str]) -> Outcome<Finished> {
    let (dir, mnt) = (cluster.dir(), cluster.mnt());
    let (dir, mnt) = (dir.to_string_lossy(), mnt.to_string_lossy());
    cluster.run(&[&["up", "--dir", &dir, "--mount", &mnt], more].concat())
}

/// With this code and a line that has all of the words.
fn refused(tried: &Finished, code: i32, words: &[&str]) -> Outcome {
    let has_line = tried.output.lines().any(|line| words.iter().all(|word| line.contains(word)));
    ensure(tried.status.code() == Some(code) && has_line, || {
        format!("{} instead of {code} and {words:?}: {}", tried.status, tried.output)
    })
}

/// A directory of an MDT, by `lfs mkdir`.
fn make_on(cluster: &Cluster, mdt: &str, path: &Path) -> Outcome {
    cluster.must(&["lfs", "mkdir", "-i", mdt, &path.to_string_lossy()]).map(drop)
}

fn must_hold(text: &str, words: &[&str]) -> Outcome {
    let missing = words.iter().find(|word| !text.contains(**word));
    ensure(missing.is_none(), || format!("{missing:?} is missing in:\n{text}"))
}

/// All that shows targets shows each MDT.
fn are_shown(cluster: &Cluster) -> Outcome {
    let (dir, mnt) = (cluster.dir(), cluster.mnt());
    let (dir, mnt) = (dir.to_string_lossy(), mnt.to_string_lossy());
    let names = ["sheen-MDT0000", "sheen-MDT0001", "sheen-MDT0002"];
    for words in [&["lfs", "df", &mnt][..], &["lfs", "df", "-i", &mnt], &["lfs", "mdts", &mnt]] {
        must_hold(&cluster.must(words)?, &names)?;
    }
    must_hold(&cluster.must(&["top", "-b", "1"])?, &names)?;
    must_hold(&cluster.must(&["lfs", "check", "mdts", &mnt])?, &names)?;
    let status = cluster.must(&["status", "--dir", &dir])?;
    must_hold(&status, &names)?;
    must_hold(&status, &["clients:     1\n"])?;
    ensure(!status.contains("connection") && !status.contains("WAITING"), || status.clone())?;
    let ends = ["sheen-MDT0000-osp-MDT0001", "sheen-MDT0002-osp-MDT0001", "OST0000-osc-MDT0002"];
    let devices = cluster.must(&["lctl", "dl"])?;
    must_hold(&devices, &names.map(|name| format!("mdt {name} ")).each_ref().map(|it| &**it))?;
    must_hold(&devices, &ends)?;
    is(&devices.matches(" mds MDS ").count(), &1)?;
    for end in ends {
        let state = cluster.must(&["lctl", "get_param", "-n", &format!("osp.*{end}.state")])?;
        must_hold(&state, &["current_state: FULL"])?;
        let import = cluster.must(&["lctl", "get_param", "-n", &format!("osp.*{end}.import")])?;
        must_hold(&import, &[end, "state: FULL"])?;
    }
    Ok(())
}

/// The tools say which MDT has a file.
fn are_distinguished(cluster: &Cluster) -> Outcome {
    let far = cluster.mnt().join("far");
    make_on(cluster, "2", &far)?;
    fs::create_dir(far.join("below")).context("mkdir")?;
    fs::write(far.join("below/file"), "far").context("write")?;
    fs::write(cluster.mnt().join("near"), "near").context("write")?;
    let asked = |words: &[&str], path: &Path| {
        let said = cluster.must(&[&["lfs"], words, &[&path.to_string_lossy()]].concat())?;
        Ok::<_, String>(said.trim().to_owned())
    };
    for (path, mdt) in [(cluster.mnt(), "0"), (far.clone(), "2"), (far.join("below"), "2")] {
        is(&asked(&["getdirstripe", "-i"], &path)?, &mdt.to_owned())?;
        is(&asked(&["getdirstripe", "-c"], &path)?, &"0".to_owned())?;
    }
    is(&asked(&["getdirstripe", "-i", "-O", "sheen-MDT0001"], &far)?, &String::new())?;
    is(&asked(&["getstripe", "-m"], &far.join("below/file"))?, &"2".to_owned())?;
    is(&asked(&["getstripe", "-m"], &cluster.mnt().join("near"))?, &"0".to_owned())?;
    let mnt = cluster.mnt();
    let found = cluster.must(&["lfs", "find", &mnt.to_string_lossy(), "--mdt-index", "2"])?;
    let mut found: Vec<_> = found.lines().map(str::to_owned).collect();
    found.sort();
    let wanted =
        ["far", "far/below", "far/below/file"].map(|it| mnt.join(it).display().to_string());
    is(&found, &wanted.to_vec())?;
    let fid = asked(&["path2fid"], &far.join("below/file"))?;
    let path = cluster.must(&["lfs", "fid2path", &mnt.to_string_lossy(), &fid])?;
    is(&path.trim().to_owned(), &far.join("below/file").display().to_string())
}

/// What cannot be made or moved is refused by name, and makes nothing.
fn what_cannot_be_is_refused(cluster: &Cluster) -> Outcome {
    let (far, striped) = (cluster.mnt().join("far"), cluster.mnt().join("striped"));
    let (far, striped) = (far.to_string_lossy(), striped.to_string_lossy());
    for (words, code, why) in [
        (&["mkdir", "-i", "3", &striped][..], ENODEV, "No such device"),
        (&["mkdir", "-c", "2", &far], EEXIST, "split or merged with lfs setdirstripe -c"),
        (&["mkdir", "--foreign", &striped], EOPNOTSUPP, "'--foreign' is not supported"),
        (&["migrate", "-m", "7", &far], ENODEV, "No such device"),
    ] {
        let tried = cluster.run(&[&["lfs"], words].concat())?;
        let (said, is_so) = (&tried.output, tried.status.code() == Some(code));
        ensure(is_so && said.contains(why), || format!("{words:?}: {}: {said}", tried.status))?;
    }
    ensure(!Path::new(&*striped).exists(), || "a directory was made".to_owned())
}

/// Other numbers are refused in one line.
fn other_numbers(cluster: &Cluster) -> Outcome {
    refused(&up(cluster, &["--mdts", "0"])?, USAGE, &["--mdts", "0 is not in 1..=32"])?;
    refused(&up(cluster, &["--mdts", "70000"])?, USAGE, &["--mdts", "70000 is not in 1..=32"])?;
    refused(&up(cluster, &["--mdts", "2"])?, EINVAL, &["has 3 MDTs", "--mdts 2 would leave"])?;
    let running = ["--mdts 4", "running with 3", "sheen down"];
    refused(&up(cluster, &["--mdts", "4"])?, EBUSY, &running)?;
    let again = up(cluster, &[])?;
    ensure(again.status.success(), || again.output.clone())
}

/// Without the store of an MDT nothing starts, and a line says what helps.
fn a_lost_store(cluster: &Cluster) -> Outcome {
    let aside = cluster.dir().with_file_name("aside");
    for name in ["mdt0000", "mdt0001", "mdt0002"] {
        let place = cluster.dir().join(name);
        fs::rename(&place, &aside).context("move a store")?;
        for more in [&[][..], &["--mdts", "3"], &["--mdts", "4"]] {
            let tried = up(cluster, more)?;
            refused(&tried, ENOENT, &[name, "is gone", "restore it from a backup"])?;
            ensure(!place.exists() && cluster.server_pid().is_err(), || {
                format!("{more:?}: it starts, or makes another {name}")
            })?;
        }
        let looked = cluster.run(&["fsck", "--dir", &cluster.dir().to_string_lossy()])?;
        must_hold(&looked.output, &[name, "is gone"])?;
        fs::rename(&aside, &place).context("move it back")?;
    }
    another_store(cluster)?;
    let dir = cluster.dir();
    for name in ["mdt0000", "mdt0001"] {
        let tried = cluster.run(&["salvage", "--dir", &dir.to_string_lossy(), name])?;
        refused(&tried, EOPNOTSUPP, &[name, "several metadata targets"])?;
    }
    Ok(())
}

/// An empty one does not take its place.
fn another_store(cluster: &Cluster) -> Outcome {
    let (place, aside) = (cluster.dir().join("mdt0001"), cluster.dir().with_file_name("aside"));
    fs::rename(&place, &aside).context("move a store")?;
    let nid = fs::read_to_string(cluster.dir().join("run/mgs.nid")).context("mgs.nid")?;
    let path = place.to_string_lossy();
    let new = ["mkfs.lustre", "-q", "--mdt", "--index", "1", "--fsname", "sheen", "--mgsnode"];
    let new = [&new[..], &[nid.trim(), &path]].concat();
    let replaced = cluster.run(&[&new[..], &["--replace"]].concat())?;
    refused(&replaced, EOPNOTSUPP, &["--replace", "one of several MDTs"])?;
    cluster.must(&new)?;
    // The second one must not take it for one that has registered.
    for _ in 0..2 {
        let tried = up(cluster, &[])?;
        let why = "the file system has another target of this index";
        ensure(!tried.status.success() && tried.output.contains(why), || tried.output.clone())?;
        ensure(cluster.server_pid().is_err(), || "its server runs".to_owned())?;
    }
    // Nor are two of them ready with one that the MGS takes for the right one.
    let mut config = Config::load(&place).context("its configuration")?;
    config.values.insert("registered".to_owned(), "1".to_owned());
    config.save(&place).context("its configuration")?;
    for _ in 0..2 {
        let tried = up(cluster, &[])?;
        refused(&tried, EXDEV, &[&path, "has refused it", "put that one back"])?;
        ensure(cluster.server_pid().is_err(), || "its server runs".to_owned())?;
    }
    fs::remove_dir_all(&place).context("remove")?;
    fs::rename(&aside, &place).context("move it back")
}

#[test]
fn several_mdts_are_made_shown_and_stopped_like_osts() {
    scene_of("mdts-up", &["--mdts", "3"], |cluster| {
        are_shown(cluster)?;
        are_distinguished(cluster)?;
        what_cannot_be_is_refused(cluster)?;
        other_numbers(cluster)?;
        same_after_restart(cluster)?;
        are_shown(cluster)?;
        cluster.must(&["scrub"])?;
        let before = tree::read(&cluster.mnt())?;
        cluster.down()?;
        a_lost_store(cluster)?;
        cluster.up()?;
        tree::must_equal(&before, &tree::read(&cluster.mnt())?)
    });
}

/// What is there stays, and those that are added are of use at once, also to a mount that was there before.
#[test]
fn mdts_are_added_to_a_file_system_that_is_mounted() {
    let cluster = Cluster::prepare("mdts-added", 1, &[]).unwrap_or_else(|fault| panic!("{fault}"));
    play(&Arc::new(cluster), LIMIT, |cluster| {
        cluster.up()?;
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        plant::run(&first)?;
        let before = tree::read(&first)?;
        let mount = cluster.mount_pid()?;
        cluster.kill_server()?;
        // Nothing of one that cannot be is made.
        let small = up(cluster, &["--mdts", "2", "--device-size", "1024"])?;
        refused(&small, EINVAL, &["--device-size 1024", "at least 8192 KiB"])?;
        ensure(!cluster.dir().join("mdt0001").exists(), || "it is made".to_owned())?;
        let added = up(cluster, &["--mdts", "3", "--osts", "2"])?;
        ensure(added.status.success(), || added.output.clone())?;
        is(&cluster.mount_pid()?, &mount)?;
        tree::must_equal(&before, &tree::read(&first)?)?;
        for (mnt, mdt) in [(&first, "1"), (&second, "2")] {
            // Mounts learn of them by the configuration, a moment later.
            let path = mnt.join(mdt);
            wait_until("the new MDT", PATIENCE, || make_on(cluster, mdt, &path).is_ok())?;
            fs::write(path.join("file"), mdt).context("write")?;
        }
        for mnt in [&first, &second] {
            for mdt in ["1", "2"] {
                let held = fs::read_to_string(mnt.join(mdt).join("file")).context("read")?;
                is(&held, &mdt.to_owned())?;
            }
        }
        fs::rename(first.join("1/file"), first.join("2/moved")).context("rename")?;
        is(&names(&second.join("2"))?, &["file", "moved"].map(str::to_owned).to_vec())?;
        let before = tree::read(&first)?;
        cluster.down()?;
        cluster.fsck()?;
        let again = up(cluster, &[])?;
        ensure(again.status.success(), || again.output.clone())?;
        tree::must_equal(&before, &tree::read(&first)?)
    });
}

/// An MDT that lies on another machine is not made once more here, and nothing is made of that one.
#[test]
fn an_mdt_that_is_elsewhere_is_not_made_once_more() {
    let cluster =
        Cluster::prepare("mdts-far", 1, &["--listen"]).unwrap_or_else(|it| panic!("{it}"));
    play(&Arc::new(cluster), LIMIT, |cluster| {
        cluster.up()?;
        let port = cluster.port().unwrap_or_default();
        let mgs = fs::read_to_string(cluster.dir().join("run/mgs.nid")).context("mgs.nid")?;
        let place = cluster.logs().join("far");
        let path = place.to_string_lossy();
        let new = ["mkfs.lustre", "-q", "--mdt", "--index", "1", "--fsname", "sheen"];
        cluster.must(&[&new[..], &["--mgsnode", mgs.trim(), &path]].concat())?;
        cluster.must(&["lctl", "set_param", "allow_register=1"])?;
        let own = crate::nodes::nid(90);
        let server = ["server", "--nid", &own, "--port", &port, &path];
        let log = cluster.logs().join("far.log");
        let far = crate::nodes::spawn(cluster, &server, &log)?;
        let is_there = || text(&log).lines().any(|line| line.ends_with("ready"));
        wait_until("the far MDT", PATIENCE, is_there)?;
        cluster.down()?;
        for _ in 0..2 {
            let tried = up(cluster, &["--mdts", "2"])?;
            let words = ["mdt0001", "sheen-MDT0001 elsewhere", &own, "--mdts 2"];
            refused(&tried, EEXIST, &words)?;
            ensure(!cluster.dir().join("mdt0001").exists(), || "it is made".to_owned())?;
        }
        cluster.up()?;
        drop(far);
        cluster.down()
    });
}

/// What an `up` that failed made of an MDT that no client has seen is gone again, and not missed.
#[test]
fn an_added_mdt_whose_first_start_fails_is_not_missed() {
    let cluster = Cluster::prepare("mdts-failed", 1, &[]).unwrap_or_else(|it| panic!("{it}"));
    play(&Arc::new(cluster), LIMIT, |cluster| {
        cluster.up()?;
        cluster.down()?;
        let port = cluster.port().unwrap_or_default();
        let nid = fs::read_to_string(cluster.dir().join("run/mgs.nid")).context("mgs.nid")?;
        let address = nid.trim().trim_end_matches("@tcp").to_owned();
        let taken = std::net::TcpListener::bind(format!("{address}:{port}")).context("bind")?;
        let tried = up(cluster, &["--mdts", "2", "--listen", "--accept", "all"])?;
        ensure(!tried.status.success(), || tried.output.clone())?;
        ensure(!cluster.dir().join("mdt0001").exists(), || "it stays".to_owned())?;
        drop(taken);
        cluster.up()?;
        let found = cluster.must(&["lfs", "mdts", &cluster.mnt().to_string_lossy()])?;
        is(&found.lines().count(), &2)
    });
}

/// An `up` that was killed while it made MDTs is followed by one that makes as many.
#[test]
fn an_up_that_was_killed_while_it_made_mdts_is_gone_on_with() {
    let cluster = Cluster::prepare("mdts-begun", 1, &[]).unwrap_or_else(|fault| panic!("{fault}"));
    play(&Arc::new(cluster), LIMIT, |cluster| {
        cluster.up()?;
        cluster.down()?;
        let (dir, mnt) = (cluster.dir(), cluster.mnt());
        let (dir, mnt) = (dir.to_string_lossy(), mnt.to_string_lossy());
        let mut begun = cluster.command(&["up", "--dir", &dir, "--mount", &mnt, "--mdts", "6"]);
        let mut begun = begun.spawn().context("up")?;
        let some = || cluster.dir().join("mdt0003/engine").exists();
        wait_until("some MDTs", PATIENCE, some)?;
        begun.kill().context("kill")?;
        begun.wait().context("wait")?;
        cluster.up()?;
        let found = cluster.must(&["lfs", "mdts", &mnt])?;
        is(&found.lines().count(), &7)?;
        make_on(cluster, "5", &cluster.mnt().join("far"))?;
        same_after_restart(cluster)
    });
}

/// All MDTs die at once, and the last second of each with them.
#[test]
fn changes_of_two_mounts_over_mdts_of_one_process_survive_its_kills() {
    scene_of("mdts-kills", &["--mdts", "2"], |cluster| {
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        let mount = cluster.mount_pid()?;
        let places =
            |mnt: &Path, of: &str| [mnt.join(format!("near{of}")), mnt.join(format!("far{of}"))];
        for of in ["1", "2"] {
            let [near, far] = places(&first, of);
            fs::create_dir(near).context("mkdir")?;
            make_on(cluster, "1", &far)?;
        }
        let (stops, done) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
        let steps = std::thread::scope(|scope| -> Outcome<Vec<usize>> {
            let (stops, done) = (&stops, &done);
            let work =
                [(&first, "1"), (&second, "2")].into_iter().zip(done).map(|((mnt, of), done)| {
                    let [near, far] = places(mnt, of);
                    scope.spawn(move || move_to_and_fro(cluster, (&near, &far), (stops, done)))
                });
            let work: Vec<_> = work.collect();
            let killed = (0..3).try_for_each(|_| {
                more_is_done(done, &|| work.iter().any(|work| work.is_finished()))?;
                cluster.kill_server()?;
                cluster.up()
            });
            let killed = killed
                .and_then(|()| more_is_done(done, &|| work.iter().any(|work| work.is_finished())));
            stops.store(true, Ordering::Relaxed);
            if killed.is_err() {
                // They would wait for the dead for ever.
                cluster.end();
            }
            let steps = work.into_iter().map(|work| match work.join() {
                Ok(steps) => steps,
                Err(_panic) => Err("the work panicked".to_owned()),
            });
            let steps = steps.collect::<Outcome<Vec<_>>>();
            killed.and(steps)
        })?;
        is(&cluster.mount_pid()?, &mount)?;
        // Each by the mount that did it, and by the other one.
        for (of, steps) in ["1", "2"].into_iter().zip(&steps) {
            for mnt in [&first, &second] {
                let [near, far] = places(mnt, of);
                is_as_answered((&near, &far), *steps)?;
            }
        }
        same_after_restart(cluster)
    });
}

/// Both mounts go on with their work.
fn more_is_done(done: &[AtomicUsize; 2], has_ended: &dyn Fn() -> bool) -> Outcome {
    let before = done.each_ref().map(|done| done.load(Ordering::Relaxed));
    wait_until("more changes", PATIENCE, || {
        let both =
            done.iter().zip(before).all(|(done, before)| done.load(Ordering::Relaxed) > before + 3);
        both || has_ended()
    })
}

/// As on Lustre, root of its clients and one group choose MDTs; whose servers they are says which group.
#[test]
fn an_ordinary_user_has_several_mdts_and_says_who_chooses_one() {
    let cluster = Arc::new(Cluster::prepare("mdts-of-a-user", 1, &[]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        set_mode(Path::new("/dev/fuse"), 0o666)?;
        let home = Home::of(UNPRIVILEGED)?;
        let user = User { cluster, folder: &home.0, uid: UNPRIVILEGED, groups: &[] };
        let tool = format!("SHEEN_RUN_DIR={}/run {}", home.0.display(), program()?.display());
        user.can(&format!("{tool} up --dir own/fs --mount m --osts 1 --mdts 2"))?;
        let worked = chooses(&user, &tool);
        let ended = user.can(&format!("{tool} down --dir own/fs"));
        worked?;
        ended?;
        let checked = user.can(&format!("{tool} fsck --dir own/fs"))?;
        must_hold(&checked, &[" 0 problems"])
    });
}

fn chooses(user: &User<'_>, tool: &str) -> Outcome {
    let refused = |line: &str, why: &str| {
        let (done, said) = user.tries(line)?;
        ensure(!done && said.contains(why), || format!("{line}: {said}"))
    };
    refused(&format!("{tool} lfs mkdir -i 1 m/far"), "enable_remote_dir_gid")?;
    user.can(&format!("{tool} lctl set_param mdt.*.enable_remote_dir_gid=-1"))?;
    user.can(&format!("{tool} lfs mkdir -i 1 m/far && mkdir m/far/d && echo far > m/far/d/f"))?;
    // Its group, and no other one.
    user.can(&format!("{tool} lctl set_param mdt.*.enable_remote_dir_gid={UNPRIVILEGED}"))?;
    user.can(&format!("{tool} lfs mkdir -i 1 m/again && mv m/far/d m/again && cat m/again/d/f"))?;
    user.can(&format!("{tool} lctl set_param mdt.*.enable_remote_dir_gid=7"))?;
    refused(&format!("{tool} lfs mkdir -i 1 m/third"), "enable_remote_dir_gid")?;
    // Where he may not choose he works all the same.
    let index =
        user.can(&format!("mkdir m/again/more && {tool} lfs getdirstripe -i m/again/more"))?;
    is(&index, &"1".to_owned())?;
    user.can(&format!("{tool} lctl set_param mdt.*.enable_remote_dir=0"))?;
    refused(&format!("{tool} lfs mkdir -i 0 m/again/back"), "enable_remote_dir")
}
