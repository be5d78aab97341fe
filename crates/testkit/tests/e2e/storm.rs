//! A crowd on two mounts fights for the same few names.

use std::time::Duration;

use sheen_testkit::cluster::Cluster;
use sheen_testkit::scene::{same_after_restart, scene, seed, striped_scene};
use sheen_workloads::{Outcome, Size, storm};

const LIMIT: Duration = Duration::from_secs(1800);

#[test]
fn every_call_of_a_crowd_on_two_mounts_is_answered_as_posix_says() {
    scene("storm", 2, LIMIT, crowd);
}

#[test]
fn every_call_of_a_crowd_in_stripes_on_four_mdts_is_answered_as_posix_says() {
    striped_scene("storm-striped", "4", LIMIT, crowd);
}

#[test]
fn every_call_of_a_crowd_in_several_stripes_on_an_mdt_is_answered_as_posix_says() {
    striped_scene("storm-overstriped", "4/2", LIMIT, crowd);
}

fn crowd(cluster: &Cluster) -> Outcome {
    let (first, second) = (cluster.mnt(), cluster.mount_again()?);
    let seconds = Size::asked().of(2, 20, 600);
    let plan = storm::Plan { seed: seed(), actors: 3, length: Duration::from_secs(seconds) };
    storm::run(&[&first, &second], plan)?;
    same_after_restart(cluster)
}
