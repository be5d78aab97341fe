//! The lock value block of an object: size, blocks and times that come with a lock.

use bytes::Bytes;
use sheen_types::{Errno, ResourceName};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::ost::{OstId, OstLvb};

use crate::{Ost, attributes, objects};

impl Ost {
    /// What the object itself says. A lock on an object that does not exist is refused.
    pub(crate) fn value(&self, resource: ResourceName) -> Result<Bytes, Errno> {
        let fid = objects::fid_of(OstId::of_resource(&resource), self.index)?;
        let now = self.store.attributes(fid).map_err(|error| error.errno())?;
        Ok(encode(&attributes::lvb(&now)))
    }

    /// The larger of what is known: a client that holds a write lock knows of bytes that have not
    /// arrived, the object knows of writes whose locks are gone (`ofd_lvbo_update`).
    pub(crate) fn updated_value(
        &self,
        resource: ResourceName,
        old: &Bytes,
        told: Option<&Bytes>,
    ) -> Result<Bytes, Errno> {
        let Some(told) = told else { return self.value(resource) };
        let told = decode(told)?;
        let old = decode(old).unwrap_or_default();
        let size = told.size.max(old.size);
        let newer = |told: (i64, u32), old: (i64, u32)| told.max(old);
        let (mtime, mtime_ns) = newer((told.mtime, told.mtime_ns), (old.mtime, old.mtime_ns));
        let (atime, atime_ns) = newer((told.atime, told.atime_ns), (old.atime, old.atime_ns));
        let (ctime, ctime_ns) = newer((told.ctime, told.ctime_ns), (old.ctime, old.ctime_ns));
        let blocks = told.blocks.max(old.blocks);
        let padding = 0;
        let merged =
            OstLvb { size, mtime, atime, ctime, blocks, mtime_ns, atime_ns, ctime_ns, padding };
        Ok(encode(&merged))
    }
}

fn encode(value: &OstLvb) -> Bytes {
    let mut writer = Writer::with_capacity(OstLvb::SIZE);
    value.encode(&mut writer);
    writer.into_bytes()
}

fn decode(bytes: &Bytes) -> Result<OstLvb, Errno> {
    OstLvb::decode(&mut Reader::new(bytes, ByteOrder::Little)).map_err(|_| Errno::EPROTO)
}
