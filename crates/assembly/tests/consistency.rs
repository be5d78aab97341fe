//! Each kind of damage of a whole file system is found, reported with its place, and repaired where it can be.

use bytes::Bytes;
use sheen_assembly::{Consistency, Depth, Findings, Problem, ProblemKind, StoreContents};
use sheen_store::{AttributePatch, Attributes, FileKind, Store, Transaction};
use sheen_store_mem::{MemOptions, StoreMem};
use sheen_types::{Fid, TargetKind, TargetName, Timestamp, fid_seq};

const OBJECTS_SEQUENCE: u64 = fid_seq::NORMAL + (1 << 30);
const FIRST: Fid = Fid::new(OBJECTS_SEQUENCE, 1);
const UNCLAIMED: Fid = Fid::new(OBJECTS_SEQUENCE, 2);
const LAST: Fid = Fid::new(OBJECTS_SEQUENCE, 3);
const AHEAD: Fid = Fid::new(OBJECTS_SEQUENCE, 4);
const LOST_AND_FOUND: Fid = Fid::new(fid_seq::DOT_LUSTRE, 3);
/// `LAST_RECV_OID`, where a target keeps its last transaction number.
const CLIENTS: Fid = Fid::new(fid_seq::LOCAL_FILE, 11);
const LAYOUT: &str = "trusted.lov";
const LINK: &str = "trusted.link";

/// `/lost+found` with two files, each with an object on one OST.
struct Scene {
    mdt: StoreMem,
    ost: StoreMem,
    files: Vec<Fid>,
}

fn apply(store: &StoreMem, change: impl FnOnce(&mut Transaction)) {
    let mut transaction = Transaction::new();
    change(&mut transaction);
    store.apply(transaction).expect("apply works");
}

fn name(kind: TargetKind) -> TargetName {
    TargetName { fsname: "sheen".parse().expect("a name"), kind, index: 0 }
}

impl Scene {
    fn new() -> Self {
        let new = || StoreMem::new(MemOptions::default());
        let mut scene = Self { mdt: new(), ost: new(), files: Vec::new() };
        apply(&scene.mdt, |change| {
            let kind = FileKind::Directory;
            change.create(Fid::ROOT, Attributes { kind, links: 2, ..Attributes::default() });
        });
        for object in [FIRST, LAST] {
            scene.object(object);
        }
        sheen_oss::rebuild(&scene.ost, &[FIRST, LAST]).expect("objects are listed");
        let objects = [(0, FIRST), (0, LAST)];
        scene.files = sheen_mds::adopt(&scene.mdt, &objects, Timestamp::default()).expect("files");
        scene.repair(&[]);
        let found = scene.look();
        assert_eq!(found.problems, []);
        assert_eq!((found.inodes, found.objects, found.unused), (4, 2, 0));
        scene
    }

    /// An object with bytes, not listed.
    fn object(&self, object: Fid) {
        apply(&self.ost, |change| {
            change.create(object, Attributes::default());
        });
        self.ost.write(object, 0, &[Bytes::from_static(b"bytes")]).expect("write works");
    }

    fn held(&self) -> (StoreContents, StoreContents) {
        let mut all = vec![Fid::ROOT, LOST_AND_FOUND];
        // Whatever a test makes lies in the sequence of the files, or in one never given out.
        let sequence = self.files.first().map_or(fid_seq::NORMAL + 1, |file| file.seq);
        all.extend((1..10).map(|oid| Fid::new(sequence, oid)));
        all.extend((1..10).map(|oid| Fid::new(sequence + 1, oid)));
        all.push(Fid::new(sequence + 100_000, 1));
        let is_there = |fid: &Fid| self.mdt.recorded_attributes(*fid).is_ok();
        let objects = all.iter().copied().filter(is_there).collect();
        let has_keys = |fid: &Fid| !self.mdt.scan(*fid, &[], 1).expect("scan").is_empty();
        let indexes = all.iter().copied().filter(has_keys).collect();
        let is_there = |fid: &Fid| self.ost.recorded_attributes(*fid).is_ok();
        let on_ost = [FIRST, UNCLAIMED, LAST, AHEAD].into_iter().filter(is_there).collect();
        (StoreContents { objects, indexes }, StoreContents { objects: on_ost, indexes: Vec::new() })
    }

    fn look(&self) -> Findings {
        let (on_mdt, on_ost) = self.held();
        let mut check = Consistency::default();
        check.mdts(&[(&name(TargetKind::Mdt), &self.mdt, &on_mdt)]).expect("the MDT can be read");
        let watch = &mut |_, _| true;
        let ost = name(TargetKind::Ost);
        check.ost(&ost, &self.ost, &on_ost, Depth::Checksums, watch).expect("so can the OST");
        check.finish()
    }

    /// As `sheen fsck -y` does.
    fn repair(&self, unclaimed: &[(u16, Fid)]) {
        sheen_oss::rebuild(&self.ost, &self.held().1.objects).expect("the OST is put in order");
        let now = Timestamp::default();
        sheen_mds::adopt(&self.mdt, unclaimed, now).expect("files are made");
        let held = self.held().0;
        sheen_mds::rebuild(&self.mdt, &held.objects, &held.indexes, now).expect("so is the MDT");
    }

    /// One line of the report has all of these.
    fn reports(&self, parts: &[&str]) {
        let problems = self.look().problems;
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let found = lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line has {parts:?}: {lines:#?}");
    }

    fn is_repaired(&self) {
        self.repair(&[]);
        assert_eq!(self.look().problems, []);
    }

    fn path(&self, file: usize) -> String {
        let fid = self.files[file];
        format!("/lost+found/{fid} ({fid}): ")
    }
}

#[test]
fn an_object_that_is_missing_is_reported_with_its_file() {
    let scene = Scene::new();
    apply(&scene.ost, |change| {
        change.destroy(LAST);
    });
    let object = LAST.to_string();
    scene.reports(&["sheen-OST0000: ", &scene.path(1), &object, "listed and missing"]);
    scene.repair(&[]);
    scene.reports(&["sheen-OST0000: ", &scene.path(1), &object, "is missing"]);
    assert_eq!(scene.look().problems.len(), 1);
}

#[test]
fn an_object_that_no_file_has_becomes_a_file() {
    let scene = Scene::new();
    scene.object(UNCLAIMED);
    scene.reports(&["sheen-OST0000: (no file): object", &UNCLAIMED.to_string(), "not listed"]);
    sheen_oss::rebuild(&scene.ost, &[UNCLAIMED]).expect("it is listed");
    let found = scene.look().problems;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].kind, ProblemKind::Unclaimed(0, UNCLAIMED));
    scene.repair(&[(0, UNCLAIMED)]);
    let found = scene.look();
    assert_eq!(found.problems, []);
    assert_eq!((found.inodes, found.objects), (5, 3));
}

/// The MDT is an older copy, or a crash took its newest files.
#[test]
fn an_object_beyond_the_last_used_that_was_written_to_becomes_a_file() {
    let scene = Scene::new();
    scene.object(AHEAD);
    sheen_oss::rebuild(&scene.ost, &[AHEAD]).expect("it is listed");
    let found = scene.look();
    assert_eq!(found.problems.len(), 1);
    assert_eq!(found.problems[0].kind, ProblemKind::Unclaimed(0, AHEAD));
    scene.reports(&["OST0000: (no file): object", &AHEAD.to_string(), "5 bytes belong to no file"]);
    scene.repair(&[(0, AHEAD)]);
    let found = scene.look();
    assert_eq!(found.problems, []);
    assert_eq!((found.inodes, found.objects), (5, 3));
}

#[test]
fn an_object_beyond_the_last_used_that_is_empty_is_unused() {
    let scene = Scene::new();
    apply(&scene.ost, |change| {
        change.create(AHEAD, Attributes::default());
    });
    sheen_oss::rebuild(&scene.ost, &[AHEAD]).expect("it is listed");
    let found = scene.look();
    assert_eq!((found.problems, found.unused), (Vec::new(), 1));
}

#[test]
fn an_ost_that_is_not_there_is_missed() {
    let scene = Scene::new();
    let mut check = Consistency::default();
    let mdt = name(TargetKind::Mdt);
    let held = StoreContents::default();
    check.mdts(&[(&mdt, &scene.mdt, &held)]).expect("the MDT can be read");
    let problem = check.finish().problems[0].to_string();
    assert!(
        problem.starts_with("OST0000: /lost+found/") && problem.contains("whole OST"),
        "{problem}"
    );
}

#[test]
fn layouts_that_name_one_object_or_cannot_be_read_are_reported() {
    let scene = Scene::new();
    let layout = scene.mdt.xattr(scene.files[0], LAYOUT).expect("read").expect("a layout");
    apply(&scene.mdt, |change| {
        change.set_xattr(scene.files[1], LAYOUT, layout.clone());
    });
    scene.reports(&["MDT0000: ", &scene.path(1), &FIRST.to_string(), "layout of /lost+found/"]);
    apply(&scene.mdt, |change| {
        change.set_xattr(scene.files[1], LAYOUT, layout.slice(..layout.len() - 1));
    });
    scene.reports(&["MDT0000: ", &scene.path(1), "its layout cannot be read"]);
}

#[test]
fn wrong_counts_and_links_are_reported_and_corrected() {
    let scene = Scene::new();
    let links = |links_added| AttributePatch { links_added, ..AttributePatch::default() };
    apply(&scene.mdt, |change| {
        change.patch(scene.files[0], links(3)).remove_xattr(scene.files[1], LINK);
        change.patch(Fid::ROOT, links(-1));
    });
    scene.reports(&[&scene.path(0), "it has 1 links and says 4"]);
    scene.reports(&[&scene.path(1), "no link EA"]);
    scene.reports(&["MDT0000: / (", "it has 3 links and says 2"]);
    scene.is_repaired();
}

#[test]
fn a_name_of_nothing_goes_and_an_inode_without_a_name_gets_one() {
    let scene = Scene::new();
    let unnamed = Fid::new(scene.files[0].seq, 9);
    apply(&scene.mdt, |change| {
        change.destroy(scene.files[0]);
        change.create(unnamed, Attributes { kind: FileKind::Fifo, ..Attributes::default() });
    });
    scene.reports(&[&scene.path(0), "a name of an inode that is missing"]);
    scene.reports(&["MDT0000: (no name) (", &unnamed.to_string(), "no name leads to it"]);
    scene.repair(&[(0, FIRST)]);
    assert_eq!(scene.look().problems, []);
}

#[test]
fn entries_of_a_directory_that_is_gone_get_one() {
    let scene = Scene::new();
    let gone = Fid::new(scene.files[0].seq, 8);
    let entries = scene.mdt.scan(LOST_AND_FOUND, &[], 1).expect("scan");
    apply(&scene.mdt, |change| {
        change.delete(LOST_AND_FOUND, entries[0].key.clone());
        change.insert(gone, entries[0].key.clone(), entries[0].value.clone());
    });
    scene.reports(&["MDT0000: ", &gone.to_string(), "it has entries and is no directory"]);
    scene.is_repaired();
}

#[test]
fn a_sequence_that_would_be_given_out_again_is_noted() {
    let scene = Scene::new();
    let beyond = Fid::new(scene.files[0].seq + 100_000, 1);
    apply(&scene.mdt, |change| {
        change.create(beyond, Attributes { kind: FileKind::Fifo, ..Attributes::default() });
    });
    scene.reports(&["MDT0000: ", &beyond.to_string(), "its sequence was never given out"]);
    scene.is_repaired();
}

#[test]
fn a_check_that_is_cancelled_ends() {
    let scene = Scene::new();
    let mut check = Consistency::default();
    let ended = check.ost(
        &name(TargetKind::Ost),
        &scene.ost,
        &scene.held().1,
        Depth::Checksums,
        &mut |_, _| false,
    );
    assert_eq!(ended, Err(sheen_assembly::CheckError::Cancelled));
}

/// What a crash took is no problem: the next start removes it.
#[test]
fn an_object_whose_file_a_crash_took_is_counted_and_no_problem() {
    let scene = Scene::new();
    scene.object(AHEAD);
    sheen_oss::rebuild(&scene.ost, &[AHEAD]).expect("it is listed");
    // The OST has heard from the MDT: transaction 10 was durable when it started, 20 later. Nothing is kept.
    let record = |numbers: [u64; 3]| numbers.map(u64::to_le_bytes).concat();
    let report = |numbers| {
        apply(&scene.ost, |change| {
            let key = Bytes::copy_from_slice(&OBJECTS_SEQUENCE.to_be_bytes());
            change.put(Fid::new(fid_seq::LOCAL_FILE, 0x103), key, record(numbers).into());
        });
    };
    // The MDT has come so far.
    apply(&scene.mdt, |change| {
        let value = Bytes::copy_from_slice(&20_u64.to_le_bytes());
        change.put(CLIENTS, Bytes::from_static(b"transno"), value);
    });
    report([10, 20, 0]);
    let found = scene.look();
    assert_eq!((found.problems, found.given_up), (Vec::new(), 1));
    // It had come further: this is an older copy of it.
    report([10, 21, 0]);
    let found = scene.look();
    assert_eq!((found.problems.len(), found.given_up), (1, 0));
    // An older copy once: what was kept then is kept.
    report([10, 20, AHEAD.oid.into()]);
    let found = scene.look();
    assert_eq!((found.problems.len(), found.given_up), (1, 0));
}

/// Its MDT knows whose they are.
#[test]
fn objects_of_an_mdt_that_is_not_there_are_counted_and_no_problem() {
    let scene = Scene::new();
    scene.object(AHEAD);
    sheen_oss::rebuild(&scene.ost, &[AHEAD]).expect("it is listed");
    let (on_mdt, on_ost) = scene.held();
    let further = TargetName { index: 1, ..name(TargetKind::Mdt) };
    let mut check = Consistency::default();
    check.mdts(&[(&further, &scene.mdt, &on_mdt)]).expect("the MDT can be read");
    let watch = &mut |_, _| true;
    let ost = name(TargetKind::Ost);
    check.ost(&ost, &scene.ost, &on_ost, Depth::Checksums, watch).expect("so can the OST");
    let found = check.finish();
    let is_unclaimed = |problem: &Problem| matches!(problem.kind, ProblemKind::Unclaimed(..));
    assert_eq!(found.problems.iter().find(|it| is_unclaimed(it)), None);
    assert!(found.elsewhere > 0);
}
