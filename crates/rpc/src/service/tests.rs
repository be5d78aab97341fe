use super::*;

fn arrival(xid: u64, opcode: Opcode) -> Arrival {
    Arrival {
        from: Nid(1),
        portal: Portal::MDS_REQUEST,
        handle: ObdHandle(7),
        xid: Xid(xid),
        reply_bits: MatchBits(xid),
        opcode,
        flags: MsgFlags::NONE,
        timeout: 10,
        early: true,
        arrived: Instant(0),
    }
}

fn seconds(count: u64) -> Instant {
    Instant(0) + Duration::from_secs(count)
}

#[test]
fn what_frees_locks_passes_a_full_service() {
    let mut service = Service::new(seconds(0), 1, Arc::default());
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
    let mut service = Service::new(seconds(0), 1, Arc::default());
    let waits = service.arrive(seconds(0), arrival(64, Opcode::LDLM_ENQUEUE), "waits");
    assert!(matches!(waits, Verdict::Run(_, "waits")));
    let data = |xid| Arrival { portal: Portal::MDS_IO, ..arrival(xid, Opcode::OST_WRITE) };
    let writes = service.arrive(seconds(0), data(128), "writes");
    assert!(matches!(writes, Verdict::Run(_, "writes")));
    assert_eq!(service.arrive(seconds(0), data(192), "more"), Verdict::Queued);
    let told = service.stats_by_portal();
    let at = |portal| told.iter().find(|at| at.0 == portal).unwrap().1;
    assert_eq!(at(Portal::MDS_IO).req_active.count, 1);
    assert_eq!(at(Portal::MDS_IO).req_qdepth.count, 2);
    assert_eq!(at(Portal::MDS_REQUEST).req_active.max, 1);
    assert_eq!(service.stats().req_active.count, 2);
    assert_eq!(service.arrive(seconds(0), arrival(256, Opcode::MDS_REINT), "b"), Verdict::Queued);
}

#[test]
fn locks_told_again_leave_room_for_the_requests_they_wait_for() {
    let mut service = Service::new(seconds(0), 1, Arc::default());
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
    let mut service = Service::new(seconds(0), 8, Arc::default());
    let Verdict::Run(id, ()) = service.arrive(seconds(0), arrival(64, Opcode::MDS_REINT), ())
    else {
        panic!("runs")
    };
    let mut copy = arrival(64, Opcode::MDS_REINT);
    copy.reply_bits = MatchBits(640);
    assert_eq!(service.arrive(seconds(1), copy, ()), Verdict::Attached);
    let way = service.finish(seconds(2), id).unwrap();
    assert_eq!((way.arrival.reply_bits, way.service_time), (MatchBits(640), 2));
}

#[test]
fn a_copy_runs_if_the_first_ends_unanswered() {
    let mut service = Service::new(seconds(0), 8, Arc::default());
    let Verdict::Run(id, _) = service.arrive(seconds(0), arrival(64, Opcode::OST_WRITE), 1) else {
        panic!("runs")
    };
    assert_eq!(service.arrive(seconds(1), arrival(64, Opcode::OST_WRITE), 2), Verdict::Attached);
    service.abandon(id);
    assert_eq!(service.next(seconds(1)).map(|(_, item)| item), Some(2));
}

#[test]
fn early_replies_come_before_the_deadline_and_move_it() {
    let mut service = Service::new(seconds(0), 8, Arc::default());
    let verdict = service.arrive(seconds(0), arrival(64, Opcode::MDS_REINT), ());
    assert!(matches!(verdict, Verdict::Run(..)));
    let mut told = Vec::new();
    for second in 1..=60 {
        told.extend(service.tick(seconds(second)).into_iter().map(|way| (second, way.timeout)));
    }
    // 10 seconds of patience, 5 of margin; then 35 from arrival, and so on.
    assert_eq!(told, [(5, 35), (30, 60), (55, 85)]);
}

#[test]
fn operators_say_how_much_time_early_replies_ask_for_and_when() {
    let told = |change: fn(&Timing)| {
        let timing = Arc::new(Timing::default());
        change(&timing);
        let mut service = Service::new(seconds(0), 8, timing);
        service.arrive(seconds(0), arrival(64, Opcode::MDS_REINT), ());
        let mut told = Vec::new();
        for second in 1..=40 {
            told.extend(service.tick(seconds(second)).into_iter().map(|way| (second, way.timeout)));
        }
        told
    };
    assert_eq!(told(|timing| timing.set(Time::AtExtra, 60)), [(5, 65)]);
    assert_eq!(told(|timing| timing.set(Time::AtEarlyMargin, 2)), [(8, 38), (36, 66)]);
    assert_eq!(told(|timing| timing.set(Time::AtMax, 12)), [(5, 12)]);
    assert_eq!(told(|timing| timing.set(Time::AtMax, 0)), []);
}

#[test]
fn a_target_has_its_own_times() {
    let at = |own_times: OwnTimes| {
        let mut service = Service::new(seconds(0), 8, Arc::default());
        let Verdict::Run(id, ()) = service.arrive(seconds(0), arrival(64, Opcode::MDS_REINT), ())
        else {
            panic!("it runs")
        };
        service.set_own_times(id, own_times);
        let early: Vec<u32> = (1..=9)
            .flat_map(|second| service.tick(seconds(second)))
            .map(|way| way.timeout)
            .collect();
        (early, service.finish(seconds(9), id).expect("it ran").timeout)
    };
    assert_eq!(at(OwnTimes::default()), (vec![35], 9));
    assert_eq!(at(OwnTimes { at_min: 40, ..OwnTimes::default() }), (vec![35], 40));
    // What came late is told so far as may be.
    assert_eq!(at(OwnTimes { at_max: 12, at_min: 3, ..OwnTimes::default() }), (vec![12], 9));
    assert_eq!(at(OwnTimes { at_max: 8, at_min: 3, ..OwnTimes::default() }).1, 8);
}
