//! What operations hold, and that nothing changes but that.

use std::future::ready;
use std::pin::pin;

use sheen_store::{AttributePatch, Attributes, FileKind};
use sheen_target::testing::TestWorld;
use sheen_types::futures::before;
use sheen_types::{Errno, Fid, Name, Timestamp};

use super::harness::{Server, run};
use crate::change_set::ChangeSet;
use crate::directory::Child;
use crate::hold::{HoldGuard, Wanted, WantedName};
use crate::inode::Inode;

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a name")
}

#[test]
fn a_name_that_moves_while_it_is_waited_for_is_looked_up_again() {
    let world = TestWorld::new(60);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let first = client.mkdir(Fid::ROOT, "a").await.unwrap();
            let second = client.mkdir(Fid::ROOT, "b").await.unwrap();
            let (a, b, mdt) = (name("a"), name("b"), &server.mdt);
            let moved = [WantedName::removed(Fid::ROOT, &b), WantedName::replaced(Fid::ROOT, &a)];
            let held = mdt.hold(Wanted::of_names(&moved)).await.unwrap();
            let fid = |held: &HoldGuard<'_>, at| held.child(at).map(|child| child.fid);
            assert_eq!((fid(&held, 0), fid(&held, 1)), (Some(second), Some(first)));
            let lost = [WantedName::removed(Fid::ROOT, &a)];
            let mut waiting = pin!(mdt.hold(Wanted::of_names(&lost)));
            assert!(before(waiting.as_mut(), ready(())).await.is_none(), "it waits");
            let mut changes = mdt.change_set();
            changes.delete_name(Fid::ROOT, &b);
            changes.put_name(Fid::ROOT, &a, Child { fid: second, kind: FileKind::Directory });
            mdt.execute_locally(&server.node.target, &held, changes).unwrap();
            drop(held);
            let held = waiting.await.unwrap();
            assert_eq!(fid(&held, 0), Some(second), "not what it stood for at first");
            assert!(before(pin!(mdt.hold_inodes(&[second])), ready(())).await.is_none());
        },
        &world,
    );
}

#[test]
fn a_name_that_is_needed_and_absent_holds_nothing() {
    let world = TestWorld::new(61);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (absent, mdt) = (name("absent"), &server.mdt);
            let needed = [WantedName::removed(Fid::ROOT, &absent)];
            assert!(mdt.hold_if_there(Wanted::of_names(&needed)).await.unwrap().is_none());
            let refused = mdt.hold(Wanted::of_names(&needed)).await;
            assert_eq!(refused.map(drop), Err(Errno::ENOENT));
            let replaced = [WantedName::replaced(Fid::ROOT, &absent)];
            let held = mdt.hold(Wanted::of_names(&replaced)).await.unwrap();
            assert_eq!(held.child(0), None);
            assert!(mdt.try_hold(&[WantedName::kept(Fid::ROOT, absent.as_bytes())]).is_none());
        },
        &world,
    );
}

/// A change of the numbered one of some names or inodes.
type ChangeOf = fn(&mut ChangeSet<'_>, u32);

#[test]
fn what_is_not_held_is_not_covered() {
    let world = TestWorld::new(62);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (held_name, mdt) = (name("0"), &server.mdt);
            let names = [WantedName::added(Fid::ROOT, held_name.as_bytes())];
            let wanted = Wanted { names: &names, inodes: &[fid(0)], ..Wanted::default() };
            let held = mdt.hold(wanted).await.unwrap();
            let covers = |change: ChangeOf, number| {
                let mut changes = mdt.change_set();
                change(&mut changes, number);
                held.covers(changes.shards())
            };
            let changes: [ChangeOf; 4] = [
                |changes, number| {
                    changes.insert_name(Fid::ROOT, &name(&number.to_string()), DIRECTORY)
                },
                |changes, number| changes.delete_name(Fid::ROOT, &name(&number.to_string())),
                |changes, number| changes.set_xattr(fid(number), "user.a", "a".into()),
                |changes, number| changes.patch(fid(number), AttributePatch::default()),
            ];
            for (at, change) in changes.into_iter().enumerate() {
                assert!(covers(change, 0), "change {at} of what is held");
                // Two keys may share a shard; not all of ten.
                assert!((1..10).any(|number| !covers(change, number)), "change {at}");
            }
            assert!(covers(|changes, _| changes.touch(Fid::ROOT, Timestamp::default(), 1), 0));
            assert!(!covers(|changes, _| changes.patch(Fid::ROOT, AttributePatch::default()), 0));
            let made = |changes: &mut ChangeSet<'_>, number| {
                let attributes = Attributes::default();
                changes.create(&Inode { fid: fid(number), attributes, is_damaged: false });
                changes.set_xattr(fid(number), "user.a", "a".into());
            };
            assert!((1..10).all(|number| covers(made, number)), "no one knows it yet");
        },
        &world,
    );
}

const DIRECTORY: Child = Child { fid: Fid::ROOT, kind: FileKind::Directory };

fn fid(number: u32) -> Fid {
    Fid::new(0x2_0000_0500, number + 1)
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "is not held")]
fn builds_for_tests_stop_at_a_change_of_what_is_not_held() {
    let world = TestWorld::new(63);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let held = server.mdt.hold_inodes(&[]).await;
            let mut changes = server.mdt.change_set();
            changes.delete_name(Fid::ROOT, &name("a"));
            let done = server.mdt.execute_locally(&server.node.target, &held, changes);
            done.expect("it does not come so far");
        },
        &world,
    );
}
