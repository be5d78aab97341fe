//! Space that is promised: given within what is free, used, returned, and never twice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sheen_rpc::RpcError;
use sheen_store::Store;
use sheen_store_mem::MemOptions;
use sheen_target::testing::{TestCall, TestClient};
use sheen_target::{FaultAction, FaultSite};
use sheen_types::{Errno, Nid};
use sheen_wire::connect::{ConnectFlags, ObdConnectData, version_code};
use sheen_wire::md::Valid;
use sheen_wire::messages::{Kind, OstDisconnect, OstRead, OstWrite, Reply};
use sheen_wire::ost::{BrwFlags, GrantReport, ObdIoobj, Obdo, ObdoFlags, OstBody, OstId};

use super::harness::{Server, named, obdo_of, piece, put, send, with_ost, write};
use crate::INITIAL_GRANT;

const MIB: u64 = 1 << 20;

fn sized(bytes: u64) -> MemOptions {
    MemOptions { capacity_bytes: Some(bytes), ..MemOptions::default() }
}

/// A write out of the grant, by a client that used `used` of it, wants `wanted` and lost `lost`.
fn granted(id: u64, offset: u64, length: u32, used: u64, wanted: u32, lost: u32) -> OstWrite {
    let mut request = write(id, vec![piece(offset, length, BrwFlags::FROM_GRANT)]);
    let oa = &mut request.ost_body.oa;
    oa.report_grant(GrantReport { used, wanted, lost, ..GrantReport::default() });
    request
}

async fn spend(client: &TestClient, request: OstWrite) -> Result<Obdo, Errno> {
    let length = request.niobuf_remote.iter().map(|piece| piece.len as usize).sum();
    obdo_of(send(client, request, &Bytes::from(vec![1; length])).await)
}

#[test]
fn a_client_gets_its_first_grant_and_keeps_it_over_a_reconnect() {
    with_ost(sized(1 << 30), |server| async move {
        let one = server.node.connect("one").await;
        let first = u64::from(one.agreed().grant);
        assert_eq!(first, INITIAL_GRANT, "what it did not ask more than");
        let before = server.ost.grant_view().total;
        one.connect().await.expect("reconnects");
        assert_eq!(u64::from(one.agreed().grant), first);
        assert_eq!(server.ost.grant_view().total, before, "the same promise, not another");
    });
}

#[test]
fn what_clients_say_they_have_not_sent_is_shown_until_they_leave() {
    with_ost(sized(1 << 30), |server| async move {
        let dirty = |blocks| {
            let mut request = granted(1, 0, 4096, 4096, 0, 0);
            request.ost_body.oa.blocks = blocks;
            request
        };
        let (one, two) = (server.node.connect("one").await, server.node.connect("two").await);
        for (client, bytes) in [(&one, MIB), (&two, 5000), (&one, 3)] {
            spend(client, dirty(bytes)).await.expect("written");
        }
        let view = server.ost.grant_view();
        assert_eq!((view.dirty, view.pending), (5003, 0));
        spend(&two, dirty(u64::MAX)).await.expect("written");
        assert_eq!(server.ost.grant_view().dirty, (2 << 30) + 3, "no more than it may have");
        server.node.target.evict_client("two").await;
        assert_eq!(server.ost.grant_view().dirty, 3);
    });
}

#[test]
fn a_client_without_the_feature_gets_nothing() {
    with_ost(sized(1 << 30), |server| async move {
        let before = server.ost.grant_view().total;
        let client = server.node.client("old");
        let data = ObdConnectData {
            flags: ConnectFlags::VERSION | ConnectFlags::BRW_SIZE | ConnectFlags::FULL20,
            version: version_code(2, 17, 0, 0),
            brw_size: 1 << 20,
            ..ObdConnectData::default()
        };
        client.connect_with(data).await.expect("connects");
        assert_eq!(client.agreed().grant, 0);
        assert_eq!(server.ost.grant_view().total, before);
    });
}

#[test]
fn what_is_used_comes_off_and_what_is_wanted_comes_on() {
    with_ost(sized(1 << 30), |server| async move {
        let one = server.node.connect("one").await;
        let start = server.ost.grant_view().total;
        let request = granted(1, 0, 1 << 20, MIB, INITIAL_GRANT as u32, 0);
        let oa = spend(&one, request).await.expect("written");
        assert_eq!(oa.grant, MIB, "as much as was used");
        assert_eq!(server.ost.grant_view().total, start);
        let wanted = INITIAL_GRANT as u32 + (4 << 20);
        let oa = spend(&one, granted(1, 0, 4096, 4096, wanted, 8192)).await.expect("written");
        assert_eq!(oa.grant, (4 << 20) + 4096 + 8192, "what was lost can be had again");
        assert_eq!(server.ost.grant_view().total, start + (4 << 20));
    });
}

/// As much as two full-size RPCs need with each write (sanity 64f), up to what it wants.
#[test]
fn a_write_brings_a_part_of_what_is_wanted() {
    with_ost(sized(1 << 30), |server| async move {
        let one = server.node.connect("one").await;
        let wanted = (5 * INITIAL_GRANT / 2) as u32;
        let mut brought = Vec::new();
        for _ in 0..3 {
            let oa = spend(&one, granted(1, 0, 4096, 4096, wanted, 0)).await.expect("written");
            brought.push(oa.grant);
        }
        let rest = 5 * INITIAL_GRANT / 2 - 2 * INITIAL_GRANT + 2 * 4096;
        assert_eq!(brought, [INITIAL_GRANT, rest, 4096]);
    });
}

#[test]
fn shrinking_returns_grant() {
    with_ost(sized(1 << 30), |server| async move {
        let one = server.node.connect("one").await;
        let start = server.ost.grant_view().total;
        let mut request = granted(1, 0, 4096, 0, 0, 0);
        request.niobuf_remote[0].flags = BrwFlags::NONE;
        let oa = &mut request.ost_body.oa;
        oa.valid |= Valid::FLAGS;
        oa.flags |= ObdoFlags::SHRINK_GRANT;
        oa.grant = MIB;
        assert_eq!(spend(&one, request).await.expect("written").grant, 0);
        assert_eq!(server.ost.grant_view().total, start - MIB);
    });
}

/// A client announces what it has with a read as with a write, and adds what the answer says.
#[test]
fn a_read_gives_no_grant_and_reclaims_what_was_lost() {
    with_ost(sized(1 << 30), |server| async move {
        let one = server.node.connect("one").await;
        spend(&one, granted(1, 0, 4096, 4096, 0, 0)).await.expect("written");
        let start = server.ost.grant_view().total;
        let object = ObdIoobj { oid: OstId::of_id(1), max_brw: 0, bufcnt: 1 };
        let mut oa = named(1);
        oa.valid |= Valid::GRANT | Valid::BLOCKS | Valid::FLAGS;
        (oa.grant, oa.mode, oa.misc) = (5 * MIB, 64 << 20, 8192);
        oa.flags = ObdoFlags::SHORT_IO;
        let request = OstRead {
            ost_body: OstBody { oa },
            obd_ioobj: vec![object],
            niobuf_remote: vec![piece(0, 4096, BrwFlags::NONE)],
            ..OstRead::default()
        };
        let Some(Reply::OstRead(reply)) = one.call(request).await.reply else {
            panic!("a read's reply")
        };
        let oa = reply.ost_body.expect("a body").oa;
        assert_eq!((oa.valid, oa.grant), (Valid::GRANT, 0), "and nothing else is said");
        assert_eq!(server.ost.grant_view().total, start - 8192);
    });
}

#[test]
fn a_client_that_lies_about_its_grant_hurts_only_itself() {
    with_ost(sized(1 << 30), |server| async move {
        let one = server.node.connect("one").await;
        let two = server.node.connect("two").await;
        let promised_elsewhere = server.ost.grant_view().total - u64::from(one.agreed().grant);
        let request = granted(1, 0, 4096, u64::MAX, 0, u32::MAX);
        assert_eq!(spend(&one, request).await.expect("written").grant, 0);
        assert_eq!(
            server.ost.grant_view().total,
            promised_elsewhere,
            "only its own promise is gone"
        );
        assert_eq!(u64::from(two.agreed().grant), INITIAL_GRANT);
    });
}

/// Every byte that a client may keep dirty can be written, whatever other clients do without a
/// grant.
async fn promise_holds(server: Server) {
    let one = server.node.connect("one").await;
    let two = server.node.connect("two").await;
    let mine = u64::from(one.agreed().grant);
    assert!(mine >= 4096, "some of the space is promised");
    let taken = AtomicU64::new(0);
    // The other fills up all that is not promised, and is refused then.
    let data = Bytes::from(vec![2; 64 << 10]);
    loop {
        let at = taken.fetch_add(64 << 10, Ordering::Relaxed);
        match put(&two, 2, at, &data).await {
            Ok(_) => {}
            Err(errno) => break assert_eq!(errno, Errno::ENOSPC),
        }
    }
    for at in (0..mine).step_by(4096) {
        let request = granted(1, at, 4096, 4096, 0, 0);
        spend(&one, request).await.expect("what was promised is there");
    }
    assert_eq!(server.store.attributes(super::harness::fid(1)).expect("there").size, mine);
}

/// No client uses a grant that it does not have, or does not declare: what was promised to other clients
/// stays there.
#[test]
fn a_client_takes_no_more_out_of_its_grant_than_it_has() {
    for (name, offers_grant, said) in
        [("none", false, 0), ("none", false, MIB), ("liar", true, 1), ("liar", true, u64::MAX)]
    {
        with_ost(sized(48 * MIB), move |server| async move {
            let promised_elsewhere = server.ost.grant_view().total;
            let one = server.node.connect("one").await;
            let mine = u64::from(one.agreed().grant);
            assert!(mine >= MIB);
            let liar = server.node.client(name);
            let mut offer = TestClient::everything();
            if !offers_grant {
                offer.flags = offer.flags.without(ConnectFlags::GRANT);
            }
            liar.connect_with(offer).await.expect("connects");
            let mut at = 0;
            loop {
                match spend(&liar, granted(2, at, 64 << 10, said, 0, 0)).await {
                    Ok(_) => at += 64 << 10,
                    Err(errno) => break assert_eq!(errno, Errno::ENOSPC),
                }
            }
            for at in (0..mine).step_by(64 << 10) {
                let request = granted(1, at, 64 << 10, 64 << 10, 0, 0);
                spend(&one, request).await.expect("what was promised is there");
            }
            let request = sheen_wire::messages::OstDisconnect::default();
            assert_eq!(one.call(request).await.errno(), None);
            let left = server.ost.grant_view().total - promised_elsewhere;
            assert!(left <= u64::from(liar.agreed().grant), "{left} stays promised");
        });
    }
}

#[test]
fn promises_are_kept_on_stores_of_any_size() {
    for bytes in [MIB, 10 * MIB, 48 * MIB] {
        with_ost(sized(bytes), promise_holds);
    }
}

#[test]
fn a_client_that_leaves_returns_all_its_grant() {
    with_ost(sized(1 << 30), |server| async move {
        let before = server.ost.grant_view().total;
        let one = server.node.connect("one").await;
        assert!(server.ost.grant_view().total > before);
        let request = sheen_wire::messages::OstDisconnect::default();
        assert_eq!(one.call(request).await.errno(), None);
        assert_eq!(server.ost.grant_view().total, before);
    });
}

/// Kept back, the bytes of a write came after the disconnect, and its client was given grant that was never
/// reclaimed.
#[test]
fn a_write_that_ends_after_its_client_has_left_promises_nothing() {
    with_ost(sized(1 << 30), |server| async move {
        let before = server.ost.grant_view().total;
        let world = server.node.target.world().clone();
        for round in 0..2 {
            let one = server.node.connect(&format!("one{round}")).await;
            let site = FaultSite::Request(Kind::OstWrite);
            server.node.target.faults().arm(site, FaultAction::Delay(Duration::from_secs(5)), 1);
            let writer = one.clone();
            let task = async move {
                let request = granted(1, 0, 4096, 0, 2 << 30, 0);
                let source = Bytes::from(vec![1; 4096]);
                let call = TestCall { source, ..TestCall::new(request) };
                assert!(writer.call_with(call).await.is_none(), "its client is gone");
            };
            world.tasks.spawn("write", Box::pin(task));
            world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await;
            assert_eq!(one.call(OstDisconnect::default()).await.errno(), None);
            world.clock.sleep_until(world.clock.now() + Duration::from_secs(6)).await;
            assert_eq!(server.ost.grant_view().total, before);
        }
    });
}

/// Each of them alone would be given an eighth of what is left.
#[test]
fn the_exports_of_a_node_share_what_one_client_may_hold() {
    with_ost(sized(64 * MIB), |server| async move {
        let before = server.ost.grant_view().total;
        let available = server.store.space().expect("known").available;
        let held = || server.ost.grant_view().total - before;
        let mut exports = Vec::new();
        for number in 0..40 {
            exports.push(server.node.connect(&format!("mount{number}")).await);
        }
        assert!(held() <= available / 4, "{} of {available}", held());
        assert!(held() > available / 8, "one of them holds no less than before");
        // Nor by asking for more with each write.
        for client in &exports {
            spend(client, granted(1, 0, 4096, 0, u32::MAX, 0)).await.expect("written");
        }
        assert!(held() <= available / 4, "{} of {available}", held());
        let other = server.node.client_at("other", Nid::tcp([10, 0, 0, 9].into()));
        other.connect().await.expect("connects");
        assert!(u64::from(other.agreed().grant) >= 4 * MIB, "{}", other.agreed().grant);
        // What one returns another may have.
        let last = exports.pop().expect("it is there");
        assert_eq!(last.agreed().grant, 0);
        for client in exports {
            assert_eq!(client.call(OstDisconnect::default()).await.errno(), None);
        }
        let wanted = INITIAL_GRANT as u32;
        let oa = spend(&last, granted(1, 0, 4096, 0, wanted, 0)).await.expect("written");
        assert!(oa.grant >= 4 * MIB, "{}", oa.grant);
    });
}

/// What a write takes out of the grant is held until the write has ended: one that fails returns it.
#[test]
fn what_writes_use_that_fail_counts_as_held_meanwhile() {
    with_ost(sized(64 * MIB), |server| async move {
        let before = server.ost.grant_view().total;
        let most = server.store.space().expect("known").available / 4;
        let held = || server.ost.grant_view().total - before;
        let (one, two) = (server.node.connect("one").await, server.node.connect("two").await);
        for _ in 0..4 {
            spend(&one, granted(1, 0, 4096, 4096, u32::MAX, 0)).await.expect("written");
        }
        let writer = one.clone();
        let write = async move {
            let call = TestCall {
                source_time: Duration::from_secs(5),
                source_error: Some(RpcError::TimedOut),
                ..TestCall::new(granted(1, 0, 4096, u64::MAX, 0, 0))
            };
            writer.call_with(call).await;
        };
        let world = server.node.target.world().clone();
        world.tasks.spawn("write", Box::pin(write));
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(1)).await;
        assert_eq!(server.ost.grant_view().pending, 4096, "it is being carried out");
        for _ in 0..4 {
            spend(&two, granted(2, 0, 4096, 4096, u32::MAX, 0)).await.expect("written");
        }
        world.clock.sleep_until(world.clock.now() + Duration::from_secs(6)).await;
        assert_eq!(server.ost.grant_view().pending, 0);
        assert!(held() <= most, "{} of {most}", held());
        // Of what was used nothing is left.
        for client in [one, two] {
            assert_eq!(client.call(OstDisconnect::default()).await.errno(), None);
        }
        assert_eq!(held(), 0);
    });
}
