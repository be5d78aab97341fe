//! A client's own changes of attributes leave its locks on the inode, where its answer says all that became of it.

use sheen_target::testing::TestWorld;
use sheen_types::{Fid, InodeBits, LockMode};
use sheen_wire::connect::ConnectFlags2;
use sheen_wire::md::{AclEntry, AttrValid, PosixAcl, RecSetattr, Valid};
use sheen_wire::messages::{LdlmEnqueue, Reply, Request};

use super::harness::{Client, DIRECTORY, REGULAR, Server, run};

fn test<F>(seed: u64, body: impl FnOnce(Server) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let world = TestWorld::new(seed);
    let inner = world.clone();
    run(async move { body(Server::start(&inner, 1).await).await }, &world);
}

/// The inodes of the locks that a client was asked to cancel since the last time.
fn revoked(client: &Client) -> Vec<Fid> {
    let blocked = client.inner.callbacks().into_iter().filter_map(|request| match request {
        Request::LdlmBlCallback(callback) => Some(callback.dlm_req.desc.resource.name.fid()),
        _ => None,
    });
    blocked.collect()
}

#[test]
fn a_change_revokes_the_locks_of_all_clients_but_of_the_one_that_asks() {
    test(880, |server| async move {
        let (client, other) = (server.client("c").await, server.client("o").await);
        let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
        for holder in [&client, &other] {
            holder.lookup(Fid::ROOT, "f").await;
        }
        let changes = [
            AttrValid::MTIME | AttrValid::MTIME_SET,
            AttrValid::MODE | AttrValid::CTIME,
            AttrValid::UID | AttrValid::GID,
        ];
        for valid in changes {
            client.setattr(file, valid, |record| record.mode = REGULAR | 0o600).await.unwrap();
            assert_eq!(revoked(&client), [], "{valid:?}");
            let expected: &[Fid] = if valid == changes[0] { &[file] } else { &[] };
            assert_eq!(revoked(&other), expected, "{valid:?}: it had one lock");
        }
        // And its own when the other one changes something.
        other.setattr(file, AttrValid::MODE, |record| record.mode = REGULAR | 0o640).await.unwrap();
        assert_eq!(revoked(&client), [file]);
    });
}

#[test]
fn what_the_answer_does_not_say_revokes_the_lock_of_the_client_that_asks() {
    test(881, |server| async move {
        let client = server.client("c").await;
        let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
        let directory = client.mkdir(Fid::ROOT, "d").await.unwrap();
        let times = AttrValid::MTIME | AttrValid::MTIME_SET;
        client.lookup(Fid::ROOT, "d").await;
        client.setattr(directory, times, |_| {}).await.unwrap();
        assert_eq!(revoked(&client), [], "its names stay what they are");
        client
            .setattr(directory, AttrValid::MODE, |record| record.mode = DIRECTORY | 0o700)
            .await
            .unwrap();
        assert_eq!(revoked(&client), [directory]);
        for (name, fid, valid) in [
            ("f", file, AttrValid::SIZE | AttrValid::MTIME),
            ("f", file, AttrValid::ATTR_FLAG),
            ("f", file, AttrValid::PROJID),
            ("d", directory, AttrValid::UID | times),
        ] {
            client.lookup(Fid::ROOT, name).await;
            let change = client.setattr(fid, valid, |record| {
                record.mode = DIRECTORY | 0o700;
                record.projid = 5;
            });
            change.await.unwrap();
            assert_eq!(revoked(&client), [fid], "{valid:?}");
        }
    });
}

#[test]
fn a_client_of_lustres_loses_its_lock_for_its_own_change() {
    test(882, |server| async move {
        let client = server.client("c").await;
        let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
        let mut plain = client.inner.agreed();
        plain.flags2 = plain.flags2.without(ConnectFlags2::OWN_ATTRIBUTES);
        client.inner.connect_with(plain).await.unwrap();
        client.lookup(Fid::ROOT, "f").await;
        let change = |record: &mut RecSetattr| record.mode = REGULAR | 0o600;
        let body = client.setattr(file, AttrValid::MODE, change).await.unwrap();
        assert_eq!(revoked(&client), [file]);
        assert!(!body.valid.contains(Valid::ACL), "nor is its answer another than Lustre's");
    });
}

#[test]
fn the_answer_says_what_became_of_the_access_control_list() {
    test(883, |server| async move {
        let client = server.client("c").await;
        let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
        let change = |record: &mut RecSetattr| record.mode = REGULAR | 0o600;
        let body = client.setattr(file, AttrValid::MODE, change).await.unwrap();
        assert_eq!((body.valid.contains(Valid::ACL), body.aclsize), (true, 0), "there is none");
        let none = u32::MAX;
        let line = |tag, perm, id| AclEntry { tag, perm, id };
        let entries = vec![
            line(1, 6, none),
            line(2, 7, 10),
            line(4, 4, none),
            line(16, 7, none),
            line(32, 0, none),
        ];
        let value = PosixAcl { entries }.encode();
        client.setxattr(file, "system.posix_acl_access", Some(&value), 0).await.unwrap();
        let body = client.setattr(file, AttrValid::MODE, change).await.unwrap();
        assert_eq!((body.valid.contains(Valid::ACL), body.aclsize as usize), (true, value.len()));
    });
}

#[test]
fn a_writer_of_a_file_on_the_mdt_keeps_all_of_its_lock() {
    test(884, |server| async move {
        let client = server.client("c").await;
        let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
        let bits = InodeBits::LOOKUP | InodeBits::UPDATE | InodeBits::PERM | InodeBits::DOM;
        let dlm_req = client.dlm(file, LockMode::Pw, bits);
        let mine = dlm_req.handles[0];
        let answer = client.inner.call(LdlmEnqueue { dlm_req, ..LdlmEnqueue::default() }).await;
        let Some(Reply::LdlmEnqueue(reply)) = answer.reply else { panic!("{:?}", answer.reply) };
        client.keep(mine, reply.dlm_rep.expect("a lock's answer").handle);
        client.setattr(file, AttrValid::MTIME | AttrValid::MTIME_SET, |_| {}).await.unwrap();
        assert_eq!(revoked(&client), []);
    });
}
