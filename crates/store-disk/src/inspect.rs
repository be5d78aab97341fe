//! Whether a database holds all that was acknowledged, before fjall opens it.
//!
//! fjall takes what it finds: a keyspace whose `current` is gone is deleted as one that was never
//! whole, a journal is cut where it does not fit, one that is missing is not missed. So it opens
//! only what passed here. Nothing is changed here.
//!
//! Every batch writes its number ([`Commit`]) to all three keyspaces. The journals hold the numbers
//! from some first to some last without a gap, and the tables of each keyspace all up to some
//! number; together they must reach as far in each keyspace, and as far as the [`CommitMark`] records.
//! Losing power takes batches from the end of the newest journal only, and only such as the mark
//! does not record. Anything else is refused by name.

use std::path::{Path, PathBuf};

use sheen_store::StoreError;

use crate::{
    DiskError,
    commit_mark::{CommitMark, Durable},
    journal::{self, Batch, COMMIT, Commit, JournalTail, SEQUENCE},
    tables::{self, ListedTable},
};

/// The keyspaces of every store, as fjall numbers them when it makes them in this order. Its own is 0.
pub(crate) const KEYSPACES: [&str; 3] = ["objects", "keys", "meta"];
/// The place of the counters among [`KEYSPACES`].
const META: usize = 2;

/// What is there.
pub(crate) struct Inspection {
    /// The newest whole commit; number 0 if none was ever counted.
    pub(crate) durable: Durable,
    /// A journal with the torn end of a batch that was never durable.
    pub(crate) torn: Option<(PathBuf, JournalTail)>,
    /// The mark is gone, though there should be one.
    pub(crate) lacks_mark: bool,
}

/// Looks at the database of the store in `dir`.
pub(crate) fn inspect(dir: &Path) -> Result<Inspection, DiskError> {
    let database = dir.join("engine");
    check_version(&database)?;
    let flushed = flushed(&database)?;
    let mut chain = Chain::default();
    let torn = read_journals(&database, &mut chain)?;
    let reach = flushed.reach(&database, &chain)?;
    let durable = Durable {
        commit: reach,
        sequence: chain.newest.map_or(0, |batch| batch.sequence).max(flushed.sequence),
        number: chain.newest.map_or(0, |batch| batch.number),
    };
    let mark = CommitMark::read(dir)?;
    check_mark(dir, durable, mark.unwrap_or_default())?;
    check_not_empty(&database, durable, &chain)?;
    Ok(Inspection { durable, torn, lacks_mark: mark.is_none() && reach > 0 })
}

fn check_version(database: &Path) -> Result<(), DiskError> {
    let path = database.join("version");
    let bytes = std::fs::read(&path).map_err(DiskError::io("read", &path))?;
    if bytes == b"FJL\x03" {
        return Ok(());
    }
    Err(DiskError::Damaged { path, why: "not the version of a fjall 3 database".to_owned() })
}

/// What the tables hold.
struct Flushed {
    /// The newest commit in each keyspace.
    commits: [u64; 3],
    sequence: u64,
}

fn flushed(database: &Path) -> Result<Flushed, DiskError> {
    let tables = |keyspace: usize| -> Result<Vec<ListedTable>, DiskError> {
        let listed = tables::listed(&database.join("keyspaces").join(keyspace.to_string()))?;
        listed.iter().try_for_each(ListedTable::check)?;
        Ok(listed)
    };
    tables(0)?;
    let mut flushed = Flushed { commits: [0; 3], sequence: 0 };
    let word = |bytes: Vec<u8>| bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
    for (place, commit) in flushed.commits.iter_mut().enumerate() {
        let tables = tables(place + 1)?;
        *commit = tables::newest(&tables, COMMIT)?.map_or(0, word);
        if place == META {
            flushed.sequence = tables::newest(&tables, SEQUENCE)?.map_or(0, word);
        }
    }
    Ok(flushed)
}

impl Flushed {
    /// Up to which commit all keyspaces are there, with what the journals add.
    fn reach(&self, database: &Path, chain: &Chain) -> Result<u64, DiskError> {
        let missing = |from: u64, to: u64| DiskError::Damaged {
            path: database.to_owned(),
            why: format!(
                "commits {from} to {to}, which were acknowledged as durable, are missing: \
                 a journal or a table was lost; {WAY_BACK}"
            ),
        };
        let (lowest, highest) = (self.commits.iter().min(), self.commits.iter().max());
        let (lowest, highest) = (*lowest.unwrap_or(&0), *highest.unwrap_or(&0));
        if let Some((first, last)) = chain.first.zip(chain.last) {
            if first > lowest + 1 {
                return Err(missing(lowest + 1, first - 1));
            }
            if last >= highest {
                return Ok(last);
            }
        }
        if lowest < highest {
            return Err(missing(chain.last.unwrap_or(0).max(lowest) + 1, highest));
        }
        Ok(highest)
    }
}

/// What an operator can do.
const WAY_BACK: &str = "restore the store from a backup, or salvage what is left (`sheen salvage`)";

/// For `map_err`: what an error of the database of the store in `dir` means to the caller that opens
/// it.
pub(crate) fn fault(dir: &Path) -> impl Fn(StoreError) -> DiskError + use<> {
    let path = dir.join("engine");
    move |error| match error {
        StoreError::Corrupt(why) => with_way_out(DiskError::Damaged { path: path.clone(), why }),
        error => DiskError::Database(error.to_string()),
    }
}

/// Adds to what is damaged what an operator can do; a file of the database that is gone is damage, too.
pub(crate) fn with_way_out(error: DiskError) -> DiskError {
    match error {
        DiskError::Damaged { path, why } if !why.contains(WAY_BACK) => {
            DiskError::Damaged { path, why: format!("{why}; {WAY_BACK}") }
        }
        DiskError::Io { doing, error } if error.kind() == std::io::ErrorKind::NotFound => {
            let error = std::io::Error::new(error.kind(), format!("{error}; {WAY_BACK}"));
            DiskError::Io { doing, error }
        }
        other => other,
    }
}

/// Refuses a database that has less than the mark records.
fn check_mark(dir: &Path, found: Durable, mark: Durable) -> Result<(), DiskError> {
    if found.commit < mark.commit {
        return Err(DiskError::Missing {
            path: dir.join("engine"),
            have: found.sequence,
            had: mark.sequence,
        });
    }
    let is_comparable = found.commit == mark.commit && mark.number != 0 && found.number != 0;
    if is_comparable && (found.number, found.sequence) != (mark.number, mark.sequence) {
        let why = format!("the newest batch is not the one that was written; {WAY_BACK}");
        return Err(DiskError::Damaged { path: dir.join("engine"), why });
    }
    Ok(())
}

/// Refuses a database of which nothing is left: formatting a store commits to it, and the newest journal is always
/// there. Without the mark nothing else shows that all of it is gone, and fjall would begin anew.
fn check_not_empty(database: &Path, found: Durable, chain: &Chain) -> Result<(), DiskError> {
    let is_empty = found.commit == 0 && found.sequence == 0 && chain.newest.is_none();
    if !is_empty && !journal::files(database)?.is_empty() {
        return Ok(());
    }
    let why = format!("its journal, or what was in it, is gone; {WAY_BACK}");
    Err(DiskError::Damaged { path: database.to_owned(), why })
}

/// The batches of all journals, in order.
#[derive(Default)]
struct Chain {
    first: Option<u64>,
    last: Option<u64>,
    newest: Option<Batch>,
}

impl Chain {
    fn see(&mut self, path: &Path, batch: Batch) -> Result<(), DiskError> {
        let damaged = |why: String| Err(DiskError::Damaged { path: path.to_owned(), why });
        let earlier = self.newest.replace(batch);
        if let Some(earlier) = earlier.filter(|earlier| earlier.number >= batch.number) {
            let (before, after) = (earlier.number, batch.number);
            return damaged(format!("batch {after} lies behind batch {before}; {WAY_BACK}"));
        }
        let Some(Commit { number, before }) = batch.commit else { return Ok(()) };
        if let Some(last) = self.last.filter(|last| last + 1 != number) {
            return damaged(format!("commit {number} follows commit {last}; {WAY_BACK}"));
        }
        self.first.get_or_insert(number);
        self.last = Some(number);
        match earlier {
            Some(earlier) if before != 0 && before != earlier.number => {
                damaged(format!("the batch before commit {number} went bad; {WAY_BACK}"))
            }
            _ => Ok(()),
        }
    }
}

/// Reads all journals; what is torn at the end of the newest is returned.
fn read_journals(
    database: &Path,
    chain: &mut Chain,
) -> Result<Option<(PathBuf, JournalTail)>, DiskError> {
    let files = journal::files(database)?;
    let mut torn = None;
    for (place, path) in files.iter().enumerate() {
        let rest = journal::read(path, &mut |batch| chain.see(path, batch))?;
        if rest.bytes == 0 {
            continue;
        }
        let is_newest = place + 1 == files.len();
        if rest.batch_behind.is_some() || !is_newest {
            let end = rest.batch_behind.unwrap_or(rest.at + rest.bytes);
            let why = format!("bytes {} to {end} went bad; {WAY_BACK}", rest.at);
            return Err(DiskError::Damaged { path: path.clone(), why });
        }
        torn = Some((path.clone(), rest));
    }
    Ok(torn)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sheen_store::{Attributes, Sequence, Store, Transaction};
    use sheen_types::Fid;

    use super::*;
    use crate::{FormatOptions, OpenOptions, StoreDisk};

    struct TestDir(PathBuf);

    impl TestDir {
        fn new() -> Self {
            static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let name = format!("sheen-inspect-{}-{number}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn open(&self) -> Result<StoreDisk, DiskError> {
            StoreDisk::open(&self.0, &OpenOptions::default())
        }

        fn database(&self, file: &str) -> PathBuf {
            self.0.join("engine").join(file)
        }
    }

    impl Drop for TestDir {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    const COMMITS: u32 = 30;

    /// A store whose batches lie in three journals, as those of a large one may: two sealed.
    fn split() -> TestDir {
        let place = TestDir::new();
        StoreDisk::format(&place.0, &FormatOptions::default()).expect("format works");
        let store = place.open().expect("open works");
        for number in 0..COMMITS {
            let mut transaction = Transaction::new();
            transaction.create(Fid::new(1, number), Attributes::default());
            store.apply(transaction).expect("apply works");
            store.commit().expect("commit works");
        }
        drop(store);
        let journal = place.database("0.jnl");
        let (mut at, mut ends) = (0, Vec::new());
        let read = journal::read(&journal, &mut |batch| {
            at += batch.bytes as usize;
            ends.push(at);
            Ok(())
        });
        assert_eq!(read.expect("read works").bytes, 0);
        let bytes = fs::read(&journal).expect("read works");
        let (first, second) = (ends[ends.len() / 3], ends[ends.len() * 2 / 3]);
        for (file, part) in [(0, 0..first), (1, first..second), (2, second..at)] {
            fs::write(place.database(&format!("{file}.jnl")), &bytes[part]).expect("write works");
        }
        place
    }

    #[test]
    fn several_journals_open_with_all_that_is_in_them() {
        let place = split();
        for _ in 0..2 {
            let store = place.open().expect("open works");
            assert_eq!(store.committed(), Sequence(COMMITS.into()));
            for number in 0..COMMITS {
                store.attributes(Fid::new(1, number)).expect("it is there");
            }
        }
    }

    #[test]
    fn a_journal_that_is_gone_cut_or_changed_is_missed_wherever_it_lay() {
        for file in ["0.jnl", "1.jnl", "2.jnl"] {
            let place = split();
            fs::remove_file(place.database(file)).expect("remove works");
            let error = place.open().err().expect("refused without it").to_string();
            assert!(error.contains("commit") || error.contains("acknowledged"), "{error}");
            assert!(error.contains(&*place.0.to_string_lossy()), "{error}");
        }
        for file in ["0.jnl", "1.jnl", "2.jnl"] {
            let place = split();
            let path = place.database(file);
            let bytes = fs::read(&path).expect("read works");
            for at in (0..bytes.len()).step_by(197).chain(5..13) {
                let mut bad = bytes.clone();
                bad[at] ^= 0x10;
                fs::write(&path, &bad).expect("write works");
                assert!(inspect(&place.0).is_err(), "{file}: byte {at} was changed");
                fs::write(&path, &bytes[..at]).expect("write works");
                assert!(inspect(&place.0).is_err(), "{file}: cut to {at}");
            }
            fs::write(&path, &bytes).expect("write works");
            inspect(&place.0).map(drop).expect("nothing was changed by looking");
        }
    }

    #[test]
    fn an_older_store_in_place_of_this_one_is_missed_by_its_mark() {
        let place = split();
        let mark = fs::read(place.0.join("committed")).expect("read works");
        StoreDisk::format(&place.0, &FormatOptions { reformat: true, ..Default::default() })
            .expect("format works");
        drop(place.open().expect("a new store has a new mark"));
        fs::write(place.0.join("committed"), mark).expect("write works");
        let error = place.open().err().expect("refused");
        assert!(matches!(error, DiskError::Missing { had, .. } if had == u64::from(COMMITS)));
    }

    /// Whatever becomes of its mark.
    #[test]
    fn a_store_without_a_journal_does_not_come_up_empty() {
        for (has_mark, is_cut) in [(false, false), (false, true), (true, false), (true, true)] {
            let place = TestDir::new();
            StoreDisk::format(&place.0, &FormatOptions::default()).expect("format works");
            let store = place.open().expect("open works");
            let mut transaction = Transaction::new();
            transaction.create(Fid::new(1, 1), Attributes::default());
            store.apply(transaction).expect("apply works");
            drop(store);
            let journal = place.database("0.jnl");
            fs::remove_file(&journal).expect("remove works");
            if is_cut {
                fs::write(&journal, b"").expect("write works");
            }
            if !has_mark {
                fs::remove_file(place.0.join("committed")).expect("remove works");
            }
            let error = place.open().err().expect("refused").to_string();
            assert!(error.contains("sheen salvage"), "{has_mark} {is_cut}: {error}");
        }
    }

    /// Without its mark a store is believed from its journal, as one of an older program is.
    #[test]
    fn a_mark_that_is_gone_is_made_again() {
        let place = split();
        fs::remove_file(place.0.join("committed")).expect("remove works");
        assert!(inspect(&place.0).expect("inspected").lacks_mark);
        drop(place.open().expect("open works"));
        assert!(!inspect(&place.0).expect("inspected").lacks_mark);
    }
}
