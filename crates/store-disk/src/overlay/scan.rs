//! Scans: the overlay's shards and the database merged in order.
//!
//! The overlay is read first, shard by shard, then the database: state moves down only, so a key that
//! stays is found in one or the other. Each shard gives a bounded number of keys; beyond the last
//! key of a shard that had more nothing is known, so the merge stops there (the *frontier*) and
//! goes on with another round.
//!
//! Cost of a round: a lock and a lookup for each of the shards, one range of the database.

use std::collections::BTreeMap;

use bytes::Bytes;
use sheen_store::{Entry, StoreError};
use sheen_types::Fid;

use super::Overlay;
use crate::{
    database::Database,
    group::{GroupPart, Slot},
    limits::OVERLAY_SHARDS,
};

/// What the overlay says of keys up to a frontier.
struct Gathered {
    keys: BTreeMap<Bytes, Option<Bytes>>,
    frontier: Option<Bytes>,
}

impl Overlay {
    /// Up to `limit` entries of `index` from `from` on.
    pub(crate) fn scan(
        &self,
        database: &Database,
        index: Fid,
        from: &[u8],
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let mut found = Vec::new();
        let mut from = Bytes::copy_from_slice(from);
        while found.len() < limit {
            let gathered = self.gather(index, &from, limit - found.len());
            merge(database, index, &from, limit, &gathered, &mut found)?;
            let Some(frontier) = gathered.frontier else { break };
            let mut next = Vec::with_capacity(frontier.len() + 1);
            next.extend_from_slice(&frontier);
            next.push(0);
            from = next.into();
        }
        Ok(found)
    }

    fn gather(&self, index: Fid, from: &[u8], wanted: usize) -> Gathered {
        let quota = wanted / OVERLAY_SHARDS * 2 + 16;
        let mut gathered = Gathered { keys: BTreeMap::new(), frontier: None };
        for shard in &self.shards {
            let shard = shard.lock();
            let mut last = None;
            // Below first, so that the active group's word replaces it.
            for part in shard.committing.as_deref().into_iter().chain([&shard.active]) {
                let mut keys = range(part, index, from);
                for (key, slot) in keys.by_ref().take(quota) {
                    gathered.keys.insert(key.clone(), slot.value.clone());
                    last = Some(key);
                }
                if let (Some(last), Some(_)) = (last.take(), keys.next())
                    && gathered.frontier.as_ref().is_none_or(|frontier| last < frontier)
                {
                    gathered.frontier = Some(last.clone());
                }
            }
        }
        if let Some(frontier) = &gathered.frontier {
            gathered.keys.retain(|key, _| key <= frontier);
        }
        gathered
    }
}

fn range<'a>(
    part: &'a GroupPart,
    index: Fid,
    from: &'a [u8],
) -> impl Iterator<Item = (&'a Bytes, &'a Slot<Bytes>)> {
    let bounds = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
    part.keys.get(&index).into_iter().flat_map(move |keys| keys.range::<[u8], _>(bounds))
}

/// Adds to `found`, up to `limit` in all, what the database holds and `gathered` does not hide, and
/// what `gathered` holds, in order, up to the frontier.
fn merge(
    database: &Database,
    index: Fid,
    from: &[u8],
    limit: usize,
    gathered: &Gathered,
    found: &mut Vec<Entry>,
) -> Result<(), StoreError> {
    let beyond = |key: &Bytes| gathered.frontier.as_ref().is_some_and(|frontier| key > frontier);
    let mut above = gathered.keys.iter().peekable();
    for below in database.scan(index, from) {
        let below = below?;
        if beyond(&below.key) {
            break;
        }
        while let Some((key, value)) = above.next_if(|(key, _)| **key < below.key) {
            found.extend(value.clone().map(|value| Entry { key: key.clone(), value }));
        }
        match above.next_if(|(key, _)| **key == below.key) {
            Some((key, value)) => {
                found.extend(value.clone().map(|value| Entry { key: key.clone(), value }));
            }
            None => found.push(below),
        }
        if found.len() >= limit {
            found.truncate(limit);
            return Ok(());
        }
    }
    for (key, value) in above {
        found.extend(value.clone().map(|value| Entry { key: key.clone(), value }));
    }
    found.truncate(limit);
    Ok(())
}
