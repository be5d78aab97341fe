//! Which locks end with the last close of a file, and when.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use parking_lot::Mutex;
use sheen_types::{Errno, Fid, InodeBits, LockMode, limits};
use sheen_wire::messages::{LdlmEnqueueReply, MdsCloseReply, Reply, Request};
use tokio::sync::Notify;

use super::tests::layout;
use super::{FileHandle, FileLock, FileLockMode, LockOwner, NodeId, OpenFlags};
use crate::testing::{Fixture, lock_reply, name, opened};

const FILE: Fid = Fid::new(0x2_0000_0400, 9);
const READ: u32 = 0;
const WRITE: u32 = 2;
const OWNER: u64 = 3;
const OTHER: u64 = 4;

/// Results of calls that were begun.
type Done = Arc<Mutex<Vec<Result<(), Errno>>>>;

/// What an MDT that conflicts with nothing answers.
pub(super) fn reply(request: &Request) -> Reply {
    let Request::LdlmEnqueue(enqueue) = request else { return MdsCloseReply::default().into() };
    let mut lock = lock_reply(FILE, 0x99, LockMode::Pw, InodeBits(0));
    lock.desc = enqueue.dlm_req.desc.clone();
    lock.desc.granted_mode = enqueue.dlm_req.desc.req_mode;
    LdlmEnqueueReply { dlm_rep: Some(lock), ..Default::default() }.into()
}

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.mdt.serve(|request| (Ok(reply(request)), Vec::new()));
    fixture
}

fn open(fixture: &Fixture, flags: u32) -> FileHandle {
    fixture.mdt.answer(opened(FILE, 1, false, layout()));
    let (files, flags) = (fixture.files.clone(), OpenFlags(OpenFlags::CREATE | flags));
    let create = async move {
        files.open_create(&Fixture::root(), NodeId::ROOT, &name("f"), 0o644, flags).await
    };
    let handle = fixture.world.run(create).expect("opened").1.handle;
    fixture.mdt.take_asked();
    handle
}

/// Runs a call as far as it goes.
fn begin(
    fixture: &Fixture,
    call: impl Future<Output = Result<(), Errno>> + Send + 'static,
) -> Done {
    let done = Done::default();
    let place = Arc::clone(&done);
    let call = async move {
        let result = call.await;
        place.lock().push(result);
    };
    fixture.world.world().tasks.spawn("call", Box::pin(call));
    fixture.world.settle();
    done
}

/// What `flock(2)` or `fcntl(2)` begins.
fn begin_lock(fixture: &Fixture, handle: FileHandle, owner: u64, is_flock: bool) -> Done {
    let (files, mode) = (fixture.files.clone(), FileLockMode::Write);
    let wanted = FileLock { start: 0, end: 9, mode, pid: Fixture::root().pid, uid: 0, is_flock };
    begin(fixture, async move { files.set_lock(handle, LockOwner(owner), wanted, true).await })
}

fn lock(fixture: &Fixture, handle: FileHandle, owner: u64, is_flock: bool) {
    let done = begin_lock(fixture, handle, owner, is_flock);
    assert_eq!(*done.lock(), [Ok(())]);
    fixture.mdt.take_asked();
}

fn begin_release(fixture: &Fixture, handle: FileHandle, flock: Option<u64>) -> Done {
    let files = fixture.files.clone();
    begin(fixture, async move { files.release(handle, flock.map(LockOwner)).await })
}

/// What was asked: owner and mode of a lock; `None` is a close.
fn asked(fixture: &Fixture) -> Vec<Option<(u64, LockMode)>> {
    let of = |request: &Request| match request {
        Request::LdlmEnqueue(it) => {
            let desc = &it.dlm_req.desc;
            Some((desc.policy.as_flock().owner, desc.req_mode.mode().expect("a mode")))
        }
        Request::MdsClose(_) => None,
        other => panic!("not expected: {other:?}"),
    };
    fixture.mdt.take_asked().iter().map(of).collect()
}

/// The unlock of everything that an owner has.
fn unlock(owner: u64) -> Option<(u64, LockMode)> {
    Some((owner, LockMode::Nl))
}

#[test]
fn a_late_release_leaves_the_lock_of_the_next_file_at_the_same_address() {
    for is_flock in [false, true] {
        let (fixture, flock) = (fixture(), is_flock.then_some(OWNER));
        let first = open(&fixture, WRITE);
        lock(&fixture, first, OWNER, is_flock);
        let next = open(&fixture, WRITE);
        lock(&fixture, next, OWNER, is_flock);
        assert_eq!(*begin_release(&fixture, first, flock).lock(), [Ok(())]);
        assert_eq!(asked(&fixture), [None], "flock: {is_flock}");
        assert_eq!(*begin_release(&fixture, next, flock).lock(), [Ok(())]);
        assert_eq!(asked(&fixture), [unlock(OWNER), None], "flock: {is_flock}");
    }
}

#[test]
fn no_lock_is_asked_for_while_the_same_owner_is_unlocked() {
    let fixture = fixture();
    let (first, next) = (open(&fixture, WRITE), open(&fixture, WRITE));
    lock(&fixture, first, OWNER, false);
    let hold = Arc::new(Notify::new());
    *fixture.mdt.hold.lock() = Some(Arc::clone(&hold));
    let released = begin_release(&fixture, first, None);
    *fixture.mdt.hold.lock() = None;
    assert_eq!(asked(&fixture), [unlock(OWNER)]);
    let (same, other) =
        (begin_lock(&fixture, next, OWNER, false), begin_lock(&fixture, next, OTHER, false));
    assert_eq!(asked(&fixture), [Some((OTHER, LockMode::Pw))], "that of another goes on");
    assert_eq!((same.lock().len(), &**other.lock()), (0, &[Ok(())][..]));
    hold.notify_waiters();
    fixture.world.settle();
    assert_eq!((&**released.lock(), &**same.lock()), (&[Ok(())][..], &[Ok(())][..]));
    let after = asked(&fixture);
    assert!(after.contains(&Some((OWNER, LockMode::Pw))), "{after:?}");
}

#[test]
fn a_release_waits_for_no_lock_that_may_wait_for_it() {
    let fixture = fixture();
    let (first, next) = (open(&fixture, WRITE), open(&fixture, WRITE));
    lock(&fixture, first, OWNER, false);
    *fixture.mdt.hold.lock() = Some(Arc::new(Notify::new()));
    let waits = begin_lock(&fixture, next, OTHER, false);
    *fixture.mdt.hold.lock() = None;
    assert_eq!(asked(&fixture), [Some((OTHER, LockMode::Pw))]);
    assert_eq!(*begin_release(&fixture, first, None).lock(), [Ok(())]);
    assert_eq!((asked(&fixture), waits.lock().len()), (vec![unlock(OWNER), None], 0));
}

/// A program is ended while the MDT, which is away, has its request. What that grants when it is back remained for ever.
#[test]
fn a_lock_that_may_have_been_granted_after_its_caller_went_is_unlocked_by_the_close() {
    for is_flock in [false, true] {
        let (fixture, flock) = (fixture(), is_flock.then_some(OWNER));
        let file = open(&fixture, WRITE);
        let hold = Arc::new(Notify::new());
        *fixture.mdt.hold.lock() = Some(Arc::clone(&hold));
        let (files, mode) = (fixture.files.clone(), FileLockMode::Write);
        let wanted = FileLock { start: 0, end: 9, mode, pid: 1, uid: 0, is_flock };
        fixture.world.run(async move {
            let mut call = Box::pin(files.set_lock(file, LockOwner(OWNER), wanted, true));
            let first = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending()));
            assert!(first.await, "it is on its way");
        });
        *fixture.mdt.hold.lock() = None;
        hold.notify_one();
        fixture.world.settle();
        assert_eq!(asked(&fixture), [Some((OWNER, LockMode::Pw))]);
        assert_eq!(*begin_release(&fixture, file, flock).lock(), [Ok(())]);
        assert_eq!(asked(&fixture), [unlock(OWNER), None], "flock: {is_flock}");
        // Once.
        let next = open(&fixture, WRITE);
        assert_eq!(*begin_release(&fixture, next, flock).lock(), [Ok(())]);
        assert_eq!(asked(&fixture), [None], "flock: {is_flock}");
    }
}

#[test]
fn a_file_is_closed_though_its_unlock_fails() {
    let fixture = fixture();
    let file = open(&fixture, WRITE);
    lock(&fixture, file, OWNER, false);
    lock(&fixture, file, OTHER, false);
    fixture.mdt.refuse(Errno::EIO);
    assert_eq!(*begin_release(&fixture, file, None).lock(), [Err(Errno::EIO)]);
    assert_eq!(asked(&fixture), [unlock(OWNER), unlock(OTHER), None]);
}

#[test]
fn locks_end_before_the_last_use_of_the_handle() {
    let fixture = fixture();
    let file = open(&fixture, WRITE);
    lock(&fixture, file, OWNER, true);
    let (files, used) = (fixture.files.clone(), Arc::new(Notify::new()));
    let last_use = Arc::clone(&used);
    let released = begin(&fixture, async move {
        files.release_after(file, Some(LockOwner(OWNER)), &mut pin!(last_use.notified())).await
    });
    assert_eq!((asked(&fixture), released.lock().len()), (vec![unlock(OWNER)], 0));
    used.notify_one();
    fixture.world.settle();
    assert_eq!((asked(&fixture), &**released.lock()), (vec![None], &[Ok(())][..]));
    assert_eq!(*begin_release(&fixture, file, None).lock(), [Err(Errno::EBADF)]);
}

#[test]
fn a_process_that_closes_one_of_two_files_loses_no_flock_of_the_other() {
    let fixture = fixture();
    // Closes of this one are not reported: its RELEASE unlocks what its process has.
    let (reader, locked) = (open(&fixture, READ), open(&fixture, WRITE));
    lock(&fixture, locked, OWNER, true);
    lock(&fixture, locked, OTHER, false);
    assert_eq!(*begin_release(&fixture, reader, None).lock(), [Ok(())]);
    assert_eq!(asked(&fixture), [unlock(OTHER), None]);
}

#[test]
fn a_process_that_locks_through_two_open_files_loses_all_with_either() {
    let fixture = fixture();
    let (first, next) = (open(&fixture, READ), open(&fixture, READ));
    lock(&fixture, next, OWNER, false);
    lock(&fixture, first, OWNER, false);
    assert_eq!(*begin_release(&fixture, first, None).lock(), [Ok(())]);
    assert_eq!(asked(&fixture), [unlock(OWNER), None]);
}

/// A user's programs had all locks that the MDT grants a mount.
#[test]
fn a_user_has_half_of_the_locks_of_a_mount_and_another_one_its_own() {
    let fixture = fixture();
    let file = open(&fixture, WRITE);
    let files = fixture.files.clone();
    let (mdt, most) = (Arc::clone(&fixture.mdt), limits::FLOCKS_PER_CLIENT as u64);
    fixture.world.run(async move {
        let set = async |owner, uid, mode, (start, end)| {
            let lock = FileLock { start, end, mode, pid: 5, uid, is_flock: false };
            let set = files.set_lock(file, LockOwner(owner), lock, false).await;
            mdt.take_asked();
            set
        };
        let lock = async |uid: u32, number: u64| {
            let range = (2 * number, 2 * number);
            set(uid.into(), uid, FileLockMode::Write, range).await
        };
        let half = most / 2;
        for number in 0..half {
            assert_eq!(lock(1000, number).await, Ok(()), "an MDT of Lustre's has no limit");
        }
        assert_eq!(lock(1000, half).await, Ok(()));
        mdt.own_names.store(true, Ordering::Relaxed);
        assert_eq!(lock(1000, half + 1).await, Err(Errno::ENOLCK));
        assert_eq!((lock(1001, 0).await, lock(0, 0).await), (Ok(()), Ok(())));
        let all = (0, u64::MAX >> 1);
        assert_eq!(set(1000, 1000, FileLockMode::Unlock, all).await, Ok(()));
        assert_eq!(lock(1000, 7).await, Ok(()));
    });
}

/// The shares were those of what an MDT grants by default, whatever it had been set to.
#[test]
fn shares_are_of_what_operators_say_that_the_mdt_grants() {
    let fixture = fixture();
    fixture.mdt.own_names.store(true, Ordering::Relaxed);
    let file = open(&fixture, WRITE);
    let lock = |number: u64| {
        let (files, mode) = (fixture.files.clone(), FileLockMode::Write);
        let (start, end) = (2 * number, 2 * number);
        let lock = FileLock { start, end, mode, pid: 5, uid: 1000, is_flock: false };
        fixture.world.run(async move { files.set_lock(file, LockOwner(7), lock, false).await })
    };
    fixture.locks.set_flocks_granted(16);
    let before: Vec<_> = (0..9).map(lock).collect();
    assert_eq!((&before[..8], before[8]), (&[Ok(()); 8][..], Err(Errno::ENOLCK)));
    fixture.locks.set_flocks_granted(32);
    let raised: Vec<_> = (10..19).map(lock).collect();
    assert_eq!((&raised[..8], raised[8]), (&[Ok(()); 8][..], Err(Errno::ENOLCK)));
}

/// One user's programs waited for all locks on a file that the MDT lets a mount wait for.
#[test]
fn a_user_that_waits_for_all_it_can_leaves_another_one_its_waits() {
    let fixture = fixture();
    fixture.mdt.own_names.store(true, Ordering::Relaxed);
    let file = open(&fixture, WRITE);
    let wait = |owner: u64, uid| {
        let (files, mode) = (fixture.files.clone(), FileLockMode::Write);
        let lock = FileLock { start: 0, end: 9, mode, pid: 5, uid, is_flock: false };
        begin(&fixture, async move { files.set_lock(file, LockOwner(owner), lock, true).await })
    };
    *fixture.mdt.hold.lock() = Some(Arc::new(Notify::new()));
    let alices: Vec<Done> = (1..=2049).map(|owner| wait(owner, 1000)).collect();
    let answered = |done: &Done| done.lock().first().copied();
    assert!(alices[..2048].iter().all(|done| answered(done).is_none()), "half of 4,096 wait");
    assert_eq!(answered(&alices[2048]), Some(Err(Errno::ENOLCK)));
    assert_eq!(answered(&wait(3000, 1001)), None, "and another user's");
}
