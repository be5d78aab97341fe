//! Pipes, sockets, devices and programs of other users: what their modes allow.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, ensure, process};

use crate::rights::{User, set_mode};

const LIMIT: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(60);
const ALICE: u32 = 12_001;
const BOB: u32 = 12_002;
const PROJECT: u32 = 12_100;

/// `programs/special.c`, compiled.
pub(crate) struct Special<'a> {
    cluster: &'a Cluster,
    program: PathBuf,
}

impl<'a> Special<'a> {
    pub(crate) fn compile(cluster: &'a Cluster, program: PathBuf) -> Outcome<Self> {
        let source = cluster.logs().join("special.c");
        fs::write(&source, include_str!("programs/special.c")).context("the source")?;
        let built = cluster.logs().join("special");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-o"]).arg(&built).arg(&source);
        let done = process::run(&mut compiler, &cluster.logs().join("cc"), PATIENCE)?;
        ensure(done.status.success(), || done.output.clone())?;
        fs::copy(&built, &program).context("copy")?;
        set_mode(&program, 0o755)?;
        Ok(Self { cluster, program })
    }

    /// What it prints.
    pub(crate) fn says(&self, words: &[&str], paths: &[&Path]) -> Outcome<String> {
        let mut command = Command::new(&self.program);
        command.args(words).args(paths);
        let done = process::run(&mut command, &self.cluster.logs().join("special"), PATIENCE)?;
        ensure(done.status.success(), || done.output.clone())?;
        Ok(done.output.trim().to_owned())
    }
}

fn make_node(path: &Path, kind: FileType, device: u64) -> Outcome {
    rustix::fs::mknodat(CWD, path, kind, Mode::from(0o600), device).context(path.display())
}

const LIST: &str = "system.posix_acl_access";

/// An access list by which besides the owner this user may read and write.
fn list_for(user: u32) -> Vec<u8> {
    const NO_ID: u32 = u32::MAX;
    let entries = [(0x01, 6, NO_ID), (0x02, 6, user), (0x04, 0, NO_ID), (0x10, 6, NO_ID)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries.into_iter().chain([(0x20, 0, NO_ID)]) {
        list.extend(u16::to_le_bytes(tag));
        list.extend(u16::to_le_bytes(rights));
        list.extend(u32::to_le_bytes(id));
    }
    list
}

/// Opened for both, without waiting for the other end.
fn open_pipe(path: &Path) -> Outcome<File> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let open = File::options().read(true).write(true).custom_flags(nonblock).open(path);
    open.context(path.display())
}

#[test]
fn a_pipe_or_socket_is_reached_by_those_whom_its_mode_lets() {
    scene("special", 1, LIMIT, |cluster| {
        let mnt = cluster.mnt();
        set_mode(&mnt, 0o777)?;
        Special::compile(cluster, mnt.join("special"))?;
        let alice = User { cluster, folder: &mnt, uid: ALICE, groups: &[] };
        let member = User { uid: BOB, groups: &[PROJECT], ..alice };
        let pipe = mnt.join("pipe");
        make_node(&pipe, FileType::Fifo, 0)?;
        let mut end = open_pipe(&pipe)?;
        let socket = UnixListener::bind(mnt.join("socket")).context("bind")?;
        set_mode(&mnt.join("socket"), 0o600)?;
        let says = |user: &User<'_>, what: &str, wanted: &str| -> Outcome {
            let said = user.can(&format!("./special {what}"))?;
            ensure(said == wanted, || format!("{} {what}: {said}", user.uid))
        };
        let connects = || UnixStream::connect(mnt.join("socket")).map(drop).context("connect");
        for round in 0..3 {
            end.write_all(b"secret").context("write")?;
            connects()?;
            for user in [&alice, &member] {
                for way in ["take", "reopen"] {
                    says(user, &format!("{way} pipe"), "Resource temporarily unavailable")?;
                }
                says(user, "connect socket", "Connection refused")?;
                // It looks the same to them.
                let shown = user.can("stat -c '%F %a %u %h %i' pipe; stat -c '%F %a' socket")?;
                let known = fs::symlink_metadata(&pipe).context("stat")?;
                let wanted = format!("fifo 600 0 1 {}\nsocket 600", known.ino());
                ensure(shown == wanted, || format!("round {round}: {shown}"))?;
            }
            let mut got = [0; 6];
            end.read_exact(&mut got).context("read")?;
            ensure(&got == b"secret", || "taken by another".to_owned())?;
            connects()?;
        }
        // Let in by mode, group, list, and out again.
        let special = ["pipe", "socket"].map(|name| mnt.join(name));
        let open = |how: &str| -> Outcome {
            special.iter().try_for_each(|path| match how {
                "mode" => set_mode(path, 0o666),
                "group" => {
                    chown(path, None, Some(PROJECT)).context("chgrp")?;
                    set_mode(path, 0o660)
                }
                _ => rustix::fs::setxattr(path, LIST, &list_for(ALICE), XattrFlags::empty())
                    .context("an access list"),
            })
        };
        let close = || -> Outcome {
            special.iter().try_for_each(|path| {
                let _ = rustix::fs::removexattr(path, LIST);
                set_mode(path, 0o600)
            })
        };
        for (user, how) in [(&alice, "mode"), (&member, "group"), (&alice, "list")] {
            open(how)?;
            end.write_all(b"open").context("write")?;
            says(user, "take pipe", "got open")?;
            says(user, "connect socket", "connected")?;
            close()?;
            says(user, "take pipe", "Resource temporarily unavailable")?;
            says(user, "connect socket", "Connection refused")?;
        }
        drop(socket);
        // Their own, under several names; what the directory lets them do with those of other users.
        alice.can("mkfifo -m 600 mine && mv mine m2 && ln m2 m3 && (echo x > m2 &) && cat m3")?;
        alice.can("rm m2 m3 && rm -f pipe socket && ! test -e pipe").map(drop)
    });
}

/// What the kernel says where it judges modes, as Linux does of its own file systems.
#[test]
fn the_kernel_judges_where_it_is_asked_to() {
    scene("judged", 1, LIMIT, |cluster| {
        let (plain, mnt) = (cluster.mnt(), cluster.mount_with(&["default_permissions,dev"])?);
        set_mode(&mnt, 0o777)?;
        Special::compile(cluster, mnt.join("special"))?;
        let alice = User { cluster, folder: &mnt, uid: ALICE, groups: &[] };
        let member = User { uid: BOB, groups: &[9, PROJECT], ..alice };
        let pipe = mnt.join("pipe");
        make_node(&pipe, FileType::Fifo, 0)?;
        make_node(&mnt.join("zero"), FileType::CharacterDevice, rustix::fs::makedev(1, 5))?;
        let socket = UnixListener::bind(mnt.join("socket")).context("bind")?;
        set_mode(&mnt.join("socket"), 0o600)?;
        let mut end = open_pipe(&pipe)?;
        alice.can("mkdir -m 700 own && echo secret > own/f && cp /bin/true own/program")?;
        for _ in 0..2 {
            for refused in ["take pipe", "reopen pipe", "connect socket", "take zero"] {
                let said = alice.can(&format!("./special {refused}"))?;
                ensure(said == "Permission denied", || format!("{refused}: {said}"))?;
            }
            member.cannot("cat own/f")?;
            alice.can("cat own/f && ./own/program")?;
        }
        // Half of a pipe: to be read.
        set_mode(&pipe, 0o644)?;
        end.write_all(b"open").context("write")?;
        let read = alice.can("dd if=pipe bs=4 count=1 2> /dev/null")?;
        ensure(read == "open", || read.clone())?;
        alice.cannot("sh -c 'echo x > pipe'")?;
        // By lists and groups, and as another mount changes them.
        let list = |path: &Path| {
            let set = rustix::fs::setxattr(path, LIST, &list_for(ALICE), XattrFlags::empty());
            set.context("an access list")
        };
        list(&plain.join("socket"))?;
        alice.can("./special connect socket | grep connected")?;
        chown(plain.join("pipe"), None, Some(PROJECT)).context("chgrp")?;
        set_mode(&plain.join("pipe"), 0o660)?;
        member.can("./special take pipe | grep -v denied")?;
        alice.can("chmod 640 own/f && chmod 711 own")?;
        member.cannot("cat own/f")?;
        list(&plain.join("own/f"))?;
        set_mode(&plain.join("own"), 0o755)?;
        member.cannot("cat own/f")?;
        set_mode(&plain.join("own/f"), 0o644)?;
        rustix::fs::removexattr(plain.join("own/f"), LIST).context("no list")?;
        set_mode(&plain.join("own/f"), 0o644)?;
        member.can("cat own/f && ls own")?;
        set_mode(&plain.join("own"), 0o700)?;
        member.cannot("cat own/f")?;
        drop(socket);
        Ok(())
    });
}

#[test]
fn a_device_is_opened_by_those_whom_its_mode_lets_where_devices_work() {
    let cluster = Cluster::start_with("device-files", 1, &["-o", "dev"]);
    sheen_testkit::scene::play(&std::sync::Arc::new(cluster.unwrap()), LIMIT, |cluster| {
        let mnt = cluster.mnt();
        set_mode(&mnt, 0o755)?;
        let (null, zero) = (rustix::fs::makedev(1, 3), rustix::fs::makedev(1, 5));
        make_node(&mnt.join("null"), FileType::CharacterDevice, null)?;
        make_node(&mnt.join("zero"), FileType::CharacterDevice, zero)?;
        set_mode(&mnt.join("null"), 0o666)?;
        let alice = User { cluster, folder: &mnt, uid: ALICE, groups: &[] };
        for _ in 0..2 {
            fs::write(mnt.join("null"), b"x").context("root writes")?;
            File::open(mnt.join("zero")).context("root reads")?;
            alice.can("echo x > null")?;
            let (read, said) = alice.tries("head -c 1 zero")?;
            ensure(!read && said.contains("No such device"), || said.clone())?;
            let (wrote, said) = alice.tries("echo x > zero")?;
            ensure(!wrote && said.contains("create zero"), || said.clone())?;
        }
        let kind = fs::metadata(mnt.join("zero")).context("stat")?;
        ensure(kind.file_type().is_char_device() && kind.rdev() == zero, || format!("{kind:?}"))?;
        // Elsewhere no program opens them, and all see what they are.
        let other = cluster.mount_again()?;
        let opened = File::open(other.join("null"));
        let errno = opened.err().and_then(|error| Errno::from_io_error(&error));
        ensure(errno == Some(Errno::ACCESS), || format!("{errno:?}"))?;
        let shown = User { folder: &other, ..alice }.can("stat -c '%t %T' zero")?;
        ensure(shown == "1 5", || shown.clone())
    });
}

#[test]
fn a_program_is_executed_by_those_who_may_not_read_it() {
    scene("execute", 2, LIMIT, |cluster| {
        let (mnt, other) = (cluster.mnt(), cluster.mount_again()?);
        set_mode(&mnt, 0o755)?;
        let put = |name: &str, mode: u32| -> Outcome {
            fs::copy("/bin/sleep", mnt.join(name)).context("copy")?;
            set_mode(&mnt.join(name), mode)
        };
        put("executable", 0o711)?;
        put("closed", 0o700)?;
        put("readable", 0o644)?;
        put("unreadable", 0o751)?;
        fs::write(mnt.join("script"), "#!/bin/sh\necho done\n").context("write")?;
        for folder in [&mnt, &other] {
            let alice = User { cluster, folder, uid: ALICE, groups: &[] };
            for _ in 0..2 {
                alice.can("./executable 0 && ./unreadable 0")?;
                alice.cannot("cat executable")?;
                alice.cannot("./closed 0")?;
                alice.cannot("./readable 0")?;
                // Its interpreter reads it.
                set_mode(&mnt.join("script"), 0o711)?;
                alice.cannot("./script")?;
                set_mode(&mnt.join("script"), 0o755)?;
                alice.can("./script")?;
            }
        }
        // What is written is not executed, and the other way round, on all mounts.
        let writer = File::options().write(true).open(other.join("executable")).context("open")?;
        let alice = User { cluster, folder: &mnt, uid: ALICE, groups: &[] };
        let (ran, said) = alice.tries("./executable 0")?;
        ensure(!ran && said.contains("busy"), || said.clone())?;
        drop(writer);
        alice.can("until ./executable 0; do :; done")?;
        let mut runs = std::process::Command::new(mnt.join("executable"));
        let mut running = runs.arg("100").spawn().context("execute")?;
        let opened = File::options().write(true).open(other.join("executable"));
        running.kill().context("kill")?;
        running.wait().context("wait")?;
        let errno = opened.err().and_then(|error| Errno::from_io_error(&error));
        ensure(errno == Some(Errno::TXTBSY), || format!("written while it runs: {errno:?}"))
    });
}
