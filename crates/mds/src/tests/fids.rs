//! Which FIDs a client may name, for what is there and for what it makes.

use std::sync::Arc;

use sheen_store::{Store, Transaction};
use sheen_store_mem::{Commits, MemOptions, StoreMem};
use sheen_target::testing::{TestCall, TestWorld};
use sheen_types::{Errno, Fid, Nid, Transno, Xid, fid_seq};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use sheen_wire::md::{AttrValid, MdsOpenFlags};
use sheen_wire::messages::{
    MdsReadpage, MdsReintCreate, MdsSync, OstGetattr, OstWrite, Reply, Request, SeqQuery,
};
use sheen_wire::ost::{Obdo, OstBody, OstId};

use super::fake_ost::FakeOst;
use super::harness::{Client, DIRECTORY, REGULAR, Server, run};
use super::recovery::{crash, finish_recovery, manual, replay};

/// Another node than that of most clients here.
const FAR: Nid = Nid(0x2_0000_0a00_0063);

const INVALID: Result<(), Errno> = Err(Errno::EINVAL);

/// What lies in the MDT's store besides inodes, or could.
const INTERNAL: [Fid; 10] = [
    Fid::new(fid_seq::LOCAL_FILE, 11),
    Fid::new(fid_seq::LOCAL_FILE, 21),
    Fid::new(fid_seq::LOCAL_FILE, 0x200),
    Fid::new(fid_seq::LOCAL_FILE, 0x201),
    Fid::new(fid_seq::LOCAL_FILE, 0x204),
    Fid::new(fid_seq::LOCAL_FILE, 0x206),
    Fid::new(fid_seq::LLOG, 1),
    Fid::new(fid_seq::ECHO, 1),
    Fid::new(fid_seq::IDIF, 1),
    Fid::new(0, 0x6c65_6e74),
];

#[test]
fn what_is_no_inode_may_not_be_named() {
    let world = TestWorld::new(330);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let file = client.make(Fid::ROOT, "f", REGULAR | 0o644).await.unwrap();
            for fid in INTERNAL {
                // Even if it were an object with attributes.
                let mut transaction = Transaction::new();
                transaction.create(fid, Default::default());
                server.store.apply(transaction).unwrap();
                let mode = |record: &mut sheen_wire::md::RecSetattr| record.mode = 0o777;
                let refused = |done: Result<(), Errno>| assert_eq!(done, INVALID, "{fid}");
                refused(client.getattr(fid).await.map(drop));
                refused(client.setattr(fid, AttrValid::MODE, mode).await.map(drop));
                refused(client.getxattr(fid, "user.x").await.map(drop));
                refused(client.setxattr(fid, "user.x", Some(b"1"), 0).await);
                refused(client.open_fid(fid, MdsOpenFlags::READ).await.map(drop));
                refused(client.open(fid, "x", MdsOpenFlags::READ).await.map(drop));
                refused(client.create(fid, "x").await.map(drop));
                refused(client.mkdir(fid, "x").await.map(drop));
                refused(client.unlink(fid, "x").await);
                refused(client.link(fid, Fid::ROOT, "x").await);
                refused(client.link(file, fid, "x").await);
                refused(client.rename((fid, "x"), (Fid::ROOT, "y")).await);
                refused(client.rename((Fid::ROOT, "f"), (fid, "y")).await);
                let (_, found) = client.lookup(fid, "x").await;
                assert_eq!(found.dlm_rep.unwrap().policy_res2 as u32 as i32, -22, "{fid}");
                let mdt_body = sheen_wire::md::MdtBody { nlink: 4096, ..client.body(fid) };
                let pages = MdsReadpage { mdt_body, ..MdsReadpage::default() };
                refused(client.modify(pages).await.map(drop));
                let sync = MdsSync { mdt_body: client.body(fid), ..MdsSync::default() };
                refused(client.modify(sync).await.map(drop));
                let oa = Obdo { oi: OstId { word0: fid.seq, word1: 1 }, ..Obdo::default() };
                let ost_body = OstBody { oa };
                let data = OstGetattr { ost_body: ost_body.clone(), ..Default::default() };
                assert!(client.modify(data).await.is_err(), "{fid}");
                let data = OstWrite { ost_body, ..OstWrite::default() };
                assert!(client.modify(data).await.is_err(), "{fid}");
                let mut transaction = Transaction::new();
                transaction.destroy(fid);
                server.store.apply(transaction).unwrap();
            }
        },
        &world,
    );
}

fn made_as(client: &Client, fid: Fid, name: &str) -> MdsReintCreate {
    let mut request = client.create_request(Fid::ROOT, name, DIRECTORY | 0o755);
    request.rec_reint.fid2 = fid;
    request
}

async fn volatile(client: &Client, fid: Fid) -> Result<(), Errno> {
    let flags = MdsOpenFlags::CREAT | MdsOpenFlags::WRITE | MdsOpenFlags::VOLATILE;
    let mut request = client.open_request(Fid::ROOT, "v", flags);
    request.rec_reint.fid2 = fid;
    let answer = client.inner.call_with(TestCall::new(request).tagged(1)).await.unwrap();
    super::harness::opened(answer).map(drop)
}

async fn created(client: &Client, fid: Fid, name: &str) -> Result<(), Errno> {
    let mut request =
        client.open_request(Fid::ROOT, name, MdsOpenFlags::CREAT | MdsOpenFlags::WRITE);
    request.rec_reint.fid2 = fid;
    let answer = client.inner.call_with(TestCall::new(request).tagged(1)).await.unwrap();
    super::harness::opened(answer).map(drop)
}

#[test]
fn a_client_makes_inodes_in_its_own_sequences() {
    let world = TestWorld::new(331);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let (client, other) = (server.client("c").await, server.client_at("other", FAR).await);
            let own = client.sequence;
            let foreign = [
                Fid::new(fid_seq::ROOT, 2),
                Fid::new(fid_seq::DOT_LUSTRE, 1),
                Fid::new(fid_seq::LOCAL_FILE, 0x300),
                Fid::new(fid_seq::NORMAL, 1),
                Fid::new(own + 1000, 1),
                Fid::new(own + (1 << 30), 1),
                Fid::new(own + (1 << 31), 1),
                Fid::new(other.sequence, 77),
                Fid::new(own, 0),
                Fid { ver: 1, ..Fid::new(own, 99) },
            ];
            for fid in foreign {
                let made = client.modify(made_as(&client, fid, "d")).await.map(drop);
                assert_eq!(made, INVALID, "{fid}");
                assert_eq!(created(&client, fid, "f").await, INVALID, "{fid}");
                assert_eq!(volatile(&client, fid).await, INVALID, "{fid}");
            }
            client.mkdir(Fid::ROOT, "mine").await.unwrap();
            other.mkdir(Fid::ROOT, "another").await.unwrap();
            // So may another client of its node, and the client from another node.
            let beside = server.client("beside").await;
            beside.modify(made_as(&beside, client.next_fid(), "shared")).await.unwrap();
            let moved = client.inner.stolen(Nid(FAR.0 + 1));
            moved.connect().await.unwrap();
            client.with(moved).mkdir(Fid::ROOT, "moved").await.unwrap();
            // Not one that only claims to be at that node.
            let claims = server.node.client("claims");
            claims.claim_from(Nid(FAR.0 + 2));
            let claims = server.begin(claims).await;
            let made = claims.modify(made_as(&claims, client.next_fid(), "claimed")).await;
            assert_eq!(made.map(drop), INVALID);
            // A client that was evicted goes on in its sequence.
            server.node.target.evict_client("c").await;
            client.inner.connect().await.unwrap();
            client.mkdir(Fid::ROOT, "again").await.unwrap();
            server.check();
        },
        &world,
    );
}

#[test]
fn sequences_of_before_a_restart_are_still_good_and_later_ones_not_yet() {
    let world = TestWorld::new(332);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            let request = made_as(&client, client.next_fid(), "lost");
            let call = TestCall::new(request.clone()).tagged(1);
            let first = client.inner.call_with(call).await.unwrap();
            assert_eq!(first.errno(), None);
            let (server, client) = crash(&inner, server, &client).await;
            assert_eq!(replay(&client, request.into(), &first).await.errno(), None);
            finish_recovery(&client).await;
            client.mkdir(Fid::ROOT, "after").await.unwrap();
            let beyond = Fid::new(client.sequence + 5000, 1);
            assert_eq!(client.modify(made_as(&client, beyond, "d")).await.map(drop), INVALID);
            server.check();
        },
        &world,
    );
}

#[test]
fn super_ranges_are_for_servers() {
    let world = TestWorld::new(333);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.client("c").await;
            let ask = |index, flags| {
                let seq_range = LuSeqRange { index, flags, ..LuSeqRange::default() };
                Request::from(SeqQuery { seq_opc: 0, seq_range, ..SeqQuery::default() })
            };
            let refused = client.inner.call(ask(9, SeqRangeFlags::OST)).await.errno();
            assert_eq!(refused, Some(Errno::EPERM));
            let ost = server.node.connect_server("lustre-OST0009_UUID").await;
            let refused = ost.call(ask(1 << 20, SeqRangeFlags::OST)).await.errno();
            assert_eq!(refused, Some(Errno::EINVAL), "no target has such a number");
            let given = ost.call(ask(9, SeqRangeFlags::OST)).await.reply;
            let Some(Reply::SeqQuery(given)) = given else { panic!("a range") };
            assert_eq!(given.seq_range.unwrap().index, 9);
        },
        &world,
    );
}

#[test]
fn no_sequence_comes_out_of_another_targets_range() {
    let world = TestWorld::new(336);
    let inner = world.clone();
    run(
        async move {
            let options = MemOptions { commits: Commits::Immediate, ..MemOptions::default() };
            let store = Arc::new(StoreMem::new(options));
            // As if nearly all of its range were given out, and an OST had the next one.
            let server = Server::start_on(&inner, Arc::clone(&store), vec![FakeOst::new()]).await;
            let own = server.mdt.sequences.of(0, SeqRangeFlags::MDT).unwrap();
            let ost = server.mdt.sequences.of(7, SeqRangeFlags::OST).unwrap();
            assert!(ost.start >= own.end);
            crate::sequences::note_used(&*store, own.end - 3).unwrap();
            drop(server);
            let server = Server::start_on(&inner, store, vec![FakeOst::new()]).await;
            let mut given = Vec::new();
            for n in 0..4 {
                given.push(server.client(&format!("c{n}")).await);
            }
            let all: Vec<u64> = given.iter().map(|client| client.sequence).collect();
            assert_eq!(all[..2], [own.end - 2, own.end - 1]);
            for sequence in all {
                let range = server.mdt.sequences.find(sequence).expect("a range has it");
                assert_eq!((range.index, range.flags), (0, SeqRangeFlags::MDT));
            }
            for (n, client) in given.iter().enumerate() {
                client.make(Fid::ROOT, &format!("f{n}"), REGULAR | 0o644).await.expect("made");
            }
            let foreign = made_as(&given[0], Fid::new(ost.start, 1), "foreign");
            assert_eq!(given[0].modify(foreign).await.map(drop), INVALID);
        },
        &world,
    );
}

/// Its change would be taken for done, and the sequences that it counts as reserved would be given out again.
#[test]
fn a_replayed_query_gets_no_sequence() {
    let world = TestWorld::new(337);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start_on(&inner, manual(), vec![FakeOst::new()]).await;
            let client = server.client("c").await;
            let request = client.create_request(Fid::ROOT, "d", DIRECTORY | 0o755);
            let made = client.inner.call_with(TestCall::new(request).tagged(1)).await.unwrap();
            assert_ne!(made.head.transno, Transno(0));
            server.store.commit().unwrap();
            let (server, client) = crash(&inner, server, &client).await;
            let query = SeqQuery { seq_opc: 1, ..SeqQuery::default() };
            let call = TestCall::new(query).replayed(Xid(0x9_0000), made.head.transno);
            let answer = client.inner.call_with(call).await.expect("an answer");
            assert_eq!(answer.errno(), Some(Errno::ENODEV));
            inner.settle().await;
            assert_eq!(client.getattr(Fid::ROOT).await.map(drop), Err(Errno::ENOTCONN));
            server.check();
        },
        &world,
    );
}

/// No replay holds it up, and none stands for it: it is durable when its client has it.
#[test]
fn a_sequence_is_given_out_without_a_transaction_of_its_client() {
    let world = TestWorld::new(338);
    let inner = world.clone();
    run(
        async move {
            let server = Server::start(&inner, 1).await;
            let client = server.node.connect("c").await;
            let query = SeqQuery { seq_opc: 1, ..SeqQuery::default() };
            let answer = client.call(query).await;
            assert_eq!((answer.errno(), answer.head.transno), (None, Transno(0)));
        },
        &world,
    );
}
