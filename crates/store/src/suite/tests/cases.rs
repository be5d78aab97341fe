//! Transactions: objects, attributes, extended attributes, indexes, order, threads.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::Bytes;
use sheen_types::{Fid, Timestamp};

use crate::suite::Make;
use crate::{
    AttributePatch, Attributes, FileKind, KEY_BYTES_MAX, Sequence, Store, StoreError, Transaction,
};

/// A normal FID.
pub(crate) fn fid(number: u32) -> Fid {
    Fid::new(0x2_0000_0400, number)
}

/// A directory.
pub(crate) fn directory() -> Attributes {
    Attributes { kind: FileKind::Directory, permissions: 0o755, links: 2, ..Default::default() }
}

/// A regular file.
pub(crate) fn regular() -> Attributes {
    Attributes { permissions: 0o644, links: 1, ..Default::default() }
}

/// Applies what `fill` says.
pub(crate) fn apply(
    store: &dyn Store,
    fill: impl FnOnce(&mut Transaction),
) -> Result<Sequence, StoreError> {
    let mut transaction = Transaction::new();
    fill(&mut transaction);
    store.apply(transaction)
}

/// Ends a chain of changes, so that a closure of one chain has no value.
pub(crate) fn done(_: &mut Transaction) {}

pub(crate) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn keys(store: &dyn Store, index: Fid) -> Vec<Bytes> {
    let entries = store.scan(index, b"", usize::MAX).expect("scan works");
    entries.into_iter().map(|entry| entry.key).collect()
}

/// Create, attributes, destroy; stored size of a directory.
pub fn objects_live_and_die(make: Make<'_>) {
    let store = make();
    let full = Attributes {
        kind: FileKind::Directory,
        permissions: 0o7755,
        uid: 1,
        gid: 2,
        project: 3,
        links: 4,
        size: 4096,
        blocks: 8,
        device: 0x1_0000_0002,
        flags: 16,
        accessed: Timestamp { seconds: -5, nanoseconds: 999_999_999 },
        modified: Timestamp::from_seconds(6),
        changed: Timestamp::from_seconds(7),
        born: Timestamp::from_seconds(8),
        version: u64::MAX,
    };
    assert_eq!(store.attributes(fid(1)), Err(StoreError::NoObject(fid(1))));
    apply(&*store, |t| done(t.create(fid(1), full.clone()).create(fid(2), regular())))
        .expect("create works");
    assert_eq!(store.attributes(fid(1)), Ok(full.clone()));
    assert_eq!(store.attributes(fid(2)).map(|a| (a.size, a.kind)), Ok((0, FileKind::Regular)));
    store.commit().expect("commit works");
    assert_eq!(store.attributes(fid(1)), Ok(full));
    apply(&*store, |t| done(t.destroy(fid(1)))).expect("destroy works");
    assert_eq!(store.attributes(fid(1)), Err(StoreError::NoObject(fid(1))));
    store.commit().expect("commit works");
    assert_eq!(store.attributes(fid(1)), Err(StoreError::NoObject(fid(1))));
}

/// Patches set what they name, add links, and leave the rest.
pub fn attributes_are_patched(make: Make<'_>) {
    let store = make();
    apply(&*store, |t| done(t.create(fid(1), directory()))).expect("create works");
    let patch = AttributePatch {
        uid: Some(7),
        size: Some(100),
        links_added: -1,
        modified: Some(Timestamp::from_seconds(9)),
        ..Default::default()
    };
    apply(&*store, |t| done(t.patch(fid(1), patch.clone()))).expect("patch works");
    store.commit().expect("commit works");
    let fewer = AttributePatch { links_added: -7, ..Default::default() };
    apply(&*store, |t| done(t.patch(fid(1), fewer))).expect("patch works");
    let mut expected = directory();
    patch.apply(&mut expected);
    expected.links = 0;
    assert_eq!(store.attributes(fid(1)), Ok(expected));
}

/// Extended attributes are set, replaced, listed in order, removed; removal of none is no error.
pub fn extended_attributes(make: Make<'_>) {
    let store = make();
    let big = Bytes::from(vec![5u8; 65536]);
    apply(&*store, |t| {
        t.create(fid(1), regular());
        t.set_xattr(fid(1), "user.b", bytes("1")).set_xattr(fid(1), "trusted.lov", big.clone());
        t.set_xattr(fid(1), "user.b", bytes("2")).remove_xattr(fid(1), "user.none");
        t.set_xattr(fid(1), "user.empty", Bytes::new());
    })
    .expect("apply works");
    for _ in 0..2 {
        let names = ["trusted.lov", "user.b", "user.empty"].map(str::to_owned).to_vec();
        assert_eq!(store.xattr_names(fid(1)), Ok(names));
        let whole = store.whole(fid(1)).expect("it is there");
        assert_eq!(
            whole.attributes.links,
            store.recorded_attributes(fid(1)).expect("it is there").links
        );
        assert!(whole.xattrs.names().eq(["trusted.lov", "user.b", "user.empty"]));
        assert_eq!(whole.xattrs.get("user.b"), Some(bytes("2")));
        assert_eq!(whole.xattrs.get("user"), None);
        assert_eq!(store.xattr(fid(1), "user.b"), Ok(Some(bytes("2"))));
        assert_eq!(store.xattr(fid(1), "user.empty"), Ok(Some(Bytes::new())));
        assert_eq!(store.xattr(fid(1), "trusted.lov"), Ok(Some(big.clone())));
        assert_eq!(store.xattr(fid(1), "user"), Ok(None));
        store.commit().expect("commit works");
    }
    apply(&*store, |t| done(t.remove_xattr(fid(1), "user.b"))).expect("apply works");
    assert_eq!(store.xattr(fid(1), "user.b"), Ok(None));
    assert_eq!(store.xattr_names(fid(1)).map(|names| names.len()), Ok(2));
}

/// Insert, put, lookup, delete, before and after commits.
pub fn index_keys(make: Make<'_>) {
    let store = make();
    let dir = fid(1);
    apply(&*store, |t| {
        t.create(dir, directory()).insert(dir, bytes("a"), bytes("1"));
        t.put(dir, bytes("b"), bytes("2")).put(dir, bytes("b"), bytes("3"));
    })
    .expect("apply works");
    for _ in 0..2 {
        assert_eq!(store.lookup(dir, b"a"), Ok(Some(bytes("1"))));
        assert_eq!(store.lookup(dir, b"b"), Ok(Some(bytes("3"))));
        assert_eq!(store.lookup(dir, b""), Ok(None));
        assert_eq!(store.lookup(dir, b"ab"), Ok(None));
        store.commit().expect("commit works");
    }
    apply(&*store, |t| {
        t.delete(dir, bytes("a")).put(dir, bytes("b"), bytes("4")).insert(
            dir,
            bytes("a\0"),
            Bytes::new(),
        );
    })
    .expect("apply works");
    for _ in 0..2 {
        assert_eq!(store.lookup(dir, b"a"), Ok(None));
        assert_eq!(store.lookup(dir, b"b"), Ok(Some(bytes("4"))));
        assert_eq!(keys(&*store, dir), [bytes("a\0"), bytes("b")]);
        store.commit().expect("commit works");
    }
    apply(&*store, |t| done(t.insert(dir, bytes("a"), bytes("5")))).expect("insert again works");
    assert_eq!(store.lookup(dir, b"a"), Ok(Some(bytes("5"))));
}

/// An index works without an object of its name, and indexes do not mix.
pub fn keys_need_no_object(make: Make<'_>) {
    let store = make();
    for number in 0..3 {
        apply(&*store, |t| done(t.insert(fid(number), bytes("k"), bytes(&number.to_string()))))
            .expect("insert works");
    }
    let mut other = fid(1);
    other.ver = 1;
    apply(&*store, |t| done(t.insert(other, bytes("z"), bytes("v")))).expect("insert works");
    for _ in 0..2 {
        for number in 0..3 {
            let value = Some(bytes(&number.to_string()));
            assert_eq!(store.lookup(fid(number), b"k"), Ok(value));
            assert_eq!(keys(&*store, fid(number)), [bytes("k")]);
        }
        assert_eq!(store.attributes(fid(1)), Err(StoreError::NoObject(fid(1))));
        store.commit().expect("commit works");
    }
}

/// Scans are in bytewise order, start at `from`, stop at `limit`, across commits and deletes.
pub fn scans_are_ordered_and_bounded(make: Make<'_>) {
    let store = make();
    let dir = fid(1);
    let mut names: Vec<Bytes> =
        (0..1000u32).map(|n| Bytes::from(format!("{:x}", n.wrapping_mul(2_654_435_761)))).collect();
    for (at, part) in names.chunks(100).enumerate() {
        apply(&*store, |t| {
            for name in part {
                t.insert(dir, name.clone(), name.clone());
            }
        })
        .expect("insert works");
        if at % 3 == 2 {
            store.commit().expect("commit works");
        }
    }
    for name in names.drain(300..600) {
        apply(&*store, |t| done(t.delete(dir, name))).expect("delete works");
    }
    names.sort();
    assert_eq!(keys(&*store, dir), names);
    assert_eq!(store.scan(dir, b"", 0), Ok(Vec::new()));
    for limit in [1, 7, 64, 699, 700, 701] {
        let mut from = Bytes::new();
        let mut found = Vec::new();
        loop {
            let page = store.scan(dir, &from, limit).expect("scan works");
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            let mut next = last.key.to_vec();
            next.push(0);
            from = Bytes::from(next);
            found.extend(page.into_iter().map(|entry| entry.key));
        }
        assert_eq!(found, names, "pages of {limit}");
    }
    assert_eq!(store.scan(dir, b"g", 10), Ok(Vec::new()));
}

/// Every error the contract names for [`Store::apply`] and the reads.
pub fn errors_are_typed(make: Make<'_>) {
    let store = make();
    let none = StoreError::NoObject(fid(9));
    apply(&*store, |t| done(t.create(fid(1), directory()).insert(fid(1), bytes("k"), bytes("v"))))
        .expect("apply works");
    for _ in 0..2 {
        let refused = |fill: &dyn Fn(&mut Transaction)| {
            apply(&*store, |t| fill(t)).expect_err("must be refused")
        };
        assert_eq!(refused(&|t| done(t.create(fid(1), regular()))), StoreError::Exists(fid(1)));
        assert_eq!(refused(&|t| done(t.destroy(fid(9)))), none);
        assert_eq!(refused(&|t| done(t.patch(fid(9), Default::default()))), none);
        assert_eq!(refused(&|t| done(t.set_xattr(fid(9), "user.a", bytes("")))), none);
        assert_eq!(refused(&|t| done(t.remove_xattr(fid(9), "user.a"))), none);
        let exists = refused(&|t| done(t.insert(fid(1), bytes("k"), bytes("w"))));
        assert_eq!(exists, StoreError::Exists(fid(1)));
        let no_key = refused(&|t| done(t.delete(fid(1), bytes("l"))));
        assert_eq!(no_key, StoreError::NoKey(fid(1)));
        let long = Bytes::from(vec![b'x'; KEY_BYTES_MAX + 1]);
        let too_long = refused(&|t| done(t.put(fid(1), long.clone(), bytes("w"))));
        assert_eq!(too_long, StoreError::WrongKind(fid(1)));
        assert_eq!(store.attributes(fid(9)), Err(none.clone()));
        assert_eq!(store.xattr(fid(9), "user.a"), Err(none.clone()));
        assert_eq!(store.xattr_names(fid(9)), Err(none.clone()));
        assert_eq!(store.whole(fid(9)), Err(none.clone()));
        assert_eq!(store.lookup(fid(9), b"k"), Ok(None));
        store.commit().expect("commit works");
    }
    let longest = Bytes::from(vec![b'x'; KEY_BYTES_MAX]);
    apply(&*store, |t| done(t.put(fid(1), longest.clone(), bytes("w")))).expect("512 bytes fit");
    store.commit().expect("commit works");
    assert_eq!(store.lookup(fid(1), &longest), Ok(Some(bytes("w"))));
}

/// A transaction whose last step fails leaves no trace of the earlier ones, and uses no sequence.
pub fn refused_transactions_leave_nothing(make: Make<'_>) {
    let store = make();
    let dir = fid(1);
    apply(&*store, |t| {
        t.create(dir, directory()).insert(dir, bytes("k"), bytes("v"));
        t.set_xattr(dir, "user.a", bytes("1")).create(fid(3), regular());
    })
    .expect("apply works");
    for _ in 0..2 {
        let before = store.attributes(dir);
        let patch = AttributePatch { links_added: 5, size: Some(1), ..Default::default() };
        let first = apply(&*store, |t| done(t.put(fid(8), bytes("x"), bytes("x"))));
        let refused = apply(&*store, |t| {
            t.create(fid(2), regular()).patch(dir, patch.clone()).set_xattr(
                dir,
                "user.a",
                bytes("2"),
            );
            t.set_xattr(dir, "user.b", bytes("2")).put(dir, bytes("k"), bytes("w"));
            t.delete(dir, bytes("k")).insert(dir, bytes("l"), bytes("w")).destroy(fid(3));
            t.destroy(dir).create(dir, regular()).destroy(fid(9));
        });
        assert_eq!(refused, Err(StoreError::NoObject(fid(9))));
        let second = apply(&*store, |t| done(t.put(fid(8), bytes("x"), bytes("x"))));
        assert_eq!(second.map(|s| s.0), first.map(|s| s.0 + 1), "a refusal uses no sequence");
        assert_eq!(store.attributes(dir), before);
        assert_eq!(store.attributes(fid(2)), Err(StoreError::NoObject(fid(2))));
        assert_eq!(store.attributes(fid(3)).map(|a| a.links), Ok(1));
        assert_eq!(store.xattr(dir, "user.a"), Ok(Some(bytes("1"))));
        assert_eq!(store.xattr_names(dir), Ok(vec!["user.a".to_owned()]));
        assert_eq!(store.lookup(dir, b"k"), Ok(Some(bytes("v"))));
        assert_eq!(keys(&*store, dir), [bytes("k")]);
        store.commit().expect("commit works");
    }
}

/// A step sees what the steps before it did.
pub fn steps_see_earlier_steps(make: Make<'_>) {
    let store = make();
    let dir = fid(1);
    apply(&*store, |t| {
        t.create(dir, directory())
            .patch(dir, AttributePatch { uid: Some(3), ..Default::default() });
        t.insert(dir, bytes("k"), bytes("1")).delete(dir, bytes("k"));
        t.insert(dir, bytes("k"), bytes("2")).destroy(dir).create(dir, directory());
        t.insert(dir, bytes("k"), bytes("3"));
    })
    .expect("apply works");
    assert_eq!(store.attributes(dir), Ok(directory()));
    assert_eq!(store.lookup(dir, b"k"), Ok(Some(bytes("3"))));
    let twice = apply(&*store, |t| {
        t.delete(dir, bytes("k")).delete(dir, bytes("k"));
    });
    assert_eq!(twice, Err(StoreError::NoKey(dir)));
    assert_eq!(store.lookup(dir, b"k"), Ok(Some(bytes("3"))));
}

/// Destroying drops extended attributes, keys (committed or not) and data.
pub fn destroy_drops_keys_and_data(make: Make<'_>) {
    let store = make();
    let (dir, file) = (fid(1), fid(2));
    apply(&*store, |t| {
        t.create(dir, directory()).create(file, regular()).set_xattr(dir, "user.a", bytes("1"));
        for key in 0..50 {
            t.insert(dir, bytes(&format!("old{key}")), bytes("v"));
        }
    })
    .expect("apply works");
    store.write(file, 0, &[bytes("hello")]).expect("write works");
    store.commit().expect("commit works");
    apply(&*store, |t| done(t.insert(dir, bytes("new"), bytes("v")))).expect("insert works");
    apply(&*store, |t| done(t.destroy(dir).destroy(file))).expect("destroy works");
    for _ in 0..2 {
        assert_eq!(keys(&*store, dir), Vec::<Bytes>::new());
        assert_eq!(store.lookup(dir, b"old7"), Ok(None));
        assert_eq!(store.read(file, 0, 5), Err(StoreError::NoObject(file)));
        assert_eq!(store.xattr(dir, "user.a"), Err(StoreError::NoObject(dir)));
        store.commit().expect("commit works");
    }
    apply(&*store, |t| done(t.create(dir, directory()).create(file, regular())))
        .expect("create again works");
    assert_eq!(keys(&*store, dir), Vec::<Bytes>::new());
    assert_eq!(store.xattr_names(dir), Ok(Vec::new()));
    assert_eq!(store.read(file, 0, 5), Ok(Bytes::new()));
}

/// Sequences count up by one; commit makes all of them durable.
pub fn sequences_count_up(make: Make<'_>) {
    let store = make();
    let mut last = store.committed();
    for _ in 0..10 {
        let next = apply(&*store, |t| done(t.put(fid(1), bytes("k"), bytes("v"))));
        assert_eq!(next, Ok(Sequence(last.0 + 1)));
        last = Sequence(last.0 + 1);
        assert!(store.committed() <= last);
    }
    assert_eq!(store.commit(), Ok(last));
    assert_eq!(store.committed(), last);
    assert_eq!(store.commit(), Ok(last), "nothing new to commit");
    let next = store.apply(Transaction::new());
    assert_eq!(next, Ok(Sequence(last.0 + 1)), "an empty transaction is one, too");
    assert_eq!(store.commit(), next);
}

/// A caller that waited for a commit finds what hooks keep as new as the commit, however slow they
/// are.
pub fn hooks_have_run_when_a_commit_returns(make: Make<'_>) {
    let store = make();
    let reported = Arc::new(AtomicU64::new(0));
    let hook = Arc::clone(&reported);
    store.on_commit(Box::new(move |committed| {
        std::thread::park_timeout(std::time::Duration::from_millis(20));
        hook.store(committed.expect("commits work").0, Ordering::SeqCst);
    }));
    for round in 0..5 {
        let put = apply(&*store, |t| done(t.put(fid(round), bytes("k"), bytes("v"))));
        store.commit().expect("commit works");
        assert!(reported.load(Ordering::SeqCst) >= put.expect("put works").0, "round {round}");
    }
}

/// Hooks run with rising sequences, none above what is durable, and reach the last one.
pub fn commit_hooks_run_in_order(make: Make<'_>) {
    let store = make();
    let seen = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let bad = Arc::new(AtomicBool::new(false));
    for slot in &seen {
        let (slot, bad) = (slot.clone(), bad.clone());
        store.on_commit(Box::new(move |committed| {
            let sequence = committed.expect("commits work");
            if slot.swap(sequence.0, Ordering::SeqCst) >= sequence.0 {
                bad.store(true, Ordering::SeqCst);
            }
        }));
    }
    let mut last = Sequence(0);
    for round in 0..20 {
        last =
            apply(&*store, |t| done(t.put(fid(round), bytes("k"), bytes("v")))).expect("put works");
        if round % 3 == 0 {
            store.commit_soon();
        }
        if round % 5 == 0 {
            store.commit().expect("commit works");
        }
    }
    store.commit().expect("commit works");
    for slot in &seen {
        for _ in 0..500 {
            if slot.load(Ordering::SeqCst) == last.0 {
                break;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        assert_eq!(slot.load(Ordering::SeqCst), last.0, "a hook got the last commit");
    }
    assert!(!bad.load(Ordering::SeqCst), "sequences rose");
}

/// Keys that stay are in every scan, in order, while other keys come, go and are committed.
pub fn scans_while_changing(make: Make<'_>) {
    let store = make();
    let dir = fid(1);
    let stay: Vec<Bytes> = (0..200).map(|n| bytes(&format!("{n:04}-stay"))).collect();
    apply(&*store, |t| {
        for key in &stay {
            t.insert(dir, key.clone(), bytes("v"));
        }
    })
    .expect("insert works");
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..400u32 {
                let key = bytes(&format!("{:04}-come", round % 200));
                apply(&*store, |t| done(t.insert(dir, key.clone(), bytes("w")))).expect("insert");
                apply(&*store, |t| {
                    done(t.put(dir, stay[round as usize % 200].clone(), bytes("u")))
                })
                .expect("put");
                if round % 7 == 0 {
                    store.commit_soon();
                }
                apply(&*store, |t| done(t.delete(dir, key))).expect("delete");
            }
            stopped.store(true, Ordering::SeqCst);
        });
        while !stopped.load(Ordering::SeqCst) {
            let found = keys(&*store, dir);
            assert!(found.is_sorted(), "in order");
            let still: Vec<&Bytes> = found.iter().filter(|k| k.ends_with(b"-stay")).collect();
            assert_eq!(still.len(), stay.len(), "all that stays was found once");
        }
    });
}

/// Patches add up whichever thread they come from.
pub fn patches_from_many_threads(make: Make<'_>) {
    let store = make();
    let dir = fid(1);
    apply(&*store, |t| done(t.create(dir, directory()))).expect("create works");
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..250u32 {
                    let patch = AttributePatch { links_added: 1, ..Default::default() };
                    let key = bytes(&format!("{thread}-{round}"));
                    apply(&**store, |t| done(t.patch(dir, patch).insert(dir, key, bytes("v"))))
                        .expect("apply works");
                    if round % 100 == 50 {
                        store.commit().expect("commit works");
                    }
                }
            });
        }
    });
    assert_eq!(store.attributes(dir).map(|a| a.links), Ok(2 + 1000));
    assert_eq!(keys(&*store, dir).len(), 1000);
}

/// Of many threads that insert one key exactly one succeeds.
pub fn inserts_from_many_threads(make: Make<'_>) {
    let store = make();
    let won = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..200 {
                    match apply(&*store, |t| {
                        done(t.insert(fid(1), bytes(&format!("{round}")), bytes("v")))
                    }) {
                        Ok(_) => drop(won.fetch_add(1, Ordering::SeqCst)),
                        Err(error) => assert_eq!(error, StoreError::Exists(fid(1))),
                    }
                    if round % 50 == 0 {
                        store.commit_soon();
                    }
                }
            });
        }
    });
    assert_eq!(won.load(Ordering::SeqCst), 200);
}

/// After a transaction returns each of its keys is there; deletes and inserts of one transaction
/// never leave a thread's own later reads half way, whatever other threads commit meanwhile.
pub fn transactions_are_seen_whole(make: Make<'_>) {
    let store = make();
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let store = &store;
            scope.spawn(move || {
                let (from, to) = (fid(thread * 2), fid(thread * 2 + 1));
                apply(&**store, |t| done(t.insert(from, bytes("k"), bytes("0")))).expect("insert");
                for round in 0..200u32 {
                    let (from, to) = if round % 2 == 0 { (from, to) } else { (to, from) };
                    let value = bytes(&round.to_string());
                    apply(&**store, |t| {
                        t.delete(from, bytes("k")).insert(to, bytes("k"), value.clone());
                    })
                    .expect("rename works");
                    assert_eq!(store.lookup(from, b"k"), Ok(None));
                    assert_eq!(store.lookup(to, b"k"), Ok(Some(value)));
                    if round % 16 == 0 {
                        store.commit_soon();
                    }
                }
            });
        }
    });
}
