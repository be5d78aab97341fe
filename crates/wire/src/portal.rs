//! Where messages arrive at their node.

use crate::wire_enum;

wire_enum! {
    /// Where a message arrives at its node (`FOO_REQUEST_PORTAL`, ...).
    pub enum Portal: u32 {
        /// LNet's own: pings.
        RESERVED = 0,
        /// Obsolete connection manager, requests.
        CONNMGR_REQUEST = 1,
        /// Obsolete connection manager, replies.
        CONNMGR_REPLY = 2,
        /// Replies of OSTs.
        OSC_REPLY = 4,
        /// Reads, writes, punches.
        OST_IO = 6,
        /// Object creation, OST statfs by an MDT.
        OST_CREATE = 7,
        /// Bulk of OST reads and writes.
        OST_BULK = 8,
        /// Replies of MDTs.
        MDC_REPLY = 10,
        /// Most requests to MDTs.
        MDS_REQUEST = 12,
        /// Reads and writes of data on MDTs.
        MDS_IO = 13,
        /// Bulk of MDTs.
        MDS_BULK = 14,
        /// Lock callbacks to clients.
        LDLM_CB_REQUEST = 15,
        /// Replies to lock callbacks.
        LDLM_CB_REPLY = 16,
        /// Lock cancels.
        LDLM_CANCEL_REQUEST = 17,
        /// Replies to lock cancels.
        LDLM_CANCEL_REPLY = 18,
        /// Closes and directory pages.
        MDS_READPAGE = 23,
        /// Updates between MDTs, batches.
        OUT = 24,
        /// Replies of the MGS.
        MGC_REPLY = 25,
        /// Requests to the MGS.
        MGS_REQUEST = 26,
        /// Unused: replies of the MGS.
        MGS_REPLY = 27,
        /// Most requests to OSTs.
        OST_REQUEST = 28,
        /// Which target holds a sequence.
        FLD_REQUEST = 29,
        /// FID sequences of clients.
        SEQ_METADATA = 30,
        /// FID sequences of OST objects.
        SEQ_DATA = 31,
        /// FID sequences of targets.
        SEQ_CONTROLLER = 32,
        /// Bulk of the MGS.
        MGS_BULK = 33,
    }
}
