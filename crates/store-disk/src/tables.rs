//! fjall's tables, as this store reads them without fjall: nothing is changed, and nothing is
//! believed that has no checksum.
//!
//! Each keyspace has a directory. Its file `current` names the manifest `v<n>` and holds the XXH3
//! of it; the manifest lists the tables. A table is an archive (`sfa`) of blocks, each with a
//! checksum; the table of contents at its end has one, too.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use lsm_tree::{
    Cache, Checksum, CompressionType, Table, ValueType,
    coding::Decode,
    table::{
        Block, DataBlock,
        block::{BlockType, Header, decoder::ParsedItem},
    },
};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{DiskError, limits};

/// Bytes of an archive's end: `"SFA!" version:u8 checksum type:u8 checksum:u128 at:u64 length:u64`.
const TRAILER_BYTES: usize = 38;

/// A table as its manifest lists it.
#[derive(Clone, Debug)]
pub(crate) struct ListedTable {
    pub(crate) path: PathBuf,
    checksum: Checksum,
    number: u64,
}

fn damaged(path: &Path, why: impl Into<String>) -> DiskError {
    DiskError::Damaged { path: path.to_owned(), why: why.into() }
}

/// The tables of the keyspace in `directory`.
pub(crate) fn listed(directory: &Path) -> Result<Vec<ListedTable>, DiskError> {
    let path = manifest(directory)?;
    let bad = |error: &dyn std::fmt::Display| damaged(&path, format!("no manifest: {error}"));
    let archive = sfa::Reader::new(&path).map_err(|error| bad(&format!("{error:?}")))?;
    let section = archive.toc().section(b"tables").ok_or_else(|| bad(&"it lists no tables"))?;
    let mut reader = section.buf_reader(&path).map_err(|error| bad(&error))?;
    let mut listed = Vec::new();
    let tables = directory.join("tables");
    let mut list = || -> io::Result<()> {
        let levels = byte(&mut reader)?;
        for _ in 0..levels {
            for _ in 0..byte(&mut reader)? {
                for _ in 0..u32::from_le_bytes(array(&mut reader)?) {
                    let name = u64::from_le_bytes(array(&mut reader)?);
                    let _kind_of_checksum = byte(&mut reader)?;
                    let checksum = Checksum::from_raw(u128::from_le_bytes(array(&mut reader)?));
                    let number = u64::from_le_bytes(array(&mut reader)?);
                    listed.push(ListedTable {
                        path: tables.join(name.to_string()),
                        checksum,
                        number,
                    });
                }
            }
        }
        Ok(())
    };
    list().map_err(|error| bad(&error))?;
    Ok(listed)
}

/// The manifest that counts, if it is as it was written.
fn manifest(directory: &Path) -> Result<PathBuf, DiskError> {
    let current = directory.join("current");
    let bytes = read(&current)?;
    let number = bytes.first_chunk().copied().map(u64::from_le_bytes);
    let checksum = bytes.get(8..).and_then(|rest| rest.first_chunk()).copied();
    let (Some(number), Some(checksum), 25) = (number, checksum, bytes.len()) else {
        return Err(damaged(&current, "it names no manifest"));
    };
    let path = directory.join(format!("v{number}"));
    if xxh3_128(&read(&path)?) != u128::from_le_bytes(checksum) {
        return Err(damaged(&path, "the manifest is not the one that `current` names"));
    }
    Ok(path)
}

fn read(path: &Path) -> Result<Vec<u8>, DiskError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(damaged(path, "it is gone")),
        other => other.map_err(DiskError::io("read", path)),
    }
}

fn array<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn byte(reader: &mut impl Read) -> io::Result<u8> {
    array::<1>(reader).map(|[byte]| byte)
}

impl ListedTable {
    /// Checks that the table is there and whole as far as its end shows; its blocks are checked
    /// when they are read. Without this a table of contents gone bad could ask for any memory.
    pub(crate) fn check(&self) -> Result<(), DiskError> {
        let path = &self.path;
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(path, "the table is gone"));
            }
            other => other.map_err(DiskError::io("open", path))?,
        };
        let length = file.metadata().map_err(DiskError::io("look at", path))?.len();
        let bad = || damaged(path, format!("the table's end is not at {length}, where it ends"));
        let end = length.checked_sub(TRAILER_BYTES as u64).ok_or_else(bad)?;
        let mut trailer = [0; TRAILER_BYTES];
        file.read_exact_at(&mut trailer, end).map_err(DiskError::io("read", path))?;
        let word = |at: usize| trailer[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        let (checksum, at, contents) = (&trailer[6..22], word(22), word(30));
        if !trailer.starts_with(b"SFA!\x01\x00") || at.checked_add(contents) != Some(end) {
            return Err(bad());
        }
        if contents > limits::TABLE_CONTENTS_BYTES_MAX {
            return Err(bad());
        }
        let mut bytes = vec![0; contents as usize];
        file.read_exact_at(&mut bytes, at).map_err(DiskError::io("read", path))?;
        let mut hash = Xxh3::new();
        hash.update(&bytes);
        if hash.digest128().to_le_bytes() != checksum { Err(bad()) } else { Ok(()) }
    }

    /// The newest value of `key` in this table, with fjall's number of the batch that wrote it.
    fn get(&self, key: &[u8]) -> Result<Option<(u64, Vec<u8>)>, DiskError> {
        let bad = |error: lsm_tree::Error| damaged(&self.path, error.to_string());
        let cache = Arc::new(Cache::with_capacity_bytes(0));
        let table = Table::recover(
            self.path.clone(),
            self.checksum,
            self.number,
            0,
            cache,
            None,
            false,
            false,
        );
        let table = table.map_err(bad)?;
        let key = lsm_tree::UserKey::from(key);
        let mut newest: Option<(u64, Vec<u8>)> = None;
        for item in table.range(key.clone()..=key) {
            let item = item.map_err(bad)?;
            if newest.as_ref().is_none_or(|(number, _)| *number <= item.key.seqno) {
                newest = Some((item.key.seqno, item.value.to_vec()));
            }
        }
        Ok(newest)
    }
}

/// One version of a key in a table.
pub(crate) struct Version {
    pub(crate) key: Vec<u8>,
    /// fjall's number of the batch that wrote it.
    pub(crate) number: u64,
    /// `None` says that it was removed.
    pub(crate) value: Option<Vec<u8>>,
}

/// Reads the table at `path`, whatever it went through: `apply` gets all that is in blocks whose
/// checksums hold. The table's own index is not needed. Returns how many bytes were in no whole block.
pub(crate) fn salvage(
    path: &Path,
    apply: &mut dyn FnMut(Version) -> Result<(), DiskError>,
) -> Result<u64, DiskError> {
    let bytes = fs::read(path).map_err(DiskError::io("read", path))?;
    // Behind the last block lie the contents and the trailer, which begin so.
    let end = bytes.windows(4).rposition(|window| window == b"TOC!").unwrap_or(bytes.len());
    let (mut at, mut broken) = (0, 0);
    while at < end {
        match block(&bytes[at..]) {
            Some((length, versions)) => {
                at += length;
                versions.into_iter().try_for_each(&mut *apply)?;
            }
            None => {
                at += 1;
                broken += 1;
            }
        }
    }
    // A byte with the version of the table lies between its blocks.
    Ok(if broken > 1 { broken } else { 0 })
}

/// The block at the beginning of `bytes`, if it is whole: its length, and what it holds if it is one
/// of data.
fn block(bytes: &[u8]) -> Option<(usize, Vec<Version>)> {
    if !bytes.starts_with(b"LSM\x03") {
        return None;
    }
    let header = Header::decode_from(&mut &bytes[..]).ok()?;
    let length = Header::serialized_len() + header.data_length as usize;
    let whole = bytes.get(..length)?;
    // What compression did not make smaller would be taken for what was not compressed: nothing does.
    let compression = match header.data_length == header.uncompressed_length {
        true => CompressionType::None,
        false => CompressionType::Lz4,
    };
    let block = Block::from_reader(&mut &whole[..], compression).ok()?;
    if header.block_type != BlockType::Data {
        return Some((length, Vec::new()));
    }
    let versions = catch_unwind(AssertUnwindSafe(|| {
        let block = DataBlock::new(block);
        let items = block.iter().map(|item| item.materialize(block.as_slice()));
        let version = |item: lsm_tree::InternalValue| Version {
            key: item.key.user_key.to_vec(),
            number: item.key.seqno,
            value: (item.key.value_type == ValueType::Value).then(|| item.value.to_vec()),
        };
        items.map(version).collect()
    }));
    versions.ok().map(|versions| (length, versions))
}

/// The newest value of `key` in `tables`, whatever the journals hold.
pub(crate) fn newest(tables: &[ListedTable], key: &[u8]) -> Result<Option<Vec<u8>>, DiskError> {
    let mut newest = None;
    for table in tables {
        newest = newest.max(table.get(key)?);
    }
    Ok(newest.map(|(_, value)| value))
}
