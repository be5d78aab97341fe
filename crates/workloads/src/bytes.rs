//! File contents that can be distinguished and made again.
//!
//! A content is a function of a seed and a position, so that a reader needs no copy of what was
//! written, and a block that lands at the wrong place or in the wrong file is seen.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{Context, Outcome};

/// The unit in which contents are made and compared.
pub const BLOCK: usize = 1 << 20;

/// Fills `block` with the content that seed `seed` has at byte `offset` (a multiple of 8).
pub fn fill(block: &mut [u8], seed: u64, offset: u64) {
    for (word, eight) in (offset / 8..).zip(block.chunks_mut(8)) {
        let bytes = mix(word ^ seed.rotate_left(32)).to_le_bytes();
        eight.copy_from_slice(&bytes[..eight.len()]);
    }
}

/// `length` bytes of the content of `seed`, from its beginning.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fill(&mut bytes, seed, 0);
    bytes
}

/// A checksum of a whole file: every byte and its place count.
pub fn checksum(path: &Path) -> Outcome<u64> {
    let mut file = File::open(path).context(path.display())?;
    let mut block = vec![0; BLOCK];
    let (mut sum, mut length) = (0, 0u64);
    loop {
        let filled = read_full(&mut file, &mut block).context(path.display())?;
        for eight in block[..filled].chunks(8) {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            sum = mix(sum ^ u64::from_le_bytes(word));
        }
        length += filled as u64;
        if filled < block.len() {
            return Ok(mix(sum ^ length));
        }
    }
}

/// Reads until `block` is full or the file ends; says how many bytes came.
pub fn read_full(file: &mut File, block: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read(&mut block[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Numbers drawn from a seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// A number from 0 to `limit`, without it.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0) % limit.max(1)
    }
}

/// The step of the splitmix64 generator.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What splitmix64 makes of a state.
fn mix(value: u64) -> u64 {
    let mut word = value.wrapping_add(STEP);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_the_same_from_any_offset() {
        let whole = content(7, 4096);
        let mut part = vec![0; 1000];
        fill(&mut part, 7, 1024);
        assert_eq!(part, whole[1024..2024]);
        assert_ne!(content(8, 4096), whole);
    }
}
