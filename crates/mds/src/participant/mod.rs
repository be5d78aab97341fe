//! What an MDT does for changes that another one coordinates (Lustre: `out_handler.c`): it excludes, applies its parts, releases,
//! and answers what a coordinator has to know.
//!
//! The coordinator's own MDT is one participant more, and uses the same functions without a message
//! ([`crate::coordinator`]).
//!
//! What always holds: nothing of a message is done before all of it could be read; only MDTs that have agreed on the format of
//! records are answered; a part is applied under the shards and locks of all that it changes.

mod apply;
mod exclude;
mod message;
mod reads;
mod recover;
mod unfinished;

pub(crate) use self::exclude::reserved_bytes;
pub(crate) use self::message::RESULT_BYTES_MAX;
pub(crate) use self::reads::{attributes_of, obdo_of, wire_attributes};
pub(crate) use self::unfinished::UnfinishedParts;
