//! Runs: when one begins, how far it is ahead, what it asks, and that it leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sheen_io::Clock;
use sheen_types::{Errno, Fid, LockMode, ResourceName};
use sheen_wire::ldlm::LdlmRequest;

use super::testing::{Asked, Directory, numbered};
use crate::locks::ClientNamespace;
use crate::posix::{AheadCounts, DirCookie, FileHandle, ListingRoom, Lookup, NodeId};
use crate::testing::{Fixture, blocking, lock_reply, name};

const START: DirCookie = DirCookie(0);

impl Fixture {
    /// Whether a name that the kernel asks for is there, and may be kept with its attributes.
    fn look(&self, text: &str) -> Option<bool> {
        let (files, name) = (self.files.clone(), name(text));
        let look = async move { files.lookup(&Self::root(), NodeId::ROOT, &name).await };
        match self.world.run(look).expect("an answer") {
            Lookup::Found(entry) => Some(entry.keep.attributes),
            Lookup::Absent { .. } => None,
        }
    }

    /// The first names of a listing of a process that is not known.
    fn first_names(&self, handle: FileHandle) -> usize {
        let files = self.files.clone();
        let room = ListingRoom::for_names(200);
        let list = async move { files.readdir_plus(&Self::root(), handle, START, room).await };
        let listed = self.world.run(list).expect("a listing");
        assert!(listed.iter().all(|it| it.found.is_none()), "nothing is known of them");
        listed.len()
    }

    fn counts(&self) -> AheadCounts {
        self.files.settings().ahead.counts()
    }

    fn close(&self, handle: FileHandle) {
        let files = self.files.clone();
        self.world.run(async move { files.release(handle, None).await }).expect("closed");
        self.world.settle();
    }

    fn pass(&self, time: Duration) {
        let world = self.world.clone();
        self.world.run(async move { world.sleep_until(world.now() + time).await });
        self.world.settle();
    }
}

/// Names that were asked for, in all requests.
fn names_in(asked: &Asked) -> usize {
    asked.getattrs.len() + asked.batches.iter().map(Vec::len).sum::<usize>()
}

#[test]
fn names_are_asked_ahead_of_a_program_that_looks_at_what_it_lists() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(300), false);
    let handle = fixture.open_root();
    assert_eq!(fixture.first_names(handle), 16);
    assert_eq!(names_in(&directory.asked()), 0, "no program has looked at any yet");
    for name in numbered(300) {
        assert_eq!(fixture.look(&name), Some(true));
    }
    let asked = directory.asked();
    assert_eq!((asked.getattrs.len(), names_in(&asked)), (1, 300), "each once: {asked:?}");
    assert!(asked.batches.len() <= 10, "{:?}", asked.batches.iter().map(Vec::len));
    fixture.close(handle);
    let counts = AheadCounts { total: 1, agl: 1, list: 1, hits: 299, ..AheadCounts::default() };
    assert_eq!(fixture.counts(), counts);
    assert!(fixture.files.0.ahead.is_idle());
}

#[test]
fn a_window_begins_small_and_grows_with_hits_to_what_operators_allow() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(1000), false);
    fixture.files.settings().ahead.max.set(40);
    fixture.first_names(fixture.open_root());
    fixture.look("file.0");
    assert_eq!(names_in(&directory.asked()), 1 + 8, "statahead_min");
    let mut most = 8;
    for (used, name) in numbered(400).iter().enumerate().skip(1) {
        fixture.look(name);
        most += names_in(&directory.asked());
        assert!(most <= used + 40, "{most} were asked for when {used} were used");
    }
    assert!(most > 400 + 10, "{most}");
}

#[test]
fn a_process_that_only_lists_asks_for_no_attributes() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(300), false);
    for _ in 0..3 {
        let handle = fixture.open_root();
        fixture.first_names(handle);
        fixture.close(handle);
    }
    assert_eq!(names_in(&directory.asked()), 0);
    // Once known, its next listing brings them at once, and the names behind come while it looks at those.
    fixture.look("file.0");
    directory.asked();
    let handle = fixture.open_root();
    let files = fixture.files.clone();
    let room = ListingRoom::for_names(100);
    let list = async move { files.readdir_plus(&Fixture::root(), handle, START, room).await };
    let listed = fixture.world.run(list).expect("a listing");
    assert_eq!(listed.iter().filter(|it| it.found.is_some()).count(), 100);
    fixture.world.settle();
    let page = names_in(&directory.asked());
    assert!((91 + 8..100 + 128).contains(&page), "{page}");
}

#[test]
fn pages_of_a_listing_use_what_was_asked_ahead_of_them() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(500), false);
    let handle = fixture.open_root();
    let mut from = START;
    let mut seen = 0;
    while seen < 500 {
        let listed = fixture.list(handle, from, 50);
        seen += listed.iter().filter(|it| it.found.is_some()).count();
        from = listed.last().expect("names").entry.next;
        fixture.world.settle();
    }
    let asked = directory.asked();
    assert_eq!(names_in(&asked), 500, "each once");
    assert!(asked.batches.len() + asked.getattrs.len() <= 20, "{asked:?}");
    fixture.close(handle);
    assert!(fixture.counts().hits > 300, "{:?}", fixture.counts());
}

#[test]
fn what_was_not_used_is_dropped_with_its_listing_or_in_time() {
    for is_closed in [true, false] {
        let fixture = Fixture::new();
        let directory = Directory::serve(&fixture, numbered(300), false);
        let handle = fixture.open_root();
        fixture.first_names(handle);
        fixture.look("file.0");
        fixture.look("file.1");
        fixture.world.settle();
        let before = fixture.files.inodes_known();
        assert!(before > 10, "{before}");
        match is_closed {
            true => fixture.close(handle),
            false => fixture.pass(Duration::from_secs(31)),
        }
        assert_eq!(fixture.files.inodes_known(), 3, "the root, and two that the kernel has");
        assert_eq!(fixture.files.0.ahead.runs().len(), 0);
        directory.asked();
        fixture.pass(Duration::from_secs(100));
        assert_eq!(directory.asked(), Asked::default());
        assert_eq!((fixture.counts().hits, fixture.counts().wrong), (1, 0));
    }
}

#[test]
fn there_are_no_more_runs_than_operators_allow() {
    for (runs_max, runs) in [(0, 0), (1, 1)] {
        let fixture = Fixture::new();
        Directory::serve(&fixture, numbered(100), false);
        fixture.files.settings().ahead.running_max.set(runs_max);
        fixture.first_names(fixture.open_root());
        fixture.look("file.0");
        assert_eq!(fixture.files.0.ahead.runs().len(), runs);
        assert_eq!(fixture.counts().total, runs as u64);
    }
}

#[test]
fn a_run_of_which_nothing_is_used_ends() {
    let fixture = Fixture::new();
    let mut names = numbered(100);
    names.extend((0..100).map(|number| format!("{number}.other")));
    let directory = Directory::serve(&fixture, names, false);
    fixture.first_names(fixture.open_root());
    fixture.look("file.0");
    for number in 0..40 {
        fixture.look(&format!("{number}.other"));
    }
    fixture.world.settle();
    assert_eq!(fixture.files.0.ahead.runs().len(), 0);
    let counts = fixture.counts();
    assert_eq!((counts.wrong, counts.misses, counts.hits), (1, 33, 0));
    assert_eq!(names_in(&directory.asked()), 41 + 8);
}

#[test]
fn names_that_count_are_guessed_without_a_listing_and_not_beyond_the_last() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(200), false);
    for name in numbered(200) {
        assert_eq!(fixture.look(&name), Some(true));
    }
    fixture.world.settle();
    let asked = directory.asked();
    assert_eq!(asked.getattrs.len(), 7, "until there is an order");
    assert!(asked.batches.len() <= 10, "{asked:?}");
    let guessed = names_in(&asked);
    assert!((200..=200 + 128).contains(&guessed), "{guessed}");
    fixture.pass(Duration::from_secs(31));
    let counts = fixture.counts();
    assert_eq!((counts.total, counts.fname, counts.list, counts.hits), (1, 1, 0, 193));
    assert_eq!(fixture.files.0.ahead.runs().len(), 0);
}

#[test]
fn nothing_is_guessed_of_names_that_are_not_there_or_where_operators_forbid_it() {
    for forbids in [false, true] {
        let fixture = Fixture::new();
        let names = if forbids { numbered(50) } else { Vec::new() };
        let directory = Directory::serve(&fixture, names, false);
        fixture.files.settings().ahead.guesses_names.set(!forbids);
        for name in numbered(50) {
            assert_eq!(fixture.look(&name).is_some(), forbids);
        }
        fixture.world.settle();
        assert_eq!(directory.asked().batches.len(), 0);
        assert_eq!(fixture.counts(), AheadCounts::default());
    }
}

#[test]
fn a_name_asked_ahead_whose_lock_is_gone_is_asked_for_again() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(20), false);
    fixture.first_names(fixture.open_root());
    fixture.look("file.0");
    fixture.world.settle();
    directory.asked();
    // Another client changes all that was asked for.
    revoke_all(&fixture.locks, (1..9).map(|number| Fid::new(0x2_0000_0400, 100 + number)));
    fixture.world.settle();
    directory.remove("file.2");
    assert_eq!(fixture.look("file.1"), Some(true));
    assert_eq!(fixture.look("file.2"), None, "nothing is shown that a lock does not cover");
    let asked = directory.asked();
    assert!(asked.getattrs.contains(&"file.1".to_owned()), "{asked:?}");
}

fn revoke_all(locks: &Arc<ClientNamespace>, files: impl Iterator<Item = Fid>) {
    for fid in files {
        let resource = ResourceName::of_fid(fid);
        for lock in locks.engine().unused() {
            if lock.desc.resource == resource {
                let bits = lock.desc.policy.inode_bits();
                let granted = lock_reply(fid, lock.remote_handle.0, LockMode::Pr, bits);
                let handles = vec![lock.handle];
                let request = LdlmRequest { handles, ..LdlmRequest::default() };
                locks.on_blocking(&blocking(&request, &granted)).expect("it is known");
            }
        }
    }
}

/// Dirty data belongs to the inode: what is looked up must not get another one because a close is answered or the kernel
/// forgets it meanwhile.
#[test]
fn what_a_name_stood_for_stays_while_the_mdt_is_asked() {
    for lists in [false, true] {
        let fixture = Fixture::new();
        Directory::serve(&fixture, numbered(2), false);
        fixture.look("file.0");
        let fid = Fid::new(0x2_0000_0400, 100);
        let inode = fixture.files.0.inodes.by_fid(fid).expect("it was looked up");
        revoke_all(&fixture.locks, [fid].into_iter());
        fixture.world.settle();
        let handle = fixture.open_root();
        let hold = Arc::new(tokio::sync::Notify::new());
        let (files, holds) = (fixture.files.clone(), Arc::clone(&fixture.mdt));
        let (waits, node) = (Arc::clone(&hold), inode.node());
        fixture.world.run(async move {
            let (who, name, room) = (Fixture::root(), name("file.0"), ListingRoom::for_names(9));
            files.readdir(handle, START, 9).await.expect("listed");
            files.0.ahead.trust(who.pid);
            *holds.hold.lock() = Some(Arc::clone(&waits));
            let asks = async {
                match lists {
                    true => drop(files.readdir_plus(&who, handle, START, room).await),
                    false => drop(files.lookup(&who, NodeId::ROOT, &name).await),
                }
            };
            let forgets = async {
                files.forget(node, 1);
                *holds.hold.lock() = None;
                waits.notify_waiters();
            };
            sheen_types::futures::all::<sheen_io::BoxFuture<'_, ()>>(vec![
                Box::pin(asks),
                Box::pin(forgets),
            ])
            .await;
        });
        let now = fixture.files.0.inodes.by_fid(fid).expect("it was looked up again");
        assert!(Arc::ptr_eq(&now, &inode), "by a listing: {lists}");
    }
}

#[test]
fn an_unmount_in_the_middle_leaves_no_request_behind() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(300), false);
    fixture.first_names(fixture.open_root());
    let hold = Arc::new(tokio::sync::Notify::new());
    fixture.look("file.0");
    *fixture.mdt.hold.lock() = Some(Arc::clone(&hold));
    let (files, looked) = (fixture.files.clone(), name("file.20"));
    fixture.world.run(async move {
        let who = Fixture::root();
        let mut look = Box::pin(files.lookup(&who, NodeId::ROOT, &looked));
        let poll = |context: &mut std::task::Context<'_>| {
            std::task::Poll::Ready(look.as_mut().poll(context).is_pending())
        };
        assert!(std::future::poll_fn(poll).await, "its answer is on its way");
    });
    fixture.files.0.end_all_ahead();
    *fixture.mdt.hold.lock() = None;
    hold.notify_waiters();
    fixture.world.settle();
    assert!(fixture.files.0.ahead.runs().is_empty());
    directory.asked();
    fixture.pass(Duration::from_secs(40));
    assert_eq!(directory.asked(), Asked::default());
    assert_eq!(fixture.files.inodes_known(), 2);
}

#[test]
fn an_mdt_without_batches_and_errors_are_no_hindrance() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(60), true);
    fixture.mdt.takes_batches.store(false, Ordering::Relaxed);
    fixture.first_names(fixture.open_root());
    for name in numbered(60) {
        assert!(fixture.look(&name).is_some());
    }
    let asked = directory.asked();
    assert_eq!((asked.getattrs.len(), asked.batches.len()), (60, 0));
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(60), true);
    directory.fail("file.7", Errno::EBUSY);
    directory.stop_at_failures();
    fixture.first_names(fixture.open_root());
    for name in numbered(60) {
        assert!(fixture.look(&name).is_some());
    }
}
