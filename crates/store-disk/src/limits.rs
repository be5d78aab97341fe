//! Every limit of this back end with its reason.

use std::time::Duration;

/// A group goes down once it holds this much, however much memory the store may use: a larger one
/// only makes the wait of a later commit longer.
pub(crate) const GROUP_BYTES_MAX: usize = 32 << 20;
/// A group goes down this long after its first transaction: what a crash may cost without replay.
pub(crate) const GROUP_AGE_MAX: Duration = Duration::from_secs(1);
/// While one group goes down the next may grow to this many times a full one; then callers of
/// `apply` wait, so that a slow disk bounds memory.
pub(crate) const GROUP_OVERFILL: usize = 2;
/// Counted for each change above its own bytes: the maps around it.
pub(crate) const CHANGE_OVERHEAD_BYTES: usize = 128;
/// Shards of the overlay: threads that touch different keys seldom meet, and locking all of them
/// (once a group) stays in microseconds.
pub(crate) const OVERLAY_SHARDS: usize = 64;
/// Memory of one store by default: six of them in one process stay under 250 MiB.
pub(crate) const CACHE_BYTES_DEFAULT: usize = 32 << 20;
/// With less, nothing is found in the caches.
pub(crate) const CACHE_BYTES_MIN: usize = 4 << 20;
/// Each of fjall's two large memtables goes to a table at this size. fjall keeps it with the keyspace when that is made. What is in
/// memtables is read back from the journal at a start after a crash.
pub(crate) const MEMTABLE_BYTES: u64 = 2 << 20;
/// Smaller ones are not worth a file.
pub(crate) const MEMTABLE_BYTES_MIN: u64 = 1 << 20;
/// Of a store's capacity a memtable is one part in so many at most: what is removed makes room only once tables are merged.
pub(crate) const MEMTABLE_SHARE: u64 = 64;
/// A memtable is a table after this, where the disk is not busy.
pub(crate) const FLUSHED_AFTER: Duration = Duration::from_millis(500);
/// A full store merges all of its tables at once only if they are no larger: some seconds of work.
pub(crate) const MERGED_BYTES_MAX: u64 = 256 << 20;
/// Between two times that a full store looks for room.
pub(crate) const ROOM_MADE_AGE_MIN: Duration = Duration::from_secs(5);
/// How long it goes on looking, without being woken, whether more was refused.
pub(crate) const LOOKS_FOR_ROOM_FOR: Duration = Duration::from_secs(60);
/// That of the counters: a handful of keys.
pub(crate) const META_MEMTABLE_BYTES: u64 = 1 << 20;
/// Open files of objects by default; six stores stay under the usual limit of 1,024 for a process
/// together with fjall's.
pub(crate) const OPEN_FILES_DEFAULT: usize = 64;
/// Open files of fjall's own.
pub(crate) const DATABASE_FILES_MAX: usize = 64;
/// Objects whose size is remembered, open or not.
pub(crate) const KNOWN_FILES_MAX: usize = 64 << 10;
/// Written objects remembered until the next commit; beyond, a commit syncs the file system: each file synced alone
/// costs a commit of the host's journal, and all of them together one.
pub(crate) const UNSYNCED_FILES_MAX: usize = 64;
/// fjall's smallest; a journal is freed once its keys are in tables.
pub(crate) const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// Slices of one `pwritev` (Linux `UIO_MAXIOV`).
pub(crate) const SLICES_MAX: usize = 1024;
/// Kept free on the host's file system, so that groups and fjall's merges always find room.
pub(crate) const HOST_RESERVE_BYTES: u64 = 64 << 20;
/// The share of a capacity that only transactions which free something may use.
pub(crate) const RESERVE_SHARE: u64 = 32;
/// Free space of the host is looked at again after this much data was written.
pub(crate) const SPACE_CHECK_BYTES: u64 = 16 << 20;
/// For counting how many objects a store could hold: Lustre's default for MDTs is 2,560.
pub(crate) const BYTES_PER_OBJECT: u64 = 2560;
/// Bytes of `CONFIG` and `format`: text that people write.
pub(crate) const TEXT_BYTES_MAX: u64 = 1 << 20;
/// How old the host's free space may be when something new is accepted: what other programs write
/// in this time must fit into [`HOST_RESERVE_BYTES`] with our own group.
pub(crate) const HOST_LOOK_AGE_MAX: Duration = Duration::from_millis(100);
/// Buckets of marks of what is being overwritten: their file is two pages, written at once.
pub(crate) const MARKS: usize = 1024;
/// Objects with consecutive numbers that share a bucket: files that were made together are rewritten
/// together.
pub(crate) const MARK_OBJECTS: u64 = 256;
/// How long a mark stays after its last use: a writer that overwrites again and again waits for one
/// sync.
pub(crate) const MARK_AGE_MIN: Duration = Duration::from_secs(60);
/// Written data is synced at least this often if no caller asks for it, so that its checksums hold
/// over a power loss; Linux writes it back sooner.
pub(crate) const EPOCH_AGE_MAX: Duration = Duration::from_secs(60);
/// Chunks of checksums in memory, 2 KiB each: those of 8 GiB of data.
pub(crate) const SUM_CHUNKS_MAX: usize = 8192;
/// Power losses that are kept apart; older ones are taken together.
pub(crate) const LOSSES_MAX: usize = 64;
/// Cut ends of journals that are kept: one comes with each loss of power, and it is for looking at.
pub(crate) const LOST_JOURNALS_MAX: usize = 8;
/// Bytes of a table's contents: they name a handful of sections.
pub(crate) const TABLE_CONTENTS_BYTES_MAX: u64 = 1 << 20;
/// Between two lines about what the database cannot read.
pub(crate) const FAULT_LINE_AGE_MIN: Duration = Duration::from_secs(1);
/// Bytes of a key in the database, about: a FID, a hash and a name. Longer is no key of ours.
pub(crate) const KEY_BYTES_MAX: usize = 1024;
/// Damaged objects that each get a line of their own in the log; beyond, the log counts them.
pub(crate) const DAMAGED_REPORTED_MAX: usize = 4096;
