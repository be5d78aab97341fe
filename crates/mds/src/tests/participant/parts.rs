//! Parts: applied once, with their records, and seen when they are released.

use sheen_store::{Store, StoreError, Transaction};
use sheen_store_mem::{Commits, MemOptions};
use sheen_target::Incarnation;
use sheen_types::Timestamp;
use sheen_wire::md::{LinkEa, MdsOpenFlags, Valid};
use sheen_wire::ost::Obdo;
use sheen_wire::out::{Complete, InodeAttributes};

use super::super::harness::run;
use super::super::recovery::manual;
use super::super::several::join;
use super::*;
use crate::identity::IDENTITY;
use crate::participant::{attributes_of, wire_attributes};

fn store() -> Arc<StoreMem> {
    Arc::new(StoreMem::new(MemOptions { commits: Commits::Immediate, ..MemOptions::default() }))
}

/// A directory of another MDT gets a name in the root.
fn far_directory(named: &str, far: Fid) -> Vec<ObjectUpdate> {
    let times =
        Obdo { valid: Valid::MTIME | Valid::CTIME, mtime: 2_000, ctime: 2_000, ..Obdo::default() };
    vec![
        ObjectUpdate::index_insert(ROOT, &name(named), far, 0o040_000),
        ObjectUpdate::attr_set(ROOT, &times),
        ObjectUpdate::ref_add(ROOT),
    ]
}

#[test]
fn a_part_is_applied_once_and_seen_when_it_is_released() {
    let world = TestWorld::new(521);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, store()).await;
        let before = client.getattr(ROOT).await.unwrap();
        let wanted = [excluded_name(ROOT, "far", NameNeeds::CHANGES)];
        m1.exclude(1, &wanted, &[]).await.expect("excluded");
        let updates = far_directory("far", m1.far(1));
        let transno = m1.apply(50, 1, updates.clone()).await.expect("applied");
        assert_eq!(m1.apply(50, 1, updates.clone()).await, Ok(transno), "it is there");
        let target = &server.node.target;
        assert_eq!(target.logical_time(), LogicalTime(50));
        // Names show it when all MDTs have it; the directory's own attributes are not what is excluded.
        let (own, list) = (client.clone(), client.clone());
        let seen = begin(&inner, async move { own.lookup(ROOT, "far").await.1 }).await;
        let listed = begin(&inner, async move { list.readdir(ROOT, 1).await }).await;
        let m2 = Coordinator::new(&server, 2).await;
        let look =
            async move { first(&m2.ask(&[ObjectUpdate::index_lookup(ROOT, &name("far"))]).await) };
        let looked = begin(&inner, look).await;
        assert!(seen.lock().is_none() && listed.lock().is_none() && looked.lock().is_none());
        let root = client.getattr(ROOT).await.expect("it is shared");
        assert_eq!((root.nlink, root.mtime), (before.nlink + 1, 2_000));
        m1.release(1).await;
        inner.settle().await;
        let body = seen.lock().take().expect("seen").mdt_body.expect("a body");
        assert_eq!((body.fid1, body.valid), (m1.far(1), Valid::ID | Valid::MDS));
        let listed = listed.lock().take().expect("listed");
        assert!(listed.iter().any(|(name, _)| name == "far"), "{listed:?}");
        assert!(matches!(*looked.lock(), Some(Ok(_))));
        // Its coordinator asks again, though the exclusion is gone.
        assert_eq!(m1.apply(50, 1, updates).await, Ok(transno));
    };
    run(test, &world);
}

#[test]
fn a_part_and_the_release_in_one_message_show_it_at_once() {
    let world = TestWorld::new(522);
    let inner = world.clone();
    let test = async move {
        let (_server, client, m1) = scene(&inner, store()).await;
        let wanted = [excluded_name(ROOT, "far", NameNeeds::CHANGES)];
        m1.exclude(1, &wanted, &[]).await.expect("excluded");
        let release = Release { starts: 1, flags: ReleaseFlags::NONE, number: 1 };
        let part = m1.part(50, 1, far_directory("far", m1.far(1)));
        let answer = m1.ask(&[part, ObjectUpdate::release(&release)]).await;
        let results = results_of(&answer).expect("done");
        assert_eq!(results.iter().map(|result| result.status).collect::<Vec<_>>(), [0, 0]);
        assert_eq!(client.lookup(ROOT, "far").await.1.mdt_body.unwrap().fid1, m1.far(1));
    };
    run(test, &world);
}

#[test]
fn a_part_sent_again_is_answered_as_it_was_and_after_a_crash_by_its_record() {
    let world = TestWorld::new(523);
    let inner = world.clone();
    let test = async move {
        let (server, _client, m1) = scene(&inner, manual()).await;
        let wanted = [excluded_name(ROOT, "far", NameNeeds::CHANGES)];
        let other = m1.clone();
        let excluded = begin(&inner, async move { other.exclude(1, &wanted, &[]).await }).await;
        server.store.commit().unwrap();
        inner.settle().await;
        assert!(matches!(*excluded.lock(), Some(Ok(_))));
        let request = request_of(&[m1.part(50, 1, far_directory("far", m1.far(1)))]);
        let call = TestCall::new(request).tagged(7);
        let done = m1.inner.call_with(call.clone()).await.unwrap();
        let applied = read::<PartAnswer>(&first(&done).unwrap()).transno;
        assert_eq!(done.head.transno, applied);
        let again = m1.inner.call_with(call.clone().resent(done.xid)).await.unwrap();
        assert_eq!((first(&again), again.head.transno), (first(&done), applied));
        // MDT0001 has no record of it: it is its import that replays it, with its number.
        let identity = "00000001-2222-3333-4444-555555555555";
        let at_second = manual();
        let mut change = Transaction::new();
        change.put(
            IDENTITY,
            Bytes::from_static(b"identity"),
            Bytes::from_static(identity.as_bytes()),
        );
        change.put(IDENTITY, Bytes::from_static(b"index"), Bytes::from_static(&[0, 1]));
        at_second.apply(change).unwrap();
        let second = start(&inner, 1, at_second).await;
        for (is_durable, expected) in [(false, Ok(applied)), (true, Ok(Transno(0)))] {
            if is_durable {
                server.store.commit().unwrap();
            }
            let store = Arc::new(server.store.crash());
            let survivor = start(&inner, 0, store).await;
            join(&survivor, &second).await;
            let coordinator = m1.inner.follow(&survivor.node);
            coordinator.connect_with(offer(identity)).await.unwrap();
            let replay = call.clone().replayed(done.xid, applied);
            let answer = coordinator.call_with(replay).await.unwrap();
            let transno = first(&answer).map(|data| read::<PartAnswer>(&data).transno);
            assert_eq!(transno, expected, "durable: {is_durable}");
            assert_eq!(answer.head.transno, applied);
            let key = crate::directory::key(b"far");
            assert!(survivor.store.lookup(ROOT, &key).unwrap().is_some());
        }
    };
    run(test, &world);
}

#[test]
fn a_record_goes_when_its_change_is_complete() {
    let world = TestWorld::new(524);
    let inner = world.clone();
    let test = async move {
        let (server, _client, m1) = scene(&inner, store()).await;
        for (transno, named) in [(50, "a"), (60, "b")] {
            let wanted = [excluded_name(ROOT, named, NameNeeds::CHANGES)];
            m1.exclude(transno, &wanted, &[]).await.expect("excluded");
            let far = far_directory(named, m1.far(transno as u32));
            m1.apply(transno, transno, far).await.expect("applied");
            m1.release(transno).await;
        }
        let target = &server.node.target;
        let here =
            |transno| target.part_here(ChangeId { coordinator: m1.mdt, transno: Transno(transno) });
        assert!(here(50).unwrap() > Transno(0) && here(55).is_none());
        let complete = Complete { upto: Transno(60), except: vec![Transno(50)] };
        let complete = ObjectUpdate::complete(&complete).expect("it fits");
        first(&m1.ask(&[complete]).await).expect("said");
        assert_eq!(here(60), Some(Transno(0)), "durable everywhere");
        assert!(here(50).unwrap() > Transno(0), "excepted");
        let kept = target.answer_recover(Incarnation { mdt: m1.mdt, starts: 1 });
        assert_eq!(kept.iter().map(|it| it.id.transno).collect::<Vec<_>>(), [Transno(50)]);
    };
    run(test, &world);
}

#[test]
fn files_lose_and_gain_names_and_open_ones_become_orphans() {
    let world = TestWorld::new(525);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, store()).await;
        let directory = client.mkdir(ROOT, "d").await.unwrap();
        client.symlink(ROOT, "s").await.unwrap();
        client.symlink(ROOT, "victim").await.unwrap();
        let fid = |named: &'static str| {
            let client = client.clone();
            async move { client.lookup(ROOT, named).await.1.mdt_body.unwrap().fid1 }
        };
        let (link, victim) = (fid("s").await, fid("victim").await);
        // A second name, on another MDT.
        m1.exclude(1, &[], &[inode(link)]).await.expect("excluded");
        let far = m1.far(9);
        let linked =
            vec![ObjectUpdate::ref_add(link), ObjectUpdate::link_add(link, far, &name("x"))];
        m1.apply(50, 1, linked).await.expect("applied");
        let own = client.clone();
        let shown = begin(&inner, async move { own.getattr(link).await }).await;
        let own = client.clone();
        let named = begin(&inner, async move { own.lookup(ROOT, "s").await.1 }).await;
        assert!(shown.lock().is_none() && named.lock().is_none(), "its links change");
        m1.release(1).await;
        inner.settle().await;
        assert_eq!(shown.lock().take().unwrap().unwrap().nlink, 2);
        assert_eq!(named.lock().take().unwrap().mdt_body.unwrap().nlink, 2);
        let links = server.store.xattr(link, "trusted.link").unwrap().unwrap();
        let names = |links: &Bytes| {
            let links = LinkEa::decode(links).unwrap().entries;
            links.into_iter().map(|it| (it.parent, it.name)).collect::<Vec<_>>()
        };
        let (here, there) = ((ROOT, Bytes::from("s")), (far, Bytes::from("x")));
        assert_eq!(names(&links), [here.clone(), there]);
        // That one goes again, and the first one replaces another file.
        let moved =
            [excluded_name(ROOT, "s", WITH_INODE), excluded_name(ROOT, "victim", WITH_INODE)];
        m1.exclude(2, &moved, &[]).await.expect("excluded");
        let updates = vec![
            ObjectUpdate::ref_del(link),
            ObjectUpdate::link_del(link, far, &name("x")),
            ObjectUpdate::index_delete(ROOT, &name("s")),
            ObjectUpdate::index_delete(ROOT, &name("victim")),
            ObjectUpdate::index_insert(ROOT, &name("victim"), link, 0o120_000),
            ObjectUpdate::link_del(link, ROOT, &name("s")),
            ObjectUpdate::link_add(link, ROOT, &name("victim")),
            ObjectUpdate::destroy(victim),
        ];
        m1.apply(51, 2, updates).await.expect("applied");
        m1.release(2).await;
        assert_eq!(fid("victim").await, link);
        let gone = server.store.attributes(victim);
        assert!(matches!(gone, Err(StoreError::NoObject(_))), "{gone:?}");
        let links = server.store.xattr(link, "trusted.link").unwrap().unwrap();
        assert_eq!(names(&links), [(ROOT, Bytes::from("victim"))]);
        // A directory that is open is kept for who has it open.
        let flags = MdsOpenFlags::READ | MdsOpenFlags::DIRECTORY;
        m1.exclude(3, &[excluded_name(ROOT, "d", WITH_INODE)], &[]).await.expect("excluded");
        let opened = client.open(ROOT, "d", flags).await.expect("opened meanwhile");
        let updates = vec![
            ObjectUpdate::index_delete(ROOT, &name("d")),
            ObjectUpdate::ref_del(ROOT),
            ObjectUpdate::destroy(directory),
        ];
        m1.apply(52, 3, updates).await.expect("applied");
        m1.release(3).await;
        assert_eq!(server.check().orphans.len(), 1);
        client.close(&opened).await.expect("closed");
        assert_eq!(server.check().orphans.len(), 0);
    };
    run(test, &world);
}

#[test]
fn a_part_may_make_inodes_without_an_exclusion() {
    let world = TestWorld::new(526);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, store()).await;
        let new = client.next_fid();
        let parent = m1.far(3);
        let attributes = server.store.attributes(ROOT).expect("the root's");
        let said = wire_attributes(&attributes);
        assert_eq!(attributes_of(&said).map(|it| it.permissions), Some(attributes.permissions));
        assert_eq!(attributes_of(&InodeAttributes::default()), None, "nothing is said");
        let value = Bytes::from_static(b"value");
        let updates = vec![
            ObjectUpdate::create(new, &said, parent),
            ObjectUpdate::xattr_set(new, "user.x", &value),
            ObjectUpdate::xattr_set(new, "user.y", &value),
            ObjectUpdate::xattr_del(new, "user.y"),
            ObjectUpdate::link_add(new, parent, &name("new")),
        ];
        m1.apply(50, 0, updates).await.expect("applied");
        let mut made = server.store.attributes(new).expect("it is there");
        assert_eq!(made.born, Timestamp::from_seconds(attributes.born.seconds));
        made.version = attributes.version;
        assert_eq!(made, attributes_of(&said).unwrap());
        assert_eq!(client.getxattr(new, "user.x").await, Ok(value));
        assert!(client.getxattr(new, "user.y").await.is_err());
        let links = LinkEa::decode(&client.getxattr(new, "trusted.link").await.unwrap()).unwrap();
        assert_eq!(links.entries[0].parent, parent);
    };
    run(test, &world);
}

#[test]
fn what_an_earlier_start_of_a_coordinator_has_sent_is_too_late() {
    let world = TestWorld::new(527);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, store()).await;
        let wanted = [excluded_name(ROOT, "far", NameNeeds::CHANGES)];
        m1.exclude(1, &wanted, &[]).await.expect("excluded");
        let target = &server.node.target;
        assert!(target.answer_recover(Incarnation { mdt: m1.mdt, starts: 2 }).is_empty());
        let late = m1.apply(50, 1, far_directory("far", m1.far(1))).await;
        assert_eq!(late, Err(Errno::ESTALE));
        m1.restarted().release_earlier().await;
        client.mkdir(ROOT, "far").await.expect("nothing was applied");
        server.check();
    };
    run(test, &world);
}
