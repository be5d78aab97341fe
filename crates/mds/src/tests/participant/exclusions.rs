//! Who waits for an exclusion, and until when.

use sheen_ldlm::Owner;
use sheen_store::Store;
use sheen_store_mem::{Commits, MemOptions};
use sheen_types::{LockMode, ResourceName};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::ldlm::LdlmReply;
use sheen_wire::md::{AttrValid, MdsOpenFlags, RecSetattr};
use sheen_wire::messages::LdlmEnqueue;
use sheen_wire::out::{ExcludeFlags, InodeState, Parents};

use super::super::harness::run;
use super::super::recovery::manual;
use super::*;

fn store() -> Arc<StoreMem> {
    Arc::new(StoreMem::new(MemOptions { commits: Commits::Immediate, ..MemOptions::default() }))
}

fn mode(record: &mut RecSetattr) {
    record.mode = 0o700;
}

#[test]
fn changes_of_what_is_excluded_wait_until_it_is_released_and_all_else_goes_on() {
    let world = TestWorld::new(501);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, store()).await;
        let directory = client.mkdir(ROOT, "held").await.unwrap();
        let added = excluded_name(ROOT, "new", NameNeeds::CHANGES);
        m1.exclude(7, &[added], &[inode(directory)]).await.expect("excluded");
        let own = client.clone();
        let made = begin(&inner, async move { own.mkdir(ROOT, "new").await }).await;
        let own = client.clone();
        let set = async move { own.setattr(directory, AttrValid::MODE, mode).await.map(drop) };
        let set = begin(&inner, set).await;
        let own = client.clone();
        let inside = begin(&inner, async move { own.mkdir(directory, "inside").await }).await;
        let own = client.clone();
        let gone = begin(&inner, async move { own.rmdir(ROOT, "held").await }).await;
        // Readers see what is there, as do changes of other names of the same directory.
        assert_eq!(client.getattr(directory).await.unwrap().fid1, directory);
        assert_eq!(client.lookup(ROOT, "held").await.1.mdt_body.unwrap().fid1, directory);
        assert_eq!(client.readdir(ROOT, 1).await.len(), 3, "., .. and held");
        client.mkdir(ROOT, "other").await.expect("another name");
        assert!(made.lock().is_none() && set.lock().is_none());
        assert!(inside.lock().is_none() && gone.lock().is_none());
        m1.release(7).await;
        inner.settle().await;
        assert!(matches!(*made.lock(), Some(Ok(_))), "{made:?}");
        assert_eq!(*set.lock(), Some(Ok(())));
        assert!(inside.lock().is_some() && gone.lock().is_some());
        server.check();
    };
    run(test, &world);
}

#[test]
fn the_exclusions_of_two_coordinators_exclude_each_other() {
    let world = TestWorld::new(502);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, store()).await;
        let m2 = Coordinator::new(&server, 2).await;
        let directory = client.mkdir(ROOT, "d").await.unwrap();
        let both = excluded_name(ROOT, "d", WITH_INODE);
        m1.exclude(1, &[both], &[]).await.expect("excluded");
        let other = m2.clone();
        let wanted = [excluded_name(directory, "x", NameNeeds::CHANGES)];
        let inside = begin(&inner, async move { other.exclude(5, &wanted, &[]).await }).await;
        assert!(inside.lock().is_none(), "its directory may go");
        let apart = excluded_name(ROOT, "e", NameNeeds::CHANGES);
        m2.exclude(6, &[apart], &[]).await.expect("another name of the same directory");
        m1.release(1).await;
        inner.settle().await;
        assert!(matches!(*inside.lock(), Some(Ok(_))));
        // Now the directory has to stay.
        let own = client.clone();
        let gone = begin(&inner, async move { own.rmdir(ROOT, "d").await }).await;
        assert!(gone.lock().is_none());
        m2.release(5).await;
        inner.settle().await;
        assert_eq!(*gone.lock(), Some(Ok(())));
    };
    run(test, &world);
}

#[test]
fn the_rename_lock_is_one_for_all_mdts() {
    let world = TestWorld::new(503);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, store()).await;
        let m2 = Coordinator::new(&server, 2).await;
        let a = client.mkdir(ROOT, "a").await.unwrap();
        client.mkdir(ROOT, "b").await.unwrap();
        let renames = |of: &Coordinator, number| Exclude {
            flags: ExcludeFlags::RENAMES,
            ..of.exclude_of(number, &[], &[])
        };
        m1.exclude_all(&renames(&m1, 1)).await.expect("no MDT has it");
        let (other, wanted) = (m2.clone(), renames(&m2, 1));
        let second = begin(&inner, async move { other.exclude_all(&wanted).await }).await;
        let own = client.clone();
        let moved = async move { own.rename((ROOT, "b"), (a, "b")).await };
        let moved = begin(&inner, moved).await;
        assert!(second.lock().is_none() && moved.lock().is_none());
        client.rename((ROOT, "a"), (ROOT, "c")).await.expect("within a directory");
        m1.release(1).await;
        inner.settle().await;
        m2.release(1).await;
        inner.settle().await;
        assert!(matches!(*second.lock(), Some(Ok(_))));
        assert_eq!(*moved.lock(), Some(Ok(())));
    };
    run(test, &world);
}

#[test]
fn exclusions_outlive_their_coordinator_and_late_messages_change_nothing() {
    let world = TestWorld::new(504);
    let inner = world.clone();
    let test = async move {
        let (_server, client, m1) = scene(&inner, store()).await;
        let wanted = [excluded_name(ROOT, "a", NameNeeds::CHANGES)];
        m1.exclude(3, &wanted, &[]).await.expect("excluded");
        m1.exclude(3, &wanted, &[]).await.expect("the same one, sent again");
        let restarted = m1.restarted();
        let other = [excluded_name(ROOT, "b", NameNeeds::CHANGES)];
        restarted.exclude(3, &other, &[]).await.expect("a number of the new start");
        // What a message of before says is true of before alone.
        m1.release(3).await;
        let own = client.clone();
        let b = begin(&inner, async move { own.mkdir(ROOT, "b").await }).await;
        assert!(b.lock().is_none());
        let late = m1.exclude(4, &[excluded_name(ROOT, "c", NameNeeds::CHANGES)], &[]).await;
        assert_eq!(late, Err(Errno::ESTALE));
        client.mkdir(ROOT, "c").await.expect("nothing is excluded");
        restarted.release(3).await;
        inner.settle().await;
        assert!(b.lock().is_some());
        // A double of what is released.
        assert_eq!(restarted.exclude(3, &other, &[]).await, Err(Errno::ESTALE));
        client.mkdir(ROOT, "d").await.expect("nothing is excluded");
        // The new start ends what the old one has left.
        let wanted = [excluded_name(ROOT, "e", NameNeeds::CHANGES)];
        restarted.exclude(9, &wanted, &[]).await.expect("excluded");
        let own = client.clone();
        let e = begin(&inner, async move { own.mkdir(ROOT, "e").await }).await;
        let third = restarted.restarted();
        third.exclude(1, &[excluded_name(ROOT, "f", NameNeeds::CHANGES)], &[]).await.unwrap();
        let own = client.clone();
        let f = begin(&inner, async move { own.mkdir(ROOT, "f").await }).await;
        assert!(e.lock().is_none(), "a restart alone releases nothing");
        third.release_earlier().await;
        inner.settle().await;
        assert!(e.lock().is_some() && f.lock().is_none());
    };
    run(test, &world);
}

#[test]
fn an_exclusion_says_what_an_operation_needs_to_know() {
    let world = TestWorld::new(505);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, store()).await;
        let empty = client.mkdir(ROOT, "empty").await.unwrap();
        let full = client.mkdir(ROOT, "full").await.unwrap();
        client.mkdir(full, "x").await.unwrap();
        client.setattr(empty, AttrValid::MODE, mode).await.unwrap();
        let names = [
            excluded_name(ROOT, "empty", WITH_INODE),
            excluded_name(full, "absent", NameNeeds::CHANGES),
        ];
        let said = m1.exclude(1, &names, &[inode(m1.far(1))]).await.expect("excluded");
        assert_eq!((said.starts, said.time), (server.node.target.instance(), LogicalTime(0)));
        assert_eq!((said.names[0].fid, said.names[0].mode), (empty, 0o040_000));
        assert_eq!(said.names[1].fid, Fid::ZERO);
        let (root, found) = (said.inode(ROOT).unwrap(), said.inode(empty).unwrap());
        assert_eq!(found.state, InodeState::EXISTS | InodeState::EMPTY);
        assert_eq!((found.attributes.obdo.mode, found.attributes.obdo.nlink), (0o040_700, 2));
        let links = found.xattr("trusted.link").expect("its name");
        let links = sheen_wire::md::LinkEa::decode(links).unwrap();
        assert_eq!((links.entries[0].parent, &links.entries[0].name[..]), (ROOT, &b"empty"[..]));
        assert_eq!(root.state, InodeState::EXISTS);
        assert_eq!(said.inode(full).unwrap().state, InodeState::EXISTS);
        assert_eq!(said.inodes.len(), 3, "nothing of another MDT's inode");
        m1.release(1).await;
        // An absent name that is needed excludes nothing.
        let needed = NameNeeds(WITH_INODE.0 | NameNeeds::NEEDED.0);
        let absent = [excluded_name(ROOT, "absent", needed), excluded_name(ROOT, "y", WITH_INODE)];
        assert_eq!(m1.exclude(2, &absent, &[]).await, Err(Errno::ENOENT));
        client.mkdir(ROOT, "y").await.expect("it is free");
        let gone = Fid::new(client.sequence, 999);
        let said = m1.exclude(3, &[], &[inode(gone)]).await.expect("excluded");
        assert_eq!(said.inode(gone).unwrap().state, InodeState::NONE);
    };
    run(test, &world);
}

#[test]
fn what_a_part_would_build_on_is_durable_when_an_exclusion_is_answered() {
    let world = TestWorld::new(506);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, manual()).await;
        let noted = [excluded_name(ROOT, "first", NameNeeds::CHANGES)];
        let other = m1.clone();
        let noted = begin(&inner, async move { other.exclude(1, &noted, &[]).await }).await;
        assert!(noted.lock().is_none(), "its coordinator has to be noted as a partner");
        server.store.commit().unwrap();
        inner.settle().await;
        assert!(noted.lock().is_some());
        let new = client.mkdir(ROOT, "new").await.unwrap();
        let unrelated = [excluded_name(ROOT, "other", NameNeeds::CHANGES)];
        m1.exclude(2, &unrelated, &[]).await.expect("nothing is built on");
        let other = m1.clone();
        let inside = [excluded_name(new, "x", NameNeeds::CHANGES)];
        let inside = begin(&inner, async move { other.exclude(3, &inside, &[]).await }).await;
        let other = m1.clone();
        let way = async move { first(&other.ask(&[ObjectUpdate::parents(new)]).await) };
        let way = begin(&inner, way).await;
        assert!(inside.lock().is_none() && way.lock().is_none(), "the directory may be lost");
        server.store.commit().unwrap();
        inner.settle().await;
        assert!(matches!(*inside.lock(), Some(Ok(_))));
        let way = way.lock().clone().expect("answered").expect("known");
        assert_eq!(Parents::decode(&way).unwrap().above, [ROOT]);
    };
    run(test, &world);
}

/// A client gets a lock on the directory that shows its names.
async fn list(client: &Client, directory: Fid) {
    let dlm_req = client.dlm(directory, LockMode::Pr, InodeBits::UPDATE);
    let mine = dlm_req.handles[0];
    let answer = client.inner.call(LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() }).await;
    let Some(Reply::LdlmEnqueue(reply)) = answer.reply else { panic!("{answer:?}") };
    let lock: LdlmReply = reply.dlm_rep.expect("a lock");
    client.keep(mine, lock.handle);
}

#[test]
fn clients_give_up_what_is_excluded_and_once_more_before_it_is_applied() {
    let world = TestWorld::new(507);
    let inner = world.clone();
    let test = async move {
        let (server, client, m1) = scene(&inner, store()).await;
        let directory = client.mkdir(ROOT, "d").await.unwrap();
        let asker = server.client("asker").await;
        assert!(asker.inner.agreed().flags2.contains(ConnectFlags2::OWN_NAMES));
        list(&client, ROOT).await;
        list(&asker, ROOT).await;
        client.lookup(ROOT, "d").await;
        let locks_of = |uuid: &str| {
            let export = server.node.target.export_of(&Uuid::new(uuid)).unwrap().handle();
            let namespace = server.node.target.namespace();
            let all = [ROOT, directory].map(|fid| namespace.dump(ResourceName::of_fid(fid)));
            let own = all.iter().flatten();
            own.filter(|lock| lock.owner == Owner::Export(export.0)).count()
        };
        assert_eq!((locks_of("c"), locks_of("asker")), (2, 1));
        m1.exclude(1, &[excluded_name(ROOT, "d", WITH_INODE)], &[]).await.expect("excluded");
        assert_eq!(
            (locks_of("c"), locks_of("asker")),
            (0, 1),
            "the asker corrects its own listing"
        );
        // Readers go on, and keep what they read, until the part comes.
        client.lookup(ROOT, "d").await;
        list(&client, ROOT).await;
        assert_eq!(locks_of("c"), 2);
        let updates = vec![
            ObjectUpdate::index_delete(ROOT, &name("d")),
            ObjectUpdate::ref_del(ROOT),
            ObjectUpdate::destroy(directory),
        ];
        m1.apply(5, 1, updates).await.expect("applied");
        assert_eq!((locks_of("c"), locks_of("asker")), (0, 1));
        m1.release(1).await;
        assert_eq!(client.getattr(directory).await, Err(Errno::ENOENT));
        server.check();
    };
    run(test, &world);
}

#[test]
fn an_open_of_what_is_excluded_goes_on() {
    let world = TestWorld::new(508);
    let inner = world.clone();
    let test = async move {
        let (_server, client, m1) = scene(&inner, store()).await;
        let directory = client.mkdir(ROOT, "d").await.unwrap();
        m1.exclude(1, &[excluded_name(ROOT, "d", WITH_INODE)], &[]).await.expect("excluded");
        let flags = MdsOpenFlags::READ | MdsOpenFlags::DIRECTORY;
        let opened = client.open(ROOT, "d", flags).await.expect("by name");
        client.open_fid(directory, flags).await.expect("by FID");
        client.close(&opened).await.expect("closed");
    };
    run(test, &world);
}
