//! Object locks: what is kept under them, and what happens before they go.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_rpc::RpcError;
use sheen_types::{Errno, Extent, Fid};

use super::{
    CACHED, Fixture, Layout, Raid0, STRIPE, Stripe, filling, object_fid, pattern, resource, through,
};
use crate::data::{DataPath, WriteAt};
use crate::types::Credentials;
use tokio::sync::Notify;

#[test]
fn what_is_dirty_is_written_and_pages_are_dropped_before_a_lock_goes() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    fixture.ost().take_asked();
    fixture.lose_locks();
    assert_eq!(*fixture.events.invalidated.lock(), [Extent::ALL]);
    assert_eq!(fixture.ost().take_asked(), ["write 0+4096 used 4096", "cancel 1"]);
    fixture.ost().set_bytes(resource(0), vec![3; 100]);
    assert_eq!(fixture.size(&file), 100, "it is asked for again");
    assert_eq!(fixture.read(&file, 0, 4096, CACHED), Ok(Bytes::from(vec![3; 100])));
}

/// A write of a part of the first page waits for its lock, while a lock to read that page is revoked and the
/// kernel is late. What was asked of the OST, before the kernel takes the notice and after.
fn lose_a_page_under_a_write(is_held: bool) -> [Vec<String>; 2] {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), pattern(8192).to_vec());
    let file = fixture.file(1);
    fixture.read(&file, 0, 8192, CACHED).expect("read");
    fixture.ost().script.lock().hold = Some("lock");
    let (writer, options) = (Arc::clone(&file), through(100, 10));
    let write = async move {
        _ = writer.write(WriteAt::Offset(100), pattern(10), &Credentials::root(), options).await;
    };
    fixture.world.world().tasks.spawn("write", Box::pin(write));
    fixture.world.settle();
    let (page, late) = (Extent { start: 0, end: 4095 }, Arc::new(Notify::new()));
    *fixture.events.held.lock() = is_held.then_some(page);
    *fixture.events.late.lock() = Some((page, Arc::clone(&late)));
    fixture.ost().take_asked();
    fixture.lose_locks();
    fixture.wait(Duration::from_secs(60));
    let before = fixture.ost().take("cancel");
    *fixture.events.late.lock() = None;
    late.notify_waiters();
    fixture.wait(Duration::from_secs(1));
    let after = fixture.ost().take("cancel");
    fixture.ost().release_held();
    fixture.world.settle();
    [before, after]
}

#[test]
fn a_lock_stays_until_the_kernel_has_taken_the_notice_however_late() {
    // The page was there when the write came: programs see it until it is dropped.
    assert_eq!(lose_a_page_under_a_write(false), [vec![], vec!["cancel 1".to_owned()]]);
}

#[test]
fn a_lock_goes_when_the_kernel_is_blocked_on_a_page_of_a_write_that_waits() {
    // It was not cached: no program sees it, and the kernel holds it until the write is answered.
    assert_eq!(lose_a_page_under_a_write(true), [vec![], vec!["cancel 1".to_owned()]]);
}

#[test]
fn a_lock_goes_though_the_kernel_holds_pages_of_a_write_that_waits_for_another() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(2);
    let start = u64::from(STRIPE) - 4096;
    *fixture.events.held.lock() = Extent::of_length(start + 4096, 4096);
    fixture.fakes[1].script.lock().hold = Some("lock");
    let (across, options) = (WriteAt::Offset(start), through(start, 8000));
    let writer = Arc::clone(&file);
    let write =
        async move { _ = writer.write(across, pattern(8000), &Credentials::root(), options).await };
    fixture.world.world().tasks.spawn("write", Box::pin(write));
    fixture.world.settle();
    fixture.ost().take_asked();
    fixture.lose_locks();
    // What was written of the call's bytes lies there, pages or not.
    assert_eq!(fixture.ost().take_asked(), ["write 1044480+4096 used 4096", "cancel 1"]);
    *fixture.events.held.lock() = None;
    fixture.events.invalidated.lock().clear();
    fixture.fakes[1].release_held();
    fixture.wait(Duration::from_secs(2));
    assert_eq!(fixture.fakes[1].bytes(resource(1)).len(), 3904);
    // Another client may have written there since: before the call ends the kernel drops its pages.
    let first = Extent { start, end: start + 4095 };
    assert!(fixture.events.invalidated.lock().contains(&first));
}

#[test]
fn a_lock_goes_without_the_pages_of_a_read_that_waits_which_gets_what_is_there_then() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(2);
    let start = u64::from(STRIPE) - 4096;
    fixture.ost().set_bytes(resource(0), vec![1; 1 << 20]);
    fixture.fakes[1].set_bytes(resource(1), vec![3; 4096]);
    *fixture.events.held.lock() = Extent::of_length(start, 8192);
    fixture.fakes[1].script.lock().hold = Some("lock");
    let (reader, read) = (Arc::clone(&file), Arc::new(Mutex::new(None)));
    let there = Arc::clone(&read);
    let call = async move {
        let read = reader.read(start, 8192, filling(start, 8192)).await.expect("read");
        *there.lock() = Some(read.concat());
    };
    fixture.world.world().tasks.spawn("read", Box::pin(call));
    fixture.world.settle();
    assert_eq!(fixture.ost().take("read").len(), 1, "one part has come");
    fixture.ost().take_asked();
    fixture.lose_locks();
    fixture.wait(Duration::from_secs(1));
    assert_eq!(fixture.ost().take("cancel"), ["cancel 1"]);
    // Another client writes there: the kernel would show what was read before it, under no lock.
    fixture.ost().set_bytes(resource(0), vec![2; 1 << 20]);
    *fixture.events.held.lock() = None;
    fixture.fakes[1].release_held();
    fixture.world.settle();
    let expected = [vec![2; 4096], vec![3; 4096]].concat();
    assert!(read.lock().take() == Some(expected));
}

#[test]
fn a_lock_goes_though_the_kernel_holds_pages_between_those_that_it_covers() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(2);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    // The pages of the other object lie within the range that the kernel is to give up.
    let start = u64::from(STRIPE) + 4096;
    *fixture.events.held.lock() = Extent::of_length(start, 4096);
    fixture.fakes[1].script.lock().hold = Some("lock");
    for is_late in [false, true] {
        fixture.ost().take_asked();
        if is_late {
            fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
            fixture.lose_locks();
            fixture.wait(Duration::from_millis(10));
            assert_eq!(fixture.ost().take("cancel"), Vec::<String>::new(), "pages are waited for");
        }
        let writer = Arc::clone(&file);
        let write = async move {
            let (at, options) = (WriteAt::Offset(start), through(start, 4000));
            _ = writer.write(at, pattern(4000), &Credentials::root(), options).await;
        };
        fixture.world.world().tasks.spawn("write", Box::pin(write));
        fixture.world.settle();
        fixture.lose_locks();
        assert_eq!(fixture.ost().take("cancel"), ["cancel 1"], "late: {is_late}");
        fixture.fakes[1].release_held();
        fixture.wait(Duration::from_secs(2));
        fixture.fakes[1].script.lock().hold = Some("lock");
        for callback in fixture.fakes[1].blocking() {
            *fixture.events.held.lock() = None;
            let _ = fixture.locks[1].on_blocking(&callback);
        }
        fixture.world.settle();
        *fixture.events.held.lock() = Extent::of_length(start, 4096);
    }
}

/// All but the page, in this fixture.
fn around(page: Extent) -> [Extent; 2] {
    let behind = Extent { start: page.end + 1, end: Extent::EOF };
    [Extent { start: 0, end: page.start - 1 }, behind]
}

#[test]
fn a_lock_goes_with_all_pages_behind_one_that_waits_for_another_server() {
    let fixture = Fixture::new(0);
    let file = fixture.file(2);
    for (ost, fake) in (0..).zip(&fixture.fakes) {
        fake.set_bytes(resource(ost), vec![1; 8 << 20]);
    }
    assert_eq!(fixture.size(&file), 16 << 20, "under locks now");
    let start = u64::from(STRIPE) + (64 << 10);
    let page = Extent { start, end: start + 4095 };
    fixture.fakes[1].script.lock().hold = Some("read");
    let read = async move { _ = file.read(start, 4096, filling(start, 4096)).await };
    fixture.world.world().tasks.spawn("read", Box::pin(read));
    fixture.world.settle();
    *fixture.events.held.lock() = Some(page);
    fixture.ost().take_asked();
    fixture.lose_locks();
    assert_eq!(fixture.ost().take("cancel"), Vec::<String>::new(), "it may not be for long");
    assert!(!fixture.events.has_dropped(around(page)[0]));
    fixture.events.is_long.notify_waiters();
    fixture.world.settle();
    assert_eq!(fixture.ost().take("cancel"), ["cancel 1"]);
    let stripes = [
        Extent { start: 0, end: u64::from(STRIPE) - 1 },
        Extent { start: 2 * u64::from(STRIPE), end: 3 * u64::from(STRIPE) - 1 },
        Extent { start: 14 * u64::from(STRIPE), end: Extent::EOF },
    ];
    for stripe in stripes {
        assert!(fixture.events.has_dropped(stripe), "{stripe:?}");
    }
    fixture.fakes[1].release_held();
    fixture.world.settle();
}

#[test]
fn a_lock_is_cancelled_without_a_page_that_blocks_the_kernel_for_long_and_no_other() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 8 << 20]);
    let file = fixture.file(1);
    assert_eq!(fixture.size(&file), 8 << 20);
    let page = Extent { start: 5 << 20, end: (5 << 20) + 4095 };
    *fixture.events.held.lock() = Some(page);
    fixture.ost().take_asked();
    fixture.lose_locks();
    assert_eq!(fixture.ost().take("cancel"), Vec::<String>::new());
    fixture.events.is_long.notify_waiters();
    fixture.world.settle();
    assert_eq!(fixture.ost().take("cancel"), ["cancel 1"]);
    assert!(around(page).into_iter().all(|range| fixture.events.has_dropped(range)));
}

#[test]
fn a_read_that_asks_for_the_size_behind_its_bytes_gets_what_is_there_when_their_lock_went_meanwhile()
 {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(2);
    fixture.ost().set_bytes(resource(0), vec![1; 4000]);
    fixture.fakes[1].script.lock().hold = Some("glimpse");
    *fixture.events.held.lock() = Some(Extent { start: 0, end: 4095 });
    let read = Arc::new(Mutex::new(None));
    let there = Arc::clone(&read);
    let call = async move {
        let read = file.read(0, 4096, filling(0, 4096)).await.expect("read");
        *there.lock() = Some(read.concat());
    };
    fixture.world.world().tasks.spawn("read", Box::pin(call));
    fixture.world.settle();
    assert_eq!(fixture.ost().take("read").len(), 1, "its bytes have come");
    fixture.lose_locks();
    assert_eq!(fixture.ost().take("cancel"), ["cancel 1"]);
    fixture.ost().set_bytes(resource(0), vec![2; 4000]);
    *fixture.events.held.lock() = None;
    fixture.fakes[1].release_held();
    fixture.world.settle();
    assert!(read.lock().take() == Some(vec![2; 4000]), "the kernel keeps what it shows");
}

#[test]
fn a_lock_that_only_covered_reads_goes_without_a_write() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), pattern(4 << 20).to_vec());
    let file = fixture.file(1);
    fixture.size(&file);
    for at in [0, 64 << 10] {
        fixture.read(&file, at, 64 << 10, CACHED).expect("read");
    }
    fixture.world.settle();
    fixture.lose_locks();
    fixture.ost().set_bytes(resource(0), vec![5; 4 << 20]);
    let read = fixture.read(&file, 2 << 20, 4096, CACHED);
    assert_eq!(read, Ok(Bytes::from(vec![5; 4096])), "what was fetched ahead went with the lock");
    assert_eq!(fixture.ost().take("write"), Vec::<String>::new());
}

#[test]
fn the_server_has_forgotten_us_and_the_next_fsync_says_what_that_cost() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    fixture.locks[0].on_evicted();
    fixture.world.settle();
    assert_eq!(
        fixture.ost().take("write"),
        Vec::<String>::new(),
        "nothing may be written any more"
    );
    assert_eq!(*fixture.events.invalidated.lock(), [Extent::ALL]);
    assert_eq!(fixture.failures(), [Errno::EIO]);
    assert_eq!(fixture.sync(&file), Ok(()), "there is nothing left");
    assert_eq!(fixture.osts.ost(0).expect("there").grant().dirty, 0);
}

#[test]
fn a_lock_that_a_restarted_ost_refuses_is_not_used_any_more() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 100]);
    let file = fixture.file(1);
    let append = |file: &_| fixture.write(file, WriteAt::End(100), pattern(10), CACHED);
    assert_eq!(append(&file), Ok(100));
    fixture.sync(&file).expect("durable");
    let fail = |answer: fn() -> RpcError| {
        for replay in fixture.locks[0].locks_to_replay(1) {
            (replay.done)(Err(answer()));
        }
        fixture.world.settle();
    };
    // The import replays it again.
    fail(|| RpcError::Disconnected);
    assert_eq!(fixture.locks[0].locks_to_replay(1).len(), 1);
    // We were evicted before, and another client has appended since.
    fixture.ost().set_bytes(resource(0), vec![2; 300]);
    fixture.ost().take_asked();
    fail(|| RpcError::Errno(Errno::ESTALE));
    assert_eq!(*fixture.events.invalidated.lock(), [Extent::ALL]);
    assert_eq!(append(&file), Ok(300), "behind what it has written");
    assert_eq!(fixture.ost().take("lock").len(), 1, "under a lock that we asked for");
}

#[test]
fn unused_locks_are_dropped_before_locks_are_replayed_to_a_restarted_ost() {
    for (drops, expected) in [(true, 1), (false, 2)] {
        let fixture = Fixture::new(1 << 20);
        let file = fixture.file(2);
        let across = WriteAt::Offset(u64::from(STRIPE) - 4096);
        // On the first OST everything is written, on the second not.
        fixture.write(&file, across, pattern(4096), CACHED).expect("accepted");
        fixture.sync(&file).expect("durable");
        fixture
            .write(&file, WriteAt::Offset(u64::from(STRIPE)), pattern(4096), CACHED)
            .expect("too");
        fixture.events.invalidated.lock().clear();
        fixture.fakes.iter().for_each(|fake| drop(fake.take_asked()));
        let mut replays = 0;
        for locks in &fixture.locks {
            locks.set_forgoes_unused(drops);
            let dropped = Arc::clone(locks);
            fixture.world.run(async move { dropped.forgo_unused().await });
            replays += locks.locks_to_replay(1).len();
        }
        assert_eq!(replays, expected, "drops: {drops}");
        let invalidated = fixture.events.invalidated.lock().clone();
        assert_eq!(invalidated.is_empty(), !drops, "{invalidated:?}");
        assert_eq!(fixture.ost().take_asked(), Vec::<String>::new(), "it has forgotten the lock");
    }
}

#[test]
fn a_lock_whose_pages_the_kernel_does_not_release_is_replayed() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    fixture.sync(&file).expect("durable");
    *fixture.events.held.lock() = Some(Extent::ALL);
    let locks = Arc::clone(&fixture.locks[0]);
    fixture.world.run(async move { locks.forgo_unused().await });
    assert_eq!(fixture.locks[0].locks_to_replay(1).len(), 1);
}

#[test]
fn being_forgotten_with_nothing_dirty_costs_nothing() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    fixture.sync(&file).expect("durable");
    fixture.locks[0].on_evicted();
    fixture.world.settle();
    assert_eq!(fixture.sync(&file), Ok(()));
    assert_eq!(fixture.failures(), []);
}

#[test]
fn attributes_cost_nothing_under_a_lock_and_a_glimpse_without() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 5000]);
    let file = fixture.file(1);
    assert_eq!(file.attributes_covered(), None);
    assert_eq!(fixture.size(&file), 5000);
    assert_eq!(fixture.ost().take_asked(), ["glimpse Pr 0..=EOF"]);
    assert_eq!(fixture.size(&file), 5000);
    assert_eq!(fixture.ost().take_asked(), Vec::<String>::new());
    assert!(file.attributes_covered().is_some());
}

#[test]
fn what_was_known_of_a_file_is_known_when_it_is_used_again() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    drop(file);
    fixture.wait(Duration::from_secs(2));
    fixture.ost().take_asked();
    let again = fixture.file(1);
    assert_eq!(fixture.size(&again), 4096);
    assert_eq!(fixture.ost().take_asked(), Vec::<String>::new());
    drop(again);
    fixture.lose_locks();
    let after = fixture.file(1);
    assert_eq!(fixture.size(&after), 4096);
    assert_eq!(
        fixture.ost().take_asked(),
        ["cancel 1", "glimpse Pr 0..=EOF"],
        "another may have changed it"
    );
}

#[test]
fn a_glimpse_while_another_writes_brings_the_value_and_no_lock() {
    let fixture = Fixture::new(1 << 20);
    {
        let mut script = fixture.ost().script.lock();
        (script.busy, script.size_elsewhere) = (true, 9000);
    }
    let file = fixture.file(1);
    assert_eq!(fixture.size(&file), 9000);
    fixture.ost().script.lock().size_elsewhere = 9500;
    assert_eq!(fixture.size(&file), 9500, "each asks anew");
    assert_eq!(fixture.ost().take("glimpse").len(), 2);
}

#[test]
fn a_narrow_lock_does_not_make_the_size_sure() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().script.lock().narrow = true;
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    assert_eq!(file.attributes_covered(), None);
    fixture.ost().script.lock().size_elsewhere = 1 << 20;
    assert_eq!(fixture.size(&file), 1 << 20);
    fixture.wait(Duration::from_secs(2));
    assert_eq!(fixture.ost().bytes(resource(0)), pattern(4096));
}

#[test]
fn an_answer_from_before_a_write_does_not_take_its_bytes_back() {
    for kind in ["lock", "glimpse"] {
        let fixture = Fixture::new(1 << 20);
        fixture.ost().script.lock().narrow = true;
        let file = fixture.file(1);
        fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
        let held = fixture.ost().blocking();
        let mut script = fixture.ost().script.lock();
        (script.late, script.busy) = (Some(kind), true);
        drop(script);
        let reader = Arc::clone(&file);
        let seen = Arc::new(Mutex::new(None));
        let see = Arc::clone(&seen);
        let read = async move {
            let known = match kind {
                "lock" => {
                    reader.read(1 << 20, 4096, CACHED).await.expect("nothing there");
                    reader.attributes().await
                }
                _ => reader.attributes().await,
            };
            *see.lock() = Some(known.expect("attributes").size);
        };
        fixture.world.world().tasks.spawn("read", Box::pin(read));
        fixture.wait(Duration::from_secs(3));
        assert_eq!(fixture.ost().bytes(resource(0)), pattern(4096), "{kind}: written meanwhile");
        fixture.ost().release_held();
        // Nothing that is asked now helps: what the late answer brought has to do.
        fixture.ost().script.lock().hold = Some("glimpse");
        fixture.world.settle();
        let value = fixture.locks[0].on_glimpse(&held[0]).expect("we know");
        let size = u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
        assert_eq!(size, 4096, "{kind}");
        fixture.ost().release_held();
        fixture.world.settle();
        assert_eq!(*seen.lock(), Some(4096), "{kind}");
    }
}

#[test]
fn locks_of_gone_files_go_together_and_those_over_dirty_bytes_stay() {
    let fixture = Fixture::new(1 << 20);
    let files = [10, 11, 12].map(|object| {
        let stripe = Stripe { ost: 0, object: Fid { oid: object, ..object_fid(0) } };
        let raid0 = Raid0::new(STRIPE, 1).expect("a legal layout");
        let layout = Arc::new(Layout::plain(1, raid0, Box::new([stripe])));
        let file = fixture.file_by(Arc::clone(&layout));
        fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
        (file, layout)
    });
    for (file, _) in &files[..2] {
        fixture.sync(file).expect("written");
    }
    fixture.ost().take_asked();
    files.iter().for_each(|(_, layout)| fixture.osts.note_gone(layout));
    fixture.wait(Duration::from_millis(300));
    assert_eq!(fixture.ost().take_asked(), ["cancel 2"]);
    fixture.lose_locks();
    assert_eq!(fixture.ost().take_asked(), ["write 0+4096 used 4096", "cancel 1"]);
}

#[test]
fn we_answer_for_what_we_have_not_written_yet() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(100), pattern(50), CACHED).expect("accepted");
    let callbacks = fixture.ost().blocking();
    let value = fixture.locks[0].on_glimpse(&callbacks[0]).expect("we know");
    let size = u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
    assert_eq!(size, 150);
}

#[test]
fn a_lock_unused_for_long_is_cancelled_when_another_client_glimpses_it() {
    for (limit, goes) in [(20, false), (10, true)] {
        let fixture = Fixture::new(1 << 20);
        fixture.locks[0].engine().set_dirty_age(Duration::from_secs(limit));
        let file = fixture.file(1);
        fixture.write(&file, WriteAt::Offset(0), pattern(50), CACHED).expect("accepted");
        let callbacks = fixture.ost().blocking();
        fixture.wait(Duration::from_secs(15));
        fixture.ost().take_asked();
        fixture.locks[0].on_glimpse(&callbacks[0]).expect("we know");
        fixture.wait(Duration::from_millis(10));
        assert_eq!(!fixture.ost().take("cancel").is_empty(), goes);
    }
}

#[test]
fn we_answer_for_no_size_that_our_locks_do_not_cover() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    {
        let mut script = fixture.ost().script.lock();
        (script.narrow, script.busy, script.size_elsewhere) = (true, true, 10_000);
    }
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    assert_eq!(fixture.size(&file), 10_000, "another client has written behind");
    let callbacks = fixture.ost().blocking();
    for _ in 0..2 {
        // That client may truncate it again, and we would not be notified.
        let value = fixture.locks[0].on_glimpse(&callbacks[0]).expect("we know");
        assert_eq!(u64::from_le_bytes(value[..8].try_into().expect("eight bytes")), 4096);
        fixture.sync(&file).expect("written");
    }
}

#[test]
fn at_the_end_everything_is_written_and_cancelled() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(2);
    fixture.write(&file, WriteAt::Offset(0), pattern(2 << 20), CACHED).expect("accepted");
    let path = Arc::clone(&fixture.osts);
    let synced = Arc::clone(&path);
    let sync = async move { crate::data::DataPath::sync_all(&*synced).await };
    assert_eq!(fixture.world.run(sync), Ok(()));
    for (index, fake) in (0..).zip(&fixture.fakes) {
        assert_eq!(fake.bytes(resource(index)).len(), 1 << 20);
        assert_eq!(fake.take("sync"), ["sync"]);
    }
    fixture.world.run(async move { crate::data::DataPath::shut_down(&*path).await });
    for (index, fake) in (0..).zip(&fixture.fakes) {
        assert_eq!(fake.bytes(resource(index)).len(), 1 << 20);
        assert_eq!(fake.take("cancel"), ["cancel 1"]);
    }
}

#[test]
fn a_value_that_is_older_than_that_of_the_lock_on_the_end_does_not_cut_a_read() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), pattern(410_000).to_vec());
    fixture.ost().script.lock().narrow = true;
    let file = fixture.file(1);
    // A lock on the beginning is granted while the object is short, and its answer is late.
    fixture.ost().script.lock().late = Some("lock");
    let reader = Arc::clone(&file);
    let first = async move {
        reader.read(0, 4096, CACHED).await.expect("the beginning");
    };
    fixture.world.world().tasks.spawn("first", Box::pin(first));
    fixture.world.settle();
    fixture.ost().set_bytes(resource(0), pattern(500_000).to_vec());
    {
        let mut script = fixture.ost().script.lock();
        (script.late, script.narrow) = (None, false);
    }
    // The same for one on the end: what it says holds.
    let read = fixture.read(&file, 409_600, 4096, CACHED);
    assert_eq!(read.map(|bytes| bytes.len()), Ok(4096));
    fixture.ost().release_held();
    fixture.world.settle();
    assert_eq!(fixture.size(&file), 500_000);
    let read = fixture.read(&file, 409_600, 4096, CACHED);
    assert_eq!(read.map(|bytes| bytes.len()), Ok(4096));
}
