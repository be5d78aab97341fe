//! What a target lost that it had acknowledged: it is refused in one line, not served with less.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::{Context, Outcome, ensure};

const LIMIT: Duration = Duration::from_secs(300);

/// The newest journal of the MDT.
fn journal(cluster: &Cluster) -> Outcome<PathBuf> {
    journals(cluster)?.pop().ok_or_else(|| "no journal".to_owned())
}

/// All of them, in order.
fn journals(cluster: &Cluster) -> Outcome<Vec<PathBuf>> {
    let engine = cluster.dir().join("mdt0000/engine");
    let mut journals = Vec::new();
    for entry in fs::read_dir(engine).context("read")? {
        let path = entry.context("read")?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        let is_journal = path.extension().is_some_and(|extension| extension == "jnl");
        journals.extend(number.filter(|_| is_journal).map(|number| (number, path)));
    }
    journals.sort();
    Ok(journals.into_iter().map(|(_, path)| path).collect())
}

/// 300 files, stopped, the MDT's journal cut in half.
#[test]
fn a_journal_cut_in_half_keeps_the_file_system_down() {
    scene("journal-cut", 1, LIMIT, |cluster| {
        for number in 0..300 {
            fs::write(cluster.mnt().join(format!("file-{number}")), [7; 100]).context("write")?;
        }
        // A kill leaves the mark current, and is no damage.
        cluster.kill_server()?;
        cluster.up()?;
        same_after_restart(cluster)?;
        cluster.down()?;
        let journal = journal(cluster)?;
        let whole = fs::read(&journal).context("read")?;
        let used = whole.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        fs::write(&journal, &whole[..used / 2]).context("cut")?;
        let refused = cluster.up().err().ok_or("it came up with half of its journal")?;
        let text = "transactions that were acknowledged as durable are missing";
        let lines: Vec<_> = refused.lines().filter(|line| line.contains(text)).collect();
        ensure(
            lines.iter().any(|line| line.contains("MDT0000") && line.contains("mdt0000/engine")),
            || format!("no line names the target:\n{refused}"),
        )?;
        fs::write(&journal, &whole).context("restore")?;
        cluster.up()?;
        same_after_restart(cluster)
    });
}

/// Nothing says then that there ever was one.
#[test]
fn an_mdt_without_journal_and_mark_does_not_come_up_empty() {
    scene("journal-gone", 1, LIMIT, |cluster| {
        fs::write(cluster.mnt().join("file"), "kept").context("write")?;
        same_after_restart(cluster)?;
        cluster.down()?;
        let mut lost = journals(cluster)?;
        lost.push(cluster.dir().join("mdt0000/committed"));
        let whole: Vec<_> = lost.iter().map(fs::read).collect::<Result<_, _>>().context("read")?;
        lost.iter().try_for_each(fs::remove_file).context("remove")?;
        let refused = cluster.up().err().ok_or("it came up empty")?;
        let checked = cluster.fsck().err().ok_or("nothing is wrong with it")?;
        for said in [refused, checked] {
            let is_it =
                |line: &str| line.contains("mdt0000/engine") && line.contains("sheen salvage");
            ensure(said.lines().any(is_it), || format!("no line names the way back:\n{said}"))?;
        }
        for (path, bytes) in lost.iter().zip(whole) {
            fs::write(path, bytes).context("restore")?;
        }
        cluster.up()?;
        let read = fs::read_to_string(cluster.mnt().join("file")).context("read")?;
        ensure(read == "kept", || read.clone())
    });
}

/// A target that looks like an empty directory is not made anew.
#[test]
fn a_target_that_is_gone_is_not_formatted_again() {
    scene("target-gone", 2, LIMIT, |cluster| {
        fs::write(cluster.mnt().join("file"), "kept").context("write")?;
        same_after_restart(cluster)?;
        for target in ["mdt0000", "ost0000"] {
            cluster.down()?;
            let format = cluster.dir().join(target).join("format");
            let whole = fs::read(&format).context("read")?;
            fs::remove_file(&format).context("remove")?;
            let refused = cluster.up().err().ok_or("it came up without a target")?;
            ensure(refused.contains(target) && refused.contains("restore it"), || refused.clone())?;
            ensure(!format.exists(), || format!("{target} was formatted"))?;
            fs::write(&format, &whole).context("restore")?;
            cluster.up()?;
            same_after_restart(cluster)?;
        }
        Ok(())
    });
}

/// Every table of the MDT damaged, and the journal: it does not start, is salvaged, and serves what is left.
#[test]
fn a_damaged_table_is_salvaged() {
    scene("salvage", 1, LIMIT, |cluster| {
        for number in 0..40 {
            let directory = cluster.mnt().join(format!("dir-{number}"));
            fs::create_dir(&directory).context("mkdir")?;
            for file in 0..10 {
                let path = directory.join(format!("file-{file}"));
                fs::write(path, format!("{number}.{file}").repeat(100)).context("write")?;
            }
        }
        cluster.down()?;
        let journal = journal(cluster)?;
        let mut bytes = fs::read(&journal).context("read")?;
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        // In a name: its inode or its directory knows it still.
        let at = bytes[..used / 2].windows(6).rposition(|name| name == b"file-3").unwrap_or(0);
        bytes[at] ^= 0x10;
        fs::write(&journal, &bytes).context("damage")?;
        ensure(cluster.up().is_err(), || "it came up with a damaged journal".to_owned())?;
        let dir = cluster.dir().to_string_lossy().into_owned();
        let output = cluster.must(&["salvage", "--dir", &dir, "mdt0000"])?;
        ensure(output.contains("were taken, which no checksum proves"), || output.clone())?;
        ensure(
            fs::read(cluster.dir().join("damaged-mdt0000/engine").join(name(&journal)))
                .is_ok_and(|kept| kept == bytes),
            || "the damaged store was changed".to_owned(),
        )?;
        cluster.up()?;
        let mut read = 0;
        for entry in fs::read_dir(cluster.mnt()).context("list")? {
            let directory = entry.context("list")?.path();
            let Some(number) = name(&directory).strip_prefix("dir-").map(str::to_owned) else {
                continue;
            };
            for entry in fs::read_dir(&directory).context("list")? {
                let path = entry.context("list")?.path();
                // The flipped byte may be in what the inode says of its name: it has two then.
                let Some(file) = name(&path).strip_prefix("file-") else { continue };
                let bytes = fs::read_to_string(&path).context("read")?;
                let expected = format!("{number}.{file}").repeat(100);
                ensure(bytes == expected, || format!("{}: other bytes", path.display()))?;
                read += 1;
            }
        }
        // The flipped byte is one change's, or a few where it is a length.
        ensure(read >= 380, || format!("only {read} of 400 files:\n{output}"))?;
        fs::write(cluster.mnt().join("new"), "new").context("write")?;
        cluster.down()?;
        let checked = cluster.run(&["fsck", "--dir", &dir])?;
        let faults = checked.output.lines().filter(|line| line.contains("MDT0000:"));
        let faults: Vec<_> = faults.collect();
        ensure(faults.is_empty(), || format!("{faults:?}"))?;
        cluster.up()
    });
}

fn name(path: &std::path::Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The MDT's end is lost, and the newest files with it: their objects stay, and `sheen fsck -y` gives them names.
#[test]
fn objects_of_files_that_a_salvaged_mdt_has_lost_are_kept() {
    scene("salvage-newest", 1, LIMIT, |cluster| {
        fs::write(cluster.mnt().join("old"), "old").context("write")?;
        cluster.down()?;
        let journal = journal(cluster)?;
        let before = fs::read(&journal).context("read")?;
        let used = before.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        cluster.up()?;
        for number in 0..20 {
            let path = cluster.mnt().join(format!("new-{number}"));
            fs::write(path, format!("newest {number};").repeat(100)).context("write")?;
        }
        cluster.down()?;
        let file = fs::OpenOptions::new().write(true).open(&journal).context("open")?;
        file.set_len(used as u64).context("cut")?;
        ensure(cluster.up().is_err(), || "it came up with a journal cut".to_owned())?;
        let dir = cluster.dir().to_string_lossy().into_owned();
        cluster.must(&["salvage", "--dir", &dir, "mdt0000"])?;
        cluster.up()?;
        let old = fs::read_to_string(cluster.mnt().join("old")).context("read")?;
        ensure(old == "old", || old.clone())?;
        fs::write(cluster.mnt().join("after"), "after").context("write")?;
        // The MDT and the OST have agreed on what there is.
        cluster.down()?;
        let repaired = cluster.run(&["fsck", "-y", "--dir", &dir])?.output;
        cluster.up()?;
        let mut found: Vec<String> = Vec::new();
        for entry in fs::read_dir(cluster.mnt().join("lost+found")).context("list")? {
            found.push(fs::read_to_string(entry.context("list")?.path()).context("read")?);
        }
        for number in 0..20 {
            let content = format!("newest {number};").repeat(100);
            let is_there = cluster.mnt().join(format!("new-{number}")).exists();
            ensure(is_there || found.contains(&content), || {
                format!("{number} is lost: {repaired}")
            })?;
        }
        Ok(())
    });
}

/// A target without its configuration and without its engine is salvaged: what is left is its data, under the
/// names that the MDT has for it.
#[test]
fn an_ost_without_configuration_and_engine_is_salvaged() {
    scene("salvage-bare", 1, LIMIT, |cluster| {
        let path = cluster.mnt().join("file");
        let content = sheen_workloads::bytes::content(3, 200_000);
        fs::write(&path, &content).context("write")?;
        cluster.down()?;
        let ost = cluster.dir().join("ost0000");
        for file in ["CONFIG", "CONFIG.copy"] {
            fs::write(ost.join(file), "nothing").context("damage")?;
        }
        let dir = cluster.dir().to_string_lossy().into_owned();
        let refused = cluster.run(&["fsck", "--dir", &dir])?;
        let is_named =
            refused.output.contains("ost0000/CONFIG") && refused.output.contains("salvage");
        ensure(is_named && !refused.status.success(), || refused.output.clone())?;
        fs::remove_dir_all(ost.join("engine")).context("remove the engine")?;
        let output = cluster.must(&["salvage", "--dir", &dir, "ost0000"])?;
        ensure(output.contains("CONFIG: ") && output.contains("engine: it is gone"), || {
            output.clone()
        })?;
        cluster.up()?;
        ensure(fs::read(&path).context("read")? == content, || "other bytes".to_owned())
    });
}
