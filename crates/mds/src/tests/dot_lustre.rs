//! `.lustre/fid`: every inode by its FID, for root, and nothing there can be changed.

use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid};
use sheen_wire::md::{AttrValid, MdsOpenFlags};

use super::harness::{Client, DIRECTORY, Server, run};

/// What a name stands for, with its mode.
async fn found(client: &Client, parent: Fid, name: &str) -> Result<(Fid, u32), Errno> {
    let (_, reply) = client.lookup(parent, name).await;
    let lock = reply.dlm_rep.expect("an intent's answer");
    if let Some(errno) = Errno::from_status(lock.policy_res2 as u32 as i32) {
        return Err(errno);
    }
    let body = reply.mdt_body.expect("a body");
    if body.fid1.is_zero() { Err(Errno::ENOENT) } else { Ok((body.fid1, body.mode)) }
}

async fn names(client: &Client, directory: Fid) -> Vec<String> {
    client.readdir(directory, 1).await.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn an_inode_is_found_by_its_fid() {
    let world = TestWorld::new(701);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let opened = client.create(Fid::ROOT, "f").await.unwrap();
            client.close(&opened).await.unwrap();
            let file = opened.body.fid1;
            let (dot, fids) = (Fid::DOT_LUSTRE, Fid::DOT_LUSTRE_FID);
            assert_eq!(found(&client, Fid::ROOT, ".lustre").await, Ok((dot, DIRECTORY | 0o755)));
            assert_eq!(found(&client, dot, "fid").await, Ok((fids, DIRECTORY | 0o100)));
            for name in [file.to_string(), file.to_string().replace(['[', ']'], "")] {
                assert_eq!(found(&client, fids, &name).await.map(|it| it.0), Ok(file), "{name}");
                let opened = client.open(fids, &name, MdsOpenFlags::READ).await.unwrap();
                assert_eq!(opened.body.fid1, file);
                client.close(&opened).await.unwrap();
            }
            let absent = client.next_fid().to_string();
            for name in [&*absent, "[0x280000400:0x1:0x0]", "f", "["] {
                let answer = found(&client, fids, name).await;
                assert_eq!(answer, Err(Errno::ENOENT), "{name}");
            }
            assert_eq!(found(&client, dot, "f").await, Err(Errno::ENOENT));
            let user = client.as_user(5, 5);
            let (_, refused) = user.lookup(fids, &file.to_string()).await;
            let refused = refused.dlm_rep.unwrap().policy_res2 as u32 as i32;
            assert_eq!(Errno::from_status(refused), Some(Errno::EACCES), "for root alone");
            assert_eq!(names(&client, Fid::ROOT).await, [".", "..", "f"], "not listed");
            assert_eq!(names(&client, dot).await, [".", "..", "fid"]);
            assert_eq!(names(&client, fids).await, [".", ".."]);
            let listed = client.open_fid(dot, MdsOpenFlags::READ | MdsOpenFlags::DIRECTORY).await;
            client.close(&listed.unwrap()).await.unwrap();
            server.check();
        },
        &world,
    );
}

#[test]
fn what_is_made_up_is_not_changed() {
    let world = TestWorld::new(702);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.create(Fid::ROOT, "f").await.unwrap();
            client.close(&file).await.unwrap();
            let (file, name) = (file.body.fid1, file.body.fid1.to_string());
            let (dot, fids) = (Fid::DOT_LUSTRE, Fid::DOT_LUSTRE_FID);
            let refused = Err(Errno::EPERM);
            assert_eq!(client.mkdir(Fid::ROOT, ".lustre").await, Err(Errno::EEXIST));
            assert_eq!(client.rmdir(Fid::ROOT, ".lustre").await, refused);
            assert_eq!(client.rename((Fid::ROOT, ".lustre"), (Fid::ROOT, "x")).await, refused);
            for directory in [dot, fids] {
                assert_eq!(client.mkdir(directory, "d").await.map(drop), refused);
                let made = client.create(directory, "new").await;
                assert_eq!(made.map(drop), refused);
                assert_eq!(client.link(file, directory, "l").await, refused);
                assert_eq!(client.rename((Fid::ROOT, "f"), (directory, "f")).await, refused);
                let mode = client.setattr(directory, AttrValid::MODE, |record| record.mode = 0o777);
                assert_eq!(mode.await.map(drop), refused);
                let value = bytes::Bytes::from_static(b"v");
                let set = client.setxattr(directory, "trusted.x", Some(&value), 0).await;
                assert_eq!(set, refused);
                assert_eq!(client.getxattr(directory, "trusted.x").await, Err(Errno::ENODATA));
            }
            assert_eq!(client.unlink(fids, &name).await, refused);
            assert_eq!(names(&client, Fid::ROOT).await, [".", "..", "f"]);
            server.check();
        },
        &world,
    );
}
