//! What tools say of directories that move, are split or merged, on a file system of `sheen up --mdts 2`.
#![allow(clippy::disallowed_methods, reason = "calls wait for a server in real time")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use sheen_testkit::cluster::{Cluster, program};
use sheen_testkit::scene::play;
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

use crate::further_mdts::{is, names};
use crate::rights::{User, set_mode};

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(60);
const EPERM: i32 = 1;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const ENOTEMPTY: i32 = 39;
const USER: u32 = 12_003;

fn scene_of(name: &str, body: impl FnOnce(&Cluster) -> Outcome + Send + 'static) {
    let cluster = Cluster::start_with(name, 1, &["--mdts", "2"]);
    let cluster = cluster.unwrap_or_else(|fault| panic!("{fault}"));
    play(&Arc::new(cluster), LIMIT, body);
}

fn lfs(cluster: &Cluster, words: &[&str], path: &Path) -> Outcome<String> {
    cluster.must(&[&["lfs"], words, &[&path.to_string_lossy()]].concat())
}

/// Fails with that code; what it said.
fn fails(cluster: &Cluster, words: &[&str], path: &Path, code: i32) -> Outcome<String> {
    let path = path.to_string_lossy();
    let ran = cluster.run(&[&["lfs"], words, &[&*path]].concat())?;
    ensure(ran.status.code() == Some(code), || {
        format!("{words:?}: {} {}", ran.status, ran.output)
    })?;
    Ok(ran.output)
}

fn says(text: &str, wanted: &str) -> Outcome {
    ensure(text.contains(wanted), || format!("no '{wanted}' in: {text}"))
}

/// A directory on MDT0000 whose files have their bytes on OSTs, with so many of them.
fn make(cluster: &Cluster, path: &Path, count: usize) -> Outcome {
    lfs(cluster, &["mkdir", "-i", "0"], path)?;
    lfs(cluster, &["setstripe", "-c", "1"], path)?;
    for at in 0..count {
        fs::write(path.join(format!("f{at}")), "text").context("write")?;
    }
    Ok(())
}

/// The records of its changes are there still, and all of them are complete.
#[test]
fn fsck_after_a_migration_and_a_clean_stop_counts_no_change_as_incomplete() {
    scene_of("moved-fsck", |cluster| {
        let d = cluster.mnt().join("d");
        make(cluster, &d, 20)?;
        lfs(cluster, &["migrate", "-m", "1"], &d)?;
        cluster.down()?;
        let ran = cluster.run(&["fsck", "--dir", &cluster.dir().to_string_lossy()])?;
        is(&ran.status.code(), &Some(0))?;
        ensure(!ran.output.contains("not complete"), || ran.output.clone())
    });
}

#[test]
fn a_name_whose_inode_can_be_accessed_is_not_cut_off_without_a_word() {
    scene_of("moved-rm-entry", |cluster| {
        let (full, empty) = (cluster.mnt().join("full"), cluster.mnt().join("empty"));
        for path in [&full, &empty] {
            lfs(cluster, &["mkdir", "-i", "1"], path)?;
        }
        fs::write(full.join("f"), "kept").context("write")?;
        let fid =
            |path: &Path| Ok::<_, String>(lfs(cluster, &["path2fid"], path)?.trim().to_owned());
        let (of_full, of_empty) = (fid(&full)?, fid(&empty)?);
        let said = fails(cluster, &["rm_entry"], &full, ENOTEMPTY)?;
        says(&said, &of_full)?;
        says(&said, &format!("'rm -r {}'", full.display()))?;
        is(&fs::read_to_string(full.join("f")).context("read")?, &"kept".to_owned())?;
        // As Lustre's own scripts remove names of sound inodes.
        let said = lfs(cluster, &["rm_entry"], &empty)?;
        says(&said, &of_empty)?;
        ensure(!said.contains("rm -r"), || format!("without its name nothing removes it: {said}"))?;
        says(&lfs(cluster, &["rm_entry", "--force"], &full)?, &of_full)?;
        is(&names(&cluster.mnt())?, &Vec::new())?;
        let missing = cluster.mnt().join("missing");
        fails(cluster, &["rm_entry"], &missing, 2).map(drop)
    });
}

#[test]
fn a_migration_that_a_signal_ends_says_which_command_finishes_it() {
    scene_of("moved-interrupt", |cluster| {
        let d = cluster.mnt().join("d");
        lfs(cluster, &["mkdir", "-i", "0"], &d)?;
        for at in 0..400 {
            fs::create_dir(d.join(at.to_string())).context("mkdir")?;
        }
        let path = d.to_string_lossy();
        let mut command = cluster.command(&["lfs", "migrate", "-v", "-m", "1", &path]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("lfs")?;
        // The directory itself has begun to move.
        let mut out = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        out.read_line(&mut String::new()).context("a line")?;
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).context("kill")?;
        out.read_to_end(&mut Vec::new()).context("the rest")?;
        let ended = child.wait_with_output().context("wait")?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        is(&ended.status.code(), &Some(130))?;
        ensure(said.lines().count() == 1, || said.clone())?;
        says(&said, "to finish it, run: lfs migrate -m 1 -H ")?;
        lfs(cluster, &["migrate", "-m", "1"], &d)?;
        is(&lfs(cluster, &["getdirstripe", "-m"], &d)?.trim().to_owned(), &"1".to_owned())
    });
}

#[test]
fn who_may_not_choose_mdts_gets_the_reason_and_no_advice_leads_in_a_circle() {
    scene_of("moved-reasons", |cluster| {
        let mnt = cluster.mnt();
        let d = mnt.join("d");
        make(cluster, &d, 1)?;
        set_mode(&mnt, 0o777)?;
        set_mode(&d, 0o777)?;
        let tool = program()?.display().to_string();
        let user = User { cluster, folder: &mnt, uid: USER, groups: &[] };
        for (words, wanted) in [
            ("lfs migrate -m 1 d", "only root can migrate directories"),
            (
                "lfs setdirstripe -i 1 e",
                "only root, and users whose group is mdt.*.enable_remote_dir_gid",
            ),
            ("lfs rm_entry d/f0", "only root can remove directory entries"),
        ] {
            let (done, said) = user.tries(&format!("{tool} {words}"))?;
            ensure(!done, || words.to_owned())?;
            says(&said, wanted)?;
        }
        let said = fails(cluster, &["setdirstripe", "-c", "2"], &d, EEXIST)?;
        says(&said, "lctl set_param mdt.*.enable_dir_restripe=1")?;
        let said = fails(cluster, &["mkdir", "-c", "2"], &d, EEXIST)?;
        says(&said, "split or merged with lfs setdirstripe -c")?;
        let said = fails(cluster, &["setdirstripe", "-i", "1"], &d, EEXIST)?;
        says(&said, "lfs migrate -m moves")?;
        // By whatever path.
        let root = "the root of the file system stays where it is";
        for (words, path) in [
            (&["setdirstripe", "-c", "2"][..], &*mnt),
            (&["migrate", "-m", "1"], &*mnt),
            (&["migrate", "-m", "1"], &*d.join("..")),
            (&["setdirstripe", "-c", "2"], &*d.join("..")),
        ] {
            says(&fails(cluster, words, path, EINVAL)?, root)?;
        }
        cluster.must(&["lctl", "set_param", "mdt.*.enable_dir_migration=0"])?;
        let said = fails(cluster, &["migrate", "-m", "1"], &d, EPERM)?;
        says(&said, "mdt.*.enable_dir_migration or mdt.*.enable_remote_dir is 0")
    });
}

#[test]
fn the_command_that_ends_a_migration_is_said_once_and_can_be_pasted() {
    scene_of("moved-hint", |cluster| {
        let d = cluster.mnt().join("a b");
        make(cluster, &d, 800)?;
        let words = ["lfs", "migrate", "-m", "1", &d.to_string_lossy()];
        let mut child = cluster.command(&words).spawn().context("lfs")?;
        wait_until("the begin", PATIENCE, || {
            lfs(cluster, &["getdirstripe", "-H"], &d).is_ok_and(|it| it.contains("migrating"))
        })?;
        child.kill().context("kill")?;
        child.wait().context("wait")?;
        let said = fails(cluster, &["migrate", "-m", "0"], &d, EPERM)?;
        let command = format!("to finish it, run: lfs migrate -m 1 -H fnv_1a_64 '{}'", d.display());
        says(&said, &command)?;
        is(&said.matches("to finish it").count(), &1)?;
        let log = fs::read_to_string(cluster.dir().join("run/server.log")).context("the log")?;
        says(&log, "to finish it, run: lfs migrate -m 1 -H fnv_1a_64 'a b'")?;
        let shell =
            format!("{} lfs migrate -v -m 1 -H fnv_1a_64 '{}'", program()?.display(), d.display());
        let kept = fs::File::open(d.join("f799")).context("open")?;
        let ran = std::process::Command::new("sh")
            .args(["-c", &shell])
            .env("SHEEN_RUN_DIR", cluster.sockets())
            .output()
            .context("sh")?;
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        ensure(ran.status.success(), || format!("{ran:?}"))?;
        // What is open stays on its MDT.
        says(&said, "a b/f799 to MDT1 stripe count 0, name only\n")?;
        ensure(said.lines().filter(|line| line.ends_with("name only")).count() == 1, || {
            said.clone()
        })?;
        drop(kept);
        is(&names(&d)?.len(), &800)
    });
}

#[test]
fn a_directory_merged_to_one_stripe_is_overstriped_no_more() {
    scene_of("moved-overstriped", |cluster| {
        let d = cluster.mnt().join("d");
        lfs(cluster, &["mkdir", "-C", "4"], &d)?;
        says(&lfs(cluster, &["getdirstripe", "-H"], &d)?, "overstriped")?;
        cluster.must(&["lctl", "set_param", "mdt.*.enable_dir_restripe=1"])?;
        lfs(cluster, &["setdirstripe", "-c", "1"], &d)?;
        let hash = || lfs(cluster, &["getdirstripe", "-H"], &d).unwrap_or_default();
        wait_until("the end of the merge", PATIENCE, || !hash().contains("migrating"))?;
        ensure(!hash().contains("overstriped"), hash)
    });
}

/// Each file of `run` names the process that it is called after.
#[test]
fn the_files_of_a_mount_name_its_process_and_its_keeper() {
    scene_of("moved-pids", |cluster| {
        let pid = |name: &str| -> Outcome<String> {
            let text = fs::read_to_string(cluster.dir().join("run").join(name)).context(name)?;
            Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
        };
        let status = || cluster.must(&["status", "--dir", &cluster.dir().to_string_lossy()]);
        let agree = || -> Outcome<bool> {
            let text =
                format!("running, pid {}, kept by pid {}", pid("mount.pid")?, pid("keeper.pid")?);
            Ok(status()?.contains(&text))
        };
        ensure(agree()?, || "status says something else".to_owned())?;
        let before = pid("mount.pid")?;
        sheen_workloads::process::kill(cluster.mount_pid()?)?;
        wait_until("the next process", PATIENCE, || {
            pid("mount.pid").is_ok_and(|now| now != before) && agree().is_ok_and(|agree| agree)
        })?;
        cluster.down()?;
        for name in ["mount.pid", "keeper.pid"] {
            ensure(!cluster.dir().join("run").join(name).exists(), || name.to_owned())?;
        }
        cluster.up()
    });
}
