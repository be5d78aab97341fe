//! Stores in the place of an MDT that are another one's: nothing is redone in them, nor repaired with them.

use std::sync::Arc;

use bytes::Bytes;
use sheen_store::Store;
use sheen_store_mem::{MemOptions, StoreMem};
use sheen_target::testing::TestWorld;
use sheen_types::{Fid, MdtIndex, Timestamp, Uuid, fid_seq};

use super::checks::{apply, check_without, crashed, cut, faults, redo, says, with_two_mdts};
use super::harness::run;
use super::repairs::{child, repair, repair_once};
use crate::identity::{self, IDENTITY};
use crate::{Fault, Mdt, MdtAtRest, MdtConfig, Obstacle, Redone, repair_obstacle};

const ROOT: Fid = Fid::ROOT;
/// The index of other MDTs.
const MDTS: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x207);

/// An MDT that is formatted anew.
fn new_mdt(mdt: u16) -> Arc<StoreMem> {
    let store = empty();
    let config = MdtConfig::new("lustre", mdt, Timestamp::from_seconds(2_000), [99; 16]);
    Mdt::new(Arc::clone(&store) as Arc<dyn Store>, config).expect("formatted");
    store
}

fn empty() -> Arc<StoreMem> {
    Arc::new(StoreMem::new(MemOptions::default()))
}

fn identity(store: &Arc<StoreMem>) -> Uuid {
    identity::at_rest(&**store).expect("it can be read").expect("it has one")
}

fn lose_identity(store: &StoreMem) {
    apply(store, |change| {
        change.delete(IDENTITY, Bytes::from_static(b"identity"));
    });
}

pub(super) fn obstacle(stores: &[Arc<StoreMem>]) -> Option<Obstacle> {
    let at_rest = |at: usize| MdtAtRest {
        mdt: MdtIndex(at as u16),
        store: &*stores[at],
        objects: &[],
        indexes: &[],
    };
    let all: Vec<_> = (0..stores.len()).map(at_rest).collect();
    repair_obstacle(&all).expect("they can be read")
}

/// The one fault: another MDT is in the place of this one. And neither a redo nor a repair changes anything.
fn is_refused(stores: &[Arc<StoreMem>], mdt: u16) -> Fault {
    let report = check_without(stores, &[]);
    assert_eq!(report.faults.len(), 1, "{:?}", report.faults);
    says(&report.faults, mdt, IDENTITY, "it is another MDT");
    assert!(report.some_missing);
    assert_eq!(obstacle(stores), Some(Obstacle::IdentityMismatch(MdtIndex(mdt))));
    let before: Vec<_> = stores.iter().map(|store| store.applied()).collect();
    assert_eq!(redo(stores), Redone::default());
    assert_eq!(repair_once(stores), []);
    let after: Vec<_> = stores.iter().map(|store| store.applied()).collect();
    assert_eq!(before, after, "nothing is changed");
    report.faults[0].clone()
}

#[test]
fn an_mdt_that_is_formatted_anew_counts_as_missing() {
    with_two_mdts(611, |made| {
        let right = made.stores[1].clone();
        let stores = vec![made.stores[0].clone(), new_mdt(1)];
        let fault = is_refused(&stores, 1);
        for known in [identity(&right), identity(&stores[1])] {
            assert!(fault.what.contains(known.as_str()), "{known}: {fault}");
        }
        assert_eq!(check_without(&stores, &[]).elsewhere, 3, "`d`, `m` and `below`");
        // With the right one back all of it is as it was.
        let stores = vec![stores[0].clone(), right];
        assert_eq!((faults(&stores), obstacle(&stores)), (vec![], None));
        assert_eq!(child(&stores, 0, ROOT, "m"), Some(made.moved));
    });
}

#[test]
fn an_mdt_that_is_formatted_anew_is_not_taken_for_mdt0000() {
    with_two_mdts(612, |made| {
        let fault = is_refused(&[new_mdt(0), made.stores[1].clone()], 0);
        assert!(fault.what.contains("MDT0001 knows MDT0000 as"), "{fault}");
    });
}

/// Neither knows the other one: the root's file system is the one that is looked at.
#[test]
fn an_mdt_of_another_file_system_counts_as_missing() {
    with_two_mdts(613, |made| {
        let foreign = new_mdt(1);
        apply(&foreign, |change| {
            let other = Bytes::from_static(b"99999999-2222-3333-4444-555555555555");
            change.put(MDTS, Bytes::from_static(&[0, 0]), other);
        });
        is_refused(&[made.stores[0].clone(), foreign], 1);
    });
}

#[test]
fn an_mdt_that_has_lost_its_identity_counts_as_missing() {
    with_two_mdts(614, |made| {
        let stores = made.stores;
        lose_identity(&stores[1]);
        let fault = is_refused(&stores, 1);
        assert!(fault.what.contains("it has no identity, and MDT0000 knows"), "{fault}");
        // What it had of sequences is known still.
        apply(&stores[0], |change| {
            change.delete(MDTS, Bytes::from_static(&[0, 1]));
        });
        let fault = is_refused(&stores, 1);
        assert!(fault.what.contains("it has no identity, and MDT0000 has met"), "{fault}");
        is_refused(&[stores[0].clone(), empty()], 1);
    });
}

#[test]
fn an_mdt_that_was_never_started_keeps_nothing_from_being_repaired() {
    with_two_mdts(615, |made| {
        let mut stores = made.stores;
        stores.push(empty());
        assert_eq!((faults(&stores), obstacle(&stores)), (vec![], None));
        apply(&stores[0], |change| {
            change.delete(ROOT, crate::directory::key(b"m"));
        });
        assert_eq!(repair(&stores)[0].names, 1);
    });
}

/// The record of the right one would make names there that lead to nothing.
#[test]
fn nothing_is_redone_in_another_mdt() {
    let world = TestWorld::new(616);
    let inner = world.clone();
    let test = async move {
        let (cluster, _) = cut(&inner).await;
        let mut stores = crashed(&cluster);
        stores[0] = new_mdt(0);
        is_refused(&stores, 0);
        let mut stores = crashed(&cluster);
        lose_identity(&stores[0]);
        is_refused(&stores, 0);
        stores[0] = Arc::new(cluster.servers[0].store.crash());
        assert_eq!(redo(&stores).parts.len(), 1);
    };
    run(test, &world);
}
