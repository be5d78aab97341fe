//! `.lustre/fid`: inodes by their FIDs.

use sheen_types::{Errno, Fid};
use sheen_wire::md::AttrValid;

use super::harness::{Client, DIRECTORY, Server, run};
use sheen_target::testing::TestWorld;

/// What a name stands for, with its mode; `None` if it stands for nothing.
async fn found(client: &Client, parent: Fid, name: &str) -> Option<(Fid, u32)> {
    let (_, reply) = client.lookup(parent, name).await;
    let body = reply.mdt_body.unwrap_or_default();
    (!body.fid1.is_zero()).then_some((body.fid1, body.mode))
}

#[test]
fn an_inode_is_found_by_its_fid_and_no_listing_has_it() {
    let world = TestWorld::new(401);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
            let hidden = found(&client, Fid::ROOT, ".lustre").await;
            assert_eq!(hidden, Some((Fid::DOT_LUSTRE, DIRECTORY | 0o755)));
            let by_fid = found(&client, Fid::DOT_LUSTRE, "fid").await;
            assert_eq!(by_fid, Some((Fid::DOT_LUSTRE_FID, DIRECTORY | 0o100)));
            let whole = directory.to_string();
            for name in [&whole[..], whole.trim_matches(['[', ']'])] {
                let it = found(&client, Fid::DOT_LUSTRE_FID, name).await;
                assert_eq!(it, Some((directory, DIRECTORY | 0o755)), "{name}");
            }
            for nothing in ["x", "[0x1:0x2]", "[0x200000401:0xffff:0x0]", "[0x1:0x2:0x0]", "d"] {
                assert_eq!(found(&client, Fid::DOT_LUSTRE_FID, nothing).await, None, "{nothing}");
            }
            assert_eq!(found(&client, Fid::DOT_LUSTRE, &whole).await, None);
            assert_eq!(found(&client, directory, ".lustre").await, None);
            let names = |entries: Vec<(String, u64)>| {
                entries.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
            };
            assert_eq!(names(client.readdir(Fid::ROOT, 1 << 16).await), [".", "..", "d"]);
            assert_eq!(names(client.readdir(Fid::DOT_LUSTRE, 1 << 16).await), [".", "..", "fid"]);
            assert_eq!(names(client.readdir(Fid::DOT_LUSTRE_FID, 1 << 16).await), [".", ".."]);
            // Only root gets there, as by any path.
            let user = client.as_user(7, 7);
            assert!(found(&user, Fid::ROOT, ".lustre").await.is_some());
            assert_eq!(found(&user, Fid::DOT_LUSTRE_FID, &whole).await, None);
            let report = server.check();
            assert_eq!((report.faults, report.inodes), (vec![], 2));
        },
        &world,
    );
}

#[test]
fn nothing_is_made_moved_or_removed_there() {
    let world = TestWorld::new(402);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
            let name = directory.to_string();
            let refused = Err(Errno::EPERM);
            assert_eq!(client.mkdir(Fid::ROOT, ".lustre").await, Err(Errno::EEXIST));
            assert_eq!(client.rmdir(Fid::ROOT, ".lustre").await, refused);
            for parent in [Fid::DOT_LUSTRE, Fid::DOT_LUSTRE_FID] {
                assert_eq!(client.mkdir(parent, "x").await.map(drop), refused);
                assert_eq!(client.create(parent, "x").await.map(drop), refused);
                assert_eq!(client.symlink(parent, "x").await, refused);
                assert_eq!(client.rmdir(parent, &name).await, refused);
                assert_eq!(client.rename((Fid::ROOT, "d"), (parent, "x")).await, refused);
                assert_eq!(client.rename((parent, &name), (Fid::ROOT, "x")).await, refused);
                assert_eq!(client.setxattr(parent, "user.a", Some(b"b"), 0).await, refused);
            }
            let file = client.create(Fid::ROOT, "f").await.unwrap();
            client.close(&file).await.unwrap();
            assert_eq!(client.rename((Fid::ROOT, ".lustre"), (directory, "x")).await, refused);
            assert_eq!(client.rename((Fid::ROOT, "f"), (Fid::ROOT, ".lustre")).await, refused);
            // What is found by its FID works as under its name.
            client.mkdir(directory, "below").await.unwrap();
            assert_eq!(server.check().faults, []);
        },
        &world,
    );
}

/// Sanity 154a: with it, users other than root open files by their FIDs.
#[test]
fn root_may_open_it_to_users() {
    let world = TestWorld::new(404);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let root = server.client("c").await;
            let user = root.as_user(7, 7);
            let whole = root.mkdir(Fid::ROOT, "d").await.unwrap().to_string();
            let open = async |who: &Client, mode| {
                let set = who.setattr(Fid::DOT_LUSTRE_FID, AttrValid::MODE, |it| it.mode = mode);
                set.await.map(drop)
            };
            assert_eq!(open(&user, 0o777).await, Err(Errno::EPERM));
            assert_eq!(open(&root, 0o777).await, Ok(()));
            assert!(found(&user, Fid::DOT_LUSTRE_FID, &whole).await.is_some());
            assert_eq!(open(&root, 0o100).await, Ok(()));
            assert_eq!(found(&user, Fid::DOT_LUSTRE_FID, &whole).await, None);
            assert_eq!(server.check().faults, []);
        },
        &world,
    );
}
