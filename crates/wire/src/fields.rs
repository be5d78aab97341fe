//! What all message structures share: their buffers in order, and what was odd about a peer's.

use bytes::Bytes;

use crate::codec::DecodeError;
use crate::ptlrpc::{Message, MessageHeader, MessageWriter, PtlrpcBody};
use crate::slot::{FieldInfo, Found, Odd, Slot};

/// How a message differed from what we would send, so that it can be sent again byte for byte.
///
/// The default is: every buffer of the format listed, none longer or shorter than its structure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    listed: Option<usize>,
    odd: Vec<(usize, Odd)>,
    extra: Vec<Bytes>,
}

impl Shape {
    /// Buffers behind the last one that the format knows: bytes that have no type.
    #[must_use]
    pub fn extra(&self) -> &[Bytes] {
        &self.extra
    }

    /// Bytes that no field shows: extra buffers and what follows a structure in its buffer.
    #[must_use]
    pub fn untyped_bytes(&self) -> usize {
        let long = self.odd.iter().map(|(_, odd)| match odd {
            Odd::Long(bytes) => bytes.len(),
            Odd::Short(_) => 0,
        });
        long.sum::<usize>() + self.extra.iter().map(Bytes::len).sum::<usize>()
    }
}

/// A message structure: one field per buffer behind the body.
pub trait Fields: Clone + std::fmt::Debug + Default + PartialEq + Eq {
    /// The buffers in order.
    const FIELDS: &'static [FieldInfo];

    /// Reads the buffers behind the body.
    ///
    /// # Errors
    /// See [`DecodeError`].
    fn from_message(message: &Message) -> Result<Self, DecodeError>;

    /// How many buffers [`Fields::write`] writes.
    fn buffer_count(&self) -> usize;

    /// Writes the buffers behind the body.
    fn write(&self, out: &mut MessageWriter);

    /// Each buffer that is there: its name and its content for people.
    fn dump(&self) -> Vec<(&'static str, String)>;

    /// What was odd about the message this came from.
    fn shape(&self) -> &Shape;

    /// The whole message as one contiguous piece of memory.
    fn to_bytes(&self, header: &MessageHeader, body: &PtlrpcBody) -> Bytes {
        let mut writer = MessageWriter::new(header, self.buffer_count() + 1);
        writer.buffer(|out| crate::codec::Wire::encode(body, out));
        self.write(&mut writer);
        writer.finish()
    }

    /// The buffers, with `body` as the first; to be sent more than once with another body.
    fn to_message(&self, header: &MessageHeader, body: &PtlrpcBody) -> Message {
        Message::decode(&self.to_bytes(header, body)).expect("we can read what we wrote")
    }
}

/// Takes a reply's field that this operation cannot do without.
///
/// # Errors
/// [`DecodeError::Truncated`] if the peer left it out.
pub fn need<T>(field: Option<T>, what: &'static str) -> Result<T, DecodeError> {
    field.ok_or(DecodeError::Truncated { what })
}

/// Walks over a message's buffers while its fields are read.
#[doc(hidden)]
pub struct Cursor<'a> {
    message: &'a Message,
    next: usize,
    shape: Shape,
}

impl<'a> Cursor<'a> {
    pub fn new(message: &'a Message) -> Self {
        Self { message, next: 0, shape: Shape::default() }
    }

    pub fn take<T: Slot>(&mut self, what: &'static str, growable: bool) -> Result<T, DecodeError> {
        let index = self.next;
        self.next += 1;
        let bytes = self.message.buffers.get(index + 1).filter(|bytes| !bytes.is_empty());
        let found = Found { bytes, order: self.message.order, what, growable };
        let (value, odd) = T::take(found)?;
        self.shape.odd.extend(odd.map(|odd| (index, odd)));
        Ok(value)
    }

    /// Notes what remains; `plain` says how many buffers we would list for the same fields.
    pub fn finish(mut self, plain: usize) -> Shape {
        let listed = self.message.buffers.len().saturating_sub(1);
        if listed > self.next {
            self.shape.extra = self.message.buffers[self.next + 1..].to_vec();
        } else if listed != plain {
            self.shape.listed = Some(listed);
        }
        self.shape
    }
}

/// Counts the buffers to list, from whether each field is there and may go unlisted.
#[doc(hidden)]
#[must_use]
pub fn plain_count(fields: &[FieldInfo], present: &[bool]) -> usize {
    let needed = |index: &usize| present[*index] || !fields[*index].tail;
    (0..fields.len()).rev().find(needed).map_or(0, |last| last + 1)
}

/// Counts the buffers to list as the message did that these fields came from.
#[doc(hidden)]
#[must_use]
pub fn listed_count(fields: &[FieldInfo], present: &[bool], shape: &Shape) -> usize {
    if !shape.extra.is_empty() {
        return fields.len() + shape.extra.len();
    }
    let filled = present.iter().rposition(|present| *present).map_or(0, |last| last + 1);
    shape.listed.map_or_else(|| plain_count(fields, present), |listed| listed.max(filled))
}

/// Writes field `index` as the buffer it came from.
#[doc(hidden)]
pub fn write_field<T: Slot>(out: &mut MessageWriter, field: &T, shape: &Shape, index: usize) {
    let odd = shape.odd.iter().find(|(at, _)| *at == index).map(|(_, odd)| odd);
    out.buffer(|writer| {
        let start = writer.len();
        field.put(writer);
        match odd {
            Some(Odd::Long(rest)) => writer.put(rest),
            Some(Odd::Short(length)) => writer.truncate(start + length),
            None => {}
        }
    });
}

/// Writes the buffers that have no field.
#[doc(hidden)]
pub fn write_extra(out: &mut MessageWriter, shape: &Shape) {
    for bytes in &shape.extra {
        out.buffer(|writer| writer.put(bytes));
    }
}

/// Declares one message structure.
#[doc(hidden)]
#[macro_export]
macro_rules! message_fields {
    (@mark growable growable) => { true };
    (@mark tail tail) => { true };
    (@mark $a:ident $($b:ident)?) => { false };
    ($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ty $(= $mark:ident)?,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(#[doc = concat!("Buffer `", stringify!($field), "`.")] pub $field: $kind,)*
            /// How the message differed from what we would send.
            pub shape: $crate::fields::Shape,
        }

        impl $name {
            fn present(&self) -> [bool; <Self as $crate::fields::Fields>::FIELDS.len()] {
                [$($crate::slot::Slot::is_present(&self.$field),)*]
            }
        }

        impl $crate::fields::Fields for $name {
            const FIELDS: &'static [$crate::slot::FieldInfo] = &[
                $($crate::slot::FieldInfo {
                    name: stringify!($field),
                    kind: <$kind as $crate::slot::Slot>::KIND,
                    type_name: stringify!($kind),
                    size: <$kind as $crate::slot::Slot>::SIZE,
                    growable: $crate::message_fields!(@mark growable $($mark)?),
                    tail: $crate::message_fields!(@mark tail $($mark)?),
                },)*
            ];

            fn from_message(
                message: &$crate::ptlrpc::Message,
            ) -> Result<Self, $crate::codec::DecodeError> {
                #[allow(unused_mut)]
                let mut cursor = $crate::fields::Cursor::new(message);
                let mut value = Self {
                    $($field: cursor.take(
                        stringify!($field),
                        $crate::message_fields!(@mark growable $($mark)?),
                    )?,)*
                    shape: $crate::fields::Shape::default(),
                };
                let plain = $crate::fields::plain_count(Self::FIELDS, &value.present());
                value.shape = cursor.finish(plain);
                Ok(value)
            }

            fn buffer_count(&self) -> usize {
                $crate::fields::listed_count(Self::FIELDS, &self.present(), &self.shape)
            }

            fn write(&self, out: &mut $crate::ptlrpc::MessageWriter) {
                #[allow(unused_variables)]
                let count = self.buffer_count();
                #[allow(unused_mut, unused_variables)]
                let mut index = 0;
                $(if index < count {
                    $crate::fields::write_field(out, &self.$field, &self.shape, index);
                }
                #[allow(unused_assignments)]
                { index += 1; })*
                $crate::fields::write_extra(out, &self.shape);
            }

            fn dump(&self) -> Vec<(&'static str, String)> {
                #[allow(unused_mut)]
                let mut lines = Vec::new();
                $(if $crate::slot::Slot::is_present(&self.$field) {
                    lines.push((stringify!($field), format!("{:?}", self.$field)));
                })*
                lines
            }

            fn shape(&self) -> &$crate::fields::Shape {
                &self.shape
            }
        }
    };
}
