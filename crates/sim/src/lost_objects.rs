//! Objects of changes that a crash of the MDT has taken, and that lie below the last id that it knows to have used: OSTs
//! keep what was written to them.
//!
//! What the MDT had applied and not made durable when it died goes with it, and clients replay it. If one of them
//! is missing then, files that it had made are gone, and their objects belong to no file: those, and nothing else. An
//! object without a file that no crash has taken is a leak.

use std::collections::BTreeSet;

use sheen_assembly::{Problem, ProblemKind};
use sheen_store::{Store, StoreError};
use sheen_types::{Fid, MdtIndex, TargetKind, TargetName};

use crate::cluster::Disk;
use crate::run::Sim;

/// OST and object.
type Object = (u16, Fid);

/// What crashes have taken so far.
#[derive(Default)]
pub(crate) struct LostObjects {
    objects: BTreeSet<Object>,
    /// Some client was missing that would have replayed its changes.
    is_without_replay: bool,
}

impl LostObjects {
    /// From now on these may be without a file, if a client does not replay what it did.
    fn add(&mut self, before: &BTreeSet<Object>, after: &BTreeSet<Object>) {
        self.objects.extend(before.difference(after));
    }

    /// A client did not replay what it did.
    pub(crate) fn note_missing_replay(&mut self) {
        self.is_without_replay = true;
    }

    /// Whether a crash explains what the check of the disks says.
    pub(crate) fn explain(&self, problem: &Problem) -> bool {
        let ProblemKind::Unclaimed(ost, object) = problem.kind else { return false };
        self.is_without_replay && self.objects.contains(&(ost, object))
    }
}

/// Has the MDT's server die, and notes what goes with it.
pub(crate) fn crash(sim: &Sim, die: impl FnOnce()) {
    let before = known(sim);
    die();
    match (before, known(sim)) {
        (Ok(before), Ok(after)) => sim.model.lock().lost_objects.add(&before, &after),
        (Err(error), _) | (_, Err(error)) => sim.fail(format_args!("a crash of the MDT: {error}")),
    }
}

/// The objects that the MDTs' stores name: in files, and to be destroyed.
fn known(sim: &Sim) -> Result<BTreeSet<Object>, StoreError> {
    let mut all = BTreeSet::new();
    let of = |(name, disk): (&TargetName, &Disk)| (MdtIndex(name.index), disk.store());
    let mdts: Vec<_> = sim.cluster.targets(TargetKind::Mdt).map(of).collect();
    let mdts: Vec<_> = mdts.iter().map(|(mdt, store)| (*mdt, &**store as &dyn Store)).collect();
    let report = sheen_mds::check_many(&mdts)?;
    let used = report.objects.iter().map(|it| (it.ost, it.object));
    all.extend(used.chain(report.dying).filter_map(|(ost, it)| Some((ost, it.fid(ost)?))));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_crash_has_taken_may_be_without_a_file() {
        let fid = |oid| Fid::new(0x2_4000_0400, oid);
        let unclaimed = |ost, oid| Problem {
            target: format!("sheen-OST{ost:04x}"),
            text: String::new(),
            kind: ProblemKind::Unclaimed(ost, fid(oid)),
        };
        let (before, after) = ([(0, fid(1)), (0, fid(2)), (1, fid(2))], [(0, fid(1))]);
        let mut lost = LostObjects::default();
        lost.add(&before.into(), &after.into());
        assert!(!lost.explain(&unclaimed(0, 2)), "its client has replayed it");
        lost.note_missing_replay();
        assert!(lost.explain(&unclaimed(0, 2)) && lost.explain(&unclaimed(1, 2)));
        assert!(!lost.explain(&unclaimed(0, 1)), "it was durable");
        assert!(!lost.explain(&unclaimed(0, 3)), "no crash has taken it");
        let other = Problem { kind: ProblemKind::Contradiction, ..unclaimed(0, 2) };
        assert!(!lost.explain(&other));
    }
}
