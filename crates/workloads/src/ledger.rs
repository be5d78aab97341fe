//! A ledger of what was reported as durable, kept outside the file system under test.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::bytes::content;
use crate::{Context, Outcome, ensure};

/// Bytes of one record.
const RECORD: usize = 512;

/// Every so many records, a file of its own, renamed into place.
const FILE_EVERY: u64 = 8;

/// What was promised: records `0..durable`.
#[derive(Debug, Default)]
pub struct Ledger {
    durable: AtomicU64,
    stopped: AtomicBool,
}

impl Ledger {
    /// Appends records to a log below `top`, each synced before it is counted, until stopped.
    pub fn run(&self, top: &Path) -> Outcome {
        let folder = crate::folder(top, "ledger")?;
        sync_folder(top)?;
        let path = folder.join("log");
        let log = OpenOptions::new().append(true).create_new(true).open(&path);
        let mut log = log.context(path.display())?;
        sync_folder(&folder)?;
        let mut number = 0;
        while !self.stopped.load(Ordering::SeqCst) {
            log.write_all(&record(number)).context(path.display())?;
            log.sync_all().context(path.display())?;
            if number.is_multiple_of(FILE_EVERY) {
                place(&folder, number)?;
            }
            number += 1;
            self.durable.store(number, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Ends [`Ledger::run`] after its present record.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// How many records were reported as durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// Everything promised is there, and what is there is whole.
    pub fn verify(&self, top: &Path) -> Outcome {
        let folder = top.join("ledger");
        let log = fs::read(folder.join("log")).context("the ledger's log")?;
        let promised = self.durable();
        let found = log.len() / RECORD;
        ensure(found as u64 >= promised, || format!("{found} records of {promised} promised"))?;
        for number in 0..promised {
            let at = usize::try_from(number).context(number)? * RECORD;
            ensure(log[at..at + RECORD] == record(number), || format!("record {number} is torn"))?;
            if number.is_multiple_of(FILE_EVERY) {
                let path = file(&folder, number);
                let bytes = fs::read(&path).context(path.display())?;
                ensure(bytes == record(number), || format!("{}: torn", path.display()))?;
            }
        }
        Ok(())
    }
}

/// The way programs replace a file: write aside, sync, rename, sync the folder.
fn place(folder: &Path, number: u64) -> Outcome {
    let aside = folder.join("aside");
    let mut file_aside = File::create(&aside).context(aside.display())?;
    file_aside.write_all(&record(number)).context(aside.display())?;
    file_aside.sync_all().context(aside.display())?;
    let path = file(folder, number);
    fs::rename(&aside, &path).context(path.display())?;
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> Outcome {
    File::open(folder).and_then(|folder| folder.sync_all()).context(folder.display())
}

fn file(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("file-{number:08}"))
}

fn record(number: u64) -> Vec<u8> {
    content(number ^ 0x1ed9e5, RECORD)
}
