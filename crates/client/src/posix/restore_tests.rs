//! What is recorded for the mount's next process, and what that makes of it.

use std::sync::Arc;

use bytes::Bytes;
use sheen_rpc::FormerExport;
use sheen_types::{Errno, Fid, InodeBits, LockMode, ObdHandle, Uuid};
use sheen_wire::messages::{MdsCloseReply, Request};

use super::file_locks_tests::reply;
use super::*;
use crate::records::{OpenRecord, Record, RecordMemory, Recorder};
use crate::testing::{Fixture, Records, found, name, opened};

const FILE: Fid = Fid::new(0x2_0000_0400, 9);
const WHOLE: InodeBits = InodeBits(0x13);

fn keeping() -> (Fixture, Arc<Records>) {
    let records = Arc::<Records>::default();
    let recorder = Recorder::new(Arc::clone(&records) as Arc<dyn RecordMemory>);
    (Fixture::recording(recorder), records)
}

#[test]
fn what_the_kernel_has_is_kept_as_long_as_it_has_it() {
    let (fixture, records) = keeping();
    fixture.mdt.answer(found(FILE, 0o100_644, 1, WHOLE));
    fixture.mdt.answer(opened(FILE, 77, false, Bytes::new()));
    fixture.mdt.answer(MdsCloseReply::default());
    let files = fixture.files.clone();
    let kept = Arc::clone(&records);
    let (node, open, after_release) = fixture.world.run(async move {
        let who = Fixture::root();
        let found = files.lookup(&who, NodeId::ROOT, &name("file")).await;
        let Ok(Lookup::Found(entry)) = found else { panic!("not found") };
        let opened = files.open(&who, entry.node, OpenFlags(2)).await.expect("opened");
        let open = kept.all();
        files.release(opened.handle, None).await.expect("released");
        (entry.node, open, kept.all())
    });
    let inode = Record::Inode { node, fid: FILE, lookups: 1 };
    let is_open = |record: &Record| matches!(record, Record::Open(OpenRecord { node: of, flags: 2, .. }) if *of == node);
    assert!(open.contains(&inode) && open.iter().any(is_open), "{open:?}");
    assert_eq!(after_release, [inode]);
    fixture.files.forget(node, 1);
    assert!(records.all().is_empty(), "{:?}", records.all());
}

/// What an earlier process had: a file under an odd number, open twice, once of a file that is gone.
fn former() -> Vec<Record> {
    let open = OpenRecord {
        handle: 5,
        node: NodeId(4242),
        flags: 0o101_102,
        owner: (1000, 100),
        pid: 77,
        sends_no_flush: false,
        bypasses_page_cache: false,
    };
    let export = FormerExport { handle: ObdHandle(9), connection: 3 };
    vec![
        Record::Inode { node: NodeId(4242), fid: FILE, lookups: 2 },
        Record::Open(open),
        Record::Open(OpenRecord { handle: 6, ..open }),
        Record::Unflushed(FILE),
        Record::Export { target: Uuid::new("unknown"), export },
        Record::Sequence(FILE.seq),
    ]
}

#[test]
fn handles_of_an_earlier_process_go_on_and_what_it_lost_is_reported() {
    let (fixture, records) = keeping();
    fixture.mdt.answer(opened(FILE, 77, false, Bytes::new()));
    fixture.mdt.refuse(Errno::ENOENT);
    let files = fixture.files.clone();
    let restored = fixture.world.run(async move { files.restore(&former(), 1 << 40).await });
    assert_eq!(restored.nodes, [NodeId::ROOT, NodeId(4242)]);
    assert_eq!((restored.opens, restored.opens_lost, restored.files_unflushed), (1, 1, 1));
    let asked = fixture.mdt.take_asked();
    let flags = |request: &Request| match request {
        Request::LdlmIntentOpen(open) => (open.rec_reint.fid2, open.rec_reint.fsuid),
        other => panic!("asked {other:?}"),
    };
    // As root: who may open it now is another question.
    assert_eq!(asked.iter().map(flags).collect::<Vec<_>>(), [(FILE, 0), (FILE, 0)]);
    let (files, lost) = (fixture.files.clone(), FileHandle(6));
    let (whole, second, stale) = fixture.world.run(async move {
        let owner = LockOwner(1);
        let first = files.flush(FileHandle(5), owner).await;
        (first, files.fid(NodeId(4242)), files.flush(lost, owner).await)
    });
    assert_eq!(whole, Err(Errno::EIO), "what was not flushed");
    assert_eq!((second, stale), (Ok(FILE), Err(Errno::ESTALE)));
    // All that goes on is kept for the process after this one, too.
    let kept = records.all();
    assert!(kept.contains(&former()[0]) && kept.contains(&former()[1]), "{kept:?}");
    assert!(kept.contains(&Record::Sequence(FILE.seq)) && !kept.contains(&former()[2]));
}

#[test]
fn a_name_that_an_earlier_process_made_is_known_from_one_of_another_client() {
    for (sequence, is_ours) in [(FILE.seq, true), (FILE.seq + 1, false)] {
        let (fixture, _) = keeping();
        fixture.mdt.answer(found(FILE, 0o100_444, 1, WHOLE));
        let files = fixture.files.clone();
        let made = fixture.world.run(async move {
            files.restore(&[Record::Sequence(sequence)], 0).await;
            files.entry_made_by_former(&Fixture::root(), NodeId::ROOT, &name("file")).await
        });
        let made = made.expect("looked up");
        assert_eq!(made.is_some(), is_ours);
    }
}

/// Each lock had all those recorded anew that its process had on the file.
#[test]
fn a_file_lock_is_recorded_once_however_many_its_process_has() {
    let (fixture, records) = keeping();
    fixture.mdt.answer(found(FILE, 0o100_644, 1, WHOLE));
    fixture.mdt.answer(opened(FILE, 77, false, Bytes::new()));
    let (files, kept) = (fixture.files.clone(), Arc::clone(&records));
    let handle = fixture.world.run(async move {
        let who = Fixture::root();
        let found = files.lookup(&who, NodeId::ROOT, &name("file")).await;
        let Ok(Lookup::Found(entry)) = found else { panic!("not found") };
        files.open(&who, entry.node, OpenFlags(2)).await.expect("opened").handle
    });
    fixture.mdt.serve(|request| (Ok(reply(request)), Vec::new()));
    let locks = move || {
        let of = |record| match record {
            Record::FileLock { owner, lock, .. } => Some((owner.0, lock.start, lock.end)),
            _ => None,
        };
        let mut locks: Vec<_> = kept.all().into_iter().filter_map(of).collect();
        locks.sort_unstable();
        locks
    };
    let files = fixture.files.clone();
    fixture.world.run(async move {
        let set = async |owner, mode, start, end| {
            let lock = FileLock { start, end, mode, pid: 5, uid: 0, is_flock: false };
            assert_eq!(files.set_lock(handle, LockOwner(owner), lock, false).await, Ok(()));
        };
        let before = records.0.lock().len();
        for number in 0..200 {
            set(1, FileLockMode::Write, 10 * number, 10 * number + 4).await;
            set(2, FileLockMode::Read, 10 * number, 10 * number + 4).await;
        }
        // Two for the file's lockers.
        assert_eq!(records.0.lock().len() - before, 402);
        assert_eq!(locks().len(), 400);
        set(1, FileLockMode::Write, 5, 9).await;
        set(1, FileLockMode::Unlock, 22, 22).await;
        set(1, FileLockMode::Read, 33, 60).await;
        let few: Vec<_> = locks().into_iter().take(6).collect();
        assert_eq!(
            few,
            [(1, 0, 14), (1, 20, 21), (1, 23, 24), (1, 30, 32), (1, 33, 60), (1, 61, 64)]
        );
        assert_eq!(records.0.lock().len() - before, 402 + 1 + 2 + 3);
        set(1, FileLockMode::Unlock, 0, 1 << 40).await;
        assert!(locks().len() == 200 && locks().iter().all(|(owner, ..)| *owner == 2));
        set(2, FileLockMode::Unlock, 0, 1 << 40).await;
        assert_eq!(locks(), []);
    });
}

/// The next process acquired them, from whom the MDT had granted them to since.
#[test]
fn file_locks_that_an_eviction_took_are_recorded_no_more_and_are_asked_for_anew() {
    let (fixture, records) = keeping();
    fixture.mdt.answer(found(FILE, 0o100_644, 1, WHOLE));
    fixture.mdt.answer(opened(FILE, 77, false, Bytes::new()));
    let files = fixture.files.clone();
    let handle = fixture.world.run(async move {
        let who = Fixture::root();
        let found = files.lookup(&who, NodeId::ROOT, &name("file")).await;
        let Ok(Lookup::Found(entry)) = found else { panic!("not found") };
        files.open(&who, entry.node, OpenFlags(2)).await.expect("opened").handle
    });
    fixture.mdt.serve(|request| (Ok(reply(request)), Vec::new()));
    let set = |owner, mode, start, end| {
        let lock = FileLock { start, end, mode, pid: 5, uid: 0, is_flock: false };
        let files = fixture.files.clone();
        let set = async move { files.set_lock(handle, LockOwner(owner), lock, false).await };
        assert_eq!(fixture.world.run(set), Ok(()));
    };
    let recorded = || {
        let of = |record| match record {
            Record::FileLock { owner, lock, .. } => Some((owner.0, lock.start, lock.end)),
            _ => None,
        };
        records.all().into_iter().filter_map(of).collect::<Vec<_>>()
    };
    set(1, FileLockMode::Write, 0, 9);
    set(1, FileLockMode::Write, 20, 29);
    set(2, FileLockMode::Read, 40, 49);
    assert_eq!(recorded().len(), 3);
    fixture.locks.on_evicted();
    fixture.world.settle();
    assert_eq!(recorded(), []);
    fixture.mdt.take_asked();
    set(1, FileLockMode::Write, 0, 9);
    let asked = fixture.mdt.take_asked();
    assert!(matches!(&asked[..], [Request::LdlmEnqueue(_)]), "{asked:?}");
    assert_eq!(recorded(), [(1, 0, 9)]);
}

/// A lock of the open file description (`F_OFD_SETLK`), of whose end FUSE reports no more than the last close.
#[test]
fn the_last_close_of_a_file_ends_the_locks_that_an_earlier_process_took_through_it() {
    let (fixture, records) = keeping();
    let (owner, mode) = (LockOwner(77), FileLockMode::Write);
    let lock = FileLock { start: 0, end: 9, mode, pid: 5, uid: 0, is_flock: false };
    let locked = |fixture: &Fixture, handle| {
        fixture.mdt.serve(|request| (Ok(reply(request)), Vec::new()));
        let files = fixture.files.clone();
        let done =
            fixture.world.run(async move { files.set_lock(handle, owner, lock, false).await });
        assert_eq!(done, Ok(()));
    };
    fixture.mdt.answer(found(FILE, 0o100_644, 1, WHOLE));
    fixture.mdt.answer(opened(FILE, 77, false, Bytes::new()));
    let files = fixture.files.clone();
    let handle = fixture.world.run(async move {
        let who = Fixture::root();
        let found = files.lookup(&who, NodeId::ROOT, &name("file")).await;
        let Ok(Lookup::Found(entry)) = found else { panic!("not found") };
        files.open(&who, entry.node, OpenFlags(2)).await.expect("opened").handle
    });
    locked(&fixture, handle);
    // The next process, and one after it.
    let mut former = records.all();
    for _ in 0..2 {
        let (next, records) = keeping();
        next.mdt.answer(opened(FILE, 77, false, Bytes::new()));
        next.mdt.serve(|request| (Ok(reply(request)), Vec::new()));
        let (files, kept) = (next.files.clone(), std::mem::take(&mut former));
        let restored = next.world.run(async move { files.restore(&kept, 1 << 40).await });
        assert_eq!((restored.opens, restored.locks_lost), (1, 0));
        former = records.all();
        next.mdt.take_asked();
        let files = next.files.clone();
        next.world.run(async move { files.release(handle, None).await }).expect("released");
        let is_unlock = |request: &Request| match request {
            Request::LdlmEnqueue(enqueue) => enqueue.dlm_req.desc.req_mode == LockMode::Nl.into(),
            _ => false,
        };
        let asked = next.mdt.take_asked();
        assert_eq!(asked.iter().filter(|it| is_unlock(it)).count(), 1, "{asked:?}");
        let is_locker = |record: &Record| matches!(record, Record::FileLockOwner { .. });
        assert!(former.iter().any(is_locker) && !records.all().iter().any(is_locker));
    }
}
