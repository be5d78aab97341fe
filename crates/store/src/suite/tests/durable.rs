//! What holds after a store was closed and opened again.

use std::sync::Arc;

use bytes::Bytes;

use super::cases::{apply, bytes, directory, done, fid, regular};
use crate::suite::{model::Model, script};
use crate::{AttributePatch, Sequence, Store, StoreError};

/// Makes an empty store of a durable back end.
pub type MakeDurable<'a, S> = &'a dyn Fn() -> Arc<S>;
/// Closes a store and opens it again.
pub type Reopen<'a, S> = &'a dyn Fn(Arc<S>) -> Arc<S>;

/// Objects, keys and data are there after a restart.
pub fn committed_state_survives<S: Store>(make: MakeDurable<'_, S>, reopen: Reopen<'_, S>) {
    let mut store = make();
    let mut model = Model::default();
    let mut numbers = script::Numbers(3);
    for _ in 0..3 {
        for _ in 0..200 {
            let transaction = script::random_transaction(&mut numbers);
            let expected = model.apply(&transaction);
            assert_eq!(store.apply(transaction).map(|_| ()), expected);
        }
        for (object, held) in &mut model.objects {
            if held.attributes.kind == crate::FileKind::Regular {
                held.data = object.to_string().into_bytes();
                store.write(*object, 0, &[held.data.clone().into()]).expect("write works");
            }
        }
        store.commit().expect("commit works");
        store = reopen(store);
        model.compare(&*store, &script::objects(), &script::indexes());
    }
}

/// Sequences go on behind the last durable one.
pub fn sequences_go_on<S: Store>(make: MakeDurable<'_, S>, reopen: Reopen<'_, S>) {
    let mut store = make();
    assert_eq!(store.committed(), Sequence(0));
    let mut last = Sequence(0);
    for _ in 0..4 {
        for _ in 0..5 {
            let next = apply(&*store, |t| done(t.put(fid(1), bytes("k"), bytes("v"))));
            assert_eq!(next, Ok(Sequence(last.0 + 1)));
            last.0 += 1;
        }
        store.commit().expect("commit works");
        store = reopen(store);
        assert_eq!(store.committed(), last);
    }
}

/// The data of what was destroyed does not come back, whether it was committed or not.
pub fn destroyed_data_is_gone<S: Store>(make: MakeDurable<'_, S>, reopen: Reopen<'_, S>) {
    let mut store = make();
    let object = fid(1);
    for round in 0..4u32 {
        apply(&*store, |t| done(t.create(object, regular()))).expect("create works");
        store.write(object, u64::from(round), &[bytes("data")]).expect("write works");
        if round % 2 == 0 {
            store.commit().expect("commit works");
            store = reopen(store);
            assert_eq!(store.read(object, u64::from(round), 9), Ok(bytes("data")));
        }
        apply(&*store, |t| done(t.destroy(object))).expect("destroy works");
        store.commit().expect("commit works");
        store = reopen(store);
        assert!(store.attributes(object).is_err());
        apply(&*store, |t| done(t.create(object, regular()))).expect("create works");
        assert_eq!(store.read(object, 0, 9), Ok(Bytes::new()));
        apply(&*store, |t| done(t.destroy(object))).expect("destroy works");
    }
}

/// Thousands of keys over several commits, scanned after a restart.
pub fn many_keys_survive<S: Store>(make: MakeDurable<'_, S>, reopen: Reopen<'_, S>) {
    let store = make();
    let dir = fid(1);
    apply(&*store, |t| done(t.create(dir, directory()))).expect("create works");
    for part in 0..20u32 {
        apply(&*store, |t| {
            for key in 0..250u32 {
                t.insert(dir, bytes(&format!("{key:04}-{part}")), Bytes::from(vec![7; 300]));
            }
        })
        .expect("insert works");
        if part % 6 == 0 {
            store.commit().expect("commit works");
        }
    }
    store.commit().expect("commit works");
    let store = reopen(store);
    let found = store.scan(dir, b"", usize::MAX).expect("scan works");
    assert_eq!(found.len(), 5000);
    assert!(found.is_sorted_by(|left, right| left.key < right.key));
    assert!(found.iter().all(|entry| entry.value == vec![7; 300]));
    apply(&*store, |t| done(t.destroy(dir))).expect("destroy works");
    store.commit().expect("commit works");
    let store = reopen(store);
    assert_eq!(store.scan(dir, b"", 10), Ok(Vec::new()));
}

/// One object rewritten in each of many commits has its last state.
pub fn rewritten_over_many_commits<S: Store>(make: MakeDurable<'_, S>, reopen: Reopen<'_, S>) {
    let store = make();
    apply(&*store, |t| done(t.create(fid(1), directory()))).expect("create works");
    for round in 0..30u32 {
        let patch = AttributePatch { links_added: 1, uid: Some(round), ..Default::default() };
        apply(&*store, |t| {
            t.patch(fid(1), patch).set_xattr(fid(1), "user.n", bytes(&round.to_string()));
        })
        .expect("apply works");
        store.commit().expect("commit works");
    }
    let store = reopen(store);
    assert_eq!(store.attributes(fid(1)).map(|a| (a.links, a.uid)), Ok((32, 29)));
    assert_eq!(store.xattr(fid(1), "user.n"), Ok(Some(bytes("29"))));
}

/// Many threads that each apply and wait for durability: all get a sequence at or above their own,
/// and all of it is there afterwards.
pub fn commit_wakes_many_waiters<S: Store>(make: MakeDurable<'_, S>, reopen: Reopen<'_, S>) {
    let store = make();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let store = &*store;
            scope.spawn(move || {
                for round in 0..10u32 {
                    let key = bytes(&format!("{thread}-{round}"));
                    let own = apply(store, |t| done(t.insert(fid(1), key, bytes("v"))))
                        .expect("insert works");
                    assert!(store.commit().expect("commit works") >= own);
                    assert!(store.committed() >= own);
                }
            });
        }
    });
    let store = reopen(store);
    assert_eq!(store.scan(fid(1), b"", 1000).map(|found| found.len()), Ok(80));
}

/// What a store says is durable is there when it is opened again, and a commit makes all so.
pub fn creations_become_durable<S: Store>(make: MakeDurable<'_, S>, reopen: Reopen<'_, S>) {
    let store = make();
    let object = fid(1);
    assert_eq!(store.is_created_durably(object), Err(StoreError::NoObject(object)));
    apply(&*store, |t| done(t.create(object, regular()))).expect("the object is made");
    store.is_created_durably(object).expect("an object that is there is durable or not");
    store.commit().expect("commit works");
    assert_eq!(store.is_created_durably(object), Ok(true));
    let store = reopen(store);
    assert_eq!(store.is_created_durably(object), Ok(true), "one of an earlier life is");
    apply(&*store, |t| done(t.destroy(object))).expect("the object goes");
    assert_eq!(store.is_created_durably(object), Err(StoreError::NoObject(object)));
}

/// Exchanged data is with its new owner after a restart, also when the one that it was made for has
/// gone, and goes with its new owner.
pub fn exchanged_data_survives<S: Store>(make: MakeDurable<'_, S>, reopen: Reopen<'_, S>) {
    let mut store = make();
    for number in 1..=3 {
        apply(&*store, |t| done(t.create(fid(number), regular()))).expect("create works");
        let text = bytes(&format!("data of {number}"));
        store.write(fid(number), 0, &[text]).expect("write works");
    }
    store.commit().expect("commit works");
    let read = |store: &S, number| store.read(fid(number), 0, 99);
    apply(&*store, |t| done(t.exchange(fid(1), fid(2)))).expect("exchange works");
    store.commit().expect("commit works");
    store = reopen(store);
    assert_eq!(read(&store, 1), Ok(bytes("data of 2")));
    assert_eq!(read(&store, 2), Ok(bytes("data of 1")));
    apply(&*store, |t| done(t.exchange(fid(2), fid(3)).destroy(fid(1)))).expect("apply works");
    store.commit().expect("commit works");
    store = reopen(store);
    assert_eq!(read(&store, 3), Ok(bytes("data of 1")));
    assert_eq!(read(&store, 2), Ok(bytes("data of 3")));
    apply(&*store, |t| done(t.create(fid(1), regular()))).expect("create works");
    store.commit().expect("commit works");
    store = reopen(store);
    assert_eq!((read(&store, 1), read(&store, 3)), (Ok(Bytes::new()), Ok(bytes("data of 1"))));
    apply(&*store, |t| done(t.exchange(fid(3), fid(1)).destroy(fid(1)))).expect("apply works");
    store.commit().expect("commit works");
    store = reopen(store);
    assert_eq!(read(&store, 3), Ok(Bytes::new()));
}
