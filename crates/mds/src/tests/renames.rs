//! Rename in all its cases.

use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid};
use sheen_wire::md::{AttrValid, FileFlags, RecSetattr};

use super::harness::{REGULAR, Server, run};

#[test]
fn renames_replace_and_refuse_as_posix_says() {
    let world = TestWorld::new(40);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let root = Fid::ROOT;
            let (a, b) =
                (client.mkdir(root, "a").await.unwrap(), client.mkdir(root, "b").await.unwrap());
            let file = client.make(a, "f", REGULAR | 0o644).await.unwrap();
            client.rename((a, "f"), (a, "g")).await.unwrap();
            assert_eq!(client.rename((a, "f"), (a, "h")).await, Err(Errno::ENOENT));
            client.rename((a, "g"), (b, "g")).await.unwrap();
            assert_eq!(client.readdir(a, 1).await.len(), 2);
            let opened = client.create(b, "victim").await.unwrap();
            client.close(&opened).await.unwrap();
            client.rename((b, "g"), (b, "victim")).await.unwrap();
            assert!(client.getattr(opened.body.fid1).await.is_err(), "replaced");
            assert_eq!(client.getattr(file).await.unwrap().nlink, 1);
            assert_eq!(client.rename((root, "a"), (b, "victim")).await, Err(Errno::ENOTDIR));
            assert_eq!(client.rename((b, "victim"), (root, "a")).await, Err(Errno::EISDIR));
            assert_eq!(client.rename((root, "a"), (root, "b")).await, Err(Errno::ENOTEMPTY));
            client.unlink(b, "victim").await.unwrap();
            client.rename((root, "a"), (root, "b")).await.unwrap();
            assert!(client.getattr(b).await.is_err());
            assert_eq!(client.getattr(root).await.unwrap().nlink, 3);
            assert_eq!(client.rename((root, "."), (root, "x")).await, Err(Errno::EBUSY));
            server.check();
        },
        &world,
    );
}

#[test]
fn two_names_of_one_file_stay_both() {
    let world = TestWorld::new(41);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "a", REGULAR).await.unwrap();
            client.link(file, Fid::ROOT, "b").await.unwrap();
            client.rename((Fid::ROOT, "a"), (Fid::ROOT, "b")).await.unwrap();
            assert_eq!(client.readdir(Fid::ROOT, 1).await.len(), 4);
            client.rename((Fid::ROOT, "a"), (Fid::ROOT, "c")).await.unwrap();
            server.check();
        },
        &world,
    );
}

#[test]
fn a_directory_never_becomes_its_own_descendant() {
    let world = TestWorld::new(42);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let a = client.mkdir(Fid::ROOT, "a").await.unwrap();
            let b = client.mkdir(a, "b").await.unwrap();
            let c = client.mkdir(b, "c").await.unwrap();
            assert_eq!(client.rename((Fid::ROOT, "a"), (c, "x")).await, Err(Errno::EINVAL));
            assert_eq!(client.rename((Fid::ROOT, "a"), (a, "x")).await, Err(Errno::EINVAL));
            client.rename((b, "c"), (Fid::ROOT, "c")).await.unwrap();
            client.rename((Fid::ROOT, "a"), (c, "a")).await.unwrap();
            let (_, reply) = client.lookup(a, "..").await;
            assert_eq!(reply.mdt_body.unwrap().fid1, c);
            server.check();
        },
        &world,
    );
}

#[test]
fn opposite_moves_of_directories_make_no_circle_and_no_deadlock() {
    let world = TestWorld::new(43);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            for round in 0..20 {
                let top = client.mkdir(Fid::ROOT, &format!("t{round}")).await.unwrap();
                let a = client.mkdir(top, "a").await.unwrap();
                let b = client.mkdir(top, "b").await.unwrap();
                let done = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
                for (from, into) in [("a", b), ("b", a)] {
                    let (client, done) = (client.clone(), done.clone());
                    let task = async move {
                        let result = client.rename((top, from), (into, "in")).await;
                        done.lock().push(result);
                    };
                    inner.world().tasks.spawn("rename", Box::pin(task));
                }
                inner.sleep(std::time::Duration::from_millis(10)).await;
                let mut results = done.lock().clone();
                results.sort_by_key(Result::is_err);
                assert_eq!(results, [Ok(()), Err(Errno::EINVAL)]);
            }
            server.check();
        },
        &world,
    );
}

#[test]
fn an_append_only_directory_gains_names_and_loses_none() {
    let world = TestWorld::new(214);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let top = root.mkdir(Fid::ROOT, "top").await.unwrap();
            root.make(top, "file", REGULAR | 0o644).await.unwrap();
            root.mkdir(top, "directory").await.unwrap();
            root.make(Fid::ROOT, "new", REGULAR | 0o644).await.unwrap();
            let only_appends = |record: &mut RecSetattr| record.attr_flags = FileFlags::APPEND;
            root.setattr(top, AttrValid::ATTR_FLAG, only_appends).await.unwrap();
            assert_eq!(root.unlink(top, "file").await, Err(Errno::EPERM));
            assert_eq!(root.rmdir(top, "directory").await, Err(Errno::EPERM));
            assert_eq!(root.rename((top, "file"), (top, "moved")).await, Err(Errno::EPERM));
            assert_eq!(root.rename((top, "file"), (Fid::ROOT, "file")).await, Err(Errno::EPERM));
            assert_eq!(root.rename((Fid::ROOT, "new"), (top, "file")).await, Err(Errno::EPERM));
            root.make(top, "second", REGULAR | 0o644).await.unwrap();
            root.rename((Fid::ROOT, "new"), (top, "third")).await.unwrap();
        },
        &world,
    );
}
