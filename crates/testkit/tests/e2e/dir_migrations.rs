//! Directories that move to other MDTs, and are split and merged, on a file system of `sheen up --mdts 2`: as Lustre's tools have it,
//! and with programs at work in them.
#![allow(clippy::disallowed_methods, reason = "calls wait for a server in real time")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, inotify};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{play, same_after_restart};
use sheen_workloads::process::wait_until;
use sheen_workloads::{Context, Outcome, ensure};

use crate::further_mdts::{is, names};

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(60);
const EPERM: i32 = 1;
const ENODEV: i32 = 19;
const ENOTDIR: i32 = 20;
const EINVAL: i32 = 22;

fn scene_of(name: &str, body: impl FnOnce(&Cluster) -> Outcome + Send + 'static) {
    let cluster = Cluster::start_with(name, 1, &["--mdts", "2"]);
    let cluster = cluster.unwrap_or_else(|fault| panic!("{fault}"));
    play(&Arc::new(cluster), LIMIT, body);
}

fn lfs(cluster: &Cluster, words: &[&str], path: &Path) -> Outcome<String> {
    cluster.must(&[&["lfs"], words, &[&path.to_string_lossy()]].concat())
}

/// A directory on MDT0000 whose files have their bytes on OSTs: what has bytes on its MDT stays there, as in Lustre.
fn make(cluster: &Cluster, path: &Path) -> Outcome {
    lfs(cluster, &["mkdir", "-i", "0"], path)?;
    lfs(cluster, &["setstripe", "-c", "1"], path).map(drop)
}

fn mdt_of(cluster: &Cluster, path: &Path) -> Outcome<String> {
    let words: &[&str] = match path.is_dir() {
        true => &["getdirstripe", "-m"],
        false => &["getstripe", "-m"],
    };
    Ok(lfs(cluster, words, path)?.trim().to_owned())
}

/// Waits until the names of a directory that is split or merged have moved; the hash then.
fn settled(cluster: &Cluster, path: &Path) -> Outcome<String> {
    let hash = || lfs(cluster, &["getdirstripe", "-H"], path).unwrap_or_default();
    wait_until("the end of the change", PATIENCE, || !hash().contains("migrating"))?;
    Ok(hash().trim().to_owned())
}

/// The command lines of the capture d4.
#[test]
fn directories_migrate_as_in_lustre() {
    scene_of("migrate-d4", |cluster| {
        let dm = cluster.mnt().join("dm");
        make(cluster, &dm)?;
        fs::create_dir(dm.join("s")).context("mkdir")?;
        fs::write(dm.join("a"), "1\n").context("write")?;
        fs::write(dm.join("s/b"), "2\n").context("write")?;
        std::os::unix::fs::symlink("a", dm.join("l")).context("symlink")?;
        fs::hard_link(dm.join("a"), dm.join("h")).context("link")?;
        let before = fs::metadata(&dm).context("stat")?.ino();

        is(&lfs(cluster, &["migrate", "-m", "1"], &dm)?, &String::new())?;
        let shown = lfs(cluster, &["getdirstripe", "-y"], &dm)?;
        let wanted = "lmv_stripe_count:  1\nlmv_stripe_offset: 1\nlmv_hash_type:     fnv_1a_64,fixed\n\
                      lmv_objects:\n      - l_mdt_idx: 1\n";
        ensure(shown.starts_with(wanted), || shown.clone())?;
        ensure(fs::metadata(&dm).context("stat")?.ino() != before, || "the same inode".to_owned())?;
        for name in ["s", "a"] {
            is(&mdt_of(cluster, &dm.join(name))?, &"1".to_owned())?;
        }
        let same =
            [dm.join("a"), dm.join("h")].map(|path| fs::metadata(path).map(|it| it.ino()).ok());
        is(&same[0], &same[1])?;
        is(&fs::read_to_string(dm.join("l")).context("read")?, &"1\n".to_owned())?;
        is(&fs::read_to_string(dm.join("s/b")).context("read")?, &"2\n".to_owned())?;

        lfs(cluster, &["migrate", "-m", "0,1", "-H", "fnv_1a_64"], &dm)?;
        for path in [dm.clone(), dm.join("s")] {
            let shown = lfs(cluster, &["getdirstripe"], &path)?;
            let first = "lmv_stripe_count: 2 lmv_stripe_offset: 0 lmv_hash_type: fnv_1a_64,fixed\n";
            ensure(shown.starts_with(first), || shown.clone())?;
        }
        is(&names(&dm)?, &["a", "h", "l", "s"].map(str::to_owned).to_vec())?;
        is(&fs::metadata(dm.join("h")).context("stat")?.nlink(), &2)?;
        is(&fs::metadata(dm.join("s")).context("stat")?.nlink(), &2)?;
        // Once more there is nothing to do.
        let said = lfs(cluster, &["migrate", "-v", "-m", "0,1", "-H", "fnv_1a_64"], &dm)?;
        ensure(said.lines().all(|line| line.ends_with("already")), || said.clone())?;
        same_after_restart(cluster)?;
        fs::remove_dir_all(&dm).context("rm -r")?;
        cluster.down()?;
        cluster.fsck()?;
        cluster.up()
    });
}

#[test]
fn what_cannot_migrate_is_refused() {
    scene_of("migrate-refused", |cluster| {
        let mnt = cluster.mnt();
        let (d, f) = (mnt.join("d"), mnt.join("f"));
        make(cluster, &d)?;
        fs::write(&f, "f").context("write")?;
        for (path, mdt, code, said) in [
            (&f, "1", ENOTDIR, "cb_migrate_mdt_init: Failed to open"),
            (&d, "7", ENODEV, "migrate failed: No such device (19)"),
            (&mnt, "1", EINVAL, "migrate failed: Invalid argument (22)"),
        ] {
            let ran = cluster.run(&["lfs", "migrate", "-m", mdt, &path.to_string_lossy()])?;
            is(&ran.status.code(), &Some(code))?;
            ensure(ran.output.contains(said), || ran.output.clone())?;
        }
        cluster.must(&["lctl", "set_param", "mdt.*.enable_dir_migration=0"])?;
        let ran = cluster.run(&["lfs", "migrate", "-m", "1", &d.to_string_lossy()])?;
        is(&ran.status.code(), &Some(EPERM))
    });
}

/// Killed in the middle, with another wish refused by a line that says the command that ends it.
#[test]
fn a_migration_that_is_broken_off_is_ended_by_the_same_command() {
    scene_of("migrate-killed", |cluster| {
        let d = cluster.mnt().join("d");
        make(cluster, &d)?;
        let count = 1000;
        let name = |at: usize| format!("f{at}");
        for at in 0..count {
            fs::write(d.join(name(at)), name(at)).context("write")?;
        }
        let words = ["lfs", "migrate", "-m", "1", &d.to_string_lossy()];
        let mut child = cluster.command(&words).spawn().context("lfs")?;
        let moved = || mdt_of(cluster, &d.join(name(0))).is_ok_and(|mdt| mdt == "1");
        wait_until("the first names", PATIENCE, || {
            moved()
                || lfs(cluster, &["getdirstripe", "-H"], &d)
                    .is_ok_and(|it| it.contains("migrating"))
        })?;
        child.kill().context("kill")?;
        child.wait().context("wait")?;
        let is_between = lfs(cluster, &["getdirstripe", "-H"], &d)?.contains("migrating");
        is(&names(&d)?.len(), &count)?;
        ensure(is_between, || "it had ended".to_owned())?;
        let ran = cluster.run(&["lfs", "migrate", "-m", "0", &d.to_string_lossy()])?;
        is(&ran.status.code(), &Some(EPERM))?;
        let says = format!("run: lfs migrate -m 1 -H fnv_1a_64 {}", d.display());
        ensure(ran.output.contains(&says), || ran.output.clone())?;
        lfs(cluster, &["migrate", "-m", "1"], &d)?;
        is(&names(&d)?.len(), &count)?;
        for at in 0..count {
            is(&fs::read_to_string(d.join(name(at))).context("read")?, &name(at))?;
        }
        is(&mdt_of(cluster, &d.join(name(count - 1)))?, &"1".to_owned())?;
        same_after_restart(cluster)
    });
}

/// What is open, and a process that works in the directory, go on.
#[test]
fn what_is_open_is_used_on_while_its_directory_migrates() {
    scene_of("migrate-open", |cluster| {
        let d = cluster.mnt().join("d");
        make(cluster, &d)?;
        fs::write(d.join("f"), "before").context("write")?;
        let options = || fs::OpenOptions::new().read(true).write(true).open(d.join("f"));
        let mut file = options().context("open")?;
        let mut worker = Command::new("sh")
            .args(["-c", "echo ready; read line; cat f && ls && echo new > g && cat g"])
            .current_dir(&d)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("sh")?;
        let mut said = worker.stdout.take().ok_or("no output")?;
        let mut ready = [0; 6];
        said.read_exact(&mut ready).context("read")?;
        let mut listing = fs::read_dir(&d).context("open")?;

        lfs(cluster, &["migrate", "-m", "1"], &d)?;
        is(&mdt_of(cluster, &d)?, &"1".to_owned())?;
        // It is open: its name has moved alone.
        is(&mdt_of(cluster, &d.join("f"))?, &"0".to_owned())?;
        file.seek(SeekFrom::Start(0)).context("seek")?;
        file.write_all(b"after!").context("write")?;
        file.sync_all().context("fsync")?;
        is(&fs::read_to_string(d.join("f")).context("read")?, &"after!".to_owned())?;
        worker.stdin.take().ok_or("no input")?.write_all(b"go\n").context("write")?;
        let mut text = String::new();
        said.read_to_string(&mut text).context("read")?;
        let worked = worker.wait().context("wait")?.success();
        ensure(worked && text == "after!f\nnew\n", || format!("{worked}: {text}"))?;
        let listed = listing.next().transpose();
        ensure(!matches!(listed, Ok(None)), || {
            "an open listing ended without its names".to_owned()
        })?;
        drop(file);
        lfs(cluster, &["migrate", "-m", "0,1"], &d)?;
        is(&fs::read_to_string(d.join("f")).context("read")?, &"after!".to_owned())
    });
}

/// A shell of an ordinary user that works in a directory: on each line it says where it is, reads `f`, lists, and makes a file.
struct Worker {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    made: BTreeSet<String>,
}

impl Worker {
    fn begin(directory: &Path) -> Outcome<Self> {
        let script = "while read new; do echo $(/bin/pwd -P) $(cat f) $(echo > $new && ls); done";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .current_dir(directory)
            .uid(1000)
            .gid(1000)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("sh")?;
        let asks = child.stdin.take().ok_or("no input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, asks, answers, made: BTreeSet::from(["f".to_owned()]) })
    }

    /// All of it goes on there.
    fn works(&mut self, directory: &Path, new: &str) -> Outcome {
        writeln!(self.asks, "{new}").context("ask")?;
        let mut line = String::new();
        self.answers.read_line(&mut line).context("answer")?;
        self.made.insert(new.to_owned());
        let mut words = line.split_whitespace().map(str::to_owned);
        let place = (words.next(), words.next());
        is(&place, &(Some(directory.display().to_string()), Some("text".to_owned())))?;
        is(&words.collect(), &self.made)
    }

    fn end(self) -> Outcome {
        let Self { mut child, asks, .. } = self;
        drop(asks);
        child.wait().context("wait").map(drop)
    }
}

/// The kernel knows a directory by the same node, whichever inode it is by now: on the mount that moves it, on one that is used
/// beside that, and on one that slept.
#[test]
fn a_directory_that_moves_again_and_again_is_the_same_for_programs_in_it() {
    scene_of("migrate-again", |cluster| {
        let d = cluster.mnt().join("d");
        make(cluster, &d)?;
        let sub = d.join("in");
        fs::create_dir(&sub).context("mkdir")?;
        fs::set_permissions(&sub, fs::Permissions::from_mode(0o777)).context("chmod")?;
        fs::write(sub.join("f"), "text").context("write")?;
        let other = cluster.mount_again()?.join("d/in");
        let mut here = Worker::begin(&sub)?;
        here.works(&sub, "n0")?;
        let mut beside = Worker::begin(&other)?;
        let sleeps = fs::File::open(&other).context("open")?;
        let open = fs::File::open(&sub).context("open")?;
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).context("inotify")?;
        inotify::add_watch(&watch, &sub, inotify::WatchFlags::CREATE).context("inotify")?;
        let by = |file: &fs::File| format!("/proc/self/fd/{}", file.as_raw_fd());
        for (at, mdts) in ["1", "0,1", "0"].into_iter().enumerate() {
            lfs(cluster, &["migrate", "-m", mdts], &d)?;
            is(&mdt_of(cluster, &sub)?, &mdts[..1].to_owned())?;
            let new = format!("m{at}");
            here.works(&sub, &new)?;
            is(&fs::read_link(by(&open)).context("readlink")?, &sub)?;
            is(&fs::read_to_string(format!("{}/f", by(&open))).context("openat")?, &"text".into())?;
            is(
                &fs::metadata(&sub).context("stat")?.ino(),
                &open.metadata().context("stat")?.ino(),
            )?;
            let mut room = [std::mem::MaybeUninit::uninit(); 512];
            let mut events = inotify::Reader::new(&watch, &mut room);
            let seen = events.next().context("inotify")?;
            let seen = seen.file_name().map(|it| it.to_string_lossy().into_owned());
            is(&seen, &Some(new))?;
        }
        beside.made.extend(here.made.iter().cloned());
        beside.works(&other, "o0")?;
        is(&fs::read_link(by(&sleeps)).context("readlink")?, &other)?;
        is(&fs::read_to_string(format!("{}/f", by(&sleeps))).context("openat")?, &"text".into())?;
        here.end()?;
        beside.end()
    });
}

/// Asks where the process is, all the time, until it is to stop. Works in the directory by itself, without a name of it, so
/// that nothing but the kernel's own entry says where that is.
struct Dweller {
    stops: Arc<AtomicBool>,
    asks: std::thread::JoinHandle<Outcome<usize>>,
}

impl Dweller {
    fn begin(directory: &Path) -> Outcome<Self> {
        // As a working directory: the file system knows of no open.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::open(directory, flags, Mode::empty()).context("open")?;
        let (stops, expected) = (Arc::new(AtomicBool::new(false)), directory.to_owned());
        let is_over = Arc::clone(&stops);
        let asks = std::thread::spawn(move || {
            // What `readlink` says of an open directory is what `getcwd` says: that one that is dropped is deleted.
            let by = format!("/proc/self/fd/{}", open.as_raw_fd());
            let mut asked = 0;
            while !is_over.load(Ordering::Relaxed) {
                is(&fs::read_link(&by).context("readlink")?, &expected)?;
                asked += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(asked)
        });
        Ok(Self { stops, asks })
    }

    fn end(self) -> Outcome {
        self.stops.store(true, Ordering::Relaxed);
        let asked = self.asks.join().map_err(|_| "a thread has panicked".to_owned())??;
        ensure(asked > 0, || "it was never asked".to_owned())
    }
}

/// Names that move are absent from the stripe that they move to: while they move, and where that was broken off, the kernel is not
/// to drop them.
#[test]
fn programs_below_a_directory_that_moves_know_where_they_are_all_the_time() {
    scene_of("migrate-below", |cluster| {
        let d = cluster.mnt().join("d");
        make(cluster, &d)?;
        let below = d.join("in");
        fs::create_dir_all(below.join("deep")).context("mkdir")?;
        for at in 0..40 {
            fs::write(below.join(format!("f{at}")), "").context("write")?;
            fs::write(below.join(format!("deep/f{at}")), "").context("write")?;
        }
        let other = cluster.mount_again()?.join("d");
        let all = [below.clone(), below.join("deep"), other.join("in"), other.join("in/deep")];
        let dwellers = all.iter().map(|it| Dweller::begin(it)).collect::<Outcome<Vec<_>>>()?;
        let looks = |mount: &Path| {
            let found =
                fs::metadata(mount.join("in/f1")).and(fs::metadata(mount.join("in/deep/f1")));
            found.context("stat").map(drop)
        };
        for mdts in ["1", "0", "0,1", "1", "0,1", "0"] {
            lfs(cluster, &["migrate", "-m", mdts], &d)?;
            [&d, &other].into_iter().try_for_each(|mount| looks(mount))?;
        }
        for after in [20, 60, 120, 250] {
            let mut broken_off =
                cluster.command(&["lfs", "migrate", "-m", "1", &d.to_string_lossy()]);
            let mut broken_off = broken_off.spawn().context("lfs migrate")?;
            std::thread::sleep(Duration::from_millis(after));
            let pid = rustix::process::Pid::from_child(&broken_off);
            _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
            broken_off.wait().context("wait")?;
            std::thread::sleep(Duration::from_millis(500));
            [&d, &other].into_iter().try_for_each(|mount| looks(mount))?;
            lfs(cluster, &["migrate", "-m", "1"], &d)?;
            lfs(cluster, &["migrate", "-m", "0"], &d)?;
        }
        dwellers.into_iter().try_for_each(Dweller::end)
    });
}

/// Lists a directory, and looks at files in it that stay.
fn watch(directory: &Path, stays: &BTreeSet<String>, stops: &AtomicBool) -> Outcome<usize> {
    let mut listings = 0;
    while !stops.load(Ordering::Relaxed) {
        let listed = names(directory)?;
        let once: BTreeSet<_> = listed.iter().cloned().collect();
        is(&once.len(), &listed.len())?;
        let missing: Vec<_> = stays.difference(&once).collect();
        ensure(missing.is_empty(), || format!("listing {listings} lacks {missing:?}"))?;
        let name = stays.iter().nth(listings % stays.len()).ok_or("no name")?;
        is(&fs::read_to_string(directory.join(name)).context("read")?, name)?;
        listings += 1;
    }
    Ok(listings)
}

/// Makes files, renames them, replaces one, and removes them.
fn churn(directory: &Path, stops: &AtomicBool) -> Outcome<usize> {
    let mut rounds = 0;
    let last = directory.join("last");
    while !stops.load(Ordering::Relaxed) {
        let text = format!("n{rounds}");
        let (new, moved) = (directory.join(&text), directory.join(format!("m{rounds}")));
        fs::File::create_new(&new).context("create")?;
        fs::write(&new, &text).context("write")?;
        fs::rename(&new, &moved).context("rename")?;
        is(&fs::read_to_string(&moved).context("read")?, &text)?;
        fs::rename(&moved, &last).context("replace")?;
        is(&fs::read_to_string(&last).context("read the last")?, &text)?;
        let sub = directory.join(format!("d{rounds}"));
        fs::create_dir(&sub).context("mkdir")?;
        fs::remove_dir(&sub).context("rmdir")?;
        rounds += 1;
    }
    Ok(rounds)
}

fn beside_a_crowd(cluster: &Cluster, change: impl Fn(&Path) -> Outcome) -> Outcome {
    let d = cluster.mnt().join("d");
    make(cluster, &d)?;
    let stays: BTreeSet<String> = (0..150).map(|at| format!("s{at}")).collect();
    let nested: BTreeSet<String> = (0..20).map(|at| format!("s{at}")).collect();
    fs::create_dir(d.join("in")).context("mkdir")?;
    for (directory, names) in [(d.clone(), &stays), (d.join("in"), &nested)] {
        for name in names {
            fs::write(directory.join(name), name).context("write")?;
        }
    }
    let other = cluster.mount_again()?.join("d");
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| -> Outcome {
        let (stops, stays, nested) = (&stops, &stays, &nested);
        let watched = [&d, &other]
            .map(|d| [(d.clone(), stays), (d.join("in"), nested)])
            .into_iter()
            .flatten();
        let watchers: Vec<_> =
            watched.map(|(d, names)| scope.spawn(move || watch(&d, names, stops))).collect();
        let churning = scope.spawn(|| churn(&d, stops));
        let changed = change(&d);
        stops.store(true, Ordering::Relaxed);
        let ended = |joined: std::thread::Result<Outcome<usize>>| match joined {
            Ok(ended) => ended.and_then(|rounds| ensure(rounds > 0, || "no round".to_owned())),
            Err(_panic) => Err("a thread panicked".to_owned()),
        };
        let watched: Outcome = watchers.into_iter().try_for_each(|it| ended(it.join()));
        let churned = ended(churning.join());
        changed.and(watched).and(churned)
    })?;
    let mut left: BTreeSet<_> = names(&d)?.into_iter().collect();
    left.remove("last");
    left.remove("in");
    is(&left, &stays)?;
    is(&names(&other)?, &names(&d)?)?;
    same_after_restart(cluster)?;
    cluster.down()?;
    cluster.fsck()?;
    cluster.up()
}

#[test]
fn each_name_is_there_once_for_programs_beside_a_migration() {
    scene_of("migrate-crowd", |cluster| {
        beside_a_crowd(cluster, |d| {
            ["1", "0,1", "0"]
                .iter()
                .try_for_each(|mdts| lfs(cluster, &["migrate", "-m", mdts], d).map(drop))
        })
    });
}

#[test]
fn each_name_is_there_once_for_programs_beside_a_split_and_a_merge() {
    scene_of("split-crowd", |cluster| {
        cluster.must(&["lctl", "set_param", "mdt.*.enable_dir_restripe=1"])?;
        beside_a_crowd(cluster, |d| {
            for count in ["2", "1"] {
                lfs(cluster, &["setdirstripe", "-c", count], d)?;
                settled(cluster, d)?;
                is(
                    &lfs(cluster, &["getdirstripe", "-c"], d)?.trim().to_owned(),
                    &count.to_owned(),
                )?;
            }
            Ok(())
        })
    });
}

/// The command lines of the capture n4.
#[test]
fn directories_are_split_and_merged_as_in_lustre() {
    scene_of("split-n4", |cluster| {
        let d = cluster.mnt().join("d");
        lfs(cluster, &["mkdir", "-i", "0"], &d)?;
        for at in 1..=100 {
            fs::write(d.join(format!("f{at}")), format!("{at}\n")).context("write")?;
        }
        fs::create_dir(d.join("sub")).context("mkdir")?;
        let of = |name: &str| fs::metadata(d.join(name)).map(|it| it.ino()).context("stat");
        let before = [of("")?, of("f1")?, of("sub")?];
        // Lustre does not split what is there unless it is allowed.
        let ran = cluster.run(&["lfs", "setdirstripe", "-c", "2", &d.to_string_lossy()])?;
        is(&ran.status.code(), &Some(17))?;
        cluster.must(&["lctl", "set_param", "mdt.*.enable_dir_restripe=1"])?;
        lfs(cluster, &["setdirstripe", "-c", "2"], &d)?;
        is(&names(&d)?.len(), &101)?;
        is(&settled(cluster, &d)?, &"fnv_1a_64".to_owned())?;
        let shown = lfs(cluster, &["getdirstripe"], &d)?;
        let first = "lmv_stripe_count: 2 lmv_stripe_offset: 0 lmv_hash_type: fnv_1a_64\n";
        ensure(shown.starts_with(first), || shown.clone())?;
        is(&fs::read_to_string(d.join("f50")).context("read")?, &"50\n".to_owned())?;
        let after = [of("")?, of("f1")?, of("sub")?];
        ensure(after[0] != before[0] && after[1..] == before[1..], || format!("{after:?}"))?;
        is(&fs::metadata(&d).context("stat")?.nlink(), &3)?;
        fs::write(d.join("afterwards"), "new\n").context("write")?;
        fs::remove_file(d.join("f100")).context("unlink")?;
        lfs(cluster, &["setdirstripe", "-c", "1"], &d)?;
        is(&settled(cluster, &d)?, &"fnv_1a_64,fixed".to_owned())?;
        is(&lfs(cluster, &["getdirstripe", "-c"], &d)?.trim().to_owned(), &"1".to_owned())?;
        is(&names(&d)?.len(), &101)?;
        is(&[of("")?, of("f1")?, of("sub")?], &after)?;
        same_after_restart(cluster)
    });
}
