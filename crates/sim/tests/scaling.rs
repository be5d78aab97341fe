//! Two MDTs do twice as much as one, and a name in a stripe costs what a name costs.

use std::time::Duration;

use sheen_sim::scaling::{Options, Phase, Place, Row, run};

fn rows(mdts: u16, place: Place, (clients, ranks, items): (u16, u16, u64)) -> Vec<Row> {
    let (request_cost, network_delay) = (Duration::from_micros(50), Duration::from_micros(100));
    let options =
        Options { seed: 1, mdts, clients, ranks, items, request_cost, network_delay, place };
    run(options).unwrap_or_else(|text| panic!("{mdts} MDTs, {place:?}: {text}"))
}

/// What a phase does with two MDTs, in parts of what it does with one.
fn grows(place: Place) -> Vec<(Phase, f64)> {
    let [one, two] = [1, 2].map(|mdts| rows(mdts, place, (4, 12, 12)));
    let both = one.iter().zip(&two);
    both.map(|(one, two)| (one.phase, two.rate / one.rate)).collect()
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

/// One rank makes and removes, that of another client looks: nothing depends on what happens at once.
#[test]
fn create_stat_and_unlink_cost_as_many_requests_in_a_striped_directory_as_in_a_plain_one() {
    let amount = (2, 1, 40);
    let [plain, striped] = [1, 2].map(|mdts| rows(mdts, Place::Shared, amount));
    for (plain, striped) in plain.iter().zip(&striped) {
        let (phase, kinds) = (plain.phase, &plain.kinds);
        assert_eq!(kinds, &striped.kinds, "{phase:?}");
        let requests = (plain.requests, striped.requests);
        assert!((requests.0 - requests.1).abs() < f64::EPSILON, "{phase:?}: {requests:?}");
    }
}

#[test]
fn a_directory_on_another_mdt_than_its_name_costs_two_requests_more() {
    let amount = (1, 1, 40);
    let [here, there] = [1, 2].map(|mdts| rows(mdts, Place::Remote, amount));
    let (here, there) = (&here[0], &there[0]);
    assert_eq!(here.phase, Phase::Mkdir);
    let more = there.requests - here.requests;
    assert!((more - 2.0).abs() < f64::EPSILON, "{more}: {:?}", there.kinds);
}
