//! Each body of a fuzz target, on inputs from seeds.

use sheen_vnet::{SeededRandom, for_seeds};

/// Bytes of a seed.
fn bytes(seed: u64, most: u64) -> Vec<u8> {
    let random = SeededRandom::new(seed);
    (0..random.below(most)).map(|_| random.draw() as u8).collect()
}

#[test]
fn requests_to_an_mdt() {
    for_seeds(40, |seed| sheen_hostile::mdt_requests(&bytes(seed, 8_000)));
}

#[test]
fn requests_to_osts() {
    for_seeds(40, |seed| sheen_hostile::ost_requests(&bytes(seed, 8_000)));
}

#[test]
fn requests_to_the_mgs() {
    for_seeds(40, |seed| sheen_hostile::mgs_requests(&bytes(seed, 8_000)));
}

#[test]
fn answers_to_a_client() {
    for_seeds(150, |seed| sheen_hostile::client_replies(&bytes(seed, 2_000)));
}

#[test]
fn requests_of_a_kernel() {
    for_seeds(100, |seed| sheen_hostile::fuse_requests(&bytes(seed, 2_000)));
}

#[test]
fn files_of_a_store() {
    for_seeds(100, |seed| sheen_hostile::store_files(&bytes(seed, 60)));
}

/// An OST's answer to a reconnect is no answer, so the client does not come back; who waited for a lock there
/// never heard of it.
#[test]
fn an_answer_that_leaves_a_call_waiting() {
    sheen_hostile::client_replies(&bytes(170, 2_000));
}
