//! Requests that carry several operations (`MDS_BATCH`).

use bytes::Bytes;

use crate::codec::{DecodeError, Reader, Wire, Writer, order_of};
use crate::fields::Fields;
use crate::ptlrpc::{Message, MessageHeader, MessageWriter, message_length};
use crate::wire_struct;

wire_struct! {
    /// `struct but_update_buffer`: one bulk buffer of a batch that does not fit the request.
    pub struct ButUpdateBuffer {
        /// Bytes.
        size: u32,
        /// Unused.
        padding: u32,
    }
}

wire_struct! {
    /// `struct but_update_header`: what a batch is made of.
    pub struct ButUpdateHeader {
        /// [`ButUpdateHeader::MAGIC`].
        magic: u32,
        /// Bulk buffers, or 1 if the operations follow in the request itself.
        count: u32,
        /// Bytes of operations that follow this header; 0 if they come as bulk.
        inline_length: u32,
        /// Bytes set aside for the reply.
        reply_size: u32,
        /// Operations.
        update_count: u32,
        /// Unused.
        padding: u32,
    }
}

impl ButUpdateHeader {
    /// `BUT_HEADER_MAGIC`.
    pub const MAGIC: u32 = 0xbadf_0001;

    /// Reads a request's first buffer: the header, and the operations if they are not bulk.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn split(buffer: &Bytes) -> Result<(Self, Bytes), DecodeError> {
        let order = order_of(buffer, Self::MAGIC, "buh_magic")?;
        let mut reader = Reader::new(buffer, order);
        Ok((Self::decode(&mut reader)?, reader.rest()))
    }
}

wire_struct! {
    /// `struct batch_update_request` and `struct batch_update_reply` before their messages.
    pub struct BatchHeader {
        /// [`BatchHeader::REQUEST_MAGIC`] or [`BatchHeader::REPLY_MAGIC`].
        magic: u32,
        /// Messages that follow.
        count: u16,
        /// Unused.
        padding: u16,
    }
}

impl BatchHeader {
    /// `BUT_REQUEST_MAGIC`.
    pub const REQUEST_MAGIC: u32 = 0xbade_0001;
    /// `BUT_REPLY_MAGIC`.
    pub const REPLY_MAGIC: u32 = 0x00ad_0001;
}

/// `BUT_GETATTR`: the only operation that there is.
pub const GETATTR: u32 = 1;

/// A request whose first buffer is not shorter has its operations as bulk (`OUT_UPDATE_MAX_INLINE_SIZE`).
pub const INLINE_BYTES: usize = 4096;

/// A client's bulk comes in buffers of so many bytes.
pub const BUFFER_BYTES: usize = 4096;

/// One bulk buffer is shorter (`OUT_MAXREQSIZE`), and a reply not longer (`BUT_MAXREPSIZE`).
pub const BATCH_BYTES_MAX: usize = 1000 * 1024;

/// Lustre's client does not put aside less for a reply (`OUT_UPDATE_REPLY_SIZE`).
pub const REPLY_BYTES_MIN: usize = 4096;

/// The messages of a `batch_update_request` or `batch_update_reply`, each with an empty body before its buffers:
/// a batched message has none, and the formats of whole messages start with one.
#[derive(Clone, Debug)]
pub struct BatchedMessages {
    rest: Bytes,
    left: u16,
}

impl BatchedMessages {
    /// Those of a request's inline data, or of one buffer of its bulk.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn of_request(bytes: &Bytes) -> Result<Self, DecodeError> {
        Self::new(bytes, BatchHeader::REQUEST_MAGIC, "burq_magic")
    }

    /// The messages of a reply.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn of_reply(bytes: &Bytes) -> Result<Self, DecodeError> {
        Self::new(bytes, BatchHeader::REPLY_MAGIC, "burp_magic")
    }

    fn new(bytes: &Bytes, magic: u32, what: &'static str) -> Result<Self, DecodeError> {
        let order = order_of(bytes, magic, what)?;
        let mut reader = Reader::new(bytes, order);
        let header = BatchHeader::decode(&mut reader)?;
        Ok(Self { rest: reader.rest(), left: header.count })
    }

    /// How many follow, as the peer says.
    #[must_use]
    pub fn announced(&self) -> usize {
        self.left.into()
    }
}

impl Iterator for BatchedMessages {
    type Item = Result<Message, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let message = next_message(&mut self.rest);
        if message.is_err() {
            self.left = 0;
        }
        Some(message)
    }
}

fn next_message(rest: &mut Bytes) -> Result<Message, DecodeError> {
    let length = message_length(rest)?;
    if length > rest.len() {
        return Err(DecodeError::Truncated { what: "batch" });
    }
    let mut message = Message::decode(&rest.split_to(length))?;
    message.buffers.insert(0, Bytes::new());
    Ok(message)
}

/// One message as a batch carries it.
#[must_use]
pub fn batched<T: Fields>(header: &MessageHeader, fields: &T) -> Bytes {
    let mut writer = MessageWriter::new(header, fields.buffer_count());
    fields.write(&mut writer);
    writer.finish()
}

/// The messages behind a header with `magic`: a `batch_update_request` or `batch_update_reply`.
#[must_use]
pub fn join(magic: u32, messages: &[Bytes]) -> Bytes {
    let length: usize = messages.iter().map(Bytes::len).sum();
    let mut writer = Writer::with_capacity(BatchHeader::SIZE + length);
    BatchHeader { magic, count: messages.len() as u16, padding: 0 }.encode(&mut writer);
    messages.iter().for_each(|message| writer.put(message));
    writer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::LdlmIntentGetattr;
    use crate::text::Text;

    fn asked(name: &str) -> Bytes {
        let header =
            MessageHeader { repsize: 840, sub_opcode: GETATTR, ..MessageHeader::default() };
        let name = Some(Text::new(name));
        batched(&header, &LdlmIntentGetattr { name, ..LdlmIntentGetattr::default() })
    }

    fn names(bytes: &Bytes) -> Result<Vec<String>, DecodeError> {
        let messages = BatchedMessages::of_request(bytes)?;
        messages
            .map(|message| {
                let message = message?;
                assert_eq!(message.header.sub_opcode, GETATTR);
                let request = LdlmIntentGetattr::from_message(&message)?;
                Ok(format!("{:?}", request.name))
            })
            .collect()
    }

    #[test]
    fn what_is_joined_is_read_again_and_truncation_is_seen_at_every_byte() {
        let whole = join(BatchHeader::REQUEST_MAGIC, &[asked("a"), asked("file.0001")]);
        assert_eq!(names(&whole).expect("whole").len(), 2);
        for length in 0..whole.len() {
            assert!(names(&whole.slice(..length)).is_err(), "{length} of {} bytes", whole.len());
        }
        assert!(BatchedMessages::of_reply(&whole).is_err());
    }

    #[test]
    fn numbers_of_a_peer_that_cannot_be_are_refused() {
        let whole = join(BatchHeader::REQUEST_MAGIC, &[asked("a")]);
        // Where the message's count of buffers lies, and its first length.
        for at in [BatchHeader::SIZE, BatchHeader::SIZE + 32] {
            for value in [u32::MAX, u32::MAX - 7, 1 << 31] {
                let mut bytes = whole.to_vec();
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
                assert!(names(&bytes.into()).is_err(), "{value:#x} at {at}");
            }
        }
        let mut more = whole.to_vec();
        more[4..6].copy_from_slice(&u16::MAX.to_le_bytes());
        assert!(names(&more.into()).is_err(), "more than are there");
    }

    #[test]
    fn the_magic_says_the_order() {
        let header = [0xba, 0xdf, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 2];
        let bytes: Bytes = [&header[..], &[0; 4], b"rest"].concat().into();
        let (read, rest) = ButUpdateHeader::split(&bytes).expect("big-endian");
        assert_eq!((read.count, read.reply_size, read.update_count), (1, 4096, 2));
        assert_eq!(&rest[..], b"rest");
        assert!(ButUpdateHeader::split(&Bytes::from_static(&[0; 24])).is_err());
        assert!(ButUpdateHeader::split(&bytes.slice(..20)).is_err());
    }
}
