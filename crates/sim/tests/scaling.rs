//! Two MDTs do twice as much as one.

use std::time::Duration;

use sheen_sim::scaling::{Options, Phase, Place, Row, run};

fn rows(mdts: u16, place: Place) -> Vec<Row> {
    let (request_cost, network_delay) = (Duration::from_micros(50), Duration::from_micros(100));
    let (clients, ranks, items) = (4, 12, 12);
    let options =
        Options { seed: 1, mdts, clients, ranks, items, request_cost, network_delay, place };
    run(options).unwrap_or_else(|text| panic!("{mdts} MDTs, {place:?}: {text}"))
}

/// What a phase does with two MDTs, in parts of what it does with one.
fn grows(place: Place) -> Vec<(Phase, f64)> {
    let [one, two] = [1, 2].map(|mdts| rows(mdts, place));
    let both = one.iter().zip(&two);
    both.map(|(one, two)| (one.phase, two.rate_of_all / one.rate_of_all)).collect()
}

#[test]
fn two_mdts_do_nearly_twice_as_much_in_directories_of_each_rank() {
    for (phase, times) in grows(Place::Unique) {
        assert!(times >= 1.8, "{phase:?}: {times:.2} times");
    }
}

#[test]
fn two_mdts_do_nearly_twice_as_much_in_a_striped_directory() {
    for (phase, times) in grows(Place::Shared) {
        assert!(times >= 1.8, "{phase:?}: {times:.2} times");
    }
}
