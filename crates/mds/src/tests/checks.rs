//! The check over several MDTs, and what is redone before it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_store::{AttributePatch, Attributes, FileKind, Store, Transaction};
use sheen_store_mem::StoreMem;
use sheen_target::ChangesAtRest;
use sheen_target::testing::TestWorld;
use sheen_types::{Fid, MdtIndex};
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use sheen_wire::out::UpdateType;

use super::harness::{DIRECTORY, REGULAR, run};
use super::lost_mdts::Cluster;
use super::over_mdts::Scene;
use crate::directory::key;
use crate::orphans::{ORPHANS, fid_key};
use crate::sequences::RANGES;
use crate::{Fault, MdtAtRest, Redone, Report, check_all, check_many, redo_offline, xattrs};

const ROOT: Fid = Fid::ROOT;

pub(super) type Stores = Vec<Arc<StoreMem>>;

/// With all that is in the stores, as `fsck` knows it.
pub(super) fn with_all_at_rest<T>(
    stores: &[Arc<StoreMem>],
    look: impl FnOnce(&[MdtAtRest<'_>]) -> T,
) -> T {
    let objects: Vec<Vec<Fid>> = stores.iter().map(|store| store.fids()).collect();
    // Keys may be where no object is.
    let mut all = objects.concat();
    all.sort_unstable();
    all.dedup();
    let indexes = stores.iter().map(|store| {
        let has_keys = |fid: &&Fid| !store.scan(**fid, &[], 1).expect("a scan").is_empty();
        all.iter().filter(has_keys).copied().collect()
    });
    let indexes: Vec<Vec<Fid>> = indexes.collect();
    let at_rest = |at: usize| MdtAtRest {
        mdt: MdtIndex(at as u16),
        store: &*stores[at],
        objects: &objects[at],
        indexes: &indexes[at],
    };
    look(&(0..stores.len()).map(at_rest).collect::<Vec<_>>())
}

/// With all that is in the stores, of which those in `missing` are not looked at.
pub(super) fn check_without(stores: &[Arc<StoreMem>], missing: &[usize]) -> Report {
    with_all_at_rest(stores, |all| {
        let here = |it: &&MdtAtRest<'_>| !missing.contains(&usize::from(it.mdt.0));
        let looked: Vec<_> = all.iter().filter(here).copied().collect();
        check_all(&looked).expect("they can be read")
    })
}

pub(super) fn faults(stores: &[Arc<StoreMem>]) -> Vec<Fault> {
    check_without(stores, &[]).faults
}

pub(super) fn apply(store: &StoreMem, change: impl FnOnce(&mut Transaction)) {
    let mut transaction = Transaction::new();
    change(&mut transaction);
    store.apply(transaction).expect("applied");
}

/// Some fault is of this MDT and inode and says this.
pub(super) fn says(found: &[Fault], mdt: u16, fid: Fid, what: &str) {
    let is_it = |it: &Fault| it.mdt.0 == mdt && it.fid == fid && it.what.contains(what);
    assert!(found.iter().any(is_it), "{what} of {fid} on MDT{mdt:04x}: {found:?}");
}

/// What operations over two MDTs have made.
pub(super) struct Made {
    pub(super) stores: Stores,
    /// On MDT0001, named in the root: and below it one of MDT0000.
    pub(super) directory: Fid,
    pub(super) below: Fid,
    /// On MDT0000, with names in the root and in `directory`.
    pub(super) file: Fid,
    /// On MDT0001, named in the root.
    pub(super) moved: Fid,
}

async fn make(world: &TestWorld) -> Made {
    let scene = Scene::new(world, 2).await;
    let directory = scene.mkdir(1, ROOT, "d").await;
    let below = scene.mkdir(0, directory, "below").await;
    let file = scene.clients[0].make(ROOT, "f", REGULAR | 0o644).await.expect("made");
    scene.clients[1].link(file, directory, "g").await.expect("linked");
    let moved = scene.clients[1].make(directory, "m", REGULAR | 0o644).await.expect("made");
    scene.clients[0].rename((directory, "m"), (ROOT, "m")).await.expect("moved");
    let gone = scene.mkdir(1, ROOT, "gone").await;
    let removed = scene.remove(1, (ROOT, "gone"), gone, DIRECTORY).await;
    assert_eq!(removed.0, None);
    scene.settle(world).await;
    let stores = scene.servers.iter().map(|server| Arc::clone(&server.store)).collect();
    Made { stores, directory, below, file, moved }
}

pub(super) fn with_two_mdts(seed: u64, test: impl FnOnce(Made) + Send + 'static) {
    let world = TestWorld::new(seed);
    let inner = world.clone();
    let all = async move {
        let made = make(&inner).await;
        assert_eq!(faults(&made.stores), []);
        test(made);
    };
    run(all, &world);
}

#[test]
fn what_operations_over_two_mdts_make_is_sound() {
    with_two_mdts(480, |made| {
        let report = check_without(&made.stores, &[]);
        assert_eq!((report.elsewhere, report.incomplete.len(), report.orphans.len()), (0, 0, 0));
        assert_eq!(report.paths.of(made.below), "/d/below");
        assert_eq!(report.paths.of(made.moved), "/m");
        assert_eq!(report.progress.len(), 2);
        // Without what a store cannot list.
        let stores =
            [(MdtIndex(0), &*made.stores[0] as &dyn Store), (MdtIndex(1), &*made.stores[1])];
        let plain = check_many(&stores).expect("they can be read");
        assert_eq!((plain.faults, plain.inodes), (vec![], report.inodes));
    });
}

#[test]
fn what_leads_to_an_mdt_that_is_not_there_is_counted_and_no_fault() {
    with_two_mdts(481, |made| {
        // `d` and `m`, and `below`, whose name is in `d`.
        let first = check_without(&made.stores, &[1]);
        assert_eq!((first.faults, first.elsewhere), (vec![], 3));
        // `below` and `g`; and `d` and `m`, whose names are in the root.
        let second = check_without(&made.stores, &[0]);
        assert_eq!((second.faults, second.elsewhere), (vec![], 4));
    });
}

#[test]
fn an_orphan_whose_name_was_on_an_mdt_that_is_not_there_is_no_fault() {
    with_two_mdts(491, |made| {
        let Made { stores, moved, .. } = made;
        // Its last name went while it was open: what it says of names is past.
        apply(&stores[0], |change| {
            change.delete(ROOT, key(b"m"));
        });
        apply(&stores[1], |change| {
            change.patch(moved, AttributePatch { links_added: -1, ..AttributePatch::default() });
            change.put(ORPHANS, fid_key(moved), Bytes::new());
        });
        for missing in [&[][..], &[0]] {
            let found = check_without(&stores, missing);
            assert_eq!((found.faults, found.orphans.len()), (vec![], 1), "without {missing:?}");
        }
    });
}

#[test]
fn entries_on_another_mdt_than_their_directorys_are_reported() {
    with_two_mdts(492, |made| {
        let Made { stores, below, .. } = made;
        let entry = stores[0].scan(ROOT, &[], 1).expect("a scan").remove(0);
        apply(&stores[1], |change| {
            change.put(below, entry.key, entry.value);
        });
        says(&faults(&stores), 1, below, "it has entries and is no directory");
    });
}

#[test]
fn names_and_inodes_without_each_other_are_reported_with_their_mdts() {
    with_two_mdts(482, |made| {
        let Made { stores, directory, below, file, moved } = made;
        apply(&stores[0], |change| {
            change.delete(ROOT, key(b"m"));
            change.destroy(below);
        });
        apply(&stores[1], |change| {
            change.delete(directory, key(b"g"));
        });
        let found = faults(&stores);
        says(&found, 1, moved, "no name leads to it");
        says(&found, 1, below, "a name of an inode that is missing on MDT0000");
        says(&found, 0, file, "it has 1 links and says 2");
        says(&found, 0, file, "its link EA names g in");
        assert_eq!(found.len(), 4, "{found:?}");
    });
}

#[test]
fn wrong_links_are_reported_on_the_mdt_of_the_inode() {
    with_two_mdts(483, |made| {
        let Made { stores, directory, file, moved, .. } = made;
        let links = |links_added| AttributePatch { links_added, ..AttributePatch::default() };
        apply(&stores[0], |change| {
            change.patch(file, links(-1));
        });
        apply(&stores[1], |change| {
            change.patch(directory, links(1));
            change.remove_xattr(moved, xattrs::LINK);
        });
        let found = faults(&stores);
        says(&found, 0, file, "it has 2 links and says 1");
        // `below`, which is MDT0000's.
        says(&found, 1, directory, "it has 3 links and says 4");
        says(&found, 1, moved, "it has no link EA");
        assert_eq!(found.len(), 3, "{found:?}");
    });
}

pub(super) fn put_range(store: &StoreMem, range: &LuSeqRange) {
    let mut writer = Writer::default();
    range.encode(&mut writer);
    let key = Bytes::copy_from_slice(&range.start.to_be_bytes());
    apply(store, |change| {
        change.put(RANGES, key, writer.into_bytes());
    });
}

#[test]
fn ranges_that_overlap_or_that_mdt0000_has_not_are_reported() {
    with_two_mdts(484, |made| {
        let flags = SeqRangeFlags::MDT;
        let start = made.directory.seq + 1000;
        let range = LuSeqRange { start, end: start + 10, index: 7, flags };
        put_range(&made.stores[1], &range);
        let found = faults(&made.stores);
        says(&found, 1, Fid::new(start, 0), "overlap");
        says(&found, 1, Fid::new(start, 0), "MDT0000 does not have that");
        assert_eq!(found.len(), 2, "{found:?}");
        let Made { stores, directory, .. } = made;
        apply(&stores[1], |change| {
            change.put(RANGES, Bytes::copy_from_slice(&start.to_be_bytes()), "no range".into());
        });
        says(&faults(&stores), 1, RANGES, "cannot be read");
        apply(&stores[1], |change| {
            change.delete(RANGES, Bytes::copy_from_slice(&start.to_be_bytes()));
        });
        // An inode that is not where its sequence is.
        let kind = FileKind::Fifo;
        let stray = Fid::new(directory.seq, 99);
        let nowhere = Fid::new(1 << 60, 1);
        apply(&stores[0], |change| {
            change.create(stray, Attributes { kind, ..Attributes::default() });
            change.create(nowhere, Attributes { kind, ..Attributes::default() });
        });
        let found = faults(&stores);
        says(&found, 0, stray, "its sequence is one of MDT0001");
        says(&found, 0, nowhere, "its sequence is in no range of any MDT");
    });
}

#[test]
fn a_root_directory_that_is_missing_is_a_fault_and_no_failure() {
    with_two_mdts(496, |made| {
        apply(&made.stores[0], |change| {
            change.destroy(ROOT);
        });
        says(&faults(&made.stores), 0, ROOT, "the root directory is missing");
    });
}

pub(super) fn redo(stores: &[Arc<StoreMem>]) -> Redone {
    let shared = |(at, store): (usize, &Arc<StoreMem>)| {
        (MdtIndex(at as u16), Arc::clone(store) as Arc<dyn Store>)
    };
    redo_offline(&stores.iter().enumerate().map(shared).collect::<Vec<_>>()).expect("redone")
}

/// The judge *cut*: what is left of all MDTs at any moment is sound, once what the records say is redone.
pub(super) fn cut_is_sound(stores: &[Arc<StoreMem>]) {
    let done = redo(stores);
    assert_eq!(done.refused, []);
    assert_eq!(faults(stores), [], "{done:?}");
}

/// What would be left of all of them, now.
pub(super) fn crashed(cluster: &Cluster) -> Stores {
    cluster.servers.iter().map(|server| Arc::new(server.store.crash())).collect()
}

/// MDT0001 has its part of a mkdir durable, and MDT0000 has none.
pub(super) async fn cut(world: &TestWorld) -> (Cluster, Fid) {
    let cluster = Cluster::new(world, 2).await;
    cluster.meet().await;
    cluster.hold(1, 0, Some(UpdateType::RECORD));
    let (made, fid) = cluster.mkdir(1, ROOT, "d");
    let _unanswered = cluster.begin(&made, false);
    world.sleep(Duration::from_secs(1)).await;
    for server in &cluster.servers {
        server.store.commit().expect("it is well");
    }
    (cluster, fid)
}

#[test]
fn a_part_that_one_mdt_lacks_is_redone_from_the_record_of_another() {
    let world = TestWorld::new(485);
    let inner = world.clone();
    let test = async move {
        let (cluster, fid) = cut(&inner).await;
        let stores = crashed(&cluster);
        let before = check_without(&stores, &[]);
        says(&before.faults, 1, fid, "no name leads to it");
        says(&before.faults, 0, ROOT, "its part of change MDT0001:");
        assert_eq!(before.incomplete.len(), 1);
        let done = redo(&stores);
        assert_eq!((done.parts.len(), done.parts[0].mdt, done.refused), (1, MdtIndex(0), vec![]));
        assert_eq!(faults(&stores), []);
        // All have their parts: what is kept are records that are not removed yet. Of one that is missing that is not known.
        let kept = ChangesAtRest::load(&*stores[1]).expect("it can be read");
        let change = before.incomplete[0];
        assert!(kept.records().any(|record| record.id == change));
        assert_eq!(check_without(&stores, &[]).incomplete, []);
        assert!(check_without(&stores, &[0]).incomplete.contains(&change));
        // It is durable, and once.
        let again: Stores = stores.iter().map(|store| Arc::new(store.crash())).collect();
        assert_eq!(redo(&again), Redone::default());
        assert_eq!(faults(&again), []);
        assert_eq!(redo(&stores), Redone::default());
    };
    run(test, &world);
}

#[test]
fn a_part_that_does_not_fit_is_reported_and_nothing_of_it_is_there() {
    let world = TestWorld::new(486);
    let inner = world.clone();
    let test = async move {
        let (cluster, fid) = cut(&inner).await;
        let stores = crashed(&cluster);
        let name = stores[0].scan(ROOT, &[], 1).expect("a scan");
        apply(&stores[0], |change| {
            change.insert(ROOT, key(b"d"), name[0].value.clone());
        });
        let done = redo(&stores);
        assert_eq!(done.parts, []);
        assert_eq!((done.refused[0].mdt, &done.refused[0].inodes[..]), (MdtIndex(0), &[ROOT][..]));
        says(&faults(&stores), 1, fid, "no name leads to it");
        // A store in which no MDT has ever been started is not made one.
        let empty = Arc::new(StoreMem::new(sheen_store_mem::MemOptions::default()));
        let stores = vec![empty, Arc::clone(&stores[1])];
        assert!(redo(&stores).parts.is_empty() && stores[0].fids().is_empty());
    };
    run(test, &world);
}

/// The MDTs go on from where it was redone.
#[test]
fn what_was_redone_is_known_to_the_mdts_when_they_start() {
    let world = TestWorld::new(487);
    let inner = world.clone();
    let test = async move {
        let (mut cluster, fid) = cut(&inner).await;
        cluster.kill(0);
        cluster.kill(1);
        let stores = cluster.left();
        assert_eq!(redo(&stores).parts.len(), 1);
        let lacking = ChangesAtRest::load(&*stores[0]).expect("it can be read");
        assert!(lacking.records().any(|record| record.id.coordinator == MdtIndex(1)));
        cluster.hold(1, 0, None);
        cluster.restart().await;
        cluster.finish().await;
        assert_eq!(cluster.child(0, ROOT, "d"), Some(fid));
        cluster.settle().await;
        let stores = cluster.servers.iter().map(|server| Arc::clone(&server.store));
        assert_eq!(faults(&stores.collect::<Vec<_>>()), []);
    };
    run(test, &world);
}

#[test]
fn an_error_of_a_store_is_that_mdts() {
    with_two_mdts(493, |made| {
        let notes = Fid::new(sheen_types::fid_seq::LOCAL_FILE, 0x301);
        apply(&made.stores[1], |change| {
            change.put(notes, Bytes::from_static(&[0, 0]), Bytes::from("none"));
        });
        let stores =
            [0, 1].map(|at| (MdtIndex(at), Arc::clone(&made.stores[usize::from(at)]) as Arc<_>));
        let failed = redo_offline(&stores).expect_err("a note that is none");
        assert_eq!(failed.mdt, MdtIndex(1));
        let at_rest = stores.each_ref().map(|(mdt, store): &(_, Arc<dyn Store>)| MdtAtRest {
            mdt: *mdt,
            store: &**store,
            objects: &[],
            indexes: &[],
        });
        assert_eq!(check_all(&at_rest), Err(failed.clone()));
        assert!(failed.to_string().starts_with("MDT0001: "), "{failed}");
    });
}
