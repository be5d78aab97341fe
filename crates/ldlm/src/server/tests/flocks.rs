//! Flocks that wait.

use super::*;

/// What it makes of its owner's locks when it is granted was not counted before.
#[test]
fn a_flock_that_waits_counts_with_the_one_that_it_may_cut() {
    let mut bench = Bench::new();
    let counts = |bench: &Bench| (bench.namespace.flocks_of(1), bench.namespace.count_of(1));
    granted(bench.ask(client(1), flock(7, 0, 100), LockMode::Pr, NONE));
    let (other, ..) = granted(bench.ask(client(2), flock(9, 40, 60), LockMode::Pr, NONE));
    assert_eq!(counts(&bench), (1, 1));
    waiting(bench.ask(client(1), flock(7, 50, 50), LockMode::Pw, NONE));
    assert_eq!(counts(&bench), (3, 3));
    let second = waiting(bench.ask(client(1), flock(8, 60, 60), LockMode::Pw, NONE));
    assert_eq!(counts(&bench), (5, 5));
    bench.cancel(client(1), second);
    assert_eq!(counts(&bench), (3, 3), "it waits no longer");
    assert_eq!(bench.cancel(client(2), other), 1);
    assert_eq!(bench.namespace.gauges().granted.iter().sum::<u64>(), 3, "it has cut one in two");
    assert_eq!(counts(&bench), (3, 3), "and counts no more for that");
    granted(bench.ask(client(1), flock(7, 0, 100), LockMode::Nl, NONE));
    assert_eq!(counts(&bench), (0, 0));
}

/// Many locks that wait for one, and its release.
#[test]
fn a_release_looks_only_at_flocks_that_wait_for_its_owner() {
    let mut bench = Bench::new();
    granted(bench.ask(client(1), flock(1, 0, 0), LockMode::Pw, NONE));
    granted(bench.ask(client(1), flock(2, 9, 9), LockMode::Pw, NONE));
    for number in 0..1_000 {
        waiting(bench.ask(client(2), flock(number, 0, 0), LockMode::Pw, NONE));
    }
    crate::server::shard::LOOKED_AT.with(|count| count.set(0));
    granted(bench.ask(client(1), flock(2, 9, 9), LockMode::Nl, NONE));
    let looked_at = crate::server::shard::LOOKED_AT.with(std::cell::Cell::get);
    assert!(looked_at < 100, "{looked_at} locks looked at");
}

#[test]
fn an_owner_and_a_client_wait_for_so_many_flocks() {
    let mut bench = Bench::new();
    let (pw, own, all) = (LockMode::Pw, FLOCKS_WAITING_PER_OWNER, FLOCKS_WAITING_PER_CLIENT);
    granted(bench.ask(client(1), flock(1, 0, 0), pw, NONE));
    let enough = Enqueued::Denied(Errno::ENOLCK);
    for owner in 0..(all / own) as u64 {
        for _ in 0..own {
            waiting(bench.ask(client(2), flock(owner, 0, 0), pw, NONE));
        }
        assert_eq!(bench.ask(client(2), flock(owner, 0, 0), pw, NONE), enough);
    }
    assert_eq!(bench.ask(client(2), flock(9999, 0, 0), pw, NONE), enough);
    waiting(bench.ask(client(3), flock(9999, 0, 0), pw, NONE));
    granted(bench.ask(client(2), flock(9999, 1, 1), pw, NONE));
    bench.namespace.cancel_owner(NOW, 2, &mut bench.actions);
    waiting(bench.ask(client(2), flock(9999, 0, 0), pw, NONE));
}
