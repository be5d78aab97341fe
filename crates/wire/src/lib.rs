//! Every byte sent to or stored for peers, and the table of all messages.
//!
//! Bytes come in as [`bytes::Bytes`] and leave as [`Writer`]s; in between there are only typed
//! values. Decoding is total: any input gives a value or a [`DecodeError`], never a panic, and
//! never allocates more than the input's own length. Encoding is little-endian; decoding follows
//! the order that the message's magic announced.

pub mod batch;
pub mod changelog;
pub mod checksum;
pub mod codec;
pub mod connect;
pub mod dir;
#[doc(hidden)]
pub mod fields;
pub mod fld;
pub mod ldlm;
pub mod llog;
pub mod lmv;
pub mod lnet;
pub mod lov;
pub mod md;
pub mod messages;
pub mod mgs;
pub mod opcode;
pub mod ost;
pub mod out;
mod portal;
pub mod ptlrpc;
pub mod quota;
pub mod reply_data;
#[doc(hidden)]
pub mod slot;
pub mod text;

pub use codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
pub use out::update_record;

#[cfg(test)]
mod layout_tests;
