//! Against the log that a real MGS sent to a client: the file system `lustre` with two MDTs and
//! four OSTs, all on one node, as capture `a-mount-umount` has it.

use bytes::Bytes;
use sheen_llog::{
    ClusterMap, ConfigLog, LogRecord, Section, add_mdc, add_osc, lmv_setup, lov_setup,
    mount_options, parameter, set_parameter,
};
use sheen_types::{Nid, TargetKind, TargetName};
use sheen_wire::codec::ByteOrder;
use sheen_wire::llog::{LLOG_CHUNK_BYTES, LlogLogHdr, LlogRecordType};
use sheen_wire::mgs::ConfigCommand;

/// Header and records: a log as a file.
const LOG: &[u8] = include_bytes!("data/lustre-client.llog");

fn captured() -> (LlogLogHdr, Vec<LogRecord>) {
    let bytes = Bytes::from_static(LOG);
    let header = bytes.slice(..LLOG_CHUNK_BYTES);
    let records = LogRecord::from_block(&bytes.slice(LLOG_CHUNK_BYTES..)).unwrap();
    (LlogLogHdr::from_bytes(&header, ByteOrder::Little).unwrap(), records)
}

fn name(kind: TargetKind, index: u16) -> TargetName {
    TargetName { fsname: "lustre".to_owned(), kind, index }
}

/// What we write for the same cluster.
fn sections() -> Vec<Section> {
    let nodes = [vec!["10.77.0.11@tcp".parse::<Nid>().unwrap()]];
    let mdc = |index| add_mdc(&name(TargetKind::Mdt, index), &nodes);
    let osc = |index| add_osc(&name(TargetKind::Ost, index), &nodes, None);
    let mut sections =
        vec![lov_setup("lustre-clilov"), lmv_setup("lustre-clilmv"), mount_options("lustre")];
    sections.extend((0..2).map(mdc));
    sections.extend((0..4).map(osc));
    sections
}

fn ours(created: i64) -> ConfigLog {
    let steps = [4, 5, 6, 7, 11, 16, 20, 24, 28];
    let mut log = ConfigLog::new(created);
    for (section, step) in sections().iter().zip(steps) {
        log.append_section(section, step, 0x0211_393e, created).unwrap();
    }
    log
}

#[test]
fn our_log_is_the_captured_one_but_for_times_and_old_bytes() {
    let (header, records) = captured();
    let log = ours(header.fixed.timestamp);
    assert_eq!(log.header(), header);
    assert_eq!(log.records().len(), records.len());
    for (ours, theirs) in log.records().iter().zip(&records) {
        let (Some(our), Some(their)) = (ours.marker(), theirs.marker()) else {
            assert_eq!(ours, theirs);
            assert_eq!(ours.to_bytes(), theirs.to_bytes());
            continue;
        };
        assert_eq!(our.target.as_bytes(), their.target.as_bytes());
        assert_eq!(our.comment.as_bytes(), their.comment.as_bytes());
        assert_eq!((our.step, our.flags, our.version), (their.step, their.flags, their.version));
        assert_eq!((ours.index, ours.to_bytes().len()), (theirs.index, theirs.to_bytes().len()));
    }
    let block = log.block(1).unwrap();
    assert_eq!((block.last_index, block.end_offset), (47, LOG.len() as u64));
    assert_eq!(block.bytes.len(), LLOG_CHUNK_BYTES);
    assert_eq!(log.block(47), Some(block));
    assert_eq!(log.block(48), None);
}

#[test]
fn the_captured_bytes_come_back_out() {
    let (header, records) = captured();
    let mut at = LLOG_CHUNK_BYTES;
    for record in &records {
        let bytes = record.to_bytes();
        assert_eq!(bytes, LOG[at..at + bytes.len()], "record {}", record.index);
        assert_eq!(LogRecord::from_bytes(&bytes).as_ref(), Ok(record));
        at += bytes.len();
    }
    assert_eq!(at, LOG.len());
    let again = ConfigLog::from_records(header.fixed.timestamp, records).unwrap();
    assert_eq!((again.last_index(), again.step()), (47, 28));
}

#[test]
fn the_map_has_the_targets_of_the_log() {
    let (_, records) = captured();
    let mut map = ClusterMap::new("lustre");
    map.read(&records).unwrap();
    let indexes = |targets: &[sheen_llog::MapTarget]| {
        targets.iter().map(|target| target.index).collect::<Vec<_>>()
    };
    assert_eq!(indexes(&map.mdts), [0, 1]);
    assert_eq!(indexes(&map.osts), [0, 1, 2, 3]);
    assert_eq!(map.osts[3].uuid.as_str(), "lustre-OST0003_UUID");
    assert_eq!(map.mdts[1].nids, ["10.77.0.11@tcp".parse().unwrap()]);
    // What a captured client showed as `lov.*.stripe*`.
    let lov = map.lov.as_ref().expect("a LOV was set up");
    assert_eq!((lov.stripe_size, lov.stripe_count, lov.pattern), (4 << 20, 1, 1));
    assert_eq!(lov.stripe_offset, u64::MAX);

    // A log that grew is read onward.
    let mut log = ours(1);
    log.append_section(&parameter("lustre-OST0003-osc", "osc.max_dirty_mb=24"), 29, 1, 2).unwrap();
    log.append_section(&set_parameter("osc.*.max_rpcs_in_flight=12"), 30, 1, 2).unwrap();
    map.read(log.records()).unwrap();
    let params: Vec<_> = map.params.iter().map(|param| param.assignment.as_str()).collect();
    assert_eq!(params, ["osc.max_dirty_mb=24", "osc.*.max_rpcs_in_flight=12"]);
    assert_eq!(map.params[0].device.as_deref(), Some("lustre-OST0003-osc"));

    // A cancelled section is skipped by a reader that reads the log from the start.
    assert_eq!(log.cancel("lustre-OST0003-osc", "osc.max_dirty_mb", 3).len(), 2);
    assert_eq!(log.cancel("lustre-OST0003-osc", "osc.max_dirty_mb", 4).len(), 0);
    let mut fresh = ClusterMap::new("lustre");
    fresh.read(log.records()).unwrap();
    assert_eq!(fresh.params.len(), 1);
    assert_eq!(fresh.osts, map.osts);
}

#[test]
fn records_never_cross_a_block() {
    let mut log = ConfigLog::new(1);
    for step in 1..=100 {
        log.append_section(&set_parameter(&format!("a.b={step:>0$}", step as usize)), step, 1, 1)
            .unwrap();
    }
    let (mut read, mut index) = (Vec::new(), 1);
    while let Some(block) = log.block(index) {
        let records = LogRecord::from_block(&block.bytes).unwrap();
        assert!(
            block.end_offset % LLOG_CHUNK_BYTES as u64 == 0
                || log.block(block.last_index + 1).is_none()
        );
        index = block.last_index + 1;
        read.extend(records);
    }
    assert_eq!(read, log.records());
    assert!(log.last_index() as usize > log.records().len(), "padding takes indexes");
    assert_eq!(log.header().fixed.count as usize, log.records().len() + 1);
    let padded = read.windows(2).find(|pair| pair[1].index == pair[0].index + 2).unwrap();
    assert!(!log.header().is_used(padded[0].index + 1));
    assert_eq!(ConfigLog::from_records(1, read).unwrap(), log);
}

#[test]
fn damaged_blocks_are_refused_not_trusted() {
    let block = Bytes::copy_from_slice(&LOG[LLOG_CHUNK_BYTES..]);
    for length in (0..1000).chain(7000..block.len()) {
        // Cut anywhere: an error, or the records before the cut.
        if let Ok(records) = LogRecord::from_block(&block.slice(..length)) {
            assert!(records.len() <= 47);
        }
    }
    for at in 0..400 {
        let mut damaged = block.to_vec();
        damaged[at] ^= 0xff;
        let read = LogRecord::from_block(&damaged.into());
        drop(read.map(|records| ClusterMap::new("lustre").read(&records)));
    }
    let mut wrong = ours(1).records()[3].clone();
    wrong.config.command = ConfigCommand::ADD_MDC;
    let error = ClusterMap::new("lustre").read(&[wrong]).unwrap_err();
    assert_eq!(error.index, 4);
    assert_eq!(LlogRecordType::OBD_CFG.0, 0x1062_0000);
}
