//! `chattr` and `lsattr` through the mount: what is frozen stays as it is, for every mount.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(300);
const EPERM: i32 = 1;

fn chattr(change: &str, path: &Path) -> Outcome<bool> {
    let command = Command::new("chattr").arg(change).arg(path).output();
    Ok(command.context("chattr, of e2fsprogs")?.status.success())
}

fn must_chattr(change: &str, path: &Path) -> Outcome {
    ensure(chattr(change, path)?, || format!("chattr {change} {}", path.display()))
}

fn lsattr(path: &Path) -> Outcome<String> {
    let output = Command::new("lsattr").arg("-d").arg(path).output().context("lsattr")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(' ').next().map(str::to_owned).ok_or("lsattr said nothing".to_owned())
}

fn refused<T>(what: &str, tried: std::io::Result<T>) -> Outcome {
    let errno = tried.err().and_then(|error| error.raw_os_error());
    ensure(errno == Some(EPERM), || format!("{what}: {errno:?} instead of EPERM"))
}

/// `truncate(2)`: by name, without an open.
fn truncated(path: &Path) -> std::io::Result<()> {
    let status = Command::new("truncate").args(["-s", "0"]).arg(path).output()?.status;
    if status.success() { Ok(()) } else { Err(std::io::Error::from_raw_os_error(EPERM)) }
}

fn immutable_holds(folder: &Path) -> Outcome {
    let file = folder.join("fixed");
    refused("open to write", File::options().write(true).open(&file))?;
    refused("open to append", File::options().append(true).open(&file))?;
    refused("remove", fs::remove_file(&file))?;
    refused("rename", fs::rename(&file, folder.join("moved")))?;
    refused("link", fs::hard_link(&file, folder.join("linked")))?;
    refused("truncate", truncated(&file))?;
    refused(
        "chmod",
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)),
    )?;
    let read = fs::read(&file).context("read")?;
    ensure(read == b"fixed", || "what was frozen changed".to_owned())
}

fn append_only_holds(folder: &Path) -> Outcome {
    let file = folder.join("log");
    refused("open to write", File::options().write(true).open(&file))?;
    refused("truncate", truncated(&file))?;
    refused("remove", fs::remove_file(&file))?;
    refused("remove from an append-only folder", fs::remove_file(folder.join("grows/file")))?;
    let mut log = File::options().append(true).open(&file).context("open to append")?;
    log.write_all(b"more").context("append")
}

fn freeze(cluster: &Cluster) -> Outcome {
    let mnt = cluster.mnt();
    let other = cluster.mount_again()?;
    fs::write(mnt.join("fixed"), b"fixed").context("fixed")?;
    fs::write(mnt.join("log"), b"").context("log")?;
    fs::create_dir(mnt.join("shut")).context("shut")?;
    must_chattr("+i", &mnt.join("fixed"))?;
    must_chattr("+a", &mnt.join("log"))?;
    must_chattr("+i", &mnt.join("shut"))?;
    fs::create_dir(mnt.join("grows")).context("grows")?;
    fs::write(mnt.join("grows/file"), b"").context("grows/file")?;
    must_chattr("+a", &mnt.join("grows"))?;
    for folder in [&mnt, &other] {
        let flags = lsattr(&folder.join("fixed"))?;
        ensure(flags.contains('i') && !flags.contains('a'), || format!("lsattr: {flags}"))?;
        immutable_holds(folder)?;
        append_only_holds(folder)?;
        refused("create in a frozen folder", File::create(folder.join("shut/new")))?;
    }
    // What would not be kept is not taken.
    ensure(!chattr("+S", &mnt.join("log"))?, || "chattr +S was taken".to_owned())?;
    cluster.down()?;
    cluster.up()?;
    immutable_holds(&mnt)?;
    let log = fs::read(mnt.join("log")).context("log")?;
    ensure(log == b"moremore", || format!("the log holds {log:?}"))?;
    for (change, name) in [("-i", "fixed"), ("-a", "log"), ("-i", "shut"), ("-a", "grows")] {
        must_chattr(change, &mnt.join(name))?;
    }
    fs::write(mnt.join("fixed"), b"changed").context("write what was frozen")?;
    fs::write(mnt.join("shut/new"), b"").context("create in what was frozen")?;
    fs::remove_file(mnt.join("log")).context("remove what was append-only")
}

#[test]
fn frozen_files_stay_as_they_are_on_every_mount() {
    scene("flags", 1, LIMIT, freeze);
}
