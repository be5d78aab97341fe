//! Whether the names, inodes and objects of a whole file system at rest agree.
//!
//! Memory: a record per object of the largest OST and per object of all files.

use std::collections::BTreeMap;

use sheen_store::{Store, StoreError};
use sheen_types::{Fid, HashSet, TargetName};
use sheen_wire::ost::OstId;

/// What the MDTs say of the objects of one OST.
#[derive(Debug, Default)]
struct Expected {
    /// In files.
    used: HashSet<Fid>,
    /// To be destroyed when servers run again.
    dying: HashSet<Fid>,
    /// What lies above was created ahead; `None` if no file ever lay here.
    last_used: Option<u64>,
}

/// What was looked at, and what is wrong.
#[derive(Debug, Default)]
pub struct Findings {
    /// Inodes with names.
    pub inodes: u64,
    /// Objects of files.
    pub objects: u64,
    /// Objects that no file has and that hold nothing.
    pub spare: u64,
    /// Files and objects of a survey that did not end, which servers remove when they start.
    pub survey: u64,
    /// What contradicts what, each with the target that shows it.
    pub problems: Vec<String>,
}

/// A check under way: all MDTs first, then all OSTs.
#[derive(Debug, Default)]
pub struct Consistency {
    expected: BTreeMap<u16, Expected>,
    findings: Findings,
}

impl Consistency {
    fn problem(&mut self, target: &TargetName, text: &str) {
        self.findings.problems.push(format!("{target}: {text}"));
    }

    /// Names and inodes of an MDT.
    ///
    /// # Errors
    /// Those of the store.
    pub fn mdt(&mut self, name: &TargetName, store: &dyn Store) -> Result<(), StoreError> {
        let report = sheen_mds::check(store)?;
        self.findings.inodes += report.inodes;
        self.findings.survey += report.survey;
        for fault in &report.faults {
            self.problem(name, fault);
        }
        for orphan in &report.orphans {
            self.problem(name, &format!("{orphan} has no name and was not released"));
        }
        let fid = |(ost, object): &(u16, OstId)| object.fid(*ost).map(|fid| (*ost, fid));
        for (ost, object) in report.objects.iter().filter_map(fid) {
            self.expected.entry(ost).or_default().used.insert(object);
        }
        for (ost, object) in report.dying.iter().filter_map(fid) {
            self.expected.entry(ost).or_default().dying.insert(object);
        }
        for (ost, last) in report.last_used {
            self.expected.entry(ost).or_default().last_used = Some(last);
        }
        Ok(())
    }

    /// The objects of an OST.
    ///
    /// # Errors
    /// Those of the store.
    pub fn ost(&mut self, name: &TargetName, store: &dyn Store) -> Result<(), StoreError> {
        let objects = sheen_oss::list_objects(store)?;
        let mut known = self.expected.remove(&name.index).unwrap_or_default();
        for object in objects {
            if sheen_oss::is_survey(object.fid) {
                self.findings.survey += 1;
            } else if known.used.remove(&object.fid) {
                self.findings.objects += 1;
            } else if known.dying.contains(&object.fid) || is_spare(&object, known.last_used) {
                self.findings.spare += 1;
            } else {
                let bytes = object.attributes.size;
                let text = format!("object {} ({bytes} bytes) belongs to no file", object.fid);
                self.problem(name, &text);
            }
        }
        let mut missing: Vec<Fid> = known.used.into_iter().collect();
        missing.sort_unstable();
        for object in missing {
            self.problem(name, &format!("object {object} of a file is missing"));
        }
        Ok(())
    }

    /// What was found.
    #[must_use]
    pub fn finish(mut self) -> Findings {
        for (ost, known) in self.expected {
            if let Some(object) = known.used.iter().min() {
                let count = known.used.len();
                self.findings.problems.push(format!(
                    "OST{ost:04x} is missing with {count} objects, {object} one of them"
                ));
            }
        }
        self.findings
    }
}

/// Created ahead; or its number was taken for a file that a crash kept from being made, in which
/// case nobody can have written to it.
fn is_spare(object: &sheen_oss::ObjectRecord, last_used: Option<u64>) -> bool {
    let is_ahead = last_used.is_none_or(|last| u64::from(object.fid.oid) > last);
    is_ahead || object.attributes.blocks == 0 && object.attributes.size == 0
}
