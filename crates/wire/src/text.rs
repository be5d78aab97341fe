//! Text on the wire: in fields of fixed size, and in buffers of its own.
//!
//! Both keep every byte a peer sent and show only what lies before the first NUL, so that a
//! round trip is exact and a reader never sees what Lustre would not.

use std::fmt;

use bytes::Bytes;
use sheen_types::Name;

use crate::codec::{DecodeError, Reader, Wire, Writer};

/// A `char[N]`: text, then NULs up to `N` bytes.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Chars<const N: usize>(Bytes);

impl<const N: usize> Chars<N> {
    /// The text, cut so that at least one NUL follows it.
    #[must_use]
    pub fn new(text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        Self(Bytes::copy_from_slice(&text[..text.len().min(N.saturating_sub(1))]))
    }

    /// The bytes before the first NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        before_nul(&self.0)
    }

    /// The text, with whatever is not UTF-8 replaced.
    #[must_use]
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(self.as_bytes()).into_owned()
    }
}

impl<const N: usize> Wire for Chars<N> {
    const SIZE: usize = N;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.padded(N, "text").map(Self)
    }

    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.0);
        writer.zeros(N - self.0.len());
    }
}

impl<const N: usize> fmt::Debug for Chars<N> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

/// Text that fills a message buffer and ends with a NUL.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text(Bytes);

impl Text {
    /// `text` and a NUL behind it.
    #[must_use]
    pub fn new(text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.extend_from_slice(text);
        bytes.push(0);
        Self(bytes.into())
    }

    /// `text` in a buffer of `length` bytes, filled up with NULs; longer text is cut.
    #[must_use]
    pub fn padded(text: impl AsRef<[u8]>, length: usize) -> Self {
        let mut bytes = text.as_ref().to_vec();
        bytes.truncate(length.saturating_sub(1));
        bytes.resize(length.max(1), 0);
        Self(bytes.into())
    }

    /// Takes a buffer as it came.
    ///
    /// # Errors
    /// [`DecodeError::Illegal`] if no NUL ends it.
    pub fn from_buffer(buffer: Bytes, what: &'static str) -> Result<Self, DecodeError> {
        match buffer.last() {
            Some(0) => Ok(Self(buffer)),
            last => {
                Err(DecodeError::Illegal { what, value: last.map_or(0, |byte| u64::from(*byte)) })
            }
        }
    }

    /// The bytes before the first NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        before_nul(&self.0)
    }

    /// The text, with whatever is not UTF-8 replaced.
    #[must_use]
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(self.as_bytes()).into_owned()
    }

    /// The whole buffer, NUL and what follows it included.
    #[must_use]
    pub fn buffer(&self) -> &Bytes {
        &self.0
    }
}

impl Default for Text {
    fn default() -> Self {
        Self(Bytes::from_static(&[0]))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<&Name> for Text {
    fn from(name: &Name) -> Self {
        Self::new(name.as_bytes())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

fn before_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::ByteOrder;

    #[test]
    fn bytes_behind_the_nul_survive_unseen() {
        let bytes = Bytes::from_static(b"ab\0c\0\0\0\0");
        let chars = Chars::<8>::decode(&mut Reader::new(&bytes, ByteOrder::Little)).unwrap();
        assert_eq!(chars.as_bytes(), b"ab");
        let mut writer = Writer::default();
        chars.encode(&mut writer);
        assert_eq!(writer.into_bytes(), bytes);
        assert_eq!(Chars::<4>::new("toolong").as_bytes(), b"too");
    }

    #[test]
    fn text_must_end() {
        assert!(Text::from_buffer(Bytes::from_static(b"ab"), "name").is_err());
        assert!(Text::from_buffer(Bytes::new(), "name").is_err());
        let text = Text::from_buffer(Bytes::from_static(b"ab\0\0"), "name").unwrap();
        assert_eq!(text.as_bytes(), b"ab");
        assert_eq!(Text::from("ab").buffer(), &Bytes::from_static(b"ab\0"));
    }
}
