//! What the kernel keeps of a file's bytes and size, when locks go while a program is at it.
#![allow(clippy::disallowed_methods, reason = "programs run beside what disturbs them")]

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::scene;
use sheen_workloads::bytes::content;
use sheen_workloads::{Context, Outcome, Size, ensure};

const LIMIT: Duration = Duration::from_secs(900);

/// Programs at work at once.
const PROGRAMS: u64 = 2;

/// Runs `work` in [`PROGRAMS`] threads while all locks of the mount are cancelled again and again.
fn while_locks_go(cluster: &Cluster, work: impl Fn(u64) -> Outcome + Sync) -> Outcome {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let disturb = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                cluster.must(&["lctl", "set_param", "-n", "ldlm.namespaces.*.lru_size=clear"])?;
            }
            Ok(())
        });
        let work = &work;
        let programs: Vec<_> =
            (0..PROGRAMS).map(|program| scope.spawn(move || work(program))).collect();
        let mut outcomes: Vec<Outcome> =
            programs.into_iter().map(|it| it.join().expect("no panic")).collect();
        is_over.store(true, Ordering::Relaxed);
        outcomes.push(disturb.join().expect("no panic"));
        outcomes.into_iter().collect()
    })
}

/// A file that was written and closed has its bytes for who opens it then, whatever notices the kernel got
/// when and in which order: `cp` would take fewer for the end, and what maps the file would get SIGBUS.
#[test]
fn what_was_closed_is_there_whole_while_locks_go() {
    scene("closed-whole", 2, LIMIT, |cluster| {
        let files = Size::asked().of(250, 1000, 5000);
        while_locks_go(cluster, |program| {
            let top = cluster.mnt().join(format!("of-{program}"));
            fs::create_dir(&top).context("mkdir")?;
            let mut short = Vec::new();
            for number in 0..files {
                short.extend(written_and_read(&top.join(format!("file-{number}")), number)?);
            }
            ensure(short.is_empty(), || format!("{} of {files}: {short:?}", short.len()))
        })
    });
}

/// What was wrong with one file.
fn written_and_read(path: &Path, number: u64) -> Outcome<Option<String>> {
    let written = content(number, 1 + (number * 7919 % 20_000) as usize);
    fs::write(path, &written).context(path.display())?;
    let mut file = File::open(path).context(path.display())?;
    if number.is_multiple_of(2) {
        let end = file.seek(SeekFrom::End(0)).context("lseek")?;
        if end != written.len() as u64 {
            return Ok(Some(format!("{number}: {} bytes end at {end}", written.len())));
        }
        file.seek(SeekFrom::Start(0)).context("lseek")?;
    }
    let mut found = Vec::new();
    file.read_to_end(&mut found).context("read")?;
    let is_whole = found == written;
    Ok((!is_whole).then(|| format!("{number}: {} bytes, {} read", written.len(), found.len())))
}
