//! The tail of fjall's journal after power loss.
//!
//! A batch is written, then synced. If power fails between, any of its pages may be on the disk and
//! any not. fjall drops a batch without an end, but refuses to open on one whose parts do not fit
//! together, though that batch, too, was never durable. So before fjall looks, the newest journal
//! is read here, and cut behind its last whole batch.
//!
//! What tells a whole batch is our own checksum: the last item of each batch is the store's
//! sequence with a CRC over all items ([`Checksum`]). A whole batch *behind* a broken one means
//! that durable bytes went bad: that is refused, not cut.
//!
//! Knows fjall 3's journal: a batch is `1 count:u32 number:u64`, items
//! `2 type:u8 compression:u8 keyspace:u64 key:u16 value:u32 stored:u32 key value`, then
//! `3 checksum:u64 "FJL\3"`, little-endian; zeros follow the last one. We write no compressed items.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use crate::DiskError;

/// Types of items, as in the journal.
pub(crate) const VALUE: u8 = 0;
pub(crate) const TOMBSTONE: u8 = 1;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: &[u8] = b"FJL\x03";

/// Bytes of the last item's value: a sequence and a checksum.
pub(crate) const SEAL_BYTES: usize = 12;

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

    fn fits(self, seal: &[u8]) -> bool {
        let sequence = seal.get(..8).and_then(|bytes| bytes.try_into().ok());
        sequence.is_some_and(|bytes| self.seal(u64::from_le_bytes(bytes)) == seal)
    }
}

/// What lies at a place of a journal.
enum Found {
    /// A whole batch of so many bytes.
    Batch(u64),
    /// Zeros, or the end of the file.
    Nothing,
    /// Something else.
    Broken,
}

/// Reads, counting.
struct Counted<R> {
    reader: R,
    bytes: u64,
}

impl<R: Read> Counted<R> {
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
}

/// Reads one batch.
fn batch(reader: impl Read) -> io::Result<Found> {
    let mut reader = Counted { reader, bytes: 0 };
    match reader.array() {
        Ok([START]) => {}
        Ok([0]) => return Ok(Found::Nothing),
        Ok(_) => return Ok(Found::Broken),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    }
    match items(&mut reader) {
        Ok(true) => Ok(Found::Batch(reader.bytes)),
        Ok(false) => Ok(Found::Broken),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Found::Broken),
        Err(error) => Err(error),
    }
}

/// Reads what follows the start's tag; whether all of it fits together.
fn items(reader: &mut Counted<impl Read>) -> io::Result<bool> {
    let count = u32::from_le_bytes(reader.array()?);
    let _number: [u8; 8] = reader.array()?;
    let mut checksum = Checksum::default();
    for left in (0..count).rev() {
        let [tag, kind, compression] = reader.array()?;
        let keyspace = u64::from_le_bytes(reader.array()?);
        let key = u16::from_le_bytes(reader.array()?) as usize;
        let (value, stored) = (reader.array::<4>()?, reader.array::<4>()?);
        if tag != ITEM || compression != 0 || value != stored {
            return Ok(false);
        }
        let key = reader.bytes(key)?;
        let value = reader.bytes(u32::from_le_bytes(value) as usize)?;
        checksum.add(keyspace, kind, &key, if left > 0 { &value } else { &[] });
        if left == 0 && !checksum.fits(&value) {
            return Ok(false);
        }
    }
    let [tag] = reader.array()?;
    let _checksum: [u8; 8] = reader.array()?;
    Ok(count > 0 && tag == END && reader.array::<4>()? == TRAILER)
}

/// The journal that was written last.
fn newest(engine: &Path) -> Result<Option<PathBuf>, DiskError> {
    let mut newest = None;
    for entry in fs::read_dir(engine).map_err(DiskError::io("read", engine))? {
        let path = entry.map_err(DiskError::io("read", engine))?.path();
        let number = path
            .extension()
            .filter(|extension| *extension == "jnl")
            .and_then(|_| path.file_stem()?.to_str()?.parse::<u64>().ok());
        if let Some(number) = number {
            newest = newest.max(Some((number, path)));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

/// Cuts what power loss left of a batch that was not synced.
pub(crate) fn repair(engine: &Path) -> Result<(), DiskError> {
    let Some(path) = newest(engine)? else { return Ok(()) };
    let failed = || DiskError::io::<io::Error>("read", &path);
    let file = File::options().read(true).write(true).open(&path).map_err(failed())?;
    let mut reader = BufReader::with_capacity(1 << 16, &file);
    let mut whole = 0;
    loop {
        match batch(&mut reader).map_err(failed())? {
            Found::Batch(bytes) => whole += bytes,
            Found::Nothing => return Ok(()),
            Found::Broken => break,
        }
    }
    let mut rest = Vec::new();
    io::Seek::seek(&mut reader, io::SeekFrom::Start(whole + 1)).map_err(failed())?;
    reader.read_to_end(&mut rest).map_err(failed())?;
    for at in (0..rest.len()).filter(|at| rest[*at] == START) {
        if let Found::Batch(_) = batch(&rest[at..]).map_err(failed())? {
            let why = format!("bytes {whole} to {} went bad", whole + 1 + at as u64);
            return Err(DiskError::Damaged { path, why });
        }
    }
    tracing::info!(path = %path.display(), at = whole, "a commit was cut off by a crash: dropped");
    file.set_len(whole).and_then(|()| file.sync_all()).map_err(DiskError::io("cut", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(sequence: u64, values: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![START];
        out.extend((values.len() as u32 + 1).to_le_bytes());
        out.extend(9u64.to_le_bytes());
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
        checksum.add(1, VALUE, b"sequence", b"");
        item(b"sequence", &checksum.seal(sequence));
        out.push(END);
        out.extend([0; 8]);
        out.extend(TRAILER);
        out
    }

    /// Writes a journal, repairs it, and returns what is left of it.
    fn repaired(bytes: &[u8]) -> Result<Vec<u8>, DiskError> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("sheen-journal-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).expect("a directory can be made");
        fs::write(dir.join("3.jnl"), b"older: not looked at").expect("write works");
        fs::write(dir.join("12.jnl"), bytes).expect("write works");
        let outcome = repair(&dir).map(|()| fs::read(dir.join("12.jnl")).expect("read works"));
        fs::remove_dir_all(&dir).expect("remove works");
        outcome
    }

    #[test]
    fn whole_journals_stay() {
        let batch = whole(1, &[b"one", &[7; 5000]]);
        assert!(matches!(super::batch(&batch[..]), Ok(Found::Batch(n)) if n == batch.len() as u64));
        let journal = [&batch[..], &whole(2, &[]), &[0; 100]].concat();
        assert_eq!(repaired(&journal).expect("repair works"), journal);
        assert_eq!(repaired(&[]).expect("repair works"), []);
    }

    #[test]
    fn a_broken_last_batch_is_cut_at_every_byte() {
        let (first, last) = (whole(1, &[b"one"]), whole(2, &[b"two", b"three"]));
        for at in 0..last.len() {
            // Neither lies in a page without the tag before it, so no tear breaks it alone.
            if (last.len() - 12..last.len() - 4).contains(&at) || (5..13).contains(&at) {
                continue;
            }
            let mut torn = last.clone();
            torn[at] ^= 0x55;
            let journal = [&first[..], &torn, &[0; 50]].concat();
            assert_eq!(repaired(&journal).expect("repair works"), first, "byte {at}");
        }
        for length in 1..last.len() {
            let journal = [&first[..], &last[..length]].concat();
            assert_eq!(repaired(&journal).expect("repair works"), first, "{length} bytes");
        }
    }

    #[test]
    fn broken_bytes_before_a_whole_batch_are_refused() {
        let mut journal =
            [whole(1, &[b"one"]), whole(2, &[b"two"]), whole(3, &[b"three"])].concat();
        let middle = whole(1, &[b"one"]).len() + 40;
        journal[middle] ^= 1;
        assert!(matches!(repaired(&journal), Err(DiskError::Damaged { .. })));
    }
}
