//! What benchmarks write, so that reading back shows whose bytes these are and where they belong.
//!
//! The stamps are IOR's (`src/utilities.c`): data is little-endian words of 64 bits, the upper half of each
//! the rank that wrote it. With [`Packet::Timestamp`] the lower half is the seed plus the word's number
//! in its transfer; the seed is by default the time of the run, so data of an earlier run is wrong.
//! [`Packet::Offset`] puts beside that into the first word of every 4 KiB the transfer's place times the
//! number of the 4 KiB block, so data at a wrong place is wrong too. Filling happens once; before each
//! write only the stamps change.

/// Words between stamps: 4 KiB.
const STAMP_WORDS: usize = 512;
const WORD: usize = 8;

/// What the data is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Packet {
    /// Rank, seed and place in the transfer.
    #[default]
    Timestamp,
    /// Rank, seed and place in the transfer, and where in the file.
    Offset,
    /// Nothing that a compressor finds, and where in the file.
    Incompressible,
    /// Nothing that a compressor or a deduplicator finds: made anew for each write.
    Random,
}

impl Packet {
    /// By the first letter of the name, as IOR does.
    ///
    /// # Errors
    /// A line for any other name.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        match name.bytes().next() {
            Some(b't') => Ok(Self::Timestamp),
            Some(b'o') => Ok(Self::Offset),
            Some(b'i') => Ok(Self::Incompressible),
            Some(b'r') => Ok(Self::Random),
            _ => Err(format!(
                "'{name}' is not a type of data: use offset, incompressible, timestamp or random"
            )),
        }
    }

    /// Its letter.
    pub(crate) fn letter(self) -> &'static str {
        match self {
            Self::Timestamp => "t",
            Self::Offset => "o",
            Self::Incompressible => "i",
            Self::Random => "r",
        }
    }
}

/// The data of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    pub(crate) packet: Packet,
    /// IOR's time stamp signature; the same for all ranks.
    pub(crate) seed: u32,
}

impl Pattern {
    /// Fills a buffer that `rank` will write from.
    pub(crate) fn fill(&self, buffer: &mut [u8], rank: usize) {
        let (words, tail) = buffer.as_chunks_mut::<WORD>();
        let length = words.len() * WORD;
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.word(rank, index).to_le_bytes();
        }
        for (index, byte) in tail.iter_mut().enumerate() {
            *byte = (length + index) as u8;
        }
    }

    /// Makes a filled buffer that of `item`: a number or an offset.
    #[inline]
    pub(crate) fn stamp(&self, buffer: &mut [u8], rank: usize, item: u64) {
        let (words, _) = buffer.as_chunks_mut::<WORD>();
        match self.packet {
            Packet::Timestamp => {}
            Packet::Offset | Packet::Incompressible => {
                for (block, words) in words.chunks_mut(STAMP_WORDS).enumerate() {
                    words[0] = stamp(rank, item, block).to_le_bytes();
                }
            }
            Packet::Random => {
                let first = self.first_random(rank, item);
                for (index, word) in words.iter_mut().enumerate() {
                    *word = mixed(first.wrapping_add(index as u64)).to_le_bytes();
                }
            }
        }
    }

    /// The first byte that is not what `rank` has written for `item`.
    pub(crate) fn wrong(&self, buffer: &[u8], rank: usize, item: u64) -> Option<usize> {
        let (words, tail) = buffer.as_chunks::<WORD>();
        let first = self.first_random(rank, item);
        let expected = |index: usize| match self.packet {
            Packet::Random => mixed(first.wrapping_add(index as u64)),
            Packet::Offset | Packet::Incompressible if index.is_multiple_of(STAMP_WORDS) => {
                stamp(rank, item, index / STAMP_WORDS)
            }
            _ => self.word(rank, index),
        };
        for (index, word) in words.iter().enumerate() {
            let right = expected(index).to_le_bytes();
            if let Some(byte) = (0..WORD).find(|byte| word[*byte] != right[*byte]) {
                return Some(index * WORD + byte);
            }
        }
        let length = words.len() * WORD;
        (0..tail.len()).find(|index| tail[*index] != (length + index) as u8).map(|at| length + at)
    }

    fn word(&self, rank: usize, index: usize) -> u64 {
        match self.packet {
            Packet::Timestamp | Packet::Offset => {
                (rank as u64) << 32 | (u64::from(self.seed) + index as u64)
            }
            Packet::Incompressible | Packet::Random => {
                mixed(self.first_random(rank, 0).wrapping_add(index as u64))
            }
        }
    }

    fn first_random(&self, rank: usize, item: u64) -> u64 {
        mixed(mixed(u64::from(self.seed) ^ (rank as u64) << 32) ^ item)
    }
}

fn stamp(rank: usize, item: u64, block: usize) -> u64 {
    let place = (item as u32).wrapping_mul(block as u32 + 1);
    (rank as u64) << 32 | u64::from(place)
}

/// One step of SplitMix64: every input another output that looks like chance.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A row of numbers that looks like chance and is the same for the same seed.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mixed(seed))
    }

    /// A number below `limit`, which is at least 1.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        ((u128::from(mixed(self.0)) * u128::from(limit)) >> 64) as u64
    }

    /// Puts `all` into another order.
    pub(crate) fn shuffle(&mut self, all: &mut [u64]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: [Packet; 4] =
        [Packet::Timestamp, Packet::Offset, Packet::Incompressible, Packet::Random];

    #[test]
    fn data_that_was_written_is_right_and_any_changed_byte_is_found() {
        for packet in PACKETS {
            let pattern = Pattern { packet, seed: 1_773_942_164 };
            let mut buffer = vec![0; 3 * 4096 + 13];
            pattern.fill(&mut buffer, 5);
            pattern.stamp(&mut buffer, 5, 77 << 20);
            assert_eq!(pattern.wrong(&buffer, 5, 77 << 20), None, "{packet:?}");
            assert!(pattern.wrong(&buffer, 6, 77 << 20).is_some(), "{packet:?}");
            let elsewhere = pattern.wrong(&buffer, 5, 78 << 20).is_some();
            assert_eq!(elsewhere, packet != Packet::Timestamp, "{packet:?}");
            for at in [0, 7, 4096, 5000, buffer.len() - 1] {
                buffer[at] ^= 0x10;
                assert_eq!(pattern.wrong(&buffer, 5, 77 << 20), Some(at), "{packet:?}");
                buffer[at] ^= 0x10;
            }
        }
    }

    #[test]
    fn the_words_are_those_of_ior() {
        let mut buffer = [0; 16];
        let pattern = Pattern { packet: Packet::Offset, seed: 100 };
        pattern.fill(&mut buffer, 3);
        assert_eq!(buffer, [100, 0, 0, 0, 3, 0, 0, 0, 101, 0, 0, 0, 3, 0, 0, 0]);
        pattern.stamp(&mut buffer, 3, 0x1_0000_0007);
        assert_eq!(buffer[..8], [7, 0, 0, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn a_shuffle_loses_nothing() {
        let mut all: Vec<u64> = (0..1000).collect();
        Chance::new(1).shuffle(&mut all);
        assert_ne!(all[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1000));
    }
}
