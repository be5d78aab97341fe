//! Checksums of bulk data, as both ends compute them over the bytes in the order of the pieces.

use bytes::Bytes;

use crate::connect::ChecksumTypes;

/// An algorithm that we compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Adler-32, from 1.
    Adler,
    /// CRC-32C, with the usual inversions.
    Crc32c,
}

impl Checksum {
    /// What we offer in connects.
    pub const OFFERED: ChecksumTypes = ChecksumTypes::ADLER.union(ChecksumTypes::CRC32C);

    /// The one that both sides like best: CRC-32C, which the processor computes.
    #[must_use]
    pub fn choose(agreed: ChecksumTypes) -> Option<Self> {
        if agreed.contains(ChecksumTypes::CRC32C) {
            Some(Self::Crc32c)
        } else if agreed.contains(ChecksumTypes::ADLER) {
            Some(Self::Adler)
        } else {
            None
        }
    }

    /// Its bit in connects.
    #[must_use]
    pub fn kind(self) -> ChecksumTypes {
        match self {
            Self::Adler => ChecksumTypes::ADLER,
            Self::Crc32c => ChecksumTypes::CRC32C,
        }
    }

    /// The checksum of `pieces` laid end to end. One pass over the data.
    #[must_use]
    pub fn of(self, pieces: &[Bytes]) -> u32 {
        match self {
            Self::Crc32c => pieces.iter().fold(0, |sum, piece| crc32c::crc32c_append(sum, piece)),
            Self::Adler => {
                let mut sum = adler2::Adler32::new();
                pieces.iter().for_each(|piece| sum.write_slice(piece));
                sum.checksum()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_check_values() {
        let text = Bytes::from_static(b"123456789");
        let pieces = [text.slice(..4), text.slice(4..)];
        assert_eq!(Checksum::Crc32c.of(&pieces), 0xe306_9283);
        assert_eq!(Checksum::Adler.of(&pieces), 0x091e_01de);
    }
}
