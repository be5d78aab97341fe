//! fjall's journal, as this store reads it without fjall.
//!
//! A batch is written, then synced. If power fails between, any of its pages may be on the disk and
//! any not. fjall drops a batch without an end, but refuses to open on one whose parts do not fit
//! together, though that batch, too, was never durable. So before fjall looks, the journals are
//! read here; behind its last whole batch the newest one is cut, and what is cut is kept beside.
//!
//! A whole batch is recognized by our own checksum: the last item of each batch is the store's
//! sequence with a CRC over all items ([`Checksum`]). Its first item is its [`Commit`]: a number
//! that rises by one, so that a batch, or a journal, that is gone from the middle is missed. A
//! whole batch *behind* a broken one means that durable bytes went bad, and so does anything broken
//! in an older journal, which was synced before the next one was begun: that is refused, not cut.
//! What of all this is too little is for [`crate::inspect`] to say.
//!
//! Knows fjall 3's journal: a batch is `1 count:u32 number:u64`, items
//! `2 type:u8 compression:u8 keyspace:u64 key:u16 value:u32 stored:u32 key value`, then
//! `3 checksum:u64 "FJL\3"`, little-endian; the checksum is XXH3 of the items' bytes, and zeros
//! follow the last batch. We write no compressed items.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::Xxh3;

use crate::{DiskError, directory::sync_directory, limits};

/// Types of items, as in the journal.
pub(crate) const VALUE: u8 = 0;
pub(crate) const TOMBSTONE: u8 = 1;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: &[u8] = b"FJL\x03";

/// Bytes of the last item's value: a sequence and a checksum.
pub(crate) const SEAL_BYTES: usize = 12;
/// The key of every batch's last item.
pub(crate) const SEQUENCE: &[u8] = b"sequence";
/// The key of every batch's first item. Shorter than a FID, so it is no object's and in no index.
pub(crate) const COMMIT: &[u8] = b"commit";

/// Which batch it is; absent where a program wrote that did not count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commit {
    /// One more than that of the batch before.
    pub(crate) number: u64,
    /// fjall's number of the batch before, which fjall's own checksum does not cover; 0 if unknown.
    pub(crate) before: u64,
}

impl Commit {
    pub(crate) fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.before.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Self { number: word(0)?, before: word(8)? })
    }
}

/// A whole batch, without its items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    /// In the file.
    pub(crate) bytes: u64,
    /// fjall's number of it.
    pub(crate) number: u64,
    /// The store's newest transaction with it.
    pub(crate) sequence: u64,
    pub(crate) commit: Option<Commit>,
}

/// One change of a batch.
pub(crate) struct Item {
    pub(crate) keyspace: u64,
    pub(crate) kind: u8,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Over the items of a batch, the last one without its value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checksum(u32);

impl Checksum {
    /// Adds an item.
    pub(crate) fn add(&mut self, keyspace: u64, kind: u8, key: &[u8], value: &[u8]) {
        let mut head = [0; 15];
        head[..8].copy_from_slice(&keyspace.to_le_bytes());
        head[8] = kind;
        head[9..11].copy_from_slice(&(key.len() as u16).to_le_bytes());
        head[11..].copy_from_slice(&(value.len() as u32).to_le_bytes());
        self.0 = crc32c::crc32c_append(self.0, &head);
        self.0 = crc32c::crc32c_append(self.0, key);
        self.0 = crc32c::crc32c_append(self.0, value);
    }

    /// The value of the last item; the item was added with an empty value.
    pub(crate) fn seal(self, sequence: u64) -> [u8; SEAL_BYTES] {
        let mut seal = [0; SEAL_BYTES];
        seal[..8].copy_from_slice(&sequence.to_le_bytes());
        let checksum = crc32c::crc32c_append(self.0, &seal[..8]);
        seal[8..].copy_from_slice(&checksum.to_le_bytes());
        seal
    }

    /// The sequence of a seal that fits.
    fn sequence(self, seal: &[u8]) -> Option<u64> {
        let sequence = u64::from_le_bytes(*seal.first_chunk()?);
        (self.seal(sequence) == seal).then_some(sequence)
    }
}

/// What lies at a place of a journal.
enum JournalEntry {
    Batch(Batch),
    /// A zero, or the end of the file.
    Nothing,
    /// Something else.
    Broken,
}

/// Reads, counting.
struct CountingReader<R> {
    reader: R,
    bytes: u64,
}

impl<R: Read> CountingReader<R> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.bytes += N as u64;
        Ok(bytes)
    }

    fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.reader).take(count as u64).read_to_end(&mut bytes)?;
        self.bytes += bytes.len() as u64;
        if bytes.len() < count {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }

    /// One item, and its bytes added to `checksum`.
    fn item(&mut self, checksum: &mut Xxh3) -> io::Result<Option<Item>> {
        let head = self.array::<21>()?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[at + byte]));
        if head[0] != ITEM || head[2] != 0 || word(13) != word(17) {
            return Ok(None);
        }
        let keyspace = u64::from(word(3)) | u64::from(word(7)) << 32;
        let key = self.bytes(u16::from_le_bytes([head[11], head[12]]).into())?;
        let value = self.bytes(word(13) as usize)?;
        checksum.update(&head);
        checksum.update(&key);
        checksum.update(&value);
        Ok(Some(Item { keyspace, kind: head[1], key, value }))
    }
}

/// Reads one batch; `each` gets its items, of a batch that turns out broken, too.
fn batch(reader: impl Read, each: &mut dyn FnMut(Item)) -> io::Result<JournalEntry> {
    let mut reader = CountingReader { reader, bytes: 0 };
    match reader.array() {
        Ok([START]) => {}
        Ok([0]) => return Ok(JournalEntry::Nothing),
        Ok(_) => return Ok(JournalEntry::Broken),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Ok(JournalEntry::Nothing);
        }
        Err(error) => return Err(error),
    }
    match items(&mut reader, each) {
        Ok(Some(batch)) => Ok(JournalEntry::Batch(batch)),
        Ok(None) => Ok(JournalEntry::Broken),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(JournalEntry::Broken),
        Err(error) => Err(error),
    }
}

/// Reads what follows the start's tag, if all of it fits together.
fn items(
    reader: &mut CountingReader<impl Read>,
    each: &mut dyn FnMut(Item),
) -> io::Result<Option<Batch>> {
    let count = u32::from_le_bytes(reader.array()?);
    let number = u64::from_le_bytes(reader.array()?);
    let (mut ours, mut theirs) = (Checksum::default(), Xxh3::new());
    let (mut sequence, mut commit) = (None, None);
    for left in (0..count).rev() {
        let Some(item) = reader.item(&mut theirs)? else { return Ok(None) };
        let value = if left > 0 { &item.value[..] } else { &[] };
        ours.add(item.keyspace, item.kind, &item.key, value);
        if left == count - 1 && item.key == COMMIT {
            commit = Commit::decode(&item.value);
        }
        if left == 0 {
            sequence = ours.sequence(&item.value);
        }
        each(item);
    }
    let [tag] = reader.array()?;
    let checksum = u64::from_le_bytes(reader.array()?);
    let ends = reader.array::<4>()? == TRAILER && tag == END && checksum == theirs.digest();
    let bytes = reader.bytes;
    Ok(sequence.filter(|_| ends).map(|sequence| Batch { bytes, number, sequence, commit }))
}

/// The journals in `database`, oldest first.
pub(crate) fn files(database: &Path) -> Result<Vec<PathBuf>, DiskError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(database).map_err(DiskError::io("read", database))? {
        let path = entry.map_err(DiskError::io("read", database))?.path();
        if let Some(number) = file_number(&path) {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

fn file_number(path: &Path) -> Option<u64> {
    path.extension().filter(|extension| *extension == "jnl")?;
    path.file_stem()?.to_str()?.parse().ok()
}

/// What follows the whole batches at the beginning of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalTail {
    /// Where it begins: bytes of whole batches.
    pub(crate) at: u64,
    /// How much of it is not zeros at the end of the file; 0 if nothing follows.
    pub(crate) bytes: u64,
    /// Where in the file another whole batch lies, so that this is no torn end.
    pub(crate) batch_behind: Option<u64>,
    /// The newest transaction that it seems to hold.
    pub(crate) sequence: Option<u64>,
}

/// Reads the journal at `path`: calls `see` for each whole batch at its beginning, and returns what
/// follows them.
pub(crate) fn read(
    path: &Path,
    see: &mut dyn FnMut(Batch) -> Result<(), DiskError>,
) -> Result<JournalTail, DiskError> {
    let failed = || DiskError::io::<io::Error>("read", path);
    let file = File::open(path).map_err(failed())?;
    let mut reader = BufReader::with_capacity(1 << 16, &file);
    let mut at = 0;
    while let JournalEntry::Batch(batch) = batch(&mut reader, &mut |_| {}).map_err(failed())? {
        at += batch.bytes;
        see(batch)?;
    }
    reader.seek(SeekFrom::Start(at)).map_err(failed())?;
    rest(&mut reader, at).map_err(failed())
}

/// Looks at the bytes from `at` on. Zeros at their end are not kept in memory: there may be many.
fn rest(reader: &mut impl Read, at: u64) -> io::Result<JournalTail> {
    let (mut rest, mut zeros) = (Vec::new(), 0);
    let mut piece = vec![0; 1 << 16];
    loop {
        let length = match reader.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let used = piece[..length].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if used > 0 {
            rest.resize(rest.len() + zeros, 0);
            rest.extend_from_slice(&piece[..used]);
            zeros = 0;
        }
        zeros += length - used;
    }
    // A batch ends in "FJL\3", so no zeros that were cut away belong to one.
    let mut batch_behind = None;
    for behind in (1..rest.len()).filter(|behind| rest[*behind] == START) {
        if let JournalEntry::Batch(_) = batch(&rest[behind..], &mut |_| {})? {
            batch_behind = Some(at + behind as u64);
            break;
        }
    }
    Ok(JournalTail { at, bytes: rest.len() as u64, batch_behind, sequence: sequence_in(&rest) })
}

/// The highest sequence that a seal in `bytes` records, whether or not its batch is whole.
fn sequence_in(bytes: &[u8]) -> Option<u64> {
    let mut head = (SEQUENCE.len() as u16).to_le_bytes().to_vec();
    head.extend((SEAL_BYTES as u32).to_le_bytes());
    head.extend((SEAL_BYTES as u32).to_le_bytes());
    head.extend(SEQUENCE);
    let seals = bytes.windows(head.len() + 8).filter(|window| window.starts_with(&head));
    seals.filter_map(|seal| Some(u64::from_le_bytes(*seal[head.len()..].first_chunk()?))).max()
}

/// What a journal gives that may be damaged.
pub(crate) struct Salvage {
    /// Of all items, those that lay in broken batches: nothing proves them.
    pub(crate) unproven: u64,
    /// Bytes that were in no item.
    pub(crate) broken: u64,
}

/// Reads the journal at `path`, whatever it went through: `apply` gets every item with the number of
/// its batch. A batch holds up to a second's work, so the items of a broken one are taken, too, where
/// they look like items.
pub(crate) fn salvage(
    path: &Path,
    apply: &mut dyn FnMut(u64, Item) -> Result<(), DiskError>,
) -> Result<Salvage, DiskError> {
    let failed = || DiskError::io::<io::Error>("read", path);
    let bytes = fs::read(path).map_err(failed())?;
    let mut found = Salvage { unproven: 0, broken: 0 };
    let (mut at, mut number) = (0, 0);
    while let Some(next) = bytes[at..].iter().position(|byte| *byte != 0) {
        at += next;
        let mut whole = Vec::new();
        let rest = &bytes[at..];
        if let JournalEntry::Batch(batch) =
            batch(rest, &mut |item| whole.push(item)).map_err(failed())?
        {
            (at, number) = (at + batch.bytes as usize, batch.number);
            whole.into_iter().try_for_each(|item| apply(number, item))?;
        } else if let Some((length, item)) = loose_item(rest) {
            at += length;
            found.unproven += 1;
            apply(number, item)?;
        } else if let Some(started) = start(rest, number) {
            (at, number) = (at + START_BYTES, started);
        } else {
            at += 1;
            found.broken += 1;
        }
    }
    Ok(found)
}

/// Bytes of a batch's beginning: tag, count, number.
const START_BYTES: usize = 13;

/// The number of a batch that seems to begin here, behind batch `last`.
fn start(bytes: &[u8], last: u64) -> Option<u64> {
    let number = u64::from_le_bytes(*bytes.get(5..)?.first_chunk()?);
    let is_next = number > last && number - last < 1 << 32;
    (bytes[0] == START && is_next && bytes.get(START_BYTES) == Some(&ITEM)).then_some(number)
}

/// What looks like an item of one of our keyspaces, and its length.
fn loose_item(bytes: &[u8]) -> Option<(usize, Item)> {
    let mut reader = CountingReader { reader: bytes, bytes: 0 };
    let item = reader.item(&mut Xxh3::new()).ok()??;
    let is_ours = (1..=3).contains(&item.keyspace) && item.kind <= TOMBSTONE;
    let is_key = !item.key.is_empty() && item.key.len() <= limits::KEY_BYTES_MAX;
    (is_ours && is_key).then_some((reader.bytes as usize, item))
}

/// Keeps the bytes from `rest` on beside the database as `lost+journal-<n>`, durably, then cuts them
/// off. Of such files the newest [`limits::LOST_JOURNALS_MAX`] stay. Returns where they are kept.
pub(crate) fn cut(path: &Path, rest: JournalTail, keep_in: &Path) -> Result<PathBuf, DiskError> {
    let kept = keep(path, rest, keep_in)?;
    let file = File::options().write(true).open(path).map_err(DiskError::io("open", path))?;
    file.set_len(rest.at).and_then(|()| file.sync_all()).map_err(DiskError::io("cut", path))?;
    Ok(kept)
}

fn keep(path: &Path, rest: JournalTail, keep_in: &Path) -> Result<PathBuf, DiskError> {
    let mut earlier = kept_files(keep_in)?;
    let number = earlier.last().map_or(0, |(number, _)| number + 1);
    let kept = keep_in.join(format!("lost+journal-{number}"));
    let copy = || {
        let mut from = File::open(path)?;
        from.seek(SeekFrom::Start(rest.at))?;
        let mut to = File::create_new(&kept)?;
        io::copy(&mut from.take(rest.bytes), &mut to)?;
        to.flush()?;
        to.sync_all()
    };
    copy().map_err(DiskError::io("write", &kept))?;
    sync_directory(keep_in)?;
    let surplus = (earlier.len() + 1).saturating_sub(limits::LOST_JOURNALS_MAX);
    for (_, old) in earlier.drain(..surplus) {
        fs::remove_file(&old).map_err(DiskError::io("remove", &old))?;
    }
    Ok(kept)
}

/// What was cut off and kept in `directory`, oldest first.
fn kept_files(directory: &Path) -> Result<Vec<(u64, PathBuf)>, DiskError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(DiskError::io("read", directory))? {
        let path = entry.map_err(DiskError::io("read", directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix("lost+journal-")?.parse::<u64>().ok());
        files.extend(number.map(|number| (number, path)));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(sequence: u64, values: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![START];
        out.extend((values.len() as u32 + 1).to_le_bytes());
        out.extend(9u64.to_le_bytes());
        let items = out.len();
        let mut checksum = Checksum::default();
        let mut item = |key: &[u8], value: &[u8]| {
            out.extend([ITEM, VALUE, 0]);
            out.extend(1u64.to_le_bytes());
            out.extend((key.len() as u16).to_le_bytes());
            out.extend((value.len() as u32).to_le_bytes());
            out.extend((value.len() as u32).to_le_bytes());
            out.extend(key);
            out.extend(value);
        };
        for value in values {
            checksum.add(1, VALUE, b"key", value);
            item(b"key", value);
        }
        checksum.add(1, VALUE, SEQUENCE, b"");
        item(SEQUENCE, &checksum.seal(sequence));
        let mut theirs = Xxh3::new();
        theirs.update(&out[items..]);
        out.push(END);
        out.extend(theirs.digest().to_le_bytes());
        out.extend(TRAILER);
        out
    }

    fn directory() -> PathBuf {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("sheen-journal-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).expect("a directory can be made");
        dir
    }

    /// What a journal of these bytes holds, and what follows that.
    fn found(bytes: &[u8]) -> (Vec<u64>, JournalTail) {
        let dir = directory();
        let path = dir.join("12.jnl");
        fs::write(&path, bytes).expect("write works");
        let mut sequences = Vec::new();
        let rest = read(&path, &mut |batch| {
            sequences.push(batch.sequence);
            Ok(())
        });
        fs::remove_dir_all(&dir).expect("remove works");
        (sequences, rest.expect("read works"))
    }

    #[test]
    fn whole_journals_are_read_to_their_end() {
        let journal = [&whole(1, &[b"one", &[7; 5000]])[..], &whole(2, &[])].concat();
        let zeros = [&journal[..], &[0; 100_000]].concat();
        for bytes in [&journal, &zeros] {
            let (sequences, rest) = found(bytes);
            assert_eq!(sequences, [1, 2]);
            assert_eq!((rest.at, rest.bytes), (journal.len() as u64, 0));
        }
        assert_eq!(found(&[]).1.bytes, 0);
    }

    #[test]
    fn a_broken_last_batch_is_no_batch_at_every_byte() {
        let (first, last) = (whole(1, &[b"one"]), whole(2, &[b"two", b"three"]));
        // Its number alone is covered by no checksum of its own.
        for at in (0..last.len()).filter(|at| !(5..13).contains(at)) {
            let mut torn = last.clone();
            torn[at] ^= 0x55;
            let (sequences, rest) = found(&[&first[..], &torn, &[0; 50]].concat());
            assert_eq!(sequences, [1], "byte {at}");
            assert_eq!((rest.at, rest.bytes), (first.len() as u64, last.len() as u64), "byte {at}");
            assert_eq!(rest.batch_behind, None, "byte {at}");
        }
        for length in 1..last.len() {
            let (sequences, rest) = found(&[&first[..], &last[..length]].concat());
            assert_eq!((sequences, rest.at), (vec![1], first.len() as u64), "{length} bytes");
        }
    }

    #[test]
    fn a_whole_batch_behind_broken_bytes_or_zeros_is_seen() {
        let batches = [whole(1, &[b"one"]), whole(2, &[b"two"]), whole(3, &[b"three"])];
        let (at, behind) = (batches[0].len(), batches[0].len() + batches[1].len());
        let mut journal = batches.concat();
        journal[at + 40] ^= 1;
        let mut zeros = batches.concat();
        zeros[at..behind].fill(0);
        for journal in [journal, zeros] {
            let (sequences, rest) = found(&journal);
            assert_eq!((sequences, rest.batch_behind), (vec![1], Some(behind as u64)));
            assert_eq!(rest.sequence, Some(3));
        }
    }

    #[test]
    fn what_is_cut_is_kept_and_only_the_newest() {
        let dir = directory();
        let path = dir.join("12.jnl");
        let (first, torn) = (whole(1, &[b"one"]), &whole(2, &[b"two"])[..40]);
        for _ in 0..limits::LOST_JOURNALS_MAX + 2 {
            fs::write(&path, [&first[..], torn, &[0; 50]].concat()).expect("write works");
            let rest = read(&path, &mut |_| Ok(())).expect("read works");
            let kept = cut(&path, rest, &dir).expect("cut works");
            assert_eq!(fs::read(&path).expect("read works"), first);
            let bytes = fs::read(&kept).expect("read works");
            let zeros = torn.strip_prefix(&bytes[..]).expect("what was cut off");
            assert!(zeros.iter().all(|byte| *byte == 0) && bytes.len() > 30);
        }
        let kept = kept_files(&dir).expect("read works");
        let numbers: Vec<u64> = kept.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (2..limits::LOST_JOURNALS_MAX as u64 + 2).collect::<Vec<_>>());
        fs::remove_dir_all(&dir).expect("remove works");
    }

    /// The format that is parsed here is the one that the pinned fjall writes.
    #[test]
    fn the_journal_is_the_one_that_fjall_writes() {
        let dir = directory();
        let database = fjall::Database::builder(dir.join("engine"))
            .worker_threads(1)
            .journal_compression(fjall::CompressionType::None)
            .open()
            .expect("fjall opens");
        let keyspace = database.keyspace("one", fjall::KeyspaceCreateOptions::default);
        let keyspace = keyspace.expect("a keyspace is made");
        for number in 1..=50u64 {
            let mut batch = database.batch().durability(Some(fjall::PersistMode::SyncData));
            let mut checksum = Checksum::default();
            let value = vec![number as u8; number as usize * 100];
            let commit = Commit { number, before: 0 };
            for (key, value) in [(COMMIT, &commit.encode()[..]), (b"key", &value)] {
                checksum.add(keyspace.id(), VALUE, key, value);
                batch.insert(&keyspace, key, value);
            }
            checksum.add(keyspace.id(), TOMBSTONE, b"gone", b"");
            batch.remove(&keyspace, "gone");
            checksum.add(keyspace.id(), VALUE, SEQUENCE, b"");
            batch.insert(&keyspace, SEQUENCE, checksum.seal(number * 10));
            batch.commit().expect("commit works");
        }
        let (database, mut batches) = (dir.join("engine"), Vec::new());
        for path in files(&database).expect("the directory is read") {
            let rest = read(&path, &mut |batch| {
                batches.push(batch);
                Ok(())
            });
            assert_eq!(rest.expect("read works").bytes, 0, "all of it is understood");
        }
        assert_eq!(batches.len(), 50);
        for (batch, number) in batches.iter().zip(1..) {
            assert_eq!(
                (batch.sequence, batch.commit.map(|c| c.number)),
                (number * 10, Some(number))
            );
        }
        drop((keyspace, database));
        fs::remove_dir_all(&dir).expect("remove works");
    }
}
