//! How objects and keys look in the database.
//!
//! An object is one value: fixed attributes, then its extended attributes. A change of one rewrites
//! all, but once per group, and a create, stat or unlink is one key. All integers little-endian,
//! but the FIDs of keys big-endian, so that an index lies together and in order.

use bytes::Bytes;
use sheen_store::{Attributes, FileKind, StoreError, Xattrs};
use sheen_types::{Fid, Timestamp};

/// The layout below.
const RECORD_VERSION: u8 = 1;
/// The layout with a file's name behind the times: data that came by an exchange.
const RECORD_VERSION_EXCHANGED: u8 = 2;
/// The index of data that an object holds and another was created with: the file's name, as its key
/// in the database is made, to the holder's.
pub(crate) const LENT: Fid = Fid::new(0, 0x6c65_6e74);
/// The index of what is known of files of data (`files::sums`): by their names, as those are keys here.
pub(crate) const SUMS: Fid = Fid::new(0, 0x7375_6d73);
/// Bytes of a FID in front of each key of an index.
pub(crate) const FID_BYTES: usize = 16;

/// Distinguishes the objects that bore one FID one after the other: their files have different
/// names. An exchange of data begins a new one, too.
pub(crate) type DataGeneration = u64;

/// Whose data a file was made for, which its name says: an object, and which of those that bore the FID.
pub(crate) type DataFileId = (Fid, DataGeneration);

/// An object, less its keys and data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) attributes: Attributes,
    /// New with each exchange: before it is durable, data is not durably this object's.
    pub(crate) generation: DataGeneration,
    /// The file of its data, if it came by an exchange.
    exchanged: Option<DataFileId>,
    pub(crate) xattrs: Xattrs,
}

impl Record {
    pub(crate) fn new(attributes: Attributes, generation: DataGeneration) -> Self {
        Self { attributes, generation, exchanged: None, xattrs: Xattrs::default() }
    }

    /// The name of its file; `own` is the object's.
    pub(crate) fn data(&self, own: Fid) -> DataFileId {
        self.exchanged.unwrap_or((own, self.generation))
    }

    /// Whether its data was made for another object.
    pub(crate) fn borrows(&self, own: Fid) -> bool {
        self.data(own).0 != own
    }

    /// Gives it other data.
    pub(crate) fn take_data(&mut self, data: DataFileId, generation: DataGeneration) {
        (self.exchanged, self.generation) = (Some(data), generation);
    }

    /// Memory, about.
    pub(crate) fn cost(&self) -> usize {
        let xattrs = self.xattrs.iter().map(|(name, value)| name.len() + value.len() + 80);
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
            self.xattrs.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        let mut out = Vec::with_capacity(128 + xattr_bytes);
        out.push(match self.exchanged {
            Some(_) => RECORD_VERSION_EXCHANGED,
            None => RECORD_VERSION,
        });
        out.push(*kind as u8);
        for number in [permissions, uid, gid, project, links, flags] {
            out.extend(number.to_le_bytes());
        }
        for number in [size, blocks, device, version, &self.generation] {
            out.extend(number.to_le_bytes());
        }
        for time in [accessed, modified, changed, born] {
            out.extend(time.seconds.to_le_bytes());
            out.extend(time.nanoseconds.to_le_bytes());
        }
        if let Some(name) = self.exchanged {
            out.extend(name_key(name));
        }
        for (name, value) in self.xattrs.iter() {
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
        let is_exchanged = match reader.byte()? {
            RECORD_VERSION => false,
            RECORD_VERSION_EXCHANGED => true,
            _ => return None,
        };
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
        let [size, blocks, device, version, generation] = wide;
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
        let exchanged = match is_exchanged {
            true => Some(parse_name_key(reader.take(NAME_BYTES)?)?),
            false => None,
        };
        let xattrs = parse_xattrs(reader.0)?;
        Some(Self { attributes, generation, exchanged, xattrs })
    }
}

/// The extended attributes, all in one piece of memory: a record that is read costs few allocations.
fn parse_xattrs(bytes: &[u8]) -> Option<Xattrs> {
    let whole = Bytes::copy_from_slice(bytes);
    let mut reader = Reader(&whole);
    let mut parts = Vec::new();
    while !reader.0.is_empty() {
        let (name, value) = (reader.narrow()? as usize, reader.narrow()? as usize);
        let (name, value) = (reader.take(name)?, reader.take(value)?);
        parts.push((whole.slice_ref(name), whole.slice_ref(value)));
    }
    Xattrs::of_parts(parts)
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

/// The database's key of an object.
pub(crate) fn object_key(fid: Fid) -> [u8; FID_BYTES] {
    let mut key = [0; FID_BYTES];
    key[..8].copy_from_slice(&fid.seq.to_be_bytes());
    key[8..12].copy_from_slice(&fid.oid.to_be_bytes());
    key[12..].copy_from_slice(&fid.ver.to_be_bytes());
    key
}

/// The reverse of [`object_key`].
pub(crate) fn parse_object_key(key: &[u8]) -> Option<Fid> {
    let (seq, rest) = key.split_first_chunk()?;
    let (oid, rest) = rest.split_first_chunk()?;
    let ver = u32::from_be_bytes(rest.try_into().ok()?);
    Some(Fid { seq: u64::from_be_bytes(*seq), oid: u32::from_be_bytes(*oid), ver })
}

const NAME_BYTES: usize = FID_BYTES + 8;

/// A file's name as a key.
pub(crate) fn name_key((fid, generation): DataFileId) -> [u8; NAME_BYTES] {
    let mut key = [0; NAME_BYTES];
    key[..FID_BYTES].copy_from_slice(&object_key(fid));
    key[FID_BYTES..].copy_from_slice(&generation.to_be_bytes());
    key
}

fn parse_name_key(key: &[u8]) -> Option<DataFileId> {
    let (fid, generation) = key.split_at_checked(FID_BYTES)?;
    Some((parse_object_key(fid)?, u64::from_be_bytes(generation.try_into().ok()?)))
}

/// The database's key of a key of an index.
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
        record.xattrs.set("user.b", Some(Bytes::from("2")));
        record.xattrs.set("trusted.lov", Some(Bytes::from(vec![3; 1000])));
        record
    }

    #[test]
    fn records_are_read_back() {
        let record = sample();
        assert_eq!(Record::decode(&record.encode()), Ok(record));
        let bare = Record::new(Attributes::default(), 1);
        assert_eq!(Record::decode(&bare.encode()), Ok(bare));
        let (own, other) = (Fid::new(7, 8), Fid { seq: 9, oid: 1, ver: 3 });
        let mut exchanged = sample();
        assert_eq!((exchanged.data(own), exchanged.borrows(own)), ((own, 77), false));
        exchanged.take_data((other, 5), 78);
        let read = Record::decode(&exchanged.encode()).expect("a record");
        assert_eq!((read.data(own), read.borrows(own), read.generation), ((other, 5), true, 78));
        assert_eq!(read, exchanged);
    }

    #[test]
    fn cut_records_are_corrupt_or_shorter() {
        let (record, bytes) = (sample(), sample().encode());
        for length in 0..bytes.len() {
            match Record::decode(&bytes[..length]) {
                Err(StoreError::Corrupt(_)) => {}
                Ok(shorter) => {
                    assert!(shorter.xattrs.names().count() < record.xattrs.names().count())
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn extended_attributes_stay_sorted() {
        let mut record = sample();
        assert!(record.xattrs.names().eq(["trusted.lov", "user.b"]));
        record.xattrs.set("trusted.lov", None);
        record.xattrs.set("none", None);
        assert_eq!(record.xattrs.get("user.b"), Some(Bytes::from("2")));
        assert_eq!(record.xattrs.get("trusted.lov"), None);
    }
}
