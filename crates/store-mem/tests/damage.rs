//! What another hand does to data in memory is found as a disk's store finds it.

use bytes::Bytes;
use sheen_store::{Attributes, Damage, FileKind, Store, StoreError, Transaction};
use sheen_store_mem::{Commits, Injury, MemOptions, StoreMem};
use sheen_types::{Extent, Fid};

const OBJECT: Fid = Fid::new(1, 1);

/// One object of 10,000 bytes.
fn stored() -> StoreMem {
    let store = StoreMem::new(MemOptions { commits: Commits::Manual, ..MemOptions::default() });
    let mut transaction = Transaction::new();
    transaction.create(OBJECT, Attributes { kind: FileKind::Regular, ..Attributes::default() });
    store.apply(transaction).unwrap();
    store.write(OBJECT, 0, &[Bytes::from(vec![7; 10_000])]).unwrap();
    store.commit().unwrap();
    store
}

fn damage<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> Damage {
    match outcome {
        Err(StoreError::Damaged(finding)) => finding.damage,
        other => panic!("no damage: {other:?}"),
    }
}

#[test]
fn lost_and_cut_data_is_no_empty_object_even_after_a_crash() {
    let short = Damage::Short { expected: 10_000, found: 5_000 };
    for (injury, expected) in [(Injury::Lost, Damage::Lost), (Injury::Cut(5_000), short)] {
        let store = stored();
        assert!(store.injure(OBJECT, injury));
        for store in [store.kill(), store.crash(), store.crash_torn(&mut || 1), store] {
            assert_eq!(damage(store.attributes(OBJECT)), expected);
            assert_eq!(damage(store.read(OBJECT, 0, 10)), expected);
            assert_eq!(damage(store.write(OBJECT, 0, &[Bytes::from(vec![1; 9])])), expected);
            assert_eq!(damage(store.truncate(OBJECT, 0)), expected);
            assert_eq!(damage(store.sync_data(OBJECT)), expected);
            let found = store.verify(OBJECT, 0).unwrap().findings;
            assert_eq!(found.iter().map(|it| &it.damage).collect::<Vec<_>>(), [&expected]);
            assert_eq!(store.damaged(), [OBJECT]);
            assert!(store.recorded_attributes(OBJECT).is_ok(), "who removes it finds it");
            let mut transaction = Transaction::new();
            transaction.destroy(OBJECT);
            store.apply(transaction).unwrap();
            assert_eq!(store.damaged(), []);
        }
    }
}

#[test]
fn a_flipped_bit_spoils_its_block_until_that_is_written_whole() {
    let store = stored();
    assert!(!store.injure(OBJECT, Injury::Flipped(10_000)), "nothing is there");
    assert!(store.injure(OBJECT, Injury::Flipped(5_000)));
    let wrong = Damage::Checksum { offset: 4096 };
    assert_eq!(damage(store.read(OBJECT, 8_000, 1_000)), wrong);
    assert_eq!(damage(store.write(OBJECT, 4_097, &[Bytes::from(vec![1; 9])])), wrong);
    assert_eq!(damage(store.truncate(OBJECT, 5_001)), wrong);
    assert_eq!(store.read(OBJECT, 0, 4096).unwrap(), vec![7; 4096], "its neighbour is well");
    assert_eq!(store.attributes(OBJECT).unwrap().size, 10_000);
    assert!(store.is_damaged_in(OBJECT, Extent { start: 8_000, end: 8_999 }));
    assert!(!store.is_damaged_in(OBJECT, Extent { start: 8_192, end: 8_999 }));
    store.write(OBJECT, 4_000, &[Bytes::from(vec![1; 4_192])]).unwrap();
    assert_eq!(store.read(OBJECT, 4096, 4096).unwrap(), vec![1; 4096]);
    assert_eq!(store.damaged(), []);
    assert!(store.injure(OBJECT, Injury::Flipped(9_999)));
    store.write(OBJECT, 8_192, &[Bytes::from(vec![1; 1_808])]).unwrap();
    assert_eq!(store.damaged(), [], "all that was known of the last block");
    assert!(store.injure(OBJECT, Injury::Flipped(9_999)));
    store.write(OBJECT, 10_000, &[Bytes::from(vec![1; 8])]).unwrap();
    assert_eq!(damage(store.read(OBJECT, 10_000, 8)), Damage::Checksum { offset: 8_192 });
    store.truncate(OBJECT, 8_192).unwrap();
    assert_eq!(store.damaged(), []);
}
