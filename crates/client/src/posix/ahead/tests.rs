//! What is asked ahead, and how much of it goes in one request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use sheen_types::{Errno, LockHandle};
use sheen_wire::batch::ButUpdateHeader;
use sheen_wire::messages::Request;

use super::testing::{Asked, Directory, numbered};
use crate::posix::{DirCookie, DirEntryPlus, ListingRoom};
use crate::testing::Fixture;

const START: DirCookie = DirCookie(0);

fn names_of(listed: &[DirEntryPlus]) -> Vec<String> {
    let name = |listed: &DirEntryPlus| String::from_utf8_lossy(&listed.entry.name).into_owned();
    listed.iter().map(name).collect()
}

fn kept(listed: &[DirEntryPlus]) -> usize {
    let keeps = |it: &&DirEntryPlus| it.found.as_ref().is_some_and(|it| it.keep.attributes);
    listed.iter().filter(keeps).count()
}

fn lengths(asked: &Asked) -> Vec<usize> {
    asked.batches.iter().map(Vec::len).collect()
}

#[test]
fn a_listing_asks_for_its_names_in_batches_and_for_each_once() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(200), false);
    let handle = fixture.open_root();
    let listed = fixture.list(handle, START, 200);
    assert_eq!(names_of(&listed), numbered(200));
    assert_eq!(kept(&listed), 200);
    let asked = directory.asked();
    assert_eq!(lengths(&asked), [64, 64, 64, 8]);
    assert_eq!((asked.readpages, asked.locks, asked.getattrs.len()), (1, 1, 0));
    // All of it is covered: nothing is asked again.
    let again = fixture.list(handle, START, 200);
    assert_eq!((names_of(&again), kept(&again)), (numbered(200), 200));
    assert_eq!(directory.asked(), Asked::default());
}

#[test]
fn an_mdt_that_takes_no_batches_is_asked_for_each_name() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(50), false);
    fixture.mdt.takes_batches.store(false, Ordering::Relaxed);
    let listed = fixture.list(fixture.open_root(), START, 50);
    assert_eq!(kept(&listed), 50);
    let asked = directory.asked();
    assert_eq!((asked.getattrs.len(), asked.batches.len()), (50, 0));
}

/// As Lustre's MDT does on a read-only mount.
#[test]
fn an_mdt_that_refuses_a_batch_whole_is_sent_no_other() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(20), false);
    directory.refuse_batches(Errno::EROFS);
    fixture.files.settings().ahead.running_max.set(0);
    let handle = fixture.open_root();
    let listed = fixture.list(handle, START, 10);
    assert_eq!(kept(&listed), 10);
    let asked = directory.asked();
    assert_eq!((asked.batches.len(), asked.getattrs.len()), (1, 10));
    let next = listed.last().expect("ten").entry.next;
    assert_eq!(kept(&fixture.list(handle, next, 10)), 10);
    assert_eq!(directory.asked().batches.len(), 0);
}

#[test]
fn only_names_that_there_is_room_for_are_asked_for() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(200), false);
    fixture.files.settings().ahead.running_max.set(0);
    let handle = fixture.open_root();
    let listed = fixture.list(handle, START, 10);
    assert_eq!(names_of(&listed), numbered(10));
    assert_eq!(lengths(&directory.asked()), [10]);
    let next = listed.last().expect("ten").entry.next;
    let rest = fixture.list(handle, next, 7);
    assert_eq!(names_of(&rest), numbered(17)[10..]);
    assert_eq!(lengths(&directory.asked()), [7]);
    let room = ListingRoom { bytes: 3, entry_bytes: <[u8]>::len };
    let files = fixture.files.clone();
    files.0.ahead.trust(Fixture::root().pid);
    let list = async move { files.readdir_plus(&Fixture::root(), handle, START, room).await };
    assert_eq!(fixture.world.run(list).map(|listed| listed.len()), Ok(1), "one in any case");
}

#[test]
fn names_go_in_requests_as_large_as_operators_say() {
    for (batch_max, wanted) in [(1024, vec![100]), (30, vec![30, 30, 30, 10]), (0, vec![])] {
        let fixture = Fixture::new();
        let directory = Directory::serve(&fixture, numbered(100), false);
        fixture.files.settings().ahead.batch_max.set(batch_max);
        assert_eq!(kept(&fixture.list(fixture.open_root(), START, 100)), 100);
        let asked = directory.asked();
        let alone = if wanted.is_empty() { 100 } else { 0 };
        assert_eq!((lengths(&asked), asked.getattrs.len()), (wanted, alone));
    }
}

#[test]
fn a_part_that_fails_is_asked_alone_and_what_is_gone_is_left_out() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(20), false);
    directory.fail("file.3", Errno::EBUSY);
    directory.remove("file.5");
    let listed = fixture.list(fixture.open_root(), START, 20);
    let mut there = numbered(20);
    there.remove(5);
    assert_eq!((names_of(&listed), kept(&listed)), (there, 19));
    let asked = directory.asked();
    assert_eq!((lengths(&asked), asked.getattrs), (vec![20], vec!["file.3".to_owned()]));
}

/// As Lustre's MDT does: it answers the parts before the one that fails.
#[test]
fn parts_that_an_mdt_did_not_come_to_are_asked_alone() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(8), false);
    directory.fail("file.5", Errno::EREMOTE);
    directory.stop_at_failures();
    let listed = fixture.list(fixture.open_root(), START, 8);
    assert_eq!(kept(&listed), 8);
    assert_eq!(directory.asked().getattrs, ["file.5", "file.6", "file.7"]);
}

#[test]
fn sizes_come_along_unless_operators_do_not_want_them() {
    for asks_sizes in [true, false] {
        let fixture = Fixture::new();
        Directory::serve(&fixture, numbered(30), true);
        fixture.files.settings().ahead.asks_sizes.set(asks_sizes);
        let handle = fixture.open_root();
        let glimpses = || {
            let files: Vec<_> = fixture.data.files.lock().values().cloned().collect();
            files.iter().map(|file| std::mem::take(&mut *file.done.lock()).len()).sum::<usize>()
        };
        fixture.list(handle, START, 30);
        assert_eq!(glimpses(), if asks_sizes { 30 } else { 0 });
        // Under locks they are known.
        let files: Vec<_> = fixture.data.files.lock().values().cloned().collect();
        files.iter().for_each(|file| *file.covered.lock() = true);
        let listed = fixture.list(handle, START, 30);
        assert_eq!((kept(&listed), glimpses()), (if asks_sizes { 30 } else { 0 }, 0));
    }
}

#[test]
fn locks_of_a_batch_that_no_caller_waits_for_are_cancelled() {
    let fixture = Fixture::new();
    let directory = Directory::serve(&fixture, numbered(3), false);
    let handle = fixture.open_root();
    let files = fixture.files.clone();
    let listing = async move { files.readdir(handle, START, 9).await.map(drop) };
    fixture.world.run(listing).expect("listed");
    let first = directory.next_lock();
    fixture.mdt.take_asked();
    let hold = Arc::new(tokio::sync::Notify::new());
    *fixture.mdt.hold.lock() = Some(Arc::clone(&hold));
    let files = fixture.files.clone();
    fixture.world.run(async move {
        let (who, room) = (Fixture::root(), ListingRoom::for_names(3));
        files.0.ahead.trust(who.pid);
        let mut listing = Box::pin(files.readdir_plus(&who, handle, START, room));
        let poll = |context: &mut std::task::Context<'_>| {
            Poll::Ready(listing.as_mut().poll(context).is_pending())
        };
        assert!(std::future::poll_fn(poll).await, "the answer is on its way");
    });
    *fixture.mdt.hold.lock() = None;
    hold.notify_waiters();
    fixture.world.settle();
    let cancelled = fixture.mdt.take_asked().into_iter().filter_map(|request| match request {
        Request::LdlmCancel(cancel) => Some(cancel.dlm_req.counted().to_vec()),
        _ => None,
    });
    let mut cancelled: Vec<LockHandle> = cancelled.flatten().collect();
    cancelled.sort_unstable();
    assert_eq!(cancelled, [0, 1, 2].map(|more| LockHandle(first.0 + more)));
}

/// As n6-statahead-fname-striped has them: few parts in the request, more as bulk of pages.
#[test]
fn a_batch_has_the_form_that_clients_of_lustre_give_it() {
    for (count, inline, buffers, reply) in
        [(2, 792, vec![0], 4096), (5, 1968, vec![0], 4208), (12, 0, vec![4096; 2], 10088)]
    {
        let fixture = Fixture::new();
        Directory::serve(&fixture, numbered(count), false);
        fixture.list(fixture.open_root(), START, count);
        let asked = fixture.mdt.take_asked();
        let batch = asked.iter().find_map(|request| match request {
            Request::MdsBatch(batch) => Some(batch),
            _ => None,
        });
        let batch = batch.expect("a batch");
        let (header, rest) = ButUpdateHeader::split(&batch.but_update_header).expect("a header");
        // A part with a name of 6 or 7 bytes has 392, as the one of file.12 there; that of file.152 has 400.
        assert_eq!((header.inline_length, rest.len()), (inline, inline as usize));
        assert_eq!((header.reply_size, header.update_count), (reply, count as u32));
        let sizes: Vec<u32> = batch.but_update_buf.iter().map(|buffer| buffer.size).collect();
        assert_eq!(sizes, buffers);
        if inline > 0 {
            let parts = &rest[8..];
            let number = |at: usize| {
                let bytes = parts[4 * at..4 * at + 4].try_into().expect("four bytes");
                u32::from_le_bytes(bytes)
            };
            let wanted = [5, 0, 0x0bd0_0bd3, 840, 0, 0, 1, 0, 104, 8, 216, 0, 7];
            for (at, wanted) in wanted.into_iter().enumerate() {
                assert_eq!(number(at), wanted, "number {at}");
            }
        } else {
            assert_eq!(fixture.mdt.source.lock().len(), 8192);
        }
    }
}
