//! Two mounts of one file system, each a process of its own.

use std::path::PathBuf;
use std::time::Duration;

use sheen_testkit::scene::{same_after_restart, scene};
use sheen_workloads::{Outcome, Size, mapped, pair, slots};

const LIMIT: Duration = Duration::from_secs(600);

type Act = fn(&PathBuf, &PathBuf, u64) -> Outcome;

/// Plays `act` with the first mount in the first role, then in the second.
fn both_ways(name: &str, act: Act) {
    scene(name, 2, LIMIT, move |cluster| {
        let rounds = Size::asked().of(10, 50, 1000);
        let (first, second) = (cluster.mnt(), cluster.mount_again()?);
        for (folder, one, other) in [("there", &first, &second), ("back", &second, &first)] {
            std::fs::create_dir(one.join(folder)).map_err(|error| format!("mkdir: {error}"))?;
            act(&one.join(folder), &other.join(folder), rounds)?;
        }
        same_after_restart(cluster)
    });
}

#[test]
fn what_one_closes_the_other_reads() {
    both_ways("closed", |a, b, rounds| pair::close_to_open(a, b, rounds));
}

#[test]
fn size_and_times_agree_while_the_other_writes() {
    both_ways("growing", |a, b, rounds| {
        pair::growing(a, b, rounds)?;
        pair::attributes_agree(a, b)
    });
}

#[test]
fn moves_and_removals_are_seen_at_once() {
    both_ways("moves", |a, b, rounds| {
        pair::moves(a, b, rounds)?;
        pair::removals(a, b)?;
        pair::names_of_open_files(a, b)?;
        pair::rename_race(a, b, rounds)
    });
}

#[test]
fn what_one_writes_into_a_mapping_the_other_finds_in_its_own() {
    both_ways("mappings", |a, b, rounds| mapped::run(a, b, rounds));
}

#[test]
fn what_one_makes_the_other_does_not_miss() {
    both_ways("absences", |a, b, rounds| pair::absences(a, b, rounds));
}

#[test]
fn of_two_exclusive_creates_one_wins() {
    both_ways("exclusive", |a, b, rounds| pair::exclusive(a, b, rounds));
}

#[test]
fn both_append_and_nothing_is_lost() {
    both_ways("append", |a, b, rounds| pair::append(a, b, rounds));
}

#[test]
fn writers_past_the_pages_and_readers_of_pages_agree() {
    both_ways("slots", |a, b, rounds| slots::run(a, b, rounds));
}

#[test]
fn locks_exclude_across_mounts() {
    both_ways("locks", |a, b, _| pair::locks(a, b, env!("CARGO_BIN_EXE_sheen-probe").as_ref()));
}
