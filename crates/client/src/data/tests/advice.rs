//! Locks that programs ask for, and advice about bytes.

use std::sync::Arc;

use sheen_types::{Errno, Extent, LockMode};

use super::{
    CACHED, FakeOst, Fixture, GROWING, IoOptions, Locking, Outcome, STRIPE, errno, pattern,
};
use crate::data::{DataFile, DataPath, WriteAt};
use crate::types::{Advice, AdviceKind, LockedAhead};

/// How a call through an open file that has group lock 7 takes its locks.
const IN_GROUP: IoOptions = IoOptions { locking: Locking { is_exact: false, group: 7 }, ..CACHED };

fn ahead(
    fixture: &Fixture,
    file: &Arc<dyn DataFile>,
    range: (u64, u64),
    in_background: bool,
) -> Outcome<LockedAhead> {
    let range = Extent { start: range.0, end: range.1 };
    let locked = fixture.run(file, move |file| async move {
        file.lock_ahead(range, LockMode::Pw, in_background).await.map_err(errno)
    });
    fixture.world.settle();
    locked
}

#[test]
fn locks_ahead_are_as_wide_as_asked_for_and_used_by_later_calls() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(2);
    // The page with the end is locked as well: the second object's first.
    assert_eq!(ahead(&fixture, &file, (0, STRIPE.into()), false), Ok(LockedAhead::Sent));
    let whole = format!("lock Pw 0..={} exact", STRIPE - 1);
    assert_eq!(fixture.fakes[0].take("lock"), [whole]);
    assert_eq!(fixture.fakes[1].take("lock"), ["lock Pw 0..=4095 exact"]);
    fixture.write(&file, WriteAt::Offset(4096), pattern(4096), CACHED).expect("accepted");
    assert_eq!(fixture.ost().take("lock"), [""; 0]);
    let behind = u64::from(STRIPE) + 4096;
    fixture.write(&file, WriteAt::Offset(behind), pattern(10), CACHED).expect("accepted");
    assert_eq!(fixture.fakes[1].take("lock"), ["lock Pw 4096..=8191"]);
}

#[test]
fn locks_ahead_in_the_background_say_what_is_there_and_wait_for_nothing() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().script.lock().hold = Some("lock");
    assert_eq!(ahead(&fixture, &file, (0, 8191), true), Ok(LockedAhead::Sent));
    fixture.ost().release_held();
    fixture.world.settle();
    assert_eq!(fixture.ost().take("lock"), ["lock Pw 0..=8191 exact ahead"]);
    assert_eq!(ahead(&fixture, &file, (0, 8191), true), Ok(LockedAhead::Same));
    assert_eq!(ahead(&fixture, &file, (0, 4095), true), Ok(LockedAhead::Different));
    fixture.ost().refuse("lock", Errno::EAGAIN);
    assert_eq!(ahead(&fixture, &file, (16384, 20479), true), Ok(LockedAhead::Sent));
    assert_eq!(fixture.ost().take("lock").len(), 1);
    assert_eq!(fixture.locks[0].engine().gauges().locks, 1, "nothing is left of what was refused");
}

#[test]
fn an_ost_that_lets_locks_grow_is_asked_for_none_that_must_not() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    let mut agreed = FakeOst::agreed(1 << 20);
    agreed.flags2 = sheen_wire::connect::ConnectFlags2::NONE;
    fixture.osts.connected(0, &agreed);
    for in_background in [false, true] {
        let refused = ahead(&fixture, &file, (0, 8191), in_background);
        assert_eq!(refused, Err(Errno::EOPNOTSUPP));
    }
    let exact = IoOptions { locking: Locking { is_exact: true, group: 0 }, ..CACHED };
    let written = fixture.write(&file, WriteAt::Offset(0), pattern(10), exact);
    assert_eq!(written, Err(Errno::EOPNOTSUPP));
    assert_eq!(fixture.ost().take("lock"), [""; 0]);
}

#[test]
fn calls_of_a_file_whose_locks_do_not_grow_ask_for_what_they_need() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    let exact = IoOptions { locking: Locking { is_exact: true, group: 0 }, ..CACHED };
    for at in [0, 8192] {
        fixture.write(&file, WriteAt::Offset(at), pattern(4096), exact).expect("accepted");
    }
    let asked = ["lock Pw 0..=4095 exact", "lock Pw 8192..=12287 exact"];
    assert_eq!(fixture.ost().take("lock"), asked);
}

#[test]
fn calls_under_a_group_lock_take_no_other() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    let locked = fixture.run(&file, |file| async move { file.group_lock(7, true).await });
    let locked = locked.expect("a lock");
    assert_eq!(fixture.ost().take("lock"), ["lock Group 0..=EOF"]);
    // No glimpse brings a lock beside it.
    fixture.ost().script.lock().busy = true;
    let data = pattern(5000);
    fixture.write(&file, WriteAt::Offset(0), data.clone(), IN_GROUP).expect("accepted");
    assert_eq!(fixture.read(&file, 0, 5000, IN_GROUP), Ok(data));
    fixture.write(&file, WriteAt::End(5000), pattern(10), IN_GROUP).expect("accepted");
    let cut = fixture.run(&file, |file| async move {
        let time = sheen_types::Timestamp::from_seconds(1);
        file.truncate(100, time, IN_GROUP.locking).await
    });
    assert_eq!(cut, Ok(()));
    assert_eq!(fixture.ost().take("lock"), [""; 0]);
    // Another member of the group may have moved the end.
    fixture.ost().script.lock().size_elsewhere = 9000;
    assert_eq!(fixture.size(&file), 9000);
    // A call through another open file has no part in it.
    fixture.write(&file, WriteAt::Offset(0), pattern(10), CACHED).expect("accepted");
    assert_eq!(fixture.ost().take("lock"), ["lock Pw 0..=4095"]);
    fixture.write(&file, WriteAt::Offset(8192), pattern(4096), IN_GROUP).expect("accepted");
    drop(locked);
    fixture.world.settle();
    let asked = fixture.ost().take_asked();
    let written = asked.iter().position(|line| line.starts_with("write")).expect("flushed");
    assert_eq!(asked.iter().position(|line| line == "cancel 1"), Some(written + 1), "{asked:?}");
}

#[test]
fn a_call_after_an_eviction_takes_a_group_lock_for_itself() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    let locked = fixture.run(&file, |file| async move { file.group_lock(7, true).await });
    let locked = locked.expect("a lock");
    fixture.locks[0].on_evicted();
    fixture.world.settle();
    assert!(!locked.is_intact());
    fixture.ost().take_asked();
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), IN_GROUP).expect("accepted");
    fixture.world.settle();
    let asked = fixture.ost().take_asked();
    let kinds: Vec<&str> = asked.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(kinds, ["lock", "write", "cancel"]);
    assert_eq!(asked[0], "lock Group 0..=EOF");
}

#[test]
fn advice_goes_to_each_ost_that_has_bytes_of_the_range() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(2);
    let advise = |kind, in_background, end| {
        let range = Extent { start: 5, end };
        let advised = fixture.run(&file, move |file| async move {
            file.advise(Advice { kind, in_background }, range).await.map_err(errno)
        });
        fixture.world.settle();
        advised
    };
    assert_eq!(advise(AdviceKind::WillRead, false, 99), Ok(()));
    assert_eq!(fixture.fakes[0].take_asked(), ["advise 1 5..100"]);
    assert_eq!(fixture.fakes[1].take_asked(), [""; 0]);
    assert_eq!(advise(AdviceKind::DontNeed, false, STRIPE.into()), Ok(()));
    assert_eq!(fixture.fakes[1].take_asked(), ["advise 2 0..1"]);
    fixture.fakes[1].refuse("advise", Errno::EOPNOTSUPP);
    assert_eq!(advise(AdviceKind::WillRead, false, STRIPE.into()), Err(Errno::EOPNOTSUPP));
    fixture.fakes[1].refuse("advise", Errno::EOPNOTSUPP);
    assert_eq!(advise(AdviceKind::WillRead, true, STRIPE.into()), Ok(()));
    assert_eq!(GROWING, Locking::default());
}
