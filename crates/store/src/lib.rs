//! The object-store contract (Lustre's OSD API in spirit), and the suite that every back end runs.
//!
//! A store holds *objects* named by [`Fid`]. An object has [`Attributes`], extended attributes, and
//! by its kind either *data* (bytes, possibly sparse) or an *index* (ordered keys with values).
//!
//! Two planes, and what each promises:
//!
//! - **Transactions** ([`Store::apply`]) change attributes, extended attributes and indexes, create
//!   and destroy objects. A transaction is applied whole or not at all, is visible when `apply`
//!   returns, and becomes durable in order: after a crash the store holds exactly transactions
//!   1..k, and k is at least the last [`Sequence`] that [`Store::committed`] ever showed.
//! - **Data** ([`Store::write`], [`Store::truncate`], ...) changes an object's bytes at once and
//!   outside the sequence. It survives the death of this process when the call returns, and the
//!   death of the machine when [`Store::sync_data`] returns. An object must be created by a
//!   transaction first; destroying it drops its data when that transaction commits. A transaction
//!   may give two objects each other's data ([`Change::Exchange`]): whose data is whose is then as
//!   durable as the transaction, and the bytes as durable as they were.
//!
//! What has data is exactly what is [`FileKind::Regular`]; what has keys is a
//! [`FileKind::Directory`], or a name that is no object at all.
//!
//! Every method may be called from many threads at once. Methods may block on the disk, never on
//! another caller's operation that waits for durability. Nothing here orders two callers who
//! change the same object: that is what locks above are for.

mod attributes;
mod change;
mod error;
mod integrity;
#[cfg(feature = "suite")]
pub mod suite;
mod sums;
mod xattrs;

pub use attributes::{AttributePatch, Attributes, FileKind};
pub use change::{Change, Sequence, Transaction};
pub use error::StoreError;
pub use integrity::{Damage, Finding, Integrity, Verified};
pub use sums::{BLOCK_BYTES, BlockSum, BlockSums, joined};
pub use xattrs::{WholeObject, Xattrs};

use bytes::Bytes;
use sheen_types::Fid;

/// Bytes of a key of an index; longer ones are refused as [`StoreError::WrongKind`].
pub const KEY_BYTES_MAX: usize = 512;

/// Sizes of a whole store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSpace {
    /// Bytes in all.
    pub total: u64,
    /// Bytes not used.
    pub free: u64,
    /// Bytes that may still be used: `free` less reserves.
    pub available: u64,
    /// Objects that could exist in all.
    pub objects: u64,
    /// Objects that may still be created.
    pub objects_free: u64,
}

/// What a store is advised about bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataAdvice {
    /// They will be read.
    WillRead,
    /// They will not be needed.
    DontNeed,
}

/// One key of an index with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Ordered bytewise.
    pub key: Bytes,
    /// Whatever was inserted.
    pub value: Bytes,
}

/// Entries that [`all_entries`] reads at a time.
const ENTRIES_STEP: usize = 1024;

/// All entries of an index with keys at or above `from`, in order, however many there are: a scan with
/// a limit must not be taken for complete. What is inserted or removed meanwhile may be missed.
pub fn all_entries<'a>(
    store: &'a dyn Store,
    index: Fid,
    from: &[u8],
) -> impl Iterator<Item = Result<Entry, StoreError>> + 'a {
    let mut from = Some(from.to_vec());
    let mut read = Vec::new().into_iter();
    std::iter::from_fn(move || {
        if let Some(entry) = read.next() {
            return Some(Ok(entry));
        }
        let entries = match store.scan(index, from.as_deref()?, ENTRIES_STEP) {
            Ok(entries) => entries,
            Err(error) => {
                from = None;
                return Some(Err(error));
            }
        };
        from = entries.last().map(|last| [&last.key[..], &[0]].concat());
        read = entries.into_iter();
        read.next().map(Ok)
    })
}

/// Called with the newest durable sequence after each commit, or once with the reason why nothing
/// will become durable any more; on a thread of the store's own.
pub type CommitHook = Box<dyn Fn(Result<Sequence, StoreError>) + Send + Sync>;

/// See the crate's documentation for the promises.
pub trait Store: Send + Sync {
    /// The object's attributes; for a data object `size` and `blocks` are those of its bytes now.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error.
    fn attributes(&self, object: Fid) -> Result<Attributes, StoreError>;

    /// The object's attributes as they were set, whatever has become of its bytes: size and blocks of a data
    /// object mean nothing. For callers that remove it, or only look whether it is there.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error.
    fn recorded_attributes(&self, object: Fid) -> Result<Attributes, StoreError> {
        self.attributes(object)
    }

    /// One extended attribute; `None` if the object has none of that name.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error.
    fn xattr(&self, object: Fid, name: &str) -> Result<Option<Bytes>, StoreError>;

    /// The names of all extended attributes, sorted.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error.
    fn xattr_names(&self, object: Fid) -> Result<Vec<String>, StoreError>;

    /// The object as it was set, with all its extended attributes: one look for callers that need several of those.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error.
    fn whole(&self, object: Fid) -> Result<WholeObject, StoreError>;

    /// The value under `key`; `None` if the index has none.
    ///
    /// # Errors
    /// IO errors. An index object that does not exist has no keys.
    fn lookup(&self, index: Fid, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Up to `limit` entries with keys at or above `from`, in order.
    ///
    /// # Errors
    /// IO errors.
    fn scan(&self, index: Fid, from: &[u8], limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// Applies `transaction` and returns its place in the order of durability.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], [`StoreError::Exists`], [`StoreError::NoKey`],
    /// [`StoreError::NoSpace`] or an IO error; then nothing was applied.
    fn apply(&self, transaction: Transaction) -> Result<Sequence, StoreError>;

    /// The newest durable transaction.
    fn committed(&self) -> Sequence;

    /// Asks that all that was applied so far becomes durable soon; does not wait.
    fn commit_soon(&self);

    /// Waits until all that was applied so far, and all data written so far, is durable, and hooks have
    /// been called.
    ///
    /// # Errors
    /// An IO error; then durability of what was applied since the last commit is unknown and the
    /// store refuses further changes.
    fn commit(&self) -> Result<Sequence, StoreError>;

    /// Adds a hook to be called after each commit.
    fn on_commit(&self, hook: CommitHook);

    /// Up to `length` bytes at `offset`; fewer only at the end of the object. Holes read as zeros.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error.
    fn read(&self, object: Fid, offset: u64, length: usize) -> Result<Bytes, StoreError>;

    /// Writes `pieces` one behind the other at `offset`; grows the object as needed.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], [`StoreError::NoSpace`] (a part may have been written),
    /// [`StoreError::TooLarge`] (nothing was), or an IO error.
    fn write(&self, object: Fid, offset: u64, pieces: &[Bytes]) -> Result<(), StoreError>;

    /// Sets the object's size; bytes between the old end and a larger new one read as zeros.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], [`StoreError::TooLarge`], or an IO error.
    fn truncate(&self, object: Fid, size: u64) -> Result<(), StoreError>;

    /// Frees `length` bytes at `offset`: they read as zeros. The size stays.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error.
    fn punch(&self, object: Fid, offset: u64, length: u64) -> Result<(), StoreError>;

    /// Reserves space for `length` bytes at `offset`; grows the size unless `keep_size`.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], [`StoreError::NoSpace`], [`StoreError::TooLarge`], or an IO error.
    fn allocate(
        &self,
        object: Fid,
        offset: u64,
        length: u64,
        keep_size: bool,
    ) -> Result<(), StoreError>;

    /// The next byte at or after `offset` that is data (`hole == false`) or in a hole; the end of
    /// the object counts as a hole. `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error.
    fn seek(&self, object: Fid, offset: u64, hole: bool) -> Result<Option<u64>, StoreError>;

    /// Advises the store about `length` bytes at `offset`, which changes none of them: it may bring them into memory, or
    /// drop what it has of them there.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error.
    fn advise(
        &self,
        object: Fid,
        offset: u64,
        length: u64,
        advice: DataAdvice,
    ) -> Result<(), StoreError> {
        let _ = (offset, length, advice);
        self.attributes(object).map(|_| ())
    }

    /// Waits until the bytes of `object` are durable, with the transaction that created it.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error.
    fn sync_data(&self, object: Fid) -> Result<(), StoreError>;

    /// Whether the transaction that created the object is durable. May say no for a moment longer.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error.
    fn is_created_durably(&self, object: Fid) -> Result<bool, StoreError>;

    /// Largest size that an object can have; at most `i64::MAX`. Stays the same while the store is
    /// open.
    fn object_bytes_max(&self) -> u64;

    /// Sizes of the whole store.
    ///
    /// # Errors
    /// An IO error.
    fn space(&self) -> Result<StoreSpace, StoreError>;

    /// As [`Store::space`], but what other programs use may be missing for a moment; what was written
    /// here is not. For callers that ask with every request.
    ///
    /// # Errors
    /// An IO error.
    fn recent_space(&self) -> Result<StoreSpace, StoreError> {
        self.space()
    }

    /// As [`Store::write`], of bytes whose checksums the caller has worked out: [`BlockSums::of`] this offset
    /// and these pieces. Saves the pass over them where [`Store::has_block_checksums`].
    ///
    /// # Errors
    /// As [`Store::write`].
    fn write_summed(
        &self,
        object: Fid,
        offset: u64,
        pieces: &[Bytes],
        sums: BlockSums,
    ) -> Result<(), StoreError> {
        let _ = sums;
        self.write(object, offset, pieces)
    }

    /// As [`Store::read`], with the CRC-32C of the answer if the store computed it on the way.
    ///
    /// # Errors
    /// As [`Store::read`].
    fn read_summed(
        &self,
        object: Fid,
        offset: u64,
        length: usize,
    ) -> Result<(Bytes, Option<u32>), StoreError> {
        Ok((self.read(object, offset, length)?, None))
    }

    /// Compares a part of an object's data, from `offset` on, with what the store knows of it: that
    /// it is there, its length and its checksums. What has no checksum gets one. Called again with
    /// [`Verified::next`] until there is none; an object that has no data has nothing to compare.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], or an IO error that is no finding.
    fn verify(&self, object: Fid, offset: u64) -> Result<Verified, StoreError> {
        let _ = offset;
        self.attributes(object).map(|_| Verified::default())
    }

    /// Up to `limit` objects that have data, behind `after` in the order of FIDs, as far as they are durable:
    /// for callers that look through all. A back end that has nothing to compare may return none.
    ///
    /// # Errors
    /// An IO error.
    fn data_objects(&self, after: Option<Fid>, limit: usize) -> Result<Vec<Fid>, StoreError> {
        let _ = (after, limit);
        Ok(Vec::new())
    }

    /// What was compared so far.
    fn integrity(&self) -> Integrity {
        Integrity::default()
    }

    /// Whether checksums of blocks are kept and compared.
    fn has_block_checksums(&self) -> bool {
        false
    }

    /// Sets whether they are, from now on. Blocks that are written meanwhile have none afterwards.
    ///
    /// # Errors
    /// [`StoreError::WrongKind`] of no object where the back end keeps none.
    fn keep_block_checksums(&self, keep: bool) -> Result<(), StoreError> {
        match keep {
            false => Ok(()),
            true => Err(StoreError::WrongKind(Fid::default())),
        }
    }
}
