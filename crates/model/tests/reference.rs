//! Random sequences of operations on two clients and on the model; what differs is shrunk.
//!
//! `SHEEN_SEED` replays a run. `SHEEN_MODEL_OPERATIONS` asks for another number of operations.

use std::hash::{BuildHasher, RandomState};

use proptest::test_runner::{Config, RngSeed, TestRunner};
use sheen_model::{operations, run};

/// Steps of one sequence at most; on average half of it.
const LONGEST: usize = 120;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn two_clients_see_what_posix_says() {
    let seed = number("SHEEN_SEED").unwrap_or_else(|| RandomState::new().hash_one("model") >> 32);
    let wanted = number("SHEEN_MODEL_OPERATIONS").unwrap_or(2000);
    let sequences = wanted.div_ceil(LONGEST as u64 / 2);
    println!("seed {seed}; replay: SHEEN_SEED={seed} SHEEN_MODEL_OPERATIONS={wanted}");
    let config = Config {
        cases: u32::try_from(sequences).expect("fewer sequences"),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 3000,
        ..Config::default()
    };
    let counted = std::cell::Cell::new(0);
    let outcome = TestRunner::new(config).run(&operations(LONGEST), |steps| {
        counted.set(counted.get() + steps.len());
        run(seed, &steps).map_err(proptest::test_runner::TestCaseError::fail)
    });
    println!("{} operations", counted.get());
    outcome.unwrap_or_else(|failure| panic!("SHEEN_SEED={seed}: {failure}"));
}
