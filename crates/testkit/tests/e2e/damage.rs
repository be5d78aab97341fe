//! What other hands do to the data of a file system is an error to those who read it, with a line in the
//! log, and found by `sheen scrub`: never an empty file, never wrong bytes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::{Context, Outcome, bytes, ensure};

const LIMIT: Duration = Duration::from_secs(300);
/// Longer than what comes inline with an open, so that a DoM file is read by RPC, too.
const DOM_BYTES: usize = 300_000;
const FILE_BYTES: usize = 3_000_000;

/// All files of objects' data.
fn data_files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).context(folder.display())? {
        let path = entry.context(folder.display())?.path();
        let is_engine = path.file_name().is_some_and(|name| name == "engine");
        if path.is_dir() && !is_engine {
            found.extend(data_files(&path)?);
        } else if path.components().any(|part| part.as_os_str() == "objects") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The file of the object that holds this.
pub(crate) fn holding(cluster: &Cluster, content: &[u8]) -> Outcome<PathBuf> {
    let found = data_files(&cluster.dir())?.into_iter();
    let mut found = found.filter(|path| fs::read(path).is_ok_and(|held| held == content));
    found.next().ok_or_else(|| "no object holds the file".to_owned())
}

pub(crate) fn flip(path: &Path, offset: u64) -> Outcome {
    let file =
        File::options().read(true).write(true).open(path).context("open an object's file")?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).context("read a byte")?;
    file.write_all_at(&[byte[0] ^ 1], offset).context("flip it")
}

/// Puts bytes behind the end.
fn grow(path: &Path) -> Outcome {
    let file = File::options().append(true).open(path).context("open an object's file")?;
    (&file).write_all(b"more").context("make it longer")
}

pub(crate) fn must_be_io_error<T>(what: &str, outcome: io::Result<T>) -> Outcome {
    let errno = outcome.err().and_then(|error| error.raw_os_error());
    let shown = || format!("{what}: errno {errno:?}, not EIO");
    ensure(errno == Some(Errno::IO.raw_os_error()), shown)
}

/// What a scrub says, and whether it found something.
fn scrub(cluster: &Cluster) -> Outcome<(Option<i32>, String)> {
    let dir = cluster.dir();
    let done = cluster.run(&["scrub", "--dir", &dir.to_string_lossy(), "--rate", "0"])?;
    Ok((done.status.code(), done.output))
}

fn server_log(cluster: &Cluster) -> String {
    let run = cluster.dir().join("run");
    let logs = fs::read_dir(run).into_iter().flatten().flatten();
    logs.filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect()
}

pub(crate) fn content(seed: u64) -> Vec<u8> {
    bytes::content(seed, FILE_BYTES)
}

fn copy(from: &Path, to: &Path) -> Outcome {
    let done = Command::new("cp").arg("-a").args([from, to]).status().context("run cp")?;
    ensure(done.success(), || format!("cp of {} failed", from.display()))
}

/// Their objects are not there: they are errors, and no empty files.
#[test]
fn files_that_are_newer_than_a_restored_ost_are_errors_and_are_named() {
    const LACKS: &str = "that this OST does not have";
    scene("damage-restored", 1, LIMIT, |cluster| {
        let at = |name: &str| cluster.mnt().join(name);
        fs::write(at("old"), content(1)).context("write")?;
        cluster.down()?;
        let log = server_log(cluster);
        ensure(!log.contains(LACKS), || format!("a new OST lacks nothing:\n{log}"))?;
        let (ost, older) = (cluster.dir().join("ost0000"), cluster.dir().join("run/older"));
        copy(&ost, &older)?;
        cluster.up()?;
        // More than were made ahead.
        for number in 0..100 {
            fs::write(at(&format!("new-{number}")), "new").context("write")?;
        }
        cluster.down()?;
        fs::remove_dir_all(&ost).context("remove")?;
        fs::rename(&older, &ost).context("rename")?;
        cluster.up()?;
        ensure(fs::read(at("old")).context("read")? == content(1), || {
            "old has changed".to_owned()
        })?;
        fs::write(at("after"), content(3)).context("write")?;
        ensure(fs::read(at("after")).context("read")? == content(3), || {
            "after is wrong".to_owned()
        })?;
        must_be_io_error("new-99", fs::read(at("new-99")))?;
        let log = server_log(cluster);
        ensure(log.contains(LACKS), || format!("the OST says nothing:\n{log}"))?;
        let lost = |line: &str| line.contains("object=[0x") && line.contains("file=[0x");
        let is_named = |line: &str| lost(line) && line.contains("OST0000");
        ensure(log.lines().any(is_named), || format!("no line names the object:\n{log}"))?;
        cluster.down()?;
        let dir = cluster.dir().to_string_lossy().into_owned();
        let said = cluster.run(&["fsck", "--dir", &dir])?.output;
        let is_reported = |line: &str| line.contains("/new-99 ") && line.contains("is missing");
        ensure(said.lines().any(is_reported), || said.clone())
    });
}

#[test]
fn what_is_lost_cut_or_flipped_is_an_error_after_a_restart() {
    scene("damage-stopped", 2, LIMIT, |cluster| {
        let names = ["lost", "cut", "flipped", "whole", "grown"];
        for (seed, name) in names.iter().enumerate() {
            fs::write(cluster.mnt().join(name), content(seed as u64)).context(name)?;
        }
        let on_mdt = |seed| bytes::content(seed, DOM_BYTES);
        for (name, seed) in [("dom", 9), ("dom-lost", 10)] {
            let dom = cluster.mnt().join(name);
            let layout = ["lfs", "setstripe", "-E", "1M", "-L", "mdt", "-E", "-1"];
            cluster.must(&[&layout[..], &[&dom.to_string_lossy()]].concat())?;
            fs::write(&dom, on_mdt(seed)).context("a file on the MDT")?;
        }
        let (code, said) = scrub(cluster)?;
        ensure(code == Some(0) && said.contains("0 damaged"), || said.clone())?;
        cluster.down()?;

        let places: Vec<PathBuf> =
            (0..3).map(|seed| holding(cluster, &content(seed))).collect::<Outcome<_>>()?;
        fs::remove_file(&places[0]).context("remove an object's file")?;
        let cut = File::options().write(true).open(&places[1]).context("open an object's file")?;
        cut.set_len(1000).context("cut it")?;
        flip(&places[2], 1_234_567)?;
        flip(&holding(cluster, &on_mdt(9))?, 200_000)?;
        fs::remove_file(holding(cluster, &on_mdt(10))?).context("remove a file of data")?;
        grow(&holding(cluster, &content(4))?)?;
        cluster.up()?;

        let at = |name: &str| cluster.mnt().join(name);
        for name in ["lost", "cut", "flipped", "dom", "dom-lost", "grown"] {
            must_be_io_error(name, fs::read(at(name)))?;
        }
        for name in ["lost", "cut", "dom-lost", "grown"] {
            must_be_io_error(name, fs::metadata(at(name)))?;
        }
        ensure(fs::read(at("whole")).context("a whole file")? == content(3), || {
            "changed".to_owned()
        })?;
        let log = server_log(cluster);
        for (place, why) in places.iter().zip(["is lost", "is cut", "is damaged"]) {
            let place = place.display().to_string();
            let is_it = |line: &str| {
                line.contains(&place)
                    && line.contains(why)
                    && line.contains("OST")
                    && line.contains("[0x")
            };
            ensure(log.lines().any(is_it), || format!("no line of {place} {why}:\n{log}"))?;
        }
        let counts = cluster.must(&["lctl", "get_param", "osd-*.*.integrity"])?;
        let failed = |name: &str| counts.lines().any(|l| l.starts_with(name) && !l.ends_with(" 0"));
        ensure(failed("blocks_failed") && failed("files_failed"), || counts.clone())?;
        let (code, said) = scrub(cluster)?;
        ensure(code == Some(1), || format!("scrub left with {code:?}:\n{said}"))?;
        for place in &places {
            ensure(said.contains(&place.display().to_string()), || said.clone())?;
        }
        for name in names.iter().chain([&"dom", &"dom-lost"]) {
            let done = Command::new("rm").arg(at(name)).output().context("rm")?;
            let why = || format!("{name} cannot be removed: {done:?}");
            ensure(done.status.success() && !at(name).exists(), why)?;
        }
        Ok(())
    });
}

#[test]
fn what_is_flipped_or_cut_under_a_running_server_is_an_error() {
    scene("damage-running", 2, LIMIT, |cluster| {
        for (seed, name) in ["cut", "flipped", "lost"].iter().enumerate() {
            fs::write(cluster.mnt().join(name), content(seed as u64)).context(name)?;
        }
        let other = cluster.mount_again()?;
        // Another client reads: what the first had is written.
        for (seed, name) in ["cut", "flipped", "lost"].iter().enumerate() {
            let read = fs::read(other.join(name)).context(name)?;
            ensure(read == content(seed as u64), || "changed".to_owned())?;
        }
        let places: Vec<PathBuf> =
            (0..3).map(|seed| holding(cluster, &content(seed))).collect::<Outcome<_>>()?;
        let cut = File::options().write(true).open(&places[0]).context("open an object's file")?;
        cut.set_len(1000).context("cut it")?;
        flip(&places[1], 2_000_000)?;
        fs::remove_file(&places[2]).context("remove an object's file")?;
        let third = cluster.mount_again()?;
        for name in ["cut", "flipped"] {
            must_be_io_error(name, fs::read(third.join(name)))?;
        }
        // As long as the server has it open its bytes are there: then those, or an error.
        match fs::read(third.join("lost")) {
            Ok(read) => ensure(read == content(2), || "wrong bytes".to_owned())?,
            lost => must_be_io_error("lost", lost)?,
        }
        let (code, said) = scrub(cluster)?;
        ensure(code == Some(1), || format!("scrub left with {code:?}:\n{said}"))?;
        for place in &places {
            ensure(said.contains(&place.display().to_string()), || said.clone())?;
        }
        let flipped = third.join("flipped");
        fs::write(&flipped, content(7)).context("written anew")?;
        ensure(fs::read(&flipped).context("read")? == content(7), || "it is not healed".to_owned())
    });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a pace is measured")]
fn a_scrub_is_paced_stopped_and_refused() {
    scene("damage-scrub", 2, LIMIT, |cluster| {
        let size = 24 << 20;
        fs::write(cluster.mnt().join("large"), bytes::content(1, size)).context("a large file")?;
        cluster.must(&["lctl", "set_param", "osd-*.*.force_sync=1"])?;
        let dir = cluster.dir();
        let dir = dir.to_string_lossy();
        let begun = std::time::Instant::now();
        let said = cluster.must(&["scrub", "--dir", &dir, "--rate", "8"])?;
        ensure(begun.elapsed() >= Duration::from_millis(1400), || format!("too fast: {said}"))?;
        let status = cluster.must(&["scrub", "--dir", &dir, "--status"])?;
        ensure(status.contains("done"), || status.clone())?;
        cluster.must(&["scrub", "--dir", &dir, "--stop"])?;
        let unknown = cluster.run(&["scrub", "none-OST0000"])?;
        ensure(!unknown.status.success() && unknown.output.contains("none-OST0000"), || {
            unknown.output.clone()
        })?;
        cluster.must(&["lctl", "set_param", "osd-*.*.block_checksums=0"])?;
        let shown = cluster.must(&["lctl", "get_param", "-n", "osd-*.*.block_checksums"])?;
        ensure(shown.lines().all(|line| line == "0"), || shown.clone())?;
        cluster.down()?;
        let stopped = cluster.run(&["scrub", "--dir", &dir])?;
        ensure(!stopped.status.success() && stopped.output.contains("sheen up"), || {
            stopped.output.clone()
        })
    });
}

/// An OST whose disk is gone for good: what lay there is lost, and the file system goes on with an empty one.
#[test]
fn a_lost_ost_is_replaced_by_an_empty_one() {
    scene("replaced-ost", 2, LIMIT, |cluster| {
        let path = |number: u32| cluster.mnt().join(format!("f{number}"));
        for number in 0..20 {
            fs::write(path(number), format!("{number}")).context("write")?;
        }
        // Round robin, but for an OST whose pool is not filled yet.
        let is_kept = |number: &u32| -> Outcome<bool> {
            let ost =
                cluster.must(&["lfs", "getstripe", "-i", &path(*number).to_string_lossy()])?;
            Ok(ost.trim() == "0")
        };
        let kept = (0..20).map(|number| is_kept(&number)).collect::<Outcome<Vec<bool>>>()?;
        ensure((1..20).contains(&kept.iter().filter(|it| **it).count()), || format!("{kept:?}"))?;
        let nid = fs::read_to_string(cluster.dir().join("run/mgs.nid")).context("mgs.nid")?;
        cluster.down()?;
        let lost = cluster.dir().join("ost0001");
        fs::remove_dir_all(&lost).context("remove")?;
        let place = lost.to_string_lossy();
        let made = ["mkfs.lustre", "--ost", "--fsname", "sheen", "--index", "1", "--replace"];
        cluster.must(&[&made[..], &["--mgsnode", nid.trim(), &place]].concat())?;
        cluster.up()?;
        let is_left = |number: u32| {
            fs::read_to_string(path(number)).is_ok_and(|text| text == number.to_string())
        };
        let left: Vec<bool> = (0..20).map(is_left).collect();
        ensure(left == kept, || format!("{left:?} are left, {kept:?} were elsewhere"))?;
        for number in 20..40 {
            fs::write(path(number), format!("{number}")).context("write anew")?;
        }
        // The lost ones can be removed.
        (0..20).try_for_each(|number| fs::remove_file(path(number))).context("remove")
    });
}
