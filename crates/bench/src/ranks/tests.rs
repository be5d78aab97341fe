use std::sync::atomic::AtomicU64;

use super::*;
use crate::posix::Posix;

struct Meet;

impl Job for Meet {
    type Answer = Vec<u64>;

    fn run(&self, rank: &mut Rank, _: &mut dyn Worker) -> Result<Vec<u64>, Ended> {
        let mut sums = Vec::new();
        for round in 0..200 {
            let begun = rank.step()?;
            rank.done(begun);
            sums.push(rank.gather(round * rank.number as u64)?.iter().sum());
        }
        rank.barrier()?;
        assert_eq!(rank.broadcast(rank.number as u64 + 7)?, 7);
        let reals = rank.gather_reals(&[rank.number as f64 / 2.0])?;
        assert_eq!(reals[rank.size - 1], [(rank.size - 1) as f64 / 2.0]);
        Ok(sums)
    }
}

#[test]
fn every_rank_hears_every_word_of_its_round() {
    for size in [1, 2, 5] {
        let stop = AtomicBool::new(false);
        let sums =
            threads(size, &Posix::default(), Watch { stop: &stop, meter: None }, &Meet).unwrap();
        let ranks: u64 = (0..size as u64).sum();
        assert_eq!(sums, (0..200).map(|round| round * ranks).collect::<Vec<_>>());
    }
}

/// Rank 2 fails in its fifth step; the other ranks would go on for ever.
struct Fail(AtomicU64);

impl Job for Fail {
    type Answer = ();

    fn run(&self, rank: &mut Rank, _: &mut dyn Worker) -> Result<(), Ended> {
        if rank.number == 1 {
            rank.barrier()?;
        }
        loop {
            let begun = rank.step()?;
            rank.done(begun);
            if rank.number == 2 && self.0.fetch_add(1, Ordering::Relaxed) == 4 {
                return Err(Ended::Failed("rank 2: no more".to_owned()));
            }
        }
    }
}

#[test]
fn the_first_failure_ends_all_and_is_reported() {
    let stop = AtomicBool::new(false);
    let ended =
        threads(4, &Posix::default(), Watch { stop: &stop, meter: None }, &Fail(AtomicU64::new(0)));
    assert_eq!(ended, Err(Ended::Failed("rank 2: no more".to_owned())));
}

#[test]
fn an_interrupt_ends_all() {
    let stop = AtomicBool::new(true);
    assert_eq!(
        threads(2, &Posix::default(), Watch { stop: &stop, meter: None }, &Meet),
        Err(Ended::Interrupted)
    );
}
