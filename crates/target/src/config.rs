//! What a target is started with.

use std::time::Duration;

use sheen_types::Uuid;
use sheen_wire::connect::{ConnectFlags, ConnectFlags2, ObdConnectData, version_code};

/// The release we announce in connect data: 2.17.0.
pub const VERSION: u32 = version_code(2, 17, 0, 0);

/// What the target answers itself, for every role.
const FLAGS: ConnectFlags = ConnectFlags::VERSION
    .union(ConnectFlags::FULL20)
    .union(ConnectFlags::AT)
    .union(ConnectFlags::BULK_MBITS)
    .union(ConnectFlags::FLAGS2);
/// What targets support, in the second word of flags.
const FLAGS2: ConnectFlags2 = ConnectFlags2::REP_MBITS;

/// How long the target waits, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// `obd_timeout`: the base of all other timeouts.
    pub base: Duration,
    /// `recovery_time_soft`: how long recovery waits for known clients, from the first connect;
    /// prolonged while clients make progress.
    pub recovery_soft: Duration,
    /// `recovery_time_hard`: recovery ends after this whatever happens.
    pub recovery_hard: Duration,
    /// How long a client may take to cancel a lock after a blocking callback.
    pub lock_callback: Duration,
    /// A client whose last request is older than this is evicted.
    pub ping_evict: Duration,
}

impl Timeouts {
    /// All of Lustre's defaults for an `obd_timeout`: recovery waits 3 times that and at most 9
    /// times, a silent client is evicted after one and a half (six ping intervals of a quarter).
    #[must_use]
    pub fn from_base(base: Duration) -> Self {
        Self {
            base,
            recovery_soft: base * 3,
            recovery_hard: base * 9,
            lock_callback: base,
            ping_evict: base * 3 / 2,
        }
    }
}

impl Default for Timeouts {
    /// For Lustre's default `obd_timeout` of 100 seconds.
    fn default() -> Self {
        Self::from_base(Duration::from_secs(100))
    }
}

/// What a role can do: exactly the features whose code works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOffer {
    /// Features of the first word. The target adds what it and the RPC layer answer for every role:
    /// versions, adaptive timeouts, match bits of bulk and replies.
    pub flags: ConnectFlags,
    /// Features of the second word.
    pub flags2: ConnectFlags2,
    /// Most bytes of one bulk; 0 for a role without bulk.
    pub brw_size: u32,
    /// Inode bits that locks may carry; 0 for none.
    pub ibits_known: u64,
    /// Most bytes of a layout.
    pub max_easize: u32,
    /// Largest object.
    pub maxbytes: u64,
    /// Modifying requests that one client may have in flight.
    pub maxmodrpcs: u16,
}

impl ConnectOffer {
    /// What both sides can do. Fields whose flag is not agreed on are 0; a role's hook fills in
    /// the rest (grants, checksums).
    #[must_use]
    pub(crate) fn negotiate(&self, offered: &ObdConnectData, index: u16) -> ObdConnectData {
        let mut flags = offered.flags & (self.flags | FLAGS);
        let flags2 = if flags.contains(ConnectFlags::FLAGS2) {
            offered.flags2 & (self.flags2 | FLAGS2)
        } else {
            ConnectFlags2::NONE
        };
        if flags2 == ConnectFlags2::NONE {
            flags = flags.without(ConnectFlags::FLAGS2);
        }
        let has = |flag: ConnectFlags| flags.contains(flag);
        ObdConnectData {
            flags,
            flags2,
            version: VERSION,
            index: if has(ConnectFlags::INDEX) { u32::from(index) } else { 0 },
            brw_size: match (has(ConnectFlags::BRW_SIZE), offered.brw_size) {
                (true, wanted) => wanted.min(self.brw_size),
                (false, _) => 0,
            },
            ibits_known: match has(ConnectFlags::IBITS) {
                true => offered.ibits_known & self.ibits_known,
                false => 0,
            },
            max_easize: if has(ConnectFlags::MAX_EASIZE) { self.max_easize } else { 0 },
            maxbytes: if has(ConnectFlags::MAXBYTES) { self.maxbytes } else { 0 },
            maxmodrpcs: if has(ConnectFlags::MULTIMODRPCS) { self.maxmodrpcs } else { 0 },
            transno: offered.transno,
            ..ObdConnectData::default()
        }
    }
}

/// The identity of a target.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// As operators see it: `lustre-MDT0000`, `MGS`.
    pub name: String,
    /// Under which it is connected to: `lustre-MDT0000_UUID`, `MGS`.
    pub uuid: Uuid,
    /// Its number among the targets of its kind.
    pub index: u16,
    /// What it can do.
    pub offer: ConnectOffer,
    /// Whether clients are awaited and replay after a restart. Not so for an MGS.
    pub replayable: bool,
    /// How long it waits, and for what.
    pub timeouts: Timeouts,
}
