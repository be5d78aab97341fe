//! Open leases: who gets one, what ends it, and the close that exchanges layouts under it.

use bytes::Bytes;
use sheen_layout::plan::{Plan, Striping};
use sheen_store::Store;
use sheen_target::testing::{TestAnswer, TestCall, TestWorld};
use sheen_types::{Errno, Fid, InodeBits, LockHandle, LockMode};
use sheen_wire::ldlm::Disposition;
use sheen_wire::md::{AttrValid, Bias, CloseData, MdsOpenFlags, OpenHandle, RecSetattr, Valid};
use sheen_wire::messages::*;

use super::fake_ost::FakeOst;
use super::harness::{Client, Opened, Server, opened, run};
use super::layouts::{create_with, stored};
use super::recovery::{crash, finish_recovery, manual, replay};

const READ: MdsOpenFlags = MdsOpenFlags::READ;
const WRITE: MdsOpenFlags = MdsOpenFlags::WRITE;

fn lease_request(client: &Client, fid: Fid, own: OpenHandle) -> LdlmIntentOpen {
    let flags = READ | MdsOpenFlags::LOCK | MdsOpenFlags::LEASE | MdsOpenFlags::BY_FID;
    let mut request = client.open_request(fid, "", flags);
    (request.rec_reint.fid2, request.rec_reint.open_handle_old) = (fid, own);
    request
}

/// Asks for a lease, beside the open file that `own` names.
pub(super) async fn lease(client: &Client, fid: Fid, own: OpenHandle) -> Result<Opened, Errno> {
    let request = lease_request(client, fid, own);
    let mine = request.dlm_req.handles[0];
    let call = TestCall::new(request).tagged(client.next_tag());
    let leased = opened(client.inner.call_with(call).await.expect("an answer"))?;
    client.keep(mine, lock_of(&leased));
    Ok(leased)
}

pub(super) fn lock_of(leased: &Opened) -> LockHandle {
    leased.lock.expect("a lock").0
}

/// Whether the client has the lock of its lease still.
fn is_held(server: &Server, leased: &Opened) -> bool {
    server.node.target.namespace().lock(lock_of(leased)).is_some()
}

/// A file of one stripe, that no client has open.
async fn file(client: &Client, name: &str) -> Fid {
    let made = client.create(Fid::ROOT, name).await.unwrap();
    client.close(&made).await.unwrap();
    made.body.fid1
}

fn close_request(leased: &Opened, bias: Bias, other: Fid) -> MdsCloseIntent {
    let fid = leased.body.fid1;
    let rec_reint = RecSetattr { fid, bias, suppgid: u32::MAX, ..RecSetattr::default() };
    let (handle, open_handle) = (lock_of(leased), leased.body.open_handle);
    MdsCloseIntent {
        mdt_ioepoch: sheen_wire::md::MdtIoepoch { open_handle, ..Default::default() },
        rec_reint,
        close_data: Some(CloseData { handle, fid: other, ..CloseData::default() }),
        ..MdsCloseIntent::default()
    }
}

/// Whether a close said that it did what else it was asked to.
async fn executes(client: &Client, request: MdsCloseIntent) -> bool {
    let answer = client.inner.call_with(TestCall::new(request).tagged(client.next_tag())).await;
    is_executed(&answer.expect("an answer"))
}

fn is_executed(answer: &TestAnswer) -> bool {
    assert_eq!(answer.errno(), None, "closed it is");
    // Both kinds of closes are answered alike.
    let Some(Reply::MdsClose(reply)) = &answer.reply else { panic!("{answer:?}") };
    let body = reply.mdt_body.as_ref().expect("a body");
    body.valid.contains(Valid::CLOSE_INTENT_EXECED)
}

async fn stripes(client: &Client, file: Fid) -> usize {
    stored(&client.getxattr(file, "lustre.lov").await.unwrap()).objects().len()
}

fn in_world<F: Future<Output = ()> + Send + 'static>(
    seed: u64,
    test: impl FnOnce(TestWorld) -> F + Send + 'static,
) {
    let world = TestWorld::new(seed);
    let inner = world.clone();
    run(async move { test(inner).await }, &world);
}

#[test]
fn a_lease_is_one_of_a_file_and_brings_the_open_bit_alone() {
    in_world(601, async |world| {
        let server = Server::start(&world, 1).await;
        let (client, other) = (server.client("c").await, server.client("o").await);
        let file = file(&client, "f").await;
        let leased = lease(&client, file, OpenHandle(0)).await.unwrap();
        let wanted = Disposition::OPEN_LEASE | Disposition::OPEN_LOCK | Disposition::OPEN_OPEN;
        assert!(leased.disposition.contains(wanted), "{:?}", leased.disposition);
        let (_, bits, mode) = leased.lock.unwrap();
        assert_eq!((bits, mode), (InodeBits::OPEN, LockMode::Pw));
        let again = lease(&other, file, OpenHandle(0)).await;
        assert_eq!(again.map(drop), Err(Errno::EBUSY));
        assert!(is_held(&server, &leased), "a second lease does not end the first");
        client.close(&leased).await.unwrap();
        client.inner.cancel(&[lock_of(&leased)]).await;
        let later = lease(&other, file, OpenHandle(0)).await.unwrap();
        other.close(&later).await.unwrap();
        let bare = client.reint_open(Fid::ROOT, "f", READ | MdsOpenFlags::LEASE).await;
        assert_eq!(bare.map(drop), Err(Errno::EPROTO), "a lease needs a lock");
        let made = MdsOpenFlags::CREAT | MdsOpenFlags::LEASE | MdsOpenFlags::LOCK;
        let made = client.open(Fid::ROOT, "new", made).await;
        assert_eq!(made.map(drop), Err(Errno::EOPNOTSUPP));
        assert_eq!(server.mdt.open_count(), 0);
    });
}

#[test]
fn a_file_that_is_open_for_writing_elsewhere_is_not_leased() {
    in_world(602, async |world| {
        let server = Server::start(&world, 1).await;
        let (client, other) = (server.client("c").await, server.client("o").await);
        let file = file(&client, "f").await;
        let own = client.open(Fid::ROOT, "f", READ | WRITE).await.unwrap();
        let own_handle = own.body.open_handle;
        let writer = other.open(Fid::ROOT, "f", WRITE).await.unwrap();
        assert_eq!(lease(&client, file, own_handle).await.map(drop), Err(Errno::EBUSY));
        other.close(&writer).await.unwrap();
        let unnamed = lease(&client, file, OpenHandle(0)).await;
        assert_eq!(unnamed.map(drop), Err(Errno::EBUSY), "a writer that the request does not name");
        let reader = other.open(Fid::ROOT, "f", READ).await.unwrap();
        let leased = lease(&client, file, own_handle).await.unwrap();
        for open in [&leased, &own] {
            client.close(open).await.unwrap();
        }
        other.close(&reader).await.unwrap();
        assert_eq!(server.mdt.open_count(), 0);
    });
}

#[test]
fn a_client_that_only_keeps_a_file_open_for_writing_closes_it_for_a_lease() {
    in_world(603, async |world| {
        let server = Server::start(&world, 1).await;
        let (client, keeper) = (server.client("c").await, server.client("k").await);
        let file = file(&client, "f").await;
        let kept = keeper.open(Fid::ROOT, "f", WRITE | MdsOpenFlags::LOCK).await.unwrap();
        super::kept_opens::close_when_revoked(&world, &keeper, &kept);
        let leased = lease(&client, file, OpenHandle(0)).await.unwrap();
        assert_eq!(server.mdt.open_count(), 1);
        client.close(&leased).await.unwrap();
    });
}

#[test]
fn a_lease_ends_with_what_writes_and_not_with_what_reads() {
    in_world(604, async |world| {
        let server = Server::start(&world, 1).await;
        let (client, other) = (server.client("c").await, server.client("o").await);
        let file = file(&client, "f").await;
        for lock in [MdsOpenFlags::NONE, MdsOpenFlags::LOCK] {
            let leased = lease(&client, file, OpenHandle(0)).await.unwrap();
            let reader = other.open(Fid::ROOT, "f", READ | lock).await.unwrap();
            assert!(is_held(&server, &leased), "an open for reading leaves it");
            let writer = other.open(Fid::ROOT, "f", WRITE | lock).await.unwrap();
            assert!(!is_held(&server, &leased), "one for writing ends it");
            client.close(&leased).await.unwrap();
            for open in [reader, writer] {
                other.close(&open).await.unwrap();
                if let Some((lock, ..)) = open.lock {
                    other.inner.cancel(&[lock]).await;
                }
            }
        }
        let cut = async |bias| {
            let change = move |record: &mut RecSetattr| (record.size, record.bias) = (0, bias);
            other.setattr(file, AttrValid::SIZE, change).await.unwrap();
        };
        let leased = lease(&client, file, OpenHandle(0)).await.unwrap();
        cut(Bias::TRUNC_KEEP_LEASE).await;
        assert!(is_held(&server, &leased));
        cut(Bias::NONE).await;
        assert!(!is_held(&server, &leased), "so does a truncation");
        client.close(&leased).await.unwrap();
        assert_eq!(server.mdt.open_count(), 0);
    });
}

#[test]
fn a_close_under_a_lease_exchanges_layouts() {
    in_world(605, async |world| {
        let server = Server::start(&world, 4).await;
        let client = server.client("c").await;
        let file = file(&client, "f").await;
        let wide = Plan::Plain(Striping { stripe_count: 3, ..Striping::default() });
        let wide = create_with(&client, "wide", &wide).await.unwrap();
        let own = client.open(Fid::ROOT, "f", READ | WRITE).await.unwrap();
        let leased = lease(&client, file, own.body.open_handle).await.unwrap();
        let request = close_request(&leased, Bias::CLOSE_LAYOUT_SWAP, wide.body.fid1);
        assert!(executes(&client, request.clone()).await);
        assert_eq!((stripes(&client, file).await, stripes(&client, wide.body.fid1).await), (3, 1));
        assert!(!is_held(&server, &leased), "the lease ends with it");
        let gone = client.inner.call_with(TestCall::new(request).tagged(9)).await.unwrap();
        assert_eq!(gone.errno(), Some(Errno::ESTALE), "so does the open");
        client.close(&own).await.unwrap();
        client.close(&wide).await.unwrap();
        assert_eq!(server.mdt.open_count(), 0);
        server.check();
    });
}

#[test]
fn a_close_without_its_lease_only_closes() {
    in_world(606, async |world| {
        let server = Server::start(&world, 4).await;
        let (client, other) = (server.client("c").await, server.client("o").await);
        let file = file(&client, "f").await;
        let wide = Plan::Plain(Striping { stripe_count: 3, ..Striping::default() });
        let wide = create_with(&client, "wide", &wide).await.unwrap();
        let leased = lease(&client, file, OpenHandle(0)).await.unwrap();
        let writer = other.open(Fid::ROOT, "f", WRITE).await.unwrap();
        let request = close_request(&leased, Bias::CLOSE_LAYOUT_SWAP, wide.body.fid1);
        assert!(!executes(&client, request).await, "it was broken");
        other.close(&writer).await.unwrap();
        // A lock of another kind, or another client's, is no lease; what is not built is not done.
        let lost = lease(&client, file, OpenHandle(0)).await.unwrap();
        let mut forged = close_request(&lost, Bias::CLOSE_LAYOUT_SWAP, wide.body.fid1);
        let theirs = other.open(Fid::ROOT, "wide", READ | MdsOpenFlags::LOCK).await.unwrap();
        forged.close_data.as_mut().unwrap().handle = lock_of(&theirs);
        assert!(!executes(&client, forged).await);
        assert!(server.node.target.namespace().lock(lock_of(&theirs)).is_some());
        client.inner.cancel(&[lock_of(&lost)]).await;
        for bias in [Bias::CLOSE_LAYOUT_MERGE, Bias::CLOSE_LAYOUT_SPLIT, Bias::HSM_RELEASE] {
            let leased = lease(&client, file, OpenHandle(0)).await.unwrap();
            assert!(!executes(&client, close_request(&leased, bias, wide.body.fid1)).await);
            client.inner.cancel(&[lock_of(&leased)]).await;
        }
        assert_eq!((stripes(&client, file).await, stripes(&client, wide.body.fid1).await), (1, 3));
        server.check();
    });
}

#[test]
fn a_root_that_is_not_trusted_exchanges_nothing_of_its_own() {
    in_world(609, async |world| {
        let server = Server::start(&world, 4).await;
        let client = server.client("c").await;
        let file = file(&client, "f").await;
        let wide = Plan::Plain(Striping { stripe_count: 3, ..Striping::default() });
        let wide = create_with(&client, "wide", &wide).await.unwrap();
        let leased = lease(&client, file, OpenHandle(0)).await.unwrap();
        server.mdt.change_root_squash(|squash| squash.set_root("99:98")).unwrap();
        let request = close_request(&leased, Bias::CLOSE_LAYOUT_SWAP, wide.body.fid1);
        assert!(!executes(&client, request).await);
        assert_eq!(stripes(&client, file).await, 1);
    });
}

#[test]
fn a_swap_that_is_lost_with_the_server_is_replayed() {
    in_world(607, async |world| {
        let server = Server::start_on(&world, manual(), vec![FakeOst::new(), FakeOst::new()]).await;
        let client = server.client("c").await;
        let file = file(&client, "f").await;
        let wide = Plan::Plain(Striping { stripe_count: 2, ..Striping::default() });
        let wide = create_with(&client, "wide", &wide).await.unwrap();
        client.close(&wide).await.unwrap();
        let mut open = lease_request(&client, file, OpenHandle(0));
        let answer = client.inner.call_with(TestCall::new(open.clone()).tagged(6)).await.unwrap();
        let leased = opened(answer.clone()).unwrap();
        server.store.commit().unwrap();
        let request = close_request(&leased, Bias::CLOSE_LAYOUT_SWAP, wide.body.fid1);
        let call = TestCall::new(request.clone()).tagged(7);
        let first = client.inner.call_with(call.clone()).await.unwrap();
        assert!(is_executed(&first));
        let resent = client.inner.call_with(call.resent(first.xid)).await.unwrap();
        assert!(is_executed(&resent), "a resend is answered as it was");
        let (server, client) = crash(&world, server, &client).await;
        open.rec_reint.open_handle_old = leased.body.open_handle;
        let again = opened(replay(&client, open.into(), &answer).await).unwrap();
        assert!(server.mdt.open_count() == 1 && again.body.fid1 == file);
        let again = replay(&client, request.into(), &first).await;
        assert_eq!(again.head.transno, first.head.transno);
        finish_recovery(&client).await;
        assert_eq!((stripes(&client, file).await, server.mdt.open_count()), (2, 0));
        server.check();
    });
}

#[test]
fn states_in_an_archive_are_none_and_refused_as_lustre_refuses_them() {
    in_world(608, async |world| {
        let server = Server::start(&world, 1).await;
        let client = server.client("c").await;
        let file = file(&client, "f").await;
        let set = async |client: &Client, valid: u32, set: u64| {
            let change = [u64::from(valid), set, 0].map(u64::to_le_bytes).concat();
            let (mdt_body, hsm_state_set) = (client.body(file), Bytes::from(change));
            let request = MdsHsmStateSet { mdt_body, hsm_state_set, ..Default::default() };
            client.modify(request).await.map(drop)
        };
        assert_eq!(set(&client, 1, 0x2).await, Err(Errno::EINVAL), "dirty, without a copy");
        assert_eq!(set(&client, 1, 0).await, Ok(()));
        assert_eq!(set(&client, 1, 1 << 40).await, Err(Errno::EINVAL));
        assert_eq!(set(&client, 1, 0x10).await, Err(Errno::EOPNOTSUPP), "one that would be kept");
        let user = client.as_user(5, 5);
        assert_eq!(set(&user, 1, 0x1).await, Err(Errno::EPERM));
        let request = MdsHsmStateGet { mdt_body: client.body(file), ..Default::default() };
        let answer = client.inner.call(request).await;
        let Some(Reply::MdsHsmStateGet(reply)) = answer.reply else { panic!("{answer:?}") };
        assert_eq!(reply.hsm_user_state, Bytes::from_static(&[0; 32]));
    });
}
