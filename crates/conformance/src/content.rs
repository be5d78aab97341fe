//! What a run of bytes of a capture is found to be.

use bytes::Bytes;
use sheen_wire::messages::Format;

/// Reads the buffer of that name of a request, or of a reply where the flag says so.
pub(crate) type Explain = fn(&Format, bool, &str, &Bytes) -> Content;

/// What a run of bytes is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Structures.
    Typed {
        /// Their fields, for people.
        shown: String,
        /// The bytes that writing them gives.
        encoded: Bytes,
        /// Bytes of padding that the peer did not clear; `encoded` has them too.
        dirty: usize,
    },
    /// Bytes that Lustre does not look into either: of which kind they are.
    Plain(&'static str),
    /// Bytes that our structures do not describe.
    Untyped,
}

impl Content {
    pub(crate) fn typed<T: std::fmt::Debug>(value: &T, encoded: Bytes) -> Self {
        Self::Typed { shown: format!("{value:?}"), encoded, dirty: 0 }
    }
}
