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

/// The bytes that an owner has, with their modes.
fn held(bench: &Bench, owner: u64) -> Vec<(u64, u64, LockMode)> {
    let is_its =
        |policy: &Policy| matches!(policy, Policy::Flock { owner: of, .. } if *of == owner);
    let all = bench.namespace.dump(name(1)).into_iter();
    let its = all.filter(|lock| is_its(&lock.desc.policy));
    let its = its.filter_map(|lock| Some((lock.desc.policy.range(), lock.desc.granted?)));
    let mut its: Vec<_> = its.map(|(range, mode)| (range.start, range.end, mode)).collect();
    its.sort_unstable_by_key(|(start, ..)| *start);
    its
}

/// A user gives up waiting for a lock in the moment in which it is granted: the cancel comes behind what other threads of the
/// same owner have locked meanwhile, or the same one again.
#[test]
fn a_flock_that_is_given_up_at_its_grant_takes_no_other_one_along() {
    let (pr, pw) = (LockMode::Pr, LockMode::Pw);
    let scene = || {
        let mut bench = Bench::new();
        let (other, ..) = granted(bench.ask(client(1), flock(1, 0, 99), pw, NONE));
        (bench, other)
    };
    // Alone it goes.
    let (mut bench, other) = scene();
    let late = waiting(bench.ask(client(2), flock(2, 10, 19), pw, NONE));
    bench.cancel(client(1), other);
    assert_eq!(bench.cancel(client(2), late), 1);
    assert_eq!(held(&bench, 2), []);
    // With a neighbour that was locked meanwhile, its own bytes go.
    let (mut bench, other) = scene();
    let late = waiting(bench.ask(client(2), flock(2, 10, 19), pw, NONE));
    bench.cancel(client(1), other);
    granted(bench.ask(client(2), flock(2, 20, 29), pw, NONE));
    granted(bench.ask(client(2), flock(2, 0, 9), pw, NONE));
    let next = waiting(bench.ask(client(3), flock(3, 15, 15), pw, NONE));
    bench.completed();
    assert_eq!(bench.cancel(client(2), late), 1);
    assert_eq!(held(&bench, 2), [(0, 9, pw), (20, 29, pw)]);
    assert_eq!(bench.completed(), [(next, NONE, true)], "another client gets them");
    assert_eq!(bench.cancel(client(2), late), 0, "once");
    assert_eq!(held(&bench, 2), [(0, 9, pw), (20, 29, pw)]);
    // What was asked for again stays.
    let (mut bench, other) = scene();
    let late = waiting(bench.ask(client(2), flock(2, 10, 19), pw, NONE));
    bench.cancel(client(1), other);
    granted(bench.ask(client(2), flock(2, 10, 19), pw, NONE));
    assert_eq!(bench.cancel(client(2), late), 0);
    assert_eq!(held(&bench, 2), [(10, 19, pw)]);
    // And what it had before it wanted more.
    let mut bench = Bench::new();
    let (other, ..) = granted(bench.ask(client(1), flock(1, 10, 19), pr, NONE));
    granted(bench.ask(client(2), flock(2, 10, 19), pr, NONE));
    let late = waiting(bench.ask(client(2), flock(2, 10, 19), pw, NONE));
    bench.cancel(client(1), other);
    assert_eq!(bench.cancel(client(2), late), 0);
    assert_eq!(held(&bench, 2), [(10, 19, pw)], "until its owner unlocks it");
    granted(bench.ask(client(2), flock(2, 10, 19), LockMode::Nl, NONE));
    assert_eq!(held(&bench, 2), []);
}
