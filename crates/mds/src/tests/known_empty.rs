//! Files that were never written: the MDT vouches for their size exactly as long as it may.

use std::sync::Arc;

use sheen_store_mem::StoreMem;
use sheen_target::testing::{TestCall, TestWorld};
use sheen_types::{Fid, InodeBits};
use sheen_wire::md::{AttrValid, Bias, MdsOpenFlags, Valid};
use sheen_wire::messages::{MdsDisconnect, ObdPing, Request};
use sheen_wire::ptlrpc::MsgFlags;

use super::harness::{Client, Opened, Server, opened, run};

const WRITE: MdsOpenFlags = MdsOpenFlags::WRITE;
const SIZES: Valid = Valid(Valid::SIZE.0 | Valid::BLOCKS.0);

fn test<F>(seed: u64, body: impl FnOnce(Server, TestWorld) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let world = TestWorld::new(seed);
    let inner = world.clone();
    run(async move { body(Server::start(&inner, 1).await, inner.clone()).await }, &world);
}

/// Whether the MDT vouches for a size of 0.
async fn is_vouched(client: &Client, fid: Fid) -> bool {
    let body = client.getattr(fid).await.expect("attributes");
    let is_vouched = body.valid.contains(SIZES);
    assert!(!is_vouched || (body.size, body.blocks) == (0, 0));
    is_vouched
}

/// A file that was made, opened for writing and left alone.
async fn touched(client: &Client, name: &str) -> Fid {
    let made = client.create(Fid::ROOT, name).await.expect("made");
    client.close(&made).await.expect("closed");
    made.body.fid1
}

async fn close_modified(client: &Client, opened: &Opened) {
    let mut request = client.close_request(opened.body.fid1, opened.body.open_handle);
    request.rec_reint.bias = Bias::DATA_MODIFIED;
    client.modify(request).await.expect("closed");
}

#[test]
fn an_empty_file_is_vouched_for_from_its_last_close_on() {
    test(300, |server, _| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let made = one.create(Fid::ROOT, "f").await.unwrap();
        let fid = made.body.fid1;
        assert!(!made.body.valid.intersects(SIZES), "not to a client that may write it");
        assert!(!is_vouched(&two, fid).await, "it is open for writing");
        let second = two.open(Fid::ROOT, "f", WRITE).await.unwrap();
        one.close(&made).await.unwrap();
        assert!(!is_vouched(&one, fid).await, "still open for writing");
        two.close(&second).await.unwrap();
        assert!(is_vouched(&one, fid).await);
        let (_, reply) = two.lookup(Fid::ROOT, "f").await;
        assert!(reply.mdt_body.unwrap().valid.contains(SIZES | Valid::EASIZE));
        let reader = two.open(Fid::ROOT, "f", MdsOpenFlags::READ).await.unwrap();
        assert!(is_vouched(&one, fid).await, "readers do not matter");
        two.close(&reader).await.unwrap();
        assert!(is_vouched(&one, fid).await);
    });
}

#[test]
fn a_file_that_may_have_been_written_is_not() {
    test(301, |server, _| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        // By what a close says.
        let made = one.create(Fid::ROOT, "modified").await.unwrap();
        close_modified(&one, &made).await;
        assert!(!is_vouched(&two, made.body.fid1).await);
        let again = one.open(Fid::ROOT, "modified", WRITE).await.unwrap();
        one.close(&again).await.unwrap();
        assert!(!is_vouched(&two, made.body.fid1).await, "never again");
        // By one of several writers.
        let made = one.create(Fid::ROOT, "shared").await.unwrap();
        let second = two.open(Fid::ROOT, "shared", WRITE).await.unwrap();
        close_modified(&two, &second).await;
        one.close(&made).await.unwrap();
        assert!(!is_vouched(&two, made.body.fid1).await);
        // By a size: that is how Lustre's clients close what they had open for writing.
        let made = one.create(Fid::ROOT, "sized").await.unwrap();
        let mut request = one.close_request(made.body.fid1, made.body.open_handle);
        request.rec_reint.valid = AttrValid::LSIZE | AttrValid::LBLOCKS;
        one.modify(request).await.unwrap();
        assert!(!is_vouched(&two, made.body.fid1).await);
    });
}

#[test]
fn truncates_end_it() {
    test(302, |server, _| async move {
        let one = server.client("one").await;
        let fid = touched(&one, "f").await;
        one.setattr(fid, AttrValid::MODE, |record| record.mode = 0o600).await.unwrap();
        assert!(is_vouched(&one, fid).await, "a mode is no size");
        let body = one.setattr(fid, AttrValid::SIZE, |record| record.size = 10).await.unwrap();
        assert!(!body.valid.intersects(SIZES));
        assert!(!is_vouched(&one, fid).await);
        // While it is open, too.
        let made = one.create(Fid::ROOT, "g").await.unwrap();
        one.setattr(made.body.fid1, AttrValid::SIZE, |record| record.size = 10).await.unwrap();
        one.close(&made).await.unwrap();
        assert!(!is_vouched(&one, made.body.fid1).await);
    });
}

#[test]
fn an_open_for_writing_revokes_the_locks_of_other_clients_once() {
    test(303, |server, _| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        touched(&one, "f").await;
        let (_, reply) = two.lookup(Fid::ROOT, "f").await;
        let lock = reply.dlm_rep.expect("a lock");
        let bits = InodeBits(lock.desc.policy.as_inode_bits().bits);
        assert!(bits.contains(InodeBits::UPDATE), "the size is under a lock");
        let _ = two.inner.callbacks();
        let writer = one.open(Fid::ROOT, "f", WRITE).await.unwrap();
        let callbacks = two.inner.callbacks();
        let is_blocking = |request: &Request| matches!(request, Request::LdlmBlCallback(_));
        assert!(callbacks.iter().any(is_blocking), "{callbacks:?}");
        assert!(!is_vouched(&two, writer.body.fid1).await);
        two.lookup(Fid::ROOT, "f").await;
        let again = one.open(Fid::ROOT, "f", WRITE).await.unwrap();
        assert!(two.inner.callbacks().is_empty(), "no client believes that it is empty");
        one.close(&again).await.unwrap();
        one.close(&writer).await.unwrap();
        assert!(is_vouched(&two, writer.body.fid1).await, "no client has written after all");
    });
}

#[test]
fn a_writer_that_is_lost_may_have_written() {
    test(304, |server, world| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let made = one.create(Fid::ROOT, "left").await.unwrap();
        one.inner.call(MdsDisconnect::default()).await;
        assert!(!is_vouched(&two, made.body.fid1).await);
        let three = server.client("three").await;
        let made = three.create(Fid::ROOT, "evicted").await.unwrap();
        // `three` is silent until it is evicted.
        two.wait(&world, 60).await;
        assert_eq!(server.mdt.open_count(), 0, "its opens are closed");
        assert!(!is_vouched(&two, made.body.fid1).await);
    });
}

#[test]
fn a_restart_forgets_which_files_are_known_to_be_empty() {
    test(305, |server, world| async move {
        let one = server.client("one").await;
        let known = touched(&one, "f").await;
        assert!(is_vouched(&one, known).await);
        let open = one.open_request(Fid::ROOT, "g", MdsOpenFlags::CREAT | WRITE);
        let call = TestCall::new(open.clone()).tagged(2);
        let first = one.inner.call_with(call).await.unwrap();
        let before = opened(first.clone()).unwrap();
        let store: Arc<StoreMem> = Arc::new(server.store.crash());
        let osts = server.osts.clone();
        drop(server);
        let server = Server::start_on(&world, store, osts).await;
        let inner = one.inner.follow(&server.node);
        inner.connect().await.expect("reconnects");
        let one = one.with(inner);
        let mut open = open;
        open.eadata = before.layout.clone();
        open.rec_reint.open_handle_old = before.body.open_handle;
        let call = TestCall::new(open).tagged(2).replayed(first.xid, first.head.transno);
        one.inner.call_with(call).await.expect("replayed");
        for flags in [MsgFlags::REQ_REPLAY_DONE, MsgFlags::LOCK_REPLAY_DONE] {
            let call = TestCall { flags, ..TestCall::new(ObdPing::default()) };
            one.inner.call_with(call).await.expect("an answer");
        }
        one.wait(&world, 30).await;
        one.close(&before).await.unwrap();
        assert!(!is_vouched(&one, known).await, "its other writers may be lost");
        assert!(!is_vouched(&one, before.body.fid1).await, "and this one's");
        let new = touched(&one, "h").await;
        assert!(is_vouched(&one, new).await);
    });
}
