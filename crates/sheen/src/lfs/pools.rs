//! `lfs pool_list`, and what other commands ask about pools.

use std::collections::BTreeMap;
use std::path::Path;

use sheen_types::Errno;
use sheen_wire::lov::{LovEa, PoolName};

use super::mount::Mount;
use super::setstripe::folder_of;
use crate::api::POOLS;
use crate::output::Fault;

/// The pool that stands for none (`LOV_POOL_IGNORE`).
const IGNORE: &[u8] = b"ignore";

/// The UUIDs of the OSTs in each pool of a file system.
pub(super) type Pools = BTreeMap<String, Vec<String>>;

/// The pools that a mount knows.
pub(super) fn of(mount: &mut Mount) -> Result<Pools, (Errno, String)> {
    mount.ask(POOLS, &[])
}

/// Refuses a wish whose pool does not exist where `path` is to be. Without a mount process that we
/// may ask, the MDT decides.
pub(super) fn check(path: &Path, wish: &LovEa, command: &str) -> Result<(), Fault> {
    let named: Vec<PoolName> = match wish {
        LovEa::Plain(plain) => vec![plain.pool],
        LovEa::Composite(all) => all.components.iter().map(|part| part.layout.pool).collect(),
        LovEa::Foreign(_) => Vec::new(),
    };
    let named = named.into_iter().filter(|pool| !pool.is_empty() && pool.as_bytes() != IGNORE);
    let named: Vec<String> =
        named.map(|pool| String::from_utf8_lossy(pool.as_bytes()).into_owned()).collect();
    if named.is_empty() {
        return Ok(());
    }
    let Ok(mut mount) = Mount::of(folder_of(path)) else { return Ok(()) };
    let Ok(pools) = of(&mut mount) else { return Ok(()) };
    match named.iter().find(|name| !pools.contains_key(*name)) {
        None => Ok(()),
        Some(name) => {
            let fsname = &mount.info.fsname;
            let text = format!("pool '{name}' of '{fsname}' does not exist");
            let why = format!("{} ({})", Errno::ENOENT, Errno::ENOENT.0);
            Err(Fault::new(Errno::EINVAL, format!("{command}: {text}: {why}")))
        }
    }
}
