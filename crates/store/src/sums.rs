//! Checksums of the blocks of what is written or read, and of all of it, in one pass.

use std::sync::OnceLock;

use bytes::Bytes;

/// Bytes of an object that have one checksum.
pub const BLOCK_BYTES: u64 = 4096;

/// The CRC-32C of the part of one block that a write covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSum {
    /// Number of the block in the object.
    pub block: u64,
    /// Where in the block the part begins, in bytes.
    pub start: u16,
    /// Bytes of the part.
    pub length: u16,
    /// CRC-32C of the part.
    pub sum: u32,
}

/// The checksums of bytes that are to be written at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSums {
    /// Of each block, in order.
    pub blocks: Vec<BlockSum>,
    /// CRC-32C of all the bytes.
    pub sum: u32,
    /// How many there are.
    pub length: u64,
}

impl BlockSums {
    /// Of `pieces`, one behind the other, at `offset` of an object. One pass over the bytes.
    #[must_use]
    pub fn of(offset: u64, pieces: &[Bytes]) -> Self {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let mut blocks: Vec<BlockSum> = Vec::with_capacity(length / BLOCK_BYTES as usize + 2);
        let mut at = offset;
        for piece in pieces {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let (block, start) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
                let (now, later) = rest.split_at(rest.len().min((BLOCK_BYTES - start) as usize));
                let (start, length) = (start as u16, now.len() as u16);
                match blocks.last_mut().filter(|part| part.block == block) {
                    Some(part) => {
                        part.sum = crc32c::crc32c_append(part.sum, now);
                        part.length += length;
                    }
                    None => {
                        let sum = crc32c::crc32c(now);
                        blocks.push(BlockSum { block, start, length, sum });
                    }
                }
                (at, rest) = (at + now.len() as u64, later);
            }
        }
        let sum = blocks.iter().fold(0, |sum, part| joined(sum, part.sum, part.length.into()));
        Self { blocks, sum, length: length as u64 }
    }
}

/// The CRC-32C of some bytes with `length` more behind them, from that of the first and of the second.
#[must_use]
pub fn joined(first: u32, second: u32, length: usize) -> u32 {
    match length as u64 {
        _ if first == 0 => second,
        BLOCK_BYTES => behind_block(first) ^ second,
        _ => crc32c::crc32c_combine(first, second, length),
    }
}

/// The checksum of bytes with a block of zeros behind them, less that of the zeros: what
/// `crc32c_combine` works out anew each time, from tables for each byte of the checksum.
fn behind_block(sum: u32) -> u32 {
    static TABLES: OnceLock<[[u32; 256]; 4]> = OnceLock::new();
    let tables = TABLES.get_or_init(|| {
        let bits: [u32; 32] =
            std::array::from_fn(|bit| crc32c::crc32c_combine(1 << bit, 0, BLOCK_BYTES as usize));
        let of = |place: usize, byte: usize| {
            (0..8)
                .filter(|bit| byte >> bit & 1 == 1)
                .fold(0, |sum, bit| sum ^ bits[8 * place + bit])
        };
        std::array::from_fn(|place| std::array::from_fn(|byte| of(place, byte)))
    });
    let bytes = sum.to_le_bytes();
    (0..4).fold(0, |sum, place| sum ^ tables[place][usize::from(bytes[place])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_at_blocks_and_sums_of_blocks_are_the_sum_of_all() {
        let bytes: Bytes = (0..10_000_u32).map(|at| ((at * at) >> 3) as u8).collect();
        let pieces = [bytes.slice(..1), Bytes::new(), bytes.slice(1..5000), bytes.slice(5000..)];
        let sums = BlockSums::of(4000, &pieces);
        let places: Vec<_> = sums.blocks.iter().map(|p| (p.block, p.start, p.length)).collect();
        assert_eq!(places, [(0, 4000, 96), (1, 0, 4096), (2, 0, 4096), (3, 0, 1712)]);
        assert_eq!(sums.blocks[1].sum, crc32c::crc32c(&bytes[96..4192]));
        assert_eq!((sums.sum, sums.length), (crc32c::crc32c(&bytes), 10_000));
        assert_eq!(BlockSums::of(7, &[]), BlockSums::default());
    }
}
