//! `lfs pool_list`, and what other commands ask about pools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use sheen_types::Errno;
use sheen_wire::lov::{LovEa, PoolName};

use super::layout_source::folder_of;
use super::mount::Mount;
use crate::origins;
use crate::output::{Fault, line};
use crate::processes::command_first;
use crate::processes::parameters;
use sheen_control::api::{MGS_POOLS, POOLS};

/// Options of `pool_list`.
#[derive(Args)]
pub(super) struct List {
    /// File system, one of its pools, or a path on it
    #[arg(required = true, value_name = "FSNAME[.POOL]|PATH")]
    name: String,
}

pub(super) fn run(options: &List) -> Result<(), Fault> {
    print("lfs pool_list", &options.name)
}

/// The pool that stands for none (`LOV_POOL_IGNORE`).
const IGNORE: &[u8] = b"ignore";

/// The UUIDs of the OSTs in each pool of a file system.
pub(super) type Pools = BTreeMap<String, Vec<String>>;

/// The pools that a mount knows.
pub(super) fn of(mount: &mut Mount) -> Result<Pools, (Errno, String)> {
    mount.ask(POOLS, &[])
}

/// Refuses a request whose pool does not exist where `path` is to be. Without a mount process that we
/// may ask, the MDT decides.
pub(super) fn check(path: &Path, request: &LovEa, command: &str) -> Result<(), Fault> {
    let named: Vec<PoolName> = match request {
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

/// Lists pools, or the OSTs of one.
///
/// # Errors
/// ENOENT for what is not there, as Lustre's tools say it: a file system that no mount and no MGS knows is
/// passed over without a word.
pub(crate) fn print(command: &str, name: &str) -> Result<(), Fault> {
    let (fsname, pool, pools) = match name.starts_with(['/', '.']) {
        true => {
            let mount = Mount::of(&PathBuf::from(name)).map_err(|errno| {
                let text = format!("'{name}' is not on a Lustre filesystem");
                let why = format!("{errno} ({})", errno.0);
                Fault::new(Errno::ENOENT, format!("{command}: {text}: {why}"))
            });
            let mut mount = mount?;
            let pools = of(&mut mount).map_err(|(errno, _)| Fault::reported(errno))?;
            (mount.info.fsname.clone(), None, pools)
        }
        false => {
            let (fsname, pool) = match name.split_once('.') {
                Some((fsname, pool)) => (fsname, Some(pool)),
                None => (name, None),
            };
            let pools = known(command, fsname)?.ok_or(Fault::reported(Errno::ENOENT))?;
            (fsname.to_owned(), pool, pools)
        }
    };
    let Some(pool) = pool else {
        line(format_args!("Pools from {fsname}:"));
        pools.keys().for_each(|pool| line(format_args!("{fsname}.{pool}")));
        return Ok(());
    };
    line(format_args!("Pool: {fsname}.{pool}"));
    let errno = Errno::ENOENT;
    let missing = || {
        let text = format!("cannot find pool '{pool}' of '{fsname}': {errno} ({})", errno.0);
        Fault::new(errno, format!("{command}: {text}"))
    };
    pools.get(pool).ok_or_else(missing)?.iter().for_each(line);
    Ok(())
}

/// The pools of a file system that is mounted here, or whose MGS runs here.
fn known(command: &str, fsname: &str) -> Result<Option<Pools>, Fault> {
    if let Some(mut mount) = Mount::named(command, fsname)? {
        return Ok(of(&mut mount).ok());
    }
    origins::choose_mgs(command, |name| name == fsname)?;
    let text = command_first(MGS_POOLS, &[fsname]).ok();
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

/// What each mount and MDT of this machine knows: its pools by name, with their OSTs in lines.
pub(crate) fn shown(fsname: &str) -> Vec<BTreeMap<String, String>> {
    let mut all: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let holders = [("llite", "uuid", "lov"), ("mdt", "uuid", "lod")];
    for (kind, leaf, folder) in holders {
        for (name, _) in parameters(&format!("{kind}.{fsname}-*.{leaf}")).into_iter().flatten() {
            if let Some(device) = name.split('.').nth(1) {
                all.entry(holder(fsname, folder, device)).or_default();
            }
        }
        for (name, value) in
            parameters(&format!("{folder}.{fsname}-*.pools.*")).into_iter().flatten()
        {
            let mut words = name.splitn(4, '.');
            if let (Some(device), Some(pool)) = (words.nth(1), words.nth(1)) {
                all.entry(format!("{folder}.{device}")).or_default().insert(pool.to_owned(), value);
            }
        }
    }
    all.into_values().collect()
}

/// The device with pools that belongs to a mount or an MDT.
fn holder(fsname: &str, folder: &str, device: &str) -> String {
    match (folder, device.strip_prefix(&format!("{fsname}-"))) {
        ("lov", Some(instance)) => format!("lov.{fsname}-clilov-{instance}"),
        _ => format!("{folder}.{device}-mdtlov"),
    }
}
