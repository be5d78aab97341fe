//! What one client has of a target at most.

use super::*;

#[test]
fn a_node_has_so_many_exports_and_another_node_as_many() {
    let world = TestWorld::new(40);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Exports, 3);
        let clients = [node.connect("1").await, node.connect("2").await, node.connect("3").await];
        for number in 0..100 {
            let more = node.client(&format!("more-{number}"));
            assert_eq!(more.connect().await.unwrap_err(), Errno::EBUSY);
        }
        assert_eq!(
            (node.target.exports().len(), node.target.budget().refused(Limit::Exports)),
            (3, 100)
        );
        // A reconnect is no new export, another node is another client, and a place that is left is free.
        clients[0].connect().await.unwrap();
        let elsewhere = node.client_at("elsewhere", Nid::tcp([10, 0, 0, 8].into()));
        elsewhere.connect().await.unwrap();
        clients[1].call(MdsDisconnect::default()).await;
        node.target.evict_client("3").await;
        for name in ["4", "5"] {
            node.connect(name).await;
        }
        assert_eq!(node.client("6").connect().await.unwrap_err(), Errno::EBUSY);
        assert!(sheen_rpc::Handler::has_client_at(&*node.target, Nid::tcp([10, 0, 0, 8].into())));
        node.target.evict_client("elsewhere").await;
        assert!(!sheen_rpc::Handler::has_client_at(&*node.target, Nid::tcp([10, 0, 0, 8].into())));
    });
}

#[test]
fn answers_are_kept_for_the_tags_that_were_agreed_on_alone() {
    let world = TestWorld::new(41);
    world.clone().run(async move {
        let (node, role) = start(&world, &manual_store()).await;
        let client = node.connect("one").await;
        let agreed = client.agreed().maxmodrpcs;
        assert_eq!(agreed, 8);
        for tag in 0..2_000 {
            let answer = client.call_with(setattr(tag)).await.unwrap();
            // One more than agreed is for a close.
            let expected = (tag > agreed + 1).then_some(Errno::EPROTO);
            assert_eq!(answer.errno(), expected, "tag {tag}");
        }
        assert_eq!(role.executed.load(Ordering::Relaxed), u32::from(agreed) + 2);
        assert_eq!(node.target.export_of(&Uuid::new("one")).unwrap().reply_records(), 10);
        // What was agreed on before counts for what is sent again.
        node.target.change_offer(|offer| offer.maxmodrpcs = 2);
        client.connect().await.unwrap();
        assert_eq!(client.agreed().maxmodrpcs, 2);
        assert_eq!(client.call_with(setattr(9)).await.unwrap().errno(), None);
    });
}

#[test]
fn a_client_with_too_many_locks_has_some_revoked_and_is_refused_more_and_another_is_not() {
    let world = TestWorld::new(42);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Locks, 1_000);
        let hostile = node.connect("hostile").await;
        let good = node.client_at("good", Nid::tcp([10, 0, 0, 8].into()));
        good.connect().await.unwrap();
        let mut refused = 0;
        for number in 1..=10_000 {
            let answer = hostile.call(lock(number)).await;
            refused += u64::from(answer.errno() == Some(Errno::EINPROGRESS));
        }
        let held = node.target.view().locks.granted.iter().sum::<u64>();
        assert_eq!(held, 10_000 - refused);
        assert_eq!(held, 1_000);
        assert_eq!(node.target.budget().refused(Limit::Locks), refused);
        let blocking = |request: &Request| matches!(request, Request::LdlmBlCallback(_));
        world.sleep(Duration::from_secs(1)).await;
        let revoked = hostile.callbacks().iter().filter(|it| blocking(it)).count();
        assert!(revoked >= 500, "{revoked} are revoked");
        for number in 20_001..20_300 {
            assert_eq!(good.call(lock(number)).await.errno(), None, "another client");
        }
        assert_eq!(good.callbacks().len(), 0);
        // It has not cancelled what was revoked.
        for _ in 0..6 {
            world.sleep(Duration::from_secs(10)).await;
            good.call(ObdPing::default()).await;
        }
        assert!(node.target.export_of(&Uuid::new("hostile")).is_none(), "it is evicted");
        assert_eq!(node.target.view().locks.granted.iter().sum::<u64>(), 299);
    });
}

#[test]
fn a_client_that_cancels_what_is_revoked_is_never_refused_a_lock() {
    let world = TestWorld::new(43);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Locks, 4_000);
        let client = node.connect("caches").await;
        let mut cancelled = 0;
        for number in 1..=12_000u64 {
            let mut request = inode_lock(LockMode::Pr, number);
            let fid = Fid::new(0x2_0000_0402, number as u32);
            request.dlm_req.desc.resource.name = ResourceName::of_fid(fid);
            assert_eq!(client.call(request).await.errno(), None, "lock {number}");
            if number % 100 == 0 {
                world.sleep(Duration::from_millis(300)).await;
                let revoked = client.callbacks().into_iter().filter_map(|request| match request {
                    Request::LdlmBlCallback(it) => Some(it.dlm_req.handles[0]),
                    _ => None,
                });
                let mine: Vec<_> = revoked.collect();
                cancelled += mine.len();
                let export = client.handle().0;
                let of =
                    |mine: LockHandle| node.target.namespace().find(export, mine).unwrap().handle;
                let handles: Vec<_> = mine.into_iter().map(of).collect();
                if !handles.is_empty() {
                    client.cancel(&handles).await;
                }
            }
        }
        assert!(cancelled > 8_000);
        assert_eq!(node.target.budget().refused(Limit::Locks), 0);
    });
}

/// A lock on an inode of its own.
fn lock(number: u64) -> LdlmEnqueue {
    let mut request = inode_lock(LockMode::Pr, number);
    let fid = Fid::new(0x2_0000_0402, number as u32);
    request.dlm_req.desc.resource.name = ResourceName::of_fid(fid);
    request
}

fn held(node: &TestTarget) -> u64 {
    node.target.view().locks.granted.iter().sum()
}

#[test]
fn a_client_that_says_of_each_request_that_it_was_sent_before_has_no_more_locks() {
    let world = TestWorld::new(44);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Locks, 1_000);
        let hostile = node.connect("hostile").await;
        let resent = |number| TestCall { flags: MsgFlags::RESENT, ..TestCall::new(lock(number)) };
        for number in 1..=5_000 {
            hostile.call_with(resent(number)).await.unwrap();
        }
        assert!((900..=1_256).contains(&held(&node)), "{} locks", held(&node));
        // What it did ask for before is answered as it was, though it has no room for more.
        let before = held(&node);
        assert_eq!(hostile.call_with(resent(7)).await.unwrap().errno(), None);
        assert_eq!(held(&node), before);
    });
}

#[test]
fn the_exports_of_a_node_share_its_limit_of_locks() {
    let world = TestWorld::new(45);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Locks, 1_000);
        let mut exports = Vec::new();
        for number in 0..50 {
            exports.push(node.connect(&format!("hostile-{number}")).await);
        }
        for number in 1..=10_000 {
            exports[number as usize % exports.len()].call(lock(number)).await;
        }
        assert_eq!(held(&node), 1_000);
        assert_eq!(exports[7].call(lock(20_000)).await.errno(), Some(Errno::EINPROGRESS));
        let first = node.target.namespace().dump(lock(1).dlm_req.desc.resource.name);
        exports[1].cancel(&[first[0].handle]).await;
        assert_eq!(exports[7].call(lock(20_000)).await.errno(), None, "there is room at once");
        // The oldest of all of them are revoked.
        world.sleep(Duration::from_secs(1)).await;
        let blocking = |request: &Request| matches!(request, Request::LdlmBlCallback(_));
        let revoked = exports.iter().filter(|it| it.callbacks().iter().any(blocking)).count();
        assert_eq!(revoked, exports.len());
        let good = node.client_at("good", Nid::tcp([10, 0, 0, 8].into()));
        good.connect().await.unwrap();
        for number in 20_001..20_500 {
            assert_eq!(good.call(lock(number)).await.errno(), None, "another node");
        }
    });
}

#[test]
fn a_client_moves_to_no_node_that_has_its_exports() {
    let world = TestWorld::new(46);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Exports, 2);
        let (full, free) = (Nid::tcp([10, 0, 0, 8].into()), Nid::tcp([10, 0, 0, 9].into()));
        for name in ["1", "2"] {
            node.client_at(name, full).connect().await.unwrap();
        }
        let mover = node.connect("mover").await;
        assert_eq!(mover.stolen(full).connect().await.unwrap_err(), Errno::EBUSY);
        assert_eq!(node.target.budget().refused(Limit::Exports), 1);
        // It stays where it was, and goes where there is room.
        assert_eq!(mover.call(ObdPing::default()).await.errno(), None);
        mover.stolen(free).connect().await.unwrap();
        assert_eq!(node.target.export_of(&Uuid::new("mover")).unwrap().nid(), free);
        node.connect("3").await;
        node.connect("4").await;
        assert_eq!(node.client("5").connect().await.unwrap_err(), Errno::EBUSY);
    });
}

#[test]
fn a_client_that_moves_keeps_what_it_has_and_gets_no_more_than_one_node_may_have() {
    let world = TestWorld::new(47);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Locks, 1_000);
        let there = Nid::tcp([10, 0, 0, 8].into());
        let (mover, resident) = (node.connect("mover").await, node.client_at("resident", there));
        resident.connect().await.unwrap();
        for number in 1..=600 {
            assert_eq!(mover.call(lock(number)).await.errno(), None);
            assert_eq!(resident.call(lock(1_000 + number)).await.errno(), None);
        }
        let mover = mover.stolen(there);
        mover.connect().await.unwrap();
        assert_eq!(held(&node), 1_200);
        assert_eq!(resident.call(lock(5_000)).await.errno(), Some(Errno::EINPROGRESS));
        assert_eq!(mover.call(lock(5_000)).await.errno(), Some(Errno::EINPROGRESS));
        let of = |number: u64| -> Vec<LockHandle> {
            let locks = node.target.namespace().dump(lock(number).dlm_req.desc.resource.name);
            locks.iter().map(|it| it.handle).collect()
        };
        mover.cancel(&(1..=200).flat_map(of).collect::<Vec<_>>()).await;
        assert_eq!(resident.call(lock(5_000)).await.errno(), Some(Errno::EINPROGRESS));
        resident.cancel(&of(1_001)).await;
        assert_eq!(resident.call(lock(5_000)).await.errno(), None);
        assert_eq!(mover.call(lock(5_001)).await.errno(), Some(Errno::EINPROGRESS));
        // Where it was it has nothing any more.
        let other = node.connect("other").await;
        for number in 10_000..10_900 {
            assert_eq!(other.call(lock(number)).await.errno(), None);
        }
    });
}

#[test]
fn limits_are_lowered_and_raised_under_clients_that_have_more() {
    let world = TestWorld::new(48);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let clients = [node.connect("1").await, node.connect("2").await, node.connect("3").await];
        for number in 1..=500 {
            assert_eq!(clients[0].call(lock(number)).await.errno(), None);
        }
        node.target.budget().set(Limit::Locks, 100);
        node.target.budget().set(Limit::Exports, 1);
        assert_eq!(clients[1].call(lock(1_000)).await.errno(), Some(Errno::EINPROGRESS));
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(clients[0].callbacks().len(), 500, "it has locks of all revoked");
        node.target.budget().set(Limit::Locks, 1_000);
        assert_eq!(clients[1].call(lock(1_000)).await.errno(), None);
        // Those that are there stay, and no other comes.
        clients[2].connect().await.unwrap();
        assert_eq!(clients[2].call(ObdPing::default()).await.errno(), None);
        assert_eq!(node.client("4").connect().await.unwrap_err(), Errno::EBUSY);
        store.commit().unwrap();
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        node.target.budget().set(Limit::Exports, 1);
        let clients = clients.each_ref().map(|client| client.follow(&node));
        for client in &clients {
            client.connect().await.unwrap();
        }
        for client in clients {
            let finish = async move { drop(finish_recovery(&client).await) };
            world.world().tasks.spawn("finish", Box::pin(finish));
        }
        world.settle().await;
        assert_eq!(node.target.view().recovery.status, RecoveryStatus::Complete);
        assert_eq!(node.client("4").connect().await.unwrap_err(), Errno::EBUSY);
    });
}

#[test]
fn what_is_in_the_servers_own_process_is_not_limited() {
    let world = TestWorld::new(49);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Locks, 100);
        node.target.budget().set(Limit::Exports, 1);
        let servers = [node.connect_server("1_UUID").await, node.connect_server("2_UUID").await];
        for number in 1..=300 {
            let server = &servers[number as usize % 2];
            assert_eq!(server.call(lock(number)).await.errno(), None);
        }
    });
}

#[test]
fn exports_of_a_claimed_nid_use_up_the_budget_of_the_address_that_they_come_from() {
    let world = TestWorld::new(50);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Exports, 3);
        node.target.budget().set(Limit::Locks, 100);
        let (owner, address) = (Nid::tcp([10, 0, 0, 8].into()), Nid::tcp([10, 0, 0, 66].into()));
        let liar = |name: &str, nid| {
            let liar = node.client_at(name, nid);
            liar.claim_from(address);
            liar
        };
        let liars = [liar("1", owner), liar("2", owner), liar("3", Nid::tcp([10, 0, 0, 9].into()))];
        for liar in &liars {
            liar.connect().await.unwrap();
        }
        assert_eq!(liar("4", owner).connect().await.unwrap_err(), Errno::EBUSY);
        for number in 1..=150 {
            liars[number as usize % 3].call(lock(number)).await;
        }
        assert_eq!(held(&node), 100, "of all the NIDs that it claims");
        let owners = ["a", "b", "c"].map(|name| node.client_at(name, owner));
        for client in &owners {
            client.connect().await.unwrap();
            for number in 0..30 {
                let of = lock(1_000 + u64::from(client.handle().0 as u16) * 100 + number);
                assert_eq!(client.call(of).await.errno(), None);
            }
        }
        // A client whose word is all that there is goes on with what it has where it is shown.
        let shown = liars[0].stolen(address);
        shown.set_proven(true);
        shown.connect().await.unwrap();
        assert_eq!(shown.call(lock(5_000)).await.errno(), Some(Errno::EINPROGRESS));
    });
}

#[test]
fn a_client_replays_no_more_locks_than_it_can_have_had() {
    let world = TestWorld::new(51);
    world.clone().run(async move {
        let store = manual_store();
        let (node, _) = start(&world, &store).await;
        let hostile = node.connect("hostile").await;
        let honest = node.client_at("honest", Nid::tcp([10, 0, 0, 8].into()));
        honest.connect().await.unwrap();
        store.commit().unwrap();
        let (node, _) = start(&world, &Arc::new(store.crash())).await;
        node.target.budget().set(Limit::Locks, 100);
        node.target.budget().set_of_replays(Limit::Locks, 200);
        let (hostile, honest) = (hostile.follow(&node), honest.follow(&node));
        hostile.connect().await.unwrap();
        honest.connect().await.unwrap();
        let replay = |number| {
            let mut replay = lock(number);
            replay.dlm_req.flags = WireFlags::REPLAY | WireFlags::BLOCK_GRANTED;
            replay.dlm_req.desc.granted_mode = LockMode::Pr.into();
            flags(TestCall::new(replay), MsgFlags::REQ_REPLAY_DONE)
        };
        let client = honest.clone();
        let replays = async move {
            for number in 1..=150 {
                let again = client.call_with(replay(10_000 + number)).await.unwrap();
                assert_eq!(again.errno(), None, "lock {number}");
            }
            finish_recovery(&client).await;
        };
        world.world().tasks.spawn("replays", Box::pin(replays));
        for number in 1..=200 {
            assert_eq!(hostile.call_with(replay(number)).await.unwrap().errno(), None);
        }
        let beyond = hostile.call_with(replay(201)).await.unwrap();
        assert_eq!(beyond.errno(), Some(Errno::ENODEV));
        world.settle().await;
        assert_eq!(hostile.call(ObdPing::default()).await.errno(), Some(Errno::ENOTCONN));
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(node.target.view().recovery.status, RecoveryStatus::Complete);
        assert_eq!((held(&node), node.target.budget().refused(Limit::Locks)), (150, 1));
        assert_eq!(honest.call(lock(1)).await.errno(), Some(Errno::EINPROGRESS), "it has more");
    });
}

#[test]
fn a_client_has_so_many_callbacks_unanswered_and_its_other_exports_get_theirs() {
    let world = TestWorld::new(52);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Callbacks, 60);
        let (silent, beside) = (node.connect("silent").await, node.connect("beside").await);
        let wants = node.client_at("wants", Nid::tcp([10, 0, 0, 8].into()));
        wants.connect().await.unwrap();
        silent.set_silent(true);
        for number in 0..200 {
            silent.call(lock(number)).await;
        }
        beside.call(lock(1_000)).await;
        let want = |number| {
            let mut request = lock(number);
            request.dlm_req.desc.req_mode = LockMode::Ex.into();
            wants.call(request)
        };
        for number in 0..200 {
            want(number).await;
        }
        want(1_000).await;
        world.settle().await;
        assert_eq!(silent.callbacks().len(), 30, "its share");
        assert_eq!(node.target.budget().refused(Limit::Callbacks), 170);
        assert_eq!(beside.callbacks().len(), 1);
        silent.set_silent(false);
        world.sleep(Duration::from_secs(2)).await;
        let resources = silent.callbacks().into_iter().map(|request| match request {
            Request::LdlmBlCallback(it) => it.dlm_req.desc.resource.name,
            other => panic!("{other:?}"),
        });
        let expected = (30..200).map(|number| lock(number).dlm_req.desc.resource.name);
        assert!(resources.eq(expected), "each once, in their order");
    });
}

#[test]
fn glimpses_wait_for_one_that_answers_none_and_end_when_it_is_evicted() {
    let world = TestWorld::new(53);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Callbacks, 16);
        let silent = node.connect("silent").await;
        silent.set_silent(true);
        let name = ResourceName([7, 0, 0, 0]);
        let mut request = lock(1);
        request.dlm_req.desc.resource =
            LdlmResourceDesc { kind: LockType::EXTENT, padding: 0, name };
        request.dlm_req.desc.req_mode = LockMode::Pw.into();
        request.dlm_req.desc.policy = WirePolicy::of_extent(0, 4095);
        assert_eq!(silent.call(request).await.errno(), None);
        let ended = Arc::new(AtomicU32::new(0));
        for _ in 0..40 {
            let (target, ended) = (Arc::clone(&node.target), Arc::clone(&ended));
            let glimpse = async move {
                let answers = target.glimpse(name).await;
                let is_gone = matches!(&answers[..], [(_, Err(Errno::ESTALE))]);
                ended.fetch_add(u32::from(is_gone), Ordering::Relaxed);
            };
            world.world().tasks.spawn("glimpse", Box::pin(glimpse));
        }
        world.settle().await;
        assert_eq!((silent.callbacks().len(), ended.load(Ordering::Relaxed)), (16, 0));
        node.target.evict_client("silent").await;
        world.settle().await;
        assert_eq!(ended.load(Ordering::Relaxed), 24, "those that waited for their turn");
        silent.set_silent(false);
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(silent.callbacks().len(), 0, "nothing more is sent to it");
    });
}

fn flock(mode: LockMode, range: (u64, u64), client_handle: u64) -> LdlmEnqueue {
    flock_of(7, mode, range, client_handle)
}

fn flock_of(
    owner: u64,
    mode: LockMode,
    (start, end): (u64, u64),
    client_handle: u64,
) -> LdlmEnqueue {
    let mut request = inode_lock(mode, client_handle);
    request.dlm_req.desc.resource.kind = LockType::FLOCK;
    let policy = sheen_wire::ldlm::FlockPolicy { start, end, owner, ..Default::default() };
    request.dlm_req.desc.policy = WirePolicy::flock(&policy);
    request
}

/// One flock of all bytes and unlocks of every other byte: each made one lock more, and none was counted.
#[test]
fn unlocks_that_cut_flocks_in_two_are_counted_and_no_other_unlock_is_refused() {
    let world = TestWorld::new(54);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Locks, 1_000);
        let client = node.connect("one").await;
        let unlock = |start, end| client.call(flock(LockMode::Nl, (start, end), 0));
        assert_eq!(client.call(flock(LockMode::Pw, (0, u64::MAX), 1)).await.errno(), None);
        let mut refused = 0;
        for number in 0..600 {
            match unlock(number * 2 + 1, number * 2 + 1).await.errno() {
                None => assert_eq!(refused, 0, "unlock {number}"),
                Some(errno) => {
                    assert_eq!(errno, Errno::ENOLCK);
                    refused += 1;
                }
            }
        }
        let held = node.target.namespace().gauges().granted.iter().sum::<u64>();
        assert_eq!((held, refused), (250, 351));
        // What is cut is cut by a lock of another mode as well.
        let read = client.call(flock(LockMode::Pr, (5_000, 5_001), 2)).await;
        assert_eq!(read.errno(), Some(Errno::ENOLCK));
        assert_eq!(unlock(5_000, u64::MAX).await.errno(), None, "shorter");
        assert_eq!(unlock(0, 0).await.errno(), None, "gone");
        assert_eq!(unlock(700, 701).await.errno(), None, "room for one");
        assert_eq!(unlock(0, u64::MAX).await.errno(), None, "all of them");
        assert_eq!(node.target.namespace().gauges().granted.iter().sum::<u64>(), 0);
    });
}

#[test]
fn flocks_are_counted_from_when_they_begin_to_wait() {
    let world = TestWorld::new(56);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Locks, 400);
        let client = node.connect("one").await;
        let other = node.client_at("other", Nid::tcp([10, 0, 0, 8].into()));
        other.connect().await.unwrap();
        let answer = other.call(flock_of(1, LockMode::Pr, (0, u64::MAX), 1)).await;
        assert_eq!(answer.errno(), None);
        for number in 0..60 {
            let wanted = flock_of(10 + number, LockMode::Pw, (number, number), 10 + number);
            let expected = (number >= 50).then_some(Errno::ENOLCK);
            assert_eq!(client.call(wanted).await.errno(), expected, "flock {number}");
        }
    });
}

/// Each cut another flock in two when it was granted, so that a client came to twice as many.
#[test]
fn flocks_that_wait_count_for_what_they_will_be() {
    let world = TestWorld::new(55);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Locks, 400);
        let client = node.connect("one").await;
        let other = node.client_at("other", Nid::tcp([10, 0, 0, 8].into()));
        other.connect().await.unwrap();
        let all = (0, u64::MAX);
        assert_eq!(other.call(flock_of(1, LockMode::Pr, all, 1)).await.errno(), None);
        for owner in 0..5 {
            let range = (owner * 1_000, owner * 1_000 + 999);
            let answer = client.call(flock_of(owner + 10, LockMode::Pr, range, owner + 1)).await;
            assert_eq!(answer.errno(), None);
        }
        let mut refused = 0;
        for number in 0..100 {
            let at = number % 5 * 1_000 + 10 + 2 * number;
            let wanted = flock_of(number % 5 + 10, LockMode::Pw, (at, at), 100 + number);
            match client.call(wanted).await.errno() {
                None => assert_eq!(refused, 0, "flock {number}"),
                Some(errno) => {
                    assert_eq!(errno, Errno::ENOLCK);
                    refused += 1;
                }
            }
        }
        // Of a hundred: five, and two for each that waits.
        assert_eq!(refused, 52);
        let namespace = node.target.namespace();
        assert_eq!(namespace.flocks_of(client.handle().0), 101);
        assert_eq!(other.call(flock_of(1, LockMode::Nl, all, 2)).await.errno(), None);
        world.settle().await;
        assert_eq!(namespace.gauges().granted.iter().sum::<u64>(), 101, "all are granted");
        assert_eq!(namespace.flocks_of(client.handle().0), 101, "and are no more");
    });
}

/// A program of one user took all locks of its mount: every other program there waited, and what the program
/// released was refused as one lock more.
#[test]
fn flocks_are_a_part_of_a_clients_locks_and_can_be_unlocked() {
    let world = TestWorld::new(44);
    world.clone().run(async move {
        let (node, _) = start(&world, &manual_store()).await;
        node.target.budget().set(Limit::Locks, 1_000);
        let client = node.connect("one").await;
        for number in 0..300 {
            let answer =
                client.call(flock(LockMode::Pw, (number * 2, number * 2), number + 1)).await;
            let expected = (number >= 250).then_some(Errno::ENOLCK);
            assert_eq!(answer.errno(), expected, "flock {number}");
        }
        for number in 1_000..1_600 {
            assert_eq!(client.call(lock(number)).await.errno(), None, "of other kinds");
        }
        let more = (0..2_000).map(|number| client.call(lock(3_000 + number)));
        for answer in more {
            _ = answer.await;
        }
        assert!(node.target.budget().refused(Limit::Locks) > 100, "it has all that it may have");
        let unlock = client.call(flock(LockMode::Nl, (0, u64::MAX), 900)).await;
        assert_eq!(unlock.errno(), None);
        assert_eq!(client.call(flock(LockMode::Pw, (0, 0), 901)).await.errno(), None);
    });
}
