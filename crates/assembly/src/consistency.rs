//! Whether the names, inodes, layouts and objects of a whole file system at rest agree, and the data
//! with what the stores know of it.
//!
//! Only looks; what can be put in order is the roles' (`sheen_mds::rebuild`, `sheen_oss::rebuild`).
//! Memory: a record per name, per object of the largest OST and per object of all files.

use std::collections::BTreeMap;
use std::fmt;

use sheen_mds::{Paths, Progress, UsedObject};
use sheen_oss::MdtAtRest;
use sheen_store::{Damage, FileKind, Finding, Store, StoreError};
use sheen_types::{Fid, HashMap, HashSet, MdtIndex, TargetName};

/// Objects listed at a time.
const STEP: usize = 1024;

/// What a store holds: not every kind of store can list it, and then less is found.
#[derive(Clone, Debug, Default)]
pub struct StoreContents {
    /// Objects of any kind.
    pub objects: Vec<Fid>,
    /// Indexes that have keys.
    pub indexes: Vec<Fid>,
}

/// How the data is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Whether it is there, and as long as it must be.
    Sizes,
    /// All of it is read and compared with its checksums.
    Checksums,
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// The target that shows it.
    pub target: String,
    /// Path, FID and what is wrong.
    pub text: String,
    /// What could be done about it.
    pub kind: ProblemKind,
}

/// What could be done about a problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemKind {
    /// Records contradict each other: the roles can put some of it in order.
    Contradiction,
    /// Bytes are lost, which nothing brings back.
    Data,
    /// An object of an OST with bytes that no file has: it can become a file.
    Unclaimed(u16, Fid),
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.target, self.text)
    }
}

/// Why a check did not end.
#[derive(Debug, PartialEq, Eq)]
pub enum CheckError {
    /// The store failed.
    Store(StoreError),
    /// That of one of several MDTs.
    OfMdt(sheen_mds::FailedStore),
    /// The caller did not want to go on.
    Cancelled,
}

impl From<StoreError> for CheckError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Called with how many objects and bytes of a target were looked at; answers whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// What the MDTs say of the objects of one OST.
#[derive(Debug, Default)]
struct Expected {
    /// In files: object and file.
    used: HashMap<Fid, Fid>,
    /// To be destroyed when servers run again.
    dying: HashSet<Fid>,
    /// The MDTs that create the objects.
    mdts: HashMap<u16, MdtAtRest>,
}

impl Expected {
    /// See [`MdtAtRest::gives_up`].
    fn gives_up(&self, store: &dyn Store, object: Fid) -> Result<bool, StoreError> {
        let mdt = self.mdts.get(&sheen_oss::mdt_of_object(object));
        mdt.map_or(Ok(false), |mdt| mdt.gives_up(store, object))
    }
}

/// What was looked at, and what is wrong.
#[derive(Debug, Default)]
pub struct Findings {
    /// Inodes with names.
    pub inodes: u64,
    /// Objects of files.
    pub objects: u64,
    /// Objects that no file has: created ahead, to be destroyed, or reported as damaged.
    pub unused: u64,
    /// Objects with data whose files a crash took, with the clients that could replay them; servers remove them when
    /// they start.
    pub given_up: u64,
    /// Files and objects of a survey that did not end, which servers remove when they start.
    pub survey: u64,
    /// Changes over several MDTs that servers complete when they start.
    pub incomplete: u64,
    /// Parts of such changes that are lost, and that servers redo when they start; the caller that redid them before the check sets it.
    pub to_redo: u64,
    /// Names that lead to MDTs which were not checked, inodes whose names lie there, and objects that are those MDTs'.
    pub elsewhere: u64,
    /// Of several MDTs the inodes that have lost their last name, by a change that was redone or while they were open;
    /// servers remove them when they start.
    pub orphans: u64,
    /// What contradicts what.
    pub problems: Vec<Problem>,
}

/// A check under way: all MDTs first, then all OSTs.
#[derive(Debug, Default)]
pub struct Consistency {
    expected: BTreeMap<u16, Expected>,
    paths: Paths,
    /// See [`sheen_mds::Report::some_missing`].
    some_mdts_missing: bool,
    findings: Findings,
}

impl Consistency {
    fn problem(&mut self, target: &TargetName, text: String) {
        self.problem_of(target, text, ProblemKind::Contradiction);
    }

    fn problem_of(&mut self, target: &TargetName, text: String, kind: ProblemKind) {
        self.findings.problems.push(Problem { target: target.to_string(), text, kind });
    }

    /// Path and FID of a file.
    fn place(&self, file: Fid) -> String {
        format!("{} ({file})", self.paths.of(file))
    }

    /// Names, inodes and layouts of all MDTs.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn mdts(
        &mut self,
        mdts: &[(&TargetName, &dyn Store, &StoreContents)],
    ) -> Result<(), CheckError> {
        let report = sheen_mds::check_all(&mdts.iter().map(at_rest).collect::<Vec<_>>());
        let report = report.map_err(CheckError::OfMdt)?;
        let name_of = |mdt: MdtIndex| {
            let found = mdts.iter().find(|(name, ..)| name.index == mdt.0);
            found.map_or_else(|| format!("MDT{:04x}", mdt.0), |(name, ..)| name.to_string())
        };
        let kind = ProblemKind::Contradiction;
        self.findings.inodes += report.inodes;
        self.findings.survey += report.survey;
        self.findings.incomplete += report.incomplete.len() as u64;
        self.findings.elsewhere += report.elsewhere;
        let problems = &mut self.findings.problems;
        for fault in &report.faults {
            let (target, text) = (name_of(fault.mdt), fault.to_string());
            problems.push(Problem { target, text, kind: kind.clone() });
        }
        self.some_mdts_missing = report.some_missing;
        let are_several = mdts.len() > 1 || report.some_missing;
        if are_several {
            self.findings.orphans += report.orphans.len() as u64;
        }
        for (mdt, orphan) in report.orphans.iter().filter(|_| !are_several) {
            let text = format!("(no name) ({orphan}): it was open and was not released");
            problems.push(Problem { target: name_of(*mdt), text, kind: kind.clone() });
        }
        self.paths = report.paths;
        for UsedObject { mdt, ost, object, file } in report.objects {
            match object.fid(ost) {
                Some(object) => {
                    self.expected.entry(ost).or_default().used.entry(object).or_insert(file);
                }
                None => {
                    let place = self.place(file);
                    let text = format!("{place}: its layout names no object: {object:?}");
                    let (target, kind) = (name_of(mdt), kind.clone());
                    self.findings.problems.push(Problem { target, text, kind });
                }
            }
        }
        for Progress { mdt, transno, last_used } in report.progress {
            for (ost, last_used) in last_used {
                let expected = self.expected.entry(ost).or_default();
                expected.mdts.insert(mdt.0, MdtAtRest { transno, last_used });
            }
        }
        for (ost, object) in report.dying {
            let expected = self.expected.entry(ost).or_default();
            expected.dying.extend(object.fid(ost));
        }
        Ok(())
    }

    /// The data that lies on an MDT itself.
    ///
    /// # Errors
    /// Those of the store, or [`CheckError::Cancelled`].
    pub fn mdt_data(
        &mut self,
        name: &TargetName,
        store: &dyn Store,
        depth: Depth,
        watch: Watch,
    ) -> Result<(), CheckError> {
        let (mut seen, mut after) = (Seen::default(), None);
        loop {
            let step = store.data_objects(after, STEP)?;
            let Some(last) = step.last() else { return Ok(()) };
            after = Some(*last);
            for file in step {
                if let Some(finding) = seen.data(store, file, depth, watch)? {
                    let place = self.place(file);
                    self.problem_of(name, format!("{place}: {finding}"), ProblemKind::Data);
                }
            }
        }
    }

    /// The objects of an OST.
    ///
    /// # Errors
    /// Those of the store, or [`CheckError::Cancelled`].
    pub fn ost(
        &mut self,
        name: &TargetName,
        store: &dyn Store,
        held: &StoreContents,
        depth: Depth,
        watch: Watch,
    ) -> Result<(), CheckError> {
        let mut known = self.expected.remove(&name.index).unwrap_or_default();
        for fid in sheen_oss::unlisted(store, &held.objects)? {
            self.problem(name, format!("{}: it is not listed", self.object(&known, fid)));
        }
        for fid in sheen_oss::beyond_last(store)? {
            let text = "its number was never given out, and would be given out again";
            self.problem(name, format!("{}: {text}", self.object(&known, fid)));
        }
        let mut seen = Seen::default();
        for fid in sheen_oss::listed(store)? {
            let is_there = match store.recorded_attributes(fid) {
                Ok(attributes) => attributes.kind == FileKind::Regular,
                Err(StoreError::NoObject(_)) => false,
                Err(error) => return Err(error.into()),
            };
            if !is_there {
                let place = self.object(&known, fid);
                known.used.remove(&fid);
                self.problem(name, format!("{place}: it is listed and missing"));
                continue;
            }
            if known.dying.contains(&fid) {
                // Whatever its bytes are, no file will read them.
                self.findings.unused += 1;
                continue;
            }
            let found = seen.data(store, fid, depth, watch)?;
            if let Some(finding) = &found {
                let text = format!("{}: {finding}", self.object(&known, fid));
                self.problem_of(name, text, ProblemKind::Data);
            }
            self.count(name, store, &mut known, (fid, found.is_none()))?;
        }
        let mut missing: Vec<_> = known.used.into_iter().collect();
        missing.sort_unstable();
        for (object, file) in missing {
            let place = self.place(file);
            self.problem(name, format!("{place}: its object {object} is missing"));
        }
        Ok(())
    }

    fn object(&self, known: &Expected, object: Fid) -> String {
        match known.used.get(&object) {
            Some(file) => format!("{}: object {object}", self.place(*file)),
            None => format!("(no file): object {object}"),
        }
    }

    /// Notes what an object is for.
    fn count(
        &mut self,
        name: &TargetName,
        store: &dyn Store,
        known: &mut Expected,
        (fid, is_whole): (Fid, bool),
    ) -> Result<(), StoreError> {
        if sheen_oss::is_survey(fid) {
            self.findings.survey += 1;
        } else if known.used.remove(&fid).is_some() {
            self.findings.objects += 1;
        } else if !is_whole {
            self.findings.unused += 1;
        } else {
            let attributes = store.attributes(fid)?;
            let bytes = attributes.size;
            // Created ahead; or its number was taken for a file that a crash kept from being made.
            if attributes.blocks == 0 && bytes == 0 {
                self.findings.unused += 1;
            } else if known.gives_up(store, fid)? {
                self.findings.given_up += 1;
            } else if self.some_mdts_missing
                && !known.mdts.contains_key(&sheen_oss::mdt_of_object(fid))
            {
                self.findings.elsewhere += 1;
            } else {
                // Clients write only to what the MDT gave to a file: it has lost that, or is an older copy.
                let text = format!("(no file): object {fid}: its {bytes} bytes belong to no file");
                self.problem_of(name, text, ProblemKind::Unclaimed(name.index, fid));
            }
        }
        Ok(())
    }

    /// What was found.
    #[must_use]
    pub fn finish(mut self) -> Findings {
        for (ost, known) in std::mem::take(&mut self.expected) {
            if let Some((object, file)) = known.used.iter().min() {
                let (count, place) = (known.used.len(), self.place(*file));
                let text = format!(
                    "{place}: its object {object} is missing with the whole OST, and {} more",
                    count - 1
                );
                let target = format!("OST{ost:04x}");
                let kind = ProblemKind::Contradiction;
                self.findings.problems.push(Problem { target, text, kind });
            }
        }
        self.findings
    }
}

fn at_rest<'a>(mdt: &(&TargetName, &'a dyn Store, &'a StoreContents)) -> sheen_mds::MdtAtRest<'a> {
    let (name, store, StoreContents { objects, indexes }) = *mdt;
    sheen_mds::MdtAtRest { mdt: MdtIndex(name.index), store, objects, indexes }
}

/// How much data was looked at.
#[derive(Default)]
struct Seen {
    objects: u64,
    bytes: u64,
}

impl Seen {
    /// What is wrong with the data of one object, if anything is.
    fn data(
        &mut self,
        store: &dyn Store,
        object: Fid,
        depth: Depth,
        watch: Watch,
    ) -> Result<Option<String>, CheckError> {
        self.objects += 1;
        if depth == Depth::Sizes {
            self.report_to(watch)?;
            return match store.attributes(object) {
                Ok(_) => Ok(None),
                Err(StoreError::Damaged(finding)) => Ok(in_a_line(&[*finding])),
                Err(error) => Err(error.into()),
            };
        }
        let (mut found, mut next) = (Vec::new(), Some(0));
        while let Some(offset) = next {
            let step = store.verify(object, offset)?;
            found.extend(step.findings);
            self.bytes += step.bytes;
            next = step.next;
            self.report_to(watch)?;
        }
        Ok(in_a_line(&found))
    }

    fn report_to(&self, watch: Watch) -> Result<(), CheckError> {
        match watch(self.objects, self.bytes) {
            true => Ok(()),
            false => Err(CheckError::Cancelled),
        }
    }
}

/// The findings of one object: the worst, and how many more there are.
fn in_a_line(found: &[Finding]) -> Option<String> {
    let is_block = |finding: &&Finding| matches!(finding.damage, Damage::Checksum { .. });
    let worst = found.iter().find(|finding| !is_block(finding)).or(found.first())?;
    let blocks = found.iter().filter(is_block).count();
    let text = format!("{}: {}", worst.path, worst.damage);
    match found.len() {
        1 => Some(text),
        _ => Some(format!("{text}; {blocks} blocks are damaged in all")),
    }
}
