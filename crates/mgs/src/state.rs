//! All logs of an MGS, in memory and in its store.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_llog::{ConfigLog, LogRecord, MapError, Section};
use sheen_store::{Store, StoreError, Transaction};
use sheen_target::{VERSION, store_errno};
use sheen_types::{Errno, Fid, TargetKind, TargetName, fid_seq};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::llog::LlogLogid;
use sheen_wire::wire_struct;

use crate::nidtable::NidTable;

/// The index of all logs: name to [`LogEntry`] (Lustre's `CONFIGS` directory).
pub(crate) const LOGS: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x1001);
/// The index of the versions of NID tables, by file system.
const TABLES: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x1002);
/// The log of `set_param -P`.
pub(crate) const PARAMS: &str = "params";
/// Records read at a time while starting.
const SCAN_LIMIT: usize = 256;

wire_struct! {
    /// What the store says of a log.
    pub struct LogEntry {
        /// The log's number: its index object, and its id for readers.
        id: u64,
        /// When it was made, in seconds.
        created: i64,
    }
}

#[derive(Clone, Debug)]
struct StoredLog {
    id: u64,
    log: Arc<ConfigLog>,
}

/// Everything an MGS knows.
pub(crate) struct MgsState {
    store: Arc<dyn Store>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    logs: BTreeMap<String, StoredLog>,
    tables: BTreeMap<String, NidTable>,
    last_id: u64,
}

/// The logs that a change is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogSet<'a> {
    /// Those of a file system. Its name may begin that of another one, `-` included: it is compared whole.
    Of(&'a str),
    /// That of `set_param -P`.
    Params,
}

impl LogSet<'_> {
    fn contain(self, name: &str) -> bool {
        match self {
            // What stands behind the last `-` names the log within its file system.
            Self::Of(fsname) => name.rsplit_once('-').is_some_and(|(of, _)| of == fsname),
            Self::Params => name == PARAMS,
        }
    }
}

/// Changes to logs of one file system, to become one transaction.
pub(crate) struct Edit {
    /// The logs as they will be; those that are new included.
    logs: BTreeMap<String, ConfigLog>,
    step: u32,
    now: i64,
}

impl Edit {
    /// The log, if it has records.
    pub(crate) fn log(&self, name: &str) -> Option<&ConfigLog> {
        self.logs.get(name).filter(|log| !log.is_empty())
    }

    /// The names of all logs that have records.
    pub(crate) fn names(&self) -> Vec<String> {
        let filled = self.logs.iter().filter(|(_, log)| !log.is_empty());
        filled.map(|(name, _)| name.clone()).collect()
    }

    /// Makes an empty log.
    pub(crate) fn make(&mut self, name: &str) {
        let now = self.now;
        self.logs.entry(name.to_owned()).or_insert_with(|| ConfigLog::new(now));
    }

    /// Appends a section, making the log if need be.
    pub(crate) fn append(&mut self, name: &str, section: &Section) -> Result<(), Errno> {
        self.step += 1;
        let now = self.now;
        let log = self.logs.entry(name.to_owned()).or_insert_with(|| ConfigLog::new(now));
        log.append_section(section, self.step, VERSION, now).map(drop).map_err(|error| {
            tracing::error!(log = name, %error, "nothing can be added to a configuration log");
            Errno::ENOSPC
        })
    }

    /// Cancels the sections of a target with this comment; whether there were any.
    pub(crate) fn cancel(&mut self, name: &str, target: &str, comment: &str) -> bool {
        let Some(log) = self.logs.get_mut(name) else { return false };
        !log.cancel(target, comment, self.now).is_empty()
    }

    /// Empties a log: what it held is forgotten.
    pub(crate) fn erase(&mut self, name: &str) {
        if let Some(log) = self.logs.get_mut(name) {
            *log = ConfigLog::new(self.now);
        }
    }
}

impl MgsState {
    /// Reads what the store holds.
    ///
    /// # Errors
    /// IO errors; [`StoreError::Corrupt`] for records that are none.
    pub(crate) fn load(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let mut inner = Inner::default();
        for (name, value) in scan(&*store, LOGS)? {
            let entry = decode::<LogEntry>(&value)?;
            let records = scan(&*store, records_of(entry.id))?;
            let records = records.iter().map(|(_, bytes)| LogRecord::from_bytes(bytes));
            let log = records
                .collect::<Result<Vec<_>, _>>()
                .and_then(|records| ConfigLog::from_records(entry.created, records))
                .map_err(|error| StoreError::Corrupt(format!("log {}: {error}", text(&name))))?;
            inner.last_id = inner.last_id.max(entry.id);
            inner.logs.insert(text(&name), StoredLog { id: entry.id, log: Arc::new(log) });
        }
        for (fsname, value) in scan(&*store, TABLES)? {
            inner.tables.insert(text(&fsname), NidTable::new(decode::<u64>(&value)?));
        }
        Ok(Self { store, inner: Mutex::new(inner) })
    }

    /// A log by its name, with its id.
    pub(crate) fn log(&self, name: &str) -> Option<(LlogLogid, Arc<ConfigLog>)> {
        let inner = self.inner.lock();
        inner.logs.get(name).map(|held| (logid(held.id), Arc::clone(&held.log)))
    }

    /// A log by its id.
    pub(crate) fn log_by_id(&self, id: &LlogLogid) -> Option<Arc<ConfigLog>> {
        let inner = self.inner.lock();
        let held = inner.logs.values().find(|held| logid(held.id) == *id)?;
        Some(Arc::clone(&held.log))
    }

    /// The names of all logs.
    pub(crate) fn names(&self) -> Vec<String> {
        self.inner.lock().logs.keys().cloned().collect()
    }

    /// The names of all file systems that have logs.
    pub(crate) fn file_systems(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let filled = inner.logs.iter().filter(|(_, held)| !held.log.is_empty());
        filled.filter_map(|(name, _)| name.strip_suffix("-client").map(str::to_owned)).collect()
    }

    /// Whether a file system of this name has logs.
    pub(crate) fn knows(&self, fsname: &str) -> bool {
        let client = sheen_llog::client_name(fsname);
        self.inner.lock().logs.get(&client).is_some_and(|held| !held.log.is_empty())
    }

    /// Changes some logs, all or none. The change waits for the
    /// store's transaction, not for its durability.
    ///
    /// # Errors
    /// What `change` says, or the store's.
    pub(crate) fn edit<T>(
        &self,
        which: LogSet<'_>,
        now: i64,
        change: impl FnOnce(&mut Edit) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut inner = self.inner.lock();
        let ours = inner.logs.iter().filter(|(name, _)| which.contain(name));
        let logs: BTreeMap<_, _> =
            ours.map(|(name, held)| (name.clone(), (*held.log).clone())).collect();
        let step = logs.values().map(ConfigLog::step).max().unwrap_or(0);
        let mut edit = Edit { logs, step, now };
        let value = change(&mut edit)?;
        let mut transaction = Transaction::new();
        let mut last_id = inner.last_id;
        let mut changed = Vec::new();
        for (name, log) in edit.logs {
            let old = inner.logs.get(&name);
            if old.is_some_and(|held| *held.log == log) {
                continue;
            }
            let id = old.map_or_else(
                || {
                    last_id += 1;
                    last_id
                },
                |held| held.id,
            );
            write_log(&mut transaction, &name, id, &log, old.map(|held| &*held.log));
            changed.push((name, StoredLog { id, log: Arc::new(log) }));
        }
        if !transaction.changes.is_empty() {
            self.store.apply(transaction).map_err(store_errno)?;
        }
        inner.last_id = last_id;
        inner.logs.extend(changed);
        Ok(value)
    }

    /// Changes the NID table of a file system.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn edit_table<T>(
        &self,
        fsname: &str,
        change: impl FnOnce(&mut NidTable) -> T,
    ) -> Result<T, Errno> {
        let mut inner = self.inner.lock();
        let table = inner.tables.entry(fsname.to_owned()).or_default();
        let value = change(table);
        let mut transaction = Transaction::new();
        let key = Bytes::copy_from_slice(fsname.as_bytes());
        transaction.put(TABLES, key, encode(&table.version()));
        self.store.apply(transaction).map_err(store_errno)?;
        Ok(value)
    }

    /// Looks at the NID table of a file system; `None` if it has none.
    pub(crate) fn table<T>(&self, fsname: &str, look: impl FnOnce(&NidTable) -> T) -> Option<T> {
        self.inner.lock().tables.get(fsname).map(look)
    }
}

/// Adds what is new in a log, and what changed.
fn write_log(
    transaction: &mut Transaction,
    name: &str,
    id: u64,
    log: &ConfigLog,
    old: Option<&ConfigLog>,
) {
    let key = Bytes::copy_from_slice(name.as_bytes());
    transaction.put(LOGS, key, encode(&LogEntry { id, created: log.created() }));
    let old = old.map_or(&[][..], ConfigLog::records);
    for (place, record) in log.records().iter().enumerate() {
        if old.get(place) != Some(record) {
            transaction.put(records_of(id), record_key(record.index), record.to_bytes());
        }
    }
    for record in old {
        if log.records().binary_search_by_key(&record.index, |new| new.index).is_err() {
            transaction.delete(records_of(id), record_key(record.index));
        }
    }
}

/// The index object with a log's records.
pub(crate) fn records_of(id: u64) -> Fid {
    Fid::new(fid_seq::LLOG_NAME, id as u32)
}

/// Whether an index holds the records of a log.
pub(crate) fn is_records(index: Fid) -> bool {
    index.seq == fid_seq::LLOG_NAME
}

/// How readers name a log: an old object id, and the sequence of logs known by name.
fn logid(id: u64) -> LlogLogid {
    LlogLogid { id, seq: fid_seq::LLOG_NAME, ogen: 0 }
}

fn record_key(index: u32) -> Bytes {
    Bytes::copy_from_slice(&index.to_be_bytes())
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn encode<T: Wire>(value: &T) -> Bytes {
    let mut writer = Writer::with_capacity(T::SIZE);
    value.encode(&mut writer);
    writer.into_bytes()
}

pub(crate) fn decode<T: Wire>(bytes: &Bytes) -> Result<T, StoreError> {
    T::decode(&mut Reader::new(bytes, ByteOrder::Little))
        .map_err(|error| StoreError::Corrupt(format!("record of the MGS: {error}")))
}

pub(crate) fn scan(store: &dyn Store, index: Fid) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    let (mut found, mut from) = (Vec::new(), Vec::new());
    loop {
        let entries = store.scan(index, &from, SCAN_LIMIT)?;
        let full = entries.len() == SCAN_LIMIT;
        if let Some(last) = entries.last() {
            from = [&last.key[..], &[0]].concat();
        }
        found.extend(entries.into_iter().map(|entry| (entry.key, entry.value)));
        if !full {
            return Ok(found);
        }
    }
}

/// The errno for a configuration log with a record that makes no sense, which is logged: no client can mend it.
pub(crate) fn unreadable(fsname: &str, error: &MapError, errno: Errno) -> Errno {
    tracing::error!(fsname, %error, "the configuration log cannot be read");
    errno
}

/// The MDTs that have logs.
pub(crate) fn mdts(edit: &Edit, fsname: &str) -> Vec<TargetName> {
    let names = edit.names().into_iter().filter_map(|name| name.parse::<TargetName>().ok());
    names.filter(|name| name.kind == TargetKind::Mdt && name.fsname == fsname).collect()
}
