//! Writers of one file on two mounts, while readers read it: some go through the kernel's pages and some
//! past them, as the client sees fit, and no reader sees a difference.
#![allow(clippy::disallowed_methods, reason = "writers and readers live in threads of their own")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::{Context, Outcome, ensure};

/// Bytes of a slot: several share a page, and some lie in two.
const SLOT: usize = 1000;
/// Writers on each mount. Each opens the file for itself.
const WRITERS: u64 = 3;
/// Slots of each writer, all over the file.
const SLOTS: u64 = 4;

/// Each of six writers fills its own slots again and again; who reads a slot after a write of it has
/// returned finds that, whichever way he reads.
pub fn run(a: &Path, b: &Path, rounds: u64) -> Outcome {
    let name = "slots";
    File::create_new(a.join(name)).context("create")?;
    let is_over = AtomicBool::new(false);
    let (a, b) = (a.join(name), b.join(name));
    let views = [&a, &b];
    thread::scope(|scope| {
        let readers = views.map(|path| scope.spawn(|| read_on(path, &is_over)));
        let writers: Vec<_> = (0..2 * WRITERS)
            .map(|writer| scope.spawn(move || fill(views[writer as usize % 2], writer, rounds)))
            .collect();
        let mut outcomes: Vec<_> = writers.into_iter().map(|it| it.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        outcomes.extend(readers.map(|it| it.join()));
        outcomes.into_iter().try_for_each(|outcome| outcome.map_err(|_| "a panic".to_owned())?)
    })?;
    for path in views {
        let file = File::open(path).context("open")?;
        for writer in 0..2 * WRITERS {
            (0..SLOTS)
                .try_for_each(|slot| expect(&file, writer, slot, rounds - 1, "at the end"))?;
        }
    }
    Ok(())
}

/// Fills a writer's slots. The third of each mount may read through its own handle, too.
fn fill(path: &Path, writer: u64, rounds: u64) -> Outcome {
    let may_read = writer / 2 == 2;
    let file = OpenOptions::new().write(true).read(may_read).open(path).context("open to write")?;
    let seen = File::open(path).context("open to read")?;
    for round in 0..rounds {
        for slot in 0..SLOTS {
            file.write_all_at(&content(writer, round), place(writer, slot)).context("write")?;
            expect(&seen, writer, slot, round, "through the pages")?;
            if may_read {
                expect(&file, writer, slot, round, "through the writer's handle")?;
            }
        }
    }
    Ok(())
}

/// Brings pages into the kernel, at all times.
fn read_on(path: &Path, is_over: &AtomicBool) -> Outcome {
    let file = File::open(path).context("open to read on")?;
    let mut bytes = vec![0; SLOT];
    while !is_over.load(Ordering::Relaxed) {
        for number in 0..2 * WRITERS * SLOTS {
            file.read_at(&mut bytes, number * SLOT as u64).context("read on")?;
        }
    }
    Ok(())
}

fn expect(file: &File, writer: u64, slot: u64, round: u64, how: &str) -> Outcome {
    let mut found = vec![0; SLOT];
    file.read_exact_at(&mut found, place(writer, slot)).context(format!("read {how}"))?;
    ensure(found == content(writer, round), || {
        format!("{how}, slot {slot} of writer {writer} has {} after round {round}", found[0])
    })
}

fn content(writer: u64, round: u64) -> Vec<u8> {
    vec![((round * 2 * WRITERS + writer) % 251 + 1) as u8; SLOT]
}

fn place(writer: u64, slot: u64) -> u64 {
    (slot * 2 * WRITERS + writer) * SLOT as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_on_a_local_file_system() {
        let folder = std::env::temp_dir().join(format!("sheen-slots-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let outcome = run(&folder, &folder, 20);
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(outcome, Ok(()));
    }
}
