//! Migrations of directories that are not worth the wait any more, or are not what was asked for.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_target::testing::{TestAnswer, TestCall, TestWorld, logged};
use sheen_types::{Errno, Fid};
use sheen_wire::out::UpdateType;

use super::harness::{DIRECTORY, REGULAR, run};
use super::migrations::{migrate_request, to};
use super::over_mdts::Scene;

const ROOT: Fid = Fid::ROOT;

type Pending = Arc<Mutex<Option<TestAnswer>>>;

impl Scene {
    /// Has MDT0001 begin the migration of `/d`; the FID that was chosen.
    fn begin_on_mdt1(&self, world: &TestWorld, mode: u32) -> (Pending, Fid) {
        let client = &self.clients[1];
        let new = client.next_fid();
        let mut request = migrate_request(client, (ROOT, "d"), new, &to(1, 1));
        request.rec_reint.mode = mode;
        let (pending, client) = (Pending::default(), client.clone());
        let answered = Arc::clone(&pending);
        let call = TestCall::new(request).tagged(client.next_tag());
        let send = async move { *answered.lock() = client.inner.call_with(call).await };
        world.world().tasks.spawn("begin", Box::pin(send));
        (pending, new)
    }

    fn excludes(&self) -> bool {
        self.servers.iter().any(|server| server.mdt.has_exclusions())
    }
}

#[test]
fn a_migration_waits_for_no_mdt_that_is_away_and_its_client_asks_again() {
    let world = TestWorld::new(940);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        let d = scene.mkdir(2, ROOT, "d").await;
        let way = scene.way(1, 2);
        // It is away before anything is asked, and when something was excluded.
        for held in [None, Some(UpdateType::EXCLUDE)] {
            way.hold(held);
            if held.is_none() {
                way.breaks();
            }
            let (pending, _) = scene.begin_on_mdt1(&inner, DIRECTORY);
            inner.sleep(Duration::from_secs(2)).await;
            way.breaks();
            assert!(pending.lock().is_none(), "it may be back in a moment");
            inner.sleep(Duration::from_secs(6)).await;
            let answer = pending.lock().take().expect("an answer");
            assert_eq!(answer.errno(), Some(Errno::EINPROGRESS), "{held:?}");
            way.hold(None);
            way.is_there(&inner, way.client());
            inner.sleep(Duration::from_secs(8)).await;
            assert_eq!(scene.child(ROOT, "d").await, Some(d), "{held:?}");
            assert!(!scene.excludes(), "{held:?}");
        }
        scene.migrate(1, (ROOT, "d"), &to(1, 1)).await.expect("it begins");
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_migration_whose_client_was_evicted_does_not_begin() {
    let world = TestWorld::new(941);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        let d = scene.mkdir(2, ROOT, "d").await;
        for kind in [UpdateType::XATTR_GET, UpdateType::EXCLUDE] {
            scene.way(1, 2).hold(Some(kind));
            let (pending, _) = scene.begin_on_mdt1(&inner, DIRECTORY);
            inner.sleep(Duration::from_millis(500)).await;

            assert_eq!(scene.servers[1].node.target.evict_client("c").await, 1);
            scene.way(1, 2).hold(None);
            inner.sleep(Duration::from_secs(5)).await;
            assert!(pending.lock().as_ref().is_none_or(|it| it.errno().is_some()));
            assert_eq!(scene.child(ROOT, "d").await, Some(d), "{kind:?}");
            assert!(!scene.excludes(), "{kind:?}");
            scene.clients[1].inner.connect().await.expect("let in");
        }
        scene.settle(&inner).await;
    };
    run(test, &world);
}

#[test]
fn a_migration_moves_the_directory_that_had_the_name_when_it_was_asked_for() {
    let world = TestWorld::new(942);
    let inner = world.clone();
    let test = async move {
        let scene = Scene::new(&inner, 3).await;
        for ends in [false, true] {
            scene.mkdir(2, ROOT, "d").await;
            scene.way(1, 2).hold(Some(UpdateType::XATTR_GET));
            let (pending, _) = scene.begin_on_mdt1(&inner, DIRECTORY);
            inner.sleep(Duration::from_millis(500)).await;
            // A later one is done before.
            let moved = scene.migrate(0, (ROOT, "d"), &to(0, 1)).await.expect("it begins");
            if ends {
                scene.end(moved, &to(0, 1)).await.expect("it ends");
            }
            scene.way(1, 2).hold(None);
            inner.sleep(Duration::from_secs(5)).await;
            let answer = pending.lock().take().expect("an answer");
            assert_eq!(answer.errno(), Some(Errno::EAGAIN), "{ends}");
            assert_eq!(scene.child(ROOT, "d").await, Some(moved), "{ends}");
            let (errno, _) = scene.remove(0, (ROOT, "d"), moved, DIRECTORY).await;
            assert_eq!(errno, None);
        }
        // What has the name is no directory any more, or is one since: another MDT is to be asked.
        scene.mkdir(1, ROOT, "d").await;
        let ask = async |mode| {
            let (pending, _) = scene.begin_on_mdt1(&inner, mode);
            inner.sleep(Duration::from_secs(1)).await;
            pending.lock().take().expect("an answer").errno()
        };
        assert_eq!(ask(REGULAR).await, Some(Errno::ESTALE));
        assert_eq!(ask(DIRECTORY).await, Some(Errno::EALREADY));
        scene.settle(&inner).await;
    };
    run(test, &world);
}

/// Programs say no more than "Operation not permitted".
#[test]
fn who_may_not_choose_mdts_is_refused_with_the_reason_in_the_log_once_a_second() {
    logged(|lines| {
        let world = TestWorld::new(943);
        let inner = world.clone();
        let test = async move {
            let scene = Scene::new(&inner, 2).await;
            scene.allow_restripes();
            let mdt = &scene.servers[1].mdt;
            let d = scene.mkdir(1, ROOT, "d").await;
            let user = scene.clients[1].as_user(7, 8);
            let wish = to(0, 1);
            let migrate = async || {
                // A second line has its turn.
                inner.sleep(Duration::from_secs(2)).await;
                let request = migrate_request(&user, (ROOT, "d"), user.next_fid(), &to(1, 1));
                user.modify(request).await.map(drop)
            };
            let end = async || {
                inner.sleep(Duration::from_secs(2)).await;
                user.setxattr(d, "trusted.lmv", Some(&wish.to_ea().encode()), 0).await
            };
            let make = async || {
                let striped = super::striped::wish(2);
                let request = user.create_request(d, "x", DIRECTORY | 0o777);
                user.modify(super::striped::wishing(request, &striped)).await.map(drop)
            };
            assert_eq!(migrate().await, Err(Errno::EPERM));
            let reason = "of users other than root those of group 0 may alone";
            let said = lines.with(reason);
            assert_eq!(said.len(), 1, "{said:?}");
            for part in ["a migration is refused", "enable_remote_dir_gid", "uid=7", "gid=8"] {
                assert!(said[0].contains(part), "{part}: {said:?}");
            }
            // The next ones come too soon after it.
            assert_eq!(make().await, Err(Errno::EPERM));
            let wished = super::striped::wish(2);
            let restriped = super::restripes::restripe(&user, ROOT, "d", &wished);
            assert_eq!(restriped.await.map(drop).unwrap_err().0, Errno::EPERM);
            assert_eq!(lines.with("is refused").len(), 1);
            assert_eq!(end().await, Err(Errno::EPERM));
            assert_eq!(lines.with("more=2").len(), 1, "{:?}", lines.with("is refused"));
            assert_eq!(lines.with("the end of a migration is refused").len(), 1);
            // By its group, as in Lustre, and with -1 for all, it gets as far as the rights to its names.
            for gid in [8, u32::MAX] {
                mdt.set_remote_directories_gid(gid);
                assert_eq!(migrate().await, Err(Errno::EALREADY), "{gid}");
                assert_eq!(end().await, Err(Errno::EALREADY), "{gid}");
            }
            mdt.set_remote_directories_gid(9);
            assert_eq!(migrate().await, Err(Errno::EPERM));
            assert_eq!(lines.with("those of group 9 may alone").len(), 1);
            // What is off is off for root, too.
            mdt.set_remote_directories_gid(u32::MAX);
            mdt.migrate_directories(false);
            assert_eq!(migrate().await, Err(Errno::EPERM));
            assert_eq!(end().await, Err(Errno::EPERM));
            assert_eq!(lines.with("mdt.*.enable_dir_migration is 0").len(), 2);
            scene.settle(&inner).await;
        };
        run(test, &world);
    });
}
