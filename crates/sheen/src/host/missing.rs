//! The targets in the directory of a file system of `sheen up`: those that it has to make, and those that are lost.

use std::path::Path;

use sheen_assembly::TargetLabel;
use sheen_store::StoreError;
use sheen_store_disk::{Config, FormatOptions, OpenOptions, StoreDisk};
use sheen_types::{Errno, Nid, TargetKind, TargetName};

use super::cluster::Cluster;
use super::first_layout::FirstLayout;
use super::folders::{folder_of, index_of, is_there, of_folder};
use super::progress::Progress;
use super::salvage::held;
use super::target::{is_registered, plans};
use super::undo::Undo;
use super::up::words_of_kind;
use super::{invalid, io_fault, rediscovery};
use sheen_tools::mkfs::{self, TargetConfig};
use sheen_tools::output::{Fault, shown_path};

/// Targets of a new file system by default.
const MDTS: u16 = 1;
const OSTS: u16 = 4;
/// The least size of a target, in KiB: with less its first files find no room.
const SIZE_KIB_MIN: u64 = 8 << 10;
/// What a disk must have free for each OST and each further MDT that has no size of its own, in bytes: what a store keeps
/// free on it, and room for first files.
const FREE_BYTES_MIN: u64 = 68 << 20;

/// The keys of `run/cluster` for how many targets are being formatted: an `up` that was killed meanwhile is followed by
/// one that makes as many.
const FORMATTING: [&str; 2] = ["formatting.mdts", "formatting.osts"];

/// What is asked of the targets that are made.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// MDTs in all.
    pub(super) mdts: Option<u16>,
    /// OSTs in all.
    pub(super) osts: Option<u16>,
    /// The size of new targets in KiB.
    pub(super) size_kib: Option<u64>,
    /// How a new file system spreads the bytes of files.
    pub(super) layout: FirstLayout,
}

/// Formats the targets that are missing, if none is lost and there is room for them.
pub(super) fn format(cluster: &mut Cluster, wanted: Wanted, undo: &mut Undo) -> Result<(), Fault> {
    let counts = counts(cluster, wanted);
    let missing = missing(cluster, counts)?;
    refuse_lost(cluster)?;
    refuse_taken(cluster, &missing)?;
    check_sizes(cluster, &missing, wanted.size_kib)?;
    if !missing.is_empty() {
        let begun = FORMATTING.iter().zip(counts);
        cluster.values.extend(begun.map(|(key, count)| ((*key).to_owned(), count.to_string())));
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
            memtable_bytes: config.memtable_bytes(),
            ..FormatOptions::default()
        };
        let path = cluster.directory.join(name);
        undo.will_format(&path, config.mgs);
        StoreDisk::format(&path, &format).map_err(|error| mkfs::disk_fault(&error))?;
        if config.kind == Some(TargetKind::Mdt) && config.index == 0 {
            wanted.layout.give(&path)?;
        }
    }
    cluster.values.retain(|key, _| !FORMATTING.contains(&&**key));
    cluster.save()
}

/// How many MDTs and OSTs there are to be.
fn counts(cluster: &Cluster, wanted: Wanted) -> [u16; 2] {
    let count = |kind, key, asked: Option<u16>, default| {
        let (known, begun) = (cluster.count(kind), cluster.get(key).and_then(|it| it.parse().ok()));
        asked.or(begun).unwrap_or(if known == 0 { default } else { known }).max(known)
    };
    let [mdts, osts] = FORMATTING;
    [
        count(TargetKind::Mdt, mdts, wanted.mdts, MDTS),
        count(TargetKind::Ost, osts, wanted.osts, OSTS),
    ]
}

/// Folders of targets that are not there, in the order in which they are made.
fn missing(
    cluster: &Cluster,
    [mdts, osts]: [u16; 2],
) -> Result<Vec<(String, TargetConfig)>, Fault> {
    let fsname = cluster.fsname().unwrap_or_default();
    let target = |kind, index| {
        let name = TargetName { fsname: fsname.to_owned(), kind, index };
        let folder = folder_of(&name);
        let config = of_folder(&folder, fsname).unwrap_or_default();
        (folder, config)
    };
    let mgs = TargetConfig { mgs: true, ..TargetConfig::default() };
    let mut missing = vec![("mgt".to_owned(), mgs)];
    missing.extend((0..mdts).map(|index| target(TargetKind::Mdt, index)));
    missing.extend((0..osts).map(|index| target(TargetKind::Ost, index)));
    missing.retain(|(name, _)| !is_there(&cluster.directory.join(name)));
    let there = cluster.folders_there();
    // They are made in this order: a gap is no beginning that was cut short.
    let (gaps, missing): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|(_, config)| has_later(&there, config));
    let may_be_gone =
        |config: &TargetConfig| config.kind == Some(TargetKind::Ost) && cluster.lost().is_some();
    match gaps.iter().find(|(_, config)| !may_be_gone(config)) {
        Some((name, _)) => Err(cluster.gone(name)),
        None => Ok(missing),
    }
}

/// Whether a target is there that is made later than this one. MDTs and OSTs may be added at any time.
fn has_later(there: &[TargetConfig], one: &TargetConfig) -> bool {
    let is_later = |other: &TargetConfig| match (one.kind, other.kind) {
        (None, other) => other.is_some(),
        (Some(TargetKind::Mdt), Some(TargetKind::Ost)) => one.index == 0,
        (kind, other_kind) => kind == other_kind && one.index < other.index,
    };
    there.iter().any(is_later)
}

/// Refuses to go on without a target that the file system had when it was started last. One that did not get so far that the
/// MGS knows it may be gone.
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

/// Refuses to make a target whose place in the file system another one has: the MGS would not take it.
fn refuse_taken(cluster: &Cluster, missing: &[(String, TargetConfig)]) -> Result<(), Fault> {
    let has_mgt = cluster.mgt().join("format").exists();
    let has_target = missing.iter().any(|(_, config)| config.kind.is_some());
    if !has_mgt || !has_target || cluster.server().pid().is_some() {
        return Ok(());
    }
    let known = known_to_mgs(cluster)?;
    let all = known.named.iter().chain(&known.deactivated);
    let taken = all.map(|(name, nids)| (folder_of(name), name, nids));
    let is_missing = |folder: &String| missing.iter().any(|(name, _)| name == folder);
    let Some((folder, name, nids)) = taken.into_iter().find(|(folder, ..)| is_missing(folder))
    else {
        return Ok(());
    };
    if cluster.address().is_some_and(|(nid, _)| nids.contains(&nid)) {
        return Err(cluster.gone(&folder));
    }
    let nids = nids.iter().map(Nid::to_string).collect::<Vec<_>>().join(", ");
    let (option, _) = words_of_kind(name.kind);
    let text = format!(
        "{folder}: the file system has its {name} elsewhere, at {nids}; {option} {} would make another one in its place",
        name.index + 1
    );
    Err(Fault::new(Errno::EEXIST, text))
}

/// The folders that are gone of targets which the MGS has clients look for at this file system's address. An OST that an
/// administrator has deactivated for good may be gone; an MDT may not: other MDTs wait for what it had of changes made with
/// them.
fn lost_of_mgs(cluster: &Cluster) -> Result<Vec<String>, Fault> {
    let Some((nid, _)) = cluster.address() else { return Ok(Vec::new()) };
    let known = known_to_mgs(cluster)?;
    let mdts = known.deactivated.iter().filter(|(name, _)| name.kind == TargetKind::Mdt);
    let named = known.named.iter().chain(mdts).filter(|(_, nids)| nids.contains(&nid));
    let folders = named.map(|(name, _)| folder_of(name));
    Ok(folders.filter(|folder| !is_there(&cluster.directory.join(folder))).collect())
}

/// Which targets the MGS knows, whose server does not run.
fn known_to_mgs(cluster: &Cluster) -> Result<sheen_mgs::Checked, Fault> {
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
    sheen_mgs::check(&store, &held.indexes, &registered).map_err(failed)
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

/// That the disk has room for targets without sizes of their own, of which each keeps some of it free. The first MDT finds
/// its place beside any OST.
fn check_free(cluster: &Cluster, missing: &[(String, TargetConfig)]) -> Result<(), Fault> {
    let (mut mdts, mut osts) = (0, 0);
    let mut count = |config: &TargetConfig| match config.kind {
        Some(TargetKind::Mdt) if config.index > 0 => mdts += 1,
        Some(TargetKind::Ost) => osts += 1,
        _ => {}
    };
    missing.iter().for_each(|(_, config)| count(config));
    for path in cluster.targets() {
        let folder = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(config) = of_folder(&folder, "")
            && config.kind.is_some()
            && size_of(&path)?.is_none()
        {
            count(&config);
        }
    }
    let place = &cluster.directory;
    let disk = rustix::fs::statvfs(place).map_err(|error| io_fault(place, &error.into()))?;
    let (free, needed) = (disk.f_bavail * disk.f_frsize, (mdts + osts).max(1) * FREE_BYTES_MIN);
    if free >= needed {
        return Ok(());
    }
    let (what, fewer) = match mdts {
        0 => (format!("{osts} OSTs"), "--osts"),
        _ => (format!("{osts} OSTs and {} MDTs", mdts + 1), "--osts, --mdts"),
    };
    let text = format!(
        "{}: its disk has {} MiB free, and {what} need at least {} MiB; use fewer ({fewer}), or give them a size \
         (--device-size)",
        shown_path(place),
        free >> 20,
        needed >> 20
    );
    Err(Fault::new(Errno::ENOSPC, text))
}

impl Cluster {
    /// Whether it has more MDTs than one, or had when it was started last.
    pub(super) fn has_several_mdts(&self) -> bool {
        let is_further =
            |name: &String| index_of(Path::new(name), TargetKind::Mdt).is_some_and(|it| it > 0);
        self.count(TargetKind::Mdt) > 1 || self.lost().iter().flatten().any(is_further)
    }

    /// The folders that are gone of targets which the file system had when it was started last; `None` if that is
    /// not known.
    pub(super) fn lost(&self) -> Option<Vec<String>> {
        let known = rediscovery::targets(&self.mgt())?;
        // An earlier `up` may have served a copy of a target.
        let targets = known.into_iter().filter(|name| of_folder(name, "").is_some());
        Some(targets.filter(|name| !is_there(&self.directory.join(name))).collect())
    }
}
