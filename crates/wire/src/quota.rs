//! Quota: what users ask for, and what targets ask their quota master for.

use sheen_types::{Fid, LockHandle};

use crate::wire_struct;

wire_struct! {
    /// `struct obd_quotactl`: a quota command and its answer. A pool's name may follow.
    pub struct ObdQuotactl {
        /// `Q_*` or `LUSTRE_Q_*`.
        command: u32,
        /// User, group or project.
        kind: u32,
        /// Of whom.
        id: u32,
        /// Which part of the answer is right.
        state: u32,
        /// Grace time of blocks, in seconds.
        block_grace: u64,
        /// Grace time of inodes, in seconds.
        inode_grace: u64,
        /// Flags.
        info_flags: u32,
        /// Which fields are valid.
        info_valid: u32,
        /// Blocks at most, in KiB.
        block_hard_limit: u64,
        /// Blocks without grace, in KiB.
        block_soft_limit: u64,
        /// Bytes in use.
        space: u64,
        /// Inodes at most.
        inode_hard_limit: u64,
        /// Inodes without grace.
        inode_soft_limit: u64,
        /// Inodes in use.
        inodes: u64,
        /// When the grace of blocks ends, in seconds.
        block_time: u64,
        /// When the grace of inodes ends, in seconds.
        inode_time: u64,
        /// Which fields are valid.
        valid: u32,
        /// Unused.
        padding: u32,
    }
}

wire_struct! {
    /// `struct quota_body`: a target acquires, releases or reports.
    pub struct QuotaBody {
        /// Global index.
        fid: Fid,
        /// Of whom: a number, or a FID.
        id: [u64; 2],
        /// What is asked for.
        flags: u32,
        /// Unused.
        padding: u32,
        /// How much, in KiB or inodes.
        count: u64,
        /// In use at the target.
        usage: u64,
        /// Version of the target's index.
        slave_version: u64,
        /// Lock of this id.
        lock: LockHandle,
        /// Lock of the global index.
        global_lock: LockHandle,
        /// Version of the global index.
        global_version: u64,
        /// Unused.
        padding1: [u64; 3],
    }
}
