//! The entries of the message table, and how a request's entry is found.

use super::{Fields, Kind};
use crate::codec::{DecodeError, Reader, Wire};
use crate::ldlm::IntentOp;
use crate::lnet::Portal;
use crate::opcode::{Opcode, ReintOp};
use crate::ptlrpc::Message;
use crate::slot::FieldInfo;
use crate::wire_bits;

wire_bits! {
    /// What a table entry says about an operation.
    pub struct FormatFlags: u32 {
        /// A success changes the target.
        MODIFYING = 0x1,
        /// A success that changes the target gets a transno: the client keeps it until that is durable and may
        /// send it again as a replay. Nothing else is believed to be one.
        REPLAYABLE = 0x2,
        /// The server reads the client's bulk (LNet GET).
        BULK_READ = 0x4,
        /// The server writes the client's bulk (LNet PUT).
        BULK_WRITE = 0x8,
        /// Sent by a server to a client.
        CALLBACK = 0x10,
        /// Sent by servers to each other: refused from a peer that is no server.
        SERVER = 0x20,
    }
}

/// What, besides the opcode, distinguishes formats with the same opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// Nothing: it is the only one, or the one that is left.
    Any,
    /// The reint record starts with this operation.
    Reint(ReintOp),
    /// A reint record that creates a symbolic link.
    ReintSymlink,
    /// The lock intent in buffer 2 has one of these bits.
    Intent(IntentOp),
    /// Buffer 1 is this key, perhaps with a NUL or more behind it.
    Key(&'static str),
    /// At least so many buffers behind the body.
    Buffers(usize),
}

/// Where `mdt_rec_create` holds the new inode's mode.
const CREATE_MODE_AT: usize = 112;
/// `S_IFMT`.
const FILE_TYPE_MASK: u32 = 0o170_000;
/// `S_IFLNK`.
const SYMLINK: u32 = 0o120_000;

/// One message of the table: a request and the reply to it.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Names the entry in code.
    pub kind: Kind,
    /// Lustre's name of the format.
    pub name: &'static str,
    /// The opcode in the body.
    pub opcode: Opcode,
    /// What else distinguishes it.
    pub select: Select,
    /// Where the request goes.
    pub request_portal: Portal,
    /// Where the reply goes.
    pub reply_portal: Portal,
    /// Modifying, replayable, bulk.
    pub flags: FormatFlags,
    /// The request's buffers behind the body.
    pub request: &'static [FieldInfo],
    /// The reply's buffers behind the body.
    pub reply: &'static [FieldInfo],
}

impl Select {
    /// Whether a request with the right opcode is of this format.
    #[must_use]
    pub fn matches(self, message: &Message) -> bool {
        match self {
            Self::Any => true,
            Self::Reint(op) => number::<ReintOp>(message, 1, 0) == Ok(op),
            Self::ReintSymlink => {
                number::<ReintOp>(message, 1, 0) == Ok(ReintOp::CREATE)
                    && number::<u32>(message, 1, CREATE_MODE_AT)
                        .is_ok_and(|mode| mode & FILE_TYPE_MASK == SYMLINK)
            }
            Self::Intent(bits) => {
                number::<IntentOp>(message, 2, 0).is_ok_and(|intent| intent.intersects(bits))
            }
            Self::Key(key) => message.buffers.get(1).is_some_and(|buffer| {
                let rest = buffer.strip_prefix(key.as_bytes());
                rest.is_some_and(|rest| rest.first().is_none_or(|byte| *byte == 0))
            }),
            Self::Buffers(count) => message.buffers.len() > count,
        }
    }
}

/// Reads a number at byte `at` of a buffer.
fn number<T: Wire>(message: &Message, buffer: usize, at: usize) -> Result<T, DecodeError> {
    let missing = DecodeError::Truncated { what: "message buffer" };
    let mut reader = Reader::new(message.buffers.get(buffer).ok_or(missing)?, message.order);
    reader.bytes(at, "message buffer")?;
    T::decode(&mut reader)
}

/// A request structure: knows its reply and its entry in the table.
pub trait RequestFormat: Fields + Into<super::Request> {
    /// What comes back.
    type Reply: Fields + Into<super::Reply>;
    /// The entry.
    const FORMAT: Format;
}

/// Declares a request, its reply and their entry in the table.
#[doc(hidden)]
#[macro_export]
macro_rules! message {
    (
        $(#[$meta:meta])*
        $request:ident => $reply:ident = $name:literal;
        on $opcode:ident, $select:expr;
        to $request_portal:ident, $reply_portal:ident;
        flags $($flag:ident)|+;
        request { $($request_fields:tt)* }
        reply { $($reply_fields:tt)* }
    ) => {
        $crate::message_fields! { $(#[$meta])* $request { $($request_fields)* } }
        $crate::message_fields! {
            #[doc = concat!("Reply to [`", stringify!($request), "`].")]
            $reply { $($reply_fields)* }
        }

        impl $crate::messages::RequestFormat for $request {
            type Reply = $reply;
            const FORMAT: $crate::messages::Format = $crate::messages::Format {
                kind: $crate::messages::Kind::$request,
                name: $name,
                opcode: $crate::opcode::Opcode::$opcode,
                select: $select,
                request_portal: $crate::lnet::Portal::$request_portal,
                reply_portal: $crate::lnet::Portal::$reply_portal,
                flags: $crate::messages::FormatFlags::NONE
                    $(.union($crate::messages::FormatFlags::$flag))+,
                request: <$request as $crate::messages::Fields>::FIELDS,
                reply: <$reply as $crate::messages::Fields>::FIELDS,
            };
        }
    };
}
