//! Batches: messages inside of one message's buffer or bulk.

use bytes::Bytes;
use sheen_wire::batch::{BatchHeader, BatchedMessages, ButUpdateHeader};
use sheen_wire::messages::{
    FieldKind, Fields, Format, LdlmIntentGetattr, LdlmIntentGetattrReply, MdsBatch, RequestFormat,
};
use sheen_wire::ptlrpc::{Message, MessageWriter, message_length};
use sheen_wire::{ByteOrder, DecodeError, Reader, Wire, Writer};

use crate::content::{Content, Explain};

/// Each bulk buffer of a batch starts at a page.
const PAGE: usize = sheen_types::PAGE_BYTES as usize;

/// Reads `but_update_header`, with the operations if they are not bulk.
pub(crate) fn header(bytes: &Bytes, explain: Explain) -> Content {
    typed(bytes, explain, |reader, batch| {
        let header = ButUpdateHeader::decode(reader)?;
        header.encode(&mut batch.encoded);
        batch.shown.push(format!("{header:?}"));
        let rest = reader.rest();
        if !rest.is_empty() {
            batch.messages::<LdlmIntentGetattr>(&rest, false)?;
        }
        Ok(())
    })
}

/// Reads a bulk: one or more buffers of requests, filled up with zeros.
pub(crate) fn requests(bytes: &Bytes, explain: Explain) -> Content {
    typed(bytes, explain, |reader, batch| {
        while reader.remaining() > 0 {
            let at = batch.encoded.len();
            let used = batch.messages::<LdlmIntentGetattr>(&bytes.slice(at..), false)?;
            let page_end = (at + used).next_multiple_of(PAGE).min(bytes.len());
            batch.encoded.zeros(page_end - at - used);
            reader.bytes(page_end - at, "batch")?;
        }
        Ok(())
    })
}

/// Reads `batch_update_reply`. Its count is of successes; what an operation left that failed, the
/// last one, lies behind them.
pub(crate) fn replies(bytes: &Bytes, explain: Explain) -> Content {
    typed(bytes, explain, |reader, batch| {
        let rest = reader.rest();
        let mut used = batch.messages::<LdlmIntentGetattrReply>(&rest, true)?;
        let behind = rest.slice(used..);
        if behind.iter().any(|byte| *byte != 0) {
            used += batch.next::<LdlmIntentGetattrReply>(&behind, true)?;
        }
        batch.encoded.zeros(rest.len() - used);
        Ok(())
    })
}

/// The answers in a `batch_update_reply`, as far as they can be read.
#[must_use]
pub fn attributes(bytes: &Bytes) -> Vec<LdlmIntentGetattrReply> {
    let messages = BatchedMessages::of_reply(bytes).into_iter().flatten().map_while(Result::ok);
    messages.filter_map(|message| LdlmIntentGetattrReply::from_message(&message).ok()).collect()
}

/// The messages of a batch, of which `bulk` is what the client has beside it, as far as they can be read.
#[must_use]
pub fn batched(request: &MdsBatch, bulk: &[Bytes]) -> Vec<Message> {
    let inline = ButUpdateHeader::split(&request.but_update_header).map(|(_, inline)| inline);
    let mut rest = Bytes::from(bulk.concat());
    let buffers: Vec<Bytes> = match inline {
        Ok(inline) if !inline.is_empty() => vec![inline],
        _ => {
            let sizes = request.but_update_buf.iter().map(|buffer| buffer.size as usize);
            sizes.map(|size| rest.split_to(size.min(rest.len()))).collect()
        }
    };
    let messages = buffers.iter().filter_map(|it| BatchedMessages::of_request(it).ok()).flatten();
    messages.map_while(Result::ok).collect()
}

/// The questions of a batch; see [`batched`].
#[must_use]
pub fn questions(request: &MdsBatch, bulk: &[Bytes]) -> Vec<LdlmIntentGetattr> {
    let messages = batched(request, bulk).into_iter();
    messages.filter_map(|message| LdlmIntentGetattr::from_message(&message).ok()).collect()
}

fn typed(
    bytes: &Bytes,
    explain: Explain,
    read: impl FnOnce(&mut Reader<'_>, &mut Batch) -> Result<(), DecodeError>,
) -> Content {
    let encoded = Writer::default();
    let mut batch = Batch { explain, shown: Vec::new(), encoded, dirty: 0 };
    match read(&mut Reader::new(bytes, ByteOrder::Little), &mut batch) {
        Ok(()) => Content::Typed {
            shown: batch.shown.join("; "),
            encoded: batch.encoded.into_bytes(),
            dirty: batch.dirty,
        },
        Err(_) => Content::Untyped,
    }
}

/// What has been read of a batch.
struct Batch {
    /// Reads the buffers that a message leaves as bytes.
    explain: Explain,
    shown: Vec<String>,
    encoded: Writer,
    dirty: usize,
}

impl Batch {
    /// Reads a header and its messages, all of which ask for attributes; returns their length.
    fn messages<T: Fields>(&mut self, bytes: &Bytes, is_reply: bool) -> Result<usize, DecodeError> {
        let header = BatchHeader::decode(&mut Reader::new(bytes, ByteOrder::Little))?;
        if ![BatchHeader::REQUEST_MAGIC, BatchHeader::REPLY_MAGIC].contains(&header.magic) {
            let value = header.magic.into();
            return Err(DecodeError::Illegal { what: "burq_magic", value });
        }
        header.encode(&mut self.encoded);
        let mut at = BatchHeader::SIZE;
        for _ in 0..header.count {
            at += self.next::<T>(&bytes.slice(at..), is_reply)?;
        }
        Ok(at)
    }

    /// Reads the message that `bytes` starts with; returns its length.
    fn next<T: Fields>(&mut self, bytes: &Bytes, is_reply: bool) -> Result<usize, DecodeError> {
        let length = message_length(bytes)?;
        if length > bytes.len() {
            return Err(DecodeError::Truncated { what: "batch" });
        }
        self.message::<T>(&bytes.slice(..length), is_reply)?;
        Ok(length)
    }

    /// Reads one message. It has no body, which the formats of whole messages start with.
    fn message<T: Fields>(&mut self, bytes: &Bytes, is_reply: bool) -> Result<(), DecodeError> {
        let mut message = Message::decode(bytes)?;
        let clean = message.encode();
        message.buffers.insert(0, Bytes::new());
        let fields = T::from_message(&message)?;
        let mut writer = MessageWriter::new(&message.header, fields.buffer_count());
        fields.write(&mut writer);
        let ours = writer.finish();
        opaque(self.explain, &LdlmIntentGetattr::FORMAT, T::FIELDS.len(), is_reply, &message)?;
        let dirty = bytes.iter().zip(&clean).filter(|(wire, clean)| wire != clean).count();
        if ours != clean || dirty != message.dirty_padding {
            return Err(DecodeError::Illegal { what: "batched message", value: 0 });
        }
        self.dirty += dirty;
        self.encoded.put(bytes);
        self.shown.push(format!("{:?}", fields.dump()));
        Ok(())
    }
}

/// Checks the buffers that the format leaves as bytes.
fn opaque(
    explain: Explain,
    format: &Format,
    count: usize,
    is_reply: bool,
    message: &Message,
) -> Result<(), DecodeError> {
    let fields = if is_reply { format.reply } else { format.request };
    let buffers = message.buffers.iter().skip(1);
    for (field, bytes) in fields.iter().take(count).zip(buffers) {
        if field.kind != FieldKind::Opaque || bytes.is_empty() {
            continue;
        }
        match explain(format, is_reply, field.name, bytes) {
            Content::Plain(_) => {}
            Content::Typed { encoded, .. } if encoded == bytes => {}
            _ => return Err(DecodeError::Illegal { what: field.name, value: 0 }),
        }
    }
    Ok(())
}
