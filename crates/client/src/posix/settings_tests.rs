//! What operators set of the locks of a mount, against a scripted MDT.

use std::time::Duration;

use sheen_types::{Errno, Fid, InodeBits};
use sheen_wire::messages::Request;

use super::{Lookup, NodeId};
use crate::testing::{Fixture, found, name};

fn look_up(fixture: &Fixture, number: u32) -> Result<Lookup, Errno> {
    let fid = Fid::new(0x2_0000_0400, 100 + number);
    let remote = 0x1000 + u64::from(number);
    fixture.mdt.answer(found(fid, 0o040_755, remote, InodeBits(0x13)));
    let (files, text) = (fixture.files.clone(), format!("d{number}"));
    fixture
        .world
        .run(async move { files.lookup(&Fixture::root(), NodeId::ROOT, &name(&text)).await })
}

/// How many locks went back since the last time.
fn given_back(fixture: &Fixture) -> usize {
    let asked = fixture.mdt.take_asked();
    let count = |request: &Request| match request {
        Request::LdlmCancel(cancel) => cancel.dlm_req.counted().len(),
        _ => 0,
    };
    asked.iter().map(count).sum()
}

#[test]
fn locks_that_are_too_many_go_in_batches_as_large_as_operators_say() {
    let fixture = Fixture::new();
    for number in 0..10 {
        look_up(&fixture, number).expect("found");
    }
    assert_eq!(given_back(&fixture), 0);
    // Only what comes later looks at the limit.
    fixture.locks.namespace().set_limits(1, Duration::from_secs(3600));
    for batch in [1, 3] {
        fixture.locks.set_shrink_batch(batch);
        look_up(&fixture, 20 + batch as u32).expect("found");
        assert_eq!(given_back(&fixture), batch);
    }
    // Without a limit all that are too many.
    fixture.locks.set_shrink_batch(0);
    look_up(&fixture, 20).expect("found");
    assert!(given_back(&fixture) > 3);
    assert!(fixture.locks.namespace().gauges().unused <= 2);
}

#[test]
fn blocks_are_as_large_as_operators_say() {
    let fixture = Fixture::new();
    let size = |number| {
        look_up(&fixture, number).map(|lookup| match lookup {
            Lookup::Found(entry) => entry.attributes.block_size,
            other => panic!("{other:?}"),
        })
    };
    let usual = size(1);
    assert_ne!(usual, Ok(64 << 10));
    fixture.files.settings().set_stat_block(64 << 10);
    assert_eq!(size(2), Ok(64 << 10));
    fixture.files.settings().set_stat_block(0);
    assert_eq!(size(3), usual);
}
