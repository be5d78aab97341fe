//! Data that is deleted, truncated or changed on a target's disk behind its back, while the target runs or is
//! down.
//!
//! From then on reads of those bytes may answer `EIO`, and nothing else but the bytes that were there: never
//! fewer, never zeros. Stats may, where data is lost or truncated. What clients write to such a file may be
//! refused, with an error. All other files are as always, and so are all other bytes of this one that were
//! written before. In the end the check of the disks names each object that is still damaged, and nothing
//! else.

use std::sync::Arc;
use std::time::Duration;

use sheen_assembly::{Problem, ProblemKind};
use sheen_layout::Mapping;
use sheen_store::{Store, StoreError};
use sheen_store_mem::{Injury, StoreMem};
use sheen_types::{Extent, Fid, Instant, TargetKind, TargetName};

use crate::cluster::Disk;
use crate::faults::{self, Ending};
use crate::run::{Model, Sim};

/// How many objects of a seed are damaged, at most.
const DAMAGED_MAX: u64 = 3;
/// Longest pause before each of them.
const PAUSE_MAX: Duration = Duration::from_secs(180);
/// Longest time without the target, where it is down.
const DOWN_MAX: Duration = Duration::from_secs(20);
/// How long a client may keep what it has accepted before it writes it.
const UNWRITTEN_MAX: Duration = Duration::from_secs(60);
/// The layout of a file, as its MDT keeps it.
pub(crate) const LAYOUT: &str = "trusted.lov";
/// How often a place is looked for that holds bytes.
const TRIES: u64 = 8;

/// An object that was damaged.
#[derive(Clone, Debug)]
struct DamagedObject {
    file: Fid,
    target: TargetName,
    object: Fid,
    mapping: Mapping,
    since: Instant,
}

/// All that was damaged.
#[derive(Default)]
pub(crate) struct DamagedObjects(Vec<DamagedObject>);

/// Where data of a file lies.
struct ObjectData {
    file: Fid,
    target: TargetName,
    object: Fid,
    mapping: Mapping,
    bytes: u64,
}

impl DamagedObjects {
    /// What was written to a damaged file since shortly before may be lost, and its writers get an error.
    pub(crate) fn doubt(&self, model: &mut Model) {
        for damaged in &self.0 {
            let since = Instant(damaged.since.0.saturating_sub(UNWRITTEN_MAX.as_nanos() as u64));
            model.files.doubt_since(damaged.file, since);
            model.logs.doubt_since(damaged.file, since);
        }
    }
}

impl Sim {
    /// What clients write to damaged files may be lost, and they get an error.
    pub(crate) fn doubt_lost(&self, model: &mut Model) {
        self.damaged_objects.lock().doubt(model);
        self.restored.lock().doubt(self, model);
    }

    /// What lies on the disk of a target.
    pub(crate) fn store_of(&self, target: &TargetName) -> Option<Arc<StoreMem>> {
        let mut all = self.cluster.targets(target.kind);
        all.find(|(name, _)| *name == target).map(|(_, disk)| disk.store())
    }

    /// Whether anything was damaged so far, or went back in time.
    pub(crate) fn has_damage(&self) -> bool {
        !self.damaged_objects.lock().0.is_empty() || self.restored.lock().is_any()
    }

    /// Whether something of a file was ever damaged: changes of it may be refused, and what was written to
    /// it may be found lost.
    pub(crate) fn was_damaged(&self, file: Fid) -> bool {
        self.damaged_objects.lock().0.iter().any(|damaged| damaged.file == file)
            || self.was_restored(file)
    }

    /// Whether bytes of a file cannot be read: they are damaged, or were when a client began to read them at
    /// `begin`.
    pub(crate) fn is_damaged(&self, file: Fid, extent: Extent, begin: Instant) -> bool {
        let damaged_objects = self.damaged_objects.lock();
        let is_damaged = damaged_objects.0.iter().filter(|it| it.file == file).any(|it| {
            let Some(of_object) = it.mapping.object_extent(extent) else { return false };
            let damaged = |store: Arc<StoreMem>| store.is_damaged_in(it.object, of_object);
            it.since >= begin || self.store_of(&it.target).is_some_and(damaged)
        });
        is_damaged || self.lacks_objects(file)
    }

    /// Whether the size of a file cannot be known.
    pub(crate) fn is_size_lost(&self, file: Fid, begin: Instant) -> bool {
        let damaged_objects = self.damaged_objects.lock();
        let is_damaged = damaged_objects.0.iter().filter(|it| it.file == file).any(|it| {
            let lost = |store: Arc<StoreMem>| store.is_lost_or_cut(it.object);
            it.since >= begin || self.store_of(&it.target).is_some_and(lost)
        });
        is_damaged || self.lacks_objects(file)
    }
}

/// Damages some objects, each at its time.
pub(crate) async fn inject(sim: &Arc<Sim>, end: Instant) {
    for _ in 0..=sim.more_random().below(DAMAGED_MAX) {
        let pause = sim.more_random().below(PAUSE_MAX.as_millis() as u64);
        sim.sleep(faults::PEACE + Duration::from_millis(pause)).await;
        if faults::are_over(sim, end) {
            return;
        }
        sim.breaks();
        let place = choose(sim);
        if let Some(place) = place {
            damage_now_or_down(sim, place).await;
        }
        sim.mends();
    }
}

/// Some data of a file that clients use.
fn choose(sim: &Sim) -> Option<ObjectData> {
    let mut places = places(sim);
    match places.len() as u64 {
        0 => None,
        count => Some(places.swap_remove(sim.more_random().below(count) as usize)),
    }
}

/// All objects of files that clients use, with file and target.
pub(crate) fn objects(sim: &Sim) -> Vec<(Fid, TargetName, Fid)> {
    let all = places_with(sim, |_, _| Some(0)).into_iter();
    all.map(|place| (place.file, place.target, place.object)).collect()
}

/// Objects of all files of the MDTs, those that clients have not used yet among them.
pub(crate) fn all_objects(sim: &Sim) -> Vec<(Fid, TargetName, Fid)> {
    let mdts = sim.cluster.targets(TargetKind::Mdt);
    let files: Vec<Fid> = mdts.flat_map(|(_, disk)| disk.store().fids()).collect();
    let all = places_of(sim, &files, |_, _| Some(0)).into_iter();
    all.map(|place| (place.file, place.target, place.object)).collect()
}

/// Objects with data.
fn places(sim: &Sim) -> Vec<ObjectData> {
    places_with(sim, |target, object| {
        let held = sim.store_of(target)?.attributes(object).ok()?;
        (held.blocks > 0 && held.size > 0).then_some(held.size)
    })
}

/// The objects of files that clients use; `bytes` says how long each is, or that it is left out.
fn places_with(sim: &Sim, bytes: impl Fn(&TargetName, Fid) -> Option<u64>) -> Vec<ObjectData> {
    let files: Vec<Fid> = {
        let model = sim.model.lock();
        model.files.fids().chain(model.logs.fids()).collect()
    };
    let files: Vec<Fid> = files.into_iter().flat_map(|file| sim.fids_of(file)).collect();
    places_of(sim, &files, bytes)
}

fn places_of(
    sim: &Sim,
    files: &[Fid],
    bytes: impl Fn(&TargetName, Fid) -> Option<u64>,
) -> Vec<ObjectData> {
    let mut found = Vec::new();
    for (mdt, disk) in sim.cluster.targets(TargetKind::Mdt) {
        let store = disk.store();
        for file in files {
            let Ok(Some(layout)) = store.xattr(*file, LAYOUT) else { continue };
            let Ok(Some(layout)) = sheen_layout::parse(&layout) else { continue };
            found.extend(layout.objects().filter_map(|(mapping, stripe)| {
                let (target, object) = match stripe {
                    None => (mdt.clone(), *file),
                    Some(stripe) => {
                        let (kind, index) = (TargetKind::Ost, stripe.ost as u16);
                        (TargetName { kind, index, ..mdt.clone() }, stripe.object)
                    }
                };
                let bytes = bytes(&target, object)?;
                Some(ObjectData { file: sim.identity(*file), target, object, mapping, bytes })
            }));
        }
    }
    found
}

async fn damage_now_or_down(sim: &Arc<Sim>, place: ObjectData) {
    let injury = match (sim.more_random().below(3), place.target.kind) {
        // Without its data an inode on the MDT has no attributes, and no name can be removed.
        (0, TargetKind::Ost) => Injury::Lost,
        (1, TargetKind::Ost) => Injury::Cut(sim.more_random().below(place.bytes)),
        _ => Injury::Flipped(sim.more_random().below(place.bytes)),
    };
    let holds =
        |disk: &Disk| sim.store_of(&place.target).is_some_and(|it| Arc::ptr_eq(&it, &disk.store()));
    let number = sim
        .cluster
        .servers
        .iter()
        .position(|server| server.hosted.iter().any(|of_server| holds(&of_server.disk)));
    let Some(number) = number.filter(|_| sim.more_random().below(2) == 0) else {
        return damage(sim, &place, injury);
    };
    let time = Duration::from_millis(sim.more_random().below(DOWN_MAX.as_millis() as u64));
    let ending = match sim.more_random().below(3) {
        0 => Ending::LosesPower,
        _ => Ending::Killed,
    };
    faults::outage(sim, number, ending, time, || damage(sim, &place, injury)).await;
}

fn damage(sim: &Sim, place: &ObjectData, injury: Injury) {
    let Some(store) = sim.store_of(&place.target) else { return };
    let at_all = |injury: Injury| match injury {
        // There may be holes.
        Injury::Flipped(_) => (0..TRIES)
            .map(|_| Injury::Flipped(sim.more_random().below(place.bytes)))
            .any(|elsewhere| store.injure(place.object, elsewhere)),
        _ => false,
    };
    if !store.injure(place.object, injury) && !at_all(injury) {
        return;
    }
    let ObjectData { file, target, object, mapping, .. } = place;
    sim.say(format_args!("FAULT: {injury:?} of {object} at {target}, which is of {file}"));
    let (target, since) = (target.clone(), sim.now());
    let damaged = DamagedObject { file: *file, target, object: *object, mapping: *mapping, since };
    let mut damaged_objects = sim.damaged_objects.lock();
    damaged_objects.0.push(damaged);
    damaged_objects.doubt(&mut sim.model.lock());
}

/// Whether a problem that the check of the disks names is of a damaged object.
pub(crate) fn explains(sim: &Sim, problem: &Problem) -> bool {
    let is_named = |damaged: &DamagedObject| {
        problem.kind == ProblemKind::Data
            && problem.target == damaged.target.to_string()
            && problem.text.contains(&damaged.object.to_string())
    };
    sim.damaged_objects.lock().0.iter().any(is_named)
}

/// A damaged object that a file has still, and that no problem names.
///
/// # Errors
/// Those of a store.
pub(crate) fn unnamed(sim: &Sim, problems: &[Problem]) -> Result<Option<String>, StoreError> {
    // No client may have looked at an inode since it has moved.
    for (_, disk) in sim.cluster.targets(TargetKind::Mdt) {
        disk.store().fids().into_iter().for_each(|fid| _ = sim.identity(fid));
    }
    for damaged in &sim.damaged_objects.lock().0 {
        let Some(store) = sim.store_of(&damaged.target) else { continue };
        if !store.damaged().contains(&damaged.object) || !is_used(sim, damaged)? {
            continue;
        }
        let (target, object) = (damaged.target.to_string(), damaged.object.to_string());
        let files: Vec<_> = sim.fids_of(damaged.file).iter().map(Fid::to_string).collect();
        let names = |it: &Problem| {
            let names_file = files.iter().any(|file| it.text.contains(file));
            it.target == target && it.text.contains(&object) && names_file
        };
        if !problems.iter().any(names) {
            let file = damaged.file;
            return Ok(Some(format!("{object} of {file} at {target} is damaged and not named")));
        }
    }
    Ok(None)
}

fn is_used(sim: &Sim, damaged: &DamagedObject) -> Result<bool, StoreError> {
    let files = sim.fids_of(damaged.file);
    for (_, disk) in sim.cluster.targets(TargetKind::Mdt) {
        let store = disk.store();
        for file in &files {
            let layout = match store.xattr(*file, LAYOUT) {
                Err(StoreError::NoObject(_)) => continue,
                layout => layout?,
            };
            let layout = layout.and_then(|layout| sheen_layout::parse(&layout).ok().flatten());
            let is_its = |layout: sheen_layout::Layout| {
                layout.objects().any(|(_, stripe)| {
                    stripe.map_or(*file, |stripe| stripe.object) == damaged.object
                })
            };
            if layout.is_some_and(is_its) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
