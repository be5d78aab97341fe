//! The texts that `lctl get_param` shows, in Lustre's shape byte for byte.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sheen_node::rpc::ImportReport;
use sheen_types::{Instant, Samples, Unit};
use sheen_wire::connect::{ConnectFlags, ObdConnectData};

/// Columns of the names in a `stats` file.
const NAME_WIDTH: usize = 35;

/// `OBD_CONNECT_*` as Lustre shows them, by bit.
const CONNECT_NAMES: [&str; 64] = [
    "read_only",
    "lov_index",
    "connect_from_mds",
    "write_grant",
    "server_lock",
    "version",
    "mgs_nidlist",
    "acl",
    "xattr",
    "create_on_write",
    "truncate_lock",
    "initial_transno",
    "inode_bit_locks",
    "barrier",
    "getattr_by_fid",
    "no_oh_for_devices",
    "remote_client",
    "remote_client_by_force",
    "max_byte_per_rpc",
    "64bit_qdata",
    "mds_capability",
    "oss_capability",
    "early_lock_cancel",
    "som",
    "adaptive_timeouts",
    "lru_resize",
    "mds_mds_connection",
    "real_conn",
    "change_qunit_size",
    "alt_checksum_algorithm",
    "fid_is_enabled",
    "version_recovery",
    "pools",
    "grant_shrink",
    "skip_orphan",
    "large_ea",
    "full20",
    "layout_lock",
    "64bithash",
    "object_max_bytes",
    "imp_recov",
    "jobstats",
    "umask",
    "einprogress",
    "grant_param",
    "hpreq_check1",
    "lvb_type",
    "nanoseconds_times",
    "lightweight_conn",
    "short_io",
    "pingless",
    "flock_deadlock",
    "disp_stripe",
    "open_by_fid",
    "lfsck",
    "unknown",
    "unlink_close",
    "multi_mod_rpcs",
    "dir_stripe",
    "subtree",
    "lockahead",
    "bulk_mbits",
    "compact_obdo",
    "second_flags",
];
/// `OBD_CONNECT2_*`, by bit.
const CONNECT2_NAMES: [&str; 45] = [
    "file_secctx",
    "lockaheadv2",
    "dir_migrate",
    "sum_statfs",
    "overstriping",
    "flr",
    "wbc",
    "lock_convert",
    "archive_id_array",
    "increasing_xid",
    "selinux_policy",
    "lsom",
    "pcc",
    "crush",
    "async_discard",
    "client_encryption",
    "fidmap",
    "getattr_pfid",
    "lseek",
    "dom_lvb",
    "reply_mbits",
    "mode_convert",
    "batch_rpc",
    "pcc_ro",
    "mne_nid_type",
    "lock_contend",
    "atomic_open_lock",
    "name_encryption",
    "mkdir_replay",
    "dmv_imp_inherit",
    "encryption_fid2path",
    "replay_create",
    "large_nid",
    "compressed_file",
    "unaligned_dio",
    "conn_policy",
    "sparse_read",
    "mirror_id_fix",
    "update_layout",
    "readdir_open",
    "flr_ec",
    "flr_immediate_mirror",
    "no_append",
    "flr_ec_wr",
    "perfstats",
];

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "shown to operators, and nothing depends on it")]
pub(super) fn today() -> SystemTime {
    SystemTime::now()
}

/// Since when something is counted.
pub(super) struct Since(Mutex<SystemTime>);

impl Since {
    /// Since now.
    pub(super) fn now() -> Self {
        Self(Mutex::new(today()))
    }

    /// Counting starts anew.
    pub(super) fn restart(&self) {
        *self.0.lock() = today();
    }

    /// A `stats` file: when it was read, since when it counts, and a line for each counter that
    /// has samples.
    pub(super) fn stats(&self, samples: &[Samples]) -> String {
        let start = *self.0.lock();
        stats_between(start, today(), samples)
    }
}

fn stats_between(start: SystemTime, now: SystemTime, samples: &[Samples]) -> String {
    let since_epoch = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let elapsed = now.duration_since(start).unwrap_or_default();
    let mut text = String::new();
    for (name, time) in [
        ("snapshot_time", since_epoch(now)),
        ("start_time", since_epoch(start)),
        ("elapsed_time", elapsed),
    ] {
        let (seconds, nanoseconds) = (time.as_secs(), time.subsec_nanos());
        text += &format!("{name:<NAME_WIDTH$} {seconds}.{nanoseconds:09} secs.nsecs\n");
    }
    text.extend(samples.iter().map(sample));
    text
}

fn sample(samples: &Samples) -> String {
    let Samples { line, count, min, max, sum, squared } = samples;
    let unit = line.unit.name();
    let head = format!("{:<NAME_WIDTH$} {count} samples [{unit}]", line.name);
    match line.unit {
        Unit::Requests => format!("{head}\n"),
        Unit::Bytes | Unit::Microseconds => format!("{head} {min} {max} {sum} {squared}\n"),
    }
}

/// The names of all features, as in `connect_flags`.
fn connect_names(data: &ObdConnectData) -> Vec<&'static str> {
    let bits = |word: u64, names: &'static [&'static str]| {
        let set = (0..64).filter(move |bit| word >> bit & 1 == 1);
        set.map(move |bit| names.get(bit).copied().unwrap_or("unknown"))
    };
    let has_second = data.flags.contains(ConnectFlags::FLAGS2);
    let second = if has_second { data.flags2.0 } else { 0 };
    bits(data.flags.0, &CONNECT_NAMES).chain(bits(second, &CONNECT2_NAMES)).collect()
}

/// The time of day of a moment of the monotonic clock.
pub(super) struct Clock {
    /// The monotonic clock, in nanoseconds, and the time of day, at one moment.
    pub(super) now: Instant,
    pub(super) wall: SystemTime,
}

impl Clock {
    fn seconds(&self, at: Instant) -> u64 {
        let ago = Duration::from_nanos(self.now.0.saturating_sub(at.0));
        let then = self.wall.checked_sub(ago).unwrap_or(UNIX_EPOCH);
        then.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    }
}

/// `*.state`: where an import stands, and the states before.
pub(super) fn state(report: &ImportReport, clock: &Clock) -> String {
    let mut text = format!("current_state: {}\nstate_history:\n", report.state);
    for change in &report.history {
        text += &format!(" - [ {}, {} ]\n", clock.seconds(change.at), change.state);
    }
    text
}

/// `*.import` of the device `name`.
pub(super) fn import(name: &str, report: &ImportReport) -> String {
    let counters = report.counters;
    let mut text = format!(
        "import:\n    name: {name}\n    target: {}\n    state: {}\n    connect_flags: [ {} ]\n",
        report.target,
        report.state,
        connect_names(&report.data).join(", "),
    );
    text += &connect_data(&report.data);
    text += "    import_flags: [ IMPF_REPLAYABLE, IMPF_PINGABLE, IMPF_CONNECT_TRIED ]\n";
    text += &format!(
        "    connection:\n       current_connection: \"{}\"\n       connection_attempts: {}\n       \
         generation: {}\n",
        report.peer, counters.connects, counters.connects,
    );
    text += &format!(
        "    rpcs:\n       inflight: {}\n       unregistering: 0\n       timeouts: {}\n",
        counters.in_flight, counters.timeouts,
    );
    text
}

fn connect_data(data: &ObdConnectData) -> String {
    let mut text = format!(
        "    connect_data:\n       flags: {:#x}\n       instance: {}\n",
        data.flags.0, data.instance
    );
    let [fix, patch, minor, major] = data.version.to_le_bytes();
    let blocks = 1u64.checked_shl(data.grant_blkbits.into()).unwrap_or(0);
    let inodes = 1u64.checked_shl(data.grant_inobits.into()).unwrap_or(0);
    for (flag, line) in [
        (ConnectFlags::VERSION, format!("target_version: {major}.{minor}.{patch}.{fix}")),
        (ConnectFlags::GRANT, format!("initial_grant: {}", data.grant)),
        (ConnectFlags::INDEX, format!("target_index: {}", data.index)),
        (ConnectFlags::BRW_SIZE, format!("max_brw_size: {}", data.brw_size)),
        (ConnectFlags::IBITS, format!("ibits_known: {:#x}", data.ibits_known)),
        (ConnectFlags::GRANT_PARAM, format!("grant_block_size: {blocks}")),
        (ConnectFlags::GRANT_PARAM, format!("grant_inode_size: {inodes}")),
        (
            ConnectFlags::GRANT_PARAM,
            format!("grant_max_extent_size: {}", u64::from(data.grant_max_blks) * blocks),
        ),
        (
            ConnectFlags::GRANT_PARAM,
            format!("grant_extent_tax: {}", u64::from(data.grant_tax_kb) << 10),
        ),
        (ConnectFlags::CKSUM, format!("cksum_types: {:#x}", data.cksum_types.0)),
        (ConnectFlags::MAX_EASIZE, format!("max_easize: {}", data.max_easize)),
        (ConnectFlags::MAXBYTES, format!("max_object_bytes: {}", data.maxbytes)),
        (ConnectFlags::MULTIMODRPCS, format!("max_mod_rpcs: {}", data.maxmodrpcs)),
    ] {
        if data.flags.contains(flag) {
            text += &format!("       {line}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use sheen_types::CounterLine;

    use super::*;

    #[test]
    fn stats_are_lustres() {
        let at = |nanoseconds| UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        let (start, now) = (at(1_795_234_657_684_560_430), at(1_795_234_719_608_708_310));
        let samples =
            |line, count, min, max, sum, squared| Samples { line, count, min, max, sum, squared };
        let bytes = CounterLine::bytes("read_bytes");
        let ioctl = CounterLine { name: "ioctl", unit: Unit::Requests };
        let samples = [
            samples(bytes, 3, 2, 2_097_152, 2_097_159, 4_398_046_511_133),
            samples(ioctl, 1413, 1, 1, 1413, 1413),
        ];
        // As a client of Lustre 2.17 showed them.
        let expected = "\
snapshot_time                       1795234719.608708310 secs.nsecs
start_time                          1795234657.684560430 secs.nsecs
elapsed_time                        61.924147880 secs.nsecs
read_bytes                          3 samples [bytes] 2 2097152 2097159 4398046511133
ioctl                               1413 samples [reqs]
";
        assert_eq!(stats_between(start, now, &samples), expected);
    }

    #[test]
    fn features_are_called_as_lustre_calls_them() {
        // The flags of an OST of Lustre 2.17, and what its client called them.
        let data = ObdConnectData {
            flags: ConnectFlags(0xa042_7af2_e344_0038),
            flags2: sheen_wire::connect::ConnectFlags2(0x4_0014_8202),
            ..ObdConnectData::default()
        };
        let expected = "write_grant, server_lock, version, max_byte_per_rpc, early_lock_cancel, \
            adaptive_timeouts, lru_resize, alt_checksum_algorithm, fid_is_enabled, \
            version_recovery, grant_shrink, full20, layout_lock, 64bithash, object_max_bytes, \
            jobstats, einprogress, grant_param, hpreq_check1, lvb_type, short_io, lfsck, bulk_mbits, \
            second_flags, lockaheadv2, increasing_xid, client_encryption, lseek, reply_mbits, \
            unaligned_dio";
        assert_eq!(connect_names(&data).join(", "), expected);
    }
}
