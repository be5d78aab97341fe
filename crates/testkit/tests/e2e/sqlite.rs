//! SQLite with synced transactions: the most exacting user of fsync, locks and shared memory.

use std::path::Path;

use rusqlite::{Connection, params};
use sheen_workloads::{Context, Outcome, Size, ensure, folder};

/// How many synced transactions each journal mode makes.
///
/// Each costs two or three fsyncs, which are commits of the servers' stores.
pub(crate) fn transactions(size: Size) -> u64 {
    size.of(100, 1_000, 10_000)
}

/// A database in each journal mode, written, checked, opened again and checked again.
pub(crate) fn run(top: &Path, transactions: u64) -> Outcome {
    let folder = folder(top, "sqlite")?;
    for mode in ["delete", "truncate", "wal"] {
        let path = folder.join(format!("{mode}.db"));
        write(&path, mode, transactions).map_err(|error| format!("{mode}: {error}"))?;
        check(&path, transactions).map_err(|error| format!("{mode}: {error}"))?;
    }
    Ok(())
}

/// Checks all databases that [`run`] made below `top`.
pub(crate) fn check_all(top: &Path, transactions: u64) -> Outcome {
    for mode in ["delete", "truncate", "wal"] {
        check(&top.join("sqlite").join(format!("{mode}.db")), transactions)?;
    }
    Ok(())
}

fn write(path: &Path, mode: &str, transactions: u64) -> Outcome {
    let mut database = Connection::open(path).context("open")?;
    let set: String = database
        .query_row(&format!("PRAGMA journal_mode={mode}"), [], |row| row.get(0))
        .context(mode)?;
    ensure(set == mode, || format!("asked for journal mode {mode}, got {set}"))?;
    database.execute_batch("PRAGMA synchronous=FULL").context("synchronous")?;
    let table = "CREATE TABLE record (number INTEGER PRIMARY KEY, text TEXT NOT NULL, sum INTEGER);
                 CREATE INDEX by_text ON record (text);";
    database.execute_batch(table).context("create table")?;
    for number in 0..transactions {
        let step = database.transaction().context("begin")?;
        let insert = "INSERT INTO record (number, text, sum) VALUES (?1, ?2, ?3)";
        let values = params![number.cast_signed(), text(number), number.cast_signed() * 3];
        step.execute(insert, values).context("insert")?;
        if number >= 10 {
            let update = "UPDATE record SET text = ?2 WHERE number = ?1";
            step.execute(update, params![number.cast_signed() - 10, text(number - 10)])
                .context("update")?;
        }
        step.commit().context(format_args!("commit {number}"))?;
    }
    Ok(())
}

fn check(path: &Path, transactions: u64) -> Outcome {
    let database = Connection::open(path).context("open again")?;
    let answer: String =
        database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).context("integrity")?;
    ensure(answer == "ok", || format!("{}: {answer}", path.display()))?;
    let query = "SELECT count(*), coalesce(sum(sum), 0), count(DISTINCT text) FROM record";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found: (i64, i64, i64) = database.query_row(query, [], read).context("select")?;
    let count = transactions.cast_signed();
    let written = (count, 3 * count * (count - 1) / 2, count);
    ensure(found == written, || format!("{}: holds {found:?}, wrote {written:?}", path.display()))
}

fn text(number: u64) -> String {
    format!("record {number} {}", "x".repeat(usize::try_from(number % 300).unwrap_or_default()))
}
