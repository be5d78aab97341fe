//! How one buffer of a message becomes one field of a typed structure, and back.
//!
//! A field's Rust type says what its buffer may hold: `T` one structure that must be there,
//! `Option<T>` one that may be absent, `Vec<T>` as many as fill the buffer, [`Bytes`] anything.

use bytes::Bytes;

use crate::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use crate::text::Text;

/// What a buffer of a message holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// One structure, always there.
    Required,
    /// One structure, or nothing.
    Optional,
    /// Structures that fill the buffer.
    Array,
    /// Bytes that the message does not explain.
    Opaque,
}

/// One buffer of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Lustre's name of the buffer.
    pub name: &'static str,
    /// What it holds.
    pub kind: FieldKind,
    /// Rust's name of the type.
    pub type_name: &'static str,
    /// Bytes of one element; 0 if that varies.
    pub size: usize,
    /// Whether a peer's buffer may be shorter or longer than the structure.
    pub growable: bool,
    /// Whether the buffer is not even listed when it and all behind it are absent.
    pub tail: bool,
}

/// A value that has a buffer to itself.
pub trait Part: Sized {
    /// Bytes that decoding needs at least.
    const SIZE_MIN: usize;

    /// Reads from the front of the buffer, all of it if the size varies.
    ///
    /// # Errors
    /// See [`DecodeError`].
    fn decode_part(reader: &mut Reader<'_>, what: &'static str) -> Result<Self, DecodeError>;

    /// Appends the value.
    fn encode_part(&self, writer: &mut Writer);
}

impl<T: Wire> Part for T {
    const SIZE_MIN: usize = T::SIZE;

    fn decode_part(reader: &mut Reader<'_>, _what: &'static str) -> Result<Self, DecodeError> {
        T::decode(reader)
    }

    fn encode_part(&self, writer: &mut Writer) {
        self.encode(writer);
    }
}

impl Part for Text {
    const SIZE_MIN: usize = 0;

    fn decode_part(reader: &mut Reader<'_>, what: &'static str) -> Result<Self, DecodeError> {
        Text::from_buffer(reader.rest(), what)
    }

    fn encode_part(&self, writer: &mut Writer) {
        writer.put(self.buffer());
    }
}

/// How a buffer's length differed from its structure's, where the format allows that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Odd {
    /// The peer's structure is shorter: so many bytes.
    Short(usize),
    /// The peer's structure is longer: these bytes follow ours.
    Long(Bytes),
}

/// One buffer as a field's type sees it.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    /// The bytes; never empty. `None`: absent.
    pub bytes: Option<&'a Bytes>,
    /// The sender's byte order.
    pub order: ByteOrder,
    /// The field's name.
    pub what: &'static str,
    /// Whether the length may differ from the structure's.
    pub growable: bool,
}

/// A field of a message structure.
pub trait Slot: Sized {
    /// What the buffer holds.
    const KIND: FieldKind;
    /// Bytes of one element; 0 if that varies.
    const SIZE: usize;

    /// Reads the field.
    ///
    /// # Errors
    /// See [`DecodeError`].
    fn take(found: Found<'_>) -> Result<(Self, Option<Odd>), DecodeError>;

    /// Appends the field's bytes.
    fn put(&self, writer: &mut Writer);

    /// Whether the field has any bytes.
    fn is_present(&self) -> bool;
}

impl<T: Part> Slot for T {
    const KIND: FieldKind = FieldKind::Required;
    const SIZE: usize = T::SIZE_MIN;

    fn take(found: Found<'_>) -> Result<(Self, Option<Odd>), DecodeError> {
        let bytes = found.bytes.ok_or(DecodeError::Truncated { what: found.what })?;
        take_part(bytes, found)
    }

    fn put(&self, writer: &mut Writer) {
        self.encode_part(writer);
    }

    fn is_present(&self) -> bool {
        true
    }
}

impl<T: Part> Slot for Option<T> {
    const KIND: FieldKind = FieldKind::Optional;
    const SIZE: usize = T::SIZE_MIN;

    fn take(found: Found<'_>) -> Result<(Self, Option<Odd>), DecodeError> {
        let Some(bytes) = found.bytes else { return Ok((None, None)) };
        take_part(bytes, found).map(|(value, odd)| (Some(value), odd))
    }

    fn put(&self, writer: &mut Writer) {
        if let Some(value) = self {
            value.encode_part(writer);
        }
    }

    fn is_present(&self) -> bool {
        self.is_some()
    }
}

impl<T: Wire> Slot for Vec<T> {
    const KIND: FieldKind = FieldKind::Array;
    const SIZE: usize = T::SIZE;

    fn take(found: Found<'_>) -> Result<(Self, Option<Odd>), DecodeError> {
        let Some(bytes) = found.bytes else { return Ok((Vec::new(), None)) };
        let left = bytes.len() % T::SIZE;
        if left != 0 {
            return Err(DecodeError::Trailing { what: found.what, bytes: left });
        }
        let mut reader = Reader::new(bytes, found.order);
        let values = (0..bytes.len() / T::SIZE).map(|_| T::decode(&mut reader));
        Ok((values.collect::<Result<_, _>>()?, None))
    }

    fn put(&self, writer: &mut Writer) {
        for value in self {
            value.encode(writer);
        }
    }

    fn is_present(&self) -> bool {
        !self.is_empty()
    }
}

impl Slot for Bytes {
    const KIND: FieldKind = FieldKind::Opaque;
    const SIZE: usize = 0;

    fn take(found: Found<'_>) -> Result<(Self, Option<Odd>), DecodeError> {
        Ok((found.bytes.cloned().unwrap_or_default(), None))
    }

    fn put(&self, writer: &mut Writer) {
        writer.put(self);
    }

    fn is_present(&self) -> bool {
        !self.is_empty()
    }
}

fn take_part<T: Part>(bytes: &Bytes, found: Found<'_>) -> Result<(T, Option<Odd>), DecodeError> {
    if found.growable && bytes.len() < T::SIZE_MIN {
        let mut padded = bytes.to_vec();
        padded.resize(T::SIZE_MIN, 0);
        let padded = Bytes::from(padded);
        let value = T::decode_part(&mut Reader::new(&padded, found.order), found.what)?;
        return Ok((value, Some(Odd::Short(bytes.len()))));
    }
    let mut reader = Reader::new(bytes, found.order);
    let value = T::decode_part(&mut reader, found.what)?;
    if found.growable && reader.remaining() > 0 {
        return Ok((value, Some(Odd::Long(reader.rest()))));
    }
    reader.finish(found.what)?;
    Ok((value, None))
}
