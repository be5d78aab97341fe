//! Replays that are none: they write to no OST that is read-only, and end no numbers.

use bytes::Bytes;
use sheen_store_mem::MemOptions;
use sheen_target::testing::TestCall;
use sheen_types::{Errno, Transno, Xid};
use sheen_wire::messages::{ObdPing, OstPunch, OstSetattr, Request};
use sheen_wire::ost::{BrwFlags, OstBody};

use super::harness::{named, piece, put, with_ost, write};

#[test]
fn what_claims_to_be_a_replay_changes_nothing() {
    with_ost(MemOptions::default(), async move |server| {
        let data = Bytes::from_static(b"written");
        let honest = server.node.connect("honest").await;
        put(&honest, 1, 0, &Bytes::from_static(b"before")).await.unwrap();
        server.ost.set_read_only(true);
        let body = OstBody { oa: named(1) };
        let requests: [Request; 3] = [
            write(1, vec![piece(0, data.len() as u32, BrwFlags::NONE)]).into(),
            OstPunch { ost_body: body.clone(), ..OstPunch::default() }.into(),
            OstSetattr { ost_body: body, ..OstSetattr::default() }.into(),
        ];
        let last = server.node.target.last_transno();
        for request in requests {
            for transno in [Transno(1), Transno(u64::MAX)] {
                let liar = server.node.connect("liar").await;
                let plain = TestCall { source: data.clone(), ..TestCall::new(request.clone()) };
                let refused = liar.call_with(plain.clone()).await.unwrap().errno();
                assert_eq!(refused, Some(Errno::EROFS));
                let answer = liar.call_with(plain.replayed(Xid(0x77_0000), transno)).await;
                assert_eq!(answer.unwrap().errno(), Some(Errno::ENODEV));
                let gone = liar.call(ObdPing::default()).await.errno();
                assert_eq!(gone, Some(Errno::ENOTCONN));
            }
        }
        assert_eq!(server.bytes(1), "before");
        assert_eq!(server.node.target.last_transno(), last);
    });
}
