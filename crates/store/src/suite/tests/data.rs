//! Data: sparse bytes, outside the sequence.

use bytes::Bytes;
use sheen_types::Fid;

use super::cases::{apply, bytes, directory, done, fid, regular};
use crate::suite::Make;
use crate::{Store, StoreError};

/// An extent of any back end: holes may be coarser than bytes but not than this.
const EXTENT: u64 = 1 << 20;

fn file(store: &dyn Store, number: u32) -> Fid {
    apply(store, |t| done(t.create(fid(number), regular()))).expect("create works");
    fid(number)
}

fn size(store: &dyn Store, object: Fid) -> u64 {
    store.attributes(object).expect("object is there").size
}

/// What is written is read back, in any pieces, and short only at the end.
pub fn data_is_read_back(make: Make<'_>) {
    let store = make();
    let object = file(&*store, 1);
    assert_eq!(store.read(object, 0, 10), Ok(Bytes::new()));
    store.write(object, 0, &[bytes("he"), Bytes::new(), bytes("llo")]).expect("write works");
    store.write(object, 5, &[bytes(" world")]).expect("write works");
    store.write(object, 4, &[]).expect("nothing is written");
    assert_eq!(store.read(object, 0, 100), Ok(bytes("hello world")));
    assert_eq!(store.read(object, 4, 3), Ok(bytes("o w")));
    assert_eq!(store.read(object, 11, 3), Ok(Bytes::new()));
    assert_eq!(store.read(object, 1 << 40, 3), Ok(Bytes::new()));
    assert_eq!(store.read(object, 3, 0), Ok(Bytes::new()));
    assert_eq!(size(&*store, object), 11);
    let many: Vec<Bytes> = (0..3000u32).map(|n| Bytes::from(n.to_le_bytes().to_vec())).collect();
    store.write(object, 100, &many).expect("thousands of pieces work");
    assert_eq!(store.read(object, 100, 12000), Ok(many.concat().into()));
    store.sync_data(object).expect("sync works");
    assert_eq!(store.read(object, 0, 11), Ok(bytes("hello world")));
}

/// Holes read as zeros and use no blocks.
pub fn data_is_sparse(make: Make<'_>) {
    let store = make();
    let object = file(&*store, 1);
    store.write(object, 64 * EXTENT, &[bytes("end")]).expect("write works");
    assert_eq!(size(&*store, object), 64 * EXTENT + 3);
    assert_eq!(store.read(object, 5 * EXTENT, 4), Ok(bytes("\0\0\0\0")));
    assert_eq!(store.read(object, 64 * EXTENT - 2, 9), Ok(bytes("\0\0end")));
    store.sync_data(object).expect("sync works");
    let blocks = store.attributes(object).expect("object is there").blocks;
    assert!(blocks > 0, "data uses blocks");
    assert!(blocks * 512 <= 2 * EXTENT, "holes use none, but {blocks} are used");
}

/// Truncation drops bytes for good and grows with zeros.
pub fn data_grows_and_shrinks(make: Make<'_>) {
    let store = make();
    let object = file(&*store, 1);
    store.truncate(object, 3).expect("truncate of an empty object works");
    assert_eq!(store.read(object, 0, 9), Ok(bytes("\0\0\0")));
    store.write(object, 0, &[bytes("abcdef")]).expect("write works");
    store.truncate(object, 2).expect("truncate works");
    store.truncate(object, 5).expect("truncate works");
    assert_eq!(store.read(object, 0, 9), Ok(bytes("ab\0\0\0")));
    store.write(object, 4, &[bytes("z")]).expect("write works");
    assert_eq!(store.read(object, 0, 9), Ok(bytes("ab\0\0z")));
    store.truncate(object, 0).expect("truncate works");
    assert_eq!((size(&*store, object), store.read(object, 0, 9)), (0, Ok(Bytes::new())));
}

/// Punched bytes read as zeros, also in part of a block and beyond the end; the size stays.
pub fn data_is_punched(make: Make<'_>) {
    let store = make();
    let object = file(&*store, 1);
    store.punch(object, 0, 100).expect("punch of an empty object works");
    assert_eq!(size(&*store, object), 0);
    store.write(object, 0, &[vec![1u8; 3 * EXTENT as usize].into()]).expect("write works");
    store.sync_data(object).expect("sync works");
    let before = store.attributes(object).expect("object is there").blocks;
    store.punch(object, EXTENT - 3, EXTENT + 6).expect("punch works");
    store.punch(object, 3 * EXTENT - 1, 50).expect("punch over the end works");
    assert_eq!(store.read(object, EXTENT - 4, 3), Ok(vec![1, 0, 0].into()));
    assert_eq!(store.read(object, 2 * EXTENT + 2, 3), Ok(vec![0, 1, 1].into()));
    assert_eq!(store.read(object, 3 * EXTENT - 2, 9), Ok(vec![1, 0].into()));
    assert_eq!(size(&*store, object), 3 * EXTENT);
    let after = store.attributes(object).expect("object is there").blocks;
    assert!(after < before, "space is freed: {before} -> {after}");
}

/// Allocation reserves space and grows the size unless `keep_size` is set; bytes stay.
pub fn data_is_allocated(make: Make<'_>) {
    let store = make();
    let object = file(&*store, 1);
    store.allocate(object, 0, EXTENT, true).expect("allocate works");
    assert_eq!(size(&*store, object), 0);
    let blocks = store.attributes(object).expect("object is there").blocks;
    assert!(blocks * 512 >= EXTENT, "space is reserved");
    store.write(object, 0, &[bytes("abc")]).expect("write works");
    store.allocate(object, 0, 2 * EXTENT, false).expect("allocate works");
    assert_eq!(size(&*store, object), 2 * EXTENT);
    assert_eq!(store.read(object, 0, 5), Ok(bytes("abc\0\0")));
}

/// Seek finds data and holes; the end is a hole, and beyond it there is nothing.
pub fn data_is_sought(make: Make<'_>) {
    let store = make();
    let object = file(&*store, 1);
    assert_eq!(store.seek(object, 0, false), Ok(None));
    assert_eq!(store.seek(object, 0, true), Ok(None));
    store.write(object, 2 * EXTENT, &[vec![1u8; EXTENT as usize].into()]).expect("write works");
    store.truncate(object, 5 * EXTENT).expect("truncate works");
    assert_eq!(store.seek(object, 0, false), Ok(Some(2 * EXTENT)));
    assert_eq!(store.seek(object, 0, true), Ok(Some(0)));
    assert_eq!(store.seek(object, 2 * EXTENT + 7, false), Ok(Some(2 * EXTENT + 7)));
    assert_eq!(store.seek(object, 2 * EXTENT + 7, true), Ok(Some(3 * EXTENT)));
    assert_eq!(store.seek(object, 3 * EXTENT, false), Ok(None));
    assert_eq!(store.seek(object, 5 * EXTENT, true), Ok(None));
    store.write(object, 5 * EXTENT, &[vec![1u8; EXTENT as usize].into()]).expect("write works");
    assert_eq!(store.seek(object, 5 * EXTENT, true), Ok(Some(6 * EXTENT)));
}

/// Only regular objects have data; absent ones are absent to every data method.
pub fn data_needs_a_regular_object(make: Make<'_>) {
    let store = make();
    apply(&*store, |t| done(t.create(fid(1), directory()))).expect("create works");
    for (object, error) in
        [(fid(1), StoreError::WrongKind(fid(1))), (fid(2), StoreError::NoObject(fid(2)))]
    {
        let error = || error.clone();
        assert_eq!(store.read(object, 0, 1), Err(error()));
        assert_eq!(store.write(object, 0, &[bytes("x")]), Err(error()));
        assert_eq!(store.truncate(object, 0), Err(error()));
        assert_eq!(store.punch(object, 0, 1), Err(error()));
        assert_eq!(store.allocate(object, 0, 1, false), Err(error()));
        assert_eq!(store.seek(object, 0, false), Err(error()));
        assert_eq!(store.sync_data(object), Err(error()));
    }
}

/// Threads that write to parts of one object, to objects of their own, and that only read.
pub fn data_from_many_threads(make: Make<'_>) {
    let store = make();
    let shared = file(&*store, 100);
    let part = 4096u64;
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let store = &*store;
            scope.spawn(move || {
                let own = file(store, thread);
                for round in 0..50u64 {
                    let piece = Bytes::from(vec![thread as u8 + 1; part as usize]);
                    let offset = (round * 4 + u64::from(thread)) * part;
                    store.write(shared, offset, std::slice::from_ref(&piece)).expect("write works");
                    store.write(own, round * part, &[piece]).expect("write works");
                    assert_eq!(size(store, own), (round + 1) * part);
                    assert!(size(store, shared) >= offset + part);
                }
            });
        }
    });
    assert_eq!(size(&*store, shared), 200 * part);
    let all = store.read(shared, 0, 200 * part as usize).expect("read works");
    for (at, block) in all.chunks(part as usize).enumerate() {
        assert!(block.iter().all(|byte| usize::from(*byte) == at % 4 + 1), "block {at}");
    }
}

/// An object of a destroyed one's name starts empty, before and after the commit of either.
pub fn recreated_objects_are_empty(make: Make<'_>) {
    let store = make();
    let object = file(&*store, 1);
    for round in 0..6 {
        store.write(object, round, &[bytes("old")]).expect("write works");
        if round % 2 == 0 {
            store.commit().expect("commit works");
        }
        apply(&*store, |t| done(t.destroy(object).create(object, regular()))).expect("recreate");
        assert_eq!(size(&*store, object), 0);
        assert_eq!(store.read(object, 0, 9), Ok(Bytes::new()));
        if round % 3 == 0 {
            store.commit().expect("commit works");
            assert_eq!(store.read(object, 0, 9), Ok(Bytes::new()));
        }
    }
    store.write(object, 0, &[bytes("new")]).expect("write works");
    store.commit().expect("commit works");
    assert_eq!(store.read(object, 0, 9), Ok(bytes("new")));
}

/// An object grows to the largest size to the byte, and what goes beyond it leaves no trace.
pub fn data_ends_where_it_must(make: Make<'_>) {
    let store = make();
    let object = file(&*store, 1);
    let max = store.object_bytes_max();
    assert!(max <= i64::MAX as u64);
    assert_eq!(store.write(object, max, &[bytes("x")]), Err(StoreError::TooLarge));
    assert_eq!(store.write(object, max - 1, &[bytes("xy")]), Err(StoreError::TooLarge));
    assert_eq!(store.write(object, u64::MAX, &[bytes("x")]), Err(StoreError::TooLarge));
    assert_eq!(store.truncate(object, max + 1), Err(StoreError::TooLarge));
    assert_eq!(store.allocate(object, max, 1, true), Err(StoreError::TooLarge));
    assert_eq!(size(&*store, object), 0);
    store.write(object, max - 1, &[bytes("x")]).expect("the last byte is written");
    assert_eq!(size(&*store, object), max);
    assert_eq!(store.read(object, max - 1, 9), Ok(bytes("x")));
    store.truncate(object, 0).expect("cut");
    store.truncate(object, max).expect("an object may have the largest size");
    assert_eq!(size(&*store, object), max);
}

/// Sizes of the whole are consistent.
pub fn space_is_reported(make: Make<'_>) {
    let store = make();
    let space = store.space().expect("space is reported");
    assert!(space.total > 0 && space.free <= space.total && space.available <= space.free);
    assert!(space.objects > 0 && space.objects_free <= space.objects);
}

/// Two objects exchange their data whole, as often as they are asked to, and with what comes before
/// and behind in the same transaction.
pub fn data_is_exchanged(make: Make<'_>) {
    let store = make();
    let (first, second) = (file(&*store, 1), file(&*store, 2));
    store.write(first, 0, &[bytes("first")]).expect("write works");
    store.write(second, EXTENT, &[bytes("second")]).expect("write works");
    let blocks = store.attributes(second).expect("object is there").blocks;
    apply(&*store, |t| done(t.exchange(first, second))).expect("exchange works");
    assert_eq!((size(&*store, first), size(&*store, second)), (EXTENT + 6, 5));
    assert_eq!(store.attributes(first).map(|found| found.blocks), Ok(blocks));
    assert_eq!(store.read(second, 0, 99), Ok(bytes("first")));
    store.write(first, EXTENT, &[bytes("SEC")]).expect("write works");
    store.sync_data(first).expect("sync works");
    assert_eq!(store.read(first, EXTENT, 99), Ok(bytes("SECond")));
    apply(&*store, |t| done(t.exchange(second, second))).expect("with itself works");
    assert_eq!(store.read(second, 0, 99), Ok(bytes("first")));
    apply(&*store, |t| {
        t.exchange(second, first).create(fid(3), regular()).exchange(fid(3), first).destroy(second);
    })
    .expect("a chain works");
    assert_eq!((size(&*store, first), size(&*store, fid(3))), (0, 5));
    assert_eq!(store.read(fid(3), 0, 99), Ok(bytes("first")));
    // What was created under the name of one that lent its data is another's.
    apply(&*store, |t| done(t.create(second, regular()))).expect("create works");
    assert_eq!(store.read(second, 0, 99), Ok(Bytes::new()));
    apply(&*store, |t| done(t.create(fid(4), directory()))).expect("create works");
    let refused = apply(&*store, |t| done(t.exchange(first, fid(3)).exchange(first, fid(4))));
    assert_eq!(refused, Err(StoreError::WrongKind(fid(4))));
    assert_eq!(store.read(fid(3), 0, 99), Ok(bytes("first")), "nothing is left of a refusal");
    let refused = apply(&*store, |t| done(t.exchange(fid(9), first)));
    assert_eq!(refused, Err(StoreError::NoObject(fid(9))));
}

/// What was not damaged is found whole, whatever else was; sums that a store returns are right.
pub fn data_is_looked_through(make: Make<'_>) {
    let store = make();
    let (object, empty) = (file(&*store, 1), file(&*store, 2));
    let piece = Bytes::from(vec![7; 5000]);
    for offset in [0, 3 * EXTENT, 100, 64 * EXTENT] {
        store.write(object, offset, std::slice::from_ref(&piece)).expect("write works");
    }
    store.truncate(object, 3 * EXTENT + 77).expect("truncate works");
    store.punch(object, 50, 4000).expect("punch works");
    let (read, _) = store.read_summed(object, 0, 8192).expect("read works");
    assert_eq!(Ok(read), store.read(object, 0, 8192));
    for object in [object, empty] {
        let (mut next, mut steps) = (Some(0), 0);
        while let Some(offset) = next {
            let verified = store.verify(object, offset).expect("a look");
            assert_eq!(verified.findings, []);
            next = verified.next;
            assert!(next.is_none_or(|next| next > offset), "it goes on");
            steps += 1;
        }
        assert!(steps < 100, "holes are passed over");
    }
    assert_eq!(store.integrity().blocks_failed, 0);
    assert_eq!(store.recorded_attributes(object).expect("there").kind, regular().kind);
    assert_eq!(store.verify(fid(3), 0), Err(StoreError::NoObject(fid(3))));
    assert_eq!(store.keep_block_checksums(false), Ok(()), "none is always possible");
    assert!(!store.has_block_checksums());
}
