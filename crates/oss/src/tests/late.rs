//! Bulk that comes late, or not at all: whose bytes reach an object, and what its client is answered.

use std::time::Duration;

use bytes::Bytes;
use sheen_rpc::RpcError;
use sheen_store_mem::MemOptions;
use sheen_target::testing::{TestAnswer, TestCall, TestClient};
use sheen_types::Xid;
use sheen_wire::ost::BrwFlags;

use super::harness::{Server, inline, obdo_of, piece, put, with_ost, write};

/// How long a client's bulk takes here.
const LATE: Duration = Duration::from_secs(5);

/// The bytes of a write, all the same.
fn all(byte: u8) -> Bytes {
    vec![byte; 8192].into()
}

/// A write of `byte` to the first object's beginning, whose bulk takes `time`.
fn call(byte: u8, time: Duration) -> TestCall {
    let request = write(1, vec![piece(0, 8192, BrwFlags::NONE)]);
    TestCall { source: all(byte), source_time: time, ..TestCall::new(request) }
}

/// Sends a request and goes on; what is answered is seen in the end.
fn begin(server: &Server, client: &TestClient, call: TestCall) -> Answered {
    let (client, answered) = (client.clone(), Answered::default());
    let place = answered.clone();
    let sent = async move { *place.0.lock() = Some(client.call_with(call).await) };
    server.node.target.world().tasks.spawn("a write", Box::pin(sent));
    answered
}

/// The answer, once the request has ended; inside it `None` for one that ended unanswered.
#[derive(Clone, Default)]
struct Answered(std::sync::Arc<parking_lot::Mutex<Option<Option<TestAnswer>>>>);

impl Answered {
    fn end(self) -> Option<TestAnswer> {
        self.0.lock().take().expect("the request has ended")
    }
}

async fn sleep(server: &Server, time: Duration) {
    let clock = &server.node.target.world().clock;
    clock.sleep_until(clock.now() + time).await;
}

#[test]
fn no_bytes_of_an_evicted_client_reach_an_object() {
    with_ost(MemOptions::default(), |server| async move {
        let (one, two) = (server.node.connect("one").await, server.node.connect("two").await);
        let old = begin(&server, &one, call(1, LATE));
        sleep(&server, LATE / 2).await;
        assert_eq!(server.node.target.evict_client("one").await, 1);
        put(&two, 1, 0, &all(2)).await.expect("written");
        sleep(&server, LATE).await;
        assert!(server.bytes(1) == all(2), "those of the client that has the lock now");
        assert!(old.end().is_none(), "it is not answered");
        let view = server.ost.brw.grants().view();
        assert_eq!(view.pending, 0, "it is over");
    });
}

#[test]
fn no_bytes_that_came_over_a_former_connection_reach_an_object() {
    with_ost(MemOptions::default(), |server| async move {
        let one = server.node.connect("one").await;
        let old = begin(&server, &one, call(1, LATE));
        sleep(&server, LATE / 2).await;
        one.connect().await.expect("it reconnects");
        // As a client does that names what it sends again anew.
        put(&one, 1, 0, &all(1)).await.expect("written");
        put(&one, 1, 0, &all(2)).await.expect("written");
        sleep(&server, LATE).await;
        assert!(server.bytes(1) == all(2), "what was written last");
        assert!(old.end().is_none(), "it is not answered");
    });
}

/// Neither is an answer: the client would take its bytes for refused, and drop them.
#[test]
fn a_write_whose_bulk_does_not_come_is_not_answered_and_may_come_again() {
    with_ost(MemOptions::default(), |server| async move {
        let one = server.node.connect("one").await;
        for (number, error) in [RpcError::TimedOut, RpcError::Disconnected].into_iter().enumerate()
        {
            let xid = Xid(0x9000_0000 + 64 * number as u64);
            let lost = TestCall { source_error: Some(error), xid: Some(xid), ..call(1, LATE) };
            let lost = begin(&server, &one, lost);
            sleep(&server, LATE * 2).await;
            assert!(lost.end().is_none(), "it is not answered");
            let byte = 2 + number as u8;
            let again = one.call_with(call(byte, Duration::ZERO).resent(xid)).await;
            obdo_of(again.expect("an answer")).expect("written");
            assert!(server.bytes(1) == all(byte), "what was written last");
        }
        let refused = TestCall {
            source_error: Some(RpcError::Protocol("too short".to_owned())),
            ..call(1, Duration::ZERO)
        };
        let refused = one.call_with(refused).await.expect("an answer");
        assert_eq!(refused.errno(), Some(sheen_types::Errno::EPROTO), "the client is at fault");
    });
}

#[test]
fn bytes_inside_a_request_and_cuts_of_an_evicted_client_are_dropped_as_well() {
    use sheen_target::{FaultAction, FaultSite};
    use sheen_wire::messages::{Kind, OstPunch};
    use sheen_wire::ost::OstBody;
    with_ost(MemOptions::default(), |server| async move {
        let (one, two) = (server.node.connect("one").await, server.node.connect("two").await);
        let late = FaultAction::Delay(LATE);
        server.node.target.faults().arm(FaultSite::Request(Kind::OstWrite), late, 1);
        server.node.target.faults().arm(FaultSite::Request(Kind::OstPunch), late, 1);
        let small = inline(write(1, vec![piece(0, 8192, BrwFlags::NONE)]), &all(1));
        let small = begin(&server, &one, TestCall::new(small));
        let mut oa = super::harness::named(1);
        (oa.size, oa.blocks) = (0, sheen_types::Extent::EOF);
        let punch = OstPunch { ost_body: OstBody { oa }, ..OstPunch::default() };
        let cut = begin(&server, &one, TestCall::new(punch));
        sleep(&server, LATE / 2).await;
        assert_eq!(server.node.target.evict_client("one").await, 1);
        put(&two, 1, 0, &all(2)).await.expect("written");
        sleep(&server, LATE).await;
        assert!(server.bytes(1) == all(2), "what was written last");
        assert!(small.end().is_none() && cut.end().is_none(), "neither is answered");
    });
}
