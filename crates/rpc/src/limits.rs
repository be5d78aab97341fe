//! Every limit and time of the RPC layer, with its reason.

use std::time::Duration;

use sheen_types::{MatchBits, Xid};

/// Xids of consecutive requests lie so far apart (`PTLRPC_BULK_OPS_COUNT` of 2.17), because the parts of a
/// request's bulk take the match bits that follow its own. Where a request does not say how many parts it may have (`MDS_BATCH`),
/// a server of Lustre takes the xid modulo this for the number of the last one.
pub const XID_STEP: u64 = 128;

/// Parts of a bulk at most. Clients of before 2.17 have xids that lie so far apart.
pub const BULK_PARTS_MAX: u64 = 64;

/// The xid or first match bits of the request that match bits belong to.
#[must_use]
pub fn base_of(bits: u64) -> u64 {
    bits & !(XID_STEP - 1)
}

/// States of an import that its history keeps (`IMP_STATE_HIST_LEN`).
pub const HISTORY_STATES: usize = 16;

/// The first xid of a client that starts so long after 1970: higher than all that an earlier run can have used,
/// however short it was, and aligned for bulk.
#[must_use]
pub fn first_xid(since_1970: Duration) -> Xid {
    let fraction = (u64::from(since_1970.subsec_nanos()) << 20) / 1_000_000_000;
    Xid(base_of((since_1970.as_secs() << 20) + fraction))
}

/// How many parts a bulk has whose last part has these match bits.
#[must_use]
pub fn bulk_parts_of(last: MatchBits) -> usize {
    (last.0 % BULK_PARTS_MAX) as usize + 1
}

/// `obd_timeout`: base of the fixed times below.
pub const OBD_TIMEOUT: Duration = Duration::from_secs(100);

/// An import that said nothing for so long pings: a quarter of `obd_timeout`, so that three pings
/// may get lost before a server takes its client for dead.
pub const PING_INTERVAL: Duration = Duration::from_secs(25);

/// Between pings while requests wait to become durable (`PING_INTERVAL_SHORT`): what we keep for replay
/// is memory.
pub const PING_INTERVAL_SHORT: Duration = Duration::from_secs(7);

/// A connect is given up after so long (`INITIAL_CONNECT_TIMEOUT`, a twentieth of `obd_timeout`).
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause before the second try to connect, doubled for each further one: a killed server that is
/// started again at once is found at once.
pub const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(20);

/// Longest pause: a server that comes back later is found within a second.
pub const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long to wait for the answer to a disconnect. A target whose disk is busy takes some seconds; given up, its export
/// stays with what the client had open, until it is evicted.
pub const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Deadlines are looked at so often: they are seconds.
pub const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// `at_min`: no request is expected to take less, so that a stall of a loaded machine is none.
pub const AT_MIN: u32 = 5;

/// `at_max`: nor more; beyond it the server counts as dead.
pub const AT_MAX: u32 = 600;

/// `at_history`: how long a slow answer is remembered.
pub const AT_HISTORY: Duration = Duration::from_secs(600);

/// `at_early_margin`: an early reply leaves so long before the deadline.
pub const AT_EARLY_MARGIN: Duration = Duration::from_secs(5);

/// `at_extra`: an early reply asks for so many seconds more.
pub const AT_EXTRA: u32 = 30;

/// Requests of one import on the wire at once; a target that is busy is not made faster by more.
/// Lock requests, which may wait for another client, and pings do not count.
pub const REQUESTS_IN_FLIGHT: usize = 64;

/// Modifying requests of one import at once if the target does not say (Lustre's default is 7).
pub const MODIFYING_IN_FLIGHT: u16 = 7;

/// Most slots that we use: the target's reply data is one record per slot.
pub const MODIFYING_IN_FLIGHT_MAX: u16 = 256;

/// Ordinary requests of one client that run at once, and as many for data of an MDT. Each is a task of
/// some KiB that may wait long, for a lock say. A client with `max_rpcs_in_flight` at its most, 256, and
/// eight busy targets here has 2,048 on their way: what is beyond these waits, in turn.
pub const CLIENT_ACTIVE: usize = 1024;

/// Bytes that the waiting requests of one client hold; beyond, they are dropped, and the client asks
/// again. With [`REQUEST_OVERHEAD_BYTES`] a request counts as some 1.5 KiB, so this is over 40,000: twice
/// 256 for each of eighty targets.
pub const CLIENT_QUEUED_BYTES: usize = 64 << 20;

/// Bytes that the running requests of one client hold, of each class, with a copy of each that came meanwhile; beyond,
/// further ones wait and further copies are dropped. A client writes 64 KiB at most within a request: with
/// [`CLIENT_ACTIVE`] of those it meets this, and waits as it would for the count.
pub const CLIENT_ACTIVE_BYTES: usize = 64 << 20;

/// What a request costs beside its message.
pub const REQUEST_OVERHEAD_BYTES: usize = 512;

/// So many waiting requests of a client may keep the read buffers that they came in, of 16 KiB, from
/// being used again; those behind them are copied out.
pub const CLIENT_QUEUED_SHARING: usize = 64;

/// Waiting requests of a client from which on it is read slowly ([`MANY_WAIT_PAUSE`]): what is read costs a
/// processor as what is served does, and takes no turns.
pub const CLIENT_QUEUED_READ: usize = 1024;

/// For so long nothing is read of a client that has so many waiting. No server is through with them earlier.
pub const MANY_WAIT_PAUSE: Duration = Duration::from_millis(5);

/// Bytes of one client's bulk that are on their way at once; more waits for the client to take or send
/// what is. Sixteen of the largest: more than a network of 100 Gbit/s carries in 5 ms.
pub const CLIENT_BULK_BYTES: usize = 64 << 20;

/// Urgent requests (pings, cancels, callbacks, disconnects) of one client that run at once, apart from
/// ordinary ones: what frees a lock must not wait behind who waits for it.
pub const CLIENT_ACTIVE_URGENT: usize = 1024;

/// Lock replays of one client, executed at once, apart from all else: they wait until the
/// requests of all clients are replayed, and must not block those.
pub const CLIENT_ACTIVE_LOCK_REPLAYS: usize = 1024;

/// A peer that sends more than may wait is read no more for so long: what is dropped must not cost more
/// than what is served. Short beside all timeouts, as replies and cancels wait behind it.
pub const OVER_BUDGET_PAUSE: Duration = Duration::from_millis(20);

/// A transfer of at most so many bytes takes no room: with all requests that a client may have running
/// these are as many as [`CLIENT_BULK_BYTES`], and they are too many to count each.
pub const BULK_UNCOUNTED_BYTES: usize = 64 << 10;

/// A client that is sent bulk is behind with so many bytes unsent; then its transfers last until it has
/// caught up. Several of the largest parts, so that no wait for a look makes a gap.
pub const BULK_BACKLOG_BYTES: usize = 8 << 20;

/// Bytes unsent to a client from which on its requests are dropped: it takes no answers. All bulk that
/// it may have under way, and more than its answers can be while it reads.
pub const CLIENT_BACKLOG_BYTES: usize = CLIENT_BULK_BYTES + (32 << 20);

/// A client sends its bulk within this, once asked to (`obd_timeout`).
pub const BULK_TIME_MAX: Duration = OBD_TIMEOUT;
