//! What the store knows of its own durability outside of the database: a lower bound of it.
//!
//! The file `committed` records the newest commit that any caller may know of. It is written once
//! after each commit, with one `pwrite` and no sync, before the callers that wait are notified. So
//! a killed process leaves it current, and a machine that lost its power leaves an older one: it
//! never records more than was durable. A database that has less than the mark has lost what was
//! acknowledged.
//!
//! Two slots are written in turn, each within one sector and with a CRC, so that a write that is
//! cut off leaves the other.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{DiskError, directory::sync_directory};

const MAGIC: &[u8; 8] = b"SHEENMK1";
const SLOT_BYTES: u64 = 512;
const RECORD_BYTES: usize = 36;

/// A commit that is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Durable {
    /// Its number ([`crate::journal::Commit`]).
    pub(crate) commit: u64,
    /// The newest transaction with it.
    pub(crate) sequence: u64,
    /// fjall's number of its batch; 0 if unknown.
    pub(crate) number: u64,
}

impl Durable {
    fn encode(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.commit.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let word = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        let found = Self { commit: word(8), sequence: word(16), number: word(24) };
        (found.encode() == *bytes).then_some(found)
    }
}

/// The file of an open store.
#[derive(Debug)]
pub(crate) struct CommitMark {
    file: File,
    path: PathBuf,
}

impl CommitMark {
    /// What the mark of the store in `dir` records; `None` if it is gone or holds nothing legible.
    pub(crate) fn read(dir: &Path) -> Result<Option<Durable>, DiskError> {
        let path = dir.join("committed");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(DiskError::io("open", &path)(error)),
        };
        let mut newest: Option<Durable> = None;
        for slot in 0..2 {
            let mut bytes = [0; RECORD_BYTES];
            match file.read_exact_at(&mut bytes, slot * SLOT_BYTES) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
                Err(error) => return Err(DiskError::io("read", &path)(error)),
            }
            let found = Durable::decode(&bytes);
            newest = newest.into_iter().chain(found).max_by_key(|durable| durable.commit);
        }
        Ok(newest)
    }

    /// Opens or makes the file, with both slots in it.
    pub(crate) fn open(dir: &Path) -> Result<Self, DiskError> {
        let path = dir.join("committed");
        let open = || {
            let file = File::options().create(true).truncate(false).write(true).open(&path)?;
            if file.metadata()?.len() < 2 * SLOT_BYTES {
                file.set_len(0)?;
                file.write_all_at(&[0; 2 * SLOT_BYTES as usize], 0)?;
                file.sync_all()?;
            }
            Ok(file)
        };
        let file = open().map_err(DiskError::io::<io::Error>("open", &path))?;
        sync_directory(dir)?;
        Ok(Self { file, path })
    }

    /// Notes what is durable: one `pwrite`.
    pub(crate) fn write(&self, durable: Durable) -> Result<(), DiskError> {
        let at = durable.commit % 2 * SLOT_BYTES;
        self.file.write_all_at(&durable.encode(), at).map_err(DiskError::io("write", &self.path))
    }

    /// Makes the mark itself durable.
    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(DiskError::io("sync", &self.path))
    }
}
