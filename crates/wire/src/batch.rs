//! Requests that carry several operations (`MDS_BATCH`).

use crate::wire_struct;

wire_struct! {
    /// `struct but_update_buffer`: one bulk buffer of a batch that does not fit the request.
    pub struct ButUpdateBuffer {
        /// Bytes.
        size: u32,
        /// Unused.
        padding: u32,
    }
}
