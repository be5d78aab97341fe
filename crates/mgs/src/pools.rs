//! Pools of OSTs: `lctl pool_new`, `pool_add`, `pool_remove`, `pool_destroy`.
//!
//! A pool is a name and what records in the logs of clients and MDTs say of it; nothing else is
//! kept. What is undone stays in the logs, marked as not to be read.

use sheen_llog::{ClusterMap, PoolChange, client_name, mdt_lov, pool_change};
use sheen_types::{Errno, TargetKind, TargetName};

use crate::state::mdts;
use crate::state::{Edit, LogSet, MgsState, unreadable};

/// Longest name of a pool (`LOV_MAXPOOLNAME`).
const NAME_BYTES_MAX: usize = 15;
/// Names that mean something else in a layout.
const RESERVED: [&str; 3] = ["none", "ignore", "inherit"];

/// Changes a pool of a file system.
///
/// # Errors
/// [`Errno::EINVAL`] for a file system that is not known and a name that is none,
/// [`Errno::ENAMETOOLONG`], [`Errno::EEXIST`] for what is there already, [`Errno::ENOENT`] for what
/// is not, [`Errno::ENOMEDIUM`] for a new member of a pool that is not, [`Errno::ENODEV`] for an OST that the file
/// system has not.
pub(crate) fn change(
    state: &MgsState,
    fsname: &str,
    pool: &str,
    change: &PoolChange,
    now: i64,
) -> Result<(), Errno> {
    check_name(pool)?;
    if !state.knows(fsname) {
        return Err(Errno::EINVAL);
    }
    state.edit(LogSet::Of(fsname), now, |edit| {
        fits(edit, fsname, pool, change)?;
        put(edit, &client_name(fsname), &format!("{fsname}-clilov"), fsname, pool, change)?;
        for mdt in mdts(edit, fsname) {
            put(edit, &mdt.to_string(), &mdt_lov(&mdt), fsname, pool, change)?;
        }
        Ok(())
    })
}

/// Writes the pools of a file system, as `map` has them, into the log of an MDT that is new.
pub(crate) fn add_known_pools(
    edit: &mut Edit,
    mdt: &TargetName,
    map: &ClusterMap,
) -> Result<(), Errno> {
    let (log, lov, fsname) = (mdt.to_string(), mdt_lov(mdt), &mdt.fsname);
    for (pool, members) in &map.pools {
        let ost = |index: &u16| TargetName {
            fsname: fsname.clone(),
            kind: TargetKind::Ost,
            index: *index,
        };
        let members = members.iter().map(|index| PoolChange::Add(ost(index)));
        for change in std::iter::once(PoolChange::New).chain(members) {
            edit.append(&log, &pool_change(&lov, fsname, pool, &change))?;
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), Errno> {
    let legal = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'.' | b',');
    if name.is_empty() || !name.bytes().all(legal) || RESERVED.contains(&name) {
        return Err(Errno::EINVAL);
    }
    if name.len() > NAME_BYTES_MAX { Err(Errno::ENAMETOOLONG) } else { Ok(()) }
}

/// Whether the change makes sense as things are.
fn fits(edit: &Edit, fsname: &str, pool: &str, change: &PoolChange) -> Result<(), Errno> {
    let mut map = ClusterMap::new(fsname);
    let log = edit.log(&client_name(fsname)).ok_or(Errno::EINVAL)?;
    map.read(log.records()).map_err(|error| unreadable(fsname, &error, Errno::EIO))?;
    let members = map.pools.get(pool);
    match change {
        PoolChange::New if members.is_some() => Err(Errno::EEXIST),
        PoolChange::New => Ok(()),
        PoolChange::Destroy => members.map(|_| ()).ok_or(Errno::ENOENT),
        PoolChange::Add(ost) => {
            if !map.osts.iter().any(|known| known.uuid == ost.uuid()) {
                return Err(Errno::ENODEV);
            }
            let members = members.ok_or(Errno::ENOMEDIUM)?;
            if members.contains(&ost.index) { Err(Errno::EEXIST) } else { Ok(()) }
        }
        PoolChange::Remove(ost) => {
            // Of a pool that is not it is no member either, as Lustre has it.
            let is_member = members.ok_or(Errno::ENOENT)?.contains(&ost.index);
            if is_member && ost.fsname == fsname { Ok(()) } else { Err(Errno::ENOENT) }
        }
    }
}

fn put(
    edit: &mut Edit,
    log: &str,
    lov: &str,
    fsname: &str,
    pool: &str,
    change: &PoolChange,
) -> Result<(), Errno> {
    if let Some(undone) = change.undone() {
        edit.cancel(log, lov, &undone.comment(fsname, pool));
    }
    edit.append(log, &pool_change(lov, fsname, pool, change))
}
