//! Each policy by example, and all of them by random sequences.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;
use sheen_types::{Errno, Extent, HashMap, InodeBits, Instant, LockHandle, LockMode, ResourceName};

use super::waits::FlockOwner;
use super::{
    Action, Config, Enqueue, Enqueued, LockError, LockInfo, Namespace, Spared, SparedLocks,
};
use crate::limits::{FLOCKS_WAITING_PER_CLIENT, FLOCKS_WAITING_PER_OWNER};
use crate::{LockFlags, Owner, Policy};

mod flocks;
mod groups;

const NOW: Instant = Instant(1_000);
const TIMEOUT: Duration = Duration::from_secs(100);

struct Bench {
    namespace: Namespace,
    actions: Vec<Action>,
    remote: u64,
}

impl Bench {
    fn new() -> Self {
        let namespace = Namespace::new(Config { seed: 42, callback_timeout: TIMEOUT });
        Self { namespace, actions: Vec::new(), remote: 0 }
    }

    fn ask(&mut self, owner: Owner, policy: Policy, mode: LockMode, flags: LockFlags) -> Enqueued {
        self.ask_on(1, owner, policy, mode, flags)
    }

    fn ask_on(
        &mut self,
        resource: u64,
        owner: Owner,
        policy: Policy,
        mode: LockMode,
        flags: LockFlags,
    ) -> Enqueued {
        self.remote += 1;
        let remote_handle = LockHandle(self.remote);
        let resource = name(resource);
        let spares = None;
        let request = Enqueue { resource, policy, mode, flags, owner, remote_handle, spares };
        self.namespace.enqueue(NOW, request, &mut self.actions)
    }

    /// A change of the server's on behalf of a client, as the MDT asks for it.
    fn change(&mut self, asks: u64) -> Enqueued {
        self.change_sparing(LockMode::Cw, Spared { export: asks, locks: SparedLocks::Readers })
    }

    fn change_sparing(&mut self, mode: LockMode, spared: Spared) -> Enqueued {
        let request = Enqueue {
            resource: name(1),
            policy: Policy::bits(InodeBits::UPDATE),
            mode,
            flags: NONE,
            owner: Owner::Local,
            remote_handle: LockHandle(0),
            spares: Some(spared),
        };
        self.namespace.enqueue(NOW, request, &mut self.actions)
    }

    fn local_grants(&mut self) -> Vec<LockHandle> {
        let granted = |action| match action {
            Action::LocalGranted { handle, .. } => Some(handle),
            _ => None,
        };
        self.actions.drain(..).filter_map(granted).collect()
    }

    fn cancel(&mut self, owner: Owner, handle: LockHandle) -> usize {
        self.namespace.cancel(NOW, owner, &[handle], &mut self.actions)
    }

    fn revoked(&mut self) -> Vec<LockHandle> {
        let blocking = |action| match action {
            Action::Blocking { handle, .. } => Some(handle),
            _ => None,
        };
        self.actions.drain(..).filter_map(blocking).collect()
    }

    fn completed(&mut self) -> Vec<(LockHandle, LockFlags, bool)> {
        let completion = |action| match action {
            Action::Completion { handle, flags, desc, .. } => {
                Some((handle, flags, desc.granted.is_some()))
            }
            _ => None,
        };
        self.actions.drain(..).filter_map(completion).collect()
    }
}

fn name(number: u64) -> ResourceName {
    ResourceName([number, 2, 3, 4])
}

fn client(number: u64) -> Owner {
    Owner::Export(number)
}

fn bytes(start: u64, end: u64) -> Policy {
    Policy::extent(Extent { start, end })
}

fn flock(owner: u64, start: u64, end: u64) -> Policy {
    Policy::Flock { start, end, owner, pid: owner as u32 }
}

fn granted(answer: Enqueued) -> (LockHandle, Policy, LockFlags) {
    match answer {
        Enqueued::Granted(granted) => (granted.handle, granted.policy, granted.flags),
        other => panic!("not granted: {other:?}"),
    }
}

fn waiting(answer: Enqueued) -> LockHandle {
    match answer {
        Enqueued::Waiting { handle, .. } => handle,
        other => panic!("not waiting: {other:?}"),
    }
}

const NONE: LockFlags = LockFlags::NONE;

#[test]
fn plain_locks_go_by_mode_and_in_order() {
    let mut bench = Bench::new();
    let (first, ..) = granted(bench.ask(client(1), Policy::Plain, LockMode::Cr, NONE));
    let writer = waiting(bench.ask(client(2), Policy::Plain, LockMode::Ex, NONE));
    assert_eq!(bench.revoked(), [first]);
    let reader = waiting(bench.ask(client(3), Policy::Plain, LockMode::Cr, NONE));
    assert_eq!(bench.revoked(), []);
    assert_eq!(bench.cancel(client(1), first), 1);
    // The reader asked while the writer waited: the writer knows with its grant.
    assert_eq!(bench.completed(), [(writer, LockFlags::AST_SENT, true)]);
    assert_eq!(bench.cancel(client(2), writer), 1);
    assert_eq!(bench.completed(), [(reader, NONE, true)]);
}

#[test]
fn foreign_and_forged_handles_are_refused() {
    let mut bench = Bench::new();
    let (held, ..) = granted(bench.ask(client(1), Policy::Plain, LockMode::Ex, NONE));
    assert_eq!(bench.cancel(client(2), held), 0);
    assert_eq!(bench.cancel(client(1), LockHandle(held.0 ^ 1)), 0);
    assert_eq!(bench.cancel(client(1), held), 1);
    assert_eq!(bench.cancel(client(1), held), 0);
    assert_eq!(bench.namespace.gauges().resources, 0);
    let (again, ..) = granted(bench.ask(client(1), Policy::Plain, LockMode::Ex, NONE));
    assert_ne!(held, again);
}

#[test]
fn bits_that_are_only_tried_for_are_dropped() {
    let mut bench = Bench::new();
    let (lookup, update) = (InodeBits::LOOKUP, InodeBits::UPDATE);
    granted(bench.ask(client(1), Policy::bits(update), LockMode::Pw, NONE));
    let policy = Policy::InodeBits { bits: lookup, try_bits: update | InodeBits::PERM, gid: 0 };
    let (_, policy, flags) = granted(bench.ask(client(2), policy, LockMode::Pr, NONE));
    assert_eq!(policy.inode_bits(), lookup | InodeBits::PERM);
    assert_eq!(flags, LockFlags::LOCK_CHANGED);
    assert_eq!(bench.revoked(), []);
    let only = Policy::InodeBits { bits: InodeBits(0), try_bits: update, gid: 0 };
    assert_eq!(bench.ask(client(2), only, LockMode::Pr, NONE), Enqueued::WouldBlock);
}

#[test]
fn a_conversion_grants_what_wanted_the_bits_and_revokes_for_the_rest() {
    let mut bench = Bench::new();
    let (lookup, update) = (InodeBits::LOOKUP, InodeBits::UPDATE);
    let both = Policy::bits(lookup | update);
    let (held, ..) = granted(bench.ask(client(1), both, LockMode::Pr, NONE));
    let second = waiting(bench.ask(client(2), Policy::bits(update), LockMode::Pw, NONE));
    let third = waiting(bench.ask(client(3), Policy::bits(lookup), LockMode::Pw, NONE));
    assert_eq!(bench.revoked(), [held]);
    let rest = bench.namespace.convert(NOW, client(1), held, update, &mut bench.actions);
    assert_eq!(rest, Ok(lookup));
    assert_eq!(bench.actions.len(), 2);
    assert!(matches!(bench.actions[0], Action::Completion { handle, .. } if handle == second));
    assert!(matches!(bench.actions[1], Action::Blocking { handle, .. } if handle == held));
    bench.actions.clear();
    bench.cancel(client(1), held);
    assert_eq!(bench.completed(), [(third, NONE, true)]);
}

#[test]
fn a_local_lock_is_handed_over_with_what_happened_meanwhile() {
    let mut bench = Bench::new();
    let policy = Policy::bits(InodeBits::LOOKUP);
    let (local, ..) = granted(bench.ask(Owner::Local, policy, LockMode::Pw, NONE));
    let next = waiting(bench.ask(client(2), policy, LockMode::Pr, NONE));
    assert_eq!(bench.actions, []);
    let given =
        bench.namespace.hand_over(NOW, local, 1, LockHandle(77), &mut bench.actions).unwrap();
    assert_eq!(given.flags, LockFlags::AST_SENT);
    assert_eq!(bench.namespace.next_deadline(), Some(NOW + TIMEOUT));
    assert_eq!(bench.namespace.find(1, LockHandle(77)).unwrap().handle, local);
    bench.cancel(client(1), local);
    assert_eq!(bench.completed(), [(next, NONE, true)]);
    assert_eq!(bench.namespace.next_deadline(), None);
}

#[test]
fn a_flock_is_handed_over_to_no_client() {
    let mut bench = Bench::new();
    let (local, ..) = granted(bench.ask(Owner::Local, flock(7, 0, 9), LockMode::Pw, NONE));
    let given = bench.namespace.hand_over(NOW, local, 1, LockHandle(77), &mut bench.actions);
    assert_eq!(given, Err(LockError::Unfit));
    assert_eq!(bench.namespace.flocks_of(1), 0);
    assert_eq!(bench.cancel(Owner::Local, local), 1);
    assert_eq!(bench.namespace.gauges().resources, 0);
}

/// A slot that is entered for an owner whose lock it is no longer: the owner's next lock removed what is there now,
/// another client's lock.
#[test]
fn a_flock_touches_only_granted_locks_of_its_owner() {
    let mut bench = Bench::new();
    let (other, ..) = granted(bench.ask(client(2), flock(9, 100, 199), LockMode::Pw, NONE));
    let policy = flock(7, 0, 9);
    {
        let mut shard = bench.namespace.shard_of(&name(1)).lock();
        let slot = shard.newest_by_remote_handle(2, LockHandle(bench.remote)).unwrap();
        let resource = shard.by_name[&name(1)] as usize;
        let flocks = shard.resources[resource].flocks.as_mut().unwrap();
        flocks.add(FlockOwner::of(client(1), &policy), policy.range(), slot);
    }
    granted(bench.ask(client(1), policy, LockMode::Pr, NONE));
    granted(bench.ask(client(1), policy, LockMode::Nl, NONE));
    let kept = bench.namespace.lock(other).expect("the other client's lock").desc;
    assert_eq!(
        (kept.granted, kept.policy.range()),
        (Some(LockMode::Pw), Extent { start: 100, end: 199 })
    );
}

#[test]
fn what_cuts_a_flock_in_two_is_known_before() {
    let mut bench = Bench::new();
    granted(bench.ask(client(1), flock(7, 10, 19), LockMode::Pw, NONE));
    let cuts = |bench: &Bench, owner, policy| bench.namespace.cuts_flock(name(1), owner, policy);
    for (start, end, expected) in [
        (11, 18, true),
        (15, 15, true),
        (10, 15, false),
        (15, 19, false),
        (0, Extent::EOF, false),
        (15, Extent::EOF, false),
        (0, 5, false),
        (30, 40, false),
        (16, 14, false),
    ] {
        assert_eq!(cuts(&bench, client(1), flock(7, start, end)), expected, "{start}-{end}");
    }
    assert!(!cuts(&bench, client(2), flock(7, 15, 15)), "another client's owner");
    assert!(!cuts(&bench, client(1), flock(8, 15, 15)), "another owner");
    let before = bench.namespace.flocks_of(1);
    granted(bench.ask(client(1), flock(7, 15, 15), LockMode::Nl, NONE));
    assert_eq!(bench.namespace.flocks_of(1), before + 1);
}

#[test]
fn a_holder_that_is_late_is_named_once_for_each_revocation() {
    let mut bench = Bench::new();
    let policy = Policy::bits(InodeBits::LOOKUP);
    let (held, ..) = granted(bench.ask(client(1), policy, LockMode::Pr, NONE));
    waiting(bench.ask(client(2), policy, LockMode::Pw, NONE));
    let late = |bench: &Bench, by| -> Vec<_> {
        bench.namespace.late_holders(by).into_iter().map(|it| it.handle).collect()
    };
    assert_eq!(late(&bench, NOW + TIMEOUT / 2), []);
    assert_eq!(late(&bench, NOW + TIMEOUT), [held]);
    assert_eq!(late(&bench, NOW + TIMEOUT), []);
    bench.cancel(client(1), held);
    assert_eq!(late(&bench, NOW + TIMEOUT * 2), []);
}

#[test]
fn a_change_spares_the_lock_of_its_own_client_only() {
    let mut bench = Bench::new();
    let policy = Policy::bits(InodeBits::UPDATE | InodeBits::LOOKUP);
    let (own, ..) = granted(bench.ask(client(1), policy, LockMode::Pr, NONE));
    let (first, ..) = granted(bench.change(1));
    assert_eq!(bench.revoked(), []);
    assert_eq!(bench.cancel(Owner::Local, first), 1);

    let (other, ..) = granted(bench.ask(client(2), policy, LockMode::Pr, NONE));
    let second = waiting(bench.change(1));
    assert_eq!(bench.revoked(), [other], "the own lock is not revoked");
    bench.cancel(client(2), other);
    assert_eq!(bench.local_grants(), [second]);
    bench.cancel(Owner::Local, second);

    // Another client's change revokes it, and so does one of its own that needs more than CW
    // allows.
    let third = waiting(bench.change(2));
    assert_eq!(bench.revoked(), [own]);
    bench.cancel(client(1), own);
    assert_eq!(bench.local_grants(), [third]);
}

#[test]
fn a_change_waits_for_a_lock_of_its_own_client_that_is_no_reader() {
    let mut bench = Bench::new();
    let policy = Policy::bits(InodeBits::UPDATE);
    let (own, ..) = granted(bench.ask(client(1), policy, LockMode::Pw, NONE));
    waiting(bench.change(1));
    assert_eq!(bench.revoked(), [own]);
}

/// A client that writes a file on the MDT has all of its bits for writing.
#[test]
fn a_change_of_attributes_spares_the_lock_of_its_own_client_that_writes_and_of_no_other() {
    let mut bench = Bench::new();
    let policy = Policy::bits(InodeBits::UPDATE | InodeBits::DOM);
    let own = Spared { export: 1, locks: SparedLocks::ReadersAndWriters };
    let (held, ..) = granted(bench.ask(client(1), policy, LockMode::Pw, NONE));
    let (first, ..) = granted(bench.change_sparing(LockMode::Pw, own));
    assert_eq!(bench.revoked(), []);
    // What is asked for meanwhile waits for the change.
    let late = waiting(bench.ask(client(2), Policy::bits(InodeBits::UPDATE), LockMode::Pr, NONE));
    bench.cancel(Owner::Local, first);
    bench.cancel(client(1), held);
    bench.actions.clear();

    let other = Spared { export: 1, ..own };
    waiting(bench.change_sparing(LockMode::Pw, other));
    assert_eq!(bench.revoked(), [late]);
}

#[test]
fn a_stream_of_changes_lets_its_own_client_read_and_keep_the_lock() {
    let mut bench = Bench::new();
    let policy = Policy::bits(InodeBits::UPDATE);
    let (first, ..) = granted(bench.change(1));
    let reader = waiting(bench.ask(client(1), policy, LockMode::Pr, NONE));
    let second = waiting(bench.change(1));
    bench.cancel(Owner::Local, first);
    let granted: Vec<Action> = std::mem::take(&mut bench.actions);
    assert!(granted.iter().any(|action| matches!(
        action,
        Action::Completion { handle, flags: LockFlags::NONE, .. } if *handle == reader
    )));
    assert!(granted.iter().any(|action| matches!(
        action,
        Action::LocalGranted { handle, .. } if *handle == second
    )));
}

#[test]
fn a_lock_handed_over_to_its_reader_lets_that_readers_changes_go() {
    let mut bench = Bench::new();
    let policy = Policy::bits(InodeBits::UPDATE);
    let (local, ..) = granted(bench.ask(Owner::Local, policy, LockMode::Pr, NONE));
    let change = waiting(bench.change(1));
    let actions = &mut bench.actions;
    let given = bench.namespace.hand_over(NOW, local, 1, LockHandle(77), actions).unwrap();
    assert_eq!(given.flags, NONE, "no lock waits for it any more");
    assert_eq!(bench.local_grants(), [change]);
    assert_eq!(bench.namespace.next_deadline(), None);
}

#[test]
fn a_downgrade_shares() {
    let mut bench = Bench::new();
    let policy = Policy::bits(InodeBits::UPDATE);
    let (local, ..) = granted(bench.ask(Owner::Local, policy, LockMode::Pw, NONE));
    let reader = waiting(bench.ask(client(1), policy, LockMode::Pr, NONE));
    let actions = &mut bench.actions;
    bench.namespace.downgrade(NOW, local, LockMode::Pr, actions).unwrap();
    assert!(bench.namespace.downgrade(NOW, local, LockMode::Ex, actions).is_err());
    assert_eq!(bench.completed(), [(reader, NONE, true)]);
}

#[test]
fn extents_grow_to_their_neighbours() {
    let mut bench = Bench::new();
    let (first, policy, flags) =
        granted(bench.ask(client(1), bytes(1 << 20, (2 << 20) - 1), LockMode::Pw, NONE));
    assert_eq!((policy.range(), flags), (Extent::ALL, LockFlags::LOCK_CHANGED));
    let second = waiting(bench.ask(client(2), bytes(8 << 20, (9 << 20) - 1), LockMode::Pw, NONE));
    assert_eq!(bench.revoked(), [first]);
    bench.cancel(client(1), first);
    bench.actions.clear();
    let above_all = Extent { start: 8 << 20, end: Extent::EOF };
    assert_eq!(bench.namespace.lock(second).unwrap().desc.policy.range(), above_all);
    bench.cancel(client(2), second);
    // A lock that did not grow leaves room on both sides: upwards only is taken.
    let exact = LockFlags::NO_EXPANSION;
    granted(bench.ask(client(1), bytes(8 << 20, (9 << 20) - 1), LockMode::Pw, exact));
    let (_, below, _) = granted(bench.ask(client(2), bytes(4096, 8191), LockMode::Pw, NONE));
    assert_eq!(below.range(), Extent { start: 4096, end: (8 << 20) - 1 });
    let (_, above, _) = granted(bench.ask(client(2), bytes(9 << 20, 10 << 20), LockMode::Pw, NONE));
    assert_eq!(above.range().end, Extent::EOF);
    assert!(above.range().start == 9 << 20);
}

/// Two clients write a part of an object each, a block after the other: without a memory of what the
/// other one wants they would take all of it from each other with each block.
#[test]
fn two_writers_take_an_object_from_each_other_once() {
    let mut bench = Bench::new();
    let mut held: [Option<LockHandle>; 2] = [None; 2];
    let mut asked = 0;
    for block in 0..8_u64 {
        for writer in [0, 1] {
            let start = (writer * 8 + block) << 20;
            let wanted = Extent { start, end: start + (1 << 20) - 1 };
            let covers = |handle| {
                let extent = bench.namespace.lock(handle).map(|lock| lock.desc.policy.range());
                extent.is_some_and(|extent| extent.contains(&wanted))
            };
            if held[writer as usize].is_some_and(covers) {
                continue;
            }
            asked += 1;
            let policy = Policy::extent(wanted);
            let handle = match bench.ask(client(writer), policy, LockMode::Pw, NONE) {
                Enqueued::Granted(granted) => granted.handle,
                Enqueued::Waiting { handle, .. } => handle,
                other => panic!("{other:?}"),
            };
            for called in bench.revoked() {
                bench.cancel(client(1 - writer), called);
            }
            held[writer as usize] = Some(handle);
        }
    }
    assert_eq!(asked, 3);
}

#[test]
fn what_other_clients_wanted_is_forgotten_after_a_while() {
    let mut bench = Bench::new();
    let mut ask = |now, owner, start: u64| {
        bench.remote += 1;
        let request = Enqueue {
            resource: name(1),
            policy: bytes(start, start + 4095),
            mode: LockMode::Pw,
            flags: NONE,
            owner,
            remote_handle: LockHandle(bench.remote),
            spares: None,
        };
        bench.namespace.enqueue(now, request, &mut bench.actions)
    };
    let (first, ..) = granted(ask(NOW, client(1), 1 << 20));
    let second = waiting(ask(NOW, client(2), 0));
    bench.cancel(client(1), first);
    let range = |bench: &Bench, lock| bench.namespace.lock(lock).unwrap().desc.policy.range();
    assert_eq!(range(&bench, second), Extent { start: 0, end: (1 << 20) - 1 });
    bench.cancel(client(2), second);
    // The resource is gone, and what was known of it.
    let (third, ..) = granted(bench.ask(client(3), bytes(4 << 20, 5 << 20), LockMode::Pw, NONE));
    assert_eq!(range(&bench, third), Extent::ALL);
    let fourth = waiting(bench.ask(client(2), bytes(0, 4095), LockMode::Pw, NONE));
    let later = NOW + Duration::from_secs(6);
    bench.namespace.cancel(later, client(3), &[third], &mut bench.actions);
    assert_eq!(range(&bench, fourth), Extent::ALL);
}

#[test]
fn a_contended_writer_grows_by_32_mib_at_most() {
    let mut bench = Bench::new();
    for number in 0..33 {
        let at = (1 << 40) + number * 4096;
        let exact = LockFlags::NO_EXPANSION;
        granted(bench.ask(client(number), bytes(at, at + 4095), LockMode::Pw, exact));
    }
    let (_, policy, _) = granted(bench.ask(client(99), bytes(0, 4095), LockMode::Pw, NONE));
    assert_eq!(policy.range(), Extent { start: 0, end: (32 << 20) - 1 });
}

#[test]
fn an_unaligned_request_keeps_its_ends() {
    let mut bench = Bench::new();
    granted(bench.ask(client(1), bytes(100_000, 100_010), LockMode::Pw, LockFlags::NO_EXPANSION));
    let (_, policy, _) = granted(bench.ask(client(2), bytes(100, 99_999), LockMode::Pw, NONE));
    assert_eq!(policy.range(), Extent { start: 100, end: 99_999 });
}

/// 33 clients want the same bytes: the last one's request conflicts with 32 that wait and the one that is granted.
#[test]
fn a_short_lock_on_a_contended_object_is_refused_to_who_asks_so() {
    let mut bench = Bench::new();
    let (deny, page) = (LockFlags::DENY_ON_CONTENTION, bytes(0, 4095));
    granted(bench.ask(client(0), page, LockMode::Pw, LockFlags::NO_EXPANSION));
    bench.namespace.contention().nolock_bytes.store(4095, Ordering::Relaxed);
    for number in 1..=32 {
        waiting(bench.ask(client(number), page, LockMode::Pw, deny));
    }
    assert_eq!(bench.ask(client(33), page, LockMode::Pw, deny), Enqueued::Denied(Errno::EUSERS));
    waiting(bench.ask(client(34), page, LockMode::Pw, NONE));
    waiting(bench.ask(client(34), bytes(0, 8191), LockMode::Pw, deny));
    granted(bench.ask(
        client(35),
        bytes(1 << 40, 1 << 41),
        LockMode::Pw,
        deny | LockFlags::NO_EXPANSION,
    ));
    bench.namespace.contention().locks.store(1000, Ordering::Relaxed);
    bench.namespace.contention().seconds.store(0, Ordering::Relaxed);
    waiting(bench.ask(client(33), page, LockMode::Pw, deny));
}

#[test]
fn speculative_and_try_leave_no_trace() {
    let mut bench = Bench::new();
    granted(bench.ask(client(1), bytes(0, 4095), LockMode::Pw, NONE));
    let whole = Policy::extent(Extent::ALL);
    let speculative = LockFlags::SPECULATIVE;
    let answer = bench.ask(client(2), whole, LockMode::Pr, speculative);
    assert_eq!(answer, Enqueued::Denied(Errno::EAGAIN));
    assert_eq!(bench.ask(client(2), whole, LockMode::Pr, LockFlags::TRY), Enqueued::WouldBlock);
    assert_eq!(bench.actions, []);
    let targets = bench.namespace.glimpse_targets(name(1));
    assert_eq!(targets.len(), 1);
    assert_eq!(targets[0].export, 1);
}

#[test]
fn a_writer_below_another_is_asked_for_the_size_too() {
    let mut bench = Bench::new();
    granted(bench.ask(client(1), bytes(0, 4095), LockMode::Pw, LockFlags::NO_EXPANSION));
    // To punch a hole behind the end, where there is nothing from which it would know the size.
    granted(bench.ask(client(2), bytes(8192, Extent::EOF), LockMode::Pw, NONE));
    let targets = bench.namespace.glimpse_targets(name(1));
    assert_eq!(targets.iter().map(|target| target.export).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn a_client_that_does_not_cancel_is_evicted_unless_it_works() {
    let mut bench = Bench::new();
    let (held, ..) = granted(bench.ask(client(1), bytes(0, 4095), LockMode::Pw, NONE));
    let other = waiting(bench.ask(client(2), bytes(0, 4095), LockMode::Pw, NONE));
    bench.actions.clear();
    let later = NOW + Duration::from_secs(60);
    let range = Extent { start: 0, end: 10 };
    let found = bench.namespace.prolong(later, 1, name(1), range, TIMEOUT);
    assert_eq!((found.locks, found.revoked), (1, 1));
    bench.namespace.poll(NOW + TIMEOUT, &mut bench.actions);
    assert_eq!(bench.actions, []);
    bench.namespace.poll(later + TIMEOUT, &mut bench.actions);
    assert_eq!(bench.actions, [Action::Evict { export: 1, handle: held }]);
    bench.actions.clear();
    bench.namespace.cancel_owner(later, 1, &mut bench.actions);
    assert_eq!(bench.completed(), [(other, NONE, true)]);
}

#[test]
fn flocks_wait_are_tested_and_find_circles() {
    let mut bench = Bench::new();
    let pw = LockMode::Pw;
    granted(bench.ask_on(1, client(1), flock(1, 0, 9), pw, NONE));
    granted(bench.ask_on(2, client(2), flock(2, 0, 9), pw, NONE));
    let test = bench.ask_on(1, client(2), flock(2, 5, 20), LockMode::Pr, LockFlags::TEST_LOCK);
    let Enqueued::Tested(Some(desc)) = test else { panic!("{test:?}") };
    assert_eq!((desc.policy, desc.granted), (flock(1, 0, 9), Some(pw)));
    granted(bench.ask_on(1, client(1), flock(1, 40, 49), LockMode::Pr, NONE));
    let test = bench.ask_on(1, client(2), flock(2, 0, 99), pw, LockFlags::TEST_LOCK);
    let Enqueued::Tested(Some(desc)) = test else { panic!("{test:?}") };
    assert_eq!(desc.policy, flock(1, 0, 9), "the first of two");
    granted(bench.ask_on(1, client(1), flock(1, 40, 49), LockMode::Nl, NONE));
    let nowait = LockFlags::BLOCK_NOWAIT;
    let refused = bench.ask_on(1, client(2), flock(2, 5, 20), pw, nowait);
    assert_eq!(refused, Enqueued::Denied(Errno::EAGAIN));
    let first = waiting(bench.ask_on(1, client(2), flock(2, 5, 20), pw, NONE));
    let circle = bench.ask_on(2, client(1), flock(1, 0, 0), pw, NONE);
    assert_eq!(circle, Enqueued::Denied(Errno::EDEADLK));
    assert_eq!(bench.actions, []);
    granted(bench.ask_on(1, client(1), flock(1, 0, 9), LockMode::Nl, NONE));
    assert_eq!(bench.completed(), [(first, NONE, true)]);
}

#[test]
fn a_circle_that_a_grant_closes_fails_the_waiter() {
    let mut bench = Bench::new();
    let pw = LockMode::Pw;
    // 1 holds a, 2 and 3 wait for a; 3 holds b and 2 waits for it with another thread.
    granted(bench.ask_on(1, client(1), flock(1, 0, 9), pw, NONE));
    granted(bench.ask_on(2, client(2), flock(2, 0, 9), pw, NONE));
    let third = waiting(bench.ask_on(1, client(3), flock(3, 0, 9), pw, NONE));
    let second = waiting(bench.ask_on(1, client(2), flock(2, 0, 9), pw, NONE));
    granted(bench.ask_on(3, client(3), flock(3, 0, 9), pw, NONE));
    waiting(bench.ask_on(2, client(3), flock(3, 0, 9), pw, NONE));
    granted(bench.ask_on(1, client(1), flock(1, 0, 9), LockMode::Nl, NONE));
    // 3 now has a and waits for 2's b: 2 must not wait for 3.
    let expected = [(third, NONE, true), (second, LockFlags::FLOCK_DEADLOCK, false)];
    assert_eq!(bench.completed(), expected);
}

#[test]
fn an_unlock_ends_an_equal_wait() {
    let mut bench = Bench::new();
    granted(bench.ask(client(1), flock(1, 0, 9), LockMode::Pw, NONE));
    let second = waiting(bench.ask(client(2), flock(2, 0, 9), LockMode::Pw, NONE));
    granted(bench.ask(client(2), flock(2, 0, 9), LockMode::Nl, NONE));
    assert_eq!(bench.completed(), [(second, LockFlags::AST_SENT, false)]);
    assert_eq!(bench.namespace.dump(name(1)).len(), 1);
}

#[test]
fn replayed_waiters_wait_for_the_end_of_recovery() {
    let mut bench = Bench::new();
    bench.namespace.recovery_started();
    let replay = LockFlags::REPLAY;
    let wait =
        waiting(bench.ask(client(1), bytes(0, 9), LockMode::Pw, replay | LockFlags::BLOCK_WAIT));
    let grant = replay | LockFlags::BLOCK_GRANTED;
    let (held, ..) = granted(bench.ask(client(2), bytes(0, 4095), LockMode::Pw, grant));
    let lie = bench.ask(client(3), bytes(0, 4095), LockMode::Pr, grant);
    assert_eq!(lie, Enqueued::Denied(Errno::ESTALE));
    assert_eq!(bench.actions, []);
    bench.namespace.recovery_done(NOW, &mut bench.actions);
    assert_eq!(bench.revoked(), [held]);
    bench.cancel(client(2), held);
    assert_eq!(bench.completed(), [(wait, NONE, true)]);
}

fn conflict(a: &LockInfo, b: &LockInfo) -> bool {
    let group = a.desc.requested == LockMode::Group && b.desc.requested == LockMode::Group;
    let (Some(mode), Some(other)) = (a.desc.granted, b.desc.granted) else { return false };
    let clash =
        if group { a.desc.policy.gid() != b.desc.policy.gid() } else { !mode.compatible(other) };
    clash
        && match (&a.desc.policy, &b.desc.policy) {
            (Policy::InodeBits { bits, .. }, Policy::InodeBits { bits: theirs, .. }) => {
                bits.intersects(*theirs)
            }
            (Policy::Flock { owner, .. }, Policy::Flock { owner: theirs, .. }) => {
                let same = (a.owner, owner) == (b.owner, theirs);
                !same && a.desc.policy.range().overlaps(&b.desc.policy.range())
            }
            (p, q) => {
                let modes = [a.desc.requested, b.desc.requested];
                modes.contains(&LockMode::Group) || p.range().overlaps(&q.range())
            }
        }
}

/// No two granted locks conflict, and no waiting lock waits for nothing or for one whose holder is
/// not informed.
fn check(namespace: &Namespace, resource: ResourceName) {
    let all = namespace.dump(resource);
    let (held, waits): (Vec<_>, Vec<_>) = all.iter().partition(|lock| lock.desc.granted.is_some());
    for (at, a) in held.iter().enumerate() {
        for b in &held[at + 1..] {
            assert!(!conflict(a, b), "{a:?} and {b:?}");
        }
    }
    for (at, wait) in waits.iter().enumerate() {
        let mut as_held = *wait;
        as_held.desc.granted = Some(wait.desc.requested);
        let mut hindered = waits[..at].iter().any(|other| {
            let mut other = *other;
            other.desc.granted = Some(other.desc.requested);
            conflict(&as_held, &other)
        });
        for other in held.iter().filter(|other| conflict(&as_held, other)) {
            hindered = true;
            let silent = matches!(other.desc.policy, Policy::Flock { .. })
                || other.desc.requested == LockMode::Group;
            assert!(other.is_waited_for || silent, "{other:?} does not know of {wait:?}");
        }
        assert!(hindered, "{wait:?} waits for nothing");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue { client: u64, resource: u64, mode: usize, part: (u64, u64), gid: u64, flags: u8 },
    Cancel(usize),
    Convert(usize, u64),
    Leave(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let enqueue = (0..5u64, 0..3u64, 0..7usize, (0..40u64, 0..12u64), 1..3u64, 0..8u8).prop_map(
        |(client, resource, mode, part, gid, flags)| Step::Enqueue {
            client,
            resource,
            mode,
            part,
            gid,
            flags,
        },
    );
    let step = prop_oneof![
        6 => enqueue,
        4 => (0..64usize).prop_map(Step::Cancel),
        1 => (0..64usize, 1..127u64).prop_map(|(at, bits)| Step::Convert(at, bits)),
        1 => (0..5u64).prop_map(Step::Leave),
    ];
    prop::collection::vec(step, 1..80)
}

fn policy_of(kind: u8, part: (u64, u64), gid: u64, mode: LockMode) -> Policy {
    match kind {
        0 => Policy::Plain,
        1 => Policy::Extent {
            extent: Extent { start: part.0 * 4096, end: (part.0 + part.1 + 1) * 4096 - 1 },
            gid,
        },
        2 if mode == LockMode::Group => {
            Policy::InodeBits { bits: InodeBits::DOM, try_bits: InodeBits(0), gid }
        }
        2 => Policy::InodeBits {
            bits: InodeBits(1 << (part.0 % 7)),
            try_bits: InodeBits((part.1 * 5) & 0x7f & !(1 << (part.0 % 7))),
            gid: 0,
        },
        _ => Policy::Flock { start: part.0, end: part.0 + part.1, owner: gid, pid: 1 },
    }
}

fn run(kind: u8, steps: Vec<Step>) {
    let mut bench = Bench::new();
    let mut handles: Vec<(Owner, LockHandle)> = Vec::new();
    for step in steps {
        match step {
            Step::Enqueue { client: number, resource, mode, part, gid, flags } => {
                let mut mode = LockMode::ALL[mode];
                if kind == 3 {
                    mode = [LockMode::Pr, LockMode::Pw, LockMode::Nl][mode as usize % 3];
                }
                let policy = policy_of(kind, part, gid, mode);
                let owner = if number == 4 && kind != 3 { Owner::Local } else { client(number) };
                let flags = LockFlags::BLOCK_NOWAIT.when(flags == 1)
                    | LockFlags::SPECULATIVE.when(flags == 2)
                    | LockFlags::TRY.when(flags == 3)
                    | LockFlags::NO_EXPANSION.when(flags == 4);
                match bench.ask_on(resource, owner, policy, mode, flags) {
                    Enqueued::Granted(granted) => handles.push((owner, granted.handle)),
                    Enqueued::Waiting { handle, .. } => handles.push((owner, handle)),
                    _ => {}
                }
            }
            Step::Cancel(at) if !handles.is_empty() => {
                let at = at % handles.len();
                let (owner, handle) = handles.swap_remove(at);
                bench.cancel(owner, handle);
            }
            Step::Convert(at, bits) if !handles.is_empty() => {
                let (owner, handle) = handles[at % handles.len()];
                let bits = InodeBits(bits);
                let _ = bench.namespace.convert(NOW, owner, handle, bits, &mut bench.actions);
            }
            Step::Leave(number) => {
                bench.namespace.cancel_owner(NOW, number, &mut bench.actions);
            }
            _ => {}
        }
        (0..3).for_each(|resource| check(&bench.namespace, name(resource)));
    }
    // When all that is granted is cancelled, everything waiting comes to be granted.
    for _ in 0..handles.len() + 1 {
        for resource in 0..3 {
            for lock in bench.namespace.dump(name(resource)) {
                match lock.desc.policy {
                    _ if lock.desc.granted.is_none() => {}
                    // Which of its owner's requests it is of is forgotten where several were.
                    Policy::Flock { owner, pid, .. } => {
                        let all = Policy::Flock { start: 0, end: u64::MAX, owner, pid };
                        granted(bench.ask_on(resource, lock.owner, all, LockMode::Nl, NONE));
                    }
                    _ => _ = bench.cancel(lock.owner, lock.handle),
                }
            }
        }
    }
    let gauges = bench.namespace.gauges();
    assert_eq!((gauges.resources, gauges.granted, gauges.waiting), (0, [0; 4], [0; 4]));
    assert_eq!(bench.namespace.next_deadline(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn random_plain(steps in steps()) { run(0, steps); }

    #[test]
    fn random_extents(steps in steps()) { run(1, steps); }

    #[test]
    fn random_bits(steps in steps()) { run(2, steps); }

    #[test]
    fn random_flocks(steps in steps()) { run(3, steps); }

    #[test]
    fn flocks_equal_a_map_of_bytes(
        steps in prop::collection::vec((0..3u64, 0..3usize, 0..30u64, 0..10u64), 1..60)
    ) {
        let mut bench = Bench::new();
        let mut model: BTreeMap<u64, HashMap<u64, LockMode>> = BTreeMap::new();
        for (owner, mode, start, length) in steps {
            let mode = [LockMode::Pr, LockMode::Pw, LockMode::Nl][mode];
            let range = start..=start + length;
            let free = mode == LockMode::Nl || range.clone().all(|byte| {
                model.get(&byte).into_iter().flatten().all(|(&other, held)| {
                    other == owner || held.compatible(mode)
                })
            });
            let policy = flock(owner, start, start + length);
            let answer = bench.ask(client(1), policy, mode, LockFlags::BLOCK_NOWAIT);
            prop_assert_eq!(matches!(answer, Enqueued::Granted(_)), free);
            if free {
                for byte in range {
                    let holders = model.entry(byte).or_default();
                    holders.remove(&owner);
                    if mode != LockMode::Nl {
                        holders.insert(owner, mode);
                    }
                }
            }
            let mut bytes: BTreeMap<u64, HashMap<u64, LockMode>> = BTreeMap::new();
            let locks = bench.namespace.dump(name(1));
            for lock in &locks {
                let Policy::Flock { owner, start, end, .. } = lock.desc.policy else { panic!() };
                for byte in start..=end {
                    let clash =
                        bytes.entry(byte).or_default().insert(owner, lock.desc.granted.unwrap());
                    prop_assert_eq!(clash, None);
                }
            }
            model.retain(|_, holders| !holders.is_empty());
            prop_assert_eq!(&bytes, &model);
        }
    }
}

#[test]
fn a_lock_is_found_by_its_owners_handle_without_a_walk() {
    const COUNT: u64 = 20_000;
    let mut bench = Bench::new();
    let policy = Policy::bits(InodeBits::LOOKUP);
    let handles: Vec<_> = (1..=COUNT)
        .map(|n| granted(bench.ask_on(n, client(1), policy, LockMode::Pr, NONE)).0)
        .collect();
    let looked_at = |work: &mut dyn FnMut()| {
        let before = super::shard::LOOKED_AT.get();
        work();
        super::shard::LOOKED_AT.get() - before
    };
    let mut found = None;
    let looked = looked_at(&mut || found = bench.namespace.find(1, LockHandle(1)));
    assert_eq!(found.as_ref().map(|lock| lock.handle), Some(handles[0]));
    assert!(looked < 20, "{looked} locks were looked at");
    // No other client's handle, and none that is gone.
    assert!(bench.namespace.find(2, LockHandle(1)).is_none());
    assert_eq!(bench.cancel(client(1), handles[0]), 1);
    assert!(bench.namespace.find(1, LockHandle(1)).is_none());
    // Locks of one handle: the newest is found, then the older ones.
    let alike: Vec<_> = [7, 8, 7]
        .map(|resource| {
            bench.remote = 70_000;
            granted(bench.ask_on(resource, client(3), policy, LockMode::Pr, NONE)).0
        })
        .into();
    let find = |bench: &Bench| bench.namespace.find(3, LockHandle(70_001)).map(|it| it.handle);
    for gone in [2, 0, 1] {
        assert!(find(&bench).is_some());
        assert_eq!(bench.cancel(client(3), alike[gone]), 1);
    }
    assert_eq!(find(&bench), None);
    assert_eq!(bench.namespace.count_of(1), COUNT as usize - 1);
}

#[test]
fn no_more_locks_are_reclaimed_than_were_asked_for() {
    let mut bench = Bench::new();
    let policy = Policy::bits(InodeBits::LOOKUP);
    for resource in 0..1_000 {
        granted(bench.ask_on(resource, client(1), policy, LockMode::Pr, NONE));
    }
    for (count, expected) in [(2, 2..=2), (256, 200..=256)] {
        let now = NOW + Duration::from_secs(count as u64);
        bench.actions.clear();
        bench.namespace.reclaim(now, 1, count, &mut bench.actions);
        let revoked = |action: &&Action| matches!(action, Action::Blocking { .. });
        let revoked = bench.actions.iter().filter(revoked).count();
        assert!(expected.contains(&revoked), "{revoked} of {count}");
    }
}

/// Many owners' locks beside each other, and one that wants all of them.
#[test]
#[expect(clippy::disallowed_methods, reason = "it measures what a hundred thousand locks cost")]
fn a_lock_that_conflicts_with_many_costs_little() {
    const MANY: u64 = 100_000;
    let mut bench = Bench::new();
    for number in 0..MANY {
        let lock = flock(number + 1, number * 2, number * 2);
        granted(bench.ask(client(1), lock, LockMode::Pw, NONE));
    }
    let started = std::time::Instant::now();
    let all = waiting(bench.ask(client(2), flock(1, 0, u64::MAX), LockMode::Pw, NONE));
    let asked = started.elapsed();
    // Each release may let the waiting lock be granted; only the last one does.
    let started = std::time::Instant::now();
    for number in 0..100 {
        let lock = flock(number + 1, number * 2, number * 2);
        granted(bench.ask(client(1), lock, LockMode::Nl, NONE));
    }
    let released = started.elapsed();
    println!("{MANY} flocks: a conflicting enqueue {asked:?}, 100 releases {released:?}");
    let most = Duration::from_millis(if cfg!(debug_assertions) { 1_000 } else { 100 });
    assert!(asked < most && released < most, "{asked:?}, {released:?}");
    bench.actions.clear();
    bench.namespace.cancel_owner(NOW, 1, &mut bench.actions);
    let done: Vec<_> = bench.completed().into_iter().map(|(handle, ..)| handle).collect();
    assert_eq!(done, [all]);
}

/// A grant beside many waiting and many granted locks: each granted one is looked at about once.
#[test]
fn many_locks_that_wait_for_many_are_announced_once() {
    for policy in [Policy::bits(InodeBits::UPDATE), bytes(0, u64::MAX)] {
        let mut bench = Bench::new();
        let first = granted(bench.ask(client(1), policy, LockMode::Ex, NONE)).0;
        for number in 0..1_000 {
            waiting(bench.ask(client(number + 2), policy, LockMode::Pr, NONE));
        }
        for number in 0..1_000 {
            waiting(bench.ask(client(number + 2), policy, LockMode::Pw, NONE));
        }
        super::shard::LOOKED_AT.with(|count| count.set(0));
        bench.cancel(client(1), first);
        let looked_at = super::shard::LOOKED_AT.with(std::cell::Cell::get);
        let completions = |action: &&Action| match action {
            Action::Completion { flags, .. } => flags.contains(LockFlags::AST_SENT),
            _ => false,
        };
        assert_eq!(bench.actions.iter().filter(completions).count(), 1_000);
        println!("{policy:?}: {looked_at} locks looked at");
        assert!(looked_at < 100_000, "{looked_at} locks looked at");
    }
}

/// One client asks for twice as many mutually conflicting locks as it holds, and cancels all that it holds at once:
/// 4,000 took 202 s, in one turn.
#[test]
#[expect(clippy::disallowed_methods, reason = "what is tested is a time")]
fn a_request_that_cancels_many_looks_once_at_the_waiting_locks() {
    const COUNT: u64 = 4_000;
    const PAGE: u64 = sheen_types::PAGE_BYTES;
    let mut bench = Bench::new();
    let pages = |first: u64, count: u64| bytes(first * PAGE, (first + count) * PAGE - 1);
    let mut ask = |number, first, count| {
        bench.ask(client(number), pages(first, count), LockMode::Pw, LockFlags::NO_EXPANSION)
    };
    let held: Vec<_> = (0..COUNT).map(|it| granted(ask(2, 2 * it, 1)).0).rev().collect();
    (0..COUNT).for_each(|it| _ = waiting(ask(2, 2 * it, 2)));
    (0..COUNT).for_each(|it| _ = waiting(ask(3, 2 * it + 1, 1)));
    let begin = std::time::Instant::now();
    let count = bench.namespace.cancel(NOW, client(2), &held, &mut bench.actions);
    let granted = |action: &&Action| matches!(action, Action::Completion { .. });
    assert_eq!((count, bench.actions.iter().filter(granted).count()), (4_000, 4_000));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}
