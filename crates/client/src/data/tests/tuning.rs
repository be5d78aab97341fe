//! What operators set takes effect, and what is counted is what was done.

use std::sync::Arc;
use std::time::Duration;

use sheen_io::Clock as _;
use sheen_types::Samples;
use sheen_wire::checksum::Checksum;
use sheen_wire::connect::{ChecksumTypes, ConnectFlags, ObdConnectData};

use super::ost::FakeOst;
use super::{CACHED, DIRECT, Fixture, pattern, resource};
use crate::data::{DataPath, WriteAt};
use crate::types::Credentials;

#[test]
fn rpcs_are_as_large_as_operators_allow() {
    let fixture = Fixture::new(1 << 20);
    let (file, target) = (fixture.file(1), fixture.osts.ost(0).expect("there"));
    target.settings.write_bytes_max.set(64 << 10);
    target.settings.read_bytes_max.set(128 << 10);
    assert_eq!(target.bulk_bytes(), (128 << 10, 64 << 10));
    fixture.write(&file, WriteAt::Offset(0), pattern(256 << 10), DIRECT).expect("written");
    assert_eq!(fixture.ost().take("write").len(), 4);
    let read = fixture.read(&file, 0, 256 << 10, DIRECT);
    assert!(read == Ok(pattern(256 << 10)));
    assert_eq!(fixture.ost().take("read"), ["read 0+131072", "read 131072+131072"]);
    // Sixteen pages in each write, 32 in each read.
    let io = target.io();
    assert_eq!((io.write.pages.counts()[4], io.read.pages.counts()[5]), (4, 2));
    assert_eq!((io.write.offsets.counts()[0], io.write.under_way(), io.direct()), (1, 0, 0));
    let bytes = |samples: &Samples| (samples.line.name, samples.count, samples.sum);
    let counted: Vec<_> = io.bytes().iter().map(bytes).collect();
    assert_eq!(counted, [("read_bytes", 2, 256 << 10), ("write_bytes", 4, 256 << 10)]);
}

#[test]
fn without_checksums_none_is_sent_and_none_looked_at() {
    let fixture = Fixture::new(1 << 20);
    let (file, target) = (fixture.file(1), fixture.osts.ost(0).expect("there"));
    target.settings.checksums.set(false);
    fixture.ost().script.lock().garble = 2;
    fixture.write(&file, WriteAt::Offset(0), pattern(100), DIRECT).expect("written");
    assert_eq!(fixture.read(&file, 0, 100, DIRECT), Ok(pattern(100)));
    assert_eq!(fixture.ost().take_asked().iter().filter(|it| !it.starts_with("lock")).count(), 2);
    // What the OST does not compute is not used, even if an operator asks for it.
    target.choose_checksum(ChecksumTypes::ADLER);
    assert_eq!(target.checksum_types().1.map(|it| it.kind()), Some(ChecksumTypes::CRC32C));
}

#[test]
fn data_is_sent_again_as_often_as_operators_allow() {
    let fixture = Fixture::new(1 << 20);
    let (file, target) = (fixture.file(1), fixture.osts.ost(0).expect("there"));
    target.settings.resends.set(1);
    fixture.ost().script.lock().garble = 2;
    assert!(fixture.write(&file, WriteAt::Offset(0), pattern(9), DIRECT).is_err());
    assert_eq!(fixture.ost().take("write").len(), 2);
}

#[test]
fn no_more_is_dirty_towards_all_osts_together_than_operators_allow() {
    let fixture = Fixture::new(4 << 20);
    fixture.osts.limit_dirty(96 << 10);
    let (one, two) = (fixture.file(1), fixture.file(2));
    let write = |file, at| fixture.write(file, WriteAt::Offset(at), pattern(64 << 10), CACHED);
    write(&one, 0).expect("accepted");
    assert_eq!(fixture.ost().take("write").len(), 0, "it may stay dirty");
    // The second file's bytes for the second OST wait until those of the first are written.
    let before = fixture.world.now();
    write(&two, super::STRIPE.into()).expect("accepted");
    assert_eq!(fixture.ost().take("write"), ["write 0+65536 used 65536"]);
    assert!(fixture.world.now() > before, "it had to wait");
    assert_eq!(fixture.fakes[1].take("write").len(), 0, "now this may stay dirty");
    fixture.osts.limit_dirty(1 << 20);
    write(&one, 128 << 10).expect("accepted");
    assert_eq!(fixture.ost().take("write").len(), 0);
}

#[test]
fn unused_grant_is_returned() {
    let fixture = Fixture::new(8 << 20);
    let target = fixture.osts.ost(0).expect("there");
    let look = |seconds| {
        fixture.wait(Duration::from_secs(seconds));
        fixture.osts.return_grant();
        fixture.world.settle();
        (fixture.ost().take("grant").len(), target.grant_dirty_lost()[0])
    };
    let keep = target.bulk_bytes().1;
    // Not if it was not agreed on, nor before its time, nor if operators do not want it.
    assert_eq!(look(1300), (0, 8 << 20));
    let flags = FakeOst::agreed(0).flags | ConnectFlags::GRANT_SHRINK;
    fixture.osts.connected(0, &ObdConnectData { flags, ..FakeOst::agreed(8 << 20) });
    assert_eq!(look(1100), (0, 8 << 20));
    target.settings.shrinks.set(false);
    assert_eq!(look(200), (0, 8 << 20));
    target.settings.shrinks.set(true);
    assert_eq!(look(0), (1, keep));
    assert_eq!(look(2000), (0, keep), "there is no more");
    // A write uses it, and the next look is later.
    fixture.osts.connected(0, &ObdConnectData { flags, ..FakeOst::agreed(8 << 20) });
    target.settings.shrink_interval.set(10);
    let file = fixture.file(1);
    fixture.wait(Duration::from_secs(9));
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    assert_eq!(look(5).0, 0);
    assert_eq!(look(6), (1, keep));
}

#[test]
fn nothing_is_read_ahead_when_nothing_may_be() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 4 << 20]);
    fixture.osts.read_ahead().set_total(0);
    let file = fixture.file(1);
    fixture.size(&file);
    for at in (0..1 << 20).step_by(128 << 10) {
        fixture.read(&file, at, 128 << 10, CACHED).expect("read");
    }
    let asked = fixture.ost().take("read");
    assert_eq!(asked.len(), 8, "{asked:?}");
    let refused = |samples: &Samples| samples.line.name == "hit_max_readahead_issue";
    assert!(fixture.osts.read_ahead().samples().iter().any(refused));
    assert_eq!(fixture.osts.read_ahead().loading(), 0);
}

#[test]
fn hits_and_misses_of_read_ahead_are_pages() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 4 << 20]);
    let file = fixture.file(1);
    fixture.size(&file);
    for at in (0..1 << 20).step_by(128 << 10) {
        fixture.read(&file, at, 128 << 10, CACHED).expect("read");
    }
    let ahead = fixture.osts.read_ahead();
    let count = |name: &str| {
        let samples = ahead.samples().into_iter().find(|samples| samples.line.name == name);
        samples.map_or(0, |samples| samples.count)
    };
    // The first read found nothing, and the other seven all that they asked for.
    assert_eq!((count("misses"), count("hits")), (32, 7 * 32));
    assert_eq!(count("readpage_not_consecutive"), 0);
    fixture.read(&file, 3 << 20, 4096, CACHED).expect("read");
    assert_eq!(count("readpage_not_consecutive"), 1);
    ahead.clear();
    assert!(ahead.samples().is_empty());
}

#[test]
fn small_files_are_read_whole_if_operators_want_it() {
    for (whole, chunks) in [(0, 2), (8 << 20, 7)] {
        let fixture = Fixture::new(1 << 20);
        fixture.ost().set_bytes(resource(0), vec![1; 8 << 20]);
        fixture.osts.read_ahead().set_whole(whole);
        let file = fixture.file(1);
        fixture.size(&file);
        fixture.read(&file, 0, 1 << 20, CACHED).expect("read");
        fixture.world.settle();
        assert_eq!(fixture.ost().take("read").len(), 1 + chunks, "of {whole} bytes");
    }
}

#[test]
fn data_goes_with_the_checksum_that_operators_choose() {
    let fixture = Fixture::new(1 << 20);
    let (file, target) = (fixture.file(1), fixture.osts.ost(0).expect("there"));
    let both = Checksum::OFFERED;
    fixture.osts.connected(0, &ObdConnectData { cksum_types: both, ..FakeOst::agreed(1 << 20) });
    let ways = |is_on: bool| {
        target.settings.checksums.set(is_on);
        fixture.write(&file, WriteAt::Offset(0), pattern(100), DIRECT).expect("written");
        assert_eq!(fixture.read(&file, 0, 100, DIRECT), Ok(pattern(100)));
        let ways = fixture.ost().take_ways();
        ways.into_iter().map(|(checksum, _)| checksum).collect::<Vec<_>>()
    };
    assert_eq!(ways(true), [Some(Checksum::Crc32c); 2]);
    target.choose_checksum(ChecksumTypes::ADLER);
    assert_eq!(ways(true), [Some(Checksum::Adler); 2]);
    assert_eq!(ways(false), [None; 2]);
    target.choose_checksum(ChecksumTypes::CRC32C);
    assert_eq!(ways(true), [Some(Checksum::Crc32c); 2]);
}

#[test]
fn small_data_goes_inside_the_messages_as_far_as_operators_allow() {
    let fixture = Fixture::new(1 << 20);
    let (file, target) = (fixture.file(1), fixture.osts.ost(0).expect("there"));
    for (allowed, length, is_short) in [
        (16 << 10, 16 << 10, true),
        (8 << 10, 16 << 10, false),
        (8 << 10, 8 << 10, true),
        (0, 1, false),
    ] {
        target.settings.short_io_bytes.set(allowed);
        fixture.write(&file, WriteAt::Offset(0), pattern(length), DIRECT).expect("written");
        assert_eq!(fixture.read(&file, 0, length as u32, DIRECT), Ok(pattern(length)));
        let ways = fixture.ost().take_ways();
        let short: Vec<_> = ways.into_iter().map(|(_, is_short)| is_short).collect();
        assert_eq!(short, [is_short; 2], "{length} bytes of {allowed}");
    }
}

#[test]
fn no_more_is_dirty_than_operators_allow() {
    for limit in [2 << 20, 3 << 20] {
        let fixture = Fixture::new(16 << 20);
        let (file, target) = (fixture.file(1), fixture.osts.ost(0).expect("there"));
        target.limit_dirty(limit);
        fixture.ost().script.lock().hold = Some("write");
        let writer = Arc::clone(&file);
        let write = async move {
            let root = Credentials::root();
            for at in 0..4 {
                let at = WriteAt::Offset(at << 20);
                let written = writer.write(at, pattern(1 << 20), &root, CACHED);
                written.await.expect("written");
            }
        };
        fixture.world.world().tasks.spawn("writes", Box::pin(write));
        fixture.world.settle();
        assert_eq!(target.grant_dirty_lost()[1], limit, "the next write waits");
        fixture.ost().release_held();
        fixture.world.settle();
        fixture.sync(&file).expect("durable");
        assert_eq!((target.grant_dirty_lost()[1], fixture.size(&file)), (0, 4 << 20));
    }
}

#[test]
fn no_file_is_read_ahead_farther_than_operators_allow() {
    for (per_file, chunks) in [(1 << 20, 1), (4 << 20, 4)] {
        let fixture = Fixture::new(1 << 20);
        fixture.ost().set_bytes(resource(0), vec![1; 32 << 20]);
        let limits = fixture.osts.read_ahead();
        limits.set_per_file(per_file);
        limits.set_whole(0);
        let file = fixture.file(1);
        fixture.size(&file);
        fixture.ost().take_asked();
        for at in (0..8 << 20).step_by(128 << 10) {
            fixture.read(&file, at, 128 << 10, CACHED).expect("read");
        }
        let end = |line: &String| {
            let (start, length) = line.split_once(' ')?.1.split_once('+')?;
            Some(start.parse::<u64>().ok()? + length.parse::<u64>().ok()?)
        };
        let farthest = fixture.ost().take("read").iter().filter_map(end).max();
        assert_eq!(farthest, Some((8 + chunks) << 20), "of {per_file} bytes");
    }
}
