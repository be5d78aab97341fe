//! The life of a cached lock by example.

use std::time::Duration;

use sheen_types::{Errno, Extent, InodeBits, Instant, LockHandle, LockMode, ResourceName};

use super::{
    Action, CachePolicy, Config, FlockGivenUp, FlockUser, LockInfo, MatchRequest, Namespace, Reply,
    UnknownLock,
};
use crate::{LockDesc, LockFlags, Policy};

const NAME: ResourceName = ResourceName([1, 0, 0, 0]);
const NOW: Instant = Instant(5);
const NONE: LockFlags = LockFlags::NONE;
const LOOKUP: InodeBits = InodeBits::LOOKUP;
const UPDATE: InodeBits = InodeBits::UPDATE;

fn namespace() -> Namespace {
    Namespace::new(Config { seed: 3, lru_size: 2, lru_max_age: Duration::from_secs(10) })
}

fn desc(policy: Policy, mode: LockMode, granted: bool) -> LockDesc {
    LockDesc { resource: NAME, policy, requested: mode, granted: granted.then_some(mode) }
}

fn want(policy: Policy, mode: LockMode) -> MatchRequest {
    MatchRequest { resource: NAME, policy, mode }
}

fn bytes(start: u64, end: u64) -> Policy {
    Policy::extent(Extent { start, end })
}

fn held(it: &Namespace, policy: Policy, mode: LockMode) -> LockHandle {
    let mut actions = Vec::new();
    let handle = it.begin(NOW, NAME, policy, mode, NONE);
    let remote_handle = LockHandle(!handle.0);
    let reply = Reply { remote_handle, desc: desc(policy, mode, true), flags: NONE, connection: 1 };
    it.replied(NOW, handle, &reply, &mut actions).unwrap();
    assert!(matches!(actions[..], [Action::Granted { .. }]));
    handle
}

fn unused(it: &Namespace, policy: Policy, mode: LockMode) -> LockHandle {
    let handle = held(it, policy, mode);
    let mut actions = Vec::new();
    it.release(NOW, handle, mode, &mut actions);
    assert_eq!(actions, []);
    handle
}

fn drops(actions: &mut Vec<Action>) -> Vec<(LockHandle, Policy)> {
    let drop = |action| match action {
        Action::DropCovered { handle, lost } => (handle, lost.part),
        other => panic!("unexpected {other:?}"),
    };
    actions.drain(..).map(drop).collect()
}

#[test]
fn a_stronger_and_wider_lock_will_do() {
    let it = namespace();
    let writer = held(&it, bytes(0, 8191), LockMode::Pw);
    let found = it.find(&want(bytes(4096, 8191), LockMode::Pr)).unwrap();
    assert_eq!((found.handle, found.mode), (writer, LockMode::Pw));
    assert_eq!(it.lock(writer).unwrap().writers, 2);
    assert_eq!(it.peek(&want(bytes(4096, 8192), LockMode::Pr)), None);
    assert_eq!(it.peek(&want(bytes(0, 1), LockMode::Ex)), None);
}

#[test]
fn a_lock_in_flight_is_not_found() {
    let it = namespace();
    let handle = it.begin(NOW, NAME, Policy::bits(LOOKUP), LockMode::Pr, NONE);
    let need = want(Policy::bits(LOOKUP), LockMode::Cr);
    assert_eq!(it.find(&need), None);
    let mut actions = Vec::new();
    it.failed(handle, Errno::EIO, &mut actions);
    assert_eq!(actions, [Action::Failed { handle, errno: Errno::EIO }]);
    it.release(NOW, handle, LockMode::Pr, &mut actions);
    assert_eq!((it.find(&need), it.gauges().locks), (None, 0));
}

#[test]
fn a_revoked_lock_goes_when_its_last_user_is_done_and_its_data_is_flushed() {
    let it = namespace();
    let policy = bytes(0, 4095);
    let handle = held(&it, policy, LockMode::Pw);
    let mut actions = Vec::new();
    let wanted = desc(policy, LockMode::Pr, false);
    it.blocking(NOW, handle, &wanted, NONE, &mut actions).unwrap();
    assert_eq!(actions, []);
    assert_eq!(it.find(&want(policy, LockMode::Pr)), None);
    it.release(NOW, handle, LockMode::Pw, &mut actions);
    assert_eq!(drops(&mut actions), [(handle, policy)]);
    assert_eq!(it.replay_list().len(), 1);
    it.covered_dropped(NOW, handle, &mut actions);
    assert_eq!(actions, [Action::Cancel { handle, remote_handle: LockHandle(!handle.0) }]);
    let late = it.blocking(NOW, handle, &wanted, NONE, &mut actions);
    assert_eq!(late, Err(UnknownLock));
}

#[test]
fn a_lock_is_replayed_in_the_mode_that_was_given() {
    let it = namespace();
    let policy = Policy::bits(LOOKUP | UPDATE);
    let handle = it.begin(NOW, NAME, policy, LockMode::Cr, NONE);
    let changed = LockFlags::LOCK_CHANGED;
    let reply = Reply {
        remote_handle: LockHandle(9),
        desc: desc(policy, LockMode::Pr, true),
        flags: changed,
        connection: 1,
    };
    it.replied(NOW, handle, &reply, &mut Vec::new()).unwrap();
    let replays = it.replay_list();
    assert_eq!(replays[0].desc, desc(policy, LockMode::Pr, true));
}

#[test]
fn a_lock_whose_answer_is_read_after_a_restart_is_none() {
    let it = namespace();
    let policy = Policy::bits(LOOKUP);
    let before = it.begin(NOW, NAME, policy, LockMode::Pr, NONE);
    let after = it.begin(NOW, NAME, policy, LockMode::Pr, NONE);
    assert!(!it.has_replayed_since(1));
    assert_eq!(it.begin_replay(2), []);
    assert!(it.has_replayed_since(1) && !it.has_replayed_since(2));
    let mut actions = Vec::new();
    let desc = desc(policy, LockMode::Pr, true);
    let reply = Reply { remote_handle: LockHandle(9), desc, flags: NONE, connection: 1 };
    assert_eq!(it.replied(NOW, before, &reply, &mut actions), Ok(None));
    assert_eq!((it.lock(before), it.peek(&want(policy, LockMode::Pr))), (None, None));
    assert_eq!(actions, []);
    // The other request was sent again.
    let reply = Reply { connection: 2, ..reply };
    assert!(it.replied(NOW, after, &reply, &mut actions).unwrap().is_some());
    assert_eq!(it.begin_replay(3).len(), 1);
    // What was granted, and so replayed, is known; it does not matter over what it came.
    assert!(it.replied(NOW, after, &reply, &mut actions).unwrap().is_some());
}

#[test]
fn callbacks_that_overtake_the_reply_count() {
    let it = namespace();
    let policy = Policy::bits(LOOKUP);
    let handle = it.begin(NOW, NAME, policy, LockMode::Pr, NONE);
    let mut actions = Vec::new();
    let granted = desc(policy, LockMode::Pr, true);
    it.completion(NOW, handle, &granted, NONE, &mut actions).unwrap();
    it.blocking(NOW, handle, &desc(policy, LockMode::Ex, false), NONE, &mut actions).unwrap();
    assert_eq!(actions, []);
    let waits = desc(policy, LockMode::Pr, false);
    let reply = Reply { remote_handle: LockHandle(9), desc: waits, flags: NONE, connection: 1 };
    let info = it.replied(NOW, handle, &reply, &mut actions).unwrap().unwrap();
    assert_eq!((info.desc.granted, info.is_revoked), (Some(LockMode::Pr), true));
    assert_eq!(actions.pop(), Some(Action::Granted { handle, desc: granted }));
    it.release(NOW, handle, LockMode::Pr, &mut actions);
    assert_eq!(drops(&mut actions), [(handle, policy)]);
}

#[test]
fn a_callback_for_some_bits_converts() {
    let it = namespace();
    it.set_convert(true);
    let handle = unused(&it, Policy::bits(LOOKUP | UPDATE), LockMode::Pr);
    let mut actions = Vec::new();
    let wanted = desc(Policy::bits(UPDATE), LockMode::Pw, false);
    it.blocking(NOW, handle, &wanted, NONE, &mut actions).unwrap();
    assert_eq!(drops(&mut actions), [(handle, Policy::bits(UPDATE))]);
    it.covered_dropped(NOW, handle, &mut actions);
    let remote_handle = LockHandle(!handle.0);
    let convert = Action::Convert { handle, remote_handle, drop: UPDATE, keep: LOOKUP };
    assert_eq!(actions.pop(), Some(convert));
    // A second callback before the answer is not forgotten.
    let wanted = desc(Policy::bits(LOOKUP), LockMode::Pw, false);
    it.blocking(NOW, handle, &wanted, NONE, &mut actions).unwrap();
    it.converted(NOW, handle, Ok(()), &mut actions);
    assert_eq!(drops(&mut actions), [(handle, Policy::bits(LOOKUP))]);
}

#[test]
fn unused_locks_go_by_number_and_age() {
    let it = namespace();
    let locks: Vec<_> =
        (0..3).map(|at| unused(&it, bytes(at * 10, at * 10 + 9), LockMode::Pr)).collect();
    let mut actions = Vec::new();
    it.shrink(NOW, 10, &mut actions);
    assert_eq!(drops(&mut actions), [(locks[0], bytes(0, 9))]);
    // Use makes the second the youngest.
    let used = it.find(&want(bytes(10, 19), LockMode::Pr)).unwrap();
    it.release(NOW, used.handle, used.mode, &mut actions);
    it.shrink(NOW + Duration::from_secs(10), 1, &mut actions);
    assert_eq!(drops(&mut actions), [(locks[2], bytes(20, 29))]);
    it.clear_unused(&mut actions);
    assert_eq!(drops(&mut actions), [(locks[1], bytes(10, 19))]);
}

#[test]
fn early_cancels_travel_with_a_request_or_go_alone() {
    let it = namespace();
    let lookup = unused(&it, Policy::bits(LOOKUP), LockMode::Pr);
    let busy = held(&it, Policy::bits(LOOKUP), LockMode::Pr);
    let other = unused(&it, Policy::bits(UPDATE), LockMode::Pr);
    let mut actions = Vec::new();
    let handles = it.cancel_early(NAME, LockMode::Ex, LOOKUP, &mut actions);
    assert_eq!((handles, drops(&mut actions).len()), (vec![lookup], 1));
    assert_eq!(it.take_cancelled(&[lookup, busy, other]), [LockHandle(!lookup.0)]);
    assert_eq!(it.take_cancelled(&[lookup]), []);
    // One that no request takes along goes when it is revoked.
    it.cancel_early(NAME, LockMode::Ex, UPDATE, &mut actions);
    actions.clear();
    it.covered_dropped(NOW, other, &mut actions);
    assert_eq!(actions, []);
    let wanted = desc(Policy::bits(UPDATE), LockMode::Ex, false);
    it.blocking(NOW, other, &wanted, NONE, &mut actions).unwrap();
    assert!(matches!(actions[..], [Action::Cancel { handle, .. }] if handle == other));
}

#[test]
fn flocks_merge_as_on_the_server_and_are_replayed() {
    let it = namespace();
    let flock = |start, end| Policy::Flock { start, end, owner: 7, pid: 1 };
    let first = held(&it, flock(0, 9), LockMode::Pw);
    held(&it, flock(10, 19), LockMode::Pw);
    held(&it, flock(5, 6), LockMode::Nl);
    let mut ranges: Vec<_> =
        it.replay_list().iter().map(|replay| replay.desc.policy.range()).collect();
    ranges.sort();
    assert_eq!(ranges, [Extent { start: 0, end: 4 }, Extent { start: 7, end: 19 }]);
    assert_eq!(it.lock(first).unwrap().desc.policy.range(), Extent { start: 7, end: 19 });
    let mut actions = Vec::new();
    it.release(NOW, first, LockMode::Pw, &mut actions);
    it.clear_unused(&mut actions);
    assert_eq!(actions, []);
}

#[test]
fn a_flock_that_is_given_up_after_its_grant_goes_alone_or_not_at_all() {
    let it = namespace();
    let flock = |start, end| Policy::Flock { start, end, owner: 7, pid: 1 };
    let alone = held(&it, flock(0, 9), LockMode::Pw);
    assert_eq!(it.give_up_flock(alone), FlockGivenUp::Cancelled(LockHandle(!alone.0)));
    assert!(it.lock(alone).is_none());
    let grown = held(&it, flock(0, 9), LockMode::Pw);
    held(&it, flock(10, 19), LockMode::Pw);
    assert_eq!(it.give_up_flock(grown), FlockGivenUp::Stays);
    assert_eq!(it.lock(grown).unwrap().desc.policy.range(), Extent { start: 0, end: 19 });
    let stronger = held(&it, flock(5, 6), LockMode::Pr);
    assert_eq!(it.give_up_flock(stronger), FlockGivenUp::Stays, "its other locks had to make room");
    let asked = it.begin(NOW, NAME, flock(30, 39), LockMode::Pw, NONE);
    assert_eq!(it.give_up_flock(asked), FlockGivenUp::Asked);
    answer_flock(&it, asked, false);
    assert_eq!(it.give_up_flock(asked), FlockGivenUp::Waits);
}

/// Each byte of a file by itself is the model.
#[test]
fn flocks_of_several_owners_are_what_each_has_of_each_byte() {
    const BYTES: u64 = 24;
    let (it, mut random) = (namespace(), 7_u64);
    let mut model = [[LockMode::Nl; BYTES as usize]; 3];
    let mut draw = |below: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for _ in 0..20_000 {
        let (owner, start) = (draw(3), draw(BYTES));
        let end = start + draw(BYTES - start);
        let mode = [LockMode::Nl, LockMode::Pr, LockMode::Pw][draw(3) as usize];
        held(&it, Policy::Flock { start, end, owner, pid: 1 }, mode);
        model[owner as usize][start as usize..=end as usize].fill(mode);
        let mut have = [[LockMode::Nl; BYTES as usize]; 3];
        let held = it.dump(NAME);
        for lock in &held {
            let Policy::Flock { start, end, owner, .. } = lock.desc.policy else { panic!() };
            let bytes = &mut have[owner as usize][start as usize..=end as usize];
            assert!(bytes.iter().all(|mode| *mode == LockMode::Nl), "{held:?}");
            bytes.fill(lock.desc.granted.unwrap());
        }
        assert_eq!(have, model);
        let owns = |lock: &&LockInfo, range: Extent| {
            let theirs = lock.desc.policy.range();
            matches!(lock.desc.policy, Policy::Flock { owner: it, .. } if it == owner)
                && theirs.start <= range.end + 1
                && range.start <= theirs.end + 1
        };
        let range = Extent { start, end };
        let near = it.flocks_near(NAME, owner, range);
        assert_eq!(near.len(), held.iter().filter(|lock| owns(lock, range)).count());
        assert_eq!(it.has_flocks(NAME, owner), model[owner as usize] != [LockMode::Nl; 24]);
    }
}

/// Each change went through all that the file's owners had.
#[test]
fn a_flock_costs_as_much_beside_a_thousand_as_beside_none() {
    let it = namespace();
    let flock = |at, owner| Policy::Flock { start: at, end: at, owner, pid: 1 };
    let looked_at = || it.state.lock().table.flocks_looked_at.replace(0);
    let (mut first, mut last) = (0, 0);
    for number in 0..1_000 {
        for owner in [7, 8] {
            held(&it, flock(2 * number, owner), LockMode::Pw);
        }
        held(&it, flock(0, 7), LockMode::Pr);
        held(&it, flock(4 * number, 7), LockMode::Nl);
        let _ = it.flocks_near(NAME, 7, Extent { start: number, end: number });
        last = looked_at();
        first = first.max(if number < 10 { last } else { 0 });
    }
    assert!(it.gauges().locks > 1_000);
    assert!((1..=first).contains(&last), "{last} at the end, {first} at the begin");
}

/// A process with many flocks was named once for each.
#[test]
fn an_owner_of_many_flocks_is_named_once() {
    let it = namespace();
    let flock = |at, owner, pid| Policy::Flock { start: at, end: at, owner, pid };
    for at in 0..10 {
        held(&it, flock(3 * at, 9, 1), LockMode::Pw);
        held(&it, flock(3 * at, 7, 1), LockMode::Pr);
        held(&it, flock(3 * at, 8, 2), LockMode::Pr);
    }
    assert_eq!([1, 2, 3].map(|pid| it.flock_owners(NAME, pid)), [vec![7, 9], vec![8], vec![]]);
}

fn begin_flock(
    it: &Namespace,
    uid: u32,
    (owner, start, end): (u64, u64, u64),
    mode: LockMode,
    most: Option<usize>,
) -> Option<LockHandle> {
    let policy = Policy::Flock { start, end, owner, pid: 1 };
    it.begin_flock(NOW, NAME, policy, mode, NONE, FlockUser { uid, most })
}

/// A flock that was asked for is held, or waits.
fn answer_flock(it: &Namespace, handle: LockHandle, is_granted: bool) {
    let asked = it.lock(handle).unwrap().desc;
    let desc = LockDesc { granted: is_granted.then_some(asked.requested), ..asked };
    let reply = Reply { remote_handle: LockHandle(!handle.0), desc, flags: NONE, connection: 1 };
    it.replied(NOW, handle, &reply, &mut Vec::new()).unwrap();
}

/// One user had all flocks that the target grants a client: no other user had one, nor root.
#[test]
fn no_user_has_all_flocks_of_a_client_and_no_users_those_of_root() {
    let it = namespace();
    let most = Some(16);
    let lock = |uid, at| {
        let handle = begin_flock(&it, uid, (uid.into(), at, at), LockMode::Pw, most)?;
        answer_flock(&it, handle, true);
        Some(handle)
    };
    let locks = |uid, count: u64| (0..count).all(|number| lock(uid, 2 * number).is_some());
    assert!(locks(10, 8));
    assert_eq!(lock(10, 100), None, "half of them");
    assert!(begin_flock(&it, 10, (10, 100, 100), LockMode::Pw, None).is_some_and(|handle| {
        it.failed(handle, Errno::EAGAIN, &mut Vec::new());
        true
    }));
    assert!(locks(20, 6));
    assert_eq!(lock(20, 100), None, "an eighth is root's");
    assert!(locks(0, 20), "the target says what root may have");
    // One that is merged is none, and one that becomes free makes room.
    for (start, end) in [(1, 1), (4, 14)] {
        let handle = begin_flock(&it, 10, (10, start, end), LockMode::Nl, most).unwrap();
        answer_flock(&it, handle, true);
    }
    assert_eq!((it.flocks_of_user(10), it.flocks_of_user(20)), (2, 6));
    assert!(lock(10, 1).is_some() && lock(10, 3).is_some());
    assert_eq!(it.flocks_of_user(10), 1, "0 to 3");
    it.evict(&mut Vec::new());
    assert_eq!([0, 10, 20].map(|uid| it.flocks_of_user(uid)), [0; 3]);
    assert!(locks(20, 8));
}

/// The threads of one user's processes waited for all flocks on a file that the server lets a client wait for.
#[test]
fn no_user_waits_for_all_flocks_on_a_file_and_no_users_for_those_of_root() {
    let it = namespace();
    let all = crate::limits::FLOCKS_WAITING_PER_CLIENT as u64;
    let begin = |name, uid: u32, owner, flags, most| {
        let policy = Policy::Flock { start: 0, end: 9, owner, pid: 1 };
        it.begin_flock(NOW, name, policy, LockMode::Pw, flags, FlockUser { uid, most })
    };
    let many = Some(1 << 20);
    let wait = |uid, owner| begin(NAME, uid, owner, NONE, many);
    let waits = |uid, owners: std::ops::Range<u64>| -> Vec<LockHandle> {
        owners.map_while(|owner| wait(uid, owner)).collect()
    };
    let ten = waits(10, 0..all);
    assert_eq!(ten.len() as u64, all / 2, "half of them");
    for handle in &ten[1..] {
        answer_flock(&it, *handle, false);
    }
    assert_eq!(wait(10, all), None, "also while they wait at the server");
    let elsewhere = ResourceName([7, 7, 7, 7]);
    let (other_file, tried) =
        (begin(elsewhere, 10, 1, NONE, many), begin(NAME, 10, all, LockFlags::BLOCK_NOWAIT, many));
    assert!(other_file.is_some() && tried.is_some(), "on another file, and without a wait");
    assert!(begin(NAME, 10, all, NONE, None).is_some(), "a server of Lustre's");
    assert_eq!(waits(20, all..2 * all).len() as u64, 3 * all / 8 - 1, "an eighth is root's");
    assert_eq!(waits(0, 2 * all..3 * all).len() as u64, all, "the server says what root may");
    // One that is granted, one that fails and one that is given up wait no more.
    answer_flock(&it, ten[0], true);
    it.failed(ten[1], Errno::EIO, &mut Vec::new());
    it.release(NOW, ten[2], LockMode::Pw, &mut Vec::new());
    // The one that did not count against the limit is one of them.
    assert_eq!(waits(10, 3 * all..4 * all).len(), 2);
    it.evict(&mut Vec::new());
    assert_eq!(waits(10, 0..all).len() as u64, all / 2);
}

#[test]
fn a_flock_that_waits_or_cuts_another_one_in_two_counts_for_what_it_makes() {
    let it = namespace();
    let most = Some(8);
    let begin = |start, end, mode| begin_flock(&it, 10, (7, start, end), mode, most);
    let whole = begin(0, 99, LockMode::Pr).unwrap();
    assert_eq!(it.flocks_of_user(10), 2);
    answer_flock(&it, whole, true);
    assert_eq!(it.flocks_of_user(10), 1);
    let waits = begin(10, 10, LockMode::Pw).unwrap();
    answer_flock(&it, waits, false);
    assert_eq!(it.flocks_of_user(10), 3);
    let desc = LockDesc { granted: Some(LockMode::Pw), ..it.lock(waits).unwrap().desc };
    it.completion(NOW, waits, &desc, NONE, &mut Vec::new()).unwrap();
    assert_eq!(it.flocks_of_user(10), 3, "three are held");
    answer_flock(&it, begin(20, 20, LockMode::Nl).unwrap(), true);
    assert_eq!(it.flocks_of_user(10), 4);
    assert_eq!(begin(30, 30, LockMode::Nl), None, "its half, and one more with that");
    assert_eq!(
        begin_flock(&it, 0, (7, 30, 30), LockMode::Nl, most).map(|handle| {
            it.failed(handle, Errno::EIO, &mut Vec::new());
        }),
        Some(())
    );
    assert_eq!(it.flocks_of_user(10), 4);
    answer_flock(&it, begin(15, 20, LockMode::Nl).unwrap(), true);
    answer_flock(&it, begin(0, 99, LockMode::Nl).unwrap(), true);
    assert_eq!((it.flocks_of_user(10), it.gauges().locks), (0, 0));
    // A wait that is given up, and one that fails.
    let waits = begin(10, 10, LockMode::Pw).unwrap();
    answer_flock(&it, waits, false);
    it.release(NOW, waits, LockMode::Pw, &mut Vec::new());
    let waits = begin(10, 10, LockMode::Pw).unwrap();
    answer_flock(&it, waits, false);
    let desc = it.lock(waits).unwrap().desc;
    it.completion(NOW, waits, &desc, LockFlags::FLOCK_DEADLOCK, &mut Vec::new()).unwrap();
    assert_eq!(it.flocks_of_user(10), 0);
}

#[test]
fn a_flock_that_would_deadlock_fails() {
    let it = namespace();
    let policy = Policy::Flock { start: 0, end: 9, owner: 7, pid: 1 };
    let handle = it.begin(NOW, NAME, policy, LockMode::Pw, NONE);
    let mut actions = Vec::new();
    let waits = desc(policy, LockMode::Pw, false);
    let reply = Reply { remote_handle: LockHandle(9), desc: waits, flags: NONE, connection: 1 };
    it.replied(NOW, handle, &reply, &mut actions).unwrap();
    it.completion(NOW, handle, &waits, LockFlags::FLOCK_DEADLOCK, &mut actions).unwrap();
    assert_eq!(actions, [Action::Failed { handle, errno: Errno::EDEADLK }]);
}

#[test]
fn a_wait_that_is_given_up_is_cancelled_at_the_server() {
    let it = namespace();
    let policy = bytes(0, 9);
    let waits = desc(policy, LockMode::Pw, false);
    let reply = Reply { remote_handle: LockHandle(9), desc: waits, flags: NONE, connection: 1 };
    let mut actions = Vec::new();
    let handle = it.begin(NOW, NAME, policy, LockMode::Pw, NONE);
    it.release(NOW, handle, LockMode::Pw, &mut actions);
    assert_eq!(actions, []);
    it.replied(NOW, handle, &reply, &mut actions).unwrap();
    assert_eq!(actions, [Action::Cancel { handle, remote_handle: LockHandle(9) }]);
}

#[test]
fn eviction_voids_everything() {
    let it = namespace();
    let lock = held(&it, bytes(0, 9), LockMode::Pw);
    let flying = it.begin(NOW, NAME, bytes(20, 29), LockMode::Pw, NONE);
    let mut actions = Vec::new();
    it.evict(&mut actions);
    assert_eq!(actions.len(), 2);
    assert!(matches!(actions[0], Action::Void { handle, .. } if handle == lock));
    assert!(matches!(actions[1], Action::Failed { handle, .. } if handle == flying));
    assert_eq!(it.gauges().locks, 0);
    it.release(NOW, lock, LockMode::Pw, &mut actions);
}

#[test]
fn a_lock_that_a_restarted_server_refuses_is_void_and_the_rest_stays() {
    let it = namespace();
    let (lost, kept) = (bytes(0, 9), bytes(20, 29));
    let lock = held(&it, lost, LockMode::Pw);
    unused(&it, kept, LockMode::Pw);
    let mut actions = Vec::new();
    it.refused(lock, &mut actions);
    assert!(matches!(actions[..], [Action::Void { handle, lost: it }]
        if handle == lock && it.part == lost));
    assert_eq!(it.peek(&want(lost, LockMode::Pr)), None);
    assert!(it.peek(&want(kept, LockMode::Pr)).is_some());
    // Its user ends later and has nothing to release.
    actions.clear();
    it.release(NOW, lock, LockMode::Pw, &mut actions);
    it.refused(lock, &mut actions);
    assert_eq!(actions, []);
}

/// A lock of its own resource, unused from `now` on.
fn unused_at(it: &Namespace, number: u64, now: Instant) -> LockHandle {
    let (mut actions, policy) = (Vec::new(), Policy::bits(LOOKUP));
    let resource = ResourceName([number, 0, 0, 0]);
    let handle = it.begin(now, resource, policy, LockMode::Pr, NONE);
    let desc = LockDesc { resource, ..desc(policy, LockMode::Pr, true) };
    let reply = Reply { remote_handle: LockHandle(!handle.0), desc, flags: NONE, connection: 1 };
    it.replied(now, handle, &reply, &mut actions).unwrap();
    it.release(now, handle, LockMode::Pr, &mut actions);
    handle
}

fn use_again(it: &Namespace, number: u64) {
    let resource = ResourceName([number, 0, 0, 0]);
    let wanted = MatchRequest { resource, ..want(Policy::bits(LOOKUP), LockMode::Pr) };
    let found = it.find(&wanted).expect("a cached lock");
    it.release(NOW, found.handle, found.mode, &mut Vec::new());
}

/// The resources of the locks that go when ten are kept.
fn driven_out(it: &Namespace) -> Vec<u64> {
    it.set_limits(10, Duration::from_secs(1000));
    let mut actions = Vec::new();
    it.shrink(NOW, usize::MAX, &mut actions);
    let gone = |action| match action {
        Action::DropCovered { lost, .. } => lost.resource.0[0],
        other => panic!("unexpected {other:?}"),
    };
    actions.into_iter().map(gone).collect()
}

#[test]
fn locks_that_are_used_often_outlive_many_that_are_used_once() {
    let often_and_once = |policy| {
        let it = namespace();
        it.set_policy(policy);
        unused_at(&it, 1, NOW);
        use_again(&it, 1);
        for number in 2..12 {
            unused_at(&it, number, NOW);
        }
        it
    };
    assert_eq!(driven_out(&often_and_once(CachePolicy::Lru)), [1]);
    let it = often_and_once(CachePolicy::Lfru);
    assert_eq!((it.gauges().privileged, it.gauges().privilege_threshold), (1, 2));
    assert_eq!(driven_out(&it), [2]);
    use_again(&it, 1);
    assert_eq!(it.gauges().privileged_hits, 1);
    // The limit holds for the privileged, too.
    it.set_limits(0, Duration::from_secs(1000));
    let mut actions = Vec::new();
    it.shrink(NOW, usize::MAX, &mut actions);
    assert_eq!((actions.len(), it.gauges().unused), (10, 0));
    // Setting the other policy ends all privileges.
    let it = often_and_once(CachePolicy::Lfru);
    it.set_policy(CachePolicy::Lru);
    assert_eq!(it.gauges().privileged, 0);
    use_again(&it, 1);
    assert_eq!((it.gauges().privileged, it.gauges().privileged_hits), (0, 0));
    // A higher score to reach, and no lock is privileged.
    let it = namespace();
    it.set_privilege_threshold(5);
    unused_at(&it, 1, NOW);
    use_again(&it, 1);
    assert_eq!(it.gauges().privileged, 0);
}

#[test]
fn too_many_privileged_locks_are_none() {
    let it = namespace();
    it.set_limits(1000, Duration::from_secs(1000));
    for number in 0..200 {
        unused_at(&it, number, NOW);
        it.set_privilege_threshold(1);
        use_again(&it, number);
    }
    let demoted = |percent| {
        it.set_privilege_ratio(percent);
        let before = it.gauges().privileged;
        it.shrink(NOW, 1, &mut Vec::new());
        before - it.gauges().privileged
    };
    assert_eq!(it.gauges().privileged, 200);
    assert_eq!((it.gauges().privilege_ratio, demoted(30)), (29, 10));
    for number in 200..400 {
        unused_at(&it, number, NOW);
    }
    assert_eq!(demoted(70), 0, "190 of 400");
    assert_eq!(demoted(40), 10);
}

#[test]
fn a_privileged_lock_that_is_too_old_goes() {
    let it = namespace();
    unused_at(&it, 1, NOW);
    use_again(&it, 1);
    let mut actions = Vec::new();
    it.shrink(NOW + Duration::from_secs(9), 10, &mut actions);
    assert_eq!(actions, []);
    it.shrink(NOW + Duration::from_secs(10), 10, &mut actions);
    assert_eq!(drops(&mut actions).len(), 1);
}

#[test]
fn an_old_lock_goes_whole_when_a_part_is_wanted() {
    let wanted = desc(Policy::bits(UPDATE), LockMode::Ex, false);
    for (age, limit, part) in [(9, 10, UPDATE), (11, 10, LOOKUP | UPDATE), (11, 20, UPDATE)] {
        let it = namespace();
        it.set_convert(true);
        it.set_dirty_age(Duration::from_secs(limit));
        let handle = unused(&it, Policy::bits(LOOKUP | UPDATE), LockMode::Pr);
        let mut actions = Vec::new();
        let now = NOW + Duration::from_secs(age);
        it.blocking(now, handle, &wanted, NONE, &mut actions).unwrap();
        assert_eq!(drops(&mut actions), [(handle, Policy::bits(part))]);
    }
}

#[test]
fn an_unused_lock_for_writing_goes_after_a_glimpse() {
    let late = NOW + Duration::from_secs(11);
    for (mode, now, goes) in
        [(LockMode::Pw, late, true), (LockMode::Pw, NOW, false), (LockMode::Pr, late, false)]
    {
        let it = namespace();
        let handle = unused(&it, bytes(0, 99), mode);
        let mut actions = Vec::new();
        it.glimpsed(now, handle, &mut actions);
        assert_eq!(!drops(&mut actions).is_empty(), goes);
        let used = held(&it, bytes(100, 199), LockMode::Pw);
        it.glimpsed(late, used, &mut actions);
        assert_eq!(actions, []);
    }
    // Of an inode's lock only the data is about it.
    let it = namespace();
    it.set_convert(true);
    let handle = unused(&it, Policy::bits(LOOKUP | InodeBits::DOM), LockMode::Pw);
    let mut actions = Vec::new();
    it.glimpsed(late, handle, &mut actions);
    assert_eq!(drops(&mut actions), [(handle, Policy::bits(InodeBits::DOM))]);
}

#[test]
fn an_unused_lock_that_goes_before_a_replay_is_not_replayed_and_not_cancelled() {
    let it = namespace();
    let (gone, late) =
        (unused(&it, bytes(0, 9), LockMode::Pr), unused(&it, bytes(10, 19), LockMode::Pr));
    let used = held(&it, bytes(20, 29), LockMode::Pr);
    assert_eq!(it.unused().len(), 2);
    let mut actions = Vec::new();
    it.forgo(&[gone, late, used], &mut actions);
    assert_eq!(drops(&mut actions).len(), 2);
    it.covered_dropped(NOW, gone, &mut actions);
    assert_eq!(actions, [], "the server does not know it");
    let replayed: Vec<_> = it.begin_replay(2).into_iter().map(|replay| replay.handle).collect();
    assert_eq!(replayed, [late, used], "what is not flushed yet is held");
    assert!(it.replayed(late, LockHandle(77)));
    it.covered_dropped(NOW, late, &mut actions);
    assert_eq!(actions, [Action::Cancel { handle: late, remote_handle: LockHandle(77) }]);
    assert!(!it.replayed(late, LockHandle(78)), "it is gone");
}
