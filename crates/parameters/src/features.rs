//! The features of a connection, by Lustre's names.

use sheen_wire::connect::{ConnectFlags, ObdConnectData};

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

/// The names of all features, as in `import`.
pub(super) fn connect_names(data: &ObdConnectData) -> Vec<&'static str> {
    let bits = |word: u64, names: &'static [&'static str]| {
        let set = (0..64).filter(move |bit| word >> bit & 1 == 1);
        set.map(move |bit| names.get(bit).copied().unwrap_or("unknown"))
    };
    let has_second = data.flags.contains(ConnectFlags::FLAGS2);
    let second = if has_second { data.flags2.0 } else { 0 };
    bits(data.flags.0, &CONNECT_NAMES).chain(bits(second, &CONNECT2_NAMES)).collect()
}

/// `*.connect_flags`: the words that were agreed on, and a line for each feature.
pub(super) fn connect_flags(data: &ObdConnectData) -> String {
    let mut text = format!("flags={:#x}\n", data.flags.0);
    if data.flags.contains(ConnectFlags::FLAGS2) {
        text += &format!("flags2={:#x}\n", data.flags2.0);
    }
    text.extend(connect_names(data).into_iter().map(|name| format!("{name}\n")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
