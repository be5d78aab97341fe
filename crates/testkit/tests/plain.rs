//! The workloads on a plain directory: they ask for nothing that a local file system does not give.

use std::path::PathBuf;

use sheen_workloads::{Outcome, Size, big, ledger, many, pair, plant, storm, tree};

#[path = "e2e/sqlite.rs"]
mod sqlite;

/// A folder that goes away with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sheen-plain-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("own folder");
    }
}

#[test]
fn many_files() -> Outcome {
    let folder = Folder::new("many");
    many::run(&folder.0, many::count(Size::Tiny))
}

#[test]
fn many_files_sees_a_missing_and_a_foreign_name() -> Outcome {
    let folder = Folder::new("many-wrong");
    many::create(&folder.0, 10)?;
    std::fs::rename(folder.0.join("file-000003"), folder.0.join("other")).expect("rename");
    assert!(many::list(&folder.0, 10).expect_err("foreign").contains("not listed"));
    std::fs::remove_file(folder.0.join("other")).expect("remove");
    assert!(many::list(&folder.0, 10).expect_err("missing").contains("9 of 10"));
    Ok(())
}

#[test]
fn a_storm() -> Outcome {
    let folder = Folder::new("storm");
    let plan = storm::Plan { seed: 1, actors: 3, length: std::time::Duration::from_secs(1) };
    storm::run(&[&folder.0, &folder.0], plan)
}

#[test]
fn a_big_file() -> Outcome {
    let folder = Folder::new("big");
    big::run(&folder.0, big::length(Size::Tiny))
}

#[test]
fn a_big_file_sees_one_wrong_byte() -> Outcome {
    use std::os::unix::fs::FileExt;
    let folder = Folder::new("big-wrong");
    let path = folder.0.join("file");
    big::write(&path, 1, 3_000_000)?;
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("open");
    file.write_all_at(b"\0", 2_000_001).expect("write");
    let fault = big::verify(&path, 1, 3_000_000).expect_err("one byte is wrong");
    assert!(fault.contains("wrong byte at 2000001"), "{fault}");
    Ok(())
}

#[test]
fn databases() -> Outcome {
    let folder = Folder::new("sqlite");
    let count = sqlite::transactions(Size::Tiny);
    sqlite::run(&folder.0, count)?;
    sqlite::check_all(&folder.0, count)?;
    assert!(sqlite::check_all(&folder.0, count + 1).is_err(), "a lost transaction is seen");
    Ok(())
}

#[test]
fn two_views_of_one_folder() -> Outcome {
    let folder = Folder::new("pair");
    let probe = env!("CARGO_BIN_EXE_sheen-probe");
    pair::run(&folder.0, &folder.0, probe.as_ref(), Size::Tiny)
}

#[test]
fn a_planted_tree_is_the_same_when_read_again() -> Outcome {
    let folder = Folder::new("plant");
    plant::run(&folder.0)?;
    let before = tree::read(&folder.0)?;
    assert!(before.len() > 60, "{} names", before.len());
    tree::must_be_consistent(&before)?;
    tree::must_equal(&before, &tree::read(&folder.0)?)?;
    let path = folder.0.join("plant/bytes-4096");
    rustix::fs::setxattr(&path, "user.new", b"1", rustix::fs::XattrFlags::CREATE).expect("xattr");
    std::fs::remove_file(folder.0.join("plant/link")).expect("remove");
    let lines = tree::differences(&before, &tree::read(&folder.0)?);
    assert!(lines.iter().any(|line| line == "plant/link: gone"), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("user.new")), "{lines:?}");
    Ok(())
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the ledger runs beside the test")]
fn a_ledger_keeps_its_promises_and_sees_broken_ones() -> Outcome {
    let folder = Folder::new("ledger");
    let book = ledger::Ledger::default();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| book.run(&folder.0));
        while book.durable() < 20 && !run.is_finished() {
            std::thread::yield_now();
        }
        book.stop();
        run.join().expect("no panic")
    })?;
    book.verify(&folder.0)?;
    std::fs::remove_file(folder.0.join("ledger/file-00000008")).expect("it was promised");
    assert!(book.verify(&folder.0).is_err(), "a lost file is seen");
    Ok(())
}
