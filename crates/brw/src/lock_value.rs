//! The lock value block of an object: size, blocks and times that come with a lock.

use bytes::Bytes;
use sheen_target::{Target, store_errno};
use sheen_types::{Errno, Fid, ResourceName};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::ost::OstLvb;

use std::sync::Arc;

use crate::{Brw, Objects, attributes};

impl<O: Objects> Brw<O> {
    /// What the object itself says.
    ///
    /// # Errors
    /// Those of the store: a lock on an object that does not exist is refused.
    pub fn value(&self, object: Fid) -> Result<OstLvb, Errno> {
        let now = self.store.attributes(object).map_err(store_errno)?;
        Ok(attributes::lvb(&now))
    }

    /// What the object itself says and what the holders of write locks, who may know better,
    /// answer: one callback to each of them, and none if there are none.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn glimpsed(
        &self,
        target: &Arc<Target>,
        resource: ResourceName,
        object: Fid,
    ) -> Result<OstLvb, Errno> {
        let mut merged = self.value(object)?;
        let mut asked = false;
        for (_, reported) in target.glimpse(resource).await {
            // A client that does not answer has gone or was evicted; what it knew is lost then
            // anyway.
            let reported = reported.and_then(|reported| decode(&reported));
            merged = reported.map_or(merged.clone(), |reported| merge(&merged, &reported));
            asked = true;
        }
        // A write that landed while we asked counts too.
        match asked {
            true => Ok(merge(&merged, &self.value(object)?)),
            false => Ok(merged),
        }
    }
}

/// The larger of what two know: a client that holds a write lock knows of bytes that have not
/// arrived, the object of writes whose locks are gone (`ofd_lvbo_update`).
fn merge(one: &OstLvb, other: &OstLvb) -> OstLvb {
    let (mtime, mtime_ns) = (one.mtime, one.mtime_ns).max((other.mtime, other.mtime_ns));
    let (atime, atime_ns) = (one.atime, one.atime_ns).max((other.atime, other.atime_ns));
    let (ctime, ctime_ns) = (one.ctime, one.ctime_ns).max((other.ctime, other.ctime_ns));
    let (size, blocks) = (one.size.max(other.size), one.blocks.max(other.blocks));
    OstLvb { size, mtime, atime, ctime, blocks, mtime_ns, atime_ns, ctime_ns, padding: 0 }
}

/// A value as replies and callbacks carry it.
#[must_use]
pub fn encode(value: &OstLvb) -> Bytes {
    let mut writer = Writer::with_capacity(OstLvb::SIZE);
    value.encode(&mut writer);
    writer.into_bytes()
}

fn decode(bytes: &Bytes) -> Result<OstLvb, Errno> {
    OstLvb::decode(&mut Reader::new(bytes, ByteOrder::Little)).map_err(|error| {
        tracing::warn!(%error, "undecodable value of a lock");
        Errno::EPROTO
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_two_counts_field_by_field() {
        let one = OstLvb { size: 5, mtime: 10, mtime_ns: 1, blocks: 8, ..OstLvb::default() };
        let other = OstLvb { size: 9, mtime: 9, mtime_ns: 7, ctime: 3, ..OstLvb::default() };
        let both = merge(&one, &other);
        assert_eq!((both.size, both.blocks), (9, 8));
        assert_eq!((both.mtime, both.mtime_ns), (10, 1), "a time is seconds and the rest of it");
        assert_eq!(both.ctime, 3);
        assert_eq!(decode(&encode(&both)), Ok(both));
        assert_eq!(decode(&Bytes::from_static(b"short")), Err(Errno::EPROTO));
    }
}
