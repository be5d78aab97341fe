//! The contract's suite, run on memory in both modes, and what memory adds.

use std::sync::Arc;

use sheen_store::Store;
use sheen_store_mem::{Commits, MemOptions, StoreMem};

fn manual() -> StoreMem {
    StoreMem::new(MemOptions { commits: Commits::Manual, ..Default::default() })
}

mod immediate {
    use super::*;
    sheen_store::contract!(|| Arc::new(StoreMem::default()) as Arc<dyn Store>);
}

mod manually {
    use super::*;
    sheen_store::contract!(|| Arc::new(manual()) as Arc<dyn Store>);
}

mod durable {
    use super::*;
    sheen_store::contract_durable!(|| Arc::new(manual()), |store: Arc<StoreMem>| Arc::new(
        store.crash()
    ));
}

mod durable_at_once {
    use super::*;
    sheen_store::contract_durable!(|| Arc::new(StoreMem::default()), |store: Arc<StoreMem>| {
        Arc::new(store.crash())
    });
}

mod memory {
    use super::*;
    use bytes::Bytes;
    use sheen_store::{
        Attributes, Sequence, StoreError, Transaction,
        suite::{model::Model, script},
    };
    use sheen_types::Fid;

    fn create(number: u32) -> Transaction {
        let mut transaction = Transaction::new();
        transaction.create(Fid::new(1, number), Attributes::default());
        transaction
    }

    /// A crash after any partial commit leaves exactly the committed prefix.
    #[test]
    fn crash_keeps_a_prefix() {
        let mut numbers = script::Numbers(1);
        let store = manual();
        let mut states = vec![Model::default()];
        for _ in 0..200 {
            let transaction = script::random_transaction(&mut numbers);
            let mut next = states[states.len() - 1].clone();
            if next.apply(&transaction).is_ok() {
                states.push(next);
            }
            let _refused = store.apply(transaction);
        }
        for through in (0..states.len()).step_by(7) {
            store.commit_through(Sequence(through as u64));
            assert_eq!(store.committed(), Sequence(through as u64));
            let crashed = store.crash();
            states[through].compare(&crashed, &script::objects(), &script::indexes());
            assert_eq!(crashed.committed(), Sequence(through as u64));
        }
    }

    #[test]
    fn power_loss_drops_unsynced_data_and_death_keeps_it() {
        let store = manual();
        let fid = Fid::new(1, 1);
        store.apply(create(1)).unwrap();
        store.write(fid, 0, &[Bytes::from("synced")]).unwrap();
        store.sync_data(fid).unwrap();
        store.write(fid, 6, &[Bytes::from(" and not")]).unwrap();
        assert_eq!(store.crash().read(fid, 0, 99).unwrap(), "synced");
        assert_eq!(store.kill().read(fid, 0, 99).unwrap(), "synced and not");
        let mut destroy = Transaction::new();
        destroy.destroy(fid);
        store.apply(destroy).unwrap();
        assert_eq!(store.kill().read(fid, 0, 99).unwrap(), "synced and not");
        store.commit().unwrap();
        assert_eq!(store.kill().read(fid, 0, 99), Err(StoreError::NoObject(fid)));
    }

    #[test]
    fn an_exchange_that_is_not_durable_is_undone_by_a_crash() {
        let store = manual();
        let (first, second) = (Fid::new(1, 1), Fid::new(1, 2));
        for (number, text) in [(1, "first"), (2, "second")] {
            store.apply(create(number)).unwrap();
            store.write(Fid::new(1, number), 0, &[Bytes::from(text)]).unwrap();
        }
        store.commit().unwrap();
        let mut exchange = Transaction::new();
        exchange.exchange(first, second);
        store.apply(exchange).unwrap();
        assert_eq!(store.is_created_durably(first), Ok(false), "what it has is not");
        store.write(first, 6, &[Bytes::from("!")]).unwrap();
        assert_eq!(store.read(first, 0, 99).unwrap(), "second!");
        assert_eq!(store.kill().read(first, 0, 99).unwrap(), "first");
        assert_eq!(store.kill().read(second, 0, 99).unwrap(), "second!");
        assert_eq!(store.crash().read(second, 0, 99).unwrap(), "second");
        store.sync_data(first).unwrap();
        assert_eq!(store.crash().read(first, 0, 99).unwrap(), "second!");
        assert_eq!(store.crash().read(second, 0, 99).unwrap(), "first");
    }

    #[test]
    fn capacity_is_kept() {
        let store = StoreMem::new(MemOptions {
            capacity_bytes: Some(64 << 10),
            capacity_objects: Some(2),
            ..Default::default()
        });
        store.apply(create(1)).unwrap();
        store.apply(create(2)).unwrap();
        assert_eq!(store.apply(create(3)), Err(StoreError::NoSpace));
        let fid = Fid::new(1, 1);
        let block = Bytes::from(vec![1; 32 << 10]);
        store.write(fid, 0, &[block.clone(), block.clone()]).unwrap();
        assert_eq!(store.write(fid, 64 << 10, &[Bytes::from("x")]), Err(StoreError::NoSpace));
        store.write(fid, 0, &[block]).unwrap();
        assert_eq!(store.space().unwrap().free, 0);
        let mut destroy = Transaction::new();
        destroy.destroy(fid);
        store.apply(destroy).unwrap();
        assert_eq!(store.space().unwrap().free, 64 << 10);
        store.apply(create(3)).unwrap();
    }
}
