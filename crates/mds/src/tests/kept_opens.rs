//! Files that clients keep open under an open lock, and what makes them close these.

use std::time::Duration;

use parking_lot::Mutex;
use sheen_io::Clock;
use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode};
use sheen_wire::md::{AttrValid, FileFlags, MdsOpenFlags, RecSetattr};
use sheen_wire::messages::{ObdPing, Request};

use super::harness::{Client, Opened, Server, run};

const ROOT: Fid = Fid::ROOT;

/// Opens a file to keep it so.
pub(super) async fn keep(client: &Client, name: &str, flags: MdsOpenFlags) -> Opened {
    let opened = client.open(ROOT, name, flags | MdsOpenFlags::LOCK).await.unwrap();
    assert!(opened.lock.unwrap().1.contains(InodeBits::OPEN));
    opened
}

/// As Lustre's clients do, closes the file before it cancels the lock that the file is kept open under. Other locks of
/// the client are revoked, too: they are only cancelled.
pub(super) fn close_when_revoked(world: &TestWorld, client: &Client, opened: &Opened) {
    let (world, client, opened) = (world.clone(), client.clone(), opened.clone());
    let lock: LockHandle = opened.lock.unwrap().0;
    client.inner.clone().on_callback(Box::new(move |request| {
        if let Request::LdlmBlCallback(callback) = request
            && let Some(revoked) = client.revoked(callback)
        {
            let (client, opened) = (client.clone(), opened.clone());
            let obey = async move {
                if revoked == lock {
                    assert_eq!(client.close(&opened).await, Ok(()));
                }
                client.inner.cancel(&[revoked]).await;
            };
            world.world().tasks.spawn("obey", Box::pin(obey));
        }
        None
    }));
}

/// A file that one client keeps open so, and another client.
async fn kept(world: &TestWorld, server: &Server, flags: MdsOpenFlags) -> (Opened, Client, Client) {
    let (keeper, other) = (server.client("keeper").await, server.client("other").await);
    let made = keeper.create(ROOT, "f").await.unwrap();
    keeper.close(&made).await.unwrap();
    let mode = |record: &mut RecSetattr| record.mode = 0o755;
    keeper.setattr(made.body.fid1, AttrValid::MODE, mode).await.unwrap();
    let opened = keep(&keeper, "f", flags).await;
    close_when_revoked(world, &keeper, &opened);
    (opened, keeper, other)
}

/// No client had to be evicted: each whose lock was revoked has answered in time.
async fn is_connected(client: &Client) -> bool {
    client.inner.call(ObdPing::default()).await.errno().is_none()
}

#[test]
fn what_is_only_kept_open_goes_with_its_last_name() {
    let world = TestWorld::new(43);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (opened, keeper, other) = kept(&inner, &server, MdsOpenFlags::READ).await;
            other.unlink(ROOT, "f").await.unwrap();
            inner.sleep(Duration::from_secs(1)).await;
            assert_eq!(server.mdt.open_count(), 0);
            let gone = other.getattr(opened.body.fid1).await.map(|_| ());
            assert_eq!(gone, Err(Errno::ENOENT));
            assert!(is_connected(&keeper).await);
            server.check();
        },
        &world,
    );
}

#[test]
fn what_is_only_kept_open_to_be_written_can_be_executed() {
    for (kept_for, wanted) in
        [(MdsOpenFlags::WRITE, MdsOpenFlags::EXEC), (MdsOpenFlags::EXEC, MdsOpenFlags::WRITE)]
    {
        for asks_lock in [MdsOpenFlags::NONE, MdsOpenFlags::LOCK] {
            let world = TestWorld::new(41);
            let inner = world.clone();
            run(
                async move {
                    let server = Server::start(&inner, 1).await;
                    let (_, keeper, other) = kept(&inner, &server, kept_for).await;
                    let before = inner.now();
                    let opened = other.open(ROOT, "f", wanted | asks_lock).await.unwrap();
                    assert!((inner.now().since(before)).as_secs() < 1, "no time-out");
                    assert_eq!(server.mdt.open_count(), 1);
                    // A program that really has it open conflicts.
                    let refused = keeper.open(ROOT, "f", kept_for).await.map(|_| ());
                    assert_eq!(refused, Err(Errno::ETXTBSY));
                    other.close(&opened).await.unwrap();
                    assert!(is_connected(&keeper).await);
                },
                &world,
            );
        }
    }
}

#[test]
fn what_is_only_kept_open_to_be_executed_can_be_cut() {
    let world = TestWorld::new(42);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (opened, keeper, other) = kept(&inner, &server, MdsOpenFlags::EXEC).await;
            let cut = other.setattr(opened.body.fid1, AttrValid::SIZE, |it| it.size = 0).await;
            assert!(cut.is_ok());
            assert_eq!(server.mdt.open_count(), 0);
            assert!(is_connected(&keeper).await);
        },
        &world,
    );
}

#[test]
fn a_file_that_is_only_kept_open_goes_with_its_name() {
    for flags in [MdsOpenFlags::READ, MdsOpenFlags::WRITE] {
        let world = TestWorld::new(43);
        let inner = world.clone();
        run(
            async move {
                let server = Server::start(&inner, 1).await;
                let (opened, keeper, other) = kept(&inner, &server, flags).await;
                let before = inner.now();
                other.unlink(ROOT, "f").await.unwrap();
                assert!((inner.now().since(before)).as_secs() < 1, "no time-out");
                assert_eq!(server.mdt.open_count(), 0);
                let gone = other.getattr(opened.body.fid1).await.map(|_| ());
                assert_eq!(gone, Err(Errno::ENOENT));
                assert!(is_connected(&keeper).await);
                assert_eq!(server.check().orphans, []);
            },
            &world,
        );
    }
}

#[test]
fn what_a_close_reports_is_recorded_though_another_client_waits_for_the_file() {
    let world = TestWorld::new(44);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (opened, keeper, other) = kept(&inner, &server, MdsOpenFlags::WRITE).await;
            let (copy, client, lock) = (inner.clone(), keeper.clone(), opened.lock.unwrap().0);
            let fid = opened.body.fid1;
            keeper.inner.on_callback(Box::new(move |request| {
                if let Request::LdlmBlCallback(_) = request {
                    let mut close = client.close_request(fid, opened.body.open_handle);
                    let record = &mut close.rec_reint;
                    record.valid = AttrValid::MTIME | AttrValid::CTIME;
                    (record.mtime, record.ctime) = (5_000, 5_000);
                    let client = client.clone();
                    let obey = async move {
                        assert!(client.modify(close).await.is_ok());
                        client.inner.cancel(&[lock]).await;
                    };
                    copy.world().tasks.spawn("obey", Box::pin(obey));
                }
                None
            }));
            other.link(fid, ROOT, "g").await.unwrap();
            // The rest of the close waits for the link to be made.
            other.wait(&inner, 1).await;
            assert_eq!(other.getattr(fid).await.unwrap().mtime, 5_000);
        },
        &world,
    );
}

/// The client closes one file, and releases with one request the locks on that and on another.
#[test]
fn a_close_does_not_wait_for_an_operation_that_waits_for_a_lock_on_another_inode() {
    let world = TestWorld::new(48);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (opened, keeper, other) = kept(&inner, &server, MdsOpenFlags::WRITE).await;
            let made = keeper.create(ROOT, "source").await.unwrap();
            let source = keep(&keeper, "source", MdsOpenFlags::READ).await;
            let locks: Vec<_> =
                [&opened, &made, &source].iter().filter_map(|it| it.lock).map(|it| it.0).collect();
            let (copy, client) = (inner.clone(), keeper.clone());
            // Several locks are revoked, and the first callback is answered for all.
            let release = Mutex::new(Some((opened, locks)));
            keeper.inner.on_callback(Box::new(move |request| {
                if let Request::LdlmBlCallback(_) = request
                    && let Some((opened, locks)) = release.lock().take()
                {
                    let client = client.clone();
                    let obey = async move {
                        assert_eq!(client.close(&opened).await, Ok(()));
                        client.inner.cancel(&locks).await;
                    };
                    copy.world().tasks.spawn("obey", Box::pin(obey));
                }
                None
            }));
            let before = inner.now();
            other.rename((ROOT, "source"), (ROOT, "f")).await.unwrap();
            assert!((inner.now().since(before)).as_secs() < 1, "no time-out");
            assert!(is_connected(&keeper).await);
            other.wait(&inner, 1).await;
            assert_eq!(server.check().orphans, [], "the rest of the close has found no other open");
        },
        &world,
    );
}

#[test]
fn flags_that_forbid_opens_end_those_that_are_kept() {
    let world = TestWorld::new(45);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (keeper, other) = (server.client("keeper").await, server.client("other").await);
            let made = keeper.create(ROOT, "f").await.unwrap();
            keeper.close(&made).await.unwrap();
            let fid = made.body.fid1;
            // It is not reported any more that nothing was written.
            keeper.setattr(fid, AttrValid::SIZE, |it| it.size = 0).await.unwrap();
            // A client knows the attributes: the lock covers the open file alone.
            let attributes = InodeBits::UPDATE | InodeBits::PERM;
            let known = server.node.target.lock_inode(fid, attributes, LockMode::Pr).await;
            let opened = keep(&keeper, "f", MdsOpenFlags::WRITE).await;
            assert!(!opened.lock.unwrap().1.intersects(attributes));
            drop(known);
            close_when_revoked(&inner, &keeper, &opened);
            let mode = |record: &mut RecSetattr| record.mode = 0o700;
            other.setattr(fid, AttrValid::MODE, mode).await.unwrap();
            assert_eq!(server.mdt.open_count(), 1, "another lock covers the mode");
            let frozen = |it: &mut RecSetattr| it.attr_flags = FileFlags::IMMUTABLE;
            other.setattr(fid, AttrValid::ATTR_FLAG, frozen).await.unwrap();
            assert_eq!(server.mdt.open_count(), 0);
        },
        &world,
    );
}
