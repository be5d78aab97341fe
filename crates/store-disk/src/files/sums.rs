//! Checksums of a file's blocks, and its length: what is known of them in memory, and how the database
//! keeps it.
//!
//! A block's checksum covers a beginning of it, so that it stays right when the file grows, by a
//! write behind it or by a hole. No checksum is *unknown*, never wrong: holes, what was written while
//! checksums were off, what a crash has left uncertain.
//!
//! In the database a file has a *header* (its lengths, and the blocks of the first MiB) under its name, and
//! a *chunk* under name and number for each further MiB: 4 bytes for each block of 4 KiB.

use std::collections::BTreeMap;

pub(crate) use sheen_store::BLOCK_BYTES;
use sheen_store::{Damage, StoreError};

/// Blocks whose checksums lie together.
pub(crate) const CHUNK_BLOCKS: u64 = 256;
/// Bytes of a chunk's data.
pub(crate) const CHUNK_BYTES: u64 = BLOCK_BYTES * CHUNK_BLOCKS;
/// Bit of a length in the database: the checksum may be older than the bytes.
const UNCERTAIN: u16 = 1 << 15;
/// The layout of headers below.
const HEADER_VERSION: u8 = 1;
/// Every block of the chunk is covered whole and certain: only checksums follow.
const PLAIN: u8 = 0;
/// Checksum and length of each block follow.
const DETAILED: u8 = 1;

/// When something was written: [`super::trust`] says whether it still holds.
pub(crate) type Epoch = u64;
/// Bit of an epoch in the database: all that is said of the file was durable when it was written.
pub(crate) const DURABLE: Epoch = 1 << 63;

/// One block's checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// CRC-32C.
    pub(crate) sum: u32,
    /// Bytes from the block's beginning that it covers; 0 if none is known.
    pub(crate) length: u16,
    /// A crash came between the bytes and the checksum, or may have: that it differs proves nothing.
    pub(crate) uncertain: bool,
}

impl Block {
    /// Nothing is known.
    pub(crate) const UNKNOWN: Self = Self { sum: 0, length: 0, uncertain: false };

    /// The block that begins with these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { sum: crc32c::crc32c(bytes), length: bytes.len() as u16, uncertain: false }
    }

    pub(crate) fn is_known(self) -> bool {
        self.length > 0
    }

    /// Whether `bytes`, of the file from the block's beginning on, are those that were written.
    pub(crate) fn matches(self, bytes: &[u8]) -> bool {
        bytes
            .get(..usize::from(self.length))
            .is_some_and(|covered| crc32c::crc32c(covered) == self.sum)
    }
}

/// The blocks of one MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    blocks: Vec<Block>,
    /// The database holds something else.
    dirty: bool,
    /// The database holds it, but not as durable.
    unsure: bool,
}

impl Chunk {
    fn get(&self, index: usize) -> Block {
        self.blocks.get(index).copied().unwrap_or_default()
    }

    fn set(&mut self, index: usize, block: Block) {
        if index >= self.blocks.len() {
            if !block.is_known() {
                return;
            }
            self.blocks.resize(index + 1, Block::UNKNOWN);
        }
        self.dirty |= self.blocks[index] != block;
        self.blocks[index] = block;
    }

    fn is_empty(&self) -> bool {
        !self.blocks.iter().any(|block| block.is_known())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let is_plain = |block: &Block| u64::from(block.length) == BLOCK_BYTES && !block.uncertain;
        let plain = self.blocks.iter().all(is_plain);
        out.push(if plain { PLAIN } else { DETAILED });
        for block in &self.blocks {
            out.extend(block.sum.to_le_bytes());
            if !plain {
                let uncertain = if block.uncertain { UNCERTAIN } else { 0 };
                out.extend((block.length | uncertain).to_le_bytes());
            }
        }
    }

    /// `uncertain`: all of it, because of what happened since.
    fn decode(bytes: &[u8], uncertain: bool) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let plain = |bytes: &[u8]| {
            let sum = u32::from_le_bytes(bytes.try_into().ok()?);
            Some(Block { sum, length: BLOCK_BYTES as u16, uncertain })
        };
        let detailed = |bytes: &[u8]| {
            let (sum, length) = bytes.split_first_chunk()?;
            let length = u16::from_le_bytes(length.try_into().ok()?);
            let covered = length & !UNCERTAIN;
            (u64::from(covered) <= BLOCK_BYTES).then_some(Block {
                sum: u32::from_le_bytes(*sum),
                length: covered,
                uncertain: uncertain || length & UNCERTAIN != 0,
            })
        };
        let blocks: Option<Vec<_>> = match *kind {
            PLAIN => rest.chunks(4).map(plain).collect(),
            DETAILED => rest.chunks(6).map(detailed).collect(),
            _ => None,
        };
        let blocks = blocks.filter(|blocks| blocks.len() as u64 <= CHUNK_BLOCKS)?;
        Some(Self { blocks, dirty: false, unsure: false })
    }
}

/// What the database's header of a file says, before it is asked how far that holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// When it was written.
    pub(crate) epoch: Epoch,
    /// The file's length then.
    pub(crate) size: u64,
    /// Of that, what was durable with the file's name.
    pub(crate) synced: u64,
    /// The file's name was durable.
    pub(crate) named: bool,
    /// The file was no longer than that.
    pub(crate) exact: bool,
    /// Chunks from this number on are not in the database.
    pub(crate) chunks: u64,
}

/// Flags of a header.
const NAMED: u8 = 1;
const EXACT: u8 = 2;
/// Bytes of a header before its blocks.
const HEADER_BYTES: usize = 1 + 1 + 8 + 8 + 8 + 8;

impl Header {
    fn encode(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.named) * NAMED + u8::from(self.exact) * EXACT;
        out.extend([HEADER_VERSION, flags]);
        for number in [self.epoch, self.size, self.synced] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.chunks.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (fixed, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let wide = |at: usize| fixed[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        if fixed[0] != HEADER_VERSION {
            return None;
        }
        let header = Self {
            epoch: wide(2)?,
            size: wide(10)?,
            synced: wide(18)?,
            named: fixed[1] & NAMED != 0,
            exact: fixed[1] & EXACT != 0,
            chunks: wide(26)?,
        };
        Some((header, rest))
    }
}

/// Whether a file is longer than it was when the database got this value.
pub(super) fn is_longer(kept: &[u8], found: u64) -> bool {
    Header::decode(kept).is_some_and(|(header, _)| header.exact && found > header.size)
}

/// All that is known of one file. Says nothing of the database's chunks that are not here.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// What the database holds was read.
    pub(super) loaded: bool,
    /// There is a file: that it is missing is a loss.
    pub(super) has_file: bool,
    /// The file is at least this long.
    pub(super) size: u64,
    /// And no longer: all that made it so came through here.
    pub(super) exact: bool,
    /// This much of it is durable.
    pub(super) synced: u64,
    /// Its name is.
    pub(super) named: bool,
    /// What the database holds or is about to: changes below the size must be announced.
    pub(super) kept: Header,
    /// Something differs from what the database holds (`dirty` has this sense alone in this crate).
    pub(super) dirty: bool,
    /// The epoch of the last change; 0 if there was none.
    changed: Epoch,
    /// Counts changes, at their beginning and end.
    pub(super) version: u64,
    /// All that is known was synced since the last change.
    durable: bool,
    /// Counts among the users of a mark.
    pub(super) holds_mark: bool,
    /// Stands in the list of what the next group takes.
    pub(super) pending: bool,
    /// The object is destroyed: nothing is kept any more.
    pub(super) gone: bool,
    chunks: BTreeMap<u64, Chunk>,
}

/// How long a file must be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    size: u64,
    exact: bool,
}

impl Length {
    /// What is wrong with a file of this length.
    pub(super) fn wrong(self, found: u64) -> Option<Damage> {
        let expected = self.size;
        match found {
            _ if found < expected => Some(Damage::Short { expected, found }),
            _ if found > expected && self.exact => Some(Damage::Long { expected, found }),
            _ => None,
        }
    }

    /// Where the file ends, if that is known: what lies behind is not the file's.
    pub(super) fn end(self) -> u64 {
        if self.exact { self.size } else { u64::MAX }
    }
}

/// Number of the chunk, and of the block in it.
fn place(block: u64) -> (u64, usize) {
    (block / CHUNK_BLOCKS, (block % CHUNK_BLOCKS) as usize)
}

impl Sums {
    /// Of a file that was never made, if `loaded`: the database knows nothing of it.
    pub(super) fn new(loaded: bool) -> Self {
        Self { loaded, exact: loaded, ..Self::default() }
    }

    /// Takes what the database holds; `holds` says whether it must still be so, `named` that the file must
    /// be there.
    pub(super) fn load(
        &mut self,
        bytes: &[u8],
        trust: impl Fn(&Header) -> Trust,
    ) -> Result<(), StoreError> {
        let corrupt = || StoreError::Corrupt("the checksums of a file".to_owned());
        let (header, rest) = Header::decode(bytes).ok_or_else(corrupt)?;
        let trust = trust(&header);
        self.has_file = header.named || trust.data;
        self.named = header.named;
        (self.size, self.synced) = match trust {
            Trust { sizes: false, .. } => (0, 0),
            Trust { data: false, .. } => (header.synced, header.synced),
            Trust { synced, .. } => (header.size, if synced { header.size } else { header.synced }),
        };
        self.exact = header.exact && trust.data && trust.sizes;
        self.kept = header;
        let uncertain = !(trust.data && trust.sizes);
        if !rest.is_empty() {
            self.chunks.insert(0, Chunk::decode(rest, uncertain).ok_or_else(corrupt)?);
        }
        Ok(())
    }

    /// Whether a chunk may be in the database and was not read.
    pub(super) fn lacks(&self, chunk: u64) -> bool {
        chunk > 0 && chunk < self.kept.chunks && !self.chunks.contains_key(&chunk)
    }

    /// Takes a chunk as the database holds it, unless it is known.
    pub(super) fn load_chunk(
        &mut self,
        number: u64,
        bytes: Option<&[u8]>,
        holds: impl Fn(Epoch) -> bool,
    ) -> Result<(), StoreError> {
        if self.chunks.contains_key(&number) {
            return Ok(());
        }
        let parse = |bytes: &[u8]| {
            let (epoch, rest) = bytes.split_first_chunk()?;
            Chunk::decode(rest, !holds(u64::from_le_bytes(*epoch)))
        };
        let chunk = match bytes {
            None => Chunk::default(),
            Some(bytes) => parse(bytes)
                .ok_or_else(|| StoreError::Corrupt("the checksums of a file".to_owned()))?,
        };
        self.chunks.insert(number, chunk);
        Ok(())
    }

    pub(super) fn block(&self, number: u64) -> Block {
        let (chunk, index) = place(number);
        self.chunks.get(&chunk).map_or(Block::UNKNOWN, |chunk| chunk.get(index))
    }

    pub(super) fn set(&mut self, number: u64, block: Block) {
        let (chunk, index) = place(number);
        if !block.is_known() && !self.chunks.contains_key(&chunk) {
            return;
        }
        self.chunks.entry(chunk).or_default().set(index, block);
        self.dirty = true;
    }

    /// Nothing is known of blocks `from..until`; all their chunks that the database has are here.
    pub(super) fn forget(&mut self, from: u64, until: u64) {
        if from >= until {
            return;
        }
        let (first, last) = (place(from).0, place(until - 1).0);
        for (number, chunk) in self.chunks.range_mut(first..=last) {
            let base = *number * CHUNK_BLOCKS;
            let start = from.max(base) - base;
            let end = (until - base).min(chunk.blocks.len() as u64);
            for block in chunk.blocks.iter_mut().take(end as usize).skip(start as usize) {
                if block.is_known() {
                    *block = Block::UNKNOWN;
                    chunk.dirty = true;
                    self.dirty = true;
                }
            }
        }
    }

    /// The first block at or behind this one, among those here, of which something is known.
    pub(super) fn next_known(&self, from: u64) -> Option<u64> {
        let (first, _) = place(from);
        for (number, chunk) in self.chunks.range(first..) {
            let base = *number * CHUNK_BLOCKS;
            let skip = from.saturating_sub(base) as usize;
            let found = chunk.blocks.iter().enumerate().skip(skip).find(|(_, b)| b.is_known());
            if let Some((index, _)) = found {
                return Some(base + index as u64);
            }
        }
        None
    }

    /// The file is cut: sizes go down before it is.
    pub(super) fn cut(&mut self, size: u64) {
        self.dirty |= self.size != size || self.synced > size;
        self.synced = self.synced.min(size);
        // What an older epoch says is durable ends here as well.
        self.kept.size = self.kept.size.min(size);
        self.size = size;
    }

    /// The file is there, and at least this long.
    pub(super) fn grow(&mut self, size: u64) {
        self.dirty |= !self.has_file || size > self.size;
        self.has_file = true;
        self.size = self.size.max(size);
    }

    /// The host says how long the file is, and no writer changes it: if it was not known, that is
    /// it.
    pub(super) fn settle(&mut self, size: u64) {
        if !self.exact {
            self.size = self.size.max(size);
            self.exact = true;
        }
    }

    /// How long the file is is unknown.
    pub(super) fn unsettle(&mut self) {
        self.dirty |= self.exact;
        self.exact = false;
    }

    /// How long the file must be.
    pub(super) fn length(&self) -> Length {
        Length { size: self.size, exact: self.exact }
    }

    /// A change begins or ends, in this epoch.
    pub(super) fn note_change(&mut self, epoch: Epoch) {
        self.version += 1;
        self.changed = epoch;
        self.durable = false;
    }

    /// So much of the file is durable, with its name; all that is known, if there was no change meanwhile.
    pub(super) fn note_synced(&mut self, size: u64, version: u64) {
        self.dirty |= size > self.synced || !self.named;
        self.synced = self.synced.max(size.min(self.size));
        self.named = true;
        if self.version == version && !self.durable {
            self.durable = true;
            self.dirty = true;
            self.chunks.values_mut().for_each(|chunk| chunk.dirty |= chunk.unsure);
        }
    }

    /// What the database is to hold: key's end and value, `None` to remove it. `is_synced` says of an epoch
    /// whether all that was written in it is durable.
    pub(super) fn encode(
        &mut self,
        now: Epoch,
        is_synced: impl Fn(Epoch) -> bool,
    ) -> Vec<(Option<u64>, Option<Vec<u8>>)> {
        let epoch = if self.changed == 0 { now } else { self.changed };
        let epoch = if self.durable { epoch | DURABLE } else { epoch };
        if self.kept.epoch > 0 && is_synced(self.kept.epoch) {
            self.synced = self.synced.max(self.kept.size);
            self.named = true;
        }
        let mut out = Vec::new();
        let mut first = Vec::new();
        for (number, chunk) in &mut self.chunks {
            if *number == 0 {
                if !chunk.is_empty() {
                    chunk.encode(&mut first);
                }
            } else if chunk.dirty {
                let value = (!chunk.is_empty()).then(|| {
                    let mut value = epoch.to_le_bytes().to_vec();
                    chunk.encode(&mut value);
                    value
                });
                self.kept.chunks = self.kept.chunks.max(number.saturating_add(1));
                out.push((Some(*number), value));
            }
            chunk.unsure &= !chunk.dirty;
            chunk.unsure |= chunk.dirty && !self.durable;
            chunk.dirty = false;
        }
        let Self { size, synced, named, exact, .. } = *self;
        self.kept = Header { epoch, size, synced, named, exact, chunks: self.kept.chunks };
        let mut header = Vec::with_capacity(HEADER_BYTES + first.len());
        self.kept.encode(&mut header);
        header.extend(first);
        out.push((None, Some(header)));
        self.dirty = false;
        out
    }

    /// Chunks in memory.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Forgets chunks that the database has.
    pub(super) fn trim(&mut self) {
        self.chunks.retain(|number, chunk| *number == 0 || chunk.dirty);
    }
}

/// How far a header holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trust {
    /// All that was written when it was is there.
    pub(crate) data: bool,
    /// And is durable.
    pub(crate) synced: bool,
    /// The file was not being cut or overwritten when the store died.
    pub(crate) sizes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Trust = Trust { data: true, synced: false, sizes: true };

    fn kept(sums: &mut Sums) -> Vec<(Option<u64>, Option<Vec<u8>>)> {
        sums.encode(7, |_| false)
    }

    fn header(kept: &[(Option<u64>, Option<Vec<u8>>)]) -> &[u8] {
        kept.iter().find(|(chunk, _)| chunk.is_none()).and_then(|(_, v)| v.as_deref()).expect("one")
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let mut sums = Sums::default();
        sums.grow(3 << 20);
        let (whole, part) = (Block::of(&[1; 4096]), Block::of(b"beginning"));
        for block in 0..=CHUNK_BLOCKS {
            sums.set(block, whole);
        }
        sums.set(3, part);
        sums.set(4, Block { uncertain: true, ..whole });
        sums.note_synced(2 << 20, 77);
        let kept = kept(&mut sums);
        assert_eq!(kept.len(), 2, "the header with the first MiB, and the second");
        let mut read = Sums::default();
        read.load(header(&kept), |_| ALL).expect("a header");
        assert_eq!((read.size, read.synced, read.named), (3 << 20, 2 << 20, true));
        assert!(read.lacks(1) && !read.lacks(2));
        read.load_chunk(1, kept[0].1.as_deref(), |epoch| epoch == 7).expect("a chunk");
        for block in 0..=CHUNK_BLOCKS + 1 {
            assert_eq!(read.block(block), sums.block(block), "block {block}");
        }
    }

    #[test]
    fn what_a_crash_leaves_uncertain_proves_nothing() {
        let mut sums = Sums::default();
        sums.grow(8192);
        sums.note_synced(4096, 77);
        sums.set(0, Block::of(&[1; 4096]));
        let kept = kept(&mut sums);
        let mut lost = Sums::default();
        let power = Trust { data: false, synced: false, sizes: true };
        lost.load(header(&kept), |_| power).expect("a header");
        assert_eq!((lost.size, lost.has_file, lost.block(0).uncertain), (4096, true, true));
        let mut cut = Sums::default();
        cut.load(header(&kept), |_| Trust { sizes: false, ..ALL }).expect("a header");
        assert_eq!((cut.size, cut.has_file, cut.block(0).uncertain), (0, true, true));
    }

    #[test]
    fn an_epoch_that_is_synced_makes_its_sizes_durable_and_a_cut_lowers_them() {
        let mut sums = Sums::default();
        sums.grow(8192);
        drop(kept(&mut sums));
        sums.cut(100);
        sums.grow(9000);
        let again = sums.encode(8, |epoch| epoch == 7);
        assert_eq!(Header::decode(header(&again)).expect("a header").0.synced, 100);
    }

    #[test]
    fn what_was_synced_alone_is_kept_as_durable_until_it_changes() {
        let mut sums = Sums::default();
        sums.note_change(7);
        sums.grow(3 << 20);
        (0..=CHUNK_BLOCKS).for_each(|block| sums.set(block, Block::of(&[1; 4096])));
        drop(kept(&mut sums));
        sums.note_synced(3 << 20, sums.version);
        let again = kept(&mut sums);
        assert_eq!(again.len(), 2, "the second MiB, too");
        let epoch = |bytes: &[u8]| Header::decode(bytes).expect("a header").0.epoch;
        assert_eq!(epoch(header(&again)), 7 | DURABLE);
        sums.note_change(8);
        sums.set(3, Block::of(&[2; 4096]));
        let third = kept(&mut sums);
        assert_eq!((third.len(), epoch(header(&third))), (1, 8));
    }

    #[test]
    fn cut_and_flipped_bytes_are_no_checksums() {
        let mut sums = Sums::default();
        sums.set(0, Block::of(&[1; 4096]));
        let kept = kept(&mut sums);
        let bytes = header(&kept);
        for length in
            (0..bytes.len()).filter(|length| !(HEADER_BYTES..HEADER_BYTES + 2).contains(length))
        {
            assert!(Sums::default().load(&bytes[..length], |_| ALL).is_err(), "{length} bytes");
        }
        let mut wrong = bytes.to_vec();
        wrong[0] = 99;
        assert!(Sums::default().load(&wrong, |_| ALL).is_err());
    }

    #[test]
    fn blocks_are_forgotten_within_bounds() {
        let mut sums = Sums::default();
        for block in 250..260 {
            sums.set(block, Block::of(&[1]));
        }
        sums.forget(252, 258);
        let known: Vec<u64> = (0..600).filter(|block| sums.block(*block).is_known()).collect();
        assert_eq!(known, [250, 251, 258, 259]);
        assert_eq!((sums.next_known(0), sums.next_known(252)), (Some(250), Some(258)));
        assert_eq!(sums.next_known(260), None);
    }
}
