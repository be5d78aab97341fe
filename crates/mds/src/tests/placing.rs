//! Objects: pools, layouts, defaults, destruction.

use std::time::Duration;

use bytes::Bytes;
use sheen_io::Tasks;
use sheen_layout::plan::{Plan, Striping};
use sheen_rpc::ImportState;
use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid};
use sheen_wire::lov::{LovEa, LovMd};
use sheen_wire::md::{AttrValid, MdsOpenFlags, RecSetattr};

use super::fake_ost::FakeOst;
use super::harness::{Client, REGULAR, Server, run};

fn plain(layout: &Bytes) -> LovMd {
    match LovEa::decode(layout) {
        Ok(LovEa::Plain(plain)) => plain,
        other => panic!("{other:?}"),
    }
}

async fn osts_of(client: &Client, parent: Fid, name: &str) -> Vec<u32> {
    let opened = client.create(parent, name).await.unwrap();
    client.close(&opened).await.unwrap();
    plain(&opened.layout).stripes.iter().map(|stripe| stripe.ost_idx).collect()
}

#[test]
fn files_go_round_robin_over_usable_osts() {
    let world = TestWorld::new(60);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let mut counts = [0; 4];
            for number in 0..40 {
                let osts = osts_of(&client, Fid::ROOT, &format!("f{number}")).await;
                counts[osts[0] as usize] += 1;
            }
            assert_eq!(counts, [10; 4]);
            server.osts[2].state.lock().import = ImportState::Disconn;
            server.osts[3].state.lock().free_blocks = 0;
            client.wait(&inner, 20).await;
            for number in 0..10 {
                let osts = osts_of(&client, Fid::ROOT, &format!("g{number}")).await;
                assert!(osts[0] < 2, "{osts:?}");
            }
            for ost in &server.osts {
                ost.state.lock().import = ImportState::Disconn;
            }
            let failed = client.create(Fid::ROOT, "none").await.map(|_| ());
            assert_eq!(failed, Err(Errno::EINPROGRESS), "they may come back");
            server.check();
        },
        &world,
    );
}

#[test]
fn an_ost_that_may_not_be_used_gets_no_files_and_is_asked_for_nothing() {
    let world = TestWorld::new(66);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 3).await;
            let client = server.client("c").await;
            client.create(Fid::ROOT, "first").await.unwrap();
            assert_eq!(server.mdt.set_ost_active(7, false), Err(Errno::ENODEV));
            server.mdt.set_ost_active(1, false).unwrap();
            for number in 0..12 {
                let osts = osts_of(&client, Fid::ROOT, &format!("f{number}")).await;
                assert_ne!(osts[0], 1);
            }
            // A file that names it waits for nothing.
            for ost in [0, 2] {
                server.mdt.set_ost_active(ost, false).unwrap();
            }
            let before = inner.world().clock.now();
            let failed = client.create(Fid::ROOT, "none").await.map(|_| ());
            assert_eq!(failed, Err(Errno::ENOSPC));
            assert!(inner.world().clock.now().since(before) < Duration::from_secs(1));
            for ost in 0..3 {
                server.mdt.set_ost_active(ost, true).unwrap();
            }
            client.wait(&inner, 5).await;
            let mut osts = std::collections::BTreeSet::new();
            for number in 0..12 {
                osts.extend(osts_of(&client, Fid::ROOT, &format!("g{number}")).await);
            }
            assert_eq!(osts.len(), 3);
            server.check();
        },
        &world,
    );
}

/// Lustre's way to empty an OST (`max_create_count`, sanity 311): unlike one that is not active it goes on destroying.
#[test]
fn an_ost_of_which_no_objects_may_be_made_gets_no_files_and_loses_those_that_go() {
    let world = TestWorld::new(68);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            let mut mine = Vec::new();
            for number in 0..12 {
                let name = format!("f{number}");
                if osts_of(&client, Fid::ROOT, &name).await[0] == 0 {
                    mine.push(name);
                }
            }
            let set = |count| server.mdt.set_ost_max_create_count(0, count);
            assert_eq!(set(0), Ok(()));
            for number in 0..12 {
                assert_eq!(osts_of(&client, Fid::ROOT, &format!("g{number}")).await, [1]);
            }
            let objects = || server.osts[0].state.lock().objects.len();
            let made = objects();
            for name in &mine {
                client.unlink(Fid::ROOT, name).await.unwrap();
            }
            client.wait(&inner, 5).await;
            assert_eq!(objects(), made - mine.len());
            assert_eq!(
                [set(31), set(20_001), set(20_000)],
                [Err(Errno::ERANGE), Err(Errno::ERANGE), Ok(())]
            );
            client.wait(&inner, 5).await;
            let mut osts = std::collections::BTreeSet::new();
            for number in 0..12 {
                osts.extend(osts_of(&client, Fid::ROOT, &format!("h{number}")).await);
            }
            assert_eq!(osts.len(), 2);
            server.check();
        },
        &world,
    );
}

/// A pool of a small batch seems low by a larger one's measure: that alone must not double what was set.
#[test]
fn a_larger_batch_stays_as_operators_set_it_when_it_is_filled() {
    let world = TestWorld::new(70);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            server.mdt.set_ost_create_count(0, 64).unwrap();
            let view = || server.mdt.osts().remove(0);
            for number in 0.. {
                client.create(Fid::ROOT, &format!("f{number}")).await.unwrap();
                if view().last_created - view().last_used == 32 {
                    break;
                }
                assert!(number < 200, "{:?}", view());
            }
            server.mdt.set_ost_create_count(0, 128).unwrap();
            client.wait(&inner, 5).await;
            let filled = view();
            assert_eq!(
                (filled.create_count, filled.last_created - filled.last_used),
                (128, 128 + 32)
            );
            server.check();
        },
        &world,
    );
}

/// An OST that comes back has no objects ahead, which says nothing of how many are needed.
#[test]
fn a_batch_stays_as_operators_set_it_when_a_new_pool_is_filled() {
    let world = TestWorld::new(71);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            server.mdt.set_ost_active(0, false).unwrap();
            server.mdt.set_ost_active(0, true).unwrap();
            server.mdt.set_ost_create_count(0, 64).unwrap();
            client.wait(&inner, 5).await;
            let view = server.mdt.osts().remove(0);
            assert_eq!(view.create_count, 64, "{view:?}");
            server.check();
        },
        &world,
    );
}

#[test]
fn objects_are_made_in_batches_of_the_size_that_operators_set() {
    let world = TestWorld::new(69);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            client.create(Fid::ROOT, "first").await.unwrap();
            let count = || server.mdt.osts()[0].create_count;
            let set = |wanted| server.mdt.set_ost_create_count(0, wanted).map(|()| count());
            let (fewest, most) = (set(32), set(1 << 20));
            assert_eq!((set(31), fewest, most), (Err(Errno::ERANGE), Ok(32), Ok(2048)));
            assert_eq!((set(100), set(300), set(1000)), (Ok(64), Ok(256), Ok(768)));
            client.wait(&inner, 5).await;
            let view = server.mdt.osts().remove(0);
            let ahead = view.last_created - view.last_used;
            assert!(ahead >= 768 / 2, "{ahead}");
            server.mdt.set_ost_max_create_count(0, 64).unwrap();
            assert_eq!(count(), 64, "half of it from the next batch on");
            server.check();
        },
        &world,
    );
}

/// It is put back from an older copy: what the MDT has of it ahead is not there any more.
#[test]
fn an_ost_that_came_back_is_asked_what_it_has_before_files_get_objects_of_it() {
    let world = TestWorld::new(67);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            client.create(Fid::ROOT, "before").await.unwrap();
            server.check();
            {
                let mut ost = server.osts[0].state.lock();
                ost.objects.clear();
                (ost.last, ost.connection) = (0, 2);
            }
            let missing = || {
                let objects = crate::check(&*server.store).unwrap().objects;
                objects.iter().filter(|it| !server.osts[0].has(&it.object)).count()
            };
            assert_eq!(missing(), 1);
            for number in 0..10 {
                client.create(Fid::ROOT, &format!("after-{number}")).await.unwrap();
                assert_eq!(missing(), 1, "{number}");
            }
        },
        &world,
    );
}

#[test]
fn free_space_decides_as_far_as_operators_let_it() {
    let world = TestWorld::new(69);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            server.osts[1].state.lock().free_blocks = 1 << 24;
            client.wait(&inner, 20).await;
            let mut names = 0..;
            let mut placed = async |threshold: u32, free: u32| {
                server.mdt.change_layout_settings(|settings| {
                    settings.set_qos_threshold_rr(threshold).unwrap();
                    settings.set_qos_prio_free(free).unwrap();
                });
                let mut counts = [0; 2];
                for number in names.by_ref().take(40) {
                    let osts = osts_of(&client, Fid::ROOT, &format!("q{number}")).await;
                    counts[osts[0] as usize] += 1;
                }
                counts
            };
            // The second has a sixty-fourth of the space.
            assert!(placed(17, 100).await[1] < 8);
            assert_eq!(placed(100, 100).await, [20; 2], "in turn, whatever is free");
            server.check();
        },
        &world,
    );
}

/// A create was refused for as long as the MDT believed what the OST had said before, and removals waited for that, too.
#[test]
fn a_full_ost_is_used_as_soon_as_files_are_removed() {
    let world = TestWorld::new(73);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let set = server.mdt.change_layout_settings(|settings| settings.set_qos_maxage(3600));
            set.unwrap();
            for name in ["first", "second"] {
                osts_of(&client, Fid::ROOT, name).await;
            }
            {
                let mut ost = server.osts[0].state.lock();
                (ost.free_blocks, ost.blocks_freed) = (0, 1 << 20);
            }
            client.wait(&inner, 3600).await;
            let taken = |since| inner.world().clock.now().since(since);
            let now = || inner.world().clock.now();
            let before = now();
            let refused = client.create(Fid::ROOT, "none").await.map(|_| ());
            assert_eq!(refused, Err(Errno::ENOSPC));
            assert!(taken(before) < Duration::from_secs(1), "nothing is being removed");
            client.unlink(Fid::ROOT, "first").await.unwrap();
            let before = now();
            osts_of(&client, Fid::ROOT, "third").await;
            assert!(taken(before) < Duration::from_secs(1), "{:?}", taken(before));
            // Where the MDT does not know that it is full, its objects go soon, too.
            let destroys = || server.osts[0].state.lock().destroys;
            let before = destroys();
            client.unlink(Fid::ROOT, "second").await.unwrap();
            inner.sleep(Duration::from_secs(2)).await;
            assert_eq!(destroys(), before + 1);
            // Removals that bring nothing delay a create, and end.
            {
                let mut ost = server.osts[0].state.lock();
                (ost.free_blocks, ost.blocks_freed) = (0, 0);
            }
            client.wait(&inner, 3600).await;
            client.unlink(Fid::ROOT, "third").await.unwrap();
            let before = now();
            let refused = client.create(Fid::ROOT, "none").await.map(|_| ());
            assert_eq!(refused, Err(Errno::ENOSPC));
            assert!(taken(before) <= Duration::from_secs(6), "{:?}", taken(before));
            server.check();
        },
        &world,
    );
}

#[test]
fn what_an_ost_said_of_its_space_is_believed_for_as_long_as_operators_say() {
    let world = TestWorld::new(70);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            let set = |seconds| {
                server.mdt.change_layout_settings(|settings| settings.set_qos_maxage(seconds))
            };
            assert_eq!(set(0), Err(Errno::EINVAL));
            set(60).unwrap();
            client.wait(&inner, 61).await;
            server.osts[1].state.lock().free_blocks = 0;
            let mut names = 0..;
            let mut on_second = async || {
                let mut files = 0;
                for number in names.by_ref().take(10) {
                    files += osts_of(&client, Fid::ROOT, &format!("a{number}")).await[0];
                }
                files
            };
            client.wait(&inner, 20).await;
            assert_eq!(on_second().await, 5, "in turn");
            client.wait(&inner, 60).await;
            assert_eq!(on_second().await, 0, "it is known to be full");
            server.check();
        },
        &world,
    );
}

#[test]
fn a_file_that_was_extended_before_it_had_objects_keeps_its_size_with_them() {
    let world = TestWorld::new(71);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            server.mdt.change_layout_settings(|settings| {
                settings.set_stripecount(2).unwrap();
                settings.set_stripesize(1 << 20).unwrap();
            });
            let fid = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            let size = |record: &mut RecSetattr| record.size = (1 << 20) + 1000;
            client.setattr(fid, AttrValid::SIZE, size).await.unwrap();
            let opened = client.open_fid(fid, MdsOpenFlags::WRITE).await.unwrap();
            let second = plain(&opened.layout).stripes[1].clone();
            let shown: Vec<_> =
                server.osts.iter().map(|ost| ost.state.lock().sizes.clone()).collect();
            let mut expected = vec![Vec::new(); 2];
            expected[second.ost_idx as usize] = vec![(second.oi, 1000)];
            assert_eq!(shown, expected);
            // One that is empty asks nothing of an OST.
            client.create(Fid::ROOT, "empty").await.unwrap();
            assert!(server.osts.iter().all(|ost| ost.state.lock().sizes.len() <= 1));
            server.check();
        },
        &world,
    );
}

#[test]
fn directories_pass_their_layout_on() {
    let world = TestWorld::new(61);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
            let requested = Striping {
                stripe_count: 2,
                stripe_size: 1 << 20,
                first: Some(1),
                ..Striping::default()
            };
            let value = Plan::Plain(requested).encode();
            client.setxattr(directory, "lustre.lov", Some(&value), 0).await.unwrap();
            let sub = client.mkdir(directory, "sub").await.unwrap();
            assert_eq!(osts_of(&client, sub, "f").await, [1, 2]);
            assert_eq!(client.getxattr(sub, "lustre.lov").await.unwrap(), value);
            let all = Striping { stripe_count: u16::MAX, ..Striping::default() };
            client.setxattr(sub, "lustre.lov", Some(&Plan::Plain(all).encode()), 0).await.unwrap();
            assert_eq!(osts_of(&client, sub, "g").await.len(), 4);
            client.setxattr(sub, "lustre.lov", None, 0).await.unwrap();
            assert_eq!(osts_of(&client, sub, "h").await.len(), 1);
            server.check();
        },
        &world,
    );
}

#[test]
fn a_layout_is_chosen_for_an_empty_file() {
    let world = TestWorld::new(62);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 4).await;
            let client = server.client("c").await;
            let flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE | MdsOpenFlags::DELAY_CREATE;
            let opened = client.open(Fid::ROOT, "f", flags).await.unwrap();
            assert!(opened.layout.is_empty());
            let fid = opened.body.fid1;
            let list = Striping { osts: vec![3, 0], stripe_count: 2, ..Striping::default() };
            let value = Plan::Plain(list).encode();
            client.setxattr(fid, "lustre.lov", Some(&value), 0).await.unwrap();
            let layout = plain(&client.getxattr(fid, "trusted.lov").await.unwrap());
            let osts: Vec<u32> = layout.stripes.iter().map(|stripe| stripe.ost_idx).collect();
            assert_eq!(osts, [3, 0]);
            let again = client.setxattr(fid, "lustre.lov", Some(&value), 0).await;
            assert_eq!(again, Err(Errno::EEXIST));
            let late = client.make(Fid::ROOT, "late", REGULAR | 0o644).await.unwrap();
            let opened = client.open(Fid::ROOT, "late", MdsOpenFlags::WRITE).await.unwrap();
            assert_eq!((opened.body.fid1, opened.lock), (late, None));
            assert!(opened.disposition.contains(sheen_wire::ldlm::Disposition::OPEN_STRIPE));
            assert_eq!(plain(&opened.layout).stripes.len(), 1);
            let wrong = Striping { first: Some(9), ..Striping::default() };
            let file = client.make(Fid::ROOT, "wrong", REGULAR | 0o644).await.unwrap();
            let refused =
                client.setxattr(file, "lustre.lov", Some(&Plan::Plain(wrong).encode()), 0).await;
            assert_eq!(refused, Err(Errno::EINVAL));
            server.check();
        },
        &world,
    );
}

#[test]
fn pools_are_filled_ahead_and_dead_objects_destroyed_in_runs() {
    let world = TestWorld::new(63);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            for number in 0..300 {
                osts_of(&client, Fid::ROOT, &format!("f{number}")).await;
            }
            assert!(server.osts[0].state.lock().creates < 20, "not one RPC per file");
            for number in 0..300 {
                client.unlink(Fid::ROOT, &format!("f{number}")).await.unwrap();
            }
            client.wait(&inner, 20).await;
            let report = server.check();
            assert_eq!((report.objects.len(), report.dying.len()), (0, 0));
            let state = server.osts[0].state.lock();
            assert!(state.destroys < 60, "{} requests", state.destroys);
            assert!(state.objects.iter().all(|(_, id)| *id > 301 || *id == 1), "all are gone");
        },
        &world,
    );
}

#[test]
fn objects_learn_their_new_owner() {
    let world = TestWorld::new(64);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            let opened = client.create(Fid::ROOT, "f").await.unwrap();
            client.close(&opened).await.unwrap();
            let owner = AttrValid::UID | AttrValid::GID;
            let fill = |record: &mut sheen_wire::md::RecSetattr| {
                (record.uid, record.gid) = (500, 600);
            };
            let body = client.setattr(opened.body.fid1, owner, fill).await.unwrap();
            assert_eq!((body.uid, body.gid), (500, 600));
            client.wait(&inner, 20).await;
            let ost = plain(&opened.layout).stripes[0].ost_idx as usize;
            let owners = server.osts[ost].state.lock().owners.clone();
            assert_eq!(owners, [(plain(&opened.layout).stripes[0].oi, 500, 600)]);
        },
        &world,
    );
}

#[test]
fn a_layout_comes_under_its_lock() {
    use sheen_types::{InodeBits, LockMode};
    use sheen_wire::ldlm::{Disposition, IntentOp, LdlmIntent};
    use sheen_wire::md::{LayoutIntent, LayoutIntentOp};
    use sheen_wire::messages::{LdlmIntentLayout, Reply};
    let world = TestWorld::new(65);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            for (op, expected) in [(LayoutIntentOp::ACCESS, 0), (LayoutIntentOp::WRITE, 1)] {
                let request = LdlmIntentLayout {
                    dlm_req: client.dlm(file, LockMode::Cr, InodeBits::LAYOUT),
                    ldlm_intent: LdlmIntent { opc: IntentOp::LAYOUT },
                    layout_intent: LayoutIntent { op, end: u64::MAX, ..Default::default() },
                    ..LdlmIntentLayout::default()
                };
                let mine = request.dlm_req.handles[0];
                let answer = client.inner.call(request).await;
                let Some(Reply::LdlmIntentLayout(reply)) = answer.reply else { panic!() };
                let lock = reply.dlm_rep.unwrap();
                client.keep(mine, lock.handle);
                assert_eq!((answer.head.status, lock.policy_res1), (0, Disposition::IT_EXECD));
                assert_eq!(lock.flags.0, 0x1000, "as captured");
                assert_eq!(lock.desc.granted_mode.mode(), Some(LockMode::Cr));
                let stripes = match reply.dlm_lvb.is_empty() {
                    true => 0,
                    false => plain(&reply.dlm_lvb).stripes.len(),
                };
                assert_eq!(stripes, expected);
            }
            server.check();
        },
        &world,
    );
}

#[test]
fn a_create_waits_for_the_osts_of_an_mdt_that_has_just_started() {
    let world = TestWorld::new(67);
    let inner = world.clone();
    run(
        async move {
            let mut server = Server::start(&inner, 0).await;
            let client = server.client("c").await;
            server.osts.push(FakeOst::new());
            let (mdt, ost, later) = (server.mdt.clone(), server.osts[0].clone(), inner.clone());
            let coming = async move {
                later.sleep(Duration::from_secs(3)).await;
                mdt.add_ost(0, ost);
            };
            inner.spawn("an OST", Box::pin(coming));
            assert_eq!(osts_of(&client, Fid::ROOT, "early").await, [0]);
            server.check();
        },
        &world,
    );
}

#[test]
fn a_create_waits_for_osts_that_recover_and_for_one_that_was_disconnected() {
    let cases = [
        (ImportState::ReplayWait, false, 90, None),
        (ImportState::ReplayWait, false, 90, Some(1)),
        (ImportState::Disconn, true, 90, None),
        (ImportState::Disconn, false, 10, None),
    ];
    for (import, is_refused_in_recovery, seconds, listed) in cases {
        let world = TestWorld::new(59);
        let inner = world.clone();
        run(
            async move {
                let server = Server::start(&inner, 2).await;
                let client = server.client("c").await;
                let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
                let osts = listed.into_iter().collect();
                let requested =
                    Plan::Plain(Striping { osts, stripe_count: 1, ..Striping::default() });
                if listed.is_some() {
                    client
                        .setxattr(directory, "lustre.lov", Some(&requested.encode()), 0)
                        .await
                        .unwrap();
                }
                for ost in &server.osts {
                    let mut state = ost.state.lock();
                    (state.import, state.is_refused_in_recovery) = (import, is_refused_in_recovery);
                }
                let (later, back) = (inner.clone(), server.osts[1].clone());
                let coming = async move {
                    later.sleep(Duration::from_secs(seconds)).await;
                    back.state.lock().import = ImportState::Full;
                };
                inner.spawn("an OST", Box::pin(coming));
                let (pinging, during) = (client.clone(), inner.clone());
                let pings = async move { pinging.wait(&during, seconds).await };
                inner.spawn("pings", Box::pin(pings));
                let before = inner.world().clock.now();
                assert_eq!(osts_of(&client, directory, "late").await, [1], "{import:?} {listed:?}");
                let waited = inner.world().clock.now().since(before);
                assert!(waited.as_secs() <= seconds + 3, "{import:?}: {waited:?}");
                server.check();
            },
            &world,
        );
    }
}

/// An OST answers with the same error when one node has too many exports there, and that may last.
#[test]
fn a_create_does_not_wait_for_ever_for_an_ost_that_says_it_recovers() {
    let world = TestWorld::new(60);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
            let (pinging, during) = (client.clone(), inner.clone());
            let pings = async move { pinging.wait(&during, 4_000).await };
            inner.spawn("pings", Box::pin(pings));
            let set = |import, is_refused_in_recovery| {
                let mut state = server.osts[0].state.lock();
                (state.import, state.is_refused_in_recovery) = (import, is_refused_in_recovery);
            };
            set(ImportState::Disconn, true);
            for (name, least, most) in [("one", 900, 990), ("two", 0, 30)] {
                let before = inner.world().clock.now();
                let refused = client.create(directory, name).await.unwrap_err();
                let waited = inner.world().clock.now().since(before).as_secs();
                assert_eq!(refused, Errno::EINPROGRESS);
                assert!((least..most).contains(&waited), "{name}: {waited} s");
            }
            // The next recovery is another one.
            set(ImportState::Full, false);
            assert_eq!(osts_of(&client, directory, "three").await, [0]);
            inner.sleep(Duration::from_secs(5)).await;
            set(ImportState::ReplayWait, false);
            let (later, back) = (inner.clone(), server.osts[0].clone());
            let coming = async move {
                later.sleep(Duration::from_secs(300)).await;
                back.state.lock().import = ImportState::Full;
            };
            inner.spawn("an OST", Box::pin(coming));
            assert_eq!(osts_of(&client, directory, "four").await, [0]);
            server.check();
        },
        &world,
    );
}

#[test]
fn without_any_ost_there_is_no_space() {
    let world = TestWorld::new(68);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 0).await;
            let client = server.client("c").await;
            let failed = client.create(Fid::ROOT, "none").await.map(|_| ());
            assert_eq!(failed, Err(Errno::ENOSPC));
            server.check();
        },
        &world,
    );
}

/// A file that is to have a stripe on an OST which recovers, while another OST works: that went round without end.
#[test]
fn a_create_that_waits_for_one_of_its_osts_delays_no_other() {
    let plans = [
        Striping { osts: vec![0, 1], stripe_count: 2, ..Striping::default() },
        Striping { first: Some(0), stripe_count: 2, ..Striping::default() },
    ];
    for requested in plans {
        let world = TestWorld::new(61);
        let inner = world.clone();
        run(
            async move {
                let server = Server::start(&inner, 2).await;
                let client = server.client("c").await;
                let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
                let plan = Plan::Plain(requested).encode();
                client.setxattr(directory, "lustre.lov", Some(&plan), 0).await.unwrap();
                server.osts[1].state.lock().import = ImportState::ReplayWait;
                let (later, back) = (inner.clone(), server.osts[1].clone());
                let coming = async move {
                    later.sleep(Duration::from_secs(30)).await;
                    back.state.lock().import = ImportState::Full;
                };
                inner.spawn("an OST", Box::pin(coming));
                client.create(directory, "late").await.expect("when the OST is back");
            },
            &world,
        );
    }
}
