//! What MDTs ask of each other.

use bytes::Bytes;

use super::Select;
use crate::message;
use crate::out::OutUpdateBuffer;

message! {
    /// Updates of one MDT's objects for a change that another MDT executes. Such as only read, too.
    OutUpdate => OutUpdateReply = "OUT_UPDATE";
    on OUT_UPDATE, Select::Any;
    to OUT, OSC_REPLY;
    flags MODIFYING | REPLAYABLE | BULK_READ | SERVER;
    request {
        out_update_header: Bytes,
        update_buf: Vec<OutUpdateBuffer>,
    }
    reply {
        object_update_reply: Bytes,
    }
}
