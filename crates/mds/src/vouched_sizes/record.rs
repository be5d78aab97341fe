//! The value of `trusted.som`: a file's size and blocks as the MDT has them, and how far they may be trusted.
//!
//! Lustre's flags say what Lustre means by them; that a record counts only in its era, and that all writers of a file were
//! seen to close it, is in bits that Lustre leaves unused. Clients that read the attribute do not see those.

use bytes::Bytes;
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::md::SomAttrs;

/// `SOM_FL_STRICT`: the size is the file's.
const STRICT: u16 = 0x1;
/// `SOM_FL_LAZY`: it may be out of date.
const LAZY: u16 = 0x4;
/// Ours: all writers of the file were seen to close it.
const CLOSED: u16 = 0x100;

/// As long as nothing has happened that makes all records doubtful (see [`super::era`]). Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Era(pub(super) u64);

impl Era {
    /// What a record has room for.
    pub(super) const BITS: u64 = (1 << 48) - 1;

    fn words(self) -> [u16; 3] {
        [self.0 as u16, (self.0 >> 16) as u16, (self.0 >> 32) as u16]
    }

    fn of_words(words: [u16; 3]) -> Self {
        let [low, middle, high] = words.map(u64::from);
        Self(low | middle << 16 | high << 32)
    }
}

/// How far a record may be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// As a hint.
    Lazy,
    /// As a hint. All writers that the file ever had were seen to close it, if it is still this era: what the OSTs say
    /// of it, once clients have flushed, is its size.
    Closed(Era),
    /// In this era it is the file's size. Clients may have it under their `UPDATE` locks, also after the era.
    Strict(Era),
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeRecord {
    pub(crate) trust: Trust,
    /// Size and blocks of 512 bytes, if a client has reported them.
    pub(crate) reported: Option<(u64, u64)>,
}

impl SizeRecord {
    /// A hint.
    pub(crate) fn lazy(size: u64, blocks: u64) -> Self {
        Self { trust: Trust::Lazy, reported: Some((size, blocks)) }
    }

    pub(crate) fn is_strict(&self) -> bool {
        matches!(self.trust, Trust::Strict(_))
    }

    /// Whether all writers were seen to close the file; `era` is that of now, if there is one.
    pub(crate) fn is_closed(&self, era: Option<Era>) -> bool {
        match self.trust {
            Trust::Lazy => false,
            Trust::Closed(then) | Trust::Strict(then) => Some(then) == era,
        }
    }

    /// Size and blocks, if they are the file's; `era` is that of now, if there is one.
    pub(crate) fn vouched(&self, era: Option<Era>) -> Option<(u64, u64)> {
        self.reported.filter(|_| self.is_strict() && self.is_closed(era))
    }

    /// The record as a mere hint.
    pub(crate) fn as_hint(self) -> Self {
        Self { trust: Trust::Lazy, ..self }
    }

    /// The record as that of a file that was closed: no more to be trusted.
    pub(crate) fn as_closed(self) -> Self {
        match self.trust {
            Trust::Strict(era) => Self { trust: Trust::Closed(era), ..self },
            Trust::Lazy | Trust::Closed(_) => self,
        }
    }

    /// `None` for what is no such record.
    pub(crate) fn decode(value: &Bytes) -> Option<Self> {
        let som = SomAttrs::decode(&mut Reader::new(value, ByteOrder::Little)).ok()?;
        let era = Era::of_words(som.reserved);
        let is_closed = som.valid & CLOSED != 0;
        let trust = match som.valid & STRICT != 0 {
            true if is_closed => Trust::Strict(era),
            _ if is_closed => Trust::Closed(era),
            _ => Trust::Lazy,
        };
        let has_size = som.valid & (STRICT | LAZY) != 0;
        Some(Self { trust, reported: has_size.then_some((som.size, som.blocks)) })
    }

    pub(crate) fn encode(&self) -> Bytes {
        let size = if self.reported.is_some() { LAZY } else { 0 };
        let (valid, era) = match self.trust {
            Trust::Lazy => (size, None),
            Trust::Closed(era) => (size | CLOSED, Some(era)),
            Trust::Strict(era) => (STRICT | CLOSED, Some(era)),
        };
        self.encode_as(valid, era.map_or([0; 3], Era::words))
    }

    /// As clients get it that ask for the attribute; `None` if there is nothing to be said to them.
    pub(crate) fn shown(&self, era: Option<Era>) -> Option<Bytes> {
        self.reported?;
        let valid = if self.vouched(era).is_some() { STRICT } else { LAZY };
        Some(self.encode_as(valid, [0; 3]))
    }

    fn encode_as(&self, valid: u16, reserved: [u16; 3]) -> Bytes {
        let (size, blocks) = self.reported.unwrap_or_default();
        let mut writer = Writer::with_capacity(SomAttrs::SIZE);
        SomAttrs { valid, reserved, size, blocks }.encode(&mut writer);
        writer.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_and_lustre_s_are_hints() {
        let era = Era(0x1234_5678_9abc);
        for trust in [Trust::Lazy, Trust::Closed(era), Trust::Strict(era)] {
            let record = SizeRecord { trust, reported: Some((5, 8)) };
            assert_eq!(SizeRecord::decode(&record.encode()), Some(record));
        }
        let unreported = SizeRecord { trust: Trust::Closed(era), reported: None };
        assert_eq!(SizeRecord::decode(&unreported.encode()), Some(unreported));
        assert_eq!(unreported.shown(Some(era)), None);
        let of_lustre = SizeRecord::lazy(5, 8).encode_as(STRICT, [0; 3]);
        assert_eq!(SizeRecord::decode(&of_lustre), Some(SizeRecord::lazy(5, 8)), "no era");
        assert_eq!(SizeRecord::decode(&Bytes::from_static(b"short")), None);
    }

    #[test]
    fn a_record_of_another_era_vouches_for_nothing() {
        let (now, before) = (Era(7), Era(6));
        let strict = SizeRecord { trust: Trust::Strict(now), reported: Some((5, 8)) };
        assert_eq!(strict.vouched(Some(now)), Some((5, 8)));
        assert_eq!((strict.vouched(Some(before)), strict.vouched(None)), (None, None));
        assert!(strict.is_closed(Some(now)) && !strict.is_closed(None));
        assert_eq!(strict.as_closed().vouched(Some(now)), None);
        assert!(strict.as_closed().is_closed(Some(now)) && !strict.as_hint().is_closed(Some(now)));
        let valid = |bytes: Bytes| u16::from_le_bytes([bytes[0], bytes[1]]);
        assert_eq!(valid(strict.shown(Some(now)).unwrap()), STRICT);
        assert_eq!(valid(strict.shown(Some(before)).unwrap()), LAZY);
    }
}
