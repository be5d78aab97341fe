//! Records of answers, by which requests that are sent again are answered (Lustre: the file `reply_data`).

use sheen_types::{Transno, Xid};

use crate::wire_struct;

wire_struct! {
    /// What was answered to a modifying request (`struct lsd_reply_data`).
    pub struct ReplyRecord {
        /// The transaction it became.
        transno: Transno,
        /// The request's name at its client.
        xid: Xid,
        /// The role's own: an open's disposition.
        data: u64,
        /// The reply's status.
        result: i32,
        /// The slot it was sent with.
        tag: u16,
        /// Unused.
        padding: u16,
    }
}
