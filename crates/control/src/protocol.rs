//! What goes over the control socket: one JSON value a line, question and answer in turn.

use serde::{Deserialize, Serialize};

use crate::Listed;

/// Bytes of one line; a parameter's value is far below.
pub(crate) const LINE_BYTES_MAX: u64 = 16 << 20;

/// What a tool asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlRequest {
    /// Which parameters are there.
    List {
        /// With wildcards.
        pattern: String,
    },
    /// What values they have.
    Get {
        /// With wildcards.
        pattern: String,
    },
    /// Set them.
    Set {
        /// With wildcards.
        pattern: String,
        /// The new value's text.
        value: String,
    },
    /// Anything else that the process offers by name.
    Command {
        /// As registered with [`crate::Server`].
        name: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
}

/// A parameter's name, and its value or the errno that setting it met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The full name.
    pub name: String,
    /// The value's text; empty for an answer to `Set`.
    pub value: String,
    /// 0, or a positive errno.
    pub errno: u16,
}

/// What the process answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlReply {
    /// To `List`.
    Listed(Vec<Listed>),
    /// To `Get` and `Set`.
    Shown(Vec<Shown>),
    /// To `Command`: whatever it says.
    Text(String),
    /// The command does not exist here, or failed: a positive errno and one line.
    Failed {
        /// A positive errno.
        errno: u16,
        /// One line on what was wrong.
        message: String,
    },
}
