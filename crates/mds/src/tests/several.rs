//! An MDT of several: where its FIDs and its objects come from, whom it knows, and what it refuses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sheen_rpc::ImportState;
use sheen_store::{Attributes, FileKind, Store};
use sheen_store_mem::{Commits, MemOptions, StoreMem};
use sheen_target::testing::{TestClient, TestTarget, TestWorld, server_offer};
use sheen_target::{TargetConfig, Timeouts};
use sheen_types::{Errno, Fid, Nid, Timestamp, Uuid, fid_seq};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData};
use sheen_wire::fld::{LuSeqRange, SeqRangeFlags};
use sheen_wire::md::{AttrValid, MdsOpenFlags};
use sheen_wire::messages::{FldQuery, MdsDisconnect, Reply, SeqQuery};
use sheen_wire::text::Chars;
use sheen_wire::update_record::FORMAT;

use super::between::Between;
use super::fake_ost::FakeOst;
use super::harness::{DIRECTORY, REGULAR, Server, run};
use super::recovery::manual;
use crate::sequences::note_used;
use crate::{Mdt, MdtConfig, MdtView};

const FIRST: &str = "11111111-2222-3333-4444-555555555555";
const OTHER: &str = "99999999-2222-3333-4444-555555555555";
const MDT: SeqRangeFlags = SeqRangeFlags::MDT;
const OST: SeqRangeFlags = SeqRangeFlags::OST;

pub(super) fn of_mdt(index: u16) -> String {
    format!("lustre-MDT{index:04x}-mdtlov_UUID")
}

/// What an MDT offers another one.
pub(super) fn offer(identity: &str) -> ObdConnectData {
    let offer = server_offer();
    ObdConnectData {
        flags: offer.flags.without(ConnectFlags::IBITS) | ConnectFlags::MDS_MDS,
        flags2: ConnectFlags2::MDT_CHANGES | ConnectFlags2::MDT_IDENTITY,
        update_format: FORMAT,
        identity: Chars::new(identity),
        ..offer
    }
}

pub(super) async fn start(world: &TestWorld, index: u16, store: Arc<StoreMem>) -> Server {
    let shared: Arc<dyn Store> = store.clone();
    let random = [index as u8 + 1; 16];
    let config = MdtConfig::new("lustre", index, Timestamp::from_seconds(1_000), random);
    let mdt = Mdt::new(Arc::clone(&shared), config).expect("formats");
    mdt.make_remote_directories(true);
    let name = format!("lustre-MDT{index:04x}");
    let config = TargetConfig {
        uuid: Uuid::new(format!("{name}_UUID")),
        name,
        index,
        offer: Mdt::offer(),
        replayable: true,
        timeouts: Timeouts::from_base(Duration::from_secs(10)),
    };
    let node = TestTarget::start(world, shared, config, mdt.clone()).await;
    Server { world: world.clone(), store, node, mdt, osts: Vec::new() }
}

/// Connects one MDT to another, as its client.
pub(super) async fn join(from: &Server, to: &Server) -> TestClient {
    connect(from, to).await.0
}

/// The same: the way.
pub(super) async fn join_by(from: &Server, to: &Server) -> Arc<Between> {
    connect(from, to).await.1
}

async fn connect(from: &Server, to: &Server) -> (TestClient, Arc<Between>) {
    let client = to.node.client_at(&of_mdt(from.mdt.index()), Nid::LOOPBACK);
    let offer = offer(from.mdt.identity().as_str());
    client.connect_with(offer).await.expect("another MDT is let in");
    let uuid = to.node.target.config().uuid.clone();
    let way = Arc::new(Between::new(client.clone(), uuid));
    from.mdt.add_mdt(to.mdt.index(), way.clone());
    (client, way)
}

/// MDT0000 and another one that is open.
pub(super) async fn two(world: &TestWorld, index: u16) -> (Server, Server) {
    let first = start(world, 0, manual()).await;
    let second = start(world, index, manual()).await;
    join(&second, &first).await;
    second.mdt.until_open().await;
    (first, second)
}

pub(super) fn range_of(server: &Server, index: u32, kind: SeqRangeFlags) -> LuSeqRange {
    server.mdt.sequences.of(index, kind).expect("a range")
}

#[test]
fn an_mdt_takes_clients_when_the_first_one_has_given_it_its_range() {
    let world = TestWorld::new(401);
    let inner = world.clone();
    let test = async move {
        let first = start(&inner, 0, manual()).await;
        let second = start(&inner, 3, manual()).await;
        inner.sleep(Duration::from_secs(30)).await;
        assert!(first.mdt.is_open() && !second.mdt.is_open());
        let early = second.node.client("early").connect().await;
        assert_eq!(early.map(drop), Err(Errno::EAGAIN));
        join(&second, &first).await;
        second.mdt.until_open().await;
        let client = second.client("c").await;
        let range = range_of(&first, 3, MDT);
        assert_eq!(client.sequence, range.start + 1, "the first one is the MDT's own");
        // It is durable, and nothing of it is given out twice.
        let again = start(&inner, 3, Arc::new(second.store.crash())).await;
        assert!(again.mdt.is_open(), "MDT0000 is not asked");
        assert_eq!(again.mdt.sequences.find(range.start), Some(range));
        let survivor = client.inner.follow(&again.node);
        survivor.connect().await.expect("it is awaited");
        super::recovery::finish_recovery(&client.with(survivor)).await;
        assert!(again.client("d").await.sequence > client.sequence);
    };
    run(test, &world);
}

#[test]
fn the_next_range_is_asked_for_when_half_of_the_last_one_is_used() {
    let world = TestWorld::new(402);
    let inner = world.clone();
    let test = async move {
        let (first, second) = two(&inner, 1).await;
        let range = range_of(&first, 1, MDT);
        // Another target gets the range behind it.
        let ost = range_of(&first, 9, OST);
        assert_eq!(ost.start, range.end);
        let restart = async |server: Server, used: u64| {
            note_used(&*server.store, used).unwrap();
            server.store.commit().unwrap();
            start(&inner, 1, Arc::new(server.store.crash())).await
        };
        let second = restart(second, range.start + (1 << 29)).await;
        join(&second, &first).await;
        let client = second.client("c").await;
        assert_eq!(client.sequence, range.start + (1 << 29) + 1);
        let next = second.mdt.sequences.find(ost.end).expect("it was asked for");
        assert_eq!((next.start, next.index, next.flags), (ost.end, 1, MDT));
        // When all is used up it is there, though MDT0000 is not.
        client.inner.call(MdsDisconnect::default()).await;
        let second = restart(second, range.end - 1).await;
        assert_eq!(second.client("late").await.sequence, next.start);
    };
    run(test, &world);
}

async fn holder(client: &TestClient, sequence: u64) -> Result<u32, Errno> {
    let fld_mdfld = LuSeqRange { start: sequence, ..LuSeqRange::default() };
    let answer = client.call(FldQuery { fld_opc: 2, fld_mdfld, ..FldQuery::default() }).await;
    match (answer.errno(), answer.reply) {
        (Some(errno), _) => Err(errno),
        (None, Some(Reply::FldQuery(reply))) => Ok(reply.fld_mdfld.expect("a range").index),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_mdt_says_which_one_has_a_sequence() {
    let world = TestWorld::new(403);
    let inner = world.clone();
    let test = async move {
        let first = start(&inner, 0, manual()).await;
        // More than a page has room for.
        for ost in 0..400 {
            range_of(&first, ost, OST);
        }
        let second = start(&inner, 1, manual()).await;
        join(&second, &first).await;
        second.mdt.until_open().await;
        inner.settle().await;
        let last = range_of(&first, 399, OST);
        assert_eq!(second.mdt.sequences.find(last.start), Some(last), "read at the start");
        let third = start(&inner, 2, manual()).await;
        join(&third, &first).await;
        third.mdt.until_open().await;
        let (own, thirds) = (range_of(&first, 0, MDT), range_of(&first, 2, MDT));
        assert_eq!(second.mdt.sequences.find(thirds.start), None, "it came later");
        for server in [&first, &second, &third] {
            let client = server.client("c").await.inner;
            for (sequence, index) in [
                (own.start + 5, Ok(0)),
                (fid_seq::ROOT, Ok(0)),
                (fid_seq::DOT_LUSTRE, Ok(0)),
                (range_of(&first, 1, MDT).start, Ok(1)),
                (thirds.end - 1, Ok(2)),
                (thirds.end, Err(Errno::ENOENT)),
            ] {
                assert_eq!(holder(&client, sequence).await, index, "{sequence:#x}");
            }
        }
        assert_eq!(second.mdt.sequences.find(thirds.start), Some(thirds), "remembered");
    };
    run(test, &world);
}

/// Each request that names an unknown sequence had MDT0000 asked: a client filled the connection to it, over which other
/// clients' changes go.
#[test]
fn unknown_sequences_are_looked_up_for_all_that_wait_at_once() {
    let world = TestWorld::new(419);
    let inner = world.clone();
    let test = async move {
        let first = start(&inner, 0, manual()).await;
        let second = start(&inner, 1, manual()).await;
        let (at_first, way) = connect(&second, &first).await;
        second.mdt.until_open().await;
        inner.settle().await;
        let before = way.looked_up();
        let client = second.client("c").await.inner;
        way.breaks();
        let end = range_of(&first, 1, MDT).end;
        let answers: Arc<Mutex<Vec<_>>> = Arc::default();
        for number in 0..100 {
            let (client, answers) = (client.clone(), Arc::clone(&answers));
            let ask = async move {
                let answer = holder(&client, end + number).await;
                answers.lock().push((number, answer));
            };
            inner.world().tasks.spawn("asks", Box::pin(ask));
        }
        inner.settle().await;
        // A range that is given out meanwhile is found.
        assert_eq!(range_of(&first, 2, MDT).start, end);
        way.is_there(&inner, at_first);
        inner.sleep(Duration::from_secs(1)).await;
        let answers = std::mem::take(&mut *answers.lock());
        assert_eq!(answers.len(), 100);
        assert!(answers.iter().all(|(_, answer)| *answer == Ok(2)), "{answers:?}");
        assert!(way.looked_up() - before <= 2, "{} lookups", way.looked_up() - before);
        assert_eq!(holder(&client, u64::MAX).await, Err(Errno::ENOENT));
    };
    run(test, &world);
}

#[test]
fn each_mdt_has_objects_in_a_sequence_of_its_own() {
    let world = TestWorld::new(404);
    let inner = world.clone();
    let test = async move {
        let first = start(&inner, 0, manual()).await;
        let second = start(&inner, 2, manual()).await;
        let osts = [FakeOst::new(), FakeOst::new()];
        first.mdt.add_ost(7, osts[0].clone());
        // Before anything is known of the OST's range.
        second.mdt.add_ost(7, osts[1].clone());
        assert_eq!(second.mdt.osts(), []);
        join(&second, &first).await;
        inner.sleep(Duration::from_secs(5)).await;
        let range = range_of(&first, 7, OST);
        for (ost, sequence) in osts.iter().zip([range.start + 1, range.start + 3]) {
            let objects = ost.state.lock().objects.clone();
            assert!(!objects.is_empty() && objects.iter().all(|(of, _)| *of == sequence));
        }
        // After a restart it is known, also while MDT0000 is away.
        second.store.commit().unwrap();
        let second = start(&inner, 2, Arc::new(second.store.crash())).await;
        second.mdt.add_ost(7, osts[1].clone());
        let known = second.mdt.osts();
        assert_eq!((known.len(), known[0].sequence), (1, range.start + 3));
    };
    run(test, &world);
}

#[test]
fn mdts_agree_on_changes_where_their_records_have_one_format() {
    let world = TestWorld::new(405);
    let inner = world.clone();
    let test = async move {
        let (first, second) = two(&inner, 1).await;
        let client = join(&first, &second).await;
        let agreed = client.agreed();
        assert!(agreed.flags.contains(ConnectFlags::MDS | ConnectFlags::MDS_MDS));
        assert!(agreed.flags2.contains(ConnectFlags2::MDT_CHANGES));
        assert_eq!(agreed.update_format, FORMAT);
        let partner = |index, is_partner| [MdtView { index, state: ImportState::Full, is_partner }];
        assert_eq!(first.mdt.other_mdts(), partner(1, true));
        assert_eq!(second.mdt.other_mdts(), partner(0, true));
        let identity = first.mdt.identity().as_str();
        let newer = ObdConnectData { update_format: FORMAT + 1, ..offer(identity) };
        client.connect_with(newer).await.expect("it may still ask for sequences");
        assert!(!client.agreed().flags2.contains(ConnectFlags2::MDT_CHANGES));
        assert_eq!(client.agreed().update_format, 0);
        assert_eq!(first.mdt.other_mdts(), partner(1, false));
        // One that mounts has no part in them, whatever it offers.
        let mount = first.node.client("mount");
        let everything = TestClient::everything();
        let flags2 = everything.flags2 | ConnectFlags2::MDT_CHANGES;
        mount.connect_with(ObdConnectData { flags2, ..everything }).await.expect("let in");
        assert!(!mount.agreed().flags2.contains(ConnectFlags2::MDT_CHANGES));
    };
    run(test, &world);
}

#[test]
fn an_mdt_of_a_number_is_always_the_same_one() {
    let world = TestWorld::new(406);
    let inner = world.clone();
    let test = async move {
        let first = start(&inner, 0, manual()).await;
        let connect = async |server: &Server, index: u16, identity: &str| {
            let mdt = server.node.client_at(&of_mdt(index), Nid::LOOPBACK);
            mdt.connect_with(offer(identity)).await.map(drop)
        };
        assert_eq!(connect(&first, 1, "").await, Ok(()), "nothing to know it by");
        assert_eq!(connect(&first, 1, FIRST).await, Ok(()));
        assert_eq!(connect(&first, 1, OTHER).await, Err(Errno::EXDEV));
        assert_eq!(connect(&first, 1, "").await, Err(Errno::EXDEV));
        assert_eq!(connect(&first, 2, OTHER).await, Ok(()), "another number is another MDT");
        assert_eq!(connect(&first, 0, OTHER).await, Err(Errno::EXDEV), "another one in its place");
        // It was durable before the connect was answered, and so is that the MDT is awaited.
        let first = start(&inner, 0, Arc::new(first.store.crash())).await;
        assert_eq!(connect(&first, 1, OTHER).await, Err(Errno::EXDEV));
        let awaited: Vec<String> =
            first.node.target.exports().iter().map(|export| export.uuid().to_string()).collect();
        assert!(awaited.contains(&of_mdt(1)) && awaited.contains(&of_mdt(2)), "{awaited:?}");
    };
    run(test, &world);
}

#[test]
fn an_mdt_gets_no_range_of_another_one() {
    let world = TestWorld::new(407);
    let inner = world.clone();
    let test = async move {
        let first = start(&inner, 0, manual()).await;
        let ask = async |server: &TestClient, asked: LuSeqRange| {
            let request = SeqQuery { seq_opc: 0, seq_range: asked, ..SeqQuery::default() };
            let answer = server.call(request).await;
            match (answer.errno(), answer.reply) {
                (Some(errno), _) => Err(errno),
                (None, Some(Reply::SeqQuery(reply))) => Ok(reply.seq_range.expect("a range")),
                other => panic!("{other:?}"),
            }
        };
        let of = |index, flags| LuSeqRange { index, flags, ..LuSeqRange::default() };
        let mdt = first.node.client_at(&of_mdt(1), Nid::LOOPBACK);
        mdt.connect_with(offer(FIRST)).await.expect("let in");
        let range = ask(&mdt, of(1, MDT)).await.expect("its own");
        assert_eq!(ask(&mdt, of(1, MDT)).await, Ok(range.clone()), "the same one again");
        assert_eq!(ask(&mdt, of(2, MDT)).await, Err(Errno::EPERM));
        assert_eq!(ask(&mdt, of(0, MDT)).await, Err(Errno::EPERM));
        ask(&mdt, of(2, OST)).await.expect("it creates objects there");
        let ost = first.node.connect_server("lustre-OST0001_UUID").await;
        assert_eq!(ask(&ost, of(1, MDT)).await, Err(Errno::EPERM));
        let survivor = start(&inner, 0, Arc::new(first.store.crash())).await;
        assert_eq!(range_of(&survivor, 1, MDT), range, "durable before it was answered");
    };
    run(test, &world);
}

/// It named the end of each range that it got: the table had no end, nor its part of the disk.
#[test]
fn a_server_takes_no_ranges_without_end() {
    let world = TestWorld::new(431);
    let inner = world.clone();
    let test = async move {
        let first = start(&inner, 0, manual()).await;
        let mdt = first.node.client_at(&of_mdt(1), Nid::LOOPBACK);
        mdt.connect_with(offer(FIRST)).await.expect("let in");
        let ask = async |asked: LuSeqRange| {
            let request = SeqQuery { seq_opc: 0, seq_range: asked, ..SeqQuery::default() };
            let answer = mdt.call(request).await;
            match (answer.errno(), answer.reply) {
                (Some(errno), _) => Err(errno),
                (None, Some(Reply::SeqQuery(reply))) => Ok(reply.seq_range.expect("a range")),
                other => panic!("{other:?}"),
            }
        };
        let mut own = LuSeqRange { index: 1, flags: MDT, ..LuSeqRange::default() };
        let mut ends = Vec::new();
        let refused = loop {
            match ask(LuSeqRange { start: own.end, ..own.clone() }).await {
                Ok(range) => own = range,
                Err(errno) => break errno,
            }
            ends.push(own.end);
            assert!(ends.len() < 100, "without end");
        };
        assert_eq!((refused, ends.len()), (Errno::ENOSPC, 64));
        let once = LuSeqRange { start: ends[0], ..own.clone() };
        assert_eq!(ask(once).await.map(|range| range.end), Ok(ends[1]), "what it has it may ask");
        // An OST has one.
        let of_ost = LuSeqRange { index: 2, flags: OST, ..LuSeqRange::default() };
        let range = ask(of_ost.clone()).await.expect("it creates objects there");
        assert_eq!(ask(LuSeqRange { start: range.end, ..of_ost }).await, Ok(range));
    };
    run(test, &world);
}

#[test]
fn what_only_another_mdt_has_is_refused_by_name() {
    let world = TestWorld::new(408);
    let inner = world.clone();
    let test = async move {
        let (first, second) = two(&inner, 1).await;
        let (here, there) = (first.client("a").await, second.client("b").await);
        let file = here.make(Fid::ROOT, "f", REGULAR | 0o644).await.expect("made");
        // MDT0001 has no root, and nothing of MDT0000.
        for fid in [Fid::ROOT, file] {
            assert_eq!(there.getattr(fid).await.map(drop), Err(Errno::EREMOTE));
            let mode = |record: &mut sheen_wire::md::RecSetattr| record.mode = 0o777;
            let set = there.setattr(fid, AttrValid::MODE, mode).await.map(drop);
            assert_eq!(set, Err(Errno::EREMOTE));
            let opened = there.open_fid(fid, MdsOpenFlags::READ).await.map(drop);
            assert_eq!(opened, Err(Errno::EREMOTE));
        }
        assert_eq!(there.create(Fid::ROOT, "x").await.map(drop), Err(Errno::EREMOTE));
        assert_eq!(there.symlink(Fid::ROOT, "s").await, Err(Errno::EOPNOTSUPP));
        assert_eq!(there.unlink(Fid::ROOT, "f").await, Err(Errno::EREMOTE));
        assert_eq!(there.link(file, Fid::ROOT, "l").await, Err(Errno::EXDEV));
        // Nor does MDT0000 make an inode of MDT0001's, with a name here.
        let mut request = here.create_request(Fid::ROOT, "d", DIRECTORY | 0o755);
        request.rec_reint.fid2 = there.next_fid();
        assert_eq!(here.modify(request).await.map(drop), Err(Errno::EOPNOTSUPP));
        // MDT0000 has no way to MDT0001 here, so it makes no changes with it.
        let far = here.link(there.next_fid(), Fid::ROOT, "l").await;
        assert_eq!(far, Err(Errno::EXDEV));
        here.mkdir(Fid::ROOT, "own").await.expect("all else goes on");
        first.check();
    };
    run(test, &world);
}

/// As after a start: MDT0000 knows from its store that there is an MDT0001, and not yet where. And a directory of that one.
async fn before_the_configuration(inner: &TestWorld) -> (Server, Server, Fid) {
    let store = || {
        let commits = Commits::Immediate;
        Arc::new(StoreMem::new(MemOptions { commits, ..MemOptions::default() }))
    };
    let (first, second) = (start(inner, 0, store()).await, start(inner, 1, store()).await);
    join(&second, &first).await;
    second.mdt.until_open().await;
    let parent = second.client("b").await.next_fid();
    let kind = FileKind::Directory;
    super::checks::apply(&second.store, |change| {
        change.create(parent, Attributes { kind, links: 2, ..Attributes::default() });
    });
    first.mdt.await_configuration();
    (first, second, parent)
}

#[test]
fn an_mdt_that_no_configuration_names_any_more_is_not_waited_for() {
    let world = TestWorld::new(412);
    let inner = world.clone();
    let test = async move {
        let (first, _second, parent) = before_the_configuration(&inner).await;
        let here = first.client("a").await;
        assert_eq!(here.mkdir(parent, "d").await, Err(Errno::EINPROGRESS));
        for _ in 0..3 {
            first.mdt.leave_out_mdts(BTreeSet::new());
        }
        let begun = inner.world().clock.now();
        assert_eq!(here.mkdir(parent, "d").await, Err(Errno::EOPNOTSUPP));
        assert!(inner.world().clock.now().since(begun) < Duration::from_secs(1));
    };
    run(test, &world);
}

#[test]
fn what_is_about_an_mdt_that_the_configuration_is_still_to_name_waits_for_it() {
    let world = TestWorld::new(411);
    let inner = world.clone();
    let test = async move {
        let (first, second, parent) = before_the_configuration(&inner).await;
        let (here, there) = (first.client("a").await, second.client("c").await);
        here.make(Fid::ROOT, "f", REGULAR | 0o644).await.expect("made");
        // A client asks again when it is answered so.
        let early = here.mkdir(parent, "d").await;
        assert_eq!(early, Err(Errno::EINPROGRESS));
        let far = there.next_fid();
        assert_eq!(here.link(far, Fid::ROOT, "l").await, Err(Errno::EINPROGRESS));
        assert_eq!(here.rename((Fid::ROOT, "f"), (parent, "f")).await, Err(Errno::EINPROGRESS));
        assert_eq!(here.unlink(parent, "f").await, Err(Errno::EINPROGRESS));
        here.mkdir(Fid::ROOT, "own").await.expect("all else goes on");
        // One that an operator has left out does not come.
        first.mdt.leave_out_mdts(BTreeSet::from([1]));
        assert_eq!(here.mkdir(parent, "d").await, Err(Errno::EOPNOTSUPP));
        first.mdt.leave_out_mdts(BTreeSet::new());
        let (first, second) = (Arc::new(first), Arc::new(second));
        let (from, to, clock) = (Arc::clone(&first), Arc::clone(&second), inner.clone());
        let added = async move {
            clock.sleep(Duration::from_secs(2)).await;
            join(&from, &to).await;
        };
        inner.world().tasks.spawn("configuration", Box::pin(added));
        let made = here.mkdir(parent, "d").await.expect("it was waited for");
        let found = crate::directory::find(&*second.store, parent, b"d").expect("a lookup");
        assert_eq!(found.map(|child| child.fid), Some(made));
    };
    run(test, &world);
}
