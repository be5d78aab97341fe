//! Every operation that a PtlRPC body can name.

use crate::wire_enum;

pub use crate::md::ReintOp;

wire_enum! {
    /// `pb_opc`: what a request asks for, with Lustre's names.
    pub enum Opcode: u32 {
        /// Unused.
        OST_REPLY = 0,
        /// Attributes of an object.
        OST_GETATTR = 1,
        /// Change an object's attributes.
        OST_SETATTR = 2,
        /// Read.
        OST_READ = 3,
        /// Write.
        OST_WRITE = 4,
        /// Create objects ahead of use, or clean up orphans.
        OST_CREATE = 5,
        /// Remove an object.
        OST_DESTROY = 6,
        /// Ask for a value by key.
        OST_GET_INFO = 7,
        /// Connect to an OST.
        OST_CONNECT = 8,
        /// Disconnect from an OST.
        OST_DISCONNECT = 9,
        /// Truncate, or free a range.
        OST_PUNCH = 10,
        /// Obsolete.
        OST_OPEN = 11,
        /// Obsolete.
        OST_CLOSE = 12,
        /// Space and objects.
        OST_STATFS = 13,
        /// Make an object's range durable.
        OST_SYNC = 16,
        /// Set a value by key.
        OST_SET_INFO = 17,
        /// Obsolete.
        OST_QUOTACHECK = 18,
        /// Quota of one OST.
        OST_QUOTACTL = 19,
        /// Obsolete.
        OST_QUOTA_ADJUST_QUNIT = 20,
        /// Advice about coming access.
        OST_LADVISE = 21,
        /// Allocate a range.
        OST_FALLOCATE = 22,
        /// Find data or a hole.
        OST_SEEK = 23,
        /// Attributes of an inode.
        MDS_GETATTR = 33,
        /// Attributes of a name in a directory.
        MDS_GETATTR_NAME = 34,
        /// Close an open handle.
        MDS_CLOSE = 35,
        /// Change the namespace; the record says how.
        MDS_REINT = 36,
        /// Pages of a directory.
        MDS_READPAGE = 37,
        /// Connect to an MDT.
        MDS_CONNECT = 38,
        /// Disconnect from an MDT.
        MDS_DISCONNECT = 39,
        /// FID of the root or of a subdirectory to mount.
        MDS_GET_ROOT = 40,
        /// Space and inodes.
        MDS_STATFS = 41,
        /// Obsolete.
        MDS_PIN = 42,
        /// Obsolete.
        MDS_UNPIN = 43,
        /// Make an inode, or everything, durable.
        MDS_SYNC = 44,
        /// Obsolete.
        MDS_DONE_WRITING = 45,
        /// Set a value by key.
        MDS_SET_INFO = 46,
        /// Obsolete.
        MDS_QUOTACHECK = 47,
        /// Quota.
        MDS_QUOTACTL = 48,
        /// One extended attribute, or their names.
        MDS_GETXATTR = 49,
        /// Obsolete.
        MDS_SETXATTR = 50,
        /// Obsolete.
        MDS_WRITEPAGE = 51,
        /// Obsolete.
        MDS_IS_SUBDIR = 52,
        /// Ask for a value by key.
        MDS_GET_INFO = 53,
        /// HSM state of a file.
        MDS_HSM_STATE_GET = 54,
        /// Change the HSM state of a file.
        MDS_HSM_STATE_SET = 55,
        /// The HSM action in progress on a file.
        MDS_HSM_ACTION = 56,
        /// A copytool's progress.
        MDS_HSM_PROGRESS = 57,
        /// Ask for HSM actions.
        MDS_HSM_REQUEST = 58,
        /// A copytool begins.
        MDS_HSM_CT_REGISTER = 59,
        /// A copytool ends.
        MDS_HSM_CT_UNREGISTER = 60,
        /// Exchange two files' layouts.
        MDS_SWAP_LAYOUTS = 61,
        /// Remove files by FID.
        MDS_RMFID = 62,
        /// Several operations in one request.
        MDS_BATCH = 63,
        /// Set a file's data version.
        MDS_HSM_DATA_VERSION = 64,
        /// Ask for a lock, perhaps with an intent.
        LDLM_ENQUEUE = 101,
        /// Change a lock's mode or bits.
        LDLM_CONVERT = 102,
        /// Cancel locks.
        LDLM_CANCEL = 103,
        /// To the client: its lock conflicts with another.
        LDLM_BL_CALLBACK = 104,
        /// To the client: a lock is granted.
        LDLM_CP_CALLBACK = 105,
        /// To the client: what is the size and time under this lock?
        LDLM_GL_CALLBACK = 106,
        /// To the client: set a value by key.
        LDLM_SET_INFO = 107,
        /// Connect to the MGS.
        MGS_CONNECT = 250,
        /// Disconnect from the MGS.
        MGS_DISCONNECT = 251,
        /// Obsolete.
        MGS_EXCEPTION = 252,
        /// A target registers.
        MGS_TARGET_REG = 253,
        /// Obsolete.
        MGS_TARGET_DEL = 254,
        /// Set a parameter.
        MGS_SET_INFO = 255,
        /// Read configuration in bulk.
        MGS_CONFIG_READ = 256,
        /// Am I still connected?
        OBD_PING = 400,
        /// Pages of an index.
        OBD_IDX_READ = 403,
        /// Open a log.
        LLOG_ORIGIN_HANDLE_CREATE = 501,
        /// Read a log onward.
        LLOG_ORIGIN_HANDLE_NEXT_BLOCK = 502,
        /// Read a log's header.
        LLOG_ORIGIN_HANDLE_READ_HEADER = 503,
        /// Obsolete.
        LLOG_ORIGIN_HANDLE_WRITE_REC = 504,
        /// Obsolete.
        LLOG_ORIGIN_HANDLE_CLOSE = 505,
        /// Obsolete.
        LLOG_ORIGIN_CONNECT = 506,
        /// Read a log backward.
        LLOG_ORIGIN_HANDLE_PREV_BLOCK = 508,
        /// Obsolete.
        LLOG_ORIGIN_HANDLE_DESTROY = 509,
        /// Acquire or report quota.
        QUOTA_DQACQ = 601,
        /// Obsolete.
        QUOTA_DQREL = 602,
        /// Allocate FID sequences.
        SEQ_QUERY = 700,
        /// Begin a security context.
        SEC_CTX_INIT = 801,
        /// Continue a security context.
        SEC_CTX_INIT_CONT = 802,
        /// End a security context.
        SEC_CTX_FINI = 803,
        /// Which target holds a sequence?
        FLD_QUERY = 900,
        /// The table of sequences.
        FLD_READ = 901,
        /// Updates from another MDT.
        OUT_UPDATE = 1000,
        /// LFSCK event between targets.
        LFSCK_NOTIFY = 1101,
        /// LFSCK state between targets.
        LFSCK_QUERY = 1102,
    }
}
