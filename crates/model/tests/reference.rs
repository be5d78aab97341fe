//! Random sequences of operations on two clients and on the model; what differs is shrunk.
//!
//! `SHEEN_SEED` replays a run; without it the seed of all property tests counts, which `cargo xtask test` gives
//! (`PROPTEST_RNG_SEED`), or else a new one. `SHEEN_MODEL_OPERATIONS` asks for another number of operations.

use std::hash::{BuildHasher, RandomState};

use sheen_model::Home;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn compare(home: Home) {
    let given = number("SHEEN_SEED").or_else(|| number("PROPTEST_RNG_SEED"));
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one("model") >> 32);
    let wanted = number("SHEEN_MODEL_OPERATIONS").unwrap_or(2000);
    println!("seed {seed}; replay: SHEEN_SEED={seed} SHEEN_MODEL_OPERATIONS={wanted}");
    let outcome = sheen_model::run_many(seed, home, wanted);
    let operations = outcome.unwrap_or_else(|failure| panic!("SHEEN_SEED={seed}: {failure}"));
    println!("{operations} operations");
}

#[test]
fn two_clients_see_what_posix_says() {
    compare(Home::Osts);
}

#[test]
fn two_clients_see_what_posix_says_of_files_that_begin_on_the_mdt() {
    compare(Home::Mdt);
}

#[test]
fn two_clients_see_what_posix_says_of_directories_in_stripes() {
    compare(Home::Stripes);
}
