//! Every limit and time of the RPC layer, with its reason.

use std::time::Duration;

use sheen_types::{MatchBits, Xid};

/// Xids of consecutive requests lie so far apart (`PTLRPC_BULK_OPS_COUNT`), because the parts of a
/// request's bulk take the match bits that follow its own.
pub const XID_STEP: u64 = 64;

/// The xid or first match bits of the request that match bits belong to.
#[must_use]
pub fn base_of(bits: u64) -> u64 {
    bits & !(XID_STEP - 1)
}

/// States of an import that its history keeps (`IMP_STATE_HIST_LEN`).
pub const HISTORY_STATES: usize = 16;

/// The first xid of a client that starts at `seconds` since 1970: higher than all that an earlier
/// run can have used, and aligned for bulk.
#[must_use]
pub fn first_xid(seconds: u64) -> Xid {
    Xid(base_of(seconds << 20))
}

/// How many parts a bulk has whose last part has these match bits.
#[must_use]
pub fn bulk_parts_of(last: MatchBits) -> usize {
    (last.0 % XID_STEP) as usize + 1
}

/// `obd_timeout`: base of the fixed times below.
pub const OBD_TIMEOUT: Duration = Duration::from_secs(100);

/// An import that said nothing for so long pings: a quarter of `obd_timeout`, so that three pings
/// may get lost before a server takes its client for dead.
pub const PING_INTERVAL: Duration = Duration::from_secs(25);

/// The same while requests wait to become durable (`PING_INTERVAL_SHORT`): what we keep for replay
/// is memory.
pub const PING_INTERVAL_SHORT: Duration = Duration::from_secs(7);

/// A connect is given up after so long (`INITIAL_CONNECT_TIMEOUT`, a twentieth of `obd_timeout`).
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause before the second try to connect, doubled for each further one: a killed server that is
/// started again at once is found at once.
pub const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(20);

/// Longest pause: a server that comes back later is found within a second.
pub const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long to wait for the answer to a disconnect; the target's export is not worth more.
pub const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Ordinary requests that a service executes at once. Each is a task of some KiB; lock requests
/// among them may wait long, so the number is high.
pub const SERVICE_ACTIVE: usize = 4096;

/// Ordinary requests that a service holds back beyond those; more are dropped, and their clients
/// ask again.
pub const SERVICE_QUEUED: usize = 65536;

/// Urgent requests (pings, cancels, callbacks, disconnects) executed at once, apart from ordinary
/// ones: what frees a lock must not wait behind who waits for it.
pub const SERVICE_ACTIVE_URGENT: usize = 8192;

/// Locks that clients tell again, executed at once, apart from all else: they wait until the requests
/// of all clients are replayed, and must not be in the way of those.
pub const SERVICE_ACTIVE_LOCK_REPLAYS: usize = 8192;
