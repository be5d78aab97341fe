//! An import and a server as a pair in virtual time, over a network that loses, doubles, delays and
//! reorders messages and breaks connections, with a server that crashes: all from a seed.

mod cluster;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cluster::{Cluster, Faults, PARTNER};
use proptest::prelude::*;
use server::Stranger;
use sheen_rpc::import::Event;
use sheen_rpc::{Answer, CallKind, ImportState, OwnTimes, RequestHook, RpcError, Time};
use sheen_types::{Errno, Transno};
use sheen_wire::messages::Request;
use sheen_wire::opcode::Opcode;
use sheen_wire::ptlrpc::PtlrpcBody;

#[test]
fn without_faults_everything_is_answered_at_once() {
    let mut cluster = Cluster::new(1, Faults::default());
    cluster.connect();
    for _ in 0..50 {
        cluster.submit(CallKind::Modifying);
        cluster.submit(CallKind::Normal);
    }
    cluster.run(10);
    cluster.check();
    assert_eq!(cluster.answered(), 100);
    assert_eq!(cluster.engine.counters().resent, 0);
}

#[test]
fn changes_under_way_are_counted_and_no_more_than_operators_allow() {
    let mut cluster = Cluster::new(7, Faults::default());
    cluster.connect();
    cluster.feed(Event::ClearStats);
    cluster.feed(Event::LimitModifying(2));
    for _ in 0..9 {
        cluster.submit(CallKind::Modifying);
    }
    assert_eq!(cluster.engine.traffic().modifying_now, 2);
    cluster.run(10);
    cluster.check();
    let traffic = cluster.engine.traffic();
    assert_eq!((traffic.modifying[..4].to_vec(), traffic.modifying_max), (vec![0, 1, 8, 0], 2));
    assert!(traffic.waited_us.count >= 9 && traffic.active.count >= 9, "{traffic:?}");
    assert!(traffic.last_reply.is_some() && traffic.nids[0].1.connects == 1, "{traffic:?}");
}

#[test]
fn a_request_without_a_waiting_caller_lingers_in_no_slot_that_another_may_need() {
    for (limit, lingering) in [(usize::MAX, 3), (2, 1), (1, 0)] {
        let mut cluster = Cluster::new(8, Faults::default());
        cluster.connect();
        cluster.feed(Event::LimitModifying(limit));
        for _ in 0..limit.min(4) {
            cluster.submit_behind();
        }
        assert_eq!(cluster.lingering, lingering, "{limit} slots of 4");
        cluster.run(10);
        cluster.check();
    }
}

#[test]
fn what_requests_in_flight_may_wait_for_goes_past_them() {
    let mut cluster = Cluster::new(9, Faults { work_seconds_max: 0, ..Faults::default() });
    cluster.connect();
    cluster.server.work_seconds = Some(30);
    // All places, and one more that waits for a place.
    let places = cluster.engine.requests_in_flight();
    (0..=places).for_each(|_| cluster.submit(CallKind::Normal));
    assert_eq!(cluster.engine.counters().waiting, 1);
    cluster.submit_awaited();
    assert_eq!(cluster.engine.counters().waiting, 1);
    // Also what was asked for while there was no connection.
    cluster.break_connection();
    cluster.submit_awaited();
    assert_eq!(cluster.engine.counters().waiting, 2);
    cluster.run(5);
    assert_eq!((cluster.engine.state(), cluster.engine.counters().waiting), (ImportState::Full, 1));
    cluster.server.work_seconds = None;
    cluster.run(120);
    cluster.check();
    assert_eq!(cluster.answered(), places + 3);
}

#[test]
fn a_slow_request_is_kept_alive_by_early_replies() {
    let mut cluster = Cluster::new(2, Faults { work_seconds_max: 0, ..Faults::default() });
    cluster.connect();
    cluster.server.work_seconds = Some(90);
    cluster.submit(CallKind::Modifying);
    cluster.run(120);
    cluster.check();
    let counters = cluster.engine.counters();
    assert_eq!((cluster.answered(), counters.timeouts, counters.resent), (1, 0, 0));
    assert!(counters.early_replies >= 2, "{counters:?}");
}

#[test]
fn silence_times_out_and_the_request_is_sent_again() {
    let mut cluster = Cluster::new(3, Faults::default());
    cluster.connect();
    cluster.server.deaf_until = cluster.seconds() + 30;
    cluster.submit(CallKind::Modifying);
    cluster.submit(CallKind::NoResend);
    cluster.run(90);
    cluster.check_except(1);
    let counters = cluster.engine.counters();
    assert!(counters.timeouts >= 1 && counters.resent >= 1, "{counters:?}");
    assert_eq!(cluster.failures(), [RpcError::Disconnected]);
}

#[test]
fn a_target_that_cannot_do_it_now_is_asked_again_until_it_can() {
    for errno in [Errno::EAGAIN, Errno::EINPROGRESS] {
        let mut cluster = Cluster::new(9, Faults::default());
        cluster.connect();
        cluster.server.refuses_data = (15, errno);
        cluster.submit_data(CallKind::Idempotent);
        cluster.run(200);
        cluster.check();
        assert_eq!((cluster.server.data_requests, cluster.answered()), (16, 1));
    }
}

#[test]
fn what_ends_with_its_caller_is_not_sent_again() {
    for ends in [true, false] {
        // Put off by a target that is busy: given up before its answer comes, and while it is put off.
        for after in [0, 20] {
            let mut cluster = Cluster::new(11, Faults::default());
            cluster.connect();
            cluster.server.refuses_data = (u32::MAX, Errno::EINPROGRESS);
            cluster.submit_given_up(ends, after);
            cluster.run(5);
            let asked = cluster.server.data_requests;
            cluster.run(60);
            assert_eq!(cluster.server.data_requests > asked, !ends);
        }
        // Not answered when the connection breaks, and given up before that and after it.
        for after in [0, 60] {
            let mut cluster = Cluster::new(12, Faults::default());
            cluster.connect();
            cluster.server.deaf_until = cluster.seconds() + 70;
            cluster.submit_given_up(ends, after);
            cluster.run(150);
            assert_eq!(cluster.server.data_requests, u32::from(!ends), "{after}");
        }
    }
}

#[test]
fn an_eviction_ends_what_a_target_puts_off() {
    let mut cluster = Cluster::new(10, Faults::default());
    cluster.connect();
    cluster.submit(CallKind::Modifying);
    cluster.server.refuses_data = (u32::MAX, Errno::EAGAIN);
    cluster.submit_data(CallKind::Idempotent);
    cluster.run(20);
    cluster.server.evict();
    cluster.break_connection();
    cluster.run(60);
    cluster.check_except(1);
    assert_eq!(cluster.failures(), [RpcError::Evicted]);
    let asked = cluster.server.data_requests;
    cluster.run(60);
    assert_eq!(cluster.server.data_requests, asked, "its lock is gone");
}

#[test]
fn operators_say_how_long_a_request_is_waited_for() {
    let timeouts_of = |change: fn(&mut Cluster)| {
        let mut cluster = Cluster::new(3, Faults::default());
        cluster.connect();
        change(&mut cluster);
        cluster.server.deaf_until = cluster.seconds() + 40;
        cluster.submit(CallKind::Modifying);
        cluster.run(30);
        let early = cluster.engine.counters().timeouts;
        cluster.run(160);
        cluster.check();
        (early > 0, cluster.engine.counters().timeouts > 0)
    };
    assert_eq!(timeouts_of(|_| {}), (true, true));
    let [process, device]: [fn(&mut Cluster); 2] = [
        |cluster| cluster.timing.set(Time::AtMin, 60),
        |cluster| cluster.feed(Event::OwnTimes(OwnTimes { at_min: 60, ..OwnTimes::default() })),
    ];
    assert_eq!(timeouts_of(process), (false, true));
    assert_eq!(timeouts_of(device), (false, true));
    // Without adaptive timeouts it is `timeout`.
    let fixed: fn(&mut Cluster) = |cluster| {
        cluster.timing.set(Time::AtMax, 0);
        cluster.timing.set(Time::Timeout, 100);
    };
    assert_eq!(timeouts_of(fixed), (false, true));
}

#[test]
fn operators_say_how_often_is_pinged() {
    let mut cluster = Cluster::new(3, Faults::default());
    cluster.connect();
    cluster.run(8);
    let before = cluster.engine.counters().sent;
    // Also the ping that is due already, at 25 seconds, comes earlier.
    cluster.timing.set(Time::PingInterval, 4);
    cluster.feed(Event::TimingChanged);
    cluster.run(13);
    assert_eq!(cluster.engine.counters().sent - before, 3);
    cluster.timing.set(Time::Timeout, 4000);
    cluster.run(5);
    let before = cluster.engine.counters().sent;
    cluster.run(900);
    assert_eq!(cluster.engine.counters().sent, before);
}

#[test]
fn an_unused_connection_is_given_up_and_made_again_when_it_is_needed() {
    let mut cluster = Cluster::new(3, Faults::default());
    cluster.connect();
    cluster.feed(Event::IdleTimeout(Duration::from_secs(20)));
    cluster.submit(CallKind::Modifying);
    cluster.run(19);
    assert_eq!(cluster.engine.state(), ImportState::Full);
    cluster.run(60);
    assert_eq!(cluster.engine.state(), ImportState::Idle);
    let sent = cluster.engine.counters().sent;
    cluster.run(600);
    assert_eq!(cluster.engine.counters().sent, sent, "an idle import says nothing");
    // Who may not wait for a target that is away waits for one that was not needed.
    for kind in [CallKind::NoDelay, CallKind::NoDelay, CallKind::Modifying] {
        cluster.submit(kind);
    }
    cluster.run(2);
    cluster.check();
    assert_eq!((cluster.answered(), cluster.engine.state()), (4, ImportState::Full));
    cluster.run(60);
    cluster.crash();
    assert_eq!(cluster.engine.state(), ImportState::Idle);
    cluster.submit(CallKind::Modifying);
    cluster.run(5);
    cluster.check();
    assert_eq!(cluster.engine.counters().evictions, 0);
    cluster.feed(Event::IdleTimeout(Duration::ZERO));
    cluster.run(100);
    assert_eq!(cluster.engine.state(), ImportState::Full);
}

#[test]
fn a_connection_under_which_there_are_locks_or_changes_to_replay_is_kept() {
    for (locks, commits) in [(1, true), (0, false)] {
        let mut cluster = Cluster::new(3, Faults::default());
        cluster.connect();
        (cluster.locks, cluster.server.commits) = (locks, commits);
        cluster.feed(Event::IdleTimeout(Duration::from_secs(20)));
        cluster.submit(CallKind::Modifying);
        cluster.run(200);
        assert_eq!(cluster.engine.state(), ImportState::Full);
    }
}

#[test]
fn a_call_that_may_not_wait_fails_when_an_idle_target_is_away() {
    let mut cluster = Cluster::new(3, Faults::default());
    cluster.connect();
    cluster.feed(Event::IdleTimeout(Duration::from_secs(2)));
    cluster.run(30);
    cluster.server.refuses_until = cluster.seconds() + 30;
    cluster.submit(CallKind::NoDelay);
    cluster.submit(CallKind::Normal);
    cluster.run(5);
    assert_eq!((cluster.failures(), cluster.answered()), (vec![RpcError::Disconnected], 0));
    cluster.run(30);
    cluster.check_except(1);
}

#[test]
fn an_import_that_operators_turn_off_refuses_calls_until_they_turn_it_on() {
    let mut cluster = Cluster::new(3, Faults::default());
    cluster.connect();
    cluster.submit(CallKind::Modifying);
    cluster.run(2);
    cluster.server.work_seconds = Some(9);
    cluster.submit(CallKind::Modifying);
    cluster.feed(Event::Activate(false));
    cluster.submit(CallKind::Normal);
    cluster.feed(Event::Reconnect);
    cluster.run(30);
    let eio = RpcError::Errno(sheen_types::Errno::EIO);
    assert_eq!(cluster.failures(), [eio.clone(), eio]);
    assert_eq!(cluster.engine.state(), ImportState::Disconn);
    cluster.server.work_seconds = None;
    cluster.feed(Event::Activate(true));
    cluster.run(2);
    cluster.submit(CallKind::Modifying);
    cluster.run(2);
    assert_eq!((cluster.answered(), cluster.engine.state()), (2, ImportState::Full));
    assert_eq!(cluster.engine.counters().evictions, 0);
}

#[test]
fn a_lost_connection_is_made_again_at_once_or_when_a_caller_asks() {
    for is_on in [true, false] {
        let mut cluster = Cluster::new(3, Faults::default());
        cluster.connect();
        cluster.feed(Event::AutoReconnect(is_on));
        cluster.break_connection();
        cluster.run(60);
        assert_eq!(cluster.engine.state() == ImportState::Full, is_on);
        cluster.submit(CallKind::Normal);
        cluster.run(2);
        cluster.check();
    }
}

#[test]
fn a_target_that_recovers_and_takes_no_new_clients_is_distinguished_from_one_that_is_away() {
    let mut cluster = Cluster::new(3, Faults::default());
    cluster.server.refuses_connects = Some(Errno::EBUSY);
    cluster.feed(Event::Connect(1));
    cluster.run(30);
    assert_ne!(cluster.engine.state(), ImportState::Full);
    assert!(cluster.engine.is_refused_in_recovery());
    cluster.server.refuses_until = cluster.seconds() + 120;
    cluster.run(119);
    assert!(!cluster.engine.is_refused_in_recovery(), "no answer says so any more");
    cluster.run(60);
    assert!(cluster.engine.is_refused_in_recovery());
    cluster.server.refuses_connects = None;
    cluster.run(60);
    assert_eq!(
        (cluster.engine.state(), cluster.engine.is_refused_in_recovery()),
        (ImportState::Full, false)
    );
}

#[test]
fn what_a_target_gave_is_void_once_it_refuses_us_for_good() {
    let mut cluster = Cluster::new(3, Faults::default());
    cluster.connect();
    cluster.submit(CallKind::Modifying);
    cluster.run(2);
    assert_eq!((cluster.answered(), cluster.invalidations), (1, 0));
    cluster.server.refuses_connects = Some(Errno::EPROTO);
    cluster.break_connection();
    cluster.run(120);
    assert_eq!((cluster.engine.state(), cluster.invalidations), (ImportState::Disconn, 1));
    cluster.server.refuses_connects = None;
    cluster.feed(Event::Reconnect);
    cluster.run(30);
    assert_eq!((cluster.engine.state(), cluster.invalidations), (ImportState::Full, 1));
}

/// It is asked again, for an administrator may put the right one in its place; it is said once.
#[test]
fn a_target_that_has_another_mdts_objects_fails_new_callers_and_is_waited_for_by_those_it_had() {
    let mut cluster = Cluster::new(3, Faults::default());
    cluster.server.refuses_connects = Some(Errno::EXDEV);
    cluster.feed(Event::Connect(1));
    cluster.submit(CallKind::Normal);
    cluster.run(30);
    assert_eq!(cluster.failures(), [RpcError::Errno(Errno::EIO)]);
    assert_eq!((cluster.settled.len(), cluster.wrong_identities), (1, 1));
    assert!(cluster.engine.has_wrong_identity());
    cluster.server.refuses_connects = None;
    cluster.run(5);
    assert_eq!(
        (cluster.engine.state(), cluster.engine.has_wrong_identity()),
        (ImportState::Full, false)
    );
    cluster.submit(CallKind::Modifying);
    cluster.run(5);
    cluster.server.refuses_connects = Some(Errno::EXDEV);
    cluster.break_connection();
    cluster.submit(CallKind::Modifying);
    cluster.run(60);
    assert_eq!((cluster.answered(), cluster.failures().len(), cluster.wrong_identities), (1, 1, 2));
    assert_eq!(cluster.invalidations, 0, "what it gave may be good still");
    cluster.server.refuses_connects = None;
    cluster.run(30);
    assert_eq!((cluster.answered(), cluster.failures().len()), (2, 1));
}

/// What it says is not believed: what it has as durable is another history, and what ours may have lost is replayed to ours.
#[test]
fn another_mdt_in_the_place_of_ours_is_waited_out() {
    let other = "99999999-2222-3333-4444-555555555555";
    for stranger in [Stranger::Refuses, Stranger::Takes(other), Stranger::Takes("")] {
        let mut cluster = Cluster::new(3, Faults::default());
        cluster.connect();
        cluster.server.commits = false;
        cluster.submit(CallKind::Modifying);
        cluster.run(2);
        cluster.server.stranger = Some(stranger);
        cluster.crash();
        cluster.submit(CallKind::Normal);
        cluster.run(60);
        assert_eq!(
            (cluster.answered(), cluster.failures().len(), cluster.wrong_identities),
            (1, 0, 1)
        );
        assert!(cluster.engine.has_wrong_identity() && cluster.engine.counters().connects > 2);
        cluster.server.stranger = None;
        cluster.run(60);
        cluster.check();
        assert_eq!((cluster.engine.has_wrong_identity(), cluster.went_back.len()), (false, 0));
        assert_eq!(cluster.invalidations, 0);
    }
}

/// What is no answer to a replay, to the word that all is replayed, to a connect or to a disconnect leaves no caller
/// waiting.
#[test]
fn an_import_goes_on_after_answers_that_cannot_be_read() {
    let mut cluster = Cluster::new(5, Faults::default());
    cluster.server.garbles = (3, |opcode| opcode == Opcode::MDS_CONNECT);
    cluster.feed(Event::Connect(1));
    cluster.run(120);
    assert_eq!(cluster.engine.state(), ImportState::Full, "connects are tried again");
    cluster.server.commits = false;
    cluster.locks = 3;
    for _ in 0..5 {
        cluster.submit(CallKind::Modifying);
    }
    cluster.run(5);
    cluster.server.garbles = (9, |opcode| opcode != Opcode::MDS_CONNECT);
    cluster.crash();
    cluster.run(60);
    assert_eq!(cluster.server.garbles.0, 0, "five replays, three locks, and that this is all");
    assert_eq!(cluster.engine.state(), ImportState::Full);
    cluster.server.locks.clear();
    cluster.server.garbles = (1, |opcode| opcode == Opcode::MDS_DISCONNECT);
    cluster.feed(Event::Disconnect(2));
    cluster.run(30);
    assert_eq!(cluster.engine.state(), ImportState::Closed);
}

#[test]
fn a_disconnect_ends_whatever_else_is_asked_meanwhile() {
    let events: [fn() -> Event; 3] =
        [|| Event::Reconnect, || Event::Activate(false), || Event::Disconnect(3)];
    for event in events {
        let mut cluster = Cluster::new(3, Faults::default());
        cluster.connect();
        cluster.server.deaf_until = cluster.seconds() + 60;
        cluster.feed(Event::Disconnect(2));
        let sent = cluster.engine.counters().sent;
        cluster.feed(event());
        cluster.run(60);
        let (state, settled) = (cluster.engine.state(), &cluster.settled);
        assert!(state == ImportState::Closed && settled.contains(&2), "{:?}", event());
        assert_eq!(cluster.engine.counters().sent, sent, "no other connection is made");
    }
}

#[test]
fn a_crash_is_replayed_in_order() {
    let mut cluster = Cluster::new(4, Faults::default());
    cluster.connect();
    cluster.server.commits = false;
    cluster.locks = 3;
    for _ in 0..20 {
        cluster.submit(CallKind::Modifying);
    }
    cluster.run(5);
    assert_eq!(cluster.answered(), 20);
    cluster.crash();
    assert_eq!(cluster.server.history.len(), 0, "all was lost");
    cluster.run(10);
    cluster.check();
    assert_eq!(cluster.server.locks.len(), 3, "and all locks are replayed");
    assert_eq!(cluster.engine.counters().replayed, 20);
    let states: Vec<_> = cluster.engine.history().iter().map(|change| change.state).collect();
    let way = [
        ImportState::Disconn,
        ImportState::Connecting,
        ImportState::Replay,
        ImportState::ReplayLocks,
        ImportState::ReplayWait,
        ImportState::Recover,
        ImportState::Full,
    ];
    assert!(states.ends_with(&way), "{states:?}");
}

/// Its store was cut: what it had reported as durable is gone. The client says so, goes on, and from
/// then on believes the new claim, so that what comes next is replayed after another crash.
#[test]
fn a_server_that_went_back_in_time_is_said_and_not_believed_any_more() {
    let mut cluster = Cluster::new(17, Faults::default());
    cluster.connect();
    for _ in 0..20 {
        cluster.submit(CallKind::Modifying);
    }
    cluster.run(60);
    assert_eq!(cluster.engine.last_committed(), Transno(20), "all was reported to the client");
    cluster.crash();
    cluster.run(10);
    assert_eq!(cluster.went_back, [], "nothing was lost");
    cluster.server.committed = Transno(8);
    cluster.server.commits = false;
    cluster.crash();
    cluster.run(10);
    assert_eq!(cluster.went_back, [(Transno(20), Transno(8))]);
    assert_eq!(cluster.engine.state(), ImportState::Full);
    for _ in 0..3 {
        cluster.submit(CallKind::Modifying);
    }
    cluster.run(5);
    assert_eq!((cluster.answered(), cluster.server.history.len()), (23, 11));
    cluster.crash();
    assert_eq!(cluster.server.history.len(), 8);
    cluster.run(10);
    assert_eq!(cluster.server.history.len(), 11, "the three were replayed");
    assert_eq!(cluster.went_back.len(), 1, "it is said once");
}

#[test]
fn an_eviction_ends_what_was_under_way_and_is_survived() {
    let mut cluster = Cluster::new(5, Faults::default());
    cluster.connect();
    cluster.submit(CallKind::Modifying);
    cluster.run(5);
    cluster.server.evict();
    cluster.submit(CallKind::Modifying);
    cluster.run(5);
    assert_eq!(cluster.failures(), [RpcError::Evicted]);
    assert_eq!(cluster.engine.counters().evictions, 1);
    cluster.submit(CallKind::Modifying);
    cluster.run(5);
    assert_eq!((cluster.answered(), cluster.engine.state()), (2, ImportState::Full));
}

#[test]
fn a_returning_server_is_found_within_a_second_or_so() {
    let mut cluster = Cluster::new(6, Faults::default());
    cluster.connect();
    cluster.server.refuses_until = cluster.seconds() + 40;
    cluster.crash();
    cluster.run(42);
    assert_eq!(cluster.engine.state(), ImportState::Full);
}

/// The answer to the first connect is lost, so that the second one is that of a client which the
/// target knows. It is another target for all that: what the one before it had heard is lost.
#[test]
fn a_server_that_dies_again_during_replay_gets_everything_replayed() {
    let mut cluster = Cluster::new(16, Faults::default());
    cluster.connect();
    cluster.server.commits = false;
    for _ in 0..8 {
        cluster.submit(CallKind::Modifying);
    }
    cluster.run(5);
    assert_eq!(cluster.answered(), 8);
    cluster.server.work_seconds = Some(2);
    cluster.crash();
    cluster.run(7);
    assert_eq!(cluster.engine.state(), ImportState::Replay);
    assert!(cluster.server.history.len() >= 2, "{:?}", cluster.server.history);
    cluster.server.mute_until = cluster.seconds() + 2;
    cluster.crash();
    cluster.run(60);
    cluster.check();
    assert_eq!(cluster.server.history.len(), 8);
    assert_eq!(cluster.engine.counters().evictions, 0);
}

/// An open, say: wants to be kept, and counts its replays.
#[derive(Default)]
struct Open {
    sent: AtomicU32,
    prepared: AtomicU32,
    replayed: AtomicU32,
}

impl RequestHook for Open {
    fn keep_until_release(&self, _answer: &Answer) -> bool {
        true
    }

    fn before_send(&self, _request: &mut Request) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn before_replay(&self, _request: &mut Request, answer_body: &PtlrpcBody) {
        assert_ne!(answer_body.transno, Transno(0));
        self.prepared.fetch_add(1, Ordering::Relaxed);
    }

    fn replayed(&self, answer: &Answer) {
        assert_eq!(answer.body.status, 0);
        self.replayed.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_open_is_replayed_though_durable_until_it_is_released() {
    let mut cluster = Cluster::new(7, Faults::default());
    cluster.connect();
    let open = Arc::new(Open::default());
    cluster.submit_hooked(CallKind::Modifying, Some(Arc::clone(&open) as _));
    cluster.submit(CallKind::Modifying);
    // The answer to a ping reports what is durable by then.
    cluster.run(40);
    assert_eq!(cluster.engine.counters().kept, 1);
    cluster.crash();
    cluster.run(5);
    let counts = || (open.prepared.load(Ordering::Relaxed), open.replayed.load(Ordering::Relaxed));
    assert_eq!(counts(), (1, 1));
    cluster.release(1);
    assert_eq!(cluster.engine.counters().kept, 0);
    cluster.crash();
    cluster.run(5);
    assert_eq!(counts(), (1, 1));
    cluster.check();
}

#[test]
fn the_maker_of_a_request_is_asked_each_time_it_is_sent() {
    let mut cluster = Cluster::new(7, Faults::default());
    cluster.connect();
    let open = Arc::new(Open::default());
    cluster.server.work_seconds = Some(5);
    cluster.submit_hooked(CallKind::Modifying, Some(Arc::clone(&open) as _));
    cluster.run(1);
    assert_eq!(open.sent.load(Ordering::Relaxed), 1);
    cluster.crash();
    cluster.run(60);
    assert_eq!(cluster.answered(), 1);
    assert_eq!(open.sent.load(Ordering::Relaxed), 2);
}

#[test]
fn a_server_that_moves_to_its_partner_is_found_there() {
    let mut cluster = Cluster::new(8, Faults::default());
    cluster.connect();
    cluster.server.commits = false;
    cluster.submit(CallKind::Modifying);
    cluster.run(2);
    cluster.server_at = PARTNER;
    cluster.crash();
    cluster.submit(CallKind::Modifying);
    cluster.run(5);
    cluster.check();
    assert_eq!(cluster.engine.peer(), PARTNER);
}

#[test]
fn a_call_that_may_not_wait_does_not() {
    let mut cluster = Cluster::new(9, Faults::default());
    cluster.submit(CallKind::NoDelay);
    assert_eq!(cluster.failures(), [RpcError::Disconnected]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_done_twice(
        seed in any::<u64>(),
        loss in 0_u64..8,
        double in 0_u64..8,
        crashes in 0_u64..4,
        breaks in 0_u64..6,
        idle in 0_u64..4,
    ) {
        let faults = Faults { loss, double, latency_ms_max: 400, work_seconds_max: 20 };
        let mut cluster = Cluster::new(seed, faults);
        cluster.locks = seed % 4;
        cluster.connect();
        cluster.feed(Event::IdleTimeout(Duration::from_secs(idle * 2)));
        for _ in 0..24 {
            for _ in 0..4 {
                cluster.submit(CallKind::Modifying);
            }
            cluster.submit(CallKind::Normal);
            let pause = 1 + cluster.random.below(20);
            cluster.run(pause);
            if cluster.random.below(24) < crashes {
                cluster.crash();
            }
            if cluster.random.below(24) < breaks {
                cluster.break_connection();
            }
        }
        cluster.calm();
        cluster.run(2000);
        cluster.check();
        prop_assert!(cluster.is_at_rest());
        prop_assert_eq!(cluster.engine.counters().evictions, 0);
    }
}
