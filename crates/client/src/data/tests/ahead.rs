//! What reads ahead cost at the OSTs: bytes and requests, by pattern.

use std::sync::Arc;

use sheen_types::PAGE_BYTES as PAGE;

use super::{CACHED, Fixture, STRIPE, pattern, resource};
use crate::data::DataFile;

/// IOR-hard's.
const RECORD: u64 = 47_008;
const RANKS: u64 = 8;

/// A file of one object that a test reads, each page once as the kernel does.
struct Reading {
    fixture: Fixture,
    file: Arc<dyn DataFile>,
    data: bytes::Bytes,
    had: Vec<bool>,
    read: u64,
}

impl Reading {
    fn of(bytes: usize) -> Self {
        let fixture = Fixture::new(1 << 20);
        let data = pattern(bytes);
        fixture.ost().set_bytes(resource(0), data.to_vec());
        let file = fixture.file(1);
        assert_eq!(fixture.size(&file), bytes as u64);
        fixture.ost().take_asked();
        let had = vec![false; bytes.div_ceil(PAGE as usize)];
        Self { fixture, file, data, had, read: 0 }
    }

    /// A program reads these bytes: of their pages those that the kernel has not.
    fn read(&mut self, start: u64, length: u64) {
        let end = (start + length).min(self.data.len() as u64);
        let pages = (start / PAGE) as usize..end.div_ceil(PAGE) as usize;
        let new: Vec<usize> =
            pages.filter(|page| !std::mem::replace(&mut self.had[*page], true)).collect();
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return };
        assert_eq!(last - first + 1, new.len(), "in one piece");
        let (from, to) = (*first as u64 * PAGE, (*last as u64 + 1) * PAGE);
        let read = self.fixture.read(&self.file, from, (to - from) as u32, CACHED).expect("read");
        let wanted = self.data.slice(from as usize..(to as usize).min(self.data.len()));
        assert!(read == wanted, "at {from}");
        self.read += wanted.len() as u64;
        self.fixture.world.settle();
    }

    /// Requests, and bytes that they asked for.
    fn asked(&self) -> (u64, u64) {
        let asked = self.fixture.ost().take("read");
        let bytes =
            |line: &String| line.rsplit('+').next().and_then(|bytes| bytes.parse::<u64>().ok());
        (asked.len() as u64, asked.iter().filter_map(bytes).sum())
    }

    /// The part of what was read that was read ahead.
    fn hits(&self) -> f64 {
        let samples = self.fixture.osts.read_ahead().samples();
        let count = |name| {
            let line = samples.iter().find(|samples| samples.line.name == name);
            line.map_or(0, |samples| samples.count) as f64
        };
        count("hits") / (count("hits") + count("misses"))
    }
}

#[test]
fn random_reads_are_as_many_requests_for_what_they_read() {
    let mut reading = Reading::of(256 << 20);
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..1000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        reading.read(state % (256 << 8) * PAGE, PAGE);
    }
    let (requests, bytes) = reading.asked();
    let read = reading.read;
    assert!(bytes <= read * 11 / 10, "{bytes} for {read}");
    assert!(requests <= read / PAGE * 11 / 10, "{requests} requests");
}

#[test]
fn reads_in_order_are_a_request_for_each_mebibyte() {
    let mut reading = Reading::of(32 << 20);
    for at in (0..32 << 20).step_by(128 << 10) {
        reading.read(at, 128 << 10);
    }
    let (requests, bytes) = reading.asked();
    assert_eq!((bytes, reading.read), (32 << 20, 32 << 20));
    assert!(requests <= 36, "{requests}");
    assert!(reading.hits() > 0.99, "{}", reading.hits());
}

/// The records of all ranks, each rank's in order; which rank's turn it is `next` says.
fn read_hard(reading: &mut Reading, rounds: u64, mut next: impl FnMut(u64, u64) -> u64) {
    for round in 0..rounds {
        for turn in 0..RANKS {
            let rank = next(round, turn);
            reading.read((round * RANKS + rank) * RECORD, RECORD);
        }
    }
}

#[test]
fn records_of_all_ranks_come_by_few_requests() {
    let orders: [fn(u64, u64) -> u64; 3] =
        [|_, turn| turn, |_, turn| RANKS - 1 - turn, |round, turn| (turn * 3 + round * 5) % RANKS];
    for (number, order) in orders.into_iter().enumerate() {
        let rounds = 60;
        let mut reading = Reading::of((rounds * RANKS * RECORD) as usize);
        read_hard(&mut reading, rounds, order);
        let (requests, bytes) = reading.asked();
        let read = reading.read;
        assert!(bytes <= read * 21 / 20, "order {number}: {bytes} for {read}");
        assert!(requests <= read / (1 << 20) + 40, "order {number}: {requests} for {read}");
        assert!(reading.hits() >= 0.9, "order {number}: {}", reading.hits());
    }
}

#[test]
fn records_of_one_rank_are_read_ahead_and_those_of_other_ranks_are_not() {
    let rounds = 150;
    let mut reading = Reading::of((rounds * RANKS * RECORD) as usize);
    for round in 0..rounds {
        reading.read((round * RANKS + 3) * RECORD, RECORD);
    }
    let (requests, bytes) = reading.asked();
    let read = reading.read;
    assert!(reading.hits() >= 0.9, "{}", reading.hits());
    assert!(bytes <= read * 13 / 10, "{bytes} for {read}");
    assert!(requests <= rounds * 11 / 10, "{requests} for {rounds} records");
}

#[test]
fn what_is_read_backwards_comes_by_large_requests() {
    let mut reading = Reading::of(16 << 20);
    for block in (0..256).rev() {
        reading.read(block * (64 << 10), 64 << 10);
    }
    let (requests, bytes) = reading.asked();
    assert_eq!(bytes, 16 << 20);
    assert!(requests < 40, "{requests}");
    assert!(reading.hits() >= 0.95, "{}", reading.hits());
}

#[test]
fn two_streams_in_turns_are_both_followed() {
    let mut reading = Reading::of(16 << 20);
    for at in (0..8 << 20).step_by(64 << 10) {
        reading.read(at, 64 << 10);
        reading.read((8 << 20) + at, 64 << 10);
    }
    let (requests, bytes) = reading.asked();
    assert_eq!(bytes, 16 << 20);
    assert!(requests < 30, "{requests}");
    assert!(reading.hits() >= 0.95, "{}", reading.hits());
}

#[test]
fn what_another_client_has_locked_is_not_read_ahead() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 8 << 20]);
    (fixture.ost().script.lock().narrow, fixture.ost().script.lock().busy) = (true, true);
    let file = fixture.file(1);
    assert_eq!(fixture.size(&file), 8 << 20);
    fixture.ost().take_asked();
    fixture.ost().script.lock().conflicts = true;
    for at in (0..1 << 20).step_by(128 << 10) {
        fixture.read(&file, at, 128 << 10, CACHED).expect("read");
    }
    let asked = fixture.ost().take_asked();
    let (locks, reads): (Vec<_>, Vec<_>) = asked.into_iter().partition(|it| it.starts_with("lock"));
    assert_eq!(reads.len(), 8, "{reads:?}");
    let ahead = locks.iter().filter(|line| line.ends_with("ahead")).count();
    assert_eq!((locks.len() - ahead, ahead), (8, 1), "it is asked once: {locks:?}");
}

#[test]
fn a_file_on_several_osts_is_read_ahead_before_each_has_given_a_lock() {
    let fixture = Fixture::new(1 << 20);
    let stripe = STRIPE as usize;
    fixture.fakes[0].set_bytes(resource(0), vec![1; 8 * stripe]);
    fixture.fakes[1].set_bytes(resource(1), vec![2; 8 * stripe]);
    for fake in &fixture.fakes {
        fake.script.lock().busy = true;
    }
    let file = fixture.file(2);
    assert_eq!(fixture.size(&file), 16 << 20);
    fixture.fakes[1].take_asked();
    for at in 0..4 {
        fixture.read(&file, at << 20, 1 << 20, CACHED).expect("read");
        fixture.world.settle();
    }
    assert_eq!(fixture.fakes[1].take("lock").len(), 1, "one for all that is fetched");
}
