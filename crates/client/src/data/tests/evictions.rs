//! A target has evicted this client, or refuses a lock in recovery: what was accepted under it is lost and
//! reported, what comes later is not.

use std::sync::Arc;

use bytes::Bytes;
use sheen_rpc::RpcError;
use sheen_types::{Errno, Extent};
use tokio::sync::Notify;

use super::{CACHED, FILE, Fixture, pattern, resource};
use crate::data::{DataFile, WriteAt};
use crate::records::{Record, RecordMemory, Recorder};
use crate::testing::Records;

/// A file with dirty bytes, whose pages the kernel does not drop before the second is notified.
fn dirty(fixture: &Fixture) -> (Arc<dyn DataFile>, Arc<Notify>) {
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    let late = Arc::new(Notify::new());
    *fixture.events.late.lock() = Some((Extent::ALL, Arc::clone(&late)));
    fixture.ost().take_asked();
    (file, late)
}

fn evict(fixture: &Fixture) {
    fixture.locks[0].on_evicted();
}

fn refuse_in_replay(fixture: &Fixture) {
    for replay in fixture.locks[0].locks_to_replay(1) {
        (replay.done)(Err(RpcError::Errno(Errno::ESTALE)));
    }
}

fn nines(length: usize) -> Bytes {
    vec![9; length].into()
}

#[test]
fn a_write_while_the_kernel_drops_the_pages_of_a_lost_lock_reaches_the_ost_under_another() {
    for lose in [evict, refuse_in_replay] {
        let fixture = Fixture::new(1 << 20);
        let (file, late) = dirty(&fixture);
        lose(&fixture);
        assert_eq!(fixture.failures(), [Errno::EIO], "at once");
        let target = fixture.osts.ost(0).expect("there");
        assert_eq!(target.grant().dirty, 0);
        fixture.world.settle();
        fixture.write(&file, WriteAt::Offset(100), nines(200), CACHED).expect("accepted");
        assert_eq!(fixture.ost().take("lock").len(), 1, "not under the lost one");
        late.notify_waiters();
        fixture.world.settle();
        fixture.sync(&file).expect("durable");
        assert_eq!(fixture.failures(), [], "nothing else was lost");
        assert_eq!(fixture.ost().bytes(resource(0)), [vec![0; 100], vec![9; 200]].concat());
        assert_eq!(fixture.size(&file), 300);
    }
}

#[test]
fn a_loss_that_was_reported_is_not_recorded_for_the_mounts_next_process() {
    for lose in [evict, refuse_in_replay] {
        let fixture = Fixture::new(1 << 20);
        let records = Arc::<Records>::default();
        fixture.osts.record_in(Recorder::new(Arc::clone(&records) as Arc<dyn RecordMemory>));
        let (_file, _late) = dirty(&fixture);
        assert_eq!(records.all(), [Record::Unflushed(FILE)]);
        lose(&fixture);
        assert_eq!(fixture.failures(), [Errno::EIO], "this process reports it");
        assert_eq!(records.all(), [], "the next one would report it again");
    }
}

#[test]
fn a_read_while_the_kernel_drops_the_pages_of_a_lost_lock_is_under_another() {
    let fixture = Fixture::new(1 << 20);
    let (file, late) = dirty(&fixture);
    fixture.locks[0].on_evicted();
    fixture.world.settle();
    fixture.ost().set_bytes(resource(0), vec![3; 50]);
    assert_eq!(fixture.read(&file, 0, 4096, CACHED), Ok(vec![3; 50].into()));
    assert_eq!(fixture.ost().take("lock").len(), 1);
    late.notify_waiters();
    fixture.world.settle();
}

#[test]
fn no_call_uses_a_lock_that_was_being_revoked_when_the_client_was_evicted() {
    let fixture = Fixture::new(1 << 20);
    let (file, late) = dirty(&fixture);
    fixture.lose_locks();
    assert_eq!(fixture.ost().take("cancel"), Vec::<String>::new(), "the kernel is late");
    fixture.locks[0].on_evicted();
    assert_eq!(fixture.failures(), [Errno::EIO]);
    fixture.write(&file, WriteAt::Offset(0), nines(200), CACHED).expect("accepted");
    assert_eq!(fixture.ost().take("lock").len(), 1);
    late.notify_waiters();
    fixture.world.settle();
    fixture.sync(&file).expect("durable");
    assert_eq!(fixture.failures(), []);
    assert_eq!(fixture.ost().bytes(resource(0)), nines(200));
}

#[test]
fn a_write_whose_lock_an_eviction_takes_while_it_waits_for_grant_ends_under_another() {
    let fixture = Fixture::new(4096);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    {
        let mut script = fixture.ost().script.lock();
        (script.hold, script.gain) = (Some("write"), 8192);
    }
    let write = fixture.begin_write(&file, 4096, nines(4096), CACHED);
    assert_eq!(fixture.ost().take("write").len(), 1, "a reply to this brings grant");
    fixture.locks[0].on_evicted();
    fixture.ost().release_held();
    fixture.world.settle();
    assert_eq!(write.outcome(), Some(Ok(4096)));
    assert_eq!(fixture.ost().take_asked(), ["lock Pw 4096..=8191"]);
    fixture.sync(&file).expect("durable");
    assert_eq!(fixture.failures(), [], "what was under way has arrived");
    assert_eq!(fixture.ost().bytes(resource(0)), [&pattern(4096)[..], &nines(4096)].concat());
}
