//! Reading and writing fields, and the macro that derives both from one list.

use std::fmt;

use bytes::Bytes;
use sheen_types::{
    Fid, Generation, InodeBits, LockHandle, LogicalTime, MatchBits, MdtIndex, ObdHandle,
    ResourceName, Transno, Uuid, Xid,
};

/// Which end of a number came first on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByteOrder {
    /// As x86 and arm write; what we send.
    #[default]
    Little,
    /// A big-endian peer's message.
    Big,
}

/// The bytes do not follow the format: the peer is at fault, not the operation it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The value needed more bytes than were there.
    Truncated {
        /// What was being read.
        what: &'static str,
    },
    /// Bytes were left over behind a value that must fill its buffer.
    Trailing {
        /// What had been read.
        what: &'static str,
        /// How many bytes were left.
        bytes: usize,
    },
    /// A value that the format does not allow.
    Illegal {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { what } => write!(out, "{what}: too few bytes"),
            Self::Trailing { what, bytes } => write!(out, "{what}: {bytes} bytes too many"),
            Self::Illegal { what, value } => write!(out, "{what}: illegal value {value:#x}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The order in which a peer wrote the magic number at the front.
pub(crate) fn order_of(
    bytes: &Bytes,
    magic: u32,
    what: &'static str,
) -> Result<ByteOrder, DecodeError> {
    let found = u32::decode(&mut Reader::new(bytes, ByteOrder::Little))?;
    match found {
        _ if found == magic => Ok(ByteOrder::Little),
        _ if found.swap_bytes() == magic => Ok(ByteOrder::Big),
        _ => Err(DecodeError::Illegal { what, value: found.into() }),
    }
}

/// Reads fields from one buffer, front to back.
#[derive(Clone)]
pub struct Reader<'a> {
    buffer: &'a Bytes,
    at: usize,
    order: ByteOrder,
}

impl<'a> Reader<'a> {
    /// Starts at the front of `buffer`.
    #[must_use]
    pub fn new(buffer: &'a Bytes, order: ByteOrder) -> Self {
        Self { buffer, at: 0, order }
    }

    /// The byte order that numbers are read in.
    #[must_use]
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.buffer.len() - self.at
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if fewer are left.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let rest = &self.buffer[self.at..];
        let (head, _) = rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated { what })?;
        self.at += N;
        Ok(*head)
    }

    /// The next `length` bytes, sharing the buffer.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if fewer are left.
    pub fn bytes(&mut self, length: usize, what: &'static str) -> Result<Bytes, DecodeError> {
        if length > self.remaining() {
            return Err(DecodeError::Truncated { what });
        }
        let start = self.at;
        self.at += length;
        Ok(self.buffer.slice(start..self.at))
    }

    /// The next `length` bytes as text that NULs fill up; see [`crate::text::Chars`].
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if fewer are left.
    pub fn padded(&mut self, length: usize, what: &'static str) -> Result<Bytes, DecodeError> {
        let bytes = self.bytes(length, what)?;
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        Ok(bytes.slice(..end))
    }

    /// All that is left, sharing the buffer.
    pub fn rest(&mut self) -> Bytes {
        let start = self.at;
        self.at = self.buffer.len();
        self.buffer.slice(start..)
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] if something is.
    pub fn finish(&self, what: &'static str) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            bytes => Err(DecodeError::Trailing { what, bytes }),
        }
    }

    /// Checks that nothing but zeros is left: room that the peer has not used.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] if something is.
    pub fn finish_zeros(&mut self, what: &'static str) -> Result<(), DecodeError> {
        match self.rest() {
            rest if rest.iter().all(|byte| *byte == 0) => Ok(()),
            rest => Err(DecodeError::Trailing { what, bytes: rest.len() }),
        }
    }
}

/// Collects encoded fields, little-endian.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Room for `bytes` without growing.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// Appends raw bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends `count` zero bytes.
    pub fn zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    /// Overwrites the number at byte `at`, which must already have been written.
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Removes what was written behind byte `length`.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What was written.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes.into()
    }
}

/// A value of fixed size on the wire.
pub trait Wire: Sized {
    /// Bytes on the wire.
    const SIZE: usize;

    /// Reads one value.
    ///
    /// # Errors
    /// See [`DecodeError`].
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Appends this value: exactly [`Wire::SIZE`] bytes.
    fn encode(&self, writer: &mut Writer);
}

macro_rules! wire_numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            const SIZE: usize = size_of::<$number>();

            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let bytes = reader.array(stringify!($number))?;
                Ok(match reader.order() {
                    ByteOrder::Little => <$number>::from_le_bytes(bytes),
                    ByteOrder::Big => <$number>::from_be_bytes(bytes),
                })
            }

            fn encode(&self, writer: &mut Writer) {
                writer.put(&self.to_le_bytes());
            }
        }
    )*};
}

wire_numbers!(u8, u16, u32, u64, i16, i32, i64);

macro_rules! wire_newtypes {
    ($($name:ident($inner:ty)),*) => {$(
        impl Wire for $name {
            const SIZE: usize = <$inner>::SIZE;

            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                <$inner>::decode(reader).map($name)
            }

            fn encode(&self, writer: &mut Writer) {
                self.0.encode(writer);
            }
        }
    )*};
}

wire_newtypes!(
    Xid(u64),
    Transno(u64),
    LockHandle(u64),
    ObdHandle(u64),
    MatchBits(u64),
    Generation(u32),
    MdtIndex(u16),
    InodeBits(u64)
);
wire_newtypes!(ResourceName([u64; 4]));

/// Times end where no file system comes to: what one MDT makes up leaves room behind it for the times of all later changes, which
/// are larger.
const LOGICAL_TIME_MAX: LogicalTime = LogicalTime(i64::MAX as u64);

impl Wire for LogicalTime {
    const SIZE: usize = 8;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let time = u64::decode(reader).map(Self)?;
        match time <= LOGICAL_TIME_MAX {
            true => Ok(time),
            false => Err(DecodeError::Illegal { what: "logical time", value: time.0 }),
        }
    }

    fn encode(&self, writer: &mut Writer) {
        self.0.encode(writer);
    }
}

impl<T: Wire + Copy + Default, const N: usize> Wire for [T; N] {
    const SIZE: usize = T::SIZE * N;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::decode(reader)?;
        }
        Ok(values)
    }

    fn encode(&self, writer: &mut Writer) {
        for value in self {
            value.encode(writer);
        }
    }
}

impl Wire for Fid {
    const SIZE: usize = 16;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { seq: u64::decode(reader)?, oid: u32::decode(reader)?, ver: u32::decode(reader)? })
    }

    fn encode(&self, writer: &mut Writer) {
        self.seq.encode(writer);
        self.oid.encode(writer);
        self.ver.encode(writer);
    }
}

impl Wire for Uuid {
    const SIZE: usize = 40;

    /// Bytes behind the first NUL must be NUL too: a UUID that says more than it shows is illegal.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bytes = reader.array::<40>("obd_uuid")?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let text = std::str::from_utf8(&bytes[..end]).ok().filter(|text| text.len() < 40);
        match text {
            Some(text) if bytes[end..].iter().all(|byte| *byte == 0) => Ok(Uuid::new(text)),
            _ => Err(DecodeError::Illegal { what: "obd_uuid", value: end as u64 }),
        }
    }

    fn encode(&self, writer: &mut Writer) {
        writer.put(self.as_str().as_bytes());
        writer.zeros(Self::SIZE - self.as_str().len());
    }
}

/// Declares a structure with its fields in wire order; derives size, offsets and both directions.
///
/// Fields that Lustre calls padding or reserved are fields here too, so that a peer's bytes come
/// back out unchanged.
#[macro_export]
macro_rules! wire_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $kind,)* }

        impl $name {
            /// Each field's name and its offset in bytes, in wire order.
            pub const OFFSETS: &'static [(&'static str, usize)] = {
                const SIZES: &[(&str, usize)] =
                    &[$((stringify!($field), <$kind as $crate::codec::Wire>::SIZE),)*];
                const OFFSETS: [(&str, usize); SIZES.len()] = $crate::codec::offsets(SIZES);
                &OFFSETS
            };
        }

        impl $crate::codec::Wire for $name {
            const SIZE: usize = 0 $(+ <$kind as $crate::codec::Wire>::SIZE)*;

            fn decode(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                Ok(Self { $($field: <$kind as $crate::codec::Wire>::decode(reader)?,)* })
            }

            fn encode(&self, writer: &mut $crate::codec::Writer) {
                $($crate::codec::Wire::encode(&self.$field, writer);)*
            }
        }
    };
}

/// Turns a list of sizes into a list of offsets; for [`wire_struct!`].
#[doc(hidden)]
#[must_use]
pub const fn offsets<const N: usize>(
    sizes: &[(&'static str, usize)],
) -> [(&'static str, usize); N] {
    let mut out = [("", 0); N];
    let (mut index, mut offset) = (0, 0);
    while index < N {
        out[index] = (sizes[index].0, offset);
        offset += sizes[index].1;
        index += 1;
    }
    out
}

/// Declares a number whose known values have names; unknown values survive.
#[macro_export]
macro_rules! wire_enum {
    ($(#[$meta:meta])* pub enum $name:ident: $number:ty { $($(#[$value_meta:meta])* $value:ident = $constant:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl $name {
            $($(#[$value_meta])* pub const $value: $name = $name($constant);)*

            /// The value's name, if it has one.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                $(if self == Self::$value { return Some(stringify!($value)); })*
                None
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => out.write_str(name),
                    None => write!(out, concat!(stringify!($name), "({:#x})"), self.0),
                }
            }
        }

        impl $crate::codec::Wire for $name {
            const SIZE: usize = <$number as $crate::codec::Wire>::SIZE;

            fn decode(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                <$number as $crate::codec::Wire>::decode(reader).map($name)
            }

            fn encode(&self, writer: &mut $crate::codec::Writer) {
                $crate::codec::Wire::encode(&self.0, writer);
            }
        }
    };
}

/// Declares a set of bits; bits without a name survive.
#[macro_export]
macro_rules! wire_bits {
    ($(#[$meta:meta])* pub struct $name:ident: $number:ty { $($(#[$bit_meta:meta])* $bit:ident = $constant:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl $name {
            $($(#[$bit_meta])* pub const $bit: $name = $name($constant);)*
            /// No bit.
            pub const NONE: $name = $name(0);

            /// Whether all bits of `other` are set.
            #[must_use]
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any bit of `other` is set.
            #[must_use]
            pub const fn intersects(self, other: $name) -> bool {
                self.0 & other.0 != 0
            }

            /// Without the bits of `other`.
            #[must_use]
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }

            /// Both sets together; usable in constants.
            #[must_use]
            pub const fn union(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name { self.union(other) }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: $name) { self.0 |= other.0; }
        }

        impl std::ops::BitAnd for $name {
            type Output = $name;
            fn bitand(self, other: $name) -> $name { $name(self.0 & other.0) }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut rest = self.0;
                let mut first = true;
                $(if self.contains(Self::$bit) && Self::$bit.0 != 0 {
                    if !first { out.write_str("|")?; }
                    out.write_str(stringify!($bit))?;
                    first = false;
                    rest &= !Self::$bit.0;
                })*
                if rest != 0 || first {
                    if !first { out.write_str("|")?; }
                    write!(out, "{rest:#x}")?;
                }
                Ok(())
            }
        }

        impl $crate::codec::Wire for $name {
            const SIZE: usize = <$number as $crate::codec::Wire>::SIZE;

            fn decode(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                <$number as $crate::codec::Wire>::decode(reader).map($name)
            }

            fn encode(&self, writer: &mut $crate::codec::Writer) {
                $crate::codec::Wire::encode(&self.0, writer);
            }
        }
    };
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro makes everything public")]
mod tests {
    use super::*;

    wire_struct! {
        /// A sample.
        pub struct Sample {
            /// First.
            fid: Fid,
            /// Second.
            count: u32,
            /// Third.
            padding: [u32; 3],
        }
    }

    #[test]
    fn a_structure_knows_its_layout_and_round_trips() {
        assert_eq!(Sample::SIZE, 32);
        assert_eq!(Sample::OFFSETS, [("fid", 0), ("count", 16), ("padding", 20)]);
        let sample = Sample { fid: Fid::ROOT, count: 7, padding: [1, 2, 3] };
        let mut writer = Writer::default();
        sample.encode(&mut writer);
        let bytes = writer.into_bytes();
        let mut reader = Reader::new(&bytes, ByteOrder::Little);
        assert_eq!(Sample::decode(&mut reader), Ok(sample));
        assert_eq!(reader.finish("sample"), Ok(()));
        for length in 0..bytes.len() {
            let short = bytes.slice(..length);
            assert!(Sample::decode(&mut Reader::new(&short, ByteOrder::Little)).is_err());
        }
    }

    #[test]
    fn a_big_endian_peer_is_read_in_its_order() {
        let bytes = Bytes::from_static(&[0, 0, 0, 5]);
        assert_eq!(u32::decode(&mut Reader::new(&bytes, ByteOrder::Big)), Ok(5));
    }
}
