//! What operators set takes effect, and what is counted is what was done.

use sheen_types::Samples;
use sheen_wire::connect::ChecksumTypes;

use super::{CACHED, DIRECT, Fixture, pattern, resource};
use crate::data::WriteAt;

#[test]
fn rpcs_are_as_large_as_operators_allow() {
    let fixture = Fixture::new(1 << 20);
    let (file, osc) = (fixture.file(1), fixture.osts.osc(0).expect("there"));
    osc.limit_writes(64 << 10);
    osc.limit_reads(128 << 10);
    assert_eq!(osc.bulk_bytes(), (128 << 10, 64 << 10));
    fixture.write(&file, WriteAt::Offset(0), pattern(256 << 10), DIRECT).expect("written");
    assert_eq!(fixture.ost().take("write").len(), 4);
    let read = fixture.read(&file, 0, 256 << 10, DIRECT);
    assert!(read == Ok(pattern(256 << 10)));
    assert_eq!(fixture.ost().take("read"), ["read 0+131072", "read 131072+131072"]);
    // Sixteen pages in each write, 32 in each read.
    let io = osc.io();
    assert_eq!((io.write.pages.counts()[4], io.read.pages.counts()[5]), (4, 2));
    assert_eq!((io.write.offsets.counts()[0], io.write.under_way(), io.direct()), (1, 0, 0));
    let bytes = |samples: &Samples| (samples.line.name, samples.count, samples.sum);
    let counted: Vec<_> = io.bytes().iter().map(bytes).collect();
    assert_eq!(counted, [("read_bytes", 2, 256 << 10), ("write_bytes", 4, 256 << 10)]);
}

#[test]
fn without_checksums_none_is_sent_and_none_looked_at() {
    let fixture = Fixture::new(1 << 20);
    let (file, osc) = (fixture.file(1), fixture.osts.osc(0).expect("there"));
    osc.set_checksums(false);
    fixture.ost().script.lock().garble = 2;
    fixture.write(&file, WriteAt::Offset(0), pattern(100), DIRECT).expect("written");
    assert_eq!(fixture.read(&file, 0, 100, DIRECT), Ok(pattern(100)));
    assert_eq!(fixture.ost().take_asked().iter().filter(|it| !it.starts_with("lock")).count(), 2);
    // What the OST does not compute is not used, whoever wishes for it.
    osc.choose_checksum(ChecksumTypes::ADLER);
    assert_eq!(osc.checksum_types().1.map(|it| it.kind()), Some(ChecksumTypes::CRC32C));
}

#[test]
fn data_is_sent_again_as_often_as_operators_allow() {
    let fixture = Fixture::new(1 << 20);
    let (file, osc) = (fixture.file(1), fixture.osts.osc(0).expect("there"));
    osc.set_resends(1);
    fixture.ost().script.lock().garble = 2;
    assert!(fixture.write(&file, WriteAt::Offset(0), pattern(9), DIRECT).is_err());
    assert_eq!(fixture.ost().take("write").len(), 2);
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
    // The first read found nothing, and the seven others all that they asked for.
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
