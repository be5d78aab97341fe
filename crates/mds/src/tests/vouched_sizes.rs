//! Files with data on OSTs: the MDT vouches for their size exactly as long as it may.

use sheen_rpc::ImportState;
use sheen_target::testing::{TestCall, TestWorld};
use sheen_types::{Fid, InodeBits};
use sheen_wire::connect::{ConnectFlags2, ObdConnectData};
use sheen_wire::md::{AttrValid, Bias, MdsOpenFlags, MdtBody, Valid};
use sheen_wire::messages::{MdsDisconnect, MdsGetattr, Reply, Request};

use super::harness::{Client, Opened, Server, opened, run};
use super::layouts::swap;
use super::recovery::{crash, finish_recovery, manual, replay};

const WRITE: MdsOpenFlags = MdsOpenFlags::WRITE;
const READ: MdsOpenFlags = MdsOpenFlags::READ;
const SIZES: Valid = Valid(Valid::SIZE.0 | Valid::BLOCKS.0);
/// By when a file that was looked at is confirmed.
const SOON: u64 = 9;

fn test<F>(seed: u64, body: impl FnOnce(Server, TestWorld) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let world = TestWorld::new(seed);
    let inner = world.clone();
    run(async move { body(Server::start(&inner, 1).await, inner.clone()).await }, &world);
}

/// The size and blocks that the MDT vouches for.
async fn vouched(client: &Client, fid: Fid) -> Option<(u64, u64)> {
    let body = client.getattr(fid).await.expect("attributes");
    body.valid.contains(SIZES).then_some((body.size, body.blocks))
}

/// The same, after the file was looked at and there was time to ask the OSTs.
async fn vouched_soon(client: &Client, world: &TestWorld, fid: Fid) -> Option<(u64, u64)> {
    client.getattr(fid).await.expect("attributes");
    client.wait(world, SOON).await;
    vouched(client, fid).await
}

/// Closes what was written, as a client that knows of `size` bytes.
async fn close_written(client: &Client, opened: &Opened, size: u64) {
    let mut request = client.close_request(opened.body.fid1, opened.body.open_handle);
    let record = &mut request.rec_reint;
    record.bias = Bias::DATA_MODIFIED;
    record.valid = AttrValid::LSIZE | AttrValid::LBLOCKS;
    (record.size, record.blocks) = (size, 8);
    client.modify(request).await.expect("closed");
}

/// A file of 70 bytes, written and closed.
async fn written(server: &Server, client: &Client, name: &str) -> Fid {
    server.osts[0].write(70, 8, 1000);
    let made = client.create(Fid::ROOT, name).await.expect("made");
    close_written(client, &made, 70).await;
    made.body.fid1
}

/// How often OSTs were asked to have clients flush an object, and to make one durable.
fn asked(server: &Server) -> (u32, u32) {
    let state = server.osts[0].state.lock();
    (state.flushes, state.syncs)
}

#[test]
fn a_closed_file_that_is_looked_at_is_confirmed_once() {
    test(340, |server, world| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let made = one.create(Fid::ROOT, "f").await.unwrap();
        let fid = made.body.fid1;
        assert_eq!(vouched_soon(&two, &world, fid).await, None, "it is open for writing");
        server.osts[0].write(70, 8, 1000);
        // The client's hint need not be right.
        close_written(&one, &made, 60).await;
        two.wait(&world, SOON).await;
        assert_eq!(asked(&server), (0, 0), "no client has looked at it");
        let body = two.getattr(fid).await.unwrap();
        assert!(!body.valid.intersects(SIZES) && body.valid.contains(Valid::LAZYSIZE));
        assert_eq!(body.size, 60);
        two.wait(&world, SOON).await;
        assert_eq!(vouched(&two, fid).await, Some((70, 8)));
        let (_, reply) = two.lookup(Fid::ROOT, "f").await;
        assert!(reply.mdt_body.unwrap().valid.contains(SIZES | Valid::EASIZE));
        let reader = two.open(Fid::ROOT, "f", READ).await.unwrap();
        assert!(reader.body.valid.contains(SIZES), "with an open, too");
        two.close(&reader).await.unwrap();
        assert_eq!(vouched_soon(&two, &world, fid).await, Some((70, 8)));
        assert_eq!(asked(&server), (1, 1));
        let som = two.getxattr(fid, "trusted.som").await.unwrap();
        assert_eq!((&som[..8], som[8]), (&[1, 0, 0, 0, 0, 0, 0, 0][..], 70), "strict, for Lustre");
    });
}

#[test]
fn times_that_the_objects_have_are_the_file_s() {
    test(341, |server, world| async move {
        let one = server.client("one").await;
        let made = one.create(Fid::ROOT, "f").await.unwrap();
        close_written(&one, &made, 70).await;
        let fid = made.body.fid1;
        server.osts[0].write(70, 8, 5000);
        assert_eq!(vouched_soon(&one, &world, fid).await, Some((70, 8)));
        let body = one.getattr(fid).await.unwrap();
        assert_eq!((body.mtime, body.ctime), (5000, 5000));
        one.setattr(fid, AttrValid::MTIME | AttrValid::MTIME_SET | AttrValid::CTIME, |record| {
            (record.mtime, record.ctime) = (2000, 6000);
        })
        .await
        .unwrap();
        let body = one.getattr(fid).await.unwrap();
        assert_eq!((body.valid.contains(SIZES), body.mtime), (true, 2000));
    });
}

#[test]
fn an_open_for_writing_ends_it_before_it_is_answered_and_its_close_begins_it_anew() {
    test(342, |server, world| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let fid = written(&server, &one, "f").await;
        assert_eq!(vouched_soon(&two, &world, fid).await, Some((70, 8)));
        let (_, reply) = two.lookup(Fid::ROOT, "f").await;
        let bits = InodeBits(reply.dlm_rep.expect("a lock").desc.policy.as_inode_bits().bits);
        assert!(bits.contains(InodeBits::UPDATE), "the size is under a lock");
        let _ = two.inner.callbacks();
        let writer = one.open(Fid::ROOT, "f", WRITE).await.unwrap();
        assert!(!writer.body.valid.intersects(SIZES));
        let callbacks = two.inner.callbacks();
        let is_blocking = |request: &Request| matches!(request, Request::LdlmBlCallback(_));
        assert!(callbacks.iter().any(is_blocking), "{callbacks:?}");
        assert_eq!(vouched_soon(&two, &world, fid).await, None);
        two.lookup(Fid::ROOT, "f").await;
        let second = two.open(Fid::ROOT, "f", WRITE).await.unwrap();
        assert!(two.inner.callbacks().is_empty(), "no client has a size");
        close_written(&one, &writer, 90).await;
        assert_eq!(vouched_soon(&one, &world, fid).await, None, "still open for writing");
        server.osts[0].write(90, 16, 1010);
        close_written(&two, &second, 80).await;
        assert_eq!(vouched_soon(&one, &world, fid).await, Some((90, 16)));
        // Nothing was written after all.
        let writer = one.open(Fid::ROOT, "f", WRITE).await.unwrap();
        one.close(&writer).await.unwrap();
        assert_eq!(vouched_soon(&two, &world, fid).await, Some((90, 16)));
        assert_eq!(asked(&server), (3, 3));
    });
}

#[test]
fn what_osts_say_does_not_count_if_the_file_was_open_for_writing_meanwhile() {
    test(343, |server, world| async move {
        let one = server.client("one").await;
        let fid = written(&server, &one, "f").await;
        let disk = server.osts[0].disk.clone().lock_owned().await;
        assert_eq!(vouched_soon(&one, &world, fid).await, None);
        assert_eq!(asked(&server), (1, 1), "it is being asked");
        let writer = one.open(Fid::ROOT, "f", WRITE).await.unwrap();
        close_written(&one, &writer, 90).await;
        drop(disk);
        one.wait(&world, SOON).await;
        assert_eq!(vouched(&one, fid).await, None, "the answer is of before");
        server.osts[0].write(90, 8, 1010);
        assert_eq!(vouched_soon(&one, &world, fid).await, Some((90, 8)));
    });
}

#[test]
fn a_cut_ends_it_for_good_unless_it_is_a_writer_s() {
    test(344, |server, world| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let fid = written(&server, &one, "f").await;
        assert_eq!(vouched_soon(&one, &world, fid).await, Some((70, 8)));
        one.setattr(fid, AttrValid::MODE, |record| record.mode = 0o600).await.unwrap();
        assert_eq!(vouched(&one, fid).await, Some((70, 8)), "a mode is no size");
        two.lookup(Fid::ROOT, "f").await;
        let _ = two.inner.callbacks();
        // As an open with O_TRUNC.
        let writer = one.open(Fid::ROOT, "f", WRITE).await.unwrap();
        let by_open = AttrValid::SIZE | AttrValid::FROM_OPEN | AttrValid::OVERRIDE;
        one.setattr(fid, by_open, |record| record.size = 10).await.unwrap();
        assert!(!two.inner.callbacks().is_empty());
        server.osts[0].write(10, 8, 1010);
        close_written(&one, &writer, 10).await;
        assert_eq!(vouched_soon(&two, &world, fid).await, Some((10, 8)));
        // By its name: when the client comes to the OSTs, no one knows.
        two.lookup(Fid::ROOT, "f").await;
        let _ = two.inner.callbacks();
        one.setattr(fid, AttrValid::SIZE, |record| record.size = 5).await.unwrap();
        assert!(!two.inner.callbacks().is_empty(), "clients that have the size ask again");
        assert_eq!(vouched_soon(&two, &world, fid).await, None);
        let writer = one.open(Fid::ROOT, "f", WRITE).await.unwrap();
        close_written(&one, &writer, 5).await;
        assert_eq!(vouched_soon(&two, &world, fid).await, None);
        // While another client has it open, and claims nothing that is not so.
        let fid = written(&server, &one, "g").await;
        let writer = one.open(Fid::ROOT, "g", WRITE).await.unwrap();
        two.setattr(fid, by_open, |record| record.size = 5).await.unwrap();
        close_written(&one, &writer, 5).await;
        assert_eq!(vouched_soon(&two, &world, fid).await, None);
    });
}

#[test]
fn a_writer_that_is_lost_may_write_still() {
    test(345, |server, world| async move {
        let two = server.client("two").await;
        let mut files = Vec::new();
        for name in ["left", "evicted"] {
            let one = server.client(name).await;
            let fid = written(&server, &two, name).await;
            assert_eq!(vouched_soon(&two, &world, fid).await, Some((70, 8)));
            one.open(Fid::ROOT, name, WRITE).await.unwrap();
            if name == "left" {
                one.inner.call(MdsDisconnect::default()).await;
            }
            files.push((name, fid));
        }
        // It is silent until it is evicted.
        two.wait(&world, 60).await;
        assert_eq!(server.mdt.open_count(), 0, "its opens are closed");
        for (name, fid) in files {
            assert_eq!(vouched_soon(&two, &world, fid).await, None);
            let writer = two.open(Fid::ROOT, name, WRITE).await.unwrap();
            close_written(&two, &writer, 70).await;
            assert_eq!(vouched_soon(&two, &world, fid).await, None, "nor after another writer");
        }
    });
}

#[test]
fn other_data_has_another_size() {
    test(346, |server, world| async move {
        let one = server.client("one").await;
        let first = written(&server, &one, "f").await;
        assert_eq!(vouched_soon(&one, &world, first).await, Some((70, 8)));
        server.osts[0].write(90, 8, 1000);
        let made = one.create(Fid::ROOT, "g").await.unwrap();
        let second = made.body.fid1;
        close_written(&one, &made, 90).await;
        server.osts[0].write(80, 8, 1000);
        one.modify(swap(&one, first, second)).await.expect("exchanged");
        assert_eq!(one.getattr(second).await.unwrap().size, 70, "the hint goes along");
        for fid in [first, second] {
            assert_eq!(vouched(&one, fid).await, None);
        }
        for fid in [first, second] {
            assert_eq!(vouched_soon(&one, &world, fid).await, Some((80, 8)), "asked anew");
        }
        // One whose writer is lost takes the other along.
        let made = server.client("lost").await.create(Fid::ROOT, "h").await.unwrap();
        let third = made.body.fid1;
        one.wait(&world, 60).await;
        assert_eq!(server.mdt.open_count(), 0);
        one.modify(swap(&one, first, third)).await.expect("exchanged");
        for fid in [first, third] {
            assert_eq!(vouched_soon(&one, &world, fid).await, None);
        }
        // One that is being written is closed when its writer closes it.
        let made = one.create(Fid::ROOT, "i").await.unwrap();
        one.modify(swap(&one, second, made.body.fid1)).await.expect("exchanged");
        assert_eq!(vouched_soon(&one, &world, made.body.fid1).await, None);
        close_written(&one, &made, 80).await;
        for fid in [second, made.body.fid1] {
            assert_eq!(vouched_soon(&one, &world, fid).await, Some((80, 8)));
        }
    });
}

#[test]
fn an_ost_that_is_away_is_not_waited_for() {
    test(347, |server, world| async move {
        let one = server.client("one").await;
        let fid = written(&server, &one, "f").await;
        server.osts[0].state.lock().import = ImportState::Disconn;
        assert_eq!(vouched_soon(&one, &world, fid).await, None);
        assert_eq!(asked(&server), (0, 0));
        server.osts[0].state.lock().import = ImportState::Full;
        assert_eq!(vouched_soon(&one, &world, fid).await, Some((70, 8)));
    });
}

#[test]
fn clients_of_lustre_get_hints() {
    test(348, |server, world| async move {
        let one = server.client("one").await;
        let fid = written(&server, &one, "f").await;
        let agreed = one.inner.agreed();
        let flags2 = agreed.flags2.without(ConnectFlags2::OWN_NAMES);
        let lustre = server.client("lustre").await;
        lustre.inner.connect_with(ObdConnectData { flags2, ..agreed }).await.unwrap();
        assert_eq!(vouched_soon(&lustre, &world, fid).await, None);
        assert_eq!(asked(&server), (0, 0), "they have none confirmed");
        assert_eq!(vouched_soon(&one, &world, fid).await, Some((70, 8)));
        let body = lustre.getattr(fid).await.unwrap();
        assert!(!body.valid.intersects(SIZES) && body.valid.contains(Valid::LAZYSIZE));
        let mdt_body = MdtBody { eadatasize: 0, ..lustre.body(fid) };
        let answer = lustre.inner.call(MdsGetattr { mdt_body, ..MdsGetattr::default() }).await;
        let Some(Reply::MdsGetattr(reply)) = answer.reply else { panic!("{answer:?}") };
        let hints = Valid::LAZYSIZE | Valid::LAZYBLOCKS;
        assert!(!reply.mdt_body.unwrap().valid.intersects(hints), "none without the layout");
        // Their opens end it as ours do.
        let writer = lustre.open(Fid::ROOT, "f", WRITE).await.unwrap();
        assert_eq!(vouched_soon(&one, &world, fid).await, None);
        lustre.close(&writer).await.unwrap();
        assert_eq!(vouched_soon(&one, &world, fid).await, Some((70, 8)));
    });
}

/// The server dies, and all clients of before come back.
async fn restarted(world: &TestWorld, server: Server, client: &Client) -> (Server, Client) {
    let (server, client) = crash(world, server, client).await;
    finish_recovery(&client).await;
    client.wait(world, 3).await;
    (server, client)
}

#[test]
fn it_outlives_a_restart_from_which_all_clients_come_back() {
    test(349, |server, world| async move {
        let one = server.client("one").await;
        let fid = written(&server, &one, "f").await;
        let closed = written(&server, &one, "g").await;
        assert_eq!(vouched_soon(&one, &world, fid).await, Some((70, 8)));
        let (server, one) = restarted(&world, server, &one).await;
        assert_eq!(vouched(&one, fid).await, Some((70, 8)));
        assert_eq!(vouched_soon(&one, &world, closed).await, Some((70, 8)));
        let (server, one) = restarted(&world, server, &one).await;
        assert_eq!(vouched(&one, fid).await, Some((70, 8)));
        let writer = one.open(Fid::ROOT, "f", WRITE).await.unwrap();
        close_written(&one, &writer, 70).await;
        assert_eq!(vouched_soon(&one, &world, fid).await, Some((70, 8)));
        server.check();
    });
}

#[test]
fn a_client_that_is_lost_with_a_restart_may_have_had_any_file_open() {
    test(350, |server, world| async move {
        let (one, two) = (server.client("one").await, server.client("two").await);
        let fid = written(&server, &one, "f").await;
        assert_eq!(vouched_soon(&one, &world, fid).await, Some((70, 8)));
        let (server, one) = crash(&world, server, &one).await;
        finish_recovery(&one).await;
        // `two` does not come back.
        drop(two);
        one.wait(&world, 90).await;
        assert_eq!(vouched_soon(&one, &world, fid).await, None);
        let writer = one.open(Fid::ROOT, "f", WRITE).await.unwrap();
        close_written(&one, &writer, 70).await;
        assert_eq!(vouched_soon(&one, &world, fid).await, None, "it may be writing still");
        let new = written(&server, &one, "new").await;
        assert_eq!(vouched_soon(&one, &world, new).await, Some((70, 8)));
        let (server, one) = restarted(&world, server, &one).await;
        assert_eq!(vouched(&one, fid).await, None);
        assert_eq!(vouched(&one, new).await, Some((70, 8)));
        drop(server);
    });
}

#[test]
fn a_replayed_open_for_writing_ends_it_too() {
    let world = TestWorld::new(352);
    let inner = world.clone();
    let body = async move {
        let osts = vec![super::fake_ost::FakeOst::new()];
        let server = Server::start_on(&inner, manual(), osts).await;
        let one = server.client("one").await;
        let fid = written(&server, &one, "f").await;
        assert_eq!(vouched_soon(&one, &inner, fid).await, Some((70, 8)));
        sheen_store::Store::commit(&*server.store).unwrap();
        let mut open = one.open_request(Fid::ROOT, "f", WRITE);
        let first = one.inner.call_with(TestCall::new(open.clone()).tagged(1)).await.unwrap();
        let before = opened(first.clone()).unwrap();
        // The open is lost, and what it ended with it.
        let (server, one) = crash(&inner, server, &one).await;
        open.rec_reint.fid2 = fid;
        open.rec_reint.open_handle_old = before.body.open_handle;
        opened(replay(&one, open.into(), &first).await).unwrap();
        finish_recovery(&one).await;
        one.wait(&inner, 3).await;
        assert_eq!(vouched_soon(&one, &inner, fid).await, None);
        drop(server);
    };
    run(body, &world);
}

/// `one` makes a file and `two` writes it, too; neither is durable. `two` is evicted in the recovery, which a crash ends:
/// it believes that it has the file open, and `one` alone replays its open.
#[test]
fn a_client_that_was_lost_in_a_recovery_that_a_crash_ended_may_write_still() {
    let world = TestWorld::new(354);
    let inner = world.clone();
    let body = async move {
        let osts = vec![super::fake_ost::FakeOst::new()];
        let server = Server::start_on(&inner, manual(), osts).await;
        let (one, two) = (server.client("one").await, server.client("two").await);
        let known = written(&server, &one, "known").await;
        assert_eq!(vouched_soon(&one, &inner, known).await, Some((70, 8)));
        sheen_store::Store::commit(&*server.store).unwrap();
        let mut open = one.open_request(Fid::ROOT, "f", MdsOpenFlags::CREAT | WRITE);
        let first = one.inner.call_with(TestCall::new(open.clone()).tagged(1)).await.unwrap();
        let before = opened(first.clone()).unwrap();
        two.open(Fid::ROOT, "f", WRITE).await.unwrap();
        let (server, one) = crash(&inner, server, &one).await;
        assert_eq!(server.node.target.evict_client("two").await, 1);
        let (server, one) = crash(&inner, server, &one).await;
        open.eadata = before.layout.clone();
        open.rec_reint.fid2 = before.body.fid1;
        open.rec_reint.open_handle_old = before.body.open_handle;
        opened(replay(&one, open.into(), &first).await).unwrap();
        finish_recovery(&one).await;
        one.wait(&inner, 3).await;
        assert_eq!(vouched_soon(&one, &inner, known).await, None, "the era has ended");
        close_written(&one, &before, 70).await;
        assert_eq!(vouched_soon(&one, &inner, before.body.fid1).await, None);
        let new = written(&server, &one, "new").await;
        assert_eq!(vouched_soon(&one, &inner, new).await, Some((70, 8)));
    };
    run(body, &world);
}

#[test]
fn an_administrator_says_that_sizes_are_in_doubt() {
    test(353, |server, world| async move {
        let one = server.client("one").await;
        let fid = written(&server, &one, "f").await;
        let made = one.create(Fid::ROOT, "open").await.unwrap();
        assert_eq!(vouched_soon(&one, &world, fid).await, Some((70, 8)));
        server.mdt.set_vouches_for_sizes(true).unwrap();
        assert_eq!(vouched(&one, fid).await, Some((70, 8)), "it was on");
        server.mdt.set_vouches_for_sizes(false).unwrap();
        assert_eq!(vouched_soon(&one, &world, fid).await, None);
        server.mdt.set_vouches_for_sizes(true).unwrap();
        assert!(server.mdt.vouches_for_sizes());
        close_written(&one, &made, 70).await;
        for fid in [fid, made.body.fid1] {
            assert_eq!(vouched_soon(&one, &world, fid).await, None);
        }
        let new = written(&server, &one, "new").await;
        assert_eq!(vouched_soon(&one, &world, new).await, Some((70, 8)));
    });
}
