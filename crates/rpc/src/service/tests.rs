use super::*;
use crate::budget::ServiceLimit;

fn arrival(xid: u64, opcode: Opcode) -> Arrival {
    Arrival {
        from: Nid(1),
        account: Nid(1),
        portal: Portal::MDS_REQUEST,
        handle: ObdHandle(7),
        xid: Xid(xid),
        reply_bits: MatchBits(xid),
        opcode,
        flags: MsgFlags::NONE,
        timeout: 10,
        early: true,
        arrived: Instant(0),
        bytes: 1_000,
    }
}

/// A service where each client may run `limit` ordinary requests.
fn service<T>(limit: usize) -> Service<T> {
    timed(limit, Arc::default())
}

fn timed<T>(limit: usize, timing: Arc<Timing>) -> Service<T> {
    let budget = Arc::new(ServiceBudget::default());
    budget.set(ServiceLimit::RequestsActive, limit);
    Service::new(seconds(0), budget, 64, timing)
}

fn seconds(count: u64) -> Instant {
    Instant(0) + Duration::from_secs(count)
}

#[test]
fn what_frees_locks_passes_a_full_service() {
    let mut service = service(1);
    let Verdict::Run(first, "a") = service.arrive(seconds(0), arrival(64, Opcode::MDS_REINT), "a")
    else {
        panic!("the first runs")
    };
    let second = service.arrive(seconds(0), arrival(128, Opcode::MDS_REINT), "b");
    assert_eq!(second, Verdict::Queued);
    let cancel = service.arrive(seconds(0), arrival(192, Opcode::LDLM_CANCEL), "c");
    assert!(matches!(cancel, Verdict::Run(_, "c")));
    assert!(service.next(seconds(0)).is_none());
    assert!(service.finish(seconds(1), first).is_some());
    assert!(service.finish(seconds(1), first).is_none(), "answered once");
    assert_eq!(service.next(seconds(1)).map(|(_, item)| item), Some("b"));
    assert_eq!(service.stats().req_waittime.max, 1_000_000);
}

#[test]
fn data_that_is_written_under_a_lock_passes_who_waits_for_the_lock() {
    let mut service = service(1);
    let waits = service.arrive(seconds(0), arrival(64, Opcode::LDLM_ENQUEUE), "waits");
    assert!(matches!(waits, Verdict::Run(_, "waits")));
    let data = |xid| Arrival { portal: Portal::MDS_IO, ..arrival(xid, Opcode::OST_WRITE) };
    let writes = service.arrive(seconds(0), data(128), "writes");
    assert!(matches!(writes, Verdict::Run(_, "writes")));
    assert_eq!(service.arrive(seconds(0), data(192), "more"), Verdict::Queued);
    let reported = service.stats_by_portal();
    let at = |portal| reported.iter().find(|at| at.0 == portal).unwrap().1;
    assert_eq!(at(Portal::MDS_IO).req_active.count, 1);
    assert_eq!(at(Portal::MDS_IO).req_qdepth.count, 2);
    assert_eq!(at(Portal::MDS_REQUEST).req_active.max, 1);
    assert_eq!(service.stats().req_active.count, 2);
    assert_eq!(service.arrive(seconds(0), arrival(256, Opcode::MDS_REINT), "b"), Verdict::Queued);
}

#[test]
fn lock_replays_leave_room_for_the_requests_they_wait_for() {
    let mut service = service(1);
    for xid in 1..4 {
        let lock =
            Arrival { flags: MsgFlags::REQ_REPLAY_DONE, ..arrival(xid * 64, Opcode::LDLM_ENQUEUE) };
        assert!(matches!(service.arrive(seconds(0), lock, "lock"), Verdict::Run(_, "lock")));
    }
    let replay = Arrival { flags: MsgFlags::REPLAY, ..arrival(256, Opcode::MDS_REINT) };
    assert!(matches!(service.arrive(seconds(0), replay, "change"), Verdict::Run(_, "change")));
    let enqueue = arrival(320, Opcode::LDLM_ENQUEUE);
    assert_eq!(service.arrive(seconds(0), enqueue, "enqueue"), Verdict::Queued);
    assert_eq!(service.load(), (4, 1));
}

#[test]
fn a_copy_of_a_running_request_takes_its_answer() {
    let mut service = service(8);
    let Verdict::Run(id, ()) = service.arrive(seconds(0), arrival(64, Opcode::MDS_REINT), ())
    else {
        panic!("runs")
    };
    let mut copy = arrival(64, Opcode::MDS_REINT);
    copy.reply_bits = MatchBits(640);
    assert_eq!(service.arrive(seconds(1), copy, ()), Verdict::Attached);
    let route = service.finish(seconds(2), id).unwrap();
    assert_eq!((route.arrival.reply_bits, route.service_time), (MatchBits(640), 2));
}

#[test]
fn a_copy_runs_if_the_first_ends_unanswered() {
    let mut service = service(8);
    let Verdict::Run(id, _) = service.arrive(seconds(0), arrival(64, Opcode::OST_WRITE), 1) else {
        panic!("runs")
    };
    assert_eq!(service.arrive(seconds(1), arrival(64, Opcode::OST_WRITE), 2), Verdict::Attached);
    service.abandon(id);
    assert_eq!(service.next(seconds(1)).map(|(_, item)| item), Some(2));
}

#[test]
fn early_replies_come_before_the_deadline_and_move_it() {
    let mut service = service(8);
    let verdict = service.arrive(seconds(0), arrival(64, Opcode::MDS_REINT), ());
    assert!(matches!(verdict, Verdict::Run(..)));
    let mut reported = Vec::new();
    for second in 1..=60 {
        reported
            .extend(service.tick(seconds(second)).into_iter().map(|route| (second, route.timeout)));
    }
    // 10 seconds of patience, 5 of margin; then 35 from arrival, and so on.
    assert_eq!(reported, [(5, 35), (30, 60), (55, 85)]);
}

#[test]
fn operators_say_how_much_time_early_replies_ask_for_and_when() {
    let reported = |change: fn(&Timing)| {
        let timing = Arc::new(Timing::default());
        change(&timing);
        let mut service = timed(8, timing);
        service.arrive(seconds(0), arrival(64, Opcode::MDS_REINT), ());
        let mut reported = Vec::new();
        for second in 1..=40 {
            reported.extend(
                service.tick(seconds(second)).into_iter().map(|route| (second, route.timeout)),
            );
        }
        reported
    };
    assert_eq!(reported(|timing| timing.set(Time::AtExtra, 60)), [(5, 65)]);
    assert_eq!(reported(|timing| timing.set(Time::AtEarlyMargin, 2)), [(8, 38), (36, 66)]);
    assert_eq!(reported(|timing| timing.set(Time::AtMax, 12)), [(5, 12)]);
    assert_eq!(reported(|timing| timing.set(Time::AtMax, 0)), []);
}

#[test]
fn a_target_has_its_own_times() {
    let at = |own_times: OwnTimes| {
        let mut service = service(8);
        let Verdict::Run(id, ()) = service.arrive(seconds(0), arrival(64, Opcode::MDS_REINT), ())
        else {
            panic!("it runs")
        };
        service.set_own_times(id, own_times);
        let early: Vec<u32> = (1..=9)
            .flat_map(|second| service.tick(seconds(second)))
            .map(|route| route.timeout)
            .collect();
        (early, service.finish(seconds(9), id).expect("it ran").timeout)
    };
    assert_eq!(at(OwnTimes::default()), (vec![35], 9));
    assert_eq!(at(OwnTimes { at_min: 40, ..OwnTimes::default() }), (vec![35], 40));
    // What came late is announced as far as the limit permits.
    assert_eq!(at(OwnTimes { at_max: 12, at_min: 3, ..OwnTimes::default() }), (vec![12], 9));
    assert_eq!(at(OwnTimes { at_max: 8, at_min: 3, ..OwnTimes::default() }).1, 8);
}

/// As [`arrival`], of another client.
fn of_client(client: u64, xid: u64, opcode: Opcode) -> Arrival {
    Arrival { from: Nid(client), account: Nid(client), ..arrival(xid * 64, opcode) }
}

#[test]
fn a_client_that_fills_its_limit_holds_up_itself_alone() {
    let mut service = service(2);
    for xid in 0..100 {
        let verdict =
            service.arrive(seconds(0), of_client(1, xid, Opcode::LDLM_ENQUEUE), "hostile");
        assert_eq!(matches!(verdict, Verdict::Run(..)), xid < 2);
    }
    // None of what the first has under way ever ends.
    for xid in 0..100 {
        let verdict = service.arrive(seconds(0), of_client(2, xid, Opcode::MDS_REINT), "good");
        let Verdict::Run(id, "good") = verdict else { panic!("request {xid} waits") };
        assert!(service.finish(seconds(0), id).is_some());
    }
    assert_eq!(service.load(), (2, 98));
}

#[test]
fn clients_take_turns_to_begin() {
    let budget = Arc::new(ServiceBudget::default());
    let mut service = Service::new(seconds(0), budget, 1, Arc::default());
    let mut running = None;
    for xid in 0..500 {
        match service.arrive(seconds(0), of_client(1, xid, Opcode::MDS_REINT), 1) {
            Verdict::Run(id, _) => running = Some(id),
            verdict => assert_eq!(verdict, Verdict::Queued),
        }
    }
    for client in [2, 3] {
        let arrival = of_client(client, 1, Opcode::MDS_REINT);
        assert_eq!(service.arrive(seconds(0), arrival, client), Verdict::Queued);
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        assert!(service.next(seconds(0)).is_none(), "one at a time");
        service.begun(running.expect("one runs"));
        let (id, client) = service.next(seconds(0)).expect("many wait");
        (running, _) = (Some(id), order.push(client));
    }
    assert_eq!(order, [1, 2, 3, 1, 1, 1]);
    // What has begun does not count a second time when it ends.
    let id = running.expect("one runs");
    service.begun(id);
    service.begun(id);
    assert!(service.finish(seconds(0), id).is_some());
    assert!(service.next(seconds(0)).is_some() && service.next(seconds(0)).is_none());
}

#[test]
fn the_memory_of_waiting_requests_is_bounded_for_each_client() {
    let budget = Arc::new(ServiceBudget::default());
    budget.set(ServiceLimit::QueuedBytes, 100_000);
    let mut service = Service::new(seconds(0), Arc::clone(&budget), 1, Arc::default());
    let reported = |service: &mut Service<u64>, client, count: u64| {
        let all = (0..count).map(|xid| {
            let verdict = service.arrive(seconds(0), of_client(client, xid, Opcode::MDS_REINT), 0);
            u64::from(verdict == Verdict::Dropped)
        });
        all.sum::<u64>()
    };
    // One runs, 100 wait.
    assert_eq!(reported(&mut service, 1, 1_000), 899);
    assert_eq!((service.stats().dropped, budget.refused(ServiceLimit::QueuedBytes)), (899, 899));
    // What the first has is not taken from the second.
    assert_eq!(reported(&mut service, 2, 100), 0);
    // A copy takes the place of what waits.
    let copy = Arrival { flags: MsgFlags::RESENT, ..of_client(1, 50, Opcode::MDS_REINT) };
    assert_eq!(service.arrive(seconds(0), copy, 1), Verdict::Queued);
    assert_eq!(service.load(), (1, 200));
    // A message as large as the whole budget is served in its turn.
    let large = Arrival { bytes: 200_000, ..of_client(3, 1, Opcode::MDS_REINT) };
    assert_eq!(service.arrive(seconds(0), large, 3), Verdict::Queued);
}

#[test]
fn a_copy_is_found_among_many_that_wait() {
    let mut service = service(1);
    for xid in 0..10_000 {
        service.arrive(seconds(0), of_client(1, xid, Opcode::MDS_REINT), 0);
    }
    let mut ran = 0;
    for xid in 1..10_000 {
        let copy = Arrival { flags: MsgFlags::RESENT, ..of_client(1, xid, Opcode::MDS_REINT) };
        assert_eq!(service.arrive(seconds(0), copy, xid), Verdict::Queued);
    }
    let mut running = vec![RequestId(1)];
    while let Some(id) = running.pop() {
        service.finish(seconds(0), id);
        if let Some((id, item)) = service.next(seconds(0)) {
            (ran, _) = (ran + 1, running.push(id));
            assert_eq!(item, ran, "the newest copy");
        }
    }
    assert_eq!((ran, service.load()), (9_999, (0, 0)));
}

#[test]
fn a_request_under_a_claimed_nid_is_no_copy_of_the_owners_and_counts_for_the_address() {
    let mut service = service(1);
    let claim = |nid, xid| {
        let flags = MsgFlags::RESENT;
        Arrival { account: Nid(9), flags, ..of_client(nid, xid, Opcode::MDS_REINT) }
    };
    let own = |xid| of_client(1, xid, Opcode::MDS_REINT);
    assert!(matches!(service.arrive(seconds(0), own(1), "own 1"), Verdict::Run(..)));
    assert_eq!(service.arrive(seconds(0), own(2), "own 2"), Verdict::Queued);
    let Verdict::Run(first, _) = service.arrive(seconds(0), claim(1, 1), "false 1") else {
        panic!("it is no copy of the one that runs");
    };
    assert_eq!(service.arrive(seconds(0), claim(1, 2), "false 2"), Verdict::Queued);
    assert_eq!(service.arrive(seconds(0), claim(2, 1), "false 3"), Verdict::Queued);
    service.finish(seconds(1), first);
    let mut next =
        || service.next(seconds(1)).map(|(id, item)| (service.finish(seconds(1), id), item));
    assert_eq!(next().map(|it| it.1), Some("false 2"));
    assert_eq!(next().map(|it| it.1), Some("false 3"));
    assert_eq!(next().map(|it| it.1), None, "the owner's waits for its own");
}

#[test]
fn copies_of_requests_that_wait_and_that_run_count() {
    const LARGE: usize = 256 << 10;
    let mut service = service(1_000);
    let request = |xid: u64| arrival(xid * 64, Opcode::MDS_REINT);
    let copy = |xid| Arrival { flags: MsgFlags::RESENT, bytes: LARGE, ..request(xid) };
    let mut ids = Vec::new();
    for xid in 1..2_000 {
        if let Verdict::Run(id, _) = service.arrive(seconds(0), request(xid), "small") {
            ids.push(id);
        }
    }
    let run = ids.len() as u64;
    let held = |verdict| usize::from(verdict != Verdict::Dropped) * LARGE;
    let queued: usize =
        (run + 1..2_000).map(|xid| held(service.arrive(seconds(0), copy(xid), "large"))).sum();
    assert!(queued <= 64 << 20 && queued > 60 << 20, "{queued} bytes wait");
    for _ in 0..1_000 {
        ids.iter().for_each(|id| service.begun(*id));
        let Some((id, _)) = service.next(seconds(1)) else { break };
        ids.push(id);
    }
    assert_eq!(ids.len(), 1_000, "all bytes that could wait may run");
    let copies: usize =
        (1..=run).map(|xid| held(service.arrive(seconds(2), copy(xid), "again"))).sum();
    assert!(copies <= 8 * LARGE, "{copies} bytes of copies beside 64 MiB that run");
    ids.into_iter().for_each(|id| _ = service.finish(seconds(3), id));
    assert!(service.next(seconds(3)).is_some(), "what is done leaves its room");
}

#[test]
fn a_copy_that_comes_to_another_portal_takes_no_place() {
    let mut service = service(1);
    let first = service.arrive(seconds(0), arrival(64, Opcode::MDS_REINT), "a");
    let Verdict::Run(first, _) = first else { panic!("{first:?}") };
    let queued = service.arrive(seconds(0), arrival(128, Opcode::MDS_REINT), "b");
    assert_eq!(queued, Verdict::Queued);
    let copy = Arrival {
        flags: MsgFlags::RESENT,
        portal: Portal::OST_REQUEST,
        ..arrival(128, Opcode::MDS_REINT)
    };
    assert_eq!(service.arrive(seconds(0), copy, "c"), Verdict::Dropped);
    service.finish(seconds(1), first);
    assert_eq!(service.next(seconds(1)).map(|it| it.1), Some("b"));
}
