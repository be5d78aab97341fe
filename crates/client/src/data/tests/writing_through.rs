//! Writes past the dirty bytes: direct ones, synchronous ones, those without grant, and how they are ordered.

use std::time::Duration;

use bytes::Bytes;
use sheen_types::{Errno, Extent, Timestamp};

use super::{CACHED, DIRECT, Fixture, GROWING, errno, pattern, resource};
use crate::data::WriteAt;
use crate::types::Fallocate;

fn nines(length: usize) -> Bytes {
    vec![9; length].into()
}

#[test]
fn a_direct_write_waits_for_an_older_one_of_the_same_bytes() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().script.lock().hold = Some("write");
    let older = fixture.begin_write(&file, 0, pattern(4096), DIRECT);
    let newer = fixture.begin_write(&file, 2048, nines(4096), DIRECT);
    let beside = fixture.begin_write(&file, 8192, nines(10), DIRECT);
    let asked = fixture.ost().take("write");
    assert_eq!(asked, ["write 0+4096", "write 8192+10"], "other bytes do not wait");
    fixture.ost().release_held();
    fixture.world.settle();
    let outcomes = [older, newer, beside].map(|write| write.outcome());
    assert_eq!(outcomes, [Some(Ok(0)), Some(Ok(2048)), Some(Ok(8192))]);
    let expected = [&pattern(4096)[..2048], &nines(4096)].concat();
    assert_eq!(fixture.ost().bytes(resource(0))[..6144], expected);
}

/// An OST of Lustre would lose bytes of one of them.
#[test]
fn writes_of_one_page_are_not_under_way_at_once() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().script.lock().hold = Some("write");
    let older = fixture.begin_write(&file, 0, pattern(512), DIRECT);
    let newer = fixture.begin_write(&file, 1024, nines(512), DIRECT);
    fixture.write(&file, WriteAt::Offset(2048), nines(100), CACHED).expect("accepted");
    fixture.write(&file, WriteAt::Offset(4096), nines(100), CACHED).expect("accepted");
    let punch = fixture.begin(&file, |file| async move {
        file.fallocate(Fallocate::PunchHole, Extent { start: 3000, end: 4095 }, GROWING)
            .await
            .map_err(errno)
    });
    fixture.wait(Duration::from_secs(3));
    assert_eq!(fixture.ost().take("write"), ["write 0+512", "write 4096+100 used 4096"]);
    assert_eq!(fixture.ost().take("fallocate"), Vec::<String>::new());
    fixture.ost().release_held();
    fixture.sync(&file).expect("durable");
    let mut later = fixture.ost().take("write");
    later.sort();
    assert_eq!(later, ["write 1024+512", "write 2048+100 used 4096"]);
    assert_eq!([older.outcome(), newer.outcome()], [Some(Ok(0)), Some(Ok(1024))]);
    assert_eq!(punch.outcome(), Some(Ok(())));
}

#[test]
fn a_cached_write_is_flushed_after_an_older_direct_one_of_the_same_bytes() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().script.lock().hold = Some("write");
    let older = fixture.begin_write(&file, 0, pattern(4096), DIRECT);
    fixture.write(&file, WriteAt::Offset(0), nines(4096), CACHED).expect("accepted");
    fixture.wait(Duration::from_secs(3));
    assert_eq!(fixture.ost().take("write"), ["write 0+4096"], "the newer one waits");
    assert_eq!(fixture.read(&file, 0, 4096, CACHED), Ok(nines(4096)), "the newest");
    fixture.ost().release_held();
    fixture.sync(&file).expect("durable");
    assert_eq!(older.outcome(), Some(Ok(0)));
    assert_eq!(fixture.ost().bytes(resource(0)), nines(4096));
}

#[test]
fn a_direct_write_does_not_go_over_a_newer_cached_one_in_a_read_that_is_under_way() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 4096]);
    let file = fixture.file(1);
    fixture.ost().script.lock().hold = Some("read");
    let read = fixture.begin(&file, |file| async move {
        let pieces = file.read(0, 4096, CACHED).await.expect("read");
        pieces.concat()
    });
    fixture.ost().script.lock().late = Some("write");
    let older = fixture.begin_write(&file, 0, pattern(4096), DIRECT);
    fixture.write(&file, WriteAt::Offset(0), nines(4096), CACHED).expect("accepted");
    {
        // The write is answered first.
        let mut script = fixture.ost().script.lock();
        script.late = None;
    }
    fixture.ost().wake_held();
    fixture.world.settle();
    assert_eq!(older.outcome(), Some(Ok(0)));
    fixture.ost().release_held();
    fixture.world.settle();
    assert_eq!(read.outcome().map(Bytes::from), Some(nines(4096)));
}

#[test]
fn a_truncate_waits_for_a_direct_write_whose_caller_was_killed() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().script.lock().hold = Some("write");
    fixture.begin_write(&file, 4096, pattern(4096), DIRECT).kill(&fixture);
    let truncate = fixture.begin(&file, |file| async move {
        file.truncate(0, Timestamp::from_seconds(1), GROWING).await
    });
    assert_eq!(fixture.ost().take("punch"), Vec::<String>::new(), "the write is not answered");
    fixture.ost().release_held();
    fixture.world.settle();
    assert_eq!(truncate.outcome(), Some(Ok(())));
    assert_eq!(fixture.ost().bytes(resource(0)), Vec::<u8>::new(), "the write came first");
    assert_eq!(fixture.size(&file), 0);
}

#[test]
fn a_lock_stays_until_a_direct_write_whose_caller_was_killed_is_answered() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().script.lock().hold = Some("write");
    fixture.begin_write(&file, 0, pattern(4096), DIRECT).kill(&fixture);
    fixture.lose_locks();
    fixture.wait(Duration::from_secs(5));
    assert_eq!(fixture.ost().take("cancel"), Vec::<String>::new());
    fixture.ost().release_held();
    fixture.world.settle();
    assert_eq!(fixture.ost().take("cancel"), ["cancel 1"]);
    assert_eq!(fixture.ost().bytes(resource(0)), pattern(4096));
}

#[test]
fn writes_of_different_bytes_without_grant_are_under_way_at_once() {
    let fixture = Fixture::new(0);
    let file = fixture.file(1);
    fixture.ost().script.lock().hold = Some("write");
    let both = [0, 4096].map(|at| fixture.begin_write(&file, at, pattern(4096), CACHED));
    assert_eq!(fixture.ost().take("write"), ["write 0+4096", "write 4096+4096"]);
    fixture.ost().release_held();
    fixture.world.settle();
    assert_eq!(both.map(|write| write.outcome()), [Some(Ok(0)), Some(Ok(4096))]);
}

#[test]
fn a_direct_write_that_fails_leaves_nothing_that_reads_show() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().set_bytes(resource(0), vec![1; 100]);
    fixture.ost().script.lock().hold = Some("write");
    fixture.ost().refuse("write", Errno::ENOSPC);
    let write = fixture.begin_write(&file, 0, pattern(4096), DIRECT);
    fixture.read(&file, 0, 4096, CACHED).expect("read");
    fixture.events.invalidated.lock().clear();
    fixture.ost().release_held();
    fixture.world.settle();
    assert_eq!(write.outcome(), Some(Err(Errno::ENOSPC)));
    assert_eq!(fixture.size(&file), 100);
    assert_eq!(fixture.read(&file, 0, 4096, CACHED), Ok(vec![1; 100].into()));
    // A cached read beside the write may have shown the kernel what is not on the OST.
    assert_eq!(fixture.events.invalidated.lock()[..], [Extent { start: 0, end: 4095 }]);
    assert_eq!(fixture.failures(), [], "the caller has its answer");
}
