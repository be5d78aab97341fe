//! How objects and keys look in the engine.
//!
//! An object is one value: fixed attributes, then its extended attributes. A change of one rewrites
//! all, but once per group, and a create, stat or unlink is one key. All integers little-endian,
//! but the FIDs of keys big-endian, so that an index lies together and in order.

use std::{cmp::Ordering, sync::Arc};

use bytes::Bytes;
use sheen_store::{Attributes, FileKind, StoreError};
use sheen_types::{Fid, Timestamp};

/// The layout below.
const RECORD_VERSION: u8 = 1;
/// Bytes of a FID in front of each key of an index.
pub(crate) const FID_BYTES: usize = 16;

/// Tells apart the objects that bore one FID one after the other: their files have different names.
pub(crate) type Incarnation = u64;

/// An extended attribute: name and value.
type Xattr = (Box<str>, Bytes);

/// An object, less its keys and data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) attributes: Attributes,
    pub(crate) incarnation: Incarnation,
    xattrs: Option<Arc<Vec<Xattr>>>,
}

impl Record {
    pub(crate) fn new(attributes: Attributes, incarnation: Incarnation) -> Self {
        Self { attributes, incarnation, xattrs: None }
    }

    fn xattrs(&self) -> &[Xattr] {
        self.xattrs.as_ref().map_or(&[], |xattrs| xattrs)
    }

    /// Sorted.
    pub(crate) fn xattr_names(&self) -> Vec<String> {
        self.xattrs().iter().map(|(name, _)| name.to_string()).collect()
    }

    pub(crate) fn xattr(&self, name: &str) -> Option<Bytes> {
        let xattrs = self.xattrs();
        let found = xattrs.binary_search_by(|(held, _)| str::cmp(held, name)).ok()?;
        Some(xattrs[found].1.clone())
    }

    pub(crate) fn set_xattr(&mut self, name: &str, value: Option<Bytes>) {
        let xattrs = Arc::make_mut(self.xattrs.get_or_insert_default());
        let order = |held: &Xattr| -> Ordering { str::cmp(&held.0, name) };
        match (xattrs.binary_search_by(order), value) {
            (Ok(found), Some(value)) => xattrs[found].1 = value,
            (Err(place), Some(value)) => xattrs.insert(place, (name.into(), value)),
            (Ok(found), None) => drop(xattrs.remove(found)),
            (Err(_), None) => {}
        }
    }

    /// Memory, about.
    pub(crate) fn cost(&self) -> usize {
        let xattrs = self.xattrs().iter().map(|(name, value)| name.len() + value.len() + 48);
        size_of::<Self>() + xattrs.sum::<usize>()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Attributes {
            kind,
            permissions,
            uid,
            gid,
            project,
            links,
            size,
            blocks,
            device,
            flags,
            accessed,
            modified,
            changed,
            born,
            version,
        } = &self.attributes;
        let xattr_bytes: usize =
            self.xattrs().iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        let mut out = Vec::with_capacity(128 + xattr_bytes);
        out.push(RECORD_VERSION);
        out.push(*kind as u8);
        for number in [permissions, uid, gid, project, links, flags] {
            out.extend(number.to_le_bytes());
        }
        for number in [size, blocks, device, version, &self.incarnation] {
            out.extend(number.to_le_bytes());
        }
        for time in [accessed, modified, changed, born] {
            out.extend(time.seconds.to_le_bytes());
            out.extend(time.nanoseconds.to_le_bytes());
        }
        for (name, value) in self.xattrs() {
            out.extend((name.len() as u32).to_le_bytes());
            out.extend((value.len() as u32).to_le_bytes());
            out.extend(name.as_bytes());
            out.extend(value);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let corrupt = || StoreError::Corrupt("an object's record".to_owned());
        Self::parse(&mut Reader(bytes)).ok_or_else(corrupt)
    }

    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        if reader.byte()? != RECORD_VERSION {
            return None;
        }
        let kind = FileKind::from_mode(u32::from(reader.byte()?) << 12)?;
        let mut narrow = [0; 6];
        for number in &mut narrow {
            *number = reader.narrow()?;
        }
        let mut wide = [0; 5];
        for number in &mut wide {
            *number = reader.wide()?;
        }
        let mut times = [Timestamp::default(); 4];
        for time in &mut times {
            let seconds = reader.wide()?.cast_signed();
            *time = Timestamp { seconds, nanoseconds: reader.narrow()? };
        }
        let [permissions, uid, gid, project, links, flags] = narrow;
        let [size, blocks, device, version, incarnation] = wide;
        let [accessed, modified, changed, born] = times;
        let attributes = Attributes {
            kind,
            permissions,
            uid,
            gid,
            project,
            links,
            size,
            blocks,
            device,
            flags,
            accessed,
            modified,
            changed,
            born,
            version,
        };
        let mut xattrs = Vec::new();
        while !reader.0.is_empty() {
            let (name, value) = (reader.narrow()? as usize, reader.narrow()? as usize);
            let name = str::from_utf8(reader.take(name)?).ok()?;
            xattrs.push((name.into(), Bytes::copy_from_slice(reader.take(value)?)));
        }
        let xattrs = (!xattrs.is_empty()).then(|| Arc::new(xattrs));
        Some(Self { attributes, incarnation, xattrs })
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn narrow(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn wide(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// The engine's key of an object.
pub(crate) fn object_key(fid: Fid) -> [u8; FID_BYTES] {
    let mut key = [0; FID_BYTES];
    key[..8].copy_from_slice(&fid.seq.to_be_bytes());
    key[8..12].copy_from_slice(&fid.oid.to_be_bytes());
    key[12..].copy_from_slice(&fid.ver.to_be_bytes());
    key
}

/// The engine's key of a key of an index.
pub(crate) fn index_key(index: Fid, key: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(FID_BYTES + key.len());
    whole.extend(object_key(index));
    whole.extend(key);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        let mut record = Record::new(
            Attributes {
                kind: FileKind::Symlink,
                permissions: 0o777,
                size: 9,
                born: Timestamp { seconds: -1, nanoseconds: 5 },
                version: u64::MAX,
                ..Attributes::default()
            },
            77,
        );
        record.set_xattr("user.b", Some(Bytes::from("2")));
        record.set_xattr("trusted.lov", Some(Bytes::from(vec![3; 1000])));
        record
    }

    #[test]
    fn records_are_read_back() {
        let record = sample();
        assert_eq!(Record::decode(&record.encode()), Ok(record));
        let bare = Record::new(Attributes::default(), 1);
        assert_eq!(Record::decode(&bare.encode()), Ok(bare));
    }

    #[test]
    fn cut_records_are_corrupt_or_shorter() {
        let (record, bytes) = (sample(), sample().encode());
        for length in 0..bytes.len() {
            match Record::decode(&bytes[..length]) {
                Err(StoreError::Corrupt(_)) => {}
                Ok(shorter) => assert!(shorter.xattr_names().len() < record.xattr_names().len()),
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn extended_attributes_stay_sorted() {
        let mut record = sample();
        assert_eq!(record.xattr_names(), ["trusted.lov", "user.b"]);
        record.set_xattr("trusted.lov", None);
        record.set_xattr("none", None);
        assert_eq!(record.xattr("user.b"), Some(Bytes::from("2")));
        assert_eq!(record.xattr("trusted.lov"), None);
    }
}
