//! A group of transactions, as the overlay collects it and the database commits it.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sheen_types::{Fid, HashMap};

use crate::{
    hash::FoldState,
    record::{DataFileId, Record},
};

/// What a group says of a key.
#[derive(Clone, Debug)]
pub(crate) struct Slot<T> {
    /// `None`: the key is absent, whatever lies below.
    pub(crate) value: Option<T>,
    /// Nothing lies below.
    pub(crate) fresh: bool,
}

/// The part of a group that lies in one shard.
pub(crate) struct GroupPart {
    pub(crate) objects: HashMap<Fid, Slot<Arc<Record>>, FoldState>,
    pub(crate) keys: HashMap<Fid, BTreeMap<Bytes, Slot<Bytes>>, FoldState>,
    /// Files of destroyed objects: they go once the group is durable.
    pub(crate) destroyed: Vec<DataFileId>,
}

impl GroupPart {
    pub(crate) fn new(hasher: FoldState) -> Self {
        Self {
            objects: HashMap::with_hasher(hasher),
            keys: HashMap::with_hasher(hasher),
            destroyed: Vec::new(),
        }
    }

    pub(crate) fn key(&self, index: Fid, key: &[u8]) -> Option<&Slot<Bytes>> {
        self.keys.get(&index)?.get(key)
    }
}
