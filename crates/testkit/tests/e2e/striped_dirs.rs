//! Striped directories of a file system of `sheen up --mdts 3`: programs see no difference, and the tools show the stripes.
#![allow(clippy::disallowed_methods, reason = "calls wait for a server in real time")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sheen_testkit::cluster::{Cluster, program};
use sheen_testkit::scene::{play, same_after_restart};
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

use crate::further_mdts::{is, names};
use crate::rights::{Home, UNPRIVILEGED, User, set_mode};

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(120);
const EEXIST: i32 = 17;

fn scene_of(name: &str, options: &[&str], body: impl FnOnce(&Cluster) -> Outcome + Send + 'static) {
    let cluster = Cluster::start_with(name, 1, options).unwrap_or_else(|fault| panic!("{fault}"));
    play(&Arc::new(cluster), LIMIT, body);
}

fn lfs(cluster: &Cluster, words: &[&str], path: &Path) -> Outcome<String> {
    cluster.must(&[&["lfs"], words, &[&path.to_string_lossy()]].concat())
}

fn make(cluster: &Cluster, words: &[&str], path: &Path) -> Outcome {
    lfs(cluster, &[&["mkdir"], words].concat(), path).map(drop)
}

/// One value that `lfs getdirstripe` shows.
fn shown(cluster: &Cluster, option: &str, path: &Path) -> Outcome<String> {
    Ok(lfs(cluster, &["getdirstripe", option], path)?.trim().to_owned())
}

/// On which MDTs the stripes of a directory lie, as the tool shows them.
fn mdts_of(cluster: &Cluster, path: &Path) -> Outcome<Vec<String>> {
    let text = lfs(cluster, &["getdirstripe"], path)?;
    let stripes = text.lines().skip(2);
    Ok(stripes.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// On how many MDTs the files in a directory lie.
fn mdts_of_files(cluster: &Cluster, directory: &Path) -> Outcome<BTreeSet<String>> {
    let mut mdts = BTreeSet::new();
    for name in names(directory)?.iter().take(30) {
        mdts.insert(lfs(cluster, &["getstripe", "-m"], &directory.join(name))?.trim().to_owned());
    }
    Ok(mdts)
}

fn are_made_and_shown(cluster: &Cluster) -> Outcome {
    let mnt = cluster.mnt();
    let three = mnt.join("three");
    make(cluster, &["-c", "3"], &three)?;
    is(&shown(cluster, "-c", &three)?, &"3".to_owned())?;
    is(&shown(cluster, "-H", &three)?, &"fnv_1a_64".to_owned())?;
    let mdts: BTreeSet<_> = mdts_of(cluster, &three)?.into_iter().collect();
    is(&mdts, &["0", "1", "2"].map(str::to_owned).into())?;
    for hash in ["all_char", "crush", "crush2"] {
        let path = mnt.join(hash);
        make(cluster, &["-c", "2", "-i", "1", "-H", hash], &path)?;
        let text = lfs(cluster, &["getdirstripe"], &path)?;
        let first = format!("lmv_stripe_count: 2 lmv_stripe_offset: 1 lmv_hash_type: {hash}");
        ensure(text.starts_with(&first), || text.clone())?;
    }
    let listed = mnt.join("listed");
    make(cluster, &["-i", "2,0"], &listed)?;
    is(&mdts_of(cluster, &listed)?, &["2", "0"].map(str::to_owned).to_vec())?;
    let over = mnt.join("over");
    make(cluster, &["-C", "-2"], &over)?;
    is(&shown(cluster, "-c", &over)?, &"6".to_owned())?;
    is(&shown(cluster, "-H", &over)?, &"fnv_1a_64,overstriped".to_owned())?;
    // More than there are MDTs is cut.
    let many = mnt.join("many");
    make(cluster, &["-c", "7"], &many)?;
    is(&shown(cluster, "-c", &many)?, &"3".to_owned())?;
    let again = cluster.run(&["lfs", "mkdir", "-c", "2", &three.to_string_lossy()])?;
    is(&again.status.code(), &Some(EEXIST))?;
    for (words, wanted) in [
        (&["-T", "3"][..], vec!["many", "three"]),
        (&["-H", "crush,crush2"], vec!["crush", "crush2"]),
        (&["--mdt-count", "+3"], vec!["over"]),
    ] {
        let found = cluster.must(&[&["lfs", "find", &mnt.to_string_lossy()], words].concat())?;
        let mut found: Vec<_> = found.lines().map(str::to_owned).collect();
        found.sort();
        let wanted: Vec<_> = wanted.iter().map(|it| mnt.join(it).display().to_string()).collect();
        is(&found, &wanted)?;
    }
    for path in [three, listed, over, many] {
        is(&names(&path)?, &vec![])?;
        fs::remove_dir(&path).context("rmdir")?;
        ensure(!path.exists(), || "it is there".to_owned())?;
    }
    Ok(())
}

/// Files, directories and links of a striped directory, moved within it, out of it and between two.
fn are_as_any_directory(cluster: &Cluster) -> Outcome {
    let mnt = cluster.mnt();
    let (striped, other, plain) = (mnt.join("s"), mnt.join("o"), mnt.join("p"));
    make(cluster, &["-c", "3"], &striped)?;
    make(cluster, &["-C", "-2", "-H", "crush"], &other)?;
    fs::create_dir(&plain).context("mkdir")?;
    let count = 2000;
    let name = |at: usize| format!("f{at}");
    for at in 0..count {
        fs::write(striped.join(name(at)), name(at)).context("write")?;
    }
    let mut expected: Vec<_> = (0..count).map(name).collect();
    expected.sort();
    is(&names(&striped)?, &expected)?;
    is(&mdts_of_files(cluster, &striped)?, &["0", "1", "2"].map(str::to_owned).into())?;
    ensure(fs::write(striped.join("f0/x"), "").is_err(), || "a file has names".to_owned())?;
    ensure(fs::remove_dir(&striped).is_err(), || "removed with names in it".to_owned())?;
    let known = fs::metadata(&striped).context("stat")?;
    is(&known.nlink(), &2)?;
    for at in 0..20 {
        let sub = striped.join(format!("d{at}"));
        fs::create_dir(&sub).context("mkdir")?;
        let above = fs::metadata(sub.join("..")).context("stat ..")?;
        is(&above.ino(), &known.ino())?;
        fs::write(sub.join("x"), "x").context("write")?;
    }
    is(&fs::metadata(&striped).context("stat")?.nlink(), &22)?;
    for at in 0..20 {
        let (from, to) = (striped.join(name(at)), striped.join(format!("moved{at}")));
        fs::rename(&from, &to).context("rename within")?;
        is(&fs::read_to_string(&to).context("read")?, &name(at))?;
        fs::rename(&to, other.join(name(at))).context("rename to another")?;
        fs::rename(other.join(name(at)), plain.join(name(at))).context("rename to a plain one")?;
        fs::rename(plain.join(name(at)), &from).context("rename back")?;
        let link = other.join(format!("link{at}"));
        fs::hard_link(&from, &link).context("link")?;
        is(&fs::metadata(&from).context("stat")?.nlink(), &2)?;
        fs::remove_file(&link).context("unlink")?;
        let sub = format!("d{at}");
        fs::rename(striped.join(&sub), other.join(&sub)).context("rename a directory")?;
        let above = fs::metadata(other.join(&sub).join("..")).context("stat ..")?;
        is(&above.ino(), &fs::metadata(&other).context("stat")?.ino())?;
    }
    is(&fs::metadata(&striped).context("stat")?.nlink(), &2)?;
    is(&fs::metadata(&other).context("stat")?.nlink(), &22)?;
    let fid = lfs(cluster, &["path2fid"], &other.join("d3/x"))?;
    let path = cluster.must(&["lfs", "fid2path", &mnt.to_string_lossy(), fid.trim()])?;
    is(&path.trim().to_owned(), &other.join("d3/x").display().to_string())?;
    is(&names(&striped)?, &expected)?;
    fs::rename(&striped, mnt.join("renamed")).context("rename it")?;
    is(&names(&mnt.join("renamed"))?, &expected)?;
    fs::rename(mnt.join("renamed"), &striped).context("rename it back")?;
    is(&fs::metadata(&striped).context("stat")?.ino(), &known.ino())?;
    for at in 0..count {
        fs::remove_file(striped.join(name(at))).context("unlink")?;
    }
    fs::remove_dir_all(&other).context("rm -r")?;
    fs::remove_dir(&striped).context("rmdir")
}

/// What one mount does the other one sees.
fn are_shared(cluster: &Cluster) -> Outcome {
    let (first, second) = (cluster.mnt(), cluster.mount_again()?);
    make(cluster, &["-c", "3"], &first.join("shared"))?;
    let [one, other] = [&first, &second].map(|mnt| mnt.join("shared"));
    for at in 0..50 {
        let name = format!("n{at}");
        ensure(!other.join(&name).exists(), || format!("{name} is there"))?;
        fs::write(one.join(&name), &name).context("write")?;
        is(&fs::read_to_string(other.join(&name)).context("read")?, &name)?;
    }
    is(&names(&other)?, &names(&one)?)?;
    for mode in [0o700, 0o755, 0o711] {
        fs::set_permissions(&other, fs::Permissions::from_mode(mode)).context("chmod")?;
        is(&(fs::metadata(&one).context("stat")?.mode() & 0o7777), &mode)?;
    }
    let before = fs::metadata(&other).context("stat")?;
    fs::create_dir(one.join("sub")).context("mkdir")?;
    let after = fs::metadata(&other).context("stat")?;
    is(&(after.nlink(), after.ino()), &(before.nlink() + 1, before.ino()))?;
    for name in names(&one)?.iter().filter(|name| *name != "sub") {
        fs::remove_file(other.join(name)).context("unlink")?;
        ensure(!one.join(name).exists(), || format!("{name} is there still"))?;
    }
    fs::remove_dir(other.join("sub")).context("rmdir")?;
    fs::remove_dir(&other).context("rmdir")?;
    ensure(!one.exists(), || "it is there still".to_owned())
}

#[test]
fn striped_directories_are_as_any_directory() {
    scene_of("striped", &["--mdts", "3"], |cluster| {
        are_made_and_shown(cluster)?;
        are_as_any_directory(cluster)?;
        are_shared(cluster)?;
        make(cluster, &["-c", "3"], &cluster.mnt().join("kept"))?;
        for at in 0..100 {
            fs::write(cluster.mnt().join("kept").join(format!("f{at}")), "kept")
                .context("write")?;
        }
        same_after_restart(cluster)?;
        cluster.down()?;
        cluster.fsck()?;
        cluster.up()
    });
}

#[test]
fn defaults_are_set_shown_and_inherited() {
    scene_of("striped-default", &["--mdts", "3"], |cluster| {
        let folder = cluster.mnt().join("with");
        fs::create_dir(&folder).context("mkdir")?;
        let default = |path: &Path| lfs(cluster, &["getdirstripe", "-D"], path);
        lfs(cluster, &["setdirstripe", "-D", "-c", "2"], &folder)?;
        let text = |inherit| {
            format!(
                "lmv_stripe_count: 2 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: {inherit} \
                 lmv_max_inherit_rr: 0\n"
            )
        };
        is(&default(&folder)?, &text(3))?;
        let made = folder.join("made");
        fs::create_dir(&made).context("mkdir")?;
        is(&shown(cluster, "-c", &made)?, &"2".to_owned())?;
        is(&default(&made)?, &text(2))?;
        fs::write(made.join("f"), "f").context("write")?;
        lfs(cluster, &["setdirstripe", "-d"], &folder)?;
        fs::create_dir(folder.join("plain")).context("mkdir")?;
        is(&shown(cluster, "-c", &folder.join("plain"))?, &"0".to_owned())?;
        is(&names(&folder)?, &["made", "plain"].map(str::to_owned).to_vec())?;
        same_after_restart(cluster)
    });
}

/// A user who owns a striped directory changes it as any other; MDTs are not for everyone to choose.
#[test]
fn an_ordinary_user_works_in_striped_directories() {
    let cluster = Arc::new(Cluster::prepare("striped-user", 1, &[]).unwrap());
    play(&cluster, LIMIT, |cluster| {
        set_mode(Path::new("/dev/fuse"), 0o666)?;
        let home = Home::of(UNPRIVILEGED)?;
        let user = User { cluster, folder: &home.0, uid: UNPRIVILEGED, groups: &[] };
        let tool = format!("SHEEN_RUN_DIR={}/run {}", home.0.display(), program()?.display());
        user.can(&format!("{tool} up --dir own/fs --mount m --osts 1 --mdts 2"))?;
        let work = || -> Outcome {
            let (done, said) = user.tries(&format!("{tool} lfs mkdir -c 2 m/s"))?;
            ensure(!done && said.contains("enable_remote_dir_gid"), || said.clone())?;
            user.can(&format!("{tool} lctl set_param mdt.*.enable_remote_dir_gid=-1"))?;
            user.can(&format!("{tool} lfs mkdir -c 2 -o 750 m/s"))?;
            is(&user.can("stat -c %a m/s")?, &"750".to_owned())?;
            user.can("for i in 1 2 3 4 5 6 7 8 9; do echo $i > m/s/f$i; done; chmod 711 m/s")?;
            is(&user.can("stat -c %a m/s; cat m/s/f7")?, &"711\n7".to_owned())?;
            user.can("chmod 555 m/s")?;
            let (done, _) = user.tries("touch m/s/no")?;
            ensure(!done, || "a name is made in a directory of mode 555".to_owned())?;
            user.can("chmod 755 m/s && ls -l m/s && rm m/s/f* && rmdir m/s").map(drop)
        };
        let worked = work();
        let ended = user.can(&format!("{tool} down --dir own/fs"));
        worked?;
        ended?;
        let checked = user.can(&format!("{tool} fsck --dir own/fs"))?;
        ensure(checked.contains(" 0 problems"), || checked.clone())
    });
}

/// Names of a striped directory are made, moved and removed while the servers die.
#[test]
fn work_in_a_striped_directory_survives_kills_of_the_servers() {
    scene_of("striped-kills", &["--mdts", "3"], |cluster| {
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        make(cluster, &["-c", "3"], &first.join("s"))?;
        let (stops, done) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
        std::thread::scope(|scope| -> Outcome {
            let (stops, done) = (&stops, &done);
            let work: Vec<_> = [&first, &second]
                .into_iter()
                .zip(done)
                .enumerate()
                .map(|(of, (mnt, done))| {
                    let directory = mnt.join("s");
                    scope.spawn(move || churn(&directory, of, (stops, done)))
                })
                .collect();
            let has_ended = || work.iter().any(|work| work.is_finished());
            let more = || {
                let before = done.each_ref().map(|done| done.load(Ordering::Relaxed));
                wait_until("more changes", PATIENCE, || {
                    let now = done.each_ref().map(|done| done.load(Ordering::Relaxed));
                    now.iter().zip(before).all(|(now, before)| *now > before + 3) || has_ended()
                })
            };
            let killed = (0..3).try_for_each(|_| {
                more()?;
                cluster.kill_server()?;
                cluster.up()
            });
            let killed = killed.and_then(|()| more());
            stops.store(true, Ordering::Relaxed);
            if killed.is_err() {
                // They would wait for the dead for ever.
                cluster.end();
            }
            let ends = work.into_iter().map(|work| match work.join() {
                Ok(ended) => ended,
                Err(_panic) => Err("the work panicked".to_owned()),
            });
            let ends: Outcome = ends.collect();
            killed.and(ends)
        })?;
        is(&names(&first.join("s"))?, &names(&second.join("s"))?)?;
        for name in names(&first.join("s"))? {
            let held = fs::read_to_string(second.join("s").join(&name)).context("read")?;
            ensure(name.starts_with(&held), || format!("{name} has {held}"))?;
        }
        same_after_restart(cluster)?;
        cluster.down()?;
        cluster.fsck()?;
        cluster.up()
    });
}

/// Makes a file, moves it to another name, and removes every other one.
fn churn(directory: &Path, of: usize, (stops, done): (&AtomicBool, &AtomicUsize)) -> Outcome {
    for at in 0.. {
        if stops.load(Ordering::Relaxed) {
            break;
        }
        let (name, content) = (format!("w{of}-{at}"), format!("w{of}-{at}"));
        let (made, moved) = (directory.join(&name), directory.join(format!("{name}-moved")));
        fs::write(&made, &content).context("write")?;
        fs::rename(&made, &moved).context("rename")?;
        ensure(!made.exists(), || format!("{name} is there after its move"))?;
        is(&fs::read_to_string(&moved).context("read")?, &content)?;
        if at % 2 == 0 {
            fs::remove_file(&moved).context("unlink")?;
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
