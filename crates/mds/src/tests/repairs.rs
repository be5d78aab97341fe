//! What a repair over several MDTs puts in order: after it the check finds nothing, and a second one changes nothing.

use std::sync::Arc;

use bytes::Bytes;
use sheen_store::{AttributePatch, Attributes, FileKind, Store};
use sheen_store_mem::StoreMem;
use sheen_target::ChangesAtRest;
use sheen_target::testing::TestWorld;
use sheen_types::{Fid, MdtIndex, Timestamp, fid_seq};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};

use super::checks::{
    Made, apply, check_without, crashed, cut, faults, put_range, redo, says, with_all_at_rest,
    with_two_mdts,
};
use super::harness::run;
use super::mismatches::obstacle;
use crate::directory::{self, Child, key};
use crate::orphans::{ORPHANS, fid_key};
use crate::{MdtAtRest, Obstacle, Rebuilt, WhyLost, rebuild_all, repair_obstacle, xattrs};

const ROOT: Fid = Fid::ROOT;
const LOST_AND_FOUND: Fid = Fid { seq: fid_seq::DOT_LUSTRE, oid: 3, ver: 0 };

/// All of them, with what is in the stores, as `fsck` knows it.
pub(super) fn repair_once(stores: &[Arc<StoreMem>]) -> Vec<Rebuilt> {
    with_all_at_rest(stores, |all| rebuild_all(all, Timestamp::default()).expect("repaired"))
}

/// Repairs, and finds nothing any more, whatever is lost of what the stores were not asked to commit.
pub(super) fn repair(stores: &[Arc<StoreMem>]) -> Vec<Rebuilt> {
    let done = repair_once(stores);
    assert_eq!(faults(stores), [], "{done:?}");
    let left: Vec<_> = stores.iter().map(|store| Arc::new(store.crash())).collect();
    assert_eq!(faults(&left), [], "it is durable");
    for again in repair_once(&left) {
        assert_eq!(again, Rebuilt { inodes: again.inodes, ..Rebuilt::default() });
    }
    done
}

pub(super) fn child(
    stores: &[Arc<StoreMem>],
    mdt: usize,
    directory: Fid,
    name: &str,
) -> Option<Fid> {
    let found = directory::find(&*stores[mdt], directory, name.as_bytes());
    found.expect("a lookup").map(|child| child.fid)
}

#[test]
fn what_is_in_order_on_two_mdts_stays_as_it_is() {
    with_two_mdts(600, |made| {
        let done = repair(&made.stores);
        // The root, `.lustre` and what is in it, `below` and the file; `d`, and what was moved.
        assert_eq!((done[0].inodes, done[1].inodes), (5, 2));
        for done in &done {
            assert_eq!(done, &Rebuilt { inodes: done.inodes, ..Rebuilt::default() });
        }
    });
}

#[test]
fn names_that_lead_to_nothing_on_another_mdt_go() {
    with_two_mdts(601, |made| {
        let Made { stores, directory, below, moved, .. } = made;
        apply(&stores[0], |change| {
            change.destroy(below);
        });
        apply(&stores[1], |change| {
            change.destroy(moved);
        });
        let done = repair(&stores);
        // A directory is made again where it was; of a file nothing is left.
        assert_eq!(done[0].directories, [below]);
        let names: Vec<_> = done[0].lost.iter().map(|lost| done[0].place_of_name(lost)).collect();
        assert_eq!((done[0].lost.len(), names), (1, vec![format!("/m ({moved})")]));
        assert_eq!(done[0].lost[0].why, WhyLost::NoInode);
        assert_eq!(done[0].place(below), format!("/d/below ({below})"));
        assert_eq!(child(&stores, 1, directory, "below"), Some(below));
        assert_eq!(child(&stores, 0, ROOT, "m"), None);
    });
}

#[test]
fn names_come_back_from_inodes_of_another_mdt() {
    with_two_mdts(602, |made| {
        let Made { stores, directory, file, moved, .. } = made;
        apply(&stores[0], |change| {
            change.delete(ROOT, key(b"m")).delete(ROOT, key(b"d"));
        });
        apply(&stores[1], |change| {
            change.delete(directory, key(b"g"));
        });
        let done = repair(&stores);
        assert_eq!((done[0].names, done[1].names), (2, 1));
        let mut places: Vec<_> = done[0].put_back.iter().map(|it| done[0].place(*it)).collect();
        places.sort();
        assert_eq!(places, [format!("/d ({directory})"), format!("/m ({moved})")]);
        assert_eq!(done[1].put_back, [file]);
        assert_eq!(child(&stores, 0, ROOT, "m"), Some(moved));
        assert_eq!(child(&stores, 0, ROOT, "d"), Some(directory));
        assert_eq!(child(&stores, 1, directory, "g"), Some(file));
    });
}

#[test]
fn inodes_without_a_name_on_any_mdt_go_to_the_lost_and_found_of_mdt0000() {
    with_two_mdts(603, |made| {
        let Made { stores, directory, below, moved, .. } = made;
        apply(&stores[0], |change| {
            change.delete(ROOT, key(b"m")).delete(ROOT, key(b"d"));
        });
        apply(&stores[1], |change| {
            change.remove_xattr(moved, xattrs::LINK).remove_xattr(directory, xattrs::LINK);
        });
        let done = repair(&stores);
        let mut found = [directory, moved];
        found.sort_unstable();
        let mut said = done[1].found.clone();
        said.sort_unstable();
        assert_eq!(said, found);
        for fid in found {
            assert_eq!(child(&stores, 0, LOST_AND_FOUND, &fid.to_string()), Some(fid));
        }
        let path = check_without(&stores, &[]).paths.of(below);
        assert_eq!(path, format!("/lost+found/{directory}/below"));
    });
}

#[test]
fn counts_and_link_eas_are_corrected_on_the_mdt_of_the_inode() {
    with_two_mdts(604, |made| {
        let Made { stores, directory, below, file, moved, .. } = made;
        let links = |links_added| AttributePatch { links_added, ..AttributePatch::default() };
        let elsewhere = [(moved, Bytes::from("nowhere"))];
        apply(&stores[0], |change| {
            change.patch(file, links(-1)).patch(ROOT, links(1));
            // `..` of a directory whose name is on MDT0001.
            change.set_xattr(below, xattrs::LINK, crate::links::of(&elsewhere));
        });
        apply(&stores[1], |change| {
            change.patch(directory, links(1)).remove_xattr(moved, xattrs::LINK);
        });
        let done = repair(&stores);
        assert_eq!((done[0].corrected, done[1].corrected), (3, 2), "{done:?}");
        let first = crate::Mdt::new(
            Arc::clone(&stores[0]) as Arc<dyn Store>,
            crate::MdtConfig::new("", 0, Timestamp::default(), [0; 16]),
        );
        assert_eq!(first.expect("loaded").parent(below), Ok(directory));
    });
}

#[test]
fn a_directory_with_names_on_two_mdts_keeps_that_of_its_link_ea() {
    with_two_mdts(605, |made| {
        let Made { stores, directory, below, .. } = made;
        let value = directory::value(Child { fid: below, kind: FileKind::Directory });
        apply(&stores[0], |change| {
            change.insert(ROOT, key(b"too"), value);
        });
        let done = repair(&stores);
        assert_eq!(done[0].corrected, 1);
        assert_eq!(child(&stores, 0, ROOT, "too"), None);
        assert_eq!(child(&stores, 1, directory, "below"), Some(below));
    });
}

/// What its link EA says of names is past: it does not get them back.
#[test]
fn an_orphan_stays_one() {
    with_two_mdts(606, |made| {
        let Made { stores, moved, .. } = made;
        apply(&stores[0], |change| {
            change.delete(ROOT, key(b"m"));
        });
        apply(&stores[1], |change| {
            change.patch(moved, AttributePatch { links_added: -1, ..AttributePatch::default() });
            change.put(ORPHANS, fid_key(moved), Bytes::new());
        });
        repair(&stores);
        assert_eq!(child(&stores, 0, ROOT, "m"), None);
        assert_eq!(check_without(&stores, &[]).orphans, [(MdtIndex(1), moved)]);
    });
}

/// They could be what another MDT says they are.
#[test]
fn nothing_is_repaired_where_an_mdt_is_missing() {
    with_two_mdts(607, |made| {
        let stores = made.stores;
        let one = |at: usize| MdtAtRest {
            mdt: MdtIndex(at as u16),
            store: &*stores[at],
            objects: &[],
            indexes: &[],
        };
        for (here, missing) in [(0, 1), (1, 0)] {
            let obstacle = Obstacle::Missing(missing);
            assert_eq!(repair_obstacle(&[one(here)]), Ok(Some(obstacle)));
            assert_eq!(rebuild_all(&[one(here)], Timestamp::default()), Ok(vec![]));
        }
        assert_eq!(repair_obstacle(&[one(0), one(1)]), Ok(None));
        assert_eq!(faults(&stores), []);
    });
}

/// No MDT has the sequence, so none may have the directory.
#[test]
fn a_directory_that_no_mdt_may_have_is_not_made_again() {
    with_two_mdts(608, |made| {
        let fid = Fid::new(1 << 60, 1);
        let value = directory::value(Child { fid, kind: FileKind::Directory });
        apply(&made.stores[0], |change| {
            change.insert(ROOT, key(b"nowhere"), value);
        });
        let done = repair(&made.stores);
        let lost: Vec<_> = done[0].lost.iter().map(|lost| (lost.parent, &lost.name[..])).collect();
        assert_eq!(lost, [(ROOT, "nowhere")]);
    });
}

/// The inodes of one of two that have the same range would be taken for lost, and their names removed.
#[test]
fn nothing_is_repaired_where_tables_of_sequences_contradict_each_other() {
    with_two_mdts(617, |made| {
        let stores = made.stores;
        let start = made.directory.seq + 1000;
        for (index, flags) in [(0, SeqRangeFlags::MDT), (3, SeqRangeFlags::OST)] {
            put_range(&stores[1], &LuSeqRange { start, end: start + 10, index, flags });
            let said = obstacle(&stores);
            assert!(matches!(said, Some(Obstacle::Sequences(MdtIndex(1), _))), "{said:?}");
            let before: Vec<_> = stores.iter().map(|store| store.applied()).collect();
            assert_eq!(repair_once(&stores), []);
            assert_eq!(before, stores.iter().map(|store| store.applied()).collect::<Vec<_>>());
        }
    });
}

#[test]
fn names_are_repaired_where_tables_of_sequences_leave_no_inode_uncertain() {
    with_two_mdts(621, |made| {
        let stores = made.stores;
        let put = |at: usize, start: u64, index, flags| {
            put_range(&stores[at], &LuSeqRange { start, end: start + 10, index, flags });
        };
        // Of OSTs two overlap; MDT0000 has lost a range; MDT0001 has a part of its own by itself, too.
        put(1, 1 << 50, 3, SeqRangeFlags::OST);
        put(1, (1 << 50) + 5, 4, SeqRangeFlags::OST);
        put(1, 1 << 51, 1, SeqRangeFlags::MDT);
        put(1, made.directory.seq + 1000, 1, SeqRangeFlags::MDT);
        let found = faults(&stores);
        says(&found, 0, Fid::new(1 << 51, 0), "its table lacks the sequences");
        says(&found, 1, Fid::new((1 << 50) + 5, 0), "overlap");
        assert_eq!(obstacle(&stores), None);
        apply(&stores[0], |change| {
            change.delete(ROOT, key(b"m"));
        });
        assert_eq!(repair_once(&stores)[0].names, 1);
        assert_eq!(child(&stores, 0, ROOT, "m"), Some(made.moved));
    });
}

/// What a damaged table says lies there is not taken for lost, of one MDT either.
#[test]
fn nothing_is_repaired_where_an_mdt_of_an_impossible_number_is_known() {
    with_two_mdts(620, |made| {
        let stores = made.stores;
        let (start, flags) = (1 << 50, SeqRangeFlags::MDT);
        put_range(&stores[0], &LuSeqRange { start, end: start + 10, index: 0x1_0001, flags });
        let value = directory::value(Child { fid: Fid::new(start, 1), kind: FileKind::Fifo });
        apply(&stores[0], |change| {
            change.insert(ROOT, key(b"there"), value);
        });
        assert_eq!(obstacle(&stores), Some(Obstacle::Missing(0x1_0001)));
        assert_eq!(repair_once(&stores), []);
        assert!(check_without(&stores, &[]).some_missing);
        assert_eq!(child(&stores, 0, ROOT, "there"), Some(Fid::new(start, 1)));
    });
}

/// It is there, if not where it belongs.
#[test]
fn names_of_inodes_in_another_mdts_store_stay_as_they_are() {
    with_two_mdts(618, |made| {
        let stores = made.stores;
        let seq = made.below.seq;
        let misplaced = [
            ("file", Fid::new(seq, 90), FileKind::Fifo),
            ("directory", Fid::new(seq, 91), FileKind::Directory),
        ];
        for (name, fid, kind) in misplaced {
            apply(&stores[1], |change| {
                change.create(fid, Attributes { kind, links: 1, ..Attributes::default() });
            });
            apply(&stores[0], |change| {
                change.insert(ROOT, key(name.as_bytes()), directory::value(Child { fid, kind }));
            });
        }
        let done = repair_once(&stores);
        assert_eq!((done[0].lost.len(), done[0].directories.len()), (0, 0), "{done:?}");
        for (name, fid, _) in misplaced {
            assert_eq!(child(&stores, 0, ROOT, name), Some(fid));
            assert!(stores[1].has(fid) && !stores[0].has(fid), "{name}");
        }
        let again = repair_once(&stores);
        assert_eq!(again[0], Rebuilt { inodes: again[0].inodes, ..Rebuilt::default() });
        let root = faults(&stores).into_iter().filter(|fault| fault.fid == ROOT);
        assert_eq!(root.collect::<Vec<_>>(), [], "its links are right");
    });
}

/// It would be applied later, when its name is free again.
#[test]
fn a_part_that_does_not_fit_is_given_up() {
    let world = TestWorld::new(609);
    let inner = world.clone();
    let test = async move {
        let (cluster, fid) = cut(&inner).await;
        let stores = crashed(&cluster);
        let other = Fid::new(stores[0].fids().last().expect("one").seq, 77);
        let kind = FileKind::Fifo;
        apply(&stores[0], |change| {
            change.create(other, Attributes { kind, links: 1, ..Attributes::default() });
            change.set_xattr(other, xattrs::LINK, crate::links::first(ROOT, b"d"));
            change.insert(ROOT, key(b"d"), directory::value(Child { fid: other, kind }));
        });
        assert_eq!(redo(&stores).refused.len(), 1);
        let done = repair(&stores);
        assert_eq!(done[1].found, [fid]);
        assert_eq!(child(&stores, 0, ROOT, "d"), Some(other));
        apply(&stores[0], |change| {
            change.delete(ROOT, key(b"d"));
        });
        assert_eq!(redo(&stores), crate::Redone::default());
        assert_eq!(child(&stores, 0, ROOT, "d"), None);
    };
    run(test, &world);
}

/// The next start would redo it, over names that were put in order without it.
#[test]
fn a_part_is_given_up_for_good_before_any_name_is_repaired() {
    let world = TestWorld::new(619);
    let inner = world.clone();
    let test = async move {
        let (cluster, fid) = cut(&inner).await;
        let stores = crashed(&cluster);
        // What the store lists and does not have ends the repair.
        let objects = [fid, Fid::new(fid.seq, 5000)];
        let one = |at: usize, objects| MdtAtRest {
            mdt: MdtIndex(at as u16),
            store: &*stores[at],
            objects,
            indexes: &[],
        };
        rebuild_all(&[one(0, &[ROOT]), one(1, &objects)], Timestamp::default())
            .expect_err("one is not there");
        let left: Vec<_> = stores.iter().map(|store| Arc::new(store.crash())).collect();
        assert_eq!(redo(&left), crate::Redone::default());
        assert_eq!(child(&left, 0, ROOT, "d"), None);
    };
    run(test, &world);
}

#[test]
fn records_that_cannot_be_read_go() {
    let world = TestWorld::new(610);
    let inner = world.clone();
    let test = async move {
        let (cluster, fid) = cut(&inner).await;
        let stores = crashed(&cluster);
        let records = Fid::new(fid_seq::LOCAL_FILE, 0x300);
        for store in &stores {
            for entry in store.scan(records, &[], 10).expect("a scan") {
                apply(store, |change| {
                    change.put(records, entry.key, Bytes::from("no record"));
                });
            }
        }
        assert!(!faults(&stores).is_empty());
        let done = repair(&stores);
        assert!(done[1].found.contains(&fid) || done[0].names > 0, "{done:?}");
        for store in &stores {
            let changes = ChangesAtRest::load(&**store).expect("it can be read");
            assert_eq!((changes.records().count(), changes.unreadable().len()), (0, 0));
        }
    };
    run(test, &world);
}
