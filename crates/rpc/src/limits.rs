//! Every limit and time of the RPC layer, with its reason.

use std::time::Duration;

use sheen_types::{MatchBits, Xid};

/// Xids of consecutive requests lie so far apart (`PTLRPC_BULK_OPS_COUNT`), because the parts of a
/// request's bulk take the match bits that follow its own.
pub const XID_STEP: u64 = 64;

/// States of an import that its history keeps (`IMP_STATE_HIST_LEN`).
pub const HISTORY_STATES: usize = 16;

/// The first xid of a client that starts at `seconds` since 1970: higher than all that an earlier
/// run can have used, and aligned for bulk.
#[must_use]
pub fn first_xid(seconds: u64) -> Xid {
    Xid((seconds << 20) & !(XID_STEP - 1))
}

/// How many parts a bulk has whose last part has these match bits.
#[must_use]
pub fn bulk_parts_of(last: MatchBits) -> usize {
    (last.0 % XID_STEP) as usize + 1
}

/// `obd_timeout`: base of the fixed times below.
pub const OBD_TIMEOUT: Duration = Duration::from_secs(100);
