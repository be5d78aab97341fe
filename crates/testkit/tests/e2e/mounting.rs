//! Mounting as administrators do: mount(8) and umount(8) with their helpers, `/etc/fstab`, names of hosts; and what the
//! options do; files by their FIDs.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, XattrFlags, flock, getxattr, setxattr};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use sheen_testkit::cluster::{Cluster, is_mounted, program};
use sheen_testkit::scene::{scene, without_other_mounts};
use sheen_workloads::process::{self, wait_until};
use sheen_workloads::{Context, Outcome, ensure};

use crate::rights::User;

const LIMIT: Duration = Duration::from_secs(300);
/// Longer than a file stays open that is removed.
const GONE: Duration = Duration::from_secs(60);
const ALICE: u32 = 12_021;

/// Runs a script of shell as an administrator of a machine that has Sheen's helpers: in a mount namespace with `/sbin`,
/// `/etc` and `/run` of its own. `$SRC` is the file system, `$PORT` an option that it needs, `$M` a directory.
fn administer(cluster: &Cluster, script: &str) -> Outcome<String> {
    let own = cluster.mnt().with_file_name("machine");
    let (own, program) = (own.display(), program()?);
    let port = cluster.port().unwrap_or_else(|| "988".to_owned());
    let line = format!(
        "set -eu; {}\n\
         mkdir -p {own}/sbin {own}/m; mount -t tmpfs none /run; cp -a /etc {own}/etc\n\
         mkdir -p {own}/etc/lustre; mount --bind {own}/etc /etc\n\
         for name in mount.lustre mount.fuse.lustre umount.lustre umount.fuse.lustre; do ln -s {} {own}/sbin/$name; done\n\
         mount --bind {own}/sbin /sbin\n\
         SRC={} PORT=port={port} M={own}/m\n{script}",
        without_other_mounts("/nothing"),
        program.display(),
        cluster.source(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &line]);
    command.env("SHEEN_RUN_DIR", cluster.sockets());
    process::must(&mut command, &cluster.logs().join("machine"), LIMIT)
}

/// The lines that the script printed.
fn lines(output: &str) -> Vec<&str> {
    output.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

fn must_be(found: &[&str], wanted: &[&str]) -> Outcome {
    ensure(found == wanted, || format!("{found:#?}\ninstead of {wanted:#?}"))
}

#[test]
fn a_line_of_fstab_is_mounted_changed_and_unmounted() {
    const SCRIPT: &str = "
        echo \"$SRC $M lustre defaults,_netdev,nofail,x-systemd.requires=a.service,$PORT 0 0\" > /etc/fstab
        shown() { findmnt -n -o \"$1\" $M | sed s/,user_id.*//; }
        mount -a; shown FSTYPE; shown OPTIONS
        test \"$(shown SOURCE)\" = \"$SRC\"
        mount -a; findmnt -n $M | wc -l
        echo text > $M/f; touch -a -d 2001-01-01 $M/f
        mount -o remount,ro $M; shown OPTIONS
        (echo text > $M/f) 2> /dev/null || echo read-only
        mount -o remount,rw,noatime $M; shown OPTIONS
        cat $M/f; echo of $(stat -c %x $M/f | cut -c 1-4)
        mount -o remount,rw,strictatime $M; shown OPTIONS
        sleep 1; cat $M/f; test $(stat -c %x $M/f | cut -c 1-4) -gt 2001; echo read
        umount $M; findmnt $M || echo unmounted
        pgrep -f \"$M\\$\" || echo ended
        mount $M; shown FSTYPE; umount -l $M";
    scene("fstab", 1, LIMIT, |cluster| {
        let output = administer(cluster, SCRIPT)?;
        must_be(
            &lines(&output),
            &[
                "fuse.lustre",
                "rw,nosuid,nodev,relatime",
                "1",
                "ro,nosuid,nodev,relatime",
                "read-only",
                "rw,nosuid,nodev,noatime",
                "text",
                "of 2001",
                "rw,nosuid,nodev",
                "text",
                "read",
                "unmounted",
                "ended",
                "fuse.lustre",
            ],
        )
    });
}

/// mount(8) passes on what the kernel's table shows, which is FUSE's, too.
#[test]
fn a_mount_without_a_line_in_fstab_is_remounted() {
    const SCRIPT: &str = "
        : > /etc/fstab
        shown() { findmnt -n -o OPTIONS $M | sed s/,user_id.*//; }
        mount -t lustre -o $PORT $SRC $M; shown
        mount -o remount,ro $M; shown
        (echo text > $M/f) 2> /dev/null || echo read-only
        mount -o remount,rw,noatime $M; shown
        echo text > $M/f; cat $M/f; umount $M";
    scene("no-fstab", 1, LIMIT, |cluster| {
        let output = administer(cluster, SCRIPT)?;
        let (plain, read_only) = ("rw,nosuid,nodev,relatime", "ro,nosuid,nodev,relatime");
        let wanted = [plain, read_only, "read-only", "rw,nosuid,nodev,noatime", "text"];
        must_be(&lines(&output), &wanted)
    });
}

#[test]
fn a_file_system_is_mounted_by_its_directory_from_where_that_is_near() {
    scene("near", 1, LIMIT, |cluster| {
        let (dir, point) = (cluster.dir(), cluster.mnt().with_file_name("near"));
        fs::create_dir(&point).context("mkdir")?;
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut command = cluster.command(&["mount", &name, &point.to_string_lossy()]);
        command.current_dir(dir.parent().unwrap_or(&dir));
        process::must(&mut command, &cluster.logs().join("near"), LIMIT)?;
        fs::write(cluster.mnt().join("f"), "text").context("write")?;
        ensure(fs::read_to_string(point.join("f")).context("read")? == "text", || name.clone())?;
        process::must(Command::new("umount").arg(&point), &cluster.logs().join("umount"), LIMIT)?;
        cluster.down()
    });
}

#[test]
fn the_helpers_leave_as_mount_8_wants() {
    const SCRIPT: &str = "
        try() { \"$@\" > said 2>&1 && code=0 || code=$?; echo $code $(head -1 said | cut -c 1-60); }
        cd $M/..
        try mount -t lustre -o bogus $SRC $M
        try mount -t lustre -o $PORT,dirsync $SRC $M
        try mount.lustre $SRC
        try mount -t lustre -o $PORT $SRC $M/none
        try mount -t lustre -o $PORT ${SRC%:*}:/nosuchfs $M
        try mount -f -t lustre -o $PORT $SRC $M; findmnt $M || echo not mounted
        try mount -t lustre -s -o $PORT,bogus $SRC $M
        try mount -t lustre -o $PORT $SRC $M
        try mount -t lustre -o $PORT,remount ${SRC}x $M
        umount $M; mount -t lustre -o $PORT,_netdev $SRC $M
        (cd $M; try umount $M; sleep 0.1)
        try umount $M
        try umount.lustre $M
        unshare -m sleep 100 & sleep 0.5
        try mount -N $! -t lustre -o $PORT $SRC $M; findmnt $M || echo not here
        nsenter -m -t $! findmnt -n -o FSTYPE $M; try umount -N $! $M; kill $!
        try mount -v -t fuse.lustre -o $PORT,mgsname=mgs@tcp $SRC $M; findmnt -n -o SOURCE $M; umount $M";
    scene("helpers", 1, LIMIT, |cluster| {
        let output = administer(cluster, SCRIPT)?;
        let (source, machine) = (cluster.source(), cluster.mnt().with_file_name("machine"));
        let cut = |text: String| text.chars().take(60).collect::<String>().trim().to_owned();
        let (machine, nothing) = (machine.display(), String::new());
        let wanted = [
            (1, "mount.lustre: mount option 'bogus' is not supported".to_owned()),
            (1, "mount.lustre: mount option 'dirsync' is not supported: changes".to_owned()),
            (1, "mount.lustre: <MNT> must be specified (try 'mount.lustre --help')".to_owned()),
            (32, format!("mount point {machine}/m/none: No such")),
            (
                32,
                format!(
                    "mount.lustre: mount {}:/nosuchfs",
                    source.split(":/").next().unwrap_or("")
                ),
            ),
            (0, nothing.clone()),
            (-1, "not mounted".to_owned()),
            (0, "mount.lustre: mount option 'bogus' is ignored: it is not known".to_owned()),
            (32, format!("mount.lustre: according to /proc/self/mounts {source} is already")),
            (32, format!("mount.lustre: according to /proc/self/mounts {source}x is not")),
            (32, format!("{machine}/m is in use: a program")),
            (0, nothing.clone()),
            (32, format!("umount.lustre: {machine}/m: not mounted")),
            (0, nothing.clone()),
            (-1, "not here".to_owned()),
            (-1, "fuse.lustre".to_owned()),
            (0, nothing),
            (0, format!("source = {source}, target = {machine}")),
            (-1, format!("mgs@tcp:/{}", source.split(":/").nth(1).unwrap_or(""))),
        ];
        let wanted = wanted.map(|(code, text)| match code {
            -1 => text,
            code => format!("{code} {}", cut(text)).trim().to_owned(),
        });
        let found = lines(&output);
        let is_it = |(found, wanted): (&&str, &String)| found.starts_with(&**wanted);
        let all = found.len() == wanted.len() && found.iter().zip(&wanted).all(is_it);
        ensure(all, || format!("{found:#?}\ninstead of {wanted:#?}"))
    });
}

#[test]
fn hosts_have_names_and_parameters_come_from_files() {
    const SCRIPT: &str = "
        host=$(echo $SRC | sed 's/@.*//'); fs=${SRC##*:}
        echo \"$host mgs-of-test\" >> /etc/hosts
        echo 'llite.*.lazystatfs=0 # of all' > /etc/lustre/mount.client.params
        echo 'osc.*.max_dirty_mb=24' > /etc/lustre/mount.${fs#/}.params
        mount -t lustre -o $PORT mgs-of-test@tcp:mgs-of-test:$fs $M
        findmnt -n -o SOURCE $M; echo text > $M/f; cat $M/f
        sheen=$(readlink /sbin/mount.lustre)
        $sheen lctl get_param -n llite.*.lazystatfs | sort | head -1
        $sheen lctl get_param -n osc.*.max_dirty_mb | sort -n | head -1
        $sheen lfs df $M | grep -c OST0000
        mount -a; umount $M
        mount -t lustre -o $PORT no-such-host.invalid:$fs $M 2>&1 | cut -d: -f1-2 || true";
    scene("host-names", 1, LIMIT, |cluster| {
        let output = administer(cluster, SCRIPT)?;
        must_be(
            &lines(&output),
            &[
                "mgs-of-test@tcp:mgs-of-test:/sheen",
                "text",
                "0",
                "24",
                "1",
                "mount.lustre: Cannot resolve hostname 'no-such-host.invalid'",
            ],
        )
    });
}

fn parameter(cluster: &Cluster, name: &str, mount: &Path) -> Outcome<String> {
    let instance = cluster.must(&["lfs", "getname", "-i", &mount.to_string_lossy()])?;
    let name = name.replace("INSTANCE", instance.split_whitespace().next().unwrap_or_default());
    Ok(cluster.must(&["lctl", "get_param", "-n", &name])?.trim().to_owned())
}

#[test]
fn options_do_what_they_say() {
    scene("mount-options", 2, LIMIT, |cluster| {
        let (plain, options) = (
            cluster.mnt(),
            "noflock,nouser_xattr,user_fid2path,noexec,sync,\
            nochecksum,nolazystatfs,sync_on_close,nolruresize,exclude=sheen-OST0001,noverbose,network=tcp",
        );
        let mnt = cluster.mount_with(&options.split(',').collect::<Vec<_>>())?;
        // Locks of files.
        let file = fs::File::create(mnt.join("f")).context("create")?;
        ensure(
            flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::NOSYS),
            || "flock works with noflock".to_owned(),
        )?;
        let locked = fs::File::open(plain.join("f")).context("open")?;
        flock(&locked, FlockOperation::NonBlockingLockExclusive).context("flock")?;
        // Attributes of users.
        let (set, none) = (
            |path: &Path| setxattr(path, "user.a", b"1", XattrFlags::empty()),
            Err(Errno::OPNOTSUPP),
        );
        set(&plain.join("f")).context("setxattr")?;
        let mut value = [0; 8];
        let read = getxattr(mnt.join("f"), "user.a", &mut value[..]);
        ensure(set(&mnt.join("f")) == none && read == Err(Errno::OPNOTSUPP), || {
            format!("{read:?}")
        })?;
        // Programs.
        fs::copy("/bin/true", plain.join("true")).context("copy")?;
        fs::set_permissions(plain.join("true"), fs::Permissions::from_mode(0o755))
            .context("chmod")?;
        let run = |folder: &Path| Command::new(folder.join("true")).status().map(|it| it.success());
        ensure(run(&plain).is_ok_and(|done| done), || "it does not run where it may".to_owned())?;
        ensure(run(&mnt).is_err_and(|it| it.raw_os_error() == Some(13)), || "it runs".to_owned())?;
        synchronous(cluster, &mnt)?;
        for (name, wanted) in [
            ("llite.*INSTANCE.checksums", "0"),
            ("llite.*INSTANCE.lazystatfs", "0"),
            ("llite.*INSTANCE.sync_on_close", "1"),
        ] {
            let value = parameter(cluster, name, &mnt)?;
            ensure(value == wanted, || format!("{name}={value}"))?;
        }
        let kept = parameter(cluster, "ldlm.namespaces.*OST0000-osc-INSTANCE.lru_size", &mnt)?;
        let kept = kept.parse::<usize>().unwrap_or_default();
        ensure(kept > 0 && kept % 100 == 0, || format!("lru_size={kept}"))?;
        let without = cluster.mount_with(&["exclude=sheen-OST0001:sheen-OST0007"])?;
        for (ost, wanted) in [("OST0000", "1"), ("OST0001", "0")] {
            let active = parameter(cluster, &format!("osc.*{ost}-osc-INSTANCE.active"), &without)?;
            ensure(active == wanted, || format!("{ost}: active={active}"))?;
        }
        let user = User { cluster, folder: &mnt, uid: ALICE, groups: &[] };
        let (lfs, place) = (format!("{} lfs", program()?.display()), mnt.display().to_string());
        let fid = user.can(&format!("{lfs} path2fid f"))?;
        let path = user.can(&format!("{lfs} fid2path {place} '{fid}'"))?;
        ensure(path == format!("{place}/f"), || path.clone())
    });
}

/// What is written is on its OST when the call returns.
fn synchronous(cluster: &Cluster, mnt: &Path) -> Outcome {
    let path = mnt.join("synchronous");
    cluster.must(&["lfs", "setstripe", "-i", "0", &path.to_string_lossy()])?;
    let file = fs::File::open(&path).context("open")?;
    for mount in [mnt, &cluster.mnt()] {
        let file =
            fs::OpenOptions::new().write(true).open(mount.join("synchronous")).context("open")?;
        std::os::unix::fs::FileExt::write_at(&file, &[7; 4096], 0).context("write")?;
        let dirty = parameter(cluster, "osc.*OST0000-osc-INSTANCE.cur_dirty_bytes", mount)?;
        let wanted = if mount == mnt { "0" } else { "4096" };
        ensure(dirty == wanted, || format!("{dirty} dirty bytes on {}", mount.display()))?;
    }
    ensure(file.metadata().context("stat")?.size() == 4096, || {
        "it is not 4096 bytes long".to_owned()
    })
}

/// `.lustre/fid` of a mount.
#[test]
fn files_are_opened_by_their_fids() {
    scene("by-fid", 1, LIMIT, |cluster| {
        let (mnt, second) = (cluster.mnt(), cluster.mount_again()?);
        fs::create_dir(mnt.join("d")).context("mkdir")?;
        fs::write(mnt.join("d/f"), "text").context("write")?;
        let fid_of = |path: &Path| {
            let fid = cluster.must(&["lfs", "path2fid", &path.to_string_lossy()])?;
            Ok::<_, String>(fid.trim().to_owned())
        };
        let fid = fid_of(&mnt.join("d/f"))?;
        let listed = |folder: &Path| {
            let names = fs::read_dir(folder).context("list")?.flatten();
            Ok::<_, String>(names.map(|it| it.file_name()).collect::<Vec<_>>())
        };
        // Once the whole directory is known here, too.
        for _ in 0..3 {
            ensure(listed(&mnt)? == ["d"], || "the listing has more".to_owned())?;
            ensure(!mnt.join("nothing").exists(), || "there".to_owned())?;
        }
        for mount in [&mnt, &second] {
            let by_fid = mount.join(".lustre/fid");
            let read = || fs::read_to_string(by_fid.join(&fid)).context("read");
            ensure(read()? == "text", || "other bytes".to_owned())?;
            fs::rename(mnt.join("d/f"), mnt.join("d/g")).context("rename")?;
            ensure(read()? == "text", || "other bytes after a rename".to_owned())?;
            fs::rename(mnt.join("d/g"), mnt.join("d/f")).context("rename")?;
            ensure(listed(&mount.join(".lustre"))? == ["fid"], || "not fid alone".to_owned())?;
            ensure(listed(&by_fid)?.is_empty(), || "FIDs are listed".to_owned())?;
            let made = fs::write(by_fid.join("x"), "").map_err(|error| error.raw_os_error());
            ensure(made == Err(Some(1)), || format!("made there: {made:?}"))?;
            let user = User { cluster, folder: mount, uid: ALICE, groups: &[] };
            user.cannot(&format!("cat '.lustre/fid/{fid}'"))?;
        }
        // A directory by its FID is that directory, and what is written through a FID is in the file.
        let directory = fid_of(&mnt.join("d"))?;
        let found = listed(&second.join(".lustre/fid").join(&directory))?;
        ensure(found == ["f"], || format!("{found:?} in {directory}"))?;
        fs::write(second.join(".lustre/fid").join(&fid), "more").context("write")?;
        ensure(fs::read_to_string(mnt.join("d/f")).context("read")? == "more", || fid.clone())?;
        fs::remove_file(mnt.join("d/f")).context("unlink")?;
        // A file that is open is found still: an open that a client caches ends with its lock.
        cluster.must(&["lctl", "set_param", "ldlm.namespaces.*.lru_size=clear"])?;
        for mount in [&mnt, &second] {
            // Closes go with the next request.
            let path = mount.join(".lustre/fid").join(&fid);
            let is_gone = || fs::metadata(&path).is_err_and(|it| it.kind() == ErrorKind::NotFound);
            wait_until("the end of the file", GONE, is_gone)?;
        }
        cluster.down()?;
        cluster.fsck()
    });
}

/// Waits for a message to a service manager in which `wanted` is.
fn heard(socket: &UnixDatagram, wanted: &str) -> Outcome {
    let mut bytes = [0; 4096];
    loop {
        let length = socket.recv(&mut bytes).map_err(|error| format!("{wanted}: {error}"))?;
        if String::from_utf8_lossy(&bytes[..length]).contains(wanted) {
            return Ok(());
        }
    }
}

#[test]
fn a_service_that_is_stopped_unmounts_when_no_program_uses_it_any_more() {
    scene("service", 1, LIMIT, |cluster| {
        let manager = cluster.sockets().join("manager");
        let socket = UnixDatagram::bind(&manager).context("bind")?;
        socket.set_read_timeout(Some(GONE)).context("a time limit")?;
        let at = cluster.mnt().with_file_name("service");
        fs::create_dir(&at).context("mkdir")?;
        let mut mount = cluster.command(&["mount", "--foreground", &cluster.source()]);
        if let Some(port) = cluster.port() {
            mount.args(["-o", &format!("port={port}")]);
        }
        mount.arg(&at).env("NOTIFY_SOCKET", &manager).stdin(Stdio::null());
        mount.stdout(Stdio::null()).stderr(Stdio::null());
        let mut service = mount.spawn().context("mount")?;
        heard(&socket, "READY=1")?;
        let mut held = fs::File::create(at.join("held")).context("create")?;
        kill_process(Pid::from_child(&service), Signal::TERM).context("stop")?;
        heard(&socket, "STATUS=unmounts when no program uses it")?;
        held.write_all(b"on").and_then(|()| held.sync_all()).context("write to what is stopped")?;
        ensure(is_mounted(&at), || "it was unmounted in use".to_owned())?;
        drop(held);
        let ended = || service.try_wait().is_ok_and(|status| status.is_some());
        wait_until("the service's end", GONE, ended)?;
        let status = service.wait().context("wait")?;
        ensure(status.success() && !is_mounted(&at), || format!("{status}"))?;
        let read = fs::read(cluster.mnt().join("held")).context("read")?;
        ensure(read == b"on", || format!("{read:?}"))
    });
}
