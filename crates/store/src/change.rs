//! Transactions as values.

use bytes::Bytes;
use sheen_types::Fid;

use crate::{AttributePatch, Attributes};

/// A transaction's place in the order of durability: 1 is the first of a store's life, and each
/// restart goes on behind the last durable one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// One step of a transaction. Steps see the effect of the steps before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes an object; refused if it exists.
    Create {
        /// Its name.
        object: Fid,
        /// Its attributes.
        attributes: Attributes,
    },
    /// Removes an object with its extended attributes, its keys and its data; refused if absent.
    Destroy {
        /// Its name.
        object: Fid,
    },
    /// Changes some attributes; refused if the object is absent.
    Patch {
        /// The object.
        object: Fid,
        /// What changes.
        patch: AttributePatch,
    },
    /// Sets (`Some`) or removes (`None`; no error if absent) an extended attribute.
    SetXattr {
        /// The object.
        object: Fid,
        /// The attribute's full name, as `trusted.lov`.
        name: String,
        /// The value.
        value: Option<Bytes>,
    },
    /// Gives each of two objects the other's data, with its size and blocks: no byte is copied.
    /// Refused if either is absent or has no data. What was written before does not become durable
    /// by it: a caller that needs that syncs both first.
    Exchange {
        /// One.
        first: Fid,
        /// The other; if it is the same, nothing changes.
        second: Fid,
    },
    /// Adds a key; refused if it is there. The index object need not exist as an object.
    Insert {
        /// The index.
        index: Fid,
        /// At most 512 bytes.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Sets a key, whether it was there or not.
    Put {
        /// The index.
        index: Fid,
        /// At most 512 bytes.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Removes a key; refused if it is absent.
    Delete {
        /// The index.
        index: Fid,
        /// The key.
        key: Bytes,
    },
}

/// Changes that happen together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// In order.
    pub changes: Vec<Change>,
}

impl Transaction {
    /// No change yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds [`Change::Create`].
    pub fn create(&mut self, object: Fid, attributes: Attributes) -> &mut Self {
        self.push(Change::Create { object, attributes })
    }

    /// Adds [`Change::Destroy`].
    pub fn destroy(&mut self, object: Fid) -> &mut Self {
        self.push(Change::Destroy { object })
    }

    /// Adds [`Change::Patch`].
    pub fn patch(&mut self, object: Fid, patch: AttributePatch) -> &mut Self {
        self.push(Change::Patch { object, patch })
    }

    /// Adds [`Change::SetXattr`] with a value.
    pub fn set_xattr(&mut self, object: Fid, name: &str, value: Bytes) -> &mut Self {
        self.push(Change::SetXattr { object, name: name.to_owned(), value: Some(value) })
    }

    /// Adds [`Change::SetXattr`] without one.
    pub fn remove_xattr(&mut self, object: Fid, name: &str) -> &mut Self {
        self.push(Change::SetXattr { object, name: name.to_owned(), value: None })
    }

    /// Adds [`Change::Exchange`].
    pub fn exchange(&mut self, first: Fid, second: Fid) -> &mut Self {
        self.push(Change::Exchange { first, second })
    }

    /// Adds [`Change::Insert`].
    pub fn insert(&mut self, index: Fid, key: Bytes, value: Bytes) -> &mut Self {
        self.push(Change::Insert { index, key, value })
    }

    /// Adds [`Change::Put`].
    pub fn put(&mut self, index: Fid, key: Bytes, value: Bytes) -> &mut Self {
        self.push(Change::Put { index, key, value })
    }

    /// Adds [`Change::Delete`].
    pub fn delete(&mut self, index: Fid, key: Bytes) -> &mut Self {
        self.push(Change::Delete { index, key })
    }

    fn push(&mut self, change: Change) -> &mut Self {
        self.changes.push(change);
        self
    }
}
