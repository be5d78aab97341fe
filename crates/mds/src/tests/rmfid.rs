//! Files are removed by their FIDs, under all names.

use sheen_target::testing::TestWorld;
use sheen_types::{Errno, Fid};
use sheen_wire::md::{MdsOpenFlags, MdtBody};
use sheen_wire::messages::{MdsRmfid, Reply};

use super::harness::{Client, REGULAR, Server, run};
use super::kept_opens::{close_when_revoked, keep};

/// What the MDT says of each.
async fn remove(client: &Client, fids: &[Fid]) -> Result<Vec<i32>, Errno> {
    let mdt_body = MdtBody { ctime: 1_700_000_000, ..client.body(Fid::ROOT) };
    let request = MdsRmfid { mdt_body, fid_array: fids.to_vec(), ..MdsRmfid::default() };
    match client.modify(request).await? {
        Reply::MdsRmfid(reply) => {
            assert_eq!(reply.fid_array, fids);
            Ok(reply.rcs.into_iter().map(|rc| rc as i32).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn failed(errno: Errno) -> i32 {
    -i32::from(errno.0)
}

#[test]
fn files_go_by_their_fids_with_all_their_names() {
    let world = TestWorld::new(320);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 2).await;
            let client = server.client("c").await;
            let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
            let linked = client.make(Fid::ROOT, "f", REGULAR).await.unwrap();
            client.link(linked, directory, "g").await.unwrap();
            let opened = client.create(directory, "open").await.unwrap();
            let missing = client.next_fid();
            let all = [linked, opened.body.fid1, directory, missing, Fid::DOT_LUSTRE];
            let errors = [Errno::EBUSY, Errno::EISDIR, Errno::ENOENT, Errno::EPERM].map(failed);
            let wanted: Vec<i32> = [0].into_iter().chain(errors).collect();
            assert_eq!(remove(&client, &all).await, Ok(wanted));
            assert_eq!(client.getattr(linked).await.err(), Some(Errno::ENOENT));
            let left = client.readdir(directory, 4096).await;
            let names: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, [".", "..", "open"]);
            client.close(&opened).await.unwrap();
            // Of a user who may write neither the file nor its directory.
            let user = client.as_user(1000, 1000);
            let kept = [opened.body.fid1];
            assert_eq!(remove(&user, &kept).await, Ok(vec![failed(Errno::EACCES)]));
            assert_eq!(remove(&client, &kept).await, Ok(vec![0]));
            client.wait(&inner, 30).await;
            let report = server.check();
            assert_eq!((report.objects.len(), report.dying.len()), (0, 0));
        },
        &world,
    );
}

#[test]
fn other_clients_see_that_a_name_is_gone_and_close_what_they_only_keep_open() {
    let world = TestWorld::new(321);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (client, other) = (server.client("c").await, server.client("o").await);
            let file = client.make(Fid::ROOT, "f", REGULAR).await.unwrap();
            other.lookup(Fid::ROOT, "f").await;
            let opened = other.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap();
            assert_eq!(remove(&client, &[file]).await, Ok(vec![failed(Errno::EBUSY)]));
            other.close(&opened).await.unwrap();
            let kept = keep(&other, "f", MdsOpenFlags::READ).await;
            close_when_revoked(&inner, &other, &kept);
            let before = other.inner.callbacks().len();
            assert_eq!(remove(&client, &[file]).await, Ok(vec![0]));
            assert!(other.inner.callbacks().len() > before, "it has the name no more");
            assert_eq!(client.getattr(file).await.err(), Some(Errno::ENOENT));
            assert_eq!(server.mdt.open_count(), 0, "it has closed what it kept open");
            server.check();
        },
        &world,
    );
}
