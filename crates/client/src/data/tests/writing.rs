//! Writes: into the cache within the grant, out of it, through it, and what fails.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_layout::{Layout, Raid0, Stripe};
use sheen_types::{Errno, Extent, Fid};
use sheen_wire::connect::{ConnectFlags2, ObdConnectData};

use super::{CACHED, DIRECT, FakeOst, Fixture, GROWING, IoOptions, STRIPE, pattern, resource};
use crate::data::{DataPath, WriteAt};
use crate::types::Credentials;

const SYNC: IoOptions = IoOptions { sync: true, ..CACHED };

#[test]
fn small_writes_go_out_together_a_second_later() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    let data = pattern(30_000);
    for at in (0..30_000).step_by(1000) {
        let part = data.slice(at..at + 1000);
        fixture.write(&file, WriteAt::Offset(at as u64), part, CACHED).expect("accepted");
    }
    assert_eq!(fixture.ost().take_asked(), ["lock Pw 0..=4095"], "whole pages");
    assert_eq!(fixture.size(&file), 30_000);
    fixture.wait(Duration::from_secs(2));
    assert_eq!(fixture.ost().take_asked(), ["write 0+30000 used 32768"]);
    assert_eq!(fixture.ost().bytes(resource(0)), data);
}

#[test]
fn an_ost_that_knows_bytes_is_asked_for_locks_on_these_alone() {
    let fixture = Fixture::new(1 << 20);
    let flags2 = ConnectFlags2::MDT_IDENTITY;
    fixture.osts.connected(0, &ObdConnectData { flags2, ..FakeOst::agreed(1 << 20) });
    fixture.write(&fixture.file(1), WriteAt::Offset(100), pattern(1000), CACHED).expect("accepted");
    assert_eq!(fixture.ost().take_asked(), ["lock Pw 100..=1099"]);
}

#[test]
fn full_rpcs_go_out_at_once_to_each_ost() {
    let fixture = Fixture::new(16 << 20);
    let file = fixture.file(2);
    let data = pattern(4 * STRIPE as usize);
    fixture.write(&file, WriteAt::Offset(0), data.clone(), CACHED).expect("accepted");
    fixture.world.settle();
    for (index, fake) in (0..).zip(&fixture.fakes) {
        let expected = ["write 0+1048576 used 1048576", "write 1048576+1048576 used 1048576"];
        assert_eq!(fake.take("write"), expected);
        let stripe = STRIPE as usize;
        let first = index as usize * stripe;
        let object = [&data[first..first + stripe], &data[first + 2 * stripe..][..stripe]].concat();
        assert!(fake.bytes(resource(index)) == object);
    }
}

/// generic/568: two bytes of a file whose blocks are all there.
#[test]
fn dirty_bytes_in_blocks_that_are_counted_make_no_more_of_them() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().set_bytes(resource(0), vec![1; 8192]);
    assert_eq!(fixture.size(&file), 8192);
    let write = |at| fixture.write(&file, WriteAt::Offset(at), pattern(2), CACHED);
    write(4095).expect("accepted");
    assert_eq!(fixture.ost().take("write"), Vec::<String>::new(), "it is dirty");
    let blocks = || file.attributes_covered().expect("under a lock").blocks;
    assert_eq!(blocks(), 16);
    write(8192).expect("accepted");
    assert_eq!(blocks(), 17, "the next block has bytes now");
}

#[test]
fn each_block_costs_once_and_any_byte_costs_a_block() {
    let fixture = Fixture::new(3 * 4096);
    let file = fixture.file(1);
    let one = |at| fixture.write(&file, WriteAt::Offset(at), pattern(1), CACHED).expect("accepted");
    for at in [0, 100, 4095, 8192, 20_000] {
        one(at);
    }
    assert_eq!(fixture.ost().take("write"), Vec::<String>::new(), "three blocks are promised");
    one(8193);
    assert_eq!(fixture.ost().take("write"), Vec::<String>::new(), "a block that is paid for");
    one(40_960);
    // A page is in one piece of a write, and in one write at a time.
    let expected = [
        "write 0+1 8192+2 20000+1 used 8192",
        "write 100+1 used 0",
        "write 4095+1 used 4096",
        "write 40960+1",
    ];
    assert_eq!(fixture.ost().take("write"), expected, "the fourth goes through");
}

#[test]
fn without_grant_writes_go_through_and_with_grant_they_wait() {
    let fixture = Fixture::new(0);
    let file = fixture.file(1);
    fixture.ost().script.lock().gain = 8192;
    fixture.write(&file, WriteAt::Offset(0), pattern(8192), CACHED).expect("written");
    assert_eq!(fixture.ost().take("write"), ["write 0+8192"]);
    fixture.write(&file, WriteAt::Offset(0), pattern(8192), CACHED).expect("accepted");
    assert_eq!(fixture.ost().take("write"), Vec::<String>::new(), "the reply brought grant");
    fixture.sync(&file).expect("durable");
    assert_eq!(fixture.ost().take_asked(), ["write 0+8192 used 8192", "sync"]);
    fixture.sync(&file).expect("durable");
    assert_eq!(fixture.ost().take_asked(), Vec::<String>::new(), "nothing is left to sync");
}

#[test]
fn direct_and_synchronous_writes_are_on_the_ost_when_they_return() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    let data = pattern(3 << 20);
    fixture.write(&file, WriteAt::Offset(0), data.clone(), DIRECT).expect("written");
    let expected = ["write 0+1048576", "write 1048576+1048576", "write 2097152+1048576"];
    let mut asked = fixture.ost().take("write");
    asked.sort();
    assert_eq!(asked, expected);
    assert!(fixture.ost().bytes(resource(0)) == data);
    fixture.write(&file, WriteAt::Offset(5), pattern(7), SYNC).expect("durable");
    assert_eq!(fixture.ost().take_asked(), ["write 5+7 sync"]);
}

#[test]
fn a_direct_write_goes_behind_what_is_dirty_there() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(8192), CACHED).expect("accepted");
    let zeros = Bytes::from(vec![0; 100]);
    fixture.write(&file, WriteAt::Offset(4000), zeros, DIRECT).expect("written");
    let asked = fixture.ost().take("write");
    assert_eq!(asked, ["write 0+8192 used 8192", "write 4000+100"]);
    let expected = [&pattern(4000)[..], &[0; 100], &pattern(8192)[4100..]].concat();
    assert_eq!(fixture.read(&file, 0, 8192, CACHED), Ok(expected.into()));
}

#[test]
fn the_newer_write_of_a_byte_waits_for_the_older() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().script.lock().hold = Some("write");
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    fixture.wait(Duration::from_secs(2));
    assert_eq!(fixture.ost().take("write"), ["write 0+4096 used 4096"], "it is under way");
    let newer = Bytes::from(vec![9; 4096]);
    fixture.write(&file, WriteAt::Offset(2048), newer.clone(), CACHED).expect("accepted");
    let read = [&pattern(2048)[..], &newer].concat();
    assert_eq!(fixture.read(&file, 0, 6144, CACHED), Ok(read.clone().into()), "the newest");
    fixture.wait(Duration::from_secs(5));
    assert_eq!(fixture.ost().take("write"), Vec::<String>::new(), "the newer one waits");
    fixture.ost().release_held();
    fixture.sync(&file).expect("durable");
    assert_eq!(fixture.ost().take("write"), ["write 2048+4096 used 8192"]);
    assert_eq!(fixture.ost().bytes(resource(0)), read);
}

#[test]
fn an_append_drops_the_page_that_a_read_beside_it_may_have_brought_back() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    let append =
        |expected_end| fixture.write(&file, WriteAt::End(expected_end), pattern(10), CACHED);
    assert_eq!(append(0), Ok(0));
    assert_eq!(append(10), Ok(10));
    assert!(fixture.events.invalidated.lock().is_empty());
    // Under the lock of the appends, as the kernel asks for a page.
    assert_eq!(fixture.read(&file, 0, 4096, CACHED).map(|bytes| bytes.len()), Ok(20));
    assert_eq!(append(20), Ok(20));
    let dropped = std::mem::take(&mut *fixture.events.invalidated.lock());
    assert_eq!(dropped, [Extent { start: 20, end: 29 }]);
    assert_eq!(append(30), Ok(30));
    assert!(fixture.events.invalidated.lock().is_empty());
}

#[test]
fn appends_queue_and_see_where_other_clients_have_moved_the_end() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 5000]);
    let file = fixture.file(1);
    let ends: Vec<u64> = fixture.run(&file, |file| async move {
        let root = Credentials::root();
        let append = || file.write(WriteAt::End(0), pattern(100), &root, CACHED);
        let both = sheen_types::futures::all(vec![append(), append(), append()]).await;
        both.into_iter().map(|end| end.expect("appended")).collect()
    });
    let mut sorted = ends;
    sorted.sort_unstable();
    assert_eq!(sorted, [5000, 5100, 5200]);
    fixture.sync(&file).expect("durable");
    fixture.lose_locks();
    fixture.ost().set_bytes(resource(0), vec![1; 7000]);
    assert_eq!(fixture.write(&file, WriteAt::End(0), pattern(10), CACHED), Ok(7000));
}

#[test]
fn a_failed_write_back_is_reported_before_a_sync_returns() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().refuse("write", Errno::ENOSPC);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    assert_eq!(fixture.sync(&file), Ok(()), "of what could be written");
    assert_eq!(fixture.failures(), [Errno::ENOSPC]);
    assert_eq!(fixture.size(&file), 0, "no object has it");
    assert_eq!(fixture.events.invalidated.lock()[..], [Extent { start: 0, end: 4095 }]);
    fixture.ost().refuse("write", Errno::EIO);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    fixture.wait(Duration::from_secs(2));
    assert_eq!(fixture.failures(), [Errno::EIO], "without being asked");
    assert_eq!(fixture.sync(&file), Ok(()));
    assert_eq!(fixture.failures(), []);
}

#[test]
fn a_write_back_to_an_object_that_is_gone_is_an_io_error() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().refuse("write", Errno::ENOENT);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    assert_eq!(fixture.sync(&file), Ok(()), "of what could be written");
    assert_eq!(fixture.failures(), [Errno::EIO]);
}

#[test]
fn an_object_that_its_target_does_not_have_is_named_until_it_has_it() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(2);
    assert_eq!(file.absent(), []);
    fixture.ost().refuse("write", Errno::ENOENT);
    let write = || fixture.write(&file, WriteAt::Offset(0), pattern(4096), DIRECT);
    write().expect_err("it is not there");
    let absent = file.absent();
    assert_eq!(absent.len(), 1, "{absent:?}");
    let (_, stripe) = file.layout().objects().next().expect("one");
    assert_eq!(Some(absent[0].1.fid(0)), stripe.map(|stripe| Some(stripe.object)));
    write().expect("refused once");
    assert_eq!(file.absent(), []);
}

#[test]
fn other_calls_do_not_fail_for_an_old_failure() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().refuse("write", Errno::ENOSPC);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    fixture.wait(Duration::from_secs(2));
    fixture.write(&file, WriteAt::Offset(0), pattern(10), DIRECT).expect("another write");
    let time = sheen_types::Timestamp::from_seconds(1);
    let cut = fixture.run(&file, move |file| async move { file.truncate(0, time, GROWING).await });
    assert_eq!(cut, Ok(()), "making room is how to get out of ENOSPC");
    assert_eq!(fixture.failures(), [Errno::ENOSPC], "and it is reported all the same");
}

#[test]
fn grant_of_a_failed_write_is_lost_and_the_ost_hears_of_it() {
    let fixture = Fixture::new(8192);
    let file = fixture.file(1);
    fixture.ost().refuse("write", Errno::EIO);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    fixture.sync(&file).expect("of what could be written");
    assert_eq!(fixture.failures(), [Errno::EIO]);
    let target = fixture.osts.ost(0).expect("there");
    let grant = target.grant();
    assert_eq!((grant.available, grant.dirty, grant.lost), (4096, 0, 4096));
    fixture.write(&file, WriteAt::Offset(0), pattern(10), DIRECT).expect("written");
    assert_eq!(target.grant().lost, 0, "the write reported it");
    fixture.osts.connected(0, &FakeOst::agreed(20_000));
    assert_eq!(target.grant().available, 20_000, "a connect says what counts");
}

#[test]
fn data_that_arrives_changed_is_sent_again_and_not_for_ever() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().script.lock().garble = 2;
    fixture.write(&file, WriteAt::Offset(0), pattern(100), DIRECT).expect("the third time");
    assert_eq!(fixture.ost().take("write").len(), 3);
    assert_eq!(fixture.ost().bytes(resource(0)), pattern(100));
    fixture.ost().script.lock().garble = 100;
    assert_eq!(fixture.write(&file, WriteAt::Offset(0), pattern(9), DIRECT), Err(Errno::EIO));
    assert_eq!(fixture.ost().take("write").len(), 11);
}

#[test]
fn an_ost_that_wrote_other_bytes_than_were_sent_gets_them_again() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    {
        let mut script = fixture.ost().script.lock();
        (script.garble, script.writes_garbled, script.gain) = (2, true, 1 << 20);
    }
    let target = fixture.osts.ost(0).expect("there");
    let [before, ..] = target.grant_dirty_lost();
    fixture.write(&file, WriteAt::Offset(0), pattern(100), DIRECT).expect("the third time");
    assert_eq!(fixture.ost().take("write").len(), 3);
    // What came with each answer counts, whatever the OST wrote; the write itself has cost some of it.
    let [after, ..] = target.grant_dirty_lost();
    assert!(after > before + (2 << 20), "{before} and then {after}");
}

/// More often than garbled data is sent again.
#[test]
fn a_piece_that_an_ost_cannot_take_at_the_moment_is_written_later() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().script.lock().busy_pieces = 20;
    fixture.write(&file, WriteAt::Offset(0), pattern(100), DIRECT).expect("in the end");
    assert_eq!(fixture.ost().take("write").len(), 21);
}

#[test]
fn garbled_data_is_kept_where_operators_want_it() {
    let fixture = Fixture::new(1 << 20);
    let kept = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    fixture.osts.dump_garbled(Box::new(move |garbled| keep.lock().push(garbled)));
    let file = fixture.file(1);
    let target = fixture.osts.ost(0).expect("there");
    let garble = || fixture.ost().script.lock().garble = 1;
    for wanted in [false, true] {
        target.settings.dumps.set(wanted);
        garble();
        fixture.write(&file, WriteAt::Offset(50), pattern(100), DIRECT).expect("written");
        garble();
        fixture.read(&file, 50, 100, DIRECT).expect("read");
        let kept = std::mem::take(&mut *kept.lock());
        assert_eq!(kept.len(), if wanted { 2 } else { 0 });
        for one in &kept {
            assert_eq!(one.file, super::FILE);
            assert_eq!(one.extent, Extent { start: 50, end: 149 });
            assert_eq!(one.data.concat(), pattern(100));
            assert_ne!(one.sums.0, one.sums.1);
        }
    }
}

#[test]
fn what_is_dirty_is_written_though_no_call_uses_the_file() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    drop(file);
    fixture.wait(Duration::from_secs(2));
    assert_eq!(fixture.ost().take("write"), ["write 0+4096 used 4096"]);
    let target = fixture.osts.ost(0).expect("there");
    assert_eq!((target.grant().dirty, target.object(resource(0)).is_none()), (0, true));
}

#[test]
fn too_many_dirty_bytes_make_writers_wait() {
    let fixture = Fixture::new(u32::MAX);
    fixture.ost().script.lock().hold = Some("write");
    let file = fixture.file(1);
    let data = pattern(1 << 20);
    for at in 0..64 {
        let at = WriteAt::Offset(at << 20);
        fixture.write(&file, at, data.clone(), CACHED).expect("accepted");
    }
    let written = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (done, late) = (Arc::clone(&written), Arc::clone(&file));
    let task = async move {
        let root = Credentials::root();
        let write = late.write(WriteAt::Offset(64 << 20), data, &root, CACHED);
        write.await.expect("accepted in the end");
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    fixture.world.world().tasks.spawn("late", Box::pin(task));
    fixture.world.settle();
    assert!(!written.load(std::sync::atomic::Ordering::Relaxed), "64 MiB are dirty");
    fixture.ost().release_held();
    fixture.world.settle();
    assert!(written.load(std::sync::atomic::Ordering::Relaxed));
    fixture.run(&file, |file| async move { file.flush(Extent::ALL).await });
    assert_eq!(fixture.osts.ost(0).expect("there").grant().dirty, 0);
}

#[test]
fn the_first_of_many_small_writes_go_when_half_of_the_grant_is_used() {
    let fixture = Fixture::new(4 << 20);
    let raid0 = Raid0::new(STRIPE, 6).expect("a legal layout");
    let object = |at| Stripe { ost: 0, object: Fid::new(0x2_4000_0400, at) };
    let file = fixture.file_by(Arc::new(Layout::plain(1, raid0, (9..15).map(object).collect())));
    let written = |fixture: &Fixture| fixture.ost().take("write").len();
    let write = |at: u64| {
        let at = WriteAt::Offset(at * u64::from(STRIPE));
        fixture.write(&file, at, pattern(512 << 10), CACHED).expect("accepted");
    };
    (0..4).for_each(write);
    fixture.world.settle();
    assert_eq!(written(&fixture), 0, "two of four MiB wait");
    write(4);
    fixture.world.settle();
    assert_eq!(written(&fixture), 1, "the first has gone");
    fixture.wait(Duration::from_secs(2));
    assert_eq!(written(&fixture), 4, "the rest when their time has come");
    let grant = fixture.osts.ost(0).expect("there").grant();
    assert_eq!((grant.dirty, grant.sending), (0, 0));
}

#[test]
fn the_owner_of_the_file_goes_with_the_data() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    let who = Credentials { uid: 500, gid: 600, ..Credentials::root() };
    fixture.run(&file, |file| async move {
        file.write(WriteAt::Offset(0), pattern(10), &who, CACHED).await.expect("accepted");
        file.flush(Extent::ALL).await;
    });
    assert_eq!(fixture.ost().owner(), Some((500, 600)));
}

/// An OST that promises more than there is cannot make the sum wrap.
#[test]
fn grant_that_cannot_be_does_not_wrap() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.ost().script.lock().gain = u64::MAX;
    let target = fixture.osts.ost(0).expect("there");
    for _ in 0..2 {
        fixture.write(&file, WriteAt::Offset(0), pattern(100), DIRECT).expect("written");
        assert_eq!(target.grant_dirty_lost()[0], u64::MAX);
    }
    fixture.write(&file, WriteAt::Offset(0), pattern(8192), CACHED).expect("accepted");
    fixture.sync(&file).expect("durable");
}
