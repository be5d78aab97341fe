//! Reads: what is cached, what comes from the OSTs, holes, ends, and reading ahead.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_types::Errno;

use super::{CACHED, DIRECT, Fixture, STRIPE, pattern, resource};
use crate::data::WriteAt;

#[test]
fn a_small_read_is_one_request() {
    let fixture = Fixture::new(1 << 20);
    let data = pattern(1 << 20);
    fixture.ost().set_bytes(resource(0), data.to_vec());
    let file = fixture.file(1);
    assert_eq!(fixture.read(&file, 8192, 4096, DIRECT), Ok(data.slice(8192..12288)));
    assert_eq!(fixture.ost().take_asked(), ["lock Pr 8192..=12287", "read 8192+4096"]);
    assert_eq!(fixture.read(&file, 500_000, 4096, DIRECT), Ok(data.slice(500_000..504_096)));
    assert_eq!(fixture.ost().take_asked(), ["read 500000+4096"], "the lock covers it");
}

#[test]
fn a_read_across_stripes_asks_each_ost_for_its_part() {
    let fixture = Fixture::new(1 << 20);
    let stripe = STRIPE as usize;
    let data = pattern(2 * stripe);
    fixture.fakes[0].set_bytes(resource(0), data[..stripe].to_vec());
    fixture.fakes[1].set_bytes(resource(1), data[stripe..].to_vec());
    let file = fixture.file(2);
    let from = stripe - 100;
    let read = fixture.read(&file, from as u64, 300, DIRECT);
    assert_eq!(read, Ok(data.slice(from..from + 300)));
    assert_eq!(fixture.fakes[0].take("read"), ["read 1048476+100"]);
    assert_eq!(fixture.fakes[1].take("read"), ["read 0+200"]);
}

#[test]
fn holes_are_zeros_and_the_end_is_the_end() {
    let fixture = Fixture::new(1 << 20);
    let stripe = STRIPE as usize;
    // The first object ends early, and the second says that the file goes on.
    fixture.fakes[0].set_bytes(resource(0), vec![1; 1000]);
    fixture.fakes[1].set_bytes(resource(1), vec![2; 500]);
    let file = fixture.file(2);
    let read = fixture.read(&file, 0, 2 * STRIPE, DIRECT).expect("read");
    let expected = [vec![1; 1000], vec![0; stripe - 1000], vec![2; 500]].concat();
    assert!(read == expected, "{} bytes", read.len());
    assert_eq!(fixture.read(&file, u64::from(STRIPE) + 500, 10, DIRECT), Ok(Bytes::new()));
    assert_eq!(fixture.read(&file, 0, 0, CACHED), Ok(Bytes::new()));
}

#[test]
fn what_a_server_sends_from_behind_the_end_is_no_data() {
    for options in [DIRECT, CACHED] {
        let fixture = Fixture::new(1 << 20);
        fixture.ost().set_bytes(resource(0), vec![7; 5000]);
        fixture.ost().script.lock().fills_pages = true;
        let file = fixture.file(1);
        assert_eq!(fixture.read(&file, 0, 8192, options), Ok(vec![7; 5000].into()));
        assert_eq!(fixture.read(&file, 4096, 4096, options), Ok(vec![7; 904].into()));
        assert_eq!(fixture.read(&file, 5000, 100, options), Ok(Bytes::new()));
    }
}

#[test]
fn what_is_dirty_is_read_from_the_cache_with_the_rest_around_it() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 10_000]);
    let file = fixture.file(1);
    let dirty = Bytes::from(vec![9; 1000]);
    fixture.write(&file, WriteAt::Offset(4000), dirty.clone(), CACHED).expect("accepted");
    fixture.write(&file, WriteAt::Offset(12_000), dirty.clone(), CACHED).expect("accepted");
    let expected =
        [vec![1; 4000], vec![9; 1000], vec![1; 5000], vec![0; 2000], vec![9; 1000]].concat();
    assert_eq!(fixture.read(&file, 0, 1 << 16, CACHED), Ok(expected.clone().into()));
    assert_eq!(fixture.ost().take("write"), Vec::<String>::new());
    assert_eq!(fixture.read(&file, 0, 1 << 16, DIRECT), Ok(expected.into()));
    assert_eq!(fixture.ost().take("write").len(), 1, "a direct read writes it first");
}

#[test]
fn a_stream_is_fetched_ahead_and_each_byte_once() {
    let fixture = Fixture::new(1 << 20);
    let data = pattern(8 << 20);
    fixture.ost().set_bytes(resource(0), data.to_vec());
    let file = fixture.file(1);
    assert_eq!(fixture.size(&file), 8 << 20);
    for at in (0..8 << 20).step_by(128 << 10) {
        let read = fixture.read(&file, at as u64, 128 << 10, CACHED).expect("read");
        assert!(read == data.slice(at..at + (128 << 10)), "at {at}");
    }
    let asked = fixture.ost().take("read");
    assert_eq!(asked[0], "read 0+131072");
    assert_eq!(asked[1..4], ["read 131072+262144", "read 393216+393216", "read 786432+262144"]);
    let whole = |line: &&String| line.ends_with("+1048576");
    assert_eq!((asked.len(), asked.iter().filter(whole).count()), (11, 7), "{asked:?}");
}

#[test]
fn two_readers_of_a_file_are_both_read_ahead_and_fetch_each_byte_once() {
    let fixture = Fixture::new(1 << 20);
    let data = pattern(16 << 20);
    fixture.ost().set_bytes(resource(0), data.to_vec());
    let file = fixture.file(1);
    assert_eq!(fixture.size(&file), 16 << 20);
    let step: usize = 47_008;
    for at in (0..8 << 20).step_by(step).take((8 << 20) / step) {
        for at in [at, (8 << 20) + at] {
            let read = fixture.read(&file, at as u64, step as u32, CACHED).expect("read");
            assert!(read == data.slice(at..at + step), "at {at}");
        }
    }
    let asked = fixture.ost().take("read");
    assert!(asked.len() < 30, "{}: {asked:?}", asked.len());
}

#[test]
fn nothing_is_fetched_ahead_behind_the_end() {
    let fixture = Fixture::new(1 << 20);
    let data = pattern(16 << 10);
    fixture.ost().set_bytes(resource(0), data.to_vec());
    let file = fixture.file(1);
    fixture.size(&file);
    assert_eq!(fixture.read(&file, 0, 4096, CACHED), Ok(data.slice(..4096)));
    assert_eq!(fixture.read(&file, 4096, 12 << 10, CACHED), Ok(data.slice(4096..)));
    assert_eq!(fixture.ost().take("read"), ["read 0+4096", "read 4096+12288"]);
}

#[test]
fn jumps_fetch_only_what_is_asked_for() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 64 << 20]);
    let file = fixture.file(1);
    fixture.size(&file);
    for at in [40 << 20, 20 << 20, 60 << 20, 5 << 20] {
        fixture.read(&file, at, 4096, CACHED).expect("read");
        assert_eq!(fixture.ost().take("read"), [format!("read {at}+4096")]);
    }
}

#[test]
fn what_was_fetched_ahead_before_a_write_is_not_what_is_read_after_it() {
    let fixture = Fixture::new(16 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 4 << 20]);
    let file = fixture.file(1);
    fixture.size(&file);
    fixture.read(&file, 0, 1 << 20, CACHED).expect("read");
    fixture.world.settle();
    fixture.ost().take_asked();
    // The next chunk is asked for and the answer takes its time...
    fixture.ost().script.lock().hold = Some("read");
    let inner = std::sync::Arc::clone(&file);
    let early = async move { drop(inner.read(1 << 20, 128 << 10, CACHED).await) };
    fixture.world.world().tasks.spawn("early", Box::pin(early));
    fixture.world.settle();
    let slow: Vec<_> = fixture.ost().take("read");
    assert_eq!(slow, ["read 3145728+1048576"]);
    // ... and brings what was there before a write that is over when it comes.
    fixture.ost().freeze(resource(0));
    let newer = Bytes::from(vec![2; 4096]);
    fixture.write(&file, WriteAt::Offset(3 << 20), newer.clone(), CACHED).expect("accepted");
    fixture.sync(&file).expect("written");
    fixture.ost().release_held();
    fixture.world.settle();
    fixture.ost().thaw();
    assert_eq!(fixture.read(&file, 3 << 20, 4096, CACHED), Ok(newer));
}

#[test]
fn data_that_comes_changed_is_asked_for_again_and_not_for_ever() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), pattern(4096).to_vec());
    let file = fixture.file(1);
    fixture.ost().script.lock().garble = 2;
    assert_eq!(fixture.read(&file, 0, 4096, DIRECT), Ok(pattern(4096)));
    assert_eq!(fixture.ost().take("read").len(), 3);
    fixture.ost().script.lock().garble = 100;
    assert_eq!(fixture.read(&file, 0, 4096, DIRECT), Err(Errno::EIO));
}

#[test]
fn an_ost_that_fails_fails_the_read_and_not_the_next() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), pattern(4096).to_vec());
    let file = fixture.file(1);
    fixture.ost().refuse("read", Errno::EIO);
    assert_eq!(fixture.read(&file, 0, 4096, CACHED), Err(Errno::EIO));
    assert_eq!(fixture.read(&file, 0, 4096, CACHED), Ok(pattern(4096)));
    fixture.lose_locks();
    fixture.ost().refuse("lock", Errno::EIO);
    assert_eq!(fixture.read(&file, 0, 4096, CACHED), Err(Errno::EIO));
}

/// Appends two records while a read of the file's end is on its way, which `brings` the OST's bytes late, and
/// answers what that read brings.
fn read_beside_two_appends(brings: impl FnOnce(&Fixture)) -> Bytes {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 64]);
    let file = fixture.file(1);
    let append = |byte| {
        let record = Bytes::from(vec![byte; 64]);
        fixture.write(&file, WriteAt::End(0), record, CACHED).expect("accepted");
    };
    append(2);
    fixture.sync(&file).expect("written");
    let (read, inner) = (Arc::new(Mutex::new(None)), Arc::clone(&file));
    fixture.ost().script.lock().hold = Some("read");
    let there = Arc::clone(&read);
    let reading = async move { *there.lock() = Some(inner.read(0, 4096, CACHED).await) };
    fixture.world.world().tasks.spawn("read", Box::pin(reading));
    fixture.world.settle();
    brings(&fixture);
    append(3);
    append(4);
    fixture.ost().release_held();
    fixture.world.settle();
    let read = read.lock().take().expect("answered");
    read.expect("read").concat().into()
}

#[test]
fn a_read_shows_no_hole_where_the_later_of_two_appends_is_on_the_ost_first() {
    let read = read_beside_two_appends(|fixture| {
        let hole = [vec![1; 64], vec![2; 64], vec![0; 64], vec![4; 64]].concat();
        fixture.ost().set_bytes(resource(0), hole);
        fixture.ost().freeze(resource(0));
    });
    assert!(!read.contains(&0) && read.len() >= 128, "{read:?}");
}

#[test]
fn a_read_that_an_ost_fills_up_shows_no_zeros_where_it_is_appended_to_meanwhile() {
    let read = read_beside_two_appends(|fixture| {
        fixture.ost().script.lock().fills_pages = true;
        fixture.ost().freeze(resource(0));
    });
    assert!(!read.contains(&0) && read.len() >= 128, "{read:?}");
}
