//! How long recovery waits, for whom, and who comes too late.

use sheen_wire::codec::{Wire, Writer};
use sheen_wire::messages::OutUpdate;
use sheen_wire::out::{ObjectUpdate, OutUpdateHeader, UpdateType, encode_updates};

use super::*;
use crate::recovery::EndDecided;

/// The end of recovery is decided without a client, whose eviction is still under way when it comes: let in, it would
/// believe that its locks are still there.
#[test]
fn a_client_that_comes_between_the_end_of_recovery_and_its_eviction_begins_anew() {
    let world = TestWorld::new(61);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        store.commit().unwrap();

        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        let (one, two) = (one.follow(&node), two.follow(&node));
        one.connect().await.unwrap();
        assert!(node.target.recovery.abort(node.target.now()));
        let EndDecided(has_ended) = node.target.recovery.resume();
        assert!(!has_ended, "one client still replays");
        assert_eq!(finish_recovery(&one).await.head.status, 0);
        assert_eq!(two.connect().await.unwrap_err(), Errno::ENODEV);

        let exports = node.target.exports();
        let awaited = exports.iter().find(|it| it.state() == ExportState::Awaited);
        node.target.evict(awaited.expect("it was not let in")).await;
        two.connect().await.unwrap();
        assert_eq!(two.connect_flags() & OpFlags::CONNECT_RECONNECT, OpFlags::NONE);
        assert_eq!(modify(&two, 2).await.head.status, 0);
    });
}

/// An open that is durable is replayed, too, as the file has to be open again. An unlink that was lost, replayed before
/// that, would find the file open nowhere, and remove it.
#[test]
fn what_was_lost_is_replayed_when_no_client_has_anything_durable_to_replay() {
    let world = TestWorld::new(75);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let (one, two) = (node.connect("one").await, node.connect("two").await);
        let open = modify(&one, 1).await;
        store.commit().unwrap();
        let unlink = modify(&two, 2).await;
        let (node, role) = start(&world, &Arc::new(store.crash())).await;
        let (one, two) = (one.follow(&node), two.follow(&node));
        one.connect().await.unwrap();
        two.connect().await.unwrap();
        let ask = async move {
            let replay = setattr(2).replayed(unlink.xid, unlink.head.transno);
            assert_eq!(two.call_with(replay).await.unwrap().head.transno, unlink.head.transno);
            finish_recovery(&two).await;
        };
        world.world().tasks.spawn("unlink", Box::pin(ask));
        world.sleep(Duration::from_secs(2)).await;
        assert_eq!(role.executed(), 0, "the other client may have files to open");
        let replay = setattr(1).replayed(open.xid, open.head.transno);
        assert_eq!(one.call_with(replay).await.unwrap().head.transno, open.head.transno);
        world.sleep(Duration::from_secs(2)).await;
        let opened = role.executed();
        assert_eq!(finish_recovery(&one).await.head.status, 0);
        assert_eq!(role.executed(), opened + 1);
    });
}

#[test]
fn recovery_waits_as_long_as_operators_say() {
    let world = TestWorld::new(71);
    world.clone().run(async move {
        for soft in [7, 90] {
            let store = manual_store();
            let (node, _) = start(&world, &store).await;
            let (one, two) = (node.connect("one").await, node.connect("two").await);
            modify(&two, 1).await;
            let mine = modify(&one, 1).await;
            let (node, _) = start(&world, &Arc::new(store.crash())).await;
            node.target.change_timeouts(|it| it.recovery_soft = Duration::from_secs(soft));
            let one = one.follow(&node);
            one.connect().await.unwrap();
            let start = node.target.now();
            let replay = setattr(1).replayed(mine.xid, mine.head.transno);
            assert_eq!(one.call_with(replay).await.unwrap().head.transno, mine.head.transno);
            let waited = node.target.now().since(start).as_secs();
            assert!((soft..soft + 5).contains(&waited), "{waited} s instead of {soft}");
            finish_recovery(&one).await;
        }
    });
}

#[test]
fn progress_prolongs_recovery_no_longer_than_operators_say() {
    let world = TestWorld::new(73);
    world.clone().run(async move {
        for (hard, has_ended) in [(12, true), (180, false)] {
            let store = manual_store();
            let (node, _) = start(&world, &store).await;
            let (one, two) = (node.connect("one").await, node.connect("two").await);
            let mine = modify(&one, 1).await;
            modify(&two, 1).await;
            let (node, _) = start(&world, &Arc::new(store.crash())).await;
            node.target.change_timeouts(|it| it.recovery_soft = Duration::from_secs(9));
            node.target.change_timeouts(|it| it.recovery_hard = Duration::from_secs(hard));
            let (one, two) = (one.follow(&node), two.follow(&node));
            one.connect().await.unwrap();
            two.connect().await.unwrap();
            world.sleep(Duration::from_secs(8)).await;
            let replay = setattr(1).replayed(mine.xid, mine.head.transno);
            assert_eq!(one.call_with(replay).await.unwrap().head.transno, mine.head.transno);
            world.sleep(Duration::from_secs(6)).await;
            let status = node.target.view().recovery.status;
            assert_eq!(status == RecoveryStatus::Complete, has_ended, "{hard} s: {status:?}");
        }
    });
}

/// Not reints and enqueues alone give locks on names, remove names and change layouts.
#[test]
fn all_that_changes_names_or_layouts_or_shows_names_waits_for_what_clients_keep() {
    let world = TestWorld::new(17);
    world.clone().run(async move {
        let (node, one, replayed) = revoking_after_loss(&world).await;
        let three = node.connect("three").await;
        let waiting: [Request; 4] = [
            MdsBatch::default().into(),
            MdsRmfid::default().into(),
            MdsSwapLayouts::default().into(),
            MdsCloseIntent::default().into(),
        ];
        let answered = Arc::new(AtomicU32::new(0));
        for request in waiting {
            let (count, client) = (Arc::clone(&answered), three.clone());
            let ask = async move {
                // The role here knows none of them: they have come as far as it.
                assert_eq!(client.call(request).await.errno(), Some(Errno::EOPNOTSUPP));
                count.fetch_add(1, Ordering::Relaxed);
            };
            world.world().tasks.spawn("ask", Box::pin(ask));
        }
        // What ends the use of a lock does not wait for the end of its use.
        let closed = three.call(MdsClose::default()).await.errno();
        assert_eq!(closed, Some(Errno::EOPNOTSUPP));
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(answered.load(Ordering::Relaxed), 0, "the lock may hide what is lost");
        assert_eq!(one.cancel(&[lock_handle(&replayed)]).await.head.status, 0);
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(answered.load(Ordering::Relaxed), 4);
    });
}

/// What another MDT asks for, with these updates in the request.
fn out_update(kinds: &[UpdateType]) -> OutUpdate {
    let updates = kinds.iter().map(|kind| ObjectUpdate { kind: *kind, ..ObjectUpdate::default() });
    let updates = encode_updates(&updates.collect::<Vec<_>>()).expect("they fit");
    let (magic, inline_length) = (OutUpdateHeader::MAGIC, updates.len() as u32);
    let mut writer = Writer::default();
    OutUpdateHeader { magic, count: 1, inline_length, reply_size: 4096 }.encode(&mut writer);
    writer.put(&updates);
    OutUpdate { out_update_header: writer.into_bytes(), ..OutUpdate::default() }
}

/// An exclusion shows the other MDT names as they are. What belongs to a change that is decided waits for nothing.
#[test]
fn an_exclusion_waits_for_what_clients_keep_and_a_part_does_not() {
    let world = TestWorld::new(17);
    world.clone().run(async move {
        let (node, one, replayed) = revoking_after_loss(&world).await;
        let other = node.connect_server("other").await;
        let parts: [&[UpdateType]; 5] = [
            &[UpdateType::RECORD, UpdateType::RELEASE],
            &[UpdateType::RELEASE],
            &[UpdateType::COMPLETE],
            &[UpdateType::RECOVER],
            &[UpdateType::INDEX_LOOKUP],
        ];
        for kinds in parts {
            // The role here knows none of them: they have come as far as it.
            let answer = other.call(out_update(kinds)).await;
            assert_eq!(answer.errno(), Some(Errno::EOPNOTSUPP), "{kinds:?}");
        }
        let mut unreadable = out_update(&[UpdateType::EXCLUDE]);
        unreadable.out_update_header.truncate(40);
        assert_eq!(other.call(unreadable).await.errno(), Some(Errno::EOPNOTSUPP));
        let answered = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&answered);
        let exclude = async move {
            let answer = other.call(out_update(&[UpdateType::EXCLUDE])).await;
            assert_eq!(answer.errno(), Some(Errno::EOPNOTSUPP));
            count.fetch_add(1, Ordering::Relaxed);
        };
        world.world().tasks.spawn("exclude", Box::pin(exclude));
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(answered.load(Ordering::Relaxed), 0, "the lock may hide what is lost");
        assert_eq!(one.cancel(&[lock_handle(&replayed)]).await.head.status, 0);
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(answered.load(Ordering::Relaxed), 1);
    });
}
