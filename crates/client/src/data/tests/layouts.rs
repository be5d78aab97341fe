//! Files whose bytes lie in components, and layouts that change under a call.

use std::sync::Arc;

use sheen_layout::{Body, Layout, Raid0, Stripe};
use sheen_types::{Errno, Extent, Timestamp};

use super::{CACHED, Fixture, GROWING, STRIPE, object_fid, pattern, resource};
use crate::data::{DataFile, Refusal, WriteAt};
use crate::types::{Credentials, Seek};

const MIB: u64 = 1 << 20;

fn striped(ost: u32) -> Body {
    let raid0 = Raid0::new(STRIPE, 1).expect("a legal layout");
    Body::Striped { raid0, stripes: Box::new([Stripe { ost, object: object_fid(ost) }]) }
}

/// One MiB on the first OST, one on the second, if that is there; nothing behind.
fn composite(second: Body) -> Arc<Layout> {
    let extent = |mib: u64| Extent { start: mib * MIB, end: (mib + 1) * MIB - 1 };
    let components = [(1, extent(0), striped(0)), (2, extent(1), second)];
    Arc::new(Layout::new(3, components).expect("a legal layout"))
}

fn write(
    fixture: &Fixture,
    file: &Arc<dyn DataFile>,
    at: WriteAt,
    length: usize,
) -> Result<u64, Refusal> {
    let data = pattern(length);
    fixture.run(file, move |file| async move {
        file.write(at, data, &Credentials::root(), CACHED).await
    })
}

#[test]
fn bytes_go_round_over_components() {
    let fixture = Fixture::new(4 << 20);
    let file = fixture.file_by(composite(striped(1)));
    let data = pattern(MIB as usize);
    let at = WriteAt::Offset(MIB / 2);
    assert_eq!(fixture.write(&file, at, data.clone(), CACHED), Ok(MIB / 2));
    assert_eq!(fixture.size(&file), MIB + MIB / 2);
    fixture.sync(&file).expect("written");
    let read = fixture.read(&file, MIB / 2, MIB as u32 * 2, CACHED).expect("read");
    assert!(read == data, "other bytes than were written");
    // In the object the second component's bytes lie where they lie in the file.
    let runs = fixture.fakes[1].bytes(resource(1));
    assert_eq!(runs.len() as u64, MIB + MIB / 2);
    assert!(runs[..MIB as usize].iter().all(|byte| *byte == 0));

    let time = Timestamp::from_seconds(9);
    let cut = |size| {
        fixture.run(&file, move |file| async move { file.truncate(size, time, GROWING).await })
    };
    cut(MIB - 7).expect("cut");
    assert_eq!((fixture.size(&file), fixture.fakes[1].bytes(resource(1)).len()), (MIB - 7, 0));
}

#[test]
fn what_has_no_objects_is_asked_for_and_reads_as_a_hole() {
    let fixture = Fixture::new(4 << 20);
    let file = fixture.file_by(composite(Body::Absent));
    assert_eq!(write(&fixture, &file, WriteAt::Offset(0), MIB as usize), Ok(0));
    let extent = Extent { start: MIB - 1, end: MIB };
    let refused = Err(Refusal::NoObjects(extent));
    assert_eq!(write(&fixture, &file, WriteAt::Offset(MIB - 1), 2), refused);
    let extent = Extent { start: MIB, end: MIB + 1 };
    assert_eq!(write(&fixture, &file, WriteAt::End(MIB), 2), Err(Refusal::NoObjects(extent)));
    assert_eq!(fixture.size(&file), MIB, "a refused write left something");
    let read = fixture.read(&file, MIB - 4, 8, CACHED).expect("read");
    assert_eq!(read.len(), 4);
    // Behind the last component nothing can ever be.
    let behind = write(&fixture, &file, WriteAt::Offset(2 * MIB), 2);
    assert_eq!(behind, Err(Refusal::Errno(Errno::ENODATA)));
}

#[test]
fn what_lies_behind_the_last_component_is_left_out() {
    let fixture = Fixture::new(4 << 20);
    let file = fixture.file_by(composite(striped(1)));
    let (before, end) = (2 * MIB - 3, 2 * MIB);
    assert_eq!(write(&fixture, &file, WriteAt::Offset(before), 8), Ok(before));
    assert_eq!(fixture.size(&file), end);
    let refused = Err(Refusal::Errno(Errno::ENODATA));
    assert_eq!(write(&fixture, &file, WriteAt::End(end), 8), refused);
    assert_eq!(write(&fixture, &file, WriteAt::Offset(end), 0), Ok(end));
    let time = Timestamp::from_seconds(9);
    let cut = |size| {
        fixture.run(&file, move |file| async move { file.truncate(size, time, GROWING).await })
    };
    cut(before).expect("cut");
    assert_eq!(write(&fixture, &file, WriteAt::End(before), 8), Ok(before));
    assert_eq!(fixture.size(&file), end);
}

#[test]
fn a_layout_that_may_have_changed_is_looked_at_again() {
    let fixture = Fixture::new(4 << 20);
    let file = fixture.file(1);
    assert_eq!(write(&fixture, &file, WriteAt::Offset(0), 10), Ok(0));
    fixture.layout_guard.layout_revoked();
    assert_eq!(write(&fixture, &file, WriteAt::Offset(0), 20), Err(Refusal::Stale));
    let read = fixture.run(&file, |file| async move { file.read(0, 10, CACHED).await });
    assert!(matches!(read, Err(Refusal::Stale)));
    let attributes = fixture.run(&file, |file| async move { file.attributes().await });
    assert!(matches!(attributes, Err(Refusal::Stale)));
    assert!(file.attributes_covered().is_none());
    let again = file.with_version(fixture.layout_guard.version());
    assert_eq!(write(&fixture, &again, WriteAt::Offset(10), 10), Ok(10));
    assert_eq!(fixture.size(&again), 20);
}

#[test]
fn who_holds_a_file_reads_what_was_written_before_and_finds_its_holes() {
    let fixture = Fixture::new(4 << 20);
    let file = fixture.file_by(composite(striped(1)));
    let (low, high) = (pattern(4096), pattern(8192));
    fixture.write(&file, WriteAt::Offset(0), low.clone(), CACHED).expect("accepted");
    fixture.write(&file, WriteAt::Offset(MIB), high.clone(), CACHED).expect("accepted");
    let locked = fixture.run(&file, |file| async move { file.group_lock(7, true).await });
    let locked = locked.expect("held");
    assert_eq!((locked.attributes().size, locked.is_intact()), (MIB + 8192, true));
    let read = |offset, length| {
        let locked = Arc::clone(&locked);
        fixture.world.run(async move { locked.read(offset, length).await }).expect("read").concat()
    };
    assert!(read(0, 4096) == low && read(MIB, 8192) == high);
    let next = |offset, what| {
        let locked = Arc::clone(&locked);
        fixture.world.run(async move { locked.next(offset, what).await }).expect("an answer")
    };
    assert_eq!(next(0, Seek::Hole), Some(4096));
    assert_eq!((next(4096, Seek::Data), next(MIB, Seek::Data)), (Some(MIB), Some(MIB)));
    fixture.locks[1].on_evicted();
    assert!(!locked.is_intact());
}

#[test]
fn what_could_get_objects_while_it_is_held_gets_them_before() {
    let fixture = Fixture::new(4 << 20);
    let file = fixture.file_by(composite(Body::Absent));
    let locked = fixture.run(&file, |file| async move { file.group_lock(7, true).await });
    let whole = Extent { start: 0, end: 2 * MIB - 1 };
    assert!(matches!(locked, Err(Refusal::NoObjects(extent)) if extent == whole));
}
