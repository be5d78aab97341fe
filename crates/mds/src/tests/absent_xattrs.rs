//! That an inode has no extended attributes comes with its other attributes, under a lock on that; and what that
//! lock covers besides.

use sheen_target::testing::TestWorld;
use sheen_types::{Fid, InodeBits, LockHandle, LockMode};
use sheen_wire::ldlm::{IntentOp, LdlmIntent, Policy};
use sheen_wire::md::MdtBody;
use sheen_wire::messages::{LdlmIntentGetattrReply, LdlmIntentGetxattr, Reply};

use super::harness::{Client, Server, run};
use crate::locks;

fn test<F>(seed: u64, body: impl FnOnce(Server) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let world = TestWorld::new(seed);
    let inner = world.clone();
    run(async move { body(Server::start(&inner, 1).await).await }, &world);
}

/// A lookup in the root that asks for `bits`.
async fn look_up(client: &Client, name: &str, bits: InodeBits) -> Box<LdlmIntentGetattrReply> {
    let mut request = client.lookup_request(Fid::ROOT, name);
    request.dlm_req.desc.policy = Policy::of_inode_bits(bits, InodeBits(0));
    let mine = request.dlm_req.handles[0];
    match client.inner.call(request).await.reply {
        Some(Reply::LdlmIntentGetattr(reply)) => {
            client.keep(mine, reply.dlm_rep.as_ref().expect("a lock").handle);
            reply
        }
        other => panic!("{other:?}"),
    }
}

/// Whether the MDT says that there are none, and covers it.
async fn is_said_absent(client: &Client, name: &str) -> bool {
    let reply = look_up(client, name, InodeBits::UPDATE | InodeBits::XATTR).await;
    let is_covered =
        locks::bits_of(reply.dlm_rep.as_ref().expect("a lock")).contains(InodeBits::XATTR);
    let is_said = reply.mdt_body.expect("attributes").xattr_absent & MdtBody::NO_XATTRS != 0;
    assert_eq!(is_covered, is_said, "{name}");
    is_said
}

#[test]
fn it_is_said_as_long_as_it_is_so() {
    test(310, |server| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let made = one.create(Fid::ROOT, "file").await.unwrap();
        one.close(&made).await.unwrap();
        let fid = made.body.fid1;
        assert!(is_said_absent(&two, "file").await);
        one.setxattr(fid, "user.x", Some(b"1"), 0).await.unwrap();
        assert!(!is_said_absent(&two, "file").await);
        one.setxattr(fid, "user.x", None, 2).await.unwrap();
        assert!(is_said_absent(&two, "file").await);
        one.setxattr(fid, "security.capability", Some(b"1"), 0).await.unwrap();
        assert!(!is_said_absent(&two, "file").await);
        let directory = one.mkdir(Fid::ROOT, "directory").await.unwrap();
        assert!(is_said_absent(&two, "directory").await);
        one.setxattr(directory, "trusted.x", Some(b"1"), 0).await.unwrap();
        assert!(!is_said_absent(&two, "directory").await);
        one.symlink(Fid::ROOT, "link").await.unwrap();
        assert!(is_said_absent(&two, "link").await);
    });
}

/// Its cache of extended attributes would count as filled.
#[test]
fn a_client_that_does_not_ask_for_the_lock_gets_none() {
    test(311, |server| async move {
        let one = server.client("one").await;
        let made = one.create(Fid::ROOT, "file").await.unwrap();
        one.close(&made).await.unwrap();
        let reply = look_up(&one, "file", InodeBits::UPDATE).await;
        let bits = locks::bits_of(reply.dlm_rep.as_ref().expect("a lock"));
        assert!(bits.contains(InodeBits::UPDATE) && !bits.contains(InodeBits::XATTR));
        assert_eq!(reply.mdt_body.expect("attributes").xattr_absent, 0);
    });
}

/// A lock on all extended attributes of an inode, which comes with them.
async fn lock_xattrs(client: &Client, fid: Fid) -> LockHandle {
    let dlm_req = client.dlm(fid, LockMode::Pr, InodeBits::XATTR);
    let mine = dlm_req.handles[0];
    let request = LdlmIntentGetxattr {
        dlm_req,
        ldlm_intent: LdlmIntent { opc: IntentOp::GETXATTR },
        mdt_body: client.body(fid),
        ..LdlmIntentGetxattr::default()
    };
    let Some(Reply::LdlmIntentGetxattr(reply)) = client.inner.call(request).await.reply else {
        panic!("all attributes");
    };
    let lock = reply.dlm_rep.expect("a lock").handle;
    client.keep(mine, lock);
    lock
}

/// `trusted.link` is one of them: another client's link, rename and unlink change it (sanity 154f).
#[test]
fn a_change_of_an_inodes_names_revokes_its_extended_attributes() {
    test(312, |server| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let made = one.create(Fid::ROOT, "a").await.unwrap();
        one.close(&made).await.unwrap();
        let fid = made.body.fid1;
        let is_held = |lock| server.node.target.namespace().lock(lock).is_some();
        let lock = lock_xattrs(&two, fid).await;
        assert!(is_held(lock));
        one.link(fid, Fid::ROOT, "b").await.unwrap();
        assert!(!is_held(lock), "link");
        let lock = lock_xattrs(&two, fid).await;
        one.rename((Fid::ROOT, "a"), (Fid::ROOT, "c")).await.unwrap();
        assert!(!is_held(lock), "rename");
        let lock = lock_xattrs(&two, fid).await;
        one.unlink(Fid::ROOT, "b").await.unwrap();
        assert!(!is_held(lock), "unlink");
        let lock = lock_xattrs(&two, fid).await;
        one.unlink(Fid::ROOT, "c").await.unwrap();
        assert!(is_held(lock), "there is nothing left to change");
    });
}
