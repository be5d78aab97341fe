//! A server that stood still serves requests whose bulk their client has withdrawn and sent again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sheen_io::Oneshot;
use sheen_rpc::{Answer, Bulk, Call, RpcError};
use sheen_types::Nid;
use sheen_vnet::{NetworkConditions, Virtual};

use super::handler::{content, order};
use super::{MIB, import, node, serve};

/// Three parts.
const LENGTH: usize = 2 * MIB + 7;
/// How long the server stands still, with the request before it.
const STILL: Duration = Duration::from_secs(1);
/// The client is answered so soon after that, and not when it loses patience once more.
const SOON: Duration = Duration::from_secs(3);

/// The answer to a call that is resent while the server stands still; also how often it was executed.
fn resent(seed: u64, call: Call) -> (Result<Answer, RpcError>, Vec<u32>) {
    let network = Virtual::new(seed, NetworkConditions::default());
    let world = network.world();
    network.run(async move {
        let (one, two) = (Nid::tcp([10, 0, 0, 1].into()), Nid::tcp([10, 0, 0, 2].into()));
        let server = node(world.clone(), one, 988).await;
        let target = serve(&server, 500);
        let client = node(world.clone(), two, 988).await;
        let import = import(&client, vec![one]);
        import.connect().await.expect("it connects");
        let answer = Oneshot::new();
        let (answered, calling) = (Arc::clone(&answer), Arc::clone(&import));
        let task = async move { answered.put(calling.call(call).await) };
        world.tasks.spawn("call", Box::pin(task));
        let clock = &world.clock;
        clock.sleep_until(clock.now() + STILL).await;
        import.reconnect();
        clock.sleep_until(clock.now() + STILL).await;
        assert_eq!(server.service_stats().attached, 1, "the copy has come");
        let since = clock.now();
        target.goes_on.change(|goes_on| *goes_on = true);
        let answer = answer.wait().await;
        let took = clock.now().since(since);
        assert!(took < SOON, "answered after {took:?}");
        let executed = target.executed.lock().values().copied().collect();
        (answer, executed)
    })
}

#[test]
fn bytes_that_are_offered_anew_are_fetched_by_the_copy_that_offers_them() {
    for seed in 0..4 {
        let source = Bulk::Source(vec![Bytes::from(content(LENGTH))]);
        let (answer, executed) =
            resent(seed, Call::new(order("late-put", LENGTH)).with_bulk(source));
        // The target compares the bytes.
        answer.expect("they are written");
        assert_eq!(executed, [2], "the first found nothing to fetch");
    }
}

#[test]
fn bytes_are_sent_to_where_the_copy_that_came_last_awaits_them() {
    for seed in 0..4 {
        let sink = Bulk::Sink(LENGTH);
        let (answer, executed) = resent(seed, Call::new(order("late-get", LENGTH)).with_bulk(sink));
        assert_eq!(answer.expect("they are read").bulk.concat(), content(LENGTH));
        assert_eq!(executed, [2], "what the first sent is awaited no more");
    }
}
