//! What `sheen fsck` finds in a stopped file system, what it repairs, and how it leaves.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sheen_store::{Store, Transaction};
use sheen_store_disk::{OpenOptions, StoreDisk};
use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_types::{Fid, fid_seq};
use sheen_workloads::{Context, Outcome, ensure};

use crate::damage::{content, flip, holding, must_be_io_error};

const LIMIT: Duration = Duration::from_secs(300);

/// How it left, and what it said.
fn fsck(cluster: &Cluster, more: &[&str]) -> Outcome<(Option<i32>, String)> {
    let dir = cluster.dir();
    let done = cluster.run(&[&["fsck", "--dir", &dir.to_string_lossy()], more].concat())?;
    Ok((done.status.code(), done.output))
}

fn left_with(code: i32, last: &str, (was, said): &(Option<i32>, String)) -> Outcome {
    ensure(*was == Some(code), || format!("it left with {was:?}, not {code}:\n{said}"))?;
    ensure(said.trim_end().ends_with(last), || format!("not {last:?} at last:\n{said}"))
}

/// A line with all of this.
fn reports(said: &str, parts: &[&str]) -> Outcome {
    let found = said.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    ensure(found, || format!("no line has {parts:?}:\n{said}"))
}

fn fid_of(cluster: &Cluster, name: &str) -> Outcome<Fid> {
    let path = cluster.mnt().join(name);
    let said = cluster.must(&["lfs", "path2fid", &path.to_string_lossy()])?;
    let mut words = said.trim().trim_matches(['[', ']']).split(':').map(|word| {
        u64::from_str_radix(word.trim_start_matches("0x"), 16).map_err(|error| error.to_string())
    });
    let mut word = || words.next().unwrap_or_else(|| Err(format!("no FID: {said}")));
    let (seq, oid) = (word()?, word()?);
    Ok(Fid::new(seq, u32::try_from(oid).context("a number")?))
}

/// Changes the MDT's store as nothing in the program does.
fn change_mdt(
    cluster: &Cluster,
    change: impl FnOnce(&StoreDisk, &mut Transaction) -> Outcome,
) -> Outcome {
    change_store(cluster, "mdt0000", change)
}

fn change_store(
    cluster: &Cluster,
    folder: &str,
    change: impl FnOnce(&StoreDisk, &mut Transaction) -> Outcome,
) -> Outcome {
    let directory = cluster.dir().join(folder);
    let store = StoreDisk::open(&directory, &OpenOptions::default()).context("open the store")?;
    let mut transaction = Transaction::new();
    change(&store, &mut transaction)?;
    store.apply(transaction).context("apply")?;
    store.commit().map(drop).context("commit")
}

fn forget_name(store: &StoreDisk, transaction: &mut Transaction, name: &str) -> Outcome {
    let entries = store.scan(Fid::ROOT, &[], 1000).context("scan")?;
    let entry = entries.into_iter().find(|entry| entry.key.ends_with(name.as_bytes()));
    transaction.delete(Fid::ROOT, entry.ok_or("no such name")?.key);
    Ok(())
}

fn cut(path: &Path) -> Outcome {
    let file = File::options().write(true).open(path).context("open an object's file")?;
    file.set_len(1000).context("cut it")
}

#[test]
fn data_that_is_lost_cut_or_flipped_is_found_by_path() {
    scene("fsck-data", 2, LIMIT, |cluster| {
        let names = ["lost", "cut", "flipped", "whole"];
        for (seed, name) in names.iter().enumerate() {
            fs::write(cluster.mnt().join(name), content(seed as u64)).context(name)?;
        }
        let busy = fsck(cluster, &[])?;
        ensure(busy.0 == Some(8), || format!("{busy:?} while its server runs"))?;
        cluster.down()?;
        left_with(0, " 0 problems", &fsck(cluster, &["-n"])?)?;
        fs::remove_file(holding(cluster, &content(0))?).context("remove an object's file")?;
        cut(&holding(cluster, &content(1))?)?;
        flip(&holding(cluster, &content(2))?, 1_234_567)?;

        let found = fsck(cluster, &["-n"])?;
        left_with(4, " 3 problems", &found)?;
        for (name, why) in
            [("/lost ([", "is lost"), ("/cut ([", "is cut"), ("/flipped ([", "is damaged")]
        {
            reports(&found.1, &["OST000", name, why, "/objects/"])?;
        }
        left_with(4, " 2 problems", &fsck(cluster, &["--no-checksums"])?)?;
        let tried = fsck(cluster, &["-y"])?;
        left_with(4, " 3 problems", &tried)?;
        reports(&tried.1, &["/lost ([", ": not repaired"])?;

        cluster.up()?;
        for name in ["lost", "cut", "flipped"] {
            let path = cluster.mnt().join(name);
            must_be_io_error(name, fs::read(&path))?;
            fs::remove_file(path).context("remove what is damaged")?;
        }
        let whole = fs::read(cluster.mnt().join("whole")).context("a whole file")?;
        ensure(whole == content(3), || "changed".to_owned())?;
        cluster.down()?;
        let end = fsck(cluster, &[])?;
        ensure(end.0 == Some(0), || end.1)
    });
}

#[test]
fn what_no_name_leads_to_goes_to_lost_and_found() {
    scene("fsck-repair", 2, LIMIT, |cluster| {
        for (seed, name) in ["unnamed", "inodeless", "whole"].iter().enumerate() {
            fs::write(cluster.mnt().join(name), content(seed as u64)).context(name)?;
        }
        let (unnamed, inodeless) = (fid_of(cluster, "unnamed")?, fid_of(cluster, "inodeless")?);
        cluster.down()?;
        change_mdt(cluster, |store, transaction| {
            forget_name(store, transaction, "unnamed")?;
            transaction.remove_xattr(unnamed, "trusted.link");
            transaction.destroy(inodeless);
            Ok(())
        })?;
        for _ in 0..2 {
            let found = fsck(cluster, &["-n"])?;
            ensure(found.0 == Some(4), || format!("{found:?}"))?;
            reports(&found.1, &["MDT0000: ", &unnamed.to_string(), "no name leads to it"])?;
            reports(&found.1, &["MDT0000: /inodeless", &inodeless.to_string(), "is missing"])?;
            reports(&found.1, &["OST000", "3000000 bytes belong to no file"])?;
        }
        let done = fsck(cluster, &["-y"])?;
        left_with(1, " 0 problems", &done)?;
        reports(&done.1, &["/inodeless", ": repaired"])?;
        left_with(0, " 0 problems", &fsck(cluster, &["-y"])?)?;

        cluster.up()?;
        let whole = fs::read(cluster.mnt().join("whole")).context("a whole file")?;
        ensure(whole == content(2), || "changed".to_owned())?;
        ensure(!cluster.mnt().join("inodeless").exists(), || "the name is left".to_owned())?;
        let mut left = Vec::new();
        for entry in fs::read_dir(cluster.mnt().join("lost+found")).context("lost+found")? {
            left.push(fs::read(entry.context("an entry")?.path()).context("what was found")?);
        }
        left.sort();
        let mut wanted = vec![content(0), content(1)];
        wanted.sort();
        ensure(left == wanted, || format!("{} files are in lost+found", left.len()))?;
        fs::write(cluster.mnt().join("new"), content(9)).context("a new file")?;
        cluster.down()?;
        left_with(0, " 0 problems", &fsck(cluster, &[])?)
    });
}

#[test]
fn a_wrong_command_line_and_a_place_without_a_file_system_leave_as_fsck_does() {
    scene("fsck-codes", 1, LIMIT, |cluster| {
        for words in [&["-n", "-y"][..], &["--what"], &["-p"]] {
            let (code, said) = fsck(cluster, words)?;
            ensure(code == Some(16), || format!("{words:?}: {code:?}: {said}"))?;
        }
        let nowhere = cluster.run(&["fsck", "--dir", "/nonexistent"])?;
        ensure(nowhere.status.code() == Some(8), || format!("{:?}", nowhere.status))?;
        let help = cluster.must(&["fsck", "--help"])?;
        ensure(help.contains("-y") && help.contains("--no-checksums"), || help.clone())
    });
}

#[test]
fn a_target_that_is_gone_is_named_and_is_no_clean_file_system() {
    scene("fsck-gone", 1, LIMIT, |cluster| {
        cluster.down()?;
        for target in ["mgt", "mdt0000", "ost0000"] {
            let (here, away) = (cluster.dir().join(target), cluster.logs().join(target));
            fs::rename(&here, &away).context(target)?;
            let (code, said) = fsck(cluster, &["-n"])?;
            let is_named = said.contains(&*here.to_string_lossy()) && said.contains("gone");
            // Without an OST the rest can be checked.
            let expected = if target == "ost0000" { 4 } else { 8 };
            ensure(code == Some(expected) && is_named, || format!("{target}: {code:?}: {said}"))?;
            fs::rename(&away, &here).context(target)?;
        }
        left_with(0, " 0 problems", &fsck(cluster, &["-n"])?)
    });
}

/// It is needed when the configuration itself is damaged, and it is too late then.
#[test]
fn a_damaged_copy_of_a_configuration_is_found_and_repaired() {
    scene("fsck-config", 1, LIMIT, |cluster| {
        cluster.down()?;
        let copy = |target: &str| cluster.dir().join(target).join("CONFIG.copy");
        let targets = ["mgt", "mdt0000", "ost0000"];
        let whole = |target: &str| fs::read(copy(target)).context("read a copy");
        let before = targets.map(whole);
        flip(&copy("mgt"), 3)?;
        fs::remove_file(copy("mdt0000")).context("remove a copy")?;
        fs::write(copy("ost0000"), "").context("empty a copy")?;
        let damaged = targets.map(whole);
        for _ in 0..2 {
            let found = fsck(cluster, &["-n"])?;
            left_with(4, " 3 problems", &found)?;
            for (target, why) in [
                ("mgt", "checksum differs"),
                ("mdt0000", "is gone"),
                ("ost0000", "checksum is gone"),
            ] {
                reports(&found.1, &[&*copy(target).to_string_lossy(), why])?;
            }
            ensure(targets.map(whole) == damaged, || "-n changed something".to_owned())?;
        }
        let repaired = fsck(cluster, &["-y"])?;
        left_with(1, " 0 problems", &repaired)?;
        reports(&repaired.1, &["/mdt0000/CONFIG.copy: it is gone: repaired"])?;
        ensure(targets.map(whole) == before, || "it is another one".to_owned())?;
        left_with(0, " 0 problems", &fsck(cluster, &["-n"])?)?;
        cluster.up()
    });
}

#[test]
fn a_copy_beside_a_target_is_left_alone_and_one_in_its_place_refused() {
    scene("fsck-copies", 2, LIMIT, |cluster| {
        fs::write(cluster.mnt().join("f"), "before").context("write")?;
        cluster.down()?;
        let place = |name: &str| cluster.dir().join(name).to_string_lossy().into_owned();
        for (target, copy) in [("mdt0000", "mdt0000.bak"), ("ost0001", "ost0001.bak")] {
            let words = ["-a", &place(target), &place(copy)];
            let done = Command::new("cp").args(words).status().context("cp")?;
            ensure(done.success(), || "cp".to_owned())?;
        }
        let (code, said) = fsck(cluster, &["-n"])?;
        ensure(code == Some(0), || format!("{code:?}: {said}"))?;
        reports(&said, &["mdt0000.bak: left alone"])?;
        cluster.up()?;
        fs::write(cluster.mnt().join("g"), "after").context("write")?;
        let shown = cluster.must(&["status", "--dir", &cluster.dir().to_string_lossy()])?;
        ensure(!shown.contains(".bak") && !shown.contains("OST0002"), || shown.clone())?;
        cluster.down()?;
        for copy in ["mdt0000.bak", "ost0001.bak"] {
            fs::remove_dir_all(place(copy)).context(copy)?;
        }
        let (own, other) = (place("ost0000/CONFIG"), place("ost0001/CONFIG"));
        let kept = fs::read(&own).context("read")?;
        fs::copy(other, &own).context("copy")?;
        let (code, said) = fsck(cluster, &["-n"])?;
        ensure(code == Some(8), || format!("{code:?}: {said}"))?;
        reports(&said, &[&place("ost0000"), &place("ost0001"), "sheen-OST0001"])?;
        fs::write(&own, kept).context("write")?;
        cluster.up()?;
        let text = fs::read_to_string(cluster.mnt().join("g")).context("read")?;
        ensure(text == "after", || text)
    });
}

/// The index of the MGT's logs, and the name of the one that mounts read.
const LOGS: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x1001);

#[test]
fn logs_of_the_mgt_that_cannot_be_read_or_are_gone_are_reported() {
    scene("fsck-mgt", 1, LIMIT, |cluster| {
        cluster.down()?;
        left_with(0, " 0 problems", &fsck(cluster, &["-n"])?)?;
        let mut client = None;
        change_store(cluster, "mgt", |store, transaction| {
            let logs = store.scan(LOGS, &[], 1000).context("scan")?;
            let is = |name: &str| logs.iter().find(|log| log.key.ends_with(name.as_bytes()));
            let of_clients = is("-client").ok_or("no log of clients")?;
            let of_ost = is("-OST0000").ok_or("no log of the OST")?;
            client = Some((of_clients.key.clone(), of_clients.value.clone()));
            transaction.delete(LOGS, of_clients.key.clone());
            let records = of_ost.value[..4].try_into().map(u32::from_le_bytes).context("an id")?;
            let records = Fid::new(fid_seq::LLOG_NAME, records);
            let first = store.scan(records, &[], 1).context("scan")?.remove(0);
            transaction.put(records, first.key, first.value.slice(1..));
            Ok(())
        })?;
        for options in [&["-n"][..], &["-y"]] {
            let found = fsck(cluster, options)?;
            left_with(4, " 3 problems", &found)?;
            reports(&found.1, &["MGS: ", "/mgt: log ", "-client is missing"])?;
            reports(&found.1, &["MGS: ", "records of a log that has no name"])?;
            reports(&found.1, &["MGS: ", "-OST0000: "])?;
        }
        change_store(cluster, "mgt", |_, transaction| {
            let (key, value) = client.ok_or("it was not read")?;
            transaction.put(LOGS, key, value);
            Ok(())
        })?;
        left_with(4, " 1 problems", &fsck(cluster, &["-n"])?)
    });
}

#[test]
fn a_mark_that_is_lost_is_reported_by_fsck_and_at_the_next_start() {
    scene("fsck-mark", 1, LIMIT, |cluster| {
        cluster.down()?;
        let mark = cluster.dir().join("ost0000/committed");
        let (dir, mnt) = (cluster.dir(), cluster.mnt().to_owned());
        fs::remove_file(&mark).context("remove the mark")?;
        let found = fsck(cluster, &["-n"])?;
        left_with(4, " 1 problems", &found)?;
        reports(&found.1, &["-OST0000: ", "ost0000/committed", "missing or damaged"])?;
        ensure(!mark.exists(), || "`fsck -n` made it".to_owned())?;
        left_with(1, " 0 problems", &fsck(cluster, &["-y"])?)?;
        left_with(0, " 0 problems", &fsck(cluster, &["-n"])?)?;
        fs::write(&mark, "nothing legible").context("damage the mark")?;
        let up = ["up", "--dir", &dir.to_string_lossy(), "--mount", &mnt.to_string_lossy()];
        let said = cluster.must(&up)?;
        reports(&said, &["ost0000/committed", "missing or damaged"])?;
        cluster.down()?;
        left_with(0, " 0 problems", &fsck(cluster, &["-n"])?)
    });
}
