//! The largest size, cuts, allocation and holes.

use std::sync::Arc;

use bytes::Bytes;
use sheen_types::{Errno, Extent, Timestamp};

use super::{CACHED, DIRECT, Fixture, GROWING, Outcome, STRIPE, errno, pattern, resource};
use crate::data::{DataFile, WriteAt};
use crate::types::{Fallocate, Seek};

/// What one object holds.
const MAX: u64 = (1 << 44) - 4096;

fn truncate(fixture: &Fixture, file: &Arc<dyn DataFile>, size: u64) -> Outcome<()> {
    let time = Timestamp::from_seconds(70);
    fixture.run(
        file,
        move |file| async move { file.truncate(size, time, GROWING).await.map_err(errno) },
    )
}

fn allocate(
    fixture: &Fixture,
    file: &Arc<dyn DataFile>,
    what: Fallocate,
    range: (u64, u64),
) -> Outcome<()> {
    let (offset, length) = range;
    fixture.run(file, move |file| async move {
        let range = Extent::of_length(offset, length).ok_or(Errno::EFBIG)?;
        file.fallocate(what, range, GROWING).await.map_err(errno)
    })
}

fn seek(fixture: &Fixture, file: &Arc<dyn DataFile>, offset: u64, what: Seek) -> Outcome<u64> {
    fixture
        .run(file, move |file| async move { file.seek(offset, what, GROWING).await.map_err(errno) })
}

#[test]
fn a_write_beyond_what_the_osts_hold_is_refused_at_once() {
    let fixture = Fixture::new(8 << 20);
    let stripe = u64::from(STRIPE);
    // The last stripe of the first object is not whole: the rest end with the one before it.
    let striped = MAX / stripe * stripe * 2 + MAX % stripe;
    for (stripes, max) in [(1, MAX), (2, striped)] {
        let file = fixture.file(stripes);
        assert_eq!(file.bytes_max(), max);
        for options in [CACHED, DIRECT] {
            let write =
                |at, length| fixture.write(&file, WriteAt::Offset(at), pattern(length), options);
            assert_eq!(write(max, 1), Err(Errno::EFBIG));
            assert_eq!(write(max - 1, 2), Err(Errno::EFBIG));
            assert_eq!(write(u64::MAX, 2), Err(Errno::EFBIG));
            assert_eq!(write(max, 0), Ok(max), "nothing is nowhere");
        }
        for fake in &fixture.fakes {
            assert_eq!(fake.take("write"), Vec::<String>::new());
        }
    }
}

#[test]
fn the_last_byte_is_accepted() {
    let fixture = Fixture::new(8 << 20);
    let file = fixture.file(1);
    assert_eq!(fixture.write(&file, WriteAt::Offset(MAX - 2), pattern(2), CACHED), Ok(MAX - 2));
    assert_eq!(fixture.size(&file), MAX);
    // Not written back: the scripted OST keeps bytes in memory.
    fixture.run(&file, |file| async move { file.close(false).await });
}

#[test]
fn an_append_at_the_largest_size_is_refused() {
    let fixture = Fixture::new(8 << 20);
    fixture.ost().script.lock().size_elsewhere = MAX - 1;
    let file = fixture.file(1);
    assert_eq!(fixture.write(&file, WriteAt::End(0), pattern(2), CACHED), Err(Errno::EFBIG));
}

#[test]
fn what_is_cut_is_not_written_and_its_grant_comes_back() {
    let fixture = Fixture::new(64 << 10);
    let file = fixture.file(1);
    let data = pattern(64 << 10);
    fixture.write(&file, WriteAt::Offset(0), data.clone(), CACHED).expect("accepted");
    truncate(&fixture, &file, 8192).expect("cut");
    assert_eq!(fixture.size(&file), 8192);
    let asked = fixture.ost().take_asked();
    assert_eq!(asked, ["lock Pw 0..=65535", "write 0+8192 used 8192", "punch 8192"]);
    assert_eq!(fixture.ost().bytes(resource(0)), data.slice(..8192));
    // What was never written may be dirty again.
    fixture.write(&file, WriteAt::Offset(8192), data.slice(..56 << 10), CACHED).expect("accepted");
    assert_eq!(fixture.ost().take("write"), Vec::<String>::new());
    truncate(&fixture, &file, 0).expect("cut");
    assert_eq!(fixture.size(&file), 0);
    assert_eq!(fixture.read(&file, 0, 10, CACHED), Ok(Bytes::new()));
}

#[test]
fn a_cut_of_a_striped_file_is_a_cut_of_each_object() {
    let fixture = Fixture::new(8 << 20);
    let file = fixture.file(2);
    fixture.write(&file, WriteAt::Offset(0), pattern(4 << 20), CACHED).expect("accepted");
    truncate(&fixture, &file, (2 << 20) + 5).expect("cut");
    assert_eq!(fixture.fakes[0].take("punch"), ["punch 1048581"]);
    assert_eq!(fixture.fakes[1].take("punch"), ["punch 1048576"]);
    assert_eq!(fixture.size(&file), (2 << 20) + 5);
}

#[test]
fn each_mode_of_fallocate_goes_to_the_ost_after_what_is_dirty() {
    let fixture = Fixture::new(8 << 20);
    let file = fixture.file(1);
    let modes = [
        (Fallocate::Allocate, "0x0", 24576),
        (Fallocate::AllocateKeepSize, "0x1", 8192),
        (Fallocate::PunchHole, "0x3", 8192),
        (Fallocate::ZeroRange, "0x10", 24576),
        (Fallocate::ZeroRangeKeepSize, "0x11", 8192),
    ];
    for (what, mode, size) in modes {
        truncate(&fixture, &file, 0).expect("cut");
        fixture.write(&file, WriteAt::Offset(0), pattern(8192), CACHED).expect("accepted");
        fixture.ost().take_asked();
        allocate(&fixture, &file, what, (4096, 20480)).expect("done");
        let expected =
            ["write 4096+4096 used 4096".into(), format!("fallocate {mode} 4096..24576")];
        assert_eq!(fixture.ost().take_asked(), expected);
        assert_eq!(fixture.size(&file), size, "{what:?}");
    }
    let beyond = allocate(&fixture, &file, Fallocate::Allocate, (MAX - 1, 2));
    assert_eq!(beyond, Err(Errno::EFBIG));
    assert_eq!(allocate(&fixture, &file, Fallocate::PunchHole, (MAX - 1, 2)), Ok(()));
}

#[test]
fn holes_are_found_around_what_is_dirty() {
    let fixture = Fixture::new(8 << 20);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(8192), pattern(4096), CACHED).expect("accepted");
    assert_eq!(seek(&fixture, &file, 0, Seek::Data), Ok(8192));
    assert_eq!(seek(&fixture, &file, 0, Seek::Hole), Ok(0));
    assert_eq!(seek(&fixture, &file, 9000, Seek::Hole), Ok(12288), "the end is a hole");
    assert_eq!(seek(&fixture, &file, 12288, Seek::Data), Err(Errno::ENXIO));
    assert_eq!(seek(&fixture, &file, 12288, Seek::Hole), Err(Errno::ENXIO));
}

#[test]
fn an_object_that_ends_early_is_a_hole_of_its_file() {
    let fixture = Fixture::new(8 << 20);
    let file = fixture.file(2);
    let stripe = u64::from(STRIPE);
    // The second object is empty: all its stripes before the file's end are holes.
    fixture.write(&file, WriteAt::Offset(0), pattern(STRIPE as usize), CACHED).expect("accepted");
    let third = WriteAt::Offset(2 * stripe);
    fixture.write(&file, third, pattern(STRIPE as usize), CACHED).expect("accepted");
    assert_eq!(seek(&fixture, &file, 0, Seek::Hole), Ok(stripe));
    assert_eq!(seek(&fixture, &file, stripe, Seek::Data), Ok(2 * stripe));
    assert_eq!(seek(&fixture, &file, 2 * stripe, Seek::Hole), Ok(3 * stripe));
}

#[test]
fn times_that_a_program_chose_are_not_overtaken_by_writes() {
    let fixture = Fixture::new(8 << 20);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    let chosen = Timestamp::from_seconds(5);
    let done = fixture.run(&file, move |file| async move {
        file.set_times(Some(chosen), Some(chosen), Timestamp::from_seconds(80)).await
    });
    assert_eq!(done, Ok(()));
    let asked = fixture.ost().take_asked();
    assert_eq!(asked[1..], ["write 0+4096 used 4096", "setattr"]);
    let known = fixture.run(&file, |file| async move { file.attributes().await });
    assert_eq!(known.expect("attributes").mtime, chosen);
    fixture.run(&file, |file| async move { file.flush(Extent::ALL).await });
}

#[test]
fn a_lock_that_says_nothing_of_the_size_is_no_proof_of_what_was_known() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().set_bytes(resource(0), vec![1; 100]);
    assert_eq!(fixture.size(&file), 100);
    fixture.lose_locks();
    fixture.ost().set_bytes(resource(0), vec![2; 200]);
    fixture.ost().script.lock().no_value = true;
    assert_eq!(fixture.write(&file, WriteAt::End(0), pattern(10), CACHED), Ok(200));
    assert_eq!(fixture.size(&file), 210);
    fixture.lose_locks();
    fixture.ost().set_bytes(resource(0), vec![3; 300]);
    assert_eq!(fixture.read(&file, 0, 1000, CACHED), Ok(Bytes::from(vec![3; 300])));
}
