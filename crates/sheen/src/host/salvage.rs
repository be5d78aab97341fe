//! `sheen salvage`: rebuilds the store of a target, which is damaged, from what can be read of it.
//!
//! The damaged store is only read, and stays as `damaged-<target>` beside the new one. The MDT's names
//! and inodes, and an OST's list of objects, are repaired as far as they refer to each other.

use std::path::{Path, PathBuf};

use clap::Args;
use sheen_assembly::{StoreContents, TargetLabel};
use sheen_store_disk::{Config, LABEL_KEY, OpenOptions, Salvaged, StoreDisk};
use sheen_types::{Errno, Fid, TargetKind, TargetName, Timestamp};

use super::cluster::Cluster;
use super::folders::of_folder;
use super::target::{REGISTERED, plans};
use sheen_tools::mkfs::{TargetConfig, disk_fault};
use sheen_tools::output::{self, Fault, errno_of, shown_path};

/// Objects listed at a time.
const STEP: usize = 4096;

/// Rebuild the store of a target that does not start from what can still be read
#[derive(Args)]
pub(crate) struct Salvage {
    /// Directory of the file system, as for `sheen up`
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Target, for example `lustre-MDT0000`, or the name of its directory, `mdt0000`
    #[arg(value_name = "TARGET")]
    target: String,
}

/// Prints what was found, and what was not.
pub(crate) fn salvage(options: &Salvage) -> Result<(), Fault> {
    let cluster = Cluster::open(&options.dir)?;
    let place = shown_path(&options.dir);
    let _lock = cluster.lock()?;
    if cluster.server().pid().is_some() {
        let text =
            format!("{place}: its server is running; stop it first (sheen down --dir {place})");
        return Err(Fault::new(Errno::EBUSY, text));
    }
    let Found { directory, kind, otherwise } = find(&cluster, options)?;
    // MDT0000 may be too damaged to know the other ones.
    if is_mdt(&kind, |index| index != 0 || cluster.has_several_mdts()) {
        return Err(several(&options.target));
    }
    let (new, old) = (beside(&directory, "salvaged"), beside(&directory, "damaged"));
    for path in [&new, &old] {
        if path.exists() {
            let text = format!("{} is left from an earlier salvage: remove it", shown_path(path));
            return Err(Fault::new(Errno::EEXIST, text));
        }
    }
    let found = sheen_store_disk::salvage(&directory, &new, &otherwise);
    let found = found.map_err(|error| disk_fault(&error))?;
    let name = &options.target;
    report(name, &found);
    refuse_first_of_several(name, &new, &kind)?;
    in_order(name, &new, &kind)?;
    // All of the new store is durable before it takes the old one's place.
    sync(&new)?;
    exchange(&new, &directory)?;
    rename(&new, &old)?;
    sync(parent(&directory))?;
    output::line(format_args!(
        "{name}: the damaged store is kept as {}; check the new one with `sheen fsck`",
        shown_path(&old)
    ));
    Ok(())
}

/// The target that is meant.
struct Found {
    directory: PathBuf,
    kind: TargetLabel,
    /// Its configuration as `sheen up` makes it, should nothing be left of its own.
    otherwise: Config,
}

fn find(cluster: &Cluster, options: &Salvage) -> Result<Found, Fault> {
    for folder in cluster.folders() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let by_name = of_folder(&name, cluster.fsname().unwrap_or("sheen"));
        let plans = match (plans(&folder), &by_name) {
            (Ok(plans), _) => plans.into_iter().map(|plan| (plan.directory, plan.kind)).collect(),
            // Its configuration cannot be read.
            (Err(_), Some(config)) => vec![(folder.clone(), kind_of(config))],
            (Err(fault), None) if name == options.target => return Err(fault),
            (Err(_), None) => continue,
        };
        for (directory, kind) in plans {
            let is_named = match &kind {
                TargetLabel::Target(name) => name.to_string() == options.target,
                TargetLabel::Mgs => options.target == "MGS",
            };
            if is_named || name == options.target {
                let config = by_name.unwrap_or_default();
                let label = (LABEL_KEY.to_owned(), config.name());
                // Else it would come as a new target of a number that is taken.
                let known = (REGISTERED.to_owned(), "1".to_owned());
                let values = config.to_values().into_iter().chain([label, known]).collect();
                return Ok(Found { directory, kind, otherwise: Config { values } });
            }
        }
    }
    let text = format!("{}: there is no target {}", shown_path(&options.dir), options.target);
    Err(Fault::new(Errno::ENOENT, text))
}

fn kind_of(config: &TargetConfig) -> TargetLabel {
    match config.kind {
        None => TargetLabel::Mgs,
        Some(kind) => {
            let TargetConfig { fsname, index, .. } = config.clone();
            TargetLabel::Target(TargetName { fsname, kind, index })
        }
    }
}

fn beside(directory: &Path, what: &str) -> PathBuf {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    directory.with_file_name(format!("{what}-{name}"))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Each takes the other's name at once: a crash leaves one of them in the target's place. Where the file system
/// cannot do that, a crash in between leaves the target's place empty, and both beside it.
fn exchange(new: &Path, directory: &Path) -> Result<(), Fault> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, new, CWD, directory, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => {
            let between = beside(directory, "exchanged");
            rename(directory, &between)?;
            rename(new, directory)?;
            rename(&between, new)
        }
        Err(errno) => {
            let error = std::io::Error::from(errno);
            let text = format!(
                "cannot exchange {} and {}: {error}",
                shown_path(new),
                shown_path(directory)
            );
            Err(Fault::new(errno_of(&error), text))
        }
    }
}

fn sync(directory: &Path) -> Result<(), Fault> {
    let synced = std::fs::File::open(directory).and_then(|opened| opened.sync_all());
    synced.map_err(|error| {
        let text = format!("cannot make {} durable: {error}", shown_path(directory));
        Fault::new(errno_of(&error), text)
    })
}

fn rename(from: &Path, to: &Path) -> Result<(), Fault> {
    let failed = |error: std::io::Error| {
        Fault::new(errno_of(&error), format!("cannot rename {}: {error}", shown_path(from)))
    };
    std::fs::rename(from, to).map_err(failed)
}

fn report(name: &str, found: &Salvaged) {
    let Salvaged { objects, keys, damaged, from_data, sequence } = found;
    for line in damaged {
        output::line(format_args!("{name}: damaged: {line}"));
    }
    for fid in from_data {
        output::line(format_args!("{name}: {fid} is recreated from its data alone, owned by root"));
    }
    output::line(format_args!(
        "{name}: {objects} objects and {keys} names and records were read, up to transaction {}",
        sequence.0
    ));
}

/// What other MDTs have would count as lost, and be removed from the names of this one.
fn several(name: &str) -> Fault {
    let text =
        format!("{name}: file systems of several metadata targets cannot be salvaged by Sheen yet");
    Fault::new(Errno::EOPNOTSUPP, text)
}

fn is_mdt(kind: &TargetLabel, is_wanted: impl Fn(u16) -> bool) -> bool {
    matches!(kind, TargetLabel::Target(it) if it.kind == TargetKind::Mdt && is_wanted(it.index))
}

/// Refuses MDT0000 of several, as far as what was read of it knows the other ones.
fn refuse_first_of_several(name: &str, place: &Path, kind: &TargetLabel) -> Result<(), Fault> {
    if !is_mdt(kind, |index| index == 0) {
        return Ok(());
    }
    let store = StoreDisk::open(place, &OpenOptions::default()).map_err(|e| disk_fault(&e))?;
    let knows_more = sheen_mds::has_other_mdts(&store, 0)
        .map_err(|error| Fault { code: Errno::EIO.0 as u8, text: format!("{name}: {error}") })?;
    if !knows_more {
        return Ok(());
    }
    drop(store);
    // Nothing is to be had of it, and the next try would stumble over it.
    let _ = std::fs::remove_dir_all(place);
    Err(several(name))
}

/// Lets the role repair what was read.
fn in_order(name: &str, place: &Path, kind: &TargetLabel) -> Result<(), Fault> {
    let store = StoreDisk::open(place, &OpenOptions::default()).map_err(|e| disk_fault(&e))?;
    let broken = |error: sheen_store::StoreError| Fault {
        code: Errno::EIO.0 as u8,
        text: format!("{name}: {error}"),
    };
    let StoreContents { objects, indexes } = held(&store).map_err(broken)?;
    match kind {
        TargetLabel::Target(target) if target.kind == TargetKind::Mdt => {
            let done = sheen_mds::rebuild(&store, &objects, &indexes, now()).map_err(broken)?;
            sheen_mds::skip_used_objects(&store).map_err(broken)?;
            report_names(name, &done);
        }
        TargetLabel::Target(_) => {
            let unlisted = sheen_oss::rebuild(&store, &objects).map_err(broken)?;
            output::line(format_args!("{name}: {unlisted} objects were added to the list again"));
        }
        TargetLabel::Mgs => {}
    }
    Ok(())
}

pub(super) fn report_names(name: &str, done: &sheen_mds::Rebuilt) {
    for fid in &done.directories {
        let place = done.place(*fid);
        output::line(format_args!("{name}: {place}: directory recreated, accessible to root only"));
    }
    for fid in &done.stripes {
        let place = done.place(*fid);
        output::line(format_args!(
            "{name}: {place}: stripe of a directory, lost and recreated; of the names that were in it, those that \
             inodes record are put back"
        ));
    }
    for fid in &done.found {
        output::line(format_args!("{name}: {fid} is in /lost+found, named by its FID"));
    }
    for lost in &done.lost {
        output::line(format_args!("{name}: {}: {}", done.place_of_name(lost), lost.why));
    }
    if done.moved > 0 {
        output::line(format_args!(
            "{name}: {} names put into the stripes of directories that they belong in",
            done.moved
        ));
    }
    output::line(format_args!(
        "{name}: {} inodes; {} names put back, {} counts and links corrected",
        done.inodes, done.names, done.corrected
    ));
}

/// The time now.
#[expect(clippy::disallowed_methods, reason = "a host: it has the clock of the system")]
pub(super) fn now() -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp::from_seconds(now.map_or(0, |now| now.as_secs().cast_signed()))
}

/// All that a store holds.
pub(super) fn held(store: &StoreDisk) -> Result<StoreContents, sheen_store::StoreError> {
    Ok(StoreContents { objects: objects(store)?, indexes: indexes(store)? })
}

fn objects(store: &StoreDisk) -> Result<Vec<Fid>, sheen_store::StoreError> {
    let (mut found, mut from) = (Vec::new(), Fid::ZERO);
    loop {
        let step = store.list_objects(from, STEP)?;
        let last = step.last().copied();
        found.extend(step);
        match last.and_then(behind) {
            Some(next) => from = next,
            None => return Ok(found),
        }
    }
}

fn indexes(store: &StoreDisk) -> Result<Vec<Fid>, sheen_store::StoreError> {
    let (mut found, mut from) = (Vec::new(), Some(Fid::ZERO));
    while let Some(first) = from
        && let Some(index) = store.first_index(first)?
    {
        found.push(index);
        from = behind(index);
    }
    Ok(found)
}

/// The next FID in the order of stores.
fn behind(fid: Fid) -> Option<Fid> {
    let Fid { seq, oid, ver } = fid;
    let next = |seq, oid, ver| Some(Fid { seq, oid, ver });
    match (ver.checked_add(1), oid.checked_add(1), seq.checked_add(1)) {
        (Some(ver), ..) => next(seq, oid, ver),
        (None, Some(oid), _) => next(seq, oid, 0),
        (None, None, seq) => next(seq?, 0, 0),
    }
}
