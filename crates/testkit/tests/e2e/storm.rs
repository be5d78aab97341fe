//! A crowd on two mounts fights for the same few names.

use std::time::Duration;

use sheen_testkit::scene::{same_after_restart, scene, seed};
use sheen_workloads::{Size, storm};

const LIMIT: Duration = Duration::from_secs(1800);

#[test]
fn every_call_of_a_crowd_on_two_mounts_is_answered_as_posix_says() {
    scene("storm", 2, LIMIT, |cluster| {
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        let seconds = Size::asked().of(2, 20, 600);
        let plan = storm::Plan { seed: seed(), actors: 3, length: Duration::from_secs(seconds) };
        storm::run(&[&first, &second], plan)?;
        same_after_restart(cluster)
    });
}
