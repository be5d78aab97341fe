//! Whole pages that the kernel writes back after a program changed a part of them through a mapping.

use super::*;

/// The kernel holds the page until it is written.
fn mapped() -> IoOptions {
    IoOptions { is_mapped: true, ..filling(0, 4096) }
}

/// The kernel writes a page back that was read under a lock which another client's write has just taken: it changes the
/// object to `theirs` before our write lock is granted. What the object has then.
fn written_after_another_client(theirs: Vec<u8>) -> Vec<u8> {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 8192]);
    let file = fixture.file(1);
    let mut page = fixture.read(&file, 0, 4096, CACHED).expect("read").to_vec();
    page[100] = 7;
    fixture.ost().script.lock().hold = Some("lock");
    let write = fixture.begin_write(&file, 0, page.into(), mapped());
    fixture.world.settle();
    assert!(write.outcome().is_none(), "it waits for its lock");
    fixture.lose_locks();
    fixture.ost().set_bytes(resource(0), theirs);
    fixture.ost().release_held();
    fixture.world.settle();
    assert_eq!(write.outcome(), Some(Ok(0)));
    fixture.sync(&file).expect("written");
    assert!(
        fixture.events.has_dropped(Extent { start: 0, end: 4095 }),
        "it lacks the other's bytes"
    );
    fixture.ost().bytes(resource(0))
}

#[test]
fn bytes_that_no_program_changed_do_not_replace_those_of_another_client() {
    let mut theirs = vec![1; 8192];
    theirs[200] = 9;
    let mut expected = theirs.clone();
    expected[100] = 7;
    assert!(written_after_another_client(theirs) == expected);
}

#[test]
fn a_page_that_another_client_has_cut_off_does_not_come_back() {
    assert!(written_after_another_client(vec![1; 50]) == vec![1; 50]);
}

#[test]
fn a_page_goes_out_while_its_lock_is_revoked_with_what_was_changed_alone() {
    let fixture = Fixture::new(1 << 20);
    fixture.ost().set_bytes(resource(0), vec![1; 8192]);
    let file = fixture.file(1);
    let mut page = fixture.read(&file, 0, 4096, CACHED).expect("read").to_vec();
    (page[0], page[4095]) = (7, 8);
    // The kernel sends the page when it is to drop it.
    let late = Arc::new(Notify::new());
    *fixture.events.late.lock() = Some((Extent::ALL, Arc::clone(&late)));
    fixture.lose_locks();
    let write = fixture.begin_write(&file, 0, page.into(), mapped());
    fixture.world.settle();
    late.notify_one();
    fixture.world.settle();
    late.notify_one();
    fixture.world.settle();
    assert_eq!(write.outcome(), Some(Ok(0)));
    fixture.sync(&file).expect("written");
    let mut expected = vec![1; 8192];
    (expected[0], expected[4095]) = (7, 8);
    assert!(fixture.ost().bytes(resource(0)) == expected);
    let written = fixture.ost().take("write");
    assert!(written.iter().all(|line| !line.contains("+4096")), "{written:?}");
}

#[test]
fn under_a_write_lock_a_page_is_not_read_before_it_is_written() {
    let fixture = Fixture::new(1 << 20);
    let file = fixture.file(1);
    fixture.write(&file, WriteAt::Offset(0), pattern(8192), CACHED).expect("written");
    fixture.ost().take_asked();
    fixture.write(&file, WriteAt::Offset(0), vec![7; 4096].into(), mapped()).expect("written");
    fixture.sync(&file).expect("written");
    let asked = fixture.ost().take_asked();
    let is_asked = |word: &str| asked.iter().any(|line| line.starts_with(word));
    assert!(!is_asked("read") && !is_asked("lock") && is_asked("write"), "{asked:?}");
}
