//! The targets in the directory of a file system of `sheen up`: those that it has to make, and those that are lost.

use std::path::Path;

use sheen_assembly::TargetLabel;
use sheen_store::StoreError;
use sheen_store_disk::{Config, FormatOptions, OpenOptions, StoreDisk};
use sheen_types::{Errno, TargetKind, TargetName};

use super::cluster::Cluster;
use super::folders::{folder_of, is_there, of_folder, ost_index};
use super::progress::Progress;
use super::salvage::held;
use super::target::{is_registered, plans};
use super::undo::Undo;
use super::{invalid, io_fault, rediscovery};
use sheen_tools::mkfs::{self, TargetConfig};
use sheen_tools::output::{Fault, shown_path};

/// OSTs of a new file system by default.
const OSTS: u16 = 4;
/// The least size of a target, in KiB: with less its first files find no room.
const SIZE_KIB_MIN: u64 = 8 << 10;
/// What a disk must have free for each OST that has no size of its own, in bytes: what a store keeps free on it, and
/// room for first files.
const FREE_BYTES_MIN: u64 = 68 << 20;

/// The key of `run/cluster` for how many OSTs are being formatted: an `up` that was killed meanwhile is followed by one
/// that makes as many.
const FORMATTING: &str = "formatting.osts";

/// What is asked of the targets that are made.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// OSTs in all.
    pub(super) osts: Option<u16>,
    /// The size of new targets in KiB.
    pub(super) size_kib: Option<u64>,
}

/// Formats the targets that are missing, if none is lost and there is room for them.
pub(super) fn format(cluster: &mut Cluster, wanted: Wanted, undo: &mut Undo) -> Result<(), Fault> {
    let osts = osts_wanted(cluster, wanted.osts);
    let missing = missing(cluster, osts)?;
    refuse_lost(cluster)?;
    check_sizes(cluster, &missing, wanted.size_kib)?;
    if !missing.is_empty() {
        cluster.values.insert(FORMATTING.to_owned(), osts.to_string());
        cluster.save()?;
    }
    let mut progress = Progress::new("");
    for (name, config) in missing {
        progress.doing(&format!("formatting {name}"));
        let capacity_bytes = wanted.size_kib.filter(|_| !config.mgs).map(|size| size << 10);
        let format = FormatOptions {
            capacity_bytes,
            label: config.name(),
            config: config.to_values(),
            reformat: false,
        };
        let path = cluster.directory.join(name);
        undo.will_format(&path, config.mgs);
        StoreDisk::format(&path, &format).map_err(|error| mkfs::disk_fault(&error))?;
    }
    cluster.values.remove(FORMATTING);
    cluster.save()
}

/// How many OSTs there are to be.
fn osts_wanted(cluster: &Cluster, asked: Option<u16>) -> u16 {
    let (known, begun) = (cluster.osts(), cluster.get(FORMATTING).and_then(|it| it.parse().ok()));
    asked.or(begun).unwrap_or(if known == 0 { OSTS } else { known }).max(known)
}

/// Folders of targets that are not there, in the order in which they are made.
fn missing(cluster: &Cluster, osts: u16) -> Result<Vec<(String, TargetConfig)>, Fault> {
    let there = cluster.targets();
    let has = |name: &str| there.iter().any(|path| path.ends_with(name));
    let fsname = cluster.fsname().unwrap_or_default().to_owned();
    let target = |kind, index| TargetConfig {
        kind: Some(kind),
        fsname: fsname.clone(),
        index,
        ..TargetConfig::default()
    };
    let mgs = TargetConfig { mgs: true, ..TargetConfig::default() };
    let mut missing =
        vec![("mgt".to_owned(), mgs), ("mdt0000".to_owned(), target(TargetKind::Mdt, 0))];
    missing
        .extend((0..osts).map(|index| (format!("ost{index:04x}"), target(TargetKind::Ost, index))));
    // They are made in this order: a gap is no beginning that was cut short.
    let last = missing.iter().rposition(|(name, _)| has(name)).unwrap_or(0);
    let gap = missing[..last].iter().find(|(name, config)| {
        let may_be_gone = config.kind == Some(TargetKind::Ost) && cluster.lost().is_some();
        !has(name) && !may_be_gone
    });
    if let Some((name, _)) = gap {
        return Err(cluster.gone(name));
    }
    let behind = missing.split_off(last);
    Ok(behind.into_iter().filter(|(name, _)| !has(name)).collect())
}

/// Refuses to go on without a target that the file system had when it was started last. One that an administrator
/// has deactivated for good may be gone.
fn refuse_lost(cluster: &Cluster) -> Result<(), Fault> {
    let mgt = cluster.mgt();
    if !mgt.join("format").exists() {
        return Ok(());
    }
    let lost = match (cluster.lost(), cluster.server().pid()) {
        (Some(lost), Some(_)) => lost,
        (None, Some(_)) => return Ok(()),
        (Some(lost), None) if lost.is_empty() => return Ok(()),
        (_, None) => lost_of_mgs(cluster)?,
    };
    lost.first().map_or(Ok(()), |name| Err(cluster.gone(name)))
}

/// The folders that are gone of targets which the MGS has clients look for at this file system's address.
fn lost_of_mgs(cluster: &Cluster) -> Result<Vec<String>, Fault> {
    let Some((nid, _)) = cluster.address() else { return Ok(Vec::new()) };
    let mut registered: Vec<TargetName> = Vec::new();
    for directory in cluster.targets() {
        for plan in plans(&directory)? {
            if let TargetLabel::Target(name) = plan.kind
                && is_registered(&plan.directory)?
            {
                registered.push(name);
            }
        }
    }
    let mgt = cluster.mgt();
    let store = StoreDisk::open(&mgt, &OpenOptions::default());
    let store = store.map_err(|error| mkfs::disk_fault(&error))?;
    let failed =
        |error: StoreError| Fault::new(Errno::EIO, format!("{}: {error}", shown_path(&mgt)));
    let held = held(&store).map_err(failed)?;
    let checked = sheen_mgs::check(&store, &held.indexes, &registered).map_err(failed)?;
    let named = checked.named.iter().filter(|(_, nids)| nids.contains(&nid));
    let folders = named.map(|(name, _)| folder_of(name));
    Ok(folders.filter(|folder| !is_there(&cluster.directory.join(folder))).collect())
}

/// That new targets have room, and that a size is asked for targets that are made.
fn check_sizes(
    cluster: &Cluster,
    missing: &[(String, TargetConfig)],
    size_kib: Option<u64>,
) -> Result<(), Fault> {
    let are_new = missing.iter().any(|(_, config)| !config.mgs);
    match size_kib {
        Some(kib) if kib < SIZE_KIB_MIN || kib.checked_mul(1 << 10).is_none() => {
            let text = match kib < SIZE_KIB_MIN {
                true => format!("--device-size {kib}: a target needs at least {SIZE_KIB_MIN} KiB"),
                false => format!("--device-size {kib} is out of range"),
            };
            Err(invalid(text))
        }
        Some(kib) if !are_new => refuse_other_size(cluster, kib),
        None if are_new => check_free(cluster, missing),
        _ => Ok(()),
    }
}

/// Refuses a size that no target gets.
fn refuse_other_size(cluster: &Cluster, kib: u64) -> Result<(), Fault> {
    for path in cluster.targets().iter().filter(|path| !path.ends_with("mgt")) {
        let size = size_of(path)?;
        if size != Some(kib << 10) {
            let has = size.map_or("that of its disk".to_owned(), |it| format!("{} KiB", it >> 10));
            let text = format!(
                "--device-size {kib}: only new targets get this size, and none is created; the size of {} is {has}",
                shown_path(path)
            );
            return Err(invalid(text));
        }
    }
    Ok(())
}

fn size_of(path: &Path) -> Result<Option<u64>, Fault> {
    let config = Config::load(path).and_then(|config| config.capacity_bytes(path));
    config.map_err(|error| mkfs::disk_fault(&error))
}

/// That the disk has room for OSTs without sizes of their own, of which each keeps some of it free.
fn check_free(cluster: &Cluster, missing: &[(String, TargetConfig)]) -> Result<(), Fault> {
    let new = missing.iter().filter(|(_, config)| config.kind == Some(TargetKind::Ost)).count();
    let mut osts = new as u64;
    for path in cluster.targets().iter().filter(|path| ost_index(path).is_some()) {
        osts += u64::from(size_of(path)?.is_none());
    }
    let place = &cluster.directory;
    let disk = rustix::fs::statvfs(place).map_err(|error| io_fault(place, &error.into()))?;
    let (free, needed) = (disk.f_bavail * disk.f_frsize, osts.max(1) * FREE_BYTES_MIN);
    if free >= needed {
        return Ok(());
    }
    let text = format!(
        "{}: its disk has {} MiB free, and {osts} OSTs need at least {} MiB; use fewer (--osts), or give them a size \
         (--device-size)",
        shown_path(place),
        free >> 20,
        needed >> 20
    );
    Err(Fault::new(Errno::ENOSPC, text))
}

impl Cluster {
    /// The folders that are gone of targets which the file system had when it was started last; `None` if that is
    /// not known.
    pub(super) fn lost(&self) -> Option<Vec<String>> {
        let known = rediscovery::targets(&self.mgt())?;
        // An earlier `up` may have served a copy of a target.
        let targets = known.into_iter().filter(|name| of_folder(name, "").is_some());
        Some(targets.filter(|name| !is_there(&self.directory.join(name))).collect())
    }
}
