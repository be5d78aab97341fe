//! Syncs: they return when what was written before them is durable, and cost nothing where it is already.

use std::sync::Arc;

use sheen_types::{Errno, Extent};

use super::{CACHED, Fixture, pattern};
use crate::data::{DataFile, WriteAt};

/// A file with a write that its OST has answered and may not have on its disk.
fn written(fixture: &Fixture) -> Arc<dyn DataFile> {
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(4096), CACHED).expect("accepted");
    fixture.run(&file, |file| async move { file.flush(Extent::ALL).await });
    fixture.ost().take_asked();
    file
}

#[test]
fn a_sync_beside_another_returns_no_sooner_than_the_disk_has_it() {
    let fixture = Fixture::new(1 << 20);
    let file = written(&fixture);
    fixture.ost().script.lock().hold = Some("sync");
    let both = [fixture.begin_sync(&file), fixture.begin_sync(&file)];
    assert!(both.iter().all(|sync| sync.outcome().is_none()), "the OST has answered neither");
    fixture.ost().release_held();
    fixture.world.settle();
    assert!(both.iter().all(|sync| sync.outcome() == Some(Ok(()))));
    fixture.ost().take_asked();
    fixture.sync(&file).expect("durable");
    assert_eq!(fixture.ost().take_asked(), Vec::<String>::new(), "nothing is left to sync");
}

#[test]
fn a_sync_that_fails_beside_one_that_does_not_does_not_undo_it() {
    let fixture = Fixture::new(1 << 20);
    let file = written(&fixture);
    fixture.ost().script.lock().hold = Some("sync");
    fixture.ost().refuse("sync", Errno::EIO);
    let both = [fixture.begin_sync(&file), fixture.begin_sync(&file)];
    fixture.ost().release_held();
    fixture.world.settle();
    let mut outcomes = both.map(|sync| sync.outcome().expect("done"));
    outcomes.sort_by_key(|outcome| outcome.is_err());
    assert_eq!(outcomes, [Ok(()), Err(Errno::EIO)]);
    fixture.ost().take_asked();
    fixture.sync(&file).expect("durable");
    assert_eq!(fixture.ost().take_asked(), Vec::<String>::new());
}

#[test]
fn a_sync_after_one_whose_caller_was_killed_is_sent() {
    let fixture = Fixture::new(1 << 20);
    let file = written(&fixture);
    fixture.ost().script.lock().hold = Some("sync");
    fixture.begin_sync(&file).kill(&fixture);
    fixture.ost().release_held();
    fixture.ost().take_asked();
    fixture.sync(&file).expect("durable");
    assert_eq!(fixture.ost().take_asked(), ["sync"]);
}

#[test]
fn a_write_that_is_answered_while_a_sync_is_under_way_needs_another() {
    let fixture = Fixture::new(1 << 20);
    let file = written(&fixture);
    fixture.ost().script.lock().late = Some("sync");
    let first = fixture.begin_sync(&file);
    fixture.write(&file, WriteAt::Offset(0), pattern(100), CACHED).expect("accepted");
    fixture.run(&file, |file| async move { file.flush(Extent::ALL).await });
    fixture.ost().release_held();
    fixture.world.settle();
    assert_eq!(first.outcome(), Some(Ok(())));
    fixture.ost().take_asked();
    fixture.sync(&file).expect("durable");
    assert_eq!(fixture.ost().take_asked(), ["sync"]);
}
