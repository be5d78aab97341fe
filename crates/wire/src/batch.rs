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

wire_struct! {
    /// `struct but_update_header`: what a batch is made of.
    pub struct ButUpdateHeader {
        /// [`ButUpdateHeader::MAGIC`].
        magic: u32,
        /// Bulk buffers, or 1 if the operations follow in the request itself.
        count: u32,
        /// Bytes of operations that follow this header; 0 if they come as bulk.
        inline_length: u32,
        /// Bytes set aside for the reply.
        reply_size: u32,
        /// Operations.
        update_count: u32,
        /// Unused.
        padding: u32,
    }
}

impl ButUpdateHeader {
    /// `BUT_HEADER_MAGIC`.
    pub const MAGIC: u32 = 0xbadf_0001;
}

wire_struct! {
    /// `struct batch_update_request` and `struct batch_update_reply` before their messages.
    pub struct BatchHeader {
        /// [`BatchHeader::REQUEST_MAGIC`] or [`BatchHeader::REPLY_MAGIC`].
        magic: u32,
        /// Messages that follow.
        count: u16,
        /// Unused.
        padding: u16,
    }
}

impl BatchHeader {
    /// `BUT_REQUEST_MAGIC`.
    pub const REQUEST_MAGIC: u32 = 0xbade_0001;
    /// `BUT_REPLY_MAGIC`.
    pub const REPLY_MAGIC: u32 = 0x00ad_0001;
}
