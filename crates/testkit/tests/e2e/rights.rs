//! Several users: whom a mount lets in, what access lists do, and who may mount.
#![allow(
    clippy::disallowed_methods,
    reason = "what the kernel keeps of a directory runs out in real time"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sheen_testkit::cluster::{Cluster, program};
use sheen_testkit::scene::{play, scene};
use sheen_workloads::process::{self, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(60);
const ALICE: u32 = 12_001;
const BOB: u32 = 12_002;
const PROJECT: u32 = 12_100;
/// A user whose name the system knows: `fusermount3` wants that.
pub(crate) const UNPRIVILEGED: u32 = 65_534;

/// A user with further groups, and a directory to stand in.
pub(crate) struct User<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) folder: &'a Path,
    pub(crate) uid: u32,
    pub(crate) groups: &'a [u32],
}

impl User<'_> {
    /// Runs a line of shell, and answers whether it succeeded, and what it printed.
    pub(crate) fn tries(&self, line: &str) -> Outcome<(bool, String)> {
        let id = self.uid.to_string();
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id]);
        match groups.is_empty() {
            true => command.arg("--clear-groups"),
            false => command.args(["--groups", &groups.join(",")]),
        };
        // The directory is entered before the user is: what lies above it does not matter.
        command.args(["sh", "-c", line]).current_dir(self.folder);
        let done = process::run(&mut command, &self.cluster.logs().join("user"), PATIENCE)?;
        Ok((done.status.success(), done.output))
    }

    pub(crate) fn can(&self, line: &str) -> Outcome<String> {
        let (done, output) = self.tries(line)?;
        ensure(done, || format!("user {} cannot `{line}`: {output}", self.uid))?;
        Ok(output.trim().to_owned())
    }

    pub(crate) fn cannot(&self, line: &str) -> Outcome {
        let (done, output) = self.tries(line)?;
        ensure(!done, || format!("user {} can `{line}`: {output}", self.uid))?;
        ensure(output.contains("ermission denied"), || {
            format!("user {} is refused `{line}` for another reason: {output}", self.uid)
        })
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> Outcome {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).context(path.display())
}

pub(crate) fn mode(path: &Path) -> Outcome<u32> {
    Ok(fs::metadata(path).context(path.display())?.permissions().mode() & 0o7777)
}

/// What Lustre shows every user of a mount, and what it shows none.
#[test]
fn users_of_roots_mount_ask_what_lustre_shows_them() {
    scene("users-ask", 2, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        fs::write(mnt.join("open"), "text").context("write")?;
        fs::write(mnt.join("closed"), "text").context("write")?;
        set_mode(&mnt.join("closed"), 0o600)?;
        fs::create_dir(mnt.join("private")).context("mkdir")?;
        fs::write(mnt.join("private/f"), "text").context("write")?;
        set_mode(&mnt.join("private"), 0o700)?;
        let user = User { cluster, folder: &mnt, uid: ALICE, groups: &[] };
        let (lfs, place) = (format!("{} lfs", program()?.display()), mnt.display().to_string());
        for words in ["osts", "mdts", "getname", "pool_list"] {
            let shown = user.can(&format!("{lfs} {words} {place}"))?;
            let roots = cluster.must(&["lfs", words, &place])?;
            ensure(shown == roots.trim(), || format!("{words}: {shown}\nroot: {roots}"))?;
        }
        let df = user.can(&format!("{lfs} df {place}"))?;
        let shown = ["MDT0000_UUID", "OST0000_UUID", "OST0001_UUID", "filesystem_summary"];
        ensure(shown.iter().all(|word| df.contains(word)), || df.clone())?;
        // Without a path it is that of all mounts that let the user in.
        ensure(user.can(&format!("{lfs} df"))?.contains(&place), || "not listed".to_owned())?;
        // Of a layout the directory decides, which Lustre asks; not the file.
        user.can(&format!("{lfs} getstripe open && {lfs} getstripe closed"))?;
        user.cannot(&format!("{lfs} getstripe private/f"))?;
        let fid = user.can(&format!("{lfs} path2fid open"))?;
        let (done, output) = user.tries(&format!("{lfs} fid2path {place} {fid}"))?;
        ensure(!done && output.contains("Operation not permitted"), || output.clone())?;
        let path = cluster.must(&["lfs", "fid2path", &place, &fid])?;
        ensure(path.trim() == format!("{place}/open"), || path.clone())
    });
}

#[test]
fn a_directory_that_is_closed_is_closed_to_other_users_at_once() {
    scene("closed-directory", 1, LIMIT, |cluster| {
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        let private = first.join("private");
        fs::create_dir_all(private.join("b/c")).context("mkdir")?;
        fs::write(private.join("b/c/f"), "secret").context("write")?;
        let bob = User { cluster, folder: &first, uid: BOB, groups: &[] };
        let beyond = User { folder: &second, ..bob };
        let inside = User { folder: &private, ..bob };
        // By the same mount, then by the other one; both have the names in the kernel.
        for closer in [&first, &second] {
            bob.can(
                "test -x private && cat private/b/c/f && ls private/b && ! test -e private/no",
            )?;
            inside.can("cat b/c/f")?;
            beyond.can("cat private/b/c/f")?;
            set_mode(&closer.join("private"), 0o700)?;
            for user in [&bob, &beyond] {
                user.cannot("cat private/b/c/f")?;
                user.cannot("ls private/b")?;
                user.cannot("stat private/no")?;
                user.cannot("env -C private true")?;
            }
            inside.cannot("stat b")?;
            inside.cannot("stat no")?;
            ensure(fs::read(private.join("b/c/f")).context("read")? == b"secret", String::new)?;
            set_mode(&closer.join("private"), 0o755)?;
        }
        // Other users may search it, its own group may not.
        chown(&private, None, Some(PROJECT)).context("chgrp")?;
        set_mode(&private, 0o701)?;
        bob.can("cat private/b/c/f")?;
        User { groups: &[PROJECT], ..bob }.cannot("cat private/b/c/f")
    });
}

#[test]
fn a_file_that_is_moved_into_a_private_directory_is_not_found_there_by_other_users() {
    scene("moved-private", 1, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        let bob = User { cluster, folder: &mnt, uid: BOB, groups: &[] };
        for (folder, mode) in [("open", 0o755), ("private", 0o700), ("later", 0o755)] {
            fs::create_dir(mnt.join(folder)).context("mkdir")?;
            set_mode(&mnt.join(folder), mode)?;
        }
        fs::write(mnt.join("open/f"), "text").context("write")?;
        let moves = |from: &str, to: &str| fs::rename(mnt.join(from), mnt.join(to)).context(from);
        let refused_soon = || {
            wait_until("the end of the name", Duration::from_secs(1), || {
                bob.tries("cat private/f").is_ok_and(|(done, _)| !done)
            })
        };
        bob.can("cat open/f && cat open/f")?;
        moves("open/f", "private/f")?;
        refused_soon()?;
        bob.cannot("cat private/f")?;
        // Into one that is closed after that.
        moves("private/f", "open/f")?;
        bob.can("cat open/f && cat open/f")?;
        moves("open/f", "later/f")?;
        bob.can("cat later/f")?;
        set_mode(&cluster.mount_again()?.join("later"), 0o700)?;
        bob.cannot("cat later/f")
    });
}

/// Names of which the kernel is to be notified one by one, for each of which it takes the directory's lock.
const MANY: u32 = 2000;

/// Programs that look names up without pause, each of which holds the directory's lock. They end with this.
struct Readers(Vec<Child>);

impl Readers {
    fn start(folder: &Path) -> Outcome<Self> {
        let line = "while :; do i=0; while [ $i -lt 4000 ]; do [ -e no$i ]; i=$((i+1)); done; done";
        let id = BOB.to_string();
        let start = |_| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "sh", "-c", line]);
            command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().context("start a reader")
        };
        (0..3).map(start).collect::<Outcome<Vec<_>>>().map(Self)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        for reader in &mut self.0 {
            _ = reader.kill();
            _ = reader.wait();
        }
    }
}

#[test]
fn a_directory_that_other_users_read_without_pause_is_closed_at_once_too() {
    scene("busy-directory", 1, LIMIT, |cluster| {
        let private = cluster.mnt().join("private");
        fs::create_dir_all(private.join("b/c")).context("mkdir")?;
        for number in 0..MANY {
            fs::write(private.join(format!("f{number}")), "").context("write")?;
        }
        let bob = User { cluster, folder: &private, uid: BOB, groups: &[] };
        let count = format!(
            "n=0; i=0; while [ $i -lt {MANY} ]; do [ -e f$i ] && n=$((n+1)); i=$((i+1)); done; \
             [ -e b/c ] && n=$((n+1)); echo $n"
        );
        ensure(bob.can(&count)? == (MANY + 1).to_string(), || "they are not seen".to_owned())?;
        let _readers = Readers::start(&private)?;
        std::thread::sleep(Duration::from_secs(1));
        set_mode(&private, 0o700)?;
        let seen = bob.can(&count)?;
        ensure(seen == "0", || format!("{seen} names are seen in a directory that is closed"))?;
        ensure(private.join("b/c").exists() && private.join("f1").exists(), String::new)
    });
}

/// As [`Readers`]; each says when it began with the last look that was not refused.
fn start_looks(folder: &Path) -> Outcome<Vec<Child>> {
    let id = BOB.to_string();
    let start = |_| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
        command.arg(env!("CARGO_BIN_EXE_sheen-probe")).args(["stats", "until", "."]);
        command.current_dir(folder).stdout(Stdio::piped()).spawn().context("start a look")
    };
    (0..3).map(start).collect()
}

fn last_look(look: Child) -> Outcome<u128> {
    let said = look.wait_with_output().context("the end of a look")?;
    String::from_utf8_lossy(&said.stdout).trim().parse().context("when it was refused")
}

#[test]
fn a_directory_that_another_mount_closes_is_closed_when_that_returns() {
    scene("closed-elsewhere", 1, LIMIT, |cluster| {
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        let private = first.join("private");
        fs::create_dir_all(private.join("b")).context("mkdir")?;
        for round in 0..5 {
            let looks = start_looks(&private)?;
            std::thread::sleep(Duration::from_millis(700 + 17 * round));
            set_mode(&second.join("private"), 0o700)?;
            let closed = SystemTime::now().duration_since(UNIX_EPOCH).context("now")?.as_nanos();
            let last = looks.into_iter().map(last_look).collect::<Outcome<Vec<_>>>()?;
            let late = last.iter().max().map_or(0, |last| last.saturating_sub(closed));
            ensure(late == 0, || format!("round {round}: open {late} ns after it was closed"))?;
            let early = last.iter().all(|last| closed - last < 2_000_000_000);
            ensure(early, || format!("round {round}: refused before it was closed"))?;
            set_mode(&second.join("private"), 0o755)?;
        }
        Ok(())
    });
}

#[test]
fn access_lists_count_on_both_mounts() {
    scene("access-lists", 1, LIMIT, |cluster| {
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        set_mode(&first, 0o777)?;
        let alice = User { cluster, folder: &first, uid: ALICE, groups: &[] };
        let bob = User { cluster, folder: &second, uid: BOB, groups: &[] };
        let member = User { uid: BOB + 1, groups: &[9, PROJECT, 10], ..bob };
        alice.can("mkdir -m 700 d && echo text > d/f && chmod 640 d/f")?;
        bob.cannot("cat d/f")?;
        alice.can(&format!("setfacl -m u:{BOB}:rx d && setfacl -m u:{BOB}:rw d/f"))?;
        bob.can("cat d/f && echo more >> d/f && test -w d/f && ! test -x d/f")?;
        bob.cannot("touch d/new")?;
        let (changed, output) = bob.tries(&format!("setfacl -m u:{BOB}:rwx d"))?;
        ensure(!changed, || format!("not the owner, and setfacl succeeds: {output}"))?;
        let shown = bob.can("getfacl -nc d/f")?;
        ensure(shown.contains(&format!("user:{BOB}:rw-")), || shown.clone())?;
        member.cannot("cat d/f")?;
        alice.can(&format!("setfacl -m g:{PROJECT}:x d && setfacl -m g:{PROJECT}:r d/f"))?;
        member.can("cat d/f && ! test -w d/f")?;
        // The mask, which a chmod changes, cuts all of them but the owner.
        alice.can("chmod g-w d/f")?;
        bob.cannot("sh -c 'echo x >> d/f'")?;
        alice.can("setfacl -b d")?;
        bob.cannot("cat d/f")?;
        member.cannot("cat d/f")
    });
}

#[test]
fn what_is_made_inherits_lists_and_groups() {
    scene("inherit", 1, LIMIT, |cluster| {
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        set_mode(&first, 0o777)?;
        let alice = User { cluster, folder: &first, uid: ALICE, groups: &[PROJECT] };
        let bob = User { cluster, folder: &second, uid: BOB, groups: &[] };
        // With a default list the umask does not count; the mode asked for does.
        alice.can(&format!("mkdir d && setfacl -d -m u:{BOB}:rwx,g::rx,o::- d"))?;
        alice.can("umask 077; touch d/f; mkdir d/sub; umask 0; install -m 600 /dev/null d/g")?;
        let modes = ["d/f", "d/sub"].map(|path| mode(&second.join(path)));
        let [file, sub] = modes;
        ensure((file.clone()?, sub.clone()?) == (0o660, 0o770), || format!("{file:?} {sub:?}"))?;
        bob.can("echo x > d/f && touch d/sub/own")?;
        let shown = bob.can("getfacl -nc d/sub/own")?;
        ensure(shown.contains(&format!("user:{BOB}:rwx")), || shown.clone())?;
        bob.cannot("cat d/g")?;
        // Without one it does, and new entries of a set-group-id directory have its group.
        alice.can(&format!("mkdir s && chgrp {PROJECT} s && chmod 2775 s"))?;
        alice.can("umask 027; touch s/f; mkdir s/sub")?;
        ensure(mode(&second.join("s/f"))? == 0o640, || "the umask counts".to_owned())?;
        let groups = alice.can("stat -c %g s/f s/sub")?;
        let expected = format!("{PROJECT}\n{PROJECT}");
        ensure(groups == expected, || groups.clone())?;
        ensure(mode(&second.join("s/sub"))? == 0o2750, || "the bit is inherited".to_owned())
    });
}

#[test]
fn only_owners_change_and_writers_take_set_id_bits_off() {
    scene("owners", 1, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        set_mode(&mnt, 0o1777)?;
        let alice = User { cluster, folder: &mnt, uid: ALICE, groups: &[PROJECT] };
        let bob = User { cluster, folder: &mnt, uid: BOB, groups: &[] };
        alice.can("cp /bin/true f && chmod 755 f && ln -s f link && ./f && test -x f")?;
        let refused = |line: &str| -> Outcome {
            let (done, output) = bob.tries(line)?;
            let why = output.contains("not permitted") || output.contains("ermission denied");
            ensure(!done && why, || format!("`{line}`: {output}"))
        };
        for line in [
            "chmod 777 f",
            "touch f",
            "touch -d 2001-01-01 f",
            "rm -f f",
            "mv f g",
            "truncate -s 1 f",
            "ln -sf x link",
            "dd if=/dev/null of=f",
        ] {
            refused(line)?;
        }
        alice.can(&format!("chmod 666 f && chgrp {PROJECT} f"))?;
        refused(&format!("chgrp {BOB} f"))?;
        bob.can("touch f")?;
        refused("touch -d 2001-01-01 f")?;
        refused("./f")?;
        for change in [
            ": > f",
            "echo x > f",
            "echo x >> f",
            "truncate -s 2 f",
            "dd if=/dev/zero of=f count=1 conv=notrunc",
        ] {
            alice.can("chmod 6777 f")?;
            bob.can(change)?;
            ensure(mode(&mnt.join("f"))? == 0o777, || format!("after `{change}`"))?;
        }
        Ok(())
    });
}

#[test]
fn root_is_squashed_by_the_mdt_and_in_the_cache() {
    scene("squash", 1, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        set_mode(&mnt, 0o1777)?;
        let alice = User { cluster, folder: &mnt, uid: ALICE, groups: &[] };
        alice.can("mkdir -m 700 d && echo secret > d/f && mkdir -m 755 open")?;
        let read = || fs::read(mnt.join("d/f")).map(drop).map_err(|error| error.kind());
        let denied = Err(std::io::ErrorKind::PermissionDenied);
        ensure(read().is_ok(), || "root reads everything".to_owned())?;
        let set = |value: &str| cluster.must(&["lctl", "set_param", value]);
        set("mdt.*.root_squash=12099:12098")?;
        set("llite.*.root_squash=12099:12098")?;
        ensure(read() == denied, || format!("root reads: {:?}", read()))?;
        let made = fs::create_dir(mnt.join("open/no")).map_err(|error| error.kind());
        ensure(made == denied, || format!("root makes: {made:?}"))?;
        fs::write(mnt.join("mine"), "").context("write")?;
        let owner = alice.can("stat -c %u:%g mine")?;
        ensure(owner == "12099:12098", || owner.clone())?;
        for kind in ["mdt", "llite"] {
            let name = format!("{kind}.*.root_squash");
            let shown = cluster.must(&["lctl", "get_param", "-n", &name])?;
            ensure(shown.trim() == "12099:12098", || shown.clone())?;
            set(&format!("{kind}.*.nosquash_nids=*@tcp"))?;
        }
        ensure(read().is_ok(), || format!("root is trusted here: {:?}", read()))?;
        fs::create_dir(mnt.join("open/yes")).context("mkdir")?;
        let refused = cluster.run(&["lctl", "set_param", "mdt.*.root_squash=everyone"])?;
        ensure(!refused.status.success(), || refused.output.clone())
    });
}

/// A mount point of a user's own. Dropped, it is taken away.
pub(crate) struct Home(pub(crate) PathBuf);

impl Home {
    /// With a mount point `m` and a run folder `run`, both the user's, below a directory that all may enter.
    pub(crate) fn of(user: u32) -> Outcome<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sheen-home-{}-{number}", std::process::id());
        let home = Self(std::env::temp_dir().join(name));
        for folder in ["m", "run", "own"] {
            let path = home.0.join(folder);
            fs::create_dir_all(&path).context("mkdir")?;
            set_mode(&path, 0o700)?;
            chown(path, Some(user), Some(user)).context("chown")?;
        }
        Ok(home)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let unmount = Command::new("fusermount3").args(["-u", "-z"]).arg(self.0.join("m")).output();
        if let Err(error) = unmount {
            eprintln!("fusermount3: {error}");
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_ordinary_user_mounts() {
    // Only if root lets every user in.
    let options = ["--port", "9988", "--listen", "--accept", "all"];
    let cluster = Cluster::start_with("user-mount", 1, &options);
    play(&Arc::new(cluster.unwrap()), LIMIT, |cluster| {
        set_mode(&cluster.mnt(), 0o777)?;
        // What udev does wherever it runs.
        set_mode(Path::new("/dev/fuse"), 0o666)?;
        let home = Home::of(UNPRIVILEGED)?;
        let user = User { cluster, folder: &home.0, uid: UNPRIVILEGED, groups: &[] };
        let run = home.0.join("run");
        let sheen = program()?;
        let port = cluster.port().map_or(String::new(), |port| format!("-o port={port}"));
        let line = format!(
            "SHEEN_RUN_DIR={} {} mount {port} {} m",
            run.display(),
            sheen.display(),
            cluster.source()
        );
        user.can(&line)?;
        user.can("cd m && umask 077 && mkdir own && echo mine > own/f && cat own/f && rm own/f")?;
        let made = fs::metadata(cluster.mnt().join("own")).context("stat")?;
        let owner = std::os::unix::fs::MetadataExt::uid(&made);
        ensure(owner == UNPRIVILEGED, || format!("owned by {owner}"))?;
        let mount = home.0.join("m");
        let refused = fs::read_dir(&mount).err().and_then(|error| error.raw_os_error());
        ensure(refused == Some(13), || format!("root looks into it: {refused:?}"))?;
        user.can("fusermount3 -u m")?;
        wait_until("the end of the mount", PATIENCE, || {
            process::with_environment(&format!("SHEEN_RUN_DIR={}", run.display())).is_empty()
        })
    });
}
