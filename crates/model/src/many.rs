//! Many sequences from one seed; one that fails is shrunk.

use std::cell::Cell;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use crate::{Home, operations, run};

/// Steps of one sequence at most; on average half of it.
const LONGEST: usize = 120;
/// Steps of shrinking.
const SHRINKS_MAX: u32 = 3000;

/// Does about `wanted` operations on files whose data has this `home`, in sequences that each begin with
/// an empty file system; how many there were.
///
/// # Errors
/// The shortest sequence found that fails, and in what.
pub fn run_many(seed: u64, home: Home, wanted: u64) -> Result<usize, String> {
    let sequences = wanted.div_ceil(LONGEST as u64 / 2);
    let config = Config {
        cases: u32::try_from(sequences).map_err(|_| format!("{wanted} operations are too many"))?,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: SHRINKS_MAX,
        ..Config::default()
    };
    let counted = Cell::new(0);
    let outcome = TestRunner::new(config).run(&operations(LONGEST), |steps| {
        counted.set(counted.get() + steps.len());
        run(seed, home, &steps).map_err(TestCaseError::fail)
    });
    outcome.map_err(|failure| failure.to_string())?;
    Ok(counted.get())
}
