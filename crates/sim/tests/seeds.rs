//! A few seeds, and that a seed says everything.

use sheen_sim::{Options, Report, run};

fn report(seed: u64, minutes: u64, faults: bool) -> Report {
    report_with(1, seed, minutes, faults)
}

fn report_with(mdts: u16, seed: u64, minutes: u64, faults: bool) -> Report {
    let (extras, moves, verbose) = (None, false, false);
    match run(Options { seed, minutes, faults, mdts, extras, moves, verbose }) {
        Ok(report) => report,
        Err(failure) => {
            let mdts = if mdts == 1 { String::new() } else { format!(" --mdts {mdts}") };
            panic!("{failure}\nseed {seed} failed; replay: cargo xtask sim --seed {seed}{mdts}")
        }
    }
}

#[test]
fn one_seed_has_one_trace() {
    for seed in 0..2 {
        let (one, other) = (report(seed, 3, true), report(seed, 3, true));
        assert_eq!(one, other, "seed {seed} took two ways");
        assert_ne!(one.trace, report(seed + 100, 1, false).trace);
    }
}

#[test]
fn what_nothing_fails_in_goes_well() {
    for seed in 200..202 {
        assert!(report(seed, 1, false).operations > 50);
    }
}

/// Each has shown a fault: a client kept the lock on a name in use while it asked another MDT for the inode, which waited
/// until a change was on both; and the name's MDT waited for the lock, and evicted the client.
#[test]
fn seeds_with_several_mdts_that_have_failed() {
    for (mdts, seed) in [(2, 6), (2, 16), (3, 12)] {
        assert!(report_with(mdts, seed, 6, true).operations > 300);
    }
}
