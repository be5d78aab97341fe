//! Whether the configuration logs of an MGT at rest can be read, and name the targets that there are.
//!
//! Only looks. A log may name targets of other machines: whether one that is missing should be here, the caller knows
//! by its NIDs.

use sheen_llog::{ClusterMap, ConfigLog, LogRecord, client_name};
use sheen_store::{Store, StoreError};
use sheen_types::{Fid, HashMap, HashSet, Nid, TargetKind, TargetName};

use crate::state::{LOGS, LogEntry, PARAMS, decode, is_records, records_of, scan, text};

/// What the check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Logs.
    pub logs: u64,
    /// What is wrong, a line each.
    pub faults: Vec<String>,
    /// Targets in use that the logs of clients name, and where they are.
    pub named: Vec<(TargetName, Vec<Nid>)>,
    /// Targets that the logs of clients name and that an administrator has deactivated, and where they were.
    pub deactivated: Vec<(TargetName, Vec<Nid>)>,
}

/// Looks at the logs in `store`, which has keys in `indexes`. `targets` are those that have registered here.
///
/// # Errors
/// Those of the store.
pub fn check(
    store: &dyn Store,
    indexes: &[Fid],
    targets: &[TargetName],
) -> Result<Checked, StoreError> {
    // `None` for a log that cannot be read, which is reported once.
    let mut logs: HashMap<String, Option<ConfigLog>> = HashMap::default();
    let mut found = Checked::default();
    let mut ids: HashMap<Fid, String> = HashMap::default();
    for (key, value) in scan(store, LOGS)? {
        let name = text(&key);
        found.logs += 1;
        let Ok(entry) = decode::<LogEntry>(&value) else {
            found.faults.push(format!("log {name}: its entry cannot be read"));
            logs.insert(name, None);
            continue;
        };
        if let Some(other) = ids.insert(records_of(entry.id), name.clone()) {
            found.faults.push(format!("log {name}: its records are those of log {other}, too"));
        }
        let records = scan(store, records_of(entry.id))?;
        let records = records.iter().map(|(_, bytes)| LogRecord::from_bytes(bytes));
        let log = records
            .collect::<Result<Vec<_>, _>>()
            .and_then(|records| ConfigLog::from_records(entry.created, records));
        if let Err(error) = &log {
            found.faults.push(format!("log {name}: {error}"));
        }
        logs.insert(name, log.ok());
    }
    for index in indexes.iter().filter(|index| is_records(**index) && !ids.contains_key(index)) {
        found.faults.push(format!("records of a log that has no name: {index}"));
    }
    check_names(&logs, targets, &mut found);
    Ok(found)
}

/// Whether what the logs say makes sense, and names each target by its name and number.
fn check_names(
    logs: &HashMap<String, Option<ConfigLog>>,
    targets: &[TargetName],
    Checked { faults, named, deactivated, .. }: &mut Checked,
) {
    let fsnames: HashSet<&str> = targets.iter().map(|target| &target.fsname[..]).collect();
    let mut legible: Vec<(&String, &ConfigLog)> =
        logs.iter().filter_map(|(name, log)| Some((name, log.as_ref()?))).collect();
    legible.sort_unstable_by_key(|(name, _)| *name);
    for (name, log) in legible.iter().filter(|(name, _)| *name != PARAMS) {
        let fsname = name.rsplit_once('-').map_or("", |(fsname, _)| fsname);
        if let Err(error) = ClusterMap::new(fsname).read(log.records()) {
            faults.push(format!("log {name}: {error}"));
        }
    }
    for fsname in fsnames {
        let name = client_name(fsname);
        let log = match logs.get(&name) {
            Some(Some(log)) => log,
            Some(None) => continue,
            None => {
                faults.push(format!("log {name} is missing: its file system cannot be mounted"));
                continue;
            }
        };
        let mut map = ClusterMap::new(fsname);
        let _reported = map.read(log.records());
        for (kind, known) in [(TargetKind::Mdt, &map.mdts), (TargetKind::Ost, &map.osts)] {
            for it in known {
                let Ok(index) = u16::try_from(it.index) else { continue };
                let name = TargetName { fsname: fsname.to_owned(), kind, index };
                let list = if it.is_excluded { &mut *deactivated } else { &mut *named };
                list.push((name, it.nids.clone()));
            }
        }
        for target in targets.iter().filter(|target| target.fsname == fsname) {
            let known = if target.kind == TargetKind::Mdt { &map.mdts } else { &map.osts };
            let uuid = format!("{target}_UUID");
            match known.iter().find(|known| known.index == u32::from(target.index)) {
                None => faults.push(format!("log {name}: it does not name {target}")),
                Some(known) if known.uuid.to_string() != uuid => {
                    faults.push(format!("log {name}: {} stands for {target}", known.uuid));
                }
                Some(known) if known.nids.is_empty() => {
                    faults.push(format!("log {name}: nothing says where {target} is"));
                }
                Some(_) => {}
            }
            if !logs.contains_key(&target.to_string()) {
                faults.push(format!("log {target} is missing"));
            }
        }
    }
}
